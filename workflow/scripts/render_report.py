"""Render one experiment's notebook into a page."""

import json
from pathlib import Path

from shapeline import files
from shapeline.metrics import provenance
from shapeline.report import rendering
from shapeline.seeds import digest
from shapeline.workflow import job_environment

job_environment.start(snakemake, "report")
settings, given = snakemake.params.settings, snakemake.input
by_entry = {entry: [path for path in given.scores if Path(path).parent.name == entry] for entry in settings["order"]}
settings = settings | settings.get("report", {}) | {"settings_digest": digest(settings)}
asked = provenance.parse_digests(snakemake.resources.asked)
provenance.check_scores(given.scores, snakemake.wildcards.experiment, asked)
provenance.check_ends(given.scores)
parameters = {
    "experiment": snakemake.wildcards.experiment,
    "root": str(Path(given.instances).parent),
    "settings_json": json.dumps(settings),
    "model_card": given.model_card or "",
    "dataset_card": given.dataset_card or "",
    "dataset": str(Path(given.arrays).parent) if given.arrays else "",
    "instances": given.instances,
    "scores": by_entry,
    "metrics": given.metrics[0] if given.metrics else "",
    "measured": [*given.measured],
}
pages = snakemake.output.html, snakemake.output.notebook
subset = files.read_document(given.dataset_card).get("subset", "") if given.dataset_card else ""
kept = {"settings_digest": settings["settings_digest"]}
rendering.render(given.notebook, parameters, *pages, metadata=kept, remark=subset)
rendering.write_parts(snakemake.output.html, snakemake.output.parts, parameters["metrics"])
