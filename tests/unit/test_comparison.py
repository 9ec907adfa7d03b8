"""Methods compared in one call: the measurements of the workflow, and its recommendation."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

import shapeline
from shapeline.api import comparison
from shapeline.errors import ShapelineError
from shapeline.statistics.recommendation import recommend

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 5))
MODEL = LogisticRegression().fit(X, X @ [2.0, -1.0, 0.5, 0.0, 0.0] > 0)
METHODS = {
    "kernel": "kernel_shap",
    "loo": "occlusion",
    "wide": {"method": "kernel_shap", "budget": 5.5},
    "grad": "saliency",
}


@pytest.fixture(scope="module")
def found():
    return shapeline.compare(MODEL, X, METHODS, background=X[:8], seed=3)


def test_errors_are_those_to_the_exact_values(found):
    exact = shapeline.explain(MODEL, X, "shapley", background=X[:8])
    for entry in ("kernel", "loo", "random"):
        scores = found.explanations[entry].scores
        if entry == "random":  # which has no scale of its own
            scores = scores * np.sqrt((exact.scores**2).mean(1) / (scores**2).mean(1))[:, None]
        error = np.sqrt(((scores - exact.scores) ** 2).mean(1))
        assert found.table["error"][entry] == pytest.approx(error.mean(), rel=1e-5)
        np.testing.assert_allclose(found.values[entry], error, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(found.exact.scores, exact.scores, atol=1e-9)


def test_a_method_gives_the_scores_of_a_separate_call(found):
    alone = shapeline.explain(MODEL, X, "kernel_shap", background=X[:8], seed=3, budget=5.5)
    np.testing.assert_array_equal(found.explanations["wide"].scores, alone.scores)
    assert found.table["evaluations"]["wide"] == alone.evaluations[0]


def test_evaluations_are_those_of_explain_for_every_method():
    """Sampled methods use the budget, methods of fixed cost their own number, others their parameter of that name."""
    named = {"kernel": "kernel_shap", "tree": "partition", "loo": "occlusion"}
    own = {"wide": {"method": "kernel_shap", "evaluations": 28}, "less": {"method": "kernel_shap", "budget": 3}}
    found = shapeline.compare(MODEL, X[:3], named | own, background=X[:8], evaluations=20)
    assert found.table["evaluations"][["kernel", "loo", "wide", "less"]].tolist() == [20, 6, 28, 14]
    for entry, name in named.items():
        alone = shapeline.explain(MODEL, X[:3], name, background=X[:8], evaluations=20)
        np.testing.assert_array_equal(found.explanations[entry].scores, alone.scores)
        assert found.table["evaluations"][entry] == alone.evaluations.mean()
    with pytest.raises(ShapelineError, match="compare: budget and evaluations both set the cost; give one of them"):
        shapeline.compare(MODEL, X[:3], named, background=X[:8], evaluations=20, budget=4)
    with pytest.raises(ShapelineError, match="compare: evaluations"):
        shapeline.compare(MODEL, X[:3], named, background=X[:8], evaluations=0)


def test_fewer_evaluations_than_a_method_of_fixed_cost_needs_are_refused():
    """The number was ignored."""
    words = "evaluations is 20 and shapley always evaluates 32 coalitions of 5 features; raise it, or leave it out"
    with pytest.raises(ShapelineError, match=f"explain: {words}"):
        shapeline.explain(MODEL, X[:3], "shapley", background=X[:8], evaluations=20)
    entries = {"exact": {"method": "shapley", "evaluations": 20}, "loo": "occlusion"}
    found = shapeline.compare(MODEL, X[:3], entries, background=X[:8])
    assert f"exact failed: compare: {words}" in found.notes
    assert shapeline.explain(MODEL, X[:3], "shapley", background=X[:8], evaluations=32).cost["evaluations"] == 32
    assert shapeline.explain(MODEL, X[:3], background=X[:8], evaluations=20).cost["evaluations"] == 32  # "auto"


def test_an_error_target_is_of_sampled_methods():
    named = ["kernel_shap", "occlusion", "lime"]
    found = shapeline.compare(MODEL, X[:6], named, {"error": 0.05}, background=X[:8])
    assert set(found.explanations) == {"kernel_shap", "occlusion", "random"} and found.recommended == "kernel_shap"
    assert any(note.startswith("lime failed: compare: budget: lime cannot stop") for note in found.notes)


def test_a_gradient_of_one_row_costs_less_where_an_evaluation_has_more_rows():
    network, rows = torch.nn.Linear(5, 2), X.astype(np.float32)
    counts = [
        shapeline.compare(network, rows[:2], ["saliency", "integrated_gradients"], background=rows[:count]).table
        for count in (1, 8)
    ]
    one, eight = (table["evaluations"] for table in counts)
    assert one["saliency"] == 3 and eight["saliency"] == 3 / 8
    assert one["integrated_gradients"] == eight["integrated_gradients"]  # which takes a path from each row


def test_the_recommendation_is_that_of_the_reports(found):
    entries = [entry for entry in found.values if found.table["evaluations"][entry] < 32]
    expected = recommend(found.values[entries], found.table["evaluations"].to_dict(), 0.05, "random")
    assert found.recommended == expected.entry and found.by == "error"
    cost = f"{found.table['evaluations'][found.recommended]:.0f} evaluations per instance"
    assert f"{expected.sentence(cost=cost)} Criterion: error." in repr(found)


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_recommendation_is_independent_of_the_unit_of_values(unit):
    """A change of unit by thousandths or millions changes no recommendation."""
    weights = np.array([2.0, -1.0, 0.5, 1.5, 0.3])

    def predict(rows):
        return unit * (np.asarray(rows) @ weights + 3 * rows[:, 0] * rows[:, 1])

    methods = {"kernel": {"method": "kernel_shap", "budget": 5}, "loo": "occlusion"}
    found = shapeline.compare(predict, X, methods, background=X[:8], value="prediction")
    assert found.recommended == "kernel"


@pytest.mark.parametrize(
    "predict, methods, recommended, words",
    [
        (lambda x: np.prod(np.sign(x), axis=1), ["occlusion"], None, "No method is better than random attribution: "),
        (lambda x: x[:, 0] * x[:, 1] + x[:, 2], ["shapley", "sample_shapley"], "sample_shapley", "not a candidate."),
        (lambda x: np.full(len(x), 0.1), ["occlusion", "shapley"], "occlusion", "Undecided between occlusion"),
    ],
)
def test_a_control_or_an_unaffordable_method_is_not_recommended(predict, methods, recommended, words):
    """Parity, where random is better; 512 coalitions of exact values; and errors that are all rounding."""
    found = shapeline.compare(predict, RNG.normal(size=(12, 9)), methods, reference="zero", value="prediction")
    assert found.recommended == recommended and words in repr(found)


def test_masking_is_measured_by_the_models_log_odds(found):
    """Over the counts 0 to d of removed features, by hand for one row of one method."""
    scores = found.explanations["loo"].scores[0]
    order = np.argsort(-scores)
    target = found.explanations["loo"].target[0]
    curve = []
    for count in range(6):
        rows = np.repeat(X[:1], 8, axis=0)
        rows[:, order[:count]] = X[:8, order[:count]]
        p = MODEL.predict_proba(rows)[:, target].mean()
        curve.append(np.log(p / (1 - p)))
    only = shapeline.compare(MODEL, X[:1], {"loo": "occlusion"}, background=X[:8])
    assert only.table["deletion"]["loo"] == pytest.approx(np.trapezoid(np.array(curve) - curve[0], dx=0.2), abs=1e-5)


def test_a_method_that_fails_is_a_note_and_random_stands_beside(found):
    assert set(found.table.index) == {"kernel", "loo", "wide", "random"}
    assert any(note.startswith("grad failed: ") for note in found.notes)
    with pytest.raises(ShapelineError, match=r"all methods failed \(grad failed"):
        shapeline.compare(MODEL, X, {"grad": "saliency"}, background=X[:8])


def test_it_is_shown(found):
    assert "agreement" in repr(found) and "<table" in found._repr_html_()
    assert "deletion AUC" in repr(found) and "deletion AUC" in found._repr_html_()
    assert "<td>−" in found._repr_html_() and "<td>-" not in found._repr_html_()
    left, right = found.plot().axes
    assert len(left.get_yticklabels()) == 4 and "kernel (" in " ".join(
        text.get_text() for text in left.get_yticklabels()
    )
    assert len(right.texts) == 16
    assert np.allclose(found.agreement, found.agreement.T, equal_nan=True)


def test_without_exact_values_masking_decides(monkeypatch):
    monkeypatch.setattr(comparison, "MAX_ROWS", 10)
    found = shapeline.compare(MODEL, X, ["occlusion", "kernel_shap"], background=X[:8])
    assert found.by == "deletion" and "error" not in found.table and "would cost" in " ".join(found.notes)


def test_values_read_from_the_model_are_exact_for_any_number_of_columns():
    wide = RNG.normal(size=(40, 30))
    model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2).fit(wide, wide[:, :4].prod(axis=1))
    found = shapeline.compare(model, wide[:6], ["kernel_shap", "tree_shap"], background=wide, budget=3)
    assert found.exact is found.explanations["tree_shap"] and found.by == "error" and found.recommended == "tree_shap"
    assert found.table["error"]["tree_shap"] == 0 < found.table["error"]["kernel_shap"]
    notes = " ".join(found.notes)
    assert "that to tree_shap, whose" in notes and "no more than kernel_shap: use tree_shap in place" in notes


def test_a_regression_is_compared_by_its_errors():
    table = pd.DataFrame(X, columns=list("abcde"))
    model = HistGradientBoostingRegressor(max_iter=5).fit(table, X[:, 0])
    found = shapeline.compare(model, table, ["occlusion", "sample_shapley"], background=table[:5])
    assert found.by == "error" and "deletion" not in found.table and "regression" in " ".join(found.notes)


def test_texts_of_several_lengths_are_compared():
    def opinion(texts):
        return 1 / (1 + np.exp([1.0 - 2 * text.count("good") + text.count("bad") for text in texts]))

    texts = ["good", "a good one", "so bad a film", "not good not bad", "bad bad", "good good bad"] * 2
    found = shapeline.compare(opinion, texts, ["occlusion", "kernel_shap"], target=1)
    assert found.by == "error" and {"deletion", "insertion"} <= set(found.table)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"methods": "lime"}, r"expected a list of names or a mapping; give \['lime'\], or"),
        ({"methods": ["lime", "limee"]}, "compare: unknown method 'limee'. Did you mean 'lime'"),
        ({"methods": None}, "expected a list of names"),
        ({"methods": [3, "lime"]}, "expected a list of names"),
        ({"methods": {"mine": None}}, "expected a list of names"),
        ({"methods": {"mine": {"ridge": 1.0}}}, "'mine' has no method; add 'method'"),
        ({"methods": ["kernel_shp"]}, "Did you mean 'kernel_shap'"),
        ({"ridge": 1.0}, "'ridge' is not an argument; give a method's parameters with the method"),
        ({"method": "lime"}, "'method' is not an argument. Did you mean 'methods'"),
        ({"progress": True}, "'progress' is not an argument. Allowed: .*background, budget, .* y"),
        ({"margin": 5}, "margin is 5; give a share above 0 and below 1, such as 0.05 for 5 %"),
        ({"methods": ["auto"]}, "'auto'. It is the choice of explain; give a method"),
        ({"target": "each"}, "several classes of one input"),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    with pytest.raises(ShapelineError, match=words) as failure:
        shapeline.compare(MODEL, X, **{"methods": ["occlusion"], "background": X[:8], **arguments})
    assert "\n" not in str(failure.value)


def test_a_model_in_the_place_of_the_inputs_is_one_line():
    with pytest.raises(ShapelineError, match="inputs: a LogisticRegression is a model; give the model first"):
        shapeline.compare(X, MODEL)
