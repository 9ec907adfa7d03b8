"""Curves: deletion and insertion, and errors against the budget or the cost."""

import math
from collections.abc import Mapping

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline.report.colours import FAINT, INK, MIDDLE, QUIET
from shapeline.report.elements import MAX_BANDS, WIDTH, Style, label_log_axis, mark_method, styled, wrap_name
from shapeline.report.experiment import scalars, select_ceiling
from shapeline.report.formatting import number


def tabulate_costs(rows: pd.DataFrame, **costs: pd.Series) -> pd.DataFrame:
    """Return the data of a figure against costs: method, each cost, mean, low, high; rows as in `scalars`."""
    each = {name: cost.reindex(rows.index) for name, cost in costs.items()}
    return (
        rows[["mean", "low", "high"]].assign(**each)[[*each, "mean", "low", "high"]].rename_axis("method").reset_index()
    )


def needs_log_axis(rows: pd.DataFrame) -> bool:
    """Return whether the values are positive and need a logarithmic axis."""
    return bool((rows["low"] > 0).all() and rows["mean"].max() > 30 * rows["mean"].min())


@styled
def draw_completion(spent: Mapping[str, np.ndarray], d: int, styles: Mapping[str, Style]) -> Figure:
    """Draw the share of explanations by number of evaluations, a step curve per method with a dot at the mean."""
    drawing = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = drawing.subplots()
    for entry, numbers in spent.items():
        across = np.sort(numbers) / d
        share = 100 * np.arange(1, len(across) + 1) / len(across)
        style = styles[entry]
        axes.step(np.r_[across[0], across], np.r_[0, share], where="post", color=style.colour, label=entry)
        mean = across.mean()
        axes.plot(mean, 100 * (across <= mean).mean(), markersize=7, **style.dot)
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
    """Draw RMSE to the exact values against evaluations per instance, every point labelled; budget: in evaluations."""
    rows = scalars(frame[frame["method"] != exact], "rmse")
    rows = rows.loc[[entry for entry in styles if entry in rows.index and np.isfinite(evaluations.get(entry, np.nan))]]
    if rows.empty:
        return None
    drawing = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = drawing.subplots()
    spent = np.array([evaluations[entry] for entry in rows.index])
    if needs_log_axis(rows):
        axes.set_yscale("log")
    for across, (entry, row) in zip(spent, rows.iterrows(), strict=True):
        draw_point(axes, across, row, styles[entry])
    evaluations_axis(axes, max(spent.max(), evaluations.get(exact, 0) if exact else 0))
    marks = [(budget, "budget")] if budget else []
    if exact in evaluations.index:
        marks.append((evaluations[exact], f"{exact} (error 0)"))
    for index, (across, text) in enumerate(marks):
        axes.axvline(across, color=MIDDLE, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
        place = {"xycoords": ("data", "axes fraction"), "xytext": (-4, -2 - 13 * index), "textcoords": "offset points"}
        axes.annotate(text, (across, 1), **place, ha="right", va="top", fontsize=8, color=QUIET)  # lines may coincide
    if axes.get_yscale() == "log":
        label_log_axis(axes.yaxis)
    axes.set_ylabel(f"RMSE to {exact or 'the exact values'} ({unit})")
    add_legend(drawing, axes, "")
    return drawing


def draw_point(axes: Axes, across: float, row: pd.Series, style: Style) -> None:
    """Draw a mean with its interval at its cost; row: of a method, whose name is the row's name."""
    bar = axes.plot([across, across], [row["low"], row["high"]], color=style.colour, linewidth=1.8)
    dot = axes.plot(across, row["mean"], markersize=7.5, label=row.name, **style.dot)
    mark_method(row.name, *bar, *dot)


def evaluations_axis(axes: Axes, top: float) -> None:
    """Set an axis of evaluations from 0, then logarithmic, to `top`."""
    axes.set_xscale("symlog", linthresh=1, linscale=0.25)
    ticks = [0, *(10**power for power in range(0, math.ceil(math.log10(max(top, 10))) + 1))]
    axes.set_xticks(ticks, [number(tick) for tick in ticks])
    axes.set_xlim(-0.3, max(top, 1) * 2.2)
    axes.minorticks_off()
    axes.set_xlabel("model evaluations per instance (0, then logarithmic)")


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
def curves(
    frame: pd.DataFrame,
    styles: Mapping[str, Style],
    panels: Mapping[str, tuple[str, str, str]] = PANELS,
    area: str = "auc",
    scale: float = 100,
) -> Figure | None:
    """Draw curves of all methods, a panel per statistic, with bands where methods are few; None without a curve."""
    quantities = [name for name in panels if frame.loc[frame["statistic"] == name, "mean"].notna().any()]
    if not quantities:
        return None
    entries = order_best_first(frame, styles, f"{quantities[0]}_{area}", highest=quantities[0] == "insertion")
    drawing = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    for axes, statistic in zip(drawing.subplots(1, len(quantities), squeeze=False)[0], quantities, strict=True):
        title, across, up = panels[statistic]
        for entry in entries:
            band = 0.12 if len(entries) <= MAX_BANDS else 0.0
            draw_curve(axes, select_line(frame, statistic, entry), styles[entry], entry, band, scale)
        best = select_ceiling(frame, statistic)
        if len(best):
            axes.plot(scale * best["x"], best["mean"], color=INK, linestyle=BEST_DASH, linewidth=1.2, label=BEST)
        axes.set(title=title, xlabel=across, ylabel=up)
        axes.margins(x=0.02)
    add_legend(drawing, drawing.axes[0], f"best {area.replace('auc', 'AUC')} first")
    return drawing


def add_legend(drawing: Figure, axes: Axes, title: str) -> None:
    """Add the legend of curves or points in these axes to the right of a figure."""
    place = {"loc": "outside right upper", "alignment": "left", "handlelength": 3.2, "labelspacing": 0.7}
    drawing.legend(*axes.get_legend_handles_labels(), title=title, **place)


@styled
def curve_panels(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Draw a panel per method: its deletion curve in front of all others in grey; None without the curve."""
    if not (frame["statistic"] == "deletion").any():
        return None
    entries = order_best_first(frame, styles, "deletion_auc")
    columns = min(len(entries), min((4, 5), key=lambda count: -len(entries) % count))  # with fewer empty panels
    rows = math.ceil(len(entries) / columns)
    titles = {entry: wrap_name(entry, WIDTH / columns - 0.3) for entry in entries}
    drawing = Figure(figsize=(WIDTH, 0.6 + 1.85 * rows), layout="constrained")
    panels = drawing.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    lines = {entry: select_line(frame, "deletion", entry) for entry in entries}
    gap = pd.DataFrame({"x": [np.nan], "mean": [np.nan]})
    joined = pd.concat([part for line in lines.values() for part in (line[["x", "mean"]], gap)])  # drawn as one line
    for index, axes in enumerate(panels.flat):
        if index >= len(entries):
            axes.set_visible(False)
            continue
        axes.plot(100 * joined["x"], joined["mean"], color=FAINT, linewidth=0.8)
        entry = entries[index]
        draw_curve(axes, lines[entry], styles[entry], entry, band=0.3)
        axes.set_title(titles[entry], color=styles[entry].ink, fontsize=9.5)
        if index + columns >= len(entries):
            axes.tick_params(labelbottom=True)
    _, across, up = PANELS["deletion"]
    drawing.supxlabel(across, fontsize=9.5)
    drawing.supylabel(up, fontsize=9.5)
    return drawing


def select_line(frame: pd.DataFrame, statistic: str, entry: str) -> pd.DataFrame:
    return frame[(frame["statistic"] == statistic) & (frame["method"] == entry)].sort_values("x")


def draw_curve(axes: Axes, line: pd.DataFrame, style: Style, entry: str, band: float, scale: float = 100) -> None:
    """Draw a curve over x times scale with a band of this opacity; axes include an undrawn interval."""
    across = scale * line["x"]
    if band:
        axes.fill_between(across, line["low"], line["high"], color=style.colour, alpha=band, linewidth=0)
    else:
        axes.update_datalim(np.column_stack([np.tile(across, 2), np.concatenate([line["low"], line["high"]])]))
    every = max(1, len(line) // 8)
    mark_method(entry, *axes.plot(across, line["mean"], markersize=4.5, markevery=every, label=entry, **style.curve))


def order_best_first(
    frame: pd.DataFrame, styles: Mapping[str, Style], statistic: str, highest: bool = False
) -> list[str]:
    """Return the methods in the frame, best first by the statistic; those without it last, in their order."""
    present = [entry for entry in styles if entry in set(frame["method"])]
    means = scalars(frame, statistic)["mean"]
    worst = -np.inf if highest else np.inf
    return sorted(present, key=lambda entry: means.get(entry, worst), reverse=highest)


@styled
def log_odds_grid(frames: Mapping[str, pd.DataFrame], styles: Mapping[str, Style]) -> Figure | None:
    """Draw deletion curves of experiments, a panel each, with 95 % bands (Chen et al. 2018, figure 2)."""
    frames = {title: frame[frame["statistic"] == "deletion"] for title, frame in frames.items()}
    frames = {title: frame for title, frame in frames.items() if len(frame)}
    if not frames:
        return None
    columns = min(len(frames), min((3, 2), key=lambda count: -len(frames) % count))  # with fewer empty panels
    rows = math.ceil(len(frames) / columns)
    drawing = Figure(figsize=(WIDTH, 0.3 + 3.7 * rows), layout="constrained")
    panels = drawing.subplots(rows, columns, squeeze=False)
    handles: dict[str, object] = {}
    for axes, (title, frame) in zip(panels.flat, frames.items(), strict=False):
        entries = [entry for entry in styles if entry in set(frame["method"])]
        for entry in entries:
            line = select_line(frame, "deletion", entry)
            draw_curve(axes, line, styles[entry], entry, band=0.14 if len(entries) <= MAX_BANDS else 0.07)
        handles |= dict(zip(entries, axes.get_legend_handles_labels()[0], strict=True))
        axes.set(title=title, xlabel=PANELS["deletion"][1])
        axes.margins(x=0.02)
    for axes in panels.flat[len(frames) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel(PANELS["deletion"][2])
    order = [entry for entry in styles if entry in handles]
    drawing.legend(
        [handles[entry] for entry in order], order, loc="outside lower center", handlelength=3.2,
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
    """Draw predicted and actual error and coverage against the budget; None without predicted errors."""
    if not (frame["statistic"] == "predicted_rmse_by_budget").any():
        return None
    drawing = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    error, coverage = drawing.subplots(1, 2)
    for entry, style in styles.items():
        predicted, covered = (select_line(frame, f"{name}_by_budget", entry) for name in ("predicted_rmse", "coverage"))
        if predicted.empty:
            continue
        actual = select_line(frame, "rmse_by_budget", entry)
        error.plot(actual["x"], actual["mean"], style.marker, linestyle="-", color=style.colour, label=entry)
        dashes = {"linestyle": (0, (4, 2)), "markerfacecolor": "none", "color": style.colour}
        error.plot(predicted["x"], predicted["mean"], style.marker, label=f"{entry}, predicted", **dashes)
        bars = np.abs(100 * covered[["low", "high"]].T.to_numpy() - 100 * covered["mean"].to_numpy())
        coverage.errorbar(
            covered["x"], 100 * covered["mean"], bars, color=style.colour, marker=style.marker, capsize=2, linewidth=1.2
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
    label_log_axis(error.yaxis)
    drawing.legend(*error.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return drawing


@styled
def convergence(frame: pd.DataFrame, styles: Mapping[str, Style], unit: str = "nats") -> Figure | None:
    """Draw RMSE, bias and standard deviation against the budget (a multiple of d), both axes logarithmic."""
    present = {name: panel for name, panel in BUDGET_PANELS.items() if (frame["statistic"] == name).any()}
    if not present:
        return None
    drawing = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    panels = drawing.subplots(1, len(present), squeeze=False, sharey=True)[0]
    for axes, (statistic, (title, squared)) in zip(panels, present.items(), strict=True):
        for entry, style in styles.items():
            line = select_line(frame, statistic, entry)
            line = line[line["mean"] > 0]
            if line.empty:
                continue
            low, middle, high = (line[key].clip(lower=0) ** (0.5 if squared else 1) for key in ("low", "mean", "high"))
            low = low.where(low > 0, middle)
            if "bias" in statistic:  # values below 0 are missing, so points are not joined
                axes.plot(line["x"], middle, style.marker, color=style.colour, markersize=5)
                axes.vlines(line["x"], low, high, color=style.colour, alpha=0.4)
                continue
            axes.plot(line["x"], middle, style.marker, linestyle="-", color=style.colour, markersize=5, label=entry)
            axes.fill_between(line["x"], low, high, color=style.colour, alpha=0.15, linewidth=0)
        axes.set(xscale="log", yscale="log", title=title, xlabel="budget (evaluations / d)")
        ticks = sorted(frame.loc[frame["statistic"] == statistic, "x"].unique())
        axes.set_xticks(ticks, [number(tick) for tick in ticks])
        axes.xaxis.minorticks_off()
    label_log_axis(panels[0].yaxis)
    panels[0].set_ylabel(unit)
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return drawing
