"""Bring the labels of an experiment together: means over instances, with intervals that hold."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.statistics.bounds import intervals

FEW = 4  # labels at a time: no number of one depends on another's, and all of many instances would fill the memory


def compare_files(paths: Iterable[str | Path], metrics: Sequence[str]) -> pd.DataFrame:
    """Return `compare` of each metric, with a column of its name, from files of measurements of the model itself."""
    parts = []
    for path in paths:
        measured = scores.read_table(path)
        measured = measured[measured["training_seed"] == 0]
        for metric, rows in measured.groupby("metric", sort=False):
            labels = [*dict.fromkeys(rows["method"])]
            for start in range(0, len(labels), FEW):
                some = rows[rows["method"].isin(labels[start : start + FEW])]
                parts.append(compare(some).assign(metric=metric))
    order = {metric: place for place, metric in enumerate(metrics)}
    compared = pd.concat(parts, ignore_index=True)[["metric", "method", "statistic", "x", "mean", "low", "high", "n"]]
    compared = compared[compared["metric"].isin(order)].assign(place=compared["metric"].map(order))
    return compared.sort_values(["place", "method"], kind="stable", ignore_index=True).drop(columns="place")


def compare(measured: pd.DataFrame) -> pd.DataFrame:
    """Mean and 95 % interval, per label, statistic and x.

    measured: label, instance, repeat, statistic, x, value. Every instance has draws of its own, so its repeats are
    averaged and instances are the units (`bounds.intervals`). n counts instances with a finite value; of one alone
    there is no interval, low and high are NaN.
    """
    keys = ["method", "statistic", "x"]
    if not np.isfinite(measured["value"]).any():  # every row failed: the diagnostics says why
        kinds = {"method": str, "statistic": str, "x": float, "mean": float, "low": float, "high": float, "n": int}
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})
    measured = measured.assign(x=measured["x"].fillna(-1.0), value=measured["value"].replace([np.inf, -np.inf], np.nan))
    wide = measured.pivot_table(index="instance", columns=keys, values="value", aggfunc="mean", dropna=False)
    wide = wide.loc[:, wide.notna().any()].sort_index()
    table = wide.columns.to_frame(index=False)
    table["x"] = table["x"].where(table["x"] >= 0)
    ends = intervals(wide).reset_index(drop=True)
    return table.assign(**{name: ends[name] for name in ("mean", "low", "high", "n")})
