"""LIME by the distance of inputs: a fit by hand over all masks, its width, and features at the reference."""

import numpy as np
import pytest

from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.methods.labelled_points import lime_input
from shapeline.models.classifier import Classifier
from tests.unit import shortcuts

COLUMNS = Features("group", (3,), np.array([0, 1, 1, 2], np.int32))
X = np.array([[1.0, 2.0, -1.0, 0.5], [3.0, 0.0, 0.0, 1.0]], np.float32)
ROWS = np.array([[0.0, 1.0, 0.0, 0.5], [1.0, -1.0, 0.0, 0.5]], np.float32)


def curved(rows: np.ndarray) -> np.ndarray:
    return np.tanh(rows @ np.array([0.3, 0.5, -0.2, 0.7])) + rows[:, 0] * rows[:, 1]


def game(rows=ROWS) -> Game:
    model = Classifier("function", "curved", curved, 1, task="regression")
    return Game(model, Reference(rows), COLUMNS, "prediction")


def explained(sigma=0.5, ridge=0.3, budget=8, instances=(4, 7), rows=ROWS):
    return lime_input(game(rows), X, np.zeros(2, int), instances, 0, budget, sigma, ridge)


@pytest.mark.parametrize("sigma", [0.3, 1.0])
def test_all_masks_by_hand(sigma):
    """Pei (2018): exp(-|x - x'|^2 / sigma^2), the squared distance a mean over two reference rows."""
    scores, evaluations = explained(sigma)
    assert evaluations.tolist() == [8, 8]
    masks = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], bool)
    for x, found in zip(X, scores, strict=True):
        filled = np.where(masks[:, None, COLUMNS.cells], x, ROWS)
        squared = ((x - filled) ** 2).sum(axis=2).mean(axis=1)
        weights = np.exp(-squared / (sigma**2 * squared.max()))
        values = np.array([curved(rows).mean() for rows in filled])
        design = np.column_stack([masks, np.ones(8)])
        normal = design.T @ (weights[:, None] * design) + np.diag([0.3, 0.3, 0.3, 0.0])
        np.testing.assert_allclose(
            found, np.linalg.solve(normal, design.T @ (weights * values))[:3], rtol=1e-5, atol=1e-9
        )


def test_samples_depend_on_instance_and_seed():
    few, evaluations = explained(budget=5)
    assert evaluations.tolist() == [5, 5]
    np.testing.assert_array_equal(few, explained(budget=5)[0])
    other = explained(budget=5, instances=(9, 7))[0]
    assert (other[0] != few[0]).any() and (other[1] == few[1]).all()


def test_a_constant_model_has_scores_of_exactly_0():
    """Rounding errors of 1e-16 had an order, by which metrics masked features, and a max-sensitivity of 1.2."""
    constant = Classifier("function", "constant", lambda rows: np.full(len(rows), 0.7), 1, task="regression")
    played = Game(constant, Reference(ROWS), COLUMNS, "prediction")
    assert not lime_input(played, X, np.zeros(2, int), (4, 7), 0, 8)[0].any()


def test_an_input_at_the_reference_has_scores():
    assert np.isfinite(explained(rows=X[:1])[0]).all()


def test_it_is_a_method_with_a_budget():
    (found,) = shortcuts.attribute(
        game().model, X, np.zeros(2, int), {"method": "lime_input"}, COLUMNS, Reference(ROWS), "prediction", (2.0,)
    )
    assert found.evaluations.tolist() == [6, 6] and found.status == ["ok", "ok"]
