"""Grad-CAM of a torch classifier (Selvaraju et al. 2017)."""

import numpy as np
import torch
from captum.attr import LayerGradCam
from torch import nn

from shapeline.games.game import Game
from shapeline.gradients.cells import (
    average_map,
    check,
    checked_layer,
    describe_missing_map,
    halving,
    rows_of_a_pass,
    upsampled,
)
from shapeline.gradients.torch_passes import differentiable, log_probs, points, tensor
from shapeline.gradients.torch_patch_cam import NORMS, norms_of, patch_grid, token_maps

# What captum says of a layer that the network never calls, and torch of one whose maps do not reach the output.
UNUSED = ("did not obtain any outputs", "not have been used in the graph")


@halving
def grad_cam(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    layer: str | None = None,
    signed: bool = False,
) -> tuple[np.ndarray, int]:
    """A layer's maps weighted by the mean of ∂ log p_target / ∂map over each, summed, and 0 where negative (eq. 1, 2).

    inputs (n, channels, height, width), targets (n,) -> scores (n, d), evaluations per instance. layer: the name of a
    module, as in `named_modules`; by default the last convolution, and of a transformer the tokens on the grid of its
    patches (torch_patch_cam). signed: negative values are kept. The map is
    upsampled bilinearly and a feature's score is its mean over the feature's pixels, in its own units. Raises
    ShapelineError for a layer that there is not, or that gives no maps.
    """
    model = question.model
    check(model, inputs, "torch")
    modules = dict(model.module.named_modules())
    convolutions = [name for name, part in modules.items() if isinstance(part, nn.Conv2d)]
    grid = patch_grid(model.module, inputs.shape[2:]) if inputs.ndim == 4 else None
    if grid and (layer is None or isinstance(modules.get(layer), NORMS)):
        return _score_patches(question, inputs, targets, [layer] if layer else norms_of(model.module), grid, signed), 1
    layer = checked_layer(model, inputs, layer, modules, convolutions)
    rows, scores = rows_of_a_pass(inputs.shape[1:], model), []
    with differentiable(model.module):
        cam = LayerGradCam(log_probs(model, tokens=False), modules[layer])
        for start in range(0, len(inputs), rows):
            part = slice(start, start + rows)
            x, target = points(model, inputs[part], False), tensor(model, targets[part]).long()
            try:
                weighted = cam.attribute(x, target, relu_attributions=not signed)
            except (AssertionError, RuntimeError) as error:
                if not any(words in str(error) for words in UNUSED):
                    raise
                raise describe_missing_map(model, layer, convolutions) from error
            if not isinstance(weighted, torch.Tensor) or weighted.ndim != 4:
                raise describe_missing_map(model, layer, convolutions)
            maps = weighted.detach()[:, 0].double().cpu().numpy()
            scores.append(average_map(upsampled(maps, inputs.shape[2:]), question.features))
    return np.concatenate(scores), 1


def _score_patches(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    layers: list[str],
    grid: tuple[int, int],
    signed: bool,
) -> np.ndarray:
    """Scores (n, d) by the tokens of a transformer's patches."""
    model, rows, scores = question.model, rows_of_a_pass(inputs.shape[1:], question.model), []
    for start in range(0, len(inputs), rows):
        part = slice(start, start + rows)
        x, target = points(model, inputs[part], False), tensor(model, targets[part]).long()
        maps = token_maps(model, x, target, layers, grid).double().cpu().numpy()
        maps = maps if signed else maps.clip(0)
        scores.append(average_map(upsampled(maps, inputs.shape[2:]), question.features))
    return np.concatenate(scores)
