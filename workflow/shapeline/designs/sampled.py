"""KernelSHAP, whose weights are `design.kernel_weight`, and SampleShapley, at a budget of evaluations.

The nested designs of adaptive rounds include the coalitions of smaller budgets.
"""

import numpy as np

from shapeline.designs import design
from shapeline.designs.design import FIRST_ROUND, Design, constrained_fit, kernel_weight, size_mass, unique_rows, whole
from shapeline.errors import ShapelineError

TRIES = 1000  # permutations sampled for the last part of a budget
MAX_TRIED_CELLS = 1 << 17  # of these permutations; it limits their number for many features


def kernel_shap_minimum(d: int) -> int:
    """Return the smallest budget of `kernel_shap`, in evaluations: 2d, or all 2^d where that is fewer (d = 1).

    A complementary pair fixes one direction of the d - 1 that the efficiency constraint leaves, so fewer than 2d
    evaluations in pairs cannot determine the scores.
    """
    return min(2 * d, 2**d)


def sample_shapley_minimum(d: int) -> int:
    """Return the smallest budget of `sample_shapley`, in evaluations: d + 1, one permutation with both of its ends."""
    return d + 1


def kernel_shap(d: int, budget: int, seed: int = 0) -> design.Design:
    """Return the design of KernelSHAP: Shapley kernel least squares with both ends met exactly.

    Sizes 1 and d - 1 are enumerated whole, then 2 and d - 2, and so on while their share of the kernel mass of the
    remaining budget covers them. The rest is sampled in complementary pairs from the mass of the other sizes until the
    budget of distinct coalitions is used; the weight of a sampled row is that mass / rows sampled, and duplicates add
    up. A size that would use up the budget is not enumerated, because few samples would represent all sizes between. A
    budget just below sizes 1 and d - 1 omits one or two coalitions of size d - 1, by `seed`.

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
    d, budget = _limit_budget("kernel_shap", d, budget, kernel_shap_minimum)
    if d == 1:
        return design.only_feature()
    rng = np.random.default_rng(seed)
    if d > 2 and budget < 2 * d + 4:
        return _ends(d, budget, rng)
    left = budget - 2
    masks, weights, size = [], [], 1
    while 2 * size <= d and design.size_count(d, size) <= left * (_share(d, size) if size > 1 else 1):
        lower = design.subsets_of_size(d, size)
        masks.append(lower[lower[:, 0]] if 2 * size == d else lower)
        weights.append(np.full(len(masks[-1]), design.kernel_weight(d, size)))
        left -= 2 * len(masks[-1])
        size += 1
    if 2 * size <= d and left >= 2:
        pairs, counts = _pairs(d, np.arange(size, d - size + 1), left // 2, rng)
        mass = design.size_mass(d, np.arange(size, d - size + 1)).sum()
        masks.append(pairs)
        weights.append(counts * (mass / (2 * counts.sum())))
    # Each list holds one coalition of a complementary pair.
    weights = np.concatenate(weights)
    fitted = design.constrained_fit(np.concatenate(masks), weights, "kernel_shap", mirrored=True)
    return design.Design(fitted.masks, fitted.readout, weights)


def _share(d: int, size: int) -> float:
    """Return the share of these two sizes in the kernel mass of sizes from `size` to d - `size`; 1 without others."""
    if 2 * size >= d - 1:
        return 1.0
    mass = design.size_mass(d, np.arange(size, d - size + 1))
    return 2 * mass[0] / mass.sum()


def sample_shapley(d: int, budget: int, seed: int = 0, antithetic: bool = False) -> design.Design:
    """Return the design of the mean marginal contribution over random permutations.

    Prefixes that permutations share are evaluated once, so permutations are sampled until the distinct coalitions reach
    the budget; one that would exceed it is sampled again, and the one of TRIES that uses most of the rest is selected.
    The selection depends only on counts, which are invariant to renaming features, so the mean stays unbiased.

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
    d, budget = _limit_budget("sample_shapley", d, budget, sample_shapley_minimum)
    if d == 1:
        return design.only_feature()
    if d < 64 and budget >= 2**d:
        from shapeline.designs.exact import shapley

        return shapley(d)
    return build_from_orders(_orders(d, budget - 2, np.random.default_rng(seed), antithetic))


def build_from_orders(order: np.ndarray) -> design.Design:
    """Build the mean of marginal contributions along permutations (count, d) of the features, with merged prefixes."""
    count, d = order.shape
    rank = order.argsort(axis=1)
    # Row p*(d-1) + j - 1 holds the first j features of permutation p; the two ends follow.
    inner = (rank[:, None, :] < np.arange(1, d)[:, None]).reshape(-1, d)
    first, inverse = design.unique_rows(inner)
    prefix = np.zeros((count, d + 1), int)
    prefix[:, 1:d] = inverse.reshape(count, d - 1) + 1
    prefix[:, d] = len(first) + 1
    masks = np.concatenate([np.zeros((1, d), bool), inner[first], np.ones((1, d), bool)])
    features = np.tile(order.ravel(), 2)
    rows = np.concatenate([prefix[:, 1:].ravel(), prefix[:, :-1].ravel()])
    readout = design.sparse_readout(d, len(masks), features, rows, np.repeat([1 / count, -1 / count], count * d))
    return design.Design(masks, readout, order)


def _orders(d: int, budget: int, rng: np.random.Generator, antithetic: bool) -> np.ndarray:
    """Sample as many permutations (count, d) as have at most `budget` distinct prefixes, not counting the ends."""
    numbers = feature_numbers(d, rng)
    orders, seen = np.zeros((0, d), int), np.zeros(0, np.uint64)
    for runs in (2, 1) if antithetic else (1,):  # permutations per step: pairs, then a single one
        tries = max(1, min(TRIES, MAX_TRIED_CELLS // (runs * d)))
        while len(seen) < budget:
            fitting = (budget - len(seen)) // (runs * (d - 1))  # fit even without shared prefixes
            drawn = rng.permuted(np.tile(np.arange(d), (fitting or tries, 1)), axis=1)
            drawn = drawn[:, None] if runs == 1 else np.stack([drawn, drawn[:, ::-1]], axis=1)
            prefixes = prefix_keys(numbers, drawn)
            if not fitting:
                new = _count_new(prefixes, seen)
                best = int(np.where(new <= budget - len(seen), new, 0).argmax())
                if not 0 < new[best] <= budget - len(seen):
                    break
                drawn, prefixes = drawn[best : best + 1], prefixes[best : best + 1]
            orders, seen = np.concatenate([orders, drawn.reshape(-1, d)]), np.union1d(seen, prefixes)
            if antithetic and runs == 1:
                break
    return orders


def feature_numbers(d: int, rng: np.random.Generator) -> np.ndarray:
    """Return random 64-bit numbers (d,) of the features; the exclusive or of its features identifies a coalition."""
    return rng.integers(1 << 63, size=d, dtype=np.uint64) << np.uint64(1) | rng.integers(2, size=d, dtype=np.uint64)


def prefix_keys(numbers: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return keys (count, runs x (d - 1)) of the prefixes of permutations (count, runs, d), without both ends."""
    return np.bitwise_xor.accumulate(numbers[orders], axis=2)[:, :, :-1].reshape(len(orders), -1)


def _count_new(prefixes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return how many distinct prefixes of each row (tries, m) are not in `seen`, (tries,)."""
    ordered = np.sort(prefixes, axis=1)
    again = np.zeros(ordered.shape, bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return (~again & ~np.isin(ordered, seen)).sum(axis=1)


def _limit_budget(where: str, d: int, budget: int, minimum) -> tuple[int, int]:
    d, budget = design.whole(where, "d", d, 1), design.whole(where, "budget", budget, 0)
    if budget < minimum(d):
        raise ShapelineError(
            f"{where}: budget is {budget} evaluations and the minimum for d = {d} is {minimum(d)}; raise it."
        )
    return d, budget


def _pairs(d: int, sizes: np.ndarray, wanted: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sample `wanted` distinct complementary pairs, as the member with feature 0, and count their draws."""
    share = design.size_mass(d, sizes)
    share /= share.sum()
    drawn = np.zeros((0, d), bool)
    while True:
        size = rng.choice(sizes, size=wanted, p=share)
        more = rng.permuted(np.arange(d) < size[:, None], axis=1)
        more ^= ~more[:, :1]
        drawn = np.concatenate([drawn, more])
        first, inverse = design.unique_rows(drawn)
        if len(first) >= wanted:
            break
    # Stop at the sample that completes the budget.
    last = np.sort(first)[wanted - 1]
    kept = first[first <= last]
    return drawn[kept], np.bincount(inverse[: last + 1], minlength=len(first))[first <= last]


def _ends(d: int, budget: int, rng: np.random.Generator) -> design.Design:
    """Return all coalitions of size 1 and as many of size d-1 as the budget holds, solved in closed form.

    A feature's n = 1 or 2 rows have the mean t; the gap v(N) - v(empty) - sum t is spread in proportion to 1/n.
    """
    dropped = rng.choice(d, size=max(0, 2 * d + 2 - budget), replace=False)
    kept = np.setdiff1d(np.arange(d), dropped)
    alone = np.eye(d, dtype=bool)
    masks = np.concatenate([np.zeros((1, d), bool), alone, ~alone[kept], np.ones((1, d), bool)])
    share = np.ones(d)
    share[kept] = 0.5
    gap = np.concatenate([[share.sum() - 1], -share, np.full(len(kept), 0.5), [1 - len(kept) / 2]])
    readout = np.outer(share / share.sum(), gap)
    readout[:, 0] -= share
    readout[np.arange(d), 1 + np.arange(d)] += share
    readout[kept, 1 + d + np.arange(len(kept))] -= 0.5
    readout[kept, -1] += 0.5
    return design.Design(masks, readout)


BLOCK = 64  # pairs or orders that are sampled at a time, for any budget


def grow_kernel_shap(d: int, budget: int, seed: int = 0) -> Design:
    """Return KernelSHAP with nested rounds: single features and complements, then pairs sampled by the kernel.

    budget: at least `round_minimum(d)`. The weight of a sampled pair is the kernel's mass of sizes 2 to d - 2 over the
    number of samples, and duplicates add up; with all 2^d coalitions it is the fit of `kernel_shap`.
    """
    budget = _check_growth("kernel_shap", d, budget)
    if budget >= 2 ** min(d, 62):
        return kernel_shap(d, budget)
    pairs, times = _grow_pairs(d, budget // 2 - 1 - d, np.random.default_rng(seed))
    mass = size_mass(d, np.arange(2, d - 1)).sum() / (2 * times.sum())
    weights = np.concatenate([np.full(d, kernel_weight(d, 1)), times * mass])
    fitted = constrained_fit(np.concatenate([np.eye(d, dtype=bool), pairs]), weights, "kernel_shap", mirrored=True)
    return Design(fitted.masks, fitted.readout, np.stack([weights, np.arange(len(weights)) >= d]))


def grow_sample_shapley(d: int, budget: int, seed: int = 0, antithetic: bool = False) -> Design:
    """Return SampleShapley with nested rounds: permutations, or antithetic pairs; exact for all 2^d coalitions."""
    budget = _check_growth("sample_shapley", d, budget)
    if budget >= 2 ** min(d, 62):
        return sample_shapley(d, budget)
    rng = np.random.default_rng(seed)
    numbers = feature_numbers(d, rng)
    order = np.zeros((0, 2 if antithetic else 1, d), int)
    spent = np.zeros(1)
    while spent[-1] <= budget - 2:
        more = rng.permuted(np.tile(np.arange(d), (BLOCK, 1)), axis=1)
        more = np.stack([more, more[:, ::-1]], axis=1) if antithetic else more[:, None]
        order = np.concatenate([order, more])
        _, first = np.unique(prefix_keys(numbers, order), return_index=True)
        spent = np.bincount(first // (order.shape[1] * (d - 1)), minlength=len(order)).cumsum()
    return build_from_orders(order[: np.searchsorted(spent, budget - 2, side="right")].reshape(-1, d))


def round_minimum(d: int) -> int:
    """Return the smallest budget of the designs here, in evaluations, or all 2^d."""
    return min(FIRST_ROUND * d, 2 ** min(d, 62))


def _grow_pairs(d: int, wanted: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
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


def _check_growth(where: str, d: int, budget: int) -> int:
    budget = whole(where, "budget", budget, 0)
    if budget < round_minimum(d):
        raise ShapelineError(
            f"{where}: {budget} evaluations are too few to stop by their error at d = {d}; "
            f"max_budget {round_minimum(d)}"
        )
    return budget
