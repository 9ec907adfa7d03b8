"""Means with their intervals: a row per method, against costs, over training seeds, and ranks."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline.report.colours import INK, MIDDLE, PALE, QUIET
from shapeline.report.criteria import Evidence
from shapeline.report.elements import WIDTH, Style, label_log_axis, mark_method, name_rows, styled
from shapeline.report.experiment import scalars, select_ceiling
from shapeline.report.figures import lines
from shapeline.report.figures.lines import BEST_DASH, needs_log_axis, order_best_first
from shapeline.report.formatting import number, probability
from shapeline.statistics import paired


class Panel(NamedTuple):
    """A statistic's title, x label (None: the unit of the value), and whether higher is better."""

    title: str
    across: str | None
    higher: bool


AREAS = {"deletion_auc": Panel("Deletion AUC", "nats", False), "insertion_auc": Panel("Insertion AUC", "nats", True)}
ERRORS = {
    "rmse": Panel("RMSE", None, False),
    "spearman": Panel("Spearman correlation", "rank correlation", True),
    "top_k_overlap": Panel("Top-k overlap", "share of the exact top k", True),
}


@styled
def draw_dots(
    frame: pd.DataFrame,
    styles: Mapping[str, Style],
    panels: Mapping[str, Panel],
    unit: str = "nats",
    finish: Callable[[Axes, str, list[str]], None] | None = None,
) -> Figure | None:
    """Draw a panel per statistic: means with intervals, the best by the first on top; the best control dotted.

    finish: called with each panel's axes, statistic and methods, the first on top. None without a statistic.
    """
    present = [name for name in panels if len(scalars(frame, name))]
    if not present:
        return None
    entries = order_best_first(frame, styles, present[0], highest=panels[present[0]].higher)
    rows, columns = -(-len(present) // 3), min(3, len(present))
    drawing = Figure(figsize=(WIDTH, rows * (1.0 + 0.29 * len(entries))), layout="constrained")
    every = drawing.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes in every[len(present) :]:
        axes.set_visible(False)
    for axes, statistic in zip(every, present, strict=False):
        dot_panel(axes, scalars(frame, statistic), styles, entries, panels[statistic], unit)
        for row in select_ceiling(frame, statistic).itertuples():
            axes.axvspan(row.low, row.high, color=INK, alpha=0.08, linewidth=0)
            axes.axvline(row.mean, color=INK, linestyle=BEST_DASH, linewidth=1.2, zorder=0)
        if finish is not None:
            finish(axes, statistic, entries)
    name_rows(every[0], entries)
    return drawing


def dot_panel(
    axes: Axes, rows: pd.DataFrame, styles: Mapping[str, Style], entries: Sequence[str], panel: Panel, unit: str = ""
) -> None:
    """Draw a dot and interval per method, the mean beside it, the best control dotted; rows: as of `scalars`."""
    beside = axes.get_yaxis_transform()
    for index, entry in enumerate(entries):
        if entry in rows.index:
            row, style = rows.loc[entry], styles[entry]
            ends, mean = [row["low"], row["high"]], number(row["mean"], whole=False)
            bar = axes.plot(ends, [index, index], color=style.colour, linewidth=2, solid_capstyle="butt")
            dot = axes.plot(row["mean"], index, markersize=6.5, **style.dot)
            text = axes.text(1.02, index, mean, transform=beside, va="center", fontsize=8.5, color=INK)
            mark_method(entry, *bar, *dot, text)
    controls = rows.loc[[entry for entry in rows.index if styles[entry].control], "mean"]
    if len(controls):
        best = controls.max() if panel.higher else controls.min()
        axes.axvline(best, color=QUIET, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
    if not panel.higher and needs_log_axis(rows):
        axes.set_xscale("log")
        label_log_axis(axes.xaxis)
    across = f"{panel.across or unit}, {'higher' if panel.higher else 'lower'} is better"
    axes.set(title=panel.title, xlabel=across)
    axes.grid(axis="y", linewidth=0.4)
    axes.tick_params(axis="y", length=0)


def average_ranks(answer: Evidence) -> pd.DataFrame:
    average, critical, _ = paired.critical_difference(answer.values, answer.criterion.better)
    return average.rename("average_rank").rename_axis("method").reset_index().assign(critical_difference=critical)


@styled
def cost_plane(
    answer: Evidence, rows: pd.DataFrame, styles: Mapping[str, Style], seconds: pd.Series | None = None
) -> Figure | None:
    """Draw a statistic against evaluations and seconds, the best at each cost joined; rows: of `scalars`."""
    rows = rows.loc[[entry for entry in styles if entry in rows.index and entry in answer.values]]
    spent_on = [answer.evaluations, pd.Series(dtype=float) if seconds is None else seconds[seconds > 0]]
    panels = [rows[np.isfinite(cost.reindex(rows.index).to_numpy(float))] for cost in spent_on]
    shown = [index for index, drawn in enumerate(panels) if len(drawn)]
    if not shown:
        return None
    drawing = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    sign = 1 if answer.criterion.better == "higher" else -1
    what = answer.criterion.title.split(": ")[-1]
    every = drawing.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axes, index in zip(every, shown, strict=True):
        drawn, spent = panels[index], spent_on[index].reindex(panels[index].index).to_numpy(float)
        if index == 0:
            lines.evaluations_axis(axes, spent.max())
        else:
            axes.set_xscale("log")
            axes.set_xlim(spent.min() / 1.5, spent.max() * 2.5)
            axes.set_xlabel("seconds per instance (logarithmic)")
        if answer.criterion.better == "lower" and lines.needs_log_axis(drawn):
            axes.set_yscale("log")
        means = drawn["mean"].to_numpy()
        by_cost = np.lexsort([-sign * means, spent])
        leads = by_cost[sign * means[by_cost] >= np.maximum.accumulate(sign * means[by_cost])]
        axes.plot(spent[leads], means[leads], color=PALE, linewidth=1.2, zorder=0)
        for across, (entry, row) in zip(spent, drawn.iterrows(), strict=True):
            lines.draw_point(axes, across, row, styles[entry])
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                label_log_axis(axis)
    every[0].set_ylabel(f"{what}{f' ({answer.unit})' if answer.unit else ''}\n{answer.criterion.better} is better")
    lines.add_legend(drawing, max(every, key=lambda axes: len(axes.get_legend_handles_labels()[0])), "")
    return drawing


@styled
def rank_diagram(answer: Evidence, styles: Mapping[str, Style]) -> Figure | None:
    """Draw average ranks on a line, named left and right, and a bar over groups within the critical difference."""
    average, critical, p = paired.critical_difference(answer.values, answer.criterion.better)
    k = len(average)
    if k < 3:
        return None
    half = (k + 1) // 2
    groups = paired.cliques(average, critical)
    top = 1.4 + 0.34 * (len(groups) + 1)
    drawing = Figure(figsize=(WIDTH, 0.62 + 0.24 * (half + 1.6 * top)))
    axes = drawing.add_axes((0.005, 0.01, 0.99, 0.98))
    axes.set(xlim=(0.6 - 0.42 * k, k + 0.4 + 0.42 * k), ylim=(half + 0.8, -top - 0.4))
    axes.axis("off")
    axes.plot([1, k], [0, 0], color=INK, linewidth=1)
    for rank in range(1, k + 1):
        axes.plot([rank, rank], [0, -0.16], color=INK, linewidth=1)
        axes.text(rank, -0.25, str(rank), ha="center", va="bottom", fontsize=8.5, color=INK)
    for index, (entry, rank) in enumerate(average.items()):
        left, style = index < half, styles[entry]
        row = index + 1 if left else k - index
        edge = 0.7 if left else k + 0.3
        line = axes.plot([rank, rank, edge], [0, row, row], color=style.colour, linewidth=0.9)
        dot = axes.plot(rank, 0, markersize=6, **style.dot)
        name, beside, side = (
            (f"{entry}  {rank:.1f}", -0.08, "right") if left else (f"{rank:.1f}  {entry}", 0.08, "left")
        )
        text = axes.text(edge + beside, row, name, ha=side, va="center", fontsize=9, color=style.ink)
        mark_method(entry, *line, *dot, text)
    for level, (first, last) in enumerate(groups):
        height = -0.85 - 0.34 * (level + 1)
        axes.plot([average[first] - 0.04, average[last] + 0.04], [height] * 2, color=INK, linewidth=3.2)
    height = -1.25 - 0.34 * (len(groups) + 1)
    axes.plot([1, 1 + critical], [height] * 2, color=MIDDLE, linewidth=1.2, marker="|")
    shown = probability(p)  # "< 0.001" or a number
    equals = "" if shown.startswith("<") else "= "
    test = f"critical difference {critical:.2f}; Friedman test of equal ranks: p {equals}{shown}"
    axes.text(1 + critical + 0.15, height, test, va="center", fontsize=8.5, color=QUIET)
    return drawing
