"""Measure one method by the metrics that evaluate the model, for every training of the model."""

from shapeline import scores
from shapeline.metrics import origin
from shapeline.operations import jobs
from shapeline.seeds import digest

by_graph = jobs.by_graph(snakemake)
device = jobs.start(snakemake, "onnx" if by_graph else "")

from shapeline.metrics.measurement import ModelMeasurement

given, settings, wildcards = snakemake.input, snakemake.params.settings, snakemake.wildcards
origin.check_scores(given.scores, wildcards.experiment, origin.from_text(snakemake.resources.asked))
origin.check_ends(given.scores)
job = ModelMeasurement(given, device, by_graph, snakemake.resources.store, jobs.progress)
measured, keys = job.measure(wildcards.label, settings)
about = {"experiment": wildcards.experiment, "label": wildcards.label, "scores": [*given.scores], "rows": keys}
scores.write_measured(snakemake.output.measured, measured, about | {"settings_digest": digest(settings)})
