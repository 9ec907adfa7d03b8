"""Bring the labels of one metric together, with intervals over instances."""

import pandas as pd
import pyarrow as pa

from shapeline import jobs, scores
from shapeline.metrics.compare import compare
from shapeline.seeds import digest

jobs.start(snakemake)
settings = snakemake.params.settings
measured = pd.concat([scores.read_table(path) for path in snakemake.input.measured], ignore_index=True)
compared = compare(measured, settings["seed"])
scores.write_table(
    snakemake.output.compared,
    pa.Table.from_pandas(compared, preserve_index=False),
    {"settings_digest": digest(settings)},
)
