"""The reference of a model whose columns hold whole numbers."""

import dataclasses
import logging

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.games.references import Reference
from shapeline.models.classifier import Classifier

log = logging.getLogger(__name__)
PROBED = 16  # rows that a model is evaluated on as whole and as real numbers
ALIKE = 1e-9  # of the largest answer


def settle_reference(model: Classifier, inputs: np.ndarray, reference: Reference) -> tuple[Classifier, Reference]:
    """Return the model and a reference that fits its columns of whole numbers: a mean, or one rounded where they are
    codes."""
    table = getattr(model.module, "table", None)
    if model.framework != "function" or table is None or table.names is None or reference.rows is None:
        return model, reference
    whole = [place for place, column in enumerate(table.columns) if column.is_whole]
    cells = reference.rows[:, whole]
    if not (np.abs(cells - np.rint(cells)) > 0).any():
        return model, reference
    real = dataclasses.replace(model, module=dataclasses.replace(model.module, table=table.convert_to_reals()))
    if answers_alike((model, inputs), (real, inputs)):
        return real, reference
    log.info("reference: columns of whole numbers are rounded, which model '%s' takes alone", model.architecture)
    rows = reference.rows.copy()
    rows[:, whole] = np.rint(cells)
    return model, dataclasses.replace(reference, rows=rows)


def answers_alike(*pairs: tuple[Classifier, np.ndarray]) -> bool:
    """Return whether two models with inputs give the same answers; not of one that takes no such numbers."""
    try:
        own, other = (
            np.nan_to_num((model.predict if model.task == "regression" else model.log_probs)(inputs[:PROBED]))
            for model, inputs in pairs
        )
    except ShapelineError:
        return False
    return np.abs(own - other).max() <= ALIKE * np.abs(own).max()
