"""Files that must stay in step with each other."""

import ast
import json
import re
import subprocess
import sys
import tomllib

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


BODY = r"(?:(?!^\S|^ *rule\b).*\n)*?"
CONDA = rf"""^ *rule(?: |:\n +name:\n +f")(\w+).*\n{BODY} +conda:\n +"([\w./]+)"\n{BODY} +script:\n +"([\w./]+)\""""
WITHOUT = """
import sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in {}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent)
"""


def test_scripts_import_nothing_that_their_environment_lacks(root):
    """Of the rules with one environment; the others' is that of the framework, whose packages plan.code keeps apart."""
    required, scripts = pins((root / "requirements.txt").read_text()), {}
    for file in (root / "Snakefile", *(root / "workflow/rules").glob("*.smk")):
        for rule, environment, script in re.findall(CONDA, file.read_text(), re.M):
            scripts.setdefault(file.parent / environment, {})[rule] = file.parent / script
    assert {rule for found in scripts.values() for rule in found} >= {"compare", "render_report"}
    for environment, found in scripts.items():
        lacking = sorted({*required} - {*pins(environment.read_text())} - {"pillow"})  # which scikit-image brings
        lines = [WITHOUT.format(lacking)]
        for script in found.values():
            nodes = ast.parse(script.read_text()).body
            lines += [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=root)


def test_direct_pins_agree_with_the_constraints(root):
    constraints = {name.lower(): version for name, version in pins((root / "constraints.txt").read_text()).items()}
    for name, version in pins((root / "requirements.txt").read_text()).items():
        assert constraints[name.lower()] == version, name


def test_files_beside_the_modules_are_packaged(root):
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["shapeline"]
    package = root / "workflow/shapeline"
    others = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc")
    }
    assert others == {file.relative_to(package).as_posix() for pattern in listed for file in package.glob(pattern)}


def test_notebooks_carry_no_outputs(root):
    for file in (root / "notebooks").glob("*.ipynb"):
        assert not any(cell.get("outputs") for cell in json.loads(file.read_text())["cells"]), file.name


def test_scripts_are_short_and_never_read_the_full_configuration(root):
    for file in (root / "workflow/scripts").glob("*.py"):
        text = file.read_text()
        code = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        assert len(code) <= 40, file.name
        assert "snakemake.config" not in text, file.name
