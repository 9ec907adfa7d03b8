"""Crops: where a network is local, a rectangle is evaluated on its neighbourhood alone."""

import dataclasses
import logging
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from shapeline.games import torch_execution
from shapeline.games.execution import BackendRefused, ExecutionBackend
from shapeline.models.classifier import Classifier

# Layers that work on each cell alone; dropout and batch normalisation do when they are evaluated.
_CELLWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity)
_CELLWISE += (nn.Dropout, nn.Dropout2d, nn.BatchNorm2d)
_TRUNKS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
log = logging.getLogger(__name__)
CODE_BYTES = 1 << 27  # of the codes of pairs at a time
# Multiplications that take as long as a call on crops of one size does before it computes anything; what it saves of
# the whole images has to be more.
CALL_WORK = {"cpu": 1 << 24, "cuda": 1 << 30}
VALUES = ("probability", "log_probability", "logit", "log_odds")


@dataclass(frozen=True, eq=False)
class Trunk:
    """The convolutions and pools a model begins with, and the rest: output (i, j) sees `window` from stride (i, j)."""

    layers: nn.Sequential
    head: nn.Sequential
    window: tuple[int, int]
    stride: tuple[int, int]
    size: tuple[int, int]
    work: int


def find_trunk(model: Classifier, shape: Sequence[int]) -> Trunk | None:
    """Return the trunk of a sequence of layers without padding before Flatten; else None, for borders would differ."""
    module = model.module
    if not isinstance(module, nn.Sequential):
        return None
    kept = _TRUNKS.get(module)  # so that the backend of its layers is prepared once
    if kept is not None and kept[0] == tuple(shape):
        return kept[1]
    window, stride, end, work = [1, 1], [1, 1], 0, 0
    for place, layer in enumerate(module):
        if isinstance(layer, nn.Flatten):
            end = place
            break
        if isinstance(layer, _CELLWISE):
            continue
        if not isinstance(layer, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) or getattr(layer, "ceil_mode", False):
            return None
        if layer.padding not in (0, (0, 0), "valid"):
            return None
        for axis in range(2):
            kernel, step, spread = (
                option[axis] if isinstance(option, tuple) else option
                for option in (layer.kernel_size, layer.stride, getattr(layer, "dilation", 1))
            )
            window[axis] += (kernel - 1) * spread * stride[axis]
            stride[axis] *= step
        if isinstance(layer, nn.Conv2d):
            cells = math.prod(
                max(0, side - seen) // step + 1 for side, seen, step in zip(shape[1:], window, stride, strict=True)
            )
            work += cells * layer.weight.numel()
    if not end or any(side < seen for side, seen in zip(shape[1:], window, strict=True)):
        return None
    size = tuple((side - seen) // step + 1 for side, seen, step in zip(shape[1:], window, stride, strict=True))
    trunk = Trunk(module[:end], module[end:], tuple(window), tuple(stride), size, work)
    trunk.layers.training = trunk.head.training = False  # of these containers alone: the layers are the model's
    _TRUNKS[module] = tuple(shape), trunk
    return trunk


@dataclass(frozen=True, eq=False)
class LocalCrops:
    """Logits of pairs from the trunk's output on the reference, renewed where it sees a present cell."""

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
        if name == "onnx":  # whose graph takes images of one size
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

    def boxes(self, codes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """First outputs and sizes, both (2, pairs), of the parts of the trunk's output that see a present cell."""
        boxes = []
        for axis, code in enumerate(codes):
            here, side, most = code != 0, code.shape[1], self.trunk.size[axis]
            some = here.any(axis=1)
            first = np.where(some, here.argmax(axis=1), 0)
            stop = np.where(some, side - here[:, ::-1].argmax(axis=1), 0)
            start = ((first - self.trunk.window[axis]) // self.trunk.stride[axis] + 1).clip(0, most)
            end = -(-stop // self.trunk.stride[axis])
            size = self.sizes[axis][(end.clip(max=most) - start).clip(0)]
            boxes.append((np.minimum(start, most - size), size))
        starts, sizes = zip(*boxes, strict=True)
        return np.stack(starts), np.stack(sizes)

    def alike(self, codes: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """The pairs that are better asked about whole, and the others in groups whose crops have one size."""
        _, (rows, columns) = self.boxes(codes)
        most_rows, most_columns = self.trunk.size
        _, group, count = np.unique(rows * (most_columns + 1) + columns, return_inverse=True, return_counts=True)
        saved = (1 - rows * columns / (most_rows * most_columns)) * self.trunk.work * self.base.shape[1]
        pays = count[group] * saved > CALL_WORK[self.base.device.type]
        kept = np.flatnonzero(pays)
        order = kept[np.argsort(group[kept], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(order) else []
        return np.flatnonzero(~pays), groups

    def outputs(self, codes: Sequence[np.ndarray], owner: torch.Tensor) -> torch.Tensor:
        """Logits (pairs * M, classes) of pairs whose crops have one size (that of the first pair)."""
        starts, sizes = self.boxes(codes)
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
        crops = _windows(self.images, sides, self.trunk.stride)[owner, :, row, column]
        own = owner if len(self.absent) > 1 else torch.zeros_like(owner)
        filled = _windows(self.absent, sides, self.trunk.stride)[own, :, :, row, column]
        absent = filled.view(torch.int32)
        # By bits, as torch_rows.filler.
        difference = absent ^ crops.view(torch.int32)[:, None]
        absent ^= difference.bitwise_and_(bits)
        filled = filled.flatten(0, 1)
        if self.channels_last:
            filled = filled.contiguous(memory_format=torch.channels_last)
        features = self.base[own]
        count, M = features.shape[:2]
        renewed = self.forward(filled).reshape(count, M, -1, *size)
        _windows(features, size.tolist(), (1, 1))[torch.arange(count, device=owner.device), :, :, row, column] = renewed
        return self.trunk.head(features.flatten(0, 1))


def _windows(images: torch.Tensor, sides: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """All windows (..., rows, columns, *sides) of images (..., height, width), as a view."""
    return images.unfold(-2, sides[0], stride[0]).unfold(-2, sides[1], stride[1])
