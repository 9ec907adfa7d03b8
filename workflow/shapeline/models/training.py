"""Training a torch classifier: deterministic by seed, the best epoch on the validation split is kept."""

import copy
import dataclasses
import logging
import math
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from shapeline.errors import ShapelineError, nearest
from shapeline.models import torch_models
from shapeline.models.classifier import Classifier

log = logging.getLogger(__name__)

TRAIN, VALIDATION, TEST = 0, 1, 2
SCHEDULES = ("cosine", "none")


@dataclass(frozen=True)
class Settings:
    """How to train. `schedule` "cosine" lets the learning rate fall to 0 over all steps; "none" keeps it."""

    epochs: int = 20
    batch: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "cosine"


# What reaches the accuracy each task allows, found by trial on several seeds.
DEFAULTS = {
    "mnist_cnn": Settings(epochs=12, batch=64, learning_rate=4e-3, weight_decay=1e-4),
    "digits_cnn": Settings(epochs=40, batch=32, learning_rate=3e-3, weight_decay=1e-3),
    "mlp": Settings(epochs=40, batch=32, learning_rate=2e-3, weight_decay=1e-2),
}


def settings_for(architecture: str, given: Mapping[str, Any] | None = None) -> Settings:
    """The architecture's defaults with the given values in their place; ShapelineError for a wrong name or value."""
    default = DEFAULTS.get(architecture, Settings())
    known = [entry.name for entry in dataclasses.fields(Settings)]
    for name in given or {}:
        if name not in known:
            raise ShapelineError(f"training: unknown setting '{name}'.{nearest(name, known)}")
    settings = dataclasses.replace(
        default, **{name: value for name, value in (given or {}).items() if value is not None}
    )
    if settings.schedule not in SCHEDULES:
        raise ShapelineError(
            f"training: unknown schedule '{settings.schedule}'.{nearest(settings.schedule, SCHEDULES)}"
        )
    for name in ("epochs", "batch", "learning_rate"):
        if not getattr(settings, name) > 0:
            raise ShapelineError(f"training: {name} is {getattr(settings, name)}; it must be above 0")
    if not settings.weight_decay >= 0:
        raise ShapelineError(f"training: weight_decay is {settings.weight_decay}; it must be 0 or more")
    return settings


def fit(
    classifier: Classifier,
    dataset: Any,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "cpu",
    initialise: bool = True,
) -> dict[str, Any]:
    """Train in place with cross-entropy and Adam, keep the best validation epoch, and return the model card.

    `dataset`: inputs (n, *input_shape) float32, labels (n,) ints, split (n,) 0 train, 1 validation, 2 test. `seed`
    draws the initial weights (unless `initialise` is False), the order of the rows and dropout; the same seed,
    device and thread count give the same weights. Of equally accurate epochs the one with the lower validation loss
    is kept. Accuracies are fractions of the whole split, seconds are wall time.
    Raises ShapelineError for an empty split, labels outside the classes, or a loss that is not a number.
    """
    chosen = settings_for(classifier.architecture, settings)
    if classifier.framework != "torch":
        raise ShapelineError(f"training: '{classifier.architecture}' is a function and cannot be trained")
    inputs, labels = torch.as_tensor(dataset.inputs), torch.as_tensor(np.asarray(dataset.labels, dtype=np.int64))
    splits = [np.flatnonzero(np.asarray(dataset.split) == part) for part in (TRAIN, VALIDATION, TEST)]
    for name, rows in zip(("training", "validation", "test"), splits, strict=True):
        if len(rows) == 0:
            raise ShapelineError(f"training: the dataset has no {name} rows; set the sizes of its splits")
    if labels.min() < 0 or labels.max() >= classifier.n_classes:
        raise ShapelineError(
            f"training: labels run from {labels.min()} to {labels.max()}, "
            f"but the classes of the model are 0 to {classifier.n_classes - 1}"
        )
    start = time.perf_counter()
    train, validation, test = ((inputs[rows].to(device), labels[rows].to(device)) for rows in splits)
    module = classifier.module.to(device)
    with torch_models.seeded(seed, device):
        if initialise:
            initialise_weights(module)
        for layer in module.modules():
            if isinstance(layer, torch_models.Standardize):
                layer.set_from(train[0])
        history, best = _epochs(module, train, validation, chosen, seed)
    module.eval()
    accuracy, loss = _measure(module, *test)
    card = {
        "architecture": classifier.architecture,
        "framework": classifier.framework,
        "sizes": classifier.sizes,
        "parameters": classifier.n_parameters,
        "settings": dataclasses.asdict(chosen),
        "seed": seed,
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "rows": {"train": len(splits[0]), "validation": len(splits[1]), "test": len(splits[2])},
        "history": history,
        "best_epoch": best,
        "validation_accuracy": history[best - 1]["validation_accuracy"],
        "test_accuracy": accuracy,
        "test_loss": loss,
        "seconds": time.perf_counter() - start,
    }
    log.info("test accuracy %.2f %% on %d rows (epoch %d)", 100 * accuracy, len(splits[2]), best)
    return card


def initialise_weights(module: nn.Module) -> None:
    """Draw every layer's weights anew from torch's current random state."""
    for layer in module.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()


def _epochs(
    module: nn.Module,
    train: tuple[torch.Tensor, torch.Tensor],
    validation: tuple[torch.Tensor, torch.Tensor],
    settings: Settings,
    seed: int,
) -> tuple[list[dict[str, float]], int]:
    """Run all epochs and leave the best one's weights in the module; returns the history and that epoch (from 1)."""
    inputs, labels = train
    steps = settings.epochs * math.ceil(len(inputs) / settings.batch)
    optimizer = torch.optim.Adam(
        module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, foreach=True
    )
    schedule = None
    if settings.schedule == "cosine":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    order = torch.Generator().manual_seed(seed)
    history: list[dict[str, float]] = []
    best_key, best_epoch, best_weights = (-1.0, 0.0), 0, {}
    for epoch in range(1, settings.epochs + 1):
        start = time.perf_counter()
        module.train()
        total = torch.zeros((), dtype=torch.float64, device=inputs.device)
        for rows in torch.randperm(len(inputs), generator=order).to(inputs.device).split(settings.batch):
            loss = nn.functional.cross_entropy(module(inputs[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            total += loss.detach() * len(rows)
        mean_loss = float(total) / len(inputs)
        if not math.isfinite(mean_loss):
            raise ShapelineError(
                f"training: the loss is {mean_loss} in epoch {epoch}; lower learning_rate "
                f"(now {settings.learning_rate:g}) or check the inputs for NaN"
            )
        accuracy, validation_loss = _measure(module, *validation)
        seconds = time.perf_counter() - start
        history.append({"loss": mean_loss, "validation_accuracy": accuracy, "seconds": seconds})
        log.info(
            "epoch %d of %d: loss %.4f, validation accuracy %.2f %%, %.1f s",
            *(epoch, settings.epochs, mean_loss, 100 * accuracy, seconds),
        )
        if (accuracy, -validation_loss) > best_key:
            best_key, best_epoch = (accuracy, -validation_loss), epoch
            best_weights = copy.deepcopy(module.state_dict())
    module.load_state_dict(best_weights)
    return history, best_epoch


def _measure(module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Accuracy and mean cross-entropy over all rows."""
    with torch_models.evaluation_mode(module):
        logits = torch.cat([module(rows) for rows in inputs.split(256)]).double()
        accuracy = (logits.argmax(1) == labels).double().mean()
        return float(accuracy), float(nn.functional.cross_entropy(logits, labels))
