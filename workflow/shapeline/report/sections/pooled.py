"""Ranks of the methods that several experiments share, over datasets, models and training seeds."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.report.criteria import Evidence, training_means
from shapeline.report.elements import heading, join_parts, note, table
from shapeline.report.experiment import Results, near_chance
from shapeline.report.formatting import ends, enumerated, number
from shapeline.report.html import HTML
from shapeline.statistics import ranking

LEAST = 3  # labels that are ranked


def section(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML | None:
    """Return a table of ranks per criterion that at least two datasets or models share at one budget; None without.

    evidence: by the name of the experiment.
    """
    groups: dict[tuple, list[tuple[Results, Evidence]]] = {}
    for result in results:
        for answer in () if near_chance(result) else evidence[result.experiment]:
            question, budget = answer.question, result.settings.get("budget")
            groups.setdefault((question.metric, question.statistic, budget), []).append((result, answer))
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
    sign = 1 if first.question.better == "lower" else -1
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
        table(shown, f"{first.question.title.split(': ')[0]}{at}: ranks of {number(len(labels))} methods"),
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
