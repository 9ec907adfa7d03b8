"""Gradient methods that average over random points: the draws and the sums, in numpy, for any framework.

All draws of an instance come from a generator of its own, so that neither shards nor batches change them. A framework
gives two functions: what is differentiated by, and the gradient.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.gradients.cells import absolute, completeness, pooled, starts
from shapeline.seeds import seed_of

# Inputs (m, *input shape) to points (m, *point shape) float32: themselves, or the embeddings of tokens.
Points = Callable[[np.ndarray], np.ndarray]
# Points (m, *point shape), whose inputs are those at positions (m,), to (∂F/∂points, F (m,) float64).
Gradient = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Slope:
    """A model as the draws ask it; rows: of a pass."""

    points_of: Points
    gradient: Gradient
    rows: int


def expected(
    slope: Slope, question: Game, inputs: np.ndarray, instances: Sequence[int], seed: int, samples: int
) -> tuple[np.ndarray, np.ndarray, dict]:
    """As expected_gradients of a framework's module."""
    tokens = np.issubdtype(inputs.dtype, np.integer)
    origins = starts(question, inputs)
    n, M = origins.shape[:2]
    generators = _generators(seed, instances)
    drawn = np.stack([generator.integers(M, size=samples) for generator in generators])
    along = np.stack([generator.random(samples, np.float32) for generator in generators])
    of_cells = np.zeros(inputs.shape)
    for instance, sample in _passes(n, samples, slope.rows):
        x, x0 = slope.points_of(inputs[instance]), slope.points_of(origins[instance, drawn[instance, sample]])
        place = along[instance, sample].reshape(-1, *[1] * (x.ndim - 1))
        moved = slope.gradient(x0 + place * (x - x0), instance)[0].astype(np.float64) * (x - x0)
        _add_runs(of_cells, instance, moved.sum(-1) if tokens else moved)
    scores = pooled(of_cells, question.features) / samples
    rows, counts = np.unique(np.arange(n)[:, None] * M + drawn, return_counts=True)
    owner, row = np.divmod(rows, M)
    of_inputs = _values(slope, lambda part: inputs[part], np.arange(n))
    of_rows = _values(slope, lambda part: origins[owner[part], row[part]], owner)
    gained = of_inputs - np.bincount(owner, of_rows * counts / samples, n)
    return scores, samples + 1 + np.bincount(owner, minlength=n), completeness(scores, gained)


def smooth(
    slope: Slope,
    features: Features,
    inputs: np.ndarray,
    instances: Sequence[int],
    seed: int,
    samples: int,
    noise: float,
) -> np.ndarray:
    """Scores (n, d), as smooth_grad of a framework's module.

    slope: the model.
    features: whose cells of -1 get no noise.
    inputs: (n, *input shape).
    instances, seed: the noise is drawn by (seed, instance); instances are ids (n,).
    samples: noisy copies of each input.
    noise: its standard deviation, as a share of the input's own range.
    """
    tokens = np.issubdtype(inputs.dtype, np.integer)
    shape = slope.points_of(inputs[:1]).shape[1:]
    removable = features.cells >= 0  # nothing is added to padding
    if tokens:
        removable = np.broadcast_to(removable[:, None], shape)
    generators = _generators(seed, instances)
    total = np.zeros((len(inputs), *shape))
    for instance, _ in _passes(len(inputs), samples, slope.rows):
        each, first, counts = np.unique(instance, return_index=True, return_counts=True)
        own = slope.points_of(inputs[each])
        spread = noise * np.ptp(own[:, removable], axis=1)
        drawn = [generators[i].standard_normal((k, *shape), np.float32) for i, k in zip(each, counts, strict=True)]
        drawn = np.concatenate(drawn) * removable * np.repeat(spread, counts).reshape(-1, *[1] * len(shape))
        gradients, _ = slope.gradient(np.repeat(own, counts, axis=0) + drawn.astype(np.float32), instance)
        total[each] += np.add.reduceat(gradients, first, axis=0, dtype=np.float64)
    mean = total / samples
    return absolute(np.linalg.norm(mean, axis=-1) if tokens else np.abs(mean), features)


def _generators(seed: int, instances: Sequence[int]) -> list[np.random.Generator]:
    return [np.random.default_rng(seed_of(seed, int(instance))) for instance in instances]


def _passes(n: int, samples: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(instances, samples), each (rows of a pass,): all samples of all instances, those of one after another."""
    for first in range(0, n * samples, size):
        yield np.divmod(np.arange(first, min(first + size, n * samples)), samples)


def _values(slope: Slope, rows: Callable[[slice], np.ndarray], owners: np.ndarray) -> np.ndarray:
    """F (m,) of rows in slices, each with the position of its instance."""
    parts = [slice(first, first + slope.rows) for first in range(0, len(owners), slope.rows)]
    return np.concatenate([slope.gradient(slope.points_of(rows(part)), owners[part])[1] for part in parts])


def _add_runs(totals: np.ndarray, instance: np.ndarray, added: np.ndarray) -> None:
    """Add (m, ...) to the totals of ascending instances (m,)."""
    each, first = np.unique(instance, return_index=True)
    totals[each] += np.add.reduceat(added, first, axis=0)
