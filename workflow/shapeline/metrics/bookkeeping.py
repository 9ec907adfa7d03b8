"""What the score file itself tells: the efficiency gap, the evaluations and the seconds."""

import json

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


MEASURES_KEY = "measures"  # of a row's details


def prompts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measures of each prompt and repeat, by their names; those that a prompt lacks are left out."""
    result = [
        {"instance": row.instance, "repeat": row.repeat, "statistic": name, "x": np.nan, "value": value}
        for row in rows.itertuples()
        for name, value in (json.loads(row.details or "{}").get(MEASURES_KEY) or {}).items()
    ]
    return pd.DataFrame(result, columns=["instance", "repeat", "statistic", "x", "value"])
