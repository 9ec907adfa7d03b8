"""The execution backend of a model: its name, rows per call, and the tolerance to the plain model."""

import importlib
import math
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.games.references import Reference
from shapeline.models.classifier import Classifier
from shapeline.threads import count_allowed

TOLERANCE = 1e-5  # of log-probabilities between a backend and the plain model
BFLOAT16_TOLERANCE = 0.1  # the same for bfloat16, whose numbers have three digits
# The permitted slowdown of "onnx" relative to the fastest: its jobs start without a framework, and between equally fast
# backends the choice, and so the last bits of every value, would be random.
GRAPH_WORTH = 1.1
CALIBRATION_SECONDS = 3.0  # after which no candidate is tried; a small model on an idle machine takes under one


@dataclass(frozen=True)
class ExecutionBackend:
    """The execution of a model: name, rows per call, measured rows/s or 0, largest difference to plain in log p."""

    name: str = "plain"
    batch: int = 256
    rate: float = 0.0
    difference: float = 0.0


class BackendRefused(ShapelineError):
    """A backend that refuses this model; the calibration continues without it."""


# Bytes of the buffer of composed rows, and of a chunk of expanded masks. More is not faster, and a default batch of
# large images could exceed the memory. Functions, whose calls cost a millisecond of checks in scikit-learn, have large
# batches of few cells.
BUFFER_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31, "function": 1 << 24}
MASK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
LARGEST_BATCH = {"cpu": 1 << 14, "cuda": 1 << 16, "function": 1 << 15}
# Bytes of composed rows per call during calibration, on a CPU per thread. More are no faster there, and a network's
# activations, many times as large, stay allocated: the memory of a run must not depend on the machine's speed.
TRIED_BYTES = {"cpu": 1 << 24, "cuda": BUFFER_BYTES["cuda"], "function": 1 << 24}
KEPT_OUTPUTS = 1 << 18  # model outputs kept until they are scored together


def limit_rows(batch: int, cells: int, most: int | None, device: str) -> int:
    """Return the rows per call for a number of cells; most: limit after memory ran out; device: its type."""
    limit = min(batch, LARGEST_BATCH[device], BUFFER_BYTES[device] // (4 * cells))
    return max(1, min(limit, most or limit))


def limit_trial_rows(cells: int, device: str) -> int:
    """Return the maximum of rows per call during calibration, for a number of cells."""
    limit_bytes = min(BUFFER_BYTES[device], count_allowed() * TRIED_BYTES[device])
    return max(1, min(LARGEST_BATCH[device], limit_bytes // (4 * cells)))


def choose_tile(n: int, K: int, pairs: int) -> tuple[int, int]:
    """Return instances and coalitions of a tile: about `pairs` of them, with equal parts of K."""
    shares = (math.ceil(K / splits) for splits in range(math.ceil(K / pairs), math.ceil(K / pairs) + 4))
    tiles = [(min(n, pairs // b), b) for b in shares]
    return max(tiles, key=lambda tile: tile[0] * tile[1])


# By name, so that the tracked files of a job (workflow/job_code.py) include only the backend of its framework.
BACKENDS = {
    "torch": "shapeline.games.torch_backend",
    "function": "shapeline.games.numpy_backend",
    "tensorflow": "shapeline.games.tf_backend",
    "onnx": "shapeline.games.numpy_backend",  # a runtime
}


def import_backend(model: Classifier) -> ModuleType:
    return importlib.import_module(BACKENDS[model.runtime or model.framework])


def mask_rows(inputs: np.ndarray, reference: Reference, count: int) -> np.ndarray:
    """Return rows to verify a backend on: the reference, a full input, and masked inputs, sparse to dense."""
    random = np.random.default_rng(0)
    density = random.permutation(np.linspace(0, 1, count))
    density[:2] = 0, 1
    kept = random.random((count, *inputs.shape[1:])) < density.reshape(-1, *[1] * (inputs.ndim - 1))
    full = inputs[np.arange(count) % len(inputs)]
    absent = reference.rows[np.arange(count) % len(reference.rows)]
    return np.where(kept, full, absent)


def select_traced_rows(inputs: np.ndarray, reference: Reference) -> np.ndarray:
    """Return an input and a reference row (2, *input_shape), for tracing or trying a backend."""
    return np.concatenate([inputs[:1], reference.rows[:1]])
