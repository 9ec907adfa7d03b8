"""Draw the instances to explain, predict them, and calibrate the engine on this machine's processor."""

from shapeline.operations import jobs
from shapeline.seeds import digest

device = jobs.start(snakemake)

from shapeline.attribution import selection, subjects
from shapeline.game.settings import parse
from shapeline.methods import calling

settings = snakemake.params.settings
given, forms = snakemake.input, {}
if settings.get("game"):
    select = calling.resolve("shapeline.attribution.game_job:select_outputs").function
    selected = select(settings, snakemake.resources.store, device)
else:
    subject = subjects.load_subject(given.get("weights"), given.arrays, parse(settings), device, *given.trained_on)
    target = settings.get("target", "predicted")
    selected = selection.select(subject, settings["seed"], **{"target": target, **settings.get("instances", {})})
    forms = {device: subjects.calibrate(subject, given.get("weights"))} if subject.model else {}
for form in forms.values():
    jobs.log.info("form %s, batch %d: %s evaluations/s", form.name, form.batch, f"{form.rate:,.0f}")
selection.write(snakemake.output.instances, selected, forms, {"settings_digest": digest(settings)})
