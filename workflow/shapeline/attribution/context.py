"""What a job explains: its settings, parsed once, and the model, data, features and reference that they name.

Of these, what defines a row's numbers, by which stored rows are found: not the backend, batch, shard or number of
instances; files count by their content.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.attribution.row_store import digest_array, digest_file, digest_of
from shapeline.datasets import loading, registry, tokenizer
from shapeline.datasets.loading import Dataset
from shapeline.datasets.sources import TRAIN
from shapeline.errors import ShapelineError
from shapeline.games import calibration, references
from shapeline.games import features as feature_kinds
from shapeline.games.calibration import fit_reference
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.methods import settings as method_settings
from shapeline.methods import shapiq_process
from shapeline.methods.settings import MethodSettings
from shapeline.models import storage
from shapeline.models.classifier import Classifier
from shapeline.scores import MEASURED, SCHEMA
from shapeline.versions import list_versions

OF_A_JOB = ("training_seeds", "training_instances", "randomised", "repeats")  # which rows there are, not what they hold


@dataclass(frozen=True)
class GameSettings:
    """The settings of a game as the configuration has them; reference: the baseline; seed: of what it samples."""

    features: Any = None
    seed: int = 0
    reference: Any = "mean"
    value: str = "log_probability"
    precision: str = "float32"
    compile: bool = False


@dataclass(frozen=True)
class AttributionSettings:
    """The settings of an attribute job; rows: those that define a row, as they were given."""

    game: GameSettings
    method: MethodSettings
    repeats: int
    timing: str
    time_limit: float | None
    training_instances: int | None
    randomised: bool
    rows: Mapping[str, Any]


def parse(settings: Mapping[str, Any]) -> AttributionSettings:
    """Return the record of the settings that the plan gives a job, and that a score file states."""
    method = settings["method"]
    return AttributionSettings(
        parse_game(settings),
        method_settings.parse(method, [*method.get("intermediate_budgets", ()), settings.get("budget")]),
        settings.get("repeats", 1),
        settings.get("timing", "batch"),
        settings.get("time_limit"),
        settings.get("training_instances"),
        "randomised" in settings,
        {name: setting for name, setting in settings.items() if name not in OF_A_JOB},
    )


def parse_game(settings: Mapping[str, Any]) -> GameSettings:
    """Return the record of a job's settings, which have more than these."""
    known = GameSettings.__dataclass_fields__
    return GameSettings(**{name: setting for name, setting in settings.items() if name in known})


@dataclass(frozen=True)
class ExplanationContext:
    """A model on its device with the data, features (None where they depend on the instance) and reference."""

    model: Classifier | None
    dataset: Dataset
    features: Features | None
    reference: Reference | None
    feature_settings: dict | str | None = None
    folder: Path | None = None  # of the prepared dataset
    device: str = "cpu"
    backend: ExecutionBackend | None = None

    def game(self, value: str) -> Game:
        """Return the game on the model; its features are None if they depend on the instance."""
        return Game(self.model, self.reference, self.features, value, self.backend)

    def buckets(self, inputs: np.ndarray, selected: pd.DataFrame) -> list[tuple[Features, np.ndarray]]:
        """Yield groups of the inputs of selected instances that share their features: (features, positions)."""
        if self.features is not None:
            return [(self.features, np.arange(len(inputs)))]
        owners = (
            None if self.dataset.owners is None else self._read(selected, self.dataset.owners, tokenizer.find_owners)
        )
        return feature_kinds.group_inputs(self.feature_settings, self.dataset.card, inputs, owners)

    def change_features(self, settings: dict) -> "ExplanationContext":
        """Return the same with other features."""
        own = None if feature_kinds.is_varying(settings) else feature_kinds.build(settings, self.dataset.card)
        return dataclasses.replace(self, features=own, feature_settings=settings)

    def change_model(self, weights: str, by_graph: bool = False, trained_on: str | None = None) -> "ExplanationContext":
        """Return the same with the model of a file of weights, by_graph by its graph; trained_on: card of its data."""
        model = (storage.read_graph(weights) if by_graph else None) or storage.load(weights, self.device)
        if trained_on:
            registry.check_explained(
                model.sizes, json.loads(Path(trained_on).read_text(encoding="utf-8")), self.dataset.card
            )
        read, made = model.vocabulary_digest, self.dataset.card.get("vocabulary_digest")
        if read != made:
            raise ShapelineError(
                f"model {weights}: it was trained on another vocabulary ({read}) than that of "
                f"{self.folder / 'arrays.npz'} ({made}); remove the weights and train it again"
            )
        model, dataset = storage.fit_rows(model, self.dataset)
        return dataclasses.replace(self, model=model, dataset=dataset).change_reference(self.reference)

    def change_reference(self, reference: Reference | None) -> "ExplanationContext":
        """Return the same with a reference whose numbers the model takes."""
        if reference is None:
            return self
        model, reference = fit_reference(self.model, _training_inputs(self), reference)
        return dataclasses.replace(self, model=model, reference=reference)

    def inputs(self, selected: pd.DataFrame) -> np.ndarray:
        """Return inputs (n, *input_shape) of selected instances; a custom text, at row -1, becomes its tokens."""
        return self._read(selected, self.dataset.inputs, tokenizer.encode_documents)

    def _read(self, selected: pd.DataFrame, stored: np.ndarray, made: Callable[[list[str], dict], np.ndarray]):
        rows = selected["row"].to_numpy()
        picked = stored[rows]
        own = rows < 0
        if own.any():
            picked[own] = made(selected["text"][own].to_list(), self.dataset.card)
        return picked


def targets(selected: pd.DataFrame) -> np.ndarray:
    """Return what is explained (n,): a label, the configured class or the predicted one; 0 in regression."""
    if selected["prediction"].dtype.kind == "f":
        return np.zeros(len(selected), int)
    return selected["target" if "target" in selected else "prediction"].to_numpy()


def load_context(
    weights: str | None,
    arrays: str,
    settings: GameSettings,
    device: str,
    trained_on: str | None = None,
    by_graph: bool = False,
) -> ExplanationContext:
    """Load the prepared data and, where there are weights, the model; see `ExplanationContext.change_model`."""
    dataset = loading.load(Path(arrays).parent)
    kind = settings.features
    shared = {
        "dataset": dataset,
        "features": None if feature_kinds.is_varying(kind) else feature_kinds.build(kind, dataset.card),
        "feature_settings": kind,
        "folder": Path(arrays).parent,
        "device": device,
    }
    context = ExplanationContext(model=None, reference=None, **shared)
    if not weights:
        return context
    context = context.change_model(weights, by_graph, trained_on)
    reference = references.build(settings.reference, context.dataset, settings.seed)
    return context.change_reference(reference)


def load_backend(
    path: str, context: ExplanationContext, device: str, settings: GameSettings | None = None
) -> ExecutionBackend | None:
    """Return the execution backend recorded for this kind of device, else calibrate one; None without a model."""
    if context.model is None:
        return None
    recorded = scores.metadata(path)["forms"].get(device)
    backend = ExecutionBackend(**recorded) if recorded else calibrate(context)
    if backend.name == "onnx" and context.model.framework == "tensorflow" and context.model.runtime is None:
        backend = ExecutionBackend("plain", backend.batch)  # a job that has TensorFlow runs the network itself
    if settings is None or (settings.precision == "float32" and not settings.compile):
        return backend
    game = Game(context.model, context.reference, context.features, backend=backend)
    return calibration.choose_backend(game, _training_inputs(context), settings.precision, settings.compile)


def calibrate(context: ExplanationContext, weights: str | None = None) -> ExecutionBackend:
    """Calibrate on training inputs; weights: beside which the graph of a network may be."""
    given = _training_inputs(context), context.reference
    backend = calibration.calibrate(context.model, *given)
    if (
        weights is None
        or context.model.framework != "tensorflow"
        or context.device != "cpu"
        or backend.name == "windows"
    ):
        return backend
    graph = storage.read_graph(weights)
    return calibration.prefer_graph(backend, context.model, graph, *given) if graph else backend


def _training_inputs(context: ExplanationContext) -> np.ndarray:
    return context.dataset.inputs[np.flatnonzero(context.dataset.split == TRAIN)[:64]]


READS_ALL_DATA = ("data", "external")  # families whose scores depend on more than the instance's input


def score_facts(
    context: ExplanationContext, settings: AttributionSettings, entry: str, files: Iterable[str], arrays: str
) -> dict:
    """Return what defines scores of a model by a method beside the instance; entry seeds samples, arrays: the data."""
    method = settings.method
    whole = method.method.family in READS_ALL_DATA or method.background
    return {
        **_list_shared_facts(context, [*files, *([arrays] if whole else [])], method.method.package),
        "settings": settings.rows,
        **({"release": shapiq_process.read_version(python)} if (python := method.arguments.get("python")) else {}),
        "label": entry if method.is_random else None,
        "columns": SCHEMA.names,
    }


def value_facts(context: ExplanationContext, settings: AttributionSettings, files: Iterable[str]) -> dict:
    """Return what defines the value of a coalition of an instance; files: behind the model, and the code of a value."""
    game = dataclasses.asdict(settings.game) | ({"features": own} if (own := settings.method.features) else {})
    return {**_list_shared_facts(context, files), "game": game}


def measurement_facts(
    context: ExplanationContext, settings: AttributionSettings, job: Mapping, files: Iterable[str]
) -> dict:
    """Return what defines a metric's measurements of one model beside the scores; job: settings of the metric."""
    return {**value_facts(context, settings, files), "metric": job, "columns": MEASURED.names}


def _list_shared_facts(context: ExplanationContext, files: Iterable[str], *packages: str | None) -> dict:
    model, reference = context.model, context.reference
    return {
        "files": sorted(map(digest_file, filter(None, files))),
        "device": context.device,
        "versions": list_versions(model and model.framework, packages),
        "architecture": model and model.architecture,
        "reference": None if reference is None or reference.rows is None else digest_array(reference.rows),
    }


def score_addresses(context: ExplanationContext, share: pd.DataFrame, repeats: int) -> np.ndarray:
    """Return the address of each instance's rows (n, repeats): of its id, which seeds samples, class and input."""
    named = zip(share["instance"], targets(share), map(digest_array, context.inputs(share)), strict=True)
    return np.array(
        [[digest_of([int(one), int(target), of_input, repeat]) for repeat in range(repeats)]
         for one, target, of_input in named]
    ).reshape(len(share), repeats)  # fmt: skip


def value_addresses(inputs: np.ndarray, classes: np.ndarray) -> list[str]:
    """Return the address of each instance's values (n,): of its input and class."""
    return [digest_of([digest_array(row), int(target)]) for row, target in zip(inputs, classes, strict=True)]
