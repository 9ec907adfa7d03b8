"""Incomplete scores of deep_lift, from an operation without a rule, are flagged everywhere and never recommended.
they are looked at, and never recommended."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import shapeline
from shapeline.errors import NO_RULE
from shapeline.report.sections import evidence
from tests.unit.test_evidence import QUESTION, answer

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
OPERATIONS = {
    "relu": torch.relu,
    "method": lambda z: z.relu(),
    "gelu": nn.functional.gelu,
    "clamp": lambda z: z.clamp(min=0),
    "maximum": lambda z: torch.maximum(z, torch.zeros_like(z)),
    "square": lambda z: z * z / 4,
    "module": nn.ReLU(),
}


class Net(nn.Module):
    def __init__(self, operation):
        super().__init__()
        self.a, self.b, self.operation = nn.Linear(4, 16), nn.Linear(16, 2), operation

    def forward(self, x):
        return self.b(self.operation(self.a(x)))


def network(operation):
    torch.manual_seed(1)
    return Net(OPERATIONS[operation])


def log_p(net, rows):
    with torch.no_grad():
        return torch.log_softmax(net(torch.from_numpy(rows)).double(), 1)[:, 1].numpy()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_incomplete_scores_are_reported_and_not_recommended(operation):
    net = network(operation)
    found = shapeline.explain(net, X, "deep_lift", "zero", target=1)
    gained = log_p(net, X) - log_p(net, 0 * X)
    gap = np.abs(found.scores.sum(1) - gained)
    off = gap > 0.02 * (np.abs(gained) + np.abs(found.scores).sum(1) / 10)  # of these all are flagged
    flagged = np.array([flag is not None for flag in found.warning])
    assert off.any() == (operation != "module") and flagged[off].all()
    compared = shapeline.compare(net, X, ["deep_lift", "integrated_gradients"], reference="zero", target=1)
    alone = shapeline.compare(net, X, ["deep_lift"], reference="zero", target=1)
    if operation == "module":
        assert gap.max() < 1e-5 and not flagged.any() and "warning" not in repr(found)
        assert compared.recommended == alone.recommended == "deep_lift"
        return
    line = f"{flagged.sum()} of 8 instances: {NO_RULE}"
    assert f"  warning   {line}" in repr(found) and line in found._repr_html_()
    one = int(np.flatnonzero(flagged)[0])
    assert f"1 of 1 instance: {NO_RULE}" in repr(found[one])
    for each in (compared, alone):
        assert f"deep_lift, {line}." in each.notes and f"deep_lift, {line}." in repr(each)
        assert "deep_lift is not recommended." in repr(each)
        assert each.recommended != "deep_lift" and "deep_lift" in each.table.index
    assert compared.recommended == "integrated_gradients" and alone.recommended is None


def test_a_second_entry_of_random_attribution_is_not_recommended():
    found = shapeline.compare(network("relu"), X, {"again": "random", "occlusion": "occlusion"}, reference="zero")
    assert found.recommended == "occlusion" and "again is not recommended." in found.notes


def test_rounding_and_the_softmax_are_no_missing_rule():
    torch.manual_seed(0)
    parts = [part for _ in range(14) for part in (nn.Linear(8, 8), nn.ReLU())]
    deep = nn.Sequential(nn.Linear(4, 8), *parts, nn.Linear(8, 3))  # of which hardly anything reaches the end
    for net, rows in ((deep, X), (network("module"), 1e4 * X)):
        found = shapeline.explain(net, rows, "deep_lift", "zero")
        assert NO_RULE not in found.warning


def test_a_saved_explanation_keeps_the_warning(tmp_path):
    found = shapeline.explain(network("relu"), X, "deep_lift", "zero", target=1)
    found.save(tmp_path / "found.parquet")
    again = shapeline.Explanation.load(tmp_path / "found.parquet")
    assert again.warning == found.warning and NO_RULE in repr(again)


def test_pages_never_recommend_it():
    base = np.random.default_rng(0).normal(size=30)
    columns = {"deep": base - 2, "dear": base - 1.9, "free": base + 4}
    one = answer(columns, {"deep": 6, "dear": 100, "free": 0}, random="free")
    assert one.last.entry == one.recommend_by_time.entry == "deep"
    one = dataclasses.replace(one, incomplete=frozenset({"deep"}))
    assert one.last.entry == one.recommend_by_time.entry == "dear"
    assert all(advice.entry != "deep" for _, advice in one.choices)
    measured = pd.DataFrame({"instance": range(30)})
    results = type("Results", (), {"measured": {QUESTION.metric: measured}})
    assert f"Never recommended: deep, {NO_RULE}" in evidence.exclusions(one, results).data
