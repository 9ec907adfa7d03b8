"""An experiment of the workflow in MLflow: parameters, metrics, score files and pages."""

import contextlib
import json
import re
from pathlib import Path

import pandas as pd

from shapeline import files
from shapeline.errors import reported_extras
from shapeline.report import experiment as experiments
from shapeline.report.exporting import executed_notebook


@reported_extras("log_to_mlflow")
def log_to_mlflow(experiment: str, results: str | Path = "results", tracking_uri: str | None = None) -> str:
    """Log a reported experiment to MLflow: a run, and in it a run per method.

    Parameters
    ----------
    experiment : str
        The name of an experiment with a report, and of the experiment in MLflow.
    results : str or Path
        The folder of results of the workflow.
    tracking_uri : str, optional
        Of MLflow; by default the one that is set, as by MLFLOW_TRACKING_URI.

    Returns
    -------
    str
        The identifier of the run. It has the settings as parameters and the page, its notebook and the compared metrics
        as artifacts; the run of a method has its settings, the mean and the 95 % interval of each metric, and its score
        files.

    Raises
    ------
    ShapelineError
        Where MLflow is not installed, or the experiment has no report.
    """
    import mlflow

    executed = executed_notebook(str(results), experiment).resolve()
    parameters = files.document(executed)["metadata"]["papermill"]["parameters"]
    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_experiment(experiment)
    with contextlib.chdir(executed.parents[_depth(parameters["root"])]), mlflow.start_run(run_name=experiment) as run:
        loaded = experiments.load(**parameters)
        mlflow.log_params(
            {name: _text(loaded.settings.get(name)) for name in ("features", "reference", "value", "budget")}
        )
        mlflow.log_metrics({"instances": len(loaded.instances)} | _model_metrics(loaded.model_card))
        for file in (executed.with_suffix(".html"), executed, Path(parameters["metrics"] or ".")):
            if file.is_file():
                mlflow.log_artifact(str(file))
        for name, entry in loaded.labels.items():
            with mlflow.start_run(run_name=name, nested=True):
                own = {"method": entry["method"], **(entry.get("parameters") or {})}
                mlflow.log_params({key: _text(value) for key, value in own.items()})
                mlflow.log_metrics(_metrics(loaded.metrics, name))
                for file in parameters["scores"].get(name, ()):
                    mlflow.log_artifact(file, "scores")
    return run.info.run_id


def _depth(root: str) -> int:
    """Return how many folders the reports are below the working folder of the run, whose results of an experiment are
    in `root`; parents[0] is the folder of the reports."""
    return len(Path(root).parts)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _model_metrics(card: dict) -> dict[str, float]:
    return {name: card[name] for name in ("test_accuracy", "test_r2") if card.get(name) is not None}


def _metrics(tables: dict[str, pd.DataFrame], method: str) -> dict[str, float]:
    """Return the mean and the 95 % interval of each scalar metric of a method, by names that MLflow takes."""
    found = {}
    for metric, frame in tables.items():
        scalars = frame[(frame["method"] == method) & frame["x"].isna()]
        for row in scalars.to_dict("records"):
            name = re.sub(r"[^\w./ -]", "_", f"{metric}.{row['statistic']}")
            found |= {name: row["mean"], f"{name}.low": row["low"], f"{name}.high": row["high"]}
    return {name: float(value) for name, value in found.items() if pd.notna(value)}
