"""What an object that predicts tells of itself, by the interface of scikit-learn, XGBoost, LightGBM or CatBoost."""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import numpy as np

LOGISTIC, SOFTMAX = "binary:logistic", ("multi:softprob", "multi:softmax")


def classes_of(model: Any) -> Sequence | None:
    """The classes that a model was fitted on; None of a regression and of what does not tell."""
    classes = getattr(model, "classes_", None)
    return None if classes is None or len(classes) == 0 else classes  # CatBoost's regressions have an empty list


def columns_of(model: Any) -> Sequence[str] | None:
    """The columns of the data frame that a model was fitted on; None of arrays."""
    names = getattr(model, "feature_names_in_", None)
    if names is None and hasattr(model, "get_cat_feature_indices"):  # CatBoost's own name for them
        names = model.feature_names_
        return None if names is None or list(names) == [str(place) for place in range(len(names))] else names
    return names


def width_of(model: Any) -> int | None:
    """How many columns a model takes; None where it does not tell."""
    named = getattr(model, "feature_names_", None)  # a CatBoost model that was read from a file counts none
    return getattr(model, "n_features_in_", None) or (None if named is None else len(named))


def probabilities_of(model: Any) -> Callable[[Any], np.ndarray]:
    """The method of an object that gives probabilities (n, classes) of rows.

    XGBoost's own are in single precision, whose 1 - p has few digits where p is near 1: they are made of its margins.
    """
    last = model[-1] if hasattr(model, "steps") and hasattr(model, "__getitem__") else model
    if hasattr(last, "get_booster") and getattr(last, "objective", None) in (LOGISTIC, *SOFTMAX):
        return MethodType(_of_margins, model)
    return model.predict_proba


def _of_margins(model: Any, rows: Any) -> np.ndarray:
    """Probabilities (n, classes) float64 of an XGBoost classifier, or of a pipeline that ends in one."""
    from scipy.special import expit, softmax

    last = model
    if hasattr(model, "steps"):
        last, rows = model[-1], model[:-1].transform(rows) if len(model.steps) > 1 else rows
    margins = last.predict(rows, output_margin=True).astype(np.float64)
    if margins.ndim == 1:
        return np.column_stack([expit(-margins), expit(margins)])
    return softmax(margins, axis=1)
