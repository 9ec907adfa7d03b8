"""How often the test would tell a method from itself: two real draws of one method, no difference by construction."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shapeline.statistics.bounds import enough
from shapeline.statistics.paired import SURE
from shapeline.statistics.signed_ranks import alike, signed_rank_test

TRIALS = 2000
TOGETHER = SURE / 5  # a page has up to five such tests, one a question
CELLS = 1 << 20  # numbers shuffled at a time


@dataclass(frozen=True)
class EqualMethods:
    """rate: share of trials whose test rejects; together: p of a permutation test that draws move instances together
    (small where they do); n, repeats; sentence says both. NaN where there are too few."""

    rate: float
    together: float
    n: int
    repeats: int
    sentence: str


def rate_of_equal_methods(
    repeats: np.ndarray, block: np.ndarray | None = None, trials: int = TRIALS, seed: int = 0
) -> EqualMethods:
    """The rate at which the signed-rank test tells two draws of one method apart at .05, from its repeats.

    repeats: (n, R), R at least 2; instances that lack one are left out; block: (n,) instances that share their draws.
    A trial gives every instance (or block) two different repeats of its own. That takes for granted that draws do not
    move instances together, which is tested beside it: were the r-th draws alike in all, the means of the columns would
    differ more than if every instance's repeats are shuffled (a permutation test of their variance; exact).
    """
    repeats = np.asarray(repeats, float)
    kept = np.isfinite(repeats).all(1)
    repeats, block = repeats[kept], None if block is None else np.asarray(block)[kept]
    n, count = repeats.shape
    if block is not None:  # of one block's instances the draws are one
        repeats = np.array([repeats[block == name].mean(0) for name in np.unique(block)]).reshape(-1, count)
    if count < 2 or not enough(len(repeats), block is not None):
        return EqualMethods(np.nan, np.nan, n, count, "too few repeats or instances.")
    own, rejected, above = repeats.mean(0).var(), 0, 0
    for shuffled in _shuffled(repeats, trials, seed):
        rejected += signed_rank_rejections(shuffled[:, :, 0] - shuffled[:, :, 1]).sum()
        above += (shuffled.mean(1).var(1) >= own * (1 - 1e-9)).sum()
    rate, together = float(rejected / trials), float((1 + above) / (1 + trials))
    return EqualMethods(rate, together, n, count, _sentence(rate, together))


def _shuffled(repeats: np.ndarray, trials: int, seed: int) -> Iterator[np.ndarray]:
    """Some trials at a time (., units, repeats), the repeats of each unit in an order of its own."""
    random, step = np.random.default_rng(seed), max(1, CELLS // repeats.size)
    for start in range(0, trials, step):
        yield random.permuted(np.broadcast_to(repeats, (min(step, trials - start), *repeats.shape)), axis=2)


def signed_rank_rejections(differences: np.ndarray, level: float = SURE) -> np.ndarray:
    """Whether Wilcoxon's signed-rank test, two-sided, rejects: differences (trials, n) -> (trials,) bool.

    The normal approximation above 50 units or where differences tie, the exact distribution below, as scipy's.
    """
    whole = (differences == 0).any(1)
    rejected = np.zeros(len(differences), bool)
    if (~whole).any():
        rejected[~whole] = signed_rank_test(differences[~whole])[0] < level
    others = np.flatnonzero(whole)
    for places, rows in alike(differences[others]):
        rejected[others[places]] = signed_rank_test(rows)[0] < level
    return rejected


def _sentence(rate: float, together: float) -> str:
    found = f"{100 * rate:.1f} % of tests between two sampling repetitions of one method are significant (level 5 %)"
    if together < TOGETHER:
        return (
            f"{found}. ⚠ The repetitions are correlated between instances (p = {together:.3f}), so the p-values of the "
            "test are too small."
        )
    return f"{found}. The repetitions are not significantly correlated between instances (p = {together:.3f})."
