"""The engine's backend for functions and for the graph of a network: numpy fills the rows, and no framework is there.

Of a graph it asks the very tiles that torch_backend asks in the form "onnx", so that the values are the same but for
the rounding of logarithms in float64.
"""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shapeline.engine import search
from shapeline.engine.checks import as_array, check_finite, given_rows, shared_reference
from shapeline.engine.forms import Form
from shapeline.engine.question import Question
from shapeline.engine.scoring import PREDICTION, score
from shapeline.engine.tiles import KEPT_OUTPUTS, MASK_BYTES, rows_a_call, rows_tried, tile
from shapeline.errors import MethodFailure
from shapeline.game.features import Features
from shapeline.game.references import Reference
from shapeline.memory import halved
from shapeline.models.classifier import Classifier, function_log_probs, function_predictions

MEASURED, FEW_ROWS = 0.03, 64  # seconds that a batch is measured for; rows that are rarely the best


@dataclass(frozen=True)
class _Asked:
    """What is asked of all instances. absent: bits (M, cells) of the shared reference; columns: of a mask, by cell;
    buffer: of a tile's filled rows; step: coalitions of a tile; limit: rows of a call."""

    question: Question
    inputs: np.ndarray
    masks: np.ndarray
    absent: np.ndarray
    columns: np.ndarray | None
    buffer: np.ndarray
    step: int
    limit: int


def values(
    question: Question,
    inputs: np.ndarray,
    masks: np.ndarray,
    targets: np.ndarray | None,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """As Question.values, which has checked everything: values (n, K) float64."""
    model, size = question.model, math.prod(inputs.shape[1:])
    absent = _bits(shared_reference(question.reference, inputs).rows)
    result = np.empty((len(inputs), masks.shape[-2]))
    n, K, M = *result.shape, len(absent)
    limit, full = rows_a_call(question.form.batch, size, model.most_rows, "cpu"), None
    expected = question.value == "expected_log_probability"
    if targets is None or expected:
        full = model.log_probs(inputs, limit)
        model.n_classes = full.shape[1]
    targets = full.argmax(1) if targets is None else targets
    full = np.exp(full) if expected else None
    a, b = tile(n, K, max(1, limit // M))
    buffer = np.empty((a * b * M, size), np.int32)
    asked = _Asked(question, inputs, masks, absent, _columns(question.features), buffer, b, limit)
    chunk = b * max(1, MASK_BYTES["cpu"] // (4 * size * b))
    for first in range(0, K, chunk):
        last, shared = min(first + chunk, K), None  # frees those of the chunk before, which are as large
        # Masks that all instances share are expanded to input cells once, not once an instance.
        shared = _present(masks[None, first:last], asked.columns) if masks.ndim == 2 else None
        for start in range(0, n, a):
            stop = min(start + a, n)
            of_block = targets[start:stop], None if full is None else full[start:stop]
            block = result[start:stop, first:last] = _block(
                asked, slice(start, stop), slice(first, last), shared, of_block
            )
            check_finite(question, block, start, first)
            if progress:
                progress(stop if last == K else 0, first * n + stop * (last - first))
    return result


def _block(
    asked: _Asked, instances: slice, coalitions: slice, shared: np.ndarray | None, of_block: tuple
) -> np.ndarray:
    """Values of some coalitions on some instances; shared: the bits of these coalitions where all have the same."""
    question, rows, scored, outputs = asked.question, asked.inputs[instances], [], []
    absent = asked.absent
    if question.reference.own is not None:
        own = as_array(question.reference.own(rows), rows.dtype)
        absent = _bits(own.reshape(-1, *rows.shape[1:])).reshape(len(rows), 1, len(absent), -1)
    for first in range(coalitions.start, coalitions.stop, asked.step):
        last = min(first + asked.step, coalitions.stop)
        if shared is None:
            present = _present(asked.masks[instances, first:last], asked.columns)
        else:
            present = shared[:, first - coalitions.start : last - coalitions.start]
        if question.reference.given is not None:
            given = given_rows(question, rows, asked.masks[..., first:last, :], instances.start)
            absent = _bits(given.reshape(-1, *rows.shape[1:])).reshape(*given.shape[:3], -1)
        pairs = (len(rows), last - first, len(asked.absent))
        filled = asked.buffer[: math.prod(pairs)]
        fill(present[:, :, None], _bits(rows)[:, None, None], absent, filled.reshape(*pairs, -1))
        tile_rows = filled.view(rows.dtype).reshape(-1, *rows.shape[1:])
        outputs.append(_outputs(question.model, tile_rows, asked.limit).reshape(*pairs, -1))
        if last == coalitions.stop or len(outputs) * outputs[0].size > KEPT_OUTPUTS:
            scored.append(values_of(np.concatenate(outputs, axis=1), *of_block, question.value, question.model))
            outputs = []
    return np.concatenate(scored, axis=1)


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference, difference: float = 0.0) -> Form:
    """The fastest batch of a function, or of the graph of a network, which has that difference to it; inputs and
    reference rows as the model takes them."""
    began, name, cells = time.perf_counter(), model.runtime or "plain", math.prod(inputs.shape[1:])
    largest = rows_tried(cells, "cpu")
    step = _step(model, 1, inputs, reference)
    step()  # threads start
    single = search.fastest(step, 1, MEASURED)
    # Large models start with small batches, so that no single call takes more than a moment.
    smallest = 1 << int(np.clip(math.log2(min(search.MOMENT / single, largest)), 0, math.log2(FEW_ROWS)))
    candidate = search.Candidate(
        difference,
        lambda: rows_a_call(largest, cells, model.most_rows, "cpu"),
        lambda batch: _step(model, batch, inputs, reference),
    )
    plan = search.Search(
        shares=(1.0,),
        refusals=(MethodFailure, RuntimeError),
        smallest=smallest,
        sure=smallest,
        stride=2,
        measured=MEASURED,
        few_rows=FEW_ROWS,
        turns=5,
    )
    return search.search((name,), lambda _: candidate, plan, began)


def _step(model: Classifier, batch: int, inputs: np.ndarray, reference: Reference) -> Callable[[], float]:
    """One tile of the engine on made-up masks, as a function that returns its seconds a row (inf: too large)."""
    kept = np.random.default_rng(0).random((1, batch, math.prod(inputs.shape[1:]))) < 0.5
    present, rows, absent = _present(kept, None)[0], _bits(inputs[:1]), _bits(reference.rows[:1])
    buffer, target = np.empty(present.shape, np.int32), np.zeros(1, np.int64)
    value = PREDICTION if model.task == "regression" else "log_probability"

    def run() -> float:
        start = time.perf_counter()
        fill(present, rows, absent, buffer)
        outputs = _outputs(model, buffer.view(inputs.dtype).reshape(-1, *inputs.shape[1:]), batch)
        values_of(outputs.reshape(1, batch, 1, -1), target, None, value, model)
        return (time.perf_counter() - start) / batch if (model.most_rows or batch) >= batch else math.inf

    return run


def _bits(rows: np.ndarray) -> np.ndarray:
    """Rows (n, *input_shape) of float32 or int32 as the bits of their cells, (n, cells) int32."""
    return rows.view(np.int32).reshape(len(rows), -1)


def _columns(features: Features) -> np.ndarray | None:
    """Feature of each cell, d where it is never removed; None where cells are the features."""
    cells = features.cells.ravel()
    if features.d == len(cells) and (cells == np.arange(features.d)).all():
        return None
    return np.where(cells < 0, features.d, cells)


def _present(masks: np.ndarray, columns: np.ndarray | None) -> np.ndarray:
    """Masks (a, b, d) bool to the bits of cells, (a, b, cells) int32: 0 absent, -1 (all bits set) present."""
    present = np.negative(masks, dtype=np.int32, casting="unsafe")
    if columns is None:
        return present
    always = np.full((*masks.shape[:2], 1), -1, np.int32)
    return np.take(np.concatenate([present, always], axis=2), columns, axis=2)


def fill(present: np.ndarray, rows: np.ndarray, absent: np.ndarray, out: np.ndarray) -> None:
    """Write `rows` where present and `absent` where not, broadcast to `out`; all are bits, int32.

    Choosing by bits is exact for any number, NaN included, and takes a seventh of the time of np.where.
    """
    np.bitwise_and(present, rows ^ absent, out=out)
    np.bitwise_xor(out, absent, out=out)


def _outputs(model: Classifier, rows: np.ndarray, limit: int) -> np.ndarray:
    """The network's outputs, or a function's log-probabilities or predictions, (n, outputs) on rows; fewer a call than
    the limit once memory ran out."""
    forward = model.module
    if model.framework == "function":
        function = function_predictions if model.task == "regression" else function_log_probs
        forward = functools.partial(_ask, function, model)

    def run(limit: int) -> np.ndarray:
        parts = [forward(rows[start : start + limit]) for start in range(0, len(rows), limit)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return halved(model, min(limit, len(rows)), run)


def _ask(function: Callable, model: Classifier, rows: np.ndarray) -> np.ndarray:
    return function(model.module, rows, model.architecture)


def values_of(
    outputs: np.ndarray, targets: np.ndarray, full: np.ndarray | None, value: str, model: Classifier
) -> np.ndarray:
    """Outputs (a, b, M, classes) of a tile to values (a, b), as torch_rows.score_on_device."""
    outputs = outputs.astype(np.float64)
    if model.framework == "function":
        return score(outputs, targets, full, value, logits=False)
    if model.task == "multilabel":
        # The sigmoid of a label's logit is the softmax of the two logits 0 and it.
        label = np.take_along_axis(outputs, targets.reshape(-1, 1, 1, 1), 3)
        outputs, targets = np.concatenate([np.zeros_like(label), label], axis=3), np.ones_like(targets)
    if outputs.shape[3:] != (2,) or value not in ("log_probability", "probability"):
        return score(outputs, targets, full, value)
    # The softmax of two is the sigmoid of their difference.
    sign = np.where(targets == 0, 1.0, -1.0).reshape(-1, 1, 1)
    with np.errstate(invalid="ignore", over="ignore"):  # check_finite names what is not finite
        log_probs = -np.logaddexp(0, (outputs[..., 1] - outputs[..., 0]) * sign)
        average = log_probs[:, :, 0]
        if log_probs.shape[2] > 1:
            average = np.logaddexp.reduce(log_probs, axis=2) - math.log(log_probs.shape[2])
    return np.exp(average) if value == "probability" else average
