"""When an estimate is good enough: by its predicted error, or by the order of its scores, which are settled."""

from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import FIRST_ROUND, evaluations
from shapeline.errors import ShapelineError

AT_THE_CAP = "stopped at the cap"  # the flag of an explanation that was left before it was good enough
GROWTH = 1.25  # of the evaluations from a round to the next
BELIEVED = 2.0  # rounds whose scores moved as was predicted, beside those that there were
FAR = 9.0  # times what was predicted, beyond which one round's move tells no more
LEAST = 0.7  # of a variance that is left where scores move less than was predicted


@dataclass(frozen=True)
class StoppingCriterion:
    """What has to hold. error: RMSE of an explanation, in the values' units, or "5%" of |v(N) - v(empty)|; top: so
    many features with the largest scores are separated from the others; max_budget: evaluations, as a multiple of d."""

    max_budget: float
    error: float | str | None = None
    top: int | None = None

    def is_met(self, scores: np.ndarray, standard_error: np.ndarray | None, whole: np.ndarray) -> np.ndarray:
        """Which explanations (n,) are good enough; whole (n,): v(N) - v(empty); standard error None: unknown."""
        if standard_error is None:
            return np.zeros(len(scores), bool)
        enough = np.isfinite(standard_error).all(axis=1)
        if self.error is not None:
            enough &= predicted_error(standard_error) <= self.compute_tolerance(whole)
        if self.top is not None:
            enough &= find_settled(scores, standard_error, min(self.top, scores.shape[1])).all(axis=1)
        return enough

    def compute_tolerance(self, whole: np.ndarray) -> np.ndarray:
        """The error (n,) that is small enough."""
        if isinstance(self.error, str):
            return float(self.error.rstrip("% ")) / 100 * np.abs(whole)
        return np.full(len(whole), self.error)

    def rounds(self, d: int, first: int = FIRST_ROUND, largest: int | None = None) -> list[int]:
        """Evaluations after each round: first x d and a quarter more each time, at most all 2^d or `largest`."""
        cap = min(evaluations(self.max_budget, d), 2 ** min(d, 62), largest or 2**62)
        rounds = [int(first * d * GROWTH**number) for number in range(80)]  # 2^25 times the first
        return [*(spent for spent in rounds if spent < cap), cap]


class Foretold:
    """The errors that earlier rounds predict for n explanations.

    A stop at the first small error picks predictions low by chance: each is averaged, in logarithms, with earlier
    ones, error ~ evaluations^-falls, and moves beyond the predicted widen it.
    """

    def __init__(self, n: int, d: int, falls: float):
        self.falls, self.rounds = falls, 0
        self.spent, self.scores, self.error, self.moved = (
            np.zeros(n),
            np.zeros((n, d)),
            np.zeros(n),
            np.full(n, BELIEVED),
        )

    def widen(self, rows: np.ndarray, spent: np.ndarray, scores: np.ndarray, standard_error: np.ndarray) -> np.ndarray:
        """The standard error (m, d) of a round's scores (m, d) after `spent` (m,) evaluations, explanations `rows`
        (m,).

        Call it in each round with all explanations that go on.
        """
        own = np.log(np.maximum(predicted_error(standard_error), 1e-150))
        error, variance = own, np.ones(len(rows))
        if self.rounds:
            fall = self.falls * np.log(spent / self.spent[rows])
            before = self.error[rows]
            lost = np.exp(2 * before) * -np.expm1(-2 * fall)
            moved = ((scores - self.scores[rows]) ** 2).mean(axis=1)
            self.moved[rows] += np.minimum(moved / np.maximum(lost, 1e-300), FAR)
            variance = np.maximum(self.moved[rows] / (BELIEVED + self.rounds), LEAST)
            error = (before - fall + own) / 2
        self.rounds += 1
        self.spent[rows], self.scores[rows], self.error[rows] = spent, scores, error
        return standard_error * (np.exp(error - own) * np.sqrt(variance))[:, None]


def predicted_error(standard_error: np.ndarray) -> np.ndarray:
    """Predicted root mean square error (n,) of explanations whose scores have `standard_error` (n, d)."""
    return np.sqrt((np.asarray(standard_error, dtype=np.float64) ** 2).mean(axis=1))


def count_settled(scores: np.ndarray, standard_error: np.ndarray) -> np.ndarray:
    """How many of the largest scores stand in a settled order (n,): each is separated from all below it, at 95 %."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), axis=1, kind="stable")
    ranked, spread = (
        np.take_along_axis(np.asarray(a, dtype=np.float64), order, axis=1) for a in (scores, standard_error)
    )
    d = ranked.shape[1]
    wide = 1.96 * np.sqrt((spread[:, :, None] ** 2 + spread[:, None, :] ** 2) * d / max(d - 1, 1))
    apart = ranked[:, :, None] - ranked[:, None, :] > wide
    return (apart | ~np.triu(np.ones((d, d), bool), 1)).all(axis=2)[:, : d - 1].cumprod(axis=1).sum(axis=1)


def find_settled(scores: np.ndarray, standard_error: np.ndarray, top: int) -> np.ndarray:
    """Which features (n, d) bool are settled as inside or outside of the `top` largest scores, at 95 %.

    A feature is settled where the intervals of its differences to all features on the other side leave out 0. Scores
    add up to a known sum, so their errors oppose each other: a difference has variance (a^2 + b^2) d/(d - 1).
    """
    scores, standard_error = np.asarray(scores, dtype=np.float64), np.asarray(standard_error, dtype=np.float64)
    d = scores.shape[1]
    if not 1 <= top <= d:
        raise ShapelineError(f"settled: top is {top!r} of {d} features; give a number from 1 to {d}.")
    inside = scores.argsort(axis=1, kind="stable").argsort(axis=1) >= d - top
    apart = np.abs(scores[:, :, None] - scores[:, None, :])
    spread = np.sqrt((standard_error[:, :, None] ** 2 + standard_error[:, None, :] ** 2) * d / max(d - 1, 1))
    same = inside[:, :, None] == inside[:, None, :]
    return (same | (apart > 1.96 * spread)).all(axis=2)
