"""A model in an .onnx file, run by ONNX Runtime: one input of rows; scores of the classes, or a prediction a row."""

import logging
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, describe_missing, is_installed
from shapeline.models.axes import ORDERS, find_order
from shapeline.models.classifier import kind_of_outputs

log = logging.getLogger(__name__)

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}
PROBES = 16  # made-up rows of each scale that tell probabilities from logits
SCALES = (0.1, 3.0, 1e3, 1e6)


@dataclass(frozen=True, eq=False)
class Network:
    """Rows (n, *input shape) to probabilities or predictions by an ONNX file; last: of logits."""

    content: bytes
    session: Any
    dtype: type
    order: str
    output: str
    last: str = ""

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        from scipy.special import expit, softmax

        outputs = self.outputs(rows)
        if self.last:
            outputs = softmax(outputs, axis=1) if self.last == "softmax" else expit(outputs)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def outputs(self, rows: np.ndarray) -> np.ndarray:
        """What the file gives, (n, outputs) float64; of one number per row (n, 1)."""
        rows = ORDERS[self.order](rows)
        [given] = self.session.get_inputs()
        [outputs] = self.session.run([self.output], {given.name: np.ascontiguousarray(rows, self.dtype)})
        return np.asarray(outputs, np.float64).reshape(len(rows), -1)


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Network:
    """Return the network in an .onnx file's bytes for `known` shape, classes and columns.

    Whether outputs are logits shows on rows of noise, or in known `outputs`. Raises ShapelineError.
    """
    session = _session(source, content)
    coded = [column["name"] for column in known.get("columns") or () if "values" in column]
    if coded:
        raise ShapelineError(
            f"models: {source} takes numbers and column '{coded[0]}' holds categories; encode it in the file, or save "
            "a pipeline that does with skops"
        )
    dtype, order = _input(source, session, tuple(known["input_shape"]))
    network = Network(content, session, dtype, order, _output(source, session))
    outputs = np.concatenate([network.outputs(rows) for rows in _noise(known, dtype)])
    count, outputs = outputs.shape[1], outputs[np.isfinite(outputs).all(1)]
    if task == "regression":
        if count != 1:
            raise ShapelineError(f"models: {source} gives {count} numbers a row; a regression model gives one")
        return network
    classes = 2 if count == 1 else count
    if classes != len(known["classes"]):
        raise ShapelineError(
            f"models: {source} has {classes} classes and the dataset {len(known['classes'])}"
            "; give a model of these classes"
        )
    kind = known.get("outputs") or kind_of_outputs(outputs, source)
    last = "" if kind == "probabilities" else "sigmoid" if count == 1 else "softmax"
    log.info("%s: its outputs are taken for %s", source, kind)
    return Network(content, session, dtype, order, network.output, last)


def takes(source: str, content: bytes) -> tuple[tuple[int | str | None, ...], bool]:
    """Return the shape of a file's rows (varying sizes: name or None), and whether they are whole numbers."""
    given = _session(source, content).get_inputs()
    _one(source, given)
    return tuple(given[0].shape[1:]), "int" in given[0].type


def _session(source: str, content: bytes):
    if not is_installed("onnxruntime"):
        raise ShapelineError(f"models: {source}: it cannot be read: {describe_missing('onnxruntime')}")
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as failures

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)  # 0: all
    options.log_severity_level = 4
    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")
    try:
        # Of a model in memory it looks for weights in other files from the working directory on: nobody would see those
        # edited, and nothing would keep them. In a folder that is empty there are none.
        with tempfile.TemporaryDirectory() as empty:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", empty)
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except tuple(getattr(failures, name) for name in names) as error:
        reason = str(error).splitlines()[0]
        remedy = (
            "save its weights inside, by external_data=False" if "external" in reason.lower() else "export it again"
        )
        raise ShapelineError(f"models: {source} cannot be read as an ONNX file ({reason}); {remedy}") from error


def _input(source: str, session, shape: tuple[int, ...]) -> tuple[type, str]:
    """The type of its input, and the order of its axes."""
    given = session.get_inputs()
    _one(source, given)
    asked, batch = tuple(given[0].shape[1:]), next(iter(given[0].shape), None)
    if given[0].type not in DTYPES:
        raise ShapelineError(f"models: {source} takes {given[0].type}; export it with numbers as its input")
    if isinstance(batch, int) and batch > 0:
        raise ShapelineError(
            f"models: {source} takes batches of {batch} alone; export it with a dynamic first dimension, in torch "
            "by dynamic_shapes"
        )

    def fits(wanted: tuple[int, ...]) -> bool:
        pairs = zip(asked, wanted, strict=False)
        return len(asked) == len(wanted) and all(a == b for a, b in pairs if isinstance(a, int) and a > 0)

    order = find_order(shape, fits)
    if order is None:
        raise ShapelineError(
            f"models: {source} takes rows of shape {asked} and the dataset's have {shape}; set its size or columns"
        )
    return DTYPES[given[0].type], order


def _one(source: str, given: list) -> None:
    if len(given) != 1:
        names = ", ".join(one.name for one in given)
        raise ShapelineError(f"models: {source} takes {len(given)} inputs ({names}); export it with one, of whole rows")


def _output(source: str, session) -> str:
    """The first output of floating numbers: a converted pipeline of scikit-learn gives its labels before."""
    for given in session.get_outputs():
        if given.type in ("tensor(float)", "tensor(double)"):
            return given.name
    outputs = ", ".join(f"{given.name} {given.type}" for given in session.get_outputs())
    remedy = "convert it with options={'zipmap': False}" if "map(" in outputs else "export a model that does"
    raise ShapelineError(f"models: {source} gives no numbers ({outputs}); {remedy}")


def _noise(known: dict[str, Any], dtype: type) -> list[np.ndarray]:
    """Rows of noise at several scales, or of token ids."""
    shape, random = (PROBES, *known["input_shape"]), np.random.default_rng(0)
    if np.issubdtype(dtype, np.integer):
        return [random.integers(0, known.get("vocabulary", 2), shape)]
    return [scale * random.standard_normal(shape) for scale in SCALES]
