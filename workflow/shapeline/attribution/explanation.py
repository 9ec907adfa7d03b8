"""The result of a method on instances: scores, cost, values of both ends, status."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from shapeline.designs.stopping import StoppingCriterion
from shapeline.errors import ShapelineError
from shapeline.games.features import Features

GRADIENT_EVALUATIONS = 3  # a forward pass, and a backward pass of about twice its work
NOISE = 8 * np.finfo(float).eps  # share of a value that scores of equal values may be off, by averages and read-outs
OPTIONAL = ("standard_error", "interaction_values", "interactions_standard_error")  # of scores; None if not estimated


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

    def drop_noise(self, positions: np.ndarray) -> None:
        """Set scores of these instances to 0 that are rounding errors of the values which they are differences of."""
        noise = NOISE * np.maximum(np.abs(self.value_full[positions]), np.abs(self.value_empty[positions]))
        for scores in (self.scores, self.interaction_values):
            if scores is not None:
                part = scores[positions]
                part[np.abs(part) <= noise.reshape(-1, *[1] * (part.ndim - 1))] = 0
                scores[positions] = part

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


def build_rows(
    explanation: Explanation,
    instances: Sequence[int],
    repeat: int,
    budget: float | StoppingCriterion | None,
    sizes: Sequence[int | None] = (),
) -> pd.DataFrame:
    """Return the score rows of an explanation, without those columns that a job adds; sizes: the number of features of
    each instance, where it is not that of all."""
    sizes = sizes or [None] * len(explanation.status)
    n_pairs = [None if size is None else size * (size - 1) // 2 for size in sizes]

    def list_numbers(name: str, sizes: Sequence[int | None], any_number: bool = False) -> pd.Series:
        """Return the numbers of each instance, None where it failed or, except scores, where one is not finite."""
        if (numbers := getattr(explanation, name)) is None:
            return pd.Series([None] * len(sizes), dtype=object)
        flat = numbers.reshape(len(numbers), math.prod(numbers.shape[1:])).astype(np.float32)
        cells = [
            row[:size] if status == "ok" and (any_number or np.isfinite(row[:size]).all()) else None
            for row, size, status in zip(flat, sizes, explanation.status, strict=True)
        ]
        return pd.Series(cells, dtype=object)

    same = "target evaluations seconds value_full value_empty status error warning".split()
    return pd.DataFrame(
        {
            "instance": np.asarray(instances),
            "repeat": repeat,
            "budget": None if isinstance(budget, StoppingCriterion) else budget,
            "scores": list_numbers("scores", sizes, any_number=True),
            "standard_error": list_numbers("standard_error", sizes),
            "interactions": list_numbers("interaction_values", n_pairs),
            "interactions_standard_error": list_numbers("interactions_standard_error", n_pairs),
            **{name: getattr(explanation, name) for name in same},
            "details": [json.dumps(details) if details else None for details in explanation.details],
        }
    )
