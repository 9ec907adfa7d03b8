"""Runs under the conditions of other machines: names of folders, locale, home, temporary files, permissions.

`python -m tests.environments` tries other interpreters and versions of packages, which takes hours.
"""

import copy
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.workflow.conftest import BIN, TINY, Checkout, copy_repository

ODD_NAME = "é a'q"
# A job of each rule, where `smoke` has four of some.
BRIEF = copy.deepcopy(TINY)
BRIEF["experiments"]["tiny"] |= {"methods": {"exact": {"method": "shapley"}}, "metrics": {"log_odds": {}, "cost": {}}}


def run_target(name: str, folder: Path, words: list, prefix: tuple = (), **variables: str | None) -> None:
    """Run a command with a target in a folder, each job starting its own Python, and assert that its page is there.

    variables: of the environment; None removes one.
    """
    words = [*words, name, "--cores", "2"]
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **variables}
    environment = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run([*prefix, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (folder / f"results/reports/{name}.html").is_file()


@pytest.fixture(scope="module")
def source(root, tmp_path_factory) -> Checkout:
    checkout = copy_repository(root, tmp_path_factory.mktemp("environments") / "shapeline")
    checkout.configure(BRIEF)
    return checkout


def copy_of(source: Checkout, folder: Path) -> Path:
    shutil.copytree(source.path, folder)
    return folder


def make_environment(folder: Path) -> Path:
    """Make a virtual environment in the folder that has the packages of this one; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    # A site directory of its own, so that an editable installation in it counts, too.
    (site / "packages.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return folder / "bin/python"


def test_a_folder_whose_name_has_a_space_a_quote_and_another_letter(source, tmp_path):
    folder = copy_of(source, tmp_path / ODD_NAME / "shapeline")
    python = make_environment(folder / ".venv")
    temporary = tmp_path / "t m p"
    temporary.mkdir()
    run_target("smoke", folder, [python, "-m", "snakemake"], TMPDIR=str(temporary))


def test_a_symbolic_link_without_home_in_the_c_locale(source, tmp_path):
    copy_of(source, tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    # In that locale Python cannot start from an environment whose own path has other letters.
    locale = {"LC_ALL": "C", "LANG": None} if sys.prefix.isascii() else {}
    run_target("tiny", tmp_path / "link", ["snakemake"], HOME=None, PWD=str(tmp_path / "link"), **locale)


def test_a_clone_in_a_folder_with_braces_is_refused_in_one_line(source, tmp_path):
    folder = copy_of(source, tmp_path / "{run}")
    done = subprocess.run([BIN / "snakemake", "-n", "smoke"], cwd=folder, capture_output=True, text=True)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert line.startswith(f"{folder}: Snakemake reads braces in the path of a workflow as wildcards; move it"), line


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


def test_a_source_that_cannot_be_written_runs_from_another_folder(source, tmp_path):
    """By an environment in a third folder, of which no path, relative or absolute, is one word of a shell."""
    installed, folder = copy_of(source, tmp_path / "installed"), tmp_path / "work {run}"
    folder.mkdir()
    python = make_environment(tmp_path / ODD_NAME / "environment")
    words = [python, "-m", "shapeline.workflow.command", "run"]
    if os.geteuid():
        subprocess.run(["chmod", "-R", "a-w", installed], check=True)
        prefix = ()
    elif shutil.which("unshare") and not subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        prefix = ("unshare", "-m", "sh", "-c", READ_ONLY, installed)  # root writes whatever the rights say
    else:
        pytest.skip("root can write anywhere, and there is no unshare for a mount that is read-only")
    run_target("tiny", folder, words, prefix, PYTHONPATH=str(installed / "workflow"))
