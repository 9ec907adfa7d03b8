"""The example of custom data, model and methods, from its files to its report."""

import json
import shutil
import sys

import pandas as pd
import pytest
import yaml

from shapeline import scores


@pytest.fixture
def own(root, fresh):
    """A copy of the repository with the example's files, and its configuration instead of the default one."""
    folder = fresh.path / "examples/own"
    shutil.copytree(root / "examples/own", folder, ignore=shutil.ignore_patterns("*.skops", "*.keras", "*.parquet"))
    return fresh, folder, yaml.safe_load((folder / "config.yaml").read_text())


def made(folder, *functions: str):
    """Call functions of the example's make_files.py, which write into its folder."""
    sys.path.insert(0, str(folder))
    try:
        import make_files

        for name in functions:
            getattr(make_files, name)(folder)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("make_files", None)


def test_custom_data_pipelines_keras_file_method_and_scores_run_to_a_report(own):
    checkout, folder, raw = own
    made(folder, "models", "scores", "network", "shapes")
    del raw["experiments"]["loans"]["methods"]["random"]
    raw["experiments"]["loans"]["metrics"] = {
        "error": {"reference": "exact"},
        "own": raw["experiments"]["loans"]["metrics"]["own"],
    }
    for name in ("remarks", "pictures"):
        raw["experiments"][name]["methods"] = {"occlusion": {"method": "occlusion"}}
    raw["experiments"]["pictures"]["metrics"] = {"cost": {}}
    raw["models"]["opinions"]["training"] = {"epochs": 2}
    checkout.configure(raw)
    asked = [("limits", "exact"), ("remarks", "occlusion"), ("pieces", "exact"), ("pieces", "l_shapley")]
    asked += [("rule", "exact"), ("shapes", "occlusion"), ("pictures", "occlusion")]
    tables = [f"results/{name}/scores/{entry}/0-of-1.parquet" for name, entry in asked]
    checkout.snakemake("--cores", "2", "loans", *tables, timeout=1200)

    results = checkout.path / "results"
    card = json.loads((results / "models/granting/card.json").read_text())
    assert card["test_accuracy"] > 0.7 and card["training"].startswith("none") and "history" not in card
    assert "test_r2" in json.loads((results / "models/limiting/card.json").read_text())
    exact = scores.read(results / "loans/scores/exact")
    assert (exact["status"] == "ok").all() and (exact["evaluations"] == 64).all()
    gap = scores.matrix(exact).sum(1) - (exact["value_full"] - exact["value_empty"])
    assert abs(gap).max() < 1e-5
    assert scores.metadata(results / "loans/scores/exact/0-of-1.parquet")["features"]["names"][3] == "job"
    elsewhere = scores.read(results / "loans/scores/elsewhere").set_index("instance")
    given = pd.read_parquet(folder / "scores.parquet").set_index("instance")
    for instance, row in elsewhere.iterrows():
        assert row["status"] == ("ok" if instance in given.index else "not in the file")
        if row["status"] == "ok":
            assert abs(row["scores"] - given.loc[instance]).max() < 1e-6
    compared = pd.read_parquet(results / "loans/metrics/compared.parquet").set_index("metric")
    assert {"halves", "elsewhere", "kernel_shap"} == set(compared.loc["error", "method"])
    for path in tables:
        assert (scores.read(checkout.path / path)["status"] == "ok").all()
    whole_words(folder, results)
    read = abs(scores.matrix(scores.read(results / "rule/scores/exact"))).max(0) > 1e-9
    assert read.tolist() == [False, True, True, False, True, False]  # income, debt, home: what rule.py reads
    assert (scores.read(results / "pictures/scores/occlusion")["evaluations"] == 17).all()
    for name in ("shapes", "network"):
        assert json.loads((results / f"models/{name}/card.json").read_text())["test_accuracy"] > 0.9
    measured = compared.loc["own"]
    assert set(measured["statistic"]) == {"spread"} and measured["mean"].between(1, 6).all()
    page = (results / "reports/loans.html").read_text()
    assert "spread" in page and "halves" in page and "evaluations unknown" in page and "may never have seen" in page

    text = (folder / "halves.py").read_text()  # an edited method runs itself alone
    (folder / "halves.py").write_text(text + "\n")
    said = checkout.snakemake("-n", "--cores", "1", "results/loans/metrics/compared.parquet").stdout
    assert "attribute (1)\n  loans: halves\n" in said


def whole_words(folder, results):
    """Of a text model with a tokenizer of its own the score of a word is what its pieces add, half of it to either
    class, by the exact values and those on a chain."""
    sys.path.insert(0, str(folder))
    try:
        import subwords
    finally:
        sys.path.remove(str(folder))
    chosen = pd.read_parquet(results / "pieces/instances.parquet").set_index("instance")
    assert json.loads((results / "models/bag/card.json").read_text())["test_accuracy"] == 1
    for entry in ("exact", "l_shapley"):
        rows = scores.read(results / "pieces/scores" / entry).set_index("instance")
        assert len(rows) == 12 and (rows["status"] == "ok").all()
        for instance, row in chosen.iterrows():
            assert list(row["words"]) == row["text"].split()
            said = [sum(subwords.PIECES[piece] for piece in subwords.pieces(word)) for word in row["words"]]
            sign = 0.5 if row["prediction"] == 1 else -0.5
            assert rows.loc[instance, "scores"] == pytest.approx([sign * one for one in said], abs=1e-5)
