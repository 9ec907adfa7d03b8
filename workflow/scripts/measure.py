"""Measure one label by one metric."""

import pyarrow as pa

from shapeline import jobs, metrics, scores
from shapeline.seeds import digest

device = jobs.start(snakemake)

settings = snakemake.params.settings
rows = scores.read(snakemake.input.scores)
rows = rows[rows["status"] == "ok"].reset_index(drop=True)
rows = rows if metrics.METRICS[settings["metric"]].reads_snapshots else scores.final(rows)
needs = dict(settings.get("parameters", {}))
if "reference" in needs:
    truth = scores.read(snakemake.input.truth)
    needs = {"truth": truth[truth["status"] == "ok"], **{key: needs[key] for key in needs if key != "reference"}}
if metrics.METRICS[settings["metric"]].asks_model:
    from shapeline import instances

    others = needs.pop("references", None)
    needs |= instances.for_metric(snakemake.input, rows, device, jobs.progress(len(rows)), others)
if metrics.METRICS[settings["metric"]].asks_documents:
    from shapeline import instances

    needs |= instances.known_words(snakemake.input, rows)
if metrics.METRICS[settings["metric"]].asks_truth:
    from shapeline import instances

    needs |= instances.known_pixels(snakemake.input, rows)
if metrics.METRICS[settings["metric"]].asks_randomised:
    from shapeline import instances

    needs = instances.randomised(snakemake.input, rows)  # its parameters say which files these are
measured = metrics.measure(settings["metric"], rows, needs).assign(label=snakemake.wildcards.label)
scores.write_table(
    snakemake.output.measured,
    pa.Table.from_pandas(measured, scores.MEASURED, preserve_index=False),
    {"settings_digest": digest(settings)},
)
