"""Methods compared on the same instances: tables of values (instances, methods), repeats averaged, and all pairs."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from shapeline.statistics.bounds import LEAST_INSTANCES, LEVEL, enough, moments, student, units

MAX_SIGNS = 13  # units of which all signs are tried where gains tie
MAX_EXACT = 50  # units up to which the distribution is exact where none tie


def alike(gains: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows of gains (k, n) that one call tests alike, without zeros and rows of zeros: places and gains."""
    sizes = np.sort(np.abs(gains), axis=1)
    tied = ((sizes[:, 1:] == sizes[:, :-1]) & (sizes[:, 1:] != 0)).any(1)
    kinds = np.column_stack([(gains != 0).sum(1), tied])
    for count, tie in np.unique(kinds, axis=0):
        indices = np.flatnonzero((kinds == (count, tie)).all(1))
        if count:
            rows = gains[indices]
            yield indices, rows[rows != 0].reshape(len(indices), count)


def signed_rank_test(gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two-sided p (k,) and signed ranks of gains (k, n) without zeros, as scipy.stats.wilcoxon "auto"."""
    from scipy.special import ndtr

    ranks = pd.DataFrame(np.abs(gains)).rank(axis=1).to_numpy()
    signed, n = np.sign(gains) * ranks, gains.shape[1]
    above = np.where(gains > 0, ranks, 0.0).sum(1)
    ties = n * (n + 1) * (2 * n + 1) / 6 - (ranks**2).sum(1)  # sum of (t^3 - t) / 12 over groups of t equal ones
    if n <= MAX_EXACT and not ties.any():
        chances = _distribution(n)
        upto = np.cumsum(chances)
        index = above.round().astype(int)
        return np.minimum(1.0, 2 * np.minimum(upto[index], upto[-1 - index])), signed
    if n <= MAX_SIGNS:
        signs = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
        p = [2 * min((signs @ own <= sum_).mean(), (signs @ own >= sum_).mean())
             for own, sum_ in zip(ranks, above, strict=True)]  # fmt: skip
        return np.minimum(1.0, p), signed
    error = np.sqrt(((n * (n + 1) * (2 * n + 1)) - 6 * ties) / 24)
    return 2 * ndtr(-np.abs(above - n * (n + 1) / 4) / error), signed


@functools.cache
def _distribution(n: int) -> np.ndarray:
    """Return the probability of each sum, 0 to n (n + 1) / 2, of the ranks 1 to n that a fair coin each lets in."""
    chances = np.ones(1)
    for rank in range(1, n + 1):
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    return chances


POWER = 0.8
SURE = 0.05


def pivot_by_method(measured: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """Return a scalar statistic as (instances, methods), repeats averaged, on the instances that all methods have.

    A method that lacks more than half of the instances that another has is left out itself.
    """
    rows = _scalar(measured, statistic)
    wide = rows.pivot_table(index="instance", columns="method", values="value", aggfunc="mean")
    wide = wide.dropna(axis=1, how="all")
    there = wide.notna().sum()
    return wide.loc[:, there >= there.max() / 2].dropna()


def pivot_by_repeat(measured: pd.DataFrame, statistic: str) -> dict[str, pd.DataFrame]:
    """A scalar statistic as (instances, repeats) of each method with two or more repeats; NaN where one failed."""
    rows = _scalar(measured, statistic)
    repeated = {entry: own for entry, own in rows.groupby("method") if own["repeat"].nunique() > 1}
    return {
        entry: own.pivot_table(index="instance", columns="repeat", values="value", dropna=False)
        for entry, own in repeated.items()
    }


def _scalar(measured: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """The rows of a scalar statistic, NaN where one is not finite."""
    rows = measured[(measured["statistic"] == statistic) & measured["x"].isna()]
    return rows.assign(value=rows["value"].replace([np.inf, -np.inf], np.nan))


def pairs(values: pd.DataFrame, better: str = "lower", block: np.ndarray | None = None) -> pd.DataFrame:
    """Every pair of methods, the better mean first.

    values: (instances, methods) without NaN, repeats averaged; better: "lower" or "higher"; block: (instances,) which
    share their samples: then blocks are the units of interval and test. Columns: better, worse; difference (their
    means', better less worse) with low and high (`intervals`, 95 %); p (Wilcoxon's signed-rank test, two-sided, of
    instances or of the means of blocks; 1 where all are equal), p_holm (Holm 1979, over all pairs of the table); effect
    (matched-pairs rank-biserial correlation, 1 where the better wins everywhere, below 0 where the ranks speak for the
    worse mean; Kerby 2014); wins (share of instances, ties half); n; needed (instances, as of `needed`); sure (whether
    the difference is significant: p_holm below 0.05, ranks and interval that speak for it, and at least 6 instances
    or 12 blocks).
    """
    means = values.mean().sort_index()
    entries = list(means.sort_values(ascending=better == "lower", kind="stable").index)
    firsts, seconds = zip(*itertools.combinations(entries, 2), strict=True) if len(entries) > 1 else ((), ())
    differences = values[list(firsts)].to_numpy() - values[list(seconds)].to_numpy()  # (n, pairs)
    sign = 1 if better == "higher" else -1
    each = moments(units(differences, block))
    low, high = each.ends(student((1 - LEVEL) / 2, each.units))
    compared = differences if block is None else _block_means(differences, block)
    p, effect = _test_signed_ranks(sign * compared)
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
            "needed": [
                math.ceil(size * count) if count < math.inf else count for count in map(count_needed, compared.T)
            ],
        }
    )
    apart = (table["low"] > 0) | (table["high"] < 0)
    suffices = enough(len(compared), block is not None)
    return table.assign(sure=suffices & (table["p_holm"] < SURE) & (table["effect"] > 0) & apart)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values corrected for the number of them (Holm 1979), never below one that was smaller."""
    p = np.asarray(p, float)
    order = np.argsort(p)
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(raised, 1.0)
    return corrected


def count_needed(differences: np.ndarray) -> float:
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


def _test_signed_ranks(gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two-sided p of Wilcoxon's test and the rank-biserial correlation per column; 1 and 0 where all are 0."""
    p, effect = np.ones(gains.shape[1]), np.zeros(gains.shape[1])
    for indices, rows in alike(gains.T):
        p[indices], signed = signed_rank_test(rows)
        effect[indices] = signed.sum(1) / np.abs(signed).sum(1)
    return p, effect


def _block_means(differences: np.ndarray, block: np.ndarray) -> np.ndarray:
    return pd.DataFrame(differences).groupby(np.asarray(block)).mean().to_numpy()


def order(values: pd.DataFrame, better: str = "lower") -> list[str]:
    """Methods by their mean, the best first; equal ones by name."""
    means = values.mean().sort_index()
    return list(means.sort_values(ascending=better == "lower", kind="stable").index)


def scale_to_range(values: pd.DataFrame, random: str, better: str = "lower") -> pd.DataFrame:
    """Return values (instances, methods) between 0, of `random`, and 1, the best, where something beats it."""
    sign = 1 if better == "higher" else -1
    best = (sign * values).max(axis=1)
    gained = (sign * values).sub(sign * values[random], axis=0)
    span = best - sign * values[random]
    return gained[span > 0].div(span[span > 0], axis=0)


TRIALS = 2000
TOGETHER = SURE / 5  # a page has up to five such tests, one a question
CELLS = 1 << 20  # numbers shuffled at a time


@dataclass(frozen=True)
class EqualMethods:
    """rate: share of trials whose test rejects; together: p of a permutation test that samples move instances together
    (small where they do); n, repeats; sentence says both. NaN where there are too few."""

    rate: float
    together: float
    n: int
    repeats: int
    sentence: str


def rate_of_equal_methods(
    repeats: np.ndarray, block: np.ndarray | None = None, trials: int = TRIALS, seed: int = 0
) -> EqualMethods:
    """Return the rate at which the signed-rank test distinguishes two samples of one method at .05.

    repeats: (n, R), R at least 2; block: (n,) which share samples. A trial gives every unit two different repeats.
    That samples do not move instances together is tested beside it, by a permutation test of the variance of
    columns' means.
    """
    repeats = np.asarray(repeats, float)
    kept = np.isfinite(repeats).all(1)
    repeats, block = repeats[kept], None if block is None else np.asarray(block)[kept]
    n, count = repeats.shape
    if block is not None:  # of one block's instances the samples are one
        repeats = np.array([repeats[block == name].mean(0) for name in np.unique(block)]).reshape(-1, count)
    if count < 2 or not enough(len(repeats), block is not None):
        return EqualMethods(np.nan, np.nan, n, count, "too few repeats or instances.")
    own, rejected, above = repeats.mean(0).var(), 0, 0
    for shuffled in _shuffle_repeats(repeats, trials, seed):
        rejected += signed_rank_rejections(shuffled[:, :, 0] - shuffled[:, :, 1]).sum()
        above += (shuffled.mean(1).var(1) >= own * (1 - 1e-9)).sum()
    rate, together = float(rejected / trials), float((1 + above) / (1 + trials))
    return EqualMethods(rate, together, n, count, _sentence(rate, together))


def _shuffle_repeats(repeats: np.ndarray, trials: int, seed: int) -> Iterator[np.ndarray]:
    """Some trials at a time (., units, repeats), the repeats of each unit in an order of its own."""
    random, step = np.random.default_rng(seed), max(1, CELLS // repeats.size)
    for start in range(0, trials, step):
        yield random.permuted(np.broadcast_to(repeats, (min(step, trials - start), *repeats.shape)), axis=2)


def signed_rank_rejections(differences: np.ndarray, level: float = SURE) -> np.ndarray:
    """Return whether Wilcoxon's two-sided test rejects: differences (trials, n) -> (trials,)."""
    whole = (differences == 0).any(1)
    rejected = np.zeros(len(differences), bool)
    if (~whole).any():
        rejected[~whole] = signed_rank_test(differences[~whole])[0] < level
    others = np.flatnonzero(whole)
    for indices, rows in alike(differences[others]):
        rejected[others[indices]] = signed_rank_test(rows)[0] < level
    return rejected


def _sentence(rate: float, together: float) -> str:
    start = f"{100 * rate:.1f} % of tests between two sampling repetitions of one method are significant (level 5 %)"
    if together < TOGETHER:
        return (
            f"{start}. ⚠ The repetitions are correlated between instances (p = {together:.3f}), so the p-values of the "
            "test are too small."
        )
    return f"{start}. The repetitions are not significantly correlated between instances (p = {together:.3f})."


RESAMPLED = 2000
LOST = 0.025  # share of resamples that may leave the measured budgets before there is no interval


@dataclass(frozen=True)
class EqualError:
    """Return the error that both reach, the evaluations of each, and their ratio, second over first."""

    error: float
    first: float
    second: float
    ratio: float
    low: float
    high: float
    n: int


def interpolate_evaluations(errors: np.ndarray, spent: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return evaluations (r,) at which curves (r, b) first reach an error (r,), log-log linear; NaN beyond."""
    reached = errors <= error[:, None]
    after = reached.argmax(axis=1)
    rows = np.arange(len(errors))
    before = np.maximum(after - 1, 0)
    up, down, at = (np.log(value) for value in (errors[rows, before], errors[rows, after], error))
    share = np.divide(up - at, up - down, out=np.zeros(len(up)), where=up > down)
    logs = np.log(spent)[before] + share * (np.log(spent)[after] - np.log(spent)[before])
    inside = reached.any(axis=1) & ((after > 0) | (errors[:, 0] == error))
    return np.where(inside, np.exp(logs), np.nan)


def compare_at_equal_error(
    first: pd.DataFrame, second: pd.DataFrame, spent: tuple[pd.Series, pd.Series]
) -> EqualError | None:
    """Return evaluations of two methods at the least error that both reach; None where one does not cross it.

    Errors (instances, budgets) on common instances. The ratio's interval is exp(log ratio ± t s) over resampled
    instances.
    """
    first, second = first.dropna(), second.dropna()
    common = first.index.intersection(second.index)
    if not len(common):
        return None
    both = [frame.loc[common, costs.sort_values().index] for frame, costs in zip((first, second), spent, strict=True)]
    costs = [each.sort_values().to_numpy(float) for each in spent]
    [result] = _ratios(both, costs, np.full((1, len(common)), 1 / len(common)))
    if not np.isfinite(result).all():
        return None
    resamples = np.random.default_rng(0).multinomial(len(common), np.full(len(common), 1 / len(common)), RESAMPLED)
    logs = np.log(_ratios(both, costs, resamples / len(common))[:, 3])
    fine = np.isfinite(logs)
    half = np.nan
    if len(common) >= LEAST_INSTANCES and fine.mean() >= 1 - LOST:
        half = float(student((1 - LEVEL) / 2, len(common)) * logs[fine].std(ddof=1))
    error, own, others, ratio = map(float, result)
    return EqualError(error, own, others, ratio, ratio * np.exp(-half), ratio * np.exp(half), len(common))


def _ratios(both: list[pd.DataFrame], costs: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Error, evaluations of each, and their ratio (r, 4), of means by weights (r, instances)."""
    means = [weights @ frame.to_numpy(float) for frame in both]
    error = np.maximum(*(mean.min(axis=1) for mean in means))
    taken = [interpolate_evaluations(mean, cost, error) for mean, cost in zip(means, costs, strict=True)]
    return np.column_stack([error, *taken, taken[1] / taken[0]])


def ranks(values: pd.DataFrame, better: str = "lower") -> pd.DataFrame:
    """Return the rank of each method per instance, 1 the best, equal values with the mean rank; (n, methods)."""
    return values.rank(axis=1, ascending=better == "lower")


def critical_difference(values: pd.DataFrame, better: str = "lower") -> tuple[pd.Series, float, float]:
    """Return average ranks, Nemenyi's critical difference at 5 %, and Friedman's p, NaN below three methods."""
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
    """The longest runs of methods whose average ranks lie within the critical difference: (best, worst) of each."""
    runs, names = [], list(average.index)
    for start in range(len(names)):
        end = int(np.flatnonzero(average.to_numpy() - average.iloc[start] < critical)[-1])
        if end > start and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return [(names[start], names[end]) for start, end in runs]


def pool_ranks(table: pd.DataFrame, cluster: Sequence) -> pd.DataFrame:
    """Return mean rank of each method over experiments (best first) with simultaneous 95 % intervals.

    table: (cells, methods), lower is better; cluster: (cells,) of one dataset and model, the units. The wider of
    Student's t over units and of chance, (k^2 - 1) / 12 (Friedman), so that few units that agree do not make a rank
    exact. Bonferroni over methods.
    """
    averages = ranks(table).groupby(np.asarray(cluster)).mean()
    n, k = averages.shape
    mean = averages.mean()
    if n < 2:
        return pd.DataFrame({"mean": mean, "low": math.nan, "high": math.nan}).sort_values("mean", kind="stable")
    from scipy.special import ndtri

    tail = (1 - LEVEL) / 2 / k
    seen, chance = student(tail, n) * averages.std(ddof=1), -ndtri(tail) * math.sqrt((k**2 - 1) / 12)
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
