"""Figures of games and generated answers: scores of players and parts, errors against evaluations, pairs of features.

Pairs are lines over an image, a matrix of columns, or arcs over words.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from shapeline.designs.interactions import build_symmetric, enumerate_pairs
from shapeline.report.colours import AGAINST, FOR, INK, LEVELS, PAPER, tint
from shapeline.report.elements import (
    SIGNS,
    WIDTH,
    Style,
    label_log_axis,
    name_rows,
    shorten,
    style_names,
    styled,
    write_cells,
)
from shapeline.report.figures.score_maps import LEVEL, scale_tones
from shapeline.report.formatting import number

METHOD_STEP = 0.25  # between two methods of a player, in rows; at most SPREAD between the first and the last
SPREAD = 0.66
MAX_PAIRS = 24  # pairs drawn of an instance, the largest
MIN_SHARE = 0.02  # of the largest; thinner lines are invisible
MAX_LINE_WIDTH = 5.0  # points, of the largest pair
IMAGE_INCHES = 2.75  # side of an image
MAX_WRITTEN = 16  # features of a matrix with numbers in its cells
LETTER_INCHES = 0.085  # width of a letter under arcs


@styled
def scores(
    names: Sequence[str],
    columns: Mapping[str, tuple[np.ndarray, np.ndarray | None]],
    styles: Mapping[str, Style],
    title: str,
    across: str,
) -> Figure:
    """Return a row per player with a dot and a 95 % interval per method; columns: scores and standard errors (d,)."""
    drawing = Figure(figsize=(WIDTH, 1.2 + (0.2 + 0.06 * len(columns)) * len(names)), layout="constrained")
    axes = drawing.subplots()
    half_height = min(METHOD_STEP * (len(columns) - 1), SPREAD) / 2
    places = np.linspace(-half_height, half_height, len(columns))
    for shift, (entry, (values, spread)) in zip(places, columns.items(), strict=True):
        style, rows = styles[entry], np.arange(len(names)) + shift
        half = None if spread is None else LEVEL * spread
        axes.errorbar(values, rows, xerr=half, markersize=4.5, elinewidth=1.3, label=entry, **style.dot)
    axes.axvline(0, color=INK, linewidth=0.8)
    name_rows(axes, list(names))
    axes.set(xlabel=across)
    axes.set_title(title, pad=24)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=6, borderaxespad=0.1, fontsize=8.5, handletextpad=0.2)
    return drawing


@styled
def convergence(frame: pd.DataFrame, styles: Mapping[str, Style], unit: str) -> Figure | None:
    """Return RMSE against evaluations, predicted dashed, actual solid, a line per method; None without a line."""
    frame = frame[(frame[["predicted", "actual"]] > 0).any(axis=1)]
    if frame.empty:
        return None
    drawing = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = drawing.subplots()
    for entry, rows in frame.sort_values("evaluations").groupby("method", sort=False):
        style = styles[entry]
        for kind, dashes, face in (("predicted", (0, (4, 2)), PAPER), ("actual", "-", style.colour)):
            if (rows[kind] > 0).any():
                look = style.dot | {"markerfacecolor": face, "linestyle": dashes}
                axes.plot(rows["evaluations"], rows[kind].where(rows[kind] > 0), label=f"{entry}, {kind}", **look)
    axes.set(xscale="log", yscale="log", xlabel="evaluations", ylabel=f"RMSE ({unit})")
    label_log_axis(axes.xaxis)
    label_log_axis(axes.yaxis)
    drawing.legend(loc="outside right upper", fontsize=8.5)
    return drawing


MAX_PART, MAX_TOKEN = 34, 12  # characters of names at the axes
MAX_WIDTH = 16.0  # inches


@style_names
def heat_map(parts: Sequence[str], tokens: Sequence[str], scores: np.ndarray) -> Figure:
    """Draw scores (d, T) of parts (rows) for the tokens of the answer (columns), in nats."""
    width = min(MAX_WIDTH, max(WIDTH * 0.6, 3.2 + 0.3 * len(tokens)))
    drawing = Figure(figsize=(width, 2.2 + 0.28 * len(parts)), layout="constrained")
    axes = drawing.subplots()
    limit = float(np.abs(scores).max(initial=0.0)) or 1.0
    drawn = axes.imshow(scores, cmap=SIGNS, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(parts)), [shorten(part, MAX_PART) for part in parts])
    shown = [shorten(token.replace("\n", "\\n"), MAX_TOKEN) for token in tokens]
    axes.set_xticks(range(len(tokens)), shown, rotation=60, ha="right")
    axes.set(xlabel="tokens of the answer", ylabel="parts")
    axes.grid(False)
    axes.tick_params(length=0)
    drawing.colorbar(drawn, ax=axes, label="score (nats)")
    return drawing


def keep_significant(pairs: np.ndarray, standard_error: np.ndarray | None) -> np.ndarray:
    """Return the pairs, with 0 where the 95 % interval includes it; unchanged without intervals."""
    return pairs if standard_error is None else np.where(np.abs(pairs) <= LEVEL * standard_error, 0.0, pairs)


def largest(pairs: np.ndarray, d: int) -> list[tuple[int, int, float, float]]:
    """Return the MAX_PAIRS largest pairs, the largest last: first, second, score, share of the largest."""
    first, second = enumerate_pairs(d)
    order = np.argsort(np.abs(pairs), kind="stable")[-MAX_PAIRS:]
    top = max(float(np.abs(pairs).max(initial=0.0)), 1e-300)
    drawn = [(int(first[k]), int(second[k]), float(pairs[k]), abs(float(pairs[k])) / top) for k in order]
    return [one for one in drawn if one[3] > MIN_SHARE]


@style_names
def network(
    images: np.ndarray,
    names: Sequence[str],
    cells: Sequence[np.ndarray],
    main_effects: Sequence[np.ndarray],
    pairs: Sequence[np.ndarray],
    tone: str = "gray",
) -> Figure:
    """Draw images with a dot per feature and lines for the largest pairs; pairs: upper triangle."""
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    drawing = Figure(figsize=(columns * IMAGE_INCHES, rows * (IMAGE_INCHES + 0.9)), layout="constrained")
    for axes in (panels := drawing.subplots(rows, columns, squeeze=False).ravel()):
        axes.set_axis_off()
    for axes, image, name, owner, parts, both in zip(panels, images, names, cells, main_effects, pairs, strict=False):
        axes.imshow(scale_tones(image), cmap=tone, vmin=0, vmax=1, interpolation="nearest", alpha=0.3)
        indices = np.array([np.argwhere(owner == feature).mean(axis=0)[::-1] for feature in range(len(parts))])
        for first, second, score, share in largest(both, len(parts)):
            colour, width = FOR if score > 0 else AGAINST, max(MAX_LINE_WIDTH * share, 0.3)
            look = {"linewidth": width, "alpha": 0.35 + 0.6 * share, "solid_capstyle": "round"}
            axes.plot(*indices[[first, second]].T, color=colour, **look)
        top = max(float(np.abs(parts).max()), 1e-300)
        colours = [FOR if score > 0 else AGAINST for score in parts]
        axes.scatter(*indices.T, s=150 * np.abs(parts) / top, c=colours, edgecolors=PAPER, linewidths=0.8, zorder=3)
        ends = f"dots ± {number(top)}, lines ± {number(float(np.abs(both).max(initial=0.0)))}"
        axes.set_title(f"{name}\n{ends}", fontsize=8, fontweight="normal", loc="center")
    return drawing


@style_names
def matrix(names: Sequence[str], main_effects: np.ndarray, pairs: np.ndarray, unit: str, most: int = 20) -> Figure:
    """Draw a heat matrix: main effects (d,) on the diagonal, pairs above; at most `most` features, the largest."""
    d = len(names)
    whole = build_symmetric(pairs, d) + np.diag(main_effects)
    drawn_words = np.sort(np.argsort(-np.abs(whole).sum(axis=1), kind="stable")[:most])
    shown = np.where(np.tri(len(drawn_words), k=-1, dtype=bool), np.nan, whole[np.ix_(drawn_words, drawn_words)])
    limit = max(float(np.nanmax(np.abs(shown))), 1e-300)
    side = min(max(0.45 * len(drawn_words), 2.4), 7.6)
    drawing = Figure(figsize=(min(side + 3.2, WIDTH), side + 0.9), layout="constrained")
    axes = drawing.subplots()
    drawn = axes.imshow(shown / limit, cmap=SIGNS, vmin=-1.15, vmax=1.15, interpolation="nearest")
    if len(drawn_words) <= MAX_WRITTEN:
        decimals = min(max(0, 1 - int(np.floor(np.log10(limit)))), 4)
        texts = {
            place: number(value, decimals=decimals) for place, value in np.ndenumerate(shown) if np.isfinite(value)
        }
        write_cells(axes, drawn, texts, 7)
    short = [names[index] if len(names[index]) < 28 else names[index][:26] + "…" for index in drawn_words]
    axes.set_xticks(range(len(drawn_words)), short, rotation=55, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(drawn_words)), short)
    axes.tick_params(length=0, labelsize=8.5, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    rest = f"; {d - len(drawn_words)} smaller features not shown" if d > len(drawn_words) else ""
    axes.set_xlabel(f"main effects on the diagonal, pairs above it ({unit}){rest}", fontsize=8.5, loc="left")
    return drawing


@style_names
def arcs(words: Sequence[str], main_effects: np.ndarray, pairs: np.ndarray, title: str, unit: str) -> Figure:
    """Draw words coloured by main effects, with arcs for the largest pairs: above for the class, below against."""
    d = len(words)
    drawn = largest(pairs, d)
    drawn_words = _select_words(words, drawn)
    start, indices = 0.0, {}
    for feature in drawn_words:
        wide = LETTER_INCHES * (len(words[feature]) + 1.5)
        indices[feature], start = start + wide / 2, start + wide
    kept_pairs = [one for one in drawn if one[0] in indices and one[1] in indices]
    reach = max((abs(indices[j] - indices[i]) for i, j, *_ in kept_pairs), default=1.0)
    top = 0.35 + 0.5 * min(reach, 4.5)
    wide, high = max(start, 4.0) + 0.3, 2 * top + 0.4
    drawing = Figure(figsize=(wide, high))
    axes = drawing.add_axes((0.15 / wide, 0.02, start / wide, 2 * top / high))
    axes.set(xlim=(0, start), ylim=(-top, top))
    axes.set_axis_off()
    for first, second, score, share in kept_pairs:
        _draw_arc(axes, indices[first], indices[second], score, share, (top - 0.2) / reach)
    limit = max(float(np.abs(main_effects).max()), 1e-300)
    for feature, index in indices.items():
        level = round(LEVELS * main_effects[feature] / limit)
        box = {"facecolor": tint(level) if level else PAPER, "edgecolor": "none", "boxstyle": "square,pad=0.12"}
        axes.text(index, 0, words[feature], ha="center", va="center", fontsize=9, color=INK, bbox=box)
    biggest = number(float(np.abs(pairs).max(initial=0.0)))
    rest = f"; {d - len(drawn_words)} words without a large pair are left out" if len(drawn_words) < d else ""
    ends = f"words ± {number(limit)}, arcs ± {biggest} {unit}{rest}"
    axes.set_title(f"{title}: {ends}", fontsize=8.5, fontweight="normal")
    return drawing


def _select_words(words: Sequence[str], drawn: Sequence[tuple[int, int, float, float]]) -> list[int]:
    """Return all words where they fit in a row, else words of the largest pairs that fit."""
    if LETTER_INCHES * sum(len(word) + 1.5 for word in words) <= WIDTH - 0.3:
        return list(range(len(words)))
    drawn_words: set[int] = set()
    for first, second, *_ in reversed(drawn):
        more = drawn_words | {first, second}
        if LETTER_INCHES * sum(len(words[feature]) + 1.5 for feature in more) > WIDTH - 0.3:
            break
        drawn_words = more
    return sorted(drawn_words)


def _draw_arc(axes: Axes, start: float, end: float, score: float, share: float, steep: float) -> None:
    """Draw a curve from one word to another."""
    up, way = (0.14, 1) if score > 0 else (-0.14, -1)
    high = up + way * steep * abs(end - start)
    path = Path([(start, up), (start, high), (end, high), (end, up)], [Path.MOVETO, *[Path.CURVE4] * 3])
    colour = (*to_rgb(FOR if score > 0 else AGAINST), 0.35 + 0.6 * share)
    axes.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, linewidth=max(MAX_LINE_WIDTH * share, 0.4)))
