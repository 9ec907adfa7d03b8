"""Configuration files that YAML's reader would accept silently, or refuse in many lines."""

import json

import pytest

from shapeline.config.validation import check_files
from shapeline.errors import ShapelineError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nrun: [a]\nseed: 2", "line 3: the key 'seed' is repeated (first in line 1); keep one"),
        ("a:\n  b:\n    c: 1\n    c: 1", "line 4: the key 'c' is repeated (first in line 3); keep one"),
        ('{"seed": 1,\n"seed": 2}', "line 2: the key 'seed' is repeated (first in line 1); keep one"),
        (b"\xff\xfe\0", "not encoded in UTF-8 (byte 0); save it in UTF-8"),
        ("a:\n\tb: 1", "line 2: invalid YAML (found ...); indent by spaces, not by a tab"),
        ("run [a]\nb: 1", "line 2: invalid YAML (mapping ...); correct this line or the one before"),
        ("a: [1", "line "),
        ("a: \x01", "invalid YAML ("),
        ("- a", "holds no keys; begin with one, such as 'experiments:'"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(tmp_path, text, message):
    file = tmp_path / "one.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ShapelineError) as failure:
        check_files([file, tmp_path / "missing.yaml"])
    begins, _, ends = message.partition("...")
    assert str(failure.value).startswith(f"{file}: {begins}") and str(failure.value).endswith(ends)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"run": ["a"], "experiments": {"a": {"seed": 1}}}, indent=2),
        "a: &a {b: 1}\nc: {<<: *a, b: 2}\nd: [*a, *a]\n<<: *a",
        "a: &a [*a]",
        "",
    ],
)
def test_a_correct_file_passes(tmp_path, text):
    file = tmp_path / "one.yaml"
    file.write_text(text)
    check_files([file])


def test_the_configurations_of_the_project_pass(root):
    files = [*root.glob("*.yaml"), *root.glob("examples/**/*.yaml")]
    assert len(files) > 4
    check_files(files)
