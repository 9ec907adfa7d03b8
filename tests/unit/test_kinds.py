"""Games of many kinds: the rows of a table, and rivals that run in another environment."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import further_kinds, kinds, published, rivals
from shapeline.games import StoredGame
from tests.unit.value_tables import masks_of

SHAPIQ = """
import numpy as np

class RegressionMSR:
    def __init__(self, n, random_state, index, proxy_model):
        self.n, self.seed = n, random_state

    def approximate(self, budget, game):
        alone = game(np.eye(self.n, dtype=bool))
        return {(place,): value + budget + 100 * self.seed for place, value in enumerate(alone)}

class LeverageSHAP:
    def __init__(self, n, random_state):
        raise ValueError("too few")
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An interpreter with a shapiq whose scores are the values of single players, plus budget and seed."""
    (tmp_path / "shapiq").mkdir()
    (tmp_path / "shapiq" / "__init__.py").write_text("__version__ = '9.9'")
    (tmp_path / "shapiq" / "approximator.py").write_text(SHAPIQ)
    (tmp_path / "xgboost.py").write_text("def XGBRegressor(**settings): pass")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(rivals, "create_environment", lambda folder: Path(sys.executable))
    monkeypatch.setattr(rivals, "NAMES", ("LeverageSHAP", "RegressionMSR"))
    return tmp_path


def test_rivals_score_tables_in_the_other_interpreter(environment, monkeypatch, capfd):
    tables = np.random.default_rng(0).normal(size=(2, 2**4))
    code = Path(rivals.__file__).read_text().replace('"OddSHAP", "ProxySHAP", ', "")
    script = environment / "rivals.py"
    script.write_text(code)
    monkeypatch.setattr(rivals, "__file__", str(script))
    found = rivals.score_games(environment, tables, [8, 12], samples=3)
    alone = tables[:, [1, 2, 4, 8]] - tables[:, :1]
    assert list(found) == [8, 12] and list(found[8]) == ["RegressionMSR"]
    for budget in (8, 12):
        seeds = np.arange(6).reshape(3, 2, 1)
        np.testing.assert_allclose(found[budget]["RegressionMSR"], alone + budget + 100 * seeds)
    assert "LeverageSHAP at 8 evaluations: too few" in capfd.readouterr().err
    assert rivals.describe(environment).startswith("shapiq 9.9, Python 3.")


def test_rivals_are_skipped_with_a_reason_where_no_python_is_new_enough(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rivals, "MIN_PYTHON", (4, 0))
    monkeypatch.setattr(rivals, "NEWEST", (4, 0))
    monkeypatch.setattr(rivals.shutil, "which", lambda name: None)
    assert rivals.prepare(tmp_path / "none") is None and rivals.prepare(None) is None
    assert "rivals: skipped, because shapiq needs Python 3.12 or newer" in capsys.readouterr().err


def test_a_row_per_budget_of_a_game(monkeypatch):
    d = 7
    table = np.tanh(masks_of(d) @ np.linspace(-1, 1, d))
    exact = kinds.designs.shapley(d).attribute(table[None])[0]
    off = {28: {"RegressionMSR": np.tile(exact + 0.5, (2, 1, 1))}}
    monkeypatch.setattr(rivals, "score_games", lambda *given: off)
    [row] = kinds.measure(table, [4, 32], 2, Path("environment"))
    assert row["budget"] == 4 and row["RegressionMSR"] == pytest.approx(0.5)
    masks = np.array([kinds.draw_pairs(d, 28, sample) for sample in range(2)])
    found = kinds.read_out(masks, table[masks @ (1 << np.arange(d))])
    assert row["gp_shapley"] == pytest.approx(np.sqrt(np.mean((found.scores - exact) ** 2)))
    assert row["coverage"] == pytest.approx(np.mean(np.abs(found.scores - exact) < 1.96 * found.standard_error))
    assert not list(kinds.measure(np.zeros(2**d), [4], 2, None))


def test_the_table_has_geometric_means_of_ratios_and_pooled_intervals():
    rows = [
        {"reach": 1.0, "gp_shapley": 0.1, "predicted": 0.2, "coverage": 0.9, "kernel_shap": 0.4, "RegressionMSR": 0.2},
        {"reach": 10.0, "gp_shapley": 2.0, "predicted": 1.0, "coverage": 1.0, "kernel_shap": 2.0, "RegressionMSR": 4.0},
    ]
    frame = pd.DataFrame([{"kind": "games", "budget": 4, "leverage_shap": 8.0, **row} for row in rows])
    [found] = kinds.summarise(frame).to_dict("records")
    assert found["kernel_shap"] == pytest.approx(0.5) and found["over best"] == pytest.approx(0.5)
    assert found["RegressionMSR"] == pytest.approx(0.5) and found["coverage"] == pytest.approx(0.95)
    assert found["predicted / actual"] == pytest.approx(np.sqrt((0.2**2 + 0.1**2) / (0.1**2 + 0.2**2)))


def test_games_of_a_kind_are_complete_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "KINDS", {"unanimity": kinds.make_unanimity})
    kinds.write_games(tmp_path, seeds=1)
    paths = sorted(tmp_path.rglob("*.npz"))
    assert [path.parent.name for path in paths] == ["unanimity"] * 2
    table, game = published.read_table(paths[0]), StoredGame.read(paths[0])
    assert len(table) == 2**12 and table[0b101] == game(np.isin(np.arange(12), [0, 2])[None])[0]


def test_games_of_further_kinds_are_their_formulas():
    made = further_kinds.make_formulas(0)
    d = made["bump"].n_players
    weights = np.random.default_rng([99, 0])
    assert d == weights.integers(10, 13)
    second = weights.normal(size=(6, d))[1]
    one = np.arange(d) < 3
    total = second[:3].sum()
    assert made["bump"](one[None])[0] == pytest.approx(3 * np.exp(-(total**2) / 2) + total)
    assert made["kernel_ridge"](np.zeros((1, d), bool))[0] == 0
    assert all(np.ptp(game(np.eye(d, dtype=bool) | one)) > 0 for game in made.values())
    [value] = further_kinds.make_models(0)["knn_diabetes"](np.ones((1, 10), bool))
    assert 25 < value < 346  # a mean of targets
