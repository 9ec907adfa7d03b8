"""A Gaussian process over coalitions fitted to values: relevances and noise by likelihood, scores by their mixture.

Arrays are stacked over instances: rows (n, m, d) of +-1 for m pairs, N first; odd (n, m) odd parts of values, of scale
1; noise (n, m) the variance of an incomplete pair, else 0. Covariances are relative to a coalition's prior variance.

The prior has odd orders only, and its moments closed forms. A coalition is a row z of -1 and +1 (present); the game is
a sum over T of b_T prod_{i in T} z_i, where b_T of odd |T| are independent with variance prod_{i in T} r_i, r in (0, 1)
the relevance of each feature, relevance (n, d). Shapley values weigh b_T by 2/|T| and see nothing of even orders.
Beside it stands the rest: an independent value of the same variance for each complementary pair, so that all pairs
together determine the Shapley values whatever the prior. The prior is scaled to variance 1 at each coalition. Products
of all features go through logarithms, so that 10,000 of them neither overflow nor underflow.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from shapeline.designs.design import invert_factor, log_factorial

REACH = (0.03, 0.1, 0.3, 0.8)  # a quarter of the sum of the relevances: near 0, only main effects
REST = (1e-6, 1e-3, 3e-2)  # variance outside the prior, relative to a coalition's
RELEVANCES = MIN_RELEVANCE, MAX_RELEVANCE = 1e-4, 0.95
MAX_REST = 30.0
MAX_SLOPE = 8.0  # of the logarithm of the ratio of the rest at the ends and at half of the features
SLOPE_SPREAD = 2.0  # its prior standard deviation
ENDS_GAIN = 2.0  # minimum gain in the criterion by a variance of the ends
MAX_ENDS = 1e4  # largest variance of the ends, relative to a coalition's
SIZES = (1e-3, 1e-2, 1e-1)  # variance that coalitions of a size share
SIZES_GAIN = 10.0  # minimum gain in the criterion by this variance
JITTER = 1e-10
MIN_PAIRS = 1.4  # per feature: with fewer the likelihood is too flat to select a fit
LINEAR_SHARE = 0.6  # of the linear fit in the scores, with fewer
STEPS, RATE = 10, 0.25  # of the ascent of the likelihood, in log relevance
NEARBY = {0.2: (0.2, 1.0), 0.5: (0.2, 1.0), 1.0: (0.2, 1.0, 5.0), 1.5: (1.0,)}  # factors on relevances and the rest
NEARBY_COST = 4.0  # of the criterion, times the squared logarithm of the factor on the relevances
LEARNING_COST = 0.5  # of the criterion per learned relevance
MAX_NODES = 32  # of the positive half: the rule is exact to 2d terms, and to rounding where relevances stay below .95
MAX_LOG_NODES = 64
SMALLEST = -700.0  # the exponential of less is no normal number


@cache
def build_nodes(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positive nodes and weights of a Gauss-Legendre rule on [-1, 1], exact for even degrees up to d - 1."""
    half = min(max(1, -(-d // 4)), MAX_NODES)
    place, weight = np.polynomial.legendre.leggauss(2 * half)
    return place[half:], weight[half:]


@cache
def build_log_nodes(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes u and weights of integrals of f(u) (-log u) over [0, 1], exact to degree d - 1: those of f(s t)."""
    count = min(max(d, 2), MAX_LOG_NODES)
    place, weight = np.polynomial.legendre.leggauss(count)
    order = np.arange(count)
    moment = np.ones(count)
    moment[1:] = (-1.0) ** order[1:] / (order[1:] * (order[1:] + 1.0))
    terms = np.polynomial.legendre.legvander(place, count - 1) @ ((2 * order + 1) * moment)
    return (place + 1) / 2, weight / 2 * terms


def compute_log_variance(relevance: np.ndarray) -> np.ndarray:
    """Return the log of the variance (n,) of a coalition's odd part, [prod(1 + r) - prod(1 - r)]/2, before scaling."""
    top = np.arctanh(relevance).sum(axis=-1)
    return 0.5 * np.log1p(-(relevance**2)).sum(axis=-1) + top + np.log(-np.expm1(-2 * top) / 2)


def compute_hyperbolic(rows: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sinh(M), the correlation of odd parts, and cosh(M) over sinh(M(N, N)), M = sum_i artanh(r_i) z_i z'_i."""
    up, down, scale = _exponentials(rows, relevance)
    odd = up - down
    up += down
    odd /= scale
    up /= scale
    return odd, up


def compute_correlation(rows: np.ndarray, relevance: np.ndarray) -> np.ndarray:
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


def compute_score_covariance(rows: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """Return the prior covariance (n, m, d) of odd parts and Shapley values: 2 r_i z_i ∫ even of prod_{j != i} (1 + t
    r_j z_j)."""
    place, weight = build_nodes(rows.shape[-1])
    scaled = place[:, None] * relevance[..., None, :]
    base = 0.5 * np.log1p(-(scaled**2)).sum(axis=-1) - compute_log_variance(relevance)[..., None]
    sums = rows @ np.arctanh(scaled).swapaxes(-1, -2)
    up = weight * np.exp(base[..., None, :] + sums)
    down = weight * np.exp(base[..., None, :] - sums)
    without = 1 / (1 - scaled**2)
    odd = (up - down) @ (without * scaled)
    return relevance[..., None, :] * (rows * ((up + down) @ without) - odd)


def compute_prior_variance(relevance: np.ndarray) -> np.ndarray:
    """Return the prior variance (n, d) of Shapley values: 4 r_i ∫∫ even of prod_{j != i} (1 + s t r_j)."""
    place, weight = build_log_nodes(relevance.shape[-1])
    total = 0.0
    for sign in (1, -1):
        scaled = sign * place[:, None] * relevance[..., None, :]
        product = np.exp(np.log1p(scaled).sum(axis=-1) - compute_log_variance(relevance)[..., None])
        total = total + weight @ (product[..., None] / (1 + scaled))
    return 2 * relevance * total


def compute_rest_weights(rows: np.ndarray) -> np.ndarray:
    """Return the weight (n, m, d) of each complementary pair's odd part in the Shapley values."""
    d = rows.shape[-1]
    sizes = np.arange(1, d + 1)
    of_size = 2 * np.exp(log_factorial(sizes - 1) + log_factorial(d - sizes) - log_factorial(d))
    size = np.round((rows.sum(axis=-1, keepdims=True) + d) / 2).astype(int)
    return rows * of_size[np.where(rows > 0, size, d - size) - 1]  # of the member that holds the feature


def compute_variance_parts(d: int) -> np.ndarray:
    """Return parts (d,) of a Shapley value's variance if all pairs are independent with variance 1: one per size, from
    1, of the coalitions with the feature."""
    others = np.arange(d)
    counts = log_factorial(d - 1) - log_factorial(others) - log_factorial(d - 1 - others)
    return 4 / d**2 * np.exp(-counts)


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a block of instances. rest (n, m, d): weights of the pairs for a variance outside the prior; outputs
    (n, q, m): odd parts of further values, for the estimator that `odd` selects."""

    rows: np.ndarray
    odd: np.ndarray
    noise: np.ndarray
    rest: np.ndarray
    outputs: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, odd: np.ndarray, noise: np.ndarray, outputs: np.ndarray | None = None) -> "Data":
        """Build data and compute the weights of the rest."""
        n, m, _ = rows.shape
        return cls(rows, odd, noise, compute_rest_weights(rows), np.empty((n, 0, m)) if outputs is None else outputs)

    def only(self, pairs: np.ndarray) -> "Data":
        """Return the same for some of the pairs."""
        return Data(
            *(part[:, pairs] for part in (self.rows, self.odd, self.noise, self.rest)), self.outputs[..., pairs]
        )

    def reorder(self, order: np.ndarray) -> "Data":
        """Return the same with each instance's pairs in its own order (n, m)."""
        odd, noise = (np.take_along_axis(part, order, axis=1) for part in (self.odd, self.noise))
        rows, rest = (np.take_along_axis(part, order[:, :, None], axis=1) for part in (self.rows, self.rest))
        return Data(rows, odd, noise, rest, np.take_along_axis(self.outputs, order[:, None], axis=2))

    @property
    def lean(self) -> np.ndarray:
        """Distance of sizes from half of the features, relative to that half, (n, m)."""
        return np.abs(self.rows.sum(axis=2)) / self.rows.shape[2]

    @property
    def same_size(self) -> np.ndarray:
        """Correlations (n, m, m) of a part that pairs of one size share, without the ends; Shapley values ignore it."""
        size = self.rows.sum(axis=2)
        size = np.where(np.abs(size) < self.rows.shape[2], size, 0.0)
        alike = np.abs(size)[:, :, None] == np.abs(size)[:, None, :]
        return alike * np.sign(size)[:, :, None] * np.sign(size)[:, None, :]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(instances, pairs, features)."""
        return self.rows.shape


@dataclass(frozen=True, eq=False)
class Extra:
    """Functions on top of the prior with their standard deviation: values (n, m, q), scores (n, q, d), penalty (n,)."""

    values: np.ndarray
    scores: np.ndarray
    penalty: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        """Prior covariance of the pairs, (n, m, m)."""
        return self.values @ self.values.swapaxes(1, 2)

    def join(self, other: "Extra") -> "Extra":
        """Return the functions of both."""
        values = np.concatenate([self.values, other.values], axis=2)
        return Extra(values, np.concatenate([self.scores, other.scores], axis=1), self.penalty + other.penalty)


@dataclass(frozen=True, eq=False)
class Fit:
    """criterion (n,): -2 log likelihood and penalties; scores, variance (n, d) of the posterior; the same (n, q, d) of
    the further outputs."""

    criterion: np.ndarray
    scores: np.ndarray
    variance: np.ndarray
    other_scores: np.ndarray
    other_variance: np.ndarray

    def penalise(self, penalty: float) -> "Fit":
        """Return the fit with a larger criterion."""
        return dataclasses.replace(self, criterion=self.criterion + penalty)

    def widen(self, factor: np.ndarray) -> "Fit":
        """Return the fit with variances times a factor (n,), and half of the differences of their logarithms."""
        own, others = compress(self.variance), compress(self.other_variance)
        return dataclasses.replace(self, variance=own, other_variance=others).scale(factor)

    def scale(self, factor: np.ndarray) -> "Fit":
        """Return the fit with variances times a factor (n,)."""
        wider, others = self.variance * factor[:, None], self.other_variance * factor[:, None, None]
        return dataclasses.replace(self, variance=wider, other_variance=others)


def compress(variance: np.ndarray) -> np.ndarray:
    """Return variances (..., d) in proportion to their square roots, with the same mean."""
    root = np.sqrt(variance)
    return root * variance.mean(axis=-1, keepdims=True) / np.maximum(root.mean(axis=-1, keepdims=True), 1e-300)


def compute_pair_variance(data: Data, rest: np.ndarray) -> np.ndarray:
    """Return the variances (n, m) of each pair outside the prior, from rest (n, 4).

    rest: the variance at half of the features, the logarithm of its ratio at the ends, a variance of the pair of the
    ends, because many games value the empty coalition by convention, and one that all pairs of a size share, because
    many games grow with the size in a way that no single feature explains.
    """
    variance = rest[:, :1] * np.exp(rest[:, 1:2] * data.lean)
    variance[:, 0] += rest[:, 2]
    return variance


def compute_rest_variance(d: int, rest: np.ndarray) -> np.ndarray:
    """Return the prior variance (n, 1) of a Shapley value by the variance of pairs outside the prior."""
    lean = np.abs(2 * np.arange(1, d + 1) - d) / d
    of_sizes = rest[:, :1] * np.exp(rest[:, 1:2] * lean) @ compute_variance_parts(d)
    return (of_sizes + rest[:, 2] * (2 / d) ** 2)[:, None]


def add_rest(matrix: np.ndarray, data: Data, rest: np.ndarray) -> np.ndarray:
    """Return a copy of the correlations with the rest and, on their diagonal, the noise."""
    matrix = matrix + rest[:, 3, None, None] * data.same_size if rest[:, 3].any() else matrix.copy()
    each = np.arange(matrix.shape[1])
    matrix[:, each, each] += compute_pair_variance(data, rest) + data.noise + JITTER
    return matrix


def fit_ends(own, pull, power, m: int, gain: float = ENDS_GAIN) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance (n,) of the ends of highest likelihood, in closed form, and v own / (1 + v own).

    own: the inverse's entry at the ends; pull: the inverse times the data there; power: the data's quadratic form;
    gain: least.
    """
    ratio = np.clip(pull**2 / (own * power + 1e-300), 1e-12, 1 - 1e-9)
    share = np.clip((m * ratio - 1) / (ratio * max(m - 1, 1)), 0, 1 - 1e-12)
    share[np.log1p(-share) - m * np.log1p(-share * ratio) <= gain] = 0
    variance = np.minimum(share / (own * (1 - share)), MAX_ENDS)
    return variance, variance * own / (1 + variance * own)


def compute_criterion(matrix: np.ndarray, odd: np.ndarray, gain: float = ENDS_GAIN) -> tuple[np.ndarray, np.ndarray]:
    """Return -2 log likelihood (n,) up to a constant, scale and variance of the ends profiled out; this variance."""
    n, m = odd.shape
    first = np.zeros((n, m, 1))
    first[:, 0] = 1
    white, of_first, log_determinant = whiten(matrix, odd, first)
    of_first = of_first[:, 0]
    power, own, pull = (white**2).sum(axis=1), (of_first**2).sum(axis=1), (of_first * white).sum(axis=1)
    ends, share = fit_ends(own, pull, power, m, gain)
    left = np.maximum(power - share * pull**2 / own, 0)
    return m * np.log(left / m + 1e-300) + log_determinant - np.log1p(-share), ends


def fit_posteriors(data: Data, relevance: np.ndarray, rests: Iterable, extras: Iterable[Extra | None]) -> list[Fit]:
    """Return posteriors for one relevance (n, d), each of the rests (n, 4) and each of the extras."""
    base, cross = compute_correlation(data.rows, relevance), compute_score_covariance(data.rows, relevance)
    prior = compute_prior_variance(relevance)
    fitted = []
    for extra in extras:
        parts, penalty = (base, cross, prior), 0.0
        if extra is not None:
            scores = cross + extra.values @ extra.scores, prior + (extra.scores**2).sum(axis=1)
            parts = base + extra.covariance, *scores
            penalty = extra.penalty
        fitted += [compute_posterior(data, *parts, rest, penalty) for rest in rests]
    return fitted


def fit_posterior(data: Data, relevance: np.ndarray, rest: np.ndarray, extra: Extra | None = None) -> Fit:
    """Return the posterior for one relevance (n, d), one rest (n, 4) and one extra."""
    return fit_posteriors(data, relevance, [rest], [extra])[0]


def compute_posterior(data: Data, matrix, cross, prior, rest: np.ndarray, penalty) -> Fit:
    """Return the posterior of the scores under correlations `matrix`, covariances `cross` and prior variances."""
    m, d = data.shape[1:]
    cross = cross + compute_pair_variance(data, rest)[..., None] * data.rest
    right = np.concatenate([cross, data.outputs.swapaxes(1, 2)], axis=2)
    odd, seen, log_determinant = whiten(add_rest(matrix, data, rest), data.odd, right)
    seen, outputs = seen[:, :d], seen[:, d:]
    scale = (odd**2).sum(axis=1) / m + 1e-300
    scores = (seen @ odd[..., None])[..., 0]
    spread = np.maximum(prior + compute_rest_variance(d, rest) - (seen**2).sum(axis=2), 0)
    of_outputs = outputs @ seen.swapaxes(1, 2), spread[:, None] * (outputs**2).mean(axis=2, keepdims=True)
    return Fit(m * np.log(scale) + log_determinant + penalty, scores, spread * scale[:, None], *of_outputs)


def whiten(matrix: np.ndarray, odd: np.ndarray, cross: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the inverse Cholesky factor times odd and cross, as (n, m) and (n, d, m), and the log determinants."""
    from scipy.linalg.blas import dtrsm

    factor = np.linalg.cholesky(matrix)
    n, m, d = cross.shape
    white = np.empty((n, 1 + d, m))
    white[:, 0], white[:, 1:] = odd, cross.swapaxes(1, 2)
    for one, part in zip(factor, white, strict=True):  # in place, as the transposes of what the routine reads
        dtrsm(1.0, one.T, part.T, trans_a=1, overwrite_b=1)
    log_determinant = 2 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    return white[:, 0], white[:, 1:], log_determinant


def invert(matrix: np.ndarray) -> np.ndarray:
    """Return inverses of positive definite matrices (n, m, m), at half the cost of general ones."""
    found = np.linalg.cholesky(matrix)
    for one in found:
        invert_factor(one.T, lower=False)
    return found


def average_fits(fitted: list[Fit]) -> Fit:
    """Return the fits averaged by their likelihoods, instance by instance; the variance holds their disagreement."""
    value = np.array([fit.criterion for fit in fitted])
    weight = np.exp(-0.5 * (value - value.min(axis=0)))
    weight = (weight / weight.sum(axis=0))[..., None]
    own = _average(weight, [(fit.scores, fit.variance) for fit in fitted])
    others = _average(weight[..., None], [(fit.other_scores, fit.other_variance) for fit in fitted])
    return Fit(value.min(axis=0), *own, *others)


def _average(weight: np.ndarray, fitted: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of scores and variances by `weight`, with the disagreement of the scores in the variances."""
    scores = sum(w * own for w, (own, _) in zip(weight, fitted, strict=True))
    spread = sum(w * (variance + (own - scores) ** 2) for w, (own, variance) in zip(weight, fitted, strict=True))
    return scores, spread


def compute_equal_relevance(d: int, reach: float) -> float:
    """Return the relevance that all features share at a reach."""
    return min(4 * reach / d, MAX_RELEVANCE)


def compute_relevance(scores: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Return relevances (n, d) proportional to |score|, with a tenth of the mean as floor; reach (n,) or one number."""
    size = np.abs(scores)
    size = np.hypot(size, 0.1 * size.mean(axis=1, keepdims=True)) + 1e-300
    reach = np.broadcast_to(reach, len(scores))[:, None]
    return np.clip(4 * reach / scores.shape[1] * size / size.mean(axis=1, keepdims=True), MIN_RELEVANCE, MAX_RELEVANCE)


def fit_reaches(data: Data, scores: np.ndarray | None = None) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each reach relevances (n, d), equal or in proportion to scores, the likeliest rest, its criterion."""
    n, m, d = data.shape
    gain = ENDS_GAIN if m > MIN_PAIRS * d else np.inf  # with few pairs, the information of the ends is needed
    fitted = []
    for reach in REACH:
        equal = np.full((n, d), compute_equal_relevance(d, reach))
        relevance = equal if scores is None else compute_relevance(scores, reach)
        base = compute_correlation(data.rows, relevance)
        rests = np.zeros((len(REST), n, 4))
        rests[:, :, 0] = np.array(REST)[:, None]
        value = np.empty(rests.shape[:2])
        for own, rest in zip(value, rests, strict=True):
            own[:], rest[:, 2] = compute_criterion(add_rest(base, data, rest), data.odd, gain)
        fitted.append((relevance, rests[value.argmin(axis=0), np.arange(n)], value.min(axis=0)))
    return fitted


def select_best(fitted: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the relevances (n, d) and the rest (n, 4) of the reach of highest likelihood, for each instance."""
    best = np.argmin([value for _, _, value in fitted], axis=0)
    each = np.arange(len(best))
    return tuple(np.array([part[number] for part in fitted])[best, each] for number in (0, 1))


def fit_sizes(data: Data, relevance: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same relevances, and the rest with the most likely variance of the sizes, if its gain suffices."""
    base, gain = compute_correlation(data.rows, relevance), np.array([0.0] + [SIZES_GAIN] * len(SIZES))
    rests = np.repeat(rest[None], 1 + len(SIZES), axis=0)
    rests[1:, :, 3] = np.array(SIZES)[:, None]
    value = np.empty(rests.shape[:2])
    for own, one in zip(value, rests, strict=True):
        own[:], one[:, 2] = compute_criterion(add_rest(base, data, one * [1, 1, 0, 1]), data.odd)
    return relevance, rests[(value + gain[:, None]).argmin(axis=0), np.arange(len(rest))]


def maximise_likelihood(data: Data, relevance, rest, steps: int, extra: Extra | None = None) -> tuple[np.ndarray, ...]:
    """Return relevances and rest after `steps` of Adam (Kingma & Ba 2015), with priors on their logarithms."""
    d = relevance.shape[1]
    freed = rest[:, 3] > 0
    sizes = np.log(np.where(freed, rest[:, 3], 1e-3))
    place = np.column_stack([np.log(relevance), np.log(np.maximum(rest[:, 0], 1e-5)), rest[:, 1], sizes])
    first, second = np.zeros_like(place), np.zeros_like(place)
    more = None if extra is None else extra.covariance
    low = np.r_[np.full(d, np.log(MIN_RELEVANCE)), np.log(1e-8), -MAX_SLOPE, np.log(1e-8)]
    high = np.r_[np.full(d, np.log(MAX_RELEVANCE)), np.log(MAX_REST), MAX_SLOPE, np.log(MAX_REST)]
    for step in range(1, steps + 1):
        sizes = freed * np.exp(place[:, d + 2])
        slope, ends = compute_gradient(data, np.exp(place[:, :d]), np.exp(place[:, d]), place[:, d + 1], sizes, more)
        slope[:, :d] += 2 * (place[:, :d] - place[:, :d].mean(axis=1, keepdims=True))
        slope[:, [d, d + 2]] += 2 * (place[:, [d, d + 2]] - np.log(1e-3)) / 9
        slope[:, d + 1] += 2 * place[:, d + 1] / SLOPE_SPREAD**2
        first = 0.8 * first + 0.2 * slope
        second = 0.9 * second + 0.1 * slope**2
        move = first / (1 - 0.8**step) / np.sqrt(second / (1 - 0.9**step) + 1e-6)
        place = np.clip(place - RATE * move, low, high)
    sizes = freed * np.exp(place[:, d + 2])
    return np.exp(place[:, :d]), np.column_stack([np.exp(place[:, d]), place[:, d + 1], ends, sizes])


def compute_gradient(data: Data, relevance, level, lean, sizes, more=None) -> tuple[np.ndarray, np.ndarray]:
    """Return the unscaled criterion's slope (n, d + 3) in log relevance, log level, lean, log sizes; and the ends'."""
    m = data.shape[1]
    odd, even = compute_hyperbolic(data.rows, relevance)
    top_even = even[:, 0, 0].copy()  # N with itself, where odd is 1
    own = compute_pair_variance(data, np.column_stack([level, lean, 0 * level]))
    off = own + data.noise + JITTER
    matrix = odd.copy()
    matrix[:, np.arange(m), np.arange(m)] += off
    shared = sizes[:, None, None] * data.same_size if sizes.any() else np.zeros((1, 1, 1))
    matrix += shared if more is None else shared + more
    inverse = invert(matrix)
    weight = (inverse @ data.odd[..., None])[..., 0]
    column, pull = inverse[:, 0].copy(), weight[:, 0].copy()
    ends, share = fit_ends(column[:, 0], pull, (data.odd * weight).sum(axis=1), m)
    share = share / column[:, 0]
    inverse -= (column * share[:, None])[:, :, None] * column[:, None, :]
    weight -= (pull * share)[:, None] * column
    off[:, 0] += ends
    scale = (data.odd * weight).sum(axis=1) / m + 1e-300
    pull = weight[:, :, None] * (weight / scale[:, None])[:, None, :]
    pull -= inverse
    diagonal = np.diagonal(pull, axis1=1, axis2=2)
    ratio = relevance / (1 - relevance**2)
    odd *= pull
    alone = odd.sum(axis=(1, 2))
    even *= pull
    paired = (data.rows * (even @ data.rows)).sum(axis=1)
    of_top = ratio * (top_even[:, None] - relevance)
    slope = ratio * (paired - relevance * alone[:, None])
    of_sizes = np.einsum("nij,nij->n", *np.broadcast_arrays(shared, pull))
    of_more = 0.0 if more is None else np.einsum("nij,nij->n", more, pull)
    slope += ((off * diagonal).sum(axis=1) + of_sizes + of_more)[:, None] * of_top
    of_rest = own * diagonal
    return -np.column_stack([slope, of_rest.sum(axis=1), (of_rest * data.lean).sum(axis=1), of_sizes]), ends
