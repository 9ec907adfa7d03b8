"""Versions of packages: those of a job are stored, and differences are reported or cause a new computation."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

from shapeline import scores, versions
from shapeline.config import validation
from shapeline.report import experiment, tables
from shapeline.report.formatting import merge_values
from shapeline.workflow import jobs, messages, runs
from tests.fixtures import result_folder


def test_what_a_job_imports_is_stored_with_its_version():
    code = "import sklearn.linear_model, json; from shapeline import versions"
    code += "; print(json.dumps(versions.list_imported()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert {"numpy", "scipy", "scikit-learn"} <= set(told) and "torch" not in told
    assert told["numpy"] == versions.version("numpy")


def test_methods_of_other_versions_than_installed_are_reported():
    here = versions.version("numpy")
    told = versions.find_differences(
        {"a": {"numpy": here, "xgboost": "1"}, "b": {"numpy": "1.0"}, "c": {"shapeline": "0"}}
    )
    assert told == {"b": {"numpy": ("1.0", here)}}


def test_a_package_that_is_not_installed_is_compared_between_methods(monkeypatch):
    monkeypatch.setattr(versions, "version", lambda name: None)
    told = versions.find_differences({"a": {"xgboost": "2"}, "b": {"xgboost": "2"}, "c": {"xgboost": "1"}, "d": {}})
    assert told == {"c": {"xgboost": ("1", "2")}}


def test_a_run_begins_with_what_has_other_versions(default, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    default["run"] = ["digits"]
    loaded = validation.load(default)
    assert messages.list_version_lines(loaded) == []
    here = versions.version("numpy")
    for label, number in (("exact", here), ("kernel_shap", "1.0"), ("lime", "1.0")):
        (path,) = runs.list_score_files(loaded, "digits", label)
        scores.write(path, pd.DataFrame({"instance": [1]}), {"versions": {"numpy": number}})
    (line,) = messages.list_version_lines(loaded)
    assert line.startswith(f"digits: scores of kernel_shap, lime were made with numpy 1.0 and {here} is installed")
    assert "versions: strict" in line


def test_a_run_ends_with_failures_and_warnings_per_method(default, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    default["run"] = ["digits"]
    loaded = validation.load(default)
    (path,) = runs.list_score_files(loaded, "digits", "lime")
    rows = pd.DataFrame({"status": ["ok", "ok", "no design", "ok"], "warning": ["a gap", None, None, "a gap"]})
    rows["error"] = [None, None, "lime: no memory", None]
    scores.write(path, rows.assign(instance=range(4)), {})
    (line,) = messages.list_warnings(loaded, ["digits"])
    assert line == "digits: lime: 1 of 4 explanations failed (lime: no memory), a gap in 2 of 4 explanations"
    card = Path(runs.name_model_files(loaded, "digits_cnn")["card"])
    card.parent.mkdir(parents=True)
    card.write_text('{"test_warning": "another order"}')
    assert messages.list_warnings(loaded, ["digits"]) == ["digits: another order", line]


def test_strict_versions_are_settings_of_jobs_and_the_default_is_none(default, monkeypatch):
    before = dict(jobs.list_expected_outputs(validation.load(default)))
    assert dict(jobs.list_expected_outputs(validation.load({**default, "versions": "tell"}))) == before
    assert not any("versions" in job for job in before.values())
    strict = dict(jobs.list_expected_outputs(validation.load({**default, "versions": "strict"})))
    path = "results/digits/scores/kernel_shap/0-of-1.parquet"
    assert {"numpy", "scipy", "torch"} <= set(strict[path]["versions"])
    assert {name for name in before if before[name] != strict[name]} >= {
        path,
        "results/digits/metrics/measured.parquet",
    }
    own = versions.version
    monkeypatch.setattr(versions, "version", lambda name: "9.9.9" if name == "scipy" else own(name))
    after = dict(jobs.list_expected_outputs(validation.load({**default, "versions": "strict"})))
    card = "data/prepared/digits38/card.json"
    assert after[path] != strict[path] and after[card] != strict[card] != before[card]
    assert {"numpy", "scipy", "scikit-learn"} <= set(strict[card]["versions"])


def test_the_diagnostics_name_methods_of_other_versions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(versions, "version", lambda name: {"torch": "2.13.0"}.get(name))
    parameters = result_folder.build(tmp_path, "image")
    assert "packages" not in tables.health(experiment.load(**parameters))
    path = parameters["scores"]["lime"][1]
    told = scores.metadata(path)
    scores.write(path, scores.read(path), {**told, "versions": {"torch": "2.12.0"}})
    shown = tables.health(experiment.load(**parameters)).set_index("method")["packages"]
    assert shown["lime"] == "⚠ torch 2.12.0, not 2.13.0" and shown["exact"] == "as installed"


def test_a_page_lists_each_package_once_with_all_its_versions():
    told = [{"numpy": "2", "torch": "2.13"}, {"numpy": "2", "onnxruntime": "1"}, {"numpy": "1"}, None]
    assert merge_values(told) == "numpy 1 or 2, onnxruntime 1, torch 2.13" and merge_values([None]) == ""
