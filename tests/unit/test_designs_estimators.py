"""Recent estimators: exact with all coalitions, unbiased below, and within their budget."""

import numpy as np
import pytest

from shapeline import designs
from shapeline.designs import semivalues
from shapeline.errors import ShapelineError

from . import games

SHAPLEY = {
    designs.leverage_shap: designs.leverage_shap_minimum,
    designs.unbiased_kernel_shap: designs.unbiased_kernel_shap_minimum,
    designs.stratified_svarm: designs.stratified_svarm_minimum,
    designs.owen_sampling: designs.owen_sampling_minimum,
}
SEMIVALUES = (designs.beta_shapley, designs.weighted_banzhaf)
PAIRED = (designs.leverage_shap, designs.unbiased_kernel_shap, designs.stratified_svarm)
SAMPLES = 500


def semivalue(game, weight):
    """Sum over S without i of weight(|S|) times the change by i, straight from its sum."""
    d = len(game).bit_length() - 1
    return np.array(
        [
            sum(
                weight(len(games.members(r))) * games.marginal(game, i, games.members(r))
                for r in range(2**d)
                if not r >> i & 1
            )
            for i in range(d)
        ]
    )


def means(make, game, budget):
    """Return mean scores over samples, and their standard errors."""
    d = len(game).bit_length() - 1
    runs = np.array([games.scores(make(d, budget, seed), game) for seed in range(SAMPLES)])
    return runs.mean(axis=0), runs.std(axis=0, ddof=1) / np.sqrt(SAMPLES)


@pytest.mark.parametrize("make", SHAPLEY)
@pytest.mark.parametrize("d", range(1, 11))
def test_all_coalitions_give_the_shapley_value(make, d):
    game = games.table(d, seed=d)
    design = make(d, 2**d)
    assert design.evaluations == 2**d == make(d, 2**d + 9).evaluations
    np.testing.assert_allclose(games.scores(design, game), games.scores(designs.shapley(d), game), atol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_all_coalitions_give_the_semivalues(d):
    from scipy.special import beta as function

    game = games.table(d, seed=d)
    for alpha, beta in ((4.0, 1.0), (1.0, 1.0), (0.5, 2.0)):
        expected = semivalue(game, lambda s, a=alpha, b=beta: function(s + b, d - 1 - s + a) / function(a, b))
        np.testing.assert_allclose(games.scores(designs.beta_shapley(d, 2**d, 0, alpha, beta), game), expected)
    for weight in (0.5, 0.1, 0.8):
        expected = semivalue(game, lambda s, w=weight: w**s * (1 - w) ** (d - 1 - s))
        np.testing.assert_allclose(games.scores(designs.weighted_banzhaf(d, 2**d, 0, weight), game), expected)
    scores = games.scores(designs.beta_shapley(d, 2**d, 0, 1.0, 1.0), game)
    np.testing.assert_allclose(scores, games.shapley(game), atol=1e-12)
    np.testing.assert_allclose(games.scores(designs.weighted_banzhaf(d, 2**d), game), games.banzhaf(game), atol=1e-12)


@pytest.mark.parametrize("make", [one for one in SHAPLEY if one is not designs.leverage_shap])
@pytest.mark.parametrize("d", [5, 6])  # of an even number of features a pair may be of two halves
def test_means_over_samples_are_the_shapley_value(make, d):
    game = games.table(d, seed=3)
    mean, error = means(make, game, SHAPLEY[make](d) if d == 6 else 24)
    assert (np.abs(mean - games.shapley(game)) < 4 * error).all() and error.min() > 1e-4


@pytest.mark.parametrize("make", [designs.unbiased_kernel_shap, designs.stratified_svarm])
def test_means_over_samples_are_the_weights_of_a_linear_game(make):
    weights = np.array([1.0, -2.0, 0.5, 3.0, 0.0])
    mean, error = means(make, games.linear(weights, constant=-4.0), 22)
    assert (np.abs(mean - weights) < 4 * error).all()


def test_means_over_samples_are_the_semivalues():
    game = games.table(6, seed=3)
    for make in SEMIVALUES:
        mean, error = means(make, game, 24)
        assert (np.abs(mean - games.scores(make(6, 64), game)) < 4 * error).all() and error.min() > 1e-3
    mean, error = means(lambda *asked: designs.weighted_banzhaf(*asked, weight=0.8), game, 24)
    assert (np.abs(mean - games.scores(designs.weighted_banzhaf(6, 64, 0, 0.8), game)) < 4 * error).all()


def test_leverage_shap_is_the_weighted_fit_over_the_probability_of_a_row():
    d, budget, game = 8, 60, games.table(8)
    masks = designs.leverage_shap(d, budget, 5).masks
    inner = masks[(masks.sum(axis=1) > 0) & (masks.sum(axis=1) < d)]
    # 29 pairs: all 8 of size 1, and of the sizes 2, 3 and 4 (half as many) 21 pairs as 2 : 2 : 1.
    drawn = {1: 8, 2: 8.4, 3: 8.4, 4: 4.2}
    counts = np.bincount(np.minimum(inner.sum(axis=1), d - inner.sum(axis=1)))[1:]
    assert (np.abs(counts / 2 - list(drawn.values())) < 1).all()
    number = {1: 8, 2: 28, 3: 56, 4: 35}
    size = inner.sum(axis=1)
    w = np.array([games.kernel(d, s) * number[min(s, d - s)] / drawn[min(s, d - s)] for s in size])
    system = np.zeros((d + 1, d + 1))
    system[:d, :d] = inner.T @ (inner * w[:, None])
    system[d, :d] = system[:d, d] = 1
    right = np.append(inner.T @ (w * (games.look_up(game, inner) - game[0])), game[-1] - game[0])
    found = games.scores(designs.leverage_shap(d, budget, 5), game)
    np.testing.assert_allclose(found, np.linalg.solve(system, right)[:d], atol=1e-10)


@pytest.mark.parametrize("d", [4, 5, 6, 9, 10])
def test_budgets_are_met_within_a_pair(d):
    for make in PAIRED:
        for budget in range(SHAPLEY[make](d), 2**d + 3, max(1, 2**d // 40)):
            design = make(d, budget, seed=budget)
            assert min(budget, 2**d) - 1 <= design.evaluations <= budget
            assert len(np.unique(design.masks, axis=0)) == design.evaluations
            rows = {mask.tobytes() for mask in design.masks}
            assert all((~mask).tobytes() in rows for mask in design.masks)


@pytest.mark.parametrize("make", [designs.owen_sampling, *SEMIVALUES])
def test_a_coalition_and_its_changes_are_evaluated_once(make):
    for budget in range(31, 130, 7):  # thirty features: coalitions hardly coincide
        design = make(30, budget, seed=budget)
        assert design.evaluations <= budget
        assert design.evaluations >= budget - 3 or make is designs.beta_shapley  # which draws many an empty one
    for budget in range(7, 60):
        assert make(6, budget).evaluations <= budget
        weights = np.arange(6.0)
        np.testing.assert_allclose(games.scores(make(6, budget), games.linear(weights)), weights, atol=1e-12)


def test_stratified_svarm_fills_every_stratum_at_its_minimum():
    for d in (4, 5, 12, 33):
        masks = designs.stratified_svarm(d, designs.stratified_svarm_minimum(d), 1).masks
        for size in range(d + 1):
            own = masks[masks.sum(axis=1) == size]
            assert size == 0 or own.any(axis=0).all()
            assert size == d or (~own).any(axis=0).all()
    assert designs.stratified_svarm_minimum(10) == 48 and designs.stratified_svarm_minimum(3) == 8


def test_sizes_are_rounded_to_what_is_expected():
    mass, most = np.array([1.0, 1.0, 0.5]), np.array([3.0, 40.0, 90.0])
    drawn = np.array([semivalues.allot(mass, most, 10, np.random.default_rng(seed))[1] for seed in range(2000)])
    expected = np.array([3, 7 / 1.5, 3.5 / 1.5])
    np.testing.assert_allclose(semivalues.allot(mass, most, 10, np.random.default_rng(0))[0], expected)
    assert (drawn.sum(axis=1) == 10).all() and (np.abs(drawn - expected) < 1).all()
    assert (np.abs(drawn.mean(axis=0) - expected) < 4 * 0.5 / np.sqrt(2000)).all()


def test_many_features_neither_overflow_nor_underflow():
    for make, d in ((designs.leverage_shap, 300), (designs.unbiased_kernel_shap, 2000)):
        design = make(d, 2 * d)
        assert np.isfinite(design.readout).all() and design.evaluations == 2 * d
    assert np.isfinite(designs.owen_sampling(10_000, 20_000).readout.data).all()


def test_what_cannot_be_is_refused_in_a_line():
    for make, message in (
        (
            lambda: designs.leverage_shap(10, 19),
            "leverage_shap: budget is 19 evaluations and the minimum for d = 10 is 20",
        ),
        (lambda: designs.stratified_svarm(10, 40), "the minimum for d = 10 is 48"),
        (lambda: designs.owen_sampling(10, 10), "the minimum for d = 10 is 11"),
        (lambda: designs.kernel_shap(6, 20, -1), "kernel_shap: seed is -1; give a whole number of at least 0"),
        (lambda: designs.owen_sampling(6, 20, np.int64(-1)), "owen_sampling: seed is "),
        (lambda: designs.beta_shapley(10, 40, 0, alpha=0.0), "alpha is 0.0"),
        (lambda: designs.weighted_banzhaf(10, 40, 0, weight=1.0), "weight is 1.0"),
    ):
        with pytest.raises(ShapelineError, match=message) as failure:
            make()
        assert "\n" not in str(failure.value)


@pytest.mark.parametrize("make", [*SHAPLEY, *SEMIVALUES])
def test_the_seed_decides(make):
    first, again, other = make(9, 60, 1), make(9, 60, 1), make(9, 60, 2)
    assert np.array_equal(first.masks, again.masks) and not np.array_equal(first.masks, other.masks)
