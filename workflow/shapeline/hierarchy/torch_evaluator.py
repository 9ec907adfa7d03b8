"""The evaluator of torch models for `explore`, without masks, on the model's device.

Images are composed from two codes, one per row and one per column; outside a node they are the reference. Where the
model begins with a `Trunk`, only the outputs that depend on the node, which most often is small, are recomputed.
"""

import dataclasses
import logging
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from shapeline.designs.design import check_choice
from shapeline.errors import ShapelineError
from shapeline.games import calibration, execution, torch_execution
from shapeline.games.execution import BackendRefused, ExecutionBackend, select_traced_rows
from shapeline.games.game import Game, as_array, check_targets, share_reference
from shapeline.hierarchy import exploration
from shapeline.memory import halve
from shapeline.models.classifier import Classifier

# Layers that process each cell separately, as dropout and batch normalisation do in evaluation mode.
_CELLWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity)
_CELLWISE += (nn.Dropout, nn.Dropout2d, nn.BatchNorm2d)
_TRUNKS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
MAX_CODE_BYTES = 1 << 27  # codes of pairs in one block
# The fixed cost of a call on crops of one size, in multiplications; crops are used where they save more.
CALL_WORK = {"cpu": 1 << 24, "cuda": 1 << 30}
VALUES = ("probability", "log_probability", "logit", "log_odds")


@dataclass(frozen=True, eq=False)
class Trunk:
    """A model's initial convolutions and pools, and the rest; output (i, j) depends on `window` at stride * (i, j)."""

    layers: nn.Sequential
    head: nn.Sequential
    window: tuple[int, int]
    stride: tuple[int, int]
    size: tuple[int, int]
    work: int


def find_trunk(model: Classifier, shape: Sequence[int]) -> Trunk | None:
    """Return the trunk of a sequence of layers without padding before Flatten; else None: borders differ."""
    module = model.module
    if not isinstance(module, nn.Sequential):
        return None
    cached = _TRUNKS.get(module)  # the backend of its layers is prepared once
    if cached is not None and cached[0] == tuple(shape):
        return cached[1]
    window, stride, end, work = [1, 1], [1, 1], 0, 0
    for index, layer in enumerate(module):
        if isinstance(layer, nn.Flatten):
            end = index
            break
        if isinstance(layer, _CELLWISE):
            continue
        if not isinstance(layer, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) or getattr(layer, "ceil_mode", False):
            return None
        if layer.padding not in (0, (0, 0), "valid"):
            return None
        for axis in range(2):
            kernel, step, dilation = (
                option[axis] if isinstance(option, tuple) else option
                for option in (layer.kernel_size, layer.stride, getattr(layer, "dilation", 1))
            )
            window[axis] += (kernel - 1) * dilation * stride[axis]
            stride[axis] *= step
        if isinstance(layer, nn.Conv2d):
            cells = math.prod(
                max(0, side - extent) // step + 1 for side, extent, step in zip(shape[1:], window, stride, strict=True)
            )
            work += cells * layer.weight.numel()
    if not end or any(side < extent for side, extent in zip(shape[1:], window, strict=True)):
        return None
    size = tuple((side - extent) // step + 1 for side, extent, step in zip(shape[1:], window, stride, strict=True))
    trunk = Trunk(module[:end], module[end:], tuple(window), tuple(stride), size, work)
    trunk.layers.training = trunk.head.training = False  # only of these containers; the layers belong to the model
    _TRUNKS[module] = tuple(shape), trunk
    return trunk


@dataclass(frozen=True, eq=False)
class LocalCrops:
    """Logits of pairs from the trunk's output on the reference, recomputed where it depends on a kept cell."""

    trunk: Trunk
    forward: Callable[[torch.Tensor], torch.Tensor]
    channels_last: bool
    images: torch.Tensor
    absent: torch.Tensor
    base: torch.Tensor
    sizes: list[np.ndarray]

    @classmethod
    def of(
        cls, trunk: Trunk, backend: ExecutionBackend, inputs: np.ndarray, absent: np.ndarray, device
    ) -> "LocalCrops":
        forward, name = trunk.layers, backend.name
        if name == "onnx":  # the graph accepts images of one size
            backend = dataclasses.replace(backend, name="onnx_any_side")
        if name != "plain":
            layers = Classifier("torch", "the model's convolutions", trunk.layers)
            try:
                forward = torch_execution.prepare(layers, backend, np.concatenate([inputs[:1], absent[0][:1]]))
            except BackendRefused as refusal:
                log.info("%s", refusal)
                name = "plain"
        rows = torch.from_numpy(absent).to(device)
        base = torch.cat([trunk.layers(part) for part in rows])
        steps = np.unique([step for power in range(12) for step in (1 << power, 3 << power)])
        sizes = [np.minimum(steps[np.searchsorted(steps, np.arange(size + 1))], size) for size in trunk.size]
        images = torch.from_numpy(inputs).to(device)
        base = base.view(*rows.shape[:2], *base.shape[1:])
        return cls(trunk, forward, name == "channels_last", images, rows, base, sizes)

    def find_boxes(self, codes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return first indices and sizes, (2, pairs) each, of the trunk's outputs that depend on a kept cell."""
        boxes = []
        for axis, code in enumerate(codes):
            is_kept, side, most = code != 0, code.shape[1], self.trunk.size[axis]
            any_kept = is_kept.any(axis=1)
            first = np.where(any_kept, is_kept.argmax(axis=1), 0)
            stop = np.where(any_kept, side - is_kept[:, ::-1].argmax(axis=1), 0)
            start = ((first - self.trunk.window[axis]) // self.trunk.stride[axis] + 1).clip(0, most)
            end = -(-stop // self.trunk.stride[axis])
            size = self.sizes[axis][(end.clip(max=most) - start).clip(0)]
            boxes.append((np.minimum(start, most - size), size))
        starts, sizes = zip(*boxes, strict=True)
        return np.stack(starts), np.stack(sizes)

    def group_by_size(self, codes: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the pairs to evaluate on entire images, and groups of the others whose crops have equal size."""
        _, (rows, columns) = self.find_boxes(codes)
        most_rows, most_columns = self.trunk.size
        _, group, count = np.unique(rows * (most_columns + 1) + columns, return_inverse=True, return_counts=True)
        saved = (1 - rows * columns / (most_rows * most_columns)) * self.trunk.work * self.base.shape[1]
        pays = count[group] * saved > CALL_WORK[self.base.device.type]
        cropped = np.flatnonzero(pays)
        order = cropped[np.argsort(group[cropped], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(order) else []
        return np.flatnonzero(~pays), groups

    def outputs(self, codes: Sequence[np.ndarray], owner: torch.Tensor) -> torch.Tensor:
        """Return logits (pairs * M, classes) of pairs whose crops have equal size."""
        starts, sizes = self.find_boxes(codes)
        size = sizes.max(axis=1)
        starts = np.minimum(starts, np.array(self.trunk.size)[:, None] - size[:, None])
        sides, inside = [], []
        for axis, code in enumerate(codes):
            side = int((size[axis] - 1) * self.trunk.stride[axis] + self.trunk.window[axis])
            cells = starts[axis][:, None] * self.trunk.stride[axis] + np.arange(side)
            sides.append(side)
            inside.append(torch.from_numpy(np.take_along_axis(code, cells, axis=1)).to(owner.device))
        bits = ((inside[0][:, :, None] & inside[1][:, None, :]) != 0).to(torch.int32).neg_()[:, None, None]
        row, column = torch.from_numpy(starts).to(owner.device)
        # Windows of an image as a view, so that a crop is copied by rows and not cell by cell.
        crops = _unfold(self.images, sides, self.trunk.stride)[owner, :, row, column]
        reference_index = owner if len(self.absent) > 1 else torch.zeros_like(owner)
        filled = _unfold(self.absent, sides, self.trunk.stride)[reference_index, :, :, row, column]
        absent = filled.view(torch.int32)
        # By bits, as torch_execution.get_fill.
        difference = absent ^ crops.view(torch.int32)[:, None]
        absent ^= difference.bitwise_and_(bits)
        filled = filled.flatten(0, 1)
        if self.channels_last:
            filled = filled.contiguous(memory_format=torch.channels_last)
        features = self.base[reference_index]
        count, M = features.shape[:2]
        renewed = self.forward(filled).reshape(count, M, -1, *size)
        _unfold(features, size.tolist(), (1, 1))[torch.arange(count, device=owner.device), :, :, row, column] = renewed
        return self.trunk.head(features.flatten(0, 1))


def _unfold(images: torch.Tensor, sides: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """Return all windows (..., rows, columns, *sides) of images (..., height, width), as a view."""
    return images.unfold(-2, sides[0], stride[0]).unfold(-2, sides[1], stride[1])


log = logging.getLogger(__name__)
Codes = Sequence[np.ndarray]  # bit codes of the rectangles that contain a row (pairs, height), and a column


class Evaluator:
    """An `exploration.Evaluate`: values of (instance, coalition) pairs, the coalitions as rectangles.

    game: its features are the cells of an image, or of a vector; its value is probability, log_probability, logit or
    log_odds. inputs: (n, channels, height, width) or (n, length). Instance j of the exploration explains class
    targets[j] of inputs[owners[j]] (by default input j), on a partition shifted by shifts[j] (rows, columns). Raises
    ShapelineError; a call also for a NaN or infinite output (`.instance` is the input's position).
    """

    def __init__(
        self,
        game: Game,
        inputs: np.ndarray,
        targets: np.ndarray,
        owners: np.ndarray | None = None,
        shifts: np.ndarray | None = None,
    ):
        check_choice("h_shap", "value", game.value, VALUES)
        model = game.model
        if model.framework == "function" and (model.task == "multilabel" or game.value == "logit"):
            raise ShapelineError(
                f"h_shap: '{model.architecture}' gives probabilities of classes; it has no logits or labels."
            )
        inputs = as_array(inputs)
        n, *shape = inputs.shape
        if len(shape) not in (1, 3) or n == 0:
            raise ShapelineError(
                f"h_shap: inputs have shape {inputs.shape}; give (n, channels, height, width) or (n, length)."
            )
        self.game, self.model = game, model
        self.channels, self.height, self.width = (1, 1, *shape) if len(shape) == 1 else shape
        self.owners = np.arange(n) if owners is None else np.asarray(owners)
        self.shifts = np.zeros((len(self.owners), 2), np.int64) if shifts is None else np.asarray(shifts)
        model.n_classes = model.n_classes or model.log_probs(inputs[:1]).shape[1]
        self.targets = check_targets(model, self.owners, targets)
        reference_rows = self._prepare(inputs, game.backend or ExecutionBackend())
        self.local = self._crop(inputs, reference_rows, game.backend or ExecutionBackend()) if len(shape) == 3 else None
        self.block = max(self.pairs, MAX_CODE_BYTES // (16 * (self.height + self.width)))

    def _prepare(self, inputs: np.ndarray, backend: ExecutionBackend) -> np.ndarray:
        """Move inputs and reference rows (1 or n, M, *shape) to the device, and return the rows."""
        reference = self.game.reference
        shared = share_reference(reference, inputs)
        if shared.rows.shape[1:] != inputs.shape[1:] or len(shared.rows) == 0:
            raise ShapelineError(
                f"h_shap: reference rows have shape {shared.rows.shape[1:]}, inputs {inputs.shape[1:]}"
                "; give rows of the inputs' shape."
            )
        with torch_execution.evaluating(self.model):
            self.runner = torch_execution.build_runner(self.model, backend, select_traced_rows(inputs, shared))
        rows = shared.rows[None] if reference.own is None else as_array(reference.own(inputs), inputs.dtype)
        self.M, size, self.device = len(shared.rows), self.runner.size, self.runner.device
        self.inputs = self.runner.flat(inputs).to(self.device)
        self.absent = self.runner.flat(rows.reshape(-1, *inputs.shape[1:])).to(self.device).view(-1, self.M * size)
        self.pairs = max(1, self.runner.limit // self.M)
        self._picked, self._filled = (
            torch.empty((self.pairs, k, size), dtype=self.inputs.dtype, device=self.device) for k in (1, self.M)
        )
        return rows

    def _crop(self, inputs: np.ndarray, reference_rows: np.ndarray, backend: ExecutionBackend) -> LocalCrops | None:
        """Return the crops of a model with a trunk, where they give the same log-probabilities as entire images."""
        trunk = find_trunk(self.model, inputs.shape[1:])
        if trunk is None:
            return None
        with torch_execution.evaluating(self.model):
            local = LocalCrops.of(trunk, backend, inputs, reference_rows, self.device)
            first, difference = torch.zeros(1, dtype=torch.int64, device=self.device), 0.0
            rows, columns = np.arange(self.height), np.arange(self.width)
            sizes = np.array(_TEST_RECTANGLES)[:, None] * (self.height, self.height, self.width, self.width)
            for rectangle in sizes.astype(np.int64):
                codes = exploration.encode(rectangle[None], np.zeros((1, 2), np.int64), rows, columns)
                logits = [evaluate(codes, first).double() for evaluate in (local.outputs, self.evaluate_entire)]
                if self.model.task == "multilabel":  # a softmax over labels would hide shifts that sigmoids show
                    logits = [torch.stack([output, torch.zeros_like(output)], dim=1) for output in logits]
                log_probs = [torch.log_softmax(output, dim=1).cpu().numpy() for output in logits]
                difference = max(difference, calibration.measure_difference(*log_probs))
        if not difference <= execution.TOLERANCE:
            log.warning("whole images are evaluated: on crops, log-probabilities differ by %.1e", difference)
            return None
        return local

    def evaluate_entire(self, codes: Codes, owner: torch.Tensor) -> torch.Tensor:
        """Return logits of the pairs' entire inputs, (pairs * M, classes); bitwise as torch_execution.get_fill."""
        count, size, cells = len(owner), self.runner.size, self.height * self.width
        in_rows, in_columns = (torch.from_numpy(code).to(self.device) for code in codes)
        # The bits of the cells, (pairs, cells) int32: 0 masked, -1 (all bits set) kept.
        bits = ((in_rows[:, :, None] & in_columns[:, None, :]) != 0).view(count, -1).to(torch.int32).neg_()
        absent = self.absent if self.game.reference.own is None else self.absent.index_select(0, owner)
        absent = absent.view(-1, self.M, size).view(torch.int32)
        torch.index_select(self.inputs, 0, owner, out=self._picked[:count, 0])
        filled = self._filled[:count].view(torch.int32)
        torch.bitwise_xor(self._picked[:count].view(torch.int32), absent, out=filled)
        if self.runner.channels_last:  # the channels of a cell are adjacent
            filled.view(count, self.M, cells, self.channels).bitwise_and_(bits[:, None, :, None])
        else:
            filled.view(count, self.M, self.channels, cells).bitwise_and_(bits[:, None, None])
        filled.bitwise_xor_(absent)
        return self.runner.outputs(self._filled[:count].view(-1, size))

    def evaluate_crops(self, codes: Codes, owner: torch.Tensor) -> torch.Tensor:
        """Return logits as `evaluate_entire` does, from crops; halve the pairs per call when memory runs out."""

        def run(rows: int) -> torch.Tensor:
            pairs = max(1, rows // self.M)
            parts = [slice(start, start + pairs) for start in range(0, len(owner), pairs)]
            return torch.cat([self.local.outputs([code[part] for code in codes], owner[part]) for part in parts])

        return halve(self.model, len(owner) * self.M, run, "coalition")

    def __call__(self, instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        """Return values (P,) of instances (P,) and rectangles (P, parts, 4), as exploration.Evaluate."""
        parts = [slice(start, start + self.block) for start in range(0, len(instances), self.block)]
        values = [self.evaluate(instances[part], rectangles[part]) for part in parts]
        return values[0] if len(values) == 1 else np.concatenate([np.empty(0), *values])

    def evaluate(self, instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        """Return the values of one block of pairs."""
        model, value = self.model, self.game.value
        indices, scored = [], []
        with torch_execution.evaluating(model):
            rows, columns = np.arange(self.height), np.arange(self.width)
            codes = exploration.encode(rectangles, self.shifts[instances], rows, columns)
            for forward, part in self._calls(codes):
                owner = torch.from_numpy(self.owners[instances[part]]).to(self.device)
                outputs = forward([code[part] for code in codes], owner).view(len(part), 1, self.M, -1)
                chosen = torch.from_numpy(self.targets[instances[part]]).to(self.device)
                scores = torch_execution.score_on_device(outputs, chosen, None, value, model.framework, model.task)
                scored.append(scores[:, 0])
                indices.append(part)
            values = np.empty(len(instances))
            values[np.concatenate(indices)] = torch.cat(scored).cpu().numpy()
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise ShapelineError(
                f"h_shap: model '{model.architecture}', instance {{instance}}, a coalition's {value} is "
                f"{values[bad[0]]}; check the input and the weights, or use the value 'probability'",
                self.owners[instances[bad[0]]],
            )
        return values

    def _calls(self, codes: Codes) -> list[tuple[Callable[[Codes, torch.Tensor], torch.Tensor], np.ndarray]]:
        """Return the evaluating functions with their pairs: entire inputs, and groups whose crops have equal size."""
        if self.local is None:
            calls = [(self.evaluate_entire, np.arange(len(codes[0])))]
        else:
            entire, groups = self.local.group_by_size(codes)
            calls = [(self.evaluate_entire, entire), *((self.evaluate_crops, group) for group in groups)]
        step = self.pairs
        return [(call, group[start : start + step]) for call, group in calls for start in range(0, len(group), step)]


# Corners as shares of an image: nothing, everything, a half, a small part at the end, a part in the middle.
_TEST_RECTANGLES = ((0, 0, 0, 0), (0, 1, 0, 1), (0, 0.5, 0, 0.5), (0.9, 1, 0.9, 1), (0.4, 0.6, 0.3, 0.5))
