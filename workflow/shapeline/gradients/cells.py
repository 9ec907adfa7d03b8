"""What the gradients of every framework share: from input cells to features, and the path's ends and nodes."""

import functools
import math
from collections.abc import Callable, Collection

import numpy as np

from shapeline.errors import ShapelineError, reject
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.memory import halve
from shapeline.models.classifier import Classifier

NUMBERS = 1 << 21  # numbers of the rows of one pass, whose gradients are held together
ROWS = 256
GAP = 0.1  # share of F's change above which a completeness gap is flagged
LARGE_GAP = "completeness gap above 10 %"


def rows_of_a_pass(shape: tuple[int, ...], model: Classifier) -> int:
    """How many rows of a shape, an input's or its embedding's, go through the model together."""
    return max(1, min(ROWS, NUMBERS // math.prod(shape), model.most_rows or ROWS))


def halving(method: Callable) -> Callable:
    """Decorate a gradient method: begun again with half the rows a pass whenever memory runs out."""

    @functools.wraps(method)
    def again(game: Game, inputs: np.ndarray, *others, **named):
        rows = rows_of_a_pass(inputs.shape[1:], game.model)
        return halve(game.model, rows, lambda _: method(game, inputs, *others, **named))

    return again


def check(model: Classifier, inputs: np.ndarray, framework: str) -> bool:
    """Whether the inputs are tokens; ShapelineError where this framework cannot differentiate the model by them."""
    name = model.architecture
    if model.framework != framework:
        raise reject(
            f"gradient methods: '{name}' is a {model.framework}, which {framework} cannot differentiate; "
            "give a network, or choose a method of coalitions"
        )
    tokens = np.issubdtype(inputs.dtype, np.integer)
    if tokens and not (hasattr(model.module, "embed") and hasattr(model.module, "from_embedding")):
        raise reject(
            f"gradient methods: '{name}' takes tokens, which have no derivative; "
            "give its module the methods embed(ids) and from_embedding(embedded, ids)"
        )
    return tokens


def pool(values: np.ndarray, features: Features, mean: bool = False) -> np.ndarray:
    """Sum (or mean) of cell values (n, *input_shape) over each feature's cells -> (n, d) float64."""
    owner = features.cells.reshape(-1)
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(features.d + 1))
    values = values.reshape(len(values), -1)[:, order].astype(np.float64)
    sums = np.add.reduceat(values, bounds[:-1], axis=1)  # every feature has a cell
    return sums / np.diff(bounds) if mean else sums


def absolute(gradient: np.ndarray, features: Features) -> np.ndarray:
    """Unsigned cell values (n, *input_shape) as scores (n, d): the largest over channels, the mean over cells."""
    if features.cells.ndim == 3:  # channels, height, width: the channels of a cell belong to one feature
        features = Features(features.kind, features.shape, features.cells[0])
        gradient = gradient.max(1)
    return pool(gradient, features, mean=True)


def completeness(scores: np.ndarray, gained: np.ndarray) -> dict[str, np.ndarray | list[str | None]]:
    """Return the completeness gaps (n,) of scores (n, d), flagged above 0.1 of the gain and 0.01 of all that moves."""
    gaps = np.abs(scores.sum(1) - gained)
    large = gaps > GAP * np.abs(gained) + 0.01 * np.abs(scores).sum(1)
    return {"completeness_gap": gaps, "warning": [LARGE_GAP if far else None for far in large]}


def average_map(maps: np.ndarray, features: Features) -> np.ndarray:
    """Mean of maps (n, height, width) over each feature's pixels -> (n, d)."""
    return pool(maps, Features(features.kind, features.shape, features.cells[0]), mean=True)


def score_maps(game: Game, inputs: np.ndarray, maps_of: Callable[[slice], np.ndarray], signed: bool) -> np.ndarray:
    """Return scores (n, d): means over features of upsampled maps, `maps_of` images; signed: with negative ones."""
    rows, scores = rows_of_a_pass(inputs.shape[1:], game.model), []
    for start in range(0, len(inputs), rows):
        maps = maps_of(slice(start, start + rows)).astype(np.float64)
        maps = maps if signed else np.maximum(maps, 0)
        scores.append(average_map(upsample(maps, inputs.shape[2:]), game.features))
    return np.concatenate(scores)


def check_layer(
    model: Classifier, inputs: np.ndarray, layer: str | None, layers: Collection[str], convolutions: list[str]
) -> str:
    """The layer asked for, or the last convolution; ShapelineError where there is none or the inputs are no images."""
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
    """The error of a layer that gives no maps."""
    return reject(
        f"grad_cam: layer '{layer}' of '{model.architecture}' gives no maps; its convolutions: "
        f"{_format_list(convolutions)}"
    )


def _format_list(convolutions: list[str]) -> str:
    return ", ".join(convolutions) or "none"


def starts(game: Game, inputs: np.ndarray) -> np.ndarray:
    """Return the starts (n, M, *input_shape) of paths to inputs: the reference's rows, but for cells that stay."""
    rows, cells = game.reference.of(inputs).astype(inputs.dtype), game.features.cells
    if cells.min() >= 0:  # rows that the inputs share are not copied for each
        return np.broadcast_to(rows, (len(inputs), *rows.shape[1:]))
    return np.where(cells < 0, inputs[:, None], rows)


def upsample(maps: np.ndarray, sides: tuple[int, int]) -> np.ndarray:
    """Maps (n, height, width) at the sides of the input, (n, *sides), bilinear between the centres of their cells."""
    return _stretch(maps.shape[1], sides[0]) @ maps @ _stretch(maps.shape[2], sides[1]).T


def _stretch(before: int, after: int) -> np.ndarray:
    """Weights (after, before) of linear interpolation; beyond the first and the last centre it is constant."""
    places = ((np.arange(after) + 0.5) * before / after - 0.5).clip(0, before - 1)
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(before)))


def nodes(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and weights (steps,) of the Gauss-Legendre rule on 0..1."""
    positions, weights = np.polynomial.legendre.leggauss(steps)
    return (1 + positions) / 2, weights / 2
