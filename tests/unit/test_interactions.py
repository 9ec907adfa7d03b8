"""Interactions of pairs: against their definitions by brute force, on games of order 2, and in score files."""

import json
import re
import sys
import types
from itertools import combinations
from math import comb, factorial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import shapeline
from shapeline import designs, scores
from shapeline.designs import gaussian_interactions
from shapeline.designs.gaussian_interactions import _compute_posterior, _compute_variance, read_stack
from shapeline.designs.gaussian_pairs import draw_pairs, find_pairs
from shapeline.designs.interactions import _build_block, _follow_orders, build_symmetric, enumerate_pairs
from shapeline.designs.uncertainty import read_sample_interactions
from shapeline.errors import ShapelineError
from shapeline.report import experiment
from shapeline.report.figures import games as figures
from shapeline.report.sections import interactions
from tests.fixtures import result_folder

from . import games
from .games import row
from .value_tables import reviews

INDICES = ("k_sii", "stii", "fsii")


def derivative(game, i, j, kept):
    return game[row([*kept, i, j])] - game[row([*kept, i])] - game[row([*kept, j])] + game[row(kept)]


def by_definition(game, weight):
    """Scores of pairs, row by row: weight(s) of the derivative at each S without the two."""
    d = len(game).bit_length() - 1
    found = []
    for i, j in combinations(range(d), 2):
        others = [k for k in range(d) if k not in (i, j)]
        parts = [part for size in range(d - 1) for part in combinations(others, size)]
        found.append(sum(weight(d, len(part)) * derivative(game, i, j, part) for part in parts))
    return np.array(found)


def sii(d, s):
    return factorial(s) * factorial(d - s - 2) / factorial(d - 1)


def stii(d, s):
    return 2 / (d * comb(d - 1, s))


def fsii(d, s):
    return 6 * factorial(s + 1) * factorial(d - s - 1) / factorial(d + 1)


def faithful(game):
    """The best fit of all coalitions by features and pairs, both ends met: features' scores, then the pairs'."""
    d = len(game).bit_length() - 1
    masks = games.members
    held = np.array([[i in masks(r) for i in range(d)] for r in range(2**d)], float)
    first, second = enumerate_pairs(d)
    columns = np.column_stack([held, held[:, first] * held[:, second]])
    sizes = held.sum(axis=1).astype(int)
    weight = np.array([0.0 if s in (0, d) else games.kernel(d, s) for s in sizes])
    count = columns.shape[1]
    system = np.ones((count + 1, count + 1))
    system[:count, :count], system[count, count] = columns.T @ (columns * weight[:, None]), 0.0
    right = np.append(columns.T @ (weight * (game - game[0])), game[-1] - game[0])
    return np.split(np.linalg.solve(system, right)[:count], [d])


def order_two(d, seed=0):
    """A game of order 2: v(empty), the features' own parts, and those of the pairs."""
    rng = np.random.default_rng(seed)
    own, both = rng.normal(size=d), rng.normal(size=d * (d - 1) // 2)
    terms = {frozenset({i}): a for i, a in enumerate(own)}
    terms |= {frozenset(pair): a for pair, a in zip(combinations(range(d), 2), both, strict=True)}
    return 0.7 + games.unanimity(d, terms), own, both


def read(design, game):
    values = games.look_up(game, design.masks)
    return design.attribute(values), design.attribute_pairs(values)


@pytest.mark.parametrize("d", range(1, 9))
def test_k_sii_and_stii_are_their_definitions(d):
    game = games.table(d, seed=d)
    shapley = games.shapley(game)
    for index, weight in (("k_sii", sii), ("stii", stii)):
        own, pairs = read(designs.shapley_interactions(d, index), game)
        expected = by_definition(game, weight)
        np.testing.assert_allclose(pairs, expected, atol=1e-10)
        np.testing.assert_allclose(own, shapley - build_symmetric(expected, d).sum(axis=0) / 2, atol=1e-10)
    np.testing.assert_allclose(own, game[1 << np.arange(d)] - game[0], atol=1e-10)  # stii: each feature alone


@pytest.mark.parametrize("d", range(3, 9))
def test_fsii_is_the_faithful_fit(d):
    game = games.table(d, seed=d)
    for found, expected in zip(read(designs.shapley_interactions(d, "fsii"), game), faithful(game), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("index", INDICES)
def test_main_effects_and_pairs_add_up_and_give_the_shapley_value(index):
    game = games.table(7, seed=3)
    own, pairs = read(designs.shapley_interactions(7, index), game)
    assert own.sum() + pairs.sum() == pytest.approx(game[-1] - game[0], abs=1e-12)
    np.testing.assert_allclose(own + build_symmetric(pairs, 7).sum(axis=0) / 2, games.shapley(game), atol=1e-10)


def test_half_the_pairs_is_half_of_last_less_first():
    """A feature's k-SII pairs sum to its marginal contribution as the last feature minus that as the first."""
    game = games.table(6, seed=4)
    _, pairs = read(designs.shapley_interactions(6), game)
    last, first = game[-1] - game[63 - (1 << np.arange(6))], game[1 << np.arange(6)] - game[0]
    np.testing.assert_allclose(build_symmetric(pairs, 6).sum(axis=0), last - first, atol=1e-12)


@pytest.mark.parametrize("d", [2, 5, 6, 9])
def test_games_of_order_two_are_recovered(d):
    """By all indices, and along orders from the least budget on; occlusion less Shapley is half of the pairs."""
    game, own, both = order_two(d, seed=d)
    least = designs.sample_interactions_minimum(d)
    made = [designs.shapley_interactions(d, index) for index in INDICES]
    budgets = least, min(2**d, least + 2 * d)
    made += [designs.sample_interactions(d, budget, 1, index) for budget in budgets for index in INDICES]
    for design in made:
        found = read(design, game)
        np.testing.assert_allclose(found[0], own, atol=1e-10)
        np.testing.assert_allclose(found[1], both, atol=1e-10)
    occlusion = games.scores(designs.occlusion(d), game)
    np.testing.assert_allclose(occlusion - games.shapley(game), build_symmetric(both, d).sum(axis=0) / 2, atol=1e-10)


def test_order_two_survives_sixteen_features():
    rng = np.random.default_rng(0)
    design = designs.shapley_interactions(16)
    own, matrix = rng.normal(size=16), np.triu(rng.normal(size=(16, 16)), 1)
    held = design.masks.astype(float)
    values = held @ own + ((held @ matrix) * held).sum(axis=1) - 2.0
    np.testing.assert_allclose(design.attribute(values), own, atol=1e-9)
    np.testing.assert_allclose(build_symmetric(design.attribute_pairs(values), 16), matrix + matrix.T, atol=1e-9)


@pytest.mark.parametrize(("d", "budget"), [(6, 34), (6, 55), (7, 100)])
def test_orders_are_unbiased(d, budget):
    """Means over many samples of an unstructured game are within standard errors of the exact values."""
    game = games.table(d, seed=8)
    exact = np.concatenate(read(designs.shapley_interactions(d), game))
    found = np.array([np.concatenate(read(designs.sample_interactions(d, budget, seed), game)) for seed in range(200)])
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (error > 0).all() and np.sqrt((((found.mean(axis=0) - exact) / error) ** 2).mean()) < 1.6


@pytest.mark.parametrize(("d", "multiple"), [(3, 2), (4, 4), (8, 8), (9, 20), (16, 15.2), (16, 40), (30, 32)])
def test_evaluations_are_counted_and_no_pair_is_missed(d, multiple):
    budget = int(multiple * d)
    if budget < designs.sample_interactions_minimum(d):
        budget = designs.sample_interactions_minimum(d)
    design = designs.sample_interactions(d, budget, seed=2)
    assert len(np.unique(design.masks, axis=0)) == design.evaluations <= budget
    assert design.evaluations > min(budget, 2**d) - 2 * d
    assert design.readout.shape == (d, design.evaluations) and design.pairs.shape[0] == d * (d - 1) // 2
    assert (abs(design.pairs).sum(axis=1) > 0).all()
    game = np.random.default_rng(0).normal(size=design.evaluations)
    whole = game[design.masks.all(axis=1)] - game[~design.masks.any(axis=1)]
    assert design.attribute(game).sum() + design.attribute_pairs(game).sum() == pytest.approx(whole[0], abs=1e-9)


def test_exact_counts():
    assert [designs.sample_interactions_minimum(d) for d in (1, 2, 4, 5, 16)] == [2, 4, 14, 32, 242]
    assert designs.shapley_interactions(5).evaluations == 32
    assert designs.sample_interactions(6, 64).evaluations == 64


def test_refusals_are_one_line():
    for make, message in (
        (lambda: designs.shapley_interactions(17), "d = 17 has 136 pairs and at most d = 16"),
        (lambda: designs.shapley_interactions(4, "sii"), "index is 'sii'. Did you mean 'stii'"),
        (lambda: designs.sample_interactions(8, 57), "minimum for d = 8 is 58"),
        (lambda: designs.sample_interactions(257, 10**6), "32,896 pairs"),
        (lambda: designs.gp_interactions(257, 2000), "32,896 pairs"),
        (lambda: designs.gp_interactions(8, 17), "minimum for d = 8 is 18"),
        (lambda: designs.gp_interactions(8, 32, 0, "stii"), "index is 'stii'. Did you mean 'fsii'"),
        (lambda: designs.gp_interactions(18, 2**15), "a matrix of 16384 rows"),
    ):
        with pytest.raises(ShapelineError, match=message) as failure:
            make()
        assert "\n" not in str(failure.value)


# --------------------------------------------------------------------------------------- by a Gaussian process


def counts(part, index):
    """What a coefficient of |part| features counts in its pairs."""
    return 4 / (len(part) - 1) if index == "k_sii" else 12 / ((len(part) - 1) * (len(part) + 1))


@pytest.mark.parametrize("index", ["k_sii", "fsii"])
def test_the_posterior_is_that_of_the_explicit_prior(index):
    """Coefficients of the products of +-1 over every even coalition, and their interactions, summed one by one."""
    d, random = 6, np.random.default_rng(3)
    relevance, rest = random.uniform(0.1, 0.8, d), 0.05
    masks = draw_pairs(d, 26, 1)[None]
    rows, game = find_pairs(masks).rows, games.table(d, seed=2)
    values = games.look_up(game, masks[0])
    pairs = find_pairs(masks)
    even = (values[pairs.first] + values[pairs.second]) / 2
    parts = [part for size in (2, 4, 6) for part in combinations(range(d), size)]
    variance = np.array([relevance[list(part)].prod() for part in parts])
    products = np.array([rows[0][:, list(part)].prod(axis=1) for part in parts])
    scale = variance.sum()
    prior = products.T @ (products * variance[:, None]) / scale + rest * np.eye(len(rows[0]))
    flat = prior + 1e6  # a constant of which nothing is known
    weights = np.linalg.solve(flat, even[0])
    several = list(combinations(range(d), 2))
    own_rest = 2 * np.array([[_in_pairs(row > 0, i, j, index) for i, j in several] for row in rows[0]])
    expected = rest * weights @ own_rest
    for part, size, product in zip(parts, variance, products, strict=True):
        for place, pair in enumerate(several):
            expected[place] += set(pair) <= set(part) and counts(part, index) * size / scale * product @ weights
    found = _compute_posterior(rows, even, relevance[None], np.array([rest]), index)[0][enumerate_pairs(d)]
    np.testing.assert_allclose(found, expected, atol=1e-5)

    holds = np.array([[set(pair) <= set(part) and counts(part, index) for pair in several] for part in parts])
    every = [row for row in designs.shapley(d).masks if row[0]]  # one of each complementary pair
    of_rest = 2 * np.array([[_in_pairs(row, i, j, index) for i, j in several] for row in every])
    cross = (products * variance[:, None] / scale).T @ holds + rest * own_rest
    alone = variance / scale @ holds**2 + rest * (of_rest**2).sum(axis=0)
    spread = (alone - (cross * np.linalg.solve(flat, cross)).sum(axis=0)) * (even[0] @ weights) / (len(weights) - 1)
    found = _compute_variance(rows, even, relevance[None], np.array([rest]), index)[0]
    np.testing.assert_allclose(found, spread, rtol=1e-4)


def _in_pairs(held, i, j, index):
    """What v(S) weighs in the interaction of i and j by its definition."""
    weight, others = sii if index == "k_sii" else fsii, held.sum() - held[i] - held[j]
    return (1 if held[i] == held[j] else -1) * weight(len(held), others)


def gp(game, budget, seed=1, index="k_sii"):
    d = len(game).bit_length() - 1
    masks = designs.gp_interactions(d, budget, seed, index).masks
    assert len(masks) <= budget
    own, _, pairs, _ = read_stack(masks[None], games.look_up(game, masks)[None], index)
    return own[0], pairs[0]


def test_the_process_is_exact_where_it_can_be():
    game = games.table(6, seed=4)
    for index in ("k_sii", "fsii"):
        exact = read(designs.shapley_interactions(6, index), game)
        for found, expected in zip(gp(game, 64, index=index), exact, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-9)
    weights = np.random.default_rng(0).normal(size=9)
    own, pairs = gp(games.linear(weights), 36)
    np.testing.assert_allclose(own, weights, atol=1e-8)
    np.testing.assert_allclose(pairs, 0, atol=1e-8)


@pytest.mark.parametrize("limit", ["MAX_D_WITH_ERRORS", "MAX_SOLVED_PAIRS"])
def test_too_few_coalitions_or_too_large_a_cost_give_no_interval(monkeypatch, limit):
    game = games.table(8, seed=6)

    def told(budget):
        masks = designs.gp_interactions(8, budget, 1).masks[None]
        return read_stack(masks, games.look_up(game, masks[0])[None])[3]

    assert told(20) is None and (told(40) > 0).all() and (told(256) == 0).all()
    monkeypatch.setattr(gaussian_interactions, limit, 7)
    assert told(40) is None


@pytest.mark.parametrize("index", ["k_sii", "fsii"])
def test_main_effects_and_pairs_of_the_process_add_up(index):
    game = games.table(8, seed=6)
    own, pairs = gp(game, 40, index=index)
    assert own.sum() + pairs.sum() == pytest.approx(game[-1] - game[0], abs=1e-9)


def test_the_process_is_more_accurate_than_orders():
    """Of a real game: half of their error, by as many evaluations (measured: a third)."""
    game, bits = reviews(), 1 << np.arange(10)
    values, exact = game.values[:6], designs.shapley_interactions(10).attribute_pairs(game.values[:6])
    masks = np.stack([designs.gp_interactions(10, 160, seed).masks for seed in range(6)])
    found, spread = read_stack(masks, np.take_along_axis(values, masks @ bits, axis=1))[2:]
    along = []
    for seed, own in enumerate(values):
        design = designs.sample_interactions(10, 160, seed)
        along.append(design.attribute_pairs(own[design.masks @ bits]))
    errors = [np.sqrt(((one - exact) ** 2).mean()) for one in (found, along)]
    assert errors[0] < 0.5 * errors[1]
    assert 0.9 <= (np.abs(found - exact) <= 1.96 * spread).mean() <= 0.985
    assert 0.8 <= np.sqrt((spread**2).mean()) / errors[0] <= 1.25


@pytest.mark.parametrize("index", ["k_sii", "fsii"])
def test_intervals_of_the_process_cover_by_either_index(index):
    """Of pairs; of own parts by k-SII, and none of them by FSII. 40 reviews of ten words, 16 d."""
    game, bits = reviews(), 1 << np.arange(10)
    values, exact = game.values[:40], designs.shapley_interactions(10, index)
    in_order = values[:, exact.masks @ bits]
    masks = np.stack([designs.gp_interactions(10, 160, seed, index).masks for seed in range(40)])
    own, of_own, pairs, of_pairs = read_stack(masks, np.take_along_axis(values, masks @ bits, axis=1), index)
    told = [(pairs - exact.attribute_pairs(in_order), of_pairs)]
    if index == "k_sii":
        told.append((own - exact.attribute(in_order), of_own))
    else:
        assert of_own is None
    for wrong, spread in told:
        assert 0.88 <= (np.abs(wrong) <= 1.96 * spread).mean() <= 0.985
        assert 0.8 <= np.sqrt((spread**2).mean() / (wrong**2).mean()) <= 1.3


@pytest.mark.parametrize("index", ["stii", "fsii"])
def test_orders_come_to_every_index(index):
    """Twelve times the orders have less than half of the error; by another index's truth the error stays."""
    game = np.array([1.5 ** len(games.members(row)) for row in range(2**9)]) + 0.1 * games.table(9, seed=1)
    exact = {one: read(designs.shapley_interactions(9, one), game)[1] for one in INDICES}

    def off(count, truth):
        found = []
        for seed in range(4):
            random = np.random.default_rng(seed)
            orders = np.concatenate([random.permutation(9)[_build_block(9)] for _ in range(count)])
            design = _follow_orders(orders, index)
            found.append(design.attribute_pairs(games.look_up(game, design.masks)) - exact[truth])
        return np.sqrt(np.square(found).mean())

    assert off(36, index) < 0.5 * off(3, index)
    assert off(36, index) < 0.7 * off(36, "k_sii")


def test_intervals_of_pairs_along_orders_cover_and_need_two_terms():
    game, bits = reviews(), 1 << np.arange(10)
    values, exact = game.values[:40], designs.shapley_interactions(10).attribute_pairs(game.values[:40])
    inside, ratio = [], []
    for seed, (own, truth) in enumerate(zip(values, exact, strict=True)):
        design = designs.sample_interactions(10, 320, seed)
        _, none, spread = read_sample_interactions(design, own[None, design.masks @ bits])
        assert none is None
        wrong = design.attribute_pairs(own[design.masks @ bits]) - truth
        inside.append(np.abs(wrong) <= 1.96 * spread[0])
        ratio.append([np.square(spread).mean(), np.square(wrong).mean()])
    assert 0.9 <= np.mean(inside) <= 0.985
    assert 0.8 <= np.sqrt(np.divide(*np.mean(ratio, axis=0))) <= 1.4
    least = _follow_orders(_build_block(10))  # every pair is neighbours once
    assert read_sample_interactions(least, values[:, least.masks @ bits])[2] is None
    every = designs.sample_interactions(10, 1024)
    assert (read_sample_interactions(every, values[:2, every.masks @ bits])[2] == 0).all()


# ------------------------------------------------------------------------------------------------- to the score file

OWN, BOTH = np.array([1.0, -2.0, 0.5, 0.0, 3.0]), np.triu(np.random.default_rng(0).normal(size=(5, 5)), 1)
ROWS = np.random.default_rng(1).normal(size=(3, 5))


def of_order_two(rows):
    """Where absent columns are 0: each column's part is OWN x, and each pair's BOTH x x'."""
    return rows @ OWN + np.einsum("ni,ij,nj->n", rows, BOTH, rows)


def explained(method, **parameters):
    names = list("abcde")
    return shapeline.explain(
        of_order_two, ROWS, method, reference=np.zeros(5), value="prediction", feature_names=names, **parameters
    )


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("shapley_interactions", {"index": "stii"}),
        ("sample_interactions", {"budget": 6.4}),
        ("gp_interactions", {"budget": 6.4}),
    ],
)
def test_an_explanation_has_its_own_pairs(method, parameters, tmp_path):
    """Each instance of a sampled method has an independent sample with renamed features."""
    found = explained(method, **parameters)
    expected = np.einsum("ni,ij,nj->nij", ROWS, BOTH, ROWS)[:, *enumerate_pairs(5)]
    np.testing.assert_allclose(found.scores, ROWS * OWN, atol=1e-6)
    np.testing.assert_allclose(found.interaction_values, expected, atol=1e-6)
    whole = found.value_full - found.value_empty
    np.testing.assert_allclose(found.scores.sum(axis=1) + found.interaction_values.sum(axis=1), whole, atol=1e-9)
    if method == "gp_interactions":
        assert (np.abs(found.interaction_values - expected) <= 1.96 * found.interactions_standard_error + 1e-7).all()
        assert (found.interactions()["half"] >= 0).all()
    found.save(tmp_path / "found.parquet")
    again = shapeline.Explanation.load(tmp_path / "found.parquet")
    np.testing.assert_allclose(again.interaction_values, expected, atol=1e-6)
    stored = scores.read(tmp_path / "found.parquet")
    assert [len(pairs) for pairs in stored["interactions"]] == [10, 10, 10]
    if found.interactions_standard_error is not None:
        np.testing.assert_allclose(again.interactions_standard_error, found.interactions_standard_error, rtol=1e-6)


def test_an_explanation_prints_its_pairs():
    found = explained("shapley_interactions")
    table = found.interactions()
    assert list(table) == ["instance", "target", "first", "second", "score", "half"] and len(table) == 30
    assert table["half"].isna().all()  # it is exact
    assert table["score"].abs()[:10].is_monotonic_decreasing
    top = table.iloc[0]
    i, j = "abcde".index(top["first"]), "abcde".index(top["second"])
    assert i < j and top["score"] == pytest.approx(ROWS[0, i] * ROWS[0, j] * BOTH[i, j])
    few = found[1:, ["d", "b"]].interactions()
    assert few[["first", "second"]].to_numpy().tolist() == [["d", "b"]] * 2
    np.testing.assert_allclose(few["score"], (ROWS[:, 1] * ROWS[:, 3] * BOTH[1, 3])[1:], atol=1e-9)
    with pytest.raises(ShapelineError, match="occlusion computes no interactions; use one of shapley_interactions"):
        explained("occlusion").interactions()


def test_main_effects_alone_are_no_waterfall(monkeypatch, tmp_path):
    found = explained("shapley_interactions")
    assert "main effects; .interactions() has those of pairs" in repr(found)
    with pytest.raises(ShapelineError, match=r"waterfall.* with the interactions of pairs alone; use 'pairs' or 'bar'"):
        found[0].plot("waterfall")
    as_given = types.ModuleType("shap")
    as_given.Explanation = lambda values, *given, **more: values
    monkeypatch.setitem(sys.modules, "shap", as_given)
    values = found.to_shap()
    np.testing.assert_array_equal(values, values.transpose(0, 2, 1))
    np.testing.assert_allclose(values.sum(axis=(1, 2)), found.value_full - found.value_empty, atol=1e-9)
    np.testing.assert_array_equal(np.diagonal(values, axis1=1, axis2=2), found.scores)
    found.save(tmp_path / "found.parquet")
    with pytest.raises(ShapelineError, match="to_shap: scores are main effects; use Explanation"):
        scores.to_shap(tmp_path / "found.parquet")
    found[:0].save(tmp_path / "none.parquet")
    scores.to_csv(tmp_path / "none.parquet", tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text().startswith("instance,target")


def test_texts_of_other_lengths_have_pairs_of_their_own():
    def of_texts(texts):
        return np.array([0.1 * len(text.split()) + (0.3 if "not good" in text else 0.0) for text in texts])

    found = shapeline.explain(
        of_texts, ["not good", "not good at all", "fine"], "shapley_interactions", value="prediction"
    )
    assert found.interaction_values.shape == (3, 6)
    assert np.isnan(found.interaction_values[0, 1:]).all() and np.isnan(found.interaction_values[2]).all()
    assert found.interaction_values[0, 0] == pytest.approx(0.3, abs=1e-6)
    assert len(found.interactions()) == 1 + 6


def test_more_features_than_are_enumerated_are_reported():
    with pytest.raises(ShapelineError, match="d = 17 has 136 pairs"):
        shapeline.explain(lambda texts: np.full(len(texts), 0.5), "word " * 17, "shapley_interactions")


def test_shapiq_gives_the_same_interactions():
    """Its k-SII of order 2, where that package is installed."""
    shapiq = pytest.importorskip("shapiq")
    game = games.table(6, seed=5)
    numbered = 1 << np.arange(6)
    for index, name in (("k_sii", "k-SII"), ("stii", "STII"), ("fsii", "FSII")):
        exact = shapiq.ExactComputer(n_players=6, game=lambda masks: game[np.asarray(masks, bool) @ numbered])
        theirs = exact(name, order=2)
        own, pairs = read(designs.shapley_interactions(6, index), game)
        np.testing.assert_allclose(own, [theirs[(i,)] for i in range(6)], atol=1e-9)
        np.testing.assert_allclose(pairs, [theirs[pair] for pair in combinations(range(6), 2)], atol=1e-9)


# -------------------------------------------------------------------------------------------------------- on the page


def with_pairs(given, entry, unsure=False):
    """Add pairs of a game of order 2 to a method's score files, and write that game's occlusion."""
    occlusion = {}
    for path in given["scores"][entry]:
        frame, told = scores.read(path), scores.metadata(path)
        d = len(frame["scores"][0])
        pairs = np.random.default_rng(5).normal(size=(len(frame), d * (d - 1) // 2)) / d
        frame["interactions"] = list(pairs.astype(np.float32))
        if unsure:  # all but the first pair
            spread = np.full(pairs.shape, 10 / d, np.float32)
            spread[:, 0] = 0
            frame["interactions_standard_error"] = list(spread)
        whole = scores.matrix(frame) + build_symmetric(pairs, d).sum(axis=1)
        occlusion |= dict(zip(frame["instance"], whole.astype(np.float32), strict=True))
        scores.write(path, frame, told)
    for path in given["scores"]["occlusion"]:
        frame = scores.read(path)
        frame["scores"] = [occlusion[one] for one in frame["instance"]]
        scores.write(path, frame, scores.metadata(path))
    return given


@pytest.mark.parametrize("kind", ["image", "table"])
def test_the_section_plots_pairs_and_decomposes_occlusion(tmp_path, monkeypatch, kind):
    """Of games of order 2 nothing is left: occlusion less Shapley is half of the pairs."""
    monkeypatch.chdir(tmp_path)
    given = result_folder.build(Path(kind), kind, ("exact", "occlusion"))
    assert interactions.section(experiment.load(**given)).data == ""
    page = interactions.section(experiment.load(**with_pairs(given, "exact"))).data
    assert page.count("<img") + page.count("<svg") == (1 if kind == "image" else 3)
    text = re.sub("<[^>]+>", " ", re.sub(r'src="[^"]*"', "", page))
    assert "strongest pair with" in text
    name = "row 1, column 2" if kind == "image" else "concave points"
    assert name in text
    sizes = re.search(r"explained by pairs\s+exact\s+([\d.]+)\s+([\d.]+)\s+0\s+100 %", text)
    assert sizes and sizes[1] == sizes[2], text
    regression = experiment.load(**given)
    regression.dataset_card["task"] = "regression"
    assert "supports a larger prediction, orange" in interactions.section(regression).data


def test_pairs_whose_interval_covers_0_are_drawn_as_0(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = []
    monkeypatch.setattr(interactions.figures, "matrix", lambda names, own, pairs, unit: drawn.append(pairs) or Figure())
    given = with_pairs(result_folder.build(Path("table"), "table", ("exact", "occlusion")), "exact", unsure=True)
    text = re.sub("<[^>]+>", " ", interactions.section(experiment.load(**given)).data)
    assert drawn and all((pairs != 0).tolist() == [True] + [False] * (len(pairs) - 1) for pairs in drawn)
    assert "Pairs whose 95 % interval includes 0 are drawn as 0" in text and "pairs different from 0" in text


def test_the_section_needs_occlusion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = with_pairs(result_folder.build(Path("table"), "table", ("exact", "occlusion")), "exact")
    given["scores"].pop("occlusion")
    told = json.loads(given["settings_json"])
    told["entries"].pop("occlusion")
    told["order"] = ["exact"]
    page = interactions.section(experiment.load(**{**given, "settings_json": json.dumps(told)})).data
    assert "Not available: no occlusion on these features" in page


def test_the_remainder_is_of_orders_three_and_more():
    game, own, both = order_two(6, seed=2)
    game = game + games.unanimity(6, {frozenset({0, 1, 2}): 0.6})
    own, both = read(designs.shapley_interactions(6), game)
    split = interactions.split_occlusion(games.scores(designs.occlusion(6), game), own, both)
    np.testing.assert_allclose(split["shapley"], games.shapley(game), atol=1e-10)
    # Of a triple a member's occlusion is 1, its Shapley value 1/3, each of its two pairs 1/2.
    np.testing.assert_allclose(split["residual"], [0.1] * 3 + [0.0] * 3, atol=1e-10)


def test_pairs_are_plotted_by_the_kind_of_data():
    found = explained("shapley_interactions")
    assert len(found[0].plot("pairs").axes[0].texts) == 15
    with pytest.raises(ShapelineError, match="'pairs' shows one instance"):
        found.plot("pairs")
    words = [f"word{place}" for place in range(40)]
    pairs = np.zeros(780)
    pairs[[0, 700]] = 1.0, -0.5
    drawn = figures.arcs(words, np.linspace(-1, 1, 40), pairs, "a text", "nats").axes[0]
    assert len(drawn.patches) == 2 and "36 words without a large pair" in drawn.get_title("left")
    heights = [patch.get_path().vertices[1, 1] for patch in drawn.patches]
    assert heights[0] < 0 < heights[1]  # the larger one speaks for and is drawn last
    images, cells = np.zeros((1, 1, 4, 4)), np.repeat(np.repeat(np.arange(4).reshape(2, 2), 2, 0), 2, 1)
    lines = figures.network(images, ["one"], [cells], [np.ones(4)], [np.arange(6.0)]).axes[0].lines
    assert len(lines) == 5 and lines[-1].get_xydata().tolist() == [[0.5, 2.5], [2.5, 2.5]]
