"""numpy on the CPU or torch on a GPU behind the few names they share, and tables of numbers checked on the way in."""

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
    """A table of finite numbers (k, columns), k and columns >= 1, as it is; ShapelineError says which cell is not.

    `finite=False`: whoever calls looks for NaN in what is computed anyway.
    """
    rows = np.asarray(rows)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ShapelineError(
            f"{where}: {name} has shape {rows.shape}; give one point a row, (points, features), at least one of each."
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
