"""A model trained by another seed: its derived model, its scores and measurements."""

import copy
import json

import numpy as np
import pandas as pd
import pytest

from shapeline import scores
from tests.workflow.conftest import TINY

R = "results/tiny"


def trained() -> dict:
    raw = copy.deepcopy(TINY)
    tiny = raw["experiments"]["tiny"]
    tiny |= {"training_seeds": 2, "instances_per_training_seed": 4, "instances": {"count": 6}}
    tiny["methods"] = {"exact": {"method": "shapley"}, "occlusion": {"method": "occlusion"}}
    tiny["metrics"] = {"error": {"reference": "exact"}}
    return raw


def test_trainings_differ_by_their_seed_and_are_explained_alike(fresh):
    fresh.configure(trained())
    fresh.snakemake(f"{R}/metrics/measured.parquet", "--cores", "2")
    cards = [json.loads((fresh.path / f"results/models/{name}/card.json").read_text()) for name in ("cnn", "cnn@seed1")]
    assert [card["name"] for card in cards] == ["cnn", "cnn@seed1"]
    assert [card["settings"]["seed"] for card in cards] == [0, 1] and cards[0]["history"] != cards[1]["history"]
    exact, occlusion = (
        scores.select_training(scores.read(fresh.path / R / "scores" / entry), 1).set_index("instance")
        for entry in ("exact", "occlusion")
    )
    chosen = pd.read_parquet(fresh.path / R / "instances.parquet").set_index("instance")
    assert len(exact) == len(occlusion) == 4 and len(chosen) == 6
    chosen = chosen.loc[exact.index]
    assert (exact["target"] == chosen["prediction"]).all()  # the class that the first training predicts
    assert (exact["value_full"] - np.log(chosen["probability"])).abs().min() > 1e-4  # and is worth something else here
    measured = pd.read_parquet(fresh.path / R / "metrics/measured.parquet")
    assert (measured["method"] == "occlusion").all() and set(measured["training_seed"]) == {0, 1}
    of_seed = (measured["statistic"] == "rmse") & (measured["training_seed"] == 1)
    own = measured[of_seed].set_index("instance")["value"]
    expected = ((scores.matrix(exact) - scores.matrix(occlusion)) ** 2).mean(1) ** 0.5  # to the same training's
    assert own.loc[exact.index].to_numpy() == pytest.approx(expected, rel=1e-4)
