"""The measures against loops per point by the formulas, theorems 5.1 and 6.1, and bad input."""

import functools
import itertools
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeline import designs, influence
from shapeline.errors import ShapelineError
from shapeline.influence import distances

ALPHAS = {
    "constant": lambda r: 1.0,
    "inverse": lambda r: 1 / r,
    "inverse_square": lambda r: r**-2,
    "gaussian": lambda r: np.exp(-(r**2) / 2),
}
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def difference(x, y, categorical=()):
    change = y - x
    for column in categorical:
        change[column] = -1.0 if x[column] != y[column] else 0.0
    return change


def sign(own, label, regression):
    return label - own if regression else (1.0 if label == own else -1.0)


def mim_loop(points, X, known, own, alpha, regression=False, categorical=()):
    scores = np.zeros(points.shape)
    for i, x in enumerate(points):
        for y, label in zip(X, known, strict=True):
            change = difference(x, y, categorical)
            r = np.sqrt(change @ change)
            if r > 0:
                scores[i] += change * alpha(r) * sign(own[i], label, regression)
    return scores


def parzen_loop(points, X, known, own, sigma, regression=False, categorical=()):
    scores = np.zeros(points.shape)
    for i, x in enumerate(points):
        changes = np.array([difference(x, y, categorical) for y in X])
        exponents = -(changes**2).sum(axis=1) / (2 * sigma**2)
        weights = np.exp(exponents - exponents.max())
        weights /= weights.sum()
        target = known if regression else (known == own[i]).astype(float)
        for w, t, change in zip(weights, target, changes, strict=True):
            scores[i] += w * (t - weights @ target) * change / sigma**2
    return scores


def lime_loop(points, X, known, own, weight, ridge, regression=False, categorical=()):
    scores = np.zeros(points.shape)
    for i, x in enumerate(points):
        design = np.array([[1.0, *difference(x, y, categorical)] for y in X])
        weights = np.array([weight(x, y, row[1:]) for y, row in zip(X, design, strict=True)])
        target = np.array([sign(own[i], label, regression) for label in known])
        penalty = ridge * np.eye(design.shape[1])
        penalty[0, 0] = 0
        normal = design.T @ (weights[:, None] * design) + penalty
        scores[i] = np.linalg.solve(normal, design.T @ (weights * target))[1:]
    return scores


def data(n=40, m=150, offset=0.0, seed=0):
    """Data with equal and nearly equal rows; the points are its first rows; the labels of equal rows differ."""
    random = np.random.default_rng(seed)
    X = random.random((m, n)) + offset
    X[30] = X[3]
    X[5] = X[4]
    X[31] = X[6] + 1e-3 * random.random(n)
    X[32] = X[7] + 1e-6 * random.random(n)
    classes = random.choice([-1, 1], m)
    classes[[3, 30, 4, 5, 6, 31, 7, 32]] = [1, -1, -1, 1, 1, 1, -1, 1]
    own = classes[:12].copy()
    own[5] = classes[4]  # of equal rows the first counts
    numbers = random.random(m) * 500
    own_numbers = numbers[:12].copy()
    own_numbers[5] = numbers[4]
    return X[:12], X, classes, own, numbers, own_numbers


def close(found, expected, dtype):
    error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert found.dtype == np.float64 and error.max() < TOLERANCE[dtype], error.max()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("n", "offset"), [(3, 0.0), (40, 2000.0)])
def test_mim_equals_the_formula(alpha, n, offset, dtype):
    points, X, classes, own, numbers, own_numbers = data(n, offset=offset)
    found = influence.mim(points, X, classes, alpha, dtype=dtype)
    close(found, mim_loop(points, X, classes, own, ALPHAS[alpha]), dtype)
    found = influence.mim(points, X, numbers, alpha, True, dtype=dtype)
    close(found, mim_loop(points, X, numbers, own_numbers, ALPHAS[alpha], True), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("n", "sigma"), [(3, 0.05), (3, 1.0), (40, 0.6), (40, 5.0)])
def test_parzen_equals_the_formula(n, sigma, dtype):
    points, X, classes, own, numbers, own_numbers = data(n)
    found = influence.parzen(points, X, classes, sigma, dtype=dtype)
    close(found, parzen_loop(points, X, classes, own, sigma), dtype)
    found = influence.parzen(points, X, numbers + 1000, sigma, True, dtype=dtype)
    close(found, parzen_loop(points, X, numbers, own_numbers, sigma, True), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n", [3, 40, 400])  # the smaller and the larger normal matrix
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_data_lime_equals_the_formula(n, ridge, dtype):
    points, X, classes, own, numbers, own_numbers = data(n)
    rho = np.sqrt(n) / 5

    def euclidean(x, y, change):
        return np.sqrt(np.exp(-(change @ change) / rho**2))

    def cosine(x, y, change):
        return np.sqrt(np.exp(-((1 - x @ y / np.sqrt(x @ x * (y @ y))) ** 2) / 0.1**2))

    found = influence.data_lime(points, X, classes, rho, ridge=ridge, dtype=dtype)
    close(found, lime_loop(points, X, classes, own, euclidean, ridge), dtype)
    found = influence.data_lime(points, X, classes, mu=0.1, ridge=ridge, dtype=dtype)
    close(found, lime_loop(points, X, classes, own, cosine, ridge), dtype)
    found = influence.data_lime(points, X, numbers, rho, True, ridge=ridge, dtype=dtype)
    close(found, lime_loop(points, X, numbers, own_numbers, euclidean, ridge, True), dtype)


@pytest.mark.parametrize(("n", "m", "ridge"), [(300, 200, 1.0), (40, 600, 3.0)])
def test_a_float32_fit_is_refined(n, m, ridge):
    """One wide column: the largest eigenvalue is thousands of times the ridge."""
    random = np.random.default_rng(0)
    X, classes = random.random((m, n)), random.choice([-1, 1], m)
    X[:, 0] *= 20
    exact = influence.data_lime(X[:4], X, classes, 10.0, ridge=ridge, dtype="float64")
    found = influence.data_lime(X[:4], X, classes, 10.0, ridge=ridge)
    close(found, exact, "float32")
    assert (found != exact).any()  # not solved in float64 after all


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_categorical_columns_are_1_where_equal(dtype):
    points, X, classes, own, numbers, own_numbers = data(4)
    random = np.random.default_rng(1)
    X = np.column_stack([random.integers(0, 3, len(X)), X, random.integers(5, 9, len(X))]).astype(float)
    X[[30, 5]] = X[[3, 4]]
    points, columns = X[:12], (5, 0)
    found = influence.mim(points, X, numbers, "inverse_square", True, columns, dtype=dtype)
    close(found, mim_loop(points, X, numbers, own_numbers, ALPHAS["inverse_square"], True, columns), dtype)
    found = influence.parzen(points, X, classes, 0.7, False, columns, dtype=dtype)
    close(found, parzen_loop(points, X, classes, own, 0.7, False, columns), dtype)
    found = influence.data_lime(points, X, classes, 1.0, False, columns, dtype=dtype)
    expected = lime_loop(points, X, classes, own, lambda x, y, c: np.exp(-(c @ c) / 2), 1.0, False, columns)
    close(found, expected, dtype)


def test_blocks_and_chunks_change_nothing(monkeypatch):
    points, X, classes, *_ = data(7)
    whole = [influence.mim(points, X, classes), influence.parzen(points, X, classes, 0.5)]
    whole.append(influence.data_lime(points, X, classes, 1.0))
    monkeypatch.setattr(distances, "CHUNK_PAIRS", 5 * len(X))
    monkeypatch.setattr(distances, "BLOCK_CELLS", 7 * 13)
    monkeypatch.setattr(distances, "MAX_CACHED_CELLS", 0)
    parts = [influence.mim(points, X, classes), influence.parzen(points, X, classes, 0.5)]
    parts.append(influence.data_lime(points, X, classes, 1.0))
    for one, other in zip(whole, parts, strict=True):
        close(other, one, "float32")


def test_many_near_pairs_are_computed_in_float64():
    random = np.random.default_rng(0)
    X = np.concatenate([random.random((60, 50)), 1e4 + random.random((60, 50))])
    classes = random.choice([0, 1], 120)
    points = X[::20]
    found = distances.Neighbours("test", points, X).compute_squared(slice(0, len(points)))
    assert found.dtype == "float64"
    close(
        influence.mim(points, X, classes),
        mim_loop(points, X, classes, classes[::20], ALPHAS["inverse_square"]),
        "float32",
    )


def test_a_narrow_kernel_is_computed_in_float64():
    random = np.random.default_rng(0)
    X, classes = random.random((300, 1500), dtype=np.float32), random.choice([0, 1], 300)
    for sigma, dtype in ((1.0, "float64"), (8.0, "float32")):
        found = distances.Neighbours("test", X[:9], X).compute_squared(slice(0, 9), sigma)
        assert found.dtype == dtype
        exact = influence.parzen(X[:9], X, classes, sigma, dtype="float64")
        close(influence.parzen(X[:9], X, classes, sigma), exact, "float32")


def test_torch_runs_the_same_source(monkeypatch):
    import torch

    _, X, classes, _, numbers, _ = data(6)
    X = X.astype(np.float32)
    points = X[:12]
    measures = [
        lambda: influence.mim(points, X, numbers, "inverse_square", True, (1,)),
        lambda: influence.mim(points, X, classes, "gaussian"),
        lambda: influence.mim(points, X, classes, lambda r: 1 / (1 + r)),
        lambda: influence.parzen(points, X, classes, 0.5, categorical=(2,)),
        lambda: influence.parzen(points, X, numbers, 0.5, True, dtype="float64"),
        lambda: influence.data_lime(points, X, classes, 1.0),
    ]
    on_numpy = [measure() for measure in measures]
    monkeypatch.setattr(distances, "open_space", lambda where, device: distances.Space(torch, "cpu"))
    for expected, measure in zip(on_numpy, measures, strict=True):
        close(measure(), expected, "float32")


def test_numpy_alone_by_default():
    script = "import sys, numpy; from shapeline import influence; X = numpy.eye(3);"
    script += "influence.mim(X, X, [0, 1, 1]); influence.parzen(X, X, [0, 1, 1], 1.0); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_more_than_two_classes_are_own_against_the_rest():
    _, X, *_ = data(4)
    names = np.random.default_rng(3).choice(["a", "b", "c"], len(X))
    for i in range(3):
        own = np.where(names == names[i], 1, -1)
        expected = influence.mim(X[i : i + 1], X, own), influence.parzen(X[i : i + 1], X, own, 0.5)
        found = influence.mim(X[i : i + 1], X, names), influence.parzen(X[i : i + 1], X, names, 0.5)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_parzen_is_the_gradient_of_its_estimate():
    points, X, classes, own, *_ = data(5)

    def estimate(z, label, sigma=0.4):
        weights = np.exp(-((X - z) ** 2).sum(axis=1) / (2 * sigma**2))
        return weights[classes == label].sum() / weights.sum()

    found = influence.parzen(points, X, classes, 0.4, dtype="float64")
    for x, label, gradient in zip(points, own, found, strict=True):
        steps = 1e-5 * np.eye(5)
        slope = [(estimate(x + step, label) - estimate(x - step, label)) / 2e-5 for step in steps]
        np.testing.assert_allclose(gradient, slope, atol=1e-8)


@pytest.mark.parametrize("alpha", ["inverse", "inverse_square", "gaussian"])
def test_no_direction_beats_mim(alpha):
    """Theorem 5.1: MIM maximises sum alpha_0 cos(y - x, phi) s with alpha_0(r) = r alpha(r)."""
    points, X, classes, own, *_ = data(4)
    x, changes = points[0], np.delete(X, 0, axis=0) - points[0]
    lengths = np.linalg.norm(changes, axis=1)
    weights = lengths * ALPHAS[alpha](lengths) * np.where(np.delete(classes, 0) == own[0], 1, -1)

    def objective(direction):
        return (weights * (changes @ direction) / (lengths * np.linalg.norm(direction))).sum()

    best = influence.mim(x[None], X, classes, alpha)[0]
    directions = np.random.default_rng(0).normal(size=(2000, 4))
    directions = np.concatenate([directions, best + 0.01 * np.linalg.norm(best) * directions])
    assert max(map(objective, directions)) <= objective(best) * (1 + 1e-6)
    assert objective(best) == pytest.approx(np.linalg.norm(best), rel=1e-5)  # eq. 5


def test_set_influence_sums_to_banzhaf():
    """Theorem 6.1, and eq. 8 for the empty coalition."""
    random = np.random.default_rng(0)
    for n in (1, 2, 5, 7):
        design = designs.banzhaf(n)
        order = random.permutation(2**n)
        sets, values = design.masks[order], random.normal(size=2**n)
        found = influence.total_set_influence(sets, values)
        unsorted = np.empty(2**n)
        unsorted[order] = values
        banzhaf = design.attribute(unsorted)  # normalised by 2^(1-n)
        np.testing.assert_allclose(found, 2 ** (n - 1) * (2**n - 1) / n * banzhaf, atol=1e-9)
        values -= values[~sets.any(axis=1)]
        sizes = np.maximum(sets.sum(axis=1), 1)
        empty = influence.set_influence(sets, values, np.zeros((1, n), bool))[0]
        np.testing.assert_allclose(empty, (values / sizes) @ sets, atol=1e-12)
    with pytest.raises(ShapelineError, match="none of the sets"):
        influence.set_influence(np.eye(3), np.ones(3), np.ones((1, 3)))


def test_mean_over_random_labels_is_0_for_mim_and_not_for_parzen():
    random = np.random.default_rng(0)
    X = random.random((30, 3))
    mim, parzen = [], []
    for _ in range(400):
        classes = np.append(1, random.choice([-1, 1], 29))
        mim.append(influence.mim(X[:1], X, classes)[0])
        parzen.append(influence.parzen(X[:1], X, classes, 0.3)[0])
    errors = [np.abs(np.mean(each, axis=0)) / (np.std(each, axis=0) / np.sqrt(400)) for each in (mim, parzen)]
    assert errors[0].max() < 3
    assert errors[1].max() > 6


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_moving_and_turning_all_points(seed, n):
    random = np.random.default_rng(seed)
    X, classes = random.normal(size=(20, n)), random.choice([-1, 1], 20)
    turn, _ = np.linalg.qr(random.normal(size=(n, n)))
    moved = X @ turn.T + 10 * random.normal(size=n)
    for measure in (influence.mim, functools.partial(influence.parzen, sigma=1.0), influence.data_lime):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before, after = measure(X[:3], X, classes), measure(moved[:3], moved, classes)
        np.testing.assert_allclose(after, before @ turn.T, atol=2e-5 * np.abs(before).max() + 1e-12)


def test_qii_is_the_shapley_value_over_all_rows():
    random = np.random.default_rng(0)
    X = random.normal(size=(15, 3))

    def predict(rows):
        return rows[:, 0] * rows[:, 1] + np.tanh(rows[:, 2])

    def value(x, S):
        rows = X.copy()
        rows[:, S] = x[S]
        return predict(rows).mean()

    expected = np.zeros((2, 3))
    for row, order in itertools.product(range(2), itertools.permutations(range(3))):
        for position, i in enumerate(order):
            S = list(order[:position])
            expected[row, i] += (value(X[row], [*S, i]) - value(X[row], S)) / 6
    np.testing.assert_allclose(influence.qii(predict, X[:2], X), expected, atol=1e-12)


def test_a_classifier_of_data_frames_receives_them():
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(15, 3)), columns=list("abc"))

    def label(rows):
        return (rows["a"] * rows["b"] > 0).astype(int)

    known, cells = label(X).to_numpy(), X.to_numpy()
    arrays = [lambda rows: rows[:, 0] * rows[:, 1], lambda rows: (rows[:, 0] * rows[:, 1] > 0).astype(int)]
    np.testing.assert_array_equal(
        influence.qii(lambda rows: rows["a"] * rows["b"], X[:2], X), influence.qii(arrays[0], cells[:2], cells)
    )
    for measure in (influence.augmented_mim, lambda *given: influence.augment(*given)[1]):
        np.testing.assert_array_equal(measure(label, X[:2], X, known), measure(arrays[1], cells[:2], cells, known))


def test_sampled_qii_comes_to_the_exact_one():
    """Additive and linear: QII is a (x - mean); 14 columns are sampled."""
    random = np.random.default_rng(0)
    X, slope = random.normal(size=(50, 14)), random.normal(size=14)
    found = influence.qii(lambda rows: rows @ slope, X[:2], X, permutations=4000)
    np.testing.assert_allclose(found, slope * (X[:2] - X.mean(axis=0)), atol=5 * np.abs(slope).max() / np.sqrt(4000))
    # One whose interaction makes the order matter, against the exact value on fewer columns.
    few = np.column_stack([X[:, :3], np.zeros((50, 10))])
    sampled = influence.qii(lambda rows: rows[:, 0] * rows[:, 1] + rows[:, 2], few[:1], few, permutations=20000)
    exact = influence.qii(lambda rows: rows[:, 0] * rows[:, 1] + rows[:, 2], few[:1, :3], few[:, :3])
    np.testing.assert_allclose(sampled[0, :3], exact[0], atol=0.06)
    assert not sampled[0, 3:].any()
    with pytest.raises(ShapelineError, match="one finite number per row"):
        influence.qii(lambda rows: rows, X[:1], X)


@pytest.mark.parametrize("high", [2, 3])
def test_counterfactual_equals_the_formula(high):
    random = np.random.default_rng(high)
    X, known = random.integers(0, high, (60, 4)).astype(float), random.integers(0, 4, 60)
    expected = np.zeros(4)
    for (x, c), (y, e) in itertools.product(zip(X, known, strict=True), repeat=2):
        if (x != y).sum() == 1:
            expected[(x != y).argmax()] += abs(c - e) / 60
    np.testing.assert_allclose(influence.counterfactual(X, known), expected, atol=1e-12)
    assert expected.min() > 0


def test_counterfactual_is_0_on_sparse_data_with_a_warning():
    with pytest.warns(UserWarning, match="too sparse"):
        assert not influence.counterfactual(np.random.default_rng(0).random((50, 5)), np.arange(50)).any()


def test_augmented_data_run_through_a_measure():
    _, X, *_ = data(3)
    X[:, 1] = 4.0

    def predict(rows):
        return np.where(rows[:, 0] > 0.5, 1, -1)

    known = predict(X)
    more, its_labels = influence.augment(predict, X[:2], X, known, count=200, spread=0.2, seed=1)
    assert more.shape == (len(X) + 400, 3) and (more[:, 1] == 4.0).all()
    np.testing.assert_array_equal(more[: len(X)], X)
    np.testing.assert_array_equal(its_labels, predict(more))
    assert np.abs(more[len(X) : len(X) + 200].mean(axis=0) - X[0]).max() < 0.05
    border = np.abs(X[:, :1] - 0.5).argmin()
    more, _ = influence.augment(predict, X[:1], X, known, count=20, seed=1, categorical=[2])
    assert (more[len(X) :, 2] == X[0, 2]).all() and (more[len(X) :, 0] != X[0, 0]).all()
    more, its_labels = influence.augment(predict, X[[border]], X, known, count=500, spread=0.2, seed=1)
    scores = influence.mim(X[[border]], more, its_labels, "inverse")[0]
    assert scores[0] * known[border] > 5 * np.abs(scores[2])


def test_shifted_image_is_clipped_and_visible():
    random = np.random.default_rng(0)
    x, phi = random.random((2, 100)), 1e-9 * random.normal(size=(2, 100))
    phi[1] = 0
    shifted = influence.shifted_picture(x, phi)
    assert shifted.min() >= 0 and shifted.max() <= 1
    np.testing.assert_array_equal(shifted[1], x[1])
    inside = (shifted[0] > 0) & (shifted[0] < 1)
    np.testing.assert_array_equal(np.sign(shifted[0] - x[0])[inside], np.sign(phi[0])[inside])
    assert np.abs(shifted[0] - x[0]).max() > 0.25
    alone = influence.shifted_picture(np.full(100, 0.5), np.eye(100)[3])
    assert alone[3] == pytest.approx(0.8) and (np.delete(alone, 3) == 0.5).all()


def test_equal_rows_count_nothing_and_the_first_label_counts():
    X = np.array([[0.0, 1], [0, 1], [-0.0, 1], [2, 1], [1 + 1e-9, 3]])
    classes = [1, -1, -1, 1, -1]
    expected = mim_loop(X[:3], X[3:], classes[3:], [1, 1, 1], ALPHAS["inverse_square"])
    np.testing.assert_allclose(influence.mim(X[:3], X, classes, dtype="float64"), expected, rtol=1e-12)
    np.testing.assert_allclose(influence.mim(X[:3], X, classes, point_labels=[-1] * 3), -expected, rtol=1e-5)
    integers = influence.mim(np.array([[0, 1]], np.int8), X, classes)  # equal in value, of another type
    np.testing.assert_allclose(integers, expected[:1], rtol=1e-5)


def test_rows_apart_by_less_than_float32_are_not_equal():
    X = np.array([[1.0, 0], [1.0 + 1e-12, 0], [0, 3]])
    r = X[1, 0] - 1
    found = influence.mim(X[:1], X, [1, 1, -1])
    np.testing.assert_allclose(found, mim_loop(X[:1], X, [1, 1, -1], [1], ALPHAS["inverse_square"]), rtol=1e-5)
    assert found[0, 0] == pytest.approx(1 / r, rel=1e-5)


def test_equal_rows_have_one_id():
    random = np.random.default_rng(1)
    X, points = random.integers(-1, 2, (60, 3)) * 1.0, random.integers(-1, 2, (30, 3)) * -1.0
    X[0, 0] = np.nan
    point_ids, data_ids = distances.identify(points, X)
    same = (points[:, None] == points).all(2)
    np.testing.assert_array_equal(point_ids[:, None] == point_ids, same)
    np.testing.assert_array_equal(data_ids[:, None] == point_ids, (X[:, None] == points).all(2))
    assert (data_ids < 0).any() and not same[np.triu_indices(30, 1)].all()


def test_a_hash_that_collides_changes_nothing(monkeypatch):
    random = np.random.default_rng(0)
    grid, known = random.integers(0, 2, (40, 3)).astype(float), random.integers(0, 2, 40)
    counted = influence.counterfactual(grid, known)
    home = sys.modules["shapeline.influence.measures"]
    monkeypatch.setattr(home, "hash_column", lambda values, column: np.zeros(values.shape, np.uint64))
    np.testing.assert_array_equal(influence.counterfactual(grid, known), counted)


def test_a_single_point_equal_labels_and_a_constant_column():
    one = np.array([[1.0, 2.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for measure in (influence.mim, functools.partial(influence.parzen, sigma=1.0), influence.data_lime):
            assert (measure(one, one, [1]) == 0).all()
    points, X, classes, *_ = data(4)
    X[:, 2] = 0.1
    for measure in (influence.mim, functools.partial(influence.parzen, sigma=1.0), influence.data_lime):
        with pytest.warns(UserWarning, match="all labels are equal"):
            equal = measure(points, X, np.ones(len(X)))
        assert np.isfinite(equal).all()
        scores = measure(points, X, classes)
        assert (scores[:, 2] == 0).all() and (scores[:, 0] != 0).any()


@pytest.mark.parametrize("pair", [(0, 1), (-1, 1), (1, 2), ("no", "yes"), (False, True), (0.0, 1.0)])
def test_any_two_labels_are_classes(pair):
    points, X, classes, *_ = data(3)
    found = influence.mim(points, X, np.where(classes > 0, pair[1], pair[0]))
    np.testing.assert_array_equal(found, influence.mim(points, X, classes))


def test_a_sigma_that_underflows_gives_a_warning():
    points, X, classes, *_ = data(4)
    points = X[10:12]
    for dtype in TOLERANCE:
        with pytest.warns(UserWarning, match=r"sigma = 1e-05 is so small .* at 2 of 2 points \(the first is point 0"):
            assert (influence.parzen(points, X, classes, 1e-5, dtype=dtype) == 0).all()
        with pytest.warns(UserWarning, match="no row but equal ones keeps weight at 2 of 2 points"):
            assert (influence.data_lime(points, X, classes, 1e-5, dtype=dtype) == 0).all()
    with pytest.warns(UserWarning, match="so small"):
        influence.parzen(points + 0.1, X, classes, 1e-5, point_labels=[1, 1])
    with warnings.catch_warnings():  # half way between two labels there is a slope, however steep
        warnings.simplefilter("error")
        found = influence.parzen([[0.0]], np.array([[-1.0], [1], [9]]), [0, 1, 1], 1e-2, point_labels=[1])
    np.testing.assert_allclose(found, 0.5 / 1e-4)


def test_a_sigma_that_leaves_rows_of_one_label_gives_a_warning():
    X, labels = np.array([[0.0], [1.0], [1000.0]]), np.array([0, 0, 1])
    for dtype in TOLERANCE:
        with pytest.warns(UserWarning, match=r"rows of one label, keep weight at 3 of 3 points"):
            assert (influence.parzen(X, X, labels, 2.0, dtype=dtype) == 0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert influence.parzen(X, X, labels, 500.0).all()


def test_many_numbers_as_labels_give_a_warning():
    X = np.arange(60.0).reshape(30, 2)
    for measure in (influence.mim, functools.partial(influence.parzen, sigma=9.0)):
        with pytest.warns(UserWarning, match="labels hold 30 numbers, each of which is read as a class") as caught:
            measure(X[:2], X, np.arange(30.0))
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            measure(X[:2], X, np.arange(30.0), regression=True)
            measure(X[:2], X, np.arange(30))


def test_a_model_in_the_place_of_its_function_is_one_line():
    X = np.arange(6.0).reshape(3, 2)
    with pytest.raises(ShapelineError, match=r"qii: predict is an object; give a function of rows, such as lambda"):
        influence.qii(object(), X[:1], X)
    with pytest.raises(ShapelineError, match=r"augment: predict is an object; .* such as model.predict"):
        influence.augment(object(), X[:1], X, [0, 1, 1])


X3 = np.eye(3)
FRAME = pd.DataFrame(X3, columns=list("abc"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: influence.mim(X3 + 1, X3, [0, 1, 1]), r"3 of 3 points are not rows .* point 0\), .* point_labels="),
        (lambda: influence.mim(X3[0], X3, [0, 1, 1]), r"points has shape \(3,\)"),
        (lambda: influence.mim(X3[:, :2], X3, [0, 1, 1]), "points have 2 features and X has 3"),
        (lambda: influence.mim(X3, X3, [0, 1]), r"labels has shape \(2,\)"),
        (lambda: influence.mim(X3, X3, [0, 1, np.nan]), r"labels\[2\] is nan"),
        (lambda: influence.mim(X3, X3, [0, 0.5, 1]), "is no class; pass regression=True"),
        (lambda: influence.mim(X3, X3, ["a", "b", "c"], regression=True), "give numbers"),
        (lambda: influence.mim(X3, np.diag([1, np.nan, 1]), [0, 1, 1]), r"X\[1, 1\] is nan \(one of 1 such"),
        (lambda: influence.mim(np.diag([1, np.inf, 1]), X3, [0, 1, 1]), r"points\[1, 1\] is inf"),
        (lambda: influence.mim(X3.astype(str), X3, [0, 1, 1]), "code categories as numbers"),
        (lambda: influence.mim(X3, X3, [0, 1, 1], "inverse_sqare"), "Did you mean 'inverse_square'"),
        (lambda: influence.mim(X3, X3, [0, 1, 1], lambda r: -r), "finite numbers >= 0"),
        *(
            (lambda one=one: influence.mim(X3, X3, [0, 1, 1], categorical=one), "list of column numbers from 0 to 2")
            for one in ((3,), (-1,), (1.0,), [True, False, False], np.eye(3, dtype=bool)[0], ["a"], "01", 1)
        ),
        (lambda: influence.mim(X3, X3, np.array(["a", None, "b"], object)), r"labels\[1\] is missing"),
        (lambda: influence.mim(X3, X3, [0, 1, 1], point_labels=[0, 1, None]), r"point_labels\[2\] is missing"),
        *(
            (lambda measure=measure: measure(pd.DataFrame(X3[:1], columns=list("bac"))), "or in another order")
            for measure in (
                lambda points: influence.mim(points, FRAME, [0, 1, 1]),
                lambda points: influence.qii(np.sum, points, FRAME),
                lambda points: influence.augmented_mim(np.sum, points, FRAME, [0, 1, 1]),
            )
        ),
        (lambda: influence.qii(np.sum, X3, X3, permutations=2.5), "permutations is 2.5; give a whole number"),
        (lambda: influence.augment(np.sum, X3, X3, [0, 1, 1], count=-1), "count is -1; give a whole number"),
        (lambda: influence.data_lime(X3, X3, [0, 1, 1], dtype="float16"), "allowed: float32, float64"),
        (lambda: influence.mim(X3, X3, [0, 1, 1], device="tpu"), "unknown device"),
        (lambda: influence.mim(X3, X3, [0, 1, 1], dtype="float16"), "allowed: float32, float64"),
        (lambda: influence.mim(X3, np.zeros((0, 3)), []), "at least one of each"),
        (lambda: influence.parzen(X3, X3, [0, 1, 1], 0.0), "sigma = 0.0; it must be"),
        (lambda: influence.parzen(X3, X3, [0, 1, 1], float("nan")), "sigma = nan"),
        (lambda: influence.data_lime(X3, X3, [0, 1, 1], ridge=0), "ridge = 0"),
        (lambda: influence.data_lime(X3, X3, [0, 1, 1], mu=0.1, categorical=(0,)), "cosine kernel"),
        (lambda: influence.shifted_picture(np.ones(3), np.ones(4)), "give equal shapes"),
    ],
)
def test_a_mistake_is_one_line(call, message):
    with pytest.raises(ShapelineError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "measure",
    [
        lambda X, labels: influence.mim(X, X, labels),
        lambda X, labels: influence.parzen(X, X, labels, sigma=1.0),
        lambda X, labels: influence.counterfactual(X, labels),
        lambda X, labels: influence.augmented_mim(lambda rows: np.ones(len(rows)), X, X, labels, count=3),
        lambda X, labels: influence.mim(X, X, [0, 1, 0, 1], point_labels=labels),
        lambda X, labels: influence.augmented_mim(
            lambda rows: np.ones(len(rows)), X, X, [0, 1, 0, 1], count=3, point_labels=labels
        ),
    ],
)
def test_labels_in_another_order_of_rows_are_refused(measure):
    frame = pd.DataFrame({"a": [0.0, 1.0, 0.0, 2.0], "b": [0.0, 0.0, 1.0, 2.0]}, index=list("wxyz"))
    labels = pd.Series([0, 1, 0, 1], index=frame.index)
    plain = measure(frame, labels)
    np.testing.assert_array_equal(measure(frame, labels.reset_index(drop=True)), plain)
    with pytest.raises(ShapelineError, match=r"the index of (point_)?labels is that of (X|points) in another order"):
        measure(frame, labels[::-1])
