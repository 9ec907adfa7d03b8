"""How a question is cut into tiles of instances x coalitions, and how large these may be."""

import math

from shapeline.threads import allowed

# Bytes of the buffer of filled rows, and of a chunk of expanded masks. More would not be faster, and a large image
# times the usual batch would be killed by the system before a framework could refuse it. A function, whose calls cost a
# millisecond of checks each where it is of scikit-learn's, has large ones of few cells.
BUFFER_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31, "function": 1 << 24}
MASK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
LARGEST_BATCH = {"cpu": 1 << 14, "cuda": 1 << 16, "function": 1 << 15}
# Of the filled rows of a call that a calibration tries, on a CPU for each thread. There more are no faster, and what a
# network makes of them, many times as much, is memory that the process keeps: how far a quick machine comes must not
# decide what a run takes.
TRIED_BYTES = {"cpu": 1 << 24, "cuda": BUFFER_BYTES["cuda"], "function": 1 << 24}
KEPT_OUTPUTS = 1 << 18  # model outputs kept until they are scored together


def rows_a_call(batch: int, cells: int, most: int | None, device: str) -> int:
    """How many rows of so many cells a call may hold; most: where memory ran out before. device: its type."""
    limit = min(batch, LARGEST_BATCH[device], BUFFER_BYTES[device] // (4 * cells))
    return max(1, min(limit, most or limit))


def rows_tried(cells: int, device: str) -> int:
    """How many rows of so many cells a calibration tries in a call, at the most."""
    room = min(BUFFER_BYTES[device], allowed() * TRIED_BYTES[device])
    return max(1, min(LARGEST_BATCH[device], room // (4 * cells)))


def tile(n: int, K: int, pairs: int) -> tuple[int, int]:
    """Instances and coalitions of a tile: as near to `pairs` of them together as even shares of K allow."""
    shares = (math.ceil(K / splits) for splits in range(math.ceil(K / pairs), math.ceil(K / pairs) + 4))
    tiles = [(min(n, pairs // b), b) for b in shares]
    return max(tiles, key=lambda tile: tile[0] * tile[1])
