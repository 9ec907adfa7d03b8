"""Figures and tables of a report as files for a paper: SVG and PNG, CSV and LaTeX."""

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from shapeline import files
from shapeline.errors import ShapelineError, nearest
from shapeline.report import elements, rendering
from shapeline.report.styling import styled

DOTS_PER_INCH = 300  # of a PNG for print
# What LaTeX prints of the signs in tables; ★ and ⚠ are words of the page.
SIGNS = {"−": "$-$", "–": "--", "±": r"$\pm$", "≤": r"$\le$", "≥": r"$\ge$", "×": r"$\times$", "²": "$^2$"}
SIGNS |= {"→": r"$\to$", "★": "$*$", "☆": r"$\circ$", "⚠ ": "", "⚠": "", "✓": "yes", "“": "``", "”": "''"}


def export_report(executed: Path, folder: Path, notebooks: Path) -> list[Path]:
    """Draw the figures and tables of an executed notebook again and write them; return the files, figures first.

    Figures are SVG and PNG, with the numbers behind them as CSV; tables are CSV and LaTeX (booktabs). The cells are
    those of the workflow's own notebook of that name in the folder `notebooks`, with the parameters of the executed
    one, whose code is not run: results may come from elsewhere.
    """
    record = files.document(executed).get("metadata", {}).get("papermill", {})
    source_file = notebooks / Path(str(record.get("input_path"))).name
    if not source_file.is_file():
        raise ShapelineError(
            f"export: {executed} is of no notebook of the workflow; render the report again: shapeline run"
        )
    written, heading = {"figures": [], "tables": []}, [""]
    folder.mkdir(parents=True, exist_ok=True)
    observer = _writer(folder, written, heading)
    elements.observers.append(observer)
    names: dict = {"__name__": "report"}
    try:
        for number, cell in enumerate(files.document(source_file)["cells"], 1):
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                heading += re.findall(r"^#+ (.*)", source, re.M)
            else:
                _execute(source, f"{executed}, cell {number}", names)
                if "parameters" in cell["metadata"].get("tags", ()):
                    names |= record.get("parameters", {})
    finally:
        elements.observers.remove(observer)
    compared = names.get("metrics")
    if compared and Path(compared).is_file():
        written["tables"] += rendering.write_metrics(compared, folder, "metric_")
    if not written["figures"] and not written["tables"]:
        raise ShapelineError(f"export: {executed} has no figures and no tables; name another page")
    return [*written["figures"], *written["tables"]]


def _execute(source: str, where: str, names: dict) -> None:
    """Run a cell as the run has done it; it fails where the results are of another version."""
    try:
        exec(compile(source, where, "exec"), names)
    except ShapelineError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ShapelineError(f"export: {where} failed ({reason}); render the report again: shapeline run") from error


def _writer(folder: Path, written: dict[str, list[Path]], headings: list[str]) -> Callable:
    """Return the observer of elements that writes each of them; one without a title has that of its section."""

    @styled
    def write(shown: Figure | pd.DataFrame, title: str, numbers: pd.DataFrame | None = None) -> None:
        kind = "figures" if isinstance(shown, Figure) else "tables"
        count = 1 + len({file.stem for file in written[kind]})
        path = folder / f"{kind[:-1]}_{count:02d}_{rendering.name_file(title or headings[-1], 50) or 'untitled'}"
        if kind == "tables":
            written[kind] += write_table(shown, path, title)
            return
        for suffix in (".svg", ".png"):
            shown.savefig(path.with_suffix(suffix), dpi=DOTS_PER_INCH)
            written[kind].append(path.with_suffix(suffix))
        if numbers is not None:
            written[kind].append(path.with_suffix(".csv"))
            numbers.to_csv(written[kind][-1], index=False)

    return write


def write_table(table: pd.DataFrame, path: Path, caption: str) -> list[Path]:
    """Write a table as CSV and as LaTeX, whose name without suffix is given; return both files."""
    table.to_csv(path.with_suffix(".csv"), index=False)
    text = table.astype(str).to_latex(
        index=False, escape=True, caption=_escape(caption) or None, label=f"tab:{path.name}"
    )
    for sign, words in SIGNS.items():
        text = text.replace(sign, words)
    path.with_suffix(".tex").write_text(text, encoding="utf-8")
    return [path.with_suffix(".csv"), path.with_suffix(".tex")]


def _escape(text: str) -> str:
    """Return a caption with the special characters of LaTeX escaped."""
    return re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", "/")).replace("~", " ").replace("^", " ")


def executed_notebook(results: str, experiment: str) -> Path:
    """Return the executed notebook of a report. Raises ShapelineError where it has not been rendered."""
    reports = Path(results) / "reports"
    found = reports / f"{experiment}.ipynb"
    if not found.is_file():
        there = sorted(file.stem for file in reports.glob("*.ipynb"))
        reason = nearest(experiment, there) if there else " There are no reports."
        raise ShapelineError(
            f"export: {reports} has no report '{experiment}'.{reason}; run: shapeline run {experiment}"
        )
    return found
