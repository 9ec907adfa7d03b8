"""Typed parameters of methods, with defaults and descriptions; the registry assigns them to methods."""

import math
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from shapeline.datasets.entries import PERCENT, USER_FILE, Positive, Strict

Plain = bool | int | float | str


class Parameters(Strict):
    """Base of the parameters of a method entry."""

    def count_evaluations(self, d: float, shape: tuple[int, ...] | None) -> float | None:
        """Return the evaluations of an instance of d features if no budget, design or gradients determine them."""
        return None


class Patch(Parameters):
    kind: Literal["patch"]
    size: Positive | Annotated[list[Positive], Field(min_length=2, max_length=2)] = Field(
        description="Side in pixels, or [height, width]."
    )


class Superpixel(Parameters):
    kind: Literal["superpixel"]
    method: Literal["slic", "quickshift"] = Field("slic", description="scikit-image's segmentation.")
    segments: Positive | None = Field(
        None, description="slic: approximate number of segments; default: 50, or a quarter of the pixels."
    )
    compactness: float | None = Field(None, gt=0, description="slic: weight of distance against colour, 10 by default.")
    kernel_size: float | None = Field(None, ge=1, description="quickshift: 4 by default.")
    max_distance: float | None = Field(None, gt=0, description="quickshift: 200 by default.")
    ratio: float | None = Field(
        None, gt=0, description="quickshift: weight of colour against distance, 0.2 by default."
    )


class MethodFeatures(Parameters):
    features: Annotated[Patch | Superpixel, Field(discriminator="kind")] | None = Field(
        None,
        description="Features instead of the experiment's pixels; each pixel's score is an equal share of its "
        "feature's.",
    )


class StoppingRule(Parameters):
    error: Annotated[float, Field(gt=0)] | Annotated[str, Field(pattern=PERCENT)] | None = Field(
        None,
        description="Target of the predicted root mean square error, in units of the value, or as a percentage of"
        " |v(N) - v(∅)|.",
    )
    top: Positive | None = Field(
        None, description="Stop when so many features with the largest scores are significantly larger than the others."
    )
    max_budget: float = Field(32, gt=0, description="Maximum of evaluations per instance, as a multiple of d.")


Budget = Annotated[
    Annotated[float, Field(gt=0), Tag("number")] | Annotated[StoppingRule, Tag("good enough")],
    Discriminator(lambda value: "good enough" if isinstance(value, dict | StoppingRule) else "number"),
]


class Sampled(MethodFeatures):
    budget: Budget | None = Field(
        None,
        description="Evaluations as a multiple of d; by default the experiment's. A mapping selects adaptive stopping.",
    )
    intermediate_budgets: list[Annotated[float, Field(gt=0)]] | None = Field(
        None, min_length=1, description="Smaller budgets whose estimates are stored too, with few further evaluations."
    )
    match_budget_of: str | None = Field(
        None, description="Name of a method entry of fixed cost, whose number of evaluations is the budget."
    )

    @property
    def most(self) -> float | None:
        """The maximum of evaluations per instance that its own budget allows, as a multiple of d."""
        return self.budget.max_budget if isinstance(self.budget, StoppingRule) else self.budget


class OnGraph(Parameters):
    graph: Literal["features", "chain", "complete"] = Field(
        "features", description="The features' own graph (grid of pixels or patches), or a graph for any features."
    )


class InWindows(OnGraph):
    order: int = Field(1, ge=0, description="Largest graph distance in a feature's window.")
    context: Literal["absent", "present"] = Field("absent", description="Features outside the window: masked, or kept.")


class LShapley(InWindows):
    samples: int | None = Field(
        None, ge=1, description="Sampled permutations inside each window, if 2^|window| is too large."
    )


class CShapley(InWindows):
    order: int = Field(4, ge=0, description="Largest graph distance in a feature's window.")
    weights: Literal["paper", "myerson"] = Field(
        "paper", description="Weights of connected sets: equation 6 as printed, or exact on any graph."
    )


class CShapleyRegression(Parameters):
    order: int = Field(4, ge=1, description="Largest run of features, or side of the largest square.")
    fit: Literal["uniform", "kernel", "printed"] = Field(
        "uniform", description="Weights of the fit: equal, the Shapley kernel, or the formula as printed."
    )
    constrained: bool = Field(False, description="Add the efficiency constraint to the fit.")


class SampleShapley(Sampled):
    antithetic: bool = Field(False, description="Each permutation is followed by its reverse.")


class Interactions(Parameters):
    index: Literal["k_sii", "stii", "fsii"] = Field(
        "k_sii", description="Interaction index: weights of a pair's differences by the size of the coalition."
    )


class SampledInteractions(Sampled, Interactions):
    pass


class GpInteractions(Sampled):
    index: Literal["k_sii", "fsii"] = Field(
        "k_sii", description="Interaction index: weights of a pair's differences by the size of the coalition."
    )


class BetaShapley(Sampled):
    alpha: float = Field(4.0, gt=0, description="Larger values give small coalitions more weight.")
    beta: float = Field(1.0, gt=0, description="Larger values give large coalitions more weight.")


class WeightedBanzhaf(Sampled):
    weight: float = Field(
        0.5, gt=0, lt=1, description="Probability that another feature is kept; 0.5 is the Banzhaf value."
    )


class Lime(Sampled):
    kernel: Literal["cosine", "fraction", "shapley"] = Field(
        "cosine",
        description="Distance of a mask from the full one: cosine distance, masked fraction; or the Shapley kernel.",
    )
    kernel_width: float = Field(0.25, gt=0, description="Width of the distance kernels.")
    ridge: float = Field(1.0, ge=0, description="Penalty of large scores.")
    n_features: int | None = Field(None, ge=1, description="Largest number of features with a score; all by default.")
    selection: Literal["lasso", "forward"] = Field("lasso", description="Selection of these features.")


class ContextCite(Sampled):
    keep_probability: float = Field(0.5, gt=0, lt=1, description="Probability that an ablation keeps a feature.")
    alpha: float = Field(0.01, ge=0, description="Penalty of the lasso, in the unit of the values.")


class LimeInput(Sampled):
    sigma: float = Field(
        0.5, gt=0, description="Width of the kernel, as a fraction of the distance to the fully masked input."
    )
    ridge: float = Field(1.0, gt=0, description="Penalty of large scores.")


class ReadsModel(Parameters):
    def count_evaluations(self, d: float, shape: tuple[int, ...] | None) -> float:
        return 2  # both ends, which the scores must add up to


class OnePass(Parameters):
    def count_evaluations(self, d: float, shape: tuple[int, ...] | None) -> float:
        return 1


class HShap(MethodFeatures):
    min_size: int = Field(1, ge=1, description="Smallest side of a leaf in cells (s).")
    threshold: float = Field(
        0.0, ge=0, description="τ: the threshold on a coefficient, or its percentile in mode relative."
    )
    mode: Literal["absolute", "relative"] = Field(
        "absolute", description="Expanded nodes: all above the threshold, or above its percentile at their depth."
    )
    leaf_score: Literal["uniform", "product"] = Field(
        "uniform", description="1/|L| on the relevant leaves, or the product of the coefficients on the path."
    )
    shifts: list[list[int]] | None = Field(
        None, min_length=1, description="Cycle spinning: the mean over partitions shifted by so many [rows, columns]."
    )

    def count_evaluations(self, d: float, shape: tuple[int, ...] | None) -> float:
        levels = max(1.0, math.log2(max(shape or (d,)) / self.min_size))
        return 14 * 8 * levels * len(self.shifts or (0,))  # 14 new coalitions per node, about 8 nodes per level


class Partition(Parameters):
    evaluations: int = Field(
        500, ge=2, description="Largest number of evaluations per instance (m), including both ends."
    )

    def count_evaluations(self, d: float, shape: tuple[int, ...] | None) -> float:
        return self.evaluations


class IntegratedGradients(Parameters):
    steps: int = Field(50, ge=2, description="Points on the path from the baseline to the input.")


class FromBackground(Parameters):
    background: Positive | None = Field(
        None,
        description="Number of training rows, sampled by seed, as the baseline; by default the experiment's baseline.",
    )


class ExpectedGradients(FromBackground):
    samples: int = Field(200, ge=1, description="Random points per instance on paths from random rows.")


class GradCam(Parameters):
    layer: str | None = Field(
        None, description="Name of the layer whose maps are weighted; by default the last convolution."
    )
    signed: bool = Field(False, description="Keep negative values instead of setting them to 0.")


class SmoothGrad(Parameters):
    samples: int = Field(50, ge=1, description="Noisy copies per instance.")
    noise: float = Field(0.15, gt=0, description="Standard deviation, as a fraction of the instance's own range.")


class OfPoints(Parameters):
    categorical: list[int | str] = Field(
        [],
        description="Columns, by name or number from 0, that are 1 if equal to the instance's value, else 0; by default"
        " the dataset's columns of three or more categories.",
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="Precision of the products.")


class Mim(OfPoints):
    alpha: Literal["constant", "inverse", "inverse_square", "gaussian"] = Field(
        "inverse_square", description="Weight of a labelled example by its distance."
    )
    width: float = Field(1.0, gt=0, description="Width of the Gaussian, in the data's units.")


class Parzen(OfPoints):
    sigma: float = Field(gt=0, description="Width of the Gaussian kernel, in the data's units.")


class DataLime(OfPoints):
    rho: float = Field(3.0, gt=0, description="Width of the Euclidean kernel, in the data's units.")
    mu: float | None = Field(None, gt=0, description="Width of the cosine-distance kernel, instead of rho.")
    ridge: float = Field(1.0, gt=0, description="Penalty of large slopes.")
    classifier: Literal["line", "step"] = Field(
        "line",
        description="The fitted function: a line, or a step at the instance (classification), whose score has "
        "length 1.",
    )


class AugmentedMim(Mim):
    count: int = Field(100, ge=1, description="Number of rows around an instance that the model labels.")
    spread: float = Field(0.1, gt=0, description="Their standard deviation, as a fraction of that of each column.")

    def count_evaluations(self, d: float, shape: tuple[int, ...] | None) -> float:
        return self.count


class Qii(Parameters):
    permutations: int = Field(
        1000, ge=1, description="Permutations per instance above 12 features; up to 12 features it is exact."
    )

    def count_evaluations(self, d: float, shape: tuple[int, ...] | None) -> float:
        return 2.0**d if d <= 12 else self.permutations * d


class PeerShapPartition(Sampled):
    fixed_context: Literal[0, 1] | None = Field(
        None,
        description="0 or 1: follow only one branch of each split, as the library does for images; both by default.",
    )


class PeerShapiq(Sampled):
    approximator: Literal[
        *("KernelSHAP", "kADDSHAP", "UnbiasedKernelSHAP", "SVARM", "OwenSamplingSV", "StratifiedSamplingSV"),
        *("PermutationSamplingSV", "SPEX", "ProxySPEX", "OddSHAP", "RegressionMSR", "ProxySHAP", "ShaplEIG"),
        *("LeverageSHAP", "PolySHAP"),
    ] = Field("KernelSHAP", description="Name in the library; availability depends on its release.")
    python: str | None = Field(
        None, min_length=1, description="Interpreter of another environment, whose shapiq is run: path/to/bin/python."
    )


class PeerCaptumLlm(Sampled):
    explainer: Literal["shapley_sampling", "feature_ablation", "kernel_shap"] = Field(
        "shapley_sampling", description="Method of the library."
    )


class External(Parameters):
    path: str = Field(description="Parquet or CSV file of scores computed elsewhere; $VARIABLES expand.")


class CustomFixedMethod(MethodFeatures):
    method: str = Field(pattern=USER_FILE, description="path/to/file.py:function that returns a Design.")
    parameters: dict[str, Plain | list[Plain]] = Field({}, description="Arguments of the function by name.")


class CustomMethod(Sampled, CustomFixedMethod):
    """An entry of a user-defined function with a budget; one without is a CustomFixedMethod."""


def kernel_minimum(d: int) -> int:
    """Return the evaluations that a kernel fit of d scores needs: 2d, or all."""
    return min(2 * d, 2**d)


def permutation_minimum(d: int) -> int:
    """Return the evaluations of one permutation with both of its ends."""
    return d + 1


def pair_minimum(d: int) -> int:
    """Return the evaluations of one permutation and its reverse."""
    return 2 * d


def split_minimum(d: int) -> int:
    """Return the evaluations of one split of all features."""
    return min(4, d + 1)


def fit_minimum(d: int) -> int:
    """Return the evaluations of a ridge fit, which any number determines."""
    return 2
