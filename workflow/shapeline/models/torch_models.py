"""The torch architectures, their evaluation and their weights; keras_models has the Keras counterparts.

Every activation is a module called once, for hooks. Models of text take ids (n, length), 0 for padding; forward(ids) is
from_embedding(embed(ids), ids).
"""

import contextlib
import functools
import importlib.util
import io
import itertools
import math
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from shapeline.errors import ShapelineError, first_line, name_type
from shapeline.memory import is_out_of_memory
from shapeline.models.classifier import check_outputs
from shapeline.models.onnx_graph import Refused, check_size
from shapeline.models.torch_image_models import cifar_cnn, crosses_cnn, resnet18  # noqa: F401 (found here by name)
from shapeline.threads import LOCK

# Size of the inputs of one pass without gradients; activations take tens of times as much. On a CPU a small size halves
# the time of large images.
PASS_BYTES = {"cpu": 1 << 22, "cuda": 1 << 26}


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


class Rescale(Standardize):
    """Transform standardised targets back to the target's units by the mean and deviation of the training part."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows * self.std + self.mean


def mnist_cnn(classes: int = 2, channels: int = 1, side: int = 28) -> nn.Module:
    """Build the MNIST network of Chen et al. (2018, §5.2), unpadded: 28 -> 24 -> 12 -> 8 -> 4, 3,938 parameters."""
    last = ((side - 4) // 2 - 4) // 2
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
    """Build a small network for 8x8 digits: two padded 3x3 convolutions (16 and 32 filters), max-pool 2, dense."""
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
    """Build a dense network for raw columns (n, inputs), standardised as `fit` sets; one class is a regression."""
    widths = (inputs, *hidden)
    layers: list[nn.Module] = [Standardize(inputs)]
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    layers.append(nn.Linear(widths[-1], classes))
    return nn.Sequential(*layers, *([Rescale(1)] if classes == 1 else []))


class WordCNN(nn.Module):
    """The network of `word_cnn`; forward(ids): from_pooled of max_p windows(ids[:, p : p + window_size])."""

    window_size = 3

    def __init__(self, vocabulary: int, embedding: int, filters: int, hidden: int, classes: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.embedding_dropout = nn.Dropout(dropout)
        self.convolution = nn.Conv1d(embedding, filters, self.window_size)
        self.activation = nn.ReLU()
        self.hidden = nn.Linear(filters, hidden)
        self.hidden_dropout = nn.Dropout(dropout)
        self.hidden_activation = nn.ReLU()
        self.last = nn.Linear(hidden, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _initialise_embedding(self.embedding)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids)

    def from_embedding(self, embedded: torch.Tensor, ids: torch.Tensor | None = None) -> torch.Tensor:
        maps = self.convolution(self.embedding_dropout(embedded).transpose(1, 2))
        return self.from_pooled(self.activation(maps.amax(2)))  # ReLU is monotone, so the maximum may come first

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.from_embedding(self.embed(ids))

    def windows(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the activations of isolated windows, (P, window_size) ids -> (P, filters)."""
        embedded = self.embed(ids).flatten(1)
        kernel = self.convolution.weight.transpose(1, 2).flatten(1)
        return self.activation(nn.functional.linear(embedded, kernel, self.convolution.bias))

    def from_pooled(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return logits from the maximum of each filter, (n, filters) -> (n, classes)."""
        return self.last(self.hidden_activation(self.hidden_dropout(self.hidden(pooled))))


class CharCNN(nn.Module):
    """The network of `char_cnn`; its embedding is the one-hot code, and 0 for padding.

    forward(ids) skips the padding at the end: documents of AG News fill a quarter of 1,014 characters. A position after
    the last pool depends on `field` characters, shifted by `stride` per position; positions that depend only on padding
    are equal.
    """

    field, stride = 123, 27
    group = 16  # documents of similar length that are convolved together

    def __init__(self, alphabet: int, length: int, classes: int, hidden: int, dropout: float):
        super().__init__()
        code = torch.cat([torch.zeros(1, alphabet), torch.eye(alphabet)])
        self.register_buffer("code", code, persistent=False)
        self.positions = positions = (((length - 6) // 3 - 6) // 3 - 8) // 3
        self.stack = nn.Sequential(
            *(nn.Conv1d(alphabet, 256, 7), nn.ReLU(), nn.MaxPool1d(3)),
            *(nn.Conv1d(256, 256, 7), nn.ReLU(), nn.MaxPool1d(3)),
            *(nn.Conv1d(256, 256, 3), nn.ReLU()),
            *(nn.Conv1d(256, 256, 3), nn.ReLU()),
            *(nn.Conv1d(256, 256, 3), nn.ReLU()),
            *(nn.Conv1d(256, 256, 3), nn.ReLU(), nn.MaxPool1d(3)),
            nn.Flatten(),
            *(nn.Linear(256 * positions, hidden), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(hidden, classes),
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise weights from N(0, 0.05²), as Zhang et al. (2015) do for their small network; biases are 0."""
        for layer in self.stack:
            if isinstance(layer, nn.Conv1d | nn.Linear):
                nn.init.normal_(layer.weight, std=0.05)
                nn.init.zeros_(layer.bias)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(ids, self.code)

    def from_embedding(self, embedded: torch.Tensor, ids: torch.Tensor | None = None) -> torch.Tensor:
        return self.stack(embedded.transpose(1, 2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():  # a trace would fix the lengths of its documents
            return self.from_embedding(self.embed(ids))
        order = (ids != 0).sum(1).argsort()
        groups = order.split(max(self.group, len(ids) // 8))
        convolved = torch.cat([self._convolve(ids[rows]) for rows in groups])
        return self.stack[15:](convolved[order.argsort()])

    def _convolve(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the output of the last pool, (n, 256, positions); positions of padding repeat the first of them."""
        numbers = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        length = int((numbers * (ids != 0).any(0)).amax())
        computed = min(-(-length // self.stride) + 1, self.positions)
        embedded = self.embed(ids[:, : self.stride * (computed - 1) + self.field])
        maps = self.stack[:15](embedded.transpose(1, 2))
        return torch.cat([maps, maps[..., -1:].expand(-1, -1, self.positions - computed)], 2)


class BiLSTM(nn.Module):
    """The network of `bilstm`. Padding is skipped at any position; a document of padding only has one step."""

    def __init__(self, vocabulary: int, embedding: int, units: int, classes: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.lstm = nn.LSTM(embedding, units, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(2 * units, classes)
        for name, parameter in self.lstm.named_parameters():
            parameter.requires_grad_(not name.startswith("bias_hh"))  # a second bias; Keras and the paper have one
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _initialise_embedding(self.embedding)
        with torch.no_grad():
            self.lstm.bias_hh_l0.zero_()
            self.lstm.bias_hh_l0_reverse.zero_()

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids)

    def from_embedding(self, embedded: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        # Move tokens to the front in their order, so that padding is at the end, which is never computed.
        order = (ids == 0).to(torch.uint8).argsort(dim=1, stable=True)
        tokens = embedded.gather(1, order[..., None].expand_as(embedded))
        lengths = (ids != 0).sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(tokens, lengths, batch_first=True, enforce_sorted=False)
        _, (states, _) = self.lstm(packed)
        return self.last(self.dropout(torch.cat([states[0], states[1]], dim=1)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.from_embedding(self.embed(ids), ids)


def _initialise_embedding(layer: nn.Embedding) -> None:
    """Initialise uniformly in ±0.05 as Keras does (a word network learns less from N(0, 1)); padding stays 0."""
    nn.init.uniform_(layer.weight, -0.05, 0.05)
    with torch.no_grad():
        layer.weight[0] = 0


def word_cnn(
    vocabulary: int = 5000,
    length: int = 400,
    embedding: int = 50,
    filters: int = 250,
    hidden: int = 250,
    classes: int = 2,
    dropout: float = 0.2,
) -> nn.Module:
    """Build Chen et al.'s (2018, §5.1) WordCNN, (n, length) ids -> (n, classes) logits; 351,002 parameters."""
    return WordCNN(vocabulary, embedding, filters, hidden, classes, dropout)


def char_cnn(
    alphabet: int = 69, length: int = 1014, classes: int = 4, hidden: int = 1024, dropout: float = 0.5
) -> nn.Module:
    """Build the small character network of Zhang et al. (2015, table 1) for ids 1 to alphabet."""
    return CharCNN(alphabet, length, classes, hidden, dropout)


def bilstm(
    vocabulary: int = 20001,
    length: int = 400,
    embedding: int = 300,
    units: int = 256,
    classes: int = 10,
    dropout: float = 0.5,
) -> nn.Module:
    """Build the bidirectional LSTM of Chen et al. (2018, §5.1): the last states of both directions, dropout, dense."""
    return BiLSTM(vocabulary, embedding, units, classes, dropout)


@contextlib.contextmanager
def set_seed(seed: int, device: str = "cpu") -> Iterator[None]:
    """Seed torch's random numbers inside the block and restore the global state after it."""
    with torch.random.fork_rng(devices=[] if device == "cpu" else [device]):
        torch.manual_seed(seed)
        yield


ATTENTION = threading.RLock()  # one thread at a time evaluates models of transformers, whose attention methods switch


@contextlib.contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Use evaluation and inference mode inside the block, and restore each submodule's training flag.

    Convolutions keep full float32 on a GPU: with TF32 the outputs would change by 1e-3 with the batch size.
    """
    parts = list(module.modules())
    switches = any(hasattr(part, "set_attn_implementation") for part in parts)
    with (
        ATTENTION if switches else contextlib.nullcontext(),
        set_inside([(part, "training", False) for part in parts if hasattr(part, "training")]),
    ):
        with contextlib.suppress(NotImplementedError):  # an exported program has one mode
            module.eval()
        with torch.inference_mode(), set_inside(_float32_convolutions()), set_inside(_DETERMINISTIC_CUDNN):
            yield


Attributes = Sequence[tuple[Any, str, Any]]  # owner, name and value


def _float32_convolutions() -> Attributes:
    """Return the attribute that disables TF32. From torch 2.9 on, if a precision was set by operation, return those of
    the operations, because torch then refuses to read the general attribute."""
    cudnn = torch.backends.cudnn
    try:
        readable = cudnn.allow_tf32 is not None
    except RuntimeError:
        readable = False
    general = {getattr(owner, "fp32_precision", "none") for owner in (torch.backends, cudnn)}
    if readable and general == {"none"}:
        return [(cudnn, "allow_tf32", False)]
    return [(operation, "fp32_precision", "ieee") for operation in (cudnn.conv, cudnn.rnn)]


_DETERMINISTIC_CUDNN: Attributes = [
    (torch.backends.cudnn, "deterministic", True),
    (torch.backends.cudnn, "benchmark", False),
]


# By owner and name of an attribute: the blocks that set it, in all threads, and its value outside them.
_CHANGED: dict[tuple[int, str], tuple[int, Any]] = {}


@contextlib.contextmanager
def set_inside(attributes: Attributes) -> Iterator[None]:
    """Set attributes inside the block. Of simultaneous blocks of threads, the last restores what the first found."""
    with LOCK:
        for owner, name, value in attributes:
            count, before = _CHANGED.get((id(owner), name)) or (0, getattr(owner, name))
            _CHANGED[id(owner), name] = count + 1, before
            setattr(owner, name, value)
    try:
        yield
    finally:
        with LOCK:
            for owner, name, _ in attributes:
                count, before = _CHANGED.pop((id(owner), name))
                if count > 1:
                    _CHANGED[id(owner), name] = count - 1, before
                else:
                    setattr(owner, name, before)


@contextlib.contextmanager
def use_deterministic_algorithms(device: str) -> Iterator[None]:
    """Use torch's deterministic algorithms on a GPU inside the block, where it has them."""
    if device == "cpu":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the GPU is first used
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with set_inside(_DETERMINISTIC_CUDNN):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def find_device(module: nn.Module) -> torch.device:
    """Return the device of the first parameter or buffer; a module with neither runs on the CPU."""
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")


def check_module(module: Any, source: str) -> nn.Module:
    """Return the module. Raises ShapelineError if a custom function returned something else."""
    if not isinstance(module, nn.Module):
        raise ShapelineError(
            f"models: '{source}' returned {name_type(module)}; return a torch module, or set framework: tensorflow"
        )
    check_lazy(module)
    return module


def check_lazy(module: nn.Module) -> None:
    """Raise ShapelineError for a network with a Lazy layer, whose weights its first inputs would create."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
            raise ShapelineError(
                f"models: {name_type(module)} has a Lazy layer without weights ('{name}'); call it once on a batch "
                "of inputs where it is made, and train it or load its weights"
            )


def check_logits(logits: Any, rows: int, name: str, task: str = "classification") -> torch.Tensor:
    """Return the logits, or a regression's predictions as (rows, 1). Raises ShapelineError as `check_outputs` does."""
    shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else None
    check_outputs(logits, shape, rows, name, task)
    return logits.reshape(rows, 1) if task == "regression" else logits


def log_probs(module: nn.Module, inputs: Any, batch: int, name: str, task: str = "classification") -> np.ndarray:
    """Return log-probabilities of the module's logits in float64, (n, *input_shape) -> (n, classes), or predictions."""
    inputs, device = _convert_rows(inputs), find_device(module)
    batch = choose_batch_size(inputs, device, batch)
    parts = []
    with evaluation_mode(module), explain_dtype_errors(module):
        for start in range(0, len(inputs), batch):
            original = inputs[start : start + batch].to(device)
            rows = original.clone()  # never the caller's own memory
            logits = check_logits(module(rows), len(rows), name, task)
            parts.append(logits.to("cpu", torch.float64, copy=True))  # the next call may write to them
            if start == 0:
                _check_unchanged(module, original, rows, name)
    return normalise(torch.cat(parts), task).numpy()


class Wrapper(nn.Module):
    """A network around another one; setting: what the wrapper does."""

    def __init__(self, network: nn.Module, setting: Any = None):
        super().__init__()
        self.network, self.setting, self.training = network, setting, getattr(network, "training", False)
        self.__name__ = type(network).__name__


class LogProbabilities(Wrapper):
    """A network of probabilities as a network of logits: logarithms, or log-odds if the setting is "multilabel"."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        outputs = self.network(rows)
        if not isinstance(outputs, torch.Tensor) or outputs.ndim not in (1, 2):
            return outputs  # refused by `check_outputs`
        outputs = (outputs[:, None] if outputs.ndim == 1 else outputs).clamp(0, 1)  # rounding may leave the range
        if self.setting == "multilabel":
            return torch.log(outputs) - torch.log1p(-outputs)
        if outputs.shape[1] == 1:
            return torch.cat([torch.log1p(-outputs), torch.log(outputs)], dim=1)
        return torch.log(outputs)


class Arranged(Wrapper):
    """A network of rows (n, channels, height, width), which are permuted to its order of axes, the setting."""

    @property
    def order(self) -> str:
        """The order of axes, which a file of weights stores."""
        return self.setting

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.network(rows.movedim(1, -1) if self.setting == "channels_last" else rows[:, 0])


class Cast(Wrapper):
    """A network whose weights have another type than float32, the setting, which rows are cast to."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.network(rows.to(self.setting))


class Logits(Wrapper):
    """The logits of a model of transformers, which returns them among other outputs; `classes_`: its labels."""

    names_ids = True  # classes_ are the names of the numbers 0, 1, ..., by which transformers tells classes apart
    classes_ = property(lambda self: list_labels(self.network))

    def forward(self, rows: torch.Tensor) -> Any:
        outputs = self.network(rows)
        return getattr(outputs, "logits", outputs)


def list_labels(model: Any) -> list[str]:
    """Return the labels of a model of transformers in the order of its logits; none of a regression."""
    labels = getattr(getattr(model, "config", None), "id2label", None) or {}
    return [str(labels[number]) for number in sorted(labels)] if len(labels) > 1 else []


def is_of_transformers(model: Any) -> bool:
    """Return whether this is a model of transformers."""
    return isinstance(model, nn.Module) and hasattr(model, "get_input_embeddings") and hasattr(model, "config")


# Cached, so that the calibration of a network serves its next explanation.
_logits = functools.lru_cache(maxsize=1)(Logits)
_cast = functools.lru_cache(maxsize=1)(Cast)
rearrange = functools.lru_cache(maxsize=1)(Arranged)
build_from_probabilities = functools.lru_cache(maxsize=1)(LogProbabilities)


def unwrap(module: nn.Module) -> nn.Module:
    """Return the network that one of this module's wrappers holds, or the module itself."""
    while isinstance(module, Wrapper):
        module = module.network
    return module


def unwrap_parallel(model: Any) -> Any:
    """Return the network that is run on several devices, and any other model unchanged."""
    return model.module if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel) else model


def select_logits(module: nn.Module) -> nn.Module:
    """Return a network of logits for a model of transformers, and any other unchanged."""
    module = unwrap_parallel(module)
    return _logits(module) if is_of_transformers(module) else module


def cast_inputs(module: nn.Module) -> nn.Module:
    """Return a network that takes rows in float32, whatever the only type of its weights is."""
    kinds = {weight.dtype for weight in module.parameters() if weight.is_floating_point()}
    return module if len(kinds) != 1 or torch.float32 in kinds else _cast(module, *kinds)


def outputs(module: nn.Module, inputs: np.ndarray, batch: int = 256) -> np.ndarray | None:
    """Return a network's outputs on inputs (n, *input_shape) as (n, k) float64; None if they have another shape."""
    parts = []
    with evaluation_mode(module), explain_dtype_errors(module):
        for rows in _convert_rows(inputs).split(batch):
            output = module(rows.to(find_device(module), copy=True))
            if not isinstance(output, torch.Tensor) or output.ndim not in (1, 2) or len(output) != len(rows):
                return None
            parts.append(output.reshape(len(output), -1).to("cpu", torch.float64, copy=True))
    return torch.cat(parts).numpy()


# Autograd's names of the last operation of a network; operations that only move numbers are skipped.
OPERATIONS = {"Softmax": "softmax", "Sigmoid": "sigmoid", "Hardsigmoid": "sigmoid"}
OPERATIONS |= dict.fromkeys(("Addmm", "Mm", "Bmm", "Baddbmm", "Convolution"), "linear")
MOVES = "View UnsafeView Squeeze Unsqueeze Transpose T Permute Slice Select ToCopy Clone".split()


def find_last_operation(module: nn.Module, inputs: np.ndarray) -> str:
    """Return the operation of a network's outputs: "softmax", "sigmoid", "linear", or "" for others."""
    leaves = {
        name: weight.detach().requires_grad_(weight.is_floating_point()) for name, weight in module.named_parameters()
    }
    rows = _convert_rows(inputs).to(find_device(module))
    try:
        with evaluation_mode(module), torch.inference_mode(False), torch.enable_grad():
            rows = rows.clone().requires_grad_(rows.is_floating_point()).clone()
            node = torch.func.functional_call(module, leaves, (rows,)).grad_fn
    except Exception:  # noqa: BLE001 (a compiled module, for example; other evidence then decides)
        return ""
    while node is not None:
        operation = re.sub(r"Backward\d*$", "", node.name())
        if operation not in MOVES:
            return OPERATIONS.get(operation, "")
        node = node.next_functions[0][0]
    return ""


def _convert_rows(inputs: Any) -> torch.Tensor:
    """Convert rows to inputs of a network: float32, or int32 for tokens."""
    inputs = torch.as_tensor(inputs if torch.is_tensor(inputs) else np.asarray(inputs))
    return inputs.float() if inputs.is_floating_point() else inputs.int()


@contextlib.contextmanager
def explain_dtype_errors(module: nn.Module) -> Iterator[None]:
    """Raise ShapelineError if a network fails because its weights are not float32, as rows are."""
    try:
        yield
    except RuntimeError as error:
        kinds = {weight.dtype for weight in module.parameters() if weight.is_floating_point()} - {torch.float32}
        if not kinds or is_out_of_memory(error):
            raise
        kind = str(next(iter(kinds))).removeprefix("torch.")
        raise ShapelineError(
            f"model '{type(module).__name__}': its weights are {kind} and rows are float32; give net.float(), or "
            "copy.deepcopy(net).float() where you need net as it is"
        ) from error


def check_rows(module: nn.Module, rows: np.ndarray, name: str) -> None:
    """Raise ShapelineError if the module changes its input rows in place; checked once per module."""
    if module not in _PURE_MODULES:
        original = torch.from_numpy(rows).to(find_device(module))
        try:
            with evaluation_mode(module):
                module(copied := original.clone())
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):  # the later passes report that memory ran out
                raise
        else:
            _check_unchanged(module, original, copied, name)


_PURE_MODULES: weakref.WeakSet = weakref.WeakSet()  # that leave their input rows unchanged


def _check_unchanged(module: nn.Module, original: torch.Tensor, rows: torch.Tensor, name: str) -> None:
    """Raise ShapelineError if the rows differ from the original: other calls share the memory of their rows."""
    if not torch.equal(torch.nan_to_num(original), torch.nan_to_num(rows)):
        raise ShapelineError(
            f"model '{name}': it changes the rows that it is given in place (such as x -= 0.5), which would change "
            "other rows' values too; write x = x - 0.5, or begin its forward with x = x.clone()"
        )
    _PURE_MODULES.add(module)


def normalise(logits: torch.Tensor, task: str) -> torch.Tensor:
    """Return log-probabilities of logits (n, classes): log-softmax, or log-sigmoid per label; predictions unchanged."""
    if task == "regression":
        return logits
    return nn.functional.logsigmoid(logits) if task == "multilabel" else torch.log_softmax(logits, dim=1)


def choose_batch_size(inputs: torch.Tensor, device: torch.device, batch: int = 256) -> int:
    """Return how many inputs (n, *input_shape) one pass evaluates: `batch`, or fewer if PASS_BYTES limits it."""
    return max(1, min(batch, PASS_BYTES[device.type] // (4 * math.prod(inputs.shape[1:]))))


def state(module: nn.Module) -> dict[str, np.ndarray]:
    """Return copies of all weights by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def set_state(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Set the weights that `state` returned, of this module or of its Keras counterpart."""
    module.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()})


def list_trained_layers(module: nn.Module) -> dict[str, list[str]]:
    """Return the layers with trainable weights, from the input on, and the names in `state` of all their arrays."""
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    layers: dict[str, list[str]] = {}
    for name in module.state_dict():
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return {layer: names for layer, names in layers.items() if trained & set(names)}


def n_parameters(module: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def move(module: nn.Module, device: str) -> None:
    """Move the weights to a device, in place."""
    module.to(device)


EXPORT_PACKAGES = ("onnx", "onnxruntime")
TRACE_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError, AssertionError, LookupError)


def export_graph(module: torch.nn.Module, rows: np.ndarray, free: tuple[int, ...] = (0,)) -> bytes:
    """Return the module as a graph of ONNX, traced on rows, for any batch; free: axes of other sizes.

    Equal modules have equal bytes. The tracing exporter is a hundred times as fast as torch.export. Raises Refused.
    """
    if missing := [name for name in EXPORT_PACKAGES if importlib.util.find_spec(name) is None]:
        raise Refused(f"{missing[0]} is not installed")
    check_size(sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers())))
    content, named = io.BytesIO(), {"rows": {axis: f"n{axis}" for axis in free}}
    with evaluation_mode(module), tracing(), _discard_output():
        torch.onnx.export(
            module, (torch.tensor(rows),), content, dynamo=False, input_names=["rows"], dynamic_axes=named
        )
    return content.getvalue()


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Raise Refused if tracing a module inside the block fails, or warns of a branch that depends on data."""
    with warnings.catch_warnings(record=True) as caught, torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("always")  # recording silences deprecations of torch's tracing
        try:
            yield
        except TRACE_ERRORS as error:
            raise Refused(f"the export failed: {first_line(error)}") from error
    for warning in caught:
        if issubclass(warning.category, torch.jit.TracerWarning):
            raise Refused(f"the trace warns: {first_line(warning.message)}")


@contextlib.contextmanager
def _discard_output():
    """Discard the standard output: torch 2.13 writes the whole graph there, from C++, where an export fails."""
    sys.stdout.flush()
    output = os.dup(1)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 1)
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)
