"""Two thousand tiny shards: planned within ten seconds, without loss."""

import copy
import re
import resource

import pytest

from shapeline import scores
from tests.workflow.conftest import TINY

pytestmark = pytest.mark.real
ENTRIES, SHARDS = ("first", "second", "third", "fourth"), 500


def test_two_thousand_shards(fresh):
    raw = copy.deepcopy(TINY)
    raw["datasets"]["digits"] = {"source": "digits"}
    raw["experiments"]["tiny"] = {
        "dataset": "digits",
        "features": {"kind": "patch", "size": 4},
        "instances": {"count": SHARDS},
        "methods": {entry: {"method": "random"} for entry in ENTRIES},
        "metrics": {"cost": {}},
        "shards": SHARDS,
    }
    fresh.configure(raw)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    planned = fresh.snakemake("-n", "scores", "--quiet", "rules", cold=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert re.search(rf"^attribute +{len(ENTRIES) * SHARDS}$", planned.stdout, re.M)
    # Processor time, so that others on the machine decide nothing.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10

    fresh.snakemake("scores", "--cores", "all", cold=True, timeout=3600)
    for entry in ENTRIES:
        rows = scores.read(fresh.path / f"results/tiny/scores/{entry}")  # one complete set of shards
        assert len(rows) == SHARDS
        assert rows["instance"].is_unique
    assert "Nothing to be done" in fresh.snakemake("scores", "--cores", "1").stderr
