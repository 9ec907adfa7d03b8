"""Rules of a method entry: requirements of its method on the features, the model, the data and the packages."""

import json
import math
from collections.abc import Iterator
from typing import Any

from shapeline.config import derived
from shapeline.config.derived import LARGE_D
from shapeline.config.mistakes import (
    MAX_DESIGN_BYTES,
    MethodPlace,
    MethodRule,
    Place,
    catch,
    check_reference_to,
    describe_absence,
    refuse,
)
from shapeline.config.types import MAX_BUDGET, Model
from shapeline.datasets import folders
from shapeline.datasets.sources import list_arguments
from shapeline.designs.design import MAX_D, count_evaluations
from shapeline.errors import ShapelineError
from shapeline.files import format_bytes
from shapeline.games.features import IMAGE_KINDS, TABLE_KINDS, TEXT_KINDS
from shapeline.methods import registry, shapiq_process
from shapeline.methods.parameters import CustomMethod, External, Partition, StoppingRule
from shapeline.methods.registry import METHODS
from shapeline.models.registry import BOOSTED, ESTIMATORS


def find_shape(place: Place, settings: Any) -> tuple | str | None:
    """Return the shape of the features that an entry explains, None if unknown; or a text that says why it cannot."""
    if getattr(settings, "features", None) is None:
        return place.shape
    if place.kind != "pixel":
        return f"only beside pixels has a method other features, and these are of kind '{place.kind}'; remove the key"
    if getattr(settings, "match_budget_of", None):
        return "a rival explains the same features; remove match_budget_of and give a budget"
    if place.source is None:
        return None
    try:
        own = derived.find_feature_shape(place.config, place.experiment, settings)
    except ShapelineError as error:
        return str(error)
    return "there is a single feature (d = 1); make the features smaller" if own and math.prod(own) == 1 else own


def check_user_file(place: Place, settings: Any) -> str | None:
    """Return the problem of the user's file of an entry: a function, or scores computed elsewhere."""
    if isinstance(settings, CustomMethod):
        problem = registry.find_problem(settings)
        if not problem and "graph" in list_arguments(settings.method):
            kind = derived.find_features(place.experiment, settings).kind
            if kind in TABLE_KINDS:
                return f"method: {settings.method} takes a graph and features of kind '{kind}' lack one; let it take d"
        return problem
    if not isinstance(settings, External):
        return None
    for name, metric in place.metrics():
        if metric.needs_randomised:
            return f"method: scores made elsewhere are of one model; remove metrics.{name}, or the method"
        if metric.moves_inputs:
            return f"method: scores computed elsewhere cannot be re-computed for moved inputs; remove metrics.{name}"
    problem = describe_absence(settings.path)
    return problem and f"path: {problem}"


def check_number_of_features(entry: MethodPlace) -> Iterator[str]:
    method, name, d, pairs = entry.method, entry.settings.method, entry.d or 0, entry.method.pairs
    if method.exact and d > (most := pairs or MAX_D):
        yield (
            f": {name} enumerates 2^d coalitions and d = {d} is above {most}; use larger patches or "
            "groups of columns, or a sampled method"
        )
    if pairs and getattr(entry.settings, "features", None):
        yield f".features: {name} scores pairs of the experiment's features; remove the key"
    elif pairs and not method.exact and d > pairs:
        yield (f": {name} scores all pairs and d = {d:,} is above {pairs}; use larger patches or groups of columns")


def check_neighbours(entry: MethodPlace) -> Iterator[str]:
    settings, needs_grid = entry.settings, "grid" in entry.method.needs
    if (needs_grid and not _has_grid(entry)) or (
        getattr(settings, "graph", None) == "features" and not _has_graph(entry)
    ):
        remedy = "use a sampled method" if needs_grid else "set graph: chain or graph: complete"
        needed = "grid" if needs_grid and _has_graph(entry) else "graph"
        yield (
            f": {settings.method} needs features on a {needed} and features of kind '{entry.kind}' lack one; {remedy}"
        )


def _has_graph(entry: MethodPlace) -> bool:
    return entry.kind not in (*TABLE_KINDS, "player")


def _has_grid(entry: MethodPlace) -> bool:
    return _has_graph(entry) and entry.kind != "superpixel"  # words and runs of characters are a row


def check_estimates(entry: MethodPlace) -> Iterator[str]:
    if getattr(entry.settings, "n_features", None) and entry.settings.kernel == "shapley":
        yield (".n_features: lime with kernel 'shapley' has no fit of some features; use cosine or fraction")
    if entry.method.family == "peers" and getattr(entry.settings, "intermediate_budgets", None):
        yield (
            f".intermediate_budgets: {entry.settings.method} returns only its last estimate; define an entry per budget"
        )


def check_fixed_design(entry: MethodPlace) -> Iterator[str]:
    method, settings = entry.method, entry.settings
    if not method.is_fixed_cost or method.exact or not entry.d:
        return
    if _has_grid(entry) or getattr(settings, "graph", "") != "features":
        yield from catch("", derived.count_fixed_cost, json.dumps(derived.canonical(settings)), entry.shape)


def check_match_budget(entry: MethodPlace) -> Iterator[str]:
    settings, others = entry.settings, entry.place.experiment.methods
    rival = getattr(settings, "match_budget_of", None)
    if rival is None:
        return
    if settings.budget or settings.intermediate_budgets:
        yield ": match_budget_of sets the budget; remove budget and intermediate_budgets"
    if rival not in others:
        yield from check_reference_to(".match_budget_of", "method", rival, others)
    elif not METHODS[others[rival].method].is_fixed_cost:
        yield f".match_budget_of: '{rival}' has no fixed number of evaluations; give a budget instead"
    elif getattr(others[rival], "features", None):
        yield f".match_budget_of: '{rival}' explains features of its own; give a budget instead"


def check_tree(entry: MethodPlace) -> Iterator[str]:
    if entry.method.family != "hierarchical":
        return
    settings, kind = entry.settings, entry.kind
    if isinstance(settings, Partition):
        if kind == "superpixel":
            yield ": partition halves a grid or a row and superpixels lie on none; use h_shap"
        return
    if settings.mode == "relative" and settings.threshold > 100:
        yield f".threshold: {settings.threshold:g} is not a percentile; in mode relative give 0 to 100"
    if kind == "superpixel":
        yield from refuse("", settings, ("min_size", "shifts"), "superpixels are the leaves of the tree themselves")
        return
    axes = 2 if kind in IMAGE_KINDS else 1
    if any(len(shift) != axes for shift in settings.shifts or ()):
        wanted = "[rows, columns]" if axes == 2 else "[columns]"
        yield f".shifts: features of kind '{kind}' take no such shifts; give {wanted} each"
    if entry.shape and settings.min_size > max(entry.shape):
        size = "x".join(map(str, entry.shape))
        most = max(entry.shape)
        yield f".min_size: {settings.min_size} is larger than the {size} features; give at most {most}"


def check_model(entry: MethodPlace) -> Iterator[str]:
    if entry.method.needs_model and entry.place.has_no_model:
        free = ", ".join(name for name, other in METHODS.items() if not other.needs_model)
        yield (
            f": {entry.settings.method} needs a model, and there is none; give model in place of dataset, or use {free}"
        )


def check_labelled_points(entry: MethodPlace) -> Iterator[str]:
    settings, source = entry.settings, entry.place.source
    of_points = "labelled points" in entry.method.needs
    if of_points and source and source.task == "multilabel":
        yield f": {settings.method} compares points of one label each; these have several, so remove it"
    if of_points and entry.place.kind in TEXT_KINDS:
        yield f": {settings.method} compares points and the tokens of a text are none; remove it"
    if getattr(settings, "mu", None) and settings.categorical:
        yield ": the kernel of cosine distance (mu) takes no categorical columns; use rho"
    if getattr(settings, "classifier", "") == "step" and source and source.task == "regression":
        yield ": classifier step is for classes, and the dataset is of regression; use line"
    for column in getattr(settings, "categorical", ()):
        if isinstance(column, str) and source:
            yield from check_reference_to(".categorical", "column", column, source.feature_names)


def check_kind_of_data(entry: MethodPlace) -> Iterator[str]:
    kinds, source = entry.method.data, entry.place.source
    if kinds and source and source.kind not in kinds:
        yield (
            f": {entry.settings.method} explains data of kind {' and '.join(kinds)}, not of kind "
            f"{source.kind}; remove it"
        )


def check_network(entry: MethodPlace) -> Iterator[str]:
    method, name, model = entry.method, entry.settings.method, entry.place.model
    if model is None or list(check_kind_of_data(entry)):  # reported there
        return
    of, framework = f"models.{entry.place.experiment.model}", derived.find_framework(model)
    kind = model.kind
    if "attention" in method.needs and (model.architecture or framework != "torch"):  # the package's networks have none
        yield f": {name} needs the attention of a transformer, which {of} does not tell; remove it"
    elif "estimator" in method.needs and kind not in ESTIMATORS:
        trees = " or boosted trees" * (name == "tree_shap")
        yield f": {name} reads a pipeline in a .skops file{trees}, which {of} is not; use kernel_shap"
    elif name == "linear_shap" and kind in BOOSTED:
        yield f": linear_shap reads linear models, and {model.source} holds trees; use tree_shap"
    elif method.torch_only and framework != "torch":
        yield (
            f": {name} needs a torch model and {of} is of {framework}; set its framework: torch, or remove the method"
        )
    elif (model.architecture or kind) in method.unsupported:
        yield (
            f": {name} has no rule for what {model.architecture or 'a transformer'} does; "
            "use expected_gradients or integrated_gradients"
        )
    elif "path" in method.needs and entry.place.experiment.reference == "delete":
        yield (
            f": {name} goes from the reference to the input, and under reference: delete there is no such "
            f"path; use {'mask or pad' if entry.place.kind in TEXT_KINDS else 'zero or mean_value'}"
        )
    elif name == "grad_cam" and entry.settings.layer is None and _has_no_grid(model):
        yield (
            f": grad_cam needs maps or tokens on one grid of patches, and {model.source} joins patches "
            "from stage to stage; name a layer of maps, or remove the method"
        )
    elif "derivative" in method.needs and entry.place.function:
        lacking = entry.place.function
        yield f": {name} needs the derivative of a network, which {lacking} has not; remove it"


def _has_no_grid(model: Model) -> bool:
    """Return whether a folder holds a transformer whose last tokens are not its patches."""
    try:
        return model.kind == "folder" and folders.changes_its_grid(model.source)
    except ShapelineError:  # reported by the checks of models
        return False


def check_installed(entry: MethodPlace) -> Iterator[str]:
    if entry.place.name not in entry.place.config.run:
        return
    if python := getattr(entry.settings, "python", None):
        if lacking := shapiq_process.find_problem(python):
            yield f".python: {lacking}"
    elif lacking := registry.find_missing_package(entry.settings.method):
        yield f": {lacking}"


RULES: tuple[MethodRule, ...] = (
    check_number_of_features,
    check_neighbours,
    check_estimates,
    check_fixed_design,
    check_match_budget,
    check_tree,
    check_model,
    check_labelled_points,
    check_kind_of_data,
    check_network,
    check_installed,
)


FEW_PLAYERS, TYPICAL_D = 4, 50  # features, which bound estimates while instances are unknown


def check_budget(entry: MethodPlace) -> Iterator[str]:
    """Check that budgets fit in memory, that the intermediate ones are below the budget, and that all are enough."""
    where, settings = f".methods.{entry.name}", entry.settings
    own = "match_budget_of" if settings.match_budget_of else "budget" if settings.budget else None
    own = "budget.max_budget" if isinstance(settings.budget, StoppingRule) else own
    try:
        most = derived.find_budget(entry.place.config, entry.place.name, entry.name)
    except ShapelineError as error:
        yield f"{where}.match_budget_of: {error}"
        return
    smaller = settings.intermediate_budgets or []
    if most is None and smaller:
        yield f"{where}.intermediate_budgets: the default budget of {settings.method} depends on d; give a budget"
    if most is None:
        return
    key = f"{where}.{own}" if own else ".budget"
    budgets = [(key, most), *((f"{where}.intermediate_budgets", each) for each in smaller)]
    lines = [] if settings.match_budget_of else list(_check_size(entry, budgets))
    yield from lines[:1]
    if lines or not entry.method.minimum:
        return
    if len(set(smaller)) < len(smaller):
        yield f"{where}.intermediate_budgets: a budget is listed twice; remove one"
    for each in smaller:
        if each >= most:
            yield f"{where}.intermediate_budgets: {each:g} is not below the budget of {most:g}; give smaller ones"
    yield from _check_minimum(entry, budgets)


def _check_size(entry: MethodPlace, budgets: list[tuple[str, float]]) -> Iterator[str]:
    """Check that a design of these budgets, (key, multiple of d) each, fits in memory."""
    method, d = entry.settings.method, entry.d or TYPICAL_D
    features = f"d = {d:,}" if entry.d else f"about {d} features"
    for place, multiple in budgets:
        if (needed := estimate_bytes(method, multiple, d)) > MAX_DESIGN_BYTES:
            yield (
                f"{place}: {multiple:g} x d evaluations by {method} would take {format_bytes(needed)} of memory at "
                f"{features}; the most is {format_bytes(MAX_DESIGN_BYTES)}: set {find_max_budget(method, d):g} or less"
            )
        elif multiple > MAX_BUDGET:
            yield f"{place}: {multiple:g} x d evaluations are more than any run makes; set {MAX_BUDGET:g} or less"


def check_stopping(entry: MethodPlace) -> Iterator[str]:
    budget = getattr(entry.settings, "budget", None)
    if not isinstance(budget, StoppingRule):
        return
    if problem := registry.find_stopping_problem(entry.settings.method, budget):
        yield f".{problem}"
    if entry.settings.intermediate_budgets:
        yield ".intermediate_budgets: a budget that ends when it is good enough has none; remove the key"


def estimate_bytes(method: str, multiple: float, d: int) -> float:
    """Estimate the bytes of a design of multiple x d evaluations of d features; inf on overflow."""
    rows = multiple * d
    if registry.METHODS[method].distinct == "coalitions" and d <= LARGE_D:  # 2^d of more is above every budget
        rows = min(rows, 2.0**d)
    return rows * _estimate_row(method, d)


def find_max_budget(method: str, d: int) -> float:
    """Return the largest round budget, as a multiple of d, whose design fits in memory."""
    most = MAX_DESIGN_BYTES / (d * _estimate_row(method, d))
    return min(MAX_BUDGET, float(f"{most * 0.99:.1g}") if most < 1 else float(10 ** math.floor(math.log10(most))))


def _estimate_row(method: str, d: int) -> float:
    """Estimate the bytes per evaluation: its mask, and its share of permutations or of dense estimator weights."""
    return 2.0 * d + 64 if registry.METHODS[method].distinct == "permutations" else 9.0 * d


def _check_minimum(entry: MethodPlace, budgets: list[tuple[str, float]]) -> Iterator[str]:
    """Check that budgets, (key, multiple of d) each, are at least the method's minimum."""
    settings, d = entry.settings, entry.d
    # Where d varies by instance, the minimum at a large d, as a multiple of d, holds for nearly all; of a game, whose
    # number of players its job reads, that at a small d rules out no other.
    assumed = FEW_PLAYERS if entry.place.experiment.game else LARGE_D
    least = entry.method.count_least(settings.model_dump(), d or assumed)
    for place, multiple in budgets:
        if d is None and multiple < 0.9 * least / assumed:
            enough = math.ceil(10 * least / assumed) / 10
            yield f"{place}: {multiple:g} x d is too few for {settings.method}; set {enough:g} or more"
        elif d and (count := count_evaluations(multiple, d)) < least:
            yield (
                f"{place}: {multiple:g} x d is {count} evaluations and {settings.method} needs at least {least} "
                f"at d = {d}; set {math.ceil(100 * least / d) / 100:g} or more"
            )
