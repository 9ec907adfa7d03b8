"""Expected gradients, DeepLIFT, Grad-CAM and SmoothGrad: by hand, complete, equal in both frameworks and batches."""

import contextlib
import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import shapeline
from shapeline.config import validation
from shapeline.errors import NO_RULE, MethodFailure, ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.gradients import methods, tf_gradients, torch_gradients
from shapeline.methods import registry
from shapeline.models import architectures, storage
from shapeline.models.classifier import Classifier
from tests.unit import shortcuts, twins

RNG = np.random.default_rng(0)
torch_gradients, tf_gradients = map(shortcuts.bind_gradients, (torch_gradients, tf_gradients))
GRADIENTS = [torch_gradients, tf_gradients]
NAMES = ["torch", "tensorflow"]
WEIGHTS = np.array([[1.0, -2.0, 0.5, 0.25]], np.float32)
ROWS = RNG.normal(size=(3, 4)).astype(np.float32)
COLUMNS = Features("column", (4,), np.arange(4, dtype=np.int32))
ZEROS = np.zeros(3, int)
IMAGES, TARGETS = RNG.random((5, 1, 8, 8), dtype=np.float32), np.array([0, 2, 1, 1, 0])
PATCHES = feature_kinds.build({"kind": "patch", "size": 2}, {"input_shape": [1, 8, 8]})
IDS = np.array([7, 3, 11, 2, 5])
SHAPES = {
    "digits_cnn": (1, 8, 8),
    "mnist_cnn": (1, 28, 28),
    "cifar_cnn": (3, 32, 32),
    "crosses_cnn": (3, 100, 120),
    "resnet18": (3, 48, 48),
}
CHEAP = {"integrated_gradients": {"steps": 4}, "expected_gradients": {"samples": 6}, "smooth_grad": {"samples": 3}}
METHODS = [
    *("saliency", "gradient_x_input", "integrated_gradients", "expected_gradients"),
    *("deep_lift", "grad_cam", "smooth_grad"),
]


@pytest.fixture(autouse=True)
def draws_of_its_own(monkeypatch):
    """Seed each test, independent of the tests before it in this process."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(1))


def loud(built: Classifier) -> Classifier:
    """The untrained network with weights large enough that scores are far from 0."""
    for weight in built.module.parameters():
        weight.data *= 2
    return built


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """One network of images in both frameworks."""
    file = tmp_path_factory.mktemp("twins") / "w.safetensors"
    storage.save(loud(architectures.build("digits_cnn", seed=1, classes=3)), file)
    return [storage.load(file, framework=framework) for framework in NAMES]


@pytest.fixture(scope="module")
def text():
    return twins.text()


def linear_regression():
    found = twins.linear(WEIGHTS, np.array([0.5], np.float32))
    for one in found:
        one.task, one.n_classes = "regression", 1
    return found


def network(*layers: nn.Module, classes: int = 1) -> Classifier:
    task = "regression" if classes == 1 else "classification"
    return Classifier("torch", "net", nn.Sequential(*layers), classes, task=task)


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_expected_gradients_of_a_linear_network_by_hand(framework):
    model, module = linear_regression()[framework], GRADIENTS[framework]
    one = Reference(RNG.normal(size=(1, 4)).astype(np.float32))
    scores, evaluations, said = module.expected_gradients(model, ROWS, ZEROS, COLUMNS, one, IDS[:3], 4, samples=5)
    np.testing.assert_allclose(scores, WEIGHTS * (ROWS - one.rows), atol=1e-5)
    assert said["completeness_gap"].max() < 1e-5 and (evaluations == 5 + 1 + 1).all()
    many = Reference(RNG.normal(size=(3, 4)).astype(np.float32))
    scores, evaluations, said = module.expected_gradients(model, ROWS, ZEROS, COLUMNS, many, IDS[:3], 4, samples=600)
    assert np.abs(scores - WEIGHTS * (ROWS - many.rows.mean(0))).max() < 0.25  # each row about 200 times
    assert said["completeness_gap"].max() < 1e-4  # against the rows that were drawn
    assert (evaluations == 600 + 1 + 3).all()


def test_expected_gradients_come_near_integrated_gradients(digits):
    reference = Reference(RNG.random((2, 1, 8, 8), dtype=np.float32))
    asked = digits[0], IMAGES, TARGETS, PATCHES, reference
    exact = torch_gradients.integrated_gradients(*asked)[0]
    few, many = (torch_gradients.expected_gradients(*asked, IDS, 0, samples=samples) for samples in (20, 2000))
    error = [np.abs(found[0] - exact).mean() / np.abs(exact).mean() for found in (few, many)]
    assert error[1] < 0.1 < error[0]
    assert many[2]["completeness_gap"].max() < few[2]["completeness_gap"].max()


def test_deep_lift_of_linear_networks_by_hand():
    reference = Reference(RNG.normal(size=(2, 4)).astype(np.float32))
    scores, evaluations, said = torch_gradients.deep_lift(linear_regression()[0], ROWS, ZEROS, COLUMNS, reference)
    np.testing.assert_allclose(scores, WEIGHTS * (ROWS - reference.rows.mean(0)), atol=1e-5)
    assert evaluations == 4 and said["completeness_gap"].max() < 1e-5
    # Of two classes log p is one number's function: its change is shared out as the linear function's is.
    weights = np.concatenate([WEIGHTS, -WEIGHTS])
    model = twins.linear(weights, np.zeros(2, np.float32))[0]
    one = Reference(reference.rows[:1])
    scores, _, _ = torch_gradients.deep_lift(model, ROWS, ZEROS, COLUMNS, one)
    gained = np.subtract(*(model.log_probs(rows)[:, 0] for rows in (ROWS, one.rows)))
    shares = WEIGHTS * (ROWS - one.rows)
    np.testing.assert_allclose(scores, shares / shares.sum(1, keepdims=True) * gained[:, None], atol=1e-5)


def test_deep_lift_of_a_rectifier_and_of_overlapping_pools_by_hand():
    given, origin = np.array([[3.0, 1.0]], np.float32), Reference(np.array([[0.0, 2.0]], np.float32))
    features = Features("column", (2,), np.arange(2, dtype=np.int32))
    # relu(x1 - x2) goes from relu(-2) = 0 to relu(2) = 2 while its input goes from -2 to 2: a slope of one half.
    layer = nn.Linear(2, 1)
    layer.load_state_dict({"weight": torch.tensor([[1.0, -1.0]]), "bias": torch.zeros(1)})
    scores, _, _ = torch_gradients.deep_lift(network(layer, nn.ReLU()), given, ZEROS[:1], features, origin)
    np.testing.assert_allclose(scores, [[1.5, 0.5]], atol=1e-6)
    # max(x1, x2) + max(x2, x3): the first changes by 3, through x2; the second by -2, through what x3 lost.
    pool = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.MaxPool1d(2, stride=1), nn.Flatten(), nn.Linear(2, 1))
    pool[3].load_state_dict({"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
    three = Features("column", (3,), np.arange(3, dtype=np.int32))
    given, origin = np.array([[1.0, 3.0, 2.0]], np.float32), Reference(np.array([[0.0, 0.0, 5.0]], np.float32))
    scores, _, _ = torch_gradients.deep_lift(network(pool), given, ZEROS[:1], three, origin)
    np.testing.assert_allclose(scores, [[0, 3, -2]], atol=1e-6)


@pytest.mark.filterwarnings("ignore:Setting forward, backward hooks", "ignore:Input Tensor 0 did not")
def test_deep_lift_is_captums_where_nothing_is_pooled():
    pytest.importorskip("captum", reason="captum is an extra")
    from captum.attr import DeepLift

    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 16, 1)
    model, origin = network(*layers), RNG.random((1, 1, 8, 8), dtype=np.float32)
    found, _, _ = torch_gradients.deep_lift(model, IMAGES, ZEROS[[0] * 5], PATCHES, Reference(origin))
    theirs = DeepLift(model.module).attribute(torch.tensor(IMAGES), torch.tensor(origin))
    np.testing.assert_allclose(found, methods.pool(theirs.detach().numpy(), PATCHES), atol=1e-5)


def test_deep_lift_takes_modules_that_are_used_twice_or_work_in_place_and_leaves_no_hooks():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.rectifier = nn.Linear(4, 6), nn.Linear(6, 3), nn.ReLU(inplace=True)

        def forward(self, rows):
            return self.rectifier(self.two(self.rectifier(self.one(rows))))

    model = Classifier("torch", "twice", Twice(), 3)
    reference = Reference(RNG.normal(size=(2, 4)).astype(np.float32))
    _, _, said = torch_gradients.deep_lift(model, 3 * ROWS, np.array([0, 1, 2]), COLUMNS, reference)
    assert said["completeness_gap"].max() < 1e-4
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.module.modules())


@pytest.mark.parametrize("method", ["gp_shapley", "integrated_gradients", "deep_lift", "grad_cam"])
def test_threads_explain_one_network_that_is_in_training_mode(method):
    """None may leave evaluation mode while another evaluates, nor see another's hooks; convolutions work in place."""
    layers = nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Conv2d(4, 4, 3), nn.ReLU(inplace=True)
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 3)).train()

    def explain(number: int) -> np.ndarray:
        return shapeline.explain(net, IMAGES[number % 5 :][:3], background=IMAGES, method=method, budget=2).scores

    alone = [explain(number) for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        for number, scores in enumerate(pool.map(explain, range(20))):
            np.testing.assert_allclose(scores, alone[number % 5], atol=1e-6)
    assert all(part.training for part in net.modules())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())


def test_deep_lift_of_what_is_no_module_shows_in_the_gap():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(4, 2)

        def forward(self, rows):
            return torch.relu(self.one(rows)) ** 2

    model, reference = Classifier("torch", "functional", Functional(), 2), Reference(np.zeros((1, 4), np.float32))
    with torch.no_grad():
        model.module.one.weight.copy_(torch.tensor([[1.0, -1, 0.5, 0.25], [-0.5, 0.5, 1, -1]]))
        model.module.one.bias.fill_(0.3)
    rows = np.array([[1, 0, 0, 0], [0, 2, 0, 1], [0, 0, 0, 0]], np.float32)  # the last is the reference itself
    (found,) = shortcuts.attribute(model, rows, ZEROS, {"method": "deep_lift"}, COLUMNS, reference, on_error="fail")
    assert found.warning == [NO_RULE, NO_RULE, None]
    assert min(details["completeness_gap"] for details in found.details[:2]) > 0.04


def test_a_gap_is_large_against_what_was_gained():
    scores = np.array([[1.0, 1], [1, 1], [3, -3], [3, -3], [0, 0]])
    said = methods.measure_completeness(scores, np.array([2.2, 2.3, 0.05, 0.07, 0]))
    np.testing.assert_allclose(said["completeness_gap"], [0.2, 0.3, 0.05, 0.07, 0])
    assert said["warning"] == [None, methods.GAP_WARNING, None, methods.GAP_WARNING, None]


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_every_complete_method_flags_a_large_gap(digits, framework):
    reference = Reference(RNG.random((1, 1, 8, 8), dtype=np.float32))
    for settings in ({"method": "integrated_gradients", "steps": 2}, {"method": "expected_gradients", "samples": 1}):
        asked = digits[framework], IMAGES, TARGETS, settings, PATCHES, reference
        (found,) = shortcuts.attribute(*asked, instances=IDS, on_error="fail")
        assert methods.GAP_WARNING in found.warning, settings["method"]
    settings = {"method": "integrated_gradients", "steps": 50}
    assert shortcuts.attribute(digits[framework], *asked[1:3], settings, *asked[4:])[0].warning == [None] * 5


def test_deep_lift_has_a_rule_for_every_elementwise_module():
    reference = Reference(RNG.normal(size=(2, 4)).astype(np.float32))
    shrinking = nn.Softshrink, nn.Tanhshrink, nn.Threshold, nn.RReLU
    for kind in dict.fromkeys((*torch_gradients.ELEMENTWISE, *shrinking)):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            middle = nn.Threshold(0.1, -0.5) if kind is nn.Threshold else kind()
            model = network(nn.Linear(4, 6), middle, nn.Linear(6, 3), classes=3)
        scores, _, said = torch_gradients.deep_lift(model, 3 * ROWS, ZEROS, COLUMNS, reference)
        assert said["completeness_gap"].max() < 1e-5 and np.abs(scores).max() > 1e-2, kind


MIDDLES = [
    *(nn.AdaptiveMaxPool2d(2), nn.LPPool2d(2, 2), nn.FractionalMaxPool2d(2, output_size=2)),
    *(nn.InstanceNorm2d(4), nn.LocalResponseNorm(2), nn.GLU(1), nn.Softmax2d(), nn.RMSNorm(4)),
]


@pytest.mark.parametrize("middle", MIDDLES, ids=lambda middle: type(middle).__name__)
def test_deep_lift_refuses_what_would_get_its_derivative(middle):
    model = network(nn.Conv2d(1, 4, 5), middle, nn.Flatten(), nn.LazyLinear(1))
    model.module(torch.tensor(IMAGES))
    with pytest.raises(ShapelineError, match=f"module '1' of 'net' is an? {type(middle).__name__}, which has no rule"):
        torch_gradients.deep_lift(model, IMAGES, ZEROS[[0] * 5], PATCHES, Reference(np.zeros((1, 1, 8, 8), np.float32)))


def test_deep_lift_refuses_a_module_without_a_rule():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.dense = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, rows):
            return self.dense(self.layer(rows[:, None])[0][:, -1])

    model = Classifier("torch", "recurrent", Recurrent(), 2)
    with pytest.raises(ShapelineError, match="module 'layer' of 'recurrent' is an LSTM, which has no rule"):
        torch_gradients.deep_lift(model, ROWS, ZEROS, COLUMNS, Reference(np.zeros((1, 4), np.float32)))


def test_grad_cam_by_hand(digits):
    """The last convolution and what follows it: maps, their mean gradients, their weighted sum."""
    model = digits[0].module
    with torch.no_grad():
        maps = model[:3](torch.tensor(IMAGES))
    maps.requires_grad_()
    log_probs = torch.log_softmax(model[3:](maps).double(), 1)
    log_probs[np.arange(5), TARGETS].sum().backward()
    coarse = (maps.grad.mean((2, 3), keepdim=True) * maps).sum(1, keepdim=True).detach()
    for signed in (True, False):
        wanted = coarse if signed else coarse.clamp(min=0)
        pixels = nn.functional.interpolate(wanted, (8, 8), mode="bilinear")[:, 0].numpy()
        wanted = pixels.reshape(5, 4, 2, 4, 2).mean((2, 4)).reshape(5, -1)
        for module, one in zip(GRADIENTS, digits, strict=True):
            found, evaluations = module.grad_cam(one, IMAGES, TARGETS, PATCHES, signed=signed)
            np.testing.assert_allclose(found, wanted, atol=1e-5)
            assert evaluations == 1 and (found.min() < -1e-3) == signed


@pytest.mark.parametrize("sides", [(4, 4), (3, 7), (1, 1), (11, 9)])
def test_maps_are_stretched_as_torch_does(sides):
    maps = RNG.normal(size=(2, *sides))
    wanted = nn.functional.interpolate(torch.tensor(maps[:, None]), (9, 14), mode="bilinear")
    np.testing.assert_allclose(methods.upsample(maps, (9, 14)), wanted[:, 0].numpy(), atol=1e-12)


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_grad_cam_accepts_a_layer_by_name_and_lists_the_existing_ones(digits, framework):
    asked = digits[framework], IMAGES, TARGETS, PATCHES
    last = GRADIENTS[framework].grad_cam(*asked)[0]
    assert np.abs(GRADIENTS[framework].grad_cam(*asked, layer="0")[0] - last).max() > 1e-3
    np.testing.assert_array_equal(GRADIENTS[framework].grad_cam(*asked, layer="2")[0], last)
    GRADIENTS[framework].grad_cam(*asked, layer="3")  # an activation has maps too
    for layer, problem in (("layer4", "has no layer 'layer4'"), ("6", "layer '6' of 'digits_cnn' gives no maps")):
        with pytest.raises(ShapelineError) as caught:
            GRADIENTS[framework].grad_cam(*asked, layer=layer)
        assert problem in str(caught.value) and str(caught.value).endswith("its convolutions: 0, 2")
        assert isinstance(caught.value, MethodFailure) == (layer == "6")  # a name that there is not is a mistake
    table = linear_regression()[framework]
    with pytest.raises(ShapelineError, match=r"have shape \(4,\) and are no images"):
        GRADIENTS[framework].grad_cam(table, ROWS, ZEROS, COLUMNS)


class WithSpare(nn.Module):
    """A network whose last convolution does not reach its output: never called, or called in vain."""

    def __init__(self, called: bool):
        super().__init__()
        self.called, self.used, self.dense = called, nn.Conv2d(1, 2, 3), nn.Linear(72, 3)
        self.spare = nn.Conv2d(1, 2, 3)

    def forward(self, images):
        if self.called:
            self.spare(images)
        return self.dense(self.used(images).flatten(1))


@pytest.mark.filterwarnings(r"ignore:`build\(\)` was called on layer")
@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("framework", NAMES)
def test_a_layer_that_the_output_does_not_depend_on_is_named(framework, called):
    if framework == "torch":
        model, used, spare = Classifier("torch", "net", WithSpare(called), 3), "used", "spare"
    else:
        model, used, spare = twins.keras_with_spare(called), "used", "spare"
    asked = IMAGES, TARGETS, {"method": "grad_cam"}, PATCHES, Reference(np.zeros((1, 1, 8, 8), np.float32))
    with pytest.raises(ShapelineError, match=f"layer '{spare}' of '.*' gives no maps; its convolutions: used, spare"):
        shortcuts.attribute(model, *asked, on_error="fail")
    module = GRADIENTS[NAMES.index(framework)]
    assert np.abs(module.grad_cam(model, IMAGES, TARGETS, PATCHES, layer=used, signed=True)[0]).max() > 0


def test_an_error_of_the_networks_own_stays_what_it_is():
    class Wrong(WithSpare):
        def forward(self, images):
            assert len(images) == 0, "no images wanted"
            return super().forward(images)

    with pytest.raises(AssertionError, match="no images wanted"):
        torch_gradients.grad_cam(Classifier("torch", "net", Wrong(True), 3), IMAGES, TARGETS, PATCHES)


def test_a_method_of_torch_refuses_a_tensorflow_model_with_the_remedy(digits):
    reference = Reference(np.zeros((1, 1, 8, 8), np.float32))
    with pytest.raises(ShapelineError, match="is a tensorflow one; give it in torch, or use expected_gradients or"):
        shortcuts.attribute(digits[1], IMAGES, TARGETS, {"method": "deep_lift"}, PATCHES, reference, on_error="fail")


def test_a_missing_layer_stops_the_job(digits):
    reference, settings = Reference(np.zeros((1, 1, 8, 8), np.float32)), {"method": "grad_cam", "layer": "nine"}
    with pytest.raises(ShapelineError, match="no layer 'nine'"):
        shortcuts.attribute(digits[0], IMAGES, TARGETS, settings, PATCHES, reference, on_error="record")


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_smooth_grad_is_saliency_where_the_noise_is_nothing(digits, framework):
    asked = digits[framework], IMAGES, TARGETS, PATCHES
    saliency = GRADIENTS[framework].saliency(*asked)[0]
    quiet, evaluations = GRADIENTS[framework].smooth_grad(*asked, IDS, 0, samples=3, noise=1e-6)
    np.testing.assert_allclose(quiet, saliency, rtol=1e-3, atol=1e-5)
    noisy = GRADIENTS[framework].smooth_grad(*asked, IDS, 0, samples=3, noise=0.3)[0]
    assert np.abs(noisy - saliency).max() > 1e-2 and noisy.min() >= 0 and evaluations == 3


def test_the_noise_is_a_fraction_of_each_instances_range_and_spares_what_is_never_removed():
    seen = []

    def gradient(points, instance):
        seen.append((points.copy(), instance))
        return np.ones_like(points), np.zeros(len(points))

    inputs = np.array([[0.0, 1, 2, 50], [0, 10, 20, 50]], np.float32)
    features = Features("column", (3,), np.array([0, 1, 2, -1], np.int32))
    slope = methods.Slope(lambda rows: rows.astype(np.float32), gradient, 256, False)
    game = Game(None, None, features)
    methods.smooth_grad(lambda *_: contextlib.nullcontext(slope), game, inputs, TARGETS[:2], [5, 9], 0, 4000, 0.1)
    points, instance = (np.concatenate(part) for part in zip(*seen, strict=True))
    noise = points - inputs[instance]
    assert (noise[:, 3] == 0).all()
    np.testing.assert_allclose([noise[instance == i, :3].std() for i in (0, 1)], [0.2, 2.0], rtol=0.05)


def calls(framework, digits, text) -> dict:
    """Return scores of the sampling methods, of images and of tokens, and Grad-CAM's."""
    ids = np.zeros((5, twins.LENGTH), np.int32)
    ids[:, :7] = np.random.default_rng(1).integers(1, twins.WORDS, (5, 7))
    words = Features("word", (7,), np.where(np.arange(twins.LENGTH) < 7, np.arange(twins.LENGTH), -1).astype(np.int32))
    rows = np.random.default_rng(2).random((3, 1, 8, 8), dtype=np.float32)
    pad, module = Reference(np.zeros((1, twins.LENGTH), np.int32)), GRADIENTS[framework]
    found = {}
    for name, model, inputs, features, reference in (
        ("picture", digits[framework], IMAGES, PATCHES, Reference(rows)),
        ("tokens", text[framework], ids, words, pad),
    ):
        asked = model, inputs, TARGETS, features
        found[name, "expected"] = module.expected_gradients(*asked, reference, IDS, 1, samples=9)
        found[name, "smooth"] = module.smooth_grad(*asked, IDS, 1, samples=9)
    return found


def test_twins_agree_also_in_passes_of_other_sizes(digits, text, monkeypatch):
    wanted = calls(0, digits, text)
    for rows in (256, 7, 1):
        monkeypatch.setattr(methods, "MAX_PASS_ROWS", rows)
        for framework in (0, 1):
            for key, found in calls(framework, digits, text).items():
                np.testing.assert_allclose(found[0], wanted[key][0], atol=1e-4 if framework else 1e-5, err_msg=key)
                assert np.abs(found[0]).max() > 1e-2
                np.testing.assert_array_equal(found[1], wanted[key][1])
                if len(found) > 2:
                    gaps = (one[2]["completeness_gap"] for one in (found, wanted[key]))
                    np.testing.assert_allclose(*gaps, atol=1e-4)


def test_samples_are_independent_per_instance(digits):
    """Neither the shard nor the neighbours change them; another seed does."""
    reference = Reference(RNG.random((2, 1, 8, 8), dtype=np.float32))
    model, module = digits[0], torch_gradients
    whole = module.expected_gradients(model, IMAGES, TARGETS, PATCHES, reference, IDS, 4, samples=8)[0]
    part = module.expected_gradients(model, IMAGES[3:], TARGETS[3:], PATCHES, reference, IDS[3:], 4, samples=8)[0]
    other = module.expected_gradients(model, IMAGES, TARGETS, PATCHES, reference, IDS, 5, samples=8)[0]
    np.testing.assert_allclose(part, whole[3:], atol=1e-5)
    assert np.abs(other - whole).max() > 1e-2
    smooth = module.smooth_grad(model, IMAGES, TARGETS, PATCHES, IDS, 4, samples=4)[0]
    part = module.smooth_grad(model, IMAGES[:2], TARGETS[:2], PATCHES, IDS[:2], 4, samples=4)[0]
    np.testing.assert_allclose(part, smooth[:2], atol=1e-5)
    same = IMAGES[[0, 0]], TARGETS[[0, 0]], PATCHES
    for found in (
        module.expected_gradients(model, *same, reference, IDS[:2], 4, samples=8)[0],
        module.smooth_grad(model, *same, IDS[:2], 4, samples=4)[0],
    ):
        assert np.abs(found[0] - found[1]).max() > 1e-3


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_expected_gradients_of_tokens_are_complete(text, framework):
    ids = np.zeros((2, twins.LENGTH), np.int32)
    ids[:, :7] = RNG.integers(1, twins.WORDS, (2, 7))
    words = Features("word", (7,), np.where(np.arange(twins.LENGTH) < 7, np.arange(twins.LENGTH), -1).astype(np.int32))
    asked = text[framework], ids, TARGETS[:2], words, Reference(np.zeros((1, twins.LENGTH), np.int32))
    scores, _, said = GRADIENTS[framework].expected_gradients(*asked, IDS[:2], 0, samples=3000)
    assert np.abs(scores).max() > 0.01 and said["completeness_gap"].max() < 0.05


@pytest.mark.parametrize("architecture", SHAPES)
def test_every_method_runs_on_every_architecture_of_images(architecture):
    """Complete methods sum to the gain of the model."""
    shape = SHAPES[architecture]
    model = architectures.build(architecture, seed=1)
    rng = np.random.default_rng(3)
    inputs, reference = rng.random((2, *shape), dtype=np.float32), Reference(rng.random((2, *shape), dtype=np.float32))
    features = feature_kinds.build({"kind": "patch", "size": 8}, {"input_shape": list(shape)})
    targets = model.log_probs(inputs).argmax(1)
    for name in METHODS:
        settings = {"method": name, **CHEAP.get(name, {})}
        (found,) = shortcuts.attribute(model, inputs, targets, settings, features, reference, on_error="fail")
        assert found.scores.shape == (2, *features.shape) and np.isfinite(found.scores).all(), name
        assert np.abs(found.scores).max() > 0, name
        if name == "deep_lift":
            gained = model.log_probs(inputs)[[0, 1], targets] - model.log_probs(reference.rows)[:, targets].mean(0)
            np.testing.assert_allclose(found.scores.sum((1, 2)), gained, atol=1e-5)
            assert max(details["completeness_gap"] for details in found.details) < 1e-5


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
@pytest.mark.parametrize("name", METHODS)
def test_memory_is_flat_over_two_hundred_explanations(digits, name, framework):
    if framework and registry.METHODS[name].torch_only:
        pytest.skip(f"{name} needs torch")
    inputs = np.repeat(IMAGES, 4, axis=0)
    targets, ids, process = np.tile(TARGETS, 4), np.arange(20), psutil.Process()
    reference, settings = Reference(RNG.random((2, 1, 8, 8), dtype=np.float32)), {"method": name, **CHEAP.get(name, {})}

    def explain(times):
        for _ in range(times):
            shortcuts.attribute(digits[framework], inputs, targets, settings, PATCHES, reference, instances=ids)

    explain(3)
    grown = []  # an allocator takes a block now and then; what leaks grows every time
    for _ in range(3):
        before = process.memory_info().rss
        explain(10)
        grown.append(process.memory_info().rss - before)
        if grown[-1] < 8 << 20:
            break
    assert min(grown) < 8 << 20
    if framework == 0:
        assert not any(part._forward_hooks or part._backward_hooks for part in digits[0].module.modules())


def test_the_papers_network_of_digits_is_explained_alike_in_both_frameworks(tmp_path):
    file = tmp_path / "w.safetensors"
    storage.save(loud(loud(architectures.build("mnist_cnn", seed=2))), file)
    pair = [storage.load(file, framework=framework) for framework in NAMES]
    rng = np.random.default_rng(4)
    images, reference = rng.random((3, 1, 28, 28), dtype=np.float32), Reference(np.zeros((1, 1, 28, 28), np.float32))
    features = feature_kinds.build({"kind": "patch", "size": 4}, {"input_shape": [1, 28, 28]})
    targets = pair[0].log_probs(images).argmax(1)
    for name in (name for name in METHODS if not registry.METHODS[name].torch_only):
        settings = {"method": name, **CHEAP.get(name, {})}
        asked = images, targets, settings, features, reference
        one, other = (shortcuts.attribute(model, *asked, seed=3, on_error="fail")[0] for model in pair)
        np.testing.assert_allclose(other.scores, one.scores, atol=1e-4, err_msg=name)
        assert np.abs(one.scores).max() > 1e-2, name
        assert other.warning == one.warning


def refused(raw: dict) -> str:
    with pytest.raises(ShapelineError) as caught:
        validation.load(raw)
    return str(caught.value)


def test_unsupported_models_of_a_method_are_reported_before_any_job(default):
    raw = copy.deepcopy(default)
    (name, experiment) = next((k, e) for k, e in raw["experiments"].items() if e["features"]["kind"] == "word")
    experiment["methods"] |= {"deep": {"method": "deep_lift"}, "cam": {"method": "grad_cam"}}
    model = experiment["model"]
    lines = refused(raw).splitlines()
    assert lines == [
        f"experiments.{name}.methods.deep: deep_lift needs a torch model and models.{model} is of tensorflow; "
        "set its framework: torch, or remove the method",
        f"experiments.{name}.methods.cam: grad_cam explains data of kind image, not of kind text; remove it",
    ]
    raw["models"][model]["framework"] = "torch"
    del experiment["methods"]["cam"]
    assert f"methods.deep: deep_lift has no rule for what {raw['models'][model]['architecture']} does" in refused(raw)
    experiment["methods"] |= {"deep": {"method": "expected_gradients"}, "smooth": {"method": "smooth_grad"}}
    validation.load(raw)
