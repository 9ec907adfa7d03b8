"""Rules of entries: a dataset's, and that of what is explained: a model (made, trained, ready, of language) or a game.

Rules of experiments on games and on prompts are here too: their keys, methods and metrics.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from shapeline.config.derived import find_framework, find_source
from shapeline.config.mistakes import MethodPlace, Place, catch, check_arguments, describe_absence, refuse
from shapeline.config.types import Config, Experiment, Model
from shapeline.datasets import checks, folders, records, sources
from shapeline.datasets.checks import Dataset
from shapeline.datasets.entries import TEXT, USER_FILE
from shapeline.datasets.registry import PAIRS, SOURCES, WEIGHTS, Source, find_difference
from shapeline.datasets.sources import expand, find_file, names_function
from shapeline.errors import ShapelineError, describe_missing, is_installed, nearest
from shapeline.generation import prompts
from shapeline.generation.prompts import KINDS, REMOVALS
from shapeline.methods.registry import METHODS, Method
from shapeline.models import registry
from shapeline.models.registry import ARCHITECTURES

FRAMEWORK_PACKAGES = {"torch": ("torch",), "tensorflow": ("tensorflow", "keras")}


def check_source(dataset: Dataset) -> Iterator[str]:
    if dataset.source not in SOURCES and not re.match(USER_FILE, dataset.source):
        hint = f".{nearest(dataset.source, SOURCES)}"
        if dataset.source.endswith(("csv", "parquet")):
            hint = "; name a custom file by path, with source: table_file, or text_file for documents."
        yield f".source: unknown source '{dataset.source}'{hint}"
    elif problem := dataset.source not in SOURCES and describe_absence(find_file(dataset.source)):
        yield f".source: {problem}"
    else:
        if names_function(dataset.source):
            yield from catch(".source", sources.check_function, dataset.source)
        yield from catch("", checks.check, dataset)


def check_path(dataset: Dataset) -> Iterator[str]:
    if not dataset.path:
        return
    try:
        path, source = sources.expand(dataset.path), SOURCES.get(dataset.source)
        if not path.exists():
            yield f".path: there is nothing at {path}; paths start at the folder of the configuration or run"
        elif source and source.files:
            records.local_files(source, path)
    except ShapelineError as error:
        yield f": {error}"


def check_tokenizer(dataset: Dataset) -> Iterator[str]:
    if folders.names_folder(dataset.tokenizer):
        yield from catch(".tokenizer", folders.check_tokenizer, dataset.tokenizer)
    elif dataset.tokenizer and dataset.tokenizer != TEXT:
        yield from check_arguments(".tokenizer", dataset.tokenizer, ())


DATASET_RULES = (check_source, check_path, check_tokenizer)


def check_other_data(config: Config, experiment: Experiment) -> Iterator[str]:
    """Check that a model can explain the dataset named beside it, as far as the configuration tells."""
    model = config.models.get(experiment.model)
    own = config.datasets.get(model.dataset) if model else None
    other = config.datasets.get(experiment.dataset)
    if own is None or other is None:
        return
    if model.dataset == experiment.dataset:
        yield f": models.{experiment.model} is trained on {experiment.dataset} itself; remove the key"
        return
    try:
        trained, explained = (describe_entry(find_source(dataset), dataset) for dataset in (own, other))
    except ShapelineError:  # reported by the check of the dataset
        return
    any_size = model.source is not None or getattr(ARCHITECTURES.get(model.architecture), "any_size", False)
    differs = find_difference(trained, explained, any_size)
    same = "tokenizer" in trained and "tokenizer" in explained  # `find_difference` compared them
    if differs is None and trained.get("unit") == explained.get("unit") == "word" and not same:
        differs = "each dataset of words has a vocabulary of its own"
    if differs:
        yield (
            f": models.{experiment.model} is trained on {model.dataset} and cannot explain "
            f"{experiment.dataset}: {differs}; set another dataset or model"
        )


def describe_entry(source: Source | None, dataset: Dataset) -> dict:
    """Return what an entry tells of its data, as `find_difference` compares it: nothing of a user's function."""
    if source is None:
        return {}
    facts = {"kind": source.kind, "task": source.task}
    shape = checks.input_shape(source, dataset)
    if source.classes:
        chosen = checks.choose_classes(source.name, source.classes, dataset.classes)
        facts["classes"] = [source.classes[index] for index in chosen]
    if source.kind == "image" and shape:
        facts["channels"], facts["size"] = shape[0], list(shape[1:])
    if source.kind == "table" and source.feature_names:
        facts["columns"] = list(source.feature_names)
    if source.kind == "text":
        tokens = checks.text_settings(source, dataset)
        facts["unit"], facts["tokens a document"] = tokens.unit, tokens.length
        if dataset.tokenizer:
            facts |= {"unit": "word", "tokenizer": dataset.tokenizer}
        facts["documents"] = PAIRS if dataset.text_pair else "single texts"
    return facts


def check_fit(model: Model, config: Config) -> Iterator[str]:
    """Check that the architecture, the framework and the training are for data of this kind, task and unit."""
    dataset = config.datasets.get(model.dataset)
    source, known = find_source(dataset), ARCHITECTURES.get(model.architecture)
    torch, cut = find_framework(model) == "torch", checks.find_unit(dataset) if source else None
    if source and known and known.kind != source.kind:
        yield f".architecture: {model.architecture} does not take kind {source.kind}; choose another"
    if source and (problem := registry.find_task_problem(model, source.task)):
        yield f": datasets.{model.dataset} {problem}"
    if known and known.torch_only and not torch:
        yield f".framework: {model.architecture} needs torch; remove the key"
    if model.training.augment and ((source and source.kind != "image") or not torch):
        of = f"a dataset of kind {source.kind} has none" if torch else "in torch alone"
        yield f".training.augment: it flips images, {of}; remove the key"
    if model.training.precision == "bfloat16" and not torch:
        yield ".training.precision: bfloat16 needs torch; set framework: torch, or remove the key"
    if known and known.unit and cut not in (None, known.unit):
        reads = f"{model.architecture} reads tokens of unit {known.unit}"
        yield f".architecture: {reads} and datasets.{model.dataset} has unit {cut}; set its unit"


def check_sizes(model: Model, config: Config) -> Iterator[str]:
    """Check the sizes of an architecture against the arguments of its builder, which is read and not imported."""
    known = ARCHITECTURES.get(model.architecture)
    if not known or not model.sizes:
        return
    module = "torch_image_models" if known.torch_only else "torch_models"
    accepted = sources.list_arguments(f"{Path(registry.__file__).with_name(module)}.py:{model.architecture}")
    for name, size in model.sizes.items():
        if name not in accepted:
            yield f".sizes.{name}: {model.architecture} has no size '{name}'.{nearest(name, accepted)}"
        elif problem := registry.find_size_problem(model.architecture, name, size):
            yield f".sizes.{name}: {problem}"
        elif name == "classes" and size != (count := _count_classes(config.datasets.get(model.dataset)) or size):
            yield f".sizes.classes: it is {size} and datasets.{model.dataset} has {count}; remove the key"


def _count_classes(dataset: Dataset | None) -> int | None:
    """Return the number of outputs that a dataset needs; None if only its data tell."""
    source = find_source(dataset)
    if source is None:
        return None
    return 1 if source.task == "regression" else len(dataset.classes or source.classes) or None


def check_weights(model: Model, config: Config) -> Iterator[str]:
    known = ARCHITECTURES.get(model.architecture)
    if model.weights is None:
        return
    if find_framework(model) != "torch":
        yield ".weights: training starts from a file in torch only; remove the key"
    if model.weights in WEIGHTS:
        if known is None or model.weights not in known.weights:
            of = " or ".join(name for name, other in ARCHITECTURES.items() if model.weights in other.weights)
            yield f".weights: {model.weights} is of {of}; set architecture: {of}, or name a file"
    elif not model.weights.endswith((".pt", ".pth", ".safetensors")):
        hint = nearest(model.weights, WEIGHTS)
        yield f".weights: '{model.weights}' is not a .pt, .pth or .safetensors file.{hint}"
    elif problem := describe_absence(model.weights):
        yield f".weights: {problem}"


def check_ready_file(model: Model, config: Config) -> Iterator[str]:
    suffix, function = registry.find_suffix(model.source), model.framework == "function"
    if function and model.kind != "function":
        yield ".framework: function is of a source path/to/file.py:function; name one, or remove the key"
        return
    if suffix == "folder":
        yield from _check_folder(model, config)
    elif problem := model.source and describe_absence(find_file(model.source)):
        yield f".source: {problem}"
    elif function:
        yield from check_arguments(".source", model.source, (), n_positional=1)
    elif model.source and names_function(model.source):
        yield from catch(".source", sources.check_function, model.source)
    if model.trusted_types and suffix != ".skops":
        yield ".trusted_types: only the types of a .skops file are checked; remove the key"
    if model.outputs and (function or not model.source or suffix not in (None, ".keras", ".onnx")):
        yield ".outputs: only a network of your own, or in a .keras or .onnx file, may need it; remove the key"
    yield from _check_no_training(model)
    if not suffix and not function:
        return
    keys = ("sizes", "weights", "training") if function else ("framework", "sizes", "weights", "training")
    yield from refuse("", model, keys, f"the model in {model.source} is ready and not made here")
    if not function and suffix != "folder":
        yield from _check_file_keys(model, config)


def _check_no_training(model: Model) -> Iterator[str]:
    if model.training.epochs == 0 and model.architecture and not model.weights:
        yield f".training.epochs: with 0 nothing is trained and {model.architecture} is untrained; give weights"
    elif model.training.epochs == 0 and model.weights in WEIGHTS:
        yield (
            f".training.epochs: with 0 the last layer stays random, for {model.weights} has other "
            "classes; remove the key, or give a file of trained weights"
        )


def _check_folder(model: Model, config: Config) -> Iterator[str]:
    dataset = config.datasets.get(model.dataset)
    source = find_source(dataset)
    if source and source.kind not in folders.HEADS:
        yield ".source: a folder of transformers takes texts or images; give a dataset of that kind"
        return
    try:
        kind = source.kind if source else folders.find_kind(model.source)
        folders.check_model(model.source, kind)
    except ShapelineError as error:
        yield f".source: {error}"
        return
    if kind == "image":
        shape = checks.input_shape(source, dataset) if source else None
        if problem := shape and folders.find_image_problem(model.source, shape):
            yield f".source: {problem}"
    elif dataset and not (
        folders.names_folder(dataset.tokenizer) and folders.have_same_tokenizer(dataset.tokenizer, model.source)
    ):
        yield (
            f".source: it takes texts that its own tokenizer cuts; set datasets.{model.dataset}.tokenizer: "
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
            models = [config.models[config.experiments[name].model] for name in names]
            # Networks of the package exist in both frameworks, but for those of torch only.
            can_switch = all(model.architecture for model in models) and is_installed("torch")
            switch = ", set framework: torch of the model" if framework == "tensorflow" and can_switch else ""
            yield f"run: {describe_missing(missing[0])}{switch}, or remove what needs it: {', '.join(names)}"


def _check_file_keys(model: Model, config: Config) -> Iterator[str]:
    dataset = config.datasets.get(model.dataset)
    source: Source | None = find_source(dataset)
    suffix = registry.find_suffix(model.source)
    if problem := registry.explain_missing(suffix):
        yield f".source: {problem}"
    elif source and source.kind == "text" and suffix == ".skops":
        if dataset.tokenizer != TEXT:
            yield f".source: a pipeline takes the texts themselves; set datasets.{model.dataset}.tokenizer: {TEXT}"
    elif source and suffix in registry.ESTIMATORS and source.kind != "table":
        what = "a pipeline takes" if suffix == ".skops" else "boosted trees take"
        remedy = "give another model, or call shapeline.explain"
        yield f".source: {what} tables, not a dataset of kind {source.kind}; {remedy}"
    elif source and source.kind == "text" and not dataset.tokenizer:
        yield (
            ".source: the file has a vocabulary of its own, which is not known here; give the dataset its "
            f"tokenizer, or set tokenizer: {TEXT} if it takes texts"
        )


def check_takes_texts(model: Model, config: Config) -> Iterator[str]:
    """Check that a model of a dataset whose tokenizer is text takes texts."""
    dataset = config.datasets.get(model.dataset)
    if not dataset or dataset.tokenizer != TEXT or model.kind in (".skops", ".onnx", "function", "folder"):
        return
    if model.kind == ".keras":
        yield (
            f".source: a Keras file of texts is called by a function; write model.py with the lines import keras, "
            f"tensorflow; model = keras.saving.load_model('{model.source}'); def predict(texts): return "
            "model.predict(tensorflow.constant(texts), verbose=0) (or tensorflow.constant(texts)[:, None], of shape "
            "(n, 1)), and set source: model.py:predict, framework: function"
        )
        return
    yield (
        f".dataset: datasets.{model.dataset}.tokenizer is {TEXT}, which is of a pipeline, a function or an .onnx file "
        "of texts; remove the tokenizer, or call the model in a function (framework: function)"
    )


MODEL_RULES = (check_fit, check_sizes, check_weights, check_ready_file, check_takes_texts)


BUILD_TAKES = ("seed", "device")  # arguments that a function which builds a game may name
OF_MODELS = (
    *("model", "dataset", "reference", "value", "target", "instances", "timing", "time_limit", "precision", "compile"),
    *("cache", "training_seeds", "instances_per_training_seed"),
)
OF_GAMES = ("game_files", "game_rounds")


def check_game(place: Place) -> Iterator[str]:
    """Check that the function of the game and its files are there, and that no key is of models and their data."""
    entry = place.experiment
    yield from check_arguments(".game", entry.game, BUILD_TAKES)
    for path in entry.game_files:
        if problem := describe_absence(path):
            yield f".game_files: {problem}"
    yield from refuse("", entry, OF_MODELS, "an experiment with a game has no {key}")
    if place.kind != "player":
        yield ".features: the features of a game are its players; remove the key"
    if entry.report.notebook != "game":
        yield ".report.notebook: the page of a game is game; remove the key"
    for name, metric in place.metrics():
        if metric.reads_data:
            yield f".metrics.{name}: it measures a model on data; a game has error, efficiency and cost"


def can_explain_games(method: Method) -> bool:
    """Return whether a method needs the values of coalitions alone."""
    if method.family == "coalitions":
        return method.is_design or method.control
    return method.family == "peers" and not method.needs and not method.data


def check_game_method(entry: MethodPlace) -> Iterator[str]:
    if not can_explain_games(entry.method):
        able = ", ".join(name for name, one in METHODS.items() if can_explain_games(one))
        yield f": {entry.settings.method} needs a model and its inputs; for a game use one of {able}"


def check_keys_of_others(place: Place) -> Iterator[str]:
    """Check that an experiment on data has no keys of games and of prompts."""
    yield from refuse("", place.experiment, OF_GAMES, "it is of an experiment with a game")
    if place.kind == "player":
        yield ".features.kind: players are of a game; give game, or the features of the dataset"
    if place.kind in ("sentence", "passage", "message"):
        yield f".features.kind: '{place.kind}' is of prompts; give a model with task: generation"
    if place.experiment.report.notebook == "game":
        yield ".report.notebook: the page game is of an experiment with a game; remove the key"
    if place.experiment.metrics.prompts:
        yield ".metrics.prompts: it is of prompts; remove the metric"


PROMPTS = "prompts"
OF_MODEL, OF_DATASET = {"source", "task", "max_tokens"}, {"source", "path"}
OF_OTHERS = (
    *("target", "timing", "time_limit", "precision", "compile", "cache", "training_seeds"),
    *("instances_per_training_seed", "game", "game_files", "game_rounds"),
)
PROMPT_METRICS = ("error", "efficiency", "cost", "prompts")


def check_language_model(model: Model) -> Iterator[str]:
    if model.task is None:
        yield from refuse("", model, ["max_tokens"], "it is of task: generation")
        return
    yield from refuse(
        "", model, sorted(model.model_fields_set - OF_MODEL), "a model with task: generation has no {key}"
    )
    if not model.source or not folders.names_folder(model.source):
        yield ".source: task: generation needs a language model; give path/to/folder of transformers"
    else:
        yield from catch(".source", folders.check_generator, model.source)


def check_prompt_file(dataset: Dataset) -> Iterator[str]:
    yield from refuse("", dataset, sorted(dataset.model_fields_set - OF_DATASET), "a dataset of prompts has no {key}")
    if not dataset.path:
        yield ".path: is missing; name a .jsonl or .csv file of prompts"
    else:
        yield from catch(".path", lambda: prompts.read_prompts(expand(dataset.path)))


def check_prompts(place: Place) -> Iterator[str]:
    dataset = place.dataset
    if dataset is None or dataset.source != PROMPTS:
        yield f".dataset: a language model explains prompts; name a dataset with source: {PROMPTS}"
    elif place.kind not in KINDS:
        yield f".features.kind: '{place.kind}' does not fit prompts. Allowed: {', '.join(KINDS)}."
    elif not any(check_prompt_file(dataset)):  # whose mistakes are the dataset's
        yield from catch(
            ".features", lambda: prompts.check_parts(prompts.read_prompts(expand(dataset.path)), place.kind)
        )


def check_prompt_keys(place: Place) -> Iterator[str]:
    entry = place.experiment
    yield from refuse("", entry, OF_OTHERS, "an experiment on prompts has no {key}")
    removal = getattr(entry.reference, "kind", entry.reference)
    if "reference" in entry.model_fields_set and removal not in REMOVALS:
        yield f".reference: parts of prompts are removed by {', '.join(REMOVALS)}; set one of them"
    if "value" in entry.model_fields_set and entry.value != "log_probability":
        yield ".value: the value is the log_probability of the answer; remove the key"
    chosen = entry.instances
    beside = sorted(chosen.model_fields_set - {"count"})
    yield from refuse(".instances", chosen, beside, "prompts are taken in the order of the file")
    for name, _ in place.metrics():
        if name not in PROMPT_METRICS:
            yield f".metrics.{name}: it is not of prompts; use {', '.join(PROMPT_METRICS)}"
    if "notebook" in entry.report.model_fields_set and entry.report.notebook != "generation":
        yield ".report.notebook: the page of prompts is generation; remove the key"


def check_prompt_methods(place: Place) -> Iterator[str]:
    for name, settings in place.experiment.methods.items():
        entry = MethodPlace(place, name, settings, None)
        if not entry.method.explains_prompts:
            able = ", ".join(one for one, method in METHODS.items() if method.explains_prompts)
            yield f".methods.{name}: {settings.method} does not explain prompts; use one of {able}"
        elif settings.method == "h_shap" and (of_grids := {"min_size", "shifts"} & settings.model_fields_set):
            yield f".methods.{name}.{min(of_grids)}: it is of images; remove the key"
        elif getattr(settings, "match_budget_of", None):
            yield f".methods.{name}.match_budget_of: prompts have a budget; give budget"


PROMPT_RULES = (check_prompts, check_prompt_keys, check_prompt_methods)
