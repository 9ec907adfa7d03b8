"""Figures and tables of a report as files for a paper, and results in MLflow."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from shapeline import files
from shapeline.errors import ShapelineError, nearest, reported_extras
from shapeline.report import elements, rendering
from shapeline.report import experiment as experiments
from shapeline.report.elements import styled

DOTS_PER_INCH = 300  # of a PNG for print
# LaTeX for the signs in tables; ★ and ⚠ are written as words.
SIGNS = {"−": "$-$", "–": "--", "±": r"$\pm$", "≤": r"$\le$", "≥": r"$\ge$", "×": r"$\times$", "²": "$^2$"}
SIGNS |= {"→": r"$\to$", "★": "$*$", "☆": r"$\circ$", "⚠ ": "", "⚠": "", "✓": "yes", "“": "``", "”": "''"}
SIGNS |= {sign: f"${sign}$" for sign in "<>|"}  # which the default encoding of fonts prints as ¡, ¿ and a dash


def export_report(executed: Path, folder: Path, notebooks: Path) -> list[Path]:
    """Draw the figures (SVG, PNG, CSV) and tables (CSV, LaTeX) of an executed notebook again; return the files.

    The cells are those of the workflow's own notebook in the folder `notebooks`: the executed one's code is not
    run.
    """
    record = files.read_document(executed).get("metadata", {}).get("papermill", {})
    source_file = notebooks / Path(str(record.get("input_path"))).name
    if not source_file.is_file():
        raise ShapelineError(
            f"export: {executed} is of no notebook of the workflow; render the report again: shapeline run"
        )
    written, headings = {"figures": [], "tables": []}, [""]
    folder.mkdir(parents=True, exist_ok=True)
    observer, parameters = _build_writer(folder, written, headings), record.get("parameters", {})
    elements.observers.append(observer)
    try:
        rendering.execute(source_file, parameters, lambda text: headings.extend(re.findall(r"^#+ (.*)", text, re.M)))
    except ShapelineError as error:  # such as of results of another version
        reason = str(error).rstrip(".")
        raise ShapelineError(f"export: {executed}: {reason}; render the report again: shapeline run") from error
    finally:
        elements.observers.remove(observer)
    compared = parameters.get("metrics")
    if compared and Path(compared).is_file():
        written["tables"] += rendering.write_metrics(compared, folder, "metric_")
    if not written["figures"] and not written["tables"]:
        raise ShapelineError(f"export: {executed} has no figures and no tables; name another page")
    return [*written["figures"], *written["tables"]]


def _build_writer(folder: Path, written: dict[str, list[Path]], headings: list[str]) -> Callable:
    """Return the observer that writes each element; an element without a title has its section's title."""

    @styled
    def write(shown: Figure | pd.DataFrame, title: str, numbers: pd.DataFrame | None = None) -> None:
        kind = "figures" if isinstance(shown, Figure) else "tables"
        count = 1 + len({file.stem for file in written[kind]})
        path = folder / f"{kind[:-1]}_{count:02d}_{rendering.name_file(title or headings[-1]) or 'untitled'}"
        if kind == "tables":
            written[kind] += write_table(shown, path, title)
            return
        for suffix in (".svg", ".png"):
            shown.savefig(path.with_suffix(suffix), dpi=DOTS_PER_INCH)
            written[kind].append(path.with_suffix(suffix))
        if numbers is not None:
            written[kind].append(path.with_suffix(".csv"))
            numbers.to_csv(written[kind][-1], index=False)

    return write


def write_table(table: pd.DataFrame, path: Path, caption: str) -> list[Path]:
    """Write a table as CSV and as LaTeX to `path` plus suffix; return both files."""
    table.to_csv(path.with_suffix(".csv"), index=False)
    text = table.astype(str).to_latex(
        index=False, escape=True, caption=_escape(caption) or None, label=f"tab:{path.name}"
    )
    for sign, words in SIGNS.items():
        text = text.replace(sign, words)
    path.with_suffix(".tex").write_text(text, encoding="utf-8")
    return [path.with_suffix(".csv"), path.with_suffix(".tex")]


def _escape(text: str) -> str:
    """Return a caption with the special characters of LaTeX escaped."""
    return re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", "/")).replace("~", " ").replace("^", " ")


def read_executed_notebook(results: str, experiment: str) -> Path:
    """Return the executed notebook of a report. Raises ShapelineError where it has not been rendered."""
    reports = Path(results) / "reports"
    notebook = reports / f"{experiment}.ipynb"
    if not notebook.is_file():
        there = sorted(file.stem for file in reports.glob("*.ipynb"))
        reason = f"{reports} has no report '{experiment}'; create it by: shapeline run {experiment}"
        raise ShapelineError(f"export: {reason}.{nearest(experiment, there) if there else ''}")
    return notebook


@reported_extras("log_to_mlflow")
def log_to_mlflow(experiment: str, results: str | Path = "results", tracking_uri: str | None = None) -> str:
    """Log a reported experiment to MLflow: a run, in the active run if there is one, and in it a run per method.

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
        Where MLflow is not installed or refuses, or the experiment has no report.
    """
    import mlflow

    executed = read_executed_notebook(str(results), experiment).resolve()
    try:
        if tracking_uri is not None:
            mlflow.set_tracking_uri(tracking_uri)
        return _log_runs(experiment, executed)
    except mlflow.MlflowException as error:
        problem = " ".join(str(error).split()).rstrip(".")
        raise ShapelineError(f"log_to_mlflow: MLflow: {problem}; correct it or give another tracking_uri") from error


def _log_runs(experiment: str, executed: Path) -> str:
    """Log the run of an executed notebook, in the run that is active if there is one; return its identifier."""
    import mlflow

    parameters = files.read_document(executed)["metadata"]["papermill"]["parameters"]
    is_nested = mlflow.active_run() is not None
    mlflow.set_experiment(experiment)
    with (
        contextlib.chdir(executed.parents[len(Path(parameters["root"]).parts)]),
        mlflow.start_run(run_name=experiment, nested=is_nested) as run,
    ):
        loaded = experiments.load(**parameters)
        mlflow.log_params(
            {name: _format_value(loaded.settings.get(name)) for name in ("features", "reference", "value", "budget")}
        )
        tested = {name: loaded.model_card.get(name) for name in ("test_accuracy", "test_r2")}
        counts = {"instances": experiments.find_ids(loaded.instances).nunique()}
        mlflow.log_metrics(counts | {k: v for k, v in tested.items() if v is not None})
        for file in (executed.with_suffix(".html"), executed, Path(parameters["metrics"] or ".")):
            if file.is_file():
                mlflow.log_artifact(str(file))
        for name, method in loaded.entries.items():
            with mlflow.start_run(run_name=name, nested=True):
                method_settings = {"method": method["method"], **(method.get("parameters") or {})}
                mlflow.log_params({key: _format_value(value) for key, value in method_settings.items()})
                mlflow.log_metrics(_collect_metrics(loaded.metrics, name))
                for file in parameters["scores"].get(name, ()):
                    mlflow.log_artifact(file, "scores")
    return run.info.run_id


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _collect_metrics(tables: dict[str, pd.DataFrame], method: str) -> dict[str, float]:
    """Return the mean and the 95 % interval of each scalar metric of a method, by names that MLflow accepts."""
    result = {}
    for metric, frame in tables.items():
        scalars = frame[(frame["method"] == method) & frame["x"].isna()]
        for row in scalars.to_dict("records"):
            name = re.sub(r"[^\w./ -]", "_", f"{metric}.{row['statistic']}")
            result |= {name: row["mean"], f"{name}.low": row["low"], f"{name}.high": row["high"]}
    return {name: float(value) for name, value in result.items() if pd.notna(value)}
