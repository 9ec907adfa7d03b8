"""Texts of a prepared dataset: documents, their words, the tokens of new ones."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from shapeline.datasets import text, tokenizer
from shapeline.errors import ShapelineError


def documents(folder: str | os.PathLike, ids: Iterable[int]) -> list[str]:
    """The original texts of records of a prepared text dataset, in the order of the ids, which must be known."""
    return _document_column(Path(folder), ids, "text")


def ground_truth_words(folder: str | os.PathLike, ids: Iterable[int]) -> list[np.ndarray]:
    """Return per record whether each of words() decides the class; ShapelineError where that is not known."""
    return [np.array(flags, bool) for flags in _document_column(Path(folder), ids, "ground_truth_words")]


def words(document: str, card: dict) -> list[str]:
    """The words of a document as the tokenizer saw them, after truncation, in reading order: one a feature."""
    if card.get("tokenizer"):
        return tokenize([document], card).words[0]
    return text.split_words(document, card["unit"], card["input_shape"][0])


def encode(documents: list[str], card: dict) -> np.ndarray:
    """New documents as ids (n, length) int32 of a text dataset's vocabulary, cut and padded as its own are."""
    if card.get("tokenizer"):
        return tokenizer.pad_documents(tokenize(documents, card))[0]
    settings = text.Settings(card["unit"], card["input_shape"][0], len(card["vocabulary"]))
    return text.encode_with(documents, settings, card["vocabulary"])


def tokenize(documents: list[str], card: dict) -> tokenizer.Documents:
    """New documents by the tokenizer defined by the user that a dataset's card names."""
    return tokenizer.tokenize(documents, tokenizer.load_tokenizer(card["tokenizer"]), card["input_shape"][0])


def owners(documents: list[str], card: dict) -> np.ndarray:
    """Return the word of each token of new documents, (n, length) int32, as in Dataset."""
    return tokenizer.pad_documents(tokenize(documents, card))[1]


def _document_column(folder: Path, ids: Iterable[int], column: str) -> list:
    import pyarrow.parquet

    ids, file = [int(record) for record in ids], folder / "documents.parquet"
    try:
        if column not in pyarrow.parquet.read_schema(file).names:
            raise ShapelineError(
                f"{file}: the ground-truth words of this dataset are not known; remove the metric that needs them."
            )
        table = pyarrow.parquet.read_table(file, columns=["id", column], filters=[("id", "in", set(ids))])
    except FileNotFoundError as error:
        raise ShapelineError(f"{file}: is missing; delete the folder of the dataset and run again.") from error
    except (OSError, ValueError) as error:
        raise ShapelineError(f"{file}: damaged ({error}); delete the folder of the dataset and run again.") from error
    by_id = dict(zip(table["id"].to_pylist(), table[column].to_pylist(), strict=True))
    for record in ids:
        if record not in by_id:
            raise ShapelineError(f"{file}: there is no record {record}; prepare the dataset again.")
    return [by_id[record] for record in ids]
