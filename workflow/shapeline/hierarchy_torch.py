"""Hierarchical Shapley values of torch models: the evaluator that `hierarchy.explore` asks, on the model's device.

A pair's picture is filled from two codes, one a row and one a column, so that neither a mask nor a picture crosses to
the device for it. Rows go to the model in the engine's form and batch, whichever instances and nodes they come from.

Outside its node a picture is the reference. Where the model begins with convolutions and pools without padding, only
the part of their output that sees the node is computed anew (`_trunk`), from a crop of the picture; the rest is the
reference's. The values are the same, and most nodes are small.
"""

import logging
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from shapeline import engine, hierarchy, torch_engine
from shapeline.designs.design import one_of
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.hierarchy import Evaluate, HShap
from shapeline.memory import ran_out
from shapeline.models.classifier import Classifier
from shapeline.references import Reference

log = logging.getLogger(__name__)

# Of the range of v. A float32 model gives one picture values that differ by 1e-7 with its place in a batch, so that
# hierarchy.TOLERANCE, for exact games, would let the batch decide which empty quadrants are explored.
TOLERANCE = 1e-6
CODE_BYTES = 1 << 27  # of the codes of pairs at a time
# Multiplications that take as long as a call on crops of one size does before it computes anything; what it saves of
# the whole pictures has to be more.
CALL_WORK = {"cpu": 1 << 24, "cuda": 1 << 30}
VALUES = ("probability", "log_probability", "logit", "log_odds")


def h_shap(
    model: Classifier,
    inputs: np.ndarray,
    reference: Reference,
    targets: np.ndarray,
    min_size: int,
    threshold: float = 0.0,
    mode: str = "absolute",
    leaf_score: str = "uniform",
    value: str = "probability",
    multi_label: bool = False,
    shifts: Sequence[Sequence[int]] | None = None,
    form: engine.Form | None = None,
    tolerance: float = TOLERANCE,
) -> list[HShap]:
    """h-Shap of a batch of inputs, all trees side by side (Teneggi et al. 2021); one HShap an input and target.

    inputs (n, channels, height, width) or (n, length); targets (n,) classes, or (n, T) for several classes or labels of
    each input, explained in reading order. value, multi_label, form: see `evaluator`; shifts: cycle spinning, see
    `hierarchy.h_shap`; the rest: see `hierarchy.explore`. Raises ShapelineError.
    """
    inputs, targets = engine.as_array(inputs), np.asarray(targets)
    if targets.ndim not in (1, 2) or len(targets) != len(inputs):
        raise ShapelineError(
            f"h_shap: targets have shape {targets.shape}; give ({len(inputs)},) or ({len(inputs)}, T)."
        )
    shape = inputs.shape[1:] if inputs.ndim == 2 else inputs.shape[2:]
    moves = hierarchy.checked_shifts(shifts, len(shape))
    owners = np.repeat(np.arange(len(inputs)), len(moves) * targets[:1].size)
    evaluate = evaluator(
        model,
        inputs,
        reference,
        np.repeat(targets.ravel(), len(moves)),
        value,
        multi_label,
        form,
        owners,
        np.tile(moves, (targets.size, 1)),
    )
    found = hierarchy.explore(evaluate, len(owners), shape, min_size, threshold, mode, leaf_score, tolerance)
    return hierarchy.gathered(found, moves, shape)


def evaluator(
    model: Classifier,
    inputs: np.ndarray,
    reference: Reference,
    targets: np.ndarray,
    value: str = "probability",
    multi_label: bool = False,
    form: engine.Form | None = None,
    owners: np.ndarray | None = None,
    shifts: np.ndarray | None = None,
    places: np.ndarray | None = None,
) -> Evaluate:
    """What `hierarchy.explore` and `explore_forest` ask: engine.values of ragged (instance, coalition) pairs.

    inputs (n, channels, height, width) or (n, length). Instance j of the exploration explains class targets[j] of
    inputs[owners[j]] (by default input j), on a partition moved by shifts[j] (rows, columns). value: probability,
    log_probability, logit or log_odds; multi_label: of the sigmoid of the target's output in place of the softmax,
    which a model of task multilabel is asked for anyhow. places (n, height, width) or (n, length): for a forest, the
    place of each cell's segment among the leaves. Raises ShapelineError, also for a NaN or infinite output (`.instance`
    is the input's position).
    """
    one_of("h_shap", "value", value, VALUES)
    multi_label = multi_label or model.task == "multilabel"
    task = "multilabel" if multi_label else model.task
    if model.framework == "function" and (multi_label or value == "logit"):
        raise ShapelineError(
            f"h_shap: '{model.architecture}' gives probabilities of classes; it has no logits or labels."
        )
    inputs = engine.as_array(inputs)
    n, *shape = inputs.shape
    if len(shape) not in (1, 3) or n == 0:
        raise ShapelineError(
            f"h_shap: inputs have shape {inputs.shape}; give (n, channels, height, width) or (n, length)."
        )
    channels, height, width = (1, 1, *shape) if len(shape) == 1 else shape
    owners = np.arange(n) if owners is None else np.asarray(owners)
    shifts = np.zeros((len(owners), 2), np.int64) if shifts is None else np.asarray(shifts)
    targets = _checked(model, inputs, np.asarray(targets), len(owners))
    shared = engine.shared_reference(reference, inputs)
    if shared.rows.shape[1:] != inputs.shape[1:] or len(shared.rows) == 0:
        raise ShapelineError(f"h_shap: reference rows have shape {shared.rows.shape[1:]}, inputs {inputs.shape[1:]}.")
    M, cells = len(shared.rows), height * width
    n_rows, n_columns = (height, width) if places is None else (1, int(places.max()) + 1)

    with torch_engine._evaluating(model):
        runner = torch_engine._runner(model, form or engine.Form(), inputs, shared)
    device = runner.device
    rows = runner.flat(inputs).to(device)
    # (1, M, *shape), or (n, M, *shape) where each input has its own.
    reference_rows = (
        shared.rows[None] if reference.own is None else engine.as_array(reference.own(inputs), inputs.dtype)
    )
    absent = runner.flat(reference_rows.reshape(-1, *shape)).to(device).view(-1, M * runner.size)
    channel = -1 if runner.channels_last else 1  # where the channels lie in a row of cells
    places = None if places is None else torch.from_numpy(places.reshape(n, cells).astype(np.int64)).to(device)
    pairs = max(1, runner.limit // M)
    picked, buffer = (torch.empty((pairs, k, runner.size), dtype=rows.dtype, device=device) for k in (1, M))

    def present(codes: Sequence[np.ndarray], owner: torch.Tensor) -> torch.Tensor:
        """The bits of the cells, (pairs, cells) int32: 0 absent, -1 (all bits set) present."""
        in_rows, in_columns = (torch.from_numpy(code).to(device) for code in codes)
        kept = ((in_rows[:, :, None] & in_columns[:, None, :]) != 0).view(len(owner), -1)
        if places is not None:
            kept = kept.gather(1, places[owner])
        return kept.to(torch.int32).neg_()

    def whole(codes: Sequence[np.ndarray], owner: torch.Tensor) -> torch.Tensor:
        """Logits of the pairs' inputs, (pairs * M, classes); filled by bits, as torch_engine.filler."""
        count, bits = len(owner), present(codes, owner)
        own = absent if reference.own is None else absent.index_select(0, owner)
        own = own.view(-1, M, runner.size).view(torch.int32)
        torch.index_select(rows, 0, owner, out=picked[:count, 0])
        filled = buffer[:count].view(torch.int32)
        torch.bitwise_xor(picked[:count].view(torch.int32), own, out=filled)
        by_channel = filled.view(count, M, cells, channels) if channel < 0 else filled.view(count, M, channels, cells)
        by_channel.bitwise_and_(bits[:, None, :, None] if channel < 0 else bits[:, None, None])
        filled.bitwise_xor_(own)
        return runner.outputs(buffer[:count].view(-1, runner.size))

    trunk = _trunk(model, shape) if places is None and len(shape) == 3 else None
    local = None
    if trunk is not None:
        with torch_engine._evaluating(model):
            local = _Local.of(trunk, form or engine.Form(), inputs, reference_rows, device)
            first, difference = torch.zeros(1, dtype=torch.int64, device=device), 0.0
            for codes in _some_codes(height, width):
                logits = [f(codes, first).double() for f in (local.outputs, whole)]
                if multi_label:  # a logit less all others' shift would show nothing of its own sigmoid
                    logits = [torch.stack([one, torch.zeros_like(one)], dim=1) for one in logits]
                found, expected = (torch.log_softmax(one, dim=1) for one in logits)
                difference = max(difference, float(((found - expected).abs() / expected.abs().clamp(min=1)).max()))
        if not difference <= engine.TOLERANCE:
            log.warning("whole pictures are evaluated: on crops, log-probabilities differ by %.1e", difference)
            local = None

    def crops(codes: Sequence[np.ndarray], owner: torch.Tensor) -> torch.Tensor:
        """Logits as of `whole`, from crops; half the pairs at a time when memory runs out."""
        nonlocal pairs
        if len(owner) > pairs:
            parts = [slice(start, start + pairs) for start in range(0, len(owner), pairs)]
            return torch.cat([crops([code[part] for code in codes], owner[part]) for part in parts])
        try:
            return local.outputs(codes, owner)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
        if len(owner) == 1:
            raise MethodFailure(
                "out of memory",
                f"h_shap: model '{model.architecture}' runs out of memory on a single coalition; "
                "use a smaller model or input, or a device with more memory",
            )
        pairs = len(owner) // 2
        log.warning("out of memory: going on with %d coalitions a call", pairs)
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return crops(codes, owner)

    block = max(pairs, CODE_BYTES // (16 * (n_rows + n_columns)))

    def evaluate(instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        if len(instances) > block:
            parts = [slice(start, start + block) for start in range(0, len(instances), block)]
            return np.concatenate([evaluate(instances[part], rectangles[part]) for part in parts])
        scored = []
        with torch_engine._evaluating(model):
            codes = hierarchy.inside(rectangles, shifts[instances], np.arange(n_rows), np.arange(n_columns))
            together, groups = (np.arange(len(instances)), []) if local is None else local.alike(codes)
            order = np.concatenate([together, *groups])
            calls = [(whole, together), *((crops, group) for group in groups)]
            for ask, part in [(ask, group[i : i + pairs]) for ask, group in calls for i in range(0, len(group), pairs)]:
                owner, in_part = torch.from_numpy(owners[instances[part]]).to(device), [code[part] for code in codes]
                outputs = ask(in_part, owner)
                chosen = torch.from_numpy(targets[instances[part]]).to(device)
                outputs = outputs.view(len(chosen), 1, M, -1)
                scored.append(torch_engine._score(outputs, chosen, None, value, model.framework, task)[:, 0])
            values = np.empty(len(instances))
            values[order] = torch.cat(scored).cpu().numpy()
        if not np.isfinite(values).all():
            first = np.flatnonzero(~np.isfinite(values))[0]
            instance = int(owners[instances[first]])
            error = ShapelineError(
                f"h_shap: model '{model.architecture}', instance {instance}, a coalition's {value} is {values[first]}; "
                "check the input and the weights, or use the value 'probability'"
            )
            error.instance = instance
            raise error
        return values

    return evaluate


def _checked(model: Classifier, inputs: np.ndarray, targets: np.ndarray, n: int) -> np.ndarray:
    if targets.shape != (n,) or not np.issubdtype(targets.dtype, np.integer):
        raise ShapelineError(f"h_shap: targets have shape {targets.shape}; they must be {n} class numbers.")
    if model.n_classes is None:
        model.n_classes = model.log_probs(inputs[:1]).shape[1]
    if targets.min() < 0 or targets.max() >= model.n_classes:
        wrong = targets.min() if targets.min() < 0 else targets.max()
        raise ShapelineError(f"h_shap: target {wrong}: the model's classes are 0 to {model.n_classes - 1}.")
    return targets.astype(np.int64)


# --- the part of a picture that a node can change ---------------------------------------------------------------------

# Layers that work on each cell alone; dropout and batch normalisation do when they are evaluated.
_CELLWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity)
_CELLWISE += (nn.Dropout, nn.Dropout2d, nn.BatchNorm2d)


@dataclass(frozen=True, eq=False)
class _Trunk:
    """The convolutions and pools a model begins with, and the rest of it.

    Output (i, j) of `layers` sees `window` rows and columns of the picture, from (i, j) times `stride`; `size`: rows
    and columns of the output; work: multiplications that the convolutions make of a picture.
    """

    layers: nn.Sequential
    head: nn.Sequential
    window: tuple[int, int]
    stride: tuple[int, int]
    size: tuple[int, int]
    work: int


def _trunk(model: Classifier, shape: Sequence[int]) -> _Trunk | None:
    """The trunk of a model that is a sequence of layers, none of them padded before its Flatten; else None.

    Padding would tell a crop's border from the picture's.
    """
    module = model.module
    if not isinstance(module, nn.Sequential):
        return None
    kept = _TRUNKS.get(module)  # so that the form of its layers is prepared once
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
    trunk = _Trunk(module[:end], module[end:], tuple(window), tuple(stride), size, work)
    trunk.layers.training = trunk.head.training = False  # of these containers alone: the layers are the model's
    _TRUNKS[module] = tuple(shape), trunk
    return trunk


_TRUNKS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class _Local:
    """Logits of pairs from the trunk's output on the reference, renewed where it sees a cell that is present.

    pictures (n, channels, height, width); absent (1 or n, M, channels, height, width), base (1 or n, M, channels,
    *trunk.size) its output; sizes: for each axis, the crop that is computed for so many outputs, one of a few.
    """

    trunk: _Trunk
    forward: Callable[[torch.Tensor], torch.Tensor]
    channels_last: bool
    pictures: torch.Tensor
    absent: torch.Tensor
    base: torch.Tensor
    sizes: list[np.ndarray]

    @classmethod
    def of(cls, trunk: _Trunk, form: engine.Form, inputs: np.ndarray, absent: np.ndarray, device) -> "_Local":
        forward, name = trunk.layers, form.name
        if name != "plain":
            layers = Classifier("torch", "the model's convolutions", trunk.layers)
            try:
                forward = torch_engine.prepare(layers, form, inputs, Reference(absent[0]))
            except engine.FormRefused as refusal:
                log.info("%s", refusal)
                name = "plain"
        rows = torch.from_numpy(absent).to(device)
        base = torch.cat([trunk.layers(part) for part in rows])
        steps = np.unique([step for power in range(12) for step in (1 << power, 3 << power)])
        sizes = [np.minimum(steps[np.searchsorted(steps, np.arange(size + 1))], size) for size in trunk.size]
        pictures = torch.from_numpy(inputs).to(device)
        base = base.view(*rows.shape[:2], *base.shape[1:])
        return cls(trunk, forward, name == "channels_last", pictures, rows, base, sizes)

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
        # Windows of a picture as a view, so that a crop is copied by rows and not cell by cell.
        crops = _windows(self.pictures, sides, self.trunk.stride)[owner, :, row, column]
        own = owner if len(self.absent) > 1 else torch.zeros_like(owner)
        filled = _windows(self.absent, sides, self.trunk.stride)[own, :, :, row, column]
        absent = filled.view(torch.int32)
        # By bits, as torch_engine.filler.
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


def _windows(pictures: torch.Tensor, sides: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """All windows (..., rows, columns, *sides) of pictures (..., height, width), as a view."""
    return pictures.unfold(-2, sides[0], stride[0]).unfold(-2, sides[1], stride[1])


# Corners as shares of a picture: nothing, all of it, a quarter, a small part at the end, a bit in the middle.
_SOME = ((0, 0, 0, 0), (0, 1, 0, 1), (0, 0.5, 0, 0.5), (0.9, 1, 0.9, 1), (0.4, 0.6, 0.3, 0.5))


def _some_codes(height: int, width: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Codes of a few rectangles, each alone, to verify crops with."""
    rectangles = (np.array(_SOME)[:, None, None] * (height, height, width, width)).astype(np.int64)
    still, rows, columns = np.zeros((1, 2), np.int64), np.arange(height), np.arange(width)
    return [hierarchy.inside(rectangle, still, rows, columns) for rectangle in rectangles]
