"""Files are read and written as UTF-8 in any locale."""

import ast
import os
import subprocess
import sys

import pytest

TEXT_METHODS = ("read_text", "write_text")


def without_encoding(root):
    """Calls that read or write text in the encoding of the locale."""
    for file in (root / "workflow").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or any(one.arg == "encoding" for one in node.keywords):
                continue
            name, place = ast.unparse(node.func), f"{file.relative_to(root)}:{node.lineno}"
            modes = [*node.args[1:2], *(one.value for one in node.keywords if one.arg == "mode")]
            binary = any("b" in str(part.value) for mode in modes for part in ast.walk(mode) if hasattr(part, "value"))
            if name.endswith(TEXT_METHODS) or (name == "open" and not binary) or name.endswith("FileHandler"):
                yield f"{place}: {name}"


def test_every_text_file_has_its_encoding_named(root):
    assert list(without_encoding(root)) == []


@pytest.mark.skipif(not sys.prefix.isascii(), reason="Python itself cannot read the paths of its environment there")
@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_run_is_planned_in_a_locale_of_ascii(root, locale):
    """Files of the package hold ≥ and é; a plan reads all of them."""
    modules = "'shapeline.theory.checks', 'shapeline.papers.theory_figures'"
    code = f"from shapeline.workflow import job_code; print(len(job_code.list_sources({modules})))"
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    plain = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(root / "workflow")}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=kept | plain, capture_output=True, cwd=root, encoding="utf-8", timeout=120
    )
    assert ran.returncode == 0, ran.stderr[-500:]
    assert int(ran.stdout) > 3
