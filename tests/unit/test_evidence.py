"""Recommendations: the cheapest of the methods that are not told apart from the best, and the figures that show it."""

import base64
import dataclasses
import io
import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from shapeline import evidence_plots, findings, plots, statistics
from shapeline.evidence_plots import Evidence, Question

QUESTION = Question("log_odds", "masking_area", "lower", "Faithfulness: area", "masking", "nats")


def answer(columns: dict, evaluations: dict, question=QUESTION) -> Evidence:
    values = pd.DataFrame(columns)
    return Evidence(question, values, statistics.pairs(values, question.better), pd.Series(evaluations), "nats")


@pytest.fixture
def one() -> Evidence:
    random = np.random.default_rng(0)
    base = random.normal(size=40)
    return answer(
        {
            "dear": base - 2,
            "cheap": base - 2 + random.normal(0.001, 0.5, 40),
            "poor": base + 1 + random.normal(0, 0.1, 40),
            "free": base + 3,
        },
        {"dear": 1000, "cheap": 10, "poor": 5, "free": 0},
    )


def styles(one: Evidence) -> dict:
    return plots.styles({label: {"method": "lime", "is_control": label == "free"} for label in one.values})


def test_the_cheapest_of_those_not_told_apart_is_recommended(one):
    rows = one.choices
    assert list(rows["evaluations"]) == [0, 5, 10, 1000][: len(rows)]
    assert list(rows["chosen"])[:3] == ["free", "poor", "cheap"]
    last = rows.iloc[-1]
    assert last["chosen"] == "cheap"
    sure = one.pairs.set_index(["better", "worse"])["sure"]
    best, second = statistics.order(one.values)[:2]
    assert not sure[best, second] and sure[best, "poor"]
    assert math.isnan(rows.iloc[0]["difference"]) and rows.iloc[1]["next"] == "free"


def test_a_dear_method_is_recommended_where_it_is_surely_better():
    values = np.random.default_rng(1).normal(size=30)
    found = answer({"dear": values - 1, "cheap": values}, {"dear": 100, "cheap": 1})
    assert list(found.choices["chosen"]) == ["cheap", "dear"]
    assert "Recommended: dear, 100 evaluations" in evidence_plots.recommendation(found).data


def experiment(one: Evidence, budget: float | None = 4) -> SimpleNamespace:
    """What the top of a page reads of an experiment with d = 5: 22 evaluations are within a budget of 4."""
    rows = pd.DataFrame({"label": one.values.columns, "quantity": "masking_area", "mean": one.values.mean()})
    rows = rows.assign(low=rows["mean"] - 0.5, high=rows["mean"] + 0.5)
    named = {label: {"is_control": label == "free"} for label in one.values}
    return SimpleNamespace(settings={"budget": budget}, d=5, labels=named, metrics={"log_odds": rows})


def test_the_answer_says_what_to_take_at_what_cost_with_its_interval(one):
    found = answer({"dear": one.values["dear"] - 1, **one.values[["poor", "free"]]}, {"dear": 23, "poor": 1, "free": 0})
    [(short, more)] = evidence_plots.answers([found], experiment(found))
    assert short == "Faithfulness: take poor, 1 evaluation an instance."
    mean = found.values.mean()
    told = {label: findings.interval({"mean": m, "low": m - 0.5, "high": m + 0.5}) for label, m in mean.items()}
    dear = f"At any cost: dear, {told['dear']} nats, 23 evaluations an instance."
    assert more == f"Area: {told['poor']} nats, lower is better. {dear}"
    [(short, more)] = evidence_plots.answers([found], experiment(found, None))  # nothing is beyond no budget
    assert short == "Faithfulness: take dear, 23 evaluations an instance." and "At any cost" not in more


def test_the_answer_names_a_control_and_what_it_cannot_be_told_from(one):
    noise = np.random.default_rng(3).normal(0, 0.5, 40)
    behind = one.values["dear"] + 0.01 + (noise - noise.mean())
    near = answer({"dear": one.values["dear"], "cheap": behind}, {"dear": 1000, "cheap": 10})
    [(short, more)] = evidence_plots.answers([near], experiment(near, 1000))
    assert short == "Faithfulness: take cheap, 10 evaluations an instance."
    assert "dear has the best mean within the budget, but cannot be told from it." in more
    cheap = answer({"dear": one.values["dear"], "free": one.values["dear"] - 1}, {"dear": 9, "free": 0})
    assert evidence_plots.answers([cheap], experiment(cheap))[0][0].startswith("Faithfulness: take the control free, 0")
    dear = answer({"dear": one.values["dear"], "free": one.values["dear"] - 1}, {"dear": 90, "free": 80})
    [(short, _)] = evidence_plots.answers([dear], experiment(dear))
    assert short == "Faithfulness: no method keeps to the budget; at any cost take free, 80 evaluations an instance."


def test_ranks_that_speak_for_the_cheaper_keep_it_recommended():
    """b is a little ahead on 50 of 60 instances; a, dearer, has the better mean by the other ten."""
    random = np.random.default_rng(0)
    b = random.normal(size=60)
    found = answer(
        {"a": b + np.r_[random.uniform(0.5, 1, 50), random.uniform(-9, -8, 10)], "b": b}, {"a": 100, "b": 10}
    )
    assert found.pairs["p_holm"][0] < 0.01 and found.pairs["better"][0] == "a"
    assert found.last["best"] == "a" and found.last["chosen"] == "b"
    assert "Recommended: b, 10 evaluations" in evidence_plots.recommendation(found).data


def test_a_lead_within_the_spread_of_draws_recommends_nothing_dearer():
    random, n = np.random.default_rng(5), 40
    easy = random.normal(size=(n, 1))
    drawn = pd.DataFrame(easy + np.array([-0.6, 0.0, 0.3]) + random.normal(0, 0.01, (n, 3)))
    values = pd.DataFrame({"dear": drawn.mean(axis=1), "cheap": easy[:, 0]})
    chosen = []
    for draws in (None, {"dear": drawn}):
        pairs = statistics.pairs(values, draws=draws)
        found = Evidence(QUESTION, values, pairs, pd.Series({"dear": 100, "cheap": 1}), "nats")
        assert pairs["p_holm"][0] < 0.001
        chosen.append(found.last["chosen"])
    assert chosen == ["dear", "cheap"]


def test_a_higher_cost_is_never_answered_by_something_cheaper():
    """c, just above a and noisy, has the best mean and is told from neither a nor b, but b is surely better than a."""
    random = np.random.default_rng(8)
    a = random.normal(size=30)
    values = {"a": a, "b": a - 0.1 + random.normal(0, 0.01, 30), "c": a - 0.2 + random.normal(0, 2, 30)}
    values["c"] += -0.2 + (values["a"] - values["c"]).mean()
    found = answer(values, {"a": 1, "b": 2, "c": 3})
    sure = found.pairs.set_index(["better", "worse"])["sure"]
    assert sure["b", "a"] and not sure["c", "a"] and not sure["c", "b"]
    assert list(found.choices["chosen"]) == ["a", "b", "b"] and found.last["equal"] == ["b"]


def test_the_next_is_affordable_at_the_cost_of_its_row():
    """What is dearer and closer to the best, but changes no answer, is not named beside the lower cost."""
    values = np.random.default_rng(9).normal(size=30)
    found = answer({"poor": values + 5, "good": values, "dear": values + 0.1}, {"poor": 1, "good": 17, "dear": 182})
    assert list(found.choices["evaluations"]) == [1, 17] and list(found.choices["next"])[1:] == ["poor"]
    assert found.last["next"] == "dear"  # whatever it costs


def measured_errors(errors: dict[str, np.ndarray], budgets: dict[str, float] | None = None) -> pd.DataFrame:
    """Errors (n,) by label, or by (label, budget) at the budgets of a label's snapshots."""
    parts = []
    for key, values in errors.items():
        label, x = key if isinstance(key, tuple) else (key, math.nan)
        quantity = "rmse" if math.isnan(x) else "rmse_by_budget"
        told = {"label": label, "repeat": 0, "quantity": quantity, "x": x, "value": values}
        parts.append(pd.DataFrame({"instance": np.arange(len(values)), **told}))
    return pd.concat(parts, ignore_index=True)


def of_errors(errors: dict, evaluations: dict, budget: float, snapshots: dict | None = None) -> SimpleNamespace:
    """An experiment with d = 10 that measured errors to the label `exact`, and evaluations by label."""

    def rows(count: float, at: float | None = None) -> pd.DataFrame:
        row = {"status": "ok", "flag": None, "evaluations": count, "budget": at}
        return pd.DataFrame([row] * 3)

    return SimpleNamespace(
        labels={label: {"method": "shapley" if label == "exact" else "lime"} for label in evaluations},
        exact="exact",
        settings={"budget": budget},
        d=10,
        measured={"error": measured_errors(errors)},
        metrics={},
        scores={label: rows(count) for label, count in evaluations.items()},
        snapshots={
            label: pd.concat([rows(count, at) for at, count in own.items()]) for label, own in (snapshots or {}).items()
        },
        value_unit="nats",
    )


def test_nothing_that_costs_as_much_as_the_truth_is_recommended_for_its_error():
    noise = np.abs(np.random.default_rng(10).normal(1, 0.1, 40))
    errors = {"banzhaf": 0.1 * noise, "lime": 0.5 * noise, "random": 3 * noise}
    results = of_errors(errors, {"exact": 1024, "banzhaf": 1024, "lime": 40, "random": 0}, budget=4)
    [one] = evidence_plots.evidence(results)
    assert set(one.values) == set(errors) and list(one.also) == ["exact"] and one.truth == "exact"
    assert list(one.choices["chosen"]) == ["random", "lime", "exact"] and one.choices["mean"].iloc[-1] == 0
    assert one.last["chosen"] == "lime"
    [(short, more)] = evidence_plots.answers([one], results)
    assert "take lime, 40 evaluations" in short and "banzhaf" not in more and "any cost" not in more
    told = evidence_plots.recommendation(one).data
    assert "Below the 1,024 evaluations of exact itself the best mean is that of lime" in told
    page = evidence_plots.against_best(one).data
    assert "banzhaf against" in page and ">exact<" not in page  # among the labels it is the closest
    table = evidence_plots.overview([SimpleNamespace(**vars(results), experiment="e")], {"e": [one]}).data
    assert "lime, 40 evaluations" in table and "banzhaf" not in table
    cheap = of_errors(errors, {"exact": 30, "banzhaf": 1024, "lime": 40, "random": 0}, budget=4)
    [one] = evidence_plots.evidence(cheap)
    assert one.within(cheap)["chosen"] == "exact" and one.last["chosen"] == "random"
    [(short, more)] = evidence_plots.answers([one], cheap)
    assert short.endswith("take exact, 30 evaluations an instance.") and "Below" not in more


def test_smaller_budgets_can_be_taken_too():
    noise = np.abs(np.random.default_rng(11).normal(1, 0.1, 40))
    errors = {"sampled": 0.1 * noise, "free": 3 * noise, ("sampled", 2.0): noise, ("sampled", 8.0): 0.1 * noise}
    results = of_errors(errors, {"exact": 1024, "sampled": 80, "free": 0}, 8, {"sampled": {2.0: 19}})
    [one] = evidence_plots.evidence(results)
    assert set(one.values) == {"sampled", "free"} and set(one.also) == {"exact", "sampled at 2 d"}
    rows = one.choices.set_index("evaluations")["chosen"].to_dict()
    assert rows == {0: "free", 19: "sampled at 2 d", 80: "sampled", 1024: "exact"}
    results.settings["budget"] = 3
    results.metrics["error"] = pd.DataFrame(
        {"label": "sampled", "quantity": "rmse_by_budget", "x": [2.0, 8.0], "mean": [1.0, 0.1], "low": 0.9, "high": 1.1}
    )
    [(short, more)] = evidence_plots.answers([one], results)
    assert "take sampled at 2 d, 19 evaluations" in short and "RMSE: 1.00 (0.90 to 1.10) nats" in more
    # On seven instances nothing of so many pairs could be told apart; of the labels alone it can.
    few = of_errors({key: values[:7] for key, values in errors.items()}, {"sampled": 80, "free": 0}, 8)
    [one] = evidence_plots.evidence(few)
    assert one.pairs["sure"].all() and len(one.pairs) == 3
    many = {("sampled", float(at)): noise[:7] for at in range(1, 9)} | {
        key: errors[key][:7] for key in ("sampled", "free")
    }
    [one] = evidence_plots.evidence(of_errors(many, {"sampled": 80, "free": 0}, 8))
    assert one.also.empty and len(one.pairs) == 1 and one.pairs["sure"].all()


def test_a_label_measured_on_too_few_instances_is_told():
    noise = np.abs(np.random.default_rng(12).normal(1, 0.1, 20))
    errors = {"most": noise, "other": 2 * noise, "failing": np.where(np.arange(20) < 9, noise, math.nan)}
    [one] = evidence_plots.evidence(of_errors(errors, {"most": 3, "other": 2, "failing": 1}, 8))
    assert one.absent == ("failing",) and set(one.values) == {"most", "other"} and len(one.values) == 20
    assert "Left out: failing is measured on fewer than half" in evidence_plots.absence(one).data
    errors["failing"][:10] = 1.0
    [one] = evidence_plots.evidence(of_errors(errors, {"most": 3, "other": 2, "failing": 1}, 8))
    assert one.absent == () and evidence_plots.absence(one) is None and len(one.values) == 10
    [one] = evidence_plots.evidence(of_errors(errors, {"most": 3, "other": 2, "failing": 1, "failed": 0}, 8))
    assert one.absent == ("failed",)  # nothing was measured of it


def test_direction_of_the_question_decides(one):
    question = Question("decisive", "f1", "higher", "Words: F1", "words", "")
    found = answer(dict(one.values.items()), dict(one.evaluations.items()), question)
    assert list(found.choices["chosen"]) == ["free"]


def test_tables_name_every_other_method_against_the_best(one):
    page = evidence_plots.against_best(one).data
    best = statistics.order(one.values)[0]
    assert f"{best} against" in page and all(f">{label}<" in page for label in one.values if label != best)
    assert "recommended" in evidence_plots.choices_table(one).data


def test_rank_diagram_names_every_method_with_its_average_rank(one):
    drawing = evidence_plots.rank_diagram(one, styles(one))
    texts = [text.get_text() for text in drawing.axes[0].texts]
    average = statistics.ranks(one.values).mean()
    for label, rank in average.items():
        assert any(label in text and f"{rank:.1f}" in text for text in texts), label
    assert any("critical difference" in text for text in texts)
    two = answer({"a": [1.0] * 8, "b": [2.0] * 8}, {"a": 1, "b": 1})
    assert evidence_plots.rank_diagram(two, {}) is None


def test_cost_plane_joins_the_methods_that_no_cheaper_one_beats(one):
    rows = pd.DataFrame({"mean": one.values.mean(), "low": one.values.mean() - 0.1, "high": one.values.mean() + 0.1})
    axes = evidence_plots.cost_plane(one, rows, styles(one)).axes[0]
    line = max(axes.lines, key=lambda each: len(each.get_xdata()))
    expected = [cost for cost, label in ((0, "free"), (5, "poor"), (10, "cheap"), (1000, "dear"))]
    best = one.values.mean()
    kept = expected if best["dear"] <= best["cheap"] else expected[:3]
    assert list(line.get_xdata()) == kept


def test_cost_plane_has_a_panel_against_seconds(one):
    rows = pd.DataFrame({"mean": one.values.mean(), "low": one.values.mean() - 0.1, "high": one.values.mean() + 0.1})
    seconds = pd.Series({"dear": 0.5, "cheap": 2.0, "poor": math.nan, "free": 0.001})
    first, second = evidence_plots.cost_plane(one, rows, styles(one), seconds).axes
    assert "evaluations" in first.get_xlabel() and "seconds" in second.get_xlabel() and second.get_xscale() == "log"
    named = [{text.get_text(): text.xy[0] for text in axes.texts if text.get_text()} for axes in (first, second)]
    assert named == [dict(one.evaluations), dict(seconds.dropna())]  # where poor spent unknown seconds
    line = max(second.lines, key=lambda each: len(each.get_xdata()))
    ahead = one.values.mean()["cheap"] <= one.values.mean()["dear"]
    assert list(line.get_xdata()) == [0.001, 0.5, 2.0][: 3 if ahead else 2]
    unknown = dataclasses.replace(one, evaluations=pd.Series(dtype=float))  # as of scores made elsewhere
    [alone] = evidence_plots.cost_plane(unknown, rows, styles(one), seconds).axes
    assert "seconds" in alone.get_xlabel()
    assert evidence_plots.cost_plane(unknown, rows, styles(one)) is None


def test_the_figures_carry_their_numbers(one):
    rows = pd.DataFrame({"label": one.values.columns, "quantity": "masking_area", "mean": one.values.mean()})
    rows = rows.assign(low=rows["mean"] - 0.5, high=rows["mean"] + 0.5)
    frames = {label: pd.DataFrame({"status": "ok", "seconds": [1.0, 3.0]}) for label in one.values}
    labels = {label: {"method": "lime", "is_control": label == "free"} for label in one.values}
    results = SimpleNamespace(
        experiment="e", labels=labels, exact=None, settings={}, metrics={"log_odds": rows}, scores=frames
    )
    page = evidence_plots.costs_and_ranks(one, results).data
    drawn = [base64.b64decode(part).decode() for part in re.findall(r'base64,([^"]+)', page)]
    plane, ranks = (re.search("<dc:description>(.*?)</dc:description>", one, re.S)[1] for one in drawn)
    found = pd.read_csv(io.StringIO(plane)).set_index("label")
    assert dict(found["evaluations"]) == dict(one.evaluations) and set(found["seconds"]) == {2.0}
    assert found["mean"].to_numpy() == pytest.approx(one.values.mean()[found.index], rel=1e-5)
    found = pd.read_csv(io.StringIO(ranks)).set_index("label")["average_rank"]
    assert found.to_dict() == pytest.approx(statistics.ranks(one.values).mean().to_dict())


def test_questions_that_rank_the_same_methods_are_compared(one):
    higher = Question("decisive", "f1", "higher", "Words: F1", "words", "")
    same = answer(dict((-one.values).items()), dict(one.evaluations.items()), higher)
    page = evidence_plots.over_questions([one, same]).data
    assert "Kendall&#x27;s W 1.00 over 4 methods and 2 questions" in page and "0.50 on average" in page
    mean = findings.number(one.values["free"].mean(), whole=False)
    assert f">4 ({mean})<" in page and page.index(">free<") > page.index(">poor<")
    reverse = answer(dict(one.values.items()), dict(one.evaluations.items()), higher)
    assert "Kendall&#x27;s W 0.00 over" in evidence_plots.over_questions([one, reverse]).data
    fewer = answer(dict(one.values[["dear", "poor", "free"]].items()), dict(one.evaluations.items()), higher)
    page = evidence_plots.over_questions([one, fewer]).data
    assert "over 3 methods" in page and "Not every question ranks cheap." in page and ">cheap<" not in page
    two = answer(dict(one.values[["dear", "poor"]].items()), dict(one.evaluations.items()), higher)
    assert evidence_plots.over_questions([one, two]) is None and evidence_plots.over_questions([one]) is None


def test_probabilities_are_written_for_reading():
    written = [evidence_plots.probability(p) for p in (math.nan, 0.0001, 0.0314, 0.5)]
    assert written == ["–", "< 0.001", "0.031", "0.50"]


# --- trainings by other seeds -------------------------------------------------------------------------------------


def retrained(one: Evidence, moves: list[float], noise: float = 0.1, repeats: int = 1) -> SimpleNamespace:
    """Results whose trainings move every value of a label by as much, and `dear` alone by twice as much."""
    random, rows = np.random.default_rng(2), []
    for training, move in enumerate(moves):
        for label, values in one.values.items():
            for repeat in range(repeats):
                for instance, value in values.items():
                    moved = value + move * (1 + (label == "dear")) + random.normal(0, noise)
                    rows.append((label, training, instance, repeat, "masking_area", math.nan, moved))
    names = ["label", "training", "instance", "repeat", "quantity", "x", "value"]
    return SimpleNamespace(trainings={"log_odds": pd.DataFrame(rows, columns=names)}, settings={"seeds": len(moves)})


def test_trainings_have_means_a_figure_and_an_agreement(one):
    results = retrained(one, [0.0, 0.1, -0.1])
    means = evidence_plots.training_means(one, results)
    assert means.shape == (3, 4) and list(means.index) == [0, 1, 2]
    assert means.loc[1, "dear"] - means.loc[0, "dear"] == pytest.approx(0.2, abs=0.05)
    drawing = evidence_plots.training_plot(one, means, styles(one))
    axes = drawing.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == statistics.order(means)
    points = sorted(line.get_xdata()[0] for line in axes.lines if line.get_markersize() == 6.5)
    assert points == pytest.approx(sorted(means.to_numpy().ravel()))
    page = evidence_plots.over_trainings(one, results, styles(one)).data
    assert "Kendall&#x27;s W 1.00 (1: all the same)" in page and "3 trainings" in page and "Left out" not in page
    results = retrained(one, [0.0, 5.0], 0.0)
    ranked = statistics.kendall_w(evidence_plots.training_means(one, results).to_numpy())
    other = evidence_plots.over_trainings(one, results, styles(one)).data
    assert 0.1 < ranked < 0.9 and f"Kendall&#x27;s W {ranked:.2f} (1: all the same)" in other
    assert "the leader differs: cheap and dear" in other and "leads in all" not in other
    assert evidence_plots.over_trainings(one, retrained(one, [0.0]), styles(one)) is None


def test_a_training_without_a_measurement_is_told(one):
    results = retrained(one, [0.0, 0.1, -0.1])
    measured = results.trainings["log_odds"]
    results.trainings["log_odds"] = measured[measured["training"] < 2]
    page = evidence_plots.over_trainings(one, results, styles(one)).data
    assert "Left out, without a measurement: 1 training." in page and "Not ranked" not in page
    results.trainings["log_odds"] = measured[(measured["training"] < 2) | (measured["label"] != "dear")]
    page = evidence_plots.over_trainings(one, results, styles(one)).data
    assert "Not ranked here, as a training lacks them: dear." in page and "Left out" not in page
    for few in (measured[measured["training"] < 1], measured[measured["label"] == "dear"], measured.head(0)):
        results.trainings["log_odds"] = few
        page = evidence_plots.over_trainings(one, results, styles(one)).data
        assert "3 trainings of the model cannot be compared" in page and "nan" not in page


def test_the_variance_has_a_share_of_the_trainings_where_there_are_some(one):
    page = evidence_plots.variances(retrained(one, [0.0, 8.0, -8.0, 4.0], repeats=3)).data
    assert "between trainings" in page and "between draws" in page
    results = retrained(one, [0.0, 8.0, -8.0, 4.0], repeats=3)
    cheap = results.trainings["log_odds"].query("label == 'cheap'")
    wide = cheap.pivot_table(index="instance", columns=["repeat", "training"], values="value").to_numpy()
    shares = statistics.variance_shares(wide.reshape(-1, 3, 4), ("instances", "draws", "trainings"))
    assert shares["trainings"] > 0.5 and findings.share(shares["trainings"]) in page
    results.trainings = {"own": results.trainings["log_odds"].assign(quantity="spread")}  # a metric of one's own
    assert ">spread<" in evidence_plots.variances(results).data
    page = evidence_plots.variances(retrained(one, [0.0], repeats=3)).data
    assert "between trainings" not in page and "between draws" in page
    assert evidence_plots.variances(retrained(one, [0.0])) is None
