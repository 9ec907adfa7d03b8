"""LIME whose kernel is a Gaussian of the distance between inputs, as Pei (2018) states it."""

from collections.abc import Sequence

import numpy as np

from shapeline.designs.surrogate import lime_masks, ridge_readout
from shapeline.games.game import Game
from shapeline.gradients.cells import pool
from shapeline.seeds import seed_of


def lime_input(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
    sigma: float = 0.5,
    ridge: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Ridge fits with weights exp(-|x - h(S)|^2 / sigma^2) to the values of masked inputs h(S); scores (n, d).

    sigma: as a share of the distance to the fully masked input; squared distances are averaged over reference rows.
    """
    d = game.features.d
    drawn = [lime_masks(d, budget, np.random.default_rng(seed_of(seed, instance))) for instance in instances]
    values = game.values(inputs, np.stack(drawn), targets)
    apart = _distances(game, inputs)
    scores = np.empty((len(inputs), d))
    for row, masks in enumerate(drawn):
        total = apart[row].sum() or 1.0
        weights = np.exp(-(~masks @ apart[row]) / total / sigma**2)
        scores[row] = ridge_readout(masks, weights, ridge) @ values[row]
    return scores, np.array([len(masks) for masks in drawn])


def _distances(game: Game, inputs: np.ndarray) -> np.ndarray:
    """Squared distance that each feature moves an input by when it is absent, (n, d); mean over the reference rows."""
    rows = game.reference.of(inputs)
    moved = ((inputs[:, None].astype(np.float64) - rows) ** 2).mean(axis=1)
    return pool(moved, game.features).reshape(len(inputs), -1)
