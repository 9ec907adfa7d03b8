"""The error of a Gaussian process whose prior is fitted to the true interactions: a bound on other priors.

    python -m benchmarks.oracle [--games NAME ...] [--instances N] [--samples N]

Its prior variances are exp(a_order + sum of b_i over the features of an interaction, + c times its neighbours), fitted
to the squares of the game's true interactions. A line per game and budget has the RMSE of gp_shapley and of this
oracle as ratios to that of kernel_shap at the same evaluations.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy import METHODS, list_seeds, run
from benchmarks.accuracy_games import game, parser
from shapeline.designs.design import enumerate_coalitions
from shapeline.designs.gaussian_process import draw_pairs
from shapeline.statistics.accuracy import Game

GAMES = ("reviews", "cancer", "diabetes", "wine")
STEPS, MAX_SQUARE = 80, 50.0  # of the fit; largest square over its variance that counts


def transform(values: np.ndarray) -> np.ndarray:
    """Return the sums over S of values (..., 2^d) times (-1)^|S and T|, for every T."""
    shape, width = values.shape, 1
    while width < shape[-1]:
        pairs = values.reshape(-1, shape[-1] // (2 * width), 2, width)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        values, width = np.stack([low + high, low - high], axis=2).reshape(shape), 2 * width
    return values


def variances(square: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return variances (T,) fitted to squares (T,) of the coefficients of interactions, members (T, d) bool."""
    order, beside = members.sum(axis=1), (members[:, 1:] & members[:, :-1]).sum(axis=1)
    orders = np.unique(order)
    columns = [order[:, None] == orders, members, (beside * (order == 3))[:, None], (beside * (order > 3))[:, None]]
    design = np.concatenate(columns, axis=1).astype(float)
    weight = np.zeros(design.shape[1])
    weight[: len(orders)] = [np.log(square[order == one].mean() + 1e-30) for one in orders]
    normal = design.T @ design + 1e-2 * np.eye(len(weight))
    for _ in range(STEPS):
        excess = np.minimum(square / np.exp(np.clip(design @ weight, -60, 20)), MAX_SQUARE) - 1
        weight += 0.7 * np.clip(np.linalg.solve(normal, design.T @ excess), -1, 1)
    return np.exp(np.clip(design @ weight, -60, 20))


def oracle(played: Game, budget: int, sample: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return scores of the process with the fitted variances, with the interface of `benchmarks.accuracy.METHODS`."""
    d, n = played.d, len(played.exact)
    members, table = enumerate_coalitions(d, "oracle"), played.stored
    size = members.sum(axis=1)
    odd = size % 2 == 1
    share = 2 * members[odd].T / size[odd]  # of an interaction's coefficient, of each feature (d, T)
    scores = np.zeros((n, d))
    for i, seed in enumerate(list_seeds(sample, n)):
        prior = np.zeros(2**d)
        prior[odd] = variances((transform(table[i]) / 2**d)[odd] ** 2, members[odd])
        spread = np.zeros((d, 2**d))
        spread[:, odd] = prior[odd] * share
        number = draw_pairs(d, budget, seed) @ (1 << np.arange(d))
        number = number[number >= 2 ** (d - 1)]  # of each pair the one with the last feature
        matrix = transform(prior)[number[:, None] ^ number] + 1e-9 * prior.sum() * np.eye(len(number))
        value = (table[i, number] - table[i, 2**d - 1 - number]) / 2
        scores[i] = -transform(spread)[:, number] @ np.linalg.solve(matrix, value)
    whole = table[:, -1] - table[:, 0]
    return scores + (whole - scores.sum(axis=1))[:, None] / d, np.full((n, d), np.nan), 0.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = parser(__doc__, GAMES, instances=20, samples=5)
    options.add_argument("--budgets", nargs="+", type=int, default=[4, 8, 16], help="multiples of d")
    args = options.parse_args(arguments)
    print(f"{'game':14s} budget  gp_shapley  oracle")
    for name in args.games:
        played = game(name, args.instances)
        for times in args.budgets:
            ways = {"kernel": METHODS["kernel_shap"], "process": METHODS["gp_shapley"], "oracle": oracle}
            found = {way: run(played, method, times * played.d, args.samples).rmse() for way, method in ways.items()}
            print(
                f"{name:14s} {times:3d} d   {found['process'] / found['kernel']:.2f}        "
                f"{found['oracle'] / found['kernel']:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
