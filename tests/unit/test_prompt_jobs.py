"""Jobs on prompts of an experiment: answers, scores against the Python call and the definition, stored values."""

import json

import numpy as np
import pytest
import yaml

import shapeline
from shapeline import scores
from shapeline.attribution.context import parse
from shapeline.config.validation import load
from shapeline.errors import ShapelineError
from shapeline.generation import estimates
from tests.fixtures import language_model
from tests.fixtures.games_of_files import by_definition
from tests.unit.test_game_jobs import Files

pytest.importorskip("transformers", reason="language models need the extra shapeline[text]")
PROMPTS = [
    {"question": "Who designed the tower?", "context": "The tower stands. Mara Velling designed it. A ferry runs.",
     "support": [1]},
    {"question": "What runs?", "context": ["A ferry runs every hour.", "Tickets cost four."], "answer": "A ferry."},
    {"question": "What runs?", "context": ["A ferry runs.", "It is red."], "answer": "A ferry.", "contrast": "A car."},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    language_model.llama().save_pretrained(path)
    language_model.tokenizer(pad=True).save_pretrained(path)
    return path


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, PROMPTS)))
    return path


def settings_of(folder, file, method: dict, **others) -> dict:
    prompts = {"model": str(folder), "path": str(file), "features": "sentence", "removal": "delete"}
    prompts |= {"max_tokens": 6, "count": 100, "measures": True}
    return {"prompts": prompts, "features": {"kind": "sentence"}, "method": method, "seed": 0, **others}


def job_of(tmp_path, settings: dict, entry: str, store: str = ""):
    from shapeline.attribution import selection
    from shapeline.generation import prompt_job

    path = str(tmp_path / "instances.parquet")
    selection.write(path, prompt_job.select_prompts(settings, store, "cpu"), {}, {})
    return prompt_job.PromptJob(parse(settings), entry, Files(instances=path), "cpu", store)


def quietly(total):
    return lambda done, evaluations: None


def test_scores_are_those_of_the_definition_and_of_a_call(tmp_path, folder, file, monkeypatch):
    seeds, measure = [], estimates.measure
    monkeypatch.setattr(estimates, "measure", lambda *given: seeds.append(given[-1]) or measure(*given))
    job = job_of(tmp_path, settings_of(folder, file, {"method": "shapley"}), "exact", str(tmp_path / "rows"))
    told = scores.read_table(job.files.instances)
    rows = job.explain_shard(0, 1, "fail", quietly).rows
    for row, entry, instance in zip(rows.itertuples(), PROMPTS, told.itertuples(), strict=True):
        found = shapeline.explain_generation(
            str(folder), entry["question"], context=entry["context"], target=entry.get("answer"),
            contrast=entry.get("contrast"), max_tokens=6, evaluations=64, method="exact",
        )  # fmt: skip
        masks = np.array([[c >> i & 1 for i in range(len(found))] for c in range(2 ** len(found))], bool)
        np.testing.assert_allclose(row.scores, by_definition(found.game.totals(masks), len(found)), atol=1e-4)
        np.testing.assert_allclose(row.scores, found.scores, atol=1e-4)
        np.testing.assert_allclose(json.loads(row.details)["tokens"], found.tokens, atol=1e-4)
        assert instance.answer == found.answer and [*instance.parts] == [*found.parts]
        assert [*instance.tokens] == [*found.answer_tokens] and np.isclose(row.value_full, found.value_full, atol=1e-4)
    assert told["answer_ids"].notna().tolist() == [True, False, False] and [*told["support"][0]] == [1]
    measures = json.loads(rows["details"][0])["measures"]
    assert {"deletion_auc", "insertion_auc", "top_k_drop", "datamodeling", "precision", "recall"} == set(measures)
    assert "precision" not in json.loads(rows["details"][1])["measures"]
    assert len(set(seeds)) == len(PROMPTS)  # prompts, the units of tests, share no coalitions of `datamodeling`


def test_shards_and_stored_values_change_no_score(tmp_path, folder, file, monkeypatch):
    store = str(tmp_path / "rows")
    settings = settings_of(folder, file, {"method": "gp_shapley"}, budget=2.0, repeats=2)
    whole = job_of(tmp_path, settings, "gp").explain_shard(0, 1, "fail", quietly).rows
    job = job_of(tmp_path, settings, "gp", store)
    parts = [job.explain_shard(index, 2, "fail", quietly).rows for index in range(2)]
    assert [len(part) for part in parts] == [4, 2]
    both = np.concatenate([*parts[0]["scores"], *parts[1]["scores"]])
    np.testing.assert_allclose(both, np.concatenate(whole["scores"]), atol=1e-3)  # of other batches
    from shapeline.generation.game import ModelSource

    def refuse(self, masks):
        raise AssertionError("a coalition is evaluated once more")

    monkeypatch.setattr(ModelSource, "__call__", refuse)
    again = job.explain_shard(0, 1, "fail", quietly).rows
    np.testing.assert_array_equal(np.concatenate(again["scores"]), both)


def test_a_budget_that_ends_when_the_error_is_small(tmp_path, folder, file):
    words = {"features": {"kind": "word"}, "methods": {"gp": {"method": "gp_shapley", "budget": {"error": 0.5}}}}
    load(config_of(folder, file, **words))
    rows = []
    for budget in ({"error": 0.5, "max_budget": 32}, {"error": 1e-9, "max_budget": 4}):
        settings = settings_of(folder, file, {"method": "gp_shapley"}, budget=budget)
        settings["prompts"]["features"] = "word"
        job = job_of(tmp_path, settings, "gp", str(tmp_path / "rows"))
        rows.append(job.explain_shard(0, 1, "fail", quietly).rows)
    assert rows[0]["budget"].isna().all() and rows[0]["warning"].isna().all()
    for row, few, entry in zip(rows[0].itertuples(), rows[1].itertuples(), PROMPTS, strict=True):
        exact = shapeline.explain_generation(
            str(folder), entry["question"], context=entry["context"], target=entry.get("answer"), features="word",
            contrast=entry.get("contrast"), max_tokens=6, method="exact",
        )  # fmt: skip
        assert np.sqrt(np.mean((row.scores - exact.scores) ** 2)) < 1
        assert few.evaluations <= 4 * len(exact) and (few.evaluations == 2 ** len(exact)) == (few.warning is None)


def test_a_placeholder_stands_for_a_removed_part(tmp_path, folder, file):
    raw = config_of(folder, file, reference={"kind": "placeholder", "text": "[...]"})
    prompts = load(raw).experiments["x"].prompts | {"max_tokens": 6}
    job = job_of(tmp_path, settings_of(folder, file, {"method": "shapley"}, prompts=prompts), "exact")
    rows = job.explain_shard(0, 1, "fail", quietly).rows
    found = shapeline.explain_generation(
        str(folder), "What runs?", context=PROMPTS[1]["context"], target="A ferry.", method="exact",
        removal="placeholder", placeholder="[...]",
    )  # fmt: skip
    np.testing.assert_allclose(rows["scores"][1], found.scores, atol=1e-4)
    raw["experiments"]["x"] |= {"model": "smoke", "features": {"kind": "pixel"}, "metrics": {"cost": {}}}
    raw["experiments"]["x"].pop("dataset")
    with pytest.raises(ShapelineError, match="reference: a placeholder is of prompts; set another one"):
        load(raw)


def test_captum_and_the_methods_of_tokens_run_in_jobs(tmp_path, folder, file):
    pytest.importorskip("captum", reason="captum is an extra")
    entry = {"method": "peer_captum_llm", "explainer": "feature_ablation"}
    load(config_of(folder, file, methods={"captum": entry, "random": {"method": "random"}}))
    jobs = [
        job_of(tmp_path, settings_of(folder, file, method, budget=4.0), "one")
        for method in (entry, {"method": "occlusion"})
    ]
    rows = [job.explain_shard(0, 1, "record", quietly).rows for job in jobs]
    for place in range(2):
        np.testing.assert_allclose(rows[0]["scores"][place], rows[1]["scores"][place], atol=1e-4)
    assert "one answer" in rows[0]["error"][2]  # a contrast


def test_every_method_of_prompts_has_its_scorer():
    from shapeline.generation.estimates import SCORERS
    from shapeline.methods.registry import METHODS

    assert set(SCORERS) == {name for name, method in METHODS.items() if method.of_prompts}


def test_a_method_that_fails_is_a_row_with_its_reason(tmp_path, folder, file):
    settings = settings_of(folder, file, {"method": "gp_shapley"}, budget=0.4)
    rows = job_of(tmp_path, settings, "gp").explain_shard(0, 1, "record", quietly).rows
    assert (rows["status"] == "no design").all() and rows["error"].notna().all() and rows["scores"].isna().all()
    settings = settings_of(folder, file, {"method": "stratified_svarm"})  # whose default budget depends on the prompt
    rows = job_of(tmp_path, settings, "svarm").explain_shard(0, 1, "record", quietly).rows
    assert (rows["evaluations"] == rows["scores"].map(lambda row: 2 ** len(row))).all()


def config_of(folder, file, **entry) -> dict:
    experiment = {"model": "lm", "dataset": "asked", "features": {"kind": "sentence"}, "metrics": {"prompts": {}}}
    experiment |= {"methods": {"exact": {"method": "shapley"}, "gp": {"method": "gp_shapley"}}, **entry}
    return {
        "run": ["x"],
        "datasets": {"asked": {"source": "prompts", "path": str(file)}},
        "models": {"lm": {"source": str(folder), "task": "generation"}},
        "experiments": {"x": experiment},
    }


@pytest.mark.parametrize(
    "change, line",
    [
        ({"features": {"kind": "column"}}, "experiments.x.features.kind: 'column' does not fit prompts. Allowed: "),
        ({"dataset": None}, "experiments.x.dataset: a language model explains prompts; name a dataset"),
        ({"reference": "zero"}, "experiments.x.reference: parts of prompts are removed by delete, placeholder, mask"),
        ({"value": "probability"}, "experiments.x.value: the value is the log_probability of the answer"),
        ({"metrics": {"log_odds": {}}}, "experiments.x.metrics.log_odds: it is not of prompts"),
        ({"methods": {"x": {"method": "tree_shap"}}}, "experiments.x.methods.x: tree_shap does not explain prompts"),
        ({"methods": {"x": {"method": "partition", "budget": {"error": 1.0}}}}, "experiments.x.methods.x.budget"),
        ({"methods": {"x": {"method": "h_shap", "min_size": 2}}}, "experiments.x.methods.x.min_size: it is of images"),
        ({"instances": {"label": 1}}, "experiments.x.instances.label: prompts are taken in the order of the file"),
    ],
)
def test_mistakes_are_one_line(folder, file, change, line):
    with pytest.raises(ShapelineError) as told:
        load(config_of(folder, file, **change))
    assert len([one for one in str(told.value).splitlines() if line in one]) == 1, told.value
    load(config_of(folder, file))


@pytest.mark.parametrize(
    "section, entry, line",
    [
        ("models", {"source": "./none", "task": "generation"}, "models.lm.source: "),
        (
            "models",
            {"source": "m.onnx", "task": "generation"},
            "models.lm.source: task: generation needs a language model; give path/to/folder",
        ),
        ("models", {"source": "./m", "task": "generation", "weights": "x"}, "models.lm.weights: a model with task"),
        ("datasets", {"source": "prompts"}, "datasets.asked.path: is missing"),
        (
            "datasets",
            {"source": "prompts", "path": "none.jsonl"},
            "datasets.asked.path: none.jsonl: there is no such file",
        ),
        (
            "datasets",
            {"source": "prompts", "path": "x.jsonl", "length": 3},
            "datasets.asked.length: a dataset of prompts",
        ),
    ],
)
def test_entries_of_models_and_prompts_are_checked(folder, file, section, entry, line):
    raw = config_of(folder, file)
    raw[section] = {next(iter(raw[section])): entry}
    with pytest.raises(ShapelineError) as told:
        load(raw)
    assert any(one.startswith(line) for one in str(told.value).splitlines()), told.value
    assert str(told.value).count("no such file") <= 1  # of the dataset, and not again of the experiment


def test_init_writes_a_configuration_that_is_valid(folder, file):
    from shapeline.workflow import init_config

    text = init_config.build_configuration(file, None, str(folder))
    raw = yaml.safe_load(text)
    config = load(raw)
    entry = config.experiments[config.run[0]]
    assert entry.prompts["features"] == "sentence" and entry.report.notebook == "generation"
    assert raw["experiments"][config.run[0]]["metrics"]["error"] == {"reference": "exact"}
    with pytest.raises(ShapelineError, match="holds prompts; add --model path/to/folder of a language model"):
        init_config.build_configuration(file)
    with pytest.raises(ShapelineError, match="--target: prompts have no column of classes"):
        init_config.build_configuration(file, "x", str(folder))
    wrong = file.with_name("wrong.jsonl")
    wrong.write_text('{"messages": [{"role": "user", "content": 3}]}')
    with pytest.raises(ShapelineError, match=r"wrong.jsonl, line 1: message 1 is"):
        init_config.build_configuration(wrong, None, str(folder))
