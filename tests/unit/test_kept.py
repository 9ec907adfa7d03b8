"""What a run makes anew is kept until the new file is there."""

import os
import shutil
import socket

import pytest

from shapeline.operations import jobs, kept
from shapeline.plan.records import record_of

OLD = 1_600_000_000.0


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Two outputs of one job, a file and a folder, with Snakemake's records of them, kept by this run."""
    monkeypatch.chdir(tmp_path)
    os.makedirs("out/parts")
    for path in ("out/page", "out/parts/figure"):
        with open(path, "w") as file:
            file.write("old")
        os.utime(path, (OLD, OLD))
    for path in ("out/page", "out/parts"):
        record_of(path).parent.mkdir(parents=True, exist_ok=True)
        record_of(path).write_text("old record")
    kept.keep([["out/page", "out/parts", "out/never_made"], ["of/another"]])
    return tmp_path


def begin() -> None:
    """As Snakemake begins a job: its outputs are gone and marked incomplete."""
    os.unlink("out/page")
    shutil.rmtree("out/parts")
    for path in ("out/page", "out/parts"):
        record_of(path, "incomplete").parent.mkdir(parents=True, exist_ok=True)
        record_of(path, "incomplete").touch()


def end(record: str = "new record") -> None:
    """As Snakemake ends it: recorded, whether it succeeded or failed, and no longer marked."""
    for path in ("out/page", "out/parts"):
        record_of(path, "incomplete").unlink()
        record_of(path).write_text(record)


def read() -> list[str]:
    contents = []
    for path in ("out/page", "out/parts/figure"):
        with open(path) as file:
            contents.append(file.read())
    return contents


def assert_as_before():
    assert read() == ["old", "old"]
    assert [os.stat(path).st_mtime for path in ("out/page", "out/parts/figure")] == [OLD, OLD]
    assert {record_of(path).read_text() for path in ("out/page", "out/parts")} == {"old record"}
    assert not any(record_of(path, "incomplete").exists() for path in ("out/page", "out/parts"))
    assert not list(jobs.KEPT.iterdir())
    assert not [name for _, folders, files in os.walk("out") for name in (*folders, *files) if name.startswith(".")]


def test_a_job_that_has_not_begun_is_left_alone(made):
    kept.put_back(of_this_run=True)
    assert_as_before()


def test_what_an_interrupted_job_removed_comes_back(made):
    begin()
    kept.put_back(of_this_run=True)
    assert_as_before()


def test_what_is_half_made_anew_comes_back_with_the_rest(made):
    begin()
    os.mkdir("out/parts")
    with open("out/parts/figure", "w") as file:
        file.write("new")
    kept.put_back(of_this_run=True)
    assert_as_before()


def test_a_failed_job_leaves_the_old_file_with_its_old_record(made):
    """Snakemake records the settings of a job that failed; beside the old file they would call it up to date."""
    begin()
    end(record="of the failed job")
    kept.put_back(of_this_run=True)
    assert_as_before()


def test_what_is_made_anew_stays(made):
    begin()
    os.mkdir("out/parts")
    for path in ("out/page", "out/parts/figure"):
        with open(path, "w") as file:
            file.write("new")
    end()
    kept.put_back(of_this_run=True)
    assert read() == ["new", "new"]
    assert record_of("out/page").read_text() == "new record"
    assert not list(jobs.KEPT.iterdir())


def test_the_next_run_puts_back_what_a_killed_one_kept_and_leaves_a_living_one_alone(made):
    begin()
    kept.put_back()
    assert not os.path.exists("out/page")  # this run lives, and makes it
    (jobs.KEPT / jobs.owner()).rename(jobs.KEPT / f"{socket.gethostname()}@4194304@1.00")
    kept.put_back()
    assert_as_before()


def test_without_links_files_are_copied(made, monkeypatch):
    def refuse(*_):
        raise OSError("cross-device link")

    begin()
    monkeypatch.setattr(os, "link", refuse)
    kept.put_back(of_this_run=True)
    assert_as_before()


def test_a_disk_that_keeps_nothing_stops_no_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("file", "w"):
        pass
    jobs.KEPT.parent.mkdir()
    jobs.KEPT.touch()  # no folder can be made below it
    kept.keep([["file"]])
    kept.put_back(of_this_run=True)
    assert os.path.exists("file")
