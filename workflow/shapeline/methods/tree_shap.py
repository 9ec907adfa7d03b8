"""Interventional TreeSHAP: exact Shapley values of trees for any number of columns."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shapeline.designs.design import log_factorial
from shapeline.games.game import Game
from shapeline.methods import sklearn_steps
from shapeline.methods.sklearn_steps import Fitted
from shapeline.methods.trees import Tree, single_precision, trees_of, value_of

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset

CELLS = 1 << 22  # instances times reference rows times conditions of a tree that are held at a time


@dataclass(frozen=True, eq=False)
class Paths:
    """Conditions on the ways to the leaves: those of one player on one way are a slot, and slots of one leaf adjoin.

    node, is_left (E,): conditions; slots, leaves: where each slot and each leaf begins, among conditions and slots;
    player, leaf (slots,); value (leaves, outputs).
    """

    node: np.ndarray
    is_left: np.ndarray
    slots: np.ndarray
    leaves: np.ndarray
    player: np.ndarray
    leaf: np.ndarray
    value: np.ndarray


def tree_shap(
    question: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None" = None
) -> tuple[np.ndarray, int]:
    """Interventional TreeSHAP (Lundberg et al. 2020, algorithm 3), the mean over the reference rows; scores (n, d).

    On the way to a leaf a feature that x alone satisfies must be present, one that the reference row alone satisfies
    absent: the leaf's value times that game's Shapley value. Of a forest or tree the value is the probability, of
    boosted trees of two classes margin (with one reference row log_odds, the same), of a regression the prediction.
    Evaluates both ends, which the scores must add up to. Raises ShapelineError for other values and models.
    """

    def explain(model: Fitted, rows: tuple[np.ndarray, np.ndarray], owners: np.ndarray, d: int, outputs: np.ndarray):
        additive = value_of(model.last)
        sklearn_steps.refuse_unless_additive("tree_shap", question, additive, model.last)
        single = single_precision(model.last)
        given, absent = (part.astype(np.float32) if single else part for part in rows)
        return sum(shapley(tree, given, absent, owners, d, outputs) for tree in trees_of(model.last))

    return sklearn_steps.shapley("tree_shap", question, inputs, targets, dataset, explain)


def shapley(
    tree: Tree, given: np.ndarray, absent: np.ndarray, owners: np.ndarray, d: int, outputs: np.ndarray
) -> np.ndarray:
    """Shapley values (n, d) of a tree's `outputs` (n,), rows given (n, k) against absent (M, k), mean over these.

    owners (k,): the feature 0..d-1 that an input is of, -1 where it is never removed.
    """
    from scipy.sparse import csr_array

    paths, n = paths_of(tree, owners), len(given)
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


def paths_of(tree: Tree, owners: np.ndarray) -> Paths:
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
