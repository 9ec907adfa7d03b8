"""The best order in which features can be masked or inserted, exactly: the ceiling of those two curves."""

import numpy as np

from shapeline.errors import ShapelineError

MOST = 16  # features: 65,536 coalitions an instance
CELLS = 1 << 23  # numbers held for some instances at a time


def optimal_order(values: np.ndarray, insertion: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of least area when features are masked one by one: (order (n, d), area (n,)).

    values: (n, 2^d), d <= 16, row r of a game the value of the features whose bit is set in r. order: the features,
    the one masked first in front; area: of the curve over the share masked, 0 to 1, by the trapezoidal rule, as the
    metric `log_odds` measures it on values less those of the whole. insertion: features are added to none, and the
    area is the greatest. Dynamic programming over subsets (Held & Karp 1962): a coalition is best left by whichever
    feature leads to the least sum from there on. ShapelineError for another number of columns.
    """
    values = np.asarray(values, float)
    d = values.shape[1].bit_length() - 1
    if values.ndim != 2 or values.shape[1] != 2**d or not 1 <= d <= MOST:
        raise ShapelineError(
            f"optimal_order: values of shape {values.shape}; give (n, 2^d) of all coalitions, d from 1 to {MOST}."
        )
    if insertion:  # masking of the game whose coalitions are the features not there yet
        values = -values[:, ::-1]
    step = max(1, CELLS // 2**d)
    some = [_trace_order(values[start : start + step]) for start in range(0, len(values), step)]
    order, area = (np.concatenate(parts) for parts in zip(*some, strict=True))
    return order, -area if insertion else area


def _trace_order(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return order and area of some instances."""
    n, count = values.shape
    d = count.bit_length() - 1
    rest = np.zeros((n, count))  # the least sum of the values passed after a coalition, until none is left
    taken = np.zeros((n, count), np.int8)
    sizes = np.bitwise_count(np.arange(count))
    for size in range(1, d + 1):
        own = np.flatnonzero(sizes == size)
        members = np.nonzero(own[:, None] >> np.arange(d) & 1)[1].reshape(len(own), size)
        best = np.full((n, len(own)), np.inf)
        for feature in members.T:
            after = own ^ (1 << feature)
            total = rest[:, after] + values[:, after]
            closer = total < best
            best = np.where(closer, total, best)
            taken[:, own] = np.where(closer, feature, taken[:, own])
        rest[:, own] = best
    area = (rest[:, -1] + (values[:, -1] - values[:, 0]) / 2) / d
    return _follow_path(taken, d), area


def _follow_path(taken: np.ndarray, d: int) -> np.ndarray:
    """Return the orders (n, d) that lead from all features to none by what is taken from each coalition."""
    instance, left = np.arange(len(taken)), np.full(len(taken), 2**d - 1)
    order = np.empty((len(taken), d), int)
    for place in range(d):
        order[:, place] = taken[instance, left]
        left = left ^ (1 << order[:, place])
    return order


MASKING, INSERTION = "masking_order", "insertion_order"  # in what a score file says beside the scores
SURE = 1e-12  # a probability nearer to 1 than this has lost the digits that its odds are made of


def best_orders(masks: np.ndarray, values: np.ndarray, value: str) -> list[dict[str, list[int]]]:
    """Return each instance's best orders of masking or inserting, by log-odds of values (m, K) of masks (K, d).

    value: what they are. None where coalitions are missing, d is above 16, or a value has no log-odds.
    """
    d = masks.shape[-1]
    nothing = [{} for _ in values]
    if masks.ndim != 2 or d > MOST or len(masks) != 2**d or value not in ("log_probability", "probability"):
        return nothing
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = values if value == "log_probability" else np.log(values)
        log_odds = log_p - np.log(-np.expm1(log_p))
    fine = (np.isfinite(log_odds) & (log_p < -SURE)).all(axis=1)
    table = np.empty((fine.sum(), 2**d))
    table[:, masks @ (1 << np.arange(d))] = log_odds[fine]
    orders = (optimal_order(table, insertion)[0] for insertion in (False, True)) if len(table) else ((), ())
    for place, *both in zip(np.flatnonzero(fine), *orders, strict=True):
        nothing[place] = dict(zip((MASKING, INSERTION), (order.tolist() for order in both), strict=True))
    return nothing
