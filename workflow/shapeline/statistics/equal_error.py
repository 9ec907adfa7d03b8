"""How many evaluations two methods need for the same error, between the budgets that they were measured at."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from shapeline.statistics.bounds import LEAST_INSTANCES, LEVEL, student

RESAMPLED = 2000
LOST = 0.025  # share of resamples that may leave the measured budgets before there is no interval


@dataclass(frozen=True)
class EqualError:
    """The error that both reach, the evaluations of each there, and how many times as many the second takes."""

    error: float
    first: float
    second: float
    ratio: float
    low: float
    high: float
    n: int


def evaluations_at(errors: np.ndarray, spent: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Evaluations (r,) at which curves reach an error (r,), log-log linear between neighbouring budgets.

    errors (r, b) at evaluations spent (b,), which ascend. Where a curve crosses the error several times it is the
    first. NaN where it does not cross it between two of its budgets: nothing is extrapolated.
    """
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
    """Evaluations of two methods at the least error that both reach; None where one does not cross it.

    first, second: errors (instances, budgets), compared on the instances that both have; spent: evaluations by budget,
    of each. The ratio's interval is exp(log ratio ± t s), s its standard deviation over resampled instances: NaN with
    fewer than six, or where resamples leave the measured budgets.
    """
    first, second = first.dropna(), second.dropna()
    common = first.index.intersection(second.index)
    if not len(common):
        return None
    both = [frame.loc[common, costs.sort_values().index] for frame, costs in zip((first, second), spent, strict=True)]
    costs = [each.sort_values().to_numpy(float) for each in spent]
    [found] = _ratios(both, costs, np.full((1, len(common)), 1 / len(common)))
    if not np.isfinite(found).all():
        return None
    draws = np.random.default_rng(0).multinomial(len(common), np.full(len(common), 1 / len(common)), RESAMPLED)
    logs = np.log(_ratios(both, costs, draws / len(common))[:, 3])
    fine = np.isfinite(logs)
    half = np.nan
    if len(common) >= LEAST_INSTANCES and fine.mean() >= 1 - LOST:
        half = float(student((1 - LEVEL) / 2, len(common)) * logs[fine].std(ddof=1))
    error, own, others, ratio = map(float, found)
    return EqualError(error, own, others, ratio, ratio * np.exp(-half), ratio * np.exp(half), len(common))


def _ratios(both: list[pd.DataFrame], costs: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Error, evaluations of each, and their ratio (r, 4), of means by weights (r, instances)."""
    means = [weights @ frame.to_numpy(float) for frame in both]
    error = np.maximum(*(mean.min(axis=1) for mean in means))
    taken = [evaluations_at(mean, cost, error) for mean, cost in zip(means, costs, strict=True)]
    return np.column_stack([error, *taken, taken[1] / taken[0]])
