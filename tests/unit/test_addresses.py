"""Stored rows are found exactly if all facts that define their numbers are unchanged."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from shapeline import scores
from shapeline.attribution import context
from shapeline.attribution.attribution_job import STORED, StoredRows
from shapeline.attribution.context import parse
from shapeline.attribution.row_store import Table, digest
from shapeline.config.validation import load
from shapeline.metrics import measurement
from shapeline.metrics.registry import METRICS
from shapeline.workflow.jobs import attribute_settings

SETTINGS = {"method": {"method": "sample_shapley"}, "features": "column", "seed": 0, "budget": 4.0, "code": "c0de"}
INPUTS = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("weights", "card.json", "own.py", "arrays.npz"):
        Path(name).write_text(name)


def subject(inputs: np.ndarray = INPUTS, **changes) -> SimpleNamespace:
    known = {"model": None, "backend": None, "device": "cpu", "reference": SimpleNamespace(rows=np.zeros((1, 3)))}
    return SimpleNamespace(**known | changes, inputs=lambda share: inputs[share["row"].to_numpy()])


def key(settings=SETTINGS, entry: str = "sampled", **changes) -> str:
    files = ["weights", "card.json", "own.py"]
    return digest(context.score_facts(subject(**changes), parse(settings), entry, files, "arrays.npz"))


@pytest.mark.parametrize(
    "change",
    [
        {"settings": SETTINGS | {"seed": 1}},
        {"settings": SETTINGS | {"code": "0dd"}},
        {"settings": SETTINGS | {"budget": 8.0}},
        {"settings": SETTINGS | {"method": {"method": "sample_shapley", "antithetic": True}}},
        {"settings": SETTINGS | {"features": "group"}},
        {"settings": SETTINGS | {"timing": "per_instance"}},  # of the seconds
        {"entry": "other"},  # other samples
        {"device": "cuda"},
        {"reference": SimpleNamespace(rows=np.ones((1, 3)))},
        {"model": SimpleNamespace(framework="torch", architecture="mlp")},
    ],
)
def test_settings_that_define_a_row_are_part_of_its_key(place, change):
    assert key() == key() != key(**change)


@pytest.mark.parametrize("file", ["weights", "card.json", "own.py"])
def test_the_content_of_a_file_behind_a_row_is_part_of_its_key(place, file):
    before = key()
    Path(file).touch()
    assert key() == before
    Path(file).write_text("another")
    assert key() != before


@pytest.mark.parametrize(
    "change",
    [
        {"backend": SimpleNamespace(name="channels_last")},  # the execution backend is the clock's choice
        {"settings": SETTINGS | {"repeats": 3}},
        {"settings": SETTINGS | {"training_seeds": 3, "training_instances": 30}},
        {"settings": SETTINGS | {"randomised": ["full"]}},
    ],
)
def test_settings_without_effect_are_not_part_of_the_key(place, change):
    assert key() == key(**change)


def test_another_version_of_a_package_computes_again(place, monkeypatch):
    before = key()
    monkeypatch.setattr(context, "list_versions", lambda *_: {"numpy": "99"})
    assert key() != before


@pytest.mark.parametrize(("method", "all_data"), [("mim", True), ("shapley", False), ("expected_gradients", True)])
def test_a_method_that_reads_all_data_has_them_in_its_key(place, method, all_data):
    own = {"background": 100} if method == "expected_gradients" else {}
    settings = {"method": {"method": method, **own}, "features": "column", "seed": 0}
    before = key(settings)
    Path("arrays.npz").write_text("another")
    assert (key(settings) != before) == all_data


def test_methods_without_samples_share_rows_under_any_name(place):
    exact = {"method": {"method": "shapley"}, "features": "column", "seed": 0}
    assert key(exact, "exact") == key(exact, "truth")
    local = exact | {"method": {"method": "l_shapley"}}
    assert key(local, "a") == key(local, "b")
    sampled = exact | {"method": {"method": "l_shapley", "samples": 4}}
    assert key(sampled, "a") != key(sampled, "b")


def test_experiments_with_equal_options_have_equal_settings():
    one = {
        "model": "m",
        "features": {"kind": "patch", "size": 2},
        "instances": {"count": 9},
        "methods": {"exact": {"method": "shapley"}},
        "metrics": {"cost": {}},
    }
    two = one | {"instances": {"count": 4}, "methods": {"truth": {"method": "shapley"}}, "shards": 2, "repeats": 5}
    config = load(
        {
            "run": ["one"],
            "datasets": {"d": {"source": "digits", "classes": [3, 8]}},
            "models": {"m": {"dataset": "d", "architecture": "digits_cnn"}},
            "experiments": {"one": one, "two": two, "three": two | {"reference": "zero"}},
        }
    )
    asked = [attribute_settings(config, *name) for name in (("one", "exact"), ("two", "truth"), ("three", "truth"))]
    assert parse(asked[0]).rows == parse(asked[1]).rows != parse(asked[2]).rows


def selected(*instances: int, **columns) -> pd.DataFrame:
    return pd.DataFrame({"instance": instances, "prediction": [i % 2 for i in instances], "row": instances, **columns})


def test_a_row_is_addressed_by_instance_class_input_and_repeat():
    def of(share: pd.DataFrame, inputs: np.ndarray = INPUTS) -> np.ndarray:
        return context.score_addresses(subject(inputs), share, 2)

    first = of(selected(1, 2, 4))
    assert first.shape == (3, 2) and len(np.unique(first)) == 6
    assert (of(selected(4, 2, 1)) == first[::-1]).all()
    assert (of(selected(1, 2, 4, prediction=[1, 1, 0])) == first).tolist() == [[True] * 2, [False] * 2, [True] * 2]
    changed = INPUTS.copy()
    changed[2, 0] += 1e-6
    assert (of(selected(1, 2, 4), changed) == first).tolist() == [[True] * 2, [False] * 2, [True] * 2]


def rows_of(share: pd.DataFrame, status: str = "ok", budgets=(2.0, 4.0)) -> pd.DataFrame:
    """Rows of each budget, one after another, as a run makes them."""
    n = len(share)
    numbers = {"repeat": 0, "evaluations": 12, "value_full": 0.0, "value_empty": 0.0, "error": None, "warning": None}
    numbers |= {"details": None, "standard_error": None, "interactions": None, "interactions_standard_error": None}
    parts = [
        share[["instance"]].assign(
            target=share["prediction"], budget=budget, scores=[*INPUTS[share["instance"]]], status=status,
            seconds=np.random.default_rng().random(n), **numbers,
        )
        for budget in budgets
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def stored(folder: Path, share: pd.DataFrame) -> StoredRows:
    return StoredRows(Table(folder, STORED), context.score_addresses(subject(), share, 1))


def test_an_additional_instance_is_computed_and_the_others_keep_their_seconds(tmp_path):
    share = selected(1, 2, 4)
    first, made = stored(tmp_path, share), rows_of(share)
    with first.table:
        assert first.find().all()
        first.keep(made, np.arange(3), 0)
    more = stored(tmp_path, selected(1, 2, 3, 4))
    assert more.find().tolist() == [[False], [False], [True], [False]]
    order = ["instance", "budget"]
    mine, theirs = (frame.sort_values(order, ignore_index=True) for frame in (more.found, made))
    for column in ("instance", "budget", "seconds", "evaluations"):
        assert mine[column].tolist() == theirs[column].tolist()
    assert (scores.matrix(mine) == scores.matrix(theirs)).all()


def test_an_instance_that_failed_at_one_budget_is_computed_again(tmp_path):
    share = selected(1, 2)
    first, made = stored(tmp_path, share), rows_of(share)
    made.loc[2, "status"] = "no design"  # instance 1 at the second budget
    with first.table:
        first.keep(made, np.arange(2), 0)
    assert stored(tmp_path, share).find().tolist() == [[True], [False]]


# --- measurements -------------------------------------------------------------------------------------------------


def one_metric(name: str, job: dict, **changes) -> measurement._OneMetric:
    asked = parse(SETTINGS)
    known = {"name": name, "job": job, "entry": "sampled", "context": subject(), "selected": selected(0, 1, 2, 3)}
    return measurement._OneMetric(**known | {"settings": asked, "longest": 3} | changes)


def test_a_measurement_is_addressed_by_metric_and_scores(place):
    job = {"metric": "infidelity", "code": "c0de"}

    def of(**changes) -> str:
        return digest(one_metric(**{"name": "infidelity", "job": job} | changes).facts(["weights"], "arrays.npz"))

    assert of() == of(entry="other") == of(longest=9)
    for change in ({"job": job | {"code": "0dd"}}, {"settings": parse(SETTINGS | {"value": "logit"})}):
        assert of(**change) != of()
    assert of(settings=parse(SETTINGS | {"budget": 8.0})) == of()  # which the scores themselves tell apart
    ablated = {"name": "ablation", "longest": 9}
    assert of(name="ablation") != of(**ablated)  # whose curves end where the longest instance does
    moved = {"name": "sensitivity", "settings": parse(SETTINGS | {"budget": 8.0})}
    assert of(name="sensitivity") != of(**moved)  # which explains anew


@pytest.mark.parametrize("name", ["infidelity", "own"])
def test_a_measurement_depends_on_its_instance_only_unless_the_metric_reads_all(name):
    one, rows = one_metric(name, {}), rows_of(selected(1, 2, 3), budgets=(4.0,))
    before = one.addresses(rows)
    changed = rows.copy()
    changed.at[0, "scores"] = rows["scores"][0] + 1
    after = one.addresses(changed)
    assert before.keys() == after.keys() == {(1, 0), (2, 0), (3, 0)}
    assert before[1, 0] != after[1, 0] and (before[2, 0] != after[2, 0]) == METRICS[name].reads_all_rows
    later = one.addresses(rows.assign(seconds=9.0))
    assert (later != before) == METRICS[name].reads_all_rows


def test_chunks_hold_whole_instances_and_every_row_once(monkeypatch):
    rows = pd.concat([rows_of(selected(*range(9))), rows_of(selected(*range(9))).assign(repeat=1)], ignore_index=True)
    monkeypatch.setattr(measurement, "CHUNK_SIZE", 8)
    parts = [*one_metric("infidelity", {}).chunks(rows)]
    assert [start for start, _ in parts] == np.cumsum([0, *(len(part) for _, part in parts[:-1])]).tolist()
    assert sum(len(part) for _, part in parts) == len(rows) and max(len(part) for _, part in parts) <= 8
    ids = [set(part["instance"]) for _, part in parts]
    assert sum(map(len, ids)) == 9 and all(part.index[0] == 0 for _, part in parts)
    assert [len(part) for _, part in one_metric("own", {}).chunks(rows)] == [len(rows)]


def test_an_additional_reference_is_part_of_the_key(place, monkeypatch):
    job = {"metric": "log_odds", "parameters": {"references": ["zero"]}}
    filled = SimpleNamespace(rows=np.zeros((1, 3)))
    monkeypatch.setattr(measurement.references, "build", lambda *_: filled)
    games = SimpleNamespace(game=lambda value: SimpleNamespace(reference=filled))
    one = one_metric("log_odds", job, context=subject(dataset=None, change_reference=lambda built: games))
    before = digest(one.facts([], "arrays.npz"))
    filled.rows = np.ones((1, 3))
    assert digest(dataclasses.replace(one).facts([], "arrays.npz")) != before
