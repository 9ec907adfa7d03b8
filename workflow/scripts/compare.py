"""Combine the methods of each metric, with intervals over instances."""

import pyarrow as pa

from shapeline import scores
from shapeline.metrics import provenance
from shapeline.seeds import digest
from shapeline.statistics.comparison import compare_files
from shapeline.workflow import job_environment

job_environment.start(snakemake)
given, settings, experiment = snakemake.input, snakemake.params.settings, snakemake.wildcards.experiment
provenance.check_measured(given.measured, experiment, provenance.parse_digests(snakemake.resources.asked))
provenance.check_ends([file for path in given.measured for file in scores.metadata(path)["scores"]])
table = pa.Table.from_pandas(compare_files(given.measured, settings["metrics"]), preserve_index=False)
scores.write_table(snakemake.output.compared, table, {"settings_digest": digest(settings)})
