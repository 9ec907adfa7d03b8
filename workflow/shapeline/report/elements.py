"""Elements of a page: tables, notes, headings, figures."""

import base64
import html
import io
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from PIL import Image

from shapeline.report.styling import DOTS_PER_INCH, PIXELS_PER_INCH, styled

FOLD = "How this is computed"  # title of a fold with details
MANY_COLOURS = 10_000  # of a figure with photographs
DIGITS = re.compile(r"(\.\d\d)\d+")
METHOD = "method: "  # before the name of a method, in the identifier of an artist that shows it
FONTS = "'DejaVu Sans', Verdana, sans-serif"  # Verdana has nearly the same widths
# Called with each figure (drawing, title, numbers) and table (frame, title) that is made into a part of a page.
observers: list[Callable] = []
Answers = Iterable[tuple[str, str]]  # the answer in short, and what else is to be said of it


@dataclass(frozen=True, repr=False)
class HTML:
    """A fragment of a page; IPython and nbconvert show it by `_repr_html_`, so that neither has to be installed."""

    data: str

    def __repr__(self) -> str:
        return "<HTML>"  # a notebook keeps the text of an output beside its HTML

    def _repr_html_(self) -> str:
        return self.data


def part(title: str, content: HTML) -> HTML:
    """Return a part of a page that opens on a click, with a heading of level 2 as title."""
    return HTML(f'<details class="part"><summary><h2>{html.escape(title)}</h2></summary>{content.data}</details>')


def fold(title: str, part: HTML) -> HTML:
    """A part of a page that opens on a click."""
    return HTML(f"<details><summary>{html.escape(title)}</summary>{part.data}</details>")


def table(frame: pd.DataFrame, caption: str = "", text: Iterable[str] = (), header: bool = True) -> HTML:
    """Return a table; columns but the first and `text` are aligned right, cells with ⚠ highlighted."""
    for observe in observers:
        observe(frame, caption)
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
    return note(f"Not available: the metric “{metric}” was not computed in this experiment.")


def heading(text: str, level: int = 3) -> HTML:
    """The heading of a section (level 2), or inside one."""
    return HTML(f"<h{level}>{html.escape(text)}</h{level}>")


def join_parts(*parts: HTML | None) -> HTML:
    """Several parts as one; None is left out."""
    return HTML("".join(part.data for part in parts if part is not None))


def pair(left: HTML, right: HTML) -> HTML:
    """Two tables side by side where the page is wide enough."""
    return HTML(f'<div class="pair"><div>{left.data}</div><div>{right.data}</div></div>')


@styled
def figure(
    drawing: Figure | None, alt: str, caption: str = "", vector: bool = True, numbers: pd.DataFrame | None = None
) -> HTML | None:
    """Return a figure inside the page: an SVG element, or pixels at twice the resolution; numbers: its CSV."""
    if drawing is None:
        return None
    place_parts(drawing)
    for observe in observers:
        observe(drawing, alt, numbers)
    width, description = round(drawing.get_figwidth() * PIXELS_PER_INCH), html.escape(alt, quote=True)
    if vector:
        image = f'<svg role="img" aria-label="{description}" width="{width}" {_vectors(drawing, numbers)}'
    else:
        source = f"data:image/png;base64,{base64.b64encode(_pixels(drawing)).decode()}"
        image = f'<img width="{width}" alt="{description}" src="{source}">'
    legend = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return HTML(f'<figure><div class="wide">{image}</div>{legend}</figure>')


def mark_method(entry: str, *artists: Artist) -> None:
    """Name the method that artists show, so that the page can highlight it."""
    for artist in artists:
        artist.set_gid(METHOD + entry)


def _vectors(drawing: Figure, numbers: pd.DataFrame | None) -> str:
    """Return a figure as SVG after its first attributes, identifiers its own, digits at most a hundredth of a point."""
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None}, dpi=DOTS_PER_INCH)
    unused = r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>"
    text = re.sub(r"\n\s*", "\n", re.sub(unused, "", buffer.getvalue(), flags=re.S)).strip()
    box, body = re.search(r'<svg [^>]*(viewBox="[^"]*")[^>]*>(.*)', text, re.S).groups()
    salt = f"f{zlib.crc32(body.encode()):08x}"
    kept = "" if numbers is None else html.escape(numbers.to_csv(index=False, float_format="%.6g"), quote=False)
    return (
        f'{box} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" stroke-linejoin="round">'
        f"<metadata>{kept}</metadata>{re.sub('<[^>]*>', lambda tag: _shorten(tag[0], salt), body)}"
    )


def _shorten(tag: str, salt: str) -> str:
    """Return a tag of an SVG with what the page needs of it."""
    if METHOD in tag:
        return re.sub(f" id=(['\"]){METHOD}", r" data-method=\1", tag)
    tag = re.sub(r' id="[\w.]+_\d+"| transform="rotate\(-0 [^"]*"', "", tag)
    tag = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{salt}", tag)
    return DIGITS.sub(r"\1", tag).replace("'DejaVu Sans'", FONTS)


def _pixels(drawing: Figure) -> bytes:
    """Return a figure as PNG, of 256 colours where it has no photographs: a third of the size of all colours."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="rgba", dpi=DOTS_PER_INCH)
    width = int(drawing.get_figwidth() * DOTS_PER_INCH)
    pixels = Image.frombytes("RGBA", (width, buffer.tell() // 4 // width), buffer.getvalue()).convert("RGB")
    if pixels.getcolors(MANY_COLOURS):
        pixels = pixels.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    pixels.save(buffer, "png", compress_level=6)
    return buffer.getvalue()


def measure_width(text: str) -> float:
    """Return the width of a line of text in the current style (inches)."""
    font = FontProperties(size=rcParams["font.size"])
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / 72


def place_parts(drawing: Figure) -> None:
    """Fix the places of a figure's parts."""
    if (engine := drawing.get_layout_engine()) is not None:
        engine.execute(drawing)
        drawing.set_layout_engine(None)
