"""The registry of attribution methods: name -> where the function lives, its typed parameters, and its traits.

A method is a function in its own file and an entry here; no other module lists methods by their traits. The arguments
of the function name its inputs: `d`, `shape`, `graph`, `budget` and `seed` for a design; `game` (model, reference,
features, value, backend), `inputs`, `targets`, `features`, `instances`, `seed` and, if it is sampled, `budget`
(evaluations per instance) for a method that computes scores itself; and its own parameters. It returns a `Design`, or
`(scores (n, d), evaluations per instance)` and optionally a mapping from names to one number per instance, where
"warning" is a text or None."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import create_model

from shapeline.datasets.sources import DESIGN_ARGUMENTS, list_arguments, names_function, resolve
from shapeline.designs.design import FIRST_ROUND
from shapeline.errors import ShapelineError, describe_missing, is_installed, nearest
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

DEFAULT_BUDGET = 4  # evaluations as a multiple of d


@dataclass(frozen=True)
class Method:
    """One registry entry; `function` is "module:function" inside the package, imported only when it runs.

    A trait that depends on a parameter has that parameter's name as its value: an efficient="constrained" method is
    efficient if its entry sets `constrained`, a one_sided="signed" method is one-sided unless its entry sets `signed`,
    gradients="steps" computes `steps` gradients, and random="samples" samples if `samples` are given."""

    family: Literal["coalitions", "hierarchical", "gradients", "data", "peers", "external"]
    function: str  # "{framework}" in it stands for torch or tf
    parameters: type[Parameters] = Parameters
    needs: tuple[
        Literal["grid", "labelled points", "derivative", "torch", "path", "attention", "estimator"], ...
    ] = ()  # inputs in addition to the values of masks
    needs_model: bool = True
    efficient: bool | str = False  # scores add up to v(all) - v(none)
    unsigned: bool = False  # scores are magnitudes
    one_sided: bool | str = False  # scores are the positive parts only
    # The unit of the scores: the experiment's value; the network's output (log p or a prediction); the output per unit
    # of the input; or none.
    unit: Literal["value", "output", "slope", "none"] = "value"
    random: bool | str = False  # samples by seed, unless it is exact
    exchangeable: bool = False  # a sample with its features permuted is another sample of the same design
    nested_design: str | None = None  # "module:function" of a design whose coalitions a larger budget includes
    first_round: int = FIRST_ROUND  # evaluations per feature of the first round of the nested design
    convergence_rate: float | None = None  # r of error ~ evaluations^-r, if earlier rounds help to predict the error
    min_rounds: int = 1  # before an explanation may stop whose error is not 0: errors of early rounds are too small
    max_evaluations: int | None = None  # maximum that the estimator can use
    estimator: str | None = None  # "module:function" from a design and values to scores and their uncertainty
    batch_estimator: str | None = None  # the same from masks and values of each instance
    multi_output_estimator: str | None = None  # the same for the outputs of one game, by one estimator
    distinct: Literal["coalitions", "permutations"] | None = None  # the budget counts distinct ones
    omitted_ends: int = 0  # of the empty and the full coalition, how many its coalitions may lack
    exact: bool = False  # enumerates 2^d coalitions
    pairs: int | None = None  # maximum of features if it scores pairs too; scores add up only with these
    control: bool = False  # a baseline that other methods should beat
    gradients: int | str = 0  # per instance
    minimum: str | None = None  # "module:function" from d to the smallest budget in evaluations
    measure: str | None = None  # "module:function", the argument `measure` of the function of a data method
    data: tuple[str, ...] = ()  # kinds of dataset that it explains; all by default
    of_prompts: bool = False  # generation.estimates computes its scores of the parts of a prompt
    unsupported: tuple[str, ...] = ()  # architectures that it cannot explain
    package: str | None = None  # that it needs and that is not always installed
    argument_names: tuple[str, ...] | None = None  # of a user-defined function; None in the package

    @property
    def sampled(self) -> bool:
        """Whether its entry has a budget."""
        return issubclass(self.parameters, Sampled)

    @property
    def torch_only(self) -> bool:
        return "torch" in self.needs

    @property
    def is_fixed_cost(self) -> bool:
        return (
            self.is_design and not self.sampled and self.argument_names is None
        )  # a custom one is not run to be counted

    @property
    def is_design(self) -> bool:
        return self.argument_names is not None or self.function.startswith("shapeline.designs.")

    @property
    def explains_own_class(self) -> bool:
        """Whether its scores are for an instance's own class, whatever class the experiment explains."""
        return "labelled points" in self.needs and not self.function.endswith(":score_outputs")

    @property
    def explains_prompts(self) -> bool:
        """Whether it scores the parts of a prompt."""
        return self.of_prompts or (self.family == "coalitions" and (self.is_design or self.control))

    def name_unit(self, value: str | None, output: str, none: str) -> str | None:
        """Return the unit of its scores, given the units of the value and of the output, and a name of none."""
        return {"value": value, "output": output, "slope": f"{output} per unit of the input", "none": none}[self.unit]

    def differs_in_unit(self, reference: "Method", value: str | None) -> bool:
        """Return whether its scores of a game of this value are in another unit than those of the reference."""
        output = "prediction" if value == "prediction" else "log_probability"
        # External and random scores may have any unit; those of other methods without a unit have one of their own.
        known = [one for one in (self, reference) if not one.function.startswith("shapeline.methods.external:")]
        units = {one.name_unit(value, output, none="none") for one in known}
        return len(units) > 1 or "none" in units

    def function_for(self, framework: str | None) -> str:
        """Return "module:function" for a model of this framework."""
        return self.function.replace("{framework}", "tf" if framework == "tensorflow" else "torch")

    def is_efficient(self, parameters: dict[str, Any]) -> bool:
        """Return whether scores with these parameters add up to v(all) - v(none)."""
        return bool(parameters.get(self.efficient)) if isinstance(self.efficient, str) else self.efficient

    def is_one_sided(self, parameters: dict[str, Any]) -> bool:
        """Return whether scores with these parameters are positive parts only."""
        return not parameters.get(self.one_sided) if isinstance(self.one_sided, str) else self.one_sided

    def is_random(self, parameters: dict[str, Any]) -> bool:
        """Return whether scores with these parameters depend on a seed."""
        if self.argument_names is not None:
            return "seed" in self.argument_names
        return bool(parameters.get(self.random)) if isinstance(self.random, str) else self.random

    def count_least(self, parameters: Mapping[str, Any], d: int) -> int:
        """Return the smallest budget, in evaluations, that the method takes for d features; 0 if it takes any."""
        return resolve(self.minimum)({**parameters, "d": d}) if self.minimum else 0

    def default_budget(self, parameters: Mapping[str, Any], d: int) -> float:
        """Return the default budget for d features as a multiple of d: DEFAULT_BUDGET, or the minimum if it is more."""
        return max(DEFAULT_BUDGET, self.count_least(parameters, d) / max(d, 1))

    def count_gradients(self, entry: Parameters) -> int:
        """Return the number of gradients per instance of an entry; 0 if the method uses none."""
        return getattr(entry, self.gradients) if isinstance(self.gradients, str) else self.gradients


class Registry(dict[str, Method]):
    """The methods by name; a name path/to/file.py:function refers to a user-defined design."""

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
            arguments = list_arguments(name)
        except ShapelineError:  # the check of the configuration reports it
            arguments = {}
        parameters = CustomMethod if "budget" in arguments else CustomFixedMethod
        return replace(CUSTOM, function=name, parameters=parameters, argument_names=tuple(arguments))


def _name_parameters(name: str, entry: Method) -> type[Parameters]:
    """Return the parameters of an entry with the key `method`, whose value is the entry's name."""
    title = "".join(part.capitalize() for part in name.split("_"))
    return create_model(title, __base__=entry.parameters, __module__=__name__, method=(Literal[name], ...))


def _define_sampled(function: str, parameters: type[Parameters] = Sampled, minimum: str = "", **traits: Any) -> Method:
    """Return the entry of a sampled design; `<function>_minimum` beside its function gives the smallest budget."""
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
    module = "black_box" if package in ("lime", "shapiq") else f"{package}_methods"
    return Method("peers", f"shapeline.third_party.{module}:{function}", parameters, **traits)


CUSTOM = Method("coalitions", "", CustomFixedMethod, argument_names=())
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
            nested_design="shapeline.designs.sampled:grow_kernel_shap",
            efficient=True,
            distinct="coalitions",
            estimator="shapeline.designs.uncertainty:read_kernel_shap",
        ),
        # The sample variance of fewer orders than in this first round misses rare jumps.
        "sample_shapley": _define_sampled(
            "sampled:sample_shapley",
            SampleShapley,
            nested_design="shapeline.designs.sampled:grow_sample_shapley",
            first_round=12,
            min_rounds=3,
            efficient=True,
            distinct="permutations",
            estimator="shapeline.designs.uncertainty:read_sample_shapley",
        ),
        "gp_shapley": _define_sampled(
            "gaussian_process:gp_pairs",
            minimum="gaussian_pairs:gp_shapley_minimum",
            nested_design="shapeline.designs.gaussian_process:gp_pairs",
            convergence_rate=0.8,
            min_rounds=3,
            max_evaluations=2**14,
            efficient=True,
            distinct="coalitions",
            batch_estimator="shapeline.designs.gaussian_process:read_stack",
            multi_output_estimator="shapeline.designs.gaussian_process:read_outputs",
        ),
        "leverage_shap": _define_sampled("semivalues:leverage_shap", efficient=True, distinct="coalitions"),
        "unbiased_kernel_shap": _define_sampled(
            "semivalues:unbiased_kernel_shap", efficient=True, distinct="coalitions"
        ),
        "stratified_svarm": _define_sampled("semivalues:stratified_svarm", distinct="coalitions"),
        "owen_sampling": _define_sampled("semivalues:owen_sampling", omitted_ends=2),
        "beta_shapley": _define_sampled(
            "semivalues:beta_shapley", BetaShapley, minimum="semivalues:semivalue_minimum", omitted_ends=2
        ),
        "weighted_banzhaf": _define_sampled(
            "semivalues:weighted_banzhaf", WeightedBanzhaf, minimum="semivalues:semivalue_minimum", omitted_ends=2
        ),
        "shapley_interactions": Method(
            "coalitions", "shapeline.designs.interactions:shapley_interactions", Interactions, exact=True, pairs=16
        ),
        "sample_interactions": _define_sampled(
            "interactions:sample_interactions",
            SampledInteractions,
            pairs=256,
            distinct="permutations",
            estimator="shapeline.designs.uncertainty:read_sample_interactions",
        ),
        "gp_interactions": _define_sampled(
            "gaussian_interactions:gp_interactions",
            GpInteractions,
            pairs=256,
            distinct="coalitions",
            batch_estimator="shapeline.designs.gaussian_interactions:read_stack",
            multi_output_estimator="shapeline.designs.gaussian_interactions:read_outputs",
        ),
        "lime": _define_sampled("surrogate:lime", Lime, distinct="coalitions", omitted_ends=1),
        "context_cite": _define_sampled("surrogate:context_cite", ContextCite, omitted_ends=2),
        "lime_input": Method(
            "coalitions",
            "shapeline.methods.labelled_points:lime_input",
            LimeInput,
            needs=("path",),
            minimum="shapeline.designs.surrogate:lime_minimum",
            random=True,
            data=("image", "table"),
        ),
        "occlusion": Method("coalitions", "shapeline.designs.exact:occlusion", MethodFeatures, control=True),
        "random": Method(
            "coalitions", "shapeline.methods.external:sample", needs_model=False, control=True, random=True, unit="none"
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
            "hierarchical", "shapeline.hierarchy.methods:score_partition", Partition, efficient=True, of_prompts=True
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
        # The inner operations of an LSTM and the maximum over words are no modules; attention has no rule.
        "deep_lift": _define_gradient(
            "torch_gradients:deep_lift",
            FromBackground,
            needs=("derivative", "torch", "path"),
            gradients=1,
            unsupported=("bilstm", "word_cnn", "folder"),
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
        "mim": _define_measure("score_points", "measures:mim", Mim, needs_model=False),
        "parzen": _define_measure("score_points", "measures:parzen", Parzen, needs_model=False),
        "data_lime": _define_measure("score_points", "local_linear:data_lime", DataLime, needs_model=False),
        "augmented_mim": _define_measure("score_queried_points", "measures:augmented_mim", AugmentedMim, random=True),
        "qii": _define_measure("score_outputs", "measures:qii", Qii, random=True),
        "counterfactual": _define_measure("score_pairs", "measures:counterfactual", needs_model=False, unsigned=True),
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
        "peer_lime_text": _define_peer(
            "lime", "explain_text", Sampled, minimum="fit_minimum", random=True, data=("text",)
        ),
        "peer_lime_image": _define_peer(
            "lime", "explain_image", Sampled, minimum="fit_minimum", random=True, data=("image",)
        ),
        "external": Method("external", "shapeline.methods.external:read", External, needs_model=False, unit="none"),
    }
)


def find_problem(entry: CustomMethod) -> str | None:
    """Return the problem of the entry of a user-defined method in one line; None if there is none."""
    try:
        arguments = list_arguments(entry.method)
    except ShapelineError as error:
        return f"method: {error}"
    parameters = {*arguments} - {*DESIGN_ARGUMENTS}
    for name in entry.parameters:
        if name not in parameters:
            return f"parameters: '{name}' is not a parameter of {entry.method}.{nearest(name, parameters)}"
    for name, needed in arguments.items():
        if needed and name not in (*DESIGN_ARGUMENTS, *entry.parameters):
            return f"parameters: '{name}' is missing; {entry.method} needs it"
    for key in ("budget", "intermediate_budgets", "match_budget_of"):
        if key in entry.model_fields_set and "budget" not in arguments:
            return f"{key}: {entry.method} takes no budget; remove the key"
    return None


def find_stopping_problem(name: str, budget: StoppingRule) -> str | None:
    """Return the problem of an adaptive budget of a method in one line; None if there is none."""
    if not METHODS[name].nested_design:
        able = ", ".join(other for other, method in METHODS.items() if method.nested_design)
        return f"budget: {name} cannot stop when good enough; give a number, or use one of {able}"
    if budget.error is None and budget.top is None:
        return "budget: there is no stopping criterion; give error, or top"
    if budget.max_budget < (first := METHODS[name].first_round):
        return f"budget.max_budget: the first round of {name} takes {first} x d evaluations; set {first} or more"
    return None


def find_missing_package(name: str) -> str | None:
    """Return one line on the package that this method needs and that is missing; None if none is."""
    package = METHODS[name].package
    return None if package is None or is_installed(package) else f"{name}: {describe_missing(package)}"
