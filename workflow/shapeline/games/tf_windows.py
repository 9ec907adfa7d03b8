"""The shortcut of windows.py for TensorFlow models on the processor."""

import functools
from collections.abc import Iterator

import numpy as np

from shapeline.games import windows
from shapeline.games.features import Features
from shapeline.models.classifier import Classifier
from shapeline.models.tensorflow_setup import tf, threads


def values(
    model: Classifier, inputs: np.ndarray, rows: np.ndarray, masks: np.ndarray, features: Features
) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
    """Logits by tiles, as `windows.values`, for a module with `window_size`, `windows` and `from_pooled`."""
    of_windows, from_pooled = _compiled(model.module)
    local = windows.Local(
        model.module.window_size,
        lambda ids: of_windows(ids).numpy(),
        lambda pooled: from_pooled(pooled).numpy(),
        threads(),
    )
    return windows.values(local, inputs, rows, masks, features.cells)


@functools.lru_cache(maxsize=4)
def _compiled(module) -> tuple[tf.types.experimental.PolymorphicFunction, ...]:
    """The module's `windows` and `from_pooled`, traced once for any number of rows; the weights stay variables."""
    ids = tf.TensorSpec((None, module.window_size), tf.int32)
    of_windows = tf.function(module.windows, input_signature=[ids])
    channels = of_windows.get_concrete_function().structured_outputs.shape[1]
    return of_windows, tf.function(module.from_pooled, input_signature=[tf.TensorSpec((None, channels), tf.float32)])
