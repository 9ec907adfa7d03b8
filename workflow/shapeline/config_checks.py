"""What no job could do: keys that are valid each alone and impossible together, a line for each."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shapeline import datasets, features, methods, metrics, other_data, references
from shapeline.config_types import (
    ANY_SIZE,
    KINDS_TAKEN,
    ROOT,
    UNITS,
    Config,
    Dataset,
    Experiment,
    Model,
    budget_of,
    canonical,
    feature_shape,
    features_of,
    fixed_cost,
    framework_of,
    shards_of,
    source_of,
)
from shapeline.designs.design import evaluations
from shapeline.errors import ShapelineError, nearest
from shapeline.methods import USER_FILE, Own
from shapeline.models import TORCH_ONLY, ready

LARGE = 1000  # features, for what can be said of instances before they are seen
MOST_SHARDS = 10_000  # score files a label, for Snakemake looks at each


def impossible(config: Config, names: dict[str, set], mistaken: set[tuple]) -> Iterator[str]:
    """Combinations that no single key shows to be wrong; entries with a mistake of their own are judged leniently."""
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", config.results) or config.results.split("/")[0] in ROOT:
        yield (
            f"results: '{config.results}' is not a folder of its own inside the repository; give a relative path "
            "without '..', or a link of that name to a disk elsewhere"
        )
    for path in (Path(config.results), *Path(config.results).parents):
        if path.is_file():
            yield f"results: {path} is a file; give the name of a folder"
    if config.data.mirror:
        try:
            datasets.expand(config.data.mirror)
        except ShapelineError as error:
            yield f"data.mirror: {error}"
    for name in config.run:
        if name not in names["experiments"]:
            yield f"run: there is no experiment '{name}'.{nearest(name, names['experiments'])}"
    for name, dataset in config.datasets.items():
        if dataset.source not in datasets.SOURCES and not re.match(USER_FILE, dataset.source):
            hint = nearest(dataset.source, datasets.SOURCES)
            if dataset.source.endswith(("csv", "parquet")):
                hint = " A file of your own is named by path, with source: table_file, or text_file for documents."
            yield f"datasets.{name}.source: unknown source '{dataset.source}'.{hint}"
        elif problem := dataset.source not in datasets.SOURCES and _absent(dataset.source.rpartition(":")[0]):
            yield f"datasets.{name}.source: {problem}"
        else:
            try:
                datasets.check(dataset.source, canonical(dataset))
            except ShapelineError as error:
                yield f"datasets.{name}: {error}"
        if dataset.path:
            try:
                path, source = datasets.expand(dataset.path), datasets.SOURCES.get(dataset.source)
                if not path.exists():
                    hint = "paths start at the repository root"
                    yield f"datasets.{name}.path: there is no file or folder {path} ({hint})"
                elif source and source.files:
                    datasets.local_files(source, path)
            except ShapelineError as error:
                yield f"datasets.{name}: {error}"
        if dataset.tokenizer:
            try:
                needed = [argument for argument, must in methods.own_arguments(dataset.tokenizer).items() if must]
                if needed:
                    yield (
                        f"datasets.{name}.tokenizer: {dataset.tokenizer} is called with nothing and needs "
                        f"{', '.join(needed)}; give it defaults"
                    )
            except ShapelineError as error:
                yield f"datasets.{name}.tokenizer: {error}"
    for name, model in config.models.items():
        if model.dataset not in names["datasets"]:
            hint = nearest(model.dataset, names["datasets"])
            yield f"models.{name}.dataset: there is no dataset '{model.dataset}'.{hint}"
        if (model.architecture is None) == (model.source is None) and ("models", name) not in mistaken:
            yield f"models.{name}: give either architecture or source"
        dataset = config.datasets.get(model.dataset)
        source = source_of(dataset)
        if source and model.architecture and KINDS_TAKEN.get(model.architecture, "image") != source.kind:
            yield f"models.{name}.architecture: {model.architecture} does not take a dataset of kind {source.kind}"
        if source and source.task == "multilabel" and framework_of(model) != "torch":
            remedy = "give a function that builds one" if ready.suffix_of(model.source) else "set framework: torch"
            yield f"models.{name}: datasets.{model.dataset} has several labels a record, for torch alone; {remedy}"
        yield from _impossible_training(f"models.{name}", model, source)
        yield from _impossible_ready(f"models.{name}", model, source, dataset)
        unit = datasets.unit_of(canonical(dataset)) if source else None
        if unit and model.architecture and UNITS.get(model.architecture, unit) != unit:
            yield (
                f"models.{name}.architecture: {model.architecture} reads tokens of unit {UNITS[model.architecture]} "
                f"and datasets.{model.dataset} has unit {unit}; set its unit"
            )
    for name, experiment in config.experiments.items():
        if experiment.model is None and experiment.dataset is None and ("experiments", name) not in mistaken:
            yield f"experiments.{name}: give a model, or a dataset, or both"
        if experiment.dataset and experiment.dataset not in names["datasets"]:
            hint = nearest(experiment.dataset, names["datasets"])
            yield f"experiments.{name}.dataset: there is no dataset '{experiment.dataset}'.{hint}"
        if experiment.model and experiment.model not in names["models"]:
            hint = nearest(experiment.model, names["models"])
            yield f"experiments.{name}.model: there is no model '{experiment.model}'.{hint}"
        strange = list(_impossible_other_data(config, name, experiment))
        yield from strange or _impossible_experiment(config, name, experiment)


def _absent(path: str) -> str | None:
    """What is wrong with the path of a user's own file; None where the file is there."""
    try:
        file = datasets.expand(path)
    except ShapelineError as error:
        return str(error)
    return None if file.is_file() else f"there is no file {file} (paths start at the repository root)"


def _impossible_ready(
    where: str, model: Model, source: datasets.Source | None, dataset: Dataset | None
) -> Iterator[str]:
    """What does not go with a model that comes ready in a file."""
    suffix, function = ready.suffix_of(model.source), model.framework == "function"
    if function and ready.kind_of(model.source, model.framework) != "function":
        yield f"{where}.framework: function is of a source path/to/file.py:function; name one, or remove the key"
        return
    if model.source and (problem := _absent(model.source if suffix else model.source.rpartition(":")[0])):
        yield f"{where}.source: {problem}"
    elif function and (problem := _not_of_rows(model.source)):
        yield f"{where}.source: {problem}"
    if model.trusted and suffix != ".skops":
        yield f"{where}.trusted: only the types of a .skops file are checked; remove the key"
    if model.training.epochs == 0 and model.architecture and not model.weights:
        yield f"{where}.training.epochs: with 0 nothing is trained and {model.architecture} knows nothing; give weights"
    elif model.training.epochs == 0 and model.weights in datasets.WEIGHTS:
        yield (
            f"{where}.training.epochs: with 0 the last layer stays a random draw, for {model.weights} has other "
            "classes; remove the key, or give a file of trained weights"
        )
    if not suffix and not function:
        return
    for key in ("sizes", "weights", "training") if function else ("framework", "sizes", "weights", "training"):
        if key in model.model_fields_set:
            yield f"{where}.{key}: the model in {model.source} is ready and not made here; remove the key"
    if function:
        return
    if source and suffix == ".skops" and source.kind != "table":
        yield f"{where}.source: a pipeline takes tables, not a dataset of kind {source.kind}; give another model"
    elif source and source.kind == "text" and not dataset.tokenizer:
        yield (
            f"{where}.source: a Keras file has a vocabulary of its own, which is not known here; give the dataset its "
            "tokenizer, or a function path/to/file.py:function that builds the model"
        )


def _not_of_rows(source: str) -> str | None:
    """What keeps a function that is a model from being called with rows alone; None where nothing does."""
    try:
        needed = [argument for argument, must in methods.own_arguments(source).items() if must]
    except ShapelineError as error:
        return str(error)
    return None if len(needed) == 1 else f"{source} is called with rows alone; it asks for {len(needed)} arguments"


def _impossible_training(where: str, model: Model, source: datasets.Source | None) -> Iterator[str]:
    torch = framework_of(model) == "torch"
    if model.architecture in TORCH_ONLY and not torch:
        yield f"{where}.framework: {model.architecture} is for torch alone; remove the key"
    if model.training.augment and ((source and source.kind != "image") or not torch):
        of = f"a dataset of kind {source.kind} has none" if torch else "in torch alone"
        yield f"{where}.training.augment: it flips pictures, {of}; remove the key"
    if model.weights is None:
        return
    if not torch:
        yield f"{where}.weights: training starts from a file in torch alone; remove the key"
    if model.weights in datasets.WEIGHTS:
        if model.architecture != "resnet18":
            yield f"{where}.weights: {model.weights} is of resnet18; set architecture: resnet18, or name a file"
        return
    try:
        file = datasets.expand(model.weights)
    except ShapelineError as error:
        yield f"{where}.weights: {error}"
        return
    if file.suffix not in (".pth", ".safetensors"):
        hint = nearest(model.weights, datasets.WEIGHTS)
        yield f"{where}.weights: '{model.weights}' is no .pth or .safetensors file.{hint}"
    elif not file.is_file():
        yield f"{where}.weights: there is no file {file}"


def _impossible_other_data(config: Config, name: str, experiment: Experiment) -> Iterator[str]:
    """What keeps a model from explaining the dataset named beside it, as far as the configuration tells."""
    model = config.models.get(experiment.model)
    own = config.datasets.get(model.dataset) if model else None
    other = config.datasets.get(experiment.dataset)
    if own is None or other is None:
        return
    where = f"experiments.{name}.dataset"
    if model.dataset == experiment.dataset:
        yield f"{where}: models.{experiment.model} is trained on {experiment.dataset} itself; remove the key"
        return
    try:
        trained, explained = (other_data.told_by(source_of(one), canonical(one)) for one in (own, other))
    except ShapelineError:  # told where the dataset is
        return
    any_size = model.source is not None or model.architecture in ANY_SIZE
    told = other_data.difference(trained, explained, any_size)
    same = "tokenizer" in trained and "tokenizer" in explained  # `difference` compared them
    if told is None and trained.get("unit") == explained.get("unit") == "word" and not same:
        told = "each dataset of words has a vocabulary of its own"
    if told:
        yield (
            f"{where}: models.{experiment.model} is trained on {model.dataset} and cannot explain "
            f"{experiment.dataset}: {told}"
        )


def _impossible_experiment(config: Config, name: str, experiment: Experiment) -> Iterator[str]:
    where = f"experiments.{name}"
    model = config.models.get(experiment.model)
    dataset_name = experiment.dataset or (model.dataset if model else None)
    dataset = config.datasets.get(dataset_name)
    source = source_of(dataset)
    kind = experiment.features.kind
    without_model = experiment.model is None
    if (number := shards_of(config, experiment)) > MOST_SHARDS:
        count = experiment.instances.count
        yield (
            f"{where}.shards: {number:,} score files a label, for {count:,} instances, are more than {MOST_SHARDS:,}; "
            "set fewer shards, or a smaller instances.count"
        )
    if without_model and kind in features.TEXT_KINDS:
        yield f"{where}.dataset: the tokens of a text are no points, so texts are explained by a model; give model"
        return
    if source:
        fitting = features.FITTING[source.kind]
        if kind not in fitting:
            allowed = ", ".join(fitting)
            yield f"{where}.features.kind: '{kind}' does not fit a dataset of kind {source.kind}. Allowed: {allowed}."
            return
        unit = datasets.unit_of(canonical(dataset))
        if unit and (kind == "word") != (unit == "word"):
            fitting = "word" if unit == "word" else "character_run"
            yield f"{where}.features.kind: '{kind}' does not fit tokens of unit {unit}; use {fitting}"
            return
        if not without_model:
            yield from _impossible_value(where, experiment, dataset_name, source.task)
        reference, _ = references.parse(canonical(experiment.reference))
        if reference not in references.FITTING[source.kind] and not without_model:
            allowed = ", ".join(references.FITTING[source.kind])
            yield f"{where}.reference: '{reference}' does not fit a dataset of kind {source.kind}. Allowed: {allowed}."
    asking = ("log_odds", "ablation", "erasure", "infidelity", "sensitivity", "randomisation", "own", "efficiency")
    for metric in asking if without_model else ():
        if getattr(experiment.metrics, metric) is not None:
            yield f"{where}.metrics.{metric}: it asks what the model says and there is no model; remove the metric"
    if model and ready.kind_of(model.source, model.framework) and experiment.metrics.randomisation:
        yield f"{where}.metrics.randomisation: the model in {model.source} cannot be drawn anew; remove the metric"
    if model and framework_of(model) == "function":
        of = "a function" if model.framework else "a pipeline"
        if experiment.value == "logit":
            yield f"{where}.value: {of} gives probabilities and no logit; use log_probability or probability"
        if experiment.metrics.ablation:
            yield f"{where}.metrics.ablation: it asks for a logit, which {of} has not; remove the metric"
    for metric, reference in (experiment.metrics.own.functions if experiment.metrics.own else {}).items():
        try:
            takes = methods.own_arguments(reference)
        except ShapelineError as error:
            yield f"{where}.metrics.own.functions.{metric}: {error}"
            continue
        for argument in [one for one, needed in takes.items() if needed and one not in metrics.OWN_TAKES]:
            hint = nearest(argument, metrics.OWN_TAKES)
            yield f"{where}.metrics.own.functions.{metric}: {reference} asks for '{argument}'.{hint}"
    regression = source.task == "regression" if source else experiment.value == "prediction"
    if experiment.metrics.log_odds and regression and not without_model:
        yield f"{where}.metrics.log_odds: a regression model gives no probabilities and so no odds; remove the metric"
    for metric in ("ablation", "erasure") if regression and not without_model else ():
        if getattr(experiment.metrics, metric):
            yield f"{where}.metrics.{metric}: a regression model gives no logits nor probabilities; remove the metric"
    own = kind in features.TEXT_KINDS or features.varies(canonical(experiment.features))
    if experiment.metrics.sensitivity and own:
        yield f"{where}.metrics.sensitivity: inputs of kind '{kind}' cannot move a little; remove the metric"
    yield from _impossible_localization(where, experiment, source)
    yield from _impossible_seeds(where, experiment, model)
    judges = experiment.metrics.log_odds.references if experiment.metrics.log_odds and source else None
    for other in judges or ():
        if other not in references.FITTING[source.kind]:
            yield f"{where}.metrics.log_odds.references: '{other}' does not fit kind {source.kind}; remove it"
    try:
        file = references.file_of(canonical(experiment.reference))
        if file is not None and not file.is_file():
            yield f"{where}.reference.path: there is no file {file}"
    except ShapelineError as error:
        yield f"{where}.reference.path: {error}"
    if experiment.instances.texts and "count" in experiment.instances.model_fields_set:
        yield f"{where}.instances.count: texts of one's own are all explained; remove the count"
    if experiment.instances.texts and source and source.kind != "text":
        yield f"{where}.instances.texts: only a dataset of kind text takes them, not one of kind {source.kind}"
    yield from _impossible_instances(f"{where}.instances", experiment, dataset, source)
    for key in ("precision", "compile"):
        framework = framework_of(model) if model else None
        if getattr(experiment, key) != Experiment.model_fields[key].default and framework != "torch":
            yield f"{where}.{key}: it is for models of torch; remove the key"
    shape = None
    if source:
        try:
            shape = feature_shape(config, experiment)
        except ShapelineError as error:
            yield f"{where}.features: {error}"
    d = math.prod(shape) if shape else None
    if d == 1:
        yield f"{where}.features: there is a single feature (d = 1), so nothing to share out; make the features smaller"
        return
    if experiment.timing == "per_instance" and experiment.cache:
        yield f"{where}.timing: values kept in the cache take no time, so seconds would say nothing; remove cache"
    for label, entry in experiment.methods.items():
        problem = _file_problem(entry, experiment)
        if problem:
            yield f"{where}.methods.{label}.{problem}"
            continue
        own = _own_shape(config, experiment, entry, shape)
        if isinstance(own, str):
            yield f"{where}.methods.{label}.features: {own}"
            continue
        mistakes = [
            *_impossible_method(f"{where}.methods.{label}", entry, experiment, own),
            *_impossible_tree(f"{where}.methods.{label}", entry, experiment, own),
            *_impossible_data_method(f"{where}.methods.{label}", entry, experiment, source),
            *_impossible_for_model(f"{where}.methods.{label}", entry, config, name, source),
        ]
        yield from mistakes
        if methods.METHODS[entry.method].minimum and not mistakes and not (entry.rival_of and own is None):
            yield from _impossible_budget(config, name, label, math.prod(own) if own else None)
    if experiment.metrics.decisive and experiment.instances.texts:
        yield f"{where}.metrics.decisive: the decisive words of one's own texts are not known; remove the metric"
    elif experiment.metrics.decisive and dataset and dataset.tokenizer:
        yield f"{where}.metrics.decisive: which words of the tokenizer's decide is not known; remove the metric"
    elif experiment.metrics.decisive and source and not (source.synthetic and source.kind == "text"):
        yield f"{where}.metrics.decisive: the decisive words of source '{source.name}' are not known; remove the metric"
    error = experiment.metrics.error
    if error and list(experiment.methods) == [error.reference]:
        yield f"{where}.metrics.error: '{error.reference}' is the only label, so there is nothing to compare with it"
    if error and error.reference not in experiment.methods:
        yield (
            f"{where}.metrics.error.reference: there is no label '{error.reference}' among the methods."
            f"{nearest(error.reference, experiment.methods)}"
        )


def _impossible_seeds(where: str, experiment: Experiment, model: Model | None) -> Iterator[str]:
    """What keeps an experiment from training its model again by other seeds."""
    if experiment.seeds == 1:
        return
    if experiment.model is None:
        yield f"{where}.seeds: without a model nothing is trained; remove the key"
    elif model and (ready.kind_of(model.source, model.framework) or model.training.epochs == 0):
        yield f"{where}.seeds: models.{experiment.model} is ready and not trained here; remove the key"
    for label, entry in experiment.methods.items():
        if entry.method == "external":
            yield f"{where}.seeds: the scores of '{label}' are of one model; remove the key, or the label"
    if not any(getattr(experiment.metrics, metric) for metric in metrics.PAIRED):
        yield f"{where}.seeds: no metric compares trainings; add one of {', '.join(metrics.PAIRED)}"


def _file_problem(entry: Any, experiment: Experiment) -> str | None:
    """What is wrong with the user's own file behind an entry: a function, or scores made elsewhere."""
    if isinstance(entry, Own):
        problem = methods.own_problem(entry)
        if not problem and "graph" in methods.own_arguments(entry.method):
            kind = features_of(experiment, entry).kind
            if kind in features.TABLE_KINDS:
                return f"method: {entry.method} takes a graph and features of kind '{kind}' lack one; let it take d"
        return problem
    if entry.method != "external":
        return None
    if experiment.metrics.randomisation:
        return "method: scores made elsewhere are of one model; remove metrics.randomisation, or the label"
    if experiment.metrics.sensitivity:
        return "method: scores made elsewhere cannot be made anew for moved inputs; remove metrics.sensitivity"
    problem = _absent(entry.path)
    return problem and f"path: {problem}"


def _impossible_instances(
    where: str, experiment: Experiment, dataset: Dataset | None, source: datasets.Source | None
) -> Iterator[str]:
    chosen = experiment.instances
    for key in ("label", "correct", "objects", "or_all"):
        if chosen.texts and key in chosen.model_fields_set:
            yield f"{where}.{key}: texts of one's own are all explained and have no class; remove the key"
    if chosen.correct and experiment.model is None:
        yield f"{where}.correct: without a model nothing is predicted; remove the key"
    if not source:
        return
    if source.task == "regression":
        for key in ("label", "correct"):
            if getattr(chosen, key):
                yield f"{where}.{key}: source '{source.name}' is of regression and has no classes; remove the key"
        return
    if chosen.objects and chosen.label is None and source.task == "multilabel":
        yield f"{where}.objects: a record has objects of several labels; say of which with label, or remove the key"
    if chosen.objects and not source.truth:
        yield f"{where}.objects: the objects in records of source '{source.name}' are not known; remove the key"
    if chosen.label is None:
        return
    try:
        kept = datasets.chosen_classes(source.name, source.classes, dataset.classes)
    except ShapelineError:  # told where the dataset is
        return
    try:
        datasets.class_index("classes of the dataset", chosen.label, [source.classes[index] for index in kept])
    except ShapelineError as error:
        yield f"{where}.label: {error}"


def _impossible_localization(where: str, experiment: Experiment, source: datasets.Source | None) -> Iterator[str]:
    if source and source.kind != "image" and experiment.report.notebook == "localization":
        yield f"{where}.report.notebook: localization shows pictures, not a dataset of kind {source.kind}; use report"
    if not experiment.metrics.localization or not source:
        return
    if source.kind != "image":
        yield f"{where}.metrics.localization: it is of pictures, not of kind {source.kind}; remove the metric"
    elif not source.truth:
        known = ", ".join(name for name, one in datasets.SOURCES.items() if one.truth)
        yield (
            f"{where}.metrics.localization: where in its pictures a class is, source '{source.name}' does not say; "
            f"remove the metric, or use one of {known}"
        )


def _impossible_value(where: str, experiment: Experiment, dataset: str, task: str) -> Iterator[str]:
    regression, several = task == "regression", task == "multilabel"
    if regression and experiment.value != "prediction":
        yield f"{where}.value: datasets.{dataset} is of regression and has no {experiment.value}; set value: prediction"
    if several and experiment.value == "expected_log_probability":
        yield (
            f"{where}.value: datasets.{dataset} has several labels a record, over which nothing sums to 1; use "
            "log_probability"
        )
    if not regression and experiment.value == "prediction":
        yield f"{where}.value: prediction is for regression and datasets.{dataset} has classes; remove the key"


def _impossible_method(place: str, entry: Any, experiment: Experiment, shape: tuple | None) -> Iterator[str]:
    d = math.prod(shape) if shape else None
    method = methods.METHODS[entry.method]
    kind = features_of(experiment, entry).kind
    on_graph = kind not in features.TABLE_KINDS
    on_grid = on_graph and kind != "superpixel"  # words and runs of characters are a row
    if method.exact and d and d > methods.MAX_EXACT:
        yield (
            f"{place}: {entry.method} enumerates 2^d coalitions and d = {d}; it takes d <= {methods.MAX_EXACT}: "
            "use larger patches or groups of columns, or a sampled method"
        )
    if (method.grid and not on_grid) or (getattr(entry, "graph", None) == "features" and not on_graph):
        remedy = "use a sampled method" if method.grid else "set graph: chain or graph: complete"
        needed = "grid" if method.grid and on_graph else "graph"
        yield f"{place}: {entry.method} needs features on a {needed} and features of kind '{kind}' lack one; {remedy}"
    if getattr(entry, "keep", None) and entry.kernel == "shapley":
        yield f"{place}.keep: lime with kernel 'shapley' has no fit of some features; use cosine or fraction"
    if method.is_fixed_cost and not method.exact and d and (on_grid or getattr(entry, "graph", "") != "features"):
        try:
            fixed_cost(json.dumps(canonical(entry)), shape)
        except ShapelineError as error:
            yield f"{place}: {error}"
    rival = getattr(entry, "rival_of", None)
    if rival is None:
        return
    if entry.budget or entry.snapshots:
        yield f"{place}: rival_of sets the budget; remove budget and snapshots"
    if rival not in experiment.methods:
        yield f"{place}.rival_of: there is no label '{rival}' among the methods.{nearest(rival, experiment.methods)}"
    elif not (methods.METHODS[experiment.methods[rival].method].is_fixed_cost):
        yield f"{place}.rival_of: '{rival}' has no fixed number of evaluations; give a budget instead"
    elif getattr(experiment.methods[rival], "features", None):
        yield f"{place}.rival_of: '{rival}' explains features of its own; give a budget instead"


def _own_shape(config: Config, experiment: Experiment, entry: Any, shape: tuple | None) -> tuple | str | None:
    """The shape of the features that an entry explains, None where unknown; or, in a text, why it cannot have them."""
    if getattr(entry, "features", None) is None:
        return shape
    if experiment.features.kind != "pixel":
        kind = experiment.features.kind
        return f"a method has features of its own where the experiment's are pixels, and these are of kind '{kind}'"
    if getattr(entry, "rival_of", None):
        return "a rival explains the same features; remove rival_of and give a budget"
    try:
        own = feature_shape(config, experiment, entry)
    except ShapelineError as error:
        return str(error)
    return "there is a single feature (d = 1); make the features smaller" if own and math.prod(own) == 1 else own


def _impossible_tree(place: str, entry: Any, experiment: Experiment, shape: tuple | None) -> Iterator[str]:
    """What the methods on trees over a grid of features (family hierarchical) cannot do."""
    if methods.METHODS[entry.method].family != "hierarchical":
        return
    kind = features_of(experiment, entry).kind
    if entry.method == "partition":
        if kind == "superpixel":
            yield f"{place}: partition halves a grid or a row and superpixels lie on none; use h_shap"
        return
    if entry.mode == "relative" and entry.threshold > 100:
        yield f"{place}.threshold: {entry.threshold:g} is no percentile; in mode relative give 0 to 100"
    if kind == "superpixel":
        for key in ("min_size", "shifts"):
            if key in entry.model_fields_set:
                yield f"{place}.{key}: superpixels are the leaves of the tree themselves; remove the key"
        return
    axes = 2 if kind in features.IMAGE_KINDS else 1
    if any(len(shift) != axes for shift in entry.shifts or ()):
        wanted = "[rows, columns]" if axes == 2 else "[columns]"
        yield f"{place}.shifts: features of kind '{kind}' are moved by {wanted} each"
    if shape and entry.min_size > max(shape):
        size = "x".join(map(str, shape))
        yield f"{place}.min_size: {entry.min_size} is larger than the {size} features; give at most {max(shape)}"


def _impossible_data_method(
    place: str, entry: Any, experiment: Experiment, source: datasets.Source | None
) -> Iterator[str]:
    method = methods.METHODS[entry.method]
    if method.asks_model and experiment.model is None:
        free = ", ".join(name for name, other in methods.METHODS.items() if not other.asks_model)
        yield f"{place}: {entry.method} asks a model and there is none; give model in place of dataset, or use {free}"
    if method.family == "data" and source and source.task == "multilabel":
        yield f"{place}: {entry.method} compares points of one label each; these have several, so remove it"
    if method.family == "data" and experiment.features.kind in features.TEXT_KINDS:
        yield f"{place}: {entry.method} compares points and the tokens of a text are none; remove it"
    if getattr(entry, "mu", None) and entry.categorical:
        yield f"{place}: the kernel of cosine distance (mu) takes no categorical columns; use rho"
    for column in getattr(entry, "categorical", ()):
        if isinstance(column, str) and source and column not in source.feature_names:
            yield f"{place}.categorical: there is no column '{column}'.{nearest(column, source.feature_names)}"


def _impossible_for_model(
    place: str, entry: Any, config: Config, name: str, source: datasets.Source | None
) -> Iterator[str]:
    """What the networks, the inputs or the installed packages do not allow a method of gradients or a peer."""
    method, experiment = methods.METHODS[entry.method], config.experiments[name]
    model = config.models.get(experiment.model)
    if method.data and source and source.kind not in method.data:
        explained = " and ".join(method.data)
        yield f"{place}: {entry.method} explains data of kind {explained}, not of kind {source.kind}; remove it"
    if method.torch_only and model and framework_of(model) != "torch":
        yield (
            f"{place}: {entry.method} needs a torch model and models.{experiment.model} is of {framework_of(model)}; "
            "set its framework: torch, or remove the method"
        )
    elif model and model.architecture in method.refuses:
        yield (
            f"{place}: {entry.method} has no rule for what {model.architecture} does; "
            "use expected_gradients or integrated_gradients"
        )
    elif method.family == "gradients" and model and framework_of(model) == "function":
        of = "a function" if model.framework else "a pipeline"
        yield f"{place}: {entry.method} needs the derivative of a network, which {of} has not; remove it"
    if method.family == "peers" and getattr(entry, "snapshots", None):
        yield f"{place}.snapshots: {entry.method} tells only its last estimate; give labels with budgets of their own"
    lacking = methods.missing(entry.method) if name in config.run else None  # another's run shall not end for it
    if lacking:
        yield f"{place}: {lacking}"


def _impossible_budget(config: Config, name: str, label: str, d: int | None) -> Iterator[str]:
    where = f"experiments.{name}"
    entry = config.experiments[name].methods[label]
    try:
        budget = budget_of(config, name, label)
    except ShapelineError as error:
        yield f"{where}.methods.{label}.rival_of: {error}"
        return
    if len(set(entry.snapshots or ())) < len(entry.snapshots or ()):
        yield f"{where}.methods.{label}.snapshots: a budget is listed twice"
    key = "rival_of" if entry.rival_of else "budget"
    asked = [(f"{where}.methods.{label}.{key}" if entry.rival_of or entry.budget else f"{where}.budget", budget)]
    for smaller in entry.snapshots or ():
        asked.append((f"{where}.methods.{label}.snapshots", smaller))
        if smaller >= budget:
            yield f"{where}.methods.{label}.snapshots: {smaller:g} is not below the budget of {budget:g}"
    minimum = methods.function_of(methods.METHODS[entry.method].minimum)
    if d is None:  # that of an instance; the smallest multiple of a large d is that of nearly all
        least = methods.call(minimum, {**entry.model_dump(), "d": LARGE}) / LARGE
        for place, multiple in asked:
            if multiple < 0.9 * least:
                enough = math.ceil(10 * least) / 10
                yield f"{place}: {multiple:g} x d is too few for {entry.method}: set {enough:g} or more"
        return
    least = methods.call(minimum, {**entry.model_dump(), "d": d})
    for place, multiple in asked:
        count = evaluations(multiple, d)
        if count < least:
            yield (
                f"{place}: {multiple:g} x d is {count} evaluations and {entry.method} needs at least {least} "
                f"at d = {d}: set {math.ceil(100 * least / d) / 100:g} or more"
            )
