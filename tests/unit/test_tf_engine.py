"""The TensorFlow engine gives the torch engine's numbers for any batch and backend, and traces a model once."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import calibration, execution, game, tf_backend
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.references import Reference
from tests.unit import shortcuts, twins

pytestmark = pytest.mark.usefixtures("whole_calibration")
RNG = np.random.default_rng(0)
IMAGES = RNG.random((5, 2, 6, 6), dtype=np.float32)
TARGETS = np.array([0, 2, 1, 1, 0])
# Patches of 2x3 pixels; one pixel of the first channel is never removed.
CELLS = np.broadcast_to(np.arange(6)[:, None] // 2 * 2 + np.arange(6) // 3, (2, 6, 6)).astype(np.int32).copy()
CELLS[0, 2, 3] = -1
PATCHES = Features("patch", (3, 2), CELLS)
WEIGHTS = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 1.5], [0.3, 0.1, -0.2]], np.float32)
COLUMNS = Features("column", (3,), np.arange(3, dtype=np.int32))


def words(d, length=twins.LENGTH):
    """The features of a document of d words, padded."""
    cells = np.full(length, -1, np.int32)
    cells[:d] = np.arange(d)
    return Features("word", (d,), cells)


def documents(n, d, seed=0):
    ids = np.zeros((n, twins.LENGTH), np.int32)
    ids[:, :d] = np.random.default_rng(seed).integers(1, twins.WORDS, (n, d))
    return ids


def halves(images):
    """A reference of each image's own: the image at half and at a quarter of its light."""
    return np.stack([images / 2, images / 4], axis=1)


REFERENCES = {
    "zero": Reference(np.zeros((1, 2, 6, 6), np.float32)),
    "background": Reference(RNG.random((3, 2, 6, 6), dtype=np.float32)),
    "own": Reference(None, halves),
}


@pytest.fixture(scope="module")
def images():
    return twins.image()


@pytest.fixture(scope="module")
def text():
    return twins.text()


def test_several_targets_have_the_values_of_each(images):
    masks = RNG.random((7, 6)) < 0.5
    several = np.stack([TARGETS, (TARGETS + 1) % 3], axis=1)
    asked = images[1], IMAGES, REFERENCES["background"], masks, PATCHES, "log_probability"
    found = shortcuts.values(*asked, several, backend=ExecutionBackend("plain", 16))
    each = [shortcuts.values(*asked, several[:, number], backend=ExecutionBackend("plain", 16)) for number in (0, 1)]
    np.testing.assert_allclose(found, np.stack(each, axis=2), atol=1e-6)


@pytest.mark.parametrize("of_each", [False, True], ids=["shared masks", "masks of each"])
@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("value", game.VALUES)
def test_images_as_in_torch(images, value, reference, of_each):
    masks = np.random.default_rng(1).random((5, 11, 6) if of_each else (11, 6)) < 0.5
    arguments = (IMAGES, REFERENCES[reference], masks, PATCHES, value, TARGETS)
    expected = shortcuts.values(images[0], *arguments)
    for batch in (1, 16, 100):
        actual = shortcuts.values(images[1], *arguments, backend=ExecutionBackend("plain", batch))
        assert actual.dtype == np.float64
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("name", tf_backend.BACKENDS)
@pytest.mark.parametrize("value", game.VALUES)
def test_tokens_as_in_torch(text, value, name):
    masks = np.random.default_rng(2).random((40, 7)) < 0.5
    background = np.concatenate([np.zeros((1, twins.LENGTH), np.int32), documents(2, 9, seed=3)])
    for reference in (Reference(background[:1]), Reference(background)):
        arguments = (documents(3, 7), reference, masks, words(7), value)
        expected = shortcuts.values(text[0], *arguments)
        np.testing.assert_allclose(
            shortcuts.values(text[1], *arguments, backend=ExecutionBackend(name, 16)), expected, atol=1e-5
        )


def test_values_by_hand():
    _, model = twins.linear(WEIGHTS, np.zeros(3, np.float32))
    inputs, reference = RNG.normal(size=(2, 3)).astype(np.float32), Reference(np.array([[9, -8, 7]], np.float32))
    masks = np.array([[True, False, True], [False, False, False]])
    logits = np.where(masks, inputs[:, None], reference.rows) @ WEIGHTS.T.astype(float)
    expected = logits[..., 1] - np.log(np.exp(logits).sum(-1))
    actual = shortcuts.values(model, inputs, reference, masks, COLUMNS, targets=np.array([1, 1]))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_values_do_not_depend_on_blocks(images, monkeypatch):
    masks = np.random.default_rng(1).random((5, 30, 6)) < 0.5
    for own in (masks, masks[0]):
        arguments = (images[1], IMAGES, REFERENCES["own"], own, PATCHES, "log_probability", TARGETS)
        whole = shortcuts.values(*arguments)
        calls = []
        with monkeypatch.context() as patch:
            patch.setattr(tf_backend, "BLOCK_BYTES", {"cpu": 7 * 8})
            patch.setattr(tf_backend, "MAX_BUFFERED_OUTPUTS", 3 * 40)
            split = shortcuts.values(
                *arguments, backend=ExecutionBackend("plain", 4), progress=lambda *call, to=calls: to.append(call)
            )
        np.testing.assert_allclose(split, whole, atol=1e-6)
        assert len(calls) > 5 and calls[-1] == (5, 150)


def test_predicted_classes_are_the_default(images):
    arguments = (IMAGES, REFERENCES["zero"], np.ones((1, 6), bool), PATCHES)
    expected = shortcuts.values(images[0], *arguments)
    np.testing.assert_allclose(shortcuts.values(images[1], *arguments), expected, atol=1e-5)


def test_no_function_is_traced_again_for_other_documents(monkeypatch):
    _, model = twins.text()
    traced = []
    call = type(model.module).from_embedding
    monkeypatch.setattr(
        twins.KerasText, "from_embedding", lambda self, *args: traced.append(args[0].shape[0]) or call(self, *args)
    )
    reference, form = Reference(np.zeros((1, twins.LENGTH), np.int32)), ExecutionBackend("plain", 32)
    for d, n, K in [(9, 1, 40), (4, 3, 17), (7, 2, 5), (1, 5, 2), (8, 1, 300)]:
        for masks in (np.ones((K, d), bool), np.ones((n, K, d), bool)):
            shortcuts.values(model, documents(n, d), reference, masks, words(d), backend=form)
    assert sorted(traced) == sorted(set(traced))
    assert set(traced) <= {32, 16, 8, 4, 2}


@pytest.mark.parametrize("limit, rows, expected", [(64, 900, 64), (64, 63, 32), (64, 33, 32), (64, 5, 4), (64, 1, 4)])
def test_the_last_rows_take_a_smaller_batch(limit, rows, expected):
    assert tf_backend._limit_call(limit, rows) == expected
    assert tf_backend._limit_call(50, 3) == 25  # an odd number is not halved


def test_a_model_trained_further_and_a_model_given_up():
    _, model = twins.linear(WEIGHTS, np.zeros(3, np.float32))
    arguments = (np.ones((1, 3), np.float32), Reference(np.zeros((1, 3), np.float32)), np.ones((1, 3), bool), COLUMNS)
    for name in tf_backend.BACKENDS:
        before = shortcuts.values(model, *arguments, "logit", np.array([0]), backend=ExecutionBackend(name, 4))
        model.module.set_weights([2 * weight for weight in model.module.get_weights()])
        after = shortcuts.values(model, *arguments, "logit", np.array([0]), backend=ExecutionBackend(name, 4))
        np.testing.assert_allclose(after, 2 * before)
    alive = weakref.ref(model.module)
    del model
    keras.backend.clear_session()
    gc.collect()
    assert alive() is None


class Small(keras.Model):
    """A linear model that has memory for `most` rows only."""

    def __init__(self, most):
        super().__init__()
        self.inner, self.most, self.sizes = twins.linear(WEIGHTS, np.zeros(3, np.float32))[1].module, most, set()

    def call(self, rows):
        self.sizes.add(rows.shape[0])
        if rows.shape[0] > self.most:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return self.inner(rows)


def test_the_batch_is_halved_when_memory_runs_out(caplog):
    inputs, reference = RNG.normal(size=(4, 3)).astype(np.float32), Reference(np.zeros((1, 3), np.float32))
    arguments = (inputs, reference, RNG.random((20, 3)) < 0.5, COLUMNS, "log_probability", TARGETS[:4])
    model = twins.keras_classifier(Small(3))
    actual = shortcuts.values(model, *arguments, backend=ExecutionBackend("plain", 16))
    expected = shortcuts.values(twins.linear(WEIGHTS, np.zeros(3, np.float32))[0], *arguments)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert {size for size in model.module.sizes if size > 3} == {16, 8, 4}
    assert "going on with 2 rows a pass" in caplog.text
    none = twins.keras_classifier(Small(1))
    none.module(inputs[:1])
    none.module.most = 0
    with pytest.raises(MethodFailure, match="'Small': runs out of memory on a single row") as caught:
        shortcuts.values(none, *arguments)
    assert caught.value.status == "out of memory"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_output_that_is_not_finite_names_model_and_instance(bad):
    inputs = np.ones((6, 3), np.float32)
    inputs[3, 1] = bad
    _, model = twins.linear(WEIGHTS, np.zeros(3, np.float32))
    arguments = (inputs, Reference(np.zeros((1, 3), np.float32)), np.array([[1, 0, 0], [0, 1, 0]], bool), COLUMNS)
    with pytest.raises(ShapelineError, match=r"model 'Sequential', instance 3, coalition 1.*make it finite") as caught:
        shortcuts.values(model, *arguments, targets=np.zeros(6, int))
    assert caught.value.instance == 3


def test_outputs_that_are_no_logits_are_refused():
    one = twins.keras_classifier(keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)]))
    arguments = (np.ones((2, 3), np.float32), Reference(np.zeros((1, 3), np.float32)), np.ones((1, 3), bool), COLUMNS)
    with pytest.raises(ShapelineError, match=r"model 'Sequential': gave shape \(.*, 1\)"):
        shortcuts.values(one, *arguments)


def test_calibrate_picks_a_verified_backend(images, monkeypatch):
    monkeypatch.setattr(tf_backend, "SEARCH_SECONDS", 100)
    monkeypatch.setattr(tf_backend, "LARGEST_BATCH", {"cpu": 64})
    form = calibration.calibrate(images[1], IMAGES, REFERENCES["background"])
    assert form.name in tf_backend.BACKENDS and form.batch >= 1 and form.rate > 0
    assert 0 <= form.difference <= execution.TOLERANCE
    masks = RNG.random((50, 6)) < 0.5
    arguments = (IMAGES, REFERENCES["background"], masks, PATCHES)
    plain = shortcuts.values(images[0], *arguments)
    np.testing.assert_allclose(shortcuts.values(images[1], *arguments, backend=form), plain, atol=1e-5)


@pytest.mark.parametrize("compiled, expected", [(0.97, ("plain", 64)), (0.5, ("compiled", 64))])
def test_at_equal_rates_the_plain_backend_and_the_smaller_batch_are_selected(images, monkeypatch, compiled, expected):
    def timer(model, form, inputs, reference):
        """Batches of 64 and more are as fast as each other, but for a little; smaller ones are slower."""
        seconds = 1e-4 * (compiled if form.name == "compiled" else 1)
        return lambda: seconds * (1.3 if form.batch < 64 else 1 + 1 / form.batch)

    monkeypatch.setattr(tf_backend, "_warm_up", timer)
    form = calibration.calibrate(images[1], IMAGES, REFERENCES["zero"])
    assert (form.name, form.batch) == expected


def test_calibration_takes_as_much_memory_on_a_quick_machine(images, monkeypatch):
    tried = set()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setitem(execution.MAX_TRIAL_BYTES, "cpu", 100 * IMAGES[0].nbytes)
    monkeypatch.setattr(calibration, "time_fastest", lambda step, batch, least: tried.add(batch) or 1e-6 / batch)
    monkeypatch.setattr(tf_backend, "_warm_up", lambda model, form, *_: lambda: 1e-6 / form.batch)
    assert calibration.calibrate(images[1], IMAGES, REFERENCES["zero"]).batch == max(tried) == 64


class Uncompiled(keras.Model):
    """What XLA cannot compile: a call back into Python."""

    def call(self, rows):
        logits = tf.numpy_function(lambda rows: rows @ WEIGHTS.T, [rows], tf.float32)
        logits.set_shape([rows.shape[0], 3])
        return logits


def test_backends_that_fail_or_differ_are_omitted(images, monkeypatch, caplog):
    monkeypatch.setattr(tf_backend, "SEARCH_SECONDS", 100)
    monkeypatch.setattr(tf_backend, "LARGEST_BATCH", {"cpu": 64})
    caplog.set_level("INFO")
    reference = Reference(np.zeros((1, 3), np.float32))
    form = calibration.calibrate(twins.keras_classifier(Uncompiled()), np.ones((2, 3), np.float32), reference)
    assert form.name == "plain" and form.rate > 0
    assert "backend compiled left out" in caplog.text
    step = tf_backend._build_step

    def wrong(module, form, *key):
        """Wrong on the pure reference only, which random rows would not show."""
        right = step(module, form, *key)
        if form == "plain":
            return right
        wanted = tf.constant([0.01, 0, 0])

        def spoiled(rows, absent, masks, cells, instance, *others):
            empty = tf.reduce_all(tf.gather(rows, instance) == 0, axis=1)
            return right(rows, absent, masks, cells, instance, *others) + wanted * tf.cast(empty, tf.float32)[:, None]

        return spoiled

    monkeypatch.setattr(tf_backend, "_build_step", wrong)
    caplog.clear()
    assert calibration.calibrate(images[1], IMAGES, REFERENCES["zero"]).name == "plain"
    assert "backend compiled left out: log-probabilities differ by" in caplog.text
    monkeypatch.setattr(tf_backend, "SEARCH_SECONDS", 0)
    assert calibration.calibrate(images[1], IMAGES, REFERENCES["zero"]).rate > 0
    assert "backend compiled left out: no time to try it" in caplog.text


def test_full_float32():
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
