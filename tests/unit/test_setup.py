"""`make setup`: supported versions of Python, and an incomplete .venv; nothing is downloaded here."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A folder's `python -m venv` and `pip`, that only write down that they were called.
FAKE = """#!/bin/sh
case "$*" in
  *"sys.version_info[:2]"*) exec {python} -c "import sys; sys.version_info = {version}; exec(sys.argv[1])" "$2" ;;
  "-m venv --clear .venv") echo venv >> calls; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  "-m pip install"*) echo "pip ${{*##*--disable-pip-version-check}}" >> calls ;;
  "-c import pip") exit 0 ;;
  *find_spec*) cat whole ;;
esac
"""


@pytest.fixture
def folder(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "requirements.txt", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "whole").write_text("True\n")
    return tmp_path


def setup(folder: Path, version: tuple[int, ...] = (3, 12, 0), uv: str = "") -> subprocess.CompletedProcess:
    fake = folder / "fake_python"
    fake.write_text(FAKE.format(python=shlex.quote(sys.executable), version=version))
    fake.chmod(0o755)
    if uv:
        (folder / "uv").write_text(f'#!/bin/sh\necho "uv $*" >> calls\n{uv}\n')
        (folder / "uv").chmod(0o755)
    path = f"{folder}:/usr/bin:/bin"
    return subprocess.run(
        ["make", "setup", f"PYTHON={fake}"], cwd=folder, env={"PATH": path}, capture_output=True, text=True
    )


def calls(folder: Path) -> list[str]:
    made = folder / "calls"
    return made.read_text().splitlines() if made.exists() else []


@pytest.mark.parametrize("version", [(3, 10, 9), (3, 14, 0)])
def test_another_python_is_reported_before_any_download(folder, version):
    done = setup(folder, version)
    assert done.returncode != 0 and calls(folder) == []
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr and f"this is 3.{version[1]}; set PYTHON=" in done.stderr


def test_packages_are_installed_once(folder):
    assert setup(folder).returncode == 0
    assert calls(folder) == ["venv", "pip  -r requirements.txt", "pip  --quiet --no-deps -e ."]
    assert setup(folder).returncode == 0 and len(calls(folder)) == 3


@pytest.mark.parametrize("broken", ["a package", "the interpreter"])
def test_an_incomplete_environment_is_repaired(folder, broken):
    setup(folder)
    if broken == "a package":
        (folder / "whole").write_text("False\n")
    else:
        (folder / ".venv/bin/python").unlink()
    done = setup(folder)
    assert done.returncode == 0 and "is incomplete" in done.stdout
    assert calls(folder)[3:] == [*(["venv"] if broken == "the interpreter" else []), *calls(folder)[1:3]]


@pytest.mark.parametrize(("result", "others"), [("", 0), ("exit 1", 2)])
def test_uv_is_used_where_it_is_and_pip_where_it_fails(folder, result, others):
    assert setup(folder, uv=result or "exit 0").returncode == 0
    told = calls(folder)
    assert sum(line.startswith("uv pip install --python .venv/bin/python") for line in told) == 2
    assert sum(line.startswith("pip") for line in told) == others
