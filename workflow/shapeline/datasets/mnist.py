"""MNIST (LeCun, Cortes & Burges 1998): the four official IDX files, gzipped or not."""

import math
from pathlib import Path

import numpy as np

from shapeline.datasets import archive
from shapeline.datasets.archive import DEFAULT_LIMITS, Limits
from shapeline.datasets.registry import file_digest
from shapeline.errors import ShapelineError

# IDX: two zero bytes, the type (8 is unsigned byte), the number of dimensions; then each size, 4 bytes, big-endian.
IMAGES, LABELS = 0x00000803, 0x00000801
SIDE, N_CLASSES = 28, 10

# 400 of the digits (CC BY-SA 3.0, data/README.md), twenty a row: the first 150 threes and 150 eights for training, then
# 50 and 50 for the test.
SHEET = Path(__file__).with_name("mnist_small.png")
SHEET_SHA256 = "a6ab4af1591c57cef88223385d8fdee598f549ee978b9eec74d5b35f4e964c19"
SHOWN = (3, 8)
PARTS = ((0, 150), (2, 50))  # split, and digits of each class
ACROSS = 20


def read(paths: dict[str, Path], limits: Limits | None = None) -> dict:
    """Return images (n, 1, 28, 28) uint8, labels 0..9 and the official split; ShapelineError names file and record."""
    inputs, labels, split = [], [], []
    for part, prefix in ((0, "train"), (2, "t10k")):
        image_path, label_path = paths[f"{prefix}-images-idx3-ubyte.gz"], paths[f"{prefix}-labels-idx1-ubyte.gz"]
        allowed = archive.choose_limits(limits)
        images, digits = read_idx(image_path, IMAGES, allowed), read_idx(label_path, LABELS, allowed)
        if images.shape[1:] != (SIDE, SIDE):
            height, width = images.shape[1:]
            raise ShapelineError(
                f"{image_path}: images of {height}x{width} pixels, expected {SIDE}x{SIDE}; get it again."
            )
        if len(images) != len(digits):
            raise ShapelineError(
                f"{label_path}: {len(digits)} labels, but {image_path.name} {len(images)} images; get both again."
            )
        if (digits >= N_CLASSES).any():
            record = int(np.argmax(digits >= N_CLASSES))
            raise ShapelineError(
                f"{label_path}: record {record} has the label {digits[record]}, expected 0 to 9; get it again."
            )
        inputs.append(images[:, None])
        labels.append(digits)
        split.append(np.full(len(digits), part, np.uint8))
    return {"inputs": np.concatenate(inputs), "labels": np.concatenate(labels), "split": np.concatenate(split)}


def read_idx(path: Path, magic: int, limits: Limits = DEFAULT_LIMITS) -> np.ndarray:
    """Return the array of unsigned bytes of an IDX file with this `magic`. Raises ShapelineError for a damaged file."""
    content = archive.read_file(path, limits)
    n_dimensions = magic & 0xFF
    header = 4 + 4 * n_dimensions
    number = int.from_bytes(content[:4], "big")
    if number != magic:
        hint = {IMAGES: " it holds images, so", LABELS: " it holds labels, so"}.get(number, "")
        raise ShapelineError(
            f"{path}: not the expected IDX file (magic number {number}, expected {magic});{hint} get the right file."
        )
    shape = [int.from_bytes(content[start : start + 4], "big") for start in range(4, header, 4)]
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise ShapelineError(f"{path}: {len(content):,} bytes, but its header promises {expected:,}; get it again.")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def read_small(paths: dict[str, Path]) -> dict:
    """Return 400 images (n, 1, 28, 28) uint8, labels 0 (a three) and 1 (an eight), and parts, by a checksum."""
    from PIL import Image

    if not SHEET.exists() or file_digest(SHEET, "sha256") != SHEET_SHA256:
        raise ShapelineError(f"{SHEET}: it is missing or changed; get it again with this package.")
    with Image.open(SHEET) as image:
        sheet = np.asarray(image)
    digits = sheet.reshape(-1, SIDE, ACROSS, SIDE).swapaxes(1, 2).reshape(-1, 1, SIDE, SIDE)
    runs = [(part, label, count) for part, count in PARTS for label in range(len(SHOWN))]
    parts, labels, counts = zip(*runs, strict=True)
    return {
        "inputs": digits,
        "labels": np.repeat(labels, counts),
        "split": np.repeat(np.array(parts, np.uint8), counts),
    }
