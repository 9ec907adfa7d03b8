"""Bring the labels of each metric together, with intervals over instances."""

import pyarrow as pa

from shapeline import scores
from shapeline.metrics import origin
from shapeline.operations import jobs
from shapeline.seeds import digest
from shapeline.statistics.comparison import compare_files

jobs.start(snakemake)
given, settings, experiment = snakemake.input, snakemake.params.settings, snakemake.wildcards.experiment
origin.check_measured(given.measured, experiment, origin.from_text(snakemake.resources.asked))
origin.check_ends([file for path in given.measured for file in scores.metadata(path)["scores"]])
table = pa.Table.from_pandas(compare_files(given.measured, settings["metrics"]), preserve_index=False)
scores.write_table(snakemake.output.compared, table, {"settings_digest": digest(settings)})
