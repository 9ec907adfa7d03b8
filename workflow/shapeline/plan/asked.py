"""What the files that a job reads must say of themselves: digests of the settings that they are asked to be made by."""

from shapeline.config.types import Config
from shapeline.metrics.registry import METRICS
from shapeline.plan import runs
from shapeline.plan.jobs import attribute_job, measure_job
from shapeline.plan.kept import kept
from shapeline.plan.settings import measure_settings
from shapeline.seeds import digest


def asked_of_scores(config: Config, experiment: str, metric: str, label: str) -> str:
    """`label:digest`, with commas between, of the labels whose scores a measurement reads."""
    own, variant = runs.split_label(label)
    labels = [label]
    if "reference" in (parameters := measure_settings(config, experiment, metric).get("parameters", {})):
        labels.append(parameters["reference"] + (f"@{variant}" if variant else ""))
    labels += [f"{own}@{name}" for name in runs.variants(config, experiment)] if METRICS[metric].asks_randomised else []
    return _told(config, experiment, labels)


def asked_of_shown(config: Config, experiment: str) -> str:
    """The same of the labels whose scores a page shows."""
    return _told(config, experiment, runs.labels(config, experiment))


def _told(config: Config, experiment: str, labels: list[str]) -> str:
    return ",".join(f"{name}:{_digest(config, experiment, name)}" for name in dict.fromkeys(labels))


def asked_of_measured(config: Config, experiment: str, metric: str) -> str:
    """The digest of all measurements of a metric, which labels share."""
    return digest(measure_job(config, experiment, metric))


@kept
def _digest(config: Config, experiment: str, label: str) -> str:
    return digest(attribute_job(config, experiment, label))
