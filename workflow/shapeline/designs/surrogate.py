"""Linear surrogates: LIME, least squares with any symmetric weight, and lasso fits.

A lasso (LIME with K features, ContextCite) is not linear in the values, so it is not a `Design`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shapeline.designs import design
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one

MAX_CHUNK_CELLS = 2**22  # instances x selected features x features in one chunk: 32 MB
NEGLIGIBLE = 1e-10  # smaller shares of a feature's variance, or of the largest correlation, are rounding


def lime_minimum(d: int, ridge: float = 1.0) -> int:
    """Return the smallest budget of `lime`, in evaluations: 2 with a ridge, else 2d (all 2^d where that is fewer)."""
    return 2 if ridge > 0 else min(2 * d, 2**d)


def lime(
    d: int, budget: int, seed: int = 0, kernel: str = "cosine", kernel_width: float = 0.25, ridge: float = 1.0
) -> design.Design:
    """Return the design of a ridge regression with a free intercept on randomly masked inputs.

    Masks are sampled as in the authors' library: the full mask first, then uniform subsets of a uniform number of
    masked features. A repeated mask is replaced, so the masks are distinct.

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
    d, budget = design.check_integer("lime", "d", d, 1), design.check_integer("lime", "budget", budget, 0)
    design.check_choice("lime", "kernel", kernel, ("cosine", "fraction", "shapley"))
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
            return design.build_single_feature()
        inner = _sample_masks(d, np.arange(1, d), budget - 2, rng)
        if len(inner) == 0:
            return design.Design(np.array([[True] * d, [False] * d]), np.tile([1 / d, -1 / d], (d, 1)))
        sizes = inner.sum(axis=1)
        weights = design.compute_size_mass(d, np.arange(1, d))[sizes - 1] / np.bincount(sizes)[sizes]
        fitted = design.constrained_fit(inner, weights, "lime", ridge)
        back = np.r_[len(fitted.masks) - 1, : len(fitted.masks) - 1]  # the full mask first
        return design.Design(fitted.masks[back], fitted.readout[:, back])
    masks = lime_masks(d, budget, rng)
    weights = lime_weights(masks, kernel, kernel_width)
    return design.Design(masks, ridge_readout(masks, weights, ridge))


def lime_masks(d: int, budget: int, rng: np.random.Generator) -> np.ndarray:
    """Return the masks that `lime` samples, (K, d), K = min(budget, 2^d), the full one first."""
    return np.concatenate([np.ones((1, d), bool), _sample_masks(d, np.arange(d), budget - 1, rng)])


def lime_weights(masks: np.ndarray, kernel: str = "cosine", kernel_width: float = 0.25) -> np.ndarray:
    """Return LIME's weights sqrt(exp(-D^2/kernel_width^2)) (K,) of masks (K, d)."""
    share = masks.mean(axis=1)
    distance = 1 - (np.sqrt(share) if kernel == "cosine" else share)
    return np.exp(-(distance**2) / (2 * kernel_width**2))


def symmetric_least_squares(d: int, q: Callable[[int], float] | Sequence[float]) -> design.Design:
    """Return the design of least squares over all 2^d coalitions with weights q(s) by size (Charnes et al. 1988).

    d <= 20; both ends are met. q: function of the size, or the d - 1 weights of sizes 1..d-1; finite, not negative, not
    all 0. q(s) proportional to 1/C(d-2, s-1) gives the Shapley value.
    """
    where = "symmetric_least_squares"
    d = design.check_integer(where, "d", d, 1)
    masks = design.enumerate_coalitions(d, where)
    if d == 1:
        return design.build_single_feature()
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


def _sample_masks(d: int, sizes: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Sample `wanted` distinct masks (or all): a uniform size, then a uniform coalition of that size."""
    if d <= design.MAX_D and wanted > 2**d // 32:
        # Rejection would be slow near the end. The smallest exponential / rate sample without replacement in order
        # (Efraimidis & Spirakis 2006).
        masks = design.enumerate_coalitions(d, "lime")
        size = masks.sum(axis=1)
        masks = masks[(size >= sizes[0]) & (size <= sizes[-1])]
        size = masks.sum(axis=1)
        keys = rng.exponential(size=len(masks)) * np.bincount(size)[size]
        return masks[np.argsort(keys, kind="stable")[:wanted]]
    drawn = np.zeros((0, d), bool)
    while len(drawn) < wanted:
        size = rng.choice(sizes, size=wanted - len(drawn))
        drawn = np.concatenate([drawn, rng.permuted(np.arange(d) < size[:, None], axis=1)])
        drawn = drawn[np.sort(design.find_unique_rows(drawn)[0])]
    return drawn


def ridge_readout(masks: np.ndarray, weights: np.ndarray, ridge: float) -> np.ndarray:
    """Return the readout (d, K) of a weighted ridge fit; centring by the weighted mean leaves the intercept free."""
    n, d = masks.shape
    root = np.sqrt(weights)
    rows = masks - weights @ masks / weights.sum()
    rows *= root[:, None]
    with limit_to_one(rows.size * min(n, d)):
        if n < d and ridge > 0:
            # The dual form: K equations in place of d.
            gram = rows @ rows.T
            design.view_diagonal(gram)[:] += ridge
            return (design.solve_positive(gram, rows, "lime").T) * root
        gram = rows.T @ rows
        design.view_diagonal(gram)[:] += ridge
        return design.solve_positive(gram, rows.T * root, "lime")


def fit_sparse(
    masks: np.ndarray, values: np.ndarray, weights: np.ndarray, k: int, ridge: float = 1.0, selection: str = "lasso"
) -> np.ndarray:
    """Return scores (..., d) float64, at most k of an instance's nonzero (Ribeiro et al. 2016, algorithm 1).

    masks (K, d) bool, values (..., K), weights (K,) >= 0. selection "lasso": the features of the lasso path just before
    a (k+1)-th enters (Efron et al. 2004, section 3.1); "forward": repeatedly the feature that lowers the squared error
    most. The scores are a weighted ridge fit of the selected features with a free intercept. A feature that is a linear
    function of the selected ones on these masks is never selected. Raises ShapelineError.
    """
    return SparseFit(masks, weights, k, ridge, selection).attribute(values)


def sparsify(
    fitted: design.Design,
    n_features: int,
    kernel: str = "cosine",
    kernel_width: float = 0.25,
    ridge: float = 1.0,
    selection: str = "lasso",
) -> "SparseFit":
    """Return the fit of at most `n_features` features on the masks of a `lime` design of this kernel and width."""
    design.check_choice("lime with a number of features", "kernel", kernel, ("cosine", "fraction"))
    return SparseFit(fitted.masks, lime_weights(fitted.masks, kernel, kernel_width), n_features, ridge, selection)


class FeatureFit(design.Coalitions):
    """A fit of single features to the values of coalitions `masks` (K, d), in place of a `Design`."""

    def attribute_pairs(self, values: np.ndarray) -> None:
        """Return None: a fit of single features has no scores of pairs."""


@dataclass(frozen=True, eq=False)
class SparseFit(FeatureFit):
    """Coalitions and a fit of at most `n_features` features to their values (`fit_sparse`), in place of a `Design`."""

    masks: np.ndarray
    weights: np.ndarray
    n_features: int
    ridge: float = 1.0
    selection: str = "lasso"

    def __post_init__(self):
        masks, weights = self.masks, self.weights
        if masks.ndim != 2 or masks.dtype != bool or weights.shape != (len(masks),):
            raise ShapelineError(
                f"lasso: masks {masks.dtype} {masks.shape} and weights {weights.shape}; give (K, d) bool and (K,)."
            )
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise ShapelineError("lasso: weights are out of range; give finite ones of at least 0, and one above 0.")
        design.check_integer("lasso", "the number of features kept", self.n_features, 1)
        design.check_choice("lasso", "selection", self.selection, tuple(SELECTIONS))
        if not 0 <= self.ridge < np.inf:
            raise ShapelineError(f"lasso: ridge is {self.ridge!r}; give a finite number of at least 0.")

    @cached_property
    def _products(self) -> tuple[np.ndarray, np.ndarray]:
        """Weighted centred columns (K, d) and their products (d, d); centring removes the free intercept."""
        rows = self.masks - self.weights @ self.masks / self.weights.sum()
        weighted = rows * self.weights[:, None]
        return weighted, weighted.T @ rows

    def attribute(self, values: np.ndarray) -> np.ndarray:
        """Return scores (..., d) from the values (..., K) of the coalitions, in the order of the masks."""
        values = np.asarray(values, dtype=np.float64)
        if values.shape[-1:] != (self.evaluations,) or not np.isfinite(values).all():
            raise ShapelineError(f"lasso: values {values.shape}; give (..., {self.evaluations}), all finite.")
        weighted, gram = self._products
        flat = values.reshape(-1, self.evaluations)
        # Centring the values changes no product, but removes the rounding error of a large common value.
        centred = flat - (flat @ self.weights / self.weights.sum())[:, None]
        centred[np.abs(centred).max(axis=1, initial=0) <= 1e-14 * np.abs(flat).max(axis=1, initial=0)] = 0
        right = centred @ weighted
        k = min(self.n_features, self.d)
        scores = np.zeros((len(flat), self.d + 1))  # the last column is the padding's
        step = max(1, MAX_CHUNK_CELLS // (k * self.d))
        for first in range(0, len(flat), step):
            chunk = slice(first, first + step)
            chosen = SELECTIONS[self.selection](gram, right[chunk], k)
            products = np.take_along_axis(np.pad(right[chunk], ((0, 0), (0, 1))), chosen, axis=1)
            np.put_along_axis(scores[chunk], chosen, _solve(gram, chosen, products, self.ridge), axis=1)
        return scores[:, : self.d].reshape(*values.shape[:-1], self.d)


def _solve(gram: np.ndarray, chosen: np.ndarray, right: np.ndarray, ridge: float = 0.0) -> np.ndarray:
    """Return solutions (n, k) of each instance's equations for its selected features (n, k); 0 for padding (d)."""
    padding = chosen == len(gram)
    matrices = np.pad(gram, (0, 1))[chosen[:, :, None], chosen[:, None, :]]
    np.einsum("nkk->nk", matrices)[:] += np.where(padding, 1, ridge)
    return np.linalg.solve(matrices, np.where(padding, 0, right)[:, :, None])[:, :, 0]


def _fit_lasso(gram: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """Return features (n, k) of each instance's lasso path before a (k+1)-th enters, padded with d.

    gram (d, d), right (n, d): products of the columns with each other and with the values. Least angle regression with
    lasso drops, one step of all instances at a time: the correlations of the active features fall together, at rate 1,
    until another feature's is as large (it joins), a coefficient returns to 0 (it drops), or no correlation remains.
    """
    n, d = right.shape
    padded = np.pad(gram, ((0, 1), (0, 0)))
    chosen = np.full((n, k), d)
    signs, coefficients = np.zeros((n, k)), np.zeros((n, k))
    correlations = right.copy()
    level = np.abs(right).max(axis=1, initial=0)
    least = NEGLIGIBLE * level
    live = np.flatnonzero(level > 0)
    # A path has about k steps; the limit stops features that join and drop alternately because of rounding.
    for _ in range(10 * (k + 10)):
        if not len(live):
            break
        row, active = np.arange(len(live)), chosen[live]
        direction = _solve(gram, active, signs[live])
        drift = np.matmul(direction[:, None], padded[active])[:, 0]
        joining = np.full((len(live), d + 1), np.inf)
        for sign in (1, -1):
            gap = np.maximum(level[live, None] - sign * correlations[live], 0)
            speed = 1 - sign * drift  # at which the level approaches this correlation
            steps = np.where(speed > NEGLIGIBLE, gap / np.maximum(speed, NEGLIGIBLE), np.inf)
            np.minimum(joining[:, :d], steps, out=joining[:, :d])
        np.put_along_axis(joining, active, np.inf, axis=1)
        returning = signs[live] * direction < 0
        dropping = np.where(returning, np.abs(coefficients[live]) / np.maximum(np.abs(direction), 1e-300), np.inf)
        joiner, dropped = joining.argmin(axis=1), dropping.argmin(axis=1)
        join, drop = joining[row, joiner], dropping[row, dropped]

        length = np.minimum(np.minimum(join, drop), level[live])
        coefficients[live] += length[:, None] * direction
        correlations[live] -= length[:, None] * drift
        level[live] -= length
        ended = level[live] <= least[live]
        drops = ~ended & (drop <= join)
        full = ~ended & ~drops & (active < d).all(axis=1)
        joins = ~ended & ~drops & ~full
        for array, empty in ((chosen, d), (signs, 0), (coefficients, 0)):
            array[live[drops], dropped[drops]] = empty
        free = (active == d).argmax(axis=1)
        chosen[live[joins], free[joins]] = joiner[joins]
        signs[live[joins], free[joins]] = np.sign(correlations[live, joiner])[joins]
        live = live[~ended & ~full]
    return chosen


def _forward(gram: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """Return features (n, k), each reducing the squared error most beside earlier ones, padded with d.

    Shapes as in `_fit_lasso`. Each chosen column is projected out of the others through their products (a pivoted
    Cholesky factor; orthogonal least squares, Chen, Cowan & Grant 1991).
    """
    n, d = right.shape
    chosen, factor = np.full((n, k), d), np.zeros((n, k, d))
    residual, variance = right.copy(), np.tile(np.diagonal(gram), (n, 1))
    least, instance = NEGLIGIBLE * np.diagonal(gram), np.arange(n)
    first = None
    for step in range(k):
        gain = np.where(variance > least, residual**2 / np.where(variance > least, variance, 1), 0)
        pick = gain.argmax(axis=1)
        best = gain[instance, pick]
        first = best if first is None else first
        improved = best > NEGLIGIBLE**2 * first
        if not improved.any():
            break
        root = np.sqrt(np.where(improved, variance[instance, pick], 1))
        row = gram[pick] - np.matmul(factor[instance, :, pick][:, None], factor)[:, 0]
        row *= (improved / root)[:, None]
        residual -= row * (residual[instance, pick] / root)[:, None]
        variance -= row**2
        variance[instance[improved], pick[improved]] = 0
        factor[:, step] = row
        chosen[improved, step] = pick[improved]
    return chosen


SELECTIONS = {"lasso": _fit_lasso, "forward": _forward}


def context_cite_minimum(d: int) -> int:
    """Return the smallest budget of `context_cite`, in evaluations: two masks, which can differ in a feature."""
    return 2


def context_cite(d: int, budget: int, seed: int = 0, keep_probability: float = 0.5, alpha: float = 0.01) -> "Ablations":
    """Return random ablations with a lasso on standardised masks, as ContextCite fits them.

    Each feature is kept independently with `keep_probability`; a mask that is sampled twice is evaluated once and
    counts twice. alpha: penalty of the lasso, in the unit of the values (the authors' 0.01 is for values per answer
    token).
    """
    d = design.check_integer("context_cite", "d", d, 1)
    if design.check_integer("context_cite", "budget", budget, 0) < context_cite_minimum(d):
        raise ShapelineError(f"context_cite: budget is {budget} evaluations and the minimum is 2; raise it.")
    masks = np.random.default_rng(seed).random((budget, d)) < keep_probability
    return Ablations(*np.unique(masks, axis=0, return_counts=True), alpha)


@dataclass(frozen=True, eq=False)
class Ablations(FeatureFit):
    """Distinct coalitions (K, d) bool with their counts (K,), and a lasso on their values; replaces a `Design`."""

    masks: np.ndarray
    counts: np.ndarray
    alpha: float

    def attribute(self, values: np.ndarray) -> np.ndarray:
        """Return scores (..., d) from the values (..., K) of the coalitions, in the order of the masks."""
        from sklearn.linear_model import Lasso

        values = np.asarray(values, dtype=np.float64)
        centred = self.masks - np.average(self.masks, axis=0, weights=self.counts)
        scale = np.sqrt(np.average(centred**2, axis=0, weights=self.counts))
        rows = centred / np.where(scale > 0, scale, 1.0)
        flat = values.reshape(-1, self.evaluations)
        scores = [Lasso(self.alpha).fit(rows, value, sample_weight=self.counts).coef_ for value in flat]
        return (np.array(scores) / np.where(scale > 0, scale, 1.0)).reshape(*values.shape[:-1], self.d)
