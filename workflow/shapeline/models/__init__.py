"""Models: build by name, wrap one's own, save and load without pickle. Frameworks are imported only when used."""

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapeline import datasets
from shapeline.errors import ShapelineError, nearest
from shapeline.models import ready, weights
from shapeline.models.classifier import MODULES, Classifier, backend, not_logits

# The builders' names, so that a configuration can be checked without importing a framework.
ARCHITECTURES = (
    *("bilstm", "char_cnn", "cifar_cnn", "crosses_cnn", "digits_cnn"),
    *("mlp", "mnist_cnn", "resnet18", "word_cnn"),
)
TORCH_ONLY = ("cifar_cnn", "crosses_cnn", "resnet18")
FRAMEWORKS = tuple(MODULES)
KINDS = ("function", "logits", "multilabel", "predict_proba", "probabilities", "regression")
TASK = "classification"  # unless something else is said
# Sizes below which a network has no output left, and what to use instead; every other whole number is at least 1.
SMALLEST = {
    "mlp": {"classes": (1, "")},  # a regression
    "mnist_cnn": {"side": (16, "use digits_cnn")},
    "digits_cnn": {"side": (2, "use larger images")},
    "cifar_cnn": {"side": (22, "use mnist_cnn or digits_cnn")},
    "crosses_cnn": {side: (20, "use larger images") for side in ("height", "width")},
    "word_cnn": {"length": (3, "it reads three words at a time")},
    "char_cnn": {"length": (123, "pad the documents to 123 characters or more")},
}

__all__ = [
    *("ARCHITECTURES", "FRAMEWORKS", "KINDS", "Classifier"),
    *("build", "for_dataset", "load", "save", "start_from", "wrap"),
]


def build(architecture: str, framework: str = "torch", *, seed: int = 0, **sizes: Any) -> Classifier:
    """A new classifier with weights drawn from `seed`, by the name of its architecture and framework.

    `sizes`: mnist_cnn, digits_cnn and cifar_cnn: classes, channels, side; crosses_cnn: classes, channels, height,
    width, dropout; resnet18: classes, channels; mlp: inputs, hidden, classes; word_cnn: vocabulary, length, embedding,
    filters, hidden, classes, dropout; char_cnn: alphabet, length, classes, hidden, dropout; bilstm: vocabulary, length,
    embedding, units, classes, dropout. The defaults are the papers'. An architecture may also be one's own,
    "path/to/file.py:function"; the function gets the sizes and returns a torch module, or a Keras model that has its
    weights, that gives logits. Raises ShapelineError for an unknown architecture, framework or size.
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
            raise ShapelineError(f"models: '{architecture}' needs the size '{name}'")
    complete = {**accepted, **sizes}
    if architecture in ARCHITECTURES:
        _check_sizes(architecture, complete)
    made_by = backend(framework)
    with made_by.seeded(seed):
        module = made_by.checked_module(builder(**complete), architecture)
    if framework == "torch":
        module.eval()
    task = "regression" if complete.get("classes") == 1 else "classification"
    return Classifier(framework, architecture, module, complete.get("classes"), complete, task=task)


def for_dataset(settings: dict[str, Any], card: dict[str, Any]) -> Classifier:
    """A new classifier for a dataset, from a model's settings and the dataset's card.

    settings: architecture (a name) or source ("path/to/file.py:function", or the file of a model that is ready,
    models/ready.py), and optionally framework (torch), sizes and seed. What the card knows (classes,
    channels, side, height and width, inputs, input_shape; of a text length, vocabulary, the number of token ids, and
    alphabet, one fewer) is given to builders that take it, unless sizes say otherwise. Raises ShapelineError when the
    inputs do not fit the architecture.
    """
    several = card.get("task") == "multilabel"
    if several and (ready.suffix_of(settings.get("source")) or settings.get("framework", "torch") != "torch"):
        raise ShapelineError(
            f"models: several labels a record are for torch alone, and '{card.get('name')}' has them; set "
            "framework: torch, with an architecture or a function of your own"
        )
    if ready.kind_of(settings.get("source"), settings.get("framework")):
        return ready.for_dataset(settings, card)
    architecture, framework = settings.get("architecture") or settings["source"], settings.get("framework", "torch")
    shape = tuple(card["input_shape"])
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
    accepted = _sizes(_builder(architecture, framework))
    regression = card.get("task") == "regression"
    known: dict[str, Any] = {"classes": 1 if regression else len(card["classes"]), "input_shape": list(shape)}
    if card.get("kind") == "text":
        if card.get("absent_id") and card.get("unit") == "word" and architecture in ARCHITECTURES:
            raise ShapelineError(
                f"models: '{architecture}' is padded with id 0 and the tokenizer of '{card['name']}' pads with "
                f"{card['absent_id']}; let pad be 0, or give a network of your own"
            )
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
    if regression and architecture in ARCHITECTURES and architecture != "mlp":
        raise ShapelineError(f"models: '{architecture}' is for classes, and the dataset is of regression; use mlp")
    if architecture in ARCHITECTURES:
        kinds = {"inputs": "a table", "side": "square images", "channels": "images", "length": "text"}
        for name, kind in kinds.items():
            if name in accepted and name not in known:
                found = "text" if "length" in known else f"of shape {shape}"
                raise ShapelineError(f"models: '{architecture}' is for {kind}, but the inputs are {found}")
    sizes = {name: size for name, size in known.items() if name in accepted}
    sizes |= settings.get("sizes", {})
    classifier = build(architecture, framework, seed=settings.get("seed", 0), **sizes)
    if framework == "tensorflow" and not regression and backend(framework).ends_in_probabilities(classifier.module):
        raise not_logits(architecture, "it ends in a softmax or a sigmoid")
    classifier.n_classes = classifier.n_classes or known["classes"]
    classifier.task = card.get("task") or TASK
    classifier.vocabulary_digest = card.get("vocabulary_digest")
    return classifier


def wrap(model: Any, kind: str | None = None, n_classes: int | None = None) -> Classifier:
    """One's own model as a Classifier.

    `kind`: "logits" (an nn.Module or Keras model giving (n, classes) logits), "probabilities" (a Keras model that gives
    those, which becomes a function), "multilabel" (an nn.Module giving a logit a label), "predict_proba" (an object
    with that method), "function" (array -> probabilities) or "regression" (a network, an object with `predict` or a
    function that gives a number an input); None finds it out: a Keras model gives probabilities when its last layer is,
    or ends in, a softmax or a sigmoid, and an object with `predict` but without classes is of regression. A Classifier
    is returned as it is. Raises ShapelineError when the model is none of these.
    """
    if isinstance(model, Classifier):
        return model
    framework = _framework_of(model)
    if kind is None:
        if framework == "tensorflow" and backend(framework).ends_in_probabilities(model):
            kind = "probabilities"
        elif framework:
            kind = "logits"
        elif hasattr(model, "predict") and not hasattr(model, "predict_proba") and not hasattr(model, "classes_"):
            kind = "regression"
        else:
            kind = "predict_proba" if hasattr(model, "predict_proba") else "function"
    if kind not in KINDS:
        raise ShapelineError(f"models: unknown kind of model '{kind}'.{nearest(kind, KINDS)}")
    if kind == "regression":
        return _regression(model, framework)
    function: Callable[..., Any] | None = getattr(model, "predict_proba", None) if kind == "predict_proba" else model
    taken = {"logits": FRAMEWORKS, "multilabel": ("torch",), "probabilities": ("tensorflow",)}.get(kind, (None,))
    if framework not in taken or not callable(function):
        raise ShapelineError(
            f"models: a {type(model).__name__} cannot be used as '{kind}'; give a torch module (logits), a Keras model "
            "(logits or probabilities), an object with predict_proba, or a function that returns probabilities"
        )
    name = getattr(model, "__name__", type(model).__name__)
    if kind in ("logits", "multilabel"):
        return Classifier(framework, name, model, n_classes, task="multilabel" if kind == "multilabel" else TASK)
    if kind == "probabilities":
        function = functools.partial(backend(framework).probabilities, model)
    if n_classes is None and hasattr(model, "classes_"):
        n_classes = len(model.classes_)
    return Classifier("function", name, function, n_classes)


def _regression(model: Any, framework: str | None) -> Classifier:
    """One's own regression model as a Classifier; a classifier's `predict`, which gives labels, is none."""
    function = model if framework else getattr(model, "predict", model)
    name = getattr(model, "__name__", type(model).__name__)
    if not callable(function) or hasattr(model, "classes_"):
        raise ShapelineError(
            f"models: a {name} cannot be used as 'regression'; give a network, an object whose predict gives numbers, "
            "or a function that does"
        )
    return Classifier(framework or "function", name, function, 1, task="regression")


def _framework_of(model: Any) -> str | None:
    """The framework whose model this is, or None; a framework that was never imported made no model."""
    for framework, package, kind in (("torch", "torch.nn", "Module"), ("tensorflow", "keras", "Model")):
        module = sys.modules.get(package)
        if module is not None and isinstance(model, getattr(module, kind)):
            return framework
    return None


def save(classifier: Classifier, path: str | Path) -> None:
    """Write the weights as safetensors; what it takes to build the model again goes into its metadata. Atomic.

    Raises ShapelineError for a wrapped model, whose architecture has no name to build it from.
    """
    is_ready = ready.kind_of(classifier.architecture, classifier.framework) is not None
    if not is_ready and (classifier.framework not in FRAMEWORKS or not _is_named(classifier.architecture)):
        raise ShapelineError(f"models: '{classifier.architecture}' is a wrapped model; only built models can be saved")
    metadata = {
        "framework": classifier.framework,
        "architecture": classifier.architecture,
        "classes": classifier.n_classes,
        "sizes": classifier.sizes,
    }
    if classifier.task != "classification":
        metadata["task"] = classifier.task
    if classifier.vocabulary_digest is not None:
        metadata["vocabulary_digest"] = classifier.vocabulary_digest
    arrays = ready.arrays_of(classifier) if is_ready else backend(classifier.framework).state(classifier.module)
    weights.write(Path(path), arrays, metadata)


def load(path: str | Path, device: str = "cpu", framework: str | None = None) -> Classifier:
    """Read a classifier that `save` wrote, in its own framework or as its twin in another; nothing is unpickled.

    Raises ShapelineError when the file is missing, not safetensors, does not say which architecture it holds, or does
    not fit it.
    """
    metadata, arrays = weights.read(Path(path))
    if ready.kind_of(metadata["architecture"], metadata["framework"]):
        return ready.restored(metadata, arrays).to(device)
    classifier = build(metadata["architecture"], framework or metadata["framework"], **metadata["sizes"])
    classifier.n_classes, classifier.task = metadata["classes"], metadata["task"]
    classifier.vocabulary_digest = metadata["vocabulary_digest"]
    made_by = backend(classifier.framework)
    weights.check_fit(arrays, made_by.state(classifier.module), str(path), classifier.architecture)
    made_by.set_state(classifier.module, arrays)
    return classifier.to(device)


def start_from(classifier: Classifier, path: str | Path) -> None:
    """Put in the weights of a safetensors file with the model's names and shapes, to train on from them.

    The last layer stays as it is where the file has other classes; counts of batches may be missing, which older files
    lack. Raises ShapelineError when the file is missing or does not fit.
    """
    made_by = backend(classifier.framework)
    own, found = made_by.state(classifier.module), weights.tensors(Path(path))
    kept = [name for name in own if name.endswith("num_batches_tracked") and name not in found]
    last = [name for name in [*own][-2:] if name in found]
    if any(found[name].shape != own[name].shape for name in last):
        kept += last
    found |= {name: own[name] for name in kept}
    weights.check_fit(found, own, str(path), classifier.architecture, "give weights of this architecture and its sizes")
    made_by.set_state(classifier.module, found)


def _is_named(architecture: str) -> bool:
    return architecture in ARCHITECTURES or ".py:" in architecture


def _builder(architecture: str, framework: str) -> Callable[..., Any]:
    if not _is_named(architecture):
        raise ShapelineError(f"models: unknown architecture '{architecture}'.{nearest(architecture, ARCHITECTURES)}")
    if architecture in TORCH_ONLY and framework != "torch":
        raise ShapelineError(f"models: '{architecture}' is for torch alone; leave the framework out")
    if architecture in ARCHITECTURES:
        return getattr(backend(framework), architecture)
    return datasets.user_function(architecture)


def _check_sizes(architecture: str, sizes: dict[str, Any]) -> None:
    """ShapelineError for the first size that an architecture of this package cannot be built with."""
    for name, size in sizes.items():
        if name == "dropout":
            if not 0 <= size < 1:
                raise ShapelineError(f"models: {architecture} needs a dropout of at least 0 and below 1, not {size}")
            continue
        usual = 2 if name in ("classes", "vocabulary") else 1
        least, hint = SMALLEST.get(architecture, {}).get(name, (usual, ""))
        for one in size if name == "hidden" and architecture == "mlp" else [size]:
            if not isinstance(one, int) or one < least:
                remedy = f"; {hint}" if hint else ""
                raise ShapelineError(f"models: {architecture} needs a {name} of at least {least}, not {one!r}{remedy}")


def _sizes(builder: Callable[..., Any]) -> dict[str, Any]:
    """The sizes a builder takes, with their defaults."""
    return {name: parameter.default for name, parameter in inspect.signature(builder).parameters.items()}
