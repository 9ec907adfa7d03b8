"""The context of a job: its settings, parsed once, and the model, data, features and reference that they name.

Also the facts that define a row's numbers, which address stored rows: the content of files counts, but not the
backend, batch, shard or number of instances.
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
from shapeline.attribution.row_store import digest, digest_array, digest_file
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

JOB_KEYS = ("training_seeds", "training_instances", "randomised", "repeats")  # they select rows, and change none


@dataclass(frozen=True)
class GameSettings:
    """The settings of a game as in the configuration; reference: the baseline; seed: of its samples."""

    features: Any = None
    seed: int = 0
    reference: Any = "mean"
    value: str = "log_probability"
    precision: str = "float32"
    compile: bool = False


@dataclass(frozen=True)
class AttributionSettings:
    """The settings of an attribute job; rows: the settings that define a row, unparsed."""

    game: GameSettings
    method: MethodSettings
    repeats: int
    timing: str
    time_limit: float | None
    training_instances: int | None
    randomised: bool
    rows: Mapping[str, Any]


def parse(settings: Mapping[str, Any]) -> AttributionSettings:
    """Return the record of a job's settings, which a score file states too."""
    method = settings["method"]
    return AttributionSettings(
        parse_game(settings),
        method_settings.parse(method, [*method.get("intermediate_budgets", ()), settings.get("budget")]),
        settings.get("repeats", 1),
        settings.get("timing", "batch"),
        settings.get("time_limit"),
        settings.get("training_instances"),
        "randomised" in settings,
        {name: setting for name, setting in settings.items() if name not in JOB_KEYS},
    )


def parse_game(settings: Mapping[str, Any]) -> GameSettings:
    """Return the record of the game in a job's settings."""
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
        features = None if feature_kinds.is_varying(settings) else feature_kinds.build(settings, self.dataset.card)
        return dataclasses.replace(self, features=features, feature_settings=settings)

    def change_model(self, weights: str, by_graph: bool = False, trained_on: str | None = None) -> "ExplanationContext":
        """Return the same with the model of a file of weights; by_graph: its graph; trained_on: card of its data."""
        model = (storage.read_graph(weights) if by_graph else None) or storage.load(weights, self.device)
        if trained_on:
            registry.check_explained(
                model.sizes, json.loads(Path(trained_on).read_text(encoding="utf-8")), self.dataset.card
            )
        trained, prepared = model.vocabulary_digest, self.dataset.card.get("vocabulary_digest")
        if trained != prepared:
            raise ShapelineError(
                f"model {weights}: it was trained on another vocabulary ({trained}) than that of "
                f"{self.folder / 'arrays.npz'} ({prepared}); remove the weights and train it again"
            )
        model, dataset = storage.fit_rows(model, self.dataset)
        return dataclasses.replace(self, model=model, dataset=dataset).change_reference(self.reference)

    def change_reference(self, reference: Reference | None) -> "ExplanationContext":
        """Return the same with a reference whose numbers the model accepts."""
        if reference is None:
            return self
        model, reference = fit_reference(self.model, _training_inputs(self), reference)
        return dataclasses.replace(self, model=model, reference=reference)

    def inputs(self, selected: pd.DataFrame) -> np.ndarray:
        """Return inputs (n, *input_shape) of selected instances; a custom text, at row -1, becomes its tokens."""
        return self._read(selected, self.dataset.inputs, tokenizer.encode_documents)

    def _read(self, selected: pd.DataFrame, stored: np.ndarray, build: Callable[[list[str], dict], np.ndarray]):
        rows = selected["row"].to_numpy()
        cells = stored[rows]
        is_custom = rows < 0
        if is_custom.any():
            cells[is_custom] = build(selected["text"][is_custom].to_list(), self.dataset.card)
        return cells


def read_targets(selected: pd.DataFrame) -> np.ndarray:
    """Return the explained targets (n,): a label, the configured class or the predicted one; 0 in regression."""
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
    folder = Path(arrays).parent
    context = ExplanationContext(None, loading.load(folder), None, None, folder=folder, device=device)
    context = context.change_features(settings.features)
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
    """Calibrate on training inputs; weights: the file beside which the graph of a network may be."""
    inputs = _training_inputs(context), context.reference
    backend = calibration.calibrate(context.model, *inputs)
    if (
        weights is None
        or context.model.framework != "tensorflow"
        or context.device != "cpu"
        or backend.name == "windows"
    ):
        return backend
    graph = storage.read_graph(weights)
    return calibration.prefer_graph(backend, context.model, graph, *inputs) if graph else backend


def _training_inputs(context: ExplanationContext) -> np.ndarray:
    return context.dataset.inputs[np.flatnonzero(context.dataset.split == TRAIN)[:64]]


ALL_DATA_FAMILIES = ("data", "external")  # families whose scores depend on more than the input of the instance


def score_facts(
    context: ExplanationContext, settings: AttributionSettings, entry: str, files: Iterable[str], arrays: str
) -> dict:
    """Return the facts that define a method's scores besides the instance; entry seeds samples, arrays: the data."""
    method = settings.method
    reads_all = method.method.family in ALL_DATA_FAMILIES or method.background
    return {
        **_list_shared_facts(context, [*files, *([arrays] if reads_all else [])], method.method.package),
        "settings": settings.rows,
        **({"release": shapiq_process.read_version(python)} if (python := method.arguments.get("python")) else {}),
        "label": entry if method.is_random else None,
        "columns": SCHEMA.names,
    }


def value_facts(context: ExplanationContext, settings: AttributionSettings, files: Iterable[str]) -> dict:
    """Return the facts that define values of an instance's coalitions; files: of the model and of the value's code."""
    game = dataclasses.asdict(settings.game) | ({"features": kind} if (kind := settings.method.features) else {})
    return {**_list_shared_facts(context, files), "game": game}


def measurement_facts(
    context: ExplanationContext, settings: AttributionSettings, job: Mapping, files: Iterable[str]
) -> dict:
    """Return the facts that define a metric's measurements besides the scores; job: settings of the metric."""
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
    names = zip(share["instance"], read_targets(share), map(digest_array, context.inputs(share)), strict=True)
    return np.array(
        [[digest([int(instance), int(target), cells, repeat]) for repeat in range(repeats)]
         for instance, target, cells in names]
    ).reshape(len(share), repeats)  # fmt: skip


def value_addresses(inputs: np.ndarray, classes: np.ndarray) -> list[str]:
    """Return the address of each instance's values (n,): of its input and class."""
    return [digest([digest_array(row), int(target)]) for row, target in zip(inputs, classes, strict=True)]
