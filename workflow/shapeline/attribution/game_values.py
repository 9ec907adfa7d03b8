"""Values of a game in the row store and in the files of a run, so that no evaluation is lost or made twice."""

import time
from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

from shapeline import scores
from shapeline.attribution.row_store import ADDRESS, Table

LONG = 0.1  # seconds of an evaluation from which on its value is written before the next one

SCHEMA = pa.schema([("values", pa.list_(pa.float64())), ("seconds", pa.float64())])
FILE = pa.schema([("game", pa.int32()), (ADDRESS, pa.string()), *SCHEMA])  # a coalition as 0 and 1 for each player


class ValueRows:
    """The values of one game, in the place of a `ValueFile`: those that are known, and a table that keeps new ones.

    table: of the row store, of SCHEMA; given: rows of `read_files` that are known already. seconds: of each coalition.
    """

    def __init__(self, table: Table, given: pd.DataFrame):
        self.table, self.given = table, given
        self.seconds: dict[str, float] = {}
        self.count, self.since = 0, 0.0

    def __enter__(self) -> "ValueRows":
        self.since = time.monotonic()
        return self

    def __exit__(self, *_) -> None:
        self.table.__exit__()

    def read(self) -> tuple[pd.Index, np.ndarray | None]:
        """Return the coalitions and their values (K, outputs), None where there are none."""
        rows = pd.concat([self.given, self.table.read_all()], ignore_index=True).drop_duplicates(ADDRESS)
        self.seconds = dict(zip(rows[ADDRESS], rows["seconds"], strict=True))
        self.count = len(rows)
        return pd.Index(rows[ADDRESS], dtype=object), np.stack(rows["values"]) if len(rows) else None

    def keep(self, keys: pd.Index, values: np.ndarray) -> None:
        """Keep the values that are new since the last call: on disk at once if they took long, else soon."""
        now = time.monotonic()
        fresh = keys[self.count :].tolist()
        each = (now - self.since) / max(1, len(fresh))
        self.seconds.update(dict.fromkeys(fresh, each))
        self.table.append(pd.DataFrame({ADDRESS: fresh, "values": [*values[self.count :]], "seconds": each}))
        if each >= LONG:
            self.table.flush()
        self.count, self.since = len(keys), time.monotonic()


def write_file(path: str, game: Iterable[int], rows: pd.DataFrame, metadata: dict) -> None:
    """Write values that a job evaluated; rows: of the columns of a table, game: the number of each one's game."""
    table = pa.Table.from_pandas(rows.assign(game=list(game)), FILE, preserve_index=False)
    scores.write_table(path, table, metadata)


def read_files(paths: Iterable[str]) -> pd.DataFrame:
    """Return the rows of such files."""
    return pd.concat([FILE.empty_table().to_pandas(), *map(scores.read_table, paths)], ignore_index=True)
