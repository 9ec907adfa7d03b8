"""Crosses at a tiny size, from generated images to the localization page."""

import numpy as np
import pandas as pd

ENTRIES = {"h_shap": {"method": "h_shap", "min_size": 12}, "random": {"method": "random"}}
TINY = {
    "run": ["crosses"],
    "datasets": {"crosses": {"source": "crosses", "count": 64}},
    "models": {"crosses": {"dataset": "crosses", "architecture": "crosses_cnn", "training": {"epochs": 1}}},
    "experiments": {
        "crosses": {
            "model": "crosses",
            "features": {"kind": "pixel"},
            "value": "probability",
            "timing": "per_instance",
            "instances": {"count": 4, "label": "cross"},
            "methods": ENTRIES,
            "metrics": {"localization": {}, "ablation": {"sizes": 4}, "cost": {}},
            "report": {"notebook": "localization", "n_shown": 2},
        }
    },
}


def test_crosses_become_a_page_on_where_they_are(fresh):
    fresh.configure(TINY)
    fresh.snakemake("crosses", "--cores", "2")
    folder = fresh.path / "results" / "crosses" / "metrics"
    measured = pd.read_parquet(folder / "measured.parquet")
    for entry in ENTRIES:
        found = measured[(measured["metric"] == "localization") & (measured["method"] == entry)]
        ceilings = {"ceiling_touching", "ceiling_best"} & set(found["statistic"])
        assert len(ceilings) == (2 if entry == "h_shap" else 0) and set(found.groupby("statistic").size()) == {4}
        curves = pd.read_parquet(folder / "measured" / f"{entry}.parquet")  # by the metric that evaluates the model
        assert sorted(curves.loc[curves["statistic"] == "probability", "x"].unique()) == [1, 23, 524, 12_000]
        assert np.isfinite(curves.loc[curves["statistic"] == "probability_area", "value"]).all()
    page = (fresh.path / "results" / "reports" / "crosses.html").read_text()
    assert "Traceback" not in page and page.count("<img") + page.count("<svg") >= 3 and "random" in page
