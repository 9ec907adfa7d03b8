"""Coverage of the intervals of `gp_shapley` under adaptive stopping.

    python -m benchmarks.stopping [--games NAME ...] [--instances N] [--samples N]

Each game is stopped at three targets: the median errors predicted at 6, 10 and 19 d. A line per game and target has the
coverage of 95 % intervals, the predicted over the actual RMSE, and the evaluations (multiples of d), first where a
single round's prediction decides, then by the rule of the package. Coverage and RMSE are of explanations that met the
target.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy_games import game, parser
from shapeline.designs.gaussian_process import draw_pairs, read_out
from shapeline.designs.stopping import PredictedErrors, StoppingCriterion, predict_error
from shapeline.methods.registry import METHODS
from shapeline.statistics.accuracy import Game

GAMES = ("digits, sure", "cancer, sure", "digits", "cancer", "reviews", "diabetes", "wine", "forest")
AT_MOST = 32
TARGETS = (6, 10, 19)  # multiples of d


def rounds_of(played: Game, draw: int) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return evaluations, scores and standard errors (rounds, n, d) of each round of all instances, none stopped."""
    rounds = [spent // 2 * 2 for spent in StoppingCriterion(AT_MOST).rounds(played.d)]
    rounds = [spent for spent in rounds if spent < 0.8 * 2**played.d]
    masks = np.array([draw_pairs(played.d, rounds[-1], 10_000 * draw + i) for i in range(len(played.exact))])
    values = played.value(masks)
    found = [read_out(masks[:, :spent], values[:, :spent]) for spent in rounds]
    return rounds, np.array([one.scores for one in found]), np.array([one.standard_error for one in found])


def with_earlier(rounds: list[int], scores: np.ndarray, standard_error: np.ndarray) -> np.ndarray:
    """Return the standard errors (rounds, n, d) of the stopping rule."""
    _, n, d = scores.shape
    earlier, rows = PredictedErrors(n, d, METHODS["gp_shapley"].convergence_rate), np.arange(n)
    every = zip(rounds, scores, standard_error, strict=True)
    return np.array([earlier.widen(rows, np.full(n, spent), *one) for spent, *one in every])


def stopped(played: Game, traces: list, own: bool, target: float) -> str:
    """Return coverage, predicted over actual RMSE and evaluations of all samples, stopped where they met the target."""
    wrong, said, spent = [], [], []
    for rounds, scores, alone, together in traces:
        standard_error = alone if own else together
        met = np.array([predict_error(one) <= target for one in standard_error])
        early = slice(0, 0 if own else METHODS["gp_shapley"].min_rounds - 1)
        met[early] &= ~standard_error[early].any(axis=2)
        first = np.where(met.any(axis=0), met.argmax(axis=0), -1)
        spent += [rounds[place] for place in first]
        done = np.flatnonzero(first >= 0)
        wrong.append(scores[first[done], done] - played.exact[done])
        said.append(standard_error[first[done], done])
    wrong, said = np.concatenate(wrong), np.concatenate(said)
    coverage = (np.abs(wrong) <= 1.96 * said + 1e-6 * np.abs(played.exact).max()).mean()
    ratio = np.sqrt((said**2).mean() / (wrong**2).mean())
    return f"{coverage:6.3f} {ratio:5.2f} {np.mean(spent) / played.d:6.1f}d"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each game and target."""
    args = parser(__doc__, GAMES, instances=20, draws=3).parse_args(arguments)
    print(f"{'game':14s} {'target':>8s}  a round by itself         with the rounds before")
    for name in args.games:
        played = game(name, args.instances)
        traces = []
        for draw in range(args.draws):
            trace = rounds_of(played, draw)
            traces.append((*trace, with_earlier(*trace)))
        for times in TARGETS:
            place = int(np.searchsorted(traces[0][0], 0.95 * times * played.d))
            if place >= len(traces[0][0]):
                continue
            target = float(np.median([predict_error(alone[place]) for _, _, alone, _ in traces]))
            ways = "   ".join(stopped(played, traces, own, target) for own in (True, False))
            print(f"{name:14s} {target:8.4f} {ways}", flush=True)


if __name__ == "__main__":
    main()
