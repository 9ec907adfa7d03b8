"""What localization measured, and where the truth is, for its sections and figures."""

import json

import numpy as np
import pandas as pd

from shapeline.datasets import regions as regions_module
from shapeline.report import experiment
from shapeline.report.experiment import Results

COLUMNS = 7  # maps side by side: a image of 120 pixels has about one on the page for each of its own
MARGIN = 2  # pixels between a true region and its box
LARGEST = 480  # pixels a side of a image that are drawn: the page shows a quarter of them
CEILINGS = {"ceiling_touching": "every leaf that touches", "ceiling_best": "best set of leaves"}
OUTPUTS = {"logit": "Logit", "probability": "Probability"}


def targets(results: Results) -> np.ndarray:
    """The class that the scores explain, for each instance, (n,): the predicted one where every method failed."""
    of = "target" if "target" in results.instances else "prediction"
    explained = results.instances.set_index("instance")[of].to_dict()
    for frame in results.scores.values():
        explained |= dict(zip(frame["instance"], frame["target"], strict=True))
    return np.array([explained[instance] for instance in results.instances["instance"]])


def truth_of(results: Results) -> np.ndarray | None:
    """The pixels that decide the class explained, (n, height, width) bool; None where the dataset lacks them."""
    if not results.dataset_card.get("truth"):
        return None
    return regions_module.truth(results.folder, experiment.ids(results.instances), targets(results))


def select_measured(results: Results) -> pd.DataFrame:
    """The frame of the metric localization, as `compare` made it; empty where it was not computed."""
    frame = results.metrics.get("localization")
    return pd.DataFrame(columns=["method", "statistic", "x", "mean", "low", "high", "n"]) if frame is None else frame


def parameters(results: Results, label: str) -> dict:
    return dict(results.labels[label].get("parameters") or {})


def select_method(results: Results, method: str) -> list[str]:
    """The labels of a method that have scores, in their order."""
    return [label for label in results.scores if results.labels[label]["method"] == method]


def read_details(frame: pd.DataFrame, name: str) -> pd.Series:
    """What a method said of each instance beside its scores, by instance (mean over repeats), where it said it."""
    fine = experiment.good(frame)
    told = [json.loads(details).get(name) if isinstance(details, str) else None for details in fine["details"]]
    values = pd.Series(told, fine["instance"].to_numpy(), dtype=float).dropna()
    return values.groupby(level=0).mean()


def shown_pictures(results: Results, truth: np.ndarray | None, picked: pd.DataFrame) -> tuple[np.ndarray, list, list]:
    """Images (n, channels, height, width), true regions (n, each (height, width) or None) and cells of the features."""
    images = results.dataset.inputs[experiment.positions(results.dataset, picked)]
    places = pd.Index(results.instances["instance"]).get_indexer(picked["instance"])
    regions = [None] * len(picked) if truth is None else list(truth[places])
    return images, regions, [results.features_of(image).cells[0] for image in images]
