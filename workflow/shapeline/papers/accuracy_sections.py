"""Sections of the accuracy page: errors of Shapley estimators on games with known values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline import scores
from shapeline.report.colours import INK
from shapeline.report.elements import HTML, WIDTH, Style, figure, join_parts, note, styled, styles, table
from shapeline.report.formatting import number, two_digit_interval
from shapeline.report.sections.common import top
from shapeline.statistics import accuracy
from shapeline.statistics.accuracy import BASE, ESTIMATORS, Game, Terms, read

COLUMNS = 5


@styled
def ratios(means: pd.DataFrame, styles: Mapping[str, Style]) -> Figure:
    """Draw geometric means over games of the error's ratio to kernel_shap's against the budget, with intervals."""
    drawing = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = drawing.subplots()
    for index, (name, style) in enumerate(styles.items()):
        line = means[means["estimator"] == name].sort_values("times")
        across = line["times"] * 1.025 ** (index - len(styles) / 2)  # bars side by side
        axes.vlines(across, line["low"], line["high"], color=style.colour, alpha=0.6, linewidth=1.4)
        look = {"linestyle": style.line, "color": style.colour, "markersize": 5.5}
        axes.plot(across, line["ratio"], style.marker, label=name, **look)
    axes.set(yscale="log", ylabel="error over kernel_shap's, lower is better")
    _label_budgets(axes, means)
    low, high = axes.get_ylim()
    ticks = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
    axes.set_yticks(ticks := [tick for tick in ticks if low <= tick <= high], map(str, ticks))
    drawing.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return drawing


@styled
def errors(measured: pd.DataFrame, styles: Mapping[str, Style]) -> Figure:
    """Draw root mean square error against the budget, a panel per game."""
    games = list(measured["game"].unique())
    columns = min(COLUMNS, len(games))
    rows = math.ceil(len(games) / columns)
    drawing = Figure(figsize=(WIDTH, 1.1 + 2.1 * rows), layout="constrained")
    panels = drawing.subplots(rows, columns, squeeze=False)
    for axes, game in zip(panels.flat, games, strict=False):
        of_game = measured[measured["game"] == game]
        for name, style in styles.items():
            line = of_game[of_game["estimator"] == name].sort_values("times")
            look = {"linestyle": style.line, "color": style.colour, "markersize": 3.5, "linewidth": 1.2}
            axes.plot(line["times"], line["rmse"], style.marker, label=name, **look)
        axes.set(yscale="log")
        axes.set_title(game, fontsize=8.5)
        _label_budgets(axes, of_game, "")
    for axes in panels.flat[len(games) :]:
        axes.set_visible(False)
    drawing.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    drawing.supxlabel("evaluations / d", fontsize=9.5, color=INK)
    drawing.supylabel("RMSE", fontsize=9.5, color=INK)
    return drawing


def _label_budgets(axes: Axes, frame: pd.DataFrame, label: str = "evaluations / d") -> None:
    times = sorted(frame["times"].unique())
    axes.set(xscale="log", xlabel=label)
    axes.set_xticks(times, [number(one) for one in times])
    axes.minorticks_off()


GP = "gp_shapley"
TIMED = [BASE, GP, "gp_shapley, fixed", "leverage_shap", "sample_shapley"]


@dataclass(frozen=True, eq=False)
class Accuracy:
    """The games and the measurements on them (`statistics.accuracy.measure`)."""

    games: list[Game]
    repeats: int
    measured: pd.DataFrame

    @cached_property
    def means(self) -> pd.DataFrame:
        return accuracy.average_over_games(self.measured)

    @cached_property
    def styles(self) -> dict[str, Style]:
        return styles({name: {"is_control": name == BASE} for name in ESTIMATORS})


def load(measured: str) -> Accuracy:
    """Return the measurements in a file of errors on the stored games."""
    return Accuracy(read(), scores.metadata(measured)["repeats"], scores.read_table(measured))


def header(found: Accuracy) -> HTML:
    """Return title, recommended estimators and key figures."""
    explained = sum(len(game.exact) for game in found.games)
    facts = {
        "games": len(found.games),
        "instances": explained,
        "estimators": len(ESTIMATORS),
        "sample each" if found.repeats == 1 else "samples each": found.repeats,
        "features (d)": f"{min(game.d for game in found.games)} to {max(game.d for game in found.games)}",
    }
    return top("Accuracy: estimators of Shapley values at equal budgets", _list_answers(found), (), facts)


def _list_answers(found: Accuracy) -> list[tuple[str, str]]:
    """Return per budget the estimator with the smallest mean error, and the cost per evaluation from which it leads."""
    verdicts = []
    for times, rows in found.means.groupby("times"):
        ranked = rows.set_index("estimator").sort_values("ratio")
        name, best = ranked.index[0], ranked.iloc[0]
        if name == BASE:
            verdicts.append((f"At {number(times)} d evaluations: {BASE}.", "No estimator has a smaller mean error."))
            continue
        size = f"Its error is {_format_ratio(best)} times that of {BASE} over {number(best['games'])} games"
        sure = "" if best["high"] < 1 else " (not significant)"
        verdicts.append(
            (f"At {number(times)} d evaluations: {name}.", f"{size}{sure}; {_describe_lead(found, name, times)}.")
        )
    return verdicts


def _format_ratio(row) -> str:
    return two_digit_interval({"mean": row["ratio"], "low": row["low"], "high": row["high"]})


def _describe_lead(found: Accuracy, name: str, times: float) -> str:
    """Return the seconds per evaluation from which the estimator leads, in the median game."""
    seconds = accuracy.find_break_even(found.measured, name).xs(times, level="times")
    behind = int(seconds.isna().sum())
    less = f"; in {behind} of {len(seconds)} games its error is not smaller" if behind else ""
    middle = seconds.median()
    if not middle > 0:
        return f"it is also better at equal time for any model{less}"
    least = f"{number(1e6 * middle, 2)} µs (median game)"
    return f"it is also better at equal time if an evaluation takes at least {least}{less}"


def ratio_section(found: Accuracy) -> HTML:
    """Return the ratios over games as a figure and a table."""
    means = found.means
    wide = means.assign(text=[_format_ratio(row) for _, row in means.iterrows()])
    shown = wide.pivot(index="estimator", columns="times", values="text").reindex(list(ESTIMATORS)).fillna("–")
    counts = means[means["estimator"] == BASE].set_index("times")["games"]
    shown.columns = [f"{number(times)} d, {counts[times]} games" for times in shown.columns]
    return join_parts(
        figure(
            ratios(means, found.styles),
            "Error of the estimators divided by that of kernel_shap, over games",
            "Geometric means over games with their 95 % intervals; kernel_shap is 1.",
            numbers=means,
        ),
        table(shown.rename_axis("error / error of kernel_shap").reset_index()),
        note(
            "RMSE over instances, samples and features, divided by that of kernel_shap on the same game and budget, "
            "with intervals over games. A column leaves out estimators that need more evaluations, and games where "
            "nearly all coalitions would be evaluated."
        ),
    )


def game_section(found: Accuracy) -> HTML:
    """Return the error against the budget on each game."""
    columns = ["game", "estimator", "times", "rmse", "ratio", "seconds"]
    return figure(
        errors(found.measured, found.styles),
        "Error of the estimators against the budget, per game",
        "RMSE to the exact values, in the units of the game.",
        numbers=found.measured[columns],
    )


def cost_section(found: Accuracy) -> HTML:
    """Return seconds without the model, and the cost per evaluation from which the Gaussian process leads."""
    measured, times = found.measured, 4
    rows = measured[measured["times"] == times]
    seconds = rows.pivot_table(index=["game", "d"], columns="estimator", values="seconds", sort=False)
    shown = (1e3 * seconds[TIMED]).map(lambda one: number(one, 2)).rename_axis(columns=None).reset_index()
    pays = accuracy.find_break_even(measured, GP).xs(times, level="times").reindex(shown["game"])
    column = f"break-even of {GP}, µs per evaluation"
    shown[column] = ["–" if np.isnan(one) else number(1e6 * one, 2) for one in pays]
    return join_parts(
        table(shown, f"Milliseconds per instance without the model, at {times} d"),
        note(
            "Sampling of coalitions per instance and estimation, on one core. Break-even: from this cost of a model "
            f"evaluation on, {GP} is better than {BASE} at equal time (0: always; –: never). For a cheaper model "
            f"use {BASE} with more evaluations."
        ),
    )


def games_section(found: Accuracy) -> HTML:
    """Return the games and the origin of their exact values."""
    rows = [
        {
            "game": game.name,
            "kind": game.kind,
            "d": number(game.d),
            "instances": len(game.exact),
            "exact values": "a sum of terms" if isinstance(game.stored[0], Terms) else "all coalitions",
        }
        for game in found.games
    ]
    return join_parts(
        table(pd.DataFrame(rows), text=["kind", "exact values"]),
        note(
            "A sum of terms: weights that apply if some features are kept and others masked, as for the leaves of "
            "trees with one background row; their Shapley values have a closed form. The games are in "
            "workflow/shapeline/statistics/games.parquet (columns: docs/formats.md)."
        ),
    )
