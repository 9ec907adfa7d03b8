"""Models: sizes, wrapping, saving without pickle, and training that is deterministic and keeps the best epoch."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

import shapeline
from shapeline.errors import ShapelineError, first_line, name_type
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.models import adapters, architectures, storage, torch_models, torch_training, training


def blobs(n=240, seed=0, classes=2):
    """Return rows of five columns of very different scales with a label that is easy to learn."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, n)
    centres = random.normal(0, 3, (classes, 5))
    inputs = (centres[labels] + random.normal(0, 1, (n, 5))) * [1, 10, 100, 0.1, 1] + [0, 50, -1000, 0, 5]
    split = np.repeat([0, 1, 2], [n - 80, 40, 40]).astype(np.uint8)
    return SimpleNamespace(inputs=inputs.astype(np.float32), labels=labels, split=split)


def test_a_type_is_named_with_its_article():
    from sklearn import cluster, ensemble, linear_model, svm

    objects = (np.ones(1), 3, None, [], ensemble.IsolationForest(), cluster.KMeans(), svm.SVC(), linear_model.Ridge())
    assert list(map(name_type, objects)) == [
        *("an ndarray", "an int", "a NoneType", "a list", "an IsolationForest", "a KMeans", "an SVC", "a Ridge")
    ]


@pytest.mark.parametrize(
    ("inner", "said", "reason"),
    [
        (ValueError("no column b"), "not the schema of\n...\nError: no column b", "no column b"),
        (KeyError("b"), "no column\n'b'", "no column"),  # a name is no reason
        (ValueError("of another call"), "no column\nb", "no column"),
    ],
)
def test_the_reason_of_an_error_is_what_it_quotes(inner, said, reason):
    error = TypeError(said)
    error.__context__ = inner
    assert first_line(error) == reason


def test_the_papers_mnist_network():
    model = architectures.build("mnist_cnn")
    # 8*(25+1) + 16*(8*25+1) + 2*(16*4*4+1), by hand
    assert model.n_parameters == 208 + 3216 + 514
    assert model.log_probs(np.zeros((3, 1, 28, 28), np.float32)).shape == (3, 2)
    kinds = [type(layer).__name__ for layer in model.module]
    assert kinds == ["Conv2d", "ReLU", "MaxPool2d", "Conv2d", "ReLU", "MaxPool2d", "Flatten", "Linear"]


@pytest.mark.parametrize(
    "architecture, sizes, shape",
    [
        ("mnist_cnn", {"classes": 10, "channels": 3, "side": 32}, (3, 32, 32)),
        ("digits_cnn", {}, (1, 8, 8)),
        ("digits_cnn", {"classes": 10, "channels": 2, "side": 9}, (2, 9, 9)),
        ("mlp", {"inputs": 7, "hidden": (4,), "classes": 3}, (7,)),
        ("mlp", {"inputs": 7, "hidden": ()}, (7,)),
    ],
)
def test_sizes_and_probabilities(architecture, sizes, shape):
    model = architectures.build(architecture, **sizes)
    inputs = np.random.default_rng(0).random((5, *shape), dtype=np.float32)
    log_probs = model.log_probs(inputs)
    assert log_probs.shape == (5, model.n_classes) and log_probs.dtype == np.float64
    np.testing.assert_allclose(np.exp(log_probs).sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(model.log_probs(torch.tensor(inputs), batch=2), log_probs, atol=1e-6)


@pytest.mark.parametrize("architecture, activations", [("mnist_cnn", 2), ("digits_cnn", 2), ("mlp", 2)])
def test_every_activation_is_its_own_module_called_once(architecture, activations):
    model = architectures.build(architecture)
    calls = []
    for name, module in model.module.named_modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    shape = {"mnist_cnn": (1, 28, 28), "digits_cnn": (1, 8, 8), "mlp": (30,)}[architecture]
    model.log_probs(np.zeros((1, *shape), np.float32))
    assert len(calls) == len(set(calls)) == activations


def test_weights_come_from_the_seed_and_the_global_state_stays():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (architectures.build("digits_cnn", seed=seed).module[0].weight for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: architectures.build("mnist_cn"), "Did you mean 'mnist_cnn'"),
        (
            lambda: architectures.build("mlp", framework="tensorfow"),
            "unknown framework 'tensorfow'. Did you mean 'tensorflow'",
        ),
        (lambda: architectures.build("mlp", hidden=8), "mlp takes a list, the width of each hidden layer; write [8]"),
        (lambda: architectures.build("mlp", hidden=(8, 0)), "mlp needs a hidden of at least 1, not 0"),
        (lambda: architectures.build("mlp", inputz=3), "no size 'inputz'. Did you mean 'inputs'"),
        (lambda: architectures.build("mnist_cnn", side=12), "a side of at least 16, not 12; use digits_cnn"),
        (lambda: adapters.wrap(3), "an int is not a model; give a torch module"),
        (lambda: adapters.wrap(len, kind="logits"), "cannot be used as 'logits'"),
        (lambda: adapters.wrap(len, kind="logit"), "Did you mean 'logits'"),
        (lambda: adapters.wrap(nn.Linear(2, 2), kind="predict_proba"), "cannot be used as 'predict_proba'"),
        (lambda: storage.load("nowhere.safetensors"), "no weights at nowhere.safetensors"),
        (lambda: training.get_settings("mlp", {"epoch": 3}), "Did you mean 'epochs'"),
        (lambda: training.get_settings("mlp", {"schedule": "cos"}), "schedule: unknown value 'cos'"),
        (lambda: training.get_settings("mlp", {"optimizer": "rmprop"}), "Did you mean 'rmsprop'"),
        (
            lambda: training.get_settings("mlp", {"learning_rate": -1.0}),
            "training.learning_rate: -1.0 is not valid; input should be greater than 0",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ShapelineError) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_save_and_load(tmp_path):
    model = architectures.build("mlp", inputs=5, hidden=[6], classes=3, seed=3)
    model.module[0].set_from(torch.rand(20, 5) * 100)
    path = tmp_path / "weights.safetensors"
    storage.save(model, path)
    loaded = storage.load(path)
    inputs = np.random.default_rng(0).random((4, 5), dtype=np.float32) * 100
    np.testing.assert_array_equal(loaded.log_probs(inputs), model.log_probs(inputs))
    assert (loaded.architecture, loaded.sizes, loaded.n_classes) == ("mlp", model.sizes, 3)
    assert [file.name for file in tmp_path.iterdir()] == ["weights.safetensors"]
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode  # as readable as any other result


def test_equal_weights_make_equal_files(tmp_path):
    model = architectures.build("digits_cnn", seed=0)
    for name in "abcd":  # metadata in a random order agree by chance once in hundreds of tries
        storage.save(model, tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1
    assert safetensors.torch.load_file(tmp_path / "a").keys() == model.module.state_dict().keys()


def test_a_damaged_file_of_weights_is_named(tmp_path):
    path = tmp_path / "weights.safetensors"
    storage.save(architectures.build("mlp", inputs=5, hidden=[6], classes=3, seed=3), path)
    good = path.read_bytes()
    for place in (len(good) - 1, len(good) - 40):
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with pytest.raises(ShapelineError, match=rf"{path} is damaged .*; remove it and run again"):
            storage.load(path)
    for cut in (0, 20, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(ShapelineError, match=rf"{path} is damaged \(not .*\); remove it and run again"):
            storage.load(path)


def test_files_that_are_not_ours(tmp_path):
    broken, foreign, misfit = (tmp_path / name for name in ("broken", "foreign", "misfit"))
    broken.write_bytes(b"\x80\x04not tensors")
    with pytest.raises(ShapelineError, match=r"not a safetensors file.*; remove it and run again"):
        storage.load(broken)
    safetensors.torch.save_file({"a": torch.zeros(1)}, foreign)
    with pytest.raises(ShapelineError, match="does not name its architecture"):
        storage.load(foreign)
    metadata = {"architecture": "mlp", "classes": "2", "sizes": json.dumps({"inputs": 5})}
    safetensors.torch.save_file({"a": torch.zeros(1)}, misfit, metadata)
    with pytest.raises(ShapelineError, match="does not fit 'mlp'"):
        storage.load(misfit)
    with pytest.raises(ShapelineError, match="wrapped model"):
        storage.save(adapters.wrap(nn.Linear(2, 2)), tmp_path / "wrapped")


def test_a_custom_architecture_is_built_saved_and_loaded(tmp_path):
    source = tmp_path / "own.py"
    source.write_text(
        "from torch import nn\n\n"
        "def net(inputs, width=3):\n"
        "    network = nn.Sequential(nn.Linear(inputs, width), nn.Linear(width, 2))\n"
        "    network.order = 'custom'\n"  # an attribute of the user's, and no order of axes
        "    return network\n"
    )
    card = {"input_shape": [5], "classes": ["no", "yes"]}
    model = architectures.for_dataset({"source": f"{source}:net", "sizes": {"width": 4}, "seed": 1}, card)
    assert model.n_parameters == 5 * 4 + 4 + 4 * 2 + 2 and model.n_classes == 2
    storage.save(model, tmp_path / "weights")
    loaded = storage.load(tmp_path / "weights")
    inputs = np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(loaded.log_probs(inputs), model.log_probs(inputs))
    assert loaded.n_classes == 2
    source.write_text("from torch import nn\ndef net():\n    return nn.LazyLinear(2)\n")
    with pytest.raises(
        ShapelineError, match=r"a LazyLinear has a Lazy layer without weights \('weight'\); call it once"
    ):
        architectures.build(f"{source}:net")
    source.write_text("def net():\n    return 3\n")
    with pytest.raises(ShapelineError, match="returned an int; return a torch module, or set framework: tensorflow"):
        architectures.build(f"{source}:net")


@pytest.mark.parametrize(("sizes", "has"), [({"classes": 7}, 2), ({"channels": 3}, 1), ({"side": 9}, 8)])
def test_a_size_that_is_not_that_of_the_data_is_one_line(sizes, has):
    card = {"name": "mine", "input_shape": [1, 8, 8], "classes": ["a", "b"]}
    [(name, size)] = sizes.items()
    with pytest.raises(ShapelineError, match=rf"sizes.{name} is {size} and dataset 'mine' has {has}; remove the key"):
        architectures.for_dataset({"architecture": "digits_cnn", "sizes": sizes}, card)


def test_for_dataset_takes_sizes_from_the_card():
    image = {"input_shape": [1, 8, 8], "classes": ["3", "8"]}
    assert architectures.for_dataset({"architecture": "digits_cnn"}, image).sizes == {
        "classes": 2,
        "channels": 1,
        "side": 8,
    }
    table = {"input_shape": [30], "classes": list("abc")}
    assert architectures.for_dataset({"architecture": "mlp", "sizes": {"hidden": [8]}}, table).sizes == {
        "inputs": 30,
        "hidden": [8],
        "classes": 3,
    }
    with pytest.raises(ShapelineError, match="'mlp' is for a table"):
        architectures.for_dataset({"architecture": "mlp"}, image)
    with pytest.raises(ShapelineError, match="'mnist_cnn' is for square images"):
        architectures.for_dataset({"architecture": "mnist_cnn"}, {**image, "input_shape": [1, 28, 30]})


class Forest:
    classes_ = (0, 1, 2)

    def predict_proba(self, rows):
        return np.tile([0.5, 0.5, 0.0], (len(rows), 1))


def test_wrapped_objects_and_functions():
    rows = np.zeros((4, 3), np.float32)
    forest = adapters.wrap(Forest())
    assert (forest.framework, forest.n_classes, forest.n_parameters, forest.device) == ("function", 3, 0, "cpu")
    np.testing.assert_array_equal(forest.log_probs(rows), np.tile([np.log(0.5), np.log(0.5), -np.inf], (4, 1)))
    one_column = adapters.wrap(lambda rows: np.full(len(rows), 0.25))
    np.testing.assert_allclose(np.exp(one_column.log_probs(rows)), np.tile([0.75, 0.25], (4, 1)))
    assert adapters.wrap(forest) is forest
    rounded = adapters.wrap(lambda rows: np.full((len(rows), 2), [-1.2e-7, 1 + 1.2e-7]))
    np.testing.assert_allclose(np.exp(rounded.log_probs(rows)), np.tile([0, 1], (4, 1)), atol=2e-7)
    squeezed = adapters.wrap(lambda rows: np.squeeze(Forest().predict_proba(rows)))
    np.testing.assert_allclose(np.exp(squeezed.log_probs(rows[:1])), [[0.5, 0.5, 0.0]])
    number = adapters.wrap(lambda rows: np.squeeze(np.ones(len(rows))), "regression")
    np.testing.assert_array_equal(number.predict(rows[:1]), [1.0])
    with pytest.raises(ShapelineError, match=r"values from 0 to 2, and probabilities are from 0 to 1"):
        adapters.wrap(lambda rows: rows + np.arange(3.0)).log_probs(rows)
    with pytest.raises(ShapelineError, match=r"gave shape \(2,\) for 4 rows"):
        adapters.wrap(lambda rows: rows[:2, 0]).log_probs(rows)


class Network(RegressorMixin, BaseEstimator, Forest):
    """As skorch's regressors are."""

    classes_ = None

    def fit(self, rows, targets=None):
        self.fitted_ = True
        return self

    def predict(self, rows):
        return 3 * rows[:, :1]


def test_what_an_estimator_says_of_itself_decides_that_it_predicts_numbers():
    rows = np.arange(12.0).reshape(4, 3)
    for model in (Network(), make_pipeline(FunctionTransformer(), Network()).fit(rows)):
        found = shapeline.explain(model, rows[:1], "shapley", background=rows[1:2])
        np.testing.assert_allclose(found.scores, [[-9.0, 0, 0]], atol=1e-9)


@pytest.mark.parametrize(
    ("outputs", "is_reported"),
    [([0, 1], True), ([0.0, 1.0], True), ([True, False], True), ([0.0, 3.0], False), ([0.5, 1.0], False)],
)
def test_a_model_that_predicts_labels_is_reported(outputs, is_reported, caplog):
    class Labels:
        def predict(self, rows):
            return np.array(outputs)[(rows[:, 0] > 1).astype(int)]

    rows = np.arange(12.0).reshape(4, 3)
    shapeline.explain(Labels(), rows, "shapley", background=rows)
    assert ("if these are labels of classes, give" in caplog.text) == is_reported
    caplog.clear()
    if max(outputs) <= 1:  # a function of probabilities, whose numbers 0.0 and 1.0 may be some
        shapeline.explain(lambda rows: Labels().predict(rows), rows, "shapley", background=rows)
        assert ("if these are labels of classes, give" in caplog.text) == (type(outputs[0]) is not float)
    caplog.clear()
    shapeline.explain(Labels(), rows, "shapley", background=rows, value="prediction")
    assert not caplog.text


def test_log_probs_of_a_wrapped_module_uses_evaluation_mode():
    module = nn.Sequential(nn.Dropout(0.9), nn.Linear(3, 2)).train()
    model, rows = adapters.wrap(module), np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(model.log_probs(rows), model.log_probs(rows))
    assert module.training and module[0].training


def test_parts_of_a_module_keep_their_own_mode():
    frozen = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    module, rows = nn.Sequential(frozen, nn.Softmax(1)).train(), np.random.default_rng(0).normal(size=(5, 3))
    frozen.eval()
    shapeline.explain(module, rows[:2], "shapley", background=rows)
    shapeline.explain(
        nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Flatten(), module), rows[:2], "shapley", background=rows
    )
    assert module.training and not any(part.training for part in frozen.modules())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["exported", "frozen"])
def test_an_exported_or_frozen_program_is_explained(kind):
    module, rows = nn.Sequential(nn.Linear(3, 2)).eval(), np.random.default_rng(0).normal(size=(5, 3)).astype("f4")
    if kind == "exported":
        shape = {0: torch.export.Dim("rows")}
        program = torch.export.export(module, (torch.from_numpy(rows),), dynamic_shapes=(shape,)).module()
    else:
        program = torch.jit.freeze(torch.jit.script(module))  # which has no mode
    found = shapeline.explain(program, rows[:2], "shapley", background=rows)
    np.testing.assert_allclose(
        found.scores, shapeline.explain(module, rows[:2], "shapley", background=rows).scores, atol=1e-6
    )


def test_standardize_takes_the_training_split_and_survives_constant_columns():
    dataset = blobs()
    dataset.inputs[:, 4] = 7
    model = architectures.build("mlp", inputs=5, hidden=(8,))
    training.fit(model, dataset, {"epochs": 1})
    rows = dataset.inputs[dataset.split == 0].astype(np.float64)
    np.testing.assert_allclose(model.module[0].mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(model.module[0].std, [*rows.std(0)[:4], 1], rtol=1e-5)
    assert model.n_parameters == 5 * 8 + 8 + 8 * 2 + 2  # mean and deviation are not trained


def test_fit_learns_and_reports_progress():
    dataset, model = blobs(classes=3), architectures.build("mlp", inputs=5, classes=3)
    card = training.fit(model, dataset, {"epochs": 8}, seed=1)
    test = dataset.split == 2
    accuracy = (model.log_probs(dataset.inputs[test]).argmax(1) == dataset.labels[test]).mean()
    assert card["test_accuracy"] == pytest.approx(accuracy) and accuracy > 0.9
    assert card["parameters"] == model.n_parameters and card["rows"] == {"train": 160, "validation": 40, "test": 40}
    assert [set(entry) for entry in card["history"]] == [{"loss", "validation_accuracy", "seconds"}] * 8
    assert card["history"][-1]["loss"] < card["history"][0]["loss"]
    assert card["settings"]["epochs"] == 8 and not model.module.training
    json.dumps(card)


def test_the_best_validation_epoch_is_stored(monkeypatch):
    """With invented accuracies the second epoch is best, so its weights must remain."""
    dataset, model = blobs(), architectures.build("mlp", inputs=5, hidden=(4,))
    made_up, seen = iter([(0.5, 1.0), (0.9, 0.6), (0.9, 0.7), (0.8, 0.1), (1.0, 0.0)]), []

    def measured(trainer, inputs, labels):
        seen.append({name: tensor.clone() for name, tensor in trainer.module.state_dict().items()})
        return next(made_up)

    monkeypatch.setattr(torch_training.Trainer, "measure", measured)
    card = training.fit(model, dataset, {"epochs": 4})
    assert card["best_epoch"] == 2 and card["validation_accuracy"] == 0.9
    assert all(torch.equal(tensor, seen[1][name]) for name, tensor in model.module.state_dict().items())
    assert not torch.equal(seen[1]["1.weight"], seen[3]["1.weight"])


def test_fit_is_deterministic_by_seed():
    def weights(seed, build_seed=0):
        model = architectures.build("mlp", inputs=5, hidden=(8,), seed=build_seed)
        training.fit(model, blobs(), {"epochs": 2}, seed=seed)
        return model.module[1].weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert torch.equal(weights(1), weights(1, build_seed=9))
    assert not torch.equal(weights(1), weights(2))


def test_fit_can_keep_the_weights_it_was_given():
    model = architectures.build("mlp", inputs=5, hidden=(8,))
    before = model.module[1].weight.detach().clone()
    training.fit(model, blobs(), {"epochs": 1, "learning_rate": 1e-9}, seed=4, initialise=False)
    np.testing.assert_allclose(model.module[1].weight.detach(), before, atol=1e-6)


def test_the_learning_rate_follows_its_schedule():
    def rates(schedule, epochs=7):
        settings = training.get_settings("", {"epochs": epochs, "learning_rate": 8.0, "schedule": schedule})
        return [training.learning_rate(settings, epoch, (epoch - 1) / epochs) for epoch in range(1, epochs + 1)]

    assert rates("none") == [8.0] * 7
    assert rates("halving") == [8.0] * 3 + [4.0] * 3 + [2.0]
    np.testing.assert_allclose(rates("cosine", 4), [8, 4 + 2 * 2**0.5, 4, 4 - 2 * 2**0.5])


@pytest.mark.parametrize("optimizer, rate", [("adam", 1e-3), ("rmsprop", 1e-3), ("sgd", 1e-2)])
def test_every_optimizer_learns(optimizer, rate):
    settings = {"epochs": 10, "optimizer": optimizer, "learning_rate": rate}
    card = training.fit(architectures.build("mlp", inputs=5), blobs(), settings)
    assert card["test_accuracy"] > 0.9 and card["settings"]["optimizer"] == optimizer


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda data: data.inputs.__setitem__((0, 0), np.nan), "the loss is nan in epoch 1"),
        (lambda data: data.labels.__setitem__(0, 2), "labels run from 0 to 2"),
        (lambda data: data.split.__setitem__(slice(None), 0), "no validation rows"),
    ],
)
def test_data_that_cannot_be_trained_on(damage, message):
    dataset = blobs()
    damage(dataset)
    with pytest.raises(ShapelineError, match=message):
        training.fit(architectures.build("mlp", inputs=5), dataset, {"epochs": 1})


def test_logits_must_have_two_classes():
    with pytest.raises(ShapelineError, match=r"gave shape \(4, 1\)"):
        torch_models.log_probs(nn.Linear(3, 1), np.zeros((4, 3), np.float32), 8, "one")


@pytest.mark.parametrize("classes, least", [([3, 8], 0.97), (list(range(10)), 0.96)])
def test_digits_are_learnt_in_seconds(classes, least):
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    kept = np.isin(digits.target, classes)
    inputs = (digits.images[kept, None] / 16).astype(np.float32)
    labels = np.searchsorted(classes, digits.target[kept])
    order = np.random.default_rng(3).permutation(len(labels))
    split = np.zeros(len(labels), np.uint8)
    split[order[: len(labels) // 5]] = 2
    split[order[len(labels) // 5 : len(labels) * 3 // 10]] = 1
    model = architectures.build("digits_cnn", classes=len(classes))
    card = training.fit(model, SimpleNamespace(inputs=inputs, labels=labels, split=split), {"epochs": 12})
    assert card["test_accuracy"] >= least


class InPlace(nn.Module):
    """It scales its rows in the caller's own memory."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows -= 0.5
        rows *= 2
        return self.last(rows)


def test_a_module_that_changes_its_rows_in_place_is_named_and_the_callers_array_stays():
    inputs = np.random.default_rng(0).random((6, 5), dtype=np.float32)
    kept = inputs.copy()
    for method in ("kernel_shap", "gradient_x_input"):
        with pytest.raises(ShapelineError, match=r"InPlace.*changes the rows.*in place.*x\.clone"):
            shapeline.explain(InPlace(), inputs, method, features="column")
    model = adapters.wrap(InPlace(), n_classes=2)
    with pytest.raises(ShapelineError, match="in place"):
        model.log_probs(inputs)
    asked = Game(
        adapters.wrap(InPlace(), n_classes=2),
        Reference(kept[:1]),
        Features("column", (5,), np.arange(5, dtype=np.int32)),
    )
    with pytest.raises(ShapelineError, match="in place"):
        asked.values(inputs, np.ones((1, 5), bool), np.zeros(6, int))
    np.testing.assert_array_equal(inputs, kept)


class Shared(nn.Module):
    """Returns a view of its rows, or of a buffer that the next call overwrites."""

    def __init__(self, buffer: bool):
        super().__init__()
        self.buffer = torch.zeros(256, 2, dtype=torch.float64) if buffer else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[:, :2] if self.buffer is None else self.buffer[: len(rows)].copy_(rows[:, :2])


KEPT = np.zeros(256)


def last_column(rows: np.ndarray) -> np.ndarray:
    """Predictions in one array of its own, which the next call writes over."""
    KEPT[: len(rows)] = rows[:, -1]
    return KEPT[: len(rows)]


@pytest.mark.parametrize("kind", ["rows", "buffer", "regression"])
def test_what_a_model_gives_is_copied_before_its_next_call(kind):
    """With a batch smaller than the rows: the outputs of each call are copied."""
    inputs = np.random.default_rng(0).random((60, 5), dtype=np.float32)
    regression = kind == "regression"
    model = adapters.wrap(last_column, kind) if regression else adapters.wrap(Shared(kind == "buffer"))
    logits = inputs[:, :2].astype(float)
    if regression:
        np.testing.assert_allclose(model.predict(inputs, batch=16), inputs[:, -1])
    else:
        wanted = logits - np.logaddexp(*logits.T)[:, None]
        np.testing.assert_allclose(model.log_probs(inputs, batch=16), wanted, atol=1e-6)
    features, value = (
        Features("column", (5,), np.arange(5, dtype=np.int32)),
        "prediction" if kind == "regression" else "logit",
    )
    masks = np.eye(5, dtype=bool)
    asked = Game(model, Reference(np.zeros((1, 5), np.float32)), features, value, ExecutionBackend("plain", 16))
    column = -1 if regression else 0
    wanted = inputs[:, column, None] * masks[:, column]
    np.testing.assert_allclose(asked.values(inputs, masks, np.zeros(60, int)), wanted, atol=1e-6)


@pytest.mark.parametrize("method", ["kernel_shap", "occlusion", "peer_shap_kernel"])
def test_a_function_that_changes_its_rows_in_place_is_explained_as_its_twin(method):
    if method.startswith("peer_shap"):
        pytest.importorskip("shap")
    inputs = np.random.default_rng(0).random((6, 5), dtype=np.float32)
    kept, weights = inputs.copy(), np.linspace(-1, 1, 5)

    def twin(rows):
        return 1 / (1 + np.exp(-((rows - np.float32(0.5)) * 2 @ weights)))

    def in_place(rows):
        rows -= np.float32(0.5)
        rows *= 2
        return 1 / (1 + np.exp(-(rows @ weights)))

    wanted = shapeline.explain(twin, inputs, method, features="column")
    given = shapeline.explain(in_place, inputs, method, features="column")
    np.testing.assert_allclose(given.scores, wanted.scores, atol=1e-6)
    np.testing.assert_allclose(given.value_full, wanted.value_full, atol=1e-6)
    np.testing.assert_array_equal(inputs, kept)


def test_a_state_of_another_training_is_not_used(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    caplog.set_level("INFO")
    state, settings = tmp_path / "training.state", {"epochs": 2, "schedule": "none"}

    def losses(data, seed=1, **given):
        card = training.fit(architectures.build("mlp", inputs=5), data, settings | given, seed, checkpoint=state)
        return [epoch["loss"] for epoch in card["history"]]

    losses(blobs())
    for data, seed, given in (
        (blobs(seed=5), 1, {}),
        (blobs(), 2, {}),
        (blobs(), 1, {"batch": 8}),
        (blobs(), 1, {"epochs": 1}),
    ):
        content = state.read_bytes()
        fresh = losses(data, seed, **given)
        assert "is the state of another training" in caplog.text
        caplog.clear()
        state.write_bytes(content)
        assert len(fresh) == {**settings, **given}["epochs"]
    np.savez(tmp_path / "other.npz", told="{}")  # as Keras writes it
    (tmp_path / "other.npz").rename(tmp_path / "other")
    four = losses(blobs(), epochs=4)  # without a schedule more epochs are the same training
    assert "training continues after epoch 2 of 4" in caplog.text
    state.unlink()
    assert four == losses(blobs(), epochs=4)
    for content in (b"torn", (tmp_path / "other").read_bytes()):
        state.write_bytes(content)
        assert losses(blobs(), epochs=4) == four
        assert "is damaged or of another framework, and is not used" in caplog.text
        caplog.clear()
