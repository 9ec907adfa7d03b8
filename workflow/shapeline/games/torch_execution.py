"""A torch module in its backends: plain, by ONNX Runtime, channels-last, frozen, compiled, in bfloat16."""

import copy
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from shapeline.errors import ShapelineError, first_line, nearest
from shapeline.games.execution import BackendRefused, ExecutionBackend
from shapeline.models import onnx_graph, torch_models
from shapeline.models.classifier import Classifier, function_log_probs, function_predictions
from shapeline.models.onnx_graph import Refused
from shapeline.models.torch_models import checked_logits, device_of, evaluation_mode, tracing


@dataclass(frozen=True, eq=False)
class Exported:
    """From rows to outputs, as the module itself."""

    graph: onnx_graph.Graph

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.graph(rows.numpy()))


def export(module: torch.nn.Module, rows: torch.Tensor, free: tuple[int, ...] = (0,)) -> Exported:
    """Return the module as a graph of ONNX traced on rows, on the CPU, for any batch; free: as of export_graph.
    Raises FormRefused on a GPU, and what these raise."""
    if rows.device.type != "cpu":
        raise BackendRefused("ONNX Runtime is used on the CPU alone")
    return Exported(
        onnx_graph.load_graph(torch_models.export_graph(module, rows.numpy(), free), torch.get_num_threads())
    )


def export_any_side(module: torch.nn.Module, rows: torch.Tensor) -> Exported:
    """The same of convolutions and pools alone, for images of any sides."""
    return export(module, rows, free=(0, 2, 3))


def prepare(model: Classifier, backend: ExecutionBackend, rows: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the model on a backend: from rows to logits (log-probabilities for a function), kept while it lives."""
    backends = BACKENDS | ASKED
    if backend.name not in backends:
        raise ShapelineError(f"engine: unknown backend '{backend.name}'.{nearest(backend.name, backends)}")
    name = model.architecture
    if model.framework == "function":
        function = function_predictions if model.task == "regression" else function_log_probs
        return lambda rows: torch.from_numpy(function(model.module, rows.numpy(), name))
    module = model.module
    if backend.name == "plain":
        return lambda rows: checked_logits(module(rows), len(rows), name, model.task)
    kept = _PREPARED.setdefault(module, {})
    key = (backend.name, rows.shape[1:])
    state = tuple(
        (tensor.data_ptr(), 0 if tensor.is_inference() else getattr(tensor, "_version", object()))
        for tensor in (*module.parameters(), *module.buffers())
    )
    if key not in kept or kept[key][0] != state:
        try:
            with evaluation_mode(module):
                kept[key] = state, backends[backend.name](module, torch.from_numpy(rows).to(device_of(module)))
        except (BackendRefused, Refused) as refusal:
            raise BackendRefused(f"engine: '{name}' cannot take the backend '{backend.name}': {refusal}") from refusal
    return kept[key][1]


_PREPARED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _convert_channels_last(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A copy of the module whose weights lie channels-last; for images only."""
    if rows.ndim != 4:
        raise BackendRefused("the inputs are not images")
    try:
        with torch.inference_mode(False):
            return copy.deepcopy(module).to(memory_format=torch.channels_last)
    except (RuntimeError, TypeError) as error:
        raise BackendRefused(f"the module cannot be copied: {first_line(error)}") from error


def _freeze(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the module traced with folded weights and fused layers; the only place that uses torch.jit."""
    with tracing("tracing"):
        traced = torch.jit.trace(module, rows.clone(), check_trace=False)
        return torch.jit.optimize_for_inference(torch.jit.freeze(traced))


def _bfloat16(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The module in mixed precision: convolutions and products of matrices in bfloat16."""
    own, device = weakref.ref(module), rows.device.type  # weakly: the backend is kept as long as the module lives

    def forward(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return own()(rows).float()

    return forward


def _compile(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A copy of the module compiled for batches of any size; it takes a C++ compiler."""
    try:
        with torch.inference_mode(False):
            compiled = torch.compile(copy.deepcopy(module), dynamic=True)
        compiled(rows)
    except (RuntimeError, TypeError, OSError) as error:
        raise BackendRefused(f"torch.compile failed: {first_line(error)}") from error
    return compiled


def _compile_bfloat16(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    with torch.autocast(rows.device.type, torch.bfloat16):
        compiled = _compile(module, rows)

    def forward(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(rows.device.type, torch.bfloat16):
            return compiled(rows).float()

    return forward


BACKENDS = {"plain": None, "onnx": export, "frozen": _freeze, "channels_last": _convert_channels_last}
# Which are tried, in this order. On the CPU a trace run by torch is slower than one run by ONNX Runtime.
TRIED = {"cpu": ("plain", "onnx", "channels_last"), "cuda": ("plain", "frozen", "channels_last")}
# Never tried unless an experiment asks for them: they are slow to make, or change numbers; the last is that of crops.
ASKED = {
    "bfloat16": _bfloat16,
    "compiled": _compile,
    "compiled_bfloat16": _compile_bfloat16,
    "onnx_any_side": export_any_side,
}
