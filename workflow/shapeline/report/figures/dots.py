"""Means as dots with their intervals, a row a label, the best on top."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline.report.colours import INK, QUIET
from shapeline.report.elements import mark_method, width_of
from shapeline.report.experiment import ceiling, scalars
from shapeline.report.figures.costs import wide
from shapeline.report.figures.lines import BEST_DASH, best_first
from shapeline.report.formatting import number
from shapeline.report.styling import WIDTH, Style, styled


class Panel(NamedTuple):
    """A statistic's title, what is across (None: the unit of the value), and whether higher is better."""

    title: str
    across: str | None
    higher: bool


SCALARS = {
    "deletion_auc": Panel("Deletion AUC", "nats", False),
    "insertion_auc": Panel("Insertion AUC", "nats", True),
    "rmse": Panel("RMSE", None, False),
    "spearman": Panel("Spearman correlation", "rank correlation", True),
    "top_k_overlap": Panel("Top-k overlap", "share of the exact top k", True),
}


@styled
def areas(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Masking and insertion areas with intervals, best masking area on top; the best control as a dotted line."""
    return _dots(frame, styles, ["deletion_auc", "insertion_auc"])


@styled
def errors(
    frame: pd.DataFrame, styles: Mapping[str, Style], exact: str | None = None, unit: str = "nats"
) -> Figure | None:
    """RMSE, rank correlation and top-k overlap with the exact values, with intervals, lowest RMSE on top."""
    others = frame[frame["method"] != exact]
    return _dots(others, styles, ["rmse", "spearman", "top_k_overlap"], unit)


def _dots(
    frame: pd.DataFrame, styles: Mapping[str, Style], quantities: Sequence[str], unit: str = "nats"
) -> Figure | None:
    present = [name for name in quantities if len(scalars(frame, name))]
    if not present:
        return None
    labels = best_first(frame, styles, present[0], highest=SCALARS[present[0]].higher)
    drawing = Figure(figsize=(WIDTH, 1.1 + 0.29 * len(labels)))
    panels = place_axes(drawing, labels, len(present), above=0.3, between=0.75)
    for axes, statistic in zip(panels, present, strict=True):
        dot_panel(axes, scalars(frame, statistic), styles, labels, SCALARS[statistic], unit)
        for row in ceiling(frame, statistic).itertuples():
            axes.axvspan(row.low, row.high, color=INK, alpha=0.08, linewidth=0)
            axes.axvline(row.mean, color=INK, linestyle=BEST_DASH, linewidth=1.2, zorder=0)
    name_rows(panels[0], labels)
    return drawing


def place_axes(
    drawing: Figure, names: Sequence[str], columns: int = 1, above: float = 0.1, between: float = 0.25
) -> np.ndarray:
    """Axes side by side to the right of the names of their rows, with so many inches above and to the right of each.

    By hand: a layout by constraints takes longer than the rest of the figure.
    """
    wide, high = drawing.get_size_inches()
    left = 0.1 + max(width_of(name) for name in names)
    across = (wide - left) / columns - between
    ends = {"left": left / wide, "right": 1 - between / wide, "bottom": 0.55 / high, "top": 1 - above / high}
    places = {**ends, "wspace": between / across}
    return drawing.subplots(1, columns, sharey=True, squeeze=False, gridspec_kw=places)[0]


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """A row a label, from the top, with room above the first and below the last."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def dot_panel(
    axes: Axes,
    rows: pd.DataFrame,
    styles: Mapping[str, Style],
    labels: Sequence[str],
    panel: Panel,
    unit: str = "",
) -> None:
    """Draw one panel: a dot and its interval a label, the mean written beside it, the best control as a dotted line.

    rows: as of `scalars`; labels: all rows of the figure, from the top; unit: of the panel, where it names none.
    """
    beside = axes.get_yaxis_transform()
    for place, label in enumerate(labels):
        if label in rows.index:
            row, style = rows.loc[label], styles[label]
            drawn = [
                *axes.plot(
                    [row["low"], row["high"]], [place, place], color=style.colour, linewidth=2, solid_capstyle="butt"
                ),
                *axes.plot(
                    row["mean"], place, style.marker, color=style.colour, markerfacecolor=style.face, markersize=6.5
                ),
                axes.text(
                    1.02,
                    place,
                    number(row["mean"], whole=False),
                    transform=beside,
                    va="center",
                    fontsize=8.5,
                    color=INK,
                ),
            ]
            mark_method(label, *drawn)
    controls = rows.loc[[label for label in rows.index if styles[label].control], "mean"]
    if len(controls):
        best = controls.max() if panel.higher else controls.min()
        axes.axvline(best, color=QUIET, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
    if not panel.higher and wide(rows):
        axes.set_xscale("log")
    across = f"{panel.across or unit}, {'higher' if panel.higher else 'lower'} is better"
    axes.set(title=panel.title, xlabel=across)
    axes.grid(axis="y", linewidth=0.4)
    axes.tick_params(axis="y", length=0)
