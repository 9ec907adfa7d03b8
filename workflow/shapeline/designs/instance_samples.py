"""A sample of its own for every instance: a design of a pool, its features permuted by the instance's own permutation.

One sample shared by instances couples them, and every test over instances is then invalid (METHODS §13); one
factorisation per instance is too expensive from a few hundred features on. Where the features of a design are
exchangeable, as in KernelSHAP, a random permutation of them turns one design into another sample of the same
distribution, at the cost of a gather. Instances still share what no permutation changes, the conditioning of a design:
hence a pool.
"""

import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.seeds import seed_of
from shapeline.threads import MOMENT, Result, count_allowed, limit_to_one, run_tasks

POOL = 1024  # designs at most; each is created when an instance first needs it
FEWEST = 12  # however expensive they are
POOL_WORK = 1 << 34  # multiplications that the pool's factorisations may take: a second
READOUT_BYTES = 1 << 28  # of the designs that a chunk of instances holds


@dataclass(frozen=True)
class InstanceSamples:
    """Which design of the pool each of n instances has, numbers (n,), and its permutation of the features.

    orders (n, d): feature j of the pool's design is feature orders[i, j] of instance i; None where the features are
    not exchangeable, and each number is a seed of its own. threads: that share out what is done for each design.
    """

    numbers: np.ndarray
    orders: np.ndarray | None
    threads: int = 1
    large: bool = True

    def masks(self, designs_masks: Sequence[np.ndarray], part: np.ndarray) -> np.ndarray:
        """Masks (a, K, d) of the instances at `part` (a,), from those of their designs, each (K, d)."""
        if self.orders is None:
            return np.stack(designs_masks)
        own = np.empty((len(part), *designs_masks[0].shape), bool)

        def take(each: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
            masks, of_feature, taken = each
            np.take(masks, of_feature, axis=1, out=taken, mode="clip")  # `take_along_axis` takes four times as long

        each = list(zip(designs_masks, self.orders[part].argsort(axis=1), own, strict=True))
        self.run_shared(take, each)
        return own

    def run_shared(self, run: Callable[[Any], Result], tasks: Sequence) -> list[Result]:
        """Return the result of `run` per task, by the samples' threads; the linear algebra of each keeps to its own."""
        # Once: to set it for each task costs a tenth of a millisecond and has threads wait.
        with contextlib.nullcontext() if self.large or len(tasks) < 2 else limit_to_one(0):
            return list(run_tasks(run, tasks, self.threads))

    def scores(self, of_designs: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Scores (a, d) by the instances' own features, from those by the features of their designs."""
        if self.orders is None:
            return of_designs
        own = np.empty_like(of_designs)
        np.put_along_axis(own, self.orders[part], of_designs, axis=1)
        return own

    def pairs(self, of_designs: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Interactions (a, d (d-1) / 2) of the instances' own pairs, from those of their designs'."""
        if self.orders is None:
            return of_designs
        d = self.orders.shape[1]
        of_feature = self.orders[part].argsort(axis=1)  # the design's feature that is an instance's
        a, b = np.sort(of_feature[:, np.triu_indices(d, 1)], axis=1).swapaxes(0, 1)
        return np.take_along_axis(of_designs, a * (2 * d - a - 1) // 2 + b - a - 1, axis=1)


def assign_samples(
    seed: int, instances: Sequence[Hashable], d: int, evaluations: int, exchangeable: bool = True
) -> InstanceSamples:
    """The samples of instances, by a seed of (seed, instance) each, so that none depends on the others.

    seed: of the method and repeat; instances: what seeds each, an id or a digest; evaluations: of a design, K.
    """
    if not exchangeable:
        return InstanceSamples(np.array([seed_of(seed, instance) for instance in instances], dtype=object), None)
    pool = pool_size(d, evaluations)
    numbers, orders = np.empty(len(instances), np.int64), np.empty((len(instances), d), np.int64)
    for place, instance in enumerate(instances):
        random = np.random.default_rng(seed_of(seed, instance))
        numbers[place], orders[place] = random.integers(pool), random.permutation(d)
    # Small designs are made before threads could start; those of large ones are the linear algebra's.
    large = evaluations * d * d >= 4 * MOMENT
    return InstanceSamples(numbers, orders, count_allowed() if pool < POOL and not large else 1, large)


def pool_size(d: int, evaluations: int) -> int:
    """Designs of the pool: as many as some seconds make, at least FEWEST."""
    return int(np.clip(POOL_WORK // max(1, evaluations * d * d), FEWEST, POOL))


def count_at_once(d: int, evaluations: int, exchangeable: bool = True) -> int | None:
    """Instances that may be explained together, each with a design that is held; None where the whole pool may be."""
    most = max(1, READOUT_BYTES // (8 * d * evaluations))
    return None if exchangeable and pool_size(d, evaluations) <= most else most
