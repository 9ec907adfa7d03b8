"""Run a notebook that needs a few numbers and no results into a page: theory, accuracy."""

from shapeline.operations import jobs
from shapeline.report import rendering
from shapeline.seeds import digest

jobs.start(snakemake, "report")
settings = snakemake.params.settings
rendering.render(
    snakemake.input.notebook,
    {name: value for name, value in settings.items() if name != "code"},
    snakemake.output.html,
    snakemake.output.notebook,
    metadata={"settings_digest": digest(settings)},
)
rendering.write_parts(snakemake.output.html, snakemake.output.parts)
