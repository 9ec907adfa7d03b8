"""Paired statistics: which of two methods is better, how surely, and how many instances it takes to tell.

Tests and corrections are scipy's and statsmodels'; what is here arranges them over labels and explains what they hold
fixed. A table of values is (instances, labels): one number each, repeats averaged.
"""

import gc
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats

from shapeline.metrics.compare import DRAWS, ENDS, LEVEL, RESAMPLES, over_draws
from shapeline.seeds import seed_of

POWER = 0.8
SURE = 0.05
CHUNK = 1 << 22  # numbers drawn at a time


def by_label(measured: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """A scalar quantity as (instances, labels), repeats averaged; instances that one label lacks are left out.

    measured: label, instance, repeat, quantity, x, value. A label that lacks more than half of the instances that
    another has is left out itself, lest it decide what the others are judged on.
    """
    rows = _scalar(measured, quantity)
    wide = rows.pivot_table(index="instance", columns="label", values="value", aggfunc="mean")
    wide = wide.dropna(axis=1, how="all")
    there = wide.notna().sum()
    return wide.loc[:, there >= there.max() / 2].dropna()


def by_draw(measured: pd.DataFrame, quantity: str) -> dict[str, pd.DataFrame]:
    """A scalar quantity as (instances, repeats) of each label with DRAWS or more repeats; NaN where one failed."""
    rows = _scalar(measured, quantity)
    repeated = {label: own for label, own in rows.groupby("label") if own["repeat"].nunique() >= DRAWS}
    return {
        label: own.pivot_table(index="instance", columns="repeat", values="value", dropna=False)
        for label, own in repeated.items()
    }


def _scalar(measured: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """The rows of a scalar quantity, NaN where one is not finite."""
    rows = measured[(measured["quantity"] == quantity) & measured["x"].isna()]
    return rows.assign(value=rows["value"].replace([np.inf, -np.inf], np.nan))


def pairs(
    values: pd.DataFrame, better: str = "lower", seed: int = 0, draws: dict[str, pd.DataFrame] | None = None
) -> pd.DataFrame:
    """Every pair of labels compared on the same instances, the better mean first.

    values: (n, labels); better: "lower" or "higher"; draws: of some labels the values that were averaged, (instances,
    repeats), as `by_draw` gives them. Columns: better, worse; difference (their means', better less worse) with low and
    high, its 95 % paired bootstrap interval over instances, and over the repeats of the labels in draws, each on its
    own; p (Wilcoxon signed-rank, two-sided, of the averages; 1 where all are equal), p_holm (Holm 1979, over all pairs
    of the table); effect (matched-pairs rank-biserial correlation, 1 where the better wins everywhere, below 0 where
    the ranks speak for the worse mean; Kerby 2014); wins (share of instances, ties half); sure (whether the better is
    told from the worse: p_holm below 0.05, by ranks that speak for it, and an interval over draws that leaves out 0,
    since p holds them fixed); n; needed (as of `needed`).
    """
    labels = order(values, better)
    firsts, seconds = zip(*itertools.combinations(labels, 2), strict=True) if len(labels) > 1 else ((), ())
    first, second = values[list(firsts)].to_numpy(), values[list(seconds)].to_numpy()
    differences = first - second  # (n, pairs)
    sign = 1 if better == "higher" else -1
    low, high = _intervals(differences, seed)
    drawn = np.zeros(len(firsts), bool)
    if draws and len(firsts) and len(values) > 1:  # of one instance there is no interval
        drawn = np.array([first in draws or second in draws for first, second in zip(firsts, seconds, strict=True)])
        means, shifts = _means(values, draws, seed)
        sides = [(means[list(side)].to_numpy(), shifts[list(side)].to_numpy()) for side in (firsts, seconds)]
        # A label without draws has no shift, whatever number of them is written beside it.
        repeats = [
            np.array([draws[one].shape[1] if one in draws else DRAWS for one in side]) for side in (firsts, seconds)
        ]
        ends = over_draws(
            differences.mean(0),
            sides[0][0] - sides[1][0],
            [(sides[0][1], repeats[0]), (-sides[1][1], repeats[1])],
        )
        low, high = np.where(drawn, ends, (low, high))
    tested = [_signed_ranks(sign * column) for column in differences.T]
    table = pd.DataFrame(
        {
            "better": firsts,
            "worse": seconds,
            "difference": differences.mean(0),
            "low": low,
            "high": high,
            "p": [p for p, _ in tested],
            "effect": [effect for _, effect in tested],
            "wins": ((sign * differences > 0) + 0.5 * (differences == 0)).mean(0),
            "n": len(values),
            "needed": [needed(column) for column in differences.T],
        }
    )
    table.insert(table.columns.get_loc("p") + 1, "p_holm", holm(table["p"]))
    beside = (table["low"] > 0) | (table["high"] < 0)
    return table.assign(sure=(table["p_holm"] < SURE) & (table["effect"] > 0) & (beside | ~drawn))


def interval(differences: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of paired differences (n,)."""
    low, high = _intervals(differences[:, None], seed)
    return float(low[0]), float(high[0])


def order(values: pd.DataFrame, better: str = "lower") -> list[str]:
    """Labels by their mean, the best first; equal ones by name."""
    means = values.mean().sort_index()
    return list(means.sort_values(ascending=better == "lower", kind="stable").index)


def holm(p: pd.Series) -> np.ndarray:
    """p-values corrected for the number of them (Holm 1979)."""
    from statsmodels.stats.multitest import multipletests  # a second and a half, which few callers need

    if len(p) < 2:
        return p.to_numpy()
    gc.freeze()  # it collects garbage at every call: a tenth of a second where pandas and matplotlib are loaded
    try:
        return multipletests(p, method="holm")[1]
    finally:
        gc.unfreeze()


def needed(differences: np.ndarray) -> float:
    """Instances at which the signed-rank test would tell the paired differences (n,) from 0 with a power of 0.8 at
    p = 0.05; at least 6, the fewest at which it can be significant; inf where it never would.

    Noether's (1987) way: from P(D1 + D2 > 0), ties half, of two different differences. He lets the test vary as if
    nothing differed; here it varies by P(D1 + D2 > 0 and D1 + D3 > 0), as it does (Lehmann 1975, §4.2), which matters
    where the differences are large.
    """
    n, ordered = len(differences), np.sort(differences)
    if n < 2:
        return math.inf
    below, until = (np.searchsorted(ordered, -differences, side) for side in ("left", "right"))
    own = (differences > 0) + 0.5 * (differences == 0)
    above = (n - 0.5 * (below + until) - own) / (n - 1)  # with each: the share of the others whose sum is above 0
    chance = above.mean()
    if math.isclose(chance, 0.5):
        return math.inf
    alpha, beta = stats.norm.ppf([(1 + LEVEL) / 2, POWER])
    root = (alpha / math.sqrt(3) + 2 * beta * above.std()) / abs(chance - 0.5)
    return float(math.ceil(max(6.0, root**2)))


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
    found, names = [], list(average.index)
    for start in range(len(names)):
        end = int(np.flatnonzero(average.to_numpy() - average.iloc[start] < critical)[-1])
        if end > start and (not found or end > found[-1][1]):
            found.append((start, end))
    return [(names[start], names[end]) for start, end in found]


def of_the_way(values: pd.DataFrame, random: str, better: str = "lower") -> pd.DataFrame:
    """Values (instances, labels) between 0, what the label `random` reaches, and 1, the best that any label does.

    Both ends are of each instance; one on which nothing beats random is left out.
    """
    sign = 1 if better == "higher" else -1
    best = (sign * values).max(axis=1)
    gained = (sign * values).sub(sign * values[random], axis=0)
    span = best - sign * values[random]
    return gained[span > 0].div(span[span > 0], axis=0)


def summary(values: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Mean, low and high of each column of values (n, labels): 95 % bootstrap intervals over the same instances."""
    low, high = _intervals(values.to_numpy(), seed)
    return pd.DataFrame({"mean": values.mean(), "low": low, "high": high})


def kendall_w(table: np.ndarray) -> float:
    """Kendall's coefficient of concordance of m raters' ranks of k things, (m, k) -> 0 to 1, corrected for ties."""
    table = stats.rankdata(np.asarray(table, float), axis=1)
    m, k = table.shape
    tied = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in table))
    most = m**2 * (k**3 - k) - m * tied
    return float(12 * ((table.sum(0) - m * (k + 1) / 2) ** 2).sum() / most) if most > 0 else math.nan


def variance_shares(values: np.ndarray, factors: tuple[str, ...] = ("instances", "draws")) -> dict[str, float]:
    """How the variance of values splits between factors, an axis each, and the rest: what they do together.

    Variance components of a crossed layout of random factors without replication, by the analysis of variance: each
    mean square is set equal to its expectation (Searle, Casella & McCulloch 1992, chapter 4). Negative ones are 0;
    shares of their sum. A factor of one level has no share, NaN; with fewer than two factors all are NaN.
    """
    sizes = dict(zip(factors, values.shape, strict=True))
    varied = [name for name in factors if sizes[name] > 1]
    if len(varied) < 2:
        return dict.fromkeys((*factors, "rest"), math.nan)
    values = values.reshape([sizes[name] for name in varied])
    axes = range(len(varied))
    subsets = [frozenset(some) for size in range(1, len(varied) + 1) for some in itertools.combinations(axes, size)]
    squares = {}
    for subset in subsets:
        effect = values.mean(tuple(axis for axis in axes if axis not in subset), keepdims=True)
        for axis in subset:
            effect = effect - effect.mean(axis, keepdims=True)
        levels = math.prod(values.shape[axis] - 1 for axis in subset)
        squares[subset] = float((effect**2).sum()) * values.size / effect.size / levels
    # A mean square expects the components of all sets that hold its own, each times the numbers of the other factors.
    parts = {}
    for subset in subsets:
        above = sum((-1) ** len(other - subset) * squares[other] for other in subsets if other >= subset)
        others = math.prod(values.shape[axis] for axis in axes if axis not in subset)
        parts[subset] = max(0.0, above / others)
    total = sum(parts.values())
    shares = {name: parts[frozenset([axis])] / total if total > 0 else math.nan for axis, name in enumerate(varied)}
    together = sum(part for subset, part in parts.items() if len(subset) > 1)
    rest = {"rest": together / total if total > 0 else math.nan}
    return {name: shares.get(name, math.nan) for name in factors} | rest


def _signed_ranks(gains: np.ndarray) -> tuple[float, float]:
    """Two-sided p of Wilcoxon's signed-rank test and the rank-biserial correlation of paired gains (n,)."""
    gains = gains[gains != 0]
    if len(gains) == 0:
        return 1.0, 0.0
    ranked = stats.rankdata(np.abs(gains))
    effect = float((np.sign(gains) * ranked).sum() / ranked.sum())
    return float(stats.wilcoxon(gains).pvalue), effect


def _means(values: pd.DataFrame, draws: dict[str, pd.DataFrame], seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means (resamples, labels) over resampled instances, the same for all labels, and by how much resampling the
    repeats, each label's own, moves them."""
    n, means, shifts = len(values), [], []
    drawn = {label: _often(repeats.shape[1], label, seed) for label, repeats in draws.items() if label in values}
    for start, often in _resamples(n, seed):
        means.append(pd.DataFrame(often @ values.to_numpy() / n, columns=values.columns))
        shifts.append(pd.DataFrame(0.0, index=means[-1].index, columns=values.columns))
        for label, weights in drawn.items():
            repeats, weights = draws[label].reindex(values.index).to_numpy(), weights[start : start + len(often)]
            there = np.isfinite(repeats)
            totals, counts = often @ np.where(there, repeats, 0.0), often @ there
            drawn_anew = (weights * totals).sum(1) / (weights * counts).sum(1)
            shifts[-1][label] = drawn_anew - totals.sum(1) / counts.sum(1)
    return pd.concat(means, ignore_index=True), pd.concat(shifts, ignore_index=True)


def _often(repeats: int, label: str, seed: int) -> np.ndarray:
    """How often each repeat is drawn in each resample, (resamples, repeats)."""
    random = np.random.default_rng(seed_of(seed, "bootstrap of draws", label))
    return random.multinomial(repeats, np.full(repeats, 1 / repeats), size=RESAMPLES)


def _intervals(differences: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """95 % percentile bootstrap interval of each column's mean, all on the same resampled instances; NaN of one."""
    n, columns = differences.shape
    if not columns or n < 2:
        return np.full(columns, np.nan), np.full(columns, np.nan)
    means = [often @ differences / n for _, often in _resamples(n, seed)]
    return tuple(np.quantile(np.concatenate(means), ENDS, axis=0))


def _resamples(n: int, seed: int) -> Iterator[tuple[int, np.ndarray]]:
    """How often each of n instances is drawn, (resamples, n), some resamples at a time, and the number of the first;
    the same for whatever is resampled."""
    random, step = np.random.default_rng(seed_of(seed, "bootstrap")), max(1, CHUNK // n)
    for start in range(0, RESAMPLES, step):
        yield start, random.multinomial(n, np.full(n, 1 / n), size=min(step, RESAMPLES - start))
