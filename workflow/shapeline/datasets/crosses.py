"""Crosses (Teneggi et al. 2021, §4.1): images of small shapes, positive where one is a cross, known to the pixel.

Made: RGB images of 100x120 pixels in cells of 10x10, about 14 of which hold a square, triangle, disc or cross.
"""

from pathlib import Path

import numpy as np

from shapeline.designs.design import whole
from shapeline.errors import ShapelineError
from shapeline.seeds import seed_of

CELL = 10  # pixels; a shape fills the first nine, so that two beside each other do not touch
HEIGHT, WIDTH = 100, 120
SHAPES = 10, 18  # fewest and most in an image, 14 on average, whatever its class: their number tells nothing
CROSSES = 1, 6  # fewest and most in a positive image
BRIGHTEST = 200  # colours stay below it in each channel: a white cross on white would be a wrong label
COUNT = 8000
PARTS = 5 / 8, 1 / 8  # of the images for training and validation: 5,000 and 1,000 of 8,000
CROSS = 3  # its place among the stencils
# Crosses of a positive image of the test part, 1 to 6: those with 1 and those with 6 are explained.
TEST_SHARES = 0.35, 0.075, 0.075, 0.075, 0.075, 0.35


def read(paths: dict[str, Path], count: int = COUNT, seed: int = 0) -> dict:
    """Return `count` images (n, 3, 100, 120) uint8, half of them positive, labels, split and masks of crosses.

    5/8 are for training, 1/8 for validation; in the test a positive image often holds 1 or 6 crosses (35 % each).
    """
    ends = [round(count * sum(PARTS[: part + 1])) for part in range(2)]
    random, n_test = np.random.default_rng(seed_of("crosses", seed, "test")), count - ends[1]
    wanted = random.integers(2, size=n_test) * random.choice(range(1, 7), size=n_test, p=TEST_SHARES)
    made = generate(ends[1], seed=seed), generate(n_test, crosses=wanted, seed=seed, first=ends[1])
    images, masks = (np.concatenate(arrays) for arrays in zip(*made, strict=True))
    split = np.searchsorted(ends, np.arange(count), side="right").astype(np.uint8)
    labels = masks.any(axis=(1, 2)).astype(np.int64)
    return {"inputs": images, "labels": labels, "split": split, "masks": masks}


def generate(
    count: int,
    crosses: int | np.ndarray | None = None,
    seed: int = 0,
    height: int = HEIGHT,
    width: int = WIDTH,
    first: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return images and pixels of crosses; crosses: of each, None: 0 in half of the images, 1 to 6 in the others.

    Image i has the random numbers of `seed` and first + i alone. height, width: multiples of 10. Raises
    ShapelineError.
    """
    count, first = whole("crosses", "count", count, 0), whole("crosses", "first", first, 0)
    for name, side in (("height", height), ("width", width)):
        if whole("crosses", name, side, CELL) % CELL:
            raise ShapelineError(f"crosses: {name} is {side}; give a multiple of {CELL}, the size of a cell.")
    rows, columns = height // CELL, width // CELL
    given = np.asarray(-1 if crosses is None else crosses)
    if given.shape not in ((), (count,)):
        raise ShapelineError(f"crosses: {given.size} number(s) of crosses for {count} image(s); give one, or one each.")
    wanted = np.broadcast_to(given, (count,))
    if crosses is not None and (wanted.dtype.kind not in "iu" or ((wanted < 0) | (wanted > rows * columns)).any()):
        raise ShapelineError(f"crosses: {crosses!r} crosses an image; give whole numbers from 0 to {rows * columns}.")

    drawn = [_draw(seed_of("crosses", seed, first + i), int(wanted[i]), rows * columns) for i in range(count)]
    owner = np.repeat(np.arange(count), [len(cells) for cells, _, _ in drawn])
    cells, kinds, colours = (np.concatenate(column) for column in zip(*drawn, strict=True)) if drawn else _draw(0, 0, 0)
    place = owner, cells // columns, cells % columns
    ink = _stencils()[kinds]
    images = np.full((count, rows, columns, 3, CELL, CELL), 255, np.uint8)
    images[place] = np.where(ink[:, None], colours[:, :, None, None], 255)
    masks = np.zeros((count, rows, columns, CELL, CELL), bool)
    masks[place] = ink & (kinds == CROSS)[:, None, None]
    return (
        np.ascontiguousarray(images.transpose(0, 3, 1, 4, 2, 5)).reshape(count, 3, height, width),
        np.ascontiguousarray(masks.transpose(0, 1, 3, 2, 4)).reshape(count, height, width),
    )


def _draw(seed: int, crosses: int, n_cells: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells (k,), kinds (k,) and colours (k, 3) uint8 of one image's shapes; crosses: how many, -1 to sample it."""
    random = np.random.default_rng(seed)
    total = int(random.integers(*SHAPES, endpoint=True))
    if crosses < 0:
        crosses = int(random.integers(2) * random.integers(*CROSSES, endpoint=True))
    # A small image keeps some cells white; all requested crosses fit.
    total = max(min(total, n_cells // 2), crosses)
    cells = random.permutation(n_cells)[:total]
    kinds = random.integers(CROSS, size=total)
    kinds[:crosses] = CROSS
    return cells, kinds, random.integers(BRIGHTEST, size=(total, 3), dtype=np.uint8)


def _stencils() -> np.ndarray:
    """Square, triangle, disc and cross as the pixels they fill of a cell, (4, 10, 10) bool, in a box of 9x9."""
    box = CELL - 1
    row, column = np.indices((box, box)) - box // 2  # from the middle of the box
    square = np.ones((box, box), bool)
    triangle = 2 * np.abs(column) <= row + box // 2
    disc = row**2 + column**2 <= (box / 2) ** 2
    cross = np.abs(row) == np.abs(column)
    return np.pad(np.stack([square, triangle, disc, cross]), ((0, 0), (0, 1), (0, 1)))
