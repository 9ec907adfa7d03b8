"""Grad-CAM of a TensorFlow classifier (Selvaraju et al. 2017)."""

import contextlib
import weakref
from collections.abc import Callable, Iterator

import numpy as np

from shapeline.games.game import Game
from shapeline.gradients.cells import check, checked_layer, describe_missing_map, halving, score_maps
from shapeline.models.classifier import Classifier
from shapeline.models.keras_models import iterate_layers
from shapeline.models.tensorflow_setup import keras, tf


@halving
def grad_cam(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    layer: str | None = None,
    signed: bool = False,
) -> tuple[np.ndarray, int]:
    """A layer's maps weighted by the mean of ∂ log p_target / ∂map over each, summed, and 0 where negative (eq. 1, 2).

    Scores (n, d): means over the pixels of the upsampled map. layer: torch's name of one of the package's own
    networks, Keras's of another; signed: negative values are kept. Raises ShapelineError for a layer without maps.
    """
    model = game.model
    check(model, inputs, "tensorflow")
    if hasattr(model.module, "parts"):
        layers = model.module.parts()
    else:
        layers = {part.name: part for part in iterate_layers(model.module)}
    convolutions = [name for name, part in layers.items() if isinstance(part, keras.layers.Conv2D)]
    layer = checked_layer(model, inputs, layer, layers, convolutions)
    step = _step(model, layer, layers[layer], inputs.shape[1:])

    def maps_of(part: slice) -> np.ndarray:
        weighted = step(inputs[part].astype(np.float32), targets[part].astype(np.int32))
        if weighted is None:
            raise describe_missing_map(model, layer, convolutions)
        return weighted.numpy()

    return score_maps(game, inputs, maps_of, signed), 1


def _step(model: Classifier, name: str, layer: keras.layers.Layer, shape: tuple[int, ...]) -> Callable:
    """Return the traced step from images and targets to the layer's weighted maps (n, height, width), or None."""
    kept = _STEPS.setdefault(model.module, {})
    regression = model.task == "regression"
    if (name, shape, regression) in kept:
        return kept[name, shape, regression]
    alive, alive_layer = weakref.ref(model.module), weakref.ref(layer)
    axes = (2, 3) if getattr(layer, "data_format", None) == "channels_first" else (1, 2)

    @tf.function(input_signature=[tf.TensorSpec([None, *shape]), tf.TensorSpec([None], tf.int32)])
    def step(images, target):
        with tf.GradientTape() as tape, _recorded(alive_layer(), tape) as outputs:
            logits = tf.cast(alive()(images, training=False), tf.float64)
            log_probs = tf.reshape(logits, [-1, 1]) if regression else tf.nn.log_softmax(logits)
            log_probs = tf.gather(log_probs, target, batch_dims=1)
        if not outputs or outputs[0].shape.rank != 4:
            return None
        gradient = tape.gradient(log_probs, outputs[0])
        if gradient is None:  # the maps do not reach the output
            return None
        weights = tf.reduce_mean(gradient, axes, keepdims=True)
        return tf.reduce_sum(weights * outputs[0], 6 - sum(axes))  # over the axis that is left: 3, or 1

    kept[name, shape, regression] = step
    return step


@contextlib.contextmanager
def _recorded(layer: keras.layers.Layer, tape: tf.GradientTape) -> Iterator[list[tf.Tensor]]:
    """What the layer gives inside the block, watched by the tape; Keras has no hooks."""
    outputs, call = [], layer.call

    def recording(*arguments, **options):
        outputs.append(call(*arguments, **options))
        tape.watch(outputs[-1])
        return outputs[-1]

    layer.call = recording
    try:
        yield outputs
    finally:
        layer.call = call


_STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
