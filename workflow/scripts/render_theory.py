"""Run the theory notebook into a page; it needs a seed and no results."""

from shapeline import jobs, reports
from shapeline.seeds import digest

jobs.start(snakemake)
settings = snakemake.params.settings
reports.render(
    snakemake.input.notebook,
    {"seed": settings["seed"]},
    snakemake.output.html,
    snakemake.output.notebook,
    metadata={"settings_digest": digest(settings)},
)
reports.write_parts(snakemake.output.html, snakemake.output.parts)
