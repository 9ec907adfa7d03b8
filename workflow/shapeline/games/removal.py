"""Games of a fitted model with masked columns filled from a background: global importance and uncertainty."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from shapeline.datasets.table import unify_types
from shapeline.errors import ShapelineError, nearest
from shapeline.games.game import is_apart
from shapeline.games.retraining import check_probabilities, drop_column, group_columns, list_members, predict_member
from shapeline.games.validation_scores import build_identity, check_columns, check_rows, select_rows
from shapeline.models.adapters import unwrap_booster

MIN_PROBABILITY = 1e-12  # smaller probabilities are clipped before the logarithm


class _Removal:
    """A game on rows (n_rows, n_columns) whose players' columns are filled from each row of a background."""

    def __init__(self, where: str, rows: Any, background: Any, groups: Mapping[str, Sequence] | None):
        self.player_names, self.columns = group_columns(where, rows, groups)
        self.n_players = len(self.player_names)
        if np.ndim(background) != 2 or not background.shape[0] or background.shape[1] != rows.shape[1]:
            kind = f"of shape {background.shape}" if hasattr(background, "shape") else type(background).__name__
            raise ShapelineError(f"{where}: background is {kind}; give rows with {rows.shape[1]} columns")
        check_columns(where, rows, background, "background")
        given = tables = {"X": rows, "background": background}
        if hasattr(rows, "iloc") or hasattr(background, "iloc"):  # without names the model cannot check orders
            typed = sorted(tables, key=lambda name: not hasattr(tables[name], "iloc"))
            given = {name: _build_frame(tables[name], tables[typed[0]].columns) for name in typed}
            tables = unify_types(where, dict(given))
        rows, background = tables["X"], tables["background"]
        self.where, self.given, self.rows, self.background = where, given, rows, background
        n_rows, n_background = rows.shape[0], background.shape[0]
        self.kept = select_rows(rows, np.repeat(np.arange(n_rows), n_background))
        self.filled = select_rows(background, np.tile(np.arange(n_background), n_rows))

    def mask(self, mask: np.ndarray) -> Any:
        """Return each row filled from each row of the background, (n_rows x n_background, n_columns), in its type."""
        is_kept = np.ones(self.rows.shape[1], bool)
        for index, columns in enumerate(self.columns):
            is_kept[columns] = mask[index]
        if not hasattr(self.kept, "iloc"):
            return np.where(is_kept, self.kept, self.filled)
        kept, filled = self.kept.reset_index(drop=True), self.filled.reset_index(drop=True)
        order = np.argsort(~is_kept, kind="stable")  # columns are selected by position, since names may repeat
        parts = [kept.iloc[:, order[: is_kept.sum()]], filled.iloc[:, order[is_kept.sum() :]]]
        return pd.concat(parts, axis=1).iloc[:, np.argsort(order)]

    def check_rows(self, predict: Callable) -> None:
        """Raise ShapelineError for a model whose outputs of the first rows, as given, differ among masked rows."""
        tables = [("X", True, self.background.shape[0]), ("background", False, 1)]
        if len(np.concatenate(self.columns)) < self.rows.shape[1]:  # no coalition has the background's rows
            del tables[1]
        for name, keep, step in tables:
            rows = self.given[name]
            alone = predict(select_rows(rows, np.arange(-(-rows.shape[0] // 2))))
            among = predict(self.mask(np.full(self.n_players, keep)))[::step][: len(alone)]
            if len(apart := np.argwhere(is_apart(among, alone, np.inf))):
                index = tuple(apart[0])
                raise ShapelineError(
                    f"{self.where}: the model gives {alone[index]:.6g} for row {index[0]} (from 0) of {name} and "
                    f"{among[index]:.6g} for it among masked rows; give X and background of the same types, and a "
                    "model that answers row by row"
                )

    def average(self, outputs: np.ndarray) -> np.ndarray:
        """Return outputs of the masked rows averaged over the background, (n_rows, ...)."""
        return outputs.reshape(self.rows.shape[0], self.background.shape[0], *outputs.shape[1:]).mean(axis=1)


def _build_frame(rows: Any, names: pd.Index) -> pd.DataFrame:
    """Return an array as a data frame, and a data frame unchanged."""
    return rows if hasattr(rows, "iloc") else pd.DataFrame(rows, columns=names).infer_objects()


class GlobalImportance(_Removal):
    """The importance of features for a model on a data set, as SAGE defines it.

    The value of a coalition is the reduction of the model's loss when these features are kept: the loss of the
    prediction without any feature minus that with them, each averaged over the background.

    Parameters
    ----------
    model : object
        Fitted model with `predict_proba`, or with `predict` for a regression.
    X, y : data frame or array, shape (n_rows, n_columns); sequence of n_rows
        Data on which the loss is measured.
    background : of the kind of X, optional
        Rows that masked features are taken from; by default up to 64 of X, at equal distances. The model predicts
        n_rows × n_background rows per coalition.
    loss : {"log", "zero_one", "squared", "absolute"} or callable, optional
        The loss per row, from ``(y, prediction)``; by default "log" of probabilities, "squared" of a regression.
    groups : mapping of str to columns, optional
        Columns that are a player together. Others are always kept.

    References
    ----------
    Covert, Lundberg and Lee (2020), Understanding global feature contributions with additive importance measures.

    Examples
    --------
    >>> import shapeline
    >>> from shapeline.games import GlobalImportance
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> game = GlobalImportance(LinearRegression().fit(X, y), X[:100], y[:100], background=X[:20])
    >>> found = shapeline.shapley_values(game, evaluations=100)
    >>> sorted(found.summary().index[:3])
    ['bmi', 'bp', 's5']
    """

    def __init__(
        self,
        model: object,
        X: object,
        y: Sequence,
        *,
        background: object = None,
        loss: str | Callable | None = None,
        groups: Mapping[str, Sequence] | None = None,
    ):
        check_rows("GlobalImportance", X, y, ("X", "y"))
        sample = np.unique(np.linspace(0, len(y) - 1, min(len(y), 64)).astype(int))
        super().__init__("GlobalImportance", X, select_rows(X, sample) if background is None else background, groups)
        model = unwrap_booster(model)
        check_probabilities("GlobalImportance", [model])
        self.predict = partial(predict_member, "GlobalImportance", model)
        classes = getattr(model, "classes_", None) if hasattr(model, "predict_proba") else None
        self.y = drop_column(np.asarray(y))
        if classes is not None:
            self.y = _number_classes("GlobalImportance", self.y, np.asarray(classes))
        self.loss = ("squared" if classes is None else "log") if loss is None else loss
        if not callable(self.loss) and self.loss not in LOSSES:
            raise ShapelineError(f"GlobalImportance: loss: there is no '{loss}'.{nearest(loss, LOSSES)}")
        self.check_rows(self.predict)
        self.without = self._average_loss(np.zeros(self.n_players, bool))
        outputs = self.predict(select_rows(self.background, np.arange(min(32, self.background.shape[0]))))
        self.identity = build_identity(
            "GlobalImportance", X, self.y, self.background, loss, groups, np.asarray(outputs)
        )

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the reduction of the loss, (K,), for coalitions (K, n_players)."""
        return np.array([self.without - self._average_loss(mask) for mask in np.asarray(masks, bool)])

    def _average_loss(self, mask: np.ndarray) -> float:
        prediction = drop_column(self.average(self.predict(self.mask(mask))))
        if self.loss in ("log", "zero_one") and prediction.ndim == 1:
            raise ShapelineError("GlobalImportance: loss: the model gives no probabilities; use squared or absolute")
        if self.loss in ("squared", "absolute") and prediction.shape != self.y.shape:
            raise ShapelineError(
                f"GlobalImportance: the model predicts shape {prediction.shape} and y has {self.y.shape}; give targets "
                "of that shape"
            )
        measure = self.loss if callable(self.loss) else LOSSES[self.loss]
        return float(np.mean(measure(self.y, prediction)))


class UncertaintyExplanation(_Removal):
    """The sources of a classifier's uncertainty about one input.

    The value of a coalition is the uncertainty, in nats, of the prediction on the input with masked features from the
    background, averaged over the background.

    Parameters
    ----------
    model : object
        Fitted classifier; for "aleatoric" and "epistemic" an ensemble that averages its ``estimators_``, or a list of
        fitted classifiers.
    x : data frame of one row, series or array
        The input.
    background : data frame or array, shape (n_background, n_columns)
        Rows that masked features are taken from.
    kind : {"total", "aleatoric", "epistemic"} or sequence of these
        Entropy of the mean prediction; mean entropy of the members' predictions; their difference, the mutual
        information of prediction and member. Several give several outputs.
    groups : mapping of str to columns, optional
        Columns that are a player together. Others are always kept.

    References
    ----------
    Watson, O'Hara, Tax, Mudd and Guy (2023), Explaining predictive uncertainty with information theoretic Shapley
    values.

    Examples
    --------
    >>> import shapeline
    >>> from shapeline.games import UncertaintyExplanation
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    >>> game = UncertaintyExplanation(forest, X[77:78], X[::5], kind=["total", "aleatoric", "epistemic"])
    >>> found = shapeline.shapley_values(game)
    >>> bool(abs(found.scores[0] - found.scores[1] - found.scores[2]).max() < 1e-9)
    True
    """

    KINDS = ("total", "aleatoric", "epistemic")

    def __init__(
        self,
        model: object,
        x: object,
        background: object,
        *,
        kind: str | Sequence[str] = "total",
        groups: Mapping[str, Sequence] | None = None,
    ):
        where = "UncertaintyExplanation"
        kinds = [kind] if isinstance(kind, str) or not hasattr(kind, "__iter__") else list(kind)
        for name in kinds or [""]:
            if name not in self.KINDS:
                raise ShapelineError(f"{where}: kind: there is no '{name}'.{nearest(name, self.KINDS)}")
        row = np.atleast_2d(x) if np.ndim(x) == 1 else x
        if isinstance(x, pd.Series):
            row = x.to_frame().T.infer_objects().astype(getattr(background, "dtypes", {}))
        super().__init__(where, row, background, groups)
        if row.shape[0] != 1:
            raise ShapelineError(f"{where}: x has {row.shape[0]} rows; give one, as x[:1]")
        self.kinds, self.output_names = kinds, kinds if len(kinds) > 1 else None
        if kinds == ["total"] and hasattr(model, "predict_proba"):
            self.members = [model]
        else:
            self.members = list_members(where, model)[1]
        if len(self.members) == 1 and "epistemic" in kinds:
            raise ShapelineError(f"{where}: kind is 'epistemic', which is 0 for a single model; give an ensemble")
        if not all(hasattr(member, "predict_proba") for member in self.members):
            raise ShapelineError(f"{where}: the model gives no probabilities; give a classifier with predict_proba")
        self.check_rows(partial(predict_member, where, self.members[0]))
        self.identity = build_identity(where, row, background, kinds, groups, self(np.ones((1, self.n_players), bool)))

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the uncertainty (K,), or (K, n_kinds), for coalitions (K, n_players)."""
        values = np.array([self._value(mask) for mask in np.asarray(masks, bool)])
        return values if self.output_names else values[:, 0]

    def _value(self, mask: np.ndarray) -> list[float]:
        rows = self.mask(mask)
        predictions = np.array([predict_member("UncertaintyExplanation", member, rows) for member in self.members])
        total = float(_compute_entropy(predictions.mean(axis=0)).mean())
        aleatoric = float(_compute_entropy(predictions).mean())
        return [{"total": total, "aleatoric": aleatoric, "epistemic": total - aleatoric}[name] for name in self.kinds]


def _compute_entropy(probabilities: np.ndarray) -> np.ndarray:
    return -(probabilities * np.log(np.maximum(probabilities, MIN_PROBABILITY))).sum(axis=-1)


def _number_classes(where: str, y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the position of each label among the classes. Raises ShapelineError for other labels."""
    if y.ndim > 1:
        raise ShapelineError(f"{where}: y has shape {y.shape}; give one label per row")
    are_numbers = y.dtype.kind in "biuf" and classes.dtype.kind in "biuf"  # False is 0, which pandas tells apart
    known, labels = (classes.astype(float), y.astype(float)) if are_numbers else (classes, y)
    indices = pd.Index(known).get_indexer(labels)
    if (indices < 0).any():
        raise ShapelineError(
            f"{where}: y has the label {y[indices < 0].tolist()[0]!r}, which is no class of the model; give its classes"
        )
    return indices


# Per row, of targets (labels as positions) and predictions.
LOSSES = {
    "log": lambda y, p: -np.log(np.maximum(p[np.arange(len(y)), y], MIN_PROBABILITY)),
    "zero_one": lambda y, p: p.argmax(axis=1) != y,
    "squared": lambda y, p: (y - p) ** 2,
    "absolute": lambda y, p: np.abs(y - p),
}
