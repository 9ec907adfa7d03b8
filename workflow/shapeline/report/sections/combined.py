"""Sections made of others: a few instances by the kind of their data, and what the methods have in common."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline.report import elements, experiment, styling
from shapeline.report.elements import figure, heading, join_parts, note, table
from shapeline.report.experiment import Results, scalars
from shapeline.report.figures import dots
from shapeline.report.formatting import interval, number, two_digit_interval
from shapeline.report.html import HTML
from shapeline.report.sections import examples, explorer, texts
from shapeline.report.sections.method_agreement import CONTROLS, agreement_section, agreements
from shapeline.report.styling import WIDTH, Style, styled
from shapeline.statistics.comparison import compare


def context_pairs(labels: Mapping[str, Mapping]) -> list[tuple[str, str]]:
    """Pairs (context absent, context present) of labels that differ in nothing else."""
    kinds: dict[tuple, dict[str, str]] = {}
    for label, entry in labels.items():
        parameters = dict(entry.get("parameters") or {})
        context = parameters.pop("context", "absent")
        key = (entry["method"], repr(sorted(parameters.items())))
        kinds.setdefault(key, {}).setdefault(context, label)
    return [(pair["absent"], pair["present"]) for pair in kinds.values() if len(pair) == 2]


def context_comparison(
    measured: pd.DataFrame,
    scores_by_label: Mapping[str, Sequence[np.ndarray | None]],
    pairs: Iterable[tuple[str, str]],
    seed: int = 0,
) -> pd.DataFrame:
    """Masking area with context absent minus present, paired over instances, and how alike the two rank the features.

    measured: label, instance, repeat, statistic, x, value, as the metric measured them (repeats are averaged first);
    scores_by_label as in `agreements`. One row a pair: absent, present, absent_area, present_area, mean, low, high (of
    the difference, nats, 95 % interval), n, and rank_mean, rank_low, rank_high.
    """
    areas = measured[measured["statistic"] == "deletion_auc"].pivot_table(
        index="instance", columns="method", values="value", aggfunc="mean"
    )
    rows = []
    for absent, present in pairs:
        if absent not in areas or present not in areas:
            continue
        both = areas[[absent, present]].dropna()
        if both.empty:
            continue
        difference = pd.DataFrame({"value": both[absent] - both[present]}).reset_index()
        mean = compare(difference.assign(method="", statistic="difference", repeat=0, x=np.nan)).iloc[0]
        alike = agreements({label: scores_by_label[label] for label in (absent, present)})
        alike = alike[alike["statistic"] == "rank correlation"]
        rank = alike.iloc[0] if len(alike) else dict.fromkeys(("mean", "low", "high"), math.nan)
        rows.append(
            {
                "absent": absent,
                "present": present,
                "absent_area": both[absent].mean(),
                "present_area": both[present].mean(),
                **{key: mean[key] for key in ("mean", "low", "high", "n")},
                **{f"rank_{key}": rank[key] for key in ("mean", "low", "high")},
            }
        )
    return pd.DataFrame(rows)


def context_section(frame: pd.DataFrame) -> HTML:
    """The comparison of contexts as a table; a line where there is nothing to compare."""
    if frame.empty:
        return note("No method was run with both masked and kept context.")
    shown = pd.DataFrame(
        {
            "context masked": row["absent"],
            "context kept": row["present"],
            "deletion AUC (nats)": f"{number(row['absent_area'], whole=False)}, "
            f"{number(row['present_area'], whole=False)}",
            "masked − kept (nats)": interval(row),
            "lower (better)": "kept"
            if row["low"] > 0
            else "masked"
            if row["high"] < 0
            else "not significantly different",
            "rank correlation": two_digit_interval({key: row[f"rank_{key}"] for key in ("mean", "low", "high")}),
            "instances": number(row["n"]),
        }
        for row in frame.to_dict("records")
    )
    return join_parts(
        table(shown, text=["context kept", "lower (better)"]),
        note(
            "Features outside the window of a method are masked (set to the baseline) or kept. Differences are paired "
            "within instances, with 95 % intervals over instances."
        ),
    )


@styled
def ground_truth_f1(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """F1 of the top k words against the k ground-truth ones, best label on top; frame as of `compare`."""
    rows = scalars(frame, "f1")
    labels = sorted((label for label in styles if label in rows.index), key=lambda label: -rows["mean"][label])
    if not labels:
        return None
    drawing = Figure(figsize=(0.7 * WIDTH, 1.1 + 0.29 * len(labels)), layout="constrained")
    axes = drawing.subplots()
    across = "F1 of the top k words, k = number of ground-truth words"
    dots.dot_panel(axes, rows.loc[labels], styles, labels, dots.Panel("Ground-truth words found", across, True))
    dots.name_rows(axes, labels)
    axes.set_xlim(0, 1.02)
    return drawing


def ground_truth_section(frame: pd.DataFrame | None, styles: Mapping[str, Style], explained: int) -> HTML:
    """The F1 of every label as figure and table; explained: documents explained, among them those left out."""
    if frame is None:
        return elements.missing("ground_truth_words")
    drawing = ground_truth_f1(frame, styles)
    if drawing is None:
        return note("Not available: the model misclassifies all documents, or none has a ground-truth word.")
    rows = scalars(frame, "f1").sort_values("mean", ascending=False, kind="stable")
    shown = pd.DataFrame(
        {
            "method": label,
            "F1 (higher is better)": two_digit_interval(row),
            "control": "yes" if styles[label].control else "",
            "documents": number(row["n"]),
        }
        for label, row in rows.iterrows()
        if label in styles
    )
    counted = int(rows["n"].max())
    left = f"{number(explained - counted)} of {number(explained)} documents are excluded"
    return join_parts(
        figure(
            drawing,
            "F1 of the top words of each method against the ground-truth words, with 95 % intervals",
            f"Mean over documents with 95 % intervals. {CONTROLS}",
        ),
        table(shown, text=["control"]),
        note(
            "The number of selected words, by signed score, equals the number of ground-truth words, so F1, precision "
            f"and recall are equal. {left}: misclassified documents, and documents without a ground-truth word."
        ),
    )


ENOUGH = 2_000  # instances for an agreement to two digits


def comparisons(results: Results) -> HTML:
    """How alike the methods are; where they were run both ways, what context changes; the words known to decide."""
    ids = results.instances["instance"]
    some = ids.iloc[np.linspace(0, len(ids) - 1, min(len(ids), ENOUGH)).astype(int)]
    scores = {label: experiment.scores_of(frame, some) for label, frame in results.scores.items()}
    parts = [heading("Agreement between methods"), agreement_section(scores)]
    if len(some) < len(ids):
        parts.append(note(f"Computed on {number(len(some))} of {number(len(ids))} instances, evenly spaced."))
    pairs = context_pairs(results.labels)
    if pairs and "log_odds" in results.measured:
        compared = context_comparison(results.measured["log_odds"], scores, pairs)
        parts += [heading("Context masked or kept"), context_section(compared)]
    if "ground_truth_words" in results.metrics:
        parts += [
            heading("Ground-truth words"),
            ground_truth_section(results.metrics["ground_truth_words"], styling.styles_of(results), len(ids)),
        ]
    return join_parts(*parts)


def explanations(results: Results, label: str | None) -> HTML:
    """Return the explorer of instances, a method and the exact values first; without JavaScript figures of a few."""
    still = texts.explanations if results.dataset_card["kind"] == "text" else examples.explanations
    first = [name for name in (label, results.exact) if name is not None]
    return explorer.explorer(results, first, still(results))
