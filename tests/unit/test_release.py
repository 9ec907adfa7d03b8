"""One version, equal in all its places, with an entry in the changelog."""

import importlib.metadata
import os
import re
import tomllib

import pytest
import yaml

import shapeline

HEADING = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?\n(.*?)(?=^## |\Z)", re.M | re.S)


def test_the_version_is_defined_once(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "shapeline.__version__"}
    assert importlib.metadata.version("shapeline") == shapeline.__version__
    assert yaml.safe_load((root / "CITATION.cff").read_text())["version"] == shapeline.__version__


def test_the_changelog_is_short_dated_and_has_the_version(root):
    text = (root / "CHANGELOG.md").read_text()
    found = {name: (date, body) for name, date, body in HEADING.findall(text)}
    assert next(iter(found)) == "Unreleased" and all(date for date, _ in list(found.values())[1:])
    assert shapeline.__version__ in found and text.count("\n") <= 150
    headings = set(re.findall(r"^### (\w+)", text, re.M))
    assert headings <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    if os.environ.get("SHAPELINE_DIST") and found["Unreleased"][1].strip():
        pytest.fail("CHANGELOG.md: give what is unreleased the heading of a version, and the version that number")
