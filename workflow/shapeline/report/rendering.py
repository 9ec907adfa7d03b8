"""Rendering of notebooks: execution, standalone pages, and figures as files."""

import ast
import base64
import contextlib
import functools
import gc
import html as markup
import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path

from shapeline import files
from shapeline.errors import ShapelineError
from shapeline.report import colours

NO_SCRIPT = "Without JavaScript: all figures and tables are here; sorting, filters and the instance explorer are not."
IMAGE = (
    r'<svg role="img" aria-label="([^"]*)".*?</svg>|<img[^>]*?alt="([^"]*)"[^>]*?src="data:image/png;base64,([^"]+)"'
)


@functools.cache
def style_sheet() -> str:
    """Return the style sheet embedded in every page; `job_code.list_page_code` lists its sources."""
    return colours.style_sheet() + read_packaged("page.css")


@functools.cache
def read_packaged(name: str) -> str:
    """Return a text file of this package."""
    return resources.files("shapeline.report").joinpath(name).read_text(encoding="utf-8")


def page(title: str, body: str) -> str:
    """Return a standalone HTML page around a body, with embedded style and script."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{markup.escape(title)}</title>\n<style>{style_sheet()}</style>\n</head>\n<body>\n"
        f'<noscript><p class="note">{NO_SCRIPT}</p></noscript>\n{body}\n'
        f"<script>\n{read_packaged('page.js')}</script>\n</body>\n</html>\n"
    )


def render(
    notebook: Path | str,
    parameters: Mapping[str, object],
    html: Path | str,
    executed: Path | str,
    metadata: Mapping[str, object] | None = None,
    remark: str = "",
) -> None:
    """Run a parameterised notebook in this process; write it and its page without code, both or neither.

    metadata: stored under metadata.shapeline; remark: under each figure. Raises ShapelineError where a cell fails.
    """
    import nbformat  # imported here, as papermill and mistune below, since the index does not need them

    notebook, html, executed = Path(notebook), Path(html), Path(executed)
    if not notebook.is_file():
        raise ShapelineError(f"notebook {notebook}: no such file; restore it, for example from version control.")
    node = execute(notebook, parameters)
    _tidy(node, notebook, dict(metadata or {}))
    body = _add_remark(_render_body(node), remark)
    heading = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.S)
    title = markup.unescape(re.sub(r"<[^>]+>", "", heading[1])).strip() if heading else html.stem
    write(executed, nbformat.writes(node) + "\n")
    write(html, link_files(page(title, _add_navigation(body)), html.stem))


def execute(notebook: Path, parameters: Mapping[str, object], handle_text: Callable[[str], None] | None = None):
    """Return the notebook with its parameters and the outputs of its cells, which run in this process.

    handle_text: called with each cell of text. Raises ShapelineError where a cell fails.
    """
    import papermill

    # A notebook without a kernel name needs one; no kernel is started.
    options = {"kernel_name": "python3", "language": "python", "progress_bar": False}
    node = papermill.execute_notebook(str(notebook), None, dict(parameters), prepare_only=True, **options)
    names, counter = {"__name__": "report"}, itertools.count(1)
    # Figures have thousands of objects: at default thresholds, garbage collection takes a tenth of a report's time.
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        for number, cell in enumerate(node.cells, 0 if parameters else 1):  # from 1, without the cell of parameters
            if cell.cell_type == "code":
                cell.execution_count, cell.outputs = next(counter), []
                _run_and_store(cell, f"notebook {notebook}, cell {number}", names)
            elif handle_text is not None:
                handle_text(cell.source)
    finally:
        gc.set_threshold(*thresholds)
    return node


def _run_and_store(cell, where: str, names: dict) -> None:
    """Run a cell and store its outputs: printed text, and the value of its last expression."""
    from nbformat.v4 import new_output

    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            value = run_cell(cell.source, where, names)
    except Exception as error:
        last = f"{type(error).__name__}: {error}".strip().splitlines()[-1]
        raise ShapelineError(f"{where}: {last}") from error
    if printed.getvalue():
        cell.outputs.append(new_output("stream", text=printed.getvalue()))
    if value is not None:
        data = {"text/html": value._repr_html_()} if hasattr(value, "_repr_html_") else {}
        data["text/plain"] = repr(value)
        cell.outputs.append(new_output("execute_result", data, execution_count=cell.execution_count))


def run_cell(source: str, where: str, names: dict) -> object:
    """Run the code of a cell and return the value of its last line, None where it is not an expression."""
    tree = ast.parse(source, where)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    return last and eval(compile(last, where, "eval"), names)


def _tidy(node, notebook: Path, metadata: dict) -> None:
    """Keep in the stored notebook only machine-independent data: the default kernel name, no temporary paths."""
    node.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    node.metadata["shapeline"] = metadata
    node.metadata["papermill"] = {"input_path": notebook.name, "parameters": node.metadata["papermill"]["parameters"]}
    for cell in node.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)


def _drop_empty_sections(cells: list) -> list:
    """Return the cells without headings of empty sections."""
    shown, filled = [], False
    for cell in reversed(cells):
        if cell.cell_type == "markdown" and cell.source.startswith("## ") and "\n" not in cell.source.strip():
            if filled:
                shown.append(cell)
            filled = False
            continue
        shown.append(cell)
        filled |= cell.cell_type == "markdown" or any(
            "".join(output.get("data", {}).get("text/html", "something else")).strip()
            for output in cell.get("outputs", ())
        )
    return shown[::-1]


def _render_body(node) -> str:
    """Return texts of the cells and their outputs as HTML, without code."""
    import mistune

    parts = []
    for cell in _drop_empty_sections(node.cells):
        if cell.cell_type == "markdown":
            parts.append(f'<div class="text_cell">{mistune.html(cell.source)}</div>')
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            text = output.get("text", data.get("text/plain", ""))
            parts.append("".join(data.get("text/html", f"<pre>{markup.escape(''.join(text))}</pre>")))
    return "\n".join(parts)


def _add_navigation(body: str) -> str:
    """Return the body with an anchor per section and, after the title block, links to them."""
    links: list[str] = []
    names: Counter[str] = Counter()

    def name_heading(heading: re.Match) -> str:
        text = markup.unescape(re.sub("<[^>]*>", "", heading[1])).lower()
        name = re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "section"
        names[name] += 1
        name += f"-{names[name]}" if names[name] > 1 else ""
        links.append(f'<a href="#{name}">{heading[1]}</a>')
        return f'<h2 id="{name}">{heading[1]}</h2>'

    body = re.sub(r"<h2[^>]*>(.*?)</h2>", name_heading, body, flags=re.S)
    return f"<nav>{' '.join(links)}</nav>\n{body}" if links else body


def _add_remark(body: str, remark: str) -> str:
    """Return the body with a remark under each figure, and in the description of its image."""
    if not remark:
        return body
    title = markup.escape(remark, quote=True)
    body = re.sub(r'(<svg role="img" aria-label="[^"]*"[^>]*>)', rf"\1<desc>{title}</desc>", body)
    return body.replace("</figure>", f'<p class="note">Data: {title}.</p></figure>')


def link_files(text: str, stem: str) -> str:
    """Return a page with links under every figure to its files, which `write_parts` writes into a folder beside it."""
    parts, last = _list_parts(text), []

    def add_links(place: re.Match) -> str:
        if place[0] != "</figure>":
            name, _, numbers = next(parts)
            last[:] = [name, *([str(Path(name).with_suffix(".csv"))] if numbers else [])]
            return place[0]
        links = ", ".join(f'<a href="{stem}_files/{name}">{name[-3:].upper()}</a>' for name in last)
        return f'<p class="files">{links}</p></figure>'

    return re.sub(f"{IMAGE}|</figure>", add_links, text, flags=re.S)


def _list_parts(text: str) -> Iterator[tuple[str, bytes, str | None]]:
    """Yield the file name of every image of a page, its content, and its numbers as CSV."""
    for number, image in enumerate(re.finditer(IMAGE, text, re.S), 1):
        described, *pixels = image.groups()
        name = name_file(markup.unescape(described or pixels[0]))
        if described is None:
            yield f"{number:02d}_{name}.png", base64.b64decode(pixels[1]), None
            continue
        numbers = re.search(r"<metadata>(.+?)</metadata>", image[0], re.S)
        yield f"{number:02d}_{name}.svg", image[0].encode(), markup.unescape(numbers[1]) if numbers else None


def name_file(title: str) -> str:
    """Return the whole words of a title that fit into 80 characters as the name of a file, without its suffix."""
    name = re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")
    return name if len(name) <= 80 else name[:81].rpartition("_")[0] or name[:80]


def write(path: Path, text: str) -> None:
    with files.atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_parts(html: Path | str, folder: Path | str, metrics: Path | str = "") -> list[Path]:
    """Write every figure of a page, named by its description, with CSVs of its numbers into a new `folder`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content, numbers in _list_parts(Path(html).read_text(encoding="utf-8")):
        written.append(folder / name)
        written[-1].write_bytes(content)
        if numbers:
            written.append(written[-1].with_suffix(".csv"))
            written[-1].write_text(numbers, encoding="utf-8")
    return [*written, *(write_metrics(metrics, folder) if metrics else [])]


def write_metrics(compared: Path | str, folder: Path, prefix: str = "") -> list[Path]:
    """Write the compared metrics, a CSV each, and return the files; compared: the file of the comparison."""
    import pandas as pd  # imported here, since other pages have no metrics

    written = []
    for name, rows in pd.read_parquet(compared).groupby("metric"):
        written.append(folder / f"{prefix}{name}.csv")
        rows.drop(columns="metric").to_csv(written[-1], index=False)
    return written
