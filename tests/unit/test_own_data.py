"""Custom tables, texts, models, methods and scores, by configuration only."""

import copy
import csv
import itertools
import operator
import re
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import skops.io
import yaml
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import shapeline
from shapeline import scores
from shapeline.attribution.context import ExplanationContext
from shapeline.config import derived, validation
from shapeline.datasets import checks, loading, preparation, sources, tokenizer
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import calibration, features, references
from shapeline.methods import external
from shapeline.metrics import measurement
from shapeline.metrics import scored_rows as metric_needs
from shapeline.models import adapters, architectures, classifier, storage
from shapeline.statistics import folders
from shapeline.workflow import job_code, runs
from shapeline.workflow.jobs import attribute_settings
from tests.fixtures import builders
from tests.unit import shortcuts
from tests.unit.test_documentation import BLOCKS

COLUMNS = ["size", "rooms", "town", "garden"]


@pytest.fixture
def table() -> pd.DataFrame:
    """A table with all that a column may be; `sold` depends on size and town."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "size": random.normal(80, 20, 60).round(1),
            "rooms": random.integers(1, 6, 60),
            "town": random.choice(["Bern", "Ulm", "Wien"], 60),
            "garden": random.random(60) < 0.5,
        }
    )
    frame["sold"] = np.where(
        frame["size"] / 20 + (frame["town"] == "Ulm") + random.normal(0, 0.5, 60) > 4.3, "yes", "no"
    )
    frame.loc[[3, 9], "size"] = np.nan
    frame.loc[[4, 5, 6], "town"] = np.nan
    return frame


@pytest.fixture
def prepared(table, tmp_path):
    """prepare(entry, suffix, table) -> the dataset of a file that holds the table."""

    def prepare(suffix: str = "csv", table: pd.DataFrame = table, **entry) -> loading.Dataset:
        file = tmp_path / f"own.{suffix}"
        table.to_csv(file, index=False) if suffix == "csv" else table.to_parquet(file)
        settings = {"source": "table_file", "path": str(file), "target": "sold", **entry}
        preparation.prepare("table_file", settings, [], tmp_path / "data")
        return loading.load(tmp_path / "data")

    return prepare


def pipeline(table: pd.DataFrame, last=None, target: str = "sold"):
    """The user's own: imputes, scales and encodes, so that town becomes several columns inside."""
    encode = OneHotEncoder(handle_unknown="ignore")
    steps = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["size", "rooms"]),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), encode), ["town"]),
        (encode, ["garden"]),  # imputers before scikit-learn 1.9 take no column of truth
    )
    return make_pipeline(steps, LogisticRegression() if last is None else last).fit(table[COLUMNS], table[target])


def opened(fitted, data: loading.Dataset, tmp_path, **settings) -> classifier.Classifier:
    skops.io.dump(fitted, tmp_path / "own.skops")
    model = architectures.for_dataset({"source": str(tmp_path / "own.skops"), **settings}, data.card)
    return storage.fit_rows(model, data)[0]


def test_a_table_keeps_numbers_codes_and_missing_cells(prepared, table):
    data = prepared()
    assert data.card["feature_names"] == COLUMNS and data.card["classes"] == ["no", "yes"]
    assert data.card["categories"] == {"town": ["Bern", "Ulm", "Wien"], "garden": ["False", "True"]}
    assert data.card["missing"] == {"size": 2, "town": 3} and data.card["categorical"] == [2, 3]
    np.testing.assert_array_equal(data.inputs[:, 0], table["size"])
    assert np.isnan(data.inputs[[4, 5, 6], 2]).all() and set(data.inputs[7:, 2]) == {0, 1, 2}
    np.testing.assert_array_equal(data.labels, table["sold"] == "yes")
    np.testing.assert_array_equal(data.ids, np.arange(60))  # rows of the file


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_rows_come_back_as_the_frame_that_pandas_read(prepared, table, tmp_path, suffix):
    if suffix == "parquet":
        table = table.assign(
            town=pd.Categorical(table["town"], ["Wien", "Ulm", "Bern"]), rooms=table["rooms"].astype("Int64")
        )
    data = prepared(suffix, table)
    file = tmp_path / f"own.{suffix}"
    read = (pd.read_csv(file) if suffix == "csv" else pd.read_parquet(file))[COLUMNS]
    kept, cells = data.own_rows
    pd.testing.assert_frame_equal(kept.compose(cells), read)
    np.testing.assert_array_equal(cells[:, :2], data.inputs[:, :2])


def test_an_index_among_the_columns_is_noted(prepared, table):
    written = table.rename_axis("").reset_index()
    noted = ["Unnamed: 0 is an index that counts the rows, and a feature here (columns leaves it out)"]
    assert [note for note in prepared(table=written).card["notes"] if "index" in note] == noted
    assert not any("index" in note for note in prepared(table=written, columns=["size", "rooms"]).card["notes"])


def test_numbers_may_be_categories(prepared):
    data = prepared(categorical=["rooms"])
    assert data.card["categories"]["rooms"] == ["1", "2", "3", "4", "5"]
    own = data.as_given()
    assert own.card["categorical"] == [1, 2, 3] and set(own.inputs[:, 1]) == {0, 1, 2, 3, 4}
    assert data.own_rows[0].compose(own.inputs)["rooms"].dtype == "int64"


def test_a_regression_takes_the_target_as_it_is(prepared):
    data = prepared(
        target="size",
        columns=["rooms", "garden"],
        task="regression",
        table=pd.DataFrame({"rooms": [1, 2, 3, 4] * 10, "garden": [True, False] * 20, "size": np.linspace(1, 2, 40)}),
    )
    assert data.card["task"] == "regression" and data.labels.dtype == np.float64
    assert data.card["feature_names"] == ["rooms", "garden"] and data.card["classes"] == []


def change(**columns):
    return lambda table: table.assign(**{name: make(table) for name, make in columns.items()})


@pytest.mark.parametrize(
    ("edit", "entry", "said"),
    [
        (None, {"target": "solt"}, "has no column 'solt'. Did you mean 'sold'?"),
        (None, {"target": None}, "'target': is missing"),
        (None, {"columns": ["size", "sold"]}, "'sold' is the target"),
        (None, {"columns": ["sise"]}, "no column 'sise'. Did you mean 'size'?"),
        (None, {"categorical": ["town"], "columns": ["size"]}, "'town' is not among the columns"),
        (None, {"target": "size", "columns": ["rooms"]}, "the target 'size' is missing in 2 row(s), first in row 3"),
        (None, {"target": "rooms", "task": "regresion"}, "Did you mean 'regression'?"),
        (change(sold=lambda t: "yes"), {}, "has one class, 'yes'"),
        (change(size=lambda t: np.nan), {}, "column 'size': is missing in every row"),
        (change(size=lambda t: np.inf), {}, "is infinite in row 0"),
        (change(sold=lambda t: t["size"].fillna(1.5)), {}, "set task: regression"),
        (change(sold=lambda t: np.arange(60)), {}, "60 different numbers in 60 rows; set task: regression"),
        (None, {"task": "regression"}, "holds no numbers"),
        (lambda t: t.head(0), {}, "holds a header and no rows"),
        (lambda t: pd.concat({"a": t}, axis=1), {"suffix": "parquet", "target": "('a', 'sold')"}, "names of 2 levels"),
    ],
)
def test_mistakes_in_a_table_are_one_line(prepared, table, edit, entry, said):
    with pytest.raises(ShapelineError) as failure:
        prepared(**{"suffix": "csv", "table": edit(table) if edit else table, **entry})
    assert said in str(failure.value) and "\n" not in str(failure.value)


def test_absent_features_are_usual_values_or_rows_never_codes_between(prepared, table):
    data = prepared()
    training = data.part("train").inputs
    (mean,) = references.build("mean", data, 0).rows
    np.testing.assert_allclose(mean[0], np.nanmean(training[:, 0]), rtol=1e-5)
    codes, counts = np.unique(training[~np.isnan(training[:, 2]), 2], return_counts=True)
    assert mean[2] == codes[counts.argmax()] and mean[3] in (0, 1)
    rows = references.build({"kind": "background", "rows": 8}, data, 0).rows
    assert all(any(np.array_equal(row, one, equal_nan=True) for one in training) for row in rows)
    with pytest.raises(ShapelineError, match="'town' holds categories; use mean or background"):
        references.build("zero", data, 0)


@pytest.mark.parametrize("last", [LogisticRegression(), RandomForestClassifier(5, random_state=0)])
def test_a_pipeline_gives_its_outputs_on_the_users_frame(prepared, table, tmp_path, last):
    data = prepared()
    fitted = pipeline(table, last)
    model = opened(fitted, data, tmp_path, framework="function")  # as plan.train_settings has it
    expected = fitted.predict_proba(table[COLUMNS])
    np.testing.assert_allclose(np.exp(model.log_probs(data.inputs)), expected, atol=1e-9)
    storage.save(model, tmp_path / "weights.safetensors")
    (tmp_path / "own.skops").unlink()
    again = storage.fit_rows(storage.load(tmp_path / "weights.safetensors"), data)[0]
    np.testing.assert_array_equal(again.log_probs(data.inputs), model.log_probs(data.inputs))
    card = architectures.measure_card(model, data)
    test = data.split == sources.TEST
    assert card["test_accuracy"] == (fitted.predict(table[COLUMNS]) == table["sold"])[test].mean()
    assert "history" not in card and "ready" in card["settings"]


def test_missing_cells_reach_a_pipeline_that_takes_them(prepared, table, tmp_path):
    frame = table[COLUMNS].assign(town=table["town"].astype("category"))
    fitted = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2).fit(frame, table["sold"])
    table = table.assign(town=frame["town"])
    data = prepared("parquet", table)
    model = opened(fitted, data, tmp_path, trusted_types=["functools.partial", "sklearn.utils.validation.check_array"])
    np.testing.assert_allclose(np.exp(model.log_probs(data.inputs)), fitted.predict_proba(frame), atol=1e-9)


def test_classes_are_matched_by_name_in_any_order_and_type(prepared, table, tmp_path):
    numbers = table.assign(sold=(table["sold"] == "yes").map({True: 10, False: 9}))  # as text, "10" comes before "9"
    data = prepared(table=numbers)
    assert data.card["classes"] == ["9", "10"]
    fitted = pipeline(numbers.assign(sold=numbers["sold"].astype(str)))
    assert list(fitted.classes_) == ["10", "9"]
    found = np.exp(opened(fitted, data, tmp_path).log_probs(data.inputs))
    np.testing.assert_allclose(found, fitted.predict_proba(table[COLUMNS])[:, ::-1], atol=1e-6)


def test_outputs_in_another_order_of_the_classes_are_reported(prepared, table, tmp_path, caplog):
    data = prepared(table=pd.concat([table] * 3, ignore_index=True))
    for order, is_other in (("", False), ("[:, ::-1]", True)):
        text = "def model(rows):\n    p = (rows['size'] > 76) * 0.8 + 0.1\n    return np.stack([1 - p, p], 1)" + order
        model, own = storage.fit_rows(architectures.for_dataset(function_in(tmp_path, text), data.card), data)
        card = architectures.measure_card(model, own)
        assert (card["test_accuracy"] < 0.5) == is_other
        assert ("if its outputs are those of yes, no, in this order" in caplog.text) == is_other


def test_coalitions_are_frames_whose_absent_columns_are_the_references(prepared, table, tmp_path):
    """Shapley values by hand, from data frames that pandas makes: a one-hot group inside is one column outside."""
    data = prepared()
    fitted = pipeline(table)
    model = opened(fitted, data, tmp_path)
    reference = references.build("mean", data, 0)
    model, reference = calibration.fit_reference(model, data.inputs, reference)
    own = features.build("column", data.card)
    chosen = np.array([0, 4, 9])  # one complete, one without a town, one without a size
    found = shortcuts.attribute(
        model, data.inputs[chosen], np.ones(3, int), {"method": "shapley"}, own, reference, "probability"
    )[0]
    usual = {
        "size": float(reference.rows[0, 0]),
        "rooms": float(reference.rows[0, 1]),
        "town": table["town"][data.split == 0].mode()[0],
        "garden": bool(table["garden"][data.split == 0].mode()[0]),
    }

    subsets = [frozenset(kept) for size in range(5) for kept in itertools.combinations(COLUMNS, size)]
    for place, i in enumerate(chosen):
        row, expected = table.loc[i], np.zeros(4)
        rows = pd.DataFrame(
            [{name: row[name] if name in kept else usual[name] for name in COLUMNS} for kept in subsets]
        )
        value = dict(zip(subsets, fitted.predict_proba(rows)[:, 1], strict=True))
        for order in itertools.permutations(COLUMNS):
            for step, name in enumerate(order):
                gain = value[frozenset(order[: step + 1])] - value[frozenset(order[:step])]
                expected[COLUMNS.index(name)] += gain / 24
        np.testing.assert_allclose(found.scores[place], expected, atol=1e-6)


def test_a_reference_of_a_metric_fits_the_model_as_that_of_the_game(prepared, table, tmp_path):
    data, settings = prepared(), SimpleNamespace(game=SimpleNamespace(seed=0, value="probability"))
    own = features.build("column", data.card)
    context = ExplanationContext(opened(pipeline(table), data, tmp_path), data, own, None)
    job = {"parameters": {"references": ["mean"]}}
    found = measurement._OneMetric("log_odds", job, "", context, None, settings, 4).references["mean"]
    game = context.change_reference(references.build("mean", data, 0)).game("probability")
    assert game.reference.rows[0, 1] % 1 > 0.01  # a column of whole numbers, which are no codes to this model
    values, expected = (each.values(data.inputs[:3], np.eye(4, dtype=bool)) for each in (found, game))
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda t: pipeline(t.rename(columns={"town": "city"}).assign(town=t["town"])[[*COLUMNS, "sold"]]), None),
        (
            lambda t: LogisticRegression().fit(t[["rooms"]].assign(floor=1), t["sold"]),
            "needs the column 'floor', which",
        ),
        (
            lambda t: LogisticRegression().fit(t[["rooms"]].to_numpy(), t["sold"]),
            "takes 1 columns and the dataset has 4",
        ),
        (lambda t: LinearSVC().fit(t[["rooms"]], t["sold"]), "has no predict_proba"),
        (lambda t: LinearRegression().fit(t[["rooms"]], t["garden"]), "is not a classifier"),
        (lambda t: LogisticRegression().fit(t[["rooms"]], t["town"].fillna("Bern")), "has the classes Bern, Ulm, Wien"),
    ],
)
def test_a_pipeline_that_does_not_fit_is_refused_in_one_line(prepared, table, tmp_path, make, said):
    data = prepared()
    if said is None:
        assert opened(make(table), data, tmp_path).n_classes == 2
        return
    with pytest.raises(ShapelineError) as failure:
        opened(make(table), data, tmp_path)
    assert said in str(failure.value) and "\n" not in str(failure.value)


def function_in(tmp_path, text: str) -> dict:
    (tmp_path / "model.py").write_text("import numpy as np\nimport pandas as pd\n" + text)
    return {"source": f"{tmp_path / 'model.py'}:model", "framework": "function"}


def test_a_function_is_given_the_frame_that_pandas_read(prepared, table, tmp_path):
    data = prepared()
    text = (
        "def model(rows):\n    assert rows['garden'].dtype == bool\n    return (rows['town'] == 'Ulm') * 0.5 + 0.25\n"
    )
    model, _ = storage.fit_rows(architectures.for_dataset(function_in(tmp_path, text), data.card), data)
    expected = np.where(table["town"] == "Ulm", 0.75, 0.25)
    np.testing.assert_allclose(np.exp(model.log_probs(data.inputs))[:, 1], expected)
    own, reference = features.build("column", data.card), references.build("mean", data, 0)
    found = shortcuts.attribute(
        *(model, data.inputs[:9], np.ones(9, int), {"method": "shapley"}, own, reference, "probability")
    )[0]
    absent = 0.75 if table["town"][data.split == 0].mode()[0] == "Ulm" else 0.25
    np.testing.assert_allclose(found.scores[:, 2], expected[:9] - absent, atol=1e-6)
    assert abs(found.scores[:, [0, 1, 3]]).max() < 1e-9  # what the function does not read has no part in it
    storage.save(model, tmp_path / "weights.safetensors")
    again = storage.fit_rows(storage.load(tmp_path / "weights.safetensors"), data)[0]
    np.testing.assert_array_equal(again.log_probs(data.inputs), model.log_probs(data.inputs))
    card = architectures.measure_card(model, data)
    right = (expected > 0.5) == (table["sold"] == "yes")
    assert card["test_accuracy"] == right[data.split == sources.TEST].mean() and card["framework"] == "function"


def test_a_function_of_images_and_of_a_regression_is_given_arrays(tmp_path):
    card = {"classes": ["a", "b", "c"], "input_shape": [1, 2, 2], "kind": "image", "feature_names": []}
    rows = np.random.default_rng(0).random((5, 1, 2, 2))
    text = "def model(rows):\n    assert rows.shape[1:] == (1, 2, 2)\n    p = rows.mean((1, 2, 3)) / 2\n"
    model = architectures.for_dataset(function_in(tmp_path, text + "    return np.stack([p, p, 1 - 2 * p], 1)\n"), card)
    np.testing.assert_allclose(np.exp(model.log_probs(rows))[:, 0], rows.mean((1, 2, 3)) / 2, rtol=1e-6)
    for wrong in ("    return p\n", "    return np.stack([p, 1 - p], 1)\n"):
        model = architectures.for_dataset(function_in(tmp_path, text + wrong), card)
        with pytest.raises(ShapelineError, match="the dataset has 3 classes; return the probability of each"):
            model.log_probs(rows)
    card = {"classes": [], "input_shape": [2], "kind": "table", "feature_names": ["a", "b"], "task": "regression"}
    model = architectures.for_dataset(function_in(tmp_path, "def model(rows):\n    return 3 * rows[:, 0]\n"), card)
    np.testing.assert_allclose(model.predict(np.array([[1, 2], [5, 7]])), [3, 15])


def _own_step(rows):
    return rows


_own_step.__module__ = "__main__"  # as in a script


def test_types_that_are_not_trusted_are_named(prepared, table, tmp_path):
    data = prepared()
    fitted = make_pipeline(FunctionTransformer(operator.neg), LogisticRegression()).fit(table[["rooms"]], table["sold"])
    with pytest.raises(ShapelineError) as failure:
        opened(fitted, data, tmp_path)
    assert "types that are not trusted: _operator.neg; list them" in str(failure.value)
    model = opened(fitted, data, tmp_path, trusted_types=["_operator.neg"])
    np.testing.assert_allclose(np.exp(model.log_probs(data.inputs)), fitted.predict_proba(table[["rooms"]]), atol=1e-9)
    fitted.steps[0] = ("own", FunctionTransformer(_own_step))
    with pytest.raises(ShapelineError, match=r"__main__\._own_step; .* import your own functions from a \.py file"):
        opened(fitted, data, tmp_path)
    (tmp_path / "own.skops").write_bytes(b"no archive")
    with pytest.raises(ShapelineError, match=r"cannot be read as skops\.io\.dump writes it"):
        architectures.for_dataset({"source": str(tmp_path / "own.skops")}, data.card)


def test_points_with_missing_cells_have_no_distance(prepared):
    data = prepared()
    settings, columns = {"method": "mim"}, features.build("column", data.card)
    with pytest.raises(ShapelineError, match="cells are missing in size, town; fill them"):
        shortcuts.attribute(None, data.inputs[:1], data.labels[:1], settings, columns, None, dataset=data)


def test_a_network_of_ours_takes_no_missing_cells(prepared):
    with pytest.raises(ShapelineError, match=r"'mlp' takes no missing cells, and the dataset has some \(size, town\)"):
        architectures.for_dataset({"architecture": "mlp"}, prepared().card)


def test_documents_from_a_file(tmp_path):
    frame = pd.DataFrame({"remark": ["good food", "bad food", "so good"] * 10, "stars": [1, 0, 1] * 10})
    for file in (tmp_path / "a.csv", tmp_path / "a.parquet"):
        frame.to_csv(file, index=False) if file.suffix == ".csv" else frame.to_parquet(file)
        entry = {"source": "text_file", "path": str(file), "text": "remark", "target": "stars", "length": 5}
        card = preparation.prepare("text_file", entry, [], tmp_path / "data")
        assert card["kind"] == "text" and card["classes"] == ["0", "1"] and card["unit"] == "word"
        assert tokenizer.read_documents(tmp_path / "data", [1]) == ["bad food"]
    entry["text"] = "remarks"
    with pytest.raises(ShapelineError, match=r"has no column .remarks.\. Did you mean 'remark'"):
        checks.read_entry("text_file", entry)
    frame.assign(remark=[None, *frame["remark"][1:]]).to_parquet(file)
    with pytest.raises(ShapelineError, match=r"'remark' is empty in 1 row\(s\), first in row 0"):
        preparation.prepare("text_file", {**entry, "text": "remark"}, [], tmp_path / "data")


# --- Keras files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["softmax", "softmax layer", "sigmoid", "logits"])
def test_a_keras_file_gives_its_own_probabilities(tmp_path, last):
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(1)
    end = {
        "softmax": [keras.layers.Dense(2, activation="softmax")],
        "softmax layer": [keras.layers.Dense(2), keras.layers.Softmax()],
        "sigmoid": [keras.layers.Dense(1, activation="sigmoid")],
        "logits": [keras.layers.Dense(2)],
    }[last]
    own = keras.Sequential([keras.layers.Input((4, 6, 3)), keras.layers.Conv2D(2, 3), keras.layers.Flatten(), *end])
    own.save(tmp_path / "own.keras")
    card = {"classes": ["a", "b"], "input_shape": [3, 4, 6], "kind": "image", "feature_names": []}
    model = architectures.for_dataset({"source": str(tmp_path / "own.keras")}, card)
    rows = np.random.default_rng(0).random((5, 3, 4, 6)).astype(np.float32)
    outputs = own(np.moveaxis(rows, 1, 3)).numpy()
    if last == "sigmoid":
        outputs = np.concatenate([1 - outputs, outputs], 1)
    if last == "logits":
        outputs = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(model.log_probs(rows)), outputs, atol=1e-6)
    storage.save(model, tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(storage.load(tmp_path / "weights.safetensors").log_probs(rows), model.log_probs(rows))
    for wrong, said in (
        ({"classes": ["a", "b", "c"]}, "classes and the dataset 3"),
        ({"input_shape": [1, 4, 6]}, "takes inputs"),
    ):
        with pytest.raises(ShapelineError, match=said):
            architectures.for_dataset({"source": str(tmp_path / "own.keras")}, {**card, **wrong})


def test_a_keras_file_of_series_is_given_series(tmp_path):
    keras = pytest.importorskip("keras")
    layers = keras.layers
    own = keras.Sequential([layers.Input((5, 2)), layers.Conv1D(3, 2), layers.Flatten(), layers.Dense(2, "softmax")])
    own.save(tmp_path / "own.keras")
    card = {
        "classes": ["a", "b"],
        "input_shape": [1, 5, 2],
        "kind": "image",
        "feature_names": [],
        "has_channels": False,
    }
    model = architectures.for_dataset({"source": str(tmp_path / "own.keras")}, card)
    series = np.random.default_rng(0).random((4, 5, 2)).astype(np.float32)
    np.testing.assert_allclose(np.exp(model.log_probs(series[:, None])), own(series), atol=1e-6)
    for outputs, said in (([own.outputs[0]] * 2, "gives 2 outputs; save"), ({"p": own.outputs[0]}, "outputs by name")):
        keras.Model(own.inputs, outputs).save(tmp_path / "own.keras")
        with pytest.raises(ShapelineError, match=said):
            architectures.for_dataset({"source": str(tmp_path / "own.keras")}, card)


def test_a_keras_file_with_code_in_it_is_refused(tmp_path):
    keras = pytest.importorskip("keras")
    own = keras.Sequential([keras.layers.Input((4,)), keras.layers.Lambda(lambda x: x + 1), keras.layers.Dense(2)])
    own.save(tmp_path / "own.keras")
    card = {"classes": ["a", "b"], "input_shape": [4], "kind": "table", "feature_names": list("abcd")}
    with pytest.raises(ShapelineError, match="cannot be read as a Keras file in safe mode"):
        architectures.for_dataset({"source": str(tmp_path / "own.keras")}, card)


# --- the configuration --------------------------------------------------------------------------------------------


@pytest.fixture
def example(root, tmp_path, monkeypatch, table):
    """The example's raw configuration, in a folder with its files (models as empty ones)."""
    own = tmp_path / "examples/own"
    own.mkdir(parents=True)
    for name in ("loans.csv", "reviews.csv", "halves.py", "rule.py", "spread.py", "subwords.py"):
        (own / name).write_bytes((root / "examples/own" / name).read_bytes())
    for name in ("pipeline.skops", "limits.skops", "network.keras", "scores.parquet"):
        (own / name).touch()
    for name in ("cross", "disc"):
        (own / "shapes" / name).mkdir(parents=True)
        (own / "shapes" / name / "0.png").touch()
    monkeypatch.chdir(tmp_path)
    return yaml.safe_load((root / "examples/own/config.yaml").read_text())


def test_the_example_is_valid_and_its_files_are_inputs(example):
    loaded = validation.load(example)
    assert job_code.train_code(loaded, "granting")[-1] == "examples/own/pipeline.skops"
    assert job_code.train_code(loaded, "network")[-1] == "examples/own/network.keras"
    assert (
        job_code.train_code(loaded, "rule")[-1] == "examples/own/rule.py"
        and job_code.find_job_framework(loaded, "rule") == "torch"
    )
    assert any(file.endswith("models/pipeline_file.py") for file in job_code.attribute_code(loaded, "rule", "exact"))
    assert job_code.list_user_files(loaded, "rule") == ["examples/own/rule.py"]
    assert job_code.attribute_code(loaded, "loans", "halves")[-1] == "examples/own/halves.py"
    assert job_code.attribute_code(loaded, "loans", "elsewhere")[-1] == "examples/own/scores.parquet"
    assert job_code.measure_code(loaded, "loans", "own")[-1] == "examples/own/spread.py"
    for label in ("exact", "kernel_shap"):
        assert not any(file.startswith("examples") for file in job_code.attribute_code(loaded, "loans", label))
    assert (
        job_code.find_job_framework(loaded, "granting") == "torch"
        and job_code.find_job_framework(loaded, "network") == "tensorflow"
    )
    assert attribute_settings(loaded, "loans", "halves")["budget"] == 8
    assert derived.find_feature_shape(loaded, loaded.experiments["loans"]) == (6,)
    assert runs.list_entries(loaded, "loans")[-2:] == ["halves", "random"]  # controls are last


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("datasets.loans.target", "grantd", "has no column 'grantd'. Did you mean 'granted'?"),
        ("datasets.loans.path", "examples/own/none.csv", "there is nothing at"),
        ("datasets.loans.path", "loans.csv", "loans.csv; paths start at the folder of the configuration or run"),
        ("datasets.loans.source", "loans.csv", "by path, with source: table_file"),
        ("models.granting.source", "model.pkl", "granting.source: 'model.pkl' is not understood; name path/to/file.py"),
        (
            "datasets.remarks.tokenizer",
            "own.py",
            "tokenizer: 'own.py' is not understood; write path/to/file.py:function",
        ),
        ("datasets.loans.text", "job", "datasets.loans: dataset key 'text': source 'table_file' does not take it"),
        ("datasets.loans", {"source": "examples/own/halves.py:halves", "size": [8, 8]}, "dataset key 'size': source"),
        ("models.granting.source", "examples/own/none.skops", "models.granting.source: there is no file"),
        ("models.granting.source", "examples/own/model.pkl", "models.granting.source"),
        ("models.granting.training", {"epochs": 3}, "models.granting.training: the model in"),
        ("models.granting.dataset", "remarks", "takes the texts themselves; set datasets.remarks.tokenizer: text"),
        ("datasets.remarks.tokenizer", "text", "models.opinions.dataset: datasets.remarks.tokenizer is text, which is"),
        ("models.network.dataset", "remarks", "the file has a vocabulary of its own"),
        ("models.network.trusted_types", ["x"], "only the types of a .skops file are checked"),
        ("models.rule.source", "examples/own/rule.py:grantd", "has no function 'grantd'. Did you mean 'granted'?"),
        (
            "models.rule.source",
            "examples/own/halves.py:halves",
            "requires d, budget, seed and is called only with rows;",
        ),
        ("models.rule.source", "examples/own/pipeline.skops", "function is of a source path/to/file.py:function"),
        ("models.rule.training", {"epochs": 0}, "models.rule.training: the model in"),
        ("models.opinions.framework", "function", "function is of a source path/to/file.py:function"),
        ("experiments.rule.value", "logit", "a function gives probabilities and no logit"),
        ("experiments.rule.metrics.randomisation", {}, "cannot be randomised"),
        ("experiments.rule.methods.gradient", {"method": "saliency"}, "of a network, which a function has not"),
        ("experiments.rule.methods.deep", {"method": "deep_lift"}, "a torch model and models.rule is of function"),
        ("experiments.loans.value", "logit", "a pipeline gives probabilities and no logit"),
        ("experiments.loans.metrics.ablation", {}, "metrics.ablation: it needs a logit"),
        ("experiments.loans.metrics.randomisation", {}, "cannot be randomised"),
        ("experiments.loans.methods.halves.method", "examples/own/non.py:halves", "methods.halves.method: "),
        ("experiments.loans.methods.halves.method", "examples/own/halves.py:halfs", "Did you mean 'halves'?"),
        ("experiments.loans.methods.halves.parameters", {"pared": 1}, "parameters: 'pared' is not a parameter"),
        ("experiments.loans.methods.halves.bugdet", 3, "unknown key. Did you mean 'budget'?"),
        ("experiments.loans.methods.exact.method", "shaply", "unknown method 'shaply'. Did you mean 'shapley'?"),
        ("experiments.loans.methods.elsewhere.path", "none.parquet", "elsewhere.path: there is no file none.parquet"),
        (
            "experiments.loans.metrics.own.functions",
            {"spread": "examples/own/spread.py:spred"},
            "metrics.own.functions.spread: examples/own/spread.py: has no function 'spred'. Did you mean 'spread'?",
        ),
        ("experiments.loans.methods.gradient", {"method": "saliency"}, "needs the derivative of a network"),
        ("experiments.limits.value", "log_probability", "is of regression and has no log_probability"),
    ],
)
def test_a_mistake_is_one_line_before_any_job(example, path, value, said):
    raw = copy.deepcopy(example)
    builders.put(raw, path, value)
    with pytest.raises(ShapelineError) as failure:
        validation.load(raw)
    assert said in str(failure.value), str(failure.value)


def test_a_table_with_a_size_has_one_mistake(example):
    raw = copy.deepcopy(example)
    builders.put(raw, "datasets.loans.size", [8, 8])
    with pytest.raises(ShapelineError, match="'size': source 'table_file' does not take it; remove the key") as failure:
        validation.load(raw)
    assert "\n" not in str(failure.value)


def test_a_keras_file_of_texts_is_pointed_to_a_function(example):
    raw = copy.deepcopy(example)
    raw["datasets"]["remarks"]["tokenizer"] = "text"
    raw["models"]["opinions"] = {"dataset": "remarks", "source": "words.keras"}
    with pytest.raises(
        ShapelineError, match=r"keras.saving.load_model\('words.keras'\).*source: model.py:predict, frame"
    ):
        validation.load(raw)


def test_the_split_can_be_requested_before_a_model_exists(table, tmp_path):
    """As docs/own_data.md has it: by the dataset's own keys, and the same as the run's."""
    table.to_csv(tmp_path / "own.csv", index=False)
    entry = {"path": str(tmp_path / "own.csv"), "target": "sold"}
    settings = {"source": "table_file", "seed": 0, **entry}  # what plan.prepare_settings makes of the same keys
    preparation.prepare("table_file", entry, [], tmp_path / "split")
    preparation.prepare("table_file", settings, [], tmp_path / "run")
    one, other = (loading.load(tmp_path / name) for name in ("split", "run"))
    assert (one.split == other.split).all() and (one.ids == other.ids).all() and (one.split == 0).any()


# --- one's own method ---------------------------------------------------------------------------------------------


def own(tmp_path, text: str) -> str:
    (tmp_path / "own.py").write_text("import numpy as np\nfrom shapeline.designs.design import Design\n" + text)
    return f"{tmp_path / 'own.py'}:make"


def explained(method: dict, budget: float | None = None, shape: tuple = (4,)):
    d = int(np.prod(shape))
    weights = np.arange(1, d + 1) / (2 * d * d)

    def model(rows):
        return 0.2 + rows.reshape(len(rows), -1) @ weights

    kind = features.Features("column", (d,), np.arange(d, dtype=np.int32))
    inputs = np.ones((2, d), np.float32)
    return shortcuts.attribute(
        *(adapters.wrap(model), inputs, np.ones(2, int), method, kind),
        *(references.Reference(np.zeros((1, d), np.float32)), "probability", [budget], 5),
    )[0].scores, weights


def test_a_custom_design_runs_as_a_registered_one(tmp_path, root):
    loo = own(tmp_path, "def make(d):\n    return Design(np.eye(d, dtype=bool), np.eye(d) * 1.0)\n")
    scores, weights = explained({"method": loo})
    np.testing.assert_allclose(scores[0], 0.2 + weights, atol=1e-6)
    scores, weights = explained({"method": f"{root}/examples/own/halves.py:halves"}, 64)
    np.testing.assert_allclose(scores[1], weights, atol=1e-6)  # additive, and 256 draws of 16 coalitions meet them all


def test_a_custom_method_in_one_call(root):
    found = shapeline.explain(
        lambda rows: 0.5 + rows @ [0.1, 0.2, -0.1],
        *(np.eye(3), f"{root}/examples/own/halves.py:halves", "zero", "column"),
        budget=8,
        target=1,
        parameters={"paired": False},
    )
    np.testing.assert_array_equal(np.sign(found.scores.round(6)).diagonal(), [1, 1, -1])


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("halves", {"parameters": {"pared": False}}, "halves.py:halves. Did you mean 'paired'?"),
        ("halves", {"paired": False}, "there is no parameter 'paired'; give those of the function as parameters={'pa"),
        ("halfs", {}, "has no function 'halfs'. Did you mean 'halves'?"),
        ("own", {"evaluations": 2}, "evaluations is 2 and own always evaluates 4 coalitions of 4 features; raise it"),
    ],
)
def test_a_mistake_with_a_custom_method_in_one_call(tmp_path, root, name, given, words):
    """A misspelled parameter was ignored."""
    loo = own(tmp_path, "def make(d):\n    return Design(np.eye(d, dtype=bool), np.eye(d) * 1.0)\n")
    method = loo if name == "own" else f"{root}/examples/own/halves.py:{name}"
    words = words.replace("own always", f"{loo} always")
    with pytest.raises(ShapelineError, match=re.escape(words)):
        shapeline.explain(lambda rows: rows @ np.ones(4), np.eye(4), method, "zero", value="prediction", **given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def make(d):\n    return np.eye(d)\n", "returned an ndarray; return a Design of 4 features"),
        ("def make(d):\n    return Design(np.eye(3, dtype=bool), np.eye(3))\n", "a Design of 3 features"),
        ("def make(d):\n    return Design(np.eye(d, dtype=bool), np.eye(d) / 0)\n", "a readout that is not finite"),
        (
            "def make(d, budget):\n    masks = np.array([*np.ndindex(*[2] * d)], bool)\n"
            "    return Design(masks, np.zeros((d, 2**d)))\n",
            "returned 16 coalitions; return at most 8, the budget",
        ),
        ("def make(d):\n    return Design(np.eye(d, dtype=int), np.eye(d))\n", "own.py:make: design: masks are int64"),
        (
            "def make(d):\n    return Design(np.ones((2, d), bool), np.ones((d, 2)))\n",
            "own.py:make: returned 1 of 2 coalitions again; return each once",
        ),
        (
            "def make(d):\n    return {}['weights']\n",
            r"own.py:make': KeyError: 'weights' \(own.py, line 4\); correct the",
        ),
        ("def make(d)\n", r"own.py:make': SyntaxError: expected ':' \(own.py, line 3\); correct the file"),
        ("import sys\nsys.exit(2)\n", r"own.py:make': SystemExit: 2 \(own.py, line .\); run what ends the program un"),
    ],
)
def test_a_custom_function_must_return_a_design(tmp_path, text, said):
    with pytest.raises(ShapelineError, match=said), np.errstate(all="ignore"):
        explained({"method": own(tmp_path, text)}, 2.0 if "budget" in text else None)


@pytest.mark.parametrize(
    ("text", "entry", "said"),
    [
        ("def make(d):\n    ...\n", {"budget": 3.0}, "methods.mine.budget: .* takes no budget"),
        ("def make(d, width):\n    ...\n", {}, "'width' is missing"),
        ("def make(d, graph):\n    ...\n", {}, "takes a graph and features of kind 'column' lack one"),
        ("def other(d):\n    ...\n", {}, "has no function 'make'"),
        ("def make(d:\n    ...\n", {}, "cannot be read"),
        ("raise SystemExit('run')\ndef make(d):\n    ...\n", {}, None),  # read, not run
    ],
)
def test_custom_files_are_checked_without_running_them(example, tmp_path, text, entry, said):
    example["experiments"]["loans"]["methods"] = {"mine": {"method": own(tmp_path, text), **entry}}
    example["experiments"]["loans"]["metrics"] = {"cost": {}}
    if said is None:
        assert "budget" not in attribute_settings(validation.load(example), "loans", "mine")
        return
    with pytest.raises(ShapelineError, match=said):
        validation.load(example)


def test_a_custom_metric_gives_a_number_per_row(tmp_path, root):
    rows = pd.DataFrame({"instance": [3, 4], "repeat": 0, "scores": [[1.0, -1.0, 0.0], [0.0, 0.0, 2.0]]})
    file = tmp_path / "own.py"
    file.write_text("def total(rows, seed):\n    return rows['instance'] + seed\ndef wrong(rows):\n    return [1]\n")
    functions = {"spread": f"{root}/examples/own/spread.py:spread", "total": f"{file}:total"}
    found = metric_needs.measure("own", rows, {"functions": functions, "seed": 5})
    values = found.set_index(["statistic", "instance"])["value"]
    np.testing.assert_allclose(values["spread"], [2, 1])
    assert list(values["total"]) == [8, 9] and found["x"].isna().all()
    with pytest.raises(ShapelineError, match=r"metric bad: .* returned int64 of shape \(1,\); return 2 numbers"):
        metric_needs.measure("own", rows, {"functions": {"bad": f"{file}:wrong"}})
    file.write_text("import nothing_such\ndef total(rows):\n    return 0\n")
    with pytest.raises(
        ShapelineError, match=r"metric bad: .*:total: ModuleNotFoundError: .*; correct the file"
    ) as failure:
        metric_needs.measure("own", rows, {"functions": {"bad": f"{file}:total"}})
    assert isinstance(failure.value.__cause__, ModuleNotFoundError)


def test_a_custom_metric_receives_its_named_arguments(example, tmp_path):
    file = tmp_path / "own.py"
    file.write_text("def one(row, seed=1, more=2):\n    ...\n")
    example["experiments"]["loans"]["metrics"]["own"] = {"functions": {"one": f"{file}:one"}}
    with pytest.raises(
        ShapelineError, match=r"own.functions.one: .*:one requires row and is called only with rows, model, .* seed;"
    ):
        validation.load(example)


# --- scores made elsewhere ----------------------------------------------------------------------------------------

KIND = features.Features("column", (3,), np.arange(3, dtype=np.int32), ("a", "b", "c"))


def external_rows(tmp_path, table: pd.DataFrame, suffix: str = "parquet", instances=(5, 2, 9)):
    file = tmp_path / f"scores.{suffix}"
    signs = {
        "csv": {},
        "excel.csv": {"sep": ";", "decimal": ","},
        "r.tsv": {"sep": "\t", "quoting": csv.QUOTE_NONNUMERIC},
    }
    table.to_csv(file, index=False, **signs[suffix]) if suffix in signs else table.to_parquet(file)
    data = np.zeros((len(instances), 3), np.float32)
    return shortcuts.attribute(
        *(None, data, np.ones(len(instances), int), {"method": "external", "path": str(file)}, KIND, None),
        instances=instances,
    )[0]


@pytest.mark.parametrize("suffix", ["csv", "excel.csv", "r.tsv", "parquet"])
def test_scores_by_column_come_by_instance_and_by_name(tmp_path, suffix):
    table = pd.DataFrame({"instance": [2, 5], "c": [3.5, 30], "a": [1.5, 10], "b": [2.5, 20], "evaluations": [0, 7]})
    found = external_rows(tmp_path, table, suffix)
    np.testing.assert_array_equal(found.scores[:2], [[10, 20, 30], [1.5, 2.5, 3.5]])
    assert found.status == ["ok", "ok", "not in the file"] and np.isnan(found.scores[2]).all()
    assert "no row of instance 9" in found.error[2]
    assert found.warning == [None, external.NO_COUNT, None] and list(found.evaluations[:2]) == [7, 0]
    assert np.isnan(found.seconds[:2]).all()


def test_scores_as_lists_and_for_other_classes(tmp_path):
    table = pd.DataFrame(
        {"instance": [2, 5, 9], "target": [1, 1, 0], "scores": [[1, 2, 3], [1, 2], [1, 2, 3]], "seconds": [0.5] * 3}
    )
    found = external_rows(tmp_path, table, instances=(2, 5, 9))
    assert found.status == ["ok", "other features", "other class"] and found.seconds[0] == 0.5
    assert "explains class 0 of instance 9" in found.error[2]
    gap = external_rows(tmp_path, table.assign(target=[1, None, 0]), instances=(2, 5, 9))
    assert "explains no class of" in gap.error[1] and "explains class 0 of" in gap.error[2]
    table = table.assign(scores=[[1, 2, np.nan]] * 3, target=1)
    assert set(external_rows(tmp_path, table).status) == {"not finite"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pd.DataFrame({"id": [1]}), "it has no column 'instance'"),
        (pd.DataFrame({"instance": [1, 1], "a": 1.0, "b": 1.0, "c": 1.0}), "instance 1 has several rows"),
        (
            pd.DataFrame({"instance": [1, 1], "target": 0, "a": 1.0, "b": 1.0, "c": 1.0}),
            "several rows; give one an instance and target",
        ),
        (pd.DataFrame({"instance": [1], "a": "x", "b": 1.0, "c": 1.0}), "column 'a' holds no numbers"),
    ],
)
def test_a_file_of_scores_that_cannot_be_used_ends_the_job(tmp_path, table, said):
    with pytest.raises(ShapelineError, match=said) as failure:
        external_rows(tmp_path, table)
    assert not isinstance(failure.value, MethodFailure)


# --- out ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    """A score file of two instances, three repeats, names, and one row that failed."""
    rows = pd.DataFrame(
        {
            "instance": [4, 4, 7, 7],
            "target": 1,
            "repeat": [0, 1, 0, 1],
            "budget": 2.0,
            "scores": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], None],
            "value_empty": [0.5, 0.5, 0.25, 0.25],
            "status": ["ok", "ok", "ok", "no design"],
        }
    )
    path = tmp_path / "scores" / "0-of-1.parquet"
    scores.write(path, rows, {"features": {"names": ["age", "debt"]}})
    return path


def test_scores_go_out_as_csv(written, tmp_path):
    for source in (written, written.parent):
        scores.to_csv(source, tmp_path / "out.csv")
        table = pd.read_csv(tmp_path / "out.csv")
        assert (
            list(table["age"][:3]) == [1, 3, 5]
            and np.isnan(table["debt"][3])
            and list(table["instance"]) == [4, 4, 7, 7]
        )
    scores.to_csv(scores.read(written), tmp_path / "out.csv", ["x", "y"])
    assert list(pd.read_csv(tmp_path / "out.csv")["y"][:3]) == [2, 4, 6]


def test_scores_go_out_as_an_explanation_of_shap(written):
    pytest.importorskip("shap")
    found = scores.to_shap(written, data=np.array([[40, 3], [50, 1]]))
    np.testing.assert_array_equal(found.values, [[2, 3], [5, 6]])  # means over repeats; failures left out
    np.testing.assert_array_equal(found.base_values, [0.5, 0.25])
    assert found.feature_names == ["age", "debt"] and found.data[1, 0] == 50


def test_without_shap_the_installation_is_named(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ShapelineError, match=r"pip install 'shapeline\[peers\]'"):
        scores.to_shap(written)


def test_folders_whose_rows_come_in_other_orders_raise_no_warning(tmp_path):
    for side, labels in (("a", ["lime", "exact", "occlusion"]), ("b", ["occlusion", "lime"])):
        for label in labels:
            rows = pd.DataFrame({"method": label, "instance": [7, 2] if side == "a" else [2, 9, 7], "repeat": 0})
            rows = rows.assign(statistic="rmse", x=np.nan, value=1.0, metric="error", training_seed=0)
            scores.write_measured(tmp_path / side / f"loans/metrics/measured/{label}.parquet", rows, {})
    with warnings.catch_warnings(action="error"):
        found = folders.compare_folders(tmp_path / "a", tmp_path / "b").set_index("method")
    assert found["shared"].to_dict() == {"exact": 0, "lime": 2, "occlusion": 2}
    for side in ("a", "b"):  # occlusion is no longer configured, and its file remains
        pd.DataFrame({"method": ["exact", "lime"]}).to_parquet(tmp_path / side / "loans/metrics/compared.parquet")
    assert folders.compare_folders(tmp_path / "a", tmp_path / "b")["method"].tolist() == ["exact", "lime"]


def test_two_folders_side_by_side(tmp_path, capsys):
    for side, shift in (("a", 0.0), ("b", 1.0)):
        n = 4 if side == "a" else 3
        rows = pd.DataFrame(
            {
                "method": "lime",
                "instance": np.arange(n),
                "repeat": 0,
                "statistic": "rmse",
                "x": np.nan,
                "value": np.arange(n) + shift,
                "metric": "error",
                "training_seed": 0,
            }
        )
        curve, other = rows.assign(x=0.5, statistic="rmse_by_budget"), rows.assign(training_seed=1, value=9.0)
        again = [rows.iloc[:1].assign(repeat=1), rows.iloc[1:2].assign(repeat=1, value=np.inf)]  # instances count once
        parts = [rows, curve, other, *again]
        scores.write_measured(tmp_path / side / "loans/metrics/measured.parquet", pd.concat(parts), {})
    table = folders.compare_folders(tmp_path / "a", tmp_path / "b")
    (row,) = table.to_dict("records")
    assert row["experiment"] == "loans" and row["method"] == "lime" and row["better"] == "lower" and row["shared"] == 3
    assert row["a"] == 1.5 and row["b"] == 2 and row["difference"] == row["low"] == row["high"] == 1
    folders.main([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "out.csv")])
    assert "rmse" in capsys.readouterr().out and len(pd.read_csv(tmp_path / "out.csv")) == 1
    with pytest.raises(SystemExit, match="holds no measurements"):
        folders.main([str(tmp_path / "a"), str(tmp_path / "none")])


# --- what the documentation shows of it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block", [one for one in BLOCKS if one.mark == "by tests/unit/test_own_data.py"], ids=lambda one: one.page
)
def test_the_python_code_of_the_documentation_runs_with_user_files(block, tmp_path, root, monkeypatch):
    """A file, a pipeline, a model with its inputs, and a package that nothing else needs are put in their places."""
    (tmp_path / "examples/own").mkdir(parents=True)
    (tmp_path / "examples/own/halves.py").write_bytes((root / "examples/own/halves.py").read_bytes())
    (tmp_path / "loans.csv").write_bytes((root / "examples/own/loans.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=SimpleNamespace(from_file=str.upper)))
    readers = {
        "pipeline": make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()),
        "model": lambda rows: rows.mean((1, 2, 3)),
        "inputs": np.random.default_rng(0).random((3, 1, 4, 4)),
        "shapeline": shapeline,
    }
    exec(compile(block.body, block.page, "exec"), readers)
    assert "tokenizer" not in readers or readers["tokenizer"]() == "TOKENIZER.JSON"
    assert "skops" not in readers or (tmp_path / "pipeline.skops").exists()
