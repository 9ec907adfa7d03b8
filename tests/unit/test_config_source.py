"""A configuration file before Snakemake's reader has it: nothing in it runs, and what it cannot read is one line."""

import json
import shutil
import subprocess
import sys
import time

import pytest

from shapeline.config import source
from shapeline.config.limits import MOST_VALUES

BOMB = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9))


def told(tmp_path, text: str | bytes) -> list[str]:
    file = tmp_path / "one.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(source.mistakes(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: " + "[" * 500 + "]" * 500, "line 1: more than 30 keys and lists inside one another"),
        ("run: " + "{a: " * 500 + "1" + "}" * 500, "line 1: more than 30 keys"),
        ("run: " + "[" * 100_000, "line 1: more than 30 keys"),
        ("seed: " + "9" * 5000, "line 1: a number of 5,000 characters"),
        ("seed: 1\n__use_yte__: true", "the key __use_yte__ has Python run that the file holds; remove it"),
        ("<<: {__use_yte__: true}", "the key __use_yte__ has Python run"),
        ('{"__use\\u005fyte__": true}', "the key __use_yte__ has Python run"),
        ("run: !!python/object/apply:os.system [ls]", "line 1: is no YAML (could not determine a constructor"),
        ("seed: 1\nrun: [a]\nseed: 2", "line 3: the key 'seed' is there already, in line 1"),
        ("a:\n  b:\n    c: 1\n    c: 1", "line 4: the key 'c' is there already, in line 3"),
        ('{"seed": 1,\n"seed": 2}', "line 2: the key 'seed' is there already"),
        (BOMB, f"holds more than {MOST_VALUES:,} values once its merges (<<) are written out"),
        ("a: &a {<<: *a}", "holds more than"),
        ("day: 2020-13-45", "is no YAML (month must be in 1..12)"),
        ("a: !!int b", "is no YAML (invalid literal for int()"),
        (b"\xff\xfe\0", "is not written in UTF-8 (byte 0); save it so"),
        ("a:\n\tb: 1", "line 2: is no YAML (found "),
        ("", "is empty; name at least what to run"),
        (" " * 11_000_000, "has more than 10 MB; a configuration is a few kilobytes"),
    ],
)
def test_what_is_no_configuration_is_one_line_within_a_second(tmp_path, text, said):
    began = time.process_time()
    lines = told(tmp_path, text)
    assert len(lines) == 1 and said in lines[0] and "\n" not in lines[0], lines
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"run": ["a"], "experiments": {"a": {"seed": 1}}}, indent="\t"),
        "a: &a {b: 1}\nc: {<<: *a, b: 2}\nd: [*a, *a]",
        "- 1",  # Snakemake's own line says what it is
    ],
)
def test_what_is_one_is_left_alone(tmp_path, text):
    assert not told(tmp_path, text)


def test_our_own_configurations_are_left_alone(root):
    files = [*root.glob("*.yaml"), *root.glob("examples/**/*.yaml")]
    assert len(files) > 4 and not [line for file in files for line in source.mistakes(file)]


def test_the_files_of_a_command_line_are_found():
    words = "snakemake -n --configfile a b --cores 2 x --configfiles=c --config seed=1 --configfi d -- e".split()
    assert list(source.named(words)) == ["a", "b", "c", "d"]


def test_through_the_command_nothing_of_a_file_is_run(root, tmp_path):
    """Both ways in: config.yaml, and --configfile, which Snakemake reads before the Snakefile."""
    shutil.copy(root / "Snakefile", tmp_path)
    shutil.copytree(root / "profiles", tmp_path / "profiles")
    (tmp_path / "workflow/shapeline/config").mkdir(parents=True)
    shutil.copy(source.__file__, tmp_path / "workflow/shapeline/config")
    code = "__use_yte__: true\n__definitions__:\n  - open('ran', 'w')\n"
    (tmp_path / "config.yaml").write_text(code)
    (tmp_path / "deep.yaml").write_text("run: " + "[" * 500 + "]" * 500)
    (tmp_path / "code.yaml").write_text(code)
    for words, names in (((), ["config"]), (("--configfile", "deep.yaml", "code.yaml"), ["deep", "code"])):
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", "-n", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        lines = [line for line in done.stderr.splitlines() if not line.startswith("Using workflow specific profile")]
        assert done.returncode == 1 and len(lines) == len(names), done.stderr[-2000:]
        assert all(line.startswith(f"{name}.yaml: ") for line, name in zip(lines, names, strict=True)), lines
    assert not (tmp_path / "ran").exists()
