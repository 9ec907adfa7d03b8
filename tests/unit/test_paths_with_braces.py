"""User files in folders and with names that Snakemake would read as wildcards."""

import os

import pytest

from shapeline.methods.registry import METHODS
from shapeline.workflow.runs import as_inputs


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    folder = tmp_path / "{run}"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_other_paths_stay_as_they_are():
    assert as_inputs(["a b/d.csv", "/x/é'q.csv"]) == ["a b/d.csv", "/x/é'q.csv"]


def test_the_folder_of_the_run_may_have_braces(in_folder):
    assert as_inputs([f"{in_folder}/d.csv", f"{in_folder}/a/b.csv"]) == ["d.csv", "a/b.csv"]


def test_a_name_with_braces_is_reached_by_a_link_that_shows_its_changes(in_folder):
    named = in_folder / "{a}" / "{b}.csv"
    named.parent.mkdir()
    named.write_text("1")
    [link] = as_inputs([str(named)])
    assert "{" not in link and os.path.samefile(link, named) and os.lstat(link).st_mtime == 0
    assert os.stat(link).st_mtime_ns == named.stat().st_mtime_ns
    assert as_inputs([str(named)]) == as_inputs(["{a}/{b}.csv"]) == [link]
    [folder] = as_inputs(["{a}"])
    assert "{" not in folder and os.listdir(folder) == ["{b}.csv"]


def test_a_missing_file_keeps_its_name():
    assert as_inputs(["{a}/none.csv"]) == ["{a}/none.csv"]


def test_a_custom_method_may_have_braces_in_its_path(in_folder):
    (in_folder / "{n}.py").write_text("def halves(d, budget, rng): ...\n")
    assert METHODS["{n}.py:halves"].function_for("torch") == "{n}.py:halves"
    assert METHODS["occlusion"].function_for("tensorflow").count("{") == 0
