"""Fetch one official file, verified by its checksum."""

from shapeline import jobs
from shapeline.datasets.fetch import fetch

jobs.start(snakemake)
fetch(
    snakemake.wildcards.source,
    snakemake.wildcards.file,
    snakemake.output.file,
    mirror=snakemake.resources.mirror or None,
    offline=bool(snakemake.resources.offline),
)
