"""Custom documents: a CSV or Parquet file with a column of text, or two of a pair, and a column of classes."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shapeline.datasets import csv_file, table_file
from shapeline.datasets.tokenizer import PAIR
from shapeline.errors import ShapelineError

if TYPE_CHECKING:
    import pandas as pd


def read(
    paths: dict[str, Path],
    text: str | None = None,
    target: str | None = None,
    text_pair: str | None = None,
    form: dict | None = None,
) -> dict:
    """Return the documents of a column, pairs with `text_pair`, and classes; ids are rows. Raises ShapelineError."""
    (path,) = paths.values()
    written = csv_file.read_format(form or {})
    table = table_file.frame(path, written)
    keys = {"text": text, "target": target} | ({} if text_pair is None else {"text_pair": text_pair})
    for key, name in keys.items():
        table_file.check_column(path, list(table), key, name)
    documents = read_documents(path, text, table[text], text_pair is not None)
    if text_pair is not None:
        seconds = read_documents(path, text_pair, table[text_pair], True)
        documents = [first + PAIR + second for first, second in zip(documents, seconds, strict=True)]
    return {"texts": documents, **table_file.read_classes(path, target, table[target], written)}


def read_documents(path: Path, name: str, column: "pd.Series", of_pairs: bool) -> list[str]:
    """A column that holds a text in every row, of pairs one that is more than spaces."""
    absent = column.isna()
    if of_pairs:
        absent |= column.map(lambda each: isinstance(each, str) and not each.strip())
    if absent.any():
        row = int(np.argmax(absent))
        raise ShapelineError(
            f"{path}: the column '{name}' is empty in {int(absent.sum())} row(s), first in row {row} (from 0); "
            "fill or remove them."
        )
    documents = column.to_list()
    for row, document in enumerate(documents):
        if not isinstance(document, str):
            raise ShapelineError(
                f"{path}: the column '{name}' holds {document!r} in row {row} (from 0), not a text"
                "; give a text, or remove the row."
            )
        if PAIR in document:
            raise ShapelineError(f"{path}: the column '{name}' holds the sign U+001E in row {row} (from 0); remove it.")
    return documents
