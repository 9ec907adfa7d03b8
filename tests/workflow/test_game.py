"""A game runs to its page on two workers; a killed share loses one evaluation; edits re-run the affected jobs."""

from collections import Counter

import numpy as np

from shapeline import scores
from tests.fixtures.games_of_files import GAME, by_definition

PLAN = {
    "run": ["groups"],
    "experiments": {
        "groups": {
            "game": "own/table.py:build",
            "budget": 5,
            "shards": 2,
            "methods": {
                "exact": {"method": "shapley"},
                "gp": {"method": "gp_shapley", "intermediate_budgets": [3]},
                "until": {"method": "gp_shapley", "budget": {"error": "20%", "max_budget": 9}},
                "pairs": {"method": "shapley_interactions"},
                "random": {"method": "random"},
            },
            "metrics": {"error": {"reference": "exact"}, "cost": {}},
        }
    },
}


def test_a_game_is_evaluated_in_shares_and_resumed(fresh):
    (fresh.path / "own").mkdir()
    (fresh.path / "own/table.py").write_text(GAME)
    (fresh.path / "own/kill").write_text("20")
    fresh.configure(PLAN)
    values = [f"results/groups/values/exact/0.{index}-of-2.parquet" for index in range(2)]
    told = fresh.snakemake("--cores", "1", *values, check=False)
    assert told.returncode and "SIGKILL" in told.stdout + told.stderr
    asked = fresh.path / "own/asked.txt"
    assert len(asked.read_text().splitlines()) >= 20
    fresh.snakemake("--cores", "2", *values)
    counts = Counter(asked.read_text().splitlines())
    assert len(counts) == 64 and counts.total() == 65  # the one that was cut short, once more

    fresh.snakemake("--cores", "2")
    assert fresh.pending() == set()
    counts = Counter(asked.read_text().splitlines())
    assert counts.total() == 65  # all methods share the values of the enumeration
    rows = scores.read(fresh.path / "results/groups/scores/exact")
    table = np.random.default_rng(0).normal(size=(64, 1))[:, 0]
    np.testing.assert_allclose(rows["scores"][0], by_definition(table, 6), atol=1e-6)
    page = (fresh.path / "results/reports/groups.html").read_text()
    for part in ("Exact Shapley values by exact", "player a", "Convergence", "Interactions", "By pairs"):
        assert part in page, part
    assert "Exact Shapley values" in (fresh.path / "results/reports/index.html").read_text()

    edited = {**PLAN, "experiments": {"groups": {**PLAN["experiments"]["groups"]}}}
    edited["experiments"]["groups"]["methods"] = {
        **PLAN["experiments"]["groups"]["methods"],
        "gp": {"method": "gp_shapley", "intermediate_budgets": [4]},
    }
    fresh.configure(edited)
    again = {file.split("/")[2:4][-1] for rule, file in fresh.pending() if rule in ("evaluate_game", "attribute")}
    assert again == {"gp"}
