"""Write the page that links every report, from the parameters kept in the executed notebooks."""

import json
from pathlib import Path

from shapeline import jobs, reports

jobs.start(snakemake)
entries = []
for notebook in map(Path, snakemake.input.notebooks):
    parameters = json.loads(notebook.read_text())["metadata"]["papermill"]["parameters"]
    entries.append(reports.headline(parameters, link=f"{notebook.stem}.html"))
theory = Path(snakemake.input.theory).name
reports.index(entries, snakemake.output.html, pages={theory: "Theory: the papers' statements, checked numerically"})
