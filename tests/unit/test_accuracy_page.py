"""Games with known Shapley values, errors of estimators on them, and the page of both."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks import accuracy_games
from benchmarks.accuracy_games import build_game
from shapeline import scores
from shapeline.papers import accuracy_sections as page
from shapeline.report.elements import styles
from shapeline.statistics import accuracy
from shapeline.statistics.accuracy import Terms, build_from_terms
from tests.fixtures import notebooks

from . import games


def every(d: int) -> np.ndarray:
    return (np.arange(2**d)[:, None] >> np.arange(d) & 1).astype(bool)


def random_terms(d: int, count: int, seed: int) -> Terms:
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 4, size=(count, d))
    return Terms(rng.normal(size=count), side == 1, side == 2)


def test_terms_count_if_required_features_are_kept_and_excluded_ones_masked():
    terms = Terms.of(3, [2.0, 5.0, 1.0], [[0], [1], []], [[2], [], []])
    masks = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 1], [0, 0, 0]], bool)
    np.testing.assert_array_equal(terms.value(masks), [3, 1, 6, 1])


def test_the_shapley_value_of_terms_is_that_of_their_table():
    for seed in range(3):
        terms = random_terms(7, 20, seed)
        table = terms.value(every(7))
        np.testing.assert_allclose(terms.shapley(), games.shapley(table), atol=1e-12 * np.abs(table).max())


def test_trees_as_terms_equal_interventional_treeshap():
    shap = pytest.importorskip("shap")  # of the peers
    from sklearn.ensemble import GradientBoostingRegressor

    rows = np.random.default_rng(0).normal(size=(300, 6))
    model = GradientBoostingRegressor(n_estimators=20, max_depth=4, random_state=0)
    model.fit(rows, rows[:, 0] * rows[:, 1] + np.maximum(rows[:, 2], 0) * rows[:, 3])
    reference = rows.mean(axis=0)
    made = accuracy_games.from_trees("trees", model, model.predict, rows[:4], reference)
    explainer = shap.TreeExplainer(model, reference[None], feature_perturbation="interventional")
    np.testing.assert_allclose(made.exact, explainer.shap_values(rows[:4], check_additivity=False), atol=1e-6)


def test_a_file_of_games_is_read_as_it_was_written(tmp_path):
    tables = np.random.default_rng(0).normal(size=(2, 16)).astype(np.float32)
    written = [
        build_game("tables", tables, "columns"),
        build_from_terms("terms", [random_terms(5, 6, seed) for seed in range(3)], "deep"),
    ]
    accuracy_games.write(written, tmp_path / "games.parquet")
    for before, after in zip(written, accuracy.read(tmp_path / "games.parquet"), strict=True):
        assert (after.name, after.kind, after.d) == (before.name, before.kind, before.d)
        masks = np.random.default_rng(1).random((len(before.exact), 9, before.d)) < 0.5
        np.testing.assert_allclose(after.value(masks), before.value(masks), atol=1e-12)
        np.testing.assert_allclose(after.exact, before.exact, atol=1e-6)


def test_the_stored_games_have_the_documented_columns_and_exact_values_that_add_up(root):
    frame = pd.read_parquet(accuracy.STORED)
    text = (root / "docs/formats.md").read_text().partition("## Games")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", " ".join(cells)) == list(frame.columns)
    read = accuracy.read()
    assert {game.kind for game in read} == {"pictures", "columns", "words", "trees", "deep", "wide"}
    for game in read:
        masks = np.zeros((len(game.exact), 2, game.d), bool)
        masks[:, 1] = True
        values = game.value(masks)
        gap = np.abs(game.exact.sum(axis=1) - (values[:, 1] - values[:, 0])).max()
        assert gap <= 1e-12 * game.d * np.abs(values).max() * 100, game.name
    assert accuracy.STORED.stat().st_size < 1_500_000


def measured_by_hand(**ratios: dict[str, float]) -> pd.DataFrame:
    rows = [
        {"game": game, "kind": "", "d": 10, "times": 4, "estimator": name, "rmse": ratio, "ratio": ratio, "seconds": s}
        for name, by_game in ratios.items()
        for (game, ratio), s in zip(by_game.items(), (0.003, 0.006), strict=True)
    ]
    return pd.DataFrame(rows)


def test_the_mean_over_games_is_geometric():
    frame = measured_by_hand(kernel_shap={"a": 1.0, "b": 1.0}, ours={"a": 0.25, "b": 1.0})
    means = accuracy.average_over_games(frame).set_index("estimator")
    assert means.loc["ours", "ratio"] == pytest.approx(0.5) and means.loc["ours", "games"] == 2
    assert means.loc["ours", "low"] < 0.5 < means.loc["ours", "high"]
    assert tuple(means.loc["kernel_shap", ["ratio", "low", "high"]]) == (1, 1, 1)


def test_an_estimator_breaks_even_where_saved_evaluations_take_longer_than_its_readout():
    frame = measured_by_hand(kernel_shap={"a": 1.0, "b": 1.0}, ours={"a": 0.5, "b": 1.5})
    frame.loc[frame["estimator"] == "ours", "seconds"] = 0.015
    pays = accuracy.find_break_even(frame, "ours")
    # At half the error kernel_shap needs 4 times 40 evaluations: 120 more, for 12 ms.
    assert pays["a", 4] == pytest.approx(0.012 / 120) and np.isnan(pays["b", 4])


def test_errors_are_reported_relative_to_kernel_shap():
    tables = np.array([np.tanh(games.linear(np.random.default_rng(seed).normal(size=8))) for seed in range(3)])
    frame = accuracy.measure([build_game("tanh", tables, "columns")], 2, 0)
    assert set(frame["times"]) == {2, 4, 8, 16}  # 24 d would be three quarters of all 256
    base = frame[frame["estimator"] == accuracy.BASE].set_index("times")
    assert (base["ratio"] == 1).all() and (frame["seconds"] > 0).all()
    ours = frame[frame["estimator"] == "gp_shapley"].set_index("times")
    np.testing.assert_allclose(ours["ratio"], ours["rmse"] / base["rmse"])
    assert ours.loc[8, "ratio"] < 0.7
    assert not ((frame["estimator"] == "stratified_svarm") & (frame["times"] == 2)).any()  # too few for it


def test_ratios_far_below_one_have_labels_on_the_axis():
    means = pd.DataFrame({"estimator": "gp_shapley", "times": [2, 16], "ratio": [1, 0.02], "low": [0.9, 0.011]})
    [axes] = page.ratios(means.assign(high=1.1), styles({"gp_shapley": {}})).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]


def test_errors_of_rounding_count_as_a_millionth():
    table = games.linear(np.arange(1.0, 7.0))
    frame = accuracy.measure([build_game("linear", table[None])], 1, 0)
    own = frame[frame["estimator"].isin(["kernel_shap", "gp_shapley"])]
    assert np.allclose(own["rmse"], 6e-6) and np.allclose(own["ratio"], 1)


def test_every_cell_of_the_page_shows_something(root, tmp_path, monkeypatch):
    small = [build_game(f"game {seed}", np.tanh(games.linear(np.random.default_rng(seed).normal(size=7)))[None])
             for seed in range(3)]  # fmt: skip
    played = [*small, build_from_terms("terms", [random_terms(9, 9, 0)], "deep")]
    monkeypatch.setattr(page, "read", lambda: played)
    written = tmp_path / "errors.parquet"
    measured = pa.Table.from_pandas(accuracy.measure(played, repeats=2, seed=0), preserve_index=False)
    scores.write_table(written, measured, {"repeats": 2})
    _, shown = notebooks.shown(root / "notebooks/accuracy.ipynb", measured=str(written))
    assert shown.count("<svg") == 2 and shown.count("<table") == 3
    assert "At 4 d evaluations: " in shown and "game 2" in shown and "a sum of terms" in shown
    assert not any(absent in shown for absent in (">nan", "None", "inf<", "np.float64"))
