"""Owen values on a tree of halves: the partition explainer, batched over instances."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import whole
from shapeline.hierarchy.exploration import Evaluate, Tally, halves_of, sides_of_picture


@dataclass(frozen=True, eq=False)
class Owen:
    """Owen values of n inputs: scores (n, height, width); nodes, evaluations (n,) int64: split, and values asked for.

    Scores of an input sum to value_full - value_empty, both (n,).
    """

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
    cut: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] = halves_of,
) -> Owen:
    """Owen values over halves of the longer side, while the evaluations last: shap's PartitionExplainer.

    As the library with fixed_context=0 (what is outside a node is absent): of the nodes of an input not yet split, the
    nodes_a_round with the largest |v(node) - v(empty)| go first (the library's batch of 10 masks); the interaction of
    the halves, and v(node) - v(empty) of a node that is never split, are shared out evenly over its cells. Equals take
    turns in the order in which they came; in the library they draw lots. cut: of rectangles (m, 4) into their two
    parts, for another tree than that of halves. Raises ShapelineError.
    """
    sides = sides_of_picture(shape, 1)
    evaluations = whole("partition", "evaluations", evaluations, 2)
    tally = Tally(evaluate, n_instances)
    instances, nodes = np.arange(n_instances), np.tile([0, sides[0], 0, sides[1]], (n_instances, 1))
    ends = tally.values(np.tile(instances, 2), np.concatenate([np.zeros_like(nodes), nodes])[:, None])
    empty, full = ends[:n_instances], ends[n_instances:]
    worth, split, shared = full - empty, np.zeros(n_instances, np.int64), []
    while True:
        divisible = _area(nodes) > 1
        order = np.lexsort((-np.abs(worth), ~divisible, instances))
        instances, nodes, worth, divisible = instances[order], nodes[order], worth[order], divisible[order]
        rank = np.arange(len(nodes)) - np.searchsorted(instances, instances)
        room = (evaluations - tally.evaluations[instances]) // 2
        chosen = divisible & (rank < np.minimum(nodes_a_round, room))
        if not chosen.any():
            break
        of, whole_nodes = instances[chosen], nodes[chosen]
        halves = np.concatenate(cut(whole_nodes))
        parts = tally.values(np.tile(of, 2), halves[:, None]) - empty[np.tile(of, 2)]
        shared.append((of, whole_nodes, worth[chosen] - parts[: len(of)] - parts[len(of) :]))
        split += np.bincount(of, minlength=n_instances)
        instances = np.concatenate([instances[~chosen], of, of])
        nodes, worth = np.concatenate([nodes[~chosen], halves]), np.concatenate([worth[~chosen], parts])
    shared.append((instances, nodes, worth))
    instances, nodes, amounts = (np.concatenate(column) for column in zip(*shared, strict=True))
    density = amounts / _area(nodes)
    # Sums of corners spread a node's share over its cells, without a loop over nodes.
    corners = np.zeros((n_instances, sides[0] + 1, sides[1] + 1))
    for row, column, sign in ((0, 2, 1), (0, 3, -1), (1, 2, -1), (1, 3, 1)):
        np.add.at(corners, (instances, nodes[:, row], nodes[:, column]), sign * density)
    scores = corners.cumsum(axis=1).cumsum(axis=2)[:, :-1, :-1]
    return Owen(scores, split, tally.evaluations, empty, full)


def _area(nodes: np.ndarray) -> np.ndarray:
    """Cells of rectangles (m, 4), (m,)."""
    top, bottom, left, right = nodes.T
    return (bottom - top) * (right - left)
