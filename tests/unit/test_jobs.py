"""Devices are acquired by locks, stale locks of a killed run are removed, and files are complete or absent."""

import contextlib
import importlib
import os
import platform
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shapeline import files
from shapeline.config import mistakes
from shapeline.errors import ShapelineError
from shapeline.workflow import job_environment
from shapeline.workflow.job_environment import acquire_device, check_device, list_visible_devices


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(job_environment.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(job_environment, "_locks", [])
    job_environment._list_gpus.cache_clear()
    yield
    for lock in job_environment._locks:
        lock.release()


def test_no_gpu_means_the_cpu(monkeypatch, caplog):
    job_environment.log.propagate = True
    with caplog.at_level("INFO", "shapeline"):
        assert acquire_device(1) == "cpu"
    assert "no GPU is visible: running on the CPU" in caplog.text


def test_a_job_without_a_gpu_hides_the_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert acquire_device(0) == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_two_jobs_take_two_devices_and_a_third_waits(monkeypatch):
    taken = []
    for _ in range(2):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
        assert acquire_device(1) == "cuda"
        taken.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert taken == ["GPU-a", "GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    monkeypatch.setattr(
        job_environment.time, "sleep", lambda _: job_environment._locks[1].release()
    )  # while it waits, another job ends
    assert acquire_device(1) == "cuda"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"


def test_slurm_has_selected_the_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert acquire_device(1) == "cuda"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert not job_environment._locks


HOLDER = """
import logging, os, sys
from shapeline.workflow import job_environment
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
job_environment.acquire_device(1, jobs_per_gpu=2)
sys.stdin.read()
"""
HASTY = """
import os, sys, time
from pathlib import Path
from shapeline.workflow import job_environment
names, sleep = os.environ["CUDA_VISIBLE_DEVICES"], time.sleep
job_environment.time.sleep = lambda _: sleep(0.001)
for _ in range(25):
    os.environ["CUDA_VISIBLE_DEVICES"] = names
    job_environment.acquire_device(1)
    busy = Path(sys.argv[1], os.environ["CUDA_VISIBLE_DEVICES"])
    busy.touch(exist_ok=False)
    sleep(0.002)
    busy.unlink()
    job_environment._locks.pop().release()
"""


def start(code: str, folder, visible: str) -> subprocess.Popen:
    environment = {**os.environ, "TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": visible}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-uc", code, str(folder)], env=environment, text=True, **pipes)


def test_processes_share_the_slots_of_each_gpu_and_the_kernel_frees_those_of_a_killed_one(tmp_path):
    holders = [start(HOLDER, tmp_path, "GPU-a,MIG-b/1/0") for _ in range(6)]
    try:
        said = {holder: holder.stdout.readline().strip() for holder in holders}
        on = {name: [h for h in holders if said[h] == f"running on GPU {name}"] for name in ("GPU-a", "MIG-b/1/0")}
        assert [len(found) for found in on.values()] == [2, 2]
        waiting = [holder for holder in holders if said[holder] == "waiting for one of 2 GPU(s)"]
        assert len(waiting) == 2
        on["MIG-b/1/0"][0].send_signal(signal.SIGKILL)
        on["GPU-a"][1].stdin.close()  # ends by itself
        assert sorted(holder.stdout.readline().strip() for holder in waiting) == [
            "running on GPU GPU-a",
            "running on GPU MIG-b/1/0",
        ]
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def test_no_two_processes_are_ever_on_one_slot(tmp_path):
    workers = [start(HASTY, tmp_path, "0,1") for _ in range(4)]
    for worker in workers:
        _, said = worker.communicate(timeout=60)
        assert worker.returncode == 0, said


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("GPU 0: NVIDIA H200 (UUID: GPU-1f-2)\nGPU 1: NVIDIA H200 (UUID: GPU-3)\n", ["GPU-1f-2", "GPU-3"]),
        (
            "GPU 0: NVIDIA A100 (UUID: GPU-1)\n  MIG 3g.20gb Device 0: (UUID: MIG-2)\n"
            "  MIG 3g.20gb Device 1: (UUID: MIG-GPU-1/5/0)\nGPU 1: NVIDIA A100 (UUID: GPU-3)\n",
            ["MIG-2", "MIG-GPU-1/5/0", "GPU-3"],
        ),
        ("No devices found.\n", []),
    ],
)
def test_without_a_list_nvidia_smi_is_queried_and_a_split_gpu_counts_as_its_parts(tmp_path, monkeypatch, listed, names):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '%s' '{listed}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert list_visible_devices() == names


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_framework_that_cannot_use_the_gpu_runs_on_the_cpu_with_a_warning(monkeypatch, caplog, framework):
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    tf = SimpleNamespace(config=SimpleNamespace(list_physical_devices=lambda kind: []))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "shapeline.models.keras_models", SimpleNamespace(tf=tf))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    job_environment.log.propagate = True
    assert acquire_device(1) == "cuda"
    lock = job_environment._locks[0]
    assert check_device(framework) == "cpu"
    assert (
        f"{framework} cannot use the GPU (a build for the CPU, or an unfit driver): running on the CPU" in caplog.text
    )
    assert not lock.is_locked
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    with pytest.raises(ShapelineError, match=r"device: cuda, but .* cannot use the GPU .*; set device: auto"):
        check_device(framework, required=True)


RULE = r"^(?:rule|use rule \w+ as) (\w+)(?: with)?:\n(.*?)(?=^\S|\Z)"  # one that is made of another asks as it does


def test_only_jobs_that_run_a_model_request_a_gpu(root):
    asking, found = set(), set()
    for file in (root / "workflow/rules").glob("*.smk"):
        for name, body in re.findall(RULE, file.read_text(), re.M | re.S):
            found.add(name)
            asking |= {name} if re.search(r"^ {8}gpu=", body, re.M) else set()
    assert found >= set(mistakes.RULES)
    games = {"select_instances", "evaluate_game"}  # of an experiment with a game, whose values may need one
    assert asking == {"train_model", "attribute", "measure", *games}


@pytest.mark.parametrize(
    ("owners", "released"),
    [
        ([], False),  # nobody noted: not ours to remove
        (["{host}@4194304@1.00"], True),  # a dead run of this machine
        (["elsewhere@1@1.00"], False),  # on another machine, who knows
        (["{host}@4194304@1.00", "{host}@{parent}@{born}"], False),  # one is dead, another alive
    ],
)
def test_a_lock_is_removed_only_after_the_end_of_its_owner(tmp_path, owners, released):
    folder = tmp_path / ".snakemake"
    (folder / "locks").mkdir(parents=True)
    (folder / "locks" / "0.input.lock").touch()
    (folder / "owners").mkdir()
    born = f"{job_environment.psutil.Process(os.getppid()).create_time():.2f}"
    for owner in owners:
        (folder / "owners" / owner.format(host=socket.gethostname(), parent=os.getppid(), born=born)).touch()
    assert job_environment.release_stale_locks(folder) is released
    assert bool(list((folder / "locks").iterdir())) is not released
    assert job_environment.release_stale_locks(folder) is False


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(job_environment.gc, "freeze", lambda: None)
    monkeypatch.setattr(job_environment.gc, "set_threshold", lambda *_: None)
    Path(".snakemake").touch()
    with pytest.raises(SystemExit, match=r"cannot be written .*; run in a folder that you can write"):
        job_environment.prepare_process(True)


def test_a_killed_run_is_recorded_until_the_concurrent_run_ends(tmp_path):
    """Its locks stay as long; forgotten before, they would have stayed for ever."""
    owners, parent = tmp_path / "owners", job_environment.psutil.Process(os.getppid())
    for folder in (tmp_path / "locks", owners):
        folder.mkdir()
    (tmp_path / "locks" / "0.input.lock").touch()
    (owners / f"{socket.gethostname()}@4194304@1.00").touch()
    alive = owners / f"{socket.gethostname()}@{parent.pid}@{parent.create_time():.2f}"
    alive.touch()
    assert job_environment.release_stale_locks(tmp_path) is False
    alive.unlink()
    assert job_environment.release_stale_locks(tmp_path) is True and not [*(tmp_path / "locks").iterdir()]


@pytest.mark.parametrize(("note", "kept"), [("{host}@{parent}@{born}", True), ("elsewhere@1@1.00", False)])
def test_only_an_unreachable_run_expires_after_a_week(tmp_path, note, kept):
    locks, owners = tmp_path / "locks", tmp_path / "owners"
    locks.mkdir()
    owners.mkdir()
    (locks / "0.input.lock").touch()
    parent = job_environment.psutil.Process(os.getppid())
    old = owners / note.format(host=socket.gethostname(), parent=parent.pid, born=f"{parent.create_time():.2f}")
    dead = owners / f"{socket.gethostname()}@4194304@1.00"
    for file in (old, dead):
        file.touch()
        os.utime(file, (file.stat().st_mtime - 8 * 86400,) * 2)
    assert job_environment.release_stale_locks(tmp_path) is not kept
    assert old.exists() is (locks / "0.input.lock").exists() is kept


def test_atomic_files_are_complete_or_absent(tmp_path):
    with pytest.raises(RuntimeError), files.atomic(tmp_path / "card.json") as path:
        path.write_text("half")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with (
        pytest.raises(ShapelineError, match=r"card.json: cannot be written; name"),
        files.atomic(tmp_path / "card.json"),
    ):
        raise OSError(30, "Read-only file system")
    with files.atomic(tmp_path / "card.json") as path:
        path.write_text("whole")
    assert [file.name for file in tmp_path.iterdir()] == ["card.json"]


FAILING = """
import sys
from types import SimpleNamespace
from shapeline.errors import ShapelineError
from shapeline.workflow import job_environment

job = SimpleNamespace(
    log=[sys.argv[1]], rule="measure", wildcards=["tiny"], input={}, output=[], threads=1, resources={"device": "cpu"}
)
job_environment.start(job)
job_environment.log.info("begun")
raise ShapelineError("results/x: no space left")
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full is Linux's")
def test_a_log_that_cannot_be_written_leaves_the_cause_on_the_terminal(tmp_path):
    for log, told in (("/dev/full", "[measure tiny] error: results/x: no space left\n"), (tmp_path / "log", "")):
        environment = {**os.environ, job_environment.ERRORS_ARE_REPORTED: "1"}
        ended = subprocess.run(
            [sys.executable, "-c", FAILING, str(log)], env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 1 and ended.stderr == told
    assert job_environment.find_cause([tmp_path / "log"]) == "results/x: no space left"


def test_byte_code_that_a_full_disk_cut_short_is_named(tmp_path, monkeypatch):
    """Python writes as much of it as there is space for, and reads it ever after."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cut_short.py").write_text("x = 1\n" * 100)
    importlib.import_module("cut_short")
    cached = Path(sys.modules.pop("cut_short").__cached__)
    cached.write_bytes(cached.read_bytes()[:40])
    with pytest.raises(EOFError) as failure:
        importlib.import_module("cut_short")
    cause = job_environment.describe_cause(failure.value)
    assert cause == f"{cached} is damaged (byte code that a full disk cut short); remove it and run again"
    assert job_environment.describe_cause(EOFError("no more")) == "EOFError: no more"


def test_no_file_appears_once_an_input_of_the_job_changed(tmp_path, monkeypatch):
    given, made = tmp_path / "given.py", tmp_path / "made"
    given.write_text("1")
    monkeypatch.setattr(files, "before_any", [job_environment.watch_inputs([given, tmp_path / "none", tmp_path])])
    for edited in ("1", "2"):
        with contextlib.suppress(ShapelineError), files.atomic(made) as partial:
            partial.write_text(edited)
            if edited == "2":
                given.write_text("12")
    assert made.read_text() == "1" and sorted(tmp_path.iterdir()) == [given, made]
    with pytest.raises(ShapelineError, match=r"given\.py: was changed while this job ran"), files.atomic(made):
        pass


def test_progress_reports_rate_and_remaining_time(caplog):
    job_environment.log.propagate = True
    tell = job_environment.progress(10, every=0)
    with caplog.at_level("INFO", "shapeline"):
        tell(5, 1000)
    assert "5/10 instances" in caplog.text
    assert "evaluations/s" in caplog.text
    assert "s left" in caplog.text


FAULTS = """
import resource, sys
from shapeline import memory
if sys.argv[1] == "kept":
    memory.keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    bytearray(b"x") * (1 << 26)  # more than the C library keeps by itself
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_freed_memory_is_used_again_without_the_system():
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], check=True, capture_output=True).stdout)
        for how in ("kept", "given back")
    )
    assert kept < given_back / 5


def test_a_crash_leaves_its_place_in_the_log(tmp_path):
    crashing = FAILING[: FAILING.index("raise ")] + "import os\nos.abort()\n"
    ended = subprocess.run([sys.executable, "-c", crashing, str(tmp_path / "log")], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGABRT and "Fatal" not in ended.stderr
    lines = job_environment.read_last_lines([tmp_path / "log", tmp_path / "none"])
    assert len(lines) == 3 and lines[0] == "Fatal Python error: Aborted" and 'File "<string>"' in lines[2]
    (tmp_path / "log").write_text("2026-01-01 10:00:00 1/9 instances\n\n2026-01-01 10:00:01 begun\n")
    assert job_environment.read_last_lines([tmp_path / "log"]) == ["1/9 instances", "begun"]
