"""Bring the labels of each metric together, with intervals over instances."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

from shapeline import scores
from shapeline.metrics import origin
from shapeline.operations import jobs
from shapeline.seeds import digest
from shapeline.statistics.comparison import compare

FEW = 4  # labels at a time: no number of one depends on another's, and all of many instances would fill the memory
jobs.start(snakemake)
experiment, asked = snakemake.wildcards.experiment, origin.from_text(snakemake.resources.asked)
for output in snakemake.output:
    metric = Path(output).stem
    files = [path for path in snakemake.input.measured if origin.measured_at(path)[0] == metric]
    for path in files:
        label = origin.measured_at(path)[1]
        origin.check(path, experiment=experiment, metric=metric, label=label, settings_digest=asked[metric])
    origin.check_ends([file for path in files for file in scores.metadata(path)["scores"]])
    parts = (pd.concat(map(scores.read_table, files[a : a + FEW])) for a in range(0, len(files), FEW))
    compared = pd.concat(map(compare, parts)).sort_values("label", kind="stable", ignore_index=True)
    settings = snakemake.params.settings[metric]
    table = pa.Table.from_pandas(compared, preserve_index=False)
    scores.write_table(output, table, {"settings_digest": digest(settings)})
