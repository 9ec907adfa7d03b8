"""Gradient attributions of a torch classifier, summed over the input cells of each feature.

Of a regression model the prediction stands wherever log p_target is written.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from shapeline.games.game import Game
from shapeline.gradients import draws
from shapeline.gradients.cells import absolute, check, completeness, halving, pooled, rows_of_a_pass, starts
from shapeline.gradients.torch_passes import differentiable, log_probs, points, tensor
from shapeline.models.classifier import Classifier


@halving
def saliency(question: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """|∂ log p_target / ∂x|, unsigned: largest over channels, mean over a feature's cells (Simonyan et al. 2013).

    inputs (n, *input shape), targets (n,) -> scores (n, d), evaluations per instance (one pass, forward and back).
    Of tokens it is the L2 norm of the derivative by their embedding.
    """
    model = question.model
    if check(model, inputs, "torch"):
        of_cells = _gradients(model, inputs, targets, lambda gradient, _: gradient.norm(dim=-1))
    else:
        of_cells = _gradients(model, inputs, targets, lambda gradient, _: gradient.abs())
    return absolute(of_cells, question.features), 1


@halving
def gradient_x_input(question: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """x · ∂ log p_target / ∂x, signed, summed over a feature's cells (Shrikumar et al. 2016); shapes as in saliency.

    Of tokens, x is their embedding.
    """
    model = question.model
    if check(model, inputs, "torch"):
        of_cells = _gradients(model, inputs, targets, lambda gradient, x: (gradient * x).sum(-1))
    else:
        of_cells = _gradients(model, inputs, targets, torch.mul)
    return pooled(of_cells, question.features), 1


@halving
def gradient_x_difference(question: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """(x - x0) · ∂ log p_target / ∂x, signed: gradient × input for the game's own reference; shapes as in saliency.

    x0: the reference, averaged over its M rows; of tokens, x and x0 are embeddings. One step of integrated gradients
    at the input (Shrikumar et al. 2017, §2.3.1).
    """
    tokens = check(question.model, inputs, "torch")
    of_cells = _gradients(
        question.model,
        inputs,
        targets,
        lambda gradient, moved: (gradient * moved).sum(-1) if tokens else gradient * moved,
        starts(question, inputs),
    )
    return pooled(of_cells, question.features), 1


@halving
def integrated_gradients(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    steps: int = 50,
) -> tuple[np.ndarray, int, dict]:
    """(x - x0) · mean of ∂ log p_target / ∂x on the straight path from x0 to x (Sundararajan et al. 2017, eq. 1).

    x0: the reference, averaged over its M rows; of tokens, x and x0 are embeddings, and padding is that of the input.
    The path is integrated by Gauss-Legendre. Scores (n, d), evaluations per instance, and {"completeness_gap": (n,)}:
    |sum of scores - (F(x) - mean F(x0))| of F = log p_target. A large one is flagged.
    """
    from captum.attr import IntegratedGradients  # half a second, which the other methods need not wait for

    model = question.model
    tokens = check(model, inputs, "torch")
    origins = starts(question, inputs)
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
            moved = IntegratedGradients(forward).attribute(
                x, x0, target, ids, n_steps=steps, method="gausslegendre", internal_batch_size=rows
            )
            with torch.no_grad():
                difference = (forward(x, ids) - forward(x0, ids)).gather(1, target[:, None])[:, 0]
            moved = moved.detach().double()
            np.add.at(of_cells, instance, (moved.sum(-1) if tokens else moved).cpu().numpy() / M)
            np.add.at(gained, instance, difference.cpu().numpy() / M)
    scores = pooled(of_cells, question.features)
    # At each reference row its steps, and the two ends, which the gap needs.
    return scores, (steps + 2) * M, completeness(scores, gained)


@halving
def expected_gradients(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
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
    tokens = check(question.model, inputs, "torch")
    with differentiable(question.model.module):
        slope = _slope(question.model, inputs, targets, tokens)
        return draws.expected(slope, question, inputs, instances, seed, samples)


@halving
def smooth_grad(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    samples: int = 50,
    noise: float = 0.15,
) -> tuple[np.ndarray, int]:
    """Saliency of the mean gradient of noisy copies of an input (Smilkov et al. 2017); unsigned, and pooled alike.

    question: its model and its features.
    inputs, targets: (n, *input shape) and (n,).
    instances, seed: the noise is drawn by (seed, instance).
    samples: noisy copies of an input.
    noise: standard deviation as a fraction of the input's own range (of tokens, of their embeddings').

    Scores (n, d), evaluations per instance.
    """
    tokens = check(question.model, inputs, "torch")
    with differentiable(question.model.module):
        slope = _slope(question.model, inputs, targets, tokens)
        return draws.smooth(slope, question.features, inputs, instances, seed, samples, noise), samples


def _slope(model: Classifier, inputs: np.ndarray, targets: np.ndarray, tokens: bool) -> draws.Slope:
    """The model as `draws` asks it."""
    forward = log_probs(model, tokens)

    def points_of(rows: np.ndarray) -> np.ndarray:
        return points(model, rows, tokens).cpu().numpy()

    def gradient(at: np.ndarray, instance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = tensor(model, at).requires_grad_()
        target = tensor(model, targets[instance]).long()
        of_target = forward(x, tensor(model, inputs[instance]) if tokens else None).gather(1, target[:, None])[:, 0]
        (gradients,) = torch.autograd.grad(of_target.sum(), x)
        return gradients.cpu().numpy(), of_target.detach().cpu().numpy()

    return draws.Slope(points_of, gradient, rows_of_a_pass(points_of(inputs[:1]).shape, model))


def _gradients(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    reduced: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    origins: np.ndarray | None = None,
) -> np.ndarray:
    """What `reduced` makes of (∂ log p_target / ∂x, x), (n, *input shape) float64; x: the embedding of tokens, less
    the mean of that of `origins` (n, M, *input shape), where these are given."""
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
            x = x.detach()
            if origins is not None:
                x = x - torch.stack(
                    [points(model, rows_of, tokens).mean(0) for rows_of in origins[start : start + rows]]
                )
            parts.append(reduced(gradient, x).double().cpu().numpy())
    return np.concatenate(parts)
