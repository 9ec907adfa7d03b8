"""An experiment in MLflow, against a local file store."""

import os
from pathlib import Path

import pandas as pd
import pytest

import shapeline
from shapeline.errors import ShapelineError, is_installed
from shapeline.report import rendering
from tests.fixtures.result_folder import build
from tests.unit.test_reports import REPORT

METHODS = ("exact", "kernel_shap", "random")
needs_mlflow = pytest.mark.skipif(not is_installed("mlflow"), reason="mlflow is not installed")


@needs_mlflow
def test_a_run_has_the_files_and_metrics_of_each_method(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # since 3.7 it has to be asked for
    monkeypatch.setenv("GIT_PYTHON_REFRESH", "quiet")
    monkeypatch.chdir(tmp_path)
    parameters = build(Path("results"), "table", METHODS)
    rendering.render(REPORT, parameters, "results/reports/loans.html", "results/reports/loans.ipynb")
    with pytest.raises(ShapelineError, match=r"log_to_mlflow: .*'nosuch:/store'"):
        shapeline.log_to_mlflow("loans", tracking_uri="nosuch:/store")
    mlflow.set_tracking_uri(f"file:{tmp_path}/store")
    with mlflow.start_run(run_name="outer") as outer:  # of another experiment
        shapeline.log_to_mlflow("loans")
    client = mlflow.MlflowClient(f"file:{tmp_path}/store")
    (experiment,) = client.search_experiments(filter_string="name = 'loans'")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"loans", *METHODS}
    whole = runs["loans"].info.run_id
    assert runs["loans"].data.tags["mlflow.parentRunId"] == outer.info.run_id
    assert runs["loans"].data.metrics["instances"] == 12
    assert {file.path for file in client.list_artifacts(whole)} == {"loans.html", "loans.ipynb", "compared.parquet"}
    compared = pd.read_parquet(parameters["metrics"]).set_index(["metric", "method", "statistic"])
    for name in METHODS:
        run = runs[name]
        assert run.data.tags["mlflow.parentRunId"] == whole and run.data.params["method"] in ("shapley", name)
        assert [file.path for file in client.list_artifacts(run.info.run_id, "scores")]
        row = compared.loc["log_odds", name, "deletion_auc"]
        for end, suffix in (("mean", ""), ("low", ".low"), ("high", ".high")):
            assert run.data.metrics[f"log_odds.deletion_auc{suffix}"] == pytest.approx(row[end])
    assert runs["loans"].data.metrics["test_accuracy"] == pytest.approx(0.9907)
    assert os.getcwd() == str(tmp_path)


@needs_mlflow
def test_an_experiment_without_a_report_is_one_line(tmp_path):
    with pytest.raises(ShapelineError, match=r"has no report 'loans'; create it by: shapeline run loans\.$"):
        shapeline.log_to_mlflow("loans", tmp_path)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(ShapelineError, match=r"pip install 'shapeline\[mlflow\]'"):
        shapeline.log_to_mlflow("loans")
