"""The graph of a torch module, traced: what ONNX Runtime runs in its place."""

import contextlib
import importlib.util
import io
import os
import sys
import warnings
from collections.abc import Iterator

import numpy as np
import torch

from shapeline.errors import first_line
from shapeline.models.onnx_graph import Refused, check_size
from shapeline.models.torch_models import evaluation_mode

NEEDED = ("onnx", "onnxruntime")
FAILURES = (RuntimeError, TypeError, ValueError, AttributeError, AssertionError, LookupError)  # of a trace


def graph(module: torch.nn.Module, rows: np.ndarray, free: tuple[int, ...] = (0,)) -> bytes:
    """Return the module as a graph of ONNX, traced on rows, for any batch; free: axes of other sizes.

    Equal modules have equal bytes. The tracing exporter is a hundred times as fast as torch.export. Raises Refused.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise Refused(f"{missing[0]} is not installed")
    check_size(sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers())))
    content, named = io.BytesIO(), {"rows": {axis: f"n{axis}" for axis in free}}
    with evaluation_mode(module), tracing("the export"), _silent():
        torch.onnx.export(
            module, (torch.tensor(rows),), content, dynamo=False, input_names=["rows"], dynamic_axes=named
        )
    return content.getvalue()


@contextlib.contextmanager
def tracing(what: str) -> Iterator[None]:
    """Trace a module here; raise Refused where that fails, `what`, or warns of a branch that depends on data."""
    with warnings.catch_warnings(record=True) as caught, torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("always")  # records, and so silences, that torch's ways to trace are deprecated
        try:
            yield
        except FAILURES as error:
            raise Refused(f"{what} failed: {first_line(error)}") from error
    for warning in caught:
        if issubclass(warning.category, torch.jit.TracerWarning):
            raise Refused(f"the trace warns: {first_line(warning.message)}")


@contextlib.contextmanager
def _silent():
    """Discard the standard output: torch 2.13 writes the whole graph there, from C++, where an export fails."""
    sys.stdout.flush()
    output = os.dup(1)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 1)
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)
