"""Quantities against what they cost, every point named."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline.report.colours import MIDDLE, PALE, QUIET
from shapeline.report.elements import lay_out, mark_method
from shapeline.report.experiment import scalars
from shapeline.report.formatting import number
from shapeline.report.styling import PLATE, WIDTH, Style, styled


def tabulate_costs(rows: pd.DataFrame, **costs: pd.Series) -> pd.DataFrame:
    """Return the data of a figure against costs: method, each cost, mean, low, high; rows as in `scalars`."""
    each = {name: cost.reindex(rows.index) for name, cost in costs.items()}
    return (
        rows[["mean", "low", "high"]].assign(**each)[[*each, "mean", "low", "high"]].rename_axis("method").reset_index()
    )


def wide(rows: pd.DataFrame) -> bool:
    """Whether the values are positive and span so much that only a logarithmic axis shows them all."""
    return bool((rows["low"] > 0).all() and rows["mean"].max() > 30 * rows["mean"].min())


@styled
def done_by_evaluations(spent: Mapping[str, np.ndarray], d: int, styles: Mapping[str, Style]) -> Figure:
    """The share of the explanations that took at most so many evaluations, a step curve a label, their mean a dot."""
    drawing = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = drawing.subplots()
    for label, numbers in spent.items():
        across = np.sort(numbers) / d
        share = 100 * np.arange(1, len(across) + 1) / len(across)
        style = styles[label]
        axes.step(np.r_[across[0], across], np.r_[0, share], where="post", color=style.colour, label=label)
        mean = across.mean()
        up = 100 * (across <= mean).mean()
        axes.plot(mean, up, style.marker, color=style.colour, markerfacecolor=style.face, markersize=7)
    axes.set(xscale="log", ylim=(0, 103), xlabel="evaluations / d", ylabel="explanations within this cost (%)")
    low, high = axes.get_xlim()
    ticks = [tick for tick in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if low <= tick <= high]
    axes.set_xticks(ticks, [number(tick) for tick in ticks])
    axes.minorticks_off()
    drawing.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return drawing


@styled
def error_by_cost(
    frame: pd.DataFrame,
    styles: Mapping[str, Style],
    evaluations: pd.Series,
    exact: str | None = None,
    unit: str = "nats",
    budget: float | None = None,
) -> Figure | None:
    """RMSE to the exact values against evaluations per instance, every point named; `budget` counts evaluations."""
    rows = scalars(frame[frame["method"] != exact], "rmse")
    rows = rows.loc[[label for label in styles if label in rows.index and np.isfinite(evaluations.get(label, np.nan))]]
    if rows.empty:
        return None
    drawing = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = drawing.subplots()
    spent = np.array([evaluations[label] for label in rows.index])
    if wide(rows):
        axes.set_yscale("log")
    for across, (label, row) in zip(spent, rows.iterrows(), strict=True):
        draw_point(axes, across, row, styles[label])
    evaluations_axis(axes, max(spent.max(), evaluations.get(exact, 0) if exact else 0))
    marks = [(budget, "budget")] if budget else []
    if exact in evaluations.index:
        marks.append((evaluations[exact], f"{exact} (error 0)"))
    for place, (across, text) in enumerate(marks):
        _marker_line(axes, across, text, place)
    hide_small_ticks(axes)
    axes.set_ylabel(f"RMSE to {exact or 'the exact values'} ({unit})")
    name_points(axes, spent, rows, styles)
    return drawing


def draw_point(axes: Axes, across: float, row: pd.Series, style: Style) -> None:
    """A mean with its interval at what it costs; row: of a method, which is its name."""
    bar = axes.plot([across, across], [row["low"], row["high"]], color=style.colour, linewidth=1.8)
    dot = axes.plot(across, row["mean"], style.marker, color=style.colour, markerfacecolor=style.face, markersize=7.5)
    mark_method(row.name, *bar, *dot)


def evaluations_axis(axes: Axes, top: float) -> None:
    """An axis of evaluations from 0, then logarithmic, to `top`."""
    axes.set_xscale("symlog", linthresh=1, linscale=0.25)
    ticks = [0, *(10**power for power in range(0, math.ceil(math.log10(max(top, 10))) + 1))]
    axes.set_xticks(ticks, [number(tick) for tick in ticks])
    axes.set_xlim(-0.3, max(top, 1) * 2.2)
    axes.minorticks_off()
    axes.set_xlabel("model evaluations per instance (0, then logarithmic)")


def hide_small_ticks(axes: Axes) -> None:
    """Leave out the ticks between powers of ten where three of these show that an axis is logarithmic, to save time."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high >= 1000 * low:
            axis.minorticks_off()


def _marker_line(axes: Axes, across: float, text: str, row: int) -> None:
    """A dotted line at a number of evaluations; its name at the top, each in a row of its own as lines may coincide."""
    axes.axvline(across, color=MIDDLE, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
    place = {"xycoords": ("data", "axes fraction"), "xytext": (-4, -2 - 13 * row), "textcoords": "offset points"}
    axes.annotate(text, (across, 1), **place, ha="right", va="top", fontsize=8, color=QUIET)


def name_points(
    axes: Axes,
    across: np.ndarray,
    rows: pd.DataFrame,
    styles: Mapping[str, Style],
    spans: np.ndarray | None = None,
) -> None:
    """Write each name beside its point where it covers no point, bar or name; spans: ends (n, 2) of bars."""
    lay_out(axes.figure)  # so that places on the page are known
    axes.get_xlim(), axes.get_ylim()  # limits that wait to be found are found now
    low, middle, high = (
        axes.transData.transform(np.column_stack([across, rows[key]])) for key in ("low", "mean", "high")
    )
    frame = axes.get_window_extent()
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in middle]
    taken += [(x - 2, bottom, x + 2, top) for (x, bottom), (_, top) in zip(low, high, strict=True)]
    for span, (_, y) in zip(spans if spans is not None else (), middle, strict=False):
        if np.isfinite(span).all():
            (left, _), (right, _) = axes.transData.transform(np.column_stack([span, [axes.get_ylim()[0]] * 2]))
            taken.append((left - 2, y - 2, right + 2, y + 2))
    taken += [text.get_window_extent().extents for text in axes.texts]
    offsets = [(8, 0), (-8, 0), (0, 10), (0, -10)]
    offsets += [(side * 9, step) for step in (10, -10, 20, -20, 30, -30, 42, -42, 56, -56) for side in (1, -1)]
    points = axes.figure.dpi / 72  # pixels each
    for place in np.lexsort([-middle[:, 1], middle[:, 0]]):
        label, point = rows.index[place], (across[place], rows["mean"].iloc[place])
        style = {"va": "center", "fontsize": 9, "color": styles[label].ink, "bbox": PLATE}
        text = axes.annotate(label, point, xytext=(0, 0), textcoords="offset points", ha="left", **style)
        mark_method(label, text)
        around = text.get_window_extent()  # of the name at its point; elsewhere it is shifted, which needs no text
        for right, above in offsets:
            x0 = around.x0 + right * points - around.width * (0 if right > 0 else 1 if right < 0 else 0.5)
            y0 = around.y0 + above * points
            x1, y1 = x0 + around.width, y0 + around.height
            inside = frame.x0 <= x0 and x1 <= frame.x1 and frame.y0 <= y0 and y1 <= frame.y1
            if inside and all(x1 < left or x0 > r or y1 < low - 1 or y0 > high + 1 for left, low, r, high in taken):
                break
        text.set(position=(right, above), ha="left" if right > 0 else "right" if right < 0 else "center")
        taken.append((x0, y0, x1, y1))
        if abs(above) > 10:
            leader = {"arrowstyle": "-", "color": PALE, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}
            axes.annotate("", point, xytext=(right, above), textcoords="offset points", arrowprops=leader)
