"""A custom method: Banzhaf values from random coalitions, by one mean with and one without each feature."""

import numpy as np

from shapeline.designs.design import Design


def halves(d: int, budget: int, seed: int, paired: bool = True) -> Design:
    """Return random coalitions; the score of a feature is the mean value with it minus the mean value without it.

    d: number of features; budget: maximum number of evaluations; seed: of the sample. paired: each coalition comes with
    its complement, so that every feature is in half of the coalitions. (J. T. Wang, R. Jia (2023), Data Banzhaf,
    AISTATS: the "maximum sample reuse" estimator.)
    """
    random = np.random.default_rng(seed)
    masks = random.random((budget // 2 if paired else budget, d)) < 0.5
    masks = np.unique(np.concatenate([masks, ~masks]) if paired else masks, axis=0)  # evaluated once each
    with_it, without = masks.sum(0).clip(1), (~masks).sum(0).clip(1)
    return Design(masks, np.where(masks, 1 / with_it, -1 / without).T)
