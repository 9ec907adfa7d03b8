"""Lines at the start and the end of a run, beside those of Snakemake."""

import logging
from collections.abc import Collection, Iterable

from shapeline.config.types import Config
from shapeline.workflow import availability, estimates, recorded_versions

TARGETS = {"all", "fetch", "train", "scores", "metrics", "report"}  # and every experiment: what a user can ask for
log = logging.getLogger("snakemake.logging")


def show(lines: Iterable[str]) -> None:
    """Show lines among those of Snakemake, whichever logger it has."""
    for line in lines:
        log.info(line, extra={"shapeline": True})


def show_start(config: Config, gpus_requested: bool) -> None:
    """Show what a user should know before the jobs run."""
    cpu = ["No GPU is visible on this machine: running on the CPU."] if gpus_requested else []
    show([*availability.not_here(config), *estimates.memory_lines(config), *recorded_versions.lines(config), *cpu])


def show_success(config: Config, index: str, outputs: Collection[str], experiments: Collection[str | None]) -> None:
    """Show failed explanations and warnings of the experiments of a run, and the page to open.

    outputs: files of the jobs that ran.
    """
    show(f"flagged: {line}" for line in recorded_versions.flagged(config, experiments))
    show([f"open {index}"] if index in outputs else [])
