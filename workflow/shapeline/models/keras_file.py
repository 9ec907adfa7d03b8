"""A Keras model in a .keras file, read in safe mode and made to take the dataset's inputs and give logits."""

import tempfile
from typing import Any

from shapeline.models.tensorflow_setup import keras, tf  # isort: skip

from shapeline.errors import ShapelineError


class Ready(keras.Model):
    """The user's model between two small steps: channels moved last where it wants them so, and two logits of one.

    stripped: the activation of its last layer, a softmax or a sigmoid, that was left out; content: the bytes of its
    file.
    """

    def __init__(self, inner: keras.Model, stripped: str, channels_last: bool, content: bytes):
        super().__init__()
        self.inner, self.stripped, self.channels_last, self.content = inner, stripped, channels_last, content
        self.built = True

    def call(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        if self.channels_last:
            rows = tf.transpose(rows, [0, 2, 3, 1])
        outputs = self.inner(rows, training=training)
        if self.stripped == "sigmoid":  # the logit of the second of two classes
            outputs = tf.concat([tf.zeros_like(outputs), outputs], axis=1)
        return outputs


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Ready:
    """The model in the bytes of a .keras file. known: input_shape and classes of the dataset.

    Raises ShapelineError for a file that is not safe or no Keras model, and for other inputs or outputs.
    """
    with tempfile.NamedTemporaryFile(suffix=".keras") as file:
        file.write(content)
        file.flush()
        try:
            inner = keras.saving.load_model(file.name, compile=False, safe_mode=True)
        except (ValueError, TypeError, KeyError, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ShapelineError(f"models: {source} cannot be read as a Keras file in safe mode ({reason})") from error
    if len(inner.inputs) > 1:
        raise ShapelineError(
            f"models: {source} takes {len(inner.inputs)} inputs, and the dataset's rows are one; give a function that "
            "splits them and calls it, with framework: function"
        )
    channels_last = _channels_last(source, inner, tuple(known["input_shape"]))
    outputs = inner.output_shape[-1] if len(inner.output_shape) > 1 else 1
    if task == "regression":
        if outputs != 1:
            raise ShapelineError(f"models: {source} gives {outputs} numbers a row; a regression model gives one")
        return Ready(inner, "", channels_last, content)
    stripped = "" if known.get("outputs") == "logits" else _remove_last_activation(inner)
    if stripped == "sigmoid" and outputs != 1:
        raise ShapelineError(f"models: {source} ends in {outputs} sigmoids; give one for two classes, or a softmax")
    classes = 2 if outputs == 1 else outputs
    if classes != len(known["classes"]):
        raise ShapelineError(f"models: {source} has {classes} classes and the dataset {len(known['classes'])}")
    return Ready(inner, stripped, channels_last, content)


def _channels_last(source: str, inner: keras.Model, shape: tuple[int, ...]) -> bool:
    """Whether the model takes images with their channels last; the dataset's have them first."""
    wanted = inner.input_shape[1:]

    def fits(sides: tuple[int, ...]) -> bool:
        return len(sides) == len(wanted) and all(b in (None, a) for a, b in zip(sides, wanted, strict=True))

    if fits(shape):
        return False
    if len(shape) == 3 and fits((*shape[1:], shape[0])):
        return True
    raise ShapelineError(f"models: {source} takes inputs of shape {wanted}, and the dataset's have {shape}")


def _remove_last_activation(inner: keras.Model) -> str:
    """Leave out the softmax or sigmoid of the last layer, so that the outputs are exact logits; its name, else ""."""
    last = inner.layers[-1]
    name = getattr(getattr(last, "activation", None), "__name__", "")
    # What stands behind the layer, such as 1 - p, is no layer itself.
    if name not in ("softmax", "sigmoid") or last.output is not inner.outputs[0]:
        return ""
    last.activation = keras.activations.linear
    return name
