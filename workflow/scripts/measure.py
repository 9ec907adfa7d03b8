"""Measure one label by one metric that asks the model, or by all that ask none."""

import pyarrow as pa

from shapeline import scores
from shapeline.metrics import origin
from shapeline.operations import jobs
from shapeline.seeds import digest

by_graph = jobs.by_graph(snakemake)
device = jobs.start(snakemake, "onnx" if by_graph else "")

from shapeline.metrics import needs

given, experiment = snakemake.input, snakemake.wildcards.experiment
told = origin.from_text(snakemake.resources.asked)
origin.check_scores([*given.scores, *given.get("truth", []), *given.get("randomised", [])], experiment, told)
origin.check_ends([*given.scores, *given.get("truth", [])])
for path in snakemake.output:
    name, label = origin.measured_at(path)
    settings, files = snakemake.params.settings[name], needs.of_label(given, label)
    rows = needs.rows_of(name, files)
    parameters, progress = settings.get("parameters", {}), jobs.progress(len(rows))
    measured = needs.measure(name, rows, needs.gather(name, parameters, files, rows, device, progress, by_graph))
    table = pa.Table.from_pandas(measured.assign(label=label), scores.MEASURED, preserve_index=False)
    told = {"experiment": experiment, "metric": name, "label": label, "scores": files.scores}
    scores.write_table(path, table, {**told, "settings_digest": digest(settings)})
