"""L-Shapley and C-Shapley: coalitions inside a window around each feature on a graph.

L-Shapley is the Shapley value of each feature inside its window, exact or by permutations. C-Shapley uses the connected
coalitions inside the window, or a regression on runs or squares.
"""

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs import design
from shapeline.designs.exact import shapley_readout
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one


def l_shapley(
    graph: networkx.Graph,
    order: int = 1,
    context: str = "absent",
    samples: int | None = None,
    seed: int | None = None,
    max_coalitions: int = design.MAX_COALITIONS,
) -> design.Design:
    """Return the design of L-Shapley: the Shapley value of i in the game restricted to its neighbourhood.

    Parameters
    ----------
    graph : networkx.Graph
        Of the features, as `shapeline.graphs.chain` or `grid`.
    order : int
        Graph distance of the neighbourhood.
    context : {"absent", "present"}
        Whether features outside the window are masked (the definition) or kept (the authors' code).
    samples : int, optional
        Permutations inside each window; a window with at most twice as many coalitions is computed exactly.
    seed : int, optional
        Of the permutations; None counts as 0.
    max_coalitions : int
        Most coalitions before merging; less where windows are very wide.

    Returns
    -------
    Design
        Masks (K, d) bool and a sparse readout.

    Raises
    ------
    ShapelineError
        Where the windows need more coalitions.

    References
    ----------
    Chen, Song, Wainwright & Jordan (2018), equation 5 and section 4.3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs, graphs
    >>> design = designs.l_shapley(graphs.chain(200), order=1)
    >>> len(design.masks)
    796
    """
    d = graphs.check(graph, "l_shapley")
    order = design.check_integer("l_shapley", "order", order, 0)
    design.check_choice("l_shapley", "context", context, ("absent", "present"))
    if samples is not None:
        samples = design.check_integer("l_shapley", "samples", samples, 1)
    windows = graphs.windows(graph, order)
    needed = _bound_coalitions(windows, samples)
    max_coalitions = min(max_coalitions, design.MAX_CELLS // max(map(len, windows)))
    if needed > max_coalitions:
        raise ShapelineError(_format_l_refusal(graph, d, order, samples, needed, max_coalitions))

    rng = np.random.default_rng(0 if seed is None else seed)
    sets, features, rows, weights, total = [], [], [], [], 0
    by_width: dict[int, list[int]] = {}
    for node, window in enumerate(windows):
        by_width.setdefault(len(window), []).append(node)
    for w, centres in sorted(by_width.items()):
        centres = np.array(centres)
        nodes = np.array([windows[node] for node in centres])
        block = _sample_masks if samples is not None and 2**w > 2 * samples else _enumerate_windows
        listed, feature, row, weight = block(d, centres, nodes, context, samples, rng)
        sets.append(listed)
        features.append(feature)
        rows.append(row + total)
        weights.append(weight)
        total += len(listed)
    return design.merge_sets(d, sets, *(np.concatenate(part) for part in (features, rows, weights)), context)


def _enumerate_windows(d, centres, nodes, context, samples, rng):
    """Return sets and terms of all coalitions of windows (m, w) of one width. Equal windows are listed once."""
    nodes, which = np.unique(nodes, axis=0, return_inverse=True)
    which = which.ravel()
    inside = design.enumerate_coalitions(nodes.shape[1], "l_shapley")
    sets = design.pad_sets(d, nodes[:, None, :], inside if context == "absent" else ~inside)
    position = (nodes[which] == centres[:, None]).argmax(axis=1)
    rows = which[:, None] * len(inside) + np.arange(len(inside))
    return (
        sets.reshape(-1, nodes.shape[1]),
        np.repeat(centres, len(inside)),
        rows.ravel(),
        shapley_readout(inside)[position].ravel(),
    )


def _sample_masks(d, centres, nodes, context, samples, rng):
    """Return sets and terms of the centre's predecessors in `samples` permutations, without and with the centre."""
    m, w = nodes.shape
    centre = nodes == centres[:, None]
    others = nodes[~centre].reshape(m, w - 1)
    # The predecessors of i in a random permutation are a uniform subset of uniform size.
    sizes = rng.integers(0, w, (m, samples))
    before = rng.permuted(np.arange(w - 1) < sizes[:, :, None], axis=2)
    columns = np.concatenate([others, centres[:, None]], axis=1)[:, None, :]
    sets = []
    for with_centre in (False, True):
        kept = np.concatenate([before, np.full((m, samples, 1), with_centre)], axis=2)
        sets.append(design.pad_sets(d, columns, kept if context == "absent" else ~kept).reshape(-1, w))
    features = np.tile(np.repeat(centres, samples), 2)
    weights = np.repeat([-1 / samples, 1 / samples], m * samples)
    return np.concatenate(sets), features, np.arange(2 * m * samples), weights


def _bound_coalitions(windows: list[tuple[int, ...]], samples: int | None) -> int:
    """Return an upper bound of the coalitions before merging, as an exact int."""
    if samples is None:
        return sum(2 ** len(window) for window in set(windows))
    return sum(min(2 ** len(window), 2 * samples) for window in windows)


def _format_l_refusal(graph, d, order, samples, needed, most) -> str:
    if samples is not None:
        return (
            f"l_shapley: samples {samples} on {d} windows needs up to {needed:,} coalitions (limit {most:,}); lower it."
        )
    largest = -1
    while _bound_coalitions(graphs.windows(graph, largest + 1), None) <= most:
        largest += 1
    fits = f"order {largest} fits" if largest >= 0 else "no order fits"
    count = f"{needed:,}" if needed < 10**15 else f"10^{len(str(needed)) - 1}"
    return (
        f"l_shapley: order {order} on this graph of {d} nodes needs up to {count} coalitions (limit {most:,}); "
        f"{fits}, or give samples, the permutations inside each window."
    )


def c_shapley(
    graph: networkx.Graph,
    order: int = 4,
    weights: str = "paper",
    context: str = "absent",
    max_coalitions: int = design.MAX_COALITIONS,
) -> design.Design:
    """Return the design of C-Shapley: the sum of c(U) [v(U) - v(U without i)] over connected U around i.

    Parameters
    ----------
    graph : networkx.Graph
        Of the features.
    order : int
        Graph distance within which U lies.
    weights : {"paper", "myerson"}
        "paper": c(U) = 2/((u+2)(u+1)u), as printed; "myerson": (u-1)! b!/(u+b)! with b nodes of the window adjacent to
        U, with which an order of at least the diameter gives the Myerson value of a game that is additive over
        components.
    context : {"absent", "present"}
        Whether features outside the window are masked (the definition) or kept (the authors' code).
    max_coalitions : int
        Most coalitions before merging; less where windows are very wide.

    Returns
    -------
    Design
        Masks (K, d) bool and a sparse readout.

    Raises
    ------
    ShapelineError
        Where the windows need more coalitions, with the largest order that fits.

    References
    ----------
    Chen, Song, Wainwright & Jordan (2018), equation 6.

    Examples
    --------
    >>> from shapeline import designs, graphs
    >>> len(designs.c_shapley(graphs.chain(200), order=2).masks)
    1779
    """
    d = graphs.check(graph, "c_shapley")
    order = design.check_integer("c_shapley", "order", order, 0)
    design.check_choice("c_shapley", "weights", weights, ("paper", "myerson"))
    design.check_choice("c_shapley", "context", context, ("absent", "present"))
    shapes = _enumerate_shapes(graph, order, max_coalitions)
    if shapes is None:
        raise ShapelineError(_format_c_refusal(graph, d, order, max_coalitions))

    sets, features, rows, terms, total = [], [], [], [], 0
    for centres, nodes, table, position, subsets in shapes:
        u = subsets.sum(axis=1)
        if weights == "paper":
            c = 2 / ((u + 2.0) * (u + 1.0) * u)
        else:
            b = graphs.boundaries(table, subsets).sum(axis=1)
            c = np.exp(design.log_factorial(u - 1) + design.log_factorial(b) - design.log_factorial(u + b))
        without = subsets.copy()
        without[:, position] = False
        for sign, keep in ((1, subsets), (-1, without)):
            listed = design.pad_sets(d, nodes[:, None, :], keep if context == "absent" else ~keep)
            sets.append(listed.reshape(-1, nodes.shape[1]))
            features.append(np.repeat(centres, len(c)))
            rows.append(total + np.arange(len(sets[-1])))
            terms.append(np.tile(sign * c, len(centres)))
            total += len(sets[-1])
    return design.merge_sets(d, sets, *(np.concatenate(part) for part in (features, rows, terms)), context)


def c_shapley_regression(
    shape: tuple[int, ...], order: int = 4, fit: str = "uniform", constrained: bool = False
) -> design.Design:
    """Return the design of least squares on all runs, or squares, of features.

    The response is F = v(S) - v(empty), without an intercept.

    Parameters
    ----------
    shape : tuple of int
        (d,) for runs, (height, width) for squares, row major.
    order : int
        Runs have 1 to `order` features, squares sides of 1 to `order`.
    fit : {"uniform", "kernel", "printed"}
        Equal weights; Shapley kernel weights W; or the paper's (X'WX)^-1 X'F, whose scale is not that of a Shapley
        value.
    constrained : bool
        Whether the scores sum to v(N) - v(empty).

    Returns
    -------
    Design
        Masks (K, d) bool and a dense readout.

    References
    ----------
    Chen, Song, Wainwright & Jordan (2018), section 4.3.2.

    Examples
    --------
    >>> from shapeline import designs
    >>> designs.c_shapley_regression((3,), order=2).masks.astype(int)
    array([[0, 0, 0],
           [1, 0, 0],
           [0, 1, 0],
           [0, 0, 1],
           [1, 1, 0],
           [0, 1, 1]])
    """
    where = "c_shapley_regression"
    shape = tuple(
        design.check_integer(where, "shape", n, 1) for n in (shape if isinstance(shape, (tuple, list)) else (shape,))
    )
    if len(shape) not in (1, 2):
        raise ShapelineError(f"{where}: shape {shape} has {len(shape)} axes; give (d,) for runs or (h, w) for squares.")
    order = design.check_integer(where, "order", order, 1)
    design.check_choice(where, "fit", fit, ("uniform", "kernel", "printed"))
    if constrained and fit == "printed":
        raise ShapelineError(f"{where}: the printed form has no constrained fit; choose fit 'uniform' or 'kernel'.")
    d = int(np.prod(shape))
    if d == 1:
        return design.build_single_feature()
    inner = _build_squares(shape, order)
    sizes = inner.sum(axis=1)
    weights = np.ones(len(inner))
    if fit != "uniform":
        # The full coalition's weight is infinite: it becomes a constraint.
        weights = np.where(sizes < d, design.kernel_weight(d, np.minimum(sizes, d - 1)), np.inf)
    if constrained or not np.isfinite(weights).all():
        if fit == "printed":
            raise ShapelineError(f"{where}: the printed form has no weight for all {d} features at once; lower order.")
        return design.constrained_fit(inner[sizes < d], weights[sizes < d], where)
    rows = inner.astype(np.float64)
    right = rows.T * weights
    with limit_to_one(rows.size * d):
        solution = design.solve_positive(right @ rows, rows.T if fit == "printed" else right, where)
    masks = np.concatenate([np.zeros((1, d), bool), inner])
    return design.Design(masks, np.column_stack([-solution.sum(axis=1), solution]))


def _build_squares(shape: tuple[int, ...], order: int) -> np.ndarray:
    """Return all runs (1 axis) or squares (2 axes) of side 1..order as masks (n, d), by side then position."""
    blocks = []
    for side in range(1, min(order, *shape) + 1):
        spans = [np.arange(n) - np.arange(n - side + 1)[:, None] for n in shape]
        spans = [(0 <= span) & (span < side) for span in spans]
        if len(shape) == 2:
            spans = [(spans[0][:, None, :, None] & spans[1][None, :, None, :]).reshape(-1, shape[0] * shape[1])]
        blocks.append(spans[0])
    return np.concatenate(blocks)


def _enumerate_shapes(graph: networkx.Graph, order: int, most: int) -> list[tuple] | None:
    """Return centres, windows, adjacency, position of the centre and connected subsets (n, w) of each shape of window.
    Windows with the same adjacency and centre share one enumeration; None for more than `most` coalitions."""
    windows = graphs.windows(graph, order)
    widest = max(map(len, windows))
    most = min(most, design.MAX_CELLS // widest)
    if order > 1 and widest > design.MAX_D and _enumerate_shapes(graph, order // 2, most) is None:
        return None  # a smaller order exceeds the limit sooner, before wide windows are enumerated
    groups: dict[tuple, tuple[list, list]] = {}
    for node, window in enumerate(windows):
        position = window.index(node)
        key = position, len(window), np.packbits(graphs.adjacency(graph, window)).tobytes()
        centres, nodes = groups.setdefault(key, ([], []))
        centres.append(node)
        nodes.append(window)
    shapes, built = [], 0
    for (position, _, _), (centres, nodes) in groups.items():
        table = graphs.adjacency(graph, nodes[0])
        # Each subset is evaluated with and without the centre.
        subsets = graphs.connected_table(table, position, (most - built) // (2 * len(centres)))
        if subsets is None:
            return None
        built += 2 * len(centres) * len(subsets)
        shapes.append((np.array(centres), np.array(nodes), table, position, subsets))
    return shapes


def _format_c_refusal(graph: networkx.Graph, d: int, order: int, most: int) -> str:
    largest = -1
    while largest + 1 < order and _enumerate_shapes(graph, largest + 1, most) is not None:
        largest += 1
    fits = f"order {largest} fits" if largest >= 0 else "no order fits"
    widest = max(map(len, graphs.windows(graph, order)))
    most = min(most, design.MAX_CELLS // widest)
    count = f"more than {most:,}"
    shapes = _enumerate_shapes(graph, order, 8 * most) if widest <= design.MAX_D else None
    if shapes is not None:
        count = f"up to {sum(2 * len(centres) * len(subsets) for centres, _, _, _, subsets in shapes):,}"
    return (
        f"c_shapley: order {order} on this graph of {d} nodes needs {count} coalitions (limit {most:,}); "
        f"{fits}, or choose a method with a budget, as gp_shapley."
    )
