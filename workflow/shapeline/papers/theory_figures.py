"""Figures of the theory report, from the measurements of `shapeline.theory`."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from shapeline import graphs
from shapeline.report.colours import AGAINST, FAINT, FOR, INK, PALETTES, PAPER, QUIET
from shapeline.report.elements import SIGNS, WIDTH, styled, write_cells
from shapeline.report.formatting import number
from shapeline.theory import visited_nodes
from shapeline.theory.checks import Checks, measure_linear_share
from shapeline.theory.estimators import KernelProof, Sweep
from shapeline.theory.visited_nodes import Hierarchy

COLOURS = PALETTES["colorblind"]
CORRECTED, PRINTED, SECOND = COLOURS[0], COLOURS[3], COLOURS[2]
HALF = (WIDTH * 96 - 40) / 2 / 96  # inches: one of two columns
DASHED = (0, (5, 2))


def points(checks: Checks, key: str, which: str = "all") -> np.ndarray:
    """Return (bound, error) of every feature and distribution, (m, 2)."""
    sweep = checks.sweep
    runs = [run for order in sweep.chain.values() for run in order] if which != "random" else []
    if which == "predicted":
        runs = [run for order in sweep.predicted.values() for run in order]
    if which in ("all", "random"):
        runs = [*runs, *sweep.random]
    bounds = [4 * run.local if key == "l_shapley" else 6 * run.connected for run in runs]
    return np.column_stack([np.concatenate(bounds), np.concatenate([run.errors[key] for run in runs])])


@styled
def finite_weight(kernel: KernelProof) -> Figure:
    """Draw the error of the scores against the full coalition's finite weight; the constrained design as a line."""
    drawing = Figure(figsize=(HALF, 2.7), layout="constrained")
    axes = drawing.subplots()
    axes.loglog(kernel.end_weights, kernel.end_errors, "o-", color=PRINTED, markersize=4)
    constrained = max(kernel.designs.values())
    axes.axhline(constrained, color=CORRECTED, linestyle=DASHED)
    axes.annotate(
        "as constraints (this package)", (kernel.end_weights[0], constrained), xytext=(0, 5),
        textcoords="offset points", color=CORRECTED, fontsize=9,
    )  # fmt: skip
    axes.set(xlabel="weight on the full coalition", ylabel="largest error")
    return drawing


@styled
def couplings(checks: Checks) -> Figure:
    """Draw errors and bounds against the coupling for both theorems, and the error of every case against its bound."""
    sweep = checks.sweep
    drawing = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    left, middle, right = drawing.subplots(1, 3)
    runs = {order: sweep.chain[order][1:] for order in (1, 2)}
    for axes, order, key, colour, marker, name in (
        (left, 1, "l_shapley", SECOND, "s", "order 1"),
        (left, 2, "l_shapley", CORRECTED, "o", "order 2"),
        (middle, 2, "c_shapley_paper", PRINTED, "X", "eq. 6"),
        (middle, 2, "c_shapley_myerson", CORRECTED, "o", "Myerson weights"),
    ):
        _draw_line(axes, sweep, [run.errors[key] for run in runs[order]], colour, marker, f"error, {name}")
        if axes is left:
            _draw_line(axes, sweep, [4 * run.local for run in runs[order]], colour, None, f"4ε, {name}")
    _draw_line(middle, sweep, [6 * run.connected for run in runs[2]], INK, None, "6ε")
    left.set(title="Theorem 1: L-Shapley", ylabel="nats")
    middle.set(title="Theorem 2: C-Shapley, order 2")
    low = min(axes.get_ylim()[0] for axes in (left, middle))
    for axes in (left, middle):
        axes.set(xlabel="coupling of the chain", ylim=(low, 20))
        axes.legend(loc="lower right", fontsize=8.5, handlelength=3)
    floor = 1e-9
    for key, colour, marker, name in (
        ("c_shapley_paper", PRINTED, "X", "C-Shapley, eq. 6"),
        ("l_shapley", SECOND, "s", "L-Shapley"),
        ("c_shapley_myerson", CORRECTED, "o", "C-Shapley, Myerson"),
    ):
        bound, error = np.maximum(points(checks, key), floor).T
        right.loglog(bound, error, marker, color=colour, markersize=3.5, alpha=0.6, markeredgewidth=0, label=name)
    right.plot([floor, 100], [floor, 100], color=INK, linewidth=1.1)
    right.text(2e-9, 1.2e-8, "error = bound", fontsize=8.5, rotation=39, rotation_mode="anchor")
    right.set(title="Every case", xlabel="bound (nats); 0 is drawn at 10⁻⁹", ylabel="error (nats)")
    right.legend(loc="lower right", fontsize=8.5, handletextpad=0.2)
    return drawing


def _draw_line(axes: Axes, sweep: Sweep, rows: list[np.ndarray], colour: str, marker: str | None, name: str) -> None:
    line = DASHED if marker is None else "-"
    means = [row.mean() for row in rows]
    style = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4.5}
    axes.loglog(sweep.couplings[1:], means, label=name, **style)


# Figure 1: rows and columns, and two sets in the centre's neighbourhood, a disconnected and a connected one.
SIDES, DISCONNECTED, CONNECTED = (5, 5), ((0, 2), (2, 1), (2, 2), (4, 2)), ((1, 2), (2, 1), (2, 2), (1, 1))


@styled
def neighbourhoods() -> Figure:
    """Draw figure 1 of Chen et al. (2018): N_2(i) on a grid, a set that only L-Shapley sums over, and one of both."""
    height, width = SIDES
    centre = height // 2 * width + width // 2
    grid = graphs.grid(height, width)
    window = graphs.neighborhood(grid, centre, 2)
    drawing = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    chosen = [set(), *({row * width + column for row, column in cells} for cells in (DISCONNECTED, CONNECTED))]
    titles = ("(a) the neighbourhood", "(b) in pieces: L-Shapley alone", "(c) connected: both")
    for axes, nodes, title in zip(drawing.subplots(1, 3), chosen, titles, strict=True):
        for row, column in np.ndindex(height, width):
            node = row * width + column
            face = AGAINST if node == centre else FOR if node in nodes else PAPER
            shade = FAINT if node in window else "none"
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=shade, edgecolor="none"))
            for other in grid.adj[node]:
                axes.plot(*zip((column, row), (other % width, other // width), strict=True), color=QUIET, linewidth=1)
            axes.plot(column, row, "o", markersize=11, markerfacecolor=face, markeredgecolor=INK, zorder=3)
        axes.set(xlim=(-0.7, width - 0.3), ylim=(height - 0.3, -0.7), aspect="equal")
        axes.set_title(title, fontsize=10)
        axes.axis("off")
    return drawing


@styled
def shares() -> Figure:
    """Draw C-Shapley with eq. 6 for a linear model, by position: a chain at four orders, a grid at three."""
    drawing = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    chain, *maps = drawing.subplots(1, 4, width_ratios=[1.7, 1, 1, 1])
    for index, order in enumerate((1, 2, 4, 8)):
        share = measure_linear_share(graphs.chain(9), order)
        marker = "osD^"[index]
        chain.plot(range(1, 10), share, marker=marker, color=COLOURS[(3, 1, 4, 5)[index]], markersize=4.5)
        chain.text(9.25, share[-1] + (-0.05, -0.02, 0.0, 0.045)[index], f"order {order}", fontsize=8.5, va="center")
    chain.axhline(1, color=CORRECTED, linestyle=DASHED)
    chain.text(1, 1.025, "Myerson weights, any order", fontsize=8.5, color=CORRECTED)
    chain.set(
        title="eq. 6 on a chain", xlabel="position", ylabel="share of the linear term", ylim=(0, 1.15), xlim=(0.6, 10.7)
    )
    chain.set_xticks(range(1, 10))
    for axes, order in zip(maps, (1, 2, 6), strict=True):
        share = measure_linear_share(graphs.grid(4, 4), order).reshape(4, 4)
        drawn = axes.imshow(np.log(share), cmap=SIGNS, vmin=-np.log(25), vmax=np.log(25))
        texts = {place: number(value, 2, whole=False) for place, value in np.ndenumerate(share)}
        write_cells(axes, drawn, texts, 9)
        axes.set(title=f"eq. 6 on a grid, order {order}", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.grid(False)
    return drawing


@styled
def hierarchy(simulated: Hierarchy) -> Figure:
    """Draw theorem 3.2 against simulation for halves and quadrants, and theorem 3.4 against the lowest cosine."""
    drawing = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    left, right = drawing.subplots(1, 2)
    for gamma, colour, marker in ((2, CORRECTED, "o"), (4, SECOND, "s")):
        rho, mean, error = np.array([row[1:2] + row[3:] for row in simulated.visits if row[0] == gamma]).T
        fine = np.geomspace(rho.min(), rho.max(), 80)
        expected = [visited_nodes.expected_visited_nodes(simulated.n, gamma, value) for value in fine]
        left.plot(fine, expected, color=colour)
        left.errorbar(rho, mean, 1.96 * error, fmt=marker, color=colour, markersize=5)
        parts, (right_by, above) = {2: ("halves", (-66, 14)), 4: ("quadrants", (8, -14))}[gamma]
        left.annotate(
            f"γ = {gamma} ({parts})", (rho[-3], mean[-3]), xytext=(right_by, above), textcoords="offset points",
            color=colour, fontsize=9, va="center",
        )  # fmt: skip
    left.set(
        title=f"Theorem 3.2: visited nodes, n = {simulated.n}",
        xlabel="ρ, probability that a cell is important",
        ylabel="nodes visited",
        xscale="log",
    )
    cells = np.arange(1, simulated.cells + 1)
    for index, s in enumerate(sorted({row[0] for row in simulated.similarity})):
        k, bound, lowest = np.array([row[1:4] for row in simulated.similarity if row[0] == s]).T
        bounds = [visited_nodes.similarity_lower_bound(simulated.cells, s, int(value)) for value in cells]
        right.plot(cells, bounds, color=COLOURS[index])
        right.plot(k, lowest, "osD^"[index], color=COLOURS[index], markersize=4.5)
        right.annotate(
            f"leaf of {s} cell{'s' if s > 1 else ''}", (1, bound[0]), xytext=(4, 5), textcoords="offset points",
            fontsize=8.5, color=COLOURS[index],
        )  # fmt: skip
    right.set(
        title=f"Theorem 3.4: similarity to the Shapley map, {simulated.cells} cells",
        xlabel="important cells k",
        ylabel="cosine",
        xscale="log",
        ylim=(0, 1.1),
    )
    return drawing
