"""Evaluations at equal error: known by hand, never extrapolated, intervals that cover."""

import numpy as np
import pandas as pd
import pytest

from shapeline.statistics import paired
from shapeline.statistics.paired import compare_at_equal_error, interpolate_evaluations

SPENT = pd.Series([10.0, 100.0, 1000.0], index=[1, 2, 3])


def curves(factor: float | np.ndarray, power: float = 1.0, n: int = 12) -> pd.DataFrame:
    """Errors factor / evaluations^power of n instances, the harder the later, by budget."""
    hard = np.linspace(1, 2, n)[:, None]
    return pd.DataFrame(hard * np.reshape(factor, (-1, 1)) / SPENT.to_numpy() ** power, columns=SPENT.index)


def test_curves_cross_where_a_power_law_does():
    errors = np.array([[1.0, 0.1, 0.01], [1.0, 0.1, 0.01], [1.0, 0.2, 0.1]])
    found = interpolate_evaluations(errors, SPENT.to_numpy(), np.array([0.1, 0.02, 0.15]))
    share = np.log(0.2 / 0.15) / np.log(2)
    assert found == pytest.approx([100, 500, 10 ** (2 + share)])
    exact = np.array([[1.0, 0.0, 0.0], [1.0, 1e-17, 0.0]])  # from the second budget on; nothing between is known
    assert interpolate_evaluations(exact, SPENT.to_numpy(), np.array([0.5, 0.5])) == pytest.approx([100, 100])


@pytest.mark.parametrize("error, found", [(2.0, np.nan), (1.0, 10.0), (0.01, 1000.0), (0.005, np.nan)])
def test_nothing_is_extrapolated(error, found):
    at = interpolate_evaluations(np.array([[1.0, 0.1, 0.01]]), SPENT.to_numpy(), np.array([error]))
    assert at == pytest.approx([found], nan_ok=True)


def test_a_curve_that_rises_again_counts_at_its_first_crossing():
    at = interpolate_evaluations(np.array([[1.0, 0.1, 0.5]]), SPENT.to_numpy(), np.array([0.3]))
    assert at == pytest.approx([10 ** (1 + np.log10(1 / 0.3))])


def test_twice_the_error_at_every_budget_takes_twice_the_evaluations():
    """1/K against 2/K: the second ends at 2/1000 times the mean hardness, which the first reaches with 500."""
    found = compare_at_equal_error(curves(1.0), curves(2.0), (SPENT, SPENT))
    assert (found.first, found.second, found.ratio) == pytest.approx((500, 1000, 2))
    assert found.error == pytest.approx(1.5 * 2 / 1000) and (found.low, found.high) == pytest.approx((2, 2))
    turned = compare_at_equal_error(curves(2.0), curves(1.0), (SPENT, SPENT))
    assert turned.ratio == pytest.approx(0.5)


def test_costs_are_those_of_each_and_in_their_order():
    dear = pd.Series([3000.0, 30.0, 300.0], index=[3, 1, 2])
    assert compare_at_equal_error(curves(1.0), curves(1.0), (SPENT, dear)).ratio == pytest.approx(3)


def test_without_a_crossing_there_is_no_ratio():
    assert compare_at_equal_error(curves(1.0), curves(1e6), (SPENT, SPENT)) is None
    few = compare_at_equal_error(curves(1.0, n=4), curves(2.0, n=4), (SPENT, SPENT))
    assert few.ratio == pytest.approx(2) and np.isnan(few.low)


def test_intervals_cover_the_ratio_of_all_instances(monkeypatch):
    """Of samples of 40 instances whose second errors are 1 to 3 times the first's about 95 % hold the ratio."""
    random = np.random.default_rng(0)

    def sample(n: int):
        frame = random.lognormal(0, 0.4, (n, 1)) / SPENT.to_numpy()
        return pd.DataFrame(frame, columns=SPENT.index), random.uniform(1, 3, n)

    def ratio(frame: pd.DataFrame, times: np.ndarray):
        return compare_at_equal_error(frame, frame.mul(times, axis=0), (SPENT, SPENT))

    truth = 2.0  # means of independent factors multiply, and the errors fall as 1 / K
    monkeypatch.setattr(paired, "RESAMPLES", 300)
    held = [(found := ratio(*sample(40))).low <= truth <= found.high for _ in range(100)]
    assert 0.88 <= np.mean(held) < 1
