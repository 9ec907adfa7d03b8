"""The graph of a Keras model on TensorFlow: what ONNX Runtime runs in its place."""

import contextlib
import importlib.util
import io
import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np

from shapeline.models.onnx_graph import FILE, Refused, check_size
from shapeline.models.tensorflow_setup import keras, tf

NEEDED = ("tf2onnx", "onnx", "onnxruntime")
FAILURES = (
    *(RuntimeError, TypeError, ValueError, AttributeError, AssertionError, LookupError, ImportError, OSError),
    tf.errors.OpError,
)


def graph(model: keras.Model, rows: np.ndarray) -> bytes:
    """Return the model as a graph of ONNX for rows like these in any batch. Raises Refused where it cannot be
    exported."""
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
