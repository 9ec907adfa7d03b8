"""Seconds to the same error: gp_shapley beside shap's KernelExplainer and our kernel_shap, models from free to slow.

    python -m benchmarks.same_error [--games NAME ...] [--instances N] [--draws N]

For each game and budget of the other two: the least budget (a multiple of d) by which gp_shapley errs as little, and
how many times as fast it is there, where an evaluation takes no time, 0.1 and 1 ms; then the geometric means. What is
beside the model is measured (processor time of one thread, values looked up in a table): of ours the read-out, for
draws come from a pool that instances share, of KernelExplainer all that it does. The model's part is evaluations times
its cost. Needs shap (pip install -c constraints.txt -e '.[peers]').
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy import Runs, by_design, gaussian, run, seeds
from benchmarks.accuracy_games import MAKERS, SURE, game
from shapeline import designs
from shapeline.statistics.known_games import Game

GAMES = ("digits", "cancer", "wine", "diabetes", "reviews", "forest")
BUDGETS = (8, 16, 32)  # of the others, multiples of d
TRIED = (1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32)
COSTS = (0.0, 1e-4, 1e-3)  # seconds of an evaluation


def by_shap(played: Game, budget: int, draw: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores of KernelExplainer, one instance at a time, as it is called; no uncertainties; seconds of all."""
    import shap

    found, spent = [], 0.0
    for place, seed in enumerate(seeds(draw, len(played.exact))):

        def value(rows: np.ndarray, place: int = place) -> np.ndarray:
            nonlocal inside
            start = time.process_time()
            masks = np.zeros((len(played.exact), len(rows), played.d), bool)
            masks[place] = rows > 0.5
            answer = played.value(masks)[place]
            inside += time.process_time() - start
            return answer

        np.random.seed(seed)  # it draws by the global state
        inside, start = 0.0, time.process_time()
        explainer = shap.KernelExplainer(value, np.zeros((1, played.d)))
        scores = explainer.shap_values(np.ones((1, played.d)), nsamples=budget - 2, l1_reg=False, silent=True)
        spent += time.process_time() - start - inside
        found.append(scores[0])
    return np.array(found), np.full(played.exact.shape, np.nan), spent


def times_as_fast(mine: dict[float, Runs], other: Runs, times: int, d: int) -> tuple[float, np.ndarray] | None:
    """The least budget of gp_shapley that errs as little as the other does, and its speed there by COSTS; None where
    none does."""
    enough = next((one for one, found in mine.items() if found.rmse() <= other.rmse()), None)
    if enough is None:
        return None
    costs = np.array(COSTS)
    return enough, (other.seconds + times * d * costs) / (mine[enough].seconds + int(enough * d) * costs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each game and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=list(MAKERS | SURE), default=list(GAMES))
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--draws", type=int, default=3)
    asked = parser.parse_args(arguments)
    others, every = {"KernelExplainer": by_shap, "kernel_shap": by_design(designs.kernel_shap)}, {}
    print("gp_shapley's budget and speed beside " + ", ".join(others) + " where an evaluation takes", *COSTS, "s")
    for name in asked.games:
        played = game(name, asked.instances)
        budgets = [times for times in TRIED if times * played.d < 0.7 * 2**played.d]
        mine = {times: run(played, gaussian, int(times * played.d), asked.draws) for times in budgets}
        for times in (times for times in BUDGETS if times in mine):
            told = f"{name:14s} {times:3d}d"
            for other, method in others.items():
                found = run(played, method, times * played.d, asked.draws)
                beside = times_as_fast(mine, found, times, played.d)
                told += f"   rmse {found.rmse():.4f}, "
                told += f"{beside[0]:4g}d {' '.join(f'{one:5.1f}' for one in beside[1])}" if beside else "none as small"
                if beside:
                    every.setdefault(other, []).append(beside[1])
            print(told, flush=True)
    for other, fast in every.items():
        print(f"{other}: {' '.join(f'{one:.1f}' for one in np.exp(np.log(fast).mean(axis=0)))}")


if __name__ == "__main__":
    main()
