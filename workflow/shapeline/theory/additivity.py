"""Efficiency, and the Banzhaf identity (Sliwinski et al. 2019, theorem 6.1)."""

from dataclasses import dataclass

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs.design import Design, all_coalitions
from shapeline.designs.exact import banzhaf, myerson, occlusion, shapley
from shapeline.designs.local import c_shapley, c_shapley_regression, l_shapley
from shapeline.designs.sampled import kernel_shap, sample_shapley
from shapeline.designs.surrogate import lime, symmetric_least_squares
from shapeline.seeds import seed_of
from shapeline.theory.games import additive_over_components, generator, largest, rms, scores
from shapeline.theory.games import largest as magnitude


def linear_share(graph: networkx.Graph, order: int, weights: str = "paper") -> np.ndarray:
    """What C-Shapley gives each feature of a linear model, as a share of the feature's own term, (d,); 1 is right."""
    design = c_shapley(graph, order, weights)
    return np.asarray(design.readout.multiply(design.masks.T).sum(axis=1)).ravel()


@dataclass(frozen=True)
class Efficiency:
    """Root mean square of sum(scores) - (v(N) - v(empty)) of one estimator, in units of that of v(N) - v(empty)."""

    estimator: str
    evaluations: int
    random: float
    additive: float
    linear: float


def efficiency(side: int = 9, games: int = 200, seed: int = 0) -> list[Efficiency]:
    """Which estimators add up to v(N) - v(empty), on games on a chain: any, additive over components, and linear."""
    d, chain, budget = side, graphs.chain(side), 4 * side
    built = {
        "shapley": shapley(d),
        "myerson": myerson(chain),
        "kernel_shap, 4d": kernel_shap(d, budget, seed),
        "sample_shapley, 4d": sample_shapley(d, budget, seed),
        "symmetric_least_squares, q = 1": symmetric_least_squares(d, lambda s: 1.0),
        "lime, Shapley kernel, ridge 0, 4d": lime(d, budget, seed, kernel="shapley", ridge=0.0),
        "c_shapley_regression, order 4, constrained": c_shapley_regression((d,), 4, constrained=True),
        "l_shapley, order ≥ diameter": l_shapley(chain, d),
        "c_shapley, order ≥ diameter, Myerson weights": c_shapley(chain, d, "myerson"),
        "l_shapley, order 1": l_shapley(chain, 1),
        "l_shapley, order 2": l_shapley(chain, 2),
        "c_shapley, order 2, Myerson weights": c_shapley(chain, 2, "myerson"),
        "c_shapley_regression, order 4, uniform": c_shapley_regression((d,), 4, "uniform"),
        "c_shapley_regression, order 4, kernel": c_shapley_regression((d,), 4, "kernel"),
        "banzhaf": banzhaf(d),
        "occlusion": occlusion(d),
        "lime, ridge 1, 4d": lime(d, budget, seed),
        "c_shapley, order 2, eq. 6": c_shapley(chain, 2, "paper"),
        "c_shapley, order ≥ diameter, eq. 6": c_shapley(chain, d, "paper"),
        "c_shapley_regression, order 4, printed": c_shapley_regression((d,), 4, "printed"),
    }
    rng = generator(seed, "efficiency")
    free = rng.normal(size=(games, 2**d))
    kinds = (
        free,
        additive_over_components(chain, free),
        1 + rng.normal(size=(games, d)) @ all_coalitions(d, "efficiency").T,
    )
    return [
        Efficiency(name, design.evaluations, *(_efficiency_gap(design, tables) for tables in kinds))
        for name, design in built.items()
    ]


def _efficiency_gap(design: Design, tables: np.ndarray) -> float:
    total = tables[:, -1] - tables[:, 0]
    return rms(scores(design, tables).sum(axis=1) - total) / rms(total)


@dataclass(frozen=True)
class BanzhafIdentity:
    """Theorem 6.1 for n features: the constant printed, the constant measured, and the largest relative discrepancy."""

    n: int
    printed: float
    measured: float
    discrepancy: float


def banzhaf_identity(largest: int = 8, seed: int = 0) -> list[BanzhafIdentity]:
    """Compare MIM in a game with 2^n (2^n - 1)/n times the normalised Banzhaf value (theorem 6.1)."""
    identities = []
    for n in range(1, largest + 1):
        game = generator(seed, f"banzhaf {n}").normal(size=2**n)
        rows, half = np.arange(2**n), scores(banzhaf(n), game) / 2
        summed = np.empty(n)
        for i in range(n):
            T, S = rows[rows >> i & 1 == 1][:, None], rows[rows >> i & 1 == 0]
            summed[i] = ((game[T] - game[S]) / np.bitwise_count(S ^ T)).sum()
        constant = 2**n * (2**n - 1) / n
        identities.append(
            BanzhafIdentity(
                n,
                constant,
                float(summed @ half / (half @ half)),
                magnitude(summed - constant * half) / magnitude(summed),
            )
        )
    return identities


@dataclass(frozen=True)
class MyersonGap:
    """C-Shapley of order d on one graph: what the weights of eq. 6 and Myerson's miss the Myerson value by.

    On random games additive over components, in units of the Myerson values' root mean square: largest difference with
    Myerson weights, root mean square difference with eq. 6; design: largest difference of `designs.myerson`;
    share (d,): what eq. 6 gives a feature of a linear model, 1 is right.
    """

    graph: str
    corrected: float
    printed: float
    design: float
    share: np.ndarray


def myerson_gaps(games: int = 50, seed: int = 0) -> list[MyersonGap]:
    """C-Shapley of order d against the Myerson value on small graphs (Chen et al. 2018, §4.2 and eq. 6)."""
    named = {
        "chain of 9": graphs.chain(9),
        "cycle of 9": networkx.cycle_graph(9),
        "star of 9": networkx.star_graph(8),
        "random tree of 9": networkx.random_labeled_tree(9, seed=seed_of("theory", seed, "tree") % 2**32),
        "grid 3 × 3": graphs.grid(3, 3),
        "complete graph of 6": networkx.complete_graph(6),
    }
    return [_myerson_gap(name, graph, generator(seed, name), games) for name, graph in named.items()]


def _myerson_gap(name: str, graph: networkx.Graph, rng: np.random.Generator, games: int) -> MyersonGap:
    d = graph.number_of_nodes()
    tables = additive_over_components(graph, rng.normal(size=(games, 2**d)))
    exact = scores(shapley(d), tables)  # the Myerson value, by its definition
    scale = rms(exact)
    return MyersonGap(
        name,
        largest(scores(c_shapley(graph, d, "myerson"), tables) - exact) / scale,
        rms(scores(c_shapley(graph, d, "paper"), tables) - exact) / scale,
        largest(scores(myerson(graph), tables) - exact) / scale,
        linear_share(graph, d, "paper"),
    )
