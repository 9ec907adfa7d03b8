"""Custom tables and documents in a CSV or Parquet file.

A table becomes numbers, and codes of other columns; the card's `columns` describe each.
"""

import json
import math
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shapeline.datasets import csv_file
from shapeline.datasets.csv_file import PLAIN, CsvFormat
from shapeline.datasets.text import PAIR
from shapeline.errors import ShapelineError, first_line, nearest, shorten_name

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".tsv", ".parquet")
UNNAMED_INDEX = r"__index_level_\d+__"  # pandas' name of it in a file
TYPES = {"string": "text", "floating": "number", "categorical": "category"}  # pandas' names -> the card's
MAX_CLASSES = 20  # different values of a column of classes, also of one that `init` guesses


def read(
    paths: dict[str, Path],
    target: str | None = None,
    task: str = "classification",
    columns: list[str] | None = None,
    categorical: list[str] | None = None,
    form: CsvFormat = PLAIN,
) -> dict:
    """Return inputs (n, columns) float64, NaN where missing, in the order of `columns` (all but the target).

    categorical: columns of numbers that are categories. Ids are rows of the file. Raises ShapelineError for missing
    or unusable columns and targets.
    """
    (path,) = paths.values()
    table = frame(path, form)
    names = select_columns(path, list(table), target, columns, categorical)
    if not _is_parquet(path):  # in Parquet, the type of a column is intended
        for name in names:
            if name not in (categorical or ()):
                csv_file.refuse_numbers(f"{path}, column '{name}'", table[name], form)
        if task == "regression":
            csv_file.refuse_numbers(f"{path}, column '{target}'", table[target], form, "remove the rows")
    stored = [encode_column(f"{path}, column '{name}'", table[name], name in (categorical or ())) for name in names]
    inputs = np.stack([values for values, _ in stored], axis=1)
    described = [{"name": name, **what} for name, (_, what) in zip(names, stored, strict=True)]
    missing = {name: int(count) for name, count in zip(names, np.isnan(inputs).sum(0), strict=True) if count}
    notes = [f"cells missing in {', '.join(f'{name} ({count})' for name, count in missing.items())}"] if missing else []
    words = {name: result for name, result in table.attrs.get("words", {}).items() if name in names}
    if not_read := index_names(path):
        names_of_index = ", ".join(map(shorten_name, not_read))
        notes.append(f"not read, as it is the index of the file: {names_of_index} (reset_index() makes columns of it)")
    unnamed = [name for name in names if re.fullmatch(r"Unnamed: \d+", name) and table[name].dtype.kind in "iu"]
    counting = [name for name in unnamed if (table[name].diff()[1:] == 1).all()]
    if counting and columns is None:
        notes.append(f"{counting[0]} is an index that counts the rows, and a feature here (columns leaves it out)")
    if words:
        kept = ", ".join(f"{' and '.join(map(repr, result))} in {name}" for name, result in words.items())
        notes.append(f"words of texts and categories, not missing cells (na_values makes them so): {kept}")
    return {
        "inputs": inputs,
        "frame": table[names],
        "task": task,
        **(read_numbers if task == "regression" else read_classes)(path, target, table[target], form),
        "feature_names": names,
        "categories": {column["name"]: column["values"] for column in described if "values" in column},
        "columns": described,
        "missing": missing,
        "notes": notes,
    }


def select_columns(
    path: Path, header: list[str], target: str | None, columns: list[str] | None, categorical: list[str] | None
) -> list[str]:
    """Return the feature columns. Raises ShapelineError for unknown names, no column, or the target's column."""
    check_column(path, header, "target", target)
    for key, listed in (("columns", columns), ("categorical", categorical)):
        for name in listed or ():
            check_column(path, header, key, name)
    names = [name for name in header if name != target] if columns is None else list(columns)
    if target in names:
        raise ShapelineError(f"dataset key 'columns': '{target}' is the target; remove it.")
    if not names and columns is None:
        raise ShapelineError(f"{path}: has no column beside the target '{target}'; give a table with features.")
    if not names or len(set(names)) < len(names):
        raise ShapelineError(
            f"dataset key 'columns': {shorten_name(names)} is not a list of columns; give one or more, each once."
        )
    for name in categorical or ():
        if name not in names:
            raise ShapelineError(f"dataset key 'categorical': '{name}' is not among the columns.{nearest(name, names)}")
    return names


def check_column(path: Path, header: list[str], key: str, name: str | None) -> None:
    """Raise ShapelineError unless the key names a column of the header."""
    if name is None:
        raise ShapelineError(f"dataset key '{key}': is missing; name one of the columns of {path}.")
    if name not in header:
        if name in index_names(path):
            raise ShapelineError(
                f"dataset key '{key}': '{shorten_name(name)}' is the index of the data frame in {path} and no column; "
                "write the file with reset_index()."
            )
        raise ShapelineError(
            f"dataset key '{key}': {path} has no column '{shorten_name(name)}'{csv_file.missing_column(header, name)}"
        )


def header(path: Path, form: CsvFormat = PLAIN) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file, without reading its rows."""
    _check_suffix(path, form)
    if not _is_parquet(path):
        return csv_file.header(path, form)
    index, names = index_names(path), _read_schema(path).names
    names = [name for name in names if name not in index and not re.fullmatch(UNNAMED_INDEX, name)]
    csv_file.refuse_repeated(f"{path}, header", names)
    return names


def _read_schema(path: Path) -> Any:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_schema(path)
    except (OSError, ValueError) as error:
        raise _explain_failure(path, error) from error


def index_names(path: Path) -> list[str]:
    """Return the names of the index of a data frame in a Parquet file, which is not read; none of other files."""
    if not _is_parquet(path):
        return []
    try:
        index = json.loads((_read_schema(path).metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        names = [one.get("name") if isinstance(one, dict) else one for one in index]  # a dict is a range
    except (ValueError, AttributeError):  # of metadata that are none of pandas
        return []
    return [name for name in names if isinstance(name, str) and not re.fullmatch(UNNAMED_INDEX, name)]


def frame(path: Path, form: CsvFormat = PLAIN) -> "pd.DataFrame":
    """Return the whole file as pandas reads it, but for words such as NA in columns of texts (csv_file.frame)."""
    _check_suffix(path, form)
    table = _read_parquet(path) if _is_parquet(path) else csv_file.frame(path, form)
    if not len(table):
        raise ShapelineError(f"{path}: holds a header and no rows; give a file with rows.")
    return table


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    header(path)  # refuses duplicate names, which pandas would merge
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError, TypeError, NotImplementedError) as error:  # arrow's own errors are these
        raise _explain_failure(path, error) from error
    if table.columns.nlevels > 1:
        raise ShapelineError(
            f"{path}: its columns have names of {table.columns.nlevels} levels; join them before writing, by "
            "table.columns = table.columns.map('_'.join)."
        )
    table = table.rename(columns=str).reset_index(drop=True)
    csv_file.refuse_repeated(f"{path}, header", list(table))
    decimals = [name for name in table if pd.api.types.infer_dtype(table[name], skipna=True) == "decimal"]
    return table.astype(dict.fromkeys(decimals, np.float64))  # pandas holds them as objects, which are categories


def class_name(value: object) -> str:
    """Return the name of a class, independent of the type of its column: 1, 1.0 and True have one name."""
    value = value.item() if isinstance(value, np.generic) else value
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_classes(path: Path, target: str, values: "pd.Series", form: CsvFormat = PLAIN) -> dict:
    """Return labels (n,) and class names of a target column."""
    _check_filled(path, target, values, form)
    kind = values.dtype.kind if isinstance(values.dtype, np.dtype) else "O"
    if kind == "f" and not (values == values.round()).all():
        raise ShapelineError(f"{path}: the target '{target}' holds numbers, not classes; set task: regression.")
    native = np.array(values.to_numpy() if kind in "buif" else values.astype(str).to_numpy(object))
    classes, labels = np.unique(native, return_inverse=True)
    names = [class_name(value) for value in classes]
    _refuse_spaces(path, target, names)
    if len(names) < 2:
        raise ShapelineError(
            f"{path}: the target '{target}' has one class, '{names[0]}'; a classifier needs two or more."
        )
    if len(names) > max(MAX_CLASSES, len(values) // 2):
        what, remedy = (
            ("numbers", "set task: regression") if kind in "iuf" else ("values", "give a column of few classes")
        )
        raise ShapelineError(
            f"{path}: the target '{target}' has {len(names)} different {what} in {len(values)} rows; {remedy}."
        )
    return {"labels": labels.astype(np.int64), "class_names": names}


def read_numbers(path: Path, target: str, values: "pd.Series", form: CsvFormat) -> dict:
    """Return labels (n,) float64 of a target column of numbers."""
    import pandas as pd

    _check_filled(path, target, values, form)
    try:
        return {"labels": values.to_numpy(np.float64)}
    except (TypeError, ValueError) as error:
        row = int(np.argmax(pd.to_numeric(values.astype(str), errors="coerce").isna()))
        raise ShapelineError(
            f"{path}: the target '{target}' of a regression holds no numbers ({str(values.iloc[row])[:80]!r} in row "
            f"{row}, from 0); write them with a point, or remove these rows."
        ) from error


def _refuse_spaces(path: Path, target: str, names: list[str]) -> None:
    known: dict[str, str] = {}
    for name in names:
        if (other := known.setdefault(unicodedata.normalize("NFC", name.strip()), name)) != name:
            is_same = other.strip() != name.strip()  # the same letters in another encoding of accents
            problem = "look the same; rename" if is_same else "differ in spaces alone; set trim: true, or rename"
            raise ShapelineError(
                f"{path}: the target '{target}' has the classes {other!r} and {name!r}, which {problem} one."
            )


def _check_filled(path: Path, target: str, values: "pd.Series", form: CsvFormat) -> None:
    if values.isna().any():
        row = int(np.argmax(values.isna()))
        words = [] if _is_parquet(path) else csv_file.missing_words(path, form, target)
        named = f", as {', '.join(map(repr, words[:3]))} among numbers" if words and values.dtype.kind == "f" else ""
        raise ShapelineError(
            f"{path}: the target '{target}' is missing in {int(values.isna().sum())} row(s), first in row {row} "
            f"(from 0){named}; fill or remove them{', or rename the word' * bool(named)}."
        )


def encode_column(where: str, values: "pd.Series", is_category: bool) -> tuple[np.ndarray, dict]:
    """Return a column as numbers or codes (n,), NaN where missing, and its entry of the card; no infinities."""
    import pandas as pd

    from shapeline.datasets.table import encode

    if values.isna().all():
        raise ShapelineError(f"{where}: is missing in every row; leave it out of 'columns'.")
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind in ("integer", "floating", "mixed-integer-float") and not is_category:
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        if np.isinf(numbers).any():
            raise ShapelineError(
                f"{where}: is infinite in row {int(np.argmax(np.isinf(numbers)))} (from 0); write a number."
            )
        return numbers, {"type": "number"}
    codes, kept = encode(values, is_category)
    what = {"type": TYPES.get(kind, kind)} | ({"ordered": bool(kept.dtype.ordered)} if kind == "categorical" else {})
    if kept.is_number:
        return codes, what
    categories = [value.item() if isinstance(value, np.generic) else value for value in kept.categories]
    if kind == "floating" and all(value.is_integer() for value in categories):  # only because some are missing
        what, categories = {"type": "integer"}, list(map(int, categories))
    if not all(isinstance(each, str | int) or (isinstance(each, float) and math.isfinite(each)) for each in categories):
        categories = list(map(str, categories))  # dates, intervals and others, whose values are in table.parquet
    return codes, {**what, "values": categories}


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _check_suffix(path: Path, form: CsvFormat) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise ShapelineError(f"dataset key 'path': {path} is no {', '.join(SUFFIXES)} file; write it as one of these.")
    if _is_parquet(path) and form != PLAIN:
        (key, *_) = [key for key in csv_file.KEYS if getattr(form, key) != getattr(PLAIN, key)]
        raise ShapelineError(f"dataset key '{key}': is of CSV files, and {path} is none; remove the key.")


def _explain_failure(path: Path, error: Exception) -> ShapelineError:
    return ShapelineError(f"{path}: cannot be read as a {path.suffix[1:]} file ({first_line(error)}); save it again.")


def read_texts(
    paths: dict[str, Path],
    text: str | None = None,
    target: str | None = None,
    text_pair: str | None = None,
    form: CsvFormat = PLAIN,
) -> dict:
    """Return the documents of a column, pairs with `text_pair`, and classes; ids are rows. Raises ShapelineError."""
    (path,) = paths.values()
    table = frame(path, form)
    keys = {"text": text, "target": target} | ({} if text_pair is None else {"text_pair": text_pair})
    for key, name in keys.items():
        check_column(path, list(table), key, name)
    documents = read_documents(path, text, table[text], text_pair is not None)
    if text_pair is not None:
        seconds = read_documents(path, text_pair, table[text_pair], True)
        documents = [first + PAIR + second for first, second in zip(documents, seconds, strict=True)]
    return {"texts": documents, **read_classes(path, target, table[target], form)}


def read_documents(path: Path, name: str, column: "pd.Series", of_pairs: bool) -> list[str]:
    """Return a column that holds a text in every row, of pairs one that is more than spaces."""
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
