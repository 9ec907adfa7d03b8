"""Errors and bounds of L- and C-Shapley (Chen et al. 2018, theorems 1 and 2)."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs.design import Design, all_coalitions
from shapeline.designs.exact import shapley
from shapeline.designs.local import c_shapley, l_shapley
from shapeline.theory.games import generator, scores


@dataclass(frozen=True)
class Approximation:
    """Theorems 1 and 2 of Chen et al. 2018 on one joint distribution; arrays have an entry per feature.

    errors: E|estimate - Shapley value| of each estimator. local, connected: the smallest epsilon, over all sets S in
    the window that include the feature, for which condition (8), or (8) and (10), hold. local_window,
    connected_window: the same for S = the entire window. shapley: E|Shapley value|.
    """

    errors: dict[str, np.ndarray]
    local: np.ndarray
    connected: np.ndarray
    local_window: np.ndarray
    connected_window: np.ndarray
    shapley: np.ndarray


ESTIMATORS: dict[str, Callable[[networkx.Graph, int], Design]] = {
    "l_shapley": lambda graph, order: l_shapley(graph, order),
    "c_shapley_myerson": lambda graph, order: c_shapley(graph, order, weights="myerson"),
    "c_shapley_paper": lambda graph, order: c_shapley(graph, order, weights="paper"),
}


def approximation(
    joint: np.ndarray, graph: networkx.Graph, order: int, score: str = "expected", bounds: Approximation | None = None
) -> Approximation:
    """Return errors of L- and C-Shapley and the epsilons that bound them, by enumeration (Chen et al. 2018).

    joint: (2^d, classes) strictly positive probabilities of binary features (bit j of the row is feature j) and class.
    The value of S at x is the theorems': E[log P(Y | x_S) | x] in nats, P(Y | x_S) the conditional of the joint itself,
    no reference; score "predicted" is log P(y | x_S) of the most probable class, which the theorems do not cover.
    epsilon is the largest absolute conditional information E|log P(X_i, X_V | X_U, Y) / (P(X_i | X_U, Y) P(X_V | X_U,
    Y))|, and the same without Y, over the U and V of the condition. bounds: of another score, whose epsilons are
    the same.
    """
    d = graphs.check(graph, "approximation", int(joint.shape[0]).bit_length() - 1)
    margin = joint.sum(axis=1)
    with_class, without = _log_marginals(joint), _log_marginals(margin[:, None])
    log_class = with_class - without  # log P(y | x_S): (S, x, y)
    if score == "expected":
        tables = np.einsum("xy,sxy->xs", joint / margin[:, None], log_class)
    else:
        tables = log_class[:, np.arange(2**d), joint.argmax(axis=1)].T
    exact = scores(shapley(d), tables)
    designs = _designs(d, tuple(sorted(graph.edges)), order)
    errors = {name: margin @ np.abs(scores(design, tables) - exact) for name, design in designs.items()}
    size = margin @ np.abs(exact)
    if bounds is not None:
        return replace(bounds, errors=errors, shapley=size)
    found = np.array([_epsilons(joint, with_class, without, graph, node, order) for node in range(d)])
    return Approximation(errors, *found.T, shapley=size)


@functools.lru_cache(maxsize=16)
def _designs(d: int, edges: tuple[tuple[int, int], ...], order: int) -> dict[str, Design]:
    """Return the design of each estimator on a graph; cached, since a sweep uses few designs for many distributions."""
    graph = networkx.Graph(edges)
    graph.add_nodes_from(range(d))
    return {name: build(graph, order) for name, build in ESTIMATORS.items()}


def _log_marginals(joint: np.ndarray) -> np.ndarray:
    """Return log P(x_S, y) of every S, (2^d, 2^d, classes), at every x."""
    d = joint.shape[0].bit_length() - 1
    cube = joint.reshape(*(2,) * d, -1)  # axis d - 1 - j is feature j
    tables = []
    for S in range(2**d):
        absent = tuple(d - 1 - j for j in range(d) if not S >> j & 1)
        tables.append(np.broadcast_to(cube.sum(axis=absent, keepdims=True), cube.shape).reshape(joint.shape))
    return np.log(tables)


def _epsilons(joint, with_class, without, graph: networkx.Graph, node: int, order: int) -> tuple[float, ...]:
    """Return epsilons of one feature: (8) for the best S, (8) and (10) for the best S, and both for S = the window."""
    d = graph.number_of_nodes()
    U, V = np.meshgrid(np.arange(2**d), np.arange(2**d), indexing="ij")
    bit = 1 << node
    apart = (U & V == 0) & (U & bit == 0) & (V & bit == 0) & (V > 0)
    U, V = U[apart], V[apart]

    def information(log_p: np.ndarray, weight: np.ndarray) -> np.ndarray:
        ratio = log_p[U | V | bit] + log_p[U] - log_p[U | bit] - log_p[U | V]
        return np.abs(ratio, out=ratio).reshape(len(U), -1) @ weight.ravel()

    known = np.maximum(information(with_class, joint), information(without, joint.sum(axis=1)))

    def most(which: np.ndarray) -> float:
        return float(known[which].max(initial=0.0))

    def pack(nodes) -> int:
        return sum(1 << member for member in nodes)

    closed = [pack([member, *graph.adj[member]]) for member in range(d)]
    window = pack(graphs.neighborhood(graph, node, order))
    sets = [S for S in range(2**d) if S & bit and S & ~window == 0]  # ascending, so the window is last
    local, connected = [], []
    for S in sets:
        local.append(most((U & ~S == 0) & (V & S == 0)))
        inside = [member for member in range(d) if S >> member & 1]
        beyond = [local[-1]]
        for subset in graphs.connected_subsets(graph, node, inside):
            near = int(np.bitwise_or.reduce([closed[member] for member in subset]))
            beyond.append(most((U == pack(subset) & ~bit) & (V & near == 0)))
        connected.append(max(beyond))
    return min(local), min(connected), local[-1], connected[-1]


def chain_model(coupling: float, d: int = 6, seed: int = 0) -> np.ndarray:
    """Return (2^d, classes) of a Markov chain of d binary features; the class depends on every second one with noise.

    P(x) is proportional to exp(coupling * sum of x_j x_{j+1} + h.x), x_j = -1 or 1; independent at coupling 0.
    """
    rng = generator(seed, "chain model")
    features = all_coalitions(d, "chain_model")
    sign = 2.0 * features - 1
    energy = coupling * (sign[:, 1:] * sign[:, :-1]).sum(axis=1) + sign @ rng.uniform(-0.4, 0.4, d)
    margin = np.exp(energy - energy.max())
    read = features[:, ::2]
    outcomes = all_coalitions(read.shape[1], "chain_model")
    noise = rng.uniform(0.05, 0.2, read.shape[1])
    reading = np.where(read[:, None] == outcomes, 1 - noise, noise).prod(axis=-1)
    return margin[:, None] / margin.sum() * reading


@dataclass(frozen=True)
class Sweep:
    """Theorems 1 and 2 as the coupling of a chain grows, and on random joint distributions without any structure.

    chain: order -> one Approximation per coupling, the first at 0; predicted: the same with the score of the predicted
    class; random: Approximations on random joints, chain and grid in turn.
    """

    d: int
    couplings: np.ndarray
    chain: dict[int, list[Approximation]]
    predicted: dict[int, list[Approximation]]
    random: list[Approximation]


def sweep(d: int = 6, joints: int = 40, seed: int = 0) -> Sweep:
    """Run `approximation` over couplings 0 to 2 with windows of order 1 and 2, and over random joints with order 1."""
    couplings = np.array([0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2])
    models = [chain_model(coupling, d, seed) for coupling in couplings]
    chain, rng = graphs.chain(d), generator(seed, "random joints")
    random = []
    for number in range(joints):
        graph = (graphs.chain(5), graphs.grid(2, 3))[number % 2]
        d_here = graph.number_of_nodes()
        # Concentrations from even to nearly deterministic; the floor keeps every probability positive.
        drawn = rng.gamma(10.0 ** rng.uniform(-0.7, 1), size=(2**d_here, 3)) + 1e-12
        random.append(approximation(drawn / drawn.sum(), graph, 1))
    plain = {order: [approximation(model, chain, order) for model in models] for order in (1, 2)}
    predicted = {
        order: [approximation(model, chain, order, "predicted", same) for model, same in zip(models, runs, strict=True)]
        for order, runs in plain.items()
    }
    return Sweep(d, couplings, plain, predicted, random)


def lemma_1(largest: int = 12) -> float:
    """Return lemma 1's largest relative discrepancy (Chen et al. 2018, (13)), n, s, t <= largest, s >= t, n >= 1."""
    worst = 0.0
    for n in range(1, largest + 1):
        for s in range(largest + 1):
            for t in range(s + 1):
                left = sum(comb(n, j) / comb(n + s, j + t) for j in range(n + 1))
                right = (s + 1 + n) / ((s + 1) * comb(s, t))
                worst = max(worst, abs(left / right - 1))
    return worst
