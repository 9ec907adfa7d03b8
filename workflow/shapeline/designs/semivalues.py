"""Semivalues other than Shapley's: a coalition's weight is a choice, and scores share out no total."""

import numpy as np

from shapeline.designs import multilinear, strata
from shapeline.designs.design import Design, all_coalitions
from shapeline.errors import ShapelineError


def semivalue_minimum(d: int) -> int:
    """Smallest budget of the semivalues, in evaluations: one coalition, and each feature's change to it."""
    return multilinear.owen_sampling_minimum(d)


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
    d, budget = strata.checked(where, d, budget, semivalue_minimum)
    if budget < 2 ** min(d, 62):
        return multilinear.sampled(d, budget, seed, probability)
    masks = all_coalitions(d, where)
    weight = np.exp(log_weight(np.arange(d)))
    size = masks.sum(axis=1)
    inside, outside = weight[np.maximum(size - 1, 0)], weight[np.minimum(size, d - 1)]
    return Design(masks, np.where(masks.T, inside, -outside))
