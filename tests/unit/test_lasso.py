"""LIME's fit of K features: known sparse games, and the selections against independent solutions."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge, lars_path

from shapeline import designs
from shapeline.designs import surrogate
from shapeline.designs.surrogate import SparseFit, fit_sparse
from shapeline.errors import ShapelineError
from tests.unit import games

BOTH = pytest.mark.parametrize("selection", ["lasso", "forward"])


def all_masks(d):
    return designs.shapley(d).masks


def drawn(d, rows, seed=0):
    """Masks, weights and a generator."""
    rng = np.random.default_rng(seed)
    return rng.random((rows, d)) < 0.5, rng.random(rows) + 0.1, rng


def chosen(scores):
    return [set(np.flatnonzero(row).tolist()) for row in scores]


# ---- games whose answer is known by hand


@BOTH
@pytest.mark.parametrize("k", [3, 5, 20])
def test_a_sparse_linear_game_is_found_exactly(selection, k):
    design = designs.lime(20, 400, seed=1)
    weights = designs.lime_weights(design.masks)
    rng = np.random.default_rng(2)
    truth = np.zeros((8, 20))
    for row in truth:
        row[rng.choice(20, 3, replace=False)] = rng.choice([-1, 1], 3) * rng.uniform(0.5, 2, 3)
    values = 0.7 + truth @ design.masks.T
    found = fit_sparse(design.masks, values, weights, k, ridge=0, selection=selection)
    np.testing.assert_allclose(found, truth, atol=1e-10)
    assert (np.count_nonzero(found, axis=1) <= k).all()
    if k == 3:
        assert chosen(found) == chosen(truth)


@BOTH
def test_on_all_coalitions_the_k_largest_are_selected_and_shrunk_by_the_ridge(selection):
    # On all coalitions, weighted alike, the columns are orthogonal: each has the centred square sum 2^d / 4.
    d, ridge = 6, 3.0
    effects = np.array([0.1, -5, 2, 0, -0.5, 3])
    values = games.linear(effects)
    for k, kept in (
        (1, {1}),
        (2, {1, 5}),
        (3, {1, 5, 2}),
        (4, {1, 5, 2, 4}),
        (5, {0, 1, 2, 4, 5}),
        (6, {0, 1, 2, 4, 5}),
    ):
        found = fit_sparse(all_masks(d), values, np.ones(2**d), k, ridge, selection)
        expected = np.where(np.isin(np.arange(d), list(kept)), effects * 16 / (16 + ridge), 0)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        assert set(np.flatnonzero(found).tolist()) == kept


@BOTH
def test_an_interaction_goes_to_its_members(selection):
    game = games.unanimity(5, {frozenset({1, 3}): 4.0, frozenset({2}): 0.5})
    found = fit_sparse(all_masks(5), game, np.ones(32), 2, 0, selection)
    np.testing.assert_allclose(found, [0, 2, 0, 2, 0], atol=1e-12)


@BOTH
def test_equal_players_tie_and_null_players_stay_zero(selection):
    game = games.linear([1.0, 1.0, 0.0, 1.0, 0.0])
    for k in (1, 2, 3, 4, 5):
        found = fit_sparse(all_masks(5), game, np.ones(32), k, 0, selection)
        kept = np.flatnonzero(found)
        assert len(kept) == min(k, 3) and set(kept) <= {0, 1, 3}
        np.testing.assert_allclose(found[kept], 1, atol=1e-12)


@BOTH
@pytest.mark.parametrize("level", [0.0, -0.6931471805599453, 1e6 / 3])
def test_a_constant_game_scores_zero(selection, level):
    masks, weights, _ = drawn(7, 40)
    assert not fit_sparse(masks, np.full((2, 40), level), weights, 3, selection=selection).any()


@BOTH
def test_the_scale_and_the_offset_of_the_values_change_no_selection(selection):
    masks, weights, rng = drawn(9, 60)
    values = rng.normal(size=(10, 60))
    plain = fit_sparse(masks, values, weights, 4, selection=selection)
    for scale, offset in ((1e-9, 0), (1e9, 0), (1, 1e3)):
        other = fit_sparse(masks, values * scale + offset, weights, 4, selection=selection)
        assert chosen(other) == chosen(plain)
        np.testing.assert_allclose(other, plain * scale, rtol=1e-8)


# ---- against independent solutions


def lasso_by_path(masks, values, weights, k):
    """The selection from scikit-learn's whole path, and whether a coefficient came back to zero on the way.

    Between two breaks of the path the active features are those not zero at either.
    """
    root = np.sqrt(weights)[:, None]
    columns = (masks - np.average(masks, axis=0, weights=weights)) * root
    right = (values - np.average(values, weights=weights)) * root[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        _, _, path = lars_path(columns, right * 1e3, method="lasso", max_iter=10_000)
    support = np.abs(path.T) > 1e-9 * np.abs(path).max()
    active = support[:-1] | support[1:]
    dropped = (active[:-1] & ~active[1:]).any(axis=1)
    over = np.flatnonzero(active.sum(axis=1) > k)
    last = over[0] if len(over) else len(support) - 1
    return set(np.flatnonzero(support[last]).tolist()), bool(dropped[:last].any())


@pytest.mark.parametrize("d", [3, 8, 15])
def test_the_lasso_is_the_path_of_scikit_learn(d):
    drops = 0
    for seed in range(6):
        # Few masks, so that columns are correlated and coefficients turn back on the way.
        masks, weights, rng = drawn(d, 2 * d + 6, seed)
        values = rng.normal(size=(8, len(masks))) + rng.normal(size=(8, d)) @ masks.T * (seed % 2)
        for k in range(1, d + 1):
            found = chosen(fit_sparse(masks, values, weights, k, selection="lasso"))
            for one, row in zip(found, values, strict=True):
                expected, dropped = lasso_by_path(masks, row, weights, k)
                assert one == expected
                drops += dropped
    assert d < 15 or drops > 10  # the path's way back was tried


def forward_by_trying(masks, values, weights, k):
    """Return the greedy selection that refits every candidate."""
    root = np.sqrt(weights)[:, None]
    columns, right = np.column_stack([np.ones(len(masks)), masks]) * root, values * root[:, 0]
    kept = []
    for _ in range(k):
        errors = {}
        for feature in set(range(masks.shape[1])) - set(kept):
            tried = columns[:, [0, *(index + 1 for index in [*kept, feature])]]
            errors[feature] = ((right - tried @ np.linalg.lstsq(tried, right)[0]) ** 2).sum()
        kept.append(min(errors, key=errors.get))
    return set(kept)


def test_forward_selection_is_the_greedy_one():
    for seed in range(4):
        masks, weights, rng = drawn(9, 50, seed)
        values = rng.normal(size=(5, 50))
        for k in (1, 2, 4, 8):
            found = chosen(fit_sparse(masks, values, weights, k, selection="forward"))
            assert found == [forward_by_trying(masks, row, weights, k) for row in values]


@BOTH
@pytest.mark.parametrize("ridge", [0.0, 1.0, 30.0])
def test_the_refit_is_a_weighted_ridge_with_a_free_intercept(selection, ridge):
    masks, weights, rng = drawn(12, 80)
    values = rng.normal(size=(6, 80)) + 5
    found = fit_sparse(masks, values, weights, 4, ridge, selection)
    for row, one in zip(values, found, strict=True):
        kept = np.flatnonzero(one)
        oracle = Ridge(alpha=max(ridge, 1e-12)).fit(masks[:, kept], row, sample_weight=weights)
        assert len(kept) == 4
        np.testing.assert_allclose(one[kept], oracle.coef_, atol=1e-9)


@BOTH
@pytest.mark.parametrize("kernel", ["cosine", "fraction"])
def test_with_all_features_selected_it_is_lime(selection, kernel):
    design = designs.lime(8, 60, seed=3, kernel=kernel, kernel_width=0.5, ridge=2.0)
    values = np.random.default_rng(0).normal(size=(4, len(design.masks)))
    kept = surrogate.sparsify(design, 8, kernel, 0.5, 2.0, selection)
    np.testing.assert_allclose(kept.attribute(values), design.attribute(values), atol=1e-10)


# ---- masks that say little


@BOTH
def test_equal_and_constant_columns(selection):
    masks, weights, _ = drawn(6, 50)
    masks[:, 4] = masks[:, 1]
    masks[:, 5] = ~masks[:, 2]
    masks[:, 0] = True
    truth = np.array([9.0, 2, -1, 0.5, 0, 0])
    found = fit_sparse(masks, masks @ truth, weights, 6, 0, selection)
    assert found[0] == 0 and np.count_nonzero(found) == 3
    assert np.count_nonzero(found[[1, 4]]) == 1 and np.count_nonzero(found[[2, 5]]) == 1
    np.testing.assert_allclose([found[1] + found[4], found[2] - found[5], found[3]], [2, -1, 0.5], atol=1e-10)


@BOTH
def test_fewer_coalitions_than_features(selection):
    masks, weights, rng = drawn(30, 8, 4)
    values = rng.normal(size=(20, 8))
    found = fit_sparse(masks, values, weights, 30, 0, selection)
    assert np.isfinite(found).all() and (np.count_nonzero(found, axis=1) <= 7).all()
    # Seven features and an intercept meet eight values.
    fitted = found @ masks.T
    offset = np.average(values - fitted, axis=1, weights=weights)
    np.testing.assert_allclose(fitted + offset[:, None], values, atol=1e-8)


@BOTH
def test_one_feature(selection):
    masks = np.array([[True], [False]])
    np.testing.assert_allclose(fit_sparse(masks, np.array([3.0, 1.0]), np.ones(2), 5, 0, selection), [2])


# ---- as a design


@BOTH
def test_shapes_and_independence_of_instances(selection, monkeypatch):
    masks, weights, rng = drawn(10, 60)
    values = rng.normal(size=(3, 4, 60))
    kept = SparseFit(masks, weights, 4, selection=selection)
    assert (kept.d, kept.evaluations) == (10, 60)
    together = kept.attribute(values)
    assert together.shape == (3, 4, 10) and together.dtype == np.float64
    for i in range(3):
        for j in range(4):
            np.testing.assert_allclose(kept.attribute(values[i, j]), together[i, j], atol=1e-12)
    monkeypatch.setattr(surrogate, "MAX_CHUNK_CELLS", 100)  # two or three instances at a time
    np.testing.assert_allclose(kept.attribute(values), together, atol=1e-12)
    assert kept.attribute(np.zeros((0, 60))).shape == (0, 10)


MASKS, WEIGHTS = np.eye(4, dtype=bool), np.ones(4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((MASKS, np.ones((2, 5)), WEIGHTS, 2), "give (..., 4)"),
        ((MASKS, np.full((2, 4), np.nan), WEIGHTS, 2), "all finite"),
        ((MASKS, np.ones(4), np.ones(3), 2), "give (K, d) bool and (K,)"),
        ((MASKS.astype(int), np.ones(4), WEIGHTS, 2), "give (K, d) bool and (K,)"),
        ((MASKS, np.ones(4), -WEIGHTS, 2), "at least 0"),
        ((MASKS, np.ones(4), 0 * WEIGHTS, 2), "one above 0"),
        ((MASKS, np.ones(4), WEIGHTS * np.inf, 2), "finite"),
        ((MASKS, np.ones(4), WEIGHTS, 0), "number of features kept is 0"),
        ((MASKS, np.ones(4), WEIGHTS, 1.5), "1.5"),
        ((MASKS, np.ones(4), WEIGHTS, 2, -1.0), "ridge is -1.0"),
        ((MASKS, np.ones(4), WEIGHTS, 2, 1.0, "lassoo"), "Did you mean 'lasso'?"),
    ],
)
def test_wrong_input(arguments, words):
    with pytest.raises(ShapelineError) as caught:
        fit_sparse(*arguments)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_shapley_kernel_has_no_sparse_fit():
    with pytest.raises(ShapelineError, match="kernel is 'shapley'"):
        surrogate.sparsify(designs.lime(5, 20, kernel="shapley"), 2, kernel="shapley")


def test_it_has_the_interface_of_a_design():
    asked = {name for name in dir(designs.Design) if not name.startswith("_")} - set(
        designs.Design.__dataclass_fields__
    )
    kept = surrogate.sparsify(designs.lime(5, 20, kernel="shapley"), 2)
    assert {"attribute", "attribute_pairs", "d", "evaluations"} <= asked <= set(dir(kept))
    assert kept.attribute_pairs(np.zeros(kept.evaluations)) is None
