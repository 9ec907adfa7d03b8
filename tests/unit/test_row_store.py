"""The row store: stored rows are read exactly, missing ones are computed, with any concurrent jobs."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shapeline.attribution import row_store
from shapeline.attribution.game_values import VALUES, ValueStore
from shapeline.attribution.row_store import ADDRESS, MAX_SEGMENTS, Table, digest_array, digest_frame, digest_rows, log
from shapeline.files import trim_folders

ROWS = pa.schema([("instance", pa.int64()), ("scores", pa.list_(pa.float32())), ("error", pa.string())])
WRITERS = 4
SECONDS = 0.25  # that a value takes


def rows_of(*addresses: str) -> pd.DataFrame:
    """Two rows per address, that follow from it."""
    names = [address for address in addresses for _ in range(2)]
    numbers = [float(int(digest_array(np.frombuffer(name.encode(), np.uint8))[:8], 16)) for name in names]
    scores = [np.array([number, place % 2, np.nan], np.float32) for place, number in enumerate(numbers)]
    return pd.DataFrame({ADDRESS: names, "instance": range(len(names)), "scores": scores, "error": None})


def keep(folder, *addresses: str) -> None:
    with Table(folder, ROWS) as table:
        table.append(rows_of(*addresses))


def check(found: pd.DataFrame, *addresses: str) -> None:
    assert sorted(found[ADDRESS].unique()) == sorted(addresses) and len(found) == 2 * len(addresses)
    for address, part in found.groupby(ADDRESS):
        for row, wanted in zip(part["scores"], rows_of(address)["scores"], strict=True):
            assert row.tobytes() == wanted.tobytes()


def segments(folder) -> list:
    return sorted(folder.rglob("*.parquet"))


def test_rows_are_read_unchanged_and_only_requested_ones(tmp_path):
    keep(tmp_path, "a", "b")
    keep(tmp_path, "c")
    check(Table(tmp_path, ROWS).read(["c", "a", "nowhere"]), "a", "c")
    assert Table(tmp_path / "empty", ROWS).read(["a"]).empty and not (tmp_path / "empty").exists()
    nothing = Table(None, ROWS)
    nothing.append(rows_of("a"))
    nothing.flush()
    assert nothing.read(["a"]).empty


def test_a_table_sees_what_others_write_after_it_was_opened(tmp_path):
    table = Table(tmp_path, ROWS)
    assert table.read(["a"]).empty
    keep(tmp_path, "a")
    check(table.read(["a"]), "a")


def test_quick_chunks_share_a_segment_and_slow_ones_are_written_at_once(tmp_path, monkeypatch):
    with Table(tmp_path, ROWS) as table:
        for name in "abc":
            table.append(rows_of(name))
        assert not segments(tmp_path)
    assert len(segments(tmp_path)) == 1
    monkeypatch.setattr(row_store, "FLUSH_SECONDS", 0)
    with Table(tmp_path, ROWS) as table:
        table.append(rows_of("d"))
        assert len(segments(tmp_path)) == 2  # before the next chunk begins


def test_a_failure_keeps_what_was_computed_before_it(tmp_path):
    with pytest.raises(MemoryError), Table(tmp_path, ROWS) as table:
        table.append(rows_of("a"))
        raise MemoryError
    check(Table(tmp_path, ROWS).read(["a", "b"]), "a")


def test_many_segments_become_one_with_each_address_once(tmp_path):
    names = [f"{number}" for number in range(MAX_SEGMENTS)]
    for name in names:
        keep(tmp_path, name, "shared")
    reader = Table(tmp_path, ROWS)
    reader.read(["0"])  # knows segments that are about to go
    keep(tmp_path, "last")
    assert len(segments(tmp_path)) == 1
    check(reader.read([*names, "shared", "last"]), *names, "shared", "last")


def _cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def _emptied(path):
    path.write_bytes(b"")


def _flipped(path):
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 4, len(content) // 2, 7):
        content[place] ^= 4
    path.write_bytes(content)


def _foreign(path):
    pq.write_table(pa.table({"x": [1, 2]}), path)


@pytest.mark.parametrize("harm", [_cut, _emptied, _flipped, _foreign])
def test_a_corrupt_segment_is_reported_once_and_left_out(tmp_path, caplog, harm):
    log.propagate = True
    keep(tmp_path, *(f"{number}" for number in range(200)))
    [path] = segments(tmp_path)
    harm(path)
    table = Table(tmp_path, ROWS)
    for _ in range(2):
        assert table.read(["0", "1"]).empty
    assert [path.name in record.getMessage() for record in caplog.records] == [True]


def test_a_full_disk_ends_no_job(tmp_path, caplog, monkeypatch):
    log.propagate = True

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(row_store.pq, "write_table", full)
    keep(tmp_path, "a")
    assert "rows cannot be kept for a later run" in caplog.text and not [*tmp_path.iterdir()]


def _work(folder: str, number: int, start, told) -> None:
    """A job: rows of its own and rows that all jobs compute, each read before it is written."""
    start.wait()
    row_store.FLUSH_SECONDS, wrong = 0, 0
    for turn in range(2 * MAX_SEGMENTS):
        wanted = [f"all {turn}", f"{number} {turn}"]
        with Table(folder, ROWS) as table:
            found = table.read(wanted)
            wrong += sum(len(part) != 2 for _, part in found.groupby(ADDRESS))
            table.append(rows_of(*(name for name in wanted if name not in set(found[ADDRESS]))))
    told.put(wrong)


def test_jobs_that_write_and_merge_at_the_same_time_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(WRITERS), context.Queue()
    jobs = [context.Process(target=_work, args=(str(tmp_path), i, start, told)) for i in range(WRITERS)]
    for job in jobs:
        job.start()
    assert [told.get(timeout=120) for _ in jobs] == [0] * WRITERS
    for job in jobs:
        job.join()
    turns = range(2 * MAX_SEGMENTS)
    names = [f"all {turn}" for turn in turns] + [f"{i} {turn}" for i in range(WRITERS) for turn in turns]
    check(Table(tmp_path, ROWS).read(names), *names)
    assert not list(tmp_path.rglob("*.tmp"))


def test_reading_all_rows_finds_those_merged_meanwhile(tmp_path):
    class Merged(Table):
        """A job merges the segments after this reader has listed them."""

        def _list_addresses(self, path):
            if len(list(tmp_path.glob("*"))) > 1:
                writer = Table(tmp_path, ROWS)
                writer._merge(writer._glob())
            return super()._list_addresses(path)

    keep(tmp_path, "a")
    keep(tmp_path, "b")
    check(Merged(tmp_path, ROWS).read_all(), "a", "b")


def _die_before_the_name(folder: str) -> None:
    os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
    with Table(folder, ROWS) as table:
        table.append(rows_of("a"))


def test_a_killed_writer_leaves_nothing_that_a_reader_sees(tmp_path):
    job = multiprocessing.get_context("spawn").Process(target=_die_before_the_name, args=(str(tmp_path),))
    job.start()
    job.join(60)
    assert job.exitcode == -signal.SIGKILL and [file.suffix for file in tmp_path.iterdir()] == [".tmp"]
    assert Table(tmp_path, ROWS).read(["a"]).empty


def test_the_tables_that_are_unused_for_longest_go_first(tmp_path):
    for number, name in enumerate(("scores/old", "scores/used", "values/new")):
        keep(tmp_path / name, "a")
        os.utime(tmp_path / name, (number, number))
    each = segments(tmp_path)[0].stat().st_size
    Table(tmp_path / "scores/old", ROWS).read(["a"])  # which makes it the last one used
    assert time.time() - os.stat(tmp_path / "scores/old").st_mtime < 60
    assert trim_folders(tmp_path, 3 * each + 10) == 0
    assert 0 < trim_folders(tmp_path, 2 * each + 10) < 2 * each
    assert {path.name for path in tmp_path.glob("*/*")} == {"old", "new"}


def test_the_digest_of_a_row_counts_every_cell_but_those_left_out():
    frame = pd.DataFrame(
        {"x": [1, 2], "scores": [np.zeros(2), np.ones(2)], "seconds": [0.1, 0.2], "error": [None, "no"]}
    )
    same = frame.assign(seconds=9.0)
    assert digest_rows(frame, ["seconds"]) == digest_rows(same, ["seconds"]) and digest_rows(frame) != digest_rows(same)
    assert digest_frame(frame, ["seconds"]) == digest_frame(same, ["seconds"]) != digest_frame(frame)
    for column, cells in (("x", [3, 2]), ("scores", [np.ones(2), np.ones(2)]), ("error", ["", "no"])):
        other = frame.assign(**{column: cells})
        assert digest_rows(other)[0] != digest_rows(frame)[0] and digest_rows(other)[1] == digest_rows(frame)[1]
        assert digest_frame(other) != digest_frame(frame) == digest_frame(frame.copy())
    assert digest_frame(frame) != digest_frame(frame.assign(scores=[np.zeros(3), np.ones(1)]))  # cut elsewhere
    assert digest_array(np.zeros(2)) != digest_array(np.zeros((2, 1))) != digest_array(np.zeros(2, np.float32))


# --- values of coalitions -----------------------------------------------------------------------------------------


class Game:
    """An invented value of each (instance, coalition), equal bit for bit in any batch; notes what it evaluates."""

    def __init__(self, instances, masks):
        self.instances, self.masks, self.evaluated = instances, masks, 0

    def truth(self) -> np.ndarray:
        return self.of(np.arange(len(self.instances)), self.masks)

    def of(self, rows, masks) -> np.ndarray:
        weights = np.random.default_rng(masks.shape[-1]).integers(1, 2**40, masks.shape[-1])
        return (1 + 10 * np.asarray(self.instances)[rows])[:, None] / (1 + masks @ weights)

    def evaluate(self, rows, masks) -> tuple[np.ndarray, float]:
        values = self.of(rows, masks)
        self.evaluated += values.size
        return values, SECONDS * values.size

    def ask(self, folder) -> tuple[np.ndarray, int]:
        store = ValueStore(Table(folder, VALUES, growing=True))
        values, reused, seconds = store.values([f"{i}" for i in self.instances], self.masks, self.evaluate)
        assert seconds == pytest.approx(SECONDS * reused) and self.evaluated == values.size - reused.sum()
        return values, reused.sum()


def coalitions(K: int, d: int, seed: int = 0) -> np.ndarray:
    return np.unique(np.random.default_rng(seed).random((K, d)) < 0.5, axis=0)


@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 16, 63, 64, 65, 784])
def test_reused_values_are_the_same_numbers_to_the_last_bit(tmp_path, d):
    masks = coalitions(300, d)
    first = Game([5, 3, 9], masks)
    values, reused = first.ask(tmp_path)
    assert reused == 0 and values.tobytes() == first.truth().tobytes()
    # Another job asks for some of them, in another order, of some instances, and for a sample of each one's own.
    some = masks[np.random.default_rng(1).permutation(len(masks))[: len(masks) // 2 + 1]]
    for wanted in (some, np.stack([some, some[::-1]])):
        second = Game([9, 5], wanted)
        values, reused = second.ask(tmp_path)
        assert reused == values.size and values.tobytes() == second.truth().tobytes()


def test_only_what_is_missing_is_evaluated(tmp_path):
    masks = coalitions(60, 9)
    Game([1, 2], masks[10:]).ask(tmp_path)
    Game([3], masks[20:]).ask(tmp_path)
    K, wanted = len(masks), Game([1, 3, 2, 4], masks)
    values, reused = wanted.ask(tmp_path)
    assert reused == (K - 10) + (K - 20) + (K - 10) and (values == wanted.truth()).all()
    assert Game([1, 3, 2, 4], masks).ask(tmp_path)[1] == 4 * K
    own = np.stack([masks, np.roll(masks, 1, axis=1)])  # of each its own sample, one of which is known
    assert Game([1, 2], own).ask(tmp_path)[1] >= K


def test_masks_of_another_width_with_equal_bytes_are_other_coalitions(tmp_path):
    wide = np.zeros((1, 16), bool)
    wide[0, :3] = True
    for d in (16, 12, 9):
        assert Game([1], wide[:, :d]).ask(tmp_path)[1] == 0


@pytest.mark.parametrize(("n", "K"), [(2, 0), (0, 5), (0, 0)])
def test_empty_requests_do_nothing(tmp_path, n, K):
    values, reused = Game(range(n), np.zeros((K, 6), bool)).ask(tmp_path)
    assert values.shape == (n, K) and reused == 0 and not segments(tmp_path)


def test_numbers_that_are_not_finite_come_back_as_they_were(tmp_path):
    odd = np.array([[np.nan, np.inf, -np.inf, -0.0, 5e-324]])
    for expected in (0, 5):
        store = ValueStore(Table(tmp_path, VALUES, growing=True))
        values, reused, _ = store.values(["a"], np.eye(5, dtype=bool), lambda rows, masks: (odd, 1.0))
        assert (values.tobytes(), reused.tolist()) == (odd.tobytes(), [expected])
