"""Graphs over features 0..d-1 (undirected, networkx): chains, grids, windows N_k(i) and their connected subsets."""

from collections.abc import Iterable, Iterator

import networkx
import numpy as np

from shapeline.errors import ShapelineError, name_type


def chain(d: int) -> networkx.Graph:
    """Return the path graph on the nodes 0 to d - 1: the graph of a sequence.

    Examples
    --------
    >>> from shapeline import graphs
    >>> list(graphs.chain(3).edges)
    [(0, 1), (1, 2)]
    """
    return grid(1, d)


def grid(height: int, width: int) -> networkx.Graph:
    """Return the grid of 4 neighbours on the nodes 0 to height * width - 1, row major: the graph of pixels or patches.

    Examples
    --------
    >>> from shapeline import graphs
    >>> list(graphs.grid(2, 2).edges)
    [(0, 1), (0, 2), (1, 3), (2, 3)]
    """
    for name, size in (("height", height), ("width", width)):
        if not isinstance(size, (int, np.integer)) or size < 1:
            raise ShapelineError(f"graph: {name} or number of nodes is {size!r}; give a whole number of at least 1.")
    nodes = np.arange(height * width).reshape(height, width)
    graph = networkx.Graph()
    graph.add_nodes_from(nodes.ravel().tolist())
    graph.add_edges_from(zip(nodes[:, :-1].ravel().tolist(), nodes[:, 1:].ravel().tolist(), strict=True))
    graph.add_edges_from(zip(nodes[:-1].ravel().tolist(), nodes[1:].ravel().tolist(), strict=True))
    return graph


def check(graph: networkx.Graph, where: str = "graph", d: int | None = None) -> int:
    """Return the number of features of `graph`; one ShapelineError line unless it is undirected on the nodes 0..d-1."""
    if not isinstance(graph, networkx.Graph):
        raise ShapelineError(f"{where}: the graph is {name_type(graph)}; give an undirected networkx.Graph.")
    if graph.is_directed():
        raise ShapelineError(f"{where}: the graph is directed; give graph.to_undirected().")
    n = graph.number_of_nodes()
    if d is not None and n != d:
        raise ShapelineError(f"{where}: the graph has {n} nodes but there are {d} features; give one node a feature.")
    if n == 0 or any(node not in graph for node in range(n)):
        raise ShapelineError(f"{where}: the {n} nodes are not the integers 0..d-1; relabel them (a node is a feature).")
    return n


def neighborhood(graph: networkx.Graph, node: int, order: int) -> set[int]:
    """Return the nodes within graph distance `order` of `node`, itself included.

    Raises
    ------
    ShapelineError
        Where the node is not in the graph, or the order is negative.

    References
    ----------
    N_k(i) of Chen, Song, Wainwright & Jordan (2018), section 3.

    Examples
    --------
    >>> from shapeline import graphs
    >>> sorted(graphs.neighborhood(graphs.chain(5), 2, order=1))
    [1, 2, 3]
    """
    _check_nodes(graph, [node], "neighborhood")
    if not isinstance(order, (int, np.integer)) or order < 0:
        raise ShapelineError(f"neighborhood: order is {order!r}; give a whole number of at least 0.")
    reached, edge = {node}, {node}
    for _ in range(order):
        edge = {other for member in edge for other in graph.adj[member]} - reached
        if not edge:
            break
        reached |= edge
    return reached


def windows(graph: networkx.Graph, order: int) -> list[tuple[int, ...]]:
    """Return N_order(i) of every node i = 0..d-1, each in ascending order."""
    return [tuple(sorted(neighborhood(graph, node, order))) for node in range(graph.number_of_nodes())]


def adjacency(graph: networkx.Graph, nodes: Iterable[int]) -> np.ndarray:
    """Return the adjacency (w, w) of `nodes` in the given order."""
    positions = {node: position for position, node in enumerate(nodes)}
    table = np.zeros((len(positions), len(positions)), bool)
    for node, row in positions.items():
        table[row, [positions[other] for other in graph.adj[node] if other in positions]] = True
    return table


def connected_subsets(graph: networkx.Graph, node: int, within: Iterable[int]) -> Iterator[frozenset[int]]:
    """Yield every connected set of nodes of `within` that contains `node`, each once, in any order.

    The sets are generated lazily, which bounds memory. There is none if `node` is not in `within`.

    Parameters
    ----------
    graph : networkx.Graph
    node : int
    within : iterable of int

    Yields
    ------
    frozenset of int

    Examples
    --------
    >>> from shapeline import graphs
    >>> sorted(map(sorted, graphs.connected_subsets(graphs.chain(4), 1, {0, 1, 2})))
    [[0, 1], [0, 1, 2], [1], [1, 2]]
    """
    members = sorted(set(within))
    _check_nodes(graph, [node, *members], "connected_subsets")
    if node not in members:
        return iter(())
    blocks = _grow(adjacency(graph, members), *_start_at(len(members), members.index(node)))
    return (frozenset(members[index] for index in np.flatnonzero(row)) for block in blocks for row in block)


def connected_table(table: np.ndarray, root: int | None = None, limit: int | None = None) -> np.ndarray | None:
    """Return the connected subsets (n, w) of a small graph of adjacency `table`, with `root`; None beyond `limit`."""
    w = len(table)
    if root is None:
        # The sets whose smallest node is r: node r chosen, the smaller ones rejected.
        start = np.eye(w, dtype=bool), np.tri(w, k=-1, dtype=bool)
    else:
        start = _start_at(w, root)
    blocks, count = [], 0
    for block in _grow(table, *start):
        blocks.append(block)
        count += len(block)
        if limit is not None and count > limit:
            return None
    return np.concatenate(blocks)


def boundaries(table: np.ndarray, subsets: np.ndarray) -> np.ndarray:
    """Return the nodes outside each subset (n, w) that are adjacent to it, (n, w) bool."""
    return _touch(table, subsets) & ~subsets


def _touch(table: np.ndarray, subsets: np.ndarray) -> np.ndarray:
    # float32 products run on BLAS; counts up to 2^24 stay exact.
    return subsets.astype(np.float32) @ table.astype(np.float32) > 0


def _start_at(w: int, root: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(w)[None] == root, np.zeros((1, w), bool)


def _grow(table: np.ndarray, chosen: np.ndarray, rejected: np.ndarray) -> Iterator[np.ndarray]:
    """Yield blocks (n, w) of the connected supersets of each `chosen` row that avoid its `rejected` row.

    Exclusive extension of a subset by one neighbour at a time (ESU: Wernicke 2006, IEEE/ACM TCBB 3(4), §3; the problem
    and its linear delay by reverse search: Avis & Fukuda 1996, Discrete Applied Mathematics 65, §3.4): the first open
    neighbour is added to the set or rejected permanently, so each set is reached along exactly one path and no path is
    empty. All sets of a block decide at once; the stack is depth first to bound memory.
    """
    most = max(256, 2**24 // len(table) ** 2)
    closed = chosen | rejected
    stack = [(chosen, closed, _touch(table, chosen) & ~closed)]
    while stack:
        chosen, closed, open_ = stack.pop()
        pending = open_.any(axis=1)
        if not pending.all():
            yield chosen[~pending]
            chosen, closed, open_ = chosen[pending], closed[pending], open_[pending]
        if len(chosen) == 0:
            continue
        rows, pick = np.arange(len(chosen)), open_.argmax(axis=1)
        closed, open_, larger = closed.copy(), open_.copy(), chosen.copy()
        closed[rows, pick] = larger[rows, pick] = True
        open_[rows, pick] = False
        chosen = np.concatenate([chosen, larger])
        open_ = np.concatenate([open_, (open_ | table[pick]) & ~closed])
        closed = np.concatenate([closed, closed])
        for first in range(0, len(chosen), most):
            part = slice(first, first + most)
            stack.append((chosen[part], closed[part], open_[part]))


def _check_nodes(graph: networkx.Graph, nodes: list[int], where: str) -> None:
    for node in nodes:
        if node not in graph:
            raise ShapelineError(
                f"{where}: node {node!r} is not in the graph of {graph.number_of_nodes()} nodes; give a node of it."
            )
