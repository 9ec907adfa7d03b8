"""Write the page that links every report, from the parameters in the executed notebooks."""

from pathlib import Path

from shapeline.workflow import job_environment

job_environment.start(snakemake, "report")

from shapeline.report import rendering
from shapeline.report.index import write_index

titles = {
    "theory": "Theory: the papers' statements, checked numerically",
    "accuracy": "Accuracy: estimators of Shapley values on games with known values",
}
pages = {Path(page).name: titles[Path(page).stem] for page in snakemake.input.pages}
write_index(snakemake.input.notebooks, snakemake.output.html, pages, snakemake.params.settings["digests"])
rendering.write_parts(snakemake.output.html, snakemake.output.parts)
