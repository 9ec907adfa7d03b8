"""Methods by questions of all experiments, in one figure: how far each comes from random scores to the best."""

import html
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.report.elements import note, together
from shapeline.report.experiment import Results, near_chance
from shapeline.report.html import HTML
from shapeline.report.numbers import counted
from shapeline.report.questions import Evidence
from shapeline.statistics.recommendation import Recommendation

Column = tuple[Results, Evidence, Recommendation | None]


def shares(answer: Evidence, advice: Recommendation) -> pd.Series:
    """Of each label's mean, the way from the end of the span (random scores, else the worst) to the best mean: 1 is the
    best, 0 as good as the end, below 0 worse."""
    means = answer.values.mean()
    if answer.question.better == "higher":
        means = -means
    end, best = means.get(advice.ends_at, means.max()), means.min()
    return (end - means) / (end - best) if end > best else means * np.nan


def section(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML | None:
    """The figure, a cell a link to the experiment's page; nothing where no question was asked of a model that is
    better than chance. evidence: of each experiment, by its name."""
    columns = [
        (result, answer, answer.within(result))
        for result in results
        if not near_chance(result)
        for answer in evidence[result.experiment]
        if answer.last is not None
    ]
    if not columns:
        return None
    found = [shares(answer, answer.last) for _, answer, _ in columns]
    table = pd.DataFrame(dict(enumerate(found))).dropna(how="all")
    table = table[(table.fillna(0) != 0).any(axis=1)]  # random scores are 0 everywhere
    order = pd.DataFrame({"in": table.notna().sum(axis=1), "mean": table.mean(axis=1)})
    table = table.loc[order.sort_values(["in", "mean"], ascending=False, kind="stable").index]
    head = "".join(
        f"<th>{_linked(column, html.escape(_title(column)).replace('_', '_<wbr>'))}</th>" for column in columns
    )
    body = "".join(_row(label, row, columns) for label, row in table.iterrows())
    return together(
        note(
            "A row is a method, a column a question put to an experiment. ★ is what to take there: the cheapest that "
            "is shown to be nearly as good as the best. A cell leads to its page."
        ),
        HTML(
            '<div class="wide"><table class="glance"><caption>Every method in every question, at a glance</caption>'
            f"<thead><tr><th>label</th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        ),
        note(
            "Of each method's mean, the way from random scores (0 %) to the best mean of its column (100 %); the "
            "darker, the nearer. ★: what to take within the budget, the cheapest that is shown to be within the "
            "margin, or the best mean where that alone is shown to be; ☆: the best mean of those between which the "
            "instances do not decide. Means without their "
            "intervals, which the pages have; a cell says what it costs. Error: how far from the exact values. "
            "Masking, insertion: what the class loses as the top features go, and wins as they come. Finding words or "
            "objects: those that are known to decide."
        ),
    )


def _title(column: Column) -> str:
    result, answer, _ = column
    return f"{result.experiment}: {answer.question.short}"


def _linked(column: Column, text: str, told: str = "") -> str:
    said = f' title="{html.escape(told)}"' if told else ""
    return f'<a href="{html.escape(column[0].experiment)}.html"{said}>{text}</a>'


def _row(label: str, row: pd.Series, columns: Sequence[Column]) -> str:
    cells = []
    for value, column in zip(row, columns, strict=True):
        if not np.isfinite(value):
            cells.append("<td></td>")
            continue
        _, answer, advice = column
        taken = advice is not None and (advice.label == label or str(advice.label).startswith(f"{label} at "))
        mark = ("☆ " if advice.outcome == "undecided" and not advice.safe else "★ ") if taken else ""
        told = f"{label}, {_title(column)}: {counted(answer.evaluations.get(label, np.nan), 'evaluation')} an instance"
        if taken and advice.label != label:
            told += f"; take {advice.label}"
        way, text = f"{100 * min(max(value, 0.0), 1.0):.0f}%", f"{100 * value:.0f} %".replace("-", "−")
        cells.append(f'<td style="--way: {way}">{_linked(column, mark + text, told)}</td>')
    return f"<tr><td>{html.escape(str(label)).replace('_', '_<wbr>')}</td>{''.join(cells)}</tr>"
