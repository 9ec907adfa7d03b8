"""Figures and tables of a report as files for a paper."""

import contextlib
import io
import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
from PIL import Image

from shapeline.errors import ShapelineError
from shapeline.report import elements, exporting, rendering
from shapeline.workflow import command
from tests.unit.test_documentation import BLOCKS, commands
from tests.unit.test_reports import REPORT

pytestmark = pytest.mark.xdist_group("reports")  # one rendering serves all


@pytest.fixture(scope="module")
def reports(rendered, tmp_path_factory):
    """A folder with the executed notebook of a table."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(rendered / "table", root / "table")
    (root / "results/reports").mkdir(parents=True)
    for suffix in ("html", "ipynb"):
        shutil.copy(rendered / f"reports/table.{suffix}", root / f"results/reports/cells.{suffix}")
    return root


@pytest.fixture(scope="module")
def exported(reports):
    """The folder that the command of the documentation writes, and its output."""
    (block,) = [one for one in BLOCKS if one.mark == "by tests/unit/test_exporting.py"]
    ((_, *words),) = commands(block)
    shutil.copy(reports / "results/reports/cells.ipynb", reports / f"results/reports/{words[1]}.ipynb")
    with contextlib.chdir(reports), contextlib.redirect_stdout(io.StringIO()) as output:
        assert command.main(words) == 0
    return reports / words[2], output.getvalue()


def test_every_figure_and_table_of_a_page_is_a_file(reports, exported):
    folder, _ = exported
    files = sorted(folder.iterdir())
    assert not elements.observers
    page = (reports / "results/reports/cells.html").read_text()
    kinds = {kind: {file.stem for file in files if file.suffix == kind} for kind in (".svg", ".png", ".csv", ".tex")}
    assert len(kinds[".svg"]) == len(kinds[".png"]) == page.count("<figure>") > 3
    assert kinds[".tex"] < kinds[".csv"] and {"metric_log_odds", "metric_error"} < kinds[".csv"]
    for file in files:
        if file.suffix == ".png":
            with Image.open(file) as image:
                assert image.info["dpi"][0] == pytest.approx(300, abs=0.1)
        if file.suffix == ".tex":
            text = file.read_text()
            assert r"\toprule" in text and text.count("{tabular}") == 2 and not set(text) & {"−", "±", "⚠", "★"}
    compared = pd.read_parquet(next(reports.rglob("compared.parquet")))
    written = pd.read_csv(folder / "metric_error.csv")
    assert written["mean"].tolist() == pytest.approx(compared[compared["metric"] == "error"]["mean"].tolist())


def test_the_command_of_the_documentation_lists_what_it_writes(exported):
    folder, said = exported
    written = list(folder.iterdir())
    assert said == f"Wrote {len(written)} files to {folder}\n"
    assert {".svg", ".png", ".csv", ".tex"} == {file.suffix for file in written}


def test_a_name_of_a_file_ends_with_a_word():
    title = "Deletion curve (log-odds) of the mean over all instances of each method against random attribution"
    name = rendering.name_file(f"{title}!")
    assert 70 < len(name) <= 80 and "_".join(re.findall(r"\w+", title.lower())).startswith(f"{name}_")
    assert rendering.name_file("A " * 40) == "_".join("a" * 40) and rendering.name_file("b" * 99) == "b" * 80


def test_a_table_is_escaped_for_latex(tmp_path):
    table = pd.DataFrame({"method": ["a_b", "50 % & more"], "gap": ["−1.5 ± 0.2", "⚠ ≥ 3"], "p": ["< 0.1", "|x| > 2"]})
    csv, tex = exporting.write_table(table, tmp_path / "one", "Gap of a_b, 95 %")
    assert pd.read_csv(csv).equals(table)
    text = tex.read_text()
    assert r"a\_b & $-$1.5 $\pm$ 0.2" in text and r"50 \% \& more & $\ge$ 3" in text
    assert "& $<$ 0.1" in text and "& $|$x$|$ $>$ 2" in text
    assert r"\caption{Gap of a\_b, 95 \%}" in text


def test_mistakes_are_one_line(reports, monkeypatch, capsys):
    monkeypatch.chdir(reports)
    with pytest.raises(ShapelineError, match=r"has no report 'xy'; create it by: shapeline run xy\. Allowed: "):
        exporting.read_executed_notebook("results", "xy")
    with pytest.raises(ShapelineError, match=r"has no report 'cell'; create .* cell\. Did you mean 'cells'\?"):
        exporting.read_executed_notebook("results", "cell")
    damaged = Path("results/reports/old.ipynb")
    elsewhere = {"input_path": "../cells.ipynb", "parameters": {}}  # its own code is not run
    cells = [{"cell_type": "code", "source": ["raise SystemExit"], "metadata": {}}]
    damaged.write_text(json.dumps({"cells": cells, "metadata": {"papermill": elsewhere}}))
    with pytest.raises(ShapelineError, match=r"old\.ipynb is of no notebook of the workflow; render the report again"):
        exporting.export_report(damaged, Path("paper"), REPORT.parent)
    damaged.write_text(
        json.dumps({"cells": cells, "metadata": {"papermill": elsewhere | {"input_path": "report.ipynb"}}})
    )
    with pytest.raises(ShapelineError, match=r"old\.ipynb: notebook .*, cell 2: .*; render the report again"):
        exporting.export_report(damaged, Path("paper"), REPORT.parent)
    monkeypatch.setattr(rendering, "execute", Mock(side_effect=ShapelineError("it is gone.")))
    with pytest.raises(ShapelineError, match=r"old\.ipynb: it is gone; render the report again"):
        exporting.export_report(damaged, Path("paper"), REPORT.parent)
    assert command.main(["export", "nothing"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
