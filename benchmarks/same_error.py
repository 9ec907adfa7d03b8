"""Seconds to the same error: `gp_shapley`, `kernel_shap` and shap's KernelExplainer.

    python -m benchmarks.same_error [--games NAME ...] [--instances N] [--samples N]

A line per game and budget of the second method has the least budget (a multiple of d) at which the first method has as
small an error, and the speed-up there if an evaluation takes no time, 0.1 ms and 1 ms; then the geometric means, and
last those of the faster of our methods. Time beside the model is measured (processor time of one thread, values looked
up in a table): for our methods the estimator, because designs come from a pool that instances share, for
KernelExplainer everything. The model's time is evaluations times its cost. Needs shap (pip install 'shapeline[peers]').
"""

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy import Runs, list_seeds, run, run_gp_shapley, wrap_design
from benchmarks.accuracy_games import game, parser
from shapeline import designs
from shapeline.designs.gaussian_pairs import gp_shapley_minimum
from shapeline.designs.sampled import kernel_shap_minimum
from shapeline.statistics.accuracy import Game

GAMES = ("digits", "cancer", "wine", "diabetes", "reviews", "forest")
BUDGETS = (8, 16, 32)  # of the others, multiples of d
TRIED = (1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32)
COSTS = (0.0, 1e-4, 1e-3)  # seconds of an evaluation
OURS, SHAP = {"gp_shapley": run_gp_shapley, "kernel_shap": wrap_design(designs.kernel_shap)}, "KernelExplainer"
MINIMUM = {"gp_shapley": gp_shapley_minimum, "kernel_shap": kernel_shap_minimum}  # evaluations, of d features
BESIDE = (("gp_shapley", SHAP), ("kernel_shap", SHAP), ("gp_shapley", "kernel_shap"))  # ours and the other


def run_shap(played: Game, budget: int, sample: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return scores of KernelExplainer, one instance at a time, without standard errors, and the seconds of all."""
    import shap

    found, spent = [], 0.0
    for place, seed in enumerate(list_seeds(sample, len(played.exact))):

        def value(rows: np.ndarray, place: int = place) -> np.ndarray:
            nonlocal inside
            start = time.process_time()
            masks = np.zeros((len(played.exact), len(rows), played.d), bool)
            masks[place] = rows > 0.5
            answer = played.value(masks)[place]
            inside += time.process_time() - start
            return answer

        np.random.seed(seed)  # it samples by the global state
        inside, start = 0.0, time.process_time()
        explainer = shap.KernelExplainer(value, np.zeros((1, played.d)))
        scores = explainer.shap_values(np.ones((1, played.d)), nsamples=budget - 2, l1_reg=False, silent=True)
        spent += time.process_time() - start - inside
        found.append(scores[0])
    return np.array(found), np.full(played.exact.shape, np.nan), spent


def times_as_fast(mine: dict[float, Runs], other: Runs, times: int, d: int) -> tuple[float, np.ndarray] | None:
    """Return our least budget with an error at most the other's, and its speedup by COSTS; None where there is none."""
    enough = next((one for one, found in mine.items() if found.rmse() <= other.rmse()), None)
    if enough is None:
        return None
    costs = np.array(COSTS)
    return enough, (other.seconds + times * d * costs) / (mine[enough].seconds + int(enough * d) * costs)


def measure_game(played: Game, samples: int) -> dict[tuple[str, str], list[np.ndarray]]:
    """Print a line per budget; return our speedups by COSTS over the others, NaN where no error is as small."""
    d = played.d
    budgets = [times for times in TRIED if times * d < 0.7 * 2**d]
    mine = {
        way: {t: run(played, method, int(t * d), samples) for t in budgets if int(t * d) >= MINIMUM[way](d)}
        for way, method in OURS.items()
    }
    speeds: dict[tuple[str, str], list[np.ndarray]] = {pair: [] for pair in BESIDE}
    for times in (times for times in BUDGETS if times in budgets):
        others = {SHAP: run(played, run_shap, times * d, samples), "kernel_shap": mine["kernel_shap"][times]}
        line = f"{played.name:12s} {times:3d}d"
        for ours, other in BESIDE:
            found = times_as_fast(mine[ours], others[other], times, d)
            speeds[ours, other].append(found[1] if found else np.full(len(COSTS), np.nan))
            line += f"   {ours} / {other} "
            line += f"{found[0]:4g}d {' '.join(f'{one:5.1f}' for one in found[1])}" if found else "none as small"
        print(line, flush=True)
    return speeds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each game and budget, then the means."""
    args = parser(__doc__, GAMES, instances=20, samples=3).parse_args(arguments)
    print("Budget and speed, where an evaluation takes", *COSTS, "s")
    found = [measure_game(game(name, args.instances), args.samples) for name in args.games]
    every = {f"{ours} / {other}": np.concatenate([one[ours, other] for one in found]) for ours, other in BESIDE}
    every[f"the faster of ours / {SHAP}"] = np.fmax(*list(every.values())[:2])
    for pair, fast in every.items():
        spread = zip(*(f(fast, axis=0) for f in (np.nanmin, np.nanmax)), strict=True)
        means = np.exp(np.nanmean(np.log(fast), axis=0))
        ratios = ", ".join(
            f"{mean:.2f} ({least:.2f} to {most:.1f})" for mean, (least, most) in zip(means, spread, strict=True)
        )
        print(f"{pair}: {ratios}")


if __name__ == "__main__":
    main()
