"""Models by the name of their architecture, ready ones (in files, folders, functions), and random layers in them.

Checked without importing a framework; nothing is unpickled.
"""

import importlib
import importlib.metadata
import inspect
import logging
import platform
import re
import sys
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from shapeline.datasets import sources
from shapeline.datasets.entries import TEXT
from shapeline.datasets.loading import Dataset, blocks
from shapeline.datasets.sources import PARTS, expand
from shapeline.errors import ShapelineError, nearest, reported_extras
from shapeline.models import adapters, registry
from shapeline.models.classifier import (
    FRAMEWORKS,
    TASK,
    Classifier,
    backend,
    check_independent,
    check_labels,
    label_scores,
    r_squared,
    start_card,
)
from shapeline.models.pipeline_file import digest_training_rows
from shapeline.models.registry import ARCHITECTURES, READERS, JobModel, find_kind
from shapeline.versions import list_imported

log = logging.getLogger(__name__)
MANY_ROWS, FEW_ROWS = 64, 4  # in which a function is evaluated, to check that its rows are independent


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
    builder = _find_builder(architecture, framework)
    accepted = _list_sizes(builder)
    for name in sizes:
        if name not in accepted and not inspect.getfullargspec(builder).varkw:
            raise ShapelineError(f"models: '{architecture}' has no size '{name}'.{nearest(name, accepted)}")
    for name, default in accepted.items():
        if default is inspect.Parameter.empty and name not in sizes:
            hint = ", or set framework: function, if it answers rows" * (architecture not in ARCHITECTURES)
            raise ShapelineError(f"models: '{architecture}' needs the size '{name}'; give it{hint}")
    complete = {**accepted, **sizes}
    for name, size in complete.items() if architecture in ARCHITECTURES else ():
        if problem := registry.find_size_problem(architecture, name, size):
            raise ShapelineError(f"models: {problem}")
    made_by = backend(framework)
    with made_by.set_seed(seed):
        module = made_by.check_module(builder(**complete), architecture)
    if framework == "torch":
        module.eval()
    task = "regression" if complete.get("classes") == 1 else "classification"
    outputs = "logits" if architecture in ARCHITECTURES else None
    return Classifier(framework, architecture, module, complete.get("classes"), complete, task=task, outputs=outputs)


def for_dataset(settings: Mapping[str, Any] | JobModel, card: dict[str, Any]) -> Classifier:
    """Return a new classifier for a dataset, from a model's settings (architecture or source, sizes, seed) and its
    card.

    What the card knows is given to builders that take it, unless sizes say otherwise. Raises ShapelineError.
    """
    entry = registry.read_entry(settings)
    if problem := registry.find_task_problem(entry, card.get("task")):
        raise ShapelineError(f"models: dataset '{card.get('name')}' {problem}")
    if entry.kind:
        return load_ready(entry, card)
    architecture, framework = entry.architecture or entry.source, entry.framework or "torch"
    _check_records(architecture, card)
    accepted = _list_sizes(_find_builder(architecture, framework))
    known = _read_sizes(card, accepted)
    if architecture in ARCHITECTURES:
        _check_inputs(architecture, card, accepted, known)
        _check_sizes(entry.sizes, card, known)
    sizes = {name: size for name, size in known.items() if name in accepted} | entry.sizes
    classifier = build(architecture, framework, seed=entry.seed, **sizes)
    classifier.outputs = entry.outputs or classifier.outputs
    if architecture not in ARCHITECTURES:
        adapters.check_inputs(classifier.module)
        classifier = adapters.fit_to_shape(classifier, tuple(card["input_shape"]))
    classifier.n_classes = classifier.n_classes or known["classes"]
    classifier.task = card.get("task") or TASK
    classifier.vocabulary_digest = card.get("vocabulary_digest")
    return classifier


def _check_records(architecture: str, card: dict[str, Any]) -> None:
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
    """Return the sizes of a dataset's card by the builders' names; accepted: those of this builder."""
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
    """Raise ShapelineError if an architecture of this package is not for the inputs or the task of a dataset."""
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


def _check_sizes(sizes: Mapping[str, Any], card: dict[str, Any], known: dict[str, Any]) -> None:
    """Raise ShapelineError for a size that is not that of the data."""
    for name, size in sizes.items():
        given = known.get(name, size)
        if size < given or (size > given and name not in ("vocabulary", "alphabet")):
            raise ShapelineError(
                f"models: sizes.{name} is {size} and dataset '{card.get('name')}' has {given}; remove the key"
            )


def is_named(architecture: str) -> bool:
    return architecture in ARCHITECTURES or sources.names_function(architecture)


def _find_builder(architecture: str, framework: str) -> Callable[..., Any]:
    if not is_named(architecture):
        raise ShapelineError(f"models: unknown architecture '{architecture}'.{nearest(architecture, ARCHITECTURES)}")
    if architecture in ARCHITECTURES and ARCHITECTURES[architecture].torch_only and framework != "torch":
        raise ShapelineError(f"models: '{architecture}' needs torch; leave the framework out")
    if architecture in ARCHITECTURES:
        return getattr(backend(framework), architecture)
    return sources.user_function(architecture)


def _list_sizes(builder: Callable[..., Any]) -> dict[str, Any]:
    """Return the named parameters of a builder with their defaults, without `*args` and `**kwargs`."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(builder).parameters.items()
    return {name: parameter.default for name, parameter in parameters if parameter.kind not in variable}


MIN_GAIN = 3  # standard deviations by which rows are predicted better with the classes in another order
PACKAGES = {"function": ("scikit-learn", "skops"), "tensorflow": ("tensorflow", "keras"), "torch": ("torch",)}
UNTRAINED = "none: the model came ready, and which rows it was made from is not known here"
FITTED = "by `shapeline init`, on the training rows"
FITTED_OTHERWISE = "by `shapeline init`, on another table or split, so that the accuracy may be too high"


def load_ready(settings: Mapping[str, Any] | JobModel, card: dict[str, Any]) -> Classifier:
    """Return the classifier in the file that settings name, for a card's dataset. Raises ShapelineError."""
    entry = registry.read_entry(settings)
    source, kind = entry.source, entry.kind
    if kind == "folder":
        return importlib.import_module(READERS[kind]).for_dataset(source, card)
    path = expand(sources.find_file(source))
    if not path.is_file():
        raise ShapelineError(f"models: there is no file {path}; paths start at the folder of the run")
    known = {
        "classes": list(card["classes"]),
        "columns": card.get("columns")
        or (None if kind == "function" else [{"name": name, "type": "number"} for name in card["feature_names"]]),
        "input_shape": list(card["input_shape"]),
        "kind": card["kind"],
        **({} if card.get("has_channels", True) else {"has_channels": False}),
        # Of a tokenizer defined by the user.
        **({"vocabulary": len(card["vocabulary"])} if "vocabulary" in card else {}),
        **({"texts": True} if card.get("tokenizer") == TEXT else {}),
        "trusted": sorted(entry.trusted_types or ()),
        **({"outputs": entry.outputs} if entry.outputs else {}),
        **({"source_classes": card["source_classes"]} if "source_classes" in card else {}),
    }
    classifier = _load_file(source, kind, path.read_bytes(), known, card.get("task") or "classification")
    classifier.vocabulary_digest = card.get("vocabulary_digest")  # the documents are cut for it, so they are its own
    return classifier


def restore(metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> Classifier:
    """Return the classifier of a file of weights that `collect_arrays` filled."""
    source, kind = metadata["architecture"], find_kind(metadata["architecture"], metadata["framework"])
    if kind == "folder":
        return importlib.import_module(READERS[kind]).restore(metadata, arrays)
    classifier = _load_file(source, kind, arrays["file"].tobytes(), metadata["sizes"], metadata["task"])
    classifier.vocabulary_digest = metadata["vocabulary_digest"]
    if classifier.framework != "function":
        classifier.outputs = metadata["outputs"]
        if classifier.outputs == "probabilities":
            made_by = backend(classifier.framework)
            classifier.module = made_by.build_from_probabilities(classifier.module, classifier.task)
    return classifier


def collect_arrays(classifier: Classifier) -> dict[str, np.ndarray]:
    """Return the ready model's own file, or a folder's weights, as what a file of weights holds."""
    if classifier.framework == "torch":
        return backend("torch").state(classifier.module)
    module = getattr(classifier.module, "network", classifier.module)  # where it gives probabilities
    return {"file": np.frombuffer(module.content, np.uint8)}


def _load_file(source: str, kind: str, content: bytes, known: dict[str, Any], task: str) -> Classifier:
    module = importlib.import_module(READERS[kind]).load_model(source, content, known, task)
    classes = 1 if task == "regression" else len(known["classes"])
    outputs = "logits" if getattr(module, "stripped", False) else known.get("outputs")
    return Classifier(registry.FRAMEWORKS[kind], source, module, classes, known, task=task, outputs=outputs)


def measure_card(classifier: Classifier, dataset: Dataset) -> dict[str, Any]:
    """Return the card of a ready model: as that of training.fit, but for what only training has."""
    rows = {part: np.flatnonzero(dataset.split == number) for number, part in enumerate(PARTS)}
    measured = {}
    if classifier.framework == "function":
        _check_rows(classifier, dataset.inputs)
    for part in ("validation", "test"):
        if len(rows[part]):
            scores = _measure_scores(classifier, dataset, rows[part])
            measured |= {f"{part}_{name}": value for name, value in scores.items()}
    log.info("%s", ", ".join(f"{name} {value:.4f}" for name, value in measured.items() if isinstance(value, float)))
    used = (*PACKAGES[classifier.framework], *(["transformers"] if "transformers" in sys.modules else []), "numpy")
    versions = {name: importlib.metadata.version(name) for name in used}
    versions |= list_imported()
    fitted_rows, origin = getattr(getattr(classifier.module, "estimator", None), "fitted_rows", None), UNTRAINED
    if fitted_rows is not None:  # the model says by which rows it was fitted
        origin = FITTED if fitted_rows == digest_training_rows(dataset) else FITTED_OTHERWISE
    return {
        **start_card(classifier),
        "parameters": classifier.n_parameters or None,
        "settings": origin,
        "versions": {"python": platform.python_version(), **versions},
        "rows": {part: len(members) for part, members in rows.items()},
        **measured,
    }


def _check_rows(classifier: Classifier, inputs: np.ndarray) -> None:
    """Raise ShapelineError for a function whose outputs depend on the other rows of a call."""
    regression = classifier.task == "regression"
    query = classifier.predict if regression else lambda rows: np.exp(classifier.log_probs(rows))
    check_independent(classifier, query(inputs[:MANY_ROWS]), query(inputs[:FEW_ROWS]), "dataset")


def _measure_scores(classifier: Classifier, dataset: Dataset, rows: np.ndarray) -> dict[str, Any]:
    inputs, labels = dataset.inputs, dataset.labels[rows]
    if classifier.task == "multilabel":
        check_labels(classifier, inputs[rows[:1]], labels)
    predicted = np.concatenate([classifier.predict(block) for block in blocks(inputs, rows)])
    if classifier.task == "regression":
        rmse = float(np.sqrt(((predicted - labels) ** 2).mean()))
        return {"r2": r_squared(predicted, labels), "rmse": rmse}
    right = predicted == labels
    if right.ndim == 2:
        return {"accuracy": float(right.mean()), **label_scores(right, dataset.card)}
    warning = _find_other_order(classifier, predicted, labels, dataset.card["classes"])
    return {"accuracy": float(right.mean()), **({"warning": warning} if warning else {})}


def _find_other_order(classifier: Classifier, predicted: np.ndarray, labels: np.ndarray, classes: list[str]) -> str:
    """Return a warning if the predicted classes (n,) fit the labels far better with the classes in another order."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((len(classes), len(classes)))
    np.add.at(counts, (predicted, labels), 1)
    _, order = linear_sum_assignment(counts, maximize=True)
    right, other = predicted == labels, order[predicted] == labels
    gained, lost = (other & ~right).sum(), (right & ~other).sum()
    is_reliable = len(labels) >= 5 * len(classes) and other.mean() > 0.5  # of few rows some order fits by chance
    if not is_reliable or gained - lost <= MIN_GAIN * np.sqrt(gained + lost):
        return ""
    reordered = ", ".join(classes[number] for number in order)
    warning = (
        f"model '{classifier.architecture}': {100 * right.mean():.0f} % of {len(labels)} rows are predicted right, and "
        f"{100 * other.mean():.0f} % if its outputs are those of {reordered}, in this order; check that it "
        f"numbers the classes as the dataset does: {', '.join(classes)}"
    )
    log.warning("%s", warning)
    return warning


BLOCK = re.compile(r"(.*?(?:\.\d+|embeddings))\.")  # of a transformer, in the names of its layers


def randomise(classifier: Classifier, layers: int | None, seed: int) -> list[str]:
    """Randomise the last `layers` layers (None: all) in place; return their names, last first.

    Adebayo et al. (2018, §3); layers of a smaller number are the same by one seed; scales are kept. Raises
    ShapelineError.
    """
    made_by, name = backend(classifier.framework), classifier.architecture
    layers_by_name = list_layers(classifier)
    count = len(layers_by_name) if layers is None else layers
    if count > len(layers_by_name):
        raise ShapelineError(
            f"randomisation.layers: {count} requested, '{name}' has {len(layers_by_name)} layers with weights "
            f"({', '.join(layers_by_name)}); ask for fewer, or full"
        )
    if _is_folder_model(classifier):
        fresh = importlib.import_module(READERS["folder"]).build_random(name, classifier.sizes, seed=seed)
    else:
        fresh = build(name, classifier.framework, seed=seed, **classifier.sizes)
    fresh = made_by.state(fresh.module)
    kept = made_by.state(classifier.module)
    chosen = list(layers_by_name)[len(layers_by_name) - count :]
    drawn = {weight: fresh[weight] for layer in chosen for weight in layers_by_name[layer]}
    if all(np.array_equal(array, kept[weight]) for weight, array in drawn.items()):
        raise ShapelineError(f"randomisation: '{name}' is built with the same weights for every seed; initialise them")
    made_by.set_state(classifier.module, {**kept, **drawn})
    return chosen[::-1]


def list_layers(classifier: Classifier) -> dict[str, list[str]]:
    """Return the trained layers from the input on with their weights' names; normalisations and blocks are joined."""
    made_by = backend(classifier.framework)
    arrays = made_by.state(classifier.module)
    layers: dict[str, list[str]] = {}
    for layer, names in made_by.list_trained_layers(classifier.module).items():
        block = BLOCK.match(f"{layer}.") if _is_folder_model(classifier) else None
        if block:
            layer = block[1]
        elif layers and all(arrays[name].ndim < 2 for name in names):
            layer = list(layers)[-1]
        layers.setdefault(layer, []).extend(names)
    return layers


def _is_folder_model(classifier: Classifier) -> bool:
    return find_kind(classifier.architecture, classifier.framework) == "folder"
