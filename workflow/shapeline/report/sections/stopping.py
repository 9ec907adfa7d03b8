"""Methods with adaptive stopping: evaluations and error per instance."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from shapeline.designs.stopping import AT_THE_CAP, predicted_error
from shapeline.report.elements import figure, heading, join_parts, note, table
from shapeline.report.experiment import Results, good, scalars, stopping
from shapeline.report.figures.costs import done_by_evaluations
from shapeline.report.formatting import number, share
from shapeline.report.html import HTML
from shapeline.report.styling import styles_of


def section(results: Results) -> HTML:
    """The distribution of evaluations, the error that they came to, and the fixed budget that would do the same; empty
    where no label stops by its error."""
    labels = stopping(results)
    spent = {label: good(results.scores[label])["evaluations"].to_numpy() for label in labels}
    spent = {label: row for label, row in spent.items() if len(row)}
    if not spent:
        return HTML("")
    shown = pd.concat([pd.DataFrame({"method": label, "evaluations": row}) for label, row in spent.items()])
    return join_parts(
        heading("Adaptive stopping"),
        figure(
            done_by_evaluations(spent, results.d, styles_of(results)),
            "Share of explanations that reached their error target, against evaluations",
            "Each explanation continues in rounds until its predicted error reaches the target, or its top features "
            "are stable. Dots: means.",
            numbers=shown,
        ),
        table(pd.DataFrame([_row(results, label, labels[label]) for label in spent]), text=["target"]),
        note(_words(results)),
    )


def words(budget: Mapping) -> str:
    """What has to hold, in words."""
    error, top = budget.get("error"), budget.get("top")
    parts = []
    if error is not None:
        of_whole = " of |v(N) − v(∅)|" if isinstance(error, str) else ""
        parts.append(f"predicted RMSE ≤ {error}{of_whole}")
    if top is not None:
        parts.append(f"top {top} stable")
    return " and ".join(parts)


def _words(results: Results) -> str:
    text = (
        "At the cap: share of explanations that stopped before the target, with a warning. Fixed budget: the largest "
        "number of evaluations of any explanation; saved: the share of it that adaptive stopping did not spend."
    )
    if results.exact:
        text += (
            " Equal RMSE at: the budget at which the same method with intermediate budgets has that mean error, by "
            "log-log interpolation; a dash where there is none."
        )
    return text


def _row(results: Results, label: str, budget: Mapping) -> dict:
    rows = good(results.scores[label])
    spent, d = rows["evaluations"].to_numpy(), results.d
    known = [row for row in rows["standard_error"] if row is not None]
    predicted = np.mean([predicted_error(np.asarray(row)[None])[0] for row in known]) if known else np.nan
    row = {
        "method": label,
        "target": words(budget),
        "evaluations, mean": number(spent.mean(), 4),
        "median": number(np.median(spent), 4),
        "maximum": number(spent.max()),
        "at the cap": share((rows["warning"] == AT_THE_CAP).mean()),
        f"RMSE, predicted ({results.value_unit})": number(predicted),
    }
    if results.exact:
        errors = scalars(results.metrics.get("error"), "rmse")["mean"]
        row["actual"] = number(errors.get(label, np.nan))
        row["equal RMSE at"] = same_error(results, label, errors.get(label, np.nan))
    return {**row, "fixed budget": f"{number(spent.max() / d)} d", "saved": share(1 - spent.mean() / spent.max())}


def same_error(results: Results, label: str, error: float) -> str:
    """The fixed budget at which the same method has this mean RMSE, by the curve of a label with intermediate
    budgets."""
    curves = results.metrics.get("error")
    method = results.labels[label]["method"]
    for other, entry in results.labels.items():
        if other == label or entry["method"] != method or curves is None:
            continue
        curve = curves[(curves["statistic"] == "rmse_by_budget") & (curves["method"] == other)].sort_values("mean")
        if len(curve) > 1 and curve["mean"].min() <= error <= curve["mean"].max() and curve["mean"].min() > 0:
            budget = np.exp(np.interp(np.log(error), np.log(curve["mean"]), np.log(curve["x"])))
            return f"{number(budget)} d ({other})"
    return "–"
