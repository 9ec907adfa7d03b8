"""Curves: masking and insertion, and errors against the budget."""

import math
from collections.abc import Mapping

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline.report.colours import FAINT, INK
from shapeline.report.elements import mark_method
from shapeline.report.experiment import ceiling, scalars
from shapeline.report.formatting import number
from shapeline.report.styling import FEW, WIDTH, Style, styled, wrapped

BEST = "optimal order"
BEST_DASH = (0, (1, 1))
PANELS = {
    "deletion": ("Deletion (lower is better)", "top features masked (%)", "change of log-odds (nats)"),
    "insertion": (
        "Insertion (higher is better)",
        "top features kept, all others masked (%)",
        "change of log-odds (nats)",
    ),
}


@styled
def curves(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Masking and insertion curves of all labels, a few with their intervals as bands; None without a curve."""
    quantities = [name for name in PANELS if (frame["statistic"] == name).any()]
    if not quantities:
        return None
    labels = best_first(frame, styles, f"{quantities[0]}_auc", highest=quantities[0] == "insertion")
    drawing = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    panels = drawing.subplots(1, len(quantities), squeeze=False)[0]
    for axes, statistic in zip(panels, quantities, strict=True):
        title, across, up = PANELS[statistic]
        for label in labels:
            draw_curve(
                axes, line_of(frame, statistic, label), styles[label], label, band=0.12 if len(labels) <= FEW else 0.0
            )
        best = ceiling(frame, statistic)
        if len(best):
            axes.plot(100 * best["x"], best["mean"], color=INK, linestyle=BEST_DASH, linewidth=1.2, label=BEST)
        axes.set(title=title, xlabel=across, ylabel=up)
        axes.margins(x=0.02)
    handles, names = panels[0].get_legend_handles_labels()
    heading = "best AUC first"
    drawing.legend(
        handles, names, loc="outside right upper", title=heading, alignment="left", handlelength=3.2, labelspacing=0.7
    )
    return drawing


@styled
def curve_panels(frame: pd.DataFrame, styles: Mapping[str, Style], statistic: str = "deletion") -> Figure | None:
    """One small panel a label: its curve and interval in front of all the others in grey; None without the curve."""
    if not (frame["statistic"] == statistic).any():
        return None
    labels = best_first(frame, styles, f"{statistic}_auc", highest=statistic == "insertion")
    columns = min(len(labels), min((4, 5), key=lambda count: -len(labels) % count))  # the fewer empty places
    rows = math.ceil(len(labels) / columns)
    titles = {label: wrapped(label, WIDTH / columns - 0.3) for label in labels}
    drawing = Figure(figsize=(WIDTH, 0.6 + 1.85 * rows))
    above = 0.1 + 0.165 * max(title.count("\n") + 1 for title in titles.values())
    places = _places(drawing, rows, columns, above)
    panels = drawing.subplots(rows, columns, sharex=True, sharey=True, squeeze=False, gridspec_kw=places)
    lines = {label: line_of(frame, statistic, label) for label in labels}
    gap = pd.DataFrame({"x": [np.nan], "mean": [np.nan]})
    every = pd.concat([part for line in lines.values() for part in (line[["x", "mean"]], gap)])  # drawn as one
    for place, axes in enumerate(panels.flat):
        if place >= len(labels):
            axes.set_visible(False)
            continue
        axes.plot(100 * every["x"], every["mean"], color=FAINT, linewidth=0.8)
        label = labels[place]
        draw_curve(axes, lines[label], styles[label], label, band=0.3)
        # A place of its own: to look for one takes as long as the panel.
        axes.set_title(titles[label], color=styles[label].ink, fontsize=9.5, y=1)
        if place + columns >= len(labels):
            axes.tick_params(labelbottom=True)
    drawing.supxlabel(PANELS[statistic][1], fontsize=9.5)
    drawing.supylabel(PANELS[statistic][2], fontsize=9.5)
    return drawing


def _places(drawing: Figure, rows: int, columns: int, above: float) -> dict[str, float]:
    """Where panels stand with `above` inches for their titles, as a layout by constraints would have it in a second."""
    wide, high = drawing.get_size_inches()
    left, right, bottom, gap = 0.75, 0.1, 0.62, 0.16
    across = (wide - left - right - (columns - 1) * gap) / columns
    up = (high - bottom - 0.05 - rows * above - (rows - 1) * gap) / rows
    ends = {"left": left / wide, "right": 1 - right / wide, "bottom": bottom / high, "top": 1 - (above + 0.05) / high}
    return {**ends, "wspace": gap / across, "hspace": (above + gap) / up}


def line_of(frame: pd.DataFrame, statistic: str, label: str) -> pd.DataFrame:
    return frame[(frame["statistic"] == statistic) & (frame["method"] == label)].sort_values("x")


def draw_curve(axes: Axes, line: pd.DataFrame, style: Style, label: str, band: float) -> None:
    across = 100 * line["x"]
    if band:
        axes.fill_between(across, line["low"], line["high"], color=style.colour, alpha=band, linewidth=0)
    else:  # it fits into the axes
        axes.update_datalim(np.column_stack([np.tile(across, 2), np.concatenate([line["low"], line["high"]])]))
    curve = axes.plot(
        across,
        line["mean"],
        color=style.colour,
        linestyle=style.line,
        linewidth=style.width,
        marker=style.marker,
        markersize=4.5,
        markevery=max(1, len(line) // 8),
        markerfacecolor=style.face,
        label=label,
    )
    mark_method(label, *curve)


def best_first(frame: pd.DataFrame, styles: Mapping[str, Style], statistic: str, highest: bool = False) -> list[str]:
    """The labels present, best first by the statistic (those without it last, in their own order)."""
    present = [label for label in styles if label in set(frame["method"])]
    means = scalars(frame, statistic)["mean"]
    worst = -np.inf if highest else np.inf
    return sorted(present, key=lambda label: means.get(label, worst), reverse=highest)


@styled
def log_odds_grid(
    frames: Mapping[str, pd.DataFrame], styles: Mapping[str, Style], statistic: str = "deletion"
) -> Figure | None:
    """Draw curves of several experiments, a panel each, with 95 % bands and one legend (Chen et al. 2018, figure 2)."""
    frames = {title: frame for title, frame in frames.items() if (frame["statistic"] == statistic).any()}
    if not frames:
        return None
    columns = min(len(frames), min((3, 2), key=lambda count: -len(frames) % count))  # the fewer empty places
    rows = math.ceil(len(frames) / columns)
    drawing = Figure(figsize=(WIDTH, 0.3 + 3.7 * rows), layout="constrained")
    panels = drawing.subplots(rows, columns, squeeze=False)
    handles: dict[str, object] = {}
    for axes, (title, frame) in zip(panels.flat, frames.items(), strict=False):
        labels = [label for label in styles if label in set(frame.loc[frame["statistic"] == statistic, "method"])]
        for label in labels:
            line = line_of(frame, statistic, label)
            draw_curve(axes, line, styles[label], label, band=0.14 if len(labels) <= FEW else 0.07)
        handles |= dict(zip(labels, axes.get_legend_handles_labels()[0], strict=True))
        axes.set(title=title, xlabel=PANELS[statistic][1])
        axes.margins(x=0.02)
    for axes in panels.flat[len(frames) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel(PANELS[statistic][2])
    order = [label for label in styles if label in handles]
    drawing.legend(
        [handles[label] for label in order], order, loc="outside lower center", handlelength=3.2,
        ncols=min(len(order), 5),
    )  # fmt: skip
    return drawing


BUDGET_PANELS = {  # statistic -> title, whether it is a square whose root is drawn
    "rmse_by_budget": ("RMSE", False),
    "bias_squared_by_budget": ("Bias", True),
    "variance_by_budget": ("Standard deviation over repeats", True),
}


@styled
def calibration(frame: pd.DataFrame, styles: Mapping[str, Style], unit: str = "nats") -> Figure | None:
    """Draw predicted and actual error and coverage against the budget; None without methods that know their error."""
    if not (frame["statistic"] == "predicted_rmse_by_budget").any():
        return None
    drawing = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    error, coverage = drawing.subplots(1, 2)
    for label, style in styles.items():
        predicted, held = (line_of(frame, f"{name}_by_budget", label) for name in ("predicted_rmse", "coverage"))
        if predicted.empty:
            continue
        actual = line_of(frame, "rmse_by_budget", label)
        error.plot(actual["x"], actual["mean"], style.marker, linestyle="-", color=style.colour, label=label)
        dashes = {"linestyle": (0, (4, 2)), "markerfacecolor": "none", "color": style.colour}
        error.plot(predicted["x"], predicted["mean"], style.marker, label=f"{label}, predicted", **dashes)
        bars = np.abs(100 * held[["low", "high"]].T.to_numpy() - 100 * held["mean"].to_numpy())
        coverage.errorbar(
            held["x"], 100 * held["mean"], bars, color=style.colour, marker=style.marker, capsize=2, linewidth=1.2
        )
    coverage.axhspan(92, 98, color=matplotlib.rcParams["grid.color"], zorder=0)
    coverage.axhline(95, color=matplotlib.rcParams["axes.edgecolor"], linewidth=1, linestyle=(0, (1, 2)))
    error.set(yscale="log", title="Predicted and actual RMSE", ylabel=unit)
    coverage.set(title="Exact scores inside 95 % intervals (%)", ylim=(min(70.0, coverage.get_ylim()[0]), 101))
    ticks = sorted(frame.loc[frame["statistic"] == "predicted_rmse_by_budget", "x"].unique())
    for axes in (error, coverage):
        axes.set(xscale="log", xlabel="budget (evaluations / d)")
        axes.set_xticks(ticks, [number(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
    drawing.legend(*error.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return drawing


@styled
def convergence(frame: pd.DataFrame, styles: Mapping[str, Style], unit: str = "nats") -> Figure | None:
    """RMSE, bias and standard deviation against the budget (a multiple of d), both axes logarithmic."""
    present = {name: panel for name, panel in BUDGET_PANELS.items() if (frame["statistic"] == name).any()}
    if not present:
        return None
    drawing = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    panels = drawing.subplots(1, len(present), squeeze=False, sharey=True)[0]
    for axes, (statistic, (title, squared)) in zip(panels, present.items(), strict=True):
        for label, style in styles.items():
            line = line_of(frame, statistic, label)
            line = line[line["mean"] > 0]
            if line.empty:
                continue
            low, middle, high = (line[key].clip(lower=0) ** (0.5 if squared else 1) for key in ("low", "mean", "high"))
            low = low.where(low > 0, middle)
            if "bias" in statistic:  # what lies below 0 is missing: no line across it
                axes.plot(line["x"], middle, style.marker, color=style.colour, markersize=5)
                axes.vlines(line["x"], low, high, color=style.colour, alpha=0.4)
                continue
            axes.plot(line["x"], middle, style.marker, linestyle="-", color=style.colour, markersize=5, label=label)
            axes.fill_between(line["x"], low, high, color=style.colour, alpha=0.15, linewidth=0)
        axes.set(xscale="log", yscale="log", title=title, xlabel="budget (evaluations / d)")
        ticks = sorted(frame.loc[frame["statistic"] == statistic, "x"].unique())
        axes.set_xticks(ticks, [number(tick) for tick in ticks])
        axes.minorticks_off()
    panels[0].set_ylabel(unit)
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return drawing
