"""One's own documents: a CSV or Parquet file with a column of text and a column of classes."""

from pathlib import Path

import numpy as np

from shapeline.datasets import csv_file, table_file
from shapeline.errors import ShapelineError


def read(paths: dict[str, Path], text: str | None = None, target: str | None = None, form: dict | None = None) -> dict:
    """The documents of the column `text` and their classes; ids are the rows of the file, from 0.

    form: how a CSV file is written, see csv_file.
    Raises ShapelineError for a column that is not there, a document or class that is missing, and for one class.
    """
    (path,) = paths.values()
    table = table_file.frame(path, csv_file.form_of(form or {}))
    for key, name in (("text", text), ("target", target)):
        table_file.named(path, list(table), key, name)
    absent = table[text].isna()
    if absent.any():
        row = int(np.argmax(absent))
        raise ShapelineError(
            f"{path}: the column '{text}' is empty in {int(absent.sum())} row(s), first in row {row} (from 0); "
            "fill or remove them."
        )
    documents = table[text].to_list()
    for row, document in enumerate(documents):
        if not isinstance(document, str):
            raise ShapelineError(f"{path}: the column '{text}' holds {document!r} in row {row} (from 0), not a text.")
    return {"texts": documents, **table_file.classes_of(path, target, table[target])}
