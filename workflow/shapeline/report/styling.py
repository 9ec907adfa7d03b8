"""How a method looks on every page: colours, markers, dashes."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, rgb_to_hsv, to_rgb

from shapeline.report.colours import (
    AGAINST,
    AGAINST_TINT,
    CONTROLS,
    EDGE,
    EXACT,
    FOR,
    FOR_TINT,
    GRID,
    PALETTES,
    PAPER,
    TICKS,
)

PIXELS_PER_INCH = 96  # a browser's inch, so that a font size means the same in the page and in a figure
DOTS_PER_INCH = 2 * PIXELS_PER_INCH  # of a figure that is a image
WIDTH = 1104 / PIXELS_PER_INCH  # inches: the text column of the page
LONGEST_NAME = 48  # characters of a feature in a figure
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
styled = matplotlib.rc_context(STYLE)


def style_names(draw: Callable) -> Callable:
    """Decorate a function that draws users' names: in the style of the report, dollar signs escaped (formulas)."""

    @functools.wraps(draw)
    def wrapper(*values, **named):
        with matplotlib.rc_context(STYLE):
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


def shorten(name: object, most: int = LONGEST_NAME) -> str:
    """Return a name of at most so many characters, with an ellipsis in the place of its middle."""
    text = " ".join(str(name).split())
    tail = most // 3
    return text if len(text) <= most else f"{text[: most - tail - 1]}…{text[len(text) - tail :]}"


# Of scores from -1 to 1; an odd number of colours, so that 0 is white.
SIGNS = LinearSegmentedColormap.from_list("signs", [AGAINST, AGAINST_TINT, PAPER, FOR_TINT, FOR], 257)
MAX_BANDS = 6  # more curves than this hide each other under their bands
DARK_INK = ("digits", "mnist")  # sources whose images store ink as bright
CONTROL_DASHES = ((0, (1, 1.4)), (0, (4, 2)), (0, (5, 1.5, 1, 1.5)), (0, (2, 1)))
# A name stays legible where a line runs behind it. An outline of its letters would be a path each, 20 kB a name.
PLATE = {"boxstyle": "square,pad=0.05", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.8}
DASHES = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")


@dataclass(frozen=True)
class Style:
    """How one method is drawn everywhere: colour, marker and dashes each tell it apart."""

    colour: str
    marker: str
    line: object
    width: float = 1.7
    control: bool = False

    @property
    def face(self) -> str:
        return PAPER if self.control else self.colour

    @property
    def ink(self) -> tuple[float, float, float]:
        """The colour for text, dark enough to read on white."""
        red, green, blue = matplotlib.colors.to_rgb(self.colour)
        darker = min(1.0, 0.36 / max(0.2126 * red + 0.7152 * green + 0.0722 * blue, 0.01))
        return red * darker, green * darker, blue * darker


def palette(name: str = "colorblind") -> list[str]:
    """The colours of a palette that are neither grey (the controls' tone) nor too pale for white paper."""
    colours = np.array([to_rgb(colour) for colour in PALETTES[name]])
    luminance = colours @ [0.2126, 0.7152, 0.0722]
    saturation = rgb_to_hsv(colours)[:, 1]
    kept = colours[(luminance < 0.72) & (saturation > 0.15)]
    return [matplotlib.colors.to_hex(colour) for colour in kept]


def assign_styles(results) -> dict[str, Style]:
    """The styles of an experiment's methods, in the palette that its settings name."""
    return styles(results.entries, results.exact, results.settings.get("palette") or "colorblind")


def styles(entries: Mapping[str, dict], exact: str | None = None, colours: str = "colorblind") -> dict[str, Style]:
    """Return a style per method in order: controls grey and dashed, exact values black, others coloured."""
    wheel = palette(colours)
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
    """The label on up to three lines, broken after spaces, underscores and hyphens to fit its column (inches)."""
    limit, lines = max(8, int(width / 0.07)), [""]
    for word in re.split("(?<=[ _-])", label):
        if lines[-1] and len(lines[-1]) + len(word.rstrip(" _")) > limit:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip(" ") for line in lines[:3])
