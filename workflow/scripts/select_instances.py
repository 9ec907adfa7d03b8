"""Sample the explained instances, predict them, and calibrate the engine on this processor."""

from shapeline.seeds import digest
from shapeline.workflow import job_environment

device = job_environment.start(snakemake)

from shapeline.attribution import selection
from shapeline.attribution.context import calibrate, load_context, parse_game
from shapeline.datasets import sources

settings = snakemake.params.settings
given, backends = snakemake.input, {}
if settings.get("game") or settings.get("prompts"):
    names = ("attribution.game_job:select_outputs", "generation.prompt_job:select_prompts")
    select = sources.resolve(f"shapeline.{names[not settings.get('game')]}").function
    selected = select(settings, snakemake.resources.store, device)
else:
    context = load_context(given.get("weights"), given.arrays, parse_game(settings), device, *given.trained_on)
    target = settings.get("target", "predicted")
    selected = selection.select(context, settings["seed"], **{"target": target, **settings.get("instances", {})})
    backends = {device: calibrate(context, given.get("weights"))} if context.model else {}
for backend in backends.values():
    job_environment.log.info(
        "backend %s, batch %d: %s evaluations/s", backend.name, backend.batch, f"{backend.rate:,.0f}"
    )
selection.write(snakemake.output.instances, selected, backends, {"settings_digest": digest(settings)})
