"""A scikit-learn model as its last step and what comes before it, and which feature each input of that step is of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.errors import reject
from shapeline.games.game import Game
from shapeline.models.estimators import find_classes, list_transformers
from shapeline.models.pipeline_file import Pipeline

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset

OTHERS = "use gp_shapley or kernel_shap"
UNSEEN = -2
NEAR = 1e-4  # share of the values within which scores must add up: functions are asked in single precision


@dataclass(frozen=True, eq=False)
class Fitted:
    """last: the final estimator; prepare: rows (n, columns) to (n, k); outputs (classes,): its own class numbers."""

    last: Any
    prepare: Callable[[np.ndarray], np.ndarray]
    outputs: np.ndarray | None


def shapley(
    where: str, game: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None", explain: Callable
) -> tuple[np.ndarray, int]:
    """Return Shapley values (n, d) that `explain` reads from the model, checked to add up to both ends."""
    if game.reference.given is not None:
        raise reject(f"{where}: absent columns hang on the present ones under reference: conditional; {OTHERS}")
    fitted, features = open_pipeline(where, game.model.module, dataset), game.features
    rows = game.reference.of(inputs)[0]
    given, absent = fitted.prepare(inputs), fitted.prepare(rows)
    owners = find_owners(where, fitted, inputs, rows, features.cells)
    outputs = np.zeros(len(inputs), int) if fitted.outputs is None else fitted.outputs[targets]
    scores = explain(fitted, (given, absent), owners, features.d, outputs)
    ends = game.values(inputs, np.array([[True], [False]]).repeat(features.d, axis=1), targets)
    gap = np.abs(scores.sum(axis=1) - (ends[:, 0] - ends[:, 1]))
    if (gap > NEAR * (1 + np.abs(ends).sum(axis=1))).any():
        raise reject(
            f"{where}: what the {type(fitted.last).__name__} says is not the sum that its scores are of (they miss "
            f"{game.value} by {gap.max():.2g}); {OTHERS}"
        )
    return scores, 2


def open_pipeline(where: str, module: Any, dataset: "Dataset | None") -> Fitted:
    """The estimator behind a model: a pipeline from a file, or the bound method of an object."""
    estimator = module.estimator if isinstance(module, Pipeline) else _find_estimator(module)
    if estimator is None:
        raise reject(f"{where}: the model is none of scikit-learn and no boosted trees; {OTHERS}")
    classes, outputs = find_classes(estimator), None
    if classes is not None:
        own = [class_name(label) for label in classes]
        named = dataset.card["classes"] if isinstance(module, Pipeline) and dataset is not None else own
        order = getattr(module, "order", None)
        outputs = np.array([own.index(name) for name in named] if order is None else order)
    steps = []
    last = estimator
    while hasattr(last, "steps"):
        steps += list_transformers(last)
        last = last.steps[-1][1]

    def prepare(rows: np.ndarray) -> np.ndarray:
        made = module.take(rows) if hasattr(module, "take") else rows
        for step in steps:
            made = step.transform(made)
        try:
            if hasattr(made, "to_numpy"):  # a data frame, whose nullable columns have pd.NA
                return made.to_numpy(np.float64, na_value=np.nan)
            return np.asarray(made.toarray() if hasattr(made, "toarray") else made, np.float64)
        except (TypeError, ValueError) as error:
            raise reject(f"{where}: a {type(last).__name__} that is given texts is not read; {OTHERS}") from error

    return Fitted(last, prepare, outputs)


def _find_estimator(module: Any) -> Any:
    """The object whose method is asked, also where rows go through a data frame first; None of a function."""
    estimator = getattr(getattr(module, "ask", module), "__self__", None)
    return estimator if hasattr(estimator, "get_params") else None


def find_owners(where: str, fitted: Fitted, inputs: np.ndarray, rows: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the feature (k,) of each input of the last step, found by moving columns; none may be mixed."""
    base, donors = rows[:1], np.concatenate([inputs, rows])
    start = fitted.prepare(base)
    owners = np.full(start.shape[1], UNSEEN)
    for column in range(base.shape[1]):
        moved = np.repeat(base, len(donors), axis=0)
        moved[:, column] = donors[:, column]
        changed = ~are_equal(fitted.prepare(moved), start).all(axis=0)
        if (changed & (owners != UNSEEN) & (owners != cells[column])).any():
            raise reject(f"{where}: a step before the {type(fitted.last).__name__} mixes columns; {OTHERS}")
        owners[changed] = cells[column]
    return np.maximum(owners, -1)  # what no column changes is equal in all rows


def are_equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where numbers are equal, or both missing."""
    return (one == other) | (np.isnan(one) & np.isnan(other))


def refuse_unless_additive(where: str, game: Game, additive: str, estimator: Any) -> None:
    """Refuse a value that the parts of this estimator do not add up to."""
    rows = 1 if game.reference.rows is None else len(game.reference.rows)
    if additive == "margin" and len(estimator.classes_) != 2:
        raise reject(
            f"{where}: {game.value} of {len(estimator.classes_)} classes is not a sum over the parts of a "
            f"{type(estimator).__name__}; {OTHERS}"
        )
    if game.value != additive and not (additive == "margin" and game.value == "log_odds" and rows == 1):
        if additive == "margin" and game.value == "log_odds":
            raise reject(
                f"{where}: with {rows} reference rows the probability is averaged before log_odds is taken, and no sum "
                f"is left; set value: margin, give a reference of one row, or {OTHERS}"
            )
        raise reject(
            f"{where}: the parts of a {type(estimator).__name__} add up to its {additive}, not to {game.value}; "
            f"set value: {additive}, or {OTHERS}"
        )


if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset


def linear_shap(
    game: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None" = None
) -> tuple[np.ndarray, int]:
    """Sums of w_k (x_k - mean of x0_k) over the inputs k of a feature (Strumbelj & Kononenko 2014), (n, d).

    Value: prediction, margin of two classes, or log_odds with one reference row; raises ShapelineError for others.
    """

    def explain(model: Fitted, rows: tuple[np.ndarray, np.ndarray], owners: np.ndarray, d: int, outputs: np.ndarray):
        weights = np.asarray(getattr(model.last, "coef_", np.zeros((0, 0))), np.float64)
        if weights.size != len(owners):
            classes = len(getattr(model.last, "classes_", ()))
            of = f" of {classes} classes" if classes > 2 else ""
            raise reject(f"linear_shap: {type(model.last).__name__}{of} has no single weight per input; {OTHERS}")
        refuse_unless_additive("linear_shap", game, "prediction" if model.outputs is None else "margin", model.last)
        sign = 1.0 if model.outputs is None else 2.0 * outputs[:, None] - 1
        parts = sign * weights.ravel() * (rows[0] - rows[1].mean(axis=0))
        return parts @ (owners[:, None] == np.arange(d))

    return shapley("linear_shap", game, inputs, targets, dataset, explain)
