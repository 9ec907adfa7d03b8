"""Calibration of a model's execution: fastest verified backend and batch, and baselines of integer columns."""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shapeline.errors import MethodFailure, ShapelineError, first_line
from shapeline.games import execution
from shapeline.games.execution import CALIBRATION_SECONDS, TOLERANCE, ExecutionBackend
from shapeline.games.features import Features, build
from shapeline.games.game import Game, as_array, share_reference
from shapeline.games.references import Reference
from shapeline.games.windows import MAX_WIDTH
from shapeline.models.classifier import PREPARED, Classifier

log = logging.getLogger(__name__)
MAX_PATCH_ROWS = 1024  # rows per call of a module that batches them by their number of kept patches
WINDOWED = ("window_size", "windows", "from_pooled")  # attributes of a token module with a local receptive field
PROBED_ROWS = 16  # rows evaluated both as integers and as real numbers
EQUAL_TOLERANCE = 1e-9  # outputs within this share of the largest one are equal


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference) -> execution.ExecutionBackend:
    """Return the fastest verified backend and batch of the model on its device, in about a second for a small model.

    inputs: some of the data. A backend is verified against the plain model on masked rows and the reference, at two
    batch sizes, to 1e-5 in log-probability (relative below -1). Timings include composing rows, model and value. A
    module that splits batches itself (`rows_a_call`) is run plain.
    """
    inputs = as_array(inputs)
    if rows := limit_rows(model, reference):
        backend = _calibrate_batches(
            Game(model, share_reference(reference, inputs), None, backend=execution.ExecutionBackend(batch=rows)),
            inputs[:1],
        )
    else:
        backend = execution.import_backend(model).calibrate(model, inputs, share_reference(reference, inputs))
    declared = inputs.dtype == np.int32 and all(hasattr(model.module, name) for name in WINDOWED)
    if declared and model.task == "classification" and model.module.window_size <= MAX_WIDTH:
        backend = _try_windows(Game(model, share_reference(reference, inputs), None, backend=backend), inputs[:1])
    log.info("backend %s, %d rows a call: %s rows/s", backend.name, backend.batch, f"{backend.rate:,.0f}")
    return backend


def prefer_graph(
    backend: execution.ExecutionBackend, model: Classifier, graph: Classifier, inputs: np.ndarray, reference: Reference
) -> execution.ExecutionBackend:
    """Return the given backend, or "onnx" where the network's graph gives the same values and is about as fast."""
    inputs = as_array(inputs)
    reference = share_reference(reference, inputs)
    rows = execution.mask_rows(inputs, reference, count=64)
    try:
        outputs = [_evaluate(candidate, rows) for candidate in (graph, model)]
        differs = measure_difference(*outputs)
        if not differs <= execution.TOLERANCE:
            raise execution.BackendRefused(f"log-probabilities differ by {differs:.1e}")
        by_graph = execution.import_backend(graph).calibrate(graph, inputs, reference, differs)
    except (execution.BackendRefused, MethodFailure, RuntimeError) as refusal:
        log.info("backend onnx left out: %s", refusal)
        return backend
    log.info("backend onnx, %d rows a call: %s rows/s", by_graph.batch, f"{by_graph.rate:,.0f}")
    return by_graph if execution.MAX_GRAPH_SLOWDOWN * by_graph.rate > backend.rate else backend


def _evaluate(model: Classifier, rows: np.ndarray) -> np.ndarray:
    return model.predict(rows)[:, None] if model.task == "regression" else model.log_probs(rows)


def is_current(
    backend: execution.ExecutionBackend, model: Classifier, inputs: np.ndarray, reference: Reference
) -> bool:
    """Return whether a backend calibrated before gives the first row's outputs of the model as it is now.

    Its device, attributes or hooks may have changed since; if it is not, what was prepared for the model is dropped.
    """
    row, regression = as_array(inputs)[:1], model.task == "regression"
    expected = _evaluate(model, row)
    target = expected.argmax(axis=1)
    whole = Features("whole", (1,), np.zeros(row.shape[1:], np.int32))
    value = "prediction" if regression else "log_probability"
    game = Game(model, share_reference(reference, row), whole, value, backend)
    try:
        found = game.values(row, np.ones((1, 1), bool), None if regression else target)
    except (execution.BackendRefused, MethodFailure, RuntimeError):
        found = np.full((1, 1), np.nan)
    if measure_difference(found, expected[:, target]) <= execution.TOLERANCE:
        return True
    PREPARED.pop(model.module, None)
    return False


def limit_rows(model: Classifier, reference: Reference) -> int | None:
    """Return the rows per call where the module, or omission of patches, splits batches; else None."""
    return MAX_PATCH_ROWS if reference.leaves_out else getattr(model.module, "rows_a_call", None)


def choose_backend(game: Game, inputs: np.ndarray, precision: str, compiled: bool) -> execution.ExecutionBackend:
    """Return the verified torch backend that an experiment requests by precision and compile. Raises ShapelineError
    where the model refuses it or differs by more than TOLERANCE (BFLOAT16_TOLERANCE)."""
    name = "_".join(["compiled"] * compiled + ["bfloat16"] * (precision == "bfloat16"))
    inputs, model = as_array(inputs), game.model
    backend = execution.ExecutionBackend(name, game.backend.batch)
    differs = execution.import_backend(model).measure_backend(game.having(backend=backend), inputs)
    allowed = execution.BFLOAT16_TOLERANCE if precision == "bfloat16" else execution.TOLERANCE
    if not differs <= allowed:
        key = "precision: bfloat16" if precision == "bfloat16" else "compile: true"
        raise ShapelineError(
            f"engine: {key} changes log-probabilities of model '{model.architecture}' by {differs:.1e}, more than "
            f"{allowed:g}; remove the key"
        )
    return dataclasses.replace(backend, difference=differs)


def _calibrate_batches(game: Game, document: np.ndarray) -> execution.ExecutionBackend:
    """Return the backend of a model that splits batches inside a call, with its rate on masks of all sizes."""
    if document.ndim == 4:
        patch = getattr(game.model.module, "patch", 1)
        features = build({"kind": "patch", "size": patch}, {"input_shape": document.shape[1:]})
    else:
        features = Features("word", document.shape[1:], np.arange(document.shape[1], dtype=np.int32))
    shares = np.linspace(0, 1, 256)[:, None]
    masks = np.random.default_rng(0).random((256, features.d)) < shares
    began = time.perf_counter()
    game.having(features=features).values(document, masks)
    return dataclasses.replace(game.backend, rate=len(masks) / (time.perf_counter() - began))


def _try_windows(game: Game, document: np.ndarray) -> execution.ExecutionBackend:
    """Return the game's backend, or "windows" where that gives the same log-probabilities and is faster."""
    backend, cells = game.backend, np.arange(document.shape[1], dtype=np.int32)
    features = Features("word", (len(cells),), cells)
    masks = np.random.default_rng(0).random((256, features.d)) < 0.5
    masks[:2] = [[False], [True]]
    values, rates = {}, {}
    for trial in (backend, dataclasses.replace(backend, name="windows")):
        candidate = game.having(features=features, backend=trial)
        for _ in range(3):  # the first is a warm-up; the faster of the others counts
            began = time.perf_counter()
            values[trial.name] = candidate.values(document, masks)
            rate = len(masks) / (time.perf_counter() - began)
            rates[trial.name] = max(rate, rates.get(trial.name, 0.0))
    differs = measure_difference(values["windows"], values[backend.name])
    if not differs <= execution.TOLERANCE or rates["windows"] < rates[backend.name]:
        log.info("backend windows left out: differs by %.1e, %.0f rows/s", differs, rates["windows"])
        return backend
    return execution.ExecutionBackend("windows", backend.batch, rates["windows"], differs)


def fit_reference(model: Classifier, inputs: np.ndarray, reference: Reference) -> tuple[Classifier, Reference]:
    """Return the model and a reference that fits its integer columns: reals, or rounded where integers are codes.

    Raises ShapelineError for a network that cuts the decimals of the reference.
    """
    if model.framework != "function":
        _check_whole_numbers(model, inputs, reference.rows)
    table = getattr(model.module, "table", None)
    if model.framework != "function" or table is None or reference.rows is None:
        return model, reference
    integer = [index for index, column in enumerate(table.columns) if column.is_whole]
    cells = reference.rows[:, integer]
    if not (np.abs(cells - np.rint(cells)) > 0).any():
        return model, reference
    real = dataclasses.replace(model, module=dataclasses.replace(model.module, table=table.convert_to_reals()))
    if are_outputs_equal((model, inputs), (real, inputs)):
        return real, reference
    log.info("reference: columns of whole numbers are rounded, which model '%s' takes alone", model.architecture)
    rows = reference.rows.copy()
    rows[:, integer] = np.rint(cells)
    return model, dataclasses.replace(reference, rows=rows)


def _check_whole_numbers(model: Classifier, inputs: np.ndarray, rows: np.ndarray | None) -> None:
    """Raise ShapelineError where a network cuts the decimals of baseline rows of whole numbers, such as token ids."""
    if rows is None or np.isnan(rows).any() or (rows == np.trunc(rows)).all() or (inputs % 1).any():
        return
    is_constant = are_outputs_equal((model, rows[:1]), (model, inputs[:1]))
    if not is_constant and are_outputs_equal((model, rows), (model, np.trunc(rows))):
        raise ShapelineError(
            f"reference: model '{model.architecture}' takes whole numbers and the mean is none; for token ids give "
            "features='word' (in a configuration a dataset of texts), for other codes background rows, or one row as "
            "reference"
        )


def are_outputs_equal(*pairs: tuple[Classifier, np.ndarray]) -> bool:
    """Return whether two models with inputs give equal outputs; False where one refuses its inputs."""
    try:
        first, second = (
            np.nan_to_num((model.predict if model.task == "regression" else model.log_probs)(inputs[:PROBED_ROWS]))
            for model, inputs in pairs
        )
    except ShapelineError:
        return False
    return np.abs(first - second).max() <= EQUAL_TOLERANCE * np.abs(first).max()


MAX_CALL_SECONDS = 0.1  # limit of one call during calibration
MIN_IMPROVEMENT = 0.98  # ratio of seconds per row below which a larger batch counts as faster
NEAR_RATIO = 1.02  # within this ratio of the fastest, the smaller batch is better: its buffers stay in the cache


@dataclass(frozen=True)
class Candidate:
    """A backend: its largest difference to the plain model, maximum rows per call, and a timed step."""

    difference: float
    most_rows: Callable[[], int]
    step: Callable[[int], Callable[[], float]]


@dataclass(frozen=True)
class Search:
    """The search plan of a framework's backends.

    shares: fractions of CALIBRATION_SECONDS at which each backend's search ends. refusals: exceptions of a backend that
    refuses the model. smallest: rows of the first batch; sure: rows that are tried regardless of time; stride: factor
    between batches. measured: seconds per timed batch. few_rows: number of rows below which two slower batches in a row
    may be noise. turns: rounds in which the fastest are compared. nearly: see NEAR_RATIO; in_order: of near ones the
    earlier backend is better regardless of its batch. in_time: a backend whose search would begin after its end is
    omitted. worth: permitted slowdown of a backend that is preferred for other reasons than speed.
    """

    shares: Sequence[float]
    refusals: tuple[type[Exception], ...]
    smallest: int
    sure: int
    stride: int
    measured: float
    few_rows: int
    turns: int
    nearly: float = NEAR_RATIO
    in_order: bool = False
    in_time: bool = False
    worth: Mapping[str, float] = field(default_factory=dict)


Key = tuple[str, int]  # a backend and its rows per call


@dataclass(frozen=True)
class _Trials:
    """Measurements by backend and batch: seconds per row, and the steps for repeated timing."""

    seconds: dict[Key, float]
    steps: dict[Key, Callable[[], float]]
    differences: dict[str, float]


def search(names: Sequence[str], offer: Callable[[str], Candidate], plan: Search, began: float) -> ExecutionBackend:
    """Return the fastest backend that agrees with the first, the plain one; offer: from name to candidate."""
    trials = _Trials({}, {}, {})
    for name, share in zip(names, plan.shares, strict=True):
        end = began + share * CALIBRATION_SECONDS
        if plan.in_time and trials.seconds and time.perf_counter() > end:
            log.info("backend %s left out: no time to try it", name)
            continue
        try:
            candidate = offer(name)
        except plan.refusals as refusal:
            log.info("backend %s left out: %s", name, first_line(refusal))
            continue
        if not candidate.difference <= TOLERANCE:
            log.info("backend %s left out: log-probabilities differ by %.1e", name, candidate.difference)
            continue
        trials.differences[name] = candidate.difference
        _try_batches(name, candidate, plan, trials, end)
    ranked = sorted(trials.seconds, key=trials.seconds.__getitem__)
    by_backend = [[key for key in ranked if key[0] == name] for name in names]  # the best first
    best = [key for keys in by_backend for key in keys[: 2 if plan.in_order else 1]]
    leaders = best if plan.in_order else list({*ranked[:3], *best})
    for _ in range(plan.turns):  # alternating, so that a temporary disturbance does not decide
        for key in leaders:
            if time.perf_counter() < began + CALIBRATION_SECONDS:
                trials.seconds[key] = min(trials.seconds[key], trials.steps[key]())
    return _choose(names, trials, plan)


def _try_batches(name: str, candidate: Candidate, plan: Search, trials: _Trials, end: float) -> None:
    """Measure a backend at growing batches, until two in a row are worse or its time is over."""
    best, worse, batch = math.inf, 0, min(plan.smallest, candidate.most_rows())  # fewer once memory ran out
    while batch <= candidate.most_rows() and (worse < 2 or batch <= min(plan.few_rows, MAX_CALL_SECONDS / best)):
        if batch > plan.sure and time.perf_counter() > end:
            break
        step = candidate.step(batch)
        seconds = time_fastest(step, batch, plan.measured)
        trials.seconds[name, batch], trials.steps[name, batch] = seconds, step
        worse = 0 if seconds < MIN_IMPROVEMENT * best else worse + 1
        best, batch = min(best, seconds), plan.stride * batch


def _choose(names: Sequence[str], trials: _Trials, plan: Search) -> ExecutionBackend:
    counted = {key: seconds / plan.worth.get(key[0], 1.0) for key, seconds in trials.seconds.items()}
    limit = plan.nearly * min(counted.values())
    near = [key for key, seconds in counted.items() if seconds <= limit]
    index = {name: index for index, name in enumerate(names)}
    name, batch = min(near, key=lambda key: (index[key[0]] if plan.in_order else 0, key[1], counted[key]))
    return ExecutionBackend(name, batch, 1 / trials.seconds[name, batch], trials.differences[name])


def time_fastest(step: Callable[[], float], batch: int, least: float) -> float:
    """Return seconds per row: the best of repetitions that last `least` seconds or more."""
    started, best = time.perf_counter(), math.inf
    for _ in range(20):
        best = min(best, step())
        if time.perf_counter() - started > max(least, 2.5 * best * batch):
            break
    return best


def measure_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference of log-probabilities, relative below -1, as rounding grows with float32 logits."""
    with np.errstate(invalid="ignore"):  # of two logarithms of 0
        return float((np.abs(actual - expected) / np.abs(expected).clip(min=1)).max())
