"""Jobs that need only values of a network run its graph and import no framework; those of gradients import it."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

from shapeline import scores
from tests.workflow.conftest import IMPORTED, copy_repository

pytest.importorskip("onnxruntime")
RESULTS = "results/table"
CONFIGURATION = {
    "run": ["table"],
    "datasets": {"cancer": {"source": "breast_cancer"}},
    "models": {"mlp": {"dataset": "cancer", "architecture": "mlp", "training": {"epochs": 2}}},
    "experiments": {
        "table": {
            "model": "mlp",
            "features": {"kind": "column"},
            "instances": {"count": 4},
            "reference": {"kind": "background", "rows": 3},
            "methods": {"kernel": {"method": "kernel_shap"}, "gradient": {"method": "gradient_x_input"}},
            "metrics": {"log_odds": {}, "randomisation": {}},
        }
    },
}


def score_file(entry: str) -> str:
    return f"{RESULTS}/scores/{entry}/0-of-1.parquet"


def test_removal_imports_no_framework_and_gradients_do(root, tmp_path):
    checkout = copy_repository(root, tmp_path / "checkout")
    checkout.configure(CONFIGURATION)
    checkout.snakemake("--cores", "2", f"{RESULTS}/instances.parquet")
    instances = checkout.path / RESULTS / "instances.parquet"
    table, said = scores.read_table(instances), scores.metadata(instances)
    said["forms"] = {"cpu": {"name": "onnx", "batch": 256}}  # whatever the clock said
    scores.write_table(instances, pa.Table.from_pandas(table, preserve_index=False), said)
    (tmp_path / "imported").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(IMPORTED.replace('startswith("shapeline.")', "isidentifier()"))
    told = {"PYTHONPATH": str(tmp_path / "site"), "IMPORTED": str(tmp_path / "imported")}
    entries = ["kernel", "kernel@randomised", "gradient"]
    measured = f"{RESULTS}/metrics/measured/gradient.parquet"
    checkout.snakemake("--cores", "2", *map(score_file, entries), measured, env=told)

    frameworks = {}
    for file in (tmp_path / "imported").glob("*.json"):
        job = json.loads(file.read_text())
        name = " ".join([job["rule"], job["wildcards"].get("method", "")])
        frameworks[name] = {"torch", "tensorflow", "onnxruntime"} & set(job["modules"])
    assert frameworks["attribute kernel"] == frameworks["attribute kernel@randomised"] == {"onnxruntime"}
    assert frameworks["measure gradient"] == {"onnxruntime"}
    assert "torch" in frameworks["attribute gradient"]
    assert "torch" in scores.metadata(checkout.path / score_file("gradient"))["versions"]
    by_graph = checkout.path / score_file("kernel")
    assert "torch" not in scores.metadata(by_graph)["versions"]
    assert scores.metadata(by_graph)["framework"] == "torch"  # the model's

    # Without the graph the network itself is asked, and says the same.
    before = scores.read(by_graph)
    (checkout.path / "results/models/mlp/model.onnx").unlink()
    by_graph.unlink()
    shutil.rmtree(checkout.path / "results/.rows")
    checkout.snakemake("--cores", "2", score_file("kernel"))
    again = scores.read(by_graph)
    assert "torch" in scores.metadata(by_graph)["versions"]
    np.testing.assert_allclose(np.stack(again["scores"]), np.stack(before["scores"]), rtol=1e-6, atol=1e-9)
