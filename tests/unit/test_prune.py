"""Files that the configuration no longer names are listed and removed, and no others."""

import os
import re
from pathlib import Path

import pandas as pd
import pytest

from shapeline import scores
from shapeline.config import validation
from shapeline.workflow import command, jobs


def write(*paths: str) -> None:
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("twelve bytes")


def write_outputs(config, rows: str = "a") -> None:
    """Every file that a configuration names; those of scores and measurements say which rows they hold."""
    for path in jobs.list_outputs(config):
        if re.search("/scores/|/metrics/measured", path):
            scores.write_measured(path, pd.DataFrame(columns=scores.MEASURED.names), {"rows": [rows * 32]})
        else:
            write(path)


@pytest.fixture
def made(default, tmp_path, monkeypatch):
    """The configuration with every file that it names, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    loaded = validation.load(default)
    write_outputs(loaded)
    write("results/reports/index.html", "results/reports/digits.html", "elsewhere/kept.parquet")
    write("results/models/digits_cnn/weights.safetensors", "results/logs/old.log", "results/notes.txt")
    # Of `scale: smoke`, and of the smoke test beside it.
    write("results/smoke/digits/scores/any/0-of-1.parquet", "results/smoke/reports/any.html")
    return loaded


def everything() -> set[str]:
    return {str(path) for path in Path().rglob("*") if path.is_file() or path.is_symlink()}


def test_what_the_configuration_names_stays(made):
    assert command.find_stale(made) == []
    assert command.describe_removal(made) == "results has 0 file(s), 0 B that the configuration does not name"


STALE = [
    "results/digits/scores/gone/0-of-1.parquet",
    "results/digits/scores/exact/0-of-3.parquet",  # of another number of shards
    "results/digits/scores/exact@full/0-of-1.parquet",
    "results/digits/metrics/measured/gone.parquet",
    "results/digits/metrics/cost/exact.parquet",  # of an earlier version
    "results/digits/metrics/cost.parquet",
    "results/digits/scores/exact@seed1/0-of-1.parquet",
    "results/digits/values/0123456789abcdef/16-1f.parquet",
    "results/gone/instances.parquet",
    "results/models/gone/weights.safetensors",
    "results/models/digits_cnn@full/card.json",
    "results/reports/gone.html",
    "results/reports/gone.ipynb",
    "results/digits/scores/exact/.0-of-1.parquet.71.123.tmp",  # of a killed job
    "results/smoke/scores/gone/0-of-1.parquet",
]


def test_the_rest_is_listed_and_removed_with_the_folders_it_leaves_empty(made):
    before = everything()
    write(*STALE)
    assert command.find_stale(made) == sorted(STALE)
    told = command.describe_removal(made)
    assert "results has 15 file(s), 180 B that" in told
    assert "  results/digits/scores/exact: 2 file(s), 24 B" in told
    assert command.remove_files(command.find_stale(made), "results") == 180
    assert everything() == before
    assert not Path("results/gone").exists()
    assert not Path("results/digits/scores/gone").exists()


def test_at_smoke_scale_its_own_folder_is_pruned_and_the_folder_around_it_is_not(made, default):
    small = validation.load({**default, "scale": "smoke"})
    write_outputs(small)
    write("results/smoke/scores/exact/0-of-1.parquet", "results/digits/scores/gone/0-of-1.parquet")
    stale = ["results/smoke/digits/scores/any/0-of-1.parquet", "results/smoke/reports/any.html"]
    assert command.find_stale(small) == stale
    command.remove_files(stale, "results/smoke")
    assert command.find_stale(small) == []
    assert Path("results/digits/scores/gone/0-of-1.parquet").exists()


def test_nothing_outside_the_results_is_touched(made):
    write("elsewhere/scores/gone/0-of-1.parquet")
    Path("results/linked").symlink_to(Path("elsewhere").resolve())
    Path("results/digits/scores/linked").symlink_to(Path("elsewhere/scores/gone").resolve())
    Path("results/digits/scores/gone").mkdir()
    Path("results/digits/scores/gone/0-of-1.parquet").symlink_to(Path("elsewhere/kept.parquet").resolve())
    assert command.find_stale(made) == ["results/digits/scores/gone/0-of-1.parquet"]
    # Also where a list of files says otherwise.
    command.remove_files(
        [*command.find_stale(made), "results/linked/kept.parquet", "elsewhere/kept.parquet"], "results"
    )
    assert {"elsewhere/kept.parquet", "elsewhere/scores/gone/0-of-1.parquet"} <= everything()
    assert not os.path.lexists("results/digits/scores/gone")


def test_rows_are_removed_when_no_file_of_the_configuration_uses_them(made):
    old, used = (f"results/.rows/scores/{letter * 32}/1f.parquet" for letter in "ba")
    partial = f"results/.rows/scores/{'a' * 32}/.1f.parquet.123.tmp"  # of a killed job
    write(old, used, partial, "results/.rows/notes/mine.txt")
    assert command.find_stale(made) == [partial, old]
    os.remove("results/digits/scores/exact/0-of-1.parquet")
    assert command.find_stale(made) == [partial]  # a run that was stopped goes on with them
