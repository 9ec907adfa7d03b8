"""shapiq in another environment: a program that answers tasks, with a stand-in of the library and the library."""

import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from shapeline.attribution.run import Options, attribute
from shapeline.attribution.set_game import OutputGame
from shapeline.config.validation import load
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games.features import Features
from shapeline.methods import shapiq_process
from shapeline.methods.settings import parse

LIBRARY = '''
import numpy as np

__all__ = ["Exact", "GivesUp", "Breaks", "Base"]


class Base:
    valid_indices = ("SV",)

    def __init__(self, n, random_state, index):
        self.n = n


class Exact(Base):
    """Marginal contributions in one order, which are the Shapley values of an additive game."""

    def approximate(self, budget, game):
        print("a message of the library")
        masks = np.tril(np.ones((self.n + 1, self.n)), -1)
        found = np.diff(game(masks))
        assert game(np.zeros(self.n)).shape == (1,)
        return {(i,): found[i] for i in range(self.n)}


class GivesUp(Base):
    def approximate(self, budget, game):
        raise ValueError("too few\\nmore of it")


class Breaks(Base):
    def approximate(self, budget, game):
        raise RuntimeError("a mistake")
'''


@pytest.fixture
def python(tmp_path) -> str:
    """Return an interpreter with the stand-in of shapiq."""
    site = tmp_path / "site"
    (site / "shapiq").mkdir(parents=True)
    (site / "shapiq/__init__.py").write_text("")
    (site / "shapiq/approximator.py").write_text(LIBRARY)
    (site / "shapiq-9.9.dist-info").mkdir()
    (site / "shapiq-9.9.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: shapiq\nVersion: 9.9\n")
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


def scores_by(python: str, approximator: str) -> np.ndarray:
    weights = np.arange(1.0, 7.0)
    game = OutputGame(lambda masks: (masks @ weights)[:, None], Features("player", (6,), np.arange(6)))
    entry = {"method": "peer_shapiq", "approximator": "KernelSHAP", "python": python}
    settings = parse(entry, [4.0])
    settings.arguments["approximator"] = approximator
    [found] = attribute(game, np.zeros(1, int), np.zeros(1, int), settings, Options(on_error="fail"))
    assert found.evaluations[0] == 7  # the empty coalition once, however often it is asked
    return found.scores[0]


def test_another_environment_explains_a_game_of_this_one(python):
    assert shapiq_process.read_version(python) == "9.9" and shapiq_process.find_problem(python) is None
    np.testing.assert_allclose(scores_by(python, "Exact"), np.arange(1.0, 7.0))


def test_failures_in_the_other_environment_are_one_line(python, tmp_path):
    with pytest.raises(MethodFailure, match=r"^GivesUp of 24 evaluations: too few$"):
        scores_by(python, "GivesUp")
    with pytest.raises(ShapelineError, match=r"^peer_shapiq: RuntimeError: a mistake$"):
        scores_by(python, "Breaks")
    names = "Base, Breaks, Exact, GivesUp"
    with pytest.raises(
        ShapelineError, match=rf"shapiq 9.9 has no approximator 'Odd' of Shapley values; it has {names}"
    ):
        scores_by(python, "Odd")
    ends = tmp_path / "ends"
    ends.write_text("#!/bin/sh\necho a mistake >&2\nexit 3\n")
    ends.chmod(0o755)
    with pytest.raises(ShapelineError, match=r"^peer_shapiq: .*ends ended by exit status 3: a mistake$"):
        scores_by(str(ends), "Exact")


@pytest.mark.parametrize("kind", ["absent", "folder", "without"])
def test_an_interpreter_that_cannot_run_it_is_reported_before_any_job(tmp_path, kind):
    path = {"absent": tmp_path / "python3", "folder": tmp_path, "without": tmp_path / "empty"}[kind]
    if kind == "without":
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        path.chmod(0o755)
    methods = {"peer": {"method": "peer_shapiq", "python": str(path)}}
    (tmp_path / "g.py").write_text("def build():\n    return None\n")
    with pytest.raises(ShapelineError) as told:
        load({"run": ["x"], "experiments": {"x": {"game": f"{tmp_path}/g.py:build", "methods": methods}}})
    line = "has no shapiq; install it there" if kind == "without" else "there is no interpreter"
    assert str(told.value).startswith("experiments.x.methods.peer.python: ") and line in str(told.value)


@pytest.mark.skipif("SHAPIQ_PYTHON" not in os.environ, reason="SHAPIQ_PYTHON names no interpreter with shapiq")
@pytest.mark.parametrize("approximator", ["KernelSHAP", "LeverageSHAP", "PermutationSamplingSV"])
def test_the_library_itself_in_another_environment(approximator):
    python, weights = os.environ["SHAPIQ_PYTHON"], np.arange(1.0, 7.0)
    task = {"approximator": approximator, "d": 6, "budget": 40, "seed": 0}
    said = shapiq_process.approximate(python, task, lambda masks: np.asarray(masks) @ weights)
    np.testing.assert_allclose(said["scores"], weights, atol=1e-6)


def test_the_program_starts_without_this_package_and_its_libraries():
    command = [sys.executable, "-I", "-S", shapiq_process.__file__]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'numpy'\n")
