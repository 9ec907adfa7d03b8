"""Attention rollout of a torch transformer (Abnar & Zuidema 2020)."""

from collections.abc import Sequence

import numpy as np
import torch

from shapeline.errors import unsupported
from shapeline.games.game import Game
from shapeline.gradients.cells import halving, pooled, rows_of_a_pass
from shapeline.gradients.torch_passes import tensor
from shapeline.models.torch_models import evaluation_mode


@halving
def attention_rollout(question: Game, inputs: np.ndarray) -> tuple[np.ndarray, int]:
    """How much of each feature's tokens flows by attention into the token that is read, whatever the class.

    inputs (n, length) of tokens -> scores (n, d), which are not negative, evaluations per instance (one pass). The
    model's module has a method `attentions(ids)`, which gives `rollout` its layers. A feature's score is the sum over
    its tokens; what is no feature's (special tokens) keeps its share. Raises ShapelineError for another model.
    """
    model = question.model
    if inputs.ndim != 2 or not hasattr(model.module, "attentions"):
        raise unsupported(
            f"attention_rollout: '{model.architecture}' tells no attention; give a text classifier of transformers, a "
            "network of tokens with the method attentions(ids), or choose another method"
        )
    of_cells = np.zeros(inputs.shape)
    # Attention is a square a head and layer; that of a row has no more numbers than this.
    config = getattr(getattr(model.module, "model", None), "config", None)
    squares = getattr(config, "num_hidden_layers", 1) * getattr(config, "num_attention_heads", 1)
    rows = rows_of_a_pass((squares, inputs.shape[1], inputs.shape[1]), model)
    with evaluation_mode(model.module), torch.no_grad():
        for start in range(0, len(inputs), rows):
            flow = read_by(model.module.attentions(tensor(model, inputs[start : start + rows])))
            of_cells[start : start + rows, : flow.shape[1]] = flow.cpu().numpy()
    return pooled(of_cells, question.features), 1


def rollout(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Attention (n, heads, t, t) of each layer, the first one first -> how much of token j is in token i at the end.

    (n, t, t) float64, rows sum to 1: of each layer the mean over heads and, for what goes around it, the identity, rows
    normalised, and their product (section 3, equation 1).
    """
    identity = torch.eye(layers[0].shape[-1], dtype=torch.float64, device=layers[0].device)
    whole = identity
    for layer in layers:
        mixed = layer.double().mean(1) + identity
        whole = mixed / mixed.sum(-1, keepdim=True) @ whole
    return whole


def read_by(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """The row (n, t) of the rollout of the token that the class is read from.

    That is the first; where tokens attend to none behind them, the last that any attends to.
    """
    whole = rollout(layers)
    ahead = sum(layer[:, :, 0, 1:].sum() for layer in layers)
    place = torch.zeros(len(whole), dtype=torch.long, device=whole.device)
    if ahead == 0:
        attended = layers[0].amax((1, 2)) > 0
        place = (attended * torch.arange(attended.shape[1], device=attended.device)).amax(1)
    return whole[torch.arange(len(whole), device=whole.device), place]
