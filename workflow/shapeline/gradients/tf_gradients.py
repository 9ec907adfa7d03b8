"""Gradient attributions of a TensorFlow classifier."""

import contextlib
import weakref
from collections.abc import Callable, Iterator

import numpy as np

from shapeline.gradients.cells import check, rows_of_a_pass
from shapeline.gradients.methods import Slope, bind
from shapeline.models.classifier import Classifier
from shapeline.models.tensorflow_setup import tf


@contextlib.contextmanager
def open_slope(model: Classifier, inputs: np.ndarray, targets: np.ndarray) -> Iterator[Slope]:
    """Yield the slope of log p_target. Raises ShapelineError where TensorFlow cannot differentiate the model."""
    tokens = check(model, inputs, "tensorflow")
    step = _step(model, inputs, tokens)

    def points_of(rows: np.ndarray) -> np.ndarray:
        return _points(model, rows, tokens)

    def gradient(at: np.ndarray, instance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        given = [each[instance].astype(np.int32) for each in (targets, inputs)[: 1 + tokens]]
        gradients, of_target = step(at, *given)
        return gradients.numpy(), of_target.numpy()

    yield Slope(points_of, gradient, rows_of_a_pass(points_of(inputs[:1]).shape, model), tokens)


def _points(model: Classifier, rows: np.ndarray, tokens: bool) -> np.ndarray:
    """What is differentiated by: rows (n, *input shape) as float32, or the embedding (n, length, e) of tokens."""
    if tokens:
        return np.asarray(model.module.embed(tf.constant(rows.astype(np.int32))), np.float32)
    return rows.astype(np.float32)


def _step(model: Classifier, inputs: np.ndarray, tokens: bool) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Return the traced step from points, targets and ids to (∂ log p_target / ∂points, log p_target in float64)."""
    kept = _STEPS.setdefault(model.module, {})
    shape = _points(model, inputs[:1], tokens).shape[1:]
    regression = model.task == "regression"
    if (tokens, shape, regression) in kept:
        return kept[tokens, shape, regression]
    alive = weakref.ref(model.module)
    of_tokens = [tf.TensorSpec([None, *inputs.shape[1:]], tf.int32)] if tokens else []

    @tf.function(input_signature=[tf.TensorSpec([None, *shape]), tf.TensorSpec([None], tf.int32), *of_tokens])
    def step(points, target, *ids):
        with tf.GradientTape() as tape:
            tape.watch(points)
            logits = alive().from_embedding(points, *ids) if tokens else alive()(points, training=False)
            logits = tf.cast(logits, tf.float64)
            log_probs = tf.reshape(logits, [-1, 1]) if regression else tf.nn.log_softmax(logits)
            log_probs = tf.gather(log_probs, target, batch_dims=1)
        return tape.gradient(log_probs, points), log_probs

    kept[tokens, shape, regression] = step
    return step


_STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


saliency, gradient_x_input, gradient_x_difference, integrated_gradients, expected_gradients, smooth_grad = bind(
    open_slope
)
