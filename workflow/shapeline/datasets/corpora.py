"""Corpora of labelled texts: AG News, the Large Movie Review Dataset, sentence polarity, Yahoo! Answers."""

import io
from pathlib import Path

import numpy as np

from shapeline.datasets import archive, text
from shapeline.datasets.archive import of
from shapeline.datasets.sources import TEST, TRAIN, describe_subset
from shapeline.errors import ShapelineError

PARTS = {"train.csv": TRAIN, "test.csv": TEST}
AGNEWS_COLUMNS = ("class", "title", "description")
WORDS = {"train": TRAIN, "test": TEST}  # in the names of folders, and of files with other rows
IMDB_CLASSES = {"neg": 0, "pos": 1}
POLARITY_FILES = ("rt-polarity.neg", "rt-polarity.pos")
YAHOO_COLUMNS = ("class", "question title", "question content", "best answer")


def read_agnews(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Return AG News (Zhang, Zhao & LeCun 2015): title and description joined, and the official split.

    Without train.csv no split, and a note of it; train.csv may be a file of some rows. Raises ShapelineError.
    """
    texts, labels, split = [], [], []
    for name, part in PARTS.items():
        if name in paths:
            stream = io.BytesIO(archive.read_file(paths[name], of(limits)))
            for label, pieces in text.rows(str(paths[name]), stream, AGNEWS_COLUMNS, 4):
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


def read_imdb(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Return the labelled reviews of Maas et al. (2011) and the official split, breaks as spaces.

    Order: training first, negative first, then by name. paths: official file name -> .tar.gz or folder. Raises
    ShapelineError.
    """
    (path,) = paths.values()
    reviews = []
    with archive.open_files(path, lambda name: _review_place(name) is not None, of(limits)) as files:
        for name, stream in files:
            document = stream.read().decode("utf-8", "surrogateescape")
            reviews.append((*_review_place(name), document.replace("<br />", " ")))
    if not reviews:
        raise ShapelineError(f"{path}: holds no reviews; the layout is aclImdb/{{train,test}}/{{pos,neg}}/*.txt.")
    reviews.sort(key=lambda review: review[:3])
    split, labels, _, texts = zip(*reviews, strict=True)
    return {"texts": list(texts), "labels": np.array(labels), "split": np.array(split, np.uint8)}


def _review_place(name: str) -> tuple[int, int, str] | None:
    """Part, class and file name of a labelled review; None for all else."""
    part, folder, file = ([""] * 3 + name.split("/"))[-3:]
    known = part in WORDS and folder in IMDB_CLASSES and file.endswith(".txt")
    return (WORDS[part], IMDB_CLASSES[folder], file) if known else None


def read_polarity(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Return sentences of Pang & Lee (2005), negative first, without a split; in UTF-8 or Windows-1252."""
    (path,) = paths.values()
    sentences_of = {}
    with archive.open_files(path, lambda name: name.split("/")[-1] in POLARITY_FILES, of(limits)) as files:
        for name, stream in files:
            content = stream.read()
            try:
                sentences = content.decode("utf-8")
            except UnicodeDecodeError:
                sentences = content.decode("cp1252", "surrogateescape")
            # Not splitlines(), which also breaks at characters inside a sentence.
            sentences_of[name.split("/")[-1]] = [line.strip() for line in sentences.split("\n")]
    for name in POLARITY_FILES:
        if name not in sentences_of:
            raise ShapelineError(f"{path}: holds no {name}, which polarity needs; get it again.")
        if sentences_of[name][-1] == "":
            sentences_of[name].pop()  # what follows the last line's end
    return {
        "texts": [sentence for name in POLARITY_FILES for sentence in sentences_of[name]],
        "labels": np.repeat(np.arange(2), [len(sentences_of[name]) for name in POLARITY_FILES]),
    }


def read_yahoo(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Return Yahoo! Answers (Zhang, Zhao & LeCun 2015): title, question and answer joined, training first.

    paths: official file name -> .tgz, folder, or folder with files named "train" and "test". Raises ShapelineError.
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
            for label, pieces in text.rows(f"{path}, {name}", stream, YAHOO_COLUMNS, 10):
                document = " ".join(filter(None, pieces))
                texts.append(document.replace("\\n", " ").replace("<br />", " "))
                labels.append(label)
    for name in parts:
        if name not in records:
            raise ShapelineError(f"{path}: holds no {name}, which yahoo needs; get it again.")
    rows = {name: len(records[name][1]) for name in parts}
    return {
        "texts": [document for name in parts for document in records[name][0]],
        "labels": np.array([label for name in parts for label in records[name][1]], np.int64),
        "split": np.repeat(np.array(list(parts.values()), np.uint8), [*rows.values()]),
        **({"subset": describe_subset(rows, "yahoo_answers_csv.tgz")} if is_subset else {}),
    }
