"""A cache hands back the very numbers that were evaluated, asks for the rest only, and survives what jobs do to it."""

import multiprocessing
import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shapeline import designs, graphs
from shapeline.engine.cache import Cache, key_of, log, overlap

WRITERS = 4
SECONDS = 0.25  # that a value takes


class Game:
    """A made-up value of each (instance, target, coalition), equal bit for bit in any batch; notes what it is asked."""

    def __init__(self, instances, targets, masks):
        self.instances, self.targets, self.masks = np.asarray(instances), np.asarray(targets), masks
        self.asked = []

    def truth(self) -> np.ndarray:
        weights = np.random.default_rng(self.masks.shape[1]).integers(1, 2**40, self.masks.shape[1])
        return (1 + 10 * self.instances + self.targets)[:, None] / (1 + self.masks @ weights)

    def evaluate(self, rows, columns) -> tuple[np.ndarray, float]:
        self.asked.append((rows.tolist(), columns.tolist()))
        return self.truth()[np.ix_(rows, columns)], SECONDS * len(rows) * len(columns)

    def ask(self, cache) -> tuple[np.ndarray, int]:
        values, reused, seconds = cache.values(self.instances, self.targets, self.masks, self.evaluate)
        assert seconds.tolist() == (SECONDS * reused).tolist()
        return values, reused.sum()


def coalitions(K: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((K, d)) < 0.5


def visible(folder) -> list:
    return list(folder.rglob("*.parquet"))


@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 16, 63, 64, 65, 784, 800])
def test_reused_values_are_the_same_numbers_to_the_last_bit(tmp_path, d):
    masks = np.unique(coalitions(300, d), axis=0)
    first = Game([5, 3, 9], [0, 1, 1], masks)
    values, reused = first.ask(Cache(tmp_path, "key"))
    assert reused == 0
    assert values.tobytes() == first.truth().tobytes()
    # Another job asks for some of them, in another order, of some instances.
    second = Game([9, 5], [1, 0], masks[np.random.default_rng(1).permutation(len(masks))[: len(masks) // 2 + 1]])
    values, reused = second.ask(Cache(tmp_path, "key"))
    assert second.asked == []
    assert reused == values.size
    assert values.tobytes() == second.truth().tobytes()


def test_only_what_is_missing_is_evaluated(tmp_path):
    masks = np.unique(coalitions(60, 9), axis=0)
    Game([1, 2], [0, 0], masks[10:]).ask(Cache(tmp_path, "key"))
    Game([3], [0], masks[20:]).ask(Cache(tmp_path, "key"))
    wanted = Game([1, 3, 2, 4, 1], [0, 0, 0, 0, 1], masks)  # the last one: a known instance, another target
    values, reused, _ = Cache(tmp_path, "key").values(wanted.instances, wanted.targets, masks, wanted.evaluate)
    everything, K = list(range(len(masks))), len(masks)
    assert sorted(wanted.asked) == [([0, 2], everything[:10]), ([1], everything[:20]), ([3, 4], everything)]
    assert reused.tolist() == [K - 10, K - 20, K - 10, 0, 0]
    assert (values == wanted.truth()).all()
    assert Game(wanted.instances, wanted.targets, masks).ask(Cache(tmp_path, "key"))[1] == 5 * K


def test_a_handle_sees_what_others_write_after_it_was_made(tmp_path):
    one, other = Cache(tmp_path, "key"), Cache(tmp_path, "key")
    for seed in range(3):
        game = Game([1, 2], [0, 0], coalitions(20, 12, seed))
        assert game.ask(one)[1] == 0
        assert game.ask(other)[1] == 40


def test_masks_of_another_width_with_equal_bytes_are_other_coalitions(tmp_path):
    wide = np.zeros((1, 16), bool)
    wide[0, :3] = True
    for d in (16, 12, 9):
        game = Game([1], [0], wide[:, :d])
        assert game.ask(Cache(tmp_path, "key"))[1] == 0


def test_another_key_never_shares(tmp_path):
    game = Game([1, 2], [0, 1], coalitions(30, 10))
    game.ask(Cache(tmp_path, "one"))
    assert game.ask(Cache(tmp_path, "two"))[1] == 0
    assert game.ask(Cache(tmp_path, "one"))[1] == 60


def test_the_key_changes_with_every_file_and_fact(tmp_path):
    files = [tmp_path / "weights", tmp_path / "arrays"]
    files[0].write_bytes(b"w"), files[1].write_bytes(b"a")
    keys = [key_of(files, {"value": "logit", "reference": {"kind": "blur"}})]
    assert keys[0] == key_of(files[::-1], {"reference": {"kind": "blur"}, "value": "logit"})
    keys.append(key_of(files, {"value": "probability", "reference": {"kind": "blur"}}))
    files[0].write_bytes(b"v")
    keys.append(key_of(files, {"value": "logit", "reference": {"kind": "blur"}}))
    keys.append(key_of(files[:1], {"value": "logit", "reference": {"kind": "blur"}}))
    assert len(set(keys)) == 4


@pytest.mark.parametrize(("n", "K"), [(2, 0), (0, 5), (0, 0)])
def test_nothing_asked_is_nothing_done(tmp_path, n, K):
    game = Game(np.arange(n), np.zeros(n, int), coalitions(K, 6))
    values, reused = game.ask(Cache(tmp_path, "key"))
    assert values.shape == (n, K)
    assert (reused, game.asked, visible(tmp_path)) == (0, [], [])


def test_numbers_that_are_not_finite_come_back_as_they_were(tmp_path):
    odd = np.array([[np.nan, np.inf, -np.inf, -0.0, 5e-324]])
    masks = np.eye(5, dtype=bool)
    for expected in (0, 5):
        values, reused, _ = Cache(tmp_path, "key").values([1], [0], masks, lambda rows, columns: (odd, 1.0))
        assert (values.tobytes(), reused.tolist()) == (odd.tobytes(), [expected])


def test_a_failure_keeps_what_was_evaluated_before_it(tmp_path):
    masks = coalitions(20, 40)
    Game([1], [0], masks[:10]).ask(Cache(tmp_path, "key"))
    game = Game([1, 2], [0, 0], masks)

    def fails_second(rows, columns):
        if game.asked:
            raise MemoryError
        return game.evaluate(rows, columns)

    with pytest.raises(MemoryError):
        Cache(tmp_path, "key").values(game.instances, game.targets, masks, fails_second)
    made = sum(len(rows) * len(columns) for rows, columns in game.asked)
    assert game.ask(Cache(tmp_path, "key"))[1] == 10 + made
    assert not list(tmp_path.rglob("*.tmp"))


def _cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def _emptied(path):
    path.write_bytes(b"")


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4  # among the values, which fill most of the file
    path.write_bytes(content)


def _foreign(path):
    pq.write_table(pa.table({"x": [1, 2]}), path)


@pytest.mark.parametrize("harm", [_cut, _emptied, _flipped, _foreign])
def test_a_damaged_file_is_told_once_left_out_and_left_alone(tmp_path, caplog, harm):
    log.propagate = True
    masks = coalitions(200, 30)
    Game([1, 2, 3], [0, 1, 0], masks).ask(Cache(tmp_path, "key"))
    (path,) = visible(tmp_path)
    harm(path)
    content = path.read_bytes()
    game = Game([1, 2, 3], [0, 1, 0], masks)
    cache = Cache(tmp_path, "key")
    values, reused = game.ask(cache)
    assert reused == 0
    assert (values == game.truth()).all()
    assert game.ask(cache)[1] == values.size  # from the file written in its place
    assert path.read_bytes() == content
    assert [path.name in record.getMessage() for record in caplog.records] == [True]


def test_a_file_that_vanishes_is_evaluated_again(tmp_path, monkeypatch):
    game = Game([1, 2], [0, 0], coalitions(30, 8))
    cache = Cache(tmp_path, "key")
    game.ask(cache)
    read = cache._read

    def too_late(path, kind):
        path.unlink()
        return read(path, kind)

    monkeypatch.setattr(cache, "_read", too_late)
    values, reused = game.ask(cache)
    assert reused == 0
    assert (values == game.truth()).all()


def _work(folder: str, number: int, start, told) -> None:
    """A job: half of its coalitions are its own, half those of all; it tells how many values were wrong."""
    start.wait()
    cache, wrong = Cache(folder, "key"), 0
    for turn in range(12):
        masks = np.concatenate([coalitions(40, 20, seed=turn), coalitions(40, 20, seed=100 * number + turn)])
        game = Game(np.arange(turn % 3, 6), np.zeros(6 - turn % 3), masks)
        wrong += (game.ask(cache)[0] != game.truth()).sum()
    told.put(int(wrong))


def test_jobs_that_write_at_the_same_time_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(WRITERS), context.Queue()
    jobs = [context.Process(target=_work, args=(str(tmp_path), i, start, told)) for i in range(1, WRITERS + 1)]
    for job in jobs:
        job.start()
    assert [told.get(timeout=60) for _ in jobs] == [0] * WRITERS
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * WRITERS
    cache = Cache(tmp_path, "key")
    for number in range(1, WRITERS + 1):
        for turn in range(12):
            for seed in (turn, 100 * number + turn):
                game = Game(np.arange(turn % 3, 6), np.zeros(6 - turn % 3), coalitions(40, 20, seed))
                values, reused = game.ask(cache)
                assert (reused, game.asked) == (values.size, [])
                assert (values == game.truth()).all()
    assert not list(tmp_path.rglob("*.tmp"))


def _die_before_the_name(folder: str) -> None:
    os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
    Game([1, 2], [0, 0], coalitions(50, 11)).ask(Cache(folder, "key"))


def test_a_killed_writer_leaves_nothing_that_a_reader_sees(tmp_path):
    job = multiprocessing.get_context("spawn").Process(target=_die_before_the_name, args=(str(tmp_path),))
    job.start()
    job.join(60)
    assert job.exitcode == -signal.SIGKILL
    assert [file.suffix for file in (tmp_path / "key").iterdir()] == [".tmp"]  # it was in the midst of writing
    assert visible(tmp_path) == []
    game = Game([1, 2], [0, 0], coalitions(50, 11))
    values, reused = game.ask(Cache(tmp_path, "key"))
    assert reused == 0
    assert (values == game.truth()).all()


def test_a_missing_folder_is_made_only_to_keep_something(tmp_path):
    cache = Cache(tmp_path / "not" / "there", "key")
    assert not (tmp_path / "not").exists()
    assert Game([1], [0], coalitions(5, 5)).ask(cache)[1] == 0
    assert len(visible(tmp_path)) == 1


def test_a_value_that_two_files_have_took_its_seconds_once_also_in_a_draw(tmp_path):
    masks = np.unique(coalitions(40, 9), axis=0)
    Game([1], [0], masks[:20]).ask(Cache(tmp_path, "key"))
    Game([1, 2], [0, 0], masks).ask(Cache(tmp_path, "key"))  # has 20 again, for both instances miss the others
    assert len(visible(tmp_path)) > 1
    assert Game([1, 2], [0, 0], masks).ask(Cache(tmp_path, "key"))[1] == 2 * len(masks)
    wanted = np.stack([masks[:30], masks[-30:], masks[5:35]])
    values, reused, seconds = Cache(tmp_path, "key").drawn(
        np.array([1, 2, 3]), np.zeros(3, int), wanted, lambda rows, own: (np.ones(own.shape[:2]), 1.0)
    )
    assert (reused.tolist(), seconds.tolist()) == ([30, 30, 0], [30 * SECONDS, 30 * SECONDS, 0.0])
    assert (values[2] == 1).all()


def test_a_file_holds_little_more_than_its_numbers(tmp_path):
    game = Game(np.arange(15), np.zeros(15), coalitions(20_000, 16))
    game.ask(Cache(tmp_path, "key"))
    (path,) = visible(tmp_path)
    assert path.stat().st_size < 1.05 * 20_000 * (15 * 8 + 2)


@pytest.mark.parametrize("d", [3, 10, 40])
def test_l_and_c_of_order_1_on_a_chain_share_all_their_coalitions(d):
    chain = graphs.chain(d)
    table = overlap({"l": designs.l_shapley(chain, order=1).masks, "c": designs.c_shapley(chain, order=1).masks})
    assert table.loc["c", "new"] == 0
    assert table.loc["c", "l"] == table.loc["l", "c"] == table.loc["c", "evaluations"] == table.loc["l", "evaluations"]


def test_overlap_counts_what_is_asked_new_and_shared():
    bits = np.eye(4, dtype=bool)
    asked = {"a": bits[[0, 1, 1]], "b": bits[[1, 2]], "c": bits[[0, 1, 2]]}
    table = overlap(asked)
    assert list(table.columns) == ["evaluations", "new", "a", "b", "c"]
    assert table.to_numpy().tolist() == [[3, 2, 2, 1, 2], [2, 1, 1, 2, 2], [3, 0, 2, 2, 3]]
    backwards = overlap(dict(reversed(asked.items())))
    assert backwards["new"].sum() == table["new"].sum() == 3
