import time

import networkx
import numpy as np
import pytest

from shapeline import designs, graphs
from shapeline.errors import ShapelineError

from . import games
from .games import GRAPHS


@pytest.mark.parametrize("context", ["absent", "present"])
@pytest.mark.parametrize("order", [0, 1, 2, 9])
@pytest.mark.parametrize("name", GRAPHS)
def test_equals_brute_force(name, order, context):
    graph = GRAPHS[name]
    game = games.table(graph.number_of_nodes(), seed=order)
    design = designs.l_shapley(graph, order, context)
    np.testing.assert_allclose(games.scores(design, game), games.l_shapley(game, graph, order, context), atol=1e-10)
    assert len(design.masks) == len(np.unique(design.masks, axis=0))


def test_reaching_everything_is_shapley():
    game = games.table(8)
    for order in (7, 10**6):
        assert designs.l_shapley(graphs.chain(8), order).evaluations == 2**8
        np.testing.assert_allclose(
            games.scores(designs.l_shapley(graphs.chain(8), order), game), games.shapley(game), atol=1e-10
        )


def test_order_0_with_the_rest_present_is_occlusion():
    game = games.table(6)
    design = designs.l_shapley(graphs.chain(6), 0, "present")
    np.testing.assert_allclose(games.scores(design, game), games.scores(designs.occlusion(6), game))


def test_evaluation_counts():
    assert designs.l_shapley(graphs.chain(200), 1).evaluations == 796
    assert designs.l_shapley(graphs.chain(50), 1).evaluations == 196
    for order in (1, 2, 3):
        assert designs.l_shapley(graphs.chain(60), order).evaluations <= 4**order * 60 + 1


def test_image_grid_is_quick():
    start = time.process_time()
    design = designs.l_shapley(graphs.grid(28, 28), 1)
    assert time.process_time() - start < 1.0
    assert design.evaluations == 16_551 and design.masks.dtype == bool


@pytest.mark.parametrize("context", ["absent", "present"])
def test_sampled_means_are_unbiased(context):
    graph = GRAPHS["dense random"]
    game = games.table(7, seed=2)
    exact = games.l_shapley(game, graph, 2, context)
    runs = np.array(
        [games.scores(designs.l_shapley(graph, 2, context, samples=6, seed=seed), game) for seed in range(200)]
    )
    sampled = runs.std(axis=0) > 1e-12
    assert sampled.any()
    error = runs.mean(axis=0) - exact
    assert (np.abs(error[sampled]) < 3 * runs.std(axis=0, ddof=1)[sampled] / np.sqrt(200)).all()
    np.testing.assert_allclose(error[~sampled], 0, atol=1e-10)


def test_windows_no_larger_than_the_samples_stay_exact():
    graph, game = graphs.chain(7), games.table(7)
    design = designs.l_shapley(graph, 1, samples=4, seed=1)
    np.testing.assert_allclose(games.scores(design, game), games.l_shapley(game, graph, 1, "absent"), atol=1e-10)


def test_sampled_form_on_wide_windows():
    graph = graphs.grid(12, 12)
    weights = np.random.default_rng(0).normal(size=144)
    design = designs.l_shapley(graph, 6, samples=10, seed=3)
    assert design.evaluations <= 2 * 10 * 144
    np.testing.assert_allclose(design.attribute(design.masks @ weights), weights, atol=1e-10)


def test_the_seed_decides():
    def masks(seed):
        return designs.l_shapley(graphs.grid(4, 4), 3, samples=5, seed=seed).masks

    assert np.array_equal(masks(1), masks(1))
    assert np.array_equal(masks(None), masks(0))
    assert not np.array_equal(masks(1), masks(2))


def test_refusals_state_count_and_remedy():
    for make, message in (
        (
            lambda: designs.l_shapley(graphs.grid(28, 28), 2),
            "up to 5,171,456 coalitions.*order 1 fits, or give samples",
        ),
        (lambda: designs.l_shapley(networkx.complete_graph(64), 1), "order 0 fits"),
        (lambda: designs.l_shapley(graphs.grid(28, 28), 40), "10\\^236"),
        (lambda: designs.l_shapley(graphs.chain(9), 2, max_coalitions=10), "order 0 fits|no order fits"),
        (lambda: designs.l_shapley(graphs.grid(28, 28), 2, samples=10**6), "lower it"),
        (lambda: designs.l_shapley(graphs.chain(4), -1), "order is -1"),
        (lambda: designs.l_shapley(graphs.chain(4), 1.5), "order is 1.5"),
        (lambda: designs.l_shapley(graphs.chain(4), samples=0), "samples is 0"),
        (lambda: designs.l_shapley(graphs.chain(4), context="presnt"), "Did you mean 'present'"),
        (lambda: designs.l_shapley(networkx.Graph([(2, 3)])), "not the integers"),
    ):
        with pytest.raises(ShapelineError, match=message) as failure:
            make()
        assert "\n" not in str(failure.value)
