"""Methods compared on the same instances: tables of paired values, and every pair with its interval, test and effect.

A table of values is (instances, labels): one number each, repeats averaged, since an instance's draws are its own.
"""

import itertools
import math

import numpy as np
import pandas as pd

from shapeline.statistics.bounds import LEVEL, enough, moments, student, units
from shapeline.statistics.signed_ranks import alike, signed_rank_test

POWER = 0.8
SURE = 0.05


def pivot_by_method(measured: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """A scalar statistic as (instances, labels), repeats averaged; instances that one label lacks are left out.

    measured: label, instance, repeat, statistic, x, value. A label that lacks more than half of the instances that
    another has is left out itself, lest it decide what the others are judged on.
    """
    rows = _scalar(measured, statistic)
    wide = rows.pivot_table(index="instance", columns="method", values="value", aggfunc="mean")
    wide = wide.dropna(axis=1, how="all")
    there = wide.notna().sum()
    return wide.loc[:, there >= there.max() / 2].dropna()


def pivot_by_repeat(measured: pd.DataFrame, statistic: str) -> dict[str, pd.DataFrame]:
    """A scalar statistic as (instances, repeats) of each label with two or more repeats; NaN where one failed."""
    rows = _scalar(measured, statistic)
    repeated = {label: own for label, own in rows.groupby("method") if own["repeat"].nunique() > 1}
    return {
        label: own.pivot_table(index="instance", columns="repeat", values="value", dropna=False)
        for label, own in repeated.items()
    }


def _scalar(measured: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """The rows of a scalar statistic, NaN where one is not finite."""
    rows = measured[(measured["statistic"] == statistic) & measured["x"].isna()]
    return rows.assign(value=rows["value"].replace([np.inf, -np.inf], np.nan))


def pairs(values: pd.DataFrame, better: str = "lower", block: np.ndarray | None = None) -> pd.DataFrame:
    """Every pair of labels, the better mean first.

    values: (instances, labels) without NaN, repeats averaged; better: "lower" or "higher"; block: (instances,) which
    share their draws: then blocks are the units of interval and test. Columns: better, worse; difference (their means',
    better less worse) with low and high (`intervals`, 95 %); p (Wilcoxon's signed-rank test, two-sided, of instances or
    of the means of blocks; 1 where all are equal), p_holm (Holm 1979, over all pairs of the table); effect
    (matched-pairs rank-biserial correlation, 1 where the better wins everywhere, below 0 where the ranks speak for the
    worse mean; Kerby 2014); wins (share of instances, ties half); n; needed (instances, as of `needed`); sure (whether
    the better is told from the worse: p_holm below 0.05, ranks and interval that speak for it, and at least 6 instances
    or 12 blocks).
    """
    means = values.mean().sort_index()
    labels = list(means.sort_values(ascending=better == "lower", kind="stable").index)
    firsts, seconds = zip(*itertools.combinations(labels, 2), strict=True) if len(labels) > 1 else ((), ())
    differences = values[list(firsts)].to_numpy() - values[list(seconds)].to_numpy()  # (n, pairs)
    sign = 1 if better == "higher" else -1
    each = moments(units(differences, block))
    low, high = each.ends(student((1 - LEVEL) / 2, each.units))
    compared = differences if block is None else _block_means(differences, block)
    p, effect = _signed_ranks(sign * compared)
    size = len(differences) / max(len(compared), 1)  # instances a unit
    table = pd.DataFrame(
        {
            "better": firsts,
            "worse": seconds,
            "difference": differences.mean(0),
            "low": low,
            "high": high,
            "p": p,
            "p_holm": holm(p),
            "effect": effect,
            "wins": ((sign * differences > 0) + 0.5 * (differences == 0)).mean(0),
            "n": len(values),
            "needed": [math.ceil(size * count) if count < math.inf else count for count in map(needed, compared.T)],
        }
    )
    apart = (table["low"] > 0) | (table["high"] < 0)
    told = enough(len(compared), block is not None)
    return table.assign(sure=told & (table["p_holm"] < SURE) & (table["effect"] > 0) & apart)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values corrected for the number of them (Holm 1979), never below one that was smaller."""
    p = np.asarray(p, float)
    order = np.argsort(p)
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(raised, 1.0)
    return corrected


def needed(differences: np.ndarray) -> float:
    """Units at which the signed-rank test would tell the paired differences (n,) from 0 with a power of 0.8 at
    p = 0.05; at least 6, the fewest at which it can be significant; inf where it never would.

    Noether's (1987) way: from P(D1 + D2 > 0), ties half, of two different differences. He lets the test vary as if
    nothing differed; here it varies by P(D1 + D2 > 0 and D1 + D3 > 0), as it does (Lehmann 1975, §4.2), which matters
    where the differences are large.
    """
    from scipy.special import ndtri

    n, ordered = len(differences), np.sort(differences)
    if n < 2:
        return math.inf
    below, until = (np.searchsorted(ordered, -differences, side) for side in ("left", "right"))
    own = (differences > 0) + 0.5 * (differences == 0)
    above = (n - 0.5 * (below + until) - own) / (n - 1)  # with each: the share of the others whose sum is above 0
    chance = above.mean()
    if math.isclose(chance, 0.5):
        return math.inf
    root = (ndtri((1 + LEVEL) / 2) / math.sqrt(3) + 2 * ndtri(POWER) * above.std()) / abs(chance - 0.5)
    return float(math.ceil(max(6.0, root**2)))


def _signed_ranks(gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two-sided p of Wilcoxon's signed-rank test, and the rank-biserial correlation, of each column of paired gains
    (n, columns), as if it were tested alone; 1 and 0 where all gains are 0."""
    p, effect = np.ones(gains.shape[1]), np.zeros(gains.shape[1])
    for places, rows in alike(gains.T):
        p[places], signed = signed_rank_test(rows)
        effect[places] = signed.sum(1) / np.abs(signed).sum(1)
    return p, effect


def _block_means(differences: np.ndarray, block: np.ndarray) -> np.ndarray:
    return pd.DataFrame(differences).groupby(np.asarray(block)).mean().to_numpy()


def order(values: pd.DataFrame, better: str = "lower") -> list[str]:
    """Labels by their mean, the best first; equal ones by name."""
    means = values.mean().sort_index()
    return list(means.sort_values(ascending=better == "lower", kind="stable").index)


def scale_to_range(values: pd.DataFrame, random: str, better: str = "lower") -> pd.DataFrame:
    """Values (instances, labels) between 0, what the label `random` reaches, and 1, the best that any label does.

    Both ends are of each instance; one on which nothing beats random is left out.
    """
    sign = 1 if better == "higher" else -1
    best = (sign * values).max(axis=1)
    gained = (sign * values).sub(sign * values[random], axis=0)
    span = best - sign * values[random]
    return gained[span > 0].div(span[span > 0], axis=0)
