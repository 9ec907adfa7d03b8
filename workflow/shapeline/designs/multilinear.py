"""Sampling of the multilinear extension: Owen sampling of the Shapley value, and other semivalues by the same draw."""

from collections.abc import Callable

import numpy as np

from shapeline.designs import strata
from shapeline.designs.design import Design, sparse_readout, unique_rows


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
    d, budget = strata.checked("owen_sampling", d, budget, owen_sampling_minimum)
    if budget == 2 ** min(d, 62):
        from shapeline.designs.exact import shapley

        return shapley(d)
    return sampled(d, budget, seed, lambda uniform: uniform)


def sampled(d: int, budget: int, seed: int, probability: Callable[[np.ndarray], np.ndarray]) -> Design:
    """Mean change by each feature of random coalitions, each holding every feature with a probability of its own.

    probability: from uniform numbers in (0, 1) to these; it grows. The last coalition is compared for as many features
    as the budget allows, drawn at random. Unbiased.
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
