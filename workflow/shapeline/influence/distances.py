"""Tables of numbers on numpy or torch, distances from points to data, and weighted sums of differences.

Distances and sums are matrix products, blocked over points and data:
|y - x|^2 = |y|^2 + |x|^2 - 2 y.x with the origin at the points' centre. Pairs that lose digits are computed one by one
in float64; if there are many, everything is.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from shapeline.designs.design import check_integer
from shapeline.errors import ShapelineError, nearest
from shapeline.games.validation_scores import check_order

DTYPES = ("float32", "float64")
MOST_CLASSES = 20  # above it, labels of a floating-point type are probably numbers to predict


@dataclass(frozen=True)
class Space:
    """An array namespace; `xp` is numpy or torch: the measures call only functions with equal names."""

    xp: Any
    device: str = "cpu"

    def array(self, host: np.ndarray, dtype: str | None = None):
        """Return a numpy array on the device, cast there."""
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
        """Return a solver for a positive definite matrix by its Cholesky factor. Raises LinAlgError."""
        if self.xp is np:
            from scipy.linalg import cho_factor, cho_solve

            factor = cho_factor(matrix, overwrite_a=True, check_finite=False)
            return lambda right: cho_solve(factor, right, check_finite=False)
        factor, failed = self.xp.linalg.cholesky_ex(matrix)
        if failed:
            raise np.linalg.LinAlgError("not positive definite")
        return lambda right: self.xp.cholesky_solve(right[:, None], factor)[:, 0]


def open_space(where: str, device: str) -> Space:
    """Return numpy's Space for "cpu"; torch's, imported only then, for "cuda" or "cuda:1"."""
    if device == "cpu":
        return Space(np)
    if device.split(":")[0] != "cuda":
        raise ShapelineError(f"{where}: unknown device '{device}'.{nearest(device, ('cpu', 'cuda'))}")
    import torch

    if not torch.cuda.is_available():
        raise ShapelineError(f"{where}: device '{device}' was asked for and torch sees no GPU; use device='cpu'.")
    return Space(torch, device)


def check_table(where: str, name: str, rows, finite: bool = True) -> np.ndarray:
    """Return a non-empty table of finite numbers (k, columns); an error names the cell; finite=False permits NaN."""
    rows = np.asarray(rows)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ShapelineError(
            f"{where}: {name} has shape {rows.shape}; give one point per row, (points, features), at least one of each."
        )
    if rows.dtype.kind not in "fiub":
        raise ShapelineError(f"{where}: {name} holds {rows.dtype}, not numbers; code categories as numbers.")
    if finite and rows.dtype.kind == "f" and not np.isfinite(rows.sum()):  # one pass; on overflow the cells are checked
        bad = np.argwhere(~np.isfinite(rows))
        if len(bad):
            row, column = bad[0]
            raise ShapelineError(
                f"{where}: {name}[{row}, {column}] is {rows[row, column]} (one of {len(bad):,} such cells); "
                "fill or drop them first."
            )
    return rows


def check_points(where: str, points, X, finite: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return points (p, n) and data X (m, n) as tables; data frames need the same columns in the same order."""
    named = [list(rows.columns) for rows in (points, X) if hasattr(rows, "columns")]
    if len(named) == 2 and named[0] != named[1]:
        raise ShapelineError(f"{where}: points and X have other columns, or in another order; give them the same.")
    points, X = check_table(where, "points", points), check_table(where, "X", X, finite=finite)
    if points.shape[1] != X.shape[1]:
        raise ShapelineError(
            f"{where}: points have {points.shape[1]} features and X has {X.shape[1]}; give them the same columns."
        )
    return points, X


def check_columns(where: str, columns, n: int) -> np.ndarray:
    """Return the numbers of categorical columns among n. Raises ShapelineError for names and masks."""
    try:
        numbers = np.array([check_integer(where, "categorical", one, 0) for one in columns], int)
    except (TypeError, ShapelineError):
        numbers = np.array([n])
    if isinstance(columns, str) or not (numbers < n).all():
        raise ShapelineError(f"{where}: categorical={columns!r}; give a list of column numbers from 0 to {n - 1}.")
    return numbers


def check_dtype(where: str, dtype: object) -> str:
    """Return the name of a type of DTYPES. Raises ShapelineError."""
    for name in DTYPES:
        if dtype in (name, np.dtype(name)):
            return name
    raise ShapelineError(f"{where}: dtype {dtype!r}; allowed: {', '.join(DTYPES)}.")


def check_positive(where: str, name: str, value: float) -> float:
    """Return a finite number > 0. Raises ShapelineError."""
    if not isinstance(value, (int, float, np.number)) or not 0 < value < np.inf:
        raise ShapelineError(f"{where}: {name} = {value!r}; it must be a finite number above 0.")
    return float(value)


def identify(points: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ids (p,), equal for equal points, and the id (m,) of the points that each row of X equals, else -1."""

    def iterate_keys(rows: np.ndarray) -> Iterator[bytes]:
        # As float64, so that numbers of different types are equal; + 0.0 converts -0.0 to 0.0.
        return ((row.astype(np.float64) + 0.0).tobytes() for row in rows)

    ids: dict[bytes, int] = {}
    point_ids = np.array([ids.setdefault(key, len(ids)) for key in iterate_keys(points)])
    return point_ids, np.array([ids.get(key, -1) for key in iterate_keys(X)])


def label_points(
    where: str, labels, point_labels, regression: bool, point_ids: np.ndarray, data_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of data (m,) and points (p,): class codes or centred floats; a point has its row's label."""
    labels = check_labels(where, "labels", labels, len(data_ids), regression)
    if point_labels is None:
        first = np.full(max(point_ids.max(), data_ids.max()) + 1, -1)
        rows = np.flatnonzero(data_ids >= 0)[::-1]
        first[data_ids[rows]] = rows  # written in reverse, so that the first of equal rows remains
        outside = np.flatnonzero(first[point_ids] < 0)
        if len(outside):
            raise ShapelineError(
                f"{where}: {len(outside)} of {len(point_ids)} points are not rows of the data (the first is point "
                f"{outside[0]}), so they have no label; give point_labels=, one per point."
            )
        found = labels[first[point_ids]]
    else:
        found = check_labels(where, "point_labels", point_labels, len(point_ids), regression)
    if regression:
        return labels - labels.mean(), found - labels.mean()
    classes, codes = np.unique(np.concatenate([labels, found]), return_inverse=True)
    codes = codes.reshape(-1)
    if classes.dtype.kind == "f" and len(classes) > MOST_CLASSES:
        problem = f"labels hold {len(classes)} numbers, each of which is read as a class"
        warnings.warn(f"{where}: {problem}; pass regression=True for numbers.", stacklevel=4)
    if (codes[: len(labels)] == codes[0]).all():
        warnings.warn(f"{where}: all labels are equal, so the data cannot tell the classes apart.", stacklevel=4)
    return codes[: len(labels)], codes[len(labels) :]


def check_labels(where: str, name: str, labels, count: int, regression: bool) -> np.ndarray:
    """Return labels (count,) as float64 for regression, unchanged for classes, which may be any two or more values."""
    labels = np.asarray(labels)
    if labels.shape != (count,):
        raise ShapelineError(f"{where}: {name} has shape {labels.shape}; give one label a row, ({count},).")
    if labels.dtype.kind not in ("fiub" if regression else "fiubUSO"):
        raise ShapelineError(f"{where}: {name} holds {labels.dtype}; give numbers.")
    if labels.dtype.kind == "O":
        missing = np.flatnonzero(pd.isna(labels))
        if len(missing):
            raise ShapelineError(f"{where}: {name}[{missing[0]}] is missing; drop records without a label.")
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
    """Return x + t phi, clipped to [low, high] (Sliwinski et al. 2019, §8, Tables 1 to 3).

    x, phi (..., n), one image per row, same shape out, float64. t > 0 is such that the 95th percentile of the change,
    before clipping, is `amount` of the range; where phi is 0 the image does not change.
    """
    x, phi = np.asarray(x, np.float64), np.asarray(phi, np.float64)
    if x.shape != phi.shape or not high > low:
        raise ShapelineError(
            f"shifted_picture: x has shape {x.shape}, phi {phi.shape}, and the range is {low} to {high}; give "
            "equal shapes, and low below high."
        )
    size = np.abs(phi)
    # Where the 95th percentile is 0, since few pixels have influence, the largest is used.
    scale = np.percentile(size, 95, axis=-1, keepdims=True)
    scale = np.where(scale > 0, scale, size.max(axis=-1, keepdims=True))
    step = np.divide(amount * (high - low), scale, out=np.zeros_like(scale), where=scale > 0)
    return np.clip(x + step * phi, low, high)


# A pair is near where |y-x|^2 < NEAR (|x|^2 + |y|^2): the products' rounding, at most 5e-7 or 1e-15 of the right side,
# may then exceed 5e-6 of the left in float32; "mixed" is float64 for float32 results, the third is for 1e-10.
NEAR = {"float32": 0.1, "mixed": 1e-7, "float64": 1e-4}
ROUNDING = 2.5e-7  # of |x|^2 + |y|^2 in float32, observed for Parzen on faces and on random numbers
MAX_NEAR_SHARE = 1 / 64  # share of near pairs, each of which costs about as much as 100 pairs of the product
CHUNK_PAIRS = 1 << 22  # pairs of points and data at a time
BLOCK_CELLS = 1 << 21  # cells of data at a time
MAX_CACHED_CELLS = 1 << 24  # recoded data of more cells are not cached


@dataclass
class Distances:
    """Squared distances (c, m) of a chunk of points to all data, 0 only for equal rows; near pairs by position."""

    points: slice
    squared: object
    near: tuple[np.ndarray, np.ndarray]
    dtype: str


class Neighbours:
    """Checked points (p, n) and data X (m, n). A categorical column is 1 where it equals x's value, else 0."""

    def __init__(self, where: str, points, X, categorical=(), dtype: str = "float32", device: str = "cpu"):
        self.where, self.given = where, (points, X)
        self.points, self.X = check_points(where, points, X, finite=False)
        n = self.X.shape[1]
        dtype, chosen = check_dtype(where, dtype), check_columns(where, categorical, n)
        plain = np.ones(n, bool)
        plain[chosen] = False
        self.categorical, self.numeric = np.flatnonzero(~plain), np.flatnonzero(plain)
        # Only the points' values matter, since other rows equal none of them. (p, columns) codes into `values`.
        coded = [np.unique(self.points[:, column], return_inverse=True) for column in self.categorical]
        self.values = [values for values, _ in coded]
        starts = np.cumsum([len(self.numeric), *map(len, self.values)])[:-1]
        self.own = np.array([codes + start for (_, codes), start in zip(coded, starts, strict=True)], int).T
        self.space: Space = open_space(where, device)
        self.exact = dtype == "float64"
        # Differences to a point are taken first, so that a constant column becomes exactly 0.
        start = self.points[:1].astype(np.float64)
        self.centre = (start + (self.points - start).mean(axis=0))[0, self.numeric]
        largest = np.abs(self.points[:, self.numeric] - self.centre).max(initial=0)
        # Squares must not exceed the range of float32.
        self.dtype = "float32" if not self.exact and (largest == 0 or 1e-12 < largest < 1e12) else "float64"
        self.point_ids, self.data_ids = identify(self.points, self.X)
        self._kept: dict[tuple[str, int], tuple] = {}

    def labels(self, labels, regression: bool, point_labels) -> tuple[np.ndarray, np.ndarray]:
        check_order(self.where, self.given[1], labels, ("X", "labels"))
        check_order(self.where, self.given[0], point_labels, ("points", "point_labels"))
        try:
            return label_points(self.where, labels, point_labels, regression, self.point_ids, self.data_ids)
        except ShapelineError:
            check_table(self.where, "X", self.X)  # reports a NaN cell, the probable cause of unequal rows
            raise

    def chunks(self) -> Iterator[slice]:
        """Yield slices of points with at most CHUNK_PAIRS pairs each."""
        step = max(1, CHUNK_PAIRS // len(self.X))
        return (slice(a, min(a + step, len(self.points))) for a in range(0, len(self.points), step))

    def compute_squared(self, chunk: slice, width: float | None = None) -> Distances:
        """Return distances of a chunk's points, precise enough for weights exp(-r^2 / (2 width^2)) with `width`."""
        if self.dtype == "float32":
            distances = self._measure(chunk, "float32", NEAR["float32"], width)
            if distances:
                return distances
            self.dtype = "float64"  # other chunks have the same data
        return self._measure(chunk, "float64", NEAR["float64" if self.exact else "mixed"], None)

    def _measure(self, chunk: slice, dtype: str, near: float, width: float | None) -> Distances | None:
        """Return distances, None where float32 is not precise enough."""
        xp, pairs = self.space.xp, (chunk.stop - chunk.start) * len(self.X)
        x = self._recode(self.points[chunk], dtype)
        x_norm = self._compute_norms(x)
        ids = self.space.array(self.point_ids[chunk])[:, None]
        squared, rows, columns, count = [], [], [], 0
        closest = None
        for a, y in self._iterate_blocks(dtype):
            norms = x_norm[:, None] + self._compute_norms(y)
            if not xp.isfinite(norms).all():
                check_table(self.where, "X", self.X)  # names the cell, if it is one
                if dtype == "float32":
                    return None
                raise ShapelineError(f"{self.where}: squared distances pass 1e308; divide the features by a scale.")
            part = x @ y.T
            part *= -2
            part += norms
            equal = ids == self.space.array(self.data_ids[a : a + len(y)])
            part[equal] = 0
            at = [self.space.host(index) for index in xp.where((part < near * norms) & ~equal)]
            count += len(at[0])
            if dtype == "float32" and count > MAX_NEAR_SHARE * pairs:
                return None
            if width is not None:
                # The nearest other row, block by block, for the effect of the rounding of r^2 on its weight.
                closest = self._find_nearest(xp, xp.where(equal, np.inf, part), norms, closest)
            part[at[0], at[1]] = self.space.array(self._compute_exact(chunk, at[0], at[1] + a), dtype)
            squared.append(part)
            rows.append(at[0])
            columns.append(at[1] + a)
        if width is not None:
            norms_of_closest = self.space.host(closest[1])[np.isfinite(self.space.host(closest[0]))]
            if norms_of_closest.max(initial=0) * ROUNDING / (2 * width**2) > 5e-6:
                return None
        stacked = squared[0] if len(squared) == 1 else xp.concatenate(squared, 1)
        rows, columns = np.concatenate(rows), np.concatenate(columns)
        order = np.argsort(rows, kind="stable")
        return Distances(chunk, stacked, (rows[order], columns[order]), dtype)

    @staticmethod
    def _find_nearest(xp, part, norms, closest):
        """Return the smallest squared distance so far and its |x|^2 + |y|^2, per point."""
        index = xp.argmin(part, 1)
        rows = xp.arange(len(part), device=index.device)
        current = part[rows, index], norms[rows, index]
        if closest is None:
            return current
        return xp.minimum(current[0], closest[0]), xp.where(current[0] < closest[0], current[1], closest[1])

    def _compute_exact(self, chunk: slice, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        parts = [np.einsum("ij,ij->i", *[self.differences(chunk, *pair)] * 2) for pair in self._split(rows, columns)]
        return np.concatenate([*parts, np.zeros(0)])

    def _split(self, rows: np.ndarray, columns: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        step = max(1, BLOCK_CELLS // self.X.shape[1])
        return ((rows[a : a + step], columns[a : a + step]) for a in range(0, len(rows), step))

    def differences(self, chunk: slice, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return y - x (pairs, n) in float64 of the original numbers; categorical columns are 0 if equal, else -1."""
        x, y = self.points[chunk][rows], self.X[columns]
        difference = y.astype(np.float64) - x
        if len(self.categorical):
            difference[:, self.categorical] = -1.0 * (x[:, self.categorical] != y[:, self.categorical])
        return difference

    def sum_differences(self, distances: Distances, weights) -> np.ndarray:
        """Return sum_y w_y (y - x), (c, n) float64 on the host, for finite weights (c, m), which are modified."""
        chunk, (rows, columns) = distances.points, distances.near
        near_weights = self.space.host(weights[rows, columns]).astype(np.float64)
        weights[rows, columns] = 0
        weights[distances.squared == 0] = 0  # equal rows add 0, but in a product they add rounding errors
        xp, dtype = self.space.xp, distances.dtype
        x = self._recode(self.points[chunk], dtype)
        mass = weights.sum(1, dtype=xp.float64)
        total = self.space.cast(x, "float64") * -mass[:, None]
        for a, y in self._iterate_blocks(dtype):
            total += self.space.cast(weights[:, a : a + len(y)] @ y, "float64")
        total = self.space.host(total)
        if len(self.categorical):
            # The column of x's value has the sum of w (1[equal] - 1) / sqrt 2.
            category_sums = np.take_along_axis(total, self.own[chunk], axis=1) * np.sqrt(2)
            total, numeric = np.zeros((len(total), self.X.shape[1])), total
            total[:, self.numeric], total[:, self.categorical] = numeric[:, : len(self.numeric)], category_sums
        for row, column in self._split(rows, columns):
            weighted = self.differences(chunk, row, column) * near_weights[: len(row), None]
            near_weights = near_weights[len(row) :]
            starts = np.flatnonzero(np.diff(row, prepend=-1))  # pairs are sorted by point
            total[row[starts]] += np.add.reduceat(weighted, starts, axis=0)
        return total

    def _iterate_blocks(self, dtype: str) -> Iterator[tuple]:
        """Yield first row and recoded rows per block."""
        step = max(1, BLOCK_CELLS // self.X.shape[1])
        for a in range(0, len(self.X), step):
            block = self._kept.get((dtype, a))
            if block is None:
                block = self._recode(self.X[a : a + step], dtype)
                if self.X.size <= MAX_CACHED_CELLS:
                    self._kept[dtype, a] = block
            yield a, block

    def _compute_norms(self, recoded):
        """Return squared norms; |x|^2 + |y|^2 - 2 x.y then has 1 per different categorical column."""
        numeric = recoded[:, : len(self.numeric)]
        return self.space.xp.einsum("ij,ij->i", numeric, numeric) + len(self.categorical) / 2

    def _recode(self, rows: np.ndarray, dtype: str):
        """Return centred rows, followed by 0 or 1/sqrt 2 for each category of the points."""
        work = np.promote_types(rows.dtype, dtype)  # cast after centring, which preserves digits
        plain = rows if not len(self.categorical) else rows[:, self.numeric]
        moved = self.space.array(plain.astype(work, copy=False)) - self.space.array(self.centre.astype(work))
        moved = self.space.cast(moved, dtype)
        if not len(self.categorical):
            return moved
        equal = [rows[:, column, None] == values for column, values in zip(self.categorical, self.values, strict=True)]
        codes = self.space.array(np.concatenate(equal, axis=1) * np.sqrt(0.5), dtype)
        return self.space.xp.concatenate([moved, codes], 1)
