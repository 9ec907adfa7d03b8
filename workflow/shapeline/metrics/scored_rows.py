"""The rows that a metric measures, its function by name, and its stored measurements."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa

from shapeline import scores
from shapeline.attribution.row_store import ADDRESS, Table
from shapeline.datasets import sources
from shapeline.metrics.registry import METRICS

log = logging.getLogger("shapeline")
STORED = pa.schema([scores.MEASURED.field(name) for name in ("instance", "repeat", "statistic", "x", "value")])


def select_rows(name: str, rows: pd.DataFrame, training_seed: int = 0) -> pd.DataFrame:
    """Return the successful rows of one training seed, with intermediate budgets where the metric uses them."""
    chosen = scores.select_succeeded(scores.select_training(rows, training_seed))
    return chosen if METRICS[name].reads_snapshots else scores.final(chosen)


def measure(name: str, rows: pd.DataFrame, needs: dict) -> pd.DataFrame:
    """Measure score rows by the metric of that name."""
    return sources.resolve(METRICS[name].function)({**needs, "rows": rows})


def open_table(store: str, key: str) -> Table:
    """Return the table of measurements of a key; without a store, one that stores nothing."""
    return Table(Path(store, "measurements", key) if store else None, STORED)


def measure_missing(
    name: str,
    table: Table,
    rows: pd.DataFrame,
    address: Callable[[pd.DataFrame], pd.Series],
    chunks: Callable[[pd.DataFrame], Iterable[pd.DataFrame]],
) -> pd.DataFrame:
    """Return measurements of score rows: the stored ones, and those of `chunks` of missing rows, which are stored."""
    addresses = address(rows)
    result = table.read(addresses)
    missing = rows[~addresses.isin(result[ADDRESS])].reset_index(drop=True)
    frames = [result] if len(result) or missing.empty else []
    for measured in chunks(missing) if len(missing) else ():
        frames.append(measured.assign(**{ADDRESS: address(measured)}))
        table.append(frames[-1])
    log.info("%s: %d rows computed, %d reused", name, len(missing), len(rows) - len(missing))
    return pd.concat(frames, ignore_index=True).drop(columns=ADDRESS)
