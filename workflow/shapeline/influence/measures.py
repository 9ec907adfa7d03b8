"""Measures of influence (Sliwinski, Strobel & Zick 2019); data-LIME is in `local_linear`.

Monotone measures (MIM, sections 4 to 6): weighted sums of differences to labelled points. Parzen windows: gradient of
a kernel estimate of the label (Baehrens et al. 2010; section 7.1). Counterfactual influence: pairs of rows that
differ in one feature (Datta et al. 2015; section 7.3). Quantitative input influence (QII), which evaluates the
classifier (Datta et al. 2016; section 7.4).
"""

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from shapeline.designs.design import check_integer, enumerate_coalitions
from shapeline.designs.exact import shapley_readout
from shapeline.errors import ShapelineError, name_type, nearest
from shapeline.games.validation_scores import check_order
from shapeline.influence.distances import (
    Neighbours,
    check_columns,
    check_labels,
    check_points,
    check_positive,
    check_table,
    identify,
)

ALPHAS = ("constant", "inverse", "inverse_square", "gaussian")


def mim(
    points,
    X,
    labels,
    alpha: str | Callable = "inverse_square",
    regression: bool = False,
    categorical=(),
    *,
    width: float = 1.0,
    point_labels=None,
    dtype: str = "float32",
    device: str = "cpu",
) -> np.ndarray:
    """Return the influence sum_y (y - x) alpha(|y - x|) s(x, y) over the data.

    s is +1 where labels agree, else -1; with more than two classes, the point's class against the rest. Rows equal
    to x contribute 0.

    Parameters
    ----------
    points : array of shape (p, n)
        The explained rows.
    X, labels : arrays of shape (m, n) and (m,)
        The data.
    alpha : {"constant", "inverse", "inverse_square", "gaussian"} or callable
        "gaussian" is exp(-r^2 / (2 width^2)); a function takes an array r > 0 and returns finite values >= 0.
    regression : bool
        Whether s is the difference of the numbers, c(y) - c(x).
    categorical : sequence of int
        Columns that are 1 where equal to x's value, else 0.
    width : float
        Of the Gaussian.
    point_labels : array of shape (p,), optional
        By default those of the first row that each point equals.
    dtype : str
        Of the products.
    device : {"cpu", "cuda"}

    Returns
    -------
    numpy.ndarray
        (p, n) float64, in units of the columns times those of alpha.

    Raises
    ------
    ShapelineError
        Where a number or the label of a point is missing.

    References
    ----------
    Sliwinski, Strobel & Zick (2019), equation 2.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import influence
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> labels = np.array([0, 1, 0, 1])
    >>> influence.mim(X[:1], X, labels)
    array([[-1.25,  0.75]])
    """
    if callable(alpha):
        dtype = "float64"  # the slope of a user's alpha, and so its sensitivity to rounding, is unknown
    elif alpha not in ALPHAS:
        raise ShapelineError(f"mim: unknown alpha {alpha!r}.{nearest(alpha, ALPHAS)}")
    width = check_positive("mim", "width", width)
    data = Neighbours("mim", points, X, categorical, dtype, device)
    known, point_codes = data.labels(labels, regression, point_labels)
    known, point_codes = data.space.array(known), data.space.array(point_codes)
    scores = np.empty(data.points.shape)
    for chunk in data.chunks():
        distances = data.compute_squared(chunk, width if alpha == "gaussian" else None)
        weights = _weigh(data.space.xp, distances.squared, alpha, width)
        if regression:
            weights *= data.space.cast(known - point_codes[chunk, None], distances.dtype)
        else:
            weights = data.space.xp.where(known == point_codes[chunk, None], weights, -weights)
        scores[chunk] = data.sum_differences(distances, weights)
    return scores


def _weigh(xp, squared, alpha, width: float):
    """Return alpha(r) of squared distances; finite for equal rows, which `sums` ignores."""
    squared = xp.where(squared > 0, squared, 1)
    if callable(alpha):
        weights = alpha(xp.sqrt(squared)) * xp.ones_like(squared)
        if not (weights.shape == squared.shape and xp.isfinite(weights).all() and (weights >= 0).all()):
            raise ShapelineError("mim: alpha returned other than one weight per distance; return finite numbers >= 0.")
        return weights
    if alpha == "constant":
        return xp.ones_like(squared)
    if alpha == "gaussian":
        return xp.exp(squared / (-2 * width**2))
    return 1 / (xp.sqrt(squared) if alpha == "inverse" else squared)


def set_influence(sets, values, coalitions) -> np.ndarray:
    """Return features' influence on coalitions: MIM, Hamming distance, alpha = 1/d (Sliwinski et al. 2019, eq. 6-8).

    sets (K, n) bool, values (K,), coalitions (q, n) bool among the sets -> (q, n) float64:
    sum over sets T of (v(T) - v(S)) / |S differs from T| (e_T - e_S). On the empty coalition it is eq. 8, over the
    given sets it is the measure of Balkanski et al. (2017).
    """
    where = "set_influence"
    sets, coalitions = check_table(where, "sets", sets), check_table(where, "coalitions", coalitions)
    if sets.shape[1] != coalitions.shape[1]:
        raise ShapelineError(
            f"{where}: coalitions have {coalitions.shape[1]} features and sets {sets.shape[1]}"
            "; give them the same features."
        )
    for name, rows in (("sets", sets), ("coalitions", coalitions)):
        if not np.isin(rows, (0, 1)).all():
            raise ShapelineError(f"{where}: {name} holds other numbers than 0 and 1; give membership as 0 and 1.")
    values = check_labels(where, "values", values, len(sets), True)
    point_ids, data_ids = identify(coalitions, sets)
    matched = np.flatnonzero(data_ids >= 0)[::-1]
    first = np.full(len(sets) + len(coalitions), -1)
    first[data_ids[matched]] = matched
    rows = first[point_ids]
    if (rows < 0).any():
        raise ShapelineError(
            f"{where}: coalition {np.flatnonzero(rows < 0)[0]} is none of the sets, so it has no value; add it to "
            "the sets."
        )
    sets, coalitions = sets.astype(np.float64), coalitions.astype(np.float64)
    influence = np.empty(coalitions.shape)
    step = max(1, (1 << 22) // len(sets))
    for a in range(0, len(rows), step):
        S = coalitions[a : a + step]
        distances = S.sum(axis=1)[:, None] + sets.sum(axis=1) - 2 * S @ sets.T  # integers, exact
        weights = (values - values[rows[a : a + step], None]) / np.maximum(distances, 1)
        influence[a : a + step] = weights @ sets - S * weights.sum(axis=1, keepdims=True)
    return influence


def total_set_influence(sets, values) -> np.ndarray:
    """Return each feature's set influence, (n,), summed over the sets without it (Sliwinski et al. 2019, eq. 9).

    Over all 2^n sets it is (2^n (2^n - 1) / n) times the Banzhaf value normalised by 2^-n (theorem 6.1), so
    2^(n-1) (2^n - 1) / n times `designs.banzhaf`, which is normalised by 2^(1-n).
    """
    influence = set_influence(sets, values, sets)
    return (influence * (np.asarray(sets) == 0)).sum(axis=0)


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
    """Return MIM at each point on the data and `count` more rows around it that the classifier labels, (p, n).

    predict, points, X, labels, count, spread, seed: as in `augment`, which is called separately per point. The rest:
    as in `mim`.
    """
    measure = partial(mim, alpha=alpha, regression=regression, categorical=categorical, width=width)
    predict = _keep_columns("augmented_mim", predict, X)
    check_order("augmented_mim", X, labels, ("X", "labels"))
    check_order("augmented_mim", points, point_labels, ("points", "point_labels"))
    points, X = check_points("augmented_mim", points, X)
    scores = []
    for index, point in enumerate(points[:, None]):
        augmented = augment(predict, point, X, labels, count, spread, seed=seed, categorical=categorical)
        label = None if point_labels is None else np.asarray(point_labels)[index : index + 1]
        scores.append(measure(point, *augmented, point_labels=label, dtype=dtype, device=device)[0])
    return np.array(scores)


def augment(
    predict: Callable, points, X, labels, count: int = 100, spread: float = 0.1, *, seed: int = 0, categorical=()
):
    """Return the data and `count` rows around each point, labelled by the classifier (Sliwinski et al. 2019, §7.5).

    predict: rows (k, n), a data frame where X is one -> (k,) labels.
    points: (p, n), each an x.
    X, labels: (m, n) and (m,); -> (X (m + p count, n), labels), on which any measure then runs.
    count: new rows per point.
    spread: rows are x + N(0, spread times the column's standard deviation), so constant columns do not change.
    seed: of the noise.
    categorical: columns without noise.
    """
    predict = _keep_columns("augment", predict, X)
    check_order("augment", X, labels, ("X", "labels"))
    points, X = check_points("augment", points, X)
    spread, count = check_positive("augment", "spread", spread), check_integer("augment", "count", count, 0)
    random = np.random.default_rng(seed)
    noise = random.standard_normal((len(points), count, X.shape[1])) * (spread * X.std(axis=0))
    noise[..., check_columns("augment", categorical, X.shape[1])] = 0
    rows = (points[:, None, :] + noise).reshape(-1, X.shape[1])
    answers = np.asarray(predict(rows))
    if answers.shape != (len(rows),):
        raise ShapelineError(
            f"augment: the classifier gave shape {answers.shape} for {len(rows)} rows; return one label per row."
        )
    return np.concatenate([X, rows]), np.concatenate([np.asarray(labels), answers])


def parzen(
    points,
    X,
    labels,
    sigma: float,
    regression: bool = False,
    categorical=(),
    *,
    point_labels=None,
    dtype: str = "float32",
    device: str = "cpu",
) -> np.ndarray:
    """Return the gradient at x of the share of x's label under a Gaussian kernel.

    The closed form is sum_y w_y (1[c(y) = c(x)] - P) (y - x) / sigma^2, with softmax weights w of -|y - x|^2 / (2
    sigma^2). The paper prints P(c = 1), which depends on the sign of the labels.

    Parameters
    ----------
    points : array of shape (p, n)
        The explained rows.
    X, labels : arrays of shape (m, n) and (m,)
        The data.
    sigma : float
        Width of the kernel. Where only the nearest row, or rows of one label, keep weight, the influence is 0, with a
        warning.
    regression : bool
        Whether the labels take the place of the indicator.
    categorical, point_labels, dtype, device
        As in `mim`.

    Returns
    -------
    numpy.ndarray
        (p, n) float64, per unit of each column.

    Raises
    ------
    ShapelineError
        As `mim`.

    References
    ----------
    Baehrens et al. (2010); Sliwinski, Strobel & Zick (2019), section 7.1.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import influence
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> labels = np.array([0, 1, 0, 1])
    >>> influence.parzen(X[:1], X, labels, sigma=1.0).round(3)
    array([[-0.208,  0.064]])
    """
    sigma = check_positive("parzen", "sigma", sigma)
    data = Neighbours("parzen", points, X, categorical, dtype, device)
    if regression and point_labels is None:
        point_labels = np.zeros(len(data.points))  # the gradient of the mean label needs none
    known, point_codes = data.labels(labels, regression, point_labels)
    known, point_codes = data.space.array(known), data.space.array(point_codes)
    xp = data.space.xp
    scores = np.empty(data.points.shape)
    lost = []
    for chunk in data.chunks():
        distances = data.compute_squared(chunk, sigma)
        excess = distances.squared - xp.amin(distances.squared, 1)[:, None]
        weights = xp.exp(excess / (-2 * sigma**2))
        isolated = ~((weights > 0) & (excess > 0)).any(1) & (excess > 0).any(1)
        weights = weights / weights.sum(1)[:, None]
        if regression:
            mean = (weights * known).sum(1)
            weights = weights * data.space.cast(known - mean[:, None], distances.dtype)
        else:
            # 1 - P is summed directly, since for P near 1 the difference loses all digits.
            agree = known == point_codes[chunk, None]
            agreeing = weights * agree
            disagreeing = weights - agreeing
            only = (agreeing.sum(1) == 0) & agree.any(1) | (disagreeing.sum(1) == 0) & ~agree.all(1)
            isolated = isolated | only  # the share is 0 or 1, and its gradient underflows
            weights = agreeing * disagreeing.sum(1)[:, None] - disagreeing * agreeing.sum(1)[:, None]
        scores[chunk] = data.sum_differences(distances, weights) / sigma**2
        lost.extend(np.flatnonzero(data.space.host(isolated) & ~scores[chunk].any(axis=1)) + chunk.start)
    if lost:
        warnings.warn(
            f"parzen: sigma = {sigma:g} is so small that only the nearest row, or rows of one label, keep weight at "
            f"{len(lost)} of {len(scores)} points (the first is point {lost[0]}); their influence is 0. Take a larger "
            "sigma.",
            stacklevel=2,
        )
    return scores


def counterfactual(X, labels) -> np.ndarray:
    """Return the mean over rows x of |c(x) - c(y)|, summed over the rows y that differ from x in feature i only.

    Duplicates count. Where no two rows differ in one feature only, the influence is 0 everywhere, with a warning.

    Parameters
    ----------
    X, labels : arrays of shape (m, n) and (m,)
        The data; labels are numbers.

    Returns
    -------
    numpy.ndarray
        (n,) float64, one global number per feature.

    Raises
    ------
    ShapelineError
        Where a number is missing.

    References
    ----------
    Datta, Datta, Procaccia & Zick (2015); Sliwinski, Strobel & Zick (2019), equation 15.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import influence
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> labels = np.array([0, 1, 0, 1])
    >>> influence.counterfactual(X, labels)
    array([0.5, 0. ])
    """
    check_order("counterfactual", X, labels, ("X", "labels"))
    X = check_table("counterfactual", "X", X)
    labels = check_labels("counterfactual", "labels", labels, len(X), True)
    total = sum(hash_column(X[:, feature], feature) for feature in range(X.shape[1]))
    influence = np.zeros(X.shape[1])
    pairs = 0
    for feature in range(X.shape[1]):
        column = X[:, feature]
        # A row's hash is the sum of its cells' hashes, so that of the other columns is a difference.
        others = total - hash_column(column, feature)
        group = np.unique(others, return_inverse=True)[1].reshape(-1)
        rows = np.flatnonzero(np.bincount(group)[group] > 1)
        if not len(rows):
            continue
        group = _verify(np.delete(X[rows], feature, axis=1), group[rows])
        same = np.unique(np.column_stack([group, column[rows]]), axis=0, return_inverse=True)[1].reshape(-1)
        influence[feature] = 2 * (_sum_differences(group, labels[rows]) - _sum_differences(same, labels[rows])) / len(X)
        pairs += (np.bincount(group) ** 2).sum() - (np.bincount(same) ** 2).sum()
    if not pairs:
        warnings.warn(
            f"counterfactual: no two of the {len(X):,} rows differ in one feature only, so every influence is 0; "
            "the data are too sparse for this measure.",
            stacklevel=2,
        )
    return influence


def hash_column(values: np.ndarray, column: int) -> np.ndarray:
    """Return hashes (k,) uint64 of the cells of a column, of which another column's differ."""
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # + 0.0 converts -0.0 to 0.0
    return pd.util.hash_array(bits + np.uint64((column + 1) * 0x9E3779B97F4A7C15 % 2**64))


def _verify(other_cells: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the groups, recomputed by sorting if two different rows have equal hashes."""
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    if np.array_equal(other_cells, other_cells[first[group]]):
        return group
    return np.unique(other_cells, axis=0, return_inverse=True)[1].reshape(-1)


def _sum_differences(group: np.ndarray, values: np.ndarray) -> float:
    """Return the sum of |v - w| over pairs within each group: v at rank r of k counts 2r + 1 - k times."""
    order = np.lexsort((values, group))
    counts = np.bincount(group)
    counts = counts[counts > 0]
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    rank = np.arange(len(values)) - starts
    return float((values[order] * (2 * rank + 1 - np.repeat(counts, counts))).sum())


MAX_EXACT = 12  # columns for which all coalitions are evaluated
MAX_ROWS = 1 << 16  # rows per call of the classifier
MAX_CELLS = 1 << 24  # cells per call of the classifier


def qii(predict: Callable, points, X, *, permutations: int = 1000, seed: int = 0) -> np.ndarray:
    """Return the Shapley value of v(S) = mean over rows y of f(x on S, y elsewhere).

    Positive means that x's value raises the output; the papers' game randomises S instead, which reverses the sign.

    Parameters
    ----------
    predict : callable
        From rows (k, n), a data frame where X is one, to numbers (k,).
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
    predict = _keep_columns("qii", predict, X)
    points, X = check_points("qii", points, X)
    n, permutations = X.shape[1], check_integer("qii", "permutations", permutations, 1)
    if n <= MAX_EXACT:
        masks = enumerate_coalitions(n, "qii")
        parts = [X[a : a + MAX_ROWS] for a in range(0, len(X), MAX_ROWS)]
        values = [
            [sum(_query(predict, np.where(mask, x, part)).sum() for part in parts) / len(X) for mask in masks]
            for x in points
        ]
        return np.asarray(values) @ shapley_readout(masks).T
    random = np.random.default_rng(seed)
    scores = np.zeros((len(points), n))
    step = max(1, min(MAX_ROWS, MAX_CELLS // n) // (n + 1))
    for row, x in enumerate(points):
        for a in range(0, permutations, step):
            count = min(step, permutations - a)
            position = random.permuted(np.tile(np.arange(n), (count, 1)), axis=1)  # each feature's position
            y = X[random.integers(len(X), size=count)]
            mixed = np.where(position[:, None, :] < np.arange(n + 1)[:, None], x, y[:, None, :])
            values = _query(predict, mixed.reshape(-1, n)).reshape(count, n + 1)
            scores[row] += np.take_along_axis(np.diff(values, axis=1), position, axis=1).sum(axis=0)
    return scores / permutations


def _keep_columns(where: str, predict: Callable, X) -> Callable:
    """Return a classifier of arrays, which gives the user's one data frames where the data are one."""
    if not callable(predict):
        call = "model.predict" if where != "qii" else "lambda rows: model.predict_proba(rows)[:, 1]"
        raise ShapelineError(f"{where}: predict is {name_type(predict)}; give a function of rows, such as {call}.")
    return (lambda rows: predict(pd.DataFrame(rows, columns=X.columns))) if hasattr(X, "columns") else predict


def _query(predict: Callable, rows: np.ndarray) -> np.ndarray:
    values = np.asarray(predict(rows), np.float64)
    if values.shape != (len(rows),) or not np.isfinite(values).all():
        raise ShapelineError(
            f"qii: the classifier gave shape {values.shape} for {len(rows)} rows, or numbers that are not finite; it "
            "must give one finite number per row, such as the probability of one class."
        )
    return values
