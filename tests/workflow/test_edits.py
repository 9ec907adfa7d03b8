"""The edit matrix: after an edit exactly the jobs that depend on it would run again, and nothing else."""

import copy
import functools
import json
import os
import re
import shutil
from collections import Counter
from contextlib import contextmanager

import networkx
import pytest

from shapeline.config import validation
from shapeline.operations.work import kind_of
from shapeline.plan import code, runs, tracked
from tests.unit.test_architecture import house
from tests.workflow.conftest import TINY, Checkout

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


def measured_together(*labels: str) -> set:
    """What one job measures of each label without the model; no error of the truth."""
    return measured("cost", *labels) | measured("error", *(label for label in labels if label != "exact"))


def compared() -> set:
    """One job for all metrics: a second's work, and all that reads one of its files reads them all."""
    return {("compare", f"{R}/metrics/{metric}.parquet") for metric in ("log_odds", "error", "cost")}


LABELS = ("exact", "kernel", "occlusion")


def asked(*labels: str) -> set:
    """The metric that asks the model, of labels, and what depends on it."""
    return measured("log_odds", *labels) | compared() | REPORT


def of_values() -> set:
    """What depends on the values of coalitions: the instances, every label, every metric."""
    return {("select_instances", f"{R}/instances.parquet")}.union(*map(of_label, LABELS))


def of_model() -> set:
    """The model, and what depends on it."""
    return of_values() | {
        ("train_model", f"results/models/cnn/{name}") for name in ("weights.safetensors", "card.json")
    }


def of_data() -> set:
    """The data, and what depends on them: everything but the theory's page."""
    return of_model() | {("prepare_dataset", f"data/prepared/digits38/{name}") for name in ("arrays.npz", "card.json")}


def of_label(label: str) -> set:
    """What depends on one label that is not the truth of the error metric."""
    return scores(label) | measured("log_odds", label) | measured_together(label) | compared() | REPORT


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
            compared() | REPORT,
            id="removed method",
        ),
        pytest.param(
            changed(**{E_ + "metrics__error__top": 0.5}),
            measured_together("kernel", "occlusion") | compared() | REPORT,
            id="metric option",
        ),
        pytest.param(
            changed(**{E_ + "metrics__efficiency": {}}),
            measured_together(*LABELS)
            | measured("efficiency", *LABELS)
            | compared()
            | {("compare", f"{R}/metrics/efficiency.parquet")}
            | REPORT,
            id="new metric",
        ),
        pytest.param(
            changed(**{E_ + "metrics__log_odds": None}),
            {job for job in compared() if "log_odds" not in job[1]} | REPORT,
            id="removed metric that asks the model",
        ),
        pytest.param(changed(**{E_ + "report": {"title": "Another title"}}), REPORT, id="report option"),
        pytest.param(
            changed(**{E_ + "shards": 3}),
            scores("exact", "kernel", "occlusion", shards=3)
            | measured("log_odds", "exact", "kernel", "occlusion")
            | measured_together("exact", "kernel", "occlusion")
            | compared()
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
    names = [
        "workflow/scripts/attribute.py",
        "workflow/shapeline/engine/question.py",
        "workflow/shapeline/designs/sampled.py",
    ]
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
        ("shapeline/designs/sampled.py", of_label("kernel") | THEORY),
        ("shapeline/designs/surrogate.py", THEORY),  # a family that no label here is of
        ("shapeline/engine/question.py", of_values()),
        ("shapeline/models/architectures.py", of_model()),
        ("shapeline/datasets/digits.py", of_data()),
        ("shapeline/metrics/error.py", measured_together("kernel", "occlusion") | compared() | REPORT),
        ("shapeline/metrics/loaders.py", asked(*LABELS)),
        ("shapeline/statistics/comparison.py", compared() | REPORT),
        ("shapeline/report/figures/lines.py", REPORT | THEORY),
        ("scripts/compare.py", compared() | REPORT),
    ],
)
def test_an_edited_module_runs_again_what_it_makes(tiny, name, expected):
    name = f"workflow/{name}"
    with edited(tiny, files=[name]):
        append(tiny, name)
        assert tiny.pending() == expected


NO_NUMBER = (
    *("config/types.py", "config/derived.py", "plan/code.py", "operations/jobs.py", "errors.py"),  # plumbing, messages
    *("methods/registry.py", "methods/parameters.py", "metrics/registry.py", "datasets/registry.py"),
    *("datasets/mnist.py", "datasets/imdb.py", "datasets/fits.py"),  # other datasets' readers, and a refusal
    *("engine/tf_backend.py", "models/keras_models.py", "gradients/torch_gradients.py"),  # of no label here
    *("report/sections/influence.py", "designs/__init__.py", "report/python/call.py"),
)


def test_edits_of_what_decides_no_number_here_run_nothing(tiny):
    names = [f"workflow/shapeline/{name}" for name in NO_NUMBER]
    with edited(tiny, files=names):
        for name in names:
            append(tiny, name)
        assert tiny.pending() == set()


def rules_run(done) -> Counter:
    """The jobs of a run by what they do, as Snakemake itself says it."""
    return Counter(map(kind_of, re.findall(r"^(?:local)?rule ([\w-]+):", done.stderr, re.M)))


ENTRY = """
SOURCES["more_digits"] = dataclasses.replace(
    SOURCES["digits"], name="more_digits", module="shapeline.datasets.more_digits", licence="another"
)
SOURCES["digits"] = dataclasses.replace(SOURCES["digits"], licence="another")
"""


def test_a_new_dataset_and_an_edited_loader_are_run_and_nothing_else_is(tiny, tmp_path):
    """In a copy, and in earnest: one file and one entry more, another licence, another loader of metrics."""
    other = Checkout(tmp_path / "copy")
    shutil.copytree(tiny.path, other.path, symlinks=True)  # with the files' times
    package = "workflow/shapeline"
    shutil.copy(other.path / package / "datasets/digits.py", other.path / package / "datasets/more_digits.py")
    append(other, f"{package}/datasets/registry.py", ENTRY)
    append(other, f"{package}/metrics/loaders.py")
    other.configure(changed(datasets__more={"source": "more_digits", "classes": [3, 8]}))
    made = "data/prepared/more/card.json"
    done = other.snakemake("all", made, "--cores", "2", "--printshellcmds")  # as Snakemake itself says it
    jobs = rules_run(done)
    once = ("prepare_dataset", "compare", "render_report", "render_index")
    assert jobs == {"measure": 3, **dict.fromkeys(once, 1), "all": 1}
    assert (other.path / made).exists() and other.pending() == set()
    for file in (other.path / R).glob("scores/*/*.parquet"):
        assert file.stat().st_mtime_ns == (tiny.path / file.relative_to(other.path)).stat().st_mtime_ns


def test_what_an_option_does_not_change_keeps_its_bytes(tiny, tmp_path):
    """In a copy, and in earnest: one job measures a label by all metrics that ask no model."""
    other = Checkout(tmp_path / "copy")
    shutil.copytree(tiny.path, other.path, symlinks=True)
    other.configure(changed(**{E_ + "metrics__error__top": 0.5}))
    once = ("compare", "render_report", "render_index", "all")
    done = other.snakemake("all", "--cores", "2", "--printshellcmds")
    assert rules_run(done) == {"measure": 2, **dict.fromkeys(once, 1)}
    files = [file.relative_to(tiny.path) for file in (tiny.path / R / "metrics").rglob("*.parquet")]
    stayed = {str(file) for file in files if (tiny.path / file).read_bytes() == (other.path / file).read_bytes()}
    error = {f"{R}/metrics/error.parquet", *(f"{R}/metrics/error/{label}.parquet" for label in ("kernel", "occlusion"))}
    assert {str(file) for file in files} - stayed == error


def test_jobs_import_nothing_that_their_digest_lacks(tiny, monkeypatch):
    """Modules that are loaded by name too, which a scan of imports does not see."""
    monkeypatch.chdir(tracked.PACKAGE.parents[1])
    config = validation.load(copy.deepcopy(TINY))
    free = functools.partial(runs.free_metrics, config)
    tracked_of = {
        "prepare_dataset": lambda given: code.prepare_code(config, given["dataset"]),
        "train_model": lambda given: code.train_code(config, given["model"]),
        "select_instances": lambda given: code.select_code(config, given["experiment"]),
        "attribute": lambda given: code.attribute_code(config, given["experiment"], given["label"]),
        "measure": lambda given: [
            file
            for metric in ([given["metric"]] if "metric" in given else free(given["experiment"], given["label"]))
            for file in code.measure_code(config, given["experiment"], metric)
        ],
        "compare": lambda given: tracked.sources(*code.script_modules("compare")),
    }
    # What the plumbing imports of itself, and what reads the kinds of data that this job has none of.
    plumbing = ("shapeline.plan.code", "shapeline.operations.jobs")
    unused = {*code.OF_KIND["text"]}.union(*(networkx.descendants(house(), name) for name in plumbing))
    seen, lacking = set(), {}
    for file in (tiny.path.parent / "imported").glob("*.json"):
        job = json.loads(file.read_text())
        rule = kind_of(job["rule"])
        if rule not in tracked_of:
            continue
        seen.add(rule)
        files = {os.path.abspath(name) for name in tracked_of[rule](job["wildcards"])}
        imported = {name: tracked.module_file(name) for name in job["modules"] if name not in unused}
        counted = {name for name, file in imported.items() if not tracked._untracked(file)}
        lacking |= {(rule, name): job for name in counted if str(imported[name]) not in files}
    assert not lacking
    assert seen == set(tracked_of)


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
        with edited(tiny, changed(**{E_ + "metrics__efficiency": {}})):  # which the page lacks, as new as it is
            stopped = tiny.snakemake("-n", check=False)
            said = stopped.stdout + stopped.stderr
            assert stopped.returncode and "rm results/reports/tiny.ipynb && snakemake" in said
    finally:
        shutil.rmtree(kept)
        shutil.move(tiny.path / "elsewhere", kept)
