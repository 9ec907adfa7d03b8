"""Compute the metrics of all methods of an experiment that evaluate no model."""

from shapeline import scores
from shapeline.metrics import provenance
from shapeline.metrics.score_measurement import measure_scores
from shapeline.seeds import digest
from shapeline.workflow import job_environment

job_environment.start(snakemake)
given, settings, experiment = snakemake.input, snakemake.params.settings, snakemake.wildcards.experiment
read = [*given.scores, *given.get("randomised", [])]
provenance.check_scores(read, experiment, provenance.parse_digests(snakemake.resources.asked))
provenance.check_ends(given.scores)
measured, keys = measure_scores(given, settings, snakemake.resources.store)
about = {"experiment": experiment, "scores": [*given.scores], "rows": keys, "settings_digest": digest(settings)}
scores.write_measured(snakemake.output.measured, measured, about)
