"""What a rule looks at: an experiment with what it explains, and one of its method entries."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from shapeline.config.derived import find_features, find_framework
from shapeline.config.types import Config, Dataset, Experiment, Model
from shapeline.datasets import sources
from shapeline.datasets.registry import Source
from shapeline.errors import ShapelineError
from shapeline.methods.registry import METHODS, Method
from shapeline.metrics.registry import METRICS, Metric
from shapeline.models import registry


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
    def where(self) -> str:
        return f"experiments.{self.name}"

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
        """The metrics that the experiment measures, by name."""
        return ((name, entry) for name, entry in METRICS.items() if getattr(self.experiment.metrics, name))


@dataclass(frozen=True)
class MethodPlace:
    """One of an experiment's methods; shape: of the features that it explains, None where that is not known."""

    place: Place
    name: str
    settings: Any
    shape: tuple[int, ...] | None

    @property
    def where(self) -> str:
        return f"{self.place.where}.methods.{self.name}"

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


Rule = Callable[[Place], Iterator[str]]
MethodRule = Callable[[MethodPlace], Iterator[str]]


def refuse(where: str, section: BaseModel, keys: Iterable[str], why: str) -> Iterator[str]:
    """Yield a line per key that the section sets and should not have; why: "{key}" in it stands for the key."""
    for key in keys:
        if key in section.model_fields_set:
            yield f"{where}.{key}: {why.replace('{key}', key)}; remove the key"


def catch(where: str, check: Callable, *given: Any) -> Iterator[str]:
    """Yield the mistake that a check raises."""
    try:
        check(*given)
    except ShapelineError as error:
        yield f"{where}: {error}"


def describe_absence(path: str) -> str | None:
    """What is wrong with the path of a user's own file; None where the file is there."""
    try:
        file = sources.expand(path)
    except ShapelineError as error:
        return str(error)
    return None if file.is_file() else f"there is no file {file}; paths start at the folder of the configuration or run"
