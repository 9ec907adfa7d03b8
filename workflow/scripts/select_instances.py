"""Sample the instances to explain, predict them, and calibrate the engine on this machine's processor."""

from shapeline.seeds import digest
from shapeline.workflow import job_environment

device = job_environment.start(snakemake)

from shapeline.attribution import context, selection
from shapeline.games.settings import parse
from shapeline.methods import dispatch

settings = snakemake.params.settings
given, forms = snakemake.input, {}
if settings.get("game") or settings.get("prompts"):
    names = ("attribution.game_job:select_outputs", "generation.prompt_job:select_prompts")
    select = dispatch.resolve(f"shapeline.{names[not settings.get('game')]}").function
    selected = select(settings, snakemake.resources.store, device)
else:
    subject = context.load_subject(given.get("weights"), given.arrays, parse(settings), device, *given.trained_on)
    target = settings.get("target", "predicted")
    selected = selection.select(subject, settings["seed"], **{"target": target, **settings.get("instances", {})})
    forms = {device: context.calibrate(subject, given.get("weights"))} if subject.model else {}
for form in forms.values():
    job_environment.log.info("form %s, batch %d: %s evaluations/s", form.name, form.batch, f"{form.rate:,.0f}")
selection.write(snakemake.output.instances, selected, forms, {"settings_digest": digest(settings)})
