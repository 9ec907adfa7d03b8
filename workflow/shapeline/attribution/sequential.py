"""Explanations made in rounds until each is good enough: a round asks more, of the instances that are not yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shapeline.attribution.batches import Answer, Batch
from shapeline.designs.stopping import AT_THE_CAP, Foretold, StoppingCriterion


@dataclass(frozen=True, eq=False)
class Rounds:
    """What a chunk is asked where nobody knows before how much.

    places (n,): of its instances. asks: of each round, from some places to what they are asked, which includes what
    they were asked before. until: what has to hold. falls: power of the evaluations with which errors fall, where a
    round's prediction is not to be taken alone. least: rounds before an explanation may stop that is not certain.
    together: none stops before all may.
    """

    places: np.ndarray
    asks: Sequence[Callable[[np.ndarray], Batch]]
    until: StoppingCriterion
    falls: float | None = None
    least: int = 1
    together: bool = False
    several = False  # budgets

    def explain(
        self, evaluate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> tuple[Answer, np.ndarray, np.ndarray]:
        """The answer on the chunk, and its values of the full and of the empty coalition (n,).

        evaluate: from positions in the chunk (m,) and masks of each (m, K, d) to values (m, K).
        """
        n = len(self.places)
        full, empty, spent = np.empty(n), np.empty(n), np.zeros(n, np.int64)
        scores, standard_error, said = None, None, {"rounds": np.zeros(n), "warning": [AT_THE_CAP] * n}
        left, held = np.arange(n), _Held(n)
        for number, ask in enumerate(self.asks, 1):
            asked = ask(self.places[left])
            values = held.values(left, asked.masks, evaluate)
            full[left], empty[left] = asked.ends(values)
            [answer] = asked.read(values)
            if scores is None:
                scores, standard_error = np.empty((2, n, asked.masks.shape[2]))
                earlier = Foretold(*scores.shape, self.falls) if self.falls else None
            if earlier:
                widened = earlier.widened(left, answer.evaluations, answer.scores, answer.standard_error)
                answer = answer._replace(standard_error=widened)
            scores[left], spent[left] = answer.scores, answer.evaluations
            standard_error[left] = np.nan if answer.standard_error is None else answer.standard_error
            said["rounds"][left] += 1
            met = self.until.met(answer.scores, answer.standard_error, full[left] - empty[left])
            if number < min(self.least, len(self.asks)) and met.any():
                met &= ~answer.standard_error.any(axis=1)
            if self.together:
                met &= met.all()
            for row in left[met]:
                said["warning"][row] = None
            left = left[~met]
            if not len(left):
                break
        return Answer(scores, spent, said, standard_error), full, empty


class _Held:
    """The values that each of n instances was asked for, so that none is asked twice."""

    def __init__(self, n: int):
        random = np.random.default_rng(0)
        self.salt = random.integers(1 << 63, size=n, dtype=np.uint64)
        self.keys, self.known = np.zeros(0, np.uint64), np.zeros(0)

    def values(self, rows: np.ndarray, masks: np.ndarray, evaluate: Callable) -> np.ndarray:
        """Values (m, K) of masks (m, K, d) on the instances at `rows` (m,), those not held from `evaluate`."""
        packed = np.packbits(masks, axis=2)
        numbers = np.random.default_rng(1).integers(1 << 63, size=(packed.shape[2], 256), dtype=np.uint64)
        # A coalition of an instance is known by the exclusive or of random numbers: 63 bits, no two are taken for one.
        keys = np.bitwise_xor.reduce(numbers[np.arange(len(numbers)), packed], axis=2) ^ self.salt[rows, None]
        every, first, place = np.unique(keys, return_index=True, return_inverse=True)
        table = np.full(len(every), np.nan)
        at = np.searchsorted(every, self.keys).clip(max=len(every) - 1)
        mine = every[at] == self.keys
        table[at[mine]] = self.known[mine]
        fresh = np.zeros(keys.shape, bool)
        fresh.ravel()[first[np.isnan(table)]] = True
        most = fresh.sum(axis=1).max()
        if most:  # an instance that has fewer is asked some again
            columns = np.argsort(~fresh, axis=1, kind="stable")[:, :most]
            asked = np.take_along_axis(masks, columns[:, :, None], axis=1)
            place_of = np.take_along_axis(place.reshape(keys.shape), columns, axis=1)
            table[place_of] = evaluate(rows, asked)
        self.keys, self.known = every, table
        return table[place.reshape(keys.shape)]
