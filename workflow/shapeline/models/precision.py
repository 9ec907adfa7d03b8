"""Cells that lose digits as float32, which networks take: one line says so."""

import logging
from collections.abc import Sequence

import numpy as np

log = logging.getLogger(__name__)
LARGEST_SHARE = 1e-4  # of a column's range, that rounding may move a cell


def report_lost_digits(where: str, rows: np.ndarray, names: Sequence[str] = ()) -> None:
    """Log a warning where cells of rows (n, columns), or of images and series together, are others as float32.

    Whole numbers are where any changes, such as seconds since 1970; other numbers where rounding moves one by more than
    a ten-thousandth of the range of its column. where: how the line begins; names: of the columns.
    """
    rows = np.asarray(rows)
    if rows.dtype.kind not in "iuf" or rows.dtype.itemsize < 4 or rows.dtype == np.float32 or not rows.size:
        return
    cells = rows.reshape(len(rows), -1) if rows.ndim == 2 else rows.reshape(-1, 1)
    cells = np.ma.masked_invalid(cells.astype(np.float64))
    with np.errstate(over="ignore"):
        off = np.abs(cells - cells.astype(np.float32).astype(np.float64))
    whole, most = (cells == np.rint(cells)).all(axis=0), off.max(axis=0)
    spread = cells.max(axis=0) - cells.min(axis=0)
    lost = np.ma.where(whole, most > 0, (most > LARGEST_SHARE * spread) & (spread > 0))
    places = np.flatnonzero(np.ma.filled(lost, False))
    if not len(places):
        return
    place = int(places[0])
    value = float(cells[int(off[:, place].argmax()), place])
    with np.errstate(over="ignore"):
        short = np.float32(value)
    shown = f"{value:.0f} becomes {short:.0f}" if whole[place] else f"{value!r} becomes {short!s}"
    column = f"column '{names[place]}'" if len(names) else f"column {place}" if rows.ndim == 2 else "some cells"
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    log.warning("%s: %s%s: a network takes float32, of 7 digits, so %s", where, column, more, shown)
