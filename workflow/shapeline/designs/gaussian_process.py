"""Shapley values from a Gaussian process over coalitions (Rundel et al. 2026, Fumagalli et al. 2026)."""

import timeit
import warnings
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from shapeline.designs import gaussian_fit as fitting
from shapeline.designs.design import Design, log_factorial, solve_positive, view_diagonal
from shapeline.designs.gaussian_fit import Data, Extra, Fit
from shapeline.designs.gaussian_pairs import Pairs, draw_pairs, find_pairs, gp_shapley_minimum
from shapeline.designs.uncertainty import drop_unknown
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one

__all__ = ["ReadOut", "draw_pairs", "gp_shapley", "gp_shapley_minimum", "read_out"]

MAX_COALITIONS = 2**14
MAX_CELLS = 100_000  # of a block's covariance matrices together, so that they fit in the processor's cache
MAX_FULL_PAIRS = 700  # with more, a subset of the pairs selects the relevances
SUBSET_PAIRS = 256
SLOW_SECONDS = 20  # of linear algebra, from which a warning announces it
MIN_LEARNING_PAIRS = 3  # per feature, for relevances learned from a subset of the pairs, or beside single terms
# Terms beyond the prior: a nonlinear link, single interactions.
CURVE_VARIANCE = 0.1  # of the first wave, relative to a coalition's
WAVES = (4, 8)  # minimum and maximum of the number of waves: two, and one more per pair and feature
EFFECT_ROUNDS = 3
RIDGE = 1e-3  # of the least-squares curve, times the squared number of the wave
CURVE_PENALTY = 4.0
# Standard deviations of main effects that vary with the size, equal or in proportion to the relevances.
EQUAL_SLOPES, RELEVANT_SLOPES = (0.3, 1.0), 1.0
SLOPE_LENGTH = 0.8  # of their correlation, in the logarithm of the size of a pair's smaller member
SLOPE_TERMS = 5  # leading functions of the size
SLOPE_PENALTY = 4.0
PLAIN_SHARE = 0.3  # weight, for many pairs, of the variance without a curve or terms in the geometric mean
MIN_PLAIN_PAIRS = 4.0  # per feature, up to which this weight is 0
MAX_TERMS = 32  # single interactions of an instance
MAX_TRIPLE_FEATURES = 26  # most relevant features, whose triples are candidates
MIN_SCALE_SHARE = 1e-10  # share of the scale below which terms explain all values
MAX_TERM_VARIANCE = 1e3  # relative to a coalition's: rounding errors would dominate beyond
MIN_GAIN = 0.75  # in log likelihood per term, in units of the log of the number of candidates
# A factor by held-out pairs: errors at pairs that relevances are learned from are too small, 4 times at 4 d, 2 at 16 d.
FEW_FOLDS, FOLDS = 3, 5  # five make intervals of two-valued games less wide, but too narrow at 4 d
MIN_FOLD_PAIRS = 4  # per feature, from which there are five
HELD_OUT_STEPS = 6  # of the ascent without a fold
PRIOR_PAIRS = (4, 16)  # weight of a factor of 1, in pairs, for ratios above and below 1, which vary by chance
RESIDUAL_FACTOR = 1.25  # residuals have more main effects than the prior expects (median of 24 games)
HELD_OUT_SHARE = 0.8  # weight of the variance by these errors in the geometric mean, for two-valued games
POOLED_PAIRS = 3  # weight of the squared error of all sizes, in pairs, in that of one size


@dataclass(frozen=True, eq=False)
class ReadOut:
    """Scores (n, d) and their posterior standard deviations, standard_error (n, d), NaN for too few coalitions."""

    scores: np.ndarray
    standard_error: np.ndarray


def read_out(masks: np.ndarray, values: np.ndarray) -> ReadOut:
    """Return Shapley values and standard errors; the likelihood of an instance's values selects its relevances.

    masks: (K, d) bool, or (n, K, d) a sample per instance, of `draw_pairs`, in any order; values: (n, K). Scores sum to
    v(N) - v(empty); they are exact, with standard error 0, given all coalitions, and where the values are linear.
    """
    masks, values = np.asarray(masks), np.asarray(values, dtype=np.float64)
    masks = masks[None] if masks.ndim == 2 else masks
    if masks.dtype != bool or masks.ndim != 3 or values.ndim != 2 or masks.shape[1] != values.shape[1]:
        raise ShapelineError(
            f"gp_shapley: masks are {masks.dtype} of shape {masks.shape} and values of shape {values.shape}; "
            "give (K, d) or (n, K, d) bool and (n, K)."
        )
    n, (_, count, d) = len(values), masks.shape
    if len(masks) not in (1, n):
        raise ShapelineError(f"gp_shapley: {len(masks)} samples for {n} instances; give one, or one per instance.")
    _check_number(count, d)
    block = int(np.clip(MAX_CELLS // (count // 2 + d) ** 2, 1, 64))
    parts = [slice(start, start + block) for start in range(0, n, block)]
    values, power = _rescale(values)
    fitted = [_read_block(masks[part] if len(masks) > 1 else masks, values[part]) for part in parts]
    return ReadOut(*(np.ldexp(np.concatenate(part), power) for part in zip(*fitted, strict=True)))


@cache
def _announce_long(count: int, d: int) -> None:
    """Warn once of a long computation, by the speed of a product of matrices."""
    if count <= 2 * MAX_FULL_PAIRS:
        return
    speed = 3 * 2 * 512**3 / timeit.timeit("matrix @ matrix", globals={"matrix": np.ones((512, 512))}, number=3)
    seconds = (count / 2) ** 2 * (12 * d + 0.7 * count) / speed  # two fits, which take twice as long as their products
    if seconds > SLOW_SECONDS:
        long = f"gp_shapley: {count} evaluations of {d} features need about {seconds:.0f} s of linear algebra"
        warnings.warn(f"{long} per explanation; kernel_shap is faster.", stacklevel=3)


def _refuse_many(count: int, d: int) -> None:
    """Refuse more coalitions than a matrix can have."""
    if MAX_COALITIONS < count < 2 ** min(d, 31):
        raise ShapelineError(
            f"gp_shapley: {count} coalitions need a matrix of {count // 2} rows and columns; "
            f"give at most {MAX_COALITIONS}, or choose kernel_shap."
        )


def _check_number(count: int, d: int) -> None:
    """Refuse too many coalitions, and warn of a long computation and of too few to distinguish all features."""
    _refuse_many(count, d)
    _announce_long(count, d)
    if count < min(2 * d, 2 ** min(d, 31)):
        few = f"gp_shapley: {count} evaluations cannot distinguish all {d} features, so some have equal scores"
        warnings.warn(f"{few}; give {2 * d} or more.", stacklevel=3)


def _rescale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values (n, K) over powers of 2 that bring them near 1, as squares may overflow, and exponents (n, 1)."""
    power = np.frexp(np.abs(values).max(axis=1, keepdims=True))[1]
    return np.ldexp(values, -power), power


def _read_block(masks: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and standard errors (n, d) of a block of instances."""
    pairs = find_pairs(masks)
    rows = np.broadcast_to(pairs.rows, (len(values), *pairs.rows.shape[1:]))
    odd, noise = pairs.odd(values)
    size = np.abs(odd).max(axis=1, keepdims=True)
    size = np.where(size > 0, size, 1.0)
    with limit_to_one(rows.size * rows.shape[1]):
        rough = 16 * np.finfo(float).eps * np.abs(values).max(axis=1) / size[:, 0]
        scores, spread = _estimate(rows, odd / size, noise / size**2, rough)
    scores = scores + (2 * odd[:, :1] / size - scores.sum(axis=1, keepdims=True)) / rows.shape[2]
    return scores * size, np.sqrt(spread) * size


def _estimate(rows: np.ndarray, odd: np.ndarray, noise: np.ndarray, rough: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and their variances (n, d), for odd parts of scale 1, rounded to `rough` (n,)."""
    m, d = rows.shape[1:]
    if d <= 31 and m == 2 ** (d - 1) and not noise.any():
        return (odd[:, None, :] @ fitting.compute_rest_weights(rows))[:, 0], np.zeros((len(rows), d))
    fit = _fit(rows, odd, noise)
    return prefer_linear(rows, odd, rough, fit.scores, fit.variance)


def _fit(rows: np.ndarray, odd: np.ndarray, noise: np.ndarray, outputs: np.ndarray | None = None) -> Fit:
    """Return the posterior of odd parts (n, m) of scale 1 whose variances are `noise`; outputs: see Data."""
    noise = noise / np.maximum((odd**2).mean(axis=1, keepdims=True), 1e-300)  # as all covariances, over a coalition's
    fit = fit_subset_mixture if rows.shape[1] > MAX_FULL_PAIRS else fit_mixture
    return fit(Data.of(rows, odd, noise, outputs))


def read_outputs(masks: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores and their uncertainty (q, d) of q outputs, by one estimator; None if the pairs are too few to tell.

    masks: (1, K, d) of all outputs; values: (q, K). The sum of the outputs chooses the estimator, so that scores add up
    to the scores of the sum; where the sum is linear, as that of probabilities is, the least linear output does.
    """
    _check_number(*masks.shape[1:])
    pairs = find_pairs(masks[:1])
    values, power = _rescale(values.reshape(1, -1))
    values = values.reshape(-1, masks.shape[1])
    every = np.concatenate([values.sum(axis=0, keepdims=True), values])
    rows, (odd, noise) = pairs.rows, pairs.odd(every)
    m, d = rows.shape[1:]
    if d <= 31 and m == 2 ** (d - 1):
        scores, spread = odd[1:] @ fitting.compute_rest_weights(rows)[0], np.zeros((len(values), d))
    else:
        with limit_to_one(m**2 * (d + len(values))):
            scores, spread = _fit_outputs(rows, odd, noise, 16 * np.finfo(float).eps * np.abs(every).max(axis=1))
    scores = scores + (2 * odd[1:, :1] - scores.sum(axis=1, keepdims=True)) / d
    return np.ldexp(scores, power), drop_unknown(np.ldexp(np.sqrt(spread), power))


def _fit_outputs(rows: np.ndarray, odd: np.ndarray, noise, rough) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and variances (q, d) of the outputs odd[1:]; odd[0]: their sum; rough (1 + q,): rounding errors."""
    size = np.abs(odd).max(axis=1, keepdims=True)
    size = np.where(size > 0, size, 1.0)
    rough = rough[:, None] / size
    left = _fit_linear(rows, odd / size)[1] if rows.shape[1] >= rows.shape[2] else np.ones(len(odd))
    nonlinear = left[:, None] > 1e-10 + rough
    choosing = 0 if nonlinear[0] or not nonlinear.any() else int(np.argmax(left * size[:, 0]))
    one = slice(choosing, choosing + 1)
    outputs = odd[None, 1:] / size[1:]
    fit = _fit(rows, odd[one] / size[one], noise[one] / size[one] ** 2, outputs)
    found = fit.other_scores[0], fit.other_variance[0]
    scores, variance = prefer_linear(rows, outputs[0], rough[1:, 0], *found, together=True)
    return scores * size[1:], variance * size[1:] ** 2


def draw_subset(m: int) -> np.ndarray:
    """Return the pairs of m, with the ends, that select relevances where there are many."""
    return np.r_[0, np.sort(np.random.default_rng(0).choice(np.arange(1, m), SUBSET_PAIRS - 1, replace=False))]


def fit_subset_mixture(data: Data) -> Fit:
    """Return the mean of fits whose relevances a subset of the pairs selects: equal, in proportion to scores, learned.
    The subset gives the factor on the variances, too; this and the last fit need `MIN_LEARNING_PAIRS`."""
    _, m, d = data.shape
    subset, cost = data.only(draw_subset(m)), fitting.LEARNING_COST * d
    equal = fitting.select_best(fitting.fit_reaches(subset))
    fitted = [fitting.fit_posterior(data, *equal)]
    proportional = fitting.select_best(fitting.fit_reaches(subset, fitted[0].scores))
    fitted.append(fitting.fit_posterior(data, *proportional).penalise(cost))
    if SUBSET_PAIRS < MIN_LEARNING_PAIRS * d:
        return fitting.average_fits(fitted)
    learned = fitting.maximise_likelihood(subset, *proportional, fitting.STEPS)
    fitted.append(fitting.fit_posterior(data, *learned).penalise(cost))
    return fitting.average_fits(fitted).widen(compute_variance_factor(subset, *equal))


def fit_mixture(data: Data) -> Fit:
    """Return the mean of fits with equal relevances, in proportion to scores and, with pairs enough, learned."""
    m, d = data.shape[1:]
    few = m <= fitting.MIN_PAIRS * d
    equal = _select_reaches(data, fitting.fit_reaches(data), few)
    fitted = [fitting.fit_posterior(data, *reach) for reach in equal]
    scores = fitting.average_fits(fitted).scores
    proportional = _select_reaches(data, fitting.fit_reaches(data, scores), few)
    fitted += [fitting.fit_posterior(data, *reach).penalise(fitting.LEARNING_COST * d) for reach in proportional]
    if few:
        return fitting.average_fits(fitted)
    mean = fitting.average_fits(fitted + fit_learned(data, *proportional[0], fitted[-1].scores))
    return mean.widen(compute_variance_factor(data, *equal[0], mean.variance))


def _select_reaches(data: Data, reaches: list, few: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return relevances and rest of every reach if the pairs are few, else of the best, with a variance of sizes."""
    return [reach[:2] for reach in reaches] if few else [fitting.fit_sizes(data, *fitting.select_best(reaches))]


def fit_learned(data: Data, relevance: np.ndarray, rest: np.ndarray, scores: np.ndarray) -> list[Fit]:
    """Return posteriors near the relevances of highest likelihood: plain, with a curve, with a curve and slopes by
    size, and with single terms."""
    relevance, rest = fitting.maximise_likelihood(data, relevance, rest, fitting.STEPS)
    curve = build_curve(data, fit_effects(data, relevance, rest, scores))
    slopes = [build_slopes(data, np.ones_like(relevance), deviation) for deviation in EQUAL_SLOPES]
    slopes.append(build_slopes(data, relevance, RELEVANT_SLOPES))
    plain, *extended = _fit_nearby(data, relevance, rest, [None, curve, *map(curve.join, slopes)])
    fitted = plain + [widen(data, *two) for fits in extended for two in zip(plain, fits, strict=True)]
    if (terms := select_terms(data, relevance, rest)) is None:
        return fitted
    if data.shape[1] >= MIN_LEARNING_PAIRS * data.shape[2]:  # less is left for the relevances and the rest to explain
        relevance, rest = fitting.maximise_likelihood(data, relevance, rest, fitting.STEPS, terms)
    (with_terms,) = _fit_nearby(data, relevance, rest, [terms])
    return fitted + [widen(data, *two) for two in zip(plain, with_terms, strict=True)]


def _fit_nearby(data: Data, relevance: np.ndarray, rest: np.ndarray, extras: list[Extra | None]) -> list[list[Fit]]:
    """Return the penalised posteriors with each of the extras, for multiples of the relevances and the rest."""
    fitted: list[list[Fit]] = [[] for _ in extras]
    for near, factors in fitting.NEARBY.items():
        rests = [rest * np.array([factor, 1.0, 1.0, 1.0]) for factor in factors]
        found = fitting.fit_posteriors(data, np.clip(relevance * near, *fitting.RELEVANCES), rests, extras)
        cost = fitting.LEARNING_COST * data.shape[2] + fitting.NEARBY_COST * np.log(near) ** 2
        for place, fits in enumerate(fitted):
            fits += [fit.penalise(cost) for fit in found[len(rests) * place :][: len(rests)]]
    return fitted


def prefer_linear(
    rows: np.ndarray, odd: np.ndarray, rough: np.ndarray, scores: np.ndarray, variance: np.ndarray, together=False
) -> tuple[np.ndarray, np.ndarray]:
    """Return a fit's scores and variances, or those of the linear game and 0 if it equals all values up to rounding.

    With few pairs the likelihood cannot distinguish nonlinearity from noise. The linear fit, the mean of the marginal
    contributions at both ends, then has a share in the scores, and the variances are NaN, as intervals of nominal 95 %
    covered 57 to 93 % of the scores on seven games. together: for outputs of one sample, all linear or none.
    """
    _, m, d = rows.shape
    if m < d:
        return scores, np.full(scores.shape, np.nan)
    slope, left = _fit_linear(rows, odd)
    exact = left <= 1e-10 + rough
    if together:
        exact &= exact.all()
    exact[exact] = np.linalg.matrix_rank(rows[:1] if together else rows[exact]) == d
    few = m <= fitting.MIN_PAIRS * d
    share = np.where(exact, 1.0, fitting.LINEAR_SHARE if few else 0.0)[:, None]
    scores = scores + share * (2 * slope - scores)
    unsure = np.nan if few else np.maximum(variance, compute_jump_variance(rows, odd, rough)[:, None])
    return scores, np.where(exact[:, None], 0.0, np.broadcast_to(unsure, scores.shape))


def compute_jump_variance(rows: np.ndarray, odd: np.ndarray, rough: np.ndarray) -> np.ndarray:
    """Return a minimum variance (n,) of scores for games that may jump at a pair that is not evaluated; else 0.

    These are games of two values, and games that are linear at all pairs except the empty and the full coalition. By
    the rule of succession one in m + 1 of the other pairs jumps by as much. Coalitions that jump share the presence and
    absence of k features, so they are one in 2^k, and their squared Shapley values sum to 2 pi / 4^k times the squared
    jump (by Stirling's formula, with half of the k features present).
    """
    m, d = rows.shape[1:]
    slope, left = _fit_linear(rows[:, 1:], odd[:, 1:])
    jump = np.where(left <= 1e-10 + rough, odd[:, 0] - slope.sum(axis=1), 0.0)
    jump[np.isin(np.abs(odd), (0, 1)).all(axis=1) & odd.any(axis=1)] = 1
    return np.where(np.abs(jump) > 1e-10 + rough, 2 * np.pi / d * (jump / (m + 1)) ** 2, 0.0)


def _fit_linear(rows: np.ndarray, odd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return slopes (n, d) of linear fits to odd parts (n, m), and largest deviations (n,); rows: one set or n."""
    _, m, d = rows.shape
    normal = rows.swapaxes(1, 2) @ rows
    normal[:, np.arange(d), np.arange(d)] += 1e-12 * m  # keeps it regular; no more than rounding where it is
    slope = np.linalg.solve(normal, rows.swapaxes(1, 2) @ odd[..., None])
    return slope[..., 0], np.abs((rows @ slope)[..., 0] - odd).max(axis=1)


def gp_pairs(d: int, budget: int, seed: int = 0) -> Design:
    """Return the design of `draw_pairs`, without a readout, which `read_stack` derives from the values."""
    masks = draw_pairs(d, budget, seed)
    _refuse_many(len(masks), d)
    _announce_long(len(masks), d)
    return defer_readout(masks)


def defer_readout(masks: np.ndarray) -> Design:
    """Return the design of masks (K, d) whose readout follows from the values."""
    from scipy.sparse import coo_array

    return Design(masks, coo_array(masks.shape[::-1], dtype=np.float64).tocsr())


def read_stack(masks: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores and their uncertainty (n, d), None if none is known, from masks (n, K, d) and values (n, K)."""
    answer = read_out(masks, values)
    return answer.scores, drop_unknown(answer.standard_error)


def gp_shapley(d: int, budget: int, seed: int = 0, relevance: float | np.ndarray = 0.1, rest: float = 1e-3) -> Design:
    """Return the design of a Gaussian process over coalitions with relevances fixed beforehand.

    `shapeline.explain` and `shapley_values` choose the relevances by the values instead.

    Parameters
    ----------
    d : int
        Number of features.
    budget : int
        Evaluations, at least 4, or 2^d where that is less; 2 d or more include each single feature.
    seed : int
        Of the sample.
    relevance : float or array of shape (d,)
        Relevance of each feature, within (0, 1); or a reach c, which gives all the relevance 4 c / d.
    rest : float
        Variance outside the prior, relative to a coalition's.

    Returns
    -------
    Design
        Masks (K, d) bool and a dense readout. Scores sum to v(N) - v(empty) and are exact for all coalitions.

    Raises
    ------
    ShapelineError
        Where the budget, the relevances or the rest are out of range.

    References
    ----------
    Rundel et al. (2026); Fumagalli et al. (2026).

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs
    >>> design = designs.gp_shapley(10, budget=40, seed=1)
    >>> scores = design.attribute(design.masks @ np.arange(10.0))
    >>> round(float(scores.sum()), 6)
    45.0
    """
    masks = draw_pairs(d, budget, seed)
    pairs = find_pairs(masks[None])
    d, m = masks.shape[1], pairs.rows.shape[1]
    weights = np.asarray(relevance if np.ndim(relevance) else [fitting.compute_equal_relevance(d, relevance)] * d)
    if weights.shape != (d,) or not ((weights > 0) & (weights < 1)).all() or not rest > 0:
        raise ShapelineError(
            f"gp_shapley: relevances or rest are out of range; give {d} relevances within (0, 1), or one reach, "
            "and a rest above 0."
        )
    weights = weights[None]
    of_rest = fitting.compute_rest_weights(pairs.rows)[0]
    if m == 2 ** min(d - 1, 31):
        share = of_rest.T
    else:
        with limit_to_one(m**2 * (m + d)):
            matrix = fitting.compute_correlation(pairs.rows, weights)[0]
            view_diagonal(matrix)[:] += rest
            cross = fitting.compute_score_covariance(pairs.rows, weights)[0] + rest * of_rest
            share = solve_positive(matrix, cross, "gp_shapley").T
    share = share - share.mean(axis=0)
    share[:, 0] += 2 / d
    return Design(masks, _expand_readout(pairs, share, len(masks)))


def _expand_readout(pairs: Pairs, share: np.ndarray, count: int) -> np.ndarray:
    """Return the readout (d, K) over coalitions from that over odd parts (d, m)."""
    readout = np.zeros((len(share), count))
    complete = share.shape[1] - pairs.lone
    first, second = pairs.first[0], pairs.second[0]
    readout[:, first[:complete]] += share[:, :complete] / 2
    readout[:, second[:complete]] -= share[:, :complete] / 2
    if pairs.lone:
        # The even part of a lone coalition is estimated by that of the ends.
        readout[:, first[complete:]] += share[:, complete:]
        readout[:, [first[0], second[0]]] -= share[:, complete:].sum(axis=1, keepdims=True) / 2
    return readout


def compute_waves(data: Data, half: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return angles (n, w, d), the sines (n, m, w), their Shapley values and slopes (n, w, d).

    sin(w a) is the imaginary part of a product over features; so is its Shapley value, an integral over their common
    probability. More pairs distinguish more waves.
    """
    m, d = data.shape[1:]
    number = np.arange(1, 1 + np.clip(2 + m // d, *WAVES))
    angle = np.pi / 2 * number[:, None] * (half / (np.abs(half).sum(axis=1, keepdims=True) + 1e-300))[:, None]
    nodes, node_weights = np.polynomial.legendre.leggauss(min(2 * max(1, -(-d // 4)), 32))
    cos, sin = np.cos(angle), np.sin(angle)
    cos = np.where(np.abs(cos) < 1e-9, 1e-9, cos)
    factor = cos[:, :, None] + 1j * nodes[:, None] * sin[:, :, None]
    inside = factor.prod(axis=3, keepdims=True) / factor
    slope = sin / cos * cos.prod(axis=2, keepdims=True)
    return angle, np.sin(data.rows @ angle.swapaxes(1, 2)), sin * (node_weights @ inside.real), slope


def build_curve(data: Data, half: np.ndarray) -> Extra:
    """Return odd waves of a(S), the sum of signed half effects (n, d), without their linear part.

    A nonlinear function of a sum has interactions proportional to products of main effects.
    """
    angle, values, scores, slope = compute_waves(data, half)
    power = (1 - np.cos(2 * angle).prod(axis=2)) / 2 - (slope**2).sum(axis=2)
    size = np.sqrt(CURVE_VARIANCE / np.maximum(power, 1e-12)) / np.arange(1, 1 + power.shape[1])
    values = (values - data.rows @ slope.swapaxes(1, 2)) * size[:, None]
    return Extra(values, (scores - 2 * slope) * size[..., None], np.full(len(half), CURVE_PENALTY))


@cache
def compute_slopes(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return functions of the size (d + 1, q), equal for pairs, and the Shapley values (q, 2) of the game z_i f(|S|):
    of feature i, and of each other one."""
    place = np.log(np.arange(d // 2 + 1) + 0.5)
    power, vectors = np.linalg.eigh(np.exp(-(((place[:, None] - place) / SLOPE_LENGTH) ** 2) / 2))
    leading = (vectors * np.sqrt(np.maximum(power, 0)))[:, ::-1][:, :SLOPE_TERMS]
    sizes = np.arange(d + 1)
    functions = leading[np.minimum(sizes, d - sizes)]
    mean = 2 * sizes[:-1, None] / (d - 1) - 1  # of z_i, given a member of the coalition besides i
    own = (functions[1:] + functions[:-1]).mean(axis=0)
    return functions, np.stack([own, (mean * np.diff(functions, axis=0)).mean(axis=0)], axis=1)


def build_slopes(data: Data, share: np.ndarray, deviation: float) -> Extra:
    """Return main effects that vary with the size, of variances in proportion to `share` (n, d).

    What a player adds may differ at sizes that no pair has, as in a maximum, where it exceeds only small coalitions.
    """
    n, m, d = data.shape
    functions, by_feature = compute_slopes(d)
    own, other = by_feature.T
    size = np.round((data.rows.sum(axis=2) + d) / 2).astype(int)
    scale = deviation * np.sqrt(share / share.sum(axis=1, keepdims=True))
    values = (scale[:, None] * data.rows)[..., None] * functions[size][:, :, None]
    scores = scale[..., None, None] * np.where(np.eye(d, dtype=bool)[:, None], own[:, None], other[:, None])
    return Extra(values.reshape(n, m, -1), scores.reshape(n, -1, d), np.full(n, SLOPE_PENALTY))


def find_effects(data: Data, scores: np.ndarray) -> np.ndarray:
    """Return half effects (n, d) in whose sum a curve, fitted to the pairs, has these scores: a score is a mean
    slope of the curve, and not proportional to the effect if the curve is not linear."""
    half = scores / 2
    for _ in range(EFFECT_ROUNDS):
        _, values, curve_scores, _ = compute_waves(data, half)
        penalty = RIDGE * data.shape[1] * np.diag(np.arange(1, 1 + values.shape[2]) ** 2)
        weight = np.linalg.solve(values.swapaxes(1, 2) @ values + penalty, values.swapaxes(1, 2) @ data.odd[..., None])
        half = half * np.clip(scores / ((curve_scores * weight).sum(axis=1) + 1e-300), 0.5, 2)
    return half


def fit_effects(data: Data, relevance: np.ndarray, rest: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return half effects (n, d) from the scores of a fit with a curve, itself from those of a fit without."""
    first = build_curve(data, find_effects(data, scores))
    return find_effects(data, fitting.fit_posterior(data, relevance, rest, first).scores)


def widen(data: Data, plain: Fit, extended: Fit) -> Fit:
    """Return the fit with a curve or terms, with variances between those of both: residuals are smaller, but hold more
    main effects, as a curve is approximate and the same pairs select the terms; more so with more pairs."""
    m, d = data.shape[1:]
    ratio = np.maximum(plain.variance.mean(axis=1) / np.maximum(extended.variance.mean(axis=1), 1e-300), 1)
    return extended.scale(ratio ** (PLAIN_SHARE * max(1 - MIN_PLAIN_PAIRS * d / m, 0)))


@cache
def list_triples(count: int) -> np.ndarray:
    """Return all triples of `count` indices, (3, number)."""
    return np.array(list(combinations(range(count), 3)), dtype=int).reshape(-1, 3).T


def select_terms(data: Data, relevance: np.ndarray, rest: np.ndarray) -> Extra | None:
    """Return single interactions of orders 1 and 3 with too small a prior variance (Tipping & Faul 2003), or None."""
    inverse = fitting.invert(fitting.add_rest(fitting.compute_correlation(data.rows, relevance), data, rest))
    top = np.argsort(-relevance, axis=1)[:, :MAX_TRIPLE_FEATURES]
    candidates, power = _expand_terms(np.take_along_axis(data.rows, top[:, None, :], axis=2), inverse)
    members = np.concatenate([top[:, list_triples(top.shape[1]).T], np.repeat(top[:, :, None], 3, axis=2)], axis=1)
    values, scores, number = _add_terms(data, inverse, candidates, power, members)
    if not number.any():
        return None
    # An infinite penalty excludes this fit for instances without terms.
    return Extra(values, scores, np.where(number > 0, number * MIN_GAIN * np.log(candidates.shape[2]), np.inf))


def _expand_terms(chosen: np.ndarray, inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return products of triples of `chosen` columns, then these, (n, m, q), and the inverse's form of each (n, q)."""
    n, m, c = chosen.shape
    first, second, third = list_triples(c)
    candidates = np.empty((n, m, len(first) + c))
    powers = np.empty((n, len(first) + c))
    for values, column, matrix, power in zip(candidates, chosen.swapaxes(1, 2), inverse, powers, strict=True):
        values[:, : len(first)] = (column[first] * column[second] * column[third]).T
        values[:, len(first) :] = column.T
        np.einsum("mq,mq->q", matrix @ values, values, out=power)
    return candidates, powers


def _add_terms(data: Data, inverse: np.ndarray, candidates: np.ndarray, power: np.ndarray, members: np.ndarray):
    """Return terms selected one by one while any instance gains: values (n, m, q), scores (n, q, d), numbers (n,)."""
    n, m, d = data.shape
    instances = np.arange(n)
    weight = (data.odd[:, None, :] @ inverse)[:, 0]
    fitted = (weight[:, None, :] @ candidates)[:, 0]
    scale = (data.odd * weight).sum(axis=1) / m + 1e-300
    first_scale = scale
    values, scores, number = np.zeros((n, m, MAX_TERMS)), np.zeros((n, MAX_TERMS, d)), np.zeros(n, int)
    for step in range(MAX_TERMS):
        ratio = np.maximum(fitted**2 / (scale[:, None] * power), 1)
        best = ratio.argmax(axis=1)
        ratio = ratio[instances, best]
        gains = 0.5 * (ratio - 1 - np.log(ratio)) > MIN_GAIN * np.log(candidates.shape[2])
        gains &= scale > MIN_SCALE_SHARE * first_scale
        if not gains.any():
            break
        size = np.where(gains, np.minimum((ratio - 1) / power[instances, best], MAX_TERM_VARIANCE), 0.0)
        column = candidates[instances, :, best]
        values[:, :, step] = column * np.sqrt(size)[:, None]
        share = np.where(members[instances, best, 0] == members[instances, best, 1], 2.0, 2 / 3) * np.sqrt(size)
        scores[instances[:, None], step, members[instances, best]] = share[:, None]
        number += gains
        solved = (inverse @ column[..., None])[..., 0]
        factor = size / (1 + size * power[instances, best])
        products = (solved[:, None, :] @ candidates)[:, 0]
        projection = fitted[instances, best].copy()
        scale = np.maximum(scale - factor * projection**2 / m, 1e-300)
        fitted = fitted - (factor * projection)[:, None] * products
        power = np.maximum(power - factor[:, None] * products**2, 1e-12)
        inverse = inverse - factor[:, None, None] * solved[:, :, None] * solved[:, None, :]
    return values[:, :, : number.max()], scores[:, : number.max()], number


def compute_variance_factor(data: Data, relevance, rest, variance: np.ndarray | None = None) -> np.ndarray:
    """Return factors (n,) on the variances (n, d): squared errors at held-out pairs over their predicted variances.

    relevance (n, d), rest (n, 4): initial values. The relevances and the curve are learned without each fold of the
    sampled pairs; single features are in all folds, as in the fit itself. The weight of a pair is the squared share of
    its size that is not evaluated, as in the variance of that size's mean. Two-valued games, of labels or votes, are
    overfitted by chance: for them these errors are more reliable than the posterior variance, if it is given.
    """
    n, m, d = data.shape
    # Folds depend on the pairs and not on their order, so that the result does not depend on it either.
    keys = data.rows @ np.cos(1.7 * np.arange(1, d + 1)) + 2 * d * (np.abs(data.rows.sum(axis=2)) < d - 3)
    keys[:, 0] = -np.inf
    data = data.reorder(np.argsort(keys, axis=1))
    sampled = np.abs(data.rows.sum(axis=2)) < d - 3
    first = m - sampled.sum(axis=1).min()
    reach = relevance.mean(axis=1) * d / 4
    squares, predicted = np.zeros((2, n, m))
    folds = FOLDS if m >= MIN_FOLD_PAIRS * d else FEW_FOLDS
    for fold in range(folds):
        out = np.arange(first + fold, m, folds)
        kept = np.delete(np.arange(m), out)
        part = data.only(kept)
        scores = fitting.fit_posterior(part, relevance, rest).scores
        learned = fitting.maximise_likelihood(part, fitting.compute_relevance(scores, reach), rest, HELD_OUT_STEPS)
        scores = fitting.fit_posterior(part, *learned).scores
        curve = build_curve(data, fit_effects(part, *learned, scores))
        of_part = Extra(curve.values[:, kept], curve.scores, curve.penalty)
        learned = fitting.maximise_likelihood(part, *learned, HELD_OUT_STEPS, of_part)
        squares[:, out], predicted[:, out] = _predict_errors(data, kept, out, *learned, curve)
    alike, missing, share = count_missing(data)
    weight = sampled * (alike @ missing[..., None])[..., 0] ** 2
    ratio = ((weight * squares).sum(axis=1) + 1e-300) / ((weight * predicted).sum(axis=1) + 1e-300)
    count = sampled.sum(axis=1)
    correction = 1 + 2 / np.maximum(count, 1)  # about the variance of Student's t with a scale by so many errors
    factor = RESIDUAL_FACTOR * correction * ratio ** (count / (count + np.where(ratio > 1, *PRIOR_PAIRS)))
    if variance is None:
        return factor
    direct = compute_error_variance(data, squares * sampled, alike, missing, share)
    direct /= np.maximum(variance.mean(axis=1), 1e-300)
    two_valued = np.isin(np.abs(data.odd), (0, 1)).all(axis=1)
    return np.where(two_valued, direct**HELD_OUT_SHARE * factor ** (1 - HELD_OUT_SHARE), factor)


def count_missing(data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which pairs have each size, 1 to d // 2, (n, m, sizes), the share of its pairs that is not evaluated, and
    the pairs per coalition: one half if both members have size d / 2."""
    d = data.shape[2]
    sizes = np.arange(1, d // 2 + 1)
    share = np.where(2 * sizes == d, 0.5, 1.0)
    alike = np.round((1 - data.lean[..., None]) * d / 2) == sizes
    counts = share * np.exp(log_factorial(d) - log_factorial(sizes) - log_factorial(d - sizes))
    return alike, np.maximum(1 - alike.sum(axis=1) / counts, 0), share


def compute_error_variance(data: Data, squares: np.ndarray, alike, missing, share) -> np.ndarray:
    """Return the variance (n,) of scores by squared errors at pairs (n, m), assumed independent, with `count_missing`.

    A score is the mean over sizes of a feature's slopes over the pairs; errors are those of pairs not evaluated.
    """
    m, d = data.shape[1:]
    sizes = np.arange(1, d // 2 + 1)
    number = alike.sum(axis=1)
    mean = squares.sum(axis=1, keepdims=True) / np.maximum(number[:, 1:].sum(axis=1, keepdims=True), 1)
    mean = ((squares[..., None] * alike).sum(axis=1) + POOLED_PAIRS * mean) / (number + POOLED_PAIRS)
    by_size = (4 * share / d) ** 2 * mean * missing / (np.maximum(number, 1) * (1 - (1 - 2 * sizes / d) ** 2))
    return (1 - d / m) ** 2.5 * by_size.sum(axis=1)


def _predict_errors(data: Data, kept, out, relevance, rest, curve: Extra) -> tuple[np.ndarray, np.ndarray]:
    """Return squared errors at the pairs `out` and their variances, predicted from pairs `kept`, (n, len(out))."""
    matrix = fitting.add_rest(fitting.compute_correlation(data.rows, relevance) + curve.covariance, data, rest)
    white, cross, _ = fitting.whiten(matrix[:, kept[:, None], kept], data.odd[:, kept], matrix[:, kept[:, None], out])
    variance = np.diagonal(matrix, axis1=1, axis2=2)[:, out] - (cross**2).sum(axis=2)
    scale = (white**2).mean(axis=1, keepdims=True) + 1e-300
    return (data.odd[:, out] - (cross @ white[..., None])[..., 0]) ** 2, np.maximum(variance, 1e-12) * scale
