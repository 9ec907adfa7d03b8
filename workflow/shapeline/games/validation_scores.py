"""Shared parts of games on validation data: scikit-learn's scorers, rows of any container, identities."""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pandas as pd

from shapeline.errors import ShapelineError, first_line, format_count, name_type, nearest
from shapeline.models.classifier import detach

Scoring = str | Callable | Sequence[str] | None


def read_scorers(where: str, scoring: Scoring) -> dict[str, Callable]:
    """Return scorers by name, from (estimator, X, y) to a number, by default the estimator's. Raises ShapelineError."""
    from sklearn.metrics import get_scorer, get_scorer_names

    if scoring is None:
        return {"score": _score}
    if callable(scoring):
        return {getattr(scoring, "__name__", "score"): scoring}
    names = [scoring] if isinstance(scoring, str) or not hasattr(scoring, "__iter__") else list(scoring)
    for name in names:
        if name not in get_scorer_names():
            raise ShapelineError(f"{where}: scoring: there is no '{name}'.{nearest(name, get_scorer_names())}")
    if not names or len(set(names)) < len(names):
        raise ShapelineError(f"{where}: scoring is {scoring!r}; give one or several different names")
    return {name: get_scorer(name) for name in names}


def _score(estimator: object, X: object, y: object) -> float:
    return estimator.score(X, y)


def name_outputs(scorers: dict[str, Callable]) -> list[str] | None:
    """Return the names of several scores; None for a single one."""
    return list(scorers) if len(scorers) > 1 else None


def compute_scores(scorers: dict[str, Callable], estimator: object, X: object, y: object) -> np.ndarray | float:
    """Return the scores (outputs,) of an estimator, or the only one."""
    scores = [float(scorer(estimator, X, y)) for scorer in scorers.values()]
    for name, score in zip(scorers, scores, strict=True):
        if not np.isfinite(score):
            raise ValueError(f"the scorer '{name}' gives {score}")
    return np.array(scores) if len(scores) > 1 else scores[0]


def is_classifier(model: object) -> bool:
    """Return whether a model is a classifier; one that is not of scikit-learn has probabilities then."""
    from sklearn import base

    try:
        return base.is_classifier(model)
    except AttributeError:  # it has no tags of scikit-learn
        return hasattr(model, "predict_proba")


def fit_baseline(estimator: object, X: object, y: object) -> object:
    """Return scikit-learn's fitted predictor without features: class frequencies, or a regression's mean."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    dummy = DummyClassifier(strategy="prior") if is_classifier(estimator) else DummyRegressor()
    return dummy.fit(np.zeros((len(y), 1)), y)


def check_rows(where: str, X: object, y: object, names: tuple[str, str]) -> None:
    """Raise ShapelineError for missing inputs or targets, different numbers of them, or rows in two orders."""
    for name, data in zip(names, (X, y), strict=True):
        if not hasattr(data, "shape") and not hasattr(data, "__len__"):
            raise ShapelineError(f"{where}: {name} is {name_type(data)}; give an array, a data frame or a list")
    sizes = [data.shape[0] if hasattr(data, "shape") else len(data) for data in (X, y)]
    if sizes[0] != sizes[1] or not sizes[0]:
        raise ShapelineError(
            f"{where}: {names[0]} has {sizes[0]} rows and {names[1]} {sizes[1]}; give one target for each of some rows"
        )
    missing = pd.isna(np.asarray(y)) if not hasattr(y, "tocsr") else False
    if np.any(missing):
        raise ShapelineError(
            f"{where}: {names[1]} has no value in row {np.argwhere(missing)[0][0]} (from 0); leave such rows out"
        )
    check_order(where, X, y, names)


def check_order(where: str, X: object, y: object, names: tuple[str, str]) -> None:
    """Raise ShapelineError for pandas objects whose rows have the same labels in two orders."""
    if not all(isinstance(data, pd.DataFrame | pd.Series) for data in (X, y)) or X.index.equals(y.index):
        return
    if len(X) == len(y) and X.index.is_unique and y.index.is_unique and y.index.isin(X.index).all():
        raise ShapelineError(
            f"{where}: the index of {names[1]} is that of {names[0]} in another order, and rows are matched by "
            f"position; give {names[1]} in the order of {names[0]}, or {names[1]}.to_numpy() if the positions are right"
        )


def select_rows(data: Any, positions: np.ndarray) -> Any:
    """Return rows of a data frame, a series, an array, a sparse matrix or a list, in the same type."""
    if hasattr(data, "iloc"):
        return data.iloc[positions]
    return data[positions] if hasattr(data, "shape") else [data[position] for position in positions]


def find_empty_value(
    where: str, scorers: dict[str, Callable], empty: float | Sequence[float] | None, fitted: tuple, test: tuple
) -> np.ndarray | float:
    """Return the value of the empty coalition. empty: one number for all scores, one per score, or None for the scores
    on `test` of the prediction without features (`fit_baseline` on `fitted`). Raises ShapelineError."""
    try:
        empty = compute_scores(scorers, fit_baseline(*fitted), *test) if empty is None else empty
        values = np.ravel(np.asarray(empty, float))
    except Exception as error:  # whatever a scorer raises
        remedy = "give a scorer that takes such targets, as make_scorer(metric) of a metric, or the number empty"
        raise build_failure(where, error, remedy) from error
    if values.size not in (1, len(scorers)):
        raise ShapelineError(f"{where}: empty is {empty!r} for {len(scorers)} scores; give a number, or one of each")
    return np.broadcast_to(values, len(scorers)).copy() if len(scorers) > 1 else float(values[0])


def check_columns(where: str, X: object, other: object, name: str) -> None:
    """Raise ShapelineError for a table whose columns are not those of X in their order."""
    expected, actual = (list(getattr(data, "columns", range(data.shape[1]))) for data in (X, other))
    are_frames = hasattr(X, "columns") and hasattr(other, "columns")
    if len(expected) != len(actual) or (are_frames and expected != actual):
        raise ShapelineError(f"{where}: {name} has other columns than X, or in another order; give it the columns of X")


PER_COALITION = "lambda masks: [v(mask) for mask in masks]"  # the game of a function v of one coalition


def convert_values(where: str, values: object, count: int) -> np.ndarray:
    """Return values as (K, outputs) float64. Raises ShapelineError unless they are (K,) or (K, outputs)."""
    if isinstance(values, pd.DataFrame | pd.Series):
        check_order(where, pd.Series(0, range(count)), values, ("masks", "values"))
    try:
        values = detach(values)
        array = np.ma.filled(values, np.nan) if np.ma.is_masked(values) else np.asarray(values)
        array = array.astype(float) if array.dtype == object and array.ndim else array
        array = array.reshape(1) if array.ndim == 0 and count == 1 else array  # a game that squeezes its values
        fits = array.dtype.kind in "biuf" and array.ndim in (1, 2) and len(array) == count and array.size > 0
    except (ValueError, TypeError, RuntimeError, ArithmeticError):  # rows of different lengths, objects, 10**400
        array, fits = None, False
    if not fits:
        unclear = array is None or array.dtype == object  # as of a generator, whose type says more
        returned = name_type(values) if unclear else f"{array.dtype} of shape {array.shape}"
        raise ShapelineError(
            f"{where}: the game returned {returned} for masks of {format_count(count, 'coalition')}; return "
            f"({count},) or ({count}, outputs) numbers, as in {PER_COALITION}"
        )
    return array.reshape(count, -1).astype(np.float64)


def build_identity(name: str, *parts: object) -> str:
    """Return a name and 16 hexadecimal digits of the definition of a game, equal in every process."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(_to_bytes(part) + b"\x1f")
    return f"{name} {digest.hexdigest()[:16]}"


def _to_bytes(part: Any, depth: int = 12) -> bytes:
    """Return the content of a part of a game as bytes, independent of memory addresses."""
    kind = type(part).__qualname__
    if isinstance(part, type):  # its methods are not those of an instance
        return repr(part).encode()
    if isinstance(part, pd.DataFrame | pd.Series):
        columns = list(part.columns) if part.ndim == 2 else ""
        return pd.util.hash_pandas_object(part).to_numpy().tobytes() + repr(columns).encode()
    if isinstance(part, np.ndarray) and not part.dtype.hasobject:
        return f"{part.dtype}{part.shape}".encode() + part.tobytes()
    if hasattr(part, "tocsr"):
        rows = part.tocsr()
        part = kind, rows.shape, rows.indptr, rows.indices, rows.data
    elif hasattr(part, "get_params"):
        part = kind, part.get_params()
    elif isinstance(part, FunctionType) and depth > 0:  # a function may refer to itself
        cells = list(inspect.getclosurevars(part).nonlocals.items())
        part = part.__qualname__, part.__code__, part.__defaults__, part.__kwdefaults__, cells
    elif isinstance(part, CodeType):
        part = part.co_code, part.co_names, part.co_consts
    elif isinstance(part, partial):
        part = part.func, part.args, part.keywords
    elif hasattr(part, "tolist"):
        part = part.tolist()
    elif isinstance(part, set | frozenset):
        part = sorted(map(repr, part))
    if isinstance(part, Mapping):
        part = [(key, part[key]) for key in sorted(part, key=str)]
    if isinstance(part, list | tuple) and not all(isinstance(item, str | int | float | None) for item in part):
        return b"\x1e".join([kind.encode(), *(_to_bytes(item, depth - 1) for item in part)])
    return re.sub(r" at 0x[0-9a-f]+", "", repr(part)).encode()


def build_failure(where: str, error: Exception, remedy: str) -> ShapelineError:
    """Return a library's exception as a ShapelineError of one line."""
    return ShapelineError(f"{where}: {type(error).__name__}: {first_line(error)}; {remedy}")
