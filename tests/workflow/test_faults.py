"""Killed jobs, inconsistent files and bad input: no loss, one clear line, and the next call resumes."""

import copy
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import safetensors.numpy

from shapeline import scores
from shapeline.workflow import jobs
from tests.workflow.conftest import BIN, TINY, Checkout, copy_repository


def slow() -> dict:
    """One method in several shards, each of one image with 65,536 coalitions: a second of work after imports."""
    raw = copy.deepcopy(TINY)
    raw["experiments"]["tiny"] |= {
        "features": {"kind": "patch", "size": 2},
        "instances": {"count": 4},
        "methods": {"exact": {"method": "shapley"}},
        "metrics": {"cost": {}},
        "shards": 4,
    }
    return raw


SHARDS = "results/tiny/scores/exact"
GROUP = pytest.mark.xdist_group("slow")  # one undisturbed run serves them all


def shards(checkout) -> dict:
    return {file.name: file.stat().st_mtime_ns for file in sorted((checkout.path / SHARDS).glob("*.parquet"))}


def record(checkout, name: str) -> Path:
    return checkout.path / jobs.find_record(f"{SHARDS}/{name}")


def settled(checkout) -> dict:
    """Shards that Snakemake has taken note of, which it does in the moment after the worker's end."""
    return {name: time_ns for name, time_ns in shards(checkout).items() if record(checkout, name).exists()}


def wait_for(what, seconds: float = 600):
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


@pytest.fixture(scope="session")
def undisturbed(root, tmp_path_factory) -> Checkout:
    """The slow configuration, run to its scores."""
    checkout = copy_repository(root, tmp_path_factory.mktemp("slow"))
    checkout.configure(slow())
    checkout.snakemake("scores", "--cores", "2")
    return checkout


@pytest.fixture
def done(undisturbed, tmp_path) -> Checkout:
    """A copy of the undisturbed run, times and records included."""
    shutil.copytree(undisturbed.path, tmp_path, symlinks=True, dirs_exist_ok=True)
    return Checkout(tmp_path)


@pytest.fixture
def running(done):
    """Snakemake at work on the scores, with at least one shard finished and another under way; its output in a file."""
    for name in shards(done):
        record(done, name).unlink()
    shutil.rmtree(done.path / SHARDS)
    shutil.rmtree(done.path / "results/.rows")
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with open(done.path / "said", "w") as said:
        process = subprocess.Popen(
            [BIN / "snakemake", "scores", "--cores", "2"], cwd=done.path, env=environment, stdout=said, stderr=said
        )
    wait_for(lambda: settled(done) and workers_in(done))
    yield done, process
    process.kill()
    process.wait()


def assert_as_undisturbed(checkout, undisturbed) -> None:
    """The same numbers as a run that nothing happened to, and no other file beside them."""
    ours, theirs = (scores.read(one.path / SHARDS) for one in (checkout, undisturbed))
    np.testing.assert_array_equal(ours["instance"], theirs["instance"])
    np.testing.assert_allclose(scores.matrix(ours), scores.matrix(theirs), atol=1e-6)
    assert {file.name for file in (checkout.path / SHARDS).iterdir()} == set(shards(undisturbed))


@GROUP
def test_a_killed_worker_loses_only_its_shard(running, undisturbed):
    checkout, process = running
    before = settled(checkout)
    youngest = max(workers_in(checkout), key=psutil.Process.create_time)
    youngest.send_signal(signal.SIGKILL)
    assert process.wait(timeout=240)
    said = (checkout.path / "said").read_text()
    assert re.search(r"\[attribute tiny exact shard \d of 4\] error: ended by (SIGKILL|signal 9)\n", said), said
    checkout.snakemake("scores", "--cores", "2")
    after = shards(checkout)
    assert {name: after[name] for name in before} == before
    assert_as_undisturbed(checkout, undisturbed)


WAITS = """
import time

import numpy as np


def slow(rows):
    time.sleep(0.1)
    score = np.asarray(rows, float).reshape(len(rows), -1).mean(1)
    return np.stack([1 - score, score], 1)
"""


def test_a_killed_worker_loses_the_rows_of_its_last_seconds_alone(fresh):
    raw = copy.deepcopy(TINY)
    raw["models"]["cnn"] = {"dataset": "digits38", "source": "slow.py:slow", "framework": "function"}
    raw["experiments"]["tiny"] |= {"methods": {"exact": {"method": "shapley"}}, "metrics": {"cost": {}}}
    raw["experiments"]["tiny"] |= {"timing": "per_instance"}
    (fresh.path / "slow.py").write_text(WAITS)
    fresh.configure(raw)
    fresh.snakemake("results/tiny/instances.parquet", "--cores", "1")
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen([BIN / "snakemake", "scores", "--cores", "1"], cwd=fresh.path, env=environment)
    wait_for(lambda: [*fresh.path.glob("results/.rows/scores/*/*.parquet")] and workers_in(fresh))
    workers_in(fresh)[0].kill()
    assert process.wait(timeout=60)
    fresh.snakemake("scores", "--cores", "1")
    log = (fresh.path / "results/logs/attribute/tiny/exact/0-of-1.log").read_text()
    computed, found = map(int, re.search(r": (\d+) computed, (\d+) reused", log).groups())
    assert computed + found == 12 and found and computed
    assert len(scores.read(fresh.path / SHARDS)) == 12


@GROUP
def test_a_killed_snakemake_takes_its_workers_along_and_the_next_call_resumes(running, undisturbed):
    checkout, process = running
    refused = checkout.snakemake("scores", "--cores", "1", check=False)  # a second run in the same folder
    assert refused.returncode
    assert "Error: Directory cannot be locked. Please make sure that no other Snakemake process is trying" in (
        refused.stdout + refused.stderr
    )
    assert process.poll() is None
    before = settled(checkout)
    process.kill()
    process.wait()
    wait_for(lambda: not workers_in(checkout), seconds=20)
    resumed = checkout.snakemake("scores", "--cores", "2")
    assert "The last run was killed; its lock is removed and finished files are kept." in resumed.stderr
    after = shards(checkout)
    assert {name: after[name] for name in before} == before
    assert_as_undisturbed(checkout, undisturbed)


@GROUP
def test_an_interrupted_rerun_keeps_every_row_and_the_same_command_finishes(done, undisturbed):
    raw = slow()
    raw["experiments"]["tiny"]["reference"] = "zero"
    done.configure(raw)
    before = shards(done)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    command = [BIN / "snakemake", "scores", "--cores", "2"]
    with open(done.path / "said", "w") as said:
        process = subprocess.Popen(
            command, cwd=done.path, env=environment, stdout=said, stderr=said, start_new_session=True
        )
    try:
        wait_for(lambda: len(shards(done)) < 4 and workers_in(done))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
    after = shards(done)
    assert [name for name in after if after[name] == before[name]]  # those whose jobs had not begun
    said = (done.path / "said").read_text()
    assert re.search(r"^stop(ped|ping after \d running jobs?); the same command resumes$", said, re.M), said
    assert "Traceback" not in said and "Error" not in said
    done.snakemake(*command[1:])
    assert not {name for name, time_ns in shards(done).items() if before[name] == time_ns}
    assert "Nothing to be done" in done.snakemake("-n", "scores").stdout
    done.configure(slow())  # and what was there before the edit is computed no more
    done.snakemake(*command[1:])
    assert_as_undisturbed(done, undisturbed)
    logs = [log.read_text() for log in (done.path / "results/logs/attribute/tiny/exact").iterdir()]
    assert len(logs) == 4 and all(": 0 computed, 1 reused\n" in log for log in logs)


@contextmanager
def mounted(path, *options: str):
    """Something mounted at `path`; skips where that is not allowed."""
    if os.geteuid():
        pytest.skip("only root can mount a file system")
    if subprocess.run(["mount", *options, str(path)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@GROUP
def test_a_full_disk_is_reported_and_leaves_no_partial_file(done, undisturbed):
    for file in (done.path / SHARDS).glob("[23]-of-4.parquet"):
        file.unlink()
    kept = done.path / "kept"
    (done.path / SHARDS).rename(kept)
    (done.path / SHARDS).mkdir()
    with mounted(done.path / SHARDS, "-t", "tmpfs", "-o", "size=16k", "tmpfs"):
        for file in kept.iterdir():
            (done.path / SHARDS / file.name).symlink_to(file)  # links take no space
        (done.path / SHARDS / "filler").write_bytes(bytes(12_000))
        stopped = done.snakemake("scores", "--cores", "1", check=False)
        assert stopped.returncode
        assert "[attribute tiny exact shard 3 of 4] error: [Errno 28]" in stopped.stderr, stopped.stderr[-3000:]
        assert "No space left on device" in stopped.stderr
        assert not [file for file in (done.path / SHARDS).iterdir() if file.name.startswith((".", "2", "3"))]
    shutil.rmtree(done.path / SHARDS)
    kept.rename(done.path / SHARDS)
    done.snakemake("scores", "--cores", "2")
    assert_as_undisturbed(done, undisturbed)


@GROUP
@pytest.mark.parametrize("damage", ["truncated", "flipped bits"])
def test_a_damaged_score_file_is_named_and_recomputed(done, undisturbed, damage):
    file = done.path / SHARDS / "2-of-4.parquet"
    content = bytearray(file.read_bytes())
    for place in range(len(content) // 8, len(content) // 2, 61):  # one alone may hit what is never read
        content[place] ^= 1
    file.write_bytes(content if damage == "flipped bits" else content[: len(content) // 2])
    stopped = done.snakemake("metrics", "--cores", "1", check=False)
    assert stopped.returncode
    assert re.search(rf"{SHARDS}/2-of-4.parquet: damaged \(.*\); remove it and run again", stopped.stderr)
    file.unlink()
    done.snakemake("scores", "--cores", "2")
    assert_as_undisturbed(done, undisturbed)


@GROUP
def test_a_damaged_model_is_named_and_trained_again_to_the_same_scores(done, undisturbed):
    weights = done.path / "results/models/cnn/weights.safetensors"
    content, arrays = weights.read_bytes(), safetensors.numpy.load_file(weights)
    weights.write_bytes(content[: len(content) // 2])
    (done.path / SHARDS / "2-of-4.parquet").unlink()
    stopped = done.snakemake("scores", "--cores", "1", check=False)
    assert stopped.returncode
    assert re.search(
        r"error: models: results/models/cnn/weights.safetensors is damaged \(not a safetensors file: .*\); "
        "remove it and run again, which trains the model again\n",
        stopped.stderr,
    )
    assert "Traceback" not in stopped.stderr
    weights.unlink()
    done.snakemake("scores", "--cores", "2")
    again = safetensors.numpy.load_file(weights)
    assert all(np.array_equal(again[name], array) for name, array in arrays.items())
    assert_as_undisturbed(done, undisturbed)


@GROUP
def test_a_shard_of_other_settings_is_named_and_recomputed(done, undisturbed):
    file = done.path / SHARDS / "2-of-4.parquet"
    rows, about = scores.read(file), scores.metadata(file)
    later = file.stat().st_mtime + 5
    scores.write(file, rows, {**about, "settings_digest": "of a colleague's"})
    os.utime(file, (later, later))
    stopped = done.snakemake("-n", "scores", check=False)
    assert stopped.returncode
    told = "has no record of 1 file made with other settings or code"
    assert f"{told}: {SHARDS}/2-of-4.parquet; remove" in stopped.stderr
    assert f"\n  rm {SHARDS}/2-of-4.parquet" in stopped.stderr
    file.unlink()
    done.snakemake("scores", "--cores", "2")
    assert_as_undisturbed(done, undisturbed)


@GROUP
def test_clocks_that_disagree_run_nothing_again(done):
    files = [file for folder in ("data", "results") for file in sorted((done.path / folder).rglob("*.*"))]
    for i, file in enumerate(files):
        os.utime(file, (time.time(), time.time() + (3600 if i % 2 else -3600)))
    assert "Nothing to be done" in done.snakemake("scores", "--cores", "1").stderr


@GROUP
def test_a_read_only_data_folder_serves_and_is_named_where_it_must_be_written(done, undisturbed):
    (done.path / SHARDS / "2-of-4.parquet").unlink()
    data = done.path / "data"
    with mounted(data, "--bind", str(data)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(data)], check=True)
        done.snakemake("scores", "--cores", "1")
        assert_as_undisturbed(done, undisturbed)
        raw = slow()
        raw["datasets"]["digits38"]["classes"] = [3, 5]
        done.configure(raw)
        stopped = done.snakemake("scores", "--cores", "1", check=False)
        assert stopped.returncode
        assert "Write-protected output files for rule prepare_dataset:" in stopped.stderr
        assert "data/prepared/digits38/arrays.npz" in stopped.stderr.rpartition("affected files:")[2]


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


def test_a_missing_or_damaged_download_says_where_to_place_the_file(fresh):
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

    # Damaged ones, as a disk or a copy by hand leaves them, are found when they are read, whoever placed them.
    names = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    (fresh.path / "data/raw/mnist").mkdir(parents=True, exist_ok=True)
    for name in names:
        (fresh.path / "data/raw/mnist" / name).write_bytes(b"damaged")
    stopped = fresh.snakemake("data/prepared/digits38/arrays.npz", "--cores", "1", check=False)
    told = re.search(r"data/raw/mnist/(\S+): found md5 (\w+) \(7 of .* bytes\), expected \w+; (.*)", stopped.stderr)
    assert told[1] in names and told[2] == hashlib.md5(b"damaged").hexdigest()
    assert told[3] == "delete it, and fetch it again or replace it by hand."
    assert not (fresh.path / "data/prepared/digits38").exists() and "Traceback" not in stopped.stderr


READ = """
import pathlib
import numpy as np

def read():
    here = pathlib.Path(__file__)
    if not pathlib.Path("edited").exists():  # as someone saves the file while the job runs
        pathlib.Path("edited").touch()
        here.write_text(here.read_text().replace("FACTOR = 1", "FACTOR = 3"))
    rows = np.arange(200.0).reshape(100, 2)
    return {"inputs": FACTOR * rows, "labels": (rows[:, 0] > 100).astype(int)}

FACTOR = 1
"""


def test_a_file_that_is_edited_while_its_job_runs_is_read_again(fresh):
    """The job's result from the old file was newer than the edit, and stayed up to date."""
    raw = copy.deepcopy(TINY)
    raw["datasets"]["digits38"] = {"source": "own.py:read"}
    raw["models"]["cnn"] = {"dataset": "digits38", "architecture": "mlp"}
    raw["experiments"]["tiny"]["features"] = {"kind": "column"}
    fresh.configure(raw)
    (fresh.path / "own.py").write_text(READ)
    arrays = "data/prepared/digits38/arrays.npz"
    stopped = fresh.snakemake(arrays, "--cores", "1", check=False)
    assert "own.py: was changed while this job ran" in stopped.stderr and not (fresh.path / arrays).exists()
    fresh.snakemake(arrays, "--cores", "1")
    assert np.load(fresh.path / arrays)["inputs"].max() == 3 * 199


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
    # Nor does a run that fails wait until this hour is over.
    words = ("--cores", "1", "--max-jobs-per-timespan", "300/1h")
    stopped = fresh.snakemake("scores", *words, check=False, timeout=300)
    assert stopped.returncode
    assert "own.py:network" in stopped.stderr
    assert "nan" in stopped.stderr.lower()


@pytest.mark.xdist_group("tiny")
def test_without_a_gpu_the_run_says_that_it_uses_the_cpu(tiny):
    told = tiny.snakemake(
        "all", "--cores", "2", "--resources", "gpu=2", "--forcerun", "attribute", env={"CUDA_VISIBLE_DEVICES": ""}
    )
    assert "running on the CPU" in told.stderr
    for page in ("tiny", "index"):
        assert f"\npage: results/reports/{page}.html\n" in told.stderr
    assert re.search(r"\n\d+ jobs done\n(flagged: .*\n)*open results/reports/index.html\n$", told.stderr)


@pytest.mark.xdist_group("tiny")
def test_prune_lists_and_removes_what_the_configuration_no_longer_names(tiny, tmp_path):
    shutil.copytree(tiny.path, tmp_path, symlinks=True, dirs_exist_ok=True)
    checkout = Checkout(tmp_path)
    assert "results has 0 file(s), 0 B that the configuration does not name" in checkout.shapeline("prune", "-n").stdout
    raw = copy.deepcopy(TINY)
    del raw["experiments"]["tiny"]["methods"]["occlusion"]
    checkout.configure(raw)
    files = {file for file in checkout.path.glob("results/**/occlusion*/**/*.parquet")}
    files |= set(checkout.path.glob("results/tiny/metrics/*/occlusion.parquet"))
    [key] = scores.metadata(checkout.path / "results/tiny/scores/occlusion/0-of-1.parquet")["rows"]
    files |= set(checkout.path.glob(f"results/.rows/scores/{key}/*.parquet"))
    assert len(files) == 3
    listed = checkout.shapeline("prune", "-n").stdout
    assert "results has 3 file(s)" in listed
    assert "results/tiny/scores/occlusion: 1 file(s)" in listed
    assert all(map(os.path.exists, files))
    before = {file for file in checkout.path.glob("results/**/*") if file.is_file()}
    (checkout.path / ".snakemake/locks").mkdir(exist_ok=True)
    (checkout.path / ".snakemake/locks/0.input.lock").touch()
    assert "a run works in this folder" in checkout.shapeline("prune", check=False).stderr
    (checkout.path / ".snakemake/locks/0.input.lock").unlink()
    assert "removed 3 file(s), " in checkout.shapeline("prune").stdout
    after = {file for file in checkout.path.glob("results/**/*") if file.is_file()}
    assert before - after == files
    assert not (checkout.path / "results/tiny/scores/occlusion").exists()


def test_more_instances_than_the_test_part_has_stop_before_the_training(fresh):
    raw = copy.deepcopy(TINY)
    raw["experiments"]["tiny"]["instances"]["count"] = 5000
    fresh.configure(raw)
    failed = fresh.snakemake("--cores", "1", check=False)
    line = "experiments.tiny.instances.count: 5000 requested, the test split has 107; lower the count, or set fewer_ok"
    assert failed.returncode and line in failed.stdout + failed.stderr
    assert not list((fresh.path / "results/models").rglob("*.safetensors"))
    raw["experiments"]["tiny"]["instances"]["fewer_ok"] = True
    fresh.configure(raw)
    fresh.snakemake("--cores", "1", "results/tiny/instances.parquet")
