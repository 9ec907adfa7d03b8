"""Rules on keys of experiments and metrics that are valid alone and impossible together; one line per mistake."""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from shapeline.config import derived, entry_checks, method_checks
from shapeline.config.derived import canonical
from shapeline.config.method_checks import check_budget, check_stopping
from shapeline.config.mistakes import (
    MethodPlace,
    Place,
    Rule,
    catch,
    check_arguments,
    check_reference_to,
    describe_absence,
    locate,
    refuse,
)
from shapeline.config.types import ROOT_FOLDERS, Array, Config, Experiment, Placeholder
from shapeline.datasets import checks, folders, sources
from shapeline.datasets.entries import TEXT, shorten_value
from shapeline.datasets.registry import SOURCES
from shapeline.datasets.text import PAIR
from shapeline.errors import ShapelineError
from shapeline.games import features, references
from shapeline.games.features import CHOICES, TEXT_KINDS
from shapeline.metrics.registry import DESIGN_ARGUMENTS, PAIRED, Metric

RANDOMISABLE = (None, "folder")  # kinds of trained models whose layers can be initialised again


def check_metrics(place: Place) -> Iterator[str]:
    for name, metric in place.metrics():
        for problem in (*_find_model_problems(place, metric), *_find_data_problems(place, metric)):
            yield f".metrics.{name}: {problem}"
    own = place.experiment.metrics.own
    for name, reference in (own.functions if own else {}).items():
        yield from check_arguments(f".metrics.own.functions.{name}", reference, DESIGN_ARGUMENTS)


def _find_model_problems(place: Place, metric: Metric) -> Iterator[str]:
    model = place.model
    if metric.needs_model and place.has_no_model:
        yield "it needs a model, and there is none; remove the metric"
    if metric.needs_randomised and model and model.kind not in RANDOMISABLE:
        yield f"the model in {model.source} cannot be randomised; remove the metric"
    if metric.needs_logit and place.function:
        yield f"it needs a logit, which {place.function} has not; remove the metric"
    regression = place.source.task == "regression" if place.source else place.experiment.value == "prediction"
    if metric.lacks and regression and not place.has_no_model:
        yield f"a regression model gives no {metric.lacks}; remove the metric"


def _find_data_problems(place: Place, metric: Metric) -> Iterator[str]:
    source = place.source
    if metric.moves_inputs and (place.kind in TEXT_KINDS or features.is_varying(canonical(place.experiment.features))):
        yield f"inputs of kind '{place.kind}' cannot move a little; remove the metric"
    if metric.needs_ground_truth and source and source.kind != "image":
        yield f"it is of images, not of kind {source.kind}; remove the metric"
    elif metric.needs_ground_truth and source and not source.truth:
        known = ", ".join(known for known, entry in SOURCES.items() if entry.truth)
        yield (
            f"where in its images a class is, source '{source.name}' does not say; remove the metric, or use one of "
            f"{known}"
        )
    if metric.needs_documents and place.experiment.instances.texts:
        yield "the ground-truth words of custom texts are not known; remove the metric"
    elif metric.needs_documents and place.dataset and place.dataset.tokenizer:
        yield "which words of the tokenizer's decide is not known; remove the metric"
    elif metric.needs_documents and source and not source.ground_truth_words:
        yield f"the ground-truth words of source '{source.name}' are not known; remove the metric"


def check_exact_entry(place: Place) -> Iterator[str]:
    metric, methods = place.experiment.metrics.error, place.experiment.methods
    if metric is None:
        return
    if list(methods) == [metric.reference]:
        yield (f".metrics.error: '{metric.reference}' is the only method, so nothing is compared with it; add one")
    yield from check_reference_to(".metrics.error.reference", "method", metric.reference, methods)


def check_training_seeds(place: Place) -> Iterator[str]:
    experiment, model = place.experiment, place.model
    if experiment.training_seeds == 1:
        if "training_seeds" not in experiment.model_fields_set:  # else it may replace the seeds of another file
            yield from refuse("", experiment, ["instances_per_training_seed"], "training_seeds is not set")
        return
    if place.has_no_model:
        yield ".training_seeds: without a model nothing is trained; remove the key"
    elif model and (model.kind or model.training.epochs == 0):
        yield f".training_seeds: models.{experiment.model} is ready and not trained here; remove the key"
    truth = getattr(experiment.metrics.error, "reference", None)
    if truth in experiment.methods and experiment.methods[truth].method == "external":
        yield (f".training_seeds: the scores of '{truth}' are of one model, and no truth of another; remove the key")
    if not any(metric.paired for _, metric in place.metrics()):
        yield f".training_seeds: no metric compares training seeds; add one of {', '.join(PAIRED)}"


def check_texts(place: Place) -> Iterator[str]:
    where, chosen, source = ".instances", place.experiment.instances, place.source
    if not chosen.texts:
        return
    yield from refuse(where, chosen, ["count"], "custom texts are all explained")
    if source and source.kind != "text":
        yield f"{where}.texts: only a dataset of kind text takes them, not one of kind {source.kind}; remove the key"
    of_pairs = bool(place.dataset and place.dataset.text_pair)
    for number, text in enumerate(chosen.texts):
        if isinstance(text, list) != of_pairs:
            wanted = "pairs; write [first, second]" if of_pairs else "single texts; write one text each"
            yield f"{where}.texts.{number}: the documents of datasets.{place.dataset_name} are {wanted}"
        elif any(PAIR in sentence or (of_pairs and not sentence.strip()) for sentence in text):
            yield f"{where}.texts.{number}: a sentence of it is empty or holds the sign U+001E; mend it"
    keys = ("label", "correct", "objects", "fewer_ok")
    yield from refuse(where, chosen, keys, "custom texts are all explained and have no class")


def check_near(place: Place) -> Iterator[str]:
    where, chosen, source = ".instances", place.experiment.instances, place.source
    if not chosen.near:
        return
    keys = ("count", "texts", "label", "correct", "objects", "fewer_ok")
    yield from refuse(where, chosen, keys, "the records that near selects are all explained")
    if source and source.kind != "table":
        yield f"{where}.near: records are selected by columns; source '{source.name}' is not a table; remove the key"
    elif source and source.feature_names:
        for column in dict.fromkeys(name for values in chosen.near for name in values):
            yield from check_reference_to(f"{where}.near", "column", column, source.feature_names)


def check_choice(place: Place) -> Iterator[str]:
    where, chosen, source = ".instances", place.experiment.instances, place.source
    if place.has_no_model:
        yield from refuse(where, chosen, ["correct"], "without a model nothing is predicted")
    if not source:
        return
    if source.task == "regression":
        yield from refuse(where, chosen, ["label", "correct"], f"source '{source.name}' has no classes")
        return
    if chosen.label is None and source.task == "multilabel":
        yield from refuse(where, chosen, ["objects"], "a record has objects of several labels, and label names none")
    if not source.truth:
        yield from refuse(where, chosen, ["objects"], f"the objects in records of source '{source.name}' are not known")
    if chosen.label is not None:
        yield from _check_class(place, f"{where}.label", chosen.label)


def check_target(place: Place) -> Iterator[str]:
    where, asked, source = ".target", place.experiment.target, place.source
    if asked == "predicted":
        return
    if place.has_no_model:
        yield f"{where}: without a model it is the points' own labels that are explained; remove the key"
    elif source and source.task == "regression":
        yield f"{where}: source '{source.name}' is of regression and has no classes; remove the key"
    elif source and source.task == "multilabel":
        yield f"{where}: each label of a record is explained; choose one with instances.label, or remove the key"
    elif place.experiment.value == "expected_log_probability":
        yield f"{where}: expected_log_probability is of all classes together; remove the key, or set another value"
    elif asked == "true" and place.experiment.instances.texts:
        yield f"{where}: the true class is unknown for custom texts; name a class, or remove the key"
    elif asked != "true" and source:
        yield from _check_class(place, where, asked)


def _check_class(place: Place, where: str, item: int | str) -> Iterator[str]:
    source = place.source
    try:
        kept = checks.choose_classes(source.name, source.classes, place.dataset.classes)
    except ShapelineError:  # told where the dataset is
        return
    yield from catch(
        where, checks.class_index, "classes of the dataset", item, [source.classes[index] for index in kept]
    )


MAX_SHARDS = 10_000  # score files per method: Snakemake checks each of them


def find_problems(config: Config, names: dict[str, set], mistaken: set[tuple]) -> Iterator[str]:
    """Yield mistakes in combinations of keys; mistaken: (section, name) of mistakes that are already reported."""
    yield from _check_run(config, names)
    for name, dataset in config.datasets.items():
        if dataset.source == entry_checks.PROMPTS:
            yield from locate(f"datasets.{name}", entry_checks.check_prompt_file(dataset))
            continue
        # A key that is left out for its mistake would cause others.
        for rule in () if ("datasets", name) in mistaken else entry_checks.DATASET_RULES:
            yield from locate(f"datasets.{name}", rule(dataset))
    for name, model in config.models.items():
        yield from locate(f"models.{name}", entry_checks.check_language_model(model))
        if model.task:
            continue
        if model.dataset is None:
            yield f"models.{name}.dataset: is missing; name a dataset"
            continue
        if config.datasets.get(model.dataset) and config.datasets[model.dataset].source == entry_checks.PROMPTS:
            yield f"models.{name}.dataset: prompts are explained and not trained on; set task: generation"
            continue
        yield from check_reference_to(f"models.{name}.dataset", "dataset", model.dataset, names["datasets"])
        if (model.architecture is None) == (model.source is None) and ("models", name) not in mistaken:
            yield f"models.{name}: both or neither of architecture and source are given; give one"
        for rule in entry_checks.MODEL_RULES:
            yield from locate(f"models.{name}", rule(model, config))
    for name, experiment in config.experiments.items():
        model = config.models.get(experiment.model)
        is_of_players = getattr(experiment.features, "kind", None) == "player"
        if is_of_players and not experiment.game and ("experiments", name) in mistaken:
            continue  # its game is the mistake
        if experiment.game or (model and model.task):
            yield from _check_experiment(Place(config, name, experiment, model, None, None))
            continue
        if experiment.model is None and experiment.dataset is None and ("experiments", name) not in mistaken:
            yield f"experiments.{name}: neither a model nor a dataset is given; give one or both"
        for key in ("dataset", "model"):
            entry = getattr(experiment, key)
            yield from check_reference_to(f"experiments.{name}.{key}", key, entry, names[f"{key}s"])
        mistakes = list(entry_checks.check_other_data(config, experiment))
        yield from locate(f"experiments.{name}.dataset", mistakes)
        if not mistakes:
            yield from _check_experiment(_find_place(config, name, experiment))


def _check_run(config: Config, names: dict[str, set]) -> Iterator[str]:
    is_inside = re.fullmatch(r"\w[\w.-]{0,99}(/\w[\w.-]{0,99})*", config.results)
    if not is_inside or config.results.split("/")[0] in ROOT_FOLDERS:
        yield (
            f"results: {shorten_value(config.results)} is not a folder of its own inside the repository; give a "
            "relative path without '..' and of names up to 100 characters, or a link of that name to a disk elsewhere"
        )
    else:
        yield from _find_obstacles(Path(config.results))
    if config.data.mirror:
        yield from catch("data.mirror", sources.expand, config.data.mirror)
    for key, experiments in (("run", config.run), ("run_if_available", config.run_if_available)):
        for name in experiments:
            yield from check_reference_to(key, "experiment", name, names["experiments"])


def _find_obstacles(results: Path) -> Iterator[str]:
    for path in (results, *results.parents):
        if path.is_file():
            yield f"results: {path} is a file; give the name of a folder"
        elif path.is_symlink() and not path.exists():
            yield f"results: {path} is a link to {os.readlink(path)}, which is not there; make it, or remove the link"


def _find_place(config: Config, name: str, experiment: Experiment) -> Place:
    model = config.models.get(experiment.model)
    dataset = config.datasets.get(experiment.dataset or (model.dataset if model else None))
    place = Place(config, name, experiment, model, derived.find_source(dataset), None)
    if place.source is None or any(check_features_fit(place)):
        return place
    try:
        return replace(place, shape=derived.find_feature_shape(config, experiment))
    except ShapelineError:  # reported by check_features_cut
        return place


def _check_experiment(place: Place) -> Iterator[str]:
    of_prompts = place.model and place.model.task
    for rule in PROMPT_RULES if of_prompts else GAME_RULES if place.experiment.game else RULES:
        lines = list(rule(place))
        yield from locate(f"experiments.{place.name}", lines)
        if lines and rule in FINAL_RULES:
            return


def check_stopping_rules(place: Place) -> Iterator[str]:
    for name, settings in place.experiment.methods.items():
        yield from locate(f".methods.{name}", check_stopping(MethodPlace(place, name, settings, None)))


def check_shards(place: Place) -> Iterator[str]:
    count = derived.count_evaluation_shards if place.experiment.game else derived.count_shards
    if (number := count(place.config, place.experiment)) > MAX_SHARDS:
        what, remedy = ("jobs", "") if place.experiment.game else ("score files", ", or a smaller instances.count")
        yield (f".shards: {number:,} {what} per method are more than {MAX_SHARDS:,}; set fewer shards{remedy}")


def check_features_fit(place: Place) -> Iterator[str]:
    source, where = place.source, ".features.kind"
    if place.has_no_model and place.kind in TEXT_KINDS:
        yield (".dataset: the tokens of a text are not points, so texts are explained by a model; give model")
        return
    if source is None:
        return
    if place.kind not in CHOICES[source.kind]:
        allowed = ", ".join(CHOICES[source.kind])
        yield f"{where}: '{place.kind}' does not fit a dataset of kind {source.kind}. Allowed: {allowed}."
        return
    unit = checks.find_unit(place.dataset)
    if unit and (place.kind == "word") != (unit == "word"):
        fitting = "word" if unit == "word" else "character_run"
        yield f"{where}: '{place.kind}' does not fit tokens of unit {unit}; use {fitting}"


def check_value(place: Place) -> Iterator[str]:
    where, chosen, of = ".value", place.experiment.value, f"datasets.{place.dataset_name}"
    if place.function and chosen == "logit":
        yield f"{where}: {place.function} gives probabilities and no logit; use log_probability or probability"
    if place.source is None or place.has_no_model:
        return
    regression, several = place.source.task == "regression", place.source.task == "multilabel"
    if regression and chosen != "prediction":
        yield f"{where}: {of} is of regression and has no {chosen}; set value: prediction"
    if several and chosen in ("centred_logit", "expected_log_probability"):
        yield f"{where}: {of} has several labels per record, over which nothing sums to 1; use log_probability"
    if not regression and chosen == "prediction":
        yield f"{where}: prediction is for regression and {of} has classes; remove the key"


def check_reference(place: Place) -> Iterator[str]:
    where, chosen, metric = ".reference", place.experiment.reference, place.experiment.metrics.log_odds
    if isinstance(chosen, Placeholder):
        yield f"{where}: a placeholder is of prompts; set another one"
        return
    if isinstance(chosen, Array) and (problem := describe_absence(chosen.path)):
        yield f"{where}.path: {problem}"
    if place.source is None or place.has_no_model:
        return
    reference, _ = references.parse(derived.canonical(chosen))
    kind, fitting = place.source.kind, references.FITTING[place.source.kind]
    dataset = place.dataset
    takes_texts = dataset is not None and dataset.tokenizer == TEXT
    fitting = ("delete",) if takes_texts else fitting
    if reference not in fitting:
        yield f"{where}: '{reference}' does not fit a dataset of kind {kind}. Allowed: {', '.join(fitting)}."
    for other in (metric and metric.references) or ():
        if other not in fitting:
            yield f".metrics.log_odds.references: '{other}' does not fit kind {kind}; remove it"
    if reference == "delete" and kind == "image":
        yield from _check_patches(place)
    elif takes_texts:
        return
    elif reference in references.FOLDER_KINDS and dataset and not folders.names_folder(dataset.tokenizer):
        yield f"{where}: '{reference}' is of texts that the tokenizer of a folder cuts; use pad"
    elif reference == "mask" and dataset and not folders.has_mask(dataset.tokenizer):
        yield f"{where}: the tokenizer in {dataset.tokenizer} has no mask token; use delete or pad"


def _check_patches(place: Place) -> Iterator[str]:
    where, model = ".reference", place.model
    of_folder = model and model.kind == "folder"
    if not model or model.architecture or derived.find_framework(model) != "torch":
        yield f"{where}: delete leaves out patches of a transformer, which this model is not; use zero or mean_value"
        return
    plain = "under reference: delete a model runs plain"
    yield from refuse("", place.experiment, ("precision", "compile"), plain)
    try:
        side = folders.find_patch_side(model.source) if of_folder else None
    except ShapelineError:  # reported by the checks of models
        return
    if of_folder and side is None:
        yield (
            f"{where}: delete is for models of type {', '.join(folders.LEAVING_OUT)}, whose patches can be left out, "
            f"and {model.source} holds another; use zero or mean_value"
        )
    own = [derived.find_features(place.experiment, settings) for settings in place.experiment.methods.values()]
    sizes = [derived.canonical(features).get("size") for features in (place.experiment.features, *own)]
    sides = [number for size in sizes for number in (size if isinstance(size, list) else [size or 1])]
    if side and any(number % side for number in sides):
        yield (
            f".features: under reference: delete they are made of whole patches of the model, of {side} x "
            f"{side} pixels; set features: {{kind: patch, size: {side}}}"
        )


def check_keys(place: Place) -> Iterator[str]:
    if not place.model or derived.find_framework(place.model) != "torch":
        yield from refuse("", place.experiment, ["precision", "compile"], "it is for models of torch")
    if place.experiment.timing == "per_instance" and place.experiment.cache:
        yield ".timing: values kept in the cache are not timed one instance after another; remove cache"
    if place.source and place.source.kind != "image" and place.experiment.report.notebook == "localization":
        yield (f".report.notebook: localization shows images, not a dataset of kind {place.source.kind}; use report")


def check_features_cut(place: Place) -> Iterator[str]:
    if place.source and place.shape is None:
        yield from catch(".features", derived.find_feature_shape, place.config, place.experiment)


def check_several_features(place: Place) -> Iterator[str]:
    if place.shape and math.prod(place.shape) == 1:
        yield (
            ".features: there is a single feature (d = 1), and an attribution compares features; make "
            "the features smaller"
        )


def check_methods(place: Place) -> Iterator[str]:
    for name, settings in place.experiment.methods.items():
        if problem := method_checks.check_user_file(place, settings):
            yield f".methods.{name}.{problem}"
            continue
        shape = method_checks.find_shape(place, settings)
        if isinstance(shape, str):
            yield f".methods.{name}.features: {shape}"
            continue
        entry = MethodPlace(place, name, settings, shape)
        rules = (entry_checks.check_game_method, *method_checks.RULES) if place.experiment.game else method_checks.RULES
        mistakes = [f".methods.{name}{line}" for rule in (*rules, check_stopping) for line in rule(entry)]
        yield from mistakes
        if entry.method.sampled and not mistakes and not (settings.match_budget_of and shape is None):
            yield from check_budget(entry)


RULES: tuple[Rule, ...] = (
    check_shards,
    check_features_fit,
    check_value,
    check_reference,
    check_metrics,
    check_training_seeds,
    check_texts,
    check_near,
    check_choice,
    check_target,
    check_keys,
    check_features_cut,
    check_several_features,
    check_methods,
    check_exact_entry,
    entry_checks.check_keys_of_others,
)
PROMPT_RULES: tuple[Rule, ...] = (*entry_checks.PROMPT_RULES, check_stopping_rules)
GAME_RULES: tuple[Rule, ...] = (entry_checks.check_game, check_shards, check_methods, check_exact_entry)
FINAL_RULES: tuple[Rule, ...] = (check_features_fit, check_several_features)
