"""Sections that every page has: top, health, cost, masking, error."""

import html
from collections.abc import Iterable, Mapping

import pandas as pd

from shapeline.designs.orders import MOST
from shapeline.report import experiment, findings, tables
from shapeline.report.elements import Answers, figure, heading, missing, note, pair, table, together
from shapeline.report.experiment import Results, ceiling, scalars
from shapeline.report.figures.costs import by_cost, error_by_cost
from shapeline.report.figures.dots import areas, errors
from shapeline.report.figures.lines import calibration, convergence, curve_panels, curves
from shapeline.report.html import HTML
from shapeline.report.numbers import number, share
from shapeline.report.questions import ENOUGH
from shapeline.report.styling import FEW, styles_of
from shapeline.report.tables import CUT


def top(title: str, answers: Answers, sentences: Iterable[str], facts: Mapping[str, object]) -> HTML:
    """The first screen of a page: title, which method to take at what cost, what else was found, key figures."""
    items = [f"<li><b>{html.escape(short)}</b> {html.escape(more)}</li>" for short, more in answers]
    items += [f"<li>{html.escape(text)}</li>" for text in sentences]
    cells = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in facts.items())
    return HTML(
        f'<h1>{html.escape(title)}</h1><ul class="headlines">{"".join(items)}</ul><div class="key">{cells}</div>'
    )


def header(results: Results, answers: Answers = ()) -> HTML:
    """The top of the page; answers: which method to take, and what else is to be said of it, before the others."""
    headline, budget = findings.headline(results), results.settings.get("budget")
    facts = {
        "test accuracy": share(headline["accuracy"]) if headline["accuracy"] is not None else "–",
        "test R²": number(headline["r2"], 2),
        "instances explained": number(headline["instances"]),
        "labels compared": number(len(results.labels)),
        "features (d)": number(results.d),
        **({"budget (evaluations)": number(budget * results.d)} if budget else {}),
        "evaluations": number(headline["evaluations"]),
        "failed rows": number(headline["failures"]),
    }
    facts.pop("test R²" if headline["r2"] is None else "test accuracy")
    if not results.model_card:
        facts.pop("test accuracy")
    told = [] if answers else [_no_advice(headline["instances"])]
    return top(headline["title"], answers, [*told, *findings.headlines(results, bool(answers))], facts)


def _no_advice(instances: int) -> str:
    least = f"methods are compared on at least {number(ENOUGH)} instances"
    if instances < ENOUGH:
        return f"No advice: {least}, and {number(instances)} {'is' if instances == 1 else 'are'} explained."
    return f"No advice: {least}, and no metric here has values of two of them on as many."


def health(results: Results) -> HTML:
    """The health table and how to read it; without the columns that only a model's values fill."""
    if results.model_card:
        return full_health(results)
    shown = tables.health(results)
    columns = ("label", "rows", "failures", "flagged", "packages", "zero scores", "ties at the cut")
    kept = [name for name in columns if name in shown]
    return together(
        table(shown[kept], text=["failures", "flagged", "packages"]),
        note(
            f"Ties at the cut: points whose top {share(CUT)} of the features is no clear set, because "
            "influences are equal. A ⚠ marks a failure."
        ),
        why_failed(results),
    )


def health_note(results: Results) -> HTML:
    """How the columns of the health table are made."""
    return note(
        "Efficiency gap: how far the scores, with their pairs if any, are from adding up to the value of the full "
        "input minus that of the empty one. Ties at the cut: explanations whose top "
        f"{share(CUT)} of the features is no clear set, because "
        "scores are equal. A ⚠ marks a failure, or a gap that should be 0; where it need "
        "not be, a gap says nothing of how well a method ranks features."
    )


def full_health(results: Results) -> HTML:
    """The health table with every column, and how to read it."""
    shown = table(tables.health(results), text=["failures", "flagged", "packages"])
    return together(shown, health_note(results), why_failed(results))


def why_failed(results: Results) -> HTML | None:
    """What each label says that failed, the most frequent of its reasons; None where none did."""
    reasons = {
        label: frame.loc[frame["status"] != "ok", "error"].dropna().mode() for label, frame in results.scores.items()
    }
    told = [note(f"{label}: {said.iloc[0].removeprefix(f'{label}: ')}") for label, said in reasons.items() if len(said)]
    return together(*told) if told else None


TIMED = {
    "batch": "The time is that of a batch over its instances, so it has no interval; it includes making the design and "
    "leaves out loading, calibration, cutting superpixels and one warm-up call.",
    "per_instance": "Each instance was timed alone; the interval is over instances. The time includes a share of "
    "making the design and leaves out loading, calibration, cutting superpixels and one whole warm-up.",
}


def cost_note(results: Results) -> HTML:
    """How the columns of the cost table are made."""
    budget, timed = results.settings.get("budget"), TIMED[results.settings.get("timing", "batch")]
    if not budget:
        return note(timed)
    return note(
        f"The budget is {number(budget)} d = {number(budget * results.d)} evaluations per instance, the empty and the "
        "full input among them. Sampled methods spend it; the others have a cost of their own, marked where above. "
        + timed
    )


def cost(results: Results) -> HTML:
    """The cost table and how to read it."""
    return together(table(tables.cost(results), text=["budget"]), cost_note(results))


def model_and_data(results: Results) -> HTML:
    """The model and the data as facts, side by side."""
    model, data = tables.model_facts(results.model_card), tables.dataset_facts(results.dataset_card)
    return pair(table(model, "Model", header=False), table(data, "Data", header=False))


def provenance(results: Results) -> HTML:
    """Where the scores come from: what all score files share, and a row a label."""
    shared, by_label = tables.provenance(results)
    named = ["method", "parameters", "form of the model", "settings digest"]
    return together(table(shared, header=False), table(by_label, text=named))


def masking_section(results: Results) -> HTML:
    """Curves, a panel a method, areas, and a table of both; one line where the metric is missing."""
    frame, drawn = results.metrics.get("log_odds"), styles_of(results)
    if frame is None or frame.empty:
        return missing("log_odds")
    few = sum(label in set(frame["label"]) for label in results.labels) <= FEW
    bands = "bands are 95 % intervals" if few else "their intervals are in the panels below"
    return together(
        figure(
            curves(frame, drawn),
            "Masking and insertion curves of every method",
            f"Means over instances; {bands}. Controls are grey and dashed with hollow markers"
            + (f"; {results.truth} black." if results.exact else ".")
            + f" {_best_order(results, frame)}",
        ),
        heading("One method at a time"),
        figure(
            curve_panels(frame, drawn),
            "Masking curve of each method in front of all the others",
            "The masking curve of each method with its 95 % interval, all others in grey; lower is better, best area "
            "first.",
        ),
        heading("Areas"),
        figure(
            areas(frame, drawn),
            "Areas under the masking and insertion curves with 95 % intervals",
            "Mean height of each curve with its 95 % interval. Dotted line: the best control."
            + (" Black dots: the best order there is, its interval grey." if len(ceiling(frame, "masking")) else ""),
        ),
        table(tables.area_table(results)),
    )


def _best_order(results: Results, frame: pd.DataFrame) -> str:
    """What the line of the best order is, or why there is none."""
    if len(ceiling(frame, "masking")):
        rows = number(ceiling(frame, "masking_area")["n"].iloc[0])
        return (
            f"Black dots: the best order there is, found exactly from all coalitions of {rows} instances; "
            "no method can do better. Its cost is charged to none."
        )
    if results.features is None or results.d > MOST:
        return f"The best order there is cannot be had: it takes at most {MOST} features, the same of all instances."
    return (
        "The best order there is cannot be had here: it takes a label with the values of all coalitions (shapley), as "
        "probabilities or their logarithms, and every count of features masked."
    )


def interval_note(results: Results) -> HTML:
    """What the intervals cover, which depends on how many designs were drawn."""
    repeats = max((frame["repeat"].nunique() for frame in results.scores.values()), default=1)
    several = "picture" in results.instances
    text = "The number of a picture is the mean over those of its labels that have one. " * several + (
        "Intervals are 95 % intervals over instances. All methods explain the same instances, so one can win "
        "on nearly every instance and still overlap with another. "
    )
    more = "Every instance has a draw of its own of a sampled method, so they include what was drawn."
    if repeats > 1:
        more += f" Each number is the mean over {repeats} draws of its instance."
    return note(f"{text}{more}")


def error_section(results: Results) -> HTML:
    """The whole section on error to the exact values, heading included; empty where no label is exact."""
    exact, frame, unit = results.exact, results.metrics.get("error"), results.value_unit
    if not exact:
        return HTML("")
    title = heading(f"Error to {results.truth}", 2)
    if frame is None or frame.empty:
        return together(title, missing("error"))
    drawn, budget = styles_of(results), results.settings.get("budget")
    spent = None if budget is None else budget * results.d
    return together(
        title,
        figure(
            errors(frame, drawn, exact, unit),
            f"RMSE, rank correlation and top-k overlap with the scores of {exact}",
            f"Distance to the scores of {exact}: mean over instances, 95 % intervals. Dotted line: the best control.",
        ),
        figure(
            error_by_cost(frame, drawn, experiment.evaluations(results), exact, unit, spent),
            "RMSE against evaluations per instance",
            "Lower left is better: a small error for few evaluations. Vertical bars are 95 % intervals.",
            numbers=by_cost(scalars(frame, "rmse"), evaluations=experiment.evaluations(results)),
        ),
        _other_units(results, frame),
        convergence_section(results, frame),
    )


def _other_units(results: Results, frame: pd.DataFrame) -> HTML | None:
    """Which errors are of scores in another unit than the values; nothing where none is."""
    measured = [label for label in results.scores if label in set(frame["label"])]
    others = [label for label in measured if experiment.unit_of(results, label) not in ("", results.value_unit)]
    if not others:
        return None
    return note(
        f"The scores of {', '.join(others)} are of the network's own output and not in {results.value_unit}: "
        "their RMSE has the difference of the units in it. Rank correlation and top-k overlap have not."
    )


def _at_equal_error(results: Results) -> list[HTML]:
    """Evaluations that methods take to the same error; nothing where fewer than two have snapshots."""
    shown = findings.at_equal_error_table(results)
    if shown.empty:
        return []
    told = "Evaluations at equal error: of the label that ends nearest, and of each other"
    return [
        table(shown, told),
        note(
            "At the least error that both reach, log-log linear between neighbouring budgets; – where one does not "
            "cross it between two of its own, since nothing is extrapolated. 95 % intervals by resampling instances."
        ),
    ]


def convergence_section(results: Results, frame: pd.DataFrame) -> HTML | None:
    """Error against the budget, bias and spread apart, and the best label at each budget; None without snapshots."""
    drawing = convergence(frame, styles_of(results), results.value_unit)
    if drawing is None:
        return None
    caption = (
        "Lower is better; bands are 95 % intervals over instances and, from three repeats on, draws. Error squared is "
        "bias squared plus variance; the bias needs repeats, and is drawn where its square is above 0 (its estimate "
        "scatters round 0 for an unbiased estimator)."
    )
    return together(
        HTML("<h3>Convergence</h3>"),
        figure(drawing, f"Error to {results.truth} against the budget, bias and standard deviation apart", caption),
        figure(
            calibration(frame, styles_of(results), results.value_unit),
            f"Predicted and actual error to {results.truth}, and coverage of intervals, against the budget",
            "Left: means over instances of the RMSE that a method predicts from its own draw (hollow, dashed), and of "
            "its actual one. Right: how many of the true scores lie inside of its 95 % intervals; grey is 92 to 98 %.",
        ),
        table(findings.best_by_budget(results), "Best at each budget", text=["smallest error", "next", "told apart"]),
        *_at_equal_error(results),
    )
