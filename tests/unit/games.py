"""Brute force on tables of 2^d values: row r of a table is v of the features whose bit is set in r."""

from itertools import combinations
from math import comb, factorial

import networkx
import numpy as np


def table(d, seed=0):
    """A game with no structure at all; v(empty) is not 0."""
    return np.random.default_rng(seed).normal(size=2**d)


def row(coalition):
    return sum(1 << int(feature) for feature in coalition)


def members(r):
    return [feature for feature in range(r.bit_length()) if r >> feature & 1]


def of_sets(value, d):
    """The table of a function of lists of features, each in order."""
    return np.array([value(members(r)) for r in range(2**d)])


def look_up(game, masks):
    """v of masks (K, d)."""
    return game[masks @ (1 << np.arange(masks.shape[1]))]


def scores(design, game):
    return design.attribute(look_up(game, design.masks))


def linear(weights, constant=0.3):
    d = len(weights)
    return np.array([constant + sum(weights[i] for i in members(r)) for r in range(2**d)])


def unanimity(d, terms):
    """Sum of a * [T inside S] over the terms {T: a}."""
    return np.array([sum(a for part, a in terms.items() if part <= set(members(r))) for r in range(2**d)])


def marginal(game, feature, coalition):
    return game[row([*coalition, feature])] - game[row(coalition)]


def shapley_in(game, window, feature, around=()):
    """Return the Shapley value of `feature` in the game on `window`, with the features `around` always kept."""
    others = [node for node in window if node != feature]
    total = 0.0
    for size in range(len(others) + 1):
        weight = factorial(size) * factorial(len(others) - size) / factorial(len(window))
        total += weight * sum(marginal(game, feature, [*part, *around]) for part in combinations(others, size))
    return total


def shapley(game):
    d = len(game).bit_length() - 1
    return np.array([shapley_in(game, range(d), feature) for feature in range(d)])


def banzhaf(game):
    d = len(game).bit_length() - 1
    value = np.zeros(d)
    for feature in range(d):
        others = [other for other in range(d) if other != feature]
        parts = [part for size in range(d) for part in combinations(others, size)]
        value[feature] = np.mean([marginal(game, feature, part) for part in parts])
    return value


def myerson_game(game, graph):
    """Sum over components T of each coalition of v(T) - v(empty): additive over components."""
    return np.array(
        [
            sum(game[row(part)] - game[0] for part in networkx.connected_components(graph.subgraph(members(r))))
            for r in range(len(game))
        ]
    )


def connected_sets(graph, within, node):
    """Connected subsets of `within` that hold `node`, by trying every subset."""
    others = [other for other in within if other != node]
    found = set()
    for size in range(len(others) + 1):
        for part in combinations(others, size):
            if networkx.is_connected(graph.subgraph([node, *part])):
                found.add(frozenset([node, *part]))
    return found


def c_shapley(game, graph, order, weights, context):
    """C-Shapley straight from its sum."""
    d = graph.number_of_nodes()
    value = np.zeros(d)
    for node in range(d):
        window = set(networkx.single_source_shortest_path_length(graph, node, order))
        around = set(range(d)) - window if context == "present" else set()
        for part in connected_sets(graph, window, node):
            u = len(part)
            b = len({other for member in part for other in graph.adj[member]} & window - part)
            c = {"paper": 2 / ((u + 2) * (u + 1) * u), "myerson": factorial(u - 1) * factorial(b) / factorial(u + b)}
            value[node] += c[weights] * marginal(game, node, (part - {node}) | around)
    return value


def l_shapley(game, graph, order, context):
    d = graph.number_of_nodes()
    value = np.zeros(d)
    for node in range(d):
        window = set(networkx.single_source_shortest_path_length(graph, node, order))
        around = set(range(d)) - window if context == "present" else set()
        value[node] = shapley_in(game, sorted(window), node, sorted(around))
    return value


def constrained_least_squares(game, weight_of_size, ridge=0.0):
    """Weighted least squares over all coalitions with v(empty) and v(N) met, by its Karush-Kuhn-Tucker system."""
    d = len(game).bit_length() - 1
    rows = [r for r in range(1, 2**d - 1)]
    masks = np.array([[r >> i & 1 for i in range(d)] for r in rows], float)
    w = np.array([weight_of_size(len(members(r))) for r in rows])
    system = np.zeros((d + 1, d + 1))
    system[:d, :d] = masks.T @ (masks * w[:, None]) + ridge * np.eye(d)
    system[d, :d] = system[:d, d] = 1
    right = np.append(masks.T @ (w * (game[rows] - game[0])), game[-1] - game[0])
    return np.linalg.solve(system, right)[:d]


def kernel(d, s):
    return (d - 1) / (comb(d, s) * s * (d - s))


GRAPHS = {
    "chain": networkx.path_graph(7),
    "grid": networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(2, 4), ordering="sorted"),
    "cycle": networkx.cycle_graph(6),
    "star": networkx.star_graph(5),
    "complete": networkx.complete_graph(5),
    "disconnected": networkx.Graph([(0, 4), (4, 2), (1, 3), (3, 5), (5, 1)]),
    "random": networkx.gnp_random_graph(7, 0.35, seed=3),
    "dense random": networkx.gnp_random_graph(7, 0.6, seed=8),
    "one": networkx.path_graph(1),
}
