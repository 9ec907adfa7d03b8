"""The registry of attribution methods: name -> typed parameters, family, and where the function lives.

A method's function names, as its arguments, what it needs: `d`, `shape`, `graph`, `budget` and `seed` for a design;
`model`, `inputs`, `targets`, `reference`, `features`, `value`, `instances` for one that makes scores itself; and its
own parameters. It returns a `Design`, or `(scores (n, d), evaluations per instance)`, and perhaps a third thing:
name -> a number an instance, with "flag" a text or None.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_EXACT = 20


class Parameters(BaseModel):
    """What every method entry may say."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Sampled(Parameters):
    budget: float | None = Field(None, gt=0, description="Evaluations as a multiple of d; the experiment's by default.")
    snapshots: list[Annotated[float, Field(gt=0)]] | None = Field(
        None, min_length=1, description="Smaller budgets whose estimates are kept too; no coalition is evaluated twice."
    )
    rival_of: str | None = Field(
        None, description="Label of a fixed-cost method: the budget is the number of evaluations that it spends."
    )


class OnGraph(Parameters):
    graph: Literal["features", "chain", "complete"] = Field(
        "features", description="The features' own graph (grid of pixels or patches), or one laid over any features."
    )
    order: int = Field(1, ge=0, description="Graph distance that a feature's window reaches.")
    context: Literal["absent", "present"] = Field(
        "absent", description="Features outside the window: at the reference, or kept."
    )


class Shapley(Parameters):
    method: Literal["shapley"]


class Banzhaf(Parameters):
    method: Literal["banzhaf"]


class Myerson(Parameters):
    method: Literal["myerson"]
    graph: Literal["features", "chain", "complete"] = "features"


class LShapley(OnGraph):
    method: Literal["l_shapley"]
    samples: int | None = Field(
        None, ge=1, description="Permutations inside each window, where 2^|window| is too large."
    )


class CShapley(OnGraph):
    method: Literal["c_shapley"]
    order: int = Field(4, ge=0, description="Graph distance that a feature's window reaches.")
    weights: Literal["paper", "myerson"] = "paper"


class CShapleyRegression(Parameters):
    method: Literal["c_shapley_regression"]
    order: int = Field(4, ge=1, description="Longest run of features, or side of the largest square.")
    fit: Literal["uniform", "kernel", "printed"] = "uniform"
    constrained: bool = Field(False, description="Add the efficiency constraint to the fit.")


class KernelShap(Sampled):
    method: Literal["kernel_shap"]


class SampleShapley(Sampled):
    method: Literal["sample_shapley"]
    antithetic: bool = Field(False, description="Each permutation is followed by its reverse.")


class Lime(Sampled):
    method: Literal["lime"]
    kernel: Literal["cosine", "fraction", "shapley"] = "cosine"
    kernel_width: float = Field(0.25, gt=0)
    ridge: float = Field(1.0, ge=0)
    keep: int | None = Field(None, ge=1, description="At most so many features score; all by default.")
    selection: Literal["lasso", "forward"] = Field("lasso", description="How the features kept are chosen.")


class Occlusion(Parameters):
    method: Literal["occlusion"]


class Random(Parameters):
    method: Literal["random"]


class Saliency(Parameters):
    method: Literal["saliency"]


class GradientXInput(Parameters):
    method: Literal["gradient_x_input"]


class IntegratedGradients(Parameters):
    method: Literal["integrated_gradients"]
    steps: int = Field(50, ge=2, description="Points on the path from the reference to the input.")


class OfPoints(Parameters):
    categorical: list[int | str] = Field(
        [],
        description="Columns, by name or number from 0, that count as 1 where equal to the instance's value, else 0.",
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="Precision of the products.")


class Mim(OfPoints):
    method: Literal["mim"]
    alpha: Literal["constant", "inverse", "inverse_square", "gaussian"] = Field(
        "inverse_square", description="Weight of a labelled point by its distance."
    )
    width: float = Field(1.0, gt=0, description="Of the gaussian, in the data's units.")


class Parzen(OfPoints):
    method: Literal["parzen"]
    sigma: float = Field(gt=0, description="Width of the Gaussian kernel, in the data's units.")


class DataLime(OfPoints):
    method: Literal["data_lime"]
    rho: float = Field(3.0, gt=0, description="Width of the Euclidean kernel, in the data's units.")
    mu: float | None = Field(None, gt=0, description="Width of the kernel of cosine distance, in place of rho.")
    ridge: float = Field(1.0, gt=0)


class Qii(Parameters):
    method: Literal["qii"]
    permutations: int = Field(1000, ge=1, description="Orders an instance, above 12 features; up to 12 it is exact.")


class Counterfactual(Parameters):
    method: Literal["counterfactual"]


@dataclass(frozen=True)
class Method:
    """One registry entry; `function` is "module:function" inside the package, imported only when it runs."""

    family: Literal["coalitions", "hierarchical", "gradients", "data", "peers"]
    function: str  # "{framework}" in it stands for torch or tf
    parameters: type[Parameters]
    minimum: str | None = None  # "module:function" of d: the smallest budget in evaluations
    control: bool = False
    exact: bool = False  # enumerates 2^d coalitions
    grid: bool = False  # needs features that lie on a grid
    measure: str | None = None  # "module:function" that the function of a data method is given as `measure`
    asks_model: bool = True

    @property
    def sampled(self) -> bool:
        return issubclass(self.parameters, Sampled)

    @property
    def is_fixed_cost(self) -> bool:
        return self.is_design and not self.sampled

    def function_for(self, framework: str | None) -> str:
        """ "module:function" for a model of this framework."""
        return self.function.format(framework="tf" if framework == "tensorflow" else "torch")

    @property
    def is_design(self) -> bool:
        return self.function.startswith("shapeline.designs.")


METHODS: dict[str, Method] = {
    "shapley": Method("coalitions", "shapeline.designs.exact:shapley", Shapley, exact=True),
    "banzhaf": Method("coalitions", "shapeline.designs.exact:banzhaf", Banzhaf, exact=True),
    "myerson": Method("coalitions", "shapeline.designs.exact:myerson", Myerson),
    "l_shapley": Method("coalitions", "shapeline.designs.local:l_shapley", LShapley),
    "c_shapley": Method("coalitions", "shapeline.designs.connected:c_shapley", CShapley),
    "c_shapley_regression": Method(
        "coalitions", "shapeline.designs.connected:c_shapley_regression", CShapleyRegression, grid=True
    ),
    "kernel_shap": Method(
        "coalitions",
        "shapeline.designs.sampled:kernel_shap",
        KernelShap,
        minimum="shapeline.designs.sampled:kernel_shap_minimum",
    ),
    "sample_shapley": Method(
        "coalitions",
        "shapeline.designs.sampled:sample_shapley",
        SampleShapley,
        minimum="shapeline.designs.sampled:sample_shapley_minimum",
    ),
    "lime": Method(
        "coalitions", "shapeline.designs.surrogate:lime", Lime, minimum="shapeline.designs.surrogate:lime_minimum"
    ),
    "occlusion": Method("coalitions", "shapeline.designs.exact:occlusion", Occlusion, control=True),
    "random": Method("coalitions", "shapeline.controls:random", Random, control=True, asks_model=False),
    "saliency": Method("gradients", "shapeline.gradients.{framework}_gradients:saliency", Saliency),
    "gradient_x_input": Method(
        "gradients", "shapeline.gradients.{framework}_gradients:gradient_x_input", GradientXInput, control=True
    ),
    "integrated_gradients": Method(
        "gradients", "shapeline.gradients.{framework}_gradients:integrated_gradients", IntegratedGradients
    ),
    "mim": Method(
        "data",
        "shapeline.data_methods:around_points",
        Mim,
        measure="shapeline.influence.mim:mim",
        asks_model=False,
    ),
    "parzen": Method(
        "data",
        "shapeline.data_methods:around_points",
        Parzen,
        measure="shapeline.influence.parzen:parzen",
        asks_model=False,
    ),
    "data_lime": Method(
        "data",
        "shapeline.data_methods:around_points",
        DataLime,
        measure="shapeline.influence.local_linear:data_lime",
        asks_model=False,
    ),
    "qii": Method("data", "shapeline.data_methods:of_outputs", Qii, measure="shapeline.influence.qii:qii"),
    "counterfactual": Method(
        "data",
        "shapeline.data_methods:of_pairs",
        Counterfactual,
        measure="shapeline.influence.counterfactual:counterfactual",
        asks_model=False,
    ),
}


def function_of(reference: str) -> Callable:
    """The function named by "module:function"."""
    module, name = reference.split(":")
    return getattr(importlib.import_module(module), name)


def call(function: Callable, available: dict) -> object:
    """Call `function` with those of the available values that its signature names."""
    return function(**{name: available[name] for name in inspect.signature(function).parameters if name in available})
