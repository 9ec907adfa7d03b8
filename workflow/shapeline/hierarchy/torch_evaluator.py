"""The evaluator that `explore` asks of torch models, without masks, on the model's device.

Images are filled from two codes, one a row and one a column; outside a node they are the reference. Where the model
begins with a `Trunk`, only what sees the node is computed anew: the values are the same, and most nodes are small.
"""

import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch

from shapeline.designs.design import one_of
from shapeline.errors import ShapelineError
from shapeline.games import calibration_search, execution, torch_rows
from shapeline.games.execution import ExecutionBackend, select_traced_rows
from shapeline.games.game import Game, as_array, share_reference
from shapeline.hierarchy import exploration
from shapeline.hierarchy.torch_crops import CODE_BYTES, VALUES, LocalCrops, find_trunk
from shapeline.memory import halve
from shapeline.models.classifier import Classifier

log = logging.getLogger(__name__)
Codes = Sequence[np.ndarray]  # of pairs: which rectangles hold a row (pairs, height), and which a column


class Evaluator:
    """What `explore` asks: values of ragged (instance, coalition) pairs, the coalitions as rectangles.

    game: its features are the cells of an image, or of a vector; its value probability, log_probability, logit or
    log_odds. inputs (n, channels, height, width) or (n, length). Instance j of the exploration explains class
    targets[j] of inputs[owners[j]] (by default input j), on a partition moved by shifts[j] (rows, columns). Raises
    ShapelineError, when called also for a NaN or infinite output (`.instance` is the input's position).
    """

    def __init__(
        self,
        game: Game,
        inputs: np.ndarray,
        targets: np.ndarray,
        owners: np.ndarray | None = None,
        shifts: np.ndarray | None = None,
    ):
        one_of("h_shap", "value", game.value, VALUES)
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
        self.targets = _check_inputs(model, inputs, np.asarray(targets), len(self.owners))
        reference_rows = self._prepare(inputs, game.backend or ExecutionBackend())
        self.local = (
            self._crops_of(inputs, reference_rows, game.backend or ExecutionBackend()) if len(shape) == 3 else None
        )
        self.block = max(self.pairs, CODE_BYTES // (16 * (self.height + self.width)))

    def _prepare(self, inputs: np.ndarray, backend: ExecutionBackend) -> np.ndarray:
        """Bring inputs and reference rows (1 or n, M, *shape) to the device."""
        reference = self.game.reference
        shared = share_reference(reference, inputs)
        if shared.rows.shape[1:] != inputs.shape[1:] or len(shared.rows) == 0:
            raise ShapelineError(
                f"h_shap: reference rows have shape {shared.rows.shape[1:]}, inputs {inputs.shape[1:]}"
                "; give rows of the inputs' shape."
            )
        with torch_rows.evaluating(self.model):
            self.runner = torch_rows.build_runner(self.model, backend, select_traced_rows(inputs, shared))
        rows = shared.rows[None] if reference.own is None else as_array(reference.own(inputs), inputs.dtype)
        self.M, size, self.device = len(shared.rows), self.runner.size, self.runner.device
        self.inputs = self.runner.flat(inputs).to(self.device)
        self.absent = self.runner.flat(rows.reshape(-1, *inputs.shape[1:])).to(self.device).view(-1, self.M * size)
        self.pairs = max(1, self.runner.limit // self.M)
        self._picked, self._filled = (
            torch.empty((self.pairs, k, size), dtype=self.inputs.dtype, device=self.device) for k in (1, self.M)
        )
        return rows

    def _crops_of(self, inputs: np.ndarray, reference_rows: np.ndarray, backend: ExecutionBackend) -> LocalCrops | None:
        """The crops of a model that is local, where they give the same log-probabilities as whole images."""
        trunk = find_trunk(self.model, inputs.shape[1:])
        if trunk is None:
            return None
        with torch_rows.evaluating(self.model):
            local = LocalCrops.of(trunk, backend, inputs, reference_rows, self.device)
            first, difference = torch.zeros(1, dtype=torch.int64, device=self.device), 0.0
            for codes in _sample_codes(self.height, self.width):
                logits = [ask(codes, first).double() for ask in (local.outputs, self.whole)]
                if self.model.task == "multilabel":  # less all others' shift would show nothing of its own sigmoid
                    logits = [torch.stack([own, torch.zeros_like(own)], dim=1) for own in logits]
                log_probs = [torch.log_softmax(own, dim=1).cpu().numpy() for own in logits]
                difference = max(difference, calibration_search.difference(*log_probs))
        if not difference <= execution.TOLERANCE:
            log.warning("whole images are evaluated: on crops, log-probabilities differ by %.1e", difference)
            return None
        return local

    def whole(self, codes: Codes, owner: torch.Tensor) -> torch.Tensor:
        """Logits of the pairs' inputs, (pairs * M, classes); filled by bits, as torch_rows.filler."""
        count, size, cells = len(owner), self.runner.size, self.height * self.width
        in_rows, in_columns = (torch.from_numpy(code).to(self.device) for code in codes)
        # The bits of the cells, (pairs, cells) int32: 0 absent, -1 (all bits set) present.
        bits = ((in_rows[:, :, None] & in_columns[:, None, :]) != 0).view(count, -1).to(torch.int32).neg_()
        own = self.absent if self.game.reference.own is None else self.absent.index_select(0, owner)
        own = own.view(-1, self.M, size).view(torch.int32)
        torch.index_select(self.inputs, 0, owner, out=self._picked[:count, 0])
        filled = self._filled[:count].view(torch.int32)
        torch.bitwise_xor(self._picked[:count].view(torch.int32), own, out=filled)
        if self.runner.channels_last:  # where the channels lie in a row of cells
            filled.view(count, self.M, cells, self.channels).bitwise_and_(bits[:, None, :, None])
        else:
            filled.view(count, self.M, self.channels, cells).bitwise_and_(bits[:, None, None])
        filled.bitwise_xor_(own)
        return self.runner.outputs(self._filled[:count].view(-1, size))

    def crops(self, codes: Codes, owner: torch.Tensor) -> torch.Tensor:
        """Logits as of `whole`, from crops; half the pairs at a time when memory runs out."""

        def run(rows: int) -> torch.Tensor:
            pairs = max(1, rows // self.M)
            parts = [slice(start, start + pairs) for start in range(0, len(owner), pairs)]
            return torch.cat([self.local.outputs([code[part] for code in codes], owner[part]) for part in parts])

        return halve(self.model, len(owner) * self.M, run, "coalition")

    def __call__(self, instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        """Values (P,) of instances (P,) and rectangles (P, parts, 4), as exploration.Evaluate."""
        parts = [slice(start, start + self.block) for start in range(0, len(instances), self.block)]
        values = [self.evaluate(instances[part], rectangles[part]) for part in parts]
        return values[0] if len(values) == 1 else np.concatenate([np.empty(0), *values])

    def evaluate(self, instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        """The values of one block of pairs."""
        model, value = self.model, self.game.value
        places, scored = [], []
        with torch_rows.evaluating(model):
            rows, columns = np.arange(self.height), np.arange(self.width)
            codes = exploration.inside(rectangles, self.shifts[instances], rows, columns)
            for ask, part in self._calls(codes):
                owner = torch.from_numpy(self.owners[instances[part]]).to(self.device)
                outputs = ask([code[part] for code in codes], owner).view(len(part), 1, self.M, -1)
                chosen = torch.from_numpy(self.targets[instances[part]]).to(self.device)
                scores = torch_rows.score_on_device(outputs, chosen, None, value, model.framework, model.task)
                scored.append(scores[:, 0])
                places.append(part)
            values = np.empty(len(instances))
            values[np.concatenate(places)] = torch.cat(scored).cpu().numpy()
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise ShapelineError(
                f"h_shap: model '{model.architecture}', instance {{instance}}, a coalition's {value} is "
                f"{values[bad[0]]}; check the input and the weights, or use the value 'probability'",
                self.owners[instances[bad[0]]],
            )
        return values

    def _calls(self, codes: Codes) -> list[tuple[Callable[[Codes, torch.Tensor], torch.Tensor], np.ndarray]]:
        """How pairs are asked about, and which go together: whole ones, and those whose crops have one size."""
        if self.local is None:
            calls = [(self.whole, np.arange(len(codes[0])))]
        else:
            together, groups = self.local.alike(codes)
            calls = [(self.whole, together), *((self.crops, group) for group in groups)]
        step = self.pairs
        return [(ask, group[start : start + step]) for ask, group in calls for start in range(0, len(group), step)]


def _check_inputs(model: Classifier, inputs: np.ndarray, targets: np.ndarray, n: int) -> np.ndarray:
    if targets.shape != (n,) or not np.issubdtype(targets.dtype, np.integer):
        raise ShapelineError(f"h_shap: targets have shape {targets.shape}; they must be {n} class numbers.")
    if model.n_classes is None:
        model.n_classes = model.log_probs(inputs[:1]).shape[1]
    if targets.min() < 0 or targets.max() >= model.n_classes:
        wrong = targets.min() if targets.min() < 0 else targets.max()
        raise ShapelineError(
            f"h_shap: target {wrong}: the model's classes are 0 to {model.n_classes - 1}; give one of them."
        )
    return targets.astype(np.int64)


# Corners as shares of an image: nothing, all of it, a quarter, a small part at the end, a bit in the middle.
_SOME = ((0, 0, 0, 0), (0, 1, 0, 1), (0, 0.5, 0, 0.5), (0.9, 1, 0.9, 1), (0.4, 0.6, 0.3, 0.5))


def _sample_codes(height: int, width: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Codes of a few rectangles, each alone, to verify crops with."""
    rectangles = (np.array(_SOME)[:, None, None] * (height, height, width, width)).astype(np.int64)
    still, rows, columns = np.zeros((1, 2), np.int64), np.arange(height), np.arange(width)
    return [exploration.inside(rectangle, still, rows, columns) for rectangle in rectangles]
