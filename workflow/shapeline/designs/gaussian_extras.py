"""What a Gaussian process over coalitions is given on top: a curve of the weighted sum, and single interactions."""

from functools import cache
from itertools import combinations

import numpy as np

from shapeline.designs.gaussian_fit import Data, Extra, add_rest, inverses
from shapeline.designs.gaussian_moments import correlation

CURVE = 0.1  # variance of the first wave, relative to a coalition's
WAVES = np.array([1.0, 2.0, 3.0, 4.0])
CURVE_PENALTY = 4.0
TERMS = 12  # single interactions at most
AMONG = 26  # features whose triples are tried, the most relevant ones
SPENT = 1e-10  # share of the scale that is left where terms explain all
LARGEST = 1e3  # variance of a term, relative to a coalition's: more would drown the rest in rounding
STRICT = 0.75  # gain in log likelihood that a term must bring, over the log of the number tried


def curve(data: Data, scores: np.ndarray) -> Extra:
    """Return odd waves of a(S), the sum of signed half scores, without their linear part.

    A model that bends a sum has interactions in proportion to products of main effects. sin(w a) is the imaginary
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
        size = np.sqrt(CURVE / power)[:, None] / wave
        bent = np.sin((data.rows @ angle[..., None])[..., 0]) - (data.rows @ linear[..., None])[..., 0]
        values.append(bent * size)
        shapley.append(score * size)
    return Extra(np.stack(values, axis=2), np.stack(shapley, axis=1), np.full(len(scores), CURVE_PENALTY))


@cache
def triples(count: int) -> np.ndarray:
    """All triples of `count` things, (3, number)."""
    return np.array(list(combinations(range(count), 3)), dtype=int).reshape(-1, 3).T


def terms(data: Data, relevance: np.ndarray, rest: np.ndarray) -> Extra | None:
    """Return single interactions of orders 1 and 3 that the prior holds too small, one by one (Tipping & Faul 2003), or
    None."""
    inverse = inverses(add_rest(correlation(data.rows, relevance), data, rest))
    top = np.argsort(-relevance, axis=1)[:, :AMONG]
    tried, own = _try_scales(np.take_along_axis(data.rows, top[:, None, :], axis=2), inverse)
    members = np.concatenate([top[:, triples(top.shape[1]).T], np.repeat(top[:, :, None], 3, axis=2)], axis=1)
    values, scores, number = _forward(data, inverse, tried, own, members)
    if not number.any():
        return None
    # An instance without terms has no such fit, whatever its neighbours have.
    return Extra(values, scores, np.where(number > 0, number * STRICT * np.log(tried.shape[2]), np.inf))


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
    values, scores, number = np.zeros((n, m, TERMS)), np.zeros((n, TERMS, d)), np.zeros(n, int)
    for step in range(TERMS):
        ratio = np.maximum(fitted**2 / (scale[:, None] * own), 1)
        best = ratio.argmax(axis=1)
        ratio = ratio[each, best]
        gains = 0.5 * (ratio - 1 - np.log(ratio)) > STRICT * np.log(tried.shape[2])
        gains &= scale > SPENT * whole
        if not gains.any():
            break
        size = np.where(gains, np.minimum((ratio - 1) / own[each, best], LARGEST), 0.0)
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
