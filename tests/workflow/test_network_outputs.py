"""A custom network that ends in a softmax is trained, stored and explained by its probabilities."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from shapeline import scores
from shapeline.datasets import loading
from shapeline.models import storage

NETWORK = """
from torch import nn

def net(channels, side):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, 2), nn.Softmax(1))
"""


def plan(**model) -> dict:
    model = {"dataset": "digits38", "source": "net.py:net", "training": {"epochs": 2}, **model}
    experiment = {
        **{"model": "own", "features": {"kind": "patch", "size": 4}, "reference": "zero", "value": "probability"},
        **{"instances": {"count": 3}, "methods": {"exact": {"method": "shapley"}}, "metrics": {"cost": {}}},
    }
    datasets = {"digits38": {"source": "digits", "classes": [3, 8]}}
    return {"run": ["one"], "datasets": datasets, "models": {"own": model}, "experiments": {"one": experiment}}


def test_a_softmax_in_a_network_is_applied_once(fresh, monkeypatch):
    monkeypatch.chdir(fresh.path)
    (fresh.path / "net.py").write_text(NETWORK)
    fresh.configure(plan())
    fresh.snakemake("--cores", "1", "results/one/scores/exact/0-of-1.parquet")
    results = fresh.path / "results"
    network = storage.load(results / "models/own/weights.safetensors").module.network
    images = loading.load(fresh.path / "data/prepared/digits38").inputs
    quadrant = np.arange(8)[:, None] // 4 * 2 + np.arange(8) // 4
    rows, chosen = scores.read(results / "one/scores/exact"), pd.read_parquet(results / "one/instances.parquet")
    at = chosen.set_index("instance")["row"]
    assert len(rows) == 3 and (rows["status"] == "ok").all()
    for _, row in rows.iterrows():
        image = np.asarray(images[[at[row["instance"]]]], np.float32)

        def value(coalition, image=image, target=row["target"]):
            kept = np.isin(quadrant, coalition)
            with torch.no_grad():
                return network(torch.from_numpy(image * kept))[0, target].item()

        expected = [
            sum(
                math.factorial(k) * math.factorial(3 - k) / 24 * (value([*rest, j]) - value(list(rest)))
                for k in range(4)
                for rest in itertools.combinations([i for i in range(4) if i != j], k)
            )
            for j in range(4)
        ]
        np.testing.assert_allclose(np.ravel(row["scores"]), expected, atol=1e-5)
        assert abs(row["value_full"] - value([0, 1, 2, 3])) < 1e-6


def test_outputs_are_stated_in_the_configuration(fresh, monkeypatch):
    monkeypatch.chdir(fresh.path)
    (fresh.path / "net.py").write_text(NETWORK.replace("nn.Softmax(1)", "nn.Hardtanh(0, 1)"))
    wanted = "results/models/own/weights.safetensors"
    fresh.configure(plan())
    said = fresh.snakemake("--cores", "1", wanted, check=False)
    assert said.returncode != 0 and 'outputs="probabilities" or outputs="logits"' in said.stdout + said.stderr
    fresh.configure(plan(outputs="logits"))
    fresh.snakemake("--cores", "1", wanted)
    assert storage.load(fresh.path / wanted).outputs == "logits"


FUNCTIONAL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.flat, self.a, self.b = nn.Flatten(), nn.Linear(inputs, 12), nn.Linear(12, 2)

    def forward(self, x):
        return self.b(torch.tanh(self.a(self.flat(x))))

def net(channels, side):
    return Net(channels * side * side)
"""


def test_a_page_shows_that_deep_lift_does_not_add_up_and_does_not_recommend_it(fresh):
    (fresh.path / "net.py").write_text(FUNCTIONAL)
    raw = plan(training={"epochs": 20, "learning_rate": 0.01})
    methods = {"exact": {"method": "shapley"}, "deep": {"method": "deep_lift"}, "one": {"method": "occlusion"}}
    raw["experiments"]["one"] |= {"methods": methods, "metrics": {"error": {"reference": "exact"}, "cost": {}}}
    raw["experiments"]["one"] |= {"instances": {"count": 12}, "value": "log_probability"}
    fresh.configure(raw)
    fresh.snakemake("--cores", "2", "one")
    rows = scores.read(fresh.path / "results/one/scores/deep")
    gap = scores.matrix(rows).sum(1) - (rows["value_full"] - rows["value_empty"])
    assert (abs(gap) > 0.02 * abs(rows["value_full"] - rows["value_empty"])).any()
    page = (fresh.path / "results/reports/one.html").read_text()
    assert "Never recommended: deep, scores do not sum" in page and "Recommended: deep" not in page


@pytest.mark.parametrize("network", [True, False])
def test_a_network_reports_columns_of_more_than_seven_digits(fresh, network):
    random = np.random.default_rng(0)
    seconds = 1_700_000_000 + random.integers(0, 600, 120)
    table = pd.DataFrame({"seconds": seconds, "v": random.random(120), "late": np.where(seconds % 600 > 300, "y", "n")})
    table.to_csv(fresh.path / "times.csv", index=False)
    (fresh.path / "rule.py").write_text("def late(rows):\n    return 1.0 * (rows['seconds'] % 600 > 300)\n")
    own = {"architecture": "mlp", "training": {"epochs": 1}}
    model = own if network else {"source": "rule.py:late", "framework": "function"}
    datasets = {"times": {"source": "table_file", "path": "times.csv", "target": "late"}}
    raw = plan() | {"datasets": datasets, "models": {"own": {"dataset": "times", **model}}}
    raw["experiments"]["one"] |= {"features": {"kind": "column"}, "reference": "mean"}
    fresh.configure(raw)
    done = fresh.snakemake("--cores", "1", "results/models/own/weights.safetensors")
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "float32" in line]
    assert len(lines) == network
    assert not network or "dataset 'times': column 'seconds': a network takes float32, of 7 digits, so 17" in lines[0]
