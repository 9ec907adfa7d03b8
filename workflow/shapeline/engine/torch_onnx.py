"""The form "onnx" of a torch module on a CPU: its trace, run by ONNX Runtime."""

from collections.abc import Callable

import torch

from shapeline.engine.forms import FormRefused
from shapeline.models import onnx_graph, torch_export


def exported(
    module: torch.nn.Module, rows: torch.Tensor, free: tuple[int, ...] = (0,)
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The module as a graph of ONNX, traced on rows, for batches of any size; of numbers on the CPU alone.

    free: as of torch_export.graph. A job that has torch makes its own, so that no file has to agree with the weights.
    Raises FormRefused on a GPU, and what torch_export and onnx_graph raise.
    """
    if rows.device.type != "cpu":
        raise FormRefused("ONNX Runtime is used on the CPU alone")
    graph = onnx_graph.opened(torch_export.graph(module, rows.numpy(), free), torch.get_num_threads())
    return lambda rows: torch.from_numpy(graph(rows.numpy()))


def any_side(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same of convolutions and pools alone, for pictures of any sides."""
    return exported(module, rows, free=(0, 2, 3))
