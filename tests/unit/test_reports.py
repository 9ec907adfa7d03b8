"""Rendering of a notebook to an executed notebook and a page, and the index of pages."""

import base64
import gc
import inspect
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from shapeline import seeds
from shapeline.errors import ShapelineError
from shapeline.papers import claims
from shapeline.report import elements, experiment, index, rendering
from shapeline.workflow.job_code import list_page_code
from tests.fixtures.result_folder import METHODS

pytestmark = pytest.mark.xdist_group("reports")  # one rendering serves all
REPORT = Path(__file__).parents[2] / "notebooks" / "report.ipynb"
ENTRIES = {"image": tuple(METHODS), "table": ("exact", "kernel_shap", "sample_shapley", "lime", "occlusion", "random")}
SECTIONS = ["Explanations", "Instances", "Comparison", "Robustness", "How to read this report"]
SECTIONS += ["Diagnostics", "Model and data", "Provenance"]
PARTS = ["Importance over", "Deletion and insertion", "Error to the exact values", "Agreement between methods"]
IMAGES = ["Masked images", "Misclassified images", "Mean maps"]


def notebook(path: Path, *cells) -> Path:
    parameters = new_code_cell("word = 'default'", metadata={"tags": ["parameters"]})
    nbformat.write(new_notebook(cells=[parameters, *cells]), path)
    return path


def shown_text(page: str) -> str:
    return re.sub(r"<(style|script)>.*?</\1>|<[^>]+>", " ", page, flags=re.S)


@pytest.mark.parametrize("kind", ["image", "table"])
def test_the_report_has_every_section_and_every_method(rendered, kind):
    page = (rendered / f"reports/{kind}.html").read_text()
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == SECTIONS
    parts = " ".join(re.findall(r"<h3[^>]*>(.*?)</h3>", page))
    found = [parts.find(part) for part in [*PARTS, *(IMAGES if kind == "image" else ()), "Cost"]]
    assert found == sorted(found) and min(found) >= 0
    links = re.findall(r'<a href="#([^"]+)">', page)
    assert len(links) == len(SECTIONS) and all(f'id="{link}"' in page for link in links)
    text = shown_text(page)
    assert all(entry in text for entry in ENTRIES[kind])
    assert "Best mean by deletion AUC: " in text and "Best mean by error: " in text
    assert "Traceback" not in text and "None" not in text and "nan" not in text.split()


def test_every_page_has_the_claims_that_its_experiment_judges(rendered, monkeypatch):
    monkeypatch.chdir(rendered)
    kept = nbformat.read("reports/image.ipynb", as_version=4).metadata["papermill"]["parameters"]
    results = experiment.load(**kept)
    assert claims.section(results).data == ""
    judged = claims.Claim(
        "A paper", "1", "It is cheap", (results.experiment,), claims.check_cost_bound("lime", abs, "d")
    )
    monkeypatch.setattr(claims, "CLAIMS", (judged,))
    page = claims.section(results).data
    assert "Claims of the papers" in page and "It is cheap" in page
    for name in ("report", "influence", "localization"):
        assert "evidence.closing(results)" in REPORT.with_name(f"{name}.ipynb").read_text()


@pytest.mark.parametrize("kind", ["image", "table"])
def test_the_page_needs_nothing_else(rendered, kind):
    page = (rendered / f"reports/{kind}.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and page.count("<h1") == 1
    assert not re.search(r"<script[^>]*src|<link|<iframe|@import|url\((?!#)", page)
    sources = re.findall(r'(?:src|xlink:href)="([^"]{0,20})', page)
    assert all(re.match(r"data:image/|#f[0-9a-f]{8}\w+$", source) for source in sources)
    figures = page.count("<img") + page.count("<svg")
    assert figures >= 6 and figures == page.count(' alt="') + page.count('<svg role="img" aria-label="')
    assert ' alt=""' not in page and 'aria-label=""' not in page


def test_a_figure_names_its_methods_and_keeps_only_what_a_page_needs():
    drawing = Figure(figsize=(2, 1), layout="constrained")
    axes = drawing.subplots()
    elements.mark_method("a & <b>", *axes.plot([0, 1.23456], [1, 2]))
    page = elements.figure(drawing, "One").data
    assert re.findall(r' data-method="([^"]*)"', page) == ["a &amp; &lt;b&gt;"]
    assert not re.search(r"\.\d\d\d|<metadata>[^<]|<style|<!--|\sid=\"(?!f[0-9a-f]{8}[a-zA-Z][0-9a-f]{10}\")", page)
    again = elements.figure(drawing, "One", numbers=pd.DataFrame({"a": [1]})).data
    assert "<metadata>a\n1\n</metadata>" in again and "Verdana" in again
    axes.set_title("other")
    other = elements.figure(drawing, "One").data
    named, used = (set(re.findall(r'id="(\w+)"', text)) for text in (page, other))
    assert named and not named & used  # a figure in a closed fold would hide what another draws


def test_the_page_hides_the_code(rendered):
    text = shown_text((rendered / "reports/image.html").read_text())
    assert "findings.load" not in text and "settings_json" not in text and "In [" not in text


def test_the_executed_notebook_is_stored_without_paths_of_this_machine(rendered):
    path = rendered / "reports/image.ipynb"
    kept = nbformat.read(path, as_version=4)
    nbformat.validate(kept)
    assert (
        kept.metadata["shapeline"] == {"settings_digest": "0123"} and kept.metadata["kernelspec"]["name"] == "python3"
    )
    assert kept.metadata["papermill"]["parameters"]["experiment"] == "digits_patches"
    assert kept.metadata["papermill"]["input_path"] == "report.ipynb" and len(kept.metadata["papermill"]) == 2
    assert sum(bool(cell.get("outputs")) for cell in kept.cells) >= 10
    text = path.read_text()
    assert str(rendered) not in text and sys.executable not in text and "/tmp/" not in text


def test_nothing_unfinished_stays_beside_the_report(rendered):
    names = sorted(path.name for path in (rendered / "reports").iterdir())
    assert names == ["image.html", "image.ipynb", "index.html", "table.html", "table.ipynb"]


def test_the_style_is_complete_and_of_one_colour_scheme_in_print():
    """Every colour is a variable that both schemes define; only the screen may be dark."""
    sheets = rendering.style_sheet()
    light, dark = (set(re.findall(r"--(\w+):", block)) for block in re.findall(r":root \{(.*?)\}", sheets, re.S))
    assert light == dark and set(re.findall(r"var\(--(\w+)\)", sheets)) == light
    assert set(re.findall(r"@media ([^{]*dark\))", sheets)) == {"screen and (prefers-color-scheme: dark)"}
    printed = re.search(r"@media print \{(.*)\n\}", sheets, re.S)[1]
    whole = re.findall(r"([^{}]+)\{[^}]*break-inside: avoid", re.sub(r"/\*.*?\*/", "", printed, flags=re.S))
    # A table that goes to the next page as a whole, or a high figure, leaves half of this one empty.
    assert "figure, tr, .key" in {rule.strip() for rule in whole} and "figure svg { max-height:" in printed
    assert not any(rule.strip(", ") in (".wide", ".pair") for rules in whole for rule in rules.split())
    assert "table-header-group" in printed


@pytest.mark.parametrize("notebook", ["report", "influence", "localization", "theory"])
def test_the_style_sheet_is_among_the_sources_of_a_page(notebook, root, monkeypatch):
    monkeypatch.chdir(root)
    assert "workflow/shapeline/report/page.css" in list_page_code("render_report", notebook)


def test_every_figure_is_written_beside_the_page_with_its_numbers(tmp_path):
    maps = base64.b64encode(b"pixels").decode()
    page = tmp_path / "page.html"
    page.write_text(
        '<svg role="img" aria-label="Curves of A &amp; B">curves</svg>'
        f'<img width="9" alt="Maps" src="data:image/png;base64,{maps}">'
    )
    compared = tmp_path / "compared.parquet"
    pd.DataFrame({"metric": ["cost", "error"], "method": ["a", "b"], "mean": [1.5, 2]}).to_parquet(compared)
    written = rendering.write_parts(page, tmp_path / "files", str(compared))
    assert [file.name for file in written] == ["01_curves_of_a_b.svg", "02_maps.png", "cost.csv", "error.csv"]
    assert written[0].read_text().endswith("curves</svg>") and written[1].read_bytes() == b"pixels"
    assert written[2].read_text() == "method,mean\na,1.5\n"


def test_the_numbers_that_a_figure_carries_are_a_csv_of_its_name(tmp_path):
    numbers = pd.DataFrame({"method": ['a & <b>, "c"', "d"], "mean": [1.23456789, float("nan")]})
    drawing = Figure(figsize=(1, 1))
    page = tmp_path / "page.html"
    page.write_text(elements.figure(drawing, "With").data + elements.figure(drawing, "Without").data)
    assert len(rendering.write_parts(page, tmp_path / "files")) == 2
    page.write_text(elements.figure(drawing, "With", numbers=numbers).data + elements.figure(drawing, "Without").data)
    written = rendering.write_parts(page, tmp_path / "files")
    assert [file.name for file in written] == ["01_with.svg", "01_with.csv", "02_without.svg"]
    found = pd.read_csv(written[1])
    assert list(found["method"]) == list(numbers["method"]) and found["mean"][0] == 1.23457 and len(found) == 2


def test_every_figure_has_links_to_its_files(rendered, tmp_path):
    for name in ("image", "table"):
        page = (rendered / f"reports/{name}.html").read_text()
        written = {file.name for file in rendering.write_parts(rendered / f"reports/{name}.html", tmp_path / name)}
        links = re.findall(rf'<a href="{name}_files/([^"]*)">(?:SVG|PNG|CSV)</a>', page)
        assert page.count('<p class="files">') == page.count("</figure>") > 3
        assert set(links) <= written and {link for link in written if link.endswith(".csv")} <= set(links)
        assert any(link.endswith(".csv") for link in links)


def test_the_index_has_a_card_per_experiment(rendered):
    page = (rendered / "reports/index.html").read_text()
    found = re.findall(r'<article class="card">(.*?)</article>', page, re.S)
    assert '<a class="need" href="image.html">' not in page  # a page is named by its experiment
    assert re.findall(r'href="(\w+)\.html">', "".join(found)) == ["digits_patches", "cancer_groups"]
    for card, title in zip(found, ("Digits 3 and 8 in sixteen patches", "Breast cancer in ten groups"), strict=True):
        text = " ".join(shown_text(card).split())
        assert title in text and "model accuracy 99.1 %" in text and "No recommendation" in text
    assert "⚠ 1 of 156 explanations failed" in shown_text(found[0]) and "1,582,008 evaluations" in shown_text(found[0])
    assert 'alt="Mean |score| per pixel by exact"' in found[0] and found[1].count("<i style=") == 5


def with_measured(rendered: Path, kind: str, folder: Path) -> Path:
    """The notebook of a rendered page with a measurement of each instance, so that its methods can be ranked."""
    kept = json.loads((rendered / f"reports/{kind}.ipynb").read_text())
    given = kept["metadata"]["papermill"]["parameters"]
    random = np.random.default_rng(0)
    rows = [
        {"metric": "log_odds", "method": entry, "training_seed": 0, "instance": instance, "repeat": 0,
         "statistic": "deletion_auc", "x": np.nan, "value": place + random.normal()}
        for place, entry in enumerate(ENTRIES[kind]) for instance in range(12)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / "measured.parquet")
    given["measured"] = [str(folder / "measured.parquet")]
    path = folder / f"{kind}.ipynb"
    path.write_text(json.dumps(kept))
    return path


def test_the_index_has_the_same_verdict_in_cards_and_tables(rendered, tmp_path, monkeypatch):
    monkeypatch.chdir(rendered)
    notebook = with_measured(rendered, "table", tmp_path)
    index.write_index([notebook], tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    [verdict] = re.findall(r'<b class="method">(.*?)</b>', page)
    assert verdict == "☆ undecided: occlusion or random" and f'<td class="text">{verdict}, ' in page
    [overview] = re.findall(r'<table class="glance">.*?</table>', page, re.S)
    assert re.findall(r"([★☆]) \d", overview) == ["☆"] and re.search(r"<td>occlusion</td><td[^>]*><a[^>]*>☆", overview)
    assert 'data-kind="table" data-criterion="deletion AUC"' in overview
    assert page.count("Claims of the papers") == 0  # of other experiments
    legend = page.index("★ recommended:")
    assert legend < page.index('<article class="card">') and page.count("★ recommended:") == 1
    assert re.search(r"evaluations?(, [\d.]+ ms)? per instance</p>", page)


def test_the_index_has_a_digest_of_the_configuration(rendered, tmp_path, monkeypatch):
    monkeypatch.chdir(rendered)
    notebooks = ["reports/table.ipynb", "reports/image.ipynb"]
    given = {"cancer_groups": "0" * 15 + "a", "digits_patches": "0" * 15 + "b"}
    index.write_index(notebooks, tmp_path / "index.html", digests=given)
    origins = (tmp_path / "index.html").read_text().partition("<h2>Provenance</h2>")[2]
    for name, digest in given.items():
        assert re.search(rf"<td[^>]*>{name}</td>(?:(?!<tr>).)*>{digest}<", origins, re.S)
    assert f"Digest of all experiments: {seeds.digest(given)}." in origins
    index.write_index(notebooks, tmp_path / "index.html")
    assert ">configuration<" not in (tmp_path / "index.html").read_text()


def test_the_index_names_other_pages_where_the_run_has_experiments_of_the_papers(rendered, tmp_path, monkeypatch):
    monkeypatch.chdir(rendered)
    pages = {"theory.html": "Theory: <what> holds"}
    index.write_index(["reports/table.ipynb"], tmp_path / "index.html", pages)
    assert "theory.html" not in (tmp_path / "index.html").read_text()
    judged = claims.Claim("A paper", "1", "It is cheap", ("cancer_groups",), claims.check_cost_bound("lime", abs, "d"))
    monkeypatch.setattr(claims, "CLAIMS", (judged,))
    index.write_index(["reports/table.ipynb"], tmp_path / "index.html", pages)
    page = (tmp_path / "index.html").read_text()
    assert '<a href="theory.html">Theory</a></nav>' in page and "It is cheap" in page
    assert '<li><a href="theory.html">Theory: &lt;what&gt; holds</a></li>' in page
    index.write_index([], tmp_path / "index.html")
    assert "No experiment has a report yet" in (tmp_path / "index.html").read_text()


def test_the_index_links_the_reports_of_other_configurations_in_its_folder(rendered, tmp_path, monkeypatch):
    monkeypatch.chdir(rendered)
    index.write_index(["reports/table.ipynb"], tmp_path / "index.html")
    assert "other or earlier configurations" not in (tmp_path / "index.html").read_text()
    for name in ("cancer_groups", "a&b"):
        (tmp_path / f"{name}.html").touch()
    index.write_index(["reports/table.ipynb"], tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    assert 'configurations in this folder: <a href="a&amp;b.html">a&amp;b</a>.</p>' in page


def test_a_notebook_runs_in_this_process(tmp_path):
    lines = ["import gc, os, warnings", "warnings.warn('noise')", "print(word, os.getpid(), gc.get_threshold()[0])"]
    cells = [new_code_cell("\n".join(lines)), new_code_cell("value = 6\nvalue * 7")]
    cells.append(new_code_cell("value = None", outputs=[new_output("stream", text="of an earlier run")]))
    path, before = (
        notebook(tmp_path / "tiny.ipynb", new_markdown_cell("# A <em>title</em> & more"), *cells),
        gc.get_threshold(),
    )
    with pytest.warns(UserWarning, match="noise"):
        rendering.render(path, {"word": "given"}, tmp_path / "out" / "tiny.html", tmp_path / "out" / "tiny.ipynb")
    page = (tmp_path / "out" / "tiny.html").read_text()
    assert f"given {os.getpid()} 100000" in page and "noise" not in page and "42" in page
    assert "of an earlier run" not in page
    assert "<title>A title &amp; more</title>" in page and gc.get_threshold() == before
    kept = nbformat.read(tmp_path / "out" / "tiny.ipynb", as_version=4).cells[-3:]
    assert [cell.execution_count for cell in kept] == [3, 4, 5]
    assert [output.output_type for cell in kept for output in cell.outputs] == ["stream", "execute_result"]


def test_a_remark_is_shown_under_each_figure_and_is_in_its_file(tmp_path):
    lines = ["from matplotlib.figure import Figure", "from shapeline.report.elements import figure, join_parts"]
    lines += ["drawn = [Figure(figsize=(1, 1)) for _ in range(3)]"]
    lines += ["join_parts(*(figure(each, f'plot {i}', 'caption', vector=i < 2) for i, each in enumerate(drawn)))"]
    source = notebook(tmp_path / "tiny.ipynb", new_code_cell("\n".join(lines)))
    page, told = tmp_path / "tiny.html", "subset: part.csv, 40 rows, in place of a & b"
    rendering.render(source, {}, page, tmp_path / "out.ipynb", remark=told)
    assert page.read_text().count('<p class="note">Data: subset: part.csv, 40 rows, in place of a &amp; b.</p>') == 3
    drawings = [file.read_text() for file in rendering.write_parts(page, tmp_path / "files") if file.suffix == ".svg"]
    assert len(drawings) == 2
    assert all("<desc>subset: part.csv, 40 rows, in place of a &amp; b</desc>" in drawing for drawing in drawings)
    rendering.render(source, {}, page, tmp_path / "out.ipynb")
    assert "<desc>" not in page.read_text() and "Data:" not in page.read_text()


def test_a_failing_cell_is_one_line_and_leaves_the_last_report(tmp_path):
    (tmp_path / "bad.html").write_text("the last good report")
    failing = new_code_cell("raise ValueError('first line\\nno such method')")
    path = notebook(tmp_path / "bad.ipynb", new_markdown_cell("text"), failing)
    with pytest.raises(ShapelineError) as caught:
        rendering.render(path, {"word": "x"}, tmp_path / "bad.html", tmp_path / "executed.ipynb")
    assert str(caught.value) == f"notebook {path}, cell 3: no such method"
    assert (tmp_path / "bad.html").read_text() == "the last good report"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.html", "bad.ipynb"]


def test_a_missing_notebook_is_named(tmp_path):
    with pytest.raises(ShapelineError, match=r"gone\.ipynb: no such file"):
        rendering.render(tmp_path / "gone.ipynb", {}, tmp_path / "a.html", tmp_path / "a.ipynb")


def test_the_committed_notebook_is_bare_and_short():
    report = nbformat.read(REPORT, as_version=4)
    code = [cell for cell in report.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert all(len(cell.source.splitlines()) <= 10 for cell in code)
    assert [cell.metadata.get("tags") for cell in code].count(["parameters"]) == 1
    named = re.findall(r"^(\w+) =", code[0].source, re.M)
    assert sorted(named) == sorted(inspect.signature(experiment.Parameters).parameters)


def test_a_heading_without_content_is_omitted():
    def shows(html: str):
        return new_code_cell(outputs=[new_output("display_data", {"text/html": html, "text/plain": "HTML()"})])

    empty = [new_markdown_cell("## Comparison"), shows(""), new_code_cell()]
    filled = [new_markdown_cell("## Cost"), shows(""), shows("<p>12 evaluations</p>")]
    body = rendering._render_body(new_notebook(cells=[*empty, *filled, new_markdown_cell("## Last\n\nwith its text")]))
    assert "Comparison" not in body and re.findall(r"<h2[^>]*>(.*?)</h2>", body) == ["Cost", "Last"]
