"""Gradient attributions by a framework's derivative, summed over the input cells of each feature.

`torch_gradients` and `tf_gradients` bind them to their `open_slope`. Of a regression read the prediction for log
p_target. Samples are seeded per instance, so that shards and batches change nothing.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from shapeline.games.game import Game
from shapeline.gradients.cells import absolute, completeness, halving, nodes, pool, starts
from shapeline.models.classifier import Classifier
from shapeline.seeds import seed_of

# Inputs (m, *input shape) to points (m, *point shape) float32: themselves, or the embeddings of tokens.
Points = Callable[[np.ndarray], np.ndarray]
# Points (m, *point shape), whose inputs are those at positions (m,), to (∂F/∂points, F (m,) float64).
Gradient = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Slope:
    """A model that can be differentiated at points; rows: of a pass; tokens: whether points are embeddings of these."""

    points_of: Points
    gradient: Gradient
    rows: int
    tokens: bool

    def sum_embeddings(self, values: np.ndarray) -> np.ndarray:
        """Return values (m, *point shape) per input cell, (m, *input shape) float64."""
        return (values.sum(-1) if self.tokens else values).astype(np.float64)


# From a model, its inputs (n, *input shape) and targets (n,) to its slope, while the context is open.
OpenSlope = Callable[[Classifier, np.ndarray, np.ndarray], AbstractContextManager[Slope]]


def bind(open_slope: OpenSlope) -> tuple[Callable, ...]:
    """Return the methods of a framework, in the order that they stand here."""
    methods = saliency, gradient_x_input, gradient_x_difference, integrated_gradients, expected_gradients, smooth_grad
    return tuple(halving(functools.partial(method, open_slope)) for method in methods)


def saliency(open_slope: OpenSlope, game: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """|∂ log p_target / ∂x|, unsigned: largest over channels, mean over a feature's cells (Simonyan et al. 2013).

    inputs (n, *input shape), targets (n,) -> scores (n, d), evaluations per instance (one pass, forward and back).
    Of tokens it is the L2 norm of the derivative by their embedding.
    """
    with open_slope(game.model, inputs, targets) as slope:
        size = functools.partial(np.linalg.norm, axis=-1) if slope.tokens else np.abs
        of_cells = [size(gradient).astype(np.float64) for gradient, _ in _gradients(slope, inputs)]
    return absolute(np.concatenate(of_cells), game.features), 1


def gradient_x_input(
    open_slope: OpenSlope, game: Game, inputs: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, int]:
    """x · ∂ log p_target / ∂x, signed, summed over a feature's cells or embedding (Shrikumar et al. 2016)."""
    with open_slope(game.model, inputs, targets) as slope:
        of_cells = [slope.sum_embeddings(gradient * x) for gradient, x in _gradients(slope, inputs)]
    return pool(np.concatenate(of_cells), game.features), 1


def gradient_x_difference(
    open_slope: OpenSlope, game: Game, inputs: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, int]:
    """(x - x0) · ∂ log p_target / ∂x, signed, x0 the mean of the reference's rows (Shrikumar et al. 2017, §2.3.1)."""
    with open_slope(game.model, inputs, targets) as slope:
        moved = _gradients(slope, inputs, starts(game, inputs))
        of_cells = [slope.sum_embeddings(gradient * difference) for gradient, difference in moved]
    return pool(np.concatenate(of_cells), game.features), 1


def integrated_gradients(
    open_slope: OpenSlope, game: Game, inputs: np.ndarray, targets: np.ndarray, steps: int = 50
) -> tuple[np.ndarray, int, dict]:
    """(x - x0) · mean of ∂ log p_target / ∂x from x0, the mean reference, to x (Sundararajan et al. 2017, eq. 1).

    Gauss-Legendre. Returns scores (n, d), evaluations and "completeness_gap" (n,): |sum of scores - (F(x) - mean
    F(x0))|.
    """
    origins = starts(game, inputs)
    (n, M), (position, weight) = origins.shape[:2], nodes(steps)
    # The two ends stand among the nodes with a weight of nothing: their values tell the completeness gap.
    position, weight = np.append(position, [0, 1]).astype(np.float32), np.append(weight, [0, 0]).astype(np.float32)
    of_cells, gained = np.zeros(inputs.shape), np.zeros(n)
    with open_slope(game.model, inputs, targets) as slope:
        for instance, background in _passes(n, M, slope.rows):
            x, x0 = slope.points_of(inputs[instance]), slope.points_of(origins[instance, background])
            total, at_nodes = 0.0, []
            together = max(1, slope.rows // len(instance))  # nodes of a pass
            for start in range(0, steps + 2, together):
                part = slice(start, start + together)
                along = position[part].reshape(-1, *[1] * x.ndim)
                points = (x0 + along * (x - x0)).reshape(-1, *x.shape[1:])
                gradient, values = slope.gradient(points, np.tile(instance, len(along)))
                total = total + np.tensordot(weight[part], gradient.reshape(-1, *x.shape), 1)
                at_nodes.append(values.reshape(len(along), -1))
            at_nodes = np.concatenate(at_nodes)
            np.add.at(of_cells, instance, slope.sum_embeddings(total * (x - x0)) / M)
            np.add.at(gained, instance, (at_nodes[-1] - at_nodes[-2]) / M)
    scores = pool(of_cells, game.features)
    return scores, (steps + 2) * M, completeness(scores, gained)


def expected_gradients(
    open_slope: OpenSlope,
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    samples: int = 200,
) -> tuple[np.ndarray, np.ndarray, dict]:
    """(x - x0) · ∂ log p_target / ∂x at random points of random paths, averaged (Erion et al. 2021, eq. 4).

    x0: a reference row per sample, by (seed, instance). Returns scores (n, d), evaluations and "completeness_gap"
    (n,).
    """
    origins = starts(game, inputs)
    n, M = origins.shape[:2]
    generators = _generators(seed, instances)
    drawn = np.stack([generator.integers(M, size=samples) for generator in generators])
    along = np.stack([generator.random(samples, np.float32) for generator in generators])
    of_cells = np.zeros(inputs.shape)
    rows, counts = np.unique(np.arange(n)[:, None] * M + drawn, return_counts=True)
    owner, row = np.divmod(rows, M)
    with open_slope(game.model, inputs, targets) as slope:
        for instance, sample in _passes(n, samples, slope.rows):
            x, x0 = slope.points_of(inputs[instance]), slope.points_of(origins[instance, drawn[instance, sample]])
            index = along[instance, sample].reshape(-1, *[1] * (x.ndim - 1))
            moved = slope.gradient(x0 + index * (x - x0), instance)[0].astype(np.float64) * (x - x0)
            _add_runs(of_cells, instance, slope.sum_embeddings(moved))
        of_inputs = _values(slope, lambda part: inputs[part], np.arange(n))
        of_rows = _values(slope, lambda part: origins[owner[part], row[part]], owner)
    scores = pool(of_cells, game.features) / samples
    gained = of_inputs - np.bincount(owner, of_rows * counts / samples, n)
    return scores, samples + 1 + np.bincount(owner, minlength=n), completeness(scores, gained)


def smooth_grad(
    open_slope: OpenSlope,
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    samples: int = 50,
    noise: float = 0.15,
) -> tuple[np.ndarray, int]:
    """Saliency of the mean gradient of noisy copies (Smilkov et al. 2017); noise: a share of the input's own range."""
    generators = _generators(seed, instances)
    with open_slope(game.model, inputs, targets) as slope:
        shape = slope.points_of(inputs[:1]).shape[1:]
        removable = game.features.cells >= 0  # nothing is added to padding
        if slope.tokens:
            removable = np.broadcast_to(removable[:, None], shape)
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
    size = np.linalg.norm(mean, axis=-1) if slope.tokens else np.abs(mean)
    return absolute(size, game.features), samples


def _gradients(
    slope: Slope, inputs: np.ndarray, origins: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ∂F/∂points and the points of each pass; less the mean of those of `origins` (n, M, *input shape)."""
    for start in range(0, len(inputs), slope.rows):
        instance = np.arange(start, min(start + slope.rows, len(inputs)))
        points = slope.points_of(inputs[instance])
        gradient, _ = slope.gradient(points, instance)
        if origins is not None:
            points = points - np.stack([slope.points_of(own).mean(0) for own in origins[instance]])
        yield gradient, points


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
