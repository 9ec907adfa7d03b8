"""gp_shapley on games of many kinds: its error beside rivals, and whether its intervals hold.

    python -m benchmarks.kinds FOLDER [--samples N] [--budgets 4 8 16 32] [--further] [--rivals [ENVIRONMENT]]

FOLDER: complete games as .npz files of shapiq, one folder per kind. If it does not exist, games of eight kinds are made
from the data sets of scikit-learn (some minutes), or those of `benchmarks.further_kinds`. A line per kind and budget:
RMSE of gp_shapley over that of each rival, geometric mean over games; coverage of nominal 95 % intervals; predicted
over actual RMSE, over all games of a kind in units of each one's range. With --rivals the newest shapiq is a rival, too
(see `benchmarks.rivals`).
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import further_kinds, rivals
from benchmarks.published import ESTIMATORS, read_table
from shapeline import designs
from shapeline.designs.gaussian_process import draw_pairs, read_out
from shapeline.games import (
    DataValuation,
    EnsembleSelection,
    FeatureSelection,
    GlobalImportance,
    ModelGame,
    StoredGame,
    UncertaintyExplanation,
)

OURS = ("leverage_shap", "kernel_shap")
NEGLIGIBLE = 1e-7  # error, as a share of a game's range, that counts as covered


def make_valuation(seed: int) -> list[Callable]:
    """Return games of eleven training examples, and of ten data sets."""
    from sklearn.datasets import load_diabetes, load_wine
    from sklearn.linear_model import Ridge
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    random, games = np.random.default_rng(seed), []
    for load, example, dataset in (
        (load_wine, DecisionTreeClassifier(random_state=0), GaussianNB(var_smoothing=1e-3)),
        (load_diabetes, DecisionTreeRegressor(random_state=0), Ridge()),
    ):
        X, y = load(return_X_y=True)
        order = random.permutation(len(y))
        X, y, test = X[order], y[order], slice(120, None)
        games.append(DataValuation(example, X[:11], y[:11], X[test], y[test], empty=0.0, untrainable="empty"))
        owner = random.integers(10, size=120)
        games.append(
            DataValuation(dataset, X[:120], y[:120], X[test], y[test], groups=owner, empty=0.0, untrainable="empty")
        )
    return games


def make_selection(seed: int) -> list[Callable]:
    """Return games of the members of ensembles, and of features for which models are trained."""
    from sklearn.datasets import load_diabetes, load_digits, load_wine
    from sklearn.ensemble import BaggingRegressor, RandomForestClassifier
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.tree import DecisionTreeClassifier

    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(11, max_depth=4, random_state=seed).fit(X[:600], y[:600])
    numbers, target = load_diabetes(return_X_y=True)
    bag = BaggingRegressor(n_estimators=10, random_state=seed).fit(numbers[:200], target[:200])
    wine, cultivar = load_wine(return_X_y=True)
    columns = np.random.default_rng(seed).permutation(13)[:10]
    wine = wine[:, columns]
    return [
        EnsembleSelection(forest, X[600:1000], y[600:1000], empty=0.0),
        EnsembleSelection(bag, numbers[200:], target[200:], empty=0.0),
        FeatureSelection(KNeighborsRegressor(5), numbers[:200], target[:200], numbers[200:], target[200:], empty=0.0),
        FeatureSelection(
            DecisionTreeClassifier(random_state=0), wine[::2], cultivar[::2], wine[1::2], cultivar[1::2], empty=0.0
        ),
    ]


def make_explanation(seed: int) -> list[Callable]:
    """Return games of a loss, of single predictions, and of their uncertainty."""
    from sklearn.datasets import load_diabetes, load_wine
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

    numbers, target = load_diabetes(return_X_y=True)
    boosted = GradientBoostingRegressor(random_state=0).fit(numbers, target)
    wine, cultivar = load_wine(return_X_y=True)
    wine = wine[:, :11]
    forest = RandomForestClassifier(10, max_depth=3, random_state=0).fit(wine[::2], cultivar[::2])
    row, some = 2 * seed + 1, slice(60 * seed, 60 * seed + 60)
    return [
        GlobalImportance(boosted, numbers[some], target[some], background=numbers[300:310]),
        GlobalImportance(forest, wine[row::4], cultivar[row::4], background=wine[::20]),
        ModelGame(boosted, numbers[row : row + 1], background=numbers[::45]),
        ModelGame(forest, wine[row : row + 1], background=wine[::20]),
        UncertaintyExplanation(forest, wine[row : row + 1], wine[::10]),
        UncertaintyExplanation(forest, wine[80 + row : 81 + row], wine[::10], kind="aleatoric"),
    ]


def make_unanimity(seed: int) -> list[Callable]:
    """Return sums of unanimity games of any size with coefficients between -1 and 1."""

    def game(d: int, number: int) -> Callable:
        random = np.random.default_rng([seed, d])
        parts = [random.choice(d, random.integers(0, d + 1), replace=False) for _ in range(number)]
        weights = random.uniform(-1, 1, size=number)

        def value(masks: np.ndarray) -> np.ndarray:
            return sum(weight * masks[:, part].all(axis=1) for weight, part in zip(weights, parts, strict=True))

        value.n_players = d
        return value

    return [game(12, 30), game(11, 80)]


KINDS = {
    "data_valuation": lambda seed: make_valuation(seed)[::2],
    "dataset_valuation": lambda seed: make_valuation(seed)[1::2],
    "ensemble_selection": lambda seed: make_selection(seed)[:2],
    "feature_selection": lambda seed: make_selection(seed)[2:],
    "global_explanation": lambda seed: make_explanation(seed)[:2],
    "local_explanation": lambda seed: make_explanation(seed)[2:4],
    "uncertainty": lambda seed: make_explanation(seed)[4:],
    "unanimity": make_unanimity,
}


def write_games(folder: Path, seeds: int = 2) -> None:
    """Evaluate all coalitions of the games of every kind, and store them."""
    for kind, make in KINDS.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for seed in range(seeds):
            for number, game in enumerate(make(seed)):
                StoredGame.of(game).write(folder / kind / f"{seed}_{number}.npz")
        print(f"{kind}: {seeds * (number + 1)} games of {folder / kind}", file=sys.stderr)


def write_further(folder: Path) -> None:
    """Evaluate all coalitions of the games of further kinds, and store them."""
    for seed in range(further_kinds.SEEDS):
        for kind, game in (further_kinds.make_formulas(seed) | further_kinds.make_models(seed)).items():
            (folder / kind).mkdir(parents=True, exist_ok=True)
            StoredGame.of(game).write(folder / kind / f"{seed}.npz")


def measure(
    table: np.ndarray, budgets: Sequence[int], samples: int, environment: Path | None
) -> Iterator[dict[str, float]]:
    """Yield by budget, a multiple of d, the RMSE of each estimator on a game (2^d,), coverage and predicted RMSE.

    Budgets that take all coalitions are left out, and constant games.
    """
    d = len(table).bit_length() - 1
    exact, bits, reach = designs.shapley(d).attribute(table[None])[0], 1 << np.arange(d), np.ptp(table)
    budgets = [times * d for times in budgets if times * d < 2**d and reach > 0]
    theirs = rivals.score_games(environment, table[None], budgets, samples) if environment and budgets else {}
    for budget in budgets:
        masks = np.array([draw_pairs(d, budget, sample) for sample in range(samples)])
        found = read_out(masks, table[masks @ bits])
        error = np.abs(found.scores - exact)
        covered = error <= 1.96 * found.standard_error + NEGLIGIBLE * reach
        row = {"budget": budget // d, "reach": reach, "gp_shapley": _rmse(error), "coverage": covered.mean()}
        row["predicted"] = _rmse(found.standard_error)
        for name in OURS:
            scores = ESTIMATORS[name](lambda drawn, _: table[drawn @ bits], d, budget, range(samples))
            row[name] = _rmse(scores - exact)
        yield row | {name: _rmse(scores[:, 0] - exact) for name, scores in theirs.get(budget, {}).items()}


def _rmse(error: np.ndarray) -> float:
    return float(np.sqrt((error**2).mean()))


def summarise(measured: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kind and budget: RMSE of gp_shapley over rivals, coverage, predicted over actual RMSE."""
    rows = []
    names = [name for name in (*OURS, *rivals.NAMES) if name in measured]
    for (kind, budget), cell in measured.groupby(["kind", "budget"], sort=False):
        least = NEGLIGIBLE * cell["reach"]  # where both are exact their ratio is 1
        own = np.maximum(cell["gp_shapley"], least)
        ratio = {name: np.exp(np.log(own / np.maximum(cell[name], least)).mean()) for name in names}
        predicted, actual = (
            np.sqrt(((cell[name] / cell["reach"]) ** 2).mean()) for name in ("predicted", "gp_shapley")
        )
        rows.append({"kind": kind, "budget": budget, "games": len(cell), **ratio, "over best": max(ratio.values())})
        rows[-1] |= {"coverage": cell["coverage"].mean(), "predicted / actual": predicted / actual}
    return pd.DataFrame(rows)


def main() -> None:
    """Print the table, and the geometric mean and the worst of its cells by budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", metavar="N", type=int, default=4, help="samples per game")
    parser.add_argument("--budgets", type=int, nargs="+", default=[4, 8, 16, 32], help="multiples of d")
    parser.add_argument("--further", action="store_true", help="make games of eleven further kinds")
    rivals.add_option(parser)
    given = parser.parse_args()
    if not given.folder.exists():
        (write_further if given.further else write_games)(given.folder)
    environment = rivals.prepare(given.rivals)
    rows = []
    for path in sorted(given.folder.rglob("*.npz")):
        table = read_table(path)
        rows += [{"kind": path.parent.name, **row} for row in measure(table, given.budgets, given.samples, environment)]
    if not rows:
        parser.error(
            f"{given.folder}: no games of more coalitions than the budgets; give a folder of .npz files per kind"
        )
    cells = summarise(pd.DataFrame(rows))
    print(cells.to_string(index=False, float_format="{:.2f}".format))
    over = cells.groupby("budget")["over best"]
    print(pd.DataFrame({"geometric mean": np.exp(over.apply(lambda one: np.log(one).mean())), "worst": over.max()}))


if __name__ == "__main__":
    main()
