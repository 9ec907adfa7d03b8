"""The backend for functions and graphs: numpy fills the rows, a graph's in torch_backend's tiles for equal values."""

import functools
import math
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shapeline.errors import MethodFailure
from shapeline.games import calibration, execution
from shapeline.games.execution import ExecutionBackend, limit_rows, limit_trial_rows
from shapeline.games.features import Features
from shapeline.games.game import (
    PREDICTION,
    Game,
    Progress,
    as_array,
    check_finite,
    convert_cells,
    map_targets,
    score,
    select_label,
    select_rows,
    share_reference,
)
from shapeline.games.references import Reference
from shapeline.memory import halve
from shapeline.models.classifier import Classifier, function_predictions, function_probabilities
from shapeline.threads import run_tasks

MIN_RUN_ROWS = 8  # references with fewer rows are filled cell by cell
TIMING_SECONDS, FEW_ROWS = 0.03, 64  # seconds per timed batch; batches of few rows are rarely the fastest


@dataclass(frozen=True)
class _Request:
    """The settings shared by all instances. absent: bits (M, cells) of the shared reference; columns: the mask column
    of each cell; forward: the function or graph; step: coalitions per tile; limit: rows per call."""

    game: Game
    inputs: np.ndarray
    masks: np.ndarray
    absent: np.ndarray
    columns: np.ndarray | None
    forward: Callable[[np.ndarray], np.ndarray]
    step: int
    limit: int


def values(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None, progress: Progress
) -> np.ndarray:
    """Return values (n, K) float64 as Game.values, which has checked the arguments."""
    model, size = game.model, math.prod(inputs.shape[1:])
    absent = _view_bits(share_reference(game.reference, inputs).rows)
    n, K, M = len(inputs), masks.shape[-2], len(absent)
    limit, full = limit_rows(game.backend.batch, size, model.most_rows, _find_device(model)), None
    expected = game.value == "expected_log_probability"
    if targets is None or expected:
        full = model.log_probs(inputs, limit)
        model.n_classes = full.shape[1]
    targets = full.argmax(1) if targets is None else targets
    result = np.empty((n, K, *targets.shape[1:]))
    full = np.exp(full) if expected else None
    a, b = execution.choose_tile(n, K, max(1, limit // M))
    chunk = b * max(1, execution.MAX_MASK_BYTES["cpu"] // (4 * size * b))
    # A graph's threads compose and evaluate rows; one thread for a function or rows of each input.
    threads = 1 if game.reference.own is not None or game.reference.given is not None else _count_calls(game.model)
    blocks = [slice(start, min(start + a, n)) for start in range(0, n, a)]
    # With fewer blocks of instances than threads, the threads share the coalitions of a block.
    step = chunk if len(blocks) >= threads else b * math.ceil(min(chunk, K) / b / threads)
    threads = min(threads, len(blocks) * math.ceil(min(chunk, K) / step))
    buffers = queue.SimpleQueue()  # for a tile's composed rows, one per thread
    for _ in range(threads):
        buffers.put(np.empty((a * b * M, size), absent.dtype))
    forward = _build_forward(model, threads)
    setup = _Request(game, inputs, masks, absent, _map_cells(game.features), forward, b, limit)
    for first in range(0, K, chunk):
        last, shared = min(first + chunk, K), None  # frees the previous chunk's masks, which are as large
        # Masks that all instances share are expanded to input cells once, not per instance.
        shared = _expand_masks(masks[None, first:last], setup.columns, absent.dtype) if masks.ndim == 2 else None

        def run(task: tuple[slice, slice], first: int = first, shared: np.ndarray | None = shared) -> np.ndarray:
            block, part = task
            present = None if shared is None else shared[:, part.start - first : part.stop - first]
            context, buffer = (targets[block], None if full is None else full[block]), buffers.get()
            try:
                return _evaluate_tiles(setup, block, part, present, context, buffer)
            finally:
                buffers.put(buffer)

        parts = [slice(start, min(start + step, last)) for start in range(first, last, step)]
        tasks = [(block, part) for block in blocks for part in parts]
        for (block, part), block_values in zip(tasks, run_tasks(run, tasks, threads), strict=True):
            result[block, part] = block_values
            check_finite(game, block_values, block.start, part.start)
            if progress:
                evaluations = first * n + block.start * (last - first) + len(block_values) * (part.stop - first)
                progress((block.stop if part.stop == K else block.start) if last == K else 0, evaluations)
    return result


def _find_device(model: Classifier) -> str:
    """Return the key of the limit of rows per call."""
    return "function" if model.framework == "function" else "cpu"


def _count_calls(model: Classifier) -> int:
    """Return the number of concurrent calls of a model: a graph's number of threads, one for a function."""
    return 1 if model.runtime is None else model.module.shares


def _evaluate_tiles(
    setup: _Request, instances: slice, coalitions: slice, shared: np.ndarray | None, context: tuple, buffer: np.ndarray
) -> np.ndarray:
    """Return values of a block of instances and coalitions; shared: bits of coalitions that all instances share."""
    game, rows, scored, outputs = setup.game, setup.inputs[instances], [], []
    absent, by_column, score_targets = setup.absent, takes_columns(game), map_targets(convert_outputs, np.stack)
    if game.reference.own is not None:
        reference = as_array(game.reference.own(rows), rows.dtype)
        absent = _view_bits(reference.reshape(-1, *rows.shape[1:])).reshape(len(rows), 1, len(absent), -1)
    for first in range(coalitions.start, coalitions.stop, setup.step):
        last = min(first + setup.step, coalitions.stop)
        if shared is None:
            present = _expand_masks(setup.masks[instances, first:last], setup.columns, absent.dtype)
        else:
            present = shared[:, first - coalitions.start : last - coalitions.start]
        if game.reference.given is not None:
            filling = select_rows(game, rows, setup.masks[..., first:last, :], instances.start)
            absent = _view_bits(filling.reshape(-1, *rows.shape[1:])).reshape(*filling.shape[:3], -1)
        pairs = (len(rows), last - first, len(setup.absent))
        filled = buffer[: math.prod(pairs)]
        if by_column:
            fill_columns(present, _view_bits(rows), absent, filled.reshape(-1, pairs[2]))
            tile_rows = filled.reshape(rows.shape[1], -1).T.view(rows.dtype)
        else:
            fill(present[:, :, None], _view_bits(rows)[:, None, None], absent, filled.reshape(*pairs, -1))
            tile_rows = filled.view(rows.dtype).reshape(-1, *rows.shape[1:])
        outputs.append(_evaluate_rows(game.model, setup.forward, tile_rows, setup.limit).reshape(*pairs, -1))
        # A function may return its internal buffer, which the next call overwrites.
        if (
            game.model.framework == "function"
            or last == coalitions.stop
            or len(outputs) * outputs[0].size > execution.MAX_BUFFERED_OUTPUTS
        ):
            scored.append(score_targets(np.concatenate(outputs, axis=1), *context, game.value, game.model))
            outputs = []
    return np.concatenate(scored, axis=1)


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference, difference: float = 0.0) -> ExecutionBackend:
    """Return the fastest batch of a function, or of a network's graph, whose difference to the network is given."""
    began, name = time.perf_counter(), model.runtime or "plain"
    most, step_of_batch = try_candidate(model, inputs, reference)
    step = step_of_batch(1)
    step()  # starts the threads
    single = calibration.time_fastest(step, 1, TIMING_SECONDS)
    # Large models start with small batches, so that no single call takes long.
    smallest = 1 << int(np.clip(math.log2(min(calibration.MAX_CALL_SECONDS / single, most())), 0, math.log2(FEW_ROWS)))
    candidate = calibration.Candidate(difference, most, step_of_batch)
    plan = calibration.Search(
        shares=(1.0,),
        refusals=(MethodFailure, RuntimeError),
        smallest=smallest,
        sure=smallest,
        stride=2,
        measured=TIMING_SECONDS,
        few_rows=FEW_ROWS,
        turns=5,
    )
    return calibration.search((name,), lambda _: candidate, plan, began)


def try_candidate(
    model: Classifier, inputs: np.ndarray, reference: Reference
) -> tuple[Callable[[], int], Callable[[int], Callable[[], float]]]:
    """Return the maximum of rows per call of a candidate backend, and the step; each thread of a graph makes a call."""
    cells = math.prod(inputs.shape[1:])
    largest = max(1, limit_trial_rows(cells, _find_device(model)) // _count_calls(model))
    return (
        lambda: limit_rows(largest, cells, model.most_rows, _find_device(model)),
        lambda batch: _step(model, batch, inputs, reference),
    )


def _step(model: Classifier, batch: int, inputs: np.ndarray, reference: Reference) -> Callable[[], float]:
    """Return a function that evaluates a tile on artificial masks concurrently in each of a graph's threads, and
    returns the seconds per row (inf: too large)."""
    threads = _count_calls(model)
    forward = _build_forward(model, threads)
    kept = np.random.default_rng(0).random((1, batch, math.prod(inputs.shape[1:]))) < 0.5
    inputs = convert_cells(model, inputs[:1], reference)
    rows, absent = _view_bits(inputs), _view_bits(as_array(reference.rows[:1], inputs.dtype))
    present = _expand_masks(kept, None, rows.dtype)[0]
    buffers, target = [np.empty(present.shape, rows.dtype) for _ in range(threads)], np.zeros(1, np.int64)
    value = PREDICTION if model.task == "regression" else "log_probability"

    def evaluate_tile(buffer: np.ndarray) -> None:
        fill(present, rows, absent, buffer)
        outputs = _evaluate_rows(model, forward, buffer.view(inputs.dtype).reshape(-1, *inputs.shape[1:]), batch)
        convert_outputs(outputs.reshape(1, batch, 1, -1), target, None, value, model)

    def run() -> float:
        start = time.perf_counter()
        for _ in run_tasks(evaluate_tile, buffers, threads):
            pass
        took = (time.perf_counter() - start) / batch / threads
        return took if (model.most_rows or batch) >= batch else math.inf

    return run


def takes_columns(game: Game) -> bool:
    """Return whether rows are composed by columns: for data frames, which use columns without a copy. Rows of an array
    are contiguous in memory, as users mostly have them: trees are a tenth faster on these."""
    reference = game.reference
    if game.features.cells.ndim != 1 or reference.own is not None or reference.given is not None:
        return False
    return game.model.framework == "function" and getattr(game.model.module, "table", None) is not None


def _view_bits(rows: np.ndarray) -> np.ndarray:
    """Return rows (n, *input_shape) of numbers as the bits of their cells, (n, cells) of integers of equal width."""
    return rows.view(f"i{rows.itemsize}").reshape(len(rows), -1)


def _map_cells(features: Features) -> np.ndarray | None:
    """Return the feature of each cell, d where it is never masked; None where cells are the features."""
    cells = features.cells.ravel()
    if features.d == len(cells) and (cells == np.arange(features.d)).all():
        return None
    return np.where(cells < 0, features.d, cells)


def _expand_masks(masks: np.ndarray, columns: np.ndarray | None, width: np.dtype) -> np.ndarray:
    """Convert masks (a, b, d) bool to bits of cells, (a, b, cells) of integers of that width: 0 masked, -1 kept."""
    present = np.negative(masks, dtype=width, casting="unsafe")
    if columns is None:
        return present
    always = np.full((*masks.shape[:2], 1), -1, width)
    return np.take(np.concatenate([present, always], axis=2), columns, axis=2)


def fill(present: np.ndarray, rows: np.ndarray, absent: np.ndarray, out: np.ndarray) -> None:
    """Write `rows` where kept, else `absent`, to `out`, bitwise: exact and seven times as fast as np.where."""
    np.bitwise_and(present, rows ^ absent, out=out)
    np.bitwise_xor(out, absent, out=out)


def fill_columns(present: np.ndarray, rows: np.ndarray, absent: np.ndarray, out: np.ndarray) -> None:
    """Write as `fill` does by columns: out (cells x instances x coalitions, M), in runs of M cells."""
    (count, cells), width = rows.shape, len(absent)
    mask, kept, other = present.transpose(2, 0, 1), rows.T, absent.T
    if width < MIN_RUN_ROWS:
        fill(mask[..., None], kept[..., None, None], other[:, None, None], out.reshape(cells, count, -1, width))
        return
    runs = np.empty((cells, count, 2, width), rows.dtype)
    runs[:, :, 0], runs[:, :, 1] = kept[..., None], other[:, None]
    indices = 2 * np.arange(cells * count).reshape(cells, count, 1) + (mask == 0)
    np.take(runs.reshape(-1, width), indices.ravel(), axis=0, out=out, mode="clip")


def _build_forward(model: Classifier, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from rows to a network's outputs, or to probabilities or predictions, (n, outputs)."""
    if model.framework != "function":
        return model.module if threads == 1 else model.module.run_once
    function = function_predictions if model.task == "regression" else function_probabilities
    return functools.partial(_query, function, model)


def _evaluate_rows(
    model: Classifier, forward: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, limit: int
) -> np.ndarray:
    """Return outputs (n, outputs) of rows; with fewer rows per call than the limit once memory ran out."""

    def run(limit: int) -> np.ndarray:
        if len(rows) <= limit:
            return forward(rows)
        return np.concatenate([forward(rows[at : at + limit]).copy() for at in range(0, len(rows), limit)])

    return halve(model, min(limit, len(rows)), run)


def _query(function: Callable, model: Classifier, rows: np.ndarray) -> np.ndarray:
    return function(model.module, rows, model.architecture)


def convert_outputs(
    outputs: np.ndarray, targets: np.ndarray, full: np.ndarray | None, value: str, model: Classifier
) -> np.ndarray:
    """Convert outputs (a, b, M, classes) of a tile to values (a, b), as torch_execution.score_on_device."""
    outputs = outputs.astype(np.float64, copy=False)
    if model.framework == "function":
        return _convert_function(outputs, targets, full, value)
    if model.task == "multilabel":
        outputs, targets = select_label(outputs, targets)
    if outputs.shape[3:] != (2,) or value not in ("log_probability", "probability"):
        return score(outputs, targets, full, value)
    # The softmax of two is the sigmoid of their difference.
    sign = np.where(targets == 0, 1.0, -1.0).reshape(-1, 1, 1)
    with np.errstate(invalid="ignore", over="ignore"):  # check_finite reports non-finite values
        other = (outputs[..., 1] - outputs[..., 0]) * sign
        log_probs = -(np.log1p(np.exp(-np.abs(other))) + np.maximum(other, 0))  # a quarter of logaddexp's time
        average = log_probs[:, :, 0]
        if log_probs.shape[2] > 1:
            average = np.logaddexp.reduce(log_probs, axis=2) - math.log(log_probs.shape[2])
    return np.exp(average) if value == "probability" else average


def _convert_function(outputs: np.ndarray, targets: np.ndarray, full: np.ndarray | None, value: str) -> np.ndarray:
    """Convert probabilities or predictions (a, b, M, outputs) of a function to values (a, b), as `convert_outputs`."""
    if value in ("probability", PREDICTION):  # averaged directly, in a tenth of the time of their logarithms
        count = outputs.shape[2]
        average = (np.ones(count) @ outputs) / count if count > 1 else outputs[:, :, 0]
        return np.take_along_axis(average, targets.reshape(-1, 1, 1), 2)[..., 0]
    with np.errstate(divide="ignore"):
        return score(np.log(outputs), targets, full, value, logits=False)
