"""Short statements of the papers, each computed two ways, and every statement of the theory page, checked.

The Banzhaf identity is theorem 6.1 of Sliwinski et al. (2019).
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import networkx
import numpy as np

from shapeline import graphs
from shapeline.designs.design import Design, enumerate_coalitions
from shapeline.designs.exact import banzhaf, myerson, occlusion, shapley
from shapeline.designs.local import c_shapley, c_shapley_regression, l_shapley
from shapeline.designs.sampled import kernel_shap, sample_shapley
from shapeline.designs.surrogate import lime, symmetric_least_squares
from shapeline.seeds import seed_of
from shapeline.theory.estimators import (
    KernelProof,
    Sweep,
    additive_over_components,
    charnes,
    generator,
    kernel_proof,
    largest,
    lemma_1,
    rms,
    scores,
    sweep,
)
from shapeline.theory.estimators import largest as magnitude
from shapeline.theory.visited_nodes import Hierarchy, simulate_hierarchy

AXIOMS = ("shift", "rotation", "flip", "non-bias", "lemma 4.1")
Term = Callable[[np.ndarray, np.ndarray, np.ndarray, float, np.ndarray], np.ndarray]


def measure_linear_share(graph: networkx.Graph, order: int, weights: str = "paper") -> np.ndarray:
    """Return C-Shapley's score of each feature of a linear model, as a share of its term, (d,); 1 is right."""
    design = c_shapley(graph, order, weights)
    return np.asarray(design.readout.multiply(design.masks.T).sum(axis=1)).ravel()


def check_efficiency(side: int = 9, games: int = 200, seed: int = 0) -> list[dict]:
    """Check which estimators sum to v(N) - v(empty), on games on a chain: any, additive over components, linear.

    A row per estimator: per kind of game the root mean square of sum(scores) - (v(N) - v(empty)), in units of that of
    v(N) - v(empty).
    """
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
    kinds = {
        "any game": free,
        "additive over components": additive_over_components(chain, free),
        "linear": 1 + rng.normal(size=(games, d)) @ enumerate_coalitions(d, "efficiency").T,
    }

    def gap(design: Design, tables: np.ndarray) -> float:
        total = tables[:, -1] - tables[:, 0]
        return rms(scores(design, tables).sum(axis=1) - total) / rms(total)

    return [
        {
            "estimator": name,
            "evaluations": design.evaluations,
            **{kind: gap(design, tables) for kind, tables in kinds.items()},
        }
        for name, design in built.items()
    ]


def check_banzhaf_identity(largest: int = 8, seed: int = 0) -> list[dict]:
    """Compare MIM in a game with 2^n (2^n - 1)/n times the normalised Banzhaf value (theorem 6.1), a row per n."""
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
            {
                "n": n,
                "constant as printed, 2ⁿ(2ⁿ − 1)/n": constant,
                "constant measured": float(summed @ half / (half @ half)),
                "largest relative discrepancy": magnitude(summed - constant * half) / magnitude(summed),
            }
        )
    return identities


def measure_myerson_gaps(games: int = 50, seed: int = 0) -> list[dict]:
    """Compare C-Shapley of order d with the Myerson value on small graphs (Chen et al. 2018, §4.2 and eq. 6).

    On random games additive over components, in units of the Myerson values' root mean square. The share (d,) is the
    score by eq. 6 of each feature of a linear model, as a share of its term; 1 is right.
    """
    graph_of = {
        "chain of 9": graphs.chain(9),
        "cycle of 9": networkx.cycle_graph(9),
        "star of 9": networkx.star_graph(8),
        "random tree of 9": networkx.random_labeled_tree(9, seed=seed_of("theory", seed, "tree") % 2**32),
        "grid 3 × 3": graphs.grid(3, 3),
        "complete graph of 6": networkx.complete_graph(6),
    }
    return [_measure_myerson_gap(name, graph, generator(seed, name), games) for name, graph in graph_of.items()]


def _measure_myerson_gap(name: str, graph: networkx.Graph, rng: np.random.Generator, games: int) -> dict:
    d = graph.number_of_nodes()
    tables = additive_over_components(graph, rng.normal(size=(games, 2**d)))
    exact = scores(shapley(d), tables)  # the Myerson value, by its definition
    scale = rms(exact)
    return {
        "graph": name,
        "Myerson weights: largest difference": largest(scores(c_shapley(graph, d, "myerson"), tables) - exact) / scale,
        "designs.myerson: largest difference": largest(scores(myerson(graph), tables) - exact) / scale,
        "eq. 6: root mean square difference": rms(scores(c_shapley(graph, d, "paper"), tables) - exact) / scale,
        "eq. 6: share of a linear model's term": measure_linear_share(graph, d, "paper"),
    }


def _build_mim(alpha: Callable) -> Term:
    return lambda away, r, s, label, x: (alpha(r) * s) @ away


# Arguments: differences (m, n) to the point, their lengths, label agreement (1 or -1), the point's label, and x.
MIM: dict[str, Term] = {
    "α = 1": _build_mim(np.ones_like),
    "α = 1/r": _build_mim(lambda r: 1 / r),
    "α = 1/r²": _build_mim(lambda r: 1 / r**2),
    "α Gaussian": _build_mim(lambda r: np.exp(-(r**2) / 2)),
}
OTHERS: dict[str, Term] = {
    "differences, regardless of labels": lambda away, r, s, label, x: away.sum(0),
    "MIM for points of one label only": lambda away, r, s, label, x: (label > 0) * (s @ away),
    "points instead of differences": lambda away, r, s, label, x: s @ (away + x),
    "features with different scales": lambda away, r, s, label, x: s @ away * np.arange(1, away.shape[1] + 1),
    "signed squared differences": lambda away, r, s, label, x: s @ (away * np.abs(away)),
    "mean instead of sum": lambda away, r, s, label, x: s @ away / len(s),
    "nearest point only": lambda away, r, s, label, x: s[r.argmin()] * away[r.argmin()],
    "points weighted by density": lambda away, r, s, label, x: (
        (s * np.exp(-((away[:, None] - away) ** 2).sum(-1) / 2).sum(1)) @ away
    ),
    "points weighted by label agreement": lambda away, r, s, label, x: (s * (s[:, None] == s).mean(1)) @ away,
    "MIM at length 1": lambda away, r, s, label, x: s @ away / np.linalg.norm(s @ away),
    "Parzen": lambda away, r, s, label, x: _compute_parzen(away, r, s),
    "ridge regression on the labels": lambda away, r, s, label, x: np.linalg.solve(
        away.T @ away + np.eye(away.shape[1]), s @ away
    ),
}


@dataclass(frozen=True)
class Search:
    """The result of the search: the largest violation by MIM's terms, and the smallest by a sum of other terms.

    mim: largest, over terms of length 1. others: smallest over sums with coefficients of length 1, plus any of MIM's.
    broken: other term -> the axioms that it violates.
    """

    mim: float
    others: float
    broken: dict[str, tuple[str, ...]]


def run_search(points: int = 4, n: int = 3, data_sets: int = 30, seed: int = 0) -> Search:
    """Test every axiom for every term on random data sets of x and `points` more in n features; takes a second."""
    random = generator(seed, "uniqueness")
    parts: dict[str, list[np.ndarray]] = {axiom: [] for axiom in AXIOMS}
    sizes = []
    for _ in range(data_sets):
        X, labels = random.normal(size=(points + 1, n)), random.choice([-1.0, 1.0], points + 1)
        before = _compute_terms(X, labels)
        sizes.append(before)
        rotation = np.linalg.qr(random.normal(size=(n, n)))[0]
        new = random.normal(size=n)
        direction = (new - X[0]) / np.linalg.norm(new - X[0])
        change = _compute_terms(np.vstack([X, new]), np.append(labels, random.choice([-1.0, 1.0]))) - before
        labellings = [np.array([labels[0], *others]) for others in itertools.product((-1.0, 1.0), repeat=points)]
        parts["shift"].append(_compute_terms(X + random.normal(size=n), labels) - before)
        parts["rotation"].append(_compute_terms(X @ rotation, labels) - rotation.T @ before)
        parts["flip"].append(_compute_terms(X, -labels) - before)
        parts["non-bias"].append(np.mean([_compute_terms(X, labelling) for labelling in labellings], axis=0))
        parts["lemma 4.1"].append(change - np.outer(direction, direction @ change))
    size = np.sqrt(np.mean(np.concatenate(sizes) ** 2, axis=0))
    systems = {axiom: np.concatenate(rows) / size / np.sqrt(n * data_sets) for axiom, rows in parts.items()}
    norms = {axiom: np.linalg.norm(rows, axis=0) for axiom, rows in systems.items()}
    system, first = np.concatenate(list(systems.values())), len(MIM)
    broken = {
        name: tuple(axiom for axiom in AXIOMS if norms[axiom][first + index] > 1e-9)
        for index, name in enumerate(OTHERS)
    }
    least = np.linalg.svd(system[:, first:], compute_uv=False).min()
    return Search(float(np.linalg.norm(system[:, :first], axis=0).max()), float(least), broken)


def check_lemma_4_1(points: int = 12, n: int = 4, tries: int = 200, seed: int = 0) -> float:
    """Return the largest change of MIM by a new point off y - x, or against its label (lemma 4.1); 0 without one."""
    random = generator(seed, "lemma 4.1")
    worst = 0.0
    for _ in range(tries):
        X, labels = random.normal(size=(points, n)), random.choice([-1.0, 1.0], points)
        moved = _compute_terms(X, labels)[:, : len(MIM)] - _compute_terms(X[:-1], labels[:-1])[:, : len(MIM)]
        toward = labels[0] * labels[-1] * (X[-1] - X[0]) / np.linalg.norm(X[-1] - X[0])
        worst = max(worst, np.abs(moved - np.outer(toward, np.maximum(toward @ moved, 0))).max())
    return float(worst)


def _compute_terms(X: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return all terms at the first point as columns (n, terms); labels -1 and 1."""
    away = X[1:] - X[0]
    r, s = np.linalg.norm(away, axis=1), labels[1:] * labels[0]
    return np.stack([term(away, r, s, labels[0], X[0]) for term in (*MIM.values(), *OTHERS.values())], axis=1)


def _compute_parzen(away: np.ndarray, r: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return the slope of the share of the point's label, with weight 1 for the point."""
    weights = np.exp(-(r**2) / 2)
    share = (1 + weights @ (s > 0)) / (1 + weights.sum())
    return (weights * ((s > 0) - share)) @ away / (1 + weights.sum())


def check_identities(seed: int = 0) -> dict[tuple[str, str], float]:
    """Return the largest discrepancy of each short statement, by statement and source; takes a second."""
    expectations = check_expectations(seed)
    return {
        ("Monotonicity of the Shapley value (Young 1985)", "Chen et al. 2018"): check_monotonicity(seed=seed),
        ("Lemma 4.1: a new point y moves MIM along y − x", "Sliwinski et al. 2019"): check_lemma_4_1(seed=seed),
        ("Lemma 5.2: a sum of cosines is one cosine", "Sliwinski et al. 2019"): check_cosines(seed=seed),
        ("Theorem 5.1: MIM is the best direction", "Sliwinski et al. 2019"): check_optimum(seed=seed),
        ("Remark 3.3: k equal features share 1/k", "Teneggi et al. 2021"): check_equal_shares(),
        ("(7) = (8): features are independent", "Pei 2018"): expectations["independent"],
        ("(8) = (9): the model is linear", "Pei 2018"): expectations["linear"],
        ("(7) = (9): both", "Pei 2018"): expectations["both"],
    }


def check_cosines(points: int = 12, n: int = 4, directions: int = 200, seed: int = 0) -> float:
    """Compare the sum of f(y) cos(y, φ) with |z| cos(φ, z), z = Σ f(y) y/|y| (Sliwinski et al. 2019, lemma 5.2)."""
    random = generator(seed, "cosines")
    y, f, phi = random.normal(size=(points, n)), random.normal(size=points), random.normal(size=(directions, n))
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    size = np.linalg.norm(phi, axis=1)
    z = f @ unit
    return largest(phi @ unit.T @ f / size - np.linalg.norm(z) * (phi @ z) / (size * np.linalg.norm(z)))


def check_optimum(points: int = 30, n: int = 4, directions: int = 20_000, seed: int = 0) -> float:
    """Return the largest excess over MIM of random directions, and of ones near MIM, in MIM's objective.

    The objective is Σ α₀(|y − x|) cos(y − x, φ) s with α₀(r) = r α(r) (Sliwinski et al. 2019, theorem 5.1), for three
    α; 0 where no direction exceeds it.
    """
    random = generator(seed, "optimum")
    X, labels = random.normal(size=(points, n)), random.integers(0, 2, points)
    away = X[1:] - X[0]
    r, s = np.linalg.norm(away, axis=1), np.where(labels[1:] == labels[0], 1.0, -1.0)
    worst = 0.0
    for alpha in (np.ones_like(r), 1 / r, 1 / r**2):
        best = sum_influence(away, alpha * s)
        neighbours = best + np.linalg.norm(best) * 0.01 * random.normal(size=(directions // 2, n))
        candidates = np.concatenate([neighbours, random.normal(size=(directions // 2, n))])
        contributions = away / r[:, None] * (r * alpha * s)[:, None]
        objective = (candidates @ contributions.sum(0)) / np.linalg.norm(candidates, axis=1)
        worst = max(worst, objective.max() - best @ contributions.sum(0) / np.linalg.norm(best))
    return float(worst)


def sum_influence(away: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return eq. 2 of Sliwinski et al. (2019), written out: differences (m, n), summed with weights (m,)."""
    return weights @ away


def check_equal_shares(d: int = 9) -> float:
    """Compare Shapley values of "any of k features is kept" with 1/k on these (Teneggi et al. 2021, remark 3.3)."""
    masks = enumerate_coalitions(d, "equal_shares")
    games = np.stack([masks[:, :k].any(axis=1) for k in range(1, d + 1)]).astype(float)
    shares = np.tril(np.ones((d, d))) / np.arange(1, d + 1)[:, None]
    return largest(scores(shapley(d), games) - shares)


def check_monotonicity(d: int = 6, games: int = 200, seed: int = 0) -> float:
    """Return the largest decrease of a Shapley value whose marginal contributions do not decrease (Young 1985)."""
    random = generator(seed, "monotone")
    masks = enumerate_coalitions(d, "monotone")
    before, added = random.normal(size=(2, games, 2**d))
    without = np.flatnonzero(~masks[:, 0])
    added[:, without + 1] = added[:, without] + np.abs(added[:, without + 1])  # row r + 1 has feature 0 too
    gained = scores(shapley(d), before + added) - scores(shapley(d), before)
    return float(max(0.0, -gained[:, 0].min()))


def check_expectations(seed: int = 0, d: int = 4) -> dict[str, float]:
    """Compare v(S) as conditional (7), marginal (8) and plug-in (9) expectation, d binary features (Pei 2018).

    The largest differences. independent: (7) and (8), independent features; dependent: the same for dependent ones.
    linear: (8) and (9), a linear model; curved: the same for a nonlinear one. both: (7) and (9).
    """
    random = generator(seed, "expectations")
    points = enumerate_coalitions(d, "expectations").astype(float)
    chance = random.uniform(0.2, 0.8, d)
    apart = np.where(points == 1, chance, 1 - chance).prod(axis=1)
    joint = random.dirichlet(np.ones(2**d))
    weights = random.normal(size=d)

    def linear(z: np.ndarray) -> np.ndarray:
        return z @ weights

    def curve(z: np.ndarray) -> np.ndarray:
        return np.tanh(2 * z @ weights) + z[:, 0] * z[:, 1]

    def gap(first, second, law: np.ndarray, model) -> float:
        return largest(first(points, law, model) - second(points, law, model))

    return {
        "independent": gap(_condition, _marginalise, apart, curve),
        "dependent": gap(_condition, _marginalise, joint, curve),
        "linear": gap(_marginalise, _impute_mean, joint, linear),
        "curved": gap(_marginalise, _impute_mean, joint, curve),
        "both": gap(_condition, _impute_mean, apart, linear),
    }


def _condition(points: np.ndarray, law: np.ndarray, model) -> np.ndarray:
    """Return E(f(z) | z_S = x_S) for every S and x = (1, ..., 1), (2^d,)."""
    agree = (points[None] == 1) | (points[:, None] == 0)  # of coalition and point, each feature
    weight = agree.all(axis=2) * law
    return weight @ model(points) / weight.sum(axis=1)


def _marginalise(points: np.ndarray, law: np.ndarray, model) -> np.ndarray:
    """Return E f(x_S, z) over the marginal distribution of z without S, (2^d,)."""
    return np.array([law @ model(np.where(coalition == 1, 1.0, points)) for coalition in points])


def _impute_mean(points: np.ndarray, law: np.ndarray, model) -> np.ndarray:
    """Return f(x_S, E z), (2^d,)."""
    return model(np.where(points == 1, 1.0, law @ points))


@dataclass(frozen=True)
class Checks:
    """The results of all checks of the theory report, from `check_all`."""

    seed: int
    kernel: KernelProof
    charnes: list[dict]
    lemma_1: float
    sweep: Sweep
    myerson: list[dict]
    efficiency: list[dict]
    banzhaf: list[dict]
    hierarchy: Hierarchy
    identities: dict[tuple[str, str], float]
    expectations: dict[str, float]
    uniqueness: Search


def check_all(seed: int = 0) -> Checks:
    """Run every check at the size of the report, in a few seconds; `seed` determines all random samples."""
    return Checks(
        seed,
        kernel_proof(seed=seed),
        charnes(seed=seed),
        lemma_1(),
        sweep(seed=seed),
        measure_myerson_gaps(seed=seed),
        check_efficiency(seed=seed),
        check_banzhaf_identity(seed=seed),
        simulate_hierarchy(seed=seed),
        check_identities(seed),
        check_expectations(seed),
        run_search(seed=seed),
    )
