"""Shapley values that are read from a model, against all coalitions of the same value and reference."""

import importlib.util
import math

import numpy as np
import pandas as pd
import pytest
from sklearn import ensemble, linear_model, tree
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVR

import shapeline
from shapeline.datasets.table import build_table
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.methods import tree_shap
from shapeline.models import adapters
from shapeline.models.classifier import Classifier
from shapeline.models.pipeline_file import Pipeline
from tests.unit import shortcuts

D = 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, D)).astype(np.float32)
LABELS = ((X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 0.5)).astype(int)  # three classes
BINARY, TARGET = (LABELS > 0).astype(int), X[:, 0] * X[:, 1] + np.sin(2 * X[:, 3]) + X[:, 5]
COLUMNS = Features("column", (D,), np.arange(D, dtype=np.int32))
CASES = {
    "tree": (tree.DecisionTreeClassifier(max_depth=6, random_state=0), LABELS, "tree_shap", "probability", 3),
    "forest": (ensemble.RandomForestClassifier(7, random_state=0), LABELS, "tree_shap", "probability", 3),
    "extra": (ensemble.ExtraTreesRegressor(5, max_depth=5, random_state=0), TARGET, "tree_shap", "prediction", 4),
    "boosted": (ensemble.GradientBoostingClassifier(n_estimators=20), BINARY, "tree_shap", "margin", 3),
    "boosted classes": (ensemble.GradientBoostingClassifier(n_estimators=5), LABELS, "tree_shap", "centred_logit", 2),
    "boosted numbers": (ensemble.GradientBoostingRegressor(n_estimators=20), TARGET, "tree_shap", "prediction", 3),
    "histograms": (ensemble.HistGradientBoostingClassifier(max_iter=15), BINARY, "tree_shap", "log_odds", 1),
    "histogram classes": (
        *(ensemble.HistGradientBoostingClassifier(max_iter=5), LABELS),
        *("tree_shap", "centred_logit", 2),
    ),
    "histogram numbers": (ensemble.HistGradientBoostingRegressor(max_iter=15), TARGET, "tree_shap", "prediction", 3),
    "logistic": (linear_model.LogisticRegression(), BINARY, "linear_shap", "log_odds", 1),
    "logistic margins": (linear_model.LogisticRegression(), BINARY, "linear_shap", "margin", 4),
    "logistic classes": (linear_model.LogisticRegression(), LABELS, "linear_shap", "centred_logit", 3),
    "linear": (linear_model.Ridge(), TARGET, "linear_shap", "prediction", 3),
    "searched": (GridSearchCV(tree.DecisionTreeRegressor(), {"max_depth": [3]}), TARGET, "tree_shap", "prediction", 2),
    "a stump": (tree.DecisionTreeRegressor(max_depth=1), TARGET, "tree_shap", "prediction", 2),
    "a leaf": (tree.DecisionTreeRegressor(max_depth=1, min_samples_leaf=160), TARGET, "tree_shap", "prediction", 2),
}


def explain(model, method, value, rows, inputs=None, features=COLUMNS, targets=None):
    inputs = X[:5] if inputs is None else inputs
    targets = np.zeros(len(inputs), int) if targets is None else targets
    (found,) = shortcuts.attribute(
        *(model, inputs, targets, {"method": method}, features, Reference(rows), value), on_error="fail"
    )
    return found


def check(model, method, value, rows, **asked):
    found = explain(model, method, value, rows, **asked)
    exact = explain(model, "shapley", value, rows, **asked).scores
    np.testing.assert_allclose(found.scores, exact, atol=3e-6 * (1 + np.abs(exact).max()))
    assert (found.evaluations == 2).all()
    np.testing.assert_allclose(found.scores.sum(axis=1), found.value_full - found.value_empty, atol=1e-4)
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_scores_are_those_of_all_coalitions(name):
    estimator, labels, method, value, rows = CASES[name]
    model = adapters.wrap(estimator.fit(X, labels))
    for target in range(model.n_classes or 1):
        check(model, method, value, X[50 : 50 + rows], targets=np.full(5, target))


@pytest.mark.parametrize("name", ["forest", "histograms"])
def test_missing_cells_go_where_the_trees_send_them(name):
    estimator, labels, method, value, rows = CASES[name]
    holes = np.where(RNG.random(X.shape) < 0.3, np.float32(np.nan), X)
    check(adapters.wrap(estimator.fit(holes, labels)), method, value, holes[40 : 40 + rows], inputs=holes[:5])


def test_players_are_groups_and_what_is_never_removed_stays():
    model = adapters.wrap(ensemble.RandomForestClassifier(5, random_state=0).fit(X, LABELS))
    groups = Features("group", (3,), np.array([0, 1, 0, 2, -1, 1], dtype=np.int32))
    check(model, "tree_shap", "probability", X[50:53], features=groups)
    regression = adapters.wrap(linear_model.LinearRegression().fit(X, TARGET))
    found = explain(regression, "linear_shap", "prediction", X[50:51], features=groups)
    exact = explain(regression, "shapley", "prediction", X[50:51], features=groups)
    np.testing.assert_allclose(found.scores, exact.scores, atol=1e-5)


def piped(last, labels, value_classes):
    """A pipeline on a data frame of three numbers and a text column with four values, as one from a file."""
    town = RNG.integers(0, 4, len(X))
    table = pd.DataFrame(X[:, :3], columns=["x0", "x1", "x2"]).assign(
        town=np.array(["Bern", "Genf", "Ulm", "Wien"])[town]
    )
    kept, (rows,) = build_table([table])
    columns = [{"name": name} for name in table]
    steps = make_column_transformer(
        (StandardScaler(), ["x0", "x1", "x2"]), (OneHotEncoder(handle_unknown="ignore"), ["town"])
    )
    estimator = make_pipeline(steps, last).fit(table, labels + (rows[:, 3] == 2) * (0 if value_classes else 1.0))
    ask = estimator.predict_proba if value_classes else estimator.predict
    task = "classification" if value_classes else "regression"
    outputs = len(estimator.classes_) if value_classes else 1
    model = Classifier("function", "pipeline", Pipeline(b"", columns, estimator, ask, table=kept), outputs, task=task)
    return model, rows, Features("column", (4,), np.arange(4, dtype=np.int32))


@pytest.mark.parametrize(
    ("last", "labels", "method", "value"),
    [
        (ensemble.RandomForestClassifier(6, random_state=0), LABELS, "tree_shap", "probability"),
        (ensemble.GradientBoostingRegressor(n_estimators=10), TARGET, "tree_shap", "prediction"),
        (linear_model.Ridge(), TARGET, "linear_shap", "prediction"),
        (linear_model.LogisticRegression(), BINARY, "linear_shap", "log_odds"),
    ],
)
def test_a_one_hot_code_is_its_column(last, labels, method, value):
    model, rows, features = piped(last, labels, value != "prediction")
    check(model, method, value, rows[40 : 41 if value == "log_odds" else 43], inputs=rows[:5], features=features)


def test_many_columns_in_a_moment():
    wide = RNG.normal(size=(300, 120)).astype(np.float32)
    labels = wide[:, :4].sum(axis=1) * wide[:, 5] + wide[:, 60]
    model = adapters.wrap(ensemble.GradientBoostingRegressor(n_estimators=60, max_depth=4).fit(wide, labels))
    features = Features("column", (120,), np.arange(120, dtype=np.int32))
    found = explain(model, "tree_shap", "prediction", wide[100:110], inputs=wide[:10], features=features)
    np.testing.assert_allclose(found.scores.sum(axis=1), found.value_full - found.value_empty, atol=1e-4)
    if importlib.util.find_spec("shap"):
        import shap

        explainer = shap.TreeExplainer(model.module.__self__, wide[100:110], feature_perturbation="interventional")
        np.testing.assert_allclose(found.scores, explainer.shap_values(wide[:10]), atol=1e-5)


def test_a_tree_of_one_column():
    """A leaf of scikit-learn splits by column -2, which one column does not have."""
    model = tree.DecisionTreeRegressor(max_depth=3).fit(X[:, :1], TARGET)
    found = shapeline.explain(model, X[:5, :1], "tree_shap", background=X[50:53, :1])
    expected = model.predict(X[:5, :1]) - model.predict(X[50:53, :1]).mean()
    np.testing.assert_allclose(found.scores[:, 0], expected, atol=1e-6)


def fill(rows):
    """Copy another column where a cell is low: columns of some rows only are mixed."""
    return np.c_[np.where(rows[:, 0] < rows[:, 1] - 1, rows[:, 1], rows[:, 0]), rows[:, 1:]]


FILL = FunctionTransformer(fill)


@pytest.mark.parametrize(
    ("estimator", "labels", "method", "value", "rows", "said"),
    [
        (*CASES["boosted"][:3], "log_probability", 1, "add up to its margin, not to log_probability"),
        (
            *CASES["boosted"][:3],
            "log_odds",
            2,
            "with 2 reference rows the probability is averaged .* set value to 'margin', give a ref",
        ),
        (CASES["boosted"][0], LABELS, "tree_shap", "log_odds", 1, "add up to its centred_logit, not to log_odds"),
        (CASES["boosted"][0], LABELS, "tree_shap", "probability", 1, "add up to its centred_logit, not to pro"),
        (linear_model.Ridge(), TARGET, "tree_shap", "prediction", 1, "Ridge is not a tree model of scikit-learn"),
        (SVR(), TARGET, "linear_shap", "prediction", 1, "SVR has no single weight per input"),
        (linear_model.LogisticRegression(), LABELS, "linear_shap", "margin", 1, "add up to its centred_logit, not to"),
        (
            linear_model.PoissonRegressor(),
            TARGET**2,
            "linear_shap",
            "prediction",
            1,
            "the scores do not sum to the prediction",
        ),
        (make_pipeline(PCA(3), linear_model.Ridge()), TARGET, "linear_shap", "prediction", 1, "Ridge mixes columns"),
        (make_pipeline(FILL, linear_model.Ridge()), TARGET, "linear_shap", "prediction", 1, "the Ridge mixes columns"),
    ],
)
def test_what_is_no_sum_is_refused_in_a_line(estimator, labels, method, value, rows, said):
    model = adapters.wrap(estimator.fit(X, labels))
    with pytest.raises(ShapelineError, match=said) as caught:
        explain(model, method, value, X[50 : 50 + rows])
    assert "\n" not in str(caught.value) and "gp_shapley or kernel_shap" in str(caught.value)


def test_outputs_of_a_pipeline_on_a_frame_are_read_from_python():
    """Rows go through a data frame there, behind which the model was not seen."""
    model, rows, _ = piped(ensemble.GradientBoostingClassifier(n_estimators=9), BINARY, True)
    table = model.module.table.compose(rows)
    for method, value, estimator in (
        ("tree_shap", "margin", model.module.estimator),
        ("linear_shap", "prediction", piped(linear_model.Ridge(), TARGET, False)[0].module.estimator),
    ):
        asked = (estimator, table[:4], method, None, None, 4, None, 0, table[20:26], value)
        exact = shapeline.explain(*asked[:2], "shapley", *asked[3:])
        np.testing.assert_allclose(shapeline.explain(*asked).scores, exact.scores, atol=1e-5)


def test_a_function_is_refused():
    model = adapters.wrap(lambda rows: np.full((len(rows), 2), 0.5))
    with pytest.raises(ShapelineError, match="tree_shap: the model is not an estimator such as"):
        explain(model, "tree_shap", "probability", X[:1])


def test_a_tree_by_hand():
    """x0 <= 1 ? (x1 <= 2 ? 10 : 20) : 30, at its thresholds: equality goes left."""
    by_hand = tree_shap.Tree(
        left=np.array([1, 2, -1, -1, -1]),
        right=np.array([4, 3, -1, -1, -1]),
        feature=np.array([0, 1, -2, -2, -2]),
        threshold=np.array([1.0, 2.0, 0, 0, 0]),
        missing_left=np.zeros(5, bool),
        value=np.array([[0.0], [0.0], [10.0], [20.0], [30.0]]),
    )
    given, absent = np.array([[1.0, 2.0], [9.0, 2.0]]), np.array([[9.0, 9.0]])
    found = tree_shap.compute_shapley(by_hand, given, absent, np.arange(2), 2, np.zeros(2, int))
    # v: none 30, x1 alone 30, x0 alone 20, both 10.
    np.testing.assert_allclose(found, [[-15.0, -5.0], [0.0, 0.0]], atol=1e-12)


def grow_chain(length):
    """Return a tree that splits each of the features once, with one leaf beside each split."""
    inner, leaves = np.arange(length), np.full(length + 1, -1)
    sides = [np.append(inner[1:], 2 * length), length + inner]
    swapped = RNG.random(length) < 0.5
    left, right = (np.append(np.where(swapped, *order), leaves) for order in (sides, sides[::-1]))
    feature, threshold = np.append(inner, leaves), np.zeros(2 * length + 1)
    missing_left = RNG.random(2 * length + 1) < 0.5
    return tree_shap.Tree(left, right, feature, threshold, missing_left, RNG.normal(size=(2 * length + 1, 2)))


def explain_leaf_by_leaf(tree, given, absent, owners, d, outputs):
    """Shapley values of each leaf's game: a players must be present and b absent."""
    scores, ways = np.zeros((len(given), d)), [(0, [])]
    for node, path in ways:
        if tree.left[node] >= 0:
            ways += [
                (child, [*path, (node, child == tree.left[node])]) for child in (tree.left[node], tree.right[node])
            ]
            continue
        for i, x in enumerate(given):
            for row in absent:
                misses = [set(), set()]
                for step, is_left in path:
                    for side, cells in zip(misses, (x, row), strict=True):
                        cell = cells[tree.feature[step]]
                        goes_left = tree.missing_left[step] if np.isnan(cell) else cell <= tree.threshold[step]
                        side |= {owners[tree.feature[step]]} if goes_left != is_left else set()
                b, a = misses[0], misses[1] - {-1}
                if -1 not in b and not a & b and a | b:
                    once = tree.value[node, outputs[i]] / len(absent) / math.comb(len(a) + len(b), len(a))
                    scores[i, list(a)] += once / max(1, len(a))
                    scores[i, list(b)] -= once / max(1, len(b))
    return scores


@pytest.mark.parametrize("length", [3, 70, 140])
@pytest.mark.parametrize("blocks", [(1 << 20, 2048, 1 << 18), (1, 1, 1)])
def test_paths_of_any_number_of_players_in_any_blocks(monkeypatch, length, blocks):
    for name, most in zip(("MAX_CELLS", "MAX_ROWS", "MAX_PAIRS"), blocks, strict=True):
        monkeypatch.setattr(tree_shap, name, most)
    tree, outputs = grow_chain(length), RNG.integers(0, 2, 4)
    towards = np.where(tree.left[:length] == np.append(np.arange(1, length), 2 * length), -1.0, 1.0)
    rows = np.where(RNG.random((7, length)) < 1 - 2 / length, towards, -towards)
    rows[RNG.random(rows.shape) < 0.02] = np.nan
    for owners in (np.arange(length), np.arange(length) // 2, np.where(np.arange(length) == 1, -1, np.arange(length))):
        asked = tree, rows[:4], rows[4:], owners, length, outputs
        np.testing.assert_allclose(tree_shap.compute_shapley(*asked), explain_leaf_by_leaf(*asked), atol=1e-12)


def test_joined_trees_add_up():
    trees = [grow_chain(length) for length in (1, 4, 9)]
    trees.insert(1, tree_shap.Tree(*(np.full(1, -1),) * 3, np.zeros(1), np.zeros(1, bool), np.ones((1, 2))))  # a leaf
    rows, outputs = RNG.normal(size=(8, 9)), np.zeros(5, int)
    (joined,) = tree_shap.join_trees(trees)
    found, *parts = (
        tree_shap.compute_shapley(tree, rows[:5], rows[5:], np.arange(9), 9, outputs) for tree in (joined, *trees)
    )
    np.testing.assert_allclose(found, sum(parts), atol=1e-12)
    assert not list(tree_shap.join_trees([]))
