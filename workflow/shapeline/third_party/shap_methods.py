"""shap's explainers of functions; see games for what they are asked about."""

import functools
from collections.abc import Sequence

import numpy as np
import shap

from shapeline.games.game import Game
from shapeline.third_party.budgets import kernel_minimum, pair_minimum, split_minimum
from shapeline.third_party.games import CountedGame, InstanceGame, explain_each, numpy_seeded

Scored = tuple[np.ndarray, np.ndarray]
NODES = 50  # of a tree split at a time: that of the library's examples on images


def kernel(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
) -> Scored:
    """shap.KernelExplainer (Lundberg & Lee 2017); all features score (l1_reg off). Scores (n, d), evaluations (n,)."""

    def explain(game: InstanceGame, seed: int) -> np.ndarray:
        with numpy_seeded(seed):
            explainer = shap.KernelExplainer(game, np.zeros((1, game.d)))
            return explainer.shap_values(np.ones((1, game.d)), nsamples=budget - 2, l1_reg=False, silent=True)[0]

    asked = CountedGame(question, inputs, targets, instances, seed, budget)
    return explain_each(explain, asked, kernel_minimum)


def permutation(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
) -> Scored:
    """shap.PermutationExplainer: permutations and their reverses, as many as the budget pays for."""

    def explain(game: InstanceGame, seed: int) -> np.ndarray:
        pairs = (budget - 2) // (2 * (game.d - 1))
        masker = shap.maskers.Independent(np.zeros((1, game.d)), max_samples=1)
        with numpy_seeded(seed):
            explainer = shap.PermutationExplainer(game, masker, seed=seed)
            return explainer(np.ones((1, game.d)), max_evals=pairs * (2 * game.d + 1), silent=True).values[0]

    asked = CountedGame(question, inputs, targets, instances, seed, budget)
    return explain_each(explain, asked, pair_minimum)


def partition(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
    fixed_context: int | None = None,
) -> Scored:
    """shap.PartitionExplainer: Owen values on a tree that halves the longest side of the features' grid.

    question, inputs, targets, instances, seed, budget: as games.CountedGame.
    fixed_context: 0 or 1, the one branch of each split that is followed; both by default.
    """

    def explain(game: InstanceGame, seed: int) -> np.ndarray:
        def masker(mask: np.ndarray, x: np.ndarray) -> np.ndarray:
            return (mask * x)[None]

        masker.shape, masker.clustering, masker.immutable_outputs = (1, game.d), halves(question.features.shape), True
        with numpy_seeded(seed):
            explainer = shap.PartitionExplainer(game, masker)
            explanation = explainer(
                np.ones((1, game.d)),
                max_evals=budget - budget % 2,  # a node costs two, and the library would finish an odd one
                fixed_context=fixed_context,
                batch_size=NODES,
                silent=True,
            )
        return explanation.values[0]

    asked = CountedGame(question, inputs, targets, instances, seed, budget)
    return explain_each(explain, asked, split_minimum)


@functools.cache
def halves(shape: tuple[int, ...]) -> np.ndarray:
    """A tree over a grid, row major, as linkage (d - 1, 4): children, distance, leaves; the longest side is halved."""
    rows: list[tuple[int, int, int, int]] = []
    cells = np.arange(np.prod(shape)).reshape(shape)

    def node(block: np.ndarray) -> int:
        if block.size == 1:
            return int(block.flat[0])
        axis = int(np.argmax(block.shape))
        left, right = (node(half) for half in np.array_split(block, 2, axis))
        rows.append((left, right, block.size, block.size))
        return cells.size + len(rows) - 1

    node(cells)
    return np.array(rows, np.float64)
