"""Intervals, tests, recommendations by a margin, components and exact orders: by hand, against scipy, brute force."""

import dataclasses
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from shapeline import designs, statistics
from shapeline.errors import ShapelineError
from shapeline.statistics import bounds, recommendation


def table(*columns, names="abcdefgh"):
    return pd.DataFrame(dict(zip(names, map(np.asarray, columns), strict=False)))


# Intervals


def test_interval_of_symmetric_values_is_students():
    values = np.r_[np.linspace(-1, 1, 20)] + 3
    [row] = statistics.intervals(values[:, None]).to_dict("records")
    by_scipy = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((by_scipy.low, by_scipy.high))
    assert row["mean"] == pytest.approx(3) and row["n"] == 20


def test_intervals_of_skewed_values_are_extended_by_halls_transformation():
    values = np.random.default_rng(0).lognormal(size=40)
    error, t = values.std(ddof=1) / np.sqrt(40), stats.t.ppf(0.975, 39)
    low, high = statistics.intervals(values[:, None])[["low", "high"]].to_numpy()[0]
    skew = stats.skew(values)
    reached = (values.mean() - high) / error  # Hall's cubic of it is minus the quantile of t
    cubic = reached + skew * reached**2 / (3 * 40**0.5) + skew**2 * reached**3 / (27 * 40) + skew / (6 * 40**0.5)
    assert cubic == pytest.approx(-t) and reached < -t
    assert low == pytest.approx(values.mean() - t * error)
    mirrored = statistics.intervals(-values[:, None])
    assert mirrored["high"][0] == pytest.approx(-low) and mirrored["low"][0] == pytest.approx(-high)
    extreme = np.r_[np.zeros(9), 1.0]  # the cubic means nothing so far out
    assert statistics.intervals(extreme[:, None])["high"][0] == pytest.approx(0.1 + 1.5 * 0.1 * stats.t.ppf(0.975, 9))


def test_missing_values_and_too_few_units():
    values = np.random.default_rng(4).normal(size=(8, 3))
    values[2:, 1], values[1:, 2] = math.nan, math.nan
    found = statistics.intervals(values)
    assert found["n"].tolist() == [8, 2, 1] and np.isfinite(found[["low", "high"]]).sum(axis=1).tolist() == [2, 2, 0]
    whole = statistics.intervals(values[:2, 1:2])
    assert found.loc[1, ["mean", "low", "high"]].tolist() == pytest.approx(
        whole.loc[0, ["mean", "low", "high"]].tolist()
    )
    assert statistics.is_enough(6) and not statistics.is_enough(5)


def test_a_constant_column_has_an_interval_of_no_width():
    found = statistics.intervals(np.full((7, 1), 0.1))
    assert found["low"][0] == found["mean"][0] == found["high"][0]


def test_hundreds_of_columns_give_the_results_of_each_alone():
    values = np.random.default_rng(5).gamma(1, size=(60, 300))
    found = statistics.intervals(pd.DataFrame(values))
    one = statistics.intervals(values[:, 17:18])
    assert found.loc[17].tolist() == pytest.approx(one.loc[0].tolist())


def test_intervals_together_are_dunnetts():
    """Of columns that share a control, as Dunnett (1955) tabulates them: k = 4, 20 units, correlation 1/2."""
    random = np.random.default_rng(6)
    shared = random.normal(size=(200_000, 1))
    columns = shared + random.normal(size=(200_000, 4))
    # Decorrelated rows of the exact correlation, so that the quantile is that of the table.
    rows = stats.zscore(columns[:61])
    whitened = np.linalg.solve(np.linalg.cholesky(np.cov(rows.T)), (rows - rows.mean(0)).T).T
    exact = whitened @ np.linalg.cholesky(np.full((4, 4), 0.5) + np.eye(4) / 2).T
    assert bounds.max_t(exact, 0.025, both=True) == pytest.approx(2.51, abs=0.05)  # two-sided, 60 degrees of freedom
    assert bounds.max_t(exact, 0.05) == pytest.approx(2.19, abs=0.05)  # one-sided
    assert bounds.max_t(exact[:, :1], 0.025, both=True) == pytest.approx(stats.t.ppf(0.975, 60))


# Pairs


def test_differences_of_pairs_have_the_intervals_of_one_column():
    random = np.random.default_rng(0)
    values = table(random.integers(0, 5, 60), random.integers(0, 6, 60), random.integers(1, 7, 60)).astype(float)
    found = statistics.pairs(values, "lower")
    assert len(found) == 3 and found["better"].iloc[0] == values.mean().idxmin()
    for row in found.itertuples():
        difference = values[row.better] - values[row.worse]
        assert row.difference == pytest.approx(difference.mean()) and row.low <= row.difference <= row.high
        low, high = statistics.intervals(difference.to_frame())[["low", "high"]].to_numpy()[0]
        assert (row.low, row.high) == pytest.approx((low, high))


def test_holm_is_statsmodels():
    from statsmodels.stats.multitest import multipletests

    p = np.random.default_rng(7).uniform(0, 0.2, 9)
    assert statistics.holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert statistics.holm([0.02]).tolist() == [0.02] and len(statistics.holm([])) == 0


def test_pairs_name_the_better_method_in_either_direction_and_equal_ones_are_never_significant():
    values = table(np.arange(20.0), np.arange(20.0) + 1, np.arange(20.0))
    lower = statistics.pairs(values, "lower").set_index(["better", "worse"])
    assert lower.loc[("a", "b"), ["effect", "wins", "needed", "sure"]].tolist() == [1, 1, 6, True]
    same = lower.loc[("a", "c")]
    assert (same["p"], same["effect"], same["wins"], same["needed"], same["sure"]) == (1.0, 0.0, 0.5, math.inf, False)
    higher = statistics.pairs(values, "higher")
    assert list(higher["better"])[:2] == ["b", "b"] and higher["effect"][0] == 1
    assert len(statistics.pairs(table([1.0, 2.0]))) == 0


def test_few_instances_make_nothing_sure():
    assert not statistics.pairs(table(np.arange(5.0), np.arange(5.0) + 9))["sure"][0]


# Claims


def test_a_claim_has_three_outcomes():
    assert statistics.verdict(0.1, 0.3) == "holds" and statistics.verdict(-0.3, -0.1) == "fails"
    assert statistics.verdict(-0.1, 0.1) == statistics.verdict(math.nan, math.nan) == "undecided"
    assert statistics.verdict(0.0, 0.3) == "undecided" and statistics.verdict(0.0, 0.0) == "fails"
    assert statistics.verdict(1.2, 1.4, bar=1.3) == "undecided" and statistics.verdict(1.2, 1.4, bar=1.1) == "holds"


def test_a_claim_about_several_rivals_is_corrected_for_them():
    random = np.random.default_rng(9)
    easy = random.normal(size=40)
    values = table(easy, *(easy + random.normal(shift, 0.5, 40) for shift in (0.5, 0.6, 0.0)))
    found = statistics.compare_with_others(values, "a")
    alone = statistics.intervals((values["b"] - values["a"]).to_frame())
    assert found.table.loc["b", "low"] < alone["low"].iloc[0] and found.table.loc["b", "verdict"] == "holds"
    assert (
        found.verdict == "undecided" and statistics.compare_with_others(values[["a", "b", "c"]], "a").verdict == "holds"
    )
    assert statistics.compare_with_others(values, "b").verdict == "fails"
    assert statistics.compare_with_others(values, "a", "higher").verdict == "fails"
    assert (
        statistics.compare_with_others(values.head(5), "a").verdict
        == statistics.compare_with_others(values[["a"]], "a").verdict
        == "undecided"
    )


# The recommendation


def drawn(*means, n=60, spread=0.1, seed=0, names=None):
    """Labels that differ on the same instances by their own noise; the last is random."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=(n, len(means)))
    noise -= noise.mean(0)  # means are as asked
    easy = random.normal(size=(n, 1))
    names = names or [*"abcdefgh"[: len(means) - 1], "random"]
    return pd.DataFrame(easy + np.array(means) + spread * noise, columns=names)


COSTS = {"a": 100, "b": 10, "c": 1, "random": 0}


def test_the_cheapest_method_within_the_margin_is_recommended():
    found = statistics.recommend(drawn(0.0, 0.01, 1.0, 2.0), COSTS, random="random")
    assert (found.outcome, found.entry, found.safe, found.rivals, found.needed) == ("recommended", "b", True, (), 0)
    assert found.span == pytest.approx(2) and found.margin == pytest.approx(0.1) and found.ends_at == "random"
    assert found.bounds["status"].tolist() == ["within", "within", "plainly worse", "plainly worse"]
    ordered = found.bounds[["low", "behind", "high"]].to_numpy()
    assert np.isfinite(ordered).all() and (np.diff(ordered, axis=1) >= 0).all()
    assert found.bounds.loc["b", "high"] < 0.1 and found.bounds.loc["c", "low"] > 0.5
    sentence = found.sentence("nats", "10 evaluations")
    assert sentence.startswith("Recommended: b (10 evaluations): non-inferior to the best method, at most 0.0")
    large = dataclasses.replace(found, margin=2504.2).sentence("units of the target")
    assert "margin 2,504 units of the target" in large
    assert "margin 0.1 nats, 5 % of the range between the best method and random attribution" in sentence


def test_the_best_where_every_other_is_shown_to_be_worse():
    found = statistics.recommend(drawn(0.0, 0.2, 1.0, 2.0), COSTS, random="random")
    assert (found.outcome, found.entry, found.rivals) == ("best", "a", ())
    assert found.sentence().startswith(
        "Recommended: a: every other method is significantly worse; the next is b, by 0.1"
    )
    assert found.bounds["status"]["b"] == "plainly worse" and found.sentence().endswith(" (simultaneous 95 % CI).")
    alike = statistics.recommend(drawn(0.0, 0.09, 1.0, 2.0), COSTS, random="random")
    assert alike.entry == "a" and alike.bounds["status"]["b"] == "worse"  # surely behind, and not surely by little
    assert alike.bounds["low"]["a"] == 0 < alike.bounds["low"]["b"]


def test_undecided_where_power_does_not_suffice_and_then_the_planned_instances_do():
    values = drawn(0.0, 0.001, 1.0, 2.0, n=20, spread=0.3)
    found = statistics.recommend(values, COSTS, random="random")
    assert (found.outcome, found.entry, found.rivals, found.safe) == ("undecided", "a", ("b",), False)
    more = float(f"{found.needed:.2g}")
    assert (
        f"Undecided between a and b: explain about {more:,.0f} more instances ({more + 20:,.0f} in total) to decide"
        in (found.sentence())
    )
    decided = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        more = random.normal([0.0, 0.0, 1.0, 2.0], 0.3, (int(20 + found.needed), 4))
        decided.append(statistics.recommend(pd.DataFrame(more, columns=list(COSTS)), COSTS, random="random").outcome)
    assert np.mean(np.array(decided) != "undecided") >= 0.7
    lies_between = drawn(0.0, 0.05, 1.0, 2.0, n=100, spread=0.2)
    more = statistics.recommend(lies_between, COSTS, random="random")
    assert more.outcome == "undecided" and more.safe and more.needed > 0
    assert "a can be used: it has the best mean, and no other method is better by more than 0.0" in more.sentence()


def test_no_further_instances_are_requested_if_all_are_explained():
    values = drawn(0.0, 0.001, 1.0, 2.0, n=20, spread=0.3)
    found = statistics.recommend(values, COSTS, random="random", available=20)
    assert found.exhausted and found.sentence().count("all 20 instances are explained; raise the budget, ") == 1
    some = statistics.recommend(values, COSTS, random="random", available=30)
    assert not some.exhausted and some.sentence().count("only 10 are left, so raise the budget, ") == 1


@pytest.mark.parametrize(("fixed", "is_named"), [(["a", "b"], True), (["a", "b", "c"], False)])
def test_a_budget_is_raised_where_a_method_has_one(fixed, is_named):
    undecided = statistics.recommend(
        drawn(0.0, 0.001, 1.0, 2.0, n=20, spread=0.3), COSTS, random="random", available=20, fixed=fixed
    )
    no_margin = statistics.recommend(drawn(0.1, 0.1, 0.1, 0.0, spread=0.5), COSTS, random="random", fixed=fixed)
    for advice in (undecided, no_margin):
        assert advice.outcome == "undecided" and ("raise the budget" in advice.sentence()) == is_named
    assert "widen the margin" in undecided.sentence() and is_named == ("add other methods" not in no_margin.sentence())


def test_an_undecided_cheaper_method_is_named_beside_the_recommendation():
    values = drawn(0.0, 0.01, 0.05, 1.0, n=60)
    values["c"] += np.random.default_rng(3).normal(0, 0.3, 60)
    values["c"] += 0.04 - values["c"].mean() + values["a"].mean()
    found = statistics.recommend(values, COSTS, random="random", margin=0.1)
    assert (found.outcome, found.entry, found.rivals) == ("recommended", "b", ("c",)) and found.needed > 0
    assert "c is cheaper and not significantly different: explain about" in found.sentence()


def test_plainly_worse_methods_do_not_change_the_recommendation():
    values = drawn(0.0, 0.03, 0.04, 2.0, n=40, seed=1)
    before = statistics.recommend(values, COSTS, random="random")
    worse = np.random.default_rng(2).normal(5, 0.3, (40, 12)) + values[["a"]].to_numpy()
    wider = values.join(pd.DataFrame(worse, columns=[f"worse{i}" for i in range(12)]))
    after = statistics.recommend(wider, {**COSTS, "worse3": 0}, random="random")
    assert (after.outcome, after.entry, after.rivals, after.needed) == (
        before.outcome,
        before.entry,
        before.rivals,
        before.needed,
    )
    kept = ["a", "b", "c"]
    pd.testing.assert_frame_equal(after.bounds.loc[kept], before.bounds.loc[kept])
    assert (after.bounds.drop(kept)["status"] == "plainly worse").all()


def test_higher_is_better_reverses_the_criterion():
    values = drawn(0.0, 0.01, 1.0, 2.0)
    lower = statistics.recommend(values, COSTS, random="random")
    higher = statistics.recommend(-values, COSTS, random="random", better="higher")
    assert (higher.entry, higher.outcome, higher.margin) == (lower.entry, lower.outcome, lower.margin)
    assert higher.bounds["mean"].tolist() == pytest.approx((-lower.bounds["mean"]).tolist())
    pd.testing.assert_frame_equal(higher.bounds.drop(columns="mean"), lower.bounds.drop(columns="mean"))


def test_order_of_columns_and_rows_does_not_matter():
    values = drawn(0.0, 0.01, 0.02, 2.0)
    found = statistics.recommend(values, COSTS, random="random")
    turned = statistics.recommend(values.iloc[::-1, ::-1], COSTS, random="random")
    assert turned.entry == found.entry
    pd.testing.assert_frame_equal(turned.bounds, found.bounds, rtol=0.05)


def test_ties_of_cost_go_to_the_better_mean_and_unknown_costs_last():
    values = drawn(0.0, 0.01, 0.0, 2.0)
    assert statistics.recommend(values, {"a": 5, "b": 5}, random="random").entry == "a"
    assert statistics.recommend(values, {"b": 500}, random="random").entry == "b"
    assert statistics.recommend(values, {"a": math.nan, "b": 500}, random="random").entry == "b"
    copies = table(values["a"], values["a"], values["random"], names=["x", "y", "random"])
    same = statistics.recommend(copies, {"x": 2, "y": 1, "random": 0}, random="random")
    assert same.entry == "y" and same.bounds["status"].tolist()[:2] == ["within", "within"]


def test_costs_within_the_rounding_of_a_matched_budget_are_equal():
    values = drawn(0.0, 0.01, 1.0, 2.0)
    assert statistics.recommend(values, {"a": 120, "b": 117.6, "c": 5}, random="random").entry == "a"
    assert statistics.recommend(values, {"a": 120, "b": 114, "c": 5}, random="random").entry == "b"  # more than 5 %
    open_ = drawn(0.0, 0.05, 1.0, 2.0, n=100, spread=0.2)  # b may be as good as a
    assert statistics.recommend(open_, {"a": 120, "b": 100}, random="random").rivals == ("b",)
    assert statistics.recommend(open_, {"a": 120, "b": 117.6}, random="random").rivals == ()


def test_without_random_the_span_ends_at_the_worst():
    values = drawn(0.0, 0.01, 1.0, 2.0)
    found = statistics.recommend(values.drop(columns="random"), COSTS, random="random")
    assert found.ends_at == "c" and found.margin == pytest.approx(0.05)
    assert (
        not found.to_random and "the best method and c, the worst, since random was not measured)" in found.sentence()
    )


def test_where_random_is_the_best_nothing_is_within_a_margin():
    found = statistics.recommend(drawn(0.1, 0.1, 0.1, 0.0, spread=0.5), COSTS, random="random")
    assert found.outcome == "undecided" and found.margin == 0 and math.isinf(found.needed)
    assert "no method is better than random, so there is no margin" in found.sentence()
    sure = statistics.recommend(drawn(1.0, 1.0, 1.0, 0.0), COSTS, random="random")
    assert (sure.outcome, sure.entry) == ("best", "random")
    equal = statistics.recommend(table(*[np.arange(97.0, 117)] * 4, names=list(COSTS)), COSTS, random="random")
    assert equal.outcome == "undecided" and not equal.bounds[["low", "high"]].to_numpy().any()  # no rounding either


def test_one_method_one_instance_and_methods_that_are_missing():
    values = drawn(0.0, 0.01, 1.0, 2.0)
    alone = statistics.recommend(values[["a"]], COSTS)
    assert (alone.outcome, alone.entry) == ("alone", "a") and alone.sentence() == "a is the only method measured."
    for few in (values.head(1), values.head(5), values.head(0)):
        found = statistics.recommend(few, COSTS, random="random")
        assert (found.outcome, found.entry, found.needed) == ("too few", None, 6 - len(few))
        count = "1 instance is" if len(few) == 1 else f"{len(few)} instances are"
        assert found.sentence() == f"No recommendation: {count} too few; explain at least {6 - len(few)} more."
    values.loc[3:, "a"], values["d"] = math.nan, math.inf
    found = statistics.recommend(values, COSTS, random="random")
    assert found.absent == ("a", "d") and found.n == 60 and found.entry == "b"
    assert statistics.recommend(values[["d"]], {}).outcome == "too few"


def test_the_best_of_many_equal_methods_is_not_significantly_better():
    """Eight equal labels: any is named as worse than the one that looks best in at most 5 % of the runs."""
    random, named, runs = np.random.default_rng(10), 0, 150
    for _ in range(runs):
        rows = random.normal(size=(30, 9)) + np.r_[np.zeros(8), 9]
        rows = rows[:, np.argsort(rows.mean(0))]
        status = recommendation.bound_behind_best(rows, rows[:, -1], 0.05)[2]
        named += any("worse" in one for one in status[:8])
    assert named <= stats.binom.ppf(0.99, runs, 0.05)


def test_a_method_behind_by_the_margin_is_not_recommended():
    """Whatever looks best: three equal labels, and cheap ones exactly a margin behind them."""
    random, wrong, runs = np.random.default_rng(11), 0, 150
    means = np.array([0, 0, 0, 0.5, 0.5, 10])
    for _ in range(runs):
        rows = random.normal(size=(60, 6)) + means
        order = np.argsort(rows.mean(0))
        status = recommendation.bound_behind_best(rows[:, order], rows[:, 5], 0.05)[2]
        wrong += any(status[np.isin(order, (3, 4))] == "within")
    assert wrong <= stats.binom.ppf(0.99, runs, 0.05)


# Variance components


def test_components_of_nested_samples_by_hand():
    values = np.array([[1.0, 3.0], [5.0, 9.0], [4.0, 2.0]])[:, :, None]
    # Within: (2 + 8 + 2) / 3 = 4; between means 2, 7, 3: variance 7, so 7 - 4 / 2 = 5.
    found = statistics.variance_components(values)
    assert (found["instances"], found["repetitions"], found["rest"]) == pytest.approx((5, 4, 0))
    assert math.isnan(found["training_seeds"])


def test_components_of_trainings_crossed_with_instances_by_hand():
    values = np.array([[1.0, 2.0, 4.0], [2.0, 5.0, 4.0], [7.0, 7.0, 9.0], [8.0, 6.0, 12.0]])
    n, trainings = values.shape
    residual = values - values.mean(1)[:, None] - values.mean(0) + values.mean()
    rest = (residual**2).sum() / ((n - 1) * (trainings - 1))
    found = statistics.variance_components(values[:, None, :])
    rows, columns = values.mean(1).var(ddof=1) - rest / trainings, values.mean(0).var(ddof=1) - rest / n
    assert (found["instances"], found["training_seeds"], found["rest"]) == pytest.approx((rows, max(columns, 0), rest))
    assert math.isnan(found["repetitions"])


def test_components_find_what_was_put_in():
    """Instances 4, samples 1, seeds 2, instances with seeds 1.5, and 0.5 of sample and seed."""
    random, found = np.random.default_rng(12), []
    for _ in range(60):
        parts = [(4, (60, 1, 1)), (2, (1, 1, 8)), (1.5, (60, 1, 8)), (1, (60, 4, 1)), (0.5, (60, 4, 8))]
        values = sum(random.normal(0, math.sqrt(variance), size) for variance, size in parts)
        found.append(statistics.variance_components(values))
    mean = pd.DataFrame(found).mean()
    assert mean[["instances", "repetitions", "training_seeds", "rest"]].to_numpy() == pytest.approx(
        [4, 1, 2, 2], abs=0.25
    )


def test_components_of_too_little_are_unknown():
    values = np.random.default_rng(13).normal(size=(9, 2, 2))
    assert np.isnan(list(statistics.variance_components(values[:1]).values())).all()
    assert np.isnan(list(statistics.variance_components(values[:, :1, :1]).values())).all()
    values[3, 0, 0] = math.nan
    assert statistics.variance_components(values) == statistics.variance_components(np.delete(values, 3, 0))
    shares = statistics.variance_shares(values)
    assert sum(shares.values()) == pytest.approx(1)


# The best order


def brute(row, d, insertion=False):
    """The least area of masking, or the greatest of insertion, over all orders, and that of each order."""
    found = {}
    for order in itertools.permutations(range(d)):
        passed = np.r_[0, np.cumsum(1 << np.array(order))]
        curve = row[passed] if insertion else row[2**d - 1 - passed]
        found[order] = np.trapezoid(curve) / d
    return (max if insertion else min)(found.values()), found


@pytest.mark.parametrize("d", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("insertion", [False, True])
def test_the_best_order_is_the_best_of_all(d, insertion):
    values = np.random.default_rng(d).normal(size=(4, 2**d))
    order, area = designs.optimal_order(values, insertion)
    for row, own, reached in zip(values, order, area, strict=True):
        best, every = brute(row, d, insertion)
        assert reached == pytest.approx(best) and every[tuple(own)] == pytest.approx(best)


def test_the_best_order_of_an_additive_game_masks_the_largest_first():
    weights = np.array([0.3, -1.0, 2.0, 0.7])
    values = (np.arange(16)[:, None] >> np.arange(4) & 1) @ weights
    assert designs.optimal_order(values[None])[0].tolist() == [[2, 3, 0, 1]]
    assert designs.optimal_order(values[None], insertion=True)[0].tolist() == [[2, 3, 0, 1]]


def test_the_best_order_in_parts_is_that_of_all_at_once(monkeypatch):
    values = np.random.default_rng(14).normal(size=(7, 32))
    order, area = designs.optimal_order(values)
    monkeypatch.setattr("shapeline.designs.orders.MAX_CELLS", 64)
    again = designs.optimal_order(values)
    assert (again[0] == order).all() and (again[1] == area).all()
    for wrong in (values[:, :31], np.zeros((2, 2**17)), np.zeros((2, 1))):
        with pytest.raises(ShapelineError, match="all coalitions"):
            designs.optimal_order(wrong)


# Equal methods


def test_independent_samples_are_rejected_at_the_level():
    random = np.random.default_rng(15)
    repeats = random.gamma(1, size=(60, 1)) + random.gamma(1, size=(60, 3))
    found = statistics.rate_of_equal_methods(repeats)
    assert 0.03 < found.rate < 0.07 and found.together > 0.05 and (found.n, found.repeats) == (60, 3)
    assert "not significantly correlated between instances" in found.sentence


def test_correlated_samples_are_detected():
    random = np.random.default_rng(16)
    shared = random.normal(size=(60, 1)) + np.array([0, 0.5, 1.0]) + random.normal(0, 0.3, (60, 3))
    found = statistics.rate_of_equal_methods(shared)
    assert found.together < 0.01 and "p-values of the test are too small" in found.sentence


def test_the_permutation_test_of_samples_rejects_at_its_level():
    random = np.random.default_rng(17)
    found = [statistics.rate_of_equal_methods(random.gamma(1, size=(20, 3)), trials=99).together for _ in range(200)]
    assert stats.binom.ppf(0.005, 200, 0.05) <= np.sum(np.array(found) <= 0.05) <= stats.binom.ppf(0.995, 200, 0.05)


def test_too_few_repeats_are_reported():
    assert "too few" in statistics.rate_of_equal_methods(np.ones((20, 1))).sentence
    assert "too few" in statistics.rate_of_equal_methods(np.ones((5, 3))).sentence
    same = statistics.rate_of_equal_methods(np.ones((20, 3)))
    assert same.rate == 0 and same.together == 1


def test_rejections_are_scipys_one_by_one():
    random = np.random.default_rng(18)
    differences = np.r_[random.normal(0.3, 1, (40, 25)), random.integers(-2, 4, (40, 25))]
    one_by_one = [stats.wilcoxon(row[row != 0]).pvalue < 0.05 for row in differences]
    assert statistics.signed_rank_rejections(differences).tolist() == one_by_one


def test_intervals_together_hold_all_at_once():
    """Four leads over one label, 20 units: all four cover in about 95 %, each alone in 95 % would in 85 %."""
    random, runs, together, alone = np.random.default_rng(19), 400, 0, 0
    for _ in range(runs):
        own = random.normal(size=(20, 1))
        leads = own - random.normal(size=(20, 4))
        for found, count in ((statistics.intervals(leads, together=True), 1), (statistics.intervals(leads), 0)):
            held = bool(((found["low"] <= 0) & (found["high"] >= 0)).all())
            together, alone = together + held * count, alone + held * (1 - count)
    assert stats.binom.ppf(0.005, runs, 0.95) <= together <= stats.binom.ppf(0.995, runs, 0.95)
    assert alone < 0.91 * runs


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_another_unit_changes_nothing_but_the_unit(unit):
    values = drawn(0.0, 0.01, 1.0, 2.0)
    one, other = (statistics.recommend(scale * values, COSTS, random="random") for scale in (1, unit))
    assert (one.outcome, one.entry, one.needed) == (other.outcome, other.entry, other.needed)
    scaled = ["mean", "behind", "low", "high"]
    assert other.bounds[scaled].to_numpy() == pytest.approx(unit * one.bounds[scaled].to_numpy(), abs=1e-9 * unit)
    parts = [statistics.variance_shares(scale * values.to_numpy()[:, :, None]) for scale in (1, unit)]
    assert parts[0]["instances"] == pytest.approx(parts[1]["instances"])
    pd.testing.assert_frame_equal(
        statistics.pairs(values)[["p", "effect", "needed", "sure"]],
        statistics.pairs(unit * values)[["p", "effect", "needed", "sure"]],
    )


def test_the_cheapest_of_equal_methods_is_the_best_one():
    """Columns equal everywhere, as on two features; by name the dearest would come first."""
    values = np.random.default_rng(0).normal(size=12)
    wide = pd.DataFrame({"exact": values, "unknown": values, "occlusion": values, "random": values})
    costs = {"exact": 4, "occlusion": 3, "random": 0}
    found = statistics.recommend(wide, costs, random="random")
    assert list(found.bounds.index) == ["occlusion", "exact", "unknown", "random"]
    assert found.entry == "occlusion" and found.bounds["cost"].tolist() == [3, 4, math.inf, 0]
