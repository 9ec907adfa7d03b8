"""Measure the errors of estimators on games with known Shapley values."""

import pyarrow as pa

from shapeline import scores
from shapeline.seeds import digest
from shapeline.workflow import job_environment

job_environment.start(snakemake)

from shapeline.statistics import accuracy

settings = snakemake.params.settings
measured = accuracy.measure(accuracy.read(), settings["repeats"], settings["seed"])
table = pa.Table.from_pandas(measured, preserve_index=False)
scores.write_table(snakemake.output[0], table, {"settings_digest": digest(settings), "repeats": settings["repeats"]})
