"""Paired comparisons of methods on the same instances: tables (instances, methods), tests, ranks, equal error."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from shapeline.statistics.bounds import LEVEL, MIN_INSTANCES, is_enough, moments, t_quantile

MAX_ENUMERATED = 13  # largest number of units of which all sign patterns are enumerated if gains tie
MAX_EXACT = 50  # largest number of units whose exact distribution is used if no gains tie


def group_rows(gains: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield indices and gains of rows (k, n) that one test covers: equal number of nonzero gains, ties or none."""
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
    ties = n * (n + 1) * (2 * n + 1) / 6 - (ranks**2).sum(1)  # sum of (t^3 - t) / 12 over groups of t equal gains
    if n <= MAX_EXACT and not ties.any():
        probabilities = _compute_distribution(n)
        cumulative = np.cumsum(probabilities)
        index = above.round().astype(int)
        return np.minimum(1.0, 2 * np.minimum(cumulative[index], cumulative[-1 - index])), signed
    if n <= MAX_ENUMERATED:
        signs = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
        p = [2 * min((signs @ row <= sum_).mean(), (signs @ row >= sum_).mean())
             for row, sum_ in zip(ranks, above, strict=True)]  # fmt: skip
        return np.minimum(1.0, p), signed
    error = np.sqrt(((n * (n + 1) * (2 * n + 1)) - 6 * ties) / 24)
    return 2 * ndtr(-np.abs(above - n * (n + 1) / 4) / error), signed


@functools.cache
def _compute_distribution(n: int) -> np.ndarray:
    """Return the probability of each sum, 0 to n (n + 1) / 2, of ranks 1 to n, each included with probability 1/2."""
    probabilities = np.ones(1)
    for rank in range(1, n + 1):
        probabilities = (np.pad(probabilities, (0, rank)) + np.pad(probabilities, (rank, 0))) / 2
    return probabilities


POWER = 0.8
SIGNIFICANCE = 0.05


def pivot_by_method(measured: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """Return a scalar statistic as (instances, methods), repeats averaged, on the instances that all methods have.

    A method that lacks more than half of the instances of another method is omitted.
    """
    rows = _select_scalar(measured, statistic)
    wide = rows.pivot_table(index="instance", columns="method", values="value", aggfunc="mean")
    wide = wide.dropna(axis=1, how="all")
    counts = wide.notna().sum()
    return wide.loc[:, counts >= counts.max() / 2].dropna()


def pivot_by_repeat(measured: pd.DataFrame, statistic: str) -> dict[str, pd.DataFrame]:
    """Return a scalar statistic as (instances, repeats) per method with two or more repeats; NaN for failures."""
    rows = _select_scalar(measured, statistic)
    repeated = {entry: group for entry, group in rows.groupby("method") if group["repeat"].nunique() > 1}
    return {
        entry: group.pivot_table(index="instance", columns="repeat", values="value", dropna=False)
        for entry, group in repeated.items()
    }


def _select_scalar(measured: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """Return the rows of a scalar statistic, NaN where a value is not finite."""
    rows = measured[(measured["statistic"] == statistic) & measured["x"].isna()]
    return rows.assign(value=rows["value"].replace([np.inf, -np.inf], np.nan))


def pairs(values: pd.DataFrame, better: str = "lower") -> pd.DataFrame:
    """Return a row per pair of methods, the better mean first.

    values: (instances, methods) without NaN, repeats averaged; better: "lower" or "higher". Columns: better, worse;
    difference (of means, better minus worse) with low and high (`intervals`, 95 %); p (Wilcoxon's signed-rank test,
    two-sided; 1 where all are equal), p_holm (Holm 1979, over all pairs of the table); effect
    (matched-pairs rank-biserial correlation, 1 where the better wins everywhere, below 0 where the ranks favour the
    worse mean; Kerby 2014); wins (share of instances, ties half); n; needed (instances, by `count_needed`); sure
    (whether the difference is significant: p_holm below 0.05, ranks and interval of the same sign, and at least 6
    instances).
    """
    entries = order(values, better)
    firsts, seconds = zip(*itertools.combinations(entries, 2), strict=True) if len(entries) > 1 else ((), ())
    differences = values[list(firsts)].to_numpy() - values[list(seconds)].to_numpy()  # (n, pairs)
    sign = 1 if better == "higher" else -1
    interval = moments(differences)
    low, high = interval.ends(t_quantile((1 - LEVEL) / 2, interval.units))
    p, effect = _test_signed_ranks(sign * differences)
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
            "needed": list(map(count_needed, differences.T)),
        }
    )
    excludes_zero = (table["low"] > 0) | (table["high"] < 0)
    is_significant = (table["p_holm"] < SIGNIFICANCE) & (table["effect"] > 0) & excludes_zero
    return table.assign(sure=is_enough(len(values)) & is_significant)


def holm(p: np.ndarray) -> np.ndarray:
    """Return p-values corrected for their number (Holm 1979), in the order of the uncorrected ones."""
    p = np.asarray(p, float)
    order = np.argsort(p)
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(raised, 1.0)
    return corrected


def count_needed(differences: np.ndarray) -> float:
    """Return the number of units at which the signed-rank test of the paired differences (n,) has a power of 0.8 at
    p = 0.05; at least 6, the fewest at which it can be significant; inf where no number suffices.

    Noether's (1987) method, from P(D1 + D2 > 0), ties half, of two distinct differences. Noether uses the statistic's
    variance under the null hypothesis; here it is the actual variance, from P(D1 + D2 > 0 and D1 + D3 > 0) (Lehmann
    1975, §4.2), which matters for large differences.
    """
    from scipy.special import ndtri

    n, ordered = len(differences), np.sort(differences)
    if n < 2:
        return math.inf
    below, until = (np.searchsorted(ordered, -differences, side) for side in ("left", "right"))
    self_pairs = (differences > 0) + 0.5 * (differences == 0)
    above = (n - 0.5 * (below + until) - self_pairs) / (n - 1)  # per unit: share of positive sums with others
    probability = above.mean()
    if math.isclose(probability, 0.5):
        return math.inf
    root = (ndtri((1 + LEVEL) / 2) / math.sqrt(3) + 2 * ndtri(POWER) * above.std()) / abs(probability - 0.5)
    return float(math.ceil(max(6.0, root**2)))


def _test_signed_ranks(gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two-sided p of Wilcoxon's test and the rank-biserial correlation per column; 1 and 0 where all are 0."""
    p, effect = np.ones(gains.shape[1]), np.zeros(gains.shape[1])
    for indices, rows in group_rows(gains.T):
        p[indices], signed = signed_rank_test(rows)
        effect[indices] = signed.sum(1) / np.abs(signed).sum(1)
    return p, effect


def order(values: pd.DataFrame, better: str = "lower") -> list[str]:
    """Return the methods ordered by mean, the best first; equal means by name."""
    means = values.mean().sort_index()
    return list(means.sort_values(ascending=better == "lower", kind="stable").index)


def scale_to_range(values: pd.DataFrame, random: str, better: str = "lower") -> pd.DataFrame:
    """Return values (instances, methods) scaled to 0 for `random` and 1 for the best, where a method beats random."""
    sign = 1 if better == "higher" else -1
    best = (sign * values).max(axis=1)
    gained = (sign * values).sub(sign * values[random], axis=0)
    span = best - sign * values[random]
    return gained[span > 0].div(span[span > 0], axis=0)


TRIALS = 2000
CORRELATION_LEVEL = SIGNIFICANCE / 5  # by Bonferroni, for up to five such tests on a page, one per criterion
MAX_CELLS = 1 << 20  # values that are shuffled at a time


@dataclass(frozen=True)
class EqualMethods:
    """Result of an A/A test. rate: share of trials whose test rejects; together: p of a permutation test of correlation
    between instances (small where they are correlated); sentence: both in words. NaN where there are too few."""

    rate: float
    together: float
    n: int
    repeats: int
    sentence: str


def rate_of_equal_methods(repeats: np.ndarray, trials: int = TRIALS) -> EqualMethods:
    """Return the rate at which the signed-rank test rejects for two samples of one method at level 0.05.

    repeats: (n, R), R at least 2. A trial assigns two different repeats to every instance. A permutation test of the
    variance of the columns' means also tests whether samples are correlated between instances.
    """
    repeats = np.asarray(repeats, float)
    repeats = repeats[np.isfinite(repeats).all(1)]
    n, count = repeats.shape
    if count < 2 or not is_enough(n):
        return EqualMethods(np.nan, np.nan, n, count, "too few repeats or instances.")
    variance, rejected, above = repeats.mean(0).var(), 0, 0
    random, step = np.random.default_rng(0), max(1, MAX_CELLS // repeats.size)
    for start in range(0, trials, step):
        # The repeats of each instance are permuted independently.
        shuffled = random.permuted(np.broadcast_to(repeats, (min(step, trials - start), *repeats.shape)), axis=2)
        rejected += signed_rank_rejections(shuffled[:, :, 0] - shuffled[:, :, 1]).sum()
        above += (shuffled.mean(1).var(1) >= variance * (1 - 1e-9)).sum()
    rate, together = float(rejected / trials), float((1 + above) / (1 + trials))
    return EqualMethods(rate, together, n, count, _format_sentence(rate, together))


def signed_rank_rejections(differences: np.ndarray, level: float = SIGNIFICANCE) -> np.ndarray:
    """Return whether Wilcoxon's two-sided test rejects: differences (trials, n) -> (trials,)."""
    has_zero = (differences == 0).any(1)
    rejected = np.zeros(len(differences), bool)
    if (~has_zero).any():
        rejected[~has_zero] = signed_rank_test(differences[~has_zero])[0] < level
    indices_with_zero = np.flatnonzero(has_zero)
    for indices, rows in group_rows(differences[indices_with_zero]):
        rejected[indices_with_zero[indices]] = signed_rank_test(rows)[0] < level
    return rejected


def _format_sentence(rate: float, together: float) -> str:
    start = f"{100 * rate:.1f} % of tests between two sampling repetitions of one method are significant (5 % expected)"
    if together < CORRELATION_LEVEL:
        return (
            f"{start}. ⚠ The repetitions are correlated between instances (p = {together:.3f}), so the p-values of the "
            "test are too small."
        )
    return f"{start}. The repetitions are not significantly correlated between instances (p = {together:.3f})."


RESAMPLES = 2000
ROUNDING = 1e-9  # share of the error at the last budget below which an error is 0 but for rounding
MAX_LOST = 0.025  # no interval is given if a larger share of resamples is outside the measured budgets


@dataclass(frozen=True)
class EqualError:
    """The smallest error that both methods reach, the evaluations of each, and their ratio, second over first."""

    error: float
    first: float
    second: float
    ratio: float
    low: float
    high: float
    n: int


def interpolate_evaluations(errors: np.ndarray, budgets: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return evaluations (r,) at which curves (r, b) first reach an error (r,), log-log linear; NaN beyond."""
    is_reached = errors <= error[:, None]
    after = is_reached.argmax(axis=1)
    rows = np.arange(len(errors))
    before = np.maximum(after - 1, 0)
    is_exact = errors[rows, after] <= ROUNDING * errors[rows, before]  # no power law leads to an error of 0
    ends = errors[rows, before], np.where(is_exact, error, errors[rows, after]), error
    up, down, target = (np.log(np.maximum(value, np.finfo(float).tiny)) for value in ends)
    share = np.divide(up - target, up - down, out=np.zeros(len(up)), where=up > down)
    logs = np.log(budgets)[before] + share * (np.log(budgets)[after] - np.log(budgets)[before])
    is_inside = is_reached.any(axis=1) & ((after > 0) | (errors[:, 0] == error))
    return np.where(is_inside, np.exp(logs), np.nan)


def compare_at_equal_error(
    first: pd.DataFrame, second: pd.DataFrame, spent: tuple[pd.Series, pd.Series]
) -> EqualError | None:
    """Return the evaluations of two methods at the smallest error that both reach; None where one does not cross it.

    Errors (instances, budgets) on common instances. The ratio's interval is exp(log ratio ± t s) over resampled
    instances.
    """
    first, second = first.dropna(), second.dropna()
    common = first.index.intersection(second.index)
    if not len(common):
        return None
    errors = [frame.loc[common, costs.sort_values().index] for frame, costs in zip((first, second), spent, strict=True)]
    costs = [series.sort_values().to_numpy(float) for series in spent]
    [result] = _compute_ratios(errors, costs, np.full((1, len(common)), 1 / len(common)))
    if not np.isfinite(result).all():
        return None
    resamples = np.random.default_rng(0).multinomial(len(common), np.full(len(common), 1 / len(common)), RESAMPLES)
    logs = np.log(_compute_ratios(errors, costs, resamples / len(common))[:, 3])
    is_finite = np.isfinite(logs)
    half = np.nan
    if len(common) >= MIN_INSTANCES and is_finite.mean() >= 1 - MAX_LOST:
        half = float(t_quantile((1 - LEVEL) / 2, len(common)) * logs[is_finite].std(ddof=1))
    error, first_count, second_count, ratio = map(float, result)
    return EqualError(error, first_count, second_count, ratio, ratio * np.exp(-half), ratio * np.exp(half), len(common))


def _compute_ratios(errors: list[pd.DataFrame], costs: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return error, evaluations of each method, and their ratio (r, 4), of means by weights (r, instances)."""
    means = [weights @ frame.to_numpy(float) for frame in errors]
    error = np.maximum(*(mean.min(axis=1) for mean in means))
    evaluations = [interpolate_evaluations(mean, cost, error) for mean, cost in zip(means, costs, strict=True)]
    return np.column_stack([error, *evaluations, evaluations[1] / evaluations[0]])


def ranks(values: pd.DataFrame, better: str = "lower") -> pd.DataFrame:
    """Return the rank of each method per instance, 1 the best, equal values with the mean rank; (n, methods)."""
    return values.rank(axis=1, ascending=better == "lower")


def critical_difference(values: pd.DataFrame, better: str = "lower") -> tuple[pd.Series, float, float]:
    """Return average ranks, Nemenyi's critical difference at 5 %, and Friedman's p, NaN below three methods."""
    n, k = values.shape
    found = ranks(values, better)
    average = found.mean().sort_values(kind="stable")
    critical = range_quantile(k) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))
    p = _test_friedman(found.to_numpy()) if k > 2 and n > 1 else math.nan
    return average, float(critical), float(p)


def _test_friedman(table: np.ndarray) -> float:
    """Return p of Friedman's test of ranks (n, k), corrected for ties; NaN where all are equal."""
    from scipy.special import chdtrc  # scipy.stats takes half a second

    n, k = table.shape
    total = (table**2).sum() - n * k * (k + 1) ** 2 / 4
    between = ((table.sum(0) - n * (k + 1) / 2) ** 2).sum()
    return float(chdtrc(k - 1, (k - 1) * between / total)) if total > 0 else math.nan


@functools.cache
def range_quantile(k: int) -> float:
    """Return the 95 % quantile of the range of k standard normal numbers: the studentised range of known variance.

    The range is at most q with probability k ∫ φ(z) (Φ(z + q) - Φ(z))^(k - 1) dz, z the smallest of the numbers.
    """
    from scipy.special import ndtr

    z = np.linspace(-9, 9, 1801)  # a sum is exact for so smooth an integrand
    density = k * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        is_below = (density * (ndtr(z + middle) - ndtr(z)) ** (k - 1)).sum() < LEVEL
        low, high = (middle, high) if is_below else (low, middle)
    return high


def cliques(average: pd.Series, critical: float) -> list[tuple[str, str]]:
    """Return the longest runs of methods with average ranks within the critical difference, as (best, worst)."""
    runs, names = [], list(average.index)
    for start in range(len(names)):
        end = int(np.flatnonzero(average.to_numpy() - average.iloc[start] < critical)[-1])
        if end > start and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return [(names[start], names[end]) for start, end in runs]


def pool_ranks(table: pd.DataFrame, cluster: Sequence) -> pd.DataFrame:
    """Return mean rank of each method over experiments (best first) with simultaneous 95 % intervals.

    table: (cells, methods), lower is better; cluster: (cells,) the dataset and model of each, which are the units. An
    interval is the wider of Student's t over units and of random ranks, variance (k^2 - 1) / 12 (Friedman), so that
    agreement of few units does not make a rank exact. Bonferroni over methods.
    """
    averages = ranks(table).groupby(np.asarray(cluster)).mean()
    n, k = averages.shape
    mean = averages.mean()
    if n < 2:
        return pd.DataFrame({"mean": mean, "low": math.nan, "high": math.nan}).sort_values("mean", kind="stable")
    from scipy.special import ndtri

    tail = (1 - LEVEL) / 2 / k
    observed, random = t_quantile(tail, n) * averages.std(ddof=1), -ndtri(tail) * math.sqrt((k**2 - 1) / 12)
    half = np.maximum(observed, random) / math.sqrt(n)
    ends = {"low": (mean - half).clip(1, k), "high": (mean + half).clip(1, k)}
    return pd.DataFrame({"mean": mean, **ends}).sort_values("mean", kind="stable")


def kendall_w(table: np.ndarray) -> float:
    """Return Kendall's coefficient of concordance, 0 to 1, of m raters' ranks of k items (m, k), corrected for ties."""
    table = pd.DataFrame(table).rank(axis=1).to_numpy()
    m, k = table.shape
    tied = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in table))
    maximum = m**2 * (k**3 - k) - m * tied
    return float(12 * ((table.sum(0) - m * (k + 1) / 2) ** 2).sum() / maximum) if maximum > 0 else math.nan
