"""Properties of every estimator: exactness on linear games, efficiency, symmetry, null players."""

import subprocess
import sys
import threading

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeline import designs, graphs
from shapeline.threads import find_openblas, limit_to_one

from . import games

D = 6
GRID, COMPLETE = graphs.grid(2, 3), networkx.complete_graph(D)
DESIGNS = {
    "shapley": designs.shapley(D),
    "banzhaf": designs.banzhaf(D),
    "myerson": designs.myerson(GRID),
    "l_shapley": designs.l_shapley(GRID, 1),
    "l_shapley present": designs.l_shapley(GRID, 1, "present"),
    "l_shapley sampled": designs.l_shapley(GRID, 2, samples=5, seed=0),
    "c_shapley myerson": designs.c_shapley(GRID, 2, "myerson"),
    "c_shapley myerson present": designs.c_shapley(GRID, 1, "myerson", "present"),
    "c_shapley paper": designs.c_shapley(GRID, 2),
    "runs uniform": designs.c_shapley_regression((D,), 3),
    "runs kernel": designs.c_shapley_regression((D,), 3, "kernel"),
    "squares uniform": designs.c_shapley_regression((2, 3), 2),
    "squares kernel": designs.c_shapley_regression((2, 3), 2, "kernel"),
    "runs constrained": designs.c_shapley_regression((D,), 3, "uniform", constrained=True),
    "runs printed": designs.c_shapley_regression((D,), 3, "printed"),
    "kernel_shap": designs.kernel_shap(D, 24, 0),
    "kernel_shap least": designs.kernel_shap(D, 12, 0),
    "kernel_shap whole": designs.kernel_shap(D, 2**D, 0),
    "sample_shapley": designs.sample_shapley(D, 24, 0),
    "sample_shapley antithetic": designs.sample_shapley(D, 24, 0, antithetic=True),
    "leverage_shap": designs.leverage_shap(D, 24, 0),
    "leverage_shap least": designs.leverage_shap(D, 12, 0),
    "unbiased_kernel_shap": designs.unbiased_kernel_shap(D, 24, 0),
    "stratified_svarm": designs.stratified_svarm(D, 24, 0),
    "owen_sampling": designs.owen_sampling(D, 24, 0),
    "beta_shapley": designs.beta_shapley(D, 2**D, 0),
    "beta_shapley sampled": designs.beta_shapley(D, 24, 0),
    "weighted_banzhaf": designs.weighted_banzhaf(D, 2**D, 0, 0.3),
    "weighted_banzhaf sampled": designs.weighted_banzhaf(D, 24, 0),
    "lime without ridge": designs.lime(D, 24, 0, ridge=0),
    "lime shapley": designs.lime(D, 24, 0, "shapley", ridge=0),
    "lime": designs.lime(D, 24, 0),
    "occlusion": designs.occlusion(D),
    "symmetric_least_squares": designs.symmetric_least_squares(D, lambda s: 1 + s),
}
NOT_LINEAR = {"c_shapley paper", "runs printed", "unbiased_kernel_shap", "stratified_svarm", "lime"}
EFFICIENT = {
    "shapley",
    "myerson",  # on a connected graph
    "runs constrained",
    "kernel_shap",
    "kernel_shap least",
    "kernel_shap whole",
    "sample_shapley",
    "sample_shapley antithetic",
    "leverage_shap",
    "leverage_shap least",
    "unbiased_kernel_shap",
    "lime shapley",
    "symmetric_least_squares",
}
# A null player's every marginal contribution is 0.
NULL_IS_ZERO = {
    "shapley",
    "banzhaf",
    "l_shapley",
    "l_shapley present",
    "l_shapley sampled",
    "c_shapley myerson",
    "c_shapley myerson present",
    "c_shapley paper",
    "kernel_shap whole",
    "sample_shapley",
    "sample_shapley antithetic",
    "owen_sampling",
    "beta_shapley",
    "beta_shapley sampled",
    "weighted_banzhaf",
    "weighted_banzhaf sampled",
    "occlusion",
}
SYMMETRIC = {
    "shapley": DESIGNS["shapley"],
    "banzhaf": DESIGNS["banzhaf"],
    "myerson": designs.myerson(COMPLETE),
    "l_shapley": designs.l_shapley(COMPLETE, 1),
    "c_shapley": designs.c_shapley(COMPLETE, 1),
    "kernel_shap": DESIGNS["kernel_shap whole"],
    "beta_shapley": DESIGNS["beta_shapley"],
    "weighted_banzhaf": DESIGNS["weighted_banzhaf"],
    "lime": designs.lime(D, 2**D, 0),
    "occlusion": DESIGNS["occlusion"],
    "symmetric_least_squares": DESIGNS["symmetric_least_squares"],
}
seeds = st.integers(0, 2**32 - 1)
features = st.integers(0, D - 1)


@pytest.mark.parametrize("name", DESIGNS)
def test_masks_and_readout(name):
    design = DESIGNS[name]
    assert design.masks.dtype == bool and design.masks.flags.c_contiguous
    assert len(np.unique(design.masks, axis=0)) == design.evaluations
    assert design.readout.shape == (D, design.evaluations) and design.readout.dtype == np.float64


@pytest.mark.parametrize("name", DESIGNS)
def test_linear_games_are_exact(name):
    weights = np.random.default_rng(1).normal(size=D)
    scores = games.scores(DESIGNS[name], games.linear(weights, constant=-2.0))
    if name in NOT_LINEAR:
        assert np.abs(scores - weights).max() > 1e-3
    else:
        np.testing.assert_allclose(scores, weights, atol=1e-10)


@pytest.mark.parametrize("name", DESIGNS)
def test_efficiency(name):
    game = games.table(D, seed=9)
    gap = games.scores(DESIGNS[name], game).sum() - (game[-1] - game[0])
    assert (abs(gap) < 1e-12) == (name in EFFICIENT)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_constant_game_gives_no_scores(name):
    np.testing.assert_allclose(games.scores(DESIGNS[name], np.full(2**D, 7.0)), 0, atol=1e-11)


@settings(max_examples=20, deadline=None)
@given(seeds, features)
def test_null_players_get_nothing(seed, null):
    game = games.table(D, seed)
    rows = np.arange(2**D)
    game = game[rows & ~(1 << null)]
    for name in NULL_IS_ZERO:
        assert abs(games.scores(DESIGNS[name], game)[null]) < 1e-10, name


@settings(max_examples=20, deadline=None)
@given(seeds, features, features)
def test_symmetric_players_get_the_same(seed, one, other):
    game = games.table(D, seed)
    rows = np.arange(2**D)
    swap = (rows >> one ^ rows >> other) & 1
    game = game + game[rows ^ (swap << one) ^ (swap << other) if one != other else rows]
    for name, design in SYMMETRIC.items():
        scores = games.scores(design, game)
        assert abs(scores[one] - scores[other]) < 1e-10, name


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(2, 9), st.floats(0.05, 0.9), st.integers(0, 3))
def test_graph_designs_on_random_graphs(seed, d, density, order):
    graph = networkx.gnp_random_graph(d, density, seed=seed)
    game = games.table(d, seed)
    for context in ("absent", "present"):
        expected = games.l_shapley(game, graph, order, context)
        np.testing.assert_allclose(games.scores(designs.l_shapley(graph, order, context), game), expected, atol=1e-10)
        for weights in ("paper", "myerson"):
            expected = games.c_shapley(game, graph, order, weights, context)
            design = designs.c_shapley(graph, order, weights, context)
            np.testing.assert_allclose(games.scores(design, game), expected, atol=1e-10)


def test_one_feature_gets_the_full_difference():
    one = graphs.chain(1)
    for design in (
        designs.shapley(1),
        designs.banzhaf(1),
        designs.myerson(one),
        designs.l_shapley(one, 3),
        designs.l_shapley(one, 3, samples=5),
        designs.c_shapley(one, 3, "myerson", "present"),
        designs.c_shapley_regression((1,), 4),
        designs.c_shapley_regression((1, 1), 4, "printed"),
        designs.kernel_shap(1, 2, 0),
        designs.sample_shapley(1, 2, 0),
        designs.leverage_shap(1, 2),
        designs.unbiased_kernel_shap(1, 2),
        designs.stratified_svarm(1, 2),
        designs.owen_sampling(1, 2),
        designs.beta_shapley(1, 2),
        designs.weighted_banzhaf(1, 2),
        designs.lime(1, 2, 0, ridge=0),
        designs.lime(1, 2, 0, "shapley"),
        designs.occlusion(1),
        designs.symmetric_least_squares(1, []),
    ):
        np.testing.assert_allclose(games.scores(design, np.array([0.5, 2.0])), [1.5], atol=1e-12)


def test_minimum_budgets_import_neither_scipy_nor_a_framework():
    program = (
        "import sys; from shapeline.designs import sampled, semivalues, surrogate;"
        "from shapeline.designs import gaussian_interactions, interactions;"
        "interactions.sample_interactions_minimum(9), gaussian_interactions.gp_interactions_minimum(9);"
        "semivalues.leverage_shap_minimum(9), semivalues.unbiased_kernel_shap_minimum(9);"
        "semivalues.semivalue_minimum(9), semivalues.stratified_svarm_minimum(9), semivalues.owen_sampling_minimum(9);"
        "sampled.kernel_shap_minimum(9), sampled.sample_shapley_minimum(9), surrogate.lime_minimum(9);"
        "print(sorted({'scipy', 'networkx', 'torch', 'tensorflow', 'pandas', 'sklearn'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"


def test_every_public_name_exists():
    for name in dir(designs):
        assert getattr(designs, name).__module__.startswith("shapeline.designs.")
    with pytest.raises(AttributeError, match="no attribute 'shaply'"):
        _ = designs.shaply


def test_small_linear_algebra_keeps_to_one_thread():
    """As torch's threads and BLAS's wait for one another; large fits, and the user's own numpy, keep all of them."""
    controller = find_openblas()
    threads = [library["num_threads"] for library in controller.info()]
    if not threads:
        pytest.skip("numpy has another BLAS here")
    with controller.limit(limits=2):
        with limit_to_one(1e6):
            assert {library["num_threads"] for library in controller.info()} == {1}
        assert {library["num_threads"] for library in controller.info()} == {2}
        with limit_to_one(1e12):
            assert {library["num_threads"] for library in controller.info()} == {2}
    assert [library["num_threads"] for library in controller.info()] == threads


def test_blocks_of_one_thread_may_overlap():
    """The block that ends last restores the threads, also after an error."""
    controller = find_openblas()
    if not controller.info():
        pytest.skip("numpy has another BLAS here")

    def threads() -> set[int]:
        return {library["num_threads"] for library in controller.info()}

    with controller.limit(limits=2):
        first, second = limit_to_one(1), limit_to_one(1)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {2}
        with pytest.raises(ZeroDivisionError), limit_to_one(1), limit_to_one(1):
            _ = 1 / 0
        assert threads() == {2}


def test_a_block_of_another_thread_may_end_last_and_stands_in_any_thread():
    """threadpoolctl lets only one thread set BLAS's threads until it is released."""
    controller = find_openblas()
    if not controller.info():
        pytest.skip("numpy has another BLAS here")
    entered, over, seen = threading.Event(), threading.Event(), []

    def threads() -> set[int]:
        return {library["num_threads"] for library in controller.info()}

    def second() -> None:
        with limit_to_one(1):
            entered.set()
            over.wait(9)

    def alone() -> None:
        with limit_to_one(1):
            seen.append(threads())

    with controller.limit(limits=2):
        other = threading.Thread(target=second)
        with limit_to_one(1):
            other.start()
            entered.wait(9)
        assert threads() == {1}
        over.set()
        other.join()
        assert threads() == {2}
        last = threading.Thread(target=alone)
        last.start()
        last.join()
        assert seen == [{1}] and threads() == {2}
