"""When an estimate made in rounds is good enough: by its predicted error, or by its top features being settled."""

from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import FIRST_ROUND, evaluations
from shapeline.designs.uncertainty import predicted_error, settled

AT_THE_CAP = "stopped at the cap"  # the flag of an explanation that was left before it was good enough
GROWTH = 1.25  # of the evaluations from a round to the next
BELIEVED = 2.0  # rounds whose scores moved as was predicted, beside those that there were
FAR = 9.0  # times what was predicted, beyond which one round's move tells no more
LEAST = 0.7  # of a variance that is left where scores move less than was predicted


@dataclass(frozen=True)
class Until:
    """What has to hold. error: RMSE of an explanation, in the values' units, or "5%" of |v(N) - v(empty)|; top: so
    many features with the largest scores are told from the others; at_most: evaluations, as a multiple of d."""

    at_most: float
    error: float | str | None = None
    top: int | None = None

    def met(self, scores: np.ndarray, uncertainty: np.ndarray | None, whole: np.ndarray) -> np.ndarray:
        """Which explanations (n,) are good enough; whole (n,): v(N) - v(empty); uncertainty None: it is not known."""
        if uncertainty is None:
            return np.zeros(len(scores), bool)
        enough = np.isfinite(uncertainty).all(axis=1)
        if self.error is not None:
            enough &= predicted_error(uncertainty) <= self.allowed(whole)
        if self.top is not None:
            enough &= settled(scores, uncertainty, min(self.top, scores.shape[1])).all(axis=1)
        return enough

    def allowed(self, whole: np.ndarray) -> np.ndarray:
        """The error (n,) that is small enough."""
        if isinstance(self.error, str):
            return float(self.error.rstrip("% ")) / 100 * np.abs(whole)
        return np.full(len(whole), self.error)

    def rounds(self, d: int, first: int = FIRST_ROUND, largest: int | None = None) -> list[int]:
        """Evaluations after each round: first x d and a quarter more each time, at most all 2^d or `largest`."""
        cap = min(evaluations(self.at_most, d), 2 ** min(d, 62), largest or 2**62)
        rounds = [int(first * d * GROWTH**number) for number in range(80)]  # 2^25 times the first
        return [*(spent for spent in rounds if spent < cap), cap]


class Foretold:
    """What its earlier rounds say of an explanation's error beside its last one, for n explanations of d features.

    A stop at the first error that is small enough picks the rounds whose prediction is low by chance. So a prediction
    is the mean, in logarithms, of its own and of what the rounds before foretold, error ~ evaluations^-falls; and
    scores that moved from round to round by more than was predicted widen it, for a posterior's moves have the variance
    that it lost.
    """

    def __init__(self, n: int, d: int, falls: float):
        self.falls, self.rounds = falls, 0
        self.spent, self.scores, self.error, self.moved = (
            np.zeros(n),
            np.zeros((n, d)),
            np.zeros(n),
            np.full(n, BELIEVED),
        )

    def widened(self, rows: np.ndarray, spent: np.ndarray, scores: np.ndarray, uncertainty: np.ndarray) -> np.ndarray:
        """The uncertainty (m, d) of a round's scores (m, d) after `spent` (m,) evaluations, explanations `rows` (m,).

        Each round is to be told of, all explanations that go on.
        """
        own = np.log(np.maximum(predicted_error(uncertainty), 1e-150))
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
        return uncertainty * (np.exp(error - own) * np.sqrt(variance))[:, None]
