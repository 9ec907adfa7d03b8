"""Read and check the records of a source: arrays of the stored types, with all defaults."""

import dataclasses
import inspect
import logging
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from shapeline.datasets import images, text, tokenizer
from shapeline.datasets.checks import JobDataset, read_format, text_settings
from shapeline.datasets.entries import TEXT
from shapeline.datasets.loading import check_channels, is_series
from shapeline.datasets.registry import Source
from shapeline.datasets.sources import PARTS, expand, report_user_code, user_function
from shapeline.errors import ShapelineError, nearest

log = logging.getLogger(__name__)

USUAL_BYTES = 1024  # at least so many for a text with the tokenizer text, so that custom texts may be longer
TASKS = ("classification", "regression", "multilabel")
RETURNED_TEXT = ("texts", "labels", "split", "class_names", "kind", "ground_truth_words")
RETURNED_TRUTH = ("masks", "boxes", "box_names")
RETURNED = ("inputs", *RETURNED_TEXT, "feature_names", "groups", "categories", "scale", "task", *RETURNED_TRUTH)


def read_own(source: str, path: str | None) -> dict:
    """Call the user's function, with the path if there is one."""
    function = user_function(source)
    arguments = []
    if path is not None:
        path = expand(path)
        if not path.exists():
            raise ShapelineError(
                f"dataset key 'path': there is nothing at {path}; paths start at the folder of the run."
            )
        arguments = [str(path)]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        problem = f"the function takes no path ({error}); remove" if arguments else f"it needs a path ({error}); add"
        raise ShapelineError(f"dataset key 'path' of source '{source}': {problem} the key.") from error
    with report_user_code(f"source '{source}'"):
        records = function(*arguments)
    if problem := _find_returned_problem(records):
        raise ShapelineError(f"source '{source}': returned {problem}")
    return records


def _find_returned_problem(records: object) -> str:
    """Return what a user's function returned in place of records, and what to do; "" if it returned these."""
    if not isinstance(records, dict):
        return f"{type(records).__name__}; return a dict."
    texts, kind = records.get("texts"), records.get("kind")
    for key, value in records.items():
        if key not in RETURNED:
            return f"an unknown key '{key}'.{nearest(key, RETURNED)}"
        if texts is not None and key not in RETURNED_TEXT and value is not None:
            return f"'{key}', which is not of 'texts'; leave it out."
    if texts is not None and kind not in (None, "text"):
        return f"'texts' and kind '{kind}'; leave the kind out."
    if texts is None and kind == "text":
        return "kind 'text' and no 'texts'; return the documents as 'texts'."
    if texts is None and records.get("inputs") is None:
        return "no 'inputs' and no 'texts'; return one of them."
    return "no 'labels'; return them." if records.get("labels") is None else ""


def read_official(entry: Source, dataset: JobDataset, raw_files: Iterable[str | os.PathLike]) -> dict:
    """Call the module of the source with {file name: path} and the keys of the entry that are its parameters."""
    if dataset.path is not None:
        paths = local_files(entry, expand(dataset.path))
    else:
        raw_files = [raw_files] if isinstance(raw_files, str | os.PathLike) else raw_files
        files = {Path(path).name: Path(path) for path in raw_files}
        paths = {file.name: files.get(file.name) for file in entry.files}
        for file in entry.files:
            path = paths[file.name]
            if path is None or not path.is_file():
                raise ShapelineError(f"{entry.name}: the file {path or file.name} is missing; fetch it first.")
            # Files that the user placed were not checked by fetch.
            if problem := file.problem(path):
                raise ShapelineError(f"{path}: {problem}; delete it, and fetch it again or replace it by hand.")
    keys = {"form": read_format(dataset)} | {key: getattr(dataset, key) for key in type(dataset).model_fields}
    parameters = inspect.signature(entry.read).parameters
    return entry.read(paths, **{key: keys[key] for key in parameters if keys.get(key) is not None})


def local_files(entry: Source, folder: Path) -> dict[str, Path]:
    """Return paths by official name in a local folder, with or without .gz. Raises ShapelineError for a missing file.

    A path may name the only file, the unpacked archive, or one of `subsets`, beside which the others are.
    """
    if entry.local:
        if not folder.exists():
            raise ShapelineError(
                f"dataset key 'path': there is no file or folder {folder}; paths start at the folder of the run."
            )
        return {entry.name: folder}
    if entry.unpacked:
        return {entry.files[0].name: _find_archive(entry, folder)}
    paths, others = {}, {file.name for file in entry.files} - set(entry.subsets)
    if entry.subsets and folder.is_file() and folder.name not in others:
        paths, folder = {next(iter(entry.subsets)): folder}, folder.parent
    if not folder.is_dir():
        wanted = ", ".join(file.name for file in entry.files)
        raise ShapelineError(f"dataset key 'path': {folder} is not a folder; {entry.name} wants one with {wanted}.")
    for file in entry.files:
        if file.name in paths:
            continue
        candidates = [folder / file.name, folder / file.name.removesuffix(".gz")]
        present = [path for path in candidates if path.is_file()]
        if present:
            paths[file.name] = present[0]
        elif file.name not in entry.optional:
            raise ShapelineError(
                f"dataset key 'path': {folder} holds no {file.name}, which {entry.name} needs; get it again."
            )
    return paths


def _find_archive(entry: Source, path: Path) -> Path:
    """Return the archive itself, or the folder that holds all that it unpacks to: the path, or a folder in it."""
    name = entry.files[0].name
    if path.is_file():
        return path
    if not path.is_dir():
        raise ShapelineError(f"dataset key 'path': there is no file or folder {path}; {entry.name} wants {name}.")
    if (path / name).is_file():
        return path / name
    for folder in (path, *sorted(child for child in path.iterdir() if child.is_dir())):
        if all((folder / part).exists() for part in entry.unpacked):
            return folder
    if entry.subsets and all(any(path.glob(pattern)) for pattern in entry.subsets.values()):
        return path
    needed = " and ".join(part for part in entry.unpacked if part != name)
    absent = f"neither {name} nor {needed}" if needed else f"no {name}"
    raise ShapelineError(f"dataset key 'path': {path} holds {absent}, which {entry.name} needs; get it again.")


def check_records(where: str, records: dict, entry: Source | None) -> dict:
    """Return the records as arrays of the stored types, with every default filled in; bad data is a ShapelineError."""
    inputs, kind = _convert_to_array(where, records, entry)
    feature_names = _choose_feature_names(where, records, entry, inputs, kind)
    task = records.get("task") or (entry.task if entry else "classification")
    if task not in TASKS:
        raise ShapelineError(f"{where}: task '{task}' is unknown.{nearest(task, TASKS)}")
    if task == "regression":
        labels, class_names = _check_targets(where, records), []
    elif task == "multilabel":
        labels, class_names = _check_multilabel(where, records["labels"], records.get("class_names"), entry)
    else:
        labels, class_names = _encode_labels(where, records["labels"], records.get("class_names"), entry)
    if len(labels) != len(inputs):
        raise ShapelineError(f"{where}: {len(labels)} labels for {len(inputs)} inputs; return one per input.")
    groups = records.get("groups") or (entry.groups if entry else {})
    missing = records.get("missing")
    categories = _check_categories(where, records.get("categories") or {}, inputs, feature_names, missing is not None)
    skipped = records.get("skipped", {})
    inputs, scale, odd = _convert_inputs(where, inputs, kind, records.get("scale"), feature_names, missing is not None)
    has_channels = kind != "image" or np.ndim(records["inputs"]) == 4
    shape = {"input_shape": inputs.shape[1:], "has_channels": has_channels, "feature_names": feature_names}
    if is_series({"kind": kind, **shape}):
        odd = 0  # the units of a series are its own
    elif odd:
        log.warning("%s: %d image(s) leave [0, 1] (after division by %s)", where, odd, scale)
    return {
        "inputs": inputs,
        "labels": labels,
        "split": _encode_split(where, records.get("split"), len(labels)),
        "ids": np.arange(len(labels)),
        "read": len(labels) + sum(skipped.values()),
        "class_names": class_names,
        "feature_names": feature_names,
        "groups": {str(name): [str(column) for column in members] for name, members in groups.items()},
        "kind": kind,
        "task": task,
        "scale": scale,
        "truth": images.check_truth(where, records, labels, class_names, inputs.shape[2:]) if kind == "image" else None,
        "odd": {"odd_outside_unit_range": odd, **skipped, **records.get("odd", {})},
        "notes": list(records.get("notes", [])),
        "subset": records.get("subset"),
        "categorical": [feature_names.index(name) for name in categories],
        "categories": categories,
        "columns": records.get("columns"),
        **_keep_types(records, feature_names, kind, entry),
        "has_channels": has_channels,
        "missing": missing,
    }


def _convert_to_array(where: str, records: dict, entry: Source | None) -> tuple[np.ndarray, str]:
    """Return the inputs as an array of numbers, (n, columns) or (n, channels, height, width), and their kind."""
    try:
        inputs = np.asarray(records["inputs"])
        if inputs.dtype.kind not in "buif":
            if any(isinstance(cell, str | bytes) for cell in inputs.flat):
                raise TypeError("they hold texts; give codes 0, 1, 2, ... and say in 'categories' what they stand for")
            inputs = inputs.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ShapelineError(f"{where}: inputs are not an array of numbers ({error}); return numbers.") from error
    kind = records.get("kind") or (entry.kind if entry else "table" if inputs.ndim == 2 else "image")
    if kind not in ("image", "table"):
        raise ShapelineError(f"{where}: kind '{kind}' is unknown.{nearest(kind, ('image', 'table'))}")
    if kind == "image" and inputs.ndim == 3:
        inputs = inputs[:, None]
    if inputs.ndim != (2 if kind == "table" else 4) or 0 in inputs.shape:
        wanted = "(n, columns)" if kind == "table" else "(n, channels, height, width) or (n, height, width)"
        raise ShapelineError(f"{where}: inputs of shape {inputs.shape}; a source of kind {kind} wants {wanted}.")
    if kind == "image" and inputs.shape[3] in (1, 3, 4) and inputs.shape[1] not in (1, 3, 4):
        raise ShapelineError(f"{where}: inputs of shape {inputs.shape} have the channels last; move them to axis 1.")
    return inputs, kind


def _keep_types(records: dict, names: list[str], kind: str, entry: Source | None) -> dict:
    """Return the rows of a table in their own types: a data frame, and the type of the array that it stands for."""
    inputs = records["inputs"]
    keeps_types = entry is None and kind == "table" and records.get("scale") is None and isinstance(inputs, np.ndarray)
    if keeps_types and inputs.dtype.kind in "biuf" and inputs.dtype.itemsize <= 8 and inputs.dtype != np.float64:
        import pandas as pd

        return {"frame": pd.DataFrame(inputs, columns=names), "array": inputs.dtype.name}
    return {"frame": records.get("frame", inputs if hasattr(inputs, "iloc") else None), "array": None}


def _choose_feature_names(where: str, records: dict, entry: Source | None, inputs: np.ndarray, kind: str) -> list[str]:
    """Return the names that the records give, else those of the source, of a data frame, or by number."""
    columns = getattr(records["inputs"], "columns", None)
    default_names = entry.feature_names if entry else columns if columns is not None else ()
    if kind == "table" and not len(default_names):
        default_names = [f"column {index}" for index in range(inputs.shape[1])]
    given_names = records.get("feature_names")
    if kind == "image" and given_names is not None and np.ndim(records["inputs"]) == 3:
        return check_channels(f"{where}: feature_names", given_names, inputs.shape[2:])
    feature_names = [str(name) for name in (default_names if given_names is None else given_names)]
    if kind == "table" and len(feature_names) != inputs.shape[1]:
        raise ShapelineError(
            f"{where}: {len(feature_names)} feature_names for {inputs.shape[1]} columns; return one per column."
        )
    if len(set(feature_names)) != len(feature_names):
        raise ShapelineError(f"{where}: two feature_names are equal; give each column its own.")
    return feature_names


def _check_categories(
    where: str, categories: dict, inputs: np.ndarray, names: list[str], missing: bool
) -> dict[str, list[str]]:
    """Return the categories of each column of codes, in the order of the columns; missing: NaN is valid."""
    checked = {str(name): [str(value) for value in values] for name, values in categories.items()}
    for name, values in checked.items():
        if name not in names:
            raise ShapelineError(f"{where}: categories of '{name}', which is not a column.{nearest(name, names)}")
        codes = inputs[:, names.index(name)]
        strange = ~(np.isin(codes, np.arange(len(values))) | (np.isnan(codes) if missing else False))
        if strange.any():
            record = int(np.argmax(strange))
            raise ShapelineError(
                f"{where}: record {record}, column '{name}' is {inputs[record, names.index(name)]}; it has "
                f"{len(values)} categories, so its codes are 0 to {len(values) - 1}."
            )
    return {name: checked[name] for name in names if name in checked}


def check_texts(where: str, records: dict, entry: Source | None, dataset: JobDataset) -> dict:
    """Return the documents as tokens, without those that have none, and all else that check_records() gives."""
    texts, n_undecodable = [], 0
    for record, document in enumerate(records["texts"]):
        if not isinstance(document, str):
            raise ShapelineError(f"{where}: record {record} is {type(document).__name__}; give a text.")
        document, undecodable = text.repair(document)
        texts.append(document)
        n_undecodable += undecodable
    labels, class_names = _encode_labels(where, records["labels"], records.get("class_names"), entry)
    if len(labels) != len(texts):
        raise ShapelineError(f"{where}: {len(labels)} labels for {len(texts)} texts; return one per text.")
    split = _encode_split(where, records.get("split"), len(texts))
    chosen, custom = text_settings(entry, dataset), dataset.tokenizer
    if custom:
        tokens = tokenizer.tokenize(texts, tokenizer.load_tokenizer(custom), chosen.length)
        if custom == TEXT and dataset.length is None:
            longest = tokens.sizes.max(initial=0)
            tokens = dataclasses.replace(tokens, length=int(np.clip(longest, USUAL_BYTES, chosen.length)))
    else:
        tokens = text.tokenize(texts, chosen)
    filled = np.flatnonzero(~tokens.empty)
    one_word = 0 if custom else sum(len(document.split()) == 1 for document in texts)
    for count, what in (
        (tokens.empty.sum(), "without a word, left out"),
        (n_undecodable, "with undecodable bytes"),
        (one_word, "without spaces are one word each, and so one feature; languages without spaces need a tokenizer"),
    ):
        if count:
            log.warning("%s: %d document(s) %s", where, count, what)
    return {
        "texts": texts,
        "tokens": tokens,
        # A tokenizer of the user splits a text into other words.
        "ground_truth_words": None if custom else _check_ground_truth(where, records.get("ground_truth_words"), tokens),
        "labels": labels[filled],
        "split": None if split is None else split[filled],
        "ids": filled,
        "read": len(texts),
        "class_names": class_names,
        "feature_names": [],
        "groups": {},
        "kind": "text",
        "scale": 1,
        "odd": {"empty": int(tokens.empty.sum()), "undecodable": n_undecodable},
        "notes": records.get("notes", []),
        "subset": records.get("subset"),
    }


def _check_ground_truth(where: str, flags_of_texts: Iterable | None, tokens: text.Tokens) -> list[np.ndarray] | None:
    """Return a bool per word of each document: whether it decides the class; None if unknown."""
    if flags_of_texts is None:
        return None
    ground_truth = [np.asarray(flags) for flags in flags_of_texts]
    if len(ground_truth) != len(tokens.n_words):
        raise ShapelineError(
            f"{where}: ground_truth_words of {len(ground_truth)} records for {len(tokens.n_words)} texts; "
            "give one list per text"
        )
    for record, (flags, n_words) in enumerate(zip(ground_truth, tokens.n_words, strict=True)):
        if flags.shape != (n_words,) or (n_words and flags.dtype != bool):
            raise ShapelineError(
                f"{where}: record {record} has {n_words} words and ground_truth_words of shape {flags.shape} and type "
                f"{flags.dtype}; give one bool a word."
            )
    return ground_truth


def _convert_inputs(
    where: str, inputs: np.ndarray, kind: str, scale: float | None, names: list[str], missing: bool
) -> tuple:
    """Return inputs as uint8 or float (images) or float64, their scale, and how many images leave [0, 1]."""
    if kind == "image" and inputs.dtype == np.uint8:
        scale = 255 if scale is None else scale
    elif kind == "image" and inputs.dtype.kind in "iu" and scale is None:
        raise ShapelineError(f"{where}: images of type {inputs.dtype}; return uint8 (0 to 255), or give their 'scale'.")
    else:
        scale = 1 if scale is None else scale
        if kind == "image":
            from shapeline.datasets.table import report_lost_digits

            report_lost_digits(where, inputs)
        inputs = inputs.astype(np.float64 if kind == "table" else np.float32)
        bad = np.argwhere(np.isinf(inputs) if missing else ~np.isfinite(inputs))
        if len(bad):
            record, *cell = bad[0].tolist()
            place = f"column '{names[cell[0]]}'" if kind == "table" else f"cell {tuple(cell)}"
            raise ShapelineError(
                f"{where}: record {record}, {place} is {inputs[tuple(bad[0])]}; "
                f"every value must be a finite number ({len(np.unique(bad[:, 0]))} record(s) are not)."
            )
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not scale > 0:
        raise ShapelineError(f"{where}: scale {scale!r} is not positive; give a number above 0.")
    if kind == "table":
        return inputs, scale, 0
    flat = inputs.reshape(len(inputs), -1)
    odd = int(((flat.min(axis=1) < 0) | (flat.max(axis=1) > scale)).sum())
    return inputs, scale, odd


def _check_targets(where: str, records: dict) -> np.ndarray:
    """Return the numbers to predict of a regression, (n,) float64."""
    if records.get("class_names") is not None:
        raise ShapelineError(f"{where}: returned 'class_names', which are not of task 'regression'; leave them out.")
    targets = np.asarray(records["labels"])
    if targets.ndim != 1 or targets.dtype.kind not in "buif":
        raise ShapelineError(
            f"{where}: labels of shape {targets.shape} and type {targets.dtype}; a regression wants numbers, (n,)."
        )
    targets = targets.astype(np.float64)
    if not np.isfinite(targets).all():
        record = int(np.argmin(np.isfinite(targets)))
        raise ShapelineError(f"{where}: record {record} has the label {targets[record]}; it must be a finite number.")
    if len(targets) and (targets == targets[0]).all():
        raise ShapelineError(
            f"{where}: all labels are {targets[0]:g}, so there is nothing to predict; return two or more classes."
        )
    return targets


def _encode_labels(where: str, labels: object, class_names: Iterable | None, entry: Source | None) -> tuple:
    """Return labels as class indices (n,) int64, and the names of the classes."""
    values, labels = labels, np.asarray(labels)
    if labels.ndim != 1:
        hint = ' Labels that go together, (n, labels), need "task": "multilabel".' if labels.ndim == 2 else ""
        raise ShapelineError(f"{where}: labels of shape {labels.shape}; they must be one per record, (n,).{hint}")
    if class_names is None and entry:
        class_names = entry.classes
    names = None if class_names is None else [str(name) for name in class_names]
    if names is not None and len(set(names)) != len(names):
        raise ShapelineError(f"{where}: two class_names are equal; give each class its own.")
    if labels.dtype.kind in "OUST":
        import pandas as pd

        missing = pd.isna(np.array(list(values), dtype=object))  # an array of texts has the word nan in its place
        if missing.any():
            raise ShapelineError(f"{where}: record {int(np.argmax(missing))} has no label; leave the record out.")
        texts = [str(label) for label in labels]
        names = sorted(set(texts)) if names is None else names
        index = {name: position for position, name in enumerate(names)}
        for record, text in enumerate(texts):
            if text not in index:
                raise ShapelineError(f"{where}: record {record} has the label '{text}'.{nearest(text, names)}")
        return np.array([index[text] for text in texts], np.int64), names
    if labels.dtype.kind not in "buif":
        raise ShapelineError(f"{where}: labels of type {labels.dtype}; they must be class indices or names.")
    n_classes = len(names) if names is not None else None
    finite = np.isfinite(labels)
    whole = finite & (np.where(finite, labels, 0) == np.floor(np.where(finite, labels, 0)))
    wrong = ~whole | (labels < 0) | (labels >= (np.inf if n_classes is None else n_classes))
    if wrong.any():
        record = int(np.argmax(wrong))
        allowed = "class indices 0, 1, 2, ..." if n_classes is None else f"class indices 0 to {n_classes - 1}"
        hint = ' Numbers to predict need "task": "regression".' if finite.all() and not whole.all() else ""
        raise ShapelineError(f"{where}: record {record} has the label {labels[record]}; labels are {allowed}.{hint}")
    labels = labels.astype(np.int64)
    return labels, names if names is not None else [str(index) for index in range(labels.max(initial=-1) + 1)]


def _check_multilabel(where: str, labels: object, class_names: Iterable | None, entry: Source | None) -> tuple:
    """Return multi-label labels (n, labels) uint8 of 0 and 1, and their names."""
    labels = np.asarray(labels)
    if labels.ndim != 2 or labels.shape[1] < 2 or labels.dtype.kind not in "buif":
        raise ShapelineError(
            f"{where}: labels of shape {labels.shape} and type {labels.dtype}; task multilabel wants two labels a "
            "record or more, (n, labels) of 0 and 1."
        )
    strange = ~np.isin(labels, (0, 1)).all(axis=1)
    if strange.any():
        record = int(np.argmax(strange))
        raise ShapelineError(f"{where}: record {record} has the labels {labels[record].tolist()}; each is 0 or 1.")
    label_names = (entry.classes if entry else range(labels.shape[1])) if class_names is None else class_names
    names = [str(name) for name in label_names]
    if len(names) != labels.shape[1] or len(set(names)) != len(names):
        raise ShapelineError(
            f"{where}: {len(set(names))} different class_names for {labels.shape[1]} labels; give one per label."
        )
    return labels.astype(np.uint8), names


def _encode_split(where: str, split: object, n: int) -> np.ndarray | None:
    """Return the source's own split as (n,) uint8, from indices or names of PARTS; None if it has none."""
    if split is None:
        return None
    split = np.asarray(split)
    if split.shape != (n,):
        raise ShapelineError(f"{where}: split of shape {split.shape} for {n} records; return one entry per record.")
    known = np.array(PARTS) if split.dtype.kind in "OUST" else np.arange(len(PARTS))
    matches = split.astype(known.dtype if split.dtype.kind in "OUST" else split.dtype)[:, None] == known
    if not matches.any(axis=1).all():
        record = int(np.argmin(matches.any(axis=1)))
        raise ShapelineError(
            f"{where}: record {record} has the split {split[record]!s}; write 0 train, 1 validation, 2 test."
        )
    return matches.argmax(axis=1).astype(np.uint8)
