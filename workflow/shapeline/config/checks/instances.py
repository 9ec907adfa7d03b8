"""Rules of the instances that an experiment explains."""

from collections.abc import Iterator

from shapeline.config.checks.place import Place
from shapeline.datasets import checks
from shapeline.datasets.tokenizer import PAIR
from shapeline.errors import ShapelineError, nearest


def own_texts(place: Place) -> Iterator[str]:
    """Texts of one's own are explained by a model of text, and all of them."""
    where, chosen, source = f"{place.where}.instances", place.experiment.instances, place.source
    if not chosen.texts:
        return
    if "count" in chosen.model_fields_set:
        yield f"{where}.count: custom texts are all explained; remove the count"
    if source and source.kind != "text":
        yield f"{where}.texts: only a dataset of kind text takes them, not one of kind {source.kind}"
    of_pairs = bool(place.dataset and place.dataset.text_pair)
    for number, text in enumerate(chosen.texts):
        if isinstance(text, list) != of_pairs:
            wanted = "pairs; write [first, second]" if of_pairs else "single texts; write one text each"
            yield f"{where}.texts.{number}: the documents of datasets.{place.dataset_name} are {wanted}"
        elif any(PAIR in sentence or (of_pairs and not sentence.strip()) for sentence in text):
            yield f"{where}.texts.{number}: a sentence of it is empty or holds the sign U+001E; mend it"
    for key in ("label", "correct", "objects", "fewer_ok"):
        if key in chosen.model_fields_set:
            yield f"{where}.{key}: custom texts are all explained and have no class; remove the key"


def near_records(place: Place) -> Iterator[str]:
    """Records are sought in a table, by columns that it has."""
    where, chosen, source = f"{place.where}.instances", place.experiment.instances, place.source
    if not chosen.near:
        return
    for key in ("count", "texts", "label", "correct", "objects", "fewer_ok"):
        if key in chosen.model_fields_set:
            yield f"{where}.{key}: the records that near selects are all explained; remove the key"
    if source and source.kind != "table":
        yield f"{where}.near: records are selected by columns, and source '{source.name}' is no table; remove the key"
    elif source and source.feature_names:
        for column in dict.fromkeys(name for values in chosen.near for name in values):
            if column not in source.feature_names:
                yield f"{where}.near: there is no column '{column}'.{nearest(column, source.feature_names)}"


def predictions(place: Place) -> Iterator[str]:
    """There is a model where instances are chosen by what it predicts."""
    if place.experiment.instances.correct and place.has_no_model:
        yield f"{place.where}.instances.correct: without a model nothing is predicted; remove the key"


def classes(place: Place) -> Iterator[str]:
    """The class and the number of objects by which instances are chosen are known."""
    where, chosen, source = f"{place.where}.instances", place.experiment.instances, place.source
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
    if chosen.label is not None:
        yield from _check_class(place, f"{where}.label", chosen.label)


def target(place: Place) -> Iterator[str]:
    """The class that is explained is one, and there are classes."""
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
    """A class is one of those of the dataset, where these are known before it is read."""
    source = place.source
    try:
        kept = checks.chosen_classes(source.name, source.classes, place.dataset.classes)
    except ShapelineError:  # told where the dataset is
        return
    try:
        checks.class_index("classes of the dataset", item, [source.classes[index] for index in kept])
    except ShapelineError as error:
        yield f"{where}: {error}"
