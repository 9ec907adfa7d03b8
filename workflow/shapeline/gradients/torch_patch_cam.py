"""Grad-CAM on the grid of a torch transformer's patch tokens: maps are the tokens after a LayerNorm."""

from collections.abc import Sequence

import torch
from torch import nn

from shapeline.errors import unsupported
from shapeline.gradients.torch_passes import differentiable, log_probs
from shapeline.models.classifier import Classifier

NORMS = (nn.LayerNorm, nn.RMSNorm)
POOLED = 2  # tokens that are read at the end: of the class, and of a teacher
SPECIAL = 16  # tokens before those of the patches, at most: of the class, a teacher, registers


def patch_grid(module: nn.Module, sides: Sequence[int]) -> tuple[int, int] | None:
    """Rows and columns of the patches that a transformer cuts images of these sides into; None of another network.

    Either the module says their side (`patch`), or its last convolution has no overlap and there is a LayerNorm.
    """
    parts = list(module.modules())
    convolutions = [part for part in parts if isinstance(part, nn.Conv2d)]
    if patch := getattr(module, "patch", None):
        step = (patch, patch)
    elif convolutions and any(isinstance(part, NORMS) for part in parts):
        last = convolutions[-1]
        step = last.stride if last.stride == last.kernel_size != (1, 1) else None
    else:
        step = None
    return step and tuple(side // size for side, size in zip(sides, step, strict=True))


def norms_of(module: nn.Module) -> list[str]:
    return [name for name, part in module.named_modules() if isinstance(part, NORMS)]


def token_maps(
    model: Classifier, x: torch.Tensor, target: torch.Tensor, layers: Sequence[str], grid: tuple[int, int]
) -> torch.Tensor:
    """Tokens t_i (e) of the patches weighted by the mean over them of ∂ log p_target / ∂t, summed, (n, rows, columns).

    layers: of which the last, as they are called, counts whose patch tokens the class depends on. That is the one
    before the last attention where the class is read from a token of its own, after which nothing asks the patches.
    Special tokens stand before those of the patches. Raises MethodFailure where the last tokens are not on the grid.
    """
    modules, seen = dict(model.module.named_modules()), []
    patches = grid[0] * grid[1]
    hooks = [
        modules[layer].register_forward_hook(lambda _, given, out, layer=layer: seen.append((layer, out)))
        for layer in layers
    ]
    try:
        with differentiable(model.module):
            of_target = log_probs(model, tokens=False)(x.requires_grad_()).gather(1, target[:, None]).sum()
            told = [out for _, out in seen if isinstance(out, torch.Tensor) and out.requires_grad]
            slopes = torch.autograd.grad(of_target, told, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    for tokens, slope in zip(told[::-1], slopes[::-1], strict=True):
        if slope is None or tokens.ndim != 3 or tokens.shape[1] <= POOLED:
            continue
        special = tokens.shape[1] - patches
        if not 0 <= special <= SPECIAL:
            break
        if (slope[:, special:] != 0).any():
            weights = slope[:, special:].mean(1, keepdim=True)
            return (weights * tokens[:, special:]).sum(2).detach().view(-1, *grid)
    raise unsupported(
        f"grad_cam: '{model.architecture}' has no tokens of a grid of {grid[0]} x {grid[1]} patches in "
        f"{'its last LayerNorm' if len(layers) > 1 else repr(layers[0]) if layers else 'a LayerNorm'} that the class "
        "depends on; name a layer of maps, or use saliency or integrated_gradients",
    )
