"""What is in a run, entries, models, metrics, shards and datasets, and where its files are."""

import os
from collections.abc import Iterable
from pathlib import Path

from shapeline.config.derived import count_evaluation_shards, count_shards
from shapeline.config.derived import find_dataset as dataset_name
from shapeline.config.types import Config
from shapeline.datasets import records
from shapeline.datasets.registry import SOURCES, WEIGHTS, is_published
from shapeline.datasets.sources import expand, is_address
from shapeline.methods.parameters import StoppingRule
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.seeds import digest

RANDOMISED = "@randomised"  # after an entry: its scores of the randomised models


def list_entries(config: Config, experiment: str) -> list[str]:
    """Return entries in an order independent of the file: exact first, controls last."""
    methods = config.experiments[experiment].methods
    registry = list(METHODS)

    def rank(entry: str) -> tuple:
        method = METHODS[methods[entry].method]
        place = len(registry) if method.argument_names is not None else registry.index(methods[entry].method)
        return method.control, not method.exact, place, entry

    return sorted(methods, key=rank)


def list_variants(config: Config, experiment: str) -> list[str]:
    """Return the randomised models of an experiment by the suffix after @ of their names: full, or top and a number."""
    metric = config.experiments[experiment].metrics.randomisation
    return [layers if layers == "full" else f"top{layers}" for layers in metric.layers] if metric else []


def count_trainings(config: Config, experiment: str, entry: str | None = None) -> int:
    """Return how many training seeds of the model an entry explains; scores made elsewhere are of the first alone."""
    if entry and config.experiments[experiment].methods[entry].method == "external":
        return 1
    return config.experiments[experiment].training_seeds


def find_largest_count(config: Config, model: str) -> tuple[str, int]:
    """Return the experiment under `run` that needs most instances of the data of a model, and their number."""
    counts = [("", 0)]
    for name in config.run:
        entry = config.experiments[name]
        chosen = entry.instances
        if entry.model == model and not (entry.dataset or chosen.texts or chosen.near or chosen.fewer_ok):
            counts.append((name, chosen.count))
    return max(counts, key=lambda one: one[1])


def name_training(model: str, training_seed: int) -> str:
    """Return the name of a model as trained by a seed, which is the name of its folder."""
    return f"{model}@seed{training_seed}" if training_seed else model


def split_training(name: str) -> tuple[str, int]:
    """Return the model and the training seed of a name that `name_training` makes."""
    model, _, number = name.partition("@seed")
    return model, int(number or 0)


def list_all_entries(config: Config, experiment: str) -> list[str]:
    """Return every entry, each followed by its scores of randomised models if there are some."""
    ends = ["", RANDOMISED] if list_variants(config, experiment) else [""]
    return [f"{entry}{end}" for entry in list_entries(config, experiment) for end in ends]


def split_entry(entry: str) -> tuple[str, bool]:
    """Return the entry itself, and whether its scores of the randomised models are meant."""
    return entry.removesuffix(RANDOMISED), entry.endswith(RANDOMISED)


def list_metrics(config: Config, experiment: str) -> list[str]:
    return [name for name in METRICS if getattr(config.experiments[experiment].metrics, name) is not None]


def list_model_metrics(config: Config, experiment: str) -> list[str]:
    """Return the metrics that evaluate the model; one job measures a method by all of them."""
    return [name for name in list_metrics(config, experiment) if METRICS[name].evaluates_model]


def list_score_metrics(config: Config, experiment: str) -> list[str]:
    """Return the metrics that evaluate no model; one job measures all methods by all of them."""
    return [name for name in list_metrics(config, experiment) if not METRICS[name].evaluates_model]


def shards(config: Config, experiment: str) -> int:
    """Return the number of score files per entry, from counts only, so that paths are equal on every machine."""
    return count_shards(config, config.experiments[experiment])


def count_rounds(config: Config, experiment: str, entry: str) -> int:
    """Return the rounds of jobs that share the evaluations of a game by an entry, 0 where one job makes all of them."""
    definition, method = config.experiments[experiment], config.experiments[experiment].methods[entry]
    if count_evaluation_shards(config, definition) == 1 or METHODS[method.method].control:
        return 0
    return definition.game_rounds if isinstance(getattr(method, "budget", None), StoppingRule) else 1


def list_pages(config: Config) -> list[str]:
    """Return the pages of a run without an experiment, beside the index: none if all data and games are custom."""
    names = {dataset_name(config, config.experiments[experiment]) for experiment in config.run}
    if not any(is_published(config.datasets[name].source) for name in names - {None}):
        return []
    return ["theory", "accuracy"] if config.estimator_benchmark else ["theory"]


def list_prepared_files(dataset: str) -> dict[str, str]:
    return {name: f"data/prepared/{dataset}/{file}" for name, file in (("arrays", "arrays.npz"), ("card", "card.json"))}


def list_raw_files(config: Config, dataset: str) -> list[str]:
    """Return the files that the dataset is read from: local ones where its `path` names them, else fetched ones."""
    entry = config.datasets[dataset]
    source = SOURCES.get(entry.source)
    if entry.path is None:
        return [f"data/raw/{entry.source}/{file.name}" for file in source.files] if source else []
    path = expand(entry.path)
    if source and source.local and path.is_dir():  # an image more or less shows in the time of its own folder alone
        return as_inputs([str(path), *sorted(map(str, path.rglob("*/")))])
    in_folder = source and (path.is_dir() or (source.subsets and path.is_file()))
    return as_inputs(map(str, records.local_files(source, path).values()) if in_folder else [str(path)])


def list_score_files(config: Config, experiment: str, entry: str) -> list[str]:
    n = shards(config, experiment)
    return [f"{config.results}/{experiment}/scores/{entry}/{i}-of-{n}.parquet" for i in range(n)]


def list_value_files(config: Config, experiment: str, entry: str, rounds: int | None = None) -> list[str]:
    """Return the files of a game's values that other jobs evaluate for an entry; of the first rounds, or of all."""
    entry, randomised = split_entry(entry)
    definition = config.experiments[experiment]
    if not definition.game or randomised:
        return []
    n = count_evaluation_shards(config, definition)
    every = range(count_rounds(config, experiment, entry) if rounds is None else rounds)
    folder = f"{config.results}/{experiment}/values/{entry}"
    return [f"{folder}/{number}.{i}-of-{n}.parquet" for number in every for i in range(n)]


def name_measured_file(config: Config, experiment: str, entry: str) -> str:
    """Return the path of an entry's measurements by the metrics that evaluate the model."""
    return f"{config.results}/{experiment}/metrics/measured/{entry}.parquet"


def list_measured_files(config: Config, experiment: str) -> list[str]:
    """Return the paths of all measurements of an experiment."""
    by_model = list_entries(config, experiment) if list_model_metrics(config, experiment) else []
    files = [name_measured_file(config, experiment, entry) for entry in by_model]
    has_scores = bool(list_score_metrics(config, experiment))
    return files + [f"{config.results}/{experiment}/metrics/measured.parquet"] * has_scores


def list_compared_files(config: Config, experiment: str) -> list[str]:
    """Return the path of the means and intervals of all entries; none where nothing is measured."""
    return [f"{config.results}/{experiment}/metrics/compared.parquet"] * bool(list_metrics(config, experiment))


def name_model_files(config: Config, model: str) -> dict[str, str]:
    folder = f"{config.results}/models/{model}"
    return {"weights": f"{folder}/weights.safetensors", "card": f"{folder}/card.json"}


def list_explained_files(config: Config, experiment: str, entry: str) -> dict[str, list[str]]:
    """Return the weights and the cards of the models that one job explains by an entry, or measures it on."""
    model, (plain_entry, randomised) = config.experiments[experiment].model, split_entry(entry)
    if randomised:
        names = [f"{model}@{variant}" for variant in list_variants(config, experiment)]
    else:
        names = [name_training(model, number) for number in range(count_trainings(config, experiment, plain_entry))]
    files = [name_model_files(config, name) for name in names]
    return {"weights": [each["weights"] for each in files], "cards": [each["card"] for each in files]}


def find_weights_file(config: Config, model: str) -> list[str]:
    """Return the file of weights that training starts from, fetched or the user's own; none for random weights."""
    named = config.models[model].weights
    if named in WEIGHTS:
        return [f"data/raw/weights/{WEIGHTS[named].name}"]
    return as_inputs([str(expand(named))]) if named else []


def start_file(config: Config, model: str) -> list[str]:
    """Return the same weights as safetensors, which training reads."""
    return [f"{config.results}/models/{model}/start.safetensors"] if config.models[model].weights else []


def find_dataset(config: Config, experiment: str) -> str | None:
    return dataset_name(config, config.experiments[experiment])


def list_datasets(config: Config, experiment: str) -> list[str]:
    """Return the experiment's dataset and, where it is another, the one that its model is trained on."""
    definition = config.experiments[experiment]
    trained_on = [config.models[definition.model].dataset] if definition.model else []
    return list(dict.fromkeys(filter(None, [find_dataset(config, experiment), *trained_on])))


def list_training_cards(config: Config, experiment: str) -> list[str]:
    """Return the card of the training data of the experiment's model, if other data are explained."""
    return [list_prepared_files(name)["card"] for name in list_datasets(config, experiment)[1:]]


def add_available_experiments(config: Config) -> Config:
    """Return the configuration with the experiments of `run_if_available` whose files are in a mirror or `path`."""
    more = [name for name in config.run_if_available if name not in config.run and not _find_missing(config, name)]
    return config.model_copy(update={"run": [*config.run, *dict.fromkeys(more)]}) if more else config


def list_unavailable(config: Config) -> list[str]:
    """Return a line for each experiment of `run_if_available` that is not under `run`, with its missing file."""
    left = {name: _find_missing(config, name) for name in config.run_if_available if name not in config.run}
    return [f"not in this run: {name}, because {problem}" for name, problem in left.items() if problem]


def _find_missing(config: Config, experiment: str) -> str:
    """Return a line on the first missing file that an experiment's data are read from; "" if all are available."""
    mirror = config.data.mirror
    folder = expand(mirror) if mirror and not is_address(mirror) else None
    for dataset in list_datasets(config, experiment):
        fetched = folder if config.datasets[dataset].path is None else None
        for file in map(Path, list_raw_files(config, dataset)):
            if not (file.exists() or (fetched and (fetched / file.parent.name / file.name).exists())):
                return f"{file} is missing"
    return ""


LINKS = Path(".snakemake/links")


def as_inputs(files: Iterable[str]) -> list[str]:
    """Return paths that Snakemake takes: relative, or a symbolic link, where braces would be read as wildcards."""
    return [_link(os.path.relpath(file)) if "{" in file else file for file in files]


def _link(path: str) -> str:
    target = os.path.abspath(path)
    if "{" not in path or not os.path.exists(target):  # a missing file is reported by its own name
        return path
    link = LINKS / digest(target) / os.path.basename(target).replace("{", "(").replace("}", ")")
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        new = link.with_name(f"{link.name}.{os.getpid()}")
        new.symlink_to(target)
        os.utime(new, (0, 0), follow_symlinks=False)  # Snakemake compares the time of the link too
        os.replace(new, link)
    return str(link)
