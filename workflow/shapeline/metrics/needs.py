"""What a metric's function is given, by what its registry entry asks for."""

from pathlib import Path

import pandas as pd

from shapeline import scores
from shapeline.methods import calling
from shapeline.metrics.registry import METRICS


def gather(name: str, parameters: dict, files, rows: pd.DataFrame, device: str, progress, by_graph=False) -> dict:
    """Arguments by name for the metric's function; files: the job's input; parameters: the metric's own; by_graph:
    as of subjects.load_subject."""
    metric, needs = METRICS[name], dict(parameters)
    if "reference" in needs:
        truth = scores.read(files.truth)
        needs = {"truth": truth[truth["status"] == "ok"], **{key: needs[key] for key in needs if key != "reference"}}
        needs["seed"] = scores.metadata(files.scores[0])["settings"]["seed"]
    if not (metric.asks_model or metric.asks_documents or metric.asks_truth or metric.asks_randomised):
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
