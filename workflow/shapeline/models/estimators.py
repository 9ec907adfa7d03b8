"""What an object that predicts tells of itself, by the interface of scikit-learn, XGBoost, LightGBM or CatBoost."""

import re
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError

LOGISTIC, SOFTMAX = "binary:logistic", ("multi:softprob", "multi:softmax")


def find_classes(model: Any) -> Sequence | None:
    """The classes that a model was fitted on; None of a regression and of what does not tell."""
    classes = getattr(model, "classes_", None)
    return None if classes is None or len(classes) == 0 else classes  # CatBoost's regressions have an empty list


def find_columns(model: Any) -> Sequence[str] | None:
    """The columns of the data frame that a model was fitted on; None of arrays."""
    names = getattr(model, "feature_names_in_", None)
    if names is None and hasattr(model, "get_cat_feature_indices"):  # CatBoost's own name for them
        names = model.feature_names_
        return None if names is None or list(names) == [str(place) for place in range(len(names))] else names
    return names


def find_fitted_columns(model: Any, labels: Sequence) -> list | None:
    """Return the columns that a model was fitted on by a data frame's labels, or None."""
    fitted = find_columns(model)
    if fitted is None:
        return None
    known = {re.sub(r"\s", "_", str(label)): label for label in labels} | {str(label): label for label in labels}
    return [known.get(str(name), name) for name in fitted]


def find_width(model: Any) -> int | None:
    """How many columns a model takes; None where it does not tell."""
    named = getattr(model, "feature_names_", None)  # a CatBoost model that was read from a file counts none
    return getattr(model, "n_features_in_", None) or (None if named is None else len(named))


def find_probabilities(model: Any) -> Callable[[Any], np.ndarray]:
    """Return an object's method of probabilities (n, classes); XGBoost's of its margins, which have more digits."""
    last = model
    while hasattr(last, "steps") and hasattr(last, "__getitem__"):
        last = last[-1]
    if hasattr(last, "get_booster") and getattr(last, "objective", None) in (LOGISTIC, *SOFTMAX):
        return MethodType(_convert_margins, model)
    return model.predict_proba


def unwrap_booster(model: Any) -> Any:
    """LightGBM's own Booster of several classes as the method of their probabilities; else the model."""
    several = hasattr(model, "num_model_per_iteration") and model.num_model_per_iteration() > 1
    return model.predict if several else model


def find_owner(model: Any) -> Any:
    """The object whose bound method a function is, where it is an estimator; else the model itself."""
    owner = getattr(model, "__self__", None)
    return owner if hasattr(owner, "get_params") else model


def list_transformers(pipeline: Any) -> list:
    """The steps before the last one that rows go through when it predicts: a sampler is of training alone."""
    steps = [step for _, step in pipeline.steps[:-1] if step not in (None, "passthrough")]
    return [step for step in steps if hasattr(step, "transform")]


def check_explainable(model: Any) -> None:
    """ShapelineError, which names what works, for an object whose answers are no probabilities and no predictions."""
    estimator = find_owner(model)
    name, classes = type(estimator).__name__, find_classes(estimator)
    kind = getattr(model, "__name__", "") if estimator is not model else ""
    module = type(estimator).__module__.partition(".")[0]
    if module == "xgboost" and name == "Booster":
        raise _unexplainable(
            name,
            "takes a DMatrix",
            "the XGBClassifier or XGBRegressor, or lambda rows: model.predict(xgboost.DMatrix(rows))",
        )
    if module == "catboost" and name == "CatBoost" and classes is not None and not kind:
        own = "lambda rows: model.predict(rows, prediction_type='Probability')"
        raise _unexplainable(name, "gives margins and no probabilities", f"the CatBoostClassifier, or {own}")
    if classes is not None and isinstance(classes[0], np.ndarray | list) and kind in ("", "predict_proba"):
        raise _unexplainable(
            name,
            f"gives {len(classes)} labels a row",
            "one of them, as lambda rows: model.predict_proba(rows)[0] (of a ClassifierChain [:, 0]), whose "
            "class_names are model.classes_[0]",
        )
    if classes is not None and len(classes) == 1 and kind in ("", "predict_proba"):
        raise _unexplainable(
            name,
            f"has one class, '{classes[0]}', so that there is nothing to explain",
            "a model that was fitted on rows of two classes or more",
        )
    if kind not in ("", "predict") or (hasattr(estimator, "predict_proba") and not kind):
        return
    if classes is not None and (kind == "predict" or hasattr(estimator, "predict")):
        own = "lambda rows: model.decision_function(rows)" + ("[:, 0]" if len(classes) > 2 else "")
        remedy = f"the model in sklearn's CalibratedClassifierCV, or {own} with value='prediction'"
        if hasattr(estimator, "predict_proba"):
            remedy = "model.predict_proba, or the model itself"
        elif name == "VotingClassifier":
            remedy = "the model with voting='soft'"
        elif not hasattr(estimator, "decision_function"):
            remedy = "lambda rows: (model.predict(rows) == model.classes_[0]).astype(float), 1 where that is the label"
        raise _unexplainable(name, "returns labels, not probabilities", remedy)
    if hasattr(estimator, "predict_proba"):
        return
    own = "lambda rows: model.transform(rows)[:, 0]"
    if not hasattr(estimator, "predict") and hasattr(estimator, "transform"):
        raise _unexplainable(name, "gives no predictions", f"{own} with value='prediction'")
    marks = [method for method in ("decision_function", "score_samples", "fit_predict") if hasattr(estimator, method)]
    if marks:
        remedy = f"model.{marks[0]}"
        if marks == ["fit_predict"]:
            remedy = own if hasattr(estimator, "transform") else "a function that gives a number per row,"
        raise _unexplainable(name, "predicts groups, not probabilities", f"{remedy} with value='prediction'")


def _unexplainable(name: str, what: str, remedy: str) -> ShapelineError:
    return ShapelineError(f"models: a {name} {what}; give {remedy}")


def _convert_margins(model: Any, rows: Any) -> np.ndarray:
    """Probabilities (n, classes) float64 of an XGBoost classifier, or of a pipeline that ends in one."""
    from scipy.special import expit, softmax

    last = model
    while hasattr(last, "steps"):
        for step in list_transformers(last):
            rows = step.transform(rows)
        last = last[-1]
    margins = last.predict(rows, output_margin=True).astype(np.float64)
    if margins.ndim == 1:
        return np.column_stack([expit(-margins), expit(margins)])
    return softmax(margins, axis=1)
