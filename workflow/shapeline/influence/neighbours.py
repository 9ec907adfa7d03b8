"""Distances from points to data and weighted sums of differences, each one matrix product, blocked over both.

|y - x|^2 = |y|^2 + |x|^2 - 2 y.x with the origin amid the points. Pairs that lose digits so are computed one by one in
float64, or everything where they are many.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.influence.arrays import DTYPES, Space, identities, label_points, space, table

# A pair is near where |y-x|^2 < NEAR (|x|^2 + |y|^2): the products' rounding, at most 5e-7 or 1e-15 of the right side,
# then passes 5e-6 of the left in float32; the second is float64 behind float32 results, the third behind 1e-10.
NEAR = {"float32": 0.1, "mixed": 1e-7, "float64": 1e-4}
ROUNDING = 2.5e-7  # of |x|^2 + |y|^2 in float32: what Parzen on faces and on random numbers shows
MANY = 1 / 64  # a near pair costs about a hundred pairs of the product
CHUNK = 1 << 22  # pairs of points and data at a time
BLOCK = 1 << 21  # cells of data at a time
KEEP = 1 << 24  # the recoded data are kept where they have at most so many cells


@dataclass
class Distances:
    """Squared distances (c, m) of some points to all data, 0 for equal rows and only there; near pairs by position."""

    points: slice
    squared: object
    near: tuple[np.ndarray, np.ndarray]
    dtype: str


class Neighbours:
    """Checked points (p, n) and data X (m, n). A categorical column is 1 where it equals x's value, else 0."""

    def __init__(self, where: str, points, X, categorical=(), dtype: str = "float32", device: str = "cpu"):
        self.where = where
        self.points, self.X = table(where, "points", points), table(where, "X", X, finite=False)
        n = self.X.shape[1]
        if self.points.shape[1] != n:
            raise ShapelineError(
                f"{where}: points have {self.points.shape[1]} features and X has {n}; give them the same columns."
            )
        dtype = np.dtype(dtype).name
        if dtype not in DTYPES:
            raise ShapelineError(f"{where}: dtype {dtype!r}; allowed: {', '.join(DTYPES)}.")
        chosen = np.asarray(list(categorical), int)
        if len(chosen) and not (0 <= chosen.min() and chosen.max() < n):
            raise ShapelineError(f"{where}: categorical={list(categorical)}; columns are numbered 0 to {n - 1}.")
        plain = np.ones(n, bool)
        plain[chosen] = False
        self.categorical, self.numeric = np.flatnonzero(~plain), np.flatnonzero(plain)
        # Only the values that points have matter: other rows equal none of them. (p, columns) codes into `values`.
        coded = [np.unique(self.points[:, column], return_inverse=True) for column in self.categorical]
        self.values = [values for values, _ in coded]
        starts = np.cumsum([len(self.numeric), *map(len, self.values)])[:-1]
        self.own = np.array([codes + start for (_, codes), start in zip(coded, starts, strict=True)], int).T
        self.space: Space = space(where, device)
        self.exact = dtype == "float64"
        # Differences to a point first, so that a constant column becomes exactly 0.
        start = self.points[:1].astype(np.float64)
        self.centre = (start + (self.points - start).mean(axis=0))[0, self.numeric]
        largest = np.abs(self.points[:, self.numeric] - self.centre).max(initial=0)
        # Squares must stay inside the range of float32.
        self.dtype = "float32" if not self.exact and (largest == 0 or 1e-12 < largest < 1e12) else "float64"
        self.point_ids, self.data_ids = identities(self.points, self.X)
        self._kept: dict[tuple[str, int], tuple] = {}

    def labels(self, labels, regression: bool, point_labels) -> tuple[np.ndarray, np.ndarray]:
        try:
            return label_points(self.where, labels, point_labels, regression, self.point_ids, self.data_ids)
        except ShapelineError:
            table(self.where, "X", self.X)  # a cell that is NaN is the better news, and equals no point's
            raise

    def chunks(self) -> Iterator[slice]:
        """Slices of points with at most CHUNK pairs each."""
        step = max(1, CHUNK // len(self.X))
        return (slice(a, min(a + step, len(self.points))) for a in range(0, len(self.points), step))

    def compute_squared(self, chunk: slice, width: float | None = None) -> Distances:
        """Distances of the points of a chunk; good for weights exp(-r^2 / (2 width^2)) too where `width` is given."""
        if self.dtype == "float32":
            distances = self._measure(chunk, "float32", NEAR["float32"], width)
            if distances:
                return distances
            self.dtype = "float64"  # the other chunks lie among the same data
        return self._measure(chunk, "float64", NEAR["float64" if self.exact else "mixed"], None)

    def _measure(self, chunk: slice, dtype: str, near: float, width: float | None) -> Distances | None:
        """None where float32 cannot serve."""
        xp, pairs = self.space.xp, (chunk.stop - chunk.start) * len(self.X)
        x = self._recode(self.points[chunk], dtype)
        x_norm = self._norms(x)
        ids = self.space.array(self.point_ids[chunk])[:, None]
        squared, rows, columns, count = [], [], [], 0
        closest = None
        for a, y in self._blocks(dtype):
            norms = x_norm[:, None] + self._norms(y)
            if not xp.isfinite(norms).all():
                table(self.where, "X", self.X)  # names the cell, if it is one
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
            if dtype == "float32" and count > MANY * pairs:
                return None
            if width is not None:
                # What the rounding of r^2 makes of the weight of the nearest other row, block by block.
                closest = self._nearest(xp, xp.where(equal, np.inf, part), norms, closest)
            part[at[0], at[1]] = self.space.array(self._exact(chunk, at[0], at[1] + a), dtype)
            squared.append(part)
            rows.append(at[0])
            columns.append(at[1] + a)
        if width is not None:
            reach = self.space.host(closest[1])[np.isfinite(self.space.host(closest[0]))]
            if reach.max(initial=0) * ROUNDING / (2 * width**2) > 5e-6:
                return None
        whole = squared[0] if len(squared) == 1 else xp.concatenate(squared, 1)
        rows, columns = np.concatenate(rows), np.concatenate(columns)
        order = np.argsort(rows, kind="stable")
        return Distances(chunk, whole, (rows[order], columns[order]), dtype)

    @staticmethod
    def _nearest(xp, part, norms, closest):
        """Smallest squared distance so far and its |x|^2 + |y|^2, a point each."""
        index = xp.argmin(part, 1)
        rows = xp.arange(len(part), device=index.device)
        here = part[rows, index], norms[rows, index]
        if closest is None:
            return here
        return xp.minimum(here[0], closest[0]), xp.where(here[0] < closest[0], here[1], closest[1])

    def _exact(self, chunk: slice, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        parts = [np.einsum("ij,ij->i", *[self.differences(chunk, *pair)] * 2) for pair in self._split(rows, columns)]
        return np.concatenate([*parts, np.zeros(0)])

    def _split(self, rows: np.ndarray, columns: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        step = max(1, BLOCK // self.X.shape[1])
        return ((rows[a : a + step], columns[a : a + step]) for a in range(0, len(rows), step))

    def differences(self, chunk: slice, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """y - x (pairs, n) in float64 from the given numbers; a categorical column is 0 where equal, else -1."""
        x, y = self.points[chunk][rows], self.X[columns]
        difference = y.astype(np.float64) - x
        if len(self.categorical):
            difference[:, self.categorical] = -1.0 * (x[:, self.categorical] != y[:, self.categorical])
        return difference

    def sums(self, distances: Distances, weights) -> np.ndarray:
        """sum_y w_y (y - x), (c, n) float64 on the host, for finite weights (c, m), which it changes."""
        chunk, (rows, columns) = distances.points, distances.near
        near = self.space.host(weights[rows, columns]).astype(np.float64)
        weights[rows, columns] = 0
        weights[distances.squared == 0] = 0  # x itself adds 0, and in a product the rounding of a large number
        xp, dtype = self.space.xp, distances.dtype
        x = self._recode(self.points[chunk], dtype)
        mass = weights.sum(1, dtype=xp.float64)
        total = self.space.cast(x, "float64") * -mass[:, None]
        for a, y in self._blocks(dtype):
            total += self.space.cast(weights[:, a : a + len(y)] @ y, "float64")
        total = self.space.host(total)
        if len(self.categorical):
            # The column of x's own value holds w (1[equal] - 1) / sqrt 2, summed.
            own = np.take_along_axis(total, self.own[chunk], axis=1) * np.sqrt(2)
            total, numeric = np.zeros((len(total), self.X.shape[1])), total
            total[:, self.numeric], total[:, self.categorical] = numeric[:, : len(self.numeric)], own
        for row, column in self._split(rows, columns):
            weighted = self.differences(chunk, row, column) * near[: len(row), None]
            near = near[len(row) :]
            starts = np.flatnonzero(np.diff(row, prepend=-1))  # pairs are sorted by point
            total[row[starts]] += np.add.reduceat(weighted, starts, axis=0)
        return total

    def _blocks(self, dtype: str) -> Iterator[tuple]:
        """First row and recoded rows, block by block."""
        step = max(1, BLOCK // self.X.shape[1])
        for a in range(0, len(self.X), step):
            block = self._kept.get((dtype, a))
            if block is None:
                block = self._recode(self.X[a : a + step], dtype)
                if self.X.size <= KEEP:
                    self._kept[dtype, a] = block
            yield a, block

    def _norms(self, recoded):
        """Squared norms; |x|^2 + |y|^2 - 2 x.y then counts 1 for each categorical column that differs."""
        numeric = recoded[:, : len(self.numeric)]
        return self.space.xp.einsum("ij,ij->i", numeric, numeric) + len(self.categorical) / 2

    def _recode(self, rows: np.ndarray, dtype: str):
        """Rows moved to the centre and behind them 0 or 1/sqrt 2 for each category of the points."""
        work = np.promote_types(rows.dtype, dtype)  # digits are cast away after the origin has moved, not before
        plain = rows if not len(self.categorical) else rows[:, self.numeric]
        moved = self.space.array(plain.astype(work, copy=False)) - self.space.array(self.centre.astype(work))
        moved = self.space.cast(moved, dtype)
        if not len(self.categorical):
            return moved
        equal = [rows[:, column, None] == values for column, values in zip(self.categorical, self.values, strict=True)]
        codes = self.space.array(np.concatenate(equal, axis=1) * np.sqrt(0.5), dtype)
        return self.space.xp.concatenate([moved, codes], 1)
