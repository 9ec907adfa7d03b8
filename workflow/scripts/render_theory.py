"""Run the theory notebook into a page; it needs a seed and no results."""

from shapeline.operations import jobs
from shapeline.report import rendering
from shapeline.seeds import digest

jobs.start(snakemake, "report")
settings = snakemake.params.settings
rendering.render(
    snakemake.input.notebook,
    {"seed": settings["seed"]},
    snakemake.output.html,
    snakemake.output.notebook,
    metadata={"settings_digest": digest(settings)},
)
rendering.write_parts(snakemake.output.html, snakemake.output.parts)
