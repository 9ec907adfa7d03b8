"""Values of coalitions kept on disk, so that methods which ask for the same coalition of an instance share its value.

Every call that evaluates something adds one Parquet file: a row a coalition, sorted by its bits; `mask` holds the
packed bits, `values` one float64 an instance; instances, targets and the seconds that a value took stand in the
metadata, for a method costs what it asks, also where another one has asked it before. A file gets its name, which no
other file has, when it is whole, and never changes again, so jobs share a folder without locks. One that cannot be
read is told in the log and counts as absent; nobody removes it. Between two runs the folder may be deleted, at no loss
but of time.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from shapeline.designs.design import unique_rows
from shapeline.files import atomic

log = logging.getLogger("shapeline")
METADATA = b"shapeline"
UNREADABLE = (OSError, ValueError, KeyError, pa.ArrowException)  # what a damaged, foreign or vanished file raises


def key_of(files: Iterable[str | Path], facts: dict) -> str:
    """A key from the contents of files and from facts that JSON can hold: sixteen hexadecimal digits."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for content in sorted(map(_digest, files)):
        digest.update(content)
    return digest.hexdigest()[:16]


def _digest(file: str | Path) -> bytes:
    with open(file, "rb") as stream:  # arrays of pictures are larger than memory
        return hashlib.file_digest(stream, "sha256").digest()


class Cache:
    """The values of one model, dataset, reference, kind of feature and kind of value: of all that `key` digests."""

    def __init__(self, folder: str | Path, key: str):
        self.folder = Path(folder) / key
        self._headers: dict[Path, np.ndarray | None] = {}  # (2, m): instances and targets; None where unreadable
        self._seconds: dict[Path, float] = {}  # a value

    def values(
        self,
        instances: np.ndarray,
        targets: np.ndarray,
        masks: np.ndarray,
        evaluate: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values (n, K) float64 of masks (K, d) on instances (n,) for targets (n,); how many each has reused, (n,), and
        the seconds that these took when they were made, (n,).

        evaluate: from positions in instances (a,) and in masks (b,) to values (a, b) and the seconds they took. It is
        called for what is missing, once for all instances that miss the same coalitions, and what it gives is kept, bit
        for bit, before the next call. Memory: the answer and one file, which is as large as the answer that it was
        written for.
        """
        wanted = np.array([instances, targets], dtype=np.int64)
        values = np.empty((wanted.shape[1], len(masks)))
        known = np.zeros(values.shape, bool)
        reused, took = np.zeros(len(values), int), np.zeros(len(values))
        if not values.size:
            return values, reused, took
        d, keys = masks.shape[1], _keys(masks)
        for rows, places, kept_keys, kept, seconds in self._found(d, wanted, known, keys.dtype):
            at = np.searchsorted(kept_keys, keys)
            columns = np.flatnonzero(kept_keys.take(at, mode="clip") == keys) if len(kept) else at[:0]
            values[np.ix_(rows, columns)] = kept[np.ix_(at[columns], places)].T
            took[rows] += seconds * (~known[np.ix_(rows, columns)]).sum(axis=1)
            known[np.ix_(rows, columns)] = True
        reused = known.sum(axis=1)
        for rows, columns in _missing(known):
            made, seconds = evaluate(rows, columns)
            self._keep(f"{d}-{uuid.uuid4().hex}.parquet", wanted[:, rows], keys[columns], made, seconds / made.size)
            values[np.ix_(rows, columns)] = made
        return values, reused, took

    def drawn(
        self,
        instances: np.ndarray,
        targets: np.ndarray,
        masks: np.ndarray,
        evaluate: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same of masks (n, K, d) of each instance, with evaluate from positions in instances (a,) and masks
        (a, b, d) of each: called once, where one misses fewer than another its first again. What it gives is not kept,
        since no other draw would ask for it again.
        """
        wanted = np.array([instances, targets], dtype=np.int64)
        values, known = np.empty(masks.shape[:2]), np.zeros(masks.shape[:2], bool)
        d, took = masks.shape[2], np.zeros(len(masks))
        keys = _keys(masks.reshape(-1, d)).reshape(masks.shape[:2])
        for rows, places, kept_keys, kept, seconds in self._found(d, wanted, known, keys.dtype):
            for row, place in zip(rows, places, strict=True) if len(kept) else ():
                at = np.searchsorted(kept_keys, keys[row])
                there = kept_keys.take(at, mode="clip") == keys[row]
                took[row] += seconds * (there & ~known[row]).sum()
                values[row, there], known[row, there] = kept[at[there], place], True
        rows = np.flatnonzero(~known.all(axis=1))
        if len(rows):
            missing = [np.flatnonzero(~known[row]) for row in rows]
            most = max(map(len, missing))
            columns = np.stack([np.r_[own, np.full(most - len(own), own[0])] for own in missing])
            values[rows[:, None], columns], _ = evaluate(rows, masks[rows[:, None], columns])
        return values, known.sum(axis=1), took

    def _found(self, d: int, wanted: np.ndarray, known: np.ndarray, dtype: np.dtype) -> Iterator[tuple]:
        """Of each file that may have what is not yet known: positions wanted and in the file, its keys and values, and
        seconds a value.

        known: as the caller has filled it by the files before.
        """
        for path in sorted(self.folder.glob(f"{d}-*.parquet")):
            rows, places = self._places(path, wanted)
            if not known[rows].all():  # all, also where the file has none of the instances
                yield rows, places, *self._read(path, dtype), self._seconds[path]

    def _places(self, path: Path, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the wanted (2, n) that a file has, and their positions in the file."""
        if path not in self._headers:
            try:
                told = json.loads((pq.read_schema(path).metadata or {})[METADATA])
                self._headers[path] = np.array([told["instances"], told["targets"]], dtype=np.int64)
                self._seconds[path] = float(told.get("seconds", 0))  # none in files of an older version
            except UNREADABLE as error:
                self._leave_out(path, error)
        header = self._headers[path]
        if header is None:
            return np.zeros(0, int), np.zeros(0, int)
        return np.nonzero((wanted[0][:, None] == header[0]) & (wanted[1][:, None] == header[1]))

    def _read(self, path: Path, kind: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Keys (K,), sorted, and values (K, m) of a file; none of them where it cannot be read."""
        m = self._headers[path].shape[1]
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                table = file.read(use_threads=False).combine_chunks()
            keys = np.frombuffer(table["mask"].chunk(0).buffers()[1], kind)
            return keys, table["values"].chunk(0).flatten().to_numpy().reshape(len(keys), m)
        except UNREADABLE as error:
            self._leave_out(path, error)
            return np.zeros(0, kind), np.zeros((0, m))

    def _keep(self, name: str, header: np.ndarray, keys: np.ndarray, values: np.ndarray, seconds: float) -> None:
        order, size = np.argsort(keys), keys.dtype.itemsize
        packed = pa.py_buffer(keys[order].tobytes())
        columns = {
            "mask": pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(keys), [None, packed]),
            "values": pa.FixedSizeListArray.from_arrays(pa.array(values.T[order].ravel()), header.shape[1]),
        }
        told = json.dumps({"instances": header[0].tolist(), "targets": header[1].tolist(), "seconds": seconds})
        with atomic(self.folder / name) as partial:
            pq.write_table(
                pa.table(columns).replace_schema_metadata({METADATA: told}),
                partial,
                compression="zstd",
                use_dictionary=False,
                use_byte_stream_split=["values.list.element"],  # bytes of like weight together: smaller, and quicker
                write_page_checksum=True,
            )

    def _leave_out(self, path: Path, error: Exception) -> None:
        log.warning("%s cannot be read and is left out: %s", path, error)
        self._headers[path] = None


def _keys(masks: np.ndarray) -> np.ndarray:
    """Masks (K, d) as packed bits that compare as one (K,)."""
    packed = np.packbits(masks, axis=1)
    return packed.view(np.dtype((np.void, packed.shape[1]))).ravel()


def _missing(known: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Instances (positions) that miss the same coalitions (positions) and miss some."""
    first, group = unique_rows(known)
    for number, row in enumerate(first):
        columns = np.flatnonzero(~known[row])
        if len(columns):
            yield np.flatnonzero(group == number), columns


def overlap(designs: dict[str, np.ndarray]) -> pd.DataFrame:
    """How many coalitions labels share, and how many a cache leaves to evaluate; designs: label to masks (K, d) bool.

    A row a label: `evaluations` it asks, `new` ones that no label above asks, and those shared with each label. A mask
    that a label has twice, for another repeat, is asked twice. The sum of `new` is the same in every order of the
    labels; jobs that run at the same time evaluate more, up to what each asks.
    """
    asked = [len(masks) for masks in designs.values()]
    label = np.repeat(np.arange(len(asked)), asked)
    first, coalition = unique_rows(np.concatenate(list(designs.values())))
    has = np.zeros((len(asked), len(first)), dtype=np.int64)
    has[label, coalition] = 1
    table = pd.DataFrame(has @ has.T, list(designs), list(designs))
    table.insert(0, "evaluations", asked)
    table.insert(1, "new", np.bincount(has.argmax(0), minlength=len(asked)))
    return table
