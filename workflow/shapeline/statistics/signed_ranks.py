"""Wilcoxon's signed-rank test of many samples at once, as scipy's, whose `stats` takes half a second to import."""

import functools
import itertools
from collections.abc import Iterator

import numpy as np

FEW = 13  # units of which all signs are tried where gains tie
SOME = 50  # units up to which the distribution is exact where none tie


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks (k, n) in each row, the least 1; equal values share the mean of theirs."""
    values = np.asarray(values, float)
    order = np.argsort(values, axis=1, kind="stable")
    ordered, place = np.take_along_axis(values, order, 1), np.arange(values.shape[1])
    edge = np.ones((len(values), 1), bool)
    apart = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(np.hstack([edge, apart]), place, 0), axis=1)
    last = np.minimum.accumulate(np.where(np.hstack([apart, edge]), place, values.shape[1])[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, 1)
    return ranks


def alike(gains: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of gains (k, n) that one call tests as if each were alone: their places, and the gains that are not 0.

    Zeros are left out, and ties decide which distribution is taken. Rows of zeros alone are left out.
    """
    sizes = np.sort(np.abs(gains), axis=1)
    tied = ((sizes[:, 1:] == sizes[:, :-1]) & (sizes[:, 1:] != 0)).any(1)
    kinds = np.column_stack([(gains != 0).sum(1), tied])
    for count, tie in np.unique(kinds, axis=0):
        places = np.flatnonzero((kinds == (count, tie)).all(1))
        if count:
            rows = gains[places]
            yield places, rows[rows != 0].reshape(len(places), count)


def signed_rank_test(gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two-sided p (k,) of the test of each row of gains (k, n), none of them 0, and their signed ranks (k, n).

    All rows are tested alike: by the exact distribution up to 50 units without a tie, by all signs up to 13 with one in
    some row, else by the normal approximation, corrected for ties (scipy.stats.wilcoxon's "auto").
    """
    from scipy.special import ndtr

    ranks = average_ranks(np.abs(gains))
    signed, n = np.sign(gains) * ranks, gains.shape[1]
    above = np.where(gains > 0, ranks, 0.0).sum(1)
    ties = n * (n + 1) * (2 * n + 1) / 6 - (ranks**2).sum(1)  # sum of (t^3 - t) / 12 over groups of t equal ones
    if n <= SOME and not ties.any():
        chances = _distribution(n)
        upto = np.cumsum(chances)
        place = above.round().astype(int)
        return np.minimum(1.0, 2 * np.minimum(upto[place], upto[-1 - place])), signed
    if n <= FEW:
        signs = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
        p = [2 * min((signs @ own <= sum_).mean(), (signs @ own >= sum_).mean())
             for own, sum_ in zip(ranks, above, strict=True)]  # fmt: skip
        return np.minimum(1.0, p), signed
    error = np.sqrt(((n * (n + 1) * (2 * n + 1)) - 6 * ties) / 24)
    return 2 * ndtr(-np.abs(above - n * (n + 1) / 4) / error), signed


@functools.cache
def _distribution(n: int) -> np.ndarray:
    """Chances of each sum, 0 to n (n + 1) / 2, of the ranks 1 to n that a fair coin each lets in."""
    chances = np.ones(1)
    for rank in range(1, n + 1):
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    return chances
