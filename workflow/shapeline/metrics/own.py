"""Metrics of one's own: functions in the user's files, by name."""

import numpy as np
import pandas as pd

from shapeline import methods
from shapeline.engine import Form
from shapeline.errors import ShapelineError
from shapeline.features import Features
from shapeline.models import Classifier
from shapeline.references import Reference


def measure(
    rows: pd.DataFrame,
    functions: dict[str, str],
    model: Classifier | None = None,
    inputs: np.ndarray | None = None,
    buckets: list[tuple[Features, np.ndarray]] | None = None,
    reference: Reference | None = None,
    form: Form | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """What each function gives for the score rows, (rows,) numbers; lower is better.

    functions: name -> "path/to/file.py:function". Each is given those it names of rows (score rows that succeeded),
    model, inputs (n, *input shape), buckets (features and the positions of the rows that have them), reference, form
    and seed. Raises ShapelineError where it returns anything but a number a row; its own errors pass, with a note that
    names the metric and the file.
    """
    available = {"rows": rows, "model": model, "inputs": inputs, "buckets": buckets, "reference": reference}
    available |= {"form": form, "seed": seed}
    frames = []
    for name, file in functions.items():
        try:
            values = np.asarray(methods.call(methods.function_of(file), available))
        except Exception as error:  # whatever the user's own code raises: its traceback says most
            error.add_note(f"metric {name}: {file} failed")
            raise
        if values.shape != (len(rows),) or values.dtype.kind not in "buif":
            raise ShapelineError(
                f"metric {name}: {file} returned {values.dtype} of shape {values.shape}; return {len(rows)} "
                "numbers, one a row"
            )
        frames.append(rows[["instance", "repeat"]].assign(quantity=name, x=np.nan, value=values.astype(float)))
    return pd.concat(frames, ignore_index=True)
