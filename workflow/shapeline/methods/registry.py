"""The registry of attribution methods: name -> where the function lives, its typed parameters, and its traits.

A method is a function in a file of its own and an entry here; nothing else lists methods by what they are.
A method's function names, as its arguments, what it needs: `d`, `shape`, `graph`, `budget` and `seed` for a design;
`game` (model, reference, features, value, backend), `inputs`, `targets`, `features`, `instances`, `seed` and, where it
is sampled, `budget` (evaluations per instance) for one that makes scores itself; and its own parameters. It returns a
`Design`, or `(scores (n, d), evaluations per instance)`, and perhaps a third thing: name -> a number per instance, with
"warning" a text or None."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import create_model

from shapeline.datasets.sources import names_function
from shapeline.designs.design import FIRST_ROUND
from shapeline.errors import ShapelineError, describe_missing, is_installed, nearest
from shapeline.methods.dispatch import OWN_TAKES, list_arguments
from shapeline.methods.parameters import (
    AugmentedMim,
    BetaShapley,
    ContextCite,
    CShapley,
    CShapleyRegression,
    CustomFixedMethod,
    CustomMethod,
    DataLime,
    ExpectedGradients,
    External,
    FromBackground,
    GpInteractions,
    GradCam,
    HShap,
    IntegratedGradients,
    Interactions,
    Lime,
    LimeInput,
    LShapley,
    MethodFeatures,
    Mim,
    OnePass,
    OnGraph,
    Parameters,
    Partition,
    Parzen,
    PeerCaptumLlm,
    PeerShapiq,
    PeerShapPartition,
    Qii,
    ReadsModel,
    Sampled,
    SampledInteractions,
    SampleShapley,
    SmoothGrad,
    StoppingRule,
    WeightedBanzhaf,
)


@dataclass(frozen=True)
class Method:
    """One registry entry; `function` is "module:function" inside the package, imported only when it runs.

    Where a trait hangs on a parameter, it is that parameter's name: an efficient="constrained" method is efficient
    where its entry sets `constrained`, a one_sided="signed" one is one-sided unless its entry sets `signed`, and
    gradients="steps" takes as many gradients as `steps` says, random="samples" samples where `samples` are given."""

    family: Literal["coalitions", "hierarchical", "gradients", "data", "peers", "external"]
    function: str  # "{framework}" in it stands for torch or tf
    parameters: type[Parameters] = Parameters
    needs: tuple[
        Literal["grid", "labelled points", "derivative", "torch", "path", "attention", "estimator"], ...
    ] = ()  # beside the values of masks
    asks_model: bool = True
    efficient: bool | str = False  # scores add up to v(all) - v(none)
    unsigned: bool = False  # scores are magnitudes
    one_sided: bool | str = False  # scores are what is positive alone
    # What the scores are in: the experiment's value; the network's output, which is log p or a prediction; that by unit
    # of the input; or nothing that has a name.
    unit: Literal["value", "output", "slope", "none"] = "value"
    random: bool | str = False  # samples by seed, unless it is exact
    exchangeable: bool = False  # a sample with its features permuted is another sample of the same design
    grows: str | None = None  # "module:function" of a design whose coalitions a larger budget of it asks too
    first_round: int = FIRST_ROUND  # of it, in evaluations per feature
    falls: float | None = None  # its error ~ evaluations^-falls; where given, rounds are predicted by those before too
    rounds: int = 1  # before it may stop: where the first ones are too sure of themselves, unless they are certain
    largest: int | None = None  # evaluations that can be read out
    reads: str | None = None  # "module:function" from a design and values to scores and their uncertainty
    reads_stack: str | None = None  # the same from masks and values of each instance
    reads_outputs: str | None = None  # the same of the outputs of one game, by one estimator
    holds: Literal["coalitions", "permutations"] | None = None  # what a budget buys, distinct; None: unknown
    exact: bool = False  # enumerates 2^d coalitions
    pairs: int | None = None  # features of which it scores the pairs too, at most; scores add up with these alone
    control: bool = False  # what a method has to beat
    gradients: int | str = 0  # of an instance
    minimum: str | None = None  # "module:function" of d: the smallest budget in evaluations
    measure: str | None = None  # "module:function" that the function of a data method is given as `measure`
    data: tuple[str, ...] = ()  # kinds of dataset that it explains; all by default
    of_prompts: bool = False  # generation.estimates computes its scores of the parts of a prompt
    refuses: tuple[str, ...] = ()  # architectures that it cannot explain
    package: str | None = None  # what it runs, where that is not always installed
    takes: tuple[str, ...] | None = None  # arguments of a function defined by the user; None of one in the package

    @property
    def sampled(self) -> bool:
        """Whether its entry gives a budget."""
        return issubclass(self.parameters, Sampled)

    @property
    def torch_only(self) -> bool:
        return "torch" in self.needs

    @property
    def is_fixed_cost(self) -> bool:
        return self.is_design and not self.sampled and self.takes is None  # a custom one is not run to be counted

    @property
    def is_design(self) -> bool:
        return self.takes is not None or self.function.startswith("shapeline.designs.")

    @property
    def explains_prompts(self) -> bool:
        """Whether it scores the parts of a prompt."""
        return self.of_prompts or (self.family == "coalitions" and (self.is_design or self.control))

    def function_for(self, framework: str | None) -> str:
        """ "module:function" for a model of this framework."""
        return self.function.replace("{framework}", "tf" if framework == "tensorflow" else "torch")

    def is_efficient(self, parameters: dict[str, Any]) -> bool:
        """Whether scores by these parameters add up to v(all) - v(none)."""
        return bool(parameters.get(self.efficient)) if isinstance(self.efficient, str) else self.efficient

    def is_one_sided(self, parameters: dict[str, Any]) -> bool:
        """Whether scores by these parameters are what is positive alone."""
        return not parameters.get(self.one_sided) if isinstance(self.one_sided, str) else self.one_sided

    def is_random(self, parameters: dict[str, Any]) -> bool:
        """Whether scores by these parameters depend on a seed."""
        if self.takes is not None:
            return "seed" in self.takes
        return bool(parameters.get(self.random)) if isinstance(self.random, str) else self.random

    def gradients_of(self, entry: Parameters) -> int:
        """The gradients that an entry takes of an instance; 0 of a method that takes none."""
        return getattr(entry, self.gradients) if isinstance(self.gradients, str) else self.gradients


class Registry(dict[str, Method]):
    """The methods by name; a name path/to/file.py:function is that of a design defined by the user."""

    def __init__(self, methods: dict[str, Method]):
        super().__init__(
            {name: replace(entry, parameters=_name_parameters(name, entry)) for name, entry in methods.items()}
        )

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or names_function(str(name))

    def __missing__(self, name: str) -> Method:
        if not names_function(name):
            raise KeyError(name)
        try:
            takes = list_arguments(name)
        except ShapelineError:  # which the configuration tells
            takes = {}
        return replace(
            OWN, function=name, parameters=CustomMethod if "budget" in takes else CustomFixedMethod, takes=tuple(takes)
        )


def _name_parameters(name: str, entry: Method) -> type[Parameters]:
    """The parameters of an entry with the key `method`, which says that it is this one."""
    title = "".join(part.capitalize() for part in name.split("_"))
    return create_model(title, __base__=entry.parameters, __module__=__name__, method=(Literal[name], ...))


def _define_sampled(function: str, parameters: type[Parameters] = Sampled, minimum: str = "", **traits: Any) -> Method:
    """Return the entry of a sampled design, whose smallest budget is the function `<its name>_minimum` beside it."""
    minimum = f"shapeline.designs.{minimum or f'{function}_minimum'}"
    traits = {"minimum": minimum, "random": True, "exchangeable": True, **traits}
    return Method("coalitions", f"shapeline.designs.{function}", parameters, **traits)


def _define_gradient(function: str, parameters: type[Parameters] = Parameters, **traits: Any) -> Method:
    """Return the entry of a method that needs the model's derivative."""
    return Method("gradients", f"shapeline.gradients.{function}", parameters, **{"needs": ("derivative",), **traits})


def _define_measure(function: str, measure: str, parameters: type[Parameters] = Parameters, **traits: Any) -> Method:
    """Return the entry of a measure of labelled points, with the function that calls it."""
    traits = {"needs": ("labelled points",), "unit": "none", "measure": f"shapeline.influence.{measure}", **traits}
    return Method("data", f"shapeline.methods.labelled_points:{function}", parameters, **traits)


def _define_peer(package: str, function: str, parameters: type[Parameters], minimum: str = "", **traits: Any) -> Method:
    """Return the entry of a method of another package."""
    minimum = f"shapeline.methods.parameters:{minimum}" if minimum else None
    traits = {"package": package, "minimum": minimum, **traits}
    return Method("peers", f"shapeline.third_party.{package}_methods:{function}", parameters, **traits)


OWN = Method("coalitions", "", CustomFixedMethod, takes=())
METHODS = Registry(
    {
        "shapley": Method("coalitions", "shapeline.designs.exact:shapley", exact=True, efficient=True),
        "banzhaf": Method("coalitions", "shapeline.designs.exact:banzhaf", exact=True),
        "myerson": Method("coalitions", "shapeline.designs.exact:myerson", OnGraph, efficient=True),
        "l_shapley": Method("coalitions", "shapeline.designs.local:l_shapley", LShapley, random="samples"),
        "c_shapley": Method("coalitions", "shapeline.designs.local:c_shapley", CShapley),
        "c_shapley_regression": Method(
            "coalitions",
            "shapeline.designs.local:c_shapley_regression",
            CShapleyRegression,
            needs=("grid",),
            efficient="constrained",
        ),
        "kernel_shap": _define_sampled(
            "sampled:kernel_shap",
            grows="shapeline.designs.sampled:grow_kernel_shap",
            efficient=True,
            holds="coalitions",
            reads="shapeline.designs.uncertainty:read_kernel_shap",
        ),
        # The spread of fewer orders than those of its first round misses rare jumps.
        "sample_shapley": _define_sampled(
            "sampled:sample_shapley",
            SampleShapley,
            grows="shapeline.designs.sampled:grow_sample_shapley",
            first_round=12,
            rounds=3,
            efficient=True,
            holds="permutations",
            reads="shapeline.designs.uncertainty:read_sample_shapley",
        ),
        "gp_shapley": _define_sampled(
            "gaussian_process:gp_pairs",
            minimum="gaussian_pairs:gp_shapley_minimum",
            grows="shapeline.designs.gaussian_process:gp_pairs",
            falls=0.8,
            rounds=3,
            largest=2**14,
            efficient=True,
            holds="coalitions",
            reads_stack="shapeline.designs.gaussian_process:read_stack",
            reads_outputs="shapeline.designs.gaussian_process:read_outputs",
        ),
        "leverage_shap": _define_sampled("semivalues:leverage_shap", efficient=True, holds="coalitions"),
        "unbiased_kernel_shap": _define_sampled("semivalues:unbiased_kernel_shap", efficient=True, holds="coalitions"),
        "stratified_svarm": _define_sampled("semivalues:stratified_svarm", holds="coalitions"),
        "owen_sampling": _define_sampled("semivalues:owen_sampling"),
        "beta_shapley": _define_sampled("semivalues:beta_shapley", BetaShapley, minimum="semivalues:semivalue_minimum"),
        "weighted_banzhaf": _define_sampled(
            "semivalues:weighted_banzhaf", WeightedBanzhaf, minimum="semivalues:semivalue_minimum"
        ),
        "shapley_interactions": Method(
            "coalitions", "shapeline.designs.interactions:shapley_interactions", Interactions, exact=True, pairs=16
        ),
        "sample_interactions": _define_sampled(
            "interactions:sample_interactions",
            SampledInteractions,
            pairs=256,
            holds="permutations",
            reads="shapeline.designs.uncertainty:read_sample_interactions",
        ),
        "gp_interactions": _define_sampled(
            "gaussian_interactions:gp_interactions",
            GpInteractions,
            pairs=256,
            holds="coalitions",
            reads_stack="shapeline.designs.gaussian_interactions:read_stack",
            reads_outputs="shapeline.designs.gaussian_interactions:read_outputs",
        ),
        "lime": _define_sampled("surrogate:lime", Lime, holds="coalitions"),
        "context_cite": _define_sampled("surrogate:context_cite", ContextCite),
        "lime_input": Method(
            "coalitions",
            "shapeline.methods.lime_input:lime_input",
            LimeInput,
            needs=("path",),
            minimum="shapeline.designs.surrogate:lime_minimum",
            random=True,
            data=("image", "table"),
        ),
        "occlusion": Method("coalitions", "shapeline.designs.exact:occlusion", MethodFeatures, control=True),
        "random": Method(
            "coalitions", "shapeline.methods.external:random", asks_model=False, control=True, random=True, unit="none"
        ),
        "tree_shap": Method(
            "coalitions",
            "shapeline.methods.tree_shap:tree_shap",
            ReadsModel,
            needs=("estimator",),
            efficient=True,
            data=("table",),
        ),
        "linear_shap": Method(
            "coalitions",
            "shapeline.methods.tree_shap:linear_shap",
            ReadsModel,
            needs=("estimator",),
            efficient=True,
            data=("table",),
        ),
        "h_shap": Method(
            "hierarchical", "shapeline.hierarchy.methods:h_shap", HShap, one_sided=True, unit="none", of_prompts=True
        ),
        "partition": Method(
            "hierarchical", "shapeline.hierarchy.methods:partition", Partition, efficient=True, of_prompts=True
        ),
        "saliency": _define_gradient("{framework}_gradients:saliency", unsigned=True, gradients=1, unit="slope"),
        "gradient_x_input": _define_gradient(
            "{framework}_gradients:gradient_x_input", control=True, gradients=1, unit="output", of_prompts=True
        ),
        "gradient_x_difference": _define_gradient(
            "{framework}_gradients:gradient_x_difference",
            needs=("derivative", "path"),
            control=True,
            gradients=1,
            unit="output",
        ),
        "integrated_gradients": _define_gradient(
            "{framework}_gradients:integrated_gradients",
            IntegratedGradients,
            needs=("derivative", "path"),
            gradients="steps",
            unit="output",
            of_prompts=True,
        ),
        "expected_gradients": _define_gradient(
            "{framework}_gradients:expected_gradients",
            ExpectedGradients,
            needs=("derivative", "path"),
            random=True,
            gradients="samples",
            unit="output",
        ),
        # What an LSTM does inside, and the largest over words, are no modules; attention has no rule.
        "deep_lift": _define_gradient(
            "torch_deep_lift:deep_lift",
            FromBackground,
            needs=("derivative", "torch", "path"),
            gradients=1,
            refuses=("bilstm", "word_cnn", "folder"),
            unit="output",
        ),
        "grad_cam": _define_gradient(
            "{framework}_gradients:grad_cam", GradCam, one_sided="signed", gradients=1, data=("image",), unit="none"
        ),
        "smooth_grad": _define_gradient(
            "{framework}_gradients:smooth_grad",
            SmoothGrad,
            unsigned=True,
            random=True,
            gradients="samples",
            unit="slope",
        ),
        "attention_rollout": _define_gradient(
            "torch_gradients:attention_rollout",
            OnePass,
            needs=("attention", "torch"),
            unsigned=True,
            control=True,
            data=("text",),
            unit="none",
            of_prompts=True,
        ),
        "attn_lrp": _define_gradient(
            "torch_gradients:attn_lrp",
            needs=("attention", "derivative", "torch"),
            gradients=1,
            data=("text",),
            unit="none",
            of_prompts=True,
        ),
        "mim": _define_measure("score_points", "measures:mim", Mim, asks_model=False),
        "parzen": _define_measure("score_points", "measures:parzen", Parzen, asks_model=False),
        "data_lime": _define_measure("score_points", "local_linear:data_lime", DataLime, asks_model=False),
        "augmented_mim": _define_measure("score_queried_points", "measures:augmented_mim", AugmentedMim, random=True),
        "qii": _define_measure("score_outputs", "measures:qii", Qii, random=True),
        "counterfactual": _define_measure("score_pairs", "measures:counterfactual", asks_model=False, unsigned=True),
        "peer_shap_kernel": _define_peer(
            "shap", "kernel", Sampled, minimum="kernel_minimum", efficient=True, random=True
        ),
        "peer_shap_permutation": _define_peer(
            "shap", "permutation", Sampled, minimum="pair_minimum", efficient=True, random=True
        ),
        "peer_shap_partition": _define_peer(
            "shap",
            "partition",
            PeerShapPartition,
            needs=("grid",),
            minimum="split_minimum",
            efficient=True,
            random=True,
        ),
        "peer_shap_gradient": _define_peer(
            "shap",
            "gradient",
            ExpectedGradients,
            needs=("derivative", "torch", "path"),
            random=True,
            gradients="samples",
            data=("image", "table"),
            unit="output",
        ),
        "peer_shap_deep": _define_peer(
            "shap",
            "deep",
            FromBackground,
            needs=("derivative", "torch", "path"),
            gradients=1,
            data=("image", "table"),
            unit="output",
        ),
        "peer_captum_kernel_shap": _define_peer(
            "captum", "kernel_shap", Sampled, needs=("torch",), minimum="kernel_minimum", random=True
        ),
        "peer_captum_shapley_sampling": _define_peer(
            "captum",
            "shapley_sampling",
            Sampled,
            needs=("torch",),
            minimum="permutation_minimum",
            efficient=True,
            random=True,
        ),
        "peer_captum_llm": _define_peer(
            "captum", "explain", PeerCaptumLlm, random=True, data=("prompts",), of_prompts=True
        ),
        "peer_shapiq": _define_peer("shapiq", "approximate", PeerShapiq, minimum="kernel_minimum", random=True),
        "peer_lime_text": _define_peer("lime", "text", Sampled, minimum="fit_minimum", random=True, data=("text",)),
        "peer_lime_image": _define_peer("lime", "image", Sampled, minimum="fit_minimum", random=True, data=("image",)),
        "external": Method("external", "shapeline.methods.external:read", External, asks_model=False, unit="none"),
    }
)


def find_problem(entry: CustomMethod) -> str | None:
    """What is wrong with an entry defined by the user function, in a line; None where nothing is."""
    try:
        takes = list_arguments(entry.method)
    except ShapelineError as error:
        return f"method: {error}"
    for name in entry.parameters:
        if name in OWN_TAKES or name not in takes:
            return f"parameters: '{name}' is not a parameter of {entry.method}.{nearest(name, {*takes} - {*OWN_TAKES})}"
    for name, needed in takes.items():
        if needed and name not in (*OWN_TAKES, *entry.parameters):
            return f"parameters: '{name}' is missing; {entry.method} needs it"
    for key in ("budget", "intermediate_budgets", "match_budget_of"):
        if key in entry.model_fields_set and "budget" not in takes:
            return f"{key}: {entry.method} takes no budget; remove the key"
    return None


def stopping_problem(name: str, budget: StoppingRule) -> str | None:
    """What is wrong with a budget that ends when it is good enough, in a line; None where nothing is."""
    if not METHODS[name].grows:
        able = ", ".join(other for other, method in METHODS.items() if method.grows)
        return f"budget: {name} cannot stop when good enough; give a number, or use one of {able}"
    if budget.error is None and budget.top is None:
        return "budget: there is no stopping criterion; give error, or top"
    if budget.max_budget < (first := METHODS[name].first_round):
        return f"budget.max_budget: the first round of {name} takes {first} x d evaluations; set {first} or more"
    return None


def missing(name: str) -> str | None:
    """What to install before this method can run, in a line; None where nothing is missing."""
    package = METHODS[name].package
    return None if package is None or is_installed(package) else f"{name}: {describe_missing(package)}"
