"""The game: v(S), what a model's output is worth where only the features in S are kept; the only entry to the engine.

A game never sees a method. It checks what it is given and hands it to the backend of the model's framework, which fills
masked features from the reference on the model's device and runs the model in the backend (plain, ONNX Runtime, frozen
graph, compiled, ...) and batch that `calibrate` found fastest and verified. No framework is imported here: a job has
one."""

import dataclasses
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.games.execution import WINDOWS, ExecutionBackend, backend_of
from shapeline.games.features import Features
from shapeline.games.input_checks import (
    as_array,
    as_cells,
    check_finite,
    check_full,
    check_question,
    checked_targets,
    is_apart,
)
from shapeline.games.output_values import PREDICTION, score
from shapeline.games.references import Reference
from shapeline.models.classifier import Classifier

SINGLE = 4  # inputs that a function is asked of one by one, to see how far a batch changes its answer


@dataclass(frozen=True, eq=False)
class Game:
    """What is asked of a model: `value` of inputs whose masked features are filled from `reference`.

    model, reference: None where only labelled points or a file are asked. features: None where each instance has its
    own, until they are given by `having`. value: log_probability, probability, log_odds (log p - log of the other
    classes' sum), margin (log_odds of each reference row, averaged), expected_log_probability (sum over classes of
    P(y|x) log P(y|x_S)), logit (networks only). Of a model of several labels they are those of the target's sigmoid,
    log_odds its logit, and there is no expected_log_probability. Of a regression model value is prediction, its plain
    output. backend: how the model is run; None: plain.
    """

    model: Classifier | None
    reference: Reference | None
    features: Features | None
    value: str = "log_probability"
    backend: ExecutionBackend | None = None

    def having(self, **changes: Any) -> "Game":
        """Return the same game with other features, another value or another backend."""
        return dataclasses.replace(self, **changes)

    def values(
        self,
        inputs: np.ndarray,
        masks: np.ndarray,
        targets: np.ndarray | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Values v(S) of coalitions on instances, (n, K) float64 (Chen et al. 2018, §2.1).

        inputs (n, *input_shape); masks (K, d) bool shared by all instances, or (n, K, d), True = present; targets (n,)
        classes, by default the one predicted on the full input, 0 of a regression. With M > 1 reference rows the
        probability is averaged over them first (of logit, margin and prediction these themselves). Everything
        after the outputs is float64 and from log-softmax. The batch size changes the numbers by no more than float32
        rounding. `progress(done_instances, evaluations)` is called after each block.

        Raises ShapelineError for shapes and names that do not fit, for a log of P = 0, and for a NaN or infinite output
        (its `.instance` is the position); MethodFailure when one row alone does not fit into memory.
        """
        masks = as_array(masks, bool)
        if len(inputs) == 0 or masks.shape[-2] == 0:
            return np.empty((len(inputs), masks.shape[-2]))
        inputs = as_cells(self.model, inputs, self.reference)
        check_question(self, inputs, masks)
        self.model.check_rows(inputs)
        if targets is not None:
            targets = checked_targets(self.model, inputs, targets)
        elif self.value == PREDICTION:
            targets = np.zeros(len(inputs), np.int64)
        game = self if self.backend else self.having(backend=ExecutionBackend())
        run = _evaluate_windows if game.backend.name == "windows" else backend_of(self.model).values
        values = run(game, inputs, masks, targets, progress)
        return (
            _replace_full_values(game, inputs, masks, targets, values) if self.model.framework == "function" else values
        )


def _replace_full_values(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None, values: np.ndarray
) -> np.ndarray:
    """Set values of full coalitions (n, K) to what a function says of each input; ShapelineError where these differ."""
    full = np.broadcast_to(masks.all(axis=-1), values.shape)
    rows = np.flatnonzero(full.any(axis=1))
    if not len(rows):
        return values
    whole = np.ones((1, masks.shape[-1]), bool)

    def ask(some: np.ndarray) -> np.ndarray:
        alone = game.having(reference=Reference(inputs[some[:1]]))
        of_some = None if targets is None else targets[some]
        return backend_of(game.model).values(alone, inputs[some], whole, of_some, None)[:, 0]

    own = np.zeros(len(values))
    own[rows] = ask(rows)
    masked = values[full]
    each = np.broadcast_to(own[:, None], values.shape)[full]
    if is_apart(masked, each).any():  # how far a row alone is from one among others is measured where it matters
        few = rows[:SINGLE]
        allowed = max(abs(float(ask(few[i : i + 1])[0] - own[few[i]])) for i in range(len(few)))
        check_full(game.model.architecture, masked, each, np.nonzero(full)[0], is_apart(masked, each, allowed))
    values[full] = each
    return values


def _evaluate_windows(
    game: Game,
    inputs: np.ndarray,
    masks: np.ndarray,
    targets: np.ndarray | None,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """Values of a model with a local receptive field, whose windows are tabled once a document (windows.py)."""
    model, reference = game.model, game.reference
    result = np.empty((len(inputs), masks.shape[-2]))
    expected = game.value == "expected_log_probability"
    full = model.log_probs(inputs) if targets is None or expected else None
    targets = full.argmax(1) if targets is None else targets
    full = np.exp(full) if expected else None
    rows = as_array(reference.of(inputs), inputs.dtype)
    rows = rows[0] if reference.own is None else rows
    evaluations = 0
    for start, stop, first, last, logits in importlib.import_module(WINDOWS[model.framework]).values(
        model, inputs, rows, masks, game.features
    ):
        of_block = targets[start:stop], None if full is None else full[start:stop]
        block = result[start:stop, first:last] = score(logits, *of_block, game.value)
        check_finite(game, block, start, first)
        evaluations += (stop - start) * (last - first)
        if progress:
            progress(stop if last == masks.shape[-2] else 0, evaluations)
    return result
