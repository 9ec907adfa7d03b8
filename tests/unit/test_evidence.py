"""Recommendations: the cheapest of the methods that are not told apart from the best, and the figures that show it."""

import math
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
    assert one.told_apart("dear", "cheap") >= 0.05 > one.told_apart("poor", "dear")
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
