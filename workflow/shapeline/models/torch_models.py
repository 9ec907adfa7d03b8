"""The torch architectures, and what it takes to run, save and load them.

Every activation is a module of its own and is called once: DeepLIFT and hooks on layers need that.
"""

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import nn

from shapeline.errors import ShapelineError
from shapeline.files import atomic


class Standardize(nn.Module):
    """Subtract the mean and divide by the standard deviation of the training rows, column by column."""

    def __init__(self, inputs: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("std", torch.ones(inputs))

    def set_from(self, rows: torch.Tensor) -> None:
        """Take mean and standard deviation from rows (n, inputs); a constant column keeps 1 as its deviation."""
        rows = rows.double()
        std = rows.std(dim=0, correction=0)
        self.mean.copy_(rows.mean(dim=0))
        self.std.copy_(torch.where(std > 0, std, torch.ones_like(std)))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return (rows - self.mean) / self.std


def mnist_cnn(classes: int = 2, channels: int = 1, side: int = 28) -> nn.Module:
    """The MNIST network of Chen et al. (2018, §5.2): conv 8@5x5, max-pool 2, conv 16@5x5, max-pool 2, dense.

    (n, channels, side, side) -> (n, classes) logits. The paper names no padding: none is the usual reading
    (LeNet's, and the default of both frameworks), so 28 -> 24 -> 12 -> 8 -> 4 and 3,938 parameters.
    """
    last = ((side - 4) // 2 - 4) // 2
    if last < 1:
        raise ShapelineError(f"models: mnist_cnn needs a side of at least 16 pixels, not {side}; use digits_cnn")
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * last * last, classes),
    )


def digits_cnn(classes: int = 2, channels: int = 1, side: int = 8) -> nn.Module:
    """A small network for 8x8 digits: two padded 3x3 convolutions (16 and 32 filters), max-pool 2, dense.

    (n, channels, side, side) -> (n, classes) logits.
    """
    if side < 2:
        raise ShapelineError(f"models: digits_cnn needs a side of at least 2 pixels, not {side}")
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 2) ** 2, classes),
    )


def mlp(inputs: int = 30, hidden: tuple[int, ...] = (64, 32), classes: int = 2) -> nn.Module:
    """A dense network for tables: standardised columns, then hidden layers with ReLU.

    (n, inputs) raw columns -> (n, classes) logits; the mean and deviation are set from the training split by `fit`.
    """
    widths = (inputs, *hidden)
    layers: list[nn.Module] = [Standardize(inputs)]
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


@contextlib.contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Draw torch's random numbers from `seed` inside the block and leave the global state as it was."""
    with torch.random.fork_rng(devices=[] if device == "cpu" else [device]):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation and inference mode inside the block; each submodule's own flag is put back afterwards.

    Convolutions keep full float32 on a GPU: with TF32 the outputs would change by 1e-3 with the batch size.
    """
    trained = [part for part in module.modules() if part.training]
    short = torch.backends.cudnn.allow_tf32
    module.eval()
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.backends.cudnn.allow_tf32 = short
        for part in trained:
            part.training = True


def device_of(module: nn.Module) -> torch.device:
    """The device of the first parameter or buffer; a module with neither runs on the CPU."""
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")


def checked_module(module: Any, source: str) -> nn.Module:
    """The module itself; ShapelineError when one's own function returned something else."""
    if not isinstance(module, nn.Module):
        raise ShapelineError(f"models: '{source}' returned a {type(module).__name__}; it must return a torch module")
    return module


def checked_logits(logits: Any, rows: int, name: str) -> torch.Tensor:
    """The logits themselves; ShapelineError unless their shape is (rows, two or more classes)."""
    if isinstance(logits, torch.Tensor) and logits.ndim == 2 and len(logits) == rows and logits.shape[1] > 1:
        return logits
    found = f"shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
    raise ShapelineError(
        f"model '{name}': gave {found} for {rows} rows; it must return logits of shape (rows, classes) "
        "with two or more classes (for one sigmoid output z return the two logits 0 and z)"
    )


def log_probs(module: nn.Module, inputs: Any, batch: int, name: str) -> np.ndarray:
    """Log-softmax of the module's logits in float64, (n, *input_shape) -> (n, classes)."""
    inputs = torch.as_tensor(inputs, dtype=torch.float32)
    device = device_of(module)
    parts = []
    with evaluation_mode(module):
        for start in range(0, len(inputs), batch):
            rows = inputs[start : start + batch].to(device)
            logits = checked_logits(module(rows), len(rows), name)
            parts.append(torch.log_softmax(logits.double(), dim=1).cpu())
    return torch.cat(parts).numpy()


def write_weights(classifier: Any, path: Path) -> None:
    """Write weights and metadata under a temporary name and rename, so that no partial file is ever seen."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in classifier.module.state_dict().items()}
    metadata = {
        "framework": "torch",
        "architecture": classifier.architecture,
        "classes": json.dumps(classifier.n_classes),
        "sizes": json.dumps(classifier.sizes, sort_keys=True),
    }
    with atomic(path) as partial:
        partial.write_bytes(safetensors.torch.save(weights, metadata))  # save_file lets only the owner read


def read_weights(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Metadata (architecture, classes, sizes) and tensors of a file that `write_weights` made."""
    if not path.is_file():
        raise ShapelineError(f"models: no weights at {path}; train the model first")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            written = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}
    except safetensors.SafetensorError as error:
        raise ShapelineError(
            f"models: {path} is not a safetensors file ({error}); weights are never unpickled, train the model again"
        ) from error
    if not {"architecture", "classes", "sizes"} <= written.keys():
        raise ShapelineError(f"models: {path} does not name its architecture; it was not written by shapeline")
    return {**written, "classes": json.loads(written["classes"]), "sizes": json.loads(written["sizes"])}, weights


def set_weights(classifier: Any, weights: dict[str, torch.Tensor], source: str) -> None:
    """Load tensors into the module; ShapelineError when names or shapes do not fit."""
    try:
        classifier.module.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ShapelineError(f"models: {source} does not fit '{classifier.architecture}': {reason}") from error
