"""Agreement between methods, masked and kept context, and ground-truth words."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline.metrics.error import correlate, cosine, rank_means
from shapeline.report import elements
from shapeline.report.colours import FAINT, PAPER
from shapeline.report.elements import HTML, SIGNS, WIDTH, Style, figure, fold, heading, join_parts, note, styled, table
from shapeline.report.experiment import Results, scalars
from shapeline.report.figures import dots
from shapeline.report.findings import difference
from shapeline.report.formatting import interval, number, two_digit_interval, two_digits
from shapeline.statistics.comparison import compare

CONTROLS = "Controls are grey with hollow markers; the dotted line is the best of them."


def agreements(scores_by_entry: Mapping[str, Sequence[np.ndarray | None]]) -> pd.DataFrame:
    """Return rank correlation and cosine per pair of methods; scores_by_entry: method -> arrays (d,) or None."""
    entries = list(scores_by_entry)
    first, second = np.triu_indices(len(entries), 1)
    by_quantity: dict[str, list[np.ndarray]] = {"rank correlation": [], "cosine": []}
    for rows in zip(*scores_by_entry.values(), strict=True):
        d = max((len(row) for row in rows if row is not None), default=1)
        values = np.stack([np.full(d, np.nan) if row is None else np.asarray(row, float) for row in rows])
        ranks = rank_means(values)  # NaN rows remain NaN
        by_quantity["rank correlation"].append(correlate(ranks[first], ranks[second]))
        by_quantity["cosine"].append(cosine(values[first], values[second]))
    columns = ["method", "other", "statistic", "mean", "low", "high", "n"]
    count = len(by_quantity["cosine"])
    if not count or not len(first):
        return pd.DataFrame(columns=columns)
    # One frame per statistic; a frame per instance would be slow for thousands of instances.
    indices, pairs = np.repeat(np.arange(count), len(first)), np.tile(np.arange(len(first)), count)
    long = [
        pd.DataFrame({"instance": indices, "statistic": statistic, "method": pairs, "value": np.concatenate(values)})
        for statistic, values in by_quantity.items()
    ]
    table = compare(pd.concat(long, ignore_index=True).assign(repeat=0, x=np.nan))
    pair = table["method"].astype(int).to_numpy()
    named = {"method": np.array(entries)[first[pair]], "other": np.array(entries)[second[pair]]}
    return table.assign(**named)[columns]


@styled
def agreement(frame: pd.DataFrame, entries: Sequence[str]) -> Figure | None:
    """Draw mean rank correlation (below the diagonal) and cosine (above it) between methods; frame: of `agreements`."""
    present = [entry for entry in entries if entry in {*frame["method"], *frame["other"]}]
    if len(present) < 2:
        return None
    index = {entry: at for at, entry in enumerate(present)}
    values = np.full((len(present), len(present)), np.nan)
    for row in frame[frame["method"].isin(present) & frame["other"].isin(present)].to_dict("records"):
        low, high = sorted((index[row["method"]], index[row["other"]]))
        values[(high, low) if row["statistic"] == "rank correlation" else (low, high)] = row["mean"]
    side = min(0.62, (WIDTH - 3.6) / len(present))
    drawing = Figure(figsize=(min(WIDTH, 3.6 + side * len(present)), 1.9 + 0.75 * side * len(present)))
    drawing.set_layout_engine("constrained")
    axes = drawing.subplots()
    shades = axes.imshow(values, cmap=SIGNS, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    texts = {place: two_digits(value) for place, value in np.ndenumerate(values) if np.isfinite(value)}
    elements.write_cells(axes, shades, texts, 8.5 if side > 0.5 else 8)
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
    """Return every pair of methods with both means and intervals, the most similar first, as text."""
    indexed = frame.set_index(["method", "other"])
    rank, cosine = (indexed[indexed["statistic"] == name] for name in ("rank correlation", "cosine"))
    ranked = rank.sort_values("mean", ascending=False, kind="stable").index
    rows = []
    for pair in [*ranked, *cosine.index.difference(rank.index, sort=False)]:
        means = [two_digit_interval(part.loc[pair]) if pair in part.index else "–" for part in (rank, cosine)]
        rows.append((*pair, *means, number((rank if pair in rank.index else cosine).loc[pair, "n"])))
    return pd.DataFrame(rows, columns=["method", "other method", "rank correlation", "cosine", "instances"])


def agreement_section(scores_by_entry: Mapping[str, Sequence[np.ndarray | None]]) -> HTML:
    """Return the matrix of agreement between methods and, folded, the table of all pairs with intervals."""
    frame = agreements(scores_by_entry)
    drawing = agreement(frame, list(scores_by_entry))
    if drawing is None:
        return note("Not available: no two methods have scores of the same instances that differ between features.")
    caption = (
        "Mean over instances of the correlation between the scores of two methods; the table has the intervals. "
        "Unsigned scores, such as those of saliency, rank by magnitude and cannot fully agree with signed ones."
    )
    pairs = agreement_table(frame)
    return join_parts(
        figure(
            drawing, "Matrix of rank correlation and cosine between the scores of all methods", caption, numbers=frame
        ),
        fold("Table of pairs, with 95 % intervals", table(pairs, text=["other method"])),
    )


def context_pairs(entries: Mapping[str, Mapping]) -> list[tuple[str, str]]:
    """Return pairs (context masked, context kept) of entries that differ only in this."""
    kinds: dict[tuple, dict[str, str]] = {}
    for entry, settings in entries.items():
        parameters = dict(settings.get("parameters") or {})
        context = parameters.pop("context", "absent")
        key = (settings["method"], repr(sorted(parameters.items())))
        kinds.setdefault(key, {}).setdefault(context, entry)
    return [(pair["absent"], pair["present"]) for pair in kinds.values() if len(pair) == 2]


def context_section(
    results: Results, scores_by_entry: Mapping[str, Sequence[np.ndarray | None]], pairs: Iterable[tuple[str, str]]
) -> HTML:
    """Return per pair deletion AUC with context masked minus kept, paired over instances, and rank correlations."""
    rows, means = [], scalars(results.metrics.get("log_odds"), "deletion_auc")["mean"]
    for pair in pairs:
        change = difference(results, "log_odds", "deletion_auc", *pair)
        if change is None:
            continue
        alike = scalars(agreements({entry: scores_by_entry[entry] for entry in pair}), "rank correlation")
        better = "kept" if change["low"] > 0 else "masked" if change["high"] < 0 else "not significantly different"
        rows.append(
            {
                "context masked": pair[0],
                "context kept": pair[1],
                "deletion AUC (nats)": ", ".join(number(means.get(entry), whole=False) for entry in pair),
                "masked − kept (nats)": interval(change),
                "lower (better)": better,
                "rank correlation": two_digit_interval(alike.iloc[0]) if len(alike) else "–",
            }
        )
    if not rows:
        return note("No method was run with both masked and kept context.")
    return join_parts(
        table(pd.DataFrame(rows), text=["context kept", "lower (better)"]),
        note(
            "Features outside the window of a method are masked (set to the baseline) or kept. Differences are paired "
            "within instances, with 95 % intervals over instances."
        ),
    )


def ground_truth_f1(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Draw F1 of the top k words against the k ground-truth ones, best method on top; frame: of `compare`."""
    across = "F1 of the top k words, k = number of ground-truth words"
    panel = dots.Panel("Ground-truth words found", across, True)
    return dots.draw_dots(frame, styles, {"f1": panel}, finish=lambda axes, *_: axes.set_xlim(0, 1.02))


def ground_truth_section(frame: pd.DataFrame | None, styles: Mapping[str, Style], explained: int) -> HTML:
    """Return the F1 of every method as figure and table; explained: number of explained documents."""
    if frame is None:
        return elements.missing("ground_truth_words")
    drawing = ground_truth_f1(frame, styles)
    if drawing is None:
        return note("Not available: the model misclassifies all documents, or none has a ground-truth word.")
    rows = scalars(frame, "f1").sort_values("mean", ascending=False, kind="stable")
    shown = pd.DataFrame(
        {
            "method": entry,
            "F1 (higher is better)": two_digit_interval(row),
            "control": "yes" if styles[entry].control else "",
            "documents": number(row["n"]),
        }
        for entry, row in rows.iterrows()
        if entry in styles
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


MAX_COMPARED = 2_000  # instances for an agreement to two digits


def comparisons(results: Results) -> HTML:
    """Return the agreement of methods, the effect of context where run both ways, and ground-truth words."""
    ids = results.instances["instance"]
    sample = ids.iloc[np.linspace(0, len(ids) - 1, min(len(ids), MAX_COMPARED)).astype(int)]
    scores = results.select_scores(sample)
    parts = [heading("Agreement between methods"), agreement_section(scores)]
    if len(sample) < len(ids):
        parts.append(note(f"Computed on {number(len(sample))} of {number(len(ids))} instances, evenly spaced."))
    pairs = context_pairs(results.entries)
    if pairs and "log_odds" in results.measured:
        parts += [heading("Context masked or kept"), context_section(results, scores, pairs)]
    if "ground_truth_words" in results.metrics:
        parts += [
            heading("Ground-truth words"),
            ground_truth_section(results.metrics["ground_truth_words"], elements.assign_styles(results), len(ids)),
        ]
    return join_parts(*parts)
