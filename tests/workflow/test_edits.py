"""The edit matrix: after an edit exactly the jobs that depend on it would run again, and nothing else."""

import copy
import os
import shutil
from contextlib import contextmanager

import pytest

from tests.workflow.conftest import TINY

pytestmark = pytest.mark.xdist_group("tiny")  # one run of the tiny configuration serves them all
R = "results/tiny"
REPORT = {
    ("render_report", "results/reports/tiny.html"),
    ("render_report", "results/reports/tiny.ipynb"),
    ("render_report", "results/reports/tiny_files"),
    ("render_index", "results/reports/index.html"),
    ("render_index", "results/reports/index_files"),
}
THEORY = {  # its checks use the designs
    ("render_theory", "results/reports/theory.html"),
    ("render_theory", "results/reports/theory.ipynb"),
    ("render_theory", "results/reports/theory_files"),
    ("render_index", "results/reports/index.html"),
    ("render_index", "results/reports/index_files"),
}


def scores(*labels: str, shards: int = 1) -> set:
    return {("attribute", f"{R}/scores/{label}/{i}-of-{shards}.parquet") for label in labels for i in range(shards)}


def measured(metric: str, *labels: str) -> set:
    return {("measure", f"{R}/metrics/{metric}/{label}.parquet") for label in labels}


def compared(*metrics: str) -> set:
    return {("compare", f"{R}/metrics/{metric}.parquet") for metric in metrics}


def of_label(label: str) -> set:
    """What depends on one label that is not the truth of the error metric."""
    return (
        scores(label)
        | {job for metric in ("log_odds", "error", "cost") for job in measured(metric, label)}
        | compared("log_odds", "error", "cost")
        | REPORT
    )


@contextmanager
def edited(checkout, raw=None, files=()):
    """The checkout with another configuration or changed files, put back as it was, times and all."""
    kept = {name: (checkout.path / name).read_bytes() for name in ["config.yaml", *files]}
    times = {name: os.stat(checkout.path / name) for name in kept}
    try:
        if raw is not None:
            checkout.configure(raw)
        yield
    finally:
        for name, content in kept.items():
            (checkout.path / name).write_bytes(content)
            os.utime(checkout.path / name, ns=(times[name].st_atime_ns, times[name].st_mtime_ns))


def changed(**keys) -> dict:
    """TINY with values set at dotted paths (double underscores for the dots); None removes."""
    raw = copy.deepcopy(TINY)
    for path, value in keys.items():
        *parents, last = path.split("__")
        node = raw
        for part in parents:
            node = node.setdefault(part, {})
        if value is None:
            del node[last]
        else:
            node[last] = value
    return raw


def test_a_second_run_does_nothing(tiny):
    assert tiny.pending() == set()
    assert "Nothing to be done" in (tiny.snakemake("--cores", "2").stderr)


E_ = "experiments__tiny__"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(changed(**{E_ + "methods__kernel__budget": 8}), of_label("kernel"), id="method parameter"),
        pytest.param(
            changed(**{E_ + "methods__more": {"method": "sample_shapley"}}), of_label("more"), id="new method"
        ),
        pytest.param(
            changed(**{E_ + "methods__occlusion": None}),
            compared("log_odds", "error", "cost") | REPORT,
            id="removed method",
        ),
        pytest.param(
            changed(**{E_ + "metrics__error__top": 0.5}),
            measured("error", "kernel", "occlusion") | compared("error") | REPORT,
            id="metric option",
        ),
        pytest.param(changed(**{E_ + "report": {"title": "Another title"}}), REPORT, id="report option"),
        pytest.param(
            changed(**{E_ + "shards": 3}),
            scores("exact", "kernel", "occlusion", shards=3)
            | measured("log_odds", "exact", "kernel", "occlusion")
            | measured("cost", "exact", "kernel", "occlusion")
            | measured("error", "kernel", "occlusion")
            | compared("log_odds", "error", "cost")
            | REPORT,
            id="shard count of one experiment",
        ),
        pytest.param(changed(**{E_ + "budget": 8}), of_label("kernel"), id="budget of the experiment"),
        pytest.param({key: TINY[key] for key in reversed(TINY)}, set(), id="reordered sections"),
        pytest.param(
            changed(**{E_ + "methods": dict(reversed(TINY["experiments"]["tiny"]["methods"].items()))}),
            set(),
            id="reordered keys",
        ),
        pytest.param(changed(**{E_ + "budget": 4.0}), set(), id="4 written as 4.0"),
        pytest.param(changed(**{E_ + "metrics__error__top": 0.2}), set(), id="a default written out"),
        pytest.param(changed(device="cpu"), set(), id="another device"),
        pytest.param(changed(data={"mirror": "somewhere"}), set(), id="a mirror"),
    ],
)
def test_an_edited_configuration(tiny, raw, expected):
    with edited(tiny, raw):
        assert tiny.pending() == expected


def test_a_comment(tiny):
    with edited(tiny):
        with open(tiny.path / "config.yaml", "a") as file:
            file.write("# a comment\n")
        assert tiny.pending() == set()


def test_a_touched_script_and_module(tiny):
    names = ["workflow/scripts/attribute.py", "workflow/shapeline/engine.py", "workflow/shapeline/designs/sampled.py"]
    with edited(tiny, files=names):
        for name in names:
            os.utime(tiny.path / name)
        assert tiny.pending() == set()


def append(tiny, name: str, text: str = "\n# edited\n") -> None:
    with open(tiny.path / name, "a") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("workflow/shapeline/designs/sampled.py", of_label("kernel") | THEORY),
        ("workflow/shapeline/metrics/error.py", measured("error", "kernel", "occlusion") | compared("error") | REPORT),
        # The theory page is drawn by modules that know how wide an interval is, which that one says.
        ("workflow/shapeline/metrics/compare.py", compared("log_odds", "error", "cost") | REPORT | THEORY),
        ("workflow/shapeline/plots.py", REPORT | THEORY),
        ("workflow/shapeline/methods.py", set()),
        ("workflow/shapeline/config.py", set()),
        ("workflow/shapeline/jobs.py", set()),
        ("workflow/scripts/compare.py", compared("log_odds", "error", "cost") | REPORT),
    ],
)
def test_an_edited_module_runs_again_what_it_makes(tiny, name, expected):
    with edited(tiny, files=[name]):
        append(tiny, name)
        assert tiny.pending() == expected


def test_an_edited_notebook(tiny):
    name = "notebooks/report.ipynb"
    with edited(tiny, files=[name]):
        append(tiny, name, "\n")
        assert tiny.pending() == REPORT


def test_an_edited_script_of_attribution_runs_every_label(tiny):
    name = "workflow/scripts/attribute.py"
    with edited(tiny, files=[name]):
        append(tiny, name)
        assert {job for job in tiny.pending() if job[0] == "attribute"} == scores("exact", "kernel", "occlusion")


def test_a_lost_record_with_an_edited_configuration_stops_and_names_what_is_stale(tiny):
    kept = tiny.path / ".snakemake"
    shutil.move(kept, tiny.path / "elsewhere")
    try:
        assert tiny.pending() == set(), tiny.snakemake("-n").stdout  # nothing edited: nothing to say
        with edited(tiny, changed(**{E_ + "methods__kernel__budget": 8})):
            stopped = tiny.snakemake("-n", check=False)
            said = stopped.stdout + stopped.stderr
            assert stopped.returncode
            assert f"rm {R}/scores/kernel/0-of-1.parquet results/reports/tiny.ipynb && snakemake" in said
            assert "scores/exact" not in said
    finally:
        shutil.rmtree(kept)
        shutil.move(tiny.path / "elsewhere", kept)
