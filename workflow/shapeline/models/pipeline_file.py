"""A scikit-learn pipeline saved with skops, given data frames of the file's columns and types; features are columns."""

import contextlib
import hashlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.errors import ShapelineError, nearest
from shapeline.models.estimators import find_classes, find_columns, find_fitted_columns, find_probabilities, find_width

if TYPE_CHECKING:
    import pandas as pd

    from shapeline.datasets.loading import Dataset
    from shapeline.datasets.table import Table

# Of scikit-learn's and numpy's own, what skops does not trust by itself; they hold numbers and no code.
TRUSTED = (
    "shapeline.models.pipeline_file.number_dates",
    "numpy.dtype",
    "sklearn._loss.loss.HalfTweedieLossIdentity",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
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
        """Rows (n, columns) as the estimator was given them when it was fitted."""
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


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Pipeline:
    """Return the pipeline in a .skops file's bytes; known: columns, classes, trusted types. Raises ShapelineError."""
    if known["kind"] != "table":
        raise ShapelineError(
            f"models: {source} takes tables, and the dataset is of kind {known['kind']}; give another model or dataset"
        )
    estimator = load_estimator(source, content, known["trusted"])
    check_columns(source, estimator, [column["name"] for column in known["columns"]])
    for column in known["columns"] if find_columns(estimator) is None else ():
        if "values" in column:
            raise ShapelineError(
                f"models: {source} was made from arrays and column '{column['name']}' holds categories; fit it on a "
                "data frame"
            )
    ask = _predict if task == "regression" else _probabilities
    return Pipeline(content, known["columns"], estimator, ask(source, estimator, known["classes"]))


def number_dates(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return columns of dates, or of texts such as 2024-05-31 or 31.5.2024, as days since 1970; NaN of others."""
    import pandas as pd

    def number(column: "pd.Series") -> "pd.Series":
        if column.dtype.kind != "M":
            texts, given = column.astype("string"), {"utc": True, "errors": "coerce"}
            column = pd.to_datetime(texts.where(texts.str.match(r"\d{4}-\d{2}-\d{2}")), format="ISO8601", **given)
            column = column.fillna(pd.to_datetime(texts, format="%d.%m.%Y", **given))
        start = pd.Timestamp(0, tz=column.dt.tz)
        return (column - start) / pd.Timedelta(days=1)

    return frame.apply(number)


def numbers_frame(rows: np.ndarray, columns: list[dict]) -> "pd.DataFrame":
    """Rows (n, columns) of a dataset of numbers as a data frame with their names."""
    import pandas as pd

    return pd.DataFrame(np.asarray(rows, np.float64), columns=[column["name"] for column in columns])


def load_estimator(source: str, content: bytes, trusted: Sequence[str] = ()) -> Any:
    """Return what a .skops file holds. Raises ShapelineError for types that are not trusted, and damaged files."""
    import skops.io

    check_types(source, content, trusted)
    with _named(source):
        return skops.io.loads(content, trusted=[*TRUSTED, *trusted])


def check_types(source: str, content: bytes, trusted: Sequence[str] = ()) -> None:
    """Raise ShapelineError for types in a .skops file that are not trusted; nothing of it is loaded."""
    import skops.io

    with _named(source):
        unknown = sorted({*skops.io.get_untrusted_types(data=content)} - {*TRUSTED, *trusted})
    if unknown:
        own = "; import your own functions from a .py file" if any(n.startswith("__main__.") for n in unknown) else ""
        raise ShapelineError(
            f"models: {source} holds types that are not trusted: {', '.join(unknown)}; list them under the model's "
            f"'trusted_types' if you know where the file is from{own}"
        )


@contextlib.contextmanager
def _named(source: str) -> Iterator[None]:
    """Raise a ShapelineError where skops cannot read a file."""
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        yield
    except (zipfile.BadZipFile, UntrustedTypesFoundException, KeyError, ValueError, TypeError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ShapelineError(
            f"models: {source} cannot be read as skops.io.dump writes it ({reason}); save it again"
        ) from error


def check_columns(source: str, estimator: Any, names: list[str]) -> None:
    """ShapelineError where the dataset, of columns of these names, lacks some that the estimator takes."""
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


def _predict(source: str, estimator: Any, classes: list[str]) -> Callable[[Any], np.ndarray]:
    if find_classes(estimator) is not None or not hasattr(estimator, "predict"):
        raise ShapelineError(f"models: {source} is not a regressor; remove the dataset's task, or fit one")
    return estimator.predict


def _probabilities(source: str, estimator: Any, classes: list[str]) -> Callable[[Any], np.ndarray]:
    """predict_proba with the columns in the order of the dataset's classes."""
    if find_classes(estimator) is None:
        raise ShapelineError(f"models: {source} is not a classifier; set the dataset's task: regression, or fit one")
    if not hasattr(estimator, "predict_proba"):
        raise ShapelineError(
            f"models: {source} has no predict_proba; wrap its classifier in sklearn's CalibratedClassifierCV"
        )
    own = [class_name(label) for label in estimator.classes_]
    if sorted(own) != sorted(classes):
        raise ShapelineError(
            f"models: {source} has the classes {', '.join(own)} and the dataset has {', '.join(classes)}; they must "
            "be the same"
        )
    order = [own.index(name) for name in classes]
    ask = find_probabilities(estimator)
    return lambda rows: ask(rows)[:, order]
