"""When an estimate made in rounds is good enough: by its predicted error, or by its top features being settled."""

from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import FIRST_ROUND, evaluations
from shapeline.designs.uncertainty import predicted_error, settled

AT_THE_CAP = "stopped at the cap"  # the flag of an explanation that was left before it was good enough
GROWTH = 1.25  # of the evaluations from a round to the next


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
