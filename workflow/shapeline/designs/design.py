"""A design (masks and estimator weights) and its parts; scipy is imported at its first use, for fast dry runs."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import comb, floor

import numpy as np

from shapeline.errors import ShapelineError, nearest
from shapeline.threads import limit_to_one

MAX_D = 20  # features of which all coalitions are enumerated
MAX_COALITIONS = 2**MAX_D
FIRST_ROUND = 4  # evaluations per feature of the first adaptive round; fewer give no standard error
MAX_CELLS = 2**28  # coalitions times the width of their windows; bounds the memory of building a design


class Coalitions:
    """Coalitions to evaluate: masks (K, d) bool."""

    masks: np.ndarray

    @property
    def d(self) -> int:
        """Number of features."""
        return self.masks.shape[1]

    @property
    def evaluations(self) -> int:
        """Number K of coalitions, each evaluated once per instance."""
        return self.masks.shape[0]


@dataclass(frozen=True, eq=False)
class Design(Coalitions):
    """Coalitions to evaluate and the linear map from their values to the scores.

    masks: (K, d) bool, unique rows, True for kept features. readout: (d, K) float64, dense or scipy.sparse, the
    estimator weights. sample: input of the standard error of a sampled design: the weights of its pairs (with nested
    rounds also which of them are sampled), its permutations, or for interactions the pair of each term and its four
    coalitions. pairs: (d (d-1) / 2, K) float64, dense or sparse, or None: the estimator weights of interactions, in
    row-major upper-triangle order.
    """

    masks: np.ndarray
    readout: object
    sample: np.ndarray | None = None
    pairs: object = None

    def __post_init__(self):
        if self.masks.ndim != 2 or self.masks.dtype != bool:
            raise ShapelineError(f"design: masks are {self.masks.dtype} of shape {self.masks.shape}; give (K, d) bool.")
        if self.readout.shape != self.masks.shape[::-1] or self.readout.dtype != np.float64:
            raise ShapelineError(
                f"design: the readout is {self.readout.dtype} of shape {self.readout.shape}; "
                f"masks of shape {self.masks.shape} need float64 of shape {self.masks.shape[::-1]}."
            )

    def attribute(self, values: np.ndarray) -> np.ndarray:
        """Return scores (..., d) float64 from the values (..., K) of the coalitions, in the order of the masks."""
        values = np.asarray(values, dtype=np.float64)
        if values.ndim == 0 or values.shape[-1] != self.evaluations:
            raise ShapelineError(
                f"design: values of shape {values.shape} for {self.evaluations} coalitions; give (..., K)."
            )
        return _multiply(self.readout, values)

    def attribute_pairs(self, values: np.ndarray) -> np.ndarray | None:
        """Return interactions (..., d (d-1) / 2) float64 from the same values; None for a design without pairs."""
        return None if self.pairs is None else _multiply(self.pairs, np.asarray(values, dtype=np.float64))


def _multiply(readout, values: np.ndarray) -> np.ndarray:
    """Return the products (..., rows) of values (..., K) and weights (rows, K), dense or sparse."""
    rows, count = readout.shape
    if hasattr(readout, "tocsr"):
        return (readout @ values.reshape(-1, count).T).T.reshape(*values.shape[:-1], rows)
    with limit_to_one(values.size * rows):
        return values @ readout.T


def check_integer(where: str, name: str, value: object, minimum: int) -> int:
    """Return `value` as an int of at least `minimum`. Raises ShapelineError for other values."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < minimum or isinstance(value, bool | np.bool):
        raise ShapelineError(f"{where}: {name} is {value!r}; give a whole number of at least {minimum}.")
    return number


def check_budget(
    where: str, d: int, budget: int, minimum: Callable[[int], int], seed: object = None
) -> tuple[int, int]:
    """Return d and the budget in evaluations, at most 2^d. ShapelineError below minimum(d), or for a seed below 0."""
    if isinstance(seed, int | np.integer):
        check_integer(where, "seed", seed, 0)
    d, budget = check_integer(where, "d", d, 1), check_integer(where, "budget", budget, 0)
    if budget < (least := minimum(d)):
        raise ShapelineError(
            f"{where}: budget is {budget} evaluations and the minimum for d = {d} is {least}; raise it."
        )
    return d, min(budget, 2**d)


def count_evaluations(budget: float, d: int) -> int:
    """Return the evaluations of a budget per feature; the small term prevents 9.7 x 10 from becoming 96."""
    return floor(budget * d + 1e-9)


def check_choice(where: str, name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise ShapelineError for a `value` that is not among `choices`."""
    if value not in choices:
        raise ShapelineError(f"{where}: {name} is {value!r}.{nearest(value, choices)}")


def enumerate_coalitions(d: int, where: str) -> np.ndarray:
    """Return all coalitions of d features, (2^d, d) bool; row r keeps the features whose bit is set in r."""
    if d > MAX_D:
        raise ShapelineError(
            f"{where}: d = {d} has 2^{d} coalitions and at most d = {MAX_D} are enumerated; "
            "choose coarser features, or kernel_shap or sample_shapley."
        )
    return (np.arange(2**d, dtype=np.int32)[:, None] >> np.arange(d, dtype=np.int32) & 1).astype(bool)


def enumerate_size(d: int, size: int) -> np.ndarray:
    """Return all coalitions of one size, (C(d, size), d) bool."""
    if size == 1:
        return np.eye(d, dtype=bool)
    if 2 * size > d:
        return ~enumerate_size(d, d - size)
    members = np.zeros((1, 0), np.int64)
    for _ in range(size):
        # Each step appends to each row every feature above its last one: combinations in lexicographic order.
        last = members[:, -1] if members.shape[1] else np.array([-1])
        repeats = d - 1 - last
        step = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        members = np.column_stack([np.repeat(members, repeats, axis=0), np.repeat(last, repeats) + 1 + step])
    masks = np.zeros((len(members), d), bool)
    masks[np.arange(len(members))[:, None], members] = True
    return masks


def log_factorial(n: np.ndarray) -> np.ndarray:
    """Return log n!, elementwise; sums of these keep weights from overflow and underflow at d = 10,000."""
    from scipy.special import gammaln

    return gammaln(np.asarray(n, dtype=np.float64) + 1)


def kernel_weight(d: int, sizes: np.ndarray | int) -> np.ndarray | float:
    """Return KernelSHAP's weights (d-1) / (C(d,s) s (d-s)) of sizes 1..d-1 (Lundberg & Lee 2017, theorem 2)."""
    if isinstance(sizes, int):
        return (d - 1) / (comb(d, sizes) * sizes * (d - sizes))
    s = np.asarray(sizes, dtype=np.float64)
    log_count = log_factorial(d) - log_factorial(s) - log_factorial(d - s)
    return np.exp(np.log(d - 1) - log_count - np.log(s) - np.log(d - s))


def compute_size_mass(d: int, sizes: np.ndarray) -> np.ndarray:
    """Return the Shapley kernel summed over all coalitions of a size: (d-1) / (s (d-s)), for sizes 1..d-1."""
    s = np.asarray(sizes, dtype=np.float64)
    return (d - 1) / (s * (d - s))


def find_unique_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the first copy of each distinct row, and for each row the number of its distinct row."""
    rows = np.packbits(rows, axis=1) if rows.dtype == bool else np.ascontiguousarray(rows)
    keys = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def build_sparse_readout(d: int, coalitions: int, features: np.ndarray, rows: np.ndarray, weights: np.ndarray):
    """Build a (d, coalitions) CSR array from the terms `weight * v(row)` of features' scores; duplicates add up."""
    from scipy.sparse import coo_array

    return coo_array((weights.astype(np.float64), (features, rows)), shape=(d, coalitions)).tocsr()


def pad_sets(d: int, nodes: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Return the nodes (..., w) that the mask `listed` selects, ascending and padded with d."""
    dtype = np.int16 if d < 2**15 else np.int32
    return np.sort(np.where(listed, nodes.astype(dtype), dtype(d)), axis=-1)


def merge_sets(
    d: int, sets: list[np.ndarray], features: np.ndarray, rows: np.ndarray, weights: np.ndarray, context: str
) -> Design:
    """Return the design of small sets, with equal sets merged; terms as in `build_sparse_readout`.

    sets: results (n, w) of `pad_sets`. context "absent": a set lists the kept features; "present": the masked ones.
    """
    widest = max(block.shape[1] for block in sets)
    padded = [np.pad(block, ((0, 0), (0, widest - block.shape[1])), constant_values=d) for block in sets]
    listed = np.concatenate(padded)
    first, inverse = find_unique_rows(listed)
    listed = listed[first]
    row, column = np.nonzero(listed < d)
    masks = np.full((len(first), d), context == "present")
    masks[row, listed[row, column]] = context == "absent"
    return Design(masks, build_sparse_readout(d, len(first), features, inverse[rows], weights))


def build_single_feature() -> Design:
    """Return the design for d = 1, where every score is v(N) - v(empty)."""
    return Design(np.array([[False], [True]]), np.array([[-1.0, 1.0]]))


def solve_positive(matrix: np.ndarray, right: np.ndarray, where: str) -> np.ndarray:
    """Solve a symmetric positive definite system by Cholesky. Raises ShapelineError if it is numerically singular."""
    from scipy.linalg import cho_solve

    return cho_solve((_factor(matrix.copy(), where), True), right, check_finite=False)


def _factor(matrix: np.ndarray, where: str) -> np.ndarray:
    """Return the lower Cholesky factor of a symmetric matrix, computed in place: Fortran order, zeros above."""
    from scipy.linalg.lapack import dpotrf

    factor, failed = dpotrf(matrix.T, lower=True, overwrite_a=True)
    pivots = np.diagonal(factor)
    if failed or pivots.min() < 1e-7 * pivots.max():
        raise ShapelineError(
            f"{where}: the coalitions drawn do not determine {len(matrix)} scores (the fit is singular); "
            "raise the budget, or ridge where the method has it."
        )
    return factor


def view_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Return a writable view of the diagonal, for any memory order of the matrix."""
    return np.einsum("ii->i", matrix)


def invert_factor(factor: np.ndarray, lower: bool) -> np.ndarray:
    """Return the inverse of a matrix from its Cholesky factor, in place, in Fortran order; the other half is 0."""
    from scipy.linalg.lapack import dpotri

    inverse, _ = dpotri(factor, lower=lower, overwrite_c=True)
    inverse += inverse.T
    view_diagonal(inverse)[:] /= 2
    return inverse


def constrained_fit(
    inner: np.ndarray, weights: np.ndarray, where: str, ridge: float = 0.0, mirrored: bool = False
) -> Design:
    """Fit weighted least squares on coalitions with v(empty) and v(N) met exactly (Charnes et al. 1988).

    inner (R, d) bool: coalitions other than the empty and the full; weights (R,) > 0; mirrored: the fit includes the
    complement of each row with the same weight. The order of the masks is empty, inner, its complements, full.
    With phi = (v(N) - v(empty))/d + psi and rows centred to z - s/d, psi is orthogonal to ones; an added multiple of
    ones ones'/d makes the system regular without changing psi, so scores sum to v(N) - v(empty) to float precision.
    """
    count, d = inner.shape
    share, full = np.count_nonzero(inner, axis=1) / d, np.ones((1, d), bool)
    by_coalition = np.empty(((2 if mirrored else 1) * count + 2, d))
    fit = by_coalition[1 : 1 + count]
    _fit(inner, share, weights, where, ridge, mirrored, fit)
    if mirrored:
        np.negative(fit, out=by_coalition[1 + count : -1])
        share, inner = np.concatenate([share, 1 - share]), np.concatenate([inner, ~inner])
    fit = by_coalition[1:-1]
    with limit_to_one(fit.size):
        by_coalition[0], by_coalition[-1] = -1 / d - (1 - share) @ fit, 1 / d - share @ fit
    return Design(np.concatenate([~full, inner, full]), by_coalition.T)


def _fit(
    inner: np.ndarray, share: np.ndarray, weights: np.ndarray, where: str, ridge: float, mirrored: bool, out: np.ndarray
) -> None:
    """Write the estimator weights of the inner coalitions to `out` (R, d). share (R,): fraction of kept features."""
    d = inner.shape[1]
    # KernelSHAP lists the single-feature coalitions first; their products have a closed form.
    single = d if np.array_equal(inner[:d], np.eye(d, dtype=bool)) else 0
    root = np.sqrt(weights[single:])[:, None]
    rows = (inner[single:] - share[single:, None]) * root
    with limit_to_one(rows.size * d):
        matrix = rows.T @ rows
        if single:
            matrix += weights[:d].sum() / d**2 - (weights[:d, None] + weights[:d]) / d
            view_diagonal(matrix)[:] += weights[:d]
        if mirrored:
            matrix *= 2  # a complement's centred row is the negative of its partner's
        matrix += np.trace(matrix) / d**2
        view_diagonal(matrix)[:] += ridge
        inverse = invert_factor(_factor(matrix, where), lower=True)
        np.matmul(rows, inverse, out=out[single:])
    out[single:] *= root
    if single:
        np.multiply(inverse, weights[:d, None], out=out[:single])
    out -= out.mean(axis=1, keepdims=True)
