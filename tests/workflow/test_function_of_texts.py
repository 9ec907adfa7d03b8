"""A function of texts that imports a file from its folder runs to its report; an edit of that file re-runs its jobs."""

import shutil

PLAN = {
    "run": ["said"],
    "datasets": {
        "pieces": {
            "source": "text_file",
            "path": "examples/own/reviews.csv",
            "text": "remark",
            "target": "opinion",
            "length": 16,
            "tokenizer": "examples/own/subwords.py:tokenizer",
        }
    },
    "models": {"said": {"dataset": "pieces", "source": "examples/own/said.py:opinion", "framework": "function"}},
    "experiments": {
        "said": {
            "model": "said",
            "features": {"kind": "word"},
            "reference": "pad",
            "value": "probability",
            "instances": {"count": 4},
            "methods": {"exact": {"method": "shapley"}, "kernel": {"method": "kernel_shap"}},
            "metrics": {"error": {"reference": "exact"}, "cost": {}},
        }
    },
}
FUNCTION = """
import numpy as np
from said_words import SAID

def opinion(ids):
    return 1 / (1 + np.exp(-SAID[ids].sum(1)))
"""
WORDS = "import numpy as np\n\nSAID = np.where(np.arange(100_000) > 0, np.sin(np.arange(100_000)), 0)\n"


def test_a_function_of_texts_runs_and_follows_what_it_imports(root, fresh):
    own = fresh.path / "examples/own"
    own.mkdir(parents=True)
    for name in ("reviews.csv", "subwords.py"):
        shutil.copy2(root / "examples/own" / name, own / name)
    (own / "said.py").write_text(FUNCTION)
    (own / "said_words.py").write_text(WORDS)
    fresh.configure(PLAN)
    fresh.snakemake("--cores", "2")
    assert (fresh.path / "results/reports/said.html").is_file() and fresh.pending() == set()
    (own / "said_words.py").write_text(WORDS + "SAID *= 2\n")
    again = {rule for rule, _ in fresh.pending()}
    assert {"train_model", "select_instances", "attribute"} <= again
