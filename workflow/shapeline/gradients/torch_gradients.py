"""Gradient attributions of a torch classifier, summed over the input cells of each feature.

Of a regression model the prediction stands wherever log p_target is written.
"""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from shapeline.features import Features
from shapeline.gradients.cells import absolute, check, pooled, rows_of_a_pass, starts
from shapeline.models.classifier import Classifier
from shapeline.models.torch_models import checked_logits, device_of, evaluation_mode
from shapeline.references import Reference


def saliency(model: Classifier, inputs: np.ndarray, targets: np.ndarray, features: Features) -> tuple[np.ndarray, int]:
    """|∂ log p_target / ∂x|, unsigned: largest over channels, mean over a feature's cells (Simonyan et al. 2013).

    inputs (n, *input shape), targets (n,) -> scores (n, d), evaluations per instance (one pass, forward and back).
    Of tokens it is the L2 norm of the derivative by their embedding.
    """
    if check(model, inputs, "torch"):
        of_cells = _gradients(model, inputs, targets, lambda gradient, _: gradient.norm(dim=-1))
    else:
        of_cells = _gradients(model, inputs, targets, lambda gradient, _: gradient.abs())
    return absolute(of_cells, features), 1


def gradient_x_input(
    model: Classifier, inputs: np.ndarray, targets: np.ndarray, features: Features
) -> tuple[np.ndarray, int]:
    """x · ∂ log p_target / ∂x, signed, summed over a feature's cells (Shrikumar et al. 2016); shapes as in saliency.

    Of tokens, x is their embedding.
    """
    if check(model, inputs, "torch"):
        of_cells = _gradients(model, inputs, targets, lambda gradient, x: (gradient * x).sum(-1))
    else:
        of_cells = _gradients(model, inputs, targets, torch.mul)
    return pooled(of_cells, features), 1


def integrated_gradients(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    features: Features,
    reference: Reference,
    steps: int = 50,
) -> tuple[np.ndarray, int, dict[str, np.ndarray]]:
    """(x - x0) · mean of ∂ log p_target / ∂x on the straight path from x0 to x (Sundararajan et al. 2017, eq. 1).

    x0: the reference, averaged over its M rows; of tokens, x and x0 are embeddings, and padding is that of the input.
    The path is integrated by Gauss-Legendre. Scores (n, d), evaluations per instance, and {"completeness_gap": (n,)}:
    |sum of scores - (F(x) - mean F(x0))| of F = log p_target.
    """
    from captum.attr import IntegratedGradients  # half a second, which the other methods need not wait for

    tokens = check(model, inputs, "torch")
    origins = starts(inputs, reference, features)
    n, M = origins.shape[:2]
    of_cells, gained = np.zeros(inputs.shape), np.zeros(n)
    with _differentiable(model.module):
        forward = _log_probs(model, tokens)
        rows = rows_of_a_pass(_points(model, inputs[:1], tokens).shape)
        for first in range(0, n * M, rows):
            instance, background = np.divmod(np.arange(first, min(first + rows, n * M)), M)
            x = _points(model, inputs[instance], tokens)
            x0 = _points(model, origins[instance, background], tokens)
            ids = _tensor(model, inputs[instance]) if tokens else None
            target = _tensor(model, targets[instance]).long()
            found = IntegratedGradients(forward).attribute(
                x, x0, target, ids, n_steps=steps, method="gausslegendre", internal_batch_size=rows
            )
            with torch.no_grad():
                difference = (forward(x, ids) - forward(x0, ids)).gather(1, target[:, None])[:, 0]
            found = found.detach().double()
            np.add.at(of_cells, instance, (found.sum(-1) if tokens else found).cpu().numpy() / M)
            np.add.at(gained, instance, difference.cpu().numpy() / M)
    scores = pooled(of_cells, features)
    # At each reference row its steps, and the two ends, which the gap needs.
    return scores, (steps + 2) * M, {"completeness_gap": np.abs(scores.sum(1) - gained)}


def _gradients(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    reduced: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> np.ndarray:
    """What `reduced` makes of (∂ log p_target / ∂x, x), (n, *input shape) float64; x: the embedding of tokens."""
    tokens, parts = np.issubdtype(inputs.dtype, np.integer), []
    with _differentiable(model.module):
        forward = _log_probs(model, tokens)
        rows = rows_of_a_pass(_points(model, inputs[:1], tokens).shape)
        for start in range(0, len(inputs), rows):
            own = inputs[start : start + rows]
            x = _points(model, own, tokens).requires_grad_()
            target = _tensor(model, targets[start : start + rows]).long()
            log_probs = forward(x, _tensor(model, own) if tokens else None)
            (gradient,) = torch.autograd.grad(log_probs.gather(1, target[:, None]).sum(), x)
            parts.append(reduced(gradient, x.detach()).double().cpu().numpy())
    return np.concatenate(parts)


def _tensor(model: Classifier, array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, device=device_of(model.module))


def _points(model: Classifier, rows: np.ndarray, tokens: bool) -> torch.Tensor:
    """What is differentiated by: rows (n, *input shape) as float32, or the embedding (n, length, e) of tokens."""
    if tokens:
        return model.module.embed(_tensor(model, rows)).detach()
    return _tensor(model, rows).float()


def _log_probs(model: Classifier, tokens: bool) -> Callable[..., torch.Tensor]:
    """From points, and the ids of tokens, to log-probabilities (n, classes) float64, or predictions (n, 1)."""

    def forward(points: torch.Tensor, ids: torch.Tensor | None = None) -> torch.Tensor:
        logits = model.module.from_embedding(points, ids) if tokens else model.module(points)
        logits = checked_logits(logits, len(points), model.architecture, model.task).double()
        return logits if model.task == "regression" else torch.log_softmax(logits, dim=1)

    return forward


@contextlib.contextmanager
def _differentiable(module: nn.Module) -> Iterator[None]:
    """Evaluation mode with gradients; without cuDNN where it would refuse to go back through a recurrent layer."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    cudnn = torch.backends.cudnn.flags(enabled=False) if recurrent else contextlib.nullcontext()
    with evaluation_mode(module), cudnn, torch.inference_mode(False), torch.enable_grad():
        yield
