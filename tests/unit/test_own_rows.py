"""A custom model receives rows exactly as its user would give them; values are checked by brute force."""

import datetime
import decimal
import importlib.util
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest, RandomForestClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import shapeline
from shapeline.datasets import loading, preparation, table
from shapeline.errors import ShapelineError
from shapeline.games import calibration, features, references
from shapeline.models import architectures, storage
from shapeline.models.adapters import find_columns
from tests.unit import shortcuts

RNG = np.random.default_rng(5)
N = 24
KINDS = {
    "whole numbers": RNG.integers(0, 5, N),
    "epoch seconds": 1_700_000_000 + RNG.integers(0, 600, N),
    "nanoseconds": 1_700_000_000_000_000_001 + np.arange(N),
    "unsigned": np.arange(N).astype(np.uint64) + 2**63,
    "small": np.arange(N).astype(np.int8),
    "single": RNG.random(N).astype(np.float32),
    "coordinates": 52.5 + RNG.random(N) * 1e-9,
    "missing": np.where(np.arange(N) % 5, RNG.random(N), np.nan),
    "truth": np.arange(N) % 3 == 0,
    "nullable": pd.array([None, 1, 2] * 8, dtype="Int64"),
    "nullable truth": pd.array([None, True, False] * 8, dtype="boolean"),
    "nullable reals": pd.array([None, 1.5, 2] * 8, dtype="Float64"),
    "texts": [" padded ", "b", ""] * 8,
    "objects": pd.Series(["x", "y", None] * 8, dtype=object),
    "two kinds of missing": pd.Series(["x", np.nan, None] * 8, dtype=object),
    "true and one": pd.Series([True, 1, 1.0, "1"] * 6, dtype=object),
    "lists": pd.Series([[1], [2, 3]] * 12, dtype=object),
    "python's numbers": pd.Series(list(range(N)), dtype=object),
    "codes": pd.Categorical(["low", "high", None] * 8, ["low", "mid", "high"], ordered=True),
    "intervals": pd.cut(np.arange(N), 3),
    "days": pd.date_range("2024-01-01", periods=N),
    "zone": pd.date_range("2024", periods=N, tz="Europe/Paris"),
    "durations": pd.to_timedelta(np.arange(N), "h"),
    "months": pd.period_range("2024-01", periods=N, freq="M"),
    "dates": pd.Series([datetime.date(2024, 1, 1 + i) for i in range(N)], dtype=object),
    "decimals": pd.Series([decimal.Decimal(i) / 8 for i in range(N)], dtype=object),
}
AMOUNT = RNG.random(N)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch):
    """Give each test the same random numbers, in whichever order tests run."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(2))


def brute(value, rows, background, target=None):
    """Shapley values (n, d) by the sum over all subsets, of rows composed one at a time."""
    names = list(background)
    d, scores = len(names), np.zeros((len(rows), len(names)))

    def of(place, kept):
        masked = background.copy()
        for name in kept:
            cell = rows[name].iloc[[place] * len(background)]
            masked[name] = cell.set_axis(background.index)
        return np.asarray(value(masked)).mean()

    for place in range(len(rows)):
        for number, name in enumerate(names):
            others = [other for other in names if other != name]
            for size in range(d):
                weight = math.factorial(size) * math.factorial(d - size - 1) / math.factorial(d)
                for kept in itertools.combinations(others, size):
                    scores[place, number] += weight * (of(place, [*kept, name]) - of(place, kept))
    return scores


def same_cells(one, other):
    assert (one.dtypes == other.dtypes).all() and list(one) == list(other)
    for name in one:
        for mine, its in zip(one[name], other[name], strict=True):
            assert type(mine) is type(its) and (mine is its or mine == its or (mine != mine and its != its))


@pytest.mark.parametrize("kind", KINDS)
def test_a_masked_row_is_a_background_row_with_kept_cells_exchanged(kind):
    frame = pd.DataFrame({"amount": AMOUNT, kind: KINDS[kind]})
    seen = []

    def model(rows):
        seen.append(rows.copy())
        return 0.1 + 0.5 * rows["amount"]

    found = shapeline.explain(model, frame[:2], "shapley", background=frame[9:12], target=1)
    for rows in seen:
        assert (rows.dtypes == frame.dtypes).all()
    masked = max(seen, key=len).reset_index(drop=True)
    assert {repr(value) for value in masked[kind]} <= {repr(value) for value in frame[kind][:12]}
    np.testing.assert_allclose(found.value_full, model(frame[:2]), rtol=0, atol=0)
    np.testing.assert_allclose(found.base_values, model(frame[9:12]).mean(), atol=1e-12)
    np.testing.assert_allclose(found.scores[:, 1], 0, atol=1e-12)


def test_every_cell_is_read_unchanged():
    frame = pd.DataFrame({"amount": AMOUNT, **KINDS})
    kept, (cells,) = table.build_table([frame])
    same_cells(kept.compose(cells), frame)
    order = RNG.permutation(N)
    same_cells(kept.compose(cells[order]), frame.iloc[order].reset_index(drop=True))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "uint8", "bool", "object", "<U4"])
def test_an_array_keeps_its_type(dtype):
    values = RNG.integers(0, 2 if dtype == "bool" else 9, (9, 3)).astype(dtype)
    types = set()

    def model(rows):
        types.add(rows.dtype)
        return 0.5 + 0.1 * (rows[:, 0] == values[0, 0])

    found = shapeline.explain(model, values[:2], "shapley", background=values[3:8], target=1)
    assert types == {values.dtype}
    expected = brute(lambda rows: model(rows.to_numpy(dtype)), pd.DataFrame(values[:2]), pd.DataFrame(values[3:8]))
    np.testing.assert_allclose(found.scores, expected, atol=1e-12)


@pytest.mark.parametrize("method", ["shapley", "tree_shap"])
@pytest.mark.parametrize("container", [pd.DataFrame, np.asarray])
def test_cells_of_many_digits(method, container):
    seconds = 1_700_000_000 + RNG.integers(0, 600, 300)
    frame = pd.DataFrame({"seconds": seconds.astype(float), "v": RNG.random(300)})
    model = HistGradientBoostingClassifier(max_iter=30).fit(container(frame), (seconds % 60 < 30) ^ (frame["v"] > 0.5))
    few, background = frame[:3], frame[10:20]
    found = shapeline.explain(model, container(few), method, background=container(background), value="margin", target=1)
    expected = brute(lambda rows: model.decision_function(container(rows)), few, background)
    np.testing.assert_allclose(found.scores, expected, atol=1e-9)
    np.testing.assert_allclose(found.value_full, model.decision_function(container(few)), atol=1e-9)


def test_integers_stay_integers_in_a_pipeline_that_prints_them():
    frame = pd.DataFrame({"store": RNG.integers(1, 6, 150), "price": RNG.random(150) * 10})
    codes = make_pipeline(FunctionTransformer(lambda rows: rows.astype(str)), OneHotEncoder(handle_unknown="ignore"))
    model = make_pipeline(ColumnTransformer([("c", codes, ["store"])], remainder="passthrough"), LogisticRegression())
    model.fit(frame, frame["store"].isin([2, 4]) ^ (frame["price"] > 5))
    found = shapeline.explain(model, frame[:3], "shapley", background=frame[:20], target=True)
    expected = brute(lambda rows: model.predict_proba(rows)[:, 1], frame[:3], frame[:20])
    np.testing.assert_allclose(found.scores, expected, atol=1e-12)
    assert np.abs(found.scores[:, 0]).min() > 0.01
    row = shapeline.explain(model, frame.iloc[0], "shapley", background=frame[:20], target=True)  # which floats it
    np.testing.assert_allclose(row.scores, expected[:1], atol=1e-12)
    of_mean = shapeline.explain(model, frame[:3], "occlusion", target=True)  # rounded, so that it is a store
    whole = frame[:3].mean().round()
    assert of_mean.base_values[0] == pytest.approx(
        model.predict_proba(pd.DataFrame({"store": [int(whole["store"])], "price": [frame["price"][:3].mean()]}))[0, 1]
    )


class Ratio(BaseEstimator, TransformerMixin):
    def fit(self, rows, y=None):
        return self

    def transform(self, rows):
        return rows.assign(ratio=rows["debt"] / rows["income"])


def test_frames_stay_frames():
    frame = pd.DataFrame({"debt": RNG.random(80) * 100, "income": RNG.random(80) * 500 + 100})
    y = (frame["debt"] / frame["income"] > 0.2).astype(int)
    model = Pipeline([("ratio", Ratio()), ("last", LogisticRegression(max_iter=500))]).fit(frame, y)
    found = shapeline.explain(model, frame[:2], "shapley", background=frame[:9], target=1)
    expected = brute(lambda rows: model.predict_proba(rows)[:, 1], frame[:2], frame[:9])
    np.testing.assert_allclose(found.scores, expected, atol=1e-12)
    numbered = frame.set_axis([0, 7], axis=1)
    found = shapeline.explain(lambda rows: rows[7] / 600, numbered[:2], "shapley", background=numbered[:9], target=1)
    assert found.feature_names == ("0", "7")
    np.testing.assert_allclose(found.scores[:, 1], (numbered[7][:2] - numbered[7][:9].mean()) / 600, atol=1e-12)
    levels = frame.set_axis(pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]), axis=1).set_axis(
        pd.date_range("2024", periods=80)
    )
    dated = shapeline.explain(
        lambda rows: rows["a", 1] / 100 + 0 * rows.index.month, levels[:2], "shapley", background=levels[:9], target=1
    )
    np.testing.assert_allclose(dated.scores[:, 0], (frame["debt"][:2] - frame["debt"][:9].mean()) / 100, atol=1e-12)


def test_none_is_not_nan():
    frame = pd.DataFrame({"a": RNG.random(60), "k": pd.Series(["x", "y", None] * 20, dtype=object)})

    def model(rows):
        return 0.2 + 0.5 * np.array([value is None for value in rows["k"]])

    found = shapeline.explain(model, frame[2:3], "shapley", background=frame[:20])
    np.testing.assert_allclose(found.scores, [[0, 0.5 * 14 / 20]], atol=1e-12)
    fill = make_pipeline(SimpleImputer(missing_values=None, strategy="constant", fill_value="none"), OneHotEncoder())
    pipe = make_pipeline(ColumnTransformer([("k", fill, ["k"])], remainder="passthrough"), LogisticRegression())
    pipe.fit(frame, frame["a"] > 0.5)
    found = shapeline.explain(pipe, frame[2:3], "shapley", background=frame[:20], target=True)
    expected = brute(lambda rows: pipe.predict_proba(rows)[:, 1], frame[2:3], frame[:20])
    np.testing.assert_allclose(found.scores, expected, atol=1e-12)


@pytest.mark.parametrize("labels", [(1, 2), (0, 1), (-1, 1), (1.0, 2.0), (10, 20, 30), (False, True), ("a", "b")])
def test_a_column_label_is_accepted_in_every_argument(labels):
    X = RNG.normal(size=(120, 3))
    y = np.array(labels)[(X[:, 0] * 9).astype(int) % len(labels)]
    model = LogisticRegression().fit(X, y)
    rows, proba = X[:6], model.predict_proba(X[:6])
    for place, label in enumerate(labels):
        for target in (label, [label] * 6, np.array([label] * 6), {label}, str(label).removesuffix(".0")):
            found = shapeline.explain(model, rows, "shapley", background=X[:9], target=target)
            np.testing.assert_allclose(found.value_full, proba[:, place], atol=1e-12)
    said = model.predict(rows)
    for more in ({"target": said}, {"target": "true", "y": said}, {}):
        found = shapeline.explain(model, rows, "shapley", background=X[:9], **more)
        np.testing.assert_allclose(found.value_full, proba.max(axis=1), atol=1e-12)


def test_a_position_is_refused_with_the_label_to_write():
    X = RNG.normal(size=(60, 2))
    for labels, position, told in ((["cat", "dog"], 1, "write target='dog'"), ([5, 6], 0, "write target='5'")):
        model = LogisticRegression().fit(X, np.array(labels)[(X[:, 0] > 0).astype(int)])
        for target in (position, {position}, [position] * 3):
            with pytest.raises(ShapelineError, match=told):
                shapeline.explain(model, X[:3], target=target, background=X[:5])


@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame])
@pytest.mark.parametrize("call", ["explain", "compare"])
def test_a_bad_cell_of_the_background_is_named(container, call):
    X = RNG.normal(size=(40, 2))
    model = LogisticRegression().fit(container(X), X[:, 0] > 0)
    for bad, row in ((np.nan, 4), (np.inf, 7)):
        background = X[:20].copy()
        background[row, 1] = bad
        arguments = [["kernel_shap"]] if call == "compare" else []
        with pytest.raises(ShapelineError, match=rf"row {row} \(from 0\) of the background: Input X contains"):
            getattr(shapeline, call)(model, container(X[:3]), *arguments, background=container(background))
    with pytest.raises(ShapelineError, match=r"row 2 .* of the inputs"):
        shapeline.explain(model, container(np.where([[0], [0], [1]], np.nan, X[:3])), background=container(X[:20]))
    frame = pd.DataFrame(X, columns=["a", "b"])
    named = LogisticRegression().fit(frame, X[:, 0] > 0)
    with pytest.raises(ShapelineError, match="background: the column 'b' holds string values"):
        shapeline.explain(named, frame[:2], background=frame[:9].assign(b="x"))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_cell_that_the_model_lets_pass_is_named_by_its_row(bad):
    """In the background itself, of which 100 rows are sampled, and for networks too, which raise no error."""
    rows = RNG.normal(size=(150, 2)).astype(np.float32)
    network = torch.nn.Linear(2, 2)
    models = ((network, "nan", {}), (lambda rows: rows @ [1.0, 2.0], str(bad), {"value": "prediction"}))
    sampled = references.build({"kind": "background", "rows": 100}, drawn_from(rows), 0).rows
    place = int(np.flatnonzero((rows == sampled[-1]).all(axis=1))[0])
    assert place > 100
    wrong = rows.copy()
    wrong[place, 1] = bad
    for model, said, more in models:
        for call in (shapeline.explain, lambda *args, **more: shapeline.compare(*args, ["occlusion"], **more)):
            with pytest.raises(ShapelineError, match=f"gives {said} for row {place} .from 0. of the background;"):
                call(model, rows[:2], background=wrong, **more)
            with pytest.raises(ShapelineError, match=rf"gives {said} for row 3 \(from 0\) of the inputs"):
                call(model, wrong[place - 3 : place + 1], background=rows, **more)
        with pytest.raises(ShapelineError, match=rf"gives {said} for row 0 \(from 0\) of the reference"):
            shapeline.explain(model, rows[:2], reference=wrong[place], **more)


def drawn_from(rows):
    return SimpleNamespace(inputs=rows, split=np.zeros(len(rows), np.uint8), card={"kind": "table", "input_shape": [2]})


class Weighted:
    """As shap.kmeans gives a background."""

    data, weights = np.zeros((5, 4)), np.ones(5)


def several(rows):
    return np.column_stack([rows[:, 0] > 0, rows[:, 1] > 0]).astype(int)


X = RNG.normal(size=(60, 4))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)


class InferenceSession:
    """As of ONNX Runtime."""

    def __init__(self, kind="tensor(float)"):
        self.kind = kind

    def get_outputs(self):
        return [SimpleNamespace(type=self.kind)]

    def get_inputs(self):
        return [SimpleNamespace(type=self.kind, shape=[None, 1])]


class Hazard:
    """A survival model as of lifelines."""

    def predict_median(self, rows):
        return np.full(len(rows), 2.0)

    predict_partial = predict_median


class Fitter:
    """As lifelines' Cox model: its methods are those of a model inside."""

    def __dir__(self):
        return dir(Hazard())

    def __getattr__(self, name):
        return getattr(Hazard(), name)


class Effect:
    """As of econml."""

    def effect(self, rows):
        return rows[:, 0]


class Labels(BaseEstimator):
    """As XGBoost's classifier of two labels a row, whose margins are no logits of two classes."""

    objective = "binary:logistic"

    def get_booster(self):
        return None

    def predict(self, rows, output_margin=False):
        return np.stack([rows[:, 0], rows[:, 1]], 1)

    def predict_proba(self, rows):
        return 1 / (1 + np.exp(-self.predict(rows)))


Labels.predict_proba.__module__ = "xgboost.sklearn"


class Distribution:
    """As those of ngboost, which have every attribute, None by default."""

    def __getattr__(self, name):
        return None


class Rocket(RegressorMixin, BaseEstimator):
    """As regressors of aeon, which also have fit_predict."""

    def fit_predict(self, rows, numbers):
        return numbers

    def predict(self, rows):
        return rows[:, 0] * rows[:, 1]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (LinearSVC().fit(X, Y), r"CalibratedClassifierCV, or lambda rows: model.decision_function\(rows\)\[:, 0\]"),
        (OneVsOneClassifier(LinearSVC()).fit(X, Y), "a OneVsOneClassifier returns labels"),
        (
            GridSearchCV(LogisticRegression(), {"C": [1, 2]}, refit=False, cv=2).fit(X, Y),
            "a GridSearchCV has refit=False and so no fitted model; give it with refit=True",
        ),
        (lambda rows: Distribution(), r"such as its mean: lambda rows: function\(rows\).mean\(\)"),
        (LogisticRegression().fit(X, Y).predict, "returns labels, not probabilities; give model.predict_proba"),
        (KMeans(2, n_init=1).fit(X), "predicts groups, not probabilities; give lambda rows: model.transform"),
        (KMeans(2, n_init=1).fit(X).predict, "predicts groups, not probabilities"),
        (
            IsolationForest(n_estimators=5).fit(X),
            "predicts groups, not probabilities; give model.decision_function with value='prediction'",
        ),
        (GaussianMixture(2).fit(X).predict, "predicts groups; give model.predict_proba"),
        (KernelDensity().fit(X), "a KernelDensity has no method predict; give model.score_samples with value='pred"),
        (Fitter(), r"a Fitter has no method predict; give another of its methods \(predict_median, predict_partial\)"),
        (Effect(), r"an Effect has no method predict; give another of its methods \(effect\) with value='prediction'"),
        (Labels(), r"or of a model with several labels those of one: lambda rows: model.predict_proba\(rows\)\[:, 0\]"),
        (lambda rows: (rows[:, 0], rows), r"return one of its 2 parts, as lambda rows: function\(rows\)\[0\] does"),
        (lambda rows: np.log([[0.2, 0.8]] * len(rows)), "0 to 1; return numpy.exp of these log-probabilities"),
        (lambda rows: [{}] * len(rows), "not 'dict'.; return an array of numbers$"),
        (SimpleNamespace(n_players=3), r"a game has players and no inputs; call shapeline.shapley_values\(game\)"),
        (
            PCA(2).fit(X),
            r"a PCA gives no predictions; give lambda rows: model.transform\(rows\)\[:, 0\] with value='pred",
        ),
        (
            VotingClassifier([("svc", LinearSVC()), ("lr", LogisticRegression())]).fit(X, Y),
            "returns labels, not probabilities; give the model with voting='soft'",
        ),
        (
            OneVsRestClassifier(LogisticRegression()).fit(X, several(X)),
            r"those of one: lambda rows: model.predict_proba\(rows\)\[:, 0\]",
        ),
        (RandomForestClassifier(2).fit(X, ["yes"] * 60), "has one class, 'yes', so that there is nothing to explain"),
        (RandomForestClassifier(2).fit(X, several(X)), r"2 labels a row; give one of them, as lambda rows: model"),
        (MultiOutputClassifier(LogisticRegression()).fit(X, np.c_[Y, Y > 0]), "gives 2 labels a row"),
        (ClassifierChain(LogisticRegression()).fit(X, np.c_[Y > 0, Y > 1]), r"\(of a ClassifierChain \[:, 0\]\)"),
        (LinearRegression().fit(X, X[:, :2]), r"one output at a time, as by lambda rows: model.predict\(rows\)\["),
        (Hazard(), r"a Hazard has no method predict; give another of its methods \(predict_median, predict_partial\)"),
        (InferenceSession(), r"lambda rows: model.run\(None, \{model.get_inputs\(\)\[0\].name: rows"),
        (InferenceSession("tensor(string)"), r"name: numpy.array\(rows, object\)\[:, None\]\}\)\[-1\]"),
        (
            InferenceSession("seq(map(int64,tensor(float)))"),
            r"lambda rows: pandas.DataFrame\(model.run\(None, .*to_numpy",
        ),
        (
            Hazard().predict_median,
            r"gave values from 2 to 2, and probabilities are from 0 to 1; for other numbers give",
        ),
    ],
)
def test_a_refusal_names_what_works(model, told):
    with pytest.raises(ShapelineError, match=told):
        shapeline.explain(model, X[:3], background=X[:9])


def test_what_refusals_name_works():
    vectors, forest = LinearSVC().fit(X, Y), RandomForestClassifier(2).fit(X, several(X))
    chain = ClassifierChain(LogisticRegression()).fit(X, np.c_[Y > 0, Y > 1])
    for model, value in (
        (lambda rows: vectors.decision_function(rows)[:, 0], "prediction"),
        (IsolationForest(n_estimators=5).fit(X).decision_function, "prediction"),
        (LinearRegression().fit(X, 9.0 * Y).predict, None),
        (Rocket(), None),
        (lambda rows: forest.predict_proba(rows)[0], None),
        (lambda rows: chain.predict_proba(rows)[:, 0], None),
    ):
        found = shapeline.explain(model, X[:3], "shapley", background=X[:9], value=value)
        np.testing.assert_allclose(found.scores.sum(1), found.value_full - found.base_values, atol=1e-12)
    with pytest.raises(ShapelineError, match=r"weighted rows, and all rows have equal weight here; give shap.sample"):
        shapeline.explain(LogisticRegression().fit(X, Y), X[:3], background=Weighted())
    from scipy.sparse import csr_array, dok_array

    # An array of the package sparse has no toarray.
    for rows, dense in (
        (csr_array(X[:3]), "toarray"),
        (dok_array(X[:3]), "toarray"),
        (SimpleNamespace(todense=None), "todense"),
    ):
        with pytest.raises(ShapelineError, match=rf"is sparse; give inputs.{dense}\(\)"):
            shapeline.explain(LogisticRegression().fit(X, Y), rows, background=X[:9])


class PyFuncModel:
    """MLflow's own model, whose predict gives what that of the model inside gives: labels of a classifier."""

    def __init__(self, inner):
        self.inner = inner

    def predict(self, rows):
        return self.inner.predict(rows)

    def get_raw_model(self):
        if isinstance(self.inner, Custom):
            raise NotImplementedError("`get_raw_model` is not implemented by the underlying model")
        return self.inner


class Custom:
    def predict(self, rows):
        return np.column_stack([np.full(len(rows), 0.25), np.full(len(rows), 0.75)])


@pytest.mark.parametrize("inner", [LogisticRegression().fit(X, Y), LinearRegression().fit(X, Y), Custom()])
def test_a_model_of_mlflow_is_explained_as_the_one_inside(inner):
    if isinstance(inner, Custom):  # a custom one, whose predictions have no known meaning
        with pytest.raises(ShapelineError, match=r"probabilities, give model\.predict without value='prediction'"):
            shapeline.explain(PyFuncModel(inner), X[:2], background=X[:9])
        assert shapeline.explain(PyFuncModel(inner).predict, X[:2], background=X[:9]).value_full.tolist() == [0.75] * 2
        return
    found, expected = (shapeline.explain(model, X[:2], background=X[:9]) for model in (PyFuncModel(inner), inner))
    assert found.target_names == expected.target_names and (found.scores == expected.scores).all()


class CatBoost:
    """CatBoost's base class, whose predictions are margins; the real one is used where it is installed."""

    __module__, classes_ = "catboost.core", np.array([0, 1])

    def predict(self, rows, prediction_type="RawFormulaVal"):
        margins = np.asarray(rows) @ [3.0, -2.0, 0.0, 0.5]
        of_one = 1 / (1 + np.exp(-margins))
        return np.column_stack([1 - of_one, of_one]) if prediction_type == "Probability" else margins


def test_a_base_catboost_names_its_classifier():
    models = [CatBoost()]
    if importlib.util.find_spec("catboost"):
        import catboost

        settings = {"iterations": 4, "loss_function": "Logloss", "verbose": 0, "allow_writing_files": False}
        models.append(catboost.CatBoost(settings).fit(X, Y > 0))
    frames = pd.DataFrame(X[:2]), pd.DataFrame(X[:9])
    for model in models:
        with pytest.raises(ShapelineError, match=r"CatBoostClassifier, or lambda rows: model\.predict") as told:
            shapeline.explain(model, X[:2], background=X[:9])
        function = eval(str(told.value).rpartition("or ")[2], {"model": model})
        found = shapeline.explain(function, X[:2], "shapley", background=X[:9], target=1)
        expected = brute(lambda rows, own=function: own(rows.to_numpy())[:, 1], *frames)
        np.testing.assert_allclose(found.scores, expected, atol=1e-12)


class Booster:
    """LightGBM's own model, of one or three groups of trees."""

    def __init__(self, objective, groups):
        self.objective, self.groups = objective, groups

    def num_model_per_iteration(self):
        return self.groups

    def dump_model(self, num_iteration):
        return {"objective": self.objective}

    def feature_name(self):
        return ["a", "b"]

    def predict(self, rows):
        parts = np.exp(np.column_stack([rows, np.zeros(len(rows))]))  # by position, as it does
        return parts / parts.sum(axis=1, keepdims=True) if self.groups > 1 else 1 / (1 + parts[:, 1])


@pytest.mark.parametrize("objective", ["multiclass num_class:3", "binary sigmoid:1", "cross_entropy", "regression"])
def test_the_objective_of_a_booster_decides_what_it_gives(objective):
    booster = Booster(objective, 3 if "multi" in objective else 1)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    last = {} if objective == "regression" else {"target": booster.groups - 1 or 1}
    expected = brute(lambda rows: np.c_[booster.predict(rows)][:, -1], frame[:2], frame[:9])
    for model, more in ((booster.predict, last or {"value": "prediction"}), (booster, last)):
        found = shapeline.explain(model, frame[["b", "a"]][:2], "shapley", background=frame[:9], **more)
        np.testing.assert_allclose(found.scores, expected, atol=1e-12)
    assert set(found.target_names) == ({"2"} if "multi" in objective else {"1"} if last else {"prediction"})


def test_the_full_coalition_is_the_models_own_answer():
    def of_batch(rows):  # whose answer hangs on the rows beside
        return 0.5 + 0.1 * (rows[:, 0] - rows[:, 0].mean())

    with pytest.raises(
        ShapelineError, match=r"gives [\d.]+ for row 0 .* of the inputs among all 3, and [\d.]+ among 2"
    ):
        shapeline.explain(of_batch, RNG.random((3, 2)), "shapley", background=RNG.random((5, 2)))
    with pytest.raises(ShapelineError, match=r"instance 0: it says [\d.]+ of the input and [\d.]+ of the same cells"):
        shapeline.explain(of_batch, RNG.random((1, 2)), "shapley", reference=np.zeros(2))
    # Divided by the largest cell, which all batches with the inputs share.
    inputs, background = np.array([[3.0, 1.0]]), RNG.random((5, 2)) * [[1], [1], [1], [1], [2]]
    with pytest.raises(ShapelineError, match=r"row 0 .* of the reference among all 5, and .* among 3; give a model"):
        shapeline.explain(lambda rows: rows[:, 0] / (1 + rows.max()), inputs, "shapley", background=background)


@pytest.mark.parametrize("categories", [["x", "y", "z"], ["z", "y", "x"], ["y", "z"]])
def test_categories_of_a_background_in_another_order(categories):
    """A model of their codes is refused; of one of their names the scores are as before. Types have no order."""
    kinds = pd.Categorical(["x", "y", "z"] * 8, categories=["x", "y", "z"])
    frame = pd.DataFrame({"a": RNG.random(24), "k": kinds})
    rows, background = frame[1:4], frame[frame["k"] != "x"][:6] if len(categories) == 2 else frame[9:15]
    other = background.assign(k=background["k"].cat.set_categories(categories))

    def named(table):
        return table["a"] * (1 + (table["k"] == "y")) + 2.0 * (table["k"] == "z")

    def coded(table):
        return table["a"] + table["k"].cat.codes

    found = shapeline.explain(named, rows, "shapley", background=other, value="prediction")
    np.testing.assert_allclose(found.scores, brute(named, rows, background), atol=1e-12)
    if categories == ["x", "y", "z"]:
        found = shapeline.explain(coded, rows, "shapley", background=other, value="prediction")
        np.testing.assert_allclose(found.scores, brute(coded, rows, background), atol=1e-12)
        return
    with pytest.raises(ShapelineError, match=r"background: model 'coded' gives .* with the inputs' type of column 'k'"):
        shapeline.explain(coded, rows, "shapley", background=other, value="prediction")


def test_categories_of_three_tables_are_joined():
    frames = [pd.DataFrame({"k": pd.Categorical(cells), "a": 1.0}) for cells in (["x"], ["x", "y"], ["w"])]
    found = shapeline.explain(
        lambda rows: (rows["k"].cat.codes >= 0) * (1.0 + (rows["k"] == "w")),
        frames[0],
        "shapley",
        background=frames[1],
        reference=frames[2],
        value="prediction",
    )
    np.testing.assert_allclose(found.scores, [[-1, 0]], atol=1e-12)


# ------------------------------------------------------------------------------------------------- from the workflow

WRITTEN = {
    "whole numbers": KINDS["whole numbers"],
    "epoch seconds": KINDS["epoch seconds"],
    "coordinates": KINDS["coordinates"],
    "missing": KINDS["missing"],
    "truth": KINDS["truth"],
    "texts": pd.array([" padded ", "b", "c"] * 8, dtype="str"),
}
TYPED = {
    name: values
    for name, values in KINDS.items()
    if name not in ("true and one", "two kinds of missing", "intervals", "decimals")  # which are read as numbers
}


@pytest.fixture
def prepared(tmp_path):
    """prepare(frame, entry) -> the dataset of a file that holds the frame, with a target."""

    def prepare(frame: pd.DataFrame, suffix: str, **entry) -> loading.Dataset:
        file = tmp_path / f"own.{suffix}"
        whole = frame.assign(y=np.arange(len(frame)) % 2)
        whole.to_csv(file, index=False) if suffix == "csv" else whole.to_parquet(file)
        settings = {"source": "table_file", "path": str(file), "target": "y", **entry}
        preparation.prepare("table_file", settings, [], tmp_path / "data")
        return loading.load(tmp_path / "data")

    return prepare


def subject_of(data: loading.Dataset, tmp_path, text: str) -> tuple:
    (tmp_path / "model.py").write_text(text)
    model = architectures.for_dataset({"source": f"{tmp_path / 'model.py'}:model", "framework": "function"}, data.card)
    return storage.fit_rows(model, data)


@pytest.mark.parametrize(("suffix", "columns"), [("csv", WRITTEN), ("parquet", TYPED)])
def test_a_prepared_table_keeps_the_types_of_its_file(prepared, tmp_path, suffix, columns):
    frame = pd.DataFrame({"amount": AMOUNT, **columns})
    data = prepared(frame, suffix)
    read = pd.read_csv(tmp_path / "own.csv") if suffix == "csv" else pd.read_parquet(tmp_path / "own.parquet")
    kept, cells = data.own_rows
    composed, expected = kept.compose(cells), read.drop(columns="y")
    assert (composed.dtypes == expected.dtypes).all()
    if suffix == "csv":
        same_cells(composed, expected)
    model, own = subject_of(data, tmp_path, "def model(rows):\n    return 0.1 + 0.5 * rows['amount']\n")
    reference = references.build({"kind": "background", "rows": 5}, own, 0)
    columns = features.build("column", own.card)
    found = shortcuts.attribute(
        *(
            model,
            own.inputs[:2],
            np.ones(2, int),
            {"method": "shapley"} if len(frame.T) < 9 else {"method": "occlusion"},
        ),
        *(columns, reference, "probability"),
    )[0]
    np.testing.assert_allclose(found.value_full, 0.1 + 0.5 * AMOUNT[:2], atol=0)
    absent = AMOUNT[[int(np.abs(AMOUNT - row[0]).argmin()) for row in reference.rows]].mean()
    np.testing.assert_allclose(found.scores[:, 0], 0.5 * (AMOUNT[:2] - absent), atol=1e-12)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_scores_of_the_workflow_are_those_of_the_users_own_rows(prepared, tmp_path, suffix):
    frame = pd.DataFrame(
        {"store": RNG.integers(1, 6, N), "seconds": 1_700_000_000 + RNG.integers(0, 600, N), "amount": AMOUNT}
    )
    data = prepared(frame, suffix)
    text = (
        "def model(rows):\n"
        "    store = rows['store'].astype(str).map({'1': 0.1, '2': 0.4, '3': 0.0, '4': 0.3, '5': 0.2}).to_numpy()\n"
        "    return store + 0.3 * (rows['seconds'] % 60 < 30) * rows['amount']\n"
    )
    model, own = subject_of(data, tmp_path, text)
    reference = references.build({"kind": "background", "rows": 6}, own, 0)
    background = model.module.take(reference.rows)
    assert background.dtypes.tolist() == frame.dtypes.tolist()
    found = shortcuts.attribute(
        *(model, own.inputs[:3], np.ones(3, int), {"method": "shapley"}, features.build("column", own.card)),
        *(reference, "probability"),
    )[0]
    space: dict = {}
    exec(text, space)
    np.testing.assert_allclose(found.scores, brute(space["model"], frame[:3], background), atol=1e-12)
    assert np.abs(found.scores[:, :2]).max() > 0.01
    model, moved = calibration.fit_reference(model, own.inputs, references.build("mean", own, 0))
    assert set(model.module.take(moved.rows)["store"]) <= {1, 2, 3, 4, 5}  # rounded: to this model it is a code


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float32"])
def test_an_array_of_a_dataset_function_keeps_its_type(dtype, tmp_path):
    rows = (RNG.integers(0, 2, (N, 3)) if dtype == "bool" else RNG.integers(0, 5, (N, 3))).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    source = f"import numpy as np\ndef read():\n    rows = np.load({str(tmp_path / 'rows.npy')!r})\n"
    (tmp_path / "data.py").write_text(source + "    return {'inputs': rows, 'labels': np.arange(len(rows)) % 2}\n")
    preparation.prepare(f"{tmp_path / 'data.py'}:read", {}, [], tmp_path / "data")
    text = (
        "import numpy as np\nweights = np.array([0.1, 0.9, 0.3, 0.6, 0.5])\n"
        f"def model(rows):\n    assert rows.dtype == {dtype!r}\n"
        "    words = np.char.mod('%s', rows)\n    places = rows.astype(int)\n"
        "    return weights[places[:, 0]] * weights[places[:, 1]] * (np.char.str_len(words[:, 2]) == 1)\n"
    )
    model, own = subject_of(loading.load(tmp_path / "data"), tmp_path, text)
    reference = references.build({"kind": "background", "rows": 6}, own, 0)
    found = shortcuts.attribute(
        *(model, own.inputs[:3], np.ones(3, int), {"method": "shapley"}, features.build("column", own.card)),
        *(reference, "probability"),
    )[0]
    space: dict = {}
    exec(text, space)
    background = pd.DataFrame(model.module.take(reference.rows))
    expected = brute(lambda frame: space["model"](frame.to_numpy()), pd.DataFrame(rows[:3]), background)
    np.testing.assert_allclose(found.scores, expected, atol=1e-12)


@pytest.mark.parametrize("axes", ["as given", "with channels"])
def test_a_function_receives_series_as_the_dataset_function_returns_them(axes, tmp_path):
    """(n, time, channels), of which the engine makes one channel; a function of images with channels gets these."""
    (tmp_path / "data.py").write_text(
        "import numpy as np\ndef read():\n    rows = np.random.default_rng(0).random((24, 3, 2), dtype=np.float32)\n"
        "    return {'inputs': rows, 'labels': np.arange(24) % 2}\n"
    )
    preparation.prepare(f"{tmp_path / 'data.py'}:read", {}, [], tmp_path / "data")
    data = loading.load(tmp_path / "data")
    last = "rows[:, -1]" if axes == "as given" else "rows[:, 0, -1].reshape(len(rows), 2)"
    text = f"def model(rows):\n    last = {last}\n    return last[:, 0] * rows.reshape(len(rows), -1)[:, 1]\n"
    model, own = subject_of(data, tmp_path, text)
    assert storage.load(_saved(model, tmp_path)).module.order == model.module.order
    reference = references.build({"kind": "background", "rows": 4}, own, 0)
    found = shortcuts.attribute(
        *(model, own.inputs[:2], np.ones(2, int), {"method": "shapley"}, features.build("pixel", own.card)),
        *(reference, "probability"),
    )[0]
    flat = [pd.DataFrame(np.asarray(each).reshape(len(each), 6)) for each in (own.inputs[:2], reference.rows)]
    expected = brute(lambda frame: frame[4] * frame[1], *flat)
    np.testing.assert_allclose(found.scores.reshape(2, 6), expected, atol=1e-7)
    assert np.abs(expected).max() > 0.01


def _saved(model, tmp_path):
    storage.save(model, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_a_function_of_other_rows_is_refused_before_its_scores(prepared, tmp_path):
    data = prepared(pd.DataFrame({"a": np.arange(24.0), "b": np.arange(24) % 3}), "csv")
    for text in ("rows['a'] / rows['a'].max() * 0.9", "rows['a'] * 0 + 1 / len(rows)"):
        model, own = subject_of(data, tmp_path, f"def model(rows):\n    return {text}\n")
        with pytest.raises(
            ShapelineError, match=r"gives .* for row \d .* of the dataset among all 24, and .* among 4;"
        ):
            architectures.measure_card(model, own)
    model, own = subject_of(data, tmp_path, "def model(rows):\n    return rows['a'] / 24\n")
    assert "test_accuracy" in architectures.measure_card(model, own)


@pytest.mark.parametrize("whole", ["int64", "int8", "Int64", "object"])
def test_a_mean_of_integers_is_exact_for_a_numeric_model(prepared, tmp_path, whole):
    frame = pd.DataFrame({"rooms": pd.Series([1, 2, 4, 4, 5, 3] * 4, dtype=whole), "amount": AMOUNT})

    def model(rows):
        return rows["rooms"].astype(float) / 10 + 0.3 * rows["amount"]

    found = shapeline.explain(model, frame[:5], "shapley", target=1)
    np.testing.assert_allclose(found.base_values, model(frame[:5].astype(float).mean().to_frame().T)[0], atol=1e-12)
    np.testing.assert_allclose(found.value_full, model(frame[:5]), atol=1e-12)
    assert found.about.reference == "the mean of the inputs"

    def coded(rows):
        if str(rows["rooms"].dtype) != whole:
            raise TypeError("no code")
        return rows["rooms"].map({1: 0.1, 2: 0.9, 3: 0.3, 4: 0.6, 5: 0.5}).astype(float)

    coded = shapeline.explain(coded, frame[:5], "shapley", target=1)
    assert coded.base_values[0] == pytest.approx(0.3)  # of 3, which 3.2 is near
    assert coded.about.reference == "the mean of the inputs, whole numbers rounded"


def test_networks_and_points_take_numbers(prepared):
    data = prepared(pd.DataFrame({"seconds": 1_700_000_000 + np.arange(N), "amount": AMOUNT}), "csv")
    assert data.inputs.dtype == np.float64 and (data.inputs[:, 0] % 60).max() > 20  # of influence, no digit is lost
    assert data.as_numbers().inputs.dtype == np.float32


def test_a_damaged_table_is_named(prepared, tmp_path):
    data = prepared(pd.DataFrame({"amount": AMOUNT}), "csv")
    (tmp_path / "data" / "table.parquet").write_bytes(b"none")
    with pytest.raises(ShapelineError, match=r"damaged .*table\.parquet.*; delete the folder and run again"):
        data.own_rows  # noqa: B018


def test_a_mapping_of_columns_groups_them():
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    settings = {"left": ["c", "a"], "right": ["b"]}

    def model(rows):
        return rows["a"] * rows["b"] + rows["c"]

    found = shapeline.explain(model, frame[:1], features=settings, background=frame[1:4], value="prediction")
    base, given = frame[1:4].reset_index(drop=True), frame.iloc[0]
    left = (given["a"] * base["b"] + given["c"]).mean()
    right = (base["a"] * given["b"] + base["c"]).mean()
    none, all_of_it = model(base).mean(), model(frame[:1]).iloc[0]
    expected = [(left - none + all_of_it - right) / 2, (right - none + all_of_it - left) / 2]
    np.testing.assert_allclose(found.scores[0], expected, atol=1e-12)
    assert found.feature_names == ("left", "right")


def test_errors_of_a_model_are_one_line():
    frame = pd.DataFrame({"a": AMOUNT, "b": AMOUNT[::-1]})

    def picky(rows):
        if len(rows) > 3:  # rows that are masked
            raise ZeroDivisionError("of these rows")
        return 0.5 * rows["a"]

    with pytest.raises(ShapelineError, match="model 'picky' fails on 12 rows: of these rows"):
        shapeline.explain(picky, frame[:1], "shapley", background=frame[:3])

    def small(rows):
        assert len(rows) <= 3
        return rows.mean(axis=1)

    words = "model 'small' fails on {0} rows: .*, and works on {1} of them; evaluate at most {1} rows at a"
    for n, place in ((3, (12, 3)), (5, (5, 3))):  # the masked rows, and the background
        with pytest.raises(ShapelineError, match=words.format(*place)):
            shapeline.explain(small, frame.to_numpy()[:1], "shapley", background=frame.to_numpy()[:n])

    def busy(rows):
        if len(rows) > 3:
            raise TimeoutError("the server is busy")
        return 0.5 * rows["a"]

    with pytest.raises(ShapelineError, match=r"the server is busy; repeat failed calls within the model"):
        shapeline.explain(busy, frame[:1], "shapley", background=frame[:3])

    class Picky(torch.nn.Linear):
        def forward(self, rows):
            assert len(rows) <= 3, "of these rows"
            return super().forward(rows)

    with pytest.raises(ShapelineError, match=r"model 'Picky' fails on .* rows: of these rows; give a model that takes"):
        shapeline.explain(Picky(2, 2), frame[:1], "shapley", background=frame[:3])
    words = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    with pytest.raises(ShapelineError, match="for token ids give features='word'"):
        shapeline.explain(words, np.array([[1, 2], [3, 4]]), background=np.array([[1, 1]]))
    with pytest.raises(ShapelineError, match=r"inputs of shape .* there is no 'c'"):
        shapeline.explain(lambda rows: rows["c"], frame[:1], background=frame[:3])
    with pytest.raises(ShapelineError, match="background: there are no rows; give one or more"):
        shapeline.explain(lambda rows: rows["a"], frame[:1], background=frame[:0])


def test_texts_of_an_array_are_not_cut_to_the_longest_of_the_inputs():
    inputs, background = np.array([["a", "bbb"], ["cc", "d"]]), np.array([["a longer word", "x"], ["y", "zzzzzz"]])

    def model(rows):
        return np.char.str_len(rows.astype(str)) @ [0.01, 0.02]

    for rows in (background, background.tolist()):
        found = shapeline.explain(model, inputs, "shapley", background=rows, target=1)
        expected = brute(lambda table: model(table.to_numpy(str)), pd.DataFrame(inputs), pd.DataFrame(background))
        np.testing.assert_allclose(found.scores, expected, atol=1e-12)
        np.testing.assert_allclose(found.base_values, model(background).mean())
    days = np.array([["2024-01-01"], ["2024-01-02"]], "datetime64[D]")
    hours = np.array([["2024-01-01T06"]], "datetime64[h]")
    found = shapeline.explain(
        lambda rows: (rows[:, 0] - days[0, 0]) / np.timedelta64(10, "D"), days, "shapley", background=hours, target=1
    )
    np.testing.assert_allclose(found.base_values, 0.025)


def test_integers_of_an_array_stay_integers_beside_their_mean():
    rows, table_of = RNG.integers(0, 5, (6, 2)), np.array([0.1, 0.5, 0.2, 0.9, 0.4])
    found = shapeline.explain(lambda rows: table_of[rows[:, 0]] * table_of[rows[:, 1]], rows, "shapley", target=1)
    first, second = np.rint(rows.mean(axis=0)).astype(int)
    assert found.base_values[0] == pytest.approx(table_of[first] * table_of[second])
    assert found.about.reference == "the mean of the inputs, whole numbers rounded"
    whole = rows.astype(np.uint8)
    found = shapeline.explain(lambda rows: rows @ np.array([0.05, 0.1]), whole, "shapley", target=1)
    np.testing.assert_allclose(found.base_values, rows.mean(axis=0) @ [0.05, 0.1], rtol=1e-12)  # a model of numbers
    np.testing.assert_allclose(found.scores, (rows - rows.mean(axis=0)) * [0.05, 0.1], atol=1e-12)
    objects = rows.astype(object)  # Python's whole numbers were rounded without a word
    found = shapeline.explain(lambda rows: (rows @ [0.05, 0.1]).astype(float), objects, "shapley", target=1)
    np.testing.assert_allclose(found.base_values, rows.mean(axis=0) @ [0.05, 0.1], rtol=1e-12)
    found = shapeline.explain(lambda rows: table_of[[*rows[:, 0]]], objects, "shapley", target=1)
    assert found.base_values[0] == pytest.approx(table_of[first])
    assert found.about.reference == "the mean of the inputs, whole numbers rounded"
    large = 2**60 + RNG.integers(0, 9, (6, 2))
    for reference in ({"background": large}, {}):
        found = shapeline.explain(lambda rows: rows[:, 0] % 4 / 4, large, "shapley", target=1, **reference)
        np.testing.assert_allclose(found.value_full, large[:, 0] % 4 / 4)
    with pytest.raises(ShapelineError, match="int64 change beside a reference of float64; give rows of one type"):
        shapeline.explain(lambda rows: rows[:, 0] % 4 / 4, large, "shapley", background=large + 0.5, target=1)


def test_columns_of_lists_of_arrow():
    arrow = pytest.importorskip("pyarrow")
    lists = pd.array([[1, 2], [3], [], [4, 5, 6]] * 2, dtype=pd.ArrowDtype(arrow.list_(arrow.int64())))
    frame = pd.DataFrame({"list": lists, "amount": AMOUNT[:8]})

    def model(rows):
        assert rows["list"].dtype == frame["list"].dtype
        return rows["amount"] * [0.1 * len(each) for each in rows["list"]]

    found = shapeline.explain(model, frame[:3], "shapley", background=frame[3:], target=1)
    np.testing.assert_allclose(found.scores, brute(model, frame[:3], frame[3:]), atol=1e-12)


class NoArray:
    """An object that numpy cannot convert, as a Dataset of xarray is."""

    def __array__(self, *_, **__):
        raise TypeError("convert one variable")


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        (np.ma.masked_array(np.ones((3, 2)), mask=[[0, 1], [0, 0], [0, 0]]), r"lose its mask; give inputs.filled"),
        ({3, 1, 2}, "a set has no order; give a list, an array or a data frame of rows"),
        (object(), "inputs: an object is no rows; give an array or a data frame of them"),
        (SimpleNamespace(data=np.ones((2, 2))), "is no rows; give an array or a data frame of them, as inputs.data"),
        (None, "it is None; give a list, an array or a data frame of rows"),
        (NoArray(), "inputs: convert one variable; give rows of one shape, texts, or a data frame"),
        ({"a": [1, 2], "b": [3, 4]}, r"a dict with named columns is not a data frame; give pandas.DataFrame\(inputs\)"),
    ],
)
def test_containers_that_would_lose_something(inputs, line):
    with pytest.raises(
        ShapelineError, match=r"background: a str is no rows; .* or reference='mean' for a baseline by its"
    ):
        shapeline.explain(lambda rows: rows[:, 0], np.ones((2, 2)), background="mean")
    for model in (lambda rows: np.ones(len(rows)), torch.nn.Linear(2, 2)):
        with pytest.raises(ShapelineError, match=line):
            shapeline.explain(model, inputs, "shapley")


class Rows:
    """As a data set of Hugging Face."""

    column_names, to_pandas = property(), None


def test_a_table_of_arrow_names_its_frame():
    for rows, told in ((pyarrow.table({"a": [1, 2]}), "a Table of pyarrow"), (Rows(), "a Rows of tests")):
        with pytest.raises(ShapelineError, match=rf"{told} is not a pandas data frame; give inputs.to_pandas\(\)"):
            shapeline.explain(lambda rows: np.ones(len(rows)), rows, "shapley")


def test_missing_cells_of_nullable_columns_in_trees_and_in_print():
    frame = pd.DataFrame({"count": pd.array([1, 2, None] * 20, "Int64"), "amount": RNG.random(60)})
    model = HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=2)
    model.fit(frame, frame["count"].isna() ^ (frame["amount"] > 0.5))
    found = shapeline.explain(model, frame[:3], "tree_shap", background=frame[5:12], target=True, value="margin")
    expected = brute(model.decision_function, frame[:3], frame[5:12])
    np.testing.assert_allclose(found.scores, expected, atol=1e-9)
    assert "count = missing" in str(found[2])
    lists = frame.assign(count=[[1, 2]] * 60)
    assert "count = [1, 2]" in str(
        shapeline.explain(lambda rows: rows["amount"], lists[:1], background=lists, target=1)
    )


class Named:
    """As of AutoGluon: a model without classes_, which gives probabilities as a data frame."""

    def __init__(self, inner):
        self.inner = inner

    def predict_proba(self, rows):
        return pd.DataFrame(self.inner.predict_proba(rows), columns=[1, 2])


def test_classes_of_one_name_are_refused_and_truth_is_a_class():
    frame = pd.DataFrame({"a": RNG.random(40), "b": RNG.random(40)})
    model = LogisticRegression().fit(frame, (frame["a"] > 0.5).astype(int))
    told = {"background": frame[:9], "method": "shapley"}
    np.testing.assert_allclose(
        shapeline.explain(model, frame[:2], target=True, **told).value_full, model.predict_proba(frame[:2])[:, 1]
    )
    with pytest.raises(ShapelineError, match="class_names: two classes are called 'one'; give each a name of its own"):
        shapeline.explain(model, frame[:2], class_names=["one", "one"], **told)
    for named in (Named(model), Named(model).predict_proba):
        found = shapeline.explain(named, frame[:2], target=1, **told)
        np.testing.assert_allclose(found.value_full, model.predict_proba(frame[:2])[:, 0])
    model.classes_ = np.array(["1", 1], object)
    with pytest.raises(ShapelineError, match="classes_: two classes are called '1'"):
        shapeline.explain(model, frame[:2], target=1, **told)


def test_booleans_and_half_precision_are_numbers_for_networks():
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(2, 2)
    frame = pd.DataFrame({"count": pd.array([1, 2, 3, 4], "Int64"), "truth": [True, False, True, True]})

    def value(rows):
        numbers = torch.tensor(rows.to_numpy(np.float32))
        return network(numbers).softmax(1)[:, 1].detach().numpy().astype(float)

    found = shapeline.explain(network, frame[:2], "shapley", background=frame[2:], target=1, value="probability")
    np.testing.assert_allclose(found.scores, brute(value, frame[:2], frame[2:]), atol=1e-6)
    rows = torch.randn(4, 2).bfloat16()
    found = shapeline.explain(network, rows, "shapley", target=1, value="probability")
    np.testing.assert_allclose(found.value_full, value(pd.DataFrame(rows.float().numpy())), atol=1e-6)


@pytest.mark.parametrize(
    "index",
    [pd.date_range("2024", periods=N), pd.interval_range(0, N), [*"abc", *range(N - 3)]],
    ids=["dates", "intervals", "mixed"],
)
def test_every_kind_of_column_and_of_label_is_saved(index, tmp_path):
    odd = {"complex": np.arange(N) * 1j, "sparse": pd.arrays.SparseArray(np.arange(N) % 2)}
    odd |= {"arrow's days": pd.array(KINDS["dates"], pd.ArrowDtype(pyarrow.date32()))}
    odd |= {"arrow's lists": pd.array(list(KINDS["lists"]), pd.ArrowDtype(pyarrow.list_(pyarrow.int64())))}
    frame = pd.DataFrame({"amount": AMOUNT, **KINDS, **odd}).set_axis(pd.Index(index))
    frame.columns = pd.CategoricalIndex(frame)
    found = shapeline.explain(lambda rows: rows["amount"], frame[:3], "occlusion", background=frame[3:5], target=1)
    found.save(tmp_path / "saved.parquet")
    loaded = shapeline.Explanation.load(tmp_path / "saved.parquet")
    np.testing.assert_allclose(loaded.scores, found.scores, rtol=1e-6)
    np.testing.assert_array_equal(loaded.data["sparse"], frame["sparse"][:3])
    assert "amount = " in str(loaded[2]) and "complex = 1j" in str(loaded[1, ["amount", "complex"]])
    for name in ("lists", "arrow's days", "arrow's lists"):
        (axes,) = found.plot("dependence", feature=name).axes
        assert len(axes.collections[0].get_offsets()) == 3, name


class Placed(pd.DataFrame):
    """A data frame of a class of its own, as geopandas has it."""

    _metadata = ("unit",)

    @property
    def _constructor(self):
        return Placed


def test_a_subclass_of_data_frames_stays_one():
    frame = Placed({"a": RNG.random(8), "b": RNG.integers(0, 9, 8), "c": list("abcdabcd")})
    frame.unit, frame.attrs["factor"] = 0.5, 0.1

    def model(rows):
        assert type(rows) is Placed
        return rows["a"] * rows["b"] * rows.unit * rows.attrs["factor"]

    for background in (frame[2:], pd.DataFrame(frame[2:])):
        found = shapeline.explain(model, frame[:2], "shapley", background=background, target=1)
        expected = brute(lambda rows: rows["a"] * rows["b"] * 0.05, pd.DataFrame(frame[:2]), pd.DataFrame(frame[2:]))
        np.testing.assert_allclose(found.scores, expected, atol=1e-12)


class Renaming(BaseEstimator):
    """A classifier that is fitted on frames and stores their names with _ for a space, as LightGBM does."""

    def fit(self, rows, labels):
        self.fitted_names, self.classes_ = list(rows.columns), np.unique(labels)
        self.feature_names_in_ = np.array([str(name).replace(" ", "_") for name in rows.columns])
        return self

    def predict_proba(self, rows):
        assert list(rows.columns) == self.fitted_names
        of_one = np.asarray(rows.iloc[:, 0] * rows.iloc[:, 1])
        return np.column_stack([1 - of_one, of_one])


class Results:
    """Results of statsmodels, which take the columns of a frame by position."""

    def __init__(self, rows, **formula):
        self.model = SimpleNamespace(data=SimpleNamespace(orig_exog=rows), **formula)

    def predict(self, rows):
        return np.prod(rows.to_numpy()[:, :2], axis=1)


def test_a_model_that_stores_other_names_receives_its_columns():
    frame = pd.DataFrame({"mean radius": RNG.random(9), "worst area": RNG.random(9), "other_name": RNG.random(9)})
    model = Renaming().fit(frame, [0, 1] * 4 + [0])
    shuffled = frame[["other_name", "worst area", "mean radius"]].assign(more="x")
    expected = brute(lambda rows: rows["mean radius"] * rows["worst area"], frame[:2], frame[2:])
    for rows in (frame, shuffled):
        found = shapeline.explain(model, rows[:2], "shapley", background=rows[2:], target=1)
        assert list(found.data) == list(frame)
        np.testing.assert_allclose(found.scores, expected, atol=1e-12)
        found = shapeline.explain(Results(frame), rows[:2], "shapley", background=rows[2:])
        np.testing.assert_allclose(found.scores, expected, atol=1e-12)
    assert find_columns(Results(frame, formula="y ~ age")) is None  # of the design matrix


class Sampler(BaseEstimator):
    """A step for training only, which a pipeline of imbalanced-learn skips in predictions."""

    def fit_resample(self, rows, labels):
        return rows, labels


class Margins(BaseEstimator):
    """A classifier of XGBoost's interface: margins in single precision."""

    objective, classes_ = "binary:logistic", np.array([0, 1])

    def get_booster(self):
        return None

    def fit(self, rows, labels):
        return self

    def predict(self, rows, output_margin=False):
        margins = (np.asarray(rows) @ [3.0, -2.0]).astype(np.float32)
        return margins if output_margin else (margins > 0).astype(int)

    def predict_proba(self, rows):
        of_one = 1 / (1 + np.exp(-self.predict(rows, True)))
        return np.column_stack([1 - of_one, of_one])


class Squared(Margins):
    """A user's subclass, whose probabilities are not those of its margins."""

    def predict_proba(self, rows):
        of_one = super().predict_proba(rows)[:, 1] ** 2
        return np.column_stack([1 - of_one, of_one])


Margins.predict_proba.__module__ = "xgboost.sklearn"


class Sampling:
    """A pipeline as imbalanced-learn has it, without `transform` of its own where its last step predicts."""

    def __init__(self, *steps):
        self.steps = [(str(place), step) for place, step in enumerate(steps)]

    classes_ = property(lambda self: self[-1].classes_)

    def __getitem__(self, place):
        return self.steps[place][1]

    def predict_proba(self, rows):
        for _, step in self.steps[:-1]:
            rows = step.transform(rows) if hasattr(step, "transform") else rows
        return self[-1].predict_proba(rows)


Sampling.predict_proba.__module__ = "imblearn.pipeline"


@pytest.mark.parametrize("last", [Margins(), Squared()])
@pytest.mark.parametrize("first", [True, False])
def test_a_sampler_in_a_pipeline_is_of_training_alone(first, last):
    frame = pd.DataFrame(RNG.normal(size=(20, 2)), columns=["a", "b"])
    scaler = StandardScaler().fit(frame)
    steps = (Sampler(), scaler) if first else (scaler, Sampler())
    model = Sampling(*steps, last)
    found = shapeline.explain(model, frame[:2], "shapley", background=frame[2:], target=1)
    expected = brute(lambda rows: model.predict_proba(rows)[:, 1], frame[:2], frame[2:])
    np.testing.assert_allclose(found.scores, expected, atol=1e-6)  # of single precision


@pytest.mark.parametrize("on_top", ["a scaler", "none"])
def test_a_sampler_of_imbalanced_learn_before_xgboost(on_top):
    imblearn, xgboost = (pytest.importorskip(name) for name in ("imblearn.pipeline", "xgboost"))
    from imblearn.over_sampling import RandomOverSampler

    frame = pd.DataFrame(RNG.normal(size=(150, 3)), columns=list("abc"))
    steps = [StandardScaler()] * (on_top == "a scaler") + [RandomOverSampler(), xgboost.XGBClassifier(n_estimators=5)]
    model = imblearn.make_pipeline(*steps).fit(frame, (frame["a"] > 0.8).astype(int))
    found = shapeline.explain(model, frame[:2], "shapley", background=frame[:20], target=1)
    expected = brute(lambda rows: model.predict_proba(rows)[:, 1], frame[:2], frame[:20])
    np.testing.assert_allclose(found.scores, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["LGBMClassifier", "LGBMRegressor"])
def test_lightgbm_writes_other_names(kind):
    lightgbm = pytest.importorskip("lightgbm")
    frame = pd.DataFrame(RNG.normal(size=(90, 3)), columns=["mean radius", "worst area", "c"])
    model = getattr(lightgbm, kind)(n_estimators=5, verbose=-1, num_threads=1, min_child_samples=5)
    model.fit(frame, (frame["mean radius"] * frame["worst area"] > 0).astype(int))
    value = model.predict if kind == "LGBMRegressor" else lambda rows: model.predict_proba(rows)[:, 1]
    target = {} if kind == "LGBMRegressor" else {"target": 1}
    found = shapeline.explain(model, frame[:2], "shapley", background=frame[2:20], **target)
    np.testing.assert_allclose(found.scores, brute(value, frame[:2], frame[2:20]), atol=1e-9)


@pytest.mark.parametrize("objective", ["binary", "regression"])
def test_the_trees_of_a_booster_are_read(objective):
    lightgbm = pytest.importorskip("lightgbm")
    frame = pd.DataFrame(RNG.normal(size=(90, 3)), columns=list("abc"))
    settings = {"objective": objective, "verbose": -1, "num_threads": 1, "min_child_samples": 5}
    model = lightgbm.train(settings, lightgbm.Dataset(frame, frame["a"] > 0), 5)
    named = {"value": "margin", "target": 1} if objective == "binary" else {}
    found = shapeline.explain(model, frame[:2], "tree_shap", background=frame[2:20], **named)
    expected = brute(lambda rows: model.predict(rows, raw_score=True), frame[:2], frame[2:20])
    np.testing.assert_allclose(found.scores, expected, atol=1e-9)


def test_answers_that_are_no_real_numbers():
    rows = RNG.random((5, 2))
    with pytest.raises(ShapelineError, match=r"gave ndarray, no array of numbers \(they are complex\)"):
        shapeline.explain(lambda rows: rows[:, 0] + 0.5j * rows[:, 1], rows, "shapley", value="prediction")
    with pytest.raises(ShapelineError, match=r"gives nan for row 0 \(from 0\) of the inputs"):
        shapeline.explain(lambda rows: np.ma.masked_less(rows[:, 0], 2), rows, "shapley", value="prediction")


def test_a_function_that_returns_a_tensor_with_gradient():
    torch = pytest.importorskip("torch")
    network, rows = torch.nn.Linear(3, 2), RNG.random((4, 3))
    found = shapeline.explain(
        lambda rows: network(torch.tensor(rows).float()).softmax(1), rows[:2], "shapley", background=rows, target=1
    )
    with torch.no_grad():
        expected = brute(
            lambda rows: network(torch.tensor(rows.to_numpy()).float()).softmax(1)[:, 1].numpy(),
            *(pd.DataFrame(part) for part in (rows[:2], rows)),
        )
    np.testing.assert_allclose(found.scores, expected, atol=1e-6)


def test_a_single_image_without_an_axis_of_inputs_names_the_remedy():
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 2))
    picture = RNG.random((12, 12)).astype(np.float32)
    with pytest.raises(ShapelineError, match=r"shape \(12, 12\): .*; for a single image give inputs\[None\]"):
        shapeline.explain(network, picture)
    assert shapeline.explain(network, picture[None], "occlusion").scores.shape == (1, 12, 12)


def test_dictionaries_of_arrow_in_several_chunks():
    arrow = pytest.importorskip("pyarrow")
    cells = pd.array(list("zxyxzy"), dtype=pd.ArrowDtype(arrow.dictionary(arrow.int32(), arrow.string())))
    frame = pd.DataFrame({"a": np.arange(6.0), "c": cells})

    def predict(rows):
        return rows["a"].to_numpy() * rows["c"].map({"x": 1.0, "y": 2.0, "z": 5.0}).to_numpy(float)

    found = shapeline.explain(predict, frame[:2], "shapley", background=frame[2:], value="prediction")
    np.testing.assert_allclose(found.scores, brute(predict, frame[:2], frame[2:]), atol=1e-12)


def test_groups_of_columns_whose_names_are_numbers():
    frame = pd.DataFrame(X[:9, :3], columns=[5, 6, 7])
    groups = {"both": [5, 6], "last": [7]}
    found = shapeline.explain(
        lambda rows: rows[5] * rows[6] * rows[7], frame[:2], "shapley", background=frame[2:], features=groups,
        value="prediction",
    )  # fmt: skip
    total = brute(lambda rows: rows[5] * rows[6] * rows[7], frame[:2], frame[2:]).sum(axis=1)
    np.testing.assert_allclose(found.scores.sum(axis=1), total, atol=1e-12)
    for wrong, said in (({"a": 5, "b": [6, 7]}, "5 is not a list"), ({"a": [[5], 6], "b": [7]}, r"no column '\[5\]'")):
        with pytest.raises(ShapelineError, match=said):
            shapeline.explain(lambda rows: rows[5], frame[:2], background=frame[2:], features=wrong, value="prediction")


def test_names_without_an_order_are_refused():
    for names in ({"a", "b", "c"}, "abc", frozenset("abc"), 3):
        with pytest.raises(ShapelineError, match=r"explain: feature_names is an? \w+; give a list of names"):
            shapeline.explain(lambda rows: rows[:, 0], X[:2, :3], background=X[2:9, :3], feature_names=names)
    for names in ({"no", "yes"}, "ny", {0: "no", 1: "yes"}):
        with pytest.raises(ShapelineError, match=r"explain: class_names is a \w+; give a list of names"):
            shapeline.explain(lambda rows: rows[:, 0] > 0, X[:2, :3], background=X[2:9, :3], class_names=names)
    for model in (lambda rows: rows[:, 0] > 0, torch.nn.Linear(3, 2)):
        for kind in (np.array, pd.Index, iter):
            names = {"class_names": kind(["n", "y"]), "feature_names": kind(["a", "b", "c"])}
            found = shapeline.explain(model, X[:2, :3], background=X[2:9, :3], **names)
            assert found.about.classes == ("n", "y") and found.feature_names == ("a", "b", "c")


def test_a_reference_without_a_kind_and_features_that_are_an_array():
    ask = {"model": lambda rows: rows[:, 0], "inputs": X[:2, :3], "value": "prediction"}
    with pytest.raises(ShapelineError, match="'None': unknown; of a row of the inputs give a data frame"):
        shapeline.explain(**ask, reference={"a": 1})
    with pytest.raises(ShapelineError, match="features is an ndarray; give a kind"):
        shapeline.explain(**ask, background=X[2:9, :3], features=np.zeros(3))
