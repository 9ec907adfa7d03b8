"""Explain one shard of the instances by one method, with every model that it explains."""

from shapeline.workflow import job_environment

by_graph = job_environment.uses_graph(snakemake)
device = job_environment.start(snakemake, "onnx" if by_graph else "")

from shapeline import scores
from shapeline.attribution import provenance
from shapeline.attribution.attribution_job import AttributionJob
from shapeline.attribution.context import parse
from shapeline.datasets import sources
from shapeline.workflow import job_code, runs

settings, wildcards, options = snakemake.params.settings, snakemake.wildcards, snakemake.resources
entry = runs.split_entry(wildcards.method)[0]  # a randomised model has the samples of the trained one
given = parse(settings), entry, snakemake.input, device, options.store
if settings.get("game") or settings.get("prompts"):  # by name, so that an edit of its code re-runs no other job
    module = "attribution.game_job:GameJob" if settings.get("game") else "generation.prompt_job:PromptJob"
    job = sources.resolve(f"shapeline.{module}").function(*given)
else:
    job = AttributionJob(*given, by_graph, job_code.list_value_code if options.values else None)
found = job.explain_shard(int(wildcards.shard), int(wildcards.shards), options.on_error, job_environment.progress)
shard_of = f"{wildcards.shard} of {wildcards.shards}"
place = {"experiment": wildcards.experiment, "label": wildcards.method, "shard": shard_of, "rows": found.keys}
scores.write(snakemake.output.scores, found.rows, place | provenance.provenance(found.context, settings, device))
