"""Axioms of influence, with a counter-example for each that fails."""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline import influence
from shapeline.influence import axioms
from shapeline.report.colours import FOR, INK, MIDDLE, PAPER, QUIET, SECOND
from shapeline.report.elements import HTML, figure, heading, join_parts, note, table
from shapeline.report.formatting import number
from shapeline.report.styling import NARROW, styled

MEASURES = {
    "mim, α = 1": functools.partial(influence.mim, alpha="constant"),
    "mim, gaussian": functools.partial(influence.mim, alpha="gaussian"),
    "mim, 1/r": functools.partial(influence.mim, alpha="inverse"),
    "mim, 1/r²": functools.partial(influence.mim, alpha="inverse_square"),
    "parzen, σ = 1": functools.partial(influence.parzen, sigma=1.0),
    "data_lime, ρ = 2": functools.partial(influence.data_lime, rho=2.0),
}


def verdicts(measures: Mapping[str, Callable] = MEASURES, tries: int = 60) -> dict[str, list[axioms.Verdict]]:
    """The six verdicts of every measure (METHODS §7), by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on tiny data sets every measure has something to say
        return {name: axioms.check(measure, tries) for name, measure in measures.items()}


def axiom_table(by_measure: Mapping[str, Sequence[axioms.Verdict]]) -> pd.DataFrame:
    """A row an axiom, a column a measure: passes, or fails; text."""
    first = next(iter(by_measure.values()))
    return pd.DataFrame(
        {
            "axiom": f"{verdict.number} {_format_name(verdict)}",
            "requirement": verdict.statement,
            **{name: "passes" if row[index].passed else "⚠ fails" for name, row in by_measure.items()},
        }
        for index, verdict in enumerate(first)
    )


def axioms_section(
    by_measure: Mapping[str, Sequence[axioms.Verdict]], measures: Mapping[str, Callable] = MEASURES
) -> HTML:
    """The table of axioms and every counter-example drawn; `measures` tells which of them have a potential."""
    drawn = [(FIGURE_1, figure_1(), 0.3)]
    for name, row in by_measure.items():
        sigma = getattr(measures.get(name), "keywords", {}).get("sigma")
        drawn += [(f"{name}: {_format_name(verdict)}", verdict, sigma) for verdict in row if not verdict.passed]
    parts = "".join(
        f"<div>{heading(title).data}"
        f"{figure(counter_example(verdict, sigma), title, counter_sentence(verdict)).data}</div>"
        for title, verdict, sigma in drawn
    )
    tried = max(verdict.tried for row in by_measure.values() for verdict in row)
    passed = f"Passes: none of {number(tried)} small data sets violates the axiom. Fails: a counter-example follows."
    return join_parts(
        HTML(f'<div class="axioms">{table(axiom_table(by_measure), text=["requirement"]).data}</div>'),
        note(passed),
        heading("Counter-examples"),
        note(COUNTER_READING),
        HTML(f'<div class="examples">{parts}</div>'),
    )


COUNTER_READING = (
    "The point of interest is ringed: filled circles have its label, hollow squares the other, question marks either; "
    "added points are orange. Arrow and number: the influence, on one scale in both panels; dashed: the influence that "
    "the axiom requires. For Parzen the curve is the share of the point's label, whose slope is the influence."
)
FIGURE_1 = "parzen, as in figure 1: monotonicity"


def _format_name(verdict: axioms.Verdict) -> str:
    return verdict.axiom.replace("_", "-")


def figure_1() -> axioms.Verdict:
    """Parzen's failure as the paper draws it: two points of x's label beside x make the potential flat there."""
    X = np.array([0.9, 1.5, 1.8, 2.0, 0.0, 0.2, 0.4, 1.05, 1.15])[:, None]
    labels = np.array([1, 1, 1, 1, -1, -1, -1, 1, 1])
    both = [axioms.Labelled(X[:m], labels[:m], influence.parzen(X[:1], X[:m], labels[:m], 0.3)[0]) for m in (7, len(X))]
    change = "rows 1.05 and 1.15 added with x's label, above x in feature 0"
    example = axioms.CounterExample(*both, change, both[0].influence, 0)
    return axioms.Verdict(5, "monotonicity", axioms.AXIOMS["monotonicity"][0], 1, example)


def counter_sentence(verdict: axioms.Verdict) -> str:
    """What breaks the axiom, in words and numbers."""
    example = verdict.counter_example
    before, after, expected = (
        _vector(values) for values in (example.before.influence, example.after.influence, example.expected)
    )
    change = example.change[0].upper() + example.change[1:]
    if verdict.axiom == "non_bias":
        return f"{change}: {after}; the axiom requires {expected}. Left: largest influence, {before}."
    if verdict.axiom == "monotonicity":
        rises = example.expected[example.feature] > example.after.influence[example.feature]
        bound = number(example.expected[example.feature], whole=False)
        expected = f"{'at least' if rises else 'at most'} {bound}"
    return f"{change}: influence {before} before and {after} after; the axiom requires {expected}."


def _vector(values: np.ndarray) -> str:
    texts = [number(value, whole=False) for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


@styled
def counter_example(verdict: axioms.Verdict, sigma: float | None = None) -> Figure:
    """Draw a counter-example's data before and after, with the influence as an arrow."""
    example = verdict.counter_example
    mean = verdict.axiom == "non_bias"
    plane = example.before.X.shape[1] > 1
    drawing = Figure(figsize=(NARROW, 2.9 if plane else 2.3), layout="constrained")
    panels = drawing.subplots(1, 2, sharex=not plane, sharey=not plane)
    every = np.concatenate([example.before.influence, example.after.influence, example.expected])
    largest = np.abs(every[np.isfinite(every)]).max(initial=0) or 1.0
    both = np.concatenate([example.before.X, example.after.X])
    low, high = both.min(axis=0), both.max(axis=0)
    margin = 0.6 * ((high - low).max() or 2.0)  # beside the outermost points; the longest arrow is a little shorter
    titles = ("one labelling", "mean of all") if mean else ("before", "after")
    for axes, data, title, expected in zip(
        panels, (example.before, example.after), titles, (None, example.expected), strict=True
    ):
        axes.set_title(f"{title}: {_vector(data.influence)}", fontsize=9.5)
        random = mean and expected is not None
        axes.set(xlim=(low[0] - margin, high[0] + margin), xlabel="feature 0")
        if plane:
            axes.set(ylim=(low[1] - margin, high[1] + margin), ylabel="feature 1")
            _dots(axes, *data.X.T, data.labels, len(example.before.X), random)
            _plane(axes, data, expected, 0.9 * margin / largest)
        else:
            heights = np.where(data.labels == data.labels[0], 1.0, 0.0)
            heights[1:] = 0.5 if random else heights[1:]
            _dots(axes, data.X[:, 0], heights, data.labels, len(example.before.X), random)
            _line(axes, data, expected, 0.9 * margin / largest, None if random else sigma)
    return drawing


def potential(X: np.ndarray, labels: np.ndarray, sigma: float, at: np.ndarray) -> np.ndarray:
    """Parzen's share of row 0's label at positions (k,) of one feature; X (m, 1), labels (m,)."""
    distance = (at[:, None] - X[:, 0]) ** 2 / (2 * sigma**2)
    weights = np.exp(distance.min(axis=1, keepdims=True) - distance)
    return weights @ (labels == labels[0]) / weights.sum(axis=1)


def _line(axes: Axes, data: axioms.Labelled, expected, scale: float, sigma: float | None) -> None:
    """One feature across; scale: of the arrows, which without a potential lie along the feature."""
    x = data.X[:1, 0]
    axes.set_ylim(-0.35, 1.6)
    axes.set_yticks([0, 1], ["other", "own"])
    arrows = [(value[0], dashed) for value, dashed in ((expected, True), (data.influence, False)) if value is not None]
    if sigma is None:
        for value, dashed in arrows:
            beside = 0.12 * dashed  # else one would lie on the other
            _arrow(axes, (x[0], 1 + beside), (scale * value, 0.0), dashed)
        return
    start, end = axes.get_xlim()
    at = np.linspace(start, end, 200)
    axes.plot(at, potential(data.X, data.labels, sigma, at), color=MIDDLE, linewidth=1.3, zorder=1)
    height = potential(data.X, data.labels, sigma, x)[0]
    for value, dashed in arrows:
        across = min(0.85 * (end - x[0]), 0.5 / max(abs(value), 1e-9))  # a tip outside would hide the arrow
        _arrow(axes, (x[0], height), (across, across * value), dashed)


def _plane(axes: Axes, data: axioms.Labelled, expected, scale: float) -> None:
    axes.set_aspect("equal")
    for value, dashed in ((expected, True), (data.influence, False)):
        if value is not None:
            _arrow(axes, data.X[0], scale * value, dashed)


def _dots(axes: Axes, across: np.ndarray, up: np.ndarray, labels: np.ndarray, known: int, random: bool) -> None:
    """Every point by its label; those from `known` on are new, and of `random` labels only the first is certain."""
    axes.plot(across[:1], up[:1], "o", markersize=17, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.2)
    for index, (x, y) in enumerate(zip(across, up, strict=True)):
        colour = INK if index < known else SECOND
        if random and index:
            axes.plot(x, y, marker="$?$", color=QUIET, markersize=9)
        elif labels[index] == labels[0]:
            axes.plot(x, y, "o", color=colour, markersize=7)
        else:
            axes.plot(x, y, "s", markerfacecolor=PAPER, markeredgecolor=colour, markeredgewidth=1.5, markersize=7.5)
    indices, counts = np.unique(np.column_stack([across, up]), axis=0, return_counts=True)
    for index, count in zip(indices, counts, strict=True):
        if count > 1 and not random:
            axes.annotate(f"×{count}", index, xytext=(11, -10), textcoords="offset points", fontsize=8.5, color=INK)


def _arrow(axes: Axes, start: Sequence[float], change: Sequence[float], dashed: bool) -> None:
    if not (np.isfinite(change).all() and np.abs(change).max() > 0.005 * np.ptp(axes.get_xlim())):
        return  # too short to show, or not a number
    colour = QUIET if dashed else FOR
    shape = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.4 if dashed else 2.2, "shrinkA": 0, "shrinkB": 0}
    shape |= {"linestyle": (0, (3, 2)) if dashed else "-", "mutation_scale": 12}
    axes.annotate("", np.add(start, change), xytext=start, arrowprops=shape, zorder=4 if dashed else 5)
