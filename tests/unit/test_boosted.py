"""Trees of XGBoost, LightGBM and CatBoost: TreeSHAP against all coalitions, and their files as models."""

import numpy as np
import pandas as pd
import pytest

import shapeline
from shapeline.attribution.run import Options, attribute
from shapeline.config import validation
from shapeline.datasets import loading, preparation
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.methods import tree_shap
from shapeline.methods.settings import parse
from shapeline.models import adapters, architectures, classifier, registry, storage
from tests.unit.test_model_truth import BINARY, LABELS, TARGET, X, check, explain

HOLES = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.float32(np.nan), X)
TREES = {"xgboost": "n_estimators", "lightgbm": "n_estimators", "catboost": "iterations"}
QUIET = {
    "xgboost": {"n_jobs": 1},
    "lightgbm": {"verbosity": -1, "num_threads": 1, "min_child_samples": 5},
    "catboost": {"verbose": 0, "allow_writing_files": False, "thread_count": 1},
}
NAMES = {"xgboost": "XGB", "lightgbm": "LGBM", "catboost": "CatBoost"}


def boosted(package, kind="Classifier", trees=12, **settings):
    library = pytest.importorskip(package)
    return getattr(library, f"{NAMES[package]}{kind}")(**{TREES[package]: trees}, **QUIET[package], **settings)


@pytest.mark.parametrize("package", NAMES)
def test_the_scores_are_those_of_all_coalitions(package):
    model = adapters.wrap(boosted(package).fit(X, BINARY))
    for target in (0, 1):
        check(model, "tree_shap", "margin", X[50:54], targets=np.full(5, target))
    check(model, "tree_shap", "log_odds", X[50:51])
    classes = adapters.wrap(boosted(package).fit(X, LABELS))
    check(classes, "tree_shap", "centred_logit", X[50:53], targets=np.array([0, 1, 2, 0, 1]))
    check(adapters.wrap(boosted(package, "Regressor").fit(X, TARGET)), "tree_shap", "prediction", X[50:53])


@pytest.mark.parametrize("package", NAMES)
def test_missing_cells_go_where_the_trees_send_them(package):
    for seen in (HOLES, X):  # with holes in training and without
        model = adapters.wrap(boosted(package).fit(seen, BINARY))
        check(model, "tree_shap", "margin", HOLES[40:43], inputs=HOLES[:5])


@pytest.mark.parametrize(
    ("package", "settings", "fitting"),
    [
        ("xgboost", {"early_stopping_rounds": 2, "trees": 40}, {"eval_set": [(X, 1 - BINARY)], "verbose": False}),
        ("xgboost", {"objective": "multi:softprob", "num_class": 2}, {}),
        ("xgboost", {"num_parallel_tree": 3, "subsample": 0.6}, {}),
        ("xgboost", {"missing": -9.0}, {}),
        ("lightgbm", {"objective": "multiclass", "num_class": 2}, {}),
        ("lightgbm", {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}, {}),
        ("catboost", {"grow_policy": "Lossguide", "max_leaves": 7}, {}),
        ("catboost", {"loss_function": "MultiClass"}, {}),
        ("catboost", {"nan_mode": "Max"}, {}),
    ],
)
def test_trees_of_other_kinds(package, settings, fitting):
    given = HOLES if "nan_mode" in settings else np.nan_to_num(HOLES, nan=settings.get("missing", 0.0))
    given = given if {"nan_mode", "missing"} & set(settings) else X
    model = adapters.wrap(boosted(package, **settings).fit(given, BINARY, **fitting))
    check(model, "tree_shap", "margin", given[50:53], inputs=given[:5])


def test_margins_keep_their_digits():
    """XGBoost's own probabilities are of single precision, whose log-odds of 13 miss by hundredths."""
    clear = {"learning_rate": 1.0, "min_child_weight": 0, "reg_lambda": 0}
    model = adapters.wrap(boosted("xgboost", trees=40, **clear).fit(X, (X[:, 0] > 0).astype(int)))
    assert np.abs(check(model, "tree_shap", "margin", X[50:52]).value_full).max() > 13


@pytest.mark.parametrize("package", NAMES)
def test_a_frame_from_python(package):
    frame = pd.DataFrame(X, columns=list("uvwxyz"))
    model = boosted(package).fit(frame, np.where(BINARY, 1, 0))
    details = frame.assign(note="none")[["note", *"zyxwvu"]]  # columns of no interest, in another order
    own, exact = (
        shapeline.explain(model, details[:4], method, background=details[20:26], value="margin")
        for method in ("tree_shap", "shapley")
    )
    np.testing.assert_allclose(own.scores, exact.scores, atol=1e-5)
    assert own.feature_names == tuple("uvwxyz") and np.abs(own.scores).max() > 0.1
    number = boosted(package, "Regressor").fit(frame, TARGET)
    assert shapeline.explain(number, frame[:2], "tree_shap", background=frame[:9]).scores.shape == (2, 6)


@pytest.mark.parametrize(
    ("package", "settings", "labels", "value", "said"),
    [
        ("xgboost", {}, BINARY, "probability", "add up to its margin, not to probability; set value to 'margin'"),
        ("lightgbm", {}, BINARY, "log_odds", "before log_odds is taken, and no sum is left; set value to 'margin'"),
        ("catboost", {}, LABELS, "margin", "add up to its centred_logit, not to margin"),
        ("xgboost", {"booster": "gblinear"}, BINARY, "margin", "XGBoost's gblinear is not a sum of trees"),
        ("xgboost", {"multi_strategy": "multi_output_tree"}, LABELS, "centred_logit", "trees of several outputs"),
        ("lightgbm", {"zero_as_missing": True}, BINARY, "margin", "takes 0 for missing"),
        ("lightgbm", {"categorical_feature": [2]}, BINARY, "margin", "LGBMClassifier splits by categories"),
    ],
)
def test_what_is_no_sum_is_refused_in_a_line(package, settings, labels, value, said):
    given = np.round(np.abs(X)) if "categorical_feature" in settings else X
    model = adapters.wrap(boosted(package, **settings).fit(given, labels))
    with pytest.raises(ShapelineError, match=said) as caught:
        explain(model, "tree_shap", value, given[50:52], inputs=given[:5])
    assert "\n" not in str(caught.value)


def written(package, model, folder):
    """A model in the file of its own package."""
    path = folder / {"xgboost": "own.ubj", "lightgbm": "own.txt", "catboost": "own.cbm"}[package]
    (model.booster_ if package == "lightgbm" else model).save_model(str(path))
    return path


@pytest.fixture
def table():
    """Numbers with missing cells, and a class by name."""
    frame = pd.DataFrame(HOLES, columns=list("uvwxyz")).astype(float)
    return frame.assign(sold=np.where(BINARY, "yes", "no"), price=TARGET)


@pytest.fixture
def prepared(table, tmp_path):
    """prepared(**entry) -> the dataset of a file that holds the table, without the other target."""

    def prepare(target="sold", table=table, **entry):
        table.to_csv(tmp_path / "own.csv", index=False)
        columns = [name for name in table if name not in ("sold", "price")]
        entry = {
            "source": "table_file",
            "path": str(tmp_path / "own.csv"),
            "target": target,
            "columns": columns,
            **entry,
        }
        preparation.prepare("table_file", entry, [], tmp_path / "data")
        return loading.load(tmp_path / "data")

    return prepare


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("package", NAMES)
def test_the_file_of_a_model_gives_the_outputs_of_the_model(package, named, prepared, table, tmp_path):
    rows = table[list("wvuxyz" if named else "uvwxyz")]
    fit = rows if named else rows.to_numpy()
    model = boosted(package).fit(fit, table["sold"] if package == "catboost" else BINARY)
    source = written(package, model, tmp_path)
    data = prepared()
    read = architectures.for_dataset({"source": str(source)}, data.card)
    np.testing.assert_allclose(np.exp(read.log_probs(data.inputs)), model.predict_proba(fit), atol=1e-6)
    features = Features("column", (6,), np.arange(6, dtype=np.int32))
    game = Game(read, Reference(data.inputs[50:53]), features, "margin")
    scores, _ = tree_shap.tree_shap(game, data.inputs[:4], BINARY[:4], data)
    (exact,) = attribute(game, data.inputs[:4], BINARY[:4], parse({"method": "shapley"}), Options())
    np.testing.assert_allclose(scores, exact.scores, atol=1e-5)
    again = architectures.restore(
        {**classifier.start_card(read), "task": read.task, "vocabulary_digest": None},
        architectures.collect_arrays(read),
    )
    np.testing.assert_array_equal(again.log_probs(data.inputs), read.log_probs(data.inputs))


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        *((package, {}) for package in NAMES),
        ("catboost", {"loss_function": "Poisson"}),
        ("lightgbm", {"objective": "poisson"}),
        ("xgboost", {"objective": "binary:logistic"}),
    ],
)
def test_a_regression_in_its_own_file(package, settings, prepared, table, tmp_path):
    model = boosted(package, "Regressor", **settings).fit(table[list("uvwxyz")], np.abs(TARGET).clip(0, 1))
    source = written(package, model, tmp_path)
    data = prepared("price", task="regression")
    read = architectures.for_dataset({"source": str(source)}, data.card)
    np.testing.assert_allclose(read.predict(data.inputs), model.predict(table[list("uvwxyz")]), atol=1e-5)
    with pytest.raises(ShapelineError, match="holds no classifier; set the dataset's task: regression"):
        architectures.for_dataset({"source": str(source)}, prepared().card)


@pytest.mark.parametrize("package", NAMES)
def test_a_file_that_does_not_fit_is_one_line(package, prepared, table, tmp_path):
    def refused(said, data):
        with pytest.raises(ShapelineError, match=said) as caught:
            architectures.for_dataset({"source": str(source)}, data.card)
        assert "\n" not in str(caught.value)

    source = written(package, boosted(package).fit(table[list("uvwxyz")], LABELS), tmp_path)
    refused("has the classes 0, 1, 2 and the dataset has no, yes", prepared())
    refused("needs the column 'z', which the dataset lacks", prepared(table=table.drop(columns="z")))
    source.write_bytes(b"")
    refused(f"cannot be read as a file of {package}", prepared())
    source.write_bytes(b"pickled")
    refused(f"cannot be read as a file of {package}", prepared())
    source = written(package, boosted(package).fit(HOLES, BINARY), tmp_path)
    refused("takes 6 columns and the dataset has 5", prepared(table=table.drop(columns="z")))
    refused(r"numbers its classes, .* write classes: \['no', 'yes'\]", prepared(classes=["yes", "no"]))
    if package != "catboost":
        rows = table[list("uvwxyz")].assign(z=pd.Categorical(BINARY))
        model = boosted(package, **({"enable_categorical": True} if package == "xgboost" else {}))
        source = written(package, model.fit(rows, BINARY), tmp_path)
        refused("was fitted on categories of pandas, which its rows are not", prepared(table=table.assign(z=BINARY)))
        source = written(package, boosted(package).fit(HOLES, BINARY), tmp_path)
    coded = table.assign(z=np.where(BINARY, "a", "b"))
    refused("takes numbers and column 'z' holds categories", prepared(table=coded))


def test_catboost_codes_texts_by_itself(prepared, table, tmp_path):
    table = table.assign(z=np.where(X[:, 5] > 0, "up", "down"))
    model = boosted("catboost", cat_features=["z"]).fit(table[list("uvwxyz")], table["sold"])
    data = prepared(table=table)
    read = architectures.for_dataset({"source": str(written("catboost", model, tmp_path))}, data.card)
    read, data = storage.fit_rows(read, data)
    np.testing.assert_allclose(
        np.exp(read.log_probs(data.inputs)), model.predict_proba(table[list("uvwxyz")]), atol=1e-6
    )
    with pytest.raises(
        ShapelineError,
        match="a CatBoostClassifier of texts or categories is unsupported; use gp_shapley or kernel_shap",
    ):
        shapeline.explain(model, table[list("uvwxyz")][:2], "tree_shap", background=table[9:12], value="margin")


def described(**model):
    return {
        "run": ["one"],
        "datasets": {"loans": {"source": "table_file", "path": "loans.csv", "target": "granted"}},
        "models": {"mine": {"dataset": "loans", **model}},
        "experiments": {
            "one": {
                "model": "mine",
                "features": {"kind": "column"},
                "value": "margin",
                "methods": {"trees": {"method": "tree_shap"}},
                "metrics": {"cost": {}},
            }
        },
    }


@pytest.mark.parametrize("name", ["m.json", "m.ubj", "m.txt", "m.cbm"])
def test_a_configuration_of_a_file_is_checked_before_any_job(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loans.csv").write_text("age,income,granted\n1,2,no\n")
    (tmp_path / name).write_bytes(b"")
    raw, package = described(source=name), registry.BOOSTED[name[1:]]
    monkeypatch.setattr(registry, "is_installed", lambda package: True)
    validation.load(raw)
    raw["experiments"]["one"]["methods"]["line"] = {"method": "linear_shap"}
    with pytest.raises(ShapelineError, match=f"linear_shap reads linear models, and {name} holds trees; use tree_shap"):
        validation.load(raw)
    monkeypatch.setattr(registry, "is_installed", lambda package: False)
    with pytest.raises(ShapelineError, match=rf"source: it cannot be read: {package} .*'shapeline\[boosted\]'"):
        validation.load(described(source=name))


def test_unknown_file_endings_list_the_supported_ones():
    for name in ("m.pkl", "m.model", "m.bin"):
        with pytest.raises(
            ShapelineError, match=r"one of XGBoost \(.json, .ubj\), LightGBM \(.txt\) or CatBoost \(.cbm\)"
        ):
            validation.load(described(source=name))
