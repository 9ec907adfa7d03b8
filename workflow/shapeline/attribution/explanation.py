"""What a method said of some instances: scores, cost, values of both ends, status."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.games.features import Features


@dataclass
class Explanation:
    """Scores of n instances by one method (one repeat of it).

    scores (n, *feature shape), NaN where the method failed; evaluations (n,) coalitions whose value was asked for;
    seconds (n,) by run.py, the design's construction shared out; target (n,) explained class, 0 where none;
    value_full and value_empty (n,) values of the whole input and of the reference, NaN without a model; status and
    error (n,) "ok" or why not. standard_error: of the shape of scores, the 95 % half-width of each over 1.96 by what
    was drawn; None where the method has none. interaction_values (n, d (d-1) / 2): interactions of pairs of features in
    row-major upper-triangle order, of a method whose scores add up with them alone; None of any other.
    interactions_standard_error: of their shape, as `standard_error`.
    """

    scores: np.ndarray
    evaluations: np.ndarray
    seconds: np.ndarray
    target: np.ndarray
    value_full: np.ndarray
    value_empty: np.ndarray
    status: list[str] = field(default_factory=list)
    error: list[str | None] = field(default_factory=list)
    details: list[dict] = field(default_factory=list)  # what a method says of each instance beside its scores
    warning: list[str | None] = field(default_factory=list)  # what is to be known of an explanation that did not fail
    standard_error: np.ndarray | None = None
    interaction_values: np.ndarray | None = None
    interactions_standard_error: np.ndarray | None = None

    def fail(self, places: Iterable[int], failure: ShapelineError, status: str) -> None:
        """Note why the instances at these positions have no scores."""
        for place in places:
            self.status[place], self.error[place] = status, str(failure)

    def at(self, order: np.ndarray) -> "Explanation":
        """Return the instances at these positions."""
        return Explanation(**{name: _take(values, order) for name, values in vars(self).items()})


def _take(values, order: np.ndarray):
    return values if values is None else [values[i] for i in order] if isinstance(values, list) else values[order]


def blank(n: int, features: Features, targets: np.ndarray) -> Explanation:
    """Return an explanation of n instances that nothing was stated of yet."""
    numbers = {name: np.full(n, np.nan) for name in ("value_full", "value_empty")}
    return Explanation(
        scores=np.full((n, *features.shape), np.nan),
        evaluations=np.zeros(n, dtype=np.int64),
        seconds=np.zeros(n),
        target=np.asarray(targets, dtype=np.int64),
        **numbers,
        status=["ok"] * n,
        error=[None] * n,
        details=[{} for _ in range(n)],
        warning=[None] * n,
    )
