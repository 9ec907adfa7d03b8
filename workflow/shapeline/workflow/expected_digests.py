"""What the files that a job reads must say of themselves: digests of the settings that they are asked to be made by."""

from shapeline.config.types import Config
from shapeline.seeds import digest
from shapeline.workflow import runs
from shapeline.workflow.jobs import attribute_job, measure_jobs


def format_digests(config: Config, experiment: str, labels: list[str]) -> str:
    """Return `label:digest`, with commas between, of the settings of each label's scores."""
    return ",".join(f"{label}:{digest(attribute_job(config, experiment, label))}" for label in dict.fromkeys(labels))


def format_measured_digests(config: Config, experiment: str) -> str:
    """Return the digests of the settings of both kinds of measurements, in the same form."""
    kinds = {"model": runs.model_metrics, "scores": runs.score_metrics}
    names = {kind: metrics(config, experiment) for kind, metrics in kinds.items()}
    return ",".join(f"{kind}:{digest(measure_jobs(config, experiment, each))}" for kind, each in names.items())
