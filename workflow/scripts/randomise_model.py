"""Re-initialise the last layers of a trained model, or all; store the weights and a card like the trained model's."""

import json
from pathlib import Path

from shapeline.workflow import job_environment

device = job_environment.start(snakemake)

from shapeline.datasets import loading
from shapeline.files import atomic
from shapeline.models import architectures, storage
from shapeline.seeds import seed_of

settings, wildcards = snakemake.params.settings, snakemake.wildcards
model = storage.load(snakemake.input.weights, device)
drawn = architectures.randomise(model, settings.get("layers"), seed_of(settings["seed"], "randomisation"))
job_environment.log.info("drawn anew: %s", ", ".join(drawn))
storage.save(model, snakemake.output.weights)
inputs = loading.load(Path(snakemake.input.arrays).parent).as_numbers().inputs
card = {"name": f"{wildcards.model}@{wildcards.variant}", "architecture": model.architecture, "drawn": drawn}
card["onnx"] = storage.save_graph(model, snakemake.output.weights, inputs)
with atomic(snakemake.output.card) as path:
    whole = {**card, "framework": model.framework, "settings": settings}
    path.write_text(json.dumps(whole, indent=1), encoding="utf-8")
