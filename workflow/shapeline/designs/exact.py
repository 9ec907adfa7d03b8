"""Exact values over all coalitions: Shapley, Banzhaf, Myerson; and occlusion (leave-one-out)."""

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs import design
from shapeline.errors import ShapelineError


def shapley(d: int) -> design.Design:
    """Return the design of the Shapley value over all coalitions.

    Parameters
    ----------
    d : int
        Number of features, at most 20.

    Returns
    -------
    Design
        Masks (2^d, d) bool and a dense readout (d, 2^d).

    Raises
    ------
    ShapelineError
        Where d is out of range.

    References
    ----------
    Shapley (1953).

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs
    >>> def game(masks):  # (K, 3) bool -> (K,)
    ...     return masks @ np.array([3.0, 1.0, 2.0]) + 4.0 * masks[:, 0] * masks[:, 2]
    >>> design = designs.shapley(3)
    >>> design.attribute(game(design.masks))
    array([5., 1., 4.])
    """
    d = design.check_integer("shapley", "d", d, 1)
    masks = design.enumerate_coalitions(d, "shapley")
    return design.Design(masks, shapley_readout(masks))


def banzhaf(d: int) -> design.Design:
    """Return the design of the Banzhaf value, the mean marginal contribution over all coalitions of the others.

    Parameters
    ----------
    d : int
        Number of features, at most 20.

    Returns
    -------
    Design
        Masks (2^d, d) bool and a dense readout.

    References
    ----------
    Banzhaf (1965).

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs
    >>> design = designs.banzhaf(2)
    >>> design.attribute(design.masks.all(axis=1).astype(float))
    array([0.5, 0.5])
    """
    d = design.check_integer("banzhaf", "d", d, 1)
    masks = design.enumerate_coalitions(d, "banzhaf")
    return design.Design(masks, np.where(masks.T, 1.0, -1.0) * 2.0 ** (1 - d))


def occlusion(d: int) -> design.Design:
    """Return the design of leave-one-out, v(N) - v(N without i).

    Parameters
    ----------
    d : int
        Number of features, any.

    Returns
    -------
    Design
        Masks (d + 1, d) bool and a sparse readout.

    References
    ----------
    Zeiler & Fergus (2014).

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs
    >>> design = designs.occlusion(3)
    >>> design.attribute(design.masks @ np.array([3.0, 1.0, 2.0]))
    array([3., 1., 2.])
    """
    masks = np.ones((count_occlusions(d), d), bool)
    features = np.arange(d)
    masks[features + 1, features] = False
    rows = np.concatenate([np.zeros(d, int), features + 1])
    weights = np.repeat([1.0, -1.0], d)
    return design.Design(masks, design.build_sparse_readout(d, d + 1, np.tile(features, 2), rows, weights))


def count_occlusions(d: int) -> int:
    """Return the number d + 1 of coalitions of occlusion. Raises ShapelineError if their masks exceed MAX_CELLS."""
    d = design.check_integer("occlusion", "d", d, 1)
    if d * (d + 1) > design.MAX_CELLS:
        raise ShapelineError(
            f"occlusion: {d + 1:,} coalitions of {d:,} features do not fit; give it patches: "
            "features: {kind: patch, size: ...}"
        )
    return d + 1


def myerson(graph: networkx.Graph, max_coalitions: int = design.MAX_COALITIONS) -> design.Design:
    """Return the design of the Myerson value: the Shapley value of the sum of v(T) - v(empty) over the components T.

    Only the empty and the connected coalitions are evaluated, so d may exceed 20. A connected U with u nodes and b
    neighbours has the weight (u-1)! b!/(u+b)! for its members and -u! (b-1)!/(u+b)! for its neighbours.

    Parameters
    ----------
    graph : networkx.Graph
        Any undirected graph on the nodes 0 to d - 1, connected or not.
    max_coalitions : int
        Most connected coalitions; less where d is very large.

    Returns
    -------
    Design
        Masks (K, d) bool, 1 + d (d + 1) / 2 rows on a chain.

    Raises
    ------
    ShapelineError
        Where the graph has more connected coalitions, with their number.

    References
    ----------
    Myerson (1977).

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import designs, graphs
    >>> design = designs.myerson(graphs.chain(3))
    >>> design.masks.shape
    (7, 3)
    >>> design.attribute(design.masks @ np.array([3.0, 1.0, 2.0])).round(6)
    array([3., 1., 2.])
    """
    from scipy.sparse import csr_array

    d = graphs.check(graph, "myerson")
    table = graphs.adjacency(graph, range(d))
    most = min(max_coalitions, design.MAX_CELLS // 4 // d) - 1  # masks and a dense readout are in memory together
    subsets = graphs.connected_table(table, limit=most)
    if subsets is None:
        raise ShapelineError(
            f"myerson: this graph of {d} nodes has more than {most:,} connected coalitions; "
            "choose coarser features or a sparser graph, or c_shapley with weights='myerson' and a small order."
        )
    edge = graphs.boundaries(table, subsets)
    u, b = subsets.sum(axis=1), edge.sum(axis=1)
    total = design.log_factorial(u + b)
    inside = np.exp(design.log_factorial(u - 1) + design.log_factorial(b) - total)
    # Where b is 0 this weight is not used; the maximum only keeps the logarithm defined.
    outside = -np.exp(design.log_factorial(u) + design.log_factorial(np.maximum(b - 1, 0)) - total)
    readout = np.where(subsets.T, inside, np.where(edge.T, outside, 0.0))
    # The empty coalition's weights turn each v(U) into v(U) - v(empty).
    readout = np.column_stack([-readout.sum(axis=1), readout])
    masks = np.concatenate([np.zeros((1, d), bool), subsets])
    return design.Design(masks, readout if d <= design.MAX_D else csr_array(readout))


def shapley_readout(masks: np.ndarray) -> np.ndarray:
    """Return Shapley weights (d, 2^d) of coalitions (2^d, d): (s-1)! (d-s)!/d! if i is in S, else -s! (d-s-1)!/d!."""
    d = masks.shape[1]
    s = np.arange(d + 1)
    inside = np.exp(design.log_factorial(np.maximum(s - 1, 0)) + design.log_factorial(d - s) - design.log_factorial(d))
    outside = -np.exp(
        design.log_factorial(s) + design.log_factorial(np.maximum(d - s - 1, 0)) - design.log_factorial(d)
    )
    sizes = masks.sum(axis=1)
    return np.where(masks.T, inside[sizes], outside[sizes])
