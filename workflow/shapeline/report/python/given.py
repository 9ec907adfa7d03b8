"""What a person gives, a row or a frame, a picture or a text, as arrays that the engine takes, and how to show it."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence, Set, ValuesView
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from shapeline import seeds
from shapeline.datasets import table_file
from shapeline.errors import ShapelineError, nearest
from shapeline.game.features import Features
from shapeline.models.classifier import Classifier
from shapeline.models.estimators import columns_of
from shapeline.models.pipeline_file import frame
from shapeline.report.python.pieces import Cutter, pieces
from shapeline.report.python.texts import encode_words, is_row, list_texts

CHANNELS = (1, 2, 3, 4)


@dataclass(frozen=True, eq=False)
class Taking:
    """A model that is asked of what `take` makes of rows."""

    ask: Callable[[Any], Any]
    take: Callable[[np.ndarray], Any]

    def __call__(self, rows: np.ndarray) -> Any:
        return self.ask(self.take(rows))


@dataclass(frozen=True, eq=False)
class Given:
    """Inputs as the engine takes them.

    kind: "table", "image" or "text", or "array" of any other shape. inputs: (n, *input shape) float32, of tokens int32.
    background, reference: rows of the same, where they were given as rows. shown: what was explained: a data frame, an
    array, or the words of each text. instances: what each is called. card: what features and references are made from.
    take: from rows to what a function as the model is given; None: the rows. owners: of texts by a tokenizer, the word
    of each token.
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

    @property
    def spoken(self) -> bool:
        """Whether texts were given, whose features are their own words."""
        return self.kind == "text" and isinstance(self.shown, list)

    def digests(self) -> list[str]:
        """What each input is, whatever else is given with it: codes hang on what other rows hold, and so do words'."""
        if self.spoken:
            return [seeds.digest(list(words)) for words in self.shown]
        named = self.card.get("columns", ())
        rows = self.inputs.astype(np.float64) if self.card.get("categories") else self.inputs
        for place, column in enumerate(named):
            if "values" in column:
                hashed = [seeds.seed_of(str(value)) % 2**52 for value in column["values"]]
                codes = np.where(np.isnan(rows[:, place]), len(hashed), rows[:, place]).astype(int)
                rows[:, place] = np.array([*hashed, np.nan])[codes]
        return [hashlib.sha256(np.ascontiguousarray(row).tobytes()).hexdigest() for row in rows]

    def classifier(self, wrapped: Classifier) -> Classifier:
        """The model, given what it was made for. Raises ShapelineError for a network that would be given texts."""
        if self.take is None:
            return wrapped
        if wrapped.framework == "function":
            return dataclasses.replace(wrapped, module=Taking(wrapped.module, self.take))
        if self.kind == "text":
            raise ShapelineError(
                f"explain: inputs are texts, and '{wrapped.architecture}' is a network, which takes numbers; give the "
                "tokenizer= of a model of transformers, as model a function from a list of texts to probabilities, or "
                "as inputs token ids with features='word'"
            )
        if coded := list(self.card["categories"]):
            raise ShapelineError(
                f"explain: inputs: the column '{coded[0]}' holds no numbers, and '{wrapped.architecture}' is a "
                "network; encode such columns, or give as model a pipeline or function that does"
            )
        return wrapped


def read(
    model: object,
    inputs: object,
    background: object = None,
    reference: object = None,
    tokens: bool = False,
    features: Features | None = None,
    feature_names: Sequence[str] | None = None,
    cutter: Cutter | None = None,
) -> Given:
    """Inputs, and what was given as rows beside them, by their kind.

    tokens: whether arrays are token ids. features: one's own, which say what shape one input has. cutter: of texts for
    a model of transformers. Raises ShapelineError that names the argument.
    """
    inputs, background = _plain(inputs), _plain(background, "background")
    if isinstance(inputs, pd.Series):
        inputs = _row_of(inputs, model, background)
    if isinstance(inputs, np.ndarray) and inputs.ndim == 2 and inputs.dtype.kind in "OUS":
        names = _names(feature_names, inputs.shape[1]) or [f"column {place}" for place in range(inputs.shape[1])]
        return _table(None, _framed("inputs", inputs, names), background, _rows_of(reference), as_array=True)
    if isinstance(inputs, pd.DataFrame):
        if feature_names is not None:
            raise ShapelineError("explain: feature_names: a data frame has its own; rename its columns")
        return _table(model, inputs, background, _rows_of(reference))
    if isinstance(inputs, list):
        if background is not None or feature_names is not None:
            name = "feature_names" if background is None else "background"
            raise ShapelineError(f"explain: {name}: is of tables and pictures, and inputs are texts; leave it out")
        if cutter is None:
            ids, words, decode = encode_words(inputs, reference)
            return Given(
                "text", ids, words, range(len(ids)), {"kind": "text", "input_shape": [ids.shape[1]]}, take=decode
            )
        if features is not None:
            raise ShapelineError("explain: features: of texts with a tokenizer they are its words; leave them out")
        ids, owners, words, card = pieces(inputs, cutter)
        return Given("text", ids, words, range(len(ids)), card, owners=owners)
    if cutter is not None:
        raise ShapelineError("explain: tokenizer: is of texts; give as inputs a text or a list of texts")
    return _array(model, inputs, (background, _rows_of(reference)), tokens, features, feature_names)


def _plain(given: object, what: str = "inputs") -> Any:
    """A data frame or Series as it is, texts as a list, anything else as an array; None stays."""
    if given is None or isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, pd.Series):
        return given
    if hasattr(given, "detach"):  # a torch tensor, wherever it is
        given = given.detach().cpu().numpy()
    if isinstance(given, Iterator | Set | ValuesView):
        given = list(given)
    texts = list_texts(given) if what == "inputs" else None
    if texts is not None:
        return texts
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ShapelineError(f"explain: {what}: {error}; give rows of one shape, texts, or a data frame") from error
    # numpy makes texts of the numbers beside texts.
    return np.array(given, dtype=object) if array.dtype.kind in "US" and not hasattr(given, "__array__") else array


def _rows_of(reference: object) -> Any:
    """A reference that is rows; None where it is a kind."""
    return None if isinstance(reference, str | dict) else _plain(reference, "reference")


def _row_of(series: pd.Series, model: object, background: object) -> Any:
    """A Series as one row of a table, where its index names columns, else as texts or one row of numbers."""
    fitted = columns_of(model)
    names = set(background.columns if isinstance(background, pd.DataFrame) else () if fitted is None else fitted)
    texts = None if (names and names <= set(series.index)) or is_row(series) else list_texts(series)
    return series.to_frame().T.infer_objects() if texts is None else texts


def _framed(what: str, rows: object, names: Sequence[str]) -> pd.DataFrame | None:
    """An array of rows of anything as a data frame; what: the argument."""
    if rows is None or isinstance(rows, pd.DataFrame):
        return rows
    rows = np.atleast_2d(np.asarray(rows, dtype=object))
    if rows.shape[1:] != (len(names),):
        raise ShapelineError(f"explain: {what}: rows of shape {rows.shape[1:]}; give {len(names)} columns")
    return pd.DataFrame(rows, columns=list(names)).infer_objects()


# ------------------------------------------------------------------------------------------------------------ tables


def _table(model: object, inputs: pd.DataFrame, background: Any, reference: Any, as_array: bool = False) -> Given:
    """A data frame as numbers and codes; a model that was fitted on names is given its own columns, and no others."""
    fitted = columns_of(model)
    inputs = _columns("inputs", inputs.rename(columns=str), fitted)
    names = list(inputs)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ShapelineError(f"explain: inputs: the column '{twice}' is there twice; rename one")
    if not len(inputs) or not names:
        raise ShapelineError(f"explain: inputs have shape {inputs.shape}; give one or more rows and columns")
    rows = {"inputs": inputs}
    for what, given in (("background", background), ("reference", reference)):
        given = given.to_frame().T if isinstance(given, pd.Series) else _framed(what, given, names)
        if given is not None:
            rows[what] = _columns(what, given.rename(columns=str), names)
    every = pd.concat(_of_one_type(list(rows.values())), ignore_index=True)
    coded = [_coded(name, every[name]) for name in names]
    described = [{"name": name, **what} for name, (_, what) in zip(names, coded, strict=True)]
    stored = np.stack([values for values, _ in coded], axis=1).astype(np.float32)
    parts = dict(zip(rows, np.split(stored, np.cumsum([len(part) for part in rows.values()])[:-1]), strict=True))
    categories = {column["name"]: column["values"] for column in described if "values" in column}
    card = {
        "kind": "table",
        "input_shape": [len(names)],
        "feature_names": names,
        "columns": described,
        "categories": categories,
        "categorical": [place for place, name in enumerate(names) if name in categories],
    }

    def take(numbers: np.ndarray) -> Any:
        if fitted is None and not categories and (as_array or hasattr(model, "predict")):
            return np.asarray(numbers, np.float64)
        table = frame(numbers, described)
        return table.to_numpy(object) if as_array else table

    return Given("table", parts.pop("inputs"), inputs, list(inputs.index), card, **parts, take=take)


def _columns(what: str, table: pd.DataFrame, wanted: Sequence[str] | None) -> pd.DataFrame:
    """The columns that are wanted, in that order; what: the argument."""
    for name in wanted if wanted is not None else ():
        if name not in table:
            raise ShapelineError(f"explain: {what}: there is no column '{name}'.{nearest(name, table.columns)}")
    return table if wanted is None else table[list(wanted)]


def _of_one_type(tables: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """The tables with one list of categories a column, where any of them has one."""
    result = [table.copy() for table in tables]
    for name in tables[0]:
        if any(isinstance(table[name].dtype, pd.CategoricalDtype) for table in tables):
            each = [pd.Categorical(table[name]) for table in tables]
            if len({part.dtype for part in each}) > 1:
                both = pd.api.types.union_categoricals(each, ignore_order=True).categories
                for table, part in zip(result, each, strict=True):
                    table[name] = part.set_categories(both)
    return result


def _coded(name: str, values: pd.Series) -> tuple[np.ndarray, dict]:
    """A column as numbers or codes (n,), NaN where missing, and what it was."""
    if values.isna().all() and not isinstance(values.dtype, pd.CategoricalDtype):
        return np.full(len(values), np.nan), {"type": "number"}
    number = pd.api.types.infer_dtype(values, skipna=True) in ("integer", "floating", "mixed-integer-float")
    return table_file.coded(f"explain: inputs: the column '{name}'", values, not number)


# ------------------------------------------------------------------------------------------------------------ arrays


def _numbers(what: str, given: Any, dtype: type) -> np.ndarray:
    """An argument (what) as a model is given it, copied, so that the caller's stays as it is. Raises ShapelineError
    where it would be other numbers: infinite, without an imaginary part, or another word's id."""
    try:
        given = np.asarray(given)
        if given.dtype.kind == "c":
            raise TypeError("they are complex")
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = np.array(given, dtype=dtype, order="C")
            same = given == numbers if dtype == np.int32 else np.isfinite(given.astype(float)) == np.isfinite(numbers)
    except (TypeError, ValueError, OverflowError) as error:
        remedy = "texts or a data frame" if what == "inputs" else "as the inputs are"
        raise ShapelineError(f"explain: {what}: {error}; give numbers, {remedy}") from error
    if not same.all():
        wanted = "whole numbers below 2^31, the ids of words" if dtype == np.int32 else "real numbers of at most 3.4e38"
        raise ShapelineError(f"explain: {what}: hold numbers that the model is not given as they are; give {wanted}")
    return numbers


def _array(
    model: object,
    inputs: np.ndarray,
    beside: tuple[np.ndarray | None, np.ndarray | None],
    tokens: bool,
    features: Features | None,
    feature_names: Sequence[str] | None,
) -> Given:
    """Numbers: a table or one row of it, pictures or one of them, token ids, or inputs of one's own features' shape."""
    inputs = _numbers("inputs", inputs, np.int32 if tokens else np.float32)
    if features is not None:
        one = inputs.shape == features.cells.shape
    else:
        one = inputs.ndim == 1 or (inputs.ndim == 3 and inputs.shape[0] in CHANNELS)
    inputs = inputs[None] if one and inputs.size else inputs
    if inputs.ndim < 2 or not len(inputs):
        raise ShapelineError(f"explain: inputs have shape {inputs.shape}; give one or more inputs as (n, *input shape)")
    if features is None and inputs.ndim == 3:
        raise ShapelineError(
            f"explain: inputs have shape {inputs.shape}; give pictures as (n, channels, height, width), grey ones as "
            "inputs[:, None]"
        )
    shape = inputs.shape[1:]
    if features is None and len(shape) == 3 and shape[0] not in CHANNELS and shape[2] in CHANNELS:
        raise ShapelineError(
            f"explain: inputs have shape {inputs.shape}, channels last; give np.moveaxis(inputs, -1, 1), and a model "
            "that takes channels first"
        )
    _check_pictures("inputs", inputs)
    kind = "text" if tokens else {1: "table", 3: "image"}.get(len(shape), "array")
    card: dict = {"input_shape": list(shape)}
    if kind == "table":
        names = _names(feature_names, shape[0]) or _fitted_names(model, shape[0])
        card |= {"feature_names": names} if names else {}
    elif feature_names is not None:
        raise ShapelineError("explain: feature_names: are of the columns of a table; leave them out")
    background, reference = (
        _rows_like(what, rows, inputs) for what, rows in zip(("background", "reference"), beside, strict=True)
    )
    return Given(kind, inputs, inputs, range(len(inputs)), card, background, reference)


def _rows_like(what: str, rows: Any, inputs: np.ndarray) -> np.ndarray | None:
    """Rows of the inputs' shape, (m, *input shape), from one of them or several; what: the argument."""
    if rows is None:
        return None
    shape = inputs.shape[1:]
    rows = _numbers(what, rows, inputs.dtype.type)
    rows = rows[None] if rows.shape == shape else rows
    if rows.shape[1:] != shape or not len(rows):
        raise ShapelineError(f"explain: the {what} has shape {rows.shape}; one input has shape {shape}")
    _check_pictures(what, rows)
    return rows


def _check_pictures(what: str, rows: np.ndarray) -> None:
    """No NaN, which in pictures means that a patch is left out; in tables it may be a value that is missing."""
    if rows.ndim == 4 and np.isnan(rows).any():
        place = np.isnan(rows).any(axis=(1, 2, 3)).argmax()
        raise ShapelineError(f"explain: {what}: the picture at position {place} holds NaN; give numbers")


def _names(feature_names: Sequence[str] | None, columns: int) -> list[str]:
    if feature_names is None:
        return []
    names = [str(name) for name in feature_names]
    if len(set(names)) < len(names) or len(names) != columns:
        raise ShapelineError(f"explain: feature_names: has {len(names)} names; give {columns}, each once")
    return names


def _fitted_names(model: object, columns: int) -> list[str]:
    """The names that a model was fitted on, for rows that have none."""
    fitted = columns_of(model)
    names = [] if fitted is None else list(map(str, fitted))
    return names if len(names) == columns else []
