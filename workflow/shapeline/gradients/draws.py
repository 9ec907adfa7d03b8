"""Gradient methods that average over random points: the draws and the sums, in numpy, for any framework.

All draws of an instance come from a generator of its own, so that neither shards nor batches change them. A framework
gives two functions: what is differentiated by, and the gradient.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shapeline.features import Features
from shapeline.gradients.cells import absolute, completeness, pooled, starts
from shapeline.references import Reference
from shapeline.seeds import seed_of

# Inputs (m, *input shape) to points (m, *point shape) float32: themselves, or the embeddings of tokens.
Points = Callable[[np.ndarray], np.ndarray]
# Points (m, *point shape), whose inputs are those at positions (m,), to (∂F/∂points, F (m,) float64).
Gradient = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def expected(
    points_of: Points,
    gradient: Gradient,
    size: int,
    inputs: np.ndarray,
    reference: Reference,
    features: Features,
    instances: Sequence[int],
    seed: int,
    samples: int,
) -> tuple[np.ndarray, np.ndarray, dict]:
    """As expected_gradients of a framework's module; size: the rows of a pass."""
    tokens = np.issubdtype(inputs.dtype, np.integer)
    origins = starts(inputs, reference, features)
    n, M = origins.shape[:2]
    generators = _generators(seed, instances)
    drawn = np.stack([generator.integers(M, size=samples) for generator in generators])
    along = np.stack([generator.random(samples, np.float32) for generator in generators])
    of_cells = np.zeros(inputs.shape)
    for instance, sample in _passes(n, samples, size):
        x, x0 = points_of(inputs[instance]), points_of(origins[instance, drawn[instance, sample]])
        place = along[instance, sample].reshape(-1, *[1] * (x.ndim - 1))
        found = gradient(x0 + place * (x - x0), instance)[0].astype(np.float64) * (x - x0)
        _add_runs(of_cells, instance, found.sum(-1) if tokens else found)
    scores = pooled(of_cells, features) / samples
    rows, counts = np.unique(np.arange(n)[:, None] * M + drawn, return_counts=True)
    owner, row = np.divmod(rows, M)
    of_inputs = _values(points_of, gradient, lambda part: inputs[part], np.arange(n), size)
    of_rows = _values(points_of, gradient, lambda part: origins[owner[part], row[part]], owner, size)
    gained = of_inputs - np.bincount(owner, of_rows * counts / samples, n)
    return scores, samples + 1 + np.bincount(owner, minlength=n), completeness(scores, gained)


def smooth(
    points_of: Points,
    gradient: Gradient,
    size: int,
    inputs: np.ndarray,
    features: Features,
    instances: Sequence[int],
    seed: int,
    samples: int,
    noise: float,
) -> np.ndarray:
    """Scores (n, d), as smooth_grad of a framework's module; size: the rows of a pass."""
    tokens = np.issubdtype(inputs.dtype, np.integer)
    shape = points_of(inputs[:1]).shape[1:]
    removable = features.cells >= 0  # nothing is added to padding
    if tokens:
        removable = np.broadcast_to(removable[:, None], shape)
    generators = _generators(seed, instances)
    total = np.zeros((len(inputs), *shape))
    for instance, _ in _passes(len(inputs), samples, size):
        each, first, counts = np.unique(instance, return_index=True, return_counts=True)
        own = points_of(inputs[each])
        spread = noise * np.ptp(own[:, removable], axis=1)
        drawn = [generators[i].standard_normal((k, *shape), np.float32) for i, k in zip(each, counts, strict=True)]
        drawn = np.concatenate(drawn) * removable * np.repeat(spread, counts).reshape(-1, *[1] * len(shape))
        found, _ = gradient(np.repeat(own, counts, axis=0) + drawn.astype(np.float32), instance)
        total[each] += np.add.reduceat(found, first, axis=0, dtype=np.float64)
    mean = total / samples
    return absolute(np.linalg.norm(mean, axis=-1) if tokens else np.abs(mean), features)


def _generators(seed: int, instances: Sequence[int]) -> list[np.random.Generator]:
    return [np.random.default_rng(seed_of(seed, int(instance))) for instance in instances]


def _passes(n: int, samples: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(instances, samples), each (rows of a pass,): all samples of all instances, those of one after another."""
    for first in range(0, n * samples, size):
        yield np.divmod(np.arange(first, min(first + size, n * samples)), samples)


def _values(
    points_of: Points, gradient: Gradient, rows: Callable[[slice], np.ndarray], owners: np.ndarray, size: int
) -> np.ndarray:
    """F (m,) of rows in slices, each with the position of its instance."""
    parts = [slice(first, first + size) for first in range(0, len(owners), size)]
    return np.concatenate([gradient(points_of(rows(part)), owners[part])[1] for part in parts])


def _add_runs(totals: np.ndarray, instance: np.ndarray, found: np.ndarray) -> None:
    """Add found (m, ...) to the totals of ascending instances (m,)."""
    each, first = np.unique(instance, return_index=True)
    totals[each] += np.add.reduceat(found, first, axis=0)
