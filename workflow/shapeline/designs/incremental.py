"""KernelSHAP and SampleShapley that grow: a larger budget keeps a smaller one's coalitions, for rounds."""

import numpy as np

from shapeline.designs import sampled
from shapeline.designs.design import FIRST_ROUND, Design, constrained_fit, kernel_weight, size_mass, unique_rows, whole
from shapeline.errors import ShapelineError

BLOCK = 64  # pairs, or orders, drawn at a time, whatever is wanted


def kernel_shap(d: int, budget: int, seed: int = 0) -> Design:
    """KernelSHAP that grows: each feature alone and its complement, then pairs drawn by the kernel (METHODS §4).

    budget: evaluations, at least `minimum(d)`. A drawn pair weighs the kernel's mass of sizes 2 to d - 2 over the pairs
    drawn, and duplicates add up; with all 2^d coalitions it is the fit of `sampled.kernel_shap`.
    """
    budget = _limit_budget("kernel_shap", d, budget)
    if budget >= 2 ** min(d, 62):
        return sampled.kernel_shap(d, budget)
    pairs, times = _pairs(d, budget // 2 - 1 - d, np.random.default_rng(seed))
    mass = size_mass(d, np.arange(2, d - 1)).sum() / (2 * times.sum())
    weights = np.concatenate([np.full(d, kernel_weight(d, 1)), times * mass])
    fitted = constrained_fit(np.concatenate([np.eye(d, dtype=bool), pairs]), weights, "kernel_shap", mirrored=True)
    return Design(fitted.masks, fitted.readout, np.stack([weights, np.arange(len(weights)) >= d]))


def sample_shapley(d: int, budget: int, seed: int = 0, antithetic: bool = False) -> Design:
    """Return SampleShapley that grows: permutations, or pairs of one and its reverse; all 2^d coalitions are exact."""
    budget = _limit_budget("sample_shapley", d, budget)
    if budget >= 2 ** min(d, 62):
        return sampled.sample_shapley(d, budget)
    rng = np.random.default_rng(seed)
    numbers = sampled.feature_numbers(d, rng)
    order = np.zeros((0, 2 if antithetic else 1, d), int)
    spent = np.zeros(1)
    while spent[-1] <= budget - 2:
        more = rng.permuted(np.tile(np.arange(d), (BLOCK, 1)), axis=1)
        more = np.stack([more, more[:, ::-1]], axis=1) if antithetic else more[:, None]
        order = np.concatenate([order, more])
        _, first = np.unique(sampled.prefix_keys(numbers, order), return_index=True)
        spent = np.bincount(first // (order.shape[1] * (d - 1)), minlength=len(order)).cumsum()
    return sampled.build_from_orders(order[: np.searchsorted(spent, budget - 2, side="right")].reshape(-1, d))


def minimum(d: int) -> int:
    """Smallest budget of the designs here, in evaluations, or all 2^d."""
    return min(FIRST_ROUND * d, 2 ** min(d, 62))


def _pairs(d: int, wanted: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`wanted` distinct pairs of sizes 2 to d - 2 in the order of their first sample, by the member with feature 0, and
    how often each was drawn by then; those of a smaller number come first."""
    sizes = np.arange(2, d - 1)
    share = size_mass(d, sizes)
    share /= share.sum()
    blocks, needed, first = [], 0, []
    while len(first) < wanted:
        needed += max(wanted // (4 * BLOCK), 1) if blocks else -(-wanted // BLOCK)
        while len(blocks) < needed:
            size = rng.choice(sizes, size=BLOCK, p=share)
            more = rng.permuted(np.arange(d) < size[:, None], axis=1)
            blocks.append(more ^ ~more[:, :1])
        drawn = np.concatenate(blocks)
        first, inverse = unique_rows(drawn)
    ranked = np.argsort(first)[:wanted]
    return drawn[first[ranked]], np.bincount(inverse[: first[ranked[-1]] + 1], minlength=len(first))[ranked]


def _limit_budget(where: str, d: int, budget: int) -> int:
    budget = whole(where, "budget", budget, 0)
    if budget < minimum(d):
        raise ShapelineError(
            f"{where}: {budget} evaluations are too few to stop by their error at d = {d}; max_budget {minimum(d)}"
        )
    return budget
