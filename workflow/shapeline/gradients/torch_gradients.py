"""Gradient attributions of a torch classifier, summed over the input cells of each feature."""

import numpy as np
import torch

from shapeline.errors import ShapelineError
from shapeline.features import Features
from shapeline.models import Classifier


def saliency(model: Classifier, inputs: np.ndarray, targets: np.ndarray, features: Features) -> tuple[np.ndarray, int]:
    """|∂ log p_target / ∂x|, unsigned: largest over channels, mean over a feature's cells (Simonyan et al. 2013).

    inputs (n, *input shape), targets (n,) -> scores (n, d), evaluations per instance (one pass, forward and back).
    """
    gradient = np.abs(_gradient(model, inputs, targets))
    if features.cells.ndim == 3:  # channels, height, width: the channels of a cell belong to one feature
        return _pooled(gradient.max(1), features.cells[0], features.d, mean=True), 1
    return _pooled(gradient, features.cells, features.d, mean=True), 1


def gradient_x_input(
    model: Classifier, inputs: np.ndarray, targets: np.ndarray, features: Features
) -> tuple[np.ndarray, int]:
    """x · ∂ log p_target / ∂x, signed, summed over a feature's cells (Shrikumar et al. 2016); shapes as in saliency."""
    return _pooled(_gradient(model, inputs, targets) * inputs, features.cells, features.d), 1


def _gradient(model: Classifier, inputs: np.ndarray, targets: np.ndarray, batch: int = 256) -> np.ndarray:
    """∂ log p_target / ∂x, (n, *input shape) float64."""
    if model.framework != "torch":
        raise ShapelineError(f"gradient methods need a torch model; '{model.architecture}' is a {model.framework}")
    parts = []
    for start in range(0, len(inputs), batch):
        x = torch.tensor(inputs[start : start + batch], dtype=torch.float32, device=model.device, requires_grad=True)
        target = torch.as_tensor(targets[start : start + batch], dtype=torch.int64, device=model.device)
        log_probs = torch.log_softmax(model.module(x), 1)
        (gradient,) = torch.autograd.grad(log_probs.gather(1, target[:, None]).sum(), x)
        parts.append(gradient.double().cpu().numpy())
    return np.concatenate(parts)


def _pooled(values: np.ndarray, cells: np.ndarray, d: int, mean: bool = False) -> np.ndarray:
    """Sum (or mean) of cell values (n, *cells.shape) over each feature's cells -> (n, d)."""
    member = (cells.reshape(-1, 1) == np.arange(d)).astype(float)
    pooled = values.reshape(len(values), -1) @ member
    return pooled / member.sum(0) if mean else pooled
