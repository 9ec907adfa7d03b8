"""Whether the intervals of pairs hold, of interactions by a Gaussian process and along orders, against all coalitions.

    python -m benchmarks.pairs [--games NAME ...] [--instances N] [--draws N]

Of each game and budget: coverage of nominal 95 % intervals and predicted over actual RMSE of the pairs, first of
`gp_interactions`, then of `sample_interactions` where the budget is enough for it.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy_games import MAKERS, SURE, game
from shapeline import designs
from shapeline.designs.gaussian_interactions import read_stack
from shapeline.designs.interactions import sample_interactions_minimum
from shapeline.designs.uncertainty import read_sample_interactions

GAMES = ("cancer", "wine", "diabetes", "reviews", "digits", "cancer, sure", "digits, sure")
BUDGETS = (4, 8, 16, 32)


def by_process(tables: np.ndarray, d: int, budget: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (n, d (d-1) / 2) and their uncertainty, a draw for each instance."""
    masks = np.array([designs.gp_interactions(d, budget, 1000 * draw + i).masks for i in range(len(tables))])
    return read_stack(masks, np.take_along_axis(tables, masks @ (1 << np.arange(d)), axis=1))[2:]


def along_orders(tables: np.ndarray, d: int, budget: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of `sample_interactions`; NaN where it cannot tell."""
    found, spread = [], []
    for place, own in enumerate(tables):
        design = designs.sample_interactions(d, budget, 1000 * draw + place)
        values = own[None, design.masks @ (1 << np.arange(d))]
        found.append(design.attribute_pairs(values)[0])
        told = read_sample_interactions(design, values)[2]
        spread.append(np.full(len(found[-1]), np.nan) if told is None else told[0])
    return np.array(found), np.array(spread)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=list(MAKERS | SURE), default=list(GAMES))
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--draws", type=int, default=2)
    asked = parser.parse_args(arguments)
    for name in asked.games:
        played = game(name, asked.instances)
        d, tables, exact = played.d, played.stored, designs.shapley_interactions(played.d)
        truth = exact.attribute_pairs(tables[:, exact.masks @ (1 << np.arange(d))])
        for times in BUDGETS:
            if times * d > 0.7 * 2**d:
                continue
            told = f"{name:14s} {times:3d}d"
            for way, least in ((by_process, 0), (along_orders, sample_interactions_minimum(d))):
                if times * d < least:
                    continue
                runs = [way(tables, d, times * d, draw) for draw in range(asked.draws)]
                wrong, spread = np.array([pairs - truth for pairs, _ in runs]), np.array([one for _, one in runs])
                inside = np.abs(wrong) <= 1.96 * spread + 1e-9
                told += f"   {inside.mean():.3f} {np.sqrt((spread**2).mean() / (wrong**2).mean()):.2f}"
            print(told, flush=True)


if __name__ == "__main__":
    main()
