"""What is in a run: labels in their order, derived models, metrics, shards, datasets."""

from shapeline.config.derived import shards_of
from shapeline.config.types import Config
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS


def labels(config: Config, experiment: str) -> list[str]:
    """Labels in an order that does not depend on the order of keys in the file: exact first, controls last."""
    entries = config.experiments[experiment].methods
    registry = list(METHODS)

    def rank(label: str) -> tuple:
        method = METHODS[entries[label].method]
        place = len(registry) if method.takes is not None else registry.index(entries[label].method)
        return method.control, not method.exact, place, label

    return sorted(entries, key=rank)


def variants(config: Config, experiment: str) -> list[str]:
    """The randomised models of an experiment, by what stands after the @ of their names: full, or top and a number."""
    asked = config.experiments[experiment].metrics.randomisation
    return [layers if layers == "full" else f"top{layers}" for layers in asked.layers] if asked else []


def trainings(config: Config, experiment: str, label: str | None = None) -> list[str]:
    """The model's trainings beside the first, by what stands after the @ of their names: seed1, seed2, ...

    label: those that it explains; scores made elsewhere are of the first training alone.
    """
    if label and config.experiments[experiment].methods[label].method == "external":
        return []
    return [f"seed{number}" for number in range(1, config.experiments[experiment].seeds)]


def all_labels(config: Config, experiment: str) -> list[str]:
    """Every label, followed by those of the derived models: label@variant."""
    randomised = variants(config, experiment)
    return [
        name
        for own in labels(config, experiment)
        for name in (own, *(f"{own}@{model}" for model in [*randomised, *trainings(config, experiment, own)]))
    ]


def split_label(label: str) -> tuple[str, str | None]:
    """The label itself and, in label@variant, the derived model that it explains: a randomised one, or a training."""
    own, _, variant = label.partition("@")
    return own, variant or None


def metric_names(config: Config, experiment: str) -> list[str]:
    return [name for name in METRICS if getattr(config.experiments[experiment].metrics, name) is not None]


def is_measured(config: Config, experiment: str, metric: str, label: str) -> bool:
    """An error to a label is not measured on that label itself."""
    return getattr(getattr(config.experiments[experiment].metrics, metric), "reference", None) != label


def free_metrics(config: Config, experiment: str, label: str) -> list[str]:
    """The metrics of a label that ask no model: one job measures them all."""
    names = [name for name in metric_names(config, experiment) if not METRICS[name].asks_model]
    return [name for name in names if is_measured(config, experiment, name, label)]


def trainings_measured(config: Config, experiment: str, label: str, metrics: list[str]) -> list[str]:
    """The model's other trainings whose scores one job measures with a label's own, without the model."""
    together = any(METRICS[name].paired and not METRICS[name].asks_model for name in metrics)
    return trainings(config, experiment, label) if together else []


def shards(config: Config, experiment: str) -> int:
    """Score files a label: from counts only, so that paths are the same on every machine."""
    return shards_of(config, config.experiments[experiment])


def pages(config: Config) -> list[str]:
    """The pages of a run that are of no experiment, beside the index."""
    return ["theory", "accuracy"] if config.accuracy else ["theory"]
