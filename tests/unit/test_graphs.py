from itertools import islice

import networkx
import numpy as np
import pytest

from shapeline import graphs
from shapeline.errors import ShapelineError

from .games import GRAPHS, connected_sets


def test_chain_and_grid_are_row_major():
    assert sorted(graphs.chain(4).edges) == [(0, 1), (1, 2), (2, 3)]
    assert sorted(graphs.grid(2, 3).edges) == [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    assert list(graphs.grid(3, 2).nodes) == list(range(6))
    assert all(type(node) is int for node in graphs.grid(2, 2).nodes)
    assert graphs.chain(1).number_of_nodes() == 1


@pytest.mark.parametrize("make", [lambda: graphs.chain(0), lambda: graphs.grid(3, -1), lambda: graphs.chain(2.5)])
def test_impossible_sizes_are_refused(make):
    with pytest.raises(ShapelineError, match="whole number of at least 1"):
        make()


def test_neighborhood_is_graph_distance():
    graph = graphs.grid(5, 5)
    for node in (0, 7, 12):
        for order in range(5):
            column, rows = node % 5, node // 5
            near = {n for n in range(25) if abs(n % 5 - column) + abs(n // 5 - rows) <= order}
            assert graphs.neighborhood(graph, node, order) == near
    assert graphs.neighborhood(GRAPHS["disconnected"], 0, 100) == {0, 2, 4}


def test_neighborhood_refuses():
    with pytest.raises(ShapelineError, match="order is -1"):
        graphs.neighborhood(graphs.chain(3), 0, -1)
    with pytest.raises(ShapelineError, match="node 9 is not in the graph"):
        graphs.neighborhood(graphs.chain(3), 9, 1)


@pytest.mark.parametrize("seed", range(12))
def test_connected_subsets_match_brute_force_once_each(seed):
    rng = np.random.default_rng(seed)
    graph = networkx.gnp_random_graph(9, rng.uniform(0.1, 0.7), seed=seed)
    if seed % 3 == 0:
        graph.add_edge(4, 4)  # a self-loop changes nothing
    for node in (0, 4, 8):
        within = sorted({node, *rng.choice(9, size=rng.integers(1, 9), replace=False).tolist()})
        found = list(graphs.connected_subsets(graph, node, within))
        assert len(found) == len(set(found))
        assert set(found) == connected_sets(graph, within, node)


def test_connected_subsets_of_known_number():
    # On a chain the sets around position p of n are the (p + 1) (n - p) intervals; a complete graph has them all.
    assert len(list(graphs.connected_subsets(graphs.chain(60), 20, range(60)))) == 21 * 40
    assert len(list(graphs.connected_subsets(networkx.complete_graph(12), 3, range(12)))) == 2**11


def test_connected_subsets_outside_the_window():
    assert list(graphs.connected_subsets(graphs.chain(5), 0, [1, 2])) == []
    assert set(graphs.connected_subsets(graphs.chain(5), 2, {2, 4})) == {frozenset({2})}
    with pytest.raises(ShapelineError, match="node 7"):
        graphs.connected_subsets(graphs.chain(5), 0, [0, 7])


def test_connected_subsets_are_lazy():
    # More than 2^99 of them: the first ones still come at once.
    assert len(list(islice(graphs.connected_subsets(networkx.complete_graph(100), 0, range(100)), 50))) == 50


@pytest.mark.parametrize("name", GRAPHS)
def test_connected_table_without_root_lists_every_connected_set_once(name):
    graph = GRAPHS[name]
    d = graph.number_of_nodes()
    found = [
        frozenset(np.flatnonzero(row).tolist()) for row in graphs.connected_table(graphs.adjacency(graph, range(d)))
    ]
    assert len(found) == len(set(found))
    assert set(found) == set().union(*(connected_sets(graph, range(d), node) for node in range(d)))


def test_blocks_stay_small_and_nothing_is_lost():
    table = graphs.adjacency(graphs.chain(300), range(300))
    assert len(graphs.connected_table(table)) == 300 * 301 // 2
    blocks = graphs._grow(table, np.eye(300, dtype=bool), np.tri(300, k=-1, dtype=bool))
    assert max(map(len, blocks)) <= 300


def test_connected_table_stops_at_its_limit():
    table = graphs.adjacency(networkx.complete_graph(10), range(10))
    assert graphs.connected_table(table, limit=1022) is None
    assert len(graphs.connected_table(table, limit=1023)) == 1023
    wide = graphs.adjacency(graphs.grid(28, 28), range(784))
    assert graphs.connected_table(wide, limit=1000) is None


def test_boundaries():
    graph = GRAPHS["dense random"]
    subsets = graphs.connected_table(graphs.adjacency(graph, range(7)))
    for subset, beside in zip(subsets, graphs.boundaries(graphs.adjacency(graph, range(7)), subsets), strict=True):
        inside = set(np.flatnonzero(subset).tolist())
        assert set(np.flatnonzero(beside).tolist()) == {o for m in inside for o in graph.adj[m]} - inside


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (networkx.path_graph(3, create_using=networkx.DiGraph), "directed"),
        (networkx.Graph([("a", "b")]), "not the integers"),
        (networkx.Graph([(1, 2)]), "not the integers"),
        (networkx.Graph(), "not the integers"),
        (5, "give an undirected networkx.Graph"),
    ],
)
def test_unusable_graphs_get_one_line(graph, message):
    with pytest.raises(ShapelineError, match=message) as failure:
        graphs.check(graph)
    assert "\n" not in str(failure.value)


def test_wrong_number_of_nodes():
    assert graphs.check(graphs.chain(4), d=4) == 4
    with pytest.raises(ShapelineError, match="4 nodes but there are 6 features"):
        graphs.check(graphs.chain(4), d=6)
