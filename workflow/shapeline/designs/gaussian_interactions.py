"""Interactions of pairs from a Gaussian process over coalitions: its even orders, as Shapley values are its odd ones.

A pair's k-SII weighs the coefficient of every coalition T of even size that holds it by 4 / (|T| - 1), its FSII by
12 / ((|T| - 1) (|T| + 1)), and sees nothing of odd ones, so that the mean (v(S) + v(complement))/2 of
complementary pairs is all it needs. Both are 4 times the integral of t^(|T| - 2) over [0, 1], of FSII with the density
1.5 (1 - t^2). Stacked over instances: rows (n, m, d) of +-1, even (n, m). Covariances are relative to a coalition's
prior variance.
"""

from functools import cache

import numpy as np

from shapeline.designs import gaussian_process
from shapeline.designs.design import Design, check_choice, check_integer, log_factorial
from shapeline.designs.gaussian_fit import JITTER, MIN_PAIRS, even_relevance, log_nodes, nodes, relevance_of, whiten
from shapeline.designs.gaussian_pairs import draw_pairs, find_pairs
from shapeline.designs.gaussian_process import CELLS, MANY, MOST_COALITIONS, SUBSET, defer_readout, read_out
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

INDICES = ("k_sii", "fsii")  # that depend only on even orders
REACH = (0.03, 0.1, 0.3, 0.8)  # a quarter of the sum of the relevances: near 0, only pairs
POWERS = (0, 1, 2)  # of a feature's size in pairs of the last fit, to which relevances are proportional
# Features, and pairs of coalitions, up to which uncertainty is computed from d^2 m / 2 numbers per instance.
MAX_D_WITH_ERRORS, MAX_SOLVED_PAIRS = 48, 2048
VARIANCE_FACTOR = 1.1  # for variance outside the candidate fits; calibrated on games of seven kinds
REST = (1e-6, 1e-3, 3e-2, 0.3)  # variance outside the prior, relative to a coalition's


def gp_interactions_minimum(d: int) -> int:
    """Return the smallest budget of `gp_interactions`: both ends, each feature alone and each left out."""
    return min(2 * d + 2, 2**d)


def gp_interactions(d: int, budget: int, seed: int = 0, index: str = "k_sii") -> Design:
    """Each feature alone and random pairs, whose readout follows from the values: `read_stack` has it, the
    design none. Pairs that are chosen for Shapley values, of odd orders, tell less of even ones than random pairs."""
    check_choice("gp_interactions", "index", index, INDICES)
    d, budget = check_integer("gp_interactions", "d", d, 1), check_integer("gp_interactions", "budget", budget, 0)
    check_feature_count("gp_interactions", d, MAX_PAIRED_FEATURES, "coarser features")
    if budget > MOST_COALITIONS and not (d <= MAX_EXACT_FEATURES and budget >= 2**d):
        raise ShapelineError(
            f"gp_interactions: {budget} coalitions need a matrix of {budget // 2} rows and columns; give at most "
            f"{MOST_COALITIONS}, or choose sample_interactions."
        )
    if budget < (least := gp_interactions_minimum(d)):
        raise ShapelineError(
            f"gp_interactions: budget is {budget} evaluations and the minimum for d = {d} is {least}; raise it."
        )
    return defer_readout(draw_pairs(d, budget, seed, spread=False))


def read_stack(masks: np.ndarray, values: np.ndarray, index: str = "k_sii") -> tuple[np.ndarray | None, ...]:
    """Own parts (n, d), their uncertainty, pairs (n, d (d-1) / 2), theirs; from masks (n, K, d) and values (n, K).

    Own parts are the Shapley values of `gp_shapley` less half of the pairs: all add up to v(N) - v(empty). Exact where
    all coalitions are given, up to d = 16. An uncertainty is None where pairs of coalitions are too few to tell or
    features too many, and of the own parts of FSII.
    """
    n, count, d = masks.shape
    if d <= MAX_EXACT_FEATURES and count == 2**d:
        whole = np.empty((n, count))
        np.put_along_axis(whole, masks @ (1 << np.arange(d)), values, axis=1)
        exact = shapley_interactions(d, index)
        found = exact.attribute_pairs(whole)
        return exact.attribute(whole), np.zeros((n, d)), found, np.zeros(found.shape)
    block = int(np.clip(CELLS // (count // 2 + d) ** 2, 1, 64))
    parts = [slice(start, start + block) for start in range(0, n, block)]
    made = (_block(masks[part], values[part], index) for part in parts)
    pairs, spread = (np.concatenate(one) for one in zip(*made, strict=True))
    shapley = read_out(masks, values)
    # A feature's k-SII pairs add up to what it adds as the last less what it adds as the first, which are asked.
    own = shapley.standard_error if index == "k_sii" else None
    return shapley.scores - build_symmetric(pairs, d).sum(axis=1) / 2, own, pairs, drop_unknown(spread)


def read_outputs(masks: np.ndarray, values: np.ndarray, index: str = "k_sii") -> tuple[np.ndarray | None, ...]:
    """The same of outputs of one game, by one estimator: that of their sum, or where this is constant of the output
    that varies most."""
    n, count, d = masks.shape
    if d <= MAX_EXACT_FEATURES and count == 2**d:
        return read_stack(masks, values, index)
    total = values.sum(axis=0)
    varies = np.ptp(values, axis=1)
    chosen = total if np.ptp(total) > 1e-9 * varies.max() else values[varies.argmax()]
    block = int(np.clip(CELLS // (count // 2 + d) ** 2, 1, 64))
    made = []
    for start in range(0, n, block):
        some = np.concatenate([chosen[None], values[start : start + block]])
        made.append([part[1:] for part in _block(np.repeat(masks[:1], len(some), axis=0), some, index, together=True)])
    pairs, spread = (np.concatenate(one) for one in zip(*made, strict=True))
    scores, own = gaussian_process.read_outputs(masks[:1], values)
    return (
        scores - build_symmetric(pairs, d).sum(axis=1) / 2,
        own if index == "k_sii" else None,
        pairs,
        drop_unknown(spread),
    )


def _block(masks: np.ndarray, values: np.ndarray, index: str, together: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (n, d (d-1) / 2) and their standard deviations, NaN for many features; together: one estimator."""
    found = find_pairs(masks)
    there = slice(0, found.rows.shape[1] - found.lone)
    rows = found.rows[:, there]
    even = np.take_along_axis(values, found.first[:, there], 1) + np.take_along_axis(values, found.second[:, there], 1)
    even = even / 2 - even[:, :1] / 2
    size = np.abs(even).max(axis=1, keepdims=True)
    size = np.where(size > 0, size, 1.0)
    n, m, d = rows.shape
    with limit_to_one(n * m**2 * d):
        found, variance = _fit_pairs(rows, even / size, index, slice(0, 1) if together else slice(None))
    return found * size, np.sqrt(variance) * size


def _fit_pairs(rows: np.ndarray, even: np.ndarray, index: str, choosing: slice) -> tuple[np.ndarray, np.ndarray]:
    """Pairs and their variances (n, d (d-1) / 2) for even parts of scale 1: equal relevances, then in proportion to
    what features do in pairs; the mean of all by their likelihoods, whose disagreement is in the variances. choosing:
    the instances whose values decide, all or the first."""
    n, m, d = rows.shape
    some = slice(None)
    if m > MANY:
        some = np.r_[0, np.sort(np.random.default_rng(0).choice(np.arange(1, m), SUBSET - 1, replace=False))]
    values, fitted, spread, pairs = [], [], [], enumerate_pairs(d)
    for power in POWERS:
        tried = []
        for reach in REACH:
            relevance = np.full((n, d), even_relevance(d, reach))
            if fitted:
                relevance = relevance_of(build_symmetric(np.abs(fitted[-1][choosing]), d).sum(axis=2) ** power, reach)
                relevance = np.broadcast_to(relevance, (n, d))
            tried.append((relevance, *_best_rest(rows[:, some], even[:, some], relevance)))
        best, each = np.argmin([value[choosing] for *_, value in tried], axis=0), np.arange(n)[choosing]
        relevance, rest, value = (
            np.broadcast_to(np.array([one[part] for one in tried])[best, each], (n, *shape))
            for part, shape in enumerate(((d,), (), ()))
        )
        fitted.append(_posterior(rows, even, relevance, rest, index)[:, *pairs])
        is_solved = MIN_PAIRS * d < m <= MAX_SOLVED_PAIRS and d <= MAX_D_WITH_ERRORS
        spread.append(_variance(rows, even, relevance, rest, index) if is_solved else np.full(fitted[-1].shape, np.nan))
        values.append(value)
    weight = np.exp(-0.5 * (np.array(values) - np.min(values, axis=0)))
    weight = (weight / weight.sum(axis=0))[:, :, None]
    mean = (weight * fitted).sum(axis=0)
    wider = VARIANCE_FACTOR * m / max(m - d, 1)  # relevances use up as many pairs of coalitions as features
    return mean, wider * (weight * (np.array(spread) + (np.array(fitted) - mean) ** 2)).sum(axis=0)


def _correlation(rows: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the prior correlation (n, m, m) of even parts without their constant, and the log of its variance."""
    weight = np.arctanh(relevance)
    matrix = (rows * weight[:, None, :]) @ rows.swapaxes(1, 2)
    base = 0.5 * np.log1p(-(relevance**2)).sum(axis=1)
    # cosh(M) exp(base) - 1, the constant's variance taken off: by expm1, for relevances near 0 leave little else.
    whole = np.expm1(base[:, None, None] + matrix) / 2 + np.expm1(base[:, None, None] - matrix) / 2
    scale = whole[:, 0, 0].copy()
    return whole / scale[:, None, None], np.log(scale)


def _best_rest(rows: np.ndarray, even: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the most likely rest (n,) and its criterion (n,), -2 log likelihood, scale and mean profiled out."""
    base, _ = _correlation(rows, relevance)
    n, m, _ = base.shape
    each, values = np.arange(m), []
    for rest in REST:
        matrix = base.copy()
        matrix[:, each, each] += rest + JITTER
        white, ones, log_determinant = whiten(matrix, even, np.ones((n, m, 1)))
        ones = ones[:, 0]
        mean = (white * ones).sum(axis=1) / (ones**2).sum(axis=1)
        left = ((white - mean[:, None] * ones) ** 2).sum(axis=1)
        values.append(m * np.log(left / m + 1e-300) + log_determinant)
    return np.array(REST)[np.argmin(values, axis=0)], np.min(values, axis=0)


def _posterior(
    rows: np.ndarray, even: np.ndarray, relevance: np.ndarray, rest: np.ndarray, index: str = "k_sii"
) -> np.ndarray:
    """Return the posterior mean of the interactions (n, d, d), 0 on the diagonal."""
    matrix, log_variance = _correlation(rows, relevance)
    n, m, d = rows.shape
    each = np.arange(m)
    matrix[:, each, each] += rest[:, None] + JITTER
    both = np.linalg.solve(matrix, np.stack([even, np.ones((n, m))], axis=2))
    mean = both[:, :, 0].sum(axis=1) / both[:, :, 1].sum(axis=1)
    weight = both[:, :, 0] - mean[:, None] * both[:, :, 1]
    found = _build_prior_covariances(rows, weight, relevance, log_variance, index)
    found += rest[:, None, None] * _build_rest_covariances(rows, weight, index)
    found[:, np.arange(d), np.arange(d)] = 0.0
    return found


def _variance(
    rows: np.ndarray, even: np.ndarray, relevance: np.ndarray, rest: np.ndarray, index: str = "k_sii"
) -> np.ndarray:
    """Return posterior variances (n, d (d-1) / 2) of the interactions, with fitted scale and mean of the values."""
    matrix, log_variance = _correlation(rows, relevance)
    n, m, d = rows.shape
    each, (first, second) = np.arange(m), enumerate_pairs(d)
    matrix[:, each, each] += rest[:, None] + JITTER
    cross = _cross(rows, relevance, log_variance, index) + rest[:, None, None] * _rest_of(rows, index)
    prior = _prior_variance(relevance, log_variance, index)[:, first, second] + rest[:, None] * _rest_variance(d, index)
    white, seen, _ = whiten(matrix, even, np.concatenate([np.ones((n, m, 1)), cross], axis=2))
    ones, seen = seen[:, 0], seen[:, 1:]
    top = (ones**2).sum(axis=1)
    left = white - ((white * ones).sum(axis=1) / top)[:, None] * ones
    scale = (left**2).sum(axis=1) / (m - 1) + 1e-300
    known = (seen**2).sum(axis=2) - (seen @ ones[..., None])[..., 0] ** 2 / top[:, None]
    return np.maximum(prior - known, 0.0) * scale[:, None]


@cache
def _rule(d: int, index: str) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of an interaction's integral over [0, 1], for even polynomials of degree d - 2."""
    if index == "k_sii":
        return nodes(d)
    place, weight = nodes(d + 2)
    return place, 1.5 * weight * (1 - place**2)


@cache
def _rule_of_two(d: int, index: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of the double integral of f(s t), f even: the density of s t is -log u, of FSII
    -2.25 ((1 + u^2) log u + 1 - u^2)."""
    if index == "k_sii":
        return log_nodes(d)
    (place, weight), (other, flat) = log_nodes(d + 2), nodes(d + 2)
    return np.r_[place, other], 2.25 * np.r_[weight * (1 + place**2), -flat * (1 - other**2)]


def _cross(rows: np.ndarray, relevance: np.ndarray, log_variance: np.ndarray, index: str) -> np.ndarray:
    """Return covariances (n, m, d (d-1) / 2) of even parts and interactions, as in `_by_prior`."""
    first, second = enumerate_pairs(rows.shape[2])
    total = 0.0
    for place, part in zip(*_rule(rows.shape[2], index), strict=True):
        for sign in (1, -1):
            scaled = sign * place * relevance
            base = 0.5 * np.log1p(-(scaled**2)).sum(axis=1) - log_variance
            product = part * np.exp(base[:, None] + (rows @ np.arctanh(scaled)[..., None])[..., 0])
            without = (rows - scaled[:, None, :]) / (1 - scaled**2)[:, None, :]
            total = total + product[..., None] * without[..., first] * without[..., second]
    return 2 * (relevance[:, first] * relevance[:, second])[:, None, :] * total


def _rest_of(rows: np.ndarray, index: str) -> np.ndarray:
    """Return the same (n, m, d (d-1) / 2) where each pair of coalitions has an even part of its own."""
    d = rows.shape[2]
    first, second = enumerate_pairs(d)
    size = np.round((rows.sum(axis=2) + d) / 2).astype(int)
    share = 2 * derivative_weights(d, index)  # at a coalition and at the complement of the pair with it
    held = (rows[..., first] + rows[..., second] + 2).astype(int) // 2  # of the two
    other = size[..., None] - held
    there = (other >= 0) & (other <= d - 2)
    return np.where(there, np.where(held == 1, -1.0, 1.0) * share[np.clip(other, 0, d - 2)], 0.0)


def _rest_variance(d: int, index: str) -> float:
    """Return the variance of an interaction if every pair of coalitions has an independent even part of variance 1."""
    s = np.arange(d - 1)
    number = np.exp(log_factorial(d - 2) - log_factorial(s) - log_factorial(d - 2 - s))
    return float(8 * (number * derivative_weights(d, index) ** 2).sum())


def _prior_variance(relevance: np.ndarray, log_variance: np.ndarray, index: str) -> np.ndarray:
    """Return the prior variance (n, d, d) of interactions: 16 r_i r_j times a double integral of the even part."""
    total = 0.0
    for place, part in zip(*_rule_of_two(relevance.shape[1], index), strict=True):
        for sign in (1, -1):
            scaled = sign * place * relevance
            product = part * np.exp(np.log1p(scaled).sum(axis=1) - log_variance)
            total = total + product[:, None, None] / ((1 + scaled)[:, :, None] * (1 + scaled)[:, None, :])
    return 8 * relevance[:, :, None] * relevance[:, None, :] * total


def _build_prior_covariances(
    rows: np.ndarray, weight: np.ndarray, relevance: np.ndarray, log_variance: np.ndarray, index: str
) -> np.ndarray:
    """Return covariances of interactions and even parts, times the weights of these: (n, d, d).

    4 r_i r_j z_i z_j times the integral over t in [0, 1] of the even part of prod_{k != i, j} (1 + t r_k z_k): products
    of matrices at the nodes of the rule, in which 1 / (1 + s z) is (1 - s z) / (1 - s^2).
    """
    total = 0.0
    for place, part in zip(*_rule(rows.shape[2], index), strict=True):
        for sign in (1, -1):
            scaled = sign * place * relevance
            base = 0.5 * np.log1p(-(scaled**2)).sum(axis=1) - log_variance
            product = np.exp(base[:, None] + (rows @ np.arctanh(scaled)[..., None])[..., 0])
            without = (rows - scaled[:, None, :]) / (1 - scaled**2)[:, None, :]
            total = total + part * (without * (weight * product)[..., None]).swapaxes(1, 2) @ without
    return 2 * relevance[:, :, None] * relevance[:, None, :] * total


def _build_rest_covariances(rows: np.ndarray, weight: np.ndarray, index: str) -> np.ndarray:
    """Return the same if each pair of coalitions has its own even part: the weights of the definition, (n, d, d)."""
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
