"""The source distribution and the wheel built from it, tested in an empty environment outside the clone."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import shapeline

pytestmark = pytest.mark.real
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def run(*words, cwd: Path, **more) -> str:
    """Return the output of a command that sees no package of this clone."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(root, tmp_path_factory) -> dict[str, Path]:
    """Both, and the folders they are from, from the files that git lists on; left in SHAPELINE_DIST, if given."""
    folder = tmp_path_factory.mktemp("dist")
    dist, tree = Path(os.environ.get("SHAPELINE_DIST", folder / "dist")), folder / "tree"
    for name in run("git", "ls-files", "-z", "-co", "--exclude-standard", cwd=root).split("\0"):
        if name and (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)
    source = dist / run(sys.executable, "-c", BUILD, "build_sdist", dist, cwd=tree).split()[-1]
    with tarfile.open(source) as packed:
        packed.extractall(folder, filter="data")
    unpacked = folder / source.name.removesuffix(".tar.gz")
    wheel = dist / run(sys.executable, "-c", BUILD, "build_wheel", dist, cwd=unpacked).split()[-1]
    return {"source": source, "unpacked": unpacked, "wheel": wheel, "tree": tree}


@pytest.fixture(scope="module")
def command(built, tmp_path_factory) -> Path:
    """The installed script of an environment with the wheel; its requirements are those of this environment."""
    folder = tmp_path_factory.mktemp("clean") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin/python"
    call = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    run(*call, built["wheel"], cwd=folder.parent)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    borrowed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (own / "borrowed.pth").write_text("\n".join(borrowed) + "\n")  # read after the wheel's own folder
    return folder / "bin/shapeline"


def test_the_source_distribution_is_the_workflow(built):
    listed = {file.relative_to(built["tree"]) for file in built["tree"].rglob("*") if file.is_file()}
    packed = {file.relative_to(built["unpacked"]) for file in built["unpacked"].rglob("*") if file.is_file()}
    left_out = {str(path) for path in listed - packed}
    assert left_out <= {".gitignore", ".ci/run"}, left_out


def test_the_wheel_runs_outside_a_clone(command, tmp_path):
    assert run(command, "--version", cwd=tmp_path) == f"shapeline {shapeline.__version__}\n"
    python = command.parent / "python"
    place = run(python, "-c", "import shapeline; print(shapeline.__file__)", cwd=tmp_path)
    assert place.startswith(str(command.parents[1]))
    rows = "\n".join(f"{i % 7},{i % 3},{'yes' if i % 7 > 3 else 'no'}" for i in range(60))
    (tmp_path / "mine.csv").write_text(f"a,b,label\n{rows}\n")
    assert "Wrote shapeline.yaml" in run(command, "init", "mine.csv", cwd=tmp_path)
    said = run(command, "run", "--cores", "2", cwd=tmp_path)
    assert f"--snakefile {command.parents[1]}" in said
    assert (tmp_path / "results/reports/mine.html").is_file() and (tmp_path / "results/reports/index.html").is_file()
