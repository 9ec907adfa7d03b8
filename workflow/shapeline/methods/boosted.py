"""The trees of XGBoost, LightGBM and CatBoost, read from what these packages write of a model.

Of each tree: children (nodes,), -1 at a leaf, the split x[feature] <= threshold, whether a missing cell goes left, and
what a leaf adds to the margin of the second of two classes, or to the prediction.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shapeline.errors import unsupported
from shapeline.methods.sklearn_steps import OTHERS
from shapeline.models.estimators import classes_of

Nodes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Reader = Callable[[Any], Iterator[Nodes]]


def reader_of(model: Any) -> Reader | None:
    """What reads the trees of a model by its package; None of another model."""
    return next((read for name, read in READERS.items() if hasattr(model, name)), None)


def is_double(model: Any) -> bool:
    """Whether its splits compare numbers in double precision, as LightGBM's do."""
    return reader_of(model) is _lightgbm


def _xgboost(model: Any) -> Iterator[Nodes]:
    booster, best = model.get_booster(), getattr(model, "best_iteration", None)
    booster = booster if best is None else booster[: best + 1]  # what predict asks after an early stop
    said = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    if said["name"] != "gbtree":
        raise unsupported(f"tree_shap: XGBoost's {said['name']} is no sum of trees; {OTHERS}")
    for tree, group in zip(said["model"]["trees"], said["model"]["tree_info"], strict=True):
        left = np.array(tree["left_children"])
        if any(tree["split_type"]):
            raise refuse_categories(model)
        inner, number = left >= 0, np.array(tree["split_conditions"], np.float32)
        feature = np.where(inner, tree["split_indices"], 0)
        # x < t of single precision: x <= the number before t.
        threshold = np.nextafter(number, np.float32(-np.inf))
        value = np.where(inner, 0, number).astype(np.float64) * _sign(model, group)
        yield left, np.array(tree["right_children"]), feature, threshold, np.array(tree["default_left"], bool), value


def _lightgbm(model: Any) -> Iterator[Nodes]:
    said = model.booster_.dump_model()

    def read(node: dict) -> tuple | None:
        if "split_feature" not in node:
            return None
        if node["decision_type"] != "<=":
            raise refuse_categories(model)
        if node["missing_type"] == "Zero":
            raise unsupported(f"tree_shap: {type(model).__name__} takes 0 for missing (zero_as_missing); {OTHERS}")
        threshold = node["threshold"]
        # Where no cell was missing in training, one is taken for 0.
        to_left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
        return node["split_feature"], threshold, to_left, node["left_child"], node["right_child"]

    for tree in said["tree_info"]:
        group = tree["tree_index"] % said["num_tree_per_iteration"]
        sign = _sign(model, group) if said["num_tree_per_iteration"] > 1 else 1
        yield _flattened(tree["tree_structure"], read, lambda node, sign=sign: sign * node["leaf_value"])


def _catboost(model: Any) -> Iterator[Nodes]:
    if model.get_cat_feature_indices() or model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise refuse_categories(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_model(str(Path(folder) / "model.json"), format="json")
        said = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
    columns = {column["feature_index"]: column for column in said["features_info"]["float_features"]}
    scale = said["scale_and_bias"][0]

    def split_of(split: dict) -> tuple[int, float, bool]:
        column = columns[split["float_feature_index"]]
        return column["flat_feature_index"], split["border"], column["nan_value_treatment"] != "AsTrue"

    def read(node: dict) -> tuple | None:
        return (*split_of(node["split"]), node["left"], node["right"]) if "split" in node else None

    for tree in said.get("trees", ()):
        yield _flattened(tree, read, lambda node: scale * _read_second_class(node["value"]))
    for tree in said.get("oblivious_trees", ()):
        values = np.reshape(tree["leaf_values"], (2 ** len(tree["splits"]), -1))
        added = scale * np.array([_read_second_class(row) for row in values])
        yield _complete([split_of(split) for split in tree["splits"]], added)


def _sign(model: Any, group: int) -> int:
    """Of the trees of two classes that have some each, those of the first count against the second."""
    classes = classes_of(model)
    return -1 if classes is not None and _groups(model) == 2 and group == 0 else 1


def _groups(model: Any) -> int:
    """Groups of trees, one a class; of two classes usually one."""
    if hasattr(model, "booster_"):
        return model.booster_.num_model_per_iteration()
    return 2 if str(getattr(model, "objective", "")).startswith("multi:") else 1


def _read_second_class(value: float | np.ndarray | list) -> float:
    """What a leaf adds to the margin of the second class, also where it has a number for each of two."""
    numbers = np.ravel(value)
    return float(numbers[0] if len(numbers) == 1 else numbers[1] - numbers[0])


def _flattened(root: dict, read: Callable[[dict], tuple | None], value_of: Callable[[dict], float]) -> Nodes:
    """Nodes of nested dicts; read: feature, threshold, missing_left and both children, None of a leaf."""
    waiting, rows = [root], []
    for node in waiting:
        split = read(node)
        if split is None:
            rows.append((-1, -1, 0, 0.0, False, value_of(node)))
            continue
        rows.append((len(waiting), len(waiting) + 1, *split[:3], 0.0))
        waiting += split[3:]
    left, right, feature, threshold, missing_left, value = map(np.array, zip(*rows, strict=True))
    return left, right, feature, threshold, missing_left, value


def _complete(splits: list[tuple[int, float, bool]], values: np.ndarray) -> Nodes:
    """Nodes of a tree that asks the same of all nodes of a level: bit i of a leaf's number says what split i said.

    The last split is the root's, so that leaves are in the order of their numbers.
    """
    inner = 2 ** len(splits) - 1
    nodes = np.arange(inner)
    level = np.floor(np.log2(nodes + 1)).astype(int)
    asked = np.array(splits, float).reshape(-1, 3)[::-1][level]
    ends, none = np.zeros(len(values)), np.full(len(values), -1)
    left = np.concatenate([2 * nodes + 1, none])
    right = np.concatenate([2 * nodes + 2, none])
    feature, threshold, missing_left = (np.concatenate([asked[:, column], ends]) for column in range(3))
    value = np.concatenate([np.zeros(inner), values])
    return left, right, feature.astype(int), threshold, missing_left.astype(bool), value


def refuse_categories(model: Any) -> Exception:
    """The refusal of a model whose trees ask for more than x <= threshold."""
    return unsupported(f"tree_shap: {type(model).__name__} splits by categories; {OTHERS}")


READERS: dict[str, Reader] = {"get_booster": _xgboost, "booster_": _lightgbm, "get_cat_feature_indices": _catboost}
