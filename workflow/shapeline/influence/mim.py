"""Monotone influence measures: weighted sums of differences to labelled points (Sliwinski et al. 2019, §4-6)."""

from collections.abc import Callable
from functools import partial

import numpy as np

from shapeline.errors import ShapelineError, nearest
from shapeline.influence.arrays import check, identities, positive, table
from shapeline.influence.neighbours import Neighbours

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

    s is +1 where labels agree, else -1; with more than two classes, the point's own class against the rest. Rows equal
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
        dtype = "float64"  # how steep it is, and so how much rounding it bears, is unknown
    elif alpha not in ALPHAS:
        raise ShapelineError(f"mim: unknown alpha {alpha!r}.{nearest(alpha, ALPHAS)}")
    width = positive("mim", "width", width)
    data = Neighbours("mim", points, X, categorical, dtype, device)
    known, own = data.labels(labels, regression, point_labels)
    known, own = data.space.array(known), data.space.array(own)
    scores = np.empty(data.points.shape)
    for chunk in data.chunks():
        distances = data.compute_squared(chunk, width if alpha == "gaussian" else None)
        weights = _weights(data.space.xp, distances.squared, alpha, width)
        if regression:
            weights *= data.space.cast(known - own[chunk, None], distances.dtype)
        else:
            weights = data.space.xp.where(known == own[chunk, None], weights, -weights)
        scores[chunk] = data.sums(distances, weights)
    return scores


def _weights(xp, squared, alpha, width: float):
    """alpha(r) of squared distances; finite for equal rows, which `sums` leaves out."""
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
    """Influence of features on coalitions: MIM with Hamming distance and alpha = 1/d (Sliwinski et al. 2019, eq. 6-8).

    sets (K, n) bool, values (K,), coalitions (q, n) bool among the sets -> (q, n) float64:
    sum over sets T of (v(T) - v(S)) / |S differs from T| (e_T - e_S). On the empty coalition it is eq. 8, over the
    given sets alone the measure of Balkanski et al. (2017).
    """
    where = "set_influence"
    sets, coalitions = table(where, "sets", sets), table(where, "coalitions", coalitions)
    if sets.shape[1] != coalitions.shape[1]:
        raise ShapelineError(
            f"{where}: coalitions have {coalitions.shape[1]} features and sets {sets.shape[1]}"
            "; give them the same features."
        )
    for name, rows in (("sets", sets), ("coalitions", coalitions)):
        if not np.isin(rows, (0, 1)).all():
            raise ShapelineError(f"{where}: {name} holds other numbers than 0 and 1; give membership as 0 and 1.")
    values = check(where, "values", values, len(sets), True)
    point_ids, data_ids = identities(coalitions, sets)
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
        apart = S.sum(axis=1)[:, None] + sets.sum(axis=1) - 2 * S @ sets.T  # whole numbers, exact
        weights = (values - values[rows[a : a + step], None]) / np.maximum(apart, 1)
        influence[a : a + step] = weights @ sets - S * weights.sum(axis=1, keepdims=True)
    return influence


def total_set_influence(sets, values) -> np.ndarray:
    """Set influence of each feature, (n,), summed over the sets without it (Sliwinski et al. 2019, eq. 9).

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
        raise ShapelineError(
            f"augment: points have {points.shape[1]} features and X has {X.shape[1]}; give them the same columns."
        )
    random = np.random.default_rng(seed)
    noise = random.standard_normal((len(points), count, X.shape[1])) * (spread * X.std(axis=0))
    rows = (points[:, None, :] + noise).reshape(-1, X.shape[1])
    answers = np.asarray(predict(rows))
    if answers.shape != (len(rows),):
        raise ShapelineError(
            f"augment: the classifier gave shape {answers.shape} for {len(rows)} rows; return one label per row."
        )
    return np.concatenate([X, rows]), np.concatenate([np.asarray(labels), answers])
