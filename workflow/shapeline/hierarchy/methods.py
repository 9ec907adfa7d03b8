"""Hierarchical methods: h-Shap and Owen values on trees defined by the user, and both for the registry.

Trees: superpixels, groups, any partition. The methods of the registry run on the device where the features are single
cells, else by masks.
"""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shapeline.designs.design import check_integer
from shapeline.errors import MethodFailure, ShapelineError, is_installed, locate_input
from shapeline.games.game import Game
from shapeline.hierarchy import exploration
from shapeline.hierarchy.exploration import (
    MAX_MASK_BYTES,
    NO_RELEVANT_NODE,
    Evaluate,
    Exploration,
    HShap,
    Tally,
    call_game,
    encode,
    explore_trees,
    halve,
    image_sides,
)

MAX_CHILDREN = 10  # children of a node, which costs 2^children evaluations
# Share of the range of v. A float32 model's values differ by 1e-7 with the position in a batch, so that with
# exploration.TOLERANCE, for exact games, the explored empty quadrants would depend on the batch.
TOLERANCE = 1e-6
# Frameworks that evaluate coalitions on the device: modules by name, so that a job imports only one framework.
DEVICE_EVALUATORS = dict.fromkeys(("torch", "function"), "shapeline.hierarchy.torch_evaluator")
MAX_BLOCK_BYTES = 1 << 26  # inputs and masks per call of the engine

Scored = tuple[np.ndarray, np.ndarray, dict[str, Sequence]]


@dataclass(frozen=True, eq=False)
class Forest:
    """The partition trees of several instances, in one table of nodes.

    A node's leaves are adjacent in the tree's depth-first order, so that a node is a rectangle of one row and the
    exploration is that of a vector. nodes: (T, 5) rectangle and node number; children: (T, parts) numbers; players:
    (T,) number of children, 1 for a leaf; roots: (n,) numbers; labels: per instance, its leaves in order.
    """

    nodes: np.ndarray
    children: np.ndarray
    players: np.ndarray
    roots: np.ndarray
    labels: list[np.ndarray]

    def index_leaves(self, instance: int, labels: np.ndarray) -> np.ndarray:
        """Return the index of each cell's segment among the leaves; labels: (*shape) int, the segment of each cell."""
        order = self.labels[instance]
        by_label = np.argsort(order)
        indices = by_label[np.searchsorted(order[by_label], labels).clip(max=len(order) - 1)]
        if not np.array_equal(order[indices], labels):
            missing = np.setdiff1d(labels, order)
            raise ShapelineError(f"h_shap: segment {missing[0]} of the input is not in its tree; list every segment.")
        return indices


def forest(trees: Sequence) -> Forest:
    """Return partition trees as one table: each a nested list of labels, [[0, 1], [2, [3, 4]]], with 2 to 10 parts."""
    nodes, children, roots, labels = [], [], [], []

    def grow(tree, order: list[int]) -> int:
        number, start = len(nodes), len(order)
        nodes.append(None)
        children.append(None)
        if isinstance(tree, Sequence) and not isinstance(tree, str):
            if not 2 <= len(tree) <= MAX_CHILDREN:
                raise ShapelineError(f"h_shap: a node of the tree has {len(tree)} part(s); give 2 to {MAX_CHILDREN}.")
            children[number] = [grow(part, order) for part in tree]
        else:
            order.append(check_integer("h_shap", "a label of the tree", tree, 0))
            children[number] = [number]
        nodes[number] = (0, 1, start, len(order), number)
        return number

    for tree in trees:
        order: list[int] = []
        roots.append(grow(tree, order))
        labels.append(np.array(order))
        if len(set(order)) < len(order):
            twice = next(label for label in order if order.count(label) > 1)
            raise ShapelineError(f"h_shap: segment {twice} is in the tree twice; list every segment once.")
    players = np.array([len(numbers) for numbers in children])
    table = np.zeros((len(nodes), players.max(initial=1)), np.int64)
    for row, numbers in zip(table, children, strict=True):
        row[: len(numbers)] = numbers
    return Forest(np.array(nodes, np.int64).reshape(-1, 5), table, players, np.array(roots), labels)


def superpixel_tree(labels: np.ndarray):
    """Return a binary tree over segments (height, width), halved across the axis with the larger spread of centres."""
    names, cell_of = np.unique(labels, return_inverse=True)
    axes = np.indices(labels.shape).reshape(labels.ndim, -1)
    count = np.bincount(cell_of.ravel())
    centres = np.stack([np.bincount(cell_of.ravel(), weights=axis) / count for axis in axes], axis=1)

    def halve(members: np.ndarray):
        if len(members) == 1:
            return int(names[members[0]])
        axis = np.ptp(centres[members], axis=0).argmax()
        members = members[np.argsort(centres[members, axis], kind="stable")]
        return [halve(members[: len(members) // 2]), halve(members[len(members) // 2 :])]

    return halve(np.arange(len(names)))


def explore_forest(
    evaluate: Evaluate,
    trees: Forest,
    threshold: float = 0.0,
    mode: str = "absolute",
    leaf_score: str = "uniform",
    tolerance: float = exploration.TOLERANCE,
) -> Exploration:
    """Return h-Shap on the user's partition trees; rectangles have one row and the forest's leaf order as columns."""
    sides = 1, max((len(order) for order in trees.labels), default=0)

    def split(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        players = trees.players[nodes[:, 4]]
        children = trees.nodes[trees.children[nodes[:, 4]]]
        return np.where((np.arange(children.shape[1]) < players[:, None])[..., None], children, 0), players

    return explore_trees(evaluate, trees.nodes[trees.roots], split, sides, threshold, mode, leaf_score, tolerance)


def h_shap_tree(
    game: Callable[[np.ndarray], np.ndarray],
    labels: np.ndarray,
    tree,
    threshold: float = 0.0,
    mode: str = "absolute",
    leaf_score: str = "uniform",
    tolerance: float = exploration.TOLERANCE,
) -> HShap:
    """Return h-Shap of one input over a partition tree of its segments (§6.1: other partitions than quadrants).

    game: masks (K, *shape) bool -> values (K,).
    labels: (*shape) int, the segment of a cell.
    tree: nested lists of these labels, as for `forest`.
    threshold, mode, leaf_score, tolerance: as in `explore`.

    Raises ShapelineError.
    """
    trees = forest([tree])
    labels = np.asarray(labels)
    indices = trees.index_leaves(0, labels)
    columns = np.arange(len(trees.labels[0]))

    def evaluate(instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        still = np.zeros((len(instances), 2), np.int64)
        present = encode(rectangles, still, columns[:1], columns)[1] != 0
        block = max(1, MAX_MASK_BYTES // labels.size)
        parts = [call_game(game, present[i : i + block][:, indices]) for i in range(0, len(present), block)]
        return np.concatenate(parts)

    explored = explore_forest(evaluate, trees, threshold, mode, leaf_score, tolerance)
    saliency, raw = explored.maps(0, indices)
    leaves = trees.labels[0][explored.leaves[:, 2]]
    return HShap(
        saliency,
        raw,
        leaves,
        int(explored.visited_nodes[0]),
        int(explored.evaluations[0]),
        "" if len(leaves) else NO_RELEVANT_NODE,
        float(explored.value_empty[0]),
        float(explored.value_full[0]),
    )


@dataclass(frozen=True, eq=False)
class Owen:
    """Owen values of n inputs: scores (n, height, width), which sum to value_full - value_empty; nodes, evaluations."""

    scores: np.ndarray
    nodes: np.ndarray
    evaluations: np.ndarray
    value_empty: np.ndarray
    value_full: np.ndarray


def partition(
    evaluate: Evaluate,
    n_instances: int,
    shape: Sequence[int],
    evaluations: int,
    nodes_a_round: int = 5,
    cut: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] = halve,
) -> Owen:
    """Return Owen values over halves of the longer side within the evaluations: shap's PartitionExplainer.

    As the library with fixed_context=0 (everything outside a node is masked): of an input's unsplit nodes, the
    nodes_a_round with the largest |v(node) - v(empty)| are split first (the library's batch of 10 masks); the
    interaction of the halves, and v(node) - v(empty) of an unsplit node, are divided evenly among its cells. Ties are
    in order of creation; in the library, in random order. cut: from rectangles (m, 4) to their two parts, for other
    trees than halves. Raises ShapelineError.
    """
    sides = image_sides(shape, 1)
    evaluations = check_integer("partition", "evaluations", evaluations, 2)
    tally = Tally(evaluate, n_instances)
    instances, nodes = np.arange(n_instances), np.tile([0, sides[0], 0, sides[1]], (n_instances, 1))
    ends = tally.values(np.tile(instances, 2), np.concatenate([np.zeros_like(nodes), nodes])[:, None])
    empty, full = ends[:n_instances], ends[n_instances:]
    gains, split, shared = full - empty, np.zeros(n_instances, np.int64), []
    while True:
        divisible = _count_cells(nodes) > 1
        order = np.lexsort((-np.abs(gains), ~divisible, instances))
        instances, nodes, gains, divisible = instances[order], nodes[order], gains[order], divisible[order]
        rank = np.arange(len(nodes)) - np.searchsorted(instances, instances)
        capacity = (evaluations - tally.evaluations[instances]) // 2
        chosen = divisible & (rank < np.minimum(nodes_a_round, capacity))
        if not chosen.any():
            break
        owners, split_nodes = instances[chosen], nodes[chosen]
        halves = np.concatenate(cut(split_nodes))
        parts = tally.values(np.tile(owners, 2), halves[:, None]) - empty[np.tile(owners, 2)]
        shared.append((owners, split_nodes, gains[chosen] - parts[: len(owners)] - parts[len(owners) :]))
        split += np.bincount(owners, minlength=n_instances)
        instances = np.concatenate([instances[~chosen], owners, owners])
        nodes, gains = np.concatenate([nodes[~chosen], halves]), np.concatenate([gains[~chosen], parts])
    shared.append((instances, nodes, gains))
    instances, nodes, amounts = (np.concatenate(column) for column in zip(*shared, strict=True))
    density = amounts / _count_cells(nodes)
    # Cumulative sums of corners divide a node's share among its cells, without a loop over nodes.
    corners = np.zeros((n_instances, sides[0] + 1, sides[1] + 1))
    for row, column, sign in ((0, 2, 1), (0, 3, -1), (1, 2, -1), (1, 3, 1)):
        np.add.at(corners, (instances, nodes[:, row], nodes[:, column]), sign * density)
    scores = corners.cumsum(axis=1).cumsum(axis=2)[:, :-1, :-1]
    return Owen(scores, split, tally.evaluations, empty, full)


def _count_cells(nodes: np.ndarray) -> np.ndarray:
    """Return the number of cells of rectangles (m, 4), (m,)."""
    top, bottom, left, right = nodes.T
    return (bottom - top) * (right - left)


class Growth(NamedTuple):
    """The parameters of `explore` and `explore_forest` that control the growth of trees."""

    threshold: float = 0.0
    mode: str = "absolute"
    leaf_score: str = "uniform"
    tolerance: float = TOLERANCE


def h_shap(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    min_size: int = 1,
    threshold: float = 0.0,
    mode: str = "absolute",
    leaf_score: str = "uniform",
    shifts: Sequence[Sequence[int]] | None = None,
) -> Scored:
    """Return hierarchical Shapley values (Teneggi et al. 2021): scores (n, d) that sum to 1 or are 0; see exploration.

    game: features on a grid or in a row are split into quadrants or halves; superpixels into halves of a tree over
    them (§6.1), where min_size and shifts have no effect.
    inputs, targets: (n, *input shape) and (n,) of the game.
    min_size: least cells of each half of a side.
    threshold, mode: which nodes are relevant; see `explore`.
    leaf_score: the score of a relevant leaf; see `explore`.
    shifts: cycle spinning, cells along each axis.

    Details: visited_nodes, leaves; warning "no relevant node".
    """
    growth = Growth(threshold, mode, leaf_score)
    if game.features.kind == "superpixel":
        return _score_superpixels(game, inputs, targets, growth)
    sides = game.features.shape
    if min_size > max(sides):  # for a document; other features are checked with the configuration
        raise MethodFailure(
            "too short", f"h_shap: min_size is {min_size} and there are {max(sides)} features; give a smaller min_size"
        )
    maps = explain_grid(game, inputs, targets, min_size, growth, shifts)
    scores = np.stack([tree.saliency.ravel() for tree in maps])
    numbers = np.array([(tree.evaluations, tree.visited_nodes, len(tree.leaves)) for tree in maps])
    return _format_result(scores, *numbers.T)


def explain_grid(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    min_size: int,
    growth: Growth,
    shifts: Sequence[Sequence[int]] | None = None,
) -> list[HShap]:
    """Return an HShap per input (n, *input shape) on the features' grid, with all trees processed together."""
    shape = game.features.shape
    moves = exploration.check_shifts(shifts, len(shape))
    owners = np.repeat(np.arange(len(inputs)), len(moves))
    evaluate = build_evaluator(game, inputs, targets[owners], owners, np.tile(moves, (len(inputs), 1)))
    explored = exploration.explore(evaluate, len(owners), shape, min_size, *growth)
    return exploration.gather(explored, moves, shape)


def _score_superpixels(game: Game, inputs: np.ndarray, targets: np.ndarray, growth: Growth) -> Scored:
    n, segments = len(inputs), game.features.cells[0]
    trees = forest([superpixel_tree(segments)] * n)
    indices = np.argsort(trees.labels[0])  # of each superpixel, among the leaves
    explored = explore_forest(evaluate_by_masks(game, inputs, targets, leaf_columns=indices), trees, *growth)
    maps = (explored.maps(i, indices[segments])[0] for i in range(n))
    sums = [np.bincount(segments.ravel(), weights=cells.ravel(), minlength=game.features.d) for cells in maps]
    leaves = np.bincount(explored.instances, minlength=n)
    return _format_result(np.stack(sums), explored.evaluations, explored.visited_nodes, leaves)


def _format_result(scores: np.ndarray, evaluations: np.ndarray, visited: np.ndarray, leaves: np.ndarray) -> Scored:
    flags = [None if count else NO_RELEVANT_NODE for count in leaves]
    return scores, evaluations, {"visited_nodes": visited, "leaves": leaves, "warning": flags}


def score_partition(game: Game, inputs: np.ndarray, targets: np.ndarray, evaluations: int = 500) -> Scored:
    """Return Owen values (n, d) over halves of the features' grid, efficient on any budget, as shap's."""
    backend = game.backend
    if backend is not None:  # a round evaluates ten coalitions per instance, and TensorFlow pads larger batches
        backend = dataclasses.replace(backend, batch=min(backend.batch, 1 << (16 * len(inputs) - 1).bit_length()))
    evaluate = build_evaluator(game.having(backend=backend), inputs, targets)
    values = partition(evaluate, len(inputs), game.features.shape, evaluations)
    return values.scores.reshape(len(inputs), -1), values.evaluations, {"split_nodes": values.nodes}


def build_evaluator(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    owners: np.ndarray | None = None,
    shifts: np.ndarray | None = None,
) -> Evaluate:
    """Return the evaluator for `explore` of targets[j] of inputs[owners[j]], shifted by shifts[j]."""
    framework = game.model.framework
    # A function is evaluated faster with torch; without torch, as any other model.
    available = framework in DEVICE_EVALUATORS and is_installed("torch")
    if game.features.kind in ("pixel", "column") and available:
        device = importlib.import_module(DEVICE_EVALUATORS[framework])
        if game.value in device.VALUES:
            return device.Evaluator(game, inputs, targets, owners, shifts)
    return evaluate_by_masks(game, inputs, targets, owners, shifts)


def evaluate_by_masks(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    owners: np.ndarray | None = None,
    shifts: np.ndarray | None = None,
    leaf_columns: np.ndarray | None = None,
) -> Evaluate:
    """Return an evaluator of the game's values, for any framework and features; leaf_columns (d,): of the forest."""
    shape = game.features.shape
    height, width = (1, *shape) if len(shape) == 1 else shape
    owners = np.arange(len(inputs)) if owners is None else owners
    shifts = np.zeros((len(owners), 2), np.int64) if shifts is None else shifts
    block = max(1, MAX_BLOCK_BYTES // (inputs[0].nbytes + game.features.d))
    if game.backend is not None and game.backend.name == "windows":
        # Tables are worthwhile for many coalitions per instance; here is one.
        game = game.having(backend=dataclasses.replace(game.backend, name="plain"))

    def evaluate(instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        values = np.empty(len(instances))
        for start in range(0, len(instances), block):
            part = slice(start, start + block)
            indices, rows_of = instances[part], owners[instances[part]]
            rows, columns = exploration.encode(rectangles[part], shifts[indices], np.arange(height), np.arange(width))
            masks = ((rows[:, :, None] & columns[:, None, :]) != 0).reshape(len(indices), 1, -1)
            masks = masks if leaf_columns is None else masks[..., leaf_columns]
            with locate_input(rows_of):
                values[part] = game.values(inputs[rows_of], masks, targets[indices])[:, 0]
        return values

    return evaluate
