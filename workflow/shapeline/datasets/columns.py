"""Named columns of an official CSV file; a fault is reported with file and line."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from shapeline.datasets.text import csv_lines
from shapeline.errors import ShapelineError, nearest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of a file in memory. where: the file; texts: its cells by name, each row by its line."""

    where: str
    texts: "pd.DataFrame"

    def numbers(self, name: str, lowest: float = -np.inf, highest: float = np.inf) -> np.ndarray:
        """Return the column as (n,) float64; raise ShapelineError for what is no finite number in that range."""
        import pandas as pd

        values = pd.to_numeric(self.texts[name], errors="coerce").to_numpy(np.float64)
        limits = f" from {lowest:g} to {highest:g}" if np.isfinite(highest) else ""
        self._check(name, np.isfinite(values) & (values >= lowest) & (values <= highest), f"expected a number{limits}")
        return values

    def map_values(self, name: str, table: dict[str, float]) -> np.ndarray:
        """Return the column as (n,) float64, each cell by the table (cells in lower case); refuse others."""
        values = self.texts[name].str.lower().map(table).to_numpy(np.float64)
        self._check(name, ~np.isnan(values), "expected one of " + ", ".join(f"'{known}'" for known in table))
        return values

    def inputs(self, attributes: dict[str, tuple]) -> tuple[np.ndarray, dict[str, list[str]]]:
        """Return attributes (n, columns) and what codes stand for; attributes: name -> (column, table, limits)."""
        inputs, categories = [], {}
        for name, (column, holds) in attributes.items():
            if holds is None:
                codes = self.texts[column].astype("category").cat
                values, categories[name] = codes.codes.to_numpy(np.float64), codes.categories.tolist()
            else:
                values = self.map_values(column, holds) if isinstance(holds, dict) else self.numbers(column, *holds)
            inputs.append(values)
        return np.stack(inputs, axis=1), categories

    def rows(self, kept: np.ndarray) -> "Columns":
        """Return the rows where `kept` (n,) is true."""
        return Columns(self.where, self.texts[kept])

    def _check(self, name: str, fits: np.ndarray, expected: str) -> None:
        if not fits.all():
            cells = self.texts[name][~fits]
            raise ShapelineError(f"{self.where}, line {cells.index[0]}: {name} is '{cells.iloc[0]}'; {expected}.")


def read(path: Path, names: tuple[str, ...]) -> Columns:
    """Return all rows of the named columns; raise ShapelineError as rows() does."""
    import pandas as pd

    with open_binary(path) as stream:
        result = dict(rows(str(path), stream, names))
    if not result:
        raise ShapelineError(f"{path}: holds a header and no rows; give a file with rows.")
    return Columns(str(path), pd.DataFrame(result.values(), index=result.keys(), columns=names, dtype="str"))


def rows(where: str, stream: BinaryIO, names: tuple[str, ...], delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells of the named columns, stripped) of each row; ShapelineError for missing columns and no CSV.

    Names are in lower case with an underscore for other characters; of equal names the first counts.
    """
    lines = csv_lines(where, stream, "replace", delimiter)
    _, header = next(lines, (1, []))
    known = [re.sub(r"[^a-z0-9]+", "_", name.strip().lower()) for name in header]
    for name in names:
        if name not in known:
            hint = f".{nearest(name, known)}" if known else "; the file is empty, so get it again"
            raise ShapelineError(f"{where}: its header has no column {name}{hint}")
    places = [known.index(name) for name in names]
    for line, row in lines:
        if row and len(row) != len(header):
            raise ShapelineError(
                f"{where}, line {line}: {len(row)} column(s), but its header has {len(header)}; correct the line."
            )
        if row:
            yield line, [row[place].strip() for place in places]


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as stream:
            yield stream
    except OSError as error:
        raise ShapelineError(f"{path}: cannot be read ({error.strerror or error}); make it readable.") from error
