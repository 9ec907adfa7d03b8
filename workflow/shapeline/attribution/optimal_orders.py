"""The orders of masking and insertion that no method can better, where a label has the values of all coalitions."""

import numpy as np

from shapeline.designs.orders import MOST, optimal_order

MASKING, INSERTION = "masking_order", "insertion_order"  # in what a score file says beside the scores
SURE = 1e-12  # a probability nearer to 1 than this has lost the digits that its odds are made of


def best_orders(masks: np.ndarray, values: np.ndarray, value: str) -> list[dict[str, list[int]]]:
    """Of each instance its best orders, features in the order that they are masked, or inserted, in.

    masks (K, d) of all instances and values (m, K); value: what they are. The areas are of log-odds, so the values have
    to be log-probabilities, or probabilities. Nothing is said where coalitions are missing, d is above 16, or a value
    has no log-odds.
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
