"""The registry of attribution methods: name -> typed parameters, family, and where the function lives.

A method's function names, as its arguments, what it needs: `d`, `shape`, `graph`, `budget` and `seed` for a design;
`model`, `inputs`, `targets`, `reference`, `features`, `value`, `form`, `instances`, `seed` and, where it is sampled,
`budget` (evaluations an instance) for one that makes scores itself; and its own parameters. It returns a `Design`, or
`(scores (n, d), evaluations per instance)`, and perhaps a third thing: name -> a number an instance, with "flag" a text
or None.
"""

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from shapeline.datasets import expand, user_function
from shapeline.errors import ShapelineError, nearest

MAX_EXACT = 20
USER_FILE = r"^[^:]+\.py:[A-Za-z_]\w*$"
Positive = Annotated[int, Field(ge=1)]


class Parameters(BaseModel):
    """What every method entry may say."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Patch(Parameters):
    kind: Literal["patch"]
    size: Positive | Annotated[list[Positive], Field(min_length=2, max_length=2)] = Field(
        description="Side in pixels, or [height, width]."
    )


class Superpixel(Parameters):
    kind: Literal["superpixel"]
    method: Literal["slic", "quickshift"] = Field("slic", description="scikit-image's segmentation.")
    segments: Positive | None = Field(None, description="slic: about how many, 50 by default.")
    compactness: float | None = Field(None, gt=0, description="slic: weight of distance against colour, default 10.")
    kernel_size: float | None = Field(None, ge=1, description="quickshift: 4 by default.")
    max_distance: float | None = Field(None, gt=0, description="quickshift: 200 by default.")
    ratio: float | None = Field(None, gt=0, description="quickshift: weight of colour against distance, default 0.2.")


class OwnFeatures(Parameters):
    features: Annotated[Patch | Superpixel, Field(discriminator="kind")] | None = Field(
        None,
        description="In place of the experiment's pixels; each pixel's score is then an equal share of its feature's.",
    )


class Sampled(OwnFeatures):
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
    graph: Literal["features", "chain", "complete"] = Field(
        "features", description="The features' own graph (grid of pixels or patches), or one laid over any features."
    )


class LShapley(OnGraph):
    method: Literal["l_shapley"]
    samples: int | None = Field(
        None, ge=1, description="Permutations inside each window, where 2^|window| is too large."
    )


class CShapley(OnGraph):
    method: Literal["c_shapley"]
    order: int = Field(4, ge=0, description="Graph distance that a feature's window reaches.")
    weights: Literal["paper", "myerson"] = Field(
        "paper", description="Of connected sets: equation 6 as printed, or exact on any graph."
    )


class CShapleyRegression(Parameters):
    method: Literal["c_shapley_regression"]
    order: int = Field(4, ge=1, description="Longest run of features, or side of the largest square.")
    fit: Literal["uniform", "kernel", "printed"] = Field(
        "uniform", description="Weights of the fit: equal, the Shapley kernel's, or the formula as printed."
    )
    constrained: bool = Field(False, description="Add the efficiency constraint to the fit.")


class KernelShap(Sampled):
    method: Literal["kernel_shap"]


class SampleShapley(Sampled):
    method: Literal["sample_shapley"]
    antithetic: bool = Field(False, description="Each permutation is followed by its reverse.")


class Lime(Sampled):
    method: Literal["lime"]
    kernel: Literal["cosine", "fraction", "shapley"] = Field(
        "cosine",
        description="How far a mask is from the full one: cosine distance, share absent; or Shapley's weights.",
    )
    kernel_width: float = Field(0.25, gt=0, description="Of the kernels of distance.")
    ridge: float = Field(1.0, ge=0, description="Penalty of large scores.")
    keep: int | None = Field(None, ge=1, description="At most so many features score; all by default.")
    selection: Literal["lasso", "forward"] = Field("lasso", description="How the features kept are chosen.")


class Occlusion(OwnFeatures):
    method: Literal["occlusion"]


class Random(Parameters):
    method: Literal["random"]


class HShap(OwnFeatures):
    method: Literal["h_shap"]
    min_size: int = Field(1, ge=1, description="Cells that a side of a leaf keeps at least (s).")
    threshold: float = Field(
        0.0, ge=0, description="τ: what a coefficient must exceed, or its percentile in mode relative."
    )
    mode: Literal["absolute", "relative"] = Field(
        "absolute", description="Nodes expanded: all above the threshold, or above its percentile at their depth."
    )
    leaf_score: Literal["uniform", "product"] = Field(
        "uniform", description="1/|L| on the relevant leaves, or the product of the coefficients on the path."
    )
    shifts: list[list[int]] | None = Field(
        None, min_length=1, description="Cycle spinning: the mean over partitions moved by so many [rows, columns]."
    )


class Partition(Parameters):
    method: Literal["partition"]
    evaluations: int = Field(500, ge=2, description="Of an instance at most (m), both ends among them.")


class Saliency(Parameters):
    method: Literal["saliency"]


class GradientXInput(Parameters):
    method: Literal["gradient_x_input"]


class IntegratedGradients(Parameters):
    method: Literal["integrated_gradients"]
    steps: int = Field(50, ge=2, description="Points on the path from the reference to the input.")


class ExpectedGradients(Parameters):
    method: Literal["expected_gradients"]
    samples: int = Field(200, ge=1, description="Points of an instance, at random on paths from random rows.")


class DeepLift(Parameters):
    method: Literal["deep_lift"]


class GradCam(Parameters):
    method: Literal["grad_cam"]
    layer: str | None = Field(None, description="Name of the layer whose maps are weighted; the last convolution.")
    signed: bool = Field(False, description="Keep what speaks against the class, in place of 0.")


class SmoothGrad(Parameters):
    method: Literal["smooth_grad"]
    samples: int = Field(50, ge=1, description="Noisy copies of an instance.")
    noise: float = Field(0.15, gt=0, description="Standard deviation, as a fraction of the instance's own range.")


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
    ridge: float = Field(1.0, gt=0, description="Penalty of large slopes.")


class Qii(Parameters):
    method: Literal["qii"]
    permutations: int = Field(1000, ge=1, description="Orders an instance, above 12 features; up to 12 it is exact.")


class Counterfactual(Parameters):
    method: Literal["counterfactual"]


class PeerShapKernel(Sampled):
    method: Literal["peer_shap_kernel"]


class PeerShapPermutation(Sampled):
    method: Literal["peer_shap_permutation"]


class PeerShapPartition(Sampled):
    method: Literal["peer_shap_partition"]
    fixed_context: Literal[0, 1] | None = Field(
        None, description="0 or 1: follow one branch of each split alone, as the library's images do; both by default."
    )


class PeerShapGradient(Parameters):
    method: Literal["peer_shap_gradient"]
    samples: int = Field(200, ge=1, description="Points of an instance, at random on paths from random rows.")


class PeerShapDeep(Parameters):
    method: Literal["peer_shap_deep"]


class PeerCaptumKernelShap(Sampled):
    method: Literal["peer_captum_kernel_shap"]


class PeerCaptumShapleySampling(Sampled):
    method: Literal["peer_captum_shapley_sampling"]


class PeerLimeText(Sampled):
    method: Literal["peer_lime_text"]


class PeerLimeImage(Sampled):
    method: Literal["peer_lime_image"]


class External(Parameters):
    method: Literal["external"]
    path: str = Field(description="Parquet or CSV file of scores made elsewhere; $VARIABLES expand.")


Plain = bool | int | float | str


class OwnFixed(OwnFeatures):
    method: str = Field(pattern=USER_FILE, description="path/to/file.py:function that returns a Design.")
    parameters: dict[str, Plain | list[Plain]] = Field({}, description="Given to the function by name.")


class Own(Sampled, OwnFixed):
    """An entry of a function of one's own; one that takes no budget is an OwnFixed."""


@dataclass(frozen=True)
class Method:
    """One registry entry; `function` is "module:function" inside the package, imported only when it runs."""

    family: Literal["coalitions", "hierarchical", "gradients", "data", "peers", "external"]
    function: str  # "{framework}" in it stands for torch or tf
    parameters: type[Parameters]
    minimum: str | None = None  # "module:function" of d: the smallest budget in evaluations
    control: bool = False
    exact: bool = False  # enumerates 2^d coalitions
    grid: bool = False  # needs features that lie on a grid
    measure: str | None = None  # "module:function" that the function of a data method is given as `measure`
    asks_model: bool = True
    data: tuple[str, ...] = ()  # kinds of dataset that it explains; all by default
    torch_only: bool = False
    refuses: tuple[str, ...] = ()  # architectures that it cannot explain
    package: str | None = None  # what it runs, where that is not always installed
    takes: tuple[str, ...] | None = None  # arguments of a function of one's own; None of one in the package

    @property
    def sampled(self) -> bool:
        return issubclass(self.parameters, Sampled)

    @property
    def is_fixed_cost(self) -> bool:
        return self.is_design and not self.sampled and self.takes is None  # one's own is not run to be counted

    def function_for(self, framework: str | None) -> str:
        """ "module:function" for a model of this framework."""
        return self.function.format(framework="tf" if framework == "tensorflow" else "torch")

    @property
    def is_design(self) -> bool:
        return self.takes is not None or self.function.startswith("shapeline.designs.")


class Registry(dict[str, Method]):
    """The methods by name; a name path/to/file.py:function is that of a design of one's own."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or ".py:" in str(name)

    def __missing__(self, name: str) -> Method:
        if ".py:" not in name:
            raise KeyError(name)
        try:
            takes = own_arguments(name)
        except ShapelineError:  # which the configuration tells
            takes = {}
        return replace(OWN, function=name, parameters=Own if "budget" in takes else OwnFixed, takes=tuple(takes))


OWN = Method("coalitions", "", OwnFixed, takes=())
METHODS = Registry()
METHODS |= {
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
    "h_shap": Method("hierarchical", "shapeline.hierarchical_methods:h_shap", HShap),
    "partition": Method("hierarchical", "shapeline.hierarchical_methods:partition", Partition),
    "saliency": Method("gradients", "shapeline.gradients.{framework}_gradients:saliency", Saliency),
    "gradient_x_input": Method(
        "gradients", "shapeline.gradients.{framework}_gradients:gradient_x_input", GradientXInput, control=True
    ),
    "integrated_gradients": Method(
        "gradients", "shapeline.gradients.{framework}_gradients:integrated_gradients", IntegratedGradients
    ),
    "expected_gradients": Method(
        "gradients", "shapeline.gradients.{framework}_gradients:expected_gradients", ExpectedGradients
    ),
    "deep_lift": Method(
        "gradients",
        "shapeline.gradients.torch_deep_lift:deep_lift",
        DeepLift,
        torch_only=True,
        refuses=("bilstm", "word_cnn"),  # what an LSTM does inside, and the largest over words, are no modules
    ),
    "grad_cam": Method("gradients", "shapeline.gradients.{framework}_grad_cam:grad_cam", GradCam, data=("image",)),
    "smooth_grad": Method("gradients", "shapeline.gradients.{framework}_gradients:smooth_grad", SmoothGrad),
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
    "peer_shap_kernel": Method(
        "peers",
        "shapeline.peers.shap_methods:kernel",
        PeerShapKernel,
        minimum="shapeline.peers.budgets:kernel_minimum",
        package="shap",
    ),
    "peer_shap_permutation": Method(
        "peers",
        "shapeline.peers.shap_methods:permutation",
        PeerShapPermutation,
        minimum="shapeline.peers.budgets:pair_minimum",
        package="shap",
    ),
    "peer_shap_partition": Method(
        "peers",
        "shapeline.peers.shap_methods:partition",
        PeerShapPartition,
        minimum="shapeline.peers.budgets:split_minimum",
        grid=True,
        package="shap",
    ),
    "peer_shap_gradient": Method(
        "peers",
        "shapeline.peers.shap_networks:gradient",
        PeerShapGradient,
        data=("image", "table"),
        torch_only=True,
        package="shap",
    ),
    "peer_shap_deep": Method(
        "peers",
        "shapeline.peers.shap_networks:deep",
        PeerShapDeep,
        data=("image", "table"),
        torch_only=True,
        package="shap",
    ),
    "peer_captum_kernel_shap": Method(
        "peers",
        "shapeline.peers.captum_methods:kernel_shap",
        PeerCaptumKernelShap,
        minimum="shapeline.peers.budgets:kernel_minimum",
        torch_only=True,
        package="captum",
    ),
    "peer_captum_shapley_sampling": Method(
        "peers",
        "shapeline.peers.captum_methods:shapley_sampling",
        PeerCaptumShapleySampling,
        minimum="shapeline.peers.budgets:permutation_minimum",
        torch_only=True,
        package="captum",
    ),
    "peer_lime_text": Method(
        "peers",
        "shapeline.peers.lime_methods:text",
        PeerLimeText,
        minimum="shapeline.peers.budgets:fit_minimum",
        data=("text",),
        package="lime",
    ),
    "peer_lime_image": Method(
        "peers",
        "shapeline.peers.lime_methods:image",
        PeerLimeImage,
        minimum="shapeline.peers.budgets:fit_minimum",
        data=("image",),
        package="lime",
    ),
    "external": Method("external", "shapeline.external:read", External, asks_model=False),
}


OWN_TAKES = ("d", "shape", "graph", "budget", "seed")


def own_arguments(reference: str) -> dict[str, bool]:
    """The arguments of "path/to/file.py:function", and whether each must be given; read without running the file.

    Raises ShapelineError where there is no such file or function.
    """
    file, _, name = reference.rpartition(":")
    path = expand(file)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise ShapelineError(f"{path} cannot be read ({reason}); paths start at the repository root") from error
    functions = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        hint = nearest(name, functions) if functions else " It defines no function."
        raise ShapelineError(f"{path} has no function '{name}'.{hint}")
    found = functions[name]
    listed = [*found.posonlyargs, *found.args]
    needed = {one.arg: place < len(listed) - len(found.defaults) for place, one in enumerate(listed)}
    return needed | {one.arg: default is None for one, default in zip(found.kwonlyargs, found.kw_defaults, strict=True)}


def own_problem(entry: Own) -> str | None:
    """What is wrong with an entry of one's own function, in a line; None where nothing is."""
    try:
        takes = own_arguments(entry.method)
    except ShapelineError as error:
        return f"method: {error}"
    for name in entry.parameters:
        if name in OWN_TAKES or name not in takes:
            return f"parameters: '{name}' is not a parameter of {entry.method}.{nearest(name, {*takes} - {*OWN_TAKES})}"
    for name, needed in takes.items():
        if needed and name not in (*OWN_TAKES, *entry.parameters):
            return f"parameters: '{name}' is missing; {entry.method} needs it"
    for key in ("budget", "snapshots", "rival_of"):
        if key in entry.model_fields_set and "budget" not in takes:
            return f"{key}: {entry.method} takes no budget; remove the key"
    return None


def missing(name: str) -> str | None:
    """What to install before this method can run, in a line; None where nothing is missing."""
    package = METHODS[name].package
    if package is None or importlib.util.find_spec(package):
        return None
    return f"{name} runs {package}, which is not installed: pip install -c constraints.txt -e '.[peers]'"


def function_of(reference: str) -> Callable:
    """The function named by "module:function" or "path/to/file.py:function"."""
    module, name = reference.rsplit(":", 1)
    return user_function(reference) if module.endswith(".py") else getattr(importlib.import_module(module), name)


def call(function: Callable, available: dict) -> object:
    """Call `function` with those of the available values that its signature names."""
    return function(**{name: available[name] for name in inspect.signature(function).parameters if name in available})
