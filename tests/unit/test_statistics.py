"""Paired statistics against scipy, by hand, and on simulated data whose answer is known."""

import gc
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from shapeline import statistics
from shapeline.metrics.compare import over_draws


def table(*columns, names="abcdefgh"):
    return pd.DataFrame(dict(zip(names, map(np.asarray, columns), strict=False)))


def test_by_label_averages_repeats_and_keeps_common_instances():
    measured = pd.DataFrame(
        [
            ("a", 1, 0, "area", math.nan, 1.0),
            ("a", 1, 1, "area", math.nan, 3.0),
            ("a", 2, 0, "area", math.nan, 5.0),
            ("b", 1, 0, "area", math.nan, 7.0),
            ("b", 2, 0, "area", math.nan, math.inf),
            ("b", 1, 0, "area", 0.5, 100.0),
            ("c", 1, 0, "area", math.nan, math.nan),
        ],
        columns=["label", "instance", "repeat", "quantity", "x", "value"],
    )
    found = statistics.by_label(measured, "area")
    assert found.to_dict() == {"a": {1: 2.0}, "b": {1: 7.0}}


def test_pairs_agree_with_scipy_on_random_data_with_ties():
    random = np.random.default_rng(0)
    values = table(random.integers(0, 5, 60), random.integers(0, 6, 60), random.integers(1, 7, 60)).astype(float)
    found = statistics.pairs(values, "lower")
    assert len(found) == 3 and found["better"].iloc[0] == values.mean().idxmin()
    for row in found.itertuples():
        first, second = values[row.better], values[row.worse]
        moved = (first - second)[first != second]
        assert row.p == pytest.approx(stats.wilcoxon(moved).pvalue)
        assert row.difference == pytest.approx(first.mean() - second.mean()) and row.difference <= 0
        assert row.low <= row.difference <= row.high
        greater = stats.rankdata(np.abs(moved))[moved < 0].sum()
        assert row.effect == pytest.approx(2 * greater / stats.rankdata(np.abs(moved)).sum() - 1)
        interval = stats.bootstrap((first - second,), np.mean, method="percentile", n_resamples=4000, rng=1)
        assert row.low == pytest.approx(interval.confidence_interval.low, abs=0.06)
        assert row.high == pytest.approx(interval.confidence_interval.high, abs=0.06)
    smallest = found["p"].idxmin()
    assert found["p_holm"][smallest] == pytest.approx(min(1, 3 * found["p"][smallest]))
    assert (found["p_holm"] >= found["p"]).all()
    assert list(statistics.holm(pd.Series([0.02]))) == [0.02] and gc.get_freeze_count() == 0


def test_pairs_say_which_is_better_in_either_direction_and_equal_ones_are_never_told_apart():
    values = table(np.arange(20.0), np.arange(20.0) + 1, np.arange(20.0))
    lower = statistics.pairs(values, "lower").set_index(["better", "worse"])
    assert lower.loc[("a", "b"), "effect"] == 1 and lower.loc[("a", "b"), "wins"] == 1
    assert lower.loc[("a", "b"), "needed"] == 6
    same = lower.loc[("a", "c")]
    assert (same["p"], same["effect"], same["wins"], same["needed"]) == (1.0, 0.0, 0.5, math.inf)
    higher = statistics.pairs(values, "higher")
    assert list(higher["better"])[:2] == ["b", "b"] and higher["effect"][0] == 1


def test_one_label_has_no_pairs():
    assert len(statistics.pairs(table([1.0, 2.0]))) == 0


@pytest.fixture
def few_resamples(monkeypatch):
    """For tests that ask not about intervals."""
    monkeypatch.setattr(statistics, "RESAMPLES", 20)


def test_false_positives_stay_at_five_percent(few_resamples):
    """Twice as many would be found out: their 95 % interval is apart from this one."""
    random, runs = np.random.default_rng(1), 500
    wrong = sum(statistics.pairs(table(*random.normal(size=(2, 30))))["p"][0] < 0.05 for _ in range(runs))
    low, high = stats.binom.interval(0.95, runs, 0.05)
    assert low <= wrong <= high
    assert stats.binom.interval(0.95, runs, 0.1)[0] > high


def test_one_false_positive_in_a_table_of_equal_labels_is_as_rare(few_resamples):
    """The family-wise error of Holm's correction; uncorrected, one of six pairs is wrong in about one of five runs."""
    random, runs, plain, corrected, sure = np.random.default_rng(2), 300, 0, 0, 0
    for _ in range(runs):
        found = statistics.pairs(table(*random.normal(size=(4, 30))))
        plain += (found["p"] < 0.05).any()
        corrected += (found["p_holm"] < 0.05).any()
        sure += found["sure"].any()
    assert sure <= corrected <= stats.binom.interval(0.95, runs, 0.05)[1] < 0.12 * runs < plain
    assert corrected >= 0.02 * runs  # rare, but it is no test that never finds anything


def test_holm_holds_where_some_labels_do_differ(few_resamples):
    """Of three equal labels and one far better, a false difference among the three is as rare; the better is found."""
    random, runs, wrong, missed = np.random.default_rng(3), 300, 0, 0
    for _ in range(runs):
        a, b, c, best = random.normal(size=(4, 30))
        found = statistics.pairs(table(a, b, c, best - 2))
        null = found["better"] != "d"
        wrong += (found["p_holm"][null] < 0.05).any()
        missed += (found["p_holm"][~null] >= 0.05).any()
    assert wrong <= stats.binom.interval(0.95, runs, 0.05)[1] and missed <= 0.01 * runs


def test_ranks_that_speak_for_the_worse_mean_make_nothing_sure():
    """On 50 of 60 instances b is ahead by a little; a has the better mean by what it gains on the other ten."""
    random = np.random.default_rng(0)
    b = random.normal(size=60)
    a = b + np.r_[random.uniform(0.5, 1, 50), random.uniform(-9, -8, 10)]
    [row] = statistics.pairs(table(a, b)).to_dict("records")
    assert row["better"] == "a" and row["wins"] == pytest.approx(1 / 6)
    assert row["effect"] < 0 and row["p_holm"] < 0.05 and not row["sure"]
    [other] = statistics.pairs(table(a + 3, b)).to_dict("records")  # and now the mean says so too
    assert other["better"] == "b" and other["effect"] > 0 and other["sure"]


def test_draws_that_leave_0_in_the_interval_make_nothing_sure():
    """The averages of three draws differ on every instance, and by no more than draws differ among themselves."""
    random, n = np.random.default_rng(5), 40
    easy = random.normal(size=(n, 1))
    drawn = {"a": pd.DataFrame(easy + np.array([-0.6, 0.0, 0.3]) + random.normal(0, 0.01, (n, 3)))}
    values = pd.DataFrame({"a": drawn["a"].mean(axis=1), "b": easy[:, 0]})
    [held], [found] = (statistics.pairs(values, draws=draws).to_dict("records") for draws in (None, drawn))
    assert held["p_holm"] == found["p_holm"] < 0.001 and held["effect"] == found["effect"] == 1
    assert held["high"] < 0 and held["sure"]
    assert found["low"] < 0 < found["high"] and not found["sure"]
    steady = {"a": drawn["a"] - 3}
    assert statistics.pairs(values.assign(a=values["a"] - 3), draws=steady)["sure"][0]


def drawn_of(kind: str, random: np.random.Generator, shape) -> np.ndarray:
    """Paired differences of mean or middle 0."""
    if kind == "normal":
        return random.normal(size=shape)
    if kind == "heavy":
        return random.standard_t(2, size=shape)
    return random.lognormal(size=shape) - 1.0


@pytest.mark.parametrize("kind", ["normal", "heavy", "skewed"])
@pytest.mark.parametrize("shift", [0.3, 0.6])
def test_needed_instances_give_the_promised_power(kind, shift):
    random = np.random.default_rng(2)
    n = int(statistics.needed(drawn_of(kind, random, 20_000) + shift))
    power = np.mean(stats.wilcoxon(drawn_of(kind, random, (1500, n)) + shift, axis=1).pvalue < 0.05)
    assert 0.72 <= power <= 0.88


def test_a_few_large_differences_do_not_raise_the_instances_needed():
    """A mean that outliers hold near 0 says little of the ranks: by the t test it would take hundreds."""
    differences = np.r_[np.linspace(0.5, 1, 58), -20, -20]
    assert statistics.needed(differences) < 12
    assert statistics.needed(-differences) == statistics.needed(differences)
    assert statistics.needed(np.ones(60)) == 6  # the fewest that can be significant
    assert statistics.needed(np.r_[-np.ones(30), np.ones(30)]) == statistics.needed(np.zeros(9)) == math.inf
    assert statistics.needed(np.array([1.0])) == math.inf


def test_needed_instances_count_pairs_as_by_hand():
    """The shares of the others with which each difference has a sum above 0, ties half."""
    differences = np.array([-2.0, -1, 0, 0, 1, 1, 3, 4])
    sums = differences[:, None] + differences
    above = [np.delete(row > 0, at).mean() + np.delete(row == 0, at).mean() / 2 for at, row in enumerate(sums)]
    alpha, beta = stats.norm.ppf([0.975, 0.8])
    by_hand = ((alpha / math.sqrt(3) + 2 * beta * np.std(above)) / (np.mean(above) - 0.5)) ** 2
    assert statistics.needed(differences) == math.ceil(by_hand) > 6
    # For small effects it is Noether's formula, whose test varies as if nothing differed.
    small = np.random.default_rng(6).normal(0.1, 1, 100_000)
    chance = stats.norm.cdf(math.sqrt(2) * 0.1)
    assert statistics.needed(small) == pytest.approx((alpha + beta) ** 2 / (3 * (chance - 0.5) ** 2), rel=0.1)


def test_average_ranks_and_critical_difference_of_a_published_example():
    # Demsar (2006), Table 6: four classifiers on 14 data sets, average ranks 3.143, 2.000, 2.893, 1.964; CD 1.25.
    auc = np.array(
        [
            [0.763, 0.768, 0.771, 0.798],
            [0.599, 0.591, 0.590, 0.569],
            [0.954, 0.971, 0.968, 0.967],
            [0.628, 0.661, 0.654, 0.657],
            [0.882, 0.888, 0.886, 0.898],
            [0.936, 0.931, 0.916, 0.931],
            [0.661, 0.668, 0.609, 0.685],
            [0.583, 0.583, 0.563, 0.625],
            [0.775, 0.838, 0.866, 0.875],
            [1.000, 1.000, 1.000, 1.000],
            [0.940, 0.962, 0.965, 0.962],
            [0.619, 0.666, 0.614, 0.669],
            [0.972, 0.981, 0.9751, 0.975],
            [0.957, 0.978, 0.946, 0.970],
        ]
    )
    average, critical, p = statistics.critical_difference(table(*auc.T), "higher")
    assert average[["a", "b", "c", "d"]].round(3).tolist() == [3.143, 2.0, 2.893, 1.964]
    assert critical == pytest.approx(1.25, abs=0.005)
    assert p == pytest.approx(stats.friedmanchisquare(*auc.T).pvalue) and p < 0.05
    assert statistics.cliques(average, critical) == [("d", "a")]
    assert statistics.cliques(average, 1.0) == [("d", "c"), ("c", "a")]
    assert statistics.cliques(average, 0.01) == []


def test_of_the_way_is_0_at_random_and_1_at_the_best_found():
    values = table([-1.0, -4, -2], [-3.0, -2, -2], [-2.0, -4, -5], names=("random", "a", "b"))
    found = statistics.of_the_way(values, "random", "lower")
    assert found.index.tolist() == [0, 2]  # on the second nothing beats random
    assert found["a"].tolist() == [1.0, 0.0] and found["b"].tolist() == [0.5, 1.0]
    assert (found["random"] == 0).all()
    assert statistics.of_the_way(-values, "random", "higher").equals(found)


def test_kendall_w_by_hand_and_through_friedman():
    assert statistics.kendall_w([[1, 2, 3], [1, 2, 3]]) == 1
    assert statistics.kendall_w([[1, 2, 3], [3, 2, 1]]) == 0
    table_of = np.random.default_rng(3).integers(0, 4, (6, 5))
    chi = stats.friedmanchisquare(*table_of.T).statistic
    assert statistics.kendall_w(table_of) == pytest.approx(chi / (6 * 4))
    assert math.isnan(statistics.kendall_w([[1, 1], [2, 2]]))


def test_variance_shares_find_what_was_put_in():
    random = np.random.default_rng(4)
    values = random.normal(0, 2, (3000, 1)) + random.normal(0, 1, (1, 300)) + random.normal(0, 1, (3000, 300))
    found = statistics.variance_shares(values)
    assert found["instances"] == pytest.approx(4 / 6, abs=0.05)
    assert found["draws"] == pytest.approx(1 / 6, abs=0.05) and found["rest"] == pytest.approx(1 / 6, abs=0.05)
    assert math.isnan(statistics.variance_shares(values[:, :1])["rest"])


def test_variance_shares_of_two_factors_are_those_of_the_layouts_sums_of_squares():
    """By hand: the components of a two-way layout without replication."""
    values = np.array([[1.0, 2.0, 4.0], [2.0, 5.0, 4.0], [7.0, 7.0, 9.0], [8.0, 6.0, 12.0]])
    n, R = values.shape
    residual = values - values.mean(1)[:, None] - values.mean(0) + values.mean()
    rest = (residual**2).sum() / ((n - 1) * (R - 1))
    rows, columns = values.mean(1).var(ddof=1) - rest / R, values.mean(0).var(ddof=1) - rest / n
    found = statistics.variance_shares(values)
    assert list(found.values()) == pytest.approx([part / (rows + columns + rest) for part in (rows, columns, rest)])


def test_variance_shares_of_three_factors_find_what_was_put_in():
    """Instances 4, draws 1, trainings 2, instances with trainings 1.5, the rest 0.5; means of 40 layouts."""
    random, found = np.random.default_rng(5), []
    for _ in range(40):
        parts = [(4, (80, 1, 1)), (1, (1, 10, 1)), (2, (1, 1, 10)), (1.5, (80, 1, 10)), (0.5, (80, 10, 10))]
        values = sum(random.normal(0, math.sqrt(variance), shape) for variance, shape in parts)
        found.append(statistics.variance_shares(values, ("instances", "draws", "trainings")))
    mean = pd.DataFrame(found).mean()
    assert mean[["instances", "draws", "trainings", "rest"]].to_numpy() == pytest.approx(
        np.array([4, 1, 2, 2]) / 9, abs=0.035
    )


def test_a_factor_of_one_level_has_no_share():
    values = np.random.default_rng(6).normal(size=(30, 1, 4))
    found = statistics.variance_shares(values, ("instances", "draws", "trainings"))
    two = statistics.variance_shares(values[:, 0])
    assert math.isnan(found["draws"])
    assert [found[name] for name in ("instances", "trainings", "rest")] == pytest.approx(list(two.values()))


def test_intervals_of_differences_include_the_draws():
    """Two labels that differ by what each draw adds to all its instances: instances alone say nothing of that."""
    random, n, repeats = np.random.default_rng(7), 200, 5
    moved = np.array([-0.4, -0.2, 0.0, 0.2, 0.4])
    easy = random.normal(size=(n, 1))
    drawn = pd.DataFrame(easy + moved + random.normal(0, 0.01, (n, repeats)))
    values = pd.DataFrame({"a": drawn.mean(axis=1), "b": easy[:, 0] + 1, "c": easy[:, 0] + 2})
    held = statistics.pairs(values).set_index(["better", "worse"])
    found = statistics.pairs(values, draws={"a": drawn, "elsewhere": drawn}).set_index(["better", "worse"])
    # Of R draws by their standard deviation, and with R - 1 degrees of freedom.
    spread = moved.std(ddof=1) / math.sqrt(repeats)
    width = (found["high"] - found["low"])[("a", "b")]
    assert (held["high"] - held["low"])[("a", "b")] < 0.01
    assert width == pytest.approx(2 * stats.t.ppf(0.975, repeats - 1) * spread, rel=0.08)
    assert found.loc[("b", "c")].equals(held.loc[("b", "c")])  # of labels without draws nothing changes
    both = {"a": drawn, "b": drawn + 1}  # drawn each on its own, or what they share would cancel
    found = statistics.pairs(values.assign(b=values["a"] + 1), draws=both)
    assert (found["high"] - found["low"])[0] == pytest.approx(
        2 * stats.t.ppf(0.975, 2 * (repeats - 1)) * math.sqrt(2) * spread, rel=0.08
    )
    alone = statistics.pairs(values.head(1), draws={"a": drawn.head(1)})  # the draws of one instance say too little
    assert alone[["low", "high"]].isna().all(axis=None)
    lost = drawn.copy()
    lost.loc[3, 1:] = math.nan  # an instance on which all draws but one failed
    assert np.isfinite(statistics.pairs(values, draws={"a": lost})[["low", "high"]]).all(axis=None)


@pytest.mark.parametrize("parts", [(0, 1, 0), (20, 1, 0), (10, 1, 10), (45, 9, 46)], ids=str)
@pytest.mark.parametrize("repeats", [3, 5])
def test_intervals_over_few_draws_miss_as_rarely_as_they_say(parts, repeats):
    """parts: variances between instances, between draws, and of the rest; three draws alone missed one time in four."""
    random, n, runs = np.random.default_rng(11), 60, 400
    scale = np.sqrt(parts)
    values = scale[0] * random.normal(size=(runs, n, 1)) + scale[1] * random.normal(size=(runs, 1, repeats))
    values = values + scale[2] * random.normal(size=(runs, n, repeats))
    instances = random.multinomial(n, np.full(n, 1 / n), size=400) / n
    often = random.multinomial(repeats, np.full(repeats, 1 / repeats), size=400) / repeats
    means = instances @ values  # (runs, resamples, repeats)
    shifts = (often * means).sum(2) - means.mean(2)
    low, high = over_draws(values.mean((1, 2)), means.mean(2).T, [(shifts.T, repeats)])
    assert np.mean((low > 0) | (high < 0)) <= stats.binom.ppf(0.99, runs, 0.065) / runs
    bare = np.quantile(means.mean(2) + shifts, (0.025, 0.975), axis=1)
    if parts == (0, 1, 0):
        assert np.mean((bare[0] > 0) | (bare[1] < 0)) > 0.15


def test_draws_that_do_not_differ_leave_the_interval_as_it_is():
    random = np.random.default_rng(12)
    means = random.normal(size=(2000, 3))
    low, high = over_draws(np.zeros(3), means, [(np.zeros((2000, 3)), 3)])
    np.testing.assert_allclose([low, high], np.quantile(means, (0.025, 0.975), axis=0))


def test_summary_has_the_bootstrap_interval_of_each_column():
    random = np.random.default_rng(13)
    values = table(random.normal(size=50), random.normal(5, 2, size=50))
    found = statistics.summary(values)
    assert found["mean"].tolist() == pytest.approx(values.mean().tolist()) and list(found.index) == ["a", "b"]
    assert (found["high"] - found["low"]).to_numpy() == pytest.approx(
        2 * 1.96 * values.std().to_numpy() / np.sqrt(50), rel=0.15
    )


def test_by_draw_has_the_labels_with_three_repeats():
    rows = [("a", i, r, "area", math.nan, 10.0 * i + r) for i in (1, 2) for r in range(3) if (i, r) != (2, 1)]
    rows += [("b", i, r, "area", math.nan, 1.0) for i in (1, 2) for r in range(2)]
    measured = pd.DataFrame(rows, columns=["label", "instance", "repeat", "quantity", "x", "value"])
    found = statistics.by_draw(measured, "area")
    assert list(found) == ["a"] and found["a"].loc[1].tolist() == [10, 11, 12] and math.isnan(found["a"].loc[2, 1])
