"""Closed-form moments of a Gaussian prior over games with odd orders only.

A coalition is a row z of -1 and +1 (present); the game is a sum over T of b_T prod_{i in T} z_i, where b_T of odd |T|
are independent with variance prod_{i in T} r_i, r in (0, 1) the relevance of each feature. Shapley values weigh b_T
by 2/|T| and see nothing of even orders. Beside it stands the rest: an independent value of the same variance for each
complementary pair, so that all pairs together determine the Shapley values whatever the prior.
The prior is scaled to variance 1 at each coalition. Shapes: rows (n, m, d) of +-1, relevance (n, d). Products of
all features go through logarithms, so that 10,000 of them neither overflow nor underflow.
"""

from functools import cache

import numpy as np

from shapeline.designs.design import log_factorial

MAX_NODES = 32  # of the positive half: the rule is exact to 2d terms, and to rounding where relevances stay below .95
MAX_LOG_NODES = 64
SMALLEST = -700.0  # the exponential of less is no normal number


@cache
def nodes(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positive nodes and weights of a Gauss-Legendre rule on [-1, 1], exact for even degrees up to d - 1."""
    half = min(max(1, -(-d // 4)), MAX_NODES)
    place, weight = np.polynomial.legendre.leggauss(2 * half)
    return place[half:], weight[half:]


@cache
def log_nodes(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes u and weights of integrals of f(u) (-log u) over [0, 1], exact to degree d - 1: those of f(s t)."""
    count = min(max(d, 2), MAX_LOG_NODES)
    place, weight = np.polynomial.legendre.leggauss(count)
    order = np.arange(count)
    moment = np.ones(count)
    moment[1:] = (-1.0) ** order[1:] / (order[1:] * (order[1:] + 1.0))
    terms = np.polynomial.legendre.legvander(place, count - 1) @ ((2 * order + 1) * moment)
    return (place + 1) / 2, weight / 2 * terms


def log_variance(relevance: np.ndarray) -> np.ndarray:
    """Return the log of the variance (n,) of a coalition's odd part, [prod(1 + r) - prod(1 - r)]/2, before scaling."""
    top = np.arctanh(relevance).sum(axis=-1)
    return 0.5 * np.log1p(-(relevance**2)).sum(axis=-1) + top + np.log(-np.expm1(-2 * top) / 2)


def hyperbolic(rows: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sinh(M), the correlation of odd parts, and cosh(M) over sinh(M(N, N)), M = sum_i artanh(r_i) z_i z'_i."""
    up, down, scale = _exponentials(rows, relevance)
    odd = up - down
    up += down
    odd /= scale
    up /= scale
    return odd, up


def correlation(rows: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """Return the prior correlation (n, m, m) of the odd parts (v(S) - v(complement))/2 of coalitions."""
    up, down, scale = _exponentials(rows, relevance)
    up -= down
    up /= scale
    return up


def _exponentials(rows: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return exp(M) and exp(-M) (n, m, m) over exp(M(N, N)), in place, and their difference at M(N, N) (n, 1, 1)."""
    weight = np.arctanh(relevance)
    up = (rows * weight[..., None, :]) @ rows.swapaxes(-1, -2)
    top = weight.sum(axis=-1)[..., None, None]
    least = -2 * top
    if least.min() < SMALLEST:
        down = np.exp(-up - top)
        return np.exp(up - top), down, -np.expm1(least)
    up -= top
    np.exp(up, out=up)
    return up, np.exp(least) / up, -np.expm1(least)


def score_covariance(rows: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """Return the prior covariance (n, m, d) of odd parts and Shapley values: 2 r_i z_i ∫ even of prod_{j != i} (1 + t
    r_j z_j)."""
    place, weight = nodes(rows.shape[-1])
    scaled = place[:, None] * relevance[..., None, :]
    base = 0.5 * np.log1p(-(scaled**2)).sum(axis=-1) - log_variance(relevance)[..., None]
    sums = rows @ np.arctanh(scaled).swapaxes(-1, -2)
    up = weight * np.exp(base[..., None, :] + sums)
    down = weight * np.exp(base[..., None, :] - sums)
    without = 1 / (1 - scaled**2)
    odd = (up - down) @ (without * scaled)
    return relevance[..., None, :] * (rows * ((up + down) @ without) - odd)


def score_variance(relevance: np.ndarray) -> np.ndarray:
    """Return the prior variance (n, d) of Shapley values: 4 r_i ∫∫ even of prod_{j != i} (1 + s t r_j)."""
    place, weight = log_nodes(relevance.shape[-1])
    total = 0.0
    for sign in (1, -1):
        scaled = sign * place[:, None] * relevance[..., None, :]
        product = np.exp(np.log1p(scaled).sum(axis=-1) - log_variance(relevance)[..., None])
        total = total + weight @ (product[..., None] / (1 + scaled))
    return 2 * relevance * total


def rest_weights(rows: np.ndarray) -> np.ndarray:
    """Return the weight (n, m, d) of each complementary pair's odd part in the Shapley values."""
    d = rows.shape[-1]
    sizes = np.arange(1, d + 1)
    of_size = 2 * np.exp(log_factorial(sizes - 1) + log_factorial(d - sizes) - log_factorial(d))
    size = np.round((rows.sum(axis=-1, keepdims=True) + d) / 2).astype(int)
    return rows * of_size[np.where(rows > 0, size, d - size) - 1]  # of the member that holds the feature


def rest_variances(d: int) -> np.ndarray:
    """Variance of a Shapley value when every pair is independent with variance 1: its parts (d,) by the sizes, from 1,
    of the coalitions with the feature."""
    others = np.arange(d)
    counts = log_factorial(d - 1) - log_factorial(others) - log_factorial(d - 1 - others)
    return 4 / d**2 * np.exp(-counts)
