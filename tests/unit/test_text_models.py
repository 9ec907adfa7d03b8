"""Models of text and the Keras twins: sizes, the protocol of tokens, equal numbers in both frameworks, training."""

import json
import os
import random
from types import SimpleNamespace

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch import nn

import shapeline
from shapeline.errors import ShapelineError
from shapeline.games import calibration
from shapeline.games.references import Reference
from shapeline.models import adapters, architectures, classifier, keras_models, storage, torch_models, training

FRAMEWORKS = ("torch", "tensorflow")
# Small enough for a test; char_cnn has its least length.
SMALL = {
    "word_cnn": {"vocabulary": 30, "length": 12, "embedding": 6, "filters": 9, "hidden": 7, "classes": 3},
    "char_cnn": {"alphabet": 11, "length": 123, "hidden": 8},
    "bilstm": {"vocabulary": 30, "length": 12, "embedding": 6, "units": 5, "classes": 3},
}
OTHERS = {
    "mnist_cnn": ({"classes": 3, "channels": 2, "side": 17}, (2, 17, 17)),
    "digits_cnn": ({"channels": 2, "side": 5}, (2, 5, 5)),
    "mlp": ({"inputs": 7, "hidden": [5, 4], "classes": 3}, (7,)),
}


def documents(architecture, n=7, seed=0):
    """Random ids: a full document, padding at the end, in the middle and in front, one word, only padding."""
    generator, sizes = np.random.default_rng(seed), SMALL[architecture]
    ids = generator.integers(1, sizes.get("vocabulary", sizes.get("alphabet", 0) + 1), (n, sizes["length"]))
    ids[1, 5:] = 0
    ids[2, generator.random(ids.shape[1]) < 0.5] = 0
    ids[3, :4] = 0
    ids[4, 1:] = 0
    ids[5] = 0
    return ids.astype(np.int32)


def twins(architecture, seed=0, **sizes):
    """A torch and a Keras classifier with the same weights, large enough for each of them to matter."""
    sizes, generator = sizes or SMALL[architecture], np.random.default_rng(seed)
    pair = [architectures.build(architecture, framework, **sizes) for framework in FRAMEWORKS]
    arrays = torch_models.state(pair[0].module)
    for name, array in arrays.items():
        wide = 0.1 if array.ndim == 1 else 1.5 / (array.size // len(array)) ** 0.5
        if not name.endswith("std"):
            arrays[name] = generator.normal(0, wide, array.shape).astype(np.float32)
        if ".bias_hh" in name:
            arrays[name] *= 0
    if "embedding.weight" in arrays:
        arrays["embedding.weight"] *= 3
        arrays["embedding.weight"][0] = 0
    for model, module in zip(pair, (torch_models, keras_models), strict=True):
        module.set_state(model.module, arrays)
    return pair


def as_tensor(framework, array):
    return torch.from_numpy(array) if framework == "torch" else tf.constant(array)


def run(model, function, *arrays):
    """A method of the module on arrays, in evaluation mode, as an array."""
    with torch.inference_mode():
        return np.asarray(getattr(model.module, function)(*(as_tensor(model.framework, one) for one in arrays)))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "architecture, parameters", [("word_cnn", 351_002), ("char_cnn", 11_337_988), ("bilstm", 7_146_166)]
)
def test_the_papers_sizes(architecture, parameters, framework):
    model = architectures.build(architecture, framework)
    assert model.n_parameters == parameters and model.device == "cpu"
    assert model.log_probs(np.ones((2, model.sizes["length"]), np.int32)).shape == (2, model.n_classes)


@pytest.mark.parametrize("architecture", SMALL)
def test_twins_give_the_same_on_documents_of_every_kind(architecture):
    one, other = twins(architecture)
    ids = documents(architecture)
    expected = one.log_probs(ids)
    assert np.isfinite(expected).all() and np.ptp(expected, axis=0).min() > 0.02
    np.testing.assert_allclose(other.log_probs(ids), expected, atol=1e-5)
    np.testing.assert_allclose(other.log_probs(ids, batch=2), expected, atol=1e-5)
    np.testing.assert_allclose(one.log_probs(ids, batch=3), expected, atol=1e-5)
    np.testing.assert_allclose(one.log_probs(ids.astype(np.int64)), expected, atol=1e-6)


@pytest.mark.parametrize("architecture", OTHERS)
def test_twins_give_the_same_on_images_and_tables(architecture):
    sizes, shape = OTHERS[architecture]
    one, other = twins(architecture, **sizes)
    inputs = np.random.default_rng(1).normal(size=(5, *shape)).astype(np.float32)
    expected = one.log_probs(inputs)
    assert np.ptp(expected, axis=0).min() > 0.02 and one.n_parameters == other.n_parameters
    np.testing.assert_allclose(other.log_probs(inputs), expected, atol=1e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("architecture", SMALL)
def test_the_model_splits_at_its_embedding(architecture, framework):
    model = twins(architecture)[FRAMEWORKS.index(framework)]
    ids = documents(architecture)
    embedded = run(model, "embed", ids)
    assert embedded.shape[:2] == ids.shape and (embedded[ids == 0] == 0).all()
    assert np.abs(embedded[ids != 0]).max(-1).min() > 0
    whole = run(model, "forward" if framework == "torch" else "call", ids)
    np.testing.assert_allclose(run(model, "from_embedding", embedded, ids), whole, atol=1e-5)


def test_a_character_network_leaves_out_the_padding():
    model = architectures.build("char_cnn", alphabet=11, length=420, hidden=8)
    module, read = model.module, []
    generator = np.random.default_rng(0)
    ids = torch.tensor(generator.integers(1, 12, (40, 420)))
    lengths = torch.tensor([0, 1, 26, 27, 28, 296, 297, 298, 300, 420, *generator.integers(0, 60, 30)])
    ids[torch.arange(420) >= lengths[:, None]] = 0
    labels = torch.tensor(generator.integers(0, 4, 40))
    gradients = []
    module.stack[0].register_forward_hook(lambda _, taken, __: read.append(taken[0].shape[0] * taken[0].shape[2]))
    for forward in (module, lambda ids: module.from_embedding(module.embed(ids))):
        module.zero_grad()
        logits = forward(ids)
        nn.functional.cross_entropy(logits, labels).backward()
        gradients.append([logits, *(one.grad.clone() for one in module.parameters())])
    for ours, whole in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, whole, atol=1e-6, rtol=1e-4)
    assert len(read) == 4 and sum(read[:3]) < 0.6 * read[3] == 0.6 * 40 * 420


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_word_network_is_the_largest_of_its_windows(framework):
    model = twins("word_cnn")[FRAMEWORKS.index(framework)]
    ids = documents("word_cnn")
    whole = run(model, "forward" if framework == "torch" else "call", ids)
    places = np.lib.stride_tricks.sliding_window_view(ids, model.module.window_size, axis=1)
    windows = run(model, "windows", np.ascontiguousarray(places.reshape(-1, 3)))
    assert windows.min() == 0  # after the activation
    pooled = windows.reshape(*places.shape[:2], -1).max(1)
    np.testing.assert_allclose(run(model, "from_pooled", pooled), whole, atol=1e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_padding_is_skipped_wherever_it_stands(framework):
    model = twins("bilstm")[FRAMEWORKS.index(framework)]
    apart = np.array([[4, 0, 0, 9, 7, 0], [0, 0, 4, 9, 0, 7], [4, 9, 7, 0, 0, 0]], np.int32)
    log_probs = model.log_probs(apart)
    np.testing.assert_allclose(log_probs, model.log_probs(apart[2:, :3]).repeat(3, 0), atol=1e-6)
    assert np.abs(log_probs - model.log_probs(np.array([[9, 4, 7, 0, 0, 0]], np.int32))).max() > 1e-3


def test_the_masking_is_that_of_keras():
    """The same weights in a network as one writes it in Keras: Embedding with mask_zero, Bidirectional LSTM, Dense."""
    one, other = twins("bilstm")
    plain = keras.Sequential(
        [
            keras.layers.Embedding(30, 6, mask_zero=True),
            keras.layers.Bidirectional(keras.layers.LSTM(5)),
            keras.layers.Dense(3),
        ]
    )
    ids = documents("bilstm")[[0, 1, 2, 3, 4, 6]]  # of padding alone Keras reads no step at all
    plain(ids)
    plain.set_weights(other.module.get_weights())
    np.testing.assert_allclose(one.log_probs(ids), tf.nn.log_softmax(plain(ids)), atol=1e-5)


def test_inputs_of_a_keras_network_of_texts_are_token_ids():
    """As one writes it: Embedding with mask_zero, whose mean of padding alone is nan, and text in the network."""
    keras.utils.set_random_seed(0)
    layers = keras.layers.Embedding(30, 6, mask_zero=True), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)
    network, ids = keras.Sequential(layers), np.array([[3, 4, 5, 0], [6, 9, 8, 7]])
    found = shapeline.explain(network, ids, "occlusion", features="word", reference={"kind": "pad", "id": 1})
    assert found.about.reference == "padding, token 1"
    for inputs, features, words in (
        (ids, None, "takes whole numbers and the mean is none; for token ids give features='word'"),
        (ids, "word", "gives nan for masked words alone; mask them by another token"),
        (ids * 100, "word", r"fails on inputs of shape .* is not in \[0, 30\)"),
    ):
        with pytest.raises(ShapelineError, match=words):
            shapeline.explain(network, inputs, "occlusion", features=features)
    mean = Reference(ids.mean(axis=0, keepdims=True))
    with pytest.raises(ShapelineError, match=r"^reference: model .* \(in a configuration a dataset of texts\)"):
        calibration.fit_reference(adapters.wrap(network), ids.astype(np.float32), mean)  # as the workflow does
    texts, cut = keras.Input((1,), dtype="string"), keras.layers.TextVectorization(vocabulary=["good", "bad"])
    with pytest.raises(ShapelineError, match=r"network.predict\(tensorflow.constant\(texts\)\[:, None\]"):
        shapeline.explain(keras.Model(texts, network(cut(texts))), ["good bad"])


@pytest.mark.parametrize("architecture, activations", [("word_cnn", 2), ("char_cnn", 8)])
def test_every_activation_is_its_own_module_called_once(architecture, activations):
    model, calls = architectures.build(architecture, **SMALL[architecture]), []
    for name, module in model.module.named_modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    model.log_probs(documents(architecture))
    assert len(calls) == len(set(calls)) == activations


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("architecture", [*SMALL, "digits_cnn", "mlp"])
def test_a_file_loads_in_its_own_framework_and_in_the_other(architecture, framework, tmp_path):
    text = architecture in SMALL
    sizes = SMALL[architecture] if text else OTHERS[architecture][0]
    model = architectures.build(architecture, framework, seed=3, **sizes)
    model.vocabulary_digest = "abc"
    storage.save(model, tmp_path / "weights")
    inputs = documents(architecture) if text else np.ones((2, *OTHERS[architecture][1]), np.float32)
    expected = model.log_probs(inputs)
    for chosen in (None, *FRAMEWORKS):
        loaded = storage.load(tmp_path / "weights", framework=chosen)
        assert loaded.framework == (chosen or framework) and loaded.vocabulary_digest == "abc"
        assert (loaded.sizes, loaded.n_classes) == (model.sizes, model.n_classes)
        assert loaded.n_parameters == model.n_parameters
        np.testing.assert_allclose(loaded.log_probs(inputs), expected, atol=1e-5)


def test_the_second_bias_of_a_torch_file_is_added(tmp_path):
    model = twins("bilstm")[0]
    with torch.no_grad():
        model.module.lstm.bias_hh_l0_reverse += 0.5
    storage.save(model, tmp_path / "weights")
    ids = documents("bilstm")
    loaded = storage.load(tmp_path / "weights", framework="tensorflow")
    np.testing.assert_allclose(loaded.log_probs(ids), model.log_probs(ids), atol=1e-5)


@pytest.mark.parametrize("architecture", ["bilstm", "mlp"])
def test_keras_weights_come_from_the_seed_and_the_global_state_stays(architecture):
    random.seed(5)
    expected = random.random()
    random.seed(5)
    sizes = SMALL.get(architecture, {"inputs": 4})
    one, same, other = (
        keras_models.state(architectures.build(architecture, "tensorflow", seed=seed, **sizes).module)
        for seed in (1, 1, 2)
    )
    assert random.random() == expected
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not any(np.array_equal(one[name], other[name]) for name in one if name.endswith("weight"))


CARD = {
    "kind": "text",
    "input_shape": [123],
    "classes": ["no", "yes"],
    "vocabulary": ["", "<unk>", *"abcdef"],
    "vocabulary_digest": "0123",
}


def test_for_dataset_takes_sizes_from_a_card_of_text():
    words = architectures.for_dataset(
        {"architecture": "word_cnn", "framework": "tensorflow", "sizes": {"hidden": 4}}, CARD
    )
    assert words.framework == "tensorflow" and words.vocabulary_digest == "0123"
    assert (words.sizes["vocabulary"], words.sizes["length"], words.sizes["hidden"]) == (8, 123, 4)
    characters = architectures.for_dataset({"architecture": "char_cnn", "sizes": {"hidden": 4}}, CARD)
    assert (characters.framework, characters.sizes["alphabet"], characters.n_classes) == ("torch", 7, 2)
    with pytest.raises(ShapelineError, match="'mlp' is for a table, but the inputs are text"):
        architectures.for_dataset({"architecture": "mlp"}, CARD)
    with pytest.raises(ShapelineError, match="'bilstm' is for text"):
        architectures.for_dataset({"architecture": "bilstm"}, {"input_shape": [30], "classes": ["no", "yes"]})


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "architecture, sizes, message",
    [
        ("word_cnn", {"length": 2}, "a length of at least 3, not 2"),
        ("char_cnn", {"length": 122}, "a length of at least 123, not 122; pad the documents"),
        ("bilstm", {"units": 0}, "bilstm needs a units of at least 1, not 0"),
        ("bilstm", {"vocabulary": 1}, "a vocabulary of at least 2, not 1"),
        ("word_cnn", {"classes": 1}, "a classes of at least 2, not 1"),
        ("word_cnn", {"dropout": 1.0}, "a dropout of 1.0"),
        ("word_cnn", {"vocabulry": 4}, "Did you mean 'vocabulary'"),
    ],
)
def test_sizes_that_cannot_be(architecture, sizes, message, framework):
    with pytest.raises(ShapelineError) as caught:
        architectures.build(architecture, framework, **sizes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "architecture, ids, message",
    [
        ("word_cnn", [[1, 2, 30]], "token ids run from 1 to 30, but it knows 0 to 29"),
        ("bilstm", [[1, 2, -1]], "run from -1"),
        ("char_cnn", [[12] * 123], "it knows 0 to 11"),
        ("char_cnn", [[1] * 60], "documents have 60 tokens and it takes 123"),
        ("word_cnn", [[1, 2]], "documents have 2 tokens and it takes at least 3"),
    ],
)
def test_documents_of_another_vocabulary_or_length(architecture, ids, message, framework):
    model = architectures.build(architecture, framework, **SMALL[architecture])
    with pytest.raises(ShapelineError) as caught:
        model.log_probs(np.array(ids, np.int32))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    dataset = SimpleNamespace(inputs=np.array(ids * 3, np.int32), labels=np.zeros(3, int), split=np.arange(3))
    with pytest.raises(ShapelineError, match=r"token ids run|documents have"):
        training.fit(model, dataset)


def test_files_that_do_not_fit(tmp_path):
    model = architectures.build("word_cnn", **SMALL["word_cnn"])
    arrays = torch_models.state(model.module)
    metadata = {"framework": "torch", "architecture": "word_cnn", "classes": 3, "sizes": {**model.sizes, "filters": 8}}
    for framework in FRAMEWORKS:
        storage.write_weights(tmp_path / "shape", arrays, metadata)
        with pytest.raises(ShapelineError, match=r"'convolution.weight' has shape \(9, 6, 3\) and the model needs \(8"):
            storage.load(tmp_path / "shape", framework=framework)
        storage.write_weights(
            tmp_path / "name", {**arrays, "more": arrays["last.bias"]}, {**metadata, "sizes": model.sizes}
        )
        with pytest.raises(ShapelineError, match="the model has no 'more'"):
            storage.load(tmp_path / "name", framework=framework)


def negations(n=180, length=8, seed=0):
    """Documents of ids whose class is 1 if they contain id 2, padded at the end."""
    generator = np.random.default_rng(seed)
    inputs = generator.integers(3, 12, (n, length)).astype(np.int32)
    labels = generator.integers(0, 2, n)
    inputs[labels == 1, 1] = 2
    inputs[::3, 5:] = 0
    split = np.repeat([0, 1, 2], [n - 60, 30, 30])
    return SimpleNamespace(inputs=inputs, labels=labels, split=split)


TINY = {
    "word_cnn": {"vocabulary": 12, "length": 8, "embedding": 8, "filters": 16, "hidden": 8},
    "bilstm": {"vocabulary": 12, "length": 8, "embedding": 8, "units": 8, "classes": 2},
}


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("given", [{}, {"optimizer": "adam", "schedule": "cosine"}, {"optimizer": "sgd"}])
def test_an_interrupted_training_continues_to_the_same_weights(given, framework, tmp_path, monkeypatch):
    """A network with dropout, killed in its third epoch: order, dropout, optimizer and best epoch are those before."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    made = training._run_epoch

    def interrupted(trainer, order, settings, epoch):
        if epoch == 3:
            raise Interrupted
        return made(trainer, order, settings, epoch)

    def fit(checkpoint=None, run_epoch=made):
        monkeypatch.setattr(training, "_run_epoch", run_epoch)
        model = architectures.build("word_cnn", framework, **TINY["word_cnn"])
        settings = {"epochs": 5, "learning_rate": 1e-2, **given}
        return model, training.fit(model, negations(), settings, seed=4, checkpoint=checkpoint)

    first, whole = fit()
    with pytest.raises(Interrupted):
        fit(tmp_path / "training.state", interrupted)
    second, card = fit(tmp_path / "training.state")
    np.testing.assert_array_equal(first.log_probs(negations().inputs), second.log_probs(negations().inputs))
    losses = [[epoch["loss"] for epoch in each["history"]] for each in (whole, card)]
    assert losses[0] == losses[1] and card["best_epoch"] == whole["best_epoch"]
    assert card["seconds"] > sum(epoch["seconds"] for epoch in card["history"])  # of both processes


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("architecture, epochs, rate", [("word_cnn", 8, 1e-2), ("bilstm", 10, 2e-2)])
def test_training_on_tokens_learns_and_comes_from_the_seed(architecture, epochs, rate, framework):
    def trained(build_seed):
        model = architectures.build(architecture, framework, seed=build_seed, **TINY[architecture])
        settings = {"epochs": epochs, "batch": 16, "learning_rate": rate}
        card = training.fit(model, negations(), settings, seed=1)
        return model, card, classifier.backend(framework).state(model.module)

    model, card, arrays = trained(1)
    dataset = negations()
    test = dataset.split == 2
    accuracy = (model.log_probs(dataset.inputs[test]).argmax(1) == dataset.labels[test]).mean()
    assert card["test_accuracy"] == pytest.approx(accuracy) and accuracy > 0.9
    assert card["framework"] == framework and framework in card["versions"] and card["parameters"] == model.n_parameters
    assert (arrays["embedding.weight"][0] == 0).all()  # padding is not trained
    json.dumps(card)
    again = trained(2)  # the weights it was built with do not matter
    assert all(np.array_equal(array, again[2][name]) for name, array in arrays.items())
    assert [entry["loss"] for entry in again[1]["history"]] == [entry["loss"] for entry in card["history"]]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_another_seed_trains_another_model(framework):
    def trained(seed):
        model = architectures.build("word_cnn", framework, **TINY["word_cnn"])
        training.fit(model, negations(), {"epochs": 1}, seed=seed)
        return classifier.backend(framework).state(model.module)["last.weight"]

    assert not np.array_equal(trained(1), trained(2))


def test_the_cards_of_both_frameworks_have_the_same_keys():
    cards = []
    for framework in FRAMEWORKS:
        model = architectures.build("word_cnn", framework, **TINY["word_cnn"])
        cards.append(training.fit(model, negations(), {"epochs": 1}))
    assert list(cards[0]) == list(cards[1]) and cards[0]["settings"] == cards[1]["settings"]


@pytest.mark.parametrize("optimizer", ("adam", "rmsprop", "sgd"))
def test_both_frameworks_take_the_same_steps(optimizer):
    """The same weights, rows and settings, with weight decay and no dropout, give nearly the same model.

    Not under a falling rate: in torch's momentum the rate comes after the sum over steps, in that of Keras before it.
    """
    dataset, found, arrays = negations(), [], None
    settings = {"epochs": 2, "batch": 16, "optimizer": optimizer, "weight_decay": 1e-2, "schedule": "none"}
    settings["learning_rate"] = 0.1 if optimizer == "sgd" else 1e-2
    for framework in FRAMEWORKS:
        model = architectures.build("word_cnn", framework, **TINY["word_cnn"], dropout=0.0)
        arrays = arrays or torch_models.state(model.module)
        classifier.backend(framework).set_state(model.module, arrays)
        before = model.log_probs(dataset.inputs)
        training.fit(model, dataset, settings, initialise=False)
        found.append(model.log_probs(dataset.inputs))
    changed = np.abs(found[0] - before).max()
    assert changed > 0.01
    np.testing.assert_allclose(found[1], found[0], atol=0.01 * changed)


def test_keras_keeps_the_best_epoch_and_sets_the_mean(monkeypatch):
    from shapeline.models import keras_training

    generator = np.random.default_rng(0)
    inputs = (generator.normal(size=(90, 4)) * [1, 10, 100, 0] + 5).astype(np.float32)
    dataset = SimpleNamespace(inputs=inputs, labels=generator.integers(0, 2, 90), split=np.repeat([0, 1, 2], 30))
    model = architectures.build("mlp", "tensorflow", inputs=4, hidden=[3])
    made_up, seen = iter([(0.5, 1.0), (0.9, 0.6), (0.9, 0.7), (0.8, 0.1), (1.0, 0.0)]), []

    def measured(trainer, inputs, labels):
        seen.append(keras_models.state(trainer.module))
        return next(made_up)

    monkeypatch.setattr(keras_training.Trainer, "measure", measured)
    assert training.fit(model, dataset, {"epochs": 4})["best_epoch"] == 2
    arrays = keras_models.state(model.module)
    assert all(np.array_equal(array, seen[1][name]) for name, array in arrays.items())
    assert not np.array_equal(seen[1]["1.weight"], seen[3]["1.weight"])
    rows = inputs[:30].astype(np.float64)
    np.testing.assert_allclose(arrays["0.mean"], rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(arrays["0.std"], [*rows.std(0)[:3], 1], rtol=1e-5)


def test_wrapped_keras_models():
    logits = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    ends = [keras.layers.Dense(2, activation="softmax"), keras.layers.Softmax()]
    softmax = [keras.Sequential([logits, end] if i else [keras.layers.Input((3,)), end]) for i, end in enumerate(ends)]
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    model = adapters.wrap(logits)
    assert (model.framework, model.device, model.n_parameters) == ("tensorflow", "cpu", 8)
    expected = model.log_probs(rows)
    np.testing.assert_allclose(adapters.wrap(softmax[1]).log_probs(rows), expected, atol=1e-6)
    sigmoid = adapters.wrap(keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, activation="sigmoid")]))
    np.testing.assert_allclose(np.exp(sigmoid.log_probs(rows)).sum(1), 1)
    one = adapters.wrap(keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)]))
    with pytest.raises(ShapelineError, match=r"gave shape \(8, 1\) for 8 rows"):
        one.log_probs(rows)
    with pytest.raises(ShapelineError, match="a builtin_function_or_method cannot be used as 'probabilities'"):
        adapters.wrap(len, kind="probabilities")
    with pytest.raises(ShapelineError, match="wrapped model; train it as it is"):
        dataset = SimpleNamespace(inputs=rows, labels=np.zeros(5, int), split=np.array([0, 0, 0, 1, 2]))
        training.fit(adapters.wrap(logits, n_classes=2), dataset)


def test_a_custom_keras_model_is_built_saved_and_loaded(tmp_path):
    source = tmp_path / "own.py"
    source.write_text(
        "import keras\n\n"
        "def net(inputs, width=3):\n"
        "    layers = [keras.layers.Input((inputs,)), keras.layers.Dense(width), keras.layers.Dense(2)]\n"
        "    return keras.Sequential(layers)\n"
    )
    settings = {"source": f"{source}:net", "framework": "tensorflow", "sizes": {"width": 4}, "seed": 1}
    model = architectures.for_dataset(settings, {"input_shape": [5], "classes": ["no", "yes"]})
    assert model.n_parameters == 5 * 4 + 4 + 4 * 2 + 2 and model.n_classes == 2
    storage.save(model, tmp_path / "weights")
    rows = np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(storage.load(tmp_path / "weights").log_probs(rows), model.log_probs(rows))
    with pytest.raises(ShapelineError, match="returned a Sequential; return a torch module"):
        storage.load(tmp_path / "weights", framework="torch")
    source.write_text("import keras\n\ndef net():\n    return keras.Sequential([keras.layers.Dense(2)])\n")
    with pytest.raises(ShapelineError, match="without weights; call it once"):
        architectures.build(f"{source}:net", "tensorflow")


def test_a_keras_file_uses_the_tokens_of_a_custom_tokenizer(tmp_path):
    network = keras.Sequential(
        [
            *(keras.layers.Input((6,), dtype="int32"), keras.layers.Embedding(8, 3)),
            *(keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2, activation="softmax")),
        ]
    )
    network.save(tmp_path / "text.keras")
    card = {"kind": "text", "name": "own", "input_shape": [6], "classes": ["no", "yes"], "absent_id": 3}
    card |= {"vocabulary": list("<>?_abcd"), "feature_names": []}
    model = architectures.load_ready({"source": str(tmp_path / "text.keras")}, card)
    ids = np.array([[0, 4, 5, 6, 1, 3], [0, 7, 4, 5, 4, 1]])
    expected = np.log(network.predict(ids, verbose=0))
    np.testing.assert_allclose(model.log_probs(ids), expected, atol=1e-5)
    with pytest.raises(ShapelineError, match="token ids run from 0 to 8"):
        model.log_probs(np.full((1, 6), 8) * [[0, 1, 1, 1, 1, 1]])


def test_tensorflow_weights_stay_on_their_device():
    model = architectures.build("mlp", "tensorflow", inputs=3)
    assert model.to("cpu") is model
    with pytest.raises(ShapelineError, match="asked for device 'cuda', but the model is on 'cpu'"):
        model.to("cuda")
