"""A model defined by the user as a classifier: torch module, Keras model, predict_proba object or function."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from shapeline.errors import ShapelineError, nearest
from shapeline.models.classifier import FRAMEWORKS, OUTPUTS, TASK, Classifier
from shapeline.models.estimators import check_explainable, find_classes, find_owner, find_probabilities, unwrap_booster

KINDS = ("function", "logits", "multilabel", "predict_proba", "probabilities", "regression")


def wrap(model: Any, kind: str | None = None, n_classes: int | None = None) -> Classifier:
    """Return a custom model as a Classifier.

    `kind`: "logits", "probabilities", "multilabel" (a logit a label), "predict_proba", "function" (array ->
    probabilities) or "regression"; None finds it out, of a network when it is first evaluated. Raises
    ShapelineError when the model is none of these.
    """
    if isinstance(model, Classifier):
        model.outputs = model.outputs or (kind if kind in OUTPUTS else None)
        return model
    if isinstance(model, type):
        raise ShapelineError(f"models: {model.__name__} is a class; give an object of it that was fitted")
    framework, model = find_framework(model), unwrap_booster(model)
    if framework is None:
        check_explainable(model)
    detected = kind is None
    if kind is None:
        if framework:
            kind = "logits"
        elif _is_regression(model):
            kind = "regression"
        else:
            kind = "predict_proba" if hasattr(model, "predict_proba") else "function"
    if kind not in KINDS:
        raise ShapelineError(f"models: unknown kind of model '{kind}'.{nearest(kind, KINDS)}")
    if kind == "regression":
        return _regression(model, framework)
    function: Callable[..., Any] | None = model
    if kind == "predict_proba":
        function = find_probabilities(model) if hasattr(model, kind) else None
    taken = {"logits": FRAMEWORKS, "multilabel": ("torch",), "probabilities": FRAMEWORKS}.get(kind, (None,))
    if framework not in taken or not callable(function):
        what = f"cannot be used as '{kind}'" if callable(model) or kind != "function" else "is not a model"
        raise ShapelineError(
            f"models: a {type(model).__name__} {what}; give a torch module or a Keras model (of logits or "
            "probabilities), an object with predict_proba, or a function that returns probabilities"
        )
    name = getattr(model, "__name__", type(model).__name__)
    if framework:
        outputs = None if detected else "probabilities" if kind == "probabilities" else "logits"
        task = "multilabel" if kind == "multilabel" else TASK
        return Classifier(framework, name, model, n_classes, task=task, outputs=outputs)
    if n_classes is None and (classes := find_classes(model)) is not None:
        n_classes = len(classes)
    return Classifier("function", name, function, n_classes)


def _is_regression(model: Any) -> bool:
    """Whether a model without classes predicts, or is that method of an estimator."""
    owner = find_owner(model)
    if owner is not model:
        return getattr(model, "__name__", "") == "predict" and find_classes(owner) is None
    return hasattr(model, "predict") and not hasattr(model, "predict_proba") and find_classes(model) is None


def check_inputs(model: Any) -> None:
    """ShapelineError for a network that takes several inputs, with how to write it as a function of one array."""
    framework, width = find_framework(model), 3
    if framework == "torch" and inspect.isfunction(getattr(type(model), "forward", None)):
        arguments = [*inspect.signature(type(model).forward).parameters.values()][1:]
        count = sum(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in arguments)
        call = "network(*map(torch.tensor, [{}])).softmax(1).detach().numpy()"
    elif framework == "tensorflow":
        shapes = [one.shape[1:] for one in getattr(model, "inputs", None) or ()]
        count, call = len(shapes), "network.predict([{}], verbose=0)"
        width = shapes[0][0] if count and len(shapes[0]) == 1 else width
    else:
        return
    if count > 1:
        parts = f"rows[:, :{width}], rows[:, {width}:]{', ...' * (count > 2)}"
        raise ShapelineError(
            f"models: a {type(model).__name__} takes {count} inputs; put their columns side by side in one array, and "
            f"give a function that splits it, as in lambda rows: {call.format(parts)}"
        )


def _regression(model: Any, framework: str | None) -> Classifier:
    """Custom regression model as a Classifier; a classifier's `predict`, which gives labels, is none."""
    function = model if framework else getattr(model, "predict", model)
    name = getattr(model, "__name__", type(model).__name__)
    if not callable(function) or find_classes(model) is not None:
        raise ShapelineError(
            f"models: a {name} cannot be used as 'regression'; give a network, an object whose predict gives numbers, "
            "or a function that does"
        )
    return Classifier(framework or "function", name, function, 1, task="regression")


def find_framework(model: Any) -> str | None:
    """The framework whose model this is, or None; a framework that was never imported made no model."""
    for framework, package, kind in (("torch", "torch.nn", "Module"), ("tensorflow", "keras", "Model")):
        module = sys.modules.get(package)
        if module is not None and isinstance(model, getattr(module, kind)):
            return framework
    return None
