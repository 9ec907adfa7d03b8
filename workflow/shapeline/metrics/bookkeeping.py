"""What the score file itself tells: the efficiency gap, the evaluations and the seconds."""

import numpy as np
import pandas as pd


def efficiency(rows: pd.DataFrame) -> pd.DataFrame:
    """|Σφ - (v(N) - v(∅))| per instance, in units of the value: 0 for a method that shares out all of it."""
    total = np.array([np.sum(scores, dtype=float) for scores in rows["scores"]])  # rows may differ in length
    return _tidy(rows, {"gap": np.abs(total - (rows["value_full"] - rows["value_empty"]))})


def cost(rows: pd.DataFrame) -> pd.DataFrame:
    """Evaluations and seconds per instance."""
    return _tidy(rows, {"evaluations": rows["evaluations"].astype(float), "seconds": rows["seconds"]})


def _tidy(rows: pd.DataFrame, quantities: dict) -> pd.DataFrame:
    keys = rows[["instance", "repeat"]]
    return pd.concat(
        [keys.assign(statistic=name, x=np.nan, value=value) for name, value in quantities.items()], ignore_index=True
    )
