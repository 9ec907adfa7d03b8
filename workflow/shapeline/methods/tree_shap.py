"""Interventional TreeSHAP: exact Shapley values of trees for any number of columns, and of linear models."""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.designs.design import log_factorial
from shapeline.errors import reject
from shapeline.games.game import Game
from shapeline.models.estimators import find_classes, list_transformers
from shapeline.models.pipeline_file import Pipeline

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset
if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes of a tree, the root first: children (-1 at a leaf), split x[feature] <= threshold, leaf values."""

    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    value: np.ndarray


def find_value(model: Any) -> str:
    """What the trees of a model add up to: probability, margin or prediction. ShapelineError of one without trees."""
    from sklearn import ensemble, tree

    forests = (tree.BaseDecisionTree, ensemble.RandomForestClassifier, ensemble.RandomForestRegressor)
    forests += (ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor)
    boosting = (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor)
    boosting += (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
    if choose_reader(model) is None and (
        not isinstance(model, (*forests, *boosting)) or getattr(model, "n_outputs_", 1) != 1
    ):
        raise reject(
            f"tree_shap: {type(model).__name__} is not a tree model of scikit-learn, XGBoost, LightGBM or CatBoost; "
            f"{OTHERS}"
        )
    if find_classes(model) is None:
        return "prediction"
    return "probability" if isinstance(model, forests) else "margin"


def single_precision(model: Any) -> bool:
    """Whether the splits of a model compare numbers in single precision."""
    return not type(model).__name__.startswith("Hist") and choose_reader(model) is not _lightgbm


def read_trees(model: Any) -> Iterator[Tree]:
    """The trees whose values, one a class or one of a regression, add up to what the model says, but for a constant."""
    if reader := choose_reader(model):
        for *split, value in reader(model):
            yield Tree(*split, _split_classes(model, value[:, None]))
        return
    if hasattr(model, "_predictors"):
        for (predictor,) in model._predictors:
            nodes = predictor.nodes
            if nodes["is_categorical"].any():
                raise refuse_categories(model)
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
    return value if find_classes(model) is None else np.column_stack([-value, value])


Nodes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Reader = Callable[[Any], Iterator[Nodes]]


def choose_reader(model: Any) -> Reader | None:
    """What reads the trees of a model by its package; None of another model."""
    return next((read for name, read in READERS.items() if hasattr(model, name)), None)


def _xgboost(model: Any) -> Iterator[Nodes]:
    booster, best = model.get_booster(), getattr(model, "best_iteration", None)
    booster = booster if best is None else booster[: best + 1]  # what predict asks after an early stop
    learner = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    if learner["name"] != "gbtree":
        raise reject(f"tree_shap: XGBoost's {learner['name']} is not a sum of trees; {OTHERS}")
    for tree, group in zip(learner["model"]["trees"], learner["model"]["tree_info"], strict=True):
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
    dump = model.booster_.dump_model()

    def read(node: dict) -> tuple | None:
        if "split_feature" not in node:
            return None
        if node["decision_type"] != "<=":
            raise refuse_categories(model)
        if node["missing_type"] == "Zero":
            raise reject(f"tree_shap: {type(model).__name__} takes 0 for missing (zero_as_missing); {OTHERS}")
        threshold = node["threshold"]
        # Where no cell was missing in training, one is taken for 0.
        to_left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
        return node["split_feature"], threshold, to_left, node["left_child"], node["right_child"]

    for tree in dump["tree_info"]:
        group = tree["tree_index"] % dump["num_tree_per_iteration"]
        sign = _sign(model, group) if dump["num_tree_per_iteration"] > 1 else 1
        yield _flatten(tree["tree_structure"], read, lambda node, sign=sign: sign * node["leaf_value"])


def _catboost(model: Any) -> Iterator[Nodes]:
    if model.get_cat_feature_indices() or model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise refuse_categories(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_model(str(Path(folder) / "model.json"), format="json")
        document = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
    columns = {column["feature_index"]: column for column in document["features_info"]["float_features"]}
    scale = document["scale_and_bias"][0]

    def split_of(split: dict) -> tuple[int, float, bool]:
        column = columns[split["float_feature_index"]]
        return column["flat_feature_index"], split["border"], column["nan_value_treatment"] != "AsTrue"

    def read(node: dict) -> tuple | None:
        return (*split_of(node["split"]), node["left"], node["right"]) if "split" in node else None

    for tree in document.get("trees", ()):
        yield _flatten(tree, read, lambda node: scale * _read_second_class(node["value"]))
    for tree in document.get("oblivious_trees", ()):
        values = np.reshape(tree["leaf_values"], (2 ** len(tree["splits"]), -1))
        added = scale * np.array([_read_second_class(row) for row in values])
        yield _complete([split_of(split) for split in tree["splits"]], added)


def _sign(model: Any, group: int) -> int:
    """Of the trees of two classes that have some each, those of the first count against the second."""
    classes = find_classes(model)
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


def _flatten(root: dict, read: Callable[[dict], tuple | None], value_of: Callable[[dict], float]) -> Nodes:
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
    """Return the nodes of a tree with one split a level, the root's last: bit i of a leaf's number is split i."""
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
    return reject(f"tree_shap: {type(model).__name__} splits by categories; {OTHERS}")


READERS: dict[str, Reader] = {"get_booster": _xgboost, "booster_": _lightgbm, "get_cat_feature_indices": _catboost}


if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset

CELLS = 1 << 22  # instances times reference rows times conditions of a tree that are held at a time


@dataclass(frozen=True, eq=False)
class Paths:
    """Conditions on the ways to leaves; those of one player on one way are a slot, and slots of a leaf adjoin."""

    node: np.ndarray
    is_left: np.ndarray
    slots: np.ndarray
    leaves: np.ndarray
    player: np.ndarray
    leaf: np.ndarray
    value: np.ndarray


def tree_shap(
    game: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None" = None
) -> tuple[np.ndarray, int]:
    """Interventional TreeSHAP (Lundberg et al. 2020, algorithm 3), the mean over the reference rows; scores (n, d).

    A leaf counts where features that only x satisfies are present and those that only the reference satisfies are
    absent. Value: a forest's probability, boosted trees' margin (log_odds with one row), or the prediction;
    ShapelineError else.
    """

    def explain(model: Fitted, rows: tuple[np.ndarray, np.ndarray], owners: np.ndarray, d: int, outputs: np.ndarray):
        additive = find_value(model.last)
        refuse_unless_additive("tree_shap", game, additive, model.last)
        single = single_precision(model.last)
        given, absent = (part.astype(np.float32) if single else part for part in rows)
        return sum(shapley(tree, given, absent, owners, d, outputs) for tree in read_trees(model.last))

    return compose_shapley("tree_shap", game, inputs, targets, dataset, explain)


def shapley(
    tree: Tree, given: np.ndarray, absent: np.ndarray, owners: np.ndarray, d: int, outputs: np.ndarray
) -> np.ndarray:
    """Return Shapley values (n, d) of rows (n, k) against the mean of absent (M, k); owners (k,): features, or -1."""
    from scipy.sparse import csr_array

    paths, n = list_paths(tree, owners), len(given)
    if not len(paths.node):  # a single leaf
        return np.zeros((n, d))
    ours, theirs = (_match_conditions(tree, paths, rows) for rows in (given, absent))
    value = paths.value[:, outputs].T
    free = paths.player < 0
    played = np.flatnonzero(~free)
    total = csr_array((np.ones(len(played)), (played, paths.player[played])), shape=(len(free), d))
    inside, outside = _weights(np.diff(np.append(paths.leaves, len(free))).max())
    scores, step = np.zeros((n, d)), max(1, CELLS // (n * len(free)))
    for start in range(0, len(absent), step):
        other = theirs[None, start : start + step] | free
        mine = ours[:, None] | np.zeros_like(other)
        present, away = mine & ~other, other & ~mine & ~free
        possible = ~np.logical_or.reduceat(~mine & (~other | free), paths.leaves, axis=2)
        a, b = (np.add.reduceat(side, paths.leaves, axis=2, dtype=np.int32) for side in (present, away))
        reach = value[:, None] * possible
        each = present * (reach * inside[a, b])[..., paths.leaf] - away * (reach * outside[a, b])[..., paths.leaf]
        scores += (total.T @ each.sum(axis=1).T).T
    return scores / len(absent)


def list_paths(tree: Tree, owners: np.ndarray) -> Paths:
    """The conditions of a tree's leaves, by leaf and player."""
    inner = np.flatnonzero(tree.left >= 0)
    parent, is_left = np.full(len(tree.left), -1), np.zeros(len(tree.left), bool)
    parent[tree.left[inner]], parent[tree.right[inner]], is_left[tree.left[inner]] = inner, inner, True
    leaves = np.flatnonzero(tree.left < 0)
    steps, at = [], leaves
    while (above := parent[at]).max() >= 0:
        climbing = np.flatnonzero(above >= 0)
        steps.append(np.stack([climbing, above[climbing], is_left[at[climbing]]]))
        at = np.where(above >= 0, above, at)
    leaf, node, left = np.concatenate(steps, axis=1) if steps else np.zeros((3, 0), int)
    player = owners[tree.feature[node]]
    order = np.lexsort([player, leaf])
    leaf, node, left, player = leaf[order], node[order], left[order].astype(bool), player[order]
    new = np.ones(len(leaf), bool)
    new[1:] = (leaf[1:] != leaf[:-1]) | (player[1:] != player[:-1])
    slots = np.flatnonzero(new)
    return Paths(
        node,
        left,
        slots,
        np.searchsorted(leaf[slots], np.arange(len(leaves))),
        player[slots],
        leaf[slots],
        tree.value[leaves],
    )


def _match_conditions(tree: Tree, paths: Paths, rows: np.ndarray) -> np.ndarray:
    """Whether rows (n, k) keep all conditions of each slot, (n, slots)."""
    cells = rows[:, np.maximum(tree.feature, 0)]
    left = np.where(np.isnan(cells), tree.missing_left, cells <= tree.threshold)
    return np.logical_and.reduceat(left[:, paths.node] == paths.is_left, paths.slots, axis=1)


def _weights(most: int) -> tuple[np.ndarray, np.ndarray]:
    """Shapley values (most + 1, most + 1) of the game that wants a features present and b absent: of one of the former,
    (a-1)! b!/(a+b)!, and less that of one of the latter, a! (b-1)!/(a+b)!; 0 where there is none."""
    a, b = np.ogrid[: most + 1, : most + 1]
    whole = log_factorial(a + b)
    inside = np.exp(log_factorial(np.maximum(a - 1, 0)) + log_factorial(b) - whole) * (a > 0)
    outside = np.exp(log_factorial(a) + log_factorial(np.maximum(b - 1, 0)) - whole) * (b > 0)
    return inside, outside


OTHERS = "use gp_shapley or kernel_shap"
UNSEEN = -2
NEAR = 1e-4  # share of the values within which scores must add up: functions are asked in single precision


@dataclass(frozen=True, eq=False)
class Fitted:
    """last: the final estimator; prepare: rows (n, columns) to (n, k); outputs (classes,): its own class numbers."""

    last: Any
    prepare: Callable[[np.ndarray], np.ndarray]
    outputs: np.ndarray | None


def compose_shapley(
    where: str, game: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None", explain: Callable
) -> tuple[np.ndarray, int]:
    """Return Shapley values (n, d) that `explain` reads from the model, checked to add up to both ends."""
    if game.reference.given is not None:
        raise reject(f"{where}: absent columns hang on the present ones under reference: conditional; {OTHERS}")
    fitted, features = open_pipeline(where, game.model.module, dataset), game.features
    rows = game.reference.of(inputs)[0]
    given, absent = fitted.prepare(inputs), fitted.prepare(rows)
    owners = find_owners(where, fitted, inputs, rows, features.cells)
    outputs = np.zeros(len(inputs), int) if fitted.outputs is None else fitted.outputs[targets]
    scores = explain(fitted, (given, absent), owners, features.d, outputs)
    ends = game.values(inputs, np.array([[True], [False]]).repeat(features.d, axis=1), targets)
    gap = np.abs(scores.sum(axis=1) - (ends[:, 0] - ends[:, 1]))
    if (gap > NEAR * (1 + np.abs(ends).sum(axis=1))).any():
        raise reject(
            f"{where}: what the {type(fitted.last).__name__} says is not the sum that its scores are of (they miss "
            f"{game.value} by {gap.max():.2g}); {OTHERS}"
        )
    return scores, 2


def open_pipeline(where: str, module: Any, dataset: "Dataset | None") -> Fitted:
    """The estimator behind a model: a pipeline from a file, or the bound method of an object."""
    estimator = module.estimator if isinstance(module, Pipeline) else _find_estimator(module)
    if estimator is None:
        raise reject(f"{where}: the model is none of scikit-learn and no boosted trees; {OTHERS}")
    classes, outputs = find_classes(estimator), None
    if classes is not None:
        own = [class_name(label) for label in classes]
        named = dataset.card["classes"] if isinstance(module, Pipeline) and dataset is not None else own
        order = getattr(module, "order", None)
        outputs = np.array([own.index(name) for name in named] if order is None else order)
    steps = []
    last = estimator
    while hasattr(last, "steps"):
        steps += list_transformers(last)
        last = last.steps[-1][1]

    def prepare(rows: np.ndarray) -> np.ndarray:
        made = module.take(rows) if hasattr(module, "take") else rows
        for step in steps:
            made = step.transform(made)
        try:
            if hasattr(made, "to_numpy"):  # a data frame, whose nullable columns have pd.NA
                return made.to_numpy(np.float64, na_value=np.nan)
            return np.asarray(made.toarray() if hasattr(made, "toarray") else made, np.float64)
        except (TypeError, ValueError) as error:
            raise reject(f"{where}: a {type(last).__name__} that is given texts is not read; {OTHERS}") from error

    return Fitted(last, prepare, outputs)


def _find_estimator(module: Any) -> Any:
    """The object whose method is asked, also where rows go through a data frame first; None of a function."""
    estimator = getattr(getattr(module, "ask", module), "__self__", None)
    return estimator if hasattr(estimator, "get_params") else None


def find_owners(where: str, fitted: Fitted, inputs: np.ndarray, rows: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the feature (k,) of each input of the last step, found by moving columns; none may be mixed."""
    base, donors = rows[:1], np.concatenate([inputs, rows])
    start = fitted.prepare(base)
    owners = np.full(start.shape[1], UNSEEN)
    for column in range(base.shape[1]):
        moved = np.repeat(base, len(donors), axis=0)
        moved[:, column] = donors[:, column]
        changed = ~are_equal(fitted.prepare(moved), start).all(axis=0)
        if (changed & (owners != UNSEEN) & (owners != cells[column])).any():
            raise reject(f"{where}: a step before the {type(fitted.last).__name__} mixes columns; {OTHERS}")
        owners[changed] = cells[column]
    return np.maximum(owners, -1)  # what no column changes is equal in all rows


def are_equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where numbers are equal, or both missing."""
    return (one == other) | (np.isnan(one) & np.isnan(other))


def refuse_unless_additive(where: str, game: Game, additive: str, estimator: Any) -> None:
    """Refuse a value that the parts of this estimator do not add up to."""
    rows = 1 if game.reference.rows is None else len(game.reference.rows)
    if additive == "margin" and len(estimator.classes_) != 2:
        raise reject(
            f"{where}: {game.value} of {len(estimator.classes_)} classes is not a sum over the parts of a "
            f"{type(estimator).__name__}; {OTHERS}"
        )
    if game.value != additive and not (additive == "margin" and game.value == "log_odds" and rows == 1):
        if additive == "margin" and game.value == "log_odds":
            raise reject(
                f"{where}: with {rows} reference rows the probability is averaged before log_odds is taken, and no sum "
                f"is left; set value: margin, give a reference of one row, or {OTHERS}"
            )
        raise reject(
            f"{where}: the parts of a {type(estimator).__name__} add up to its {additive}, not to {game.value}; "
            f"set value: {additive}, or {OTHERS}"
        )


def linear_shap(
    game: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None" = None
) -> tuple[np.ndarray, int]:
    """Sums of w_k (x_k - mean of x0_k) over the inputs k of a feature (Strumbelj & Kononenko 2014), (n, d).

    Value: prediction, margin of two classes, or log_odds with one reference row; raises ShapelineError for others.
    """

    def explain(model: Fitted, rows: tuple[np.ndarray, np.ndarray], owners: np.ndarray, d: int, outputs: np.ndarray):
        weights = np.asarray(getattr(model.last, "coef_", np.zeros((0, 0))), np.float64)
        if weights.size != len(owners):
            classes = len(getattr(model.last, "classes_", ()))
            of = f" of {classes} classes" if classes > 2 else ""
            raise reject(f"linear_shap: {type(model.last).__name__}{of} has no single weight per input; {OTHERS}")
        refuse_unless_additive("linear_shap", game, "prediction" if model.outputs is None else "margin", model.last)
        sign = 1.0 if model.outputs is None else 2.0 * outputs[:, None] - 1
        parts = sign * weights.ravel() * (rows[0] - rows[1].mean(axis=0))
        return parts @ (owners[:, None] == np.arange(d))

    return compose_shapley("linear_shap", game, inputs, targets, dataset, explain)
