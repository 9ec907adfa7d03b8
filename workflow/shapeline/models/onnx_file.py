"""A model in an .onnx file, run by ONNX Runtime: one input of rows; class scores or one prediction per row."""

import logging
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.errors import ShapelineError, describe_missing, is_installed
from shapeline.models.adapters import ORDERS, check_n_outputs, find_order, refuse_categories
from shapeline.models.classifier import call, classify_outputs
from shapeline.models.onnx_graph import Refused, open_session

log = logging.getLogger(__name__)

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}
NOISE_ROWS, NOISE_SCALES = 16, (0.1, 3.0, 1e3, 1e6)  # random inputs that tell probabilities from logits


@dataclass(frozen=True, eq=False)
class Network:
    """An ONNX file from rows (n, *input shape) to probabilities or predictions; last: the function of its logits."""

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
        """Return the outputs of the file, (n, outputs) float64; (n, 1) for one number per row."""
        [outputs] = _run(self.session, [self.output], ORDERS[self.order](rows), self.dtype)
        if outputs.shape[:1] != (len(rows),):
            raise ValueError(f"its output has shape {outputs.shape}, not an entry per row")
        return np.asarray(outputs, np.float64).reshape(len(rows), -1)


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Network:
    """Return the network in an .onnx file's bytes; known: shape, classes, columns; outputs unless noise decides."""
    session = _open_session(source, content)
    refuse_categories(source, [column["name"] for column in known.get("columns") or () if "values" in column])
    dtype, order = _match_input(source, session, tuple(known["input_shape"]))
    noise, classes = _sample_noise(known, dtype), 1 if task == "regression" else len(known["classes"])
    output = _find_output(source, session, ORDERS[order](noise[0]), dtype, classes)
    network = Network(content, session, dtype, order, output)
    outputs = np.concatenate([call(network.outputs, rows, source) for rows in noise])
    count, outputs = outputs.shape[1], outputs[np.isfinite(outputs).all(1)]
    check_n_outputs(source, count, known, task)
    if task == "regression":
        return network
    if task == "classification" and count > 1:
        _check_labels(source, network, np.concatenate(noise), known["classes"])
    kind = known.get("outputs") or classify_outputs(outputs, source)
    if count == 2 and "outputs" not in known and outputs.any() and (outputs[:, 0] == -outputs[:, 1]).all():
        raise ShapelineError(
            f"models: {source} gives a score and its negative, no logits; convert it without raw_scores, or set outputs"
        )
    last = "" if kind == "probabilities" else "sigmoid" if count == 1 else "softmax"
    log.info("%s: its outputs are taken for %s", source, kind)
    return Network(content, session, dtype, order, network.output, last)


def _check_labels(source: str, network: Network, rows: np.ndarray, classes: list[str]) -> None:
    """Raise ShapelineError if labels, a converted classifier's other output, tell of another order of the classes."""
    kinds = ("tensor(string)", "tensor(int64)")
    named = [each.name for each in network.session.get_outputs() if each.type in kinds and len(each.shape) == 1]
    if len(named) != 1:
        return
    [labels] = _run(network.session, named, ORDERS[network.order](rows), network.dtype)
    places = zip(labels.tolist(), network.outputs(rows).argmax(axis=1).tolist(), strict=True)
    found = sorted({(class_name(label), place) for label, place in places})
    if min(map(len, map(set, zip(*found, strict=True)))) < max(2, len(found)):
        return  # an SVC's labels may be other classes than the most probable ones
    for label, place in found:
        if label in classes and classes.index(label) != place:
            raise ShapelineError(
                f"models: {source} has its class {label} at place {place}, and the dataset at {classes.index(label)} "
                f"({', '.join(classes)}, from 0); set the dataset's classes in the file's order"
            )


def read_input(source: str, content: bytes) -> tuple[tuple[int | str | None, ...], bool]:
    """Return the shape of a file's rows (varying sizes: name or None), and whether they are integers."""
    inputs = _open_session(source, content).get_inputs()
    _check_one_input(source, inputs)
    return tuple(inputs[0].shape[1:]), "int" in inputs[0].type


def _open_session(source: str, content: bytes):
    if not is_installed("onnxruntime"):
        raise ShapelineError(f"models: {source}: it cannot be read: {describe_missing('onnxruntime')}")
    threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
    try:
        # For a model in memory ONNX Runtime searches external weights in the working directory; their edits would go
        # unnoticed and no result would store them. In an empty folder it finds none.
        with tempfile.TemporaryDirectory() as empty:
            return open_session(content, threads, {"session.model_external_initializers_file_folder_path": empty})
    except Refused as error:
        inside = "save its weights inside, by external_data=False"
        remedy = inside if "external" in str(error).lower() else "export it again"
        raise ShapelineError(f"models: {source} cannot be read as an ONNX file ({error}); {remedy}") from error


def _match_input(source: str, session, shape: tuple[int, ...]) -> tuple[type, str]:
    inputs = session.get_inputs()
    _check_one_input(source, inputs)
    batch = next(iter(inputs[0].shape), None)
    if inputs[0].type not in DTYPES:
        raise ShapelineError(f"models: {source} takes {inputs[0].type}; export it with numbers as its input")
    if isinstance(batch, int) and batch > 0:
        raise ShapelineError(
            f"models: {source} takes batches of {batch} alone; export it with a dynamic first dimension, in torch "
            "by dynamic_shapes"
        )
    return DTYPES[inputs[0].type], find_order(source, shape, inputs[0].shape[1:])


def _check_one_input(source: str, inputs: list) -> None:
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs)
        raise ShapelineError(f"models: {source} takes {len(inputs)} inputs ({names}); export one, of whole rows")


def _find_output(source: str, session, rows: np.ndarray, dtype: type, classes: int) -> str:
    """Return the floating-point output that fits the classes (1: a regression); scikit-learn's labels are another."""
    given = session.get_outputs()
    names = [output.name for output in given if output.type in ("tensor(float)", "tensor(double)")]
    if len(names) == 1:
        return names[0]
    if not names:
        outputs = ", ".join(f"{output.name} {output.type}" for output in given)
        remedy = "convert it with options={'zipmap': False}" if "map(" in outputs else "export a model that does"
        raise ShapelineError(f"models: {source} gives no numbers ({outputs}); {remedy}")
    shapes = [output.shape for output in call(lambda rows: _run(session, names, rows, dtype), rows, source)]
    counts = [int(np.prod(shape[1:])) if shape[:1] == (len(rows),) else 0 for shape in shapes]
    pairs = zip(names, counts, strict=True)
    fitting = [name for name, count in pairs if count == classes or (count, classes) == (1, 2)]
    if len(fitting) != 1:
        raise ShapelineError(
            f"models: {source} gives several outputs ({', '.join(names)}), of which {len(fitting) or 'none'} fit the "
            "dataset; export it with one, a converted model of scikit-learn by options={'zipmap': False}"
        )
    return fitting[0]


def _run(session, names: list[str], rows: np.ndarray, dtype: type) -> list[np.ndarray]:
    """Return outputs of these names. Raises ValueError for rows that would be cut to whole numbers."""
    with np.errstate(invalid="ignore"):
        given = np.ascontiguousarray(rows, dtype)
    if given.dtype.kind == "i" and (given != rows).any():
        odd = np.asarray(rows)[given != rows][0]
        raise ValueError(f"it takes whole numbers and not {odd:.6g}, such as a mean; use the reference background")
    return session.run(names, {session.get_inputs()[0].name: given})


def _sample_noise(known: dict[str, Any], dtype: type) -> list[np.ndarray]:
    """Return rows of noise at several scales, or of token ids."""
    shape, random = (NOISE_ROWS, *known["input_shape"]), np.random.default_rng(0)
    if np.issubdtype(dtype, np.integer):
        return [random.integers(0, known.get("vocabulary", 2), shape)]
    return [scale * random.standard_normal(shape) for scale in NOISE_SCALES]
