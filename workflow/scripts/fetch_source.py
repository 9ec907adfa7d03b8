"""Fetch one official file, verified by its checksum."""

from shapeline.datasets.fetch import fetch
from shapeline.workflow import job_environment

job_environment.start(snakemake)
fetch(
    snakemake.wildcards.source,
    snakemake.wildcards.file,
    snakemake.output.file,
    mirror=snakemake.resources.mirror or None,
    offline=bool(snakemake.resources.offline),
)
