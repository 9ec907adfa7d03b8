"""The graph of a network, run by ONNX Runtime on the CPU in its framework's place."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, first_line
from shapeline.threads import run_tasks

FILE = "model.onnx"
MAX_BYTES = 1 << 29  # bytes of weights: an export holds them three times, and a file of 2 GiB is its format's end
SMALL = 1 << 26  # bytes of a graph that each thread runs by itself; of a larger one a row is enough for them all
TOLERANCE = 1e-5  # by which it may differ from the network in log-probability, as any form of the engine


class Refused(ShapelineError):
    """A graph that cannot be made, or run, and why; the network runs as it is."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Rows (n, *input_shape) float32 or int32 to outputs (n, outputs) float32; shares: calls of one thread at once."""

    session: Any
    shares: int = 1

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Evaluate rows. Raises MemoryError if memory runs out, RuntimeError for other errors of ONNX Runtime."""
        shares = min(self.shares, len(rows))
        return np.concatenate([*run_tasks(self.run_once, np.array_split(rows, shares or 1), shares)])

    def run_once(self, rows: np.ndarray) -> np.ndarray:
        """Return the same in one call."""
        from onnxruntime.capi import onnxruntime_pybind11_state as failures

        [given], [result] = self.session.get_inputs(), self.session.get_outputs()
        try:
            [outputs] = self.session.run([result.name], {given.name: np.ascontiguousarray(rows)})
        except Exception as error:  # its own classes are derived from Exception itself
            if type(error).__module__ != failures.__name__:
                raise
            raise (MemoryError if "alloc" in str(error) else RuntimeError)(first_line(error)) from error
        return outputs.reshape(len(rows), -1)


def load_graph(content: bytes, threads: int) -> Graph:
    """Return the graph in a file's bytes, whose threads wait for nobody. Raises Refused where it cannot be read."""
    threads, shares = (1, threads) if len(content) < SMALL else (threads, 1)
    # Rows are filled on these processors.
    return Graph(open_session(content, threads, {"session.intra_op.allow_spinning": "0"}), shares)


def open_session(content: bytes, threads: int, entries: dict[str, str]) -> Any:
    """Return a session of ONNX Runtime on the CPU (threads: 0 for all). Raises Refused where it cannot be read."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as failures

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if type(error).__module__ != failures.__name__:
            raise
        raise Refused(first_line(error)) from error


def check_size(weights: int) -> None:
    """Raise Refused if the weights have too many bytes."""
    if weights > MAX_BYTES:
        raise Refused(f"its weights take {weights >> 20} MiB, and an export holds them three times")


def log_probs(graph: Graph, inputs: Any, batch: int, name: str, task: str = "classification") -> np.ndarray:
    """Return log-probabilities as torch_models.log_probs does; the outputs were checked after training."""
    from scipy.special import log_softmax

    inputs = np.asarray(inputs)
    inputs = inputs.astype(np.int32 if np.issubdtype(inputs.dtype, np.integer) else np.float32, copy=False)
    parts = [graph(inputs[start : start + batch]) for start in range(0, len(inputs), batch)]
    logits = np.concatenate(parts).astype(np.float64)
    if task == "regression":
        return logits
    return -np.logaddexp(0, -logits) if task == "multilabel" else log_softmax(logits, axis=1)


def find_device(graph: Graph) -> str:
    return "cpu"


def move(graph: Graph, device: str) -> None:
    """Raise ShapelineError, because a job on a GPU evaluates the network itself."""
    if device != "cpu":
        raise ShapelineError(f"models: a graph of ONNX runs on the CPU, not on '{device}'; set device: cpu")
