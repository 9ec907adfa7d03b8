"""The graph of a network beside its weights: written where it is verified, opened where it is that of these weights."""

import dataclasses
import hashlib
import importlib
import logging
from pathlib import Path

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.files import atomic, document
from shapeline.models import weights
from shapeline.models.classifier import Classifier
from shapeline.models.onnx_graph import FILE, TOLERANCE, Refused, load_graph
from shapeline.threads import allowed

log = logging.getLogger(__name__)
EXPORTERS = {"torch": "shapeline.models.torch_export", "tensorflow": "shapeline.models.keras_export"}
VERIFIED = 32  # rows


def write(path: str | Path, loaded: Classifier, inputs: np.ndarray) -> dict[str, str] | None:
    """Write a network's graph beside its weights, verified on masked `inputs`; return digests for its card, or None."""
    exporter, rows = importlib.import_module(EXPORTERS[loaded.framework]), _rows(inputs)
    try:
        content = exporter.graph(loaded.module, rows[:2])
        graph = dataclasses.replace(loaded, module=load_graph(content, allowed()), runtime="onnx")
        differs = float(np.max(_relative_differences(_evaluate(graph, rows), _evaluate(loaded, rows))))
        if not differs <= TOLERANCE:
            raise Refused(f"log-probabilities differ by {differs:.1e}")
    except (ShapelineError, RuntimeError, MemoryError) as error:  # the network itself has run, and is stored
        log.info("no %s: %s", FILE, error)
        return None
    file = Path(path).with_name(FILE)
    with atomic(file) as partial:
        partial.write_bytes(content)
    log.info("%s: %d bytes, differs by %.1e", FILE, len(content), differs)
    return {"digest": hashlib.sha256(content).hexdigest(), "weights": weights.read(Path(path))[0]["digest"]}


def read(path: str | Path) -> Classifier | None:
    """Return the classifier run by the graph beside its weights on the CPU; None, with a reason in the log. Raises
    ShapelineError for damaged weights."""
    metadata, _ = weights.read(Path(path))
    file, card = Path(path).with_name(FILE), Path(path).with_name("card.json")
    try:
        recorded, content = document(card).get("onnx") or {}, file.read_bytes()
        if recorded.get("weights") != metadata["digest"]:
            raise Refused("it is of other weights")
        if recorded.get("digest") != hashlib.sha256(content).hexdigest():
            raise Refused("it is not the file that was written")
        graph = load_graph(content, allowed())
    except (OSError, ImportError, ShapelineError) as error:
        log.info("%s is not used, the network itself is: %s", file, error)
        return None
    return Classifier(
        *(metadata["framework"], metadata["architecture"], graph, metadata["classes"], metadata["sizes"]),
        *(metadata["vocabulary_digest"], metadata["task"]),
        runtime="onnx",
    )


def _rows(inputs: np.ndarray) -> np.ndarray:
    """Rows (VERIFIED, *input_shape) between pairs of the first inputs, cell by cell, and some inputs themselves."""
    first = np.asarray(inputs[:VERIFIED])
    first = first.astype(np.int32 if np.issubdtype(first.dtype, np.integer) else np.float32)
    first = first[np.arange(VERIFIED) % len(first)]
    kept = np.linspace(0, 1, VERIFIED).reshape(-1, *[1] * (first.ndim - 1))
    return np.where(np.random.default_rng(0).random(first.shape) < kept, first, first[::-1])


def _evaluate(classifier: Classifier, rows: np.ndarray) -> np.ndarray:
    """What a classifier says of rows, all at once and in passes of 7: log-probabilities, of several labels those of
    their absence too, or predictions."""
    if classifier.task == "regression":
        return np.concatenate([classifier.predict(rows), classifier.predict(rows, 7)])
    log_probs = np.concatenate([classifier.log_probs(rows), classifier.log_probs(rows, 7)])
    if classifier.task == "multilabel":
        log_probs = np.concatenate([log_probs, np.log(-np.expm1(log_probs)).clip(min=-700)])
    return log_probs


def _relative_differences(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Differences, relative where what is expected is beyond 1: float32 outputs of 30 differ by 1e-5 from rounding."""
    return np.abs(actual - expected) / np.abs(expected).clip(min=1)
