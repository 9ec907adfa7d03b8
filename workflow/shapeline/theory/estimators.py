"""Estimators of the Shapley value: least squares, and the errors of L- and C-Shapley.

Least squares: Lundberg (2017); Charnes et al. (1988). L- and C-Shapley: Chen et al. (2018), theorems 1 and 2.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb, factorial

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs.design import Design, check_integer, enumerate_coalitions, kernel_weight
from shapeline.designs.exact import banzhaf, shapley
from shapeline.designs.local import c_shapley, l_shapley
from shapeline.designs.sampled import kernel_shap
from shapeline.designs.surrogate import lime, symmetric_least_squares
from shapeline.seeds import seed_of

FULL_WEIGHT = 1e3  # weight of the full coalition, instead of the kernel's infinite weight
END_WEIGHTS = 10.0 ** np.arange(0, 15)  # at 10^16 the matrix is singular in float64
ROUNDING = 1e-9  # discrepancies below this are float64 rounding, in games with values of order 1


def compare_formula(formula: str, printed: str, error: float, corrected: str = "", rest: float | None = None) -> dict:
    """Return a formula as printed and as corrected ("" if it is right as printed), with its largest discrepancies."""
    return {"formula": formula, "as printed": printed, "": error, "corrected": corrected, " ": rest}


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


def approximate(
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
    with_class, without = _compute_log_marginals(joint), _compute_log_marginals(margin[:, None])
    log_class = with_class - without  # log P(y | x_S): (S, x, y)
    if score == "expected":
        tables = np.einsum("xy,sxy->xs", joint / margin[:, None], log_class)
    else:
        tables = log_class[:, np.arange(2**d), joint.argmax(axis=1)].T
    exact = scores(shapley(d), tables)
    designs = _build_designs(d, tuple(sorted(graph.edges)), order)
    errors = {name: margin @ np.abs(scores(design, tables) - exact) for name, design in designs.items()}
    size = margin @ np.abs(exact)
    if bounds is not None:
        return replace(bounds, errors=errors, shapley=size)
    found = np.array([_compute_epsilons(joint, with_class, without, graph, node, order) for node in range(d)])
    return Approximation(errors, *found.T, shapley=size)


@functools.lru_cache(maxsize=16)
def _build_designs(d: int, edges: tuple[tuple[int, int], ...], order: int) -> dict[str, Design]:
    """Return the design of each estimator on a graph; cached, since a sweep uses few designs for many distributions."""
    graph = networkx.Graph(edges)
    graph.add_nodes_from(range(d))
    return {name: build(graph, order) for name, build in ESTIMATORS.items()}


def _compute_log_marginals(joint: np.ndarray) -> np.ndarray:
    """Return log P(x_S, y) of every S, (2^d, 2^d, classes), at every x."""
    d = joint.shape[0].bit_length() - 1
    cube = joint.reshape(*(2,) * d, -1)  # axis d - 1 - j is feature j
    tables = []
    for S in range(2**d):
        absent = tuple(d - 1 - j for j in range(d) if not S >> j & 1)
        tables.append(np.broadcast_to(cube.sum(axis=absent, keepdims=True), cube.shape).reshape(joint.shape))
    return np.log(tables)


def _compute_epsilons(joint, with_class, without, graph: networkx.Graph, node: int, order: int) -> tuple[float, ...]:
    """Return epsilons of one feature: (8) for the best S, (8) and (10) for the best S, and both for S = the window."""
    d = graph.number_of_nodes()
    U, V = np.meshgrid(np.arange(2**d), np.arange(2**d), indexing="ij")
    bit = 1 << node
    disjoint = (U & V == 0) & (U & bit == 0) & (V & bit == 0) & (V > 0)
    U, V = U[disjoint], V[disjoint]

    def information(log_p: np.ndarray, weight: np.ndarray) -> np.ndarray:
        ratio = log_p[U | V | bit] + log_p[U] - log_p[U | bit] - log_p[U | V]
        return np.abs(ratio, out=ratio).reshape(len(U), -1) @ weight.ravel()

    known = np.maximum(information(with_class, joint), information(without, joint.sum(axis=1)))

    def find_largest(which: np.ndarray) -> float:
        return float(known[which].max(initial=0.0))

    def pack(nodes) -> int:
        return sum(1 << member for member in nodes)

    closed = [pack([member, *graph.adj[member]]) for member in range(d)]
    window = pack(graphs.neighborhood(graph, node, order))
    sets = [S for S in range(2**d) if S & bit and S & ~window == 0]  # ascending, so the window is last
    local, connected = [], []
    for S in sets:
        local.append(find_largest((U & ~S == 0) & (V & S == 0)))
        inside = [member for member in range(d) if S >> member & 1]
        conditions = [local[-1]]
        for subset in graphs.connected_subsets(graph, node, inside):
            neighbourhood = int(np.bitwise_or.reduce([closed[member] for member in subset]))
            conditions.append(find_largest((U == pack(subset) & ~bit) & (V & neighbourhood == 0)))
        connected.append(max(conditions))
    return min(local), min(connected), local[-1], connected[-1]


def build_chain(coupling: float, d: int = 6, seed: int = 0) -> np.ndarray:
    """Return (2^d, classes) of a Markov chain of d binary features; the class depends on every second one with noise.

    P(x) is proportional to exp(coupling * sum of x_j x_{j+1} + h.x), x_j = -1 or 1; independent at coupling 0.
    """
    rng = generator(seed, "chain model")
    features = enumerate_coalitions(d, "chain_model")
    sign = 2.0 * features - 1
    energy = coupling * (sign[:, 1:] * sign[:, :-1]).sum(axis=1) + sign @ rng.uniform(-0.4, 0.4, d)
    margin = np.exp(energy - energy.max())
    read = features[:, ::2]
    outcomes = enumerate_coalitions(read.shape[1], "chain_model")
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
    """Run `approximate` over couplings 0 to 2 with windows of order 1 and 2, and over random joints with order 1."""
    couplings = np.array([0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2])
    models = [build_chain(coupling, d, seed) for coupling in couplings]
    chain, rng = graphs.chain(d), generator(seed, "random joints")
    random = []
    for number in range(joints):
        graph = (graphs.chain(5), graphs.grid(2, 3))[number % 2]
        d_here = graph.number_of_nodes()
        # Concentrations from even to nearly deterministic; the floor keeps every probability positive.
        drawn = rng.gamma(10.0 ** rng.uniform(-0.7, 1), size=(2**d_here, 3)) + 1e-12
        random.append(approximate(drawn / drawn.sum(), graph, 1))
    plain = {order: [approximate(model, chain, order) for model in models] for order in (1, 2)}
    predicted = {
        order: [approximate(model, chain, order, "predicted", same) for model, same in zip(models, runs, strict=True)]
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


@dataclass(frozen=True)
class KernelProof:
    """The kernel proof for d features: its formulas, the designs that use it, and a finite weight on v(N).

    designs: largest difference of each to `designs.shapley`; end_weights and end_errors: the weight on the full
    coalition and the largest error of the scores (values are of order 1). condition: of XᵀWX; times the precision of
    float64 it bounds the rounding of the comparisons.
    """

    d: int
    comparisons: list[dict]
    designs: dict[str, float]
    end_weights: np.ndarray
    end_errors: np.ndarray
    condition: float


def kernel_proof(d: int = 8, games: int = 50, seed: int = 0) -> KernelProof:
    """Check the formulas of "Shapley Kernel Proof" (Lundberg 2017) with linear algebra over 2^d coalitions; d >= 4."""
    d = check_integer("kernel_proof", "d", d, 4)
    X = enumerate_coalitions(d, "kernel_proof").astype(float)
    weight = np.zeros(2**d)
    weight[1:-1] = kernel_weight(d, X[1:-1].sum(axis=1).astype(int))
    weight[-1] = FULL_WEIGHT
    gram = X.T @ (X * weight[:, None])
    centre = np.eye(d) - 1 / d
    # As c grows, the inverse of a I + c J tends to the inverse on the null space of J: vectors of sum 0.
    inverse = np.linalg.pinv(centre @ gram @ centre)
    fit = inverse @ (X.T * weight)
    fit[:, -1] = 1 / d  # in the limit, the full coalition is divided equally among the scores
    tables = generator(seed, "kernel").normal(size=(games, 2**d))
    exact = scores(shapley(d), tables)
    built = {
        "kernel_shap, all coalitions": kernel_shap(d, 2**d),
        "lime, Shapley kernel, ridge 0, all coalitions": lime(d, 2**d, kernel="shapley", ridge=0.0),
        "symmetric_least_squares, 1/C(d − 2, s − 1)": symmetric_least_squares(d, partial(shapley_weight, d)),
    }
    return KernelProof(
        d,
        [*_compare_matrix(gram, inverse), *_compare_weights(X, fit), _compare_games(tables, fit, exact)],
        {name: largest(scores(design, tables) - exact) for name, design in built.items()},
        END_WEIGHTS,
        _compute_end_errors(X, weight, tables, exact),
        float(np.linalg.cond(gram)),
    )


def _compare_matrix(gram: np.ndarray, inverse: np.ndarray) -> list[dict]:
    """Compare the printed formulas of XᵀWX = a I + c J, gram (d, d), and of its inverse as c grows."""
    d = len(gram)
    identity = (np.diag(gram)[:, None] - gram)[~np.eye(d, dtype=bool)]  # a, for every entry
    limit = (np.eye(d) - 1 / d) * d / (d - 1)
    return [
        compare_formula(
            "coefficient of I in XᵀWX = a I + cJ",
            "1/(d − 1)",
            largest(identity - 1 / (d - 1)),
            "(d − 1)/d",
            largest(identity - (d - 1) / d),
        ),
        compare_formula("inverse of XᵀWX as c → ∞", "I + (I − J)/(d − 1)", largest(inverse - limit)),
    ]


def _compare_weights(X: np.ndarray, fit: np.ndarray) -> list[dict]:
    """Compare the printed weight of each v(S) in each score with fit (d, 2^d) of coalitions X (2^d, d)."""
    d, s = X.shape[1], X.sum(axis=1).astype(int)
    size = np.arange(d + 1)
    count = np.array([factorial(k) for k in size])
    outside = -count[np.maximum(d - size - 1, 0)] * count / count[d]
    printed = count[np.maximum(d - size - 2, 0)] * count[np.maximum(size - 1, 0)] / count[d]
    inside = count[d - size] * count[np.maximum(size - 1, 0)] / count[d]
    member = X.T == 1
    return [
        compare_formula(
            "weight of v(S) on φⱼ, j ∈ S",
            "(d − s − 2)! (s − 1)! / d!",
            largest((fit - printed[s])[member & (s <= d - 2)]),
            "(d − s)! (s − 1)! / d!",
            largest((fit - inside[s])[member]),
        ),
        compare_formula(
            "weight of v(S) on φⱼ, j ∉ S, S ≠ ∅",
            "−(d − s − 1)! s! / d!",
            largest((fit - outside[s])[~member & (s > 0)]),
        ),
    ]


def _compare_games(tables: np.ndarray, fit: np.ndarray, exact: np.ndarray) -> dict:
    """Compare the printed scores of games, tables (games, 2^d), with their Shapley values (games, d)."""
    return compare_formula(
        "(XᵀWX)⁻¹XᵀWy is the Shapley value",
        "y = v(S)",
        largest(tables @ fit.T - exact),
        "y = v(S) − v(∅)",
        largest((tables - tables[:, :1]) @ fit.T - exact),
    )


def _compute_end_errors(X: np.ndarray, weight: np.ndarray, tables: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the largest error of the scores per weight of the full coalition, END_WEIGHTS."""
    errors = []
    for large in END_WEIGHTS:
        weight = np.r_[weight[:-1], large]
        right = (X.T * weight) @ (tables - tables[:, :1]).T
        errors.append(largest(np.linalg.solve(X.T @ (X * weight[:, None]), right).T - exact))
    return np.array(errors)


def shapley_weight(d: int, s: int) -> float:
    """Return q(s) = 1/C(d-2, s-1), with which least squares gives the Shapley value (Charnes et al. 1988)."""
    return 1 / comb(d - 2, s - 1)


def charnes(d: int = 7, games: int = 20, random_weights: int = 4, seed: int = 0) -> list[dict]:
    """Check least squares with symmetric weights (Charnes et al. 1988), named and `random_weights` random ones.

    A row per weight: largest differences to the direct fit, of the solution as Pei prints it in (6) and in (-1) and of
    `symmetric_least_squares`; root mean square distances, in units of the Shapley values.
    """
    d = check_integer("charnes", "d", d, 3)
    rng = generator(seed, "charnes")
    tables = rng.normal(size=(games, 2**d))
    size = np.arange(1, d)
    weights = {
        "Shapley: 1/C(d − 2, s − 1)": np.array([shapley_weight(d, k) for k in size]),
        "all coalitions alike: 1": np.ones(d - 1),
        "ends only: s = 1 and d − 1": ((size == 1) | (size == d - 1)).astype(float),
        "middle sizes: C(d, s)": np.array([float(comb(d, k)) for k in size]),
    }
    weights |= {f"random {number + 1}": rng.exponential(size=d - 1) for number in range(random_weights)}
    exact, power = scores(shapley(d), tables), scores(banzhaf(d), tables)
    solved = []
    for name, q in weights.items():
        direct = constrained_least_squares(tables, q)
        closed, paired = charnes_solution(tables, q)
        gap = direct - power
        solved.append(
            {
                "weight q(s)": name,
                "form (6)": largest(closed - direct),
                "form (−1)": largest(paired - direct),
                "symmetric_least_squares": largest(scores(symmetric_least_squares(d, q), tables) - direct),
                "distance to Shapley": rms(direct - exact) / rms(exact),
                "distance to Banzhaf + constant": rms(gap - gap.mean(axis=1, keepdims=True)) / rms(exact),
            }
        )
    return solved


def charnes_solution(tables: np.ndarray, q: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (games, d) of tables (games, 2^d) for weights q of sizes 1..d-1, by (6) and (-1) of Pei 2018."""
    d = len(q) + 1
    X = enumerate_coalitions(d, "charnes_solution").astype(float)
    s = X.sum(axis=1).astype(int)
    padded = np.r_[0.0, q, 0.0]  # q(0) and q(d) cancel in both forms
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
    """Return the minimum w (games, d) of sum q(s) (w(S) - v(S))^2 under w(N) = v(N) - v(empty)."""
    d = len(q) + 1
    X = enumerate_coalitions(d, "constrained_least_squares")[1:-1].astype(float)
    root = np.sqrt(np.asarray(q, dtype=float))[X.sum(axis=1).astype(int) - 1]
    even = np.repeat((tables[:, -1:] - tables[:, :1]) / d, d, axis=1)
    free = np.linalg.qr(np.column_stack([np.ones(d), np.eye(d)[:, 1:]]))[0][:, 1:]  # orthogonal to ones
    left = (X @ free) * root[:, None]
    right = (tables[:, 1:-1] - even @ X.T) * root
    return even + (free @ np.linalg.lstsq(left, right.T, rcond=None)[0]).T
