"""The backends of the engine by framework, and the rows that their forms are verified on; no framework is imported."""

import importlib
from types import ModuleType

import numpy as np

from shapeline.games.references import Reference
from shapeline.models.classifier import Classifier

# By name, so that a job's tracked files (plan.code) hold the backend of its own framework alone.
BACKENDS = {
    "torch": "shapeline.games.torch_backend",
    "function": "shapeline.games.numpy_backend",
    "tensorflow": "shapeline.games.tf_backend",
    "onnx": "shapeline.games.numpy_backend",  # a runtime
}
WINDOWS = {"torch": "shapeline.games.torch_windows", "tensorflow": "shapeline.games.tf_windows"}


def backend_of(model: Classifier) -> ModuleType:
    return importlib.import_module(BACKENDS[model.runtime or model.framework])


def masked_rows(inputs: np.ndarray, reference: Reference, count: int) -> np.ndarray:
    """Rows to verify a form on (count, *input_shape): the pure reference, a full input, and masked inputs between.

    Cells are kept at random, sparse to dense, by a fixed seed.
    """
    random = np.random.default_rng(0)
    density = random.permutation(np.linspace(0, 1, count))
    density[:2] = 0, 1
    kept = random.random((count, *inputs.shape[1:])) < density.reshape(-1, *[1] * (inputs.ndim - 1))
    full = inputs[np.arange(count) % len(inputs)]
    absent = reference.rows[np.arange(count) % len(reference.rows)]
    return np.where(kept, full, absent)


def traced_rows(inputs: np.ndarray, reference: Reference) -> np.ndarray:
    """An input and a reference row (2, *input_shape): what a form that is traced, or tried, runs on."""
    return np.concatenate([inputs[:1], reference.rows[:1]])
