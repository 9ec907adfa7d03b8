"""Surrogate fits: LIME, and least squares over all coalitions with any symmetric weight."""

from collections.abc import Callable, Sequence

import numpy as np

from shapeline.designs import design
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one


def lime_minimum(d: int, ridge: float = 1.0) -> int:
    """Smallest budget of `lime`, in evaluations: 2 with a ridge, else 2d (all 2^d where that is fewer)."""
    return 2 if ridge > 0 else min(2 * d, 2**d)


def lime(
    d: int, budget: int, seed: int = 0, kernel: str = "cosine", kernel_width: float = 0.25, ridge: float = 1.0
) -> design.Design:
    """Return the design of a ridge regression with a free intercept on randomly masked inputs.

    Masks are sampled as in the authors' library: the full mask first, then a uniform number of masked features,
    uniformly placed; a repeated mask is sampled again, so each counts once.

    Parameters
    ----------
    d : int
        Number of features.
    budget : int
        Evaluations, at least 2; K = min(budget, 2^d).
    seed : int
        Of the sample.
    kernel : {"cosine", "fraction", "shapley"}
        "cosine": sqrt(exp(-D^2/kernel_width^2)) of the cosine distance D to the full mask; "fraction": the same with D
        the share of masked features; "shapley": no intercept but v(empty) and v(N) met exactly, with the Shapley
        kernel.
    kernel_width : float
        Of the first two kernels.
    ridge : float
        Penalty; 0 with kernel "shapley" on all coalitions is KernelSHAP.

    Returns
    -------
    Design
        Masks (K, d) bool and a dense readout.

    Raises
    ------
    ShapelineError
        Where the budget is below the minimum, or a number is out of range.

    References
    ----------
    Ribeiro, Singh & Guestrin (2016).

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs
    >>> design = designs.lime(3, budget=8, kernel="shapley", ridge=0.0)
    >>> design.attribute(design.masks @ np.array([3.0, 1.0, 2.0])).round(6)
    array([3., 1., 2.])
    """
    d, budget = design.whole("lime", "d", d, 1), design.whole("lime", "budget", budget, 0)
    design.one_of("lime", "kernel", kernel, ("cosine", "fraction", "shapley"))
    for name, value, good in (("kernel_width", kernel_width, kernel_width > 0), ("ridge", ridge, ridge >= 0)):
        if not (good and np.isfinite(value)):
            raise ShapelineError(
                f"lime: {name} is {value!r}; give a finite number of at least 0 (kernel_width above 0)."
            )
    least = lime_minimum(d, ridge)
    if budget < least:
        remedy = "raise it" if ridge > 0 else "raise it, or set ridge above 0"
        raise ShapelineError(f"lime: budget is {budget} evaluations and the minimum for d = {d} is {least}; {remedy}.")
    rng = np.random.default_rng(seed)
    if kernel == "shapley":
        if d == 1:
            return design.only_feature()
        inner = _masks(d, np.arange(1, d), budget - 2, rng)
        if len(inner) == 0:
            return _even(d)
        sizes = inner.sum(axis=1)
        weights = design.size_mass(d, np.arange(1, d))[sizes - 1] / np.bincount(sizes)[sizes]
        fitted = design.constrained_fit(inner, weights, "lime", ridge)
        back = np.r_[len(fitted.masks) - 1, : len(fitted.masks) - 1]  # the full mask first
        return design.Design(fitted.masks[back], fitted.readout[:, back])
    masks = lime_masks(d, budget, rng)
    weights = lime_weights(masks, kernel, kernel_width)
    return design.Design(masks, ridge_readout(masks, weights, ridge))


def lime_masks(d: int, budget: int, rng: np.random.Generator) -> np.ndarray:
    """The masks that `lime` samples, (K, d), K = min(budget, 2^d), the full one first."""
    return np.concatenate([np.ones((1, d), bool), _masks(d, np.arange(d), budget - 1, rng)])


def lime_weights(masks: np.ndarray, kernel: str = "cosine", kernel_width: float = 0.25) -> np.ndarray:
    """LIME's weight sqrt(exp(-D^2/kernel_width^2)) of masks (K, d), (K,); for fits made outside a `Design`."""
    share = masks.mean(axis=1)
    distance = 1 - (np.sqrt(share) if kernel == "cosine" else share)
    return np.exp(-(distance**2) / (2 * kernel_width**2))


def symmetric_least_squares(d: int, q: Callable[[int], float] | Sequence[float]) -> design.Design:
    """Least squares over all 2^d coalitions, d <= 20, weights q(s) by size, both ends met (Charnes et al. 1988).

    q: function of the size, or the d - 1 weights of sizes 1..d-1; finite, not negative, not all 0. The Shapley value
    is q(s) proportional to 1/C(d-2, s-1). METHODS §4 states the solution.
    """
    where = "symmetric_least_squares"
    d = design.whole(where, "d", d, 1)
    masks = design.all_coalitions(d, where)
    if d == 1:
        return design.only_feature()
    weights = np.array([q(size) for size in range(1, d)] if callable(q) else q, dtype=np.float64)
    if weights.shape != (d - 1,):
        raise ShapelineError(f"{where}: q has shape {weights.shape}; give the {d - 1} weights of sizes 1..{d - 1}.")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ShapelineError(
            f"{where}: probabilities q(s) of sizes are out of range; give finite ones of at least 0, and one above 0."
        )
    inner = np.arange(1, d)
    paths = np.exp(design.log_factorial(d - 2) - design.log_factorial(inner - 1) - design.log_factorial(d - 1 - inner))
    weight = np.zeros(d + 1)
    weight[1:d] = weights / (paths @ weights)
    sizes = masks.sum(axis=1)
    readout = (masks.T - sizes / d) * weight[sizes]
    readout[:, 0] = -1 / d
    readout[:, -1] = 1 / d
    return design.Design(masks, readout)


def _even(d: int) -> design.Design:
    """Two coalitions only: v(N) - v(empty) in equal shares."""
    masks = np.array([[True] * d, [False] * d])
    return design.Design(masks, np.tile([1 / d, -1 / d], (d, 1)))


def _masks(d: int, sizes: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """`wanted` distinct masks (or all there are) drawn as a uniform size, then a uniform coalition of that size."""
    if d <= design.MAX_D and wanted > 2**d // 32:
        # Rejection would be slow near the end. The smallest exponential / rate are samples without replacement in turn
        # (Efraimidis & Spirakis 2006).
        masks = design.all_coalitions(d, "lime")
        size = masks.sum(axis=1)
        masks = masks[(size >= sizes[0]) & (size <= sizes[-1])]
        size = masks.sum(axis=1)
        keys = rng.exponential(size=len(masks)) * np.bincount(size)[size]
        return masks[np.argsort(keys, kind="stable")[:wanted]]
    drawn = np.zeros((0, d), bool)
    while len(drawn) < wanted:
        size = rng.choice(sizes, size=wanted - len(drawn))
        drawn = np.concatenate([drawn, rng.permuted(np.arange(d) < size[:, None], axis=1)])
        drawn = drawn[np.sort(design.unique_rows(drawn)[0])]
    return drawn


def ridge_readout(masks: np.ndarray, weights: np.ndarray, ridge: float) -> np.ndarray:
    """(d, K) readout of a weighted ridge fit; centring by the weighted mean leaves the intercept unpenalised."""
    n, d = masks.shape
    root = np.sqrt(weights)
    rows = masks - weights @ masks / weights.sum()
    rows *= root[:, None]
    with limit_to_one(rows.size * min(n, d)):
        if n < d and ridge > 0:
            # The dual form: K equations in place of d.
            gram = rows @ rows.T
            design.diagonal(gram)[:] += ridge
            return (design.solve_positive(gram, rows, "lime").T) * root
        gram = rows.T @ rows
        design.diagonal(gram)[:] += ridge
        return design.solve_positive(gram, rows.T * root, "lime")
