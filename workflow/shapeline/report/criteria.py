"""The recommendation per criterion of an experiment, by the rule of `statistics.recommendation`, and its tests."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from shapeline.attribution.explanation import GRADIENT_EVALUATIONS
from shapeline.errors import NO_RULE
from shapeline.report import experiment
from shapeline.report.experiment import Results
from shapeline.report.formatting import format_count, number
from shapeline.statistics import paired
from shapeline.statistics.recommendation import MARGIN, Recommendation, recommend

MIN_INSTANCES = 6  # with fewer instances no signed-rank test can be significant
ANY_COST = "at any cost"


LEGEND = (
    "★ recommended: the method with the fewest evaluations that is non-inferior to the best, that is, with 95 % "
    "confidence worse by less than the margin. ☆ undecided: the instances do not suffice for a recommendation; the "
    "first method named has the best mean or is non-inferior to it. ⚠ another method is significantly better with "
    "another baseline or training seed."
)


@dataclass(frozen=True)
class Criterion:
    """A scalar statistic that ranks methods; need: the purpose for which it matters."""

    metric: str
    statistic: str
    better: str
    title: str
    short: str
    unit: str
    need: str = ""


CRITERIA = (
    Criterion("localization", "auprc", "higher",
              "Localisation of the annotated objects: area under the precision–recall curve",
              "localisation", "", "Finds the annotated objects"),
    Criterion("ground_truth_words", "f1", "higher", "Ground-truth words: F1",
              "ground-truth words", "", "Finds the words that decide"),
    Criterion("error", "rmse", "lower", "Closeness to the exact values: RMSE",
              "error", "{value}", "Closest to the exact values"),
    Criterion("log_odds", "deletion_auc", "lower", "Faithfulness by deletion: AUC of the log-odds curve",
              "deletion AUC", "nats", "Finds what the model relies on"),
    Criterion("log_odds", "insertion_auc", "higher", "Faithfulness by insertion: AUC of the log-odds curve",
              "insertion AUC", "nats", "Finds what suffices for the prediction"),
)  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """An experiment's values (instances, methods) and costs by one criterion.

    A gradient counts as three evaluations. also: further candidates, methods at smaller budgets and the `truth` of
    errors; absent: methods with too few instances; random: the end of the margin's range; available: number of test
    instances, minus explained ones without values of all methods; incomplete: methods whose scores do not add up and
    which are never recommended; fixed: methods without a budget; copies: further entries of random attribution.
    """

    criterion: Criterion
    values: pd.DataFrame
    evaluations: pd.Series
    seconds: pd.Series
    unit: str
    also: pd.DataFrame = field(default_factory=pd.DataFrame)
    truth: str | None = None
    absent: tuple[str, ...] = ()
    random: str | None = None
    margin: float = MARGIN
    available: int | None = None
    gradients: frozenset[str] = frozenset()
    incomplete: frozenset[str] = frozenset()
    gradient_cost: float = GRADIENT_EVALUATIONS
    fixed: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()

    @functools.cached_property
    def candidates(self) -> pd.DataFrame:
        """Values (instances, names) of all candidates for a recommendation."""
        return self.values.join(self.also).drop(columns=[*self.incomplete, *self.copies], errors="ignore")

    @functools.cached_property
    def _recommendations(self) -> dict[tuple, Recommendation]:
        return {}

    @functools.cached_property
    def _computed(self) -> dict:
        return {}

    def compute_once(self, compute: Callable, measured: pd.DataFrame):
        """Return compute(evidence, measured), cached per table of measurements."""
        key = compute, id(measured)
        if key not in self._computed:
            self._computed[key] = measured, compute(self, measured)  # the table stays, and so its id
        return self._computed[key][1]

    def advice(self, most: float = np.inf) -> Recommendation | None:
        """Return the recommendation among methods with at most `most` evaluations per instance; None without any."""
        spent = self.evaluations.reindex(list(self.candidates)).fillna(np.inf)  # external scores may have unknown costs
        affordable = tuple(name for name in self.candidates if spent[name] <= most)
        if affordable and affordable not in self._recommendations:
            self._recommendations[affordable] = self._recommend(list(affordable), spent)
        return self._recommendations.get(affordable)

    @functools.cached_property
    def recommend_by_time(self) -> Recommendation:
        """Return the recommendation at equal time; smaller budgets have no measured time."""
        quicker = self._list_cheaper(self.seconds)
        return self._recommend([*self.values, self.truth] if quicker is None else quicker, self.seconds)

    @property
    def quicker(self) -> str:
        """The scope of the recommendation by time, which excludes methods slower than the exact values."""
        below = self._list_cheaper(self.seconds)
        return f"faster than {self.truth}" if below is not None and len(below) < self.values.shape[1] else ""

    def _list_cheaper(self, costs: pd.Series) -> list[str] | None:
        """Return the methods that cost less than the truth of errors; None where that is at most one."""
        if self.truth is None:
            return list(self.values)
        below = [entry for entry in self.values if costs.get(entry, np.nan) < costs.get(self.truth, np.inf)]
        return below if len(below) > 1 else None

    def _recommend(self, names: list[str], costs: pd.Series) -> Recommendation:
        return recommend(
            self.candidates[[name for name in names if name in self.candidates]],
            costs,
            self.margin,
            self.random,
            self.criterion.better,
            available=self.available,
            fixed=self.fixed,
        )

    @functools.cached_property
    def choices(self) -> list[tuple[float, Recommendation]]:
        """Return the recommendation at each cost, in evaluations per instance, from which on it changes."""
        spent = self.evaluations.reindex(list(self.candidates)).fillna(np.inf)
        better = paired.order(self.candidates, self.criterion.better)
        leads = [name for index, name in enumerate(better) if all(spent[name] < spent[one] for one in better[:index])]
        rows: list[tuple[float, Recommendation]] = []
        for most in sorted(spent[leads]):  # the best mean changes only at these costs
            advice = self.advice(most)
            if not rows or (advice.entry, advice.outcome) != (rows[-1][1].entry, rows[-1][1].outcome):
                rows.append((most, advice))
        return rows

    @functools.cached_property
    def last(self) -> Recommendation:
        """Return the recommendation at any cost; of errors, at a cost below that of the exact values."""
        return self.advice(np.nextafter(self.evaluations[self.truth], 0) if self._limited else np.inf)

    @property
    def _limited(self) -> bool:
        return self.truth is not None and self._list_cheaper(self.evaluations) is not None

    @property
    def limit(self) -> str:
        """The cost limit of `last`, in words."""
        if not self._limited:
            return ANY_COST
        return f"below the {format_count(self.evaluations[self.truth], 'evaluation')} of {self.truth}"

    def recommend_beyond(self, results: Results) -> Recommendation | None:
        """Return `last` where it differs from the recommendation within the budget; None where exact values fit it."""
        within = self.within(results)
        if within is None:
            return self.last
        if self.last is None or self.truth in within.bounds.index:
            return None
        return None if (self.last.entry, self.last.outcome) == (within.entry, within.outcome) else self.last

    def within(self, results: Results) -> Recommendation | None:
        """Return the recommendation within the experiment's budget, the empty and the full input not counted; None
        where no method but random attribution fits it."""
        budget = results.settings.get("budget")
        advice = self.advice(np.inf) if budget is None else self.advice(budget * results.d + 2)
        return None if advice is not None and list(advice.bounds.index) == [self.random] else advice

    def first(self, results: Results) -> Recommendation:
        """Return the recommendation that a page gives first: within the budget, or `last` where nothing fits it."""
        return self.within(results) or self.last


def collect_evidence(results: Results) -> list[Evidence]:
    """Return the evidence per criterion; criteria without two methods on six instances are left out."""
    answers, n_test = [], experiment.count_rows(results.dataset_card).get("test")
    for criterion in list_criteria(results.measured):
        measured = results.measured.get(criterion.metric)
        if measured is None or measured.empty:
            continue
        entries = [entry for entry in results.entries if criterion.metric != "error" or entry != results.exact]
        also, spent, truth = _add_reference_points(criterion, measured, results)
        values = paired.pivot_by_method(pd.concat([measured, *also]), criterion.statistic)
        shared = [entry for entry in values if entry in entries]
        random = [entry for entry in shared if results.entries[entry]["method"] == "random"]
        if len(shared) - len(random[1:]) < 2 or len(values) < MIN_INSTANCES:
            continue
        answers.append(
            Evidence(
                criterion,
                values[shared],
                spent,
                experiment.average_seconds(results),
                criterion.unit.format(value=results.value_unit),
                values[[name for name in values if name not in shared]],
                truth if truth in values else None,
                tuple(entry for entry in entries if entry not in shared),
                random[0] if random else None,
                results.settings.get("margin") or MARGIN,
                None if n_test is None else n_test - (measured["instance"].nunique() - len(values)),
                frozenset(experiment.list_gradient_methods(results)),
                frozenset(entry for entry, frame in results.scores.items() if (frame["warning"] == NO_RULE).any()),
                experiment.count_gradient_cost(results),
                frozenset(experiment.list_fixed_methods(results)),
                frozenset(random[1:]),
            )
        )
    return answers


def _add_reference_points(
    criterion: Criterion, measured: pd.DataFrame, results: Results
) -> tuple[list[pd.DataFrame], pd.Series, str | None]:
    """Return measurements and evaluations of the further candidates, and the name of the truth."""
    spent = experiment.average_costs(results)
    if criterion.metric != "error":
        return [], spent, None
    parts, earlier = [name_budgets(measured)], experiment.average_evaluations_at_budgets(results)
    truth = results.exact if np.isfinite(spent.get(results.exact, np.nan)) else None
    if truth:
        none = {"method": truth, "repeat": 0, "statistic": criterion.statistic, "x": np.nan, "value": 0.0}
        parts.append(pd.DataFrame({"instance": measured["instance"].unique()}).assign(**none))
    spent = pd.concat([spent, earlier.set_axis([_name_budget(*at) for at in earlier.index])])
    return [part for part in parts if len(part)], spent, truth


def name_budgets(frame: pd.DataFrame) -> pd.DataFrame:
    """Return errors at intermediate budgets as those of methods whose name includes the budget."""
    rows = frame[frame["statistic"] == "rmse_by_budget"]
    rows = rows[rows["x"] < rows.groupby("method")["x"].transform("max")]
    names = [_name_budget(*at) for at in zip(rows["method"], rows["x"], strict=True)]
    return rows.assign(method=names, statistic="rmse", x=np.nan)


def _name_budget(entry: str, budget: float) -> str:
    return f"{entry} at {number(budget)} d"


def list_criteria(measured: Mapping[str, pd.DataFrame]) -> list[Criterion]:
    """Return the criteria of the metrics, and one per statistic of custom metrics."""
    custom = measured.get("own")
    names = [] if custom is None else sorted(custom["statistic"].unique())
    more = (Criterion("own", name, "lower", f"Custom metric: {name}", name, "") for name in names)
    return [*CRITERIA, *more]


def compare_references(answer: Evidence, results: Results) -> dict[str, Evidence]:
    """Return the evidence with other baselines, of the metric's `references`; cached."""
    measured = results.measured.get(answer.criterion.metric)
    return {} if measured is None else answer.compute_once(_evaluate_references, measured)


def _evaluate_references(answer: Evidence, measured: pd.DataFrame) -> dict[str, Evidence]:
    result, start = {}, f"{answer.criterion.statistic}_"
    for statistic in measured["statistic"].unique():
        if statistic.startswith(start):
            values = paired.pivot_by_method(measured, statistic)
            shared = [entry for entry in answer.values if entry in values]
            if len(shared) > 1 and len(values) >= MIN_INSTANCES:
                result[statistic.removeprefix(start)] = replace(answer, values=values[shared])
    return result


def average_per_seed(answer: Evidence, results: Results) -> pd.DataFrame:
    """Return means (training seeds, methods) over the instances that all methods have in all training seeds."""
    wide = pivot_by_seed(answer, results)
    return wide.mean().unstack(0).dropna(axis=1).sort_index() if len(wide) else pd.DataFrame()


def pivot_by_seed(answer: Evidence, results: Results) -> pd.DataFrame:
    """Return values (instances, (method, training)) on the instances that all methods have in all training seeds."""
    measured = results.by_training_seed.get(answer.criterion.metric)
    if measured is None or not len(measured):
        return pd.DataFrame()
    return answer.compute_once(_pivot_seeds, measured)


def _pivot_seeds(answer: Evidence, measured: pd.DataFrame) -> pd.DataFrame:
    measured = measured[measured["method"].isin(list(answer.values))]
    common = set.intersection(*(set(instances) for _, instances in measured.groupby("training")["instance"]))
    measured = measured[measured["instance"].isin(common)]
    columns = measured["method"] + "@" + measured["training"].astype(str)
    wide = paired.pivot_by_method(measured.assign(method=columns), answer.criterion.statistic)
    parts = [name.rsplit("@", 1) for name in wide]
    return wide.set_axis(pd.MultiIndex.from_tuples([(entry, int(number)) for entry, number in parts]), axis=1)


def name_verdict(advice: Recommendation) -> str:
    """Return the verdict with its symbol: ★ recommended, ☆ undecided."""
    if advice.entry is None:
        return "too few instances"
    if advice.is_random:
        return "none better than random"
    if advice.outcome != "undecided":
        return f"★ {advice.entry}"
    is_short = len(advice.rivals) <= 2
    rivals = list(advice.rivals) if is_short else [f"{len(advice.rivals)} others"]
    first, last = ", ".join([advice.entry, *rivals[:-1]]), rivals[-1:]
    return f"☆ undecided: {' or '.join([first, *last])}"
