"""Models in files that answer rows: pipelines of scikit-learn (skops), boosted trees, and functions of the user.

They are given data frames of the file's columns and types; features are columns. No file but a function's holds code.
"""

import contextlib
import hashlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shapeline.datasets.entries import TEXT
from shapeline.datasets.sources import names_function, user_function
from shapeline.datasets.tokenizer import decode_texts
from shapeline.errors import ShapelineError, first_line, nearest
from shapeline.models.adapters import (
    ORDERS,
    failure,
    find_classes,
    find_columns,
    find_fitted_columns,
    find_probabilities,
    find_width,
    order_classes,
    refuse_categories,
    unwrap_booster,
)
from shapeline.models.classifier import Classifier, detach
from shapeline.models.registry import BOOSTED, explain_missing

if TYPE_CHECKING:
    import pandas as pd

    from shapeline.datasets.loading import Dataset
    from shapeline.datasets.table import Table

# Of scikit-learn's and numpy's own, what skops does not trust by itself; they hold numbers and no code.
TRUSTED = (
    "shapeline.models.pipeline_file.number_dates",
    "numpy.dtype",
    "numpy.number",  # what make_column_selector selects
    "scipy.sparse._csr.csr_matrix",  # of an SVC or neighbours that were fitted on texts
    "sklearn._loss.loss.HalfTweedieLossIdentity",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
)


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A function from rows (n, columns) to probabilities or predictions; order: of the dataset's classes, or None."""

    content: bytes
    columns: list[dict]
    estimator: Any
    ask: Callable[[Any], np.ndarray]
    order: list[int] | None = None
    table: "Table | None" = None

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return self.ask(self.take(rows))

    def take(self, rows: np.ndarray) -> Any:
        """Return rows (n, columns) as the estimator was given them when it was fitted."""
        of_array = self.table is not None and self.table.names is None
        if find_columns(self.estimator) is None:
            return self.table.compose(rows) if of_array else np.asarray(rows, np.float64)
        no_frame = self.table is None or of_array
        composed = numbers_frame(rows, self.columns) if no_frame else self.table.compose(rows)
        needed = find_fitted_columns(self.estimator, composed.columns)
        return composed if needed == list(composed.columns) else composed[needed]


def digest_training_rows(dataset: "Dataset") -> str:
    """Return the digest of a table and of the ids of its training rows, by which a fitted pipeline knows them."""
    train = np.ascontiguousarray(dataset.ids[dataset.split == 0], np.int64)
    return hashlib.sha256(f"{dataset.card.get('table_digest')}".encode() + train.tobytes()).hexdigest()


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> "Pipeline | Function":
    """Return the model in a file's bytes, for a dataset's `known` columns and classes. Raises ShapelineError."""
    if names_function(source):
        return _load_function(source, content, known, task)
    suffix = Path(source).suffix
    if problem := explain_missing(suffix):
        raise ShapelineError(f"models: {source}: {problem}")
    if known.get("texts") and suffix == ".skops":
        return _load_text_pipeline(source, content, known)
    if known["kind"] != "table":
        raise ShapelineError(
            f"models: {source} takes tables, and the dataset is of kind {known['kind']}; give another model or dataset"
        )
    return (_load_trees if suffix in BOOSTED else _load_pipeline)(source, content, known, task)


def _load_pipeline(source: str, content: bytes, known: dict[str, Any], task: str) -> Pipeline:
    """Return the pipeline in a .skops file's bytes; known: also trusted types."""
    estimator = load_estimator(source, content, known["trusted"])
    if hasattr(getattr(estimator, "steps", [(None, None)])[0][1], "build_analyzer"):
        raise ShapelineError(
            f"models: {source} takes texts and the dataset holds columns; set its source: text_file and tokenizer: "
            f"{TEXT}, for init by --set 'text: COLUMN'"
        )
    check_columns(source, estimator, [column["name"] for column in known["columns"]])
    if find_columns(estimator) is None:
        refuse_categories(source, [column["name"] for column in known["columns"] if "values" in column])
    if task != "regression":
        ask = _order_probabilities(source, estimator, known)
    elif find_classes(estimator) is not None or not hasattr(estimator, "predict"):
        raise ShapelineError(f"models: {source} is not a regressor; remove the dataset's task, or fit one")
    else:
        ask = estimator.predict
    return Pipeline(content, known["columns"], estimator, ask)


def _load_text_pipeline(source: str, content: bytes, known: dict[str, Any]) -> "Function":
    """Return the pipeline in a .skops file's bytes, whose first step takes texts."""
    estimator = load_estimator(source, content, known["trusted"])
    if find_width(estimator) is not None or find_columns(estimator) is not None:
        raise ShapelineError(
            f"models: {source} was fitted on columns and the dataset holds texts; save a pipeline that was fitted on a "
            "list of texts, or call this one in a function of texts (framework: function)"
        )
    ask = _order_probabilities(source, estimator, known)
    return Function(content, source, None, len(known["classes"]), ask, TEXT)


def number_dates(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return columns of dates, or of texts such as 2024-05-31 or 31.5.2024, as days since 1970; NaN of others."""
    import pandas as pd

    def number(column: "pd.Series") -> "pd.Series":
        if column.dtype.kind != "M":
            texts, options = column.astype("string"), {"utc": True, "errors": "coerce"}
            column = pd.to_datetime(texts.where(texts.str.match(r"\d{4}-\d{2}-\d{2}")), format="ISO8601", **options)
            column = column.fillna(pd.to_datetime(texts, format="%d.%m.%Y", **options))
        start = pd.Timestamp(0, tz=column.dt.tz)
        return (column - start) / pd.Timedelta(days=1)

    return frame.apply(number)


def numbers_frame(rows: np.ndarray, columns: list[dict]) -> "pd.DataFrame":
    """Return rows (n, columns) of a dataset of numbers as a data frame with their names."""
    import pandas as pd

    return pd.DataFrame(np.asarray(rows, np.float64), columns=[column["name"] for column in columns])


def load_estimator(source: str, content: bytes, trusted: Sequence[str] = ()) -> Any:
    """Return what a .skops file holds. Raises ShapelineError for types that are not trusted, and damaged files."""
    import skops.io

    check_types(source, content, trusted)
    with _explain_skops_errors(source):
        return skops.io.loads(content, trusted=[*TRUSTED, *trusted])


def check_types(source: str, content: bytes, trusted: Sequence[str] = ()) -> None:
    """Raise ShapelineError for types in a .skops file that are not trusted; nothing of it is loaded."""
    import skops.io

    with _explain_skops_errors(source):
        unknown = sorted({*skops.io.get_untrusted_types(data=content)} - {*TRUSTED, *trusted})
    if unknown:
        hint = "; import your own functions from a .py file" if any(n.startswith("__main__.") for n in unknown) else ""
        raise ShapelineError(
            f"models: {source} holds types that are not trusted: {', '.join(unknown)}; list them under the model's "
            f"'trusted_types' if you know where the file is from{hint}"
        )


@contextlib.contextmanager
def _explain_skops_errors(source: str) -> Iterator[None]:
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        yield
    except (zipfile.BadZipFile, UntrustedTypesFoundException, KeyError, ValueError, TypeError, ImportError) as error:
        raise ShapelineError(
            f"models: {source} cannot be read as skops.io.dump writes it ({first_line(error)}); save it again"
        ) from error


def check_columns(source: str, estimator: Any, names: list[str]) -> None:
    """Raise ShapelineError if the dataset, of columns of these names, lacks some that the estimator takes."""
    needed = find_fitted_columns(estimator, names)
    if needed is None:
        if (count := find_width(estimator)) not in (None, len(names)):
            raise ShapelineError(
                f"models: {source} takes {count} columns and the dataset has {len(names)}; name its under 'columns'"
            )
        return
    for name in needed:
        if name not in names:
            raise ShapelineError(
                f"models: {source} needs the column '{name}', which the dataset lacks.{nearest(name, names)}"
            )


def _order_probabilities(source: str, estimator: Any, known: dict[str, Any]) -> Callable[[Any], np.ndarray]:
    """Return predict_proba with the columns in the order of the dataset's classes."""
    if find_classes(estimator) is None:
        raise ShapelineError(f"models: {source} is not a classifier; set the dataset's task: regression, or fit one")
    if not hasattr(estimator, "predict_proba"):
        raise ShapelineError(
            f"models: {source} has no predict_proba; wrap its classifier in sklearn's CalibratedClassifierCV"
        )
    order, ask = order_classes(source, estimator.classes_, known), find_probabilities(estimator)
    return lambda rows: ask(rows)[:, order]


def _load_trees(source: str, content: bytes, known: dict[str, Any], task: str) -> Pipeline:
    package = BOOSTED[Path(source).suffix]
    try:
        estimator, classes = OPENED[package](content)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError):
            raise
        raise ShapelineError(
            f"models: {source} cannot be read as a file of {package} ({first_line(error)}); save it again with "
            "save_model"
        ) from error
    check_columns(source, estimator, [column["name"] for column in known["columns"]])
    _check_numbers(source, estimator, known["columns"])
    if (classes is None) != (task == "regression"):
        what, remedy = ("no classifier", "set the dataset's task: regression")
        if task == "regression":
            what, remedy = "no regression", "remove the dataset's task"
        raise ShapelineError(f"models: {source} holds {what}; {remedy}, or give another file")
    if classes is None:
        return Pipeline(content, known["columns"], estimator, estimator.predict)
    order, ask = order_classes(source, classes, known, may_number=True), find_probabilities(estimator)
    return Pipeline(content, known["columns"], estimator, lambda rows: ask(rows)[:, order], order)


def _load_xgboost(content: bytes) -> tuple[Any, Any]:
    import json

    import xgboost

    if not content.startswith(b"{"):  # some others end the process
        raise ValueError("it begins as neither JSON nor UBJSON do")
    booster = xgboost.Booster(model_file=bytearray(content))
    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    fitted = json.loads(booster.attr("scikit_learn") or "{}").get("_estimator_type")  # none of xgboost.train
    kind = fitted or ("classifier" if objective.startswith(("binary:", "multi:")) else "regressor")
    kinds = {"classifier": xgboost.XGBClassifier, "ranker": xgboost.XGBRanker}
    estimator = kinds.get(kind, xgboost.XGBRegressor)()
    estimator.load_model(bytearray(content))
    return estimator, estimator.classes_ if kind == "classifier" else None


def _load_lightgbm(content: bytes) -> tuple[Any, Any]:
    import lightgbm

    estimator = unwrap_booster(lightgbm.Booster(model_str=content.decode()))
    return estimator, find_classes(estimator)


def _load_catboost(content: bytes) -> tuple[Any, Any]:
    import catboost

    estimator = catboost.CatBoostClassifier()
    estimator.load_model(blob=content)
    if (classes := find_classes(estimator)) is None:  # a blob, unlike a file, does not set the loss, and so the link
        estimator = catboost.CatBoostRegressor(loss_function=estimator.get_all_params().get("loss_function", "RMSE"))
        estimator.load_model(blob=content)
    return estimator, classes


OPENED = {"xgboost": _load_xgboost, "lightgbm": _load_lightgbm, "catboost": _load_catboost}


def _check_numbers(source: str, estimator: Any, columns: list[dict]) -> None:
    """Raise ShapelineError if columns hold what these trees are not asked of: CatBoost alone codes texts by itself."""
    named = find_columns(estimator)
    if named is not None and hasattr(estimator, "get_cat_feature_indices"):
        return
    if named is None:
        coded = [column["name"] for column in columns if "values" in column]
    else:
        fitted = find_fitted_columns(estimator, [column["name"] for column in columns])
        texts = [column["name"] for column in columns if column["type"] in ("text", "category")]
        coded = [name for name in texts if name in fitted]
    refuse_categories(source, coded)
    types = estimator.get_booster().feature_types if hasattr(estimator, "get_booster") else None
    if "c" in (types or ()) or getattr(getattr(estimator, "booster_", None), "pandas_categorical", None):
        raise ShapelineError(
            f"models: {source} was fitted on categories of pandas, which its rows are not; give a function that loads "
            "it and makes them (framework: function), or fit it on numbers"
        )


@dataclass(frozen=True, eq=False)
class Function:
    """A function of rows, of data frames of typed columns, or of texts; content: of its file; order: of images' axes,
    or TEXT."""

    content: bytes
    source: str
    columns: list[dict] | None
    classes: int | None
    ask: Callable[[Any], Any]
    order: str = "channels_first"
    table: "Table | None" = None

    def take(self, rows: np.ndarray) -> Any:
        """Return rows (n, *input shape) as the function is given them."""
        if self.table is not None:
            return self.table.compose(rows)
        if self.order == TEXT:
            return decode_texts(rows)
        return ORDERS[self.order](rows) if self.columns is None else numbers_frame(rows, self.columns)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        outputs = np.asarray(detach(self.ask(self.take(rows))))
        classes = outputs.shape[1] if outputs.ndim == 2 and outputs.shape[1] > 1 else 2
        if self.classes is not None and classes != self.classes:
            raise ShapelineError(
                f"models: {self.source} gave shape {outputs.shape} for {len(rows)} rows and the dataset has "
                f"{self.classes} classes; return the probability of each, (rows, classes), or of the second of two"
            )
        return outputs


def _load_function(source: str, content: bytes, known: dict[str, Any], task: str) -> Function:
    """Return the function of "path/to/file.py:function", for `known` columns, classes and shape."""
    classes, function = None if task == "regression" else len(known["classes"]), user_function(source)
    if known.get("texts"):
        known["order"] = TEXT
    elif not known.get("has_channels", True) and "order" not in known:
        rows = np.random.default_rng(0).random((1, *known["input_shape"]), dtype=np.float32)
        model, orders = Classifier("function", source, function), ("without_channels", "channels_first")
        known["order"] = next((order for order in orders if failure(model, rows, order) is None), orders[0])
    return Function(content, source, known["columns"], classes, function, known.get("order", "channels_first"))
