import time

import networkx
import numpy as np
import pytest
from sklearn.datasets import load_sample_image

from shapeline import designs, graphs
from shapeline.designs.local import _build_squares
from shapeline.errors import ShapelineError
from shapeline.games import features
from shapeline.games.references import Reference
from shapeline.models import adapters
from tests.unit import shortcuts

from . import games
from .games import GRAPHS


@pytest.mark.parametrize("weights", ["paper", "myerson"])
@pytest.mark.parametrize("context", ["absent", "present"])
@pytest.mark.parametrize("order", [0, 1, 2, 9])
@pytest.mark.parametrize("name", GRAPHS)
def test_equals_brute_force(name, order, context, weights):
    graph = GRAPHS[name]
    game = games.table(graph.number_of_nodes(), seed=order)
    design = designs.c_shapley(graph, order, weights, context)
    expected = games.c_shapley(game, graph, order, weights, context)
    np.testing.assert_allclose(games.scores(design, game), expected, atol=1e-10)
    assert len(design.masks) == len(np.unique(design.masks, axis=0))


@pytest.mark.parametrize("seed", range(6))
def test_myerson_weights_give_the_myerson_value_of_a_component_additive_game(seed):
    rng = np.random.default_rng(seed)
    graph = GRAPHS["grid"] if seed == 0 else networkx.gnp_random_graph(8, rng.uniform(0.3, 0.8), seed=seed)
    game = games.myerson_game(games.table(8, seed), graph)
    reach = 8  # at least the diameter of every component
    scores = games.scores(designs.c_shapley(graph, reach, "myerson"), game)
    np.testing.assert_allclose(scores, games.shapley(game), atol=1e-12)
    np.testing.assert_allclose(scores, games.scores(designs.myerson(graph), game), atol=1e-12)
    paper = games.scores(designs.c_shapley(graph, reach, "paper"), game)
    assert np.abs(paper - scores).max() > 0.05  # equation 6 misses


@pytest.mark.parametrize("method", ["c_shapley", "l_shapley"])
def test_superpixels_are_players_on_the_graph_of_their_neighbours(method):
    image = np.moveaxis(load_sample_image("flower.jpg")[100:340:8, 200:536:8], 2, 0).astype(np.float32) / 255
    own = features.build_for({"kind": "superpixel", "segments": 9}, {"input_shape": image.shape}, image)
    masks = np.arange(2**own.d)[:, None] >> np.arange(own.d) & 1
    means = np.array([image[own.cells == feature].mean() for feature in range(own.d)])
    touching = networkx.to_numpy_array(features.build_graph(own), nodelist=range(own.d))
    assert 6 <= own.d <= 12 and not touching.all(where=~np.eye(own.d, dtype=bool))

    def probabilities(images):
        present = np.array([(images == image)[:, own.cells == feature].all(1) for feature in range(own.d)]).T
        inside = np.einsum("ni,ij,nj->n", present, touching, present)  # pairs of neighbours act together
        p = 0.1 + 0.3 * (present @ means) / means.sum() + 0.5 * inside / touching.sum()
        return np.stack([p, 1 - p], 1)

    given = {"method": method, "order": 1}
    reference = Reference(np.full((1, *image.shape), -1, np.float32))
    model = adapters.wrap(probabilities, "function")
    asked = model, image[None], np.zeros(1, int), given, own, reference, "probability"
    (found,) = shortcuts.attribute(*asked, on_error="fail")
    pictures = np.where(masks[:, own.cells].astype(bool), image, -1)
    game = probabilities(pictures.astype(np.float32))[:, 0]
    weights = ["paper"] if method == "c_shapley" else []
    brute = getattr(games, method)(game, features.build_graph(own), 1, *weights, "absent")
    np.testing.assert_allclose(found.scores[0], brute, atol=1e-6)


def test_evaluation_counts():
    assert designs.c_shapley(graphs.chain(200), 2).evaluations == 1779
    assert designs.c_shapley(graphs.chain(50), 2).evaluations == 429
    assert designs.c_shapley_regression((200,), 4).evaluations == 794 + 1  # and the empty one
    assert designs.c_shapley_regression((28, 28), 4, "kernel").evaluations == 2814 + 1
    assert len(_build_squares((32, 32), 4)) == 3726
    assert designs.c_shapley_regression((20,), 4, constrained=True).evaluations == 20 + 19 + 18 + 17 + 2


def test_order_1_on_a_chain_shares_all_coalitions_with_l_shapley():
    local, connected = designs.l_shapley(graphs.chain(30), 1), designs.c_shapley(graphs.chain(30), 1)
    assert {mask.tobytes() for mask in connected.masks} == {mask.tobytes() for mask in local.masks}


def test_present_never_wraps_round_the_ends():
    design = designs.c_shapley(graphs.chain(9), 1, context="present")
    removed = {tuple(np.flatnonzero(~mask)) for mask in design.masks}
    assert max(max(r) - min(r) for r in removed if r) == 2


def test_large_d_is_finite():
    design = designs.c_shapley(graphs.chain(10_000), 1, "myerson")
    sums = design.readout @ design.masks[:, :50].astype(np.float32)
    np.testing.assert_allclose(sums[:50], np.eye(50), atol=1e-6)
    assert np.isfinite(design.readout.data).all()


def test_refusals_state_count_and_remedy():
    for make, message in (
        (lambda: designs.c_shapley(graphs.grid(28, 28), 2), "up to [0-9,]+ coalitions .limit 1,048,576.; order 1 fits"),
        (lambda: designs.c_shapley(graphs.grid(28, 28), 4), "more than 1,048,576 coalitions"),
        (lambda: designs.c_shapley(networkx.complete_graph(40), 1), "order 0 fits"),
        (lambda: designs.c_shapley(graphs.chain(9), 2, max_coalitions=10), "no order fits"),
        (lambda: designs.c_shapley(graphs.chain(9), -2), "order is -2"),
        (lambda: designs.c_shapley(graphs.chain(9), weights="paperr"), "Did you mean 'paper'"),
        (lambda: designs.c_shapley(graphs.chain(9), context="both"), "absent, present"),
        (lambda: designs.c_shapley_regression((4,), 0), "order is 0"),
        (lambda: designs.c_shapley_regression((4, 4, 3), 2), "3 axes"),
        (lambda: designs.c_shapley_regression((), 2), "0 axes"),
        (lambda: designs.c_shapley_regression((4,), 2, "ridge"), "fit is 'ridge'"),
        (lambda: designs.c_shapley_regression((9,), 2, "printed", constrained=True), "no constrained fit"),
        (lambda: designs.c_shapley_regression((3,), 3, "printed"), "lower order"),
    ):
        with pytest.raises(ShapelineError, match=message) as failure:
            make()
        assert "\n" not in str(failure.value)


def test_all_runs_and_squares_occur_once():
    runs = {tuple(np.flatnonzero(mask)) for mask in _build_squares((6,), 3)}
    assert runs == {tuple(range(a, a + n)) for n in (1, 2, 3) for a in range(7 - n)}
    squares = {tuple(np.flatnonzero(mask)) for mask in _build_squares((3, 4), 9)}
    expected = {
        tuple((r + i) * 4 + c + j for i in range(n) for j in range(n))
        for n in (1, 2, 3)
        for r in range(4 - n)
        for c in range(5 - n)
    }
    assert squares == expected and len(_build_squares((3, 4), 9)) == len(expected)


@pytest.mark.parametrize(("shape", "order"), [((9,), 4), ((3, 3), 2)])
@pytest.mark.parametrize("fit", ["uniform", "kernel", "printed"])
def test_regression_equals_the_normal_equations(shape, order, fit):
    d = 9
    game = games.table(d)
    design = designs.c_shapley_regression(shape, order, fit)
    masks = design.masks[design.masks.any(axis=1)].astype(float)
    weights = (
        np.ones(len(masks))
        if fit == "uniform"
        else np.array([games.kernel(d, s) for s in masks.sum(axis=1).astype(int)])
    )
    target = games.look_up(game, masks.astype(bool)) - game[0]
    normal = masks.T @ (masks * weights[:, None])
    right = masks.T @ (target if fit == "printed" else weights * target)
    np.testing.assert_allclose(
        games.scores(design, game), np.linalg.solve(normal, right), atol=1e-10 * max(1, np.abs(right).max())
    )


@pytest.mark.parametrize("fit", ["uniform", "kernel"])
def test_constrained_regression_equals_its_optimality_system(fit):
    d, game = 8, games.table(8)
    design = designs.c_shapley_regression((d,), 3, fit, constrained=True)
    masks = np.array([mask for mask in design.masks if 0 < mask.sum() < d]).astype(float)
    weights = np.array([1.0 if fit == "uniform" else games.kernel(d, int(s)) for s in masks.sum(axis=1)])
    system = np.zeros((d + 1, d + 1))
    system[:d, :d] = masks.T @ (masks * weights[:, None])
    system[d, :d] = system[:d, d] = 1
    right = np.append(masks.T @ (weights * (games.look_up(game, masks.astype(bool)) - game[0])), game[-1] - game[0])
    scores = games.scores(design, game)
    np.testing.assert_allclose(scores, np.linalg.solve(system, right)[:d], atol=1e-10)
    assert scores.sum() == pytest.approx(game[-1] - game[0], abs=1e-12)


def test_kernel_fit_is_shapley_when_every_coalition_is_a_run():
    # Two features: the runs are all coalitions, and the full one's unbounded weight is a constraint.
    game = games.table(2)
    np.testing.assert_allclose(games.scores(designs.c_shapley_regression((2,), 2, "kernel"), game), games.shapley(game))


def test_printed_form_is_about_d_times_the_sum_over_runs():
    d = 40
    design = designs.c_shapley_regression((d,), 4, "printed")
    values = np.random.default_rng(0).normal(size=design.evaluations)
    sums = d * (design.masks[1:].T @ (values[1:] - values[0]))
    np.testing.assert_allclose(design.attribute(values)[5:-5], sums[5:-5], rtol=0.05, atol=0.05 * np.abs(sums).max())


def test_image_squares_are_quick():
    start = time.process_time()
    _build_squares((32, 32), 4)
    assert time.process_time() - start < 0.2
    start = time.process_time()
    assert designs.c_shapley_regression((28, 28), 4).readout.shape == (784, 2815)
    assert time.process_time() - start < 3
