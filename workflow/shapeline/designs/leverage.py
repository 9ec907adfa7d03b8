"""Leverage SHAP: the Shapley kernel's fit on coalitions drawn by their leverage."""

import numpy as np

from shapeline.designs import strata
from shapeline.designs.design import Design, constrained_fit, only_feature, size_mass
from shapeline.errors import ShapelineError

TRIES = 20  # samples until one determines all scores; few fail, at the smallest budgets


def leverage_shap_minimum(d: int) -> int:
    """Smallest budget of `leverage_shap`, in evaluations: d - 1 pairs and both ends, or all 2^d."""
    return min(2 * d, 2**d)


def leverage_shap(d: int, budget: int, seed: int = 0) -> Design:
    """Leverage SHAP (Musco & Witter 2025, algorithm 1): every size gets as many pairs as any other, while it has them.

    A coalition's leverage in the regression is 1 / C(d, s), so the sizes are drawn alike where KernelSHAP prefers the
    ends; without replacement, each row weighing the kernel over the probability that it is drawn. budget: evaluations,
    at least `leverage_shap_minimum(d)`; K = budget, less one where a pair would be cut. The pairs of a size are as many
    as expected, rounded at random, where the paper samples them from a binomial: so the budget is met. Dense readout;
    scores sum to v(N) - v(empty), and are exact for linear values and where all coalitions are evaluated.
    """
    d, budget = strata.checked("leverage_shap", d, budget, leverage_shap_minimum)
    if d == 1:
        return only_feature()
    rng, most, sizes = np.random.default_rng(seed), strata.available(d), np.arange(1, d // 2 + 1)
    mass = np.where(2 * sizes == d, 0.5, 1.0)
    for attempt in range(TRIES):
        expected, counts = strata.allotted(mass, most, budget // 2 - 1, rng)
        pairs = strata.draw(d, counts, rng)
        # A drawn pair stands for most / expected pairs of its size, which share the size's mass.
        weights = (size_mass(d, sizes) * mass / expected)[pairs.sum(axis=1) - 1]
        try:
            return constrained_fit(pairs, weights, "leverage_shap", mirrored=True)
        except ShapelineError:
            if attempt == TRIES - 1:
                raise
    raise AssertionError
