"""Gradient attributions of a torch classifier."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from shapeline.gradients.cells import check, rows_of_a_pass
from shapeline.gradients.methods import Slope, bind
from shapeline.models.classifier import Classifier
from shapeline.models.torch_models import checked_logits, device_of, evaluation_mode, normalised


def tensor(model: Classifier, array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, device=device_of(model.module))


def points(model: Classifier, rows: np.ndarray, tokens: bool) -> torch.Tensor:
    """What is differentiated by: rows (n, *input shape) as float32, or the embedding (n, length, e) of tokens."""
    if tokens:
        return model.module.embed(tensor(model, rows)).detach()
    return tensor(model, rows).float()


def log_probs(model: Classifier, tokens: bool) -> Callable[..., torch.Tensor]:
    """From points, and the ids of tokens, to log-probabilities (n, classes) float64, or predictions (n, 1)."""

    def forward(points: torch.Tensor, ids: torch.Tensor | None = None) -> torch.Tensor:
        logits = model.module.from_embedding(points, ids) if tokens else model.module(points)
        logits = checked_logits(logits, len(points), model.architecture, model.task).double()
        return normalised(logits, model.task)

    return forward


@contextlib.contextmanager
def differentiable(module: nn.Module) -> Iterator[None]:
    """Evaluation mode with gradients; without cuDNN where it would refuse to go back through a recurrent layer."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    cudnn = torch.backends.cudnn.flags(enabled=False) if recurrent else contextlib.nullcontext()
    with evaluation_mode(module), cudnn, torch.inference_mode(False), torch.enable_grad():
        yield


@contextlib.contextmanager
def open_slope(model: Classifier, inputs: np.ndarray, targets: np.ndarray) -> Iterator[Slope]:
    """Yield the slope of log p_target. Raises ShapelineError where torch cannot differentiate the model."""
    tokens = check(model, inputs, "torch")

    def points_of(rows: np.ndarray) -> np.ndarray:
        return points(model, rows, tokens).cpu().numpy()

    def gradient(at: np.ndarray, instance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = tensor(model, at).requires_grad_()
        target = tensor(model, targets[instance]).long()
        of_target = forward(x, tensor(model, inputs[instance]) if tokens else None).gather(1, target[:, None])[:, 0]
        (gradients,) = torch.autograd.grad(of_target.sum(), x)
        return gradients.cpu().numpy(), of_target.detach().cpu().numpy()

    with differentiable(model.module):
        forward = log_probs(model, tokens)
        yield Slope(points_of, gradient, rows_of_a_pass(points_of(inputs[:1]).shape, model), tokens)


saliency, gradient_x_input, gradient_x_difference, integrated_gradients, expected_gradients, smooth_grad = bind(
    open_slope
)
