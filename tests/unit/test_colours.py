"""One palette: positive scores have the same colour on all pages, and one module defines all colours."""

import ast
import io
import json
import re

import matplotlib
import matplotlib.style
import numpy as np
import pytest
from matplotlib.colors import CSS4_COLORS, to_hex
from PIL import Image

import shapeline
from shapeline.report import colours, elements, rendering
from shapeline.report.figures import score_maps
from shapeline.report.sections import texts

HEX = re.compile(r"#(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b")
NO_COLOURS = {"gray", "gray_r", "lime", "warning"}  # of grey images as they are; a method; a column
MAP = np.array([[[1.0, -1.0]]])
GIVEN = {"color", "colors", "c", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor", "ecolor", "palette"}


def own_colours(code: str) -> list[str]:
    """The colours and colour maps that a module names by itself."""
    tree = ast.parse(code)
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    arguments = [
        word.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg in GIVEN and isinstance(word.value, ast.Constant)
    ]
    named = set(CSS4_COLORS) | set(matplotlib.colormaps)
    found = [text for text in texts if HEX.search(text) or (text in named and text not in NO_COLOURS)]
    return found + [text for text in arguments if text not in ("none", "inherit", None)]


def test_no_other_module_of_the_report_defines_a_colour(root):
    report = root / "workflow" / "shapeline" / "report"
    modules = {str(path.relative_to(root)): path.read_text() for path in report.rglob("*.py")}
    for path in (root / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        modules[path.name] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    own = {name: found for name, code in modules.items() if (found := own_colours(code))}
    assert own.pop("workflow/shapeline/report/colours.py")  # the test reads what it looks for
    assert own == {}
    sheet = (report / "page.css").read_text()
    assert not HEX.findall(sheet) and not re.search(r"rgba?\(|hsl", sheet)


@pytest.mark.parametrize(
    "code",
    ['f(color="C0")', 'f(cmap="RdBu")', 'INK = "#1a1a1a"', 'colormaps["viridis"]', 'f(color="k")', 'a = "white"'],
)
def test_a_colour_in_a_module_is_seen(code):
    assert own_colours(code)


def test_positive_scores_are_blue_in_maps_words_and_bars():
    ends = [to_hex(elements.SIGNS(end)) for end in (0.0, 0.5, 1.0)]
    assert ends == [colours.AGAINST, colours.PAPER, colours.FOR]
    shown = score_maps.map_tile(MAP.ravel(), np.arange(MAP.size)[None])
    assert shown.colours["cmap"] is elements.SIGNS and shown.colours["vmin"] == -shown.colours["vmax"]
    sheet = rendering.style_sheet()
    assert f"--for: {colours.FOR};" in sheet and f"--against: {colours.AGAINST};" in sheet
    assert (
        "p1 { background" in sheet
        and "solid var(--for)" in sheet
        and 'class="p' in texts.words(["one"], MAP[0, 0, :1]).data
    )
    assert colours.signs("it") == "Blue supports it, orange opposes it"


def test_blue_and_orange_of_a_size_are_equally_light():
    for strength in (0.1, 0.25, 0.5, 0.75, 1.0):
        light = [_luminance(elements.SIGNS(0.5 + sign * strength / 2)) for sign in (1, -1)]
        assert abs(light[0] - light[1]) < 0.06


def _luminance(colour) -> float:
    channels = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour[:3]]
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]


@pytest.mark.parametrize("style", ["dark_background", {"text.usetex": True, "font.size": 30}, "ggplot"])
def test_figures_look_the_same_in_any_style_of_the_user(style):
    rows = np.random.default_rng(0).normal(size=(6, 3))

    def draw() -> list[np.ndarray]:
        found = shapeline.explain(lambda x: x.sum(axis=1), rows, background=rows, value="prediction")
        figures = found[0].plot(), found.plot("beeswarm"), found.plot("dependence")
        return [np.asarray(Image.open(io.BytesIO(one._repr_png_())).convert("RGB"), int) for one in figures]

    usual = draw()
    with matplotlib.style.context(style):
        for one, other in zip(usual, draw(), strict=True):
            assert one.shape == other.shape and np.abs(one - other).mean() < 6  # of 255; ticks may differ
