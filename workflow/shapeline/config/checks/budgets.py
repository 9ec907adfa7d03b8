"""Budgets below what a method needs, and beyond what a run or its memory holds."""

import math
from collections.abc import Iterator

from shapeline.config.checks.place import MethodPlace, Place
from shapeline.config.derived import budget_of
from shapeline.config.limits import MAX_BUDGET, MAX_DESIGN_BYTES, format_bytes
from shapeline.designs.design import evaluations
from shapeline.errors import ShapelineError
from shapeline.methods import dispatch, registry
from shapeline.methods.parameters import StoppingRule

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
        yield f"{where}.intermediate_budgets: a budget is listed twice"
    key = "match_budget_of" if entry.match_budget_of else "budget"
    own = own_place(label) if key == "budget" else f"{where}.{key}"
    asked = [(own if entry.match_budget_of or entry.budget else f"{label.place.where}.budget", most)]
    for smaller in entry.intermediate_budgets or ():
        asked.append((f"{where}.intermediate_budgets", smaller))
        if smaller >= most:
            yield f"{where}.intermediate_budgets: {smaller:g} is not below the budget of {most:g}"
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
                yield f"{place}: {multiple:g} x d is too few for {entry.method}: set {enough:g} or more"
        return
    least = minimum({**entry.model_dump(), "d": d})
    for place, multiple in asked:
        count = evaluations(multiple, d)
        if count < least:
            yield (
                f"{place}: {multiple:g} x d is {count} evaluations and {entry.method} needs at least {least} "
                f"at d = {d}: set {math.ceil(100 * least / d) / 100:g} or more"
            )
