"""Figures of a game and of a generated answer: scores of players and parts, and errors against evaluations."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from shapeline.report.colours import AGAINST, FOR, INK, PAPER
from shapeline.report.elements import WIDTH, Style, style_names, styled
from shapeline.report.figures.dots import name_rows, place_axes
from shapeline.report.figures.score_maps import LEVEL

SPREAD = 0.66  # of a row's height that the methods of a player take


@styled
def scores(
    names: Sequence[str],
    columns: Mapping[str, tuple[np.ndarray, np.ndarray | None]],
    styles: Mapping[str, Style],
    title: str,
    across: str,
) -> Figure:
    """Return a row per player with a dot and a 95 % interval per method; columns: scores and standard errors (d,)."""
    drawing = Figure(figsize=(WIDTH, 1.2 + (0.2 + 0.06 * len(columns)) * len(names)))
    [axes] = place_axes(drawing, names, above=0.55)
    places = np.linspace(-SPREAD / 2, SPREAD / 2, len(columns)) if len(columns) > 1 else [0.0]
    for shift, (entry, (values, spread)) in zip(places, columns.items(), strict=True):
        style, rows = styles[entry], np.arange(len(names)) + shift
        half = None if spread is None else LEVEL * spread
        axes.errorbar(
            *(values, rows),
            xerr=half,
            fmt=style.marker,
            color=style.colour,
            markerfacecolor=style.face,
            markersize=4.5,
            elinewidth=1.3,
            label=entry,
        )
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
    drawing = Figure(figsize=(WIDTH * 0.72, 3.6), layout="constrained")
    axes = drawing.subplots()
    for entry, rows in frame.sort_values("evaluations").groupby("method", sort=False):
        style = styles[entry]
        for kind, dashes, face in (("predicted", (0, (4, 2)), PAPER), ("actual", "-", style.colour)):
            if (rows[kind] > 0).any():
                axes.plot(
                    *(rows["evaluations"], rows[kind].where(rows[kind] > 0)),
                    color=style.colour,
                    marker=style.marker,
                    markerfacecolor=face,
                    linestyle=dashes,
                    label=f"{entry}, {kind}",
                )
    axes.set(xscale="log", yscale="log", xlabel="evaluations", ylabel=f"RMSE ({unit})")
    axes.legend(fontsize=8.5)
    return drawing


LONGEST_PART, LONGEST_TOKEN = 34, 12  # characters of names at the axes
MAX_WIDTH = 16.0  # inches


@style_names
def heat_map(parts: Sequence[str], tokens: Sequence[str], scores: np.ndarray) -> Figure:
    """Scores (d, T) of parts, one per row, for the tokens of the answer, one per column, in nats."""
    width = min(MAX_WIDTH, max(WIDTH * 0.6, 3.2 + 0.3 * len(tokens)))
    drawing = Figure(figsize=(width, 1.5 + 0.28 * len(parts)), layout="constrained")
    axes = drawing.subplots()
    limit = float(np.abs(scores).max(initial=0.0)) or 1.0
    colours = LinearSegmentedColormap.from_list("signs", [AGAINST, PAPER, FOR])
    drawn = axes.imshow(scores, cmap=colours, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(parts)), [cut(part, LONGEST_PART) for part in parts])
    shown = [cut(token.replace("\n", "\\n"), LONGEST_TOKEN) for token in tokens]
    axes.set_xticks(range(len(tokens)), shown, rotation=60, ha="right")
    axes.set(xlabel="tokens of the answer", ylabel="parts of the prompt")
    axes.grid(False)
    axes.tick_params(length=0)
    drawing.colorbar(drawn, ax=axes, label="score (nats)")
    return drawing


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, an ellipsis in the place of the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
