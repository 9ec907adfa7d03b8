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

TOLERANCE = 1e-5  # permitted difference of log-probabilities between a backend and the plain model
BFLOAT16_TOLERANCE = 0.1  # the same for bfloat16, which has three significant digits
# The permitted slowdown of "onnx" relative to the fastest backend: its jobs start without a framework, and a random
# choice between equally fast backends would change the last bits of every value.
MAX_GRAPH_SLOWDOWN = 1.1
CALIBRATION_SECONDS = 3.0  # no candidate is tried later; a small model on an idle machine takes under one second


@dataclass(frozen=True)
class ExecutionBackend:
    """The execution of a model: name, rows per call, measured rows/s or 0, largest difference of log p to plain."""

    name: str = "plain"
    batch: int = 256
    rate: float = 0.0
    difference: float = 0.0


class BackendRefused(ShapelineError):
    """The refusal of a model by a backend; the calibration continues without the backend."""


# Bytes of the buffer of composed rows, and of a chunk of expanded masks. Larger ones are not faster, and a batch of
# large images could exceed the memory. Functions have large batches of few cells, because scikit-learn's checks cost a
# millisecond per call.
MAX_BUFFER_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31, "function": 1 << 24}
MAX_MASK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
MAX_BATCH_ROWS = {"cpu": 1 << 14, "cuda": 1 << 16, "function": 1 << 15}
# Bytes of composed rows per call during calibration, on a CPU per thread. Larger calls are no faster there, and a
# network's activations, many times as large, stay allocated: the memory of a run must not depend on the speed.
MAX_TRIAL_BYTES = {"cpu": 1 << 24, "cuda": MAX_BUFFER_BYTES["cuda"], "function": 1 << 24}
MAX_BUFFERED_OUTPUTS = 1 << 18  # model outputs buffered until they are scored together


def limit_rows(batch: int, cells: int, most: int | None, device: str) -> int:
    """Return the rows per call for a number of cells; most: limit after memory ran out; device: type of the device."""
    limit = min(batch, MAX_BATCH_ROWS[device], MAX_BUFFER_BYTES[device] // (4 * cells))
    return max(1, min(limit, most or limit))


def limit_trial_rows(cells: int, device: str) -> int:
    """Return the maximum of rows per call during calibration, for a number of cells."""
    limit_bytes = min(MAX_BUFFER_BYTES[device], count_allowed() * MAX_TRIAL_BYTES[device])
    return max(1, min(MAX_BATCH_ROWS[device], limit_bytes // (4 * cells)))


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
    """Return the module of the model's backend."""
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
    """Return an input and a reference row (2, *input_shape) for tracing or testing a backend."""
    return np.concatenate([inputs[:1], reference.rows[:1]])
