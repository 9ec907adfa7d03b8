"""CIFAR-10 (Krizhevsky 2009): the official binary archive, or the folder that it unpacks to; no pickles."""

from pathlib import Path

import numpy as np

from shapeline.datasets import archive
from shapeline.datasets.limits import of
from shapeline.errors import ShapelineError

# In the order of the records; the last is the test part.
BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
SHAPE, N_CLASSES = (3, 32, 32), 10
RECORD = 1 + 3 * 32 * 32  # bytes: the label, then red, green and blue, each row by row


def read(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Pictures (n, 3, 32, 32) uint8, labels 0..9, and the official split: the five training batches first, then test.

    paths: official file name -> .tar.gz or folder with the six .bin files. Raises ShapelineError.
    """
    (path,) = paths.values()
    with archive.open_files(path, lambda name: name.split("/")[-1] in BATCHES, of(limits)) as files:
        contents = {name.split("/")[-1]: stream.read() for name, stream in files}
    for name in BATCHES:
        if name not in contents:
            hint = "cifar10 reads the binary version, cifar-10-binary.tar.gz, and not the pickles of the python version"
            raise ShapelineError(f"{path}: holds no {name}; {hint}.")
        size = len(contents[name])
        if not size or size % RECORD:
            raise ShapelineError(f"{path}: {name} has {size:,} bytes, not records of {RECORD:,} bytes; get it again.")
    records = [np.frombuffer(contents[name], np.uint8).reshape(-1, RECORD) for name in BATCHES]
    for name, batch in zip(BATCHES, records, strict=True):
        if (batch[:, 0] >= N_CLASSES).any():
            record = int(np.argmax(batch[:, 0] >= N_CLASSES))
            raise ShapelineError(f"{path}: {name}, record {record} has the label {batch[record, 0]}, expected 0 to 9.")
    split = np.repeat([2 * (name == BATCHES[-1]) for name in BATCHES], [len(batch) for batch in records])
    records = np.concatenate(records)
    return {
        "inputs": records[:, 1:].reshape(-1, *SHAPE),
        "labels": records[:, 0],
        "split": split.astype(np.uint8),
    }
