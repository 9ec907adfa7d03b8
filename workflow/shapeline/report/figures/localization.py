"""Figures of localization: measurements, true regions, maps with boxes, curves, the runtime plane."""

import json
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeline.datasets import images as regions_module
from shapeline.games import references
from shapeline.report import experiment
from shapeline.report.colours import FIRST, MIDDLE, QUIET, SECOND
from shapeline.report.elements import HTML, WIDTH, Style, figure, heading, join_parts, styled
from shapeline.report.experiment import Results, scalars
from shapeline.report.figures import score_maps
from shapeline.report.figures.dots import Panel, draw_dots
from shapeline.report.figures.lines import add_legend, curves
from shapeline.report.figures.score_maps import Tile
from shapeline.report.formatting import number, share
from shapeline.statistics.bounds import intervals

PANELS = {
    "f1": Panel("F1, as published", "F1 of the pixels above 1e-6", True),
    "f1_best": Panel("F1 at the best threshold", "F1", True),
    "f1_equal_area": Panel("F1 at equal area", "F1 of as many pixels as are true", True),
    "auprc": Panel("AUPRC", "average precision", True),
    "iou_equal_area": Panel("IoU at equal area", "intersection over union", True),
    "pointing": Panel("Pointing game", "share of images hit", True),
}


def dots(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Draw a panel per statistic, best published F1 on top, with the ceilings of hierarchical methods."""

    def finish(axes: Axes, statistic: str, entries: list[str]) -> None:
        for name, marker in zip(CEILINGS, "|>", strict=True) if statistic.startswith("f1") else ():
            tops = scalars(frame, name)["mean"]
            measured = [entry for entry in entries if entry in tops.index]
            rows = [entries.index(entry) for entry in measured]
            axes.plot(tops[measured], rows, marker, color=QUIET, markersize=7, markerfacecolor="none")
        axes.set(xlabel=PANELS[statistic].across, xlim=(-0.03 * axes.get_xlim()[1], None))  # 0 is within the axes

    return draw_dots(frame, styles, PANELS, finish=finish)


@styled
def ablation_curves(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Draw the remaining share of logit and probability against the number of removed features, a panel each."""
    panels = {
        name: (title, "positive features removed (k)", "share of the whole image's") for name, title in OUTPUTS.items()
    }
    drawing = curves(frame, styles, panels, "area", 1)
    for axes in drawing.axes if drawing else ():
        axes.set_xscale("log")
        axes.axhline(0, color=MIDDLE, linewidth=0.8, zorder=0)
    return drawing


def draw_ablated_images(results: Results, truth: np.ndarray | None, count: int = 2) -> HTML | None:
    """Return images with their positive features at the reference, a column per method (figure 3)."""
    metadata = next((files[0] for files in results.metadata.values() if files), {})
    if not results.model_card:
        return None
    picked = _select_with_truth(results, truth).head(count)
    reference = references.build(results.settings.get("reference", "mean"), results.dataset, metadata.get("seed", 0))
    images, regions, cells = prepare_images(results, truth, picked)
    fill = reference.of(images)
    values = results.select_scores(picked["instance"])
    tone = score_maps.choose_tone(results.dataset_card)

    def tile(row: int, entry: str | None) -> Tile:
        image, below = images[row], ""
        if entry is not None:
            scores = values[entry][row]
            if scores is None:
                return Tile(None)
            removed = np.append(scores > 0, False)[cells[row]]  # index -1 selects the appended value
            image = np.where(removed, fill[row if len(fill) > 1 else 0, 0], image)
            below = share(removed.mean())
        return score_maps.image_tile(image, tone)._replace(below=below, boxes=score_maps.boxes(regions[row]))

    names = results.name_instances(picked)
    caption = (
        "All positive features at the reference; below each image, the share of it that is removed. A perfect map "
        "removes what lies in the boxes and nothing else."
    )
    drawing = score_maps.image_grid(names, list(values), tile, score_maps.BOXED_COLUMNS)
    return join_parts(
        heading("Images without their positive features"),
        figure(drawing, "Images whose positive features are removed, one column per method", caption, vector=False),
    )


def _select_with_truth(results: Results, truth: np.ndarray | None) -> pd.DataFrame:
    """Return the shown instances with a true region, in order; all of them where none has one."""
    order = experiment.choose_instances(results.instances, len(results.instances))
    if truth is None or not truth.any():
        return order
    having = set(results.instances["instance"][truth.any(axis=(1, 2))])
    return order[order["instance"].isin(having)]


@styled
def runtime_plane(
    frame: pd.DataFrame, time: pd.DataFrame, styles: Mapping[str, Style], statistic: str, title: str
) -> Figure | None:
    """Draw a statistic against seconds per instance on a logarithmic axis, with both intervals, labelled."""
    rows = scalars(frame, statistic)
    rows = rows.loc[[entry for entry in styles if entry in rows.index and time["mean"].get(entry, 0) > 0]]
    if rows.empty:
        return None
    drawing = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = drawing.subplots()
    across = time.loc[rows.index, "mean"].to_numpy()
    axes.set_xscale("log")
    for index, (entry, row) in enumerate(rows.iterrows()):
        style, took = styles[entry], time.loc[entry]
        axes.plot([across[index]] * 2, [row["low"], row["high"]], color=style.colour, linewidth=1.8)
        if np.isfinite(took["low"]):
            axes.plot([took["low"], took["high"]], [row["mean"]] * 2, color=style.colour, linewidth=1.8)
        axes.plot(across[index], row["mean"], markersize=7.5, label=entry, **style.dot)
    spans = time.loc[rows.index, ["low", "high"]].to_numpy(dtype=float)
    axes.set_xlim(np.nanmin([across, spans[:, 0]]) / 1.5, np.nanmax([across, spans[:, 1]]) * 2.5)
    axes.set_ylim(0, 1.12 * rows[["mean", "high"]].max(axis=None) or 1)
    axes.set(xlabel="seconds per image (logarithmic)", ylabel=title)
    add_legend(drawing, axes, "")
    return drawing


def size_groups(results: Results) -> list[dict[int, str]]:
    """Return groups of entries that differ only in min_size: size -> entry, largest first."""
    groups: dict[str, dict[int, str]] = {}
    for entry in select_method(results, "h_shap"):
        settings = parameters(results, entry)
        size = settings.pop("min_size", 1)
        groups.setdefault(json.dumps(settings, sort_keys=True), {}).setdefault(size, entry)
    return [dict(sorted(group.items(), reverse=True)) for group in groups.values() if len(group) > 1]


def size_maps(results: Results, truth: np.ndarray | None, sizes: Mapping[int, str]) -> Figure:
    """Draw the first image with a true region and its maps, above an enlarged part of each."""
    picked = _select_with_truth(results, truth).head(1)
    images, regions, cells = prepare_images(results, truth, picked)
    image, region = images[0], regions[0]
    (top, bottom), (left, right) = zoom_to_part(region if region is not None else np.ones(image.shape[1:], bool))
    names = {f"s = {size}\n({entry})": entry for size, entry in sizes.items()}
    scores = {
        name: experiment.select_scores(results.scores[entry], picked["instance"])[0] for name, entry in names.items()
    }
    tone = score_maps.choose_tone(results.dataset_card)

    def tile(row: int, name: str | None) -> Tile:
        part = (slice(top, bottom), slice(left, right)) if row else (slice(None), slice(None))
        if name is None:
            drawn = score_maps.image_tile(image[(slice(None), *part)], tone)
        else:
            drawn = score_maps.map_tile(scores[name], cells[0][part])
        below = "" if row else drawn.below
        return drawn._replace(below=below, boxes=score_maps.boxes(None if region is None else region[part]))

    title = experiment.name_instance(results, picked.to_dict("records")[0])
    return score_maps.image_grid([title, "enlarged"], list(names), tile)


def zoom_to_part(region: np.ndarray) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return row and column bounds of a square around the first true part, three times its size."""
    top, left, bottom, right = (score_maps.find_boxes(region) or [(0, 0, *region.shape)])[0]
    size = 3 * max(bottom - top, right - left)
    ends = []
    for start, stop, side in ((top, bottom, region.shape[0]), (left, right, region.shape[1])):
        first = max(0, min((start + stop - size) // 2, side - size))  # shifted to stay within the image
        ends.append((first, min(side, first + size)))
    return ends[0], ends[1]


@styled
def size_curves(results: Results, sizes: Mapping[int, str]) -> Figure:
    """Draw F1 at both thresholds with the ceilings, and the visited nodes, against min_size."""
    frame, entries = select_measured(results), list(sizes.values())
    image_of = dict(zip(results.instances["instance"], experiment.find_ids(results.instances), strict=True))
    across = np.array(list(sizes))
    drawing = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    left, right = drawing.subplots(1, 2)
    lines = [("f1", "as published", FIRST, "o", "-"), ("f1_best", "best threshold", SECOND, "s", "-")]
    lines += [
        (name, text, MIDDLE, None, dash) for (name, text), dash in zip(CEILINGS.items(), (":", "--"), strict=True)
    ]
    for statistic, name, colour, marker, dash in lines:
        rows = scalars(frame, statistic).reindex(entries)
        if rows["mean"].notna().any():
            wide = 4 if statistic == "f1" else 1.5  # the curves may coincide
            left.plot(across, rows["mean"], dash, color=colour, linewidth=wide, marker=marker, markersize=5, label=name)
            if marker:
                low, high = rows[["low", "high"]].astype(float).to_numpy().T
                left.fill_between(across, low, high, color=colour, alpha=0.15)
    left.set(title="F1", xlabel="min_size s (pixels)", ylim=(0, None))
    left.legend(fontsize=8.5)
    frames = [results.scores[entry] for entry in entries]
    visited = [read_details(frame, "visited_nodes") for frame in frames]
    spent = [experiment.drop_failures(frame).set_index("instance")["evaluations"] for frame in frames]
    for name, counts, colour, marker in (("nodes visited", visited, FIRST, "o"), ("evaluations", spent, SECOND, "s")):
        values = [count.astype(float).groupby(image_of).mean() for count in counts]  # each image has equal weight
        if all(len(each) for each in values):
            ends = pd.concat([intervals(each.to_frame()) for each in values])
            error = np.nan_to_num([ends["mean"] - ends["low"], ends["high"] - ends["mean"]])  # none of one image
            right.errorbar(across, ends["mean"], error, color=colour, marker=marker, markersize=5, label=name)
    right.set(title="Cost per image", xlabel="min_size s (pixels)", yscale="log")
    right.legend(fontsize=8.5)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(across, [number(size) for size in across])
        axes.minorticks_off()
    return drawing


CEILINGS = {"ceiling_touching": "every leaf that touches", "ceiling_best": "best set of leaves"}
OUTPUTS = {"logit": "Logit", "probability": "Probability"}
AREAS = {f"{name}_area": Panel(f"{title}, area", "mean share remaining", False) for name, title in OUTPUTS.items()}


def targets(results: Results) -> np.ndarray:
    """Return the explained class per instance, (n,); the predicted class where every method failed."""
    of = "target" if "target" in results.instances else "prediction"
    explained = results.instances.set_index("instance")[of].to_dict()
    for frame in results.scores.values():
        explained |= dict(zip(frame["instance"], frame["target"], strict=True))
    return np.array([explained[instance] for instance in results.instances["instance"]])


def read_truth(results: Results) -> np.ndarray | None:
    """Return the pixels that decide the explained class, (n, height, width) bool; None where the dataset has none."""
    if not results.dataset_card.get("truth"):
        return None
    return regions_module.truth(results.folder, experiment.find_ids(results.instances), targets(results))


def select_measured(results: Results) -> pd.DataFrame:
    """Return the comparison by the metric localization; empty where it was not computed."""
    frame = results.metrics.get("localization")
    return pd.DataFrame(columns=["method", "statistic", "x", "mean", "low", "high", "n"]) if frame is None else frame


def parameters(results: Results, entry: str) -> dict:
    return dict(results.entries[entry].get("parameters") or {})


def select_method(results: Results, method: str) -> list[str]:
    """Return the entries of a method that have scores, in their order."""
    return [entry for entry in results.scores if results.entries[entry]["method"] == method]


def read_details(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return a value of the scores' details by instance (mean over repeats), where present."""
    fine = experiment.drop_failures(frame)
    numbers = [json.loads(details).get(name) if isinstance(details, str) else None for details in fine["details"]]
    values = pd.Series(numbers, fine["instance"].to_numpy(), dtype=float).dropna()
    return values.groupby(level=0).mean()


def prepare_images(results: Results, truth: np.ndarray | None, picked: pd.DataFrame) -> tuple[np.ndarray, list, list]:
    """Return images (n, channels, height, width), true regions (n, each (height, width) or None) and cells."""
    images = results.read_inputs(picked)
    indices = pd.Index(results.instances["instance"]).get_indexer(picked["instance"])
    regions = [None] * len(picked) if truth is None else list(truth[indices])
    return images, regions, [results.features_of(image).cells[0] for image in images]
