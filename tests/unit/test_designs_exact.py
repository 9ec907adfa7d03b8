import time

import networkx
import numpy as np
import pytest

from shapeline import designs, graphs
from shapeline.designs.design import enumerate_size
from shapeline.errors import ShapelineError

from . import games
from .games import GRAPHS


@pytest.mark.parametrize("d", range(1, 9))
def test_shapley_and_banzhaf_equal_brute_force(d):
    game = games.table(d, seed=d)
    np.testing.assert_allclose(games.scores(designs.shapley(d), game), games.shapley(game), atol=1e-10)
    np.testing.assert_allclose(games.scores(designs.banzhaf(d), game), games.banzhaf(game), atol=1e-10)


def test_shapley_of_unanimity_games():
    terms = {frozenset({0, 3}): 2.0, frozenset({1, 2, 3, 5}): -1.0, frozenset({4}): 0.5, frozenset(range(6)): 3.0}
    game = games.unanimity(6, terms)
    shares = np.zeros(6)
    swings = np.zeros(6)
    for part, a in terms.items():
        for i in part:
            shares[i] += a / len(part)
            swings[i] += a / 2 ** (len(part) - 1)
    np.testing.assert_allclose(games.scores(designs.shapley(6), game), shares, atol=1e-12)
    np.testing.assert_allclose(games.scores(designs.banzhaf(6), game), swings, atol=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_myerson_is_the_shapley_value_of_the_graph_game(name):
    graph = GRAPHS[name]
    d = graph.number_of_nodes()
    game = games.table(d, seed=5)
    expected = games.shapley(games.myerson_game(game, graph))
    design = designs.myerson(graph)
    np.testing.assert_allclose(games.scores(design, game), expected, atol=1e-10)
    assert len(design.masks) == len(np.unique(design.masks, axis=0))


@pytest.mark.parametrize("seed", range(8))
def test_myerson_on_random_graphs(seed):
    rng = np.random.default_rng(seed)
    graph = networkx.gnp_random_graph(8, rng.uniform(0.1, 0.8), seed=seed)
    game = games.table(8, seed)
    expected = games.shapley(games.myerson_game(game, graph))
    np.testing.assert_allclose(games.scores(designs.myerson(graph), game), expected, atol=1e-10)


def test_myerson_on_a_complete_graph_is_shapley():
    game = games.table(7)
    np.testing.assert_allclose(
        games.scores(designs.myerson(GRAPHS["complete"]), games.table(5)), games.shapley(games.table(5))
    )
    expected = games.scores(designs.shapley(7), game)
    np.testing.assert_allclose(games.scores(designs.myerson(networkx.complete_graph(7)), game), expected, atol=1e-12)


def test_myerson_passes_d_20_where_few_coalitions_are_connected():
    design = designs.myerson(graphs.chain(200))
    assert design.evaluations == 200 * 201 // 2 + 1
    weights = np.random.default_rng(0).normal(size=200)
    np.testing.assert_allclose(design.attribute(design.masks @ weights + 2.0), weights, atol=1e-9)


def test_occlusion():
    game = games.table(6)
    full = 2**6 - 1
    expected = [game[full] - game[full - 2**i] for i in range(6)]
    design = designs.occlusion(6)
    np.testing.assert_allclose(games.scores(design, game), expected)
    assert design.evaluations == 7


def test_refusals_are_one_line():
    for make, message in (
        (lambda: designs.shapley(21), "2\\^21 coalitions"),
        (lambda: designs.banzhaf(30), "at most d = 20"),
        (lambda: designs.shapley(0), "d is 0"),
        (lambda: designs.shapley(2.5), "d is 2.5"),
        (lambda: designs.occlusion(-1), "d is -1"),
        (lambda: designs.occlusion(240 * 320), "76,801 coalitions of 76,800 features do not fit; give it patches"),
        (lambda: designs.myerson(networkx.complete_graph(24)), "more than 1,048,575 connected coalitions"),
        (lambda: designs.myerson(graphs.grid(28, 28)), "connected coalitions"),
        (lambda: designs.myerson(graphs.chain(9), max_coalitions=40), "more than 39"),
    ):
        with pytest.raises(ShapelineError, match=message) as failure:
            make()
        assert "\n" not in str(failure.value)


def test_sixteen_features_build_in_under_a_second():
    start = time.process_time()
    designs.shapley(16)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("d", [1, 4, 7])
def test_subsets_of_size(d):
    for size in range(d + 1):
        masks = enumerate_size(d, size)
        rows = {games.row(np.flatnonzero(mask)) for mask in masks}
        assert len(masks) == len(rows) == sum(len(games.members(r)) == size for r in range(2**d))
        assert (masks.sum(axis=1) == size).all()


def test_design_refuses_wrong_shapes():
    design = designs.shapley(3)
    with pytest.raises(ShapelineError, match="values of shape"):
        design.attribute(np.zeros(5))
    with pytest.raises(ShapelineError, match="bool"):
        designs.Design(np.zeros((4, 3)), np.zeros((3, 4)))
    with pytest.raises(ShapelineError, match="float64 of shape"):
        designs.Design(np.zeros((4, 3), bool), np.zeros((4, 3)))


@pytest.mark.parametrize("design", [designs.shapley(4), designs.occlusion(4)], ids=["dense", "sparse"])
def test_attribute_takes_any_leading_axes(design):
    values = np.random.default_rng(0).normal(size=(2, 3, design.evaluations)).astype(np.float32)
    together = design.attribute(values)
    assert together.shape == (2, 3, 4) and together.dtype == np.float64
    np.testing.assert_allclose(together[1, 2], design.attribute(values[1, 2]))
    assert design.attribute(values[:0]).shape == (0, 3, 4)
