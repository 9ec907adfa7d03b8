"""Shapley values of a linear model of scikit-learn, in closed form."""

from typing import TYPE_CHECKING

import numpy as np

from shapeline.errors import unsupported
from shapeline.games.game import Game
from shapeline.methods import sklearn_steps
from shapeline.methods.sklearn_steps import Fitted

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset


def linear_shap(
    question: Game, inputs: np.ndarray, targets: np.ndarray, dataset: "Dataset | None" = None
) -> tuple[np.ndarray, int]:
    """Sums of w_k (x_k - mean of x0_k) over the inputs k that a feature becomes (Strumbelj & Kononenko 2014), (n, d).

    Of a regression the value is the prediction; of a classifier of two classes margin (with one reference row log_odds,
    the same). Evaluates both ends, which the scores must add up to. Raises ShapelineError for other values and models.
    """

    def explain(model: Fitted, rows: tuple[np.ndarray, np.ndarray], owners: np.ndarray, d: int, outputs: np.ndarray):
        weights = np.asarray(getattr(model.last, "coef_", np.zeros((0, 0))), np.float64)
        if weights.size != len(owners):
            raise unsupported(
                f"linear_shap: {type(model.last).__name__} has no weight for each input; {sklearn_steps.OTHERS}"
            )
        sklearn_steps.refuse_unless_additive(
            "linear_shap", question, "prediction" if model.outputs is None else "margin", model.last
        )
        sign = 1.0 if model.outputs is None else 2.0 * outputs[:, None] - 1
        parts = sign * weights.ravel() * (rows[0] - rows[1].mean(axis=0))
        return parts @ (owners[:, None] == np.arange(d))

    return sklearn_steps.shapley("linear_shap", question, inputs, targets, dataset, explain)
