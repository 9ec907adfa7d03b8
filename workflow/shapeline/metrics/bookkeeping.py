"""Metrics from the score file: efficiency gap, evaluations, seconds; and users' metric functions."""

import json
from typing import Any

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.datasets import sources
from shapeline.errors import ShapelineError, rename_place


def measure_efficiency(rows: pd.DataFrame) -> pd.DataFrame:
    """Return |Σφ - (v(N) - v(∅))| per instance, Σφ with pairs, in units of the value: 0 for an efficient method."""
    return _stack(rows, {"gap": np.abs(scores.sum_scores(rows) - (rows["value_full"] - rows["value_empty"]))})


def measure_cost(rows: pd.DataFrame) -> pd.DataFrame:
    """Return evaluations and seconds per instance."""
    return _stack(rows, {"evaluations": rows["evaluations"].astype(float), "seconds": rows["seconds"]})


def _stack(rows: pd.DataFrame, quantities: dict) -> pd.DataFrame:
    keys = rows[["instance", "repeat"]]
    return pd.concat(
        [keys.assign(statistic=name, x=np.nan, value=value) for name, value in quantities.items()], ignore_index=True
    )


MEASURES_KEY = "measures"  # of a row's details


def collect_prompts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measures of each prompt and repeat, by their names; those that a prompt lacks are left out."""
    result = [
        {"instance": row.instance, "repeat": row.repeat, "statistic": name, "x": np.nan, "value": value}
        for row in rows.itertuples()
        for name, value in (json.loads(row.details or "{}").get(MEASURES_KEY) or {}).items()
    ]
    return pd.DataFrame(result, columns=["instance", "repeat", "statistic", "x", "value"])


def measure_functions(
    rows: pd.DataFrame,
    functions: dict[str, str],
    game: Any = None,
    inputs: np.ndarray | None = None,
    buckets: list[tuple] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the results of each function ("file.py:function") for the score rows, (rows,) numbers; lower is better.

    Each receives those of rows, model, inputs, buckets, reference, backend, seed that it names.
    """
    available = {"rows": rows, "inputs": inputs, "buckets": buckets, "seed": seed}
    available |= {name: getattr(game, name, None) for name in ("model", "reference", "backend")}
    available["form"] = available["backend"]  # the name in functions for earlier versions
    frames = []
    for name, file in functions.items():
        with rename_place(f"source '{file}'", f"metric {name}: {file}"):
            values = np.asarray(sources.resolve(file)(available))
        if values.shape != (len(rows),) or values.dtype.kind not in "buif":
            raise ShapelineError(
                f"metric {name}: {file} returned {values.dtype} of shape {values.shape}; return {len(rows)} "
                "numbers, one per row"
            )
        frames.append(rows[["instance", "repeat"]].assign(statistic=name, x=np.nan, value=values.astype(float)))
    return pd.concat(frames, ignore_index=True)
