"""The rows that a metric measures, and its function by name."""

import pandas as pd
import pyarrow as pa

from shapeline import scores
from shapeline.methods import calling
from shapeline.metrics.registry import METRICS

STORED = pa.schema([scores.MEASURED.field(name) for name in ("instance", "repeat", "quantity", "x", "value")])


def rows_of(name: str, rows: pd.DataFrame, training_seed: int = 0) -> pd.DataFrame:
    """The score rows of a label that a metric measures of one training: those that succeeded, with snapshots where it
    reads them."""
    chosen = scores.succeeded(scores.select_training(rows, training_seed))
    return chosen if METRICS[name].reads_snapshots else scores.final(chosen)


def measure(name: str, rows, needs: dict):
    """Measure score rows by the metric of that name; no rows, because every one failed, give no measurements."""
    if rows.empty:
        return rows[["instance", "repeat"]].assign(quantity="", x=0.0, value=0.0)
    return calling.resolve(METRICS[name].function)({**needs, "rows": rows})
