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
files, few = [*snakemake.input.measured], 4
# A few labels at a time: no number of one depends on another's, and all of many instances would fill the memory.
parts = (pd.concat(map(scores.read_table, files[a : a + few])) for a in range(0, len(files), few))
compared = pd.concat(map(compare, parts)).sort_values("label", kind="stable", ignore_index=True)
scores.write_table(
    snakemake.output.compared,
    pa.Table.from_pandas(compared, preserve_index=False),
    {"settings_digest": digest(settings)},
)
