"""The backend in which a model is run: its name, rows a call, and how far it may differ from the plain model."""

import importlib
import math
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.games.references import Reference
from shapeline.models.classifier import Classifier
from shapeline.threads import count_allowed

TOLERANCE = 1e-5  # largest difference in log-probability that a backend may show against the plain model
BFLOAT16_TOLERANCE = 0.1  # the same where an experiment asks for bfloat16, whose numbers have three digits
# How many times as slow as the fastest "onnx" may be and is taken all the same: its jobs start without a framework, and
# where two backends are as fast as each other the choice, and with it the last bits of every value, would be chance.
GRAPH_WORTH = 1.1
CALIBRATION_SECONDS = 3.0  # after which no other candidate is tried; a small model on a quiet machine takes under one


@dataclass(frozen=True)
class ExecutionBackend:
    """How a model is run: name, rows a call, measured rows/s or 0, largest difference to plain in log p."""

    name: str = "plain"
    batch: int = 256
    rate: float = 0.0
    difference: float = 0.0


class BackendRefused(ShapelineError):
    """A backend that this model cannot take; the calibration goes on without it."""


# Bytes of the buffer of filled rows, and of a chunk of expanded masks. More would not be faster, and a large image
# times the usual batch would be killed by the system before a framework could refuse it. A function, whose calls cost a
# millisecond of checks each where it is of scikit-learn's, has large ones of few cells.
BUFFER_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31, "function": 1 << 24}
MASK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
LARGEST_BATCH = {"cpu": 1 << 14, "cuda": 1 << 16, "function": 1 << 15}
# Of the filled rows of a call that a calibration tries, on a CPU for each thread. There more are no faster, and what a
# network makes of them, many times as much, is memory that the process keeps: how far a quick machine comes must not
# decide what a run takes.
TRIED_BYTES = {"cpu": 1 << 24, "cuda": BUFFER_BYTES["cuda"], "function": 1 << 24}
KEPT_OUTPUTS = 1 << 18  # model outputs kept until they are scored together


def rows_a_call(batch: int, cells: int, most: int | None, device: str) -> int:
    """How many rows of so many cells a call may hold; most: where memory ran out before. device: its type."""
    limit = min(batch, LARGEST_BATCH[device], BUFFER_BYTES[device] // (4 * cells))
    return max(1, min(limit, most or limit))


def limit_trial_rows(cells: int, device: str) -> int:
    """How many rows of so many cells a calibration tries in a call, at the most."""
    limit_bytes = min(BUFFER_BYTES[device], count_allowed() * TRIED_BYTES[device])
    return max(1, min(LARGEST_BATCH[device], limit_bytes // (4 * cells)))


def tile(n: int, K: int, pairs: int) -> tuple[int, int]:
    """Instances and coalitions of a tile: as near to `pairs` of them together as even shares of K allow."""
    shares = (math.ceil(K / splits) for splits in range(math.ceil(K / pairs), math.ceil(K / pairs) + 4))
    tiles = [(min(n, pairs // b), b) for b in shares]
    return max(tiles, key=lambda tile: tile[0] * tile[1])


# By name, so that the tracked files of a job (workflow/job_code.py) hold the backend of its own framework alone.
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
    """An input and a reference row (2, *input_shape): what a backend that is traced, or tried, runs on."""
    return np.concatenate([inputs[:1], reference.rows[:1]])
