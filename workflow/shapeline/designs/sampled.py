"""KernelSHAP, whose weights are `design.kernel_weight`, and SampleShapley, at a budget of evaluations.

The nested designs of adaptive rounds include the coalitions of smaller budgets.
"""

import math

import numpy as np

from shapeline.designs import design
from shapeline.designs.design import FIRST_ROUND, Design, check_budget
from shapeline.errors import ShapelineError

MAX_TRIES = 1000  # permutations sampled to fill the last part of a budget
MAX_TRIED_CELLS = 1 << 17  # entries of these permutations; limits their number for many features


def kernel_shap_minimum(d: int) -> int:
    """Return the smallest budget of `kernel_shap`, in evaluations: 2d, or all 2^d where that is fewer (d = 1).

    A complementary pair fixes one direction of the d - 1 that the efficiency constraint leaves, so fewer than 2d
    evaluations in pairs cannot determine the scores.
    """
    return min(2 * d, 2**d)


def sample_shapley_minimum(d: int) -> int:
    """Return the smallest budget of `sample_shapley`, in evaluations: d + 1, one permutation with both ends."""
    return d + 1


def kernel_shap(d: int, budget: int, seed: int = 0) -> design.Design:
    """Return the design of KernelSHAP: Shapley kernel least squares with both ends met exactly.

    Sizes 1 and d - 1 are enumerated, then 2 and d - 2, and so on while the remaining budget, times the sizes' share of
    the remaining kernel mass, covers them. The other sizes are sampled in complementary pairs by their mass, until the
    budget of distinct coalitions is used; the weight of a sampled row is that mass / rows sampled, and duplicates add
    up. A size that would use up the budget is not enumerated, because few samples would represent the sizes between. A
    budget just below sizes 1 and d - 1 omits one or two coalitions of size d - 1, chosen by `seed`.

    Parameters
    ----------
    d : int
        Number of features.
    budget : int
        Evaluations, at least 2 d, or 2^d where that is less; a budget of 2^d gives the Shapley value.
    seed : int
        Of the sample.

    Returns
    -------
    Design
        Masks (K, d) bool with K <= budget, and a dense readout. Scores sum to v(N) - v(empty).

    Raises
    ------
    ShapelineError
        Where the budget is below the minimum.

    References
    ----------
    Lundberg & Lee (2017), theorem 2.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs
    >>> design = designs.kernel_shap(10, budget=40, seed=1)
    >>> design.masks.shape
    (40, 10)
    >>> design.attribute(design.masks @ np.arange(1.0, 11.0)).round(6)
    array([ 1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10.])
    """
    d, budget = check_budget("kernel_shap", d, budget, kernel_shap_minimum, seed)
    if d == 1:
        return design.build_single_feature()
    rng = np.random.default_rng(seed)
    if d > 2 and budget < 2 * d + 4:
        return _fit_ends(d, budget, rng)
    remaining = budget - 2
    masks, weights, size = [], [], 1
    while 2 * size <= d:
        count = math.comb(d, size) * (1 if 2 * size == d else 2)  # of coalitions of this size and of d - size
        if count > remaining * (_compute_share(d, size) if size > 1 else 1):
            break
        coalitions = design.enumerate_size(d, size)
        masks.append(coalitions[coalitions[:, 0]] if 2 * size == d else coalitions)
        weights.append(np.full(len(masks[-1]), design.kernel_weight(d, size)))
        remaining -= 2 * len(masks[-1])
        size += 1
    if 2 * size <= d and remaining >= 2:
        pairs, counts = _sample_pairs(d, np.arange(size, d - size + 1), remaining // 2, rng)
        mass = design.compute_size_mass(d, np.arange(size, d - size + 1)).sum()
        masks.append(pairs)
        weights.append(counts * (mass / (2 * counts.sum())))
    # Each list holds one coalition of a complementary pair.
    weights = np.concatenate(weights)
    fitted = design.constrained_fit(np.concatenate(masks), weights, "kernel_shap", mirrored=True)
    return design.Design(fitted.masks, fitted.readout, weights)


def _compute_share(d: int, size: int) -> float:
    """Return the share of these two sizes in the kernel mass of sizes from `size` to d - `size`; 1 without others."""
    if 2 * size >= d - 1:
        return 1.0
    mass = design.compute_size_mass(d, np.arange(size, d - size + 1))
    return 2 * mass[0] / mass.sum()


def sample_shapley(d: int, budget: int, seed: int = 0, antithetic: bool = False) -> design.Design:
    """Return the design of the mean marginal contribution over random permutations.

    Prefixes that permutations share are evaluated once. Permutations are sampled while even distinct prefixes fit the
    budget; each later one is the one of MAX_TRIES that uses most of the remaining budget. The selection depends only
    on counts, which are invariant to renaming features, so the mean stays unbiased.

    Parameters
    ----------
    d : int
        Number of features.
    budget : int
        Evaluations, at least d + 1; all 2^d coalitions give the Shapley value itself.
    seed : int
        Of the permutations.
    antithetic : bool
        Whether each permutation is followed by its reverse.

    Returns
    -------
    Design
        Masks (K, d) bool with K <= budget, and a sparse readout. Scores sum to v(N) - v(empty).

    Raises
    ------
    ShapelineError
        Where the budget is below the minimum.

    References
    ----------
    Castro, Gómez & Tejada (2009); Štrumbelj & Kononenko (2010).

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs
    >>> design = designs.sample_shapley(10, budget=40, seed=1)
    >>> len(design.masks) <= 40
    True
    >>> design.attribute(design.masks @ np.arange(1.0, 11.0)).round(6)
    array([ 1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10.])
    """
    d, budget = check_budget("sample_shapley", d, budget, sample_shapley_minimum, seed)
    if d == 1:
        return design.build_single_feature()
    if budget == 2**d:
        from shapeline.designs.exact import shapley

        return shapley(d)
    return build_from_orders(_sample_orders(d, budget - 2, np.random.default_rng(seed), antithetic))


def build_from_orders(order: np.ndarray) -> design.Design:
    """Return the design of the mean marginal contribution over permutations (count, d), with equal prefixes merged."""
    count, d = order.shape
    rank = order.argsort(axis=1)
    # Row p*(d-1) + j - 1 holds the first j features of permutation p; the two ends follow.
    inner = (rank[:, None, :] < np.arange(1, d)[:, None]).reshape(-1, d)
    first, inverse = design.find_unique_rows(inner)
    prefix = np.zeros((count, d + 1), int)
    prefix[:, 1:d] = inverse.reshape(count, d - 1) + 1
    prefix[:, d] = len(first) + 1
    masks = np.concatenate([np.zeros((1, d), bool), inner[first], np.ones((1, d), bool)])
    features = np.tile(order.ravel(), 2)
    rows = np.concatenate([prefix[:, 1:].ravel(), prefix[:, :-1].ravel()])
    readout = design.build_sparse_readout(d, len(masks), features, rows, np.repeat([1 / count, -1 / count], count * d))
    return design.Design(masks, readout, order)


def _sample_orders(d: int, budget: int, rng: np.random.Generator, antithetic: bool) -> np.ndarray:
    """Sample as many permutations (count, d) as have at most `budget` distinct prefixes without the ends."""
    keys = sample_feature_keys(d, rng)
    orders, known = np.zeros((0, d), int), np.zeros(0, np.uint64)
    for step in (2, 1) if antithetic else (1,):  # permutations per step: pairs, then a single one
        tries = max(1, min(MAX_TRIES, MAX_TRIED_CELLS // (step * d)))
        while len(known) < budget:
            fitting = (budget - len(known)) // (step * (d - 1))  # fit even without shared prefixes
            drawn = rng.permuted(np.tile(np.arange(d), (fitting or tries, 1)), axis=1)
            drawn = drawn[:, None] if step == 1 else np.stack([drawn, drawn[:, ::-1]], axis=1)
            prefixes = compute_prefix_keys(keys, drawn)
            if not fitting:
                new = _count_new(prefixes, known)
                best = int(np.where(new <= budget - len(known), new, 0).argmax())
                if not 0 < new[best] <= budget - len(known):
                    break
                drawn, prefixes = drawn[best : best + 1], prefixes[best : best + 1]
            orders, known = np.concatenate([orders, drawn.reshape(-1, d)]), np.union1d(known, prefixes)
            if antithetic and step == 1:
                break
    return orders


def sample_feature_keys(d: int, rng: np.random.Generator) -> np.ndarray:
    """Sample 64-bit keys (d,) of the features; the exclusive or of its features' keys identifies a coalition."""
    return rng.integers(1 << 63, size=d, dtype=np.uint64) << np.uint64(1) | rng.integers(2, size=d, dtype=np.uint64)


def compute_prefix_keys(keys: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return keys (count, m (d - 1)) of the prefixes of permutations (count, m, d), without both ends."""
    return np.bitwise_xor.accumulate(keys[orders], axis=2)[:, :, :-1].reshape(len(orders), -1)


def _count_new(prefixes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the number of distinct prefixes in each row (tries, m) that are not in `known`, (tries,)."""
    ordered = np.sort(prefixes, axis=1)
    duplicate = np.zeros(ordered.shape, bool)
    duplicate[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return (~duplicate & ~np.isin(ordered, known)).sum(axis=1)


def _sample_pairs(d: int, sizes: np.ndarray, wanted: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sample `wanted` distinct complementary pairs, as the member with feature 0, and count the samples of each."""
    share = _compute_shares(d, sizes)
    drawn = np.zeros((0, d), bool)
    while True:
        drawn = np.concatenate([drawn, _sample_members(d, sizes, share, wanted, rng)])
        first, inverse = design.find_unique_rows(drawn)
        if len(first) >= wanted:
            break
    # Stop at the sample that completes the budget.
    last = np.sort(first)[wanted - 1]
    selected = first <= last
    return drawn[first[selected]], np.bincount(inverse[: last + 1], minlength=len(first))[selected]


def _fit_ends(d: int, budget: int, rng: np.random.Generator) -> design.Design:
    """Return all coalitions of size 1 and as many of size d-1 as the budget holds, solved in closed form.

    A feature's n = 1 or 2 rows have the mean t; the gap v(N) - v(empty) - sum t is spread in proportion to 1/n.
    """
    dropped = rng.choice(d, size=max(0, 2 * d + 2 - budget), replace=False)
    kept = np.setdiff1d(np.arange(d), dropped)
    single = np.eye(d, dtype=bool)
    masks = np.concatenate([np.zeros((1, d), bool), single, ~single[kept], np.ones((1, d), bool)])
    share = np.ones(d)
    share[kept] = 0.5
    gap = np.concatenate([[share.sum() - 1], -share, np.full(len(kept), 0.5), [1 - len(kept) / 2]])
    readout = np.outer(share / share.sum(), gap)
    readout[:, 0] -= share
    readout[np.arange(d), 1 + np.arange(d)] += share
    readout[kept, 1 + d + np.arange(len(kept))] -= 0.5
    readout[kept, -1] += 0.5
    return design.Design(masks, readout)


BLOCK_SIZE = 64  # pairs or permutations sampled at a time, so that a larger budget continues a smaller one's sample


def grow_kernel_shap(d: int, budget: int, seed: int = 0) -> Design:
    """Return KernelSHAP with nested rounds: single features and complements, then pairs sampled by the kernel.

    budget: at least `round_minimum(d)`. The weight of a sampled pair is the kernel's mass of sizes 2 to d - 2 over the
    number of samples, and duplicates add up; with all 2^d coalitions it is the fit of `kernel_shap`.
    """
    budget = _check_growth("kernel_shap", d, budget)
    if budget >= 2 ** min(d, 62):
        return kernel_shap(d, budget)
    pairs, times = _grow_pairs(d, budget // 2 - 1 - d, np.random.default_rng(seed))
    mass = design.compute_size_mass(d, np.arange(2, d - 1)).sum() / (2 * times.sum())
    weights = np.concatenate([np.full(d, design.kernel_weight(d, 1)), times * mass])
    inner = np.concatenate([np.eye(d, dtype=bool), pairs])
    fitted = design.constrained_fit(inner, weights, "kernel_shap", mirrored=True)
    return Design(fitted.masks, fitted.readout, np.stack([weights, np.arange(len(weights)) >= d]))


def grow_sample_shapley(d: int, budget: int, seed: int = 0, antithetic: bool = False) -> Design:
    """Return SampleShapley with nested rounds: permutations, or antithetic pairs; exact for all 2^d coalitions."""
    budget = _check_growth("sample_shapley", d, budget)
    if budget >= 2 ** min(d, 62):
        return sample_shapley(d, budget)
    rng = np.random.default_rng(seed)
    keys = sample_feature_keys(d, rng)
    order = np.zeros((0, 2 if antithetic else 1, d), int)
    spent = np.zeros(1)
    while spent[-1] <= budget - 2:
        more = rng.permuted(np.tile(np.arange(d), (BLOCK_SIZE, 1)), axis=1)
        more = np.stack([more, more[:, ::-1]], axis=1) if antithetic else more[:, None]
        order = np.concatenate([order, more])
        _, first = np.unique(compute_prefix_keys(keys, order), return_index=True)
        spent = np.bincount(first // (order.shape[1] * (d - 1)), minlength=len(order)).cumsum()
    return build_from_orders(order[: np.searchsorted(spent, budget - 2, side="right")].reshape(-1, d))


def round_minimum(d: int) -> int:
    """Return the smallest budget of nested rounds, in evaluations, at most 2^d."""
    return min(FIRST_ROUND * d, 2 ** min(d, 62))


def _grow_pairs(d: int, wanted: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sample `wanted` distinct pairs of sizes 2 to d - 2 as the member with feature 0, in the order of first samples,
    and count the samples of each until the last pair is found; a larger number begins with the same pairs."""
    sizes = np.arange(2, d - 1)
    share = _compute_shares(d, sizes)
    blocks, needed, first = [], 0, []
    while len(first) < wanted:
        needed += max(wanted // (4 * BLOCK_SIZE), 1) if blocks else -(-wanted // BLOCK_SIZE)
        while len(blocks) < needed:
            blocks.append(_sample_members(d, sizes, share, BLOCK_SIZE, rng))
        drawn = np.concatenate(blocks)
        first, inverse = design.find_unique_rows(drawn)
    ranked = np.argsort(first)[:wanted]
    return drawn[first[ranked]], np.bincount(inverse[: first[ranked[-1]] + 1], minlength=len(first))[ranked]


def _compute_shares(d: int, sizes: np.ndarray) -> np.ndarray:
    """Return the probability of each size under the kernel mass of `sizes`."""
    mass = design.compute_size_mass(d, sizes)
    return mass / mass.sum()


def _sample_members(d: int, sizes: np.ndarray, share: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Sample pairs with replacement, as the member (count, d) with feature 0."""
    drawn = rng.permuted(np.arange(d) < rng.choice(sizes, size=count, p=share)[:, None], axis=1)
    return drawn ^ ~drawn[:, :1]


def _check_growth(where: str, d: int, budget: int) -> int:
    budget = design.check_integer(where, "budget", budget, 0)
    if budget < round_minimum(d):
        raise ShapelineError(
            f"{where}: {budget} evaluations are too few to stop by their error at d = {d}; "
            f"max_budget {round_minimum(d)}"
        )
    return budget
