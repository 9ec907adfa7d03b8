"""The keys of a dataset's entry, and checks of it before any data is read."""

import importlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from shapeline.datasets import csv_file, folders, text
from shapeline.datasets.archive import Limits
from shapeline.datasets.csv_file import PLAIN, CsvFormat
from shapeline.datasets.entries import REFUSED, TEXT, TOKENIZER, Positive, Strict, parse
from shapeline.datasets.registry import SOURCES, Source, adapt_to_task, find_source
from shapeline.datasets.sources import expand, names_function
from shapeline.errors import ShapelineError, nearest

IMAGE_SETTINGS = ("size", "resize", "color", "on_decode_error")
MAX_BYTES = 8192  # of a text with the tokenizer text, unless the entry has a length
TEXT_SETTINGS = ("unit", "length", "vocabulary", "tokenizer")
COLUMN_SETTINGS = ("target", "text", "text_pair", "task", "columns", "categorical")  # of a file defined by the user


class Dataset(Strict):
    source: str = Field(
        description=f"One of {', '.join(SOURCES)}; prompts, a .jsonl or .csv file; or path/to/file.py:function."
    )
    path: str | None = Field(
        None, description="Local file or folder instead of the official source; $VARIABLES expand."
    )
    classes: list[int | str] | None = Field(None, min_length=2, description="Selected classes, by index or name.")
    unit: Literal["word", "character"] | None = Field(None, description="Texts: kind of token.")
    length: Positive | None = Field(None, description="Texts: tokens per document; longer ones are cut.")
    vocabulary: Annotated[int, Field(ge=3)] | None = Field(
        None, description="Texts: number of most frequent words, including padding and unknown."
    )
    tokenizer: str | None = Field(
        None,
        pattern=TOKENIZER,
        description="Texts: path/to/folder with a tokenizer.json of transformers, which also sets the default "
        "length; path/to/file.py:function without arguments that returns a tokenizer; or text, of models that take "
        "texts themselves.",
    )
    target: str | None = Field(None, description="table_file, text_file: the column of classes or numbers to predict.")
    text: str | None = Field(None, description="text_file: the column of documents.")
    text_pair: str | None = Field(
        None, description="text_file: the column of second sentences of pairs; needs a folder's tokenizer."
    )
    task: Literal["classification", "regression", "multilabel"] | None = Field(
        None,
        description="table_file: classification (default) or regression. malaria: multilabel for the two labels "
        "trophozoite and ring; torch only. A custom dataset function returns its task.",
    )
    columns: list[str] | None = Field(
        None, min_length=1, description="table_file: the feature columns; by default all but the target."
    )
    categorical: list[str] | None = Field(
        None, min_length=1, description="table_file: numeric columns that are categories."
    )
    separator: str = Field(
        ",",
        min_length=1,
        description="CSV files of table_file and text_file: the separator between cells, or the word tab or spaces.",
    )
    header: bool | Annotated[int, Field(ge=0)] | list[str] | None = Field(
        None,  # true: it would be equal to 1
        description="CSV files: by default the first line; false: no header, columns are named 0, 1, ...; a list:"
        " the names of a file without a header; a number: so many lines precede the header.",
    )
    na_values: list[str | int | float] | None = Field(
        None,
        min_length=1,
        description="CSV files: values of missing cells, beside an empty cell and, in numeric columns, pandas' "
        "own words (NA, null, None, ...).",
    )
    encoding: str = Field("utf-8", description="CSV files: text encoding, for example cp1252.")
    trim: bool = Field(False, description="CSV files: remove spaces around cells and names.")
    decimal: Literal[".", ","] = Field(".", description="CSV files: decimal separator.")
    thousands: str | None = Field(
        None, description="CSV files: thousands separator: a comma, a point, a space or an apostrophe."
    )
    count: Positive | None = Field(None, description="Number of images of a source that generates them.")
    size: Annotated[list[Positive], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Image files: [height, width] in pixels of the resized images."
    )
    resize: Literal["resize", "crop"] | None = Field(
        None, description="Image files: resize (default) stretches, crop cuts the longer side."
    )
    color: Literal["rgb", "grey"] | None = Field(
        None, description="Image files: rgb by default, which refuses a grey image."
    )
    on_decode_error: Literal["stop", "skip"] | None = Field(
        None, description="Image files: whether an image that cannot be decoded stops the run (default) or is skipped."
    )
    limits: Limits | None = Field(
        None, description="Archives and image files: limits of size, if the defaults are too small."
    )
    validation: float = Field(
        0.1, gt=0, lt=1, description="Fraction of the training part used to choose the best epoch."
    )
    split: Literal["official", "drawn"] = Field(
        "official", description="drawn: the split is sampled from all instances, whatever split the source has."
    )
    test: Annotated[float, Field(gt=0, lt=1)] | Positive = Field(
        0.3, description="Size of a sampled test part: a fraction of each class, or a number of instances."
    )

    @field_validator("separator", "encoding", "thousands", "header")
    @classmethod
    def _check_format(cls, value: Any, info: ValidationInfo) -> Any:
        if problem := csv_file.find_problem(info.field_name, value):
            raise PydanticCustomError(REFUSED, "{problem}", {"problem": problem})
        return value

    def is_default(self, key: str) -> bool:
        """Return whether the value of a key is that of an entry without it."""
        return getattr(self, key) == type(self).model_fields[key].default


class JobDataset(Dataset):
    """A dataset's entry with what the settings of a job add to it."""

    validation: float = Field(0.1, ge=0, lt=1)  # none where nothing is trained on the rows
    seed: int = 0
    code: str | None = None
    versions: dict[str, Any] | None = None


def read_entry(source: str, settings: Mapping[str, Any]) -> JobDataset:
    """Return the checked entry of a dataset from a mapping of its keys. Raises ShapelineError for its first mistake."""
    if settings.get("source", source) != source:
        raise ShapelineError(
            f"dataset source '{source}': its settings name another source, '{settings['source']}'; remove one."
        )
    dataset = parse(JobDataset, {**settings, "source": source}, "dataset key '{key}'")
    check(dataset)
    return dataset


def check(dataset: Dataset) -> None:
    """Check a dataset entry without its data: combinations of keys, and names. Raises ShapelineError."""
    source, is_custom = dataset.source, names_function(dataset.source)
    if is_custom or find_source(source).count is None:
        counted = ", ".join(name for name, known in SOURCES.items() if known.count is not None)
        refuse(dataset, ["count"], f"source '{source}' has its own records; only {counted} takes it")
    if dataset.tokenizer:
        refuse(dataset, ["unit", "vocabulary"], "the tokenizer has its own words and tokens")
    if dataset.resize is not None and dataset.size is None:
        raise ShapelineError("dataset key 'resize': it sets how images are resized; add size: [height, width].")
    _refuse_keys(dataset)
    read_format(dataset)
    if is_custom:
        text_settings(None, dataset)
        return
    entry = adapt_to_task(find_source(source), dataset.task)
    if entry.kind != "text":
        refuse_text_settings(dataset, entry.kind)
    else:
        text_settings(entry, dataset)
    _check_local(entry, dataset)
    if "regression" in (entry.task, dataset.task):
        refuse_classes(dataset)
    elif entry.classes:
        choose_classes(source, entry.classes, dataset.classes)


def _check_local(entry: Source, dataset: Dataset) -> None:
    """Check the keys of parts, tasks and paths against what the source brings itself."""
    source, local = dataset.source, dataset.path is not None
    # A local copy may lack the official training file, and then the rest is split by `test`.
    drawn = dataset.split == "drawn" or (local and entry.optional)
    if entry.official_test and not drawn:
        refuse(dataset, ["test"], f"source '{source}' has an official test part, which split: drawn replaces")
    if entry.count is not None:
        refuse(dataset, ["validation"], f"source '{source}' makes a validation part")
    if entry.local and not local:
        raise ShapelineError(
            f"dataset key 'path': source '{source}' reads data of your own; name their file, folder or archive."
        )
    if entry.local:
        _check_columns(entry, dataset)
    elif dataset.task not in (None, entry.task, "classification"):
        remedy = "set task: multilabel, or " if entry.labels else ""
        raise ShapelineError(f"dataset key 'task': source '{source}' has no {dataset.task}; {remedy}remove it.")
    elif not entry.files:
        refuse(dataset, ["path"], f"source '{source}' needs no file")


def _check_columns(entry: Source, dataset: Dataset) -> None:
    """Check that the columns which an entry names are in its file, where there is one."""
    if entry.kind == "table":
        find_columns(dataset)
        if dataset.task == "multilabel":
            raise ShapelineError(
                f"dataset key 'task': source '{entry.name}' has one target; for several labels per record give a "
                "function of your own, path/to/file.py:function."
            )
    elif entry.kind == "text":
        keys = ("text", "target") if dataset.text_pair is None else ("text", "text_pair", "target")
        path, reader = expand(dataset.path), importlib.import_module(SOURCES["table_file"].module)
        columns = reader.header(path, read_format(dataset)) if path.is_file() else ()
        for key in keys if path.is_file() else ():
            reader.check_column(path, columns, key, getattr(dataset, key))
        if dataset.text_pair is not None and not folders.names_folder(dataset.tokenizer):
            raise ShapelineError(
                "dataset key 'text_pair': pairs are cut by the tokenizer of a folder; set tokenizer: path/to/folder."
            )


def read_format(dataset: Dataset, usual: CsvFormat = PLAIN) -> CsvFormat:
    """Return the format of CSV files by the keys of an entry, of other keys the usual one. Raises ShapelineError."""
    values = dataset.model_dump(include=set(csv_file.KEYS), exclude_unset=True, exclude_none=True)
    form = replace(usual, **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
    if form.thousands == form.decimal:
        raise ShapelineError(
            f"dataset key 'thousands': {form.thousands!r} is the sign of decimals too; set decimal to the other"
        )
    if isinstance(form.header, tuple):
        csv_file.refuse_repeated("dataset key 'header'", form.header)
    return form


def find_columns(dataset: Dataset) -> tuple[str, ...] | None:
    """Return the feature columns of a table by its header alone; None without a file; each must be in it."""
    path = dataset.path and expand(dataset.path)
    if not (path and path.is_file()):
        return None
    # By name: were it imported, an edit of that file would run the jobs of all datasets again.
    reader = importlib.import_module(SOURCES["table_file"].module)
    header = reader.header(path, read_format(dataset))
    return tuple(reader.select_columns(path, header, dataset.target, dataset.columns, dataset.categorical))


def input_shape(entry: Source, dataset: Dataset) -> tuple[int, ...] | None:
    """Return the shape of one input of a dataset entry; None if only the images themselves tell."""
    if dataset.size and entry.kind == "image":
        return (1 if dataset.color == "grey" else 3, *dataset.size)
    return entry.input_shape or None


def text_settings(entry: Source | None, dataset: Dataset) -> text.Settings:
    """Return how a text's documents become tokens: the entry's keys, else those of its source, else the usual ones."""
    unit, length, vocabulary = "word", None, text.VOCABULARY
    if folders.names_folder(dataset.tokenizer):
        length = folders.limit_tokens(dataset.tokenizer)
    elif dataset.tokenizer == TEXT:
        length = MAX_BYTES
    elif entry:
        unit, length, vocabulary = entry.unit, entry.input_shape[0], entry.vocabulary
    chosen = dataset.unit or unit
    if chosen == "character":
        refuse(dataset, ["vocabulary"], "characters have a fixed alphabet of 69")
    default = length if length and chosen == unit else text.LENGTHS[chosen]
    return text.Settings(chosen, dataset.length or default, dataset.vocabulary or vocabulary)


def find_unit(dataset: Dataset) -> str | None:
    """Return the unit of an entry's tokens, "word" or "character"; None if that is unknown."""
    if dataset.tokenizer:
        return "word"
    entry = SOURCES.get(dataset.source)
    return dataset.unit or (entry.unit if entry else None)


def refuse(dataset: Dataset, keys: Iterable[str], why: str) -> None:
    """Raise ShapelineError for the first of the keys that an entry sets."""
    for key in keys:
        if not dataset.is_default(key):
            raise ShapelineError(f"dataset key '{key}': {why}; remove the key.")


def refuse_text_settings(dataset: Dataset, kind: str) -> None:
    refuse(dataset, TEXT_SETTINGS, f"source '{dataset.source}' is of kind {kind}, not text")


def _refuse_keys(dataset: Dataset) -> None:
    keys = (*IMAGE_SETTINGS, *COLUMN_SETTINGS, *csv_file.KEYS, "limits")
    taken = set()
    if not all(map(dataset.is_default, keys)) and not names_function(dataset.source):
        taken = set(inspect.signature(find_source(dataset.source).read).parameters)
        taken |= {*csv_file.KEYS} if "form" in taken else set()
    refuse(dataset, [key for key in keys if key not in taken], f"source '{dataset.source}' does not take it")


def refuse_classes(dataset: Dataset) -> None:
    refuse(dataset, ["classes"], f"source '{dataset.source}' is of regression, it has none")


def choose_classes(where: str, names: Iterable[str], classes: list | None) -> list[int]:
    """Return the original indices of `classes` (indices or names in the order of new labels), all for None."""
    names = list(names)
    if classes is None:
        classes = names
    chosen = []
    for item in classes:
        index = class_index(f"classes of source '{where}'", item, names, by_place=True)
        if index in chosen:
            raise ShapelineError(f"classes of source '{where}': '{names[index]}' is listed twice; remove one.")
        chosen.append(index)
    if len(chosen) < 2:
        raise ShapelineError(f"classes of source '{where}': {len(chosen)} chosen; a classifier needs at least two.")
    return chosen


def check_count(experiment: str, count: int, available: int) -> None:
    """Raise ShapelineError where an experiment needs more instances than the test part has."""
    if count > available:
        raise ShapelineError(
            f"experiments.{experiment}.instances.count: {count} requested, the test split has {available}; lower the "
            "count, or set fewer_ok: true"
        )


def class_index(where: str, item: int | str, names: list[str], by_place: bool = False) -> int:
    """Return the place of a class by its name, or index where names are no numbers or by_place; else ShapelineError."""
    if str(item) in names:
        return names.index(str(item))
    is_place = isinstance(item, int | np.integer) and not isinstance(item, bool) and 0 <= item < len(names)
    if is_place and (by_place or not all(name.lstrip("-").isdigit() for name in names)):
        return int(item)
    if is_place:
        raise ShapelineError(f"{where}: {item} is not one of them; for the class at that position write {names[item]}")
    raise ShapelineError(f"{where}: {item!r} is not one of them.{nearest(str(item), names)}")
