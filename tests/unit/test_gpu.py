"""On a GPU networks, gradients, trees, language models and trainings give the numbers of the CPU within float32."""

import copy
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import shapeline
from shapeline import influence
from shapeline.games import calibration, execution
from shapeline.games import features as feature_kinds
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.gradients import torch_gradients
from shapeline.models import architectures, torch_models, training
from tests.fixtures import language_model
from tests.unit import shortcuts

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")
torch_gradients = shortcuts.bind_gradients(torch_gradients)
TOLERANCE = 2e-4  # of log-probabilities, and of scores relative to the largest
IMAGES = {
    "digits_cnn": (1, 8, 8),
    "mnist_cnn": (1, 28, 28),
    "cifar_cnn": (3, 32, 32),
    "crosses_cnn": (3, 100, 120),
    "resnet18": (3, 48, 48),
}
TEXTS = {"word_cnn": {"vocabulary": 300, "length": 40}, "bilstm": {"vocabulary": 300, "length": 40}, "char_cnn": {}}
GRADIENTS = {
    "saliency": (),
    "gradient_x_input": (),
    "integrated_gradients": (),
    "expected_gradients": (np.arange(3), 0),
    "smooth_grad": (np.arange(3), 0),
    "deep_lift": (),
    "grad_cam": (),
}


def images(shape, count=3):
    return np.random.default_rng(0).random((count, *shape), dtype=np.float32)


def patches(shape):
    return feature_kinds.build({"kind": "patch", "size": shape[-1] // 4}, {"input_shape": list(shape)})


def on_both(name, **sizes):
    """One network with the same random weights on the CPU and on the GPU."""
    built = architectures.build(name, seed=1, **sizes)
    for weight in built.module.parameters():
        weight.data *= 1.5
    return built, copy.deepcopy(built).to("cuda")


def masks_of(d, count=200):
    kept = np.random.default_rng(1).random((count, d)) < 0.5
    kept[:2] = [[True], [False]]
    return kept


def assert_close(found, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("backend", ["plain", "channels_last"])
@pytest.mark.parametrize("name", IMAGES)
def test_values_of_images(name, backend):
    shape = IMAGES[name]
    features = patches(shape)
    asked = images(shape), Reference(np.zeros((1, *shape), np.float32)), masks_of(features.d), features
    cpu, gpu = (
        shortcuts.values(model, *asked, backend=ExecutionBackend(one, 64))
        for model, one in zip(on_both(name), ("plain", backend), strict=True)
    )
    assert_close(gpu, cpu)


@pytest.mark.parametrize("name", TEXTS)
def test_values_of_texts(name):
    cpu, gpu = on_both(name, **TEXTS[name])
    length = TEXTS[name].get("length", 1014)
    ids = np.random.default_rng(2).integers(1, 60, (2, length)).astype(np.int32)
    ids[1, length // 2 :] = 0
    features = Features("column", (8,), (np.arange(length, dtype=np.int32) * 8) // length)
    asked = ids, Reference(np.zeros((1, length), np.int32)), masks_of(8, 64), features
    found = [shortcuts.values(model, *asked, backend=ExecutionBackend("plain", 16)) for model in (gpu, cpu)]
    assert_close(*found)


@pytest.mark.parametrize("method", GRADIENTS)
@pytest.mark.parametrize("name", ["mnist_cnn", "resnet18"])
def test_gradients(name, method):
    shape = IMAGES[name]
    asked = images(shape), np.array([0, 1, 0]), patches(shape), Reference(images(shape, 2) / 2), *GRADIENTS[method]
    cpu, gpu = (getattr(torch_gradients, method)(model, *asked)[0] for model in on_both(name))
    assert np.abs(gpu - cpu).max() <= 1e-2 * np.abs(cpu).max()  # ReLU and pools change sides at rounding errors


def test_a_module_on_the_gpu_is_explained_there():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 3))
    rows = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    kept = {}
    for place in ("cpu", "cuda"):
        module.to(place)
        for method in ("shapley", "kernel_shap", "gp_shapley", "integrated_gradients"):
            kept[place, method] = shapeline.explain(module, rows, method, background=rows).scores
        assert next(module.parameters()).device.type == place
    for (_, method), scores in kept.items():
        assert_close(scores, kept["cpu", method], 1e-3 if method == "gp_shapley" else TOLERANCE)


def test_the_engine_is_nearly_as_fast_as_the_module():
    model, shape = on_both("cifar_cnn")[1], IMAGES["cifar_cnn"]
    given, reference = images(shape, 8), Reference(np.zeros((1, *shape), np.float32))
    backend = calibration.calibrate(model, given, reference)
    features = feature_kinds.build({"kind": "pixel"}, {"input_shape": list(shape)})
    masks = masks_of(features.d, 8192)
    rows = torch.from_numpy(images(shape, backend.batch)).cuda()

    def run_engine():
        shortcuts.values(model, given, reference, masks, features, backend=backend)

    def run_module():
        with torch_models.evaluation_mode(model.module):  # in float32, not TF32
            for _ in range(len(given) * len(masks) // backend.batch):
                model.module(rows)
        torch.cuda.synchronize()

    seconds = {run_engine: [], run_module: []}
    for _ in range(4):
        for run, taken in seconds.items():
            began = time.perf_counter()
            run()
            taken.append(time.perf_counter() - began)
    ratio = min(seconds[run_module][1:]) / min(seconds[run_engine][1:])
    print(f"engine over module: {ratio:.2f} of {65536 / min(seconds[run_module][1:]):.0f} rows per second, {backend}")
    assert ratio > 0.7 and backend.difference <= execution.TOLERANCE


@pytest.mark.parametrize("precision, compiled", [("bfloat16", False), ("float32", True), ("bfloat16", True)])
def test_precision_and_compilation(precision, compiled):
    pytest.importorskip("triton")
    shape = IMAGES["mnist_cnn"]
    cpu, gpu = on_both("mnist_cnn")
    reference = Reference(np.zeros((1, *shape), np.float32))
    game = Game(gpu, reference, None, backend=ExecutionBackend("plain", 64))
    backend = calibration.choose_backend(game, images(shape, 8), precision, compiled)
    asked = images(shape), reference, masks_of(16), patches(shape)
    found = shortcuts.values(gpu, *asked, backend=backend), shortcuts.values(cpu, *asked)
    assert_close(*found, execution.BFLOAT16_TOLERANCE if precision == "bfloat16" else TOLERANCE)


def test_too_little_memory_halves_the_rows(caplog):
    cpu, gpu = on_both("resnet18")
    shape = 3, 128, 128
    asked = images(shape), Reference(np.zeros((1, *shape), np.float32)), masks_of(16, 400), patches(shape)
    expected = shortcuts.values(cpu, *asked)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 29)) / total)
    try:
        found = shortcuts.values(gpu, *asked, backend=ExecutionBackend("plain", 1024))
        assert_close(gpu.log_probs(images(shape, 3000))[:3], cpu.log_probs(images(shape, 3)))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory" in caplog.text
    assert_close(found, expected)


@pytest.mark.parametrize("mode", ["absolute", "relative"])
def test_trees_of_images(mode):
    shape = IMAGES["crosses_cnn"]
    reference = np.zeros((1, *shape), np.float32)
    leaves = []
    for model in on_both("crosses_cnn"):
        found = shortcuts.trees(model, images(shape, 2), Reference(reference), [0, 1], 10, mode=mode)
        leaves.append([(tree.leaves, tree.raw) for tree in found])
    assert all(len(boxes) for boxes, _ in leaves[0])
    for (boxes, products), (expected_boxes, expected) in zip(*leaves[::-1], strict=True):
        np.testing.assert_array_equal(boxes, expected_boxes)
        assert_close(products, expected)


@pytest.mark.parametrize("name, settings", [("mim", {}), ("parzen", {"sigma": 1.0})])
def test_measures_of_influence(name, settings):
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(200, 7)), rng.integers(0, 2, 200)
    cpu, gpu = (getattr(influence, name)(X[:20], X, labels, device=place, **settings) for place in ("cpu", "cuda"))
    assert_close(np.asarray(gpu), np.asarray(cpu), 1e-6)


def test_language_models():
    pytest.importorskip("transformers", reason="language models need the extra shapeline[text]")
    model, cut = language_model.llama(), language_model.tokenizer()
    asked = {
        "context": "The ferry runs. It was designed by Mara. Tickets cost four.",
        "target": "Mara.",
        "prompt": "Who?",
    }
    scores = {}
    for place, kind in (
        ("cpu", torch.float32),
        ("cuda", torch.float32),
        ("cuda", torch.bfloat16),
        ("cuda", torch.float16),
    ):
        moved = copy.deepcopy(model).to(place, kind)
        for reuse in (True, False):
            found = shapeline.explain_generation(moved, tokenizer=cut, reuse=reuse, **asked)
            scores[place, kind, reuse] = np.asarray(found.scores)
    expected = scores["cpu", torch.float32, False]
    for (_, kind, _), found in scores.items():
        assert_close(found, expected, TOLERANCE if kind == torch.float32 else 0.05)


def test_training_is_repeatable_and_resumes(tmp_path):
    rng = np.random.default_rng(0)
    dataset = SimpleNamespace(
        inputs=rng.random((600, 1, 28, 28), dtype=np.float32), labels=rng.integers(0, 2, 600), split=np.arange(600) % 3
    )
    weights = []
    for epochs in ((4,), (4,), (2, 4)):
        state = tmp_path / f"{len(weights)}.state"
        for until in epochs:
            model = architectures.build("mnist_cnn")
            training.fit(model, dataset, {"epochs": until}, device="cuda", checkpoint=state)
        assert model.device.startswith("cuda")
        weights.append([value.cpu() for value in model.module.state_dict().values()])
    for other in weights[1:]:
        assert all(map(torch.equal, weights[0], other))


def test_a_function_that_uses_the_gpu_itself():
    module = nn.Sequential(nn.Linear(5, 2), nn.Softmax(1)).cuda()

    def predict(rows):
        with torch.no_grad():
            return module(torch.from_numpy(rows).float().cuda()).cpu().numpy()

    rows = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    found = shapeline.explain(predict, rows, "shapley", background=rows, value="probability").scores
    direct = shapeline.explain(module[0], rows, "shapley", background=rows, value="probability").scores
    assert_close(found, direct)


@pytest.mark.parametrize("method", ["shapley", "integrated_gradients"])
def test_a_network_whose_outputs_are_on_the_cpu(method):
    """One part on each device, as after a dispatch by hand."""

    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8).cuda(), nn.Linear(8, 3)

        def forward(self, rows):
            return self.second(torch.tanh(self.first(rows.to("cuda"))).cpu())

    torch.manual_seed(0)
    split = Split().eval()
    whole = nn.Sequential(copy.deepcopy(split.first).cpu(), nn.Tanh(), split.second).eval()
    rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    scores = [shapeline.explain(net, rows, method, "zero").scores for net in (split, whole)]
    assert_close(*scores)
