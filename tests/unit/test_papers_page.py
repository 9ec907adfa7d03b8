"""docs/papers.md is complete, and names nothing that does not exist: experiments, methods, sections, files, commands.

`python -m tests.unit.test_papers_page` writes the table of verdicts into the page.
"""

import json
import re
from collections import Counter

import pytest
import yaml

from shapeline.config import types
from shapeline.datasets import registry as datasets
from shapeline.methods import registry as methods
from shapeline.models.registry import Training
from tests.conftest import ROOT

COLUMNS = ["item", "where", "paper", "ours", "verdict"]
PAGE = ROOT / "docs/papers.md"
VERDICTS = {
    "holds": "the result agrees with the paper, or the computation confirms the statement",
    "corrected": "the statement fails as printed, and a corrected form holds",
    "partly": "it holds for some of the methods, data or thresholds that the row names",
    "fails": "the result contradicts the paper",
    "open": "not run, because a file is missing",
    "shown": "a definition or a figure, nothing to decide",
}
MARKS = "<!-- verdicts: written by `python -m tests.unit.test_papers_page` -->\n", "<!-- end of verdicts -->\n"
# What the sources number: every one has a row.
NUMBERED = {
    "Chen": [
        "Table 1",
        "Table 2",
        *(f"Figure {number}" for number in range(1, 6)),
        "theorem 1",
        "theorem 2",
        "lemma 1",
    ],
    "Lundberg": ["XᵀWX", "inverse", "j ∈ S", "j ∉ S"],
    "Pei": ["LIME's problem", "lasso", "Gaussian kernel", "Charnes", "(7)", "(8)", "(9)"],
    "Sliwinski": [
        *(f"Table {number}" for number in range(1, 5)),
        *("figure 1", "Lemma 4.1", "Theorem 4.2", "Theorem 5.1", "Lemma 5.2", "Theorem 6.1"),
        *(f"§7.{number}" for number in range(1, 6)),
    ],
    "Teneggi": [
        *("Remark 3.1", "Theorem 3.2, figure 1", "Remark 3.3", "Theorem 3.4", "Figure 2a", "Figure 3", "Figure 4a"),
        *("Figure 4b", "Figure 4c", "Figure 5", "figure 6", "Figure C.1", "Figure E.2", "F.1", "Figure F.2", "table 1"),
    ],
}


def rows() -> list[tuple[str, dict]]:
    """(paper, row) of the table of each paper."""
    found, paper = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            paper = line.removeprefix("## ").split()[0].strip(",")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if paper in NUMBERED and line.startswith("|") and cells != COLUMNS and not set(line) <= set("|-"):
            assert len(cells) == len(COLUMNS), line
            found.append((paper, dict(zip(COLUMNS, cells, strict=True))))
    return found


def summarise(found: list[tuple[str, dict]]) -> str:
    """Return the table of verdicts, by paper and in total, with their meanings."""
    lines = ["", f"| verdict | {' | '.join(NUMBERED)} | all |", f"|---|{'---:|' * len(NUMBERED)}---:|"]
    for verdict in VERDICTS:
        counts = Counter(paper for paper, row in found if row["verdict"] == verdict)
        numbers = " | ".join(str(counts[paper] or "–") for paper in NUMBERED)
        lines.append(f"| {verdict} | {numbers} | {counts.total()} |")
    counts = Counter(paper for paper, _ in found)
    lines += [f"| all | {' | '.join(str(counts[paper]) for paper in NUMBERED)} | {len(found)} |", ""]
    lines += [f"- **{verdict}**: {meaning}" for verdict, meaning in VERDICTS.items()]
    missing = describe_missing(row for _, row in found if row["verdict"] == "open")
    return "\n".join([*lines, f"- **needed by open rows**: {', '.join(missing)}", "", ""])


def describe_missing(undecided) -> list[str]:
    """Return the files that open rows need, with the number of rows that need each."""
    counts = Counter()
    for row in undecided:
        needs = re.search(r"not run: needs ([^;]+)", " ".join(row.values()))
        counts.update(re.findall(r"`[^`]+`", needs[1]) if needs else ["more instances"])
    return [f"{what} ({count} row{'s' * (count > 1)})" for what, count in counts.items()]


ROWS = rows()


@pytest.fixture(scope="module")
def experiments() -> dict:
    files = (ROOT / name for name in ("config.yaml", "config.paper.yaml"))
    return {name: entry for file in files for name, entry in yaml.safe_load(file.read_text())["experiments"].items()}


@pytest.fixture(scope="module")
def sections() -> set[str]:
    """What pages have as headings: those of the notebooks, and those that sections write."""
    found = set()
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(file.read_text())["cells"]:
            found |= set(re.findall(r"^##+ (.+)$", "".join(cell["source"]), re.M))
    for folder in ("report", "papers"):
        for file in (ROOT / "workflow/shapeline" / folder).rglob("*.py"):
            headings = re.findall(r'(?:heading|part)\(\s*f?"([^"]+)"', file.read_text())
            found |= {text.replace("{things}", "images") for text in headings}
    return found


def test_every_numbered_item_has_a_row_with_a_verdict():
    for paper, items in NUMBERED.items():
        told = [row["item"] for name, row in ROWS if name.startswith(paper)]
        for item in items:
            assert any(item.lower() in one.lower() for one in told), (paper, item)
    assert {row["verdict"] for _, row in ROWS} <= {*VERDICTS} and len(ROWS) > 90


def test_the_summary_counts_the_rows():
    summary = PAGE.read_text().split(MARKS[0])[1].split(MARKS[1])[0]
    assert summary == summarise(ROWS), "write it: python -m tests.unit.test_papers_page"
    assert (
        f"| all | {' | '.join(str(sum(name == paper for name, _ in ROWS)) for paper in NUMBERED)} | {len(ROWS)} |"
        in summary
    )


def test_pages_and_sections_exist(experiments, sections):
    for _, row in ROWS:
        for part in row["where"].split(";"):
            page, _, section = (text.strip() for text in part.partition("›"))
            names = re.findall(r"`(\w+)`", page)
            assert names or page in ("–", "theory") or page.startswith("[cards]"), row
            assert set(names) <= set(experiments), row
            assert not section or section in sections, row


def test_names_are_those_of_something(experiments):
    """Names in code style are an entry, a method or its key, or a file of a source or of the repository."""
    entries = {name for entry in experiments.values() for name in entry["methods"]}
    keys = {key for one in methods.METHODS.values() for key in one.parameters.model_fields}
    official = {file.name for source in datasets.SOURCES.values() for file in source.files}
    more = {"log_probability", "pad", "mean", "default", "paper", "experiment", "examples", "peers", "n_shown"}
    more |= {"regression", "set_influence", "weights", "training", "malaria", "uniform", "printed", "kernel", "product"}
    keys |= {*types.Experiment.model_fields, *Training.model_fields, *types.Instances.model_fields}
    known = {*experiments, *entries, *methods.METHODS, *keys, *official, *more}
    for _, row in ROWS:
        for name in re.findall(r"`([^`]+)`", " ".join(row.values())):
            if name.startswith(("snakemake", "python -m ")):
                continue
            first = re.split(r"[:\s{]", name)[0]
            there = first in known or (ROOT / name).exists() or name.startswith(("{kind:", "shapeline."))
            assert there, (name, row["item"])


def test_experiments_that_are_not_run_name_what_is_missing_and_their_command_works(experiments):
    paper = yaml.safe_load((ROOT / "config.paper.yaml").read_text())["experiments"]
    for _, row in ROWS:
        if found := re.search(r"\bnot run\b:?(.*)", " ".join(row.values()), re.I):
            assert found[1].startswith(" needs `"), row  # a file, a device, an hour; never code
            assert set(re.findall(r"`(\w+)`", row["where"])) & set(paper), row


def test_the_page_names_the_experiments_of_the_default_run():
    told = re.search(r"^- \*\*Command\*\*: (.*?) are the default run", PAGE.read_text(), re.M | re.S)[1]
    default = yaml.safe_load((ROOT / "config.yaml").read_text())["experiments"]
    assert {*re.findall(r"`(\w+)`", told)} == set(default)


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    PAGE.write_text(before + MARKS[0] + summarise(ROWS) + MARKS[1] + rest.partition(MARKS[1])[2])
