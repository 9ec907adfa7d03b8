"""Shapley values by the newest shapiq, in a virtual environment of its own; other benchmarks call `score_games`.

This file is run by the interpreter of that environment, which lacks this package: it imports NumPy and shapiq only.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

MIN_PYTHON = (3, 12)  # of the newest shapiq
NEWEST = (3, 16)
NAMES = ("LeverageSHAP", "OddSHAP", "ProxySHAP", "RegressionMSR")  # ShaplEIG takes up to a minute per estimate
Scores = dict[str, np.ndarray]


class UnavailableError(Exception):
    """Why rivals cannot be run, in one line."""


def find_interpreter() -> str:
    """Return an interpreter that is new enough. Raises UnavailableError."""
    if sys.version_info[:2] >= MIN_PYTHON:
        return sys.executable
    for minor in range(NEWEST[1], MIN_PYTHON[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    raise UnavailableError("shapiq needs Python 3.12 or newer, and there is no python3.12 or newer on PATH")


def create_environment(folder: Path) -> Path:
    """Return the interpreter of a virtual environment with shapiq, which is created once. Raises UnavailableError."""
    interpreter = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        steps = (
            [find_interpreter(), "-m", "venv", "--clear", str(folder)],
            [str(interpreter), "-m", "pip", "install", "-q", "shapiq", "xgboost", "lightgbm"],
        )
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise UnavailableError(f"{' '.join(step[1:4])} failed: {reason}")
        ready.touch()
    return interpreter


def add_option(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --rivals."""
    parser.add_argument(
        "--rivals",
        nargs="?",
        const=Path(".rivals"),
        type=Path,
        metavar="ENVIRONMENT",
        help="also run the newest shapiq, in a virtual environment in this folder (.rivals), which is created once",
    )


def prepare(environment: Path | None) -> Path | None:
    """Return the environment if rivals are wanted and can be run; else print why not."""
    if environment is None:
        return None
    try:
        print(f"rivals: {describe(environment)}", file=sys.stderr)
        return environment
    except UnavailableError as error:
        print(f"rivals: skipped, because {error}", file=sys.stderr)
        return None


def describe(environment: Path) -> str:
    """Return the versions of shapiq and Python in an environment."""
    code = "import platform, shapiq; print('shapiq', shapiq.__version__ + ', Python', platform.python_version())"
    return subprocess.run(
        [create_environment(environment), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def score_games(environment: Path, tables: np.ndarray, budgets: Sequence[int], samples: int) -> dict[int, Scores]:
    """Return by budget the scores (samples, n, d) of each approximator on games (n, 2^d); without those that fail.

    Column c of a table is the coalition whose bits are set in c. Each sample of each game has its own seed.
    """
    interpreter = create_environment(environment)
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "games.npz", Path(folder) / "scores.npz"
        np.savez(given, tables=tables, budgets=budgets, samples=samples)
        subprocess.run([interpreter, __file__, given, found], check=True, stdout=subprocess.DEVNULL)
        with np.load(found) as scores:
            return {
                budget: {name: scores[f"{name} {budget}"] for name in NAMES if f"{name} {budget}" in scores}
                for budget in budgets
            }


def approximate(name: str, table: np.ndarray, budget: int, seed: int) -> np.ndarray:
    """Return the Shapley values (d,) of a table (2^d,) by shapiq, with the library's settings on one core."""
    from shapiq import approximator
    from xgboost import XGBRegressor

    d = len(table).bit_length() - 1
    trees = XGBRegressor(random_state=seed, n_jobs=1)
    settings = {
        "OddSHAP": {"tree_params": {"n_jobs": 1}},
        "ProxySHAP": {"max_order": 1, "index": "SV", "proxy_model": trees},
        "RegressionMSR": {"index": "SV", "proxy_model": trees},
    }
    bits = 1 << np.arange(d)
    found = getattr(approximator, name)(d, random_state=seed, **settings.get(name, {})).approximate(
        budget, lambda masks: table[np.asarray(masks, bool) @ bits] - table[0]
    )
    return np.array([found[(feature,)] for feature in range(d)])


def main(given: str, found: str) -> None:
    """Write the scores of all approximators and samples; name one that fails on standard error, and leave it out."""
    with np.load(given) as archive:
        tables, budgets, samples = archive["tables"], archive["budgets"].tolist(), int(archive["samples"])
    seeds, scores = np.arange(samples * len(tables)).reshape(samples, -1), {}
    for name, budget in ((name, budget) for name in NAMES for budget in budgets):
        try:
            every = [approximate(name, tables[seed % len(tables)], budget, seed) for seed in seeds.ravel().tolist()]
            scores[f"{name} {budget}"] = np.reshape(every, (*seeds.shape, -1))
        except (ValueError, IndexError, ImportError) as error:
            print(f"{name} at {budget} evaluations: {error}".splitlines()[0], file=sys.stderr)
    np.savez(found, **scores)


if __name__ == "__main__":
    main(*sys.argv[1:])
