"""Ranks of methods over instances: average ranks, critical difference, concordance."""

import math

import numpy as np
import pandas as pd
from scipy import stats

from shapeline.statistics.bounds import LEVEL


def ranks(values: pd.DataFrame, better: str = "lower") -> pd.DataFrame:
    """Rank of each label on each instance, 1 the best, equal values sharing the mean of their ranks; (n, labels)."""
    return values.rank(axis=1, ascending=better == "lower")


def critical_difference(values: pd.DataFrame, better: str = "lower") -> tuple[pd.Series, float, float]:
    """Average ranks (best first), Nemenyi's critical difference at 5 %, and Friedman's p (Demsar 2006, §3.2.2).

    With fewer than three labels Friedman's test has no say: p is NaN.
    """
    n, k = values.shape
    average = ranks(values, better).mean().sort_values(kind="stable")
    critical = stats.studentized_range.ppf(LEVEL, k, np.inf) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))
    p = stats.friedmanchisquare(*values.to_numpy().T).pvalue if k > 2 and n > 1 else math.nan
    return average, float(critical), float(p)


def cliques(average: pd.Series, critical: float) -> list[tuple[str, str]]:
    """The longest runs of labels whose average ranks lie within the critical difference: (best, worst) of each."""
    runs, names = [], list(average.index)
    for start in range(len(names)):
        end = int(np.flatnonzero(average.to_numpy() - average.iloc[start] < critical)[-1])
        if end > start and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return [(names[start], names[end]) for start, end in runs]


def kendall_w(table: np.ndarray) -> float:
    """Kendall's coefficient of concordance of m raters' ranks of k things, (m, k) -> 0 to 1, corrected for ties."""
    table = stats.rankdata(np.asarray(table, float), axis=1)
    m, k = table.shape
    tied = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in table))
    most = m**2 * (k**3 - k) - m * tied
    return float(12 * ((table.sum(0) - m * (k + 1) / 2) ** 2).sum() / most) if most > 0 else math.nan
