"""Games of eleven kinds that set no constant of gp_shapley, for `python -m benchmarks.kinds FOLDER --further`."""

from collections.abc import Callable

import numpy as np

SEEDS = 6  # games of a kind


def make_formulas(seed: int) -> dict[str, Callable]:
    """Return a game of ten to twelve players by each formula."""
    random = np.random.default_rng([99, seed])
    d = int(random.integers(10, 13))
    weights = random.normal(size=(6, d))
    first, second, third = weights[:3]
    shared = 2 * random.normal(size=d)
    parts = [random.choice(d, 3, replace=False) for _ in range(8)]
    patterns = random.integers(0, 2, size=(8, 3))
    rows = random.normal(size=(60, d))
    noise = 0.3 * random.normal(size=60)
    fresh = random.normal(size=(60, d))

    def label(inputs: np.ndarray) -> np.ndarray:
        return np.tanh(inputs @ third) + 0.3 * inputs[:, 0] * inputs[:, 1]

    formulas = {
        "mixture_of_links": lambda m: (1 / (1 + np.exp(1 - m @ (weights + shared).T))).mean(axis=1),
        "softplus_sum": lambda m: np.log1p(np.exp(1.5 * m @ weights.T)).sum(axis=1),
        "geometric_mean": lambda m: np.exp((m @ np.abs(first) + 0.1) ** 0.5),
        "median": lambda m: np.array([np.median(np.r_[0, first[one > 0]]) for one in m]),
        "bump": lambda m: 3 * np.exp(-((m @ second) ** 2) / 2) + m @ second,
        "pattern_count": lambda m: (
            sum((m[:, part] == pattern).all(axis=1) for part, pattern in zip(parts, patterns, strict=True)) * 1.0
        ),
        "kernel_ridge": lambda m: np.array(
            [_fit_kernel(rows[:, one], label(rows) + noise, fresh[:, one], label(fresh)) for one in m > 0]
        ),
    }
    return {kind: _as_game(value, d) for kind, value in formulas.items()}


def _fit_kernel(rows: np.ndarray, y: np.ndarray, fresh: np.ndarray, truth: np.ndarray) -> float:
    """Return R² without an intercept, on fresh rows, of kernel ridge regression; 0 of no columns."""
    if not rows.shape[1]:
        return 0.0
    own, other = (
        np.exp(-((some[:, None] - rows[None]) ** 2).sum(axis=-1) / rows.shape[1] / 2) for some in (rows, fresh)
    )
    predicted = other @ np.linalg.solve(own + 0.3 * np.eye(len(rows)), y)
    return 1 - ((truth - predicted) ** 2).mean() / (truth**2).mean()


def _as_game(value: Callable, d: int) -> Callable:
    def game(masks: np.ndarray) -> np.ndarray:
        return value(masks.astype(float))

    game.n_players = d
    return game


def make_models(seed: int) -> dict[str, Callable]:
    """Return a game of one prediction of each of four models, features being absent by eight background rows."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC, SVR

    from shapeline.games import ModelGame

    games = {}
    for kind, load, model, d in (
        ("svc_cancer", load_breast_cancer, SVC(), 12),
        ("svr_diabetes", load_diabetes, SVR(C=100), 10),
        ("knn_diabetes", load_diabetes, KNeighborsRegressor(7), 10),
        ("trees_wine", load_wine, ExtraTreesRegressor(30, max_depth=4, random_state=0), 12),
    ):
        X, y = load(return_X_y=True)
        X = StandardScaler().fit_transform(X)[:, :d]
        random = np.random.default_rng(5)
        background = X[random.permutation(len(X))[:8]]
        row = [random.integers(len(X)) for _ in range(SEEDS)][seed]
        model.fit(X, y)
        predict = getattr(model, "decision_function", model.predict)
        games[kind] = ModelGame(predict, X[row : row + 1], background=background, value="prediction")
    return games
