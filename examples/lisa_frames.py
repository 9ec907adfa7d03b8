"""A stand-in network for LISA's frames at full size, trained on crops of a few of them: is a light green?

    python examples/lisa_frames.py FOLDER WEIGHTS.safetensors

FOLDER: what the archive unpacks to, with as few of its frames as there are. The explained frames are among those that
the network is trained on, so no accuracy is claimed; examples/lisa_frames.yaml explains them.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import nn

from shapeline.datasets import image_sources

SIDE, BATCH, STEPS = 48, 32, 400  # pixels of a crop; crops of a step, half of them with a green light
GREEN = 1


class Network(nn.Module):
    """Three convolutions, and the largest response anywhere: it takes images of any size."""

    def __init__(self, channels: int):
        super().__init__()
        layers = (nn.Conv2d(channels, 8, 5, 2, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2, 2), nn.ReLU())
        self.stack = nn.Sequential(*layers, nn.Conv2d(16, 1, 5, 1, 2))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        response = self.stack(images).amax((1, 2, 3))
        return torch.stack([torch.zeros_like(response), response], 1)


def network(classes: int, channels: int) -> nn.Module:
    return Network(channels)


def iterate_crops(images: np.ndarray, boxes: list[np.ndarray]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of crops around green lights, and of crops anywhere that touch none; which they are."""
    random = np.random.default_rng(0)
    green = [(frame, box[1:]) for frame, own in enumerate(boxes) for box in own if box[0] == GREEN]
    ends = np.array(images.shape[2:]) - SIDE
    while True:
        crops, labels = [], np.arange(BATCH) % 2
        for is_green in labels:
            frame, box = green[random.integers(len(green))]
            corner = (box[:2] + box[2:] - SIDE) // 2 + random.integers(-10, 11, 2)
            while not is_green:
                frame, corner = random.integers(len(images)), random.integers(ends)
                if not any(i == frame and (corner < b[2:]).all() and (b[:2] < corner + SIDE).all() for i, b in green):
                    break
            top, left = np.clip(corner, 0, ends)
            crops.append(images[frame][:, top : top + SIDE, left : left + SIDE])
        yield torch.tensor(np.array(crops)).float() / 255, torch.tensor(labels)


def main(folder: str, weights: str) -> None:
    torch.manual_seed(0)
    frames = image_sources.read_lisa({"frames": Path(folder)}, on_decode_error="skip")
    module, crops = Network(3), iterate_crops(frames["inputs"], frames["boxes"])
    optimizer, whole = torch.optim.Adam(module.parameters(), 3e-3), torch.tensor(frames["labels"])
    for step in range(STEPS + 60):
        images, labels = next(crops)
        loss = nn.functional.cross_entropy(module(images), labels)
        if step >= STEPS:  # the largest of many responses is higher than that of a crop
            chosen = [step % len(whole), int(whole.argmax())]
            full = torch.tensor(frames["inputs"][chosen]).float() / 255
            loss = loss + nn.functional.cross_entropy(module(full), whole[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    safetensors.torch.save_file(module.state_dict(), weights)
    print(f"{weights}: loss {loss.item():.3f} after {step + 1} steps")


if __name__ == "__main__":
    main(*sys.argv[1:])
