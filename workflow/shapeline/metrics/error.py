"""Accuracy: how far scores are from the label taken as truth."""

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from shapeline import scores


def measure(rows: pd.DataFrame, truth: pd.DataFrame, top: float = 0.2) -> pd.DataFrame:
    """RMSE (units of the value), Spearman correlation and top-k overlap with the truth, per instance and repeat.

    rows and truth are score rows that succeeded; instances without a truth are left out. top: share of the features
    that counts as the top, k = ceil(top * d). Spearman is NaN where either side is constant.
    """
    both = rows.merge(truth[["instance", "target", "scores"]], on=["instance", "target"], suffixes=("", "_true"))
    mine, true = (
        scores.matrix(both),
        np.stack(both["scores_true"].to_list()).astype(float) if len(both) else np.zeros((0, 0)),
    )
    k = max(1, int(np.ceil(top * mine.shape[1])))
    quantities = {
        "rmse": np.sqrt(((mine - true) ** 2).mean(1)),
        "spearman": _correlation(rankdata(mine, axis=1), rankdata(true, axis=1)),
        "top_k_overlap": (_top(mine, k) & _top(true, k)).sum(1) / k,
    }
    keys = both[["instance", "repeat"]]
    return pd.concat(
        [keys.assign(quantity=name, x=np.nan, value=value) for name, value in quantities.items()], ignore_index=True
    )


def _correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = (m - m.mean(1, keepdims=True) for m in (a, b))
    scale = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.divide((a * b).sum(1), scale, out=np.full(len(a), np.nan), where=scale > 0)


def _top(values: np.ndarray, k: int) -> np.ndarray:
    """Membership of the k highest scores of each row, (n, d) bool."""
    member = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(member, np.argpartition(-values, k - 1, axis=1)[:, :k], True, axis=1)
    return member
