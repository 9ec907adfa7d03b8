"""The user's own files that a run reads: code, models, tokenizers and arrays, each an input of the jobs that use it."""

from shapeline.config.derived import canonical, dataset_of
from shapeline.config.types import Config
from shapeline.datasets import folders
from shapeline.datasets.sources import expand, names_function, source_files
from shapeline.games import references
from shapeline.models import pretrained_kinds
from shapeline.workflow.inputs import as_inputs


def user_file(reference: str | None) -> list[str]:
    """The user's own Python file in "path/to/file.py:function" with what it imports from beside it, or the file or the
    folder of a ready model, as inputs."""
    if folders.names_folder(reference):
        return folders.files_of(reference, weights=True)
    if pretrained_kinds.suffix_of(reference):
        return [str(expand(reference))]
    return source_files(reference) if reference and names_function(reference) else []


def cut_by(tokenizer: str | None) -> list[str]:
    """The user's own files that cut documents, as inputs."""
    return folders.files_of(tokenizer, weights=False) if folders.names_folder(tokenizer) else user_file(tokenizer)


def game_files(config: Config, experiment: str) -> list[str]:
    """The user's own files behind the values of an experiment's game or prompts, as inputs; none without these."""
    entry = config.experiments[experiment]
    if entry.prompts:
        return [*folders.files_of(entry.prompts["model"], weights=True), str(expand(entry.prompts["path"]))]
    return [*user_file(entry.game), *(str(expand(path)) for path in entry.game_files)]


def tokenizer_file(config: Config, experiment: str) -> list[str]:
    """The user's own file that cuts the documents of the experiment's dataset, as an input."""
    dataset = dataset_of(config, config.experiments[experiment])
    return cut_by(config.datasets[dataset].tokenizer) if dataset else []


def user_files(config: Config, experiment: str) -> list[str]:
    """The user's own files behind the values of an experiment's model: its own, and what cuts custom texts."""
    entry = config.experiments[experiment]
    cutting = tokenizer_file(config, experiment) if entry.instances.texts else []
    return as_inputs(dict.fromkeys([*user_file(config.models[entry.model].source), *cutting]))


def reference_file(config: Config, experiment: str) -> list[str]:
    """The user's own array that fills absent features, as an input."""
    file = references.file_of(canonical(config.experiments[experiment].reference))
    return as_inputs([str(file)]) if file else []
