"""Rules of a dataset's entry, and of one that a model explains without having been trained on it."""

import re
from collections.abc import Iterator

from shapeline.config.checks.paths import absent
from shapeline.config.derived import canonical, source_of
from shapeline.config.types import Config, Dataset, Experiment
from shapeline.datasets import checks, compatibility, folders, records, sources
from shapeline.datasets.registry import SOURCES
from shapeline.datasets.sources import USER_FILE
from shapeline.errors import ShapelineError, nearest
from shapeline.methods.custom import own_arguments
from shapeline.models.registry import ARCHITECTURES


def dataset_source(where: str, dataset: Dataset) -> Iterator[str]:
    """The source is known or the user's own, and takes the keys of the entry."""
    if dataset.source not in SOURCES and not re.match(USER_FILE, dataset.source):
        hint = nearest(dataset.source, SOURCES)
        if dataset.source.endswith(("csv", "parquet")):
            hint = " A file of your own is named by path, with source: table_file, or text_file for documents."
        yield f"{where}.source: unknown source '{dataset.source}'.{hint}"
    elif problem := dataset.source not in SOURCES and absent(dataset.source.rpartition(":")[0]):
        yield f"{where}.source: {problem}"
    else:
        try:
            checks.check(dataset.source, canonical(dataset))
        except ShapelineError as error:
            yield f"{where}: {error}"


def dataset_path(where: str, dataset: Dataset) -> Iterator[str]:
    """The local copy is there, with the files of its source."""
    if not dataset.path:
        return
    try:
        path, source = sources.expand(dataset.path), SOURCES.get(dataset.source)
        if not path.exists():
            yield f"{where}.path: there is no file or folder {path} (paths start at the repository root)"
        elif source and source.files:
            records.local_files(source, path)
    except ShapelineError as error:
        yield f"{where}: {error}"


def dataset_tokenizer(where: str, dataset: Dataset) -> Iterator[str]:
    """The folder of a tokenizer can be read; the function that makes one is there, and needs nothing."""
    if not dataset.tokenizer:
        return
    try:
        if folders.names_folder(dataset.tokenizer):
            folders.check_tokenizer(dataset.tokenizer)
            return
        needed = [argument for argument, must in own_arguments(dataset.tokenizer).items() if must]
        if needed:
            yield (
                f"{where}.tokenizer: {dataset.tokenizer} is called with nothing and needs {', '.join(needed)}; give it "
                "defaults"
            )
    except ShapelineError as error:
        yield f"{where}.tokenizer: {error}"


RULES = (dataset_source, dataset_path, dataset_tokenizer)


def other_data(config: Config, name: str, experiment: Experiment) -> Iterator[str]:
    """A model can explain the dataset named beside it, as far as the configuration tells."""
    model = config.models.get(experiment.model)
    own = config.datasets.get(model.dataset) if model else None
    other = config.datasets.get(experiment.dataset)
    if own is None or other is None:
        return
    where = f"experiments.{name}.dataset"
    if model.dataset == experiment.dataset:
        yield f"{where}: models.{experiment.model} is trained on {experiment.dataset} itself; remove the key"
        return
    try:
        trained, explained = (compatibility.told_by(source_of(dataset), canonical(dataset)) for dataset in (own, other))
    except ShapelineError:  # told where the dataset is
        return
    any_size = model.source is not None or getattr(ARCHITECTURES.get(model.architecture), "any_size", False)
    told = compatibility.difference(trained, explained, any_size)
    same = "tokenizer" in trained and "tokenizer" in explained  # `difference` compared them
    if told is None and trained.get("unit") == explained.get("unit") == "word" and not same:
        told = "each dataset of words has a vocabulary of its own"
    if told:
        yield (
            f"{where}: models.{experiment.model} is trained on {model.dataset} and cannot explain "
            f"{experiment.dataset}: {told}"
        )
