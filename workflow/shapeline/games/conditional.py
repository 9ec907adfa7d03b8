"""Absent columns of a table as the present ones suggest them: rows of the conditional distribution (Aas, Jullum &
Loland 2021), by a Gaussian or by the nearest records; coalitions are then rows that data could hold."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shapeline.errors import ShapelineError

RIDGE = 1e-6  # on the diagonal of the correlations: columns that say the same are no trouble then
MAX_RECORDS = 2000  # among which neighbours are looked for
CELLS = 1 << 24  # of distances, or of matrices, that are held at a time
FORMS = ("gaussian", "neighbours")

Fill = Callable[[np.ndarray, np.ndarray], np.ndarray]


def build(form: str, rows: int, records: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Fill]:
    """Return the rows (M, c) where all cells are absent, and the function from inputs and kept cells to rows (n, K, M,
    c).

    gaussian: M samples given the kept cells, whose mean is the conditional mean; neighbours: the M records nearest
    on the kept cells, each over its standard deviation. Raises ShapelineError.
    """
    records = np.asarray(records, np.float64)
    if not np.isfinite(records).all():
        raise ShapelineError("reference kind 'conditional': a column has missing numbers; use mean or background.")
    if len(records) < (least := rows if form == "neighbours" else 2):
        raise ShapelineError(
            f"reference kind 'conditional': form {form} needs {least} training record(s) and has {len(records)}"
            "; use another form, or more training data."
        )
    if form == "neighbours":
        records = records[rng.permutation(len(records))[: max(MAX_RECORDS, rows)]]
        return records[:rows], Neighbours(records, _scale(records), rows).fill
    mean, scale = records.mean(axis=0), _scale(records)
    correlation = ((records - mean) / scale).T @ ((records - mean) / scale) / len(records)
    correlation[np.diag_indices(len(mean))] += RIDGE
    samples = rng.normal(size=(rows, len(mean)))
    if rows > 1:
        samples -= samples.mean(axis=0)
        samples *= np.sqrt(rows / (rows - 1))
    else:
        samples[:] = 0
    gaussian = Gaussian(mean, scale, correlation, samples @ np.linalg.cholesky(correlation).T)
    return mean + scale * gaussian.samples, gaussian.fill


def _scale(records: np.ndarray) -> np.ndarray:
    """Standard deviations (c,), 1 of a column that is constant."""
    scale = records.std(axis=0)
    return np.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """mean, scale (c,); correlation (c, c); samples (M, c) of the whole distribution, standardised."""

    mean: np.ndarray
    scale: np.ndarray
    correlation: np.ndarray
    samples: np.ndarray

    def fill(self, inputs: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Return rows as `build` says: samples of the whole, moved by what the kept cells differ (Matheron's rule)."""
        given = (np.asarray(inputs, np.float64) - self.mean) / self.scale
        result = np.empty((len(inputs), kept.shape[1], *self.samples.shape))
        step = max(1, CELLS // (len(self.mean) ** 2 * max(1, len(kept)) + len(inputs) * self.samples.size))
        apart = given[:, None, None, :] - self.samples  # (n, 1, M, c)
        for start in range(0, kept.shape[1], step):
            part = kept[:, start : start + step]
            both = part[..., :, None] & part[..., None, :]
            matrix = np.where(both, self.correlation, np.eye(len(self.mean)))
            gain = np.linalg.solve(matrix, part[..., :, None] * self.correlation)
            moved = self.samples + (apart * part[:, :, None, :]) @ gain
            result[:, start : start + step] = self.mean + self.scale * moved
        return result


@dataclass(frozen=True, eq=False)
class Neighbours:
    """records (N, c), scale (c,), and how many of the nearest fill; of equally near ones the first."""

    records: np.ndarray
    scale: np.ndarray
    rows: int

    def fill(self, inputs: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """As `build` says."""
        result = np.empty((len(inputs), kept.shape[1], self.rows, inputs.shape[1]))
        step = max(1, CELLS // len(self.records))
        for number, row in enumerate(np.asarray(inputs, np.float64)):
            squares = ((row - self.records) / self.scale) ** 2
            own = kept[number if len(kept) > 1 else 0]
            for start in range(0, len(own), step):
                distance = own[start : start + step].astype(np.float64) @ squares.T
                nearest = np.argsort(distance, axis=1, kind="stable")[:, : self.rows]
                result[number, start : start + step] = self.records[nearest]
        return result
