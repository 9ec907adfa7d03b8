"""Print what is there and what the run needs; end with the list of what keeps it from working, if anything does."""

from shapeline.config.types import Config
from shapeline.errors import ShapelineError
from shapeline.operations import doctor, jobs

config = Config.model_validate(snakemake.params.settings)
told, problems = doctor.report(config)  # before this job, which needs no GPU, hides them from itself
jobs.start(snakemake)
jobs.log.info("%s", told)
print(told, flush=True)
if problems:
    raise ShapelineError("\n".join([f"{len(problems)} thing(s) keep the run from working:", *problems]))
print("Nothing keeps the run from working.", flush=True)
