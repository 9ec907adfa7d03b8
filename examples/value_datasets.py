"""Which of five datasets help a model: two are clean, one has random labels, one is small, one has shifted columns."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import shapeline

X, y = load_breast_cancer(return_X_y=True)
owners = np.repeat(["north", "south", "random", "small", "shifted"], [60, 60, 60, 8, 60])
train = np.where(owners == "random", np.random.default_rng(0).integers(0, 2, 248), y[:248])
rows = X[:248] + 2 * X.std(axis=0) * (owners == "shifted")[:, None]
model = make_pipeline(StandardScaler(), LogisticRegression())
game = shapeline.games.DataValuation(model, rows, train, X[248:], y[248:], groups=owners)
print(shapeline.shapley_values(game))
