"""Runs that take turns, so that a machine that others use too slows all of them alike, and what their times say."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

TURNS = 5
FEW, SLOW = 3, 3.0  # turns of a run that takes longer than so many seconds
# Seconds: the threads of the run before wait actively for a while, those of BLAS for a tenth; one thread leaves none.
PAUSE = 0.0 if os.environ.get("OMP_NUM_THREADS") == "1" else 0.2

Run = Callable[[], tuple[float, int]]  # -> seconds, evaluations


@dataclass(frozen=True)
class Times:
    """Seconds (turns,) of a run, NaN in the turns it left out, and the evaluations of one turn."""

    seconds: np.ndarray
    evaluations: int

    @property
    def rate(self) -> np.ndarray:
        return self.evaluations / self.seconds


def timed(call: Callable[[], int]) -> Run:
    """Return a run of a function that returns its evaluations."""

    def run() -> tuple[float, int]:
        start = time.perf_counter()
        evaluations = call()
        return time.perf_counter() - start, evaluations

    return run


def take_turns(runs: dict[str, Run], turns: int = TURNS, warm: bool = False) -> dict[str, Times]:
    """Return the times of each run, after a warm-up where needed; slow runs omit the last turns."""
    seconds = {name: np.full(turns, np.nan) for name in runs}
    evaluations: dict[str, int] = {}
    for run in () if warm else runs.values():
        run()
    for turn in range(turns):
        for name, run in runs.items():
            if turn < FEW or seconds[name][0] <= SLOW:
                time.sleep(PAUSE)
                seconds[name][turn], evaluations[name] = run()
    return {name: Times(seconds[name], evaluations[name]) for name in runs}


def spread(numbers: np.ndarray) -> tuple[float, float, float]:
    """Return the median and the 10th and 90th percentiles over the completed turns."""
    low, median, high = np.nanpercentile(numbers, [10, 50, 90])
    return float(median), float(low), float(high)


def times_as_fast(ours: Times, theirs: Times) -> tuple[float, float, float]:
    """Return the evaluations per second of `ours` over those of `theirs`, by turn: median, 10 and 90 %."""
    return spread(ours.rate / theirs.rate)
