"""Elements of pages: HTML, and how a method looks in every figure: colours, markers, dashes."""

import base64
import contextlib
import functools
import html
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import matplotlib.style
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from PIL import Image

from shapeline.report.colours import (
    AGAINST,
    AGAINST_TINT,
    CONTROLS,
    EDGE,
    EXACT,
    FOR,
    FOR_TINT,
    GRID,
    INK,
    PALETTES,
    PAPER,
    TICKS,
)

PIXELS_PER_INCH = 96  # of browsers, so that font sizes in pages and figures are equal
DOTS_PER_INCH = 2 * PIXELS_PER_INCH  # of a rasterised figure
WIDTH = 1104 / PIXELS_PER_INCH  # inches: the text column of the page
MAX_NAME = 48  # characters of a feature's name in a figure
NARROW = 5.0  # inches: a figure that is still legible on a telephone
STYLE = {
    "text.color": TICKS,
    "axes.labelcolor": TICKS,
    "xtick.color": TICKS,
    "ytick.color": TICKS,
    "lines.solid_capstyle": "round",
    "patch.edgecolor": PAPER,
    "patch.force_edgecolor": True,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": EDGE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "shapeline",
}
FOLD = "How this is computed"  # title of a fold with details
MIN_PHOTO_COLOURS = 10_000  # of a figure with photographs
DIGITS = re.compile(r"(\.\d\d)\d+")
METHOD = "method: "  # prefix of a method's name in the identifier of its artists
FONTS = "'DejaVu Sans', Verdana, sans-serif"  # Verdana has nearly the same widths
# Called with each figure (drawing, title, numbers) and table (frame, title) of a page.
observers: list[Callable] = []
Answers = Iterable[tuple[str, str]]  # the short answer and its details


@contextlib.contextmanager
def _use_style() -> Iterator[None]:
    """Draw in the style of the report whatever the user's, such as a dark one, but at its resolution."""
    with matplotlib.style.context(STYLE | {"figure.dpi": matplotlib.rcParams["figure.dpi"]}, after_reset=True):
        yield


styled = _use_style()  # a decorator


def style_names(draw: Callable) -> Callable:
    """Decorate a function that draws users' names: in the style of the report, dollar signs escaped (formulas)."""

    @functools.wraps(draw)
    @styled
    def wrapper(*values, **named):
        return draw(*map(escape_formulas, values), **{key: escape_formulas(value) for key, value in named.items()})

    return wrapper


def escape_formulas(value):
    """Return a text, or the texts of a list, tuple or dictionary, with dollar signs that matplotlib draws."""
    if isinstance(value, str):
        return re.sub(r"(?<!\\)\$", r"\\$", value)
    if type(value) in (list, tuple):
        return type(value)(map(escape_formulas, value))
    if type(value) is dict:
        return {escape_formulas(key): escape_formulas(one) for key, one in value.items()}
    return value


def shorten(name: object, most: int = MAX_NAME) -> str:
    """Return a name of at most `most` characters, with an ellipsis instead of its middle."""
    text = " ".join(str(name).split())
    tail = most // 3
    return text if len(text) <= most else f"{text[: most - tail - 1]}…{text[len(text) - tail :]}"


# For scores from -1 to 1; the number of colours is odd, so that 0 is white.
SIGNS = LinearSegmentedColormap.from_list("signs", [AGAINST, AGAINST_TINT, PAPER, FOR_TINT, FOR], 257)
MAX_BANDS = 6  # curves; the bands of more curves overlap
DARK_INK = ("digits", "mnist")  # sources whose images store ink as bright
CONTROL_DASHES = ((0, (1, 1.4)), (0, (4, 2)), (0, (5, 1.5, 1, 1.5)), (0, (2, 1)))
DASHES = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")


@dataclass(frozen=True)
class Style:
    """The style of a method: colour, marker and dashes each identify it."""

    colour: str
    marker: str
    line: object
    width: float = 1.7
    control: bool = False

    @property
    def face(self) -> str:
        return PAPER if self.control else self.colour

    @property
    def dot(self) -> dict[str, object]:
        """The keywords of `plot` for points without a line."""
        return {"color": self.colour, "marker": self.marker, "markerfacecolor": self.face, "linestyle": "none"}

    @property
    def curve(self) -> dict[str, object]:
        """The keywords of `plot` for a line with markers."""
        return self.dot | {"linestyle": self.line, "linewidth": self.width}

    @property
    def ink(self) -> tuple[float, float, float]:
        """The colour for text, dark enough on white."""
        red, green, blue = matplotlib.colors.to_rgb(self.colour)
        darker = min(1.0, 0.36 / max(0.2126 * red + 0.7152 * green + 0.0722 * blue, 0.01))
        return red * darker, green * darker, blue * darker


def assign_styles(results) -> dict[str, Style]:
    """Return the styles of an experiment's methods, in the palette of its settings."""
    return styles(results.entries, results.exact, results.settings.get("palette") or "colorblind")


def styles(entries: Mapping[str, dict], exact: str | None = None, colours: str = "colorblind") -> dict[str, Style]:
    """Return a style per method in order: controls grey and dashed, exact values black, others coloured."""
    wheel = PALETTES[colours]
    result: dict[str, Style] = {}
    coloured = controls = 0
    for position, (entry, settings) in enumerate(entries.items()):
        marker = MARKERS[position % len(MARKERS)]
        if settings.get("is_control"):
            turn = controls % len(CONTROLS)
            result[entry] = Style(CONTROLS[turn], marker, CONTROL_DASHES[turn], 1.5, control=True)
            controls += 1
        elif entry == exact:
            result[entry] = Style(EXACT, marker, "-", 2.2)
        else:
            turn, index = divmod(coloured, len(wheel))
            result[entry] = Style(wheel[index], marker, DASHES[turn % len(DASHES)])
            coloured += 1
    return result


def wrap_name(label: str, width: float) -> str:
    """Return the label on up to three lines, broken after spaces, underscores and hyphens to fit `width` inches."""
    limit, lines = max(8, int(width / 0.07)), [""]
    for word in re.split("(?<=[ _-])", label):
        if lines[-1] and len(lines[-1]) + len(word.rstrip(" _")) > limit:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip(" ") for line in lines[:3])


@dataclass(frozen=True, repr=False)
class HTML:
    """A fragment of a page, which notebooks display by `_repr_html_`."""

    data: str

    def __repr__(self) -> str:
        return "<HTML>"  # a notebook stores the text of an output besides its HTML

    def _repr_html_(self) -> str:
        return self.data


def part(title: str, content: HTML) -> HTML:
    """Return a part of a page that opens on a click, with a heading of level 2 as title."""
    return HTML(f'<details class="part"><summary><h2>{html.escape(title)}</h2></summary>{content.data}</details>')


def fold(title: str, part: HTML) -> HTML:
    """Return a part of a page that opens on a click."""
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
    """Return a line of explanation."""
    return HTML(f'<p class="note">{html.escape(text)}</p>')


def missing(metric: str) -> HTML:
    """Return the line that replaces the figures of a metric that was not computed."""
    return note(f"Not available: the metric “{metric}” was not computed in this experiment.")


def heading(text: str, level: int = 3) -> HTML:
    """Return the heading of a section (level 2) or of a subsection."""
    return HTML(f"<h{level}>{html.escape(text)}</h{level}>")


def join_parts(*parts: HTML | None) -> HTML:
    """Return several parts as one; None is ignored."""
    return HTML("".join(part.data for part in parts if part is not None))


def pair(left: HTML, right: HTML) -> HTML:
    """Return two parts side by side where the page is wide enough."""
    return HTML(f'<div class="pair"><div>{left.data}</div><div>{right.data}</div></div>')


@styled
def figure(
    drawing: Figure | None, alt: str, caption: str = "", vector: bool = True, numbers: pd.DataFrame | None = None
) -> HTML | None:
    """Return a figure inside the page: an SVG element, or pixels at twice the resolution; numbers: its CSV."""
    if drawing is None:
        return None
    if (engine := drawing.get_layout_engine()) is not None:  # once, and not again by each drawing
        engine.execute(drawing)
        drawing.set_layout_engine(None)
    for observe in observers:
        observe(drawing, alt, numbers)
    width, description = round(drawing.get_figwidth() * PIXELS_PER_INCH), html.escape(alt, quote=True)
    if vector:
        image = f'<svg role="img" aria-label="{description}" width="{width}" {_write_svg(drawing, numbers)}'
    else:
        source = f"data:image/png;base64,{base64.b64encode(_write_png(drawing)).decode()}"
        image = f'<img width="{width}" alt="{description}" src="{source}">'
    legend = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return HTML(f'<figure><div class="wide">{image}</div>{legend}</figure>')


def settle_style(drawing: Figure) -> None:
    """Keep the style of a figure that is saved later, in the user's style: its tick labels are created when it is first
    drawn, and the style may have another paper."""
    styled(drawing.draw_without_rendering)()
    if matplotlib.rcParams["savefig.facecolor"] != "auto":
        paper = Rectangle((0, 0), 1, 1, transform=drawing.transFigure, facecolor=PAPER, zorder=-1000)
        paper.set_in_layout(False)
        drawing.add_artist(paper)


def mark_method(entry: str, *artists: Artist) -> None:
    """Mark artists with their method, so that the page can highlight it."""
    for artist in artists:
        artist.set_gid(METHOD + entry)


def _write_svg(drawing: Figure, numbers: pd.DataFrame | None) -> str:
    """Return a figure's SVG after its first attributes, with unique identifiers and two decimals."""
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None}, dpi=DOTS_PER_INCH)
    unused = r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>"
    text = re.sub(r"\n\s*", "\n", re.sub(unused, "", buffer.getvalue(), flags=re.S)).strip()
    box, body = re.search(r'<svg [^>]*(viewBox="[^"]*")[^>]*>(.*)', text, re.S).groups()
    salt = f"f{zlib.crc32(body.encode()):08x}"
    suitable = "" if numbers is None else html.escape(numbers.to_csv(index=False, float_format="%.6g"), quote=False)
    return (
        f'{box} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" stroke-linejoin="round">'
        f"<metadata>{suitable}</metadata>{re.sub('<[^>]*>', lambda tag: _shorten(tag[0], salt), body)}"
    )


def _shorten(tag: str, salt: str) -> str:
    """Return a tag of an SVG without unused attributes."""
    if METHOD in tag:
        return re.sub(f" id=(['\"]){METHOD}", r" data-method=\1", tag)
    tag = re.sub(r' id="[\w.]+_\d+"| transform="rotate\(-0 [^"]*"', "", tag)
    tag = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{salt}", tag)
    return DIGITS.sub(r"\1", tag).replace("'DejaVu Sans'", FONTS)


def _write_png(drawing: Figure) -> bytes:
    """Return a figure as PNG, with 256 colours unless it has photographs, which is a third of the size."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="rgba", dpi=DOTS_PER_INCH)
    width = int(drawing.get_figwidth() * DOTS_PER_INCH)
    pixels = Image.frombytes("RGBA", (width, buffer.tell() // 4 // width), buffer.getvalue()).convert("RGB")
    if pixels.getcolors(MIN_PHOTO_COLOURS):
        pixels = pixels.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    pixels.save(buffer, "png", compress_level=6)
    return buffer.getvalue()


def name_rows(axes: Axes, entries: Sequence[str]) -> None:
    """Label a row per method, from the top, with a margin above the first and below the last."""
    axes.set_yticks(range(len(entries)), entries)
    axes.set_ylim(len(entries) - 0.4, -0.6)


def label_log_axis(axis: Axis) -> None:
    """Label a logarithmic axis by plain numbers; only by powers of ten where three show that it is logarithmic."""
    low, high = axis.get_view_interval()
    if high >= 1000 * low:
        axis.minorticks_off()  # they are slow to draw
        return
    subs = (1,) if axis.axis_name == "x" and high >= 200 * low else (1, 2, 5)  # long labels beside each other
    axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]) if high < 10 * low else LogLocator(subs=subs))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(NullFormatter())


def write_cells(
    axes: Axes,
    drawn: AxesImage,
    texts: Mapping[tuple[int, int], str],
    size: float = 8,
    inks: Mapping[tuple[int, int], str] | None = None,
) -> None:
    """Write texts into the cells (row, column) of an image: light on dark cells, else in their ink."""
    lightness = drawn.to_rgba(drawn.get_array())[..., :3] @ [0.2126, 0.7152, 0.0722]
    for place, text in texts.items():
        ink = PAPER if lightness[place] < 0.5 else (inks or {}).get(place, INK)
        axes.text(*place[::-1], text, ha="center", va="center", fontsize=size, color=ink, in_layout=False)


def name_features(axes: Axes, names: Sequence[str]) -> None:
    """Label a row per feature, from the top, by its shortened name, without ticks and lines."""
    name_rows(axes, [shorten(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
