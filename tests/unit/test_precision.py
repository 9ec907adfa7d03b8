"""A network computes in float32, and one line reports input cells that this changes."""

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import shapeline
from shapeline.datasets.table import report_lost_digits

RNG = np.random.default_rng(0)
SECONDS = 1_700_000_000 + RNG.integers(0, 600, 12)
LOST = {
    "epoch seconds": SECONDS,
    "epoch seconds, as floats": SECONDS.astype(float),
    "yyyymmdd": 20_240_101 + 2 * np.arange(12),
    "coordinates": 48.123 + RNG.normal(size=12) / 1e4,
}
KEPT = {
    "numbers": RNG.normal(size=12),
    "whole numbers": RNG.integers(0, 1 << 24, 12),
    "years": 2000.5 + np.arange(12),
    "large and wide": 1e9 * RNG.normal(size=12),
    "constant": np.full(12, 0.1),
}


def lines(caplog, column, model=None, frame=False, n=12):
    """What is logged of float32 by an explanation of n rows whose second column is given."""
    columns = {"a": RNG.normal(size=12), "b": column}
    rows = pd.DataFrame(columns) if frame else np.stack(list(columns.values()), 1)
    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING):
        shapeline.explain(model or nn.Linear(2, 2), rows[:n], "occlusion", background=rows)
    return [record.getMessage() for record in caplog.records if "float32" in record.getMessage()]


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("frame", [False, True])
@pytest.mark.parametrize("n", [1, 12])
def test_a_network_reports_cells_that_lose_digits(caplog, name, frame, n):
    (line,) = lines(caplog, LOST[name], frame=frame, n=n)
    column = "'b'" if frame else 1
    assert line.startswith(f"explain: inputs: column {column}: a network takes float32, of 7 digits, so ")
    if name == "epoch seconds":
        value = next(int(one) for one in line.split() if one.startswith("17"))
        assert value in SECONDS and f"{value} becomes {int(np.float32(value))}" in line


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("frame", [False, True])
def test_no_line_is_printed_if_cells_are_unchanged(caplog, name, frame):
    assert lines(caplog, KEPT[name], frame=frame) == []


@pytest.mark.parametrize("frame", [False, True])
def test_a_function_has_its_cells_as_they_are(caplog, frame):
    assert lines(caplog, LOST["epoch seconds"], lambda rows: np.full(len(rows), 0.5), frame) == []


def test_missing_cells_images_and_several_columns(caplog):
    rows = np.stack([SECONDS, np.where(np.arange(12) == 3, np.nan, SECONDS)], 1)
    for given, said in (
        (rows, "column 'a' (and 1 more)"),
        (np.full((2, 2), np.nan), None),
        (rows.astype(np.float32), None),
        (48.1 + RNG.random((2, 1, 3, 3)) / 1e5, "some cells"),
        (RNG.integers(0, 255, (2, 1, 3, 3)), None),
    ):
        caplog.clear()
        report_lost_digits("here", given, ["a", "b"] if given.ndim == 2 else ())
        assert [record.getMessage().partition(": a network")[0] for record in caplog.records] == [
            f"here: {said}"
        ] * bool(said)
