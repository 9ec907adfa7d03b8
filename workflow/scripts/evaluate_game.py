"""Evaluate a part of the coalitions of a game that a method requests in one round."""

from shapeline.workflow import job_environment

device = job_environment.start(snakemake)

from shapeline.attribution.context import parse
from shapeline.attribution.game_job import GameJob
from shapeline.seeds import digest

settings, wildcards, options = snakemake.params.settings, snakemake.wildcards, snakemake.resources
job = GameJob(parse(settings), wildcards.method, snakemake.input, device, options.store)
metadata = {"experiment": wildcards.experiment, "label": wildcards.method, "settings_digest": digest(settings)}
share = int(wildcards.shard), int(wildcards.shards)
job.evaluate_shard(snakemake.output.values, *share, options.on_error, metadata)
