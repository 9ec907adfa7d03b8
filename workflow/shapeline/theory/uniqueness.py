"""Theorem 4.2 of Sliwinski et al. (2019) as a search: which sums of many terms keep the axioms.

Every axiom but continuity is linear in the measure, so a sum of terms keeps them where a linear system says so. Two
enter as what lemma 4.1 makes of them: by monotonicity and rotation a new point moves the influence along y - x alone.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shapeline.theory.games import generator

AXIOMS = ("shift", "rotation", "flip", "non-bias", "lemma 4.1")
Term = Callable[[np.ndarray, np.ndarray, np.ndarray, float, np.ndarray], np.ndarray]


def _mim(alpha: Callable) -> Term:
    return lambda away, r, s, own, x: (alpha(r) * s) @ away


# Of the differences (m, n) to the point, their lengths, whether their labels are its own (1 or -1), that label, and x.
MIM: dict[str, Term] = {
    "α = 1": _mim(np.ones_like),
    "α = 1/r": _mim(lambda r: 1 / r),
    "α = 1/r²": _mim(lambda r: 1 / r**2),
    "α Gaussian": _mim(lambda r: np.exp(-(r**2) / 2)),
}
OTHERS: dict[str, Term] = {
    "differences whatever the labels": lambda away, r, s, own, x: away.sum(0),
    "of points of one label alone": lambda away, r, s, own, x: (own > 0) * (s @ away),
    "the points in place of the differences": lambda away, r, s, own, x: s @ (away + x),
    "features on scales of their own": lambda away, r, s, own, x: s @ away * np.arange(1, away.shape[1] + 1),
    "squared differences with their signs": lambda away, r, s, own, x: s @ (away * np.abs(away)),
    "the mean in place of the sum": lambda away, r, s, own, x: s @ away / len(s),
    "the nearest point alone": lambda away, r, s, own, x: s[r.argmin()] * away[r.argmin()],
    "points in a crowd count more": lambda away, r, s, own, x: (s * _crowd(away)) @ away,
    "points count by how many agree": lambda away, r, s, own, x: (s * (s[:, None] == s).mean(1)) @ away,
    "MIM at length 1": lambda away, r, s, own, x: s @ away / np.linalg.norm(s @ away),
    "Parzen": lambda away, r, s, own, x: _parzen(away, r, s),
    "a ridge line through the labels": lambda away, r, s, own, x: np.linalg.solve(
        away.T @ away + np.eye(away.shape[1]), s @ away
    ),
}


@dataclass(frozen=True)
class Search:
    """What the search found: by how much MIM's terms break an axiom at most, and a sum of the others at least.

    mim: largest, terms of length 1. others: least of all sums whose coefficients have length 1, MIM's added at will.
    broken: other term -> the axioms that it breaks by itself.
    """

    mim: float
    others: float
    broken: dict[str, tuple[str, ...]]


def search(points: int = 4, n: int = 3, data_sets: int = 30, seed: int = 0) -> Search:
    """Every axiom asked of every term on random data sets of x and `points` more in n features; a second."""
    random = generator(seed, "uniqueness")
    parts: dict[str, list[np.ndarray]] = {axiom: [] for axiom in AXIOMS}
    sizes = []
    for _ in range(data_sets):
        X, labels = random.normal(size=(points + 1, n)), random.choice([-1.0, 1.0], points + 1)
        before = _terms(X, labels)
        sizes.append(before)
        turned = np.linalg.qr(random.normal(size=(n, n)))[0]
        new = random.normal(size=n)
        along = (new - X[0]) / np.linalg.norm(new - X[0])
        moved = _terms(np.vstack([X, new]), np.append(labels, random.choice([-1.0, 1.0]))) - before
        every = [np.array([labels[0], *others]) for others in itertools.product((-1.0, 1.0), repeat=points)]
        parts["shift"].append(_terms(X + random.normal(size=n), labels) - before)
        parts["rotation"].append(_terms(X @ turned, labels) - turned.T @ before)
        parts["flip"].append(_terms(X, -labels) - before)
        parts["non-bias"].append(np.mean([_terms(X, each) for each in every], axis=0))
        parts["lemma 4.1"].append(moved - np.outer(along, along @ moved))
    size = np.sqrt(np.mean(np.concatenate(sizes) ** 2, axis=0))
    systems = {axiom: np.concatenate(rows) / size / np.sqrt(n * data_sets) for axiom, rows in parts.items()}
    lost = {axiom: np.linalg.norm(rows, axis=0) for axiom, rows in systems.items()}
    system, first = np.concatenate(list(systems.values())), len(MIM)
    broken = {
        name: tuple(axiom for axiom in AXIOMS if lost[axiom][first + place] > 1e-9) for place, name in enumerate(OTHERS)
    }
    least = np.linalg.svd(system[:, first:], compute_uv=False).min()
    return Search(float(np.linalg.norm(system[:, :first], axis=0).max()), float(least), broken)


def lemma_4_1(points: int = 12, n: int = 4, tries: int = 200, seed: int = 0) -> float:
    """How far a new point moves MIM off y - x, or against what its label says (lemma 4.1); 0 for none."""
    random = generator(seed, "lemma 4.1")
    worst = 0.0
    for _ in range(tries):
        X, labels = random.normal(size=(points, n)), random.choice([-1.0, 1.0], points)
        moved = _terms(X, labels)[:, : len(MIM)] - _terms(X[:-1], labels[:-1])[:, : len(MIM)]
        toward = labels[0] * labels[-1] * (X[-1] - X[0]) / np.linalg.norm(X[-1] - X[0])
        worst = max(worst, np.abs(moved - np.outer(toward, np.maximum(toward @ moved, 0))).max())
    return float(worst)


def _terms(X: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """All terms at the first point, a column each, (n, terms); labels -1 and 1."""
    away = X[1:] - X[0]
    r, s = np.linalg.norm(away, axis=1), labels[1:] * labels[0]
    return np.stack([term(away, r, s, labels[0], X[0]) for term in (*MIM.values(), *OTHERS.values())], axis=1)


def _crowd(away: np.ndarray) -> np.ndarray:
    apart = away[:, None] - away
    return np.exp(-(apart**2).sum(-1) / 2).sum(1)


def _parzen(away: np.ndarray, r: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The slope of the share of the point's own label, the point with weight 1 among the others'."""
    weights = np.exp(-(r**2) / 2)
    share = (1 + weights @ (s > 0)) / (1 + weights.sum())
    return (weights * ((s > 0) - share)) @ away / (1 + weights.sum())
