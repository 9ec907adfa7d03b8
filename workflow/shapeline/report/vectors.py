"""Scores as vectors: centred rows and cosines."""

import numpy as np


def centred(rows: np.ndarray) -> np.ndarray:
    """Each row minus its mean; exactly 0 where it is constant, so that rounding has no correlation."""
    return np.where(np.ptp(rows, axis=1, keepdims=True) > 0, rows - rows.mean(1, keepdims=True), 0 * rows)


def cosines(rows: np.ndarray) -> np.ndarray:
    """Cosines between the rows (m, d): (m, m), NaN where a row is zero or missing."""
    size = np.sqrt((rows**2).sum(1))
    scale = np.outer(size, size)
    return np.divide(rows @ rows.T, scale, out=np.full(scale.shape, np.nan), where=scale > 0)
