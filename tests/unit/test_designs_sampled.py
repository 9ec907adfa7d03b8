import time
import tracemalloc

import numpy as np
import pytest

from shapeline import designs
from shapeline.designs.design import compute_size_mass, constrained_fit, kernel_weight, solve_positive
from shapeline.designs.sampled import _sample_pairs
from shapeline.errors import ShapelineError

from . import games


@pytest.mark.parametrize("d", range(1, 11))
def test_kernel_shap_on_all_coalitions_is_shapley(d):
    game = games.table(d, seed=d)
    design = designs.kernel_shap(d, 2**d, seed=0)
    assert design.evaluations == 2**d
    np.testing.assert_allclose(games.scores(design, game), games.scores(designs.shapley(d), game), atol=1e-10)
    more = designs.kernel_shap(d, 3 * 2**d + 5, seed=0)
    assert more.evaluations == 2**d


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 9, 10])
def test_kernel_shap_at_any_budget_it_accepts(d):
    game = games.table(d, seed=d)
    weights = np.random.default_rng(d).normal(size=d)
    for budget in range(designs.kernel_shap_minimum(d), 2**d + 3, max(1, 2**d // 60)):
        design = designs.kernel_shap(d, budget, seed=budget)
        assert design.evaluations <= budget and design.evaluations >= min(budget, 2**d) - 1
        assert len(np.unique(design.masks, axis=0)) == design.evaluations
        assert games.scores(design, game).sum() == pytest.approx(game[-1] - game[0], abs=1e-11)
        np.testing.assert_allclose(games.scores(design, games.linear(weights)), weights, atol=1e-10)


def test_kernel_shap_enumerates_sizes_from_both_ends_and_pairs_the_rest():
    d, budget = 12, 2 + 2 * 12 + 2 * 66 + 301
    masks = designs.kernel_shap(d, budget, seed=4).masks
    sizes = masks.sum(axis=1)
    assert [int((sizes == s).sum()) for s in (0, 1, 2, 10, 11, 12)] == [1, 12, 66, 66, 12, 1]
    assert len(masks) == budget - 1  # one left over from the pairs
    rows = {mask.tobytes() for mask in masks}
    assert all((~mask).tobytes() in rows for mask in masks)


def test_kernel_shap_enumerates_no_size_at_the_cost_of_all_others():
    """A budget that just fits sizes 2 and 10 samples them by their share; more evaluations have a smaller error."""
    d, game = 12, games.table(12, seed=1)
    exact = games.scores(designs.shapley(d), game)

    def off(budget):
        made = [designs.kernel_shap(d, budget, seed) for seed in range(30)]
        return made[0].masks.sum(axis=1), np.sqrt(np.mean([(games.scores(one, game) - exact) ** 2 for one in made]))

    (_, before), (sizes, after) = off(150), off(2 + 2 * 12 + 2 * 66 + 4)
    assert (sizes == 2).sum() < 66 and (sizes == 6).sum() > 5
    assert after < before  # with the sizes enumerated it is 2.4 times as much


def test_kernel_shap_is_the_weighted_fit_with_mass_per_sampled_row():
    d, budget, seed = 9, 60, 1
    rng = np.random.default_rng(seed)
    pairs, counts = _sample_pairs(d, np.arange(2, 8), (60 - 2 - 18) // 2, rng)
    assert counts.max() > 1 and len(pairs) == 20  # duplicates did occur and were merged
    mass = sum(games.kernel(d, s) * len([r for r in range(2**d) if len(games.members(r)) == s]) for s in range(2, 8))
    weight = {mask.tobytes(): c * mass / (2 * counts.sum()) for mask, c in zip(pairs, counts, strict=True)}
    weight |= {(~mask).tobytes(): c * mass / (2 * counts.sum()) for mask, c in zip(pairs, counts, strict=True)}
    design = designs.kernel_shap(d, budget, seed)
    inner = np.array([mask for mask in design.masks if 0 < mask.sum() < d])
    w = np.array([weight.get(mask.tobytes(), games.kernel(d, 1)) for mask in inner])
    game = games.table(d)
    system = np.zeros((d + 1, d + 1))
    system[:d, :d] = inner.T @ (inner * w[:, None])
    system[d, :d] = system[:d, d] = 1
    right = np.append(inner.T @ (w * (games.look_up(game, inner) - game[0])), game[-1] - game[0])
    np.testing.assert_allclose(games.scores(design, game), np.linalg.solve(system, right)[:d], atol=1e-10)


def test_kernel_shap_bias_is_small():
    # Mass per row leaves a bias of about 0.02 at d = 10 and 100 rows, kernel weight per row one of 0.16.
    game = games.table(10, seed=1)
    exact = games.scores(designs.shapley(10), game)
    runs = np.array([games.scores(designs.kernel_shap(10, 100, seed), game) for seed in range(200)])
    assert np.sqrt(np.mean((runs.mean(axis=0) - exact) ** 2)) < 0.05
    assert np.sqrt(np.mean((runs - exact) ** 2)) < 0.25


@pytest.mark.parametrize("budget", [12, 13])
def test_kernel_shap_just_below_the_full_first_sizes(budget):
    # 2d and 2d + 1: equal to the least squares on its own rows, every feature alone in one or two of them.
    d, game = 6, games.table(6)
    design = designs.kernel_shap(d, budget, seed=2)
    assert design.evaluations == budget
    inner = design.masks[1:-1].astype(float)
    assert (inner[:d] == np.eye(d)).all() and (inner[d:].sum(axis=1) == d - 1).all()
    system = np.zeros((d + 1, d + 1))
    system[:d, :d] = inner.T @ inner
    system[d, :d] = system[:d, d] = 1
    right = np.append(inner.T @ (games.look_up(game, inner.astype(bool)) - game[0]), game[-1] - game[0])
    np.testing.assert_allclose(games.scores(design, game), np.linalg.solve(system, right)[:d], atol=1e-10)


def test_kernel_shap_on_an_image_is_quick_and_accurate():
    start = time.process_time()
    design = designs.kernel_shap(784, 3136, seed=0)
    assert time.process_time() - start < 1.5
    assert design.evaluations == 3136 and design.readout.shape == (784, 3136)
    weights = np.random.default_rng(0).normal(size=784)
    np.testing.assert_allclose(design.attribute(design.masks @ weights - 5.0), weights, atol=1e-9)
    values = np.random.default_rng(1).normal(size=3136) * 50
    assert design.attribute(values).sum() == pytest.approx(values[-1] - values[0], abs=1e-9)


def test_kernel_shap_columns_sum_to_nothing_in_every_digit():
    sums = designs.kernel_shap(500, 1020, seed=0).readout.sum(axis=0)
    assert np.abs(sums[1:-1]).max() < 2e-15
    np.testing.assert_allclose(sums[[0, -1]], [-1, 1], atol=1e-14)


def test_kernel_weights_neither_overflow_nor_underflow():
    sizes = np.arange(1, 10_000)
    mass = compute_size_mass(10_000, sizes)
    assert np.isfinite(mass).all() and (mass > 0).all()
    small = kernel_weight(10_000, np.array([1, 2, 50, 9_999]))
    assert np.isfinite(small).all() and (small > 0).all()
    assert small[0] == pytest.approx(1e-4, rel=1e-9) and small[3] == pytest.approx(small[0], rel=1e-9)
    for d in (2, 5, 20):
        expected = [games.kernel(d, s) for s in range(1, d)]
        np.testing.assert_allclose(kernel_weight(d, np.arange(1, d)), expected, rtol=1e-12)


@pytest.mark.parametrize("antithetic", [False, True])
def test_sample_shapley_means_are_unbiased(antithetic):
    game = games.table(7, seed=3)
    exact = games.shapley(game)
    runs = np.array([games.scores(designs.sample_shapley(7, 29, seed, antithetic), game) for seed in range(200)])
    error = runs.mean(axis=0) - exact
    assert (np.abs(error) < 3 * runs.std(axis=0, ddof=1) / np.sqrt(200)).all()
    assert runs.std(axis=0).min() > 0.05
    np.testing.assert_allclose(runs.sum(axis=1), game[-1] - game[0], atol=1e-12)


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_sample_shapley_counts(d, antithetic):
    for budget in range(d + 1, 12 * d + 1):
        design = designs.sample_shapley(d, budget, 0, antithetic)
        # What is left is less than a permutation of its own, and nothing is left once all coalitions fit.
        assert min(budget, 2**d) - max(0, d - 2) <= design.evaluations <= min(budget, 2**d)
        assert len(np.unique(design.masks, axis=0)) == design.evaluations
        if d == 10:
            # Each permutation contributes 1/permutations to every feature.
            positive = np.where(design.readout.toarray() > 0, design.readout.toarray(), 0).sum(axis=1)
            np.testing.assert_allclose(positive, 1.0)
    if d == 10:
        assert designs.sample_shapley(300, 1200, 1, antithetic).evaluations == 4 * 299 + 2  # no prefix met twice


def test_sample_shapley_spends_its_budget():
    # Prefixes shared by permutations allow more of them: 362 of 640 were spent when all were drawn at once.
    for d, budget, least in ((10, 320, 318), (16, 512, 500), (100, 3200, 3150)):
        spent = [designs.sample_shapley(d, budget, seed).evaluations for seed in range(5)]
        assert least <= np.mean(spent) and max(spent) <= budget
    game = games.table(6, seed=1)
    for budget in (64, 200):  # all coalitions: the value itself
        design = designs.sample_shapley(6, budget, 3)
        assert design.evaluations == 64
        np.testing.assert_allclose(games.scores(design, game), games.shapley(game), atol=1e-12)


def test_antithetic_pairs_are_reversed():
    # The prefixes of a permutation and of its reverse are complements of each other.
    masks = designs.sample_shapley(9, 18, 5, antithetic=True).masks
    rows = {mask.tobytes() for mask in masks}
    assert all((~mask).tobytes() in rows for mask in masks)
    # A game of pairs is exact under one antithetic pair: each pair is joined once by each of its members.
    terms = {frozenset(pair): a for pair, a in (((0, 1), 2.0), ((3, 7), -1.0), ((2, 8), 0.4))}
    game = games.unanimity(9, terms)
    np.testing.assert_allclose(
        games.scores(designs.sample_shapley(9, 18, 5, True), game), games.shapley(game), atol=1e-12
    )


def test_sample_shapley_of_ten_thousand_features():
    design = designs.sample_shapley(10_000, 10_001, 0)
    assert design.evaluations == 10_001
    weights = np.random.default_rng(0).normal(size=10_000)
    np.testing.assert_allclose(design.attribute(design.masks.sum(axis=1) * 2.0), 2.0)
    assert np.isfinite(design.readout.data).all() and len(weights) == design.d


@pytest.mark.parametrize("method", [designs.kernel_shap, designs.sample_shapley])
def test_the_seed_decides(method):
    first, again, other = method(12, 60, 1), method(12, 60, 1), method(12, 60, 2)
    values = np.random.default_rng(0).normal(size=first.evaluations)
    assert np.array_equal(first.masks, again.masks)
    assert np.array_equal(first.attribute(values), again.attribute(values))
    assert not np.array_equal(first.masks, other.masks)


def test_budgets_below_the_minimum_state_it():
    for make, message in (
        (lambda: designs.kernel_shap(10, 12, 0), "minimum for d = 10 is 20"),
        (lambda: designs.kernel_shap(10, 19, 0), "minimum for d = 10 is 20"),
        (lambda: designs.kernel_shap(1, 1, 0), "minimum for d = 1 is 2"),
        (lambda: designs.sample_shapley(10, 10, 0), "minimum for d = 10 is 11"),
        (lambda: designs.kernel_shap(10, 40.5, 0), "budget is 40.5"),
        (lambda: designs.sample_shapley(10, -5, 0), "budget is -5"),
    ):
        with pytest.raises(ShapelineError, match=message) as failure:
            make()
        assert "\n" not in str(failure.value)
    for d in range(1, 12):
        designs.kernel_shap(d, designs.kernel_shap_minimum(d), 0)
        designs.sample_shapley(d, designs.sample_shapley_minimum(d), 0)


def test_kernel_shap_holds_little_more_than_its_readout():
    d = 400
    designs.kernel_shap(50, 200, seed=0)  # what it imports
    tracemalloc.start()
    try:
        design = designs.kernel_shap(d, 4 * d, seed=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * design.readout.nbytes  # 4 times before


def test_a_fit_leaves_what_it_is_given():
    matrix, right = np.asfortranarray(np.eye(3) * 2), np.asfortranarray(np.ones((3, 2)))
    np.testing.assert_allclose(solve_positive(matrix, right, "test"), 0.5)
    assert (matrix == np.eye(3) * 2).all() and (right == 1).all()


@pytest.mark.parametrize(
    ("d", "more", "mirrored", "ridge"), [(9, 20, True, 0.0), (9, 20, False, 1e-3), (40, 0, True, 0.0)]
)
def test_a_fit_solves_the_normal_equations_for_any_order_of_rows(d, more, mirrored, ridge):
    """If single features come first, their products are not computed."""
    rng = np.random.default_rng(d)
    inner = np.concatenate([np.eye(d, dtype=bool), np.unique(rng.random((more, d)) < 0.5, axis=0)])
    inner = inner[(inner.sum(axis=1) > 0) & (inner.sum(axis=1) < d)]
    weights = rng.uniform(0.1, 2, len(inner))
    design = constrained_fit(inner, weights, "test", ridge, mirrored)
    order = rng.permutation(len(inner))
    other = constrained_fit(inner[order], weights[order], "test", ridge, mirrored)
    rows, many = inner - inner.mean(axis=1, keepdims=True), 2 if mirrored else 1
    matrix = many * (rows.T * weights) @ rows + ridge * np.eye(d)
    expected = np.linalg.pinv(matrix - matrix.mean(axis=0) - matrix.mean(axis=1)[:, None] + matrix.mean()) @ (
        rows.T * weights
    )
    scale = np.abs(expected).max() * np.linalg.cond(matrix + np.trace(matrix) / d**2) * np.finfo(float).eps
    np.testing.assert_allclose(design.readout[:, 1 : 1 + len(inner)], expected, atol=1e3 * scale)
    np.testing.assert_allclose(other.readout[:, 1 : 1 + len(inner)], expected[:, order], atol=1e3 * scale)
    np.testing.assert_allclose(design.readout.sum(axis=0)[1:-1], 0, atol=1e3 * scale)
