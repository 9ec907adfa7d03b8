"""Large Movie Review Dataset (Maas et al. 2011): the official archive, or a folder of its layout."""

from pathlib import Path

import numpy as np

from shapeline.datasets import archive
from shapeline.datasets.limits import of
from shapeline.errors import ShapelineError

PARTS = {"train": 0, "test": 2}
CLASSES = {"neg": 0, "pos": 1}


def read(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """The labelled reviews, breaks (<br />) as spaces, and the official split; the `unsup` reviews are left out.

    Order, in whatever order they are stored: training first, negative first, then by file name. paths: official file
    name -> .tar.gz or folder with {train,test}/{neg,pos}/*.txt. Raises ShapelineError.
    """
    (path,) = paths.values()
    reviews = []
    with archive.open_files(path, lambda name: _place(name) is not None, of(limits)) as files:
        for name, stream in files:
            text = stream.read().decode("utf-8", "surrogateescape")
            reviews.append((*_place(name), text.replace("<br />", " ")))
    if not reviews:
        raise ShapelineError(f"{path}: holds no reviews; the layout is aclImdb/{{train,test}}/{{pos,neg}}/*.txt.")
    reviews.sort(key=lambda review: review[:3])
    split, labels, _, texts = zip(*reviews, strict=True)
    return {"texts": list(texts), "labels": np.array(labels), "split": np.array(split, np.uint8)}


def _place(name: str) -> tuple[int, int, str] | None:
    """Part, class and file name of a labelled review; None for all else."""
    part, folder, file = ([""] * 3 + name.split("/"))[-3:]
    known = part in PARTS and folder in CLASSES and file.endswith(".txt")
    return (PARTS[part], CLASSES[folder], file) if known else None
