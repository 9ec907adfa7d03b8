"""Short statements of the papers, each computed two ways."""

from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import all_coalitions
from shapeline.designs.exact import shapley
from shapeline.theory.games import generator, largest, scores
from shapeline.theory.uniqueness import lemma_4_1


@dataclass(frozen=True)
class Expectations:
    """Largest gaps between the values of Pei (2018) on all coalitions: conditional (7), marginal (8), plug-in (9).

    independent: (7) and (8), features independent; dependent: the same where they are not. linear: (8) and (9), a
    linear model; curved: the same of one that is not. both: (7) and (9), independent and linear.
    """

    independent: float
    dependent: float
    linear: float
    curved: float
    both: float


@dataclass(frozen=True)
class Identities:
    """Largest discrepancy of each statement; games and weights are of order 1."""

    lemma_4_1: float
    lemma_5_2: float
    theorem_5_1: float
    remark_3_3: float
    monotonicity: float
    expectations: Expectations


def identities(seed: int = 0) -> Identities:
    """All of them; a second."""
    return Identities(
        lemma_4_1(seed=seed),
        cosines(seed=seed),
        optimum(seed=seed),
        equal_shares(),
        monotone(seed=seed),
        expectations(seed),
    )


def cosines(points: int = 12, n: int = 4, directions: int = 200, seed: int = 0) -> float:
    """Sum of f(y) cos(y, φ) against |z| cos(φ, z), z = Σ f(y) y/|y| (Sliwinski et al. 2019, lemma 5.2)."""
    random = generator(seed, "cosines")
    y, f, phi = random.normal(size=(points, n)), random.normal(size=points), random.normal(size=(directions, n))
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    size = np.linalg.norm(phi, axis=1)
    z = f @ unit
    return largest(phi @ unit.T @ f / size - np.linalg.norm(z) * (phi @ z) / (size * np.linalg.norm(z)))


def optimum(points: int = 30, n: int = 4, directions: int = 20_000, seed: int = 0) -> float:
    """How far a direction of many, at random or near MIM's, is above MIM's in the objective that it maximises.

    That is Σ α₀(|y − x|) cos(y − x, φ) s with α₀(r) = r α(r) (Sliwinski et al. 2019, theorem 5.1), for three α; 0 where
    none is.
    """
    random = generator(seed, "optimum")
    X, labels = random.normal(size=(points, n)), random.integers(0, 2, points)
    away = X[1:] - X[0]
    r, s = np.linalg.norm(away, axis=1), np.where(labels[1:] == labels[0], 1.0, -1.0)
    worst = 0.0
    for alpha in (np.ones_like(r), 1 / r, 1 / r**2):
        best = influence(away, alpha * s)
        near = best + np.linalg.norm(best) * 0.01 * random.normal(size=(directions // 2, n))
        tried = np.concatenate([near, random.normal(size=(directions // 2, n))])
        toward = away / r[:, None] * (r * alpha * s)[:, None]
        reached = (tried @ toward.sum(0)) / np.linalg.norm(tried, axis=1)
        worst = max(worst, reached.max() - best @ toward.sum(0) / np.linalg.norm(best))
    return float(worst)


def influence(away: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Equation 2 of Sliwinski et al. (2019): differences (m, n) to the point, summed with weights (m,), signs in them.

    Written out, for the measure itself knows a framework.
    """
    return weights @ away


def equal_shares(d: int = 9) -> float:
    """Shapley values of "some of k features is there" against 1/k on these and 0 (Teneggi et al. 2021, remark 3.3)."""
    masks = all_coalitions(d, "equal_shares")
    games = np.stack([masks[:, :k].any(axis=1) for k in range(1, d + 1)]).astype(float)
    shares = np.tril(np.ones((d, d))) / np.arange(1, d + 1)[:, None]
    return largest(scores(shapley(d), games) - shares)


def monotone(d: int = 6, games: int = 200, seed: int = 0) -> float:
    """How far a Shapley value falls where no marginal contribution of its feature does (Young 1985); 0: never."""
    random = generator(seed, "monotone")
    masks = all_coalitions(d, "monotone")
    before, added = random.normal(size=(2, games, 2**d))
    without = np.flatnonzero(~masks[:, 0])
    added[:, without + 1] = added[:, without] + np.abs(added[:, without + 1])  # row r + 1 has feature 0 too
    gained = scores(shapley(d), before + added) - scores(shapley(d), before)
    return float(max(0.0, -gained[:, 0].min()))


def expectations(seed: int = 0, d: int = 4) -> Expectations:
    """v(S) as conditional, marginal and plug-in expectation at a point, d binary features (Pei 2018, eq. 7 to 9)."""
    random = generator(seed, "expectations")
    points = all_coalitions(d, "expectations").astype(float)
    chance = random.uniform(0.2, 0.8, d)
    apart = np.where(points == 1, chance, 1 - chance).prod(axis=1)
    joint = random.dirichlet(np.ones(2**d))
    weights = random.normal(size=d)

    def linear(z: np.ndarray) -> np.ndarray:
        return z @ weights

    def curved(z: np.ndarray) -> np.ndarray:
        return np.tanh(2 * z @ weights) + z[:, 0] * z[:, 1]

    def gap(first, second, law: np.ndarray, model) -> float:
        return largest(first(points, law, model) - second(points, law, model))

    return Expectations(
        gap(_conditional, _marginal, apart, curved),
        gap(_conditional, _marginal, joint, curved),
        gap(_marginal, _plug_in, joint, linear),
        gap(_marginal, _plug_in, joint, curved),
        gap(_conditional, _plug_in, apart, linear),
    )


def _conditional(points: np.ndarray, law: np.ndarray, model) -> np.ndarray:
    """E(f(z) | z_S = x_S) for every S and x = (1, ..., 1), (2^d,)."""
    agree = (points[None] == 1) | (points[:, None] == 0)  # of coalition and point, each feature
    weight = agree.all(axis=2) * law
    return weight @ model(points) / weight.sum(axis=1)


def _marginal(points: np.ndarray, law: np.ndarray, model) -> np.ndarray:
    """E f(x_S, z) over z as it is without S, (2^d,)."""
    return np.array([law @ model(np.where(coalition == 1, 1.0, points)) for coalition in points])


def _plug_in(points: np.ndarray, law: np.ndarray, model) -> np.ndarray:
    """f(x_S, E z), (2^d,)."""
    return model(np.where(points == 1, 1.0, law @ points))
