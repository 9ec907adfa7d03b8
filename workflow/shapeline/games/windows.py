"""Exact fast evaluation of models with a local receptive field, by tabulated windows of tokens and shared maxima.

Such a model takes the maximum over windows of w tokens. In one document a window with f features has at most 2^f
values, so all are tabulated once, and a masked evaluation is a maximum over rows of the table. Maxima are also shared:
stretches of windows that are equal under several masks are compared once, pair by pair, as long as that saves work.
This covers dense random masks, runs of words and occlusion.

The model computes the table and processes the maxima (torch_backend.py, tf_backend.py); numpy does the rest on the CPU,
where gathering and comparing rows in the cache is as fast as torch and several times as fast as TensorFlow.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import find_unique_rows

STRETCH_WINDOWS = 4  # windows of a first stretch: few patterns (2^(w + 3)), and a quarter of the comparisons
MAX_WIDTH = 32  # tokens of a window; its pattern and position must fit into a 64-bit code
MAX_MASK_CELLS = 1 << 21  # masks of a chunk times cells of an input; limits the memory of indices
MAX_TABLE_BYTES = 1 << 23  # size of a table that documents share, so that it stays in the cache
MAX_TABLE_ROWS = 1 << 16  # rows of a table of longer stretches
MAX_GATHERED_BYTES = 1 << 22  # bytes of rows gathered at a time
MIN_THREAD_BYTES = 1 << 24  # bytes of gathered rows per thread
CALL_ROWS = 1 << 12  # windows, or rows of maxima, per call of the model


@dataclass(frozen=True)
class Plan:
    """The evaluation plan of a chunk of masks, for any document with these features.

    positions (R,), present (R, w): the windows to tabulate; levels: ids (m, rows) into the previous table, whose
    maxima are the next table; outside: windows that no mask affects.
    """

    positions: np.ndarray
    present: np.ndarray
    levels: list[np.ndarray]
    outside: np.ndarray

    @property
    def largest(self) -> int:
        """Number of rows of the largest table."""
        return max(len(self.positions), *(ids.shape[1] for ids in self.levels))


def build_plan(masks: np.ndarray, cells: np.ndarray, width: int) -> Plan:
    """Return the plan for masks (K, d) bool on an input whose cells (length,) belong to features, -1 = never masked."""
    count = len(cells) - width + 1
    touched = np.flatnonzero(np.lib.stride_tricks.sliding_window_view(cells >= 0, width).any(axis=1))
    first, stop = (touched[0], touched[-1] + 1) if len(touched) else (0, 1)
    stretch = min(STRETCH_WINDOWS, count)
    # The last stretch is shifted back into the input; a window compared twice changes no maximum.
    starts = np.minimum(np.arange(first, stop, stretch), count - stretch)
    # Transposed, so that the operations below run along the masks; feature -1 selects the last row.
    kept = np.ones((masks.shape[1] + 1, len(masks)), bool)
    kept[:-1] = masks.T
    bits = stretch + width - 1
    codes = np.zeros((len(starts), len(masks)), np.int64)
    for cell in range(bits):
        codes <<= 1
        codes |= kept[cells[starts + cell]]
    keys, local, counts = _rank_codes(codes, 1 << bits)
    block, pattern = keys >> bits, keys & ((1 << bits) - 1)

    step = np.arange(stretch)[:, None]
    windows = (starts[block] + step << width) | (pattern >> stretch - 1 - step & (1 << width) - 1)
    distinct, ids, _ = _rank_codes(windows.reshape(1, -1), count << width)
    levels = [ids.reshape(windows.shape)]
    present = (distinct[:, None] >> np.arange(width)[::-1] & 1).astype(bool)

    while len(local) > 1:
        left = np.arange(0, len(local), 2)
        right = np.minimum(left + 1, len(local) - 1)  # a last stretch without a partner is paired with itself
        size = int(counts.max())
        if len(local) * size * size >= 1 << 62:
            break
        keys, merged, merged_counts = _rank_codes(local[left] * size + local[right], size * size)
        # Each row of the new table reads two rows, and each mask saves one row per pair.
        if 2 * len(keys) >= len(masks) * (len(local) - len(left)) or len(keys) > MAX_TABLE_ROWS:
            break
        before = np.cumsum(counts) - counts
        pair, pattern = np.divmod(keys, size * size)
        levels.append(np.stack([before[left[pair]] + pattern // size, before[right[pair]] + pattern % size]))
        local, counts = merged, merged_counts
    levels.append(local + (np.cumsum(counts) - counts)[:, None])
    outside = np.concatenate([np.arange(first), np.arange(stop, count)])
    return Plan(distinct >> width, present, levels, outside)


def _rank_codes(codes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distinct codes of rows (rows, K) in 0..size-1: ascending row * size + code, ranks (rows, K), counts."""
    rows = np.arange(len(codes))[:, None]
    keys = codes + rows * size
    if size <= 16 * codes.shape[1] + 1024:
        # A lookup table is many times as fast as sorting, where it is not much larger than the codes.
        occurs = np.zeros(len(codes) * size, bool)
        occurs[keys.ravel()] = True
        distinct = np.flatnonzero(occurs)
        index = np.empty(len(occurs), np.int64)
        index[distinct] = np.arange(len(distinct))
        ranks = index[keys]
    else:
        distinct, ranks = np.unique(keys, return_inverse=True)
        ranks = ranks.reshape(keys.shape)
    counts = np.bincount(distinct // size, minlength=len(codes))
    ranks -= (np.cumsum(counts) - counts)[:, None]
    return distinct, ranks, counts


def take_maxima(table: np.ndarray, ids: np.ndarray, threads: int) -> np.ndarray:
    """Return maxima (rows, width) over m rows of a table (before, width) float32 each; ids (m, rows)."""
    m, rows = ids.shape
    width = table.shape[1]
    result = np.empty((rows, width), table.dtype)
    step = max(1, MAX_GATHERED_BYTES // (4 * m * width))

    def run(start: int, stop: int) -> None:
        gathered = np.empty((m * min(step, stop - start), width), table.dtype)
        for first in range(start, stop, step):
            part = ids[:, first : min(first + step, stop)]
            # mode "clip" writes directly to `out`, "raise" does not.
            found = np.take(table, part.ravel(), axis=0, out=gathered[: part.size], mode="clip").reshape(m, -1, width)
            # By halves and in place, so that it is elementwise and in the cache.
            while len(found) > 1:
                half = len(found) // 2
                np.maximum(found[:half], found[-half:], out=found[:half])
                found = found[: len(found) - half]
            result[first : first + part.shape[1]] = found[0]

    parts = min(threads, 1 + 4 * m * rows * width // MIN_THREAD_BYTES)
    if parts == 1:
        run(0, rows)
    else:
        bounds = np.linspace(0, rows, parts + 1).astype(int).tolist()
        with ThreadPoolExecutor(parts) as pool:  # numpy releases the GIL in both steps
            list(pool.map(run, bounds[:-1], bounds[1:]))
    return result


@dataclass(frozen=True)
class Local:
    """A model's two parts: token ids (P, width) to windows (P, channels), and from pooled to logits (P, classes)."""

    width: int
    windows: Callable[[np.ndarray], np.ndarray]
    from_pooled: Callable[[np.ndarray], np.ndarray]
    threads: int

    def table(self, ids: np.ndarray) -> np.ndarray:
        """Return windows (rows, q * channels) of token ids (rows, q, width) of q documents."""
        rows = np.require(ids, np.int32, ["C", "W"])  # writable, or torch warns
        return _sum_parts(self.windows, rows.reshape(-1, self.width)).reshape(len(ids), -1)


def evaluate_tiles(
    local: Local, inputs: np.ndarray, rows: np.ndarray, masks: np.ndarray, cells: np.ndarray
) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
    """Yield logits of tiles of masked documents: start, stop, first, last, logits (stop-start, last-first, M, classes).

    inputs (n, length); rows (M, length) or (n, M, length); masks (K, d) or (n, K, d); cells: owners or -1.
    """
    n, K, M = len(inputs), masks.shape[-2], rows.shape[-2]
    rows = np.broadcast_to(rows, (n, M, inputs.shape[1]))
    inputs = np.broadcast_to(inputs[:, None], rows.shape)
    channels = local.table(inputs[:1, :1, : local.width]).shape[1]
    chunk = max(1, MAX_MASK_CELLS // inputs.shape[2])
    for first in range(0, K, chunk):
        last = min(first + chunk, K)
        shared = build_plan(masks[first:last], cells, local.width) if masks.ndim == 2 else None
        together = 1 if shared is None else max(1, MAX_TABLE_BYTES // (4 * M * channels * shared.largest))
        for start in range(0, n, together):
            stop = min(start + together, n)
            planned = shared or build_plan(masks[start, first:last], cells, local.width)
            # Many reference rows enlarge a table as many documents do.
            group = max(1, MAX_TABLE_BYTES // (4 * channels * planned.largest))
            parts = [
                _compute_logits(local, planned, inputs[start:stop, m : m + group], rows[start:stop, m : m + group])
                for m in range(0, M, group)
            ]
            yield start, stop, first, last, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)


def _compute_logits(local: Local, plan: Plan, inputs: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return logits (a, K, M, classes) of documents and reference rows, both (a, M, length)."""
    a, M, length = inputs.shape
    inputs, rows = inputs.reshape(-1, length).T, rows.reshape(-1, length).T
    cells = np.arange(local.width)
    at = plan.positions[:, None] + cells
    # By cell, (windows, width, a * M), then in the model's order, (windows, a * M, width).
    table = local.table(np.where(plan.present[:, :, None], inputs[at], rows[at]).transpose(0, 2, 1))
    for ids in plan.levels:
        table = take_maxima(table, ids, local.threads)
    if len(plan.outside):
        ids = np.ascontiguousarray(inputs[plan.outside[:, None] + cells].transpose(0, 2, 1))
        # Most windows are padding, so the model evaluates each distinct one once.
        once, copies = find_unique_rows(ids.reshape(-1, local.width))
        distinct = local.table(ids.reshape(-1, 1, local.width)[once])
        untouched = take_maxima(distinct, copies.reshape(ids.shape[:2]), local.threads)
        np.maximum(table, untouched.reshape(1, -1), out=table)
    logits = _sum_parts(local.from_pooled, table.reshape(-1, table.shape[1] // (a * M)))
    return logits.reshape(-1, a, M, logits.shape[1]).swapaxes(0, 1)


def _sum_parts(function: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray:
    return np.concatenate([function(rows[start : start + CALL_ROWS]) for start in range(0, len(rows), CALL_ROWS)])
