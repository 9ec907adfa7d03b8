"""The form "onnx" of a torch module on a CPU: its trace, run by ONNX Runtime."""

from dataclasses import dataclass

import torch

from shapeline.games.execution import FormRefused
from shapeline.models import onnx_graph, torch_export


@dataclass(frozen=True, eq=False)
class Exported:
    """From rows to outputs, as the module itself."""

    graph: onnx_graph.Graph

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.graph(rows.numpy()))


def exported(module: torch.nn.Module, rows: torch.Tensor, free: tuple[int, ...] = (0,)) -> Exported:
    """The module as a graph of ONNX, traced on rows, for batches of any size; of numbers on the CPU alone.

    free: as of torch_export.graph. A job that has torch makes its own, so that no file has to agree with the weights.
    Raises FormRefused on a GPU, and what torch_export and onnx_graph raise.
    """
    if rows.device.type != "cpu":
        raise FormRefused("ONNX Runtime is used on the CPU alone")
    return Exported(onnx_graph.load_graph(torch_export.graph(module, rows.numpy(), free), torch.get_num_threads()))


def any_side(module: torch.nn.Module, rows: torch.Tensor) -> Exported:
    """The same of convolutions and pools alone, for images of any sides."""
    return exported(module, rows, free=(0, 2, 3))
