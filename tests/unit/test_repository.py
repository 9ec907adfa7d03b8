"""Files that must stay in step with each other."""

import json
import re

import yaml


def pins(text: str) -> dict:
    return dict(re.findall(r"^\s*-?\s*([\w.-]+)==([\w.+]+)\s*$", text, re.M))


def test_environments_have_the_pins_of_the_requirements(root):
    required = pins((root / "requirements.txt").read_text())
    for file in (root / "envs").glob("*.yaml"):
        listed = next(
            part["pip"] for part in yaml.safe_load(file.read_text())["dependencies"] if isinstance(part, dict)
        )
        for name, version in (line.split("==") for line in listed):
            assert required[name] == version, (file.name, name)


def test_direct_pins_agree_with_the_constraints(root):
    constraints = {name.lower(): version for name, version in pins((root / "constraints.txt").read_text()).items()}
    for name, version in pins((root / "requirements.txt").read_text()).items():
        assert constraints[name.lower()] == version, name


def test_notebooks_carry_no_outputs(root):
    for file in (root / "notebooks").glob("*.ipynb"):
        assert not any(cell.get("outputs") for cell in json.loads(file.read_text())["cells"]), file.name


def test_scripts_are_short_and_never_read_the_whole_configuration(root):
    for file in (root / "workflow/scripts").glob("*.py"):
        text = file.read_text()
        code = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        assert len(code) <= 40, file.name
        assert "snakemake.config" not in text, file.name
