"""Yahoo! Answers, ten classes (Zhang, Zhao & LeCun 2015): train.csv and test.csv in an archive or a folder."""

from pathlib import Path

import numpy as np

from shapeline.datasets import archive, text
from shapeline.datasets.limits import of
from shapeline.datasets.sources import TEST, TRAIN, describe_subset
from shapeline.errors import ShapelineError

COLUMNS = ("class", "question title", "question content", "best answer")
N_CLASSES = 10
PARTS = {"train.csv": TRAIN, "test.csv": TEST}
WORDS = {"train": TRAIN, "test": TEST}  # in the names of files with other rows


def read(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Title, question and answer joined by spaces, line breaks (\\n, <br />) as spaces, and the official split.

    paths: official file name -> .tgz, folder, or folder with other files of such rows, whose names have "train" or
    "test". Training rows come first. Raises ShapelineError with file and line.
    """
    (path,) = paths.values()
    is_subset = path.is_dir() and not any((path / name).exists() for name in PARTS)
    parts = PARTS
    if is_subset:
        parts = {file.name: part for word, part in WORDS.items() for file in sorted(path.glob(f"*{word}*.csv"))}
    records: dict[str, tuple[list[str], list[int]]] = {}
    allowed = of(limits, member=2000)  # training rows are 760 MB, and never in memory as one
    with archive.open_files(path, lambda name: name.split("/")[-1] in parts, allowed) as files:
        for name, stream in files:
            texts, labels = records.setdefault(name.split("/")[-1], ([], []))
            for label, pieces in text.rows(f"{path}, {name}", stream, COLUMNS, N_CLASSES):
                document = " ".join(filter(None, pieces))
                texts.append(document.replace("\\n", " ").replace("<br />", " "))
                labels.append(label)
    for name in parts:
        if name not in records:
            raise ShapelineError(f"{path}: holds no {name}, which yahoo needs.")
    rows = {name: len(records[name][1]) for name in parts}
    return {
        "texts": [document for name in parts for document in records[name][0]],
        "labels": np.array([label for name in parts for label in records[name][1]], np.int64),
        "split": np.repeat(np.array(list(parts.values()), np.uint8), [*rows.values()]),
        **({"subset": describe_subset(rows, "yahoo_answers_csv.tgz")} if is_subset else {}),
    }
