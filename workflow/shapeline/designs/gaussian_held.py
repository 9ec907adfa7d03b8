"""Terms beyond the prior of a Gaussian process over coalitions (a nonlinear link, single interactions), and a factor on
its posterior variance by pairs held out of the fit.

Likelihood and leave-one-out errors are too small for relevances learned from these pairs: by 4 at 4 d, 2 at 16 d.
"""

from functools import cache
from itertools import combinations

import numpy as np

from shapeline.designs.design import log_factorial
from shapeline.designs.gaussian_fit import (
    Data,
    Extra,
    Fit,
    add_rest,
    ascend,
    correlation,
    fits,
    inverses,
    relevance_of,
    whiten,
)

CURVE_VARIANCE = 0.1  # of the first wave, relative to a coalition's
WAVES = np.array([1.0, 2.0, 3.0, 4.0])
CURVE_PENALTY = 4.0
PLAIN_SHARE = 0.6  # weight, for many pairs, of the variance without a curve in the geometric mean of both
MIN_PLAIN_PAIRS = 4.0  # per feature, up to which this weight is 0
MAX_TERMS = 12  # single interactions
MAX_TRIPLE_FEATURES = 26  # most relevant features, whose triples are candidates
MIN_SCALE_SHARE = 1e-10  # of the scale, below which terms explain all values
MAX_TERM_VARIANCE = 1e3  # relative to a coalition's: rounding errors would dominate beyond
MIN_GAIN = 0.75  # in log likelihood per term, in units of the log of the number of candidates


def curve(data: Data, scores: np.ndarray) -> Extra:
    """Return odd waves of a(S), the sum of signed half scores, without their linear part.

    A nonlinear function of a sum has interactions proportional to products of main effects. sin(w a) is the imaginary
    part of a product over features; so is its Shapley value, an integral over their common probability.
    """
    d = scores.shape[1]
    half = scores / 2
    reach = np.abs(half).sum(axis=1, keepdims=True) + 1e-300
    place, weight = np.polynomial.legendre.leggauss(min(2 * max(1, -(-d // 4)), 32))
    values, shapley = [], []
    for wave in WAVES:
        angle = wave * np.pi / 2 * half / reach
        cos, sin = np.cos(angle), np.sin(angle)
        cos = np.where(np.abs(cos) < 1e-9, 1e-9, cos)
        linear = sin / cos * cos.prod(axis=1, keepdims=True)
        factor = cos[:, None, :] + 1j * place[:, None] * sin[:, None, :]
        inside = factor.prod(axis=2)[..., None] / factor
        score = sin * (weight @ inside.real) - 2 * linear
        power = np.maximum((1 - np.cos(2 * angle).prod(axis=1)) / 2 - (linear**2).sum(axis=1), 1e-12)
        size = np.sqrt(CURVE_VARIANCE / power)[:, None] / wave
        bent = np.sin((data.rows @ angle[..., None])[..., 0]) - (data.rows @ linear[..., None])[..., 0]
        values.append(bent * size)
        shapley.append(score * size)
    return Extra(np.stack(values, axis=2), np.stack(shapley, axis=1), np.full(len(scores), CURVE_PENALTY))


def doubt_curve(data: Data, plain: Fit, bent: Fit) -> Fit:
    """Return the fit with a curve, with variances between its own and those without: residuals of a curve have less
    energy but more of it in main effects, because its shape is approximate, and more so the more pairs there are."""
    m, d = data.shape[1:]
    wider = np.maximum(plain.variance.mean(axis=1) / np.maximum(bent.variance.mean(axis=1), 1e-300), 1)
    return bent.scale(wider ** (PLAIN_SHARE * max(1 - MIN_PLAIN_PAIRS * d / m, 0)))


@cache
def triples(count: int) -> np.ndarray:
    """Return all triples of `count` indices, (3, number)."""
    return np.array(list(combinations(range(count), 3)), dtype=int).reshape(-1, 3).T


def terms(data: Data, relevance: np.ndarray, rest: np.ndarray) -> Extra | None:
    """Return single interactions of orders 1 and 3 with too small a prior variance (Tipping & Faul 2003), or None."""
    inverse = inverses(add_rest(correlation(data.rows, relevance), data, rest))
    top = np.argsort(-relevance, axis=1)[:, :MAX_TRIPLE_FEATURES]
    tried, own = _try_scales(np.take_along_axis(data.rows, top[:, None, :], axis=2), inverse)
    members = np.concatenate([top[:, triples(top.shape[1]).T], np.repeat(top[:, :, None], 3, axis=2)], axis=1)
    values, scores, number = _forward(data, inverse, tried, own, members)
    if not number.any():
        return None
    # An infinite penalty excludes this fit for instances without terms.
    return Extra(values, scores, np.where(number > 0, number * MIN_GAIN * np.log(tried.shape[2]), np.inf))


def _try_scales(chosen: np.ndarray, inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return triples of `chosen` columns, then these, (n, m, q), and the inverse's form of each (n, q), by instance."""
    n, m, c = chosen.shape
    first, second, third = triples(c)
    tried = np.empty((n, m, len(first) + c))
    own = np.empty((n, len(first) + c))
    for values, column, matrix, power in zip(tried, chosen.swapaxes(1, 2), inverse, own, strict=True):
        values[:, : len(first)] = (column[first] * column[second] * column[third]).T
        values[:, len(first) :] = column.T
        np.einsum("mq,mq->q", matrix @ values, values, out=power)
    return tried, own


def _forward(data: Data, inverse: np.ndarray, tried: np.ndarray, own: np.ndarray, members: np.ndarray):
    """Terms freed one by one while any instance gains: values (n, m, q), scores (n, q, d), numbers (n,)."""
    n, m, d = data.shape
    each = np.arange(n)
    weight = (data.odd[:, None, :] @ inverse)[:, 0]
    fitted = (weight[:, None, :] @ tried)[:, 0]
    scale = (data.odd * weight).sum(axis=1) / m + 1e-300
    whole = scale
    values, scores, number = np.zeros((n, m, MAX_TERMS)), np.zeros((n, MAX_TERMS, d)), np.zeros(n, int)
    for step in range(MAX_TERMS):
        ratio = np.maximum(fitted**2 / (scale[:, None] * own), 1)
        best = ratio.argmax(axis=1)
        ratio = ratio[each, best]
        gains = 0.5 * (ratio - 1 - np.log(ratio)) > MIN_GAIN * np.log(tried.shape[2])
        gains &= scale > MIN_SCALE_SHARE * whole
        if not gains.any():
            break
        size = np.where(gains, np.minimum((ratio - 1) / own[each, best], MAX_TERM_VARIANCE), 0.0)
        column = tried[each, :, best]
        values[:, :, step] = column * np.sqrt(size)[:, None]
        share = np.where(members[each, best, 0] == members[each, best, 1], 2.0, 2 / 3) * np.sqrt(size)
        scores[each[:, None], step, members[each, best]] = share[:, None]
        number += gains
        moved = (inverse @ column[..., None])[..., 0]
        factor = size / (1 + size * own[each, best])
        with_tried = (moved[:, None, :] @ tried)[:, 0]
        pull = fitted[each, best].copy()
        scale = np.maximum(scale - factor * pull**2 / m, 1e-300)
        fitted = fitted - (factor * pull)[:, None] * with_tried
        own = np.maximum(own - factor[:, None] * with_tried**2, 1e-12)
        inverse = inverse - factor[:, None, None] * moved[:, :, None] * moved[:, None, :]
    return values[:, :, : number.max()], scores[:, : number.max()], number


FOLDS = 3
STEPS = 6  # of the ascent without a fold
PRIOR_PAIRS = (4, 16)  # weight of a factor of 1, in pairs, for ratios above and below 1: ratios vary by chance
RESIDUAL_FACTOR = 1.35  # residuals have more main effects than the prior expects (median of 24 games)
HELD_OUT_SHARE = 0.8  # weight of the variance by these errors in the geometric mean, for two-valued games
POOLED_PAIRS = 3  # weight of the squared error of all sizes, in pairs, in that of one size


def held_out(data: Data, relevance: np.ndarray, rest: np.ndarray, variance: np.ndarray | None = None) -> np.ndarray:
    """Factor (n,) on the variances (n, d): squares of the errors at pairs that were held out, over what was predicted.

    relevance (n, d), rest (n, 4): initial values. The relevances and the curve are learned without each third of the
    sampled pairs; single features are in all folds, as in the fit itself. The weight of a pair is the squared share of
    its size that is not evaluated, as in the variance of that size's mean. A two-valued game, of labels or votes, is
    overfitted by chance: there these errors are more reliable than the posterior variance, if it is given.
    """
    n, m, d = data.shape
    lean = np.abs(data.rows.sum(axis=2))
    # Folds depend on the pairs and not on their order, so that the result does not depend on it either.
    place = data.rows @ np.cos(1.7 * np.arange(1, d + 1)) + 2 * d * (lean < d - 3)
    place[:, 0] = -np.inf
    data = data.reorder(np.argsort(place, axis=1))
    drawn = np.abs(data.rows.sum(axis=2)) < d - 3
    first = m - drawn.sum(axis=1).min()
    reach = relevance.mean(axis=1) * d / 4
    squares, predicted = np.zeros((2, n, m))
    for fold in range(FOLDS):
        out = np.arange(first + fold, m, FOLDS)
        kept = np.delete(np.arange(m), out)
        some = data.only(kept)
        scores = fits(some, relevance, [rest], [None])[0].scores
        learned = ascend(some, relevance_of(scores, reach), rest, STEPS)
        scores = fits(some, learned[0], [learned[1]], [None])[0].scores
        squares[:, out], predicted[:, out] = _errors(data, kept, out, *learned, curve(data, scores))
    alike, left, share = count_left(data)
    weight = drawn * (alike @ left[..., None])[..., 0] ** 2
    ratio = ((weight * squares).sum(axis=1) + 1e-300) / ((weight * predicted).sum(axis=1) + 1e-300)
    count = drawn.sum(axis=1)
    few = 1 + 2 / np.maximum(
        count, 1
    )  # about the variance of Student's t, with its scale estimated from so many errors
    factor = RESIDUAL_FACTOR * few * ratio ** (count / (count + np.where(ratio > 1, *PRIOR_PAIRS)))
    if variance is None:
        return factor
    alone = steps_variance(data, squares * drawn, alike, left, share) / np.maximum(variance.mean(axis=1), 1e-300)
    two_valued = np.isin(np.abs(data.odd), (0, 1)).all(axis=1)
    return np.where(two_valued, alone**HELD_OUT_SHARE * factor ** (1 - HELD_OUT_SHARE), factor)


def count_left(data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which pairs have each size, 1 to d // 2, (n, m, sizes), the share of it that is not evaluated, and the
    pairs per coalition: one half if both members have size d / 2."""
    d = data.shape[2]
    sizes = np.arange(1, d // 2 + 1)
    share = np.where(2 * sizes == d, 0.5, 1.0)
    alike = np.round((1 - data.lean[..., None]) * d / 2) == sizes
    every = share * np.exp(log_factorial(d) - log_factorial(sizes) - log_factorial(d - sizes))
    return alike, np.maximum(1 - alike.sum(axis=1) / every, 0), share


def steps_variance(data: Data, squares: np.ndarray, alike, left, share) -> np.ndarray:
    """Return the variance (n,) of scores by squared errors at pairs (n, m), assumed independent, with `count_left`.

    A score is the mean over sizes of a feature's slopes over the pairs; errors are those of pairs not evaluated.
    """
    m, d = data.shape[1:]
    sizes = np.arange(1, d // 2 + 1)
    number = alike.sum(axis=1)
    mean = squares.sum(axis=1, keepdims=True) / np.maximum(number[:, 1:].sum(axis=1, keepdims=True), 1)
    mean = ((squares[..., None] * alike).sum(axis=1) + POOLED_PAIRS * mean) / (number + POOLED_PAIRS)
    each = (4 * share / d) ** 2 * mean * left / (np.maximum(number, 1) * (1 - (1 - 2 * sizes / d) ** 2))
    return (1 - d / m) ** 2.5 * each.sum(axis=1)


def _errors(
    data: Data, kept: np.ndarray, out: np.ndarray, relevance: np.ndarray, rest: np.ndarray, bent: Extra
) -> tuple[np.ndarray, np.ndarray]:
    """Squares of the errors at the pairs `out` and their variances, predicted from the pairs `kept`, (n, len(out))."""
    matrix = add_rest(correlation(data.rows, relevance) + bent.covariance, data, rest)
    white, seen, _ = whiten(matrix[:, kept[:, None], kept], data.odd[:, kept], matrix[:, kept[:, None], out])
    left = np.diagonal(matrix, axis1=1, axis2=2)[:, out] - (seen**2).sum(axis=2)
    scale = (white**2).mean(axis=1, keepdims=True) + 1e-300
    return (data.odd[:, out] - (seen @ white[..., None])[..., 0]) ** 2, np.maximum(left, 1e-12) * scale
