"""Ranks of methods over instances: average ranks, critical difference, concordance."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from shapeline.statistics.bounds import LEVEL, student


def ranks(values: pd.DataFrame, better: str = "lower") -> pd.DataFrame:
    """Rank of each label on each instance, 1 the best, equal values sharing the mean of their ranks; (n, labels)."""
    return values.rank(axis=1, ascending=better == "lower")


def critical_difference(values: pd.DataFrame, better: str = "lower") -> tuple[pd.Series, float, float]:
    """Return average ranks, Nemenyi's critical difference at 5 %, Friedman's p, NaN below three methods (Demsar 2006,
    §3.2.2)."""
    n, k = values.shape
    each = ranks(values, better)
    average = each.mean().sort_values(kind="stable")
    critical = largest_range(k) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))
    p = _friedman(each.to_numpy()) if k > 2 and n > 1 else math.nan
    return average, float(critical), float(p)


def _friedman(table: np.ndarray) -> float:
    """p of Friedman's test of ranks (n, k), corrected for ties; NaN where all are equal."""
    from scipy.special import chdtrc  # scipy.stats takes half a second

    n, k = table.shape
    spread = (table**2).sum() - n * k * (k + 1) ** 2 / 4
    apart = ((table.sum(0) - n * (k + 1) / 2) ** 2).sum()
    return float(chdtrc(k - 1, (k - 1) * apart / spread)) if spread > 0 else math.nan


@functools.cache
def largest_range(k: int) -> float:
    """The range that k standard normal numbers exceed in 5 %: the studentised range with a known variance.

    It is at most q with the chance k ∫ φ(z) (Φ(z + q) - Φ(z))^(k - 1) dz, z the least of them.
    """
    from scipy.special import ndtr

    z = np.linspace(-9, 9, 1801)  # so smooth an integrand is summed exactly
    density = k * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        inside = (density * (ndtr(z + middle) - ndtr(z)) ** (k - 1)).sum() < LEVEL
        low, high = (middle, high) if inside else (low, middle)
    return high


def cliques(average: pd.Series, critical: float) -> list[tuple[str, str]]:
    """The longest runs of labels whose average ranks lie within the critical difference: (best, worst) of each."""
    runs, names = [], list(average.index)
    for start in range(len(names)):
        end = int(np.flatnonzero(average.to_numpy() - average.iloc[start] < critical)[-1])
        if end > start and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return [(names[start], names[end]) for start, end in runs]


def pooled_ranks(table: pd.DataFrame, cluster: Sequence) -> pd.DataFrame:
    """Return mean rank of each method over experiments (best first) with simultaneous 95 % intervals.

    table: (cells, methods), lower is better; cluster: (cells,) of one dataset and model, the units. The wider of
    Student's t over units and of chance, (k^2 - 1) / 12 (Friedman), so that few units that agree do not make a rank
    exact. Bonferroni over methods.
    """
    units = ranks(table).groupby(np.asarray(cluster)).mean()
    n, k = units.shape
    mean = units.mean()
    if n < 2:
        return pd.DataFrame({"mean": mean, "low": math.nan, "high": math.nan}).sort_values("mean", kind="stable")
    from scipy.special import ndtri

    tail = (1 - LEVEL) / 2 / k
    seen, chance = student(tail, n) * units.std(ddof=1), -ndtri(tail) * math.sqrt((k**2 - 1) / 12)
    half = np.maximum(seen, chance) / math.sqrt(n)
    ends = {"low": (mean - half).clip(1, k), "high": (mean + half).clip(1, k)}
    return pd.DataFrame({"mean": mean, **ends}).sort_values("mean", kind="stable")


def kendall_w(table: np.ndarray) -> float:
    """Kendall's coefficient of concordance of m raters' ranks of k things, (m, k) -> 0 to 1, corrected for ties."""
    table = pd.DataFrame(table).rank(axis=1).to_numpy()
    m, k = table.shape
    tied = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in table))
    most = m**2 * (k**3 - k) - m * tied
    return float(12 * ((table.sum(0) - m * (k + 1) / 2) ** 2).sum() / most) if most > 0 else math.nan
