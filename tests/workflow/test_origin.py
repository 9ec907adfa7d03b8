"""Files of another job with unchanged times, and labels of two models: a run stops and names them."""

import os
import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest

from shapeline import scores

from .conftest import Checkout

pytestmark = pytest.mark.xdist_group("tiny")  # one run of the tiny configuration serves them all
R = "results/tiny"


def put(source, target, change=None) -> None:
    """The content of a file, changed, under another's name and with the time of that."""
    told, before = scores.metadata(source), os.stat(target)
    table = pq.read_table(source)
    rows = table.to_pandas()
    if change:
        change(rows, told)
    scores.write(target, pd.DataFrame(rows), told)
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_files_of_other_jobs_are_never_measured_or_compared(tiny, tmp_path):
    copy = Checkout(tmp_path / "copy")
    shutil.copytree(tiny.path, copy.path, symlinks=True)
    kernel, exact = (copy.path / R / f"scores/{entry}/0-of-1.parquet" for entry in ("kernel", "exact"))
    kept = tmp_path / "kernel.parquet"
    shutil.copy2(kernel, kept)
    put(copy.path / R / "scores/occlusion/0-of-1.parquet", kernel)
    wanted = f"{R}/metrics/measured.parquet"
    stopped = copy.snakemake("--forcerun", wanted, "--until", wanted, "--cores", "2", check=False)
    assert stopped.returncode and f"{R}/scores/kernel/0-of-1.parquet: is of method 'occlusion'" in stopped.stderr

    def older(rows, told):
        told["settings_digest"] = "older"

    shutil.copy2(kept, kernel)
    put(kernel, kernel, older)
    stopped = copy.snakemake("--forcerun", wanted, "--until", wanted, "--cores", "2", check=False)
    assert stopped.returncode and f"{R}/scores/kernel/0-of-1.parquet: is of settings 'older'" in stopped.stderr

    shutil.copy2(tiny.path / wanted, copy.path / wanted)  # which Snakemake removes of a job that failed
    page = ("results/reports/tiny.html", "--forcerun", "render_report", "--allowed-rules", "render_report")
    stopped = copy.snakemake(*page, "--cores", "1", check=False)
    assert stopped.returncode and f"{R}/scores/kernel/0-of-1.parquet: is of settings 'older'" in stopped.stderr

    def other_model(rows, told):
        rows["value_full"] -= 0.01

    shutil.copy2(kept, kernel)
    put(kernel, kernel, other_model)
    stopped = copy.snakemake("--forcerun", wanted, "--until", wanted, "--cores", "2", check=False)
    assert stopped.returncode
    assert f"{R}/scores/exact/0-of-1.parquet and {R}/scores/kernel/0-of-1.parquet are of other models" in stopped.stderr
    assert f"rm {R}/scores/exact/0-of-1.parquet {R}/scores/kernel/0-of-1.parquet && snakemake" in stopped.stderr
    assert exact.exists()
