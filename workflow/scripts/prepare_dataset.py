"""Read a source, choose its classes, split it, and store the arrays with their card."""

from pathlib import Path

from shapeline import datasets, jobs

jobs.start(snakemake)
settings = snakemake.params.settings
datasets.prepare(settings["source"], settings, snakemake.input.raw, Path(snakemake.output.arrays).parent)
