"""Hierarchical Shapley: expected visited nodes and the bound of similarity (Teneggi et al. 2021, theorems 3.2, 3.4)."""

from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import check_integer
from shapeline.designs.exact import shapley
from shapeline.errors import ShapelineError
from shapeline.theory.estimators import ROUNDING, generator


def expected_visited_nodes(n: int, gamma: int, rho: float) -> float:
    """Return the expected number of nodes that h-Shap visits, root included.

    The model is an OR over the important cells, leaves are single cells, and the threshold is 0.

    Parameters
    ----------
    n : int
        Cells, a power of gamma.
    gamma : int
        Children of a node: 2 halves, 4 quadrants.
    rho : float
        Probability in [0, 1] that a cell is important, independently.

    Returns
    -------
    float

    References
    ----------
    Teneggi, Luster & Sulam (2021), theorem 3.2.

    Examples
    --------
    >>> from shapeline import theory
    >>> theory.expected_visited_nodes(16, gamma=4, rho=0.0), theory.expected_visited_nodes(16, gamma=4, rho=1.0)
    (1.0, 21.0)
    """
    where = "expected_visited_nodes"
    levels = _count_levels(where, n, gamma)
    if not 0 <= rho <= 1:
        raise ShapelineError(f"{where}: rho is {rho!r}; give a probability from 0 to 1.")
    if rho == 0:
        return 1.0
    with np.errstate(divide="ignore"):
        log_absent = np.log1p(-float(rho))

    def probability(cells: float) -> float:  # the probability that any of so many cells is important
        return float(-np.expm1(cells * log_absent))

    expected = 1.0
    for level in range(1, levels):
        cells = gamma**level
        none = np.exp(cells / gamma * log_absent) * probability(cells * (gamma - 1) / gamma) / probability(cells)
        expected = 1 + gamma * (1 - none) * expected
    return float(1 + gamma * probability(n / gamma) * expected) if levels else 1.0


def similarity_lower_bound(n: int, s: int, k: int) -> float:
    """Return the least cosine between the maps of h-Shap and of the Shapley value, max(1/sqrt(s), sqrt(k/n)).

    The model is an OR over the important cells. The bound is 1 where leaves are single cells.

    Parameters
    ----------
    n : int
        Cells.
    s : int
        Cells of the largest leaf, 1 to n: the side squared for a square leaf.
    k : int
        Important cells, 1 to n.

    Returns
    -------
    float

    References
    ----------
    Teneggi, Luster & Sulam (2021), theorem 3.4.

    Examples
    --------
    >>> from shapeline import theory
    >>> theory.similarity_lower_bound(64, s=4, k=8)
    0.5
    """
    where = "similarity_lower_bound"
    n, s, k = check_integer(where, "n", n, 1), check_integer(where, "s", s, 1), check_integer(where, "k", k, 1)
    for name, value in (("s", s), ("k", k)):
        if value > n:
            raise ShapelineError(f"{where}: {name} is {value} of n = {n} cells; give at most n.")
    return max(s**-0.5, (k / n) ** 0.5)


def _count_levels(where: str, n: int, gamma: int) -> int:
    n, gamma = check_integer(where, "n", n, 1), check_integer(where, "gamma", gamma, 2)
    levels = 0
    while gamma**levels < n:
        levels += 1
    if gamma**levels != n:
        raise ShapelineError(
            f"{where}: n is {n}, no power of gamma = {gamma}; the nearest are {gamma ** (levels - 1)} and "
            f"{gamma**levels}."
        )
    return levels


@dataclass(frozen=True)
class Visits:
    """Simulated h-Shap runs: important cells, visited nodes (root included) and evaluations, (samples,) each."""

    important: np.ndarray
    nodes: np.ndarray
    evaluations: np.ndarray


def simulate_visits(n: int, gamma: int, rho: float, runs: int = 2000, seed: int = 0) -> Visits:
    """Run h-Shap on random OR games with exact values at nodes of 2^gamma evaluations (theorem 3.2)."""
    levels = _count_levels("simulate_visits", n, gamma)
    rng = generator(seed, f"visits {n} {gamma} {rho}")
    important = rng.random((runs, n)) < rho
    game, visited = shapley(gamma), np.ones((runs, 1), bool)
    nodes, evaluations = np.ones(runs, int), np.zeros(runs, int)
    for level in range(levels):
        # Outside a node everything is at the reference, so a coalition of children is 1 if one of them is important.
        children = important.reshape(runs, gamma**level, gamma, -1).any(axis=-1)
        values = (children[:, :, None, :] & game.masks).any(axis=-1)
        evaluations += visited.sum(axis=1) * 2**gamma
        relevant = game.attribute(values) > ROUNDING
        visited = (relevant & visited[:, :, None]).reshape(runs, -1)
        nodes += visited.sum(axis=1)
    return Visits(important.sum(axis=1), nodes, evaluations)


def simulate_similarity(n: int, s: int, k: int, runs: int = 300, seed: int = 0) -> np.ndarray:
    """Return cosines (samples,) of h-Shap maps on leaves of s cells and Shapley maps of random OR games."""
    rng = generator(seed, f"similarity {n} {s} {k}")
    important = rng.permuted(np.tile(np.arange(n) < k, (runs, 1)), axis=1)
    leaves = np.repeat(important.reshape(runs, n // s, s).any(axis=-1), s, axis=1)
    exact, map_ = important / k, leaves / leaves.sum(axis=1, keepdims=True)
    return (exact * map_).sum(axis=1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(map_, axis=1)


@dataclass(frozen=True)
class Hierarchy:
    """Theorems 3.2 and 3.4 and remark 3.1 compared with simulations.

    visits: (gamma, rho, expected, mean, standard error); runs: number of samples; costly, costly_empty: samples above
    the bound of remark 3.1, and without important cells; similarity: (leaf, important cells, bound, lowest, mean).
    """

    n: int
    cells: int
    visits: list[tuple[int, float, float, float, float]]
    runs: int
    costly: int
    costly_empty: int
    similarity: list[tuple[int, int, float, float, float]]


def simulate_hierarchy(n: int = 64, cells: int = 256, runs: int = 2000, seed: int = 0) -> Hierarchy:
    """Run h-Shap on random OR games: n cells for the visited nodes (a power of 4), `cells` for the similarity."""
    visits, costly, empty, total = [], 0, 0, 0
    for gamma in (2, 4):
        levels = _count_levels("hierarchy", n, gamma)
        for rho in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
            run = simulate_visits(n, gamma, rho, runs, seed)
            error = run.nodes.std(ddof=1) / runs**0.5
            visits.append((gamma, rho, expected_visited_nodes(n, gamma, rho), float(run.nodes.mean()), float(error)))
            exceeding = run.evaluations > 2**gamma * run.important * levels
            costly, empty, total = costly + int(exceeding.sum()), empty + int((run.important == 0).sum()), total + runs
    similarity = []
    for s in (1, 4, 16, 64):
        for k in 2 ** np.arange(int(np.log2(cells)) + 1):
            measured = simulate_similarity(cells, s, int(k), 300, seed)
            bound = similarity_lower_bound(cells, s, int(k))
            similarity.append((s, int(k), bound, float(measured.min()), float(measured.mean())))
    return Hierarchy(n, cells, visits, total, costly, empty, similarity)
