"""The architectures of torch_models in Keras on TensorFlow, their evaluation and weights, and models of .keras files.

Inputs and weights have torch's layouts and names, so that files load in both; inside, channels are last. TensorFlow is
imported as a job wants it: deterministic, full float32, growing GPU memory, quiet; import this module before Keras.
Files are read in safe mode, and made to take the dataset's inputs and give logits.
"""

import contextlib
import functools
import importlib.util
import io
import itertools
import logging
import os
import random
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, first_line, name_type
from shapeline.models.adapters import check_n_outputs, find_order
from shapeline.models.classifier import PREPARED, avoid_triton_crash, check_outputs
from shapeline.models.onnx_graph import FILE, Refused, check_size
from shapeline.threads import count_processors, read_threads

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")


@contextlib.contextmanager
def _silence_stderr() -> Iterator[None]:
    """No terminal for what TensorFlow's libraries write before they have read what to leave out; errors still raise."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


avoid_triton_crash()
with _silence_stderr():
    import keras
    import tensorflow as tf
    from keras import layers

    tf.config.experimental.enable_op_determinism()
    # With TF32 the outputs would change by 1e-3 with the batch size.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    with contextlib.suppress(RuntimeError):  # refused, and too late, once the GPU was used
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)

if keras.config.backend() != "tensorflow":
    raise ShapelineError(
        f"Keras: it runs on {keras.config.backend()}, and its models are explained on TensorFlow; set the environment "
        "variable KERAS_BACKEND=tensorflow, or give a function of rows in place of the model"
    )


def threads() -> int:
    """Return the number of threads of an operation: the job's, else the processor's."""
    given = tf.config.threading.get_intra_op_parallelism_threads() or read_threads("TF_NUM_INTRAOP_THREADS")
    return given or count_processors()


def iterate_layers(part: layers.Layer) -> Iterator[layers.Layer]:
    """Yield all layers inside a model or layer, at any depth, each once."""
    seen, stack = {id(part)}, [part]
    while stack:
        owner = stack.pop()
        values = [*getattr(owner, "layers", ()), *vars(owner).values()]
        nested = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
        children = [layer for layer in nested if isinstance(layer, layers.Layer) and id(layer) not in seen]
        for layer in {id(layer): layer for layer in children}.values():
            seen.add(id(layer))
            yield layer
        stack += children


class Flatten(layers.Layer):
    """Flatten maps (n, ..., channels) in torch's order, channels first, so that the dense weights are torch's."""

    def call(self, maps: tf.Tensor) -> tf.Tensor:
        maps = tf.transpose(maps, [0, maps.shape.rank - 1, *range(1, maps.shape.rank - 1)])
        return tf.reshape(maps, [-1, int(np.prod(maps.shape[1:]))])


class Standardize(layers.Layer):
    """Subtract the mean and divide by the standard deviation of the training rows, column by column."""

    def __init__(self, inputs: int):
        super().__init__()
        self.mean = self.add_weight(shape=(inputs,), initializer="zeros", trainable=False, name="mean")
        self.std = self.add_weight(shape=(inputs,), initializer="ones", trainable=False, name="std")

    def set_from(self, rows: np.ndarray) -> None:
        """Take mean and standard deviation from rows (n, inputs); a constant column keeps 1 as its deviation."""
        std = rows.std(axis=0, dtype=np.float64)
        self.mean.assign(rows.mean(axis=0, dtype=np.float64))
        self.std.assign(np.where(std > 0, std, 1))

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        return (rows - self.mean) / self.std


class Rescale(Standardize):
    """Transform standardised targets back to the target's units by the mean and deviation of the training part."""

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        return rows * self.std + self.mean


class Stack(keras.Model):
    """Layers one after another, as torch's Sequential; inputs may be `channels_first`, inside channels are last."""

    def __init__(self, *parts: layers.Layer, channels_first: bool = False):
        super().__init__()
        self.sequence, self.channels_first = list(parts), channels_first

    def parts(self) -> dict[str, layers.Layer]:
        return {str(index): layer for index, layer in enumerate(self.sequence)}

    def call(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        if self.channels_first:
            rows = tf.transpose(rows, [0, 2, 3, 1])
        for layer in self.sequence:
            rows = layer(rows, training=training) if isinstance(layer, layers.Dropout) else layer(rows)
        return rows


class WordCNN(keras.Model):
    """The network of `word_cnn`, with activations of isolated windows as in torch_models."""

    window_size = 3

    def __init__(self, vocabulary: int, embedding: int, filters: int, hidden: int, classes: int, dropout: float):
        super().__init__()
        self.embedding = _build_embedding(vocabulary, embedding)
        self.embedding_dropout = layers.Dropout(dropout)
        self.convolution = layers.Conv1D(filters, self.window_size)
        self.activation = layers.ReLU()
        self.hidden = layers.Dense(hidden)
        self.hidden_dropout = layers.Dropout(dropout)
        self.hidden_activation = layers.ReLU()
        self.last = layers.Dense(classes)

    def parts(self) -> dict[str, layers.Layer]:
        return {name: getattr(self, name) for name in ("embedding", "convolution", "hidden", "last")}

    def embed(self, ids: tf.Tensor) -> tf.Tensor:
        return self.embedding(ids)

    def from_embedding(self, embedded: tf.Tensor, ids: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        maps = self.convolution(self.embedding_dropout(embedded, training=training))
        # ReLU is monotone, so the maximum may come first.
        return self.from_pooled(self.activation(tf.reduce_max(maps, axis=1)), training=training)

    def call(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.from_embedding(self.embed(ids), training=training)

    def windows(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the activations of isolated windows, (P, window_size) ids -> (P, filters)."""
        kernel = tf.convert_to_tensor(self.convolution.kernel)
        embedded = tf.reshape(self.embed(ids), [-1, kernel.shape[0] * kernel.shape[1]])
        kernel = tf.reshape(kernel, [-1, kernel.shape[2]])
        return self.activation(tf.matmul(embedded, kernel) + self.convolution.bias)

    def from_pooled(self, pooled: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return logits from the maximum of each filter, (n, filters) -> (n, classes)."""
        return self.last(self.hidden_activation(self.hidden_dropout(self.hidden(pooled), training=training)))


class CharCNN(keras.Model):
    """The network of `char_cnn`; its embedding is the one-hot code, and 0 for padding."""

    def __init__(self, alphabet: int, classes: int, hidden: int, dropout: float):
        super().__init__()
        self.alphabet = alphabet

        def initialise(layer: type, *sizes: int) -> layers.Layer:
            """Initialise weights from N(0, 0.05²), as Zhang et al. (2015) do for their small network; biases are 0."""
            return layer(*sizes, kernel_initializer=keras.initializers.RandomNormal(stddev=0.05))

        self.stack = Stack(
            *(initialise(layers.Conv1D, 256, 7), layers.ReLU(), layers.MaxPooling1D(3)),
            *(initialise(layers.Conv1D, 256, 7), layers.ReLU(), layers.MaxPooling1D(3)),
            *(initialise(layers.Conv1D, 256, 3), layers.ReLU()),
            *(initialise(layers.Conv1D, 256, 3), layers.ReLU()),
            *(initialise(layers.Conv1D, 256, 3), layers.ReLU()),
            *(initialise(layers.Conv1D, 256, 3), layers.ReLU(), layers.MaxPooling1D(3)),
            Flatten(),
            *(initialise(layers.Dense, hidden), layers.ReLU(), layers.Dropout(dropout)),
            *(initialise(layers.Dense, hidden), layers.ReLU(), layers.Dropout(dropout)),
            initialise(layers.Dense, classes),
        )

    def parts(self) -> dict[str, layers.Layer]:
        return {f"stack.{name}": layer for name, layer in self.stack.parts().items()}

    def embed(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(tf.cast(ids, tf.int32) - 1, self.alphabet)  # of -1, all zeros

    def from_embedding(self, embedded: tf.Tensor, ids: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        return self.stack(embedded, training=training)

    def call(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.from_embedding(self.embed(ids), training=training)


class BiLSTM(keras.Model):
    """The network of `bilstm`. Padding is skipped at any position; a document of padding only has one step."""

    def __init__(self, vocabulary: int, embedding: int, units: int, classes: int, dropout: float):
        super().__init__()
        self.embedding = _build_embedding(vocabulary, embedding)
        self.lstm = layers.Bidirectional(layers.LSTM(units))
        self.dropout = layers.Dropout(dropout)
        self.last = layers.Dense(classes)

    def parts(self) -> dict[str, layers.Layer]:
        return {name: getattr(self, name) for name in ("embedding", "lstm", "last")}

    def embed(self, ids: tf.Tensor) -> tf.Tensor:
        return self.embedding(ids)

    def from_embedding(self, embedded: tf.Tensor, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        # Move tokens to the front in their order: cuDNN needs that, and steps of padding in all rows are skipped.
        order = tf.argsort(tf.cast(ids == 0, tf.int32), axis=1, stable=True)
        lengths = tf.maximum(tf.reduce_sum(tf.cast(ids != 0, tf.int32), axis=1), 1)
        longest = tf.reduce_max(lengths)
        tokens = tf.gather(embedded, order[:, :longest], axis=1, batch_dims=1)
        states = self.lstm(tokens, mask=tf.sequence_mask(lengths, longest))
        return self.last(self.dropout(states, training=training))

    def call(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.from_embedding(self.embed(ids), ids, training=training)


class _WithoutPadding(keras.constraints.Constraint):
    """Sets row 0 of a table to zero."""

    def __call__(self, table):
        return keras.ops.concatenate([keras.ops.zeros_like(table[:1]), table[1:]])


def _build_embedding(vocabulary: int, width: int) -> layers.Embedding:
    """Build an embedding whose row 0, padding, is zero from the start and after every training step."""
    without_padding, uniform = _WithoutPadding(), keras.initializers.RandomUniform(-0.05, 0.05)
    return layers.Embedding(
        vocabulary,
        width,
        embeddings_initializer=lambda *shape, **kind: without_padding(uniform(*shape, **kind)),
        embeddings_constraint=without_padding,
    )


def mnist_cnn(classes: int = 2, channels: int = 1, side: int = 28) -> keras.Model:
    """Build torch_models.mnist_cnn in Keras, (n, channels, side, side) -> (n, classes) logits."""
    stack = Stack(
        *(layers.Conv2D(8, 5), layers.ReLU(), layers.MaxPooling2D(2)),
        *(layers.Conv2D(16, 5), layers.ReLU(), layers.MaxPooling2D(2)),
        *(Flatten(), layers.Dense(classes)),
        channels_first=True,
    )
    return _build_weights(stack, np.zeros((1, channels, side, side), np.float32))


def digits_cnn(classes: int = 2, channels: int = 1, side: int = 8) -> keras.Model:
    """Build torch_models.digits_cnn in Keras, (n, channels, side, side) -> (n, classes) logits."""
    stack = Stack(
        *(layers.Conv2D(16, 3, padding="same"), layers.ReLU()),
        *(layers.Conv2D(32, 3, padding="same"), layers.ReLU(), layers.MaxPooling2D(2)),
        *(Flatten(), layers.Dense(classes)),
        channels_first=True,
    )
    return _build_weights(stack, np.zeros((1, channels, side, side), np.float32))


def mlp(inputs: int = 30, hidden: tuple[int, ...] = (64, 32), classes: int = 2) -> keras.Model:
    """Build torch_models.mlp in Keras, (n, inputs) raw columns -> (n, classes) logits, or (n, 1) predictions."""
    inner = itertools.chain.from_iterable((layers.Dense(width), layers.ReLU()) for width in hidden)
    last = [layers.Dense(classes), *([Rescale(1)] if classes == 1 else [])]
    stack = Stack(Standardize(inputs), *inner, *last)
    return _build_weights(stack, np.zeros((1, inputs), np.float32))


def word_cnn(
    vocabulary: int = 5000,
    length: int = 400,
    embedding: int = 50,
    filters: int = 250,
    hidden: int = 250,
    classes: int = 2,
    dropout: float = 0.2,
) -> keras.Model:
    """Build torch_models.word_cnn in Keras, (n, length) ids -> (n, classes) logits."""
    module = WordCNN(vocabulary, embedding, filters, hidden, classes, dropout)
    return _build_weights(module, np.zeros((1, length), np.int32))


def char_cnn(
    alphabet: int = 69, length: int = 1014, classes: int = 4, hidden: int = 1024, dropout: float = 0.5
) -> keras.Model:
    """Build torch_models.char_cnn in Keras, (n, length) ids -> (n, classes) logits."""
    return _build_weights(CharCNN(alphabet, classes, hidden, dropout), np.zeros((1, length), np.int32))


def bilstm(
    vocabulary: int = 20001,
    length: int = 400,
    embedding: int = 300,
    units: int = 256,
    classes: int = 10,
    dropout: float = 0.5,
) -> keras.Model:
    """Build torch_models.bilstm in Keras, (n, length) ids -> (n, classes) logits."""
    module = BiLSTM(vocabulary, embedding, units, classes, dropout)
    return _build_weights(module, np.zeros((1, length), np.int32))


def _build_weights(module: keras.Model, example: np.ndarray) -> keras.Model:
    module(example)
    return module


@contextlib.contextmanager
def set_seed(seed: int, device: str = "cpu") -> Iterator[None]:
    """Initialise layers created inside the block from `seed` (by Python's `random`, whose state is restored)."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


def check_module(module: Any, source: str) -> keras.Model:
    """Return the module. Raises ShapelineError if a custom function returned something else, or no weights yet."""
    if not isinstance(module, keras.Model):
        raise ShapelineError(f"models: '{source}' returned {name_type(module)}; it must return a Keras model")
    if not module.built:
        raise ShapelineError(f"models: '{source}' returned a model without weights; call it once on an input")
    return module


def check_logits(logits: Any, rows: int, name: str, task: str = "classification") -> tf.Tensor:
    """Return the logits, or a regression's predictions as (rows, 1). Raises ShapelineError as `check_outputs` does."""
    check_outputs(logits, tuple(logits.shape) if tf.is_tensor(logits) else None, rows, name, task)
    return tf.reshape(logits, (rows, 1)) if task == "regression" else logits


def log_probs(module: keras.Model, inputs: Any, batch: int, name: str, task: str = "classification") -> np.ndarray:
    """Return log-probabilities of the module's logits in float64, (n, *input_shape) -> (n, classes), or predictions."""
    parts = []
    for logits, count, size in _iterate_outputs(module, np.asarray(inputs), batch):
        logits = tf.cast(check_logits(logits, size, name, task)[:count], tf.float64)
        parts.append(normalise(logits, task).numpy())
    return np.concatenate(parts)


def normalise(logits: tf.Tensor, task: str) -> tf.Tensor:
    """Return log-probabilities of logits (n, classes): log-softmax, or log-sigmoid per label; predictions as (n, 1)."""
    if task == "regression":
        return tf.reshape(logits, [-1, 1])
    return tf.math.log_sigmoid(logits) if task == "multilabel" else tf.nn.log_softmax(logits)


class LogProbabilities(keras.Model):
    """A network of probabilities as a network of logits: logarithms (one number gives two classes), or log-odds of
    several labels."""

    def __init__(self, network: keras.Model, task: str = "classification"):
        super().__init__()
        self.network, self.task, self.built = network, task, True

    def call(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        outputs = self.network(rows, training=training)
        if not tf.is_tensor(outputs) or outputs.shape.rank not in (1, 2):
            return outputs  # refused by `check_outputs`
        outputs = outputs[:, None] if outputs.shape.rank == 1 else outputs
        outputs = tf.clip_by_value(outputs, 0.0, 1.0)  # rounding may leave the range
        if self.task == "multilabel":
            return tf.math.log(outputs) - tf.math.log1p(-outputs)
        if outputs.shape[1] == 1:
            return tf.concat([tf.math.log1p(-outputs), tf.math.log(outputs)], axis=1)
        return tf.math.log(outputs)


class Arranged(keras.Model):
    """A network of rows (n, channels, height, width), which are permuted to its order of axes."""

    def __init__(self, network: keras.Model, order: str):
        super().__init__()
        self.network, self.order, self.built, self.__name__ = network, order, True, type(network).__name__

    def call(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        rows = tf.transpose(rows, [0, 2, 3, 1]) if self.order == "channels_last" else rows[:, 0]
        return self.network(rows, training=training)


# Cached, so that the trace and the calibration of a network serve its next explanation.
rearrange = functools.lru_cache(maxsize=1)(Arranged)
build_from_probabilities = functools.lru_cache(maxsize=1)(LogProbabilities)


def outputs(module: keras.Model, inputs: np.ndarray, batch: int = 256) -> np.ndarray | None:
    """Return a network's outputs on inputs (n, *input_shape) as (n, k) float64; None if they have another shape."""
    parts = list(_iterate_outputs(module, inputs, batch))
    if any(not tf.is_tensor(rows) or rows.shape.rank not in (1, 2) or len(rows) != size for rows, _, size in parts):
        return None
    return np.concatenate([rows.numpy()[:count].reshape(count, -1) for rows, count, _ in parts]).astype(np.float64)


# Names of graph nodes of the last operation of a network; operations that only move numbers are skipped.
OPERATIONS = {"Softmax": "softmax", "Sigmoid": "sigmoid"}
LINEAR = ("MatMul", "BatchMatMulV2", "Conv2D", "Conv3D", "Einsum")
MOVES = ("Identity", "Reshape", "Squeeze", "ExpandDims", "Transpose", "Cast", "StridedSlice")


def find_last_operation(module: keras.Model, inputs: np.ndarray) -> str:
    """Return the operation of a network's outputs: "softmax", "sigmoid", "linear", or "" for others."""
    dtype = np.int32 if np.issubdtype(inputs.dtype, np.integer) else np.float32
    size = 1 << (len(inputs) - 1).bit_length()
    node = _compile(module, (size, *inputs.shape[1:]), np.dtype(dtype)).get_concrete_function().outputs[0].op
    while node.type in MOVES:
        node = node.inputs[0].op
    types = [term.op.type for term in node.inputs] if node.type in ("AddV2", "BiasAdd") else [node.type]
    return OPERATIONS.get(node.type, "linear" if set(types) & set(LINEAR) else "")


def _iterate_outputs(module: keras.Model, inputs: np.ndarray, batch: int) -> Iterator[tuple[tf.Tensor, int, int]]:
    """Yield outputs of calls of one size, `batch` or a power of two, with the number of valid rows and the size."""
    # Tokens are int32 in the whole package.
    inputs = inputs.astype(np.int32 if np.issubdtype(inputs.dtype, np.integer) else np.float32, copy=False)
    size = min(batch, 1 << (len(inputs) - 1).bit_length())
    step = _compile(module, (size, *inputs.shape[1:]), inputs.dtype)
    for start in range(0, len(inputs), size):
        rows = inputs[start : start + size]
        filled = np.concatenate([rows, np.repeat(inputs[:1], size - len(rows), axis=0)])
        yield step(tf.constant(filled)), len(rows), size


def _compile(module: keras.Model, shape: tuple[int, ...], dtype: np.dtype) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the module in evaluation mode as a compiled function of one shape, cached while the module exists."""
    functions = PREPARED.setdefault(module, {}).setdefault("outputs", {})
    if (shape, dtype) not in functions:
        reference = weakref.ref(module)  # a strong reference would keep the module in memory

        @tf.function(input_signature=[tf.TensorSpec(shape, dtype)])
        def evaluate(rows):
            return reference()(rows, training=False)

        functions[shape, dtype] = evaluate
    return functions[shape, dtype]


def drop_if_changed(module: keras.Model, inputs: np.ndarray) -> None:
    """Drop what was traced of a module whose attributes or layers have changed since, by the outputs of a row."""
    traced = PREPARED.get(module, {}).get("outputs", {})
    if alike := [key for key in traced if key[0][1:] == inputs.shape[1:]]:
        shape, dtype = min(alike, key=lambda key: key[0][0])  # the fewest copies of the row
        rows = tf.constant(np.repeat(inputs[:1], shape[0], axis=0).astype(dtype))
        try:
            both = traced[shape, dtype](rows), module(rows, training=False)
        except Exception:  # noqa: BLE001 (of a row that the module refuses, which its evaluation reports)
            return
        before, now = (tf.nest.flatten(outputs)[0].numpy() for outputs in both)
        if before.shape != now.shape or not np.allclose(before, now, 1e-3, 1e-5, equal_nan=True):
            del PREPARED[module]


def state(module: keras.Model) -> dict[str, np.ndarray]:
    """Return copies of all weights by torch's names and layouts; those of a custom model are named by order."""
    if not hasattr(module, "parts"):
        return {f"{index}.{weight.name}": weight.numpy() for index, weight in enumerate(module.weights)}
    arrays = {}
    for name, (weight, axes) in _name_weights(module).items():
        arrays[name] = weight.numpy().transpose(axes)
        if ".bias_ih_" in name:
            arrays[name.replace("_ih_", "_hh_")] = np.zeros_like(arrays[name])
    return arrays


def set_state(module: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Set the weights that `state` returned, of this module or of its torch counterpart."""
    if not hasattr(module, "parts"):
        module.set_weights([arrays[name] for name in state(module)])
        return
    for name, (weight, axes) in _name_weights(module).items():
        array = np.asarray(arrays[name])
        if ".bias_ih_" in name:  # torch adds a second bias
            array = array + arrays[name.replace("_ih_", "_hh_")]
        weight.assign(array.transpose(np.argsort(axes)))


def _name_weights(module: keras.Model) -> dict[str, tuple[keras.Variable, tuple[int, ...]]]:
    """Return each weight by torch's name, with the permutation of its axes to torch's order."""
    weights = {}
    for path, layer in module.parts().items():
        for name, weight, axes in _list_layer_weights(layer):
            weights[f"{path}.{name}"] = weight, axes
    return weights


def _list_layer_weights(layer: layers.Layer) -> list[tuple[str, keras.Variable, tuple[int, ...]]]:
    if isinstance(layer, layers.Bidirectional):
        return [
            (name + end, weight, axes)
            for end, part in (("_l0", layer.forward_layer), ("_l0_reverse", layer.backward_layer))
            for name, weight, axes in (
                ("weight_ih", part.cell.kernel, (1, 0)),  # the gates have the same order in both
                ("weight_hh", part.cell.recurrent_kernel, (1, 0)),
                ("bias_ih", part.cell.bias, (0,)),
            )
        ]
    if isinstance(layer, layers.Embedding):
        return [("weight", layer.embeddings, (0, 1))]
    if isinstance(layer, Standardize):
        return [("mean", layer.mean, (0,)), ("std", layer.std, (0,))]
    if isinstance(layer, layers.Dense | layers.Conv1D | layers.Conv2D):
        rank = len(layer.kernel.shape)
        return [("weight", layer.kernel, (rank - 1, rank - 2, *range(rank - 2))), ("bias", layer.bias, (0,))]
    return []


def list_trained_layers(module: keras.Model) -> dict[str, list[str]]:
    """Return the layers with trainable weights, from the input on, and the names in `state` of all their arrays."""
    if hasattr(module, "parts"):
        weights = {name: (name.rpartition(".")[0], weight) for name, (weight, _) in _name_weights(module).items()}
    else:
        weights = {
            f"{index}.{weight.name}": (weight.path.rpartition("/")[0], weight)
            for index, weight in enumerate(module.weights)
        }
    layers: dict[str, list[str]] = {}
    for name, (layer, _) in weights.items():
        layers.setdefault(layer, []).append(name)
    return {layer: names for layer, names in layers.items() if any(weights[name][1].trainable for name in names)}


def n_parameters(module: keras.Model) -> int:
    """Return the number of trainable parameters."""
    return sum(int(np.prod(weight.shape)) for weight in module.trainable_weights)


def find_device(module: keras.Model) -> str:
    """Return the device of the first weight by torch's name: "cpu", "cuda:0"."""
    weights = module.weights
    device = tf.DeviceSpec.from_string(weights[0].value.device) if weights else None
    return f"cuda:{device.device_index}" if device and device.device_type == "GPU" else "cpu"


def move(module: keras.Model, device: str) -> None:
    """Raise ShapelineError unless the weights are on this device, because TensorFlow cannot move them."""
    current = find_device(module)
    if current.partition(":")[0] != device.partition(":")[0]:
        remedy = "no GPU is visible to TensorFlow" if current == "cpu" else "set CUDA_VISIBLE_DEVICES= to hide the GPU"
        raise ShapelineError(f"models: asked for device '{device}', but the model is on '{current}'; {remedy}")


EXPORT_PACKAGES = ("tf2onnx", "onnx", "onnxruntime")
EXPORT_FAILURES = (
    *(RuntimeError, TypeError, ValueError, AttributeError, AssertionError, LookupError, ImportError, OSError),
    tf.errors.OpError,
)


class Ready(keras.Model):
    """The user's model with two logits in place of one; stripped: its last activation; content: of its file."""

    def __init__(self, inner: keras.Model, stripped: str, content: bytes):
        super().__init__()
        self.inner, self.stripped, self.content = inner, stripped, content
        self.built = True

    def call(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        outputs = self.inner(rows, training=training)
        if self.stripped == "sigmoid":  # the logit of the second of two classes
            outputs = tf.concat([tf.zeros_like(outputs), outputs], axis=1)
        return outputs


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Ready:
    """Return the model in a .keras file's bytes for `known` input_shape and classes. Raises ShapelineError."""
    with tempfile.NamedTemporaryFile(suffix=".keras") as file:
        file.write(content)
        file.flush()
        try:
            inner = keras.saving.load_model(file.name, compile=False, safe_mode=True)
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise ShapelineError(
                f"models: {source} cannot be read as a Keras file in safe mode ({first_line(error)})"
                "; save it with model.save('name.keras'), or load custom layers in path/to/file.py:function"
            ) from error
    if len(inner.inputs) > 1 or isinstance(getattr(inner, "input", None), dict):
        named = " by name" * isinstance(inner.input, dict)
        raise ShapelineError(
            f"models: {source} takes {len(inner.inputs)} inputs{named}, and the dataset's rows are one; give a "
            "function that splits them and calls it, with framework: function"
        )
    is_named = isinstance(getattr(inner, "output", None), dict)
    if is_named or any(isinstance(each, tuple) for each in inner.output_shape):
        raise ShapelineError(
            f"models: {source} gives {len(inner.outputs)} outputs{' by name' * is_named}; save "
            "keras.Model(model.inputs, model.outputs[0]), of the output to explain"
        )
    order = find_order(source, tuple(known["input_shape"]), inner.input_shape[1:])
    outputs = inner.output_shape[-1] if len(inner.output_shape) > 1 else 1
    plain = task == "regression" or known.get("outputs") == "logits"
    stripped = "" if plain else _remove_last_activation(inner)
    if stripped == "sigmoid" and outputs != 1:
        raise ShapelineError(f"models: {source} ends in {outputs} sigmoids; give one for two classes, or a softmax")
    check_n_outputs(source, outputs, known, task)
    return Ready(inner if order == "channels_first" else Arranged(inner, order), stripped, content)


def _remove_last_activation(inner: keras.Model) -> str:
    """Remove the softmax or sigmoid of the last layer, so that outputs are exact logits; return its name, else ""."""
    last = inner.layers[-1]
    name = getattr(getattr(last, "activation", None), "__name__", "")
    # What stands behind the layer, such as 1 - p, is no layer itself.
    if name not in ("softmax", "sigmoid") or last.output is not inner.outputs[0]:
        return ""
    last.activation = keras.activations.linear
    return name


def export_graph(model: keras.Model, rows: np.ndarray) -> bytes:
    """Return the model as a graph of ONNX for rows like these in any batch. Raises Refused."""
    if missing := [name for name in EXPORT_PACKAGES if importlib.util.find_spec(name) is None]:
        raise Refused(f"{missing[0]} is not installed")
    check_size(sum(np.dtype(weight.dtype).itemsize * int(np.prod(weight.shape)) for weight in model.weights))
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    signature = [keras.InputSpec(shape=(None, *rows.shape[1:]), dtype=rows.dtype.name)]
    quiet = contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings()
    with tempfile.TemporaryDirectory() as folder, quiet[0], quiet[1]:
        warnings.simplefilter("ignore")
        file = Path(folder, FILE)
        try:
            model.export(file, format="onnx", verbose=False, input_signature=signature)
        except EXPORT_FAILURES as error:
            raise Refused(f"the export failed: {first_line(error)}") from error
        return file.read_bytes()
