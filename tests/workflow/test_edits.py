"""The edit matrix: after an edit exactly the jobs that depend on it would run again, and nothing else."""

import copy
import json
import os
import re
import shutil
import time
from collections import Counter
from contextlib import contextmanager

import networkx
import pytest

from shapeline.config import validation
from shapeline.workflow import job_code, runs
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


def scores(*entries: str, shards: int = 1) -> set:
    return {("attribute", f"{R}/scores/{entry}/{i}-of-{shards}.parquet") for entry in entries for i in range(shards)}


def measured(*entries: str) -> set:
    """One job per entry for all metrics that evaluate the model."""
    return {("measure", f"{R}/metrics/measured/{entry}.parquet") for entry in entries}


# One job for all metrics that read scores alone, and one that compares: what reads one of their files reads them all.
COMPARED = {("compare", f"{R}/metrics/compared.parquet")} | REPORT
MEASURED = {("measure_scores", f"{R}/metrics/measured.parquet")} | COMPARED
ENTRIES = ("exact", "kernel", "occlusion")


def of_values() -> set:
    """What depends on the values of coalitions: the instances, every entry, every metric."""
    return {("select_instances", f"{R}/instances.parquet")}.union(*map(of_entry, ENTRIES))


def of_model() -> set:
    """The model, and what depends on it."""
    return of_values() | {
        ("train_model", f"results/models/cnn/{name}") for name in ("weights.safetensors", "card.json")
    }


def of_data() -> set:
    """The data, and what depends on them: everything but the theory's page."""
    return of_model() | {("prepare_dataset", f"data/prepared/digits38/{name}") for name in ("arrays.npz", "card.json")}


def of_entry(entry: str) -> set:
    """What depends on one entry that is not the truth of the error metric."""
    return scores(entry) | measured(entry) | MEASURED


@contextmanager
def edited(checkout, raw=None, files=()):
    """Yield the checkout with another configuration or changed files, and restore it with its times."""
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
        pytest.param(changed(**{E_ + "methods__kernel__budget": 8}), of_entry("kernel"), id="method parameter"),
        pytest.param(
            changed(**{E_ + "methods__more": {"method": "sample_shapley"}}), of_entry("more"), id="new method"
        ),
        pytest.param(changed(**{E_ + "methods__occlusion": None}), MEASURED, id="removed method"),
        pytest.param(changed(**{E_ + "metrics__error__top": 0.5}), MEASURED, id="metric option"),
        pytest.param(changed(**{E_ + "metrics__efficiency": {}}), MEASURED, id="new metric"),
        pytest.param(changed(**{E_ + "metrics__log_odds": None}), COMPARED, id="removed metric that asks the model"),
        pytest.param(changed(**{E_ + "report": {"title": "Another title"}}), REPORT, id="report option"),
        pytest.param(
            changed(**{E_ + "shards": 3}),
            scores(*ENTRIES, shards=3) | measured(*ENTRIES) | MEASURED,
            id="shard count of one experiment",
        ),
        pytest.param(changed(**{E_ + "budget": 8}), of_entry("kernel"), id="budget of the experiment"),
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
        "workflow/shapeline/games/game.py",
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
        ("shapeline/designs/sampled.py", of_entry("kernel") | THEORY),
        ("shapeline/designs/surrogate.py", THEORY),  # a family that no entry here is of
        ("shapeline/games/game.py", of_values()),
        ("shapeline/models/architectures.py", of_model()),
        ("shapeline/datasets/scikit_learn.py", of_data()),
        ("shapeline/metrics/error.py", MEASURED),
        ("shapeline/metrics/loaders.py", measured(*ENTRIES) | COMPARED),
        ("shapeline/statistics/comparison.py", COMPARED | THEORY),  # intervals of accuracies, which all pages share
        ("shapeline/report/figures/lines.py", REPORT | THEORY),
        ("scripts/compare.py", COMPARED),
    ],
)
def test_an_edited_module_runs_again_what_it_makes(tiny, name, expected):
    name = f"workflow/{name}"
    with edited(tiny, files=[name]):
        append(tiny, name)
        assert tiny.pending() == expected


NO_NUMBER = (
    *(
        "config/types.py",
        "config/derived.py",
        "workflow/job_code.py",
        "workflow/job_environment.py",
        "errors.py",
    ),  # plumbing, messages
    *("methods/registry.py", "methods/parameters.py", "metrics/registry.py", "datasets/registry.py"),
    *(
        "datasets/mnist.py",
        "datasets/text_sources.py",
        "datasets/registry.py",
    ),  # other datasets' readers, and a refusal
    *("games/tf_backend.py", "models/keras_models.py", "gradients/torch_gradients.py"),  # of no entry here
    *("report/sections/points.py", "designs/__init__.py", "api/call.py"),
)


def test_edits_of_what_decides_no_number_here_run_nothing(tiny):
    names = [f"workflow/shapeline/{name}" for name in NO_NUMBER]
    with edited(tiny, files=names):
        for name in names:
            append(tiny, name)
        assert tiny.pending() == set()


def rules_run(done) -> Counter:
    """Return the jobs of a run by rule, as Snakemake reports them."""
    return Counter(re.findall(r"^(?:local)?rule ([\w-]+):", done.stderr, re.M))


COMPUTED = re.compile(r" (?:rows of )?(\S+): (\d+) (?:rows )?computed, (\d+) reused$", re.M)


def computed_rows(checkout, since: float) -> dict[str, list[int]]:
    """How many rows each job since a moment computed and how many it found: by entry of scores, by metric and entry of
    measurements that evaluate the model, and by metric of the others."""
    found = {}
    for log in (checkout.path / "results/logs").glob("*/**/*.log"):  # of rules with wildcards
        rule, *_, entry = log.relative_to(checkout.path / "results/logs").with_suffix("").parts
        if log.stat().st_mtime >= since:
            for what, new, old in COMPUTED.findall(log.read_text()):
                name = log.parent.name if rule == "attribute" else f"{what} {entry}" if rule == "measure" else what
                before = found.get(name, [0, 0])  # of other shards, models and labels
                found[name] = [before[0] + int(new), before[1] + int(old)]
    return found


@pytest.fixture(scope="module")
def copied(tiny, tmp_path_factory) -> Checkout:
    """A copy of the run, in which edits are run in earnest; what each computed stays in the row store."""
    other = Checkout(tmp_path_factory.mktemp("edits") / "copy")
    shutil.copytree(tiny.path, other.path, symlinks=True)  # with the files' times
    return other


def all_rows(entries=ENTRIES, number: int = 12) -> dict:
    """The rows of labels and all that is measured of them."""
    found = {entry: number for entry in entries} | {f"log_odds {entry}": number for entry in entries}
    return found | {"error": 12 * sum(entry != "exact" for entry in entries), "cost": 12 * len(entries)}


ROWS = [
    ("method parameter", changed(**{E_ + "methods__kernel__budget": 8}), None, all_rows(["kernel"])),
    ("new method", changed(**{E_ + "methods__more": {"method": "banzhaf"}}), None, all_rows(["more"])),
    ("removed method", changed(**{E_ + "methods__occlusion": None}), None, {}),
    ("the same method again", changed(**{E_ + "methods__again": {"method": "occlusion"}}), None, {}),
    ("metric option", changed(**{E_ + "metrics__error__top": 0.5}), None, {"error": 24}),
    ("option of a metric of the model", changed(**{E_ + "metrics__log_odds": {"fractions": [0.5]}}), None,
     {f"log_odds {entry}": 12 for entry in ENTRIES}),
    ("new metric", changed(**{E_ + "metrics__efficiency": {}}), None, {"efficiency": 36}),
    ("another number of shards", changed(**{E_ + "shards": 3}), None, {}),
    ("one more instance", changed(**{E_ + "instances": {"count": 13}}), None,
     all_rows(number=1) | {"error": 26, "cost": 39}),
    ("one more repeat", changed(**{E_ + "repeats": 2}), None,
     all_rows(["kernel"]) | {"error": 24, "cost": 24}),
    ("one more training", changed(**{E_ + "training_seeds": 2}), None, all_rows() | {"cost": 0}),
    # The scores are the same as before, and so are their measurements; the seconds are not, which some metrics read.
    ("a design", None, "designs/sampled.py", {"kernel": 12, "error": 12, "cost": 12}),
    ("the engine", None, "games/game.py", all_rows()),
    ("a metric", None, "metrics/error.py", {"error": 24}),
    ("what loads the model", None, "metrics/loaders.py", {f"log_odds {entry}": 12 for entry in ENTRIES}),
    ("the comparison", None, "statistics/comparison.py", {}),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "module", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_an_edit_computes_its_own_rows_and_finds_the_others(copied, raw, module, expected):
    files = [f"workflow/shapeline/{module}"] if module else []
    with edited(copied, raw, files):
        for name in files:
            append(copied, name)
        since = time.time()
        copied.snakemake("metrics", "--cores", "2")
        done = computed_rows(copied, since)
        assert {name: new for name, (new, _) in done.items() if new} == {name: n for name, n in expected.items() if n}
        assert all(old for name, (new, old) in done.items() if name not in expected)


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
    shutil.copy(other.path / package / "datasets/scikit_learn.py", other.path / package / "datasets/more_digits.py")
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


def test_files_of_stored_rows_have_the_same_bytes(copied, tiny):
    """Nothing that depends on them is rendered again."""
    files = [file.relative_to(copied.path) for file in (copied.path / R).rglob("*.parquet") if "metrics" in file.parts]
    copied.configure(TINY)
    copied.snakemake("metrics", "--cores", "2", "--forcerun", "attribute")
    for file in files:
        if (tiny.path / file).exists():
            assert (copied.path / file).read_bytes() == (tiny.path / file).read_bytes(), file


def test_jobs_import_nothing_that_their_digest_lacks(tiny, monkeypatch):
    """Modules that are loaded by name too, which a scan of imports does not see."""
    monkeypatch.chdir(job_code.PACKAGE.parents[1])
    config = validation.load(copy.deepcopy(TINY))

    def measured_by(metrics, experiment):
        return [
            file for name in metrics(config, experiment) for file in job_code.measure_code(config, experiment, name)
        ]

    tracked_of = {
        "prepare_dataset": lambda given: job_code.prepare_code(config, given["dataset"]),
        "train_model": lambda given: job_code.train_code(config, given["model"]),
        "select_instances": lambda given: job_code.select_code(config, given["experiment"]),
        "attribute": lambda given: job_code.attribute_code(config, given["experiment"], given["method"]),
        "measure": lambda given: measured_by(runs.list_model_metrics, given["experiment"]),
        "measure_scores": lambda given: measured_by(runs.list_score_metrics, given["experiment"]),
        "compare": lambda given: job_code.list_sources(*job_code.list_script_modules("compare")),
    }
    # What the plumbing imports of itself, and what reads the kinds of data that this job has none of.
    plumbing = ("shapeline.workflow.job_code", "shapeline.workflow.job_environment")
    unused = {*job_code.OF_KIND["text"]}.union(*(networkx.descendants(house(), name) for name in plumbing))
    seen, lacking = set(), {}
    for file in (tiny.path.parent / "imported").glob("*.json"):
        job = json.loads(file.read_text())
        rule = job["rule"]
        if rule not in tracked_of:
            continue
        seen.add(rule)
        files = {os.path.abspath(name) for name in tracked_of[rule](job["wildcards"])}
        imported = {name: job_code.find_module_file(name) for name in job["modules"] if name not in unused}
        counted = {name for name, file in imported.items() if not job_code._is_untracked(file)}
        lacking |= {(rule, name): job for name in counted if str(imported[name]) not in files}
    assert not lacking
    assert seen == set(tracked_of)


def test_an_edited_notebook(tiny):
    name = "notebooks/report.ipynb"
    with edited(tiny, files=[name]):
        append(tiny, name, "\n")
        assert tiny.pending() == REPORT


def test_an_edited_script_of_attribution_runs_every_method(tiny):
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
            [files] = re.findall(r"^  rm (.*)$", said, re.M)  # with all that depends on the scores
            results = ("metrics/measured/kernel.parquet", "metrics/measured.parquet", "metrics/compared.parquet")
            wanted = {
                f"{R}/scores/kernel/0-of-1.parquet",
                "results/reports/tiny.ipynb",
                *(f"{R}/{one}" for one in results),
            }
            assert wanted <= set(files.split()) and "scores/exact" not in said
        with edited(tiny, changed(**{E_ + "metrics__efficiency": {}})):  # which the page lacks, as new as it is
            stopped = tiny.snakemake("-n", check=False)
            said = stopped.stdout + stopped.stderr
            files = f"{R}/metrics/measured.parquet {R}/metrics/compared.parquet results/reports/tiny.ipynb"
            assert stopped.returncode and f"  rm {files}\n" in said
    finally:
        shutil.rmtree(kept)
        shutil.move(tiny.path / "elsewhere", kept)
