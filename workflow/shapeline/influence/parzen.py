"""Parzen windows: gradient of a kernel estimate of the label (Baehrens et al. 2010; Sliwinski et al. 2019, §7.1)."""

import warnings

import numpy as np

from shapeline.influence.arrays import positive
from shapeline.influence.neighbours import Neighbours


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
        Width of the kernel. Where no row but the nearest keeps weight, the influence is 0, with a warning.
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
    sigma = positive("parzen", "sigma", sigma)
    data = Neighbours("parzen", points, X, categorical, dtype, device)
    if regression and point_labels is None:
        point_labels = np.zeros(len(data.points))  # the gradient of the mean label asks for none
    known, own = data.labels(labels, regression, point_labels)
    known, own = data.space.array(known), data.space.array(own)
    xp = data.space.xp
    scores = np.empty(data.points.shape)
    lost = []
    for chunk in data.chunks():
        distances = data.compute_squared(chunk, sigma)
        farther = distances.squared - xp.amin(distances.squared, 1)[:, None]
        weights = xp.exp(farther / (-2 * sigma**2))
        alone = ~((weights > 0) & (farther > 0)).any(1) & (farther > 0).any(1)
        weights = weights / weights.sum(1)[:, None]
        if regression:
            mean = (weights * known).sum(1)
            weights = weights * data.space.cast(known - mean[:, None], distances.dtype)
        else:
            # 1 - P is summed itself: next to P = 1 the difference has no digits.
            agree = known == own[chunk, None]
            agreeing = weights * agree
            disagreeing = weights - agreeing
            weights = agreeing * disagreeing.sum(1)[:, None] - disagreeing * agreeing.sum(1)[:, None]
        scores[chunk] = data.sums(distances, weights) / sigma**2
        lost.extend(np.flatnonzero(data.space.host(alone) & ~scores[chunk].any(axis=1)) + chunk.start)
    if lost:
        warnings.warn(
            f"parzen: sigma = {sigma:g} is so small that no row but the nearest keeps weight at {len(lost)} of "
            f"{len(scores)} points (the first is point {lost[0]}); their influence is 0. Take a larger sigma.",
            stacklevel=2,
        )
    return scores
