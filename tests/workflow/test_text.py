"""The paper's text experiments at a tiny size, on files in the official formats, in both frameworks."""

import json

import pandas as pd
import pyarrow as pa
import pytest
import yaml

from shapeline import scores
from tests.fixtures import text_files
from tests.workflow.conftest import brief_theory, copy_repository

pytestmark = pytest.mark.xdist_group("texts")  # one run of the three serves them all

SENTENCE = "It is not heartwarming or entertaining. It just sucks."
METHODS = {
    "exact": {"method": "shapley"},
    "l_shapley": {"method": "l_shapley", "order": 1},
    "rival": {"method": "kernel_shap", "match_budget_of": "l_shapley"},
    "integrated_gradients": {"method": "integrated_gradients", "steps": 8},
}

RECURRENT = {name: METHODS[name] for name in ("l_shapley", "integrated_gradients")}  # each job traces it for seconds


def experiment(model: str, kind: str, **more) -> dict:
    return {
        "model": model,
        "features": {"kind": kind},
        "reference": "pad",
        "instances": {"count": 6},
        "methods": METHODS,
        "metrics": {"cost": {}},
        **more,
    }


def tiny(folder) -> dict:
    """Yahoo with the LSTM on TensorFlow, AG News with characters on torch, a sentence with the word CNN on torch."""
    once = {"epochs": 1}
    return {
        "run": ["yahoo", "agnews", "sentence"],
        "datasets": {
            "yahoo": {"source": "yahoo", "path": str(folder / "yahoo.tgz"), "length": 24, "vocabulary": 200},
            "agnews": {"source": "agnews", "path": str(folder / "agnews"), "length": 150},
            "imdb": {"source": "imdb", "path": str(folder / "imdb.tar.gz"), "length": 30, "vocabulary": 200},
        },
        "models": {
            "lstm": {
                "dataset": "yahoo",
                "architecture": "bilstm",
                "sizes": {"units": 4, "embedding": 5},
                "training": once,
            },
            "characters": {
                "dataset": "agnews",
                "architecture": "char_cnn",
                "framework": "torch",
                "sizes": {"hidden": 8},
                "training": once,
            },
            "cnn": {
                "dataset": "imdb",
                "architecture": "word_cnn",
                "framework": "torch",
                "sizes": {"filters": 6},
                "training": once,
            },
        },
        "experiments": {
            "yahoo": experiment("lstm", "word", methods=RECURRENT),
            "agnews": experiment("characters", "character_run"),
            "sentence": experiment(
                "cnn",
                "word",
                instances={"texts": [SENTENCE, "...", "good " * 21]},
                metrics={"log_odds": {}, "error": {"reference": "exact"}, "cost": {}},
            ),
        },
    }


@pytest.fixture(scope="module")
def texts(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    checkout = brief_theory(copy_repository(root, folder))
    text_files.write_archive(
        folder / "yahoo.tgz",
        {f"yahoo_answers_csv/{part}.csv": text_files.yahoo(n) for part, n in (("train", 60), ("test", 20))},
    )
    text_files.write_folder(folder / "agnews", {"train.csv": text_files.agnews(40), "test.csv": text_files.agnews(16)})
    text_files.write_archive(folder / "imdb.tar.gz", text_files.imdb())
    checkout.configure(tiny(folder))
    instances = "results/yahoo/instances.parquet"
    checkout.snakemake(instances, "--cores", "2")
    table, said = scores.read_table(checkout.path / instances), scores.metadata(checkout.path / instances)
    said["forms"] = {"cpu": {"name": "plain", "batch": 64}}  # each job would compile a recurrent network for seconds
    scores.write_table(checkout.path / instances, pa.Table.from_pandas(table, preserve_index=False), said)
    checkout.snakemake("--cores", "2")
    return checkout


def rows(checkout, name: str, entry: str) -> pd.DataFrame:
    return scores.read(checkout.path / f"results/{name}/scores/{entry}")


def test_every_text_experiment_reaches_its_report(texts):
    for name, framework in (("yahoo", "tensorflow"), ("agnews", "torch"), ("sentence", "torch")):
        assert "Agreement between methods" in (texts.path / f"results/reports/{name}.html").read_text()
        for entry in RECURRENT if name == "yahoo" else METHODS:
            file = next((texts.path / f"results/{name}/scores/{entry}").iterdir())
            assert scores.metadata(file)["framework"] == framework
    page = (texts.path / "results/reports/index.html").read_text()
    assert "351,002" in page and "7,146,166" in page  # the paper's table 1 beside ours


def test_each_document_has_as_many_scores_as_words(texts):
    selected = pd.read_parquet(texts.path / "results/yahoo/instances.parquet").set_index("instance")
    found = rows(texts, "yahoo", "l_shapley")
    lengths = found["scores"].map(len)
    assert (lengths == [min(24, len(text.split())) for text in selected["text"].loc[found["instance"]]]).all()
    extra = rows(texts, "yahoo", "integrated_gradients")["details"].map(json.loads)
    assert extra.map(lambda one: "completeness_gap" in one).all()


def test_a_rival_spends_on_each_document_what_its_method_does(texts):
    found, rival = (rows(texts, "agnews", entry) for entry in ("l_shapley", "rival"))
    assert found["evaluations"].nunique() > 1
    assert (rival["evaluations"] <= found["evaluations"]).all()
    assert (rival["evaluations"] > found["evaluations"] - 2).all()  # pairs: an odd one is left over
    gap = rival["scores"].map(sum) - (rival["value_full"] - rival["value_empty"])
    assert gap.abs().max() < 1e-4


def test_a_custom_sentence_is_explained_exactly_and_an_empty_one_is_a_row_with_its_reason(texts):
    exact = rows(texts, "sentence", "exact").set_index("instance")
    assert exact.loc[-1, "evaluations"] == 2**9 and len(exact.loc[-1, "scores"]) == 9
    assert exact.loc[-2, "status"] == "no features"
    page = (texts.path / "results/reports/sentence.html").read_text()
    assert "heartwarming" in page and "true negative" not in page


def test_a_method_that_cannot_explain_a_long_document_has_a_row_with_the_reason(texts):
    exact, approximate = (rows(texts, "sentence", entry).set_index("instance") for entry in ("exact", "rival"))
    assert exact.loc[-3, "status"] != "ok" and "at most d = 20" in exact.loc[-3, "error"]
    assert approximate.loc[-3, "status"] == "ok"


def test_texts_need_a_text_dataset(fresh):
    raw = yaml.safe_load((fresh.path / "config.yaml").read_text())
    raw["experiments"]["digits"]["instances"] = {"texts": ["no"]}
    fresh.configure(raw)
    done = fresh.snakemake("-n", check=False)
    assert "experiments.digits.instances.texts: only a dataset of kind text takes them" in done.stderr + done.stdout
