"""Killed, out of step, or badly fed: nothing lost, one clear line, and the next call goes on."""

import copy
import os
import signal
import subprocess
import time

import psutil
import pytest

from tests.workflow.conftest import BIN, TINY


def slow() -> dict:
    """One label in several shards, each some seconds long."""
    raw = copy.deepcopy(TINY)
    raw["experiments"]["tiny"] |= {
        "features": {"kind": "patch", "size": 2},
        "instances": {"count": 50},
        "methods": {"exact": {"method": "shapley"}},
        "metrics": {"cost": {}},
        "shards": 5,
    }
    return raw


def shards(checkout) -> dict:
    folder = checkout.path / "results/tiny/scores/exact"
    return {file.name: file.stat().st_mtime_ns for file in sorted(folder.glob("*.parquet"))}


def settled(checkout) -> dict:
    """Shards that Snakemake has surely taken note of: it does so in the moment after the worker's end."""
    return {name: time_ns for name, time_ns in shards(checkout).items() if time.time_ns() - time_ns > 2e9}


def wait_for(what, seconds: float = 120):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("waited in vain")


def workers_in(checkout) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "name"]):
        line = " ".join(process.info["cmdline"] or ())
        if (
            process.info["cwd"] == str(checkout.path)
            and ".snakemake/scripts" in line
            and "python" in process.info["name"]
        ):
            found.append(process)
    return found


@pytest.fixture
def running(fresh):
    """Snakemake at work on the slow configuration, with at least one shard finished and another under way."""
    fresh.configure(slow())
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        [BIN / "snakemake", "scores", "--cores", "2"],
        cwd=fresh.path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: settled(fresh) and workers_in(fresh))
    yield fresh, process
    process.kill()
    process.wait()


def test_a_killed_worker_costs_its_shard_alone(running):
    checkout, process = running
    before = settled(checkout)
    youngest = max(workers_in(checkout), key=psutil.Process.create_time)
    youngest.send_signal(signal.SIGKILL)
    process.wait(timeout=240)
    assert not list(checkout.path.glob("results/tiny/scores/exact/.*"))
    checkout.snakemake("scores", "--cores", "2")
    after = shards(checkout)
    assert len(after) == 5
    assert {name: after[name] for name in before} == before


def test_a_killed_snakemake_takes_its_workers_along_and_the_next_call_resumes(running):
    checkout, process = running
    before = settled(checkout)
    process.kill()
    process.wait()
    wait_for(lambda: not workers_in(checkout), seconds=20)
    assert len(shards(checkout)) < 5
    resumed = checkout.snakemake("scores", "--cores", "2")
    assert "its lock is removed" in resumed.stderr
    after = shards(checkout)
    assert len(after) == 5
    assert {name: after[name] for name in before} == before


def test_a_wrong_configuration_stops_before_any_job(fresh):
    raw = copy.deepcopy(TINY)
    raw["experiments"]["tiny"]["methods"]["kernel"]["method"] = "kernel_shp"
    raw["sead"] = 1
    fresh.configure(raw)
    stopped = fresh.snakemake("--cores", "1", check=False)
    assert stopped.returncode
    assert "experiments.tiny.methods.kernel: unknown method 'kernel_shp'. Did you mean 'kernel_shap'?" in stopped.stderr
    assert "sead: unknown key. Did you mean 'seed'?" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert not (fresh.path / "results").exists()


def test_a_missing_download_says_where_to_place_the_file(fresh):
    raw = copy.deepcopy(TINY)
    raw["datasets"]["digits38"] = {"source": "mnist", "classes": [3, 8]}
    raw["models"]["cnn"] = {"dataset": "digits38", "architecture": "mnist_cnn"}
    raw["experiments"]["tiny"]["features"] = {"kind": "patch", "size": 14}
    raw["data"] = {"offline": True}
    fresh.configure(raw)
    stopped = fresh.snakemake("fetch", "--cores", "1", check=False)
    assert stopped.returncode
    assert "data/raw/mnist/train-images-idx3-ubyte.gz" in stopped.stderr
    assert "f68b3c2dcbeaaa9fbdd348bbdeb94873" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert not [file for file in fresh.path.glob("data/raw/**/*") if file.is_file()]


def test_a_model_that_returns_nan_is_named_with_its_instance(fresh):
    raw = copy.deepcopy(TINY)
    raw["models"]["cnn"] = {"dataset": "digits38", "source": "own.py:network", "training": {"epochs": 1}}
    (fresh.path / "own.py").write_text(
        "import torch\n\n\n"
        "class Broken(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(64, 2)\n\n"
        "    def forward(self, x):\n"
        "        out = self.layer(x.flatten(1))\n"
        "        return out if self.training or len(x) == 1 else out * float('nan')\n\n\n"
        "def network():\n"
        "    return Broken()\n"
    )
    fresh.configure(raw)
    stopped = fresh.snakemake("scores", "--cores", "1", check=False)
    assert stopped.returncode
    assert "own.py:network" in stopped.stderr
    assert "nan" in stopped.stderr.lower()


@pytest.mark.xdist_group("tiny")
def test_without_a_gpu_the_run_says_that_it_uses_the_cpu(tiny):
    told = tiny.snakemake(
        "all", "--cores", "2", "--resources", "gpu=2", "--forcerun", "attribute", env={"CUDA_VISIBLE_DEVICES": ""}
    )
    assert "running on the CPU" in told.stderr
