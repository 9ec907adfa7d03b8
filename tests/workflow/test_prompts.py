"""Prompts of a language model in a folder run to their page in shards."""

import json

import pytest

from shapeline import scores
from tests.fixtures import language_model

pytest.importorskip("transformers", reason="language models need the extra shapeline[text]")
CONTEXT = "The tower stands in the harbour. Mara Velling designed it. The ferry runs every hour. It is red."


def test_prompts_run_to_their_page(fresh):
    own = fresh.path / "own"
    language_model.llama().save_pretrained(own / "tiny")
    language_model.tokenizer(pad=True).save_pretrained(own / "tiny")
    rows = [{"question": f"Question {number}?", "context": CONTEXT, "support": [1]} for number in range(6)]
    (own / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    methods = {name: {"method": name} for name in ("gp_shapley", "kernel_shap", "context_cite", "random")}
    fresh.configure(
        {
            "run": ["asked"],
            "datasets": {"asked": {"source": "prompts", "path": "own/asked.jsonl"}},
            "models": {"lm": {"source": "own/tiny", "task": "generation", "max_tokens": 5}},
            "experiments": {
                "asked": {
                    "model": "lm",
                    "dataset": "asked",
                    "features": {"kind": "sentence"},
                    "budget": 2.5,
                    "shards": 2,
                    "methods": {"exact": {"method": "shapley"}, **methods},
                    "metrics": {"error": {"reference": "exact"}, "prompts": {}, "cost": {}},
                }
            },
        }
    )
    fresh.snakemake("--cores", "2")
    assert fresh.pending() == set()
    found = scores.read(fresh.path / "results/asked/scores/gp_shapley")
    assert len(found) == 6 and (found["status"] == "ok").all() and (found["evaluations"] == 10).all()
    page = (fresh.path / "results/reports/asked.html").read_text()
    for part in (
        "Question 0?",
        "Mara Velling designed it.",
        "tokens of the answer",
        "Removal, prediction and citation",
        "shapeline-explorer",
    ):
        assert part in page, part
    assert "asked" in (fresh.path / "results/reports/index.html").read_text()
    (own / "asked.jsonl").write_text("\n".join(map(json.dumps, rows[:5])))
    assert {"select_instances", "attribute"} <= {rule for rule, _ in fresh.pending()}
