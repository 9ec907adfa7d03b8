"""Sanity checks of a report: sensitivity to the baseline, and to the randomisation of the model."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline.report import elements
from shapeline.report.colours import QUIET
from shapeline.report.criteria import name_reference
from shapeline.report.elements import FOLD, HTML, WIDTH, Style, figure, fold, heading, join_parts, note, styled, table
from shapeline.report.experiment import Results, scalars
from shapeline.report.figures.dots import name_rows
from shapeline.report.formatting import number, two_digit_interval, two_digits
from shapeline.statistics import paired

STATISTIC = "deletion_auc"
PANELS = {
    "rank_correlation": "Rank correlation",
    "rank_correlation_absolute": "Rank correlation of magnitudes",
    "ssim": "Structural similarity of maps",
}
MIN_IDENTICAL = 0.999  # a rank correlation above this means identical scores


def sections(results: Results) -> HTML:
    """Return both checks; empty where neither was measured."""
    areas = reference_areas(results)
    frame = results.metrics.get("randomisation")
    drawn = elements.assign_styles(results)
    parts = []
    if areas.shape[1] > 1:
        parts += [heading("Sensitivity to the baseline"), reference_section(areas, drawn)]
    if frame is not None:
        parts += [heading("Sensitivity to the model (randomisation test)"), randomisation_section(frame, drawn)]
    return join_parts(*parts)


# ------------------------------------------------------------------------------------------------------ references


def reference_areas(results: Results) -> pd.DataFrame:
    """Return the mean deletion AUC (nats) per method (rows) and baseline, that of the experiment first."""
    frame = results.metrics.get("log_odds")
    own = name_reference(results)
    columns = {f"{own} (own)": scalars(frame, STATISTIC)["mean"]}
    names = [] if frame is None else frame["statistic"].unique()
    for statistic in names:
        if statistic.startswith(f"{STATISTIC}_"):
            columns[statistic.removeprefix(f"{STATISTIC}_")] = scalars(frame, statistic)["mean"]
    return pd.DataFrame(columns).reindex([entry for entry in results.entries if entry in columns[f"{own} (own)"].index])


def reference_section(areas: pd.DataFrame, styles: Mapping[str, Style]) -> HTML:
    """Return ranks of the methods by deletion AUC per baseline, as figure and table, and their agreement."""
    known = areas.dropna()
    ranks = known.rank(method="first").astype(int).sort_values(known.columns[0])
    shown = pd.DataFrame(
        {"method": entry, **{name: f"{row[name]} ({number(known.loc[entry, name], whole=False)})" for name in ranks}}
        for entry, row in ranks.iterrows()
    )
    leads = {name: known[name].idxmin() for name in known}
    agreement = two_digits(paired.kendall_w(known.to_numpy().T))
    finding = f"{_leaders(leads)} Kendall's W = {agreement} over {len(known)} methods and "
    return join_parts(
        figure(
            rank_lines(ranks, styles),
            "Rank of every method by deletion AUC, one column per baseline",
            "Rank by mean deletion AUC (1 is lowest, best) of the same scores, evaluated with other baselines. "
            "Controls are grey and dashed.",
            numbers=areas.rename_axis("method").reset_index(),
        ),
        table(shown, "Rank (deletion AUC, nats)"),
        note(
            f"{finding}{known.shape[1]} baselines (1: identical rankings, 0: no agreement). Methods with overlapping "
            "intervals may change ranks by chance. The scores use the baseline of the experiment; only the evaluation "
            "changes."
        ),
    )


def _leaders(leads: Mapping[str, str]) -> str:
    """Return whether the best mean changes with the baseline; leads: the method with the lowest AUC per baseline."""
    (own, first), *others = leads.items()
    changed = [f"{entry} with {name}" for name, entry in others if entry != first]
    if not changed:
        return f"{first} has the best mean with every baseline."
    return f"⚠ The best mean changes with the baseline: {first} with {own}, {', '.join(changed)}."


@styled
def rank_lines(ranks: pd.DataFrame, styles: Mapping[str, Style]) -> Figure:
    """Draw a line per method through its ranks; ranks: (methods, references) integers from 1."""
    drawing = Figure(figsize=(0.8 * WIDTH, 1.0 + 0.27 * len(ranks)), layout="constrained")
    axes = drawing.subplots()
    across = np.arange(ranks.shape[1])
    for entry, row in ranks.iterrows():
        style = styles[entry]
        axes.plot(
            across, row, linestyle=style.line, color=style.colour, linewidth=style.width, marker=style.marker,
            markerfacecolor=style.face, markersize=6.5, clip_on=False,
        )  # fmt: skip
        end = {"xytext": (9, 0), "textcoords": "offset points", "va": "center", "fontsize": 9, "annotation_clip": False}
        axes.annotate(entry, (across[-1], row.iloc[-1]), color=style.ink, **end)
    axes.set_xticks(across, ranks.columns)
    axes.set_yticks(range(1, len(ranks) + 1))
    axes.set_ylim(len(ranks) + 0.4, 0.6)
    axes.set(xlabel="baseline", ylabel="rank")
    axes.grid(axis="y", visible=False)
    axes.tick_params(length=0)
    return drawing


# -------------------------------------------------------------------------------------------------- randomisation


def randomisation_section(frame: pd.DataFrame, styles: Mapping[str, Style]) -> HTML:
    """Return the similarity of the scores of trained and randomised models, as figure and table."""
    drawing = randomisation(frame, styles)
    if drawing is None:
        return note("Not available: every method failed on the randomised models, or has constant scores.")
    most = frame["x"].max()
    rows = frame[frame["x"] == most]
    by = {statistic: scalars(rows, statistic) for statistic in PANELS if (rows["statistic"] == statistic).any()}
    entries = _order_by_similarity(rows, styles)
    shown = pd.DataFrame(
        {
            "method": entry,
            **{
                PANELS[statistic].lower(): two_digit_interval(means.loc[entry]) if entry in means.index else "–"
                for statistic, means in by.items()
            },
            "instances": number(max(means["n"].get(entry, 0) for means in by.values())),
        }
        for entry in entries
    )
    alike = by["rank_correlation"]["mean"] if "rank_correlation" in by else pd.Series(dtype=float)
    blind = [entry for entry in entries if alike.get(entry, 0) > MIN_IDENTICAL]
    remarks = f" {', '.join(blind)}: scores do not depend on the model." if blind else ""
    silent = [entry for entry in styles if entry not in entries]
    if silent:
        remarks += f" {', '.join(silent)}: not compared; failed or constant on every instance."
    return join_parts(
        figure(
            drawing,
            "Similarity of the scores of trained and randomised models, one panel per measure",
            "Mean over instances with 95 % intervals. 0: unrelated to the scores of the trained model; 1: identical. "
            "Solid: most layers randomised, paler: fewer.",
        ),
        table(shown, f"{_layers(most)} randomised"),
        note(
            "The last layers of the model, or all, are randomised (Adebayo et al. 2018), and the same class is "
            "explained with the same sampled coalitions. Scores that stay similar do not depend on what the model "
            "learnt." + remarks
        ),
        fold(
            FOLD,
            note(
                "The intervals are over instances, for one randomisation of the weights. A map that is 0 almost "
                "everywhere has a high structural similarity to any other such map."
            ),
        ),
    )


@styled
def randomisation(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Return the similarity to the scores of the trained model: a panel per measure, a row per method."""
    quantities = [name for name in PANELS if (frame["statistic"] == name).any()]
    if not quantities:
        return None
    depths = sorted(frame["x"].unique())
    entries = _order_by_similarity(frame[frame["x"] == depths[-1]], styles)
    drawing = Figure(figsize=(WIDTH, 1.1 + (0.2 + 0.09 * len(depths)) * len(entries)), layout="constrained")
    panels = drawing.subplots(1, len(quantities), sharey=True, squeeze=False)[0]
    offsets = np.linspace(0.26, -0.26, len(depths)) if len(depths) > 1 else [0.0]
    for axes, statistic in zip(panels, quantities, strict=True):
        for depth, offset, strength in zip(depths, offsets, np.linspace(0.35, 1, len(depths) + 1)[1:], strict=True):
            rows = scalars(frame[frame["x"] == depth], statistic)
            for index, entry in enumerate(entries):
                if entry in rows.index:
                    row, style = rows.loc[entry], styles[entry]
                    at = index + offset
                    drawn = {"color": style.colour, "alpha": strength}
                    axes.plot([row["low"], row["high"]], [at, at], linewidth=2, solid_capstyle="butt", **drawn)
                    axes.plot(row["mean"], at, style.marker, markerfacecolor=style.face, markersize=5.5, **drawn)
        axes.axvline(0, color=QUIET, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
        axes.set(title=PANELS[statistic], xlabel="with the trained model's scores")
        axes.set_xlim(min(-0.25, axes.get_xlim()[0]), 1.05)
        axes.grid(axis="y", linewidth=0.4)
        axes.tick_params(axis="y", length=0)
    if len(depths) > 1:
        panels[0].set_ylabel(f"from bottom to top: {', '.join(_layers(depth) for depth in depths)}", fontsize=8.5)
    name_rows(panels[0], entries)
    return drawing


def _order_by_similarity(rows: pd.DataFrame, styles: Mapping[str, Style]) -> list[str]:
    means, present = scalars(rows, "rank_correlation")["mean"], set(rows["method"])
    return sorted((entry for entry in styles if entry in present), key=lambda entry: abs(means.get(entry, np.inf)))


def _layers(count: float) -> str:
    return f"{number(count)} layer{'' if count == 1 else 's'}"
