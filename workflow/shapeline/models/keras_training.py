"""Training a Keras classifier on TensorFlow: what `training` leaves to the framework."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.files import atomic
from shapeline.memory import halve
from shapeline.models import architectures, keras_models
from shapeline.models.classifier import Classifier, r_squared
from shapeline.models.keras_models import keras, tf, threads  # noqa: F401 (training asks for the threads)
from shapeline.models.registry import Training
from shapeline.models.training import MOMENTUM, variance


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
    if initialise:
        initialise_weights(classifier, seed)
    yield Trainer(classifier, *train, settings)


class Trainer:
    """Steps on, and measurements of, a classifier's module."""

    def __init__(self, classifier: Classifier, inputs: np.ndarray, labels: np.ndarray, settings: Training):
        self.classifier, self.inputs, self.labels = classifier, inputs, labels
        self.module = module = classifier.module
        self.variance = variance(labels) if labels.dtype.kind == "f" else None  # of a regression
        for layer in keras_models.iterate_layers(module):
            if isinstance(layer, keras_models.Rescale):
                layer.set_from(labels[:, None])
            elif isinstance(layer, keras_models.Standardize):
                layer.set_from(inputs)
        if settings.optimizer == "adam":
            self.optimizer = keras.optimizers.Adam(settings.learning_rate, epsilon=1e-8)  # that of torch
        elif settings.optimizer == "rmsprop":
            # Keras adds it before the root, the paper's Keras and torch after it: 1e-7 there.
            self.optimizer = keras.optimizers.RMSprop(settings.learning_rate, epsilon=1e-14)
        else:
            self.optimizer = keras.optimizers.SGD(settings.learning_rate, momentum=MOMENTUM)
        trained, decay = module.trainable_variables, settings.weight_decay
        self.optimizer.build(trained)
        shape, kind = [None, *inputs.shape[1:]], inputs.dtype

        @tf.function(input_signature=[tf.TensorSpec(shape, kind), tf.TensorSpec([None], labels.dtype)])
        def step(rows, targets):
            with tf.GradientTape() as tape:
                loss = self._compute_loss(module(rows, training=True), targets)
            gradients = tape.gradient(loss, [variable.value for variable in trained])
            if decay:
                pairs = zip(gradients, trained, strict=True)
                gradients = [tf.convert_to_tensor(gradient) + decay * variable for gradient, variable in pairs]
            self.optimizer.apply(gradients, trained)
            return tf.cast(loss, tf.float64)

        @tf.function(input_signature=[tf.TensorSpec(shape, kind)])
        def logits(rows):
            return module(rows, training=False)

        self._step, self._logits = step, logits

    def step(self, rows: np.ndarray, learning_rate: float) -> tf.Tensor:
        """Train one step on these rows; return their mean loss."""
        self.optimizer.learning_rate.assign(learning_rate)
        return self._step(self.inputs[rows], self.labels[rows])

    def measure(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
        """Return accuracy (R² of a regression) and mean loss over all rows."""
        outputs = halve(self.classifier, 256, lambda rows: self._compute_outputs(inputs, rows))
        loss = float(self._compute_loss(tf.cast(outputs, tf.float64), labels))
        if self.variance is not None:
            return r_squared(outputs.reshape(-1).astype(np.float64), labels), loss
        return float((outputs.argmax(1) == labels).mean()), loss

    def _compute_outputs(self, inputs: np.ndarray, rows: int) -> np.ndarray:
        return np.concatenate([self._logits(inputs[i : i + rows]).numpy() for i in range(0, len(inputs), rows)])

    def _compute_loss(self, outputs: tf.Tensor, targets: Any) -> tf.Tensor:
        """Return the mean cross-entropy, or the mean squared error of standardised targets of a regression."""
        if self.variance is None:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs))
        predictions = tf.reshape(tf.cast(outputs, tf.float64), [-1])
        return tf.reduce_mean((predictions - targets) ** 2) / self.variance

    def weights(self) -> list[np.ndarray]:
        return self.module.get_weights()

    def restore(self, weights: list[np.ndarray]) -> None:
        self.module.set_weights(weights)

    def write_state(self, path: Path, state: dict[str, Any]) -> None:
        """Write all that the next steps depend on, and `state`, which holds numbers, texts and the best weights."""
        best = state["progress"]["best_weights"] or []
        groups = {"module": self.module.variables, "optimizer": self.optimizer.variables, "best": best}
        arrays = {f"{group}{i}": np.asarray(array) for group, each in groups.items() for i, array in enumerate(each)}
        progress = {**state, "progress": {**state["progress"], "best_weights": None}}
        with atomic(path) as partial, partial.open("wb") as file:
            np.savez(file, told=json.dumps(progress), **arrays)

    def read_state(self, path: Path) -> dict[str, Any]:
        """Return the state that `write_state` wrote, with its arrays by group."""
        with np.load(path) as file:
            arrays = dict(file)
        state = json.loads(str(arrays.pop("told")))
        for group in ("module", "optimizer", "best"):
            names = [name for name in arrays if name.startswith(group)]
            state[group] = [arrays[f"{group}{i}"] for i in range(len(names))]
        state["progress"] |= {"best_weights": state["best"], "best_key": tuple(state["progress"]["best_key"])}
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        for variables, group in ((self.module.variables, "module"), (self.optimizer.variables, "optimizer")):
            for variable, saved in zip(variables, state[group], strict=True):
                variable.assign(saved)


def initialise_weights(classifier: Classifier, seed: int) -> None:
    """Initialise all weights again from the seed, as a new model has. Raises ShapelineError for a wrapped one."""
    if not architectures.is_named(classifier.architecture):
        raise ShapelineError(
            f"training: '{classifier.architecture}' is a wrapped model; train it as it is (initialise=False)"
        )
    again = architectures.build(classifier.architecture, "tensorflow", seed=seed, **classifier.sizes)
    for variable, drawn in zip(classifier.module.variables, again.module.variables, strict=True):
        variable.assign(drawn)


def versions() -> dict[str, Any]:
    return {"tensorflow": tf.__version__, "keras": keras.__version__}
