"""Sections of every page: top, diagnostics, cost, deletion and insertion, error."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from shapeline.designs.orders import MAX_D
from shapeline.metrics.registry import METRICS
from shapeline.report import experiment, findings, tables
from shapeline.report.criteria import MIN_INSTANCES
from shapeline.report.elements import (
    FOLD,
    HTML,
    MAX_BANDS,
    Answers,
    assign_styles,
    figure,
    fold,
    heading,
    join_parts,
    missing,
    note,
    table,
)
from shapeline.report.experiment import Results, scalars, select_ceiling
from shapeline.report.figures.dots import AREAS, ERRORS, draw_dots
from shapeline.report.figures.lines import calibration, convergence, curve_panels, curves, error_by_cost, tabulate_costs
from shapeline.report.formatting import explain_unit, format_count, join_names, number, share
from shapeline.report.tables import TOP

WITH_SECTION = ("log_odds", "error", "ground_truth_words", "randomisation", "cost")  # metrics, of a page


def top(
    title: str, answers: Answers, sentences: Iterable[str], facts: Mapping[str, object], cards: HTML | None = None
) -> HTML:
    """Return the first screen of a page: title, recommended methods with their costs, other findings, key figures.

    facts: name -> value, None where it is not known.
    """
    items = [f"<li><b>{html.escape(short)}</b> {html.escape(more)}</li>" for short, more in answers]
    items += [f"<li>{html.escape(text)}</li>" for text in sentences]
    # The first noun of a name is a plural: "1 instance explained" has none.
    shown = {
        re.sub(r"s(?=[ ,]|$)", "", name, count=1) if value == "1" else name: value
        for name, value in facts.items()
        if value is not None
    }
    cells = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in shown.items())
    above, listed = cards.data if cards else "", f'<ul class="headlines">{"".join(items)}</ul>'
    return HTML(f'<h1>{html.escape(title)}</h1>{above}{listed}<div class="key">{cells}</div>')


def header(
    results: Results,
    cards: HTML | None = None,
    found: str = "",
    extra: Mapping[str, object] | None = None,
    sentences: Sequence[str] | None = None,
    answers: Answers = (),
) -> HTML:
    """Return the top of the page; cards: the recommendations; found: the most important features, in a sentence.

    extra: further key figures; sentences: of a page with its own findings, in place of all others.
    """
    headline, budget = findings.headline(results), results.settings.get("budget")
    r2 = headline["r2"]
    ends = experiment.describe_accuracy_interval(results.model_card, headline["accuracy"])
    accuracy = share(headline["accuracy"]) if results.model_card and r2 is None else None
    facts = {
        f"test accuracy{ends and f' (95 % CI {ends})'}": accuracy,
        "test R²": None if r2 is None else number(r2, 2),
        "instances explained": number(headline["instances"]),
        **(extra or {}),
        "methods compared": number(len(results.entries)),
        "features (d)": number(results.d),
        "budget (evaluations)": number(budget * results.d) if budget and results.model_card else None,
        "evaluations": number(headline["evaluations"]) if results.model_card else None,
        "failed explanations": number(headline["failures"]),
    }
    if sentences is None:
        reason = [] if cards else [explain_missing_recommendation(results)]
        meant = explain_unit(results.value_unit) if results.model_card else ""
        sentences = [*reason, *filter(None, [found, meant]), *findings.headlines(results, bool(cards))]
    return top(headline["title"], answers, sentences, facts, cards)


def explain_missing_recommendation(results: Results) -> str:
    """Return why an experiment has no recommendation, and how to get one where a metric can rank its methods."""
    instances = findings.headline(results)["instances"]
    if instances < MIN_INSTANCES:
        explained = f"{number(instances)} {'is' if instances == 1 else 'are'} explained"
        return f"No recommendation: it needs at least {number(MIN_INSTANCES)} instances, and {explained}."
    if not results.model_card:
        return "No recommendation: without a model or exact values no metric ranks the methods."
    if all(settings["method"] == "random" for settings in results.entries.values()):
        return "No recommendation: it compares methods with random attribution; add others, such as gp_shapley."
    if len(results.entries) < 2:
        return "No recommendation: it compares methods, and the experiment has one; add others, such as random."
    metric = "error" if results.dataset_card.get("task") == "regression" else "log_odds"
    missing_metric = "" if metric in results.metrics else f"; add the metric {metric}"
    lack = f"no metric has values of two methods on {number(MIN_INSTANCES)} instances"
    return f"No recommendation: {lack}{missing_metric}."


def health(results: Results, complete: bool | None = None) -> HTML:
    """Return the diagnostics; complete: with the columns that need a model or a game, by default where a model is."""
    frame, text = tables.health(results), ["failures", "warnings", "packages"]
    ties = f"Ties at top-{share(TOP)}: share of {{}} whose top features are not unique, because {{}} are equal."
    if complete or (complete is None and results.model_card):
        notes = (
            "Efficiency gap: difference between the sum of the scores (with interactions) and the value of the full "
            f"input minus the base value. {ties.format('explanations', 'scores')} ⚠ marks a failure, or a gap that "
            "should be 0; for a method that is not efficient, a gap does not affect the ranking of features."
        )
        return join_parts(table(frame, text=text), fold(FOLD, note(notes)), list_failure_reasons(results))
    frame = frame.drop(columns=[name for name in frame if name.startswith(MODEL_DIAGNOSTICS)])
    notes = note(f"{ties.format('instances', 'influences')} ⚠ marks a failure.")
    return join_parts(table(frame, text=text), notes, list_failure_reasons(results))


def find_failure_reasons(results: Results) -> dict[str, str]:
    """Return the most frequent reason of failure per method that failed."""
    errors = {entry: frame["error"][frame["status"] != "ok"].dropna().mode() for entry, frame in results.scores.items()}
    return {entry: texts.iloc[0].removeprefix(f"{entry}: ") for entry, texts in errors.items() if len(texts)}


def list_failure_reasons(results: Results) -> HTML | None:
    """Return the most frequent reason of failure per method; None where none failed."""
    notes = [note(f"{entry}: {reason}") for entry, reason in find_failure_reasons(results).items()]
    return join_parts(*notes) if notes else None


# Columns of the diagnostics, as their names begin, that a model is needed for.
MODEL_DIAGNOSTICS = ("efficiency gap", "should be 0", "evaluations, total")
TIMED = {
    "batch": "Time is measured per batch and divided by its instances, so it has no interval. It includes the "
    "sampling of coalitions and excludes loading, calibration, superpixel segmentation and one warm-up call.",
    "per_instance": "Each instance is timed separately; the interval is over instances. Time includes a share of the "
    "sampling of coalitions and excludes loading, calibration, superpixel segmentation and one warm-up.",
}


def cost_note(results: Results) -> HTML:
    """Return how the columns of the cost table are computed."""
    budget, text = results.settings.get("budget"), TIMED[results.settings.get("timing", "batch")]
    if budget:
        text = (
            f"The budget is {number(budget)} d = {number(budget * results.d)} evaluations per instance, including the "
            "empty and the full input. Sampled methods spend this budget or their own; others have a fixed cost. ⚠: "
            "more evaluations than the experiment's budget. A gradient counts as "
            f"{format_count(experiment.count_gradient_cost(results), 'evaluation')}. {text}"
        )
    return fold(FOLD, note(text))


def cost(results: Results) -> HTML:
    """Return the cost table, with heading."""
    return join_parts(heading("Cost"), table(tables.cost(results), text=["budget"]), cost_note(results))


def provenance(results: Results) -> HTML:
    """Return the provenance of the scores: what all score files share, and a row per method."""
    shared, by_entry = tables.provenance(results)
    named = ["class", "parameters", "execution backend", "settings digest"]
    return join_parts(table(shared, header=False), table(by_entry, text=named))


def masking_section(results: Results) -> HTML:
    """Return deletion and insertion curves, AUCs and a table; one line where the metric is missing."""
    frame, drawn = results.metrics.get("log_odds"), assign_styles(results)
    if frame is None or frame.empty:
        of_regression = note("Not available: the metric “log_odds” is of classes, and this is a regression.")
        is_regression = results.dataset_card.get("task") == "regression"
        return join_parts(heading("Deletion and insertion"), of_regression if is_regression else missing("log_odds"))
    has_bands = sum(entry in set(frame["method"]) for entry in results.entries) <= MAX_BANDS
    bands = "bands are 95 % intervals" if has_bands else "the panels below have the intervals"
    return join_parts(
        heading("Deletion and insertion"),
        note(
            "Deletion masks the features with the highest signed scores; insertion keeps only these. Both record the "
            "change of the log-odds of the explained class. AUC: the mean height of the curve."
        ),
        fold(
            FOLD,
            note(
                "A masked feature has the value of the reference (baseline), or is deleted, independently of the other "
                "features. Such inputs may lie far from the data. For columns, a conditional reference "
                "(reference: {kind: conditional}) samples masked features given the kept ones."
            ),
        ),
        figure(
            curves(frame, drawn),
            "Deletion and insertion curves of every method",
            f"Means over instances; {bands}. Controls are grey and dashed with hollow markers"
            + (f"; {results.truth} black." if results.exact else ".")
            + f" {_describe_best_order(results, frame)}",
        ),
        heading("Deletion curve per method", 4),
        figure(
            curve_panels(frame, drawn),
            "Deletion curve of each method in front of all others",
            "Each method's deletion curve with its 95 % interval, all others in grey; lowest (best) AUC first.",
        ),
        heading("AUC", 4),
        figure(
            draw_dots(frame, drawn, AREAS),
            "Deletion and insertion AUC with 95 % intervals",
            "Mean height of each curve with its 95 % interval. Dotted line: the best control."
            + " Black dots: optimal order of the features, its interval grey."
            * bool(len(select_ceiling(frame, "deletion"))),
        ),
        table(tables.area_table(results)),
    )


def _describe_best_order(results: Results, frame: pd.DataFrame) -> str:
    """Return what the line of the optimal order shows, or why there is none."""
    if len(select_ceiling(frame, "deletion")):
        rows = format_count(select_ceiling(frame, "deletion_auc")["n"].iloc[0], "instance")
        return f"Black dots: the optimal order, computed from all coalitions of {rows}; no method can be better."
    if results.features is None or results.d > MAX_D:
        return f"No optimal order: it needs at most {MAX_D} features, the same for all instances."
    return (
        "No optimal order: it needs a method with the values of all coalitions (shapley), as probabilities or their "
        "logarithms, and every number of masked features."
    )


def other_metrics(results: Results, *shown: str) -> HTML | None:
    """Return a table of means per metric without a section, or None; shown: further metrics that have one."""
    parts, unit = [], results.value_unit
    of_value = [entry for entry in results.scores if experiment.find_unit(results, entry) == unit]
    of_value += [entry for entry in results.scores if results.entries[entry]["method"] == "external"]
    units = {"gap": f"{unit}, ", "infidelity": f"{unit}², ", "infidelity_scaled": f"{unit}², "}
    for name, metric in METRICS.items():
        frame = None if name in {*WITH_SECTION, *shown} else results.metrics.get(name)
        if frame is None or frame.empty:
            continue
        # A sum of scores can equal a value only in its unit; infidelity_scaled scales it.
        compares = frame["method"].isin(of_value) | ~frame["statistic"].isin(("gap", "infidelity"))
        scalar = frame[frame["x"].isna() & compares]
        ways = metric.statistics or dict.fromkeys(scalar["statistic"].unique(), "lower")  # of custom functions
        titles = {
            statistic: f"{statistic} ({units.get(statistic, '')}{way} is better)" for statistic, way in ways.items()
        }
        parts.append(table(tables.tabulate_means(scalar, titles, results.entries), name))
    meaning = note("Means over instances with 95 % intervals.")
    return join_parts(heading("Other metrics"), *parts, meaning) if parts else None


def interval_note(results: Results) -> HTML:
    """Return what the intervals cover, which depends on the number of sampling repetitions."""
    repeats = max((frame["repeat"].nunique() for frame in results.scores.values()), default=1)
    several = "image" in results.instances
    text = "The value of an instance is the mean over its labels that have one. " * several + (
        "Intervals are 95 % intervals over instances. All methods explain the same instances, so a method can be "
        "significantly better than another although their intervals overlap. "
    )
    more = "Coalitions are sampled independently per instance, so the intervals include the sampling error."
    if repeats > 1:
        more += f" Each value of a metric is the mean over {repeats} sampling repetitions; scores are of the first."
    return note(f"{text}{more}")


def error_section(results: Results) -> HTML:
    """Return the section on the error to the exact values, with heading; empty where no method is exact."""
    exact, frame, unit = results.exact, results.metrics.get("error"), results.value_unit
    if not exact:
        return HTML("")
    title = heading(f"Error to {results.truth}")
    if frame is None or frame.empty:
        return join_parts(title, missing("error"))
    drawn, budget = assign_styles(results), results.settings.get("budget")
    spent = None if budget is None else budget * results.d
    return join_parts(
        title,
        figure(
            draw_dots(frame[frame["method"] != exact], drawn, ERRORS, unit),
            f"RMSE, rank correlation and top-k overlap with the scores of {exact}",
            f"Distance to the scores of {exact}: mean over instances, 95 % intervals. Dotted line: the best control.",
        ),
        figure(
            error_by_cost(frame, drawn, experiment.average_evaluations(results), exact, unit, spent),
            "RMSE against evaluations per instance",
            "Lower left is better: a small error for few evaluations. Vertical bars are 95 % intervals.",
            numbers=tabulate_costs(scalars(frame, "rmse"), evaluations=experiment.average_evaluations(results)),
        ),
        _note_other_units(frame, exact),
        convergence_section(results, frame),
    )


def _note_other_units(frame: pd.DataFrame, exact: str) -> HTML | None:
    """Return which methods have no RMSE, for their scores' unit; None where all have one."""
    others = sorted(set(frame["method"]) - set(scalars(frame, "rmse").index))
    if not others:
        return None
    return note(
        f"{join_names(others)}: no RMSE, because the scores have another unit than those of {exact}; compare them by "
        "rank correlation and top-k overlap."
    )


def _show_equal_error(results: Results) -> list[HTML]:
    """Return evaluations at equal error; empty where fewer than two methods have intermediate budgets."""
    shown = findings.tabulate_equal_error(results)
    if shown.empty:
        return []
    title = "Evaluations at equal error: the method with the smallest final error, and each other method"
    return [
        table(shown, title),
        note(
            "At the smallest error that both reach, by log-log interpolation between budgets; – where a method does "
            "not cross it between two budgets. 95 % intervals by resampling instances."
        ),
    ]


def convergence_section(results: Results, frame: pd.DataFrame) -> HTML | None:
    """Return error, bias and standard deviation against the budget, and the best method per budget, or None."""
    drawing = convergence(frame, assign_styles(results), results.value_unit)
    if drawing is None:
        return None
    caption = (
        "Lower is better; bands are 95 % intervals over instances and, from three repeats on, repetitions. Squared "
        "error is squared bias plus variance. The bias needs repeats, and is drawn where its estimated square is "
        "above 0."
    )
    return join_parts(
        heading("Convergence", 4),
        figure(drawing, f"Error to {results.truth} against the budget, with bias and standard deviation", caption),
        figure(
            calibration(frame, assign_styles(results), results.value_unit),
            f"Predicted and actual error to {results.truth}, and coverage of intervals, against the budget",
            "Left: means over instances of the predicted RMSE (hollow, dashed) and the actual one. Right: share of "
            "exact scores inside the 95 % intervals; grey is 92 to 98 %.",
        ),
        table(
            findings.best_by_budget(results), "Best method by budget", text=["smallest error", "next", "significant"]
        ),
        *_show_equal_error(results),
    )
