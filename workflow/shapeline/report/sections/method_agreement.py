"""Agreement between methods."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline.metrics.error import mean_ranks
from shapeline.report.colours import FAINT, INK, PAPER
from shapeline.report.elements import figure, join_parts, note, table
from shapeline.report.formatting import number, two_digit_interval, two_digits
from shapeline.report.html import HTML
from shapeline.report.styling import SIGNS, WIDTH, styled
from shapeline.report.vectors import centred, cosines
from shapeline.statistics.comparison import compare

CONTROLS = "Controls are grey with hollow markers; the dotted line is the best of them."


def agreements(scores_by_label: Mapping[str, Sequence[np.ndarray | None]]) -> pd.DataFrame:
    """Rank correlation and cosine of every pair of labels: mean over instances and 95 % interval.

    scores_by_label: label -> one array (d,) an instance, in the same order for all labels, d may differ between
    instances; None for a failure. Columns: label, other, statistic, mean, low, high, n; n counts the instances where
    both succeeded and neither is constant (for cosines: all zero). A pair without any is missing.
    """
    labels = list(scores_by_label)
    first, second = np.triu_indices(len(labels), 1)
    by_quantity: dict[str, list[np.ndarray]] = {"rank correlation": [], "cosine": []}
    for rows in zip(*scores_by_label.values(), strict=True):
        d = max((len(row) for row in rows if row is not None), default=1)
        values = np.stack([np.full(d, np.nan) if row is None else np.asarray(row, float) for row in rows])
        ranks = mean_ranks(values)  # NaN of NaN
        by_quantity["rank correlation"].append(cosines(centred(ranks))[first, second])
        by_quantity["cosine"].append(cosines(values)[first, second])
    columns = ["method", "other", "statistic", "mean", "low", "high", "n"]
    count = len(by_quantity["cosine"])
    if not count or not len(first):
        return pd.DataFrame(columns=columns)
    # One frame a statistic: one an instance took most of the time, of thousands of instances.
    places, pairs = np.repeat(np.arange(count), len(first)), np.tile(np.arange(len(first)), count)
    long = [
        pd.DataFrame({"instance": places, "statistic": statistic, "method": pairs, "value": np.concatenate(values)})
        for statistic, values in by_quantity.items()
    ]
    table = compare(pd.concat(long, ignore_index=True).assign(repeat=0, x=np.nan))
    pair = table["method"].astype(int).to_numpy()
    named = {"method": np.array(labels)[first[pair]], "other": np.array(labels)[second[pair]]}
    return table.assign(**named)[columns]


@styled
def agreement(frame: pd.DataFrame, labels: Sequence[str]) -> Figure | None:
    """Mean rank correlation (below the diagonal) and cosine (above it) between labels; frame as of `agreements`."""
    present = [label for label in labels if label in {*frame["method"], *frame["other"]}]
    if len(present) < 2:
        return None
    place = {label: at for at, label in enumerate(present)}
    values = np.full((len(present), len(present)), np.nan)
    for row in frame[frame["method"].isin(present) & frame["other"].isin(present)].to_dict("records"):
        low, high = sorted((place[row["method"]], place[row["other"]]))
        values[(high, low) if row["statistic"] == "rank correlation" else (low, high)] = row["mean"]
    side = min(0.62, (WIDTH - 3.6) / len(present))
    drawing = Figure(figsize=(min(WIDTH, 3.6 + side * len(present)), 1.9 + 0.75 * side * len(present)))
    drawing.set_layout_engine("constrained")
    axes = drawing.subplots()
    shades = axes.imshow(values, cmap=SIGNS, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    dark = shades.to_rgba(values)[..., :3] @ [0.2126, 0.7152, 0.0722] < 0.55
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            style = {"fontsize": 8.5 if side > 0.5 else 8, "color": PAPER if dark[row, column] else INK}
            axes.text(column, row, two_digits(value), ha="center", va="center", in_layout=False, **style)
    drawing.colorbar(shades, ax=axes, label="mean over instances", shrink=0.8).outline.set_visible(False)
    axes.set_facecolor(FAINT)  # the diagonal, and pairs without a common instance
    between = np.arange(len(present) - 1) + 0.5
    axes.hlines(between, -0.5, len(present) - 0.5, color=PAPER, linewidth=1)
    axes.vlines(between, -0.5, len(present) - 0.5, color=PAPER, linewidth=1)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_xticks(range(len(present)), present, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(present)), present)
    axes.set_title("Above the diagonal: cosine. Below: rank correlation")
    return drawing


def agreement_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Every pair of labels with both means and intervals, the most similar first; text."""
    rank, cosine = (
        frame[frame["statistic"] == name].set_index(["method", "other"]) for name in ("rank correlation", "cosine")
    )
    pairs = [
        *rank.sort_values("mean", ascending=False, kind="stable").index,
        *cosine.index.difference(rank.index, sort=False),
    ]
    columns = ["one", "other", "rank correlation", "cosine", "instances"]
    return pd.DataFrame(
        [
            (*pair, *(two_digit_interval(part.loc[pair]) if pair in part.index else "–" for part in (rank, cosine)),
             number((rank if pair in rank.index else cosine).loc[pair, "n"]))
            for pair in pairs
        ],
        columns=columns,
    )  # fmt: skip


def agreement_section(scores_by_label: Mapping[str, Sequence[np.ndarray | None]]) -> HTML:
    """The matrix of agreement between methods and, folded, the table of all pairs with intervals."""
    frame = agreements(scores_by_label)
    drawing = agreement(frame, list(scores_by_label))
    if drawing is None:
        return note("Not available: fewer than two methods explained the same instances.")
    caption = (
        "Mean over instances of the correlation between the scores of two methods; the table has the intervals. "
        "Unsigned scores, such as those of saliency, rank by magnitude and cannot fully agree with signed ones."
    )
    pairs = agreement_table(frame)
    return join_parts(
        figure(
            drawing,
            "Matrix of rank correlation and cosine between the scores of all methods",
            caption,
            numbers=frame,
        ),
        HTML(f"<details><summary>All {number(len(pairs))} pairs, with 95 % intervals</summary>"),
        table(pairs, text=["other"]),
        HTML("</details>"),
    )
