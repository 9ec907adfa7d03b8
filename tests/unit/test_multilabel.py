"""Several labels at once, from data to values: each label is a sigmoid of its own."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import shapeline
from shapeline import config, datasets, designs, engine, features, models
from shapeline.attribution import attribute
from shapeline.errors import ShapelineError
from shapeline.models import training
from shapeline.references import Reference
from tests.unit.games import all_masks

WEIGHTS = np.array([[2.0, -1.0, 0.0, 1.0], [-0.5, 0.0, 3.0, 0.5], [0.0, 1.0, 1.0, -2.0]])
INPUTS = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
TARGETS = np.array([0, 1, 2, 1, 0])
COLUMNS = features.build("column", {"input_shape": [4], "feature_names": list("abcd")})
VALUES = {
    "logit": lambda z: z,
    "log_odds": lambda z: z,
    "log_probability": lambda z: -np.log1p(np.exp(-z)),
    "probability": lambda z: 1 / (1 + np.exp(-z)),
}


def linear() -> models.Classifier:
    """A logit a label, each a sum over the columns."""
    layer = nn.Linear(4, 3).double() if False else nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(WEIGHTS))
        layer.bias.copy_(torch.tensor([0.5, -1.0, 0.0]))
    return models.wrap(layer, "multilabel")


def logits(rows: np.ndarray) -> np.ndarray:
    return rows.astype(float) @ WEIGHTS.T + [0.5, -1.0, 0.0]


def brute_force(value: str, reference: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Values (n, K) of coalitions, by a plain sigmoid; probabilities are averaged over the reference's rows."""
    filled = np.where(masks[None, :, None], INPUTS[:, None, None], reference)
    z = np.take_along_axis(logits(filled), TARGETS[:, None, None, None], 3)[..., 0]
    if value == "logit":
        return z.mean(2)
    p = (1 / (1 + np.exp(-z))).mean(2)
    return {"probability": p, "log_probability": np.log(p), "log_odds": np.log(p) - np.log1p(-p)}[value]


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("form", ["plain", "frozen"])
def test_values_are_those_of_a_sigmoid(value, M, form):
    reference = np.random.default_rng(1).normal(size=(M, 4)).astype(np.float32)
    masks = all_masks(4)
    found = engine.values(
        linear(), INPUTS, Reference(reference), masks, COLUMNS, value, TARGETS, engine.Form(form, 7)
    )
    np.testing.assert_allclose(found, brute_force(value, reference, masks), atol=2e-6)
