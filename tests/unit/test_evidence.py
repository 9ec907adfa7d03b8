"""Recommendations: the cheapest method that is non-inferior to the best, and the figures that show it."""

import dataclasses
import html
import io
import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D
from scipy import stats

from shapeline.report import criteria, elements, formatting, index
from shapeline.report.criteria import Criterion, Evidence
from shapeline.report.experiment import warn_near_chance
from shapeline.report.figures import dots
from shapeline.report.sections import evidence, robustness
from shapeline.statistics import bounds, paired

QUESTION = Criterion("log_odds", "deletion_auc", "lower", "Faithfulness: area", "deletion", "nats")


def answer(columns: dict, evaluations: dict, criterion=QUESTION, **more) -> Evidence:
    spent = pd.Series(evaluations, dtype=float)
    return Evidence(criterion, pd.DataFrame(columns), spent, spent / 1000, "nats", **more)


@pytest.fixture
def one() -> Evidence:
    random = np.random.default_rng(0)
    base = random.normal(size=40)
    return answer(
        {
            "dear": base - 2,
            "cheap": base - 2 + random.normal(0.15, 0.2, 40),
            "poor": base + 1 + random.normal(0, 0.1, 40),
            "free": base + 4,
        },
        {"dear": 1000, "cheap": 10, "poor": 5, "free": 0},
    )


def styles(one: Evidence) -> dict:
    return elements.styles({entry: {"method": "lime", "is_control": entry == "free"} for entry in one.values})


def test_the_cheapest_non_inferior_method_is_recommended(one):
    at_each = {most: (advice.entry, advice.outcome) for most, advice in one.choices}
    assert list(at_each) == [0, 5, 10] or list(at_each) == [0, 5, 10, 1000]
    assert at_each[0] == ("free", "alone") and at_each[5] == ("poor", "best")
    last = one.last
    assert last.entry == "cheap" and last.bounds["high"]["cheap"] < last.margin
    assert last.bounds["status"]["poor"] == "plainly worse" == last.bounds["status"]["free"]


def test_an_expensive_method_is_recommended_if_the_cheap_one_is_significantly_worse():
    values = np.random.default_rng(1).normal(size=30)
    made = answer({"dear": values - 1, "cheap": values}, {"dear": 100, "cheap": 1})
    assert [advice.entry for _, advice in made.choices] == ["cheap", "dear"]
    assert made.last.outcome == "best"
    assert "Recommended: dear (100 evaluations, 100 ms per instance): every other method within the budget is " in told(
        made
    )


def test_an_expensive_method_and_a_cheap_one_of_unclear_difference_are_undecided():
    """Few instances do not make them alike: neither is named the better, and how many more would decide is."""
    random = np.random.default_rng(3)
    base = random.normal(size=12)
    made = answer(
        {"dear": base, "cheap": base + random.normal(0.02, 0.5, 12), "free": base + 1},
        {"dear": 100, "cheap": 10, "free": 0},
        random="free",
    )
    assert made.last.outcome == "undecided" and {made.last.entry, *made.last.rivals} == {"dear", "cheap"}
    assert 0 < made.last.needed < math.inf and "in total) to decide" in told(made)


def told(made: Evidence, budget: float | None = 1e6) -> str:
    return evidence.recommendation(made, experiment(made, budget)).data


def experiment(one: Evidence, budget: float | None = 4) -> SimpleNamespace:
    """What the top of a page reads of an experiment with d = 5: 22 evaluations are within a budget of 4."""
    rows = pd.DataFrame({"method": one.values.columns, "statistic": "deletion_auc", "mean": one.values.mean()})
    rows = rows.assign(low=rows["mean"] - 0.5, high=rows["mean"] + 0.5)
    named = {entry: {"method": "lime", "is_control": entry == "free"} for entry in one.values}
    return SimpleNamespace(
        experiment="e",
        settings={"budget": budget},
        d=5,
        entries=named,
        metrics={"log_odds": rows},
        measured={"log_odds": repeated(one.values)},
        model_card={},
        dataset_card={},
        exact=None,
        scores={},
        metadata={},
        by_training_seed={},
    )


def repeated(values: pd.DataFrame, repeats: int = 1) -> pd.DataFrame:
    """Return measurements of a table of values, with several slightly different samples."""
    random = np.random.default_rng(4)
    rows = [
        (entry, instance, repeat, "deletion_auc", math.nan, value + (repeat > 0) * random.normal(0, 0.1))
        for entry, column in values.items()
        for instance, value in column.items()
        for repeat in range(repeats)
    ]
    return pd.DataFrame(rows, columns=["method", "instance", "repeat", "statistic", "x", "value"])


def card(one: criteria.Evidence, results) -> str:
    """Return the text of the card of one criterion."""
    return html.unescape(re.sub("<[^>]+>", " ", evidence.cards([one], results).data)).replace("  ", " ")


def test_the_recommendation_states_method_cost_margin_and_interval(one):
    made = answer({"dear": one.values["dear"] - 1, **one.values[["poor", "free"]]}, {"dear": 23, "poor": 1, "free": 0})
    text, within = card(made, experiment(made)), made.advice(22)
    assert within.entry == "poor" and within.outcome == "best"
    why = within.reason("nats", "within the budget")
    assert f"Within the budget. Recommended: poor (1 evaluation, 1 ms per instance): {why}." in text
    mean = made.values.mean()["poor"]
    written = formatting.interval({"mean": mean, "low": mean - 0.5, "high": mean + 0.5})
    assert f"Area {written} nats, lower is better." in text
    assert "At any cost. Recommended: dear (23 evaluations" in text
    text = card(made, experiment(made, None))  # nothing is beyond no budget
    assert text.count("Recommended: dear (23 evaluations") == 1 and "Recommended: poor" not in text


def test_the_recommendation_names_a_control_and_methods_without_a_budget(one):
    cheap = answer({"dear": one.values["dear"], "free": one.values["dear"] - 1}, {"dear": 9, "free": 0})
    text = card(cheap, experiment(cheap))
    assert "Within the budget. Recommended: free" in text and "free is a control." in text
    assert "fits the budget" not in text
    dear = answer({"dear": one.values["dear"], "free": one.values["dear"] - 1}, {"dear": 90, "free": 80})
    text = card(dear, experiment(dear))
    assert "No method fits the budget." in text and "At any cost. Recommended: free (80 evaluations" in text


def test_a_lead_by_rare_instances_is_not_significant():
    """b is a little ahead on 50 of 60 instances; a, dearer, has the better mean by the other ten: no one of them is
    said to be as good as the other, whatever the ranks say."""
    random = np.random.default_rng(0)
    b = random.normal(size=60)
    values = {"a": b + np.r_[random.uniform(0.5, 1, 50), random.uniform(-9, -8, 10)], "b": b, "free": b + 3}
    made = answer(values, {"a": 100, "b": 10, "free": 0}, random="free")
    assert made.last.bounds.index[0] == "a"
    assert made.last.outcome == "undecided" and made.last.rivals == ("b",)


def test_a_higher_cost_never_gives_a_significantly_worse_recommendation(one):
    for most, advice in one.choices:
        cheaper = [other for cost, other in one.choices if cost < most and other.entry]
        mean = one.candidates.mean()
        assert all(mean[advice.entry] <= mean[other.entry] + advice.margin for other in cheaper)


def measured_errors(errors: dict[str, np.ndarray], budgets: dict[str, float] | None = None) -> pd.DataFrame:
    """Errors (n,) by method, or by (method, budget) at the budgets of a method's intermediate budgets."""
    parts = []
    for key, values in errors.items():
        entry, x = key if isinstance(key, tuple) else (key, math.nan)
        statistic = "rmse" if math.isnan(x) else "rmse_by_budget"
        told = {"method": entry, "repeat": 0, "statistic": statistic, "x": x, "value": values}
        parts.append(pd.DataFrame({"instance": np.arange(len(values)), **told}))
    return pd.concat(parts, ignore_index=True)


def of_errors(
    errors: dict, evaluations: dict, budget: float, intermediate_budgets: dict | None = None
) -> SimpleNamespace:
    """An experiment with d = 10 that measured errors to the method `exact`, and evaluations by method."""

    def rows(count: float, at: float | None = None) -> pd.DataFrame:
        row = {"status": "ok", "warning": None, "evaluations": count, "budget": at, "seconds": 0.1}
        return pd.DataFrame([row] * 3)

    return SimpleNamespace(
        entries={entry: {"method": "shapley" if entry == "exact" else "lime"} for entry in evaluations},
        exact="exact",
        settings={"budget": budget},
        d=10,
        measured={"error": measured_errors(errors)},
        metrics={},
        scores={entry: rows(count) for entry, count in evaluations.items()},
        metadata={},
        model_card={},
        dataset_card={},
        experiment="e",
        intermediate_budgets={
            entry: pd.concat([rows(count, at) for at, count in own.items()])
            for entry, own in (intermediate_budgets or {}).items()
        },
        value_unit="nats",
        by_training_seed={},
    )


def test_no_method_as_expensive_as_exact_values_is_recommended_for_its_error():
    noise = np.abs(np.random.default_rng(10).normal(1, 0.1, 40))
    errors = {"banzhaf": 0.1 * noise, "lime": 0.5 * noise, "random": 3 * noise}
    results = of_errors(errors, {"exact": 1024, "banzhaf": 1024, "lime": 40, "random": 0}, budget=4)
    [one] = criteria.collect_evidence(results)
    assert set(one.values) == set(errors) and list(one.also) == ["exact"] and one.truth == "exact"
    assert [advice.entry for _, advice in one.choices] == ["random", "lime", "exact"]
    assert one.last.entry == "lime" and one.limit == "below the 1,024 evaluations of exact"
    text = card(one, results)
    assert "Recommended: lime (40 evaluations" in text and "At any cost" not in text
    table = evidence.overview([SimpleNamespace(**vars(results))], {"e": [one]}).data
    assert "lime, 40 evaluations" in table
    cheap = of_errors(errors, {"exact": 30, "banzhaf": 1024, "lime": 40, "random": 0}, budget=4)
    [one] = criteria.collect_evidence(cheap)
    assert one.within(cheap).entry == "exact" == one.last.entry and one.limit == criteria.ANY_COST
    assert "Recommended: exact (30 evaluations" in card(one, cheap) and "Below" not in card(one, cheap)


def test_the_name_of_a_custom_metric_stays_as_it_is(one):
    own = Criterion("own", "top_share", "lower", "Custom metric: top_share", "top_share", "")
    named = answer(dict(one.values.items()), dict(one.evaluations.items()), own)
    assert "top_share −" in card(named, experiment(named, None)) and "Top_share" not in card(
        named, experiment(named, None)
    )


def test_random_attribution_that_alone_fits_the_budget_is_not_recommended():
    noise = np.abs(np.random.default_rng(10).normal(1, 0.1, 40))
    results = of_errors({"lime": noise, "random": 9 * noise}, {"exact": 1024, "lime": 400, "random": 0}, budget=4)
    results.entries["random"] = {"method": "random"}
    [one] = criteria.collect_evidence(results)
    assert one.within(results) is None and one.first(results).entry == "lime"
    results.settings["budget"] = 100
    assert one.within(results).entry == "lime"


def test_the_recommendation_reports_warnings_of_its_method(one):
    made = answer({"dear": one.values["dear"], "free": one.values["dear"] + 9}, {"dear": 9, "free": 0})
    results = experiment(made)
    results.scores = {"dear": pd.DataFrame({"status": ["ok", "ok", "out_of_memory"], "warning": ["a gap", None, None]})}
    assert "⚠ dear: a gap in 1, out_of_memory in 1 of 3 explanations (see Diagnostics)." in card(made, results)
    results.scores["dear"]["warning"], results.scores["dear"]["status"] = None, "ok"
    assert "Diagnostics" not in card(made, results)


def test_the_cost_of_the_exact_values_is_on_the_card():
    noise = np.abs(np.random.default_rng(10).normal(1, 0.1, 40))
    errors = {"banzhaf": 0.1 * noise, "lime": 0.5 * noise, "random": 3 * noise}
    results = of_errors(errors, {"exact": 1024, "banzhaf": 1024, "lime": 40, "random": 0}, budget=4)
    [one] = criteria.collect_evidence(results)
    quick = dataclasses.replace(one, seconds=one.seconds.where(one.seconds.index != "exact", 0.01))
    assert "Exact values (exact): 1,024 evaluations, 10 ms per instance, 0.1" in card(quick, results)


def test_exact_values_are_recommended_if_only_random_scores_are_faster():
    noise = np.abs(np.random.default_rng(10).normal(1, 0.1, 40))
    errors = {"gp": 0.3 * noise, "lime": 0.5 * noise, "random": 3 * noise}
    results = of_errors(errors, {"exact": 1024, "gp": 80, "lime": 40, "random": 0}, budget=8)
    [one] = criteria.collect_evidence(results)
    quick = dataclasses.replace(one, seconds=pd.Series({"exact": 0.002, "gp": 0.01, "lime": 0.005, "random": 0.001}))
    assert quick.recommend_by_time.entry == "exact" and quick.recommend_by_time.outcome == "best"
    assert evidence.advices(quick, results)[evidence.BY_TIME][0] == "Recommended: exact (2 ms per instance)"
    slow = dataclasses.replace(one, seconds=pd.Series({"exact": 1.0, "gp": 0.01, "lime": 0.005, "random": 0.001}))
    assert slow.recommend_by_time.entry == "gp" and "exact" not in slow.recommend_by_time.bounds.index
    some = dataclasses.replace(one, seconds=pd.Series({"exact": 0.007, "gp": 0.01, "lime": 0.005, "random": 0.001}))
    assert "faster than exact" in evidence.advices(some, results)[evidence.BY_TIME][1]
    unknown = dataclasses.replace(some, seconds=some.seconds.replace(0.01, np.nan))  # scores computed elsewhere
    assert "gp" not in unknown.recommend_by_time.bounds.index
    for other in (slow, dataclasses.replace(slow, truth=None)):  # none is left out, or there are no exact values
        assert "faster than" not in str(evidence.advices(other, results))


def test_the_best_mean_is_not_reported_as_worse_than_itself():
    values = np.random.default_rng(12).normal(size=60)
    near = np.random.default_rng(13).normal(0, 0.2, 60)
    columns = {"first": values, "second": values + near - near.mean() + 0.01, "free": values + 4}
    advice = answer(columns, {"first": 1, "second": 9}).last
    assert advice.entry == "first" == advice.bounds.index[0] and advice.bounds["high"]["first"] > 0
    assert "first: it has the best mean, and no other method is better by more than" in advice.sentence("nats")
    advice = answer(columns, {"first": 9, "second": 1}).last
    assert advice.entry == "second" and ": non-inferior to the best method" in advice.sentence("nats")


def test_a_card_of_the_best_mean_does_not_call_it_non_inferior_to_itself():
    values = np.random.default_rng(12).normal(size=60)
    near = np.random.default_rng(13).normal(0, 0.2, 60)
    columns = {"first": values, "second": values + near - near.mean() + 0.01, "free": values + 4}
    lead = "Best mean of 3 methods; no cheaper method is non-inferior to it."
    said = {"first": lead, "second": "Non-inferior to the best of 3 methods."}
    for cheap, dear in (("first", "second"), ("second", "first")):
        one = answer(columns, {cheap: 1, dear: 9})
        card = evidence.cards([one], experiment(one, None)).data
        assert f"★ {cheap}" in card and said[cheap] in card and said[dear] not in card


def test_smaller_budgets_can_be_recommended():
    noise = np.abs(np.random.default_rng(11).normal(1, 0.1, 40))
    errors = {"sampled": 0.1 * noise, "free": 3 * noise, ("sampled", 2.0): noise, ("sampled", 8.0): 0.1 * noise}
    results = of_errors(errors, {"exact": 1024, "sampled": 80, "free": 0}, 8, {"sampled": {2.0: 19}})
    [one] = criteria.collect_evidence(results)
    assert set(one.values) == {"sampled", "free"} and set(one.also) == {"exact", "sampled at 2 d"}
    taken = {most: advice.entry for most, advice in one.choices}
    assert taken == {
        0: "free",
        19: "sampled at 2 d",
        80: "sampled",
        1024: "sampled",
    }  # within the margin of none at all
    results.settings["budget"] = 3
    results.metrics["error"] = pd.DataFrame(
        {
            "method": "sampled",
            "statistic": "rmse_by_budget",
            "x": [2.0, 8.0],
            "mean": [1.0, 0.1],
            "low": 0.9,
            "high": 1.1,
        }
    )
    text = card(one, results)
    assert "Recommended: sampled at 2 d (19 evaluations" in text and "RMSE 1.00 (0.90 to 1.10) nats" in text
    # On seven instances a difference of a margin can be told, however many budgets are judged beside it.
    many = {("sampled", float(at)): noise[:7] for at in range(1, 9)} | {
        key: errors[key][:7] for key in ("sampled", "free")
    }
    [one] = criteria.collect_evidence(of_errors(many, {"sampled": 80, "free": 0}, 8))
    assert one.last.entry == "sampled" and one.last.bounds["status"]["free"] in ("worse", "plainly worse")


def test_a_method_measured_on_too_few_instances_is_reported():
    noise = np.abs(np.random.default_rng(12).normal(1, 0.1, 20))
    errors = {"most": noise, "other": 2 * noise, "failing": np.where(np.arange(20) < 9, noise, math.nan)}
    results = of_errors(errors, {"most": 3, "other": 2, "failing": 1}, 8)
    [one] = criteria.collect_evidence(results)
    assert one.absent == ("failing",) and set(one.values) == {"most", "other"} and len(one.values) == 20
    assert "failing is not compared: measured on fewer than half" in evidence.exclusions(one, results).data
    results.measured["error"].loc[lambda rows: rows["method"] == "failing", "statistic"] = "spearman"
    assert "failing is not compared: no RMSE, because" in evidence.exclusions(one, results).data
    results.measured["log_odds"] = results.measured["error"]
    by_deletion = dataclasses.replace(one, criterion=criteria.CRITERIA[3])
    assert "failing is not compared: no deletion AUC." in evidence.exclusions(by_deletion, results).data
    errors["failing"][:10] = 1.0
    results = of_errors(errors, {"most": 3, "other": 2, "failing": 1}, 8)
    [one] = criteria.collect_evidence(results)
    assert one.absent == () and len(one.values) == 10
    assert "The comparison uses the 10 of 20 instances" in evidence.exclusions(one, results).data
    results = of_errors({entry: errors[entry] for entry in ("most", "other")}, {"most": 3, "other": 2}, 8)
    [one] = criteria.collect_evidence(results)
    assert evidence.exclusions(one, results) is None
    [one] = criteria.collect_evidence(of_errors(errors, {"most": 3, "other": 2, "failing": 1, "failed": 0}, 8))
    assert one.absent == ("failed",)  # nothing was measured of it


def test_a_gradient_costs_three_evaluations_only_in_recommendations():
    """A gradient of one pass is not cheaper than two evaluations; the table of evaluations counts passes."""
    noise = np.abs(np.random.default_rng(10).normal(1, 0.1, 40))
    errors = {"saliency": noise, "two": 1.001 * noise, "random": 9 * noise}
    results = of_errors(errors, {"exact": 1024, "saliency": 1, "two": 2, "random": 0}, budget=4)
    results.entries["saliency"] = {"method": "saliency"}
    [one] = criteria.collect_evidence(results)
    assert one.evaluations["saliency"] == 3 and one.gradients == {"saliency"}
    assert criteria.experiment.average_evaluations(results)["saliency"] == 1
    assert one.within(results).entry == "two" and [cost for cost, _ in one.choices][:2] == [0, 2]
    assert "A gradient counts as 3 evaluations" in evidence._describe_rule([one]).data
    results.metadata = {"two": [{"reference_rows": 12}]}  # an evaluation is of 12 rows, a gradient of one
    [one] = criteria.collect_evidence(results)
    assert one.evaluations["saliency"] == 0.25 and one.within(results).entry == "saliency"
    assert "A gradient counts as 0.25 evaluations" in evidence._describe_rule([one]).data
    assert "1 gradient (counted as 0.25 evaluations)" in evidence._format_cost(one, "saliency")
    rows = {"method": ["saliency", "two", "random"], "statistic": "rmse", "x": np.nan, "mean": [1.0, 1.1, 9.0]}
    results.metrics = {"error": pd.DataFrame(rows).assign(low=0.9, high=9.1)}
    assert "beats. A gradient counts as 0.25 evaluations. Seconds" in evidence.costs_and_ranks(one, results).data
    without = evidence.costs_and_ranks(dataclasses.replace(one, gradients=frozenset()), results).data
    assert "beats. Seconds are" in without


def test_deletion_and_insertion_are_separate_criteria(one):
    masked = repeated(one.values)
    both = pd.concat([masked, masked.assign(statistic="insertion_auc", value=-masked["value"])])
    results = experiment(one)
    results.scores = {
        entry: pd.DataFrame({"status": ["ok"], "warning": None, "evaluations": cost, "seconds": 0.1})
        for entry, cost in one.evaluations.items()
    }
    results.measured, results.value_unit = {"log_odds": both}, "nats"
    masking, insertion = criteria.collect_evidence(results)
    assert (masking.criterion.better, insertion.criterion.better) == ("lower", "higher")
    assert masking.last.entry == insertion.last.entry == "cheap"


def test_the_direction_of_the_criterion_decides(one):
    criterion = Criterion("ground_truth_words", "f1", "higher", "Words: F1", "words", "")
    made = answer(dict(one.values.items()), dict(one.evaluations.items()), criterion)
    assert [advice.entry for _, advice in made.choices] == ["free"]


def test_the_table_compares_every_method_with_the_best_by_the_bounds_of_the_recommendation(one):
    page = evidence.compare_with_best(one, experiment(one)).data
    best = paired.order(one.values)[0]
    assert f"Difference from {best}, the best mean" in page and all(f">{entry}<" in page for entry in one.values)
    high = one.last.bounds["high"]["poor"]
    assert f"to {formatting.number(high, whole=False)}" in page
    assert "cheap" in evidence.choices_table(one).data and "non-inferior" in evidence.choices_table(one).data


def test_a_method_with_repeats_has_an_a_a_test(one):
    results = experiment(one)
    assert "not measured, since no method has repeats" in evidence.equal_methods_note(one, results).data
    results.measured = {"log_odds": repeated(one.values, repeats=3)}
    assert "% of tests between two sampling repetitions" in evidence.equal_methods_note(one, results).data
    results.measured = {"log_odds": pd.DataFrame(columns=["method", "instance", "repeat", "statistic", "x", "value"])}
    assert "not measured" in evidence.equal_methods_note(one, results).data


CHANCE = {"model_card": {"test_accuracy": 0.48}, "dataset_card": {"counts": {"test": {"0": 50, "1": 50}}}}


@pytest.mark.parametrize(
    ("right", "counts", "chance"),
    [
        (0.48, (50, 50), True),
        (0.58, (50, 50), True),  # 58 or more of 100 at a half: 6.7 %
        (0.59, (50, 50), False),  # 4.4 %
        (0.90, (90, 10), True),  # as good as always naming the commonest class
        (0.97, (90, 10), False),
        (0.0, (50, 50), True),
    ],
)
def test_a_model_is_near_chance_where_the_binomial_test_does_not_reject(right, counts, chance):
    results = SimpleNamespace(
        settings={},
        model_card={"test_accuracy": right},
        dataset_card={"counts": {"test": dict(zip("ab", counts, strict=True))}},
    )
    beyond = stats.binomtest(round(100 * right), 100, max(counts) / 100, "greater").pvalue < 0.05
    assert (warn_near_chance(results) is not None) == chance == (not beyond)


def test_a_regression_is_near_chance_if_the_mean_is_as_accurate_and_unknown_accuracy_is_not_reported():
    for r2, chance in ((-0.1, True), (0.0, True), (0.3, False)):
        known = SimpleNamespace(model_card={"test_r2": r2}, dataset_card={}, settings={})
        assert (warn_near_chance(known) is not None) == chance
        assert not chance or f"is {'−0.10' if r2 else '0.00'}:" in warn_near_chance(known)
    unknown = SimpleNamespace(model_card={"test_accuracy": 0.5}, dataset_card={}, settings={})
    several = SimpleNamespace(model_card={"test_accuracy": 0.5}, dataset_card=dict(CHANCE["dataset_card"]), settings={})
    several.dataset_card["task"] = "multilabel"
    assert warn_near_chance(unknown) is None and warn_near_chance(several) is None
    card = {"test_accuracy": 0.5, "settings": {"dataset": "a"}}
    other = SimpleNamespace(model_card=card, dataset_card=CHANCE["dataset_card"], settings={"dataset": "b"})
    assert warn_near_chance(other) is None  # the data explained are not those that it was tested on


def test_a_model_near_chance_has_no_recommendation(one):
    results = experiment(one)
    vars(results).update(CHANCE)
    text = card(one, results)
    assert "⚠ No recommendation" in text and "48 %" in text and "Recommended" not in text
    page = evidence.section([one], results).data
    assert "⚠ No recommendation" in page and "Recommended" not in page
    page = evidence.overview([results], {"e": [one]}).data
    assert "near chance" in page and ">cheap" not in page and "evaluation" not in page.split("<p")[0]


def test_rank_diagram_names_every_method_with_its_average_rank(one):
    drawing = dots.rank_diagram(one, styles(one))
    texts = [text.get_text() for text in drawing.axes[0].texts]
    average = paired.ranks(one.values).mean()
    for entry, rank in average.items():
        assert any(entry in text and f"{rank:.1f}" in text for text in texts), entry
    assert any("critical difference" in text for text in texts)
    two = answer({"a": [1.0] * 8, "b": [2.0] * 8}, {"a": 1, "b": 1})
    assert dots.rank_diagram(two, {}) is None


def test_bars_of_a_rank_diagram_do_not_touch_the_label_above_them():
    values = np.arange(12) + np.random.default_rng(0).normal(0, 3, (30, 12))
    many = answer({f"m{index}": list(column) for index, column in enumerate(values.T)}, {f"m{i}": 1 for i in range(12)})
    drawing = dots.rank_diagram(many, styles(many))
    [label] = [text for text in drawing.axes[0].texts if "critical difference" in text.get_text()]
    bars = [line.get_window_extent() for line in drawing.axes[0].lines if line.get_linewidth() == 3.2]
    assert len(bars) > 1 and max(bar.y1 for bar in bars) + 8 < label.get_window_extent().y0


def test_cost_plane_joins_the_methods_that_no_cheaper_one_beats(one):
    rows = pd.DataFrame({"mean": one.values.mean(), "low": one.values.mean() - 0.1, "high": one.values.mean() + 0.1})
    axes = dots.cost_plane(one, rows, styles(one)).axes[0]
    line = max(axes.lines, key=lambda each: len(each.get_xdata()))
    expected = [cost for cost, entry in ((0, "free"), (5, "poor"), (10, "cheap"), (1000, "dear"))]
    best = one.values.mean()
    kept = expected if best["dear"] <= best["cheap"] else expected[:3]
    assert list(line.get_xdata()) == kept


def test_cost_plane_has_a_panel_against_seconds(one):
    rows = pd.DataFrame({"mean": one.values.mean(), "low": one.values.mean() - 0.1, "high": one.values.mean() + 0.1})
    seconds = pd.Series({"dear": 0.5, "cheap": 2.0, "poor": math.nan, "free": 0.001})
    first, second = dots.cost_plane(one, rows, styles(one), seconds).axes
    assert "evaluations" in first.get_xlabel() and "seconds" in second.get_xlabel() and second.get_xscale() == "log"
    named = [
        {name: line[0] for line, name in zip(map(Line2D.get_xdata, handles), names, strict=True)}
        for handles, names in (axes.get_legend_handles_labels() for axes in (first, second))
    ]
    assert named == [dict(one.evaluations), dict(seconds.dropna())]  # where poor spent unknown seconds
    line = max(second.lines, key=lambda each: len(each.get_xdata()))
    ahead = one.values.mean()["cheap"] <= one.values.mean()["dear"]
    assert list(line.get_xdata()) == [0.001, 0.5, 2.0][: 3 if ahead else 2]
    unknown = dataclasses.replace(one, evaluations=pd.Series(dtype=float))  # as of scores made elsewhere
    [alone] = dots.cost_plane(unknown, rows, styles(one), seconds).axes
    assert "seconds" in alone.get_xlabel()
    assert dots.cost_plane(unknown, rows, styles(one)) is None


def test_the_figures_carry_their_numbers(one):
    rows = pd.DataFrame({"method": one.values.columns, "statistic": "deletion_auc", "mean": one.values.mean()})
    rows = rows.assign(low=rows["mean"] - 0.5, high=rows["mean"] + 0.5)
    frames = {entry: pd.DataFrame({"status": "ok", "seconds": [1.0, 3.0]}) for entry in one.values}
    entries = {entry: {"method": "lime", "is_control": entry == "free"} for entry in one.values}
    results = SimpleNamespace(
        experiment="e", entries=entries, exact=None, settings={}, metrics={"log_odds": rows}, scores=frames
    )
    page = evidence.costs_and_ranks(one, results).data
    drawn = re.findall(r"<svg.*?</svg>", page, re.S)
    plane, ranks = (re.search("<metadata>(.*?)</metadata>", one, re.S)[1] for one in drawn)
    found = pd.read_csv(io.StringIO(plane)).set_index("method")
    assert dict(found["evaluations"]) == dict(one.evaluations) and set(found["seconds"]) == {2.0}
    assert found["mean"].to_numpy() == pytest.approx(one.values.mean()[found.index], rel=1e-5)
    found = pd.read_csv(io.StringIO(ranks)).set_index("method")["average_rank"]
    assert found.to_dict() == pytest.approx(paired.ranks(one.values).mean().to_dict())


def test_criteria_that_rank_the_same_methods_are_compared(one):
    higher = Criterion("ground_truth_words", "f1", "higher", "Words: F1", "words", "")
    same = answer(dict((-one.values).items()), dict(one.evaluations.items()), higher)
    page = evidence.rank_over_criteria([one, same]).data
    assert "Kendall&#x27;s W 1.00 over 4 methods and 2 criteria" in page and "0.50 on average" in page
    mean = formatting.number(one.values["free"].mean(), whole=False)
    assert f">4 ({mean})<" in page and page.index(">free<") > page.index(">poor<")
    reverse = answer(dict(one.values.items()), dict(one.evaluations.items()), higher)
    assert "Kendall&#x27;s W 0.00 over" in evidence.rank_over_criteria([one, reverse]).data
    fewer = answer(dict(one.values[["dear", "poor", "free"]].items()), dict(one.evaluations.items()), higher)
    page = evidence.rank_over_criteria([one, fewer]).data
    assert "over 3 methods" in page and "Not ranked by all criteria: cheap." in page and ">cheap<" not in page
    two = answer(dict(one.values[["dear", "poor"]].items()), dict(one.evaluations.items()), higher)
    assert evidence.rank_over_criteria([one, two]) is None and evidence.rank_over_criteria([one]) is None


def test_probabilities_are_written_for_reading():
    written = [formatting.probability(p) for p in (math.nan, 0.0001, 0.0314, 0.5)]
    assert written == ["–", "< 0.001", "0.031", "0.50"]


# --- trainings by other seeds -------------------------------------------------------------------------------------


def retrained(one: Evidence, moves: list[float], noise: float = 0.1, repeats: int = 1) -> SimpleNamespace:
    """Results whose training seeds shift every value of a method equally, and only `dear` by twice as much."""
    random, rows = np.random.default_rng(2), []
    for training, move in enumerate(moves):
        for entry, values in one.values.items():
            for repeat in range(repeats):
                for instance, value in values.items():
                    moved = value + move * (1 + (entry == "dear")) + random.normal(0, noise)
                    rows.append((entry, training, instance, repeat, "deletion_auc", math.nan, moved))
    names = ["method", "training", "instance", "repeat", "statistic", "x", "value"]
    return SimpleNamespace(
        by_training_seed={"log_odds": pd.DataFrame(rows, columns=names)},
        settings={"training_seeds": len(moves)},
        entries={entry: {} for entry in one.values},
        exact=None,
    )


def test_trainings_have_means_a_figure_and_an_agreement(one):
    results = retrained(one, [0.0, 0.1, -0.1])
    means = criteria.average_per_seed(one, results)
    assert means.shape == (3, 4) and list(means.index) == [0, 1, 2]
    assert means.loc[1, "dear"] - means.loc[0, "dear"] == pytest.approx(0.2, abs=0.05)
    drawing = robustness.rank_lines(paired.ranks(means).T, styles(one), "training seed")
    assert len(drawing.axes[0].lines) == 4 and drawing.axes[0].get_xlabel() == "training seed"
    page = robustness.compare_training_seeds(one, results).data
    assert "Kendall&#x27;s W 1.00 over 4 methods (1: identical rankings" in page and "Left out" not in page
    lead = means.columns[means.loc[1].argmin()]
    assert f"1 ({formatting.number(means.loc[1, lead], whole=False)})" in page and f"{lead} is best in all" in page
    twins = answer({**one.values, "twin": one.values[lead]}, {**one.evaluations, "twin": 0})
    page = robustness.compare_training_seeds(twins, retrained(twins, [0.0, 0.0], 0.0)).data
    assert " and twin are best in all" in page
    ranks = pd.DataFrame({0: [1.5, 1.5, 3, 4]}, list(one.values))
    labels = robustness.rank_lines(ranks, styles(one), "training seed").axes[0].texts
    assert [label.xy[1] for label in labels] == [1, 2, 3, 4]
    results = retrained(one, [0.0, 5.0], 0.0)
    ranked = paired.kendall_w(criteria.average_per_seed(one, results).to_numpy())
    other = robustness.compare_training_seeds(one, results).data
    assert 0.1 < ranked < 0.9 and f"Kendall&#x27;s W {ranked:.2f} over" in other
    assert "⚠ the best differs: cheap and dear" in other and "is best in all" not in other
    assert robustness.compare_training_seeds(one, retrained(one, [0.0])) is None


def test_other_trainings_may_have_fewer_instances(one):
    results = retrained(one, [0.0, 0.1, -0.1])
    measured = results.by_training_seed["log_odds"]
    few = sorted(measured["instance"].unique())[: len(one.values) // 4]
    results.by_training_seed["log_odds"] = measured[(measured["training"] == 0) | measured["instance"].isin(few)]
    means = criteria.average_per_seed(one, results)
    expected = measured[measured["instance"].isin(few)].groupby(["training", "method"])["value"].mean().unstack()
    pd.testing.assert_frame_equal(means, expected[list(means)], check_names=False)
    page = robustness.compare_training_seeds(one, results).data
    assert f"per training seed, on {len(few)} instances?" in page and "Left out" not in page


def test_each_training_seed_reports_whether_it_confirms_the_recommendation(one):
    taken = one.advice().entry
    steady = robustness.compare_training_seeds(one, retrained(one, [0.0, 0.0, 0.0], 0.001)).data
    assert f"Is {taken} non-inferior per training seed, on 40 instances?" in steady
    body = steady[steady.index("<caption>Is ") :]
    assert body.count(">yes<") == 3 and ">no<" not in body
    results = retrained(one, [0.0, 0.0, 0.0], 0.001)
    measured = results.by_training_seed["log_odds"]
    worse = (measured["method"] == taken) & (measured["training"] == 2)
    results.by_training_seed["log_odds"] = measured.assign(value=measured["value"] + 3.0 * worse)
    body = robustness.compare_training_seeds(one, results).data
    body = body[body.index("<caption>Is ") :]
    assert body.count(">yes<") == 2 and body.count(">no<") == 1


def judged_by(one: Evidence, **moved: dict[str, float]) -> SimpleNamespace:
    """Results with other references, under each of which some methods are worse by as much."""
    results = experiment(one, budget=None)
    rows = [results.measured["log_odds"]]
    for name, by in moved.items():
        added = rows[0]["method"].map(by).fillna(0.0)
        rows.append(rows[0].assign(statistic=f"deletion_auc_{name}", value=rows[0]["value"] + added))
    results.measured = {"log_odds": pd.concat(rows, ignore_index=True)}
    return results


def test_the_page_reports_whether_the_best_method_changes_with_the_reference(one):
    assert one.advice().entry == "cheap"
    same = judged_by(one, zero={}, blur={"poor": 1.0})
    page = robustness.compare_baselines(one, same).data
    assert page.count(">yes<") == 3 and " is best in all" in page and "Sensitivity to the baseline<" in page
    changed = judged_by(one, zero={}, blur={"cheap": 3.0})
    assert robustness.compare_baselines(one, changed).data.count(">no<") == 1
    page = evidence.cards([one], changed).data
    assert re.search(r'<p class="need">[^<]*</p><p class="change">⚠ Not robust: \w+ is better with the baseline', page)
    assert "Not robust" not in evidence.cards([one], experiment(one, None)).data
    assert robustness.compare_baselines(one, judged_by(one)) is None


def test_other_references_are_worked_out_once(one):
    results = judged_by(one, blur={})
    assert criteria.compare_references(one, results)["blur"] is criteria.compare_references(one, results)["blur"]
    assert not criteria.compare_references(one, judged_by(one))  # other measurements


def of_data(one: Evidence, name: str, trainings: int = 1) -> SimpleNamespace:
    """Results of an experiment on a dataset of that name."""
    several = retrained(one, [0.0] * trainings, 0.001)
    facts = {"dataset_card": {"name": name}, "model_card": {"name": "m"}, "experiment": name}
    return SimpleNamespace(**{**vars(experiment(one)), "by_training_seed": several.by_training_seed, **facts})


def test_the_index_ranks_shared_methods_over_datasets_and_models(one):
    turned = answer({"dear": one.values["cheap"], "cheap": one.values["dear"], "poor": one.values["poor"]}, {"dear": 9})
    results = [of_data(one, "d", trainings=3), of_data(turned, "e")]
    page = index.pooled_section(results, {"d": [one], "e": [turned]}).data
    title = one.criterion.title.replace(": ", ", ")  # whole: custom metrics differ only in its end
    assert f"{title}, budget 4 d: ranks of 3 methods" in page and "free" not in page  # which one of them lacks
    assert ">1, 1, 1<" in page and ">2, 2, 2<" in page and ">1.5<" in page
    assert "Over 2 pairs of dataset and model, no two methods rank significantly differently" in page
    assert index.pooled_section(results[:1], {"d": [one]}) is None  # one dataset alone
    other = of_data(turned, "e")
    other.entries = {entry: {**settings, "parameters": {"order": 2}} for entry, settings in other.entries.items()}
    of_other_methods = index.pooled_section([results[0], other], {"d": [one], "e": [turned]})
    assert of_other_methods is None
    many = [of_data(one, name) for name in "abcdefghijkl"]
    told = index.pooled_section(many, {result.experiment: [one] for result in many}).data
    assert "these rank significantly differently" in told and "dear before free" in told


def test_a_training_seed_without_a_measurement_is_reported(one):
    results = retrained(one, [0.0, 0.1, -0.1])
    measured = results.by_training_seed["log_odds"]
    results.by_training_seed["log_odds"] = measured[measured["training"] < 2]
    page = robustness.compare_training_seeds(one, results).data
    assert "Left out, without a measurement: 1 training seed." in page and "Not ranked" not in page
    results.by_training_seed["log_odds"] = measured[(measured["training"] < 2) | (measured["method"] != "dear")]
    page = robustness.compare_training_seeds(one, results).data
    assert "Not ranked, since a training seed lacks them: dear." in page and "Left out" not in page
    for few in (measured[measured["training"] < 1], measured[measured["method"] == "dear"], measured.head(0)):
        results.by_training_seed["log_odds"] = few
        page = robustness.compare_training_seeds(one, results).data
        assert "3 training seeds cannot be compared" in page and "nan" not in page


def test_the_variance_has_a_share_of_training_seeds_if_there_are_several(one):
    page = robustness.variances(retrained(one, [0.0, 8.0, -8.0, 4.0], repeats=3)).data
    assert "between training seeds" in page and "between repetitions" in page
    assert (
        "With 4 training seeds, the 95 % CI of their variance is 0.321 to 13.9 times" in page
    )  # 3 / chi-square at .975 and .025
    results = retrained(one, [0.0, 8.0, -8.0, 4.0], repeats=3)
    cheap = results.by_training_seed["log_odds"].query("method == 'cheap'")
    wide = cheap.pivot_table(index="instance", columns=["repeat", "training"], values="value").to_numpy()
    shares = bounds.variance_shares(wide.reshape(-1, 3, 4))
    assert shares["training_seeds"] > 0.5 and formatting.share(shares["training_seeds"]) in page
    results.by_training_seed = {
        "own": results.by_training_seed["log_odds"].assign(statistic="spread")
    }  # a custom metric
    assert ">spread<" in robustness.variances(results).data
    page = robustness.variances(retrained(one, [0.0], repeats=3)).data
    assert "between training seeds" not in page and "between repetitions" in page
    assert robustness.variances(retrained(one, [0.0])) is None


def test_samples_and_training_seeds_are_described_once_for_all_methods(one, monkeypatch):
    made, whole = [], pd.DataFrame.pivot_table
    monkeypatch.setattr(pd.DataFrame, "pivot_table", lambda *given, **more: made.append(1) or whole(*given, **more))
    assert robustness.variances(retrained(one, [0.0, 1.0], repeats=3)) is not None
    results = experiment(one)
    results.measured = {"log_odds": repeated(one.values, repeats=3)}
    assert "% of tests between two sampling repetitions" in evidence.equal_methods_note(one, results).data
    assert len(made) == 2  # one of all trainings; the draws of the method that is tried


def test_the_overview_has_the_range_from_random_scores_to_the_best(one):
    noise = np.random.default_rng(0).normal(0, 0.01, (20, 1))
    columns = {name: (noise + mean)[:, 0] for name, mean in {"a": 0, "b": 1, "worse": 6, "random": 4}.items()}
    costs = {"a": 100, "b": 10, "worse": 10, "random": 0}
    lower = answer(columns, costs, random="random")
    expected = {"a": 1, "b": 0.75, "worse": -0.5, "random": 0}
    assert dict(index.shares(lower, lower.last).round(9)) == expected
    turned = answer({name: -column for name, column in columns.items()}, costs, random="random")
    higher = dataclasses.replace(turned, criterion=dataclasses.replace(QUESTION, better="higher"))
    assert dict(index.shares(higher, higher.last).round(9)) == expected

    results = [experiment(lower, None)]
    [table] = re.findall(r"<table.*</table>", index.section(results, {results[0].experiment: [lower]}).data)
    rows = re.findall(r"<tr><td>(\w+)</td><td style=\"--way: (\d+)%\"><a href=\"(.*?)\"", table)
    link = f"{results[0].experiment}.html"
    assert rows == [("a", "100", link), ("b", "75", link), ("worse", "0", link)]  # random scores: 0
    assert "★ 100 %</a>" in table and table.count("★") == 1 and "100 evaluations per instance" in table
    assert index.section([], {}) is None
    noise = np.abs(np.random.default_rng(10).normal(1, 0.1, 40))
    results = of_errors({"lime": noise, "random": 9 * noise}, {"exact": 8, "lime": 400, "random": 0}, budget=4)
    results.dataset_card["kind"] = "table"
    [one] = criteria.collect_evidence(results)
    page = index.section([results], {"e": [one]}).data  # the star of the card is in the table, too
    assert one.first(results).entry == "exact" and re.search(r"<td>exact</td>.*★ 100 %", page)
