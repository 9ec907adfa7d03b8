"""What the files that a job reads must say of themselves: digests of the settings that they are asked to be made by."""

from shapeline.config.types import Config
from shapeline.metrics.registry import METRICS
from shapeline.plan import runs
from shapeline.plan.jobs import attribute_job, measure_job
from shapeline.plan.kept import kept
from shapeline.plan.settings import measure_settings
from shapeline.seeds import digest


def scores_behind(config: Config, experiment: str, label: str, metrics: list[str]) -> dict[str, list[str]]:
    """The labels whose scores a job of measure reads, by what they are to it: `scores`, and where a metric asks for
    them the `truth` and those of `randomised` models."""
    own, variant = runs.split_label(label)
    others = [] if variant else runs.trainings_measured(config, experiment, own, metrics)
    behind = {"scores": [label, *(f"{own}@{training}" for training in others)]}
    for metric in metrics:
        if "reference" in (parameters := measure_settings(config, experiment, metric).get("parameters", {})):
            ends = [measured.removeprefix(own) for measured in behind["scores"]]
            behind["truth"] = [f"{parameters['reference']}{end}" for end in ends]
        if METRICS[metric].asks_randomised:
            behind["randomised"] = [f"{own}@{name}" for name in runs.variants(config, experiment)]
    return behind


def asked_of_scores(config: Config, experiment: str, label: str, metrics: list[str]) -> str:
    """`label:digest`, with commas between, of the labels whose scores a job of measure reads."""
    behind = scores_behind(config, experiment, label, metrics)
    return _told(config, experiment, [label for labels in behind.values() for label in labels])


def asked_of_shown(config: Config, experiment: str) -> str:
    """The same of the labels whose scores a page shows."""
    return _told(config, experiment, runs.labels(config, experiment))


def _told(config: Config, experiment: str, labels: list[str]) -> str:
    return ",".join(f"{name}:{_digest(config, experiment, name)}" for name in dict.fromkeys(labels))


def asked_of_measured(config: Config, experiment: str) -> str:
    """`metric:digest`, with commas between, of all measurements; labels share theirs."""
    names = runs.metric_names(config, experiment)
    return ",".join(f"{name}:{digest(measure_job(config, experiment, name))}" for name in names)


@kept
def _digest(config: Config, experiment: str, label: str) -> str:
    return digest(attribute_job(config, experiment, label))
