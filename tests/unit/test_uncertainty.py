import numpy as np
import pytest

from shapeline import designs
from shapeline.designs.semivalues import count_pairs_by_size
from shapeline.designs.stopping import find_separated, predict_error
from shapeline.designs.uncertainty import kernel_shap_uncertainty, sample_shapley_uncertainty
from shapeline.errors import ShapelineError

from . import games


def bent_game(d, seed):
    """A curve of a weighted sum with two interactions."""
    total = games.linear(np.random.default_rng(seed).normal(size=d))
    return np.tanh(total) + games.unanimity(d, {frozenset({1, 2}): 0.5, frozenset({2, 3, 4}): -0.4})


def orders(d, budget, seed, antithetic):
    """Return the permutations that sample_shapley samples."""
    return designs.sample_shapley(d, budget, seed, antithetic).sample


def voting_game(d, seed):
    """A majority of weights: most permutations give most features nothing."""
    weights = np.random.default_rng(seed).integers(1, 20, d)
    return (2 * games.linear(weights, 0.0) > weights.sum()).astype(float)


def judged(estimate, d=10, games_=6, samples=12, make=bent_game):
    """Coverage of nominal 95 % and predicted over actual RMSE of estimate(game, seed) -> (scores, Uncertainty)."""
    inside, wrong, predicted = [], [], []
    for seed in range(games_):
        game = make(d, seed)
        exact = games.scores(designs.shapley(d), game)
        for draw in range(samples):
            scores, found = estimate(game, 100 * seed + draw)
            inside.append(np.abs(scores - exact) <= 1.96 * found.standard_error[0])
            wrong.append(scores - exact)
            predicted.append(found.error[0])
    return np.mean(inside), np.sqrt(np.mean(np.square(predicted)) / np.mean(np.square(wrong)))


@pytest.mark.parametrize("times", [8, 16])
def test_kernel_shap_intervals_hold(times):
    def estimate(game, seed):
        design = designs.kernel_shap(10, 10 * times, seed)
        values = games.look_up(game, design.masks)
        return design.attribute(values), kernel_shap_uncertainty(design, values)

    coverage, ratio = judged(estimate)
    assert 0.92 <= coverage <= 0.985
    assert 0.8 <= ratio <= 1.25


@pytest.mark.parametrize("make", [bent_game, voting_game])
@pytest.mark.parametrize("antithetic", [False, True])
def test_sample_shapley_intervals_hold(antithetic, make):
    def estimate(game, seed):
        design = designs.sample_shapley(10, 160, seed, antithetic)
        values = games.look_up(game, design.masks)
        return design.attribute(values), sample_shapley_uncertainty(design.masks, design.sample, values, antithetic)

    coverage, ratio = judged(estimate, make=make)
    assert 0.91 <= coverage <= 0.985
    assert 0.8 <= ratio <= 1.25


def test_a_design_states_the_weights_of_its_pairs():
    d, budget = 9, 60
    design = designs.kernel_shap(d, budget, seed=1)
    half = (design.evaluations - 2) // 2
    weights, alone = design.sample, design.masks[1 : 1 + half].sum(axis=1) == 1
    np.testing.assert_allclose(weights[alone], games.kernel(d, 1), rtol=1e-9)
    assert count_pairs_by_size(d).tolist() == [9, 36, 84, 126]
    # A sampled pair weighs the mass of sizes 2 to 7 over the draws, once for each time it was drawn.
    counts = weights[~alone] / weights[~alone].min()
    np.testing.assert_allclose(counts, np.round(counts), rtol=1e-9)
    assert round(counts.max()) == 2
    mass = sum(games.kernel(d, s) * len([r for r in range(2**d) if len(games.members(r)) == s]) for s in range(2, 8))
    assert 2 * weights[~alone].sum() == pytest.approx(mass, rel=1e-9)


def test_no_uncertainty_of_all_coalitions_and_none_known_without_freedom():
    game = games.table(8)
    for budget in (16, 17, 18, 20):
        design = designs.kernel_shap(8, budget, seed=0)
        found = kernel_shap_uncertainty(design, games.look_up(game, design.masks))
        assert np.isnan(found.standard_error).all() and np.isnan(found.error).all()
    full = designs.kernel_shap(8, 256)
    found = kernel_shap_uncertainty(full, games.look_up(game, full.masks))
    assert not found.standard_error.any() and not found.error.any()
    for budget, antithetic in ((9, False), (11, False), (17, False), (22, False), (30, True)):
        few = designs.sample_shapley(8, budget, 0, antithetic)
        found = sample_shapley_uncertainty(few.masks, few.sample, games.look_up(game, few.masks), antithetic)
        assert np.isnan(found.standard_error).all(), budget


def test_a_permutation_without_its_reverse_is_uncertain():
    """Each pair of a permutation and its reverse is exact for this game, and a last one alone is not."""
    game = games.unanimity(9, {frozenset({0, 1}): 1.0, frozenset({2, 3}): -2.0, frozenset({3, 8}): 1.0})
    design = designs.sample_shapley(9, 50, 1, antithetic=True)
    values = games.look_up(game, design.masks)
    error = np.abs(design.attribute(values) - games.scores(designs.shapley(9), game))
    found = sample_shapley_uncertainty(design.masks, design.sample, values, antithetic=True)
    assert len(design.sample) % 2 == 1 and error.max() > 0.05
    assert (error <= 1.96 * found.standard_error[0]).all()


def test_linear_games_are_certain():
    game = games.linear(np.random.default_rng(0).normal(size=9))
    design = designs.kernel_shap(9, 70, seed=2)
    assert kernel_shap_uncertainty(design, games.look_up(game, design.masks)).error[0] < 1e-12
    design = designs.sample_shapley(9, 45, seed=2)
    found = sample_shapley_uncertainty(design.masks, orders(9, 45, 2, False), games.look_up(game, design.masks))
    assert found.error[0] < 1e-12


def test_sample_shapley_error_is_the_spread_of_marginal_contributions():
    d, budget, seed = 6, 30, 3
    game = games.table(d)
    design = designs.sample_shapley(d, budget, seed)
    order = orders(d, budget, seed, False)
    gains = np.zeros((len(order), d))
    for number, permutation in enumerate(order):
        for place, feature in enumerate(permutation):
            gains[number, feature] = games.marginal(game, feature, permutation[:place])
    values = games.look_up(game, design.masks)
    found = sample_shapley_uncertainty(design.masks, order, values)
    np.testing.assert_allclose(gains.mean(axis=0), design.attribute(values), atol=1e-12)
    assert found.error[0] == pytest.approx(np.sqrt((gains.var(axis=0, ddof=1) / len(order)).mean()), rel=1e-12)
    with pytest.raises(ShapelineError, match="same seed"):
        sample_shapley_uncertainty(design.masks, orders(d, budget, seed + 1, False), values)


def test_settled_features_are_apart_from_the_other_side():
    scores = np.array([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 1.9, 0.0]])
    uncertainty = np.full((2, 4), 0.2)
    assert find_separated(scores, uncertainty, 2).tolist() == [[True] * 4, [True, False, False, True]]
    assert find_separated(scores, np.zeros((2, 4)), 2).all()
    assert find_separated(scores, uncertainty, 4).all()
    assert predict_error(uncertainty).tolist() == pytest.approx([0.2, 0.2])
    with pytest.raises(ShapelineError, match="top is 5 of 4"):
        find_separated(scores, uncertainty, 5)


def test_settled_is_right_nineteen_times_in_twenty():
    # Errors that sum to 0, as efficiency makes them.
    rng = np.random.default_rng(0)
    truth = np.linspace(0, 1, 8)
    errors = rng.normal(size=(4000, 8)) * 0.1
    errors -= errors.mean(axis=1, keepdims=True)
    scores = truth + errors
    done = find_separated(scores, np.full(scores.shape, 0.1 * np.sqrt(7 / 8)), 3)
    inside = scores.argsort(axis=1).argsort(axis=1) >= 5
    right = inside == (truth > truth[4])
    assert right[done].mean() > 0.97
    assert 0.2 < done.mean() < 0.98
