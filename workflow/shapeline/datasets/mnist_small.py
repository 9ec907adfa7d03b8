"""400 digits of MNIST, threes and eights (LeCun, Cortes & Burges 1998; CC BY-SA 3.0), as data/README.md says.

mnist_small.png has twenty digits a row: the first 150 threes and 150 eights for training, then 50 and 50 for the test.
"""

import hashlib
from pathlib import Path

import numpy as np

from shapeline.errors import ShapelineError

SHEET = Path(__file__).with_suffix(".png")
SHA256 = "a6ab4af1591c57cef88223385d8fdee598f549ee978b9eec74d5b35f4e964c19"
CLASSES = (3, 8)
PARTS = ((0, 150), (2, 50))  # split, and digits of each class
ACROSS, SIDE = 20, 28


def read(paths: dict[str, Path]) -> dict:
    """Return 400 images (n, 1, 28, 28) uint8, labels 0 (a three) and 1 (an eight), and parts; ShapelineError if
    changed."""
    from PIL import Image

    if not SHEET.exists() or hashlib.sha256(SHEET.read_bytes()).hexdigest() != SHA256:
        raise ShapelineError(f"{SHEET}: it is missing or changed; get it again with this package.")
    with Image.open(SHEET) as image:
        sheet = np.asarray(image)
    digits = sheet.reshape(-1, SIDE, ACROSS, SIDE).swapaxes(1, 2).reshape(-1, 1, SIDE, SIDE)
    runs = [(part, label, count) for part, count in PARTS for label in range(len(CLASSES))]  # as sheet_of puts them
    parts, labels, counts = zip(*runs, strict=True)
    return {
        "inputs": digits,
        "labels": np.repeat(labels, counts),
        "split": np.repeat(np.array(parts, np.uint8), counts),
    }


def sheet_of(records: dict) -> np.ndarray:
    """The digits of the sheet as one image (rows of 28, 20 times 28) uint8. records: what datasets.mnist reads."""
    chosen = [
        np.flatnonzero((records["split"] == part) & (records["labels"] == label))[:count]
        for part, count in PARTS
        for label in CLASSES
    ]
    digits = records["inputs"][np.concatenate(chosen), 0]
    return digits.reshape(-1, ACROSS, SIDE, SIDE).swapaxes(1, 2).reshape(-1, ACROSS * SIDE)
