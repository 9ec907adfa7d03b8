"""Our estimators on the stored games of PolySHAP (ICLR 2026), beside the mean squared errors that it publishes.

    python -m benchmarks.published FOLDER [--samples N] [--games N] [--largest EVALUATIONS] [--rivals [ENVIRONMENT]]

FOLDER: `published_mse.csv`, and the games as .npz files of shapiq in any folders below it. A line per family of games
and published budget: the mean squared error (mean over features, then games) of RegressionMSR, of the best and of
LeverageSHAP as published, and of our leverage_shap, kernel_shap and gp_shapley. Then the geometric means from 2.5 d on:
gp_shapley over RegressionMSR, and our leverage_shap over the published one, which shows that the two are comparable.
With --rivals columns of the newest shapiq, named "shapiq …", at the same budgets (see `benchmarks.rivals`).
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import rivals
from shapeline import designs
from shapeline.designs.gaussian_process import MAX_COALITIONS, draw_pairs, read_out
from shapeline.games.stored import StoredGame

# The words in a game's path, by the family as the table names it.
FAMILIES = {
    "ResNet18 ($d=14$)": "resnet_18",
    "ViT9 ($d=9$)": "vit_9_",
    "ViT16 ($d=16$)": "vit_16_",
    "DistilBERT ($d=14$)": "SentimentAnalysis",
}
MIN_BUDGET = 2.5  # times d: estimators are not compared below
# From a table's values of masks (n, K, d) to scores (n, d).
Estimate = Callable[[Callable[[np.ndarray], np.ndarray], int, int, Sequence[int]], np.ndarray]


def tables(folder: Path, family: str, most: int) -> np.ndarray:
    """Return the values (n, 2^d) of the games of a family; column c is the coalition whose bits are set in c."""
    paths = sorted(path for path in folder.rglob("*.npz") if FAMILIES[family] in str(path.relative_to(folder)))
    return np.array([read_table(path) for path in paths[:most]])


def read_table(path: Path) -> np.ndarray:
    """Return the values (2^d,) of a stored game; column c is the coalition whose bits are set in c."""
    game = StoredGame.read(path)
    table = np.empty(len(game.values))
    table[game.masks @ (1 << np.arange(game.n_players))] = game.values
    return table


def wrap_estimator(method: Callable) -> Estimate:
    """Return the estimates of a method with fixed weights, a sample per game."""

    def estimate(value: Callable, d: int, budget: int, seeds: Sequence[int]) -> np.ndarray:
        made = [method(d, budget, seed) for seed in seeds]
        values = [value(np.array([design.masks]), [place])[0] for place, design in enumerate(made)]
        return np.array([design.attribute(own) for design, own in zip(made, values, strict=True)])

    return estimate


def gaussian(value: Callable, d: int, budget: int, seeds: Sequence[int]) -> np.ndarray:
    """Return the estimates of gp_shapley, a sample per game."""
    masks = np.array([draw_pairs(d, budget, seed) for seed in seeds])
    return read_out(masks, value(masks, range(len(seeds)))).scores


ESTIMATORS: dict[str, Estimate] = {
    "leverage_shap": wrap_estimator(designs.leverage_shap),
    "kernel_shap": wrap_estimator(designs.kernel_shap),
    "gp_shapley": gaussian,
}
SHOWN = ("RegressionMSR", "best", "LeverageSHAP", *ESTIMATORS)


def measure_errors(games: np.ndarray, budget: int, samples: int) -> dict[str, float]:
    """Return the mean squared error of each estimator on games (n, 2^d), over features, games and samples."""
    n, d = len(games), games.shape[1].bit_length() - 1
    exact, bits = designs.shapley(d).attribute(games), 1 << np.arange(d)

    def value(masks: np.ndarray, places: Sequence[int]) -> np.ndarray:
        return np.take_along_axis(games[list(places)], masks @ bits, axis=1)

    found = {}
    for name, estimate in ESTIMATORS.items():
        least = getattr(designs, f"{name}_minimum")(d)
        if budget < least or (name == "gp_shapley" and MAX_COALITIONS < budget < 2**d):
            continue
        made = [estimate(value, d, budget, range(sample * n, (sample + 1) * n)) for sample in range(samples)]
        found[name] = float(np.mean((np.array(made) - exact) ** 2))
    return found


def measure_rivals(environment: Path, games: np.ndarray, budgets: Sequence[int], samples: int) -> dict[int, dict]:
    """Return by budget the mean squared error of each approximator of shapiq on games (n, 2^d)."""
    exact = designs.shapley(games.shape[1].bit_length() - 1).attribute(games)
    scored = rivals.score_games(environment, games, budgets, samples)
    return {
        budget: {f"shapiq {name}": float(np.mean((scores - exact) ** 2)) for name, scores in of_budget.items()}
        for budget, of_budget in scored.items()
    }


def measure(folder: Path, samples: int, most: int, largest: int, environment: Path | None = None) -> pd.DataFrame:
    """Return a row per family and budget: the published errors by estimator, ours, and those of rivals."""
    published = pd.read_csv(folder / "published_mse.csv")
    rows = []
    for family, of_family in published.groupby("game_id", sort=False):
        games = tables(folder, family, most) if family in FAMILIES else np.empty((0, 1))
        if not len(games):
            continue
        d = int(of_family["n_players"].iloc[0])
        of_family = of_family[of_family["used_budget"] < min(2**d, largest + 1)]
        budgets = sorted(of_family["used_budget"].unique().tolist())
        of_rivals = measure_rivals(environment, games, budgets, samples) if environment else {}
        for budget, cells in of_family.groupby("used_budget"):
            theirs = cells.set_index("approximator")["MSE_mean"]
            of_us = measure_errors(games, int(budget), samples) | of_rivals.get(budget, {})
            rows.append({"family": family, "d": d, "budget": budget, "best": theirs.min(), **theirs, **of_us})
            print(format_line(rows[-1]), flush=True)
    return pd.DataFrame(rows)


def format_line(row: dict) -> str:
    """Return a row as a line of the table."""
    shown = (*SHOWN, *(name for name in row if name.startswith("shapiq ")))
    numbers = (f"{row[name]:>13.3e}" if name in row else f"{'–':>13}" for name in shown)
    return f"{row['family']:<20} {row['budget']:>6} {' '.join(numbers)}"


def summarise(measured: pd.DataFrame) -> dict[str, float]:
    """Return geometric means, and the worst cell, of ratios of mean squared errors from 2.5 d on."""
    cells = measured[(measured["budget"] >= MIN_BUDGET * measured["d"]) & measured["gp_shapley"].notna()]
    ratio = cells["gp_shapley"] / cells["RegressionMSR"]
    harness = cells["leverage_shap"] / cells["LeverageSHAP"]
    newest = cells[[name for name in cells if name.startswith("shapiq ")]].min(axis=1).dropna()
    means = {"gp_shapley / best of shapiq": np.exp(np.log(cells["gp_shapley"] / newest).mean())} if len(newest) else {}
    return means | {
        "gp_shapley / RegressionMSR, published": float(np.exp(np.log(ratio).mean())),
        "the same in the worst cell": float(ratio.max()),
        "leverage_shap / LeverageSHAP, published": float(np.exp(np.log(harness).mean())),
    }


def main() -> None:
    """Print the table and its geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", metavar="N", type=int, default=1, help="samples per game")
    parser.add_argument("--games", type=int, default=30, help="games per family, at most")
    parser.add_argument("--largest", type=int, default=2**14, help="evaluations, at most")
    rivals.add_option(parser)
    given = parser.parse_args()
    if not (given.folder / "published_mse.csv").is_file():
        parser.error(f"{given.folder}: there is no published_mse.csv; give the folder that holds it and the games")
    environment = rivals.prepare(given.rivals)
    shown = (*SHOWN, *(f"shapiq {name}"[:13] for name in rivals.NAMES if environment))
    print(f"{'family':<20} {'budget':>6} {' '.join(f'{name:>13}' for name in shown)}")
    measured = measure(given.folder, given.samples, given.games, given.largest, environment)
    if measured.empty:
        parser.error(f"{given.folder}: no games of the table at up to {given.largest} evaluations; give .npz files")
    for name, number in summarise(measured).items():
        print(f"{name}: {number:.2f}")


if __name__ == "__main__":
    main()
