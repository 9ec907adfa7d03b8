"""Models: build by name, wrap one's own, save and load without pickle. Frameworks are imported only when used."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapeline.errors import ShapelineError, nearest
from shapeline.models.classifier import Classifier

# The builders' names, so that a configuration can be checked without importing a framework.
ARCHITECTURES = ("digits_cnn", "mlp", "mnist_cnn")
KINDS = ("function", "logits", "predict_proba")

__all__ = ["ARCHITECTURES", "KINDS", "Classifier", "build", "load", "save", "wrap"]


def build(architecture: str, framework: str = "torch", *, seed: int = 0, **sizes: Any) -> Classifier:
    """A new classifier with weights drawn from `seed`, by the name of its architecture.

    `sizes`: mnist_cnn and digits_cnn: classes, channels, side; mlp: inputs, hidden, classes. The defaults are the
    papers'. Raises ShapelineError for an unknown architecture, framework or size.
    """
    if framework != "torch":
        raise ShapelineError(f"models: framework '{framework}' is not available; use 'torch'")
    from shapeline.models import torch_models

    builder = _builder(architecture)
    known = inspect.signature(builder).parameters
    for name in sizes:
        if name not in known:
            raise ShapelineError(f"models: '{architecture}' has no size '{name}'.{nearest(name, known)}")
    complete = {name: sizes.get(name, parameter.default) for name, parameter in known.items()}
    with torch_models.seeded(seed):
        module = builder(**complete)
    return Classifier("torch", architecture, module.eval(), int(complete["classes"]), complete)


def wrap(model: Any, kind: str | None = None, n_classes: int | None = None) -> Classifier:
    """One's own model as a Classifier.

    `kind`: "logits" (an nn.Module giving (n, classes) logits), "predict_proba" (an object with that method) or
    "function" (array -> probabilities); None finds it out. A Classifier is returned as it is.
    Raises ShapelineError when the model is none of these.
    """
    if isinstance(model, Classifier):
        return model
    torch = sys.modules.get("torch")  # a torch module cannot exist before torch was imported
    is_module = torch is not None and isinstance(model, torch.nn.Module)
    if kind is None:
        if is_module:
            kind = "logits"
        else:
            kind = "predict_proba" if hasattr(model, "predict_proba") else "function"
    if kind not in KINDS:
        raise ShapelineError(f"models: unknown kind of model '{kind}'.{nearest(kind, KINDS)}")
    function: Callable[..., Any] | None = getattr(model, "predict_proba", None) if kind == "predict_proba" else model
    if (kind == "logits" and not is_module) or not callable(function):
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
    if classifier.framework != "torch" or classifier.architecture not in ARCHITECTURES:
        raise ShapelineError(f"models: '{classifier.architecture}' is a wrapped model; only built models can be saved")
    from shapeline.models import torch_models

    torch_models.write_weights(classifier, Path(path))


def load(path: str | Path, device: str = "cpu") -> Classifier:
    """Read a classifier that `save` wrote; nothing is unpickled.

    Raises ShapelineError when the file is missing, not safetensors, or does not say which architecture it holds.
    """
    from shapeline.models import torch_models

    architecture, sizes, weights = torch_models.read_weights(Path(path))
    classifier = build(architecture, **sizes)
    torch_models.set_weights(classifier, weights, str(path))
    return classifier.to(device)


def _builder(architecture: str) -> Callable[..., Any]:
    from shapeline.models import torch_models

    if architecture not in ARCHITECTURES:
        raise ShapelineError(f"models: unknown architecture '{architecture}'.{nearest(architecture, ARCHITECTURES)}")
    return getattr(torch_models, architecture)
