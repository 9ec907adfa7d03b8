"""Comparison of methods with masked and with kept context."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.report.elements import join_parts, note, table
from shapeline.report.formatting import interval, number, two_digit_interval
from shapeline.report.html import HTML
from shapeline.report.sections.method_agreement import agreements
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
