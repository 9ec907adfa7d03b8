"""Interactions of pairs by a Gaussian process over coalitions: they depend on its even orders, Shapley values on its
odd ones.

The k-SII of a pair weights the coefficient of every coalition T of even size with the pair by 4 / (|T| - 1), its FSII
by 12 / ((|T| - 1) (|T| + 1)), and those of odd size by 0. The means (v(S) + v(complement))/2 of complementary pairs
are thus sufficient. Both are 4 times the integral of t^(|T| - 2) over [0, 1], for FSII with the density 1.5 (1 - t^2).
Stacked over instances: rows (n, m, d) of +-1, even (n, m). Covariances are relative to a coalition's prior variance.
"""

from functools import cache

import numpy as np

from shapeline.designs import gaussian_fit as fitting
from shapeline.designs import gaussian_process
from shapeline.designs.design import Design, check_budget, check_choice, check_integer, log_factorial
from shapeline.designs.gaussian_pairs import draw_pairs, find_pairs
from shapeline.designs.gaussian_process import MAX_COALITIONS, defer_readout, read_out
from shapeline.designs.interactions import (
    MAX_EXACT_FEATURES,
    MAX_PAIRED_FEATURES,
    build_symmetric,
    check_feature_count,
    derivative_weights,
    enumerate_pairs,
    shapley_interactions,
)
from shapeline.designs.uncertainty import drop_unknown
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one

INDICES = ("k_sii", "fsii")  # these depend only on even orders
REACH = (0.03, 0.1, 0.3, 0.8)  # candidates for a quarter of the sum of the relevances; near 0, only pairs
POWERS = (0, 1, 2)  # relevances are proportional to these powers of a feature's total interaction in the last fit
# Maximum features and pairs of coalitions for the uncertainty, which takes d^2 m / 2 numbers per instance.
MAX_D_WITH_ERRORS, MAX_SOLVED_PAIRS = 48, 2048
VARIANCE_FACTOR = 1.1  # for variance outside the candidate fits; calibrated on games of seven kinds
REST = (1e-6, 1e-3, 3e-2, 0.3)  # candidates for the variance outside the prior, relative to a coalition's


def gp_interactions_minimum(d: int) -> int:
    """Return the smallest budget of `gp_interactions`: both ends, each single feature and its complement."""
    return min(2 * d + 2, 2**d)


def gp_interactions(d: int, budget: int, seed: int = 0, index: str = "k_sii") -> Design:
    """Return single features and random pairs of coalitions; `read_stack` estimates, as the readout depends on values.

    Pairs selected for Shapley values, which have odd orders, are less informative about even orders than random pairs.
    """
    check_choice("gp_interactions", "index", index, INDICES)
    d, budget = check_integer("gp_interactions", "d", d, 1), check_integer("gp_interactions", "budget", budget, 0)
    check_feature_count("gp_interactions", d, MAX_PAIRED_FEATURES, "coarser features")
    if budget > MAX_COALITIONS and not (d <= MAX_EXACT_FEATURES and budget >= 2**d):
        raise ShapelineError(
            f"gp_interactions: {budget} coalitions need a matrix of {budget // 2} rows and columns; give at most "
            f"{MAX_COALITIONS}, or choose sample_interactions."
        )
    d, budget = check_budget("gp_interactions", d, budget, gp_interactions_minimum, seed)
    return defer_readout(draw_pairs(d, budget, seed, spread=False))


def read_stack(masks: np.ndarray, values: np.ndarray, index: str = "k_sii") -> tuple[np.ndarray | None, ...]:
    """Return main effects (n, d), their standard errors, pairs (n, d (d-1) / 2) and theirs from values (n, K) of masks.

    Main effects are the Shapley values of `gp_shapley` less half of the pairs: all add up to v(N) - v(empty). Both are
    exact for all coalitions of up to 16 features. Standard errors are None for too few pairs of coalitions or too many
    features, and for main effects of FSII.
    """
    n, count, d = masks.shape
    if d <= MAX_EXACT_FEATURES and count == 2**d:
        table = np.empty((n, count))
        np.put_along_axis(table, masks @ (1 << np.arange(d)), values, axis=1)
        exact = shapley_interactions(d, index)
        found = exact.attribute_pairs(table)
        return exact.attribute(table), np.zeros((n, d)), found, np.zeros(found.shape)
    block = int(np.clip(gaussian_process.MAX_CELLS // (count // 2 + d) ** 2, 1, 64))
    parts = [slice(start, start + block) for start in range(0, n, block)]
    blocks = (_fit(masks[part], values[part], index) for part in parts)
    pairs, errors = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    shapley = read_out(masks, values)
    # A feature's k-SII pairs add up to its last marginal contribution less its first, both of which are evaluated.
    main_errors = shapley.standard_error if index == "k_sii" else None
    return shapley.scores - build_symmetric(pairs, d).sum(axis=1) / 2, main_errors, pairs, drop_unknown(errors)


def read_outputs(masks: np.ndarray, values: np.ndarray, index: str = "k_sii") -> tuple[np.ndarray | None, ...]:
    """Return the same for outputs of one game, with one estimator: that of their sum, or if the sum is constant, of the
    output of the largest range."""
    n, count, d = masks.shape
    if d <= MAX_EXACT_FEATURES and count == 2**d:
        return read_stack(masks, values, index)
    total = values.sum(axis=0)
    varies = np.ptp(values, axis=1)
    chosen = total if np.ptp(total) > 1e-9 * varies.max() else values[varies.argmax()]
    block = int(np.clip(gaussian_process.MAX_CELLS // (count // 2 + d) ** 2, 1, 64))
    blocks = []
    for start in range(0, n, block):
        outputs = np.concatenate([chosen[None], values[start : start + block]])
        copies = np.repeat(masks[:1], len(outputs), axis=0)
        blocks.append([part[1:] for part in _fit(copies, outputs, index, shared=True)])
    pairs, errors = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    scores, main_errors = gaussian_process.read_outputs(masks[:1], values)
    return (
        scores - build_symmetric(pairs, d).sum(axis=1) / 2,
        main_errors if index == "k_sii" else None,
        pairs,
        drop_unknown(errors),
    )


def _fit(masks: np.ndarray, values: np.ndarray, index: str, shared: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (n, d (d-1) / 2) and their standard deviations, NaN for many features; shared: one estimator."""
    pairs = find_pairs(masks)
    complete = slice(0, pairs.rows.shape[1] - pairs.lone)
    rows = pairs.rows[:, complete]
    even = sum(np.take_along_axis(values, part[:, complete], 1) for part in (pairs.first, pairs.second))
    even = even / 2 - even[:, :1] / 2
    scale = np.abs(even).max(axis=1, keepdims=True)
    scale = np.where(scale > 0, scale, 1.0)
    n, m, d = rows.shape
    with limit_to_one(n * m**2 * d):
        estimates, variance = _fit_pairs(rows, even / scale, index, slice(0, 1) if shared else slice(None))
    return estimates * scale, np.sqrt(variance) * scale


def _fit_pairs(rows: np.ndarray, even: np.ndarray, index: str, choosing: slice) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs and their variances (n, d (d-1) / 2) for even parts of scale 1: the mean of fits with equal
    relevances and relevances by total interactions, weighted by likelihood; variances include their disagreement.
    choosing: instances whose likelihood selects relevances, all or the first."""
    n, m, d = rows.shape
    subset = gaussian_process.draw_subset(m) if m > gaussian_process.MAX_FULL_PAIRS else slice(None)
    values, fitted, variances, pairs = [], [], [], enumerate_pairs(d)
    for power in POWERS:
        candidates = []
        for reach in REACH:
            relevance = np.full((n, d), fitting.compute_equal_relevance(d, reach))
            if fitted:
                total = build_symmetric(np.abs(fitted[-1][choosing]), d).sum(axis=2)
                relevance = fitting.compute_relevance(total**power, reach)
                relevance = np.broadcast_to(relevance, (n, d))
            candidates.append((relevance, *_select_rest(rows[:, subset], even[:, subset], relevance)))
        best, instances = np.argmin([value[choosing] for *_, value in candidates], axis=0), np.arange(n)[choosing]
        relevance, rest, value = (
            np.broadcast_to(np.array([candidate[part] for candidate in candidates])[best, instances], (n, *shape))
            for part, shape in enumerate(((d,), (), ()))
        )
        fit = rows, even, relevance, rest, index
        fitted.append(_compute_posterior(*fit)[:, *pairs])
        is_solved = fitting.MIN_PAIRS * d < m <= MAX_SOLVED_PAIRS and d <= MAX_D_WITH_ERRORS
        variances.append(_compute_variance(*fit) if is_solved else np.full(fitted[-1].shape, np.nan))
        values.append(value)
    weight = np.exp(-0.5 * (np.array(values) - np.min(values, axis=0)))
    weight = (weight / weight.sum(axis=0))[:, :, None]
    mean = (weight * fitted).sum(axis=0)
    factor = VARIANCE_FACTOR * m / max(m - d, 1)  # fitted relevances take d degrees of freedom
    return mean, factor * (weight * (np.array(variances) + (np.array(fitted) - mean) ** 2)).sum(axis=0)


def _correlate(rows: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the prior correlation (n, m, m) of even parts without their constant, and the log of its variance."""
    weight = np.arctanh(relevance)
    matrix = (rows * weight[:, None, :]) @ rows.swapaxes(1, 2)
    base = 0.5 * np.log1p(-(relevance**2)).sum(axis=1)
    # cosh(M) exp(base) - 1, without the constant's variance; by expm1, against cancellation for relevances near 0.
    covariance = np.expm1(base[:, None, None] + matrix) / 2 + np.expm1(base[:, None, None] - matrix) / 2
    scale = covariance[:, 0, 0].copy()
    return covariance / scale[:, None, None], np.log(scale)


def _select_rest(rows: np.ndarray, even: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the most likely rest (n,) and its criterion (n,), -2 log likelihood, scale and mean profiled out."""
    base, _ = _correlate(rows, relevance)
    n, m, _ = base.shape
    diagonal, values = np.arange(m), []
    for rest in REST:
        matrix = base.copy()
        matrix[:, diagonal, diagonal] += rest + fitting.JITTER
        white, ones, log_determinant = fitting.whiten(matrix, even, np.ones((n, m, 1)))
        ones = ones[:, 0]
        mean = (white * ones).sum(axis=1) / (ones**2).sum(axis=1)
        residual = ((white - mean[:, None] * ones) ** 2).sum(axis=1)
        values.append(m * np.log(residual / m + 1e-300) + log_determinant)
    return np.array(REST)[np.argmin(values, axis=0)], np.min(values, axis=0)


def _compute_posterior(
    rows: np.ndarray, even: np.ndarray, relevance: np.ndarray, rest: np.ndarray, index: str = "k_sii"
) -> np.ndarray:
    """Return the posterior mean of the interactions (n, d, d), 0 on the diagonal."""
    matrix, log_variance = _correlate(rows, relevance)
    n, m, d = rows.shape
    diagonal = np.arange(m)
    matrix[:, diagonal, diagonal] += rest[:, None] + fitting.JITTER
    solved = np.linalg.solve(matrix, np.stack([even, np.ones((n, m))], axis=2))
    mean = solved[:, :, 0].sum(axis=1) / solved[:, :, 1].sum(axis=1)
    weight = solved[:, :, 0] - mean[:, None] * solved[:, :, 1]
    found = _build_prior_covariances(rows, weight, relevance, log_variance, index)
    found += rest[:, None, None] * _build_rest_covariances(rows, weight, index)
    found[:, np.arange(d), np.arange(d)] = 0.0
    return found


def _compute_variance(
    rows: np.ndarray, even: np.ndarray, relevance: np.ndarray, rest: np.ndarray, index: str = "k_sii"
) -> np.ndarray:
    """Return posterior variances (n, d (d-1) / 2) of the interactions, with fitted scale and mean of the values."""
    matrix, log_variance = _correlate(rows, relevance)
    n, m, d = rows.shape
    diagonal, (first, second) = np.arange(m), enumerate_pairs(d)
    matrix[:, diagonal, diagonal] += rest[:, None] + fitting.JITTER
    cross = _prior_cross(rows, relevance, log_variance, index) + rest[:, None, None] * _rest_cross(rows, index)
    prior = _prior_variance(relevance, log_variance, index)[:, first, second] + rest[:, None] * _rest_variance(d, index)
    white, white_cross, _ = fitting.whiten(matrix, even, np.concatenate([np.ones((n, m, 1)), cross], axis=2))
    ones, white_cross = white_cross[:, 0], white_cross[:, 1:]
    top = (ones**2).sum(axis=1)
    residual = white - ((white * ones).sum(axis=1) / top)[:, None] * ones
    scale = (residual**2).sum(axis=1) / (m - 1) + 1e-300
    explained = (white_cross**2).sum(axis=2) - (white_cross @ ones[..., None])[..., 0] ** 2 / top[:, None]
    return np.maximum(prior - explained, 0.0) * scale[:, None]


@cache
def _build_rule(d: int, index: str) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of an interaction's integral over [0, 1], for even polynomials of degree d - 2."""
    if index == "k_sii":
        return fitting.build_nodes(d)
    points, weight = fitting.build_nodes(d + 2)
    return points, 1.5 * weight * (1 - points**2)


@cache
def _build_double_rule(d: int, index: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rule for the double integral of f(s t), f even: the density of s t is -log u, for FSII
    -2.25 ((1 + u^2) log u + 1 - u^2)."""
    if index == "k_sii":
        return fitting.build_log_nodes(d)
    (points, weight), (flat_points, flat) = fitting.build_log_nodes(d + 2), fitting.build_nodes(d + 2)
    return np.r_[points, flat_points], 2.25 * np.r_[weight * (1 + points**2), -flat * (1 - flat_points**2)]


def _prior_cross(rows: np.ndarray, relevance: np.ndarray, log_variance: np.ndarray, index: str) -> np.ndarray:
    """Return covariances (n, m, d (d-1) / 2) of even parts and interactions, as in `_build_prior_covariances`."""
    first, second = enumerate_pairs(rows.shape[2])
    total = 0.0
    for point, point_weight in zip(*_build_rule(rows.shape[2], index), strict=True):
        for sign in (1, -1):
            scaled = sign * point * relevance
            base = 0.5 * np.log1p(-(scaled**2)).sum(axis=1) - log_variance
            product = point_weight * np.exp(base[:, None] + (rows @ np.arctanh(scaled)[..., None])[..., 0])
            without = (rows - scaled[:, None, :]) / (1 - scaled**2)[:, None, :]
            total = total + product[..., None] * without[..., first] * without[..., second]
    return 2 * (relevance[:, first] * relevance[:, second])[:, None, :] * total


def _rest_cross(rows: np.ndarray, index: str) -> np.ndarray:
    """Return these covariances (n, m, d (d-1) / 2) if each pair of coalitions has an independent even part."""
    d = rows.shape[2]
    first, second = enumerate_pairs(d)
    size = np.round((rows.sum(axis=2) + d) / 2).astype(int)
    share = 2 * derivative_weights(d, index)  # for a coalition and its complement
    members = (rows[..., first] + rows[..., second] + 2).astype(int) // 2  # of the two
    others = size[..., None] - members
    valid = (others >= 0) & (others <= d - 2)
    return np.where(valid, np.where(members == 1, -1.0, 1.0) * share[np.clip(others, 0, d - 2)], 0.0)


def _rest_variance(d: int, index: str) -> float:
    """Return the variance of an interaction if every pair of coalitions has an independent even part of variance 1."""
    s = np.arange(d - 1)
    number = np.exp(log_factorial(d - 2) - log_factorial(s) - log_factorial(d - 2 - s))
    return float(8 * (number * derivative_weights(d, index) ** 2).sum())


def _prior_variance(relevance: np.ndarray, log_variance: np.ndarray, index: str) -> np.ndarray:
    """Return the prior variance (n, d, d) of interactions: 16 r_i r_j times a double integral of the even part."""
    total = 0.0
    for point, point_weight in zip(*_build_double_rule(relevance.shape[1], index), strict=True):
        for sign in (1, -1):
            scaled = sign * point * relevance
            product = point_weight * np.exp(np.log1p(scaled).sum(axis=1) - log_variance)
            total = total + product[:, None, None] / ((1 + scaled)[:, :, None] * (1 + scaled)[:, None, :])
    return 8 * relevance[:, :, None] * relevance[:, None, :] * total


def _build_prior_covariances(
    rows: np.ndarray, weight: np.ndarray, relevance: np.ndarray, log_variance: np.ndarray, index: str
) -> np.ndarray:
    """Return covariances (n, d, d) of interactions and even parts, times the weights of the even parts.

    4 r_i r_j z_i z_j times the integral over t in [0, 1] of the even part of prod_{k != i, j} (1 + t r_k z_k): products
    of matrices at the nodes of the rule, in which 1 / (1 + s z) is (1 - s z) / (1 - s^2).
    """
    total = 0.0
    for point, point_weight in zip(*_build_rule(rows.shape[2], index), strict=True):
        for sign in (1, -1):
            scaled = sign * point * relevance
            base = 0.5 * np.log1p(-(scaled**2)).sum(axis=1) - log_variance
            product = np.exp(base[:, None] + (rows @ np.arctanh(scaled)[..., None])[..., 0])
            without = (rows - scaled[:, None, :]) / (1 - scaled**2)[:, None, :]
            total = total + point_weight * (without * (weight * product)[..., None]).swapaxes(1, 2) @ without
    return 2 * relevance[:, :, None] * relevance[:, None, :] * total


def _build_rest_covariances(rows: np.ndarray, weight: np.ndarray, index: str) -> np.ndarray:
    """Return the same (n, d, d) if each pair of coalitions has an independent even part: weights of the definition."""
    d = rows.shape[2]
    size = np.round((rows.sum(axis=2) + d) / 2).astype(int)
    share = 2 * derivative_weights(d, index)

    def build_sized(s: np.ndarray) -> np.ndarray:
        return np.where((s >= 0) & (s <= d - 2), share[np.clip(s, 0, d - 2)], 0.0)

    inside, outside = rows > 0, rows < 0
    total = 0.0
    for first, second, sizes, sign in (
        (inside, inside, size - 2, 1),
        (outside, outside, size, 1),
        (inside, outside, size - 1, -1),
        (outside, inside, size - 1, -1),
    ):
        total = total + (first * (sign * weight * build_sized(sizes))[..., None]).swapaxes(1, 2) @ second.astype(float)
    return total
