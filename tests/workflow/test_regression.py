"""A regression from its data to its report."""

import json

import numpy as np

from shapeline import scores

DIABETES = {
    "run": ["diabetes"],
    "datasets": {"diabetes": {"source": "diabetes"}},
    "models": {"mlp": {"dataset": "diabetes", "architecture": "mlp", "training": {"epochs": 10}}},
    "experiments": {
        "diabetes": {
            "model": "mlp",
            "features": {"kind": "column"},
            "reference": {"kind": "background", "rows": 4},
            "value": "prediction",
            "instances": {"count": 6},
            "methods": {
                "exact": {"method": "shapley"},
                "kernel_shap": {"method": "kernel_shap"},
                "gradient": {"method": "integrated_gradients"},
            },
            "metrics": {"error": {"reference": "exact"}, "efficiency": {}, "cost": {}},
        }
    },
}


def test_a_regression_runs_to_its_report(fresh):
    fresh.configure(DIABETES)
    fresh.snakemake("--cores", "2")
    results = fresh.path / "results"
    card = json.loads((results / "models/mlp/card.json").read_text())
    assert -1 < card["test_r2"] < 1 and card["test_rmse"] > 0 and "test_accuracy" not in card
    for entry in ("exact", "kernel_shap", "gradient"):
        rows = scores.read(results / "diabetes/scores" / entry)
        assert (rows["target"] == 0).all() and (rows["status"] == "ok").all()
        if entry != "gradient":
            gap = scores.matrix(rows).sum(1) - (rows["value_full"] - rows["value_empty"])
            np.testing.assert_allclose(gap, 0, atol=1e-3)
    page = (results / "reports/diabetes.html").read_text()
    assert f"R² {card['test_r2']:.2f}" in page and "test R²" in page and "units of the target" in page
    assert "accuracy" not in page and "nats" not in page and "classifies" not in page
    assert f"R² {card['test_r2']:.2f}" in (results / "reports/index.html").read_text()
