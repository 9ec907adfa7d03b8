"""The Shapley value by least squares (Lundberg 2017; Charnes et al. 1988)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import comb, factorial

import numpy as np

from shapeline.designs.design import all_coalitions, kernel_weight, whole
from shapeline.designs.exact import banzhaf, shapley
from shapeline.designs.sampled import kernel_shap
from shapeline.designs.surrogate import lime, symmetric_least_squares
from shapeline.theory.games import Comparison, generator, largest, rms, scores

FULL_WEIGHT = 1e3  # of the full coalition, in place of the kernel's infinite weight
END_WEIGHTS = 10.0 ** np.arange(0, 15)  # at 10^16 the matrix is singular in float64


@dataclass(frozen=True)
class KernelProof:
    """The kernel proof for d features: its formulas, the designs that use it, and a finite weight on v(N).

    designs: largest difference of each to `designs.shapley`; end_weights and end_errors: the weight on the full
    coalition and the largest error of the scores (values are of order 1). condition: of XᵀWX; times the precision of
    float64 it bounds the rounding of the comparisons.
    """

    d: int
    comparisons: list[Comparison]
    designs: dict[str, float]
    end_weights: np.ndarray
    end_errors: np.ndarray
    condition: float


def kernel_proof(d: int = 8, games: int = 50, seed: int = 0) -> KernelProof:
    """Check the formulas of "Shapley Kernel Proof" (Lundberg 2017) with linear algebra over 2^d coalitions; d >= 4."""
    d = whole("kernel_proof", "d", d, 4)
    X = all_coalitions(d, "kernel_proof").astype(float)
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
        _end_errors(X, weight, tables, exact),
        float(np.linalg.cond(gram)),
    )


def _compare_matrix(gram: np.ndarray, inverse: np.ndarray) -> list[Comparison]:
    """Compare the printed formulas of XᵀWX = a I + c J, gram (d, d), and of its inverse as c grows."""
    d = len(gram)
    identity = (np.diag(gram)[:, None] - gram)[~np.eye(d, dtype=bool)]  # a, for every entry
    limit = (np.eye(d) - 1 / d) * d / (d - 1)
    return [
        Comparison(
            "coefficient of I in XᵀWX = a I + cJ",
            "1/(d − 1)",
            largest(identity - 1 / (d - 1)),
            "(d − 1)/d",
            largest(identity - (d - 1) / d),
        ),
        Comparison("inverse of XᵀWX as c → ∞", "I + (I − J)/(d − 1)", largest(inverse - limit)),
    ]


def _compare_weights(X: np.ndarray, fit: np.ndarray) -> list[Comparison]:
    """Compare the printed weight of each v(S) in each score with fit (d, 2^d) of coalitions X (2^d, d)."""
    d, s = X.shape[1], X.sum(axis=1).astype(int)
    size = np.arange(d + 1)
    count = np.array([factorial(k) for k in size])
    outside = -count[np.maximum(d - size - 1, 0)] * count / count[d]
    printed = count[np.maximum(d - size - 2, 0)] * count[np.maximum(size - 1, 0)] / count[d]
    inside = count[d - size] * count[np.maximum(size - 1, 0)] / count[d]
    member = X.T == 1
    return [
        Comparison(
            "weight of v(S) on φⱼ, j ∈ S",
            "(d − s − 2)! (s − 1)! / d!",
            largest((fit - printed[s])[member & (s <= d - 2)]),
            "(d − s)! (s − 1)! / d!",
            largest((fit - inside[s])[member]),
        ),
        Comparison(
            "weight of v(S) on φⱼ, j ∉ S, S ≠ ∅",
            "−(d − s − 1)! s! / d!",
            largest((fit - outside[s])[~member & (s > 0)]),
        ),
    ]


def _compare_games(tables: np.ndarray, fit: np.ndarray, exact: np.ndarray) -> Comparison:
    """Compare the printed scores of games, tables (games, 2^d), with their Shapley values (games, d)."""
    return Comparison(
        "(XᵀWX)⁻¹XᵀWy is the Shapley value",
        "y = v(S)",
        largest(tables @ fit.T - exact),
        "y = v(S) − v(∅)",
        largest((tables - tables[:, :1]) @ fit.T - exact),
    )


def _end_errors(X: np.ndarray, weight: np.ndarray, tables: np.ndarray, exact: np.ndarray) -> np.ndarray:
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


@dataclass(frozen=True)
class SymmetricWeight:
    """A weight q(s): largest differences to the direct fit, and distances of its scores to known values.

    closed: the solution as Pei prints it in (6); paired: the same as in (-1); design: `symmetric_least_squares`;
    to_shapley, to_banzhaf: root mean square difference in units of the Shapley values', Banzhaf up to a constant.
    """

    name: str
    closed: float
    paired: float
    design: float
    to_shapley: float
    to_banzhaf: float


def charnes(d: int = 7, games: int = 20, random_weights: int = 4, seed: int = 0) -> list[SymmetricWeight]:
    """Check least squares with symmetric weights (Charnes et al. 1988), named and `random_weights` random ones."""
    d = whole("charnes", "d", d, 3)
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
            SymmetricWeight(
                name,
                largest(closed - direct),
                largest(paired - direct),
                largest(scores(symmetric_least_squares(d, q), tables) - direct),
                rms(direct - exact) / rms(exact),
                rms(gap - gap.mean(axis=1, keepdims=True)) / rms(exact),
            )
        )
    return solved


def charnes_solution(tables: np.ndarray, q: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (games, d) of tables (games, 2^d) for weights q of sizes 1..d-1, by (6) and (-1) of Pei 2018."""
    d = len(q) + 1
    X = all_coalitions(d, "charnes_solution").astype(float)
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
    X = all_coalitions(d, "constrained_least_squares")[1:-1].astype(float)
    root = np.sqrt(np.asarray(q, dtype=float))[X.sum(axis=1).astype(int) - 1]
    even = np.repeat((tables[:, -1:] - tables[:, :1]) / d, d, axis=1)
    free = np.linalg.qr(np.column_stack([np.ones(d), np.eye(d)[:, 1:]]))[0][:, 1:]  # orthogonal to ones
    left = (X @ free) * root[:, None]
    right = (tables[:, 1:-1] - even @ X.T) * root
    return even + (free @ np.linalg.lstsq(left, right.T, rcond=None)[0]).T
