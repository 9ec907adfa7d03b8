"""Rows of a table in the container and types that they were given in.

A game exchanges cells by number, others than numbers as places among a column's values; `Table.compose` makes rows of
the user's own container and types of them.
"""

import contextlib
import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from shapeline.errors import ShapelineError

log = logging.getLogger(__name__)
LARGEST_SHARE = 1e-4  # of a column's range, that rounding to float32 may move a cell
EXACT = 1 << 53  # whole numbers beyond it are not all double-precision numbers


@dataclass(frozen=True, eq=False)
class Column:
    """How a column's cells are kept; values: what places stand for, last the missing; cast: to Python's numbers."""

    dtype: Any
    values: Any = None
    has_missing: bool = False
    cast: type | None = None

    @property
    def is_number(self) -> bool:
        return self.values is None

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers."""
        return self.values is None and (self.cast is int or pd.api.types.is_integer_dtype(self.dtype))

    @property
    def real(self) -> Any:
        """The type of real numbers that missing cells have there too."""
        return np.dtype(np.float64) if isinstance(self.dtype, np.dtype) else "Float64"

    @property
    def categories(self) -> list:
        """The values without what is missing."""
        return list(self.values[: len(self.values) - self.has_missing])

    def decode(self, cells: np.ndarray) -> Any:
        """Return cells (n,) of float64 as an array of the column's type."""
        if self.values is not None:
            places = np.where(np.isnan(cells), len(self.values) - 1, cells) if self.has_missing else cells
            return self.values.take(places.astype(np.intp))
        if self.cast is not None:
            return (np.rint(cells).astype(np.int64) if self.cast is int else cells).astype(object)
        if not isinstance(self.dtype, np.dtype):
            return pd.array(np.rint(cells) if pd.api.types.is_integer_dtype(self.dtype) else cells, dtype=self.dtype)
        return as_type(cells, self.dtype)


def as_type(cells: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return numbers as another type, to the nearest whole number where that type has no others."""
    if dtype.kind in "biu":
        cells = np.rint(cells)
    return cells.astype(dtype)  # a copy, so that columns adjoin in memory


@dataclass(frozen=True, eq=False)
class Table:
    """How the rows of a table are stored by column. names: None of an array; like: an empty frame."""

    columns: tuple[Column, ...]
    names: pd.Index | None = None
    index: pd.Index | None = None
    dtype: np.dtype | None = None
    like: pd.DataFrame | None = None

    def convert_to_reals(self) -> "Table":
        """Return the same with columns of real numbers in place of whole ones."""
        columns = tuple(replace(each, dtype=each.real, cast=None) if each.is_whole else each for each in self.columns)
        return replace(self, columns=columns)

    def compose(self, cells: np.ndarray) -> Any:
        """Return cells (n, columns) as n rows of the user's container."""
        cells = np.asarray(cells, np.float64)
        if self.names is None:
            rows = np.empty(cells.shape, self.dtype)
            for place, column in enumerate(self.columns):
                rows[:, place] = column.decode(cells[:, place])
            return rows
        frame = self._compose_frame(cells)
        return frame if self.like is None else type(self.like)(frame).__finalize__(self.like)

    def _compose_frame(self, cells: np.ndarray) -> pd.DataFrame:
        dtype = self.columns[0].dtype
        index = None if self.index is None else self.index.take(np.zeros(len(cells), np.intp))
        if isinstance(dtype, np.dtype) and all(each.is_number and each.dtype == dtype for each in self.columns):
            if dtype.kind != "O":  # one block, which pandas and scikit-learn take without a copy
                block = cells if dtype == np.float64 else as_type(cells, dtype)
                return pd.DataFrame(block, columns=self.names, index=index, copy=False)
        columns = {}
        for place, column in enumerate(self.columns):
            values = column.decode(cells[:, place])
            # pandas makes strings of objects, and dates of others, unless it is stated what they are.
            columns[place] = pd.Series(values, dtype=object, copy=False) if column.dtype == object else values
        frame = pd.DataFrame(columns, copy=False)
        frame.columns = self.names
        return frame if index is None else frame.set_axis(index)


def build_table(
    parts: Sequence[pd.DataFrame], dtype: np.dtype | None = None, categorical: Collection[str] = ()
) -> tuple[Table, list[np.ndarray]]:
    """Return how rows of data frames of the same types are kept, and the cells (n, columns) float64 of each. dtype: of
    the array that the frames stand for; categorical: columns of numbers that are categories."""
    whole = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0].reset_index(drop=True)
    encoded = [encode(whole.iloc[:, place], name in categorical) for place, name in enumerate(whole.columns)]
    cells = np.stack([values for values, _ in encoded], axis=1) if encoded else np.empty((len(whole), 0))
    index = parts[0].index
    labelled = dtype is None and not pd.api.types.is_integer_dtype(index.dtype) and len(index)
    names = None if dtype is not None else parts[0].columns
    like = parts[0].iloc[:0] if names is not None and (type(parts[0]) is not pd.DataFrame or parts[0].attrs) else None
    table = Table(tuple(column for _, column in encoded), names, index[:1] if labelled else None, dtype, like)
    composed = pd.DataFrame(table.compose(cells))
    for place, (kind, column) in enumerate(zip(composed.dtypes, table.columns, strict=True)):
        if dtype is None and (kind != column.dtype or not _is_same(composed.iloc[:, place], whole.iloc[:, place])):
            raise AssertionError(f"column {place}: {kind} for {column.dtype}")
    return table, np.split(cells, np.cumsum([len(part) for part in parts])[:-1])


def encode(values: pd.Series, is_category: bool = False) -> tuple[np.ndarray, Column]:
    """Return a column's cells (n,) float64, which come back as they were, NaN where missing, and how they are kept."""
    for make in (_encode_numbers, _encode_values)[is_category:]:
        try:
            encoded = make(values)
        except (TypeError, ValueError, OverflowError, NotImplementedError):  # of other extensions
            continue
        if encoded is not None and _is_same(encoded[1].decode(encoded[0]), values):
            return encoded
    return _store_values(values, np.arange(len(values)), np.zeros(len(values), bool))


def _encode_numbers(values: pd.Series) -> tuple[np.ndarray, Column] | None:
    """Return a column of numbers that are all double-precision numbers; None of another one."""
    dtype, cast = values.dtype, None
    if pd.api.types.is_object_dtype(dtype):
        types = set(map(type, values))
        if types not in ({int}, {float}):
            return None
        (cast,) = types
    elif not pd.api.types.is_any_real_numeric_dtype(dtype):
        return None
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    if pd.api.types.is_integer_dtype(dtype) or cast is int:
        if len(numbers) and np.nanmax(np.abs(numbers), initial=0) >= EXACT:
            return None
    return numbers, Column(dtype, cast=cast)


def _encode_values(values: pd.Series) -> tuple[np.ndarray, Column] | None:
    """Return a column as the places of its different values, sorted where they have an order."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return _encode_categories(values)
    if values.dtype != object:
        missing = values.isna().to_numpy()
        try:
            codes, _ = pd.factorize(values, sort=True)
        except TypeError:
            codes, _ = pd.factorize(values)
        return _store_values(values, codes, missing)
    return _encode_objects(values)


def _encode_categories(values: pd.Series) -> tuple[np.ndarray, Column]:
    """Every category has a place, whether a row has it or not."""
    codes, categories = values.cat.codes.to_numpy(), np.arange(len(values.cat.categories))
    missing = codes < 0
    known = pd.Categorical.from_codes(np.append(categories, -1) if missing.any() else categories, dtype=values.dtype)
    return np.where(missing, np.nan, codes), Column(values.dtype, known, bool(missing.any()))


def _encode_objects(values: pd.Series) -> tuple[np.ndarray, Column]:
    """Objects of another type are other values, True and 1 too; what has no hash is a value of its own."""
    known: dict = {}
    codes = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        nan = isinstance(value, float) and math.isnan(value)
        try:
            codes[row] = known.setdefault((type(value), None if nan else value), len(known))
        except TypeError:
            codes[row] = known.setdefault((type(value), id(value)), len(known))
    missing = pd.isna(values).to_numpy(bool)
    if len(np.unique(codes[missing])) > 1:
        missing[:] = False  # None beside NaN: each is a value
    ranked, first = np.unique(codes[~missing], return_index=True)
    objects = values.to_numpy()[~missing][first]
    with contextlib.suppress(TypeError, ValueError):  # of objects without an order
        ranked = ranked[sorted(range(len(ranked)), key=objects.__getitem__)]
    places = np.full(len(known), -1)
    places[ranked] = np.arange(len(ranked))
    return _store_values(values, places[codes], missing)


def _store_values(values: pd.Series, codes: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, Column]:
    """codes (n,): ascending with the values; the first row that has a code gives its value."""
    present, cells = np.flatnonzero(~missing), np.full(len(values), np.nan)
    _, first, cells[present] = np.unique(codes[present], return_index=True, return_inverse=True)
    rows = present[first]
    if missing.any():
        rows = np.append(rows, np.argmax(missing))
    pool = values.to_numpy() if isinstance(values.dtype, np.dtype) and values.dtype.kind not in "mM" else values.array
    return cells, Column(values.dtype, pool.take(rows), bool(missing.any()))


def _is_same(decoded: Any, values: pd.Series) -> bool:
    restored = pd.Series(decoded, dtype=values.dtype if values.dtype == object else None).reset_index(drop=True)
    if restored.dtype != values.dtype:
        return False
    if restored.dtype == object:
        pairs = zip(restored, values, strict=True)
        return all(one is other or (type(one) is type(other) and _is_equal(one, other)) for one, other in pairs)
    return restored.equals(values.reset_index(drop=True))


def _is_equal(one: Any, other: Any) -> bool:
    same = one == other
    return bool(np.all(same)) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def unify_types(where: str, tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables, by argument, with one type per column: the first one's, where the other cells can have it."""
    first, *rest = tables
    for place, name in enumerate(tables[first].columns):  # names may repeat
        for what in rest * 2:  # the first table may have changed for a later one
            ours, theirs = tables[first].iloc[:, place], tables[what].iloc[:, place]
            if is_same_type(ours.dtype, theirs.dtype):
                continue
            ours, theirs = _unify_columns(f"{where}: {what}", name, ours, theirs)
            for each, column in ((first, ours), (what, theirs)):
                tables[each] = tables[each].copy()
                tables[each].isetitem(place, column)
    return tables


def is_same_type(one: Any, other: Any) -> bool:
    """Return whether two types of columns are equal, with categories in the same order, which pandas disregards."""
    return one == other and list(getattr(one, "categories", ())) == list(getattr(other, "categories", ()))


def _unify_columns(where: str, name: object, ours: pd.Series, theirs: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return a column of inputs and of other rows in a common type. Raises ShapelineError for numbers and texts."""
    kinds = [pd.api.types.infer_dtype(each, skipna=True) for each in (ours, theirs)]
    # An object column accepts any cell, so it would mix numbers with texts.
    is_number, is_other = (pd.api.types.is_numeric_dtype(each.dtype) for each in (ours, theirs))
    differ = is_number != is_other and "string" in kinds
    if not (differ and ours.dtype == object) and (converted := cast(theirs, ours.dtype)).dtype == ours.dtype:
        return ours, converted
    if not (differ and theirs.dtype == object) and (converted := cast(ours, theirs.dtype)).dtype == theirs.dtype:
        return converted, theirs
    if any(isinstance(each.dtype, pd.CategoricalDtype) for each in (ours, theirs)):
        both = pd.api.types.union_categoricals([pd.Categorical(each) for each in (ours, theirs)], ignore_order=True)
        return tuple(
            pd.Series(pd.Categorical(each).set_categories(both.categories), each.index) for each in (ours, theirs)
        )
    if is_number != is_other:
        raise ShapelineError(
            f"{where}: the column '{name}' holds {kinds[1]} values, first '{theirs.iloc[0]}' in row 0, and the "
            f"inputs' {kinds[0]} values; give rows of one type"
        )
    types = [ours.dtype, theirs.dtype]
    is_plain = all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in types)
    common = np.promote_types(*types) if is_plain else object
    return ours.astype(common), theirs.astype(common)


def cast(values: pd.Series, dtype: Any) -> pd.Series:
    """Return a column cast to another type where no cell changes, else unchanged."""
    if pd.api.types.is_bool_dtype(dtype) != pd.api.types.is_bool_dtype(values.dtype) and values.dtype != object:
        return values
    try:
        if all(isinstance(each, pd.CategoricalDtype) for each in (values.dtype, dtype)):
            converted = values.cat.set_categories(dtype.categories, ordered=dtype.ordered)  # `astype` keeps their order
        else:
            converted = values.astype(dtype)
        is_present = values.notna()
        pairs = zip(converted[is_present], values[is_present], strict=True)
        is_same = (converted.notna() == is_present).all() and all(cell == original for cell, original in pairs)
    except (TypeError, ValueError, OverflowError):
        return values
    return converted if is_same else values


def report_lost_digits(where: str, rows: np.ndarray, names: Sequence[str] = ()) -> None:
    """Warn where rows (n, columns) differ as float32: whole numbers, others by 1e-4 of their range."""
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
