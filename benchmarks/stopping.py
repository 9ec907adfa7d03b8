"""Coverage of the intervals of `gp_shapley`, or of another method, under adaptive stopping.

    python -m benchmarks.stopping [--method NAME] [--games NAME ...] [--instances N] [--samples N]

Each game is stopped at three targets: the median errors predicted at 6, 10 and 19 d. A line per game and target has the
coverage of 95 % intervals, the predicted over the actual RMSE, and the evaluations (multiples of d), first where a
single round's prediction decides, then by the rule of the package. Coverage and RMSE are of explanations that met the
target.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy_games import game, parser
from shapeline.datasets.sources import resolve
from shapeline.designs.gaussian_process import draw_pairs, read_stack
from shapeline.designs.stopping import PredictedErrors, StoppingCriterion, predict_error
from shapeline.methods.registry import METHODS
from shapeline.statistics.accuracy import Game

GAMES = ("digits, sure", "cancer, sure", "digits", "cancer", "reviews", "diabetes", "wine", "forest")
AT_MOST = 32
TARGETS = (6, 10, 19)  # multiples of d


def rounds_of(played: Game, sample: int, name: str) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return evaluations, scores and standard errors (rounds, n, d) of each round of all instances, none stopped."""
    method, d, n = METHODS[name], played.d, len(played.exact)
    rounds = [spent // 2 * 2 for spent in StoppingCriterion(AT_MOST).rounds(d, method.first_round)]
    rounds = [spent for spent in rounds if spent < 0.8 * 2**d]
    if method.batch_estimator:
        masks = np.array([draw_pairs(d, rounds[-1], 10_000 * sample + i) for i in range(n)])
        values = played.value(masks)
        found = [read_stack(masks[:, :spent], values[:, :spent]) for spent in rounds]
    else:
        design, estimate = (resolve(place).function for place in (method.nested_design, method.estimator))
        found = []
        for spent in rounds:
            drawn = [design(d, spent, 10_000 * sample + i) for i in range(n)]
            masks = np.zeros((n, max(len(one.masks) for one in drawn), d), bool)
            for own, one in zip(masks, drawn, strict=True):
                own[: len(one.masks)] = one.masks
            values = played.value(masks)
            each = [estimate(one, value[None, : len(one.masks)]) for one, value in zip(drawn, values, strict=True)]
            found.append([np.concatenate(part) for part in zip(*each, strict=True)])
    scores, standard_error = zip(*found, strict=True)
    return rounds, np.array(scores), np.array(standard_error)


def with_earlier(rounds: list[int], scores: np.ndarray, standard_error: np.ndarray, name: str) -> np.ndarray:
    """Return the standard errors (rounds, n, d) of the stopping rule."""
    if METHODS[name].convergence_rate is None:
        return standard_error
    _, n, d = scores.shape
    earlier, rows = PredictedErrors(n, d, METHODS[name].convergence_rate), np.arange(n)
    every = zip(rounds, scores, standard_error, strict=True)
    return np.array([earlier.widen(rows, np.full(n, spent), *one) for spent, *one in every])


def stopped(played: Game, traces: list, own: bool, target: float, name: str) -> str:
    """Return coverage, predicted over actual RMSE and evaluations of all samples, stopped where they met the target."""
    wrong, said, spent = [], [], []
    for rounds, scores, alone, together in traces:
        standard_error = alone if own else together
        met = np.array([predict_error(one) <= target for one in standard_error])
        early = slice(0, 0 if own else METHODS[name].min_rounds - 1)
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
    options = parser(__doc__, GAMES, instances=20, samples=3)
    able = [name for name, method in METHODS.items() if method.nested_design]
    options.add_argument("--method", choices=able, default="gp_shapley")
    args = options.parse_args(arguments)
    print(f"{'game':14s} {'target':>8s}  a round by itself         with the rounds before")
    for name in args.games:
        played = game(name, args.instances)
        traces = []
        for sample in range(args.samples):
            trace = rounds_of(played, sample, args.method)
            traces.append((*trace, with_earlier(*trace, args.method)))
        for times in TARGETS:
            place = int(np.searchsorted(traces[0][0], 0.95 * times * played.d))
            if place >= len(traces[0][0]):
                continue
            target = float(np.median([predict_error(alone[place]) for _, _, alone, _ in traces]))
            ways = "   ".join(stopped(played, traces, own, target, args.method) for own in (True, False))
            print(f"{name:14s} {target:8.4f} {ways}", flush=True)


if __name__ == "__main__":
    main()
