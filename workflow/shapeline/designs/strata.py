"""Complementary pairs of coalitions, drawn size by size without replacement: what several estimators are made of.

A pair is of size s where its smaller member is, s = 1 .. d // 2; arrays by size hold that of s at position s - 1.
"""

import numpy as np

from shapeline.designs.design import log_factorial, subsets_of_size, unique_rows, whole
from shapeline.errors import ShapelineError

BEYOND = 60.0  # log of a number of coalitions that no budget reaches


def checked(where: str, d: int, budget: int, minimum) -> tuple[int, int]:
    """d and the budget in evaluations, at most 2^d; ShapelineError where it is below minimum(d)."""
    d, budget = whole(where, "d", d, 1), whole(where, "budget", budget, 0)
    if budget < minimum(d):
        raise ShapelineError(
            f"{where}: budget is {budget} evaluations and the minimum for d = {d} is {minimum(d)}; raise it."
        )
    return d, min(budget, 2**d)


def available(d: int) -> np.ndarray:
    """Number of pairs of each size, float64; numbers beyond every budget are cut."""
    size = np.arange(1, d // 2 + 1)
    log_count = log_factorial(d) - log_factorial(size) - log_factorial(d - size)
    return np.rint(np.exp(np.minimum(log_count, BEYOND))) / np.where(2 * size == d, 2, 1)


def allotted(mass: np.ndarray, most: np.ndarray, total: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that each size gets, expected (float) and drawn (int): by mass, at most `most`, `total` in all.

    One uniform number decides which sizes are rounded up (systematic sampling), so what is drawn has the mean that is
    expected. Sizes are full in order: most / mass grows with the size.
    """
    expected, left = np.zeros(len(mass)), float(min(total, most.sum()))
    rest = np.cumsum(mass[::-1])[::-1]
    for place in range(len(mass)):
        expected[place] = min(most[place], left * mass[place] / rest[place])
        left -= expected[place]
    edges = np.cumsum(expected)
    edges[-1:] = np.rint(edges[-1:])
    return expected, np.diff(np.floor(edges + rng.random()), prepend=0).astype(int)


def draw(d: int, counts: np.ndarray, rng: np.random.Generator, first: np.ndarray | None = None) -> np.ndarray:
    """Smaller members (P, d) bool of distinct uniform pairs, `counts` of each size; of two halves that with feature 0.

    first: pairs that are among them, not more of a size than its count.
    """
    sizes = np.arange(1, d // 2 + 1)
    drawn = np.zeros((0, d), bool) if first is None else first
    # Where most of a size are wanted, all are listed: the last ones would take long to meet by chance.
    more = [rng.permutation(subsets_of_size(d, size)) for size in sizes[2 * counts > available(d)]]
    while True:
        drawn = np.concatenate([drawn, *more])
        drawn ^= (2 * drawn.sum(axis=1) == d)[:, None] & ~drawn[:, :1]
        drawn = drawn[np.sort(unique_rows(drawn)[0])]
        size = drawn.sum(axis=1)
        missing = np.maximum(counts - np.bincount(size, minlength=d // 2 + 1)[1:], 0)
        if not missing.any():
            break
        more = [rng.permuted(np.arange(d) < np.repeat(sizes, missing)[:, None], axis=1)]
    order = np.argsort(size, kind="stable")
    start = np.searchsorted(size[order], size[order])
    return drawn[np.sort(order[np.arange(len(order)) - start < counts[size[order] - 1]])]
