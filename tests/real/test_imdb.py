"""IMDB at full size, and the paper's example sentence, on the official texts; takes minutes (make test-real)."""

import json

import pandas as pd
import pytest
import yaml

from shapeline import scores
from tests.conftest import ROOT
from tests.workflow.conftest import copy_repository


@pytest.mark.real
@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_imdb_reaches_the_papers_accuracy_and_explains_200_reviews(tmp_path, real_data, framework):
    archive = real_data("imdb", "aclImdb_labelled_50k.tar.gz")
    checkout = copy_repository(ROOT, tmp_path)
    local = {
        "run": ["imdb", "imdb_sentence"],
        "datasets": {"imdb": {"path": str(archive)}},
        "models": {"imdb_cnn": {"framework": framework}},
        "experiments": {"imdb": {"instances": {"count": 200}}},
    }
    (tmp_path / "local.yaml").write_text(yaml.safe_dump(local))
    checkout.snakemake("--cores", "2", "--configfile", "config.paper.yaml", "local.yaml", timeout=3000)
    card = json.loads((tmp_path / "results/models/imdb_cnn/card.json").read_text())
    assert card["parameters"] == 351_002 and card["rows"]["test"] == 25_000
    assert card["test_accuracy"] >= 0.88
    for folder in sorted((tmp_path / "results/imdb/scores").iterdir()):
        rows = scores.read(folder)
        assert len(rows) == 200 and (rows["status"] == "ok").all()
    table = pd.read_parquet(tmp_path / "results/imdb/metrics/compared.parquet")
    areas = table[table["statistic"] == "deletion_auc"].set_index("method")
    assert areas["high"]["l_shapley"] < areas["low"]["random"]
    exact = scores.read(tmp_path / "results/imdb_sentence/scores/exact").set_index("instance")
    assert exact.loc[-1, "evaluations"] == 2**9
