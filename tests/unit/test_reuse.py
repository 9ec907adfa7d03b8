"""Rows of score files are taken over where all that decides them is as it was, and only there."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from shapeline import scores
from shapeline.attribution import reuse
from shapeline.config.validation import load
from shapeline.operations import estimates, kept
from shapeline.plan import jobs

LABEL = "results/e/scores/sampled"


class Input(dict):
    """As Snakemake's namedlist: names and keys."""

    __getattr__ = dict.__getitem__


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("weights", "card.json", "own.py"):
        Path(name).write_text(name)
    Path(LABEL).mkdir(parents=True)
    return tmp_path


def job(**resources) -> SimpleNamespace:
    files = Input(weights="weights", dataset_card="card.json", own=["own.py"])
    return SimpleNamespace(input=files, output=SimpleNamespace(scores=f"{LABEL}/0-of-1.parquet"), resources=resources)


def subject(inputs: np.ndarray, **changes) -> SimpleNamespace:
    known = {"model": None, "form": None, "device": "cpu", "reference": SimpleNamespace(rows=np.zeros((1, 3)))}
    return SimpleNamespace(**known | changes, inputs=lambda share: inputs[share["instance"].to_numpy()])


def selected(*instances: int) -> pd.DataFrame:
    return pd.DataFrame({"instance": instances, "prediction": [i % 2 for i in instances], "row": instances})


SETTINGS = {"method": {"method": "sample_shapley"}, "seed": 0, "budget": 4.0, "code": "c0de"}
INPUTS = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)


def made(share: pd.DataFrame, status: str = "ok") -> pd.DataFrame:
    n = len(share)
    return pd.DataFrame(
        {
            "instance": share["instance"],
            "target": share["prediction"],
            "repeat": 0,
            "budget": 4.0,
            "scores": list(INPUTS[share["instance"]]),
            "uncertainty": None,
            "pairs": None,
            "pairs_uncertainty": None,
            "evaluations": 12,
            "seconds": np.random.default_rng().random(n),  # unlike any other's
            "value_full": 0.0,
            "value_empty": 0.0,
            "status": status,
            "error": None,
            "flag": None,
            "extra": None,
        }
    )


def write(path: str, before: reuse.Reused, status: str = "ok") -> pd.DataFrame:
    rows = before.completed(lambda rest: made(rest, status))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    scores.write(path, rows, {"label": "sampled", **before.stated})
    return scores.read(path)


def ask(*instances: int, settings=SETTINGS, inputs=INPUTS, label="sampled", same="", **changes) -> reuse.Reused:
    return reuse.reused(selected(*instances), subject(inputs, **changes), settings, label, job(same=same))


def test_an_instance_more_is_one_instance(place):
    first = write(f"{LABEL}/0-of-1.parquet", ask(1, 2, 4))
    again = ask(1, 2, 3, 4)
    assert again.rest["instance"].tolist() == [3]
    both = write(f"{LABEL}/0-of-1.parquet", again)
    assert both["instance"].tolist() == [1, 2, 3, 4]
    pd.testing.assert_frame_equal(both[both["instance"] != 3].reset_index(drop=True), first)  # seconds too


def test_shards_of_another_number_are_read(place):
    write(f"{LABEL}/0-of-2.parquet", ask(1, 2))
    write(f"{LABEL}/1-of-2.parquet", ask(5))
    assert ask(1, 2, 5).rest.empty


@pytest.mark.parametrize(
    "change",
    [
        {"settings": SETTINGS | {"seed": 1}},
        {"settings": SETTINGS | {"code": "0dd"}},
        {"settings": SETTINGS | {"budget": 8.0}},
        {"label": "other"},  # other draws
        {"device": "cuda"},
        {"reference": SimpleNamespace(rows=np.ones((1, 3)))},
        {"inputs": INPUTS + 1},
    ],
)
def test_what_decides_a_row_makes_it_anew(place, change):
    write(f"{LABEL}/0-of-1.parquet", ask(1, 2, 4))
    assert len(ask(1, 2, 4).rest) == 0
    assert len(ask(1, 2, 4, **change).rest) == 3


@pytest.mark.parametrize("file", ["weights", "card.json", "own.py"])
def test_another_file_behind_a_row_makes_it_anew(place, file):
    write(f"{LABEL}/0-of-1.parquet", ask(1, 2, 4))
    Path(file).write_text("another")
    assert len(ask(1, 2, 4).rest) == 3


def test_the_input_of_one_instance_makes_that_one_anew(place):
    write(f"{LABEL}/0-of-1.parquet", ask(1, 2, 4))
    changed = INPUTS.copy()
    changed[2, 0] += 1e-6
    assert ask(1, 2, 4, inputs=changed).rest["instance"].tolist() == [2]


def test_another_prediction_is_another_row(place):
    write(f"{LABEL}/0-of-1.parquet", ask(1, 2))
    share = selected(1, 2).assign(prediction=[0, 0])  # of instance 1 it was 1
    assert reuse.reused(share, subject(INPUTS), SETTINGS, "sampled", job()).rest["instance"].tolist() == [1]


def test_a_form_that_happens_to_be_faster_makes_nothing_anew(place):
    write(f"{LABEL}/0-of-1.parquet", ask(1, 2))
    assert ask(1, 2, form=SimpleNamespace(name="frozen")).rest.empty


def test_how_many_are_explained_decides_no_row(place):
    write(f"{LABEL}/0-of-1.parquet", ask(1, settings=SETTINGS | {"instances": 1}))
    assert ask(1, 2, settings=SETTINGS | {"instances": 2}).rest["instance"].tolist() == [2]


def test_failures_are_made_again(place):
    write(f"{LABEL}/0-of-1.parquet", ask(1, 2), status="no design")
    assert len(ask(1, 2).rest) == 2


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"PAR1"), lambda path: path.unlink()])
def test_a_damaged_file_counts_as_absent(place, damage):
    write(f"{LABEL}/0-of-1.parquet", ask(1, 2))
    damage(Path(f"{LABEL}/0-of-1.parquet"))
    assert len(ask(1, 2).rest) == 2


def test_a_file_of_an_earlier_edition_counts_as_absent(place):
    scores.write(f"{LABEL}/0-of-1.parquet", made(selected(1, 2)), {"label": "sampled"})
    assert len(ask(1, 2).rest) == 2


@pytest.mark.parametrize("method", [{"method": "mim"}, {"method": "expected_gradients", "background": 100}])
def test_a_row_that_depends_on_all_data_is_made_anew(place, method):
    settings = SETTINGS | {"method": method}
    write(f"{LABEL}/0-of-1.parquet", ask(1, 2, settings=settings))
    assert len(ask(1, 2, settings=settings).rest) == 2


def test_what_snakemake_has_removed_is_found_where_it_is_kept(place):
    path = f"{LABEL}/0-of-1.parquet"
    first = write(path, ask(1, 2))
    kept.keep([[path], ["results/e/scores/other/0-of-1.parquet"]])
    Path(path).unlink()
    again = ask(1, 2, 3)
    assert again.rest["instance"].tolist() == [3]
    assert write(path, again)["seconds"].tolist()[:2] == first["seconds"].tolist()


def test_exact_values_of_another_experiment_are_taken(place):
    exact = SETTINGS | {"method": {"method": "shapley"}}
    other = "results/f/scores/truth/0-of-1.parquet"
    write(other, ask(1, 2, 3, settings=exact, label="truth"))
    assert ask(2, 4, settings=exact, label="exact", same=other).rest["instance"].tolist() == [4]
    assert ask(2, 4, settings=exact, label="exact", same="results/none.parquet").rest["instance"].tolist() == [2, 4]


def configuration(**changes):
    one = {
        "model": "m",
        "features": {"kind": "patch", "size": 2},
        "instances": {"count": 9},
        "methods": {"exact": {"method": "shapley"}, "drawn": {"method": "sample_shapley"}},
        "metrics": {"cost": {}},
    }
    two = json.loads(json.dumps(one)) | {"instances": {"count": 4}} | changes
    two["methods"] = {"truth": {"method": "shapley"}, "drawn": {"method": "sample_shapley"}}
    return load(
        {
            "run": ["one", "two"],
            "datasets": {"d": {"source": "digits", "classes": [3, 8]}},
            "models": {"m": {"dataset": "d", "architecture": "digits_cnn"}},
            "experiments": {"one": one, "two": two},
        }
    )


def test_the_plan_knows_which_experiments_ask_the_same():
    config = configuration()
    assert jobs.same_scores(config, "two", "truth") == ["results/one/scores/exact/0-of-1.parquet"]
    assert jobs.same_scores(config, "one", "exact") == ["results/two/scores/truth/0-of-1.parquet"]
    assert jobs.same_scores(config, "two", "drawn") == []


@pytest.mark.parametrize(
    "change", [{"reference": "zero"}, {"value": "probability"}, {"features": {"kind": "patch", "size": 4}}]
)
def test_another_question_is_not_the_same(change):
    assert jobs.same_scores(configuration(**change), "two", "truth") == []


def test_what_an_earlier_experiment_makes_is_not_estimated_twice():
    config, other = configuration(), configuration(reference="zero")
    assert estimates.of_experiment(config, "one").seconds == estimates.of_experiment(other, "one").seconds
    saved = estimates.of_experiment(other, "two").evaluations - estimates.of_experiment(config, "two").evaluations
    assert saved == 4 * 2**16
