"""Draw the instances to explain, predict them, and calibrate the engine on this machine's processor."""

from shapeline import jobs
from shapeline.seeds import digest

device = jobs.start(snakemake)

from shapeline import instances

settings = snakemake.params.settings
given = snakemake.input
stand = instances.bench(given.get("weights"), given.arrays, settings, device, *given.trained_on)
selected = instances.select(stand, settings["seed"], **settings.get("instances", {}))
forms = {device: instances.calibrate(stand)} if stand.model else {}
for form in forms.values():
    jobs.log.info("form %s, batch %d: %s evaluations/s", form.name, form.batch, f"{form.rate:,.0f}")
instances.write(snakemake.output.instances, selected, forms, {"settings_digest": digest(settings)})
