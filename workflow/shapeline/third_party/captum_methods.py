"""captum's explainers of functions; see games for what they are asked about."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from captum.attr import KernelShap, ShapleyValueSampling

from shapeline.games.game import Game
from shapeline.models.torch_models import seeded
from shapeline.third_party.budgets import kernel_minimum, permutation_minimum
from shapeline.third_party.games import BATCH, CountedGame, InstanceGame, explain_each

Scored = tuple[np.ndarray, np.ndarray]


def kernel_shap(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
) -> Scored:
    """captum's KernelShap, BATCH perturbations a call (one at a time by default). Scores (n, d), evaluations (n,)."""

    def explain(game: InstanceGame, seed: int) -> np.ndarray:
        return _explain(KernelShap, game, seed, n_samples=budget, perturbations_per_eval=BATCH)

    asked = CountedGame(question, inputs, targets, instances, seed, budget)
    return explain_each(explain, asked, kernel_minimum)


def shapley_sampling(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
) -> Scored:
    """captum's ShapleyValueSampling: as many permutations as the budget pays for."""

    def explain(game: InstanceGame, seed: int) -> np.ndarray:
        permutations = (budget - 2) // (game.d - 1)
        return _explain(ShapleyValueSampling, game, seed, n_samples=permutations, perturbations_per_eval=BATCH)

    asked = CountedGame(question, inputs, targets, instances, seed, budget)
    return explain_each(explain, asked, permutation_minimum)


def _explain(explainer: Callable, game: InstanceGame, seed: int, **settings: int) -> np.ndarray:
    def forward(masks: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(game(masks.numpy()))

    with seeded(seed):
        scores = explainer(forward).attribute(torch.ones(1, game.d), baselines=torch.zeros(1, game.d), **settings)
    return scores[0].double().numpy()
