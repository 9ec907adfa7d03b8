"""Named columns of a CSV file with a header; a fault is told with file and line."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from shapeline.datasets.text import csv_lines
from shapeline.errors import ShapelineError, nearest


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of a file in memory. where: the file; lines: (n,) line of each row; texts: name -> the n cells."""

    where: str
    lines: np.ndarray
    texts: dict[str, np.ndarray]

    def numbers(self, name: str, lowest: float = -np.inf, highest: float = np.inf) -> np.ndarray:
        """The column as (n,) float64; what is not a finite number in that range is a ShapelineError."""
        cells = self.texts[name]
        try:
            values = cells.astype(np.float64)
        except ValueError:
            values = np.array([_number(cell) for cell in cells])
        wrong = ~(np.isfinite(values) & (values >= lowest) & (values <= highest))
        if wrong.any():
            limits = f" from {lowest:g} to {highest:g}" if np.isfinite(highest) else ""
            self._refuse(name, int(np.argmax(wrong)), f"expected a number{limits}")
        return values

    def mapped(self, name: str, table: dict[str, float]) -> np.ndarray:
        """The column as (n,) float64, each cell by the table (cells in lower case); others are a ShapelineError."""
        cells, inverse = np.unique(np.char.lower(self.texts[name]), return_inverse=True)
        for position, cell in enumerate(cells.tolist()):
            if cell not in table:
                expected = ", ".join(f"'{known}'" for known in table)
                self._refuse(name, int(np.argmax(inverse == position)), f"expected one of {expected}")
        return np.array([table[cell] for cell in cells.tolist()], np.float64)[inverse]

    def codes(self, name: str) -> tuple[np.ndarray, list[str]]:
        """The column as codes (n,) float64 and what they stand for, in alphabetical order."""
        names, inverse = np.unique(self.texts[name], return_inverse=True)
        return inverse.astype(np.float64), names.tolist()

    def inputs(self, attributes: dict[str, tuple]) -> tuple[np.ndarray, dict[str, list[str]]]:
        """Attributes as (n, columns), and what the codes among them stand for.

        attributes: name -> (column, what it holds): a table for mapped(), limits for numbers(), None for codes().
        """
        inputs, categories = [], {}
        for name, (column, holds) in attributes.items():
            if holds is None:
                values, categories[name] = self.codes(column)
            else:
                values = self.mapped(column, holds) if isinstance(holds, dict) else self.numbers(column, *holds)
            inputs.append(values)
        return np.stack(inputs, axis=1), categories

    def rows(self, kept: np.ndarray) -> "Columns":
        """The rows where `kept` (n,) is true."""
        return Columns(self.where, self.lines[kept], {name: cells[kept] for name, cells in self.texts.items()})

    def _refuse(self, name: str, row: int, expected: str) -> None:
        raise ShapelineError(f"{self.where}, line {self.lines[row]}: {name} is '{self.texts[name][row]}'; {expected}.")


def read(path: Path, names: tuple[str, ...]) -> Columns:
    """All rows of the named columns. Raises ShapelineError as rows() does."""
    lines, cells = [], []
    with opened(path) as stream:
        for line, row in rows(str(path), stream, names):
            lines.append(line)
            cells.append(row)
    if not lines:
        raise ShapelineError(f"{path}: holds a header and no rows.")
    texts = {name: np.array(column) for name, column in zip(names, zip(*cells, strict=True), strict=True)}
    return Columns(str(path), np.array(lines), texts)


def rows(where: str, stream: BinaryIO, names: tuple[str, ...], delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """(line, cells of the named columns) of each row, without spaces around.

    Names are those of the header in lower case with an underscore for every run of other characters; of equal names the
    first column counts. Raises ShapelineError for a missing column, a row of another width, and text that is no CSV.
    """
    lines = csv_lines(where, stream, "replace", delimiter)
    _, header = next(lines, (1, []))
    positions = _positions(where, header, names)
    for line, row in lines:
        if row and len(row) != len(header):
            raise ShapelineError(f"{where}, line {line}: {len(row)} column(s), but its header has {len(header)}.")
        if row:
            yield line, [row[position].strip() for position in positions]


def _positions(where: str, header: list[str], names: tuple[str, ...]) -> list[int]:
    columns = [re.sub(r"[^a-z0-9]+", "_", name.strip().lower()) for name in header]
    for name in names:
        if name not in columns:
            hint = nearest(name, columns) if columns else " The file is empty."
            raise ShapelineError(f"{where}: its header has no column {name}.{hint}")
    return [columns.index(name) for name in names]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as stream:
            yield stream
    except OSError as error:
        raise ShapelineError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
