"""Images as they are stored: mapped from their file, and float32 only where they are asked for."""

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BLOCK_BYTES = 1 << 24
CHECKED_BYTES = 1 << 20


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
        """These images alone, as they are stored."""
        return StoredImages(self.stored[rows], self.scale)

    def blocks(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """These images, a few at a time."""
        step = max(1, BLOCK_BYTES // (4 * self.stored[0].size))
        return (self[rows[start : start + step]] for start in range(0, len(rows), step))


def blocks(inputs: np.ndarray | StoredImages, rows: np.ndarray) -> Iterable[np.ndarray]:
    """These rows of a dataset's inputs as arrays: images a few at a time, all others at once."""
    return inputs.blocks(rows) if isinstance(inputs, StoredImages) else [inputs[rows]]


def mapped(path: Path, name: str) -> np.ndarray:
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
