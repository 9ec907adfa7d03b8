"""Sections of the localization report. truth: (n, height, width) bool, the pixels that decide the class, or None."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from shapeline.report import experiment, findings
from shapeline.report.elements import FOLD, HTML, assign_styles, figure, fold, heading, join_parts, missing, note, table
from shapeline.report.experiment import Results, scalars
from shapeline.report.figures import localization as figures
from shapeline.report.figures.dots import draw_dots
from shapeline.report.figures.lines import tabulate_costs
from shapeline.report.formatting import number, probability, share, two_digit_interval, two_digits
from shapeline.report.sections import common
from shapeline.report.tables import tabulate_means
from shapeline.statistics import paired
from shapeline.statistics.comparison import compare


def is_quadrant_h_shap(results: Results, entry: str) -> bool:
    """Return whether a method is h-Shap on quadrants of pixels, whose leaves follow from the image's size."""
    special = {"shifts", "features"} & set(figures.parameters(results, entry))
    kind = results.settings["features"]
    return not special and (kind if isinstance(kind, str) else kind["kind"]) == "pixel"


def seconds_per_image(results: Results) -> pd.DataFrame:
    """Return the seconds per instance by method: mean, low and high; the bounds are NaN unless timed individually."""
    frames = [
        experiment.drop_failures(frame)[["repeat", "seconds"]].assign(
            method=entry, instance=experiment.find_ids(experiment.drop_failures(frame))
        )
        for entry, frame in results.scores.items()
    ]
    tidy = pd.concat(frames, ignore_index=True).rename(columns={"seconds": "value"})
    means = compare(tidy.assign(statistic="seconds", x=np.nan)).set_index("method")[["mean", "low", "high"]]
    if results.settings.get("timing") != "per_instance":
        means[["low", "high"]] = np.nan
    return means.reindex([entry for entry in results.scores if entry in means.index])


def header(results: Results, truth: np.ndarray | None, cards: HTML | None = None) -> HTML:
    """Return the top of the page: title, recommended methods, other findings, key figures."""
    regions = {}
    if truth is not None:
        with_truth = truth.any(axis=(1, 2))
        regions["images with a true region"] = number(experiment.find_ids(results.instances)[with_truth].nunique())
        regions |= {"true pixels in them": share(truth[with_truth].mean())} if with_truth.any() else {}
    return common.header(results, cards, extra=regions, sentences=sentences(results, bool(cards)))


def sentences(results: Results, advised: bool = False) -> list[str]:
    """Return the findings in sentences; advised: whether recommendations precede them."""
    card = results.dataset_card
    start = [f"The data are synthetic ({card['source']})."] * bool(card.get("synthetic"))
    start += findings.headlines(results, advised)
    frame = figures.select_measured(results)
    for statistic, text in (
        ("f1", "F1 as published (map above 1e-6)"),
        ("f1_best", "F1 at the best threshold of each image"),
        ("auprc", "AUPRC, which has no threshold"),
    ):
        rows = scalars(frame, statistic).sort_values("mean", ascending=False, kind="stable")
        if len(rows) > 1:
            first, second = rows.index[:2]
            start.append(
                f"Highest mean {text}: {first}, {two_digit_interval(rows.loc[first])}, followed by {second}, "
                f"{two_digit_interval(rows.loc[second])}."
            )
    return start


def scores_section(results: Results, truth: np.ndarray | None) -> HTML:
    """Return F1 at three thresholds, AUPRC, IoU and pointing, as dots and table, with ceilings and differences."""
    frame, drawn = figures.select_measured(results), assign_styles(results)
    if frame.empty:
        return missing("localization")
    counted = int(frame.loc[frame["statistic"] == "f1", "n"].max())
    n_images = experiment.find_ids(results.instances).nunique()
    n_left = n_images - counted
    has_controls = any(style.control for style in drawn.values())
    controls = " Controls are hollow; the dotted line is the best of them." * has_controls
    ceilings = (
        " Upper bounds of h-Shap: a bar for the F1 of all leaves that touch a true pixel, a triangle for the best set "
        "of leaves." * any((frame["statistic"] == name).any() for name in figures.CEILINGS)
    )
    return join_parts(
        figure(
            figures.dots(frame, drawn),
            "F1 in three ways, average precision, IoU and pointing game of every method with 95 % intervals",
            f"Means over images with 95 % intervals; higher is better.{ceilings}{controls}",
        ),
        table(score_table(frame, list(results.entries))),
        ceiling_table(frame, results),
        note(
            f"Computed on {number(counted)} of {number(n_images)} images"
            + (f"; the other {number(n_left)} have no true pixel of the explained class." if n_left else ".")
        ),
        fold(
            FOLD,
            note(
                "F1 as published marks every pixel above 1e-6: a map without zeros marks about half or all of the "
                "image, and the other columns compare such maps fairly. The best threshold uses the truth; equal area "
                "uses only its size. Among equally high pixels, the pointing game counts the share of true ones, so a "
                "map that is constant on a leaf scores at most the share of true pixels of that leaf."
            ),
        ),
        paired_section(results),
    )


def score_table(frame: pd.DataFrame, entries: Sequence[str]) -> pd.DataFrame:
    """Return every statistic with its interval, best published F1 on top, as text."""
    means = scalars(frame, "f1")["mean"]
    ordered = sorted((entry for entry in entries if entry in means.index), key=lambda entry: -means[entry])
    titles = {name: panel.title for name, panel in figures.PANELS.items()}
    return tabulate_means(frame, titles, ordered, two_digit_interval)


def ceiling_table(frame: pd.DataFrame, results: Results) -> HTML | None:
    """Return both ceilings of F1 by leaf size, and the F1 of the methods of that size; None without such methods."""
    touching, best = (scalars(frame, name) for name in figures.CEILINGS)
    if touching.empty:
        return None
    f1 = scalars(frame, "f1")
    sizes: dict[int, list[str]] = {}
    for entry in touching.index:
        sizes.setdefault(figures.parameters(results, entry).get("min_size", 1), []).append(entry)
    rows = [
        {
            "min_size s": number(size),
            "F1, all leaves that touch": two_digit_interval(touching.loc[entries[0]]),
            "F1, best set of leaves": two_digit_interval(best.loc[entries[0]]),
            "reached": "; ".join(f"{entry} {two_digits(f1['mean'].get(entry, math.nan))}" for entry in entries),
        }
        for size, entries in sorted(sizes.items())
    ]
    return table(pd.DataFrame(rows), "Upper bounds of F1 for the leaves of h-Shap", text=["reached"])


def paired_section(results: Results) -> HTML | None:
    """Return paired differences of the best h-Shap method (or the best of all) to every other; None without values."""
    if "localization" not in results.measured:
        return None
    parts = [heading("Paired differences per image", 4)]
    for statistic in ("f1", "f1_best"):
        frame = results.measured["localization"]
        values = paired.pivot_by_method(frame, statistic)
        if values.shape[1] < 2 or len(values) < 2:
            return None
        hierarchical = [entry for entry in figures.select_method(results, "h_shap") if entry in values]
        champion = paired.order(values[hierarchical or list(values)], "higher")[0]
        pairs = paired.pairs(values, "higher")
        rows = []
        for pair in pairs[(pairs["better"] == champion) | (pairs["worse"] == champion)].to_dict("records"):
            sign = 1 if pair["better"] == champion else -1
            ends = np.clip(sorted((sign * pair["low"], sign * pair["high"])), -1, 1)  # a difference of two shares
            difference = {"mean": sign * pair["difference"], "low": ends[0], "high": ends[1]}
            rows.append(
                {
                    "against": pair["worse" if sign > 0 else "better"],
                    "difference": two_digit_interval(difference),
                    "higher in": share(pair["wins"] if sign > 0 else 1 - pair["wins"]),
                    "p (Holm)": probability(pair["p_holm"]),
                }
            )
        title = f"{figures.PANELS[statistic].title}: {champion} − other method"
        parts.append(table(pd.DataFrame(rows), title))
    return join_parts(
        *parts,
        note(
            "Differences are paired within images, with 95 % intervals over images; Wilcoxon's signed-rank test with "
            "Holm's correction over all pairs of methods. Positive: the first method is better."
        ),
    )


def ablation_section(results: Results, truth: np.ndarray | None) -> HTML:
    """Return curves and areas of the ablation, and images without their positive features (figures 3 and F.2)."""
    frame, drawn = results.metrics.get("ablation"), assign_styles(results)
    if frame is None or frame.empty:
        return missing("ablation")
    return join_parts(
        figure(
            figures.ablation_curves(frame, drawn),
            "Logit and probability against the number of features removed, one curve a method",
            "Mean over images of the output that remains, as a share of that of the full image. Positive features are "
            "removed from the highest on; a curve is constant once all are removed. Steeper is better. Controls are "
            "grey and dashed.",
        ),
        figure(
            draw_dots(frame, drawn, figures.AREAS),
            "Mean height of the ablation curves over the logarithmic axis, with 95 % intervals",
            "Mean height of each curve over the logarithmic axis with its 95 % interval.",
        ),
        figures.draw_ablated_images(results, truth),
    )


def runtime_section(results: Results) -> HTML:
    """Return F1 against seconds per instance, as published and at the best threshold (figures 4 and C.1)."""
    frame, drawn, time = figures.select_measured(results), assign_styles(results), seconds_per_image(results)
    if frame.empty:
        return missing("localization")
    alone = time["low"].notna().any()
    devices = sorted({str(file.get("device")) for files in results.metadata.values() for file in files})
    bars = "Bars are 95 % intervals over images" + ("" if alone else " of F1 only: time is measured per batch")
    parts = []
    for statistic in ("f1", "f1_best"):
        title = figures.PANELS[statistic].title
        parts.append(
            figure(
                figures.runtime_plane(frame, time, drawn, statistic, title),
                f"{title} against seconds per instance, all methods",
                f"{title}. Upper left is better: accurate and fast. {bars}.",
                numbers=tabulate_costs(scalars(frame, statistic), seconds=time["mean"]),
            )
        )
    excluded = sorted(
        {file.get("seconds_exclude") for files in results.metadata.values() for file in files} - {None, ""}
    )
    remark = f" Excluded from the time: {'; '.join(excluded)}." if excluded else ""
    return join_parts(*parts, note(f"Device: {', '.join(devices)}.{remark}"))


def sizes_section(results: Results, truth: np.ndarray | None) -> HTML:
    """Return the effect of the minimum leaf size on map, F1 and visited nodes (figure 5)."""
    groups = figures.size_groups(results)
    if not groups:
        return note("Not available: needs two entries of h_shap that differ only in min_size.")
    parts = []
    for sizes in groups:
        parts += [
            heading(", ".join(sizes.values())) if len(groups) > 1 else None,
            figure(
                figures.size_maps(results, truth, sizes),
                "The map of one image for every smallest leaf, whole and enlarged",
                "One image, whole and enlarged around its first true region; the smallest leaf shrinks to the "
                "right. If a leaf is smaller than the region that the model needs, nodes are no longer relevant and "
                "the map is fragmented.",
                vector=False,
            ),
            figure(
                figures.size_curves(results, sizes),
                "F1 and nodes visited against the smallest leaf",
                "Means over images with 95 % intervals. Grey: the two ceilings of F1 for leaves of that size.",
            ),
        ]
    return join_parts(*parts)


def masking_section(results: Results) -> HTML:
    """Return the deletion curves of the standard report with a heading, where that metric was computed."""
    if "log_odds" not in results.metrics:
        return HTML("")
    return common.masking_section(results)
