"""The exact optimal order of masking or inserting features: the bound of the deletion and insertion curves."""

import numpy as np

from shapeline.errors import ShapelineError

MAX_D = 16  # 65,536 coalitions per instance
MAX_CELLS = 1 << 23  # values of the instances that are processed at a time


def optimal_order(values: np.ndarray, insertion: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of least area when features are masked one by one: (order (n, d), area (n,)).

    values: (n, 2^d), d <= 16; column r is the value of the features whose bit is set in r. order: feature numbers, the
    first one masked first. area: under the curve over the masked share, 0 to 1, by the trapezoidal rule, as the metric
    `log_odds` measures it on values minus v(N). insertion: features are added to the empty coalition, and the area is
    maximised. Dynamic programming over subsets (Held & Karp 1962): each coalition loses the feature that leads to the
    least sum of later values. ShapelineError for another number of columns.
    """
    values = np.asarray(values, float)
    d = values.shape[1].bit_length() - 1
    if values.ndim != 2 or values.shape[1] != 2**d or not 1 <= d <= MAX_D:
        raise ShapelineError(
            f"optimal_order: values of shape {values.shape}; give (n, 2^d) of all coalitions, d from 1 to {MAX_D}."
        )
    if insertion:  # masking in the game of the features that are not inserted yet
        values = -values[:, ::-1]
    step = max(1, MAX_CELLS // 2**d)
    blocks = [_find_order(values[start : start + step]) for start in range(0, len(values), step)]
    order, area = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return order, -area if insertion else area


def _find_order(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return order and area of a block of instances."""
    n, count = values.shape
    d = count.bit_length() - 1
    least_sum = np.zeros((n, count))  # of the values after a coalition, down to the empty one
    removed = np.zeros((n, count), np.int8)  # the feature that a coalition loses next
    sizes = np.bitwise_count(np.arange(count))
    for size in range(1, d + 1):
        coalitions = np.flatnonzero(sizes == size)
        members = np.nonzero(coalitions[:, None] >> np.arange(d) & 1)[1].reshape(len(coalitions), size)
        best = np.full((n, len(coalitions)), np.inf)
        for feature in members.T:
            after = coalitions ^ (1 << feature)
            total = least_sum[:, after] + values[:, after]
            smaller = total < best
            best = np.where(smaller, total, best)
            removed[:, coalitions] = np.where(smaller, feature, removed[:, coalitions])
        least_sum[:, coalitions] = best
    area = (least_sum[:, -1] + (values[:, -1] - values[:, 0]) / 2) / d
    instance, remaining = np.arange(n), np.full(n, count - 1)
    order = np.empty((n, d), int)
    for position in range(d):
        order[:, position] = removed[instance, remaining]
        remaining ^= 1 << order[:, position]
    return order, area


MASKING_ORDER, INSERTION_ORDER = "masking_order", "insertion_order"  # keys of the details of a score file
MIN_COMPLEMENT = 1e-12  # a probability nearer to 1 has too few digits for its log-odds


def find_best_orders(masks: np.ndarray, values: np.ndarray, value: str) -> list[dict[str, list[int]]]:
    """Return each instance's optimal orders of masking and inserting, by log-odds of values (m, K) of masks (K, d).

    value: the unit of the values. Empty where coalitions are missing, d is above 16, or a value has no log-odds.
    """
    d = masks.shape[-1]
    found = [{} for _ in values]
    if masks.ndim != 2 or d > MAX_D or len(masks) != 2**d or value not in ("log_probability", "probability"):
        return found
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = values if value == "log_probability" else np.log(values)
        log_odds = log_p - np.log(-np.expm1(log_p))
    usable = (np.isfinite(log_odds) & (log_p < -MIN_COMPLEMENT)).all(axis=1)
    table = np.empty((usable.sum(), 2**d))
    table[:, masks @ (1 << np.arange(d))] = log_odds[usable]
    if len(table):
        orders = (optimal_order(table, insertion)[0].tolist() for insertion in (False, True))
        for row, masking, inserting in zip(np.flatnonzero(usable), *orders, strict=True):
            found[row] = {MASKING_ORDER: masking, INSERTION_ORDER: inserting}
    return found
