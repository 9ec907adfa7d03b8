"""Gradient attributions by a framework's derivative, summed over the input cells of each feature.

`torch_gradients` and `tf_gradients` bind them to their `open_slope`, and share the mapping from input cells to
features, and the path's ends and nodes. For a regression, log p_target is the prediction. Samples are seeded per
instance, so that results do not depend on shards and batches.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from shapeline.errors import ShapelineError, reject
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.memory import halve
from shapeline.models.classifier import Classifier
from shapeline.seeds import seed_of

MAX_PASS_NUMBERS = 1 << 21  # numbers in the rows of a pass, whose gradients are in memory together
MAX_PASS_ROWS = 256
MAX_GAP = 0.1  # completeness gaps above this share of F's change are flagged
GAP_WARNING = "completeness gap above 10 % (raise steps or samples, or use another method)"
# From inputs (m, *input shape) to points (m, *point shape) float32: the inputs, or the embeddings of tokens.
Points = Callable[[np.ndarray], np.ndarray]
# From points (m, *point shape) and the positions (m,) of their inputs to (∂F/∂points, F (m,) float64).
Gradient = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def choose_batch_size(shape: tuple[int, ...], model: Classifier) -> int:
    """Return the rows per pass, for the shape of an input or its embedding."""
    return max(1, min(MAX_PASS_ROWS, MAX_PASS_NUMBERS // math.prod(shape), model.most_rows or MAX_PASS_ROWS))


def halve_on_memory_error(method: Callable) -> Callable:
    """Return a gradient method that restarts with half the rows per pass when memory runs out."""

    @functools.wraps(method)
    def restart(game: Game, inputs: np.ndarray, *args, **kwargs):
        rows = choose_batch_size(inputs.shape[1:], game.model)
        return halve(game.model, rows, lambda _: method(game, inputs, *args, **kwargs))

    return restart


def check_inputs(model: Classifier, inputs: np.ndarray, framework: str) -> bool:
    """Return whether the inputs are tokens. Raises ShapelineError where the model is not differentiable."""
    name = model.architecture
    if model.framework != framework:
        raise reject(
            f"gradient methods: '{name}' is a {model.framework}{' network' * (model.framework != 'function')}, which "
            f"{framework} cannot differentiate; give a network, or choose a method of coalitions"
        )
    tokens = np.issubdtype(inputs.dtype, np.integer)
    if tokens and not (hasattr(model.module, "embed") and hasattr(model.module, "from_embedding")):
        raise reject(
            f"gradient methods: '{name}' takes tokens, which have no derivative; "
            "give its module the methods embed(ids) and from_embedding(embedded, ids)"
        )
    return tokens


def pool(values: np.ndarray, features: Features, mean: bool = False) -> np.ndarray:
    """Return the sum (or mean) of cell values (n, *input_shape) over each feature's cells, (n, d) float64."""
    feature = features.cells.reshape(-1)
    order = np.argsort(feature, kind="stable")
    bounds = np.searchsorted(feature[order], np.arange(features.d + 1))
    values = values.reshape(len(values), -1)[:, order].astype(np.float64)
    sums = np.add.reduceat(values, bounds[:-1], axis=1)  # every feature has a cell
    return sums / np.diff(bounds) if mean else sums


def pool_absolute(gradient: np.ndarray, features: Features) -> np.ndarray:
    """Return scores (n, d) of unsigned cell values (n, *input_shape): maximum over channels, mean over cells."""
    if features.cells.ndim == 3:  # channels, height, width: the channels of a cell belong to one feature
        features = Features(features.kind, features.shape, features.cells[0])
        gradient = gradient.max(1)
    return pool(gradient, features, mean=True)


def measure_completeness(scores: np.ndarray, gained: np.ndarray) -> dict[str, np.ndarray | list[str | None]]:
    """Return the completeness gaps (n,) of scores (n, d), flagged above 0.1 of the gain + 0.01 of the |scores|."""
    gaps = np.abs(scores.sum(1) - gained)
    large = gaps > MAX_GAP * np.abs(gained) + 0.01 * np.abs(scores).sum(1)
    return {"completeness_gap": gaps, "warning": [GAP_WARNING if far else None for far in large]}


def average_map(maps: np.ndarray, features: Features) -> np.ndarray:
    """Return the mean of maps (n, height, width) over each feature's pixels, (n, d)."""
    return pool(maps, Features(features.kind, features.shape, features.cells[0]), mean=True)


def score_maps(game: Game, inputs: np.ndarray, compute_maps: Callable[[slice], np.ndarray], signed: bool) -> np.ndarray:
    """Return scores (n, d): means over features of upsampled maps; signed: negative values of maps are kept."""
    rows, scores = choose_batch_size(inputs.shape[1:], game.model), []
    for start in range(0, len(inputs), rows):
        maps = compute_maps(slice(start, start + rows)).astype(np.float64)
        maps = maps if signed else np.maximum(maps, 0)
        scores.append(average_map(upsample(maps, inputs.shape[2:]), game.features))
    return np.concatenate(scores)


def check_layer(
    model: Classifier, inputs: np.ndarray, layer: str | None, layers: Collection[str], convolutions: list[str]
) -> str:
    """Return `layer`, or the last convolution. Raises ShapelineError if there is none, and for other inputs."""
    if inputs.ndim != 4:
        raise reject(
            f"grad_cam: the inputs of '{model.architecture}' have shape {inputs.shape[1:]} and are no images; "
            "use saliency or integrated_gradients"
        )
    if layer is None and convolutions:
        return convolutions[-1]
    if layer is None or layer not in layers or layer == "":
        if layer is None:
            raise reject(f"grad_cam: '{model.architecture}' has no convolution; use saliency or integrated_gradients")
        raise ShapelineError(
            f"grad_cam: '{model.architecture}' has no layer '{layer}'; its convolutions: {_format_list(convolutions)}"
        )
    return layer


def describe_missing_map(model: Classifier, layer: str, convolutions: list[str]) -> ShapelineError:
    """Return the error for a layer without maps."""
    return reject(
        f"grad_cam: layer '{layer}' of '{model.architecture}' gives no maps; its convolutions: "
        f"{_format_list(convolutions)}"
    )


def _format_list(convolutions: list[str]) -> str:
    return ", ".join(convolutions) or "none"


def build_starts(game: Game, inputs: np.ndarray) -> np.ndarray:
    """Return the starts (n, M, *input_shape) of paths to inputs: the reference's rows, except cells never masked."""
    rows, cells = game.reference.of(inputs).astype(inputs.dtype), game.features.cells
    if cells.min() >= 0:  # shared rows are not copied per input
        return np.broadcast_to(rows, (len(inputs), *rows.shape[1:]))
    return np.where(cells < 0, inputs[:, None], rows)


def upsample(maps: np.ndarray, sides: tuple[int, int]) -> np.ndarray:
    """Return maps (n, height, width) interpolated bilinearly between cell centres to the input's size, (n, *sides)."""
    return _build_weights(maps.shape[1], sides[0]) @ maps @ _build_weights(maps.shape[2], sides[1]).T


def _build_weights(before: int, after: int) -> np.ndarray:
    """Return weights (after, before) of linear interpolation, constant beyond the first and last centre."""
    positions = ((np.arange(after) + 0.5) * before / after - 0.5).clip(0, before - 1)
    return np.maximum(0, 1 - np.abs(positions[:, None] - np.arange(before)))


def compute_nodes(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and weights (steps,) of the Gauss-Legendre rule on 0..1."""
    positions, weights = np.polynomial.legendre.leggauss(steps)
    return (1 + positions) / 2, weights / 2


@dataclass(frozen=True)
class Slope:
    """A differentiable model; rows: per pass; tokens: whether points are embeddings of tokens."""

    embed: Points
    gradient: Gradient
    rows: int
    tokens: bool

    def sum_embeddings(self, values: np.ndarray) -> np.ndarray:
        """Return values (m, *point shape) per input cell, (m, *input shape) float64."""
        return (values.sum(-1) if self.tokens else values).astype(np.float64)


# A context manager from a model, its inputs (n, *input shape) and targets (n,) to its slope.
OpenSlope = Callable[[Classifier, np.ndarray, np.ndarray], AbstractContextManager[Slope]]


def bind(open_slope: OpenSlope) -> tuple[Callable, ...]:
    """Return the methods of a framework, in the order of this module."""
    methods = saliency, gradient_x_input, gradient_x_difference, integrated_gradients, expected_gradients, smooth_grad
    return tuple(halve_on_memory_error(functools.partial(method, open_slope)) for method in methods)


def saliency(open_slope: OpenSlope, game: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """Return |∂ log p_target / ∂x|: maximum over channels, mean over a feature's cells (Simonyan et al. 2013).

    inputs (n, *input shape), targets (n,) -> scores (n, d), evaluations per instance (one pass, forward and back).
    For tokens it is the L2 norm of the derivative by their embedding.
    """
    with open_slope(game.model, inputs, targets) as slope:
        size = functools.partial(np.linalg.norm, axis=-1) if slope.tokens else np.abs
        of_cells = [size(gradient).astype(np.float64) for gradient, _ in _iterate_gradients(slope, inputs)]
    return pool_absolute(np.concatenate(of_cells), game.features), 1


def gradient_x_input(
    open_slope: OpenSlope, game: Game, inputs: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return x · ∂ log p_target / ∂x, signed, summed over a feature's cells or embedding (Shrikumar et al. 2016)."""
    with open_slope(game.model, inputs, targets) as slope:
        of_cells = [slope.sum_embeddings(gradient * x) for gradient, x in _iterate_gradients(slope, inputs)]
    return pool(np.concatenate(of_cells), game.features), 1


def gradient_x_difference(
    open_slope: OpenSlope, game: Game, inputs: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return (x - x0) · ∂ log p_target / ∂x, signed, x0 the mean reference row (Shrikumar et al. 2017, §2.3.1)."""
    with open_slope(game.model, inputs, targets) as slope:
        moved = _iterate_gradients(slope, inputs, build_starts(game, inputs))
        of_cells = [slope.sum_embeddings(gradient * difference) for gradient, difference in moved]
    return pool(np.concatenate(of_cells), game.features), 1


def integrated_gradients(
    open_slope: OpenSlope, game: Game, inputs: np.ndarray, targets: np.ndarray, steps: int = 50
) -> tuple[np.ndarray, int, dict]:
    """Return (x - x0) · mean ∂ log p_target / ∂x from x0, the mean reference, to x (Sundararajan et al. 2017, eq. 1).

    Gauss-Legendre. Returns scores (n, d), evaluations and "completeness_gap" (n,): |sum of scores - (F(x) - mean
    F(x0))|.
    """
    origins = build_starts(game, inputs)
    (n, M), (position, weight) = origins.shape[:2], compute_nodes(steps)
    # Both ends are nodes with weight 0, since the completeness gap needs their values.
    position, weight = np.append(position, [0, 1]).astype(np.float32), np.append(weight, [0, 0]).astype(np.float32)
    of_cells, gained = np.zeros(inputs.shape), np.zeros(n)
    with open_slope(game.model, inputs, targets) as slope:
        for instance, background in _cut_passes(n, M, slope.rows):
            x, x0 = slope.embed(inputs[instance]), slope.embed(origins[instance, background])
            total, at_nodes = 0.0, []
            together = max(1, slope.rows // len(instance))  # nodes per pass
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
    return scores, (steps + 2) * M, measure_completeness(scores, gained)


def expected_gradients(
    open_slope: OpenSlope,
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    samples: int = 200,
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return the mean of (x - x0) · ∂ log p_target / ∂x at random points of random paths (Erion et al. 2021, eq. 4).

    x0: a reference row per sample, by (seed, instance). Returns scores (n, d), evaluations and "completeness_gap"
    (n,).
    """
    origins = build_starts(game, inputs)
    n, M = origins.shape[:2]
    generators = _seed_generators(seed, instances)
    drawn = np.stack([generator.integers(M, size=samples) for generator in generators])
    fractions = np.stack([generator.random(samples, np.float32) for generator in generators])
    totals = np.zeros(inputs.shape)
    rows, counts = np.unique(np.arange(n)[:, None] * M + drawn, return_counts=True)
    instance_of_row, row = np.divmod(rows, M)
    with open_slope(game.model, inputs, targets) as slope:
        for instance, sample in _cut_passes(n, samples, slope.rows):
            x, x0 = slope.embed(inputs[instance]), slope.embed(origins[instance, drawn[instance, sample]])
            index = fractions[instance, sample].reshape(-1, *[1] * (x.ndim - 1))
            change = slope.gradient(x0 + index * (x - x0), instance)[0].astype(np.float64) * (x - x0)
            distinct, first = np.unique(instance, return_index=True)  # instances ascend
            totals[distinct] += np.add.reduceat(slope.sum_embeddings(change), first, axis=0)
        values = _evaluate_rows(slope, lambda part: inputs[part], np.arange(n))
        values_of_rows = _evaluate_rows(slope, lambda part: origins[instance_of_row[part], row[part]], instance_of_row)
    scores = pool(totals, game.features) / samples
    gained = values - np.bincount(instance_of_row, values_of_rows * counts / samples, n)
    return scores, samples + 1 + np.bincount(instance_of_row, minlength=n), measure_completeness(scores, gained)


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
    """Return the saliency of noisy copies' mean gradient (Smilkov et al. 2017); noise: a share of the input's range."""
    generators = _seed_generators(seed, instances)
    with open_slope(game.model, inputs, targets) as slope:
        shape = slope.embed(inputs[:1]).shape[1:]
        removable = game.features.cells >= 0  # no noise on padding
        if slope.tokens:
            removable = np.broadcast_to(removable[:, None], shape)
        total = np.zeros((len(inputs), *shape))
        for instance, _ in _cut_passes(len(inputs), samples, slope.rows):
            rows, first, counts = np.unique(instance, return_index=True, return_counts=True)
            clean = slope.embed(inputs[rows])
            scale = noise * np.ptp(clean[:, removable], axis=1)
            drawn = [generators[i].standard_normal((k, *shape), np.float32) for i, k in zip(rows, counts, strict=True)]
            drawn = np.concatenate(drawn) * removable * np.repeat(scale, counts).reshape(-1, *[1] * len(shape))
            gradients, _ = slope.gradient(np.repeat(clean, counts, axis=0) + drawn.astype(np.float32), instance)
            total[rows] += np.add.reduceat(gradients, first, axis=0, dtype=np.float64)
    mean = total / samples
    size = np.linalg.norm(mean, axis=-1) if slope.tokens else np.abs(mean)
    return pool_absolute(size, game.features), samples


def _iterate_gradients(
    slope: Slope, inputs: np.ndarray, origins: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ∂F/∂points and points of each pass, the latter minus the mean of `origins` (n, M, *input shape)."""
    for start in range(0, len(inputs), slope.rows):
        instance = np.arange(start, min(start + slope.rows, len(inputs)))
        points = slope.embed(inputs[instance])
        gradient, _ = slope.gradient(points, instance)
        if origins is not None:
            points = points - np.stack([slope.embed(rows).mean(0) for rows in origins[instance]])
        yield gradient, points


def _seed_generators(seed: int, instances: Sequence[int]) -> list[np.random.Generator]:
    return [np.random.default_rng(seed_of(seed, int(instance))) for instance in instances]


def _cut_passes(n: int, samples: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (instances, samples), each (rows of a pass,): all samples of all instances, instance by instance."""
    for first in range(0, n * samples, size):
        yield np.divmod(np.arange(first, min(first + size, n * samples)), samples)


def _evaluate_rows(slope: Slope, rows: Callable[[slice], np.ndarray], owners: np.ndarray) -> np.ndarray:
    """Return F (m,) of rows in slices, each with the position of its instance."""
    parts = [slice(first, first + slope.rows) for first in range(0, len(owners), slope.rows)]
    return np.concatenate([slope.gradient(slope.embed(rows(part)), owners[part])[1] for part in parts])
