"""What a metric is given beside the score rows: the truth, the model, the data, as its registry entry says."""

from pathlib import Path

import pandas as pd

from shapeline import scores
from shapeline.metrics import METRICS


def gather(name: str, parameters: dict, files, rows: pd.DataFrame, device: str, progress) -> dict:
    """Arguments by name for the metric's function; files: the job's input; parameters: the metric's own."""
    metric, needs = METRICS[name], dict(parameters)
    if "reference" in needs:
        truth = scores.read(files.truth)
        needs = {"truth": truth[truth["status"] == "ok"], **{key: needs[key] for key in needs if key != "reference"}}
        needs["seed"] = scores.metadata(files.scores[0])["settings"]["seed"]
    if not (metric.asks_model or metric.asks_documents or metric.asks_truth or metric.asks_randomised):
        return needs
    from shapeline import instances  # half a second, of jobs that mostly take one

    if metric.asks_model:
        needs |= instances.for_metric(files, rows, device, progress, needs.pop("references", None))
        needs["label"] = Path(files.scores[0]).parent.name
    if metric.asks_documents:
        needs |= instances.known_words(files, rows)
    if metric.asks_truth:
        needs |= instances.known_pixels(files, rows)
    if metric.asks_randomised:
        needs = instances.randomised(files, rows)  # its parameters say which files these are
    return needs
