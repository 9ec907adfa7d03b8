"""Bring the labels of an experiment together, with bootstrap intervals over instances, and over draws from 3 on."""

import numpy as np
import pandas as pd

from shapeline.seeds import seed_of

RESAMPLES = 2000
LEVEL = 0.95
ENDS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
DRAWS = 3  # of a sampled design: from so many on, intervals include which were drawn


def compare(measured: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Mean and 95 % percentile bootstrap interval, per label, quantity and x.

    measured: label, instance, repeat, quantity, x, value. Instances are resampled, and of a label with 3 repeats or
    more the repeats too, apart from each other (`over_draws`); fewer are averaged, and the interval holds them fixed.
    All labels share the resampled instances, so that differences between labels are paired. n counts instances with a
    finite value; of one alone there is no interval, low and high are NaN.
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
    low, high = np.nanquantile(means, ENDS, axis=0)
    for label, rows in measured.groupby("label"):
        repeats = rows["repeat"].nunique()
        if repeats >= DRAWS:
            own = np.flatnonzero(wide.columns.get_level_values("label") == label)
            shifts = _shifts(draws, rows, wide.iloc[:, own], keys, seed)
            low[own], high[own] = over_draws(wide.iloc[:, own].mean().to_numpy(), means[:, own], [(shifts, repeats)])
    n = wide.notna().sum().to_numpy()
    low, high = (np.where(n > 1, end, np.nan) for end in (low, high))
    table = wide.columns.to_frame(index=False)
    table["x"] = table["x"].where(table["x"] >= 0)
    return table.assign(mean=wide.mean().to_numpy(), low=low, high=high, n=n)


def _means(draws: np.ndarray, wide: pd.DataFrame) -> np.ndarray:
    """Means (resamples, columns) of instances drawn so often (resamples, n); NaN where none has a value."""
    return _ratio(draws @ wide.fillna(0.0).to_numpy(), draws @ wide.notna().to_numpy().astype(float))


def over_draws(
    middle: np.ndarray, means: np.ndarray, shifts: list[tuple[np.ndarray, np.ndarray | int]]
) -> tuple[np.ndarray, np.ndarray]:
    """95 % intervals of means (columns,) over instances and few draws.

    means: (resamples, columns) of resampled instances; shifts: by how much drawing the repeats anew moves them, of the
    same shape and each with its number of repeats, a number or (columns,). Of R repeats the bootstrap finds
    (R - 1) / R of the variance, so shifts grow by sqrt(R / (R - 1)); a variance of R - 1 degrees of freedom asks for
    Student's t, so the interval widens round the mean by the t of Satterthwaite's (1946) degrees of freedom over z.
    """
    from scipy import stats  # half a second, which experiments without repeats need not wait for

    grown = [(np.sqrt(repeats / (repeats - 1)) * shift, repeats - 1) for shift, repeats in shifts]
    variances = [(np.nanvar(shift, axis=0), freedom) for shift, freedom in grown]
    total = np.nanvar(means, axis=0) + sum(variance for variance, _ in variances)
    rough = sum(variance**2 / freedom for variance, freedom in variances)
    freedom = np.divide(total**2, rough, out=np.full(total.shape, np.inf), where=rough > 0)
    wider = stats.t.ppf(ENDS[1], freedom) / stats.norm.ppf(ENDS[1])
    ends = np.nanquantile(means + sum(shift for shift, _ in grown), ENDS, axis=0)
    return tuple(middle + wider * (ends - middle))


def _shifts(draws: np.ndarray, rows: pd.DataFrame, wide: pd.DataFrame, keys: list[str], seed: int) -> np.ndarray:
    """By how much drawing the repeats of one label anew moves its mean in every resample, (resamples, columns)."""
    by_repeat = rows.pivot_table(index="instance", columns=["repeat", *keys], values="value", dropna=False)
    repeats = sorted(rows["repeat"].unique())
    random = np.random.default_rng(seed_of(seed, "bootstrap of draws"))
    often = random.multinomial(len(repeats), np.full(len(repeats), 1 / len(repeats)), size=len(draws))
    total, present, all_total, all_present = 0.0, 0.0, 0.0, 0.0
    for repeat, weight in zip(repeats, often.T[:, :, None], strict=True):
        values = by_repeat[repeat].reindex(index=wide.index, columns=wide.columns)
        sums, counts = draws @ values.fillna(0.0).to_numpy(), draws @ values.notna().to_numpy().astype(float)
        total, present = total + weight * sums, present + weight * counts
        all_total, all_present = all_total + sums, all_present + counts
    return _ratio(total, present) - _ratio(all_total, all_present)


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
