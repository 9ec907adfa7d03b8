"""Elements of a page: tables, notes, headings, figures."""

import base64
import functools
import html
import io
import re
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image, ImageChops

from shapeline.report import svg
from shapeline.report.html import HTML
from shapeline.report.styling import DOTS_PER_INCH, PIXELS_PER_INCH, styled

SEEN = 16  # of 255: what two shades may be apart before anyone sees it
DIGITS = re.compile(rb"(\.\d\d)\d+")
Answers = Iterable[tuple[str, str]]  # the answer in short, and what else is to be said of it


def folded(title: str, part: HTML) -> HTML:
    """A part of a page that opens on a click."""
    return HTML(f"<details><summary>{html.escape(title)}</summary>{part.data}</details>")


def table(frame: pd.DataFrame, caption: str = "", text: Iterable[str] = (), header: bool = True) -> HTML:
    """A table of text; columns other than the first and those in `text` are aligned right; a cell with ⚠ stands out."""
    text = {frame.columns[0], *text} if len(frame.columns) else set()
    classes = ["text" if column in text else "number" for column in frame.columns]

    def cells(values: Iterable, tag: str) -> str:
        return "".join(
            f'<{tag} class="{kind}{" flag" if str(value).startswith("⚠") else ""}">{html.escape(str(value))}</{tag}>'
            for value, kind in zip(values, classes, strict=True)
        )

    head = f"<thead><tr>{cells(frame.columns, 'th')}</tr></thead>" if header else ""
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
    return note(f"No figures here: the metric “{metric}” was not computed in this experiment.")


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
    """A figure inside the page: vector graphics, or a picture at twice the screen's resolution; `alt` describes it.

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
    """A figure as SVG, without what nobody sees: digits beyond a hundredth of a point, names of groups, indents."""
    told = {} if numbers is None else {"Description": numbers.to_csv(index=False, float_format="%.6g")}
    head, metadata, body = svg.written(drawing, {"Date": None, **told}).partition(b"</metadata>")
    body = re.sub(rb'(?<= d=")[^"]*|(?<= [xy]=")[^"]*', lambda place: DIGITS.sub(rb"\1", place[0]), body)
    return head + metadata + re.sub(rb'\n +|(?<=<g) id="[^"]*"', lambda part: part[0][:1].strip(b" "), body)


def _pixels(drawing: Figure) -> bytes:
    """A figure as PNG, without the transparency that `savefig` would keep."""
    drawing.set_dpi(DOTS_PER_INCH)
    canvas = FigureCanvasAgg(drawing)
    canvas.draw()
    buffer = io.BytesIO()
    # At the highest level a picture takes four times as long to write, for an eighth of its bytes.
    _of_few_colours(np.asarray(canvas.buffer_rgba())).save(buffer, "png", compress_level=7)
    return buffer.getvalue()


def _of_few_colours(drawn: np.ndarray) -> Image.Image:
    """An opaque picture (height, width, 4), of 256 colours where nobody sees it, which halves a page.

    They are chosen among the colours that it has, a thousand as a rule, and not pixel by pixel, of which it has
    millions: the same ones in a fifth of the time.
    """
    colour = drawn.view("<u4")[..., 0] & 0xFFFFFF
    there = np.zeros(1 << 24, bool)
    there[colour] = True
    every = np.flatnonzero(there).astype("<u4")
    apart = Image.fromarray(every.view(np.uint8).reshape(1, -1, 4)).convert("RGB")
    # The colours that lie farthest apart: those of small parts too, which the usual choice merges, in half the time.
    few = apart.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    if max(most for _, most in ImageChops.difference(few.convert("RGB"), apart).getextrema()) > SEEN:
        return Image.fromarray(drawn).convert("RGB")
    places, number = np.asarray(few)[0], there.view(np.uint8)
    number[every] = places
    picture = Image.fromarray(number[colour])
    picture.putpalette(few.getpalette()[: 3 * (int(places.max()) + 1)])  # behind it is whatever the memory held
    return picture


@functools.cache
def _measuring(dpi: float) -> Callable:
    """What measures texts for a layout, once for all figures."""
    return functools.cache(RendererAgg(1, 1, dpi).get_text_width_height_descent)


def width_of(text: str) -> float:
    """How wide a line of text is in the current style (inches)."""
    return _measuring(PIXELS_PER_INCH)(text, FontProperties(), False)[0] / PIXELS_PER_INCH


def lay_out(drawing: Figure) -> None:
    """Fix the places of a figure's parts; left to `savefig` a layout, one that does nothing too, has it draw twice."""
    renderer = FigureCanvasAgg(drawing).get_renderer()  # or every look at a text's extent would set up one anew
    renderer.get_text_width_height_descent = _measuring(renderer.dpi)
    if (engine := drawing.get_layout_engine()) is not None:
        engine.execute(drawing)
        drawing.set_layout_engine(None)
    for axes in drawing.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if not axis.get_label_text():  # whose place every draw would look for among the names of the ticks
                axis.set_label_coords(0, 0)
