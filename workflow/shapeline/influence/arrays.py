"""numpy on the CPU or torch on a GPU behind the few names they share, and tables of numbers checked on the way in."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, nearest

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Space:
    """`xp` is numpy or torch: the measures call only what both spell alike."""

    xp: Any
    device: str = "cpu"

    def array(self, host: np.ndarray, dtype: str | None = None):
        """A numpy array on the device, cast there."""
        if self.xp is np:
            return host if dtype is None else host.astype(dtype, copy=False)
        return self.cast(self.xp.as_tensor(np.ascontiguousarray(host), device=self.device), dtype)

    def cast(self, array, dtype: str | None):
        if dtype is None:
            return array
        if self.xp is np:
            return array.astype(dtype, copy=False)
        return array.to(getattr(self.xp, dtype))

    def host(self, array) -> np.ndarray:
        return array if self.xp is np else array.cpu().numpy()

    def solver(self, matrix) -> Callable:
        """Solve with a positive definite matrix again and again: its Cholesky factor, kept. Fails by LinAlgError."""
        if self.xp is np:
            from scipy.linalg import cho_factor, cho_solve

            factor = cho_factor(matrix, overwrite_a=True, check_finite=False)
            return lambda right: cho_solve(factor, right, check_finite=False)
        factor, failed = self.xp.linalg.cholesky_ex(matrix)
        if failed:
            raise np.linalg.LinAlgError("not positive definite")
        return lambda right: self.xp.cholesky_solve(right[:, None], factor)[:, 0]


def space(where: str, device: str) -> Space:
    """numpy for "cpu"; torch, imported only then, for "cuda" or "cuda:1"."""
    if device == "cpu":
        return Space(np)
    if device.split(":")[0] != "cuda":
        raise ShapelineError(f"{where}: unknown device '{device}'.{nearest(device, ('cpu', 'cuda'))}")
    import torch

    if not torch.cuda.is_available():
        raise ShapelineError(f"{where}: device '{device}' was asked for and torch sees no GPU; use device='cpu'.")
    return Space(torch, device)


def table(where: str, name: str, rows, finite: bool = True) -> np.ndarray:
    """Return a table of finite numbers (k, columns), none empty; an error names the cell; finite=False: NaN passes."""
    rows = np.asarray(rows)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ShapelineError(
            f"{where}: {name} has shape {rows.shape}; give one point per row, (points, features), at least one of each."
        )
    if rows.dtype.kind not in "fiub":
        raise ShapelineError(f"{where}: {name} holds {rows.dtype}, not numbers; code categories as numbers.")
    if finite and rows.dtype.kind == "f" and not np.isfinite(rows.sum()):  # one pass; if it overflows the cells decide
        bad = np.argwhere(~np.isfinite(rows))
        if len(bad):
            row, column = bad[0]
            raise ShapelineError(
                f"{where}: {name}[{row}, {column}] is {rows[row, column]} (one of {len(bad):,} such cells); "
                "fill or drop them first."
            )
    return rows


def positive(where: str, name: str, value: float) -> float:
    """A finite number > 0."""
    if not isinstance(value, (int, float, np.number)) or not 0 < value < np.inf:
        raise ShapelineError(f"{where}: {name} = {value!r}; it must be a finite number above 0.")
    return float(value)


_PROBE = 16  # columns hashed at first; the others only where these agree
_FEW = 1 << 10  # cells compared without hashing
_BLOCK = 1 << 20  # cells hashed or compared at a time
_GOLDEN = 0x9E3779B97F4A7C15


def column_hashes(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Hashes (k, c) uint64 of the cells (k, c) in the columns with these numbers; a row's hash is their sum."""
    # As float64, so that equal numbers of different types hash alike; + 0.0 turns -0.0 into 0.0.
    mixed = (values.astype(np.float64) + 0.0).view(np.uint64) + (columns.astype(np.uint64) + 1) * np.uint64(_GOLDEN)
    for shift, factor in ((32, 0xBF58476D1CE4E5B9), (29, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(32))


def row_hashes(rows: np.ndarray, columns: np.ndarray | None = None) -> np.ndarray:
    """Hashes (k,) uint64 of rows (k, n), of some columns or of all."""
    columns = np.arange(rows.shape[1]) if columns is None else columns
    step = max(1, _BLOCK // len(columns))
    whole = len(columns) == rows.shape[1]
    parts = [rows[a : a + step] if whole else rows[a : a + step, columns] for a in range(0, len(rows), step)]
    return np.concatenate([column_hashes(part, columns).sum(axis=1, dtype=np.uint64) for part in parts])


def identities(points: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids (p,) that equal points share, and for each row of X the id (m,) of the points it equals, else -1."""
    n = X.shape[1]
    if points.size * len(X) <= _FEW:
        same, equal = ((rows[:, None] == points).all(2) for rows in (points, X))
        return same.argmax(1), np.where(equal.any(1), equal.argmax(1), -1)
    probe = np.unique(np.linspace(0, n - 1, min(n, _PROBE)).astype(int))
    rows = np.flatnonzero(np.isin(row_hashes(X, probe), row_hashes(points, probe), kind="sort"))
    keys, first, point_ids = np.unique(row_hashes(points), return_index=True, return_inverse=True)
    hashes = row_hashes(X[rows]) if len(rows) else np.zeros(0, np.uint64)
    ids = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
    equal = keys[ids] == hashes
    rows, ids = rows[equal], ids[equal]
    data_ids = np.full(len(X), -1)
    data_ids[rows] = ids
    if _all_equal(points, np.arange(len(points)), points, first[point_ids]) and _all_equal(X, rows, points, first[ids]):
        return point_ids, data_ids
    # Two different rows with one hash of 64 bits: never seen, but then sorting decides.
    both = np.concatenate([points, X]).astype(np.float64)
    ids = np.unique(both + 0.0, axis=0, return_inverse=True)[1].reshape(-1)
    return ids[: len(points)], np.where(np.isin(ids, ids[: len(points)]), ids, -1)[len(points) :]


def _all_equal(left: np.ndarray, left_rows: np.ndarray, right: np.ndarray, right_rows: np.ndarray) -> bool:
    step = max(1, _BLOCK // left.shape[1])
    return all(
        np.array_equal(left[left_rows[a : a + step]], right[right_rows[a : a + step]])
        for a in range(0, len(left_rows), step)
    )


def label_points(
    where: str, labels, point_labels, regression: bool, point_ids: np.ndarray, data_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of data (m,) and points (p,): class codes or centred floats; a point has its row's label."""
    labels = check(where, "labels", labels, len(data_ids), regression)
    if point_labels is None:
        first = np.full(max(point_ids.max(), data_ids.max()) + 1, -1)
        rows = np.flatnonzero(data_ids >= 0)[::-1]
        first[data_ids[rows]] = rows  # written last to first, so that the first row of equal ones stays
        outside = np.flatnonzero(first[point_ids] < 0)
        if len(outside):
            raise ShapelineError(
                f"{where}: {len(outside)} of {len(point_ids)} points are not rows of the data (the first is point "
                f"{outside[0]}), so they have no label; give point_labels=, one per point."
            )
        own = labels[first[point_ids]]
    else:
        own = check(where, "point_labels", point_labels, len(point_ids), regression)
    if regression:
        return labels - labels.mean(), own - labels.mean()
    codes = np.unique(np.concatenate([labels, own]), return_inverse=True)[1].reshape(-1)
    if (codes[: len(labels)] == codes[0]).all():
        warnings.warn(f"{where}: all labels are equal, so the data cannot tell the classes apart.", stacklevel=3)
    return codes[: len(labels)], codes[len(labels) :]


def check(where: str, name: str, labels, count: int, regression: bool) -> np.ndarray:
    """Labels (count,) as float64 for regression; as they are for classes, which may be any two or more values."""
    labels = np.asarray(labels)
    if labels.shape != (count,):
        raise ShapelineError(f"{where}: {name} has shape {labels.shape}; give one label a row, ({count},).")
    if labels.dtype.kind not in ("fiub" if regression else "fiubUSO"):
        raise ShapelineError(f"{where}: {name} holds {labels.dtype}; give numbers.")
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    if labels.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(labels))
        if len(bad):
            raise ShapelineError(f"{where}: {name}[{bad[0]}] is {labels[bad[0]]}; drop records without a label.")
        broken = np.flatnonzero(labels % 1 != 0)
        if len(broken) and not regression:
            raise ShapelineError(
                f"{where}: {name}[{broken[0]}] = {labels[broken[0]]} is no class; pass regression=True for numbers."
            )
    return labels.astype(np.float64) if regression else labels


def shifted_picture(x, phi, amount: float = 0.3, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """x + t phi, clipped to [low, high] (Sliwinski et al. 2019, §8, Tables 1 to 3).

    x, phi (..., n), one image a row, same shape out, float64. t > 0 is such that the 95th percentile of the change,
    before clipping, is `amount` of the range; where phi is 0 the image stays.
    """
    x, phi = np.asarray(x, np.float64), np.asarray(phi, np.float64)
    if x.shape != phi.shape or not high > low:
        raise ShapelineError(
            f"shifted_picture: x has shape {x.shape}, phi {phi.shape}, and the range is {low} to {high}; give "
            "equal shapes, and low below high."
        )
    size = np.abs(phi)
    # A few pixels may hold all the influence: then their largest counts.
    reach = np.percentile(size, 95, axis=-1, keepdims=True)
    reach = np.where(reach > 0, reach, size.max(axis=-1, keepdims=True))
    step = np.divide(amount * (high - low), reach, out=np.zeros_like(reach), where=reach > 0)
    return np.clip(x + step * phi, low, high)
