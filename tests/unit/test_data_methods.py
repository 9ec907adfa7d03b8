"""Influence measures as methods: hand-computed scores of the training part, counts, and runs without a model."""

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from shapeline import influence
from shapeline.attribution import provenance, selection
from shapeline.attribution.context import ExplanationContext
from shapeline.config import validation
from shapeline.datasets import sources
from shapeline.datasets.loading import Dataset
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.methods import labelled_points, registry
from shapeline.models.classifier import Classifier
from shapeline.workflow import job_code, runs
from shapeline.workflow.jobs import attribute_settings, report_settings, select_settings
from shapeline.workflow.jobs import list_expected_outputs as _expected
from tests.unit import shortcuts

DATA = [name for name, method in registry.METHODS.items() if method.family == "data"]
COLUMNS = Features("column", (2,), np.array([0, 1], np.int32), ("a", "b"))
BOTH = Features("group", (1,), np.array([0, 0], np.int32))


def records(inputs, labels, split, task="classification", kind="table") -> Dataset:
    """Records whose ids run backwards from 90, so that an id is no position."""
    inputs = np.asarray(inputs, np.float32)
    card = {"kind": kind, "task": task, "feature_names": ["a", "b"], "classes": ["no", "yes"]}
    return Dataset(inputs, np.asarray(labels), np.asarray(split, np.uint8), 90 - np.arange(len(inputs)), card)


# Two training points, one of validation that must not count, and the point explained: (0, 0) with label 1 and id 87.
CROSS = records([[1, 0], [0, 2], [0.1, 0.1], [0, 0]], [1, 0, 0, 1], [0, 0, 1, 2])


def explained(method: str, dataset: Dataset = CROSS, features: Features = COLUMNS, model=None, **parameters):
    (found,) = shortcuts.attribute(
        model,
        dataset.inputs[-1:],
        np.array([0]),  # a prediction, which the measures do not ask
        {"method": method, **parameters},
        features,
        None,
        instances=dataset.ids[-1:],
        dataset=dataset,
    )
    return found


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({}, [1, -0.5]), ({"alpha": "constant"}, [1, -2]), ({"alpha": "gaussian", "width": 2.0}, None)],
)
def test_mim_by_hand(parameters, expected):
    expected = expected or [np.exp(-1 / 8), -2 * np.exp(-1 / 2)]
    found = explained("mim", dtype="float64", **parameters)
    assert found.scores[0] == pytest.approx(expected, rel=1e-9)
    assert found.evaluations.tolist() == [0] and found.warning == [None] and np.isnan(found.value_full).all()
    assert explained("mim", features=BOTH, **parameters).scores[0] == pytest.approx([sum(expected)], rel=1e-5)


def test_parzen_by_hand():
    weights = np.exp([-1 / 8, -4 / 8]) / np.exp([-1 / 8, -4 / 8]).sum()
    expected = [weights[0] * (1 - weights[0]) / 4, -weights[1] * weights[0] * 2 / 4]
    assert explained("parzen", sigma=2.0, dtype="float64").scores[0] == pytest.approx(expected, rel=1e-9)


def test_data_lime_is_the_weighted_ridge_fit():
    weights = np.exp(-np.array([1.0, 4.0]) / (2 * 1.5**2))  # sqrt(exp(-r^2 / rho^2))
    rows = np.array([[1, 0, 1], [0, 2, 1]])  # y - x and the intercept
    normal = rows.T @ (weights[:, None] * rows) + np.diag([0.5, 0.5, 0])
    expected = np.linalg.solve(normal, rows.T @ (weights * [1, -1]))[:2]
    found = explained("data_lime", rho=1.5, ridge=0.5, dtype="float64")
    assert found.scores[0] == pytest.approx(expected, rel=1e-9)


def test_a_regression_takes_the_values_as_labels():
    data = records([[1, 0], [0, 2], [0, 0]], [5.0, 2.0, 3.0], [0, 0, 2], "regression")
    assert explained("mim", data).scores[0] == pytest.approx([2, -0.5], rel=1e-5)  # (5 - 3) / 1, 2 (2 - 3) / 4


@pytest.mark.filterwarnings("ignore:mim. all labels are equal")
def test_pixels_are_summed_over_a_patch():
    inputs = np.zeros((2, 1, 2, 2), np.float32)
    inputs[0] = [[[1, 2], [3, 4]]]
    data = records(inputs, [1, 1], [0, 2], kind="image")
    halves = Features("patch", (2, 1), np.array([[[0, 0], [1, 1]]], np.int32))
    found = explained("mim", data, halves, alpha="constant")
    assert found.scores[0] == pytest.approx(np.array([[3], [7]])) and found.scores.shape == (1, 2, 1)


def test_a_categorical_column_is_named_or_numbered():
    by_name = explained("mim", categorical=["b"], alpha="constant").scores[0]
    assert by_name == pytest.approx(explained("mim", categorical=[1], alpha="constant").scores[0])
    assert by_name == pytest.approx([1, 1])  # the second row differs in b: (0 - 1) times the sign -1
    for values, expected in (("xyz", by_name), ("xy", explained("mim", alpha="constant").scores[0])):  # in the dataset
        data = dataclasses.replace(CROSS, card={**CROSS.card, "categories": {"b": list(values)}})
        assert explained("mim", data, alpha="constant").scores[0] == pytest.approx(expected)
    with pytest.raises(ShapelineError, match=r"there is no column 'c'.*Allowed: a, b"):
        explained("mim", categorical=["c"])


def test_counterfactual_counts_pairs_that_differ_in_one_cell():
    rows, split = [[0, 0], [1, 0], [1, 1], [7, 7]], [0, 0, 0, 2]
    found = explained("counterfactual", records(rows, [0, 1, 1, 1], split))
    assert found.scores[0] == pytest.approx([2 / 3, 0]) and found.warning == [None]
    found = explained("counterfactual", records(rows, [0.0, 3.0, 5.0, 9.0], split, "regression"))
    assert found.scores[0] == pytest.approx([2, 4 / 3])
    # Class 0 against the rest: the other two are alike, whatever their numbers.
    found = explained("counterfactual", records(rows, [1, 0, 2, 0], split))
    assert found.scores[0] == pytest.approx([2 / 3, 2 / 3])
    with pytest.warns(UserWarning, match="too sparse"):
        found = explained("counterfactual")
    assert not found.scores.any() and found.warning == [labelled_points.NO_PAIRS]


def test_a_step_classifier_minimises_the_weight_on_the_wrong_side():
    """Equation 14 in two features, beside every direction of a circle."""
    random = np.random.default_rng(0)
    lost = {"step": 0.0, "line": 0.0}
    for _ in range(20):
        X = random.normal(size=(30, 2))
        labels = (X @ random.normal(size=2) + 0.5 * random.normal(size=30) > 0).astype(int)
        away, agrees = X - X[0], labels == labels[0]
        weights = np.exp(-(away**2).sum(1) / 2)
        angles = np.linspace(0, 2 * np.pi, 720, endpoint=False)

        def wrong(phi, away=away, agrees=agrees, weights=weights):
            return weights @ ((away @ phi >= 0) != agrees)

        least = min(wrong(np.array([np.cos(a), np.sin(a)])) for a in angles)
        for classifier in lost:
            phi = influence.data_lime(X[:1], X, labels, rho=1.0, classifier=classifier, dtype="float64")[0]
            lost[classifier] += (wrong(phi) - least) / weights.sum()
        assert wrong(phi) >= least - 1e-9
    assert lost["step"] / 20 < 0.03 < lost["line"] / 20


def test_more_points_around_an_instance_are_labelled_by_the_model_and_counted():
    def small(rows):  # the probability of the first class, and of the second where column a is small
        return np.stack([rows[:, 0] > 0.1, rows[:, 0] <= 0.1], axis=1) * 0.98 + 0.01

    data = records([[1, 0], [0, 2], [0.1, 0.1], [0.1, 0]], [0, 1, 0, 1], [0, 0, 1, 2])
    game = Game(Classifier("function", "small", small, 2), None, COLUMNS)
    measure = sources.resolve(registry.METHODS["augmented_mim"].measure).function

    def scored(count):
        parameters = {"alpha": "constant"} | ({"count": count} if count != 100 else {})  # an entry may leave it out
        given = (measure, game, data.inputs[-1:], data.ids[-1:], data, COLUMNS, 0, parameters)
        return labelled_points.score_queried_points(*given)

    scores, asked, told = scored(500)
    assert asked.tolist() == [500] and told == {"warning": [None]}
    # Its label is the second: a larger a speaks against it, b says nothing.
    assert scores[0, 0] < -10 and abs(scores[0, 1]) < 0.5 * abs(scores[0, 0])
    assert scores == pytest.approx(scored(500)[0]) and scores != pytest.approx(scored(100)[0])
    assert scored(100)[1].tolist() == [100]


def test_a_step_is_for_classes():
    data = records([[1, 0], [0, 2], [0, 0]], [5.0, 2.0, 3.0], [0, 0, 2], "regression")
    with pytest.raises(ShapelineError, match=r"classifier step is for classes"):
        explained("data_lime", data, classifier="step")


def plane(task: str) -> Classifier:
    """0.1 + 0.2 a + 0.3 b: the prediction, or the probability of the second class."""
    return Classifier("function", "plane", lambda rows: 0.1 + rows @ np.array([0.2, 0.3]), 2, task=task)


def qii(dataset: Dataset, features: Features, task: str, target: int = 0, **parameters):
    parameters = {"permutations": 10, **parameters}
    game = Game(plane(task), None, features)
    given = game, dataset.inputs[-1:], np.array([target]), dataset.ids[-1:], dataset, 0, parameters
    return labelled_points.score_outputs(sources.resolve(registry.METHODS["qii"].measure).function, *given)


def test_qii_of_a_plane_is_its_slope_times_the_distance_from_the_mean():
    expected = np.array([0.2, 0.3]) * ([0, 0] - CROSS.inputs[:2].mean(0))
    data = records(CROSS.inputs, [5.0, 2.0, 1.0, 3.0], CROSS.split, "regression")
    scores, asked = qii(data, COLUMNS, "regression")
    assert scores[0] == pytest.approx(expected, abs=1e-6) and asked.tolist() == [2 * 2**2]
    for target, sign in ((0, -1), (1, 1)):
        assert qii(CROSS, COLUMNS, "classification", target)[0][0] == pytest.approx(sign * expected, abs=1e-6)
    scores, asked = qii(CROSS, BOTH, "classification", 1)  # the features are the players
    assert scores[0] == pytest.approx([expected.sum()], abs=1e-6) and asked.tolist() == [2 * 2]


def test_qii_samples_orders_above_12_features_and_counts_them():
    inputs = np.random.default_rng(0).random((5, 1, 13, 2))
    inputs[4] = inputs[3]
    data = records(inputs, [0, 1, 0, 1, 0], [0, 0, 0, 2, 2], kind="image")
    rows = Features("patch", (13, 1), np.repeat(np.arange(13, dtype=np.int32), 2).reshape(1, 13, 2))
    total = Classifier("function", "sum", lambda rows: rows.reshape(len(rows), -1).mean(1), 2)
    game = Game(total, None, rows)
    given = game, data.inputs[3:], np.array([1, 1]), data.ids[3:], data, 0, {"permutations": 4000}
    scores, asked = labelled_points.score_outputs(sources.resolve(registry.METHODS["qii"].measure).function, *given)
    exact = (data.inputs[3:] - data.inputs[:3].mean(0)).sum((1, 3)) / 26
    assert asked.tolist() == [14 * 4000] * 2
    assert scores == pytest.approx(exact, abs=2e-3)
    assert np.abs(scores[0] - scores[1]).max() > 1e-6  # each instance has its own draw


@pytest.mark.filterwarnings("ignore")
def test_rows_without_weighted_neighbours_have_a_warning():
    subject = ExplanationContext(None, CROSS, COLUMNS, None)
    chosen = selection.select(subject, 0, 1)
    assert chosen.to_dict("records") == [{"instance": 87, "row": 3, "label": 1, "prediction": 1}]
    settings = {"method": {"method": "parzen", "sigma": 0.005}, "features": {"kind": "column"}, "seed": 0}
    row = shortcuts.explain_rows(subject, chosen, settings, "parzen", None).iloc[0]
    assert row["warning"] == "no neighbour carries weight" and row["details"] is None and not row["scores"].any()
    assert row["target"] == 1 and row["status"] == "ok" and pd.isna(row["value_full"]) and pd.isna(row["value_empty"])
    about = provenance.provenance(subject, settings, "cpu")
    assert about["framework"] is about["form"] is about["reference"] is about["value"] is None


def test_records_are_sought_by_their_values():
    """In standard deviations of each column; a record once; of all parts where there is no model."""
    data = records([[0, 100], [1, 0], [0.4, 0], [5, 5]], [1, 0, 0, 1], [0, 0, 1, 2])
    subject = ExplanationContext(None, data, COLUMNS, None)
    chosen = selection.select(subject, 0, near=[{"a": 0.5, "b": 60}, {"a": 0.5}, {"a": 0.5}])
    assert chosen["row"].tolist() == [0, 2, 1] and chosen["instance"].tolist() == [90, 88, 89]
    coded = records([[0, 1], [1, 0]], [0, 1], [0, 2])
    coded.card["categories"] = {"b": ["X", "Y"]}
    subject = ExplanationContext(None, coded, COLUMNS, None)
    assert selection.select(subject, 0, near=[{"b": "Y"}, {"b": "Y"}])["row"].tolist() == [0, 1]
    for near, words in (
        ([{"c": 1}], "there is no column 'c'"),
        ([{"b": "Z"}], "column 'b': 'Z' is not one of them"),
        ([{"a": "X"}], "column 'a' holds numbers"),
        ([{}] * 3, "3 records are sought, among 2"),
    ):
        with pytest.raises(ShapelineError, match=words):
            selection.select(subject, 0, near=near)


def test_instances_do_not_depend_on_the_others_of_their_shard():
    random = np.random.default_rng(0)
    data = records(random.normal(size=(60, 2)), random.integers(0, 2, 60), np.repeat([0, 2], 30))
    subject = ExplanationContext(None, data, COLUMNS, None)
    chosen = selection.select(subject, 0, 20)
    for entry in ({"method": "mim"}, {"method": "parzen", "sigma": 1.0}, {"method": "data_lime"}):
        settings = {"method": {**entry, "dtype": "float64"}, "features": {"kind": "column"}, "seed": 0}
        whole, part = (shortcuts.explain_rows(subject, some, settings, "x", None) for some in (chosen, chosen[7:12]))
        assert np.stack(part["scores"]) == pytest.approx(np.stack(whole["scores"])[7:12], rel=1e-6)


@pytest.mark.parametrize("entry", [{"method": "mim", "alpha": "constant"}, {"method": "parzen", "sigma": 1.0}])
def test_without_a_model_all_records_are_labelled_points(entry):
    """Those of validation and test, and the point itself, as Sliwinski et al. have it (x is in the data set)."""
    settings = {"method": {**entry, "dtype": "float64"}, "features": {"kind": "column"}, "seed": 0}
    chosen = selection.select(ExplanationContext(None, CROSS, COLUMNS, None), 0, 1)
    alone = shortcuts.explain_rows(ExplanationContext(None, CROSS, COLUMNS, None), chosen, settings, "x", None)[
        "scores"
    ][0]
    measure = sources.resolve(registry.METHODS[entry["method"]].measure).function
    rest = {key: value for key, value in entry.items() if key != "method"}
    assert alone == pytest.approx(measure(CROSS.inputs[-1:], CROSS.inputs, CROSS.labels, **rest)[0], rel=1e-5)
    few = measure(CROSS.inputs[-1:], CROSS.inputs[:2], CROSS.labels[:2], point_labels=[1], **rest)[0]
    assert np.abs(alone - few).max() > 0.01


def test_texts_and_calls_without_data_are_refused():
    with pytest.raises(ShapelineError, match="tokens of a text are not points"):
        explained("mim", records(CROSS.inputs, CROSS.labels, CROSS.split, kind="text"))
    with pytest.raises(ShapelineError, match=r"mim: labelled examples .* or call shapeline\.influence\.mim$"):
        shortcuts.attribute(None, CROSS.inputs, np.zeros(4, int), {"method": "mim"}, COLUMNS, None)


@pytest.mark.parametrize("name", DATA)
def test_parameters_and_defaults_are_those_of_the_measure(name):
    assert {"mim", "parzen", "data_lime", "augmented_mim", "qii", "counterfactual"} == set(DATA)
    given = inspect.signature(sources.resolve(registry.METHODS[name].measure).function).parameters
    fields = {key: field for key, field in registry.METHODS[name].parameters.model_fields.items() if key != "method"}
    ours = {"predict", "points", "X", "labels", "point_labels", "regression", "device", "seed"}
    assert set(given) - ours == set(fields)
    for key, field in fields.items():
        default = given[key].default
        assert field.is_required() == (default is inspect.Parameter.empty)
        assert field.is_required() or field.default == (list(default) if key == "categorical" else default)


# --- configuration and plan ---------------------------------------------------------------------------------------


@pytest.fixture
def raw(default) -> dict:
    """The default configuration with an experiment that has a dataset in place of a model."""
    default["experiments"]["faces"] = {
        "dataset": "digits38",
        "features": {"kind": "pixel"},
        "instances": {"count": 300},
        "methods": {"mim": {"method": "mim"}, "parzen": {"method": "parzen", "sigma": 2.0}, "r": {"method": "random"}},
        "metrics": {"cost": {}, "error": {"reference": "mim"}},
        "report": {"notebook": "influence"},
        "cache": True,
    }
    return default


def lines(raw: dict) -> list[str]:
    with pytest.raises(ShapelineError) as failure:
        validation.load(raw)
    return str(failure.value).splitlines()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "digits_cnn"}, ["experiments.faces.dataset: models.digits_cnn is trained on digits38 itself"]),
        ({"dataset": None}, ["experiments.faces: neither a model nor a dataset is given; give one or both"]),
        ({"dataset": "digit38"}, ["experiments.faces.dataset: there is no dataset 'digit38'", "'digits38'"]),
        ({"dataset": "reviews", "features": {"kind": "word"}}, ["experiments.faces.dataset", "give model"]),
        ({"metrics": {"log_odds": {}}}, ["faces.metrics.log_odds", "there is none; remove the metric"]),
        ({"metrics": {"efficiency": {}}}, ["faces.metrics.efficiency", "there is none; remove the metric"]),
        ({"methods": {"k": {"method": "kernel_shap"}}}, ["faces.methods.k: kernel_shap needs a model", "mim, parzen"]),
        ({"methods": {"q": {"method": "qii"}}}, ["faces.methods.q: qii needs a model"]),
        ({"methods": {"q": {"method": "augmented_mim"}}}, ["faces.methods.q: augmented_mim needs a model"]),
        (
            {
                "dataset": "diabetes",
                "features": {"kind": "column"},
                "methods": {"s": {"method": "data_lime", "classifier": "step"}},
            },
            ["faces.methods.s: classifier step is for classes"],
        ),
        ({"methods": {"p": {"method": "parzen"}}}, ["experiments.faces.methods.p.sigma: is missing"]),
        ({"methods": {"p": {"method": "mim", "alpha": "cubic"}}}, ["faces.methods.p.alpha: unknown value 'cubic'"]),
        ({"instances": {"near": [{"a": 1.0}]}}, ["faces.instances.near: records are selected by columns"]),
        (
            {
                "instances": {"near": [{"mean radius": 1.0}], "fewer_ok": True},
                "dataset": "breast_cancer",
                "features": {"kind": "column"},
                "methods": {"m": {"method": "mim"}},
            },
            ["faces.instances.fewer_ok: the records that near selects"],
        ),
        (
            {"methods": {"p": {"method": "data_lime", "mu": 0.1, "categorical": [0]}}},
            ["faces.methods.p: the kernel of cosine distance"],
        ),
        (
            {
                "dataset": "breast_cancer",
                "features": {"kind": "column"},
                "methods": {"m": {"method": "mim", "categorical": ["mean radiu"]}},
            },
            ["faces.methods.m.categorical: there is no column 'mean radiu'", "'mean radius'"],
        ),
    ],
)
def test_mistakes_are_one_line(raw, change, words):
    raw["experiments"]["faces"] |= {"metrics": {"cost": {}}} | change
    found = lines(raw)
    assert len(found) == 1, found
    assert all(word in found[0] for word in words), found


def test_words_are_no_points(default):
    default["experiments"]["reviews"]["methods"]["mim"] = {"method": "mim"}
    (line,) = lines(default)
    assert "experiments.reviews.methods.mim: mim compares points" in line


def test_data_methods_stand_beside_those_of_the_model(default):
    for name in ("digits", "cancer"):
        default["experiments"][name]["methods"] |= {
            "mim": {"method": "mim"},
            "parzen": {"method": "parzen", "sigma": 1.0},
            "data_lime": {"method": "data_lime", "mu": 0.1},
            "step": {"method": "data_lime", "classifier": "step"},
            "augmented": {"method": "augmented_mim", "count": 20},
            "qii": {"method": "qii"},
            "counterfactual": {"method": "counterfactual"},
        }
    loaded = validation.load(default)
    assert report_settings(loaded, "digits")["entries"]["qii"]["family"] == "data"


def test_no_job_of_an_experiment_without_a_model_names_one(raw, root, monkeypatch):
    monkeypatch.chdir(root)
    loaded = validation.load(raw)
    assert runs.find_dataset(loaded, "faces") == "digits38"
    for settings in (
        select_settings(loaded, "faces"),
        attribute_settings(loaded, "faces", "mim"),
        report_settings(loaded, "faces"),
    ):
        assert settings["dataset"] == "digits38" and not {"reference", "value", "budget"} & set(settings)
    outputs = dict(_expected(loaded))
    assert "results/faces/scores/mim/1-of-2.parquet" in outputs
    assert job_code.choose_environment(loaded, None) == "../../envs/torch.yaml"


def names(files: list[str]) -> set[str]:
    return {Path(file).stem for file in files}


def test_a_method_tracks_its_measure_and_no_framework(raw, root, monkeypatch):
    monkeypatch.chdir(root)
    raw["experiments"]["digits"]["methods"] |= {"mim": {"method": "mim"}, "q": {"method": "qii"}}
    raw["experiments"]["faces"]["methods"] |= {"line": {"method": "data_lime", "rho": 1.0}}
    loaded = validation.load(raw)
    measures = {"measures", "local_linear"}
    frameworks = {"torch_backend", "torch_models", "tf_backend", "keras_models", "torch_gradients", "tf_gradients"}
    mim, lime = (names(job_code.attribute_code(loaded, "faces", label)) for label in ("mim", "line"))
    assert mim & measures == {"measures"} and lime & measures == {"local_linear"}
    assert {"labelled_points", "distances"} <= mim & lime
    assert not mim & frameworks and not names(job_code.select_code(loaded, "faces")) & frameworks
    assert "measures" in names(job_code.attribute_code(loaded, "digits", "q"))
    assert {"measures", "torch_backend"} <= names(job_code.attribute_code(loaded, "digits", "mim"))
    assert not names(job_code.attribute_code(loaded, "digits", "lime")) & (measures | {"labelled_points"})
    of_faces, of_digits = (
        names(job_code.list_page_code("render_report", loaded.experiments[name].report.notebook))
        for name in ("faces", "digits")
    )
    assert "axioms" in of_faces - of_digits


def test_an_edited_reference_or_value_changes_nothing_without_a_model(raw):
    before = attribute_settings(validation.load(raw), "faces", "mim")
    raw["experiments"]["faces"] |= {"value": "prediction", "reference": "zero", "budget": 9}
    assert attribute_settings(validation.load(raw), "faces", "mim") == before
    raw["experiments"]["faces"]["dataset"] = "smoke"
    assert attribute_settings(validation.load(raw), "faces", "mim") != before


def test_influence_too_small_for_a_score_file_is_none():
    found = explained("parzen", sigma=0.115, dtype="float64")  # exp(-113) between the two rows
    assert 0 < np.abs(found.scores).max() < 1e-40 and found.warning == [labelled_points.NO_WEIGHT]
