"""C-Shapley and the Myerson value (Chen et al. 2018, §4.2)."""

from dataclasses import dataclass

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs.connected import c_shapley
from shapeline.designs.exact import myerson, shapley
from shapeline.seeds import seed_of
from shapeline.theory.additivity import linear_share
from shapeline.theory.games import additive_over_components, generator, largest, rms, scores


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
