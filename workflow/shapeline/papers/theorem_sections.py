"""The theorems in the localization report (Teneggi et al. 2021): visited nodes (3.2), similarity (3.4)."""

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from shapeline.datasets.registry import is_published
from shapeline.metrics.ground_truth import leaf_edges
from shapeline.report import experiment
from shapeline.report.colours import EXACT, FIRST, INK, QUIET, SECOND
from shapeline.report.elements import HTML, figure, join_parts, note, table
from shapeline.report.experiment import Results
from shapeline.report.figures.localization import parameters, read_details, select_method
from shapeline.report.formatting import number, share, two_digits
from shapeline.report.sections.localization import is_quadrant_h_shap
from shapeline.report.styling import WIDTH, Style, assign_styles, styled
from shapeline.theory import visited_nodes

MAX_RUNS, MAX_LEAVES = 400, 400_000  # simulated runs of a point of theorem 3.2 at most, and the leaves of all its runs


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
    """The share of leaves that hold a true pixel, (n,), and how many leaves there are."""
    rows, columns = (leaf_edges(side, min_size)[:-1] for side in truth.shape[1:])
    held = np.logical_or.reduceat(np.logical_or.reduceat(truth, rows, axis=1), columns, axis=2)
    return held.mean(axis=(1, 2)), len(rows) * len(columns)


def list_plain_entries(results: Results) -> list[str]:
    """h-Shap methods that the theorems are about: quadrants of pixels, absolute threshold 0."""
    return [
        entry
        for entry in select_method(results, "h_shap")
        if is_quadrant_h_shap(results, entry)
        and parameters(results, entry).get("mode", "absolute") == "absolute"
        and parameters(results, entry).get("threshold", 0.0) == 0
    ]


def visits_section(results: Results, truth: np.ndarray | None) -> HTML:
    """Theorem 3.2 against simulation and against the nodes visited on the trained model (figure 1)."""
    having = None if truth is None else truth.any(axis=(1, 2))
    entries = (
        []
        if truth is None
        else [
            entry for entry in list_plain_entries(results) if len(read_details(results.scores[entry], "visited_nodes"))
        ]
    )
    if not entries or not having.any():
        return note("Not available: needs h_shap with an absolute threshold of 0, and images with a true region.")
    rows, panels = [], []
    for entry in entries:
        size = parameters(results, entry).get("min_size", 1)
        visited = read_details(results.scores[entry], "visited_nodes").reindex(results.instances["instance"]).to_numpy()
        rho, leaves = leaf_shares(truth, size)
        ideal = or_visits(truth, size)
        kept = having & np.isfinite(visited)
        n = 4 ** max(1, round(math.log(leaves, 4)))
        expected = np.mean([visited_nodes.expected_visited_nodes(n, 4, density) for density in rho[kept]])
        panels.append((entry, n, rho[kept], visited[kept], ideal[kept]))
        rows.append(
            {
                "method": entry,
                "leaves": number(leaves),
                "theorem 3.2 at each ρ": number(float(expected), whole=False),
                "an OR over the true pixels": number(float(ideal[kept].mean()), whole=False),
                "the trained model": number(float(visited[kept].mean()), whole=False),
                "model / OR": two_digits(float(visited[kept].mean() / ideal[kept].mean())),
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
    """A panel per method: (method, n, rho, visited by the model, visited by an OR), all but the first two (images,)."""
    drawing = Figure(figsize=(WIDTH, 3.7), layout="constrained")
    for axes, (entry, n, rho, visited, ideal) in zip(
        drawing.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        low, high = min(rho.min() / 2, 0.5), min(1.0, 4 * rho.max())
        fine = np.geomspace(max(low, 0.2 / n), high, 80)
        axes.plot(
            fine,
            [visited_nodes.expected_visited_nodes(n, 4, float(density)) for density in fine],
            color=INK,
            label="theorem 3.2",
        )
        points = np.geomspace(fine[0], fine[-1], 6)
        runs = [
            visited_nodes.simulate_visits(n, 4, float(density), max(20, min(MAX_RUNS, MAX_LEAVES // n))).nodes
            for density in points
        ]
        error = [1.96 * nodes.std(ddof=1) / len(nodes) ** 0.5 for nodes in runs]
        axes.errorbar(
            points,
            [nodes.mean() for nodes in runs],
            error,
            fmt="s",
            color=QUIET,
            markersize=4.5,
            label="simulated OR games",
        )
        axes.plot(rho, visited, "o", color=FIRST, alpha=0.45, markersize=4, label="the trained model")
        axes.plot(
            rho, ideal, "o", color=SECOND, markerfacecolor="none", alpha=0.6, markersize=4, label="OR over true pixels"
        )
        axes.set(
            xscale="log", yscale="log", title=f"{entry}, n = {number(n)}",
            xlabel="ρ, share of leaves with a true pixel", ylabel="nodes visited",
        )  # fmt: skip
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: number(value))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(fontsize=8)
    return drawing


def theory_link(results: Results, what: str) -> HTML | None:
    """Where a theorem is checked without a model; that page is not made where all data are the user's."""
    if not is_published(results.dataset_card.get("source")):
        return None
    return HTML(f'<p class="note">{html.escape(what)}: <a href="theory.html">the theory page</a>.</p>')


def cosines_section(results: Results, truth: np.ndarray | None) -> HTML:
    """Theorem 3.4: the bound against the cosine between h-Shap's map and the Shapley map of an OR over true pixels."""
    entries = (
        []
        if truth is None
        else [entry for entry in select_method(results, "h_shap") if is_quadrant_h_shap(results, entry)]
    )
    if not entries or not truth.any():
        return note("Not available: needs h_shap on pixels, and images with a true region.")
    rows, shown = [], {}
    for entry in entries:
        likeness = cosines(results, truth, entry)
        if likeness.empty:
            continue
        shown[entry] = likeness
        rows.append(
            {
                "method": entry,
                "largest leaf (cells)": number(
                    _largest_leaf(truth.shape[1:], parameters(results, entry).get("min_size", 1))
                ),
                "bound": two_digits(likeness["bound"].mean()),
                "trained model": two_digits(likeness["cosine"].mean()),
                "at or above the bound": share((likeness["cosine"] >= likeness["bound"] - 1e-9).mean()),
                "leaves that touch": two_digits(likeness["ideal"].mean()),
                "of them above": share((likeness["ideal"] >= likeness["bound"] - 1e-9).mean()),
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
    largest = _largest_leaf(truth.shape[1:], size)
    maps = experiment.select_scores(results.scores[entry], results.instances["instance"])
    down, across = (leaf_edges(side, size) for side in truth.shape[1:])
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


def _largest_leaf(shape: tuple[int, int], min_size: int) -> int:
    """Cells of the largest leaf of an image."""
    return int(np.prod([np.diff(leaf_edges(side, min_size)).max() for side in shape]))


@styled
def cosine_strips(by_entry: Mapping[str, pd.DataFrame], styles: Mapping[str, Style]) -> Figure | None:
    """A column of dots per method, moved sideways by a fixed pattern so that they do not hide each other."""
    if not by_entry:
        return None
    drawing = Figure(figsize=(min(WIDTH, 2.2 + 1.5 * len(by_entry)), 3.6), layout="constrained")
    axes = drawing.subplots()
    for index, (entry, frame) in enumerate(by_entry.items()):
        aside = 0.2 * (np.arange(len(frame)) * 0.618 % 1 - 0.5)
        axes.plot(index - 0.15 + aside, frame["cosine"], "o", color=styles[entry].colour, alpha=0.5, markersize=4)
        axes.plot(
            index + 0.15 + aside, frame["ideal"], "o", color=QUIET, markerfacecolor="none", alpha=0.6, markersize=4
        )
        axes.plot([index - 0.36, index + 0.36], [frame["bound"].mean()] * 2, color=EXACT, linewidth=1.8)
    axes.set_xticks(range(len(by_entry)), list(by_entry))
    axes.set(ylabel="cosine", ylim=(-0.02, 1.02), xlim=(-0.6, len(by_entry) - 0.4))
    return drawing
