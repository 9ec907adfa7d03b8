"""A Keras model in a .keras file, read in safe mode and made to take the dataset's inputs and give logits."""

import contextlib
import importlib.util
import io
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.models.adapters import find_order
from shapeline.models.keras_models import Arranged
from shapeline.models.onnx_graph import FILE, Refused, check_size
from shapeline.models.tensorflow_setup import keras, tf

NEEDED = ("tf2onnx", "onnx", "onnxruntime")
FAILURES = (
    *(RuntimeError, TypeError, ValueError, AttributeError, AssertionError, LookupError, ImportError, OSError),
    tf.errors.OpError,
)


class Ready(keras.Model):
    """The user's model with two logits in place of one; stripped: its last activation; content: of its file."""

    def __init__(self, inner: keras.Model, stripped: str, content: bytes):
        super().__init__()
        self.inner, self.stripped, self.content = inner, stripped, content
        self.built = True

    def call(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        outputs = self.inner(rows, training=training)
        if self.stripped == "sigmoid":  # the logit of the second of two classes
            outputs = tf.concat([tf.zeros_like(outputs), outputs], axis=1)
        return outputs


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Ready:
    """Return the model in a .keras file's bytes for `known` input_shape and classes. Raises ShapelineError."""
    with tempfile.NamedTemporaryFile(suffix=".keras") as file:
        file.write(content)
        file.flush()
        try:
            inner = keras.saving.load_model(file.name, compile=False, safe_mode=True)
        except (ValueError, TypeError, KeyError, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ShapelineError(
                f"models: {source} cannot be read as a Keras file in safe mode ({reason})"
                "; save it with model.save('name.keras')"
            ) from error
    if len(inner.inputs) > 1:
        raise ShapelineError(
            f"models: {source} takes {len(inner.inputs)} inputs, and the dataset's rows are one; give a function that "
            "splits them and calls it, with framework: function"
        )
    shape, wanted = tuple(known["input_shape"]), inner.input_shape[1:]
    order = find_order(shape, lambda sides: len(sides) == len(wanted) and all(map(_fits, sides, wanted)))
    if order is None:
        raise ShapelineError(f"models: {source} takes inputs of shape {wanted}, and the dataset's have {shape}")
    outputs = inner.output_shape[-1] if len(inner.output_shape) > 1 else 1
    if task == "regression":
        if outputs != 1:
            raise ShapelineError(f"models: {source} gives {outputs} numbers a row; a regression model gives one")
        return Ready(_arrange(inner, order), "", content)
    stripped = "" if known.get("outputs") == "logits" else _remove_last_activation(inner)
    if stripped == "sigmoid" and outputs != 1:
        raise ShapelineError(f"models: {source} ends in {outputs} sigmoids; give one for two classes, or a softmax")
    classes = 2 if outputs == 1 else outputs
    if classes != len(known["classes"]):
        raise ShapelineError(
            f"models: {source} has {classes} classes and the dataset {len(known['classes'])}; give a model of these"
        )
    return Ready(_arrange(inner, order), stripped, content)


def _fits(side: int, wanted: int | None) -> bool:
    return wanted in (None, side)


def _arrange(inner: keras.Model, order: str) -> keras.Model:
    return inner if order == "channels_first" else Arranged(inner, order)


def _remove_last_activation(inner: keras.Model) -> str:
    """Remove the softmax or sigmoid of the last layer, so that outputs are exact logits; return its name, else ""."""
    last = inner.layers[-1]
    name = getattr(getattr(last, "activation", None), "__name__", "")
    # What stands behind the layer, such as 1 - p, is no layer itself.
    if name not in ("softmax", "sigmoid") or last.output is not inner.outputs[0]:
        return ""
    last.activation = keras.activations.linear
    return name


def export_graph(model: keras.Model, rows: np.ndarray) -> bytes:
    """Return the model as a graph of ONNX for rows like these in any batch. Raises Refused."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise Refused(f"{missing[0]} is not installed")
    check_size(sum(np.dtype(weight.dtype).itemsize * int(np.prod(weight.shape)) for weight in model.weights))
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    signature = [keras.InputSpec(shape=(None, *rows.shape[1:]), dtype=rows.dtype.name)]
    quiet = contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings()
    with tempfile.TemporaryDirectory() as folder, quiet[0], quiet[1]:
        warnings.simplefilter("ignore")
        file = Path(folder, FILE)
        try:
            model.export(file, format="onnx", verbose=False, input_signature=signature)
        except FAILURES as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise Refused(f"the export failed: {reason}") from error
        return file.read_bytes()
