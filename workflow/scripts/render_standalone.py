"""Render a notebook without an experiment into a page: theory, accuracy."""

from shapeline.report import rendering
from shapeline.seeds import digest
from shapeline.workflow import job_environment

job_environment.start(snakemake, "report")
settings, measured = snakemake.params.settings, snakemake.input.get("measured")
rendering.render(
    snakemake.input.notebook,
    {name: value for name, value in settings.items() if name != "code"} | ({"measured": measured} if measured else {}),
    snakemake.output.html,
    snakemake.output.notebook,
    metadata={"settings_digest": digest(settings)},
)
rendering.write_parts(snakemake.output.html, snakemake.output.parts)
