"""shap's explainers of functions, whose input is described in `black_box`."""

import functools
import warnings
from collections.abc import Sequence

import numpy as np
import shap
import torch
from torch import nn

from shapeline.games.game import Game
from shapeline.gradients.methods import build_starts, check_inputs, pool
from shapeline.gradients.torch_gradients import build_log_probs, compute_multipliers, differentiable, tensor
from shapeline.methods.parameters import kernel_minimum, pair_minimum, split_minimum
from shapeline.models.classifier import Classifier
from shapeline.models.torch_models import check_logits
from shapeline.seeds import seed_of
from shapeline.third_party.black_box import InstanceGame, Scored, peer, seed_numpy

BATCH_NODES = 50  # nodes of a tree that are split at a time, as in the library's examples on images


@peer(kernel_minimum)
def kernel(v: InstanceGame, seed: int, budget: int) -> np.ndarray:
    """Run shap.KernelExplainer (Lundberg & Lee 2017) without l1_reg; scores (d,)."""
    with seed_numpy(seed):
        explainer = shap.KernelExplainer(v, np.zeros((1, v.d)))
        return explainer.shap_values(np.ones((1, v.d)), nsamples=budget - 2, l1_reg=False, silent=True)[0]


@peer(pair_minimum)
def permutation(v: InstanceGame, seed: int, budget: int) -> np.ndarray:
    """Run shap.PermutationExplainer with as many permutations and reverses as the budget allows."""
    pairs = (budget - 2) // (2 * (v.d - 1))
    masker = shap.maskers.Independent(np.zeros((1, v.d)), max_samples=1)
    with seed_numpy(seed):
        explainer = shap.PermutationExplainer(v, masker, seed=seed)
        return explainer(np.ones((1, v.d)), max_evals=pairs * (2 * v.d + 1), silent=True).values[0]


@peer(split_minimum)
def partition(v: InstanceGame, seed: int, budget: int, fixed_context: int | None = None) -> np.ndarray:
    """Run shap.PartitionExplainer on a tree that halves the longest side; fixed_context: 0, 1, or both by default."""

    def masker(mask: np.ndarray, x: np.ndarray) -> np.ndarray:
        return (mask * x)[None]

    masker.shape, masker.clustering, masker.immutable_outputs = ((1, v.d), build_linkage(v.features.shape), True)
    with seed_numpy(seed):
        explainer = shap.PartitionExplainer(v, masker)
        explanation = explainer(
            np.ones((1, v.d)),
            max_evals=budget - budget % 2,  # a node costs two evaluations, so an odd budget would be exceeded
            fixed_context=fixed_context,
            batch_size=BATCH_NODES,
            silent=True,
        )
    return explanation.values[0]


@functools.cache
def build_linkage(shape: tuple[int, ...]) -> np.ndarray:
    """Return a grid's tree, which halves the longest side, as linkage (d - 1, 4): children, distance, leaves."""
    rows: list[tuple[int, int, int, int]] = []
    cells = np.arange(np.prod(shape)).reshape(shape)

    def node(block: np.ndarray) -> int:
        if block.size == 1:
            return int(block.flat[0])
        axis = int(np.argmax(block.shape))
        first, second = (node(half) for half in np.array_split(block, 2, axis))
        rows.append((first, second, block.size, block.size))
        return cells.size + len(rows) - 1

    node(cells)
    return np.array(rows, np.float64)


class Explained(nn.Module):
    """The network with one output, log p of a class or the prediction; counts the evaluated rows."""

    def __init__(self, model: Classifier, target: int):
        super().__init__()
        self.network, self.target, self.rows = model.module, target, 0
        self.forward_all = build_log_probs(model, tokens=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.rows += len(rows)
        return self.forward_all(rows)[:, self.target, None]


class Combined(nn.Module):
    """The network with one output, its logits times multipliers: rows are inputs, then as many references."""

    def __init__(self, model: Classifier, target: int):
        super().__init__()
        self.network, self.model, self.target, self.rows = model.module, model, target, 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.rows += len(rows)
        logits = check_logits(self.network(rows), len(rows), self.model.architecture, self.model.task).double()
        if len(rows) % 2:  # the library first evaluates the network on only the references
            return logits[:, :1]
        target = torch.full((len(rows) // 2,), self.target, device=logits.device)
        multipliers, _ = compute_multipliers(logits.detach(), target, self.model.task)
        return (logits * multipliers.repeat(2, 1)).sum(1, keepdim=True)


def gradient(
    game: Game, inputs: np.ndarray, targets: np.ndarray, instances: Sequence[int], seed: int, samples: int = 200
) -> Scored:
    """Run shap.GradientExplainer on log p_target or a regression's prediction. Scores (n, d), evaluated rows (n,)."""
    model = game.model
    check_inputs(model, inputs, "torch")
    origins = build_starts(game, inputs).astype(np.float32)
    totals, evaluations = np.zeros(inputs.shape), np.zeros(len(inputs), np.int64)
    with differentiable(model.module):
        for i, instance in enumerate(instances):
            instance_seed = seed_of(seed, int(instance)) % 2**32
            with seed_numpy(instance_seed):
                network = Explained(model, int(targets[i]))
                explainer = shap.GradientExplainer(network, tensor(model, origins[i]))
                network.rows = 0  # creating the explainer evaluates the references, which the explanation does not use
                x = tensor(model, inputs[i : i + 1].astype(np.float32))
                values = explainer.shap_values(x, nsamples=samples, rseed=instance_seed)
            totals[i], evaluations[i] = np.reshape(values, inputs.shape[1:]), network.rows
    return pool(totals, game.features), evaluations


def deep(game: Game, inputs: np.ndarray, targets: np.ndarray) -> Scored:
    """Run shap.DeepExplainer with deep_lift's multipliers, averaged over reference rows; scores (n, d), rows."""
    model = game.model
    check_inputs(model, inputs, "torch")
    origins = build_starts(game, inputs).astype(np.float32)
    of_cells, evaluations = np.zeros(inputs.shape), np.zeros(len(inputs), np.int64)
    with differentiable(model.module), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unrecognized nn.Module")  # linear ones: standardised columns
        for i in range(len(inputs)):
            network = Combined(model, int(targets[i]))
            explainer = shap.DeepExplainer(network, tensor(model, origins[i]))
            network.rows = 0
            x = tensor(model, inputs[i : i + 1].astype(np.float32))
            values = explainer.shap_values(x, check_additivity=False)  # the multipliers are for pairs of rows
            of_cells[i], evaluations[i] = np.reshape(values, inputs.shape[1:]), network.rows
    return pool(of_cells, game.features), evaluations
