"""Sampling of the multilinear extension: Owen sampling of the Shapley value, and semivalues by the same samples."""

from collections.abc import Callable

import numpy as np

from shapeline.designs import strata
from shapeline.designs.design import Design, all_coalitions, sparse_readout, unique_rows
from shapeline.errors import ShapelineError


def owen_sampling_minimum(d: int) -> int:
    """Smallest budget of the samplers here, in evaluations: one coalition, and each feature's change to it."""
    return min(d + 1, 2**d)


def owen_sampling(d: int, budget: int, seed: int = 0) -> Design:
    """Owen sampling, halved (Okhrati & Lipani 2021): a score is the integral over q of the mean change by the feature.

    Each coalition holds every feature with probability q, and is compared with that in which one feature is moved, for
    every feature in turn; its complement, of probability 1 - q, follows. q is random within equal parts of (0, 1), so
    that the mean is unbiased, where the paper's grid is not. budget: evaluations, at least `owen_sampling_minimum(d)`;
    K <= budget, less where coalitions coincide (few features); 2^d give the Shapley value itself. Sparse readout.
    """
    d, budget = strata.check_budget("owen_sampling", d, budget, owen_sampling_minimum)
    if budget == 2 ** min(d, 62):
        from shapeline.designs.exact import shapley

        return shapley(d)
    return sample_extension(d, budget, seed, lambda uniform: uniform)


def sample_extension(d: int, budget: int, seed: int, probability: Callable[[np.ndarray], np.ndarray]) -> Design:
    """Return mean changes by each feature of random coalitions, each of a probability from `probability`; unbiased.

    The last coalition is compared for as many features as the budget allows.
    """
    rng = np.random.default_rng(seed)
    points = -(-(budget - 1) // (d + 1))  # a coalition and at least one change
    half = -(-points // 2)
    level = (rng.permutation(half) + rng.random(half)) / half
    level = np.stack([level, 1 - level], axis=1).ravel()[:points]
    number = rng.random((half, d))
    number = np.stack([number, 1 - number], axis=1).reshape(-1, d)[:points]
    base = number < probability(level)[:, None]
    compared = np.ones((points, d), bool)
    compared[-1, rng.permutation(d)[budget - (points - 1) * (d + 1) - 1 :]] = False
    point, feature = np.nonzero(compared)
    moved = base[point]
    moved[np.arange(len(point)), feature] ^= True
    masks = np.concatenate([base, moved])
    first, inverse = unique_rows(masks)
    sign = np.where(base[point, feature], 1.0, -1.0) / compared.sum(axis=0)[feature]
    rows = np.concatenate([inverse[point], inverse[points:]])
    readout = sparse_readout(d, len(first), np.tile(feature, 2), rows, np.concatenate([sign, -sign]))
    return Design(masks[first], readout)


def semivalue_minimum(d: int) -> int:
    """Smallest budget of the semivalues, in evaluations: one coalition, and each feature's change to it."""
    return owen_sampling_minimum(d)


def beta_shapley(d: int, budget: int, seed: int = 0, alpha: float = 4.0, beta: float = 1.0) -> Design:
    """Beta(alpha, beta)-Shapley value (Kwon & Zou 2022, equation 5): alpha > beta prefers small coalitions.

    Changes of S, of s features, weigh B(s + beta, d - 1 - s + alpha) / B(alpha, beta), which is the probability of S
    where each feature is held with a probability from Beta(beta, alpha); Beta(1, 1) is Shapley's. budget: evaluations,
    at least `semivalue_minimum(d)`; sampled as by `owen_sampling`, and the value itself where all 2^d are affordable.
    """
    from scipy.special import betaincinv, betaln

    for name, given in (("alpha", alpha), ("beta", beta)):
        if not 0 < given < np.inf:
            raise ShapelineError(f"beta_shapley: {name} is {given!r}; give a number above 0.")

    def log_weight(size: np.ndarray) -> np.ndarray:
        return betaln(size + beta, d - 1 - size + alpha) - betaln(alpha, beta)

    return _semivalue("beta_shapley", d, budget, seed, log_weight, lambda u: betaincinv(beta, alpha, u))


def weighted_banzhaf(d: int, budget: int, seed: int = 0, weight: float = 0.5) -> Design:
    """Weighted Banzhaf value (Li & Yu 2023): mean change where each other feature is there with probability `weight`.

    0.5 is the Banzhaf value. budget: evaluations, at least `semivalue_minimum(d)`; sampled as by `owen_sampling`, and
    the value itself where all 2^d are affordable.
    """
    if not 0 < weight < 1:
        raise ShapelineError(f"weighted_banzhaf: weight is {weight!r}; give a number between 0 and 1.")

    def log_weight(size: np.ndarray) -> np.ndarray:
        return size * np.log(weight) + (d - 1 - size) * np.log1p(-weight)

    return _semivalue("weighted_banzhaf", d, budget, seed, log_weight, lambda u: np.full(u.shape, weight))


def _semivalue(where: str, d: int, budget: int, seed: int, log_weight, probability) -> Design:
    """The exact design where the budget holds all coalitions, else the sampled one; log_weight: of S without i."""
    d, budget = strata.check_budget(where, d, budget, semivalue_minimum)
    if budget < 2 ** min(d, 62):
        return sample_extension(d, budget, seed, probability)
    masks = all_coalitions(d, where)
    weight = np.exp(log_weight(np.arange(d)))
    size = masks.sum(axis=1)
    inside, outside = weight[np.maximum(size - 1, 0)], weight[np.minimum(size, d - 1)]
    return Design(masks, np.where(masks.T, inside, -outside))
