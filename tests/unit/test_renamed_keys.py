"""Configuration keys under their old names: accepted with one line, refused beside the new name."""

import copy
import logging

import pandas as pd
import pytest
import yaml

from shapeline.api.explanation import RENAMED
from shapeline.config import validation
from shapeline.config.validation import RENAMED_KEYS, rename_keys
from shapeline.errors import ShapelineError
from shapeline.games.execution import ExecutionBackend
from shapeline.games.game import Game
from shapeline.metrics import bookkeeping
from shapeline.scores import RENAMED_COLUMNS

# A value of each renamed key where a configuration has it: the section of that place, and the value.
USES = {
    "run_if_here": ((), ["faces"]),
    "accuracy": ((), 2),
    "fit": (("datasets", "pets"), "crop"),
    "on_corrupt": (("datasets", "pets"), "skip"),
    "trusted": (("models", "pipeline"), ["functools.partial"]),
    "seeds": (("experiments", "faces"), 2),
    "seed_instances": (("experiments", "faces"), 5),
    "or_all": (("experiments", "faces", "instances"), True),
    "instances_shown": (("experiments", "faces", "report"), 2),
    "decisive": (("experiments", "opinions", "metrics"), {}),
    "snapshots": (("experiments", "faces", "methods", "kernel"), [3.0]),
    "rival_of": (("experiments", "faces", "methods", "matched"), "whole"),
    "keep": (("experiments", "faces", "methods", "sparse"), 3),
    "at_most": (("experiments", "faces", "methods", "adaptive", "budget"), 8.0),
}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """The files that the configuration names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets").mkdir()
    (tmp_path / "pipeline.skops").touch()


def write(old: str, name: str) -> dict:
    """Return a valid configuration that gives one of the keys under `name`."""
    raw = {
        "run": ["opinions"],
        "datasets": {
            "digits": {"source": "digits"},
            "cancer": {"source": "breast_cancer"},
            "pets": {"source": "image_folder", "path": "pets", "size": [8, 8]},
            "reviews": {"source": "reviews"},
        },
        "models": {
            "cnn": {"dataset": "digits", "architecture": "digits_cnn"},
            "pipeline": {"dataset": "cancer", "source": "pipeline.skops"},
            "words": {"dataset": "reviews", "architecture": "word_cnn"},
        },
        "experiments": {
            "faces": {
                "model": "cnn",
                "features": {"kind": "patch", "size": 2},
                "instances": {"count": 10},
                "methods": {
                    "kernel": {"method": "kernel_shap"},
                    "whole": {"method": "occlusion"},
                    "matched": {"method": "lime"},
                    "sparse": {"method": "lime"},
                    "adaptive": {"method": "kernel_shap", "budget": {"error": 0.1}},
                },
                "metrics": {"log_odds": {}},
                "report": {},
            },
            "opinions": {
                "model": "words",
                "features": {"kind": "word"},
                "reference": "pad",
                "methods": {"kernel": {"method": "kernel_shap"}},
                "metrics": {"cost": {}},
            },
        },
    }
    section, (path, value) = raw, USES[old]
    for part in path:
        section = section[part]
    section[name] = value
    if old == "seed_instances":  # which is of no use without
        section["training_seeds"] = 2
    return raw


def test_the_cases_are_all_keys():
    assert sorted(USES) == sorted(old for _, old, _ in RENAMED_KEYS)


@pytest.mark.parametrize(("place", "old", "new"), RENAMED_KEYS)
def test_an_old_key_gives_the_configuration_of_the_new_one(place, old, new, caplog):
    with caplog.at_level(logging.WARNING, "shapeline"):
        expected = validation.load(write(old, new))
        assert not caplog.messages
        assert validation.load(write(old, old)) == expected
    where = ".".join([*USES[old][0], old])
    assert caplog.messages == [f"{where}: the key is deprecated; rename it to '{new}'"]
    value = expected.model_dump()
    for part in USES[old][0]:
        value = value[part]
    assert value[new] == USES[old][1] or old == "decisive"


@pytest.mark.parametrize(("place", "old", "new"), RENAMED_KEYS)
def test_both_names_at_once_are_an_error(place, old, new):
    raw = write(old, old)
    section = raw
    for part in USES[old][0]:
        section = section[part]
    section[new] = copy.deepcopy(section[old])
    with pytest.raises(ShapelineError) as failure:
        validation.load(raw)
    where = ".".join([*USES[old][0], old])
    assert str(failure.value) == f"{where}: is the old name of '{new}', which is also given; remove '{old}'"


TWO_FILES = [("training_seeds", "seeds", 2), ("seeds", "training_seeds", 3)]


@pytest.mark.parametrize(("first", "second", "expected"), TWO_FILES)
def test_of_two_names_in_two_files_the_later_counts(first, second, expected, tmp_path):
    raw = write("seeds", "seeds")
    del raw["experiments"]["faces"]["seeds"]
    values = {"seeds": 2, "training_seeds": 3}
    files = []
    for name in (first, second):
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(f"experiments: {{faces: {{{name}: {values[name]}}}}}")
        raw["experiments"]["faces"][name] = values[name]
    assert validation.load(raw, files).experiments["faces"].training_seeds == expected
    assert validation.load(raw, [files[0]]).experiments["faces"].training_seeds == expected  # --config has the second
    files[1].write_text("experiments: {faces: {seeds: 2, training_seeds: 3}}")
    with pytest.raises(ShapelineError, match=r"experiments\.faces\.seeds: is the old name of 'training_seeds'"):
        validation.load(raw, files)


def test_paths_start_at_the_folder_of_the_file_that_names_them_or_of_the_run(tmp_path, monkeypatch):
    run, own = tmp_path / "run", tmp_path / "own"
    for path in (
        run / "both.csv",
        run / "there.csv",
        own / "both.csv",
        own / "data.v1",
        own / "rule.py",
        own / "digits",
    ):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    given = {
        "datasets": {
            "a": {"source": "table_file", "path": "both.csv", "target": "rule.py"},
            "b": {"source": "rule.py:rows", "path": "there.csv"},
            "c": {"source": "digits", "path": "data.v1"},
            "d": {"path": "data.v1"},
        },
        "experiments": {
            "e": {
                "game": "rule.py:build",
                "game_files": ["both.csv", "no.csv"],
                "metrics": {"custom": {"functions": {"x": "rule.py:measure"}}},
            }
        },
    }
    (own / "mine.yaml").write_text(yaml.safe_dump(given))

    def locate():
        merged = copy.deepcopy(given) | {"seed": 1}
        merged["datasets"]["d"]["path"] = "later.csv"  # of a later file
        validation.locate_files(merged, {own / "mine.yaml": given})
        return merged["datasets"], merged["experiments"]["e"]

    monkeypatch.chdir(run)
    data, game = locate()
    assert data["a"] == {"source": "table_file", "path": f"{own}/both.csv", "target": "rule.py"}
    assert data["b"] == {"source": f"{own}/rule.py:rows", "path": "there.csv"}
    assert data["c"] == {"source": "digits", "path": f"{own}/data.v1"} and data["d"] == {"path": "later.csv"}
    assert game["game"] == f"{own}/rule.py:build" and game["game_files"] == [f"{own}/both.csv", "no.csv"]
    assert game["metrics"]["custom"]["functions"] == {"x": f"{own}/rule.py:measure"}
    monkeypatch.chdir(tmp_path)  # the whole folder can be moved
    data, game = locate()
    assert data["a"]["path"] == "own/both.csv" and game["game"] == "own/rule.py:build"
    monkeypatch.chdir(own)
    data, game = locate()
    assert data["a"]["path"] == "both.csv" and game["game"] == "rule.py:build"


def test_keys_of_a_custom_function_and_odd_sections_stay_as_they_are():
    raw = {
        "datasets": None,
        "models": [1],
        "experiments": {"a": {"methods": {"m": {"method": "f.py:f", "parameters": {"keep": 3}}, "n": None}}, "b": 3},
    }
    before = copy.deepcopy(raw)
    assert rename_keys(raw) == [] and raw == before


def test_the_users_configuration_is_not_changed():
    raw = write("seeds", "seeds")
    before = copy.deepcopy(raw)
    validation.load(raw)
    assert raw == before


def test_the_changelog_names_every_rename(root):
    text = (root / "CHANGELOG.md").read_text()
    renames = [*((old, new) for _, old, new in RENAMED_KEYS), *RENAMED_COLUMNS.items(), *RENAMED.items()]
    assert not [(old, new) for old, new in renames if f"`{old}`" not in text or f"`{new}`" not in text]


def test_a_custom_metric_may_name_the_backend_by_its_old_name(tmp_path):
    (tmp_path / "old.py").write_text(
        "def old(rows, form, backend):\n    return rows['instance'] * (form is backend) * form.batch\n"
    )
    rows = pd.DataFrame({"instance": [2, 3], "repeat": 0})
    game = Game(None, None, None, backend=ExecutionBackend("plain", 5))
    assert bookkeeping.measure_functions(rows, {"old": f"{tmp_path}/old.py:old"}, game)["value"].tolist() == [10, 15]
