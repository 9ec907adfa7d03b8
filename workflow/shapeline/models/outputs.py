"""What a network gives, logits or probabilities, which become their logarithms: detected by evaluating it."""

from types import ModuleType
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.memory import ran_out

KINDS = ("logits", "probabilities")
ROWS = 4  # of the inputs that are evaluated; logits nearly always leave 0..1 there
SCALES = (0.0, -1.0, 0.5, 3.0, -30.0, 30.0, -1e5, 1e5)  # of the rows, at which logits leave 0..1
UNEQUAL = 1e-3  # by which probabilities may miss 1, and vary without being constant


def detect(made_by: ModuleType, module: Any, inputs: Any, name: str, batch: int = ROWS) -> str:
    """Return "logits" or "probabilities" of a network on inputs (n, *input shape).

    Numbers outside 0..1 are logits; within, the last operation decides, else rows far from the inputs. Raises
    ShapelineError where both fit.
    """
    rows = _as_array(inputs)
    given = _within(made_by.outputs(module, rows, batch))
    if given is None:
        return "logits"
    last = made_by.last_operation(module, rows)
    if (last == "softmax" and _sums_to_one(given)) or last == "sigmoid":
        return "probabilities"
    far = _far_away(made_by, module, rows, given.shape[1], batch)
    return "logits" if far is None else kind_of(np.concatenate([given, far]), name, linear=last == "linear")


def kind_of(given: np.ndarray, name: str, linear: bool = False) -> str:
    """Return what outputs (n, k) near and far are; linear: known to be of such a layer. ShapelineError where both
    fit."""
    if not len(given) or given.min() < 0 or given.max() > 1 + UNEQUAL:
        return "logits"
    together = given.shape[1] > 1
    sums = together and _sums_to_one(given)
    if np.ptp(given, axis=0).max() > UNEQUAL and (sums or not together):
        return "probabilities"
    if linear and not sums:
        return "logits"
    among = " and sum to 1" if sums else " without summing to 1, as those of several labels do" if together else ""
    raise ShapelineError(
        f"model '{name}': its outputs lie between 0 and 1{among}, so they may be logits or probabilities; give "
        'outputs="probabilities" or outputs="logits" (in a configuration, the key outputs of the model)'
    )


def are_of_several_labels(made_by: ModuleType, module: Any, inputs: Any) -> bool:
    """Return whether probabilities of a network are those of labels that go together, which do not sum to 1."""
    given = made_by.outputs(module, _as_array(inputs))
    return given is not None and given.shape[1] > 1 and not _sums_to_one(given[np.isfinite(given).all(1)])


def _as_array(inputs: Any) -> np.ndarray:
    rows = inputs[:ROWS]
    return rows.detach().cpu().numpy() if hasattr(rows, "detach") else np.asarray(rows)


def _within(given: np.ndarray | None) -> np.ndarray | None:
    """The finite rows of outputs where all lie in 0..1 (bfloat16 rounds), else None."""
    if given is None:
        return None
    given = given[np.isfinite(given).all(1)]
    return given if len(given) and given.min() >= 0 and given.max() <= 1 + UNEQUAL else None


def _sums_to_one(given: np.ndarray) -> bool:
    return bool((np.abs(given.sum(1) - 1) <= UNEQUAL * given.shape[1]).all())


def _far_away(made_by: ModuleType, module: Any, rows: np.ndarray, width: int, batch: int) -> np.ndarray | None:
    """Outputs of rows away from the inputs, or of their tokens in another order, where all lie in 0..1, else None; none
    where the network fails."""
    shape, random = (len(SCALES), *rows.shape[1:]), np.random.default_rng(0)
    if np.issubdtype(rows.dtype, np.integer):
        chosen = random.choice(rows.ravel(), shape)
    else:
        scales = np.array(SCALES).reshape(-1, *[1] * (rows.ndim - 1))
        chosen = scales * (rows[:1] + (np.abs(rows).max() or 1) * random.standard_normal(shape) / 10)
    try:
        given = made_by.outputs(module, chosen, batch)
    except Exception as error:  # a network need not take such rows; what it raises is its own
        if ran_out(error):
            raise
        given = None
    nothing = given is None or not np.isfinite(given).all(1).any()
    return np.empty((0, width)) if nothing else _within(given)
