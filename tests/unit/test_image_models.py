"""The larger networks of images: sizes, single activations, torchvision's names, weights from elsewhere, flips."""

import collections
import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch import nn

from shapeline.config import validation
from shapeline.datasets import registry
from shapeline.errors import ShapelineError
from shapeline.games import execution, torch_execution
from shapeline.games.execution import select_traced_rows
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.gradients.torch_gradients import deep_lift, grad_cam
from shapeline.hierarchy import torch_evaluator
from shapeline.models import adapters, architectures, storage, torch_models, torch_training, training
from shapeline.workflow import runs
from shapeline.workflow.jobs import fetch_settings, train_settings

SHAPES = {"mnist_cnn": (1, 28, 28), "cifar_cnn": (3, 32, 32), "crosses_cnn": (3, 100, 120), "resnet18": (3, 40, 56)}
LARGER = ["cifar_cnn", "crosses_cnn", "resnet18"]


def some(shape, n=3, seed=0):
    return np.random.default_rng(seed).random((n, *shape), dtype=np.float32)


def bright(n=48, shape=(3, 24, 24), seed=0):
    """Images of which the second class is brighter on the left."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    inputs = random.random((n, *shape), dtype=np.float32) / 2
    inputs[labels == 1, :, :, : shape[2] // 2] += 0.5
    split = np.repeat([0, 1, 2], [n - 16, 8, 8]).astype(np.uint8)
    return SimpleNamespace(inputs=inputs, labels=labels, split=split)


# --- the networks -----------------------------------------------------------------------------------------------------


def test_parameters_are_those_counted_by_hand():
    def conv(before, filters, side, bias=True):
        return filters * (before * side * side + bias)

    def dense(before, after):
        return after * (before + 1)

    convolutions = conv(3, 48, 3) + conv(48, 48, 3) + conv(48, 96, 3) + conv(96, 96, 3) + conv(96, 192, 3)
    cifar = convolutions + conv(192, 192, 3) + dense(192 * 2 * 2, 512) + dense(512, 256) + dense(256, 2)
    assert architectures.build("cifar_cnn").n_parameters == cifar == 1_170_354
    crosses = conv(3, 6, 5) + conv(6, 16, 4) + dense(16 * 9 * 11, 120) + dense(120, 84) + dense(84, 2)
    assert architectures.build("crosses_cnn").n_parameters == crosses == 202_542
    assert architectures.build("resnet18").n_parameters == 11_689_512  # torchvision's own figure


def test_filters_pools_and_dropout_are_in_the_papers_order():
    cifar = architectures.build("cifar_cnn").module
    filters = [layer.out_channels for layer in cifar if isinstance(layer, nn.Conv2d)]
    assert filters == [48, 48, 96, 96, 192, 192]
    pair = ["Conv2d", "ReLU", "Conv2d", "ReLU", "MaxPool2d", "Dropout"]
    dense = ["Linear", "ReLU", "Dropout"]
    assert [type(layer).__name__ for layer in cifar] == ["Standard"] + pair * 3 + ["Flatten"] + dense * 2 + ["Linear"]
    crosses = architectures.build("crosses_cnn").module
    assert [layer.kernel_size for layer in crosses if isinstance(layer, nn.Conv2d)] == [(5, 5), (4, 4)]
    assert [layer.kernel_size for layer in crosses if isinstance(layer, nn.MaxPool2d)] == [2, 5]


@pytest.mark.parametrize(
    "architecture, sizes, shape",
    [
        ("cifar_cnn", {"classes": 10, "channels": 1, "side": 22}, (1, 22, 22)),
        ("cifar_cnn", {"side": 48}, (3, 48, 48)),
        ("crosses_cnn", {"height": 20, "width": 33, "classes": 3}, (3, 20, 33)),
        ("resnet18", {"classes": 4, "channels": 1}, (1, 28, 28)),
        ("resnet18", {"classes": 2, "channels": 5}, (5, 33, 70)),
    ],
)
def test_other_sizes(architecture, sizes, shape):
    model = architectures.build(architecture, **sizes)
    log_probs = model.log_probs(some(shape))
    assert log_probs.shape == (3, model.n_classes)
    np.testing.assert_allclose(np.exp(log_probs).sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("architecture, activations", [("cifar_cnn", 8), ("crosses_cnn", 4), ("resnet18", 17)])
def test_every_activation_is_a_module_called_once(architecture, activations):
    """Required by DeepLIFT for completeness and by Grad-CAM for maps."""
    model, shape = architectures.build(architecture, classes=2), SHAPES[architecture]
    calls = []
    for name, module in model.module.named_modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    x, absent = some(shape, 2), some(shape, 1, seed=1)
    model.log_probs(x)
    assert len(calls) == len(set(calls)) == activations
    cells = np.arange(shape[1] * shape[2], dtype=np.int32).reshape(shape[1:])
    features, targets = Features("pixel", shape[1:], np.stack([cells] * shape[0])), np.ones(2, np.int64)
    _, _, said = deep_lift(Game(model, Reference(absent), features), x, targets)
    assert said["completeness_gap"].max() < 1e-4
    assert np.ptp(grad_cam(Game(model, None, features), x, targets, signed=True)[0]) > 0


@pytest.mark.parametrize("architecture", LARGER)
def test_weights_come_from_the_seed_and_survive_a_file(architecture, tmp_path):
    one, same, other = (architectures.build(architecture, seed=seed, classes=3) for seed in (1, 1, 2))
    inputs = some(SHAPES[architecture])
    assert (one.log_probs(inputs) == same.log_probs(inputs)).all()
    assert (one.log_probs(inputs) != other.log_probs(inputs)).any()
    storage.save(one, tmp_path / "weights.safetensors")
    loaded = storage.load(tmp_path / "weights.safetensors")
    assert (loaded.log_probs(inputs) == one.log_probs(inputs)).all() and loaded.sizes == one.sizes


@pytest.mark.parametrize("architecture", LARGER)
def test_every_backend_of_the_engine_gives_the_same(architecture):
    model, inputs = architectures.build(architecture, classes=2), some(SHAPES[architecture])
    expected, reference = model.log_probs(inputs), Reference(np.zeros((1, *SHAPES[architecture]), np.float32))
    for form in ("channels_last", "onnx"):
        forward = torch_execution.prepare(
            model, execution.ExecutionBackend(form), select_traced_rows(inputs, reference)
        )
        with torch.inference_mode():
            found = torch.log_softmax(forward(torch.from_numpy(inputs)).double(), 1).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_h_shap_evaluates_crops_of_the_crosses_network():
    trunk = torch_evaluator.find_trunk(architectures.build("crosses_cnn"), (3, 100, 120))
    assert (trunk.window, trunk.stride, trunk.size) == ((20, 20), (10, 10), (9, 11))
    assert trunk.head[0].__class__ is nn.Flatten
    assert torch_evaluator.find_trunk(architectures.build("cifar_cnn"), (3, 32, 32)) is None  # padded


def test_deep_networks_keep_their_signal():
    """With torch's default initialisation the last activations of cifar_cnn differ between images by thousandths."""
    model = architectures.build("cifar_cnn", seed=3)
    assert torch_models.state(model.module)["1.bias"].max() == 0
    assert np.ptp(model.log_probs(some((3, 32, 32), 20) * np.linspace(0, 1, 20)[:, None, None, None])[:, 0]) > 0.1
    torch_training.initialise_weights(model.module)
    assert torch_models.state(model.module)["1.bias"].max() == 0


def test_the_card_of_a_dataset_gives_the_sizes(tmp_path):
    crosses = {"kind": "image", "input_shape": [3, 100, 120], "classes": ["none", "cross"]}
    model = architectures.for_dataset({"architecture": "crosses_cnn"}, crosses)
    assert model.sizes == {"classes": 2, "channels": 3, "height": 100, "width": 120, "dropout": 0.5}
    assert architectures.for_dataset({"architecture": "resnet18"}, crosses).sizes == {"classes": 2, "channels": 3}
    cifar = {**crosses, "input_shape": [3, 32, 32]}
    assert architectures.for_dataset({"architecture": "cifar_cnn"}, cifar).sizes["side"] == 32
    for architecture, words in (("cifar_cnn", "'cifar_cnn' is for square images"), ("mnist_cnn", "square images")):
        with pytest.raises(ShapelineError, match=words):
            architectures.for_dataset({"architecture": architecture}, crosses)
    for architecture in ("crosses_cnn", "resnet18"):
        with pytest.raises(ShapelineError, match=r"is for images, but the inputs are of shape \(30,\)"):
            architectures.for_dataset({"architecture": architecture}, {**crosses, "kind": "table", "input_shape": [30]})
    source = tmp_path / "own.py"
    source.write_text(
        "from torch import nn\n\n"
        "def sized(height, width, channels):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 2))\n\n"
        "def wide(width=4):\n    return nn.Sequential(nn.Flatten(), nn.Linear(36000, width), nn.Linear(width, 2))\n\n"
        "def open_ended(*_, width=4, **more):\n    return nn.Sequential(wide(width), *map(nn.Dropout, more.values()))\n"
    )
    own = architectures.for_dataset({"source": f"{source}:sized"}, crosses)
    assert own.sizes == {"height": 100, "width": 120, "channels": 3}
    assert architectures.for_dataset({"source": f"{source}:wide"}, crosses).sizes == {"width": 4}  # not of the image
    own = architectures.for_dataset({"source": f"{source}:open_ended", "sizes": {"dropout": 0.5}}, crosses)
    assert own.sizes == {"width": 4, "dropout": 0.5}


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: architectures.build("cifar_cnn", side=20),
            "a side of at least 22, not 20; use mnist_cnn or digits_cnn",
        ),
        (lambda: architectures.build("crosses_cnn", width=19), "a width of at least 20, not 19"),
        (lambda: architectures.build("resnet18", "tensorflow"), "'resnet18' needs torch"),
        (lambda: architectures.build("resnet18", side=20), "'resnet18' has no size 'side'"),
        (lambda: training.get_settings("cifar_cnn", {"augment": ["flip"]}), "training.augment: unknown value 'flip'"),
        (lambda: training.get_settings("cifar_cnn", {"patience": 0}), "training.patience: 0 is not valid"),
        (lambda: training.get_settings("cifar_cnn", {"precision": "bf16"}), "unknown value 'bf16'. Did you mean"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ShapelineError) as caught:
        call()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_large_images_are_evaluated_in_small_batches(monkeypatch):
    seen = []
    monkeypatch.setattr(torch_models, "PASS_BYTES", {"cpu": 4 * 3 * 24 * 24 * 5})
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 2))
    module.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    data, model = bright(), adapters.wrap(module, "logits", n_classes=2)
    model.log_probs(data.inputs)
    training.fit(model, data, {"epochs": 1, "batch": 32}, initialise=False)
    assert max(seen) == 32 and seen[:10] == [5] * 9 + [3] and seen[10:] == [32, 5, 3, 5, 3]


# --- torchvision's file of weights ------------------------------------------------------------------------------------


def official(classes=1000, seed=0, counts=True):
    """A state dict as torchvision writes it: names and shapes spelled out here, numbers at random."""
    random = torch.Generator().manual_seed(seed)
    shapes = {"conv1.weight": (64, 3, 7, 7)}

    def normalised(name, channels):
        shapes.update({f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")})
        if counts:
            shapes[f"{name}.num_batches_tracked"] = ()

    normalised("bn1", 64)
    for layer, (before, channels) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], 1):
        for block in range(2):
            name = f"layer{layer}.{block}"
            for number in (1, 2):
                entering = before if (block, number) == (0, 1) else channels
                shapes[f"{name}.conv{number}.weight"] = (channels, entering, 3, 3)
                normalised(f"{name}.bn{number}", channels)
            if layer > 1 and block == 0:
                shapes[f"{name}.downsample.0.weight"] = (channels, before, 1, 1)
                normalised(f"{name}.downsample.1", channels)
    shapes |= {"fc.weight": (classes, 512), "fc.bias": (classes,)}
    return collections.OrderedDict(
        (name, torch.rand(shape, generator=random) * 0.1 if shape else torch.tensor(7))
        for name, shape in shapes.items()
    )


@pytest.mark.parametrize("counts", [True, False])
def test_names_and_shapes_are_torchvisions(counts):
    expected = {name: tuple(tensor.shape) for name, tensor in official(counts=counts).items()}
    found = {name: tuple(tensor.shape) for name, tensor in architectures.build("resnet18").module.state_dict().items()}
    assert [*found] == [*official()]  # in its order too
    assert {name: shape for name, shape in found.items() if counts or "num_batches" not in name} == expected


@pytest.mark.parametrize("old", [False, True])
def test_an_official_file_becomes_safetensors_and_training_starts_from_it(tmp_path, old):
    state = official(counts=not old)
    torch.save(state, tmp_path / "net.pth", _use_new_zipfile_serialization=not old)
    torch_training.convert(tmp_path / "net.pth", tmp_path / "start.safetensors")
    kept = safetensors.numpy.load_file(tmp_path / "start.safetensors")
    assert (
        kept.keys() == state.keys() and (kept["layer3.0.conv1.weight"] == state["layer3.0.conv1.weight"].numpy()).all()
    )
    whole, other = architectures.build("resnet18", classes=1000), architectures.build("resnet18", classes=3, seed=5)
    drawn = torch_models.state(other.module)
    for model in (whole, other):
        storage.start_from(model, tmp_path / "start.safetensors")
    assert torch.equal(whole.module.fc.weight, state["fc.weight"])
    assert (torch_models.state(other.module)["fc.weight"] == drawn["fc.weight"]).all()  # other classes: its own draw
    assert torch.equal(other.module.layer4[1].bn2.running_var, state["layer4.1.bn2.running_var"])
    assert int(other.module.bn1.num_batches_tracked) == (0 if old else 7)
    data = bright()
    training.fit(two := architectures.build("resnet18"), data, {"epochs": 1, "learning_rate": 1e-9}, initialise=True)
    assert not torch.allclose(two.module.conv1.weight, state["conv1.weight"], atol=1e-3)
    storage.start_from(two := architectures.build("resnet18", classes=2), tmp_path / "start.safetensors")
    training.fit(two, data, {"epochs": 1, "learning_rate": 1e-9}, initialise=False)
    torch.testing.assert_close(two.module.conv1.weight, state["conv1.weight"], rtol=0, atol=1e-5)


class Command:
    def __reduce__(self):
        return os.system, ("touch was_run",)


@pytest.mark.parametrize(
    "content, words",
    [
        (Command(), "refused, it asks to run posix.system, which is never done"),
        ({"conv1.weight": Command()}, "refused, it asks to run posix.system, which is never done"),
        (torch.zeros(3), "holds no tensors by name"),
        ({"state_dict": {"conv1.weight": torch.zeros(3)}}, "holds no tensors by name"),
        (b"", "refused, it is damaged"),
        (b"\x80\x04junk", "refused, it is damaged"),
        (b"PK\x03\x04 no zip at all", "refused, it is damaged"),
        (pickle.dumps({"a": 1}), "refused, it"),
        (None, "there is no such file"),
    ],
)
def test_files_with_other_contents_are_refused(tmp_path, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ShapelineError) as caught:
        torch_training.convert(path, tmp_path / "start.safetensors")
    assert words in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "was_run").exists() and not (tmp_path / "start.safetensors").exists()


def test_an_official_name_is_of_the_official_file(tmp_path):
    torch.save(official(), path := tmp_path / "resnet18-f37072fd.pth")
    with pytest.raises(ShapelineError, match=r"found sha256 .*, expected f37072fd.*; delete it"):
        torch_training.convert(path, tmp_path / "start.safetensors")


def test_half_an_official_file_is_refused(tmp_path):
    torch.save(official(), tmp_path / "net.pth")
    whole = (tmp_path / "net.pth").read_bytes()
    (tmp_path / "net.pth").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ShapelineError, match="refused, it is damaged"):
        torch_training.state_dict(tmp_path / "net.pth")


def test_weights_that_do_not_fit(tmp_path):
    storage.save(architectures.build("digits_cnn", classes=10), tmp_path / "ten.safetensors")
    storage.start_from(
        two := architectures.build("digits_cnn", classes=2), tmp_path / "ten.safetensors"
    )  # of any architecture
    assert two.log_probs(some((1, 8, 8))).shape == (3, 2)
    with pytest.raises(ShapelineError, match=r"has shape .* give weights of this architecture"):
        storage.start_from(architectures.build("digits_cnn", channels=3), tmp_path / "ten.safetensors")
    with pytest.raises(ShapelineError, match=r"the (file lacks|model has no) .* give weights of this architecture"):
        storage.start_from(architectures.build("crosses_cnn"), tmp_path / "ten.safetensors")
    with pytest.raises(ShapelineError, match="there is no file"):
        storage.start_from(two, tmp_path / "none.safetensors")


# --- training ---------------------------------------------------------------------------------------------------------


class Recorder(nn.Module):
    """Remembers the rows it is trained on and measured on."""

    def __init__(self):
        super().__init__()
        self.last, self.trained, self.measured = nn.Linear(4, 2), [], []

    def forward(self, pictures):
        (self.trained if self.training else self.measured).append(pictures.detach().clone())
        return self.last(pictures.flatten(1))


@pytest.mark.parametrize("axes", [["flip_horizontal"], ["flip_vertical"], ["flip_horizontal", "flip_vertical"]])
def test_only_training_rows_are_flipped(axes):
    n, image = 400, np.array([[1, 2], [3, 4]], np.float32)
    data = SimpleNamespace(
        inputs=np.tile(image, (n, 1, 1, 1)),
        labels=np.arange(n) % 2,
        split=np.repeat([0, 1, 2], [300, 50, 50]).astype(np.uint8),
    )
    whole = adapters.wrap(Recorder(), n_classes=2)
    training.fit(whole, data, {"epochs": 1, "augment": axes}, seed=3)
    trained, measured = (torch.cat(rows)[:, 0] for rows in (whole.module.trained, whole.module.measured))
    assert len(trained) == 300 and (measured.numpy() == image).all() and len(measured) == 100
    kinds = collections.Counter(tuple(row.flatten().tolist()) for row in trained)
    expected = {(1, 2, 3, 4)}
    if "flip_horizontal" in axes:
        expected |= {(2, 1, 4, 3)}
    if "flip_vertical" in axes:
        expected |= {(3, 4, 1, 2)}
    if len(axes) == 2:
        expected |= {(4, 3, 2, 1)}
    assert kinds.keys() == expected and min(kinds.values()) > 0.6 * 300 / len(expected)  # each about as often
    again = adapters.wrap(Recorder(), n_classes=2)
    training.fit(again, data, {"epochs": 1, "augment": axes}, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(whole.module.trained, again.module.trained, strict=True))


def test_only_images_are_flipped():
    rows = SimpleNamespace(inputs=np.zeros((30, 5), np.float32), labels=np.arange(30) % 2, split=np.arange(30) % 3)
    with pytest.raises(ShapelineError, match="augment flips images"):
        training.fit(architectures.build("mlp", inputs=5), rows, {"augment": ["flip_horizontal"]})
    with pytest.raises(ShapelineError, match="precision bfloat16 needs torch"):
        training.fit(architectures.build("mlp", "tensorflow", inputs=5), rows, {"precision": "bfloat16"})


@pytest.mark.parametrize("architecture", LARGER)
def test_training_is_deterministic_by_seed(architecture):
    data = bright(shape=(3, 24, 24))
    sizes = {"cifar_cnn": {"side": 24}, "crosses_cnn": {"height": 24, "width": 24}, "resnet18": {"classes": 2}}

    def trained(seed):
        model = architectures.build(architecture, **sizes[architecture])
        training.fit(model, data, {"epochs": 1, "batch": 16}, seed=seed)
        return model.log_probs(data.inputs)

    one = trained(1)
    assert (one == trained(1)).all() and (one != trained(2)).any()


def test_the_residual_network_learns_and_takes_a_row_left_over():
    data = bright(65)  # 49 training rows in batches of 16: one is left over, which has no deviation of its own
    data.inputs = data.inputs[:, :, :16, :16]
    card = training.fit(
        architectures.build("resnet18", classes=2), data, {"epochs": 4, "batch": 16, "learning_rate": 1e-3}
    )
    assert card["history"][-1]["loss"] < card["history"][0]["loss"] and card["rows"]["train"] == 49


def test_patience_ends_training(monkeypatch):
    made_up = iter([(0.5, 1.0), (0.9, 0.6), (0.8, 0.7), (0.9, 0.7), (0.7, 0.1), (0.9, 0.9), (0.4, 0.4), (1.0, 0.0)])
    monkeypatch.setattr(torch_training.Trainer, "measure", lambda *_: next(made_up))
    card = training.fit(architectures.build("digits_cnn", channels=3, side=24), bright(), {"epochs": 20, "patience": 3})
    assert card["best_epoch"] == 2 and len(card["history"]) == 5  # the second, and three that are no better


def test_mixed_precision_rounds_the_steps_and_keeps_the_weights_float32():
    cards, weights = [], []
    for precision in ("float32", "bfloat16"):
        model = architectures.build("digits_cnn", channels=3, side=24)
        cards.append(training.fit(model, bright(), {"epochs": 4, "batch": 16, "precision": precision}))
        weights.append(torch.cat([one.flatten() for one in model.module.state_dict().values()]))
    assert weights[1].dtype == torch.float32 and not torch.equal(*weights)
    first, last = ([card["history"][epoch]["loss"] for card in cards] for epoch in (0, -1))
    np.testing.assert_allclose(*first, rtol=0.05)  # the same steps but for eight bits of the factors
    assert max(last) < min(first)


def test_the_learning_rate_falls_by_steps():
    settings = training.get_settings("", {"epochs": 25, "learning_rate": 1.0, "schedule": "step"})
    rates = [training.learning_rate(settings, epoch, 0.0) for epoch in range(1, 26)]
    np.testing.assert_allclose(rates, [1] * 10 + [0.2] * 10 + [0.04] * 5)
    settings = training.get_settings("resnet18", {"learning_rate": 1.0, "step": 0.7, "step_epochs": 7})
    rates = [training.learning_rate(settings, epoch, 0.0) for epoch in (1, 7, 8, 14, 15, 60)]
    np.testing.assert_allclose(rates, [1, 1, 0.7, 0.7, 0.49, 0.7**8])


# --- the configuration ------------------------------------------------------------------------------------------------


def entry(**model):
    return {
        "run": ["pictures"],
        "datasets": {"digits38": {"source": "digits", "classes": [3, 8]}, "cells": {"source": "breast_cancer"}},
        "models": {"net": {"dataset": "digits38", "architecture": "resnet18", **model}},
        "experiments": {
            "pictures": {
                "model": "net",
                "features": {"kind": "patch", "size": 4},
                "methods": {"exact": {"method": "shapley"}},
                "metrics": {"cost": {}},
            }
        },
    }


@pytest.mark.parametrize(
    "model, words",
    [
        ({"framework": "tensorflow"}, "models.net.framework: resnet18 needs torch"),
        (
            {"weights": "imagnet"},
            "models.net.weights: 'imagnet' is not a .pt, .pth or .safetensors file. Did you mean 'imagenet'",
        ),
        ({"weights": "none.pth"}, "models.net.weights: there is no file"),
        ({"weights": "none.pt"}, "models.net.weights: there is no file"),
        ({"weights": "imagenet", "architecture": "digits_cnn"}, "models.net.weights: imagenet is of resnet18"),
        (
            {"weights": "w.pth", "architecture": "digits_cnn", "framework": "tensorflow"},
            "models.net.weights: training starts from a file in torch only",
        ),
        ({"training": {"augment": ["flip"]}}, "models.net.training.augment"),
        ({"training": {"patience": 0}}, "models.net.training.patience"),
        (
            {"training": {"augment": ["flip_vertical"]}, "framework": "tensorflow", "architecture": "digits_cnn"},
            "models.net.training.augment: it flips images, in torch alone",
        ),
        (
            {"training": {"precision": "bfloat16"}, "framework": "tensorflow", "architecture": "digits_cnn"},
            "models.net.training.precision: bfloat16 needs torch; set framework: torch",
        ),
        (
            {"training": {"augment": ["flip_vertical"]}, "dataset": "cells", "architecture": "mlp"},
            "models.net.training.augment: it flips images, a dataset of kind table has none",
        ),
    ],
)
def test_impossible_models_are_reported_before_any_job(model, words):
    with pytest.raises(ShapelineError) as caught:
        validation.load(entry(**model))
    assert any(line.startswith(words) for line in str(caught.value).splitlines()), str(caught.value)


def test_the_files_that_training_starts_from(tmp_path):
    plain = validation.load(entry())
    assert runs.find_weights_file(plain, "net") == [] == runs.start_file(plain, "net")
    imagenet = validation.load(entry(weights="imagenet"))
    assert runs.find_weights_file(imagenet, "net") == ["data/raw/weights/resnet18-f37072fd.pth"]
    assert runs.start_file(imagenet, "net") == ["results/models/net/start.safetensors"]
    assert fetch_settings("weights", "resnet18-f37072fd.pth")["checksum"].startswith("f37072fd")
    assert registry.WEIGHTS["imagenet"].urls == ("https://download.pytorch.org/models/resnet18-f37072fd.pth",)
    (tmp_path / "own.pth").touch()
    own = validation.load(entry(weights=str(tmp_path / "own.pth")))
    assert runs.find_weights_file(own, "net") == [str(tmp_path / "own.pth")]
    assert train_settings(plain, "net") == {"architecture": "resnet18", "dataset": "digits38", "seed": 0}
