"""What the engine refuses before it runs, and the arrays as a framework can share them."""

import numpy as np

from shapeline.errors import ShapelineError, nearest
from shapeline.games.output_values import PREDICTION, VALUES
from shapeline.games.references import Reference
from shapeline.models.classifier import Classifier

# Of the largest value: by which the full coalition may miss the model's own answer, at the least and at the most.
FULL_TOLERANCES = (1e-6, 1e-4)


def as_array(array: np.ndarray, dtype: type | None = None) -> np.ndarray:
    """Return the array contiguous and writable, float32, or int32 for tokens, so that `filler` chooses both by bits."""
    dtype = dtype or (np.int32 if np.issubdtype(np.asarray(array).dtype, np.integer) else np.float32)
    return np.require(array, dtype, ["C", "W"])


def as_cells(model: Classifier, inputs: np.ndarray, reference: Reference) -> np.ndarray:
    """The inputs as an array of the type that they and the rows of the reference have in common for a function, which
    is given numbers as they are; as `as_array` for a network."""
    if model.framework != "function":
        return as_array(inputs)
    inputs = np.asarray(inputs)
    cells = as_array(inputs, np.result_type(inputs, reference.of(inputs[:1])))
    if inputs.dtype.kind in "iu" and cells.dtype.kind == "f" and not (cells.astype(inputs.dtype) == inputs).all():
        raise ShapelineError(
            f"engine: inputs of {inputs.dtype} change beside a reference of {cells.dtype}; give rows of one type"
        )
    return cells


def shared_reference(reference: Reference, inputs: np.ndarray) -> Reference:
    """The reference as rows (M, *input_shape): its own, or those of the first input where each input has its own."""
    return Reference(as_array(reference.of(inputs[:1])[0], inputs.dtype))


def given_rows(game, inputs: np.ndarray, masks: np.ndarray, start: int) -> np.ndarray:
    """Rows (n, K, M, cells) that hang on what is present, of inputs (n, cells) from instance `start` on; masks (K, d),
    or those of all instances (all, K, d)."""
    own = masks[None] if masks.ndim == 2 else masks[start : start + len(inputs)]
    kept = game.features.expand(own.reshape(-1, own.shape[-1])).reshape(*own.shape[:2], -1)
    return as_array(game.reference.given(inputs, kept), inputs.dtype)


def check_question(game, inputs: np.ndarray, masks: np.ndarray) -> None:
    model, features, value = game.model, game.features, game.value
    reference = shared_reference(game.reference, inputs)
    if value not in (*VALUES, PREDICTION):
        raise ShapelineError(f"engine: unknown value '{value}'.{nearest(value, (*VALUES, PREDICTION))}")
    if (value == PREDICTION) != (model.task == "regression"):
        kind, remedy = ("gives classes", "value: log_probability or probability")
        if model.task == "regression":
            kind, remedy = "is a regression model", "value: prediction"
        raise ShapelineError(f"engine: '{model.architecture}' {kind}, so it has no {value}; use {remedy}")
    if value == "expected_log_probability" and model.task == "multilabel":
        raise ShapelineError(
            f"engine: '{model.architecture}' gives several labels, over which nothing sums to 1, so it has no {value}; "
            "use log_probability"
        )
    if value == "logit" and model.framework == "function":
        raise ShapelineError(f"engine: '{model.architecture}' gives probabilities, so it has no logit; use log_odds")
    shape = inputs.shape[1:]
    for what, given in (("reference rows", reference.rows.shape[1:]), ("features", features.cells.shape)):
        if given != shape:
            raise ShapelineError(
                f"engine: {what} have shape {given} but one input has shape {shape}; give them that shape"
            )
    if len(reference.rows) == 0:
        raise ShapelineError("engine: the reference has no rows; give one or more")
    if masks.ndim not in (2, 3) or masks.shape[-1] != features.d or (masks.ndim == 3 and len(masks) != len(inputs)):
        wanted = f"(K, {features.d}) or ({len(inputs)}, K, {features.d})"
        raise ShapelineError(f"engine: masks have shape {masks.shape}; they must be {wanted}")


def checked_targets(model, inputs, targets) -> np.ndarray:
    targets = np.asarray(targets)
    if targets.shape != (len(inputs),) or not np.issubdtype(targets.dtype, np.integer):
        raise ShapelineError(f"engine: targets have shape {targets.shape}; they must be {len(inputs)} class numbers")
    if model.n_classes is None:
        model.n_classes = model.log_probs(inputs[:1]).shape[1]
    if targets.min() < 0 or targets.max() >= model.n_classes:
        raise ShapelineError(
            f"engine: targets run from {targets.min()} to {targets.max()}; the classes are 0 to {model.n_classes - 1}"
        )
    return targets.astype(np.int64)


def is_apart(masked: np.ndarray, own: np.ndarray, allowed: float = 0.0) -> np.ndarray:
    """Where values of the full coalition are not the model's own answers, beyond how far a batch changes these."""
    least, most = (tolerance * float(np.abs(own).max(initial=0)) for tolerance in FULL_TOLERANCES)
    return np.abs(masked - own) > np.clip(10 * allowed, least, most)


def check_full(name: str, masked: np.ndarray, own: np.ndarray, places: np.ndarray, apart: np.ndarray) -> None:
    """Raise where the model's outputs of rows put together (masked) are apart from those of the rows themselves."""
    if apart.any():
        place = tuple(np.argwhere(apart)[0])
        raise ShapelineError(
            f"engine: model '{name}', instance {{instance}}: it says {own[place]:.6g} of the input and "
            f"{masked[place]:.6g} of the same cells among masked rows; give a model that answers row by row, from the "
            "cells alone",
            int(places[place[0]]),
        )


def check_finite(game, block: np.ndarray, start: int, first: int) -> None:
    """Raise at the first NaN or infinite value of a block (instances, coalitions), naming model, instance and
    coalition."""
    if np.isfinite(block).all():
        return
    row, column = np.argwhere(~np.isfinite(block))[0]
    model, output = game.model, block[row, column]
    where = f"engine: model '{model.architecture}', instance {{instance}}, coalition {first + column}"
    if model.framework == "function" and game.value != PREDICTION and not np.isnan(output):
        raise ShapelineError(
            f'{where}: the probability is 0 or 1 and has no finite log; use value="probability"', start + row
        )
    raise ShapelineError(f"{where}: the output is {output}; check the input and the weights", start + row)
