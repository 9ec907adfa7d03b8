"""The example of a text classifier in a folder runs to its page as it is written, with a model made on the spot."""

import shutil

import pandas as pd
import pytest

from shapeline import scores
from tests.fixtures import transformer

pytest.importorskip("transformers")
TEXTS = ["A good film isn't bad!", "bad films", "the film endings", "very good", "not a word", "good, goodly film"]
EXAMPLE = "examples/text_folder.yaml"


def test_the_example_runs_to_its_page(root, fresh):
    place = fresh.path / "examples/text_folder"
    transformer.folder(place / "model")
    table = pd.DataFrame({"text": TEXTS * 10, "opinion": ["positive", "negative"] * 30})
    table.to_csv(place / "opinions.csv", index=False)
    shutil.copy2(root / EXAMPLE, fresh.path / EXAMPLE)
    planned = fresh.snakemake("-n", "--configfile", EXAMPLE).stdout
    assert all(f"results/reports/{name}.html" in planned for name in ("deleted", "masked", "unattended", "index"))
    fresh.snakemake("deleted", "--configfile", EXAMPLE, "--cores", "2")  # one of three: each job imports transformers
    results = fresh.path / "results"
    page = (results / "reports/deleted.html").read_text()
    assert "isn&#x27;t" in page and "none failed" in page
    flow = scores.read(results / "deleted/scores/attention_rollout")
    assert len(flow) == 12 and (flow["evaluations"] == 1).all() and (flow["status"] == "ok").all()
