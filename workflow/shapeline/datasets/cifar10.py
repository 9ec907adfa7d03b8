"""CIFAR-10 (Krizhevsky 2009): the official binary archive, or the folder that it unpacks to; no pickles."""

from pathlib import Path

import numpy as np

from shapeline.datasets import archive
from shapeline.datasets.archive import Limits, of
from shapeline.datasets.sources import TEST, TRAIN, describe_subset
from shapeline.errors import ShapelineError

# In the order of the records; the last is the test part.
BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
SHAPE, N_CLASSES = (3, 32, 32), 10
WORDS = {"train": TRAIN, "test": TEST}  # in the names of other files of such records
RECORD = 1 + 3 * 32 * 32  # bytes: the label, then red, green and blue, each row by row


def read(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Images (n, 3, 32, 32) uint8, labels 0..9, and the official split: the five training batches first, then test.

    paths: official file name -> .tar.gz, folder with the six .bin files, or folder with other files of such records,
    whose names have "train" or "test". Raises ShapelineError.
    """
    (path,) = paths.values()
    if path.is_dir() and not any((path / name).exists() for name in BATCHES):
        return _read_subset(
            {file: part for word, part in WORDS.items() for file in sorted(path.glob(f"*{word}*.bin*"))}, of(limits)
        )
    with archive.open_files(path, lambda name: name.split("/")[-1] in BATCHES, of(limits)) as files:
        contents = {name.split("/")[-1]: stream.read() for name, stream in files}
    for name in BATCHES:
        if name not in contents:
            hint = "cifar10 reads the binary version, cifar-10-binary.tar.gz, and not the pickles of the python version"
            raise ShapelineError(f"{path}: holds no {name}; {hint}.")
    records = [_parse_records(f"{path}: {name}", contents[name]) for name in BATCHES]
    return _join_batches(records, [TEST if name == BATCHES[-1] else TRAIN for name in BATCHES])


def _read_subset(files: dict[Path, int], limits: Limits) -> dict:
    """Read files of records; files: the part of each."""
    records = [_parse_records(str(path), archive.read_file(path, limits)) for path in files]
    rows = {path.name: len(batch) for path, batch in zip(files, records, strict=True)}
    return _join_batches(records, [*files.values()]) | {"subset": describe_subset(rows, "cifar-10-binary.tar.gz")}


def _parse_records(where: str, content: bytes) -> np.ndarray:
    """Return the records of a file, (n, RECORD) uint8; raise ShapelineError where it holds something else."""
    if not content or len(content) % RECORD:
        raise ShapelineError(f"{where}: has {len(content):,} bytes, not records of {RECORD:,} bytes; get it again.")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    if (records[:, 0] >= N_CLASSES).any():
        record = int(np.argmax(records[:, 0] >= N_CLASSES))
        raise ShapelineError(
            f"{where}, record {record}: has the label {records[record, 0]}, expected 0 to 9; get it again."
        )
    return records


def _join_batches(batches: list[np.ndarray], parts: list[int]) -> dict:
    """Return the dictionary of a reader; parts: of each batch."""
    records = np.concatenate(batches)
    return {
        "inputs": records[:, 1:].reshape(-1, *SHAPE),
        "labels": records[:, 0],
        "split": np.repeat(parts, [len(batch) for batch in batches]).astype(np.uint8),
    }
