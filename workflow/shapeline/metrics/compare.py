"""Bring the labels of an experiment together, with bootstrap intervals over instances."""

import numpy as np
import pandas as pd

from shapeline.seeds import seed_of

RESAMPLES = 2000
LEVEL = 0.95


def compare(measured: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Mean and 95 % percentile bootstrap interval over instances, per label, quantity and x.

    measured: label, instance, repeat, quantity, x, value. Repeats of an instance are averaged first. All labels share
    the resampled instances, so that differences between labels are paired. n counts instances with a finite value.
    """
    keys = ["label", "quantity", "x"]
    if not np.isfinite(measured["value"]).any():  # every row failed: the health table says why
        return pd.DataFrame({**{key: [] for key in (*keys, "mean", "low", "high")}, "n": []})
    measured = measured.assign(x=measured["x"].fillna(-1.0), value=measured["value"].replace([np.inf, -np.inf], np.nan))
    wide = measured.pivot_table(index="instance", columns=keys, values="value", aggfunc="mean", dropna=False)
    wide = wide.loc[:, wide.notna().any()].sort_index()
    values, present = wide.fillna(0.0).to_numpy(), wide.notna().to_numpy().astype(float)
    n = len(wide)
    random = np.random.default_rng(seed_of(seed, "bootstrap"))
    draws = random.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(float)  # how often each instance is drawn
    counts = draws @ present
    means = np.divide(draws @ values, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    table = wide.columns.to_frame(index=False)
    table["x"] = table["x"].where(table["x"] >= 0)
    return table.assign(mean=values.sum(0) / present.sum(0), low=low, high=high, n=present.sum(0).astype(int))
