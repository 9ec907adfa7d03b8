"""Interventional TreeSHAP: exact Shapley values of trees for any number of columns, and of linear models."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.designs.design import log_factorial
from shapeline.errors import name_type, reject
from shapeline.games.game import Game
from shapeline.models.adapters import find_classes, list_transformers
from shapeline.models.pipeline_file import Pipeline

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset

ALTERNATIVES = "use gp_shapley or kernel_shap"
MAX_CELLS = 1 << 23  # rows times nodes of a tree in memory at a time
MAX_NODES = 4096  # of small trees together
MAX_ROWS = 2048  # whose patterns are combined
MAX_PAIRS = 1 << 18  # instances times reference rows times leaves, which fit in the processor's cache
MIXED_ROWS = 512  # masked rows by which a mixture of columns is found
NOBODY = -2  # no player yet; -1 has the inputs that are always present
EFFICIENCY_TOLERANCE = 1e-4  # relative to the values, because functions are evaluated in single precision


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes of one or more trees: children (-1 at a leaf), split x[feature] <= threshold, leaf values."""

    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    value: np.ndarray


def find_value(model: Any) -> str:
    """Return the output that a model's trees sum to: probability, margin (of two classes), centred_logit or
    prediction. Raises ShapelineError."""
    from sklearn import ensemble, tree

    forests = (tree.BaseDecisionTree, ensemble.RandomForestClassifier, ensemble.RandomForestRegressor)
    forests += (ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor)
    boosting = (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor)
    boosting += (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
    is_of_trees = isinstance(model, (*forests, *boosting)) and getattr(model, "n_outputs_", 1) == 1
    if choose_reader(model) is None and not is_of_trees:
        raise reject(
            f"tree_shap: {type(model).__name__} is not a tree model of scikit-learn, XGBoost, LightGBM or CatBoost; "
            f"{ALTERNATIVES}"
        )
    if isinstance(model, forests) and find_classes(model) is not None:
        return "probability"
    return name_link(model)


def name_link(model: Any) -> str:
    """Return the value to which additive parts of a model sum, by its number of classes."""
    classes = find_classes(model)
    return "prediction" if classes is None else "margin" if len(classes) == 2 else "centred_logit"


def read_trees(model: Any) -> Iterator[Tree]:
    """Yield trees whose values (per class, or one for a regression) sum to the model's output up to a constant."""
    if reader := choose_reader(model):
        for *split, value in reader(model):
            yield Tree(*split, _centre_logits(model, value))
        return
    if hasattr(model, "_predictors"):
        groups = len(model._predictors[0]) if model._predictors else 1
        for place, predictor in enumerate(predictor for row in model._predictors for predictor in row):
            nodes = predictor.nodes
            if nodes["is_categorical"].any():
                raise refuse_categories(model)
            inner = ~nodes["is_leaf"].astype(bool)
            left, right = (np.where(inner, nodes[side].astype(int), -1) for side in ("left", "right"))
            split = nodes["feature_idx"].astype(int), nodes["num_threshold"], nodes["missing_go_to_left"].astype(bool)
            value = _place(nodes["value"], place % groups, groups)
            yield Tree(left, right, *split, _centre_logits(model, value))
        return
    members = np.ravel(estimators := getattr(model, "estimators_", [model]))
    for place, member in enumerate(members):
        tree, value = member.tree_, member.tree_.value[:, 0]
        if hasattr(model, "learning_rate"):
            groups = np.shape(estimators)[1]
            value = _centre_logits(model, _place(model.learning_rate * value[:, 0], place % groups, groups))
        else:
            value = (value / value.sum(axis=1, keepdims=True) if hasattr(model, "classes_") else value) / len(members)
        missing = np.asarray(tree.missing_go_to_left, bool)
        yield Tree(tree.children_left, tree.children_right, tree.feature, tree.threshold, missing, value)


def _place(value: np.ndarray, group: int, groups: int) -> np.ndarray:
    """Return leaf values (nodes,) of a tree of one class as logits of all, (nodes, groups)."""
    return value[:, None] * (np.arange(groups) == group)


def _centre_logits(model: Any, logits: np.ndarray) -> np.ndarray:
    """Return contributions (nodes, classes) to centred logits, of two classes to margins; a regression unchanged.

    logits: (nodes, classes), or (nodes, 1) of the second of two classes.
    """
    if find_classes(model) is None:
        return logits
    if logits.shape[1] == 1:
        logits = np.column_stack([np.zeros(len(logits)), logits])
    centred = logits - logits.mean(axis=1, keepdims=True)
    return 2 * centred if logits.shape[1] == 2 else centred


Nodes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Reader = Callable[[Any], Iterator[Nodes]]


def choose_reader(model: Any) -> Reader | None:
    """Return the function that reads the trees of a model of another package; None for other models."""
    return next((read for name, read in READERS.items() if hasattr(model, name)), None)


def _xgboost(model: Any) -> Iterator[Nodes]:
    booster, best = model.get_booster(), getattr(model, "best_iteration", None)
    booster = booster if best is None else booster[: best + 1]  # the trees that predict uses after early stopping
    learner = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    if learner["name"] != "gbtree":
        raise reject(f"tree_shap: XGBoost's {learner['name']} is not a sum of trees; {ALTERNATIVES}")
    groups = 1 + max(learner["model"]["tree_info"], default=0)
    for tree, group in zip(learner["model"]["trees"], learner["model"]["tree_info"], strict=True):
        left = np.array(tree["left_children"])
        if any(tree["split_type"]):
            raise refuse_categories(model)
        if tree["tree_param"]["size_leaf_vector"] > "1":
            raise reject(f"tree_shap: {type(model).__name__} has trees of several outputs; {ALTERNATIVES}")
        inner, number = left >= 0, np.array(tree["split_conditions"], np.float32)
        feature = np.where(inner, tree["split_indices"], 0)
        # x < t in single precision is x <= the number before t.
        threshold = np.nextafter(number, np.float32(-np.inf))
        value = _place(np.where(inner, 0, number).astype(np.float64), group, groups)
        yield left, np.array(tree["right_children"]), feature, threshold, np.array(tree["default_left"], bool), value


def _lightgbm(model: Any) -> Iterator[Nodes]:
    dump = model.booster_.dump_model()

    def read(node: dict) -> tuple | None:
        if "split_feature" not in node:
            return None
        if node["decision_type"] != "<=":
            raise refuse_categories(model)
        if node["missing_type"] == "Zero":
            raise reject(f"tree_shap: {type(model).__name__} takes 0 for missing (zero_as_missing); {ALTERNATIVES}")
        threshold = node["threshold"]
        # If training had no missing cell, LightGBM treats one as 0.
        to_left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
        return node["split_feature"], threshold, to_left, node["left_child"], node["right_child"]

    groups = dump["num_tree_per_iteration"]
    share = groups / len(dump["tree_info"]) if dump["average_output"] else 1  # of boosting_type="rf"
    for tree in dump["tree_info"]:
        *split, value = _flatten(tree["tree_structure"], read, lambda node: share * node["leaf_value"])
        yield *split, _place(value[:, 0], tree["tree_index"] % groups, groups)


def _catboost(model: Any) -> Iterator[Nodes]:
    if model.get_cat_feature_indices() or model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise refuse_categories(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_model(str(Path(folder) / "model.json"), format="json")
        document = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
    columns = {column["feature_index"]: column for column in document["features_info"]["float_features"]}
    scale = document["scale_and_bias"][0]

    def read_split(split: dict) -> tuple[int, float, bool]:
        column = columns[split["float_feature_index"]]
        return column["flat_feature_index"], split["border"], column["nan_value_treatment"] != "AsTrue"

    def read(node: dict) -> tuple | None:
        return (*read_split(node["split"]), node["left"], node["right"]) if "split" in node else None

    for tree in document.get("trees", ()):
        yield _flatten(tree, read, lambda node: scale * np.array(node["value"]))
    for tree in document.get("oblivious_trees", ()):
        values = scale * np.reshape(tree["leaf_values"], (2 ** len(tree["splits"]), -1))
        yield _build_complete_tree([read_split(split) for split in tree["splits"]], values)


def _flatten(root: dict, read: Callable[[dict], tuple | None], read_value: Callable[[dict], Any]) -> Nodes:
    """Return the nodes of nested dicts; read: feature, threshold, missing_left and both children, None for a leaf."""
    queue, rows = [root], []
    for node in queue:
        split = read(node)
        if split is None:
            rows.append((-1, -1, 0, 0.0, False, read_value(node)))
            continue
        rows.append((len(queue), len(queue) + 1, *split[:3], 0.0))
        queue += split[3:]
    *split, values = zip(*rows, strict=True)
    left, right, feature, threshold, missing_left = map(np.array, split)
    width = max(map(np.size, values))
    return left, right, feature, threshold, missing_left, np.stack([np.broadcast_to(value, width) for value in values])


def _build_complete_tree(splits: list[tuple[int, float, bool]], values: np.ndarray) -> Nodes:
    """Return the nodes of a tree with one split per level, the root's last: bit i of a leaf's number is split i."""
    inner = 2 ** len(splits) - 1
    nodes = np.arange(inner)
    level = np.floor(np.log2(nodes + 1)).astype(int)
    split = np.array(splits, float).reshape(-1, 3)[::-1][level]
    ends, none = np.zeros(len(values)), np.full(len(values), -1)
    left = np.concatenate([2 * nodes + 1, none])
    right = np.concatenate([2 * nodes + 2, none])
    feature, threshold, missing_left = (np.concatenate([split[:, column], ends]) for column in range(3))
    value = np.concatenate([np.zeros((inner, values.shape[1])), values])
    return left, right, feature.astype(int), threshold, missing_left.astype(bool), value


def refuse_categories(model: Any) -> Exception:
    """Return the error for a model whose trees have other splits than x <= threshold."""
    return reject(f"tree_shap: {type(model).__name__} splits by categories; {ALTERNATIVES}")


READERS: dict[str, Reader] = {"get_booster": _xgboost, "booster_": _lightgbm, "get_cat_feature_indices": _catboost}


def tree_shap(
    game: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None" = None
) -> tuple[np.ndarray, int]:
    """Return scores (n, d) of interventional TreeSHAP (Lundberg et al. 2020, algorithm 3), averaged over the baseline.

    A leaf counts if the features that only x satisfies are present and those that only the reference satisfies are
    absent. Value: a forest's probability, boosted trees' margin (log_odds with one row) or, of more than two classes,
    centred_logit, or the prediction; raises ShapelineError for others.
    """

    def explain(model: Fitted, rows: tuple[np.ndarray, np.ndarray], owners: np.ndarray, d: int, outputs: np.ndarray):
        additive = find_value(model.last)
        refuse_unless_additive("tree_shap", game, additive, model.last)
        # Whether the splits of a model compare numbers in single precision.
        single = not type(model.last).__name__.startswith("Hist") and choose_reader(model.last) is not _lightgbm
        inputs, baseline = (part.astype(np.float32) if single else part for part in rows)
        if (mark := getattr(model.last, "missing", None)) is not None:  # XGBoost's mark of missing cells
            inputs, baseline = (np.where(part == mark, np.nan, part) for part in (inputs, baseline))
        trees = join_trees(read_trees(model.last))
        return sum(compute_shapley(tree, inputs, baseline, owners, d, outputs) for tree in trees)

    return compose_shapley("tree_shap", game, inputs, targets, dataset, explain)


def join_trees(trees: Iterable[Tree]) -> Iterator[Tree]:
    """Yield the trees, small ones together as one of several roots, since each computation has a fixed cost."""
    joined = None
    for tree in trees:
        if joined is not None and len(joined.left) + len(tree.left) > MAX_NODES:
            yield joined
            joined = None
        joined = tree if joined is None else _join(joined, tree)
    if joined is not None:
        yield joined


def _join(first: Tree, second: Tree) -> Tree:
    """Return the nodes of two trees."""
    left, right = (np.where(side < 0, -1, side + len(first.left)) for side in (second.left, second.right))
    second = replace(second, left=left, right=right)
    return Tree(*(np.concatenate([getattr(tree, part.name) for tree in (first, second)]) for part in fields(Tree)))


def compute_shapley(
    tree: Tree, inputs: np.ndarray, baseline: np.ndarray, owners: np.ndarray, d: int, outputs: np.ndarray
) -> np.ndarray:
    """Return Shapley values (n, d) of rows (n, k) with baseline rows (M, k); owners (k,): features, or -1."""
    scores = np.zeros((len(inputs), d))
    if not (tree.left >= 0).any():
        return scores
    value, step = tree.value[tree.left < 0], np.clip(MAX_CELLS // len(tree.left), 1, MAX_ROWS)
    levels, place, players = list_players(tree, owners)
    for start in range(0, len(baseline), step):
        by_baseline, _ = find_misses(tree, owners, levels, place, baseline[start : start + step])
        references, _, times = list_patterns(by_baseline)
        for first in range(0, len(inputs), step):
            part = slice(first, first + step)
            by_input, lost = find_misses(tree, owners, levels, place, inputs[part])
            scores[part] += _sum_leaves(players, by_input, references, times, value[:, outputs[part]] * ~lost, d)
    return scores / len(baseline)


def list_players(tree: Tree, owners: np.ndarray) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return the inner nodes by level, the roots first, the place of each node's player on its path, (nodes,), and the
    players on the path to each leaf, (leaves, p)."""
    owner = owners[np.maximum(tree.feature, 0)]
    levels, level = [], np.setdiff1d(np.arange(len(owner)), [tree.left, tree.right])
    while len(inner := level[tree.left[level] >= 0]):
        levels.append(inner)
        level = np.concatenate([tree.left[inner], tree.right[inner]])
    most = min(len(levels), len(np.unique(owner[tree.left >= 0])))
    players, number, place = np.full((len(owner), most), NOBODY, np.int32), *np.zeros((2, len(owner)), int)
    for nodes in levels:
        known = players[nodes] == owner[nodes, None]
        place[nodes] = np.where(known.any(axis=1), known.argmax(axis=1), number[nodes])
        children = np.stack([tree.left[nodes], tree.right[nodes]])
        players[children], number[children] = players[nodes], np.maximum(number[nodes], place[nodes] + 1)
        players[children, place[nodes]] = owner[nodes]
    return levels, place, players[tree.left < 0, : place.max() + 1]


def find_misses(tree: Tree, owners: np.ndarray, levels: list[np.ndarray], place: np.ndarray, rows: np.ndarray) -> tuple:
    """Return the players whose conditions on the path to a leaf a row (n, k) misses, as bits of integers (words,
    leaves, n), and whether inputs that are always present keep it from the leaf, (leaves, n); see `list_players`."""
    feature = np.maximum(tree.feature, 0)
    cells, removable = rows.T[feature], (owners[feature] >= 0)[:, None]
    left = np.where(np.isnan(cells), tree.missing_left[:, None], cells <= tree.threshold[:, None])
    kind = np.min_scalar_type(2 ** min(int(place.max()) + 1, 64) - 1)
    misses, lost = np.zeros((place.max() // 64 + 1, *left.shape), kind), np.zeros(left.shape, bool)
    bit = np.left_shift(kind.type(1), (place % 64).astype(kind))[:, None]
    for nodes in levels:
        for child, fails in ((tree.left[nodes], ~left[nodes]), (tree.right[nodes], left[nodes])):
            lost[child] = lost[nodes] | (fails & ~removable[nodes])
            misses[:, child] = misses[:, nodes]
            misses[place[nodes] // 64, child] |= bit[nodes] * (fails & removable[nodes])
    return misses[:, tree.left < 0], lost[tree.left < 0]


def _sum_leaves(
    players: np.ndarray, by_input: np.ndarray, references: np.ndarray, times: np.ndarray, value: np.ndarray, d: int
) -> np.ndarray:
    """Return Shapley values (n, d) of the games of leaves, summed over leaves and the `list_patterns` of baseline rows,
    each counted `times`; value: (leaves, n)."""
    from scipy.sparse import csr_array

    inputs, place, _ = list_patterns(by_input)
    (leaves, most), numbers = players.shape, (place.max(axis=1) + 1, (times > 0).sum(axis=1))
    scores, step = np.zeros((d + 1, value.shape[1])), max(1, MAX_PAIRS // (inputs.shape[2] * references.shape[2]))
    for part in np.split(np.argsort(numbers[0] * numbers[1]), range(step, leaves, step)):
        u, v = (number[part].max() for number in numbers)
        found = _combine_patterns(inputs[:, part, :u], references[:, part, :v], times[part, :v], most).swapaxes(1, 2)
        found = np.take_along_axis(found, place[part, None], axis=2) * value[part, None]
        owner = players[part].ravel() % (d + 1)  # the last: of inputs that are always present
        sum_owners = csr_array((np.ones(len(owner)), owner, np.arange(len(owner) + 1)), (len(owner), d + 1)).T
        scores += sum_owners @ found.reshape(len(owner), -1)
    return scores[:d].T


def list_patterns(misses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return per leaf the distinct patterns in misses (words, leaves, n), (words, leaves, u), which one a row has,
    (leaves, n), and how many rows have it, (leaves, u): none have the repetitions of the last that fill up."""
    order = np.lexsort(misses, axis=-1)
    ordered = np.take_along_axis(misses, order[None], axis=2)
    rank = np.zeros(order.shape, int)
    rank[:, 1:] = (ordered[..., 1:] != ordered[..., :-1]).any(axis=0).cumsum(axis=1)
    patterns = np.repeat(ordered[..., -1:], rank.max() + 1, axis=2)
    np.put_along_axis(patterns, rank[None], ordered, axis=2)
    number = np.empty_like(rank)
    np.put_along_axis(number, order, rank, axis=1)
    cells = rank + patterns.shape[2] * np.arange(len(rank))[:, None]
    return patterns, number, np.bincount(cells.ravel(), minlength=patterns[0].size).reshape(patterns.shape[1:])


def _combine_patterns(inputs: np.ndarray, references: np.ndarray, times: np.ndarray, most: int) -> np.ndarray:
    """Return per leaf the Shapley values of its players, (leaves, u, most), by patterns of inputs (words, leaves, u),
    summed over those of baseline rows (words, leaves, v), each counted `times` (leaves, v).

    A leaf is reachable if no player misses it in both rows; a and b then are the players that one of the rows misses.
    """
    from scipy.sparse import csr_array

    (leaves, u), v = inputs.shape[1:], references.shape[2]
    present_weight, absent_weight = _compute_leaf_weights(most)
    a, b = (np.bitwise_count(side).sum(axis=0, dtype=int).ravel() for side in (references, inputs))
    sides = zip(inputs[..., None], references[:, :, None], strict=True)
    cells = np.flatnonzero(reduce(np.logical_and, ((x & reference) == 0 for x, reference in sides)))
    pair, column = cells // v, cells // (u * v) * v + cells % v
    numbers, times = (a[column], b[pair]), times.ravel()[column]
    ends = np.searchsorted(pair, np.arange(leaves * u + 1))
    gains = csr_array((present_weight[numbers] * times, column, ends), (leaves * u, leaves * v))
    losses = np.bincount(pair, absent_weight[numbers] * times, leaves * u).reshape(leaves, u, 1)
    of_gains, of_losses = (_expand_bits(side, most) for side in (references, inputs))
    return (gains @ of_gains.reshape(-1, most)).reshape(of_losses.shape) - losses * of_losses


def _expand_bits(misses: np.ndarray, most: int) -> np.ndarray:
    """Return the first `most` bits of `find_misses`, (leaves, n, most), as numbers."""
    packed = np.ascontiguousarray(np.moveaxis(misses, 0, 2)).view(np.uint8)
    return np.unpackbits(packed, axis=2, count=most, bitorder="little").astype(np.float64)


@cache
def _compute_leaf_weights(largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return absolute Shapley values (largest + 1, largest + 1) of the game that is 1 if a features are present and b
    absent: (a-1)! b!/(a+b)! of a feature of the former, a! (b-1)!/(a+b)! of one of the latter; 0 if there is none."""
    a, b = np.ogrid[: largest + 1, : largest + 1]
    orders = log_factorial(a + b)
    present = np.exp(log_factorial(np.maximum(a - 1, 0)) + log_factorial(b) - orders) * (a > 0)
    absent = np.exp(log_factorial(a) + log_factorial(np.maximum(b - 1, 0)) - orders) * (b > 0)
    return present, absent


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted pipeline: its last estimator, the preparation of rows (n, columns) as (n, k), and its class numbers."""

    last: Any
    prepare: Callable[[np.ndarray], np.ndarray]
    outputs: np.ndarray | None


def compose_shapley(
    where: str, game: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None", explain: Callable
) -> tuple[np.ndarray, int]:
    """Return Shapley values (n, d) that `explain` reads from the model, after a check of efficiency."""
    if game.reference.given is not None:
        raise reject(f"{where}: absent columns hang on the present ones under reference: conditional; {ALTERNATIVES}")
    fitted, features = open_pipeline(where, game.model.module, dataset), game.features
    rows = game.reference.of(inputs)[0]
    prepared = fitted.prepare(inputs), fitted.prepare(rows)
    owners = find_owners(where, fitted, inputs, rows, features.cells)
    outputs = np.zeros(len(inputs), int) if fitted.outputs is None else fitted.outputs[targets]
    scores = explain(fitted, prepared, owners, features.d, outputs)
    ends = game.values(inputs, np.array([[True], [False]]).repeat(features.d, axis=1), targets)
    gap = np.abs(scores.sum(axis=1) - (ends[:, 0] - ends[:, 1]))
    if (gap > EFFICIENCY_TOLERANCE * (1 + np.abs(ends).sum(axis=1))).any():
        raise reject(
            f"{where}: the scores do not sum to the {game.value} of the {type(fitted.last).__name__} (difference "
            f"{gap.max():.2g}); {ALTERNATIVES}"
        )
    return scores, 2


def open_pipeline(where: str, module: Any, dataset: "Dataset | None") -> Fitted:
    """Return the estimator of a model: a pipeline from a file, or the object of a bound method."""
    owner = getattr(getattr(module, "ask", module), "__self__", None)  # of a bound method
    estimator = module.estimator if isinstance(module, Pipeline) else owner
    if estimator is owner and not (hasattr(owner, "get_params") or choose_reader(owner)):
        raise reject(f"{where}: the model is not an estimator such as XGBClassifier; {ALTERNATIVES}")
    classes, outputs = find_classes(estimator), None
    if classes is not None:
        names = [class_name(label) for label in classes]
        expected = dataset.card["classes"] if isinstance(module, Pipeline) and dataset is not None else names
        order = getattr(module, "order", None)
        outputs = np.array([names.index(name) for name in expected] if order is None else order)
    steps = []
    last = estimator
    while hasattr(last := getattr(last, "best_estimator_", last), "steps"):  # that of a search
        steps += list_transformers(last)
        last = last.steps[-1][1]

    def prepare(rows: np.ndarray) -> np.ndarray:
        data = module.take(rows) if hasattr(module, "take") else rows
        for step in steps:
            data = step.transform(data)
        try:
            if hasattr(data, "iloc"):  # a data frame, whose nullable columns have pd.NA
                return data.to_numpy(np.float64, na_value=np.nan)
            return np.asarray(data.toarray() if hasattr(data, "toarray") else data, np.float64)
        except (TypeError, ValueError) as error:
            raise reject(f"{where}: {name_type(last)} of texts or categories is unsupported; {ALTERNATIVES}") from error

    return Fitted(last, prepare, outputs)


def find_owners(where: str, fitted: Fitted, inputs: np.ndarray, rows: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the feature (k,) of each input of the last step, found by changing columns; no step may mix columns."""
    base, donors = rows[:1], np.concatenate([inputs, rows])
    start = fitted.prepare(base)
    owners = np.full(start.shape[1], -1)  # of inputs that no column changes, which are equal in all rows
    for column in range(base.shape[1]):
        changing = np.repeat(base, len(donors), axis=0)
        changing[:, column] = donors[:, column]
        prepared = fitted.prepare(changing)
        owners[((prepared != start) & ~(np.isnan(prepared) & np.isnan(start))).any(axis=0)] = cells[column]
    # Some steps mix columns of some rows only, such as neighbours for missing cells.
    random = np.random.default_rng(0)
    kept = random.random((MIXED_ROWS, cells.max() + 2)) < random.random((MIXED_ROWS, 1))
    kept[:, -1] = True
    present, absent = (part[random.integers(len(part), size=MIXED_ROWS)] for part in (inputs, rows))
    expected = np.where(kept[:, owners], fitted.prepare(present), fitted.prepare(absent))
    if not np.allclose(fitted.prepare(np.where(kept[:, cells], present, absent)), expected, equal_nan=True):
        raise reject(f"{where}: a step before the {type(fitted.last).__name__} mixes columns; {ALTERNATIVES}")
    return owners


def refuse_unless_additive(where: str, game: Game, additive: str, estimator: Any) -> None:
    """Raise ShapelineError unless the contributions of this estimator's parts sum to the value of the game."""
    rows = 1 if game.reference.rows is None else len(game.reference.rows)
    if game.value != additive and not (additive == "margin" and game.value == "log_odds" and rows == 1):
        if additive == "margin" and game.value == "log_odds":
            raise reject(
                f"{where}: with {rows} reference rows the probability is averaged before log_odds is taken, and no sum "
                f"is left; set value to 'margin', give a reference of one row, or {ALTERNATIVES}"
            )
        raise reject(
            f"{where}: the parts of {name_type(estimator)} add up to its {additive}, not to {game.value}; "
            f"set value to '{additive}', or {ALTERNATIVES}"
        )


def linear_shap(
    game: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None" = None
) -> tuple[np.ndarray, int]:
    """Return sums of w_k (x_k - mean of x0_k) over the inputs k of a feature (Strumbelj & Kononenko 2014), (n, d).

    Value: prediction, margin of two classes, log_odds with one reference row, or centred_logit of more classes; raises
    ShapelineError for others.
    """

    def explain(model: Fitted, rows: tuple[np.ndarray, np.ndarray], owners: np.ndarray, d: int, outputs: np.ndarray):
        weights = np.atleast_2d(np.asarray(getattr(model.last, "coef_", np.zeros((0, 0))), np.float64))
        groups = len(model.last.classes_) if model.outputs is not None and len(model.last.classes_) > 2 else 1
        if weights.size != groups * len(owners):
            each = "weight per class and input" if groups > 1 else "single weight per input"
            raise reject(f"linear_shap: {type(model.last).__name__} has no {each}; {ALTERNATIVES}")
        refuse_unless_additive("linear_shap", game, name_link(model.last), model.last)
        chosen = _centre_logits(model.last, weights.reshape(groups, -1).T).T[outputs]
        return (chosen * (rows[0] - rows[1].mean(axis=0))) @ (owners[:, None] == np.arange(d))

    return compose_shapley("linear_shap", game, inputs, targets, dataset, explain)
