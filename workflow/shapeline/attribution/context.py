"""What an experiment explains: its model, data, features and reference, loaded from files."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.attribution.settings import GameSettings
from shapeline.datasets import compatibility, document_files, loading
from shapeline.datasets.loading import Dataset
from shapeline.datasets.sources import TRAIN
from shapeline.errors import ShapelineError
from shapeline.games import calibration, references
from shapeline.games import features as feature_kinds
from shapeline.games.calibration import settle_reference
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.models import storage
from shapeline.models.classifier import Classifier


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
        """What is asked of the model; its features are None where they depend on the instance."""
        return Game(self.model, self.reference, self.features, value, self.backend)

    def buckets(self, inputs: np.ndarray, selected: pd.DataFrame) -> list[tuple[Features, np.ndarray]]:
        """Groups of the inputs of selected instances that share their features: (features, positions)."""
        if self.features is not None:
            return [(self.features, np.arange(len(inputs)))]
        owners = (
            None if self.dataset.owners is None else self._read(selected, self.dataset.owners, document_files.owners)
        )
        return feature_kinds.buckets(self.feature_settings, self.dataset.card, inputs, owners)

    def change_features(self, settings: dict) -> "ExplanationContext":
        """The same with other features."""
        own = None if feature_kinds.varies(settings) else feature_kinds.build(settings, self.dataset.card)
        return dataclasses.replace(self, features=own, feature_settings=settings)

    def change_model(self, weights: str, by_graph: bool = False, trained_on: str | None = None) -> "ExplanationContext":
        """Return the same with the model of a file of weights, by_graph by its graph; trained_on: card of its data."""
        model = (storage.read_graph(weights) if by_graph else None) or storage.load(weights, self.device)
        if trained_on:
            compatibility.check(
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
        model, reference = settle_reference(self.model, _training_inputs(self), reference)
        return dataclasses.replace(self, model=model, reference=reference)

    def inputs(self, selected: pd.DataFrame) -> np.ndarray:
        """Inputs (n, *input_shape) of selected instances; a custom text, at row -1, becomes its tokens."""
        return self._read(selected, self.dataset.inputs, document_files.encode)

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
        "features": None if feature_kinds.varies(kind) else feature_kinds.build(kind, dataset.card),
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
    return calibration.or_graph(backend, context.model, graph, *given) if graph else backend


def _training_inputs(context: ExplanationContext) -> np.ndarray:
    return context.dataset.inputs[np.flatnonzero(context.dataset.split == TRAIN)[:64]]
