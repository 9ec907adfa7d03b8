"""Regression end to end: data, training in both frameworks, the engine, one call, gradients, and refusals."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import torch
from torch import nn

import shapeline
from shapeline.attribution import context, selection
from shapeline.config import validation
from shapeline.datasets import checks, loading, preparation, registry
from shapeline.errors import ShapelineError
from shapeline.games import calibration, features, game
from shapeline.games.references import Reference
from shapeline.models import adapters, architectures, storage, training
from shapeline.report import experiment, index, tables
from tests.fixtures.builders import write_own_source
from tests.unit import shortcuts

X, Y = load_diabetes(return_X_y=True, scaled=False)
WEIGHTS = np.array([2.0, -3.0, 0.5, 0.0])
ROWS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)


def linear(rows):
    return rows @ WEIGHTS + 100


def network(column=True) -> nn.Module:
    """The same linear function in torch, with outputs (n, 1) or (n,)."""
    layer = nn.Linear(4, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(WEIGHTS)[None])
        layer.bias.fill_(100)
    return layer if column else nn.Sequential(layer, nn.Flatten(0))


def keras_network():
    import keras

    module = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    module.set_weights([WEIGHTS[:, None], np.array([100.0])])
    return module


MODELS = {
    "function": lambda: linear,
    "column of a function": lambda: lambda rows: linear(rows)[:, None],
    "scikit-learn": lambda: LinearRegression().fit(ROWS, linear(ROWS)),
    "torch": network,
    "flat torch": lambda: network(column=False),
    "keras": keras_network,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "diabetes"
    preparation.prepare("diabetes", {"source": "diabetes", "seed": 0}, [], folder)
    return folder


# --- data ---------------------------------------------------------------------------------------------------------


def test_diabetes(prepared):
    data = loading.load(prepared)
    assert data.card["task"] == "regression" and data.card["classes"] == [] and data.card["kind"] == "table"
    assert data.inputs.shape == (442, 10) and data.labels.dtype == np.float64
    np.testing.assert_array_equal(data.labels, Y)
    np.testing.assert_allclose(data.inputs, X, rtol=1e-6)
    assert [int((data.split == part).sum()) for part in range(3)] == [278, 31, 133]
    assert data.card["counts"] == {"train": {"all": 278}, "validation": {"all": 31}, "test": {"all": 133}}
    source = registry.SOURCES["diabetes"]
    assert data.card["feature_names"] == list(source.feature_names) == load_diabetes().feature_names


def test_the_split_is_random_by_seed(tmp_path):
    splits = []
    for place, seed in enumerate((0, 0, 1)):
        preparation.prepare("diabetes", {"source": "diabetes", "seed": seed}, [], tmp_path / str(place))
        splits.append(loading.load(tmp_path / str(place)).split)
    assert (splits[0] == splits[1]).all() and (splits[0] != splits[2]).any()


def own(tmp_path, labels, task="'regression'", **more):
    extra = "".join(f", {name!r}: {value}" for name, value in more.items())
    body = f"return {{'inputs': np.arange(40.).reshape(20, 2), 'labels': {labels}, 'task': {task}{extra}}}"
    source = write_own_source(tmp_path / "own.py", body)
    return preparation.prepare(source, {"source": source}, [], tmp_path / "own")


def test_a_users_own_regression(tmp_path):
    assert own(tmp_path, "np.arange(20) / 7 - 1")["task"] == "regression"
    assert loading.load(tmp_path / "own").labels.min() == -1
    assert "task" not in own(tmp_path, "np.arange(20) % 2", task="'classification'")


@pytest.mark.parametrize(
    "labels, task, more, told",
    [
        ("np.arange(20) / 7", "None", {}, 'return|"task": "regression"'),
        ("np.full(20, 2.5)", "'regression'", {}, "all labels are 2.5"),
        ("np.r_[np.nan, np.arange(19)]", "'regression'", {}, "record 0 has the label nan"),
        ("['a'] * 20", "'regression'", {}, "wants numbers"),
        ("np.arange(20.)", "'regresion'", {}, "Did you mean 'regression'"),
        ("np.arange(20.)", "'regression'", {"class_names": "['a', 'b']"}, "class_names"),
    ],
)
def test_bad_records_are_one_line(tmp_path, labels, task, more, told):
    with pytest.raises(ShapelineError, match=told) as caught:
        own(tmp_path, labels, task, **more)
    assert "\n" not in str(caught.value)


def test_classes_are_refused(tmp_path):
    with pytest.raises(ShapelineError, match="is of regression, it has none; remove the key"):
        checks.read_entry("diabetes", {"classes": [0, 1]})
    source = write_own_source(
        tmp_path / "own.py", "return {'inputs': np.eye(9), 'labels': np.arange(9.), 'task': 'regression'}"
    )
    with pytest.raises(ShapelineError, match="is of regression, it has none"):
        preparation.prepare(source, {"source": source, "classes": [0, 1]}, [], tmp_path / "out")


# --- models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_training(prepared, tmp_path, framework):
    data = loading.load(prepared)
    model = architectures.for_dataset({"architecture": "mlp", "framework": framework}, data.card)
    assert (model.task, model.n_classes) == ("regression", 1)
    card = training.fit(model, data, {"epochs": 25}, seed=0)
    test = data.split == 2
    predicted, true = model.predict(data.inputs[test]), data.labels[test]
    residual = predicted - true
    assert card["test_r2"] == pytest.approx(1 - (residual**2).sum() / ((true - true.mean()) ** 2).sum(), abs=1e-6)
    assert card["test_rmse"] == pytest.approx(np.sqrt((residual**2).mean()), rel=1e-6)
    assert card["test_r2"] > 0.3 and "test_accuracy" not in card
    assert 100 < predicted.mean() < 200  # the target's own units
    history = [entry["validation_r2"] for entry in card["history"]]
    assert card["best_epoch"] == 1 + np.argmax(history) and card["validation_r2"] == max(history)
    storage.save(model, tmp_path / "weights.safetensors")
    twin = storage.load(tmp_path / "weights.safetensors", framework={"torch": "tensorflow"}.get(framework, "torch"))
    assert (twin.task, twin.n_classes) == ("regression", 1)
    np.testing.assert_allclose(twin.predict(data.inputs[test]), predicted, rtol=1e-5)
    with pytest.raises(ShapelineError, match="gives no probabilities"):
        model.log_probs(data.inputs)


def test_training_does_not_depend_on_the_unit_of_the_target(prepared):
    data = loading.load(prepared).as_numbers()
    found = []
    for unit in (1, 1000):
        scaled = SimpleNamespace(inputs=data.inputs, labels=unit * data.labels - 5 * unit, split=data.split)
        model = architectures.for_dataset({"architecture": "mlp"}, data.card)
        card = training.fit(model, scaled, {"epochs": 3}, seed=0)
        found.append((card["test_r2"], card["test_loss"], card["test_rmse"] / unit))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)


def test_other_architectures_are_refused(prepared):
    with pytest.raises(ShapelineError, match="'digits_cnn' is for classes"):
        architectures.for_dataset(
            {"architecture": "digits_cnn"}, {**loading.load(prepared).card, "input_shape": [1, 8, 8]}
        )


def test_wrapping():
    assert adapters.wrap(LinearRegression().fit(X, Y)).task == "regression"
    assert adapters.wrap(LogisticRegression().fit(ROWS, ROWS[:, 0] > 0)).task == "classification"
    labels = LinearSVC().fit(ROWS, ROWS[:, 0] > 0)  # its predict gives classes, and it has no probabilities
    for kind, told in ((None, "CalibratedClassifierCV"), ("regression", "model.decision_function")):
        with pytest.raises(ShapelineError, match=told):
            adapters.wrap(labels, kind=kind)
    with pytest.raises(ShapelineError, match=r"shape \(60, 2\) for 60 rows, and a regression has one number per row"):
        adapters.wrap(lambda rows: rows[:, :2], kind="regression").predict(ROWS)
    with pytest.raises(ShapelineError, match="row; give a module whose forward pass returns one output, or, of cl"):
        adapters.wrap(nn.Linear(4, 2), kind="regression").predict(ROWS)


# --- values and scores --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", MODELS)
def test_shapley_values_of_a_linear_regression(made):
    model = MODELS[made]()
    found = shapeline.explain(model, ROWS[:5], "shapley", "mean", "column", background=ROWS, value="prediction")
    mean = ROWS.mean(0, dtype=np.float64)
    np.testing.assert_allclose(found.scores, WEIGHTS * (ROWS[:5] - mean), atol=2e-5)
    np.testing.assert_allclose(found.value_full, linear(ROWS[:5]), rtol=1e-6)
    np.testing.assert_allclose(found.value_empty, linear(mean), rtol=1e-6)
    np.testing.assert_allclose(found.scores.sum(1), found.value_full - found.value_empty, atol=1e-9)
    assert (found.target == 0).all()


def test_prediction_is_the_value_of_an_object_with_predict():
    model = LinearRegression().fit(X, Y)
    found = shapeline.explain(model, X[:4], "kernel_shap", "mean", "column", background=X, seed=1)
    np.testing.assert_allclose(found.scores, model.coef_ * (X[:4] - X.mean(0)), atol=1e-3)


@pytest.mark.parametrize("framework", ["function", "torch", "tensorflow"])
def test_the_prediction_is_averaged_over_the_reference_rows(framework):
    square = nn.Sequential(network(), nn.Softplus())
    model = adapters.wrap(square, kind="regression")
    if framework == "function":
        model = adapters.wrap(model.predict, kind="regression")
    elif framework == "tensorflow":
        import keras

        module = keras.Sequential([keras_network(), keras.layers.Activation("softplus")])
        model = adapters.wrap(module, kind="regression")
    rows, built = 10 * ROWS[10:17], features.build("column", {"input_shape": [4], "kind": "table"})
    masks = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]], bool)
    values = shortcuts.values(model, ROWS[:3], Reference(rows), masks, built, "prediction")
    for row, x in zip(values, ROWS[:3], strict=True):
        expected = [np.logaddexp(0, linear(np.where(mask, x, rows))).mean() for mask in masks]
        np.testing.assert_allclose(row, expected, rtol=1e-6)
    form = calibration.calibrate(model, ROWS, Reference(rows))
    np.testing.assert_allclose(
        shortcuts.values(model, ROWS[:3], Reference(rows), masks, built, "prediction", backend=form), values, rtol=1e-6
    )


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("method", ["saliency", "gradient_x_input", "integrated_gradients"])
def test_gradients_are_those_of_the_prediction(framework, method):
    model = network() if framework == "torch" else keras_network()
    found = shapeline.explain(model, ROWS[:5], method, "zero", "column", value="prediction")
    expected = np.abs(WEIGHTS) * np.ones((5, 1)) if method == "saliency" else WEIGHTS * ROWS[:5]
    np.testing.assert_allclose(found.scores, expected, atol=1e-5)
    if method == "integrated_gradients":
        np.testing.assert_allclose([details["completeness_gap"] for details in found.details], 0, atol=1e-4)


@pytest.mark.parametrize("value", game.VALUES)
def test_a_regression_has_no_other_value(value):
    for model in (network(), linear):
        with pytest.raises(ShapelineError, match=f"is a regression model, so it has no {value}; use value: prediction"):
            shapeline.explain(adapters.wrap(model, kind="regression"), ROWS, value=value, features="column")


def test_a_classifier_has_no_prediction():
    forest = LogisticRegression().fit(ROWS, ROWS[:, 0] > 0)
    for model in (forest, adapters.wrap(nn.Linear(4, 2))):
        with pytest.raises(ShapelineError, match="gives classes, so it has no prediction; use value: log_probability"):
            shapeline.explain(model, ROWS, value="prediction", features="column")
    with pytest.raises(ShapelineError, match="target 1: a regression has no classes"):
        shapeline.explain(linear, ROWS, value="prediction", features="column", target=1)


# --- configuration ------------------------------------------------------------------------------------------------


def described(**experiment) -> dict:
    return {
        "run": ["one"],
        "datasets": {"diabetes": {"source": "diabetes"}},
        "models": {"mlp": {"dataset": "diabetes", "architecture": "mlp"}},
        "experiments": {
            "one": {
                "model": "mlp",
                "features": {"kind": "column"},
                "value": "prediction",
                "methods": {"exact": {"method": "shapley"}},
                "metrics": {"cost": {}},
                **experiment,
            }
        },
    }


def test_a_configuration_of_regression_is_accepted():
    for reference in ("mean", "zero", {"kind": "background", "rows": 4}):
        found = validation.load(described(reference=reference))
        assert found.experiments["one"].value == "prediction"
    groups = {"age": ["age"], "rest": list(registry.SOURCES["diabetes"].feature_names[1:])}
    validation.load(described(features={"kind": "group", "groups": groups}))


@pytest.mark.parametrize(
    "change, told",
    [
        ({"value": None}, "experiments.one.value: datasets.diabetes is of regression and has no log_probability"),
        ({"value": "logit"}, "has no logit; set value: prediction"),
        ({"metrics": {"log_odds": {}}}, "experiments.one.metrics.log_odds: a regression model gives no probabilities"),
    ],
)
def test_impossible_settings_of_regression(change, told):
    raw = described(**change)
    raw["experiments"]["one"] = {key: value for key, value in raw["experiments"]["one"].items() if value is not None}
    with pytest.raises(ShapelineError, match=told) as caught:
        validation.load(raw)
    assert len(str(caught.value).splitlines()) == 1


def test_prediction_is_refused_for_classes():
    raw = described()
    raw["datasets"]["diabetes"] = {"source": "breast_cancer"}
    raw["experiments"]["one"]["methods"] = {"kernel": {"method": "kernel_shap"}}
    with pytest.raises(ShapelineError, match=r"value: prediction is for regression and datasets.diabetes has classes"):
        validation.load(raw)
    raw["datasets"]["diabetes"] = {"source": "diabetes", "classes": [0, 1]}
    with pytest.raises(ShapelineError, match="is of regression, it has none; remove the key"):
        validation.load(raw)


# --- instances and reports ----------------------------------------------------------------------------------------


def test_instances_hold_numbers(prepared):
    data = loading.load(prepared)
    model = architectures.for_dataset({"architecture": "mlp"}, data.card)
    subject = context.ExplanationContext(model, data, None, Reference(data.inputs[:1]))
    found = selection.select(subject, seed=0, count=7)
    assert "probability" not in found and found["label"].dtype == found["prediction"].dtype == np.float64
    np.testing.assert_array_equal(found["label"], Y[found["instance"]])
    np.testing.assert_allclose(found["prediction"], model.predict(data.inputs[found["row"]]), rtol=1e-6)
    np.testing.assert_array_equal(experiment.choose_instances(found, 3)["instance"], found["instance"][:3])
    results = SimpleNamespace(dataset_card=data.card, model_card={"architecture": "mlp"})
    row = {"instance": 5, "prediction": 152.1234, "label": 151.0}
    assert experiment.name_instance(results, row) == "predicted 152.1\ntrue 151.0\ninstance 5"
    broken = context.ExplanationContext(
        adapters.wrap(lambda rows: rows[:, 0] * np.nan, "regression"), data, None, subject.reference
    )
    with pytest.raises(ShapelineError, match="returns nan for instance"):
        selection.select(broken, seed=0, count=7)


def test_pages_report_r_squared_instead_of_accuracy(monkeypatch):
    facts = tables.model_facts({"test_r2": -0.4567, "test_rmse": 54.321})
    assert facts.to_dict("records") == [{"fact": "test R²", "value": "−0.457"}, {"fact": "test RMSE", "value": "54.3"}]
    entry = {
        "title": "one",
        "accuracy": None,
        "r2": 0.4567,
        "instances": 5,
        "failures": 0,
        "evaluations": 10,
        "rows": 5,
    }
    monkeypatch.setattr(index.findings, "headline", lambda _: entry)
    empty = {key: {} for key in ("scores", "entries", "dataset_card", "model_card", "settings")}
    result = SimpleNamespace(experiment="one", d=3, **empty)
    assert "model R² 0.46" in index.cards([result], {"one": []}).data
