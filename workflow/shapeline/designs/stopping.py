"""Adaptive stopping: by the predicted error of scores, or by the significance of their order."""

from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import FIRST_ROUND, count_evaluations
from shapeline.errors import ShapelineError

CAP_WARNING = "stopped at the cap"  # the warning of an explanation that reached max_budget before the target
GROWTH = 1.25  # factor of the evaluations from one round to the next
PRIOR_ROUNDS = 2.0  # weight, in rounds, of the predicted change of scores against the observed changes
MAX_CHANGE = 9.0  # larger squared changes of scores in one round, in units of the predicted one, are clipped
MIN_VARIANCE_FACTOR = 0.7  # lower bound where scores change less than predicted


@dataclass(frozen=True)
class StoppingCriterion:
    """Targets of adaptive stopping: error, the RMSE of an explanation in the values' units, or "5%" of
    |v(N) - v(empty)|; top, the number of features separated from the others; max_budget, evaluations per feature."""

    max_budget: float
    error: float | str | None = None
    top: int | None = None

    def is_met(self, scores: np.ndarray, standard_error: np.ndarray | None, total: np.ndarray) -> np.ndarray:
        """Return which explanations (n,) reach the targets; total (n,): v(N) - v(empty); None: unknown errors."""
        if standard_error is None:
            return np.zeros(len(scores), bool)
        met = np.isfinite(standard_error).all(axis=1)
        if self.error is not None:
            is_share = isinstance(self.error, str)
            allowed = float(self.error.rstrip("% ")) / 100 * np.abs(total) if is_share else self.error
            met &= predict_error(standard_error) <= allowed
        if self.top is not None:
            met &= find_separated(scores, standard_error, min(self.top, scores.shape[1])).all(axis=1)
        return met

    def rounds(self, d: int, first: int = FIRST_ROUND, largest: int | None = None) -> list[int]:
        """Return the evaluations after each round: first x d, then GROWTH times as many, at most 2^d or `largest`."""
        cap = min(count_evaluations(self.max_budget, d), 2 ** min(d, 62), largest or 2**62)
        rounds = [int(first * d * GROWTH**number) for number in range(80)]  # up to 2^25 times the first
        return [*(spent for spent in rounds if spent < cap), cap]


class PredictedErrors:
    """The errors that earlier rounds predict for n explanations.

    Stopping at the first small error selects predictions that are low by chance. So each is averaged in logarithms with
    the earlier ones (error ~ evaluations^-rate), and widened where scores change more than predicted.
    """

    def __init__(self, n: int, d: int, rate: float):
        self.rate, self.rounds = rate, 0
        self.evaluations, self.scores, self.error, self.changes = (
            np.zeros(n),
            np.zeros((n, d)),
            np.zeros(n),
            np.full(n, PRIOR_ROUNDS),
        )

    def widen(
        self, rows: np.ndarray, evaluations: np.ndarray, scores: np.ndarray, standard_error: np.ndarray
    ) -> np.ndarray:
        """Return the standard error (m, d) of a round's scores (m, d) of explanations `rows` (m,).

        Call it in each round with all explanations that continue.
        """
        log_error = np.log(np.maximum(predict_error(standard_error), 1e-150))
        error, variance = log_error, np.ones(len(rows))
        if self.rounds:
            fall = self.rate * np.log(evaluations / self.evaluations[rows])
            before = self.error[rows]
            expected = np.exp(2 * before) * -np.expm1(-2 * fall)
            change = ((scores - self.scores[rows]) ** 2).mean(axis=1)
            self.changes[rows] += np.minimum(change / np.maximum(expected, 1e-300), MAX_CHANGE)
            variance = np.maximum(self.changes[rows] / (PRIOR_ROUNDS + self.rounds), MIN_VARIANCE_FACTOR)
            error = (before - fall + log_error) / 2
        self.rounds += 1
        self.evaluations[rows], self.scores[rows], self.error[rows] = evaluations, scores, error
        return standard_error * (np.exp(error - log_error) * np.sqrt(variance))[:, None]


def predict_error(standard_error: np.ndarray) -> np.ndarray:
    """Return the predicted root mean square error (n,) of explanations with `standard_error` (n, d)."""
    return np.sqrt((np.asarray(standard_error, dtype=np.float64) ** 2).mean(axis=1))


def count_ranked(scores: np.ndarray, standard_error: np.ndarray) -> np.ndarray:
    """Return how many of the largest scores (n,) have a significant rank: each differs from all below it, at 95 %."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), axis=1, kind="stable")
    ranked, spread = (
        np.take_along_axis(np.asarray(a, dtype=np.float64), order, axis=1) for a in (scores, standard_error)
    )
    d = ranked.shape[1]
    half_width = 1.96 * np.sqrt((spread[:, :, None] ** 2 + spread[:, None, :] ** 2) * d / max(d - 1, 1))
    separated = ranked[:, :, None] - ranked[:, None, :] > half_width
    return (separated | ~np.triu(np.ones((d, d), bool), 1)).all(axis=2)[:, : d - 1].cumprod(axis=1).sum(axis=1)


def find_separated(scores: np.ndarray, standard_error: np.ndarray, top: int) -> np.ndarray:
    """Return which features (n, d) are significantly inside or outside of the `top` largest scores, at 95 %.

    The intervals of such a feature's differences to all features on the other side exclude 0. Scores have a known sum,
    so their errors are negatively correlated: a difference has variance (a^2 + b^2) d/(d - 1).
    """
    scores, standard_error = np.asarray(scores, dtype=np.float64), np.asarray(standard_error, dtype=np.float64)
    d = scores.shape[1]
    if not 1 <= top <= d:
        raise ShapelineError(f"stopping: top is {top!r} of {d} features; give a number from 1 to {d}.")
    inside = scores.argsort(axis=1, kind="stable").argsort(axis=1) >= d - top
    difference = np.abs(scores[:, :, None] - scores[:, None, :])
    spread = np.sqrt((standard_error[:, :, None] ** 2 + standard_error[:, None, :] ** 2) * d / max(d - 1, 1))
    same = inside[:, :, None] == inside[:, None, :]
    return (same | (difference > 1.96 * spread)).all(axis=2)
