"""The value of 20 groups of patients for a classifier, which is trained anew for each coalition of the groups."""

import os
import time

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

from shapeline.games import DataValuation

PAUSE = float(os.environ.get("PAUSE", 0))  # seconds of an evaluation: that of a larger model, to try a killed run


class Valuation(DataValuation):
    """Data valuation whose evaluations can be made to take longer."""

    def _value(self, mask):
        time.sleep(PAUSE)
        return super()._value(mask)


def build(seed: int) -> DataValuation:
    """Return the game: players are groups of 15 patients, of which the last five have random labels."""
    X, y = load_breast_cancer(return_X_y=True)
    random = np.random.default_rng(seed)
    order = random.permutation(len(y))
    train, test = order[:300], order[300:]
    groups = np.repeat([f"clinic {number + 1}" for number in range(20)], 15)
    labels = np.where(np.arange(300) < 225, y[train], random.integers(0, 2, 300))
    model = RandomForestClassifier(20, random_state=0)
    return Valuation(model, X[train], labels, X[test], y[test], groups=groups)
