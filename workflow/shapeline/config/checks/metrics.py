"""Rules of an experiment's metrics: each asks the model, the data and the labels for something that they may lack."""

from collections.abc import Iterator

from shapeline.config.checks.place import Place
from shapeline.config.derived import canonical
from shapeline.datasets.registry import SOURCES
from shapeline.errors import ShapelineError, nearest
from shapeline.games import features, references
from shapeline.games.features import TEXT_KINDS
from shapeline.methods.dispatch import list_arguments
from shapeline.metrics.registry import OWN_TAKES, PAIRED, Metric
from shapeline.models import registry

OWN_LAYERS = (None, "folder")  # kinds of ready models whose layers can be drawn anew


def check_metrics(place: Place) -> Iterator[str]:
    """Each metric is given what it needs of the model and the data."""
    for name, metric in place.metrics():
        for problem in (*_find_model_problems(place, metric), *_find_data_problems(place, metric)):
            yield f"{place.where}.metrics.{name}: {problem}"


def _find_model_problems(place: Place, metric: Metric) -> Iterator[str]:
    """The model is there, and gives what the metric reads."""
    model = place.model
    if metric.needs_model and place.has_no_model:
        yield "it needs a model, and there is none; remove the metric"
    if metric.asks_randomised and model and registry.find_kind(model.source, model.framework) not in OWN_LAYERS:
        yield f"the model in {model.source} cannot be randomised; remove the metric"
    if metric.asks_logit and place.function:
        yield f"it needs a logit, which {place.function} has not; remove the metric"
    regression = place.source.task == "regression" if place.source else place.experiment.value == "prediction"
    if metric.lacks and regression and not place.has_no_model:
        yield f"a regression model gives no {metric.lacks}; remove the metric"


def _find_data_problems(place: Place, metric: Metric) -> Iterator[str]:
    """The inputs and what is known of them are such as the metric needs."""
    source = place.source
    if metric.moves_inputs and (place.kind in TEXT_KINDS or features.varies(canonical(place.experiment.features))):
        yield f"inputs of kind '{place.kind}' cannot move a little; remove the metric"
    if metric.asks_truth and source and source.kind != "image":
        yield f"it is of images, not of kind {source.kind}; remove the metric"
    elif metric.asks_truth and source and not source.truth:
        known = ", ".join(known for known, entry in SOURCES.items() if entry.truth)
        yield (
            f"where in its images a class is, source '{source.name}' does not say; remove the metric, or use one of "
            f"{known}"
        )
    if metric.asks_documents and place.experiment.instances.texts:
        yield "the ground-truth words of custom texts are not known; remove the metric"
    elif metric.asks_documents and place.dataset and place.dataset.tokenizer:
        yield "which words of the tokenizer's decide is not known; remove the metric"
    elif metric.asks_documents and source and not source.ground_truth_words:
        yield f"the ground-truth words of source '{source.name}' are not known; remove the metric"


def check_logit(place: Place) -> Iterator[str]:
    """The model gives a logit where the value is one."""
    if place.function and place.experiment.value == "logit":
        yield (
            f"{place.where}.value: {place.function} gives probabilities and no logit; use log_probability or "
            "probability"
        )


def check_notebook(place: Place) -> Iterator[str]:
    """The page that shows images has some."""
    if place.source and place.source.kind != "image" and place.experiment.report.notebook == "localization":
        yield (
            f"{place.where}.report.notebook: localization shows images, not a dataset of kind {place.source.kind}; use "
            "report"
        )


def check_custom_metric(place: Place) -> Iterator[str]:
    """The function of a custom metric is there, and asks for what it can be given."""
    own = place.experiment.metrics.own
    for name, reference in (own.functions if own else {}).items():
        where = f"{place.where}.metrics.own.functions.{name}"
        try:
            takes = list_arguments(reference)
        except ShapelineError as error:
            yield f"{where}: {error}"
            continue
        for argument, needed in takes.items():
            if needed and argument not in OWN_TAKES:
                yield f"{where}: {reference} asks for '{argument}'.{nearest(argument, OWN_TAKES)}"


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


def check_exact_entry(place: Place) -> Iterator[str]:
    """The entry that others are compared with is there, and is not alone."""
    asked, methods = place.experiment.metrics.error, place.experiment.methods
    if asked is None:
        return
    if list(methods) == [asked.reference]:
        yield (
            f"{place.where}.metrics.error: '{asked.reference}' is the only method, so nothing is compared with it; "
            "add one"
        )
    if asked.reference not in methods:
        yield (
            f"{place.where}.metrics.error.reference: there is no method '{asked.reference}' among the methods."
            f"{nearest(asked.reference, methods)}"
        )


def check_training_seeds(place: Place) -> Iterator[str]:
    """The model can be trained again by other seeds, and a metric compares its training seeds."""
    where, experiment, model = place.where, place.experiment, place.model
    if experiment.training_seeds == 1:
        return
    if place.has_no_model:
        yield f"{where}.training_seeds: without a model nothing is trained; remove the key"
    elif model and (registry.find_kind(model.source, model.framework) or model.training.epochs == 0):
        yield f"{where}.training_seeds: models.{experiment.model} is ready and not trained here; remove the key"
    truth = getattr(experiment.metrics.error, "reference", None)
    if truth in experiment.methods and experiment.methods[truth].method == "external":
        yield (
            f"{where}.training_seeds: the scores of '{truth}' are of one model, and no truth of another; remove the key"
        )
    if not any(metric.paired for _, metric in place.metrics()):
        yield f"{where}.training_seeds: no metric compares training seeds; add one of {', '.join(PAIRED)}"
