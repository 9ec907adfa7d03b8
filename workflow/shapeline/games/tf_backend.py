"""The backend for TensorFlow models.

One compiled function per model, backend and batch size composes and evaluates a batch from the indices of each row's
instance, mask and reference row, so that another d, n or K needs no new trace.
"""

import functools
import math
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import log_expit, log_softmax

from shapeline.errors import MethodFailure
from shapeline.games import calibration, windows
from shapeline.games.execution import CALIBRATION_SECONDS, ExecutionBackend, limit_trial_rows, mask_rows
from shapeline.games.features import Features
from shapeline.games.game import (
    Game,
    Progress,
    as_array,
    check_finite,
    map_targets,
    score,
    select_label,
    select_rows,
    share_reference,
)
from shapeline.games.references import Reference
from shapeline.memory import halve
from shapeline.models.classifier import PREPARED, Classifier, ModelFailure, call
from shapeline.models.keras_models import check_logits, tf, threads

BACKENDS = ("plain", "compiled")  # in the order of their trials; compiled: by XLA
# Bytes of a batch of composed rows, and of a block's masks or instances.
BUFFER_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}
BLOCK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
LARGEST_BATCH = {"cpu": 1 << 14, "cuda": 1 << 16}
MAX_BUFFERED_OUTPUTS = 1 << 21  # model outputs buffered until they are scored together
MAX_HALVINGS = 4  # of a batch for the last rows of a block; each size needs another trace per model
STEP = 4  # ratio of successive candidate batches; each needs a trace, and rates change little between them
SEARCH_SECONDS = 0.6 * CALIBRATION_SECONDS  # of the first round; the rest compares the fastest candidates in turns
TIMING_SECONDS = 0.05  # per timed batch


def values(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None, progress: Progress
) -> np.ndarray:
    """Return values (n, K) float64 as Game.values, which has checked the arguments."""
    model, features, value, own_rows = game.model, game.features, game.value, game.reference.own
    reference = share_reference(game.reference, inputs)
    n, K, M = len(inputs), masks.shape[-2], len(reference.rows)
    runner = _build_runner(model, game.backend, inputs)
    full = None
    if targets is None or value == "expected_log_probability":
        full = runner.log_probs(inputs)
        model.n_classes = full.shape[1]
    targets = full.argmax(1) if targets is None else targets
    result = np.empty((n, K, *targets.shape[1:]))
    full = np.exp(full) if value == "expected_log_probability" else None
    absent = tf.constant(_flatten(reference.rows))
    columns = _map_cells(features.cells, features.d, inputs.dtype)
    a, b = _size_block(runner, masks, n, M, own_rows is not None, model.n_classes)
    evaluations = 0
    for first in range(0, K, b):
        last = min(first + b, K)
        shared = _pad_masks(masks[first:last], columns) if masks.ndim == 2 else None
        for start in range(0, n, a):
            stop = min(start + a, n)
            rows = inputs[start:stop]
            instance, coalition, background = np.indices((stop - start, last - first, M), np.int32).reshape(3, -1)
            if game.reference.given is not None:
                filled = select_rows(game, rows, masks[..., first:last, :], start)
                absent = tf.constant(filled.reshape(-1, filled.shape[-1]))
                background = (instance * (last - first) + coalition) * M + background
            elif own_rows is not None:
                absent = tf.constant(_flatten(as_array(own_rows(rows), rows.dtype).reshape(-1, *rows.shape[1:])))
                background = instance * M + background
            present = shared
            if shared is None:
                present = _pad_masks(masks[start:stop, first:last].reshape(-1, features.d), columns)
                coalition = instance * (last - first) + coalition
            tensors = (tf.constant(_flatten(rows)), absent, present, columns)
            outputs = runner.outputs(tensors, (instance, coalition, background))
            outputs = outputs.reshape(stop - start, last - first, M, -1)
            arguments = targets[start:stop], None if full is None else full[start:stop]
            score_block = map_targets(_score_label if model.task == "multilabel" else score, np.stack)
            block = result[start:stop, first:last] = score_block(outputs, *arguments, value)
            check_finite(game, block, start, first)
            evaluations += (stop - start) * (last - first)
            if progress:
                progress(stop if last == K else 0, evaluations)
    return result


def _score_label(outputs: np.ndarray, targets: np.ndarray, full: np.ndarray | None, value: str) -> np.ndarray:
    return score(*select_label(outputs, targets), full, value)


def _size_block(runner: "_Runner", masks: np.ndarray, n: int, M: int, per_row: bool, classes: int) -> tuple[int, int]:
    """Return instances and coalitions per block, so that their masks, rows and outputs stay within memory."""
    size, d, limit = math.prod(runner.shape), masks.shape[-1], BLOCK_BYTES[runner.device]
    pairs = max(1, max(runner.limit, MAX_BUFFERED_OUTPUTS // classes) // M)
    b = min(masks.shape[-2], pairs, max(1, limit // (d + 1)))
    instance_bytes = 4 * size * (1 + M * per_row) + (b * (d + 1) if masks.ndim == 3 else 0)
    return min(n, max(1, pairs // b), max(1, limit // instance_bytes)), b


def _map_cells(cells: np.ndarray, d: int, dtype: np.dtype) -> tf.Tensor:
    """Return the mask column of each cell, d where it is never masked; empty where cells are features."""
    cells = cells.reshape(-1)
    if dtype != np.int32 and d == len(cells) and (cells == np.arange(d)).all():
        cells = cells[:0]
    return tf.constant(np.where(cells < 0, d, cells).astype(np.int32))


def _pad_masks(masks: np.ndarray, columns: tf.Tensor) -> tf.Tensor:
    """Return masks (K, d), with an additional column of True where columns refer to it."""
    if len(columns):
        masks = np.concatenate([masks, np.ones((len(masks), 1), bool)], axis=1)
    return tf.constant(masks)


def _flatten(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1)


@dataclass
class _Runner:
    """A model in its backend, with the data for composing its rows; limit: rows per call."""

    model: Classifier
    backend: str
    shape: tuple[int, ...]
    dtype: np.dtype
    device: str
    limit: int

    def outputs(self, block: tuple[tf.Tensor, ...], numbers: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return logits (rows, classes) of a block; halve the limit when memory runs out.

        block: instances (a, cells), reference rows (r, cells), masks (k, d or d + 1) and `_map_cells`; numbers: for
        every row its instance, its mask and its reference row.
        """
        count = len(numbers[0])
        # The last call of a block is padded with pair (0, 0), whose outputs are dropped.
        numbers = [np.concatenate([column, np.zeros(self.limit, np.int32)]) for column in numbers]

        def run(limit: int) -> np.ndarray:
            parts, start = [], 0
            while start < count:
                size = _limit_call(limit, count - start)
                step = _build_step(self.model.module, self.backend, self.shape, self.dtype, size, not len(block[-1]))
                logits = step(*block, *(tf.constant(column[start : start + size]) for column in numbers))
                parts.append(check_logits(logits, size, self.model.architecture, self.model.task))
                start += size
            return np.concatenate([part.numpy() for part in parts])[:count]

        name, rows = self.model.architecture, range(count)
        outputs = halve(self.model, self.limit, lambda limit: call(lambda _: run(limit), rows, name))
        self.limit = min(self.limit, self.model.most_rows or self.limit)
        return outputs

    def log_probs(self, inputs: np.ndarray) -> np.ndarray:
        """Return log-probabilities (n, classes) float64 of unmasked inputs; predictions (n, 1) of a regression."""
        cells, logits = math.prod(self.shape), []
        columns = _map_cells(np.arange(cells), cells, self.dtype)
        step = max(self.limit, BLOCK_BYTES[self.device] // (4 * cells))
        for start in range(0, len(inputs), step):
            rows = tf.constant(_flatten(inputs[start : start + step]))
            numbers = np.arange(len(rows), dtype=np.int32)
            block = (rows, rows, _pad_masks(np.ones((1, cells), bool), columns), columns)
            logits.append(self.outputs(block, (numbers, np.zeros_like(numbers), numbers)))
        logits = np.concatenate(logits).astype(np.float64)
        if self.model.task == "regression":
            return logits
        with np.errstate(invalid="ignore"):
            return log_expit(logits) if self.model.task == "multilabel" else log_softmax(logits, axis=1)


def _build_runner(model: Classifier, backend: ExecutionBackend, inputs: np.ndarray) -> _Runner:
    if not model.module.built:  # variables cannot be created in a function that is traced more than once
        model.module(inputs[:1], training=False)
    device = model.device.split(":")[0]
    runner = _Runner(model, backend.name, inputs.shape[1:], inputs.dtype, device, backend.batch)
    cells = math.prod(runner.shape)
    most = min(backend.batch, LARGEST_BATCH[runner.device], BUFFER_BYTES[runner.device] // (4 * cells))
    runner.limit = max(1, min(most, model.most_rows or most))
    return runner


def _limit_call(limit: int, rows: int) -> int:
    """Return the rows of the next call: the limit, halved at most MAX_HALVINGS times for the last rows of a block."""
    size = limit
    for _ in range(MAX_HALVINGS):
        if rows < size and size % 2 == 0:
            size //= 2
    return size


def _build_step(
    module, backend: str, shape: tuple[int, ...], dtype: np.dtype, size: int, direct: bool
) -> Callable[..., tf.Tensor]:
    """Return the compiled function that fills `size` rows and runs the model; direct: masks are of cells."""
    steps = PREPARED.setdefault(module, {})
    key = (backend, shape, np.dtype(dtype), size, direct)
    if key in steps:
        return steps[key]
    alive = weakref.ref(module)  # a strong reference would never be freed

    def forward(rows):
        return alive()(rows, training=False)

    # Concrete functions, since TensorFlow warns of functions with equal code that are traced often.
    if backend == "compiled":
        forward = tf.function(forward, jit_compile=True).get_concrete_function(tf.TensorSpec([size, *shape], dtype))
    cells, number = math.prod(shape), tf.TensorSpec([size], tf.int32)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, cells], dtype),
            tf.TensorSpec([None, cells], dtype),
            tf.TensorSpec([None, None], tf.bool),
            tf.TensorSpec([None], tf.int32),
            *[number] * 3,
        ]
    )
    def step(rows, absent, masks, columns, instance, coalition, background):
        """Return logits (size, classes) of rows composed from an instance and a reference row each.

        rows: the instances (a, cells).
        absent: reference rows (r, cells).
        masks: (k, d + 1) bool, True is kept, the last column always; (k, d) where direct.
        columns: the column of masks that each cell follows (cells,); empty where direct.
        instance, coalition, background: the index of each row in rows, in masks and in absent, (size,) each.
        """
        present = tf.gather(masks, coalition)
        if not direct:
            # Gathering entire rows is three times as fast as gathering cells along the other axis.
            present = tf.transpose(tf.gather(tf.transpose(present), columns))
        filled = tf.where(present, tf.gather(rows, instance), tf.gather(absent, background))
        return forward(tf.reshape(filled, (size, *shape)))

    steps[key] = step.get_concrete_function()
    return steps[key]


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference) -> ExecutionBackend:
    """Return the fastest backend and batch, for inputs and reference rows in the model's format."""
    began, ends = time.perf_counter(), (inputs[:1], reference.rows[:1])
    largest = limit_trial_rows(math.prod(inputs.shape[1:]), model.device.split(":")[0])
    single = calibration.time_fastest(_warm_up(model, ExecutionBackend("plain", 1), *ends), 1, TIMING_SECONDS)
    # Large models start with small batches, so that no single call takes long.
    smallest = 1 << int(np.clip(math.log2(min(0.05 / single, largest)), 0, 4))
    rows = mask_rows(inputs, reference, STEP * smallest)
    expected = _build_runner(model, ExecutionBackend("plain", len(rows)), inputs).log_probs(rows)

    def candidate(name: str) -> calibration.Candidate:
        difference = 0.0 if name == "plain" else _measure(model, name, inputs, rows, expected)
        most = _build_runner(model, ExecutionBackend(name, largest), inputs).limit
        return calibration.Candidate(
            difference, lambda: most, lambda batch: _warm_up(model, ExecutionBackend(name, batch), *ends)
        )

    share = SEARCH_SECONDS / CALIBRATION_SECONDS
    plan = calibration.Search(
        shares=(2 / 3 * share, share),
        refusals=(ModelFailure, MethodFailure, NotImplementedError, TypeError, ValueError),
        smallest=smallest,
        sure=len(rows),
        stride=STEP,
        measured=TIMING_SECONDS,
        few_rows=0,
        turns=8,
        # Plain needs no compilation per job, and smaller batches waste fewer padded rows at a block's end.
        nearly=1.05,
        in_order=True,
        in_time=True,  # compiling a recurrent model takes long
    )
    return calibration.search(BACKENDS, candidate, plan, began)


def _measure(model: Classifier, name: str, inputs: np.ndarray, rows: np.ndarray, expected: np.ndarray) -> float:
    """Return a backend's largest difference to the expected log-probabilities, in the two smallest batches tried."""
    batches = len(rows), len(rows) // STEP
    actual = [_build_runner(model, ExecutionBackend(name, batch), inputs).log_probs(rows) for batch in batches]
    return calibration.measure_difference(np.array(actual), expected)


def _warm_up(model: Classifier, backend: ExecutionBackend, row: np.ndarray, absent: np.ndarray) -> Callable[[], float]:
    """Return a function that evaluates a batch on artificial masks and returns seconds per row (inf: too large), after
    its first call, which traces."""
    runner = _build_runner(model, backend, row)
    cells, batch = math.prod(runner.shape), backend.batch
    masks = np.random.default_rng(0).random((batch, cells)) < 0.5
    columns = _map_cells(np.arange(cells), cells, runner.dtype)
    block = (tf.constant(_flatten(row)), tf.constant(_flatten(absent)), _pad_masks(masks, columns), columns)
    zero = np.zeros(batch, np.int32)

    def run() -> float:
        start = time.perf_counter()
        outputs = runner.outputs(block, (zero, np.arange(batch, dtype=np.int32), zero))
        score(outputs.reshape(1, batch, 1, -1), zero[:1], None, "log_probability")
        return (time.perf_counter() - start) / batch if runner.limit >= batch else math.inf

    run()
    return run


def window_values(
    model: Classifier, inputs: np.ndarray, rows: np.ndarray, masks: np.ndarray, features: Features
) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
    """Yield logits as `windows.evaluate_tiles`, for a module with `window_size`, `windows` and `from_pooled`."""
    of_windows, from_pooled = _compile_windows(model.module)
    local = windows.Local(
        model.module.window_size,
        lambda ids: of_windows(ids).numpy(),
        lambda pooled: from_pooled(pooled).numpy(),
        threads(),
    )
    return windows.evaluate_tiles(local, inputs, rows, masks, features.cells)


@functools.lru_cache(maxsize=4)
def _compile_windows(module) -> tuple[tf.types.experimental.PolymorphicFunction, ...]:
    """Return the module's `windows` and `from_pooled`, traced once for any number of rows; weights stay variables."""
    ids = tf.TensorSpec((None, module.window_size), tf.int32)
    of_windows = tf.function(module.windows, input_signature=[ids])
    channels = of_windows.get_concrete_function().structured_outputs.shape[1]
    return of_windows, tf.function(module.from_pooled, input_signature=[tf.TensorSpec((None, channels), tf.float32)])
