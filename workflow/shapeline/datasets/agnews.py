"""AG News (Zhang, Zhao & LeCun 2015): train.csv and test.csv with class, title, description."""

from pathlib import Path

import numpy as np

from shapeline.datasets import text

COLUMNS = ("class", "title", "description")
N_CLASSES = 4


def read(paths: dict[str, Path]) -> dict:
    """Title and description joined by a space, and the official split; without train.csv no split, and a note of it.

    paths: official file name -> path. Raises ShapelineError with file and line.
    """
    texts, labels, split = [], [], []
    for name, part in (("train.csv", 0), ("test.csv", 2)):
        if name in paths:
            with open(paths[name], "rb") as stream:
                for label, pieces in text.rows(str(paths[name]), stream, COLUMNS, N_CLASSES):
                    texts.append(" ".join(filter(None, pieces)))
                    labels.append(label)
                    split.append(part)
    records = {"texts": texts, "labels": np.array(labels, np.int64), "split": np.array(split, np.uint8)}
    if "train.csv" not in paths:
        note = f"train.csv is absent: the {len(texts):,} rows of test.csv were split here"
        records |= {"split": None, "notes": [f"{note}, so this is not the official task"]}
    return records
