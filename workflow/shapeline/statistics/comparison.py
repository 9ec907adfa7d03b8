"""Comparison of an experiment's methods: means over instances with 95 % intervals."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.statistics.bounds import intervals

MAX_METHODS = 4  # methods compared at a time, because all methods of many instances would fill the memory
# Minimum and maximum of a statistic, by its name, which bound its intervals.
BOUNDS = {
    r"f1|f1_best|f1_equal_area|auprc|iou|iou_equal_area|pointing|ceiling_.*|top_k_overlap|coverage|precision|recall|"
    r"probability|probability_area": (0.0, 1.0),
    r"spearman|rank_correlation|rank_correlation_absolute|ssim|rank correlation|cosine|comprehensiveness|sufficiency|"
    r"datamodeling": (-1.0, 1.0),
    r"rmse|predicted_rmse|variance|infidelity|infidelity_scaled|max_sensitivity|gap|evaluations|seconds": (0.0, np.inf),
}
KINDS = {"method": str, "statistic": str, "x": float, "mean": float, "low": float, "high": float, "n": int}
Z95 = 1.959964  # normal quantile of a 95 % interval


def compare_files(paths: Iterable[str | Path], metrics: Sequence[str]) -> pd.DataFrame:
    """Return `compare` of each metric, with a column of its name, from files of measurements of the model itself."""
    parts = []
    for path in paths:
        measured = scores.read_table(path)
        measured = measured[measured["training_seed"] == 0]
        for metric, rows in measured.groupby("metric", sort=False):
            entries = [*dict.fromkeys(rows["method"])]
            for start in range(0, len(entries), MAX_METHODS):
                part = rows[rows["method"].isin(entries[start : start + MAX_METHODS])]
                parts.append(compare(part).assign(metric=metric))
    order = {metric: rank for rank, metric in enumerate(metrics)}
    parts = parts or [_build_empty().assign(metric="")]  # no method has scores, as of a game that fails
    compared = pd.concat(parts, ignore_index=True)[["metric", "method", "statistic", "x", "mean", "low", "high", "n"]]
    compared = compared[compared["metric"].isin(order)].assign(rank=compared["metric"].map(order))
    return compared.sort_values(["rank", "method"], kind="stable", ignore_index=True).drop(columns="rank")


def compare(measured: pd.DataFrame) -> pd.DataFrame:
    """Return mean and 95 % interval over instances per method, statistic and x, repeats averaged.

    n counts finite values; for one value, and for the seconds of a batch, low and high are NaN. Intervals stay within
    their statistic's bounds; of values that are all 0 or 1 they are Wilson's (1927).
    """
    keys = ["method", "statistic", "x"]
    if not np.isfinite(measured["value"]).any():  # every row failed; the diagnostics give the reasons
        return _build_empty()
    measured = measured.assign(x=measured["x"].fillna(-1.0), value=measured["value"].replace([np.inf, -np.inf], np.nan))
    wide = measured.pivot_table(index="instance", columns=keys, values="value", aggfunc="mean", dropna=False)
    wide = wide.loc[:, wide.notna().any()].sort_index()
    table = wide.columns.to_frame(index=False)
    table["x"] = table["x"].where(table["x"] >= 0)
    ends = intervals(wide).reset_index(drop=True)
    return _bound_intervals(
        table.assign(**{name: ends[name] for name in ("mean", "low", "high", "n")}), wide.to_numpy()
    )


def _build_empty() -> pd.DataFrame:
    """Return the table of a comparison without rows."""
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in KINDS.items()})


def _bound_intervals(table: pd.DataFrame, values: np.ndarray) -> pd.DataFrame:
    """Return the table with intervals within their statistics' bounds, where all values are."""
    names = table["statistic"].astype(str).str.removesuffix("_by_budget")
    bounds = {
        name: next((ends for match, ends in BOUNDS.items() if re.fullmatch(match, name)), None) for name in {*names}
    }
    least, most = (
        names.map({name: ends[end] for name, ends in bounds.items() if ends}).astype(float) for end in (0, 1)
    )
    within = (np.nanmin(values, axis=0) >= least) & (np.nanmax(values, axis=0) <= most)
    least, most = least.where(within, -np.inf), most.where(within, np.inf)
    binary = ((values == 0) | (values == 1) | np.isnan(values)).all(axis=0) & (least == 0) & (most == 1)
    low, high = (
        np.where(binary, end, table[name])
        for end, name in zip(wilson(table["mean"], table["n"]), ("low", "high"), strict=True)
    )
    missing = table["low"].isna()  # for one instance
    # Seconds that several instances share are the time of a batch, measured once per shard.
    missing |= (names == "seconds") & (2 * pd.DataFrame(values).nunique().to_numpy() <= table["n"])
    return table.assign(
        low=pd.Series(low, table.index).clip(lower=least).mask(missing),
        high=pd.Series(high, table.index).clip(upper=most).mask(missing),
    )


def wilson(share: pd.Series | float, count: pd.Series | int) -> tuple:
    """Return the ends of Wilson's 95 % score interval of a share of a count (Wilson 1927)."""
    middle = (share + Z95**2 / (2 * count)) / (1 + Z95**2 / count)
    half = Z95 / (1 + Z95**2 / count) * np.sqrt(np.maximum(share * (1 - share), 0) / count + Z95**2 / (4 * count**2))
    return np.minimum(middle - half, share), np.maximum(middle + half, share)  # against rounding
