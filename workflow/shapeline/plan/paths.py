"""Where every file of a run is."""

from shapeline.config.derived import dataset_of as dataset_name
from shapeline.config.types import Config
from shapeline.datasets import records
from shapeline.datasets.registry import SOURCES, WEIGHTS
from shapeline.datasets.sources import expand
from shapeline.metrics.registry import PAIRED
from shapeline.plan.inputs import as_inputs
from shapeline.plan.runs import (
    free_metrics,
    is_measured,
    labels,
    metric_names,
    shards,
    trainings,
    trainings_measured,
    variants,
)


def prepared(dataset: str) -> dict[str, str]:
    return {name: f"data/prepared/{dataset}/{file}" for name, file in (("arrays", "arrays.npz"), ("card", "card.json"))}


def raw_files(config: Config, dataset: str) -> list[str]:
    """The files that the dataset is read from: local ones where its `path` names them, else fetched ones."""
    entry = config.datasets[dataset]
    source = SOURCES.get(entry.source)
    if entry.path is None:
        return [f"data/raw/{entry.source}/{file.name}" for file in source.files] if source else []
    path = expand(entry.path)
    if source and source.local and path.is_dir():  # a picture more or less shows in the time of its own folder alone
        return as_inputs([str(path), *sorted(map(str, path.rglob("*/")))])
    in_folder = source and path.is_dir()
    return as_inputs(map(str, records.local_files(source, path).values()) if in_folder else [str(path)])


def score_files(config: Config, experiment: str, label: str) -> list[str]:
    n = shards(config, experiment)
    return [f"{config.results}/{experiment}/scores/{label}/{i}-of-{n}.parquet" for i in range(n)]


def metric_files(config: Config, experiment: str, metric: str) -> list[str]:
    """One file a label."""
    return [
        f"{config.results}/{experiment}/metrics/{metric}/{label}.parquet"
        for label in labels(config, experiment)
        if is_measured(config, experiment, metric, label)
    ]


def compared_files(config: Config, experiment: str) -> list[str]:
    return [f"{config.results}/{experiment}/metrics/{metric}.parquet" for metric in metric_names(config, experiment)]


def paired_files(config: Config, experiment: str) -> list[str]:
    """The per-instance measurements whose paired differences the report shows."""
    return [
        file
        for metric in metric_names(config, experiment)
        if metric in PAIRED
        for own in metric_files(config, experiment, metric)
        for file in (own, *of_trainings(config, experiment, own))
    ]


def of_trainings(config: Config, experiment: str, file: str) -> list[str]:
    """The measurements of the model's other trainings beside those of one label."""
    name = file.removesuffix(".parquet")
    return [f"{name}@{training}.parquet" for training in trainings(config, experiment, name.rpartition("/")[2])]


def measured_together(config: Config, experiment: str) -> list[tuple[list[str], list[str]]]:
    """Files that one job measures for a label without the model, with {experiment} and {label} in their paths, and the
    labels that have these."""
    found: dict[tuple[str, ...], list[str]] = {}
    for label in labels(config, experiment):
        files = [
            f"{config.results}/{{experiment}}/metrics/{metric}/{{label}}{training}.parquet"
            for metric in free_metrics(config, experiment, label)
            for training in ("", *(f"@{name}" for name in trainings_measured(config, experiment, label, [metric])))
        ]
        found.setdefault(tuple(files), []).append(label)
    return [([*files], same) for files, same in found.items() if files]


def randomised_cards(config: Config, experiment: str) -> list[str]:
    """The cards of an experiment's randomised models."""
    model = config.experiments[experiment].model
    return [model_files(config, f"{model}@{variant}")["card"] for variant in variants(config, experiment)]


def model_files(config: Config, model: str) -> dict[str, str]:
    folder = f"{config.results}/models/{model}"
    return {"weights": f"{folder}/weights.safetensors", "card": f"{folder}/card.json"}


def weights_file(config: Config, model: str) -> list[str]:
    """The file of weights that training starts from, fetched or the user's own; none where it starts from a draw."""
    named = config.models[model].weights
    if named in WEIGHTS:
        return [f"data/raw/weights/{WEIGHTS[named].name}"]
    return as_inputs([str(expand(named))]) if named else []


def start_file(config: Config, model: str) -> list[str]:
    """The same weights as safetensors, which training reads."""
    return [f"{config.results}/models/{model}/start.safetensors"] if config.models[model].weights else []


def dataset_of(config: Config, experiment: str) -> str:
    return dataset_name(config, config.experiments[experiment])


def datasets_of(config: Config, experiment: str) -> list[str]:
    """The experiment's dataset and, where it is another, the one that its model is trained on."""
    entry = config.experiments[experiment]
    trained_on = [config.models[entry.model].dataset] if entry.model else []
    return list(dict.fromkeys([dataset_of(config, experiment), *trained_on]))


def trained_on(config: Config, experiment: str) -> list[str]:
    """The card of the data that the experiment's model is trained on, where these are other data than the explained."""
    return [prepared(name)["card"] for name in datasets_of(config, experiment)[1:]]


def values_folder(config: Config, experiment: str) -> str:
    """Where an experiment's jobs share values of coalitions; "" where they do not."""
    entry = config.experiments[experiment]
    return f"{config.results}/{experiment}/values" if entry.cache and entry.model else ""
