"""The documentation is right: its commands and its Python code run, its configuration is valid, its cards are complete.

Snakemake's commands are dry runs here, on the full configuration; tests/workflow/test_commands.py executes them on a
tiny one. A block that cannot run here has a mark on the line before it, `<!-- not run: reason -->`, with its needs or
the test that runs it; the number of marks is printed.
"""

import copy
import doctest
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import sklearn
import yaml

from shapeline.config import mistakes, types, validation
from shapeline.datasets import sources
from shapeline.errors import ShapelineError
from shapeline.methods import registry
from shapeline.metrics import registry as metrics_registry
from tests.unit.shortcuts import build
from tests.workflow.conftest import copy_repository
from tools import api_reference
from tools import configuration_reference as reference

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^(?:<!-- not run: (?P<mark>.+?) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"[-+]?\d+\.?\d*")
MOST_MARKS = 13
NEEDS = ("GPU", "cluster", "conda", "network")
SHELL = ("bash", "sh", "console")
AXIOMS = ("efficiency", "null", "symmetry")
TOOLS = ("snakemake", "make", "python", "pip", "git", "source", "sinfo", "squeue", "tmux", "scancel", "conda", "docker")


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    body: str
    mark: str | None
    before: str = ""  # the configuration shown last on the page
    prints: str = ""  # the printed output shown after it


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        shown, text = "", page.read_text()
        for one in FENCE.finditer(text):
            language, body = one["language"], one["body"]
            if language in SHELL or (not language and body.split(maxsplit=1)[0] in TOOLS):
                language = "bash"
            shown = body if language == "yaml" else shown
            prints = re.match(r"\n\n```text\n(.*?)```", text[one.end() :], re.S)
            found.append(Block(page.name, language, body, one["mark"], shown, prints[1] if prints else ""))
    return found


def commands(block: Block) -> list[list[str]]:
    """The words of each command, without comments."""
    lines = block.body.replace("\\\n", " ").splitlines()
    found = [shlex.split(part, comments=True) for line in lines for part in line.split("&&")]
    return [words for words in found if words]


def reason_of(mark: str) -> str:
    """Return the reason in a mark: the needs of its block, or the test that runs it."""
    kind, _, test = mark.partition(" ")
    if kind == "by":
        assert f'"by {test}"' in (ROOT / test).read_text(), f"'{mark}': that test does not look for blocks marked so"
        return mark
    kind = mark.partition(":")[0]
    assert kind in NEEDS, f"'{mark}': a mark names one of {', '.join(NEEDS)}, or the test: by tests/..."
    return kind


BLOCKS = blocks()
RUN = [block for block in BLOCKS if block.mark is None]


def test_marks_are_few_and_counted(record_property):
    marked = [block for block in BLOCKS if block.mark]
    number = {block: len(commands(block)) if block.language == "bash" else 1 for block in BLOCKS}
    run = sum(number[block] for block in RUN if block.language in ("bash", "python"))
    reasons = Counter()
    for block in marked:
        assert block.language in ("bash", "python"), f"{block.page}: a mark before a block that is never run"
        reasons[reason_of(block.mark)] += number[block]
    reasons_told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    not_run = sum(reasons.values())
    record_property("told", f"documentation: {run} commands are run, {not_run} marked as not run ({reasons_told})")
    assert len(marked) <= MOST_MARKS


def test_every_snakemake_command_is_one(tmp_path):
    """Options and targets exist: a dry run for each configuration file."""
    from snakemake.cli import parse_args

    asked: dict[tuple, set[str]] = {}
    written: dict[str, str] = {}  # what the page asks the reader to write
    for block in RUN:
        for words in commands(block) if block.language == "bash" else ():
            if words[0] == "snakemake":
                _, found = parse_args(words[1:])
                if "--rulegraph" not in words:
                    key = tuple(map(str, found.configfile or ())), tuple(map(str, found.profile or ()))
                    asked.setdefault(key, set()).update(found.targets or ["all"])
                    written |= {str(file): block.before for file in key[0] if not (ROOT / file).exists()}
    assert len(asked) > 1
    checkout = copy_repository(ROOT, tmp_path)
    for file, text in written.items():
        (checkout.path / file).write_text(text)
    for (files, profiles), targets in asked.items():
        options = [*(f"--configfile={file}" for file in files), *(f"--profile={name}" for name in profiles)]
        checkout.snakemake("-n", "--cores=1", *options, "--", *sorted(targets))


def test_what_follows_configfile_is_a_file():
    """Snakemake reads every word after it as one more file: an experiment is named before."""
    from snakemake.cli import parse_args

    texts = [page.read_text() for page in (*PAGES, *ROOT.glob("*.yaml"), *(ROOT / "examples").rglob("*.yaml"))]
    written = {words for text in texts for words in re.findall(r"snakemake [^`\n#]*--configfile [^`\n#]+", text)}
    assert len(written) > 20
    for words in written:
        _, found = parse_args(shlex.split(words)[1:])
        assert all(str(file).endswith(".yaml") for file in found.configfile), words


def test_every_make_target_is_one():
    targets = {
        words[1] for block in BLOCKS if block.language == "bash" for words in commands(block) if words[0] == "make"
    }
    assert targets
    for target in sorted(targets):
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_other_commands_are_marked():
    """Snakemake, make, Python's modules and the environment's script are run: anything else has to say why not."""
    loose = [
        (block.page, words)
        for block in RUN
        if block.language == "bash"
        for words in commands(block)
        if words[0] not in ("snakemake", "make", "source", "shapeline") and words[:2] != ["python", "-m"]
    ]
    assert not loose, f"mark these with <!-- not run: reason -->: {loose}"


@pytest.mark.parametrize("block", [one for one in RUN if one.language == "python"], ids=lambda one: one.page)
def test_python_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block.body, block.page, "exec"), {"__name__": "documentation"})
    # Another scikit-learn trains another model from the same seed.
    if block.prints and f"scikit-learn=={sklearn.__version__}\n" in (ROOT / "requirements.txt").read_text():
        assert_prints(block.prints, capsys.readouterr().out)


def assert_prints(shown: str, printed: str) -> None:
    """Compare an output with the page, where "..." replaces lines: numbers to 5 % or 0.011, without seconds."""
    lines, there = ([re.sub(r"[\d.]+ s\b", "", line) for line in text.splitlines()] for text in (shown, printed))
    if any(line.strip() == "..." for line in lines):
        place = [line.strip() for line in lines].index("...")
        rest = lines[place + 1 :]
        lines, there = lines[:place] + rest, there[:place] + there[len(there) - len(rest) :]
    for line, other in zip(lines, there, strict=True):
        assert NUMBER.sub(" # ", line).split() == NUMBER.sub(" # ", other).split()
        numbers = [[float(number) for number in NUMBER.findall(text)] for text in (line, other)]
        np.testing.assert_allclose(*numbers, rtol=0.05, atol=0.011, err_msg=other)


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.language == "yaml"], ids=lambda one: one.page)
def test_configuration_is_valid(block, default, monkeypatch):
    """On top of the default configuration, a part of an experiment on top of that of digits; files are the reader's."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SHAPELINE_DATA", "/nowhere")
    given = yaml.safe_load(block.body)
    digits = default["experiments"]["digits"]
    if set(given) <= set(types.Experiment.model_fields) - set(types.Config.model_fields):
        given = {"experiments": {"digits": given}}
    for name, entry in given.get("experiments", {}).items():
        if "methods" not in entry and name not in default["experiments"]:  # the part of an experiment that is told
            given["experiments"][name] = merged(digits, entry)
    try:
        validation.load(merged(default, given))
    except ShapelineError as error:
        missing = re.compile("there is (nothing at|no (such )?(file|folder))")
        wrong = [line for line in str(error).splitlines() if not missing.search(line)]
        assert not wrong, "\n".join(wrong)


def merged(base: dict, over: dict) -> dict:
    """As Snakemake merges a later file over an earlier one."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def test_the_configuration_reference_is_generated_from_the_types():
    made = "python -m tools.configuration_reference > docs/configuration.md"
    assert (ROOT / "docs/configuration.md").read_text() == reference.page(), f"make it anew: {made}"


def test_every_key_has_a_description():
    empty = [line for line in reference.page().splitlines() if re.search(r"^\|.*\|  \|$", line)]
    assert not empty


def cards(page: str) -> dict[str, str]:
    parts = re.split(r"^### `(\w+)`\n", (ROOT / "docs" / page).read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_method_has_a_card():
    text, found = (ROOT / "docs/methods.md").read_text(), cards("methods.md")
    rows = re.findall(r"^\| `(peer_\w+)` (?:\| [^|]+ ){4}\|$", text, re.M)
    assert {*found, *rows} == set(registry.METHODS) and len(found) + len(rows) == len(registry.METHODS)
    for name, card in found.items():
        for part in ("Formula", "Cost", "Limitations", "Source"):
            assert f"- **{part}** " in card, (name, part)


def test_every_metric_has_a_card_of_its_quantities():
    found = cards("metrics.md")
    assert set(found) == set(metrics_registry.METRICS)
    for name, metric in metrics_registry.METRICS.items():
        assert f"**Category** {metric.category}." in found[name], name
        assert "- **Better** " in found[name] and "- **Known case** " in found[name], name
        assert all(f"`{one}`" in found[name] for one in metric.statistics), name


def test_the_axioms_that_the_page_names_hold():
    """Measured on random games over six features in a row, at a budget of 4 d or the minimum."""
    text = (ROOT / "docs/methods.md").read_text()
    named = {axiom: re.findall(r"`(\w+)`", text.partition(f"| {axiom} |")[2].split("|")[1]) for axiom in AXIOMS}
    designs = [name for name, one in registry.METHODS.items() if one.family == "coalitions" and one.is_design]
    assert all(set(names) <= set(designs) for names in named.values())
    d, random = 6, np.random.default_rng(0)
    masks = (np.arange(2**d)[:, None] >> np.arange(d)) & 1
    numbered = 1 << np.arange(d)
    for name in designs:
        least = registry.METHODS[name].minimum and sources.resolve(registry.METHODS[name].minimum).function(d) / d
        design = build({"method": name}, (d,), max(4.0, least) if registry.METHODS[name].sampled else None, 1)

        reference = registry.METHODS[name].batch_estimator
        read = reference and sources.resolve(reference).function

        def scores(game, design=design, read=read):
            values = game[design.masks @ numbered]
            return read(design.masks[None], values[None])[0][0] if read else design.attribute(values)

        game = random.standard_normal(2**d)
        gap = abs(scores(game).sum() - (game[-1] - game[0]))
        null, apart = [], []
        for i in range(d):
            without = masks * (np.arange(d) != i)
            null.append(abs(scores(game[without @ numbered])[i]))
            for j in range(i):
                exchanged = masks[:, np.array([{i: j, j: i}.get(one, one) for one in range(d)])]
                both = scores(game + game[exchanged @ numbered])
                apart.append(abs(both[i] - both[j]))
        for axiom, worst in zip(AXIOMS, (gap, max(null), max(apart)), strict=True):
            assert (worst < 1e-8) == (name in named[axiom]), (name, axiom)


def test_the_rule_graph_shows_the_rules():
    text = "".join(file.read_text() for file in (ROOT / "workflow/rules").glob("*.smk"))
    drawn = re.search(r"```mermaid\n(.*?)```", (ROOT / "docs/running.md").read_text(), re.S)[1]
    workers = [name for name in mistakes.RULES if re.search(rf"^rule {name}:", text, re.M)]
    assert set(re.findall(r"[a-z]\w+_\w+|attribute|measure|compare", drawn)) == set(workers)


def test_the_architecture_page_lists_every_subpackage():
    """The table lists every subpackage, the text every module beside them, and every path exists."""
    text = (ROOT / "docs/architecture.md").read_text()
    package = ROOT / "workflow/shapeline"
    subpackages = {file.parent.name for file in package.glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.M)) == subpackages
    beside = re.search(r"^Beside them: (.*)$", text, re.M)[1]
    modules = {file.stem for file in package.glob("*.py") if file.stem != "__init__"}
    assert set(re.findall(r"`(\w+)`", beside)) == modules
    for path in re.findall(r"`([\w/.]+[/.]\w*)`", text):
        places = (ROOT / path, package / path)
        assert path == "shapeline.explain" or any(place.exists() for place in places), path


def test_the_functions_that_the_page_of_statistics_names_exist():
    package = "".join(file.read_text() for file in (ROOT / "workflow/shapeline").glob("*/*.py"))
    named = re.findall(r"\(`([a-z_]+)`\)", (ROOT / "docs/statistics.md").read_text())
    assert len(named) > 6 and not [name for name in named if f"def {name}(" not in package]


def test_links_lead_somewhere():
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#:\s]+)[^):]*\)", text):
            assert (page.parent / target).exists(), (page.name, target)


@pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="the extra docs is not installed")
def test_the_site_is_built_without_a_warning(tmp_path):
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        call, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site/configuration/index.html").exists()


def test_the_python_reference_is_that_of_the_docstrings():
    assert (ROOT / "docs/api.md").read_text() == api_reference.format_page()
    for names in api_reference.PUBLIC.values():
        for name in names:
            module, function = name.rsplit(".", 1)
            assert getattr(importlib.import_module(module), function).__doc__, name


@pytest.mark.parametrize("path", [path for paths in api_reference.PUBLIC.values() for path in paths])
def test_public_functions_have_examples_that_run(path):
    module, name = path.rsplit(".", 1)
    function = getattr(importlib.import_module(module), name)
    (examples,) = doctest.DocTestFinder(recurse=False).find(function, path, module=False, globs={})
    assert examples.examples and re.search(r"\n *(Parameters|Examples)\n *-+\n", function.__doc__)
    assert not doctest.DocTestRunner().run(examples).failed
