"""L-Shapley: the Shapley value of each feature inside its own window, exact or by permutations."""

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs import design
from shapeline.designs.exact import shapley_readout
from shapeline.errors import ShapelineError


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
        Permutations inside each window of more coalitions than they would use; smaller windows stay exact.
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
    order = design.whole("l_shapley", "order", order, 0)
    design.one_of("l_shapley", "context", context, ("absent", "present"))
    if samples is not None:
        samples = design.whole("l_shapley", "samples", samples, 1)
    windows = graphs.windows(graph, order)
    needed = _coalitions(windows, samples)
    max_coalitions = min(max_coalitions, design.MAX_CELLS // max(map(len, windows)))
    if needed > max_coalitions:
        raise ShapelineError(_refusal(graph, d, order, samples, needed, max_coalitions))

    rng = np.random.default_rng(0 if seed is None else seed)
    sets, features, rows, weights, total = [], [], [], [], 0
    by_width: dict[int, list[int]] = {}
    for node, window in enumerate(windows):
        by_width.setdefault(len(window), []).append(node)
    for w, centres in sorted(by_width.items()):
        centres = np.array(centres)
        nodes = np.array([windows[node] for node in centres])
        block = _sample_masks if samples is not None and 2**w > 2 * samples else _enumerate_windows
        made, feature, row, weight = block(d, centres, nodes, context, samples, rng)
        sets.append(made)
        features.append(feature)
        rows.append(row + total)
        weights.append(weight)
        total += len(made)
    return design.from_sets(d, sets, *(np.concatenate(part) for part in (features, rows, weights)), context)


def _enumerate_windows(d, centres, nodes, context, samples, rng):
    """All coalitions of windows (m, w) of one width: sets and terms. Equal windows are listed once."""
    nodes, which = np.unique(nodes, axis=0, return_inverse=True)
    which = which.ravel()
    inside = design.all_coalitions(nodes.shape[1], "l_shapley")
    sets = design.padded_sets(d, nodes[:, None, :], inside if context == "absent" else ~inside)
    place = (nodes[which] == centres[:, None]).argmax(axis=1)
    rows = which[:, None] * len(inside) + np.arange(len(inside))
    return (
        sets.reshape(-1, nodes.shape[1]),
        np.repeat(centres, len(inside)),
        rows.ravel(),
        shapley_readout(inside)[place].ravel(),
    )


def _sample_masks(d, centres, nodes, context, samples, rng):
    """The features before the centre in `samples` permutations of each window, without and with the centre."""
    m, w = nodes.shape
    centre = nodes == centres[:, None]
    others = nodes[~centre].reshape(m, w - 1)
    # A permutation's predecessors of i are a uniform size and a uniform subset of that size.
    sizes = rng.integers(0, w, (m, samples))
    before = rng.permuted(np.arange(w - 1) < sizes[:, :, None], axis=2)
    columns = np.concatenate([others, centres[:, None]], axis=1)[:, None, :]
    sets = []
    for with_centre in (False, True):
        kept = np.concatenate([before, np.full((m, samples, 1), with_centre)], axis=2)
        sets.append(design.padded_sets(d, columns, kept if context == "absent" else ~kept).reshape(-1, w))
    features = np.tile(np.repeat(centres, samples), 2)
    weights = np.repeat([-1 / samples, 1 / samples], m * samples)
    return np.concatenate(sets), features, np.arange(2 * m * samples), weights


def _coalitions(windows: list[tuple[int, ...]], samples: int | None) -> int:
    """Coalitions to build before merging, at most; an exact int."""
    if samples is None:
        return sum(2 ** len(window) for window in set(windows))
    return sum(min(2 ** len(window), 2 * samples) for window in windows)


def _refusal(graph, d, order, samples, needed, most) -> str:
    if samples is not None:
        return (
            f"l_shapley: samples {samples} on {d} windows needs up to {needed:,} coalitions (limit {most:,}); lower it."
        )
    largest = -1
    while _coalitions(graphs.windows(graph, largest + 1), None) <= most:
        largest += 1
    fits = f"order {largest} fits" if largest >= 0 else "no order fits"
    count = f"{needed:,}" if needed < 10**15 else f"10^{len(str(needed)) - 1}"
    return (
        f"l_shapley: order {order} on this graph of {d} nodes needs up to {count} coalitions (limit {most:,}); "
        f"{fits}, or give samples, the permutations inside each window."
    )
