"""Influence without a model, from a table of labelled records to its report."""

import copy
import json
import shutil

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.datasets import loading
from shapeline.influence import mim

CANCER = {
    "run": ["cancer"],
    "datasets": {"breast_cancer": {"source": "breast_cancer"}},
    "models": {"unused": {"dataset": "breast_cancer", "architecture": "mlp"}},
    "experiments": {
        "cancer": {
            "dataset": "breast_cancer",
            "features": {"kind": "column"},
            "instances": {"count": 12},
            "methods": {
                "mim": {"method": "mim"},
                "parzen": {"method": "parzen", "sigma": 200.0},
                "random": {"method": "random"},
            },
            "metrics": {"cost": {}, "error": {"reference": "mim"}},
            "report": {"title": "Cells without a model"},
        }
    },
}


def test_labelled_points_are_scored_without_a_model_and_shown(fresh):
    fresh.configure(CANCER)
    done = fresh.snakemake("--cores", "2")
    results = fresh.path / "results"
    assert "train_model" not in done.stdout + done.stderr and not (results / "models").exists()

    chosen = pd.read_parquet(results / "cancer/instances.parquet")
    assert (chosen["prediction"] == chosen["label"]).all() and "probability" not in chosen
    rows = {
        entry: scores.read(results / "cancer/scores" / entry) for entry in CANCER["experiments"]["cancer"]["methods"]
    }
    for frame in rows.values():
        assert (frame["status"] == "ok").all() and (frame["evaluations"] == 0).all() and frame["warning"].isna().all()
        assert frame["value_full"].isna().all() and frame["value_empty"].isna().all()
        assert frame["target"].tolist() == chosen["label"].tolist()
    data = loading.load(fresh.path / "data/prepared/breast_cancer")
    points, known = data.inputs[chosen["row"]], data.labels[chosen["row"]]
    expected = mim(points, data.inputs, data.labels, point_labels=known)  # all records: no model has a test part
    np.testing.assert_allclose(scores.matrix(rows["mim"]), expected, rtol=1e-5)
    about = scores.metadata(results / "cancer/scores/mim/0-of-1.parquet")
    assert about["framework"] is None and about["form"] is None and "torch" not in about["versions"]

    page = (results / "reports/cancer.html").read_text()
    assert "Cells without a model" in page and "without a model" in page and "none: labelled instances only" in page
    assert "test accuracy" not in page and "nats" not in page and "predicted" not in page.split("How to read")[0]
    assert "Cells without a model" in (results / "reports/index.html").read_text()
    settings = json.loads((results / "reports/cancer.ipynb").read_text())["metadata"]["shapeline"]
    assert settings["settings_digest"]

    measure = fresh.path / "workflow/shapeline/influence/measures.py"
    measure.write_text(measure.read_text() + "\n# edited\n")
    again = {path for rule, path in fresh.pending() if rule == "attribute"}
    assert again == {f"results/cancer/scores/{name}/0-of-1.parquet" for name in ("mim", "parzen")}

    shutil.rmtree(fresh.path / ".snakemake")
    changed = copy.deepcopy(CANCER)
    changed["experiments"]["cancer"]["methods"]["parzen"]["sigma"] = 100.0
    fresh.configure(changed)
    told = fresh.snakemake("-n", check=False).stderr
    assert "has no record" in told and "scores/random" not in told
    assert "scores/parzen/0-of-1.parquet" in told and "scores/mim/0-of-1.parquet" in told  # other settings, other code
