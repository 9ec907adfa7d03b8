"""Draw the last layers of a trained model, or all, anew; store the weights and a card like the trained model's."""

import json

from shapeline import jobs

device = jobs.start(snakemake)

from shapeline import models
from shapeline.files import atomic
from shapeline.models import randomisation
from shapeline.seeds import seed_of

settings, wildcards = snakemake.params.settings, snakemake.wildcards
model = models.load(snakemake.input.weights, device)
drawn = randomisation.randomise(model, settings.get("layers"), seed_of(settings["seed"], "randomisation"))
jobs.log.info("drawn anew: %s", ", ".join(drawn))
models.save(model, snakemake.output.weights)
card = {"name": f"{wildcards.model}@{wildcards.variant}", "architecture": model.architecture, "drawn": drawn}
with atomic(snakemake.output.card) as path:
    path.write_text(json.dumps({**card, "framework": model.framework, "settings": settings}, indent=1))
