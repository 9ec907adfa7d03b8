"""A model in an .onnx file, run by ONNX Runtime: inputs of rows or of columns; class scores or predictions."""

import logging
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.datasets.tokenizer import decode_texts
from shapeline.errors import ShapelineError, describe_missing, is_installed
from shapeline.models.adapters import ORDERS, check_n_outputs, find_order, order_classes, refuse_categories
from shapeline.models.classifier import OUTPUT_TOLERANCE, ROUNDING, ModelFailure, call, classify_outputs
from shapeline.models.onnx_graph import Refused, open_session
from shapeline.threads import count_allowed

log = logging.getLogger(__name__)

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}
TEXTS, FIRST = "tensor(string)", "channels_first"
COLUMN_DTYPES = {**DTYPES, "tensor(bool)": np.bool_, TEXTS: np.object_}  # of an input of one column
SCORES = ("tensor(float)", "tensor(float16)", "tensor(double)")
LABELS = (TEXTS, "tensor(int64)")
ANY_NOISE = "list columns of codes under the dataset's 'categorical', or export a model that takes any such row"
NOISE_WORDS = 20  # of a random text
NOISE_ROWS, NOISE_SCALES = 16, (0.1, 3.0, 1e3, 1e6, 0.0)  # random inputs that tell probabilities from logits


@dataclass(frozen=True)
class Input:
    """An input of a file: whole rows, or one column in an array of one axis (an int) or two; values: of its codes.
    texts: the rows are bytes of documents, which it takes as texts."""

    name: str
    dtype: type
    column: int | list[int] | None = None
    values: tuple = ()
    texts: bool = False

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return its array for rows. Raises ValueError where a cell would be another in its type."""
        if self.texts:
            texts = np.array(decode_texts(rows), self.dtype)
            return texts if self.column is None else texts[:, None]
        rows = rows if self.column is None else rows[:, self.column]
        if self.values:
            if np.isnan(rows).any():
                raise ValueError(f"its input {self.name} takes no missing cells")
            return np.array(self.values, self.dtype)[rows.astype(np.intp)]
        with np.errstate(invalid="ignore", over="ignore"):
            given = np.ascontiguousarray(rows, self.dtype)
        if given.dtype.kind in "bi" and (given != rows).any():
            odd = np.asarray(rows)[given != rows][0]
            raise ValueError(f"it takes whole numbers and not {odd:.6g}, such as a mean; use the reference background")
        if (np.isinf(given) & np.isfinite(rows)).any():
            raise ValueError(f"it takes {given.dtype}, which has no numbers of {np.abs(rows).max():.3g}")
        return given


@dataclass(frozen=True, eq=False)
class Network:
    """An ONNX file from rows (n, *input shape) to probabilities or predictions; last: the function of its logits.

    keys: where the output is a dictionary per row, as converters make it, its keys in the order of the classes.
    """

    content: bytes
    session: Any
    inputs: tuple[Input, ...]
    order: str
    output: str = ""
    keys: tuple = ()
    last: str = ""

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        from scipy.special import expit, softmax

        outputs = self.outputs(rows)
        if self.last:
            outputs = softmax(outputs, axis=1) if self.last == "softmax" else expit(outputs)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def outputs(self, rows: np.ndarray) -> np.ndarray:
        """Return the outputs of the file, (n, outputs) float64; (n, 1) for one number per row."""
        [outputs] = self.run([self.output], rows)
        if self.keys:
            outputs = np.array([[row[key] for key in self.keys] for row in outputs])
        if outputs.shape[:1] != (len(rows),):
            raise ValueError(f"its output has shape {outputs.shape}, not an entry per row")
        return np.asarray(outputs, np.float64).reshape(len(rows), -1)

    def run(self, names: list[str], rows: np.ndarray) -> list:
        """Return the outputs of these names. Raises ValueError for rows that its inputs do not hold."""
        rows = ORDERS[self.order](rows)
        return self.session.run(names, {each.name: each.take(rows) for each in self.inputs})


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Network:
    """Return the network in an .onnx file's bytes; known: shape, classes, columns; outputs unless noise decides."""
    session = _open_session(source, content)
    inputs, order = _match_inputs(source, session, known)
    network, noise = Network(content, session, inputs, order), _sample_noise(content, known, inputs)
    network = _find_output(source, network, noise, known, task)
    noise, outputs = map(np.concatenate, zip(*_try_rows(network.outputs, noise, source), strict=True))
    count, outputs = outputs.shape[1], outputs[np.isfinite(outputs).all(1)]
    check_n_outputs(source, count, known, task)
    if task == "regression":
        return network
    if task == "classification" and count > 1:
        _check_labels(source, network, noise, known["classes"])
    kind = known.get("outputs") or _detect_outputs(source, network, outputs)
    last = "" if kind == "probabilities" else "sigmoid" if count == 1 else "softmax"
    log.info("%s: its outputs are taken for %s", source, kind)
    return replace(network, last=last)


def _detect_outputs(source: str, network: Network, outputs: np.ndarray) -> str:
    """Return "logits" or "probabilities" for outputs (n, k) of noise; a converted classifier, which gives labels too,
    is refused unless it gives probabilities."""
    has_labels = any(each.type in LABELS for each in network.session.get_outputs())
    is_spread = len(outputs) and outputs.min() >= -ROUNDING and np.ptp(outputs.sum(1)) < OUTPUT_TOLERANCE
    kind = "probabilities" if has_labels and is_spread else classify_outputs(outputs, source)
    if outputs.shape[1] == 2 and outputs.any() and (outputs[:, 0] == -outputs[:, 1]).all():
        raise ShapelineError(
            f"models: {source} gives a score and its negative, no logits; convert it without raw_scores, or set outputs"
        )
    if kind == "logits" and has_labels:
        raise ShapelineError(
            f"models: {source} gives labels, and scores outside 0 to 1 that are no probabilities; convert a model with "
            "predict_proba, as of CalibratedClassifierCV, or set outputs: logits if their softmax is what you want"
        )
    return kind


def _check_labels(source: str, network: Network, rows: np.ndarray, classes: list[str]) -> None:
    """Raise ShapelineError if labels, a converted classifier's other output, tell of another order of the classes."""
    named = [each.name for each in network.session.get_outputs() if each.type in LABELS and len(each.shape) == 1]
    if len(named) != 1:
        return
    [labels] = network.run(named, rows)
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


def read_input(source: str, content: bytes) -> tuple[tuple[int | str | None, ...] | None, bool]:
    """Return the shape of a file's rows (varying sizes: name or None; None of texts), and whether they are integers."""
    inputs = _open_session(source, content).get_inputs()
    if len(inputs) > 1 and all(map(_is_column, inputs)):
        return (len(inputs),), False
    _check_one_input(source, inputs)
    shape = None if inputs[0].type == TEXTS and _is_column(inputs[0]) else tuple(inputs[0].shape[1:])
    return shape, "int" in inputs[0].type


def _open_session(source: str, content: bytes):
    if not is_installed("onnxruntime"):
        raise ShapelineError(f"models: {source}: it cannot be read: {describe_missing('onnxruntime')}")
    try:
        # For a model in memory ONNX Runtime searches external weights in the working directory; their edits would go
        # unnoticed and no result would store them. In an empty folder it finds none.
        with tempfile.TemporaryDirectory() as empty:
            return open_session(
                content, count_allowed(), {"session.model_external_initializers_file_folder_path": empty}
            )
    except Refused as error:
        inside = "save its weights inside, by external_data=False"
        remedy = inside if "external" in str(error).lower() else "export it again"
        raise ShapelineError(f"models: {source} cannot be read as an ONNX file ({error}); {remedy}") from error


def _match_inputs(source: str, session: Any, known: dict[str, Any]) -> tuple[tuple[Input, ...], str]:
    """Return the inputs of a file, of whole rows or of columns by name, and the order of the axes of rows."""
    inputs, columns = session.get_inputs(), known.get("columns") or ()
    for each in inputs:
        if isinstance(batch := next(iter(each.shape), None), int) and batch > 0:
            raise ShapelineError(
                f"models: {source} takes batches of {batch} alone; export it with a dynamic first dimension, in torch "
                "by dynamic_shapes"
            )
    if known.get("texts"):
        _check_one_input(source, inputs)
        if inputs[0].type != TEXTS or not _is_column(inputs[0]):
            raise ShapelineError(
                f"models: {source} takes {inputs[0].type} of shape {inputs[0].shape}, and the dataset's tokenizer is "
                "text; set the tokenizer whose ids it takes, or export it with an input of one text per row"
            )
        return (Input(inputs[0].name, np.object_, [0] if len(inputs[0].shape) == 2 else None, (), True),), FIRST
    if columns and all(map(_is_column, inputs)) and len(columns) > 1:
        return tuple(_match_column(source, each, columns) for each in inputs), FIRST
    _check_one_input(source, inputs)
    refuse_categories(source, [column["name"] for column in columns if "values" in column])
    if inputs[0].type not in DTYPES:
        remedy = "set the dataset's tokenizer: text, or export" if inputs[0].type == TEXTS else "export"
        raise ShapelineError(f"models: {source} takes {inputs[0].type}; {remedy} it with an input of float32")
    order = find_order(source, tuple(known["input_shape"]), inputs[0].shape[1:])
    return (Input(inputs[0].name, DTYPES[inputs[0].type]),), order


def _is_column(given: Any) -> bool:
    """Return whether an input holds a cell per row, as skl2onnx converts a model of a data frame."""
    return given.type in COLUMN_DTYPES and len(given.shape) in (1, 2) and given.shape[1:] in ([], [1])


def _match_column(source: str, given: Any, columns: Sequence[dict]) -> Input:
    """Return an input of one column, of that name but for spaces and signs that converters replace."""
    names = [column["name"] for column in columns]
    alike = [name for name in names if re.sub(r"\W", "_", name) == re.sub(r"\W", "_", given.name)]
    name = given.name if given.name in names else alike[0] if len(alike) == 1 else None
    if name is None:
        raise ShapelineError(f"models: {source} has an input {given.name}, which the dataset lacks; add this column")
    place = names.index(name)
    values, dtype = columns[place].get("values", ()), COLUMN_DTYPES[given.type]
    if any(isinstance(value, str) for value in values) != (dtype is np.object_):
        refuse_categories(source, [name] if values else [])
        raise ShapelineError(
            f"models: {source} takes texts in its input {given.name}, and the column '{name}' holds numbers; list it "
            "under the dataset's 'categorical' and convert the model for numbers"
        )
    return Input(given.name, dtype, [place] if len(given.shape) == 2 else place, tuple(values))


def _check_one_input(source: str, inputs: list) -> None:
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs)
        raise ShapelineError(
            f"models: {source} takes {len(inputs)} inputs ({names}); export one, of whole rows, or one per column"
        )


def _find_output(source: str, network: Network, noise: list[np.ndarray], known: dict[str, Any], task: str) -> Network:
    """Return the network with the output that fits the classes (1: a regression); labels are another one."""
    classes = 1 if task == "regression" else len(known["classes"])
    given = network.session.get_outputs()
    names = [output.name for output in given if output.type in SCORES]
    maps = [output.name for output in given if output.type.startswith("seq(map(")]
    if not names and len(maps) == 1 and task == "classification":
        [[first, *_]] = _try_rows(lambda rows: network.run(maps, rows), noise, source)[0][1]
        keys = sorted(first)
        order = order_classes(source, keys, known, may_number=True)
        return replace(network, output=maps[0], keys=tuple(keys[place] for place in order))
    if len(names) == 1:
        return replace(network, output=names[0])
    if not names:
        outputs = ", ".join(f"{output.name} {output.type}" for output in given)
        raise ShapelineError(f"models: {source} gives no numbers ({outputs}); export a model that does")
    rows, outputs = _try_rows(lambda rows: network.run(names, rows), noise, source)[0]
    shapes = [output.shape for output in outputs]
    counts = [int(np.prod(shape[1:])) if shape[:1] == (len(rows),) else 0 for shape in shapes]
    pairs = zip(names, counts, strict=True)
    fitting = [name for name, count in pairs if count == classes or (count, classes) == (1, 2)]
    if len(fitting) != 1:
        raise ShapelineError(
            f"models: {source} gives several outputs ({', '.join(names)}), of which {len(fitting) or 'none'} fit the "
            "dataset; export it with one, a converted model of scikit-learn by options={'zipmap': False}"
        )
    return replace(network, output=fitting[0])


def _try_rows(function: Callable, noise: list[np.ndarray], source: str) -> list[tuple[np.ndarray, Any]]:
    """Return the rows that the network takes, with its outputs: some take no cells far from their training."""
    found, failures = [], []
    for rows in noise:
        try:
            found.append((rows, call(function, rows, source, remedy=ANY_NOISE)))
        except ModelFailure as error:
            failures.append(error)
    if not found:
        raise failures[0]
    return found


def _sample_noise(content: bytes, known: dict[str, Any], inputs: Sequence[Input]) -> list[np.ndarray]:
    """Return rows of noise at several scales, of token ids, or of random words of the file, where its vocabulary is."""
    shape, random = (NOISE_ROWS, *known["input_shape"]), np.random.default_rng(0)
    if inputs[0].texts:
        words = sorted(set(re.findall(rb"[a-z]{2,}", content)))
        rows = np.zeros(shape, np.int32)
        for row in rows:
            text = b" ".join(random.choice(words, NOISE_WORDS))[: shape[1]]
            row[: len(text)] = np.frombuffer(text, np.uint8) + 1
        return [rows]
    if inputs[0].column is None and np.issubdtype(inputs[0].dtype, np.integer):
        return [random.integers(0, known.get("vocabulary", 2), shape)]
    noise = [scale * random.standard_normal(shape) for scale in NOISE_SCALES]
    for rows in noise:
        for each in inputs:
            if each.values or each.dtype is np.bool_:
                rows[:, each.column] = random.integers(0, len(each.values) or 2, rows[:, each.column].shape)
            elif np.issubdtype(each.dtype, np.integer):
                rows[:, each.column] = np.rint(rows[:, each.column])
    return noise
