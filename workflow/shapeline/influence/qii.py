"""Quantitative input influence, which asks the classifier (Datta et al. 2016; Sliwinski et al. 2019, §7.4)."""

from collections.abc import Callable

import numpy as np

from shapeline.designs.design import all_coalitions
from shapeline.designs.exact import shapley_readout
from shapeline.errors import ShapelineError
from shapeline.influence.arrays import table

EXACT = 12  # columns
ROWS = 1 << 16  # rows given to the classifier at a time
CELLS = 1 << 24


def qii(predict: Callable, points, X, *, permutations: int = 1000, seed: int = 0) -> np.ndarray:
    """Return the Shapley value of v(S) = mean over rows y of f(x on S, y elsewhere).

    Positive means that x's value raises the output; the papers' game randomises S instead, which turns the sign.

    Parameters
    ----------
    predict : callable
        From rows (k, n) to numbers (k,).
    points : array of shape (p, n)
        The explained rows.
    X : array of shape (m, n)
        The data.
    permutations : int
        Above 12 columns, orders per point, each with one sampled row y: p (n + 1) permutations evaluations. Up to 12
        columns the values are exact, with p m 2^n evaluated rows.
    seed : int
        Of the sample.

    Returns
    -------
    numpy.ndarray
        (p, n) float64, in units of the output.

    Raises
    ------
    ShapelineError
        Where points and data have other columns, or outputs are not finite.

    References
    ----------
    Datta, Sen & Zick (2016); Sliwinski, Strobel & Zick (2019), section 7.4.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import influence
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> influence.qii(lambda rows: rows @ np.array([2.0, 1.0]), [[1.0, 1.0]], X)
    array([[0.5 , 0.25]])
    """
    points, X = table("qii", "points", points), table("qii", "X", X)
    n = X.shape[1]
    if points.shape[1] != n:
        raise ShapelineError(f"qii: points have {points.shape[1]} features and X has {n}; give them the same columns.")
    if permutations < 1:
        raise ShapelineError(f"qii: permutations = {permutations}; at least 1.")
    if n <= EXACT:
        masks = all_coalitions(n, "qii")
        values = [[_mean(predict, x, X, mask) for mask in masks] for x in points]
        return np.asarray(values) @ shapley_readout(masks).T
    random = np.random.default_rng(seed)
    scores = np.zeros((len(points), n))
    step = max(1, min(ROWS, CELLS // n) // (n + 1))
    for row, x in enumerate(points):
        for a in range(0, permutations, step):
            count = min(step, permutations - a)
            place = random.permuted(np.tile(np.arange(n), (count, 1)), axis=1)  # of each feature in the order
            y = X[random.integers(len(X), size=count)]
            asked = np.where(place[:, None, :] < np.arange(n + 1)[:, None], x, y[:, None, :])
            values = _query(predict, asked.reshape(-1, n)).reshape(count, n + 1)
            scores[row] += np.take_along_axis(np.diff(values, axis=1), place, axis=1).sum(axis=0)
    return scores / permutations


def _mean(predict: Callable, x: np.ndarray, X: np.ndarray, mask: np.ndarray) -> float:
    sums = [_query(predict, np.where(mask, x, X[a : a + ROWS])).sum() for a in range(0, len(X), ROWS)]
    return sum(sums) / len(X)


def _query(predict: Callable, rows: np.ndarray) -> np.ndarray:
    values = np.asarray(predict(rows), np.float64)
    if values.shape != (len(rows),) or not np.isfinite(values).all():
        raise ShapelineError(
            f"qii: the classifier gave shape {values.shape} for {len(rows)} rows, or numbers that are not finite; it "
            "must give one finite number per row, such as the probability of one class."
        )
    return values
