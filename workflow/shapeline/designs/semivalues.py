"""Samplers by size or probability of the coalition: estimators of the Shapley value and of other semivalues.

Leverage SHAP, unbiased KernelSHAP and stratified SVARM sample complementary pairs by size, without replacement. The
size of a pair is that of its smaller member, s = 1 .. d // 2; arrays by size have size s at position s - 1. Owen
sampling, Beta-Shapley and the weighted Banzhaf value sample the multilinear extension.
"""

from collections.abc import Callable

import numpy as np

from shapeline.designs import design
from shapeline.designs.design import check_budget
from shapeline.errors import ShapelineError

MAX_LOG_COUNT = 60.0  # larger logarithms of numbers of coalitions are clipped; no budget reaches them
MAX_TRIES = 20  # samples until one determines all scores; few fail, and only at the smallest budgets


def count_pairs_by_size(d: int) -> np.ndarray:
    """Return the number of pairs of each size, float64, clipped at exp(MAX_LOG_COUNT)."""
    size = np.arange(1, d // 2 + 1)
    log_count = design.log_factorial(d) - design.log_factorial(size) - design.log_factorial(d - size)
    return np.rint(np.exp(np.minimum(log_count, MAX_LOG_COUNT))) / np.where(2 * size == d, 2, 1)


def allot(mass: np.ndarray, most: np.ndarray, total: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Allot `total` pairs to sizes by mass, at most `most` each; return expected and systematically sampled counts."""
    expected, remaining = np.zeros(len(mass)), float(min(total, most.sum()))
    tail_mass = np.cumsum(mass[::-1])[::-1]
    for index in range(len(mass)):
        expected[index] = min(most[index], remaining * mass[index] / tail_mass[index])
        remaining -= expected[index]
    edges = np.cumsum(expected)
    edges[-1:] = np.rint(edges[-1:])
    return expected, np.diff(np.floor(edges + rng.random()), prepend=0).astype(int)


def sample_pairs(d: int, counts: np.ndarray, rng: np.random.Generator, first: np.ndarray | None = None) -> np.ndarray:
    """Sample smaller members (P, d) of distinct uniform pairs, `counts` per size; of equal halves, that with feature 0.

    first: pairs to include, at most its count of each size.
    """
    sizes = np.arange(1, d // 2 + 1)
    drawn = np.zeros((0, d), bool) if first is None else first
    # A size of which more than half is wanted is enumerated, because rejection would be slow near the end.
    more = [rng.permutation(design.enumerate_size(d, size)) for size in sizes[2 * counts > count_pairs_by_size(d)]]
    while True:
        drawn = np.concatenate([drawn, *more])
        drawn ^= (2 * drawn.sum(axis=1) == d)[:, None] & ~drawn[:, :1]
        drawn = drawn[np.sort(design.find_unique_rows(drawn)[0])]
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
    """Return the design of Leverage SHAP (Musco & Witter 2025, algorithm 1): equally many pairs of every size.

    A coalition's leverage in the regression is 1 / C(d, s), so sizes are sampled uniformly, where KernelSHAP prefers
    small and large ones. Sampling is without replacement; the weight of a row is the kernel over its probability of
    being sampled. budget: evaluations, at least `leverage_shap_minimum(d)`; K = budget, or one less if it is odd. The
    number of pairs of a size is its expectation, rounded at random, where the paper's is binomial: this meets the
    budget. Dense readout; scores sum to v(N) - v(empty), and are exact for linear games and for all 2^d coalitions.
    """
    d, budget = check_budget("leverage_shap", d, budget, leverage_shap_minimum, seed)
    if d == 1:
        return design.build_single_feature()
    rng, most, sizes = np.random.default_rng(seed), count_pairs_by_size(d), np.arange(1, d // 2 + 1)
    mass = np.where(2 * sizes == d, 0.5, 1.0)
    for attempt in range(MAX_TRIES):
        expected, counts = allot(mass, most, budget // 2 - 1, rng)
        pairs = sample_pairs(d, counts, rng)
        # A sampled pair represents most / expected pairs of its size, which share the mass of the size.
        weights = (design.compute_size_mass(d, sizes) * mass / expected)[pairs.sum(axis=1) - 1]
        try:
            return design.constrained_fit(pairs, weights, "leverage_shap", mirrored=True)
        except ShapelineError:
            if attempt == MAX_TRIES - 1:
                raise
    raise AssertionError


def unbiased_kernel_shap_minimum(d: int) -> int:
    """Return the smallest budget of `unbiased_kernel_shap`, in evaluations: both ends and one pair, or all 2^d."""
    return min(4, 2**d)


def unbiased_kernel_shap(d: int, budget: int, seed: int = 0) -> design.Design:
    """Return the design of unbiased KernelSHAP with paired sampling (Covert & Lee 2021, §3.2 and 4.2).

    The matrix of the fit and its inverse are known, so a score is (v(N) - v(empty))/d + d/(d-1) times the sum over S of
    k(s) (1[i in S] - s/d) v(S), whose estimate from sampled coalitions is unbiased. Pairs are sampled without
    replacement and weighted by 1 / their probability, where the paper samples with replacement: all evaluations are of
    distinct coalitions. budget: evaluations, at least `unbiased_kernel_shap_minimum(d)`; K = budget, or one less if it
    is odd. Dense readout; scores sum to v(N) - v(empty), and are exact for all 2^d coalitions.
    """
    d, budget = check_budget("unbiased_kernel_shap", d, budget, unbiased_kernel_shap_minimum, seed)
    if d == 1:
        return design.build_single_feature()
    rng, sizes = np.random.default_rng(seed), np.arange(1, d // 2 + 1)
    mass = design.compute_size_mass(d, sizes) * np.where(2 * sizes == d, 0.5, 1.0)
    expected, counts = allot(mass, count_pairs_by_size(d), budget // 2 - 1, rng)
    pairs = sample_pairs(d, counts, rng)
    size = pairs.sum(axis=1)
    inner = (d / (d - 1)) * (mass / expected)[size - 1] * (pairs.T - size / d)
    ends = np.zeros((1, d), bool)
    return design.Design(
        np.concatenate([ends, pairs, ~pairs, ~ends]),
        np.column_stack([np.full(d, -1 / d), inner, -inner, np.full(d, 1 / d)]),
    )


def stratified_svarm_minimum(d: int) -> int:
    """Return the smallest budget of `stratified_svarm`: sizes 0, 1, d - 1 and d, and each stratum once."""
    if d < 4:
        return 2**d
    return 2 + 2 * d + 2 * int(_count_warm_up(d).sum())


def stratified_svarm(d: int, budget: int, seed: int = 0) -> design.Design:
    """Return the design of stratified SVARM (Kolpaczki et al. 2024, algorithm 2), in complementary pairs.

    A score is the mean over sizes of the mean value with the feature minus that without it; each coalition is in one
    stratum of every feature. Sizes 0, 1, d - 1 and d are enumerated. Then a random partition into blocks of each size
    fills every stratum (the paper's warm-up; the blocks' complements fill the strata of size d - s, which halves its
    cost). The other evaluations go to sizes in proportion to 1 / min(s, d - s), without replacement. budget:
    evaluations, at least `stratified_svarm_minimum(d)`; K = budget, or one less if it is odd. Dense readout; unbiased,
    and exact for all 2^d coalitions. Scores need not sum to v(N) - v(empty).
    """
    d, budget = check_budget("stratified_svarm", d, budget, stratified_svarm_minimum, seed)
    if d == 1:
        return design.build_single_feature()
    rng, sizes = np.random.default_rng(seed), np.arange(1, d // 2 + 1)
    counts = np.array([1 if d == 2 else d], int)
    pairs = np.eye(d, dtype=bool)[: counts[0]]
    if d > 3:
        first = np.append(d, _count_warm_up(d)).astype(int)
        mass = np.where(2 * sizes == d, 0.5, 1.0) / sizes
        _, more = allot(mass, count_pairs_by_size(d) - first, budget // 2 - 1 - first.sum(), rng)
        blocks = [_partition(d, size, rng) for size in sizes[1:]]
        pairs = sample_pairs(d, first + more, rng, np.concatenate([pairs, *blocks]))
    ends = np.zeros((1, d), bool)
    masks = np.concatenate([ends, pairs, ~pairs, ~ends])
    size = masks.sum(axis=1)
    order = np.argsort(size, kind="stable")
    inside = np.add.reduceat(masks[order], np.searchsorted(size[order], np.arange(d + 1)), axis=0, dtype=np.int32)
    with np.errstate(divide="ignore"):  # no full coalition is without a feature, no empty one has any
        with_it, without = 1 / (d * inside), -1 / (d * (np.bincount(size)[:, None] - inside))
    return design.Design(masks, np.where(masks, with_it[size], without[size]).T)


def _count_warm_up(d: int) -> np.ndarray:
    """Return the pairs of sizes 2 .. d // 2 that cover every stratum: the blocks of a partition, one pair of halves."""
    size = np.arange(2, d // 2 + 1)
    return np.where(2 * size == d, 1, -(-d // size))


def _partition(d: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a random partition into blocks of a size, as masks; features of the first block complete the last."""
    order = rng.permutation(d)
    members = np.append(order, order[: -d % size]).reshape(-1, size)[: 1 if 2 * size == d else None]
    masks = np.zeros((len(members), d), bool)
    np.put_along_axis(masks, members, True, axis=1)
    return masks


def owen_sampling_minimum(d: int) -> int:
    """Return the smallest budget of `owen_sampling`: one coalition and its d changes by one feature, at most 2^d."""
    return min(d + 1, 2**d)


def owen_sampling(d: int, budget: int, seed: int = 0) -> design.Design:
    """Return the design of halved Owen sampling (Okhrati & Lipani 2021): the integral over q of the mean marginal.

    Each coalition keeps every feature with probability q, and is compared with the d coalitions that differ in one
    feature; its complement, of probability 1 - q, follows. q is random within equal parts of (0, 1), so that the mean
    is unbiased; the paper's fixed grid is biased. budget: evaluations, at least `owen_sampling_minimum(d)`. K <= budget
    because coalitions can coincide; 2^d give the Shapley value. Sparse readout.
    """
    d, budget = check_budget("owen_sampling", d, budget, owen_sampling_minimum, seed)
    if budget == 2**d:
        from shapeline.designs.exact import shapley

        return shapley(d)
    return sample_extension(d, budget, seed, lambda uniform: uniform)


def sample_extension(d: int, budget: int, seed: int, probability: Callable[[np.ndarray], np.ndarray]) -> design.Design:
    """Return the design of mean marginal contributions to random coalitions; unbiased.

    probability: maps uniform numbers to the coalitions' probabilities of keeping a feature. The last coalition is
    compared for as many features as the budget allows.
    """
    rng = np.random.default_rng(seed)
    points = -(-(budget - 1) // (d + 1))  # each coalition with at least one change
    half = -(-points // 2)
    level = (rng.permutation(half) + rng.random(half)) / half
    level = np.stack([level, 1 - level], axis=1).ravel()[:points]
    number = rng.random((half, d))
    number = np.stack([number, 1 - number], axis=1).reshape(-1, d)[:points]
    base = number < probability(level)[:, None]
    compared = np.ones((points, d), bool)
    compared[-1, rng.permutation(d)[budget - (points - 1) * (d + 1) - 1 :]] = False
    row, feature = np.nonzero(compared)
    changed = base[row]
    changed[np.arange(len(row)), feature] ^= True
    masks = np.concatenate([base, changed])
    first, inverse = design.find_unique_rows(masks)
    sign = np.where(base[row, feature], 1.0, -1.0) / compared.sum(axis=0)[feature]
    rows = np.concatenate([inverse[row], inverse[points:]])
    readout = design.build_sparse_readout(d, len(first), np.tile(feature, 2), rows, np.concatenate([sign, -sign]))
    return design.Design(masks[first], readout)


def semivalue_minimum(d: int) -> int:
    """Return the smallest budget of the semivalues, in evaluations: that of `owen_sampling`."""
    return owen_sampling_minimum(d)


def beta_shapley(d: int, budget: int, seed: int = 0, alpha: float = 4.0, beta: float = 1.0) -> design.Design:
    """Return the design of the Beta(alpha, beta)-Shapley value (Kwon & Zou 2022, equation 5).

    Marginal contributions to S, of s features, have the weight B(s + beta, d - 1 - s + alpha) / B(alpha, beta): the
    probability of S where each feature is kept with a probability from Beta(beta, alpha). alpha > beta prefers small
    coalitions; Beta(1, 1) is the Shapley value. budget: evaluations, at least `semivalue_minimum(d)`; sampled as by
    `owen_sampling`, and exact for 2^d.
    """
    from scipy.special import betaincinv, betaln

    for name, value in (("alpha", alpha), ("beta", beta)):
        if not 0 < value < np.inf:
            raise ShapelineError(f"beta_shapley: {name} is {value!r}; give a number above 0.")

    def log_weight(size: np.ndarray) -> np.ndarray:
        return betaln(size + beta, d - 1 - size + alpha) - betaln(alpha, beta)

    return _build_semivalue("beta_shapley", d, budget, seed, log_weight, lambda u: betaincinv(beta, alpha, u))


def weighted_banzhaf(d: int, budget: int, seed: int = 0, weight: float = 0.5) -> design.Design:
    """Return the design of the weighted Banzhaf value (Li & Yu 2023): each other feature is kept with `weight`.

    0.5 is the Banzhaf value. budget: evaluations, at least `semivalue_minimum(d)`; sampled as by `owen_sampling`, and
    exact for 2^d.
    """
    if not 0 < weight < 1:
        raise ShapelineError(f"weighted_banzhaf: weight is {weight!r}; give a number between 0 and 1.")

    def log_weight(size: np.ndarray) -> np.ndarray:
        return size * np.log(weight) + (d - 1 - size) * np.log1p(-weight)

    return _build_semivalue("weighted_banzhaf", d, budget, seed, log_weight, lambda u: np.full(u.shape, weight))


def _build_semivalue(where: str, d: int, budget: int, seed: int, log_weight, probability) -> design.Design:
    """Return the exact design if the budget covers all coalitions, else a sampled one; log_weight: by the size of S."""
    d, budget = check_budget(where, d, budget, semivalue_minimum, seed)
    if budget < 2**d:
        return sample_extension(d, budget, seed, probability)
    masks = design.enumerate_coalitions(d, where)
    weight = np.exp(log_weight(np.arange(d)))
    size = masks.sum(axis=1)
    inside, outside = weight[np.maximum(size - 1, 0)], weight[np.minimum(size, d - 1)]
    return design.Design(masks, np.where(masks.T, inside, -outside))
