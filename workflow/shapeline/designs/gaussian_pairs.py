"""Which coalitions the Gaussian process evaluates, and the odd part of their values."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shapeline.designs.design import check_integer, enumerate_coalitions, find_unique_rows
from shapeline.designs.gaussian_fit import rest_weights, score_covariance
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one

BLOCK = 64  # coalitions that are sampled at a time for any budget, so that a smaller budget is a prefix
SPREAD = 256  # maximum of pairs that are selected one by one; the others are sampled
SPREAD_PLAYERS = 64  # maximum of players of such a selection
SPREADS = 4  # selections per number of players, of which the seed determines one
CANDIDATES = 60  # pairs of which the best is selected
FORCED = 3  # of so many choices one is among pairs of one size, in turn: games differ in where they are rough
# The prior of the choice: a quarter of the sum of the relevances; the variance that each pair has of its own, at half
# of the players, and the logarithm of its ratio at the ends to that, which keeps all sizes in the sample.
SPREAD_REACH, SPREAD_REST, SPREAD_SLOPE = 0.8, 0.2, 3.0


def gp_shapley_minimum(d: int) -> int:
    """Return the smallest budget of `gp_shapley`: both ends and one pair, or all 2^d if that is fewer."""
    return min(4, 2**d)


def draw_pairs(d: int, budget: int, seed: int = 0, spread: bool = True) -> np.ndarray:
    """Coalitions (K, d) bool in one nested order: empty, full, then complementary pairs; a prefix for a smaller budget.

    budget: evaluations, at least `gp_shapley_minimum(d)`; K = budget, less one where a pair would be cut, at most 2^d.
    First each feature alone with its complement, in random order: half of the marginal contributions at either end.
    Then, unless spread is False, pairs that tell the most of the Shapley values beside those before (`spread_pairs`),
    with the features in random order, and at last a uniform size of 2 to d - 2 and a uniform coalition of that size,
    without replacement.
    The complements of the last two of the single features come after both, so that 2d evaluations see every feature.
    """
    d, budget = check_integer("gp_shapley", "d", d, 1), check_integer("gp_shapley", "budget", budget, 0)
    if budget < gp_shapley_minimum(d):
        raise ShapelineError(
            f"gp_shapley: budget is {budget} evaluations and the minimum for d = {d} is {gp_shapley_minimum(d)}; "
            "raise it."
        )
    ends = np.array([[False] * d, [True] * d])
    if d == 1:
        return ends
    rng = np.random.default_rng(seed)
    budget = min(budget, 2**d)
    alone = np.eye(d, dtype=bool)[rng.permutation(d)]
    half = alone[:1] if d == 2 else alone  # of two features one is the other's complement
    wanted = max(budget // 2 - 1 - len(half), 0)
    first = (
        np.concatenate([half, _sample_pairs(d, wanted, rng, seed % SPREADS if spread else None)]) if wanted else half
    )
    masks = np.concatenate([ends, np.stack([first, ~first], axis=1).reshape(-1, d)])
    if d > 2:
        masks[2 * d - 1], masks[2 * d] = masks[2 * d].copy(), masks[2 * d - 1].copy()
    cut = budget if d > 2 and budget in (2 * d, 2 * d + 1) else budget - budget % 2
    return masks[:cut]


def _sample_pairs(d: int, wanted: int, rng: np.random.Generator, number: int | None) -> np.ndarray:
    """Sample `wanted` distinct pairs of sizes 2 to d - 2, the member with feature 0; a shorter sample is a prefix."""
    sizes = np.arange(2, d - 1)
    chosen, drawn = 0, np.zeros((0, d), bool)
    if number is not None and d <= SPREAD_PLAYERS:
        chosen = min(wanted, SPREAD, 2 ** (d - 1) // 4)
        drawn = spread_pairs(d, -(-chosen // BLOCK) * BLOCK, number)[:chosen, rng.permutation(d)]
        drawn ^= ~drawn[:, :1]
    by_rejection = max(chosen, min(wanted, 2 ** (d - 1) // 8))
    while len(drawn) < by_rejection:
        size = rng.choice(sizes, size=BLOCK)
        more = rng.permuted(np.arange(d) < size[:, None], axis=1)
        drawn = np.concatenate([drawn, more ^ ~more[:, :1]])
        drawn = drawn[np.sort(find_unique_rows(drawn)[0])]
    drawn = drawn[:by_rejection]
    if wanted == by_rejection:
        return drawn
    # The rest in the order of exponential / rate: samples without replacement (Efraimidis & Spirakis 2006).
    masks = enumerate_coalitions(d, "gp_shapley")[1::2]
    size = masks.sum(axis=1)
    left = (size > 1) & (size < d - 1)
    left[drawn @ (1 << np.arange(d)) >> 1] = False
    masks, size = masks[left], size[left]
    turn = np.argsort(rng.exponential(size=len(masks)) * np.bincount(size)[size], kind="stable")
    return np.concatenate([drawn, masks[turn[: wanted - by_rejection]]])


@lru_cache(maxsize=64)
def spread_pairs(d: int, count: int, number: int) -> np.ndarray:
    """Return `count` distinct pairs (count, d) bool of sizes 2 to d - 2, or a quarter of all where these are fewer.

    Each is the one of some random candidates that lowers the posterior variance of the Shapley values most, after the
    ends and all features alone: half of the error of a random sample of pairs is chance that this avoids. All features
    have one relevance, so that any order of them is as good. number: of the choice; a smaller count is a prefix.
    """
    count = min(count, 2 ** (d - 1) // 4)
    rng = np.random.default_rng([d, number])
    known = _Posterior(d, count)
    first = np.concatenate([np.ones((1, d)), 2 * np.eye(d) - 1])
    for row in first:
        known.add(row[None])
    chosen, turn = np.zeros((0, d), bool), 0
    with limit_to_one(len(first) ** 2 * d):
        while len(chosen) < count:
            size = rng.integers(2, d - 1, size=CANDIDATES)
            turn += 1
            if turn % FORCED == 0:
                size[:] = 2 + turn // FORCED % (d // 2 - 1)
            pairs = rng.permuted(np.arange(d) < size[:, None], axis=1)
            pairs ^= ~pairs[:, :1]
            pairs = pairs[~(pairs[:, None] == chosen).all(axis=2).any(axis=1)]
            if len(pairs):
                best = known.add(np.where(pairs, 1.0, -1.0))
                chosen = np.concatenate([chosen, pairs[best : best + 1]])
    return chosen


class _Posterior:
    """What the pairs that were added tell of the Shapley values, by a prior that all features share."""

    def __init__(self, d: int, count: int):
        self.relevance = np.full((1, d), min(4 * SPREAD_REACH / d, 0.95))
        most = 1 + d + count
        self.rows, self.seen, self.size = np.zeros((most, d)), np.zeros((most, d)), 0
        self.whitening = np.zeros((most, most))  # the inverse of the Cholesky factor of the covariance of pairs

    def add(self, rows: np.ndarray) -> int:
        """Add that one of the pairs `rows` (c, d) of +-1 which tells most; return its place."""
        d, size = self.rows.shape[1], self.size
        own = SPREAD_REST * np.exp(SPREAD_SLOPE * np.abs(rows.sum(axis=1)) / d)
        whitening = self.whitening[:size, :size]
        shared = whitening @ self._correlate(self.rows[:size], rows)
        left = np.maximum(1 + own - (shared**2).sum(axis=0), 1e-12)
        cross = score_covariance(rows[None], self.relevance)[0] + own[:, None] * rest_weights(rows[None])[0]
        cross = (cross - shared.T @ self.seen[:size]) / np.sqrt(left)[:, None]
        gain = (cross**2).sum(axis=1)
        best = int((gain >= gain.max() * (1 - 1e-9)).argmax())  # rounding, which differs by machine, settles no tie
        self.rows[size], self.seen[size] = rows[best], cross[best]
        self.whitening[size, :size] = -(shared[:, best] @ whitening) / np.sqrt(left[best])
        self.whitening[size, size] = 1 / np.sqrt(left[best])
        self.size += 1
        return best

    def _correlate(self, some: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the prior correlations of the odd parts of pairs (a, d) and (b, d)."""
        weight = np.arctanh(self.relevance)
        return np.sinh((some * weight) @ others.T) / np.sinh(weight.sum())


@dataclass(frozen=True, eq=False)
class Pairs:
    """Complementary pairs, N first: rows (n, m, d) of +-1, first, second (n, m) row numbers; the last `lone` lack the
    second."""

    rows: np.ndarray
    first: np.ndarray
    second: np.ndarray
    lone: int

    def odd(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (v(S) - v(complement))/2 (n, m), and the variance (n, m) of estimates for incomplete pairs."""
        first_values = np.take_along_axis(values, self.first, axis=1)
        second_values = np.take_along_axis(values, self.second, axis=1)
        odd, noise = (first_values - second_values) / 2, np.zeros(first_values.shape)
        if self.lone:
            even, noise[:, -self.lone :] = self._even_of_lone(first_values, second_values)
            odd[:, -self.lone :] = first_values[:, -self.lone :] - even
        return odd, noise

    def _even_of_lone(self, first_values: np.ndarray, second_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the even part of lone coalitions and its variance, (n, lone), in proportion to v(S) - v(nearer
        end)."""
        size, count = self.rows.sum(axis=2), first_values.shape[1] - self.lone
        small = np.where(size <= 0, first_values, second_values)  # the value of a pair's smaller member
        grown = small[:, 1:count] - second_values[:, :1]
        change = (first_values + second_values)[:, 1:count] / 2 - (first_values + second_values)[:, :1] / 2
        lone = np.where(size <= 0, first_values - second_values[:, :1], first_values - first_values[:, :1])[:, count:]
        alike = np.abs(size[:, None, 1:count]) == np.abs(size[:, count:, None])
        square = (alike * grown[:, None] ** 2).sum(axis=2)
        safe = np.where(square > 0, square, 1.0)
        slope = (alike * (grown * change)[:, None]).sum(axis=2) / safe
        left = (alike * (change[:, None] - slope[..., None] * grown[:, None]) ** 2).sum(axis=2) / safe
        number = alike.sum(axis=2)
        left = np.where((number > 1) & (square > 0), left * (number + 1) / np.maximum(number - 1, 1), 1.0)
        return (first_values + second_values)[:, :1] / 2 + slope * lone, lone**2 * left


def find_pairs(masks: np.ndarray) -> Pairs:
    """Return the pairs of samples (n, K, d) bool, which must have both ends and no coalition twice."""
    n, count, d = masks.shape
    weight = np.random.default_rng(0).integers(1, 2**62, size=d, dtype=np.uint64)
    key = masks @ weight  # modulo 2^64
    # In the order of min(key, key of the complement) the two of a pair are neighbours.
    other = weight.sum(dtype=np.uint64) - key
    low = np.minimum(key, other)
    order = np.argsort(low, axis=1, kind="stable")
    ranked = np.take_along_axis(low, order, axis=1)
    paired = np.zeros((n, count), bool)
    paired[:, :-1] = ranked[:, 1:] == ranked[:, :-1]
    ranked_key = np.take_along_axis(key, order, axis=1)
    doubled = paired[:, 1:] & paired[:, :-1]
    doubled |= (paired[:, :-1]) & (ranked_key[:, 1:] == ranked_key[:, :-1])
    partner = np.full((n, count), -1)
    at, place = np.nonzero(paired)
    partner[at, order[at, place]] = order[at, place + 1]
    second = np.zeros((n, count), bool)
    second[at, order[at, place + 1]] = True
    full, empty = masks.all(axis=2), ~masks.any(axis=2)
    pairs = (partner >= 0).sum(axis=1)
    if doubled.any() or (full.sum(axis=1) != 1).any() or (empty.sum(axis=1) != 1).any() or (pairs != pairs[0]).any():
        raise ShapelineError(
            "gp_shapley: each sample must hold the empty and the full coalition, no coalition twice, and equally many "
            "complementary pairs as the others; use the coalitions of draw_pairs."
        )
    rank = np.where(full | empty, 0, np.where(partner >= 0, 1, 2))
    rank[second] = 3
    first = np.argsort(rank, axis=1, kind="stable")[:, : count - pairs[0]]
    mate = np.take_along_axis(partner, first, axis=1)
    first, mate = _order_ends(first, np.where(mate < 0, first, mate), full)
    rows = np.where(np.take_along_axis(masks, first[..., None], axis=1), 1.0, -1.0)
    return Pairs(rows, first, mate, int(count - 2 * pairs[0]))


def _order_ends(first: np.ndarray, mate: np.ndarray, full: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pair of the ends as (full, empty); `rank` put whichever came first at the front."""
    swap = ~np.take_along_axis(full, first[:, :1], axis=1)
    first, mate = first.copy(), mate.copy()
    first[:, :1], mate[:, :1] = np.where(swap, mate[:, :1], first[:, :1]), np.where(swap, first[:, :1], mate[:, :1])
    return first, mate
