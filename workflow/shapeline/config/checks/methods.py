"""Rules of a label: what its method needs of the features, the model, the data and the installed packages."""

import json
import math
from collections.abc import Iterator
from typing import Any

from shapeline.config.checks.place import LabelRule, MethodPlace, Place, absent, catch, refuse
from shapeline.config.derived import budget_of, canonical, feature_shape, features_of, fixed_cost, framework_of
from shapeline.config.mistakes import MAX_BUDGET, MAX_DESIGN_BYTES, format_bytes
from shapeline.config.types import Model
from shapeline.datasets import folders
from shapeline.designs.design import MAX_D, evaluations
from shapeline.errors import ShapelineError, nearest
from shapeline.games.features import IMAGE_KINDS, TABLE_KINDS, TEXT_KINDS
from shapeline.methods import dispatch, registry, shapiq_process
from shapeline.methods.dispatch import own_arguments
from shapeline.methods.parameters import CustomMethod, External, Partition, StoppingRule
from shapeline.methods.registry import METHODS
from shapeline.models.registry import BOOSTED, ESTIMATORS, kind_of


def own_shape(place: Place, entry: Any) -> tuple | str | None:
    """The shape of the features that an entry explains, None where unknown; or, in a text, why it cannot have them."""
    if getattr(entry, "features", None) is None:
        return place.shape
    if place.kind != "pixel":
        return f"only beside pixels has a method other features, and these are of kind '{place.kind}'; remove the key"
    if getattr(entry, "match_budget_of", None):
        return "a rival explains the same features; remove match_budget_of and give a budget"
    if place.source is None:
        return None
    try:
        own = feature_shape(place.config, place.experiment, entry)
    except ShapelineError as error:
        return str(error)
    return "there is a single feature (d = 1); make the features smaller" if own and math.prod(own) == 1 else own


def own_file(place: Place, entry: Any) -> str | None:
    """What is wrong with the user's own file behind an entry: a function, or scores made elsewhere."""
    if isinstance(entry, CustomMethod):
        problem = registry.own_problem(entry)
        if not problem and "graph" in own_arguments(entry.method):
            kind = features_of(place.experiment, entry).kind
            if kind in TABLE_KINDS:
                return f"method: {entry.method} takes a graph and features of kind '{kind}' lack one; let it take d"
        return problem
    if not isinstance(entry, External):
        return None
    for name, metric in place.metrics():
        if metric.asks_randomised:
            return f"method: scores made elsewhere are of one model; remove metrics.{name}, or the label"
        if metric.moves_inputs:
            return f"method: scores computed elsewhere cannot be re-computed for moved inputs; remove metrics.{name}"
    problem = absent(entry.path)
    return problem and f"path: {problem}"


def enumeration(label: MethodPlace) -> Iterator[str]:
    """Every coalition is evaluated, of features that are few enough."""
    most = label.method.pairs or MAX_D
    if label.method.exact and label.d and label.d > most:
        yield (
            f"{label.where}: {label.entry.method} enumerates 2^d coalitions and d = {label.d} is above {most}; "
            "use larger patches or groups of columns, or a sampled method"
        )


def pairs(label: MethodPlace) -> Iterator[str]:
    """Pairs are of the experiment's own features, and these are few enough to have them stored."""
    most = label.method.pairs
    if most and getattr(label.entry, "features", None):
        yield f"{label.where}.features: {label.entry.method} scores pairs of the experiment's features; remove the key"
    elif most and not label.method.exact and label.d and label.d > most:
        yield (
            f"{label.where}: {label.entry.method} scores all pairs and d = {label.d:,} is above {most}; "
            "use larger patches or groups of columns"
        )


def neighbours(label: MethodPlace) -> Iterator[str]:
    """Features lie on the graph or the grid that the method walks on."""
    entry, needs_grid = label.entry, "grid" in label.method.needs
    if (needs_grid and not _reads_grid(label)) or (
        getattr(entry, "graph", None) == "features" and not _reads_graph(label)
    ):
        remedy = "use a sampled method" if needs_grid else "set graph: chain or graph: complete"
        needed = "grid" if needs_grid and _reads_graph(label) else "graph"
        yield (
            f"{label.where}: {entry.method} needs features on a {needed} and features of kind '{label.kind}' lack one; "
            f"{remedy}"
        )


def _reads_graph(label: MethodPlace) -> bool:
    return label.kind not in (*TABLE_KINDS, "player")


def _reads_grid(label: MethodPlace) -> bool:
    return _reads_graph(label) and label.kind != "superpixel"  # words and runs of characters are a row


def kept_features(label: MethodPlace) -> Iterator[str]:
    """A fit of a few features has a kernel of distance."""
    if getattr(label.entry, "n_features", None) and label.entry.kernel == "shapley":
        yield (
            f"{label.where}.n_features: lime with kernel 'shapley' has no fit of some features; use cosine or fraction"
        )


def fixed_design(label: MethodPlace) -> Iterator[str]:
    """The design of a fixed-cost method can be built."""
    method, entry = label.method, label.entry
    if not method.is_fixed_cost or method.exact or not label.d:
        return
    if _reads_grid(label) or getattr(entry, "graph", "") != "features":
        yield from catch(label.where, fixed_cost, json.dumps(canonical(entry)), label.shape)


def rival(label: MethodPlace) -> Iterator[str]:
    """The label that a budget follows is there, and has a number of evaluations to follow."""
    entry, others = label.entry, label.place.experiment.methods
    rival = getattr(entry, "match_budget_of", None)
    if rival is None:
        return
    if entry.budget or entry.intermediate_budgets:
        yield f"{label.where}: match_budget_of sets the budget; remove budget and intermediate_budgets"
    if rival not in others:
        yield f"{label.where}.match_budget_of: there is no method '{rival}' among the methods.{nearest(rival, others)}"
    elif not METHODS[others[rival].method].is_fixed_cost:
        yield f"{label.where}.match_budget_of: '{rival}' has no fixed number of evaluations; give a budget instead"
    elif getattr(others[rival], "features", None):
        yield f"{label.where}.match_budget_of: '{rival}' explains features of its own; give a budget instead"


def tree(label: MethodPlace) -> Iterator[str]:
    """The tree over a grid of features that a hierarchical method explores."""
    if label.method.family != "hierarchical":
        return
    entry, kind = label.entry, label.kind
    if isinstance(entry, Partition):
        if kind == "superpixel":
            yield f"{label.where}: partition halves a grid or a row and superpixels lie on none; use h_shap"
        return
    if entry.mode == "relative" and entry.threshold > 100:
        yield f"{label.where}.threshold: {entry.threshold:g} is not a percentile; in mode relative give 0 to 100"
    if kind == "superpixel":
        yield from refuse(
            label.where, entry, ("min_size", "shifts"), "superpixels are the leaves of the tree themselves"
        )
        return
    axes = 2 if kind in IMAGE_KINDS else 1
    if any(len(shift) != axes for shift in entry.shifts or ()):
        wanted = "[rows, columns]" if axes == 2 else "[columns]"
        yield f"{label.where}.shifts: features of kind '{kind}' take no such shifts; give {wanted} each"
    if label.shape and entry.min_size > max(label.shape):
        size = "x".join(map(str, label.shape))
        most = max(label.shape)
        yield f"{label.where}.min_size: {entry.min_size} is larger than the {size} features; give at most {most}"


def asks_a_model(label: MethodPlace) -> Iterator[str]:
    """There is a model where the method asks one."""
    if label.method.asks_model and label.place.has_no_model:
        free = ", ".join(name for name, other in METHODS.items() if not other.asks_model)
        yield (
            f"{label.where}: {label.entry.method} needs a model, and there is none; give model in place of dataset, or "
            f"use {free}"
        )


def labelled_points(label: MethodPlace) -> Iterator[str]:
    """Records are points of one label each, with the columns that the entry names."""
    entry, source = label.entry, label.place.source
    of_points = "labelled points" in label.method.needs
    if of_points and source and source.task == "multilabel":
        yield f"{label.where}: {entry.method} compares points of one label each; these have several, so remove it"
    if of_points and label.place.kind in TEXT_KINDS:
        yield f"{label.where}: {entry.method} compares points and the tokens of a text are none; remove it"
    if getattr(entry, "mu", None) and entry.categorical:
        yield f"{label.where}: the kernel of cosine distance (mu) takes no categorical columns; use rho"
    if getattr(entry, "classifier", "") == "step" and source and source.task == "regression":
        yield f"{label.where}: classifier step is for classes, and the dataset is of regression; use line"
    for column in getattr(entry, "categorical", ()):
        if isinstance(column, str) and source and column not in source.feature_names:
            hint = nearest(column, source.feature_names)
            yield f"{label.where}.categorical: there is no column '{column}'.{hint}"


def kind_of_data(label: MethodPlace) -> Iterator[str]:
    """The method explains data of this kind."""
    taken, source = label.method.data, label.place.source
    if taken and source and source.kind not in taken:
        yield (
            f"{label.where}: {label.entry.method} explains data of kind {' and '.join(taken)}, not of kind "
            f"{source.kind}; remove it"
        )


def network(label: MethodPlace) -> Iterator[str]:
    """The method can look into the model, as far as it wants to."""
    method, name, model = label.method, label.entry.method, label.place.model
    if model is None:
        return
    if "attention" in method.needs:
        # The networks of this package have none; of another kind of data it is stated that the method does not take it.
        if (model.architecture or framework_of(model) != "torch") and not list(kind_of_data(label)):
            of = f"models.{label.place.experiment.model}"
            yield f"{label.where}: {name} needs the attention of a transformer, which {of} does not tell; remove it"
    elif "estimator" in method.needs and list(kind_of_data(label)):
        return  # reported there
    elif "estimator" in method.needs and kind_of(model.source, model.framework) not in ESTIMATORS:
        of, trees = f"models.{label.place.experiment.model}", " or boosted trees" * (name == "tree_shap")
        yield f"{label.where}: {name} reads a pipeline in a .skops file{trees}, which {of} is not; use kernel_shap"
    elif name == "linear_shap" and kind_of(model.source, model.framework) in BOOSTED:
        yield f"{label.where}: linear_shap reads linear models, and {model.source} holds trees; use tree_shap"
    elif method.torch_only and framework_of(model) != "torch":
        yield (
            f"{label.where}: {name} needs a torch model and models.{label.place.experiment.model} is of "
            f"{framework_of(model)}; set its framework: torch, or remove the method"
        )
    elif (model.architecture or kind_of(model.source, model.framework)) in method.refuses:
        yield (
            f"{label.where}: {name} has no rule for what {model.architecture or 'a transformer'} does; "
            "use expected_gradients or integrated_gradients"
        )
    elif "path" in method.needs and label.place.experiment.reference == "delete":
        yield (
            f"{label.where}: {name} goes from the reference to the input, and under reference: delete there is no such "
            f"path; use {'mask or pad' if label.place.kind in TEXT_KINDS else 'zero or mean_value'}"
        )
    elif name == "grad_cam" and label.entry.layer is None and _has_no_grid(model):
        yield (
            f"{label.where}: grad_cam needs maps or tokens on one grid of patches, and {model.source} joins patches "
            "from stage to stage; name a layer of maps, or remove the method"
        )
    elif "derivative" in method.needs and label.place.function:
        of = label.place.function
        yield f"{label.where}: {name} needs the derivative of a network, which {of} has not; remove it"


def _has_no_grid(model: Model) -> bool:
    """Whether a folder holds a transformer whose last tokens are not those of its patches."""
    try:
        return kind_of(model.source, model.framework) == "folder" and folders.changes_its_grid(model.source)
    except ShapelineError:  # reported by the checks of models
        return False


def last_estimate(label: MethodPlace) -> Iterator[str]:
    """Another library's estimator has no intermediate budgets."""
    if label.method.family == "peers" and getattr(label.entry, "intermediate_budgets", None):
        yield (
            f"{label.where}.intermediate_budgets: {label.entry.method} returns only its last estimate; define an entry "
            "per budget"
        )


def installed(label: MethodPlace) -> Iterator[str]:
    """The library that the method runs is here; another experiment's run shall not end for it."""
    if label.place.name not in label.place.config.run:
        return
    if python := getattr(label.entry, "python", None):
        if lacking := shapiq_process.missing(python):
            yield f"{label.where}.python: {lacking}"
    elif lacking := registry.missing(label.entry.method):
        yield f"{label.where}: {lacking}"


RULES: tuple[LabelRule, ...] = (
    enumeration,
    pairs,
    neighbours,
    kept_features,
    fixed_design,
    rival,
    tree,
    asks_a_model,
    labelled_points,
    kind_of_data,
    network,
    last_estimate,
    installed,
)


LARGE, FEW = 1000, 50  # features, for what can be said of instances before they are seen: at least, and at most


def budget_in_reach(place: Place) -> Iterator[str]:
    """The experiment's budget is one that a run can make."""
    if (multiple := place.experiment.budget) > MAX_BUDGET:
        yield f"{place.where}.budget: {_format_excess(multiple)}"


def too_large(label: MethodPlace) -> Iterator[str]:
    """The budget of a sampled method, and its intermediate budgets, are in reach, and their design fits in memory."""
    entry, method = label.entry, label.entry.method
    if entry.match_budget_of:  # as many as a design has that is counted elsewhere
        return
    features, d = f"d = {label.d:,}" if label.d else f"about {FEW} features", label.d or FEW
    own, default = entry.most, label.place.experiment.budget
    asked = [(own_place(label), own) if own else (f"{label.place.where}.budget", default)]
    for where, multiple in [
        *asked,
        *((f"{label.where}.intermediate_budgets", smaller) for smaller in entry.intermediate_budgets or ()),
    ]:
        if (needed := held(method, multiple, d)) > MAX_DESIGN_BYTES:
            yield (
                f"{where}: {multiple:g} x d evaluations by {method} would take {format_bytes(needed)} of memory at "
                f"{features}; the most is {format_bytes(MAX_DESIGN_BYTES)}: set {largest(method, d):g} or less"
            )
            return
        if multiple > MAX_BUDGET:
            yield f"{where}: {_format_excess(multiple)}"
            return


def own_place(label: MethodPlace) -> str:
    """Where a label's own budget says how much it spends at most."""
    return f"{label.where}.budget{'.max_budget' if isinstance(label.entry.budget, StoppingRule) else ''}"


def good_enough(label: MethodPlace) -> Iterator[str]:
    """A label whose budget is an error can stop by it, and spends it on nothing else."""
    budget = getattr(label.entry, "budget", None)
    if not isinstance(budget, StoppingRule):
        return
    if problem := registry.stopping_problem(label.entry.method, budget):
        yield f"{label.where}.{problem}"
    if label.entry.intermediate_budgets:
        yield f"{label.where}.intermediate_budgets: a budget that ends when it is good enough has none; remove the key"


def held(method: str, multiple: float, d: int) -> float:
    """Bytes of a design of multiple x d evaluations of d features, roughly; inf where that is no number."""
    rows = multiple * d
    if registry.METHODS[method].holds == "coalitions" and d <= LARGE:  # 2^d of more is above every budget
        rows = min(rows, 2.0**d)
    return rows * _row(method, d)


def largest(method: str, d: int) -> float:
    """The largest round budget, as a multiple of d, whose design may be held."""
    most = MAX_DESIGN_BYTES / (d * _row(method, d))
    return min(MAX_BUDGET, float(f"{most * 0.99:.1g}") if most < 1 else float(10 ** math.floor(math.log10(most))))


def _row(method: str, d: int) -> float:
    """Bytes of an evaluation: its mask, and its share of permutations or of a dense readout."""
    return 2.0 * d + 64 if registry.METHODS[method].holds == "permutations" else 9.0 * d


def _format_excess(multiple: float) -> str:
    return f"{multiple:g} x d evaluations are more than any run makes; set {MAX_BUDGET:g} or less"


def budget(label: MethodPlace) -> Iterator[str]:
    """The budget of a sampled method and its intermediate_budgets: in order, and enough for the method."""
    where, entry = label.where, label.entry
    try:
        most = budget_of(label.place.config, label.place.name, label.name)
    except ShapelineError as error:
        yield f"{where}.match_budget_of: {error}"
        return
    if len(set(entry.intermediate_budgets or ())) < len(entry.intermediate_budgets or ()):
        yield f"{where}.intermediate_budgets: a budget is listed twice; remove one"
    key = "match_budget_of" if entry.match_budget_of else "budget"
    own = own_place(label) if key == "budget" else f"{where}.{key}"
    asked = [(own if entry.match_budget_of or entry.budget else f"{label.place.where}.budget", most)]
    for smaller in entry.intermediate_budgets or ():
        asked.append((f"{where}.intermediate_budgets", smaller))
        if smaller >= most:
            yield f"{where}.intermediate_budgets: {smaller:g} is not below the budget of {most:g}; give smaller ones"
    yield from _too_few(label, asked)


def _too_few(label: MethodPlace, asked: list[tuple[str, float]]) -> Iterator[str]:
    """asked: places in the configuration, and the multiples of d that they ask for."""
    entry, d = label.entry, label.d
    minimum = dispatch.resolve(label.method.minimum)
    if d is None:  # that of an instance; the smallest multiple of a large d is that of nearly all
        least = minimum({**entry.model_dump(), "d": LARGE}) / LARGE
        for place, multiple in asked:
            if multiple < 0.9 * least:
                enough = math.ceil(10 * least) / 10
                yield f"{place}: {multiple:g} x d is too few for {entry.method}; set {enough:g} or more"
        return
    least = minimum({**entry.model_dump(), "d": d})
    for place, multiple in asked:
        count = evaluations(multiple, d)
        if count < least:
            yield (
                f"{place}: {multiple:g} x d is {count} evaluations and {entry.method} needs at least {least} "
                f"at d = {d}; set {math.ceil(100 * least / d) / 100:g} or more"
            )
