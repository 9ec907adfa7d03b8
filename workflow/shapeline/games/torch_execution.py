"""Rows and values on a torch device, and the backends plain, ONNX Runtime, channels-last and compiled."""

import copy
import functools
import inspect
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from shapeline.errors import MethodFailure, ShapelineError, first_line
from shapeline.games.execution import BackendRefused, ExecutionBackend, limit_rows
from shapeline.games.features import Features
from shapeline.games.game import PREDICTION
from shapeline.memory import halve
from shapeline.models import onnx_graph, torch_models
from shapeline.models.classifier import PREPARED, Classifier, call, function_log_probs, function_predictions
from shapeline.models.onnx_graph import Refused
from shapeline.models.torch_models import check_logits, evaluation_mode, find_device, normalise


@dataclass(frozen=True, eq=False)
class Exported:
    """A callable from rows to outputs, as the module."""

    graph: onnx_graph.Graph

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.graph(rows.numpy()))


def export(module: torch.nn.Module, rows: torch.Tensor, free: tuple[int, ...] = (0,)) -> Exported:
    """Return the module as a graph of ONNX traced on rows, on the CPU, for any batch; free: as of export_graph.
    Raises BackendRefused on a GPU, and the exporter's errors."""
    if rows.device.type != "cpu":
        raise BackendRefused("ONNX Runtime is used on the CPU alone")
    return Exported(
        onnx_graph.load_graph(torch_models.export_graph(module, rows.numpy(), free), torch.get_num_threads())
    )


def prepare(model: Classifier, backend: ExecutionBackend, rows: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the model on a backend: from rows to logits (log-probabilities for a function), cached with it."""
    name = model.architecture
    if model.framework == "function":
        function = function_predictions if model.task == "regression" else function_log_probs
        return lambda rows: torch.from_numpy(function(model.module, rows.numpy(), name))
    module = model.module
    if backend.name == "plain":
        return lambda rows: check_logits(call(module, rows, name), len(rows), name, model.task)
    prepared = PREPARED.setdefault(module, {})
    key = (backend.name, rows.shape[1:])
    state = tuple(
        (tensor.data_ptr(), 0 if tensor.is_inference() else getattr(tensor, "_version", object()))
        for tensor in (*module.parameters(), *module.buffers())
    )
    if key not in prepared or prepared[key][0] != state:
        build = (BACKENDS | REQUESTED)[backend.name]
        try:
            with evaluation_mode(module):
                prepared[key] = state, build(module, torch.from_numpy(rows).to(find_device(module)))
        except (BackendRefused, Refused) as refusal:
            raise BackendRefused(f"engine: '{name}' cannot take the backend '{backend.name}': {refusal}") from refusal
    return prepared[key][1]


def _convert_channels_last(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a copy of the module with channels-last weights; for images only."""
    if rows.ndim != 4:
        raise BackendRefused("the inputs are not images")
    try:
        with torch.inference_mode(False):
            return copy.deepcopy(module).to(memory_format=torch.channels_last)
    except (RuntimeError, TypeError) as error:
        raise BackendRefused(f"the module cannot be copied: {first_line(error)}") from error


def _cast_bfloat16(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the module in mixed precision: convolutions and matrix products in bfloat16."""
    reference = weakref.ref(module)  # weak, since the backend is cached as long as the module lives
    device = rows.device.type

    def forward(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return reference()(rows).float()

    return forward


def _compile(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a copy of the module compiled for batches of any size; requires a C++ compiler."""
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


BACKENDS = {"plain": None, "onnx": export, "channels_last": _convert_channels_last}
# Candidates in the order of trials. A frozen trace of torch.jit is slower than ONNX Runtime on the CPU; on a GPU its
# fuser had not compiled densenet121 after 50 s, and cannot be interrupted.
ORDER = {"cpu": ("plain", "onnx", "channels_last"), "cuda": ("plain", "channels_last")}
# Used only on request: they are slow to build, or change numbers; the last is for crops.
REQUESTED = {
    "bfloat16": _cast_bfloat16,
    "compiled": _compile,
    "compiled_bfloat16": _compile_bfloat16,
    "onnx_any_side": functools.partial(export, free=(0, 2, 3)),  # of convolutions and pools, for images of any size
}


def omit_patches(model: Classifier, backend: ExecutionBackend) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function from rows (n, channels, height, width), NaN where a patch is masked, to logits. The module
    needs `patch` and `forward(images, kept)`; ShapelineError for another."""
    module, name = model.module, model.architecture
    if not getattr(module, "patch", None) or "kept" not in inspect.signature(module.forward).parameters:
        raise ShapelineError(
            f"reference 'delete': '{name}' cannot leave patches out; use zero or mean_value, or give its module "
            "`patch`, their side, and let it take forward(images, kept), kept (n, k): patches there are, by number"
        )
    if backend.name != "plain":
        raise ShapelineError(f"reference 'delete': '{name}' runs plain under it; remove precision and compile")

    def forward(rows: torch.Tensor) -> torch.Tensor:
        absent = rows[:, 0].isnan().unfold(1, module.patch, module.patch).unfold(2, module.patch, module.patch)
        absent = absent.flatten(1, 2).flatten(2)  # (n, patches, cells)
        omitted = absent[:, :, 0]
        if (absent != omitted[:, :, None]).any():
            raise MethodFailure(
                "unsupported features",
                f"reference 'delete': a feature cuts through the patches of '{name}', of {module.patch} x "
                f"{module.patch} pixels; set features: {{kind: patch, size: {module.patch}}}",
            )
        prepared = omitted.to(torch.uint8).argsort(dim=1, stable=True)  # kept patches first, in order
        counts = (~omitted).sum(1)
        images, parts, indices = rows.nan_to_num(0.0), [], []
        for count in counts.unique().tolist():
            rows_of_count = (counts == count).nonzero()[:, 0]
            parts.append(module(images[rows_of_count], prepared[rows_of_count, :count]))
            indices.append(rows_of_count)
        logits = check_logits(torch.cat(parts), len(rows), name, model.task)
        return torch.empty_like(logits).index_copy_(0, torch.cat(indices), logits)

    return forward


def get_fill(absent: torch.Tensor, rows: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Return a function that writes `rows` where kept, else `absent`, to its second argument, by bits of int32: exact,
    and 15 times as fast as torch.where on the CPU."""
    absent = absent.view(torch.int32)
    difference = rows.view(torch.int32) ^ absent

    def fill(present: torch.Tensor, out: torch.Tensor) -> None:
        torch.bitwise_and(present, difference, out=out.view(torch.int32)).bitwise_xor_(absent)

    return fill


def score_on_device(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    full: torch.Tensor | None,
    value: str,
    framework: str,
    task: str = "classification",
) -> torch.Tensor:
    """Convert model outputs (a, b, M, classes) of a tile to values (a, b); `full` (a, classes): on the full input."""
    outputs = outputs.double()
    if task == "multilabel":
        # The sigmoid of a label's logit is the softmax of 0 and the logit.
        label = outputs.gather(3, targets.view(-1, 1, 1, 1).expand(*outputs.shape[:3], 1))
        outputs, targets = torch.cat([torch.zeros_like(label), label], dim=3), torch.ones_like(targets)
    index = targets.view(-1, 1, 1, 1).expand(*outputs.shape[:3], 1)
    if value in ("logit", PREDICTION):
        return outputs.gather(3, index).mean(dim=(2, 3))
    needs_target_only = value in ("log_probability", "probability")
    if needs_target_only and outputs.shape[3] == 2 and framework != "function":
        # The softmax of two logits is the sigmoid of their difference, which takes a fifth of the time.
        sign = torch.where(targets == 0, 1.0, -1.0).to(outputs).view(-1, 1, 1)
        log_probs = torch.nn.functional.logsigmoid((outputs[..., 0] - outputs[..., 1]) * sign).unsqueeze(3)
    else:
        log_probs = outputs if framework == "function" else torch.log_softmax(outputs, dim=3)
        log_probs = log_probs.gather(3, index) if needs_target_only else log_probs
    if value == "margin":
        others = log_probs.scatter(3, index, -torch.inf).logsumexp(dim=3)
        return (log_probs.gather(3, index)[..., 0] - others).mean(dim=2)
    if value == "centred_logit":
        return (log_probs.gather(3, index)[..., 0] - log_probs.mean(dim=3)).mean(dim=2)
    average = log_probs[:, :, 0]
    if log_probs.shape[2] > 1:
        average = log_probs.logsumexp(dim=2) - math.log(log_probs.shape[2])
    if value == "log_probability":
        return average[..., 0]
    if value == "probability":
        return average[..., 0].exp()
    if value == "log_odds":
        others = average.scatter(2, index[:, :, 0], -torch.inf).logsumexp(dim=2)
        return average.gather(2, index[:, :, 0])[..., 0] - others
    full = full[:, None]
    return torch.where(full > 0, full * average, 0.0).sum(dim=2)  # 0 log 0 is 0


@dataclass
class Runner:
    """A model in its backend, with the data for composing its rows; limit: rows per call."""

    model: Classifier
    forward: Callable[[torch.Tensor], torch.Tensor]
    shape: tuple[int, ...]
    device: torch.device
    limit: int
    channels_last: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def flat(self, array: np.ndarray) -> torch.Tensor:
        """Return (n, *input_shape) as (n, cells), in the backend's memory order of an input's cells."""
        rows = torch.from_numpy(array)
        if self.channels_last:
            rows = rows.permute(0, 2, 3, 1)
        return rows.reshape(len(rows), -1)

    def cells(self, features: Features) -> torch.Tensor | None:
        """Return the feature of each cell in memory order, d where never masked; None where cells are features."""
        cells = self.flat(features.cells[None].astype(np.int64))[0]
        if features.d == len(cells) and torch.equal(cells, torch.arange(features.d)):
            return None
        return torch.where(cells < 0, features.d, cells).to(self.device)

    def expand(self, masks: np.ndarray, cells: torch.Tensor | None) -> torch.Tensor:
        """Convert masks (a, b, d) bool to bits of cells, (a, b, cells) int32: 0 masked, -1 (all bits set) kept."""
        present = torch.from_numpy(masks).to(self.device).to(torch.int32).neg_()
        if cells is not None:
            always = present.new_full((*masks.shape[:2], 1), -1)
            present = torch.cat([present, always], dim=2).view(-1, masks.shape[2] + 1)
            # As floats, since torch selects floats seven times as fast as integers of the same bits.
            present = present.view(torch.float32).index_select(1, cells).view(torch.int32).view(*masks.shape[:2], -1)
        return present

    def inputs(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows (n, cells) in memory order in the model's shape, (n, *input_shape), without a copy."""
        if not self.channels_last:
            return rows.view(-1, *self.shape)
        channels, height, width = self.shape
        return rows.view(-1, height, width, channels).permute(0, 3, 1, 2)

    def outputs(self, rows: torch.Tensor) -> torch.Tensor:
        """Return logits (log-probabilities of a function) of rows (n, cells); halve the limit when memory runs out."""

        def run(limit: int) -> torch.Tensor:
            if len(rows) <= limit:
                return self._copy_outputs(rows)
            return torch.cat([self._copy_outputs(part) for part in rows.split(limit)])

        outputs = halve(self.model, min(self.limit, len(rows)), run)
        self.limit = min(self.limit, self.model.most_rows or self.limit)
        return outputs

    def _copy_outputs(self, rows: torch.Tensor) -> torch.Tensor:
        """Return a copy of outputs on the runner's device, since the next call may overwrite the model's buffer."""
        return self.forward(self.inputs(rows)).to(self.device, copy=True)

    def log_probs(self, inputs: np.ndarray) -> torch.Tensor:
        """Return log-probabilities (n, classes) float64 of unmasked inputs; predictions (n, 1) of a regression."""
        step = self.limit  # which `outputs` lowers when memory runs out
        parts = [
            self.outputs(self.flat(inputs[i : i + step].copy()).to(self.device)).double()
            for i in range(0, len(inputs), step)
        ]
        outputs = torch.cat(parts)
        if self.model.task == "regression":
            return outputs.view(len(inputs), 1)
        return outputs if self.model.framework == "function" else normalise(outputs, self.model.task)

    def compare_outputs(self, inputs: np.ndarray) -> torch.Tensor:
        """Return the outputs for comparing backends: log_probs and, for several labels, those of their absence."""
        log_probs = self.log_probs(inputs)
        if self.model.task != "multilabel":
            return log_probs
        return torch.cat([log_probs, torch.log(-torch.expm1(log_probs)).clamp(min=-700)], dim=1)  # no -inf


def build_runner(model: Classifier, backend: ExecutionBackend, rows: np.ndarray) -> Runner:
    """Return the runner of a model in a backend; rows: of execution.select_traced_rows."""
    device = torch.device(model.device)
    shape = rows.shape[1:]
    limit = limit_rows(backend.batch, math.prod(shape), model.most_rows, device.type)
    if rows.ndim == 4 and np.isnan(rows[1]).all():
        forward = omit_patches(model, backend)
    else:
        forward = prepare(model, backend, rows)
    return Runner(model, forward, shape, device, limit, backend.name == "channels_last")


def evaluating(model: Classifier):
    return torch.inference_mode() if model.framework == "function" else evaluation_mode(model.module)
