"""Rules of a dataset's entry, and of one that a model explains without having been trained on it."""

import re
from collections.abc import Iterator

from shapeline.config.derived import canonical, find_source
from shapeline.config.mistakes import Place, catch, describe_absence, refuse
from shapeline.config.types import Config, Dataset, Experiment
from shapeline.datasets import checks, folders, records, registry, sources
from shapeline.datasets.registry import SOURCES
from shapeline.datasets.sources import USER_FILE, list_arguments
from shapeline.datasets.text import PAIR
from shapeline.errors import ShapelineError, nearest
from shapeline.models.registry import ARCHITECTURES


def check_source(where: str, dataset: Dataset) -> Iterator[str]:
    """Yield the source is known or the user's own, and takes the keys of the entry."""
    if dataset.source not in SOURCES and not re.match(USER_FILE, dataset.source):
        hint = f".{nearest(dataset.source, SOURCES)}"
        if dataset.source.endswith(("csv", "parquet")):
            hint = "; name a custom file by path, with source: table_file, or text_file for documents."
        yield f"{where}.source: unknown source '{dataset.source}'{hint}"
    elif problem := dataset.source not in SOURCES and describe_absence(dataset.source.rpartition(":")[0]):
        yield f"{where}.source: {problem}"
    else:
        yield from catch(where, checks.check, dataset.source, canonical(dataset))


def check_path(where: str, dataset: Dataset) -> Iterator[str]:
    """Yield the local copy is there, with the files of its source."""
    if not dataset.path:
        return
    try:
        path, source = sources.expand(dataset.path), SOURCES.get(dataset.source)
        if not path.exists():
            yield f"{where}.path: there is nothing at {path}; paths start at the folder of the configuration or run"
        elif source and source.files:
            records.local_files(source, path)
    except ShapelineError as error:
        yield f"{where}: {error}"


def check_tokenizer(where: str, dataset: Dataset) -> Iterator[str]:
    """Yield the folder of a tokenizer can be read; the function that makes one is there, and needs nothing."""
    if not dataset.tokenizer:
        return
    try:
        if folders.names_folder(dataset.tokenizer):
            folders.check_tokenizer(dataset.tokenizer)
            return
        needed = [argument for argument, must in list_arguments(dataset.tokenizer).items() if must]
        if needed:
            yield (
                f"{where}.tokenizer: {dataset.tokenizer} is called with nothing and needs {', '.join(needed)}; give it "
                "defaults"
            )
    except ShapelineError as error:
        yield f"{where}.tokenizer: {error}"


RULES = (check_source, check_path, check_tokenizer)


def check_other_data(config: Config, name: str, experiment: Experiment) -> Iterator[str]:
    """Yield a model can explain the dataset named beside it, as far as the configuration tells."""
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
        trained, explained = (describe_entry(find_source(dataset), canonical(dataset)) for dataset in (own, other))
    except ShapelineError:  # reported by the check of the dataset
        return
    any_size = model.source is not None or getattr(ARCHITECTURES.get(model.architecture), "any_size", False)
    differs = registry.difference(trained, explained, any_size)
    same = "tokenizer" in trained and "tokenizer" in explained  # `difference` compared them
    if differs is None and trained.get("unit") == explained.get("unit") == "word" and not same:
        differs = "each dataset of words has a vocabulary of its own"
    if differs:
        yield (
            f"{where}: models.{experiment.model} is trained on {model.dataset} and cannot explain "
            f"{experiment.dataset}: {differs}; set another dataset or model"
        )


def describe_entry(source: registry.Source | None, settings: dict) -> dict:
    """Return what an entry tells of its data, as `difference` compares it: nothing of a user's function."""
    if source is None:
        return {}
    facts = {"kind": source.kind, "task": source.task}
    shape = checks.input_shape(source, settings)
    if source.classes:
        chosen = checks.choose_classes(source.name, source.classes, settings.get("classes"))
        facts["classes"] = [source.classes[index] for index in chosen]
    if source.kind == "image" and shape:
        facts["channels"], facts["size"] = shape[0], list(shape[1:])
    if source.kind == "table" and source.feature_names:
        facts["columns"] = list(source.feature_names)
    if source.kind == "text":
        tokens = checks.text_settings(source, settings)
        facts["unit"], facts["tokens a document"] = tokens.unit, tokens.length
        if settings.get("tokenizer"):
            facts |= {"unit": "word", "tokenizer": settings["tokenizer"]}
        facts["documents"] = registry.PAIRS if settings.get("text_pair") else "single texts"
    return facts


def check_texts(place: Place) -> Iterator[str]:
    """Check that custom texts have a model of text and no keys that select instances."""
    where, chosen, source = f"{place.where}.instances", place.experiment.instances, place.source
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
    """Yield records are sought in a table, by columns that it has."""
    where, chosen, source = f"{place.where}.instances", place.experiment.instances, place.source
    if not chosen.near:
        return
    keys = ("count", "texts", "label", "correct", "objects", "fewer_ok")
    yield from refuse(where, chosen, keys, "the records that near selects are all explained")
    if source and source.kind != "table":
        yield f"{where}.near: records are selected by columns; source '{source.name}' is not a table; remove the key"
    elif source and source.feature_names:
        for column in dict.fromkeys(name for values in chosen.near for name in values):
            if column not in source.feature_names:
                yield f"{where}.near: there is no column '{column}'.{nearest(column, source.feature_names)}"


def check_choice(place: Place) -> Iterator[str]:
    """Yield the predictions, the class and the number of objects by which instances are chosen are known."""
    where, chosen, source = f"{place.where}.instances", place.experiment.instances, place.source
    if chosen.correct and place.has_no_model:
        yield f"{where}.correct: without a model nothing is predicted; remove the key"
    if not source:
        return
    if source.task == "regression":
        for key in ("label", "correct"):
            if getattr(chosen, key):
                yield f"{where}.{key}: source '{source.name}' is of regression and has no classes; remove the key"
        return
    if chosen.objects and chosen.label is None and source.task == "multilabel":
        yield f"{where}.objects: a record has objects of several labels; name one by the key label, or remove this key"
    if chosen.objects and not source.truth:
        yield f"{where}.objects: the objects in records of source '{source.name}' are not known; remove the key"
    if chosen.label is not None:
        yield from _check_class(place, f"{where}.label", chosen.label)


def check_target(place: Place) -> Iterator[str]:
    """Yield the class that is explained is one, and there are classes."""
    where, asked, source = f"{place.where}.target", place.experiment.target, place.source
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
    """Check that the dataset has a class, where its classes are known before it is read."""
    source = place.source
    try:
        kept = checks.choose_classes(source.name, source.classes, place.dataset.classes)
    except ShapelineError:  # told where the dataset is
        return
    yield from catch(
        where, checks.class_index, "classes of the dataset", item, [source.classes[index] for index in kept]
    )
