"""Images with several labels, from a custom source to a page."""

import json
import shutil

import numpy as np
import pandas as pd

from shapeline import scores
from tests.fixtures import two_shapes

METRICS = ("log_odds", "localization")
SHAPES = {
    "datasets": {"shapes": {"source": "two_shapes.py:read"}},
    "models": {"net": {"dataset": "shapes", "architecture": "digits_cnn", "training": {"epochs": 12}}},
    "experiments": {
        "shapes": {
            "model": "net",
            "features": {"kind": "patch", "size": 8},
            "value": "logit",
            "instances": {"count": 6},
            "methods": {"exact": {"method": "shapley"}, "occlusion": {"method": "occlusion"}},
            "metrics": {metric: {} for metric in METRICS},
        },
        "squares": {
            "model": "net",
            "features": {"kind": "pixel"},
            "value": "probability",
            "instances": {"count": 3, "label": "square", "correct": True},
            "methods": {"h_shap": {"method": "h_shap", "min_size": 3}},
            "metrics": {"localization": {}},
            "report": {"notebook": "localization", "n_shown": 2},
        },
    },
    "run": ["shapes", "squares"],
}


def test_several_labels_run_to_their_report(fresh):
    shutil.copy(two_shapes.__file__, fresh.path / "two_shapes.py")
    fresh.configure(SHAPES)
    fresh.snakemake("results/shapes/metrics/compared.parquet", "squares", "--cores", "2")
    results = fresh.path / "results"
    card = json.loads((results / "models/net/card.json").read_text())
    assert card["test_accuracy"] > 0.9 and set(card["test_accuracy_by_label"]) == {"cross", "square"}
    chosen = pd.read_parquet(results / "shapes/instances.parquet")
    assert len(chosen) == 12 and chosen["instance"].nunique() == 6
    for entry in ("exact", "occlusion"):
        rows = scores.read(results / "shapes/scores" / entry)
        assert (rows["status"] == "ok").all() and not rows.duplicated(["instance", "target"]).any()
        both = rows.merge(chosen, on=["instance", "target"])
        assert len(both) == 12
        np.testing.assert_allclose(1 / (1 + np.exp(-both["value_full"])), both["probability"], atol=1e-5)
        if entry == "exact":
            gap = scores.matrix(rows).sum(1) - (rows["value_full"] - rows["value_empty"])
            np.testing.assert_allclose(gap, 0, atol=1e-3)
    compared = pd.read_parquet(results / "shapes/metrics/compared.parquet")
    assert set(compared["metric"]) == set(METRICS)
    assert (compared["n"] <= 6).all()  # images are resampled, with both their labels
    found = pd.read_parquet(results / "shapes/metrics/measured.parquet")
    of_exact = (found["statistic"] == "auprc") & (found["method"] == "exact")
    known = found[of_exact].set_index("instance")["value"]
    assert (known.notna().groupby(level=0).sum() == chosen.groupby("instance")["label"].sum()).all()
    squares = pd.read_parquet(results / "squares/instances.parquet")
    assert (squares[["target", "label", "prediction"]] == 1).all(axis=None) and len(squares) == 3
    page = (results / "reports/squares.html").read_text()
    assert "Traceback" not in page and "the label named beside the image" in page and "all labels correct" in page
    assert "classifies" not in page
