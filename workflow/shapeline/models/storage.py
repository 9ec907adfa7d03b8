"""Models on disk, without pickle: weights as safetensors, a network's graph beside them, and the rows they take."""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy

from shapeline.errors import ShapelineError, reported_extras
from shapeline.files import atomic, read_document
from shapeline.models import adapters, architectures
from shapeline.models.architectures import build, is_named
from shapeline.models.classifier import FRAMEWORKS, TASK, Classifier, backend
from shapeline.models.onnx_graph import FILE, TOLERANCE, Refused, load_graph
from shapeline.threads import count_allowed

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset
Arrays = Mapping[str, np.ndarray]
log = logging.getLogger(__name__)
VERIFIED = 32  # rows
OPTIONAL = {"task": TASK, "outputs": "logits", "order": None, "vocabulary_digest": None}  # metadata, by default


@reported_extras("models.save")
def save(classifier: Classifier, path: str | Path) -> None:
    """Write weights as safetensors with what it takes to build the model. Raises ShapelineError for a wrapped model."""
    is_ready = architectures.find_kind(classifier.architecture, classifier.framework) is not None
    if not is_ready and (classifier.framework not in FRAMEWORKS or not is_named(classifier.architecture)):
        raise ShapelineError(f"models: '{classifier.architecture}' is a wrapped model; only built models can be saved")
    metadata = {
        "framework": classifier.framework,
        "architecture": classifier.architecture,
        "classes": classifier.n_classes,
        "sizes": classifier.sizes,
    }
    optional = {
        "task": classifier.task,
        "outputs": classifier.outputs if classifier.framework in FRAMEWORKS else "logits",
        "order": _find_order(classifier),
        "vocabulary_digest": classifier.vocabulary_digest,
    }
    metadata |= {key: value for key, value in optional.items() if value != OPTIONAL[key]}
    arrays = (
        architectures.collect_arrays(classifier) if is_ready else backend(classifier.framework).state(classifier.module)
    )
    write_weights(Path(path), arrays, metadata)


def _find_order(classifier: Classifier) -> str | None:
    """Return the order of axes for which `adapters.rearrange` wrapped a network; None if it is not wrapped."""
    if classifier.framework not in FRAMEWORKS:
        return None
    parts = (classifier.module, getattr(classifier.module, "network", None))  # a network of log-probabilities has one
    return next((part.order for part in parts if isinstance(part, backend(classifier.framework).Arranged)), None)


def save_graph(classifier: Classifier, path: str | Path, inputs: np.ndarray) -> dict[str, str] | None:
    """Write the graph of a network that `save` wrote beside it, as `write_graph`; None if it has none."""
    Path(path).with_name(FILE).unlink(missing_ok=True)  # of other weights
    if classifier.framework not in FRAMEWORKS or hasattr(classifier.module, "rows_a_call"):
        return None
    return write_graph(path, load(path), inputs)


@reported_extras("models.load")
def load(path: str | Path, device: str = "cpu", framework: str | None = None) -> Classifier:
    """Read a classifier that `save` wrote, in its own framework or as its twin; nothing is unpickled."""
    metadata, arrays = read_weights(Path(path))
    if architectures.find_kind(metadata["architecture"], metadata["framework"]):
        return architectures.restore(metadata, arrays).to(device)
    classifier = build(metadata["architecture"], framework or metadata["framework"], **metadata["sizes"])
    classifier.n_classes, classifier.task = metadata["classes"], metadata["task"]
    classifier.vocabulary_digest = metadata["vocabulary_digest"]
    made_by = backend(classifier.framework)
    classifier.outputs = metadata["outputs"]
    classifier = adapters.rearrange(classifier, metadata["order"])
    if classifier.outputs == "probabilities":
        classifier.module = made_by.build_from_probabilities(classifier.module, classifier.task)
    check_fit(arrays, made_by.state(classifier.module), str(path), classifier.architecture)
    made_by.set_state(classifier.module, arrays)
    return classifier.to(device)


def start_from(classifier: Classifier, path: str | Path) -> None:
    """Put in weights of a safetensors file to train from; the last layer stays where it has other classes."""
    made_by = backend(classifier.framework)
    current, start = made_by.state(classifier.module), tensors(Path(path))
    unchanged = [name for name in current if name.endswith("num_batches_tracked") and name not in start]
    last = [name for name in [*current][-2:] if name in start]
    if any(start[name].shape != current[name].shape for name in last):
        unchanged += last
    start |= {name: current[name] for name in unchanged}
    check_fit(start, current, str(path), classifier.architecture, "give weights of this architecture and its sizes")
    made_by.set_state(classifier.module, start)


def fit_rows(model: Classifier, dataset: "Dataset") -> "tuple[Classifier, Dataset]":
    """Return the model and the dataset whose inputs it takes, each row in the types of the user's own table."""
    if model.framework != "function":
        return model, dataset.as_numbers()
    if not hasattr(model.module, "table") or dataset.own_rows is None:
        return model, dataset
    module = dataclasses.replace(model.module, table=dataset.own_rows[0])
    return dataclasses.replace(model, module=module), dataset.as_given()


def write_weights(path: Path, arrays: Arrays, metadata: Mapping[str, Any]) -> None:
    """Write arrays and metadata under a temporary name and rename, so that no partial file is ever seen.

    metadata: framework and architecture as text; every other entry is stored as JSON.
    """
    texts = ("framework", "architecture")
    stored = {key: value if key in texts else json.dumps(value, sort_keys=True) for key, value in metadata.items()}
    contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    stored["digest"] = digest_of(contiguous)
    saved = safetensors.numpy.save(contiguous, stored)  # save_file lets only the owner read
    # The library's metadata are in another order every time; equal weights make equal files.
    length = int.from_bytes(saved[:8], "little")
    header = json.loads(saved[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic(path) as partial:
        partial.write_bytes(len(text).to_bytes(8, "little") + text + saved[8 + length :])


def read_weights(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Metadata (framework, architecture, classes, sizes, vocabulary_digest, task, outputs, order), the digest of the
    arrays, and these.

    Raises ShapelineError when the file is missing, not safetensors, or does not say which architecture it holds.
    """
    if not path.is_file():
        raise ShapelineError(f"models: no weights at {path}; train the model first")
    try:
        stored, arrays = _open_weights(path)
    except safetensors.SafetensorError as error:
        raise ShapelineError(
            f"models: {path} is damaged (not a safetensors file: {error}); remove it and run again, which trains the "
            "model again"
        ) from error
    if not {"architecture", "classes", "sizes"} <= stored.keys():
        raise ShapelineError(f"models: {path} does not name its architecture; it was not written by shapeline")
    if stored.get("digest") not in (None, digest_of(arrays)):
        raise ShapelineError(
            f"models: {path} is damaged (its arrays have another digest than stated); remove it and run again, "
            "which trains the model again"
        )
    return {
        "framework": stored.get("framework", "torch"),
        "architecture": stored["architecture"],
        "classes": json.loads(stored["classes"]),
        "sizes": json.loads(stored["sizes"]),
        **{key: json.loads(stored[key]) if key in stored else default for key, default in OPTIONAL.items()},
        "digest": stored.get("digest"),  # of the arrays
    }, arrays


def tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of any safetensors file, by name. Raises ShapelineError if it is missing or no such file."""
    if not path.is_file():
        raise ShapelineError(f"models: there is no file {path}; place the weights there")
    try:
        return _open_weights(path)[1]
    except safetensors.SafetensorError as error:
        raise ShapelineError(
            f"models: {path} is not a safetensors file ({error}); weights are never unpickled, give a .pt, .pth "
            "or .safetensors file"
        ) from error


def _open_weights(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    with safetensors.safe_open(path, framework="np") as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}


def digest_of(arrays: Arrays) -> str:
    """Return a digest of arrays by name, which detects damage to the file, because safetensors has no checksum."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def check_fit(
    arrays: Arrays, wanted: Arrays, source: str, architecture: str, remedy: str = "train the model again"
) -> None:
    """Raise ShapelineError with the first array that the model lacks, misses or has in another shape."""
    where = f"models: {source} does not fit '{architecture}'"
    for name in sorted(arrays.keys() ^ wanted.keys()):
        reason = "the file lacks" if name in wanted else "the model has no"
        raise ShapelineError(f"{where}: {reason} '{name}'; {remedy}")
    for name, array in wanted.items():
        if arrays[name].shape != array.shape:
            raise ShapelineError(
                f"{where}: '{name}' has shape {arrays[name].shape} and the model needs {array.shape}; {remedy}"
            )


def write_graph(path: str | Path, loaded: Classifier, inputs: np.ndarray) -> dict[str, str] | None:
    """Write a network's graph beside its weights, verified on masked `inputs`; return digests for its card, or None."""
    exporter, rows = backend(loaded.framework), _interpolate_rows(inputs)
    try:
        content = exporter.export_graph(loaded.module, rows[:2])
        graph = dataclasses.replace(loaded, module=load_graph(content, count_allowed()), runtime="onnx")
        expected = _evaluate(loaded, rows)
        # Relative above 1, because float32 outputs of 30 differ by 1e-5 from rounding.
        differs = float(np.max(np.abs(_evaluate(graph, rows) - expected) / np.abs(expected).clip(min=1)))
        if not differs <= TOLERANCE:
            raise Refused(f"log-probabilities differ by {differs:.1e}")
    except (ShapelineError, RuntimeError, MemoryError) as error:  # the network itself has run, and is stored
        log.info("no %s: %s", FILE, error)
        return None
    file = Path(path).with_name(FILE)
    with atomic(file) as partial:
        partial.write_bytes(content)
    log.info("%s: %d bytes, differs by %.1e", FILE, len(content), differs)
    return {"digest": hashlib.sha256(content).hexdigest(), "weights": read_weights(Path(path))[0]["digest"]}


def read_graph(path: str | Path) -> Classifier | None:
    """Return the classifier run by the graph beside its weights on the CPU; None, with a reason in the log."""
    metadata, _ = read_weights(Path(path))
    file, card = Path(path).with_name(FILE), Path(path).with_name("card.json")
    try:
        recorded, content = read_document(card).get("onnx") or {}, file.read_bytes()
        if recorded.get("weights") != metadata["digest"]:
            raise Refused("it is of other weights")
        if recorded.get("digest") != hashlib.sha256(content).hexdigest():
            raise Refused("it is not the file that was written")
        graph = load_graph(content, count_allowed())
    except (OSError, ImportError, ShapelineError) as error:
        log.info("%s is not used, the network itself is: %s", file, error)
        return None
    return Classifier(
        *(metadata["framework"], metadata["architecture"], graph, metadata["classes"], metadata["sizes"]),
        *(metadata["vocabulary_digest"], metadata["task"]),
        runtime="onnx",
    )


def _interpolate_rows(inputs: np.ndarray) -> np.ndarray:
    """Return rows (VERIFIED, *input_shape) interpolated between pairs of the first inputs, and some inputs."""
    first = np.asarray(inputs[:VERIFIED])
    first = first.astype(np.int32 if np.issubdtype(first.dtype, np.integer) else np.float32)
    first = first[np.arange(VERIFIED) % len(first)]
    share = np.linspace(0, 1, VERIFIED).reshape(-1, *[1] * (first.ndim - 1))
    return np.where(np.random.default_rng(0).random(first.shape) < share, first, first[::-1])


def _evaluate(classifier: Classifier, rows: np.ndarray) -> np.ndarray:
    """Return outputs of rows, at once and in passes of 7: predictions, or log-probabilities, also of absent labels."""
    if classifier.task == "regression":
        return np.concatenate([classifier.predict(rows), classifier.predict(rows, 7)])
    log_probs = np.concatenate([classifier.log_probs(rows), classifier.log_probs(rows, 7)])
    if classifier.task == "multilabel":
        log_probs = np.concatenate([log_probs, np.log(-np.expm1(log_probs)).clip(min=-700)])
    return log_probs
