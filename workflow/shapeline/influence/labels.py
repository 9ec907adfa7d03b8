"""Which rows are equal, and the labels of the points: by equality with rows of the data, found by hashing."""

import warnings

import numpy as np

from shapeline.errors import ShapelineError

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


def labelled(
    where: str, labels, point_labels, regression: bool, point_ids: np.ndarray, data_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Labels of the data (m,) and of the points (p,): class codes, or float64 less their mean for regression.

    Points without `point_labels` take the label of the first row that they equal; one that equals none is an error.
    """
    labels = check(where, "labels", labels, len(data_ids), regression)
    if point_labels is None:
        first = np.full(max(point_ids.max(), data_ids.max()) + 1, -1)
        rows = np.flatnonzero(data_ids >= 0)[::-1]
        first[data_ids[rows]] = rows  # written last to first, so that the first row of equal ones stays
        outside = np.flatnonzero(first[point_ids] < 0)
        if len(outside):
            raise ShapelineError(
                f"{where}: {len(outside)} of {len(point_ids)} points are no rows of the data (the first is point "
                f"{outside[0]}), so they have no label; give point_labels=, one a point."
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
