"""The game of the members of an ensemble, whose predictions are averaged."""

from collections.abc import Mapping, Sequence

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.games.validation_scores import (
    Scoring,
    build_identity,
    check_rows,
    compute_scores,
    find_empty_value,
    name_outputs,
    read_scorers,
)


class EnsembleSelection:
    """The value of models in an ensemble.

    The value of a coalition is the score of its members' mean prediction (probabilities, or numbers of a regression).
    Every model predicts once, when the game is made.

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
        predictions = [predict_member(member, X) for member in members]
        if len({one.shape for one in predictions}) > 1 or (
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
            values.append(
                self.empty if mean is None else compute_scores(self.scorers, mean, self.predictions[0], self.y)
            )
        return np.array(values)

    def _average(self, prediction: np.ndarray) -> object:
        """Return an estimator with this prediction, which the scorers take."""
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


def averaging_ensembles() -> tuple[type, ...]:
    """Return the ensembles of scikit-learn whose prediction is the mean of their models'."""
    from sklearn import ensemble

    kinds = ("RandomForest", "ExtraTrees", "Bagging", "Voting")
    return tuple(getattr(ensemble, f"{kind}{task}") for kind in kinds for task in ("Classifier", "Regressor"))


def list_members(where: str, models: object) -> tuple[list[str], list[object], np.ndarray | None]:
    """Return names, members and classes (None of a regression) of an ensemble. Raises ShapelineError."""
    from sklearn.base import is_classifier

    classes = getattr(models, "classes_", None)
    if hasattr(models, "estimators_"):
        weighted = getattr(models, "weights", None) is not None or getattr(models, "voting", "soft") != "soft"
        if weighted or not isinstance(models, averaging_ensembles()):
            raise ShapelineError(
                f"{where}: a {type(models).__name__} does not average its models; give a forest, a bagging or soft "
                "voting ensemble without weights, or a list of fitted models"
            )
        columns = getattr(models, "estimators_features_", [])
        if any(len(set(own)) != models.n_features_in_ or list(own) != sorted(own) for own in columns):
            raise ShapelineError(f"{where}: the models see different columns; give max_features=1.0")
        models = list(models.estimators_)
    elif hasattr(models, "predict"):
        models = [models]
    named = isinstance(models, Mapping)
    members = list(models.values() if named else models if isinstance(models, Sequence) else [])
    if not members or not all(hasattr(member, "predict") for member in members):
        raise ShapelineError(f"{where}: models is a {type(models).__name__}; give a list of fitted models")
    if lacking := [member for member in members if is_classifier(member) and not hasattr(member, "predict_proba")]:
        raise ShapelineError(
            f"{where}: {type(lacking[0]).__name__} gives no probabilities; wrap it in CalibratedClassifierCV"
        )
    if classes is None and is_classifier(members[0]):
        classes = members[0].classes_
        if not all(np.array_equal(getattr(member, "classes_", None), classes) for member in members):
            raise ShapelineError(f"{where}: the models have other classes than each other; give models of one task")
    names = [str(name) for name in models] if named else [f"model {place}" for place in range(len(members))]
    return names, members, None if classes is None else np.asarray(classes)


def predict_member(member: object, X: object) -> np.ndarray:
    """Return a member's probabilities (n_rows, n_classes), or its predictions (n_rows,)."""
    from sklearn.tree import BaseDecisionTree

    if isinstance(member, BaseDecisionTree) and not hasattr(member, "feature_names_in_"):
        X = np.asarray(X)  # those of a forest that was fitted on a frame
    if hasattr(member, "predict_proba"):
        return np.asarray(member.predict_proba(X))
    return drop_column(np.asarray(member.predict(X)))


def drop_column(values: np.ndarray) -> np.ndarray:
    """Return a column (n, 1) as (n,), since the two would broadcast against each other."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
