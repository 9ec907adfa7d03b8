"""Reports: a notebook run by papermill, kept, and shown as a page that needs nothing else; the index of the pages."""

import base64
import contextlib
import copy
import html as markup
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shapeline import files
from shapeline.errors import ShapelineError

KERNEL = "shapeline"
# A figure is made of thousands of objects: at the usual thresholds a tenth of a report is looking for garbage.
LAUNCH = (
    "import gc, runpy; gc.set_threshold(100_000, 50, 50); runpy.run_module('ipykernel_launcher', run_name='__main__')"
)
COLUMNS = {  # of the index, and how they are aligned
    "experiment": "text",
    "model accuracy": "number",
    "instances": "number",
    "best masking area (nats)": "text",
    "best control": "text",
    "closest sampled method (RMSE)": "text",
    "evaluations": "number",
    "failures": "number",
}

CSS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --quiet: #595959; --rule: #7a7a7a; --line: #d4d4d4;
  --faint: #e4e4e4; --box: #f4f6f8; --link: #0b5394; --warn: #9a3a00; --shadow: #00000024; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #15181c; --ink: #e6e6e6; --quiet: #a9b0b7; --rule: #8a9199; --line: #434a52; --faint: #2c3239;
    --box: #1e242b; --link: #7db7f0; --warn: #ffa366; --shadow: #ffffff24; }
  figure img { filter: brightness(0.9); border-radius: 4px; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 40px 64px; max-width: 1184px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 14px; }
h2 { font-size: 20px; margin: 40px 0 8px; padding-top: 10px; border-top: 1px solid var(--line); }
h3 { font-size: 16px; margin: 24px 0 6px; }
p, li { max-width: 860px; }
p { margin: 8px 0; }
a { color: var(--link); }
nav { font-size: 13.5px; margin: 0 0 18px; color: var(--quiet); }
nav a { margin-right: 14px; white-space: nowrap; }
.key { display: flex; flex-wrap: wrap; gap: 10px; margin: 14px 0; }
.key div { flex: 1 1 130px; border: 1px solid var(--line); border-radius: 5px; padding: 8px 12px; }
.key b { display: block; font-size: 21px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.key span { font-size: 12.5px; color: var(--quiet); }
ul.headlines { margin: 0; padding: 12px 20px 12px 36px; background: var(--box); border-left: 4px solid var(--link); }
ul.headlines li { margin: 3px 0; max-width: none; }
.note, figcaption { color: var(--quiet); font-size: 13.5px; max-width: 900px; }
figure { margin: 12px 0 18px; }
figure img { display: block; max-width: 100%; height: auto; }
figure .wide { margin: 0; }
figcaption { margin-top: 4px; }
.wide { overflow-x: auto; margin: 10px 0 16px; }
table { width: 100%; border-collapse: collapse; font-size: 13.5px; line-height: 1.35;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0 0 6px; }
th { text-align: left; font-weight: 600; border-bottom: 1.5px solid var(--rule); vertical-align: bottom; }
th, td { padding: 4px 12px 4px 0; }
td { border-bottom: 1px solid var(--faint); vertical-align: top; }
th.number, td.number { text-align: right; padding: 4px 0 4px 16px; }
td.number, td.flag { white-space: nowrap; }
th.number { max-width: 150px; }
th.text + th.text, td.text + td.text, th.number + th.text, td.number + td.text { padding-left: 16px; }
td.flag { color: var(--warn); font-weight: 600; }
table.facts td:first-child { color: var(--quiet); white-space: nowrap; padding-right: 8px; }
table.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0 40px; }
table.index { font-size: 12.5px; }
table.index td:first-child { min-width: 150px; } table.index td + td { white-space: nowrap; }
table.experiments td.paper { color: var(--quiet); }
table.experiments tr.first td { border-bottom: none; }
table.index tr > * { padding: 5px 0 5px 14px; } table.index tr > :first-child { padding-left: 0; }
.pair > div { min-width: 0; }
pre { font-size: 12.5px; white-space: pre-wrap; overflow-wrap: anywhere; }
.prompt { display: none; }
@media screen and (max-width: 900px) {
  body { padding: 16px; } .pair { grid-template-columns: minmax(0, 1fr); }
  nav { overflow-x: auto; white-space: nowrap; }
  h1 { font-size: 22px; }
  .key { gap: 6px; } .key div { flex: 1 1 96px; padding: 5px 9px; } .key b { font-size: 17px; }
  .key span { font-size: 11.5px; display: block; line-height: 1.25; }
  ul.headlines { padding: 10px 12px 10px 28px; }
  /* On a telephone wide things keep their size and are moved sideways, under a shadow while there is more to the
     right: figures shrunk to the screen could not be read. The first column of a table stays. */
  figure img { max-width: none; } .pair figure img, .examples figure img { max-width: 100%; }
  .wide { background: linear-gradient(to left, var(--paper), var(--paper)) right / 16px 100% no-repeat local,
    linear-gradient(to left, var(--shadow), transparent) right / 10px 100% no-repeat scroll; }
  .wide > table:not(.facts, .record, .sentence) { width: max-content; min-width: 100%; max-width: 860px; }
  .wide > table:not(.facts) > * > tr > :first-child { position: sticky; left: 0; z-index: 1; background: var(--paper);
    max-width: 42vw; white-space: normal; }
}
@media print {
  @page { size: A4; margin: 13mm 12mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h1 { font-size: 19pt; } h2 { font-size: 14pt; margin-top: 18pt; }
  h2, h3, caption, .text_cell { break-after: avoid; }
  figure, tr, .key, ul.headlines, .wide, .pair { break-inside: avoid; }
  p { orphans: 3; widows: 3; }
  thead { display: table-header-group; }
  table { font-size: 8.2pt; width: 100%; }
  td, th { padding-right: 6px; }
  th.number, td.number { padding-left: 8px; }
  .wide { overflow: visible; }
  table.index td + td, .pair td.number { white-space: normal; }
  .key div { flex: 1 1 0; padding: 5px 7px; } .key b { font-size: 13pt; } .key span { font-size: 8pt; }
  ul.headlines, td.flag { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  a { color: inherit; text-decoration: none; }
}
"""


def page(title: str, body: str) -> str:
    """A whole HTML page around a body; style inside, no script, nothing loaded from elsewhere."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{markup.escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def render(
    notebook: Path | str,
    parameters: Mapping[str, object],
    html: Path | str,
    executed: Path | str,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Run a parameterised notebook in this interpreter and keep it (`executed`) and its page without code (`html`).

    The working folder of the notebook is the caller's. `metadata` (the settings digest, say) is kept in the executed
    notebook under metadata.shapeline. Both files appear whole or not at all. A cell that fails raises ShapelineError:
    notebook, cell, last line of the error.
    """
    import nbformat  # here, as papermill and nbconvert below, so that the index does not wait for them

    notebook, html, executed = Path(notebook), Path(html), Path(executed)
    if not notebook.is_file():
        raise ShapelineError(f"notebook {notebook}: no such file; restore it, for example from version control.")
    node = _execute(notebook, dict(parameters))
    _tidy(node, notebook, dict(metadata or {}))
    body = _body(node)
    found = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.S)
    title = markup.unescape(re.sub(r"<[^>]+>", "", found[1])).strip() if found else html.stem
    _write(executed, nbformat.writes(node) + "\n")
    _write(html, page(title, _with_navigation(body)))


def _execute(notebook: Path, parameters: dict):
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    with _kernel() as (name, connection):
        try:
            return papermill.execute_notebook(
                *(str(notebook), None, parameters),
                kernel_name=name,
                language="python",
                progress_bar=False,
                config=Config({"KernelManager": connection}),
            )
        except PapermillExecutionError as error:
            number = error.cell_index + (0 if parameters else 1)  # from 1, without the cell that papermill adds
            last = f"{error.ename}: {error.evalue}".strip().splitlines()[-1]
            raise ShapelineError(f"notebook {notebook}, cell {number}: {last}") from error
        except (DeadKernelError, RuntimeError) as error:  # killed, often for memory, or never started
            reason = str(error).strip().splitlines()[-1]
            raise ShapelineError(f"notebook {notebook}: its kernel stopped ({reason}); is memory free?") from error


@contextlib.contextmanager
def _kernel() -> Iterator[tuple[str, dict[str, str]]]:
    """A kernel description for this very interpreter, in a folder of its own: its name, and how to talk to it.

    The machine's 'python3' kernel may belong to another environment, and the user's IPython profile may run anything.
    Sockets in the folder need no network ports, nor the default's names in the working folder: reports that are
    rendered at once would race for either.
    """
    names = ("JUPYTER_PATH", "JUPYTER_RUNTIME_DIR")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="shapeline-") as folder:
        description = {
            "argv": [sys.executable, "-c", LAUNCH, "-f", "{connection_file}"],
            "display_name": "Shapeline",
            "language": "python",
            "env": {
                "IPYTHONDIR": str(Path(folder, "ipython")),
                "MPLBACKEND": "agg",
                "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            },
        }
        place = Path(folder, "kernels", KERNEL, "kernel.json")
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(description))
        os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [folder, before["JUPYTER_PATH"]]))
        os.environ["JUPYTER_RUNTIME_DIR"] = folder
        try:
            # 107 bytes is the longest name of a socket.
            short = os.name == "posix" and len(folder) < 90
            yield KERNEL, {"transport": "ipc", "ip": f"{folder}/kernel"} if short else {"transport": "tcp"}
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _tidy(node, notebook: Path, metadata: dict) -> None:
    """Leave in the kept notebook only what another machine can use: the usual kernel name, no temporary paths."""
    node.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    node.metadata["shapeline"] = metadata
    node.metadata["papermill"] = {"input_path": notebook.name, "parameters": node.metadata["papermill"]["parameters"]}
    for cell in node.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)


def _body(node) -> str:
    """The outputs and texts of the cells as HTML: no code, no prompts, no warnings, nothing from a network."""
    from nbconvert import HTMLExporter

    shown = copy.deepcopy(node)
    for cell in shown.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    exporter = HTMLExporter(
        template_name="basic",
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    return exporter.from_notebook_node(shown)[0]


def _with_navigation(body: str) -> str:
    """The body with a place for every section and, after the page's title block, links to them."""
    links: list[str] = []

    def named(heading: re.Match) -> str:
        links.append(f'<a href="#section-{len(links) + 1}">{heading[1]}</a>')
        return f'<h2 id="section-{len(links)}">{heading[1]}</h2>'

    body = re.sub(r"<h2[^>]*>(.*?)</h2>", named, body, flags=re.S)
    return f"<nav>{' '.join(links)}</nav>\n{body}" if links else body


def _write(path: Path, text: str) -> None:
    with files.atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_parts(html: Path | str, folder: Path | str, metrics: Mapping[str, str] | None = None) -> list[Path]:
    """Write every figure of a page as SVG, named by its description, and the compared metrics behind them as CSV.

    folder: made anew; metrics: name -> compared Parquet file. Returns the files. Numbers that a figure carries
    (`plots.figure`) are a CSV of its name. A figure that is a picture of pixels (attribution maps) is written as the
    PNG it is.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    figures = re.findall(
        r'<img[^>]*?alt="([^"]*)"[^>]*?src="data:image/(svg\+xml|png);base64,([^"]+)"', Path(html).read_text()
    )
    for number, (description, kind, content) in enumerate(figures, 1):
        name = re.sub(r"[^a-z0-9]+", "_", markup.unescape(description).lower())[:60].strip("_")
        written.append(folder / f"{number:02d}_{name}.{'svg' if kind == 'svg+xml' else 'png'}")
        written[-1].write_bytes(base64.b64decode(content))
        numbers = re.search(rb"<dc:description>(.*?)</dc:description>", base64.b64decode(content), re.S)
        if kind == "svg+xml" and numbers:
            written.append(written[-1].with_suffix(".csv"))
            written[-1].write_text(markup.unescape(numbers[1].decode()), encoding="utf-8")
    if metrics:
        import pandas as pd  # here, for other pages have none
    for name, path in (metrics or {}).items():
        written.append(folder / f"{name}.csv")
        pd.read_parquet(path).to_csv(written[-1], index=False)
    return written


def index(
    entries: Sequence[Mapping[str, object]],
    html: Path | str,
    pages: Mapping[str, str] | None = None,
    above: str = "",
    below: str = "",
) -> None:
    """Write the page that links every report, with one headline row an experiment; pages: link -> title of others.

    entries: as made by `findings.headline`, and a link: title, link, accuracy or r2, instances, best, control,
    control_wins, error, evaluations, rows, failures; what is None is shown as a dash. above, below: HTML before
    and after the table.
    """
    head = "".join(f'<th class="{kind}">{name}</th>' for name, kind in COLUMNS.items())
    rows = "".join(f"<tr>{_row(entry)}</tr>" for entry in entries)
    body = (
        "<h1>Shapeline: which attribution to trust, and what it costs</h1>\n"
        f"{above}<h2>Reports</h2>\n"
        "<p>One report an experiment. The masking area is the mean change of log-odds while the top features are "
        "removed: lower is better; 95 % bootstrap intervals over instances in brackets. A control is a scorer that "
        "costs next to nothing: where it wins, no method has earned its evaluations.</p>\n"
        f'<div class="wide"><table class="index"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    if not entries:
        body += '\n<p class="note">No experiment has a report yet.</p>'
    for link, title in (pages or {}).items():
        body += f'\n<p><a href="{markup.escape(link, quote=True)}">{markup.escape(title)}</a></p>'
    links = {str(entry["link"]): str(entry.get("experiment") or entry["title"]) for entry in entries}
    links |= {link: title.split(":")[0] for link, title in (pages or {}).items()}
    every = " ".join(f'<a href="{markup.escape(one, quote=True)}">{markup.escape(of)}</a>' for one, of in links.items())
    _write(Path(html), page("Shapeline reports", f"<nav>{every}</nav>\n{body}{below}"))


def _row(entry: Mapping[str, object]) -> str:
    from shapeline.findings import interval, number, sure

    wins, failures, accuracy = entry.get("control_wins"), entry.get("failures"), entry.get("accuracy")
    r2 = entry.get("r2")

    def named(key: str) -> str:
        part = entry.get(key)
        return f"<b>{markup.escape(part['label'])}</b><br>{interval(part)}" if part else "–"

    verdict = "" if wins is None else "<br>wins" if wins else "<br>does not win"
    behind = entry.get("control_behind")
    verdict += "" if behind is None or sure(behind) else ",<br>not for sure"
    spent = f"<br>{number(entry['error']['evaluations'])} evaluations" if entry.get("error") else ""
    cells = (
        f'<a href="{markup.escape(str(entry["link"]), quote=True)}">{markup.escape(str(entry["title"]))}</a>',
        f"R² {r2:.2f}" if r2 is not None else "–" if accuracy is None else f"{100 * accuracy:.1f} %",
        number(entry.get("instances")),
        named("best"),
        named("control") + verdict,
        named("error") + spent,
        number(entry.get("evaluations")),
        "none" if not failures else f"⚠ {number(failures)}<br>of {number(entry.get('rows'))}",
    )
    flagged = {4: bool(wins), 7: bool(failures)}
    return "".join(
        f'<td class="{kind}{" flag" if flagged.get(place) else ""}">{cell}</td>'
        for place, (kind, cell) in enumerate(zip(COLUMNS.values(), cells, strict=True))
    )
