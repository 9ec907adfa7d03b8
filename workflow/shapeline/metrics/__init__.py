"""The registry of metrics: name -> typed parameters, direction, category, and where the function lives.

A metric's function takes the score rows that succeeded, and what else it needs by name; it returns a tidy frame with
columns instance, repeat, quantity, x (NaN for a scalar), value.
"""

import importlib
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(gt=0, le=1)]


class Parameters(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class LogOdds(Parameters):
    fractions: list[Fraction] | None = Field(
        None,
        min_length=1,
        description="Fractions of the features masked (or kept); every count of features when d <= 20.",
    )


class Error(Parameters):
    reference: str = Field(description="The label whose scores are the truth, usually exact Shapley.")
    top: Fraction = Field(0.2, description="Share of the features that counts as the top, for the overlap.")


class Decisive(Parameters):
    pass


class Efficiency(Parameters):
    pass


class Cost(Parameters):
    pass


@dataclass(frozen=True)
class Metric:
    """One registry entry; `quantities` maps each quantity to the direction that is better."""

    function: str
    parameters: type[Parameters]
    category: Literal["faithfulness", "accuracy", "axiom", "cost"]
    quantities: dict[str, Literal["lower", "higher"]]
    asks_model: bool = False
    asks_documents: bool = False  # what the dataset knows of its documents
    reads_snapshots: bool = False


METRICS: dict[str, Metric] = {
    "log_odds": Metric(
        "shapeline.metrics.log_odds:measure",
        LogOdds,
        "faithfulness",
        {"masking": "lower", "insertion": "higher", "masking_area": "lower", "insertion_area": "higher"},
        asks_model=True,
    ),
    "error": Metric(
        "shapeline.metrics.error:measure",
        Error,
        "accuracy",
        {"rmse": "lower", "spearman": "higher", "top_k_overlap": "higher"},
        reads_snapshots=True,
    ),
    "decisive": Metric(
        "shapeline.metrics.decisive:measure", Decisive, "accuracy", {"f1": "higher"}, asks_documents=True
    ),
    "efficiency": Metric("shapeline.metrics.bookkeeping:efficiency", Efficiency, "axiom", {"gap": "lower"}),
    "cost": Metric("shapeline.metrics.bookkeeping:cost", Cost, "cost", {"evaluations": "lower", "seconds": "lower"}),
}


def measure(name: str, rows, needs: dict):
    """Measure score rows by the metric of that name; no rows, because every one failed, give no measurements."""
    if rows.empty:
        return rows[["instance", "repeat"]].assign(quantity="", x=0.0, value=0.0)
    module, function = METRICS[name].function.split(":")
    return getattr(importlib.import_module(module), function)(rows, **needs)
