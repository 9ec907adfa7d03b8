"""The documented commands, run on the tiny experiment in place of the experiments that the pages name."""

import functools
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.unit.test_documentation import BLOCKS, RUN, commands, reason_of
from tests.workflow.conftest import BIN, Checkout

pytestmark = pytest.mark.xdist_group("tiny")
# Commands without a mark that would take more than a minute here: what they need, or which test runs them.
ELSEWHERE = {
    "make test": "by tests/workflow/test_commands.py",  # which is part of it
    "make benchmark": "by tests/unit/test_benchmarks.py",
    "config.paper.yaml": "network: downloads; its experiments by tests/workflow/test_paper.py",
    "smoke": "by tests/workflow/test_paper.py",
}


# Options of benchmarks that take half a minute on the pages' numbers, and what they are here: the same steps on fewer.
FEWER = {"200 8 12": "20 3 12", "--quick": "--quick --games cancer wine"}


def elsewhere(words: list[str]) -> str | None:
    line = shlex.join(words)
    return next((reason for part, reason in ELSEWHERE.items() if part in line and "-n" not in words), None)


def here() -> dict[str, tuple[list[str], str]]:
    """The commands that are run here, each once, and the configuration shown before each."""
    all_of = [(words, block.before) for block in RUN if block.language == "bash" for words in commands(block)]
    return {shlex.join(words): (words, before) for words, before in all_of if not elsewhere(words)}


def test_commands_that_run_elsewhere_are_few_and_counted(record_property):
    every = [words for block in RUN if block.language == "bash" for words in commands(block)]
    away = [shlex.join(words) for words in every if elsewhere(words)]
    for part in ELSEWHERE:
        assert any(part in line for line in away) or part == "smoke", f"no page has a command with '{part}' any more"
    record_property("told", f"documentation: {len(here())} commands are run in earnest, {len(away)} elsewhere: {away}")
    assert len(away) <= 10


@pytest.fixture(scope="module")
def checkout(tiny, root, tmp_path_factory) -> Checkout:
    """A copy of the tiny run, with results of another day and an environment that is set up."""
    path = tmp_path_factory.mktemp("commands")
    shutil.copytree(tiny.path, path, symlinks=True, dirs_exist_ok=True)
    shutil.copytree(path / "results", path / "results_before")
    for name in ("Makefile", "requirements.txt", "constraints.txt"):
        shutil.copy2(root / name, path / name)
    shutil.copytree(root / "benchmarks", path / "benchmarks")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path / ".venv"], check=True)
    # Of packages it has those that are at hand.
    (site,) = (path / ".venv/lib").glob("python*/site-packages")
    (site / "at_hand.pth").write_text(sysconfig.get_path("purelib"))
    for tool in ("snakemake", "snakefmt"):
        if (BIN / tool).exists():
            (path / ".venv/bin" / tool).symlink_to(BIN / tool)
    (path / ".venv/installed").touch()
    return Checkout(path)


@pytest.mark.parametrize("line", here())
def test_a_documented_command_runs(line, checkout):
    words, before = here()[line]
    (checkout.path / "mine.yaml").write_text(before.replace("digits:", "tiny:"))
    words = ["tiny" if word == "digits" else word for word in words]
    if words[0] == "snakemake":
        checkout.snakemake(*words[1:])
        return
    if words[0] == "make":
        words = [*words, "CORES=1"]
    shell = functools.reduce(lambda told, pair: told.replace(*pair), FEWER.items(), shlex.join(words))
    said = subprocess.run(
        ["bash", "-ec", f"{shell}; command -v python"],
        cwd=checkout.path,
        env={
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(checkout.path / "workflow"),
        },
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr[-4000:]
    if words[0] == "source":
        assert said.stdout.strip() == str(checkout.path / ".venv/bin/python")


@pytest.mark.parametrize(
    "block", [one for one in BLOCKS if one.mark == "by tests/workflow/test_commands.py"], ids=lambda one: one.page
)
def test_documented_python_reads_the_results(block, checkout, monkeypatch):
    if "to_shap" in block.body:
        pytest.importorskip("shap")
    monkeypatch.chdir(checkout.path)
    text = block.body.replace("results/loans", "results/tiny").replace("results/digits", "results/tiny")
    exec(compile(text.replace("scores/kernel_shap", "scores/kernel"), block.page, "exec"), {})
    assert reason_of(block.mark) == "by tests/workflow/test_commands.py"
