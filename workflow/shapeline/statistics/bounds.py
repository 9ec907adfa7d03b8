"""Intervals of means over independent units by Student's t, extended towards the skew (Hall 1992, JRSS B 54).

On real paired differences they cover as well as t joined with a studentised bootstrap (docs/statistics.md).
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

LEVEL = 0.95
MIN_UNITS = 2  # units needed for an interval
MIN_INSTANCES = 6  # needed for a verdict
MAX_STRETCH = 1.5  # limit of an interval's end, in quantiles of t
HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"  # verdicts on a claim, by its interval
TRIALS = 10_000  # samples for the quantile of the largest of several t statistics


@dataclass(frozen=True)
class Moments:
    """Mean, standard error, skewness and number of units per column; arrays of one shape."""

    mean: np.ndarray
    error: np.ndarray
    skew: np.ndarray
    units: np.ndarray

    def ends(self, quantile: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return low and high of the intervals at a quantile of t, a number or one per column."""
        down, up = (self.error * stretch_quantile(quantile, sign * self.skew, self.units) for sign in (-1, 1))
        return self.mean - down, self.mean + up


def is_enough(count: int) -> bool:
    """Return whether `count` instances suffice for a verdict."""
    return count >= MIN_INSTANCES


def intervals(values: pd.DataFrame | np.ndarray, level: float = LEVEL, together: bool = False) -> pd.DataFrame:
    """Return mean, low, high and n of every column of values (instances, columns); NaN ends below two instances.

    together: the intervals are simultaneous, by the largest |t| of columns with this correlation (Hothorn, Bretz &
    Westfall 2008).
    """
    names = values.columns if isinstance(values, pd.DataFrame) else None
    rows, tail = np.asarray(values, float), (1 - level) / 2
    found = moments(rows)
    quantile = max_t(rows[np.isfinite(rows).all(1)], tail, both=True) if together else t_quantile(tail, found.units)
    low, high = (np.where(found.units >= MIN_UNITS, end, np.nan) for end in found.ends(quantile))
    return pd.DataFrame({"mean": found.mean, "low": low, "high": high, "n": found.units}, index=names)


def moments(rows: np.ndarray) -> Moments:
    """Return moments over the first axis of independent rows, NaN where missing."""
    present = np.isfinite(rows)
    count = present.sum(0)
    mean = _divide(np.where(present, rows, 0.0).sum(0), count)
    deviations = np.where(present, rows - mean, 0.0)
    square, cube = (deviations**2).sum(0), (deviations**3).sum(0)
    error = _divide(square, count * (count - 1)) ** 0.5
    # A constant column has nonzero deviations from rounding.
    flat = square <= count * (1e-12 * np.abs(mean)) ** 2
    error = np.where(flat & (count > 1), 0.0, error)
    skew = np.where(flat, 0.0, np.nan_to_num(_divide(cube * np.sqrt(count), square**1.5)))
    return Moments(mean, error, skew, count)


def stretch_quantile(quantile: np.ndarray | float, skew: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the standard errors from the mean to an interval's end: Hall's (1992) cubic transformation of t."""
    count, skew = np.maximum(count, 2), np.maximum(skew, 1e-9)
    inner = 1 - skew * (quantile / np.sqrt(count) + skew / (6 * count))
    return np.clip(3 * np.sqrt(count) / skew * (1 - np.cbrt(inner)), quantile, MAX_STRETCH * np.asarray(quantile))


def t_quantile(tail: float | np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the upper quantile of t for means of `count` units; NaN below two."""
    from scipy.special import stdtrit  # scipy.stats takes half a second

    count = np.asarray(count)
    return np.where(count > 1, stdtrit(np.maximum(count - 1, 1), 1 - np.asarray(tail)), np.nan)


def max_t(rows: np.ndarray, tail: float, both: bool = False) -> float:
    """Return the upper quantile of the largest t (both: |t|) of correlated columns (units, c); NaN below two units."""
    count = len(rows)
    if count < MIN_UNITS:
        return np.nan
    scaled = rows - rows.mean(0)
    length = np.sqrt((scaled**2).sum(0))
    scaled = scaled[:, length > 0] / length[length > 0]
    if scaled.shape[1] < 2:
        return float(t_quantile(tail, count))
    sizes, directions = np.linalg.eigh(scaled.T @ scaled)
    drawn = (directions * np.sqrt(np.maximum(sizes, 0))) @ _sample(len(sizes))  # a trial per column: five times as fast
    top = (np.abs(drawn, out=drawn) if both else drawn).max(0) / _sample_sd(count)
    return max(float(np.quantile(top, 1 - (2 * tail if both else tail))), float(t_quantile(tail, count)))


@functools.lru_cache(maxsize=64)
def _sample(columns: int) -> np.ndarray:
    """Return standard normal numbers (columns, trials), equal in every call."""
    return np.ascontiguousarray(np.random.default_rng(0).normal(size=(TRIALS, columns)).T)


@functools.lru_cache(maxsize=64)
def _sample_sd(count: int) -> np.ndarray:
    """Return sampled standard deviations (trials,) of `count` units of standard deviation 1."""
    return np.sqrt(np.random.default_rng(1).chisquare(count - 1, TRIALS) / (count - 1))


def _divide(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return total / count, NaN where count is 0."""
    total, count = np.asarray(total, float), np.asarray(count, float)
    return np.divide(total, count, out=np.full(np.broadcast(total, count).shape, np.nan), where=count > 0)


PARTS = ("instances", "repetitions", "training_seeds", "rest")


def variance_components(values: np.ndarray) -> dict[str, float]:
    """Return variance components of instances, samples, training seeds and rest; NaN for those with one level.

    values: (instances, samples, training seeds), samples nested in instances, each one design for every seed, and
    seeds crossed. Mean squares equal their expectations (Searle, Casella & McCulloch 1992,
    chapters 3 and 4), which is unbiased; a negative component is given as 0.
    """
    values = np.asarray(values, float)
    values = values[np.isfinite(values).all((1, 2))]
    n, repeats, seeds = values.shape
    if n < 2 or repeats * seeds < 2:
        return dict.fromkeys(PARTS, math.nan)
    square = _compute_mean_squares(values)
    if seeds == 1:
        parts = {
            "instances": (square["instances"] - square["repetitions"]) / repeats,
            "repetitions": square["repetitions"],
            "rest": 0.0,
        }
    elif repeats == 1:
        parts = {
            "instances": (square["instances"] - square["both"]) / seeds,
            "training_seeds": (square["training_seeds"] - square["both"]) / n,
            "rest": square["both"],
        }
    else:
        residual = square["residual"]
        parts = {
            "instances": (square["instances"] - square["repetitions"] - square["both"] + residual) / (repeats * seeds),
            "repetitions": (square["repetitions"] - residual) / seeds,
            "training_seeds": (square["training_seeds"] - square["both"]) / (n * repeats),
            "rest": max(0.0, (square["both"] - residual) / repeats) + residual,
        }
    return {name: max(0.0, parts[name]) if name in parts else math.nan for name in PARTS}


def variance_shares(values: np.ndarray) -> dict[str, float]:
    """Return the components of `variance_components` as shares of their sum."""
    parts = variance_components(values)
    total = sum(part for part in parts.values() if not math.isnan(part))
    return {name: part / total if total > 0 else math.nan for name, part in parts.items()}


def _compute_mean_squares(values: np.ndarray) -> dict[str, float]:
    """Return mean squares of (instances, samples, seeds): instances, samples in instances, seeds, both, residual."""
    n, repeats, seeds = values.shape
    grand, instance, training = values.mean(), values.mean((1, 2)), values.mean((0, 1))
    by_repeat, cell = values.mean(2), values.mean(1)
    within = ((by_repeat - instance[:, None]) ** 2).sum()
    both = ((cell - instance[:, None] - training + grand) ** 2).sum()
    residual = ((values - by_repeat[:, :, None] - cell[:, None, :] + instance[:, None, None]) ** 2).sum()
    return {
        "instances": repeats * seeds * instance.var(ddof=1),
        "repetitions": seeds * within / max(n * (repeats - 1), 1),
        "training_seeds": n * repeats * training.var(ddof=1) if seeds > 1 else math.nan,
        "both": repeats * both / max((n - 1) * (seeds - 1), 1),
        "residual": residual / max(n * (repeats - 1) * (seeds - 1), 1),
    }


@dataclass(frozen=True)
class Claim:
    """A verdict with its table: per rival mean, low, high (simultaneous 95 %), verdict, and n."""

    verdict: str
    table: pd.DataFrame


def verdict(low: float, high: float, bar: float = 0.0) -> str:
    """Return whether an interval shows a value above the bar: "holds", "fails" or "undecided"."""
    return HOLDS if low > bar else FAILS if high < bar or low == high == bar else UNDECIDED


def compare_with_others(values: pd.DataFrame, first: str, better: str = "lower") -> Claim:
    """Return whether a method is better than each other of a table (instances, methods), by simultaneous intervals."""
    complete = values.dropna()
    sign = 1 if better == "higher" else -1
    leads = complete.drop(columns=first).rsub(complete[first], axis=0).mul(sign)
    table = intervals(leads, together=True)
    suffices = is_enough(len(complete))
    table["verdict"] = [verdict(row.low, row.high) if suffices else UNDECIDED for row in table.itertuples()]
    verdicts = set(table["verdict"]) or {UNDECIDED}
    return Claim(FAILS if FAILS in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS, table)
