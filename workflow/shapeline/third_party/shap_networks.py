"""shap's explainers of torch networks: GradientExplainer and DeepExplainer."""

import warnings
from collections.abc import Sequence

import numpy as np
import shap
import torch
from torch import nn

from shapeline.games.game import Game
from shapeline.gradients.cells import check, pooled, starts
from shapeline.gradients.torch_deep_lift import head
from shapeline.gradients.torch_passes import differentiable, log_probs, tensor
from shapeline.models.classifier import Classifier
from shapeline.models.torch_models import checked_logits
from shapeline.seeds import seed_of
from shapeline.third_party.games import numpy_seeded

Scored = tuple[np.ndarray, np.ndarray]


class Explained(nn.Module):
    """The network with one output, log p of a class or the prediction; counts the rows that it is given."""

    def __init__(self, model: Classifier, target: int):
        super().__init__()
        self.network, self.target, self.rows = model.module, target, 0
        self.forward_all = log_probs(model, tokens=False)

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
        logits = checked_logits(self.network(rows), len(rows), self.model.architecture, self.model.task).double()
        if len(rows) % 2:  # the library tries the network on the references alone
            return logits[:, :1]
        target = torch.full((len(rows) // 2,), self.target, device=logits.device)
        multipliers, _ = head(logits.detach(), target, self.model.task)
        return (logits * multipliers.repeat(2, 1)).sum(1, keepdim=True)


def gradient(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    samples: int = 200,
) -> Scored:
    """shap.GradientExplainer of log p_target, or of a regression's prediction. Scores (n, d), rows it ran (n,)."""
    model = question.model
    check(model, inputs, "torch")
    origins = starts(question, inputs).astype(np.float32)
    of_cells, evaluations = np.zeros(inputs.shape), np.zeros(len(inputs), np.int64)
    with differentiable(model.module):
        for i, instance in enumerate(instances):
            own = seed_of(seed, int(instance)) % 2**32
            with numpy_seeded(own):
                network = Explained(model, int(targets[i]))
                explainer = shap.GradientExplainer(network, tensor(model, origins[i]))
                network.rows = 0  # building it asks for the references, which the explanation does not use
                x = tensor(model, inputs[i : i + 1].astype(np.float32))
                values = explainer.shap_values(x, nsamples=samples, rseed=own)
            of_cells[i], evaluations[i] = np.reshape(values, inputs.shape[1:]), network.rows
    return pooled(of_cells, question.features), evaluations


def deep(question: Game, inputs: np.ndarray, targets: np.ndarray) -> Scored:
    """shap.DeepExplainer, averaged over the reference's rows. Scores (n, d), rows it ran (n,).

    The library has no rule for a log-softmax: it is given the logits times the multipliers of our own deep_lift.
    """
    model = question.model
    check(model, inputs, "torch")
    origins = starts(question, inputs).astype(np.float32)
    of_cells, evaluations = np.zeros(inputs.shape), np.zeros(len(inputs), np.int64)
    with differentiable(model.module), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unrecognized nn.Module")  # linear ones: standardised columns
        for i in range(len(inputs)):
            network = Combined(model, int(targets[i]))
            explainer = shap.DeepExplainer(network, tensor(model, origins[i]))
            network.rows = 0
            x = tensor(model, inputs[i : i + 1].astype(np.float32))
            values = explainer.shap_values(x, check_additivity=False)  # the multipliers are made for pairs of rows
            of_cells[i], evaluations[i] = np.reshape(values, inputs.shape[1:]), network.rows
    return pooled(of_cells, question.features), evaluations
