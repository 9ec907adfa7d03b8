"""Fixtures of several files of tests: a tiny language model, its tokenizers, and two rendered reports."""

import contextlib
from pathlib import Path

import pytest

from shapeline.games import calibration, execution


@pytest.fixture
def whole_calibration(monkeypatch):
    """The package's own time, of which tests of anything else have a thirtieth."""
    monkeypatch.setattr(calibration, "CALIBRATION_SECONDS", execution.CALIBRATION_SECONDS)


@pytest.fixture(scope="module")
def cut():
    from tests.fixtures import language_model

    return language_model.tokenizer()


@pytest.fixture(scope="module")
def plain():
    from tests.fixtures import language_model

    return language_model.tokenizer(chat=False)


@pytest.fixture(scope="module")
def model():
    from tests.fixtures import language_model

    return language_model.llama()


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """Both kinds of experiment, rendered from their result folders with paths relative to the working folder."""
    from shapeline.report import index, rendering
    from tests.fixtures.result_folder import build
    from tests.unit.test_reports import ENTRIES, REPORT

    root = tmp_path_factory.mktemp("root")
    with contextlib.chdir(root):
        parameters = {kind: build(Path(kind), kind, entries) for kind, entries in ENTRIES.items()}
        for kind, given in parameters.items():
            rendering.render(
                REPORT, given, f"reports/{kind}.html", f"reports/{kind}.ipynb", {"settings_digest": "0123"}
            )
        index.write_index([f"reports/{kind}.ipynb" for kind in parameters], "reports/index.html")
    return root
