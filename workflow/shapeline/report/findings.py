"""Findings of an experiment in sentences."""

import math

import numpy as np
import pandas as pd

from shapeline.report import criteria, experiment
from shapeline.report.formatting import format_count, interval, number, share
from shapeline.statistics import paired
from shapeline.statistics.paired import EqualError, compare_at_equal_error


@experiment.remember
def headline(results: experiment.Results) -> dict:
    """Return the row of an experiment in the index: numbers, and None where one is missing."""
    title, subset = results.settings.get("title") or results.experiment, results.dataset_card.get("subset")
    return {
        "experiment": results.experiment,
        "title": f"{title} ({subset})" if subset else title,
        "accuracy": results.model_card.get("test_accuracy"),
        "r2": results.model_card.get("test_r2"),  # instead of the accuracy for a regression
        "instances": int(experiment.find_ids(results.instances).nunique()),
        "evaluations": sum(experiment.count_evaluations(results, frame) for frame in results.scores.values()),
        "rows": int(sum(len(frame) for frame in results.scores.values())),
        "failures": experiment.count_failures(results),
    }


def difference(
    results: experiment.Results, metric: str, statistic: str, first: str, second: str, x: float | None = None
) -> dict[str, float] | None:
    """Return the mean difference of two methods (one minus other) with its 95 % interval, at x, or None."""
    rows = results.measured.get(metric)
    if rows is None:
        return None
    rows = rows[(rows["statistic"] == statistic) & rows["method"].isin([first, second])]
    rows = rows if x is None else rows[rows["x"] == x].assign(x=np.nan)
    values = paired.pivot_by_method(rows, statistic)
    if not {first, second} <= set(values) or values.empty:
        return None
    [pair] = paired.pairs(values).to_dict("records")
    bounds = {"mean": pair["difference"], "low": pair["low"], "high": pair["high"]}
    return bounds if pair["better"] == first else {"mean": -bounds["mean"], "low": -pair["high"], "high": -pair["low"]}


def headlines(results: experiment.Results, advised: bool = False) -> list[str]:
    """Return the findings in sentences; advised: whether recommendations, which have the best means, precede them."""
    facts = headline(results)
    regression = facts["r2"] is not None or not results.model_card
    known = results.instances[results.instances["label"] >= 0]  # a custom text has no known class
    them = f"their {number(len(known))} labels" if "image" in known else "them"
    is_correct = known["label"] == known["prediction"]
    right = f"; the model is correct on {share(is_correct.mean())} of {them}"
    right = f"; the model is {'correct' if is_correct.all() else 'wrong'}" if len(known) == 1 else right
    sentences, trained_on = [], experiment.find_other_dataset(results)
    accuracy = experiment.describe_accuracy(results.model_card, facts["accuracy"])
    tested = f"the test part of {trained_on}, the data that it was trained on," if trained_on else "the test part"
    if "test_exact_match" in results.model_card:
        exact = experiment.describe_accuracy(results.model_card, results.model_card["test_exact_match"])
        labels = f"{accuracy} of the labels are correct, and all labels of {exact} of the instances."
        sentences.append(f"On {tested}, {labels}")
    elif facts["accuracy"] is not None:
        sentences.append(f"The model classifies {accuracy} of {tested} correctly.")
    if facts["r2"] is not None:
        r2, error = number(facts["r2"], decimals=2), number(results.model_card.get("test_rmse"))
        sentences.append(f"On {tested}, the predictions of the model have R² {r2} and RMSE {error}.")
    remark = right if len(known) and not regression else ""
    if results.settings.get("target"):
        remark += f"; the explained class is always {experiment.describe_explained_class(results)}"
    verb = "is" if facts["instances"] == 1 else "are"
    sentences.append(f"{format_count(facts['instances'], 'instance')} {verb} explained{remark}.")
    sentences += [] if advised else _describe_best_means(results)
    samples = max(int(frame["repeat"].nunique()) for frame in results.scores.values())
    scope = f"{format_count(len(results.scores), 'method')}, {format_count(facts['instances'], 'instance')}"
    scope += f" and up to {number(samples)} sampling repetitions" if samples > 1 else ""
    spent = f"took {number(facts['evaluations'])} model evaluations"
    spent = spent if results.model_card else "use labelled instances only, without a model"
    failed = "; none failed." if not facts["failures"] else f"; {number(facts['failures'])} failed (see Diagnostics)."
    return [*sentences, f"{format_count(facts['rows'], 'explanation')} ({scope}) {spent}{failed}"]


def _describe_best_means(results: experiment.Results) -> list[str]:
    """Return the method with the best mean by each criterion, a sentence each."""
    sentences = []
    for criterion in criteria.list_criteria(results.metrics):
        rows = experiment.scalars(results.metrics.get(criterion.metric), criterion.statistic)
        if len(rows) > 1:
            means, unit = rows["mean"], criterion.unit.format(value=results.value_unit)
            best = means.idxmin() if criterion.better == "lower" else means.idxmax()
            mean = f"{interval(rows.loc[best])} {unit}".strip()
            sentences.append(f"Best mean by {criterion.short}: {best}, {mean} ({criterion.better} is better).")
    return sentences


def find_equal_error(results: experiment.Results, first: str, second: str) -> EqualError | None:
    """Return evaluations of two methods at the smallest error that both curves reach; None where one does not."""
    measured = results.measured.get("error")
    if measured is None:
        return None
    last, earlier = experiment.average_evaluations(results), experiment.average_evaluations_at_budgets(results)
    curves, costs = [], []
    for entry in (first, second):
        rows = measured[(measured["statistic"] == "rmse_by_budget") & (measured["method"] == entry)]
        curve = rows.pivot_table(index="instance", columns="x", values="value")
        if len(curve.columns) < 2:
            return None
        spent = {x: earlier.get((entry, x), last.get(entry, math.nan)) for x in curve}
        costs.append(pd.Series(spent, dtype=float))
        curves.append(curve)
    return compare_at_equal_error(*curves, tuple(costs))


def tabulate_equal_error(results: experiment.Results) -> pd.DataFrame:
    """Return the evaluations of every method with intermediate budgets at the final error of the best method."""
    frame = results.metrics["error"]
    ends = frame[frame["statistic"] == "rmse_by_budget"].sort_values("x").drop_duplicates("method", keep="last")
    best, *others = ends.sort_values("mean", kind="stable")["method"]
    rows, of_best = [], f"evaluations of {best}"
    for entry in others:
        row = dict.fromkeys(("error", of_best, "evaluations", "ratio"), "–")
        if result := find_equal_error(results, best, entry):
            ratio = interval({"mean": result.ratio, "low": result.low, "high": result.high})
            row = {"error": number(result.error, whole=False), of_best: number(result.first)}
            row |= {"evaluations": number(result.second), "ratio": ratio}
        rows.append({"method": entry, **row})
    return pd.DataFrame(rows)


def best_by_budget(results: experiment.Results) -> pd.DataFrame:
    """Return the method with the smallest error at each budget and the next one; text, a row per budget."""
    frame = results.metrics["error"]
    errors = frame[frame["statistic"] == "rmse_by_budget"].sort_values("mean")
    rows = []
    for budget, rivals in errors.groupby("x"):
        first, *others = rivals.to_dict("records")
        row = {"budget": f"{number(budget)} d", "smallest error": first["method"], "RMSE": interval(first)}
        second = others[0] if others else None
        row |= {"next": second["method"] if second else "–", "RMSE of the next": interval(second) if second else "–"}
        names = (first["method"], second["method"]) if second else None
        behind = difference(results, "error", "rmse_by_budget", *names, budget) if names else None
        row["difference"] = interval(behind) if behind else "–"
        row["significant"] = "–" if behind is None else "yes" if behind["low"] > 0 or behind["high"] < 0 else "no"
        rows.append(row)
    return pd.DataFrame(rows)
