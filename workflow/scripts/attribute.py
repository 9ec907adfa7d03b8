"""Explain one shard of the instances by one method."""

from shapeline import jobs
from shapeline.seeds import digest

device = jobs.start(snakemake)

from shapeline import attribution, instances, plan, scores

settings, wildcards = snakemake.params.settings, snakemake.wildcards
stand = instances.bench(snakemake.input.get("weights"), snakemake.input.arrays, settings, device)
form = instances.form_for(snakemake.input.instances, stand, device, settings)
selected = instances.read(snakemake.input.instances)
cache = None
if stand.model:
    code = plan.sources("shapeline.instances", *plan.FRAMEWORK_CODE[stand.model.framework])
    cache = attribution.cache_of(snakemake.resources.values, snakemake.input, code, settings, form, device)
share = attribution.shard(selected, int(wildcards.shard), int(wildcards.shards))
rows = attribution.explain_rows(
    stand,
    share,
    settings,
    plan.split_label(wildcards.label)[0],  # a derived model gets the very draws of the trained one
    form,
    snakemake.resources.on_error,
    jobs.progress(len(share) * settings.get("repeats", 1)),
    cache,
)
scores.write(
    snakemake.output.scores,
    rows,
    {
        "experiment": wildcards.experiment,
        "label": wildcards.label,
        "shard": f"{wildcards.shard} of {wildcards.shards}",
        "settings": settings,
        "settings_digest": digest(settings),
        "cache": cache.folder.name if cache else None,
        **attribution.provenance(stand, settings, form, device),
    },
)
