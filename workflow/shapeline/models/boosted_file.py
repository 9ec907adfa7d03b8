"""Boosted trees in files of XGBoost, LightGBM or CatBoost, which hold no code, by their own estimators."""

import importlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.errors import ShapelineError
from shapeline.models.estimators import find_columns, find_fitted_columns, find_probabilities
from shapeline.models.pipeline_file import Pipeline, check_columns
from shapeline.models.registry import BOOSTED, explain_missing

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class LightGBM:
    """The booster of a .txt file as an estimator; classes_, feature_names_in_: or None."""

    booster_: Any
    classes_: np.ndarray | None
    feature_names_in_: list[str] | None

    @property
    def n_features_in_(self) -> int:
        return self.booster_.num_feature()

    def predict(self, rows: Any) -> np.ndarray:
        """Predictions (n,)."""
        return self.booster_.predict(rows)

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Probabilities (n, classes)."""
        predictions = self.booster_.predict(rows)
        return np.column_stack([1 - predictions, predictions]) if predictions.ndim == 1 else predictions


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Pipeline:
    """Return the model in a file's bytes, checked against `known` kind, columns and classes. Raises ShapelineError."""
    suffix = Path(source).suffix
    if problem := explain_missing(suffix):
        raise ShapelineError(f"models: {source}: {problem}")
    if known["kind"] != "table":
        raise ShapelineError(
            f"models: {source} takes tables, and the dataset is of kind {known['kind']}; give another model or dataset"
        )
    package = BOOSTED[suffix]
    try:
        estimator, classes = OPENED[package](content)
    except _failures(package) as error:
        reason = next((line for line in str(error).splitlines() if line), type(error).__name__)
        raise ShapelineError(
            f"models: {source} cannot be read as a file of {package} ({reason}); save it again with save_model"
        ) from error
    check_columns(source, estimator, [column["name"] for column in known["columns"]])
    _check_numbers(source, estimator, known["columns"])
    if (classes is None) != (task == "regression"):
        what, remedy = ("no classifier", "set the dataset's task: regression")
        if task == "regression":
            what, remedy = "no regression", "remove the dataset's task"
        raise ShapelineError(f"models: {source} holds {what}; {remedy}, or give another file")
    if classes is None:
        return Pipeline(content, known["columns"], estimator, estimator.predict)
    order, ask = _order(source, classes, list(known["classes"])), find_probabilities(estimator)
    return Pipeline(content, known["columns"], estimator, lambda rows: ask(rows)[:, order], order)


def _xgboost(content: bytes) -> tuple[Any, Any]:
    import json

    import xgboost

    if not content.startswith(b"{"):  # some others end the process
        raise ValueError("it begins as neither JSON nor UBJSON do")
    booster = xgboost.Booster(model_file=bytearray(content))
    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    classifier = objective.startswith(("binary:", "multi:"))
    estimator = xgboost.XGBClassifier() if classifier else xgboost.XGBRegressor()
    estimator.load_model(bytearray(content))
    return estimator, estimator.classes_ if classifier else None


def _lightgbm(content: bytes) -> tuple[Any, Any]:
    import lightgbm

    booster = lightgbm.Booster(model_str=content.decode())
    objective, groups = booster.dump_model(num_iteration=1).get("objective", ""), booster.num_model_per_iteration()
    classifier = objective.startswith(("binary", "multiclass", "cross_entropy"))
    names = booster.feature_name()
    unnamed = names == [f"Column_{place}" for place in range(len(names))]
    classes = np.arange(max(2, groups)) if classifier else None
    return LightGBM(booster, classes, None if unnamed else names), classes


def _catboost(content: bytes) -> tuple[Any, Any]:
    import catboost

    estimator = catboost.CatBoostClassifier()
    estimator.load_model(blob=content)
    if len(estimator.classes_):
        return estimator, estimator.classes_
    estimator = catboost.CatBoostRegressor()
    estimator.load_model(blob=content)
    return estimator, None


FAILURES = {
    "xgboost": ("xgboost.core", "XGBoostError"),
    "lightgbm": ("lightgbm.basic", "LightGBMError"),
    "catboost": ("catboost", "CatBoostError"),
}
OPENED = {"xgboost": _xgboost, "lightgbm": _lightgbm, "catboost": _catboost}


def _failures(package: str) -> tuple[type[Exception], ...]:
    """What a package raises for a file that it cannot read."""
    module, name = FAILURES[package]
    return ValueError, TypeError, KeyError, getattr(importlib.import_module(module), name)


def _check_numbers(source: str, estimator: Any, columns: list[dict]) -> None:
    """ShapelineError where columns hold what these trees are not asked of: CatBoost alone codes texts by itself."""
    named = find_columns(estimator)
    if named is not None and hasattr(estimator, "get_cat_feature_indices"):
        return
    for column in columns:
        known = named is None or column["name"] in find_fitted_columns(estimator, [each["name"] for each in columns])
        if known and ("values" in column if named is None else column["type"] in ("text", "category")):
            raise ShapelineError(
                f"models: {source} takes numbers and column '{column['name']}' holds categories; encode it in the "
                "file, or save a pipeline that does with skops"
            )


def _order(source: str, own: Any, classes: list[str]) -> list[int]:
    """Return the model's number of each class of the dataset: by name, in order where the model has numbers."""
    names = [class_name(label) for label in own]
    if sorted(names) == sorted(classes):
        return [names.index(name) for name in classes]
    if len(names) == len(classes) and names == [str(number) for number in range(len(names))]:
        log.info("%s: its classes are numbers, taken in the order of %s", source, ", ".join(classes))
        return list(range(len(classes)))
    raise ShapelineError(
        f"models: {source} has the classes {', '.join(names)} and the dataset has {', '.join(classes)}; they must be "
        "the same"
    )
