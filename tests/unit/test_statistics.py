"""Paired statistics against scipy, by hand, and on simulated data with a known answer."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from shapeline.statistics import paired
from shapeline.statistics.bounds import variance_components, variance_shares


def table(*columns, names="abcdefgh"):
    return pd.DataFrame(dict(zip(names, map(np.asarray, columns), strict=False)))


def test_pivot_by_method_averages_repeats_and_keeps_common_instances():
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
        columns=["method", "instance", "repeat", "statistic", "x", "value"],
    )
    found = paired.pivot_by_method(measured, "area")
    assert found.to_dict() == {"a": {1: 2.0}, "b": {1: 7.0}}


def test_one_method_has_no_pairs():
    assert len(paired.pairs(table([1.0, 2.0]))) == 0


def test_false_positives_stay_at_five_percent():
    """Twice as many would be found out: their 95 % interval is apart from this one."""
    random, runs = np.random.default_rng(1), 500
    wrong = sum(paired.pairs(table(*random.normal(size=(2, 30))))["p"][0] < 0.05 for _ in range(runs))
    low, high = stats.binom.interval(0.95, runs, 0.05)
    assert low <= wrong <= high
    assert stats.binom.interval(0.95, runs, 0.1)[0] > high


def test_false_positives_in_a_table_of_equal_methods_have_the_nominal_rate():
    """The family-wise error of Holm's correction; uncorrected, one of six pairs is wrong in about one of five runs."""
    random, runs, plain, corrected, sure = np.random.default_rng(2), 300, 0, 0, 0
    for _ in range(runs):
        found = paired.pairs(table(*random.normal(size=(4, 30))))
        plain += (found["p"] < 0.05).any()
        corrected += (found["p_holm"] < 0.05).any()
        sure += found["sure"].any()
    assert sure <= corrected <= stats.binom.interval(0.95, runs, 0.05)[1] < 0.12 * runs < plain
    assert corrected >= 0.02 * runs  # rare, but it is no test that never finds anything


def test_holm_controls_errors_if_some_methods_differ():
    """Of three equal labels and one far better, a false difference among the three is as rare; the better is found."""
    random, runs, wrong, missed = np.random.default_rng(3), 300, 0, 0
    for _ in range(runs):
        a, b, c, best = random.normal(size=(4, 30))
        found = paired.pairs(table(a, b, c, best - 2))
        null = found["better"] != "d"
        wrong += (found["p_holm"][null] < 0.05).any()
        missed += (found["p_holm"][~null] >= 0.05).any()
    assert wrong <= stats.binom.interval(0.95, runs, 0.05)[1] and missed <= 0.01 * runs


def test_ranks_in_favour_of_the_worse_mean_prevent_significance():
    """On 50 of 60 instances b is ahead by a little; a has the better mean by what it gains on the other ten."""
    random = np.random.default_rng(0)
    b = random.normal(size=60)
    a = b + np.r_[random.uniform(0.5, 1, 50), random.uniform(-9, -8, 10)]
    [row] = paired.pairs(table(a, b)).to_dict("records")
    assert row["better"] == "a" and row["wins"] == pytest.approx(1 / 6)
    assert row["effect"] < 0 and row["p_holm"] < 0.05 and not row["sure"]
    [other] = paired.pairs(table(a + 3, b)).to_dict("records")  # and now the mean says so too
    assert other["better"] == "b" and other["effect"] > 0 and other["sure"]


def test_every_pair_is_tested_as_by_scipy():
    """For every choice of a distribution: with and without ties and zeros, few and many, and only zeros."""
    random = np.random.default_rng(4)
    for n in (7, 12, 40, 70):
        plain = random.integers(-(10**6), 10**6, (n, 2))  # hardly a tie
        tied = plain[:, 0] + random.choice([-2, -1, 1, 2], n)  # of as many gains that are not 0
        whole = random.integers(-3, 4, (n, 2))
        values = table(*plain.T, tied, *whole.T, whole[:, 0])
        found = paired.pairs(values)
        assert len(found) == 15
        for row in found.itertuples():
            gains = (values[row.worse] - values[row.better]).to_numpy()
            gains = gains[gains != 0]
            if not len(gains):
                assert (row.p, row.effect) == (1.0, 0.0)
                continue
            ranks = stats.rankdata(np.abs(gains))
            effect = (np.sign(gains) * ranks).sum() / ranks.sum()
            assert (row.p, row.effect) == pytest.approx((stats.wilcoxon(gains).pvalue, effect), rel=1e-10)


def test_friedmans_test_and_the_critical_difference_are_scipys():
    random = np.random.default_rng(5)
    for values in (random.normal(size=(30, 5)), random.integers(0, 3, (9, 4))):
        n, k = values.shape
        _, critical, p = paired.critical_difference(pd.DataFrame(values))
        assert p == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
        range_ = stats.studentized_range.ppf(0.95, k, np.inf)
        assert critical == pytest.approx(range_ / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n)), rel=1e-6)
    assert math.isnan(paired.critical_difference(pd.DataFrame(np.ones((9, 4))))[2])


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
    n = int(paired.count_needed(drawn_of(kind, random, 20_000) + shift))
    power = np.mean(stats.wilcoxon(drawn_of(kind, random, (1500, n)) + shift, axis=1).pvalue < 0.05)
    assert 0.72 <= power <= 0.88


def test_a_few_large_differences_do_not_raise_the_instances_needed():
    """A mean near 0 because of outliers says little about ranks: the t test would need hundreds."""
    differences = np.r_[np.linspace(0.5, 1, 58), -20, -20]
    assert paired.count_needed(differences) < 12
    assert paired.count_needed(-differences) == paired.count_needed(differences)
    assert paired.count_needed(np.ones(60)) == 6  # the fewest that can be significant
    assert paired.count_needed(np.r_[-np.ones(30), np.ones(30)]) == paired.count_needed(np.zeros(9)) == math.inf
    assert paired.count_needed(np.array([1.0])) == math.inf


def test_needed_instances_equal_the_count_by_hand():
    """The shares of the others with which each difference has a sum above 0, ties half."""
    differences = np.array([-2.0, -1, 0, 0, 1, 1, 3, 4])
    sums = differences[:, None] + differences
    above = [np.delete(row > 0, at).mean() + np.delete(row == 0, at).mean() / 2 for at, row in enumerate(sums)]
    alpha, beta = stats.norm.ppf([0.975, 0.8])
    by_hand = ((alpha / math.sqrt(3) + 2 * beta * np.std(above)) / (np.mean(above) - 0.5)) ** 2
    assert paired.count_needed(differences) == math.ceil(by_hand) > 6
    # For small effects it is Noether's formula, whose test varies as if nothing differed.
    small = np.random.default_rng(6).normal(0.1, 1, 100_000)
    chance = stats.norm.cdf(math.sqrt(2) * 0.1)
    assert paired.count_needed(small) == pytest.approx((alpha + beta) ** 2 / (3 * (chance - 0.5) ** 2), rel=0.1)


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
    average, critical, p = paired.critical_difference(table(*auc.T), "higher")
    assert average[["a", "b", "c", "d"]].round(3).tolist() == [3.143, 2.0, 2.893, 1.964]
    assert critical == pytest.approx(1.25, abs=0.005)
    assert p == pytest.approx(stats.friedmanchisquare(*auc.T).pvalue) and p < 0.05
    assert paired.cliques(average, critical) == [("d", "a")]
    assert paired.cliques(average, 1.0) == [("d", "c"), ("c", "a")]
    assert paired.cliques(average, 0.01) == []


def test_of_the_way_is_0_at_random_and_1_at_the_best_found():
    values = table([-1.0, -4, -2], [-3.0, -2, -2], [-2.0, -4, -5], names=("random", "a", "b"))
    found = paired.scale_to_range(values, "random", "lower")
    assert found.index.tolist() == [0, 2]  # on the second nothing beats random
    assert found["a"].tolist() == [1.0, 0.0] and found["b"].tolist() == [0.5, 1.0]
    assert (found["random"] == 0).all()
    assert paired.scale_to_range(-values, "random", "higher").equals(found)


def test_kendall_w_by_hand_and_through_friedman():
    assert paired.kendall_w([[1, 2, 3], [1, 2, 3]]) == 1
    assert paired.kendall_w([[1, 2, 3], [3, 2, 1]]) == 0
    table_of = np.random.default_rng(3).integers(0, 4, (6, 5))
    chi = stats.friedmanchisquare(*table_of.T).statistic
    assert paired.kendall_w(table_of) == pytest.approx(chi / (6 * 4))
    assert math.isnan(paired.kendall_w([[1, 1], [2, 2]]))


def test_pivot_by_repeat_has_the_methods_with_two_repeats():
    rows = [("a", i, r, "area", math.nan, 10.0 * i + r) for i in (1, 2) for r in range(2) if (i, r) != (2, 1)]
    rows += [("b", i, 0, "area", math.nan, 1.0) for i in (1, 2)]
    measured = pd.DataFrame(rows, columns=["method", "instance", "repeat", "statistic", "x", "value"])
    drawn = paired.pivot_by_repeat(measured, "area")
    assert list(drawn) == ["a"] and drawn["a"].loc[1].tolist() == [10, 11] and math.isnan(drawn["a"].loc[2, 1])


def test_variance_shares_are_those_of_the_existing_components():
    values = np.random.default_rng(4).normal(size=(40, 3, 2)) + np.random.default_rng(5).normal(size=(40, 1, 1))
    parts, shares = variance_components(values), variance_shares(values)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares == pytest.approx({name: part / sum(parts.values()) for name, part in parts.items()})
    alone = variance_shares(values[:, :, :1])
    assert math.isnan(alone["training_seeds"]) and alone["instances"] + alone["repetitions"] == pytest.approx(1)


def test_pooled_ranks_take_datasets_and_models_as_units_and_agreement_does_not_make_them_exact():
    cells = pd.DataFrame({"a": [1.0, 1, 2, 1, 1, 1], "b": [2.0, 2, 1, 3, 2, 2], "c": [3.0, 3, 3, 2, 3, 3]})
    found = paired.pool_ranks(cells, ["d", "d", "d", "e", "f", "f"])
    assert found["mean"].to_dict() == pytest.approx({"a": (4 / 3 + 1 + 1) / 3, "b": (5 / 3 + 3 + 2) / 3, "c": 8 / 3})
    chance = stats.norm.ppf(1 - 0.05 / 6) * math.sqrt(8 / 12 / 3)  # three labels share the 5 %
    assert found["low"].eq(1).all() and found["high"].tolist() == pytest.approx([10 / 9 + chance, 3, 3])
    turned = pd.DataFrame([np.roll(np.arange(9), shift) for shift in (0, 0, 0, 3) * 5])
    units = np.array([9, 9, 9, 6] * 5)  # of the last
    seen, chance = stats.t.ppf(1 - 0.05 / 18, 19) * units.std(ddof=1), stats.norm.ppf(1 - 0.05 / 18)
    last, half = paired.pool_ranks(turned, range(20)).loc[8], max(seen, chance * math.sqrt(80 / 12)) / math.sqrt(20)
    assert last.tolist() == pytest.approx([units.mean(), units.mean() - half, 9])
    agreed = paired.pool_ranks(pd.DataFrame([list(range(9))] * 4), list("wxyz"))
    assert agreed["high"][0] == pytest.approx(1 + stats.norm.ppf(1 - 0.05 / 18) * math.sqrt(80 / 12 / 4))
    more = paired.pool_ranks(pd.DataFrame([list(range(9))] * 40), list("wxyz") * 10)
    assert more["high"].equals(agreed["high"])  # more trainings of the same models are no more units
    assert paired.pool_ranks(cells, ["d"] * 6)["low"].isna().all()


def test_pooled_intervals_are_simultaneous():
    random, missed = np.random.default_rng(0), 0
    true = stats.rankdata([0.0, 0.4, 0.8, 1.2, 1.6])
    quality = random.normal(np.arange(5) * 0.4, 1.0, (60_000, 5))
    expected = stats.rankdata(quality, axis=1).mean(0)
    assert (np.argsort(expected) == np.argsort(true)).all()
    for trial in range(400):
        found = paired.pool_ranks(pd.DataFrame(quality[6 * trial : 6 * trial + 6]), range(6)).sort_index()
        missed += ((found["low"] > expected) | (found["high"] < expected)).any()
    assert missed <= 33  # 5 % of 400, and three standard deviations
