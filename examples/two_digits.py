"""Handwritten digits, up to four in an image, with two independent labels: is there a 3, is there an 8?

The functions that examples/two_digits.yaml names; `read` takes the folder with the four files of MNIST.
"""

import numpy as np
from torch import nn

from shapeline.datasets import mnist, records, sources
from shapeline.datasets.registry import SOURCES
from shapeline.datasets.sources import TEST, TRAIN, VALIDATION

SIDE, COUNTS = 28, {TRAIN: 4000, VALIDATION: 400, TEST: 400}
NAMES = ("3", "8")
OTHERS = (0, 1, 2, 4, 6, 7, 9)
FILLED = 0.7  # share of the other places with another digit


def read(path: str) -> dict:
    """Images (4800, 1, 56, 56) uint8 of real digits, one a quarter at most; labels (4800, 2), and boxes of their ink.

    A 3 and an 8 are there with a probability of 1/2 each, independently. Test images consist of MNIST's test
    digits, the others of its training digits.
    """
    digits = mnist.read(records.local_files(SOURCES["mnist"], sources.expand(path)))
    images, classes, parts = digits["inputs"].reshape(-1, SIDE, SIDE), digits["labels"], digits["split"]
    random = np.random.default_rng(0)
    members = {
        (test, digit): np.flatnonzero((classes == digit) & ((parts == TEST) == test))
        for test in (False, True)
        for digit in range(10)
    }
    split = np.repeat(list(COUNTS), list(COUNTS.values()))
    inputs = np.zeros((len(split), 2, SIDE, 2, SIDE), np.uint8)  # a quarter is [:, row, :, column]
    labels = random.random((len(split), len(NAMES))) < 0.5
    boxes = []
    for canvas, present, part in zip(inputs, labels, split, strict=True):
        wanted = [int(name) for name, there in zip(NAMES, present, strict=True) if there]
        wanted += [int(random.choice(OTHERS)) for _ in range(4 - len(wanted)) if random.random() < FILLED]
        own = []
        for digit, place in zip(wanted, random.permutation(4), strict=False):
            (row, column), image = divmod(int(place), 2), images[random.choice(members[part == TEST, digit])]
            canvas[row, :, column] = image
            if str(digit) in NAMES:
                rows, columns = (np.flatnonzero((image > 0).any(axis)) for axis in (1, 0))
                top, left = SIDE * row, SIDE * column
                corners = top + rows[0], left + columns[0], top + rows[-1] + 1, left + columns[-1] + 1
                own.append([NAMES.index(str(digit)), *corners])
        boxes.append(np.array(own, np.int64).reshape(-1, 5))
    return {
        "inputs": inputs.reshape(-1, 1, 2 * SIDE, 2 * SIDE),
        "labels": labels.astype(np.uint8),
        "class_names": NAMES,
        "split": split,
        "boxes": boxes,
        "task": "multilabel",
    }


def network(classes: int, channels: int) -> nn.Module:
    """Three convolutions and the largest of what they find anywhere: (n, channels, 56, 56) -> (n, classes) logits."""
    layers: list[nn.Module] = []
    for before, filters in ((channels, 8), (8, 16), (16, 32)):
        layers += [nn.Conv2d(before, filters, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers[:-1], nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, classes))
