"""Which of a handful of methods to take for one's own model, in one call, by the workflow's metrics and rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from shapeline.errors import NO_RULE, ShapelineError, reported_extras
from shapeline.methods.registry import METHODS
from shapeline.metrics import error, log_odds
from shapeline.report.python import drawing, stored, words
from shapeline.report.python.call import checked_settings, seed_by
from shapeline.report.python.case import Case, Wanted, case_of
from shapeline.report.python.explanation import Explanation
from shapeline.statistics.paired import by_label
from shapeline.statistics.recommendation import MARGIN, Recommendation, recommend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL = ("kernel_shap", "sample_shapley", "gp_shapley", "occlusion")
CONTROL = "random"  # the end of the span of which the margin is a share; it asks no model
AFFORDABLE = 1_000_000  # rows of the model that exact values may cost in all
PASSES = 3  # forward passes that a gradient is weighed as: one forward, and about two of work backward
SHOWN = {"rmse": "error", "spearman": "rank correlation", "masking_area": "masking", "insertion_area": "insertion"}


@dataclass(frozen=True, eq=False)
class Comparison:
    """What methods say of the same inputs, what they cost, and which to take.

    explanations: of each label that did not fail. exact: the Shapley values, None where they cost too much. table: a
    row a label, see `compare`. agreement: mean rank correlation over instances, (labels, labels). advice: which to
    take, None where nothing can be measured; by: the column of the table that it rests on. notes: what failed, or could
    not be measured, in words.
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
        """The label to take; None where there is no advice."""
        return self.advice and self.advice.label

    def told(self) -> list[str]:
        """The advice and what else is to be known, a sentence each."""
        units = {"error": "", "masking": "nats"}
        said = "No advice: nothing that could be recommended was measured."
        if self.advice is not None:
            label = self.advice.label
            cost = "" if label is None else f"{self.table['evaluations'][label]:,.6g} evaluations"
            said = f"By {self.by}: {self.advice.sentence(units.get(self.by, ''), cost)}"
        return [said, *self.notes]

    def plot(self) -> "Figure":
        """What each label costs against how good it is, the recommended one marked, and how far they agree."""
        return drawing.shown(drawing.comparison(self))

    def __repr__(self) -> str:
        return "\n".join([self.table.to_string(float_format="{:.4g}".format, na_rep="–"), "", *self.told()])

    def _repr_html_(self) -> str:
        return drawing.comparison_page(self)


@reported_extras("compare")
def compare(
    model: object,
    inputs: object,
    methods: Sequence[str] | Mapping[str, str | dict] = USUAL,
    budget: float = 4,
    *,
    margin: float = MARGIN,
    seed: int = 0,
    random_state: int | None = None,
    **asked: object,
) -> Comparison:
    """Explain the same inputs by several methods, measure them, and say which to take.

    model, inputs: as in `explain`, and so is what else is asked: reference, features, target, background, value, y,
    feature_names, class_names, tokenizer, outputs.
    methods: names, or label -> a name or {"method": name, ...parameters}; `random` is always measured beside them.
    budget: multiple of d, of sampled methods that give none of their own.
    margin: a share of the way from the best to random, within which the cheapest is recommended.

    The table has a row a label: evaluations and seconds an instance; error (RMSE) to and rank correlation with the
    exact Shapley values where these cost at most a million rows of the model; masking (lower is better) and insertion
    (higher is better), areas under the log-odds curves in nats, not of a regression; agreement, the mean rank
    correlation with the other labels but random. The advice rests on the error, else on masking, by the rule of the
    workflow's reports (statistics/recommendation.py). A method that fails is a note; ShapelineError where all do.
    """
    wrong = sorted(set(asked) - set(Wanted.__dataclass_fields__))
    if wrong:
        own = f"methods={{'mine': {{'method': ..., '{wrong[0]}': ...}}}}"
        raise ShapelineError(f"compare: '{wrong[0]}' is no argument; what is a method's own goes with it, as in {own}")
    case = case_of(model, inputs, Wanted(**asked, seed=seed_by(seed, random_state)))
    if len(case.positions) > len(case.given.inputs):
        raise ShapelineError("compare: target: several classes of an input are not independent; give one an input")
    entries, notes, found = _entries(methods), [], {}
    for label, (name, parameters) in entries.items():
        own = {key: setting for key, setting in parameters.items() if key != "budget"}
        spend = parameters.get("budget", budget)
        try:
            found[label] = case.explained(checked_settings(name, own, spend), spend)
        except ShapelineError as failure:
            notes.append(f"{label} failed: {failure}")
    if not set(found) - {CONTROL}:
        raise ShapelineError(f"compare: no method works here: {'; '.join(notes)}")
    notes += [f"{label}, {flag}." for label, each in found.items() for flag in words.flagged(each)]
    exact = _exact(case, notes)
    rows = {label: stored.rows_of(each) for label, each in found.items()}
    measured = _measured(case, rows, exact, notes)
    agreement = _agreement(rows)
    table = _table(found, entries, measured, agreement)
    by, values = _criterion(measured, exact)
    incomplete = [label for label, each in found.items() if NO_RULE in each.flag]
    notes += [f"{label} is not recommended: its scores do not add up." for label in incomplete]
    candidates = None if values is None else values.drop(columns=incomplete, errors="ignore")
    nothing = candidates is None or not set(candidates) - {CONTROL}
    advice = None if nothing else _advice(candidates, table, exact, margin, notes)
    return Comparison(found, exact, table, agreement, advice, by, values, tuple(notes))


def _entries(methods: Sequence[str] | Mapping[str, str | dict]) -> dict[str, tuple[str, dict]]:
    """Label -> the method's name and its parameters, with the control last."""
    named = methods if isinstance(methods, Mapping) else {name: name for name in methods}
    if isinstance(methods, str) or not named:
        raise ShapelineError("compare: methods: give a list of names, or label -> {'method': name, ...parameters}")
    entries = {}
    for label, entry in named.items():
        given = {"method": entry} if isinstance(entry, str) else dict(entry)
        if "method" not in given:
            raise ShapelineError(f"compare: methods: '{label}' does not say its method; add 'method': name")
        entries[label] = given.pop("method"), given
    return entries | {CONTROL: (CONTROL, {})}


def _exact(case: Case, notes: list[str]) -> Explanation | None:
    """The Shapley values of all inputs, where they cost little enough."""
    reference = case.question.reference
    asked = 1 if reference.own else len(reference.rows)
    cost = sum(2.0**own.d * len(places) for own, places in case.buckets) * asked
    if cost > AFFORDABLE:
        notes.append(f"The exact values would cost {cost:,.3g} rows of the model, so no error is measured.")
        return None
    return case.explained({"method": "shapley"}, 1.0)


def _measured(case: Case, rows: Mapping[str, pd.DataFrame], exact: Explanation | None, notes: list[str]):
    """What the metrics say, tidy, with a column of labels."""
    parts = []
    truth = None if exact is None else stored.rows_of(exact)
    for label, own in rows.items():
        if truth is not None:
            parts.append(error.measure(own, truth, seed=case.seed).assign(label=label))
    if case.question.model.task == "regression":
        notes.append("A regression has no log-odds, so masking and insertion are not measured.")
    else:
        question = case.question if len(case.buckets) > 1 else case.question.having(features=case.buckets[0][0])
        try:
            for label, own in rows.items():
                curves = log_odds.measure(own, question, case.inputs, case.buckets, case.seed)
                parts.append(curves[curves["x"].isna()].assign(label=label))
        except ShapelineError as failure:  # of probabilities of 0 or 1
            notes.append(f"Masking and insertion are not measured: {failure}")
            parts = [part for part in parts if "masking_area" not in set(part["quantity"])]
    empty = pd.DataFrame(columns=["instance", "repeat", "quantity", "x", "value", "label"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def _agreement(rows: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Mean rank correlation over instances of each pair of labels."""
    labels = list(rows)
    table = pd.DataFrame(np.eye(len(labels)), labels, labels)
    for place, one in enumerate(labels):
        for other in labels[:place]:
            likeness = error.measure(rows[one], rows[other])
            values = likeness[likeness["quantity"] == "spearman"]["value"]
            table.loc[one, other] = table.loc[other, one] = values.mean()
    return table


def _table(found: Mapping, entries: Mapping, measured: pd.DataFrame, agreement: pd.DataFrame) -> pd.DataFrame:
    """A row a label."""
    table = pd.DataFrame(
        {
            "evaluations": {label: each.cost["evaluations"] for label, each in found.items()},
            "seconds": {label: float(np.mean(each.seconds)) for label, each in found.items()},
        }
    )
    taking = [label for label in table.index if METHODS[entries[label][0]].gradients]
    table.loc[taking, "evaluations"] *= PASSES
    means = measured.groupby(["label", "quantity"])["value"].mean()
    for quantity, name in SHOWN.items():
        if quantity in set(measured["quantity"]):
            table[name] = means.xs(quantity, level="quantity")
    others = [label for label in table.index if label != CONTROL]
    among = agreement.loc[others, others].where(~np.eye(len(others), dtype=bool))
    table["agreement"] = among.mean() if len(others) > 1 else np.nan
    return table


def _criterion(measured: pd.DataFrame, exact: Explanation | None) -> tuple[str | None, pd.DataFrame | None]:
    """The column that decides, and its values (instances, labels): the error, else masking."""
    for quantity in ("rmse", "masking_area") if exact is not None else ("masking_area",):
        if quantity in set(measured["quantity"]):
            return SHOWN[quantity], by_label(measured, quantity)
    return None, None


def _advice(
    values: pd.DataFrame, table: pd.DataFrame, exact: Explanation | None, margin: float, notes: list
) -> Recommendation:
    """Of all labels, with a note where one costs as much as the exact values, which then are to be taken."""
    costs = table["evaluations"]
    most = np.inf if exact is None else exact.cost["evaluations"]
    if dear := [label for label in values if costs[label] >= most and label != CONTROL]:
        notes.append(
            f"The exact values cost {most:,.6g} evaluations, no more than {', '.join(dear)}: where you can spend them, "
            "take shapley."
        )
    return recommend(values, costs.to_dict(), margin, CONTROL)
