"""Second-order interactions, exactly or along orders; pairs (0, 1), (0, 2), ... in row-major upper-triangle order.

A feature's main effect is its Shapley value minus half of its pairs' scores, so that main effects and pairs sum to
v(N) - v(empty).
"""

import numpy as np

from shapeline.designs import design
from shapeline.designs.design import Design, check_budget, check_integer, log_factorial
from shapeline.errors import ShapelineError

INDICES = ("k_sii", "stii", "fsii")
MAX_EXACT_FEATURES = 16  # 65,536 coalitions with 136 weights each
MAX_PAIRED_FEATURES = 256  # 32,640 pairs per instance
MAX_ROUNDS = 4  # samplings of orders, each of twice as many, where orders share most of their coalitions


def enumerate_pairs(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second feature of each pair, both (d (d-1) / 2,)."""
    return np.triu_indices(d, 1)


def build_symmetric(pairs: np.ndarray, d: int) -> np.ndarray:
    """Return pairs (..., d (d-1) / 2) as symmetric matrices (..., d, d) with 0 on the diagonal."""
    pairs = np.asarray(pairs, dtype=np.float64)
    first, second = enumerate_pairs(d)
    matrix = np.zeros((*pairs.shape[:-1], d, d))
    matrix[..., first, second] = matrix[..., second, first] = pairs
    return matrix


def shapley_interactions(d: int, index: str = "k_sii") -> Design:
    """Return the design of pairwise interactions over all 2^d coalitions, d <= 16; dense readouts.

    A pair's score is the mean of v(S+ij) - v(S+i) - v(S+j) + v(S) over the S without i and j, weighted by size s.
    index: "k_sii", s! (d-s-2)! / (d-1)! (Grabisch & Roubens 1999; aggregated: Bord & von Luxburg 2023); "stii",
    2 s! (d-s-1)! / d! (Sundararajan, Dhamdhere & Agarwal 2020); "fsii", 6 (s+1)! (d-s-1)! / (d+1)!, the fit of all
    coalitions by features and pairs under the Shapley kernel (Tsai, Yeh & Ravikumar 2023).
    """
    from shapeline.designs.exact import shapley_readout  # imports networkx, which the minimum budget does not need

    d = check_integer("shapley_interactions", "d", d, 1)
    design.check_choice("shapley_interactions", "index", index, INDICES)
    check_feature_count("shapley_interactions", d, MAX_EXACT_FEATURES, "sample_interactions or gp_interactions")
    masks = design.enumerate_coalitions(d, "shapley_interactions")
    weight = derivative_weights(d, index)
    weights = np.zeros((3, d + 1))  # by the number of the pair's features in a coalition, and the coalition's size
    for present, sign in enumerate((1, -1, 1)):
        weights[present, present : present + d - 1] = sign * weight
    first, second = enumerate_pairs(d)
    present = masks[:, first].astype(np.int8) + masks[:, second]
    pairs = np.ascontiguousarray(weights[present, masks.sum(axis=1)[:, None]].T)
    features = np.arange(d)[:, None]
    return Design(masks, shapley_readout(masks) - ((features == first) | (features == second)) @ pairs / 2, pairs=pairs)


def sample_interactions_minimum(d: int) -> int:
    """Return the smallest budget of `sample_interactions`: a block of orders with all pairs, or all 2^d."""
    return min(len(_build_block(d)) * 2 * (d - 1) + 2, 2**d)


def sample_interactions(d: int, budget: int, seed: int = 0, index: str = "k_sii") -> Design:
    """Return the design of interactions and main effects along random orders up to the budget; sparse readouts.

    Two neighbours in an order give one term v(S+ij) - v(S+i) - v(S+j) + v(S) of their pair, where S is the features
    before them: 2 d evaluations for d - 1 pairs. All sizes of S are equally likely, so the mean term is k-SII, and the
    mean weighted by the weights of `index` is that index. Orders come in blocks in which every pair is adjacent once,
    for odd d twice (Walecki's paths with random feature names), so that every pair has a term; the last block may be
    incomplete. budget: evaluations, at least `sample_interactions_minimum(d)`; K <= budget. A main effect is the mean
    marginal contribution in the orders minus the pairs with earlier features: exact for games of order 2; all sum to
    v(N) - v(empty). Complete blocks are unbiased for k-SII; with an incomplete one, sizes weigh up to 2 % more or less
    than 1 / (d - 1). A budget of all 2^d coalitions, d <= 16, gives `shapley_interactions`.
    """
    d = check_integer("sample_interactions", "d", d, 1)
    design.check_choice("sample_interactions", "index", index, INDICES)
    check_feature_count("sample_interactions", d, MAX_PAIRED_FEATURES, "coarser features")
    d, budget = check_budget("sample_interactions", d, budget, sample_interactions_minimum, seed)
    if d <= MAX_EXACT_FEATURES and budget == 2**d:
        return shapley_interactions(d, index)
    return _follow_orders(_sample_orders(d, budget, np.random.default_rng(seed)), index)


def check_feature_count(where: str, d: int, most: int, remedy: str) -> None:
    """Raise ShapelineError if d is above `most`, with `remedy`."""
    if d > most:
        raise ShapelineError(
            f"{where}: d = {d} has {d * (d - 1) // 2:,} pairs and at most d = {most} is taken; choose {remedy}."
        )


def derivative_weights(d: int, index: str) -> np.ndarray:
    """Return the weight (d - 1,) of the derivative of a pair at S, by the size 0 to d-2 of S."""
    s = np.arange(max(d - 1, 0))
    if index == "k_sii":
        return np.exp(log_factorial(s) + log_factorial(d - s - 2) - log_factorial(d - 1))
    if index == "stii":
        return 2 * np.exp(log_factorial(s) + log_factorial(d - s - 1) - log_factorial(d))
    return 6 * np.exp(log_factorial(s + 1) + log_factorial(d - s - 1) - log_factorial(d + 1))


def weigh_terms(number: np.ndarray, d: int, index: str) -> np.ndarray:
    """Return the weight of each derivative along orders in its pair `number`; they sum to 1 per pair."""
    weight = np.tile(derivative_weights(d, index) / derivative_weights(d, "k_sii"), len(number) // max(d - 1, 1))
    return weight * (np.bincount(number) / np.bincount(number, weight))[number]


def _build_block(d: int) -> np.ndarray:
    """Return orders (count, d) with every pair adjacent equally often: once in d / 2 orders, for odd d twice in d."""
    steps = np.arange(d)
    zigzag = np.where(steps % 2, (steps + 1) // 2, -(steps // 2))  # 0, 1, -1, 2, -2, ...
    return (np.arange(d if d % 2 else d // 2)[:, None] + zigzag) % d


def _sample_orders(d: int, budget: int, rng: np.random.Generator) -> np.ndarray:
    """Sample as many orders (count, d) as have at most `budget` distinct coalitions with the ends; one full block."""
    block = _build_block(d)
    wanted = len(block) + -(-budget // (2 * d - 2))
    orders = np.zeros((0, d), int)
    for _ in range(MAX_ROUNDS):
        while len(orders) < wanted:
            renamed = rng.permutation(d)[block]
            orders = np.concatenate([orders, renamed if len(orders) == 0 else rng.permutation(renamed)])
        first, _ = design.find_unique_rows(_build_coalitions(orders)[0])
        distinct = np.bincount(first // (2 * d - 2), minlength=len(orders)).cumsum() + 2
        if distinct[-1] > budget:
            break
        wanted *= 2
    return orders[: int((distinct <= budget).sum())]


def _build_coalitions(orders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return masks (count x 2 (d-1), d) of orders (count, d) and the features' ranks; per order the prefixes, then the
    prefixes with the last feature replaced by the next one."""
    d = orders.shape[1]
    rank = orders.argsort(axis=1)
    steps = np.arange(d - 1)[:, None]
    prefixes = rank[:, None, :] < steps + 1
    replaced = (rank[:, None, :] < steps) | (rank[:, None, :] == steps + 1)
    return np.concatenate([prefixes, replaced], axis=1).reshape(-1, d), rank


def _follow_orders(orders: np.ndarray, index: str = "k_sii") -> Design:
    """Return the design of the pairs' derivatives and the features' marginal contributions along orders."""
    count, d = orders.shape
    inner, rank = _build_coalitions(orders)
    masks = np.concatenate([inner, np.zeros((1, d), bool), np.ones((1, d), bool)])
    first, inverse = design.find_unique_rows(masks)
    masks = masks[first]
    rows = inverse[:-2].reshape(count, 2, d - 1)
    prefix = np.column_stack([np.full(count, inverse[-2]), rows[:, 0], np.full(count, inverse[-1])])  # sizes 0 to d
    numbers = np.zeros((d, d), int)
    numbers[enumerate_pairs(d)] = np.arange(d * (d - 1) // 2)
    numbers += numbers.T
    number = numbers[orders[:, :-1], orders[:, 1:]].ravel()
    share = weigh_terms(number, d, index) / np.bincount(number)[number]
    terms = [rows.ravel() for rows in (prefix[:, 2:], prefix[:, 1:-1], rows[:, 1], prefix[:, :-2])]
    weights = np.concatenate([share, -share, -share, share])
    pairs = design.build_sparse_readout(
        d * (d - 1) // 2, len(masks), np.tile(number, 4), np.concatenate(terms), weights
    )
    shapley = design.build_sparse_readout(
        *(d, len(masks), np.tile(orders.ravel(), 2)),
        np.concatenate([prefix[:, 1:].ravel(), prefix[:, :-1].ravel()]),
        np.repeat([1 / count, -1 / count], count * d),
    )
    return Design(masks, (shapley - _measure_precedence(rank) @ pairs).tocsr(), np.stack([number, *terms]), pairs)


def _measure_precedence(rank: np.ndarray):
    """Return (d, pairs): the share of orders in which the pair's other feature precedes this one."""
    d = rank.shape[1]
    first, second = enumerate_pairs(d)
    later = (rank[:, first] > rank[:, second]).mean(axis=0)
    numbers = np.arange(len(first))
    return design.build_sparse_readout(
        d, len(first), np.r_[first, second], np.r_[numbers, numbers], np.concatenate([later, 1 - later])
    )
