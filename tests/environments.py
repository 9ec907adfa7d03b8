"""Try the project in environments as users have them: `python -m tests.environments [NAMES]`, by default all.

Each environment is a fresh clone with a virtual environment of its own, in which `smoke` and, for interpreters and
versions, the whole suite run; it is removed afterwards. One takes from ten minutes to an hour and up to 8 GB. Results
are appended to a file of JSON lines; `python -m tests.environments --table FILE` prints them for docs/platforms.md.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITE = ("-m", "pytest", "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder", "-m", "not real")
# pip's settings of this machine, so that packages come from the index as they do for others.
INDEX_ONLY = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_FIND_LINKS": None,
    "PIP_CONSTRAINT": None,
    "PIP_EXTRA_INDEX_URL": None,
}
PINS = ("install", "-r", "requirements.txt")
TEST_TOOLS = ("pytest==9.1.1", "pytest-xdist", "hypothesis", "statsmodels", "snakefmt", "ruff", "ipython")
SHOWN = ("torch", "triton", "tensorflow", "numpy", "pandas", "scikit-learn", "pyarrow", "snakemake")


@dataclass(frozen=True)
class Environment:
    """An environment: what differs from a clone in a plain folder with the pinned packages."""

    about: str
    python: str = "3.11"
    folder: str = "clone"
    install: tuple[tuple[str, ...], ...] = (PINS, ("install", "--no-deps", "-e", "."))  # arguments of pip
    uv: bool = False  # whether uv takes pip's place
    suite: bool = True
    wheel: bool = False  # whether only the wheel is installed, and the work is in an empty folder
    variables: dict[str, str | None] = field(default_factory=dict)


ENVIRONMENTS = {
    "default-wheels": Environment("the index's default wheels (torch with CUDA and triton)", variables=INDEX_ONLY),
    "newest": Environment(
        "newest releases that pyproject.toml allows",
        install=(("install", "-e", ".[torch,tensorflow,text,workflow]", *TEST_TOOLS, "seaborn"),),
    ),
    "lowest": Environment(
        "lowest declared versions (`--resolution lowest-direct`)",
        install=(
            ("install", "--resolution", "lowest-direct", "-e", ".[torch,tensorflow,workflow]"),
            ("install", *TEST_TOOLS, "seaborn"),
        ),
        uv=True,
    ),
    "python-3.12": Environment("the pins with Python 3.12", python="3.12"),
    "python-3.13": Environment("the pins with Python 3.13", python="3.13"),
    "folder-shapeline": Environment("a folder named `shapeline`", folder="shapeline"),
    "folder-odd": Environment("a folder with a space, a quote and `é`", folder="é a'q/shapeline"),
    "wheel": Environment(
        "only the wheel, in an empty folder", install=(("install", "{wheel}[torch,workflow]"),), suite=False, wheel=True
    ),
    "core": Environment("only the core, without extras", install=(("install", "{wheel}"),), suite=False, wheel=True),
}
EXPLAIN = """
import shapeline
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
X, y = load_breast_cancer(as_frame=True, return_X_y=True)
model = HistGradientBoostingClassifier(max_iter=20).fit(X, y)
print(shapeline.explain(model, X[:10], background=X)[3])
"""


def find_python(version: str) -> str | None:
    """Return an interpreter of a version such as "3.12", or None."""
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
        return sys.executable
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
        return found
    return next((str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")), None)


class Trial:
    """An environment in a temporary folder."""

    def __init__(self, environment: Environment, base: Path):
        self.environment, self.base = environment, base
        self.clone = base / environment.folder
        self.venv = (base if environment.wheel else self.clone) / ".venv"
        self.work = base / "work" if environment.wheel else self.clone
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        changed = environment.variables | {"PATH": f"{self.venv / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        self.variables = {name: value for name, value in (kept | changed).items() if value is not None}

    def run(self, *words: str | Path, log: str, **more: object) -> subprocess.CompletedProcess:
        with open(self.base / f"{log}.log", "w") as output:
            return subprocess.run(
                words, cwd=self.work, env=self.variables, stdout=output, stderr=subprocess.STDOUT, **more
            )

    def text(self, log: str) -> str:
        return (self.base / f"{log}.log").read_text(errors="replace")

    def prepare(self, python: str) -> None:
        """Clone, make the virtual environment and install into it."""
        self.work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", ROOT, self.clone], check=True)
        subprocess.run([python, "-m", "venv", self.venv], check=True)
        own = self.venv / "bin/python"
        wheel = ""
        if self.environment.wheel:
            self.run(own, "-m", "pip", "wheel", "-q", "--no-deps", "-w", self.base, self.clone, log="wheel", check=True)
            wheel = str(next(self.base.glob("shapeline-*.whl")))
        if self.environment.uv:
            self.run(own, "-m", "pip", "install", "-q", "uv", log="uv", check=True)
        installer = [self.venv / "bin/uv", "pip"] if self.environment.uv else [own, "-m", "pip"]
        for number, words in enumerate(self.environment.install):
            words = [word.replace("{wheel}", wheel) for word in words]
            self.run(*installer, *words, log=f"install{number}", check=True)

    def smoke(self) -> str:
        """Run `smoke`, or explain a model where there is no workflow; returns "passed" or the last lines."""
        own = self.venv / "bin/python"
        if self.environment.wheel and "workflow" not in self.environment.install[0][-1]:
            done = self.run(own, "-c", EXPLAIN, log="smoke")
        elif self.environment.wheel:
            done = self.run(self.venv / "bin/shapeline", "run", "smoke", "--cores", "2", log="smoke")
        else:
            done = self.run(self.venv / "bin/snakemake", "smoke", "--cores", "2", log="smoke")
        return "passed" if done.returncode == 0 else " | ".join(self.text("smoke").strip().splitlines()[-3:])

    def suite(self) -> str:
        """Run the tests; returns the last line of pytest."""
        self.variables |= {"OMP_NUM_THREADS": "1"}
        self.run(self.venv / "bin/python", *SUITE, log="suite")
        lines = [line for line in self.text("suite").splitlines() if re.search(r"\d+ (passed|failed|error)", line)]
        return re.sub(r" in [\d.]+s.*", "", lines[-1]).strip("= ") if lines else self.text("suite")[-300:]

    def versions(self) -> dict[str, str]:
        code = (
            "import importlib.metadata as m, json, sys\nfound = {}\nfor name in sys.argv[1:]:\n"
            "    try: found[name] = m.version(name)\n    except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
        )
        done = subprocess.run([self.venv / "bin/python", "-c", code, *SHOWN], capture_output=True, text=True)
        return json.loads(done.stdout or "{}")

    def megabytes(self) -> int:
        files = (path for path in self.venv.rglob("*") if path.is_file() and not path.is_symlink())
        return round(sum(path.stat().st_size for path in files) / 1e6)


def attempt(name: str, logs: Path, suite: bool) -> dict:
    """Try an environment, and return its results as a row."""
    environment = ENVIRONMENTS[name]
    row = {"name": name, "about": environment.about, "date": time.strftime("%Y-%m-%d"), "system": platform.platform()}
    python = find_python(environment.python)
    if python is None:
        return row | {"smoke": f"skipped: no Python {environment.python} on this machine"}
    base = Path(tempfile.mkdtemp(prefix="environment-"))
    began, trial = time.monotonic(), Trial(environment, base)
    try:
        trial.prepare(python)
        row |= {"python": environment.python, "versions": trial.versions(), "megabytes": trial.megabytes()}
        row["smoke"] = trial.smoke()
        if suite and environment.suite:
            row["suite"] = trial.suite()
    except subprocess.CalledProcessError as error:
        row["smoke"] = f"not installed: {error}"
    finally:
        for log in base.glob("*.log"):
            logs.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, logs / f"{name}-{log.name}")
        shutil.rmtree(base, ignore_errors=True)
    return row | {"minutes": round((time.monotonic() - began) / 60)}


def format_table(rows: list[dict]) -> str:
    """Return the newest row of each environment as a Markdown table."""
    newest = {row["name"]: row for row in rows}
    lines = ["| environment | Python | versions | size | `smoke` | suite | date |", "|---|---|---|---|---|---|---|"]
    for row in newest.values():
        versions = ", ".join(f"{name} {version}" for name, version in row.get("versions", {}).items())
        size = f"{row['megabytes'] / 1000:.1f} GB" if "megabytes" in row else ""
        cells = (row["about"], row.get("python", ""), versions, size, row["smoke"], row.get("suite", "–"), row["date"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(ENVIRONMENTS), help=f"of {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--results", type=Path, default=ROOT / "results/environments.jsonl")
    parser.add_argument("--no-suite", action="store_true", help="only `smoke`")
    parser.add_argument("--table", type=Path, help="print the results of a file as a table, and try nothing")
    chosen = parser.parse_args()
    if chosen.table:
        print(format_table([json.loads(line) for line in chosen.table.read_text().splitlines()]))
        return
    if unknown := set(chosen.names) - set(ENVIRONMENTS):
        parser.error(f"no such environment: {', '.join(sorted(unknown))}; choose of {', '.join(ENVIRONMENTS)}")
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen.names:
        row = attempt(name, chosen.results.parent / "environments", not chosen.no_suite)
        with open(chosen.results, "a") as file:
            file.write(f"{json.dumps(row)}\n")
        print(f"{name}: smoke {row['smoke']}; suite {row.get('suite', 'not run')}", flush=True)


if __name__ == "__main__":
    main()
