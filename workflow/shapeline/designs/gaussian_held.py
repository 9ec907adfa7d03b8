"""How far the posterior of a Gaussian process over coalitions is off, by pairs held out of the whole fit.

Likelihood and leave-one-out errors are too sure of relevances learned from these pairs: by 4 at 4 d, 2 at 16 d.
"""

import numpy as np

from shapeline.designs.design import log_factorial
from shapeline.designs.gaussian_extras import curve
from shapeline.designs.gaussian_fit import Data, Extra, add_rest, ascend, fits, relevance_of, whiten
from shapeline.designs.gaussian_moments import correlation

FOLDS = 3
STEPS = 6  # of the ascent without a fold
BELIEVED = 8  # pairs that a factor of 1 counts as
FAR = 25.0  # times what was predicted, beyond which one pair's square tells no more
LESS = 0.6  # of what a factor below 1 takes off that is believed
MORE = 1.5  # power of a factor above 1: where single pairs err by more, the scores err by more than that
LINEAR_POWER = 0.6  # of the linear fit's variance in the geometric mean, times features over pairs
LINEAR_SIZE = 1.6  # variance of the linear fit's scores over that of the process, typical of 4 to 8 d
LINEAR_MOST = 4.0  # times this size, beyond which the linear fit is merely the worse one
ALONE = 0.7  # share in the geometric mean of the variance by these errors alone, where values are two
SHARED = 3  # pairs that the squared error of all sizes counts as in that of one size
WIDER = 1.2  # variance left out of the fits that are tried; with it intervals hold on games of ten kinds


def held_out(data: Data, relevance: np.ndarray, rest: np.ndarray, variance: np.ndarray | None = None) -> np.ndarray:
    """Factor (n,) on the variances (n, d): squares of the errors at pairs that were held out, over what was predicted.

    relevance (n, d), rest (n, 4): where a fit begins. The relevances and the curve are learned anew without each third
    of the pairs; only pairs that were drawn count, since of features alone all are there. Chance fits a game of two
    values, as of labels or votes, too well: there these errors say more than the posterior variance, if it is given.
    """
    n, m, d = data.shape
    lean = np.abs(data.rows.sum(axis=2))
    # By what the pairs are, not by where they stand: the answer hangs on no order.
    place = data.rows @ np.cos(1.7 * np.arange(1, d + 1)) + 2 * d * (lean < d - 3)
    place[:, 0] = -np.inf
    data = data.reorder(np.argsort(place, axis=1))
    drawn = np.abs(data.rows.sum(axis=2)) < d - 3
    reach = relevance.mean(axis=1) * d / 4
    squares = np.zeros((n, m))
    square, predicted, count = np.zeros((3, n))
    for fold in range(FOLDS):
        out = np.arange(1 + fold, m, FOLDS)
        kept = np.delete(np.arange(m), out)
        some = data.only(kept)
        scores = fits(some, relevance, [rest], [None])[0].scores
        learned = ascend(some, relevance_of(scores, reach), rest, STEPS)
        scores = fits(some, learned[0], [learned[1]], [None])[0].scores
        squares[:, out], own = _errors(data, kept, out, *learned, curve(data, scores))
        square += (np.minimum(squares[:, out], FAR * own) * drawn[:, out]).sum(axis=1)
        predicted += (own * drawn[:, out]).sum(axis=1)
        count += drawn[:, out].sum(axis=1)
    factor = (BELIEVED + count * square / np.maximum(predicted, 1e-300)) / (BELIEVED + count)
    factor = WIDER * np.where(factor < 1, 1 - LESS * (1 - factor), factor**MORE)
    if variance is None:
        return factor
    alone = steps_variance(data, squares * drawn) / np.maximum(variance.mean(axis=1), 1e-300)
    two_valued = np.isin(np.abs(data.odd), (0, 1)).all(axis=1)
    return np.where(two_valued, alone**ALONE * factor ** (1 - ALONE), factor)


def steps_variance(data: Data, squares: np.ndarray) -> np.ndarray:
    """Return the variance (n,) of scores by squared errors at pairs (n, m), taken to be independent.

    A score is the mean over sizes of a feature's slopes among their pairs, of which those not evaluated err.
    """
    m, d = data.shape[1:]
    sizes = np.arange(1, d // 2 + 1)
    alike = np.round((1 - data.lean[..., None]) * d / 2) == sizes
    number = alike.sum(axis=1)
    drawn = number * (sizes > 1)
    mean = squares.sum(axis=1, keepdims=True) / np.maximum(drawn.sum(axis=1, keepdims=True), 1)
    mean = ((squares[..., None] * alike).sum(axis=1) + SHARED * mean) / (number + SHARED)
    middle = np.where(2 * sizes == d, 0.5, 1.0)
    every = middle * np.exp(log_factorial(d) - log_factorial(sizes) - log_factorial(d - sizes))
    left = np.maximum(1 - number / every, 0)
    each = (4 * middle / d) ** 2 * mean * left / (np.maximum(number, 1) * (1 - (1 - 2 * sizes / d) ** 2))
    return (1 - d / m) ** 2.5 * each.sum(axis=1)


def temper_by_linear_fit(data: Data, variance: np.ndarray) -> np.ndarray:
    """Return the factor (n,) that moves variances (n, d) towards those of a linear fit, which few pairs vary less."""
    rows, odd = data.rows[:, 1:], data.odd[:, 1:, None]
    m, d = rows.shape[1:]
    inverse = np.linalg.pinv(rows.swapaxes(1, 2) @ rows, hermitian=True)
    residual = odd - rows @ (inverse @ (rows.swapaxes(1, 2) @ odd))
    linear = (residual**2).sum(axis=(1, 2)) / max(m - d, 1) * 4 * np.trace(inverse, axis1=1, axis2=2) / d
    ratio = linear / LINEAR_SIZE / np.maximum(variance.mean(axis=1), 1e-300)
    return np.clip(ratio, 1e-12, LINEAR_MOST) ** (LINEAR_POWER * d / (m + 1))


def _errors(
    data: Data, kept: np.ndarray, out: np.ndarray, relevance: np.ndarray, rest: np.ndarray, bent: Extra
) -> tuple[np.ndarray, np.ndarray]:
    """Squares of the errors at the pairs `out` and their variances, predicted from the pairs `kept`, (n, len(out))."""
    matrix = add_rest(correlation(data.rows, relevance) + bent.covariance, data, rest)
    white, seen, _ = whiten(matrix[:, kept[:, None], kept], data.odd[:, kept], matrix[:, kept[:, None], out])
    left = np.diagonal(matrix, axis1=1, axis2=2)[:, out] - (seen**2).sum(axis=2)
    scale = (white**2).mean(axis=1, keepdims=True) + 1e-300
    return (data.odd[:, out] - (seen @ white[..., None])[..., 0]) ** 2, np.maximum(left, 1e-12) * scale
