"""Fixtures of several files of tests: a tiny language model, and its tokenizer with and without a chat template."""

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
