"""The result of a method on instances: scores, cost, values of both ends, status."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.games.features import Features

GRADIENT_EVALUATIONS = 3  # a forward pass, and a backward pass of about twice its work


@dataclass
class Explanation:
    """Scores of n instances by one method, in one repeat.

    scores (n, *feature shape), NaN where the method failed; evaluations (n,) coalitions whose value was requested;
    seconds (n,), with an equal share of the design's construction; target (n,) explained class, 0 without one;
    value_full and value_empty (n,) values of the full input and of the reference, NaN without a model; status and
    error (n,) "ok" or the reason of failure. standard_error: of the shape of scores, the 95 % half-width due to
    sampling over 1.96; None where the method has none. interaction_values (n, d (d-1) / 2): interactions of pairs of
    features in row-major upper-triangle order, of methods whose main effects and interactions sum to v(N) - v(empty);
    else None. interactions_standard_error: of their shape, as `standard_error`.
    """

    scores: np.ndarray
    evaluations: np.ndarray
    seconds: np.ndarray
    target: np.ndarray
    value_full: np.ndarray
    value_empty: np.ndarray
    status: list[str] = field(default_factory=list)
    error: list[str | None] = field(default_factory=list)
    details: list[dict] = field(default_factory=list)  # method-specific results per instance
    warning: list[str | None] = field(default_factory=list)  # warning about a successful explanation
    standard_error: np.ndarray | None = None
    interaction_values: np.ndarray | None = None
    interactions_standard_error: np.ndarray | None = None

    def fail(self, positions: Iterable[int], failure: ShapelineError, status: str) -> None:
        """Record why the instances at these positions have no scores."""
        for position in positions:
            self.status[position], self.error[position] = status, str(failure)

    def at(self, order: np.ndarray) -> "Explanation":
        """Return the instances at these positions."""
        fields = {name: values for name, values in vars(self).items() if values is not None}
        return Explanation(
            **{name: [v[i] for i in order] if isinstance(v, list) else v[order] for name, v in fields.items()}
        )


def build_blank(n: int, features: Features, targets: np.ndarray) -> Explanation:
    """Return an empty explanation of n instances."""
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
