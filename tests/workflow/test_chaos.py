"""Ten minutes of random faults (`make chaos`): at the end every score equals that of an undisturbed run."""

import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter

import numpy as np
import psutil
import pytest

from shapeline import scores
from tests.workflow.conftest import BIN, Checkout, copy_repository
from tests.workflow.test_faults import workers_in

pytestmark = pytest.mark.real
KILLS = 24  # on running jobs, the least number
MINUTES = float(os.environ.get("CHAOS_MINUTES", "25"))  # after which no fault is begun, on a machine that is slow
SMALL = 8192  # bytes of the largest file while the disk is full
# Each sum is of one row alone, without a library's parallel order: the same bits whatever the batch.
MODEL = """
import time

import numpy as np

WEIGHTS = np.sin(np.arange(64))


def slow(rows):
    time.sleep(0.02)  # a call takes a while, for faults to come in between, and no processor
    score = (np.asarray(rows, float).reshape(len(rows), 64) * WEIGHTS).sum(1)
    probability = 0.5 + 0.5 * score / (1 + np.abs(score))
    return np.stack([1 - probability, probability], 1)
"""
EDITED = ("designs/sampled.py", "metrics/bookkeeping.py", "methods/external.py", "games/game.py")


def settings(reference: str) -> dict:
    """Labels in shards of a function, whose scores have the same bits in every run, and of a trained network."""
    methods = {name: {"method": name} for name in ("kernel_shap", "sample_shapley", "occlusion")}
    shared = {"features": {"kind": "patch", "size": 2}, "reference": reference, "metrics": {"cost": {}}}
    return {
        "run": ["function", "network"],
        "datasets": {"digits38": {"source": "digits", "classes": [3, 8]}},
        "models": {
            "slow": {"dataset": "digits38", "source": "slow.py:slow", "framework": "function"},
            "cnn": {"dataset": "digits38", "architecture": "digits_cnn", "training": {"epochs": 2}},
        },
        "experiments": {
            "function": {"model": "slow", "instances": {"count": 12}, "shards": 3, "methods": methods, **shared},
            "network": {"model": "cnn", "instances": {"count": 6}, "methods": dict([*methods.items()][:1]), **shared},
        },
    }


CONFIGURATIONS = ("zero", "mean")


def tables(checkout: Checkout) -> dict:
    """Return the rows of every method, without seconds."""
    return {
        f"{folder.parent.parent.name}/{folder.name}": scores.read(folder).drop(columns="seconds")
        for folder in sorted(checkout.path.glob("results/[!.]*/scores/*"))  # without the row store
    }


def rule_of(worker: psutil.Process) -> str:
    """The rule whose script a worker runs; "" of one that has ended."""
    with contextlib.suppress(psutil.Error):
        if found := re.search(r"scripts/tmp\w+\.(\w+)\.py", " ".join(worker.cmdline())):
            return found[1]
    return ""


class Chaos:
    """A checkout and its faults; `told` counts them. job: seconds of a job here, as a measure of time."""

    def __init__(self, checkout: Checkout, seed: int, job: float = 4.0):
        self.checkout, self.random, self.told, self.job = checkout, random.Random(seed), Counter(), job

    def choose(self) -> None:
        """Something between two runs: another configuration, an edit, the loss of Snakemake's records, or nothing."""
        what = self.random.choice(("configuration", "configuration", "edit", "lost .snakemake", "nothing"))
        self.told[what] += what != "nothing"
        if what == "configuration":
            self.checkout.configure(settings(CONFIGURATIONS[self.told[what] % 2]))
        elif what == "edit":
            file = self.checkout.path / "workflow/shapeline" / self.random.choice(EDITED)
            file.write_text(file.read_text() + "# edited\n")
        elif what == "lost .snakemake":
            shutil.rmtree(self.checkout.path / ".snakemake", ignore_errors=True)

    def run(self) -> None:
        """Start Snakemake, maybe on a disk that is full, and kill its workers, it, or both until it ends."""
        full = self.random.random() < 0.2
        self.told["full disk"] += full
        with open(self.checkout.path / "said", "w") as said:
            process = subprocess.Popen(
                [BIN / "snakemake", "metrics", "--cores", "2"],
                cwd=self.checkout.path,
                env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
                stdout=said,
                stderr=said,
                start_new_session=True,
                preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, SMALL))) if full else None,
            )
        self.told["runs"] += 1
        try:
            while process.poll() is None:
                time.sleep(self.random.uniform(0.1, 1.2) * self.job if self.kills < KILLS else 0.1)
                self.strike(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.mend((self.checkout.path / "said").read_text())

    def strike(self, process: subprocess.Popen) -> None:
        workers = workers_in(self.checkout)
        what = self.random.choices(("worker", "server", "Snakemake", "interrupt", "nothing"), (6, 1, 1, 1, 2))[0]
        if self.kills >= KILLS:  # all that is left is a job of the last rule, which no run came to under so many
            what, workers = "worker", [worker for worker in workers if rule_of(worker) == "measure_scores"]
        if not workers:
            return
        if what == "worker":
            with contextlib.suppress(psutil.Error):
                struck = self.random.choice(workers)
                rule = rule_of(struck)
                struck.kill()
                self.told["kills of a worker"] += 1
                self.told[f"of {rule}"] += 1
        elif what == "server":  # that has the libraries of the jobs, which are forks of it
            with contextlib.suppress(psutil.Error, StopIteration):
                below = psutil.Process(process.pid).children()
                next(one for one in below if "serve" in one.cmdline()).kill()
                self.told["kills of the server"] += 1
        elif what == "Snakemake":
            process.kill()
            self.told["kills of Snakemake at work"] += 1
            psutil.wait_procs(workers, timeout=60)
        elif what == "interrupt":
            os.killpg(process.pid, signal.SIGINT)
            self.told["interrupts"] += 1
            process.wait(timeout=120)

    def mend(self, said: str) -> None:
        """Apply the remedy of an error line, as a user would; the next run handles the rest."""
        for files in re.findall(r"^  rm (.*)$", said, re.M):
            self.told["told to remove"] += 1
            for name in files.split():
                (self.checkout.path / name).unlink()
        for name in re.findall(r"(\S+) is damaged", said):
            (self.checkout.path / name).unlink(missing_ok=True)

    @property
    def kills(self) -> int:
        return sum(self.told[f"kills of {what}"] for what in ("a worker", "the server", "Snakemake at work"))


def finished(checkout: Checkout, reference: str) -> dict:
    """The scores of a configuration, once a run of it has ended undisturbed."""
    checkout.configure(settings(reference))
    ended = checkout.snakemake("metrics", "--cores", "2", check=False, timeout=1200)
    if "  rm " in ended.stderr or " is damaged" in ended.stderr:  # of no record, or of a full disk, once
        Chaos.mend(Chaos(checkout, 0), ended.stderr)
        ended = checkout.snakemake("metrics", "--cores", "2", timeout=1200)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "Nothing to be done" in checkout.snakemake("metrics", "-n").stdout
    return tables(checkout)


def test_after_all_faults_every_score_is_that_of_an_undisturbed_run(root, tmp_path, record_property):
    places = [copy_repository(root, tmp_path / name) for name in ("chaos", "undisturbed")]
    for place in places:
        (place.path / "slow.py").write_text(MODEL)
        place.configure(settings(CONFIGURATIONS[0]))
    began = time.monotonic()
    undisturbed = {CONFIGURATIONS[0]: finished(places[1], CONFIGURATIONS[0])}
    job = 2 * (time.monotonic() - began) / len([*places[1].path.glob("results/benchmarks/**/*.tsv")])  # two at a time
    chaos = Chaos(places[0], int(os.environ.get("CHAOS_SEED", "0")), job)
    until = time.monotonic() + 60 * MINUTES
    while time.monotonic() < until and (chaos.kills < KILLS or not chaos.told["of measure_scores"]):
        chaos.run()
        chaos.choose()
    undisturbed[CONFIGURATIONS[1]] = finished(places[1], CONFIGURATIONS[1])
    for reference, theirs in undisturbed.items():
        ours = finished(places[0], reference)
        assert set(ours) == set(theirs) and len(ours) == 4
        for entry, table in ours.items():
            other = theirs[entry]
            assert table.drop(columns="scores").equals(other.drop(columns="scores")) or entry.startswith("network"), (
                entry
            )
            chaos.told["rows compared"] += len(table)
            tolerance = 0 if entry.startswith("function") else 1e-5  # a network's form is the fastest of the day
            np.testing.assert_allclose(scores.matrix(table), scores.matrix(other), rtol=0, atol=tolerance)
        chaos.told["score files compared"] += len([*places[0].path.glob("results/[!.]*/scores/*/*.parquet")])
    figures = ", ".join(f"{what} {count}" for what, count in chaos.told.items())
    record_property("told", f"chaos: {figures}")
    print(f"\nchaos: {figures}")
    assert chaos.kills >= 20, figures
