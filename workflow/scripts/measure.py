"""Compute the metrics of one method that evaluate the model, for every training seed."""

from shapeline import scores
from shapeline.metrics import provenance
from shapeline.seeds import digest
from shapeline.workflow import job_environment

by_graph = job_environment.uses_graph(snakemake)
device = job_environment.start(snakemake, "onnx" if by_graph else "")

from shapeline.metrics.measurement import ModelMeasurement

given, settings, wildcards = snakemake.input, snakemake.params.settings, snakemake.wildcards
provenance.check_scores(given.scores, wildcards.experiment, provenance.parse_digests(snakemake.resources.asked))
provenance.check_ends(given.scores)
job = ModelMeasurement(given, device, by_graph, snakemake.resources.store, job_environment.progress)
measured, keys = job.measure(wildcards.method, settings)
about = {"experiment": wildcards.experiment, "label": wildcards.method, "scores": [*given.scores], "rows": keys}
scores.write_measured(snakemake.output.measured, measured, about | {"settings_digest": digest(settings)})
