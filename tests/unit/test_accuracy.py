import numpy as np
import pytest

from benchmarks import accuracy, accuracy_games, oracle
from shapeline.designs.design import enumerate_coalitions

from . import games


def test_the_game_of_tables_has_their_values_and_shapley_values():
    tables = np.array([games.table(5, seed) for seed in range(3)])
    played = accuracy_games.build_game("tables", tables)
    np.testing.assert_allclose(played.exact, [games.shapley(table) for table in tables], atol=1e-12)
    masks = np.random.default_rng(0).random((3, 7, 5)) < 0.5
    expected = [games.look_up(table, mask) for table, mask in zip(tables, masks, strict=True)]
    np.testing.assert_array_equal(played.value(masks), expected)


def test_terms_have_their_closed_form():
    played = accuracy_games.sparse_terms(2, d=8)
    masks = np.array([np.arange(256)[:, None] >> np.arange(8) & 1] * 2, bool)
    tables = played.value(masks)
    np.testing.assert_allclose(played.exact, [games.shapley(table) for table in tables], atol=1e-12)


@pytest.mark.parametrize("name", ["digits", "cancer", "forest", "boosted"])
def test_exact_values_of_trained_models_add_up(name):
    if name in ("forest", "boosted"):
        pytest.importorskip("shap")  # of the peers: TreeSHAP is its
    played = accuracy_games.game(name, 2)
    masks = np.zeros((2, 2, played.d), bool)
    masks[:, 1] = True
    values = played.value(masks)
    np.testing.assert_allclose(played.exact.sum(axis=1), values[:, 1] - values[:, 0], atol=1e-6)


def test_a_line_reports_the_estimator_with_the_smaller_error():
    tables = np.array([np.tanh(games.linear(np.random.default_rng(seed).normal(size=8))) for seed in range(4)])
    played = accuracy_games.build_game("tanh", tables)
    text, ratio = accuracy.format_line(played, 8, 2)
    assert text.startswith("tanh") and " 8d " in text and f"{ratio:6.3f}" in text
    assert 0 < ratio < 0.7


def test_an_interval_of_equal_methods_is_one():
    errors = np.random.default_rng(0).normal(size=(3, 10, 4))
    runs = accuracy.Runs(errors, np.ones(errors.shape), 0.0)
    assert accuracy.bootstrap_ratio(runs, runs) == (1.0, 1.0)
    half = accuracy.Runs(errors / 2, np.ones(errors.shape), 0.0)
    assert accuracy.bootstrap_ratio(half, runs) == pytest.approx((0.5, 0.5))
    assert 0.9 < runs.coverage(np.zeros((10, 4))) < 0.99 and runs.predicted() == pytest.approx(1, abs=0.2)


def test_an_oracle_has_the_variances_of_the_game_and_is_exact_at_all_coalitions():
    d, rng = 6, np.random.default_rng(0)
    members = enumerate_coalitions(d, "test")
    odd = members[members.sum(axis=1) % 2 == 1]
    weight = rng.normal(size=d)
    known = np.exp(-odd.sum(axis=1) + odd @ weight)
    np.testing.assert_allclose(oracle.variances(known, odd), known, rtol=0.02)  # but for what keeps the fit regular
    played = accuracy_games.build_game("random", rng.normal(size=(3, 2**d)))
    scores, _, _ = oracle.oracle(played, 2**d, 0)
    np.testing.assert_allclose(scores, played.exact, atol=1e-6)
    values = rng.normal(size=2**d)
    np.testing.assert_allclose(oracle.transform(oracle.transform(values)), 2**d * values)
