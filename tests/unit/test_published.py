"""The published benchmark: games by family, errors by their definition, and ratios over its cells."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import published
from shapeline.games import StoredGame
from tests.unit.value_tables import masks_of


@pytest.fixture
def folder(tmp_path):
    """Three games of nine players under the name of a family, and a published table of two estimators."""
    random = np.random.default_rng(0)
    place = tmp_path / "ImageClassifier_Game" / "9"
    place.mkdir(parents=True)
    for number in range(3):
        masks = masks_of(9)[random.permutation(512)]
        values = np.tanh(masks @ random.normal(size=9)) + 0.1 * random.normal(size=512)
        StoredGame(masks, values).write(place / f"model_name=vit_9_patches_{number}.npz")
    cells = [
        (name, budget, mse)
        for name, mse in (("RegressionMSR", 0.02), ("LeverageSHAP", 0.01))
        for budget in (10, 40, 512)
    ]
    table = pd.DataFrame(cells, columns=["approximator", "used_budget", "MSE_mean"])
    table.assign(game_id="ViT9 ($d=9$)", n_players=9).to_csv(tmp_path / "published_mse.csv", index=False)
    return tmp_path


def test_the_error_of_a_cell_is_the_mean_over_features_and_games(folder):
    games = published.tables(folder, "ViT9 ($d=9$)", 30)
    exact = published.designs.shapley(9).attribute(games)
    own = []
    for place, table in enumerate(games):
        design = published.designs.leverage_shap(9, 40, place)
        own.append((design.attribute(table[design.masks @ (1 << np.arange(9))]) - exact[place]) ** 2)
    found = published.measure_errors(games, 40, samples=1)
    assert found["leverage_shap"] == pytest.approx(np.mean(own))
    assert set(found) == {"leverage_shap", "kernel_shap", "gp_shapley"}
    assert max(published.measure_errors(games, 512, samples=1).values()) < 1e-20


def test_a_row_per_published_budget_and_the_ratios(folder, capsys):
    measured = published.measure(folder, samples=2, most=2, largest=400)
    assert measured["budget"].tolist() == [10, 40]  # 512 are all
    assert np.isnan(measured["leverage_shap"][0])  # which takes 2 d
    row = measured.iloc[1]
    assert (row["RegressionMSR"], row["LeverageSHAP"], row["best"]) == (0.02, 0.01, 0.01)
    ratios = list(published.summarise(measured).values())
    assert ratios == pytest.approx([row["gp_shapley"] / 0.02, row["gp_shapley"] / 0.02, row["leverage_shap"] / 0.01])
    assert capsys.readouterr().out.count("ViT9") == 2
