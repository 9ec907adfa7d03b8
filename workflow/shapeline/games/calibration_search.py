"""The search for a model's fastest verified backend and batch, in numpy, among candidates of any framework."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shapeline.errors import first_line
from shapeline.games.execution import CALIBRATION_SECONDS, TOLERANCE, ExecutionBackend

log = logging.getLogger(__name__)
MOMENT = 0.1  # seconds of a call that the calibration can afford
BETTER = 0.98  # of the seconds per row so far: what is not below is no better
NEARLY = 1.02  # within this ratio of the fastest, the smaller batch is better: its buffers stay in the cache


@dataclass(frozen=True)
class Candidate:
    """A backend: its largest difference to the plain model, most rows of a call, and its seconds per row."""

    difference: float
    most_rows: Callable[[], int]
    step: Callable[[int], Callable[[], float]]


@dataclass(frozen=True)
class Search:
    """How a framework's backends are searched.

    shares: of CALIBRATION_SECONDS, when each backend's search ends. refusals: what a backend that the model cannot take
    raises. smallest: rows of the first batch; sure: up to so many rows are tried whatever the time; stride: from one
    batch to the next. measured: seconds that a batch is measured for. few_rows: below, two worse batches in a row may
    be an accident on a busy machine. turns: in which the leaders are compared. nearly: see NEARLY; in_order: of near
    ones the earlier backend is better whatever its batch. in_time: a backend whose search would begin after its end
    is left out. worth: of a backend that is better for other reasons than speed, how many times as slow it may be.
    """

    shares: Sequence[float]
    refusals: tuple[type[Exception], ...]
    smallest: int
    sure: int
    stride: int
    measured: float
    few_rows: int
    turns: int
    nearly: float = NEARLY
    in_order: bool = False
    in_time: bool = False
    worth: Mapping[str, float] = field(default_factory=dict)


Key = tuple[str, int]  # a backend and its rows a call


@dataclass(frozen=True)
class _Tried:
    """What was measured so far, by backend and batch: seconds per row, and the steps, to measure them again."""

    seconds: dict[Key, float]
    steps: dict[Key, Callable[[], float]]
    differences: dict[str, float]


def search(names: Sequence[str], offer: Callable[[str], Candidate], plan: Search, began: float) -> ExecutionBackend:
    """Return the fastest backend that does not differ from the plain one, the first; offer: candidates by name."""
    tried = _Tried({}, {}, {})
    for name, share in zip(names, plan.shares, strict=True):
        end = began + share * CALIBRATION_SECONDS
        if plan.in_time and tried.seconds and time.perf_counter() > end:
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
        tried.differences[name] = candidate.difference
        _try_batches(name, candidate, plan, tried, end)
    leaders = _leaders(names, tried.seconds, plan)
    for _ in range(plan.turns):  # in turns, so that a passing disturbance decides nothing
        for key in leaders:
            if time.perf_counter() < began + CALIBRATION_SECONDS:
                tried.seconds[key] = min(tried.seconds[key], tried.steps[key]())
    return _choose(names, tried, plan)


def _try_batches(name: str, candidate: Candidate, plan: Search, tried: _Tried, end: float) -> None:
    """Measure a backend at larger and larger batches, until two in a row are worse or its time is over."""
    best, worse, batch = math.inf, 0, plan.smallest
    while batch <= candidate.most_rows() and (worse < 2 or batch <= min(plan.few_rows, MOMENT / best)):
        if batch > plan.sure and time.perf_counter() > end:
            break
        step = candidate.step(batch)
        seconds = fastest(step, batch, plan.measured)
        tried.seconds[name, batch], tried.steps[name, batch] = seconds, step
        worse = 0 if seconds < BETTER * best else worse + 1
        best, batch = min(best, seconds), plan.stride * batch


def _leaders(names: Sequence[str], seconds: dict[Key, float], plan: Search) -> list[Key]:
    """Return what is measured again: the best batches per backend, or the best of all with the best per backend."""
    ranked = sorted(seconds, key=seconds.__getitem__)
    by_backend = {name: [key for key in ranked if key[0] == name] for name in names}
    if plan.in_order:
        return [key for keys in by_backend.values() for key in keys[:2]]
    return list({*ranked[:3], *(key for keys in by_backend.values() for key in keys[:1])})


def _choose(names: Sequence[str], tried: _Tried, plan: Search) -> ExecutionBackend:
    counted = {key: seconds / plan.worth.get(key[0], 1.0) for key, seconds in tried.seconds.items()}
    limit = plan.nearly * min(counted.values())
    near = [key for key, seconds in counted.items() if seconds <= limit]
    place = {name: place for place, name in enumerate(names)}
    name, batch = min(near, key=lambda key: (place[key[0]] if plan.in_order else 0, key[1], counted[key]))
    return ExecutionBackend(name, batch, 1 / tried.seconds[name, batch], tried.differences[name])


def fastest(step: Callable[[], float], batch: int, least: float) -> float:
    """Return seconds per row: the best of repetitions after a warm-up; least: in seconds."""
    started, best = time.perf_counter(), math.inf
    for _ in range(20):
        best = min(best, step())
        if time.perf_counter() - started > max(least, 2.5 * best * batch):
            break
    return best


def difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference of log-probabilities, relative below -1: float32 logits of 30 differ by 1e-5 from rounding."""
    with np.errstate(invalid="ignore"):  # of two logarithms of 0
        return float((np.abs(actual - expected) / np.abs(expected).clip(min=1)).max())
