import time
from math import comb

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from shapeline import designs
from shapeline.designs.design import solve_positive
from shapeline.errors import ShapelineError

from . import games


@pytest.mark.parametrize("d", range(1, 10))
def test_lime_with_the_shapley_kernel_is_kernel_shap(d):
    game = games.table(d, seed=d)
    lime = designs.lime(d, 2**d, seed=3, kernel="shapley", ridge=0)
    assert lime.evaluations == 2**d
    np.testing.assert_allclose(
        games.scores(lime, game), games.scores(designs.kernel_shap(d, 2**d, 1), game), atol=1e-10
    )


def test_lime_with_the_shapley_kernel_and_ridge():
    game = games.table(6)
    expected = games.constrained_least_squares(game, lambda s: games.kernel(6, s), ridge=0.7)
    np.testing.assert_allclose(games.scores(designs.lime(6, 64, 0, "shapley", ridge=0.7), game), expected, atol=1e-10)


@pytest.mark.parametrize(
    ("d", "budget", "ridge"), [(8, 60, 1.0), (8, 60, 0.0), (8, 256, 0.1), (40, 30, 0.5), (30, 200, 1.0), (1, 2, 1.0)]
)
@pytest.mark.parametrize("kernel", ["cosine", "fraction"])
def test_lime_equals_a_ridge_fit_with_intercept(d, budget, ridge, kernel):
    design = designs.lime(d, budget, 0, kernel, kernel_width=0.4, ridge=ridge)
    values = np.random.default_rng(1).normal(size=design.evaluations)
    share = design.masks.mean(axis=1)
    # Cosine distance of a 0/1 mask to the mask of ones, 1 for the empty mask.
    distance = 1 - (np.sqrt(share) if kernel == "cosine" else share)
    weights = np.sqrt(np.exp(-(distance**2) / 0.4**2))
    expected = Ridge(alpha=ridge).fit(design.masks, values, sample_weight=weights).coef_
    np.testing.assert_allclose(design.attribute(values), expected, atol=1e-8)


@pytest.mark.parametrize("kernel", ["cosine", "fraction", "shapley"])
def test_lime_masks(kernel):
    for d, budget in ((6, 20), (6, 64), (6, 500), (25, 100), (3, 8)):
        masks = designs.lime(d, budget, 2, kernel).masks
        assert len(masks) == len(np.unique(masks, axis=0)) == min(budget, 2**d)
        assert masks[0].all()


def test_lime_samples_a_uniform_number_of_absent_features():
    masks = designs.lime(60, 6000, 0).masks[1:]
    counts = np.bincount(masks.sum(axis=1), minlength=61)[2:59]  # the rarest sizes run out of distinct masks
    assert counts.std() < 2 * np.sqrt(counts.mean()) and counts.min() > 60
    assert abs(masks.mean(axis=0) - masks.mean()).max() < 0.03
    # Few features, many masks: drawn without replacement, so the ten masks of size 1 are all but used up.
    sizes = [np.bincount(designs.lime(10, 200, seed).masks.sum(axis=1), minlength=11) for seed in range(20)]
    assert np.mean(sizes, axis=0)[1] > 8 and np.mean(sizes, axis=0)[9] > 8


def test_lime_is_exact_on_linear_games_without_ridge():
    weights = np.random.default_rng(0).normal(size=50)
    for kernel in ("cosine", "shapley"):
        design = designs.lime(50, 200, 0, kernel, ridge=0)
        np.testing.assert_allclose(design.attribute(design.masks @ weights + 3.0), weights, atol=1e-9)


def test_lime_of_ten_thousand_features():
    start = time.process_time()
    design = designs.lime(10_000, 40, 0)
    assert time.process_time() - start < 3  # 40 equations, not 10,000
    assert np.isfinite(design.readout).all() and design.readout.shape == (10_000, 40)


def test_lime_seed_and_minimum():
    assert np.array_equal(designs.lime(9, 40, 1).readout, designs.lime(9, 40, 1).readout)
    assert not np.array_equal(designs.lime(9, 40, 1).masks, designs.lime(9, 40, 2).masks)
    assert designs.lime(1, designs.lime_minimum(1), 0, ridge=1.0).evaluations == 2
    even = designs.lime(4, 2, 0, kernel="shapley")
    np.testing.assert_allclose(even.attribute([5.0, 1.0]), 1.0)  # v(N) first
    for make, message in (
        (lambda: designs.lime(9, 1, 0), "minimum for d = 9 is 2;"),
        (lambda: designs.lime(9, 17, 0, ridge=0), "minimum for d = 9 is 18; raise it, or set ridge above 0"),
        (lambda: designs.lime(9, 40, 0, kernel="cosin"), "Did you mean 'cosine'"),
        (lambda: designs.lime(9, 40, 0, kernel_width=0), "kernel_width is 0"),
        (lambda: designs.lime(9, 40, 0, ridge=-1.0), "ridge is -1.0"),
        (lambda: designs.lime(9, 40, 0, ridge=float("nan")), "ridge is nan"),
        (lambda: designs.lime(9, 40, 0, kernel_width=1e-3, ridge=0), "the fit is singular"),
    ):
        with pytest.raises(ShapelineError, match=message) as failure:
            make()
        assert "\n" not in str(failure.value)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_symmetric_least_squares(d):
    game = games.table(d, seed=d)
    if d > 1:
        shapley = designs.symmetric_least_squares(d, lambda s: 3.0 / comb(d - 2, s - 1))
        np.testing.assert_allclose(games.scores(shapley, game), games.shapley(game), atol=1e-10)
    weights = np.random.default_rng(0).uniform(0.1, 1, size=d - 1)
    expected = games.constrained_least_squares(game, lambda s: weights[s - 1]) if d > 1 else [game[1] - game[0]]
    np.testing.assert_allclose(games.scores(designs.symmetric_least_squares(d, weights), game), expected, atol=1e-10)


def test_a_fit_that_is_singular_to_precision_is_refused():
    for nearly in (1.0, 1.0 + 1e-15):  # Cholesky fails on the first and passes on the second
        with pytest.raises(ShapelineError, match="do not determine 2 scores"):
            solve_positive(np.array([[1.0, 1.0], [1.0, nearly]]), np.ones((2, 1)), "lime")


def test_symmetric_least_squares_refuses():
    for q, message in (
        ([1, 2], "shape"),
        ([1, -1, 1], "at least 0"),
        ([0, 0, 0], "one above 0"),
        (lambda s: np.inf, "finite"),
    ):
        with pytest.raises(ShapelineError, match=message):
            designs.symmetric_least_squares(4, q)
    with pytest.raises(ShapelineError, match="2\\^22"):
        designs.symmetric_least_squares(22, lambda s: 1.0)
