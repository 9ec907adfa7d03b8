"""Measure all methods of an experiment by the metrics that evaluate no model."""

from shapeline import scores
from shapeline.metrics import origin
from shapeline.metrics.score_measurement import measure_scores
from shapeline.operations import jobs
from shapeline.seeds import digest

jobs.start(snakemake)
given, settings, experiment = snakemake.input, snakemake.params.settings, snakemake.wildcards.experiment
read = [*given.scores, *given.get("randomised", [])]
origin.check_scores(read, experiment, origin.from_text(snakemake.resources.asked))
origin.check_ends(given.scores)
measured, keys = measure_scores(given, settings, snakemake.resources.store)
about = {"experiment": experiment, "scores": [*given.scores], "rows": keys, "settings_digest": digest(settings)}
scores.write_measured(snakemake.output.measured, measured, about)
