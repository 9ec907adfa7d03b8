"""Compare methods on a user's model in one call, by the metrics and the recommendation rule of the workflow."""

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from shapeline.api import drawing, formatting, stored
from shapeline.api.case import CallOptions, Case, build_case
from shapeline.api.choice import MIN_EXACT, check_margin, check_method, check_spending, seed_by, settle_spending
from shapeline.api.explanation import Explanation
from shapeline.attribution.explanation import GRADIENT_EVALUATIONS
from shapeline.errors import NO_RULE, ShapelineError, nearest, reported_extras
from shapeline.methods.registry import METHODS
from shapeline.metrics import error, log_odds
from shapeline.report.formatting import format_evaluations
from shapeline.statistics.paired import pivot_by_method
from shapeline.statistics.recommendation import MARGIN, Recommendation, recommend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_METHODS = ("kernel_shap", "sample_shapley", "gp_shapley", "occlusion")
CONTROL = "random"  # the end of the range that the margin is a share of; it evaluates no model
MAX_ROWS = 1_000_000  # model rows that exact values may cost
ROUNDING = 1e-12  # of errors, as a share of the largest prediction
EXACT = ("tree_shap", "linear_shap")  # methods that read exact values from the model, for any number of features
PRINTED = {"rmse": "error", "spearman": "rank correlation", "deletion_auc": "deletion", "insertion_auc": "insertion"}
TITLES = {"deletion": "deletion AUC", "insertion": "insertion AUC"}  # of columns, in print


@dataclass(frozen=True, eq=False)
class Comparison:
    """Explanations of the same inputs by several methods, their metrics and costs, and the recommended method.

    explanations: by method, without those that failed. exact: the Shapley values, None where they cost too much. table:
    a row per method, see `compare`. agreement: mean rank correlation over instances, (methods, methods). advice: the
    recommendation, None where no metric can be computed; by: the column of the table that is its criterion. notes:
    sentences on what failed or could not be measured.
    """

    explanations: Mapping[str, Explanation]
    exact: Explanation | None
    table: pd.DataFrame
    agreement: pd.DataFrame
    advice: Recommendation | None
    by: str | None
    values: pd.DataFrame = field(repr=False)
    notes: Sequence[str] = ()

    @property
    def recommended(self) -> str | None:
        """The recommended method; None where there is none."""
        return None if self.advice is None or self.advice.is_random else self.advice.entry

    @property
    def criterion(self) -> str | None:
        """The criterion in words."""
        return TITLES.get(self.by, self.by)

    @property
    def titled_table(self) -> pd.DataFrame:
        """The table with column titles for reading."""
        return self.table.rename(columns=TITLES)

    def list_findings(self) -> list[str]:
        """Return the recommendation and the notes, a sentence each."""
        units = {"error": "", "deletion": "nats"}
        finding = "No recommendation: no criterion was measured for a method that can be recommended."
        if self.advice is not None:
            entry = self.advice.entry
            spent = "" if entry is None else format_evaluations(self.table["evaluations"][entry])
            cost = f"{spent} evaluations per instance" if spent else ""
            finding = f"{self.advice.sentence(units.get(self.by, ''), cost)} Criterion: {self.criterion}."
        return [finding, *self.notes]

    def plot(self) -> "Figure":
        """Return the quality and cost of each method, the recommended one marked, and their agreement."""
        return drawing.add_png(drawing.comparison(self))

    @property
    def every(self) -> dict[str, Explanation]:
        """The explanations by method, with the exact values where they are known."""
        known = "exact" in self.explanations or any(each is self.exact for each in self.explanations.values())
        return {**self.explanations, **({} if self.exact is None or known else {"exact": self.exact})}

    def to_html(self, path: str | Path | None = None) -> str | None:
        """Return a page with the table, the recommendation and the explorer of all methods, or write it to a file."""
        head = drawing.comparison_head(self)
        return drawing.write_page("Comparison of methods", head, self.every, self.recommended, path)

    def __repr__(self) -> str:
        return "\n".join(
            [self.titled_table.to_string(float_format=formatting.format_number, na_rep="–"), "", *self.list_findings()]
        )

    def _repr_html_(self) -> str:
        return drawing.comparison_page(self)


@reported_extras("compare")
def compare(
    model: object,
    inputs: object,
    methods: Sequence[str] | Mapping[str, str | dict] = DEFAULT_METHODS,
    budget: float | dict | None = None,
    *,
    evaluations: int | None = None,
    margin: float = MARGIN,
    seed: int = 0,
    random_state: int | None = None,
    **options: object,
) -> Comparison:
    """Explain the same inputs by several methods, measure the methods, and recommend one.

    Parameters
    ----------
    model, inputs : object
        As of `explain`.
    methods : sequence or mapping
        Names, or name -> method or ``{"method": name, ...parameters}``; `random` is always added.
    budget : float or dict
        Evaluations of sampled methods as a multiple of d, or an error target, as of `explain`. A method
        with `budget` or `evaluations` of its own takes these.
    evaluations : int
        Number of evaluations per input of sampled methods, instead of a budget.
    margin : float
        Non-inferiority margin, as a fraction of the range between the best method and random attribution.
    seed, random_state : int
        Seed of all samples, by either name.
    **options
        Further arguments of `explain`: reference, features, target, background, value, y, feature_names, class_names,
        tokenizer, outputs.

    Returns
    -------
    Comparison
        `table` has a row per method: evaluations and seconds per instance; error (RMSE) to and rank correlation with
        the exact Shapley values where these cost at most a million model rows, or `tree_shap` or `linear_shap` gives
        them; deletion AUC (lower is better) and insertion AUC (higher is better) of the log-odds curves in nats, not of
        a regression; agreement, the mean rank correlation with the other methods except random. The criterion is the
        error, else the deletion AUC. A method that fails is a note.

    Raises
    ------
    ShapelineError
        Where all methods fail, and for arguments that do not fit.

    Examples
    --------
    >>> import numpy as np, shapeline
    >>> def predict(rows):
    ...     return rows @ [3.0, 2.0, 1.0, 0.5]
    >>> rows = np.random.default_rng(0).normal(size=(8, 4))
    >>> found = shapeline.compare(predict, rows, ["shapley", "occlusion"], reference="zero", value="prediction")
    >>> sorted(found.table.index)
    ['occlusion', 'random', 'shapley']
    """
    _check_options(options)
    check_spending("compare", budget, evaluations)
    check_margin("compare", margin)
    case = build_case(model, inputs, CallOptions(**options, seed=seed_by(seed, random_state)))
    if len(case.positions) > len(case.given.inputs):
        raise ShapelineError(
            "compare: target: several classes of one input are not independent; give one class per input"
        )
    chosen, notes, result = read_entries(methods), [], {}
    for name, _ in chosen.values():
        check_method(name, "compare")  # a mistake, unlike a method that fails on this model
    case = case.settle_value(options.get("value"), [name for name, _ in chosen.values()])
    for entry, (name, parameters) in chosen.items():
        spending = {key: parameters.pop(key) for key in ("budget", "evaluations") if key in parameters}
        rule = isinstance(budget, dict) and not METHODS[name].sampled  # of the others
        own = spending or {"budget": None if rule else budget, "evaluations": evaluations}
        try:
            spend = own.get("budget")
            settings, count = settle_spending("compare", name, parameters, spend, own.get("evaluations"))
            case.check_fixed_cost("compare", settings, spending.get("evaluations"))
            result[entry] = case.explain_all(settings, spend, count)
        except ShapelineError as failure:
            notes.append(f"{entry} failed: {failure}")
    if not set(result) - {CONTROL}:
        raise ShapelineError(f"compare: all methods failed ({'; '.join(notes)}); choose others")
    notes += [f"{entry}, {flag}." for entry, each in result.items() for flag in formatting.list_warnings(each)]
    exact = _compute_exact(case, result, notes)
    others = _find_other_units(result, exact)
    if others:
        listed = ", ".join(f"{entry} ({unit})" for entry, unit in others.items())
        notes.append(
            f"The error of {listed} is not measured, because the exact values are in {formatting.name_unit(exact)}; "
            "compare by rank correlation."
        )
    rows = {entry: stored.build_rows(each) for entry, each in result.items()}
    measured = _measure_methods(case, rows, exact, others, notes)
    agreement = tabulate_agreement(list(rows), functools.partial(_correlate, rows))
    table = _tabulate(result, chosen, measured, agreement)
    by, values = _choose_criterion(measured, exact)
    incomplete = [entry for entry, each in result.items() if NO_RULE in each.warning]
    incomplete += [entry for entry in result if chosen[entry][0] == CONTROL != entry]
    notes += [f"{entry} is not recommended." for entry in incomplete]
    candidates = None if values is None else values.drop(columns=incomplete, errors="ignore")
    nothing = candidates is None or not set(candidates) - {CONTROL}
    fixed = [entry for entry, (name, _) in chosen.items() if not METHODS[name].sampled]
    advice = None if nothing else _advise(candidates, table, exact, margin, notes, fixed)
    return Comparison(result, exact, table, agreement, advice, by, values, tuple(notes))


def _check_options(options: Mapping[str, object]) -> None:
    """Raise ShapelineError for an argument that `explain` lacks, such as a parameter of a method."""
    for name in sorted(set(options) - set(CallOptions.__dataclass_fields__)):
        allowed = {*CallOptions.__dataclass_fields__, *inspect.signature(compare).parameters} - {"options"}
        hint = f".{nearest(name, allowed)}"
        if any(name in one.parameters.model_fields for one in METHODS.values()) and name != "method":
            own = f"methods={{'mine': {{'method': ..., '{name}': ...}}}}"
            hint = f"; give a method's parameters with the method, as in {own}"
        raise ShapelineError(f"compare: '{name}' is not an argument{hint}")


def read_entries(methods: Sequence[str] | Mapping[str, str | dict]) -> dict[str, tuple[str, dict]]:
    """Return the class and the parameters of each method entry, with the control last."""
    named = methods if isinstance(methods, Mapping) else {str(name): name for name in methods or ()}
    if isinstance(methods, str) or not named or not all(isinstance(one, str | Mapping) for one in named.values()):
        example = f"[{methods!r}]" if isinstance(methods, str) else "['gp_shapley', 'kernel_shap']"
        raise ShapelineError(
            f"compare: methods: expected a list of names or a mapping; give {example}, or with parameters "
            "{name: {'method': ..., ...}}"
        )
    entries = {}
    for entry, settings in named.items():
        given = {"method": settings} if isinstance(settings, str) else dict(settings)
        if "method" not in given:
            raise ShapelineError(f"compare: methods: '{entry}' has no method; add 'method': name")
        entries[entry] = given.pop("method"), given
    return entries | {CONTROL: (CONTROL, {})}


def _compute_exact(case: Case, found: Mapping[str, Explanation], notes: list[str]) -> Explanation | None:
    """Return the exact Shapley values of all inputs, or those that a method found; None, with a note, if too costly."""
    reference = case.game.reference
    n_rows = 1 if reference.own else len(reference.rows)
    cost = sum(2.0**features.d * len(indices) for features, indices in case.buckets) * n_rows
    if cost > MAX_ROWS:
        for entry, each in found.items():
            if formatting.name_of(each) in EXACT and set(each.status) == {"ok"}:
                notes.append(f"The error is that to {entry}, whose values are exact.")
                return each
        limit = "reduce instances or background rows" if cost < 10 * MAX_ROWS else f"the limit is {MAX_ROWS:,}"
        notes.append(
            f"The exact values would cost {cost:,.3g} model rows, so no error is measured; {limit}. Of trees and "
            "linear models the methods tree_shap and linear_shap give them."
        )
        return None
    return case.explain_all({"method": "shapley"}, None)


def _find_other_units(found: Mapping[str, Explanation], exact: Explanation | None) -> dict[str, str]:
    """Return the unit of each method whose scores have another unit than the exact values, which is no error's."""
    if exact is None:
        return {}
    reference, value = METHODS[formatting.name_of(exact)], exact.about.value
    return {
        entry: formatting.name_unit(each)
        for entry, each in found.items()
        if METHODS[formatting.name_of(each)].differs_in_unit(reference, value)
    }


def _measure_methods(
    case: Case, rows: Mapping[str, pd.DataFrame], exact: Explanation | None, others: Collection[str], notes: list[str]
) -> pd.DataFrame:
    """Return the metrics in long format, with a column of methods."""
    parts = []
    truth = None if exact is None else stored.build_rows(exact)
    for entry, frame in rows.items():
        if truth is not None:
            measured = error.measure(
                frame, truth, seed=case.seed, scale_free=entry == CONTROL, same_unit=entry not in others
            )
            parts.append(measured.assign(method=entry))
    if case.game.model.task == "regression":
        notes.append("A regression has no log-odds, so deletion and insertion AUC are not measured.")
    else:
        game = case.game if len(case.buckets) > 1 else case.game.having(features=case.buckets[0][0])
        try:
            for entry, frame in rows.items():
                curves = log_odds.measure(frame, game, case.inputs, case.buckets, case.seed)
                parts.append(curves[curves["x"].isna()].assign(method=entry))
        except ShapelineError as failure:  # for probabilities of 0 or 1
            reason = str(failure).removeprefix("engine: ").partition(";")[0]  # without the fix, which is not possible
            notes.append(f"Deletion and insertion AUC are not measured: {reason}.")
            parts = [part for part in parts if "deletion_auc" not in set(part["statistic"])]
    empty = pd.DataFrame(columns=["instance", "repeat", "statistic", "x", "value", "method"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def _correlate(rows: Mapping[str, pd.DataFrame], first: str, second: str) -> float:
    """Return the mean rank correlation over instances of two methods."""
    similarity = error.measure(rows[first], rows[second])
    return similarity[similarity["statistic"] == "spearman"]["value"].mean()


def tabulate_agreement(entries: list[str], correlation: Callable[[str, str], float]) -> pd.DataFrame:
    """Return the agreement of each pair of methods, (methods, methods)."""
    table = pd.DataFrame(np.eye(len(entries)), entries, entries)
    for one, other in itertools.combinations(entries, 2):
        table.loc[one, other] = table.loc[other, one] = correlation(one, other)
    return table


def _tabulate(found: Mapping, entries: Mapping, measured: pd.DataFrame, agreement: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method."""
    table = pd.DataFrame(
        {
            "evaluations": {entry: each.cost["evaluations"] for entry, each in found.items()},
            "seconds": {entry: float(np.mean(each.seconds)) for entry, each in found.items()},
        }
    )
    with_gradients = [entry for entry in table.index if METHODS[entries[entry][0]].gradients]
    rows = max((each.about.rows for each in found.values()), default=1)  # of an evaluation; a gradient has one
    table.loc[with_gradients, "evaluations"] *= GRADIENT_EVALUATIONS / rows
    return add_quality(table, measured, PRINTED, agreement)


def add_quality(table: pd.DataFrame, measured: pd.DataFrame, columns: Mapping, agreement: pd.DataFrame) -> pd.DataFrame:
    """Return the costs of methods with the means of their measures, whose columns are named, and of their agreement."""
    means = measured.groupby(["method", "statistic"])["value"].mean()
    for statistic, name in columns.items():
        if statistic in set(measured["statistic"]):
            table[name] = means.xs(statistic, level="statistic")
    others = [entry for entry in agreement if entry != CONTROL]
    among = agreement.loc[others, others].where(~np.eye(len(others), dtype=bool))
    table["agreement"] = among.mean() if len(others) > 1 else np.nan
    return table


def _choose_criterion(measured: pd.DataFrame, exact: Explanation | None) -> tuple[str | None, pd.DataFrame | None]:
    """Return the column that ranks methods and its values (instances, methods): the error, else the deletion AUC."""
    ranked = measured[measured["method"] != CONTROL]
    for statistic in ("rmse", "deletion_auc") if exact is not None else ("deletion_auc",):
        if statistic in set(ranked["statistic"]):
            return PRINTED[statistic], pivot_by_method(measured, statistic)
    return None, None


def _advise(
    values: pd.DataFrame, table: pd.DataFrame, exact: Explanation | None, margin: float, notes: list, fixed: list[str]
) -> Recommendation:
    """Recommend a method, with a note where one costs as much as the exact values, or is exact and costs far more."""
    costs = table["evaluations"]
    most = np.inf if exact is None else exact.cost["evaluations"]
    if exact is not None and values.max().max() <= ROUNDING * np.abs([exact.value_full, exact.value_empty]).max():
        values = 0 * values  # of a constant prediction, whose errors are all rounding
    inexact = [entry for entry in values if entry != CONTROL and (exact is None or values[entry].any())]
    if expensive := [entry for entry in inexact if costs[entry] >= most]:
        notes.append(
            f"The exact values cost {most:,.6g} evaluations per instance, no more than {', '.join(expensive)}: use "
            f"{formatting.name_of(exact)} in place of these."
        )
    limit = max(MIN_EXACT, *costs[inexact]) if inexact else np.inf
    above = [entry for entry in values.columns.difference([CONTROL, *inexact]) if costs[entry] > limit]
    notes += [f"{entry} is exact, for {costs[entry]:,.6g} evaluations, and not a candidate." for entry in above]
    return recommend(values.drop(columns=above), costs.to_dict(), margin, CONTROL, fixed=fixed)
