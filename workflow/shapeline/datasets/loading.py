"""A prepared dataset in memory; images stay mapped from their file until rows of them are taken."""

import contextlib
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shapeline.datasets.sources import PARTS
from shapeline.errors import ShapelineError, nearest

BLOCK_BYTES = 1 << 24
CHECKED_BYTES = 1 << 20
TABLE = "table.parquet"  # the rows of a user's table in their own types
NAN = "nan"  # of attrs: its columns of objects whose missing cells are NaN


def is_series(card: dict) -> bool:
    """Return whether inputs are time series, (time, channels) or (channels, time): too narrow for grey images, or with
    names of channels; small squares are images."""
    if card.get("kind") != "image" or card.get("has_channels", True):
        return False
    shortest, longest = sorted(card["input_shape"][-2:])
    return bool(card.get("feature_names")) or shortest < min(8, longest) or longest > 4 * shortest


def check_channels(where: str, names: Iterable, sides: tuple[int, ...]) -> list[str]:
    """Return the names of a series' channels, whose sides are these. Raises ShapelineError if they do not fit."""
    names = [str(name) for name in names]
    if names and (len(names) not in sides or len(set(names)) < len(names)):
        raise ShapelineError(
            f"{where}: has {len(names)} names and a series the shape {sides}; give one per channel, each once"
        )
    return names


@contextlib.contextmanager
def explain_damage(folder: Path) -> Iterator[None]:
    """Raise a ShapelineError where a file of a prepared dataset that the block reads is missing or damaged."""
    again = "delete the folder and run again"
    try:
        yield
    except FileNotFoundError as error:
        raise ShapelineError(f"prepared dataset {folder}: {error.filename} is missing; {again}.") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ShapelineError(f"prepared dataset {folder}: damaged ({error}); {again}.") from error


@dataclass(frozen=True, eq=False)
class StoredImages(np.lib.mixins.NDArrayOperatorsMixin):
    """Stored pixels (n, channels, height, width) that become float32, divided by `scale`, when rows are taken."""

    stored: np.ndarray
    scale: float
    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def ndim(self) -> int:
        return self.stored.ndim

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, rows) -> np.ndarray:
        return self.stored[rows].astype(np.float32) / np.float32(self.scale)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    def __array_ufunc__(self, function, method, *arguments, **keywords):
        whole = (argument[:] if isinstance(argument, StoredImages) else argument for argument in arguments)
        return getattr(function, method)(*whole, **keywords)

    def __getattr__(self, name: str):
        if name.startswith("__") or name in ("stored", "scale"):  # asked before there are any, where it is copied
            raise AttributeError(name)
        return getattr(self[:], name)

    def only(self, rows: np.ndarray) -> "StoredImages":
        """Return only these images, without reading them."""
        return StoredImages(self.stored[rows], self.scale)

    def blocks(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield these images a few at a time."""
        step = max(1, BLOCK_BYTES // (4 * self.stored[0].size))
        return (self[rows[start : start + step]] for start in range(0, len(rows), step))


def blocks(inputs: np.ndarray | StoredImages, rows: np.ndarray) -> Iterable[np.ndarray]:
    """Yield arrays of these rows of a dataset's inputs: images a few at a time, others all at once."""
    return inputs.blocks(rows) if isinstance(inputs, StoredImages) else [inputs[rows]]


def map_array(path: Path, name: str) -> np.ndarray:
    """Return an array of an .npz file, read-only and read as used. Raises BadZipFile, ValueError or KeyError."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    with open(path, "rb") as stream:
        stream.seek(entry.header_offset + 26)  # the lengths of the name and of the extra field, which precede the data
        start = entry.header_offset + 30 + sum(np.frombuffer(stream.read(4), "<u2").tolist())
        stream.seek(start)
        version = np.lib.format.read_magic(stream)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = header(stream)
        offset = stream.tell()
        stream.seek(start)
        # Read, not mapped: the whole file would count as this process's memory while it is looked at.
        check, left = 0, entry.file_size
        while block := stream.read(min(left, CHECKED_BYTES)):
            check, left = zlib.crc32(block, check), left - len(block)
    if check != entry.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file '{name}.npy'")
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


if TYPE_CHECKING:
    from shapeline.datasets.table import Table


@dataclass(frozen=True, eq=False)
class Dataset:
    """A prepared dataset in memory.

    inputs: (n, *input_shape) float32 (images in [0, 1] as rows are taken), tables float64, token ids int32; labels:
    (n,) int64, float64 of a regression, (n, labels) uint8 of several; split: 0 train, 1 validation, 2 test; ids:
    positions in the source; owners: the word of each token, -1 of none; folder: read from.
    """

    inputs: np.ndarray | StoredImages
    labels: np.ndarray
    split: np.ndarray
    ids: np.ndarray
    card: dict
    owners: np.ndarray | None = None
    folder: Path | None = None

    @property
    def own_rows(self) -> "tuple[Table, np.ndarray] | None":
        """How the rows of a user's table are kept in their own types, and all cells (n, columns), or None."""
        if self.folder is None or "table_digest" not in self.card:
            return None
        columns = self.card.get("columns") or ()
        numbers = [each["name"] for each in columns if "values" in each and each["type"] in ("integer", "number")]
        return _load_rows(self.folder, self.card["table_digest"], tuple(numbers), self.card.get("array"))

    def part(self, name: str) -> "Dataset":
        """Return the records of one part: "train", "validation" or "test"."""
        if name not in PARTS:
            raise ShapelineError(f"part '{name}' of a dataset: unknown.{nearest(name, PARTS)}")
        rows = np.flatnonzero(self.split == PARTS.index(name))
        owners = None if self.owners is None else self.owners[rows]
        return Dataset(self.inputs[rows], self.labels[rows], self.split[rows], self.ids[rows], self.card, owners)

    def as_given(self) -> "Dataset":
        """Return the same with the cells of rows in their own types as inputs, for a model that is given such rows."""
        kept, cells = self.own_rows
        names = self.card["feature_names"]
        places = [place for place, column in enumerate(kept.columns) if not column.is_number]
        categories = {names[place]: list(map(str, kept.columns[place].categories)) for place in places}
        if kept.names is None:  # codes of an array, which its reader names
            categories = self.card.get("categories", {}) | categories
        card = {**self.card, "categorical": sorted(map(names.index, categories)), "categories": categories}
        return replace(self, inputs=cells, card=card)

    def as_numbers(self) -> "Dataset":
        """Return the same for a network, which takes float32."""
        return replace(self, inputs=self.inputs.astype(np.float32)) if self.card["kind"] == "table" else self


@lru_cache(maxsize=1)
def _load_rows(
    folder: Path, digest: str, categorical: tuple[str, ...], array: str | None
) -> "tuple[Table, np.ndarray]":
    import pandas as pd

    from shapeline.datasets import table

    with explain_damage(folder):
        content = (folder / TABLE).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"the checksum of {TABLE} is another")
        frame = pd.read_parquet(io.BytesIO(content))
        for name in frame.attrs.pop(NAN, ()):
            frame[name] = frame[name].where(frame[name].notna(), np.nan)
    kept, (cells,) = table.build_table([frame], array and np.dtype(array), categorical)
    return kept, cells


def load(folder: str | os.PathLike) -> Dataset:
    """Read what prepare() wrote. Raises ShapelineError if the folder is missing, damaged or mixed."""
    folder = Path(folder)
    with explain_damage(folder):
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        # Opened here because np.load leaves its own file open when the archive is damaged.
        with open(folder / "arrays.npz", "rb") as stream, np.load(stream, allow_pickle=False) as stored:
            labels, split, ids = (stored[key] for key in ("labels", "split", "ids"))
            inputs = map_array(folder / "arrays.npz", "inputs") if card["kind"] == "image" else stored["inputs"]
            owners = stored["owners"] if "owners" in stored.files else None
        rows = card.get("rows") or {part: sum(classes.values()) for part, classes in card["counts"].items()}
        counted = sum(rows.values())
        input_shape, scale, kind = card["input_shape"], card["scale"], card["kind"]
        if list(inputs.shape[1:]) != input_shape or not len(inputs) == len(labels) == len(split) == counted:
            raise ValueError("arrays.npz and card.json disagree")
    if kind == "image":
        inputs = StoredImages(inputs, scale)
    else:
        inputs = inputs.astype(np.int32 if kind == "text" else np.float64)
        if scale != 1:
            inputs /= scale
    return Dataset(inputs, labels, split, ids, card, owners, folder)
