"""Fetch one official file, verified by its checksum."""

from shapeline.datasets.fetch import fetch
from shapeline.operations import jobs

jobs.start(snakemake)
fetch(
    snakemake.wildcards.source,
    snakemake.wildcards.file,
    snakemake.output.file,
    mirror=snakemake.resources.mirror or None,
    offline=bool(snakemake.resources.offline),
)
