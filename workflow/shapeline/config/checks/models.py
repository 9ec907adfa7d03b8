"""Rules of a model's entry: what it is made by, trained on and started from, and what comes ready in a file."""

from collections.abc import Iterable, Iterator

from shapeline.config.checks.place import describe_absence, refuse
from shapeline.config.derived import canonical, find_framework, find_source
from shapeline.config.types import Config, Model
from shapeline.datasets import checks, folders, sources
from shapeline.datasets.registry import WEIGHTS, Source
from shapeline.errors import ShapelineError, describe_missing, is_installed, nearest
from shapeline.methods.dispatch import list_arguments
from shapeline.models import registry
from shapeline.models.registry import ARCHITECTURES

FRAMEWORK_PACKAGES = {"torch": ("torch",), "tensorflow": ("tensorflow", "keras")}


def check_kind(name: str, model: Model, config: Config) -> Iterator[str]:
    """The model takes data of the kind, the task and the unit that its dataset has."""
    where, dataset = f"models.{name}", config.datasets.get(model.dataset)
    source, known = find_source(dataset), ARCHITECTURES.get(model.architecture)
    if source and known and known.kind != source.kind:
        yield f"{where}.architecture: {model.architecture} does not take kind {source.kind}; choose another"
    if source and source.task == "multilabel" and find_framework(model) != "torch":
        remedy = "give a function that builds one" if registry.find_suffix(model.source) else "set framework: torch"
        yield f"{where}: datasets.{model.dataset} has several labels per record, which needs torch; {remedy}"


def check_training(name: str, model: Model, config: Config) -> Iterator[str]:
    """The framework and the data allow what the training asks for."""
    where, source = f"models.{name}", find_source(config.datasets.get(model.dataset))
    torch, known = find_framework(model) == "torch", ARCHITECTURES.get(model.architecture)
    if known and known.torch_only and not torch:
        yield f"{where}.framework: {model.architecture} needs torch; remove the key"
    if model.training.augment and ((source and source.kind != "image") or not torch):
        of = f"a dataset of kind {source.kind} has none" if torch else "in torch alone"
        yield f"{where}.training.augment: it flips images, {of}; remove the key"
    if model.training.precision == "bfloat16" and not torch:
        yield f"{where}.training.precision: bfloat16 needs torch; set framework: torch, or remove the key"


def check_weights(name: str, model: Model, config: Config) -> Iterator[str]:
    """The weights that a training starts from are there, and of the architecture."""
    where, known = f"models.{name}.weights", ARCHITECTURES.get(model.architecture)
    if model.weights is None:
        return
    if find_framework(model) != "torch":
        yield f"{where}: training starts from a file in torch only; remove the key"
    if model.weights in WEIGHTS:
        if known is None or model.weights not in known.weights:
            of = " or ".join(name for name, other in ARCHITECTURES.items() if model.weights in other.weights)
            yield f"{where}: {model.weights} is of {of}; set architecture: {of}, or name a file"
        return
    try:
        file = sources.expand(model.weights)
    except ShapelineError as error:
        yield f"{where}: {error}"
        return
    if file.suffix not in (".pt", ".pth", ".safetensors"):
        hint = nearest(model.weights, WEIGHTS)
        yield f"{where}: '{model.weights}' is not a .pt, .pth or .safetensors file.{hint}"
    elif not file.is_file():
        yield f"{where}: there is no file {file}; paths start at the folder of the configuration or run"


def check_ready_file(name: str, model: Model, config: Config) -> Iterator[str]:
    """The user's own file is there and of the kind stated; a model that is ready has no keys of training."""
    where, suffix, function = f"models.{name}", registry.find_suffix(model.source), model.framework == "function"
    if function and registry.find_kind(model.source, model.framework) != "function":
        yield f"{where}.framework: function is of a source path/to/file.py:function; name one, or remove the key"
        return
    if suffix == "folder":
        yield from _check_folder(where, model, config)
    elif model.source and (problem := describe_absence(model.source if suffix else model.source.rpartition(":")[0])):
        yield f"{where}.source: {problem}"
    elif function and (problem := find_rows_problem(model.source)):
        yield f"{where}.source: {problem}"
    if model.trusted_types and suffix != ".skops":
        yield f"{where}.trusted_types: only the types of a .skops file are checked; remove the key"
    if model.outputs and (function or not model.source or suffix not in (None, ".keras", ".onnx")):
        yield f"{where}.outputs: only a network of your own, or in a .keras or .onnx file, may need it; remove the key"
    yield from _check_no_training(where, model)
    if not suffix and not function:
        return
    keys = ("sizes", "weights", "training") if function else ("framework", "sizes", "weights", "training")
    yield from refuse(where, model, keys, f"the model in {model.source} is ready and not made here")
    if not function and suffix != "folder":
        yield from _check_file_keys(where, model, config)


def _check_no_training(where: str, model: Model) -> Iterator[str]:
    if model.training.epochs == 0 and model.architecture and not model.weights:
        yield f"{where}.training.epochs: with 0 nothing is trained and {model.architecture} is untrained; give weights"
    elif model.training.epochs == 0 and model.weights in WEIGHTS:
        yield (
            f"{where}.training.epochs: with 0 the last layer stays random, for {model.weights} has other "
            "classes; remove the key, or give a file of trained weights"
        )


def _check_folder(where: str, model: Model, config: Config) -> Iterator[str]:
    """The folder holds a classifier of the dataset's texts, cut by its own tokenizer, or of its images."""
    dataset = config.datasets.get(model.dataset)
    source = find_source(dataset)
    if source and source.kind not in folders.HEADS:
        yield f"{where}.source: a folder of transformers takes texts or images; give a dataset of that kind"
        return
    try:
        kind = source.kind if source else folders.find_kind(model.source)
        folders.check_model(model.source, kind)
    except ShapelineError as error:
        yield f"{where}.source: {error}"
        return
    if kind == "image":
        shape = checks.input_shape(source, canonical(dataset)) if source else None
        if problem := shape and folders.unfit_pictures(model.source, shape):
            yield f"{where}.source: {problem}"
    elif dataset and not folders.names_folder(dataset.tokenizer):
        yield (
            f"{where}.source: it takes texts that its own tokenizer cuts; set datasets.{model.dataset}.tokenizer: "
            f"{model.source}"
        )
    elif dataset and not folders.have_same_tokenizer(dataset.tokenizer, model.source):
        yield (
            f"{where}.source: its tokenizer is another than that of datasets.{model.dataset}; set its tokenizer: "
            f"{model.source}"
        )


def find_missing_frameworks(config: Config, experiments: Iterable[str]) -> Iterator[str]:
    """Yield a line for each framework that the models of experiments need and that is not installed."""
    needed: dict[str, list[str]] = {}
    for name in sorted(experiments):
        model = config.models.get(config.experiments[name].model)
        if model and (framework := find_framework(model)) in FRAMEWORK_PACKAGES:
            needed.setdefault(framework, []).append(name)
    for framework, names in needed.items():
        missing = [package for package in FRAMEWORK_PACKAGES[framework] if not is_installed(package)]
        if missing:
            yield f"run: {describe_missing(missing[0])}, or remove what needs it: {', '.join(names)}"


def _check_file_keys(where: str, model: Model, config: Config) -> Iterator[str]:
    """A pipeline takes tables, and a Keras file ids that are known here."""
    dataset = config.datasets.get(model.dataset)
    source: Source | None = find_source(dataset)
    suffix = registry.find_suffix(model.source)
    if problem := registry.explain_missing(suffix):
        yield f"{where}.source: {problem}"
    elif source and suffix in registry.ESTIMATORS and source.kind != "table":
        what = "a pipeline takes" if suffix == ".skops" else "boosted trees take"
        yield f"{where}.source: {what} tables, not a dataset of kind {source.kind}; give another model"
    elif source and source.kind == "text" and not dataset.tokenizer:
        yield (
            f"{where}.source: a Keras file has a vocabulary of its own, which is not known here; give the dataset its "
            "tokenizer, or a function path/to/file.py:function that builds the model"
        )


def find_rows_problem(source: str) -> str | None:
    """What keeps a function that is a model from being called with rows alone; None where nothing does."""
    try:
        needed = [argument for argument, must in list_arguments(source).items() if must]
    except ShapelineError as error:
        return str(error)
    if len(needed) == 1:
        return None
    return f"{source} requires {len(needed)} arguments and is called with rows only; give it one required argument"


def check_unit(name: str, model: Model, config: Config) -> Iterator[str]:
    """The architecture reads tokens of the unit that the documents are cut into."""
    dataset = config.datasets.get(model.dataset)
    cut = checks.find_unit(canonical(dataset)) if find_source(dataset) else None
    read = model.architecture and ARCHITECTURES[model.architecture].unit
    if cut and read and read != cut:
        yield (
            f"models.{name}.architecture: {model.architecture} reads tokens of unit {read} and "
            f"datasets.{model.dataset} has unit {cut}; set its unit"
        )


RULES = (check_kind, check_training, check_weights, check_ready_file, check_unit)
