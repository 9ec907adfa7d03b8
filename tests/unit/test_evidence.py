"""Recommendations: the cheapest of the methods that are not told apart from the best, and the figures that show it."""

import math

import numpy as np
import pandas as pd
import pytest

from shapeline import evidence_plots, plots, statistics
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
    rows = evidence_plots.choices(one)
    assert list(rows["evaluations"]) == [0, 5, 10, 1000][: len(rows)]
    assert list(rows["chosen"])[:3] == ["free", "poor", "cheap"]
    last = rows.iloc[-1]
    assert last["chosen"] == "cheap"
    assert one.told_apart("dear", "cheap") >= 0.05 > one.told_apart("poor", "dear")
    assert math.isnan(rows.iloc[0]["difference"]) and rows.iloc[1]["next"] == "free"


def test_a_dear_method_is_recommended_where_it_is_surely_better():
    values = np.random.default_rng(1).normal(size=30)
    found = answer({"dear": values - 1, "cheap": values}, {"dear": 100, "cheap": 1})
    assert list(evidence_plots.choices(found)["chosen"]) == ["cheap", "dear"]
    assert "Recommended: dear, 100 evaluations" in evidence_plots.recommendation(found).data


def test_direction_of_the_question_decides(one):
    question = Question("decisive", "f1", "higher", "Words: F1", "words", "")
    found = answer(dict(one.values.items()), dict(one.evaluations.items()), question)
    assert list(evidence_plots.choices(found)["chosen"]) == ["free"]


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
