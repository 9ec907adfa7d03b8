"""The engine's backend for TensorFlow models.

One compiled function a model, form and batch fills the absent features of a batch on the model's device and runs the
model on it. It takes the instances, reference rows and masks of a block, and of each of its rows which of them meet
there; so instances x coalitions x reference rows share batches, and another d, n or K needs no new trace.
"""

import logging
import math
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from shapeline.engine import (
    CALIBRATION_SECONDS,
    TOLERANCE,
    Form,
    as_array,
    check_finite,
    masked_rows,
    score,
    shared_reference,
)
from shapeline.errors import MethodFailure, ShapelineError, nearest
from shapeline.features import Features
from shapeline.memory import halved
from shapeline.models.classifier import Classifier
from shapeline.models.keras_models import checked_logits
from shapeline.models.tensorflow_setup import tf
from shapeline.references import Reference

log = logging.getLogger(__name__)

FORMS = ("plain", "compiled")  # in the order in which they are tried; compiled is by XLA
# Bytes of a batch of filled rows, and of a block's masks or instances.
BUFFER_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}
BLOCK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
LARGEST_BATCH = {"cpu": 1 << 14, "cuda": 1 << 16}
KEPT_OUTPUTS = 1 << 21  # model outputs kept until they are scored together
TAILS = 4  # how often a batch is halved for the last rows of a block; each size is one more trace a model
STRIDE = 4  # from one batch that is tried to the next; every one is a trace, and rates change little between
SEARCH_SECONDS = 0.6 * CALIBRATION_SECONDS  # for finding the leaders; the rest is for comparing them in turns
# Of what is this near to the fastest, plain is better, which is not compiled by every job, and then the smaller
# batch: fewer rows are computed in vain at a block's end.
NEARLY = 1.05


def values(
    model: Classifier,
    inputs: np.ndarray,
    reference: Reference,
    masks: np.ndarray,
    features: Features,
    value: str,
    targets: np.ndarray | None,
    form: Form,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """As engine.values, which has checked everything: values (n, K) float64."""
    own, reference = reference.own, shared_reference(reference, inputs)
    result = np.empty((len(inputs), masks.shape[-2]))
    n, K, M = *result.shape, len(reference.rows)
    runner = _runner(model, form, inputs)
    full = None
    if targets is None or value == "expected_log_probability":
        full = runner.log_probs(inputs)
        model.n_classes = full.shape[1]
    targets = full.argmax(1) if targets is None else targets
    full = np.exp(full) if value == "expected_log_probability" else None
    absent = tf.constant(_flat(reference.rows))
    columns = _columns(features.cells, features.d, inputs.dtype)
    a, b = _block(runner, masks, n, M, own is not None, model.n_classes)
    evaluations = 0
    for first in range(0, K, b):
        last = min(first + b, K)
        shared = _present(masks[first:last], columns) if masks.ndim == 2 else None
        for start in range(0, n, a):
            stop = min(start + a, n)
            rows = inputs[start:stop]
            instance, coalition, background = np.indices((stop - start, last - first, M), np.int32).reshape(3, -1)
            if own is not None:
                absent = tf.constant(_flat(as_array(own(rows), rows.dtype).reshape(-1, *rows.shape[1:])))
                background = instance * M + background
            present = shared
            if shared is None:
                present = _present(masks[start:stop, first:last].reshape(-1, features.d), columns)
                coalition = instance * (last - first) + coalition
            block = (tf.constant(_flat(rows)), absent, present, columns)
            outputs = runner.outputs(block, (instance, coalition, background))
            outputs = outputs.reshape(stop - start, last - first, M, -1)
            of_block = targets[start:stop], None if full is None else full[start:stop]
            result[start:stop, first:last] = score(outputs, *of_block, value)
            check_finite(model, result, start, stop, first, last, value)
            evaluations += (stop - start) * (last - first)
            if progress:
                progress(stop if last == K else 0, evaluations)
    return result


def _block(runner: "_Runner", masks: np.ndarray, n: int, M: int, own: bool, classes: int) -> tuple[int, int]:
    """Instances and coalitions of a block: what they, their masks, rows and outputs take stays within bounds."""
    size, d, room = math.prod(runner.shape), masks.shape[-1], BLOCK_BYTES[runner.device]
    pairs = max(1, max(runner.limit, KEPT_OUTPUTS // classes) // M)
    b = min(masks.shape[-2], pairs, max(1, room // (d + 1)))
    of_instance = 4 * size * (1 + M * own) + (b * (d + 1) if masks.ndim == 3 else 0)
    return min(n, max(1, pairs // b), max(1, room // of_instance)), b


def _columns(cells: np.ndarray, d: int, dtype: np.dtype) -> tf.Tensor:
    """The column of a mask that each cell follows, d where it is never removed; empty where cells are the features.

    Never empty for texts: some fill the input and others do not, and each kind would be one more trace.
    """
    cells = cells.reshape(-1)
    if dtype != np.int32 and d == len(cells) and (cells == np.arange(d)).all():
        cells = cells[:0]
    return tf.constant(np.where(cells < 0, d, cells).astype(np.int32))


def _present(masks: np.ndarray, columns: tf.Tensor) -> tf.Tensor:
    """Masks (K, d), with one more column, always present, where columns point at it."""
    if len(columns):
        masks = np.concatenate([masks, np.ones((len(masks), 1), bool)], axis=1)
    return tf.constant(masks)


def _flat(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1)


@dataclass
class _Runner:
    """A model in its form, with what it takes to bring rows to it. `limit` is how many rows a call may hold."""

    model: Classifier
    form: str
    shape: tuple[int, ...]
    dtype: np.dtype
    device: str
    limit: int

    def outputs(self, block: tuple[tf.Tensor, ...], numbers: tuple[np.ndarray, ...]) -> np.ndarray:
        """Logits (rows, classes) of a block; halves the limit when memory runs out.

        block: instances (a, cells), reference rows (r, cells), masks (k, d or d + 1) and `_columns`; numbers: for
        every row its instance, its mask and its reference row.
        """
        count = len(numbers[0])
        # The last call of a block is filled up with more of pair (0, 0), whose outputs are dropped.
        numbers = [np.concatenate([one, np.zeros(self.limit, np.int32)]) for one in numbers]

        def run(limit: int) -> np.ndarray:
            parts, start = [], 0
            while start < count:
                size = _size(limit, count - start)
                step = _step(self.model.module, self.form, self.shape, self.dtype, size, not len(block[-1]))
                logits = step(*block, *(tf.constant(one[start : start + size]) for one in numbers))
                parts.append(checked_logits(logits, size, self.model.architecture, self.model.task))
                start += size
            return np.concatenate([part.numpy() for part in parts])[:count]

        outputs = halved(self.model, self.limit, run)
        self.limit = min(self.limit, self.model.most_rows or self.limit)
        return outputs

    def log_probs(self, inputs: np.ndarray) -> np.ndarray:
        """Log-probabilities (n, classes) float64 of whole inputs; predictions (n, 1) of a regression."""
        cells, logits = math.prod(self.shape), []
        columns = _columns(np.arange(cells), cells, self.dtype)
        step = max(self.limit, BLOCK_BYTES[self.device] // (4 * cells))
        for start in range(0, len(inputs), step):
            rows = tf.constant(_flat(inputs[start : start + step]))
            numbers = np.arange(len(rows), dtype=np.int32)
            block = (rows, rows, _present(np.ones((1, cells), bool), columns), columns)
            logits.append(self.outputs(block, (numbers, np.zeros_like(numbers), numbers)))
        logits = np.concatenate(logits).astype(np.float64)
        if self.model.task == "regression":
            return logits
        with np.errstate(invalid="ignore"):
            return log_softmax(logits, axis=1)


def _runner(model: Classifier, form: Form, inputs: np.ndarray) -> _Runner:
    if form.name not in FORMS:
        raise ShapelineError(f"engine: unknown form '{form.name}'.{nearest(form.name, FORMS)}")
    if not model.module.built:  # variables cannot be made inside a function that is traced more than once
        model.module(inputs[:1], training=False)
    device = model.device.split(":")[0]
    runner = _Runner(model, form.name, inputs.shape[1:], inputs.dtype, device, form.batch)
    cells = math.prod(runner.shape)
    most = min(form.batch, LARGEST_BATCH[runner.device], BUFFER_BYTES[runner.device] // (4 * cells))
    runner.limit = max(1, min(most, model.most_rows or most))
    return runner


def _size(limit: int, rows: int) -> int:
    """Rows of the next call: the limit, halved for the last rows of a block until they fill it, at most so often."""
    size = limit
    for _ in range(TAILS):
        if rows < size and size % 2 == 0:
            size //= 2
    return size


def _step(
    module, form: str, shape: tuple[int, ...], dtype: np.dtype, size: int, direct: bool
) -> Callable[..., tf.Tensor]:
    """The compiled function that fills `size` rows and runs the model; traced once, kept while the module lives.

    direct: masks are of cells. Its variables are taken by reference, so that it follows a model that is trained
    further.
    """
    kept = _STEPS.setdefault(module, {})
    key = (form, shape, np.dtype(dtype), size, direct)
    if key in kept:
        return kept[key]
    alive = weakref.ref(module)  # the module itself would never be freed

    def forward(rows):
        return alive()(rows, training=False)

    # Concrete functions, because TensorFlow warns of functions with the same code that are traced often.
    if form == "compiled":
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
        present = tf.gather(masks, coalition)
        if not direct:
            # Rows are gathered by copying them whole; along the other axis, cell by cell, it takes thrice as long.
            present = tf.transpose(tf.gather(tf.transpose(present), columns))
        filled = tf.where(present, tf.gather(rows, instance), tf.gather(absent, background))
        return forward(tf.reshape(filled, (size, *shape)))

    kept[key] = step.get_concrete_function()
    return kept[key]


_STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference) -> Form:
    """As engine.calibrate, for inputs and reference rows as the model takes them."""
    started = time.perf_counter()
    found: dict[tuple[str, int], float] = {}  # seconds a row
    timers: dict[tuple[str, int], Callable[[], float]] = {}
    differences: dict[str, float] = {}
    single = _fastest(_timer(model, Form("plain", 1), inputs, reference), 1)
    # Large models start with small batches, so that no single call takes more than a moment.
    smallest = 1 << int(np.clip(math.log2(0.05 / single), 0, 4))
    rows = masked_rows(inputs, reference, STRIDE * smallest)
    expected = _runner(model, Form("plain", len(rows)), inputs).log_probs(rows)
    for name in FORMS:
        if found and time.perf_counter() > started + SEARCH_SECONDS:
            log.info("form %s left out: no time to try it", name)  # to compile a recurrent model takes long
            continue
        try:
            differences[name] = 0.0 if name == "plain" else _difference(model, name, inputs, rows, expected)
        except (tf.errors.OpError, MethodFailure, NotImplementedError, TypeError, ValueError) as refusal:
            log.info("form %s left out: %s", name, next(iter(str(refusal).strip().splitlines()), type(refusal)))
            continue
        if not differences[name] <= TOLERANCE:
            log.info("form %s left out: log-probabilities differ by %.1e", name, differences[name])
            continue
        best, worse, batch = math.inf, 0, smallest
        largest = _runner(model, Form(name, max(LARGEST_BATCH.values())), inputs).limit
        end = started + SEARCH_SECONDS * (2 / 3 if name == "plain" else 1)
        while batch <= largest and worse < 2 and (batch <= len(rows) or time.perf_counter() < end):
            timer = _timer(model, Form(name, batch), inputs, reference)
            seconds = _fastest(timer, batch)
            found[name, batch], timers[name, batch] = seconds, timer
            worse = 0 if seconds < 0.98 * best else worse + 1
            best, batch = min(best, seconds), STRIDE * batch
    ranked = sorted(found, key=found.__getitem__)
    leaders = [key for name in FORMS for key in [key for key in ranked if key[0] == name][:2]]
    for _ in range(8):  # the leaders again, in turns, so that a passing disturbance decides nothing
        for key in leaders:
            if time.perf_counter() < started + CALIBRATION_SECONDS:
                found[key] = min(found[key], timers[key]())
    near = [key for key in found if found[key] <= NEARLY * min(found.values())]
    name, batch = min(near, key=lambda key: (FORMS.index(key[0]), key[1]))
    return Form(name, batch, 1 / found[name, batch], differences[name])


def _difference(model: Classifier, name: str, inputs: np.ndarray, rows: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference of a form's log-probabilities to the expected ones, in the two smallest batches tried."""
    actual = [_runner(model, Form(name, len(rows) // split), inputs).log_probs(rows) for split in (1, STRIDE)]
    # float32 logits of size 30 differ by 1e-5 from rounding alone, hence relative below -1.
    return float((np.abs(np.array(actual) - expected) / np.abs(expected).clip(min=1)).max())


def _timer(model: Classifier, form: Form, inputs: np.ndarray, reference: Reference) -> Callable[[], float]:
    """A batch of the engine on made-up masks, as a function that returns its seconds a row (inf: too large)."""
    runner = _runner(model, form, inputs)
    cells, batch = math.prod(runner.shape), form.batch
    masks = np.random.default_rng(0).random((batch, cells)) < 0.5
    columns = _columns(np.arange(cells), cells, runner.dtype)
    absent = tf.constant(_flat(reference.rows[:1]))
    block = (tf.constant(_flat(inputs[:1])), absent, _present(masks, columns), columns)
    zero = np.zeros(batch, np.int32)

    def run() -> float:
        start = time.perf_counter()
        outputs = runner.outputs(block, (zero, np.arange(batch, dtype=np.int32), zero))
        score(outputs.reshape(1, batch, 1, -1), zero[:1], None, "log_probability")
        return (time.perf_counter() - start) / batch if runner.limit >= batch else math.inf

    return run


def _fastest(timer: Callable[[], float], batch: int) -> float:
    """Seconds a row: the best of some repetitions, because others may use the machine; the first, a trace, apart."""
    timer()
    started, best = time.perf_counter(), math.inf
    for _ in range(20):
        best = min(best, timer())
        if time.perf_counter() - started > max(0.05, 2.5 * best * batch):
            break
    return best
