"""Training of a classifier, deterministic by seed; the result is the best epoch on the validation split.

A step and a measurement differ between frameworks and are in torch_training and keras_training.
"""

import contextlib
import hashlib
import importlib
import json
import logging
import math
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shapeline.datasets.entries import parse
from shapeline.datasets.loading import StoredImages
from shapeline.datasets.sources import PARTS, TEST, TRAIN, VALIDATION
from shapeline.errors import ShapelineError
from shapeline.memory import is_out_of_memory
from shapeline.models.classifier import Classifier, backend, check_labels, label_scores, start_card
from shapeline.models.registry import Training

log = logging.getLogger(__name__)

HALVING_EPOCHS = 3
MOMENTUM = 0.9  # of sgd
CHECKPOINT_SECONDS = 30  # of training between two checkpoints
PREDICTION_BATCH = 64  # images in memory at a time
# By name, so that a job's tracked files (plan.sources) hold its own framework alone.
TRAINERS = {"torch": "shapeline.models.torch_training", "tensorflow": "shapeline.models.keras_training"}


# Options of `models.registry.Training` where neither the user nor the architecture has others: the schedule "cosine"
# lowers the learning rate to 0 over all steps (Zhang et al. 2015 halve it, Teneggi et al. 2021 take steps), sgd has
# momentum, and the precision is of products in a step, not of weights and measures.
USUAL = {"epochs": 20, "batch": 64, "learning_rate": 1e-3, "weight_decay": 0.0, "schedule": "cosine", "step": 0.2}
USUAL |= {"step_epochs": 10, "optimizer": "adam", "augment": [], "precision": "float32"}
# Chosen for accuracy over several seeds; for texts the settings of the papers, with the epochs that IMDB needs.
DEFAULTS = {
    "mnist_cnn": {"epochs": 12, "learning_rate": 4e-3, "weight_decay": 1e-4},
    "digits_cnn": {"epochs": 40, "batch": 32, "learning_rate": 3e-3, "weight_decay": 1e-3},
    "cifar_cnn": {"epochs": 40, "augment": ["flip_horizontal"]},
    "crosses_cnn": {"batch": 32},
    "resnet18": {
        **{"epochs": 25, "batch": 32, "learning_rate": 1e-4, "schedule": "step"},
        "augment": ["flip_horizontal", "flip_vertical"],
    },
    "mlp": {"epochs": 40, "batch": 32, "learning_rate": 2e-3, "weight_decay": 1e-2},
    "word_cnn": {"epochs": 5, "batch": 32, "schedule": "none", "optimizer": "rmsprop"},
    "char_cnn": {"epochs": 30, "batch": 128, "learning_rate": 1e-2, "schedule": "halving", "optimizer": "sgd"},
    "bilstm": {"epochs": 4, "schedule": "none", "optimizer": "rmsprop"},
}


def get_settings(architecture: str, keys: Mapping[str, Any] | None = None) -> Training:
    """Return the architecture's defaults, replaced by given keys. Raises ShapelineError for wrong names or values."""
    values = parse(Training, keys or {}, "training.{key}").model_dump(exclude_none=True)
    return Training(**USUAL | DEFAULTS.get(architecture, {}) | values)


def learning_rate(settings: Training, epoch: int, done: float) -> float:
    """Return the learning rate in an epoch (from 1); done: the fraction of completed steps."""
    if settings.schedule == "cosine":
        return settings.learning_rate * (1 + math.cos(math.pi * done)) / 2
    if settings.schedule == "halving":
        return settings.learning_rate * 0.5 ** ((epoch - 1) // HALVING_EPOCHS)
    if settings.schedule == "step":
        return settings.learning_rate * settings.step ** ((epoch - 1) // settings.step_epochs)
    return settings.learning_rate


def fit(
    classifier: Classifier,
    dataset: Any,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "cpu",
    initialise: bool = True,
    key: str = "training",
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Train in place with cross-entropy, restore the best validation epoch, and return the model card.

    For several labels, (n, labels) of 0 and 1, the loss is the binary cross-entropy of each; accuracy is then the mean
    over labels, and the card has the accuracy per label and the share of rows with all right. A regression minimises
    the mean squared error in units of the training targets' variance; the card has R² and RMSE instead of accuracies.
    Of equal accuracies the lower validation loss decides. Equal seed, framework, device, threads give equal weights.

    dataset: inputs (n, *input_shape), numbers or token ids, labels (n,), split (n,) 0 train, 1 validation, 2 test.
    settings: replace the architecture's; key: their name in messages.
    seed: of the initial weights (sampled if `initialise`), the order of the rows, flips and dropout.
    checkpoint: a file to which a long training writes its state after an epoch, and from which it continues; more
        epochs are the same training unless the schedule depends on their number.
    Raises ShapelineError for an empty split, labels outside the classes, a loss that is not finite, too little memory.
    """
    chosen = get_settings(classifier.architecture, settings)
    labels, splits = _prepare_labels(classifier, dataset, chosen)
    classifier.check_tokens(dataset.inputs)
    start = time.perf_counter()
    classifier.to(device)
    framework = importlib.import_module(TRAINERS[classifier.framework])
    taken = dataset.inputs.only if isinstance(dataset.inputs, StoredImages) else dataset.inputs.__getitem__
    parts = ((taken(rows), labels[rows]) for rows in splits)  # a table in double precision is cast for a network
    train, validation, test = ((x.astype(np.float32) if x.dtype == np.float64 else x, y) for x, y in parts)
    batch = f"a batch of {chosen.batch} rows of '{classifier.architecture}'; lower {key}.batch"
    with (
        _explain_memory_error(f"training: memory does not hold {batch}, or use a device with more memory"),
        framework.trainer(classifier, train, chosen, seed, device, initialise) as trainer,
    ):
        states = Checkpoint(checkpoint, checkpoint and _identify_run(classifier, train, chosen, seed, initialise))
        history, best = _run_epochs(trainer, len(splits[0]), validation, chosen, seed, states)
        score, loss = trainer.measure(*test)
    name = name_score(labels)
    card = {
        **start_card(classifier),
        "parameters": classifier.n_parameters,
        "settings": chosen.model_dump(),
        "seed": seed,
        **{"device": device, "threads": framework.threads()},
        "versions": {"python": platform.python_version(), **framework.versions(), "numpy": np.__version__},
        "rows": dict(zip(PARTS, map(len, splits), strict=True)),
        "history": history,
        "best_epoch": best,
        f"validation_{name}": history[best - 1][f"validation_{name}"],
        f"test_{name}": score,
        "test_loss": loss,
        "seconds": time.perf_counter() - start + states.earlier,
    }
    card |= _measure_task(classifier, dataset, train, test, loss)
    log.info("test %s %.4f on %d rows (epoch %d)", name, score, len(splits[2]), best)
    return card


@contextlib.contextmanager
def _explain_memory_error(message: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise ShapelineError(message) from error


def _prepare_labels(classifier: Classifier, dataset: Any, settings: Training) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the labels and the rows of each part. Raises ShapelineError if they do not permit training."""
    if classifier.framework not in TRAINERS:
        raise ShapelineError(
            f"training: '{classifier.architecture}' is a function and cannot be trained"
            "; give an architecture, or leave training out"
        )
    if not settings.epochs:
        raise ShapelineError("training: epochs is 0; give 1 or more, or a trained model")
    if settings.augment and (dataset.inputs.ndim != 4 or classifier.framework != "torch"):
        raise ShapelineError("training: augment flips images, in torch only; remove the key")
    if settings.precision != "float32" and classifier.framework != "torch":
        raise ShapelineError("training: precision bfloat16 needs torch; remove the key")
    regression = classifier.task == "regression"
    labels = np.asarray(dataset.labels, dtype=np.float64 if regression else np.int64)
    splits = [np.flatnonzero(np.asarray(dataset.split) == part) for part in (TRAIN, VALIDATION, TEST)]
    for name, rows in zip(("training", "validation", "test"), splits, strict=True):
        if len(rows) == 0:
            raise ShapelineError(f"training: the dataset has no {name} rows; set the sizes of its splits")
    if classifier.task == "multilabel":
        check_labels(classifier, dataset.inputs, labels)
    elif not regression and (labels.min() < 0 or labels.max() >= classifier.n_classes):
        raise ShapelineError(
            f"training: labels run from {labels.min()} to {labels.max()}, "
            f"but the classes of the model are 0 to {classifier.n_classes - 1}; number the labels from 0"
        )
    return labels, splits


def _measure_task(classifier: Classifier, dataset: Any, train: tuple, test: tuple, loss: float) -> dict[str, float]:
    """Return the card's further measures: a regression's RMSE, or the accuracies of several labels."""
    if classifier.task == "regression":
        return {"test_rmse": math.sqrt(loss * variance(train[1]))}
    if classifier.task != "multilabel":
        return {}
    starts = range(0, len(test[1]), PREDICTION_BATCH)
    right = np.concatenate([classifier.predict(test[0][i : i + PREDICTION_BATCH]) for i in starts]) == test[1]
    return {f"test_{name}": share for name, share in label_scores(right, getattr(dataset, "card", {})).items()}


def name_score(labels: np.ndarray) -> str:
    """Return the name of the score of a Trainer's `measure`: "accuracy", or "r2" for numbers to predict."""
    return "r2" if labels.dtype.kind == "f" else "accuracy"


def variance(targets: np.ndarray) -> float:
    """Return the variance of a regression's targets, the unit of its loss; 1 if all are equal."""
    return float(targets.var()) or 1.0


@dataclass
class Checkpoint:
    """The file of a training's state, and the run that it belongs to: a digest of data, settings, seed and model."""

    path: Path | None
    run: str | None
    seconds: float = 0.0  # of training since the last state was written
    earlier: float = 0.0  # of training before this process

    def read(self, trainer: Any, epochs: int) -> dict[str, Any]:
        """Restore the trainer's state and return its progress; {} if there is none of this run."""
        if not self.path or not self.path.exists():
            return {}
        try:
            saved = trainer.read_state(self.path)
        except OSError:
            raise
        except Exception:  # noqa: BLE001 (other bytes may raise any exception)
            log.warning("%s is damaged or of another framework, and is not used", self.path)
            return {}
        if saved["run"] != self.run or len(saved["progress"]["history"]) > epochs:
            log.info("%s is the state of another training and is not used", self.path)
            return {}
        trainer.set_state(saved)
        self.earlier = sum(epoch["seconds"] for epoch in saved["progress"]["history"])
        log.info("training continues after epoch %d of %d", len(saved["progress"]["history"]), epochs)
        return saved["progress"]

    def write(self, trainer: Any, progress: dict[str, Any], last: bool) -> None:
        """Write the state after an epoch, unless the training since the last state was short."""
        if not self.path:
            return
        self.seconds += progress["history"][-1]["seconds"]
        if self.seconds >= CHECKPOINT_SECONDS or (last and self.path.exists()):
            trainer.write_state(self.path, {"run": self.run, "progress": progress})
            self.seconds = 0.0


def _identify_run(
    classifier: Classifier, train: tuple[Any, np.ndarray], settings: Training, seed: int, initialise: bool
) -> str:
    """Return a digest of all that a state depends on; of the number of epochs only if the learning rate does."""
    facts = settings.model_dump() | {"architecture": classifier.architecture, "sizes": classifier.sizes}
    facts["framework"] = classifier.framework
    if settings.schedule != "cosine":
        del facts["epochs"]
    digest = hashlib.sha256(json.dumps({**facts, "seed": seed}, sort_keys=True, default=str).encode())
    inputs = train[0].stored if isinstance(train[0], StoredImages) else train[0]
    start = [] if initialise else backend(classifier.framework).state(classifier.module).values()
    for array in (inputs, train[1], *start):
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def _run_epochs(
    trainer: Any,
    count: int,
    validation: tuple[np.ndarray, np.ndarray],
    settings: Training,
    seed: int,
    checkpoint: Checkpoint,
) -> tuple[list[dict[str, float]], int]:
    """Run all epochs and restore the weights of the best one; return the history and that epoch (from 1)."""
    order = np.random.default_rng(seed)
    name = name_score(validation[1])
    progress: dict[str, Any] = {"history": [], "best_key": (-1.0, -math.inf), "best_epoch": 0, "best_weights": None}
    progress |= checkpoint.read(trainer, settings.epochs)
    history = progress["history"]
    for _ in history:
        order.permutation(count)
    for epoch in range(len(history) + 1, settings.epochs + 1):
        if settings.patience and epoch - 1 - progress["best_epoch"] >= settings.patience:
            log.info("no better for %d epochs: training ends", settings.patience)
            break
        start = time.perf_counter()
        mean_loss = _run_epoch(trainer, order.permutation(count), settings, epoch)
        score, validation_loss = trainer.measure(*validation)
        seconds = time.perf_counter() - start
        history.append({"loss": mean_loss, f"validation_{name}": score, "seconds": seconds})
        log.info(
            "epoch %d of %d: loss %.4f, validation %s %.4f, %.1f s",
            *(epoch, settings.epochs, mean_loss, name, score, seconds),
        )
        key = (0.0 if name == "r2" else score, -validation_loss)  # for a regression only the loss decides
        if key > progress["best_key"]:
            progress |= {"best_key": key, "best_epoch": epoch, "best_weights": trainer.weights()}
        checkpoint.write(trainer, progress, last=epoch == settings.epochs)
    trainer.restore(progress["best_weights"])
    return history, progress["best_epoch"]


def _run_epoch(trainer: Any, order: np.ndarray, settings: Training, epoch: int) -> float:
    """Train on the rows in this order; return the mean loss. Raises ShapelineError if it is not finite."""
    # A last batch of a single row is merged, because batch normalisation needs a standard deviation.
    ends = np.arange(settings.batch, max(len(order) - 1, 1), settings.batch)
    batches, total = np.split(order, ends), 0.0
    for batch, chosen in enumerate(batches):
        done = (epoch - 1 + batch / len(batches)) / settings.epochs
        # The sum stays on the device, because reading each loss would wait for it.
        total += trainer.step(chosen, learning_rate(settings, epoch, done)) * len(chosen)
    mean_loss = float(total) / len(order)
    if not math.isfinite(mean_loss):
        raise ShapelineError(
            f"training: the loss is {mean_loss} in epoch {epoch}; lower learning_rate "
            f"(now {settings.learning_rate:g}) or check the inputs for NaN"
        )
    return mean_loss
