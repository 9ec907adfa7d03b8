"""Yahoo! Answers, ten classes (Zhang, Zhao & LeCun 2015): train.csv and test.csv in an archive or a folder."""

from pathlib import Path

import numpy as np

from shapeline.datasets import archive, text
from shapeline.datasets.limits import of
from shapeline.errors import ShapelineError

COLUMNS = ("class", "question title", "question content", "best answer")
N_CLASSES = 10
PARTS = {"train.csv": 0, "test.csv": 2}


def read(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Title, question and answer joined by spaces, line breaks (\\n, <br />) as spaces, and the official split.

    paths: official file name -> .tgz or folder. Training rows come first. Raises ShapelineError with file and line.
    """
    (path,) = paths.values()
    records: dict[str, tuple[list[str], list[int]]] = {}
    allowed = of(limits, member=2000)  # training rows are 760 MB, and never in memory as one
    with archive.open_files(path, lambda name: name.split("/")[-1] in PARTS, allowed) as files:
        for name, stream in files:
            texts, labels = records.setdefault(name.split("/")[-1], ([], []))
            for label, pieces in text.rows(f"{path}, {name}", stream, COLUMNS, N_CLASSES):
                document = " ".join(filter(None, pieces))
                texts.append(document.replace("\\n", " ").replace("<br />", " "))
                labels.append(label)
    for name in PARTS:
        if name not in records:
            raise ShapelineError(f"{path}: holds no {name}, which yahoo needs.")
    return {
        "texts": [document for name in PARTS for document in records[name][0]],
        "labels": np.array([label for name in PARTS for label in records[name][1]], np.int64),
        "split": np.repeat(np.array(list(PARTS.values()), np.uint8), [len(records[name][1]) for name in PARTS]),
    }
