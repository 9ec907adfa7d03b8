"""The registry of metrics: name -> function, typed parameters, direction, category, and properties.

A metric is a function in a separate file and an entry here; no other code lists metrics by their properties.
A metric's function takes the successful score rows, and further arguments by name (metrics/scored_rows.py); it
returns a tidy frame with columns instance, repeat, statistic, x (NaN for a scalar), value."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, create_model

from shapeline.datasets.entries import USER_FILE, Strict

Fraction = Annotated[float, Field(gt=0, le=1)]


class Parameters(Strict):
    """The parameters of a metric's entry."""

    def rows(self) -> int:
        """Return the model rows per instance, method and repeat."""
        return 0

    def explanations(self) -> int:
        """Return the additional explanations per instance and method."""
        return 0


class LogOdds(Parameters):
    fractions: list[Fraction] | None = Field(
        None,
        min_length=1,
        description="Masked (or kept) fractions of the features; every number of features if d <= 20.",
    )
    references: list[Literal["zero", "mean", "mean_image", "blur"]] | None = Field(
        None, min_length=1, description="Further baselines for which the AUCs are measured."
    )

    def rows(self) -> int:
        return 2 * len(self.fractions or range(16)) * (1 + len(self.references or ()))


class Randomisation(Parameters):
    layers: list[Annotated[int, Field(ge=1)] | Literal["full"]] = Field(
        ["full"],
        min_length=1,
        description="Randomised models to compare: number of re-initialised last layers, or full for all.",
    )


class Error(Parameters):
    reference: str = Field(description="Method entry whose scores are the ground truth, usually exact Shapley values.")
    top: Fraction = Field(0.2, description="Top fraction of the features for the overlap.")


class Ablation(Parameters):
    sizes: int = Field(200, ge=2, description="Largest number of sizes of removed sets, from 1 to d.")

    def rows(self) -> int:
        return 2 * self.sizes


class Erasure(Parameters):
    fractions: list[Fraction] | None = Field(
        None, min_length=1, description="Top fractions to average over; by default 1, 5, 10, 20 and 50 %."
    )

    def rows(self) -> int:
        return 1 + 2 * len(self.fractions or range(5))


class Infidelity(Parameters):
    samples: int = Field(100, ge=2, description="Number of random sets of masked features.")

    def rows(self) -> int:
        return 1 + self.samples


class Sensitivity(Parameters):
    samples: int = Field(10, ge=1, description="Perturbed inputs per instance, each explained again.")
    radius: float = Field(0.02, gt=0, description="Largest change of a cell, as a fraction of the inputs' range.")

    def explanations(self) -> int:
        return self.samples


class CustomMetric(Parameters):
    functions: dict[str, Annotated[str, Field(pattern=USER_FILE)]] = Field(
        min_length=1, description="Name -> path/to/file.py:function, which returns a number per row; lower is better."
    )


@dataclass(frozen=True)
class Metric:
    """A registry entry; `quantities` maps each statistic to its better direction."""

    function: str
    category: Literal["faithfulness", "accuracy", "robustness", "axiom", "cost"]
    statistics: dict[str, Literal["lower", "higher"]]
    parameters: type[Parameters] = Parameters
    evaluates_model: bool = False
    needs_logit: bool = False  # logits of a network, besides probabilities
    needs_documents: bool = False  # annotations of the dataset's documents
    needs_ground_truth: bool = False  # the pixels that decide the class
    needs_randomised: bool = False  # scores of models with randomised layers
    of_values: bool = False  # values of the full and the empty coalition, from the score file
    moves_inputs: bool = False  # explains perturbed inputs
    lacks: str = ""  # the missing quantity of a regression
    reads_snapshots: bool = False
    reads_all_rows: bool = False  # of a method at once, since an instance's value may depend on others
    shares_axis: bool = False  # of its curves, which ends at the largest number of features
    paired: bool = False  # ranks methods, by paired comparisons and over training seeds

    @property
    def reads_data(self) -> bool:
        """Whether it needs more than scores: instances, annotations of the dataset, or model outputs."""
        return self.evaluates_model or self.needs_documents or self.needs_ground_truth or self.needs_randomised

    @property
    def needs_model(self) -> bool:
        return self.evaluates_model or self.needs_randomised or self.of_values


def _name_parameters(name: str, entry: Metric) -> Metric:
    """Return the entry with a parameter class named after it, for the schema."""
    title = "".join(part.capitalize() for part in name.split("_"))
    return replace(entry, parameters=create_model(title, __base__=entry.parameters, __module__=__name__))


METRICS: dict[str, Metric] = {
    "log_odds": Metric(
        "shapeline.metrics.log_odds:measure",
        "faithfulness",
        {"deletion": "lower", "insertion": "higher", "deletion_auc": "lower", "insertion_auc": "higher"},
        LogOdds,
        evaluates_model=True,
        lacks="probabilities and so no odds",
        paired=True,
    ),
    "error": Metric(
        "shapeline.metrics.error:measure",
        "accuracy",
        {"rmse": "lower", "spearman": "higher", "top_k_overlap": "higher"},
        Error,
        reads_snapshots=True,
        paired=True,
    ),
    "ground_truth_words": Metric(
        "shapeline.metrics.ground_truth:measure_words", "accuracy", {"f1": "higher"}, needs_documents=True, paired=True
    ),
    "randomisation": Metric(
        "shapeline.metrics.error:compare_randomised",
        "axiom",
        {"rank_correlation": "lower", "rank_correlation_absolute": "lower", "ssim": "lower"},
        Randomisation,
        needs_randomised=True,
    ),
    "localization": Metric(
        "shapeline.metrics.ground_truth:measure_pixels",
        "accuracy",
        dict.fromkeys(("f1", "f1_best", "f1_equal_area", "auprc", "iou", "iou_equal_area", "pointing"), "higher"),
        needs_ground_truth=True,
        paired=True,
    ),
    "ablation": Metric(
        "shapeline.metrics.ablation:measure",
        "faithfulness",
        dict.fromkeys(("logit", "probability", "logit_area", "probability_area"), "lower"),
        Ablation,
        evaluates_model=True,
        needs_logit=True,
        shares_axis=True,
        lacks="logits nor probabilities",
    ),
    "erasure": Metric(
        "shapeline.metrics.ablation:measure_erasure",
        "faithfulness",
        {"comprehensiveness": "higher", "sufficiency": "lower"},
        Erasure,
        evaluates_model=True,
        lacks="logits nor probabilities",
    ),
    "infidelity": Metric(
        "shapeline.metrics.infidelity:measure",
        "faithfulness",
        {"infidelity": "lower", "infidelity_scaled": "lower"},
        Infidelity,
        evaluates_model=True,
    ),
    "sensitivity": Metric(
        "shapeline.metrics.infidelity:measure_sensitivity",
        "robustness",
        {"max_sensitivity": "lower"},
        Sensitivity,
        evaluates_model=True,
        moves_inputs=True,
    ),
    "own": Metric(
        "shapeline.metrics.bookkeeping:measure_functions",
        "faithfulness",
        {},
        CustomMetric,
        evaluates_model=True,
        reads_all_rows=True,
        paired=True,
    ),
    "prompts": Metric(
        "shapeline.metrics.bookkeeping:collect_prompts",
        "faithfulness",
        {
            "deletion_auc": "lower",
            "insertion_auc": "higher",
            "top_k_drop": "higher",
            "datamodeling": "higher",
            "precision": "higher",
            "recall": "higher",
        },
        paired=True,
    ),
    "efficiency": Metric("shapeline.metrics.bookkeeping:measure_efficiency", "axiom", {"gap": "lower"}, of_values=True),
    "cost": Metric("shapeline.metrics.bookkeeping:measure_cost", "cost", {"evaluations": "lower", "seconds": "lower"}),
}
METRICS = {name: _name_parameters(name, entry) for name, entry in METRICS.items()}
PAIRED = tuple(sorted(name for name, entry in METRICS.items() if entry.paired))
DESIGN_ARGUMENTS = ("rows", "model", "inputs", "buckets", "reference", "backend", "form", "seed")
