"""A network of probabilities is explained by them, for any number of rows, target and last layer; a network with
ambiguous outputs is refused with the argument that decides."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import shapeline
from shapeline import designs
from shapeline.attribution.run import Options, attribute
from shapeline.errors import ShapelineError
from shapeline.games import torch_execution
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.methods.settings import parse
from shapeline.models import adapters, architectures, storage

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
BACKGROUND = X[20:26]


def test_a_lazy_layer_without_weights_is_refused():
    network = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2))
    for call in (shapeline.explain, shapeline.compare):
        with pytest.raises(
            ShapelineError, match=r"a Sequential has a Lazy layer without weights \('0.weight'\); call it once"
        ):
            call(network, X[:3], background=BACKGROUND)
    assert isinstance(network[0].weight, nn.parameter.UninitializedParameter)
    network(torch.zeros(1, 3))
    assert shapeline.explain(network, X[:3], background=BACKGROUND).scores.shape == (3, 3)


def shapley(p, row):
    """Shapley values of p (rows -> (rows,)), averaged over BACKGROUND, by the sum over all coalitions."""

    def value(coalition):
        rows = BACKGROUND.copy()
        rows[:, list(coalition)] = row[list(coalition)]
        return p(rows).mean()

    found = {S: value(S) for k in range(4) for S in itertools.combinations(range(3), k)}
    scores = []
    for j in range(3):
        rest = [i for i in range(3) if i != j]
        parts = [S for k in range(3) for S in itertools.combinations(rest, k)]
        each = [(len(S), found[tuple(sorted((*S, j)))] - found[S]) for S in parts]
        scores.append(sum(gain * math.factorial(k) * math.factorial(2 - k) / 6 for k, gain in each))
    return np.array(scores)


class Own(nn.Module):
    """The logits of a linear layer through a custom function."""

    def __init__(self, outputs, last):
        super().__init__()
        self.dense, self.last = nn.Linear(3, outputs), last

    def forward(self, rows):
        return self.last(self.dense(rows))


TORCH = {
    "softmax": (3, nn.Softmax(1)),
    "softmax of two": (2, nn.Softmax(1)),
    "functional": (3, lambda z: torch.softmax(z, -1)),
    "by hand": (3, lambda z: z.exp() / z.exp().sum(1, keepdim=True)),
    "exp of log_softmax": (3, lambda z: torch.log_softmax(z, 1).exp()),
    "chosen columns": (3, lambda z: torch.softmax(z, 1)[:, [0, 1, 2]]),
    "sigmoid": (1, nn.Sigmoid()),
    "sigmoid, squeezed": (1, lambda z: torch.sigmoid(z).squeeze(1)),
    "sigmoid by hand": (1, lambda z: 1 / (1 + (-z).exp())),
    "both classes": (1, lambda z: torch.cat([1 - torch.sigmoid(z), torch.sigmoid(z)], 1)),
    "several labels": (3, nn.Sigmoid()),
}


def own_answer(said, target):
    """Return P(target) of a network's output, (n,), (n, 1) or (n, classes)."""
    said = said.reshape(len(said), -1)
    return said[:, target] if said.shape[1] > 1 else said[:, 0] if target else 1 - said[:, 0]


@pytest.mark.parametrize("last", TORCH)
@pytest.mark.parametrize(("rows", "target"), [(1, 1), (7, None), (8, 1), (40, None)])
def test_a_torch_network_is_explained_by_its_own_probabilities(last, rows, target):
    torch.manual_seed(1)
    net = Own(*TORCH[last])

    def p(given, of=1):
        with torch.no_grad():
            return own_answer(net(torch.from_numpy(given)).double().numpy(), of)

    found = shapeline.explain(net, X[:rows], "shapley", background=BACKGROUND, target=target)
    assert found.about.value == "probability"  # the usual value of what gives probabilities
    of = found.target[0]
    np.testing.assert_allclose(found.value_full, [p(X[[i]], found.target[i])[0] for i in range(rows)], atol=1e-6)
    np.testing.assert_allclose(found.scores[0], shapley(lambda given: p(given, of), X[0]), atol=1e-6)


@pytest.mark.parametrize(
    "last", ["softmax", "layer", "lambda", "subclass", "nested", "sigmoid", "sigmoid lambda", "labels"]
)
@pytest.mark.parametrize(("rows", "target"), [(1, 1), (9, None)])
def test_so_is_one_of_keras(last, rows, target):
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(2)
    layers, one = keras.layers, last.startswith("sigmoid")

    class Subclass(keras.Model):
        def __init__(self):
            super().__init__()
            self.softmax, self.dense = layers.Softmax(), layers.Dense(3)

        def call(self, rows):
            return self.softmax(self.dense(rows))

    ends = {
        "softmax": [layers.Dense(3, activation="softmax")],
        "layer": [layers.Dense(3), layers.Softmax()],
        "lambda": [layers.Dense(3), layers.Lambda(lambda z: keras.ops.softmax(z))],
        "nested": [layers.Dense(3), keras.Sequential([layers.Activation("softmax"), layers.Reshape((3,))])],
        "sigmoid": [layers.Dense(1, activation="sigmoid")],
        "labels": [layers.Dense(3, activation="sigmoid")],
        "sigmoid lambda": [layers.Dense(1), layers.Lambda(lambda z: 1 / (1 + keras.ops.exp(-z)))],
    }
    net = Subclass() if last == "subclass" else keras.Sequential([layers.Input((3,)), *ends[last]])

    def p(given, of=1):
        return own_answer(np.asarray(net(given), np.float64), of)

    found = shapeline.explain(net, X[:rows], "shapley", background=BACKGROUND, target=target)
    np.testing.assert_allclose(found.value_full, [p(X[[i]], found.target[i])[0] for i in range(rows)], atol=1e-6)
    np.testing.assert_allclose(found.scores[0], shapley(lambda given: p(given, found.target[0]), X[0]), atol=1e-6)
    if one:
        assert set(found.target) <= {0, 1}


@pytest.mark.parametrize("last", ["softmax", "sigmoid"])
@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_gradients_of_a_network_of_probabilities_add_up_to_its_log_probability(framework, last):
    if framework == "torch":
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Softmax(1) if last == "softmax" else nn.Sigmoid()
        )
    else:
        keras = pytest.importorskip("keras")
        net = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(3, activation=last)])
    found = shapeline.explain(net, X[:4], "integrated_gradients", "zero", target=2)

    def p(rows):
        said = net(torch.from_numpy(rows)).detach().numpy() if framework == "torch" else np.asarray(net(rows))
        return np.log(said[:, 2].astype(np.float64))

    np.testing.assert_allclose(found.scores.sum(1), p(X[:4]) - p(0 * X[:4]), atol=1e-5)
    np.testing.assert_allclose(found.value_full, p(X[:4]), atol=1e-5)
    other = shapeline.explain(net, X[:4], "integrated_gradients", "zero", target=2, value="probability")
    assert "unit      log-probability" in str(other) and "unit  " not in str(found)
    with pytest.raises(ShapelineError, match=r"integrated_gradients are in another unit \(log-probability\)"):
        other[0].plot("waterfall")
    found[0].plot("waterfall")
    methods = ["integrated_gradients", "saliency", "shapley"]
    compared = shapeline.compare(net, X[:4], methods, reference="zero", target=2)
    np.testing.assert_allclose(compared.exact.value_full, p(X[:4]), atol=1e-5)  # in the unit of the gradient methods
    assert "error of saliency (log-probability per unit of the input) is not measured" in str(compared)
    assert compared.table["error"].isna().tolist() == [False, True, False, False]
    compared = shapeline.compare(net, X[:4], methods, reference="zero", target=2, value="probability")
    assert "error of integrated_gradients (log-probability), saliency (log-probability per unit of" in str(compared)
    assert compared.table["error"].isna().tolist() == [True, True, False, False]
    compared = shapeline.compare(net, X[:4], methods[:2], reference="zero", target=2, value="probability")
    assert compared.by == "deletion"  # no method has an error


LOGITS = {
    "linear": lambda z: z,
    "small": lambda z: 0.3 + 1e-3 * z,
    "squeezed away": lambda z: z[:, None][:, 0],
    "log_softmax": lambda z: torch.log_softmax(z, 1),
    "sum to 1 near 0": lambda z: torch.stack([z[:, 0] / 100 + 0.5, 0.5 - z[:, 0] / 100], 1),
}


@pytest.mark.parametrize("reference", ["background", {"kind": "background"}, None])
def test_a_background_by_name_is_all_of_its_rows(reference):
    def predict(rows):
        return rows[:, 0] * rows[:, 1] + rows[:, 2] ** 2

    found = shapeline.explain(predict, X[:3], "shapley", reference, background=BACKGROUND, value="prediction")
    np.testing.assert_allclose(found.scores, [shapley(predict, row) for row in X[:3]], atol=1e-6)
    assert "6 background rows" in str(found)
    with pytest.raises(ShapelineError, match="of a single input is the input itself"):
        shapeline.explain(predict, X[:1], "shapley", "background", value="prediction")


@pytest.mark.parametrize("last", LOGITS)
def test_logits_stay_logits(last):
    torch.manual_seed(1)
    net = Own(2, LOGITS[last])
    found = shapeline.explain(net, X[:2], "occlusion", background=BACKGROUND, target=1)
    with torch.no_grad():
        expected = torch.log_softmax(net(torch.from_numpy(X[:2])).double(), 1)[:, 1]
    assert found.about.value == "log_probability"
    np.testing.assert_allclose(found.value_full, expected, atol=1e-6)


class Constant(nn.Module):
    def forward(self, rows):
        return torch.tensor([0.3, 0.7]).expand(len(rows), 2) + 0 * rows[:, :1]


@pytest.mark.parametrize("net", [Constant(), Own(2, lambda z: z.clamp(0, 1)), Own(2, lambda z: (z.tanh() + 1) / 2)])
def test_what_may_be_either_is_refused_and_the_argument_decides(net):
    for rows in (1, 9):
        with pytest.raises(ShapelineError) as failure:
            shapeline.explain(net, X[:rows], "occlusion", background=BACKGROUND)
        line = str(failure.value)
        assert 'outputs="probabilities" or outputs="logits"' in line and "\n" not in line
    with torch.no_grad():
        said = net(torch.from_numpy(X[:1])).double().numpy()[0]
    for outputs, expected in (("logits", np.exp(said) / np.exp(said).sum()), ("probabilities", said)):
        found = shapeline.explain(
            net, X[:1], "occlusion", background=BACKGROUND, target=1, outputs=outputs, value="probability"
        )
        np.testing.assert_allclose(found.value_full, expected[1], atol=1e-6)
    wrapped = shapeline.explain(adapters.wrap(net), X[:1], "occlusion", background=BACKGROUND, outputs="logits")
    np.testing.assert_allclose(wrapped.value_full, (said - np.log(np.exp(said).sum())).max(), atol=1e-6)
    compared = shapeline.compare(net, X[:5], ["occlusion"], background=BACKGROUND, outputs="logits")
    assert compared.explanations["occlusion"].about.value == "log_probability"


class Coded(nn.Module):
    """Its first column is a place in a table, which rows elsewhere would leave."""

    def __init__(self):
        super().__init__()
        self.table, self.dense = nn.Embedding(3, 2), nn.Linear(4, 2)

    def forward(self, rows):
        z = self.dense(torch.cat([self.table(rows[:, 0].long()), rows[:, 1:]], 1)).exp()
        return z / z.sum(1, keepdim=True)


@pytest.mark.parametrize("n", [1, 9])
def test_rows_that_cannot_be_left_do_not_matter(n):
    torch.manual_seed(0)
    net, rows = Coded(), np.column_stack([np.arange(40) % 3, X[:, 1:]]).astype(np.float32)
    found = shapeline.explain(net, rows[:n], "occlusion", background=rows[20:26], target=1)
    with torch.no_grad():
        np.testing.assert_allclose(found.value_full, net(torch.from_numpy(rows[:n]))[:, 1], atol=1e-6)


def test_wrong_outputs_are_refused():
    for model, outputs, said in (
        (nn.Linear(3, 2), "probs", "outputs is 'probs'; give 'probabilities' or 'logits'"),
        (lambda rows: rows[:, 0], "logits", "cannot be used as 'logits'"),
        (Own(2, lambda z: 5 * z), "probabilities", "gave values from -.*, and probabilities are from 0 to 1; "),
    ):
        with pytest.raises(ShapelineError, match=said):
            shapeline.explain(model, X[:2], "occlusion", "zero", outputs=outputs)
    one = nn.Linear(3, 1)
    with pytest.raises(ShapelineError, match='explained with value="prediction"'):
        shapeline.explain(one, X[:2] + 5, "occlusion", "zero")
    one.forward = lambda rows: {"logits": rows}
    with pytest.raises(ShapelineError, match="gave a dict for 2 rows; it must return one array; give a module"):
        shapeline.explain(one, X[:2] + 5, "occlusion", "zero")


def test_a_keras_network_with_more_answers_than_rows_is_refused():
    keras = pytest.importorskip("keras")
    steps = [
        keras.layers.Input((4, 3)),
        keras.layers.Dense(2),
        keras.layers.Lambda(lambda z: keras.ops.reshape(z, (-1, 2))),
    ]
    series = np.random.default_rng(0).random((2, 4, 3)).astype(np.float32)
    features = Features("column", (12,), np.arange(12, dtype=np.int32).reshape(4, 3))
    with pytest.raises(ShapelineError, match=r"gave shape \(8, 2\) for 2 rows; it must return logits"):
        shapeline.explain(keras.Sequential(steps), series, "occlusion", "zero", features)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float16])
def test_networks_of_other_weights_are_given_rows_of_their_type(kind):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to(kind)
    found = shapeline.explain(net, X[:1], "shapley", "zero")
    design = designs.shapley(3)
    with torch.no_grad():
        outputs = net(torch.from_numpy(np.where(design.masks, X[:1], 0)).to(kind)).double().log_softmax(1)
    np.testing.assert_allclose(found.scores[0], design.attribute(outputs[:, found.target[0]].numpy()), atol=1e-3)
    net[0].float()  # weights of two types are refused
    with pytest.raises(ShapelineError, match=r"and rows are float32; give net\.float\(\)"):
        shapeline.explain(net, X[:1], "shapley", "zero")


class OfTransformers(nn.Module):
    """A classifier of images as transformers builds them: the logits are one of several outputs."""

    config = SimpleNamespace(id2label={0: "deer", 1: "horse"})

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.classifier = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

    def get_input_embeddings(self):
        return self.encoder

    def logits(self, pixel_values):
        return self.classifier(torch.relu(self.encoder(pixel_values)).mean((2, 3)))

    def forward(self, pixel_values=None, labels=None):
        return SimpleNamespace(loss=None, logits=self.logits(pixel_values))


@pytest.mark.parametrize("settings", [{"method": "shapley"}, {"method": "grad_cam", "layer": "encoder"}])
def test_of_a_model_of_transformers_the_logits_are_explained(settings):
    model, images = OfTransformers(), np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32)
    asked = {"features": {"kind": "patch", "size": 4}, "reference": "zero", "target": "horse", **settings}
    found = shapeline.explain(model, images, **asked)
    plain = OfTransformers()
    plain.forward, plain.get_input_embeddings = plain.logits, None
    expected = shapeline.explain(plain, images, **asked | {"target": 1}).scores
    np.testing.assert_allclose(found.scores, expected, atol=1e-7)  # convolutions round by where tensors lie in memory
    with pytest.raises(ShapelineError, match="the pipeline 'image-classification' prepares its inputs itself; give"):
        pipeline = SimpleNamespace(model=model, tokenizer=None, task="image-classification")
        shapeline.explain(pipeline, images, **asked)


@pytest.mark.parametrize("last", ["nn.Softmax(1)", "nn.Sigmoid()", "nn.Identity()"])
@pytest.mark.parametrize("given", [None, "stated"])
def test_a_custom_network_in_the_workflow(tmp_path, last, given):
    """Built, evaluated, stored and read again: its probabilities stay those that it gives."""
    source = tmp_path / "own.py"
    many = 1 if "Sigmoid" in last else 2
    source.write_text(
        f"from torch import nn\n\ndef net(inputs):\n    return nn.Sequential(nn.Linear(inputs, {many}), {last})\n"
    )
    outputs = "logits" if "Identity" in last else "probabilities"
    settings = {"source": f"{source}:net", "seed": 1, **({"outputs": outputs} if given else {})}
    model = architectures.for_dataset(settings, {"input_shape": [3], "classes": ["no", "yes"]})
    net = model.module
    with torch.no_grad():
        said = net(torch.from_numpy(X)).double()
    expected = own_answer((said.softmax(1) if outputs == "logits" else said).numpy(), 1)
    np.testing.assert_allclose(np.exp(model.log_probs(X))[:, 1], expected, atol=1e-6)
    storage.save(model, tmp_path / "weights")
    again = storage.load(tmp_path / "weights")
    assert again.outputs == outputs
    np.testing.assert_array_equal(again.log_probs(X), model.log_probs(X))


def test_a_wrapped_network_is_settled_once():
    net = nn.Sequential(nn.Linear(3, 3), nn.Softmax(1))
    model = adapters.wrap(net)
    expected = torch.log(net(torch.from_numpy(X))).detach().numpy()
    np.testing.assert_allclose(model.log_probs(X), expected, atol=1e-5)
    inner = model.module
    model.log_probs(X[:1])
    assert model.module is inner and inner.network is net and model.outputs == "probabilities"


def test_a_keras_file_ends_in_a_softmax_that_is_no_last_layer(tmp_path):
    keras = pytest.importorskip("keras")
    layers = keras.layers
    inner = keras.Sequential([layers.Input((3,)), layers.Dense(2, activation="softmax")])
    for name, own in {
        "nested": keras.Sequential([layers.Input((3,)), inner]),
        "one number": keras.Sequential(
            [layers.Input((3,)), layers.Dense(1, activation="sigmoid"), layers.Reshape((1,))]
        ),
    }.items():
        own.save(tmp_path / "own.keras")
        card = {"classes": ["a", "b"], "input_shape": [3], "kind": "table", "feature_names": list("abc")}
        model = architectures.for_dataset({"source": str(tmp_path / "own.keras")}, card)
        expected = own_answer(np.asarray(own(X), np.float64), 1)
        np.testing.assert_allclose(np.exp(model.log_probs(X))[:, 1], expected, atol=1e-6, err_msg=name)
        storage.save(model, tmp_path / "weights")
        again = storage.load(tmp_path / "weights")
        np.testing.assert_array_equal(again.log_probs(X), model.log_probs(X))


class Coupled(nn.Module):
    """Its output of a row depends on the other rows."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(3, 2)

    def forward(self, rows):
        return self.dense(rows - rows.mean(0))


def test_a_network_whose_rows_are_not_independent_is_refused():
    with pytest.raises(ShapelineError, match=r"gives .* for row 0 .* of the inputs among all 5, and .* among 3"):
        shapeline.explain(Coupled(), X[:5], "shapley", background=BACKGROUND)
    with pytest.raises(ShapelineError, match=r"it says .* of the input and .* of the same cells among masked rows"):
        shapeline.explain(Coupled(), X[:1], "shapley", reference=BACKGROUND[0])


def test_a_job_checks_the_value_of_the_full_input():
    """As shapeline.explain does: the instance is named by its id."""
    network = adapters.wrap(Coupled(), "logits", 2)
    game = Game(network, Reference(BACKGROUND), Features("column", (3,), np.arange(3)))
    options = Options(instances=range(10, 15))
    with pytest.raises(ShapelineError, match=r"instance 1\d: it says .* of the input and .* among masked rows"):
        attribute(game, X[:5], np.ones(5, int), parse({"method": "shapley"}), options)


def test_several_labels_and_classes_do_not_mix_in_the_workflow(tmp_path):
    source = tmp_path / "own.py"
    source.write_text(
        "from torch import nn\n\ndef net(inputs):\n    return nn.Sequential(nn.Linear(inputs, 2), nn.Sigmoid())\n\n"
        "class Two(nn.Module):\n    def forward(self, x, y):\n        return x\n\ndef two():\n    return Two()\n"
    )
    card = {"input_shape": [3], "classes": ["no", "yes"]}
    model = architectures.for_dataset({"source": f"{source}:net", "seed": 1}, card)
    with pytest.raises(ShapelineError, match="several labels, which do not sum to 1, and the dataset has a class each"):
        model.log_probs(X)
    with pytest.raises(ShapelineError, match="a Two takes 2 inputs"):
        architectures.for_dataset({"source": f"{source}:two", "seed": 1}, card)


def build_scaled(framework):
    """Return a network of images whose logits are times its attribute `scale`, which is no weight."""
    torch.manual_seed(0)
    if framework == "torch":

        class Scaled(nn.Sequential):
            scale = 1.0

            def forward(self, rows):
                return self.scale * super().forward(rows)

        return Scaled(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).eval()
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)

    class Scaled(keras.Sequential):
        scale = 1.0

        def call(self, rows, **options):
            return self.scale * super().call(rows, **options)

    return Scaled([keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])


@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_a_network_that_changed_since_is_explained_as_it_is_now(framework, monkeypatch):
    images = np.random.default_rng(0).random((2, 1, 6, 6), dtype=np.float32)
    images = images if framework == "torch" else images.transpose(0, 2, 3, 1)
    # ONNX Runtime holds a copy of the network, as other backends do of some.
    monkeypatch.setitem(torch_execution.ORDER, "cpu", ("onnx",))
    settings = {"features": {"kind": "patch", "size": 3}, "reference": "zero", "outputs": "logits"}
    changed, fresh = build_scaled(framework), build_scaled(framework)
    for method in ("saliency", "shapley"):
        shapeline.explain(changed, images, method, **settings)
    changed.scale = fresh.scale = 5.0
    for method in ("saliency", "shapley"):
        found, expected = (shapeline.explain(net, images, method, **settings).scores for net in (changed, fresh))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("framework", ["torch", "keras"])
@pytest.mark.parametrize("outputs", [None, "probabilities"])
def test_a_network_of_a_dictionary_is_refused_in_one_line(framework, outputs):
    class Several(nn.Module):
        def forward(self, rows):
            return {"p": torch.sigmoid(rows[:, :1])}

    net = Several()
    if framework == "keras":
        keras = pytest.importorskip("keras")
        given = keras.Input((3,))
        net = keras.Model(given, {"p": keras.layers.Dense(1, activation="sigmoid")(given)})
    with pytest.raises(ShapelineError, match=r"gave a dict for \d rows; it must return one array"):
        shapeline.explain(net, X[:4], "shapley", "zero", outputs=outputs)


def test_a_keras_file_whose_last_layer_is_not_its_output(tmp_path):
    keras = pytest.importorskip("keras")
    given, other = keras.Input((3,)), keras.Input((3,))
    dense = keras.layers.Dense(1, activation="sigmoid")(given)
    card = {"classes": ["a", "b"], "input_shape": [3], "kind": "table", "feature_names": list("abc")}
    for own in (keras.Model(given, 1 - dense), keras.Model(given, keras.ops.squeeze(dense, -1))):
        own.save(tmp_path / "own.keras")
        model = architectures.for_dataset({"source": str(tmp_path / "own.keras")}, card)
        expected = own_answer(np.asarray(own(X), np.float64), 1)
        np.testing.assert_allclose(np.exp(model.log_probs(X))[:, 1], expected, atol=1e-6)
    keras.Model([given, other], keras.layers.Dense(2)(given + other)).save(tmp_path / "two.keras")
    keras.Model({"x": given}, keras.layers.Dense(2)(given)).save(tmp_path / "one.keras")
    for file, said in (("two", "2 inputs"), ("one", "1 inputs by name")):
        with pytest.raises(ShapelineError, match=f"takes {said}, and the dataset's rows are one; .* framework: funct"):
            architectures.for_dataset({"source": str(tmp_path / f"{file}.keras")}, card)


def test_a_keras_network_of_inputs_by_name_is_pointed_to_a_function():
    keras = pytest.importorskip("keras")
    given = {"x": keras.Input((2,)), "y": keras.Input((1,))}
    output = keras.layers.Dense(2, activation="softmax")(keras.layers.Concatenate()([given["x"], given["y"]]))
    one = keras.Model({"x": given["x"]}, keras.layers.Dense(2, activation="softmax")(given["x"]))
    for network, rows in ((keras.Model(given, output), X[:4]), (one, X[:4, :2])):
        with pytest.raises(ShapelineError, match=r"by name; .* with framework: function") as told:
            shapeline.explain(network, rows, "shapley", "zero")
        function = eval(str(told.value).rpartition("as in ")[2], {"network": network})
        assert function(rows).shape == (4, 2)


@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_a_network_that_fails_on_masked_rows_is_one_line(framework):
    class Failing(nn.Module):
        def forward(self, rows):
            if (rows[:, 0] == 0).any() and (rows[:, 1] != 0).any():
                raise KeyError("no zero\nsecond line")
            return rows @ torch.ones(3, 2) + torch.tensor([0.0, 2.0])

    network = Failing()
    if framework == "keras":
        keras = pytest.importorskip("keras")
        import tensorflow as tf

        class Asserting(keras.Model):
            def call(self, rows, training=False):
                tf.debugging.assert_none_equal(rows[:, 0] * 0 + tf.cast(rows[:, 0] == 0, tf.float32) * rows[:, 1], 1.0)
                return tf.pad(rows[:, :1], [[0, 0], [0, 1]])

        network = Asserting()
    rows = np.array([[2.0, 1.0, 3.0], [2.0, 1.0, 4.0]], np.float32)
    with pytest.raises(
        ShapelineError, match=r"fails on \d+ (masked inputs|rows?): .*; give a model that takes any masked row"
    ) as told:
        shapeline.explain(network, rows, "shapley", "zero", outputs="logits")
    assert "\n" not in str(told.value)


class Bounded(nn.Module):
    """A linear layer whose outputs lie between 0 and 1."""

    def __init__(self, outputs):
        super().__init__()
        self.dense, self.last = nn.Linear(3, 4), nn.Linear(4, outputs)
        nn.init.constant_(self.last.weight, 0.1)
        nn.init.constant_(self.last.bias, 0.5)

    def forward(self, rows):
        return self.last(torch.tanh(self.dense(rows)))


def test_one_number_of_a_linear_layer_is_no_probability():
    """It may be a logit or a prediction wherever it lies."""
    with pytest.raises(ShapelineError, match="it must return logits of shape"):
        shapeline.explain(Bounded(1), X[:2], "shapley", background=BACKGROUND)
    found = shapeline.explain(Bounded(1), X[:2], "shapley", background=BACKGROUND, outputs="probabilities")
    assert found.about.value == "probability"


def test_a_thousand_small_logits_do_not_sum_to_one():
    net = Own(1000, nn.Identity())
    nn.init.zeros_(net.dense.weight), nn.init.zeros_(net.dense.bias)
    assert shapeline.explain(net, X[:2], "occlusion", "zero").about.value == "log_probability"


def test_whatever_a_network_raises_is_one_line():
    class Dividing(nn.Module):
        def forward(self, rows):
            raise ZeroDivisionError("a\nb")

    with pytest.raises(ShapelineError, match=r"model 'Dividing' fails on inputs of shape \(2, 3\): a; give inputs"):
        shapeline.explain(Dividing(), X[:2], "shapley", background=BACKGROUND)
