"""A real Slurm: the tiny configuration and a game are submitted, a job is cancelled, the next call resumes.

Needs the extra `slurm` (pip install -e ".[slurm]" -c constraints.txt) and a Slurm with two GPUs, real or made up. One
that runs is found by `sinfo`; else SHAPELINE_SLURM names a command that starts one with `up` and ends it with `down`.
"""

import copy
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import time
from collections import Counter

import numpy as np
import pytest

from shapeline import scores
from tests.fixtures.games_of_files import GAME, by_definition
from tests.workflow.conftest import BIN, TINY
from tests.workflow.test_game import PLAN

pytestmark = pytest.mark.real
PROFILE = ["--profile", "profiles/slurm", "--resources", "gpu=2"]
# What a Slurm without accounting needs, and haste: the site's own values stand in the profile.
HASTE = [
    *("--slurm-status-command", "squeue", "--slurm-no-account", "--slurm-init-seconds-before-status-checks", "3"),
    *("--seconds-between-status-checks", "2", "--latency-wait", "5"),
]


def gpus() -> int:
    """GPUs that a running Slurm offers; -1 where none runs."""
    if not shutil.which("sinfo"):
        return -1
    asked = subprocess.run(["sinfo", "-h", "-N", "-o", "%G"], capture_output=True, text=True)
    return sum(map(int, re.findall(r"gpu:(?:\w+:)?(\d+)", asked.stdout))) if asked.returncode == 0 else -1


@pytest.fixture
def slurm():
    if not importlib.util.find_spec("snakemake_executor_plugin_slurm"):
        pytest.skip('snakemake-executor-plugin-slurm is not installed: pip install -e ".[slurm]" -c constraints.txt')
    command = shlex.split(os.environ.get("SHAPELINE_SLURM", ""))
    started = gpus() < 0 and bool(command)
    if started:
        subprocess.run([*command, "up"], check=True, timeout=300)
    try:
        if gpus() < 2:
            pytest.skip("no Slurm with two GPUs: sinfo finds none and SHAPELINE_SLURM names no command that starts one")
        yield
    finally:
        if started:
            subprocess.run([*command, "down"], check=True, timeout=60)


def running(rule: str) -> list[str]:
    """Identifiers of the rule's jobs that Slurm runs at this moment."""
    listed = subprocess.run(["squeue", "-h", "-t", "R", "-o", "%i %k"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in listed.stdout.splitlines() if rule in line]


def wait_for(what, seconds: float):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.5)
    raise AssertionError("waited in vain")


def test_a_cancelled_job_is_submitted_again_and_the_scores_are_those_of_a_local_run(slurm, fresh):
    raw = copy.deepcopy(TINY)
    raw["experiments"]["tiny"] |= {
        "features": {"kind": "patch", "size": 2},
        "instances": {"count": 20},
        "methods": {"exact": {"method": "shapley"}, "kernel": {"method": "kernel_shap"}},
        "metrics": {"error": {"reference": "exact"}},
        "shards": 2,
    }
    fresh.configure(raw)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with open(fresh.path / "first.log", "w") as said:
        process = subprocess.Popen(
            [BIN / "snakemake", "metrics", *PROFILE, *HASTE],
            cwd=fresh.path,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            job = wait_for(lambda: running("attribute"), 240)[0]
            subprocess.run(["scancel", job], check=True)
            assert process.wait(timeout=240)
        finally:
            process.kill()
            process.wait()
    told = (fresh.path / "first.log").read_text()
    assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in told, told[-3000:]
    before = finished(fresh)
    assert 0 < len(before) < 4
    assert not list(fresh.path.glob("results/tiny/scores/*/.*"))

    fresh.snakemake("metrics", *PROFILE, *HASTE, cold=True)
    after = finished(fresh)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    logs = [file.read_text() for file in fresh.path.glob("results/logs/attribute/tiny/*/*.log")]
    assert all(re.search(r"running on GPU \w+, given by Slurm", log) for log in logs), logs

    fresh.configure({**raw, "results": "local", "device": "cpu"})
    fresh.snakemake("metrics", "--cores", "2")
    for entry in ("exact", "kernel"):
        ours, theirs = (scores.read(fresh.path / f"{place}/tiny/scores/{entry}") for place in ("results", "local"))
        assert (ours["status"] == "ok").all()
        np.testing.assert_array_equal(ours["instance"], theirs["instance"])
        np.testing.assert_allclose(scores.matrix(ours), scores.matrix(theirs), atol=1e-4)


def test_a_game_resumes_after_a_killed_job(slurm, fresh):
    (fresh.path / "own").mkdir()
    (fresh.path / "own/table.py").write_text(GAME)
    (fresh.path / "own/kill").write_text("20")
    fresh.configure(PLAN)
    values = [f"results/groups/values/exact/0.{index}-of-2.parquet" for index in range(2)]
    assert fresh.snakemake(*values, *PROFILE, *HASTE, cold=True, check=False).returncode
    assert not (fresh.path / "own/kill").exists()
    fresh.snakemake(*PROFILE, *HASTE, cold=True)
    counts = Counter((fresh.path / "own/asked.txt").read_text().splitlines())
    assert len(counts) == 64 and counts.total() in (65, 66)  # those cut short once more: one in each of two jobs
    table = np.random.default_rng(0).normal(size=(64, 1))[:, 0]
    found = scores.read(fresh.path / "results/groups/scores/exact")
    np.testing.assert_allclose(found["scores"][0], by_definition(table, 6), atol=1e-6)
    assert "Exact Shapley values by exact" in (fresh.path / "results/reports/groups.html").read_text()


def finished(checkout) -> dict:
    return {file: file.stat().st_mtime_ns for file in sorted(checkout.path.glob("results/tiny/scores/*/*.parquet"))}
