"""The architectures in Keras on TensorFlow, twins of torch_models, and what it takes to run them.

Inputs and weights have torch's layouts and names, so that files load in both; inside, channels are last.
"""

import contextlib
import functools
import itertools
import random
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from shapeline.models.tensorflow_setup import keras, tf  # isort: skip
from keras import layers

from shapeline.errors import ShapelineError
from shapeline.models.classifier import check_outputs


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
    """The way back: standardised targets to the target's own units, by the mean and deviation of the training part."""

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        return rows * self.std + self.mean


class Stack(keras.Model):
    """Layers one after the other, as torch's Sequential; `channels_first` of its inputs, channels last inside."""

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
    """The network of `word_cnn`; besides, it tells what it makes of a few neighbouring words (see torch_models)."""

    window_size = 3

    def __init__(self, vocabulary: int, embedding: int, filters: int, hidden: int, classes: int, dropout: float):
        super().__init__()
        self.embedding = _embedding(vocabulary, embedding)
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
        # The largest first: ReLU keeps the order.
        return self.from_pooled(self.activation(tf.reduce_max(maps, axis=1)), training=training)

    def call(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.from_embedding(self.embed(ids), training=training)

    def windows(self, ids: tf.Tensor) -> tf.Tensor:
        """What the convolution makes of isolated windows, (P, window_size) ids -> (P, filters)."""
        kernel = tf.convert_to_tensor(self.convolution.kernel)
        embedded = tf.reshape(self.embed(ids), [-1, kernel.shape[0] * kernel.shape[1]])
        kernel = tf.reshape(kernel, [-1, kernel.shape[2]])
        return self.activation(tf.matmul(embedded, kernel) + self.convolution.bias)

    def from_pooled(self, pooled: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Logits from the largest output of each filter, (n, filters) -> (n, classes)."""
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
    """The network of `bilstm`. Padding is skipped wherever it stands; of padding alone, one step is read."""

    def __init__(self, vocabulary: int, embedding: int, units: int, classes: int, dropout: float):
        super().__init__()
        self.embedding = _embedding(vocabulary, embedding)
        self.lstm = layers.Bidirectional(layers.LSTM(units))
        self.dropout = layers.Dropout(dropout)
        self.last = layers.Dense(classes)

    def parts(self) -> dict[str, layers.Layer]:
        return {name: getattr(self, name) for name in ("embedding", "lstm", "last")}

    def embed(self, ids: tf.Tensor) -> tf.Tensor:
        return self.embedding(ids)

    def from_embedding(self, embedded: tf.Tensor, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        # Tokens to the front, in their order: cuDNN needs that, and steps that are padding in all rows are not run.
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


def _embedding(vocabulary: int, width: int) -> layers.Embedding:
    """An embedding whose row 0, padding, is zero from the start and after every training step."""
    without_padding, uniform = _WithoutPadding(), keras.initializers.RandomUniform(-0.05, 0.05)
    return layers.Embedding(
        vocabulary,
        width,
        embeddings_initializer=lambda *shape, **kind: without_padding(uniform(*shape, **kind)),
        embeddings_constraint=without_padding,
    )


def mnist_cnn(classes: int = 2, channels: int = 1, side: int = 28) -> keras.Model:
    """The twin of torch_models.mnist_cnn, (n, channels, side, side) -> (n, classes) logits."""
    stack = Stack(
        *(layers.Conv2D(8, 5), layers.ReLU(), layers.MaxPooling2D(2)),
        *(layers.Conv2D(16, 5), layers.ReLU(), layers.MaxPooling2D(2)),
        *(Flatten(), layers.Dense(classes)),
        channels_first=True,
    )
    return _build_weights(stack, np.zeros((1, channels, side, side), np.float32))


def digits_cnn(classes: int = 2, channels: int = 1, side: int = 8) -> keras.Model:
    """The twin of torch_models.digits_cnn, (n, channels, side, side) -> (n, classes) logits."""
    stack = Stack(
        *(layers.Conv2D(16, 3, padding="same"), layers.ReLU()),
        *(layers.Conv2D(32, 3, padding="same"), layers.ReLU(), layers.MaxPooling2D(2)),
        *(Flatten(), layers.Dense(classes)),
        channels_first=True,
    )
    return _build_weights(stack, np.zeros((1, channels, side, side), np.float32))


def mlp(inputs: int = 30, hidden: tuple[int, ...] = (64, 32), classes: int = 2) -> keras.Model:
    """The twin of torch_models.mlp, (n, inputs) raw columns -> (n, classes) logits, or (n, 1) predictions."""
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
    """Build the twin of torch_models.word_cnn, (n, length) ids -> (n, classes) logits."""
    module = WordCNN(vocabulary, embedding, filters, hidden, classes, dropout)
    return _build_weights(module, np.zeros((1, length), np.int32))


def char_cnn(
    alphabet: int = 69, length: int = 1014, classes: int = 4, hidden: int = 1024, dropout: float = 0.5
) -> keras.Model:
    """The twin of torch_models.char_cnn, (n, length) ids -> (n, classes) logits."""
    return _build_weights(CharCNN(alphabet, classes, hidden, dropout), np.zeros((1, length), np.int32))


def bilstm(
    vocabulary: int = 20001,
    length: int = 400,
    embedding: int = 300,
    units: int = 256,
    classes: int = 10,
    dropout: float = 0.5,
) -> keras.Model:
    """The twin of torch_models.bilstm, (n, length) ids -> (n, classes) logits."""
    module = BiLSTM(vocabulary, embedding, units, classes, dropout)
    return _build_weights(module, np.zeros((1, length), np.int32))


def _build_weights(module: keras.Model, example: np.ndarray) -> keras.Model:
    """The module after one input, which creates its weights."""
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


def checked_module(module: Any, source: str) -> keras.Model:
    """The module itself; ShapelineError when a custom function returned something else, or no weights yet."""
    if not isinstance(module, keras.Model):
        raise ShapelineError(f"models: '{source}' returned a {type(module).__name__}; it must return a Keras model")
    if not module.built:
        raise ShapelineError(f"models: '{source}' returned a model without weights; call it once on an input")
    return module


def checked_logits(logits: Any, rows: int, name: str, task: str = "classification") -> tf.Tensor:
    """The logits themselves, of a regression the predictions as (rows, 1); ShapelineError as of `check_outputs`."""
    check_outputs(logits, tuple(logits.shape) if tf.is_tensor(logits) else None, rows, name, task)
    return tf.reshape(logits, (rows, 1)) if task == "regression" else logits


def log_probs(module: keras.Model, inputs: Any, batch: int, name: str, task: str = "classification") -> np.ndarray:
    """Log-softmax of the module's logits in float64, (n, *input_shape) -> (n, classes); predictions of a regression."""
    parts = []
    for logits, kept, size in _outputs(module, np.asarray(inputs), batch):
        logits = tf.cast(checked_logits(logits, size, name, task)[:kept], tf.float64)
        parts.append(normalise(logits, task).numpy())
    return np.concatenate(parts)


def normalise(logits: tf.Tensor, task: str) -> tf.Tensor:
    """Logits (n, classes) as log-probabilities: log-softmax, or each label's log-sigmoid; predictions as (n, 1)."""
    if task == "regression":
        return tf.reshape(logits, [-1, 1])
    return tf.math.log_sigmoid(logits) if task == "multilabel" else tf.nn.log_softmax(logits)


class LogProbabilities(keras.Model):
    """A network of probabilities as one of logits: their logarithms, and of one number those of two classes; of several
    labels their log-odds."""

    def __init__(self, network: keras.Model, task: str = "classification"):
        super().__init__()
        self.network, self.task, self.built = network, task, True

    def call(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        given = self.network(rows, training=training)
        if not tf.is_tensor(given) or given.shape.rank not in (1, 2):
            return given  # which is refused
        given = given[:, None] if given.shape.rank == 1 else given
        if self.task == "multilabel":
            return tf.math.log(given) - tf.math.log1p(-given)
        if given.shape[1] == 1:
            return tf.concat([tf.math.log1p(-given), tf.math.log(given)], axis=1)
        return tf.math.log(given)


class Arranged(keras.Model):
    """A network that takes rows (n, channels, height, width), given them in its order."""

    def __init__(self, network: keras.Model, order: str):
        super().__init__()
        self.network, self.order, self.built, self.__name__ = network, order, True, type(network).__name__

    def call(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        rows = tf.transpose(rows, [0, 2, 3, 1]) if self.order == "channels_last" else rows[:, 0]
        return self.network(rows, training=training)


@functools.lru_cache(maxsize=1)  # what is traced and calibrated for a network serves its next explanation
def rearrange(module: keras.Model, order: str) -> Arranged:
    return Arranged(module, order)


@functools.lru_cache(maxsize=1)
def build_from_probabilities(module: keras.Model, task: str, name: str) -> LogProbabilities:
    return LogProbabilities(module, task)


def outputs(module: keras.Model, inputs: np.ndarray, batch: int = 256) -> np.ndarray | None:
    """What a network gives of inputs (n, *input_shape), (n, k) float64; None where that is of another shape."""
    parts = list(_outputs(module, inputs, batch))
    if any(not tf.is_tensor(rows) or rows.shape.rank not in (1, 2) or len(rows) != size for rows, _, size in parts):
        return None
    return np.concatenate([rows.numpy()[:kept].reshape(kept, -1) for rows, kept, _ in parts]).astype(np.float64)


# The last operation of a network by the name of its node in a graph; those that only move numbers are looked through.
OPERATIONS = {"Softmax": "softmax", "Sigmoid": "sigmoid"}
LINEAR = ("MatMul", "BatchMatMulV2", "Conv2D", "Conv3D", "Einsum")
MOVES = ("Identity", "Reshape", "Squeeze", "ExpandDims", "Transpose", "Cast", "StridedSlice")


def last_operation(module: keras.Model, inputs: np.ndarray) -> str:
    """ "softmax", "sigmoid" or "linear", by which the outputs of a network are made; "" where it is another."""
    dtype = np.int32 if np.issubdtype(inputs.dtype, np.integer) else np.float32
    size = 1 << (len(inputs) - 1).bit_length()
    given = _step(module, (size, *inputs.shape[1:]), np.dtype(dtype)).get_concrete_function().outputs[0].op
    while given.type in MOVES:
        given = given.inputs[0].op
    added = [each.op.type for each in given.inputs] if given.type in ("AddV2", "BiasAdd") else [given.type]
    return OPERATIONS.get(given.type, "linear" if set(added) & set(LINEAR) else "")


def _outputs(module: keras.Model, inputs: np.ndarray, batch: int) -> Iterator[tuple[tf.Tensor, int, int]]:
    """Return outputs in calls of one size, `batch` or a power of two, how many count of each, and the size."""
    # Integers are tokens and stay so; int32 is what every part of the project gives them as.
    inputs = inputs.astype(np.int32 if np.issubdtype(inputs.dtype, np.integer) else np.float32, copy=False)
    size = min(batch, 1 << (len(inputs) - 1).bit_length())
    step = _step(module, (size, *inputs.shape[1:]), inputs.dtype)
    for start in range(0, len(inputs), size):
        rows = inputs[start : start + size]
        filled = np.concatenate([rows, np.repeat(inputs[:1], size - len(rows), axis=0)])
        yield step(tf.constant(filled)), len(rows), size


def _step(module: keras.Model, shape: tuple[int, ...], dtype: np.dtype) -> Callable[[tf.Tensor], tf.Tensor]:
    """The module in evaluation mode as a compiled function of one shape, kept while the module lives."""
    kept = _STEPS.setdefault(module, {})
    if (shape, dtype) not in kept:
        alive = weakref.ref(module)  # the module itself would never be freed

        @tf.function(input_signature=[tf.TensorSpec(shape, dtype)])
        def step(rows):
            return alive()(rows, training=False)

        kept[shape, dtype] = step
    return kept[shape, dtype]


_STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def state(module: keras.Model) -> dict[str, np.ndarray]:
    """Return copies of all weights by torch's names and layouts; those of a custom model are named by order."""
    if not hasattr(module, "parts"):
        return {f"{index}.{weight.name}": weight.numpy() for index, weight in enumerate(module.weights)}
    arrays = {}
    for name, (weight, axes) in _weights(module).items():
        arrays[name] = weight.numpy().transpose(axes)
        if ".bias_ih_" in name:
            arrays[name.replace("_ih_", "_hh_")] = np.zeros_like(arrays[name])
    return arrays


def set_state(module: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Put in the weights that `state` gave, of this module or of its twin."""
    if not hasattr(module, "parts"):
        module.set_weights([arrays[name] for name in state(module)])
        return
    for name, (weight, axes) in _weights(module).items():
        array = np.asarray(arrays[name])
        if ".bias_ih_" in name:  # torch adds a second one
            array = array + arrays[name.replace("_ih_", "_hh_")]
        weight.assign(array.transpose(np.argsort(axes)))


def _weights(module: keras.Model) -> dict[str, tuple[keras.Variable, tuple[int, ...]]]:
    """Torch's name -> the weight, and the order in which its axes are torch's."""
    named = {}
    for path, layer in module.parts().items():
        for name, weight, axes in _weights_of(layer):
            named[f"{path}.{name}"] = weight, axes
    return named


def _weights_of(layer: layers.Layer) -> list[tuple[str, keras.Variable, tuple[int, ...]]]:
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


def trained_layers(module: keras.Model) -> dict[str, list[str]]:
    """The layers with something to train, from the input on, and the names in `state` of all that they hold."""
    if hasattr(module, "parts"):
        weights = {name: (name.rpartition(".")[0], weight) for name, (weight, _) in _weights(module).items()}
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
    """Number of trainable parameters."""
    return sum(int(np.prod(weight.shape)) for weight in module.trainable_weights)


def device_of(module: keras.Model) -> str:
    """Where the first weight is, in torch's words: "cpu", "cuda:0"."""
    weights = module.weights
    device = tf.DeviceSpec.from_string(weights[0].value.device) if weights else None
    return f"cuda:{device.device_index}" if device and device.device_type == "GPU" else "cpu"


def move(module: keras.Model, device: str) -> None:
    """Raise ShapelineError unless TensorFlow made the weights on this device."""
    current = device_of(module)
    if current.partition(":")[0] != device.partition(":")[0]:
        remedy = "no GPU is visible to TensorFlow" if current == "cpu" else "set CUDA_VISIBLE_DEVICES= to hide the GPU"
        raise ShapelineError(f"models: asked for device '{device}', but the model is on '{current}'; {remedy}")
