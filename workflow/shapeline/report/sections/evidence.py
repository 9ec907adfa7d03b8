"""What to take, and the tests behind it."""

import html
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from shapeline.errors import NO_RULE
from shapeline.report import styling
from shapeline.report.elements import figure, heading, note, table, together
from shapeline.report.experiment import Results, flagged_and_failed, mean_seconds, near_chance, scalars
from shapeline.report.figures import costs
from shapeline.report.figures.evidence import average_ranks, cost_plane, rank_diagram
from shapeline.report.html import HTML
from shapeline.report.numbers import (
    counted,
    ends,
    enumerated,
    interval,
    listed,
    number,
    probability,
    share,
    spent,
    within,
)
from shapeline.report.questions import ANY, PASSES, Evidence, at_budgets
from shapeline.report.sections import robustness
from shapeline.statistics import paired, ranking
from shapeline.statistics.equal_methods import rate_of_equal_methods
from shapeline.statistics.recommendation import Recommendation

SAME, SECONDS = "the same.", "by seconds"


def answers(evidence: Sequence[Evidence], results: Results) -> list[tuple[str, str]]:
    """For the top of the page, a question each: what to take within the budget, at what cost and margin; what else."""
    if chance := near_chance(results):
        return [("⚠ No advice: the model is not shown to be better than chance.", chance)]
    return [_answer(answer, results) for answer in evidence]


def _answer(answer: Evidence, results: Results) -> tuple[str, str]:
    subject, what = answer.question.title.split(": ")
    said = advices(answer, results)
    within = answer.within(results)
    taken = within or answer.last
    if taken is None:
        return f"{subject}: no method keeps to the budget.", ""
    (scope, told), *others = said.items()
    taking, why = _in_two(told)
    short = f"{subject}, {scope}: {taking}" if scope != ANY else f"{subject}: {taking}"
    if within is None:
        short = f"{subject}: no method keeps to the budget. {_capital(scope)}: {taking}"
    last = answer.beyond(results) if within else None
    stays = last is None or (last.label == taken.label and "undecided" not in (last.outcome, taken.outcome))
    mean = f"{_capital(what)} of {taken.label}: {_mean(answer, taken.label, results)}"
    more = [why] if why else []
    more += [f"{mean}, {answer.question.better} is better."] if taken.label else []
    if taken.label in results.labels and results.labels[taken.label].get("is_control"):
        sure = taken.outcome != "undecided" and stays
        earned = ": on this question no dearer method earns its cost" if sure else ""
        more.append(f"{taken.label} is a control{earned}.")
    more += [flagged] if (flagged := _flagged(results, taken.label)) else []
    more += [exact] if (exact := _truth_is_quicker(answer, taken.label)) else []
    more += [judged] if (judged := robustness.reference_change(answer, results)) else []
    again = answer.limit if stays else None  # the section says it in full
    quicker = f", {answer.quicker}" if answer.quicker else ""
    more += [
        f"{_capital(scope)}{quicker if scope == SECONDS else ''}: {_in_two(told)[0]}"
        for scope, told in others
        if told != SAME and scope != again
    ]
    return short, " ".join(more)


def _flagged(results: Results, label: str | None) -> str:
    """What the method itself flags of its explanations, and what failed; "" where nothing is."""
    frame = results.scores.get(label)
    told = pd.concat(flagged_and_failed(frame)) if frame is not None else ()
    if not len(told):
        return ""
    counts = listed(told.sort_values(ascending=False, kind="stable"), first=False)
    return f"⚠ {label}: of {counted(len(frame), 'explanation')} {counts} (see the health table)."


def _truth_is_quicker(answer: Evidence, taken: str | None) -> str:
    """That the truth itself, without an error, takes less time than what is advised; "" where it does not."""
    own, other = (answer.seconds.get(label, np.nan) for label in (answer.truth, taken))
    if answer.truth in (None, taken) or not own < other:
        return ""
    return f"{_capital(answer.truth)} has no error and is quicker here: {_cost(answer, answer.truth)} an instance."


def _in_two(told: str) -> tuple[str, str]:
    """An advice as what to take, and why; the second is "" where it has no reason."""
    taking, _, why = told.partition(": ")
    return (f"{taking}.", _capital(why)) if why else (told, "")


def advices(answer: Evidence, results: Results) -> dict[str, str]:
    """What to take within the budget, whatever it costs, and by seconds: where that holds, and the sentence."""
    within, last, quick = answer.within(results), answer.beyond(results), answer.by_seconds
    limited = results.settings.get("budget") is not None
    said = {}
    if within is not None:
        said["within the budget" if limited else ANY] = _told(answer, within, "of these" if limited else "")
    if last is not None:
        said[answer.limit] = _told(answer, last, "" if answer.limit == ANY else "of these")
    chosen = within or last
    if chosen is not None and answer.truth != chosen.label:
        same = (
            answer.last is not None
            and not answer.quicker
            and all(getattr(quick, name) == getattr(answer.last, name) for name in ("label", "outcome", "rivals"))
        )
        said[SECONDS] = SAME if same else _told(answer, quick, answer.quicker, seconds=True)
    return said


def _told(answer: Evidence, advice: Recommendation, among: str = "", seconds: bool = False) -> str:
    """The advice, in the one sentence that it has, with what its label costs; it follows a colon."""
    cost = "" if advice.label is None else f"{_cost(answer, advice.label, seconds)} an instance"
    told = advice.sentence(answer.unit, cost, among)
    return told if told.startswith(str(advice.label)) else told[0].lower() + told[1:]


def _cost(answer: Evidence, label: str, seconds: bool = False) -> str:
    asked = counted(answer.evaluations.get(label, np.nan), "evaluation")
    if label in answer.gradients:
        asked += " for its gradients"
    took = answer.seconds.get(label, np.nan)
    time = f"{number(1000 * took)} ms" if np.isfinite(took) else "–"
    return time if seconds else f"{asked}, {time}" if np.isfinite(took) else asked


def _mean(answer: Evidence, label: str | None, results: Results) -> str:
    """The mean of a label with its interval and unit."""
    frame = results.metrics.get(answer.question.metric)
    if answer.question.metric == "error" and frame is not None:
        frame = pd.concat([frame, at_budgets(frame)])
    means = scalars(frame, answer.question.quantity)
    if label is None:
        return "–"
    text = interval(means.loc[label]) if label in means.index else number(answer.candidates[label].mean(), whole=False)
    return f"{text} {answer.unit}".strip()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def section(evidence: Sequence[Evidence], results: Results) -> HTML | None:
    """For every question: the recommendation, every method against the best, what to take at each cost, average ranks;
    nothing where no metric ranks methods on enough instances, and no advice on a model near chance."""
    if not evidence:
        return None
    if chance := near_chance(results):
        return together(
            heading("Which method to trust", 2),
            note(f"⚠ No advice: the model is not shown to be better than chance. {chance} What would it explain?"),
        )
    parts = [heading("Which method to trust", 2), note(_rule(evidence))]
    for answer in evidence:
        drawn = styling.styles_of(results)
        parts += [heading(answer.question.title), recommendation(answer, results), absence(answer, results)]
        parts += [against_best(answer, results), choices_table(answer), costs_and_ranks(answer, results)]
        parts += [robustness.over_references(answer, results), robustness.over_trainings(answer, results, drawn)]
    parts += [over_questions(evidence), robustness.variances(results)]
    return together(*parts)


def _rule(evidence: Sequence[Evidence]) -> str:
    """How the page decides, in words."""
    told = (
        "The cheapest method is taken that is shown to be nearly as good as the best: the upper end of the interval of "
        f"(own − best) lies below a margin, {share(evidence[0].margin)} of the way from the best to random scores. The "
        "intervals hold together at 95 % for all comparisons with the best. Every instance has draws of its own, so "
        "they count too. Where the instances do not suffice the page says undecided, and about how many more would do. "
        "Each metric answers its own question only."
    )
    weighed = f" A gradient is weighed as {number(PASSES)} evaluations, one forward and two of work backward."
    return told + weighed * any(answer.gradients for answer in evidence)


def costs_and_ranks(answer: Evidence, results: Results, shown: Mapping[str, str] = MappingProxyType({})) -> HTML:
    """The answer to a question as two figures: means against costs, and average ranks.

    shown: figures that a page has already, by their description (`rendering.figures_of`); they are not drawn again.
    """
    named = f"{results.experiment}, {answer.question.short}:"
    drawn = {
        f"{named} means against evaluations and seconds per instance": _costs,
        f"{named} average ranks of the methods with the critical difference": _ranks,
    }
    return together(*(HTML(shown[alt]) if alt in shown else draw(answer, results, alt) for alt, draw in drawn.items()))


def _costs(answer: Evidence, results: Results, alt: str) -> HTML | None:
    means = scalars(results.metrics.get(answer.question.metric), answer.question.quantity)
    return figure(
        cost_plane(answer, means, styling.styles_of(results), mean_seconds(results)),
        alt,
        f"{answer.question.title}. Means with 95 % intervals against their cost; "
        f"{'lower' if answer.question.better == 'lower' else 'upper'} left is better. The line joins the methods "
        "that no cheaper one beats. A gradient counts as three evaluations. Seconds are of the machine that ran, "
        "means over instances.",
        numbers=costs.by_cost(means, evaluations=answer.evaluations, seconds=mean_seconds(results)),
    )


def _ranks(answer: Evidence, results: Results, alt: str) -> HTML | None:
    return figure(
        rank_diagram(answer, styling.styles_of(results)),
        alt,
        f"Average rank over {number(len(answer.values))} instances, 1 the best. A bar joins methods whose ranks "
        "differ by less than Nemenyi's critical difference at 5 %, which is stricter than the pairwise tests.",
        numbers=average_ranks(answer),
    )


def over_questions(evidence: Sequence[Evidence]) -> HTML | None:
    """How each question ranks the methods by their means, and Kendall's W of these rankings; nothing where fewer than
    two questions rank the same three methods."""
    common = (
        [label for label in evidence[0].values if all(label in answer.values for answer in evidence)]
        if evidence
        else []
    )
    if len(evidence) < 2 or len(common) < 3:
        return None
    means = pd.DataFrame({answer.question.short: answer.values[common].mean() for answer in evidence})
    signs = np.array([1 if answer.question.better == "lower" else -1 for answer in evidence])
    agreement = ranking.kendall_w((means * signs).to_numpy().T)
    ranks = (means * signs).rank(method="min").astype(int)
    ranks = ranks.loc[ranks.mean(axis=1).sort_values(kind="stable").index]
    shown = pd.DataFrame(
        {
            "label": label,
            **{name: f"{rank} ({number(means.loc[label, name], whole=False)})" for name, rank in row.items()},
        }
        for label, row in ranks.iterrows()
    )
    left = sorted({label for answer in evidence for label in answer.values} - set(common))
    return together(
        heading("Do the questions agree?"),
        table(shown, "Rank by the mean (the mean), a column a question"),
        note(
            f"Kendall's W {agreement:.2f} over {number(len(common))} methods and {number(len(evidence))} questions: 1 "
            f"where all rank the methods alike, {1 / len(evidence):.2f} on average where they have nothing in common. "
            "Ranks of means: neighbours whose intervals overlap may change places by chance."
            + (f" Not every question ranks {enumerated(left)}." if left else "")
        ),
    )


def overview(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML:
    """The recommendation of every experiment to every question it asked, by the rule of its page; a note where none
    was asked. evidence: of each experiment, by its name."""
    rows = []
    for result in results:
        chance = near_chance(result)
        for answer in evidence[result.experiment]:
            within = None if chance else answer.within(result)
            rows.append(
                {
                    "experiment": f"{result.experiment}, n = {number(len(answer.values))}",
                    "question": answer.question.short,
                    "within the budget": "⚠ model near chance" if chance else _short(answer, within),
                    "at any cost": "–" if chance else _short(answer, answer.last),
                    "by seconds": "–" if chance else _short(answer, answer.by_seconds, seconds=True),
                }
            )
    if not rows:
        return note("No experiment measured what would rank its methods on six instances or more.")
    wrapped = ["question", "within the budget", "at any cost", "by seconds"]
    return together(
        table(pd.DataFrame(rows), text=wrapped),
        note(
            "What to take: the cheapest method that is shown to be within a margin of the best, by comparisons with "
            "the best that hold together at 95 %; undecided where the instances do not suffice. Within the "
            "experiment's budget, at any cost (of errors, below that of the values that they are measured against), "
            "and with seconds as the cost. Controls take part."
        ),
    )


def _short(answer: Evidence, advice: Recommendation | None, seconds: bool = False) -> str:
    """The advice in a table's cell."""
    if advice is None or advice.label is None:
        return "–" if advice is None else "too few instances"
    taken = f"{advice.label}, {_cost(answer, advice.label, seconds)}"
    if advice.outcome != "undecided":
        return taken
    few = len(advice.rivals) <= 3
    between = enumerated([advice.label, *(advice.rivals if few else [f"{len(advice.rivals)} others"])])
    return f"undecided: {between}; {'safe' if advice.safe else 'best mean'}: {taken}"


def recommendation(answer: Evidence, results: Results) -> HTML:
    """What to take within the budget, whatever it costs, and by seconds, in a sentence each."""
    said = advices(answer, results).items()
    lines = [f"<p><b>{html.escape(_capital(scope))}</b>: {html.escape(told)}</p>" for scope, told in said]
    return HTML("".join(lines))


def absence(answer: Evidence, results: Results) -> HTML | None:
    """Which labels and instances the comparison leaves out, and why."""
    told = []
    if answer.absent:
        verb = "is" if len(answer.absent) == 1 else "are"
        told.append(
            f"Left out: {enumerated(list(answer.absent))} {verb} measured on fewer than half of the instances, too few "
            "to decide what the others are compared on."
        )
    if incomplete := sorted(answer.incomplete & set(answer.values)):
        told.append(f"Never recommended: {enumerated(incomplete)}, {NO_RULE}, so the scores do not add up.")
    every = results.measured[answer.question.metric]["instance"].nunique()
    if len(answer.values) < every:
        told.append(
            f"Compared on the {number(len(answer.values))} of {number(every)} instances on which every label has a "
            "value; the mean at the top of the page is over all that its label has."
        )
    return note(" ".join(told)) if told else None


OUTCOMES = {
    "alone": "the only one",
    "best": "shown best",
    "recommended": "within the margin",
    "undecided": "undecided",
    "too few": "too few instances",
}


def choices_table(answer: Evidence) -> HTML | None:
    """The choices for reading; nothing where random scores are best at every cost."""
    shown = pd.DataFrame(
        {
            "evaluations at most": spent(most),
            "how sure": OUTCOMES[advice.outcome],
            "take": advice.label or "–",
            "best mean": advice.bounds.index[0],
            f"its mean{f' ({answer.unit})' if answer.unit else ''}": number(advice.bounds["mean"].iloc[0], whole=False),
            f"margin{f' ({answer.unit})' if answer.unit else ''}": number(advice.margin, whole=False),
            "undecided with": enumerated(list(advice.rivals)) if advice.rivals else "–",
            "more instances needed": number(float(f"{advice.needed:.2g}")) if advice.rivals else "–",
        }
        for most, advice in answer.choices
        if advice.outcome != "alone" or advice.label != answer.random  # what costs nothing and says nothing
    )
    if shown.empty:
        return None
    return table(shown, "What to take for what it costs", text=["how sure", "take", "best mean", "undecided with"])


def against_best(answer: Evidence, results: Results) -> HTML:
    """Every label against the best: the bounds that the advice rests on, and the pairs' test."""
    advice, unit = answer.last or answer.advice(), f" ({answer.unit})" if answer.unit else ""
    best = advice.bounds.index[0]
    labels = [label for label in advice.bounds.index if label in answer.candidates]
    pairs = paired.pairs(answer.candidates[labels], answer.question.better)
    tests = pairs[pairs["better"] == best].set_index("worse")
    rows = []
    for label, row in advice.bounds.iterrows():
        test = tests.loc[label] if label in tests.index else {}
        rows.append(
            {
                "label": label,
                f"behind the best mean{unit}": number(row["behind"], whole=False),
                "interval, all together": ends(row["low"], row["high"]),
                "within the margin": within(row["status"]),
                "p (Holm)": probability(test.get("p_holm", np.nan)),
                "best is ahead on": share(test["wins"]) if len(test) else "–",
            }
        )
    rates = equal_methods_note(answer, results)
    return together(
        table(pd.DataFrame(rows), f"Against {best}, the best mean", text=["label"]),
        note(
            "Interval of (own − best), together 95 % over comparisons with the best. p: Wilcoxon's signed-rank test of "
            "each pair, Holm's correction; a small p says that two methods differ, not by how much, so the advice does "
            "not rest on it."
        ),
        rates,
    )


def equal_methods_note(answer: Evidence, results: Results) -> HTML | None:
    """How often the test tells a method from itself, from the label with most repeats; or that it was not tried."""
    measured, quantity = results.measured[answer.question.metric], answer.question.quantity
    scalar = (measured["quantity"] == quantity) & measured["x"].isna() & measured["label"].isin(list(answer.values))
    repeats = measured[scalar].groupby("label")["repeat"].nunique()
    if not (repeats > 1).any():
        return note(
            "No label has repeats here (repeats: 2), so the test was not tried on two draws of one method; docs/"
            "statistics.md says how it did on others."
        )
    label = repeats.idxmax()
    draws = paired.by_draw(measured[scalar & (measured["label"] == label)], quantity)[label]
    return note(f"{label} against itself: {rate_of_equal_methods(draws.to_numpy()).sentence}")
