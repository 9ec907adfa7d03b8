"""Arrays of three and four axes are read as the model expects them, for any number of rows."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import shapeline
from shapeline.errors import ShapelineError
from shapeline.models import architectures, storage

RNG = np.random.default_rng(0)


def shapley(values, d):
    """Shapley values of a set function, by the sum over all coalitions; values: of masks (2^d, d), (2^d,)."""
    coalitions = [S for k in range(d + 1) for S in itertools.combinations(range(d), k)]
    masks = np.array([[j in S for j in range(d)] for S in coalitions])
    found = dict(zip(coalitions, values(masks), strict=True))
    scores = np.zeros(d)
    for j in range(d):
        rest = [i for i in range(d) if i != j]
        for k in range(d):
            weight = math.factorial(k) * math.factorial(d - 1 - k) / math.factorial(d)
            for S in itertools.combinations(rest, k):
                scores[j] += weight * (found[tuple(sorted((*S, j)))] - found[S])
    return scores


def brute_force(p, x, rows):
    """Shapley values of every cell of x (p: rows -> (n,)), absent ones from rows, averaged."""

    def values(masks):
        filled = np.where(masks[:, None], x.ravel(), rows.reshape(1, len(rows), -1))
        return p(filled.reshape(-1, *x.shape)).reshape(len(masks), len(rows)).mean(1)

    return shapley(values, x.size).reshape(x.shape)


class Series(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.lstm, self.out = nn.LSTM(channels, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def of_torch(net):
    def p(rows):
        with torch.no_grad():
            return net(torch.from_numpy(np.asarray(rows, np.float32))).double().log_softmax(1)[:, 1].exp().numpy()

    return p


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 10])
@pytest.mark.parametrize("shape", [(6, 1), (3, 2), (2, 3)])
def test_series_of_a_torch_network(n, shape):
    torch.manual_seed(0)
    net = Series(shape[1])
    S = RNG.normal(size=(10, *shape)).astype(np.float32)
    found = shapeline.explain(net, S[:n], "shapley", background=S[5:9], target=1, value="probability")
    assert found.scores.shape == (n, *shape) and found.data.shape == (n, *shape)
    np.testing.assert_allclose(found.scores[0], brute_force(of_torch(net), S[0], S[5:9]), atol=1e-6)
    one = shapeline.explain(net, S[:n], "shapley", S[5], target=1, value="probability")
    np.testing.assert_allclose(one.scores[0], brute_force(of_torch(net), S[0], S[5:6]), atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_grey_images_reach_a_function_unchanged(n, dtype):
    seen = []

    def p(rows):
        seen.append((rows.shape[1:], rows.dtype))
        return 1 / (1 + np.exp(-rows.mean(axis=tuple(range(1, rows.ndim))) / 3))

    rows = RNG.integers(-9, 9, (n, 2, 3)).astype(dtype)
    found = shapeline.explain(p, rows, "shapley", "zero", target=1)
    assert {shape for shape, _ in seen} == {(2, 3)} and {kind for _, kind in seen} == {np.dtype(dtype)}
    np.testing.assert_allclose(found.scores[0], brute_force(p, rows[0], 0 * rows[:1]), atol=1e-6)
    assert len(found) == n and found.data.shape == (n, 2, 3)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_grey_images_without_channels_reach_a_network_with_them(n):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 3 * 3, 2))
    rows = RNG.normal(size=(n, 4, 4)).astype(np.float32)
    plain, named = (shapeline.explain(net, given, "occlusion", "zero") for given in (rows, rows[:, None]))
    np.testing.assert_array_equal(plain.scores, named.scores)
    assert plain.scores.shape == (n, 4, 4) and plain.plot() is not None


def test_one_image_is_one_input_if_the_network_expects_its_channels():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    image = RNG.normal(size=(3, 5, 4)).astype(np.float32)
    one, several = (shapeline.explain(net, given, "occlusion", "zero") for given in (image, image[None]))
    np.testing.assert_array_equal(one.scores, several.scores)
    assert one.scores.shape == (1, 5, 4) and one.data.shape == (1, 3, 5, 4)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_ambiguous_layouts_are_refused_for_any_number_of_rows(n):
    with pytest.raises(ShapelineError) as failure:
        shapeline.explain(lambda rows: 1 / (1 + np.exp(-rows.mean((1, 2, 3)))), RNG.normal(size=(n, 4, 4)), "occlusion")
    line = str(failure.value)
    assert "inputs[:, None]" in line and "inputs[None]" in line and "\n" not in line
    with pytest.raises(
        ShapelineError, match=rf"inputs have shape \({n}, 4, 4\), and the model takes them neither.* reshapes"
    ):
        shapeline.explain(nn.Linear(7, 2), RNG.normal(size=(n, 4, 4)), "occlusion")


def test_series_are_filled_by_the_mean_of_each_cell():
    torch.manual_seed(0)
    net, S = Series(2), RNG.normal(size=(6, 3, 2)).astype(np.float32) * [1, 100]
    S = S.astype(np.float32)
    for reference in (None, "mean"):
        found = shapeline.explain(net, S, "shapley", reference, target=1, value="probability")
        np.testing.assert_allclose(found.scores[0], brute_force(of_torch(net), S[0], S.mean(0)[None]), atol=1e-5)
        assert found.about.reference == "the mean of the inputs" if reference is None else "mean of the inputs"
    with pytest.raises(ShapelineError, match="the mean of a single input is the input itself; give background"):
        shapeline.explain(net, S[:1], "occlusion")


def test_long_series_have_windows_of_time():
    net, S = Series(3), RNG.normal(size=(2, 1000, 3)).astype(np.float32)
    found = shapeline.explain(net, S, "occlusion", "zero")
    assert found.scores.shape[1:] == (16, 1)


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def keras_p(net):
    def p(rows):
        said = np.asarray(net(np.asarray(rows, np.float32)), np.float64)
        return np.exp(said[:, 1]) / np.exp(said).sum(1)

    return p


def subclassed(keras):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.conv, self.pool, self.dense = keras.layers.Conv2D(4, 2), keras.layers.Flatten(), keras.layers.Dense(2)

        def call(self, rows):
            return self.dense(self.pool(self.conv(rows)))

    return Own()


@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
@pytest.mark.parametrize("n", [1, 4])
def test_keras_images_with_their_channels_last(keras, kind, n):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    parts = [layers.Input((2, 3, 3)), layers.Conv2D(4, 2, activation="relu"), layers.Flatten(), layers.Dense(2)]
    net = subclassed(keras) if kind == "subclassed" else keras.Sequential(parts)
    if kind == "functional":
        given = keras.Input((2, 3, 3))
        net = keras.Model(given, net(given))
    P = RNG.random((n, 2, 3, 3)).astype(np.float32)
    net(P)
    p = keras_p(net)
    found = shapeline.explain(net, P, "shapley", "zero", target=1, value="probability")

    def values(masks):
        return p(P[:1] * masks.reshape(-1, 2, 3, 1))

    np.testing.assert_allclose(found.scores[0].ravel(), shapley(values, 6), atol=1e-6)
    assert found.data.shape == P.shape and found.plot() is not None
    again = shapeline.explain(net, P, "shapley", background=np.zeros((2, 2, 3, 3)), target=1, value="probability")
    np.testing.assert_allclose(again.scores, found.scores, atol=1e-6)
    gradients = shapeline.explain(net, P, "integrated_gradients", "zero", target=1)
    np.testing.assert_allclose(gradients.scores.sum((1, 2)), np.log(p(P)) - np.log(p(0 * P)), atol=1e-3)


def test_keras_images_of_either_order_and_one_image(keras):
    layers = keras.layers
    net = keras.Sequential(
        [layers.Input((8, 6, 3)), layers.Conv2D(4, 3), layers.GlobalAveragePooling2D(), layers.Dense(2)]
    )
    P = RNG.random((4, 8, 6, 3)).astype(np.float32)
    last, first, one = (
        shapeline.explain(net, given, "occlusion", "zero") for given in (P, np.moveaxis(P, -1, 1), P[0])
    )
    np.testing.assert_allclose(first.scores, last.scores, atol=1e-6)
    np.testing.assert_allclose(one.scores, last.scores[:1], atol=1e-6)
    cam = shapeline.explain(net, P, "grad_cam", "zero")
    assert cam.scores.shape == (4, 8, 6) and np.isfinite(cam.scores).all()
    grey = keras.Sequential([layers.Input((4, 4, 1)), layers.Conv2D(2, 2), layers.Flatten(), layers.Dense(2)])
    G = RNG.random((3, 4, 4)).astype(np.float32)
    found = [shapeline.explain(grey, given, "occlusion", "zero").scores for given in (G, G[..., None])]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    with pytest.raises(ShapelineError, match="fails on inputs of shape") as failure:
        shapeline.explain(net, RNG.random((4, 5, 6, 3)).astype(np.float32)[:, :, :2], "occlusion")
    assert "in user code" not in str(failure.value)


def test_a_function_of_keras_is_given_its_channels_last(keras):
    layers = keras.layers
    parts = [layers.Input((4, 4, 3)), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(2, activation="softmax")]
    net, P = keras.Sequential(parts), RNG.random((2, 4, 4, 3)).astype(np.float32)
    function = shapeline.explain(lambda rows: net.predict(rows, verbose=0), P, "occlusion", "zero", target=1)
    np.testing.assert_allclose(function.value_full, net.predict(P, verbose=0)[:, 1], atol=1e-6)
    own = shapeline.explain(net, P, "occlusion", "zero", target=1)
    np.testing.assert_allclose(own.scores, function.scores, atol=1e-6)


def test_series_of_keras(keras):
    layers = keras.layers
    net = keras.Sequential([layers.Input((3, 2)), layers.GRU(4), layers.Dense(2)])
    S = RNG.normal(size=(6, 3, 2)).astype(np.float32)
    for n in (1, 3):
        found = shapeline.explain(net, S[:n], "shapley", background=S[4:], target=1, value="probability")
        np.testing.assert_allclose(found.scores[0], brute_force(keras_p(net), S[0], S[4:]), atol=1e-5)


def test_networks_of_several_inputs_are_one_line(keras):
    a, b = keras.Input((3,)), keras.Input((2,))
    two = keras.Model([a, b], keras.layers.Dense(2)(keras.layers.Concatenate()([a, b])))

    class Two(nn.Module):
        def forward(self, x, y):
            return torch.cat([x, y], 1)[:, :2]

    for model, said in ((two, r"network\.predict\(\[rows\[:, :3\], rows\[:, 3:\]\]"), (Two(), r"torch\.tensor")):
        for given in (np.ones((4, 5), np.float32), [np.ones((4, 3)), np.ones((4, 2))], [np.ones((4, 2))] * 2):
            with pytest.raises(ShapelineError, match=f"takes 2 inputs; put their columns side by side .*{said}"):
                shapeline.explain(model, given, "occlusion")
    function = shapeline.explain(
        lambda rows: np.exp(two.predict([rows[:, :3], rows[:, 3:]], verbose=0)) * 0 + 0.5,
        np.ones((4, 5)),
        "occlusion",
        "zero",
    )
    assert function.scores.shape == (4, 5)
    with pytest.raises(ShapelineError, match="side by side in one array that a function splits"):
        shapeline.explain(lambda rows: rows, [np.ones((4, 3)), np.ones((4, 2))], "occlusion")


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_custom_network_in_the_workflow_determines_its_order(tmp_path, framework):
    source = tmp_path / "own.py"
    if framework == "torch":  # series
        shape, made = [1, 5, 2], "nn.Sequential(nn.Conv1d(5, 3, 1), nn.Flatten(), nn.Linear(6, 2))"
        source.write_text(f"from torch import nn\n\ndef net(input_shape):\n    return {made}\n")
    else:
        pytest.importorskip("keras")
        shape = [3, 4, 5]
        source.write_text(
            "import keras\nfrom keras import layers\n\ndef net(channels):\n"
            "    parts = [layers.Input((4, 5, channels)), layers.Conv2D(2, 3), layers.Flatten(), layers.Dense(2)]\n"
            "    return keras.Sequential(parts)\n"
        )
    settings = {"source": f"{source}:net", "framework": framework, "seed": 1}
    model = architectures.for_dataset(settings, {"input_shape": shape, "classes": ["no", "yes"]})
    rows = RNG.random((6, *shape)).astype(np.float32)
    given = rows[:, 0] if framework == "torch" else np.moveaxis(rows, 1, -1)
    logits = model.module.network(torch.from_numpy(given) if framework == "torch" else given)
    logits = np.asarray(logits.detach() if framework == "torch" else logits, np.float64)
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(model.log_probs(rows), expected, atol=1e-5)
    storage.save(model, tmp_path / "weights")
    np.testing.assert_array_equal(storage.load(tmp_path / "weights").log_probs(rows), model.log_probs(rows))
