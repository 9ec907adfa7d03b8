"""Scores as maps over images, and as tables."""

import html
import itertools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy import ndimage

from shapeline.datasets.loading import is_series
from shapeline.report.colours import BOXES, INK, MIDDLE, PALE, PAPER, QUIET, WARNING
from shapeline.report.elements import (
    DARK_INK,
    SIGNS,
    WIDTH,
    escape_formulas,
    figure,
    style_names,
    styled,
    wrap_name,
    write_cells,
)
from shapeline.report.formatting import number

LEVEL = 1.96  # half-width of a 95 % interval per standard error
BOXED_COLUMNS = 7  # maps per row, which show an image of 120 pixels at about its resolution
MARGIN = 2  # pixels between a true region and its box
NARROWEST = 1 / 4  # width of a drawn image by its height, or the reverse; series are narrower
MAX_SIDE = 480  # pixels per side of a drawn image, of which the page shows a quarter


def instance_table(
    unit: str,
    values: Mapping[str, np.ndarray | None],
    standard_error: Mapping[str, np.ndarray | None],
    columns: Sequence[str],
    name: str,
) -> str:
    """Draw an instance's scores by every method as a heat table; standard_error: half-widths over 1.96."""
    half = {entry: LEVEL * row for entry, row in standard_error.items() if row is not None}
    drawing = score_table(values, columns, unit, half=half)
    title = html.escape(name.replace("\n", ", "))
    ends = {f"{entry} ±": row for entry, row in half.items()}
    numbers = pd.DataFrame({**values, **ends}, columns).rename_axis("feature").reset_index()
    caption = ("± is half of the 95 % interval of a sampled score. Grey: the interval includes 0.") * bool(half)
    drawn = figure(drawing, f"Scores of every feature by every method: {title}", caption, numbers=numbers)
    return f"<h3>{title}</h3>{drawn.data}"


def heat_maps(
    images: np.ndarray,
    names: Sequence[str],
    values: Mapping[str, Sequence[np.ndarray | None]],
    cells: Sequence[np.ndarray],
    columns: int = 9,
    tone: str = "gray",
    half: Mapping[str, Sequence[np.ndarray | None]] | None = None,
    regions: Sequence[np.ndarray] | None = None,
) -> Figure:
    """Draw score maps, a row per instance and a column per method; values: method -> n arrays (d,) or None; half:
    intervals. cells: n times (height, width), the feature of each pixel, -1 for none; regions: the true pixels of
    each image, which are boxed; more than `columns` methods continue in further rows."""
    ends = half or {}

    def tile(row: int, entry: str | None) -> Tile:
        within = ends[entry][row] if entry in ends else None
        shown = image_tile(images[row], tone) if entry is None else map_tile(values[entry][row], cells[row], within)
        return shown if regions is None else shown._replace(boxes=boxes(regions[row]))

    return image_grid(names, list(values), tile, columns)


class Tile(NamedTuple):
    """A small image in a grid: pixels and keywords of `imshow`, the text below, and boxes from 0 to 1."""

    pixels: np.ndarray | None  # None: the method failed
    colours: Mapping[str, object] = MappingProxyType({})
    below: str = ""
    boxes: Sequence[tuple[float, float, float, float]] = ()


@styled
def image_grid(
    names: Sequence[str],
    entries: Sequence[str],
    tile: Callable[[int, str | None], Tile],
    columns: int = 9,
    first: str = "input",
) -> Figure:
    """Draw tile(row, method or None) in one pair of axes: a row per name, a column per method; first: title of None."""
    blocks = max(math.ceil(len(entries) / columns), 1)
    columns = math.ceil(len(entries) / blocks)
    longest = max((len(line) for name in names for line in name.split("\n")), default=0)
    beside = min(max(1.30, 0.2 + 0.062 * longest), 2.4)  # inches: the names; then tiles, gaps, titles and captions
    side = min(1.25, (WIDTH - beside) / (columns + 1) - 0.10)
    block = 0.50 + len(names) * (side + 0.20)
    high = blocks * block + 0.05
    drawing = Figure(figsize=(WIDTH, high))
    axes = drawing.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(high, 0), autoscale_on=False)
    axes.axis("off")
    for part, row in itertools.product(range(blocks), range(len(names))):
        top = part * block + 0.50 + row * (side + 0.20)
        for column, entry in enumerate([None, *entries[part * columns : (part + 1) * columns]]):
            left = beside + column * (side + 0.10)
            x0, y0 = _draw_tile(axes, tile(row, entry), left, top, side)
            if entry is None:
                name = escape_formulas(names[row])
                axes.text(x0 - 0.11, top + side / 2, name, ha="right", va="center", fontsize=8, linespacing=1.35)
            if row == 0 and (title := entry or first):
                name = escape_formulas(wrap_name(title, side))
                axes.text(left + side / 2, y0 - 0.07, name, ha="center", va="baseline", fontsize=8.5)
    return drawing


def _draw_tile(axes: Axes, shown: Tile, left: float, top: float, side: float) -> tuple[float, float]:
    """Draw a tile in the middle of a square; return its upper left corner."""
    high, wide = (1, 1) if shown.pixels is None else shown.pixels.shape[:2]
    across, up = side * np.clip([wide / high, high / wide], NARROWEST, 1)
    x0, y0 = left + (side - across) / 2, top + (side - up) / 2
    if shown.pixels is None:
        axes.text(left + side / 2, top + side / 2, "failed", ha="center", va="center", fontsize=8, color=WARNING)
    else:
        pixels = shown.pixels if shown.pixels.ndim == 2 else np.clip(shown.pixels, 0, 1)
        extent = (x0, x0 + across, y0 + up, y0)
        axes.imshow(pixels, extent=extent, aspect="auto", interpolation="nearest", **shown.colours)
    axes.add_patch(Rectangle((x0, y0), across, up, fill=False, edgecolor=PALE, linewidth=0.6))
    for box in np.clip(np.reshape(shown.boxes, (-1, 4)), 0, 1) * [across, up, across, up]:
        corner, size = (x0 + box[0], y0 + box[1]), box[2:] - box[:2]
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=BOXES, linewidth=0.8))
    if shown.below:
        axes.text(left + side / 2, y0 + up + 0.03, shown.below, ha="center", va="top", fontsize=7.5, color=QUIET)
    return x0, y0


def find_boxes(truth: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Return boxes (top, left, bottom, right; half-open) around a region's 8-connected components."""
    parts, _ = ndimage.label(truth, np.ones((3, 3)))
    return [(rows.start, columns.start, rows.stop, columns.stop) for rows, columns in ndimage.find_objects(parts)]


def boxes(truth: np.ndarray | None) -> list[tuple[float, float, float, float]]:
    """Return a box around every connected part of the true region, in a tile's coordinates."""
    if truth is None:
        return []
    (height, width), margin = truth.shape, MARGIN * find_step(truth.shape)
    return [
        ((left - margin) / width, (top - margin) / height, (right + margin) / width, (bottom + margin) / height)
        for top, left, bottom, right in find_boxes(truth)
    ]


def choose_tone(card: Mapping) -> str:
    """Return the colour map of a dataset's grey images: handwriting dark on light, others unchanged."""
    return "gray_r" if card.get("source") in DARK_INK else "gray"


def scale_series(images: np.ndarray, card: Mapping) -> np.ndarray:
    """Return images (n, channels, height, width) in [0, 1] as they are drawn: each series over its own range."""
    if not is_series(card):
        return images
    axes = tuple(range(1, images.ndim))
    low, high = images.min(axis=axes, keepdims=True), images.max(axis=axes, keepdims=True)
    return (images - low) / np.where(high > low, high - low, 1)


def scale_tones(image: np.ndarray) -> np.ndarray:
    return image[0] if len(image) == 1 else np.moveaxis(image, 0, -1).clip(0, 1)


def find_step(shape: tuple[int, int]) -> int:
    """Return the side of the blocks of pixels that are drawn as one."""
    return math.ceil(max(shape) / MAX_SIDE)


def image_tile(image: np.ndarray, tone: str) -> Tile:
    """Return the tile of an image (channels, height, width) in [0, 1]; a large one is subsampled."""
    step = find_step(image.shape[1:])
    return Tile(scale_tones(image[:, ::step, ::step]), {"cmap": tone, "vmin": 0, "vmax": 1})


def map_tile(scores: np.ndarray | None, cells: np.ndarray, half: np.ndarray | None = None) -> Tile:
    """Return the tile of scores (d,) on their pixels, white at 0, scaled by the largest magnitude, its caption."""
    if scores is None:
        return Tile(None)
    size = np.abs(scores).max()
    shown = scores if half is None else np.where(np.abs(scores) <= half, 0.0, scores)
    colours = {"cmap": SIGNS, "vmin": -(size or 1.0), "vmax": size or 1.0}
    return Tile(reduce_map(np.where(cells < 0, np.nan, shown[cells])), colours, f"± {number(size)}")


def reduce_map(values: np.ndarray) -> np.ndarray:
    """Return a map of at most MAX_SIDE cells per side: the value farthest from 0 per block."""
    rows, columns = (np.arange(0, side, find_step(values.shape)) for side in values.shape)
    ends = [extreme.reduceat(extreme.reduceat(values, rows, axis=0), columns, axis=1) for extreme in (np.fmax, np.fmin)]
    return np.where(ends[0] >= -ends[1], *ends)


@style_names
def score_table(
    values: Mapping[str, np.ndarray | None],
    names: Sequence[str],
    unit: str = "nats",
    most: int = 16,
    half: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """Draw a heat table of an instance's scores (d,) by feature and method, the largest; half: 95 % intervals."""
    entries, half = list(values), half or {}
    scores = np.column_stack([np.full(len(names), np.nan) if row is None else row for row in values.values()])
    ends = np.column_stack([half.get(entry, np.full(len(names), np.nan)) for entry in entries])
    size = np.abs(scores)
    order = np.argsort(-pd.DataFrame(size).rank().mean(axis=1).to_numpy(), kind="stable")[:most]
    limits = np.where(np.nan_to_num(size).max(axis=0) > 0, np.nan_to_num(size).max(axis=0), 1.0)
    rows = len(order)
    drawing = Figure(figsize=(WIDTH, 0.75 + 0.25 * rows), layout="constrained")
    axes = drawing.subplots()
    muted = np.abs(scores[order]) <= ends[order]
    look = {"cmap": SIGNS, "vmin": -1.15, "vmax": 1.15, "aspect": "auto", "interpolation": "nearest"}
    shades = axes.imshow(np.where(muted, 0.0, scores[order]) / limits, **look)
    texts = {place: number(score, 2, whole=False) for place, score in np.ndenumerate(scores[order])}
    for place, end in np.ndenumerate(ends[order]):
        texts[place] += f" ± {number(end, 2, whole=False)}" if np.isfinite(end) else ""
        texts[place] = "failed" if np.isnan(scores[order][place]) else texts[place]
    inks = {place: WARNING if text == "failed" else MIDDLE if muted[place] else INK for place, text in texts.items()}
    write_cells(axes, shades, texts, 7.5 if half else 8.5, inks)
    axes.set_xticks(range(len(entries)), [wrap_name(entry, 9.5 / len(entries)) for entry in entries])
    axes.set_yticks(range(rows), [names[index] for index in order])
    axes.tick_params(length=0, labelsize=8.5, labeltop=True, labelbottom=False)
    axes.hlines(np.arange(rows - 1) + 0.5, -0.5, len(entries) - 0.5, color=PAPER, linewidth=1)
    axes.vlines(np.arange(len(entries) - 1) + 0.5, -0.5, rows - 0.5, color=PAPER, linewidth=2)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    more = f"; {len(names) - rows} smaller features not shown" if len(names) > rows else ""
    label = textwrap.fill(f"score ({unit}); colours are scaled within each column{more}", 100)
    axes.set_xlabel(label, fontsize=8.5, loc="left")
    return drawing
