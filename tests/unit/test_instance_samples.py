"""Samples of instances: valid samples of their method, each independent of the other instances."""

import numpy as np

import shapeline
from shapeline import designs
from shapeline.attribution import sampling as drawing
from shapeline.attribution.sampling import MAX_POOL_SIZE, MIN_POOL_SIZE, assign_samples, count_at_once, size_pool

from . import games

D, BUDGET = 8, 32


def scores_of(seed, instances, tables):
    """Return KernelSHAP scores of games (n, 2^d), each by an independent sample."""
    of = assign_samples(seed, instances, D, BUDGET)
    made = [designs.kernel_shap(D, BUDGET, int(number)) for number in of.numbers]
    part = np.arange(len(instances))
    masks = of.masks(np.stack([design.masks for design in made]), part)
    values = np.take_along_axis(tables, masks @ (1 << np.arange(D)), axis=1)
    return of.scores(np.stack([design.attribute(row) for design, row in zip(made, values, strict=True)]), part)


def test_a_permuted_design_is_a_sample_of_the_method():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(5, D))
    masks = (np.arange(2**D)[:, None] >> np.arange(D) & 1).astype(bool)
    found = scores_of(3, range(5), weights @ masks.T)
    np.testing.assert_allclose(found, weights, atol=1e-10)  # linear games are exact, so scores land on their features
    tables = np.stack([games.table(D, seed) for seed in range(5)])
    np.testing.assert_allclose(scores_of(3, range(5), tables).sum(axis=1), tables[:, -1] - tables[:, 0], atol=1e-10)


def test_a_sample_depends_only_on_seed_and_instance():
    tables = np.stack([games.table(D, seed) for seed in range(6)])
    whole = scores_of(1, [10, 11, 12, 13, 14, 15], tables)
    some = scores_of(1, [15, 12], tables[[5, 2]])
    np.testing.assert_array_equal(some, whole[[5, 2]])
    same = np.stack([tables[0]] * 6)
    assert len(np.unique(scores_of(1, range(6), same).round(9), axis=0)) == 6  # equal games, six draws
    assert not np.allclose(scores_of(2, [10], tables[:1]), whole[:1])


def test_methods_that_are_not_exchangeable_have_a_seed_per_instance():
    of = assign_samples(0, ["a", "b", "a"], D, BUDGET, exchangeable=False)
    assert of.orders is None and of.numbers[0] == of.numbers[2] != of.numbers[1]
    masks = np.ones((3, 2, D), bool)
    np.testing.assert_array_equal(of.masks(masks, np.arange(3)), masks)


def test_the_pool_is_smaller_for_expensive_designs():
    assert size_pool(10, 40) == MAX_POOL_SIZE and size_pool(5000, 20_000) == MIN_POOL_SIZE
    assert MIN_POOL_SIZE == size_pool(784, 3136) < size_pool(400, 1600) < size_pool(200, 800) <= MAX_POOL_SIZE


def test_a_pool_that_fits_into_memory_limits_no_chunk():
    assert count_at_once(784, 3136) is None and count_at_once(10, 40) is None
    assert count_at_once(784, 3136, exchangeable=False) == 13 and count_at_once(5000, 20_000) == 1


def test_numbers_are_independent_of_the_threads_that_build_designs(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(40, 200)).astype(np.float32)
    found = {}
    for threads in (1, 3):
        monkeypatch.setattr(drawing, "count_allowed", lambda threads=threads: threads)
        assert (
            assign_samples(0, range(40), 200, 800).threads == threads
            and assign_samples(0, range(40), 16, 64).threads == 1
        )
        found[threads] = shapeline.explain(sure, rows, "kernel_shap", features="column")
    np.testing.assert_array_equal(found[1].scores, found[3].scores)
    np.testing.assert_array_equal(found[1].standard_error, found[3].standard_error)


def sure(rows: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-rows.sum(axis=1) / 9))
