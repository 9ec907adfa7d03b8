"""Data made denser around points by a classifier, and MIM on them (Sliwinski et al. 2019, §7.5)."""

from collections.abc import Callable
from functools import partial

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.influence.arrays import positive, table
from shapeline.influence.mim import mim


def augmented_mim(
    predict: Callable,
    points,
    X,
    labels,
    *,
    count: int = 100,
    spread: float = 0.1,
    seed: int = 0,
    alpha: str = "inverse_square",
    width: float = 1.0,
    categorical=(),
    regression: bool = False,
    point_labels=None,
    dtype: str = "float32",
    device: str = "cpu",
) -> np.ndarray:
    """MIM at each point on the data and `count` more rows around it that the classifier labels, (p, n).

    predict, points, X, labels, count, spread, seed: as in `augment`, which is asked for each point by itself. The rest:
    as in `mim`.
    """
    measure = partial(mim, alpha=alpha, regression=regression, categorical=categorical, width=width)
    scores = []
    for place, point in enumerate(np.asarray(points)[:, None]):
        more = augment(predict, point, X, labels, count, spread, seed=seed)
        own = None if point_labels is None else np.asarray(point_labels)[place : place + 1]
        scores.append(measure(point, *more, point_labels=own, dtype=dtype, device=device)[0])
    return np.array(scores)


def augment(predict: Callable, points, X, labels, count: int = 100, spread: float = 0.1, *, seed: int = 0):
    """The data with `count` more rows around each point, labelled by the classifier (Sliwinski et al. 2019, §7.5).

    predict: rows (k, n) -> (k,) labels.
    points: (p, n), each an x.
    X, labels: (m, n) and (m,); -> (X (m + p count, n), labels), on which any measure then runs.
    count: new rows a point.
    spread: they are x + N(0, spread times the column's standard deviation), so a constant column stays.
    seed: of the noise.
    """
    points, X = table("augment", "points", points), table("augment", "X", X)
    spread = positive("augment", "spread", spread)
    if points.shape[1] != X.shape[1]:
        raise ShapelineError(f"augment: points have {points.shape[1]} features and X has {X.shape[1]}.")
    random = np.random.default_rng(seed)
    noise = random.standard_normal((len(points), count, X.shape[1])) * (spread * X.std(axis=0))
    rows = (points[:, None, :] + noise).reshape(-1, X.shape[1])
    answers = np.asarray(predict(rows))
    if answers.shape != (len(rows),):
        raise ShapelineError(f"augment: the classifier gave shape {answers.shape} for {len(rows)} rows, not one label.")
    return np.concatenate([X, rows]), np.concatenate([np.asarray(labels), answers])
