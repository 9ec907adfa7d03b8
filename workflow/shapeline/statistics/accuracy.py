"""How near estimators come to known Shapley values at equal evaluations, game by game and over games."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from shapeline.designs.design import Design
from shapeline.designs.gaussian_pairs import gp_shapley_minimum
from shapeline.designs.gaussian_process import gp_pairs, gp_shapley, read_stack
from shapeline.designs.sampled import kernel_shap, kernel_shap_minimum, sample_shapley, sample_shapley_minimum
from shapeline.designs.semivalues import owen_sampling, owen_sampling_minimum
from shapeline.designs.strata import (
    leverage_shap,
    leverage_shap_minimum,
    stratified_svarm,
    stratified_svarm_minimum,
    unbiased_kernel_shap,
    unbiased_kernel_shap_minimum,
)
from shapeline.seeds import seed_of
from shapeline.statistics.bounds import intervals
from shapeline.statistics.known_games import Game

BASE = "kernel_shap"  # what all others are compared with
TIMES = (2, 4, 8, 16)  # evaluations / d
LARGEST, ANYHOW = 1000, 4  # evaluations per instance, but for budgets of so many times d
EXACT = 1e-6  # of the largest score: an error below it counts as that, for the games' tables are of single precision
SHARE = 0.75  # of all coalitions: beyond, nearly all are evaluated and the exact values are at hand


@dataclass(frozen=True)
class Estimator:
    """design(d, budget, seed) and the least budget(d); learns: the readout is `read_stack`, which asks the values."""

    design: Callable[[int, int, int], Design]
    minimum: Callable[[int], int]
    learns: bool = False


ESTIMATORS = {
    BASE: Estimator(kernel_shap, kernel_shap_minimum),
    "gp_shapley": Estimator(gp_pairs, gp_shapley_minimum, learns=True),
    "gp_shapley, fixed": Estimator(gp_shapley, gp_shapley_minimum),
    "leverage_shap": Estimator(leverage_shap, leverage_shap_minimum),
    "unbiased_kernel_shap": Estimator(unbiased_kernel_shap, unbiased_kernel_shap_minimum),
    "stratified_svarm": Estimator(stratified_svarm, stratified_svarm_minimum),
    "owen_sampling": Estimator(owen_sampling, owen_sampling_minimum),
    "sample_shapley": Estimator(sample_shapley, sample_shapley_minimum),
}


def measure(games: Sequence[Game], repeats: int, seed: int) -> pd.DataFrame:
    """Return rmse, ratio to kernel_shap and seconds of every estimator on every game and budget, sampled per
    instance."""
    rows = []
    for estimator in ESTIMATORS.values():  # what is imported and started at a first call is nobody's cost
        _rmse(games[0], estimator, 8 * games[0].d, [0])
    for game in games:
        for times in TIMES:
            if (times > ANYHOW and times * game.d > LARGEST) or times * game.d > SHARE * 2 ** min(game.d, 62):
                continue
            for name, estimator in ESTIMATORS.items():
                if times * game.d >= estimator.minimum(game.d):
                    seeds = [seed_of(seed, name, repeat) for repeat in range(repeats)]
                    rmse, seconds = _rmse(game, estimator, times * game.d, seeds)
                    rows.append((game.name, game.kind, game.d, times, name, rmse, seconds))
    frame = pd.DataFrame(rows, columns=["game", "kind", "d", "times", "estimator", "rmse", "seconds"])
    base = frame.loc[frame["estimator"] == BASE, ["game", "times", "rmse"]]
    frame = frame.merge(base, on=["game", "times"], how="left", suffixes=("", "_base"))
    return frame.assign(ratio=frame["rmse"] / frame.pop("rmse_base"))


def _rmse(game: Game, estimator: Estimator, budget: int, seeds: Sequence[int]) -> tuple[float, float]:
    """Root mean square error and seconds per instance."""
    began, errors, asking = time.process_time(), [], 0.0
    for seed in seeds:
        made = [estimator.design(game.d, budget, seed + instance) for instance in range(len(game.exact))]
        # Values are asked of equally many coalitions for each instance; some designs merge their own.
        most = max(len(one.masks) for one in made)
        masks = np.array([np.pad(one.masks, ((0, most - len(one.masks)), (0, 0))) for one in made])
        asked = time.process_time()
        values = game.value(masks)
        asking += time.process_time() - asked
        if estimator.learns:
            scores = read_stack(masks, values)[0]
        else:
            scores = np.array([one.attribute(row[: len(one.masks)]) for one, row in zip(made, values, strict=True)])
        errors.append(scores - game.exact)
    spent = time.process_time() - began - asking
    rmse = max(np.sqrt(np.mean(np.square(errors))), EXACT * np.abs(game.exact).max())
    return float(rmse), spent / (len(seeds) * len(game.exact))


def average_over_games(measured: pd.DataFrame) -> pd.DataFrame:
    """Return geometric means over games of each estimator's ratio at each budget, with 95 % intervals."""
    wide = measured.assign(log=np.log(measured["ratio"])).pivot_table(
        index="game", columns=["estimator", "times"], values="log", sort=False
    )
    found = intervals(wide)
    ends = np.exp(found[["mean", "low", "high"]]).rename(columns={"mean": "ratio"})
    return ends.assign(games=found["n"]).reset_index()


def pays_from(measured: pd.DataFrame, name: str) -> pd.Series:
    """Seconds an evaluation must take before an estimator is ahead of kernel_shap at equal time, by game and times: its
    error at a budget is what kernel_shap has at 1 / ratio^2 times it; NaN where its ratio is not below 1."""
    own, base = (measured[measured["estimator"] == one].set_index(["game", "times"]) for one in (name, BASE))
    more = 1 / own["ratio"] ** 2
    saved = (more - 1) * own["d"] * own.index.get_level_values("times")
    return ((own["seconds"] - base["seconds"].reindex(own.index)) / saved).clip(lower=0).where(more > 1)
