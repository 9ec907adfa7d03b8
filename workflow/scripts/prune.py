"""Remove results that the configuration no longer names."""

import sys

from shapeline.operations import jobs, prune

jobs.start(snakemake)
settings = snakemake.params.settings
freed = prune.remove(settings["files"], settings["results"])
told = f"removed {len(settings['files'])} file(s), {freed:,} bytes, from {settings['results']}"
jobs.log.info(told)
print(told, file=sys.stderr)
