"""Models that come ready (skops, Keras, ONNX, boosted trees, a folder, a function): none trained, nothing unpickled."""

import importlib
import importlib.metadata
import logging
import platform
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from shapeline.datasets.loading import blocks
from shapeline.datasets.sources import PARTS, expand
from shapeline.errors import ShapelineError
from shapeline.models.classifier import Classifier, backend, check_labels, label_scores, r_squared, start_card
from shapeline.models.pipeline_file import digest_training_rows
from shapeline.models.registry import FRAMEWORKS, READERS, find_kind
from shapeline.versions import list_imported

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset

log = logging.getLogger(__name__)

PACKAGES = {"function": ("scikit-learn", "skops"), "tensorflow": ("tensorflow", "keras"), "torch": ("torch",)}
UNTRAINED = "none: the model came ready, and which rows it was made from is not known here"
FITTED = "by `shapeline init`, on the training rows"
FITTED_OTHERWISE = "by `shapeline init`, on another table or split, so that the accuracy may be too high"


def for_dataset(settings: dict[str, Any], card: dict[str, Any]) -> Classifier:
    """Return the classifier in the file that settings name, for a card's dataset. Raises ShapelineError."""
    source, kind = settings["source"], find_kind(settings["source"], settings.get("framework"))
    if kind == "folder":
        return importlib.import_module(READERS[kind]).for_dataset(settings, card)
    function = kind == "function"
    path = expand(source.rpartition(":")[0] if function else source)
    if not path.is_file():
        raise ShapelineError(f"models: there is no file {path}; paths start at the folder of the run")
    known = {
        "classes": list(card["classes"]),
        "columns": card.get("columns") or (None if function else _numbers(card["feature_names"])),
        "input_shape": list(card["input_shape"]),
        "kind": card["kind"],
        **({} if card.get("has_channels", True) else {"has_channels": False}),
        **(
            {"vocabulary": len(card["vocabulary"])} if "vocabulary" in card else {}
        ),  # of a tokenizer defined by the user
        "trusted": sorted(settings.get("trusted_types", ())),
        **({"outputs": settings["outputs"]} if settings.get("outputs") else {}),
    }
    classifier = _load(source, kind, path.read_bytes(), known, card.get("task") or "classification")
    classifier.vocabulary_digest = card.get("vocabulary_digest")  # the documents are cut for it, so they are its own
    return classifier


def _numbers(names: list[str]) -> list[dict]:
    return [{"name": name, "type": "number"} for name in names]


def restore(metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> Classifier:
    """The classifier of a file of weights that `collect_arrays` filled."""
    source, kind = metadata["architecture"], find_kind(metadata["architecture"], metadata["framework"])
    if kind == "folder":
        return importlib.import_module(READERS[kind]).restore(metadata, arrays)
    classifier = _load(source, kind, arrays["file"].tobytes(), metadata["sizes"], metadata["task"])
    classifier.vocabulary_digest = metadata["vocabulary_digest"]
    if classifier.framework != "function":
        classifier.outputs = metadata["outputs"]
    if classifier.framework != "function" and classifier.outputs == "probabilities":
        made_by = backend(classifier.framework)
        classifier.module = made_by.build_from_probabilities(classifier.module, classifier.task, source)
    return classifier


def collect_arrays(classifier: Classifier) -> dict[str, np.ndarray]:
    """The ready model's own file, or a folder's weights, as what a file of weights holds."""
    if classifier.framework == "torch":
        return backend("torch").state(classifier.module)
    module = getattr(classifier.module, "network", classifier.module)  # where it gives probabilities
    return {"file": np.frombuffer(module.content, np.uint8)}


def _load(source: str, kind: str, content: bytes, known: dict[str, Any], task: str) -> Classifier:
    module = importlib.import_module(READERS[kind]).load_model(source, content, known, task)
    classes = 1 if task == "regression" else len(known["classes"])
    outputs = "logits" if getattr(module, "stripped", False) else known.get("outputs")
    return Classifier(FRAMEWORKS[kind], source, module, classes, known, task=task, outputs=outputs)


def measure_card(classifier: Classifier, dataset: "Dataset") -> dict[str, Any]:
    """The card of a ready model: as that of training.fit, but for what only training has."""
    rows = {part: np.flatnonzero(dataset.split == number) for number, part in enumerate(PARTS)}
    measured = {}
    for part in ("validation", "test"):
        if len(rows[part]):
            scores = _measure_scores(classifier, dataset, rows[part])
            measured |= {f"{part}_{name}": value for name, value in scores.items()}
    log.info("%s", ", ".join(f"{name} {value:.4f}" for name, value in measured.items() if isinstance(value, float)))
    used = (*PACKAGES[classifier.framework], *(["transformers"] if "transformers" in sys.modules else []), "numpy")
    versions = {name: importlib.metadata.version(name) for name in used}
    versions |= list_imported()
    return {
        **start_card(classifier),
        "parameters": classifier.n_parameters or None,
        "settings": _describe_origin(classifier, dataset),
        "versions": {"python": platform.python_version(), **versions},
        "rows": {part: len(members) for part, members in rows.items()},
        **measured,
    }


def _describe_origin(classifier: Classifier, dataset: "Dataset") -> str:
    """Return by whom a ready model was fitted, as far as it says so."""
    fitted_rows = getattr(getattr(classifier.module, "estimator", None), "fitted_rows", None)
    if fitted_rows is None:
        return UNTRAINED
    return FITTED if fitted_rows == digest_training_rows(dataset) else FITTED_OTHERWISE


def _measure_scores(classifier: Classifier, dataset: "Dataset", rows: np.ndarray) -> dict[str, Any]:
    inputs, labels = dataset.inputs, dataset.labels[rows]
    if classifier.task == "multilabel":
        check_labels(classifier, inputs[rows[:1]], labels)
    predicted = np.concatenate([classifier.predict(block) for block in blocks(inputs, rows)])
    if classifier.task == "regression":
        rmse = float(np.sqrt(((predicted - labels) ** 2).mean()))
        return {"r2": r_squared(predicted, labels), "rmse": rmse}
    right = predicted == labels
    return {"accuracy": float(right.mean()), **(label_scores(right, dataset.card) if right.ndim == 2 else {})}
