"""Where the variance of a metric comes from: instances, draws within them, trainings of the model."""

import math

import numpy as np

PARTS = ("instances", "draws", "trainings", "rest")


def variance_components(values: np.ndarray, same_draws: bool = True) -> dict[str, float]:
    """Variance components by the analysis of variance: instances, draws, trainings, rest; NaN for one of one level.

    values: (instances, draws, trainings). Draws are nested in instances, since each instance has its own; trainings are
    crossed with instances. same_draws: the r-th draw of an instance is one design in every training; else it is new in
    each, and draws are what differs within an instance and a training. rest: what training and instance, or training
    and draw, do together; with one training the draws hold what is left. An instance with a missing value is left out.
    Every mean square is set equal to its expectation (Searle, Casella & McCulloch 1992, chapters 3 and 4), which is
    unbiased; a negative component is given as 0.
    """
    values = np.asarray(values, float)
    values = values[np.isfinite(values).all((1, 2))]
    n, draws, trainings = values.shape
    if n < 2 or draws * trainings < 2:
        return dict.fromkeys(PARTS, math.nan)
    square = _mean_squares(values)
    if trainings == 1:
        parts = {"instances": (square["instances"] - square["draws"]) / draws, "draws": square["draws"], "rest": 0.0}
    elif draws == 1:
        parts = {
            "instances": (square["instances"] - square["both"]) / trainings,
            "trainings": (square["trainings"] - square["both"]) / n,
            "rest": square["both"],
        }
    else:
        parts = _crossed(square, values.shape, same_draws)
    return {name: max(0.0, parts[name]) if name in parts else math.nan for name in PARTS}


def variance_shares(values: np.ndarray, same_draws: bool = True) -> dict[str, float]:
    """The components of `variance_components` as shares of their sum."""
    parts = variance_components(values, same_draws)
    total = sum(part for part in parts.values() if not math.isnan(part))
    return {name: part / total if total > 0 else math.nan for name, part in parts.items()}


def _mean_squares(values: np.ndarray) -> dict[str, float]:
    """Mean squares of (instances, draws, trainings): instances, draws in instances, trainings, both, and left."""
    n, draws, trainings = values.shape
    grand, instance, training = values.mean(), values.mean((1, 2)), values.mean((0, 1))
    by_draw, cell = values.mean(2), values.mean(1)
    within = ((by_draw - instance[:, None]) ** 2).sum()
    both = ((cell - instance[:, None] - training + grand) ** 2).sum()
    left = ((values - by_draw[:, :, None] - cell[:, None, :] + instance[:, None, None]) ** 2).sum()
    return {
        "instances": draws * trainings * instance.var(ddof=1),
        "draws": trainings * within / max(n * (draws - 1), 1),
        "trainings": n * draws * training.var(ddof=1) if trainings > 1 else math.nan,
        "both": draws * both / max((n - 1) * (trainings - 1), 1),
        "left": left / max(n * (draws - 1) * (trainings - 1), 1),
        "cells": ((values - cell[:, None, :]) ** 2).sum() / max(n * trainings * (draws - 1), 1),
    }


def _crossed(square: dict[str, float], shape: tuple[int, int, int], same_draws: bool) -> dict[str, float]:
    """Components of several draws and trainings."""
    n, draws, trainings = shape
    drawn = (square["draws"] - square["left"]) / trainings if same_draws else square["cells"]
    left = square["left"] if same_draws else 0.0
    error = square["left"] if same_draws else square["cells"]
    base = square["draws"] if same_draws else square["cells"]
    return {
        "instances": (square["instances"] - base - square["both"] + error) / (draws * trainings),
        "draws": drawn,
        "trainings": (square["trainings"] - square["both"]) / (n * draws),
        "rest": max(0.0, (square["both"] - error) / draws) + left,
    }
