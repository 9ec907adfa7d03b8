"""AG News (Zhang, Zhao & LeCun 2015): train.csv and test.csv with class, title, description."""

import io
from pathlib import Path

import numpy as np

from shapeline.datasets import archive, text
from shapeline.datasets.limits import of
from shapeline.datasets.sources import TEST, TRAIN, describe_subset

COLUMNS = ("class", "title", "description")
N_CLASSES = 4


def read(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Title and description joined by a space, and the official split; without train.csv no split, and a note of it.

    paths: official file name -> path; that of train.csv may be a file of some of its rows, whose name then differs.
    Raises ShapelineError with file and line.
    """
    texts, labels, split = [], [], []
    for name, part in (("train.csv", TRAIN), ("test.csv", TEST)):
        if name in paths:
            stream = io.BytesIO(archive.read_file(paths[name], of(limits)))
            for label, pieces in text.rows(str(paths[name]), stream, COLUMNS, N_CLASSES):
                texts.append(" ".join(filter(None, pieces)))
                labels.append(label)
                split.append(part)
    records = {"texts": texts, "labels": np.array(labels, np.int64), "split": np.array(split, np.uint8)}
    if "train.csv" not in paths:
        note = f"train.csv is absent: the {len(texts):,} rows of test.csv were split here"
        records |= {"split": None, "notes": [f"{note}, so this is not the official task"]}
    elif (path := paths["train.csv"]).name not in ("train.csv", "train.csv.gz"):
        records["subset"] = describe_subset({path.name: split.count(TRAIN)}, "train.csv")
    return records
