"""Several labels per record, from data to report: each label has a separate sigmoid."""

import dataclasses
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy import stats
from torch import nn

import shapeline
from shapeline import scores
from shapeline.attribution import context, selection
from shapeline.attribution.context import GameSettings, parse, value_addresses
from shapeline.attribution.game_values import VALUES, ValueStore
from shapeline.attribution.row_store import Table
from shapeline.config import derived, mistakes, validation
from shapeline.datasets import checks, loading, malaria, preparation, sources
from shapeline.datasets import images as regions_module
from shapeline.errors import ShapelineError
from shapeline.games import calibration, execution, features, torch_backend, torch_execution
from shapeline.games.execution import select_traced_rows
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.gradients import torch_gradients
from shapeline.hierarchy import torch_evaluator
from shapeline.metrics import error, ground_truth, infidelity, loaders
from shapeline.models import adapters, architectures, classifier, storage, training
from shapeline.report import experiment, findings
from shapeline.report.figures import localization as figures_localization
from shapeline.report.sections import common, images
from shapeline.report.sections import localization as sections_localization
from shapeline.report.sections.images import mean_maps, sections
from shapeline.workflow import messages
from tests.fixtures import annotated_files, two_shapes
from tests.unit import shortcuts

WEIGHTS = np.array([[2.0, -1.0, 0.0, 1.0], [-0.5, 0.0, 3.0, 0.5], [0.0, 1.0, 1.0, -2.0]])
BIAS = np.array([0.5, -1.0, 0.0])
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(5, 4)).astype(np.float32)
REFERENCE = RANDOM.normal(size=(3, 4)).astype(np.float32)
TARGETS = np.array([0, 1, 2, 1, 0])
COLUMNS = features.build("column", {"input_shape": [4], "feature_names": list("abcd")})
MASKS = np.array(list(itertools.product([False, True], repeat=4)))
SOURCE = f"{two_shapes.__file__}:read"


def linear() -> classifier.Classifier:
    """One logit per label, each a sum over the columns."""
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(WEIGHTS))
        layer.bias.copy_(torch.tensor(BIAS))
    return adapters.wrap(layer, "multilabel")


def brute_force(value: str, rows: np.ndarray) -> np.ndarray:
    """Values (n, K) of all coalitions by a plain sigmoid; probabilities are averaged over the reference's rows."""
    filled = np.where(MASKS[None, :, None], INPUTS[:, None, None], rows).astype(float)
    z = np.take_along_axis(filled @ WEIGHTS.T + BIAS, TARGETS[:, None, None, None], 3)[..., 0]
    if value == "logit":
        return z.mean(2)
    p = (1 / (1 + np.exp(-z))).mean(2)
    return {"probability": p, "log_probability": np.log(p), "log_odds": np.log(p) - np.log1p(-p)}[value]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shapes"
    preparation.prepare(SOURCE, {"source": SOURCE, "seed": 0}, [], folder)
    return folder


@pytest.fixture(scope="module")
def trained(prepared, tmp_path_factory):
    """Return the weights and the card of a small network that detects crosses and squares."""
    data = loading.load(prepared)
    model = architectures.for_dataset({"architecture": "digits_cnn"}, data.card)
    card = training.fit(model, data, {"epochs": 16}, seed=0)
    path = tmp_path_factory.mktemp("model") / "weights.safetensors"
    storage.save(model, path)
    return path, card


@pytest.fixture(scope="module")
def subject(prepared, trained):
    settings = GameSettings({"kind": "patch", "size": 4})
    return context.load_context(str(trained[0]), str(prepared / "arrays.npz"), settings, "cpu")


# --- data ---------------------------------------------------------------------------------------------------------


def test_labels_are_kept_counted_and_split_by_which_go_together(prepared):
    data, records = loading.load(prepared), two_shapes.read()
    assert data.labels.shape == (300, 2) and data.labels.dtype == np.uint8
    np.testing.assert_array_equal(data.labels, records["labels"])
    card = data.card
    assert card["task"] == "multilabel" and card["classes"] == ["cross", "square"] and sum(card["rows"].values()) == 300
    for part, name in enumerate(sources.PARTS):
        own = data.labels[data.split == part]
        assert card["rows"][name] == len(own) and list(card["counts"][name].values()) == own.sum(0).tolist()
    for pattern in itertools.product([0, 1], repeat=2):  # each kind of record in its share
        having = (data.labels == pattern).all(1)
        assert abs((data.split[having] == sources.TEST).mean() - 0.3) < 0.01
    shown = regions_module.truth(prepared, data.ids[:20].repeat(2), np.tile([0, 1], 20)).reshape(20, 2, -1).any(2)
    np.testing.assert_array_equal(shown, data.labels[:20])


def test_chosen_classes_are_columns_and_all_records_remain(tmp_path):
    (tmp_path / "own.py").write_text(
        "import numpy as np\n\n\ndef read():\n    labels = (np.arange(80)[:, None] // [1, 2, 4]) % 2\n"
        '    return {"inputs": np.random.default_rng(0).random((80, 5)), "labels": labels, "task": "multilabel", '
        '"class_names": ["one", "two", "four"]}\n'
    )
    source = f"{tmp_path}/own.py:read"
    preparation.prepare(source, {"source": source, "classes": ["four", "one"]}, [], tmp_path / "some")
    preparation.prepare(source, {"source": source}, [], tmp_path / "all")
    some, every = loading.load(tmp_path / "some"), loading.load(tmp_path / "all")
    assert some.card["classes"] == ["four", "one"] and every.card["classes"] == ["one", "two", "four"]
    np.testing.assert_array_equal(some.labels, every.labels[:, [2, 0]])
    np.testing.assert_array_equal(some.split, every.split)  # whichever labels are chosen
    model = architectures.for_dataset({"architecture": "mlp"}, every.card)
    assert training.fit(model, every, {"epochs": 1}, seed=0)["test_accuracy_by_label"].keys() == {"one", "two", "four"}
    assert model.task == "multilabel" and model.predict(every.inputs).shape == (80, 3)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"labels": np.zeros(8, int)}, "task multilabel wants two labels a record or more"),
        ({"labels": np.eye(8, 2) * 2}, "record 0 has the labels .2.0, 0.0.; each is 0 or 1"),
        ({"labels": np.eye(8, 3)}, "2 different class_names for 3 labels"),
        ({"labels": np.zeros((8, 2))}, "class 'a' has no record"),
        ({"task": None}, 'Labels that go together, .n, labels., need "task": "multilabel"'),
        ({"masks": np.zeros((8, 4, 4), bool)}, "with task multilabel return boxes"),
        ({"task": "multilable"}, "task 'multilable' is unknown.*multilabel"),
    ],
)
def test_labels_that_are_none_are_one_clear_line(tmp_path, change, told):
    records = {"inputs": np.zeros((8, 4, 4)), "labels": np.eye(8, 2), "task": "multilabel", "class_names": ["a", "b"]}
    np.savez(tmp_path / "records.npz", **{key: one for key, one in {**records, **change}.items() if one is not None})
    (tmp_path / "own.py").write_text(
        "import numpy as np\n\n\ndef read(path):\n    found = dict(np.load(path))\n"
        '    return {k: v.item() if v.ndim == 0 else v for k, v in found.items()} | {"kind": "image"}\n'
    )
    source = f"{tmp_path}/own.py:read"
    with pytest.raises(ShapelineError, match=told):
        preparation.prepare(source, {"source": source, "path": f"{tmp_path}/records.npz"}, [], tmp_path / "out")


def test_malaria_has_labels_of_trophozoites_and_rings(tmp_path):
    path = annotated_files.write_zip(tmp_path / "malaria.zip", annotated_files.malaria())
    settings = {"source": "malaria", "path": str(path), "size": [12, 16], "task": "multilabel"}
    card = preparation.prepare("malaria", settings, [], tmp_path / "several")
    data = loading.load(tmp_path / "several")
    assert card["classes"] == ["trophozoite", "ring"] and card["task"] == "multilabel"
    assert data.labels.tolist() == [[1, 1], [0, 0], [1, 0], [0, 1], [1, 0], [0, 0], [1, 0], [0, 0]]
    regions = regions_module.truth(tmp_path / "several", [0, 0, 3, 3], [0, 1, 0, 1])
    assert regions[0, 2:6, 4:8].all() and regions[1, 8:12, :4].all() and regions.sum((1, 2)).tolist() == [16, 16, 0, 16]
    told = malaria.read({"slides": path}, size=[12, 16], task="multilabel")
    assert told["task"] == "multilabel" and told["class_names"] == ("trophozoite", "ring")
    for task in (None, "classification"):
        one = preparation.prepare(
            "malaria", {**settings, "task": task} if task else settings | {"task": None}, [], tmp_path
        )
        assert one["classes"] == ["no trophozoite", "trophozoite"] and "task" not in one
    for source, told in (("digits", "does not take it"), ("malaria", "has no regression; set task: multilabel")):
        with pytest.raises(ShapelineError, match=told):
            checks.read_entry(source, {"source": source, "task": "regression"})


def test_the_real_slides_have_only_trophozoites(real_data, tmp_path):
    path = real_data("bbbc041", "annotations.json").parent
    settings = {"source": "malaria", "path": str(path), "size": [60, 80], "task": "multilabel"}
    with pytest.raises(ShapelineError, match="class 'ring' has no record"):
        preparation.prepare("malaria", settings, [], tmp_path)


def test_images_of_two_real_digits_have_their_boxes(real_data, root, default, monkeypatch):
    path = real_data("mnist", "train-images-idx3-ubyte.gz").parent
    monkeypatch.setenv("SHAPELINE_DATA", str(path.parent))
    own = yaml.safe_load((root / "examples" / "two_digits.yaml").read_text())
    loaded = validation.load(
        default | {"run": own["run"]} | {key: default[key] | own[key] for key in mistakes.SECTIONS}
    )
    assert "demonstration, no performance claimed" in loaded.experiments["two_digits"].report.title
    records = sources.user_function(f"{root}/examples/two_digits.py:read")(str(path))
    assert records["inputs"].shape == (4800, 1, 56, 56) and np.bincount(records["split"]).tolist() == [4000, 400, 400]
    for image, labels, boxes in zip(records["inputs"][:50], records["labels"], records["boxes"], strict=False):
        assert sorted(boxes[:, 0]) == np.flatnonzero(labels).tolist()
        for _, top, left, bottom, right in boxes:
            ink = image[0, top:bottom, left:right] > 0
            assert ink[[0, -1]].any(axis=1).all() and ink[:, [0, -1]].any(axis=0).all()
    network = adapters.wrap(sources.user_function(f"{root}/examples/two_digits.py:network")(2, 1), "multilabel")
    assert network.log_probs(records["inputs"][:2] / np.float32(255)).shape == (2, 2)


# --- training -----------------------------------------------------------------------------------------------------


def test_a_small_network_learns_both_labels(trained, prepared, tmp_path):
    path, card = trained
    assert card["test_accuracy"] > 0.97 and card["test_exact_match"] > 0.95
    assert set(card["test_accuracy_by_label"]) == {"cross", "square"}
    assert card["test_accuracy"] == pytest.approx(np.mean(list(card["test_accuracy_by_label"].values())))
    model, test = storage.load(path), loading.load(prepared).part("test")
    assert model.task == "multilabel" and model.n_classes == 2
    logits = model.module(torch.from_numpy(test.inputs)).detach().double().numpy()
    np.testing.assert_allclose(model.log_probs(test.inputs), -np.log1p(np.exp(-logits)), atol=1e-6)
    np.testing.assert_array_equal(model.predict(test.inputs), logits >= 0)
    assert ((logits >= 0) == test.labels).all(1).mean() == card["test_exact_match"]


def test_a_network_that_comes_trained_is_measured_label_by_label(trained, prepared):
    path, card = trained
    found = architectures.measure_card(storage.load(path), loading.load(prepared))
    for name in ("test_accuracy", "test_accuracy_by_label", "test_exact_match"):
        assert found[name] == pytest.approx(card[name])
    data = loading.load(prepared).card
    other = architectures.for_dataset({"architecture": "digits_cnn"}, card | data | {"classes": ["a", "b", "c"]})
    with pytest.raises(ShapelineError, match="give one logit a label"):
        architectures.measure_card(other, loading.load(prepared))


def test_the_loss_is_the_binary_cross_entropy_of_each_label():
    from shapeline.models.torch_training import Trainer

    labels = (RANDOM.random((5, 3)) < 0.5).astype(np.int64)
    z = INPUTS.astype(float) @ WEIGHTS.T + BIAS
    trainer = Trainer(linear(), INPUTS, labels, training.get_settings("", {"batch": 5}))
    accuracy, loss = trainer.measure(INPUTS, labels)
    assert loss == pytest.approx(np.mean(np.log1p(np.exp(np.where(labels == 1, -z, z)))), abs=1e-6)
    assert accuracy == ((z >= 0) == labels).mean()
    assert ((z > 0) & (z < 0.5)).any() and trainer.measure(INPUTS, (z >= 0).astype(np.int64))[0] == 1
    assert float(trainer.step(np.arange(5), 1e-3)) == pytest.approx(loss, abs=1e-6)


def test_a_model_of_other_outputs_or_framework_is_refused(prepared):
    data = loading.load(prepared)
    with pytest.raises(ShapelineError, match=r"sizes.classes is 3 and dataset .* has 2; remove the key"):
        architectures.for_dataset({"architecture": "mnist_cnn", "sizes": {"classes": 3}}, data.card)
    model = architectures.for_dataset({"architecture": "mnist_cnn"}, data.card | {"classes": ["a", "b", "c"]})
    with pytest.raises(ShapelineError, match=r"gives 3 output.s. and the dataset has 2 labels; give one logit a label"):
        training.fit(model, data, {"epochs": 1})
    for settings in ({"architecture": "mnist_cnn", "framework": "tensorflow"}, {"source": "model.keras"}):
        with pytest.raises(ShapelineError, match="several labels per record, which needs torch"):
            architectures.for_dataset(settings, data.card)
    with pytest.raises(ShapelineError, match="cannot be used as 'multilabel'"):
        adapters.wrap(lambda rows: rows, "multilabel")


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["logit", "log_odds", "log_probability", "probability"])
@pytest.mark.parametrize("rows", [REFERENCE[:1], REFERENCE], ids=["one row", "three rows"])
@pytest.mark.parametrize("form", ["plain", "onnx"])
def test_values_are_those_of_a_sigmoid(value, rows, form):
    asked = linear(), INPUTS, Reference(rows), MASKS, COLUMNS, value, TARGETS, execution.ExecutionBackend(form, 7)
    np.testing.assert_allclose(shortcuts.values(*asked), brute_force(value, rows), atol=2e-6)


def test_the_score_itself_is_exact():
    z = RANDOM.normal(size=(5, 2, 3, 4), scale=20)
    own = np.take_along_axis(z, np.array([0, 1, 2, 3, 1]).reshape(-1, 1, 1, 1), 3)[..., 0]
    p = 1 / (1 + np.exp(-own))
    asked = torch.from_numpy(z), torch.tensor([0, 1, 2, 3, 1]), None
    wanted = {"logit": own.mean(2), "probability": p.mean(2), "log_probability": np.log(p.mean(2))}
    wanted["log_odds"] = np.log(p.mean(2)) - np.log((1 / (1 + np.exp(own))).mean(2))
    for value, numbers in wanted.items():
        found = torch_execution.score_on_device(*asked, value, "torch", "multilabel")
        np.testing.assert_allclose(found, numbers, rtol=1e-10, atol=1e-12)


def test_the_expected_log_probability_is_refused_and_a_default_target_is_the_likeliest_label():
    asked = linear(), INPUTS, Reference(REFERENCE), MASKS, COLUMNS
    with pytest.raises(ShapelineError, match=r"several labels, over which nothing sums to 1.*use log_probability"):
        shortcuts.values(*asked, "expected_log_probability", TARGETS)
    likeliest = (INPUTS.astype(float) @ WEIGHTS.T + BIAS).argmax(1)
    np.testing.assert_array_equal(shortcuts.values(*asked), shortcuts.values(*asked, targets=likeliest))


def test_calibration_sees_labels_that_are_nearly_sure():
    """An error of a backend at a confident label changes log P(absent) strongly, and log P(present) not at all."""
    layer = nn.Sequential(nn.Linear(4, 2), nn.Identity())
    with torch.no_grad():
        layer[0].weight.zero_()
        layer[0].bias.fill_(30.0)
    model, rows = adapters.wrap(layer, "multilabel"), INPUTS
    runner = torch_execution.build_runner(
        model, execution.ExecutionBackend(), select_traced_rows(rows, Reference(REFERENCE))
    )
    expected = runner.compare_outputs(rows)
    shifted = torch_execution.Runner(model, lambda x: layer(x).detach() + 1, (4,), torch.device("cpu"), 64, False)
    assert torch_backend._measure_difference(runner, rows, expected) == 0
    assert torch_backend._measure_difference(shifted, rows, expected) > 0.01
    assert calibration.calibrate(model, rows, Reference(REFERENCE)).difference <= execution.TOLERANCE


@pytest.mark.parametrize("method", ["shapley", "kernel_shap", "occlusion", "peer_shap_kernel"])
def test_shapley_values_of_a_linear_logit_are_known_for_each_label(method):
    if method.startswith("peer"):
        pytest.importorskip("shap")
    reference = REFERENCE[:1]
    found = shapeline.explain(
        linear(), INPUTS, method, reference[0], "column", target=TARGETS, value="logit", background=REFERENCE
    )
    np.testing.assert_allclose(found.scores, (INPUTS - reference) * WEIGHTS[TARGETS], atol=1e-5)
    np.testing.assert_array_equal(found.target, TARGETS)


# --- gradients ----------------------------------------------------------------------------------------------------


def test_gradients_are_those_of_the_log_sigmoid():
    model, p = linear(), 1 / (1 + np.exp(-(INPUTS.astype(float) @ WEIGHTS.T + BIAS)))
    slope = WEIGHTS[TARGETS] * (1 - p[np.arange(5), TARGETS])[:, None]
    np.testing.assert_allclose(
        torch_gradients.saliency(Game(model, None, COLUMNS), INPUTS, TARGETS)[0], np.abs(slope), atol=1e-6
    )
    products = torch_gradients.gradient_x_input(Game(model, None, COLUMNS), INPUTS, TARGETS)[0]
    np.testing.assert_allclose(products, slope * INPUTS, atol=1e-6)
    gained = (
        brute_force("log_probability", REFERENCE[:1])[:, [-1]] - brute_force("log_probability", REFERENCE[:1])[:, [0]]
    )
    change = (INPUTS - REFERENCE[:1]) * WEIGHTS[TARGETS]
    wanted = change / change.sum(1, keepdims=True) * gained  # of one logit all the path's slopes are parallel
    for found in (
        torch_gradients.integrated_gradients(Game(model, Reference(REFERENCE[:1]), COLUMNS), INPUTS, TARGETS),
        torch_gradients.deep_lift(Game(model, Reference(REFERENCE[:1]), COLUMNS), INPUTS, TARGETS),
    ):
        np.testing.assert_allclose(found[0], wanted, atol=1e-5)
        assert found[-1]["completeness_gap"].max() < 1e-5
    same = torch_gradients.deep_lift(Game(model, Reference(INPUTS[:1]), COLUMNS), INPUTS, TARGETS)[0]
    assert np.isfinite(same).all() and not same[0].any()


# --- h-Shap -------------------------------------------------------------------------------------------------------


def image_model(task: str) -> classifier.Classifier:
    torch.manual_seed(3)
    layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 5 * 5, 3)
    return adapters.wrap(nn.Sequential(*layers), task)


@pytest.mark.parametrize("value", torch_evaluator.VALUES)
def test_h_shap_of_a_label_is_that_of_the_two_logits_0_and_it(value):
    class Two(nn.Module):
        def __init__(self, label: int):
            super().__init__()
            self.network, self.label = image_model("multilabel").module, label

        def forward(self, pictures):
            own = self.network(pictures)[:, self.label : self.label + 1]
            return torch.cat([torch.zeros_like(own), own], dim=1)

    inputs = np.random.default_rng(1).random((2, 3, 12, 12), dtype=np.float32)
    reference, labels = Reference(np.zeros((1, 3, 12, 12), np.float32)), np.array([[0, 1, 2]] * 2)
    found = shortcuts.trees(image_model("multilabel"), inputs, reference, labels, 2, value=value)
    logits = dataclasses.replace(image_model("logits"), task="multilabel")
    asked = shortcuts.trees(logits, inputs, reference, labels, 2, value=value)
    for place, (i, label) in enumerate(itertools.product(range(2), range(3))):
        (two,) = shortcuts.trees(adapters.wrap(Two(label)), inputs[i : i + 1], reference, np.array([1]), 2, value=value)
        for one in (found[place], asked[place]):
            np.testing.assert_array_equal(one.saliency, two.saliency)
            np.testing.assert_allclose([one.value_full, one.value_empty], [two.value_full, two.value_empty], atol=1e-6)


def test_crops_are_verified_by_each_sigmoid(monkeypatch, caplog):
    """Crops that shift all logits alike leave a softmax as it is; a sigmoid would be wrong."""
    model = image_model("multilabel")
    whole = torch_evaluator.LocalCrops.outputs
    monkeypatch.setattr(torch_evaluator.LocalCrops, "outputs", lambda *asked: whole(*asked) + 1)
    inputs = np.random.default_rng(1).random((1, 3, 12, 12), dtype=np.float32)
    with caplog.at_level("WARNING"):
        found = shortcuts.trees(model, inputs, Reference(np.zeros_like(inputs)), np.array([0]), 2)
    assert "whole images are evaluated" in caplog.text
    with torch.inference_mode():
        wanted = torch.sigmoid(model.module(torch.from_numpy(inputs))[0, 0])
    assert found[0].value_full == pytest.approx(float(wanted), abs=1e-6)


# --- instances and scores -----------------------------------------------------------------------------------------


def test_every_label_of_an_image_is_a_row(subject):
    chosen = selection.select(subject, seed=0, count=6)
    assert len(chosen) == 12 and chosen["instance"].nunique() == 6 and chosen["target"].tolist() == [0, 1] * 6
    labels = subject.dataset.labels[chosen["row"], chosen["target"]]
    np.testing.assert_array_equal(chosen["label"], labels)
    np.testing.assert_array_equal(chosen["objects"], labels)
    wanted = np.exp(subject.model.log_probs(subject.dataset.inputs[chosen["row"]]))[np.arange(12), chosen["target"]]
    np.testing.assert_allclose(chosen["probability"], wanted)
    np.testing.assert_array_equal(chosen["prediction"], wanted >= 0.5)
    squares = selection.select(subject, seed=0, count=6, label="square", correct=True, objects=1)
    assert (squares["target"] == 1).all() and (squares["label"] == 1).all() and squares["prediction"].all()
    assert (subject.dataset.labels[squares["row"], 0] == 0).any()  # objects are counted of squares, not of crosses
    with pytest.raises(ShapelineError, match="objects of several labels; name one by the key label"):
        selection.select(subject, seed=0, count=2, objects=1)
    with pytest.raises(ShapelineError, match="need a model"):
        selection.select(SimpleNamespace(model=None, dataset=subject.dataset), seed=0, count=2)


def test_a_label_counts_as_predicted_from_a_half_on(subject, prepared):
    odds = SimpleNamespace(log_probs=lambda inputs: np.log(np.tile([0.5, 0.4999], (len(inputs), 1))))
    found = selection.select(SimpleNamespace(model=odds, dataset=subject.dataset, folder=prepared), seed=0, count=4)
    assert found["prediction"].tolist() == [1, 0] * 4 and found["probability"].tolist() == pytest.approx(
        [0.5, 0.4999] * 4
    )


def test_each_score_row_gets_its_one_image(subject, tmp_path):
    chosen = selection.select(subject, seed=0, count=4)
    selection.write(str(tmp_path / "instances.parquet"), chosen, {}, {})
    rows = chosen.sample(frac=1, random_state=0)
    found = loaders.read_rows(SimpleNamespace(instances=str(tmp_path / "instances.parquet")), rows)
    assert len(found) == 8 and found["row"].tolist() == rows["row"].tolist()


def test_only_images_that_are_right_in_all_labels_explained(prepared, subject):
    wrong = SimpleNamespace(
        predict=lambda inputs: np.tile([True, False], (len(inputs), 1)),
        log_probs=subject.model.log_probs,
        task="multilabel",
    )
    there = SimpleNamespace(model=wrong, dataset=subject.dataset, folder=prepared)
    both = selection._sample_rows(there, 0, selection.Selection(3, correct=True))
    assert (subject.dataset.labels[both] == [1, 0]).all()
    one = selection._sample_rows(there, 0, selection.Selection(12, label="cross", correct=True))
    assert (subject.dataset.labels[one, 0] == 1).all() and subject.dataset.labels[one, 1].any()


def score_rows(subject, method: dict, **settings) -> pd.DataFrame:
    share = selection.select(subject, seed=0, count=5)
    settings = {"method": method, "features": {"kind": "patch", "size": 4}, "seed": 0, **settings}
    return shortcuts.explain_rows(subject, share, settings, "label", execution.ExecutionBackend())


def test_scores_are_keyed_by_instance_and_target(subject):
    rows = score_rows(subject, {"method": "occlusion"})
    share = selection.select(subject, seed=0, count=5)
    pd.testing.assert_frame_equal(rows[["instance", "target"]], share[["instance", "target"]], check_dtype=False)
    full = subject.model.log_probs(subject.inputs(share))[np.arange(10), share["target"]]
    np.testing.assert_allclose(rows["value_full"], full, atol=1e-5)
    without = np.ones((1, 16), bool)
    without[0, 3] = False
    asked = (
        subject.inputs(share),
        subject.reference,
        without,
        subject.features,
        "log_probability",
        share["target"].to_numpy(),
    )
    np.testing.assert_allclose(
        np.stack(rows["scores"])[:, 3], full - shortcuts.values(subject.model, *asked)[:, 0], atol=1e-5
    )


def test_methods_that_compare_points_of_one_label_are_refused(subject):
    with pytest.raises(ShapelineError, match="mim: examples of one label each are compared, and these have several"):
        shortcuts.attribute(
            subject.model, INPUTS, TARGETS, {"method": "mim"}, subject.features, None, dataset=subject.dataset
        )


def test_stored_values_keep_labels_apart(subject, tmp_path):
    values = ValueStore(Table(tmp_path, VALUES, growing=True))
    share = selection.select(subject, seed=0, count=3)
    asked = subject.model, subject.inputs(share), share["target"].to_numpy(), {"method": "occlusion"}
    shared = {"features": subject.features, "reference": subject.reference, "instances": share["instance"].to_numpy()}
    (plain,) = shortcuts.attribute(*asked, **shared)
    named = value_addresses(*asked[1:3])
    for _ in range(2):
        (kept,) = shortcuts.attribute(*asked, **shared, values=values, addresses=named)
        np.testing.assert_allclose(kept.scores, plain.scores, atol=1e-6)


# --- metrics ------------------------------------------------------------------------------------------------------


def test_errors_are_to_the_truth_of_the_same_label(subject):
    truth = score_rows(subject, {"method": "occlusion"})
    found = error.measure(truth, truth)
    assert len(found) == 30 and (found.loc[found["statistic"] == "rmse", "value"] == 0).all()
    shuffled = truth.assign(target=1 - truth["target"])
    found = error.measure(truth, shuffled)
    assert (found.loc[found["statistic"] == "rmse", "value"] > 0).all()


def test_variance_over_repeats_does_not_mix_labels():
    rows = pd.DataFrame(
        [
            {"instance": 7, "target": t, "repeat": r, "budget": b, "scores": np.array([10.0 * t + r, 0.0])}
            for t in (0, 1)
            for r in (0, 1)
            for b in (1.0, 2.0)
        ]
    )
    truth = rows[rows["repeat"] == 0].assign(budget=np.nan).drop_duplicates("target")
    found = error.measure(rows, truth)
    # Of one feature of two the scores are 0 and 1 in the two repeats, whatever the label: variance 0.5 / 2.
    assert found.loc[found["statistic"] == "variance_by_budget", "value"].tolist() == [0.25] * 4


def test_localization_uses_the_truth_of_the_row_and_supports_an_absent_label(subject, prepared):
    rows = score_rows(subject, {"method": "occlusion"})
    truth = regions_module.truth(prepared, rows["instance"], rows["target"])
    buckets = [(subject.features, np.arange(len(rows)))]
    found = ground_truth.measure_pixels(rows, truth, buckets)
    best = found[found["statistic"] == "f1_best"]["value"].to_numpy()
    present = truth.any(axis=(1, 2))
    assert np.isnan(best[~present]).all() and np.isfinite(best[present]).all() and present.any() and (~present).any()
    swapped = ground_truth.measure_pixels(
        rows, regions_module.truth(prepared, rows["instance"], 1 - rows["target"]), buckets
    )
    own, other = (np.nanmean(one.loc[one["statistic"] == "auprc", "value"]) for one in (found, swapped))
    assert own > other + 0.2


def test_sensitivity_explains_each_label_of_an_image_again(subject):
    method = {"method": "occlusion"}
    rows, share = score_rows(subject, method), selection.select(subject, seed=0, count=5)
    settings = {"method": method, "features": {"kind": "patch", "size": 4}, "seed": 0}
    found = infidelity.measure_sensitivity(rows, subject, share, parse(settings), "label", samples=2)
    one = share.iloc[[3]].reset_index(drop=True)
    alone = infidelity.measure_sensitivity(rows.iloc[[3]], subject, one, parse(settings), "label", samples=2)
    assert len(found) == 10 and found["value"].iloc[3] == pytest.approx(alone["value"].iloc[0], rel=1e-4)
    assert found["value"].nunique() == 10


# --- files and reports --------------------------------------------------------------------------------------------


def test_shap_gets_a_row_per_label(subject):
    pytest.importorskip("shap")
    rows = score_rows(subject, {"method": "occlusion"})
    found = scores.to_shap(pd.concat([rows, rows.assign(repeat=1)]))
    np.testing.assert_allclose(found.values, scores.matrix(rows), atol=1e-6)


def test_external_scores_belong_to_their_label(subject, tmp_path):
    rows = score_rows(subject, {"method": "occlusion"})
    path = tmp_path / "elsewhere.parquet"
    rows.sample(frac=1, random_state=0)[["instance", "target", "scores"]].to_parquet(path)
    method = {"method": "external", "path": str(path)}
    again = score_rows(subject, method)
    np.testing.assert_allclose(scores.matrix(again), scores.matrix(rows))
    rows[rows["target"] == 0][["instance", "target", "scores"]].to_parquet(path)
    some = score_rows(subject, method)
    assert some["status"].tolist() == ["ok", "other class"] * 5 and "explains class 0" in some["error"][1]
    pd.concat([rows, rows])[["instance", "target", "scores"]].to_parquet(path)
    with pytest.raises(ShapelineError, match="has several rows"):
        score_rows(subject, method)
    rows[rows["target"] == 0][["instance", "scores"]].to_parquet(path)
    with pytest.raises(ShapelineError, match="several labels per record; add a column 'target'"):
        score_rows(subject, method)


@pytest.fixture(scope="module")
def results(subject, prepared, trained, tmp_path_factory):
    """Six images explained for both labels by one method, as a report reads them."""
    root = tmp_path_factory.mktemp("results")
    chosen = selection.select(subject, seed=0, count=6)
    chosen.loc[3, "prediction"] = 1 - chosen.loc[3, "label"]
    selection.write(str(root / "instances.parquet"), chosen, {}, {})
    settings = {"method": {"method": "occlusion"}, "features": {"kind": "patch", "size": 4}, "seed": 0}
    rows = shortcuts.explain_rows(subject, chosen, settings, "label", execution.ExecutionBackend())
    scores.write(root / "0-of-1.parquet", rows, {"settings": settings})
    (root / "model.json").write_text(json.dumps(trained[1]))
    told = {"entries": {"occlusion": {"method": "occlusion"}}, "features": settings["features"], "n_shown": 4}
    return experiment.load(
        experiment="shapes",
        settings_json=json.dumps(told),
        model_card=str(root / "model.json"),
        dataset_card=str(prepared / "card.json"),
        dataset=str(prepared),
        instances=str(root / "instances.parquet"),
        scores={"occlusion": [str(root / "0-of-1.parquet")]},
    ), rows


def test_a_report_shows_each_label_of_an_image(results, prepared):
    results, rows = results
    assert results.instances["instance"].is_unique and len(results.instances) == 12
    kept = experiment.select_scores(results.scores["occlusion"], results.instances["instance"])
    np.testing.assert_array_equal(np.stack(kept), scores.matrix(rows))
    picked = experiment.choose_instances(results.instances, 4)
    assert picked["target"].tolist() == [0, 1, 0, 1] and picked["image"].nunique() == 2
    assert picked["label"].sum() == results.instances.groupby("image")["label"].sum().nlargest(2).sum()
    places = experiment.find_positions(results.dataset, picked)
    np.testing.assert_array_equal(results.dataset.ids[places], picked["image"])
    swapped = results.instances.assign(target=1 - results.instances["target"])
    with pytest.raises(ShapelineError, match="not those of the prepared dataset"):
        experiment.find_positions(results.dataset, swapped)
    truth = figures_localization.read_truth(results)
    np.testing.assert_array_equal(truth.any(axis=(1, 2)), results.instances["label"] == 1)
    wrong = results.instances.to_dict("records")[3]
    name = experiment.name_instance(results, wrong)
    there = "there" if wrong["label"] else "not there"
    assert name.startswith(f"square: {there}\nP = ") and "(wrong)" in name and f"instance {wrong['image']}" in name
    sentences = " ".join(findings.headlines(results))
    assert "6 instances are explained; the model is correct on 91.7 % of their 12 labels" in sentences
    assert "of the labels are correct, and all labels of" in sentences and "classifies" not in sentences
    maps = mean_maps(results)
    assert list(maps) == [0, 1] and [count for *_, count in maps.values()] == [6, 6]
    wanted = scores.matrix(rows[rows["target"] == 1]).mean(0)[results.features.cells[0]].ravel()
    np.testing.assert_allclose(maps[1][1]["occlusion"], wanted, atol=1e-6)
    pages = [images.explanations(results, truth), sections(results), common.interval_note(results)]
    told = "".join(page.data for page in pages)
    assert "the label named beside the image" in told and "Each label has a row of its own" in told
    assert "1 of the 12 explained labels" in told
    assert "The value of an instance is the mean over its labels that have one" in told


def test_means_of_seconds_and_nodes_are_over_images(results):
    """Both labels of one image have equal values, so the spread is that of images only."""
    results, _ = results
    frame = results.scores["occlusion"].sort_values("instance").assign(seconds=np.repeat(np.arange(1.0, 7.0), 2))
    frame["details"] = [json.dumps({"visited_nodes": one}) for one in frame["seconds"]]
    settings = {**results.settings, "timing": "per_instance"}
    doubled = dataclasses.replace(results, scores={"occlusion": frame}, settings=settings)
    once = dataclasses.replace(doubled, scores={"occlusion": frame[frame["target"] == 0]})
    found = sections_localization.seconds_per_image(doubled)
    assert found.loc["occlusion", "mean"] == 3.5 and found.equals(sections_localization.seconds_per_image(once))
    ends = []
    for one in (doubled, once):
        axes = figures_localization.size_curves(one, {3: "occlusion"}).axes[1]
        ends.append([bar.get_segments()[0][:, 1].tolist() for bar in axes.collections])
    half = stats.t.ppf(0.975, 5) * np.std(np.arange(6), ddof=1) / 6**0.5
    assert ends[0] == ends[1] and ends[0][0] == pytest.approx([3.5 - half, 3.5 + half])


# --- configuration ------------------------------------------------------------------------------------------------

SLIDES = {
    "run": ["slides"],
    "datasets": {"slides": {"source": "malaria", "task": "multilabel", "size": [60, 80]}},
    "models": {"net": {"dataset": "slides", "architecture": "resnet18"}},
    "experiments": {
        "slides": {
            "model": "net",
            "features": {"kind": "patch", "size": 20},
            "instances": {"count": 5},
            "methods": {"h_shap": {"method": "h_shap"}, "occlusion": {"method": "occlusion"}},
            "metrics": {"localization": {}, "log_odds": {}},
        }
    },
}


def changed(path: str, value: object) -> dict:
    raw = json.loads(json.dumps(SLIDES))
    *above, last = path.split(".")
    place = raw
    for key in above:
        place = place[key]
    place[last] = value
    return raw


def test_several_labels_are_configured_by_one_key_and_counted():
    found = validation.load(SLIDES)
    assert derived.find_source(found.datasets["slides"]).classes == ("trophozoite", "ring")
    assert messages.count_explanations(found, "slides") == 10
    one = validation.load(changed("experiments.slides.instances.label", "ring"))
    assert messages.count_explanations(one, "slides") == 5


@pytest.mark.parametrize(
    "path, value, words",
    [
        (
            "experiments.slides.value",
            "expected_log_probability",
            ["slides.value", "nothing sums to 1", "log_probability"],
        ),
        ("experiments.slides.instances.label", "no trophozoite", ["instances.label", "trophozoite"]),
        ("experiments.slides.instances.objects", 2, ["instances.objects", "of several labels", "label"]),
        ("experiments.slides.methods.mim", {"method": "mim"}, ["methods.mim", "points of one label each", "remove it"]),
        ("models.net", {"dataset": "slides", "architecture": "mnist_cnn", "framework": "tensorflow"}, ["needs torch"]),
        ("datasets.slides.task", "multilabels", ["datasets.slides.task", "multilabel"]),
        ("datasets.slides.classes", ["ring"], ["datasets.slides", "at least"]),
        ("datasets.slides", {"source": "crosses", "task": "multilabel"}, ["'task'", "does not take it"]),
    ],
)
def test_settings_that_do_not_support_several_labels_are_refused(path, value, words):
    with pytest.raises(ShapelineError) as failure:
        validation.load(changed(path, value))
    assert any(all(word in line for word in words) for line in str(failure.value).splitlines()), str(failure.value)
