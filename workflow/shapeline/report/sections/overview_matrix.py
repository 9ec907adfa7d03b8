"""Methods over experiments: the overview by criterion, and pooled ranks."""

import html
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.report.criteria import Evidence, name_verdict, training_means
from shapeline.report.elements import HTML, folded, heading, join_parts, note, table
from shapeline.report.experiment import Results, near_chance
from shapeline.report.formatting import ends, enumerated, format_count, number
from shapeline.report.sections.robustness import changes
from shapeline.statistics import ranking
from shapeline.statistics.recommendation import Recommendation

Column = tuple[Results, Evidence, Recommendation | None]


def shares(answer: Evidence, advice: Recommendation) -> pd.Series:
    """Return the position of each mean between random attribution (else the worst), 0, and the best mean, 1."""
    means = answer.values.mean()
    if answer.criterion.better == "higher":
        means = -means
    end, best = means.get(advice.ends_at, means.max()), means.min()
    return (end - means) / (end - best) if end > best else means * np.nan


def section(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML | None:
    """Return the overview with links to pages (evidence by name); None where no criterion ranks methods."""
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
    return f'<th data-kind="{html.escape(kind)}" data-criterion="{html.escape(answer.criterion.short)}">{title}</th>'


def _title(column: Column) -> str:
    result, answer, _ = column
    return f"{result.experiment}: {answer.criterion.short}"


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


LEAST = 3  # labels that are ranked


def pooled_section(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML | None:
    """Return ranks per criterion shared by at least two datasets or models at one budget; None without."""
    groups: dict[tuple, list[tuple[Results, Evidence]]] = {}
    for result in results:
        for answer in () if near_chance(result) else evidence[result.experiment]:
            criterion, budget = answer.criterion, result.settings.get("budget")
            groups.setdefault((criterion.metric, criterion.statistic, budget), []).append((result, answer))
    parts = [part for members in groups.values() if (part := _ranked(members)) is not None]
    if not parts:
        return None
    return join_parts(
        heading("Ranks over the experiments", 2),
        *parts,
        note(
            "Ranks of the means over instances (1 is best), one per training seed, among the methods that all these "
            "experiments share with equal parameters and budget. The simultaneous 95 % CI use Student's t over the "
            "pairs of dataset and model, after averaging over training seeds."
        ),
    )


def _ranked(members: Sequence[tuple[Results, Evidence]]) -> HTML | None:
    """Return the ranks of the shared methods; None where there are too few, or one dataset and model."""
    [_, first] = members[0]
    labels = _shared(members)
    pairs = [_pair(result) for result, _ in members]
    if len(labels) < LEAST or len(set(pairs)) < 2:
        return None
    cells = [_means(answer, result, labels) for result, answer in members]
    cluster = [pair for pair, means in zip(pairs, cells, strict=True) for _ in range(len(means))]
    sign = 1 if first.criterion.better == "lower" else -1
    means = pd.concat(cells, ignore_index=True) * sign
    pooled, each = ranking.pooled_ranks(means, cluster), ranking.ranks(means)
    shown = pd.DataFrame(
        {
            "method": label,
            "mean rank": number(row["mean"], 2, whole=False),
            "simultaneous 95 % CI": ends(row["low"], row["high"]),
            **{pair: _format_list(each.loc[np.array(cluster) == pair, label]) for pair in dict.fromkeys(pairs)},
        }
        for label, row in pooled.iterrows()
    )
    budget = members[0][0].settings.get("budget")
    at = "" if budget is None else f", budget {number(budget)} d"
    return join_parts(
        table(shown, f"{first.criterion.title.split(': ')[0]}{at}: ranks of {number(len(labels))} methods"),
        note(_format_ranks(pooled, len(set(pairs)))),
    )


def _shared(members: Sequence[tuple[Results, Evidence]]) -> list[str]:
    """Return the entries of all members that have the same method and parameters everywhere."""

    def entry(result: Results, label: str) -> tuple:
        return result.labels[label]["method"], result.labels[label].get("parameters")

    first, answer = members[0]
    return [
        label
        for label in answer.values
        if all(label in other.values and entry(of, label) == entry(first, label) for of, other in members)
    ]


def _pair(result: Results) -> str:
    return f"{result.dataset_card.get('name')}, {result.model_card.get('name')}"


def _means(answer: Evidence, result: Results, labels: list[str]) -> pd.DataFrame:
    """Return means (training seeds, methods), the first over all its instances, without seeds that lack a method."""
    others = training_means(answer, result)
    others = others.loc[others.index > 0, labels] if set(labels) <= set(others) else pd.DataFrame(columns=labels)
    return pd.concat([answer.values[labels].mean().to_frame().T, others.astype(float)], ignore_index=True)


def _format_list(ranks: pd.Series) -> str:
    return ", ".join(number(rank) for rank in ranks)


def _format_ranks(pooled: pd.DataFrame, pairs: int) -> str:
    """Return in a sentence which methods rank significantly differently."""
    apart = [
        f"{better} before {worse}"
        for better, worse in itertools.combinations(pooled.index, 2)
        if pooled["high"][better] < pooled["low"][worse]
    ]
    over = f"Over {number(pairs)} pairs of dataset and model"
    if not apart:
        return f"{over}, no two methods rank significantly differently."
    order = enumerated(apart) if len(apart) < 4 else f"{number(len(apart))} of the pairs of methods, first {apart[0]}"
    return f"{over}, these rank significantly differently: {order}."
