"""The colours of pages and figures: blue supports the class, orange opposes it, with equal lightness at equal size."""

PAPER, INK = "#ffffff", "#1a1a1a"
QUIET, MIDDLE, PALE, FAINT, GRID = "#595959", "#8a8a8a", "#b0b0b0", "#d9d9d9", "#e4e4e4"  # greys, darkest first
EXACT = "#000000"  # of exact values
EDGE, TICKS = "#666666", "#262626"  # of axes, and the texts beside them
WARNING = "#9a3a00"
FOR, FOR_TINT, AGAINST_TINT, AGAINST = "#0b4f8a", "#67adf0", "#f18f4e", "#a33b00"
NAMES = {"for": "blue", "against": "orange"}
FIRST, SECOND = "#0173b2", "#d55e00"  # lines of a figure that are not methods
BARS = "#a9bccb"  # of a histogram
BOXES = "#008a3e"  # around true regions; not a colour of the maps
BRIGHT, DARK = "#db261f", "#2961d9"  # masked pixels that were bright, or dark, as in Chen et al. (2018)
CONTROLS = ("#7d7d7d", "#4d4d4d", "#969696", "#666666")

PALETTES = {  # of seaborn, without colours that are grey, as controls are, or too pale on white
    "colorblind": "#0173b2 #de8f05 #029e73 #d55e00 #cc78bc #ca9161 #56b4e9".split(),
    "deep": "#4c72b0 #dd8452 #55a868 #c44e52 #8172b3 #937860 #da8bc3 #64b5cd".split(),
    "muted": "#4878d0 #ee854a #6acc64 #d65f5f #956cb4 #8c613c #dc7ec0".split(),
}

LEVELS = 10  # shades of a word per sign
LIGHT_PAGE = {
    "paper": PAPER,
    "ink": INK,
    "quiet": QUIET,
    "rule": "#7a7a7a",
    "line": "#d4d4d4",
    "faint": GRID,
    "middle": MIDDLE,
    "box": "#f4f6f8",
    "link": "#0b5394",
    "warn": WARNING,
    "shadow": "#00000024",
    "for": FOR,
    "against": AGAINST,
}
DARK_PAGE = {
    "paper": "#15181c",
    "ink": "#e6e6e6",
    "quiet": "#a9b0b7",
    "rule": "#8a9199",
    "line": "#434a52",
    "faint": "#2c3239",
    "middle": MIDDLE,
    "box": "#1e242b",
    "link": "#7db7f0",
    "warn": "#ffa366",
    "shadow": "#ffffff24",
    "for": "#7db7f0",
    "against": "#ffa366",
}
DARK_TINTS = {"p": "#2160a0", "n": "#8c4a17"}
TINTS = {"p": FOR_TINT, "n": AGAINST_TINT}


def signs(what: str) -> str:
    """Return a figure's colour legend without a full stop: "Blue supports the class, orange opposes it"."""
    return f"{NAMES['for'].capitalize()} supports {what}, {NAMES['against']} opposes it"


def tint(level: int, dark: bool = False) -> str:
    """Return the background of a word of a level from -LEVELS (against) to LEVELS (for), linear from the page's."""
    page, tints = (DARK_PAGE, DARK_TINTS) if dark else (LIGHT_PAGE, TINTS)
    start, end = _read_channels(page["paper"]), _read_channels(tints["p" if level > 0 else "n"])
    mixed = (round(a + abs(level) / LEVELS * (b - a)) for a, b in zip(start, end, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _read_channels(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:7]))


def style_sheet() -> str:
    """Return the variables of both schemes and the shades of words, with lines that tell signs without colour."""
    levels = range(1, LEVELS + 1)
    shades = [
        f".{sign}{level} {{ background: {tint(way * level)}; border-{side}: {1 + (level > 3) + (level > 6)}px solid "
        f"var(--{name}); }}"
        for level in levels
        for sign, way, side, name in (("p", 1, "bottom", "for"), ("n", -1, "top", "against"))
    ]
    dark = [
        f"  span.{sign}{level} {{ background: {tint(way * level, dark=True)}; }}"
        for level in levels
        for sign, way in (("p", 1), ("n", -1))
    ]
    dark_rules = [
        "@media screen and (prefers-color-scheme: dark) {",
        f"  {set_variables(':root', DARK_PAGE)}",
        *dark,
        "}",
    ]
    return "\n".join([set_variables(":root", LIGHT_PAGE), *shades, *dark_rules, ""])


def set_variables(where: str, values: dict[str, str]) -> str:
    """Return the rule of a style sheet that sets variables."""
    return f"{where} {{ {' '.join(f'--{name}: {value};' for name, value in values.items())} }}"
