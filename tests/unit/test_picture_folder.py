"""An image classifier of transformers by its folder: from the configuration's entry to logits, and refusals."""

import copy
import json

import numpy as np
import pytest
import torch
import yaml

from shapeline.config import validation
from shapeline.datasets import folders, loading, preparation
from shapeline.errors import ShapelineError
from shapeline.models import architectures, storage
from shapeline.workflow import job_code
from tests.fixtures import builders, picture_files, text_files, vision

pytest.importorskip("transformers")
PATH = "examples/picture_folder/model"


@pytest.fixture(scope="module")
def place(tmp_path_factory, root):
    """A folder with the example's files: a model, its processor, and images of two classes."""
    place = tmp_path_factory.mktemp("place")
    made = vision.folder(place / PATH)
    text_files.write_folder(place / "examples/picture_folder/images", picture_files.folders(n=15))
    return place, yaml.safe_load((root / "examples/picture_folder.yaml").read_text()), *made


@pytest.fixture
def example(place, monkeypatch):
    monkeypatch.chdir(place[0])
    return copy.deepcopy(place[1])


@pytest.fixture
def prepared(example, tmp_path):
    settings = {key: value for key, value in example["datasets"]["images"].items() if key != "source"}
    card = preparation.prepare("image_folder", settings, [], tmp_path / "out")
    return card, loading.load(tmp_path / "out"), architectures.for_dataset(example["models"]["vit"], card), tmp_path


def test_the_example_is_valid_and_its_files_are_inputs(example):
    loaded = validation.load(example)
    assert f"{PATH}/model.safetensors" in job_code.train_code(loaded, "vit")
    assert f"{PATH}/preprocessor_config.json" in job_code.train_code(loaded, "vit")
    assert "shapeline/models/transformer_models.py" in " ".join(job_code.train_code(loaded, "vit"))


def test_the_example_of_a_vit_on_digits_is_valid(root, tmp_path, monkeypatch):
    """With any folder of 28 x 28 in patches of 4; with other sides it is refused."""
    own = yaml.safe_load((root / "examples/vit_folder.yaml").read_text())
    monkeypatch.setenv("SHAPELINE_DATA", str(tmp_path))
    monkeypatch.setenv("SHAPELINE_MODELS", str(tmp_path))
    builders.write_mnist(tmp_path / "mnist")
    vision.folder(tmp_path / "vit", channels=1, labels=tuple("0123456789"))
    edited(tmp_path / "vit", "config.json", image_size=28)
    loaded = validation.load(own)
    assert {name: loaded.experiments[name].reference for name in loaded.run} == {
        "vit_left_out": "delete",
        "vit_filled": "mean_value",
    }
    edited(tmp_path / "vit", "config.json", image_size=32)
    with pytest.raises(ShapelineError, match="takes images of 32x32"):
        validation.load(own)


def test_a_model_of_a_folder_gives_the_outputs_of_transformers_and_outlives_its_folder(prepared, place):
    card, data, model, tmp_path = prepared
    assert card["input_shape"] == [3, 16, 16] and model.task == "classification" and model.n_classes == 2
    storage.save(model, tmp_path / "weights.safetensors")
    again = storage.load(tmp_path / "weights.safetensors")
    _, _, own, processor = place
    pixels = [np.rint(255 * image).astype(np.uint8) for image in data.inputs[np.arange(len(data.inputs))]]
    made = processor(pixels, return_tensors="pt", input_data_format="channels_first")
    with torch.no_grad():
        expected = own(**made).logits.double().log_softmax(1).numpy()
    assert expected.std(0).max() > 0.01
    for each in (model, again):
        np.testing.assert_allclose(each.log_probs(data.inputs), expected, atol=1e-5)
    measured = architectures.measure_card(again, data)
    assert 0 <= measured["test_accuracy"] <= 1 and "transformers" in measured["versions"]


def test_blocks_are_randomised_from_the_last_one(prepared):
    _, data, model, _ = prepared
    blocks = ["model.vit.embeddings", "model.vit.layers.0", "model.vit.layers.1", "model.classifier"]
    assert list(architectures.list_layers(model)) == blocks
    before = model.log_probs(data.inputs)
    assert architectures.randomise(model, 2, 7) == blocks[:1:-1]
    assert not np.allclose(before, model.log_probs(data.inputs))


@pytest.mark.parametrize("kind", ["DeiT", "Dinov2", "ConvNextV2"])
def test_other_architectures_are_read_and_outputs_are_of_the_classes_by_name(prepared, place, tmp_path, kind):
    import transformers

    card, data, _, _ = prepared
    if kind == "ConvNextV2":
        config = transformers.ConvNextV2Config(hidden_sizes=[4, 8], depths=[1, 1], num_stages=2, num_labels=2)
        made = transformers.ConvNextV2ForImageClassification(config).eval()
    else:
        made = vision.vit(("Horse", "Deer"), kind)
    made.save_pretrained(tmp_path / "model")
    place[3].save_pretrained(tmp_path / "model")
    model = architectures.for_dataset({"source": f"{tmp_path}/model"}, card)
    images = data.inputs[np.arange(4)]
    scaled = (torch.tensor(images) - torch.tensor([0.5, 0.4, 0.3]).view(-1, 1, 1)) / torch.tensor([0.5, 0.2, 0.3]).view(
        -1, 1, 1
    )
    with torch.no_grad():
        expected = made(scaled).logits.double().log_softmax(1).numpy()
    expected = expected if kind == "ConvNextV2" else expected[:, ::-1]
    np.testing.assert_allclose(model.log_probs(images), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, (1.0, [0.5, 0.4, 0.3], [0.5, 0.2, 0.3])),
        ({"do_rescale": False}, (255.0, [0.5, 0.4, 0.3], [0.5, 0.2, 0.3])),
        ({"rescale_factor": 1 / 127.5}, (2.0, [0.5, 0.4, 0.3], [0.5, 0.2, 0.3])),
        ({"do_normalize": False}, (1.0, [0.0] * 3, [1.0] * 3)),
        ({"image_mean": 0.1, "image_std": 2}, (1.0, [0.1] * 3, [2] * 3)),
    ],
)
def test_the_processor_of_an_image(tmp_path, written, expected):
    vision.folder(tmp_path)
    edited(tmp_path, folders.PROCESSOR, **written)
    said = folders.normalisation(str(tmp_path))
    assert said["scale"] == pytest.approx(expected[0]) and (said["mean"], said["deviation"]) == expected[1:]


def edited(folder, name, **changes):
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: (path / "preprocessor_config.json").unlink(), "has no preprocessor_config.json.*save_pretrained"),
        (lambda path: edited(path, "preprocessor_config.json", auto_map={}), "requires code of its own"),
        (lambda path: edited(path, "preprocessor_config.json", image_mean=[0.5]), "does not say how images of 3"),
        (lambda path: edited(path, "preprocessor_config.json", rescale_offset=True), "does not say how images"),
        (lambda path: edited(path, "config.json", image_size=32), "takes images of 32x32 .* size: \\[32, 32\\]"),
        (lambda path: edited(path, "config.json", num_channels=1), "does not say how images of 1 channel"),
        (lambda path: edited(path, "config.json", architectures=["ViTModel"]), "holds ViTModel, which is no image cl"),
        (lambda path: (path / "model.safetensors").rename(path / "pytorch_model.bin"), "only pickled weights"),
    ],
)
def test_a_folder_that_does_not_fit_is_one_line_before_any_job(example, tmp_path, monkeypatch, change, said):
    monkeypatch.chdir(tmp_path)
    vision.folder(tmp_path / PATH)
    (tmp_path / "examples/picture_folder/images").mkdir()
    validation.load(example)
    change(tmp_path / PATH)
    with pytest.raises(ShapelineError, match=said):
        validation.load(example)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("datasets.images.color", "grey", "takes images of 3 channel.s. and the dataset has 1; set .* color: rgb"),
        ("datasets.images.size", [16, 20], "takes images of 16x16 pixels and the dataset has 16x20"),
        ("datasets.images", {"source": "compas"}, "takes texts or images; give a dataset of that kind"),
        ("experiments.filled.methods.deep", {"method": "deep_lift"}, "no rule for what a transformer does"),
        ("experiments.left_out.features.size", 6, r"made of whole patches of the model, of 4 x 4 .* size: 4}"),
        ("experiments.left_out.features", {"kind": "pixel"}, r"made of whole patches of the model"),
        ("experiments.left_out.precision", "bfloat16", "under reference: delete a model runs plain; remove the key"),
        ("experiments.left_out.methods.path", {"method": "integrated_gradients"}, "no such path; use zero or mean_val"),
        (
            "models.vit",
            {"dataset": "images", "architecture": "digits_cnn"},
            "this model is not; use zero or mean_value",
        ),
    ],
)
def test_incompatible_settings_are_one_line(example, path, value, said):
    builders.put(example, path, value)
    with pytest.raises(ShapelineError, match=said):
        validation.load(example)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"model_type": "swin"}, "delete is for models of type vit, deit, vit_msn, .* use zero or mean_value"),
        ({"num_heads": [1, 2]}, "grad_cam needs maps or tokens on one grid .* joins patches from stage to stage; name"),
    ],
)
def test_other_transformers_are_refused(example, tmp_path, monkeypatch, written, said):
    monkeypatch.chdir(tmp_path)
    vision.folder(tmp_path / PATH)
    (tmp_path / "examples/picture_folder/images").mkdir()
    validation.load(example)
    edited(tmp_path / PATH, "config.json", **written)
    with pytest.raises(ShapelineError, match=said):
        validation.load(example)


def test_missing_weights_are_not_initialised_at_random(prepared, place, tmp_path):
    card = prepared[0]
    vision.folder(tmp_path / "model", layers=1)
    edited(tmp_path / "model", "config.json", num_hidden_layers=2)
    with pytest.raises(ShapelineError, match=r"lack \d+ that the model has, first 'vit.layers.1"):
        architectures.for_dataset({"source": f"{tmp_path}/model"}, card)
