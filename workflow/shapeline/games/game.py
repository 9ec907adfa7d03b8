"""The game v(S): the value of a model's output where only the features in S are kept; the only entry to the engine.

A game is independent of methods. It checks its arguments and calls the backend of the model's framework, which fills
masked features from the reference on the model's device and runs the model in the backend (plain, ONNX Runtime,
compiled, ...) and batch that `calibrate` found fastest and verified. No framework is imported here, because a job
imports only the one of its model."""

import dataclasses
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, nearest
from shapeline.games.execution import BACKENDS, ExecutionBackend, import_backend
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.models.classifier import Classifier

SINGLE_ROWS = 4  # rows evaluated one by one to measure the effect of batches on a function's outputs
VALUES = ("log_probability", "probability", "logit", "log_odds", "margin", "centred_logit", "expected_log_probability")
OF_ALL_CLASSES = ("centred_logit", "expected_log_probability")  # values that several labels do not have
PREDICTION = "prediction"  # the one value of a regression model
# Bounds of the permitted difference between the full coalition and the model's output, as shares of the largest value.
FULL_TOLERANCES = (1e-6, 1e-4)


Progress = Callable[[int, int], None] | None  # called with the numbers of finished instances and of evaluations


@dataclass(frozen=True, eq=False)
class Game:
    """The cooperative game of a model: `value` of inputs whose masked features are filled from `reference`.

    model, reference: None for methods on labelled rows or a file. features: None where each instance has its
    own, until `having` sets them. value: log_probability, probability, log_odds (log p - log of the other
    classes' sum), margin (log_odds of each reference row, averaged), centred_logit (log p - the mean log-probability
    of the classes, of each reference row, averaged), expected_log_probability (sum over classes of P(y|x) log
    P(y|x_S)), logit (networks only). For a model of several labels the values are those of the target's sigmoid,
    log_odds is its logit, and there is no centred_logit and no expected_log_probability. The value of a regression
    model is prediction, its output. backend: the model's execution; None: plain.
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
        self, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None = None, progress: Progress = None
    ) -> np.ndarray:
        """Return v(S) of coalitions on instances, (n, K) float64 (Chen et al. 2018, §2.1); (n, K, T) for T targets.

        inputs (n, *input_shape); masks (K, d) bool shared by all instances, or (n, K, d), True = present; targets (n,)
        classes, by default the one predicted on the full input, 0 for a regression. With M > 1 reference rows the
        probability is averaged over them first (for logit, margin and prediction, the value is). Computations after
        the outputs are in float64 and from log-softmax. The batch size changes the numbers by no more than float32
        rounding. `progress(done_instances, evaluations)` is called after each block.

        Raises ShapelineError for shapes and names that do not fit, for a log of P = 0, and for a NaN or infinite output
        (its `.instance` is the position); MethodFailure when one row alone does not fit into memory.
        """
        masks = as_array(masks, bool)
        if len(inputs) == 0 or masks.shape[-2] == 0:
            return np.empty((len(inputs), masks.shape[-2]))
        inputs = convert_cells(self.model, inputs, self.reference)
        check_arguments(self, inputs, masks)
        self.model.check_rows(inputs)
        if targets is not None:
            targets = check_targets(self.model, inputs, targets)
        elif self.value == PREDICTION:
            targets = np.zeros(len(inputs), np.int64)
        game = self if self.backend else self.having(backend=ExecutionBackend())
        run = _evaluate_windows if game.backend.name == "windows" else import_backend(self.model).values
        values = run(game, inputs, masks, targets, progress)
        return (
            _replace_full_values(game, inputs, masks, targets, values) if self.model.framework == "function" else values
        )


def _replace_full_values(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None, values: np.ndarray
) -> np.ndarray:
    """Set values of full coalitions (n, K) to a function's outputs. Raises ShapelineError where these differ."""
    full = np.broadcast_to(masks.all(axis=-1), values.shape[:2])
    rows = np.flatnonzero(full.any(axis=1))
    if not len(rows):
        return values
    mask = np.ones((1, masks.shape[-1]), bool)

    def evaluate(selected: np.ndarray) -> np.ndarray:
        unmasked = game.having(reference=Reference(inputs[selected[:1]]))
        classes = None if targets is None else targets[selected]
        return import_backend(game.model).values(unmasked, inputs[selected], mask, classes, None)[:, 0]

    outputs = np.zeros((len(values), *values.shape[2:]))
    outputs[rows] = evaluate(rows)
    masked = values[full]
    expected = np.broadcast_to(outputs[:, None], values.shape)[full]
    if is_apart(masked, expected).any():  # only then is the effect of batches measured
        effect = max(float(np.abs(evaluate(row[None])[0] - outputs[row]).max()) for row in rows[:SINGLE_ROWS])
        differs = is_apart(masked, expected, effect)
        check_full(game.model.architecture, masked, expected, np.nonzero(full)[0], differs)
    values[full] = expected
    return values


def _evaluate_windows(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None, progress: Progress
) -> np.ndarray:
    """Return the values of a model with a local receptive field, tabulating windows once per document (windows.py)."""
    model, reference = game.model, game.reference
    expected = game.value == "expected_log_probability"
    full = model.log_probs(inputs) if targets is None or expected else None
    targets = full.argmax(1) if targets is None else targets
    result = np.empty((len(inputs), masks.shape[-2], *targets.shape[1:]))
    full = np.exp(full) if expected else None
    rows = as_array(reference.of(inputs), inputs.dtype)
    rows = rows[0] if reference.own is None else rows
    evaluations = 0
    for start, stop, first, last, logits in importlib.import_module(BACKENDS[model.framework]).window_values(
        model, inputs, rows, masks, game.features
    ):
        arguments = targets[start:stop], None if full is None else full[start:stop]
        block = result[start:stop, first:last] = map_targets(score, np.stack)(logits, *arguments, game.value)
        check_finite(game, block, start, first)
        evaluations += (stop - start) * (last - first)
        if progress:
            progress(stop if last == masks.shape[-2] else 0, evaluations)
    return result


def map_targets(score: Callable, stack: Callable) -> Callable:
    """Return `score` for targets (a,), or (a, T) with values (a, b, T); stack: of the framework, along an axis."""

    def score_each(outputs, targets, *more):
        if targets.ndim == 1:
            return score(outputs, targets, *more)
        return stack([score(outputs, targets[:, number], *more) for number in range(targets.shape[1])], -1)

    return score_each


def score(
    outputs: np.ndarray, targets: np.ndarray, full: np.ndarray | None, value: str, logits: bool = True
) -> np.ndarray:
    """Return values (a, b) of logits or log-probabilities (a, b, M, classes); `full` (a, classes): on the input."""
    from scipy.special import log_softmax, logsumexp  # torch jobs need no scipy

    index = targets.reshape(-1, 1, 1, 1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # check_finite reports non-finite values
        outputs = outputs.astype(np.float64)
        if value in ("logit", PREDICTION):
            return np.take_along_axis(outputs, index, 3).mean((2, 3))
        log_probs = log_softmax(outputs, axis=3) if logits else outputs
        if value in ("log_probability", "probability"):
            log_probs = np.take_along_axis(log_probs, index, 3)
        if value == "margin":
            others = log_probs.copy()
            np.put_along_axis(others, index, -np.inf, 3)
            return (np.take_along_axis(log_probs, index, 3)[..., 0] - logsumexp(others, axis=3)).mean(2)
        if value == "centred_logit":
            return (np.take_along_axis(log_probs, index, 3)[..., 0] - log_probs.mean(axis=3)).mean(2)
        average = log_probs[:, :, 0]
        if log_probs.shape[2] > 1:
            average = logsumexp(log_probs, axis=2) - math.log(log_probs.shape[2])
        if value == "log_probability":
            return average[..., 0]
        if value == "probability":
            return np.exp(average[..., 0])
        if value == "log_odds":
            log_p = np.take_along_axis(average, index[..., 0], 2)[..., 0]
            others = average.copy()
            np.put_along_axis(others, index[..., 0], -np.inf, 2)
            return log_p - logsumexp(others, axis=2)
        full = full[:, None]
        return np.where(full > 0, full * average, 0.0).sum(2)  # 0 log 0 is 0


def select_label(outputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return logits of several labels as two per row: a label's sigmoid is the softmax of 0 and its logit."""
    label = np.take_along_axis(outputs, targets.reshape(-1, 1, 1, 1), 3)
    return np.concatenate([np.zeros_like(label), label], axis=3), np.ones_like(targets)


def as_array(array: np.ndarray, dtype: type | None = None) -> np.ndarray:
    """Return the array contiguous and writable, as float32, or int32 for tokens: `build_filler` needs 32-bit words."""
    dtype = dtype or (np.int32 if np.issubdtype(np.asarray(array).dtype, np.integer) else np.float32)
    return np.require(array, dtype, ["C", "W"])


def convert_cells(model: Classifier, inputs: np.ndarray, reference: Reference) -> np.ndarray:
    """Return the inputs of a function in the common type of inputs and reference rows; of a network, by `as_array`."""
    if model.framework != "function":
        return as_array(inputs)
    inputs = np.asarray(inputs)
    cells = as_array(inputs, np.result_type(inputs, reference.of(inputs[:1])))
    if inputs.dtype.kind in "iu" and cells.dtype.kind == "f" and not (cells.astype(inputs.dtype) == inputs).all():
        raise ShapelineError(
            f"engine: inputs of {inputs.dtype} change beside a reference of {cells.dtype}; give rows of one type"
        )
    return cells


def share_reference(reference: Reference, inputs: np.ndarray) -> Reference:
    """Return the reference's rows (M, *input_shape), or those of the first input where each input has its own."""
    return Reference(as_array(reference.of(inputs[:1])[0], inputs.dtype))


def select_rows(game, inputs: np.ndarray, masks: np.ndarray, start: int) -> np.ndarray:
    """Return rows (n, K, M, cells) given the kept cells, of inputs (n, cells) from instance `start`; masks (K, d),
    or (all, K, d) of all instances."""
    masks = masks[None] if masks.ndim == 2 else masks[start : start + len(inputs)]
    kept = game.features.expand(masks.reshape(-1, masks.shape[-1])).reshape(*masks.shape[:2], -1)
    return as_array(game.reference.given(inputs, kept), inputs.dtype)


def check_arguments(game, inputs: np.ndarray, masks: np.ndarray) -> None:
    model, features, value = game.model, game.features, game.value
    reference = share_reference(game.reference, inputs)
    if value not in (*VALUES, PREDICTION):
        raise ShapelineError(f"engine: unknown value '{value}'.{nearest(value, (*VALUES, PREDICTION))}")
    if (value == PREDICTION) != (model.task == "regression"):
        kind, remedy = ("gives classes", "value: log_probability or probability")
        if model.task == "regression":
            kind, remedy = "is a regression model", "value: prediction"
        raise ShapelineError(f"engine: '{model.architecture}' {kind}, so it has no {value}; use {remedy}")
    if value in OF_ALL_CLASSES and model.task == "multilabel":
        raise ShapelineError(
            f"engine: '{model.architecture}' gives several labels, over which nothing sums to 1, so it has no {value}; "
            "use log_probability"
        )
    if value == "logit" and model.framework == "function":
        raise ShapelineError(f"engine: '{model.architecture}' gives probabilities, so it has no logit; use log_odds")
    shape = inputs.shape[1:]
    for what, actual in (("reference rows", reference.rows.shape[1:]), ("features", features.cells.shape)):
        if actual != shape:
            raise ShapelineError(
                f"engine: {what} have shape {actual} but one input has shape {shape}; give them that shape"
            )
    if len(reference.rows) == 0:
        raise ShapelineError("engine: the reference has no rows; give one or more")
    if masks.ndim not in (2, 3) or masks.shape[-1] != features.d or (masks.ndim == 3 and len(masks) != len(inputs)):
        wanted = f"(K, {features.d}) or ({len(inputs)}, K, {features.d})"
        raise ShapelineError(f"engine: masks have shape {masks.shape}; they must be {wanted}")


def check_targets(model, inputs, targets) -> np.ndarray:
    targets = np.asarray(targets)
    if targets.shape[:1] != (len(inputs),) or targets.ndim > 2 or not np.issubdtype(targets.dtype, np.integer):
        raise ShapelineError(f"engine: targets have shape {targets.shape}; they must be {len(inputs)} class numbers")
    if model.n_classes is None:
        model.n_classes = model.log_probs(inputs[:1]).shape[1]
    if targets.min() < 0 or targets.max() >= model.n_classes:
        raise ShapelineError(
            f"engine: targets run from {targets.min()} to {targets.max()}; the classes are 0 to {model.n_classes - 1}"
        )
    return targets.astype(np.int64)


def is_apart(masked: np.ndarray, outputs: np.ndarray, batch_effect: float = 0.0) -> np.ndarray:
    """Return where values of the full coalition differ from the model's outputs by more than batches change these."""
    least, most = (tolerance * float(np.abs(outputs).max(initial=0)) for tolerance in FULL_TOLERANCES)
    return np.abs(masked - outputs) > np.clip(10 * batch_effect, least, most)


def check_full(name: str, masked: np.ndarray, outputs: np.ndarray, indices: np.ndarray, differs: np.ndarray) -> None:
    """Raise where values of full coalitions among masked rows differ from the outputs of the rows alone."""
    if differs.any():
        index = tuple(np.argwhere(differs)[0])
        raise ShapelineError(
            f"engine: model '{name}', instance {{instance}}: it says {outputs[index]:.6g} of the input and "
            f"{masked[index]:.6g} of the same cells among masked rows; give a model that answers row by row, from the "
            "cells alone",
            int(indices[index[0]]),
        )


def check_finite(game, block: np.ndarray, start: int, first: int) -> None:
    """Raise at the first NaN or infinite value of a block, naming model, instance and coalition."""
    if np.isfinite(block).all():
        return
    index = np.argwhere(~np.isfinite(block))[0]
    row, column = index[:2]
    model, output = game.model, block[tuple(index)]
    where = f"engine: model '{model.architecture}', instance {{instance}}, coalition {first + column}"
    if (
        model.framework == "function"
        and game.value != PREDICTION
        and (game.value in ("margin", "centred_logit") or not np.isnan(output))
    ):
        raise ShapelineError(
            f'{where}: the probability is 0 or 1 and has no finite log; use value="probability"', start + row
        )
    raise ShapelineError(f"{where}: the output is {output}; make it finite for masked rows", start + row)
