"""Train a model on the prepared data, or evaluate a trained one; store its weights and its card."""

import json
from pathlib import Path

from shapeline.workflow import job_environment

settings = snakemake.params.settings
device = job_environment.start(snakemake, snakemake.resources.framework)

from shapeline.datasets import checks, loading, table
from shapeline.datasets.sources import TEST
from shapeline.files import atomic
from shapeline.models import architectures, registry, storage, training

dataset = loading.load(Path(snakemake.input.arrays).parent)
checks.check_count(snakemake.resources.experiment, snakemake.resources.instances, (dataset.split == TEST).sum())
entry = registry.read_entry(settings)
model = architectures.for_dataset(entry, dataset.card)
if model.framework != "function" and dataset.card["kind"] == "table":
    table.report_lost_digits(f"dataset '{dataset.card['name']}'", dataset.inputs, dataset.card["feature_names"])
model, dataset = storage.fit_rows(model, dataset)
start = snakemake.input.get("start")
if start:
    storage.start_from(model, start[0])
if entry.kind or entry.training.epochs == 0:
    card = architectures.measure_card(model.to(device), dataset)
else:
    model.predict(dataset.inputs[:16])  # reports outputs that are not logits before the training
    key = f"models.{snakemake.wildcards.model.partition('@')[0]}.training"
    state = Path(snakemake.output.weights).with_name("training.state")  # no output, so it survives an interruption
    card = training.fit(model, dataset, entry.training.model_dump(), entry.seed, device, not start, key, state)
storage.save(model, snakemake.output.weights)
card["onnx"] = storage.save_graph(model, snakemake.output.weights, dataset.inputs)
with atomic(snakemake.output.card) as path:
    own = {"name": Path(snakemake.output.card).parent.name, "training": card.pop("settings"), "settings": settings}
    path.write_text(json.dumps({**card, **own}, indent=1), encoding="utf-8")
