"""Unbiased KernelSHAP: the Shapley kernel's normal equations with their matrix exact and their right side sampled."""

import numpy as np

from shapeline.designs import strata
from shapeline.designs.design import Design, only_feature, size_mass


def unbiased_kernel_shap_minimum(d: int) -> int:
    """Smallest budget of `unbiased_kernel_shap`, in evaluations: both ends and one pair, or all 2^d."""
    return min(4, 2**d)


def unbiased_kernel_shap(d: int, budget: int, seed: int = 0) -> Design:
    """Unbiased KernelSHAP with paired sampling (Covert & Lee 2021, §3.2 and 4.2).

    The matrix of the fit is known, its inverse too (I and J), so a score is (v(N) - v(empty))/d + d/(d-1) times the sum
    over S of k(s) (1[i in S] - s/d) v(S), whose mean over drawn coalitions is unbiased. Pairs are drawn without
    replacement and weigh 1 / the probability that they are drawn, where the paper samples each anew: a budget then buys
    distinct coalitions. budget: evaluations, at least `unbiased_kernel_shap_minimum(d)`; K = budget, less one where a
    pair would be cut. Dense readout; scores sum to v(N) - v(empty), and are exact where all coalitions are evaluated.
    """
    d, budget = strata.checked("unbiased_kernel_shap", d, budget, unbiased_kernel_shap_minimum)
    if d == 1:
        return only_feature()
    rng, sizes = np.random.default_rng(seed), np.arange(1, d // 2 + 1)
    mass = size_mass(d, sizes) * np.where(2 * sizes == d, 0.5, 1.0)
    expected, counts = strata.allotted(mass, strata.available(d), budget // 2 - 1, rng)
    pairs = strata.draw(d, counts, rng)
    size = pairs.sum(axis=1)
    inner = (d / (d - 1)) * (mass / expected)[size - 1] * (pairs.T - size / d)
    ends = np.zeros((1, d), bool)
    return Design(
        np.concatenate([ends, pairs, ~pairs, ~ends]),
        np.column_stack([np.full(d, -1 / d), inner, -inner, np.full(d, 1 / d)]),
    )
