"""The figures of the benchmark: share of the model's own rate, ratios to other libraries, growth of cost, prompts.

`python -m benchmarks.figures` draws docs/images/prompt_errors.png from the CSV file beside it, which holds the numbers
of `benchmarks.generation_accuracy --report`.
"""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import seaborn
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from benchmarks.scaling import exponent
from shapeline.report import elements
from shapeline.report.colours import INK, PALETTES
from shapeline.report.elements import STYLE, WIDTH


def near_raw(table: pd.DataFrame) -> Figure:
    """Plot the share of the raw rate that the engine and every method reach on each model, as a map with numbers."""
    rows = table[table["part"].isin(("engine", "method"))]
    shares = rows.pivot(index="what", columns="case", values="times_raw")
    shares = shares.loc[rows["what"].unique(), rows["case"].unique()]
    with matplotlib.rc_context(STYLE):
        size = (3.2 + 1.15 * len(shares.columns), 1.6 + 0.27 * len(shares))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        seaborn.heatmap(
            shares,
            annot=shares.map(lambda share: f"{share:.2g}").where(shares.notna(), ""),
            fmt="",
            cmap="cividis",
            norm=LogNorm(0.01, 10),
            linewidths=1,
            ax=axes,
            cbar_kws={"format": "{x:g}", "extend": "both"},
        )
        axes.set(xlabel="", ylabel="", xticklabels=[case.replace(" ", "\n") for case in shares.columns])
        axes.set_title("Times the raw rate")
        axes.grid(visible=False)
        axes.tick_params(axis="both", length=0)
        axes.tick_params(axis="y", rotation=0)
        return figure


def ahead_of_peers(table: pd.DataFrame) -> Figure:
    """Plot our evaluations per second over those of each peer, one panel per model."""
    rows = table[(table["part"] == "peer") & table["ours_times"].notna()]
    with matplotlib.rc_context(STYLE):
        panels = list(rows.groupby("case", sort=False))
        heights = [len(part) + 1.0 for _, part in panels]
        figure = Figure(figsize=(WIDTH * 0.75, 0.26 * sum(heights) + 0.8), layout="constrained")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        colour = PALETTES["colorblind"][0]
        for axis, (case, part) in zip(axes, panels, strict=True):
            y = np.arange(len(part))[::-1]
            axis.hlines(y, part["ours_times_low"], part["ours_times_high"], color=colour, linewidth=1.8)
            axis.plot(part["ours_times"], y, "o", color=colour, markersize=5, label="ours / peer, 10 to 90 % of turns")
            axis.plot(part["goal"], y, "|", color=INK, markersize=11, markeredgewidth=1.8, label="goal")
            axis.axvline(1, color=INK, linewidth=0.9)
            axis.set(title=case, xscale="log", ylim=(-0.6, len(part) - 0.4), yticks=y, yticklabels=part["what"])
            axis.grid(axis="y", visible=False)
            axis.xaxis.set_major_formatter(lambda number, _: f"{number:g}")
            axis.tick_params(axis="y", length=0)
        axes[-1].set_xlabel("our evaluations a second, times the peer's (log scale)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower right", ncols=2)
        return figure


PANELS = (
    ("d", "total", "All of it, one instance", "features d"),
    ("d", "design", "Making the design and reading it out", "features d"),
    ("instances", "total", "All of it, d = 64", "instances"),
    ("budget", "total", "All of it, d = 64, one instance", "budget (evaluations / d)"),
)


def growth(points: pd.DataFrame) -> Figure:
    """Plot seconds against d, instances and budget, with the exponents of fitted powers in the legends."""
    with matplotlib.rc_context(STYLE):
        panels = [panel for panel in PANELS if panel[0] in set(points["axis"])]
        figure = Figure(figsize=(WIDTH, 4.1 * -(-len(panels) // 2)), layout="constrained")
        axes = figure.subplots(-(-len(panels) // 2), 2, squeeze=False).ravel()
        names = list(points["method"].unique())
        styles = elements.styles({name: {"is_control": name == "occlusion"} for name in names})
        for axis, (over, part, title, label) in zip(axes, panels, strict=False):
            chosen = points[points["axis"] == over]
            for name, rows in chosen.groupby("method", sort=False):
                seconds = rows[part] + rows["read-out"] if part == "design" else rows[part]
                if not seconds.all():  # it makes no design
                    continue
                style = styles[name]
                slope, low, high = exponent(rows["x"], seconds)
                axis.plot(
                    *(rows["x"], seconds),
                    **{"color": style.colour, "marker": style.marker, "linestyle": style.line, "markersize": 5},
                    **{"markerfacecolor": style.face, "linewidth": style.width},
                    label=f"{name}  {slope:.2f} ({low:.2f} to {high:.2f})",
                )
            axis.set(title=title, xlabel=label, ylabel="seconds", xscale="log", yscale="log")
            ticks = sorted(chosen["x"].unique())
            axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.xaxis.set_minor_locator(NullLocator())
            axis.legend(title="exponent (95 % interval)", fontsize=8, title_fontsize=8, loc="upper left")
            low, high = axis.get_ylim()
            axis.set_ylim(low, high * (high / low) ** 0.8)  # room for the legend
        for axis in axes[len(panels) :]:
            axis.remove()
        return figure


def prompt_errors(table: pd.DataFrame) -> Figure:
    """Plot the error of each method against the number of evaluations, one panel per set of prompts."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH * 0.9, 4.2), layout="constrained")
        panels = list(table.groupby("task", sort=False))
        names = list(table["method"].unique())
        styles = elements.styles({name: {"is_control": name in ("leave_one_out", "random")} for name in names})
        for axis, (task, part) in zip(figure.subplots(1, len(panels)), panels, strict=True):
            budgets = sorted(part["evaluations"].dropna().astype(int).unique())
            for name, rows in part.groupby("method", sort=False):
                style, rows = styles[name], rows.set_index("evaluations")
                if rows.index.hasnans:  # a method of fixed cost: the same error at every number of evaluations
                    rows = pd.concat([rows] * len(budgets)).set_axis(budgets)
                axis.plot(
                    *(rows.index, rows["rmse"]),
                    **{"color": style.colour, "marker": style.marker, "linestyle": style.line, "markersize": 5},
                    **{"markerfacecolor": style.face, "linewidth": style.width, "label": name},
                )
                axis.fill_between(rows.index, rows["low"], rows["high"], color=style.colour, alpha=0.15, linewidth=0)
            axis.set(title=task, xlabel="evaluations per prompt", xscale="log", yscale="log")
            axis.set_xticks(budgets, [str(budget) for budget in budgets])
            axis.xaxis.set_minor_locator(NullLocator())
            axis.yaxis.set_major_formatter(lambda number, _: f"{number:g}")
        figure.axes[0].set_ylabel("RMSE to the exact values (nats)")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure


if __name__ == "__main__":
    image = Path("docs/images/prompt_errors.png")
    prompt_errors(pd.read_csv(image.with_suffix(".csv"))).savefig(image, dpi=110)
