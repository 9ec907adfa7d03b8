"""Measures of scores of a prompt, which the job that has the language model computes (generation/measures.py)."""

import json

import numpy as np
import pandas as pd

KEY = "measures"  # of a row's details


def measure(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measures of each prompt and repeat, by their names; those that a prompt lacks are left out."""
    found = [
        {"instance": row.instance, "repeat": row.repeat, "statistic": name, "x": np.nan, "value": value}
        for row in rows.itertuples()
        for name, value in (json.loads(row.details or "{}").get(KEY) or {}).items()
    ]
    return pd.DataFrame(found, columns=["instance", "repeat", "statistic", "x", "value"])
