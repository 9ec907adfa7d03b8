"""Explain one shard of the instances by one method."""

import dataclasses

from shapeline.operations import jobs

by_graph = jobs.by_graph(snakemake)
device = jobs.start(snakemake, "onnx" if by_graph else "")

from shapeline import scores
from shapeline.attribution import provenance, reuse, subjects
from shapeline.attribution.rows import cache_of, explain_rows, explained, shard
from shapeline.attribution.run import Options
from shapeline.plan import runs
from shapeline.plan.code import value_code

settings, wildcards = snakemake.params.settings, snakemake.wildcards
given = snakemake.input.get("weights"), snakemake.input.arrays
subject = subjects.load_subject(*given, settings, device, by_graph=by_graph)
subject = dataclasses.replace(subject, form=subjects.form_for(snakemake.input.instances, subject, device, settings))
cache = None
if subject.model:
    code = value_code(subject.model.architecture, subject.model.framework)
    cache = cache_of(snakemake.resources.values, snakemake.input, code, settings, subject.form, device)
selected = explained(scores.read_table(snakemake.input.instances), settings)
share = shard(selected, int(wildcards.shard), int(wildcards.shards))
label = runs.split_label(wildcards.label)[0]  # a derived model gets the very draws of the trained one
before = reuse.reused(share, subject, settings, label, snakemake)
progress = jobs.progress(len(before.rest) * settings.get("repeats", 1))
options = Options(on_error=snakemake.resources.on_error, progress=progress, cache=cache)
rows = before.completed(lambda rest: explain_rows(subject, rest, settings, label, options))
shard_of = f"{wildcards.shard} of {wildcards.shards}"
place = {"experiment": wildcards.experiment, "label": wildcards.label, "shard": shard_of}
made = before.stated | {"cache": cache.folder.name if cache else None}
scores.write(snakemake.output.scores, rows, place | made | provenance.provenance(subject, settings, device))
