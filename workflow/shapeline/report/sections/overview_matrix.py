"""Overview of methods by experiment and criterion: the position of each between random attribution and the best."""

import html
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.report.criteria import Evidence, name_verdict
from shapeline.report.elements import folded, heading, join_parts, note
from shapeline.report.experiment import Results, near_chance
from shapeline.report.formatting import format_count
from shapeline.report.html import HTML
from shapeline.report.sections.robustness import changes
from shapeline.statistics.recommendation import Recommendation

Column = tuple[Results, Evidence, Recommendation | None]


def shares(answer: Evidence, advice: Recommendation) -> pd.Series:
    """Return the position of each mean in the range from random attribution (else the worst) to the best mean: 1 is the
    best, 0 equals random attribution, below 0 is worse."""
    means = answer.values.mean()
    if answer.question.better == "higher":
        means = -means
    end, best = means.get(advice.ends_at, means.max()), means.min()
    return (end - means) / (end - best) if end > best else means * np.nan


def section(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML | None:
    """Return the overview, with links to the pages; None where no criterion ranks methods on a model better than
    chance. evidence: by the name of the experiment."""
    columns = [
        (result, answer, answer.within(result))
        for result in results
        if not near_chance(result)
        for answer in evidence[result.experiment]
        if answer.last is not None
    ]
    if not columns:
        return None
    positions = [shares(answer, answer.last) for _, answer, _ in columns]
    table = pd.DataFrame(dict(enumerate(positions))).dropna(how="all")
    table = table[(table.fillna(0) != 0).any(axis=1)]  # random attribution is 0 everywhere
    order = pd.DataFrame({"in": table.notna().sum(axis=1), "mean": table.mean(axis=1)})
    table = table.loc[order.sort_values(["in", "mean"], ascending=False, kind="stable").index]
    head = "".join(_head(column) for column in columns)
    body = "".join(_row(label, row, columns) for label, row in table.iterrows())
    return join_parts(
        heading("Methods by experiment and criterion", 2),
        note(
            "100 % is the best mean of the column and 0 % is random attribution; below 0 % a method is worse than "
            "random. Symbols are those of the cards above. –: not measured by this criterion."
        ),
        HTML(
            '<div class="wide"><table class="glance"><caption>Position of each method between random attribution and '
            f"the best; a cell links to its page</caption><thead><tr><th>method</th>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>"
        ),
        folded(
            "Criteria",
            note(
                "Error: distance to the exact values. Deletion and insertion AUC: the loss of log-odds as the top "
                "features are removed, and the gain as they are added. Localisation and ground-truth words: agreement "
                "with annotated objects and words. The pages have the intervals of all means."
            ),
        ),
    )


def _head(column: Column) -> str:
    """Return the head of a column, with what the page filters by."""
    result, answer, _ = column
    kind, title = result.dataset_card.get("kind", "game"), html.escape(_title(column)).replace("_", "_<wbr>")
    return f'<th data-kind="{html.escape(kind)}" data-criterion="{html.escape(answer.question.short)}">{title}</th>'


def _title(column: Column) -> str:
    result, answer, _ = column
    return f"{result.experiment}: {answer.question.short}"


def _linked(column: Column, text: str, title: str = "") -> str:
    hint = f' title="{html.escape(title)}"' if title else ""
    return f'<a href="{html.escape(column[0].experiment)}.html"{hint}>{text}</a>'


def _row(label: str, row: pd.Series, columns: Sequence[Column]) -> str:
    cells = []
    for value, column in zip(row, columns, strict=True):
        if not np.isfinite(value):
            cells.append('<td title="not measured by this criterion">–</td>')
            continue
        result, answer, advice = column
        taken = advice is not None and (advice.label == label or str(advice.label).startswith(f"{label} at "))
        mark = f"{'⚠ ' * bool(changes(answer, result))}{name_verdict(advice)[0]} " if taken else ""
        hint = (
            f"{label}, {_title(column)}: {format_count(answer.evaluations.get(label, np.nan), 'evaluation')} per "
            "instance"
        )
        if taken and advice.label != label:
            hint += f"; at {advice.label.partition(' at ')[2]}"
        hint += "; worse than random attribution" if value < 0 else ""
        way, text = f"{100 * min(max(value, 0.0), 1.0):.0f}%", f"{100 * value:.0f} %".replace("-", "−")
        cells.append(f'<td style="--way: {way}">{_linked(column, mark + text, hint)}</td>')
    return f"<tr><td>{html.escape(str(label)).replace('_', '_<wbr>')}</td>{''.join(cells)}</tr>"
