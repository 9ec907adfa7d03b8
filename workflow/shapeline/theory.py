"""The theorems behind the methods, as functions: two closed forms, and numerical checks that return what they measured.

A game is a table of 2^d values: entry r is the value of the coalition whose features are the set bits of r.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import comb, factorial

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs.connected import c_shapley, c_shapley_regression
from shapeline.designs.design import Design, all_coalitions, kernel_weight, whole
from shapeline.designs.exact import banzhaf, myerson, occlusion, shapley
from shapeline.designs.local import l_shapley
from shapeline.designs.sampled import kernel_shap, sample_shapley
from shapeline.designs.surrogate import lime, symmetric_least_squares
from shapeline.errors import ShapelineError
from shapeline.seeds import seed_of

ROUNDING = 1e-9  # a discrepancy below this, in games whose values are of order 1, is the rounding of float64


@dataclass(frozen=True)
class Comparison:
    """A formula as its source prints it and as it must read, each with its largest discrepancy.

    `corrected` is empty where the printed form holds.
    """

    statement: str
    printed: str
    printed_error: float
    corrected: str = ""
    corrected_error: float | None = None


def scores(design: Design, tables: np.ndarray) -> np.ndarray:
    """Scores (..., d) of a design on games, tables (..., 2^d)."""
    return design.attribute(tables[..., design.masks @ (1 << np.arange(design.d))])


def _rng(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng(seed_of("theory", seed, name))


def _rms(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(numbers))))


def _largest(numbers: np.ndarray) -> float:
    return float(np.abs(numbers).max())


# -------------------------------------------------------------------------------------------- hierarchical Shapley


def expected_visited_nodes(n: int, gamma: int, rho: float) -> float:
    """Expected number of nodes that h-Shap visits, root included (Teneggi et al. 2021, theorem 3.2).

    n: cells, a power of gamma; gamma: children of a node (2 halves, 4 quadrants); rho: probability in [0, 1] that a
    cell is important, independently; the model is an OR over the important cells, leaves are single cells, threshold 0.
    """
    where = "expected_visited_nodes"
    levels = _levels(where, n, gamma)
    if not 0 <= rho <= 1:
        raise ShapelineError(f"{where}: rho is {rho!r}; give a probability from 0 to 1.")
    if rho == 0:
        return 1.0
    with np.errstate(divide="ignore"):
        log_absent = np.log1p(-float(rho))

    def some(cells: float) -> float:  # the probability that one of so many cells is important
        return float(-np.expm1(cells * log_absent))

    expected = 1.0
    for level in range(1, levels):
        cells = gamma**level
        none = np.exp(cells / gamma * log_absent) * some(cells * (gamma - 1) / gamma) / some(cells)
        expected = 1 + gamma * (1 - none) * expected
    return float(1 + gamma * some(n / gamma) * expected) if levels else 1.0


def similarity_lower_bound(n: int, s: int, k: int) -> float:
    """Least cosine between the maps of h-Shap and of the Shapley value (Teneggi et al. 2021, theorem 3.4).

    n: cells; s: cells of the largest leaf, 1 to n (the side squared for a square leaf); k: important cells, 1 to n; the
    model is an OR over these. The bound is max(1/sqrt(s), sqrt(k/n)), 1 where leaves are single cells.
    """
    where = "similarity_lower_bound"
    n, s, k = whole(where, "n", n, 1), whole(where, "s", s, 1), whole(where, "k", k, 1)
    for name, value in (("s", s), ("k", k)):
        if value > n:
            raise ShapelineError(f"{where}: {name} is {value} of n = {n} cells; give at most n.")
    return max(s**-0.5, (k / n) ** 0.5)


def _levels(where: str, n: int, gamma: int) -> int:
    n, gamma = whole(where, "n", n, 1), whole(where, "gamma", gamma, 2)
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
    """One h-Shap run a draw: important cells, nodes visited (root included) and model evaluations, each (draws,)."""

    important: np.ndarray
    nodes: np.ndarray
    evaluations: np.ndarray


def simulate_visits(n: int, gamma: int, rho: float, draws: int = 2000, seed: int = 0) -> Visits:
    """h-Shap on random OR games, level by level, with exact Shapley values at every node (theorem 3.2, remark 3.1).

    Arguments as in `expected_visited_nodes`. A node costs 2^gamma evaluations, as the paper counts.
    """
    levels = _levels("simulate_visits", n, gamma)
    rng = _rng(seed, f"visits {n} {gamma} {rho}")
    important = rng.random((draws, n)) < rho
    game, visited = shapley(gamma), np.ones((draws, 1), bool)
    nodes, evaluations = np.ones(draws, int), np.zeros(draws, int)
    for level in range(levels):
        # Outside its node everything is at the reference, so a coalition of children is 1 if one of them is important.
        children = important.reshape(draws, gamma**level, gamma, -1).any(axis=-1)
        values = (children[:, :, None, :] & game.masks).any(axis=-1)
        evaluations += visited.sum(axis=1) * 2**gamma
        relevant = game.attribute(values) > ROUNDING
        visited = (relevant & visited[:, :, None]).reshape(draws, -1)
        nodes += visited.sum(axis=1)
    return Visits(important.sum(axis=1), nodes, evaluations)


def simulate_similarity(n: int, s: int, k: int, draws: int = 300, seed: int = 0) -> np.ndarray:
    """Cosine between the h-Shap map on leaves of s cells and the Shapley map of random OR games, (draws,).

    Every leaf with an important cell is found, so the h-Shap map is even over those leaves (eq. 5), the Shapley map
    even over the k important cells (eq. 8). s divides n.
    """
    rng = _rng(seed, f"similarity {n} {s} {k}")
    important = rng.permuted(np.tile(np.arange(n) < k, (draws, 1)), axis=1)
    found = np.repeat(important.reshape(draws, n // s, s).any(axis=-1), s, axis=1)
    exact, map_ = important / k, found / found.sum(axis=1, keepdims=True)
    return (exact * map_).sum(axis=1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(map_, axis=1)


@dataclass(frozen=True)
class Hierarchy:
    """Theorems 3.2 and 3.4 and remark 3.1 against simulation.

    visits: (gamma, rho, expected, mean, standard error); costs: draws and draws above the bound of remark 3.1, and
    those of them without any important cell; similarity: (leaf cells, important cells, bound, lowest, mean).
    """

    n: int
    cells: int
    visits: list[tuple[int, float, float, float, float]]
    draws: int
    costly: int
    costly_empty: int
    similarity: list[tuple[int, int, float, float, float]]


def hierarchy(n: int = 64, cells: int = 256, draws: int = 2000, seed: int = 0) -> Hierarchy:
    """h-Shap on random OR games: n cells for the visited nodes (a power of 4), `cells` for the similarity."""
    visits, costly, empty, total = [], 0, 0, 0
    for gamma in (2, 4):
        levels = _levels("hierarchy", n, gamma)
        for rho in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
            run = simulate_visits(n, gamma, rho, draws, seed)
            error = run.nodes.std(ddof=1) / draws**0.5
            visits.append((gamma, rho, expected_visited_nodes(n, gamma, rho), float(run.nodes.mean()), float(error)))
            over = run.evaluations > 2**gamma * run.important * levels
            costly, empty, total = costly + int(over.sum()), empty + int((run.important == 0).sum()), total + draws
    similarity = []
    for s in (1, 4, 16, 64):
        for k in 2 ** np.arange(int(np.log2(cells)) + 1):
            found = simulate_similarity(cells, s, int(k), 300, seed)
            bound = similarity_lower_bound(cells, s, int(k))
            similarity.append((s, int(k), bound, float(found.min()), float(found.mean())))
    return Hierarchy(n, cells, visits, total, costly, empty, similarity)


# ------------------------------------------------------------------------------------------------- the kernel proof


@dataclass(frozen=True)
class KernelProof:
    """The kernel proof for d features: its formulas, the designs that rest on it, and a finite weight on v(N).

    designs: largest difference of each to `designs.shapley`; end_weights and end_errors: the weight on the full
    coalition and the largest error of the scores (values are of order 1).
    """

    d: int
    comparisons: list[Comparison]
    designs: dict[str, float]
    end_weights: np.ndarray
    end_errors: np.ndarray


def kernel_proof(d: int = 8, games: int = 50, seed: int = 0) -> KernelProof:
    """Every formula of "Shapley Kernel Proof" (Lundberg 2017) against linear algebra over 2^d coalitions, d >= 4."""
    d = whole("kernel_proof", "d", d, 4)
    X = all_coalitions(d, "kernel_proof").astype(float)
    s = X.sum(axis=1).astype(int)
    weight = np.zeros(2**d)
    weight[1:-1] = kernel_weight(d, s[1:-1])
    weight[-1] = 1e3
    tables = _rng(seed, "kernel").normal(size=(games, 2**d))
    exact = scores(shapley(d), tables)

    gram = X.T @ (X * weight[:, None])
    identity = (np.diag(gram)[:, None] - gram)[~np.eye(d, dtype=bool)]  # a, for every entry, where gram = a I + c J
    centre = np.eye(d) - 1 / d
    # As c grows, the inverse of a I + c J tends to the inverse on what J leaves alone: the vectors of sum 0.
    inverse = np.linalg.pinv(centre @ gram @ centre)
    fit = inverse @ (X.T * weight)
    fit[:, -1] = 1 / d  # of the full coalition only the limit is left: every score takes an equal share

    size = np.arange(d + 1)
    count = np.array([factorial(k) for k in size])
    outside = -count[np.maximum(d - size - 1, 0)] * count / count[d]
    printed = count[np.maximum(d - size - 2, 0)] * count[np.maximum(size - 1, 0)] / count[d]
    inside = count[d - size] * count[np.maximum(size - 1, 0)] / count[d]
    member = X.T == 1
    comparisons = [
        Comparison(
            "coefficient of I in XᵀWX = a I + cJ",
            "1/(d − 1)",
            _largest(identity - 1 / (d - 1)),
            "(d − 1)/d",
            _largest(identity - (d - 1) / d),
        ),
        Comparison("inverse of XᵀWX as c → ∞", "I + (I − J)/(d − 1)", _largest(inverse - (centre * d / (d - 1)))),
        Comparison(
            "weight of v(S) on φⱼ, j ∈ S",
            "(d − s − 2)! (s − 1)! / d!",
            _largest((fit - printed[s])[member & (s <= d - 2)]),
            "(d − s)! (s − 1)! / d!",
            _largest((fit - inside[s])[member]),
        ),
        Comparison(
            "weight of v(S) on φⱼ, j ∉ S, S ≠ ∅",
            "−(d − s − 1)! s! / d!",
            _largest((fit - outside[s])[~member & (s > 0)]),
        ),
        Comparison(
            "(XᵀWX)⁻¹XᵀWy is the Shapley value",
            "y = v(S)",
            _largest(tables @ fit.T - exact),
            "y = v(S) − v(∅)",
            _largest((tables - tables[:, :1]) @ fit.T - exact),
        ),
    ]
    built = {
        "kernel_shap, all coalitions": kernel_shap(d, 2**d),
        "lime, Shapley kernel, ridge 0, all coalitions": lime(d, 2**d, kernel="shapley", ridge=0.0),
        "symmetric_least_squares, 1/C(d − 2, s − 1)": symmetric_least_squares(d, partial(shapley_weight, d)),
    }
    end_weights = 10.0 ** np.arange(0, 15)  # at 10^16 the matrix is singular in float64
    end_errors = []
    for large in end_weights:
        weight[-1] = large
        right = (X.T * weight) @ (tables - tables[:, :1]).T
        end_errors.append(_largest(np.linalg.solve(X.T @ (X * weight[:, None]), right).T - exact))
    return KernelProof(
        d,
        comparisons,
        {name: _largest(scores(design, tables) - exact) for name, design in built.items()},
        end_weights,
        np.array(end_errors),
    )


def shapley_weight(d: int, s: int) -> float:
    """q(s) = 1/C(d-2, s-1), with which least squares gives the Shapley value (Charnes et al. 1988)."""
    return 1 / comb(d - 2, s - 1)


# ------------------------------------------------------------------------------------------- any symmetric weight


@dataclass(frozen=True)
class SymmetricWeight:
    """One weight q(s): largest differences to the direct fit, and how far its scores are from others.

    closed: the solution as Pei prints it in (6); paired: the same as in (-1); design: `symmetric_least_squares`;
    to_shapley, to_banzhaf: root mean square difference in units of the Shapley values', Banzhaf up to a constant.
    """

    name: str
    closed: float
    paired: float
    design: float
    to_shapley: float
    to_banzhaf: float


def charnes(d: int = 7, games: int = 20, draws: int = 4, seed: int = 0) -> list[SymmetricWeight]:
    """The general solution of least squares with symmetric weights (Charnes et al. 1988; Pei 2018, (6) and (-1)).

    Named weights, then `draws` random ones, each against `constrained_least_squares` on random games.
    """
    d = whole("charnes", "d", d, 3)
    rng = _rng(seed, "charnes")
    tables = rng.normal(size=(games, 2**d))
    size = np.arange(1, d)
    weights = {
        "Shapley: 1/C(d − 2, s − 1)": np.array([shapley_weight(d, k) for k in size]),
        "all coalitions alike: 1": np.ones(d - 1),
        "ends only: s = 1 and d − 1": ((size == 1) | (size == d - 1)).astype(float),
        "middle sizes: C(d, s)": np.array([float(comb(d, k)) for k in size]),
    }
    weights |= {f"random {draw + 1}": rng.exponential(size=d - 1) for draw in range(draws)}
    exact, power = scores(shapley(d), tables), scores(banzhaf(d), tables)
    found = []
    for name, q in weights.items():
        direct = constrained_least_squares(tables, q)
        closed, paired = charnes_solution(tables, q)
        gap = direct - power
        found.append(
            SymmetricWeight(
                name,
                _largest(closed - direct),
                _largest(paired - direct),
                _largest(scores(symmetric_least_squares(d, q), tables) - direct),
                _rms(direct - exact) / _rms(exact),
                _rms(gap - gap.mean(axis=1, keepdims=True)) / _rms(exact),
            )
        )
    return found


def charnes_solution(tables: np.ndarray, q: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Scores (games, d) of tables (games, 2^d) for the weights q of sizes 1..d-1, as (6) and as (-1) of Pei 2018."""
    d = len(q) + 1
    X = all_coalitions(d, "charnes_solution").astype(float)
    s = X.sum(axis=1).astype(int)
    padded = np.r_[0.0, q, 0.0]  # q(0) and q(d) drop out of both forms
    scale = sum(comb(d - 2, k - 1) * padded[k] for k in range(1, d))
    even = (tables[:, -1:] - tables[:, :1]) / d
    weighed = tables * padded[s]
    closed = even + (weighed @ X - (weighed @ s)[:, None] / d) / scale
    paired = np.zeros_like(closed)
    rows = np.arange(2**d)
    for i in range(d):
        with_i = rows[X[:, i] == 1]
        k, without = s[with_i], with_i ^ (1 << i)
        terms = (d - k) / d * padded[k] * tables[:, with_i] - (k - 1) / d * padded[k - 1] * tables[:, without]
        paired[:, i] = terms.sum(axis=1)
    return closed, even + paired / scale


def constrained_least_squares(tables: np.ndarray, q: Sequence[float]) -> np.ndarray:
    """Minimum of sum q(s) (w(S) - v(S))^2 under w(N) = v(N) - v(empty), by orthogonal factors: no closed form used.

    tables (games, 2^d), q: weights of sizes 1..d-1 -> w (games, d).
    """
    d = len(q) + 1
    X = all_coalitions(d, "constrained_least_squares")[1:-1].astype(float)
    root = np.sqrt(np.asarray(q, dtype=float))[X.sum(axis=1).astype(int) - 1]
    even = np.repeat((tables[:, -1:] - tables[:, :1]) / d, d, axis=1)
    free = np.linalg.qr(np.column_stack([np.ones(d), np.eye(d)[:, 1:]]))[0][:, 1:]  # orthogonal to ones
    left = (X @ free) * root[:, None]
    right = (tables[:, 1:-1] - even @ X.T) * root
    return even + (free @ np.linalg.lstsq(left, right.T, rcond=None)[0]).T


# ------------------------------------------------------------------- L- and C-Shapley where all information is known


@dataclass(frozen=True)
class Approximation:
    """Theorems 1 and 2 of Chen et al. 2018 on one joint distribution; every entry of an array is a feature.

    errors: E|estimate - Shapley value| of each estimator. local, connected: the least epsilon, over all sets S inside
    the window that hold the feature, for which condition (8), or (8) and (10), hold. local_window, connected_window:
    the same for S = the whole window. shapley: E|Shapley value|.
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


def approximation(joint: np.ndarray, graph: networkx.Graph, order: int, score: str = "expected") -> Approximation:
    """Error of L- and C-Shapley and the epsilons that bound it, by enumeration (Chen et al. 2018, theorems 1 and 2).

    joint: (2^d, classes) strictly positive probabilities of binary features (bit j of the row is feature j) and class.
    The value of S at x is the theorems': E[log P(Y | x_S) | x] in nats, P(Y | x_S) the conditional of the joint itself,
    no reference; score "predicted" is log P(y | x_S) of the likeliest class instead, which the theorems do not cover.
    epsilon is the largest absolute conditional information E|log P(X_i, X_V | X_U, Y) / (P(X_i | X_U, Y) P(X_V | X_U,
    Y))|, and the same without Y, over the U and V of the condition.
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
    errors = {name: margin @ np.abs(scores(build(graph, order), tables) - exact) for name, build in ESTIMATORS.items()}
    bounds = np.array([_epsilons(joint, with_class, without, graph, node, order) for node in range(d)])
    return Approximation(errors, *bounds.T, shapley=margin @ np.abs(exact))


def _log_marginals(joint: np.ndarray) -> np.ndarray:
    """log P(x_S, y) of every S, (2^d, 2^d, classes), at every x."""
    d = joint.shape[0].bit_length() - 1
    cube = joint.reshape(*(2,) * d, -1)  # axis d - 1 - j is feature j
    tables = []
    for S in range(2**d):
        absent = tuple(d - 1 - j for j in range(d) if not S >> j & 1)
        tables.append(np.broadcast_to(cube.sum(axis=absent, keepdims=True), cube.shape).reshape(joint.shape))
    return np.log(tables)


def _epsilons(joint, with_class, without, graph: networkx.Graph, node: int, order: int) -> tuple[float, ...]:
    """(8) for the best S, (8) and (10) for the best S, and both for S = the window, of one feature."""
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
    sets = [S for S in range(2**d) if S & bit and S & ~window == 0]  # ascending: the window itself comes last
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
    """A Markov chain of d binary features and a class that reads every second one with noise, (2^d, classes).

    P(x) is proportional to exp(coupling * sum of x_j x_{j+1} + h.x) with x_j = -1 or 1; each class is one outcome of
    all readings. The features are a Markov chain, alone and given the class; independent, alone and given the class, at
    coupling 0. Fields h and noise are drawn from `seed`.
    """
    rng = _rng(seed, "chain model")
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

    chain: order -> one Approximation a coupling, the first at 0; predicted: the same with the score of the predicted
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
    chain, rng = graphs.chain(d), _rng(seed, "random joints")
    random = []
    for number in range(joints):
        graph = (graphs.chain(5), graphs.grid(2, 3))[number % 2]
        d_here = graph.number_of_nodes()
        # Concentrations from even to nearly deterministic; the floor keeps every probability positive.
        drawn = rng.gamma(10.0 ** rng.uniform(-0.7, 1), size=(2**d_here, 3)) + 1e-12
        random.append(approximation(drawn / drawn.sum(), graph, 1))
    return Sweep(
        d,
        couplings,
        {order: [approximation(model, chain, order) for model in models] for order in (1, 2)},
        {order: [approximation(model, chain, order, "predicted") for model in models] for order in (1, 2)},
        random,
    )


def lemma_1(largest: int = 12) -> float:
    """Largest relative discrepancy of lemma 1 (Chen et al. 2018, (13)) over n, s, t <= largest, s >= t, n >= 1."""
    worst = 0.0
    for n in range(1, largest + 1):
        for s in range(largest + 1):
            for t in range(s + 1):
                left = sum(comb(n, j) / comb(n + s, j + t) for j in range(n + 1))
                right = (s + 1 + n) / ((s + 1) * comb(s, t))
                worst = max(worst, abs(left / right - 1))
    return worst


# ------------------------------------------------------------------------------------------ C-Shapley and Myerson


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
    return [_myerson_gap(name, graph, _rng(seed, name), games) for name, graph in named.items()]


def _myerson_gap(name: str, graph: networkx.Graph, rng: np.random.Generator, games: int) -> MyersonGap:
    d = graph.number_of_nodes()
    tables = additive_over_components(graph, rng.normal(size=(games, 2**d)))
    exact = scores(shapley(d), tables)  # the Myerson value, by its definition
    scale = _rms(exact)
    return MyersonGap(
        name,
        _largest(scores(c_shapley(graph, d, "myerson"), tables) - exact) / scale,
        _rms(scores(c_shapley(graph, d, "paper"), tables) - exact) / scale,
        _largest(scores(myerson(graph), tables) - exact) / scale,
        linear_share(graph, d, "paper"),
    )


def additive_over_components(graph: networkx.Graph, tables: np.ndarray) -> np.ndarray:
    """The games of Myerson 1977: the sum over the components T of a coalition of v(T) - v(empty), (games, 2^d)."""
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


def linear_share(graph: networkx.Graph, order: int, weights: str = "paper") -> np.ndarray:
    """What C-Shapley gives each feature of a linear model, as a share of the feature's own term, (d,); 1 is right."""
    design = c_shapley(graph, order, weights)
    return np.asarray(design.readout.multiply(design.masks.T).sum(axis=1)).ravel()


# ---------------------------------------------------------------------------------------------------- efficiency


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
    rng = _rng(seed, "efficiency")
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
    return _rms(scores(design, tables).sum(axis=1) - total) / _rms(total)


# ------------------------------------------------------------------------------------------------------- Banzhaf


@dataclass(frozen=True)
class BanzhafIdentity:
    """Theorem 6.1 for n features: the constant printed, the constant measured, and the largest relative discrepancy."""

    n: int
    printed: float
    measured: float
    discrepancy: float


def banzhaf_identity(largest: int = 8, seed: int = 0) -> list[BanzhafIdentity]:
    """MIM in a cooperative game is a multiple of the Banzhaf value (Sliwinski et al. 2019, (9) and theorem 6.1).

    The sum over S without i and T with i of (v(T) - v(S)) / |S Δ T| against 2^n (2^n - 1)/n times the Banzhaf value
    normalised by 2^-n, half of `designs.banzhaf`.
    """
    found = []
    for n in range(1, largest + 1):
        game = _rng(seed, f"banzhaf {n}").normal(size=2**n)
        rows, half = np.arange(2**n), scores(banzhaf(n), game) / 2
        summed = np.empty(n)
        for i in range(n):
            T, S = rows[rows >> i & 1 == 1][:, None], rows[rows >> i & 1 == 0]
            summed[i] = ((game[T] - game[S]) / np.bitwise_count(S ^ T)).sum()
        constant = 2**n * (2**n - 1) / n
        found.append(
            BanzhafIdentity(
                n, constant, float(summed @ half / (half @ half)), _largest(summed - constant * half) / _largest(summed)
            )
        )
    return found


# ----------------------------------------------------------------------------------------------------- everything


@dataclass(frozen=True)
class Checks:
    """All checks of the theory report, made by `check_all`."""

    seed: int
    kernel: KernelProof
    charnes: list[SymmetricWeight]
    lemma_1: float
    sweep: Sweep
    myerson: list[MyersonGap]
    efficiency: list[Efficiency]
    banzhaf: list[BanzhafIdentity]
    hierarchy: Hierarchy


def check_all(seed: int = 0) -> Checks:
    """Every check at the size of the report; a few seconds. Every random draw comes from `seed`."""
    return Checks(
        seed,
        kernel_proof(seed=seed),
        charnes(seed=seed),
        lemma_1(),
        sweep(seed=seed),
        myerson_gaps(seed=seed),
        efficiency(seed=seed),
        banzhaf_identity(seed=seed),
        hierarchy(seed=seed),
    )
