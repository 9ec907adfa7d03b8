"""The form "onnx" of a torch module on a CPU: its trace, run by ONNX Runtime."""

from collections.abc import Callable

import torch

from shapeline.engine.forms import FormRefused
from shapeline.models import onnx_graph, torch_export


def exported(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The module as a graph of ONNX, traced on rows, for batches of any size; of numbers on the CPU alone.

    A job that has torch makes its own, so that no file has to agree with the weights. Raises FormRefused on a GPU, and
    what torch_export and onnx_graph raise.
    """
    if rows.device.type != "cpu":
        raise FormRefused("ONNX Runtime is used on the CPU alone")
    graph = onnx_graph.opened(torch_export.graph(module, rows.numpy()), torch.get_num_threads())
    return lambda rows: torch.from_numpy(graph(rows.numpy()))
