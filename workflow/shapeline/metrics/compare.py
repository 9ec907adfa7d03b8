"""Bring the labels of an experiment together, with bootstrap intervals over instances, and over draws from 3 on."""

import numpy as np
import pandas as pd

from shapeline.seeds import seed_of

RESAMPLES = 2000
LEVEL = 0.95
DRAWS = 3  # of a sampled design: from so many on, intervals include which were drawn


def compare(measured: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Mean and 95 % percentile bootstrap interval, per label, quantity and x.

    measured: label, instance, repeat, quantity, x, value. Instances are resampled, and of a label with 3 repeats or
    more the repeats too, apart from each other; fewer are averaged, and the interval holds them fixed. All labels share
    the resampled instances, so that differences between labels are paired. n counts instances with a finite value; of
    one alone there is no interval, low and high are NaN.
    """
    keys = ["label", "quantity", "x"]
    if not np.isfinite(measured["value"]).any():  # every row failed: the health table says why
        return pd.DataFrame({**{key: [] for key in (*keys, "mean", "low", "high")}, "n": []})
    measured = measured.assign(x=measured["x"].fillna(-1.0), value=measured["value"].replace([np.inf, -np.inf], np.nan))
    wide = measured.pivot_table(index="instance", columns=keys, values="value", aggfunc="mean", dropna=False)
    wide = wide.loc[:, wide.notna().any()].sort_index()
    n = len(wide)
    random = np.random.default_rng(seed_of(seed, "bootstrap"))
    draws = random.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(float)  # how often each instance is drawn
    means = _means(draws, wide)
    for label, rows in measured.groupby("label"):
        repeats = rows["repeat"].nunique()
        if repeats >= DRAWS:
            own = np.flatnonzero(wide.columns.get_level_values("label") == label)
            means[:, own] = _means_over_draws(draws, rows, wide.iloc[:, own], keys, seed)
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    n = wide.notna().sum().to_numpy()
    low, high = (np.where(n > 1, end, np.nan) for end in (low, high))
    table = wide.columns.to_frame(index=False)
    table["x"] = table["x"].where(table["x"] >= 0)
    return table.assign(mean=wide.mean().to_numpy(), low=low, high=high, n=n)


def _means(draws: np.ndarray, wide: pd.DataFrame) -> np.ndarray:
    """Means (resamples, columns) of instances drawn so often (resamples, n); NaN where none has a value."""
    return _ratio(draws @ wide.fillna(0.0).to_numpy(), draws @ wide.notna().to_numpy().astype(float))


def _means_over_draws(
    draws: np.ndarray, rows: pd.DataFrame, wide: pd.DataFrame, keys: list[str], seed: int
) -> np.ndarray:
    """The same, of one label, with its repeats drawn anew in every resample."""
    by_repeat = rows.pivot_table(index="instance", columns=["repeat", *keys], values="value", dropna=False)
    repeats = sorted(rows["repeat"].unique())
    random = np.random.default_rng(seed_of(seed, "bootstrap of draws"))
    often = random.multinomial(len(repeats), np.full(len(repeats), 1 / len(repeats)), size=len(draws))
    total, present = 0.0, 0.0
    for repeat, weight in zip(repeats, often.T, strict=True):
        values = by_repeat[repeat].reindex(index=wide.index, columns=wide.columns)
        total = total + weight[:, None] * (draws @ values.fillna(0.0).to_numpy())
        present = present + weight[:, None] * (draws @ values.notna().to_numpy().astype(float))
    return _ratio(total, present)


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
