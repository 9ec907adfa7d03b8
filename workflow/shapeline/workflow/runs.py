"""What is in a run: labels in their order, derived models, metrics, shards, datasets."""

from shapeline.config.derived import dataset_of, evaluation_shards_of, shards_of
from shapeline.config.types import Config
from shapeline.datasets.registry import is_published
from shapeline.methods.parameters import StoppingRule
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS

RANDOMISED = "@randomised"  # after a label: its scores of the randomised models


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


def count_trainings(config: Config, experiment: str, label: str | None = None) -> int:
    """Return how many training seeds of the model a label explains; scores made elsewhere are of the first alone."""
    if label and config.experiments[experiment].methods[label].method == "external":
        return 1
    return config.experiments[experiment].training_seeds


def name_training(model: str, training_seed: int) -> str:
    """Return the name of a model as trained by a seed, which is the name of its folder."""
    return f"{model}@seed{training_seed}" if training_seed else model


def split_training(name: str) -> tuple[str, int]:
    """Return the model and the training seed of a name that `name_training` makes."""
    model, _, number = name.partition("@seed")
    return model, int(number or 0)


def all_labels(config: Config, experiment: str) -> list[str]:
    """Every label, each followed by its scores of the randomised models where there are some."""
    ends = ["", RANDOMISED] if variants(config, experiment) else [""]
    return [f"{label}{end}" for label in labels(config, experiment) for end in ends]


def split_label(label: str) -> tuple[str, bool]:
    """Return the label itself, and whether its scores of the randomised models are meant."""
    return label.removesuffix(RANDOMISED), label.endswith(RANDOMISED)


def explained_models(config: Config, experiment: str, label: str) -> list[str]:
    """Return the names of the models that one job explains by a label."""
    model, (own, randomised) = config.experiments[experiment].model, split_label(label)
    if randomised:
        return [f"{model}@{variant}" for variant in variants(config, experiment)]
    return [name_training(model, number) for number in range(count_trainings(config, experiment, own))]


def metric_names(config: Config, experiment: str) -> list[str]:
    return [name for name in METRICS if getattr(config.experiments[experiment].metrics, name) is not None]


def model_metrics(config: Config, experiment: str) -> list[str]:
    """Return the metrics that evaluate the model; one job measures a method by all of them."""
    return [name for name in metric_names(config, experiment) if METRICS[name].asks_model]


def score_metrics(config: Config, experiment: str) -> list[str]:
    """Return the metrics that evaluate no model; one job measures all methods by all of them."""
    return [name for name in metric_names(config, experiment) if not METRICS[name].asks_model]


def shards(config: Config, experiment: str) -> int:
    """Score files a label: from counts only, so that paths are the same on every machine."""
    return shards_of(config, config.experiments[experiment])


def evaluation_rounds(config: Config, experiment: str, label: str) -> int:
    """Return the rounds of jobs that share the evaluations of a game by a label, 0 where one job makes all of them."""
    entry, method = config.experiments[experiment], config.experiments[experiment].methods[label]
    if evaluation_shards_of(config, entry) == 1 or METHODS[method.method].control:
        return 0
    return entry.game_rounds if isinstance(getattr(method, "budget", None), StoppingRule) else 1


def pages(config: Config) -> list[str]:
    """The pages of a run that are of no experiment, beside the index: none where all data and games are the user's."""
    names = {dataset_of(config, config.experiments[experiment]) for experiment in config.run}
    if not any(is_published(config.datasets[name].source) for name in names - {None}):
        return []
    return ["theory", "accuracy"] if config.estimator_benchmark else ["theory"]
