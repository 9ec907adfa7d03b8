"""The form "onnx" of a torch module on a CPU: its trace, run by ONNX Runtime."""

import contextlib
import importlib.util
import io
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch

from shapeline.engine.forms import FormRefused, first_line

NEEDED = ("onnx", "onnxruntime")
LARGEST = 1 << 29  # bytes of weights: an export holds them three times, and a file of 2 GiB is its format's end
FAILURES = (RuntimeError, TypeError, ValueError, AttributeError, AssertionError, LookupError)  # of a trace


def exported(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The module as a graph of ONNX, traced on rows, for batches of any size; of numbers on the CPU alone.

    By the exporter that traces: it takes a hundredth of a second where the one by torch.export takes seconds, so that a
    job makes its own, and no file has to agree with the weights. Raises FormRefused without ONNX Runtime, on a GPU, and
    for what cannot be exported, or would be frozen as these rows took it.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise FormRefused(f"{missing[0]} is not installed")
    if rows.device.type != "cpu":
        raise FormRefused("ONNX Runtime is used on the CPU alone")
    weights = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
    if weights > LARGEST:
        raise FormRefused(f"its weights take {weights >> 20} MiB, and an export holds them three times")
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as failures

    graph = _graph(module, rows)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # torch fills rows on these processors
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if type(error).__module__ != failures.__name__:
            raise
        raise FormRefused(f"ONNX Runtime cannot read it: {first_line(error)}") from error
    [given], [said] = session.get_inputs(), session.get_outputs()

    def forward(rows: torch.Tensor) -> torch.Tensor:
        try:
            outputs = session.run([said.name], {given.name: np.ascontiguousarray(rows.numpy())})
        except Exception as error:  # its own classes are derived from Exception itself
            if type(error).__module__ != failures.__name__:
                raise
            raise (MemoryError if "alloc" in str(error) else RuntimeError)(first_line(error)) from error
        return torch.from_numpy(outputs[0])

    return forward


@contextlib.contextmanager
def _silent():
    """Without the whole graph on the standard output where an export fails: torch 2.13 turns its log on by mistake."""
    log = torch._C._jit_onnx_log
    torch._C._jit_onnx_log = lambda *_: None
    try:
        yield
    finally:
        torch._C._jit_onnx_log = log


@contextlib.contextmanager
def tracing(what: str) -> Iterator[None]:
    """Where a module is traced; raises FormRefused where that fails, `what`, and where it warns: a branch that depends
    on the data would be frozen as these rows took it."""
    with warnings.catch_warnings(record=True) as caught, torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("always")  # records, and so silences, that torch's ways to trace are deprecated
        try:
            yield
        except FAILURES as error:
            raise FormRefused(f"{what} failed: {first_line(error)}") from error
    for warning in caught:
        if issubclass(warning.category, torch.jit.TracerWarning):
            raise FormRefused(f"the trace warns: {first_line(warning.message)}")


def _graph(module: torch.nn.Module, rows: torch.Tensor) -> bytes:
    """The bytes of the module's graph."""
    content, free = io.BytesIO(), {"rows": {0: "n"}}
    with tracing("the export"), _silent():
        torch.onnx.export(module, (rows.clone(),), content, dynamo=False, input_names=["rows"], dynamic_axes=free)
    return content.getvalue()
