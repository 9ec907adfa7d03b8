"""Elements of a page: tables, notes, headings, figures."""

import base64
import html
import io
import re
from collections.abc import Iterable

import pandas as pd
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

from shapeline.report.html import HTML
from shapeline.report.styling import DOTS_PER_INCH, PIXELS_PER_INCH, styled

FOLD = "How this is computed"  # title of a fold with details
DIGITS = re.compile(rb"(\.\d\d)\d+")
Answers = Iterable[tuple[str, str]]  # the answer in short, and what else is to be said of it


def folded(title: str, part: HTML) -> HTML:
    """A part of a page that opens on a click."""
    return HTML(f"<details><summary>{html.escape(title)}</summary>{part.data}</details>")


def table(frame: pd.DataFrame, caption: str = "", text: Iterable[str] = (), header: bool = True) -> HTML:
    """Return a table of text; columns other than the first and those in `text` are aligned right, and a cell with ⚠ is
    highlighted. A column of labels has the title "method"."""
    text = {frame.columns[0], *text} if len(frame.columns) else set()
    classes = ["text" if column in text else "number" for column in frame.columns]
    titles = ["method" if column == "label" else column for column in frame.columns]

    def cells(values: Iterable, tag: str) -> str:
        return "".join(
            f'<{tag} class="{kind}{" flag" if str(value).startswith("⚠") else ""}">{html.escape(str(value))}</{tag}>'
            for value, kind in zip(values, classes, strict=True)
        )

    head = f"<thead><tr>{cells(titles, 'th')}</tr></thead>" if header else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in frame.itertuples(index=False, name=None))
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return HTML(
        f'<div class="wide"><table class="{"" if header else "facts"}">{title}{head}<tbody>{body}</tbody></table></div>'
    )


def note(text: str) -> HTML:
    """One line of explanation."""
    return HTML(f'<p class="note">{html.escape(text)}</p>')


def missing(metric: str) -> HTML:
    """The line that stands in for the figures of a metric that was not computed."""
    return note(f"Not available: the metric “{metric}” was not computed in this experiment.")


def heading(text: str, level: int = 3) -> HTML:
    """The heading of a section (level 2), or inside one."""
    return HTML(f"<h{level}>{html.escape(text)}</h{level}>")


def together(*parts: HTML | None) -> HTML:
    """Several parts as one; None is left out."""
    return HTML("".join(part.data for part in parts if part is not None))


def pair(left: HTML, right: HTML) -> HTML:
    """Two tables side by side where the page is wide enough."""
    return HTML(f'<div class="pair"><div>{left.data}</div><div>{right.data}</div></div>')


@styled
def figure(
    drawing: Figure | None, alt: str, caption: str = "", vector: bool = True, numbers: pd.DataFrame | None = None
) -> HTML | None:
    """A figure inside the page: vector graphics, or a image at twice the screen's resolution; `alt` describes it.

    numbers: what is drawn, kept in the vector graphics as CSV, which `rendering.write_parts` writes beside the figure;
    none where a compared metric's CSV has it all.
    """
    if drawing is None:
        return None
    lay_out(drawing)
    kind, content = ("svg+xml", _vectors(drawing, numbers)) if vector else ("png", _pixels(drawing))
    width = round(drawing.get_figwidth() * PIXELS_PER_INCH)
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    legend = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    image = f'<img width="{width}" alt="{html.escape(alt, quote=True)}" src="{source}">'
    return HTML(f'<figure><div class="wide">{image}</div>{legend}</figure>')


def _vectors(drawing: Figure, numbers: pd.DataFrame | None) -> bytes:
    """Return a figure as SVG, with coordinates to a hundredth of a point: more digits make pages larger, not finer."""
    described = {} if numbers is None else {"Description": numbers.to_csv(index=False, float_format="%.6g")}
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None, **described})
    head, metadata, body = buffer.getvalue().partition(b"</metadata>")
    return (
        head + metadata + re.sub(rb'(?<= d=")[^"]*|(?<= [xy]=")[^"]*', lambda part: DIGITS.sub(rb"\1", part[0]), body)
    )


def _pixels(drawing: Figure) -> bytes:
    """Return a figure as PNG."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=DOTS_PER_INCH)
    return buffer.getvalue()


def width_of(text: str) -> float:
    """Return the width of a line of text in the current style (inches)."""
    return TextPath((0, 0), text, size=rcParams["font.size"]).get_extents().width / 72


def lay_out(drawing: Figure) -> None:
    """Fix the places of a figure's parts."""
    if (engine := drawing.get_layout_engine()) is not None:
        engine.execute(drawing)
        drawing.set_layout_engine(None)
