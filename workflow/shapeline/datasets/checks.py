"""Check what a configuration says of a dataset, before any data is read."""

import importlib
import inspect
from collections.abc import Iterable

import numpy as np

from shapeline.datasets import archive, csv_file, folders, images, text
from shapeline.datasets.registry import SOURCES, Source, adapt_to_task, find_columns, find_source
from shapeline.datasets.sources import is_own
from shapeline.errors import ShapelineError, nearest

TEXT_SETTINGS = ("unit", "length", "vocabulary", "tokenizer")
COLUMN_SETTINGS = ("target", "text", "text_pair", "task", "columns", "categorical")  # of a file defined by the user
SETTINGS = (
    *("source", "classes", "path", "validation", "split", "test", "seed", "count"),
    *(*TEXT_SETTINGS, *COLUMN_SETTINGS, *images.KEYS, *csv_file.KEYS, "limits"),
)
SPLITS = ("official", "drawn")
TASKS = ("classification", "regression", "multilabel")


def check(source: str, settings: dict) -> None:
    """Check a dataset entry without its data: names, ranges, impossible combinations. Raises ShapelineError."""
    for key in settings:
        if key not in (*SETTINGS, "code"):  # a job's settings say by which code they are read
            raise ShapelineError(f"dataset key '{key}': unknown.{nearest(key, SETTINGS)}")
    if settings.get("source", source) != source:
        raise ShapelineError(
            f"dataset source '{source}': its settings name another source, '{settings['source']}'; remove one."
        )
    _check_numbers(source, settings)
    for key in ("unit", "vocabulary"):
        if settings.get("tokenizer") and settings.get(key) is not None:
            raise ShapelineError(f"dataset key '{key}': the tokenizer has its own words and tokens; remove the key.")
    images.check(settings)
    archive.of(settings.get("limits"))
    _refuse_picture_settings(source, settings)
    if is_own(source):
        text.read_settings(settings)
        return
    entry = adapt_to_task(find_source(source), settings)
    if entry.kind != "text":
        refuse_text_settings(source, entry.kind, settings)
    else:
        text_settings(entry, settings)
    _check_local(source, entry, settings)
    if entry.task == "regression":
        refuse_classes(source, settings)
    elif entry.classes:
        choose_classes(source, entry.classes, settings.get("classes"))


def _check_numbers(source: str, settings: dict) -> None:
    """Check fractions, seed and count."""
    for key, lowest in (("validation", "0 <="), ("test", "0 <")):
        fraction = settings.get(key, 0.5)
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        counted = key == "test" and type(fraction) is int and fraction > 0
        if not counted and (not number or not 0 <= fraction < 1 or (key == "test" and fraction == 0)):
            or_count = ", or a whole number of records of each class" if key == "test" else ""
            raise ShapelineError(
                f"dataset key '{key}': {fraction!r} is not a fraction; write a number, {lowest} {key} < 1{or_count}."
            )
    if settings.get("split", "official") not in SPLITS:
        hint = nearest(str(settings["split"]), SPLITS)
        raise ShapelineError(f"dataset key 'split': '{settings['split']}' is unknown.{hint}")
    seed = settings.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ShapelineError(f"dataset key 'seed': {seed!r} is not a whole number; give one.")
    count = settings.get("count")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise ShapelineError(
            f"dataset key 'count': {count!r} is not a number of records; give a whole number of 1 or more."
        )
    if count is not None and (is_own(source) or find_source(source).count is None):
        counted = ", ".join(name for name, known in SOURCES.items() if known.count is not None)
        raise ShapelineError(f"dataset key 'count': source '{source}' has its own records; only {counted} takes it.")


def _check_local(source: str, entry: Source, settings: dict) -> None:
    """Check the keys of parts, tasks and paths against what the source brings itself."""
    local = settings.get("path") is not None
    # A local copy may lack the official training file, and then the rest is split by `test`.
    drawn = settings.get("split") == "drawn"
    if entry.official_test and not drawn and "test" in settings and not (local and entry.optional):
        raise ShapelineError(
            f"dataset key 'test': source '{source}' has an official test part; remove the key, or set split: drawn."
        )
    if entry.count is not None and "validation" in settings:
        raise ShapelineError(f"dataset key 'validation': source '{source}' makes a validation part; remove the key.")
    if entry.local and not local:
        raise ShapelineError(
            f"dataset key 'path': source '{source}' reads data of your own; name their file, folder or archive."
        )
    if entry.local:
        _check_columns(entry, settings)
    elif settings.get("task") not in (None, entry.task, "classification"):
        remedy = "set task: multilabel, or " if entry.labels else ""
        raise ShapelineError(f"dataset key 'task': source '{source}' has no {settings['task']}; {remedy}remove it.")
    if not (entry.files or entry.local) and local:
        raise ShapelineError(f"dataset key 'path': source '{source}' needs no file; remove the key.")


def _check_columns(entry: Source, settings: dict) -> None:
    """Check that the columns which an entry names are in its file, where there is one."""
    if settings.get("task") not in (None, *TASKS):
        raise ShapelineError(f"dataset key 'task': {settings['task']!r} is unknown.{nearest(settings['task'], TASKS)}")
    if entry.kind == "table":
        find_columns(settings)
        if settings.get("task") == "multilabel":
            raise ShapelineError(
                f"dataset key 'task': source '{entry.name}' has one target; for several labels per record give a "
                "function of your own, path/to/file.py:function."
            )
        if settings.get("task") == "regression":
            refuse_classes(entry.name, settings)
    elif entry.kind == "text":
        keys = [key for key in ("text", "text_pair", "target") if key != "text_pair" or settings.get(key) is not None]
        importlib.import_module(SOURCES["table_file"].module).check_names(settings, keys)
        if "text_pair" in keys and not folders.names_folder(settings.get("tokenizer")):
            raise ShapelineError(
                "dataset key 'text_pair': pairs are cut by the tokenizer of a folder; set tokenizer: path/to/folder."
            )


def input_shape(entry: Source, settings: dict) -> tuple[int, ...] | None:
    """Return the shape of one input of a dataset entry; None if only the images themselves tell."""
    return images.shape_of(settings) or entry.input_shape or None


def text_settings(entry: Source | None, settings: dict) -> text.Settings:
    """Return how a text's documents become tokens: the entry's keys, else those of its source, else the usual ones."""
    if folders.names_folder(settings.get("tokenizer")):
        return text.read_settings({"length": folders.limit_tokens(settings["tokenizer"]), **settings})
    if entry is None:
        return text.read_settings(settings)
    return text.read_settings(settings, entry.unit, entry.input_shape[0], entry.vocabulary)


def find_unit(settings: dict) -> str | None:
    """Return the unit of an entry's tokens, "word" or "character"; None if that is unknown."""
    if settings.get("tokenizer"):
        return "word"
    entry = SOURCES.get(settings["source"])
    return settings.get("unit") or (entry.unit if entry else None)


def refuse_text_settings(source: str, kind: str, settings: dict) -> None:
    for key in TEXT_SETTINGS:
        if settings.get(key) is not None:
            raise ShapelineError(f"dataset key '{key}': source '{source}' is of kind {kind}, not text; remove the key.")


def _refuse_picture_settings(source: str, settings: dict) -> None:
    given = [key for key in (*images.KEYS, *COLUMN_SETTINGS, *csv_file.KEYS, "limits") if settings.get(key) is not None]
    taken = ()
    if given and not is_own(source):
        taken = set(inspect.signature(find_source(source).read).parameters)
        taken |= {*csv_file.KEYS} if "form" in taken else set()
    for key in given:
        if key not in taken:
            raise ShapelineError(f"dataset key '{key}': source '{source}' does not take it; remove the key.")


def refuse_classes(source: str, settings: dict) -> None:
    if settings.get("classes") is not None:
        raise ShapelineError(f"dataset key 'classes': source '{source}' is of regression, it has none; remove the key.")


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
