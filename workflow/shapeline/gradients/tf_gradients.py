"""Gradient attributions of a TensorFlow classifier."""

import contextlib
import weakref
from collections.abc import Callable, Iterator

import numpy as np

from shapeline.games.game import Game
from shapeline.gradients.methods import (
    Slope,
    bind,
    check_inputs,
    check_layer,
    choose_batch_size,
    describe_missing_map,
    halve_on_memory_error,
    score_maps,
)
from shapeline.models.classifier import PREPARED, Classifier
from shapeline.models.keras_models import iterate_layers, keras, normalise, tf


@contextlib.contextmanager
def open_slope(model: Classifier, inputs: np.ndarray, targets: np.ndarray) -> Iterator[Slope]:
    """Yield the slope of log p_target. Raises ShapelineError where TensorFlow cannot differentiate the model."""
    tokens = check_inputs(model, inputs, "tensorflow")
    step = _trace_step(model, inputs, tokens)

    def embed_rows(rows: np.ndarray) -> np.ndarray:
        return _embed(model, rows, tokens)

    def gradient(at: np.ndarray, instance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arguments = [array[instance].astype(np.int32) for array in (targets, inputs)[: 1 + tokens]]
        gradients, log_p = step(at, *arguments)
        return gradients.numpy(), log_p.numpy()

    yield Slope(embed_rows, gradient, choose_batch_size(embed_rows(inputs[:1]).shape, model), tokens)


def _embed(model: Classifier, rows: np.ndarray, tokens: bool) -> np.ndarray:
    """Return the differentiation variables: rows (n, *input shape) float32, or embeddings (n, length, e) of tokens."""
    if tokens:
        return np.asarray(model.module.embed(tf.constant(rows.astype(np.int32))), np.float32)
    return rows.astype(np.float32)


def _trace_step(model: Classifier, inputs: np.ndarray, tokens: bool) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Return the traced step from points, targets and ids to (∂ log p_target / ∂points, log p_target in float64)."""
    steps, shape, task = PREPARED.setdefault(model.module, {}), _embed(model, inputs[:1], tokens).shape[1:], model.task
    key = ("gradient", tokens, shape, task)
    if key in steps:
        return steps[key]
    alive = weakref.ref(model.module)
    of_tokens = [tf.TensorSpec([None, *inputs.shape[1:]], tf.int32)] if tokens else []

    @tf.function(input_signature=[tf.TensorSpec([None, *shape]), tf.TensorSpec([None], tf.int32), *of_tokens])
    def step(points, target, *ids):
        with tf.GradientTape() as tape:
            tape.watch(points)
            logits = alive().from_embedding(points, *ids) if tokens else alive()(points, training=False)
            logits = tf.cast(logits, tf.float64)
            log_probs = tf.gather(normalise(logits, task), target, batch_dims=1)
        return tape.gradient(log_probs, points), log_probs

    steps[key] = step
    return step


saliency, gradient_x_input, gradient_x_difference, integrated_gradients, expected_gradients, smooth_grad = bind(
    open_slope
)


@halve_on_memory_error
def grad_cam(
    game: Game, inputs: np.ndarray, targets: np.ndarray, layer: str | None = None, signed: bool = False
) -> tuple[np.ndarray, int]:
    """Return a layer's maps, weighted by the mean of ∂ log p_target / ∂map, summed, 0 where negative (eq. 1, 2).

    Scores (n, d): means over the pixels of the upsampled map. layer: torch's name for one of the package's
    networks, Keras's for others; signed: negative values are kept. Raises ShapelineError for a layer without maps.
    """
    model = game.model
    check_inputs(model, inputs, "tensorflow")
    if hasattr(model.module, "parts"):
        layers = model.module.parts()
    else:
        layers = {part.name: part for part in iterate_layers(model.module)}
    convolutions = [name for name, part in layers.items() if isinstance(part, keras.layers.Conv2D)]
    layer = check_layer(model, inputs, layer, layers, convolutions)
    step = _trace_cam(model, layer, layers[layer], inputs.shape[1:])

    def compute_maps(part: slice) -> np.ndarray:
        weighted = step(inputs[part].astype(np.float32), targets[part].astype(np.int32))
        if weighted is None:
            raise describe_missing_map(model, layer, convolutions)
        return weighted.numpy()

    return score_maps(game, inputs, compute_maps, signed), 1


def _trace_cam(model: Classifier, name: str, layer: keras.layers.Layer, shape: tuple[int, ...]) -> Callable:
    """Return the traced step from images and targets to the layer's weighted maps (n, height, width), or None."""
    steps, task = PREPARED.setdefault(model.module, {}), model.task
    key = ("maps", name, shape, task)
    if key in steps:
        return steps[key]
    alive, alive_layer = weakref.ref(model.module), weakref.ref(layer)
    axes = (2, 3) if getattr(layer, "data_format", None) == "channels_first" else (1, 2)

    @tf.function(input_signature=[tf.TensorSpec([None, *shape]), tf.TensorSpec([None], tf.int32)])
    def step(images, target):
        with tf.GradientTape() as tape, _record(alive_layer(), tape) as outputs:
            logits = tf.cast(alive()(images, training=False), tf.float64)
            log_probs = tf.gather(normalise(logits, task), target, batch_dims=1)
        if not outputs or outputs[0].shape.rank != 4:
            return None
        gradient = tape.gradient(log_probs, outputs[0])
        if gradient is None:  # the maps do not reach the output
            return None
        weights = tf.reduce_mean(gradient, axes, keepdims=True)
        return tf.reduce_sum(weights * outputs[0], 6 - sum(axes))  # over the remaining axis: 3 or 1

    steps[key] = step
    return step


@contextlib.contextmanager
def _record(layer: keras.layers.Layer, tape: tf.GradientTape) -> Iterator[list[tf.Tensor]]:
    """Record a layer's outputs within a block, watched by the tape, since Keras has no hooks."""
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
