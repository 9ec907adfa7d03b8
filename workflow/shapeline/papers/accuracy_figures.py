"""Figures of the accuracy page: errors game by game, and their ratio to kernel_shap's over games."""

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline.report.colours import INK
from shapeline.report.formatting import number
from shapeline.report.styling import WIDTH, Style, styled

COLUMNS = 5


@styled
def ratios(means: pd.DataFrame, styles: Mapping[str, Style]) -> Figure:
    """Geometric means over games of the error's ratio to kernel_shap's against the budget, with intervals as bars."""
    drawing = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = drawing.subplots()
    for place, (name, style) in enumerate(styles.items()):
        line = means[means["estimator"] == name].sort_values("times")
        across = line["times"] * 1.025 ** (place - len(styles) / 2)  # bars side by side
        axes.vlines(across, line["low"], line["high"], color=style.colour, alpha=0.6, linewidth=1.4)
        axes.plot(
            across, line["ratio"], style.marker, linestyle=style.line, color=style.colour, markersize=5.5, label=name
        )
    axes.set(yscale="log", ylabel="error over kernel_shap's, lower is better")
    _budgets(axes, means)
    axes.set_yticks(ticks := [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10) if _within(axes, tick)], map(str, ticks))
    drawing.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return drawing


@styled
def errors(measured: pd.DataFrame, styles: Mapping[str, Style]) -> Figure:
    """Root mean square error against the budget, a panel a game."""
    games = list(measured["game"].unique())
    columns = min(COLUMNS, len(games))
    rows = math.ceil(len(games) / columns)
    high = 1.1 + 2.1 * rows
    drawing = Figure(figsize=(WIDTH, high))  # a layout by constraints would take two seconds
    places = {
        "left": 0.065,
        "right": 0.995,
        "bottom": 1.0 / high,
        "top": 1 - 0.3 / high,
        "wspace": 0.35,
        "hspace": 0.35,
    }
    panels = drawing.subplots(rows, columns, squeeze=False, gridspec_kw=places)
    for axes, game in zip(panels.flat, games, strict=False):
        own = measured[measured["game"] == game]
        for name, style in styles.items():
            line = own[own["estimator"] == name].sort_values("times")
            axes.plot(
                line["times"], line["rmse"], style.marker, linestyle=style.line, color=style.colour, markersize=3.5,
                linewidth=1.2, label=name,
            )  # fmt: skip
        axes.set(yscale="log")
        axes.set_title(game, fontsize=8.5, y=1)  # a place of its own: to look for one takes as long as the panel
        _budgets(axes, own, "")
    for axes in panels.flat[len(games) :]:
        axes.set_visible(False)
    handles, names = panels[0, 0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="lower center", ncols=4)
    drawing.supxlabel("evaluations / d", fontsize=9.5, color=INK, y=0.6 / high)
    drawing.supylabel("RMSE", fontsize=9.5, color=INK, x=0.002)
    return drawing


def _budgets(axes: Axes, frame: pd.DataFrame, label: str = "evaluations / d") -> None:
    times = sorted(frame["times"].unique())
    axes.set(xscale="log", xlabel=label)
    axes.set_xticks(times, [number(one) for one in times])
    axes.minorticks_off()


def _within(axes: Axes, tick: float) -> bool:
    low, high = axes.get_ylim()
    return low <= tick <= high
