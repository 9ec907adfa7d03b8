"""Coverage of the intervals of pairs of features by `gp_interactions` and `sample_interactions`.

    python -m benchmarks.pairs [--games NAME ...] [--instances N] [--samples N] [--index k_sii|fsii]

A line per game and budget has the coverage of 95 % intervals and the predicted over the actual RMSE of the pairs and
main effects of `gp_interactions` (k-SII), then of the pairs of `sample_interactions` where the budget suffices.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy_games import game, parser
from shapeline import designs
from shapeline.designs.gaussian_interactions import INDICES, read_stack
from shapeline.designs.interactions import sample_interactions_minimum
from shapeline.designs.uncertainty import read_sample_interactions

GAMES = ("cancer", "wine", "diabetes", "reviews", "digits", "cancer, sure", "digits, sure")
BUDGETS = (4, 8, 16, 32)


def run_gp(tables: np.ndarray, d: int, budget: int, sample: int, index: str) -> list[np.ndarray | None]:
    """Return main effects (n, d) and pairs (n, d (d-1) / 2) with their standard errors, by one sample per instance."""
    masks = np.array([designs.gp_interactions(d, budget, 1000 * sample + i, index).masks for i in range(len(tables))])
    return list(read_stack(masks, np.take_along_axis(tables, masks @ (1 << np.arange(d)), axis=1), index))


def run_walks(tables: np.ndarray, d: int, budget: int, sample: int, index: str) -> list[np.ndarray]:
    """Return pairs of `sample_interactions` and their standard errors, NaN where unknown."""
    found, standard_errors = [], []
    for place, own in enumerate(tables):
        design = designs.sample_interactions(d, budget, 1000 * sample + place, index)
        values = own[None, design.masks @ (1 << np.arange(d))]
        found.append(design.attribute_pairs(values)[0])
        uncertainty = read_sample_interactions(design, values, index)[2]
        standard_errors.append(np.full(len(found[-1]), np.nan) if uncertainty is None else uncertainty[0])
    return [np.array(found), np.array(standard_errors)]


def coverage(truth: np.ndarray, runs: Sequence[Sequence[np.ndarray]]) -> str:
    """Return coverage and predicted over actual RMSE of runs, each of estimates and standard errors."""
    wrong, standard_errors = np.array([found - truth for found, _ in runs]), np.array([run for _, run in runs])
    inside = np.abs(wrong) <= 1.96 * standard_errors + 1e-9
    return f"{inside.mean():.3f} {np.sqrt((standard_errors**2).mean() / (wrong**2).mean()):.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = parser(__doc__, GAMES, instances=10, samples=2)
    options.add_argument("--index", choices=INDICES, default="k_sii")
    args = options.parse_args(arguments)
    for name in args.games:
        played = game(name, args.instances)
        d, tables, exact = played.d, played.stored, designs.shapley_interactions(played.d, args.index)
        in_order = tables[:, exact.masks @ (1 << np.arange(d))]
        own_pairs, pairs = exact.attribute(in_order), exact.attribute_pairs(in_order)
        for times in BUDGETS:
            if times * d > 0.7 * 2**d:
                continue
            runs = [run_gp(tables, d, times * d, sample, args.index) for sample in range(args.samples)]
            columns = [coverage(pairs, [run[2:] for run in runs])]
            if args.index == "k_sii":
                columns.append(coverage(own_pairs, [run[:2] for run in runs]))
            if times * d >= sample_interactions_minimum(d):
                columns.append(
                    coverage(
                        pairs, [run_walks(tables, d, times * d, sample, args.index) for sample in range(args.samples)]
                    )
                )
            print(f"{name:14s} {times:3d}d   {'   '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
