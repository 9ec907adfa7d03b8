"""Gradients computed by hand, complete integrated gradients, and equal numbers in both frameworks."""

import warnings

import keras
import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.gradients import methods, tf_gradients, torch_gradients
from shapeline.models import adapters
from tests.unit import shortcuts, twins

RNG = np.random.default_rng(0)
WEIGHTS = np.array([[1.0, -2.0, 0.5, 0.25], [0.0, 1.0, 1.5, -1.0]], np.float32)
BIAS = np.array([0.25, -0.5], np.float32)
ROWS = RNG.normal(size=(3, 4)).astype(np.float32)
CLASSES = np.array([0, 1, 1])
PAIRS = Features("group", (2,), np.array([1, 0, -1, 1], np.int32))  # the third column is never removed
IMAGES, TARGETS = RNG.random((5, 2, 6, 6), dtype=np.float32), np.array([0, 2, 1, 1, 0])
PIXELS = Features("pixel", (6, 6), np.broadcast_to(np.arange(36).reshape(6, 6), (2, 6, 6)).astype(np.int32))
torch_gradients, tf_gradients = map(shortcuts.bind_gradients, (torch_gradients, tf_gradients))
BOTH = [torch_gradients, tf_gradients]
NAMES = ["torch", "tensorflow"]


def documents(n, d):
    ids = np.zeros((n, twins.LENGTH), np.int32)
    ids[:, :d] = RNG.integers(1, twins.WORDS, (n, d))
    features = np.full(twins.LENGTH, -1, np.int32)
    features[:d] = np.arange(d)
    return ids, Features("word", (d,), features)


@pytest.fixture(scope="module")
def images():
    return twins.image()


@pytest.fixture(scope="module")
def text():
    return twins.text()


def probabilities(rows):
    exponentials = np.exp(rows @ WEIGHTS.T.astype(float) + BIAS)
    return exponentials / exponentials.sum(1, keepdims=True)


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_a_linear_network_by_hand(framework):
    model, module = twins.linear(WEIGHTS, BIAS)[framework], BOTH[framework]
    # d log p_t / dx = w_t - sum_c p_c w_c
    gradient = WEIGHTS[CLASSES] - probabilities(ROWS) @ WEIGHTS
    scores, evaluations = module.saliency(model, ROWS, CLASSES, PAIRS)
    absolute = np.abs(gradient)
    np.testing.assert_allclose(scores, np.stack([absolute[:, 1], (absolute[:, 0] + absolute[:, 3]) / 2], 1), atol=1e-6)
    assert evaluations == 1 and scores.dtype == np.float64
    scores, evaluations = module.gradient_x_input(model, ROWS, CLASSES, PAIRS)
    signed = gradient * ROWS
    np.testing.assert_allclose(scores, np.stack([signed[:, 1], signed[:, 0] + signed[:, 3]], 1), atol=1e-6)
    assert evaluations == 1


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_gradient_x_difference_of_a_linear_network_by_hand(framework):
    model, module = twins.linear(WEIGHTS, BIAS)[framework], BOTH[framework]
    reference = Reference(np.array([[0.5, 0, -1, 2], [1, -1, 0.5, 0]], np.float32))
    gradient = WEIGHTS[CLASSES] - probabilities(ROWS) @ WEIGHTS
    scores, evaluations = module.gradient_x_difference(model, ROWS, CLASSES, PAIRS, reference)
    moved = gradient * (ROWS - reference.rows.mean(0))
    np.testing.assert_allclose(scores, np.stack([moved[:, 1], moved[:, 0] + moved[:, 3]], 1), atol=1e-6)
    assert evaluations == 1


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_integrated_gradients_of_a_linear_network_by_hand(framework):
    """With u = w_0 - w_1 and the class 0, x_i - r_i stands before u_i times one number, since F depends on u x only."""
    model, module = twins.linear(WEIGHTS, BIAS)[framework], BOTH[framework]
    reference = Reference(np.array([[0.5, 0, -1, 2], [1, -1, 0.5, 0]], np.float32))
    scores, evaluations, extra = module.integrated_gradients(model, ROWS, CLASSES, PAIRS, reference)
    expected = np.zeros((3, 2))
    for i, target in enumerate(CLASSES):
        for row in reference.rows:
            start = np.where([False, False, True, False], ROWS[i], row)
            share = (WEIGHTS[0] - WEIGHTS[1]) * (ROWS[i] - start)
            gained = np.log(probabilities(ROWS[i : i + 1])[0, target] / probabilities(start[None])[0, target])
            of_column = share / share.sum() * gained
            expected[i] += np.array([of_column[1], of_column[0] + of_column[3]]) / 2
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert evaluations == 2 * 52
    assert extra["completeness_gap"].shape == (3,) and extra["completeness_gap"].max() < 1e-5


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_completeness_on_images(images, framework):
    model, module = images[framework], BOTH[framework]
    reference = Reference(np.zeros((1, 2, 6, 6), np.float32))
    scores, _, extra = module.integrated_gradients(model, IMAGES, TARGETS, PIXELS, reference)
    ends = shortcuts.values(model, IMAGES, reference, np.array([[True] * 36, [False] * 36]), PIXELS, targets=TARGETS)
    np.testing.assert_allclose(scores.sum(1), ends[:, 0] - ends[:, 1], atol=1e-4)
    assert extra["completeness_gap"].max() < 1e-4
    coarse = module.integrated_gradients(model, IMAGES * 30, TARGETS, PIXELS, reference, steps=2)[2]
    assert coarse["completeness_gap"].max() > 1e-2  # the gap is not made to be small


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_completeness_on_tokens(text, framework):
    ids, features = documents(3, 7)
    background = np.concatenate([np.zeros((1, twins.LENGTH), np.int32), documents(2, 9)[0]])
    for reference in (Reference(background[:1]), Reference(background)):
        found = BOTH[framework].integrated_gradients(text[framework], ids, TARGETS[:3], features, reference, steps=400)
        full, masks = text[framework], np.array([[True] * 7, [False] * 7])
        gains = [
            np.subtract(*shortcuts.values(full, ids, Reference(row[None]), masks, features, targets=TARGETS[:3]).T)
            for row in reference.rows
        ]
        np.testing.assert_allclose(found[0].sum(1), np.mean(gains, axis=0), atol=1e-3)  # the largest has kinks
        assert found[2]["completeness_gap"].max() < 1e-3
        assert found[1] == 402 * len(reference.rows)


class TorchMean(twins.TorchText):
    """The mean over the tokens without padding; only the ids determine the divisor."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(6, twins.CLASSES)

    def from_embedding(self, embedded, ids):
        return self.dense(embedded.sum(1) / (ids != 0).sum(1, keepdim=True))


class KerasMean(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding, self.dense = keras.layers.Embedding(twins.WORDS, 6), keras.layers.Dense(twins.CLASSES)

    def embed(self, ids):
        return self.embedding(ids)

    def from_embedding(self, embedded, ids):
        count = keras.ops.sum(keras.ops.cast(keras.ops.not_equal(ids, 0), "float32"), 1, keepdims=True)
        return self.dense(keras.ops.sum(embedded, 1) / count)

    def call(self, ids):
        return self.from_embedding(self.embed(ids), ids)


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_padding_along_the_path_is_that_of_the_input(framework):
    """With the ids of the reference, which is only padding, the mean over no tokens would be 0 / 0."""
    model = twins.keras_classifier(KerasMean()) if framework else twins.torch_classifier(TorchMean())
    ids, features = documents(3, 7)
    if framework:
        model.module(ids)
        table, (kernel, bias) = model.module.embedding.get_weights()[0], model.module.dense.get_weights()
    else:
        weights = {name: tensor.numpy() for name, tensor in model.module.state_dict().items()}
        table, kernel, bias = weights["embedding.weight"], weights["dense.weight"].T, weights["dense.bias"]
    table = table - table[0]  # the reference is subtracted, at padding too
    mean, start = table[ids].sum(1) / 7, np.zeros((3, 6))
    if framework:  # Keras draws a row for padding, which counts here
        start = start + model.module.embedding.get_weights()[0][0] * twins.LENGTH / 7
    log_probs = [
        np.log(softmax(point @ kernel + bias, axis=1))[[0, 1, 2], [0, 2, 1]] for point in (start + mean, start)
    ]
    reference = Reference(np.zeros((1, twins.LENGTH), np.int32))
    found = BOTH[framework].integrated_gradients(model, ids, TARGETS[:3], features, reference)
    np.testing.assert_allclose(found[0].sum(1), log_probs[0] - log_probs[1], atol=1e-5)
    assert found[2]["completeness_gap"].max() < 1e-5


@pytest.mark.parametrize("small", [False, True], ids=["one pass", "many passes"])
@pytest.mark.parametrize("kind", ["images", "tokens"])
def test_the_frameworks_agree(images, text, monkeypatch, kind, small):
    if small:
        monkeypatch.setattr(methods, "MAX_PASS_ROWS", 4)
    if kind == "images":
        (one, other), (inputs, features) = images, (IMAGES, PIXELS)
        own = Reference(None, lambda images: np.stack([images / 2, 1 - images], axis=1))
        references = [Reference(RNG.random((3, 2, 6, 6), dtype=np.float32)), own]
    else:
        (one, other), (inputs, features) = text, documents(5, 8)
        references = [Reference(np.zeros((1, twins.LENGTH), np.int32)), Reference(documents(3, 9)[0])]
    for name in ("saliency", "gradient_x_input"):
        found = [
            getattr(module, name)(model, inputs, TARGETS, features)
            for module, model in zip(BOTH, (one, other), strict=True)
        ]
        np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-4)
        assert np.abs(found[0][0]).max() > 1e-2
    for reference in references:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = torch_gradients.integrated_gradients(one, inputs, TARGETS, features, reference)
        again = tf_gradients.integrated_gradients(other, inputs, TARGETS, features, reference)
        np.testing.assert_allclose(found[0], again[0], atol=1e-4)
        np.testing.assert_allclose(found[2]["completeness_gap"], again[2]["completeness_gap"], atol=1e-4)
        assert found[1] == again[1] and np.abs(found[0]).max() > 1e-2


@pytest.mark.parametrize("framework", [0, 1], ids=NAMES)
def test_tokens_by_finite_differences(text, framework):
    ids, features = documents(1, 8)
    module = text[0].module
    embedded = module.embed(torch.tensor(ids)).detach().double()
    double = twins.TorchText().double()
    double.load_state_dict(module.state_dict())
    gradient = np.zeros(embedded.shape[1:])
    for position in np.ndindex(gradient.shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = embedded.clone()
            moved[(0, *position)] += step
            ends.append(torch.log_softmax(double.from_embedding(moved, None), 1)[0, 2].item())
        gradient[position] = (ends[0] - ends[1]) / 2e-5
    of_model = text[framework], ids, np.array([2]), features
    np.testing.assert_allclose(
        BOTH[framework].saliency(*of_model)[0][0], np.linalg.norm(gradient, axis=1)[:8], atol=1e-5
    )
    signed = (gradient * embedded[0].numpy()).sum(1)[:8]
    np.testing.assert_allclose(BOTH[framework].gradient_x_input(*of_model)[0][0], signed, atol=1e-5)


def test_channels_of_a_pixel_count_by_the_largest(images):
    scores, _ = torch_gradients.saliency(images[0], IMAGES, TARGETS, PIXELS)
    each = Features("cell", (72,), np.arange(72, dtype=np.int32).reshape(2, 36))
    of_cells, _ = torch_gradients.saliency(
        twins.torch_classifier(nn.Sequential(nn.Unflatten(2, (6, 6)), images[0].module)),
        IMAGES.reshape(5, 2, 36),
        TARGETS,
        each,
    )
    np.testing.assert_allclose(scores, of_cells.reshape(5, 2, 36).max(1), atol=1e-6)


def test_a_network_left_in_training_is_explained_as_it_predicts():
    module = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 2))
    quiet = [torch_gradients.saliency(adapters.wrap(module.eval()), ROWS, CLASSES, PAIRS)[0] for _ in range(2)]
    loud = torch_gradients.saliency(adapters.wrap(module.train()), ROWS, CLASSES, PAIRS)[0]
    np.testing.assert_array_equal(quiet[0], loud)
    assert module.training and all(part.training for part in module)
    assert all(parameter.grad is None for parameter in module.parameters())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.dense, self.cudnn = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2), []

    def forward(self, rows):
        self.cudnn.append((torch.backends.cudnn.enabled, self.training))
        return self.dense(self.layer(rows)[0][:, -1])


def test_a_recurrent_network_runs_without_cudnn_and_never_trains():
    """cuDNN goes back through a recurrent layer in training mode only."""
    model = adapters.wrap(Recurrent())
    features = Features("cell", (20,), np.arange(20, dtype=np.int32).reshape(5, 4))
    inputs, reference = RNG.normal(size=(2, 5, 4)).astype(np.float32), Reference(np.zeros((1, 5, 4), np.float32))
    before = torch.backends.cudnn.enabled
    torch_gradients.saliency(model, inputs, np.array([0, 1]), features)
    _, _, extra = torch_gradients.integrated_gradients(model, inputs, np.array([0, 1]), features, reference)
    assert set(model.module.cudnn) == {(False, False)} and torch.backends.cudnn.enabled == before
    assert extra["completeness_gap"].max() < 1e-4


@pytest.mark.parametrize("module", BOTH, ids=NAMES)
def test_what_cannot_be_differentiated_is_refused(module):
    function = adapters.wrap(lambda rows: np.full((len(rows), 2), 0.5))
    reference = Reference(np.zeros((1, 4), np.float32))
    calls = [
        lambda: module.saliency(function, ROWS, CLASSES, PAIRS),
        lambda: module.gradient_x_input(function, ROWS, CLASSES, PAIRS),
        lambda: module.integrated_gradients(function, ROWS, CLASSES, PAIRS, reference),
    ]
    for call in calls:
        with pytest.raises(ShapelineError, match=r"is a function, which .* cannot differentiate") as caught:
            call()
        assert "\n" not in str(caught.value)
    model = twins.linear(WEIGHTS, BIAS)[module is tf_gradients]
    with pytest.raises(ShapelineError, match=r"takes tokens.*give its module the methods embed"):
        module.saliency(model, ROWS.astype(np.int32), CLASSES, PAIRS)


def test_one_trace_serves_documents_of_every_number(monkeypatch):
    _, model = twins.text()
    traced, right = [], twins.KerasText.from_embedding
    monkeypatch.setattr(
        twins.KerasText, "from_embedding", lambda self, *args: traced.append(args[0].shape) or right(self, *args)
    )
    for d, n in [(9, 1), (4, 3), (7, 2)]:
        ids, features = documents(n, d)
        tf_gradients.saliency(model, ids, np.zeros(n, int), features)
        reference = Reference(np.zeros((1, twins.LENGTH), np.int32))
        tf_gradients.integrated_gradients(model, ids, np.zeros(n, int), features, reference)
    assert len(traced) == 1


def test_pooling_adds_each_feature_its_own_cells():
    features = Features("group", (3,), np.array([2, -1, 0, 2, 1, 0], np.int32))
    values = np.array([[1.0, 100, 2, 4, 8, 16]])
    np.testing.assert_array_equal(methods.pool(values, features), [[18, 8, 5]])
    np.testing.assert_array_equal(methods.pool(values, features, mean=True), [[9, 8, 2.5]])
