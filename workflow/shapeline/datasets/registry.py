"""The registry of sources of data with their official files, and the comparison of data with those of a model."""

import dataclasses
import hashlib
import importlib.util
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shapeline.datasets import text
from shapeline.errors import ShapelineError, nearest


@dataclass(frozen=True)
class RemoteFile:
    """An official file: name, addresses, checksum (md5 or sha256; None: any content); page: where a person gets it."""

    name: str
    urls: tuple[str, ...] = ()
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    about: float = 0
    page: str = ""

    @property
    def algorithm(self) -> str:
        return "md5" if self.md5 and not self.sha256 else "sha256"

    @property
    def checksum(self) -> str:
        return self.sha256 or self.md5 or ""

    def problem(self, path: Path) -> str:
        """Return the problem of the file at `path` ("" if its checksum is the official one, or there is none)."""
        if not self.checksum:
            return ""
        digest = file_digest(path, self.algorithm)
        if digest == self.checksum:
            return ""
        size = f" of {self.size:,}" if self.size is not None else ""
        return f"found {self.algorithm} {digest} ({path.stat().st_size:,}{size} bytes), expected {self.checksum}"


@dataclass(frozen=True)
class Source:
    """The properties of a source of data that are known before its files are read.

    official_test: the source has its own split. optional: official files that a local copy may lack. unpacked: files by
    which a folder is recognised as the unpacked archive, or the name of the only file, which a path may name. subsets:
    patterns of names of files that hold some of the rows and may replace the official ones. synthetic: generated here.
    unit, vocabulary: defaults of a text's tokens. task: "regression" (no classes) or "multilabel" (several labels per
    record). labels: their names under task: multilabel. balanced: each part is sampled by seed to equal class
    sizes. truth: "masks" or "boxes" if the pixels of a class are known. count: the default number of generated records;
    None if an entry cannot set it. records: the published number. words: the mean per document after truncation.
    ground_truth_words: whether the words that decide a class are known. local: the records are in the user's file,
    which determines input_shape and classes. reader: the name of the function in the module.
    """

    name: str
    kind: str
    module: str
    input_shape: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    licence: str = ""
    citation: str = ""
    feature_names: tuple[str, ...] = ()
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    official_test: bool = False
    optional: tuple[str, ...] = ()
    unpacked: tuple[str, ...] = ()
    subsets: dict[str, str] = field(default_factory=dict)
    synthetic: bool = False
    unit: str | None = None
    vocabulary: int = text.VOCABULARY
    task: str = "classification"
    labels: tuple[str, ...] = ()
    balanced: bool = False
    truth: str | None = None
    count: int | None = None
    records: int = 0
    words: int = 0
    ground_truth_words: bool = False
    local: bool = False
    reader: str = "read"

    @property
    def read(self) -> Callable[..., dict]:
        """The function of its module that reads its files; imported when it is needed."""
        return getattr(importlib.import_module(self.module), self.reader)


def find_source(name: str) -> Source:
    """Return the source of that name in SOURCES; an unknown name raises a ShapelineError with the nearest one."""
    if name not in SOURCES:
        raise ShapelineError(
            f"source '{name}': unknown.{nearest(name, SOURCES)} Or name your own as path/to/file.py:function."
        )
    return SOURCES[name]


def is_published(name: str | None) -> bool:
    """Return whether a dataset's source is one of SOURCES whose records are not a user's."""
    source = SOURCES.get(name)
    return source is not None and not source.local


def adapt_to_task(entry: Source, task: str | None) -> Source:
    """Return the source with its labels instead of its classes, if a dataset entry has several labels per record."""
    if entry.labels and task == "multilabel":
        return dataclasses.replace(entry, task="multilabel", classes=entry.labels)
    return entry


def remote_files(source: str) -> tuple[RemoteFile, ...]:
    """Return the official files of a source, or of "weights"; an unknown source is a ShapelineError."""
    return tuple(WEIGHTS.values()) if source == "weights" else find_source(source).files


def file_digest(path: Path, algorithm: str) -> str:
    """Return the hexadecimal md5 or sha256 of a file's content."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def _list_sources() -> tuple[dict[str, Source], dict[str, RemoteFile]]:
    """Return the sources and the weights of `sources.toml` beside this module, by name."""
    declared = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    weights = {name: RemoteFile(**_freeze(file)) for name, file in declared["weights"].items()}
    sources = {}
    for name, entry in declared["sources"].items():
        files = tuple(RemoteFile(**_freeze(file)) for file in entry.pop("files", ()))
        groups = _freeze(entry.pop("groups", {}))
        sources[name] = Source(name=name, files=files, groups=groups, **_freeze(entry))
    return sources, weights


def _freeze(entry: dict) -> dict:
    """Return the same with tuples in place of lists, as the fields of a frozen dataclass."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


# WEIGHTS: what training may start from, by the name that a model's `weights` gives it.
SOURCES, WEIGHTS = _list_sources()


PAIRS = "pairs of sentences"
FIXED_SIZES = ("side", "height", "width", "input_shape")  # of a model that takes images of one size


def describe_card(card: Mapping) -> dict:
    """Return the properties of prepared data that `find_difference` compares."""
    shape, kind = card["input_shape"], card["kind"]
    facts = {"kind": kind, "task": card.get("task", "classification"), "classes": card["classes"]}
    if kind == "image":
        facts["channels"], facts["size"] = shape[0], list(shape[1:])
    if kind == "table":
        facts["columns"], facts["categories"] = card["feature_names"], card.get("categories", {})
    if kind == "text":
        facts |= {"unit": card["unit"], "tokens a document": shape[0], "words": card["vocabulary_digest"]}
        facts["documents"] = PAIRS if "separator_id" in card else "single texts"
    return facts


def find_difference(trained: dict, explained: dict, any_size: bool) -> str | None:
    """Return why a model trained on some data cannot explain other data; None if no known property differs."""
    for name in [key for key in trained if key in explained and not (any_size and key == "size")]:
        own, other = trained[name], explained[name]
        if own == other:
            continue
        if name == "size":
            own, other = ("x".join(map(str, sides)) for sides in (own, other))
            return f"the model takes images of {own} pixels alone and these have {other}"
        if name in ("words", "categories"):  # long, and a digest
            return f"their {name} differ from those of the model's data"
        return f"their {name}: {_join_values(other)}; of the model's data: {_join_values(own)}"
    return None


def check_explained(sizes: Mapping, trained: Mapping, explained: Mapping) -> None:
    """Raise ShapelineError if the cards of the training and the explained data do not fit."""
    any_size = not set(sizes) & set(FIXED_SIZES)
    differs = find_difference(describe_card(trained), describe_card(explained), any_size)
    if differs:
        raise ShapelineError(
            f"dataset '{explained['name']}' cannot be explained by a model trained on '{trained['name']}': "
            f"{differs}; give a dataset like that of the model"
        )


def _join_values(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
