"""The axioms of influence and the theorems of hierarchical Shapley values in reports.

Axioms (Sliwinski et al. 2019) come with a counter-example for each that fails. Theorems (Teneggi et al. 2021): visited
nodes (3.2), similarity (3.4).
"""

import functools
import html
import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline import influence
from shapeline.datasets.registry import is_published
from shapeline.influence import axioms
from shapeline.metrics.ground_truth import find_leaf_edges
from shapeline.report import experiment
from shapeline.report.colours import EXACT, FIRST, FOR, INK, MIDDLE, PAPER, QUIET, SECOND
from shapeline.report.elements import (
    HTML,
    NARROW,
    WIDTH,
    Style,
    assign_styles,
    figure,
    heading,
    join_parts,
    label_log_axis,
    note,
    styled,
    table,
)
from shapeline.report.experiment import Results
from shapeline.report.figures.localization import parameters, read_details, select_method
from shapeline.report.formatting import number, share, two_digits
from shapeline.report.sections.localization import is_quadrant_h_shap
from shapeline.theory import visited_nodes

MEASURES = {
    "mim, α = 1": functools.partial(influence.mim, alpha="constant"),
    "mim, gaussian": functools.partial(influence.mim, alpha="gaussian"),
    "mim, 1/r": functools.partial(influence.mim, alpha="inverse"),
    "mim, 1/r²": functools.partial(influence.mim, alpha="inverse_square"),
    "parzen, σ = 1": functools.partial(influence.parzen, sigma=1.0),
    "data_lime, ρ = 2": functools.partial(influence.data_lime, rho=2.0),
}
MAX_RUNS, MAX_LEAVES = 400, 400_000  # simulated runs per point of theorem 3.2, and leaves over all its runs


def verdicts(measures: Mapping[str, Callable] = MEASURES, tries: int = 60) -> dict[str, list[axioms.Verdict]]:
    """Return the six verdicts of every measure, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small data sets cause warnings of every measure
        return {name: axioms.check(measure, tries) for name, measure in measures.items()}


def axiom_table(by_measure: Mapping[str, Sequence[axioms.Verdict]]) -> pd.DataFrame:
    """Return a row per axiom and a column per measure: passes or fails, as text."""
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
    """Return the table of axioms and figures of all counter-examples; measures: those with sigma have a potential."""
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
    """Return Parzen's failure in the paper's figure: two points of x's label near x make the potential flat there."""
    X = np.array([0.9, 1.5, 1.8, 2.0, 0.0, 0.2, 0.4, 1.05, 1.15])[:, None]
    labels = np.array([1, 1, 1, 1, -1, -1, -1, 1, 1])
    both = [axioms.Labelled(X[:m], labels[:m], influence.parzen(X[:1], X[:m], labels[:m], 0.3)[0]) for m in (7, len(X))]
    change = "rows 1.05 and 1.15 added with x's label, above x in feature 0"
    example = axioms.CounterExample(*both, change, both[0].influence, 0)
    return axioms.Verdict(5, "monotonicity", axioms.AXIOMS["monotonicity"][0], 1, example)


def counter_sentence(verdict: axioms.Verdict) -> str:
    """Return the violation of the axiom as a sentence."""
    example = verdict.counter_example
    before, after, expected = (
        _format_vector(values) for values in (example.before.influence, example.after.influence, example.expected)
    )
    change = example.change[0].upper() + example.change[1:]
    if verdict.axiom == "non_bias":
        return f"{change}: {after}; the axiom requires {expected}. Left: largest influence, {before}."
    if verdict.axiom == "monotonicity":
        rises = example.expected[example.feature] > example.after.influence[example.feature]
        bound = number(example.expected[example.feature], whole=False)
        expected = f"{'at least' if rises else 'at most'} {bound}"
    return f"{change}: influence {before} before and {after} after; the axiom requires {expected}."


def _format_vector(values: np.ndarray) -> str:
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
    margin = 0.6 * ((high - low).max() or 2.0)  # around the outermost points, slightly more than the longest arrow
    titles = ("one labelling", "mean of all") if mean else ("before", "after")
    for axes, data, title, expected in zip(
        panels, (example.before, example.after), titles, (None, example.expected), strict=True
    ):
        axes.set_title(f"{title}: {_format_vector(data.influence)}", fontsize=9.5)
        random = mean and expected is not None
        axes.set(xlim=(low[0] - margin, high[0] + margin), xlabel="feature 0")
        if plane:
            axes.set(ylim=(low[1] - margin, high[1] + margin), ylabel="feature 1")
            _draw_dots(axes, *data.X.T, data.labels, len(example.before.X), random)
            axes.set_aspect("equal")
            for value, dashed in ((expected, True), (data.influence, False)):
                if value is not None:
                    _draw_arrow(axes, data.X[0], 0.9 * margin / largest * value, dashed)
        else:
            heights = np.where(data.labels == data.labels[0], 1.0, 0.0)
            heights[1:] = 0.5 if random else heights[1:]
            _draw_dots(axes, data.X[:, 0], heights, data.labels, len(example.before.X), random)
            _draw_line(axes, data, expected, 0.9 * margin / largest, None if random else sigma)
    return drawing


def potential(X: np.ndarray, labels: np.ndarray, sigma: float, at: np.ndarray) -> np.ndarray:
    """Return Parzen's share of row 0's label at positions (k,) of one feature; X (m, 1), labels (m,)."""
    distance = (at[:, None] - X[:, 0]) ** 2 / (2 * sigma**2)
    weights = np.exp(distance.min(axis=1, keepdims=True) - distance)
    return weights @ (labels == labels[0]) / weights.sum(axis=1)


def _draw_line(axes: Axes, data: axioms.Labelled, expected, scale: float, sigma: float | None) -> None:
    """Draw one feature on x; scale: of the arrows, which without a potential lie along the feature."""
    x = data.X[:1, 0]
    axes.set_ylim(-0.35, 1.6)
    axes.set_yticks([0, 1], ["other", "own"])
    arrows = [(value[0], dashed) for value, dashed in ((expected, True), (data.influence, False)) if value is not None]
    if sigma is None:
        for value, dashed in arrows:
            beside = 0.12 * dashed  # shifted, so that the lines do not coincide
            _draw_arrow(axes, (x[0], 1 + beside), (scale * value, 0.0), dashed)
        return
    start, end = axes.get_xlim()
    at = np.linspace(start, end, 200)
    axes.plot(at, potential(data.X, data.labels, sigma, at), color=MIDDLE, linewidth=1.3, zorder=1)
    height = potential(data.X, data.labels, sigma, x)[0]
    for value, dashed in arrows:
        across = min(0.85 * (end - x[0]), 0.5 / max(abs(value), 1e-9))  # the tip must be within the axes
        _draw_arrow(axes, (x[0], height), (across, across * value), dashed)


def _draw_dots(axes: Axes, across: np.ndarray, up: np.ndarray, labels: np.ndarray, known: int, random: bool) -> None:
    """Draw every point by its label; points from `known` on are new; with random labels only the first is certain."""
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


def _draw_arrow(axes: Axes, start: Sequence[float], change: Sequence[float], dashed: bool) -> None:
    if not (np.isfinite(change).all() and np.abs(change).max() > 0.005 * np.ptp(axes.get_xlim())):
        return  # too short to be visible, or not finite
    colour = QUIET if dashed else FOR
    shape = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.4 if dashed else 2.2, "shrinkA": 0, "shrinkB": 0}
    shape |= {"linestyle": (0, (3, 2)) if dashed else "-", "mutation_scale": 12}
    axes.annotate("", np.add(start, change), xytext=start, arrowprops=shape, zorder=4 if dashed else 5)


def or_visits(truth: np.ndarray, min_size: int) -> np.ndarray:
    """Return the nodes that h-Shap visits where the game is an OR over the true pixels (theorem 3.2), (n,)."""
    sides = [np.array([0, side]) for side in truth.shape[1:]]
    visited = np.ones(len(truth), np.int64)
    while True:
        new, fresh = [], []
        for edges in sides:
            cut = np.diff(edges) // 2 >= min_size
            halves = np.sort(np.concatenate([edges, (edges[:-1] + edges[1:])[cut] // 2]))
            new.append(halves)
            fresh.append(np.isin(halves[:-1], np.concatenate([edges[:-1][cut], (edges[:-1] + edges[1:])[cut] // 2])))
        rows, columns = fresh
        if not rows.any() and not columns.any():
            return visited
        sides = new
        held = np.logical_or.reduceat(np.logical_or.reduceat(truth, sides[0][:-1], axis=1), sides[1][:-1], axis=2)
        visited += (held & (rows[:, None] | columns)).sum(axis=(1, 2))


def leaf_shares(truth: np.ndarray, min_size: int) -> tuple[np.ndarray, int]:
    """Return the share of leaves with a true pixel, (n,), and the number of leaves."""
    rows, columns = (find_leaf_edges(side, min_size)[:-1] for side in truth.shape[1:])
    held = np.logical_or.reduceat(np.logical_or.reduceat(truth, rows, axis=1), columns, axis=2)
    return held.mean(axis=(1, 2)), len(rows) * len(columns)


def list_plain_entries(results: Results) -> list[str]:
    """Return the h-Shap entries to which the theorems apply: quadrants of pixels, absolute threshold 0."""
    return [
        entry
        for entry in select_method(results, "h_shap")
        if is_quadrant_h_shap(results, entry)
        and parameters(results, entry).get("mode", "absolute") == "absolute"
        and parameters(results, entry).get("threshold", 0.0) == 0
    ]


def visits_section(results: Results, truth: np.ndarray | None) -> HTML:
    """Return theorem 3.2 against simulation and against the nodes visited on the trained model (figure 1)."""
    plain = list_plain_entries(results)
    entries = [entry for entry in plain if len(read_details(results.scores[entry], "visited_nodes"))]
    if not entries or truth is None or not truth.any():
        return note("Not available: needs h_shap with an absolute threshold of 0, and images with a true region.")
    having = truth.any(axis=(1, 2))
    rows, panels = [], []
    for entry in entries:
        size = parameters(results, entry).get("min_size", 1)
        visited = read_details(results.scores[entry], "visited_nodes").reindex(results.instances["instance"]).to_numpy()
        rho, leaves = leaf_shares(truth, size)
        ideal = or_visits(truth, size)
        valid = having & np.isfinite(visited)
        n = 4 ** max(1, round(math.log(leaves, 4)))
        expected = np.mean([visited_nodes.expected_visited_nodes(n, 4, density) for density in rho[valid]])
        panels.append((entry, n, rho[valid], visited[valid], ideal[valid]))
        rows.append(
            {
                "method": entry,
                "leaves": number(leaves),
                "theorem 3.2 at each ρ": number(float(expected), whole=False),
                "an OR over the true pixels": number(float(ideal[valid].mean()), whole=False),
                "the trained model": number(float(visited[valid].mean()), whole=False),
                "model / OR": two_digits(float(visited[valid].mean() / ideal[valid].mean())),
            }
        )
    return join_parts(
        figure(
            visits(panels[:3]),
            "Nodes visited against the share of leaves with a true pixel: theorem, simulation and the trained model",
            "Curve: theorem 3.2 for n leaves, each true independently with probability ρ. Squares: simulated OR "
            "games. Dots: images explained, ρ their share of leaves with a true pixel; filled: the trained model, "
            "hollow: an OR over the true pixels of the same image.",
            numbers=pd.concat(
                pd.DataFrame({"method": entry, "leaves": n, "rho": rho, "visited": visited, "visited_or": ideal})
                for entry, n, rho, visited, ideal in panels[:3]
            ),
        ),
        table(pd.DataFrame(rows), "Mean nodes visited"),
        note(
            "The theorem needs a power of 4 leaves; n is the nearest. True pixels are adjacent, so an OR over them "
            "visits fewer nodes than the theorem expects at that ρ. The model visits more nodes than the OR where "
            "other pixels are relevant to it, and fewer where it needs larger leaves to detect an object."
        ),
        theory_link(results, "The theorem against simulated games"),
    )


@styled
def visits(panels: Sequence[tuple[str, int, np.ndarray, np.ndarray, np.ndarray]]) -> Figure:
    """Draw a panel per method: (method, n, rho, visited with the model and with an OR), the last three (images,)."""
    drawing = Figure(figsize=(WIDTH, 3.7), layout="constrained")
    for axes, (entry, n, rho, visited, ideal) in zip(
        drawing.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        low, high = min(rho.min() / 2, 0.5), min(1.0, 4 * rho.max())
        fine = np.geomspace(max(low, 0.2 / n), high, 80)
        expected = [visited_nodes.expected_visited_nodes(n, 4, float(density)) for density in fine]
        axes.plot(fine, expected, color=INK, label="theorem 3.2")
        points, count = np.geomspace(fine[0], fine[-1], 6), max(20, min(MAX_RUNS, MAX_LEAVES // n))
        runs = [visited_nodes.simulate_visits(n, 4, float(density), count).nodes for density in points]
        means, error = zip(
            *((nodes.mean(), 1.96 * nodes.std(ddof=1) / len(nodes) ** 0.5) for nodes in runs), strict=True
        )
        axes.errorbar(points, means, error, fmt="s", color=QUIET, markersize=4.5, label="simulated OR games")
        axes.plot(rho, visited, "o", color=FIRST, alpha=0.45, markersize=4, label="the trained model")
        hollow = {"color": SECOND, "markerfacecolor": "none", "alpha": 0.6, "markersize": 4}
        axes.plot(rho, ideal, "o", label="OR over true pixels", **hollow)
        axes.set(
            xscale="log", yscale="log", title=f"{entry}, n = {number(n)}",
            xlabel="ρ, share of leaves with a true pixel", ylabel="nodes visited",
        )  # fmt: skip
        label_log_axis(axes.yaxis)
        axes.legend(fontsize=8)
    return drawing


def theory_link(results: Results, what: str) -> HTML | None:
    """Return a link to the theorem's check without a model; None where all data are the user's, without that page."""
    if not is_published(results.dataset_card.get("source")):
        return None
    return HTML(f'<p class="note">{html.escape(what)}: <a href="theory.html">the theory page</a>.</p>')


def cosines_section(results: Results, truth: np.ndarray | None) -> HTML:
    """Return theorem 3.4: bound against cosine of h-Shap's map to the Shapley map of an OR over true pixels."""
    entries = [entry for entry in select_method(results, "h_shap") if is_quadrant_h_shap(results, entry)]
    if not entries or truth is None or not truth.any():
        return note("Not available: needs h_shap on pixels, and images with a true region.")
    rows, shown = [], {}
    for entry in entries:
        frame = cosines(results, truth, entry)
        if frame.empty:
            continue
        shown[entry] = frame
        largest = _count_largest_leaf(truth.shape[1:], parameters(results, entry).get("min_size", 1))
        rows.append(
            {
                "method": entry,
                "largest leaf (cells)": number(largest),
                "bound": two_digits(frame["bound"].mean()),
                "trained model": two_digits(frame["cosine"].mean()),
                "at or above the bound": share((frame["cosine"] >= frame["bound"] - 1e-9).mean()),
                "leaves that touch": two_digits(frame["ideal"].mean()),
                "of them above": share((frame["ideal"] >= frame["bound"] - 1e-9).mean()),
            }
        )
    return join_parts(
        figure(
            cosine_strips(shown, assign_styles(results)),
            "Cosine with the Shapley map of the true pixels, one column per method, and the bound of theorem 3.4",
            "One dot per image: cosine between the map and the Shapley map of an OR over the true pixels (eq. 8). "
            "Hollow: h-Shap of that OR, a constant map over the leaves that touch a true pixel. Bar: the bound "
            "max(1/√a, √(k/n)) for a cells in the largest leaf and k true of n pixels.",
            numbers=pd.concat(frame.assign(method=entry) for entry, frame in shown.items()) if shown else None,
        ),
        table(pd.DataFrame(rows)),
        note(
            "The bound holds for an OR over pixels, so hollow dots never lie below it. A trained model needs several "
            "pixels to detect an object, so its dots may lie below. Exact Shapley values of the model are not "
            "computable at this d."
        ),
        theory_link(results, "The bound against games whose Shapley values are known"),
    )


def cosines(results: Results, truth: np.ndarray, entry: str) -> pd.DataFrame:
    """Return cosine of the method's map with true pixels, ideal and bound, a row per image that has a true region."""
    size = parameters(results, entry).get("min_size", 1)
    largest = _count_largest_leaf(truth.shape[1:], size)
    maps = experiment.select_scores(results.scores[entry], results.instances["instance"])
    down, across = (find_leaf_edges(side, size) for side in truth.shape[1:])
    area = np.outer(np.diff(down), np.diff(across))
    rows = []
    for scores, wanted in zip(maps, truth, strict=True):
        total = int(wanted.sum())
        if scores is None or not total:
            continue
        length = float(np.linalg.norm(scores))
        held = np.logical_or.reduceat(np.logical_or.reduceat(wanted, down[:-1], axis=0), across[:-1], axis=1)
        rows.append(
            {
                "cosine": float(scores @ wanted.ravel()) / (length * total**0.5) if length else 0.0,
                "ideal": total / (area[held].sum() ** 0.5 * total**0.5),
                "bound": visited_nodes.similarity_lower_bound(wanted.size, largest, total),
            }
        )
    return pd.DataFrame(rows)


def _count_largest_leaf(shape: tuple[int, int], min_size: int) -> int:
    """Return the number of cells of the largest leaf of an image."""
    return int(np.prod([np.diff(find_leaf_edges(side, min_size)).max() for side in shape]))


@styled
def cosine_strips(by_entry: Mapping[str, pd.DataFrame], styles: Mapping[str, Style]) -> Figure | None:
    """Draw a column of dots per method, shifted sideways by a fixed pattern against overlap."""
    if not by_entry:
        return None
    drawing = Figure(figsize=(min(WIDTH, 2.2 + 1.5 * len(by_entry)), 3.6), layout="constrained")
    axes = drawing.subplots()
    for index, (entry, frame) in enumerate(by_entry.items()):
        aside = 0.2 * (np.arange(len(frame)) * 0.618 % 1 - 0.5)
        axes.plot(index - 0.15 + aside, frame["cosine"], "o", color=styles[entry].colour, alpha=0.5, markersize=4)
        hollow = {"color": QUIET, "markerfacecolor": "none", "alpha": 0.6, "markersize": 4}
        axes.plot(index + 0.15 + aside, frame["ideal"], "o", **hollow)
        axes.plot([index - 0.36, index + 0.36], [frame["bound"].mean()] * 2, color=EXACT, linewidth=1.8)
    axes.set_xticks(range(len(by_entry)), list(by_entry))
    axes.set(ylabel="cosine", ylim=(-0.02, 1.02), xlim=(-0.6, len(by_entry) - 0.4))
    return drawing
