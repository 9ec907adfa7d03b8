"""Measure one label by one metric."""

import pyarrow as pa

from shapeline import jobs, metrics, scores
from shapeline.seeds import digest

device = jobs.start(snakemake)

from shapeline.metrics import needs

settings = snakemake.params.settings
name, parameters = settings["metric"], settings.get("parameters", {})
rows = scores.succeeded(scores.read(snakemake.input.scores))
rows = rows if metrics.METRICS[name].reads_snapshots else scores.final(rows)
given = needs.gather(name, parameters, snakemake.input, rows, device, jobs.progress(len(rows)))
measured = metrics.measure(name, rows, given).assign(label=snakemake.wildcards.label)
scores.write_table(
    snakemake.output.measured,
    pa.Table.from_pandas(measured, scores.MEASURED, preserve_index=False),
    {"settings_digest": digest(settings)},
)
