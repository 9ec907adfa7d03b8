"""Datasets: the table of sources, and prepare() and load() for every one of them.

A source module (`shapeline.datasets.mnist`, ...) has one function, `read(paths)`, that returns the same dictionary as a
user's own function; everything after it (checks, classes, splits, files) is here and is the same for all. This module
needs only numpy: the configuration imports it before any job.
"""

import hashlib
import importlib
import importlib.util
import inspect
import json
import logging
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shapeline.errors import ShapelineError, nearest
from shapeline.seeds import seed_of

log = logging.getLogger(__name__)

PARTS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)
VALIDATION_FRACTION = 0.1
TEST_FRACTION = 0.3
SETTINGS = ("source", "classes", "path", "validation", "test", "seed")
RETURNED = ("inputs", "labels", "split", "class_names", "feature_names", "groups", "kind", "scale")


@dataclass(frozen=True)
class RemoteFile:
    """One official file: its name, where it is published, and the checksum that makes it official (md5 or sha256)."""

    name: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None

    @property
    def algorithm(self) -> str:
        return "sha256" if self.sha256 else "md5"

    @property
    def checksum(self) -> str:
        return self.sha256 or self.md5 or ""

    def problem(self, path: Path) -> str:
        """What is wrong with the file at `path` ("" when its checksum is the official one)."""
        found = file_digest(path, self.algorithm)
        if found == self.checksum:
            return ""
        size = f" of {self.size:,}" if self.size is not None else ""
        return f"found {self.algorithm} {found} ({path.stat().st_size:,}{size} bytes), expected {self.checksum}"


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from and what is in it, known before anything is read."""

    name: str
    kind: str
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    module: str
    licence: str
    citation: str
    feature_names: tuple[str, ...] = ()
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    official_test: bool = False


@dataclass(frozen=True, eq=False)
class Dataset:
    """A prepared dataset in memory.

    inputs: (n, *input_shape) float32, images in [0, 1]; labels: (n,) int64; split: (n,) uint8, 0 train, 1 validation,
    2 test; ids: (n,) int64, position in the source; card: the dictionary of card.json.
    """

    inputs: np.ndarray
    labels: np.ndarray
    split: np.ndarray
    ids: np.ndarray
    card: dict

    def part(self, name: str) -> "Dataset":
        """The records of one part: "train", "validation" or "test"."""
        if name not in PARTS:
            raise ShapelineError(f"part '{name}' of a dataset: unknown.{nearest(name, PARTS)}")
        rows = np.flatnonzero(self.split == PARTS.index(name))
        return Dataset(self.inputs[rows], self.labels[rows], self.split[rows], self.ids[rows], self.card)


def _mnist_file(name: str, md5: str, size: int) -> RemoteFile:
    hosts = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return RemoteFile(name, tuple(host + name for host in hosts), md5=md5, size=size)


_DIGITS = tuple(str(digit) for digit in range(10))
_MEASURED = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)

SOURCES: dict[str, Source] = {
    "digits": Source(
        name="digits",
        kind="image",
        input_shape=(1, 8, 8),
        classes=_DIGITS,
        files=(),
        module="shapeline.datasets.digits",
        licence="CC BY 4.0 (UCI); comes with scikit-learn",
        citation="E. Alpaydin, C. Kaynak (1998). Optical Recognition of Handwritten Digits. "
        "UCI Machine Learning Repository.",
    ),
    "breast_cancer": Source(
        name="breast_cancer",
        kind="table",
        input_shape=(30,),
        classes=("malignant", "benign"),
        files=(),
        module="shapeline.datasets.breast_cancer",
        licence="CC BY 4.0 (UCI); comes with scikit-learn",
        citation="W. Wolberg, O. Mangasarian, N. Street, W. Street (1995). Breast Cancer Wisconsin (Diagnostic). "
        "UCI Machine Learning Repository.",
        feature_names=(
            *(f"mean {name}" for name in _MEASURED),
            *(f"{name} error" for name in _MEASURED),
            *(f"worst {name}" for name in _MEASURED),
        ),
        groups={name: (f"mean {name}", f"{name} error", f"worst {name}") for name in _MEASURED},
    ),
    "mnist": Source(
        name="mnist",
        kind="image",
        input_shape=(1, 28, 28),
        classes=_DIGITS,
        files=(
            _mnist_file("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            _mnist_file("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            _mnist_file("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            _mnist_file("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
        module="shapeline.datasets.mnist",
        licence="CC BY-SA 3.0",
        citation="Y. LeCun, C. Cortes, C. J. C. Burges (1998). The MNIST database of handwritten digits.",
        official_test=True,
    ),
}


def source_named(name: str) -> Source:
    """The source of that name in SOURCES; an unknown name raises a ShapelineError with the nearest one."""
    if name not in SOURCES:
        raise ShapelineError(
            f"source '{name}': unknown.{nearest(name, SOURCES)} Or name your own as path/to/file.py:function."
        )
    return SOURCES[name]


def is_own(source: str) -> bool:
    """Whether the text names a user's own function (path/to/file.py:function) and not an entry of SOURCES."""
    return ".py" in source


def file_digest(path: Path, algorithm: str) -> str:
    """The hexadecimal md5 or sha256 of a file's content."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def expand(path: str | os.PathLike) -> Path:
    """A path with ~ and environment variables filled in; a variable that is not set is a ShapelineError."""
    text = os.path.expanduser(os.path.expandvars(os.fspath(path)))
    unset = re.search(r"\$(\{\w+\}|\w+)", text)
    if unset:
        raise ShapelineError(f"path '{path}': the environment variable {unset.group().strip('${}')} is not set.")
    return Path(text)


def user_function(text: str) -> Callable:
    """The function that "path/to/file.py:function" names (path relative to the working directory).

    Raises ShapelineError when the file or the function is not there. Errors inside the user's file are not caught:
    their own traceback says more.
    """
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise ShapelineError(f"source '{text}': write your own source as path/to/file.py:function.")
    path = expand(file)
    if not path.is_file():
        raise ShapelineError(f"source '{text}': there is no file {path} (paths start at the repository root).")
    # The digest keeps two files of one name apart; sys.modules is where pickle and dataclasses look a module up.
    module_name = f"shapeline_own_{path.stem}_{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        names = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        hint = nearest(name, names) if names else " It defines no function."
        raise ShapelineError(f"source '{text}': {path} has no function '{name}'.{hint}")
    return getattr(module, name)


def check(source: str, settings: dict) -> None:
    """Check a dataset entry without reading any data: names, ranges, impossible combinations.

    settings: any of source, classes, path, validation, test, seed. Raises ShapelineError.
    """
    for key in settings:
        if key not in SETTINGS:
            raise ShapelineError(f"dataset key '{key}': unknown.{nearest(key, SETTINGS)}")
    if settings.get("source", source) != source:
        raise ShapelineError(f"dataset source '{source}': its settings name another source, '{settings['source']}'.")
    for key, lowest in (("validation", "0 <="), ("test", "0 <")):
        fraction = settings.get(key, 0.5)
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not number or not 0 <= fraction < 1 or (key == "test" and fraction == 0):
            raise ShapelineError(
                f"dataset key '{key}': {fraction!r} is not a fraction; write a number, {lowest} {key} < 1."
            )
    seed = settings.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ShapelineError(f"dataset key 'seed': {seed!r} is not a whole number.")
    if is_own(source):
        return
    entry = source_named(source)
    if entry.official_test and "test" in settings:
        raise ShapelineError(f"dataset key 'test': source '{source}' has an official test part; remove the key.")
    if not entry.files and settings.get("path") is not None:
        raise ShapelineError(f"dataset key 'path': source '{source}' comes with scikit-learn; remove the key.")
    chosen_classes(source, entry.classes, settings.get("classes"))


def chosen_classes(where: str, names: Iterable[str], classes: list | None) -> list[int]:
    """The original class indices that `classes` (indices or names, in the order of the new labels) selects.

    None selects all. Raises ShapelineError for an unknown or repeated class and for fewer than two.
    """
    names = list(names)
    if classes is None:
        classes = list(range(len(names)))
    chosen = []
    for item in classes:
        if isinstance(item, int | np.integer) and not isinstance(item, bool) and 0 <= item < len(names):
            index = int(item)
        elif isinstance(item, str) and item in names:
            index = names.index(item)
        else:
            raise ShapelineError(f"classes of source '{where}': {item!r} is not one of them.{nearest(item, names)}")
        if index in chosen:
            raise ShapelineError(f"classes of source '{where}': '{names[index]}' is listed twice.")
        chosen.append(index)
    if len(chosen) < 2:
        raise ShapelineError(f"classes of source '{where}': {len(chosen)} chosen; a classifier needs at least two.")
    return chosen


def prepare(source: str, settings: dict, raw_files: Iterable[str | os.PathLike], folder: str | os.PathLike) -> dict:
    """Read a source, choose its classes, split it, and write arrays.npz and card.json into `folder`.

    source: a name of SOURCES or path/to/file.py:function. raw_files: the official files, in any order, verified by
    checksum (ignored where settings["path"] names a local copy, which is not). Returns the card. The same arguments
    write the same bytes. Raises ShapelineError, one line, for whatever is wrong with the settings or the data.
    """
    check(source, settings)
    own = is_own(source)
    entry = None if own else source_named(source)
    records = _read_own(source, settings) if own else _read_official(entry, settings, raw_files)
    where = f"{source} ({settings['path']})" if settings.get("path") is not None else source
    content = _checked(where, records, entry)
    labels, split = content["labels"], content["split"]
    seed = settings.get("seed", 0)
    if split is None:
        split = np.zeros(len(labels), np.uint8)
        split[_held_out(labels, split == TRAIN, settings.get("test", TEST_FRACTION), seed, "test")] = TEST
    elif "test" in settings:
        raise ShapelineError(f"dataset key 'test': source '{source}' returns its own split; remove the key.")
    if not (split == VALIDATION).any():
        fraction = settings.get("validation", VALIDATION_FRACTION)
        split[_held_out(labels, split == TRAIN, fraction, seed, "validation")] = VALIDATION
    elif "validation" in settings:
        raise ShapelineError(f"dataset key 'validation': source '{source}' returns its own validation part; remove it.")

    names = content["class_names"]
    chosen = chosen_classes(source, names, settings.get("classes"))
    relabelled = np.full(len(names), -1, np.int64)
    relabelled[chosen] = np.arange(len(chosen))
    ids = np.flatnonzero(relabelled[labels] >= 0)
    arrays = {
        "inputs": content["inputs"][ids],
        "labels": relabelled[labels[ids]],
        "split": split[ids],
        "ids": ids.astype(np.int64),
    }
    class_names = [names[index] for index in chosen]
    card = {
        "name": Path(folder).name,
        "source": source,
        "kind": content["kind"],
        "input_shape": list(arrays["inputs"].shape[1:]),
        "classes": class_names,
        "counts": _counts(where, class_names, arrays["labels"], arrays["split"]),
        "scale": content["scale"],
        "feature_names": content["feature_names"],
        "groups": content["groups"],
        "licence": entry.licence if entry else "",
        "citation": entry.citation if entry else "",
        "urls": [url for file in entry.files for url in file.urls] if entry else [],
        "records": {
            "read": len(labels),
            "skipped_other_classes": len(labels) - len(ids),
            "odd_outside_unit_range": content["odd"],
        },
        "settings": dict(settings),
    }
    _write(Path(folder), arrays, card)
    return card


def load(folder: str | os.PathLike) -> Dataset:
    """Read what prepare() wrote; inputs come back as float32, divided by the card's scale.

    Raises ShapelineError when the folder is missing, damaged or holds files that do not belong together.
    """
    folder = Path(folder)
    again = "delete the folder and run again"
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        # Opened here because np.load leaves its own file open when the archive is damaged.
        with open(folder / "arrays.npz", "rb") as stream, np.load(stream, allow_pickle=False) as stored:
            inputs, labels, split, ids = (stored[key] for key in ("inputs", "labels", "split", "ids"))
        counted = sum(sum(classes.values()) for classes in card["counts"].values())
        input_shape, scale = card["input_shape"], card["scale"]
    except FileNotFoundError as error:
        raise ShapelineError(f"prepared dataset {folder}: {error.filename} is missing; {again}.") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ShapelineError(f"prepared dataset {folder}: damaged ({error}); {again}.") from error
    if list(inputs.shape[1:]) != input_shape or not len(inputs) == len(labels) == len(split) == counted:
        raise ShapelineError(f"prepared dataset {folder}: arrays.npz and card.json disagree; {again}.")
    inputs = inputs.astype(np.float32)
    if scale != 1:
        inputs /= np.float32(scale)
    return Dataset(inputs, labels, split, ids, card)


def _read_own(source: str, settings: dict) -> dict:
    """Call the user's function, with the path when there is one."""
    function = user_function(source)
    arguments = []
    if settings.get("path") is not None:
        path = expand(settings["path"])
        if not path.exists():
            raise ShapelineError(f"dataset key 'path': there is nothing at {path}.")
        arguments = [str(path)]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        remedy = "it takes no path; remove the key" if arguments else "it needs a path; add the key"
        raise ShapelineError(f"dataset key 'path' of source '{source}': {remedy} ({error}).") from error
    records = function(*arguments)
    if not isinstance(records, dict):
        raise ShapelineError(f"source '{source}': returned {type(records).__name__}; return a dict.")
    for key in records:
        if key not in RETURNED:
            raise ShapelineError(f"source '{source}': returned an unknown key '{key}'.{nearest(key, RETURNED)}")
    for key in ("inputs", "labels"):
        if records.get(key) is None:
            raise ShapelineError(f"source '{source}': returned no '{key}'.")
    return records


def _read_official(entry: Source, settings: dict, raw_files: Iterable[str | os.PathLike]) -> dict:
    """Call the module of the source with {file name: path}."""
    if settings.get("path") is not None:
        paths = local_files(entry, expand(settings["path"]))
    else:
        raw_files = [raw_files] if isinstance(raw_files, str | os.PathLike) else raw_files
        given = {Path(path).name: Path(path) for path in raw_files}
        paths = {file.name: given.get(file.name) for file in entry.files}
        for file in entry.files:
            path = paths[file.name]
            if path is None or not path.is_file():
                raise ShapelineError(f"{entry.name}: the file {path or file.name} is missing; fetch it first.")
            # A file placed by hand never went through fetch, so this is the first look at it.
            if problem := file.problem(path):
                raise ShapelineError(f"{path}: {problem}; delete it, and fetch it again or replace it by hand.")
    return importlib.import_module(entry.module).read(paths)


def local_files(entry: Source, folder: Path) -> dict[str, Path]:
    """Official name -> path of the files in a local folder, with or without .gz; a missing one is a ShapelineError."""
    if not folder.is_dir():
        wanted = ", ".join(file.name for file in entry.files)
        raise ShapelineError(f"dataset key 'path': {folder} is not a folder; {entry.name} wants one with {wanted}.")
    paths = {}
    for file in entry.files:
        candidates = [folder / file.name, folder / file.name.removesuffix(".gz")]
        present = [path for path in candidates if path.is_file()]
        if not present:
            raise ShapelineError(f"dataset key 'path': {folder} holds no {file.name}, which {entry.name} needs.")
        paths[file.name] = present[0]
    return paths


def _checked(where: str, records: dict, entry: Source | None) -> dict:
    """The records as arrays of the stored types, with every default filled in; bad data is a ShapelineError."""
    columns = getattr(records["inputs"], "columns", None)
    try:
        inputs = np.asarray(records["inputs"])
        if inputs.dtype.kind not in "buif":
            inputs = inputs.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ShapelineError(f"{where}: inputs are not an array of numbers ({error}).") from error
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

    default_names = entry.feature_names if entry else columns if columns is not None else ()
    if kind == "table" and not len(default_names):
        default_names = [f"column {index}" for index in range(inputs.shape[1])]
    given_names = records.get("feature_names")
    feature_names = [str(name) for name in (default_names if given_names is None else given_names)]
    if kind == "table" and len(feature_names) != inputs.shape[1]:
        raise ShapelineError(f"{where}: {len(feature_names)} feature_names for {inputs.shape[1]} columns.")
    if len(set(feature_names)) != len(feature_names):
        raise ShapelineError(f"{where}: feature_names must differ from each other.")

    labels, class_names = _labels(where, records["labels"], records.get("class_names"), entry)
    if len(labels) != len(inputs):
        raise ShapelineError(f"{where}: {len(labels)} labels for {len(inputs)} inputs.")
    groups = records.get("groups") or (entry.groups if entry else {})
    inputs, scale, odd = _stored(where, inputs, kind, records.get("scale"), feature_names)
    return {
        "inputs": inputs,
        "labels": labels,
        "split": _split(where, records.get("split"), len(labels)),
        "class_names": class_names,
        "feature_names": feature_names,
        "groups": {str(name): [str(column) for column in members] for name, members in groups.items()},
        "kind": kind,
        "scale": scale,
        "odd": odd,
    }


def _stored(where: str, inputs: np.ndarray, kind: str, scale: float | None, names: list[str]) -> tuple:
    """The inputs as uint8 (images) or float32, their scale, and how many records leave [0, 1] (images)."""
    if kind == "image" and inputs.dtype == np.uint8:
        scale = 255 if scale is None else scale
    elif kind == "image" and inputs.dtype.kind in "iu" and scale is None:
        raise ShapelineError(f"{where}: images of type {inputs.dtype}; return uint8 (0 to 255), or give their 'scale'.")
    else:
        scale = 1 if scale is None else scale
        inputs = inputs.astype(np.float32)
        bad = np.argwhere(~np.isfinite(inputs))
        if len(bad):
            record, *cell = bad[0].tolist()
            place = f"column '{names[cell[0]]}'" if kind == "table" else f"cell {tuple(cell)}"
            raise ShapelineError(
                f"{where}: record {record}, {place} is {inputs[tuple(bad[0])]}; "
                f"every value must be a finite number ({len(np.unique(bad[:, 0]))} record(s) are not)."
            )
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not scale > 0:
        raise ShapelineError(f"{where}: scale {scale!r} is not a positive number.")
    if kind == "table":
        return inputs, scale, 0
    flat = inputs.reshape(len(inputs), -1)
    odd = int(((flat.min(axis=1) < 0) | (flat.max(axis=1) > scale)).sum())
    if odd:
        log.warning("%s: %d image(s) leave [0, 1] (after division by %s)", where, odd, scale)
    return inputs, scale, odd


def _labels(where: str, labels: object, class_names: Iterable | None, entry: Source | None) -> tuple:
    """Labels as class indices (n,) int64, and the names of the classes."""
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ShapelineError(f"{where}: labels of shape {labels.shape}; they must be one per record, (n,).")
    if class_names is None and entry:
        class_names = entry.classes
    names = None if class_names is None else [str(name) for name in class_names]
    if names is not None and len(set(names)) != len(names):
        raise ShapelineError(f"{where}: class_names must differ from each other.")
    if labels.dtype.kind in "OUST":
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
        raise ShapelineError(f"{where}: record {record} has the label {labels[record]}; labels are {allowed}.")
    labels = labels.astype(np.int64)
    return labels, names if names is not None else [str(index) for index in range(labels.max(initial=-1) + 1)]


def _split(where: str, split: object, n: int) -> np.ndarray | None:
    """The source's own split as (n,) uint8, from indices or names of PARTS; None when it has none."""
    if split is None:
        return None
    split = np.asarray(split)
    if split.shape != (n,):
        raise ShapelineError(f"{where}: split of shape {split.shape} for {n} records.")
    known = np.array(PARTS) if split.dtype.kind in "OUST" else np.arange(len(PARTS))
    matches = split.astype(known.dtype if split.dtype.kind in "OUST" else split.dtype)[:, None] == known
    if not matches.any(axis=1).all():
        record = int(np.argmin(matches.any(axis=1)))
        raise ShapelineError(
            f"{where}: record {record} has the split {split[record]!s}; write 0 train, 1 validation, 2 test."
        )
    return matches.argmax(axis=1).astype(np.uint8)


def _held_out(labels: np.ndarray, candidates: np.ndarray, fraction: float, seed: int, part: str) -> np.ndarray:
    """Indices of a stratified draw of `fraction` of the candidates.

    Each class has its own draw, seeded by its original index, so a record is in the same part whichever other classes
    are chosen. A class of two or more keeps at least one record on either side.
    """
    held_out = [np.empty(0, np.int64)]
    for label in np.unique(labels[candidates]):
        members = np.flatnonzero(candidates & (labels == label))
        count = int(fraction * len(members) + 0.5)
        if fraction > 0 and len(members) >= 2:
            count = min(max(count, 1), len(members) - 1)
        generator = np.random.default_rng(seed_of("split", seed, part, int(label)))
        held_out.append(generator.permutation(members)[:count])
    return np.concatenate(held_out)


def _counts(where: str, names: list[str], labels: np.ndarray, split: np.ndarray) -> dict[str, dict[str, int]]:
    """Records per part and class; a class without training records and an empty test part are errors."""
    counts = {
        part: {name: int(((split == index) & (labels == label)).sum()) for label, name in enumerate(names)}
        for index, part in enumerate(PARTS)
    }
    for name in names:
        if not counts["train"][name]:
            total = sum(counts[part][name] for part in PARTS)
            have = f"{total} record(s), none of them in the training part" if total else "no record"
            raise ShapelineError(f"{where}: class '{name}' has {have}; choose others with 'classes', or lower 'test'.")
    if not sum(counts["test"].values()):
        raise ShapelineError(f"{where}: the test part is empty, so there is nothing to explain.")
    return counts


def _write(folder: Path, arrays: dict[str, np.ndarray], card: dict) -> None:
    """Write both files under temporary names and rename them, so that a killed job leaves nothing half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    array_file, card_file = folder / "arrays.npz", folder / "card.json"
    array_part, card_part = folder / "arrays.npz.part", folder / "card.json.part"
    try:
        with open(array_part, "wb") as stream:
            np.savez(stream, **arrays)
        card_part.write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        # Without the old card, a kill between the two renames can never pair it with the new arrays.
        card_file.unlink(missing_ok=True)
        os.replace(array_part, array_file)
        os.replace(card_part, card_file)
    except OSError as error:
        raise ShapelineError(f"prepared dataset {folder}: cannot be written ({error.strerror or error}).") from error
    finally:
        array_part.unlink(missing_ok=True)
        card_part.unlink(missing_ok=True)
