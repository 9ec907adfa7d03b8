"""Randomised models from the configuration to the metric, and the jobs that an edit re-runs."""

import copy
import json

import pandas as pd

from shapeline import scores
from tests.workflow.conftest import TINY

R = "results/tiny"


def sanity(layers: list) -> dict:
    raw = copy.deepcopy(TINY)
    tiny = raw["experiments"]["tiny"]
    tiny["instances"]["count"] = 6
    tiny["methods"] = {"kernel": {"method": "kernel_shap"}, "random": {"method": "random"}}
    tiny["metrics"] = {"randomisation": {"layers": layers}}
    return raw


def test_randomised_models_are_reinitialised_and_explained_like_trained_ones(fresh):
    fresh.configure(sanity(["full"]))
    fresh.snakemake("metrics", "--cores", "2")
    results = fresh.path / "results"
    card = json.loads((results / "models/cnn@full/card.json").read_text())
    assert card["name"] == "cnn@full" and card["drawn"] == ["6", "2", "0"] and card["settings"].pop("code")
    assert card["settings"] == {"seed": 0}
    trained, drawn = (scores.read(results / "tiny/scores" / entry) for entry in ("kernel", "kernel@randomised"))
    assert trained["randomised_layers"].isna().all() and (drawn["randomised_layers"] == 3).all()
    assert (trained[["instance", "target"]] == drawn[["instance", "target"]]).all(axis=None)
    assert (trained["value_full"] - drawn["value_full"]).abs().min() > 1e-3
    said = scores.metadata(results / "tiny/scores/kernel@randomised/0-of-1.parquet")
    assert said["settings"]["randomised"] == ["full"]
    found = pd.read_parquet(results / "tiny/metrics/compared.parquet")
    alike = found[found["statistic"] == "rank_correlation"].set_index("method")
    assert (alike["x"] == 3).all() and alike["n"].tolist() == [6, 6]
    assert alike.loc["random", "low"] == 1 and alike.loc["kernel", "mean"] < 0.9  # random draws the same scores again

    assert not {job for job in fresh.pending() if job[0] not in ("render_report", "render_theory", "render_index")}
    fresh.configure(sanity(["full", 1]))
    again = {job for job in fresh.pending() if "render" not in job[0] and "logs" not in job[1]}
    assert again == {
        ("randomise_model", "results/models/cnn@top1/weights.safetensors"),
        ("randomise_model", "results/models/cnn@top1/card.json"),
        *(("attribute", f"{R}/scores/{entry}@randomised/0-of-1.parquet") for entry in ("kernel", "random")),
        ("measure_scores", f"{R}/metrics/measured.parquet"),
        ("compare", f"{R}/metrics/compared.parquet"),
    }
    raw = sanity(["full"])
    raw["experiments"]["tiny"]["methods"]["kernel"]["budget"] = 8
    fresh.configure(raw)
    again = {job for job in fresh.pending() if "render" not in job[0] and "logs" not in job[1]}
    assert {path for rule, path in again if rule == "attribute"} == {
        f"{R}/scores/{entry}/0-of-1.parquet" for entry in ("kernel", "kernel@randomised")
    }
    assert not {rule for rule, _ in again} & {"randomise_model", "train_model"}
