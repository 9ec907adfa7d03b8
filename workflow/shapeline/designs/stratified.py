"""Stratified SVARM: means of values by feature and size, with and without the feature, each coalition in d of them."""

import numpy as np

from shapeline.designs import strata
from shapeline.designs.design import Design, only_feature


def stratified_svarm_minimum(d: int) -> int:
    """Smallest budget of `stratified_svarm`, in evaluations: the sizes 0, 1, d - 1 and d, and each stratum once."""
    if d < 4:
        return 2**d
    return 2 + 2 * d + 2 * int(_first(d).sum())


def stratified_svarm(d: int, budget: int, seed: int = 0) -> Design:
    """Stratified SVARM (Kolpaczki, Bengs, Muschalik & Huellermeier 2024, algorithm 2), in complementary pairs.

    A score is the mean over sizes of the mean value with the feature less that without it; each coalition is in a
    stratum of every feature. Sizes 0, 1, d - 1 and d are evaluated whole; then a random partition into blocks of each
    size fills every stratum (the paper's warm-up; a block's complement fills those of size d - s, which halves it), and
    the rest goes to sizes in proportion to 1 / min(s, d - s), without replacement. budget: evaluations, at least
    `stratified_svarm_minimum(d)`; K = budget, less one where a pair would be cut. Dense readout; unbiased, and exact
    where all coalitions are evaluated. Scores need not sum to v(N) - v(empty).
    """
    d, budget = strata.checked("stratified_svarm", d, budget, stratified_svarm_minimum)
    if d == 1:
        return only_feature()
    rng, sizes = np.random.default_rng(seed), np.arange(1, d // 2 + 1)
    counts = np.array([1 if d == 2 else d], int)
    pairs = np.eye(d, dtype=bool)[: counts[0]]
    if d > 3:
        first = np.append(d, _first(d)).astype(int)
        mass = np.where(2 * sizes == d, 0.5, 1.0) / sizes
        _, more = strata.allotted(mass, strata.available(d) - first, budget // 2 - 1 - first.sum(), rng)
        blocks = [_blocks(d, size, rng) for size in sizes[1:]]
        pairs = strata.draw(d, first + more, rng, np.concatenate([pairs, *blocks]))
    ends = np.zeros((1, d), bool)
    masks = np.concatenate([ends, pairs, ~pairs, ~ends])
    size = masks.sum(axis=1)
    order = np.argsort(size, kind="stable")
    inside = np.add.reduceat(masks[order], np.searchsorted(size[order], np.arange(d + 1)), axis=0, dtype=np.int32)
    with np.errstate(divide="ignore"):  # nothing is without a feature of the full coalition
        with_it, without = 1 / (d * inside), -1 / (d * (np.bincount(size)[:, None] - inside))
    return Design(masks, np.where(masks, with_it[size], without[size]).T)


def _first(d: int) -> np.ndarray:
    """Pairs of sizes 2 .. d // 2 that fill every stratum: blocks of a partition, a single pair of halves."""
    size = np.arange(2, d // 2 + 1)
    return np.where(2 * size == d, 1, -(-d // size))


def _blocks(d: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """A random partition into blocks of a size, as masks; the last is filled up with features of the first."""
    order = rng.permutation(d)
    members = np.append(order, order[: -d % size]).reshape(-1, size)[: 1 if 2 * size == d else None]
    masks = np.zeros((len(members), d), bool)
    np.put_along_axis(masks, members, True, axis=1)
    return masks
