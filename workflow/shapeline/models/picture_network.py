"""A picture classifier of transformers as a network of pictures in [0, 1], which gives logits."""

import torch
from torch import nn


class PictureNetwork(nn.Module):
    """forward(pictures) gives logits (n, classes) of pictures (n, channels, height, width) in [0, 1].

    The model is given (scale · pictures - mean) / deviation, by channel, as its image processor makes them of pixels 0
    to 255. order: of the outputs, those that are given.
    """

    def __init__(self, model: nn.Module, scale: float, mean: list[float], deviation: list[float], order: list[int]):
        super().__init__()
        self.model, self.scale, self.order = model, scale, order
        for name, numbers in (("mean", mean), ("deviation", deviation)):  # not weights: what stores them has the sizes
            self.register_buffer(name, torch.tensor(numbers).view(-1, 1, 1), persistent=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=(self.scale * pictures - self.mean) / self.deviation).logits[:, self.order]
