"""Models: build by name, wrap one's own, save and load without pickle. Frameworks are imported only when used."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapeline import datasets
from shapeline.errors import ShapelineError, nearest
from shapeline.models.classifier import Classifier

# The builders' names, so that a configuration can be checked without importing a framework.
ARCHITECTURES = ("digits_cnn", "mlp", "mnist_cnn")
KINDS = ("function", "logits", "predict_proba")

__all__ = ["ARCHITECTURES", "KINDS", "Classifier", "build", "for_dataset", "load", "save", "wrap"]


def build(architecture: str, framework: str = "torch", *, seed: int = 0, **sizes: Any) -> Classifier:
    """A new classifier with weights drawn from `seed`, by the name of its architecture.

    `sizes`: mnist_cnn and digits_cnn: classes, channels, side; mlp: inputs, hidden, classes. The defaults are the
    papers'. An architecture may also be one's own, "path/to/file.py:function"; the function gets the sizes and
    returns a torch module that gives logits. Raises ShapelineError for an unknown architecture, framework or size.
    """
    if framework != "torch":
        raise ShapelineError(f"models: framework '{framework}' is not available; use 'torch'")
    from shapeline.models import torch_models

    builder = _builder(architecture)
    accepted = _sizes(builder)
    for name in sizes:
        if name not in accepted:
            raise ShapelineError(f"models: '{architecture}' has no size '{name}'.{nearest(name, accepted)}")
    for name, default in accepted.items():
        if default is inspect.Parameter.empty and name not in sizes:
            raise ShapelineError(f"models: '{architecture}' needs the size '{name}'")
    complete = {**accepted, **sizes}
    with torch_models.seeded(seed):
        module = torch_models.checked_module(builder(**complete), architecture)
    return Classifier("torch", architecture, module.eval(), complete.get("classes"), complete)


def for_dataset(settings: dict[str, Any], card: dict[str, Any]) -> Classifier:
    """A new classifier for a dataset, from a model's settings and the dataset's card.

    settings: architecture (a name) or source ("path/to/file.py:function"), and optionally sizes and seed. What the
    card knows (classes, channels, side, inputs, input_shape) is given to builders that take it, unless sizes say
    otherwise. Raises ShapelineError when the inputs do not fit the architecture.
    """
    architecture = settings.get("architecture") or settings["source"]
    shape = tuple(card["input_shape"])
    known: dict[str, Any] = {"classes": len(card["classes"]), "input_shape": list(shape)}
    if len(shape) == 1:
        known["inputs"] = shape[0]
    elif len(shape) == 3:
        known["channels"] = shape[0]
        if shape[1] == shape[2]:
            known["side"] = shape[1]
    accepted = _sizes(_builder(architecture))
    if architecture in ARCHITECTURES:
        for name in ("inputs", "side"):
            if name in accepted and name not in known:
                kind = "a table" if name == "inputs" else "square images"
                raise ShapelineError(f"models: '{architecture}' is for {kind}, but the inputs have shape {shape}")
    sizes = {name: size for name, size in known.items() if name in accepted}
    classifier = build(architecture, seed=settings.get("seed", 0), **{**sizes, **settings.get("sizes", {})})
    classifier.n_classes = classifier.n_classes or known["classes"]
    return classifier


def wrap(model: Any, kind: str | None = None, n_classes: int | None = None) -> Classifier:
    """One's own model as a Classifier.

    `kind`: "logits" (an nn.Module giving (n, classes) logits), "predict_proba" (an object with that method) or
    "function" (array -> probabilities); None finds it out. A Classifier is returned as it is.
    Raises ShapelineError when the model is none of these.
    """
    if isinstance(model, Classifier):
        return model
    torch = sys.modules.get("torch")  # there is no torch module before torch was imported
    is_module = torch is not None and isinstance(model, torch.nn.Module)
    if kind is None:
        if is_module:
            kind = "logits"
        else:
            kind = "predict_proba" if hasattr(model, "predict_proba") else "function"
    if kind not in KINDS:
        raise ShapelineError(f"models: unknown kind of model '{kind}'.{nearest(kind, KINDS)}")
    function: Callable[..., Any] | None = getattr(model, "predict_proba", None) if kind == "predict_proba" else model
    if (kind == "logits") != is_module or not callable(function):
        raise ShapelineError(
            f"models: a {type(model).__name__} cannot be used as '{kind}'; give a torch module (logits), "
            "an object with predict_proba, or a function that returns probabilities"
        )
    name = getattr(model, "__name__", type(model).__name__)
    if kind == "logits":
        return Classifier("torch", name, model, n_classes)
    if n_classes is None and hasattr(model, "classes_"):
        n_classes = len(model.classes_)
    return Classifier("function", name, function, n_classes)


def save(classifier: Classifier, path: str | Path) -> None:
    """Write the weights as safetensors; architecture and sizes go into its metadata. Atomic.

    Raises ShapelineError for a wrapped model, whose architecture has no name to build it from.
    """
    if classifier.framework != "torch" or not _is_named(classifier.architecture):
        raise ShapelineError(f"models: '{classifier.architecture}' is a wrapped model; only built models can be saved")
    from shapeline.models import torch_models

    torch_models.write_weights(classifier, Path(path))


def load(path: str | Path, device: str = "cpu") -> Classifier:
    """Read a classifier that `save` wrote; nothing is unpickled.

    Raises ShapelineError when the file is missing, not safetensors, or does not say which architecture it holds.
    """
    from shapeline.models import torch_models

    metadata, weights = torch_models.read_weights(Path(path))
    classifier = build(metadata["architecture"], **metadata["sizes"])
    classifier.n_classes = metadata["classes"]
    torch_models.set_weights(classifier, weights, str(path))
    return classifier.to(device)


def _is_named(architecture: str) -> bool:
    return architecture in ARCHITECTURES or ".py:" in architecture


def _builder(architecture: str) -> Callable[..., Any]:
    from shapeline.models import torch_models

    if not _is_named(architecture):
        raise ShapelineError(f"models: unknown architecture '{architecture}'.{nearest(architecture, ARCHITECTURES)}")
    if architecture in ARCHITECTURES:
        return getattr(torch_models, architecture)
    return datasets.user_function(architecture)


def _sizes(builder: Callable[..., Any]) -> dict[str, Any]:
    """The sizes a builder takes, with their defaults."""
    return {name: parameter.default for name, parameter in inspect.signature(builder).parameters.items()}
