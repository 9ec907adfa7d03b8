"""`shapeline.shapley_values`: any set function, by all designs, counted, vector-valued, interrupted, in parallel."""

import collections
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar

import joblib
import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import shapeline
from shapeline.errors import ShapelineError
from shapeline.games import StoredGame
from shapeline.methods.registry import METHODS
from tests.unit.value_tables import masks_of

DESIGNS = sorted(name for name, method in METHODS.items() if method.is_design)


def table_game(n: int, outputs: int | None = None, seed: int = 0):
    """A game of random values."""
    table = np.random.default_rng(seed).normal(size=(2**n,) if outputs is None else (2**n, outputs))
    return lambda masks: table[masks @ (1 << np.arange(n))]


def smooth_game(n: int, outputs: int, seed: int = 0):
    weights = np.random.default_rng(seed).normal(size=(n, outputs))
    return lambda masks: np.tanh(masks @ weights / 2) + (masks[:, :1] & masks[:, 1:2])


def by_definition(game, n: int) -> np.ndarray:
    """Shapley values (n, ...) by the sum over all coalitions without a player."""
    values = np.asarray(game(masks_of(n)))
    scores = []
    for i in range(n):
        without = [r for r in range(2**n) if not r >> i & 1]
        sizes = [r.bit_count() for r in without]
        weight = [math.factorial(s) * math.factorial(n - s - 1) / math.factorial(n) for s in sizes]
        scores.append(np.tensordot(weight, values[[r | 1 << i for r in without]] - values[without], 1))
    return np.array(scores)


class Counted:
    """A game that counts the evaluations of each coalition, and stops after a given number."""

    def __init__(self, game, most: float = math.inf):
        self.game, self.most, self.asked = game, most, collections.Counter()

    def __call__(self, masks):
        for mask in masks:
            if self.asked.total() >= self.most:
                raise KeyboardInterrupt
            self.asked[mask.tobytes()] += 1
        return self.game(masks)


@pytest.mark.parametrize("n", range(1, 11))
def test_auto_is_exact_where_it_may_evaluate_all(n):
    game = Counted(table_game(n))
    found = shapeline.shapley_values(game, n, evaluations=2**n)
    assert found.scores[0] == pytest.approx(by_definition(game.game, n), abs=1e-12)
    assert found.about.method["method"] == "shapley" and found.evaluations[0] == 2**n == game.asked.total()


def test_auto_samples_where_all_are_too_many():
    found = shapeline.shapley_values(table_game(8), 8, evaluations=40)
    assert found.about.method["method"] == "gp_shapley" and found.evaluations[0] == 40
    assert shapeline.shapley_values(table_game(8), 8).about.method["method"] == "shapley"
    assert shapeline.shapley_values(table_game(9), 9).evaluations[0] == 36
    many = shapeline.shapley_values(lambda masks: masks.sum(axis=1), 30, evaluations=2**14 + 2)
    assert many.about.method["method"] == "kernel_shap"


@pytest.mark.parametrize("method", DESIGNS)
@pytest.mark.parametrize("outputs", [None, 3])
def test_every_design_counts_what_it_evaluates(method, outputs):
    graph = {"graph": "chain"} if "graph" in METHODS[method].parameters.model_fields else {}
    for n, evaluations in ((6, 40), (10, 13 if METHODS[method].omitted_ends else 100)):
        game, limit = Counted(smooth_game(n, outputs or 1)), evaluations if METHODS[method].sampled else None
        found = shapeline.shapley_values(game, n, limit, method, seed=3, **graph)
        assert found.scores.shape == (outputs or 1, n) and np.isfinite(found.scores).all()
        assert (found.evaluations == len(game.asked)).all()
        if METHODS[method].sampled:  # with those that show whether the game is repeatable
            assert game.asked.total() <= evaluations


@pytest.mark.parametrize(
    "method", sorted(name for name in DESIGNS if METHODS[name].is_efficient({}) and name != "unbiased_kernel_shap")
)
def test_additive_games_are_exact(method):
    weights = np.arange(1.0, 8.0)
    graph = {"graph": "complete"} if method == "myerson" else {}
    limit = 60 if METHODS[method].sampled else None
    found = shapeline.shapley_values(lambda masks: masks @ weights - 2, 7, limit, method, **graph)
    assert found.scores[0] == pytest.approx(weights) and found.value_empty[0] == -2


@pytest.mark.parametrize("evaluations", [24, 40, 90, 300, 1500])
def test_scores_of_outputs_add_up_and_their_intervals_are_their_own(evaluations):
    n, game = 11, smooth_game(11, 4)
    scaled = Counted(lambda masks: game(masks) * [1, 1e-3, 10, 1])
    found = shapeline.shapley_values(scaled, n, evaluations, "gp_shapley", seed=5)
    total = shapeline.shapley_values(lambda masks: scaled.game(masks).sum(axis=1), n, evaluations, "gp_shapley", seed=5)
    assert set(scaled.asked.values()) == {1}
    assert found.scores.sum(axis=0) == pytest.approx(total.scores[0], abs=1e-9)
    exact = by_definition(scaled.game, n).T
    error = np.sqrt(np.mean((found.scores - exact) ** 2, axis=1))
    if evaluations > 3 * n:
        assert found.standard_error.shape == (4, n)
        predicted = np.sqrt(np.mean(found.standard_error**2, axis=1))
        assert (predicted / error > 0.3).all() and (predicted / error < 10).all()
    assert (error < 0.5 * np.abs(exact).max(axis=1)).all()


def test_outputs_with_a_constant_sum_are_explained():
    """Probabilities sum to 1, which chooses nothing: the least linear output does."""
    n, game = 10, smooth_game(10, 3)

    def softmax(masks):
        return np.exp(game(masks)) / np.exp(game(masks)).sum(axis=1, keepdims=True)

    found, exact = shapeline.shapley_values(softmax, n, 120), by_definition(softmax, n).T
    assert found.scores.sum(axis=0) == pytest.approx(0, abs=1e-12)
    assert np.abs(found.scores - exact).max() < 0.05 * np.abs(exact).max()
    assert (found.standard_error > 0).all()
    linear = shapeline.shapley_values(lambda masks: masks @ np.eye(10)[:, :3] * [1, 2, 3], n, 60)
    assert (
        linear.scores == pytest.approx(np.eye(10)[:3] * [[1], [2], [3]], abs=1e-9) and not linear.standard_error.any()
    )


@pytest.mark.parametrize("spend", [{"evaluations": 100}, {"budget": {"error": "20%"}}, {"budget": {"top": 1}}])
def test_a_constant_output_beside_others_has_no_error(spend):
    n, game = 12, smooth_game(12, 2)
    found = shapeline.shapley_values(
        lambda masks: np.column_stack([game(masks) * [1, 1e6], np.full(len(masks), 7.0)]),
        n,
        method="gp_shapley",
        **spend,
    )
    assert not found.scores[2].any() and not found.standard_error[2].any() and found.standard_error[:2].all()
    assert found.warning == [None] * 3


def test_an_error_target_ends_all_outputs_together():
    n, game = 12, smooth_game(12, 3)
    found = shapeline.shapley_values(game, n, budget={"error": 0.02})
    assert len(set(found.evaluations)) == 1 and found.evaluations[0] < 2**n and found.warning == [None] * 3
    assert (np.sqrt(np.mean(found.standard_error**2, axis=1)) <= 0.02).all()
    assert (np.sqrt(np.mean((found.scores - by_definition(game, n).T) ** 2, axis=1)) < 0.04).all()
    assert shapeline.shapley_values(game, n, budget={"error": 1e-9, "max_budget": 5}).evaluations[0] == 60


@pytest.mark.parametrize("budget", [{"error": 1e-3}, {"top": 2}])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_an_error_target_holds_for_few_players(n, budget):
    game = table_game(n)
    found = shapeline.shapley_values(game, n, budget=budget)
    assert found.evaluations[0] <= 2**n and found.scores.shape == (1, n)
    if "error" in budget:
        exact = shapeline.shapley_values(game, n, method="shapley").scores
        np.testing.assert_allclose(found.scores, exact, atol=5e-3)


@pytest.mark.parametrize("method", ["gp_interactions", "sample_interactions", "shapley_interactions"])
def test_interactions_of_outputs_add_up(method):
    n, game, limit = 9, smooth_game(9, 3), 150 if METHODS[method].sampled else None
    found = shapeline.shapley_values(game, n, limit, method)
    total = shapeline.shapley_values(lambda masks: game(masks).sum(axis=1), n, limit, method)
    exact = shapeline.shapley_values(game, n, method="shapley_interactions")
    assert found.interaction_values.sum(axis=0) == pytest.approx(total.interaction_values[0], abs=1e-9)
    assert found.scores.sum(axis=0) == pytest.approx(total.scores[0], abs=1e-9)
    ends = game(masks_of(n)[[0, -1]])
    assert found.scores.sum(axis=1) + found.interaction_values.sum(axis=1) == pytest.approx(ends[1] - ends[0])
    if method == "gp_interactions":
        error = np.sqrt(np.mean((found.interaction_values - exact.interaction_values) ** 2, axis=1))
        predicted = np.sqrt(np.mean(found.interactions_standard_error**2, axis=1))
        assert (error < 0.2 * np.abs(exact.interaction_values).max(axis=1)).all() and (predicted / error > 0.3).all()


def test_interactions_add_up():
    n, game = 7, table_game(7)
    found = shapeline.shapley_values(game, n, method="shapley_interactions")
    both = found.interactions()
    assert len(both) == 21 and {"first", "second", "score"} <= set(both)
    ends = game(masks_of(n)[[0, -1]])
    assert found.scores.sum() + found.interaction_values.sum() == pytest.approx(ends[1] - ends[0])


def test_an_interrupted_run_evaluates_each_coalition_once(tmp_path):
    n, file, link = 9, tmp_path / "new" / "values.parquet", tmp_path / "link"
    link.symlink_to(file)
    game = Counted(table_game(n, 2), most=25)
    with pytest.raises(KeyboardInterrupt):
        shapeline.shapley_values(game, n, 60, cache=file, batch=1, identity="nine")
    assert len(pd.read_parquet(file)) == 25
    game.most = math.inf
    found = shapeline.shapley_values(game, n, 60, cache=link, identity="nine")
    assert link.is_symlink()
    whole = shapeline.shapley_values(game.game, n, 60)
    assert set(game.asked.values()) == {1} and game.asked.total() == 60 == found.evaluations[0]
    assert found.details[0] == {"reused": 25}
    assert (found.scores == whole.scores).all() and (found.standard_error == whole.standard_error).all()
    assert [path.name for path in file.parent.iterdir()] == ["values.parquet"]
    stored = pd.read_parquet(file)
    masks = np.array([[digit == "1" for digit in text] for text in stored["coalition"]])
    assert np.array(stored["value"].to_list()) == pytest.approx(game.game(masks))


def test_a_slow_evaluation_is_stored_before_the_next_begins(tmp_path):
    import time

    def slow(masks):
        assert len(masks) == 1
        time.sleep(0.6)
        return [1.0]

    shapeline.shapley_values(slow, 2, cache=tmp_path / "values.parquet")


def test_a_cache_of_another_game_is_refused(tmp_path):
    file = tmp_path / "values.parquet"
    shapeline.shapley_values(table_game(5), 5, 20, cache=file, identity="first")
    for arguments, words in {
        (("n_players", 6),): "holds a game of 5 players and this one has 6; name another file",
        (("identity", "second"),): "another game ('first', not 'second'); name another file",
    }.items():
        given = {"n_players": 5} | dict(arguments)
        with pytest.raises(ShapelineError, match=re.escape(words)):
            shapeline.shapley_values(table_game(given["n_players"]), evaluations=20, cache=file, **given)
    with pytest.raises(ShapelineError, match=r"holds \[.*\] for the coalition .* gives \[.*, .*\]; name another"):
        shapeline.shapley_values(table_game(5, 2), 5, 30, cache=file, seed=2)
    file.unlink()
    shapeline.shapley_values(lambda masks: 1e9 + masks[:, 0], 5, 20, cache=file)
    with pytest.raises(ShapelineError, match="name another file, or say by identity"):
        shapeline.shapley_values(lambda masks: 1e9 + masks[:, 1], 5, 20, cache=file)
    file.unlink()
    for row in (1.0, 1.0, 2.0):  # a global in the place of the game's input, as in a loop of a script
        game = Counted(lambda masks: masks.all(axis=1) * row)  # noqa: B023
        if row == 1.0:
            shapeline.shapley_values(game, 5, 20, cache=file)
            continue
        with pytest.raises(
            ShapelineError, match=r"\[1.0\] for the coalition of all players and the game gives \[2.0\]"
        ):
            shapeline.shapley_values(game, 5, 20, cache=file)
        assert game.asked.total() <= 2
        assert shapeline.shapley_values(game, 5, 20, cache=file, identity="noise").scores.sum() == pytest.approx(1)
    with pytest.raises(ShapelineError, match=r"holds \[.*\] for the coalition .* gives \[.*, .*\]; name another"):
        shapeline.shapley_values(table_game(5, 2), 5, 20, cache=file)
    file.unlink()
    first = Counted(lambda masks: masks[:, 0].astype(float))  # of equal ends
    shapeline.shapley_values(first, 5, 20, cache=file)
    again = Counted(lambda masks: time.sleep(0.04) or masks[:, 0].astype(float))
    found = shapeline.shapley_values(again, 5, 20, cache=file)
    assert found.details[0] == {"reused": 20} and again.asked.total() == 5
    with pytest.raises(ShapelineError, match=r"for the coalition {.*} and the game gives \[[01].0\]; name another"):
        shapeline.shapley_values(lambda masks: masks[:, 1].astype(float), 5, 20, cache=file)
    stored = pq.read_table(file)
    repeated = pa.concat_tables([stored, stored])
    missing = stored.set_column(1, "value", pa.array([[math.nan]] * len(stored)))
    unnamed = stored.replace_schema_metadata({"shapeline": "[1]"})
    for table in (repeated, missing, unnamed, None):
        file.write_text("no table") if table is None else pq.write_table(table, file)
        with pytest.raises(ShapelineError, match=r"is not a file of values .*; name another file, or remove it if"):
            shapeline.shapley_values(table_game(5), 5, 20, cache=file, identity="five")


def test_the_identity_of_a_game_does_not_vouch_for_a_file_without_one(tmp_path):
    file, masks = tmp_path / "values.parquet", masks_of(5)
    shapeline.shapley_values(table_game(5), 5, 20, cache=file)
    same, other = (StoredGame(masks, table_game(5, seed=seed)(masks)) for seed in (0, 1))
    with pytest.raises(ShapelineError, match=r"holds .* and the game gives .*; name another file"):
        shapeline.shapley_values(other, evaluations=20, cache=file)
    assert shapeline.shapley_values(same, evaluations=20, cache=file).details[0] == {"reused": 20}


def test_calls_at_the_same_time_share_a_cache(tmp_path):
    file, game, began = tmp_path / "values.parquet", table_game(9), []
    running, ended = (tmp_path / f".values.parquet.{process}.tmp" for process in (os.getppid(), 10**9))

    def call(other, seed):
        def outer(masks):
            if not began:
                began.append(shapeline.shapley_values(other, 9, 40, "kernel_shap", seed=1, cache=file))
                running.touch(), ended.touch()
            return game(masks)

        began.clear(), file.unlink(missing_ok=True)
        shapeline.shapley_values(outer, 9, 40, "kernel_shap", seed=seed, cache=file)

    call(game, 2)
    assert len(pd.read_parquet(file)) > 45 and running.exists() and not ended.exists()
    with pytest.raises(ShapelineError, match="another process has written values of another game"):
        call(table_game(9, seed=1), 2)


def test_threads_that_share_a_cache_lose_no_value(tmp_path):
    file, game = tmp_path / "values.parquet", Counted(table_game(9))
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda seed: shapeline.shapley_values(game, 9, 40, seed=seed, cache=file), range(12)))
    assert len(pd.read_parquet(file)) == len(game.asked) > 150
    assert os.listdir(tmp_path) == [file.name]


def test_processes_and_batches_change_nothing(tmp_path):
    weights = np.random.default_rng(1).normal(size=(10, 2))
    alone = shapeline.shapley_values(lambda masks: np.tanh(masks @ weights), 10, 70)
    for settings in ({"n_jobs": 2}, {"n_jobs": 2, "cache": tmp_path / "a.parquet"}, {"batch": 7}, {"batch": 10**6}):
        other = shapeline.shapley_values(lambda masks: np.tanh(masks @ weights), 10, 70, **settings)
        assert np.abs(other.scores - alone.scores).max() < 1e-12, settings


def test_the_time_of_a_call_does_not_grow_with_the_known_values():
    """16,000 calls of one coalition took 127 s, as each inferred the type of all keys."""
    began = time.process_time()
    shapeline.shapley_values(lambda masks: masks.sum(axis=1), 300, 8000, "sample_shapley", batch=1)
    assert time.process_time() - began < 4  # 0.8 s; it was 7


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e200, 1e300])
@pytest.mark.parametrize("outputs", [None, 3])
def test_the_unit_of_the_values_changes_nothing(scale, outputs):
    game = table_game(9, outputs)
    scale = 2.0 ** round(math.log2(scale))  # no rounding
    found, other = (
        shapeline.shapley_values(one, 9, 41)
        for one in (game, lambda masks: np.ldexp(game(masks), int(math.log2(scale))))
    )
    assert np.isfinite(found.scores).all() and (other.scores / scale == found.scores).all()
    assert other.standard_error / scale == pytest.approx(found.standard_error)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of joblib, about a lost process
def test_a_game_that_cannot_be_sent_to_processes_is_one_line():
    lock = threading.Lock()

    def locked(masks):
        with lock:
            return masks.sum(axis=1)

    assert shapeline.shapley_values(locked, 9).scores[0] == pytest.approx(1)
    with pytest.raises(
        ShapelineError, match=r"cannot be sent to other processes \(TypeError: cannot pickle .*; give n_jobs=1"
    ):
        shapeline.shapley_values(locked, 9, n_jobs=2)
    with pytest.raises(ShapelineError, match="a process that evaluated the game ended without an answer"):
        shapeline.shapley_values(lambda masks: os._exit(1) if masks.shape[1] else None, 9, n_jobs=2)


def test_games_are_evaluated_inside_calls_of_joblib():
    """Joblib runs a call within a call in a thread of the process, which must not end itself."""
    game = table_game(9)

    def outer(masks):
        return game(masks) + 0 * shapeline.shapley_values(lambda inner: inner[:, 0], 2, n_jobs=2).scores[0, 0]

    alone = shapeline.shapley_values(game, 9, 20).scores
    assert (shapeline.shapley_values(outer, 9, 20, n_jobs=2).scores == alone).all()
    with joblib.parallel_config(backend="multiprocessing"):
        found = shapeline.shapley_values(partial(np.dot, b=np.ones(9)), 9, 20, n_jobs=2)
    assert found.scores == pytest.approx(1)


KILLED = """
import os, signal, time, shapeline
main = os.getpid()
def game(masks):
    if os.getpid() != main:
        os.write(1, f"{os.getpid()} ".encode())
        os.kill(main, signal.SIGKILL)
        time.sleep(300)
    return masks.sum(axis=1)
shapeline.shapley_values(game, 9, n_jobs=2)
"""


def test_processes_of_a_game_end_with_the_one_that_started_them(tmp_path):
    with open(tmp_path / "written", "w") as file:
        assert subprocess.run([sys.executable, "-c", KILLED], stdout=file).returncode == -signal.SIGKILL
    called = [int(number) for number in (tmp_path / "written").read_text().split()]
    processes = [psutil.Process(number) for number in called if psutil.pid_exists(number)]
    assert called and not psutil.wait_procs(processes, timeout=20)[1]


def test_tensors_and_masked_arrays_are_read():
    weights = torch.arange(1.0, 9.0, requires_grad=True)
    found = shapeline.shapley_values(lambda masks: torch.as_tensor(masks).float() @ weights, 8)
    assert found.scores[0] == pytest.approx(np.arange(1, 9))
    with pytest.raises(ShapelineError, match="the value is nan"):
        shapeline.shapley_values(lambda masks: np.ma.masked_array(masks.sum(axis=1) / 1, masks.sum(axis=1) == 2), 8)


class OnDevice:
    """An array of CuPy, as numpy sees it: it has `get` and converts in no other way."""

    __cuda_array_interface__: ClassVar = {}

    def __init__(self, array):
        self.array = array

    def get(self):
        return self.array

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


KINDS = {
    "cupy": OnDevice,
    "bfloat16": lambda array: torch.tensor(array).bfloat16(),
    "with a gradient": lambda array: torch.tensor(array, requires_grad=True),
    "list of tensors": lambda array: [torch.tensor(each) for each in array],
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_other_libraries_are_read(kind):
    """Values are eighths, which bfloat16 has exactly."""
    wrap, weights = KINDS[kind], np.array([0.25, 0.5, -0.125])
    found = shapeline.shapley_values(lambda masks: wrap(masks @ weights), 3)
    np.testing.assert_allclose(found.scores[0], weights, atol=1e-12)
    rows = np.array([[1.0, 2.0, 4.0]])
    found = shapeline.explain(lambda rows: wrap(rows @ weights), wrap(rows), reference="zero", value="prediction")
    np.testing.assert_allclose(found.scores, rows * weights, atol=1e-6)


def test_failing_evaluations_are_tried_again_and_then_reported(tmp_path):
    game, tried = table_game(9), collections.Counter()

    def flaky(masks):
        tried[masks.tobytes()] += 1
        if tried[masks.tobytes()] < 3:
            raise OSError("connection lost")
        return game(masks)

    exact = shapeline.shapley_values(game, 9, 40)
    assert (shapeline.shapley_values(flaky, 9, 40, retries=2).scores == exact.scores).all()

    def bad(masks):
        return np.where(masks.sum(axis=1) == 1, np.nan, game(masks))

    with pytest.raises(ShapelineError, match=r"coalition \{player \d\}: the value is nan"):
        shapeline.shapley_values(bad, 9, 40)
    found = shapeline.shapley_values(bad, 9, 40, on_error="record", cache=tmp_path / "values.parquet")
    assert found.status == ["evaluation failed"] and np.isnan(found.scores).all()
    assert repr(found).endswith("no scores")
    assert found.error[0].startswith("game: 9 of 40 evaluations failed, first coalition {player ")
    assert len(pd.read_parquet(tmp_path / "values.parquet")) == 31 and "9 of 40" in repr(found)
    found = shapeline.shapley_values(
        lambda masks: None if (masks.sum(axis=1) == 1).any() else game(masks), 9, 40, on_error="record"
    )
    assert re.match(
        r"game: 9 of 40 evaluations failed, first coalition \{player \d\}: the game returned None", found.error[0]
    )
    for settings in ({"batch": 7}, {"n_jobs": 2}, {"n_jobs": 2, "batch": 5}):
        other = shapeline.shapley_values(bad, 9, 40, on_error="record", **settings)
        assert other.error[0].startswith("game: 9 of 40 evaluations failed"), settings
        with pytest.raises(ShapelineError, match="the value is nan"):
            shapeline.shapley_values(bad, 9, 40, **settings)


def test_a_failure_at_the_ends_is_recorded_and_keeps_its_traceback():
    def bad(masks):
        return [None if mask.all() else {}["size"] for mask in masks] if masks.all(axis=1).any() else masks[:, 0]

    found = shapeline.shapley_values(bad, 9, 40, on_error="record")
    assert found.status == ["evaluation failed"] and "1 of 40 evaluations failed" in found.error[0]
    with pytest.raises(ShapelineError, match=r"KeyError: 'size' \(test_games_call.py, line \d+\)") as raised:
        shapeline.shapley_values(lambda masks: {}["size"], 9)
    assert isinstance(raised.value.__cause__, KeyError)


class MuteError(RuntimeError):
    def __str__(self):
        return self.missing


@pytest.mark.parametrize("name", ["identity", "n_players", "player_names", "output_names", "__call__"])
def test_a_property_or_an_error_without_a_message_that_fails_is_one_line(name):
    def fail(*_):
        raise MuteError

    attributes = {"__call__": lambda self, masks: masks[:, 0], name: fail if name == "__call__" else property(fail)}
    place = "" if name == "__call__" else rf"game\.{name}: "
    with pytest.raises(ShapelineError, match=rf"{place}MuteError \(test_games_call.py, line \d+\)") as raised:
        shapeline.shapley_values(type("Game", (), attributes)(), None if name == "n_players" else 3)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("settings", [{}, {"batch": 64}, {"on_error": "record"}, {"n_jobs": 2, "batch": 64}])
def test_calls_that_exceed_the_memory_become_smaller(settings, tmp_path):
    game = table_game(9)

    def large(masks):
        (tmp_path / f"{len(masks)} {os.getpid()} {time.monotonic_ns()}").touch()
        if len(masks) > 5:
            raise MemoryError
        return game(masks)

    assert (
        shapeline.shapley_values(large, 9, 400, **settings).scores == shapeline.shapley_values(game, 9, 400).scores
    ).all()
    assert len(list(tmp_path.iterdir())) < 300


RANDOM = np.random.default_rng(0)
UNREPEATABLE = {
    "random": lambda masks: masks.sum(axis=1) + RANDOM.normal(size=len(masks)) / 100,
    "random beside a large offset": lambda masks: 1e9 + masks.sum(axis=1) + RANDOM.normal(size=len(masks)) / 100,
    "one output": lambda masks: np.stack([masks.sum(axis=1), RANDOM.random(len(masks))], axis=1),
    "relative to the call": lambda masks: masks[:, 0] - masks.mean(),
    "by position": lambda masks: masks[:, 0] + np.random.default_rng(0).random(len(masks)),
}


@pytest.mark.parametrize("name", UNREPEATABLE)
@pytest.mark.parametrize("settings", [{"n_players": 4}, {"n_players": 12}, {"n_players": 12, "evaluations": 49}])
def test_a_game_that_is_not_repeatable_is_reported(name, settings):
    with pytest.warns(
        UserWarning, match=r"the game is not repeatable: the value of the coalition .* was .* and then .*; seed"
    ):
        found = shapeline.shapley_values(UNREPEATABLE[name], **settings)
    assert "not repeatable" in found.warning[-1] and "not repeatable" in repr(found)


@pytest.mark.parametrize("offset, is_rough", [(0, False), (1e11, False), (-1e14, True)])
def test_values_that_differ_by_little_more_than_rounding_are_reported(offset, is_rough):
    """Their errors are larger than intervals predict."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = shapeline.shapley_values(lambda masks: offset + smooth_game(12, 1)(masks), 12)
    assert ["rounding changes scores; subtract a constant" in str(one.message) for one in caught] == [True] * is_rough
    assert ("rounding" in repr(found)) == is_rough


def test_games_are_evaluated_again_within_their_time_and_number_of_evaluations(tmp_path):
    with pytest.warns(UserWarning, match="the game is not repeatable"):
        shapeline.shapley_values(UNREPEATABLE["random"], 12, budget=5, cache=tmp_path / "random")
    for settings, spare in (
        ({"evaluations": 48}, 0),
        ({"evaluations": 49}, 1),
        ({}, 4),
        ({"cache": tmp_path / "a"}, 0),
        ({"cache": tmp_path / "b", "budget": 5}, 1),  # of 60
    ):
        game = Counted(lambda masks: masks.sum(axis=1))
        shapeline.shapley_values(game, 12, **settings)
        assert game.asked.total() - len(game.asked) == spare, settings
    for seconds, spare in ((0.04, (1, 2)), (0.11, (0, 0))):
        slow = Counted(lambda masks, seconds=seconds: time.sleep(seconds * len(masks)) or masks.sum(axis=1))
        shapeline.shapley_values(slow, 2)
        assert spare[0] <= slow.asked.total() - 4 <= spare[1]


def test_a_game_has_a_printed_description():
    game = table_game(4, 2)

    class Game:
        n_players, player_names, output_names = 4, np.array(["a", "b", "c", "d"]), pd.Index(["accuracy", "recall"])

        def __call__(self, masks):
            return game(masks)

    found = shapeline.shapley_values(Game())
    assert found.feature_names == ("a", "b", "c", "d") and found.target_names == ["accuracy", "recall"]
    assert "2 outputs, 4 players" in repr(found) and "shapley" in repr(found)
    assert found[:, "b"].scores.shape == (2, 1) and len(found.to_frame()) == 8
    with pytest.raises(ShapelineError, match="n_players is 5 and the game has 4"):
        shapeline.shapley_values(Game(), 5)


def test_a_game_of_few_outputs_prints_a_column_per_output():
    weights = np.array([[1.0, -300.0], [2.0, 100.0]])
    found = shapeline.shapley_values(
        lambda masks: masks @ weights, player_names=["a", "b"], output_names=["accuracy", "milliseconds"]
    )
    lines = [line.split() for line in repr(found).splitlines()[-3:]]
    assert lines == [["accuracy", "milliseconds"], ["a", "+1", "-300"], ["b", "+2", "+100"]]
    many = shapeline.shapley_values(lambda masks: np.repeat(masks @ weights, 3, axis=1), 2)
    assert "mean |score|" in repr(many)
    large = shapeline.shapley_values(lambda masks: masks.sum(axis=1) * 1.0, 14, 60)
    assert "and 2 more players" in repr(large)


def test_progress_counts_evaluations():
    told = []
    shapeline.shapley_values(table_game(9), 9, 40, progress=lambda *now: told.append(now), batch=19)
    assert told == [(1, 1), (2, 0), (21, 19), (40, 0)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"game": 3}, "game is an int; give a function"),
        ({"n_players": None}, "n_players is missing"),
        ({"n_players": 0}, "n_players is 0; give a whole number of at least 1"),
        ({"n_players": True}, "n_players is True"),
        ({"n_players": 2.5}, "n_players is 2.5"),
        ({"n_players": ["a", "b", "c", "d"]}, "n_players is a list; give names as player_names="),
        ({"method": "c_shapley"}, "features kind 'player': there is no graph; set graph to 'chain' or 'complete'"),
        ({"n_players": 2**40}, "n_players is 1099511627776 and can be at most 4194304; group"),
        ({"n_players": 40, "method": "shapley"}, "2^40 coalitions and at most d = 20"),
        ({"game": lambda masks: 1.0}, "returned float64 of shape () for masks of"),
        ({"game": lambda masks: [1.0, 1.0]}, "returned float64 of shape (2,)"),
        (
            {"game": lambda masks: None},
            "coalition of no players: the game returned None; return a finite value per row",
        ),
        ({"game": lambda masks: [10**400] * len(masks)}, "returned a list for masks of 1 coalition; return (1,)"),
        ({"game": lambda masks: [[1], [1, 2]]}, "returned a list for masks of 1"),
        ({"game": lambda masks: ["a", "b"]}, "returned <U1"),
        (
            {"game": lambda masks: pd.Series(masks[:, 0] / 1).sort_values(kind="stable")[::-1]},
            "the index of values is that of masks in another order",
        ),
        ({"game": lambda masks: 1 / 0}, "ZeroDivisionError: division by zero (test_games_call.py, line "),
        (
            {"game": lambda masks: np.where(masks[:, 0], 1.0, -1.79e308)},
            "the value is -1.79e+308, too large to subtract",
        ),
        (
            {"game": lambda masks: np.full(len(masks), np.inf)},
            "the value is inf; return a finite value per row of masks (1, 9)",
        ),
        ({"game": lambda mask: 1.0 if mask[0] else 0.0}, "(1, 9), as in lambda masks: [v(mask) for mask in masks]"),
        (
            {"method": "games.halves"},
            "unknown method 'games.halves'. A function of yours is named path/to/file.py:function",
        ),
        ({"n_players": None, "player_names": "abc"}, "n_players is missing; give their number, or a list"),
        ({"evaluations": 2}, "evaluations is 2 and gp_shapley needs 4 for 9 players; raise it"),
        ({"evaluations": 60, "method": "banzhaf"}, "60 and banzhaf always evaluates 512 coalitions of 9 players"),
        ({"evaluations": 40, "method": "sample_interactions"}, "evaluations is 40 and sample_interactions needs"),
        ({"evaluations": 0}, "evaluations is 0; give a whole number of at least 1"),
        ({"evaluations": 4.5}, "evaluations is 4.5"),
        ({"evaluations": 40, "budget": 4}, "budget and evaluations both set the cost; give one of them"),
        ({"player_names": "abcdefghi"}, "player_names is 'abcdefghi'; give a list of 9 names"),
        ({"player_names": ["a"] * 9}, "player_names has 'a' twice"),
        ({"player_names": ["a", "b"]}, "player_names has 2 names for 9 players"),
        ({"output_names": ["a", "b"]}, "output_names has 2 names for 1 output"),
        ({"method": "kernelshap"}, "Did you mean 'kernel_shap'?"),
        ({"method": ["shapley"]}, "method is a list; give the name of a method"),
        ({"method": smooth_game}, 'method is a function; give its file and name, "path/to/file.py:smooth_game"'),
        ({"game": lambda masks: [{}] * len(masks)}, "returned a list for masks of 1"),
        ({"method": "saliency"}, "saliency needs a model and its inputs; use one of"),
        ({"method": "kernel_shap", "size": 3}, "there is no parameter 'size'"),
        ({"n_samples": 30}, "there is no parameter 'n_samples'. Did you mean 'evaluations'?"),
        ({"perturbations_per_eval": 3}, "Did you mean 'batch'?"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"batch": 0}, "batch is 0"),
        ({"on_error": "skip"}, "on_error is 'skip'"),
        ({"method": "lime", "budget": {"error": 1}}, "lime cannot stop when good enough"),
        ({"player_names": set("abcdefghi")}, "give a list of 9 names"),
        ({"budget": "4"}, "budget is '4'; give a number above 0"),
        ({"cache": 3}, "cache: an int is no path; give the path of a file"),
        ({"n_players": None, "player_names": "abc"}, "n_players is missing"),
        ({"seed": 1, "random_state": 2}, "seed and random_state are the same thing"),
    ],
)
def test_mistakes_are_one_line(arguments, words):
    given = {"game": lambda masks: masks.sum(axis=1), "n_players": 9} | arguments
    with pytest.raises(ShapelineError, match=re.escape(words)) as raised:
        shapeline.shapley_values(**given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("batch", [None, 2, 3])
def test_outputs_in_the_place_of_coalitions_are_refused(batch):
    """Two outputs of two coalitions look alike either way round, and so does all of a game of one player."""
    game = smooth_game(3, outputs=2)
    for n in (1, 3):
        with pytest.raises(ShapelineError, match=re.escape("of shape (2, 1) for masks of 1 coalition; return (1,)")):
            shapeline.shapley_values(lambda masks, n=n: game(np.pad(masks, ((0, 0), (0, 3 - n)))).T, n, batch=batch)


@pytest.mark.parametrize("arguments", [{}, {"evaluations": 1000}, {"method": "kernel_shap"}, {"method": "lime"}])
def test_coalitions_that_memory_cannot_hold_are_one_line(arguments):
    with pytest.raises(ShapelineError, match="1048576 features exceed the memory; group") as raised:
        shapeline.shapley_values(lambda masks: masks.sum(axis=1), 2**20, **arguments)
    assert "\n" not in str(raised.value)


def test_a_long_estimation_is_announced_before_the_evaluations(monkeypatch):
    monkeypatch.setattr("shapeline.designs.gaussian_process.SLOW_SECONDS", 0)
    words = (
        r"1600 evaluations of 400 features need about \d+ s of linear algebra per explanation; kernel_shap is faster"
    )
    with pytest.warns(UserWarning, match=words), pytest.raises(ShapelineError, match="ZeroDivisionError"):
        shapeline.shapley_values(lambda masks: 1 / 0, 400)


@pytest.mark.parametrize("method, n", [("stratified_svarm", 8), ("sample_interactions", 7), ("leverage_shap", 9)])
def test_a_default_budget_is_enough_for_every_method(method, n):
    """Only the user's own number is refused, with the minimum."""
    found = shapeline.shapley_values(smooth_game(n, 1), n, method=method)
    least = {"leverage_shap": 4 * n}.get(method) or METHODS[method].count_least({}, n)
    assert 4 * n - 2 <= found.evaluations[0] <= least
    inputs = np.random.default_rng(0).normal(size=(2, n))
    explained = shapeline.explain(lambda rows: np.tanh(rows.sum(axis=1)), inputs, method, "zero", value="prediction")
    assert 4 * n - 2 <= max(explained.evaluations) <= least
    if least > 4 * n:
        with pytest.raises(ShapelineError, match=f"needs {least} for {n} players"):
            shapeline.shapley_values(smooth_game(n, 1), n, least - 1, method)


def test_an_array_of_names_tells_the_number_of_players():
    found = shapeline.shapley_values(lambda masks: masks @ [1.0, 2.0], player_names=np.array(["a", "b"]))
    assert found.feature_names == ("a", "b") and np.allclose(found.scores, [1, 2])


def test_a_path_that_is_a_folder_is_one_line(tmp_path):
    found = shapeline.shapley_values(lambda masks: masks[:, 0] * 1.0, 2)
    for call in (found.to_html, found.save):
        with pytest.raises(ShapelineError, match="is a folder; name a file"):
            call(tmp_path)
