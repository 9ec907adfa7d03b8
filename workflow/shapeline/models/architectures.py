"""Models by the name of their architecture, checked without importing a framework."""

import inspect
from collections.abc import Callable, Container
from typing import Any

from shapeline.datasets import sources
from shapeline.errors import ShapelineError, nearest, reported_extras
from shapeline.models import adapters, axes, pretrained
from shapeline.models.classifier import FRAMEWORKS, TASK, Classifier, backend
from shapeline.models.registry import ARCHITECTURES, find_kind, find_suffix

__all__ = [
    *("ARCHITECTURES", "FRAMEWORKS", "KINDS", "Classifier"),
    *("build", "for_dataset", "load", "save", "start_from", "wrap"),
]


@reported_extras("models.build")
def build(architecture: str, framework: str = "torch", *, seed: int = 0, **sizes: Any) -> Classifier:
    """Return a new classifier with random weights, by the name of its architecture and framework.

    Parameters
    ----------
    architecture : str
        One of the package's, or "path/to/file.py:function": the function gets the sizes and returns a torch module, or
        a Keras model that has its weights, that gives logits.
    framework : {"torch", "tensorflow"}
    seed : int
        Of the weights.
    **sizes
        mnist_cnn, digits_cnn and cifar_cnn: classes, channels, side; crosses_cnn: classes, channels, height, width,
        dropout; resnet18: classes, channels; mlp: inputs, hidden, classes; word_cnn: vocabulary, length, embedding,
        filters, hidden, classes, dropout; char_cnn: alphabet, length, classes, hidden, dropout; bilstm: vocabulary,
        length, embedding, units, classes, dropout. The defaults are the papers'.

    Returns
    -------
    Classifier
        With `n_parameters` and `log_probs(inputs)`, (n, classes).

    Raises
    ------
    ShapelineError
        Where the architecture, the framework or a size is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import models
    >>> model = models.build("mlp", inputs=3, classes=2)
    >>> model.n_parameters, model.log_probs(np.zeros((5, 3), np.float32)).shape
    (2402, (5, 2))
    """
    if framework not in FRAMEWORKS:
        raise ShapelineError(f"models: unknown framework '{framework}'.{nearest(framework, FRAMEWORKS)}")
    builder = _builder(architecture, framework)
    accepted = _sizes(builder)
    for name in sizes:
        if name not in accepted:
            raise ShapelineError(f"models: '{architecture}' has no size '{name}'.{nearest(name, accepted)}")
    for name, default in accepted.items():
        if default is inspect.Parameter.empty and name not in sizes:
            own = ", or set framework: function, if it answers rows" * (architecture not in ARCHITECTURES)
            raise ShapelineError(f"models: '{architecture}' needs the size '{name}'; give it{own}")
    complete = {**accepted, **sizes}
    if architecture in ARCHITECTURES:
        _check_sizes(architecture, complete)
    made_by = backend(framework)
    with made_by.set_seed(seed):
        module = made_by.checked_module(builder(**complete), architecture)
    if framework == "torch":
        module.eval()
    task = "regression" if complete.get("classes") == 1 else "classification"
    outputs = "logits" if architecture in ARCHITECTURES else None
    return Classifier(framework, architecture, module, complete.get("classes"), complete, task=task, outputs=outputs)


def for_dataset(settings: dict[str, Any], card: dict[str, Any]) -> Classifier:
    """Return a new classifier for a dataset, from a model's settings (architecture or source, sizes, seed) and its
    card.

    What the card knows is given to builders that take it, unless sizes say otherwise. Raises ShapelineError.
    """
    _check_several(settings, card)
    if find_kind(settings.get("source"), settings.get("framework")):
        return pretrained.for_dataset(settings, card)
    architecture, framework = settings.get("architecture") or settings["source"], settings.get("framework", "torch")
    _check_records(architecture, card)
    accepted = _sizes(_builder(architecture, framework))
    known = _read_sizes(card, accepted)
    if architecture in ARCHITECTURES:
        _check_inputs(architecture, card, accepted, known)
    sizes = {name: size for name, size in known.items() if name in accepted} | settings.get("sizes", {})
    classifier = build(architecture, framework, seed=settings.get("seed", 0), **sizes)
    classifier.outputs = settings.get("outputs") or classifier.outputs
    if architecture not in ARCHITECTURES:
        adapters.check_inputs(classifier.module)
        classifier = axes.fit_to_shape(classifier, tuple(card["input_shape"]))
    classifier.n_classes = classifier.n_classes or known["classes"]
    classifier.task = card.get("task") or TASK
    classifier.vocabulary_digest = card.get("vocabulary_digest")
    return classifier


def _check_several(settings: dict[str, Any], card: dict[str, Any]) -> None:
    """ShapelineError where a record has several labels and the model is not of torch."""
    if card.get("task") != "multilabel":
        return
    if find_suffix(settings.get("source")) or settings.get("framework", "torch") != "torch":
        raise ShapelineError(
            f"models: several labels per record need torch, and '{card.get('name')}' has them; set "
            "framework: torch, with an architecture or a function of your own"
        )


def _check_records(architecture: str, card: dict[str, Any]) -> None:
    """ShapelineError where cells are missing, or a class has nothing to learn from."""
    if card.get("missing"):
        raise ShapelineError(
            f"models: '{architecture}' takes no missing cells, and the dataset has some "
            f"({', '.join(card['missing'])}); fill them, or give a pipeline that does"
        )
    for name, number in (card.get("counts") or {}).get("train", {}).items():
        if not number:
            raise ShapelineError(
                f"models: class '{name}' has no record in the training part of '{card['name']}', so nothing can learn "
                "it; train on other data"
            )


def _read_sizes(card: dict[str, Any], accepted: Container[str]) -> dict[str, Any]:
    """The sizes that a dataset's card tells, by the names that builders give them; accepted: those of this builder."""
    shape = tuple(card["input_shape"])
    classes = 1 if card.get("task") == "regression" else len(card["classes"])
    known: dict[str, Any] = {"classes": classes, "input_shape": list(shape)}
    if card.get("kind") == "text":
        ids = len(card["vocabulary"])
        known |= {"length": shape[0], "vocabulary": ids, "alphabet": ids - 1}
    elif len(shape) == 1:
        known["inputs"] = shape[0]
    elif len(shape) == 3:
        known["channels"] = shape[0]
        if shape[1] == shape[2]:
            known["side"] = shape[1]
        if "height" in accepted:  # without one, `width` is a size of another kind
            known |= {"height": shape[1], "width": shape[2]}
    return known


def _check_inputs(architecture: str, card: dict[str, Any], accepted: Container[str], known: dict[str, Any]) -> None:
    """ShapelineError where an architecture of this package is not for the inputs or the task of a dataset."""
    if card.get("kind") == "text" and card.get("absent_id") and card.get("unit") == "word":
        raise ShapelineError(
            f"models: '{architecture}' is padded with id 0 and the tokenizer of '{card['name']}' pads with "
            f"{card['absent_id']}; let pad be 0, or give a network of your own"
        )
    if card.get("task") == "regression" and not ARCHITECTURES[architecture].regression:
        able = " or ".join(name for name, entry in ARCHITECTURES.items() if entry.regression)
        raise ShapelineError(f"models: '{architecture}' is for classes, and the dataset is of regression; use {able}")
    kinds = {"inputs": "a table", "side": "square images", "channels": "images", "length": "text"}
    for name, kind in kinds.items():
        if name in accepted and name not in known:
            inputs = "text" if "length" in known else f"of shape {tuple(card['input_shape'])}"
            raise ShapelineError(
                f"models: '{architecture}' is for {kind}, but the inputs are {inputs}"
                "; choose an architecture for these inputs"
            )


def is_named(architecture: str) -> bool:
    return architecture in ARCHITECTURES or sources.names_function(architecture)


def _builder(architecture: str, framework: str) -> Callable[..., Any]:
    if not is_named(architecture):
        raise ShapelineError(f"models: unknown architecture '{architecture}'.{nearest(architecture, ARCHITECTURES)}")
    if architecture in ARCHITECTURES and ARCHITECTURES[architecture].torch_only and framework != "torch":
        raise ShapelineError(f"models: '{architecture}' needs torch; leave the framework out")
    if architecture in ARCHITECTURES:
        return getattr(backend(framework), architecture)
    return sources.user_function(architecture)


def _check_sizes(architecture: str, sizes: dict[str, Any]) -> None:
    """ShapelineError for the first size that an architecture of this package cannot be built with."""
    for name, size in sizes.items():
        if name == "dropout":
            if not 0 <= size < 1:
                raise ShapelineError(f"models: {architecture} has a dropout of {size}; give at least 0 and below 1")
            continue
        usual = 2 if name in ("classes", "vocabulary") else 1
        least, hint = ARCHITECTURES[architecture].smallest.get(name, (usual, ""))
        for number in size if name == "hidden" and architecture == "mlp" else [size]:
            if not isinstance(number, int) or number < least:
                remedy = hint or "give a larger number"
                raise ShapelineError(
                    f"models: {architecture} needs a {name} of at least {least}, not {number!r}; {remedy}"
                )


def _sizes(builder: Callable[..., Any]) -> dict[str, Any]:
    """The sizes a builder takes, with their defaults."""
    return {name: parameter.default for name, parameter in inspect.signature(builder).parameters.items()}
