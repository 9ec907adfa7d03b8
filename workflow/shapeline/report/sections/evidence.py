"""The recommended methods and their evidence, and the folded parts at the end of a page."""

import html
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.attribution.explanation import GRADIENT_EVALUATIONS
from shapeline.errors import NO_RULE
from shapeline.papers import claims
from shapeline.report import elements, tables
from shapeline.report.criteria import ANY_COST, LEGEND, Evidence, name_budgets, name_verdict
from shapeline.report.elements import FOLD, HTML, figure, fold, heading, join_parts, note, pair, part, table
from shapeline.report.experiment import Results, average_seconds, count_warnings_and_failures, scalars, warn_near_chance
from shapeline.report.figures.dots import average_ranks, cost_plane, rank_diagram
from shapeline.report.figures.lines import tabulate_costs
from shapeline.report.formatting import (
    describe_status,
    ends,
    format_count,
    format_evaluations,
    format_lists,
    interval,
    join_names,
    number,
    probability,
    share,
)
from shapeline.report.sections import common, robustness
from shapeline.statistics import paired
from shapeline.statistics.paired import rate_of_equal_methods
from shapeline.statistics.recommendation import Recommendation

SAME_METHOD, BY_TIME = "The same method", "with time as the cost"
NO_MODEL = "the model is not significantly better than chance"
NEAR_CHANCE = f"⚠ No recommendation: {NO_MODEL}. {{}} Train it longer or on more data."


def cards(evidence: Sequence[Evidence], results: Results) -> HTML | None:
    """Return a card per criterion: the need, the recommended method, its cost and evidence, and the exact values."""
    if not evidence:
        return None
    if chance := warn_near_chance(results):
        return note(NEAR_CHANCE.format(chance))
    shown = "".join(_write_card(answer, results) for answer in evidence)
    return HTML(f'<div class="cards">{shown}</div><p class="note">{LEGEND}</p>')


def _write_card(answer: Evidence, results: Results) -> str:
    advice, [(need, verdict, cost)] = answer.first(results), verdicts([answer], results)
    lines = [("need", need)]
    if advice is not None:
        changed = robustness.changes(answer, results)
        lines += [("change", f"⚠ Not robust: {join_names(changed)}.")] if changed else []
        lines += [("", "No method fits the budget.")] * (answer.within(results) is None)
    lines += [("method", verdict), *[("cost", cost)] * bool(cost)]
    if advice is not None:
        lines += [("", text) for text in _list_evidence(answer, advice, results)]
        lines += [("", text) for text in _describe_warnings(results, advice.entry)]
    lines_html = "".join(f'<p class="{kind}">{html.escape(text)}</p>' for kind, text in lines)
    return f'<div class="card">{lines_html}{fold("Details", recommendation(answer, results)).data}</div>'


def verdicts(evidence: Sequence[Evidence], results: Results) -> list[tuple[str, str, str]]:
    """Return need, verdict and cost per criterion, for the card of an experiment."""
    if evidence and warn_near_chance(results):
        return [("All criteria", "⚠ none", NO_MODEL)]
    rows = []
    for answer in evidence:
        advice, need = answer.first(results), answer.criterion.need or answer.criterion.title
        cost = "" if advice is None or not advice.entry else f"{_format_cost(answer, advice.entry)} per instance"
        rows.append((need, "no method fits the budget" if advice is None else name_verdict(advice), cost))
        if robustness.changes(answer, results):
            rows[-1] = (need, f"⚠ {rows[-1][1]}", cost)
    return rows


def _list_evidence(answer: Evidence, advice: Recommendation, results: Results) -> list[str]:
    """Return the mean, the result of the comparison, and the cost of the exact values, a sentence each."""
    title, count = answer.criterion.title.split(": ")[-1], len(advice.bounds)
    quantity = title if answer.criterion.metric == "own" else title[:1].upper() + title[1:]  # a function's own name
    limited = answer.within(results) is not None and results.settings.get("budget") is not None
    scope = f" of {count} methods{' within the budget' if limited else ''}"
    is_best = advice.entry == advice.bounds.index[0]
    comparison = {
        "best": f"Significantly better than the others{scope.replace(' of', ' among', 1)}.",
        "recommended": f"Best mean{scope}; no cheaper method is non-inferior to it."
        if is_best
        else f"Non-inferior to the best{scope}.",
        "alone": f"The only method measured{' within the budget' * limited}.",
    }.get(advice.outcome)
    if advice.outcome == "undecided":
        status = "has the best mean" if is_best else "is non-inferior to the best"
        use = f"{advice.entry} {status} and can be used. " if advice.safe else ""
        comparison = f"{use}{format_count(len(answer.values), 'instance')} do not suffice to decide."
    better = f"{answer.criterion.better} is better"
    lines = [f"{quantity} {_format_mean(answer, advice.entry, results)}, {better}."] * bool(advice.entry)
    lines += [comparison] * bool(comparison)
    if answer.truth is not None and answer.truth != advice.entry:
        times = answer.seconds.get(answer.truth, np.nan) / answer.seconds.get(advice.entry, np.nan)
        ratio = f", {number(times, 2)} times as long" if np.isfinite(times) else ""
        lines.append(f"Exact values ({answer.truth}): {_format_cost(answer, answer.truth)} per instance{ratio}.")
    return lines


def _describe_warnings(results: Results, entry: str | None) -> list[str]:
    """Return that a method is a control, and its warnings and failures."""
    remarks = [f"{entry} is a control."] * bool(results.entries.get(entry, {}).get("is_control"))
    frame = results.scores.get(entry)
    warnings = pd.concat(count_warnings_and_failures(frame)) if frame is not None else ()
    if len(warnings):
        counts = format_lists(warnings.sort_values(ascending=False, kind="stable"), first=False)
        remarks.append(f"⚠ {entry}: {counts} of {format_count(len(frame), 'explanation')} (see Diagnostics).")
    return remarks


def advices(answer: Evidence, results: Results) -> dict[str, tuple[str, str]]:
    """Return decision and reason within the budget, at any cost, and with time as the cost, by scope."""
    within, last, by_time = answer.within(results), answer.recommend_beyond(results), answer.recommend_by_time
    limited = results.settings.get("budget") is not None
    parts = {}
    if within is not None:
        scope = "within the budget" if limited else ANY_COST
        parts[scope] = _decide(answer, within, scope if limited else "")
    if last is not None:
        parts[answer.limit] = _decide(answer, last, "" if answer.limit == ANY_COST else "at this cost")
    chosen = within or last
    if chosen is not None and answer.truth != chosen.entry:
        is_same = (
            answer.last is not None
            and not answer.quicker
            and all(getattr(by_time, name) == getattr(answer.last, name) for name in ("entry", "outcome", "rivals"))
        )
        parts[BY_TIME] = (SAME_METHOD, "") if is_same else _decide(answer, by_time, answer.quicker, seconds=True)
    return parts


def _decide(answer: Evidence, advice: Recommendation, among: str = "", seconds: bool = False) -> tuple[str, str]:
    """Return decision and reason of a recommendation, with the cost per instance."""
    cost = "" if advice.entry is None else f"{_format_cost(answer, advice.entry, seconds)} per instance"
    return advice.decision(cost, among), advice.reason(answer.unit, among)


def _format_cost(answer: Evidence, entry: str, seconds: bool = False) -> str:
    count = answer.evaluations.get(entry, np.nan)
    text = format_count(count, "evaluation")
    if entry in answer.gradients:
        text = f"{format_count(count / answer.gradient_cost, 'gradient')} (counted as {text})"
    seconds_per_instance = answer.seconds.get(entry, np.nan)
    time = f"{number(1000 * seconds_per_instance)} ms" if np.isfinite(seconds_per_instance) else "–"
    return time if seconds else f"{text}, {time}" if np.isfinite(seconds_per_instance) else text


def _format_mean(answer: Evidence, entry: str | None, results: Results) -> str:
    """Return the mean of a method with its interval and unit."""
    frame = results.metrics.get(answer.criterion.metric)
    if answer.criterion.metric == "error" and frame is not None:
        frame = pd.concat([frame, name_budgets(frame)])
    means = scalars(frame, answer.criterion.statistic)
    if entry is None:
        return "–"
    text = interval(means.loc[entry]) if entry in means.index else number(answer.candidates[entry].mean(), whole=False)
    return f"{text} {answer.unit}".strip()


def section(evidence: Sequence[Evidence], results: Results) -> HTML | None:
    """Return recommendation, comparison with the best and average ranks per criterion, or None."""
    if not evidence:
        return None
    if chance := warn_near_chance(results):
        return note(NEAR_CHANCE.format(chance))
    parts = [_describe_rule(evidence)]
    for answer in evidence:
        parts += [heading(answer.criterion.title), recommendation(answer, results), exclusions(answer, results)]
        parts += [costs_and_ranks(answer, results), compare_with_best(answer, results), choices_table(answer)]
    return join_parts(*parts, rank_over_criteria(evidence))


def robustness_section(evidence: Sequence[Evidence], results: Results) -> HTML | None:
    """Return the recommendations with other baselines and training seeds, and the components of the variance."""
    if warn_near_chance(results):
        return None
    parts = []
    for answer in evidence:
        references = robustness.compare_baselines(answer, results)
        seeds = robustness.compare_training_seeds(answer, results)
        if references is not None or seeds is not None:
            parts += [heading(answer.criterion.title), references, seeds]
    return join_parts(*parts, robustness.variances(results))


def _describe_rule(evidence: Sequence[Evidence]) -> HTML:
    """Return the rule of the recommendation: one sentence, and the details behind a fold."""
    details = (
        "A method is non-inferior where the upper simultaneous 95 % bound of (method − best) is below the margin. The "
        "intervals are simultaneous over all comparisons with the best. They include the sampling of coalitions, which "
        "is independent per instance. Where the instances do not suffice, the verdict is undecided, with the number of "
        "additional instances needed. Each metric has its own recommendation."
    )
    if any(answer.gradients for answer in evidence):
        cost = evidence[0].gradient_cost
        rows = "" if cost == GRADIENT_EVALUATIONS else " An evaluation has all rows of the baseline, a gradient one."
        count = format_count(cost, "evaluation")
        details += f" A gradient counts as {count}: one forward pass, and two for the backward pass.{rows}"
    return join_parts(
        note(
            "The recommended method is the cheapest that is non-inferior to the best, by a margin of "
            f"{share(evidence[0].margin)} of the range between the best method and random attribution."
        ),
        fold(FOLD, note(details)),
    )


def costs_and_ranks(answer: Evidence, results: Results) -> HTML:
    """Return two figures for a criterion: means against costs, and average ranks."""
    criterion, styles, seconds = answer.criterion, elements.assign_styles(results), average_seconds(results)
    means = scalars(results.metrics.get(criterion.metric), criterion.statistic)
    prefix = f"{results.experiment}, {criterion.short}:"
    gradient = f"A gradient counts as {format_count(answer.gradient_cost, 'evaluation')}. " if answer.gradients else ""
    return join_parts(
        figure(
            cost_plane(answer, means, styles, seconds),
            f"{prefix} means against evaluations and seconds per instance",
            f"{criterion.title}. Means with 95 % intervals against their cost; "
            f"{'lower' if criterion.better == 'lower' else 'upper'} left is better. The line joins the methods that "
            f"no cheaper method beats. {gradient}Seconds are means over instances.",
            numbers=tabulate_costs(means, evaluations=answer.evaluations, seconds=seconds),
        ),
        figure(
            rank_diagram(answer, styles),
            f"{prefix} average ranks of the methods with the critical difference",
            f"Average rank over {number(len(answer.values))} instances, 1 is best. A bar joins methods whose ranks "
            "differ by less than Nemenyi's critical difference at 5 %, which is stricter than the pairwise tests.",
            numbers=average_ranks(answer),
        ),
    )


def rank_over_criteria(evidence: Sequence[Evidence]) -> HTML | None:
    """Return ranks per criterion and Kendall's W; None where fewer than two criteria rank the same three methods."""
    if len(evidence) < 2:
        return None
    common = [entry for entry in evidence[0].values if all(entry in answer.values for answer in evidence)]
    if len(common) < 3:
        return None
    means = pd.DataFrame({answer.criterion.short: answer.values[common].mean() for answer in evidence})
    losses = means * [1 if answer.criterion.better == "lower" else -1 for answer in evidence]
    agreement, ranks = paired.kendall_w(losses.to_numpy().T), losses.rank(method="min").astype(int)
    ranks = ranks.loc[ranks.mean(axis=1).sort_values(kind="stable").index]
    ranked = pd.DataFrame(
        {
            "method": entry,
            **{name: f"{rank} ({number(means.loc[entry, name], whole=False)})" for name, rank in row.items()},
        }
        for entry, row in ranks.iterrows()
    )
    not_ranked = sorted({entry for answer in evidence for entry in answer.values} - set(common))
    return join_parts(
        heading("Agreement of the criteria"),
        table(ranked, "Rank by the mean, and in brackets the mean, per criterion"),
        note(
            f"Kendall's W {agreement:.2f} over {number(len(common))} methods and {number(len(evidence))} criteria: 1 "
            f"for identical rankings, {1 / len(evidence):.2f} on average for independent ones. "
            "Methods with overlapping intervals may change ranks by chance."
            + (f" Not ranked by all criteria: {join_names(not_ranked)}." if not_ranked else "")
        ),
    )


def overview(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML:
    """Return every experiment's recommendation per criterion (evidence: by experiment); a note where none exists."""
    rows = []
    for result in results:
        for answer in evidence[result.experiment]:
            advices = ["⚠ model near chance", "–", "–"]
            if not warn_near_chance(result):
                advices = [_format_short(answer, answer.within(result)), _format_short(answer, answer.last)]
                advices.append(_format_short(answer, answer.recommend_by_time, seconds=True))
            row = {"experiment": f"{result.experiment}, n = {number(len(answer.values))}"}
            row["criterion"] = answer.criterion.short
            rows.append(row | dict(zip(("within the budget", "at any cost", BY_TIME), advices, strict=True)))
    if not rows:
        return note("No experiment has a metric that ranks its methods on at least six instances.")
    wrapped = ["criterion", "within the budget", "at any cost", BY_TIME]
    return fold(
        "Recommendations within the budget, at any cost, and by time",
        join_parts(
            table(pd.DataFrame(rows), text=wrapped),
            note("Errors are compared below the cost of the exact values. Controls are included."),
        ),
    )


def _format_short(answer: Evidence, advice: Recommendation | None, seconds: bool = False) -> str:
    """Return a recommendation for a table cell."""
    if advice is None:
        return "–"
    cost = f", {_format_cost(answer, advice.entry, seconds)}" if advice.entry else ""
    return f"{name_verdict(advice)}{cost}"


def recommendation(answer: Evidence, results: Results) -> HTML:
    """Return one sentence per scope: recommendation within the budget, at any cost, and with time as the cost."""
    lines = []
    for scope, (decision, why) in advices(answer, results).items():
        sentence = f"{decision}{f': {why}' if why else ''}."
        lines.append(f"<p><b>{html.escape(scope[:1].upper() + scope[1:])}.</b> {html.escape(sentence)}</p>")
    return HTML("".join(lines))


def exclusions(answer: Evidence, results: Results) -> HTML | None:
    """Return the methods and instances that the comparison excludes, with reasons."""
    measured = results.measured[answer.criterion.metric]
    sentences = _explain_absence(answer, measured) if answer.absent else []
    if incomplete := sorted(answer.incomplete & set(answer.values)):
        sentences.append(f"Never recommended: {join_names(incomplete)}, {NO_RULE}.")
    every = measured["instance"].nunique()
    if len(answer.values) < every:
        sentences.append(
            f"The comparison uses the {number(len(answer.values))} of {number(every)} instances on which every method "
            "has a value; the mean at the top of the page uses all instances of its method."
        )
    return note(" ".join(sentences)) if sentences else None


def _explain_absence(answer: Evidence, measured: pd.DataFrame) -> list[str]:
    """Return a sentence per reason for which methods are not compared."""
    of_statistic = measured["statistic"] == answer.criterion.statistic
    other = set(measured["method"]) - set(measured.loc[of_statistic, "method"])
    missing = f"no {answer.criterion.short}"
    if answer.criterion.metric == "error":
        missing = "no RMSE, because the scores have another unit than the exact scores"
    reasons = {
        missing: other.intersection(answer.absent),
        "measured on fewer than half of the instances": set(answer.absent) - other,
    }
    return [
        f"{join_names(sorted(entries))} {'is' if len(entries) == 1 else 'are'} not compared: {reason}."
        for reason, entries in reasons.items()
        if entries
    ]


OUTCOMES = {
    "alone": "only method",
    "best": "significantly better than all others",
    "recommended": "non-inferior",
    "undecided": "undecided",
    "too few": "too few instances",
}


def choices_table(answer: Evidence) -> HTML | None:
    """Return the recommended method by budget; None where random scores are best at every cost."""
    unit = f" ({answer.unit})" if answer.unit else ""
    choices = pd.DataFrame(
        {
            "evaluations at most": format_evaluations(limit),
            "recommended": advice.entry or "–",
            "evidence": OUTCOMES[advice.outcome],
            "best mean": advice.bounds.index[0],
            f"mean of the best{unit}": number(advice.bounds["mean"].iloc[0], whole=False),
            f"margin{unit}": number(advice.margin, whole=False),
            "not distinguishable from": join_names(list(advice.rivals)) if advice.rivals else "–",
            "additional instances needed": number(float(f"{advice.needed:.2g}")) if advice.rivals else "–",
        }
        for limit, advice in answer.choices
        if advice.outcome != "alone" or advice.entry != answer.random  # random attribution alone is no information
    )
    if choices.empty:
        return None
    text = ["evidence", "recommended", "best mean", "not distinguishable from"]
    return table(choices, "Recommended method by budget", text=text)


def compare_with_best(answer: Evidence, results: Results) -> HTML:
    """Return the simultaneous bounds of every method against the best, and the pairwise tests."""
    advice, unit = answer.last or answer.advice(), f" ({answer.unit})" if answer.unit else ""
    best, limit = advice.bounds.index[0], "" if answer.limit == ANY_COST else f" {answer.limit}"
    entries = [entry for entry in advice.bounds.index if entry in answer.candidates]
    pairs = paired.pairs(answer.candidates[entries], answer.criterion.better)
    tests = pairs[pairs["better"] == best].set_index("worse")
    rows = []
    for entry, row in advice.bounds.iterrows():
        test = tests.loc[entry] if entry in tests.index else {}
        rows.append(
            {
                "method": entry,
                f"difference from best{unit}": number(row["behind"], whole=False),
                "simultaneous 95 % CI": ends(row["low"], row["high"]),
                "non-inferior": describe_status(row["status"]),
                "p (Holm)": probability(test.get("p_holm", np.nan)),
                "win rate of best": share(test["wins"]) if len(test) else "–",
            }
        )
    return join_parts(
        table(pd.DataFrame(rows), f"Difference from {best}, the best mean{limit}", text=["method"]),
        note(
            "CI of (method − best), simultaneous over comparisons with the best. p: Wilcoxon's signed-rank test per "
            "pair with Holm's correction. A small p shows a difference and not its size, so the recommendation does "
            "not use it."
        ),
        equal_methods_note(answer, results),
    )


def equal_methods_note(answer: Evidence, results: Results) -> HTML | None:
    """Return the test's false-positive rate (A/A test) for the method with most repeats, or that it is not measured."""
    frame, statistic = results.measured[answer.criterion.metric], answer.criterion.statistic
    scalar = (frame["statistic"] == statistic) & frame["x"].isna() & frame["method"].isin(list(answer.values))
    repeats = frame[scalar].groupby("method")["repeat"].nunique()
    if not (repeats > 1).any():
        return note(
            "False-positive rate (A/A test): not measured, since no method has repeats (set repeats: 2); "
            "docs/statistics.md has the rates of other experiments."
        )
    entry = repeats.idxmax()
    samples = paired.pivot_by_repeat(frame[scalar & (frame["method"] == entry)], statistic)[entry]
    return note(f"False-positive rate (A/A test), {entry}: {rate_of_equal_methods(samples.to_numpy()).sentence}")


def closing(results: Results) -> HTML:
    """Return diagnostics, claims of the papers, model and data, and provenance, each of them folded."""
    model, data = tables.model_facts(results.model_card), tables.dataset_facts(results.dataset_card)
    return join_parts(
        part("Diagnostics", common.health(results)),
        claims.section(results),
        part("Model and data", pair(table(model, "Model", header=False), table(data, "Data", header=False))),
        part("Provenance", common.provenance(results)),
    )
