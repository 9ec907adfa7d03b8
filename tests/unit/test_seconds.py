"""`seconds` are those of the method, independent of the machine's load and of the run."""

import time

import numpy as np
import pytest

import shapeline
from shapeline.attribution import run
from shapeline.attribution.attribution_job import (
    MAX_TIMING_PASSES,
    STABLE_PASSES,
    STABLE_SHARE,
    TIMING_SECONDS,
    _stabilise_seconds,
)
from shapeline.attribution.explanation import Explanation


def test_what_others_do_meanwhile_is_not_counted():
    began = run.start_clock()
    time.sleep(0.2)  # as a process runs_elsewhere whose processor another one has
    assert began(runs_elsewhere=False) < 0.1
    assert began(runs_elsewhere=True) >= 0.2


def test_the_wall_limits_what_several_threads_spend(monkeypatch):
    began, spent = run.start_clock(), time.process_time() + 100.0
    monkeypatch.setattr(run.time, "process_time", lambda: spent)
    assert began(runs_elsewhere=False) < 1.0


def test_waiting_for_a_function_is_part_of_its_cost():
    def asks_a_server(rows):
        time.sleep(0.05)
        return np.stack([1 - rows.mean(1), rows.mean(1)], 1)

    explanation = shapeline.explain(
        asks_a_server, np.full((1, 4), 0.5), "occlusion", features="column", reference=np.zeros(4), value="probability"
    )
    assert explanation.seconds[0] >= 0.05


def _one(seconds: list[float]) -> Explanation:
    n = len(seconds)
    zeros, words = np.zeros(n), ["ok"] * n
    return Explanation(
        np.zeros((n, 2)), zeros.astype(int), np.array(seconds), zeros, zeros, zeros, words, words, words, [{}] * n
    )


@pytest.mark.parametrize(
    ("total", "passes"),
    [(0.6 * TIMING_SECONDS, 2), (0.001 * TIMING_SECONDS, 2 + STABLE_PASSES), (2 * TIMING_SECONDS, 1), (0.0, 1)],
)
def test_short_explanations_are_repeated_and_the_fastest_counts(total, passes):
    first, made = _one([total / 2, total / 2]), []

    def again():
        made.append(1)
        return [_one([total / 4, total])]

    _stabilise_seconds([first], again, TIMING_SECONDS)
    assert len(made) == passes - 1
    assert first.seconds.tolist() == ([total / 4, total / 2] if passes > 1 else [total / 2] * 2)


@pytest.mark.parametrize(
    ("shorter", "passes"), [(2 * STABLE_SHARE, MAX_TIMING_PASSES), (0.5 * STABLE_SHARE, 1 + STABLE_PASSES)]
)
def test_passes_go_on_while_they_get_shorter_by_more_than_a_little(shorter, passes, monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)  # whatever else the machine does
    seconds = [0.001 * TIMING_SECONDS * (1 - shorter) ** number for number in range(MAX_TIMING_PASSES)]
    first, made = _one([seconds[0]]), []

    def again():
        made.append(1)
        return [_one([seconds[len(made)]])]

    _stabilise_seconds([first], again, TIMING_SECONDS)
    assert len(made) == passes - 1 and first.seconds[0] == seconds[passes - 1]


def test_passes_end_after_the_timing_period(monkeypatch):
    made = []
    monkeypatch.setattr(time, "perf_counter", lambda: 0.02 * len(made))  # whatever else the machine does

    def again():
        made.append(1)
        return [_one([0.0005 / 2 ** len(made)] * 2)]

    _stabilise_seconds([_one([0.0005, 0.0005])], again, 0.05)
    assert len(made) == 3
