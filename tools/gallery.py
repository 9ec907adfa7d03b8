"""A gallery of finished runs, made from their pages: python -m tools.gallery FOLDER...

It writes docs/gallery.md, a small figure of each page into docs/images/gallery, the claims of the papers into
docs/images/claims.csv, and their figure, docs/images/claims.png. It is run at the repository's root.
It reads pages and no results. A run whose page is gone keeps its entry and its claims; delete docs/gallery.md and
docs/images/claims.csv to start anew."""

import html
import io
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from shapeline.errors import ShapelineError
from shapeline.report.colours import FIRST, INK, QUIET, SECOND
from shapeline.report.elements import styled
from shapeline.report.formatting import number
from shapeline.statistics.bounds import FAILS, HOLDS, UNDECIDED, verdict

PAGE, FIGURES = Path("docs/gallery.md"), Path("docs/images/gallery")
CLAIMS = Path("docs/images/claims.png")
RECORDS, COLUMNS = CLAIMS.with_suffix(".csv"), ["run", "claim", "found", "verdict"]
COMPARED = re.compile(
    r"(?:(\S+) )?(−?[\d.]+)( %| times(?: as many)?|) \(<? ?(−?[\d.]+)(?: %)? to >? ?(−?[\d.]+)(?: %)?\)"
)
PANELS = (
    "lead in deletion AUC (nats)",
    "lead in F1 or area under precision and recall",
    "times as fast, or as few evaluations",
    "per cent",
)
LOOKS = {HOLDS: ("o", FIRST), FAILS: ("X", SECOND), UNDECIDED: ("D", QUIET)}
LARGEST, LARGEST_OF_ALL = 100_000, 1_000_000  # bytes of a figure, and of all
ANCHOR = '\n<a id="{}"></a>\n'
ROW = re.compile(r"^\| (?:\[`\w+`\]\(#(\w+)\)|`(\w+)`: ).*$", re.M)
DEFAULT = "config.yaml"
SHOWN = re.compile(
    r'<svg role="img" aria-label="([^"]*)"[^>]*>(?:<desc>(.*?)</desc>)?<metadata>(.*?)</metadata>.*?</svg></div>'
    r"(?:<figcaption>(.*?)</figcaption>)?",
    re.S,
)
OTHERS = ("index", "theory", "accuracy")
HEAD = """# Gallery

<!-- Made by `python -m tools.gallery FOLDER...`, of folders with pages (results/reports); do not edit. -->

Finished runs with cost and recommended method; figures show means beside each method's evaluations per instance.
`snakemake RUN --cores 8` computes a run, with `--configfile FILE` where the table names a file. Seconds are of the
methods alone. "100 of 200" instances: a second file set `experiments: {RUN: {instances: {count: 100}}}`.
[claims.csv](images/claims.csv) has every [claim of the papers](papers.md) that a run decides.

"""


@dataclass(frozen=True)
class Page:
    """The contents of a page. facts: the key figures by name; advice: the recommendation of the first card; claims:
    claim, found, verdict; seconds: of all methods, None where no table has them; points: the data of its first figure
    of cost, with its caption."""

    name: str
    title: str
    facts: dict[str, str]
    advice: str
    claims: list[tuple[str, str, str]]
    seconds: float | None
    points: tuple[pd.DataFrame, str] | None


def read(file: Path) -> Page:
    """Return the page of an experiment. Raises ShapelineError for another file."""
    text = file.read_text(encoding="utf-8")
    top = re.search(r'<h1>(.*?)</h1>(.*?)</ul><div class="key">(.*?)</div></div>', text, re.S)
    if not top:
        raise ShapelineError(f"{file}: no page of an experiment; name the folder of the pages, results/reports")
    facts = {
        name.partition(" (95 %")[0]: html.unescape(value)
        for value, name in re.findall(r"<b>(.*?)</b><span>(.*?)</span>", top[3])
    }
    rows = _tables(text, "seconds, total")
    seconds = [row["seconds, total"].replace(",", "").replace("−", "-") for row in rows]
    rows = [float(item) for item in seconds if item[:1].isdigit()]
    claims = [(row["claim"], row["found here"], row["verdict"]) for row in _tables(text, "verdict") if "claim" in row]
    advice = _read_advice(html.unescape(top[2]))
    return Page(file.stem, html.unescape(top[1]), facts, advice, claims, sum(rows) if rows else None, _points(text))


def _read_advice(text: str) -> str:
    """Return the need, the recommended method and its cost of the first card of a page."""
    card = re.search(r'<p class="need">(.*?)</p>.*?<p class="method">(.*?)</p>(?:<p class="cost">(.*?)</p>)?', text)
    if not card:
        return "no recommendation" if "No recommendation" in text else "–"
    need, method, cost = card.groups()
    if "undecided" in method:
        return f"{need}: undecided"
    cost = re.sub(r" \(counted as [\d,]+ evaluations\)| per instance", "", cost or "")
    return f"{need}: {method.lstrip('★⚠ ')}{f' ({cost})' if cost else ''}"


def _tables(text: str, column: str) -> list[dict[str, str]]:
    """Return the rows of every table that has a column, by its heading."""
    rows = []
    for head, body in re.findall(r"<table[^>]*>.*?<thead><tr>(.*?)</tr></thead><tbody>(.*?)</tbody>", text, re.S):
        names = [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<th[^>]*>(.*?)</th>", head, re.S)]
        if column in names:
            for row in re.findall(r"<tr>(.*?)</tr>", body, re.S):
                cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)
                rows.append(
                    dict(zip(names, (html.unescape(re.sub("<.*?>", "", cell)) for cell in cells), strict=False))
                )
    return rows


def _points(text: str) -> tuple[pd.DataFrame, str] | None:
    """Return the data of the first figure of means against costs, embedded as CSV, and its caption."""
    for alt, subset, kept, caption in SHOWN.findall(text):
        if "means against evaluations" in alt and kept:
            first, _, rest = html.unescape(caption).partition(". ")
            caption = f"{first}\n{textwrap.fill(html.unescape(subset), 70)}".strip()
            return pd.read_csv(io.StringIO(html.unescape(kept))), ". ".join([caption, rest])
    return None


@styled
def draw_figure(points: pd.DataFrame, caption: str) -> bytes:
    """Write a PNG of means as dots with their intervals, the best on top, and the evaluations of each method."""
    ordered = points.sort_values("mean", ascending="upper left" in caption, ignore_index=True)
    drawing = Figure(figsize=(6.4, 0.7 + 0.24 * len(ordered)), dpi=100, layout="constrained")
    axes = drawing.subplots()
    axes.hlines(ordered.index, ordered["low"], ordered["high"], color=QUIET, linewidth=2)
    axes.plot(ordered["mean"], ordered.index, "o", color=INK, markersize=5)
    labels = [f"{row.method}, {number(row.evaluations)}" for row in ordered.itertuples()]
    axes.set_yticks(ordered.index, labels, fontsize=8)
    axes.set_xlabel(caption.partition(". ")[0], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    return _encode(drawing)


def list_comparisons(records: pd.DataFrame) -> pd.DataFrame:
    """Return the intervals of all claims: panel, text, mean, low, high, claimed, verdict."""
    rows = []
    for name, claim, found in records[["run", "claim", "found"]].itertuples(index=False):
        if re.match(r"ahead of: |[\d.]+ (?:%|times) ", found):
            for rival, *numbers, unit in ((m[1], m[2], m[4], m[5], m[3].strip()) for m in COMPARED.finditer(found)):
                mean, low, high = (float(number.replace("−", "-")) for number in numbers)
                is_score = re.search("F1|recall|accurate", claim)
                panel = {"%": 3, "": 1 if is_score else 0}.get(unit, 2)
                share, tenfold = re.search(r"([\d.]+) %", claim), re.search("ten times|orders of magnitude", claim)
                bar = (0.0, 0.0, 10.0 if tenfold else 1.0, float(share[1]) if share else 50.0)[panel]
                ends = [" on some of the rows" * ("subset" in found), f" ({rival})" * bool(rival)]
                text = f"{name}: {textwrap.shorten(claim, 88, placeholder=' …')}{''.join(ends)}"
                rows.append((PANELS[panel], text, mean, low, high, bar, verdict(low, high, bar=bar)))
    return pd.DataFrame(rows, columns=["panel", "text", "mean", "low", "high", "claimed", "verdict"])


@styled
def draw_claims(comparisons: pd.DataFrame) -> bytes:
    """Write a PNG of the intervals of the findings beside the claims, in a panel per unit."""
    panels = [(name, rows) for name in PANELS if len(rows := comparisons[comparisons["panel"] == name])]
    heights = [len(rows) + 1.5 for _, rows in panels]
    drawing = Figure(figsize=(10, 0.3 + 0.17 * sum(heights)), dpi=100, layout="constrained")
    grid = drawing.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, rows) in zip(grid, panels, strict=True):
        ys = range(len(rows))
        axes.hlines(ys, rows["low"], rows["high"], color=[LOOKS[word][1] for word in rows["verdict"]], linewidth=2)
        axes.plot(rows["claimed"], ys, "|", color=INK, markersize=9)
        for y, row in zip(ys, rows.itertuples(), strict=True):
            marker, colour = LOOKS[row.verdict]
            axes.plot(row.mean, y, marker, color=colour, markersize=4)
        axes.set_yticks(ys, rows["text"], fontsize=6.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(name, fontsize=7, labelpad=1)
        axes.tick_params(axis="x", labelsize=7)
        if "times" in name:
            axes.set_xscale("log")
    handles = [grid[0].plot([], [], marker, color=colour, label=word)[0] for word, (marker, colour) in LOOKS.items()]
    handles += grid[0].plot([], [], "|", color=INK, label="claimed")
    drawing.legend(handles=handles, loc="outside upper right", ncols=4, fontsize=7)
    buffer = io.BytesIO()
    Image.open(io.BytesIO(_encode(drawing))).convert("RGB").quantize(64, Image.Quantize.FASTOCTREE).save(
        buffer, "PNG", optimize=True
    )
    return buffer.getvalue()


def _encode(drawing: Figure) -> bytes:
    FigureCanvasAgg(drawing)
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def configured() -> dict[str, tuple[str, dict]]:
    """Return the file and the entry of every experiment of the repository, by name; the first file counts."""
    found: dict[str, tuple[str, dict]] = {}
    for file in (Path("config.yaml"), Path("config.paper.yaml"), *sorted(Path("examples").glob("*.yaml"))):
        for name, entry in (yaml.safe_load(file.read_text(encoding="utf-8")).get("experiments") or {}).items():
            found.setdefault(name, (str(file), entry))
    return found


def document(entries: dict[str, tuple[str, str]]) -> str:
    """Return the gallery in Markdown, from the row and the section of each run."""
    head = "| run | explained | cost | recommended by the first criterion (cost per instance) |"
    table = "\n".join([head, "|---|---|---|---|", *(row for row, _ in entries.values())])
    return "".join([HEAD, table, "\n", *(section for _, section in entries.values())])


def entry(page: Page, known: dict[str, tuple[str, dict]], drawn: bool) -> tuple[str, str]:
    """Return the row of a run, and its section if it has an image (drawn)."""
    file = known.get(page.name, ("a file outside the repository", {}))[0]
    first = [f"[`{page.name}`](#{page.name})" if drawn else f"`{page.name}`: {_cell(page.title)}"]
    first += [f"`{file}`" if page.name in known else file] * (file != DEFAULT)
    cells = (", ".join(first), _describe_instances(page, known), _cost(page), _cell(page.advice))
    row = f"| {' | '.join(cells)} |"
    if not drawn:
        return row, ""
    link = FIGURES.relative_to(PAGE.parent) / f"{page.name}.png"
    image = f"![{page.name}: means with 95 % intervals]({link})"
    return row, f"{ANCHOR.format(page.name)}\n## {_cell(page.title)}\n\n{image}\n"


def read_entries() -> dict[str, tuple[str, str]]:
    """Return the entries of the existing gallery."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    parts = re.split(re.escape(ANCHOR).replace(r"\{\}", r"(\w+)"), text)
    sections = {name: ANCHOR.format(name) + section for name, section in zip(parts[1::2], parts[2::2], strict=True)}
    return {name: (found[0], sections.get(name, "")) for found in ROW.finditer(text) for name in [found[1] or found[2]]}


def merge_records(pages: Sequence[Page], order: dict[str, int]) -> pd.DataFrame:
    """Return the claims of the pages, and of earlier runs without one."""
    rows = [
        (page.name, claim, found, judged.replace("⚠ ", "")) for page in pages for claim, found, judged in page.claims
    ]
    before = pd.read_csv(RECORDS, dtype=str) if RECORDS.exists() else pd.DataFrame(columns=COLUMNS)
    before = before[~before["run"].isin([page.name for page in pages])]
    records = pd.concat([before, pd.DataFrame(rows, columns=COLUMNS)], ignore_index=True)
    positions = records["run"].map(lambda name: order.get(name, len(order)))
    return records.iloc[positions.argsort(kind="stable")]


def _describe_instances(page: Page, known: dict[str, tuple[str, dict]]) -> str:
    explained = next((value for name, value in page.facts.items() if name.endswith("explained")), "–")
    planned = known.get(page.name, ("", {}))[1].get("instances", {}).get("count", 0)
    count = explained.replace(",", "")
    fewer = f" of {number(planned)}" if count.isdigit() and int(count) < planned else ""
    right = f"; model {page.facts['test accuracy']}" if page.facts.get("test accuracy", "–") != "–" else ""
    return f"{explained}{fewer}, d = {page.facts.get('features (d)', '–')}{right}"


def _cost(page: Page) -> str:
    model = "no model" if "labelled rows" in page.facts else None
    work = f"{page.facts['evaluations']} evaluations" if "evaluations" in page.facts else model
    return ", ".join(filter(None, [work, f"{number(page.seconds, 2)} s" if page.seconds is not None else None])) or "–"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").strip()


def main(arguments: Sequence[str] | None = None) -> int:
    folders = [Path(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    try:
        files = {file.stem: file for folder in folders for file in sorted(folder.glob("*.html"))}
        known = configured()
        pages = [read(file) for name, file in files.items() if name not in OTHERS]
        if not pages:
            raise ShapelineError("gallery: no pages are named; run python -m tools.gallery results/reports")
        drawn = {page.name: draw_figure(*page.points) for page in pages if page.points}
        new_entries = {page.name: entry(page, known, page.name in drawn) for page in pages}
        old_entries = {name: section for name, section in read_entries().items() if name not in new_entries}
        figures = {file.stem: file.read_bytes() for file in FIGURES.glob("*.png") if file.stem in old_entries} | drawn
        if max(map(len, figures.values()), default=0) > LARGEST or sum(map(len, figures.values())) > LARGEST_OF_ALL:
            raise ShapelineError("gallery: the figures are larger than a repository should hold; name fewer pages")
    except ShapelineError as error:
        print(error, file=sys.stderr)
        return 1
    order = {name: position for position, name in enumerate(known)}
    entries = dict(sorted({**old_entries, **new_entries}.items(), key=lambda each: order.get(each[0], len(order))))
    FIGURES.mkdir(parents=True, exist_ok=True)
    for old in FIGURES.glob("*.png"):
        old.unlink()
    for name, content in figures.items():
        (FIGURES / f"{name}.png").write_bytes(content)
    PAGE.write_text(document(entries), encoding="utf-8")
    records = merge_records(pages, order)
    records.to_csv(RECORDS, index=False)
    if len(comparisons := list_comparisons(records)):
        CLAIMS.write_bytes(draw_claims(comparisons))
    print(f"{PAGE}: {len(entries)} runs, {len(figures)} figures, {sum(map(len, figures.values())):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
