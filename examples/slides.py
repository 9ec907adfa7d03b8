"""Five malaria slides, one left out at a time: crops to learn from, whole slides to explain, and a network for both.

The functions that examples/slides.yaml names; each takes the folder with the slides and annotations.json.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from shapeline.datasets import malaria
from shapeline.datasets.sources import TEST, TRAIN, VALIDATION
from shapeline.models import torch_models

SCALE = 4  # crops and slides alike are made so many times smaller, so that a cell has one size in both


def crops(path: str, held_out: int) -> dict:
    """Crops (n, 3, 50, 50) uint8 around trophozoites and of background; those of one slide are the test.

    malaria.crops at a quarter of its size; the slide after the one held out is for validation.
    """
    records = malaria.crops(path, held_out)
    side = malaria.CROP // SCALE
    small = [
        Image.fromarray(np.moveaxis(crop, 0, 2)).resize((side, side), Image.Resampling.BILINEAR)
        for crop in records["inputs"]
    ]
    inputs = np.moveaxis(np.stack([np.asarray(crop) for crop in small]), 3, 1)
    return {**{key: records[key] for key in ("labels", "class_names", "split")}, "inputs": np.ascontiguousarray(inputs)}


def slides(path: str, held_out: int) -> dict:
    """Whole slides (5, 3, 300, 400) uint8 with their boxes; the one held out is the test, the next for validation.

    All of them have trophozoites, so nothing can be learnt from them; the mean of the others fills absent pixels.
    """
    records = malaria.read({"slides": Path(path)}, size=[malaria.HEIGHT // SCALE, malaria.WIDTH // SCALE])
    places = (np.arange(len(records["labels"])) - held_out) % len(records["labels"])
    split = np.select([places == 0, places == 1], [TEST, VALIDATION], TRAIN)
    kept = ("inputs", "labels", "boxes", "box_names")
    return {**{key: records[key] for key in kept}, "class_names": malaria.CLASSES, "split": split}


class Anywhere(nn.Module):
    """ResNet-18 that asks at each place of its last maps: (n, channels, height, width) -> (n, 2) logits.

    The place that speaks most for the second class decides. The mean over all places, which ResNet-18 takes, would
    drown one cell of a slide in a hundred places that crops of one cell do not have.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.network = torch_models.resnet18(2, channels)
        self.network.avgpool, self.network.flatten, self.network.fc = nn.Identity(), nn.Identity(), nn.Conv2d(512, 2, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        places = self.network(images).flatten(2)
        best = (places[:, 1] - places[:, 0]).argmax(dim=1)
        return places.gather(2, best[:, None, None].expand(-1, 2, 1))[:, :, 0]


def anywhere(channels: int) -> nn.Module:
    """The network of Anywhere, which takes images of any size."""
    return Anywhere(channels)


# A dataset's entry names a function and has no key for a slide.
crops_0, crops_1, crops_2, crops_3, crops_4 = (partial(crops, held_out=slide) for slide in range(5))
slides_0, slides_1, slides_2, slides_3, slides_4 = (partial(slides, held_out=slide) for slide in range(5))
