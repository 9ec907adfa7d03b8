"""Shapley values from a Gaussian process over coalitions (Rundel et al. 2026, Fumagalli et al. 2026)."""

import warnings
from dataclasses import dataclass

import numpy as np

from shapeline.designs import gaussian_fit as fitting
from shapeline.designs.design import Design, diagonal, solve_positive
from shapeline.designs.gaussian_fit import Data, Fit
from shapeline.designs.gaussian_held import curve, doubt_curve, held_out, terms
from shapeline.designs.gaussian_pairs import Pairs, draw_pairs, find_pairs, gp_shapley_minimum
from shapeline.designs.uncertainty import drop_unknown
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one

MANY = 700  # pairs, above which relevances are learned from a subset
SUBSET = 256


def explain_large(data: Data) -> Fit:
    """Posterior of the scores: the mixture of equal relevances, of those in proportion to scores, and of learned ones,
    which are chosen on some of the pairs, as is the factor on the variances; both where these are three per feature."""
    n, m, d = data.shape
    some = data.only(np.r_[0, np.sort(np.random.default_rng(0).choice(np.arange(1, m), SUBSET - 1, replace=False))])
    even = fitting.best_of(fitting.fit_reaches(some, lambda reach: np.full((n, d), fitting.even_relevance(d, reach))))
    fitted = [_posterior(data, *even)]
    sized = fitting.best_of(fitting.fit_reaches(some, lambda reach: fitting.relevance_of(fitted[0].scores, reach)))
    fitted.append(_posterior(data, *sized).penalise(fitting.LEARNING_COST * d))
    if SUBSET < 3 * d:
        return fitting.mixture(fitted)
    fitted.append(_posterior(data, *fitting.ascend(some, *sized, fitting.STEPS)).penalise(fitting.LEARNING_COST * d))
    return fitting.mixture(fitted).widen(held_out(some, *even))


def _posterior(data: Data, relevance: np.ndarray, rest: np.ndarray) -> Fit:
    """Return the fit of all instances, one after another."""
    parts = [_posterior_of(data, place, relevance, rest) for place in range(len(rest))]
    return Fit(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _posterior_of(data: Data, place: int, relevance: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, ...]:
    """What a Fit has of one instance, by one Cholesky factor in place."""
    from scipy.linalg import cholesky, solve_triangular

    one = slice(place, place + 1)
    parts = (data.rows, data.odd, data.noise, data.rest, data.outputs)
    own, relevance, rest = Data(*(part[one] for part in parts)), relevance[one], rest[one]
    odd, (m, d) = own.odd[0], own.rows.shape[1:]
    matrix = fitting.add_rest(fitting.correlation(own.rows, relevance), own, rest)[0]
    factor = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
    cross = fitting.compute_pair_variance(own, rest)[0][:, None] * own.rest[0]
    cross += fitting.score_covariance(own.rows, relevance)[0]
    right = np.column_stack([odd, cross, own.outputs[0].T])
    white = solve_triangular(factor, right, lower=True, check_finite=False, overwrite_b=True)
    white, seen, outputs = white[:, 0], white[:, 1 : d + 1], white[:, d + 1 :]
    left = fitting.score_variance(relevance) + fitting.compute_score_variance(d, rest) - (seen**2).sum(axis=0)
    left, scale = np.maximum(left, 0), white @ white / m + 1e-300
    value = m * np.log(scale) + 2 * np.log(np.diagonal(factor)).sum()
    of_outputs = (outputs.T @ seen)[None], left[None] * (outputs**2).mean(axis=0)[None, :, None]
    return np.array([value]), (white @ seen)[None], left * scale, *of_outputs


__all__ = ["ReadOut", "draw_pairs", "gp_shapley", "gp_shapley_minimum", "read_out"]

MOST_COALITIONS = 2**14
CELLS = 100_000  # of a block's covariance matrices together, so that they fit in the processor's cache


@dataclass(frozen=True, eq=False)
class ReadOut:
    """scores (n, d) and their posterior standard deviations, uncertainty (n, d), NaN where too few tell."""

    scores: np.ndarray
    standard_error: np.ndarray


def read_out(masks: np.ndarray, values: np.ndarray) -> ReadOut:
    """Shapley values with their uncertainty, relevances chosen for each instance by the likelihood of its values.

    masks: (K, d) bool, or (n, K, d) a sample per instance, of `draw_pairs`, in any order; values: (n, K). Scores sum to
    v(N) - v(empty); exact with uncertainty 0 where all coalitions are given, and where the values are linear.
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
    block = int(np.clip(CELLS // (count // 2 + d) ** 2, 1, 64))
    parts = [slice(start, start + block) for start in range(0, n, block)]
    values, power = _scale(values)
    fitted = [_block(masks[part] if len(masks) > 1 else masks, values[part]) for part in parts]
    return ReadOut(*(np.ldexp(np.concatenate(part), power) for part in zip(*fitted, strict=True)))


def _check_number(count: int, d: int) -> None:
    """Refuse more coalitions than a matrix can have, and warn of so few that some features are in none of their own."""
    if MOST_COALITIONS < count < 2 ** min(d, 31):
        raise ShapelineError(
            f"gp_shapley: {count} coalitions need a matrix of {count // 2} rows and columns; "
            f"give at most {MOST_COALITIONS}, or choose kernel_shap."
        )
    if count < min(2 * d, 2 ** min(d, 31)):
        few = f"gp_shapley: {count} evaluations do not tell all {d} features apart, and some have equal scores"
        warnings.warn(f"{few}; give {2 * d} or more.", stacklevel=3)


def _scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (n, K) over the powers of 2 that bring them near 1, so that no square overflows; the exponents (n, 1)."""
    power = np.frexp(np.abs(values).max(axis=1, keepdims=True))[1]
    return np.ldexp(values, -power), power


def _block(masks: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = find_pairs(masks)
    if len(masks) < len(values):
        copies = (np.repeat(a, len(values), axis=0) for a in (pairs.rows, pairs.first, pairs.second))
        pairs = Pairs(*copies, pairs.lone)
    odd, noise = pairs.odd(values)
    size = np.abs(odd).max(axis=1, keepdims=True)
    size = np.where(size > 0, size, 1.0)
    n, m, d = pairs.rows.shape
    with limit_to_one(n * m**2 * d):
        rough = 16 * np.finfo(float).eps * np.abs(values).max(axis=1) / size[:, 0]
        scores, spread = _scores(pairs.rows, odd / size, noise / size**2, rough)
    scores = scores + (2 * odd[:, :1] / size - scores.sum(axis=1, keepdims=True)) / d
    return scores * size, np.sqrt(spread) * size


def _scores(rows: np.ndarray, odd: np.ndarray, noise: np.ndarray, rough: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and their variances (n, d), for odd parts of scale 1, rounded to `rough` (n,)."""
    m, d = rows.shape[1:]
    if d <= 31 and m == 2 ** (d - 1) and not noise.any():
        return (odd[:, None, :] @ fitting.rest_weights(rows))[:, 0], np.zeros((len(rows), d))
    fit = _fit(rows, odd, noise)
    return prefer_linear(rows, odd, rough, fit.scores, fit.variance)


def _fit(rows: np.ndarray, odd: np.ndarray, noise: np.ndarray, outputs: np.ndarray | None = None) -> Fit:
    """Return the posterior of odd parts (n, m) of scale 1 whose variances are `noise`; outputs: see Data."""
    # Relative to a coalition's variance, as all covariances are.
    noise = noise / np.maximum((odd**2).mean(axis=1, keepdims=True), 1e-300)
    return (explain_large if rows.shape[1] > MANY else explain)(Data.of(rows, odd, noise, outputs))


def read_outputs(masks: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores and their uncertainty (q, d) of q outputs, by one estimator; None if the pairs are too few to tell.

    masks: (1, K, d) of all outputs; values: (q, K). The sum of the outputs chooses the estimator, so that scores add up
    to the scores of the sum; where the sum is linear, as that of probabilities is, the least linear output does.
    """
    _check_number(*masks.shape[1:])
    pairs = find_pairs(masks[:1])
    values, power = _scale(values.reshape(1, -1))
    values = values.reshape(-1, masks.shape[1])
    total = values.sum(axis=0, keepdims=True)
    every = np.concatenate([total, values])
    _, m, d = pairs.rows.shape
    copies = (np.repeat(part, len(every), axis=0) for part in (pairs.rows, pairs.first, pairs.second))
    odd, noise = Pairs(*copies, pairs.lone).odd(every)
    rows = pairs.rows
    if d <= 31 and m == 2 ** (d - 1):
        scores, spread = odd[1:] @ fitting.rest_weights(rows)[0], np.zeros((len(values), d))
    else:
        with limit_to_one(m**2 * (d + len(values))):
            scores, spread = _fit_outputs(rows, odd, noise, 16 * np.finfo(float).eps * np.abs(every).max(axis=1))
    scores = scores + (2 * odd[1:, :1] - scores.sum(axis=1, keepdims=True)) / d
    return np.ldexp(scores, power), drop_unknown(np.ldexp(np.sqrt(spread), power))


def _fit_outputs(
    rows: np.ndarray, odd: np.ndarray, noise: np.ndarray, rough: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and variances (q, d) of the outputs odd[1:], the first being their sum; rough (1 + q,): their rounding."""
    size = np.abs(odd).max(axis=1, keepdims=True)
    size = np.where(size > 0, size, 1.0)
    rough = rough[:, None] / size
    left = _linear(rows, odd / size)[1] if rows.shape[1] >= rows.shape[2] else np.ones(len(odd))
    bent = left[:, None] > 1e-10 + rough
    choosing = 0 if bent[0] or not bent.any() else int(np.argmax(left * size[:, 0]))
    one = slice(choosing, choosing + 1)
    outputs = odd[None, 1:] / size[1:]
    fit = _fit(rows, odd[one] / size[one], noise[one] / size[one] ** 2, outputs)
    scores, variance = prefer_linear(
        rows, outputs[0], rough[1:, 0], fit.other_scores[0], fit.other_variance[0], together=True
    )
    return scores * size[1:], variance * size[1:] ** 2


def explain(data: Data) -> Fit:
    """Posterior of the scores: equal relevances, then in proportion to scores, then, with pairs enough, learned."""
    n, m, d = data.shape
    few = m <= fitting.MIN_PAIRS * d
    reaches = fitting.fit_reaches(data, lambda reach: np.full((n, d), fitting.even_relevance(d, reach)))
    even = _choose(data, reaches, few)
    fitted = [fit for relevance, rest in even for fit in fitting.fits(data, relevance, [rest], [None])]
    scores = fitting.mixture(fitted).scores
    sized = _choose(data, fitting.fit_reaches(data, lambda reach: fitting.relevance_of(scores, reach)), few)
    more = [fit for relevance, rest in sized for fit in fitting.fits(data, relevance, [rest], [None])]
    fitted += [fit.penalise(fitting.LEARNING_COST * d) for fit in more]
    if few:
        return fitting.mixture(fitted)
    found = fitting.mixture(fitted + learn(data, *sized[0], fitted[-1].scores))
    return found.widen(held_out(data, *even[0], found.variance))


def _choose(data: Data, reaches: list, few: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Relevances and rest of every reach where the pairs are few, else of the best, with what sizes share."""
    return [reach[:2] for reach in reaches] if few else [fitting.free_sizes(data, *fitting.best_of(reaches))]


def learn(data: Data, relevance: np.ndarray, rest: np.ndarray, scores: np.ndarray) -> list[Fit]:
    """Fits about the relevances that the likelihood's gradient leads to, with a curve and with terms on top."""
    relevance, rest = fitting.ascend(data, relevance, rest, fitting.STEPS)
    extras, fitted = [None, curve(data, scores), *filter(None, [terms(data, relevance, rest)])], []
    for more in sorted({more for more, _ in fitting.NEARBY}):
        rests = [rest * np.array([factor, 1.0, 1.0, 1.0]) for near, factor in fitting.NEARBY if near == more]
        found = fitting.fits(data, np.clip(relevance * more, *fitting.RELEVANCES), rests, extras)
        plain, bent = found[: len(rests)], found[len(rests) : 2 * len(rests)]
        fitted += plain + [doubt_curve(data, *two) for two in zip(plain, bent, strict=True)] + found[2 * len(rests) :]
    return [fit.penalise(fitting.LEARNING_COST * data.shape[2]) for fit in fitted]


def prefer_linear(
    rows: np.ndarray, odd: np.ndarray, rough: np.ndarray, scores: np.ndarray, variance: np.ndarray, together=False
) -> tuple[np.ndarray, np.ndarray]:
    """Return a fit's scores and variances, or the linear game's and 0 where one meets all the values to rounding.

    Where the pairs are few the likelihood cannot tell bends from noise: the linear fit, which is the mean of the
    marginal contributions at both ends, then has a share in the scores; and the variances are NaN, for what such pairs
    say of their own error held 57 to 93 % of the scores on seven games. together: of outputs of one sample, whose
    scores are linear only where all are.
    """
    _, m, d = rows.shape
    if m < d:
        return scores, np.full(scores.shape, np.nan)
    slope, left = _linear(rows, odd)
    exact = left <= 1e-10 + rough
    if together:
        exact &= exact.all()
    exact[exact] = np.linalg.matrix_rank(rows[:1] if together else rows[exact]) == d
    few = m <= fitting.MIN_PAIRS * d
    share = np.where(exact, 1.0, fitting.LINEAR_SHARE if few else 0.0)[:, None]
    scores = scores + share * (2 * slope - scores)
    unsure = np.nan if few else np.maximum(variance, suspect_jump(rows, odd, rough)[:, None])
    return scores, np.where(exact[:, None], 0.0, np.broadcast_to(unsure, scores.shape))


def suspect_jump(rows: np.ndarray, odd: np.ndarray, rough: np.ndarray) -> np.ndarray:
    """Return a least variance (n,) of scores where all pairs but the ends are linear and the ends jump, and of games of
    two values: by the rule of succession, one of m + 1 pairs that are not evaluated jumps by as much."""
    m, d = rows.shape[1:]
    slope, left = _linear(rows[:, 1:], odd[:, 1:])
    jump = np.where(left <= 1e-10 + rough, odd[:, 0] - slope.sum(axis=1), 0.0)
    jump[np.isin(np.abs(odd), (0, 1)).all(axis=1)] = 1
    return np.where(np.abs(jump) > 1e-10 + rough, jump**2 * fitting.rest_variances(d)[1:-2].sum() / (m + 1), 0.0)


def _linear(rows: np.ndarray, odd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes (n, d) of the linear fits of odd parts (n, m), and the largest deviations (n,); one set of rows or n."""
    _, m, d = rows.shape
    normal = rows.swapaxes(1, 2) @ rows
    normal[:, np.arange(d), np.arange(d)] += 1e-12 * m  # keeps it regular; no more than rounding where it is
    slope = np.linalg.solve(normal, rows.swapaxes(1, 2) @ odd[..., None])
    return slope[..., 0], np.abs((rows @ slope)[..., 0] - odd).max(axis=1)


def gp_pairs(d: int, budget: int, seed: int = 0) -> Design:
    """The coalitions of `draw_pairs`, whose readout follows from the values: `read_stack` has it, the design none."""
    masks = draw_pairs(d, budget, seed)
    if len(masks) > min(2 * d, MOST_COALITIONS):
        _check_number(len(masks), d)
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
        Evaluations, at least 2 d, or 2^d where that is less.
    seed : int
        Of the sample.
    relevance : float or array of shape (d,)
        Relevance of each feature, within (0, 1); or a reach c that all share as 4 c / d.
    rest : float
        Variance left to what the prior does not hold, relative to a coalition's.

    Returns
    -------
    Design
        Masks (K, d) bool and a dense readout. Scores sum to v(N) - v(empty) and are exact where all coalitions are
        given.

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
    weights = np.full(d, fitting.even_relevance(d, relevance)) if np.ndim(relevance) == 0 else np.asarray(relevance)
    if weights.shape != (d,) or not ((weights > 0) & (weights < 1)).all() or not rest > 0:
        raise ShapelineError(
            f"gp_shapley: relevances or rest are out of range; give {d} relevances within (0, 1), or one reach, "
            "and a rest above 0."
        )
    weights = weights[None]
    if m == 2 ** min(d - 1, 31):
        share = fitting.rest_weights(pairs.rows)[0].T
    else:
        with limit_to_one(m**2 * (m + d)):
            matrix = fitting.correlation(pairs.rows, weights)[0]
            diagonal(matrix)[:] += rest
            cross = fitting.score_covariance(pairs.rows, weights)[0] + rest * fitting.rest_weights(pairs.rows)[0]
            share = solve_positive(matrix, cross, "gp_shapley").T
    share = share - share.mean(axis=0)
    share[:, 0] += 2 / d
    return Design(masks, _expand_readout(pairs, share, len(masks)))


def _expand_readout(pairs: Pairs, share: np.ndarray, count: int) -> np.ndarray:
    """Return the readout (d, K) over coalitions from that over odd parts (d, m)."""
    readout = np.zeros((len(share), count))
    whole_ = share.shape[1] - pairs.lone
    first, second = pairs.first[0], pairs.second[0]
    readout[:, first[:whole_]] += share[:, :whole_] / 2
    readout[:, second[:whole_]] -= share[:, :whole_] / 2
    if pairs.lone:
        # The even part of a lone coalition is taken to be that of the ends.
        readout[:, first[whole_:]] += share[:, whole_:]
        readout[:, [first[0], second[0]]] -= share[:, whole_:].sum(axis=1, keepdims=True) / 2
    return readout
