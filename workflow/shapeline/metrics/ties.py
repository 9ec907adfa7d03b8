"""Positions by score where some scores are equal."""

import numpy as np

from shapeline.seeds import seed_of


def positions(values: np.ndarray, instances: np.ndarray, seed: int) -> np.ndarray:
    """Position of each feature in descending order of score (n, d); equal scores in random order."""
    chance = np.stack([np.random.default_rng(seed_of(seed, "ties", i)).random(values.shape[1]) for i in instances])
    order = np.lexsort((chance, -values), axis=1)
    return np.argsort(order, axis=1)  # the inverse permutation: ranks, not an ordering
