"""Standard errors of sampled Shapley values from the samples themselves, NaN where no freedom is left.

An `error` is the predicted root mean square error of one explanation over its scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from shapeline.designs.design import Design, kernel_weight, unique_rows
from shapeline.designs.interactions import build_terms
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one

TWO_SIDED = 0.975
BORROWED = 3  # degrees of freedom that a feature's variance takes from all features: few permutations see no rare jump
CELLS = 1 << 22  # of the arrays of pairs at a time
CAP = 0.99  # of a pair's leverage: what is left out of its residual stays bounded


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """standard error (n, d) in the values' units; error (n,): the predicted RMSE of each explanation."""

    standard_error: np.ndarray
    error: np.ndarray


def kernel_shap_uncertainty(design: Design, values: np.ndarray) -> Uncertainty:
    """Return standard errors of `kernel_shap` from the residuals of its sampled pairs; values (n, K).

    The jackknife over drawn pairs of the weighted fit (MacKinnon & White 1985), centred, since sizes enumerated whole
    do not vary; a pair drawn c times counts c times, so that the population's being finite is in the counts. 0 where
    all coalitions are evaluated, NaN where fewer than two pairs were sampled.
    """
    values = np.atleast_2d(np.asarray(values, dtype=np.float64))
    count, d = design.masks.shape
    n, half = len(values), (count - 2) // 2
    if count == 2 ** min(d, 62):
        return Uncertainty(np.zeros((n, d)), np.zeros(n))
    nothing = Uncertainty(np.full((n, d), np.nan), np.full(n, np.nan))
    if count < 2 * d + 2:
        return nothing
    inner, pulls = design.masks[1 : 1 + half], design.readout.T[1 : 1 + half]
    if design.sample is not None and design.sample.ndim == 2:
        weights, sampled = design.sample[0], design.sample[1] > 0
    else:
        weights = _weights(inner, pulls.T) if design.sample is None else design.sample
        sampled = _sample_masks(d, inner)
    if sampled.sum() < 2:
        return nothing
    share = np.count_nonzero(inner, axis=1, keepdims=True) / d
    odd = values[:, 1 : 1 + half] - values[:, 1 + half : -1]
    ends = (values[:, -1:] - values[:, :1]) * (2 * share[:, 0] - 1)
    scores = design.attribute(values)
    scores = scores - scores.mean(axis=1, keepdims=True)
    left, leverage = odd - ends, np.empty(half)
    for part in _parts(half, d):
        rows = inner[part] - share[part]
        left[:, part] -= 2 * scores @ rows.T
        leverage[part] = 2 * np.einsum("rd,rd->r", rows, pulls[part])
    counts = np.maximum(np.round(weights[sampled] / weights[sampled].min()), 1)
    spread = _spread(pulls, np.flatnonzero(sampled), left[:, sampled], np.minimum(leverage[sampled], CAP), counts)
    free = min(counts.sum() - 1, max(half - d + 1, 1))
    return _scale_by_quantile(spread, free)


def _spread(
    pulls: np.ndarray, pairs: np.ndarray, left: np.ndarray, leverage: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Variances (n, d) of the sum of the pairs' readout, `pulls` (R, d), times residual (n, p), each drawn `counts`
    times; pairs (p,): rows of pulls."""
    total = counts.sum()
    # Without one of its c samples a pair keeps 1 - 1/c of its leverage.
    left = left / (1 - leverage / counts) / counts
    d = pulls.shape[1]
    mean, square = np.zeros((2, len(left), d))
    with limit_to_one(d * left.size):
        for part in _parts(len(pairs), d):
            pull = pulls[pairs[part]]
            mean += (left[:, part] * counts[part]) @ pull
            square += (left[:, part] ** 2 * counts[part]) @ pull**2
    mean /= total
    return total / (total - 1) * np.maximum(square - total * mean**2, 0.0)


def _parts(pairs: int, d: int) -> Iterator[slice]:
    """Yield the pairs in parts, because intermediate arrays have half the size of the weights."""
    step = max(1, CELLS // d)
    return (slice(start, min(start + step, pairs)) for start in range(0, pairs, step))


def _sample_masks(d: int, inner: np.ndarray) -> np.ndarray:
    """Return which pairs (R,) are of a size that is not enumerated whole."""
    size = inner.sum(axis=1)
    size = np.minimum(size, d - size)
    return np.bincount(size)[size] != _pairs_of(d)[size]


@cache
def _pairs_of(d: int) -> np.ndarray:
    """Return the number of complementary pairs of each size up to d // 2, (d // 2 + 1,), clipped to int64."""
    pairs = [comb(d, size) // (2 if 2 * size == d else 1) for size in range(d // 2 + 1)]
    return np.array([min(number, np.iinfo(np.int64).max) for number in pairs])


def _weights(inner: np.ndarray, readout: np.ndarray) -> np.ndarray:
    """Return the weights (R,) that a fit gave its pairs, from its readout (d, R), by the features alone."""
    d = inner.shape[1]
    alone = np.flatnonzero(inner.sum(axis=1) == 1)
    matrix = np.zeros((d, d))
    matrix[:, inner[alone].argmax(axis=1)] = readout[:, alone] / kernel_weight(d, np.array([1]))
    direction = matrix @ (inner - inner.mean(axis=1, keepdims=True)).T
    return (direction * readout).sum(axis=0) / (direction**2).sum(axis=0)


def sample_shapley_uncertainty(
    masks: np.ndarray, order: np.ndarray, values: np.ndarray, antithetic: bool = False
) -> Uncertainty:
    """Return standard errors of `sample_shapley` from the variance over its permutations, or antithetic pairs.

    masks: (K, d) bool, the prefixes of the permutations and both ends; order: (P, d), permutations of the features in
    the order drawn, a permutation before its reverse; values: (n, K). NaN with fewer than two permutations or pairs.
    """
    values = np.atleast_2d(np.asarray(values, dtype=np.float64))
    (count, d), n = order.shape, len(values)
    gains = _marginals(masks, order, values)
    if antithetic:
        gains = (gains[:, 0 : count // 2 * 2 : 2] + gains[:, 1::2]) / 2
    free = gains.shape[1] - 1
    if free < 1:
        return Uncertainty(np.full((n, d), np.nan), np.full(n, np.nan))
    own = gains.var(axis=1, ddof=1) / (free + 1)
    return _scale_by_quantile((free * own + BORROWED * own.mean(axis=1, keepdims=True)) / (free + BORROWED), free)


def _marginals(masks: np.ndarray, order: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the marginal contribution (n, P, d) of each feature in each permutation."""
    count, d = order.shape
    rank = order.argsort(axis=1)
    prefix = (rank[:, None, :] < np.arange(d + 1)[:, None]).reshape(-1, d)
    first, inverse = unique_rows(np.concatenate([masks, prefix]))
    if first.max() >= len(masks):
        raise ShapelineError("sample_shapley: the coalitions are not those of the permutations; give the same seed.")
    row = first[inverse[len(masks) :]].reshape(count, d + 1)
    steps = values[:, row[:, 1:]] - values[:, row[:, :-1]]
    return np.take_along_axis(steps, rank[None], axis=2)


def _scale_by_quantile(variance: np.ndarray, free: float) -> Uncertainty:
    """Return intervals by Student's t with `free` degrees of freedom; the predicted error uses the variances."""
    return Uncertainty(np.sqrt(variance) * _quantile(free), np.sqrt(variance.mean(axis=1)))


def _quantile(free: float | np.ndarray) -> float | np.ndarray:
    """Return the ratio of the 97.5 % quantiles of Student's t with `free` degrees of freedom and the normal."""
    from scipy.special import stdtrit  # scipy.stats takes half a second

    return stdtrit(free, TWO_SIDED) / stdtrit(np.inf, TWO_SIDED)


def read_kernel_shap(design: Design, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores (n, d) of a `kernel_shap` design and their standard error, None if it is unknown."""
    return design.attribute(values), drop_unknown(kernel_shap_uncertainty(design, values).standard_error)


def read_sample_shapley(design: Design, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores (n, d) of a `sample_shapley` design and their standard error, 0 if exact, None if it is unknown."""
    scores, order = design.attribute(values), design.sample
    if order is None:
        return scores, np.zeros(scores.shape)
    antithetic = len(order) > 1 and bool((order[1] == order[0][::-1]).all()) and design.d > 2
    return scores, drop_unknown(sample_shapley_uncertainty(design.masks, order, values, antithetic).standard_error)


def read_sample_interactions(
    design: Design, values: np.ndarray, index: str = "k_sii"
) -> tuple[np.ndarray, None, np.ndarray | None]:
    """Own parts (n, d) of a `sample_interactions` design, no standard error of theirs, and that of its pairs
    (n, d (d-1) / 2): the standard error of a mean of terms, whose variance is partly that of all pairs; 0 where all
    coalitions are evaluated, None where every pair has one term."""
    scores, pairs = design.attribute(values), design.attribute_pairs(values)
    if design.sample is None:
        return scores, None, np.zeros(pairs.shape)
    number, *terms = design.sample
    count = np.bincount(number, minlength=pairs.shape[1])
    free = count - 1
    if not free.any():
        return scores, None, None
    term = values[:, terms[0]] - values[:, terms[1]] - values[:, terms[2]] + values[:, terms[3]]
    square = ((term - pairs[:, number]) * build_terms(number, design.d, index)) ** 2
    sums = np.add.reduceat(square[:, np.argsort(number, kind="stable")], np.r_[0, count.cumsum()[:-1]], axis=1)
    of_all = sums.sum(axis=1, keepdims=True) / free.sum()
    variance = (sums + BORROWED * of_all) / (free + BORROWED) / count
    return scores, None, np.sqrt(variance) * _quantile(np.minimum(free + BORROWED, free.sum()))


def drop_unknown(standard_error: np.ndarray) -> np.ndarray | None:
    """Return the standard error, or None if no sample says anything."""
    return None if np.isnan(standard_error).all() else standard_error
