"""Stored rows, addressed by a digest of the facts that define their numbers.

An address names the instance's input, class and repeat. Every append renames a new Parquet segment into place: writers
share no file, readers need no lock, and a killed job loses only the rows since its last append. Rows outlive
Snakemake's outputs.
"""

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shapeline.files import atomic

log = logging.getLogger("shapeline")
ADDRESS = "address"
FLUSH_SECONDS = 2.0  # interval between two segments of a writer
MAX_SEGMENTS = 8  # a writer that closes a table with more segments merges them
READ_ERRORS = (OSError, ValueError, KeyError, pa.ArrowException)  # raised for a corrupt or removed file


def digest(facts: object) -> str:
    """Return 32 hexadecimal digits of facts that JSON can represent, independent of the order of keys."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def digest_file(path: str | Path) -> str:
    """Return the digest of a file's content."""
    with open(path, "rb") as stream:  # arrays of images are larger than memory
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def digest_array(values: np.ndarray) -> str:
    """Return the digest of an array's type, shape and cells."""
    if values.dtype.hasobject:
        return hashlib.sha256(repr(values.tolist()).encode()).hexdigest()[:32]
    return hashlib.sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).hexdigest()[:32]


def digest_frame(rows: pd.DataFrame, without: Sequence[str] = ()) -> str:
    """Return the digest of a table whose cells are numbers, texts or arrays."""
    return digest([[*rows.columns.drop([*without])], digest_rows(rows, without)])


def digest_rows(rows: pd.DataFrame, without: Sequence[str] = ()) -> list[str]:
    """Return the digest of each row of a table whose cells are numbers, texts or arrays."""
    kept = rows.drop(columns=[*without])
    return [
        digest([digest_array(cell) if isinstance(cell, np.ndarray) else repr(cell) for cell in row])
        for row in kept.itertuples(index=False, name=None)
    ]


class Table:
    """Rows of `schema` by address, written on exit; folder None stores nothing; growing: an address can gain rows."""

    def __init__(self, folder: str | Path | None, schema: pa.Schema, growing: bool = False):
        self.folder = None if folder is None else Path(folder)
        self.schema = pa.schema([(ADDRESS, pa.string()), *schema])
        self.growing, self.written = growing, time.monotonic()
        self._waiting: list[pd.DataFrame] = []
        self._addresses: dict[Path, frozenset[str]] = {}

    def __enter__(self) -> "Table":
        return self

    def __exit__(self, *_) -> None:
        self.flush()
        if not self.growing and len(segments := self._glob()) > MAX_SEGMENTS:
            self._merge(segments)

    def read(self, addresses: Iterable[str]) -> pd.DataFrame:
        """Return the rows with these addresses."""
        missing, result, segments = set(addresses), [], None
        while missing and segments != (segments := self._glob()):  # again where a job has merged some meanwhile
            result += self._load_rows(missing, segments)
        if result:
            _touch(self.folder)
        return pa.concat_tables([*result, self.schema.empty_table()]).to_pandas()

    def read_all(self) -> pd.DataFrame:
        """Return all rows."""
        addresses, segments = set(), None
        while segments != (segments := self._glob()):  # again where a job has merged some meanwhile
            addresses.update(*map(self._list_addresses, segments))
        return self.read(addresses)

    def append(self, rows: pd.DataFrame) -> None:
        """Store rows, which have a column `address`; rows of fast chunks are written together."""
        self._waiting.append(rows)
        if time.monotonic() - self.written >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the pending rows."""
        waiting, self._waiting = [rows for rows in self._waiting if len(rows)], []
        if self.folder is None or not waiting:
            return
        tables = [pa.Table.from_pandas(rows, self.schema, preserve_index=False) for rows in waiting]
        self._write(pa.concat_tables(tables))
        self.written = time.monotonic()

    def _glob(self) -> list[Path]:
        return [] if self.folder is None else sorted(self.folder.glob("*.parquet"))

    def _load_rows(self, missing: set[str], segments: Sequence[Path]) -> list[pa.Table]:
        """Return the rows of each segment that has missing addresses, and remove these addresses from `missing`."""
        result = []
        for path in segments:
            if present := missing & self._list_addresses(path):
                table = self._load(path, self.schema.names).cast(self.schema)
                table = table.filter(pc.is_in(table[ADDRESS], pa.array(sorted(present))))
                result.append(table)
                missing -= set() if self.growing else {*table[ADDRESS].to_pylist()}
        return result

    def _list_addresses(self, path: Path) -> frozenset[str]:
        if path not in self._addresses:
            self._addresses[path] = frozenset(self._load(path, [ADDRESS])[ADDRESS].unique().to_pylist())
        return self._addresses[path]

    def _load(self, path: Path, columns: list[str]) -> pa.Table:
        """Return columns of a segment; no rows if it is corrupt or another job has merged it meanwhile."""
        try:
            # pq.read_table would create a dataset of one file, which takes as long as reading it.
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                return file.read(columns, use_threads=False).select(columns)
        except READ_ERRORS as error:
            if not isinstance(error, FileNotFoundError):
                log.warning("%s cannot be read and is left out: %s", path, error)
            self._addresses[path] = frozenset()
            return pa.table({name: pa.array([], self.schema.field(name).type) for name in columns})

    def _write(self, table: pa.Table) -> bool:
        path = self.folder / f"{uuid.uuid4().hex}.parquet"
        try:
            with atomic(path) as partial:
                pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
        except OSError as error:  # a full disk, which the job's own output will report
            log.warning("rows cannot be kept for a later run: %s", error)
            return False
        return True

    def _merge(self, segments: Sequence[Path]) -> None:
        """Write segments as one and remove them; a reader that misses them meanwhile computes their rows."""
        missing = set().union(*map(self._list_addresses, segments))
        tables = self._load_rows(missing, segments)
        if tables and not missing and self._write(pa.concat_tables(tables)):
            for path in segments:
                path.unlink(missing_ok=True)


def _touch(folder: Path) -> None:
    try:
        os.utime(folder)
    except OSError:  # of another user, or on a read-only disk
        log.debug("%s cannot be touched", folder)
