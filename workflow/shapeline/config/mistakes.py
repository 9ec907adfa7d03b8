"""Mistakes in the configuration, a line each: extreme values, the place of a key, what is allowed, the nearest name.

At the end what a rule of the other modules looks at: an experiment with what it explains, or one of its method entries.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from shapeline.config.derived import SMOKE, find_features, find_framework
from shapeline.config.types import Config, Experiment, Model
from shapeline.datasets import sources
from shapeline.datasets.checks import Dataset
from shapeline.datasets.entries import NAME, explain_errors, shorten_value
from shapeline.datasets.registry import Source
from shapeline.errors import ShapelineError, nearest
from shapeline.methods.registry import METHODS, Method
from shapeline.metrics.registry import METRICS, Metric
from shapeline.models import registry

TARGETS = ("all", "fetch", "train", "scores", "metrics", "report", "smoke")
RULES = (
    "fetch_source prepare_dataset convert_weights train_model randomise_model select_instances evaluate_game attribute "
    "measure measure_scores compare render_report measure_accuracy render_theory render_accuracy render_index"
).split()
# Folders and pages beside the experiments' own.
RESERVED = ("models", "reports", "logs", "benchmark", "benchmarks", "theory", "accuracy", "index")
FEW_PLACES = 2  # in which a key may stand: more say nothing
SECTIONS = ("datasets", "models", "experiments")
MAX_NAME_LENGTH = 100  # characters of a key, which may become the name of a folder
MAX_TEXT_LENGTH = 4096
MAX_DOCUMENT_LENGTH = 1_000_000
MAX_INTEGER = 2**64 - 1
MAX_DESIGN_BYTES = 16e9  # masks and estimator weights, or permutations


def get_value(raw: Any, path: tuple) -> Any:
    for part in path:
        raw = raw[part] if isinstance(raw, list) else raw.get(part) if isinstance(raw, dict) else None
    return raw


def name_errors(raw: dict) -> Iterator[str]:
    for section in SECTIONS:
        entries = raw.get(section)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            yield from _check_name(section, name)
            if section == "experiments" and name in (*TARGETS, *RULES, *RESERVED):
                yield f"experiments.{name}: the name is taken by a target, rule or folder; choose another"
            elif name in SMOKE[section]:
                yield f"{section}.{name}: the name is kept for the built-in smoke test; choose another"
            methods = entry.get("methods") if isinstance(entry, dict) else None
            for method in methods if isinstance(methods, dict) else ():
                yield from _check_name(f"experiments.{name}.methods", method)


def _check_name(where: str, name: object) -> Iterator[str]:
    if not NAME.fullmatch(str(name)):
        yield f"{where}.{name}: not a valid name; write a letter, then letters, digits and underscores"


def explain_failure(path: tuple, errors: list[dict]) -> str:
    """Return the problem of the value at `path`, with the allowed values, the nearest name or the section of a key."""
    key = path[-1] if path else "the configuration"
    problem, elsewhere = explain_errors(errors, key), ""
    if errors[0]["type"] == "extra_forbidden" and (elsewhere := _find_elsewhere(path)):
        problem = problem if "Did you mean" in problem else "unknown key."
    return f"{problem}{elsewhere}"


def _find_elsewhere(path: tuple) -> str:
    """Return a hint where a key of this name belongs; "" if nowhere else."""
    places = dict.fromkeys(_list_places().get(path[-1], ()))
    above = [parts for parts in (place.split(".") for place in places) if len(parts) == len(path) - 1]
    if any(all(part in ("<name>", key) for part, key in zip(parts, path, strict=False)) for parts in above):
        return ""
    if not 0 < len(places) <= FEW_PLACES:
        return ""
    return f" '{path[-1]}' belongs {' or '.join(f'under {place}' if place else 'at the top' for place in places)}."


@cache
def _list_places() -> dict[str, list[str]]:
    """Return the sections in which each key of the configuration stands; of a name in it "<name>"."""
    result = defaultdict(list)

    def walk(kind: Any, place: str) -> None:
        if get_origin(kind) is dict:
            walk(get_args(kind)[1], f"{place}.<name>")
        elif get_origin(kind) in (list, tuple) or (isinstance(kind, type) and not issubclass(kind, BaseModel)):
            return
        elif isinstance(kind, type):
            for name, field in kind.model_fields.items():
                result[name].append(place.removeprefix("."))
                walk(field.annotation, f"{place}.{name}")
        else:
            for part in get_args(kind):
                walk(part, place)

    walk(Config, "")
    return result


def shorten_text(text: str) -> str:
    """Return the text, or its beginning where it is longer than a name may be."""
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[:20]}..."


def find_extremes(raw: Any) -> Iterator[str]:
    """Yield a line for each key and value of a raw configuration that no setting can take."""
    if not isinstance(raw, dict):
        yield f"the configuration is {shorten_value(raw)}; write a mapping of keys"
        return
    waiting: list[tuple[tuple, Any]] = [((), raw)]
    seen: set[int] = set()
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))  # an alias of YAML may name it again, or itself
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [((*path, key), item) for key, item in inside]
        if problem := _find_problem(value, MAX_DOCUMENT_LENGTH if "texts" in path else MAX_TEXT_LENGTH):
            yield f"{format_place(path)}: {problem}"
        if path and (problem := _find_problem(path[-1], MAX_NAME_LENGTH)):
            yield f"{format_place(path[:-1])}: the key {shorten_text(str(path[-1]))!r} is {problem}"


def format_place(path: tuple) -> str:
    """Return the keys of a path as a message names them."""
    parts = [shorten_text(key) if isinstance(key, str) else shorten_value(key) for key in path]
    return ".".join(parts) or "the configuration"


def _find_problem(value: object, longest: int) -> str:
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return f"a whole number of {value.bit_length():,} bits; the largest is 2^64 - 1; give a smaller one"
    if isinstance(value, str) and len(value) > longest:
        return f"a text of {len(value):,} characters; the longest is {longest:,}; shorten it"
    if isinstance(value, str) and "\0" in value:
        return "a text with the character U+0000, which no file or name can hold; remove it"
    return ""


@dataclass(frozen=True)
class Place:
    """An experiment; its model, source and the shape of its features are None where they are not known."""

    config: Config
    name: str
    experiment: Experiment
    model: Model | None
    source: Source | None
    shape: tuple[int, ...] | None

    @property
    def dataset_name(self) -> str | None:
        return self.experiment.dataset or (self.model.dataset if self.model else None)

    @property
    def dataset(self) -> Dataset | None:
        return self.config.datasets.get(self.dataset_name)

    @property
    def kind(self) -> str:
        """Of the features."""
        return self.experiment.features.kind

    @property
    def has_no_model(self) -> bool:
        return self.experiment.model is None and not self.experiment.game

    @property
    def function(self) -> str:
        """What a model is called that gives probabilities alone, "" of a network."""
        if self.model is None or find_framework(self.model) != "function":
            return ""
        if self.model.framework:
            return "a function"
        suffix = registry.find_suffix(self.model.source)
        return {".onnx": "an ONNX file", ".skops": "a pipeline"}.get(suffix, "a file of boosted trees")

    def metrics(self) -> Iterator[tuple[str, Metric]]:
        """Return the metrics that the experiment measures, by name."""
        return ((name, entry) for name, entry in METRICS.items() if getattr(self.experiment.metrics, name))


@dataclass(frozen=True)
class MethodPlace:
    """One of an experiment's methods; shape: of the features that it explains, None where that is not known."""

    place: Place
    name: str
    settings: Any
    shape: tuple[int, ...] | None

    @cached_property
    def method(self) -> Method:
        return METHODS[self.settings.method]

    @property
    def d(self) -> int | None:
        """How many features there are."""
        return math.prod(self.shape) if self.shape else None

    @property
    def kind(self) -> str:
        """Of the features."""
        return find_features(self.place.experiment, self.settings).kind


# A rule yields the rest of a line after its entry: ".key: problem; remedy", or ": problem; remedy".
Rule = Callable[[Place], Iterator[str]]
MethodRule = Callable[[MethodPlace], Iterator[str]]


def locate(where: str, lines: Iterable[str]) -> Iterator[str]:
    return (f"{where}{line}" for line in lines)


def refuse(where: str, section: BaseModel, keys: Iterable[str], why: str) -> Iterator[str]:
    """Yield a line per key that the section should not set, and sets; why: "{key}" in it stands for the key."""
    for key in keys:
        if getattr(section, key) != type(section).model_fields[key].default:
            yield f"{where}.{key}: {why.replace('{key}', key)}; remove the key"


def catch(where: str, check: Callable, *given: Any) -> Iterator[str]:
    try:
        check(*given)
    except ShapelineError as error:
        yield f"{where}: {error}"


def check_reference_to(where: str, what: str, name: str, names: Iterable[str]) -> Iterator[str]:
    if name is not None and name not in names:
        yield f"{where}: there is no {what} '{name}'.{nearest(name, names)}"


def check_arguments(where: str, function: str, available: Iterable[str], n_positional: int = 0) -> Iterator[str]:
    """Yield a line if a user's function is not there, or requires other arguments than are available."""
    try:
        arguments = sources.list_arguments(function)
    except ShapelineError as error:
        yield f"{where}: {error}"
        return
    required = [name for name, needed in arguments.items() if needed and name not in available]
    if len(required) != n_positional:
        called = "rows" if n_positional else ", ".join(name for name in available if name != "form")
        needs, only = ", ".join(required) or "no argument", f"only with {called}" if called else "without arguments"
        yield f"{where}: {function} requires {needs} and is called {only}; give other arguments defaults"


def describe_absence(path: str) -> str | None:
    """Return the problem of the path of a user's file; None if the file exists."""
    try:
        file = sources.expand(path)
    except ShapelineError as error:
        return str(error)
    return None if file.is_file() else f"there is no file {file}; paths start at the folder of the configuration or run"
