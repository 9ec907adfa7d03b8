"""A model on data other than its own: what fits, refusals, and the five slides of examples/slides.yaml."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from skimage.feature import match_template

from shapeline.attribution import context, selection
from shapeline.attribution.context import parse_game as game_of
from shapeline.config import mistakes, validation
from shapeline.datasets import malaria, preparation, registry, sources
from shapeline.errors import ShapelineError
from shapeline.models import architectures, storage
from shapeline.report import experiment, tables
from shapeline.workflow import runs
from shapeline.workflow.jobs import attribute_settings, list_outputs, report_settings, select_settings
from tests.fixtures import builders
from tests.unit.test_config import lines


@pytest.fixture
def raw(default, tmp_path) -> dict:
    """The default configuration with other data of every kind, and digits explained by a network of other digits."""
    (tmp_path / "mine.py").write_text("def records(): ...\n")
    folder = {"source": "image_folder", "path": str(tmp_path)}
    default["datasets"] |= {
        "digits83": {"source": "digits", "classes": [8, 3]},
        "digits_later": {"source": "digits", "classes": [3, 8], "test": 0.5},
        "grey": {**folder, "color": "grey", "size": [16, 24]},
        "colour": {**folder, "size": [8, 8]},
        "reviews_later": {"source": "reviews", "test": 0.4},
        "polarity": {"source": "polarity", "unit": "character"},
        "letters": {"source": "reviews", "unit": "character"},
        "short": {"source": "reviews", "unit": "character", "length": 200},
        "own": {"source": f"{tmp_path}/mine.py:records"},
    }
    default["models"] |= {
        "resnet": {"dataset": "digits38", "architecture": "resnet18"},
        "letters_cnn": {"dataset": "letters", "architecture": "char_cnn"},
    }
    default["experiments"]["digits"] |= {"dataset": "digits_later"}
    return default


def test_settings_and_files_name_the_other_data(raw):
    other = validation.load(raw)
    del raw["experiments"]["digits"]["dataset"]
    own = validation.load(raw)
    for settings in (
        lambda loaded: select_settings(loaded, "digits"),
        lambda loaded: attribute_settings(loaded, "digits", "exact"),
        lambda loaded: report_settings(loaded, "digits"),
    ):
        assert settings(other) == {**settings(own), "dataset": "digits_later"} and "dataset" not in settings(own)
    assert runs.list_datasets(own, "digits") == ["digits38"] and runs.list_training_cards(own, "digits") == []
    assert runs.list_datasets(other, "digits") == ["digits_later", "digits38"]
    assert runs.list_training_cards(other, "digits") == ["data/prepared/digits38/card.json"]
    cards = {f"data/prepared/{name}/card.json" for name in ("digits_later", "digits38")}
    assert cards <= list_outputs(other)
    influence = attribute_settings(own, "cancer_influence", "mim")
    assert influence["dataset"] == "breast_cancer" and "reference" not in influence


@pytest.mark.parametrize(
    ("experiment", "change", "words"),
    [
        ("digits", {"dataset": "digits38"}, ["models.digits_cnn is trained on digits38 itself; remove the key"]),
        ("digits", {"dataset": "digits83"}, ["digits.dataset: models.digits_cnn", "their classes: 8, 3", "data: 3, 8"]),
        ("digits", {"dataset": "grey"}, ["takes images of 8x8 pixels alone and these have 16x24"]),
        ("digits", {"dataset": "colour"}, ["their channels: 3; of the model's data: 1"]),
        ("digits", {"dataset": "breast_cancer"}, ["their kind: table; of the model's data: image"]),
        ("digits", {"dataset": "digit38"}, ["digits.dataset: there is no dataset 'digit38'", "'digits38'"]),
        ("cancer", {"dataset": "diabetes"}, ["their task: regression; of the model's data: classification"]),
        ("reviews", {"dataset": "reviews_later"}, ["each dataset of words has a vocabulary of its own"]),
        ("reviews", {"dataset": "letters"}, ["their unit: character; of the model's data: word"]),
        (
            "reviews",
            {
                "model": "letters_cnn",
                "dataset": "short",
                "features": {"kind": "character_run"},
                "metrics": {"cost": {}},
            },
            ["their tokens a document: 200; of the model's data: 1014"],
        ),
    ],
)
def test_mismatches_are_one_line(raw, experiment, change, words):
    del raw["experiments"]["digits"]["dataset"]
    raw["experiments"][experiment] |= change
    found = lines(raw)
    assert len(found) == 1, found
    assert all(word in found[0] for word in words), found


def test_what_fits_or_is_not_known_yet_is_allowed(raw):
    for change in ({"dataset": "own"}, {"model": "resnet", "dataset": "grey"}):
        raw["experiments"]["digits"] |= change | {"features": {"kind": "patch", "size": 8}}
        validation.load(raw)
    raw["experiments"]["reviews"] |= {"model": "letters_cnn", "dataset": "polarity"}
    raw["experiments"]["reviews"] |= {"features": {"kind": "character_run"}, "metrics": {"cost": {}}}
    validation.load(raw)


CARD = {"name": "a", "kind": "image", "input_shape": [1, 8, 8], "classes": ["3", "8"]}
TABLE = {
    **CARD,
    "kind": "table",
    "input_shape": [2],
    "feature_names": ["age", "job"],
    "categories": {"job": ["x", "y"]},
}
TEXT = {**CARD, "kind": "text", "input_shape": [9], "unit": "word", "vocabulary_digest": "1"}


@pytest.mark.parametrize(
    ("sizes", "trained", "change", "told"),
    [
        ({}, CARD, {"classes": ["8", "3"]}, "their classes: 8, 3; of the model's data: 3, 8"),
        ({}, CARD, {"input_shape": [3, 8, 8]}, "their channels: 3"),
        ({"side": 8}, CARD, {"input_shape": [1, 9, 9]}, "images of 8x8 pixels alone and these have 9x9"),
        ({}, CARD, {"task": "regression", "classes": []}, "their task: regression"),
        ({}, TABLE, {"feature_names": ["job", "age"]}, "their columns: job, age; of the model's data: age, job"),
        ({}, TABLE, {"categories": {"job": ["y"]}}, "their categories differ"),
        ({}, TEXT, {"vocabulary_digest": "2"}, "their words differ"),
        ({}, TEXT, {"input_shape": [8]}, "their tokens a document: 8"),
    ],
)
def test_prepared_data_that_do_not_fit(sizes, trained, change, told):
    registry.check_explained(sizes, trained, {**trained, "name": "b"})
    with pytest.raises(ShapelineError) as failure:
        registry.check_explained(sizes, trained, {**trained, "name": "b", **change})
    assert "dataset 'b' cannot be explained by a model trained on 'a': " in str(failure.value)
    assert told in str(failure.value) and "\n" not in str(failure.value)


def test_a_network_of_any_size_explains_larger_images(tmp_path):
    body = "x = np.random.default_rng(0).random((40, {sides})).astype(np.float32)\nreturn {{'inputs': x, {rest}}}"
    small = builders.write_own_source(
        tmp_path / "small.py", body.format(sides="1, 8, 8", rest="'labels': np.arange(40) % 2, 'class_names': 'ab'")
    )
    rest = "'labels': np.ones(40, int), 'class_names': 'ab', 'split': np.arange(40) % 3"
    large = builders.write_own_source(tmp_path / "large.py", body.format(sides="1, 12, 16", rest=rest))
    trained = preparation.prepare(small, {}, [], tmp_path / "small")
    explained = preparation.prepare(large, {}, [], tmp_path / "large")
    assert explained["counts"]["train"] == {"a": 0, "b": 14}  # nothing to learn from, and no need to
    network = "nn.Sequential(nn.Conv2d(channels, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))"
    code = f"from torch import nn\n\n\ndef network(classes, channels):\n    return {network}\n"
    (tmp_path / "network.py").write_text(code)
    any_size = {"source": f"{tmp_path}/network.py:network"}
    model = architectures.for_dataset(any_size, trained)
    weights = str(tmp_path / "weights.safetensors")
    storage.save(model, weights)
    settings = {"features": {"kind": "patch", "size": 4}, "reference": "mean", "seed": 0}
    cards = (str(tmp_path / "small" / "card.json"), str(tmp_path / "large" / "card.json"))
    subject = context.load_context(weights, str(tmp_path / "large" / "arrays.npz"), game_of(settings), "cpu", cards[0])
    assert subject.features.shape == (3, 4) and subject.reference.rows.shape == (1, 1, 12, 16)
    selected = selection.select(subject, 0, count=5)
    expected = np.exp(model.log_probs(subject.dataset.inputs[selected["row"]]).max(1))
    np.testing.assert_allclose(selected["probability"], expected, rtol=1e-5)
    assert selected["label"].tolist() == [1] * 5
    # The classes' names are the card's, not the weights'.
    (tmp_path / "small" / "card.json").write_text(json.dumps({**trained, "classes": ["b", "a"]}))
    with pytest.raises(ShapelineError, match="their classes: a, b; of the model's data: b, a"):
        context.load_context(weights, str(tmp_path / "large" / "arrays.npz"), game_of(settings), "cpu", cards[0])
    with pytest.raises(ShapelineError, match="class 'a' has no record in the training part of 'large'"):
        architectures.for_dataset(any_size, explained)


def test_some_records_are_for_training_in_any_case(tmp_path):
    rest = "return {'inputs': np.eye(4), 'labels': [0, 0, 1, 1], 'split': [2, 2, 2, 1]}"
    source = builders.write_own_source(tmp_path / "all_test.py", rest)
    with pytest.raises(ShapelineError, match="class '0' has 2 record"):
        preparation.prepare(source, {}, [], tmp_path / "out")


def test_the_page_states_the_training_data_of_the_model():
    model_card = {"settings": {"dataset": "crops"}}
    results = SimpleNamespace(model_card=model_card, settings={"dataset": "slides"})
    assert experiment.find_other_dataset(results) == "crops"
    assert experiment.find_other_dataset(SimpleNamespace(model_card=model_card, settings={})) is None
    assert experiment.find_other_dataset(SimpleNamespace(model_card={}, settings={"dataset": "slides"})) is None
    assert "crops" in tables.model_facts(model_card).to_string()


# ---- the five slides


def test_the_example_is_a_valid_configuration(default, root, tmp_path, monkeypatch):
    (tmp_path / "bbbc041").mkdir()
    monkeypatch.setenv("SHAPELINE_DATA", str(tmp_path))
    own = yaml.safe_load((root / "examples" / "slides.yaml").read_text())
    for section in mistakes.SECTIONS:
        assert not set(default[section]) & set(own[section])
        default[section] |= own[section]
    loaded = validation.load(default | {"run": own["run"]})
    for slide, name in enumerate(own["run"]):
        assert runs.list_datasets(loaded, name) == [f"slides_{slide}", f"crops_{slide}"]
        for dataset in runs.list_datasets(loaded, name):
            given = sources.user_function(str(root / loaded.datasets[dataset].source)).keywords
            assert given == {"held_out": slide}
        assert "demonstration, no performance claimed" in loaded.experiments[name].report.title


def test_cells_of_crops_and_slides_have_one_size(root, real_data):
    path = real_data("bbbc041", "annotations.json").parent
    crops = sources.user_function(f"{root}/examples/slides.py:crops_2")(path)
    slides = sources.user_function(f"{root}/examples/slides.py:slides_2")(path)
    assert slides["split"].tolist() == [0, 0, 2, 1, 0] and slides["labels"].tolist() == [1] * 5
    assert slides["inputs"].shape == (5, 3, 300, 400) and crops["inputs"].shape[1:] == (3, 50, 50)
    held_out = np.flatnonzero(np.array(crops["split"]) == sources.TEST)
    assert len(held_out) == 2 * malaria.CROPS  # one trophozoite
    whole = slides["inputs"][2].mean(axis=0)
    (box,) = slides["boxes"][2]
    for row in held_out[[0, 3]]:  # the crop is found in the slide, as it is, and around the box
        found = match_template(whole, crops["inputs"][row].mean(axis=0))
        top, left = np.unravel_index(found.argmax(), found.shape)
        assert found.max() > 0.97
        assert top <= box[1] + 1 and left <= box[2] + 1 and top + 50 >= box[3] - 1 and left + 50 >= box[4] - 1


def test_the_crop_with_the_highest_probability_decides(root):
    torch = pytest.importorskip("torch")
    model = architectures.for_dataset(
        {"source": f"{root}/examples/slides.py:anywhere"}, {"input_shape": [3, 50, 50], "classes": ["no", "yes"]}
    )
    images = torch.rand(2, 3, 96, 128, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model.module(images)
        places = model.module.network(images)
    assert places.shape == (2, 2, 3, 4)
    margins = (places[:, 1] - places[:, 0]).flatten(1).amax(1)
    torch.testing.assert_close(logits[:, 1] - logits[:, 0], margins)
