"""Coalitions that the Gaussian process evaluates, and the odd part of their values."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shapeline.designs.design import check_budget, enumerate_coalitions, find_unique_rows
from shapeline.designs.gaussian_fit import compute_rest_weights, compute_score_covariance
from shapeline.errors import ShapelineError
from shapeline.threads import limit_to_one

BLOCK = 64  # coalitions that are sampled at a time for any budget, so that a smaller budget is a prefix
SPREAD = 256  # maximum of pairs that are selected one by one; the others are sampled
SPREAD_PLAYERS = 64  # maximum of players of such a selection
SPREADS = 4  # selections per number of players, of which the seed determines one
CANDIDATES = 60  # pairs of which the best is selected
FORCED = 3  # every third choice is among pairs of one size, in turn, as games differ in where they are rough
# The prior of the selection: a quarter of the sum of the relevances; the independent variance of pairs of half the
# players, and the logarithm of its ratio at the ends to that, which keeps all sizes in the sample.
SPREAD_REACH, SPREAD_REST, SPREAD_SLOPE = 0.8, 0.2, 3.0


def gp_shapley_minimum(d: int) -> int:
    """Return the smallest budget of `gp_shapley`: both ends and one pair, or all 2^d if that is fewer."""
    return min(4, 2**d)


def draw_pairs(d: int, budget: int, seed: int = 0, spread: bool = True) -> np.ndarray:
    """Return coalitions (K, d) bool: empty, full, then complementary pairs; a smaller budget is a prefix.

    budget: evaluations, at least `gp_shapley_minimum(d)`; K = budget, less one if it would split a pair, at most 2^d.
    Each single feature and its complement come first, in random order: half of the marginal contributions at the ends.
    Then, unless spread is False, pairs that reduce the variance of the Shapley values most (`spread_pairs`), with the
    features in random order, and last pairs of a uniform size of 2 to d - 2, uniform given it, without replacement.
    The complements of the last two single features come after both, so that 2d evaluations include every feature.
    """
    d, budget = check_budget("gp_shapley", d, budget, gp_shapley_minimum, seed)
    ends = np.array([[False] * d, [True] * d])
    if d == 1:
        return ends
    rng = np.random.default_rng(seed)
    singles = np.eye(d, dtype=bool)[rng.permutation(d)]
    half = singles[:1] if d == 2 else singles  # two features are each other's complement
    count = max(budget // 2 - 1 - len(half), 0)
    first = np.concatenate([half, _sample_pairs(d, count, rng, seed % SPREADS if spread else None)]) if count else half
    masks = np.concatenate([ends, np.stack([first, ~first], axis=1).reshape(-1, d)])
    if d > 2:
        masks[2 * d - 1], masks[2 * d] = masks[2 * d].copy(), masks[2 * d - 1].copy()
    cut = budget if d > 2 and budget in (2 * d, 2 * d + 1) else budget - budget % 2
    return masks[:cut]


def _sample_pairs(d: int, count: int, rng: np.random.Generator, number: int | None) -> np.ndarray:
    """Return `count` distinct pairs of sizes 2 to d - 2, by the member with feature 0; a shorter sample is a prefix."""
    sizes = np.arange(2, d - 1)
    chosen, drawn = 0, np.zeros((0, d), bool)
    if number is not None and d <= SPREAD_PLAYERS:
        chosen = min(count, SPREAD, 2 ** (d - 1) // 4)
        drawn = spread_pairs(d, -(-chosen // BLOCK) * BLOCK, number)[:chosen, rng.permutation(d)]
        drawn ^= ~drawn[:, :1]
    by_rejection = max(chosen, min(count, 2 ** (d - 1) // 8))
    while len(drawn) < by_rejection:
        size = rng.choice(sizes, size=BLOCK)
        masks = rng.permuted(np.arange(d) < size[:, None], axis=1)
        drawn = np.concatenate([drawn, masks ^ ~masks[:, :1]])
        drawn = drawn[np.sort(find_unique_rows(drawn)[0])]
    drawn = drawn[:by_rejection]
    if count == by_rejection:
        return drawn
    # The others in the order of exponential / rate: samples without replacement (Efraimidis & Spirakis 2006).
    masks = enumerate_coalitions(d, "gp_shapley")[1::2]
    size = masks.sum(axis=1)
    remaining = (size > 1) & (size < d - 1)
    remaining[drawn @ (1 << np.arange(d)) >> 1] = False
    masks, size = masks[remaining], size[remaining]
    turn = np.argsort(rng.exponential(size=len(masks)) * np.bincount(size)[size], kind="stable")
    return np.concatenate([drawn, masks[turn[: count - by_rejection]]])


@lru_cache(maxsize=64)
def spread_pairs(d: int, count: int, number: int) -> np.ndarray:
    """Return `count` distinct pairs (count, d) bool of sizes 2 to d - 2, at most a quarter of all.

    Each is the random candidate that reduces the posterior variance of the Shapley values most, given the ends and all
    single features; this avoids half of the error of random pairs. All features have the same relevance, so any order
    of them is equivalent. number: seed of the selection; a smaller count is a prefix.
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
    """The posterior of the Shapley values given the added pairs, with the same prior for all features."""

    def __init__(self, d: int, count: int):
        self.relevance = np.full((1, d), min(4 * SPREAD_REACH / d, 0.95))
        most = 1 + d + count
        self.rows, self.seen, self.size = np.zeros((most, d)), np.zeros((most, d)), 0
        self.whitening = np.zeros((most, most))  # the inverse of the Cholesky factor of the covariance of pairs

    def add(self, rows: np.ndarray) -> int:
        """Add the pair of `rows` (c, d) of +-1 that reduces the variance most; return its index."""
        d, size = self.rows.shape[1], self.size
        noise = SPREAD_REST * np.exp(SPREAD_SLOPE * np.abs(rows.sum(axis=1)) / d)
        whitening = self.whitening[:size, :size]
        shared = whitening @ self._correlate(self.rows[:size], rows)
        variance = np.maximum(1 + noise - (shared**2).sum(axis=0), 1e-12)
        of_rest = noise[:, None] * compute_rest_weights(rows[None])[0]
        cross = compute_score_covariance(rows[None], self.relevance)[0] + of_rest
        cross = (cross - shared.T @ self.seen[:size]) / np.sqrt(variance)[:, None]
        gain = (cross**2).sum(axis=1)
        best = int((gain >= gain.max() * (1 - 1e-9)).argmax())  # rounding, which differs by machine, breaks no tie
        self.rows[size], self.seen[size] = rows[best], cross[best]
        self.whitening[size, :size] = -(shared[:, best] @ whitening) / np.sqrt(variance[best])
        self.whitening[size, size] = 1 / np.sqrt(variance[best])
        self.size += 1
        return best

    def _correlate(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the prior correlations of the odd parts of pairs (a, d) and (b, d)."""
        weight = np.arctanh(self.relevance)
        return np.sinh((rows * weight) @ others.T) / np.sinh(weight.sum())


@dataclass(frozen=True, eq=False)
class Pairs:
    """Complementary pairs, N first: rows (n, m, d) of +-1, first, second (n, m) row numbers; the last `lone` pairs lack
    the second."""

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
    """Return the pairs of samples (n, K, d) bool, which must have both ends and distinct coalitions."""
    n, count, d = masks.shape
    weight = np.random.default_rng(0).integers(1, 2**62, size=d, dtype=np.uint64)
    keys = masks @ weight  # modulo 2^64
    # Sorted by min(key, key of the complement), the members of a pair are neighbours.
    complement_keys = weight.sum(dtype=np.uint64) - keys
    low = np.minimum(keys, complement_keys)
    order = np.argsort(low, axis=1, kind="stable")
    ranked = np.take_along_axis(low, order, axis=1)
    paired = np.zeros((n, count), bool)
    paired[:, :-1] = ranked[:, 1:] == ranked[:, :-1]
    ranked_key = np.take_along_axis(keys, order, axis=1)
    doubled = paired[:, 1:] & paired[:, :-1]
    doubled |= (paired[:, :-1]) & (ranked_key[:, 1:] == ranked_key[:, :-1])
    partner = np.full((n, count), -1)
    instance, position = np.nonzero(paired)
    partner[instance, order[instance, position]] = order[instance, position + 1]
    second = np.zeros((n, count), bool)
    second[instance, order[instance, position + 1]] = True
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
    mate = np.where(mate < 0, first, mate)
    swap = ~np.take_along_axis(full, first[:, :1], axis=1)  # the ends, in the order of the sample so far
    first[:, :1], mate[:, :1] = np.where(swap, mate[:, :1], first[:, :1]), np.where(swap, first[:, :1], mate[:, :1])
    rows = np.where(np.take_along_axis(masks, first[..., None], axis=1), 1.0, -1.0)
    return Pairs(rows, first, mate, int(count - 2 * pairs[0]))
