"""Which experiments of `run_if_available` are in a run: those whose data are all here."""

from pathlib import Path

from shapeline.config.types import Config
from shapeline.datasets.sources import expand, is_address
from shapeline.workflow.paths import datasets_of, raw_files


def add_available_experiments(config: Config) -> Config:
    """The configuration with those of `run_if_available` under `run` whose files are placed, in a folder that is the
    mirror, or at their `path`."""
    more = [name for name in config.run_if_available if name not in config.run and not _find_missing(config, name)]
    return config.model_copy(update={"run": [*config.run, *dict.fromkeys(more)]}) if more else config


def not_here(config: Config) -> list[str]:
    """A line for each experiment of `run_if_available` that is not under `run`, with the file that keeps it out."""
    left = {name: _find_missing(config, name) for name in config.run_if_available if name not in config.run}
    return [f"not in this run: {name}, for {problem}" for name, problem in left.items() if problem]


def _find_missing(config: Config, experiment: str) -> str:
    """What is not here of the files that an experiment's data are read from; "" where all are."""
    mirror = config.data.mirror
    folder = expand(mirror) if mirror and not is_address(mirror) else None
    for dataset in datasets_of(config, experiment):
        fetched = folder if config.datasets[dataset].path is None else None
        for file in map(Path, raw_files(config, dataset)):
            if not (file.exists() or (fetched and (fetched / file.parent.name / file.name).exists())):
                return f"{file} is not here"
    return ""
