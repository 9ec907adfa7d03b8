"""Measure one label by one metric."""

import pyarrow as pa

from shapeline import scores
from shapeline.metrics import origin
from shapeline.metrics.registry import METRICS
from shapeline.operations import jobs
from shapeline.seeds import digest

by_graph = jobs.by_graph(snakemake)
device = jobs.start(snakemake, "onnx" if by_graph else "")

from shapeline.metrics import needs

settings, given = snakemake.params.settings, snakemake.input
name, parameters = settings["metric"], settings.get("parameters", {})
asked, experiment = origin.from_text(snakemake.resources.asked), snakemake.wildcards.experiment
origin.check_scores([*given.scores, *given.get("truth", []), *given.get("randomised", [])], experiment, asked)
origin.check_ends([*given.scores, *given.get("truth", [])])
rows = scores.succeeded(scores.read(given.scores))
rows = rows if METRICS[name].reads_snapshots else scores.final(rows)
given_to_metric = needs.gather(name, parameters, given, rows, device, jobs.progress(len(rows)), by_graph)
measured = needs.measure(name, rows, given_to_metric).assign(label=snakemake.wildcards.label)
scores.write_table(
    snakemake.output.measured,
    pa.Table.from_pandas(measured, scores.MEASURED, preserve_index=False),
    {
        "experiment": experiment,
        "metric": name,
        "label": snakemake.wildcards.label,
        "scores": [*given.scores],
        "settings_digest": digest(settings),
    },
)
