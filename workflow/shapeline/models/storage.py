"""Models on disk, without pickle, and the rows that they take of a dataset."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shapeline.errors import ShapelineError, reported_extras
from shapeline.models import axes, graph_file, pretrained, weights
from shapeline.models.architectures import build, is_named
from shapeline.models.classifier import FRAMEWORKS, Classifier, backend

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset


@reported_extras("models.save")
def save(classifier: Classifier, path: str | Path) -> None:
    """Write weights as safetensors with what it takes to build the model; ShapelineError for a wrapped model."""
    is_ready = pretrained.kind_of(classifier.architecture, classifier.framework) is not None
    if not is_ready and (classifier.framework not in FRAMEWORKS or not is_named(classifier.architecture)):
        raise ShapelineError(f"models: '{classifier.architecture}' is a wrapped model; only built models can be saved")
    metadata = {
        "framework": classifier.framework,
        "architecture": classifier.architecture,
        "classes": classifier.n_classes,
        "sizes": classifier.sizes,
    }
    if classifier.task != "classification":
        metadata["task"] = classifier.task
    if classifier.framework in FRAMEWORKS and classifier.outputs != "logits":
        metadata["outputs"] = classifier.outputs
    if order := axes.order_of(classifier.module):
        metadata["order"] = order
    if classifier.vocabulary_digest is not None:
        metadata["vocabulary_digest"] = classifier.vocabulary_digest
    arrays = pretrained.arrays_of(classifier) if is_ready else backend(classifier.framework).state(classifier.module)
    weights.write(Path(path), arrays, metadata)


def save_graph(classifier: Classifier, path: str | Path, inputs: np.ndarray) -> dict[str, str] | None:
    """Write the graph of a network that `save` wrote beside it, as graph_file.write; None where there is none, and of
    one that cuts its own batches."""
    Path(path).with_name(graph_file.FILE).unlink(missing_ok=True)  # of other weights
    if classifier.framework not in graph_file.EXPORTERS or hasattr(classifier.module, "rows_a_call"):
        return None
    return graph_file.write(path, load(path), inputs)


@reported_extras("models.load")
def load(path: str | Path, device: str = "cpu", framework: str | None = None) -> Classifier:
    """Read a classifier that `save` wrote, in its own framework or as its twin; nothing is unpickled.
    ShapelineError."""
    metadata, arrays = weights.read(Path(path))
    if pretrained.kind_of(metadata["architecture"], metadata["framework"]):
        return pretrained.restored(metadata, arrays).to(device)
    classifier = build(metadata["architecture"], framework or metadata["framework"], **metadata["sizes"])
    classifier.n_classes, classifier.task = metadata["classes"], metadata["task"]
    classifier.vocabulary_digest = metadata["vocabulary_digest"]
    made_by = backend(classifier.framework)
    classifier.outputs = metadata["outputs"]
    classifier = axes.arranged(classifier, metadata["order"])
    if classifier.outputs == "probabilities":
        classifier.module = made_by.build_from_probabilities(
            classifier.module, classifier.task, classifier.architecture
        )
    weights.check_fit(arrays, made_by.state(classifier.module), str(path), classifier.architecture)
    made_by.set_state(classifier.module, arrays)
    return classifier.to(device)


def start_from(classifier: Classifier, path: str | Path) -> None:
    """Put in weights of a safetensors file to train from; the last layer stays where it has other classes.
    ShapelineError."""
    made_by = backend(classifier.framework)
    own, start = made_by.state(classifier.module), weights.tensors(Path(path))
    kept = [name for name in own if name.endswith("num_batches_tracked") and name not in start]
    last = [name for name in [*own][-2:] if name in start]
    if any(start[name].shape != own[name].shape for name in last):
        kept += last
    start |= {name: own[name] for name in kept}
    weights.check_fit(start, own, str(path), classifier.architecture, "give weights of this architecture and its sizes")
    made_by.set_state(classifier.module, start)


def fit_rows(model: Classifier, dataset: "Dataset") -> "tuple[Classifier, Dataset]":
    """Return the model and the dataset whose inputs it takes, each row in the types of the user's own table."""
    if model.framework != "function":
        return model, dataset.as_numbers()
    if not hasattr(model.module, "table") or dataset.own_rows is None:
        return model, dataset
    own = replace(model.module, table=dataset.own_rows[0])
    return replace(model, module=own), dataset.as_given()
