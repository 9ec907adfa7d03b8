"""Read a source, select its classes, split it, and store the arrays with their card."""

from pathlib import Path

from shapeline.datasets import preparation
from shapeline.workflow import job_environment

job_environment.start(snakemake)
settings = snakemake.params.settings
preparation.prepare(settings["source"], settings, snakemake.input.raw, Path(snakemake.output.arrays).parent)
