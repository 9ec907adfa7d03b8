"""Gradient attributions of a torch classifier, summed over the input cells of each feature.

Of a regression model the prediction stands wherever log p_target is written.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from shapeline.features import Features
from shapeline.gradients import draws
from shapeline.gradients.cells import absolute, check, completeness, halving, pooled, rows_of_a_pass, starts
from shapeline.gradients.torch_passes import differentiable, log_probs, points, tensor
from shapeline.models.classifier import Classifier
from shapeline.references import Reference


@halving
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


@halving
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


@halving
def integrated_gradients(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    features: Features,
    reference: Reference,
    steps: int = 50,
) -> tuple[np.ndarray, int, dict]:
    """(x - x0) · mean of ∂ log p_target / ∂x on the straight path from x0 to x (Sundararajan et al. 2017, eq. 1).

    x0: the reference, averaged over its M rows; of tokens, x and x0 are embeddings, and padding is that of the input.
    The path is integrated by Gauss-Legendre. Scores (n, d), evaluations per instance, and {"completeness_gap": (n,)}:
    |sum of scores - (F(x) - mean F(x0))| of F = log p_target. A large one is flagged.
    """
    from captum.attr import IntegratedGradients  # half a second, which the other methods need not wait for

    tokens = check(model, inputs, "torch")
    origins = starts(inputs, reference, features)
    n, M = origins.shape[:2]
    of_cells, gained = np.zeros(inputs.shape), np.zeros(n)
    with differentiable(model.module):
        forward = log_probs(model, tokens)
        rows = rows_of_a_pass(points(model, inputs[:1], tokens).shape, model)
        for first in range(0, n * M, rows):
            instance, background = np.divmod(np.arange(first, min(first + rows, n * M)), M)
            x = points(model, inputs[instance], tokens)
            x0 = points(model, origins[instance, background], tokens)
            ids = tensor(model, inputs[instance]) if tokens else None
            target = tensor(model, targets[instance]).long()
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
    return scores, (steps + 2) * M, completeness(scores, gained)


@halving
def expected_gradients(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    features: Features,
    reference: Reference,
    instances: Sequence[int],
    seed: int,
    samples: int = 200,
) -> tuple[np.ndarray, np.ndarray, dict]:
    """(x - x0) · ∂ log p_target / ∂x at random points of random paths, averaged (Erion et al. 2021, eq. 4).

    x0: a row of the reference drawn for each sample, the one row where there is one; draws by (seed, instance). Of
    tokens, x and x0 are embeddings. As shap's GradientExplainer. Scores (n, d), evaluations (n,), and
    {"completeness_gap": (n,)}: |sum of scores - (F(x) - mean F(x0) of the rows drawn)| of F = log p_target. A large one
    is flagged.
    """
    tokens = check(model, inputs, "torch")
    with differentiable(model.module):
        slope = _slope(model, inputs, targets, tokens)
        return draws.expected(*slope, inputs, reference, features, instances, seed, samples)


@halving
def smooth_grad(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    features: Features,
    instances: Sequence[int],
    seed: int,
    samples: int = 50,
    noise: float = 0.15,
) -> tuple[np.ndarray, int]:
    """Saliency of the mean gradient of noisy copies of an input (Smilkov et al. 2017); unsigned, and pooled alike.

    noise: standard deviation as a fraction of the input's own range (of tokens, of their embeddings'), drawn by (seed,
    instance). Scores (n, d), evaluations per instance.
    """
    tokens = check(model, inputs, "torch")
    with differentiable(model.module):
        slope = _slope(model, inputs, targets, tokens)
        return draws.smooth(*slope, inputs, features, instances, seed, samples, noise), samples


def _slope(
    model: Classifier, inputs: np.ndarray, targets: np.ndarray, tokens: bool
) -> tuple[draws.Points, draws.Gradient, int]:
    """The model as `draws` asks it, and the rows of a pass."""
    forward = log_probs(model, tokens)

    def points_of(rows: np.ndarray) -> np.ndarray:
        return points(model, rows, tokens).cpu().numpy()

    def gradient(at: np.ndarray, instance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = tensor(model, at).requires_grad_()
        target = tensor(model, targets[instance]).long()
        of_target = forward(x, tensor(model, inputs[instance]) if tokens else None).gather(1, target[:, None])[:, 0]
        (found,) = torch.autograd.grad(of_target.sum(), x)
        return found.cpu().numpy(), of_target.detach().cpu().numpy()

    return points_of, gradient, rows_of_a_pass(points_of(inputs[:1]).shape, model)


def _gradients(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    reduced: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> np.ndarray:
    """What `reduced` makes of (∂ log p_target / ∂x, x), (n, *input shape) float64; x: the embedding of tokens."""
    tokens, parts = np.issubdtype(inputs.dtype, np.integer), []
    with differentiable(model.module):
        forward = log_probs(model, tokens)
        rows = rows_of_a_pass(points(model, inputs[:1], tokens).shape, model)
        for start in range(0, len(inputs), rows):
            own = inputs[start : start + rows]
            x = points(model, own, tokens).requires_grad_()
            target = tensor(model, targets[start : start + rows]).long()
            of_classes = forward(x, tensor(model, own) if tokens else None)
            (gradient,) = torch.autograd.grad(of_classes.gather(1, target[:, None]).sum(), x)
            parts.append(reduced(gradient, x.detach()).double().cpu().numpy())
    return np.concatenate(parts)
