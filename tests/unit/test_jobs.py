"""Devices are taken through locks, stale locks of a killed run go, files appear whole or not at all."""

import os
import socket

import pytest

from shapeline import files, jobs


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(jobs, "_held", [])
    yield
    for lock in jobs._held:
        lock.release()


def test_no_gpu_means_the_cpu(monkeypatch, caplog):
    jobs.log.propagate = True
    with caplog.at_level("INFO", "shapeline"):
        assert jobs.acquire_device(1) == "cpu"
    assert "no GPU is visible: running on the CPU" in caplog.text


def test_a_job_that_asks_for_none_hides_the_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert jobs.acquire_device(0) == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_two_jobs_take_two_devices_and_a_third_waits(monkeypatch):
    taken = []
    for _ in range(2):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
        assert jobs.acquire_device(1) == "cuda"
        taken.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert taken == ["GPU-a", "GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    monkeypatch.setattr(jobs.time, "sleep", lambda _: jobs._held[1].release())  # while it waits, another job ends
    assert jobs.acquire_device(1) == "cuda"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"


def test_slurm_has_picked_already(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert jobs.acquire_device(1) == "cuda"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize(
    ("owners", "released"),
    [
        ([], False),  # nobody noted: not ours to remove
        (["{host}@4194304@1.00"], True),  # a dead run of this machine
        (["elsewhere@1@1.00"], False),  # on another machine, who knows
        (["{host}@4194304@1.00", "{host}@{parent}@{born}"], False),  # one is dead, another alive
    ],
)
def test_a_lock_goes_only_when_its_owner_is_surely_dead(tmp_path, owners, released):
    folder = tmp_path / ".snakemake"
    (folder / "locks").mkdir(parents=True)
    (folder / "locks" / "0.input.lock").touch()
    (folder / "owners").mkdir()
    born = f"{jobs.psutil.Process(os.getppid()).create_time():.2f}"
    for owner in owners:
        (folder / "owners" / owner.format(host=socket.gethostname(), parent=os.getppid(), born=born)).touch()
    assert jobs.release_stale_locks(folder) is released
    assert bool(list((folder / "locks").iterdir())) is not released
    assert jobs.release_stale_locks(folder) is False


def test_atomic_files_are_whole_or_absent(tmp_path):
    with pytest.raises(RuntimeError), files.atomic(tmp_path / "card.json") as path:
        path.write_text("half")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with files.atomic(tmp_path / "card.json") as path:
        path.write_text("whole")
    assert [file.name for file in tmp_path.iterdir()] == ["card.json"]


def test_progress_tells_rate_and_time_left(caplog):
    jobs.log.propagate = True
    tell = jobs.progress(10, every=0)
    with caplog.at_level("INFO", "shapeline"):
        tell(5, 1000)
    assert "5/10 instances" in caplog.text
    assert "evaluations/s" in caplog.text
    assert "s left" in caplog.text
