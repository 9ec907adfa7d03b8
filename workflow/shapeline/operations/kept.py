"""Finished files that a run makes anew: kept until the new ones are there, put back where the run stops before.

Snakemake removes the outputs of a job before its script starts, and again when it fails. Its flag `update()` leaves
them, but of a failed job it then records the old file as made with the new settings (Snakemake 9.27: Job.postprocess
calls persistence.finished with `error` too), and calls it up to date from then on. So every output that is there is
linked before the run, with Snakemake's own record of it, and both are put back together.
"""

import atexit
import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from shapeline.files import atomic
from shapeline.operations.jobs import KEPT, is_gone, kept_name, owner
from shapeline.plan.records import record_of


def keep(jobs: Iterable[Iterable[str]]) -> None:
    """Keep what is there of the outputs of each job; jobs: their outputs, those of one job together.

    A link takes no room and no time; where the disk has none, a file is copied. What cannot be kept is not. When this
    process ends, `put_back` is called.
    """
    atexit.register(_put_back_at_the_end, os.getcwd())
    for number, outputs in enumerate(jobs):
        there = [os.fspath(path) for path in outputs if os.path.exists(path)]
        if not there:
            continue
        place = KEPT / owner() / kept_name(number, Path(there[0]).parent)
        with contextlib.suppress(OSError):
            place.mkdir(parents=True)
            for i, path in enumerate(there):
                _link(Path(path), place / f"{i}")
                if (record := record_of(path)).exists():
                    shutil.copy2(record, place / f"{i}.record")
            (place / "outputs.json").write_text(json.dumps(there), encoding="utf-8")  # last: now it is whole


def put_back(of_this_run: bool = False) -> None:
    """Put back what runs that are gone have not made anew, or what this one has not, and forget the rest.

    Of a job that has not finished, all that was kept is put back, so that its files are of one making; with their old
    records the next run makes them anew, unless what had changed is as before. Outputs of other jobs stay as they are.
    """
    for folder in KEPT.glob("*"):
        if (folder.name == owner()) if of_this_run else is_gone(folder):
            with contextlib.suppress(OSError):  # the next run tries again
                for listed in folder.glob("*/outputs.json"):
                    _put_back(listed.parent, json.loads(listed.read_text(encoding="utf-8")))
                shutil.rmtree(folder)


def _put_back_at_the_end(folder: str) -> None:
    with contextlib.chdir(folder):  # Snakemake has left it
        put_back(of_this_run=True)


def _put_back(place: Path, outputs: list[str]) -> None:
    markers = [record_of(path, "incomplete") for path in outputs]
    if all(map(os.path.exists, outputs)) and not any(marker.exists() for marker in markers):
        return  # made anew, or never begun
    for i, path in enumerate(outputs):
        _link(place / f"{i}", Path(path))
        record, old = record_of(path), place / f"{i}.record"
        if old.exists():
            record.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(old, record)
        else:
            record.unlink(missing_ok=True)
    for marker in markers:  # last: while one is there, Snakemake makes the file anew
        marker.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    """The same file, or folder of files, at another place, whole or not at all, and as old."""
    with atomic(target) as partial:
        if not source.is_dir():
            _link_file(source, partial)
            return
        shutil.copytree(source, partial, copy_function=_link_file)
        if target.exists():
            shutil.rmtree(target)


def _link_file(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)
