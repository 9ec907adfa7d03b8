"""Values of a game in the row store, in the files of a run and in the cache of a call."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from shapeline import scores
from shapeline.attribution.row_store import ADDRESS, Table
from shapeline.designs.design import find_unique_rows
from shapeline.errors import ShapelineError, describe_exception, first_line
from shapeline.files import atomic, lock_folder

SLOW_SECONDS = 0.1  # values of evaluations that take longer are written before the next evaluation

SCHEMA = pa.schema([("values", pa.list_(pa.float64())), ("seconds", pa.float64())])
FILE = pa.schema([("game", pa.int32()), (ADDRESS, pa.string()), *SCHEMA])  # address: a coalition as digits 0 and 1


def read_attribute(game: object, name: str) -> object:
    """Return an attribute of a game, None where it has none. Raises ShapelineError where a property fails."""
    try:
        return getattr(game, name, None)
    except Exception as error:
        raise ShapelineError(f"{WHERE}: game.{name}: {describe_exception(error)}; correct the property") from error


class ValueRows:
    """The values of one game in a table of the row store, with the interface of a `ValueFile`; given: known rows."""

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
        """Return the coalitions and their values (K, outputs); None if there are none."""
        rows = pd.concat([self.given, self.table.read_all()], ignore_index=True).drop_duplicates(ADDRESS)
        self.seconds = dict(zip(rows[ADDRESS], rows["seconds"], strict=True))
        self.count = len(rows)
        return pd.Index(rows[ADDRESS], dtype=object), np.stack(rows["values"]) if len(rows) else None

    def keep(self, keys: pd.Index, values: np.ndarray) -> None:
        """Store the values that are new since the last call: on disk at once if they are slow, else soon."""
        now = time.monotonic()
        new = keys[self.count :].tolist()
        seconds = (now - self.since) / max(1, len(new))
        self.seconds.update(dict.fromkeys(new, seconds))
        self.table.append(pd.DataFrame({ADDRESS: new, "values": [*values[self.count :]], "seconds": seconds}))
        if seconds >= SLOW_SECONDS:
            self.table.flush()
        self.count, self.since = len(keys), time.monotonic()


def write_file(path: str, game: Iterable[int], rows: pd.DataFrame, metadata: dict) -> None:
    """Write the values that a job evaluated; rows: with the columns of SCHEMA, game: the number of each row's game."""
    table = pa.Table.from_pandas(rows.assign(game=list(game)), FILE, preserve_index=False)
    scores.write_table(path, table, metadata)


def read_files(paths: Iterable[str]) -> pd.DataFrame:
    """Return the rows of files of values."""
    return pd.concat([FILE.empty_table().to_pandas(), *map(scores.read_table, paths)], ignore_index=True)


WHERE = "shapley_values"
WRITE_INTERVAL = 10  # time until the next write, in units of the duration of the last one
NOISE = 1e-4  # permitted difference of a value that is evaluated again, as a share of the range of values
CACHE_SCHEMA = pa.schema([("coalition", pa.string()), ("value", pa.list_(pa.float64()))])


def allow_difference(table: np.ndarray) -> np.ndarray:
    """Return the difference (outputs,) that a second evaluation of a value may have, from known values (K, outputs)."""
    span, largest = np.ptp(table, axis=0), np.abs(table).max(axis=0)
    return np.where(span > 0, NOISE * span + 64 * np.finfo(float).eps * largest, 0.1 * NOISE * largest)


class ValueFile:
    """A Parquet file of coalitions and values that processes may share; writing takes at most a tenth of the time."""

    def __init__(self, path: Path, n_players: int, identity: str | None):
        self.path, self.n_players, self.identity = path.resolve(), n_players, identity  # a link is not replaced
        self.next, self.unwritten, self.stamp, self.others = 0.0, None, None, (pd.Index([]), None)
        self.is_named = False  # whether the file has an identity

    def __enter__(self) -> "ValueFile":
        return self

    def __exit__(self, *_) -> None:
        if self.unwritten:
            self._write(*self.unwritten)

    def keep(self, keys: pd.Index, values: np.ndarray) -> None:
        """Replace the values of the file, at once or, if the last write was recent, later."""
        self.unwritten = keys, values
        began = time.monotonic()
        if began >= self.next:
            self._write(keys, values)
            now = time.monotonic()
            self.next = now + WRITE_INTERVAL * (now - began)

    def read(self) -> tuple[pd.Index, np.ndarray | None]:
        """Return the coalitions and their values; none if there is no file yet. Raises ShapelineError."""
        try:
            self.stamp = self._read_stamp()
            if self.stamp is None:
                return pd.Index([], dtype=object), None
            with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
                about = dict(json.loads((file.schema_arrow.metadata or {})[b"shapeline"]))
                table = file.read(CACHE_SCHEMA.names)
            self._check(about)
            values = np.array(table["value"].to_pylist(), dtype=float)
            keys = pd.Index(table["coalition"].to_pylist(), dtype=object)
            are_coalitions = keys.is_unique and all(len(key) == self.n_players and not key.strip("01") for key in keys)
            if len(keys) and not (are_coalitions and values.ndim == 2 and np.isfinite(values).all()):
                raise ValueError("a row is no coalition with finite values, or occurs twice")
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise ShapelineError(
                f"{WHERE}: cache: {self.path} is not a file of values ({first_line(error)}); name another file, or "
                "remove it if it is a damaged cache"
            ) from None
        self.identity, self.is_named = self.identity or about.get("identity"), bool(about.get("identity"))
        return keys, values if len(keys) else None

    def _check(self, about: dict) -> None:
        """Raise ShapelineError for the values of another game."""
        count = about.get("n_players")
        if count != self.n_players:
            raise ShapelineError(
                f"{WHERE}: cache: {self.path} holds a game of {count} players and this one has {self.n_players}; name "
                "another file"
            )
        if self.identity and about.get("identity") and about["identity"] != self.identity:
            raise ShapelineError(
                f"{WHERE}: cache: {self.path} holds the values of another game ('{about['identity']}', not "
                f"'{self.identity}'); name another file"
            )

    def _read_stamp(self) -> tuple[int, int] | None:
        """Return what changes with each replacement of the file; None without a file."""
        return (self.path.stat().st_ino, self.path.stat().st_mtime_ns) if self.path.exists() else None

    def _join_others(self, keys: pd.Index, values: np.ndarray) -> tuple[pd.Index, np.ndarray]:
        """Return coalitions and values with those that other processes have written meanwhile."""
        others, table = self.others = self.others if self.stamp == self._read_stamp() else self.read()
        if table is None:
            return keys, values
        place = keys.get_indexer(others)
        known = place >= 0
        allowed = allow_difference(values)
        if table.shape[1] != values.shape[1] or (np.abs(table[known] - values[place[known]]) > allowed).any():
            raise ShapelineError(
                f"{WHERE}: cache: another process has written values of another game to {self.path}; name another file"
            )
        return keys.append(others[~known]), np.concatenate([values, table[~known]])

    def _write(self, keys: pd.Index, values: np.ndarray) -> None:
        about = json.dumps({"n_players": self.n_players, "identity": self.identity})
        self.unwritten = None
        try:
            with lock_folder(self.path.parent):
                keys, values = self._join_others(keys, values)
                starts = pa.array(np.arange(len(values) + 1) * values.shape[1], pa.int32())
                columns = [pa.array(keys.tolist(), pa.string()), pa.ListArray.from_arrays(starts, values.ravel())]
                table = pa.table(columns, schema=CACHE_SCHEMA.with_metadata({"shapeline": about}))
                with atomic(self.path) as partial:
                    pq.write_table(table, partial, write_page_checksum=True)
                self.stamp = self._read_stamp()
        except OSError as error:
            raise ShapelineError(f"{WHERE}: cache: {first_line(error)}; name a file that can be written") from error


VALUES = pa.schema([("mask", pa.binary()), ("value", pa.float64()), ("seconds", pa.float64())])
# From positions in the instances (a,) and masks (b, d), or (a, b, d) of each, to values (a, b) and their seconds.
Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]]


class ValueStore:
    """The values of one game per instance, of a model or any other set function; table: with the columns of VALUES."""

    def __init__(self, table: Table):
        self.table = table

    def values(
        self, addresses: Sequence[str], masks: np.ndarray, evaluate: Evaluate
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return values (n, K) of masks (K, d) or (n, K, d), and the number and the seconds of reused ones, (n,) each.
        Missing values are evaluated together for all instances that miss the same coalitions, and stored before the
        next call."""
        n, K, d = len(addresses), *masks.shape[-2:]
        values, seconds = np.empty((n, K)), np.zeros((n, K))
        known = np.zeros((n, K), bool)
        if not values.size:
            return values, known.sum(axis=1), seconds.sum(axis=1)
        keys = _build_keys(masks, d, n)
        stored = self.table.read({f"{address}-{d}" for address in addresses})
        if len(stored):
            rows = pd.Index(addresses).get_indexer(stored[ADDRESS].str.removesuffix(f"-{d}"))
            stored_keys = _join_keys(rows, np.frombuffer(b"".join(stored["mask"]), np.uint8).reshape(len(stored), -1))
            order = np.argsort(stored_keys)
            index = order[np.searchsorted(stored_keys, keys, sorter=order).clip(max=len(stored_keys) - 1)]
            known = stored_keys[index] == keys
            values[known] = stored["value"].to_numpy()[index[known]]
            seconds[known] = stored["seconds"].to_numpy()[index[known]]
        reused = known.sum(axis=1), seconds.sum(axis=1)
        for rows, columns in _group_missing(known):
            missing = masks[columns] if masks.ndim == 2 else masks[np.ix_(rows, columns)]
            new, took = evaluate(rows, missing)
            values[np.ix_(rows, columns)] = new
            packed = np.packbits(np.broadcast_to(missing, (*new.shape, d)), axis=2)
            self._store([f"{addresses[row]}-{d}" for row in rows], packed, new, took / new.size)
        return values, *reused

    def _store(self, addresses: list[str], packed: np.ndarray, values: np.ndarray, seconds: float) -> None:
        per_row = {"mask": [row.tobytes() for row in packed.reshape(values.size, -1)], "value": values.ravel()}
        self.table.append(pd.DataFrame({ADDRESS: np.repeat(addresses, values.shape[1]), **per_row, "seconds": seconds}))
        self.table.flush()


def _build_keys(masks: np.ndarray, d: int, n: int) -> np.ndarray:
    """Return the keys (n, K) of the coalitions of each instance."""
    packed = np.packbits(masks, axis=-1)
    packed = np.broadcast_to(packed, (n, *packed.shape[-2:]))
    instances = np.repeat(np.arange(n), packed.shape[1])
    return _join_keys(instances, packed.reshape(-1, packed.shape[2])).reshape(n, -1)


def _join_keys(instances: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """Return indices of instances (m,) and packed masks (m, bytes) as one sortable key (m,)."""
    joined = np.concatenate([instances.astype(">i4").reshape(-1, 1).view(np.uint8), packed], axis=1)
    return np.ascontiguousarray(joined).view(np.dtype((np.void, joined.shape[1]))).ravel()


def _group_missing(known: np.ndarray):
    """Yield groups of instances that miss the same coalitions, with the columns of these."""
    first, group = find_unique_rows(known)
    for number, row in enumerate(first):
        columns = np.flatnonzero(~known[row])
        if len(columns):
            yield np.flatnonzero(group == number), columns
