"""What every peer is given: an instance's coalitions as a counting function, on the plain model.

A peer explains the vector of present features against that of none; both ends are evaluated once.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shapeline.errors import MethodFailure, locate_input
from shapeline.games.game import Game
from shapeline.seeds import seed_of

BATCH = 256  # coalitions that a peer may ask for at a time, where it lets one choose


class InstanceGame:
    """v(S) of one instance, asked about at most once for each end; `evaluations` counts what was evaluated."""

    def __init__(self, evaluate: Callable[[np.ndarray], np.ndarray], d: int):
        self.d, self.evaluations = d, 0
        self._evaluate, self._ends = evaluate, {}

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return values (K,) of coalitions (K, d), present where above one half."""
        masks = np.asarray(masks) > 0.5
        sizes = masks.sum(1)
        values = np.empty(len(masks))
        inner = (sizes > 0) & (sizes < self.d)
        if inner.any():
            values[inner] = self._values(masks[inner])
        for size in np.unique(sizes[~inner]):
            values[sizes == size] = self._end(size)
        return values

    def compute_gain(self) -> float:
        """v(N) - v(∅)."""
        return self._end(self.d) - self._end(0)

    def _end(self, size: int) -> float:
        if size not in self._ends:
            self._ends[size] = self._values(np.full((1, self.d), size > 0))[0]
        return self._ends[size]

    def _values(self, masks: np.ndarray) -> np.ndarray:
        self.evaluations += len(masks)
        return self._evaluate(masks)


@dataclass(frozen=True)
class CountedGame:
    """What a peer evaluates; instances seed samples with `seed`; budget: evaluations, ends included."""

    game: Game
    inputs: np.ndarray
    targets: np.ndarray
    instances: Sequence[int]
    seed: int
    budget: int


def explain_each(
    explain: Callable[[InstanceGame, int], np.ndarray], asked: CountedGame, minimum: Callable[[int], int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return a peer's scores (n, d) and evaluations (n,); explain: from a game and a 32-bit seed; minimum: from d."""
    d, inputs, game = asked.game.features.d, asked.inputs, asked.game.having(backend=None)
    if asked.budget < minimum(d):
        raise MethodFailure(
            "no design",
            f"budget: {asked.budget} evaluations are fewer than the {minimum(d)} needed at d = {d}; raise it",
        )
    scores, evaluations = np.zeros((len(inputs), d)), np.zeros(len(inputs), np.int64)
    for i, instance in enumerate(asked.instances):
        part = slice(i, i + 1)

        def evaluate(masks: np.ndarray, part=part) -> np.ndarray:
            return game.values(inputs[part], masks, asked.targets[part])[0]

        with locate_input([i]):
            v = InstanceGame(evaluate, d)
            # Of a single feature there is nothing to explain, and the libraries divide by zero.
            scores[i] = explain(v, seed_of(asked.seed, int(instance)) % 2**32) if d > 1 else v.compute_gain()
        evaluations[i] = v.evaluations
    return scores, evaluations


@contextlib.contextmanager
def seed_numpy(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, which some libraries use, inside the block, and restore it."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)
