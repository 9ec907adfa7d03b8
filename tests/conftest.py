"""Paths shared by all tests; the folder of real data is named by SHAPELINE_DATA."""

import copy
import gc
import os
import signal
from pathlib import Path

import pytest
import yaml

from shapeline import memory
from shapeline.attribution import attribution_job
from shapeline.games import calibration
from shapeline.models.classifier import avoid_triton_crash

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("SHAPELINE_DATA", ROOT.parent / "shared" / "data"))
# shap's loops, compiled anew in each process for many seconds: a test is faster without.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
# Each explanation of a network begins with a calibration, which decides speed and nothing else: half of a test's time.
calibration.CALIBRATION_SECONDS = 0.1
attribution_job.TIMING_SECONDS = 0.01
memory.keep_freed_memory()
avoid_triton_crash()  # a worker runs tests of both frameworks
# Where the suite is started in the background interrupts are ignored, and so they would be in all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What the tests import stays, so that looking through it for garbage, time and again, is for nothing."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # a tenth of the tests' time went into looking for garbage
    gc.enable()
    return collected


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    """Tests of one file go to one worker, unless they name a group: what a file makes once is made once.

    Whole runs come first: a group of minutes that began last would leave the other worker without work.
    """
    items.sort(key=lambda item: "workflow" not in item.path.parts)
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def parsed_default(root) -> dict:
    return yaml.safe_load((root / "config.yaml").read_text())


@pytest.fixture
def default(parsed_default) -> dict:
    """The raw default configuration, safe to change."""
    return copy.deepcopy(parsed_default)


@pytest.fixture
def real_data():
    """Return the path of a real file, or skip with the missing file."""

    def path(*parts: str) -> Path:
        found = DATA.joinpath(*parts)
        if not found.exists():
            pytest.skip(f"real data not found: {'/'.join(parts)} under the folder named by SHAPELINE_DATA")
        return found

    return path


def pytest_terminal_summary(terminalreporter):
    """Print the lines that tests record under `told`, also of several processes."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, text in report.user_properties:
            if name == "told":
                terminalreporter.write_line(text)
