"""Training a torch classifier: what `training` leaves to the framework."""

import contextlib
import copy
import pickle
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from torch import nn

from shapeline.datasets.loading import StoredImages
from shapeline.datasets.registry import WEIGHTS
from shapeline.errors import ShapelineError
from shapeline.files import atomic
from shapeline.memory import halve
from shapeline.models import torch_models
from shapeline.models.classifier import Classifier, r_squared
from shapeline.models.registry import Training
from shapeline.models.storage import tensors
from shapeline.models.training import MOMENTUM, variance

AXES = {"flip_horizontal": 3, "flip_vertical": 2}  # of images (n, channels, height, width)
# What torch.load raises for a file that is damaged or no file of torch's, besides refusing what is not a tensor.
UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, AttributeError, TypeError)
UNREADABLE += (struct.error, AssertionError)


@contextlib.contextmanager
def trainer(
    classifier: Classifier,
    train: tuple[np.ndarray, np.ndarray],
    settings: Training,
    seed: int,
    device: str,
    initialise: bool,
) -> Iterator["Trainer"]:
    """Yield a Trainer on inputs and labels; initial weights, unless kept, and dropout depend on the seed."""
    module = classifier.module
    with torch_models.set_seed(seed, device), torch_models.use_deterministic_algorithms(device):
        if initialise:
            initialise_weights(module)
        yield Trainer(classifier, *train, settings)
    module.eval()


class Trainer:
    """Steps on, and measurements of, a classifier's module."""

    def __init__(self, classifier: Classifier, inputs: np.ndarray, labels: np.ndarray, settings: Training):
        self.classifier, self.device = classifier, torch_models.find_device(classifier.module)
        self.module = module = classifier.module
        # Images stay as they are stored until a step takes some: as float32 they are four times as large.
        self.scale = torch.tensor(inputs.scale, device=self.device) if isinstance(inputs, StoredImages) else None
        self.inputs, self.labels = self._to_tensors(inputs, labels)
        self.flipped_axes = [AXES[name] for name in settings.augment]
        self.mixed = settings.precision == "bfloat16"
        self.variance = variance(labels) if labels.dtype.kind == "f" else None  # of a regression
        for layer in module.modules():
            if isinstance(layer, torch_models.Rescale):
                layer.set_from(self.labels[:, None])
            elif isinstance(layer, torch_models.Standardize):
                layer.set_from(self.inputs)
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        shared = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, "foreach": True}
        if settings.optimizer == "adam":
            self.optimizer = torch.optim.Adam(trained, **shared)
        elif settings.optimizer == "rmsprop":
            self.optimizer = torch.optim.RMSprop(trained, alpha=0.9, eps=1e-7, **shared)  # those of Keras
        else:
            self.optimizer = torch.optim.SGD(trained, momentum=MOMENTUM, **shared)

    def step(self, rows: np.ndarray, learning_rate: float) -> torch.Tensor:
        """Train one step on these rows; return their mean loss."""
        self.module.train()
        self.optimizer.param_groups[0]["lr"] = learning_rate
        rows = torch.from_numpy(rows).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            outputs = self.module(self._augment(self._to_floats(self.inputs[rows])))
        loss = self._compute_loss(outputs.float() if self.mixed else outputs, self.labels[rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach().double()

    def measure(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
        """Return accuracy (mean over several labels, R² of a regression) and mean loss over all rows."""
        inputs, labels = self._to_tensors(inputs, labels)
        with torch_models.evaluation_mode(self.module):
            together = torch_models.choose_batch_size(inputs, self.device)
            outputs = halve(self.classifier, together, lambda rows: self._compute_outputs(inputs, rows))
            loss = float(self._compute_loss(outputs, labels))
            if self.variance is not None:
                return r_squared(outputs.flatten().cpu().numpy(), labels.cpu().numpy()), loss
            predicted = outputs.argmax(1) if labels.ndim == 1 else outputs >= 0
            return float((predicted == labels).double().mean()), loss

    def _compute_outputs(self, inputs: torch.Tensor, rows: int) -> torch.Tensor:
        return torch.cat([self.module(self._to_floats(part)) for part in inputs.split(rows)]).double()

    def _augment(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the images, each flipped or not by a coin's toss of its own along every axis of `augment`."""
        for axis in self.flipped_axes:
            flipped = torch.rand((len(inputs), 1, 1, 1), device=self.device) < 0.5
            inputs = torch.where(flipped, inputs.flip(axis), inputs)
        return inputs

    def _compute_loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean (binary) cross-entropy, or the squared error of standardised targets of a regression."""
        if labels.ndim == 2:
            return nn.functional.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype))
        if self.variance is None:
            return nn.functional.cross_entropy(outputs, labels)
        return nn.functional.mse_loss(outputs.double().reshape(labels.shape), labels) / self.variance

    def weights(self) -> dict[str, torch.Tensor]:
        return copy.deepcopy(self.module.state_dict())

    def restore(self, weights: dict[str, torch.Tensor]) -> None:
        self.module.load_state_dict(weights)

    def write_state(self, path: Path, state: dict[str, Any]) -> None:
        """Write all that the next steps depend on, and `state`, which holds numbers, texts and tensors."""
        random = [torch.get_rng_state()]
        if self.device.type == "cuda":
            random.append(torch.cuda.get_rng_state(self.device))
        own = {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict(), "random": random}
        with atomic(path) as partial:
            torch.save(own | state, partial)

    def read_state(self, path: Path) -> dict[str, Any]:
        """Return the state that `write_state` wrote; only tensors and plain values are unpickled."""
        return torch.load(path, map_location="cpu", weights_only=True)

    def set_state(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"][0])
        if self.device.type == "cuda" and len(state["random"]) > 1:
            torch.cuda.set_rng_state(state["random"][1], self.device)

    def _to_tensors(self, *arrays: np.ndarray | StoredImages) -> tuple[torch.Tensor, ...]:
        stored = (array.stored if isinstance(array, StoredImages) else array for array in arrays)
        return tuple(torch.as_tensor(array).to(self.device) for array in stored)

    def _to_floats(self, rows: torch.Tensor) -> torch.Tensor:
        return rows if self.scale is None else rows.float() / self.scale


def initialise_weights(module: nn.Module) -> None:
    """Initialise every layer's weights again from torch's current random state; the module's own rule comes last."""
    for layer in [*[*module.modules()][1:], module]:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()


def threads() -> int:
    return torch.get_num_threads()


def versions() -> dict[str, Any]:
    return {"torch": torch.__version__}


def convert(path: Path, destination: Path) -> None:
    """Write the weights of a .pt, .pth or .safetensors file at `destination` as safetensors.

    A file with the name of an official one must be it. Raises ShapelineError.
    """
    for official in WEIGHTS.values():
        # One placed by hand never went through fetch, so this is the first look at it.
        if path.name == official.name and path.is_file() and (problem := official.problem(path)):
            raise ShapelineError(f"{path}: {problem}; delete it, and fetch it again or replace it by hand")
    arrays = tensors(path) if path.suffix == ".safetensors" else state_dict(path)
    with atomic(destination) as partial:
        partial.write_bytes(safetensors.numpy.save(arrays))


def state_dict(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file that torch.save wrote of a state dict, by name; code in the file is never run.

    Raises ShapelineError when it is missing, damaged, or holds anything but tensors by name.
    """
    where = f"models: {path}"
    if not path.is_file():
        raise ShapelineError(f"{where}: there is no such file; place the weights there")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"asks to run {asked[1]}, which is never done" if asked else "is damaged or no file of torch's"
        raise ShapelineError(f"{where}: refused, it {reason}; save model.state_dict() with torch.save") from error
    named = isinstance(loaded, dict) and all(isinstance(name, str) for name in loaded)
    if not named or not all(isinstance(tensor, torch.Tensor) for tensor in loaded.values()):
        raise ShapelineError(f"{where}: holds no tensors by name; save model.state_dict() with torch.save")
    floats = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in loaded.items()}
    return {name: tensor.detach().contiguous().numpy() for name, tensor in floats.items()}
