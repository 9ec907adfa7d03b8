"""Hierarchical Shapley values (h-Shap; Teneggi, Luster & Sulam 2021): only relevant nodes are split further.

A node of a partition tree is split into its children (halves of a vector, quadrants of an image, groups of
superpixels), which are the players of a game in which everything outside the node is masked. `explore` processes the
trees of many instances together, level by level, and builds no masks: a coalition is a few rectangles. It is
independent of models; `torch_evaluator` and `methods` have the evaluators for models, and `h_shap` explains any game
on one input."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shapeline.designs import exact
from shapeline.designs.design import check_choice, check_integer
from shapeline.errors import ShapelineError

MODES = ("absolute", "relative")
LEAF_SCORES = ("uniform", "product")
TOLERANCE = 1e-9  # share of the range of v by which a coefficient must exceed its threshold
NO_RELEVANT_NODE = "no relevant node"
MAX_MASK_BYTES = 1 << 26  # masks per call of a game on one input
# From instances (P,) and rectangles (P, parts, 4) int64 (top, bottom, left, right; half open; all zero: no rectangle)
# to the values (P,) of the coalitions that keep exactly the union of the rectangles.
Evaluate = Callable[[np.ndarray, np.ndarray], np.ndarray]
# From nodes (m, c) to their children (m, parts, c) and the number of children (m,): one, the node itself, for a leaf.
# The first four columns of a node are its rectangle; unused rows are zero.
Split = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class HShap:
    """The h-Shap explanation of one input.

    saliency: float64 of the input's shape, 1/|L| on the cells of the relevant leaves (eq. 5), so it sums to 1, or `raw`
    scaled to sum to 1 (leaf_score "product"). raw: the product of the coefficients on the path to a cell's leaf.
    leaves: (L, 4) top, bottom, left, right of images, (L, 2) start, stop of vectors, (L,) labels of a tree; half
    open, and extending past the border where cycle spinning wraps them. visited_nodes: the root and every relevant
    child; evaluations: number of distinct coalitions. warning: "" or "no relevant node", where both maps are zero.
    """

    saliency: np.ndarray
    raw: np.ndarray
    leaves: np.ndarray
    visited_nodes: int
    evaluations: int
    warning: str
    value_empty: float
    value_full: float


@dataclass(frozen=True, eq=False)
class Exploration:
    """The explored trees of n instances, as arrays.

    The relevant leaves of all instances, in order of instance: instances (L,), leaves (L, 4) int64, and products (L,)
    of the coefficients on their paths. visited_nodes, evaluations (n,) int64; value_empty, value_full (n,) float64.
    """

    shape: tuple[int, int]
    leaf_score: str
    instances: np.ndarray
    leaves: np.ndarray
    products: np.ndarray
    visited_nodes: np.ndarray
    evaluations: np.ndarray
    value_empty: np.ndarray
    value_full: np.ndarray

    def slice_leaves(self, instance: int) -> slice:
        """Return the slice of one instance's leaves."""
        return slice(*np.searchsorted(self.instances, [instance, instance + 1]))

    def maps(self, instance: int, indices: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return saliency and raw map of one instance; indices: the index of each input cell in the explored shape."""
        leaves = self.slice_leaves(instance)
        top, bottom, left, right = self.leaves[leaves].T
        number = np.arange(1, len(top) + 1)
        # Leaves are disjoint, so integer sums of corners give each cell its leaf's number, without a loop over leaves.
        corners = np.zeros((self.shape[0] + 1, self.shape[1] + 1), np.int64)
        for rows, columns, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
            np.add.at(corners, (rows, columns), sign * number)
        leaf = corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
        if indices is not None:
            leaf = leaf[0][indices]
        raw = np.append(0.0, self.products[leaves])[leaf]
        weight = raw if self.leaf_score == "product" else (leaf > 0).astype(np.float64)
        total = weight.sum()
        return weight / total if total > 0 else weight, raw


def explore(
    evaluate: Evaluate,
    n_instances: int,
    shape: Sequence[int],
    min_size: int,
    threshold: float = 0.0,
    mode: str = "absolute",
    leaf_score: str = "uniform",
    tolerance: float = TOLERANCE,
) -> Exploration:
    """Run h-Shap on quadrants of images (height, width), or halves of vectors (length,), of one shape.

    evaluate: called once per level with the pairs of all instances; 14 new ones per node of four children.
    n_instances: number of trees that are grown together.
    shape: of each instance.
    min_size: a side is split in the middle while both halves keep this many cells.
    threshold: lower bound of a relevant coefficient, or in mode "relative" a percentile.
    mode: "absolute", a child is expanded if its Shapley value exceeds the threshold; "relative", if it is positive and
    at least the threshold-th percentile of all coefficients of its instance at that depth.
    leaf_score: "product" (the authors' code) uses the product of the coefficients on the path instead of the
    coefficient, also in the map.
    tolerance: a share of the range of the instance's values; larger for a float32 model, whose values of equal
    coalitions differ by rounding.

    Raises ShapelineError.
    """
    sides = image_sides(shape, min_size)
    roots = np.tile([0, sides[0], 0, sides[1]], (n_instances, 1))

    def split(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _split_quadrants(nodes, min_size)

    return explore_trees(evaluate, roots, split, sides, threshold, mode, leaf_score, tolerance)


def h_shap(
    game: Callable[[np.ndarray], np.ndarray],
    shape: Sequence[int],
    min_size: int,
    threshold: float = 0.0,
    mode: str = "absolute",
    leaf_score: str = "uniform",
    shifts: Sequence[Sequence[int]] | None = None,
    tolerance: float = TOLERANCE,
) -> HShap:
    """Return the h-Shap explanation of one image (height, width) or vector (length,).

    Parameters
    ----------
    game : callable
        From masks (K, *shape) bool, True where a cell is kept, to values (K,).
    shape : tuple of int
        (height, width) or (length,).
    min_size : int
        A side is split in the middle while both halves keep this many cells.
    threshold : float
        Lower bound of a relevant child's Shapley value; in mode "relative" a percentile.
    mode : {"absolute", "relative"}
        "relative": a child is split if its value is positive and at least the threshold-th percentile of all values of
        its depth.
    leaf_score : {"uniform", "product"}
        Of the cells of a relevant leaf: 1/|L|, or the product of the Shapley values on the path (the authors' code).
    shifts : sequence of sequences of int, optional
        Cycle spinning: the mean over partitions moved around the border by so many cells along each axis.
    tolerance : float
        A share of the range of the values; larger for a model in float32.

    Returns
    -------
    HShap
        `saliency` of the input's shape, which sums to 1; `raw`; `leaves` (L, 4) top, bottom, left, right, or (L, 2);
        `visited_nodes`; `evaluations`; `warning`; `value_empty`; `value_full`.

    Raises
    ------
    ShapelineError
        Where an argument is out of range or a value is not finite.

    References
    ----------
    Teneggi, Luster & Sulam (2021), algorithms 1 and 2, section 6.1.

    Examples
    --------
    >>> from shapeline import hierarchy
    >>> def game(masks):  # one cell matters
    ...     return masks[:, 1, 2].astype(float)
    >>> found = hierarchy.h_shap(game, (4, 4), min_size=1)
    >>> found.leaves, found.evaluations
    (array([[1, 2, 2, 3]]), 30)
    """
    sides = image_sides(shape, min_size)
    moves = check_shifts(shifts, len(shape))
    rows, columns = np.arange(sides[0]), np.arange(sides[1])

    def evaluate(instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        values = np.empty(len(instances))
        block = max(1, MAX_MASK_BYTES // (sides[0] * sides[1]))
        for start in range(0, len(instances), block):
            part = slice(start, start + block)
            moved = moves[instances[part]]
            in_rows, in_columns = encode(rectangles[part], moved, rows, columns)
            masks = (in_rows[:, :, None] & in_columns[:, None, :]) != 0
            values[part] = call_game(game, masks.reshape(-1, *shape))
        return values

    explored = explore(evaluate, len(moves), shape, min_size, threshold, mode, leaf_score, tolerance)
    return gather(explored, moves, tuple(shape))[0]


def gather(explored: Exploration, shifts: np.ndarray, shape: Sequence[int]) -> list[HShap]:
    """Return an HShap per input from an exploration of inputs x shifts (in that order); shape: of an input."""
    results, height, width = [], *explored.shape
    for first in range(0, len(explored.visited_nodes), len(shifts)):
        maps, leaves = np.zeros((2, *explored.shape)), []
        for instance, (down, right) in enumerate(shifts, start=first):
            maps += np.roll(explored.maps(instance), (-down, -right), axis=(1, 2))
            moved = explored.leaves[explored.slice_leaves(instance)].copy()
            for axis, shift, side in ((0, down, height), (2, right, width)):
                start = (moved[:, axis] - shift) % side
                moved[:, axis + 1] += start - moved[:, axis]
                moved[:, axis] = start
            leaves.append(moved)
        leaves = np.concatenate(leaves)
        saliency, raw = (maps / len(shifts)).reshape(2, *shape)
        shifted = slice(first, first + len(shifts))
        results.append(
            HShap(
                saliency,
                raw,
                leaves if len(shape) == 2 else leaves[:, 2:],
                int(explored.visited_nodes[shifted].sum()),
                int(explored.evaluations[shifted].sum()),
                "" if len(leaves) else NO_RELEVANT_NODE,
                float(explored.value_empty[first]),
                float(explored.value_full[first]),
            )
        )
    return results


def check_shifts(shifts: Sequence[Sequence[int]] | None, axes: int) -> np.ndarray:
    """Return the shifts of cycle spinning as (S, 2), rows and columns; without any, a single zero shift."""
    try:
        checked = np.array([[operator.index(cells) for cells in shift] for shift in shifts or [[0] * axes]])
    except (TypeError, ValueError):
        checked = np.empty(0)
    if checked.ndim != 2 or checked.shape[1] != axes:
        raise ShapelineError(f"h_shap: shifts are {shifts!r}; give a list of {axes} whole number(s) each.")
    return np.pad(checked, ((0, 0), (2 - axes, 0)))


def halve(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the halves of rectangles (m, 4) across the longer side; the first has the middle cell."""
    top, bottom, left, right = nodes.T
    tall = bottom - top >= right - left
    middle, centre = (top + bottom + 1) // 2, (left + right + 1) // 2
    first = np.stack([top, np.where(tall, middle, bottom), left, np.where(tall, right, centre)], axis=1)
    second = np.stack([np.where(tall, middle, top), bottom, np.where(tall, left, centre), right], axis=1)
    return first, second


def explore_trees(
    evaluate: Evaluate,
    roots: np.ndarray,
    split: Split,
    sides: tuple[int, int],
    threshold: float,
    mode: str,
    leaf_score: str,
    tolerance: float,
) -> Exploration:
    """Run h-Shap on trees from `roots` (n, c), whose first columns are rectangles; sides: of the entire input."""
    check_choice("h_shap", "mode", mode, MODES)
    check_choice("h_shap", "leaf_score", leaf_score, LEAF_SCORES)
    limit = 100 if mode == "relative" else np.inf
    if not isinstance(threshold, int | float | np.number) or not 0 <= threshold <= limit:
        expected = "a percentile from 0 to 100" if mode == "relative" else "a number of at least 0"
        raise ShapelineError(f"h_shap: threshold is {threshold!r}; give {expected} in mode '{mode}'.")
    n = len(roots)
    tally = Tally(evaluate, n)
    whole_input = roots[:, None, :4]
    ends = tally.values(np.tile(np.arange(n), 2), np.concatenate([np.zeros_like(whole_input), whole_input]))
    empty, full = ends[:n], ends[n:]
    visited = np.ones(n, np.int64)
    grown: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    instances, products, gains = np.arange(n), np.ones(n), full - empty
    children, players = split(roots)
    while len(instances):
        coefficients, next_gains = _compute_coefficients(tally, instances, children, players, gains, empty)
        is_child = np.arange(children.shape[1]) < players[:, None]
        parent, index = np.nonzero(is_child)
        nodes, instances, next_gains = children[parent, index], instances[parent], next_gains[parent, index]
        path_products = coefficients[parent, index] * products[parent]
        score = path_products if leaf_score == "product" else coefficients[parent, index]
        slack = tolerance * tally.spread()[instances]
        if mode == "absolute":
            relevant = score - threshold > slack
        else:
            relevant = (score >= _percentile_of(score, instances, n, threshold)[instances] - slack) & (score > slack)
        # A root too small to split has one child, itself, which must not be counted twice.
        visited += np.bincount(instances[relevant & (players[parent] > 1)], minlength=n)
        nodes, instances = nodes[relevant], instances[relevant]
        products, gains = path_products[relevant], next_gains[relevant]
        children, players = split(nodes)
        leaf = players == 1
        grown.append((instances[leaf], nodes[leaf, :4], products[leaf]))
        inner = ~leaf
        instances, products, gains = instances[inner], products[inner], gains[inner]
        children, players = children[inner], players[inner]
    grown.append((np.empty(0, np.int64), np.empty((0, 4), np.int64), np.empty(0)))
    where, leaves, scores = (np.concatenate(column) for column in zip(*grown, strict=True))
    order = np.argsort(where, kind="stable")
    return Exploration(
        sides, leaf_score, where[order], leaves[order], scores[order], visited, tally.evaluations, empty, full
    )


class Tally:
    """An evaluator that counts evaluations and records the range of the values, per instance."""

    def __init__(self, evaluate: Evaluate, n: int):
        self.evaluate = evaluate
        self.evaluations = np.zeros(n, np.int64)
        self.lowest, self.highest = np.full(n, np.inf), np.full(n, -np.inf)

    def values(self, instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        if len(instances) == 0:
            return np.empty(0)
        values = np.asarray(self.evaluate(instances, rectangles), dtype=np.float64)
        if values.shape != instances.shape:
            raise ShapelineError(f"h_shap: values of shape {values.shape} for {len(instances)} coalitions; give (K,).")
        if not np.isfinite(values).all():
            first = np.flatnonzero(~np.isfinite(values))[0]
            raise ShapelineError(
                f"h_shap: instance {{instance}}, a coalition has the value {values[first]}; every value must be finite",
                instances[first],
            )
        self.evaluations += np.bincount(instances, minlength=len(self.evaluations))
        np.minimum.at(self.lowest, instances, values)
        np.maximum.at(self.highest, instances, values)
        return values

    def spread(self) -> np.ndarray:
        return self.highest - self.lowest


def _compute_coefficients(
    tally: Tally, instances: np.ndarray, children: np.ndarray, players: np.ndarray, gains: np.ndarray, empty: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return Shapley values of a level's children, and v(child) - v(empty) of each, (m, parts) each."""
    width = children.shape[1]
    games = {int(size): exact.shapley(int(size)) for size in np.unique(players)}
    nodes = {size: np.flatnonzero(players == size) for size in games}
    pairs, rectangles = [], []
    for size, game in games.items():
        proper = np.zeros((game.evaluations - 2, width), bool)  # all but the empty and the full coalition
        proper[:, :size] = game.masks[1:-1]
        pairs.append(np.repeat(instances[nodes[size]], len(proper)))
        rectangles.append((children[nodes[size], None, :, :4] * proper[..., None]).reshape(-1, width, 4))
    pairs = np.concatenate(pairs)
    values = tally.values(pairs, np.concatenate(rectangles)) - empty[pairs]
    coefficients, child_gains = np.zeros((2, len(children), width))
    start = 0
    for size, game in games.items():
        stop = start + len(nodes[size]) * (game.evaluations - 2)
        # Minus v(empty), so that a constant game has coefficients of exactly 0.
        table = np.zeros((len(nodes[size]), game.evaluations))
        table[:, 1:-1] = values[start:stop].reshape(len(table), -1)
        table[:, -1] = gains[nodes[size]]
        coefficients[nodes[size], :size] = game.attribute(table)
        child_gains[nodes[size], :size] = table[:, 1 << np.arange(size)]  # column r is the coalition of r's bits
        start = stop
    return coefficients, child_gains


def _split_quadrants(nodes: np.ndarray, min_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the children (m, 4, 4) of rectangles (m, 4), halving sides that keep min_size, and their number (m,)."""
    top, bottom, left, right = nodes.T
    rows = (bottom - top) // 2 >= min_size
    columns = (right - left) // 2 >= min_size
    middle = np.where(rows, (top + bottom) // 2, bottom)
    centre = np.where(columns, (left + right) // 2, right)
    above, below = (top, middle), (middle, bottom)
    quadrants = [(*vertical, *level) for vertical in (above, below) for level in ((left, centre), (centre, right))]
    children = np.stack([np.stack(sides, axis=1) for sides in quadrants], axis=1)
    # A node that is split only across its rows has its second child at index 2.
    children[rows & ~columns, 1] = children[rows & ~columns, 2]
    players = np.where(rows, 2, 1) * np.where(columns, 2, 1)
    children[np.arange(4) >= players[:, None]] = 0
    return children, players


def _percentile_of(values: np.ndarray, groups: np.ndarray, n: int, percent: float) -> np.ndarray:
    """Return the percentile of the values per group, (n,), interpolated linearly as in numpy; 0 for an empty group."""
    counts = np.bincount(groups, minlength=n)
    filled = np.flatnonzero(counts)
    starts, last = (np.cumsum(counts) - counts)[filled], counts[filled] - 1
    ordered = values[np.lexsort((values, groups))]
    position = percent / 100 * last
    low = np.floor(position).astype(np.int64)
    below, above = ordered[starts + low], ordered[starts + np.minimum(low + 1, last)]
    result = np.zeros(n)
    result[filled] = below + (above - below) * (position - low)
    return result


def encode(
    rectangles: np.ndarray, shifts: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of each row and column: bits of the rectangles (P, parts, 4), moved up and left, that contain it."""
    bits = (1 << np.arange(rectangles.shape[1])).astype(np.int16)
    codes = []
    for axis, indices in enumerate((rows, columns)):
        indices = (indices + shifts[:, axis, None]) % len(indices)
        start, stop = rectangles[:, :, 2 * axis, None], rectangles[:, :, 2 * axis + 1, None]
        inside = (indices[:, None] >= start) & (indices[:, None] < stop)
        codes.append((inside * bits[:, None]).sum(axis=1, dtype=np.int16))
    return codes[0], codes[1]


def image_sides(shape: Sequence[int], min_size: int) -> tuple[int, int]:
    """Return the shape as (height, width), height 1 for a vector. Raises ShapelineError for a wrong shape."""
    if np.ndim(shape) != 1 or len(shape) not in (1, 2):
        raise ShapelineError(f"h_shap: shape is {shape!r}; give (length,) or (height, width).")
    sides = tuple(check_integer("h_shap", "a side of the shape", side, 1) for side in shape)
    min_size = check_integer("h_shap", "min_size", min_size, 1)
    if min_size > max(sides):
        size = "x".join(map(str, sides))
        raise ShapelineError(
            f"h_shap: min_size is {min_size} but the input has {size} cells; give at most {max(sides)}."
        )
    return (1, *sides) if len(sides) == 1 else sides


def call_game(game: Callable[[np.ndarray], np.ndarray], masks: np.ndarray) -> np.ndarray:
    """Return the game's values of masks (K,). Raises ShapelineError for a wrong shape."""
    values = np.asarray(game(masks), dtype=np.float64)
    if values.shape != (len(masks),):
        raise ShapelineError(f"h_shap: the game gave shape {values.shape} for {len(masks)} masks; it must give (K,).")
    return values
