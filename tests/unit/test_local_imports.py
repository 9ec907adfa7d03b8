"""Files that a user's file imports from its folder are inputs of the jobs that use it."""

import os
import sys

import pytest

from shapeline.config import validation
from shapeline.datasets.sources import user_function
from shapeline.errors import ShapelineError
from shapeline.workflow import job_code


@pytest.fixture
def rule(tmp_path, monkeypatch):
    """A folder with rule.py, which imports helpers at several places, and a working directory above it."""
    folder = tmp_path / "own"
    (folder / "parts").mkdir(parents=True)
    (folder / "rule.py").write_text(
        "import json, numpy\nimport rule_helper as h\n\ndef f(d):\n    from parts.inner import K\n    return h.L + K\n"
    )
    (folder / "rule_helper.py").write_text("from rule_deeper import *\n")
    (folder / "rule_deeper.py").write_text("import rule_helper\nL = 1\n")
    (folder / "parts/__init__.py").write_text("")
    (folder / "parts/inner.py").write_text("from . import other\nfrom .other import K\n")
    (folder / "parts/other.py").write_text("K = 2\n")
    (folder / "unused.py").write_text("this is no Python\n")
    monkeypatch.chdir(tmp_path)
    return folder


FILES = ["parts/__init__.py", "parts/inner.py", "parts/other.py", "rule_deeper.py", "rule_helper.py"]


def test_what_a_users_file_imports_from_beside_it_is_an_input_too(rule, default):
    names = ["own/rule.py", *(f"own/{name}" for name in FILES)]
    assert job_code.list_user_code("own/rule.py:f") == names
    default["models"]["rule"] = {"dataset": "digits38", "source": "own/rule.py:f", "framework": "function"}
    default["experiments"]["ruled"] = {
        "model": "rule",
        "value": "probability",
        "features": {"kind": "patch", "size": 2},
        "instances": {"count": 2},
        "metrics": {"cost": {}},
        "methods": {"mine": {"method": "own/rule.py:f"}},
    }
    loaded = validation.load(default)
    assert job_code.list_user_files(loaded, "ruled") == names
    assert set(names) < set(job_code.train_code(loaded, "rule"))
    assert set(names) < set(job_code.attribute_code(loaded, "ruled", "mine"))


def test_an_import_that_is_added_is_seen(rule):
    before = job_code.list_user_code("own/rule.py:f")
    (rule / "more.py").write_text("")
    (rule / "parts/other.py").write_text("import more\nK = 2\n")
    os.utime(rule / "parts/other.py", (1, 1))
    assert job_code.list_user_code("own/rule.py:f") == sorted(
        [*before, "own/more.py"], key=lambda name: (name != before[0], name)
    )


def test_a_broken_or_missing_file_has_no_imports(rule):
    assert job_code.list_user_code("own/unused.py:f") == ["own/unused.py"]
    assert job_code.list_user_code("own/none.py:f") == ["own/none.py"]


def test_a_users_file_can_import_what_lies_beside_it(rule, tmp_path):
    assert user_function("own/rule.py:f")(None) == 3
    other = tmp_path / "other"
    other.mkdir()
    (other / "rule.py").write_text("import rule_helper\n\ndef f(rows):\n    return 0\n")
    (other / "rule_helper.py").write_text("")
    with pytest.raises(ShapelineError, match=r"imports other/rule_helper\.py, and .*own/rule_helper\.py.*rename one"):
        user_function("other/rule.py:f")


def test_an_edit_of_the_same_size_in_the_same_second_is_read(tmp_path, monkeypatch):
    """Python identifies cached byte code by size and second, and used the previous one."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "rule.py"
    for answer in (1, 2):
        file.write_text(f"def f():\n    return {answer}\n")
        os.utime(file, (1, 1))
        assert user_function(f"{file}:f")() == answer
