"""A method, a metric and a dataset need one file and one entry each: they are added to a copy of the tree, and run."""

import re

import pandas as pd
import yaml

from shapeline import scores

STRIPES = '''"""Upright and level stripes, drawn by seed."""

import numpy as np


def read(paths):
    """Images (n, 8, 8) in [0, 1] and whether their stripes are upright."""
    random, labels = np.random.default_rng(0), np.arange(120) % 2
    level = np.tile(np.arange(8) // 2 % 2, (120, 8, 1)).astype(float)
    images = np.where(labels[:, None, None] == 1, level, level.transpose(0, 2, 1))
    return {"inputs": np.clip(images + random.normal(0, 0.1, images.shape), 0, 1), "labels": labels}
'''
COIN = '''"""Each feature is in or out by a coin."""

import numpy as np

from shapeline.designs.design import Design


def coin(d, budget, seed):
    """The mean value with a feature less the mean without it."""
    masks = np.unique(np.random.default_rng(seed).random((budget, d)) < 0.5, axis=0)
    return Design(masks, np.where(masks, 1 / masks.sum(0).clip(1), -1 / (~masks).sum(0).clip(1)).T)
'''
SPREAD = '''"""How far apart an instance's scores lie."""

import numpy as np


def measure(rows):
    """The standard deviation of the scores of every row."""
    return rows[["instance", "repeat"]].assign(statistic="spread", x=np.nan, value=rows["scores"].map(np.std))
'''
# Module -> its text, and the entry in the registry of its subpackage.
ADDED = {
    "datasets/stripes": (
        STRIPES,
        """[sources.stripes]
kind = "image"
input_shape = [1, 8, 8]
classes = ["level", "upright"]
module = "shapeline.datasets.stripes"
synthetic = true
records = 120
""",
    ),
    "methods/coin": (COIN, '"coin": Method("coalitions", "shapeline.designs.coin:coin", Sampled, random=True),'),
    "metrics/spread": (SPREAD, '"spread": Metric("shapeline.metrics.spread:measure", "cost", {"spread": "higher"}),'),
}
TABLES = {"datasets": ("sources.toml", "[sources.digits]"), "methods": ("registry.py", "METHODS = Registry(\n    {")}
TABLES["metrics"] = ("registry.py", "METRICS: dict[str, Metric] = {")
RUN = {
    "run": ["striped"],
    "datasets": {"stripes": {"source": "stripes"}},
    "models": {"cnn": {"dataset": "stripes", "architecture": "digits_cnn", "training": {"epochs": 1}}},
    "experiments": {
        "striped": {
            "model": "cnn",
            "features": {"kind": "patch", "size": 2},
            "instances": {"count": 5},
            "methods": {"coin": {"method": "coin", "budget": 3}},
            "metrics": {"spread": {}},
        }
    },
}


def test_a_method_a_metric_and_a_dataset_are_one_file_and_one_entry(fresh):
    package = fresh.path / "workflow/shapeline"
    for module, (text, entry) in ADDED.items():
        subpackage, name = module.split("/")
        folder = "designs" if subpackage == "methods" else subpackage  # where the functions that build designs are
        (package / folder / f"{name}.py").write_text(text)
        file, table = TABLES[subpackage]
        registry = package / subpackage / file
        assert registry.read_text().count(table) == 1
        added = f"{entry}\n{table}" if subpackage == "datasets" else f"{table}\n    {entry}"
        registry.write_text(registry.read_text().replace(table, added))
    fresh.configure(RUN)
    here = {"PYTHONPATH": str(fresh.path / "workflow")}  # the copy's jobs import the copy
    fresh.snakemake("results/striped/metrics/compared.parquet", "--cores", "1", env=here)
    rows = scores.read(fresh.path / "results/striped/scores/coin")
    assert len(rows) == 5 and (rows["status"] == "ok").all() and rows["scores"].map(len).eq(16).all()
    assert rows["evaluations"].between(40, 48).all()
    measured = pd.read_parquet(fresh.path / "results/striped/metrics/measured.parquet")
    assert measured["value"].gt(0).all() and set(measured["statistic"]) == {"spread"}

    wrong = yaml.safe_load(yaml.safe_dump(RUN))
    wrong["experiments"]["striped"] |= {"methods": {"coin": {"method": "coyn"}}, "metrics": {"spraed": {}}}
    fresh.configure(wrong)
    told = fresh.snakemake("-n", check=False, env=here).stderr
    assert re.search(r"unknown method 'coyn'.*'coin'", told) and re.search(r"spraed.*'spread'", told)
