"""A copy of the repository with a tiny configuration, run once; tests edit it and list the jobs that would run."""

import compileall
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from shapeline.fork_server import server as fork_server
from tests.fixtures import fork_server_program

BIN = Path(sys.executable).parent

TINY = {
    "run": ["tiny"],
    "datasets": {"digits38": {"source": "digits", "classes": [3, 8]}},
    "models": {"cnn": {"dataset": "digits38", "architecture": "digits_cnn", "training": {"epochs": 2}}},
    "experiments": {
        "tiny": {
            "model": "cnn",
            "features": {"kind": "patch", "size": 4},
            "instances": {"count": 12},
            "methods": {
                "exact": {"method": "shapley"},
                "kernel": {"method": "kernel_shap"},
                "occlusion": {"method": "occlusion"},
            },
            "metrics": {"log_odds": {}, "error": {"reference": "exact"}, "cost": {}},
        }
    },
}


# Python reads a sitecustomize when it starts, and the tests' server before a job: of every job, what it has imported of
# the package when it ends.
IMPORTED = """
import atexit, json, os, sys

def note():
    job = getattr(sys.modules["__main__"], "snakemake", None)
    if job is not None:
        names = sorted(name for name in sys.modules if name.startswith("shapeline."))
        told = {"rule": job.rule, "wildcards": dict(job.wildcards.items()), "modules": names}
        with open(os.path.join(os.environ["IMPORTED"], f"{os.getpid()}.json"), "w") as file:
            json.dump(told, file)

atexit.register(note)
"""


@functools.cache
def server_folder() -> str:
    """Return the folder of the sockets of a server that forks Snakemake and its jobs; one per process of tests."""
    folder = tempfile.mkdtemp(prefix="shapeline-")
    # Which ends with this process, when its input does.
    server_folder.server = fork_server.launch(folder, program=fork_server_program.__file__, stdout=subprocess.PIPE)
    assert server_folder.server.stdout.readline() == b"ready\n"
    return folder


class Checkout:
    """A working copy at `path`; `snakemake()` runs there, `pending()` lists the jobs that would run."""

    def __init__(self, path: Path):
        self.path = path

    def snakemake(
        self, *arguments: str, check: bool = True, cold: bool = False, **options
    ) -> subprocess.CompletedProcess:
        """Run Snakemake and its jobs as forks with imported libraries, or as new processes if `cold`."""
        cold = cold or sys.platform != "linux"
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **options.pop("env", {})}
        environment |= (
            {fork_server.SOCKETS: ""} if cold else {fork_server.SOCKETS: server_folder(), "OMP_NUM_THREADS": "1"}
        )
        words = [] if cold else [*fork_server.build_command("snakemake"), sys.executable]
        done = subprocess.run(
            [*words, BIN / "snakemake", *arguments],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=options.pop("timeout", 1800),
            **options,
        )
        if check and done.returncode:
            raise AssertionError(done.stdout[-3000:] + done.stderr[-6000:])
        return done

    def shapeline(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run the command `shapeline` with this checkout's package."""
        words = [sys.executable, "-m", "shapeline.workflow.command", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self.path / "workflow")}
        done = subprocess.run(words, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done

    def configure(self, raw: dict) -> None:
        (self.path / "config.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))

    def pending(self, *arguments: str) -> set[tuple[str, str]]:
        """(rule, path of the first output below the results folder) of every job with an update pending."""
        table = self.snakemake("all", "--detailed-summary", *arguments).stdout.splitlines()
        head = next(i for i, line in enumerate(table) if line.startswith("output_file\t"))
        columns = table[head].split("\t")
        rows = [
            dict(zip(columns, line.split("\t"), strict=False)) for line in table[head + 1 :] if line.count("\t") >= 7
        ]
        return {(row["rule"], row["output_file"]) for row in rows if row["plan"] != "no update"}


# As in tests/conftest.py: a calibration of a network takes a second, a job of scores a tenth for its times. That
# of a function stays: with a few rows a call a pipeline takes ten times as long.
QUICKER = (
    ("games/torch_backend.py", "index / len(backends) for index", "index / len(backends) / 10 for index"),
    ("games/tf_backend.py", "SEARCH_SECONDS = 0.6 *", "SEARCH_SECONDS = 0.1 *"),
    (
        "attribution/attribution_job.py",
        "TIMING_SECONDS, MAX_TIMING_PASSES = 0.1,",
        "TIMING_SECONDS, MAX_TIMING_PASSES = 0.01,",
    ),
)


@functools.cache
def template(root: Path) -> Path:
    """The files of a checkout with their byte code, which each would compile anew for half a second; per process."""
    folder = template.folder = tempfile.TemporaryDirectory(prefix="shapeline-")  # removed with this process
    target = Path(folder.name)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in listed:
        if re.match(r"(workflow|notebooks|profiles|envs)/|Snakefile|config|pyproject", name) and (root / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    for name, line, quicker in QUICKER:
        file = target / "workflow/shapeline" / name
        text = file.read_text(encoding="utf-8")
        assert text.count(line) == 1, f"{name} has no longer one '{line}': name its line in QUICKER of {__file__}"
        file.write_text(text.replace(line, quicker), encoding="utf-8")
    compileall.compile_dir(target / "workflow/shapeline", quiet=2)
    return target


def copy_repository(root: Path, target: Path) -> Checkout:
    shutil.copytree(template(root), target, dirs_exist_ok=True)  # with the files' times, by which byte code is valid
    return Checkout(target)


def brief_theory(checkout: Checkout) -> Checkout:
    """Replace the page of theory by a title, because the page takes seconds in every run to its index."""
    path = checkout.path / "notebooks/theory.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parameters, text = (next(c for c in notebook["cells"] if c["cell_type"] == kind) for kind in ("code", "markdown"))
    path.write_text(json.dumps(notebook | {"cells": [parameters, text | {"source": "# Theory"}]}), encoding="utf-8")
    return checkout


@pytest.fixture(scope="session")
def tiny(root, tmp_path_factory) -> Checkout:
    """The tiny configuration, run to its report; `imported/` beside it has what each job imported."""
    folder = tmp_path_factory.mktemp("tiny")
    checkout = copy_repository(root, folder / "checkout")
    checkout.configure(TINY)
    (folder / "imported").mkdir()
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(IMPORTED)
    told = {"PYTHONPATH": str(folder / "site"), "IMPORTED": str(folder / "imported")}
    checkout.snakemake("--cores", "2", env=told)
    return checkout


@pytest.fixture
def fresh(root, tmp_path) -> Checkout:
    """A copy of the repository that has not run."""
    return brief_theory(copy_repository(root, tmp_path))
