"""The trees of a fitted model, and what they add up to: those of scikit-learn here, others by boosted.py."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.errors import unsupported
from shapeline.methods import boosted
from shapeline.methods.sklearn_steps import OTHERS
from shapeline.models.estimators import classes_of


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes of a tree, the root first: children (-1 at a leaf), the split x[feature] <= threshold, where a missing cell
    goes, and what a leaf adds, value (nodes, outputs)."""

    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    value: np.ndarray


def value_of(model: Any) -> str:
    """What the trees of a model add up to: probability, margin or prediction. ShapelineError of one without trees."""
    from sklearn import ensemble, tree

    forests = (tree.BaseDecisionTree, ensemble.RandomForestClassifier, ensemble.RandomForestRegressor)
    forests += (ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor)
    boosting = (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor)
    boosting += (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
    if boosted.reader_of(model) is None and (
        not isinstance(model, (*forests, *boosting)) or getattr(model, "n_outputs_", 1) != 1
    ):
        raise unsupported(
            f"tree_shap: {type(model).__name__} is no trees of scikit-learn's, XGBoost's, LightGBM's or CatBoost's; "
            f"{OTHERS}"
        )
    if classes_of(model) is None:
        return "prediction"
    return "probability" if isinstance(model, forests) else "margin"


def single_precision(model: Any) -> bool:
    """Whether the splits of a model compare numbers in single precision."""
    return not (type(model).__name__.startswith("Hist") or boosted.is_double(model))


def trees_of(model: Any) -> Iterator[Tree]:
    """The trees whose values, one a class or one of a regression, add up to what the model says, but for a constant."""
    if reader := boosted.reader_of(model):
        for *split, value in reader(model):
            yield Tree(*split, _split_classes(model, value[:, None]))
        return
    if hasattr(model, "_predictors"):
        for (predictor,) in model._predictors:
            nodes = predictor.nodes
            if nodes["is_categorical"].any():
                raise boosted.refuse_categories(model)
            inner = ~nodes["is_leaf"].astype(bool)
            left, right = (np.where(inner, nodes[side].astype(int), -1) for side in ("left", "right"))
            split = nodes["feature_idx"].astype(int), nodes["num_threshold"], nodes["missing_go_to_left"].astype(bool)
            yield Tree(left, right, *split, _split_classes(model, nodes["value"][:, None]))
        return
    members = np.ravel(getattr(model, "estimators_", [model]))
    for member in members:
        tree, value = member.tree_, member.tree_.value[:, 0]
        if hasattr(model, "learning_rate"):
            value = _split_classes(model, model.learning_rate * value)
        else:
            value = (value / value.sum(axis=1, keepdims=True) if hasattr(model, "classes_") else value) / len(members)
        missing = np.asarray(tree.missing_go_to_left, bool)
        yield Tree(tree.children_left, tree.children_right, tree.feature, tree.threshold, missing, value)


def _split_classes(model: Any, value: np.ndarray) -> np.ndarray:
    """The margin of the second of two classes, (nodes, 1), as what it adds to each; of a regression as it is."""
    return value if classes_of(model) is None else np.column_stack([-value, value])
