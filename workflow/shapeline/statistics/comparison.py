"""Bring the labels of an experiment together: means over instances, with intervals that hold."""

import numpy as np
import pandas as pd

from shapeline.statistics.bounds import intervals


def compare(measured: pd.DataFrame) -> pd.DataFrame:
    """Mean and 95 % interval, per label, quantity and x.

    measured: label, instance, repeat, quantity, x, value. Every instance has draws of its own, so its repeats are
    averaged and instances are the units (`bounds.intervals`). n counts instances with a finite value; of one alone
    there is no interval, low and high are NaN.
    """
    keys = ["label", "quantity", "x"]
    if not np.isfinite(measured["value"]).any():  # every row failed: the health table says why
        kinds = {"label": str, "quantity": str, "x": float, "mean": float, "low": float, "high": float, "n": int}
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})
    measured = measured.assign(x=measured["x"].fillna(-1.0), value=measured["value"].replace([np.inf, -np.inf], np.nan))
    wide = measured.pivot_table(index="instance", columns=keys, values="value", aggfunc="mean", dropna=False)
    wide = wide.loc[:, wide.notna().any()].sort_index()
    table = wide.columns.to_frame(index=False)
    table["x"] = table["x"].where(table["x"] >= 0)
    ends = intervals(wide).reset_index(drop=True)
    return table.assign(**{name: ends[name] for name in ("mean", "low", "high", "n")})
