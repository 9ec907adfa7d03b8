"""Games on training examples and features, which train a model per coalition, and on members of ensembles."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.errors import ShapelineError, format_count, name_type
from shapeline.games.validation_scores import (
    Scoring,
    build_failure,
    build_identity,
    check_columns,
    check_order,
    check_rows,
    compute_scores,
    find_empty_value,
    is_classifier,
    name_outputs,
    read_scorers,
    select_rows,
)

AVERAGING = ("RandomForest", "ExtraTrees", "Bagging", "Voting")  # ensembles of scikit-learn with mean predictions


class _Retraining:
    """A game whose value is the score of a model that is trained for each coalition."""

    where: str

    def __init__(
        self, estimator: object, data: tuple, players: object, scoring: Scoring, empty: float | Sequence[float] | None
    ):
        if isinstance(estimator, type) or not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
            raise ShapelineError(
                f"{self.where}: estimator is {name_type(estimator)}; give one of scikit-learn, not fitted"
            )
        data = tuple(part.tocsr() if hasattr(part, "tocsr") else part for part in data)  # other formats have no rows
        self.estimator, (self.X, self.y, self.X_test, self.y_test) = estimator, data
        check_rows(self.where, self.X, self.y, ("X", "y"))
        check_rows(self.where, self.X_test, self.y_test, ("X_test", "y_test"))
        if len(getattr(self.X, "shape", ())) == len(getattr(self.X_test, "shape", ())) == 2:
            check_columns(self.where, self.X, self.X_test, "X_test")
        self.scorers = read_scorers(self.where, scoring)
        self.output_names = name_outputs(self.scorers)
        self.empty = find_empty_value(
            self.where, self.scorers, empty, (estimator, self.X, self.y), (self.X_test, self.y_test)
        )
        self.identity = build_identity(type(self).__name__, estimator, *data, self.scorers, self.empty, players)

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the scores (K,) or (K, n_scores) of coalitions (K, n_players)."""
        return np.array([self._score(mask) if mask.any() else self.empty for mask in np.asarray(masks, bool)])

    def _score(self, mask: np.ndarray) -> np.ndarray | float:
        try:
            return self._value(mask)
        except ShapelineError:
            raise
        except Exception as error:  # whatever an estimator or a scorer raises
            raise build_failure(self.where, error, "give an estimator and a scorer that take these data") from error

    def _train(self, X: object, y: object) -> object:
        """Return the trained estimator; for one class a constant, since many classifiers refuse one class."""
        from sklearn.base import clone
        from sklearn.dummy import DummyClassifier

        one_class = is_classifier(self.estimator) and np.ndim(y) == 1 and len(set(np.asarray(y).tolist())) == 1
        return (DummyClassifier(strategy="most_frequent") if one_class else clone(self.estimator)).fit(X, y)


class DataValuation(_Retraining):
    """The value of training examples, or of groups of them, for a model.

    The value of a coalition is the score, on validation data, of the model that is trained on its examples (Ghorbani
    and Zou 2019).

    Parameters
    ----------
    estimator : object
        Estimator of scikit-learn, which is cloned and trained for each coalition. Give it a `random_state`.
    X, y : data frame, array, sparse matrix or list of n_examples rows; n_examples targets
        Training data.
    X_test, y_test : the same
        Validation data.
    groups : sequence of n_examples labels, optional
        The player that each example belongs to (its data set, source, annotator or day). By default each example is a
        player.
    scoring : str, callable or sequence of str, optional
        Scorers of scikit-learn; several give several outputs of one training. By default ``estimator.score``.
    empty : float or sequence of float, optional
        Value without any example. By default the score of a prediction without features: the frequencies of the
        classes in y, or its mean.
    untrainable : {"raise", "empty"}
        Whether a coalition on which the estimator raises a ValueError (too few neighbours, say) is an error, or has the
        value `empty`; that of all players is always an error.

    References
    ----------
    Ghorbani and Zou (2019), Data Shapley: equitable valuation of data for machine learning.

    Examples
    --------
    >>> import shapeline
    >>> from shapeline.games import DataValuation
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> sources = ["A", "B", "C"] * 25
    >>> y_noisy = [0 if source == "C" else label for source, label in zip(sources, y[::2])]
    >>> game = DataValuation(GaussianNB(), X[::2], y_noisy, X[1::2], y[1::2], groups=sources)
    >>> found = shapeline.shapley_values(game)
    >>> found.feature_names, found.scores.round(2)
    (('A', 'B', 'C'), array([[ 0.31,  0.31, -0.05]]))
    """

    where = "DataValuation"

    def __init__(
        self,
        estimator: object,
        X: object,
        y: object,
        X_test: object,
        y_test: object,
        *,
        groups: Sequence[Hashable] | None = None,
        scoring: Scoring = None,
        empty: float | Sequence[float] | None = None,
        untrainable: str = "raise",
    ):
        check_rows("DataValuation", X, y, ("X", "y"))
        count, labelled, groups = len(y), groups, None if groups is None else list(groups)
        if groups is not None and len(groups) != count:
            raise ShapelineError(
                f"DataValuation: groups has {format_count(len(groups), 'label')} for {count} examples; give {count}"
            )
        missing = [
            index for index, label in enumerate(groups or ()) if pd.api.types.is_scalar(label) and pd.isna(label)
        ]
        if missing:
            raise ShapelineError(
                f"DataValuation: groups: the label of example {missing[0]} (from 0) is missing; give each example one"
            )
        check_order("DataValuation", X, labelled, ("X", "groups"))
        if untrainable not in ("raise", "empty"):
            raise ShapelineError(f"DataValuation: untrainable is {untrainable!r}; give 'raise' or 'empty'")
        labels = [f"example {index}" for index in range(count)] if groups is None else [str(label) for label in groups]
        self.player_names = list(dict.fromkeys(labels))
        self.n_players = len(self.player_names)
        distinct = pd.Index(labels if groups is None else groups, dtype=object, tupleize_cols=False)
        if distinct.nunique(dropna=False) > self.n_players:
            raise ShapelineError("DataValuation: two groups have the same text, as 1 and '1'; give labels of one type")
        number = {name: index for index, name in enumerate(self.player_names)}
        self.player_of = np.array([number[label] for label in labels])
        self.untrainable = untrainable
        super().__init__(estimator, (X, y, X_test, y_test), (self.player_of, untrainable), scoring, empty)

    def _value(self, mask: np.ndarray) -> np.ndarray | float:
        indices = np.flatnonzero(mask[self.player_of])
        try:
            model = self._train(select_rows(self.X, indices), select_rows(self.y, indices))
            return compute_scores(self.scorers, model, self.X_test, self.y_test)
        except ValueError as error:
            if self.untrainable == "empty" and not mask.all():
                return self.empty
            remedy = "give untrainable='empty' where the examples may be too few"
            if mask.all():  # else a game that never trains would be constant
                remedy = "give an estimator that takes all of X and y"
            raise build_failure(self.where, error, remedy) from error


class FeatureSelection(_Retraining):
    """The value of features for a model that is trained with some of them only.

    The value of a coalition is the score, on validation data, of the model trained on its columns.

    Parameters
    ----------
    estimator : object
        Estimator of scikit-learn, which is cloned and trained for each coalition. Give it a `random_state`.
    X, X_test : data frame or array, shape (n_rows, n_columns)
        Training and validation data.
    y, y_test : sequence of n_rows
        Targets.
    groups : mapping of str to columns, optional
        Columns of each player, by name or by number; by default each column is a player. Others are not used.
    scoring, empty
        As for `DataValuation`.

    Examples
    --------
    >>> import shapeline
    >>> from shapeline.games import FeatureSelection
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> game = FeatureSelection(GaussianNB(), X[::2], y[::2], X[1::2], y[1::2])
    >>> shapeline.shapley_values(game).summary().index[0]
    'petal width (cm)'
    """

    where = "FeatureSelection"

    def __init__(
        self,
        estimator: object,
        X: object,
        y: object,
        X_test: object,
        y_test: object,
        *,
        groups: Mapping[str, Sequence] | None = None,
        scoring: Scoring = None,
        empty: float | Sequence[float] | None = None,
    ):
        self.player_names, self.columns = group_columns(self.where, X, groups)
        self.n_players = len(self.player_names)
        players = [columns.tolist() for columns in self.columns]
        super().__init__(estimator, (X, y, X_test, y_test), players, scoring, empty)

    def _value(self, mask: np.ndarray) -> np.ndarray | float:
        columns = np.sort(np.concatenate([self.columns[index] for index in np.flatnonzero(mask)]))
        train, test = (X.iloc[:, columns] if hasattr(X, "iloc") else X[:, columns] for X in (self.X, self.X_test))
        try:
            model = self._train(train, self.y)
        except ValueError as error:  # of a step that names the columns it takes, for example
            remedy = "give an estimator that takes any of the columns, as make_column_selector selects them by type"
            raise build_failure(self.where, error, remedy) from error
        return compute_scores(self.scorers, model, test, self.y_test)


def group_columns(where: str, X: object, groups: Mapping[str, Sequence] | None) -> tuple[list[str], list[np.ndarray]]:
    """Return the players of a table and the column numbers of each player. Raises ShapelineError."""
    if np.ndim(X) != 2 or not hasattr(X, "shape"):
        raise ShapelineError(f"{where}: X is {name_type(X)}; give a data frame or an array (n_rows, n_columns)")
    labels = list(getattr(X, "columns", []))
    names = list(map(str, labels)) or [f"column {index}" for index in range(X.shape[1])]
    if groups is None:
        return names, [np.array([index]) for index in range(X.shape[1])]
    number = {str(name): index for index, name in enumerate(labels)} | {index: index for index in range(X.shape[1])}
    number |= {name: index for index, name in enumerate(labels)}  # a numeric name has precedence over a position
    if not isinstance(groups, Mapping) or not all(np.ndim(columns) == 1 for columns in groups.values()):
        raise ShapelineError(f"{where}: groups is not a mapping of lists; give {{'name': [column, ...], ...}}")
    unknown = [column for columns in groups.values() for column in columns if column not in number]
    if unknown or not groups or not all(len(columns) for columns in groups.values()):
        reason = f"there is no column {unknown[0]!r}" if unknown else "a group has no columns"
        raise ShapelineError(f"{where}: groups: {reason}; give a name for each group, and a list of its columns")
    indices = [np.array([number[column] for column in columns]) for columns in groups.values()]
    columns_of_groups = np.concatenate(indices)
    if len(set(columns_of_groups.tolist())) < len(columns_of_groups):
        raise ShapelineError(f"{where}: groups: a column is in two groups; give each column to one")
    return [str(name) for name in groups], indices


class EnsembleSelection:
    """The value of models in an ensemble.

    The value of a coalition is the score of its members' mean prediction (probabilities, or numbers of a regression).
    Every model predicts once, when the game is created.

    Parameters
    ----------
    models : sequence or mapping of fitted estimators, or a fitted ensemble that averages its ``estimators_``
        The players.
    X, y : data frame or array, shape (n_rows, n_columns); sequence of n_rows
        Validation data.
    scoring : str, callable or sequence of str, optional
        Scorers of scikit-learn; several give several outputs. By default accuracy, or R² of a regression.
    empty : float or sequence of float, optional
        Value without any model. By default the score of a prediction without features: the frequencies of the classes
        in y, or its mean.

    Examples
    --------
    >>> import shapeline
    >>> from shapeline.games import EnsembleSelection
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> forest = RandomForestClassifier(10, max_depth=2, random_state=0).fit(X[::2], y[::2])
    >>> game = EnsembleSelection(forest, X[1::2], y[1::2], scoring=["accuracy", "neg_log_loss"])
    >>> found = shapeline.shapley_values(game, evaluations=100)
    >>> found.scores.shape, found.target_names
    ((2, 10), ['accuracy', 'neg_log_loss'])
    """

    def __init__(
        self,
        models: object,
        X: object,
        y: object,
        *,
        scoring: Scoring = None,
        empty: float | Sequence[float] | None = None,
    ):
        names, members, classes = list_members("EnsembleSelection", models)
        check_rows("EnsembleSelection", X, y, ("X", "y"))
        self.player_names, self.n_players, self.classes, self.y = names, len(names), classes, y
        if classes is not None and not np.isin(np.asarray(y, object), classes.astype(object)).any():
            raise ShapelineError(f"EnsembleSelection: no label of y is a class of the models; give {classes.tolist()}")
        predictions = [predict_member("EnsembleSelection", member, X) for member in members]
        if len({prediction.shape for prediction in predictions}) > 1 or (
            classes is not None and predictions[0].shape[1] != len(classes)
        ):
            raise ShapelineError(
                "EnsembleSelection: the models have other classes than each other; give models of one task"
            )
        self.predictions = np.array(predictions)
        default = "r2" if classes is None else "accuracy"
        self.scorers = read_scorers("EnsembleSelection", default if scoring is None else scoring)
        self.output_names = name_outputs(self.scorers)
        mean = self._average(self.predictions[:1].mean(axis=0))
        self.empty = find_empty_value("EnsembleSelection", self.scorers, empty, (mean, X, y), (X, y))
        self.identity = build_identity("EnsembleSelection", self.predictions, y, self.scorers, self.empty)

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the scores (K,) or (K, n_scores) of coalitions (K, n_players)."""
        values = []
        for mask in np.asarray(masks, bool):
            mean = self._average(self.predictions[mask].mean(axis=0)) if mask.any() else None
            try:
                scores = self.empty if mean is None else compute_scores(self.scorers, mean, self.predictions[0], self.y)
            except Exception as error:  # whatever a scorer raises
                raise build_failure("EnsembleSelection", error, "give a scorer that takes these data") from error
            values.append(scores)
        return np.array(values)

    def _average(self, prediction: np.ndarray) -> object:
        """Return an estimator with this prediction, for the scorers."""
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

        class Regressor(RegressorMixin, BaseEstimator):
            def predict(self, X: object) -> np.ndarray:
                return prediction

        class Classifier(ClassifierMixin, BaseEstimator):
            classes_ = self.classes

            def predict_proba(self, X: object) -> np.ndarray:
                return prediction

            def predict(self, X: object) -> np.ndarray:
                return self.classes_[prediction.argmax(axis=1)]

        return Regressor() if self.classes is None else Classifier()


def list_members(where: str, models: object) -> tuple[list[str], list[object], np.ndarray | None]:
    """Return names, members and classes (None of a regression) of an ensemble. Raises ShapelineError."""
    from sklearn import ensemble

    classes = getattr(models, "classes_", None)
    if hasattr(models, "estimators_"):
        weighted = getattr(models, "weights", None) is not None or getattr(models, "voting", "soft") != "soft"
        kinds = [f"{kind}{task}" for kind in AVERAGING for task in ("Classifier", "Regressor")]
        if weighted or not isinstance(models, tuple(getattr(ensemble, kind) for kind in kinds)):
            raise ShapelineError(
                f"{where}: {name_type(models)} does not average its models; give a forest, a bagging or soft "
                "voting ensemble without weights, or a list of fitted models"
            )
        columns = getattr(models, "estimators_features_", [])
        if any(list(used) != list(range(models.n_features_in_)) for used in columns):
            raise ShapelineError(f"{where}: the models see different columns; give max_features=1.0")
        models = list(models.estimators_)
    elif hasattr(models, "predict"):
        models = [models]
    is_mapping = isinstance(models, Mapping)
    members = list(models.values() if is_mapping else models if isinstance(models, Sequence) else [])
    wrong = [name_type(member) for member in members if not hasattr(member, "predict")]
    if not members or wrong:
        given = f"has {wrong[0]} in it" if wrong else "is empty" if models == [] else f"is {name_type(models)}"
        raise ShapelineError(f"{where}: models {given}; give a list of fitted models")
    check_probabilities(where, members)
    if classes is None and is_classifier(members[0]):
        classes = getattr(members[0], "classes_", None)
        if classes is None:
            raise ShapelineError(
                f"{where}: {name_type(members[0])} has probabilities and no classes_; fit it, or set this attribute"
            )
        if not all(np.array_equal(getattr(member, "classes_", None), classes) for member in members):
            raise ShapelineError(f"{where}: the models have other classes than each other; give models of one task")
    names = [str(name) for name in models] if is_mapping else [f"model {index}" for index in range(len(members))]
    return names, members, None if classes is None else np.asarray(classes)


def check_probabilities(where: str, models: Sequence[object]) -> None:
    """Raise ShapelineError for a classifier without probabilities."""
    for model in models:
        if is_classifier(model) and not hasattr(model, "predict_proba"):
            raise ShapelineError(
                f"{where}: {type(model).__name__} gives no probabilities; wrap it in CalibratedClassifierCV"
            )


def predict_member(where: str, member: object, X: object) -> np.ndarray:
    """Return a member's probabilities (n_rows, n_classes), or its predictions (n_rows,)."""
    from sklearn.tree import BaseDecisionTree

    if isinstance(member, BaseDecisionTree) and not hasattr(member, "feature_names_in_"):
        X = np.asarray(X)  # the trees of a forest fitted on a data frame have no names
    try:
        outputs = member.predict_proba(X) if hasattr(member, "predict_proba") else member.predict(X)
        outputs = np.asarray(outputs) if hasattr(member, "predict_proba") else drop_column(np.asarray(outputs, float))
        if np.isfinite(outputs).all():  # the largest of probabilities that are NaN would be the first
            return outputs
        raise ValueError(f"{name_type(member)} predicts {outputs[~np.isfinite(outputs)][0]}")
    except Exception as error:  # whatever the model raises
        raise build_failure(where, error, "give fitted models, and rows that they take") from error


def drop_column(values: np.ndarray) -> np.ndarray:
    """Return a column (n, 1) as (n,), since (n, 1) and (n,) broadcast to (n, n)."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
