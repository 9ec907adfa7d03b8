"""h-Shap and Partition for the registry, on the device where features are single cells, else by masks."""

import dataclasses
import importlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shapeline.errors import MethodFailure, is_installed, locate_input
from shapeline.games.game import Game
from shapeline.hierarchy import exploration, forests
from shapeline.hierarchy.exploration import NO_RELEVANT_NODE, Evaluate, HShap

# Of the range of v. A float32 model's values differ by 1e-7 with the position in a batch, so that with
# exploration.TOLERANCE, for exact games, the explored empty quadrants would depend on the batch.
TOLERANCE = 1e-6
# Frameworks that evaluate coalitions on the device: modules by name, so that a job imports only one framework.
ON_DEVICE = dict.fromkeys(("torch", "function"), "shapeline.hierarchy.torch_evaluator")
BLOCK_BYTES = 1 << 26  # of inputs and masks per call of the engine

Scored = tuple[np.ndarray, np.ndarray, dict[str, Sequence]]


class Growth(NamedTuple):
    """The last parameters of `explore` and `explore_forest`, which control the growth of trees."""

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
    maps = trees(game, inputs, targets, min_size, growth, shifts)
    scores = np.stack([tree.saliency.ravel() for tree in maps])
    numbers = np.array([(tree.evaluations, tree.visited_nodes, len(tree.leaves)) for tree in maps])
    return _format_result(scores, *numbers.T)


def trees(
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
    evaluate = evaluator(game, inputs, targets[owners], owners, np.tile(moves, (len(inputs), 1)))
    explored = exploration.explore(evaluate, len(owners), shape, min_size, *growth)
    return exploration.gather(explored, moves, shape)


def _score_superpixels(game: Game, inputs: np.ndarray, targets: np.ndarray, growth: Growth) -> Scored:
    n, segments = len(inputs), game.features.cells[0]
    forest = forests.forest([forests.superpixel_tree(segments)] * n)
    indices = np.argsort(forest.labels[0])  # of each superpixel among the leaves
    explored = forests.explore_forest(evaluate_by_masks(game, inputs, targets, places=indices), forest, *growth)
    maps = (explored.maps(i, indices[segments])[0] for i in range(n))
    sums = [np.bincount(segments.ravel(), weights=each.ravel(), minlength=game.features.d) for each in maps]
    leaves = np.bincount(explored.instances, minlength=n)
    return _format_result(np.stack(sums), explored.evaluations, explored.visited_nodes, leaves)


def _format_result(scores: np.ndarray, evaluations: np.ndarray, visited: np.ndarray, leaves: np.ndarray) -> Scored:
    flags = [None if some else NO_RELEVANT_NODE for some in leaves]
    return scores, evaluations, {"visited_nodes": visited, "leaves": leaves, "warning": flags}


def partition(game: Game, inputs: np.ndarray, targets: np.ndarray, evaluations: int = 500) -> Scored:
    """Return Owen values (n, d) over halves of the features' grid, efficient on any budget, as shap's."""
    backend = game.backend
    if backend is not None:  # a round evaluates ten coalitions per instance, and TensorFlow pads larger batches
        backend = dataclasses.replace(backend, batch=min(backend.batch, 1 << (16 * len(inputs) - 1).bit_length()))
    evaluate = evaluator(game.having(backend=backend), inputs, targets)
    values = forests.partition(evaluate, len(inputs), game.features.shape, evaluations)
    return values.scores.reshape(len(inputs), -1), values.evaluations, {"split_nodes": values.nodes}


def evaluator(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    owners: np.ndarray | None = None,
    shifts: np.ndarray | None = None,
) -> Evaluate:
    """Return the evaluator for `explore` of targets[j] of inputs[owners[j]], shifted by shifts[j]."""
    framework = game.model.framework
    # A function is evaluated faster with torch; without torch, as any other model.
    available = framework in ON_DEVICE and is_installed("torch")
    if game.features.kind in ("pixel", "column") and available:
        device = importlib.import_module(ON_DEVICE[framework])
        if game.value in device.VALUES:
            return device.Evaluator(game, inputs, targets, owners, shifts)
    return evaluate_by_masks(game, inputs, targets, owners, shifts)


def evaluate_by_masks(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    owners: np.ndarray | None = None,
    shifts: np.ndarray | None = None,
    places: np.ndarray | None = None,
) -> Evaluate:
    """Return an evaluator of the game's values, for any framework, features and value; places (d,): forest columns."""
    shape = game.features.shape
    height, width = (1, *shape) if len(shape) == 1 else shape
    owners = np.arange(len(inputs)) if owners is None else owners
    shifts = np.zeros((len(owners), 2), np.int64) if shifts is None else shifts
    block = max(1, BLOCK_BYTES // (inputs[0].nbytes + game.features.d))
    if game.backend is not None and game.backend.name == "windows":
        # Tables are worthwhile for many coalitions per instance; here is one.
        game = game.having(backend=dataclasses.replace(game.backend, name="plain"))

    def evaluate(instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        values = np.empty(len(instances))
        for start in range(0, len(instances), block):
            part = slice(start, start + block)
            own, of = instances[part], owners[instances[part]]
            rows, columns = exploration.inside(rectangles[part], shifts[own], np.arange(height), np.arange(width))
            masks = ((rows[:, :, None] & columns[:, None, :]) != 0).reshape(len(own), 1, -1)
            masks = masks if places is None else masks[..., places]
            with locate_input(of):
                values[part] = game.values(inputs[of], masks, targets[own])[:, 0]
        return values

    return evaluate
