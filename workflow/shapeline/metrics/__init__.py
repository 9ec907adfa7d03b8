"""The registry of metrics: name -> typed parameters, direction, category, and where the function lives.

A metric's function takes the score rows that succeeded, and what else it needs by name (metrics/needs.py); it returns a
tidy frame with columns instance, repeat, quantity, x (NaN for a scalar), value.
"""

import importlib
import inspect
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
    references: list[Literal["zero", "mean", "mean_image", "blur"]] | None = Field(
        None,
        min_length=1,
        description="The areas are measured with these in place of absent features too, beside the experiment's own.",
    )


class Randomisation(Parameters):
    layers: list[Annotated[int, Field(ge=1)] | Literal["full"]] = Field(
        ["full"],
        min_length=1,
        description="Models compared with the trained one: so many last layers drawn anew, or all (full).",
    )


class Error(Parameters):
    reference: str = Field(description="The label whose scores are the truth, usually exact Shapley.")
    top: Fraction = Field(0.2, description="Share of the features that counts as the top, for the overlap.")


class Decisive(Parameters):
    pass


class Localization(Parameters):
    pass


class Ablation(Parameters):
    sizes: int = Field(200, ge=2, description="At most so many numbers of features removed, from 1 to d.")


class Erasure(Parameters):
    fractions: list[Fraction] | None = Field(
        None, min_length=1, description="Top fractions averaged over: 1, 5, 10, 20 and 50 % by default."
    )


class Infidelity(Parameters):
    samples: int = Field(100, ge=2, description="Random sets of features that are put at the reference.")


class Sensitivity(Parameters):
    samples: int = Field(10, ge=1, description="Moved inputs an instance, each explained anew.")
    radius: float = Field(0.02, gt=0, description="How far a cell moves at most, as a share of the inputs' range.")


class Efficiency(Parameters):
    pass


class Cost(Parameters):
    pass


class Own(Parameters):
    functions: dict[str, Annotated[str, Field(pattern=r"^[^:]+\.py:[A-Za-z_]\w*$")]] = Field(
        min_length=1, description="Name -> path/to/file.py:function, which returns a number a row; lower is better."
    )


@dataclass(frozen=True)
class Metric:
    """One registry entry; `quantities` maps each quantity to the direction that is better."""

    function: str
    parameters: type[Parameters]
    category: Literal["faithfulness", "accuracy", "robustness", "axiom", "cost"]
    quantities: dict[str, Literal["lower", "higher"]]
    asks_model: bool = False
    asks_documents: bool = False  # what the dataset knows of its documents
    asks_truth: bool = False  # the pixels that decide the class
    asks_randomised: bool = False  # the same scores of models whose layers were drawn anew
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
    "randomisation": Metric(
        "shapeline.metrics.randomisation:measure",
        Randomisation,
        "axiom",
        {"rank_correlation": "lower", "rank_correlation_absolute": "lower", "ssim": "lower"},
        asks_randomised=True,
    ),
    "localization": Metric(
        "shapeline.metrics.localization:measure",
        Localization,
        "accuracy",
        dict.fromkeys(("f1", "f1_best", "f1_equal_area", "auprc", "iou", "iou_equal_area", "pointing"), "higher"),
        asks_truth=True,
    ),
    "ablation": Metric(
        "shapeline.metrics.ablation:measure",
        Ablation,
        "faithfulness",
        dict.fromkeys(("logit", "probability", "logit_area", "probability_area"), "lower"),
        asks_model=True,
    ),
    "erasure": Metric(
        "shapeline.metrics.erasure:measure",
        Erasure,
        "faithfulness",
        {"comprehensiveness": "higher", "sufficiency": "lower"},
        asks_model=True,
    ),
    "infidelity": Metric(
        "shapeline.metrics.infidelity:measure",
        Infidelity,
        "faithfulness",
        {"infidelity": "lower", "infidelity_scaled": "lower"},
        asks_model=True,
    ),
    "sensitivity": Metric(
        "shapeline.metrics.sensitivity:measure",
        Sensitivity,
        "robustness",
        {"max_sensitivity": "lower"},
        asks_model=True,
    ),
    "own": Metric("shapeline.metrics.own:measure", Own, "faithfulness", {}, asks_model=True),
    "efficiency": Metric("shapeline.metrics.bookkeeping:efficiency", Efficiency, "axiom", {"gap": "lower"}),
    "cost": Metric("shapeline.metrics.bookkeeping:cost", Cost, "cost", {"evaluations": "lower", "seconds": "lower"}),
}


OWN_TAKES = ("rows", "model", "inputs", "buckets", "reference", "form", "seed")  # what a metric of one's own is given
# Those that rank methods: reports compare them pair by pair, and experiments with seeds over trainings.
PAIRED = ("decisive", "error", "localization", "log_odds", "own")


def measure(name: str, rows, needs: dict):
    """Measure score rows by the metric of that name; no rows, because every one failed, give no measurements."""
    if rows.empty:
        return rows[["instance", "repeat"]].assign(quantity="", x=0.0, value=0.0)
    module, function = METRICS[name].function.split(":")
    function = getattr(importlib.import_module(module), function)
    named = inspect.signature(function).parameters
    return function(rows, **{key: needs[key] for key in named if key in needs})
