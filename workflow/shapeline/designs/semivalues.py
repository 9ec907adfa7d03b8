"""Samplers by size or probability of the coalition: estimators of the Shapley value and of other semivalues.

Leverage SHAP, unbiased KernelSHAP and stratified SVARM sample complementary pairs by size, without replacement. A pair
is of size s where its smaller member is, s = 1 .. d // 2; arrays by size hold that of s at position s - 1. Owen
sampling, Beta-Shapley and the weighted Banzhaf value sample the multilinear extension.
"""

from collections.abc import Callable

import numpy as np

from shapeline.designs import design
from shapeline.errors import ShapelineError

BEYOND = 60.0  # log of a number of coalitions that no budget reaches
TRIES = 20  # samples until one determines all scores; few fail, at the smallest budgets


def check_budget(where: str, d: int, budget: int, minimum) -> tuple[int, int]:
    """Return d and the budget in evaluations, at most 2^d. Raises ShapelineError if it is below minimum(d)."""
    d, budget = design.whole(where, "d", d, 1), design.whole(where, "budget", budget, 0)
    if budget < minimum(d):
        raise ShapelineError(
            f"{where}: budget is {budget} evaluations and the minimum for d = {d} is {minimum(d)}; raise it."
        )
    return d, min(budget, 2**d)


def available(d: int) -> np.ndarray:
    """Return the number of pairs of each size, float64; numbers beyond every budget are cut."""
    size = np.arange(1, d // 2 + 1)
    log_count = design.log_factorial(d) - design.log_factorial(size) - design.log_factorial(d - size)
    return np.rint(np.exp(np.minimum(log_count, BEYOND))) / np.where(2 * size == d, 2, 1)


def allot(mass: np.ndarray, most: np.ndarray, total: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of each size, expected and drawn: by mass, at most `most`, `total` in all (systematic sampling)."""
    expected, left = np.zeros(len(mass)), float(min(total, most.sum()))
    rest = np.cumsum(mass[::-1])[::-1]
    for place in range(len(mass)):
        expected[place] = min(most[place], left * mass[place] / rest[place])
        left -= expected[place]
    edges = np.cumsum(expected)
    edges[-1:] = np.rint(edges[-1:])
    return expected, np.diff(np.floor(edges + rng.random()), prepend=0).astype(int)


def sample_pairs(d: int, counts: np.ndarray, rng: np.random.Generator, first: np.ndarray | None = None) -> np.ndarray:
    """Sample smaller members (P, d) of distinct uniform pairs, `counts` per size; of two halves that with feature 0.

    first: pairs that are among them, not more of a size than its count.
    """
    sizes = np.arange(1, d // 2 + 1)
    drawn = np.zeros((0, d), bool) if first is None else first
    # Where most of a size are wanted, all are listed: the last ones would take long to meet by chance.
    more = [rng.permutation(design.subsets_of_size(d, size)) for size in sizes[2 * counts > available(d)]]
    while True:
        drawn = np.concatenate([drawn, *more])
        drawn ^= (2 * drawn.sum(axis=1) == d)[:, None] & ~drawn[:, :1]
        drawn = drawn[np.sort(design.unique_rows(drawn)[0])]
        size = drawn.sum(axis=1)
        missing = np.maximum(counts - np.bincount(size, minlength=d // 2 + 1)[1:], 0)
        if not missing.any():
            break
        more = [rng.permuted(np.arange(d) < np.repeat(sizes, missing)[:, None], axis=1)]
    order = np.argsort(size, kind="stable")
    start = np.searchsorted(size[order], size[order])
    return drawn[np.sort(order[np.arange(len(order)) - start < counts[size[order] - 1]])]


def leverage_shap_minimum(d: int) -> int:
    """Return the smallest budget of `leverage_shap`, in evaluations: d - 1 pairs and both ends, or all 2^d."""
    return min(2 * d, 2**d)


def leverage_shap(d: int, budget: int, seed: int = 0) -> design.Design:
    """Leverage SHAP (Musco & Witter 2025, algorithm 1): every size gets as many pairs as any other, while it has them.

    A coalition's leverage in the regression is 1 / C(d, s), so the sizes are drawn alike where KernelSHAP prefers the
    ends; without replacement, each row weighing the kernel over the probability that it is drawn. budget: evaluations,
    at least `leverage_shap_minimum(d)`; K = budget, less one where a pair would be cut. The pairs of a size are as many
    as expected, rounded at random, where the paper samples them from a binomial: so the budget is met. Dense readout;
    scores sum to v(N) - v(empty), and are exact for linear values and where all coalitions are evaluated.
    """
    d, budget = check_budget("leverage_shap", d, budget, leverage_shap_minimum)
    if d == 1:
        return design.only_feature()
    rng, most, sizes = np.random.default_rng(seed), available(d), np.arange(1, d // 2 + 1)
    mass = np.where(2 * sizes == d, 0.5, 1.0)
    for attempt in range(TRIES):
        expected, counts = allot(mass, most, budget // 2 - 1, rng)
        pairs = sample_pairs(d, counts, rng)
        # A drawn pair stands for most / expected pairs of its size, which share the size's mass.
        weights = (design.size_mass(d, sizes) * mass / expected)[pairs.sum(axis=1) - 1]
        try:
            return design.constrained_fit(pairs, weights, "leverage_shap", mirrored=True)
        except ShapelineError:
            if attempt == TRIES - 1:
                raise
    raise AssertionError


def unbiased_kernel_shap_minimum(d: int) -> int:
    """Return the smallest budget of `unbiased_kernel_shap`, in evaluations: both ends and one pair, or all 2^d."""
    return min(4, 2**d)


def unbiased_kernel_shap(d: int, budget: int, seed: int = 0) -> design.Design:
    """Unbiased KernelSHAP with paired sampling (Covert & Lee 2021, §3.2 and 4.2).

    The matrix of the fit is known, its inverse too (I and J), so a score is (v(N) - v(empty))/d + d/(d-1) times the sum
    over S of k(s) (1[i in S] - s/d) v(S), whose mean over drawn coalitions is unbiased. Pairs are drawn without
    replacement and weigh 1 / the probability that they are drawn, where the paper samples each anew: a budget then buys
    distinct coalitions. budget: evaluations, at least `unbiased_kernel_shap_minimum(d)`; K = budget, less one where a
    pair would be cut. Dense readout; scores sum to v(N) - v(empty), and are exact where all coalitions are evaluated.
    """
    d, budget = check_budget("unbiased_kernel_shap", d, budget, unbiased_kernel_shap_minimum)
    if d == 1:
        return design.only_feature()
    rng, sizes = np.random.default_rng(seed), np.arange(1, d // 2 + 1)
    mass = design.size_mass(d, sizes) * np.where(2 * sizes == d, 0.5, 1.0)
    expected, counts = allot(mass, available(d), budget // 2 - 1, rng)
    pairs = sample_pairs(d, counts, rng)
    size = pairs.sum(axis=1)
    inner = (d / (d - 1)) * (mass / expected)[size - 1] * (pairs.T - size / d)
    ends = np.zeros((1, d), bool)
    return design.Design(
        np.concatenate([ends, pairs, ~pairs, ~ends]),
        np.column_stack([np.full(d, -1 / d), inner, -inner, np.full(d, 1 / d)]),
    )


def stratified_svarm_minimum(d: int) -> int:
    """Return the smallest budget of `stratified_svarm`: the sizes 0, 1, d - 1 and d, and each stratum once."""
    if d < 4:
        return 2**d
    return 2 + 2 * d + 2 * int(_choose_first_sizes(d).sum())


def stratified_svarm(d: int, budget: int, seed: int = 0) -> design.Design:
    """Stratified SVARM (Kolpaczki, Bengs, Muschalik & Huellermeier 2024, algorithm 2), in complementary pairs.

    A score is the mean over sizes of the mean value with the feature less that without it; each coalition is in a
    stratum of every feature. Sizes 0, 1, d - 1 and d are evaluated whole; then a random partition into blocks of each
    size fills every stratum (the paper's warm-up; a block's complement fills those of size d - s, which halves it), and
    the rest goes to sizes in proportion to 1 / min(s, d - s), without replacement. budget: evaluations, at least
    `stratified_svarm_minimum(d)`; K = budget, less one where a pair would be cut. Dense readout; unbiased, and exact
    where all coalitions are evaluated. Scores need not sum to v(N) - v(empty).
    """
    d, budget = check_budget("stratified_svarm", d, budget, stratified_svarm_minimum)
    if d == 1:
        return design.only_feature()
    rng, sizes = np.random.default_rng(seed), np.arange(1, d // 2 + 1)
    counts = np.array([1 if d == 2 else d], int)
    pairs = np.eye(d, dtype=bool)[: counts[0]]
    if d > 3:
        first = np.append(d, _choose_first_sizes(d)).astype(int)
        mass = np.where(2 * sizes == d, 0.5, 1.0) / sizes
        _, more = allot(mass, available(d) - first, budget // 2 - 1 - first.sum(), rng)
        blocks = [_blocks(d, size, rng) for size in sizes[1:]]
        pairs = sample_pairs(d, first + more, rng, np.concatenate([pairs, *blocks]))
    ends = np.zeros((1, d), bool)
    masks = np.concatenate([ends, pairs, ~pairs, ~ends])
    size = masks.sum(axis=1)
    order = np.argsort(size, kind="stable")
    inside = np.add.reduceat(masks[order], np.searchsorted(size[order], np.arange(d + 1)), axis=0, dtype=np.int32)
    with np.errstate(divide="ignore"):  # nothing is without a feature of the full coalition
        with_it, without = 1 / (d * inside), -1 / (d * (np.bincount(size)[:, None] - inside))
    return design.Design(masks, np.where(masks, with_it[size], without[size]).T)


def _choose_first_sizes(d: int) -> np.ndarray:
    """Sample pairs of sizes 2 .. d // 2 that cover every stratum: blocks of a partition, a single pair of halves."""
    size = np.arange(2, d // 2 + 1)
    return np.where(2 * size == d, 1, -(-d // size))


def _blocks(d: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a random partition into blocks of a size, as masks; the last is filled up with features of the first."""
    order = rng.permutation(d)
    members = np.append(order, order[: -d % size]).reshape(-1, size)[: 1 if 2 * size == d else None]
    masks = np.zeros((len(members), d), bool)
    np.put_along_axis(masks, members, True, axis=1)
    return masks


def owen_sampling_minimum(d: int) -> int:
    """Return the smallest budget of the samplers here: one coalition, and each feature's change to it."""
    return min(d + 1, 2**d)


def owen_sampling(d: int, budget: int, seed: int = 0) -> design.Design:
    """Owen sampling, halved (Okhrati & Lipani 2021): a score is the integral over q of the mean change by the feature.

    Each coalition holds every feature with probability q, and is compared with that in which one feature is moved, for
    every feature in turn; its complement, of probability 1 - q, follows. q is random within equal parts of (0, 1), so
    that the mean is unbiased, where the paper's grid is not. budget: evaluations, at least `owen_sampling_minimum(d)`;
    K <= budget, less where coalitions coincide (few features); 2^d give the Shapley value itself. Sparse readout.
    """
    d, budget = check_budget("owen_sampling", d, budget, owen_sampling_minimum)
    if budget == 2 ** min(d, 62):
        from shapeline.designs.exact import shapley

        return shapley(d)
    return sample_extension(d, budget, seed, lambda uniform: uniform)


def sample_extension(d: int, budget: int, seed: int, probability: Callable[[np.ndarray], np.ndarray]) -> design.Design:
    """Return mean changes by each feature of random coalitions, each of a probability from `probability`; unbiased.

    The last coalition is compared for as many features as the budget allows.
    """
    rng = np.random.default_rng(seed)
    points = -(-(budget - 1) // (d + 1))  # a coalition and at least one change
    half = -(-points // 2)
    level = (rng.permutation(half) + rng.random(half)) / half
    level = np.stack([level, 1 - level], axis=1).ravel()[:points]
    number = rng.random((half, d))
    number = np.stack([number, 1 - number], axis=1).reshape(-1, d)[:points]
    base = number < probability(level)[:, None]
    compared = np.ones((points, d), bool)
    compared[-1, rng.permutation(d)[budget - (points - 1) * (d + 1) - 1 :]] = False
    point, feature = np.nonzero(compared)
    moved = base[point]
    moved[np.arange(len(point)), feature] ^= True
    masks = np.concatenate([base, moved])
    first, inverse = design.unique_rows(masks)
    sign = np.where(base[point, feature], 1.0, -1.0) / compared.sum(axis=0)[feature]
    rows = np.concatenate([inverse[point], inverse[points:]])
    readout = design.sparse_readout(d, len(first), np.tile(feature, 2), rows, np.concatenate([sign, -sign]))
    return design.Design(masks[first], readout)


def semivalue_minimum(d: int) -> int:
    """Return the smallest budget of the semivalues, in evaluations: one coalition, and each feature's change to it."""
    return owen_sampling_minimum(d)


def beta_shapley(d: int, budget: int, seed: int = 0, alpha: float = 4.0, beta: float = 1.0) -> design.Design:
    """Beta(alpha, beta)-Shapley value (Kwon & Zou 2022, equation 5): alpha > beta prefers small coalitions.

    Changes of S, of s features, weigh B(s + beta, d - 1 - s + alpha) / B(alpha, beta), which is the probability of S
    where each feature is held with a probability from Beta(beta, alpha); Beta(1, 1) is Shapley's. budget: evaluations,
    at least `semivalue_minimum(d)`; sampled as by `owen_sampling`, and the value itself where all 2^d are affordable.
    """
    from scipy.special import betaincinv, betaln

    for name, given in (("alpha", alpha), ("beta", beta)):
        if not 0 < given < np.inf:
            raise ShapelineError(f"beta_shapley: {name} is {given!r}; give a number above 0.")

    def log_weight(size: np.ndarray) -> np.ndarray:
        return betaln(size + beta, d - 1 - size + alpha) - betaln(alpha, beta)

    return _semivalue("beta_shapley", d, budget, seed, log_weight, lambda u: betaincinv(beta, alpha, u))


def weighted_banzhaf(d: int, budget: int, seed: int = 0, weight: float = 0.5) -> design.Design:
    """Weighted Banzhaf value (Li & Yu 2023): mean change where each other feature is there with probability `weight`.

    0.5 is the Banzhaf value. budget: evaluations, at least `semivalue_minimum(d)`; sampled as by `owen_sampling`, and
    the value itself where all 2^d are affordable.
    """
    if not 0 < weight < 1:
        raise ShapelineError(f"weighted_banzhaf: weight is {weight!r}; give a number between 0 and 1.")

    def log_weight(size: np.ndarray) -> np.ndarray:
        return size * np.log(weight) + (d - 1 - size) * np.log1p(-weight)

    return _semivalue("weighted_banzhaf", d, budget, seed, log_weight, lambda u: np.full(u.shape, weight))


def _semivalue(where: str, d: int, budget: int, seed: int, log_weight, probability) -> design.Design:
    """Return the exact design if the budget covers all coalitions, else a sampled one; log_weight: of S without i."""
    d, budget = check_budget(where, d, budget, semivalue_minimum)
    if budget < 2 ** min(d, 62):
        return sample_extension(d, budget, seed, probability)
    masks = design.all_coalitions(d, where)
    weight = np.exp(log_weight(np.arange(d)))
    size = masks.sum(axis=1)
    inside, outside = weight[np.maximum(size - 1, 0)], weight[np.minimum(size, d - 1)]
    return design.Design(masks, np.where(masks.T, inside, -outside))
