"""Standard errors of sampled Shapley values from the samples; NaN where no degree of freedom remains.

An `error` is the predicted root mean square error of one explanation over its scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import Design, find_unique_rows
from shapeline.designs.interactions import weigh_terms
from shapeline.designs.semivalues import count_pairs_by_size
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one

QUANTILE = 0.975
# Weights of the mean variance of all features, or pairs, in that of each: few samples miss a rare large contribution.
FEATURE_FREEDOM, PAIR_FREEDOM = 6, 3
MIN_PERMUTATIONS = 3  # of distinct prefixes: two give one feature the only jump by chance, a standard error of 0
MAX_CELLS = 1 << 22  # pairs times features in one block
MAX_LEVERAGE = 0.99  # larger leverages of pairs are clipped, which bounds the leave-one-out residual


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Standard error (n, d) in the values' units, and error (n,), the predicted RMSE of each explanation."""

    standard_error: np.ndarray
    error: np.ndarray


def kernel_shap_uncertainty(design: Design, values: np.ndarray) -> Uncertainty:
    """Return standard errors of `kernel_shap` from the residuals of its sampled pairs; values (n, K).

    The centred jackknife of the weighted fit over sampled pairs (MacKinnon & White 1985); enumerated sizes do not vary.
    A pair that was sampled c times counts c times, so the counts account for the finite population. 0 where all
    coalitions are evaluated, NaN where fewer than two pairs were sampled.
    """
    values = np.atleast_2d(np.asarray(values, dtype=np.float64))
    count, d = design.masks.shape
    n, half = len(values), (count - 2) // 2
    if count == 2 ** min(d, 62):
        return Uncertainty(np.zeros((n, d)), np.zeros(n))
    unknown = Uncertainty(np.full((n, d), np.nan), np.full(n, np.nan))
    if count < 2 * d + 2 or design.sample is None:  # no pair is sampled
        return unknown
    inner, readout = design.masks[1 : 1 + half], design.readout.T[1 : 1 + half]
    if design.sample.ndim == 2:
        weights, sampled = design.sample[0], design.sample[1] > 0
    else:
        weights, size = design.sample, np.minimum(size := inner.sum(axis=1), d - size)
        sampled = np.bincount(size)[size] != count_pairs_by_size(d)[size - 1]  # not of an enumerated size
    if sampled.sum() < 2:
        return unknown
    share = np.count_nonzero(inner, axis=1, keepdims=True) / d
    odd = values[:, 1 : 1 + half] - values[:, 1 + half : -1]
    ends = (values[:, -1:] - values[:, :1]) * (2 * share[:, 0] - 1)
    scores = design.attribute(values)
    scores = scores - scores.mean(axis=1, keepdims=True)
    residual, leverage = odd - ends, np.empty(half)
    for block in _split_pairs(half, d):
        rows = inner[block] - share[block]
        residual[:, block] -= 2 * scores @ rows.T
        leverage[block] = 2 * np.einsum("rd,rd->r", rows, readout[block])
    counts = np.maximum(np.round(weights[sampled] / weights[sampled].min()), 1)
    leverage = np.minimum(leverage[sampled], MAX_LEVERAGE)
    variance = _compute_variance(readout, np.flatnonzero(sampled), residual[:, sampled], leverage, counts)
    free = min(counts.sum() - 1, max(half - d + 1, 1))
    return _scale_by_quantile(variance, free)


def _compute_variance(
    readout: np.ndarray, pairs: np.ndarray, residual: np.ndarray, leverage: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Return variances (n, d) of the sum over pairs of readout (R, d) times residual (n, p); pairs (p,): rows of
    `readout`; counts (p,): samples of each."""
    total = counts.sum()
    # Without one of its c samples a pair retains 1 - 1/c of its leverage.
    residual = residual / (1 - leverage / counts) / counts
    d = readout.shape[1]
    mean, square = np.zeros((2, len(residual), d))
    with limit_to_one(d * residual.size):
        for block in _split_pairs(len(pairs), d):
            rows = readout[pairs[block]]
            mean += (residual[:, block] * counts[block]) @ rows
            square += (residual[:, block] ** 2 * counts[block]) @ rows**2
    mean /= total
    return total / (total - 1) * np.maximum(square - total * mean**2, 0.0)


def _split_pairs(pairs: int, d: int) -> Iterator[slice]:
    """Yield the pairs in blocks, because intermediate arrays have half the size of the weights."""
    step = max(1, MAX_CELLS // d)
    return (slice(start, min(start + step, pairs)) for start in range(0, pairs, step))


def sample_shapley_uncertainty(
    masks: np.ndarray, order: np.ndarray, values: np.ndarray, antithetic: bool = False
) -> Uncertainty:
    """Return standard errors of `sample_shapley` from the variance over its permutations, or antithetic pairs.

    masks: (K, d) bool, the prefixes of the permutations and both ends; order: (P, d), permutations of the features in
    sampled order, each permutation before its reverse; values: (n, K). NaN below MIN_PERMUTATIONS, or as many pairs.
    """
    values = np.atleast_2d(np.asarray(values, dtype=np.float64))
    (count, d), n = order.shape, len(values)
    marginals = single = _compute_marginals(masks, order, values)
    if antithetic:
        marginals = (marginals[:, 0 : count // 2 * 2 : 2] + marginals[:, 1::2]) / 2
    free = marginals.shape[1] - 1
    if min(free + 1, (len(masks) - 2) // (d - 1)) < MIN_PERMUTATIONS:
        return Uncertainty(np.full((n, d), np.nan), np.full(n, np.nan))
    variance = marginals.var(axis=1, ddof=1) / (free + 1)
    if antithetic and count % 2:  # the last permutation has no reverse, whose errors would cancel its own
        variance = ((count - 1) / count) ** 2 * variance + single.var(axis=1, ddof=1) / count**2
    prior = variance.mean(axis=1, keepdims=True)
    return _scale_by_quantile((free * variance + FEATURE_FREEDOM * prior) / (free + FEATURE_FREEDOM), free)


def _compute_marginals(masks: np.ndarray, order: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the marginal contribution (n, P, d) of each feature in each permutation."""
    count, d = order.shape
    rank = order.argsort(axis=1)
    prefix = (rank[:, None, :] < np.arange(d + 1)[:, None]).reshape(-1, d)
    first, inverse = find_unique_rows(np.concatenate([masks, prefix]))
    if first.max() >= len(masks):
        raise ShapelineError("sample_shapley: the coalitions are not those of the permutations; give the same seed.")
    row = first[inverse[len(masks) :]].reshape(count, d + 1)
    steps = values[:, row[:, 1:]] - values[:, row[:, :-1]]
    return np.take_along_axis(steps, rank[None], axis=2)


def _scale_by_quantile(variance: np.ndarray, free: float) -> Uncertainty:
    """Return standard errors scaled for intervals of Student's t with `free` degrees of freedom; unscaled errors."""
    return Uncertainty(np.sqrt(variance) * _compute_quantile_ratio(free), np.sqrt(variance.mean(axis=1)))


def _compute_quantile_ratio(free: float | np.ndarray) -> float | np.ndarray:
    """Return the 97.5 % quantile of Student's t with `free` degrees of freedom over that of the normal distribution."""
    from scipy.special import stdtrit  # scipy.stats takes half a second

    return stdtrit(free, QUANTILE) / stdtrit(np.inf, QUANTILE)


def read_kernel_shap(design: Design, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores (n, d) of a `kernel_shap` design and their standard error, None if unknown."""
    return design.attribute(values), drop_unknown(kernel_shap_uncertainty(design, values).standard_error)


def read_sample_shapley(design: Design, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores (n, d) of a `sample_shapley` design and their standard error, 0 if exact, None if unknown."""
    scores, order = design.attribute(values), design.sample
    if order is None:
        return scores, np.zeros(scores.shape)
    antithetic = len(order) > 1 and bool((order[1] == order[0][::-1]).all()) and design.d > 2
    return scores, drop_unknown(sample_shapley_uncertainty(design.masks, order, values, antithetic).standard_error)


def read_sample_interactions(
    design: Design, values: np.ndarray, index: str = "k_sii"
) -> tuple[np.ndarray, None, np.ndarray | None]:
    """Return main effects (n, d) of a `sample_interactions` design, None, and the standard error of its pairs.

    It is that of a mean of terms, with a variance partly pooled over all pairs; 0 where all coalitions are evaluated,
    None where every pair has one term."""
    scores, pairs = design.attribute(values), design.attribute_pairs(values)
    if design.sample is None:
        return scores, None, np.zeros(pairs.shape)
    number, *terms = design.sample
    count = np.bincount(number, minlength=pairs.shape[1])
    free = count - 1
    if not free.any():
        return scores, None, None
    term = values[:, terms[0]] - values[:, terms[1]] - values[:, terms[2]] + values[:, terms[3]]
    square = ((term - pairs[:, number]) * weigh_terms(number, design.d, index)) ** 2
    sums = np.add.reduceat(square[:, np.argsort(number, kind="stable")], np.r_[0, count.cumsum()[:-1]], axis=1)
    prior = sums.sum(axis=1, keepdims=True) / free.sum()
    variance = (sums + PAIR_FREEDOM * prior) / (free + PAIR_FREEDOM) / count
    return scores, None, np.sqrt(variance) * _compute_quantile_ratio(np.minimum(free + PAIR_FREEDOM, free.sum()))


def drop_unknown(standard_error: np.ndarray) -> np.ndarray | None:
    """Return the standard error, or None if all of it is NaN."""
    return None if np.isnan(standard_error).all() else standard_error
