"""Second-order interactions, exactly or along orders; pairs (0, 1), (0, 2), ... in row-major upper-triangle order.

A feature's own part is its Shapley value less half of its pairs', so that parts and pairs add up to v(N) - v(empty).
"""

import numpy as np

from shapeline.designs.design import Design, all_coalitions, log_factorial, one_of, sparse_readout, unique_rows, whole
from shapeline.errors import ShapelineError

INDICES = ("k_sii", "stii", "fsii")
MOST_EXACT = 16  # features: 65,536 coalitions, each read out 136 times
MOST_PAIRED = 256  # features: 32,640 pairs an instance
DOUBLED = 4  # how often more orders are drawn where those there share most of their coalitions


def pairs_of(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second feature of each pair, both (d (d-1) / 2,)."""
    return np.triu_indices(d, 1)


def square(pairs: np.ndarray, d: int) -> np.ndarray:
    """Return pairs (..., d (d-1) / 2) as symmetric matrices (..., d, d) with 0 on the diagonal."""
    pairs = np.asarray(pairs, dtype=np.float64)
    first, second = pairs_of(d)
    matrix = np.zeros((*pairs.shape[:-1], d, d))
    matrix[..., first, second] = matrix[..., second, first] = pairs
    return matrix


def shapley_interactions(d: int, index: str = "k_sii") -> Design:
    """Interactions of pairs over all 2^d coalitions, d <= 16; dense readouts of features and of pairs.

    A pair's score is the mean of v(S+ij) - v(S+i) - v(S+j) + v(S) over the S without i and j, weighed by size s.
    index: "k_sii", s! (d-s-2)! / (d-1)! (Grabisch & Roubens 1999; aggregated: Bord & von Luxburg 2023); "stii",
    2 s! (d-s-1)! / d! (Sundararajan, Dhamdhere & Agarwal 2020); "fsii", 6 (s+1)! (d-s-1)! / (d+1)!, the fit of all
    coalitions by features and pairs under the Shapley kernel (Tsai, Yeh & Ravikumar 2023).
    """
    from shapeline.designs.exact import shapley_readout  # with networkx, which no minimum needs

    d = whole("shapley_interactions", "d", d, 1)
    one_of("shapley_interactions", "index", index, INDICES)
    check_few("shapley_interactions", d, MOST_EXACT, "sample_interactions or gp_interactions")
    masks = all_coalitions(d, "shapley_interactions")
    weight = derivative_weights(d, index)
    of_coalition = np.zeros((3, d + 1))  # by how many of the two a coalition holds, and its size
    for held, sign in enumerate((1, -1, 1)):
        of_coalition[held, held : held + d - 1] = sign * weight
    first, second = pairs_of(d)
    held = masks[:, first].astype(np.int8) + masks[:, second]
    pairs = np.ascontiguousarray(of_coalition[held, masks.sum(axis=1)[:, None]].T)
    return Design(masks, shapley_readout(masks) - _halves(d) @ pairs, pairs=pairs)


def sample_interactions_minimum(d: int) -> int:
    """Return the smallest budget of `sample_interactions`: a block of orders with all pairs, or all 2^d."""
    return min(len(_block(d)) * 2 * (d - 1) + 2, 2**d)


def sample_interactions(d: int, budget: int, seed: int = 0, index: str = "k_sii") -> Design:
    """Interactions of pairs and features along random orders, as many as spend the budget; sparse readouts.

    Two neighbours in an order give their pair one v(S+ij) - v(S+i) - v(S+j) + v(S), S what stands before them: 2 d
    evaluations for d - 1 pairs. Every size of S is as likely, so that their mean is k-SII, and their mean weighed by
    what `index` makes of that size is that index. Orders come in blocks in which every pair is neighbours once, of odd
    d twice (Walecki's paths, features renamed at random), so that no pair is missed; the last block may be cut. budget:
    evaluations, at least `sample_interactions_minimum(d)`; K <= budget. A feature's part is the mean of what it adds in
    each order less its pairs with those before it: exact where nothing is of order 3 or more, by k-SII unbiased, and
    all add up to v(N) - v(empty). A budget of all 2^d coalitions, d <= 16, gives `shapley_interactions`.
    """
    d, budget = whole("sample_interactions", "d", d, 1), whole("sample_interactions", "budget", budget, 0)
    one_of("sample_interactions", "index", index, INDICES)
    check_few("sample_interactions", d, MOST_PAIRED, "coarser features")
    if budget < (least := sample_interactions_minimum(d)):
        raise ShapelineError(
            f"sample_interactions: budget is {budget} evaluations and the minimum for d = {d} is {least}; raise it."
        )
    if d <= MOST_EXACT and budget >= 2**d:
        return shapley_interactions(d, index)
    return _follow_orders(_orders(d, budget, np.random.default_rng(seed)), index)


def check_few(where: str, d: int, most: int, remedy: str) -> None:
    """Raise ShapelineError if d features have more pairs than those of `most`."""
    if d > most:
        raise ShapelineError(
            f"{where}: d = {d} has {d * (d - 1) // 2:,} pairs and at most d = {most} is taken; choose {remedy}."
        )


def derivative_weights(d: int, index: str) -> np.ndarray:
    """Return the weight (d - 1,) of the derivative of a pair at S, by its size 0 to d-2."""
    s = np.arange(max(d - 1, 0))
    if index == "k_sii":
        return np.exp(log_factorial(s) + log_factorial(d - s - 2) - log_factorial(d - 1))
    if index == "stii":
        return 2 * np.exp(log_factorial(s) + log_factorial(d - s - 1) - log_factorial(d))
    return 6 * np.exp(log_factorial(s + 1) + log_factorial(d - s - 1) - log_factorial(d + 1))


def build_terms(number: np.ndarray, d: int, index: str) -> np.ndarray:
    """Return the weight of each derivative along orders in its pair `number`; they sum to 1 per pair."""
    weight = np.tile(derivative_weights(d, index) / derivative_weights(d, "k_sii"), len(number) // max(d - 1, 1))
    return weight * (np.bincount(number) / np.bincount(number, weight))[number]


def _halves(d: int) -> np.ndarray:
    """Return (d, pairs): one half for each feature of a pair."""
    features = np.arange(d)[:, None]
    first, second = pairs_of(d)
    return ((features == first) | (features == second)) / 2


def _block(d: int) -> np.ndarray:
    """Return orders (count, d) with every pair adjacent equally often: once in d / 2 orders, for odd d twice in d."""
    steps = np.arange(d)
    zigzag = np.where(steps % 2, (steps + 1) // 2, -(steps // 2))  # 0, 1, -1, 2, -2, ...
    return (np.arange(d if d % 2 else d // 2)[:, None] + zigzag) % d


def _orders(d: int, budget: int, rng: np.random.Generator) -> np.ndarray:
    """Return as many orders (count, d), a whole block first, as have at most `budget` distinct coalitions with ends."""
    block = _block(d)
    wanted = len(block) + -(-budget // (2 * d - 2))
    kept = np.zeros((0, d), int)
    for _ in range(DOUBLED):
        while len(kept) < wanted:
            renamed = rng.permutation(d)[block]
            kept = np.concatenate([kept, renamed if len(kept) == 0 else rng.permutation(renamed)])
        first, _ = unique_rows(_coalitions(kept)[0])
        new = np.bincount(first // (2 * d - 2), minlength=len(kept)).cumsum() + 2
        if new[-1] > budget:
            break
        wanted *= 2
    return kept[: int((new <= budget).sum())]


def _coalitions(orders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return masks (count x 2 (d-1), d) of orders (count, d), and features' places: prefixes, then with the next."""
    d = orders.shape[1]
    place = orders.argsort(axis=1)
    steps = np.arange(d - 1)[:, None]
    before = place[:, None, :] < steps + 1
    beyond = (place[:, None, :] < steps) | (place[:, None, :] == steps + 1)
    return np.concatenate([before, beyond], axis=1).reshape(-1, d), place


def _follow_orders(orders: np.ndarray, index: str = "k_sii") -> Design:
    """Return the design of the pairs' derivatives, and of the features' marginal contributions, along orders."""
    count, d = orders.shape
    inner, place = _coalitions(orders)
    masks = np.concatenate([inner, np.zeros((1, d), bool), np.ones((1, d), bool)])
    first, inverse = unique_rows(masks)
    masks = masks[first]
    rows = inverse[:-2].reshape(count, 2, d - 1)
    prefix = np.column_stack([np.full(count, inverse[-2]), rows[:, 0], np.full(count, inverse[-1])])  # sizes 0 to d
    of_pair = np.zeros((d, d), int)
    of_pair[pairs_of(d)] = np.arange(d * (d - 1) // 2)
    of_pair += of_pair.T
    number = of_pair[orders[:, :-1], orders[:, 1:]].ravel()
    share = build_terms(number, d, index) / np.bincount(number)[number]
    terms = [prefix[:, 2:], prefix[:, 1:-1], rows[:, 1], prefix[:, :-2]]
    weights = np.concatenate([share, -share, -share, share])
    pairs = sparse_readout(
        d * (d - 1) // 2, len(masks), np.tile(number, 4), np.concatenate([one.ravel() for one in terms]), weights
    )
    shapley = sparse_readout(
        *(d, len(masks), np.tile(orders.ravel(), 2)),
        np.concatenate([prefix[:, 1:].ravel(), prefix[:, :-1].ravel()]),
        np.repeat([1 / count, -1 / count], count * d),
    )
    sample = np.stack([number, *(one.ravel() for one in terms)])
    return Design(masks, (shapley - _count_before(place) @ pairs).tocsr(), sample, pairs)


def _count_before(place: np.ndarray):
    """Return (d, pairs): the share of orders in which the pair's other feature precedes this one."""
    d = place.shape[1]
    first, second = pairs_of(d)
    later = (place[:, first] > place[:, second]).mean(axis=0)
    numbers = np.arange(len(first))
    return sparse_readout(
        d, len(first), np.r_[first, second], np.r_[numbers, numbers], np.concatenate([later, 1 - later])
    )
