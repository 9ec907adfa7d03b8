"""Conversion of user inputs (rows, data frames, images, texts) to the engine's arrays, and their display form."""

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Set, ValuesView
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from shapeline import seeds
from shapeline.api.texts import Cutter, encode_words, is_row, list_texts, tokenize
from shapeline.datasets import table
from shapeline.datasets.loading import check_channels, is_series
from shapeline.datasets.table import Table, report_lost_digits
from shapeline.errors import ShapelineError, name_type, nearest
from shapeline.games.features import Features
from shapeline.models import adapters
from shapeline.models.adapters import Layout, find_columns, find_fitted_columns, find_layout, rearrange
from shapeline.models.classifier import Classifier, detach

log = logging.getLogger(__name__)
SCALES = 50  # ratio from which images have two ranges, such as 0 to 1 and 0 to 255


@dataclass(frozen=True, eq=False)
class DecodingModel:
    """A model that is evaluated on rows of a table in their original types, or on decoded rows."""

    ask: Callable[[Any], Any]
    table: Table | None = None
    decode: Callable[[np.ndarray], Any] | None = None

    def take(self, rows: np.ndarray) -> Any:
        """Return the rows in the form that the model receives."""
        return self.decode(rows) if self.table is None else self.table.compose(rows)

    def __call__(self, rows: np.ndarray) -> Any:
        return self.ask(self.take(rows))


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs as the engine takes them.

    kind: "table", "image", "text", or "array" of any other shape. inputs: (n, *input shape), in the array's original
    type for a function, float32 for a network, float64 for cells of a `Table`, int32 for tokens.
    background, reference: rows of the same shape, where given as rows. shown: the explained data frame, array, or words
    of each text. instances: their names. card: description from which features and references are built.
    take: converts rows to the argument of a function; None: the rows. owners: of tokenized texts, the word of each
    token. untouched: the table's rows in their original container, restricted to the model's columns; table: their
    encoding, None for a network. converted: the background as given, where columns of it have the inputs' types now.
    layout: the position of an array's channels.
    """

    kind: str
    inputs: np.ndarray
    shown: Any
    instances: Sequence
    card: dict = field(default_factory=dict)
    background: np.ndarray | None = None
    reference: np.ndarray | None = None
    take: Callable[[np.ndarray], Any] | None = None
    owners: np.ndarray | None = None
    untouched: Any = None
    table: Table | None = None
    converted: pd.DataFrame | None = None
    layout: Layout | None = None

    @property
    def has_words(self) -> bool:
        """Whether the inputs are texts whose features are their words."""
        return self.kind == "text" and isinstance(self.shown, list)

    @property
    def is_series(self) -> bool:
        """Whether the inputs are time series."""
        return is_series(self.card)

    def digests(self) -> list[str]:
        """Return a digest per input that depends neither on the codes of categories nor on the other inputs."""
        if self.has_words:
            return [seeds.digest(list(words)) for words in self.shown]
        with np.errstate(over="ignore"):
            rows = self.inputs if self.kind == "text" else self.inputs.astype(np.float32)  # enough to seed samples
        if categories := self.card.get("categories"):
            rows = rows.astype(np.float64)
            for name, values in categories.items():
                index = self.card["feature_names"].index(name)
                hashed = [seeds.seed_of(str(value)) % 2**52 for value in values]
                codes = np.where(np.isnan(rows[:, index]), len(hashed), rows[:, index]).astype(int)
                rows[:, index] = np.array([*hashed, np.nan])[codes]
        return [hashlib.sha256(np.ascontiguousarray(row).tobytes()).hexdigest() for row in rows]

    def classifier(self, wrapped: Classifier) -> Classifier:
        """Return the model on its original kind of inputs. Raises ShapelineError for a network with text inputs."""
        if self.table is None and self.card.get("categories"):
            raise ShapelineError(
                f"explain: inputs: the column '{next(iter(self.card['categories']))}' holds no numbers, and "
                f"'{wrapped.architecture}' is a network; encode such columns, or give as model a pipeline or function "
                "that does"
            )
        if self.layout is not None and wrapped.framework != "function":
            return rearrange(wrapped, self.layout.order)
        take = self.take if self.layout is None else self.layout.outward
        if take is None and self.table is None:
            return wrapped
        if wrapped.framework == "function":
            return dataclasses.replace(wrapped, module=DecodingModel(wrapped.module, self.table, take))
        taken = next(iter(getattr(wrapped.module, "inputs", None) or ()), None)
        if getattr(taken, "dtype", None) == "string":
            texts = "tensorflow.constant(texts)" + "[:, None]" * (len(taken.shape) == 2)
            raise ShapelineError(
                f"explain: inputs are texts, which '{wrapped.architecture}' takes as a tensor; give as model lambda "
                f"texts: network.predict({texts}, verbose=0)"
            )
        raise ShapelineError(
            f"explain: inputs are texts, and '{wrapped.architecture}' is a network, which takes numbers; give the "
            "tokenizer= of a model of transformers, as model a function from a list of texts to probabilities, or "
            "as inputs token ids with features='word'"
        )


def read(
    model: object,
    inputs: object,
    background: object = None,
    reference: object = None,
    tokens: bool = False,
    features: Features | str | Callable | None = None,
    feature_names: Sequence[str] | None = None,
    cutter: Cutter | None = None,
) -> Inputs:
    """Return the inputs with background and reference rows; features: also those of texts, as in `cut_parts`. Raises
    ShapelineError that names the argument."""
    features, split = (features, "word") if isinstance(features, Features | None) else (None, features)
    if feature_names is not None:
        refuse_unordered("feature_names", feature_names)
        feature_names = list(feature_names)
    original = inputs
    inputs, background = _unwrap("inputs", inputs), _unwrap("background", background)
    if isinstance(inputs, pd.Series):
        inputs = _convert_series(inputs, model, background)
    if cutter is not None and not isinstance(inputs, list):
        raise ShapelineError(
            "explain: tokenizer: is of texts; give a text, a list of texts, or a column of a data frame"
        )
    if isinstance(inputs, np.ndarray) and inputs.ndim == 2 and inputs.dtype.kind in "OUSTmM":
        width = inputs.shape[1]
        names = _check_names(model, feature_names, width) or [f"column {index}" for index in range(width)]
        other_rows = _order_cells("background", background, model), _order_cells("reference", reference, model)
        return _read_table(
            None, _build_frame("inputs", inputs, names), *other_rows, _find_common_type(inputs, *other_rows)
        )
    if isinstance(inputs, pd.DataFrame):
        if feature_names is not None:
            raise ShapelineError("explain: feature_names: a data frame has its own; rename its columns")
        return _read_table(model, inputs, background, _find_rows(reference))
    if isinstance(inputs, list):
        if background is not None or feature_names is not None:
            name = "feature_names" if background is None else "background"
            raise ShapelineError(f"explain: {name}: texts have none; leave it out")
        labels = list(original.index) if isinstance(original, pd.Series) else range(len(inputs))
        if cutter is None:
            ids, words, decode = encode_words(inputs, reference, original, split)
            return Inputs("text", ids, words, labels, {"kind": "text", "input_shape": [ids.shape[1]]}, take=decode)
        if features is not None or split != "word":
            raise ShapelineError("explain: features: of texts with a tokenizer they are its words; leave them out")
        ids, owners, words, card = tokenize(inputs, cutter)
        return Inputs("text", ids, words, labels, card, owners=owners)
    other_rows = _order_cells("background", background, model), _order_cells("reference", reference, model)
    return _read_array(model, inputs, other_rows, tokens, features, feature_names)


def refuse_unordered(what: str, names: object) -> None:
    """Raise ShapelineError for names in a set, which has no order, a dictionary or one text; what: the argument."""
    if isinstance(names, str | set | frozenset | dict) or not hasattr(names, "__iter__"):
        raise ShapelineError(f"explain: {what} is {name_type(names)}; give a list of names")


def _unwrap(what: str, given: object) -> Any:
    """Return a data frame or Series as is, texts as a list, else an array; None stays None. what: the argument."""
    if isinstance(given, set | frozenset) or (given is None and what == "inputs"):
        problem = "it is None" if given is None else f"{name_type(given)} has no order"
        raise ShapelineError(f"explain: {what}: {problem}; give a list, an array or a data frame of rows")
    if given is None or isinstance(given, pd.DataFrame | pd.Series):
        return given
    if isinstance(given, np.ma.MaskedArray) and (what != "inputs" or list_texts(given) is None):
        raise ShapelineError(f"explain: {what}: a masked array would lose its mask; give {what}.filled(np.nan)")
    if dense := next((method for method in ("toarray", "todense") if hasattr(given, method)), None):
        raise ShapelineError(f"explain: {what}: {name_type(given)} is sparse; give {what}.{dense}()")
    of_dicts = isinstance(given, dict) or (
        isinstance(given, list | tuple) and any(isinstance(item, dict) for item in given)
    )
    if of_dicts or getattr(getattr(given, "dtype", None), "names", None):  # or a structured array
        raise ShapelineError(
            f"explain: {what}: {name_type(given)} with named columns is not a data frame; give pandas.DataFrame({what})"
        )
    if {"columns", "column_names"} & {*dir(type(given))} and (hasattr(given, "to_pandas") or hasattr(given, "collect")):
        remedy = f"{what}{'' if hasattr(given, 'to_pandas') else '.collect()'}.to_pandas()"
        package = type(given).__module__.partition(".")[0].strip("_")
        raise ShapelineError(
            f"explain: {what}: a {type(given).__name__} of {package} is not a pandas data frame; give {remedy}"
        )
    if hasattr(given, "weights") and hasattr(given, "data"):  # the result of shap.kmeans
        raise ShapelineError(
            f"explain: {what}: {name_type(given)} holds weighted rows, and all rows have equal weight here; give "
            "shap.sample(rows, 100), or the rows themselves"
        )
    given = detach(given)
    if isinstance(given, Iterator | Set | ValuesView):
        given = list(given)
    try:
        if what == "inputs" and (texts := list_texts(given)) is not None:
            return texts
        array = np.asarray(given)
    except (TypeError, ValueError) as error:  # of rows of several shapes, or of an object that is no array
        parts = isinstance(given, Iterable) and all(hasattr(each, "shape") for each in given)
        remedy = "give rows of one shape, texts, or a data frame"
        if parts:
            remedy = "pad inputs to one shape, or put several inputs of a model side by side in one array that a "
            remedy += "function splits"
        raise ShapelineError(f"explain: {what}: {error}; {remedy}") from error
    if not array.ndim:  # of a loader, a Pool or a DMatrix
        named = isinstance(given, str | np.str_) and what == "background"
        remedy = f", or reference={str(given)!r} for a baseline by its name" * named
        remedy += f", as {what}.data" * isinstance(getattr(given, "data", None), np.ndarray)  # of a masker of shap
        raise ShapelineError(
            f"explain: {what}: {name_type(given)} is no rows; give an array or a data frame of them{remedy}"
        )
    # numpy converts numbers in a list with texts to texts.
    return np.array(given, dtype=object) if array.dtype.kind in "US" and not hasattr(given, "__array__") else array


def _find_rows(reference: object) -> Any:
    """Return a reference given as rows; None where it names a kind."""
    return None if isinstance(reference, str | dict) else _unwrap("reference", reference)


def _order_cells(what: str, given: object, model: object) -> Any:
    """Return rows beside an array, those of a data frame in the order of the columns that the model was fitted on."""
    rows, fitted = _find_rows(given), find_columns(model)
    if isinstance(rows, pd.Series) and fitted is not None and set(fitted) <= set(rows.index):
        rows = rows.to_frame().T
    if not isinstance(rows, pd.DataFrame):
        return rows
    return _select_columns(what, rows, find_fitted_columns(model, rows.columns)).to_numpy()


def _convert_series(series: pd.Series, model: object, background: object) -> Any:
    """Return a Series as one row of a table where its index names columns, else as texts or one row of numbers."""
    fitted = find_columns(model)
    names = set(background.columns if isinstance(background, pd.DataFrame) else () if fitted is None else fitted)
    is_of_table = bool(names) and names <= set(series.index)
    texts = None if is_of_table or is_row(series) else list_texts(series)
    if texts is not None:
        return texts
    row = series.to_frame().T.infer_objects()
    if is_of_table and isinstance(background, pd.DataFrame):  # a Series has one type and loses its columns' types
        row = row.astype(
            {name: table.cast(row[name], background[name].dtype).dtype for name in background if name in row}
        )
    return row


def _find_common_type(inputs: np.ndarray, *other_rows: Any) -> np.dtype:
    """Return the type of an array of texts, dates or objects that also holds the other rows' cells without loss."""
    kind = inputs.dtype.kind
    arrays = [rows for rows in other_rows if isinstance(rows, np.ndarray)]
    if kind == "U":
        arrays = [rows.astype(str) if all(isinstance(each, str) for each in rows.flat) else rows for rows in arrays]
    return np.result_type(inputs, *(rows for rows in arrays if rows.dtype.kind in (kind, "O")))


def _build_frame(what: str, rows: object, names: Sequence[str]) -> pd.DataFrame | None:
    """Return an array of rows of any type as a data frame; what: the argument."""
    if rows is None or isinstance(rows, pd.DataFrame):
        return rows
    rows = np.atleast_2d(np.asarray(rows, dtype=object))
    if rows.shape[1:] != (len(names),):
        raise ShapelineError(f"explain: {what}: rows of shape {rows.shape[1:]}; give {len(names)} columns")
    return pd.DataFrame(rows, columns=list(names))


def _read_table(
    model: object, inputs: pd.DataFrame, background: Any, reference: Any, dtype: np.dtype | None = None
) -> Inputs:
    """Return a table's inputs, in the columns that the model was fitted on; dtype: None for a data frame."""
    order, inputs = inputs.columns, _select_columns("inputs", inputs, find_fitted_columns(model, inputs.columns))
    is_reordered = [name for name in order if name in inputs] != list(inputs.columns)
    is_network = adapters.find_framework(model) is not None
    names = list(map(str, inputs.columns))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ShapelineError(f"explain: inputs: the column '{twice}' is there twice; rename one")
    if not len(inputs) or not names:
        raise ShapelineError(f"explain: inputs have shape {inputs.shape}; give one or more rows and columns")
    rows = {"inputs": inputs}
    for what, given in (("background", background), ("reference", reference)):
        is_untyped = dtype is None and not isinstance(given, pd.DataFrame)  # columns have lost their types
        if is_reordered and given is not None and not isinstance(given, pd.DataFrame | pd.Series):
            raise ShapelineError(f"explain: {what}: it has no column names to order it by; give a data frame")
        given = given.to_frame().T if isinstance(given, pd.Series) else _build_frame(what, given, list(inputs.columns))
        if given is not None:
            given = _select_columns(what, given, list(inputs.columns))
            if not len(given):
                raise ShapelineError(f"explain: {what}: there are no rows; give one or more")
            rows[what] = given.infer_objects() if is_untyped else given
    if is_network:
        rows = {what: _convert_booleans(given) for what, given in rows.items()}
    before = rows.get("background")
    rows = table.unify_types("explain", rows)
    is_converted = isinstance(background, pd.DataFrame) and not all(
        map(table.is_same_type, before.dtypes, rows["background"].dtypes)
    )
    encoding, cells = table.build_table(list(rows.values()), dtype)
    parts = dict(zip(rows, cells, strict=True))
    categories = {
        name: column.categories for name, column in zip(names, encoding.columns, strict=True) if not column.is_number
    }
    card = {
        "kind": "table",
        "input_shape": [len(names)],
        "feature_names": names,
        "columns": names,
        "categories": categories,
        "categorical": [index for index, name in enumerate(names) if name in categories],
    }
    if is_network:
        report_lost_digits("explain: inputs", np.concatenate(cells), names)
        encoding, parts = None, {what: rows.astype(np.float32) for what, rows in parts.items()}
    original, cells = inputs if dtype is None else inputs.to_numpy(dtype), parts.pop("inputs")
    beside = {"table": encoding, "converted": before if is_converted else None}
    return Inputs("table", cells, inputs, list(inputs.index), card, **parts, untouched=original, **beside)


def _convert_booleans(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with Boolean columns as 1 and 0."""
    truth = [index for index, dtype in enumerate(rows.dtypes) if pd.api.types.is_bool_dtype(dtype)]
    return rows.astype({rows.columns[index]: "Float64" if rows.iloc[:, index].hasnans else float for index in truth})


def _select_columns(what: str, table: pd.DataFrame, names: Sequence | None) -> pd.DataFrame:
    """Return the wanted columns, in that order; what: the argument."""
    for name in names if names is not None else ():
        if name not in table:
            near = nearest(str(name), [other for other in table if other not in names])
            hint = f".{near}" if near.startswith(" Did") else "; add it"
            raise ShapelineError(f"explain: {what}: column '{name}' is missing{hint}")
    return table if names is None else table[list(names)]


def _convert_numbers(what: str, given: Any, dtype: type | None) -> np.ndarray:
    """Return a copy of an argument (what) in the model's type. Raises ShapelineError where a number would change."""
    try:
        given = np.asarray(given)
        if given.dtype.kind == "c":
            raise TypeError("they are complex")
        is_native = given.dtype.kind in "biuf" and given.dtype.itemsize <= 8
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = np.array(
                given, dtype=dtype or (given.dtype.newbyteorder("=") if is_native else np.float64), order="C"
            )
            same = np.isfinite(given.astype(float)) == np.isfinite(numbers) if dtype == np.float32 else given == numbers
            same |= (given != given) & (numbers != numbers)
    except (TypeError, ValueError, OverflowError) as error:
        remedy = "texts or a data frame" if what == "inputs" else "as the inputs are"
        raise ShapelineError(f"explain: {what}: {error}; give numbers, {remedy}") from error
    if not same.all():
        wanted = "whole numbers below 2^31, the ids of words" if dtype == np.int32 else "real numbers of at most 3.4e38"
        raise ShapelineError(f"explain: {what}: hold numbers that the model is not given as they are; give {wanted}")
    return numbers


def _read_array(
    model: object,
    inputs: np.ndarray,
    other_rows: tuple[np.ndarray | None, np.ndarray | None],
    tokens: bool,
    features: Features | None,
    feature_names: Sequence[str] | None,
) -> Inputs:
    """Return numeric inputs: one or more rows, images, token ids, or inputs of the shape of custom features."""
    dtype = None if adapters.find_framework(model) is None else np.float32
    if dtype is not None and not tokens:
        same_shape = [inputs, *(rows for rows in other_rows if rows is not None and rows.shape[1:] == inputs.shape[1:])]
        report_lost_digits("explain: inputs", np.atleast_2d(np.concatenate(same_shape)), feature_names or ())
    inputs = _convert_numbers("inputs", inputs, np.int32 if tokens else dtype)
    is_single = inputs.ndim == 1 if features is None else inputs.shape == features.cells.shape
    is_single |= any(rows is not None and rows.shape[1:] == inputs.shape for rows in other_rows)
    inputs = inputs[None] if is_single and inputs.size else inputs
    if inputs.ndim < 2 or not inputs.size:
        raise ShapelineError(f"explain: inputs have shape {inputs.shape}; give one or more inputs as (n, *input shape)")
    if features is None and inputs.ndim == 3 and inputs.dtype.kind == "f" and np.isnan(inputs).any():
        raise ShapelineError("explain: inputs: they hold NaN, which in images means a masked pixel; give numbers")
    layout = None if features is not None or tokens else find_layout(model, inputs, other_rows)
    if layout is None and features is None and inputs.ndim > 2:
        raise ShapelineError(
            f"explain: inputs have shape {inputs.shape}; give features=, a Features that names the feature of each cell"
        )
    shown, inputs = inputs, layout.inward(inputs) if layout else inputs
    shape = inputs.shape[1:]
    _check_images("inputs", inputs)
    kind = "text" if tokens else {1: "table", 3: "image"}.get(len(shape), "array")
    card: dict = {"input_shape": list(shape), **({} if kind == "array" else {"kind": kind})}
    if kind == "table":
        names = _check_names(model, feature_names, shape[0]) or _find_fitted_names(model, shape[0])
        card |= {"feature_names": names} if names else {}
    elif kind == "image" and layout is not None and layout.order == "without_channels":
        card["has_channels"] = False
        card["feature_names"] = check_channels("explain: feature_names", feature_names or (), shape[1:])
    elif feature_names is not None:
        raise ShapelineError(
            "explain: feature_names: are of the columns of a table, or of the channels of series; leave them out"
        )
    shown = shown[None] if len(shown) != len(inputs) else shown
    background, reference = (
        _read_rows_like(what, rows, inputs, np.int32 if tokens else dtype, layout, shown.shape[1:])
        for what, rows in zip(("background", "reference"), other_rows, strict=True)
    )
    for what, rows in (("background", background), ("reference", reference)) if kind == "image" else ():
        ends = sorted(float(np.abs(each).max()) for each in (inputs, rows if rows is not None else inputs))
        if 0 < ends[0] < ends[1] / SCALES:
            log.warning(
                "explain: %s: its pixels and those of the inputs reach %.3g and %.3g; give both in the same range",
                *(what, *(ends if np.abs(inputs).max() > ends[0] else ends[::-1])),
            )
    return Inputs(kind, inputs, shown, range(len(inputs)), card, background, reference, layout=layout)


def _read_rows_like(
    what: str, rows: Any, inputs: np.ndarray, dtype: type | None, layout: Layout | None, shown: tuple[int, ...]
) -> np.ndarray | None:
    """Return rows, or one row, of the inputs' shape as (m, *input shape); what: the argument, shown: a row's shape."""
    if rows is None:
        return None
    shape = inputs.shape[1:]
    given = rows = _convert_numbers(what, rows, dtype)
    if layout is not None and 2 <= rows.ndim <= 4:
        rows = layout.inward(rows)
    rows = rows[None] if rows.shape == shape else rows
    if rows.shape[1:] != shape or not len(rows):
        raise ShapelineError(f"explain: the {what} has shape {given.shape} and one input {shown}; give rows like it")
    _check_images(what, rows)
    return rows


def _check_images(what: str, rows: np.ndarray) -> None:
    """Raise ShapelineError for NaN in images, where it means a masked patch; in tables it may be a missing value."""
    if rows.ndim == 4 and np.isnan(rows).any():
        index = np.isnan(rows).any(axis=(1, 2, 3)).argmax()
        raise ShapelineError(f"explain: {what}: the image at position {index} holds NaN; give numbers")


def _check_names(model: object, feature_names: Sequence[str] | None, columns: int) -> list[str]:
    if feature_names is None:
        return []
    names = [str(name) for name in feature_names]
    if len(set(names)) < len(names) or len(names) != columns:
        raise ShapelineError(f"explain: feature_names: has {len(names)} names; give {columns}, each once")
    fitted = _find_fitted_names(model, columns)
    if names != fitted and set(names) == set(fitted):
        raise ShapelineError("explain: feature_names: the model has these columns in another order; give a data frame")
    return names


def _find_fitted_names(model: object, columns: int) -> list[str]:
    """Return the feature names that a model was fitted on, for rows without names."""
    fitted = find_columns(model)
    names = [] if fitted is None else list(map(str, fitted))
    return names if len(names) == columns else []
