"""Rules of an experiment's metrics: each asks the model, the data and the labels for something that they may lack."""

from collections.abc import Iterator

from shapeline.config.checks.place import Place
from shapeline.config.derived import canonical
from shapeline.datasets.registry import SOURCES
from shapeline.errors import ShapelineError, nearest
from shapeline.games import features, references
from shapeline.games.features import TEXT_KINDS
from shapeline.methods.custom import own_arguments
from shapeline.metrics.registry import OWN_TAKES, PAIRED
from shapeline.models import pretrained_kinds


def check_model(place: Place) -> Iterator[str]:
    """There is a model where a metric asks what it says."""
    for name, metric in place.metrics():
        if metric.needs_model and place.has_no_model:
            yield f"{place.where}.metrics.{name}: it needs a model, and there is none; remove the metric"


def check_randomisation(place: Place) -> Iterator[str]:
    """The model's layers can be drawn anew."""
    model = place.model
    if model and pretrained_kinds.kind_of(model.source, model.framework) not in (None, "folder"):
        for name, metric in place.metrics():
            if metric.asks_randomised:
                yield (
                    f"{place.where}.metrics.{name}: the model in {model.source} cannot be randomised; remove the metric"
                )


def check_logits(place: Place) -> Iterator[str]:
    """The model gives a logit where the value or a metric is one."""
    if not place.function:
        return
    if place.experiment.value == "logit":
        yield (
            f"{place.where}.value: {place.function} gives probabilities and no logit; use log_probability or "
            "probability"
        )
    for name, metric in place.metrics():
        if metric.asks_logit:
            yield (f"{place.where}.metrics.{name}: it needs a logit, which {place.function} has not; remove the metric")


def check_custom_metric(place: Place) -> Iterator[str]:
    """The function of a metric of one's own is there, and asks for what it can be given."""
    own = place.experiment.metrics.own
    for name, reference in (own.functions if own else {}).items():
        where = f"{place.where}.metrics.own.functions.{name}"
        try:
            takes = own_arguments(reference)
        except ShapelineError as error:
            yield f"{where}: {error}"
            continue
        for argument, needed in takes.items():
            if needed and argument not in OWN_TAKES:
                yield f"{where}: {reference} asks for '{argument}'.{nearest(argument, OWN_TAKES)}"


def check_classes(place: Place) -> Iterator[str]:
    """The model has classes where a metric asks for what only they have."""
    regression = place.source.task == "regression" if place.source else place.experiment.value == "prediction"
    for name, metric in place.metrics():
        if metric.lacks and regression and not place.has_no_model:
            yield f"{place.where}.metrics.{name}: a regression model gives no {metric.lacks}; remove the metric"


def check_moved_inputs(place: Place) -> Iterator[str]:
    """Inputs can move a little."""
    if place.kind not in TEXT_KINDS and not features.varies(canonical(place.experiment.features)):
        return
    for name, metric in place.metrics():
        if metric.moves_inputs:
            yield (
                f"{place.where}.metrics.{name}: inputs of kind '{place.kind}' cannot move a little; remove the metric"
            )


def check_regions(place: Place) -> Iterator[str]:
    """Where in an image its class is, is known; and the page of that shows images."""
    source, where = place.source, place.where
    if source is None:
        return
    if source.kind != "image" and place.experiment.report.notebook == "localization":
        yield f"{where}.report.notebook: localization shows images, not a dataset of kind {source.kind}; use report"
    for name, metric in place.metrics():
        if metric.asks_truth and source.kind != "image":
            yield f"{where}.metrics.{name}: it is of images, not of kind {source.kind}; remove the metric"
        elif metric.asks_truth and not source.truth:
            known = ", ".join(known for known, entry in SOURCES.items() if entry.truth)
            yield (
                f"{where}.metrics.{name}: where in its images a class is, source '{source.name}' does not say; "
                f"remove the metric, or use one of {known}"
            )


def check_other_references(place: Place) -> Iterator[str]:
    """The references beside the experiment's own fit the data."""
    judged = place.experiment.metrics.log_odds
    if judged and place.source:
        for other in judged.references or ():
            if other not in references.FITTING[place.source.kind]:
                yield (
                    f"{place.where}.metrics.log_odds.references: '{other}' does not fit kind {place.source.kind}; "
                    "remove it"
                )


def check_ground_truth_words(place: Place) -> Iterator[str]:
    """The words that decide a document's class are known."""
    for name, metric in place.metrics():
        where = f"{place.where}.metrics.{name}"
        if not metric.asks_documents:
            continue
        if place.experiment.instances.texts:
            yield f"{where}: the ground-truth words of custom texts are not known; remove the metric"
        elif place.dataset and place.dataset.tokenizer:
            yield f"{where}: which words of the tokenizer's decide is not known; remove the metric"
        elif place.source and not place.source.ground_truth_words:
            yield f"{where}: the ground-truth words of source '{place.source.name}' are not known; remove the metric"


def check_exact_entry(place: Place) -> Iterator[str]:
    """The label that others are compared with is there, and is not alone."""
    asked, methods = place.experiment.metrics.error, place.experiment.methods
    if asked is None:
        return
    if list(methods) == [asked.reference]:
        yield (
            f"{place.where}.metrics.error: '{asked.reference}' is the only label, so there is nothing to compare with "
            "it"
        )
    if asked.reference not in methods:
        yield (
            f"{place.where}.metrics.error.reference: there is no method '{asked.reference}' among the methods."
            f"{nearest(asked.reference, methods)}"
        )


def check_training_seeds(place: Place) -> Iterator[str]:
    """The model can be trained again by other seeds, and a metric compares its trainings."""
    where, experiment, model = place.where, place.experiment, place.model
    if experiment.training_seeds == 1:
        return
    if place.has_no_model:
        yield f"{where}.training_seeds: without a model nothing is trained; remove the key"
    elif model and (pretrained_kinds.kind_of(model.source, model.framework) or model.training.epochs == 0):
        yield f"{where}.training_seeds: models.{experiment.model} is ready and not trained here; remove the key"
    truth = getattr(experiment.metrics.error, "reference", None)
    if truth in experiment.methods and experiment.methods[truth].method == "external":
        yield (
            f"{where}.training_seeds: the scores of '{truth}' are of one model, and no truth of another; remove the key"
        )
    if not any(metric.paired for _, metric in place.metrics()):
        yield f"{where}.training_seeds: no metric compares trainings; add one of {', '.join(PAIRED)}"
