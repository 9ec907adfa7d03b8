"""An image classifier of transformers as a network of images in [0, 1], which gives logits."""

from typing import Any

import torch
from torch import nn

from shapeline.datasets.folders import LEAVING_OUT


class PictureNetwork(nn.Module):
    """forward(images) gives logits (n, classes) of images (n, channels, height, width) in [0, 1].

    The model is given (scale · images - mean) / deviation, by channel, as its image processor makes them of pixels 0
    to 255. order: of the outputs, those that are given. kept (n, k): patches by number in reading order; the others are
    left out of the sequence once each token has its place. patch: their side, None where the model cannot do that.
    """

    def __init__(self, model: nn.Module, scale: float, mean: list[float], deviation: list[float], order: list[int]):
        super().__init__()
        self.model, self.scale, self.order = model, scale, order
        self.patch = model.config.patch_size if model.config.model_type in LEAVING_OUT else None
        for name, numbers in (("mean", mean), ("deviation", deviation)):  # not weights: what stores them has the sizes
            self.register_buffer(name, torch.tensor(numbers).view(-1, 1, 1), persistent=False)

    def forward(self, pictures: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
        pixels = (self.scale * pictures - self.mean) / self.deviation
        if kept is None:
            return self.model(pixel_values=pixels).logits[:, self.order]
        embeddings = self.model.base_model.embeddings

        def chosen(_: nn.Module, given: Any, tokens: torch.Tensor) -> torch.Tensor:
            special = tokens.shape[1] - embeddings.patch_embeddings.num_patches
            of_patches = tokens[:, special:].gather(1, kept[..., None].expand(-1, -1, tokens.shape[2]))
            return torch.cat([tokens[:, :special], of_patches], dim=1)

        hook = embeddings.register_forward_hook(chosen)
        try:
            return self.model(pixel_values=pixels).logits[:, self.order]
        finally:
            hook.remove()
