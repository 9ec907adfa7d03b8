"""Controls: scorers that know nothing, so that a method has something to beat."""

from collections.abc import Sequence

import numpy as np

from shapeline.seeds import seed_of


def random(d: int, instances: Sequence[int], seed: int) -> tuple[np.ndarray, int]:
    """Standard normal scores (n, d), drawn afresh for each instance by its id; no evaluations."""
    return np.stack([np.random.default_rng(seed_of(seed, instance)).standard_normal(d) for instance in instances]), 0
