"""A Parquet file of the values of one game, so that an interrupted run of expensive evaluations resumes."""

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from shapeline.errors import ShapelineError, first_line
from shapeline.files import atomic

WHERE = "shapley_values"
SHARE = 10  # times what the last writing took, before the next one
SCHEMA = pa.schema([("coalition", pa.string()), ("value", pa.list_(pa.float64()))])


class ValueFile:
    """A Parquet file of the values of one game: a coalition as 0 and 1 for each player, and its values.

    It is written anew under a temporary name and renamed, so that a killed process leaves what it wrote before: after
    each call of a game, unless writing would take more than a tenth of the time. A context manager writes the rest.
    """

    def __init__(self, path: Path, n_players: int, identity: str | None):
        self.path, self.n_players, self.identity = path, n_players, identity
        self.next, self.waiting = 0.0, None

    def __enter__(self) -> "ValueFile":
        return self

    def __exit__(self, *_) -> None:
        if self.waiting:
            self._write(*self.waiting)

    def keep(self, keys: pd.Index, values: np.ndarray) -> None:
        """Write all values in place of those there, now or, of quick evaluations, a little later."""
        self.waiting = keys, values
        began = time.monotonic()
        if began >= self.next:
            self._write(keys, values)
            now = time.monotonic()
            self.next = now + SHARE * (now - began)

    def read(self) -> tuple[pd.Index, np.ndarray | None]:
        """Return the coalitions and their values; none where there is no file yet. Raises ShapelineError."""
        if not self.path.exists():
            return pd.Index([], dtype=object), None
        try:
            with pq.ParquetFile(self.path) as file:
                about = json.loads((file.schema_arrow.metadata or {})[b"shapeline"])
                table = file.read(SCHEMA.names)
            values = np.array(table["value"].to_pylist(), dtype=float)
            keys = pd.Index(table["coalition"].to_pylist(), dtype=object)
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise ShapelineError(
                f"{WHERE}: cache: {self.path} is no file of values ({first_line(error)}); remove it or name another"
            ) from None
        self._check(about)
        self.identity = self.identity or about.get("identity")
        return keys, values if len(keys) else None

    def _check(self, about: dict) -> None:
        """Refuse the values of another game."""
        held = about.get("n_players")
        if held != self.n_players:
            raise ShapelineError(
                f"{WHERE}: cache: {self.path} holds a game of {held} players and this one has {self.n_players}; name "
                "another file"
            )
        if self.identity and about.get("identity") and about["identity"] != self.identity:
            raise ShapelineError(
                f"{WHERE}: cache: {self.path} holds the values of another game ('{about['identity']}', not "
                f"'{self.identity}'); name another file"
            )

    def _write(self, keys: pd.Index, values: np.ndarray) -> None:
        about = json.dumps({"n_players": self.n_players, "identity": self.identity})
        starts = pa.array(np.arange(len(values) + 1) * values.shape[1], pa.int32())
        columns = [pa.array(keys.tolist(), pa.string()), pa.ListArray.from_arrays(starts, values.ravel())]
        table = pa.table(columns, schema=SCHEMA.with_metadata({"shapeline": about}))
        self.waiting = None
        try:
            with atomic(self.path) as partial:
                pq.write_table(table, partial)
        except OSError as error:
            raise ShapelineError(f"{WHERE}: cache: {first_line(error)}; name a file that can be written") from error
