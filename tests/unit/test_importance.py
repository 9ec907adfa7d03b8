"""Importance of features over instances: means by hand, groups, words, and the method that is shown."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from shapeline.games.features import Features
from shapeline.report import criteria, experiment, formatting
from shapeline.report.figures import explanations as figures
from shapeline.report.sections import evidence, importance
from shapeline.statistics.bounds import intervals
from tests.fixtures.result_folder import build

ENTRIES = ("exact", "kernel_shap", "lime", "occlusion", "random")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return experiment.load(**build(tmp_path_factory.mktemp("table"), "table", ENTRIES))


def scores_of(results, entry):
    return np.stack(experiment.select_scores(results.scores[entry], results.instances["instance"]))


def test_cached_results_are_computed_once_per_experiment():
    calls = []

    @experiment.remember
    def compute(results, name):
        calls.append(name)
        return [results.experiment, name]

    first, second = (SimpleNamespace(experiment=name, memo={}) for name in "ab")
    assert compute(first, "x") is compute(first, "x") and compute(second, "x") == ["b", "x"]
    assert compute(first, "y") == ["a", "y"] and calls == ["x", "x", "y"]


def test_the_largest_mean_magnitudes_are_named_with_their_intervals(results):
    scores = np.abs(scores_of(results, "exact"))
    best = int(scores.mean(0).argmax())
    row = intervals(scores).loc[best]  # as everywhere: extended on the side of the skewness
    said = importance.top_features(results, "exact")
    name = experiment.name_features(results)[best]
    told = formatting.interval({**row, "low": max(row["low"], 0)})
    assert said.startswith("Most important features by exact (mean |score| in nats, 95 % CI): ")
    assert f": {name}: {told};" in said
    names, ordered = importance.sort_by_size(results, "exact")
    assert names[0] == name and np.allclose(np.abs(ordered).mean(0), np.sort(scores.mean(0))[::-1])


SHADES = (None, np.ones((9, 2)), np.array([[1.0, np.nan]] * 9))


def test_categories_have_no_high_values(results):
    """The codes of categories have no order: their dots are grey, as in shap's beeswarm plot."""
    columns = Features("column", (30,), np.arange(30), tuple(results.dataset_card["feature_names"]))

    def shades(categorical):
        card = results.dataset_card | {"categorical": categorical}
        own = dataclasses.replace(results, features=columns, dataset_card=card)
        return importance._rank_values(own, experiment.name_shared_features(own))

    ranks = pd.DataFrame(results.read_inputs(results.instances)).rank(pct=True).to_numpy()
    np.testing.assert_allclose(shades([]), ranks)
    assert (np.isnan(shades([1])).all(axis=0) == (np.arange(30) == 1)).all()
    assert shades(list(range(30))) is None
    labels = [figures.summary(["a", "b"], np.ones((9, 2)), own, "score").axes[1].get_xlabel() for own in SHADES]
    assert [label.endswith(", grey: category or missing") for label in labels] == [False, False, True]


def test_groups_are_classes_and_right_and_wrong_predictions(results):
    rows, found = results.instances, importance.groups(results)
    wrong = (rows["label"] != rows["prediction"]).to_numpy()
    assert found["wrong predictions"].sum() == wrong.sum() and not (found["wrong predictions"] & ~wrong).any()
    classes = [name for name in found if name.startswith("class ")]
    assert len(classes) == 2 and sum(found[name].sum() for name in classes) == len(rows)
    right = dataclasses.replace(results, instances=rows.assign(prediction=rows["label"]))
    assert not any("predictions" in name for name in importance.groups(right))
    page = importance.section(results, "exact").data
    assert "Importance over 12 instances, by exact" in page and "wrong predictions" in page
    assert "the score of each instance for the predicted class." in page


def test_the_method_is_that_of_the_first_recommendation_else_no_control(results):
    assert importance.choose_method(results, []) == "exact"
    random = np.random.default_rng(0)
    rows = [("lime", i, -5 + random.normal()) for i in range(12)] + [
        ("occlusion", i, random.normal()) for i in range(12)
    ]
    measured = pd.DataFrame(rows, columns=["method", "instance", "value"])
    measured = measured.assign(statistic="deletion_auc", repeat=0, x=np.nan, training=0)
    other = dataclasses.replace(results, measured={"log_odds": measured})
    answered = criteria.collect_evidence(other)
    assert importance.choose_method(other, answered) == "occlusion"
    cards = evidence.cards(answered, other).data
    best = pd.concat([measured, measured[measured["method"] == "lime"].assign(method="random", value=-99.0)])
    best = dataclasses.replace(results, measured={"log_odds": best})
    answered_by_chance = criteria.collect_evidence(best)
    assert answered_by_chance[0].first(best).entry == "random"
    assert importance.choose_method(best, answered_by_chance) != "random"
    assert "Finds what the model relies on" in cards and '<p class="method">★ occlusion</p>' in cards


def test_words_have_means_over_texts():
    rows = pd.DataFrame({"instance": [0, 1, 2, 3], "prediction": [1, 1, 1, 0], "label": [1, 1, 1, 0]})
    rows["words"] = [["Good", "film", "good"], ["good", "plot"], ["good", "film"], ["bad", "film"]]
    values = [[3.0, 0.5, 4.0], [4.0, 1.0], [4.5, 0.5], [2.0, 0.1]]
    frame = pd.DataFrame({"instance": range(4), "scores": values, "status": "ok", "repeat": 0, "budget": 4.0})
    card = {"kind": "text", "classes": ["negative", "positive"]}
    made = experiment.Results(
        "e", "", {"value": "log_probability"}, {"a": {"method": "lime"}}, {"x": 1}, card, "", None, rows, {"a": frame},
        {}, {}, {}, {},
    )  # fmt: skip
    found = importance.mean_words(made, "a").set_index(["group", "word"])
    good = found.loc["positive", "good"]  # 3.5, 4 and 4.5: the mean of a text counts once
    assert good["mean"] == pytest.approx(4) and good["texts"] == 3
    assert good["high"] - good["mean"] == pytest.approx(stats.t.ppf(0.975, 2) * 0.5 / np.sqrt(3))
    assert next(iter(found.index)) == ("positive", "good")
    assert "“good” for positive: 4" in importance.top_features(made, "a")
    frame["scores"] = [[3.0, 0.11, 4.0], [4.0, 0.10], [4.5, 0.12], [2.0, 0.1]]  # of film 0.115, certainly above 0
    certain = dataclasses.replace(made, experiment="certain", scores={"a": frame.copy()})
    rows["words"] = [["Good", "film", "good"], ["good", "film"], ["good", "film"], ["bad", "film"]]
    assert "film" not in importance.top_features(certain, "a")
    frame["scores"] = [[-9.0, 0.5, 3.0], [4.0, 1.0], [6.0, -0.5], [2.0, 0.1]]  # of good -3, 4 and 6
    unsure = dataclasses.replace(made, experiment="unsure", scores={"a": frame.copy()})
    assert (
        importance.top_features(unsure, "a")
        == "By a, no word of large mean score (at least 5 % of the largest) has a 95 % interval above 0."
    )


def test_important_words_are_drawn_per_class_before_their_tables():
    words = [f"w{index}" for index in range(16)]
    rows = pd.DataFrame({"instance": range(6), "prediction": [1, 1, 1, 0, 0, 0], "label": [1, 1, 1, 0, 0, 0]})
    rows["words"] = [words] * 6
    sizes = np.linspace(-1, 0.7, 16)
    scores = [sizes + 0.01 * row for row in range(3)] + [-sizes] * 3
    frame = pd.DataFrame({"instance": range(6), "scores": [list(row) for row in scores], "status": "ok", "repeat": 0})
    card = {"kind": "text", "classes": ["bad", "$good$"]}
    made = experiment.Results(
        "drawn", "", {"value": "log_probability"}, {"a": {"method": "lime"}}, {"x": 1}, card, "", None, rows,
        {"a": frame.assign(budget=4.0)}, {}, {}, {}, {},
    )  # fmt: skip
    page = importance.section(made, "a").data
    assert page.index("<svg") < page.index("<details>") and page.count("<table") == 4  # two per class
    assert "words in at least 3 texts" in page and "against class bad" in page
    card.pop("classes")
    values = dataclasses.replace(made, experiment="values", dataset_card=card | {"task": "regression"})
    page = importance.section(values, "a").data
    assert "against the prediction" in page and "class the" not in page and "supports a larger prediction" in page
    card["classes"] = ["bad", "$good$"]
    found = importance.mean_words(made, "a")
    groups = {
        f"class {name}": (list(one["word"]), *(one[end].to_numpy() for end in ("mean", "low", "high")))
        for name, one in found.groupby("group")
    }
    good, bad = figures.word_means(groups, "mean score (nats)").axes
    assert [axes.get_title(loc="left") for axes in (good, bad)] == [r"class \$good\$", "class bad"]
    ends = good.containers[1].lines[2][0].get_segments()
    for bar, label, (low, high) in zip(good.patches, good.get_yticklabels(), ends, strict=True):
        row = found.set_index(["group", "word"]).loc["$good$", label.get_text()]
        assert (bar.get_width(), low[0], high[0]) == pytest.approx((row["mean"], row["low"], row["high"]))
    drawn = [bar.get_width() for bar in good.patches]
    assert drawn == sorted(drawn, reverse=True) and min(np.abs(drawn)) > 0.06  # the two smallest are left out
