"""Random games, and comparisons of two computations of one quantity."""

from dataclasses import dataclass

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs.design import Design
from shapeline.seeds import seed_of

ROUNDING = 1e-9  # discrepancies below this are float64 rounding, in games with values of order 1


@dataclass(frozen=True)
class Comparison:
    """A formula as printed and as corrected ("" where it holds as printed), each with its largest discrepancy."""

    statement: str
    printed: str
    printed_error: float
    corrected: str = ""
    corrected_error: float | None = None


def scores(design: Design, tables: np.ndarray) -> np.ndarray:
    """Return scores (..., d) of a design on games, tables (..., 2^d)."""
    return design.attribute(tables[..., design.masks @ (1 << np.arange(design.d))])


def generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng(seed_of("theory", seed, name))


def rms(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(numbers))))


def largest(numbers: np.ndarray) -> float:
    return float(np.abs(numbers).max())


def additive_over_components(graph: networkx.Graph, tables: np.ndarray) -> np.ndarray:
    """Return the games of Myerson 1977: the sum over a coalition's components T of v(T) - v(empty), (games, 2^d)."""
    d = graphs.check(graph, "additive_over_components", tables.shape[1].bit_length() - 1)
    beside = [sum(1 << other for other in graph.adj[node]) for node in range(d)]
    result = np.zeros_like(tables)
    for S in range(1, 2**d):
        part, grown = 0, S & -S
        while grown != part:
            part = grown
            for node in range(d):
                if part >> node & 1:
                    grown |= beside[node] & S
        result[:, S] = result[:, S & ~part] + tables[:, part] - tables[:, 0]
    return result
