"""What a metric's function is given, by what its registry entry asks for."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from shapeline import scores
from shapeline.methods import calling
from shapeline.metrics.registry import METRICS


def of_label(given, label: str) -> SimpleNamespace:
    """Of a job's input what one label is measured by: its own scores, and the truth of the training it explains."""
    variant = label.partition("@")[2]
    kept = {
        "scores": [path for path in given.scores if Path(path).parent.name == label],
        "truth": [path for path in given.get("truth", []) if Path(path).parent.name.partition("@")[2] == variant],
    }
    return SimpleNamespace(**dict(given.items()) | kept)


def rows_of(name: str, files) -> pd.DataFrame:
    """The score rows of a label that a metric measures: those that succeeded, with snapshots where it reads them."""
    rows = scores.succeeded(scores.read(files.scores))
    return rows if METRICS[name].reads_snapshots else scores.final(rows)


def gather(name: str, parameters: dict, files, rows: pd.DataFrame, device: str, progress, by_graph=False) -> dict:
    """Arguments by name for the metric's function; files: the job's input; parameters: the metric's own; by_graph:
    as of subjects.load_subject."""
    metric, needs = METRICS[name], dict(parameters)
    if "reference" in needs:
        truth = scores.read(files.truth)
        needs = {"truth": truth[truth["status"] == "ok"], **{key: needs[key] for key in needs if key != "reference"}}
        needs["seed"] = scores.metadata(files.scores[0])["settings"]["seed"]
    if not metric.asks_data:
        return needs
    from shapeline.metrics.loaders import for_metric, known_pixels, known_words, randomised

    if metric.asks_model:
        needs |= for_metric(files, rows, device, progress, needs.pop("references", None), by_graph)
        needs["label"] = Path(files.scores[0]).parent.name
    if metric.asks_documents:
        needs |= known_words(files, rows)
    if metric.asks_truth:
        needs |= known_pixels(files, rows)
    if metric.asks_randomised:
        needs = randomised(files, rows)  # its parameters say which files these are
    return needs


def measure(name: str, rows, needs: dict):
    """Measure score rows by the metric of that name; no rows, because every one failed, give no measurements."""
    if rows.empty:
        return rows[["instance", "repeat"]].assign(quantity="", x=0.0, value=0.0)
    return calling.call(calling.function_of(METRICS[name].function), {**needs, "rows": rows})
