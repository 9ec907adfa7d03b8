"""Bring the labels of one metric together, with intervals over instances."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

from shapeline import scores
from shapeline.metrics import origin
from shapeline.operations import jobs
from shapeline.seeds import digest
from shapeline.statistics.comparison import compare

jobs.start(snakemake)
settings, names = snakemake.params.settings, snakemake.wildcards
for path in snakemake.input.measured:
    told = {"experiment": names.experiment, "metric": names.metric, "label": Path(path).stem}
    origin.check(path, **told, settings_digest=snakemake.resources.asked)
origin.check_ends([file for path in snakemake.input.measured for file in scores.metadata(path)["scores"]])
# One label at a time: no number of one depends on another's, and all of many instances would fill the memory.
tables = [compare(scores.read_table(path)) for path in snakemake.input.measured]
compared = pd.concat(tables).sort_values("label", kind="stable", ignore_index=True)
scores.write_table(
    snakemake.output.compared,
    pa.Table.from_pandas(compared, preserve_index=False),
    {"settings_digest": digest(settings)},
)
