"""Errors of estimators on games with known Shapley values at equal evaluations, per game and over games."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline.designs import semivalues
from shapeline.designs.design import Design
from shapeline.designs.gaussian_pairs import gp_shapley_minimum
from shapeline.designs.gaussian_process import gp_pairs, gp_shapley, read_stack
from shapeline.designs.sampled import kernel_shap, kernel_shap_minimum, sample_shapley, sample_shapley_minimum
from shapeline.designs.semivalues import owen_sampling, owen_sampling_minimum
from shapeline.seeds import seed_of
from shapeline.statistics.bounds import intervals

STORED = Path(__file__).with_name("games.parquet")


@dataclass(frozen=True, eq=False)
class Game:
    """Instances of one game. value: from masks (n, K, d) bool, per instance, to values (n, K); exact: Shapley values
    (n, d); stored: the tables (n, 2^d) or n sums of terms that define it; kind: as in the file, "" for none."""

    name: str
    d: int
    value: Callable[[np.ndarray], np.ndarray]
    exact: np.ndarray
    stored: "np.ndarray | Sequence[Terms]"
    kind: str = ""


@dataclass(frozen=True, eq=False)
class Terms:
    """A sum of terms: weight (T,); present, absent (T, d) bool: the features that a term requires kept or masked."""

    weight: np.ndarray
    present: np.ndarray
    absent: np.ndarray

    @classmethod
    def of(cls, d: int, weight: Sequence[float], present: Sequence, absent: Sequence) -> "Terms":
        """Return terms from lists of the feature numbers of each."""
        sets = np.zeros((2, len(weight), d), bool)
        for side, lists in enumerate((present, absent)):
            for number, members in enumerate(lists):
                sets[side, number, np.asarray(members, int)] = True
        return cls(np.asarray(weight, float), *sets)

    def value(self, masks: np.ndarray) -> np.ndarray:
        """Return values (K,) of coalitions (K, d)."""
        from scipy.sparse import csr_array

        kept = masks.astype(np.float32)
        wrong = csr_array(self.present, dtype=np.float32) @ (1 - kept).T
        wrong += csr_array(self.absent, dtype=np.float32) @ kept.T
        return self.weight @ (wrong == 0)

    def shapley(self) -> np.ndarray:
        """Return Shapley values (d,): 1 / (p C(p + a, a)) for p present features, -1 / (a C(p + a, a)) for a absent."""
        from scipy.special import beta

        p, a = self.present.sum(axis=1), self.absent.sum(axis=1)
        for_present = np.where(p > 0, beta(np.maximum(p, 1), a + 1), 0)
        for_absent = np.where(a > 0, beta(p + 1, np.maximum(a, 1)), 0)
        return (self.weight * for_present) @ self.present - (self.weight * for_absent) @ self.absent


def build_exact_game(name: str, tables: np.ndarray, exact: np.ndarray, kind: str) -> Game:
    """Return the game of `tables` (n, 2^d), a column c per set of the bits of c, with Shapley values (n, d)."""
    bits = 1 << np.arange(exact.shape[1])
    return Game(name, len(bits), lambda masks: np.take_along_axis(tables, masks @ bits, axis=1), exact, tables, kind)


def build_from_terms(name: str, instances: Sequence[Terms], kind: str = "") -> Game:
    """Return the game of one sum of terms per instance."""
    return Game(
        name,
        instances[0].present.shape[1],
        lambda masks: np.array([terms.value(rows) for terms, rows in zip(instances, masks, strict=True)]),
        np.array([terms.shapley() for terms in instances]),
        instances,
        kind,
    )


def read(path: Path | str = STORED) -> list[Game]:
    """Return the games of a file, in its order."""
    frame = pd.read_parquet(path)
    return [_build_stored(name, rows) for name, rows in frame.groupby("game", sort=False)]


def _build_stored(name: str, rows: pd.DataFrame) -> Game:
    kind, d = rows["kind"].iloc[0], int(rows["d"].iloc[0])
    exact = np.array(rows["exact"].to_list())
    if rows["form"].iloc[0] == "table":
        return build_exact_game(name, np.array(rows["values"].to_list(), float), exact, kind)
    parts = zip(rows["weights"], rows["present"], rows["absent"], strict=True)
    return dataclasses.replace(build_from_terms(name, [Terms.of(d, *part) for part in parts], kind), exact=exact)


BASE = "kernel_shap"  # the estimator to which all ratios refer
TIMES = (2, 4, 8, 16)  # evaluations / d
MAX_COST, MIN_TIMES = 1000, 4  # evaluations per instance; budgets up to MIN_TIMES d are always measured
MIN_ERROR = 1e-6  # share of the largest score to which smaller errors are raised: tables are in single precision
MAX_SHARE = 0.75  # share of all coalitions above which exact values cost hardly more


@dataclass(frozen=True)
class Estimator:
    """An estimator: design(d, budget, seed) and minimum(d); learns: `read_stack` fits the values."""

    design: Callable[[int, int, int], Design]
    minimum: Callable[[int], int]
    learns: bool = False


ESTIMATORS = {
    BASE: Estimator(kernel_shap, kernel_shap_minimum),
    "gp_shapley": Estimator(gp_pairs, gp_shapley_minimum, learns=True),
    "gp_shapley, fixed": Estimator(gp_shapley, gp_shapley_minimum),
    "leverage_shap": Estimator(semivalues.leverage_shap, semivalues.leverage_shap_minimum),
    "unbiased_kernel_shap": Estimator(semivalues.unbiased_kernel_shap, semivalues.unbiased_kernel_shap_minimum),
    "stratified_svarm": Estimator(semivalues.stratified_svarm, semivalues.stratified_svarm_minimum),
    "owen_sampling": Estimator(owen_sampling, owen_sampling_minimum),
    "sample_shapley": Estimator(sample_shapley, sample_shapley_minimum),
}


def measure(games: Sequence[Game], repeats: int, seed: int) -> pd.DataFrame:
    """Return rmse, ratio to kernel_shap and seconds of every estimator on every game and budget."""
    rows = []
    for estimator in ESTIMATORS.values():  # a first call imports and starts threads, which must not be timed
        _measure_rmse(games[0], estimator, 8 * games[0].d, [0])
    for game in games:
        for times in TIMES:
            if (times > MIN_TIMES and times * game.d > MAX_COST) or times * game.d > MAX_SHARE * 2 ** min(game.d, 62):
                continue
            for name, estimator in ESTIMATORS.items():
                if times * game.d >= estimator.minimum(game.d):
                    seeds = [seed_of(seed, name, repeat) for repeat in range(repeats)]
                    rmse, seconds = _measure_rmse(game, estimator, times * game.d, seeds)
                    rows.append((game.name, game.kind, game.d, times, name, rmse, seconds))
    frame = pd.DataFrame(rows, columns=["game", "kind", "d", "times", "estimator", "rmse", "seconds"])
    base = frame.loc[frame["estimator"] == BASE, ["game", "times", "rmse"]]
    frame = frame.merge(base, on=["game", "times"], how="left", suffixes=("", "_base"))
    return frame.assign(ratio=frame["rmse"] / frame.pop("rmse_base"))


def _measure_rmse(game: Game, estimator: Estimator, budget: int, seeds: Sequence[int]) -> tuple[float, float]:
    """Return root mean square error and seconds per instance."""
    began, errors, evaluating = time.process_time(), [], 0.0
    for seed in seeds:
        designs = [estimator.design(game.d, budget, seed + instance) for instance in range(len(game.exact))]
        # Masks are padded to equally many coalitions per instance, because some designs merge duplicates.
        largest = max(len(drawn.masks) for drawn in designs)
        masks = np.array([np.pad(drawn.masks, ((0, largest - len(drawn.masks)), (0, 0))) for drawn in designs])
        started = time.process_time()
        values = game.value(masks)
        evaluating += time.process_time() - started
        if estimator.learns:
            scores = read_stack(masks, values)[0]
        else:
            rows = zip(designs, values, strict=True)
            scores = np.array([drawn.attribute(row[: len(drawn.masks)]) for drawn, row in rows])
        errors.append(scores - game.exact)
    seconds = time.process_time() - began - evaluating
    rmse = max(np.sqrt(np.mean(np.square(errors))), MIN_ERROR * np.abs(game.exact).max())
    return float(rmse), seconds / (len(seeds) * len(game.exact))


def average_over_games(measured: pd.DataFrame) -> pd.DataFrame:
    """Return geometric means over games of each estimator's ratio at each budget, with 95 % intervals."""
    wide = measured.assign(log=np.log(measured["ratio"])).pivot_table(
        index="game", columns=["estimator", "times"], values="log", sort=False
    )
    result = intervals(wide)
    ends = np.exp(result[["mean", "low", "high"]]).rename(columns={"mean": "ratio"})
    return ends.assign(games=result["n"]).reset_index()


def find_break_even(measured: pd.DataFrame, name: str) -> pd.Series:
    """Return the seconds per evaluation from which an estimator leads kernel_shap at equal time, by game and times: its
    error equals that of kernel_shap at 1 / ratio^2 times the budget; NaN where its ratio is not below 1."""
    rows, base = (measured[measured["estimator"] == label].set_index(["game", "times"]) for label in (name, BASE))
    times = 1 / rows["ratio"] ** 2
    saved = (times - 1) * rows["d"] * rows.index.get_level_values("times")
    return ((rows["seconds"] - base["seconds"].reindex(rows.index)) / saved).clip(lower=0).where(times > 1)
