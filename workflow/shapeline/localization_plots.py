"""Parts of the localization report: maps beside the pixels that decide, F1 and its ceilings, ablation, runtime.

The notebook calls the functions that take `results` and `truth`, a line each. truth: (n, height, width) bool in the
order of the explained instances, the pixels that decide the class explained; None where the dataset does not know them.
"""

import json
import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy import ndimage

from shapeline import claims, datasets, findings, plots, references, statistics
from shapeline.comparison_plots import two_digits
from shapeline.evidence_plots import probability
from shapeline.findings import Results, number, scalars, share
from shapeline.metrics.compare import compare
from shapeline.plots import STYLE, WIDTH, Answers, Style, figure, heading, missing, note, styles_of, table, together

GREEN = "#008a3e"  # of the boxes: in neither half of the maps' colours
COLUMNS = 7  # maps side by side: a picture of 120 pixels has about one on the page for each of its own
MARGIN = 2  # pixels between a true region and its box
LARGEST = 480  # pixels a side of a picture that are drawn: the page shows a quarter of them
PANELS = {  # quantity -> title and what is across
    "f1": ("F1, as published", "F1 of the pixels above 1e-6"),
    "f1_best": ("F1 at the best threshold", "F1"),
    "f1_equal_area": ("F1 at equal area", "F1 of as many pixels as are true"),
    "auprc": ("AUPRC", "average precision"),
    "iou_equal_area": ("IoU at equal area", "intersection over union"),
    "pointing": ("Pointing game", "share of pictures hit"),
}
CEILINGS = {"ceiling_touching": "every leaf that touches", "ceiling_best": "best set of leaves"}
OUTPUTS = {"logit": "Logit", "probability": "Probability"}
styled = matplotlib.rc_context(STYLE)


# ------------------------------------------------------------------------------------------------------ the numbers


def targets(results: Results) -> np.ndarray:
    """The class that the scores explain, for each instance, (n,): the predicted one where every method failed."""
    of = "target" if "target" in results.instances else "prediction"
    explained = results.instances.set_index("instance")[of].to_dict()
    for frame in results.scores.values():
        explained |= dict(zip(frame["instance"], frame["target"], strict=True))
    return np.array([explained[one] for one in results.instances["instance"]])


def truth_of(results: Results) -> np.ndarray | None:
    """The pixels that decide the class explained, (n, height, width) bool; None where the dataset lacks them."""
    if not results.dataset_card.get("truth"):
        return None
    return datasets.truth(results.folder, findings.ids(results.instances), targets(results))


def measured(results: Results) -> pd.DataFrame:
    """The frame of the metric localization, as `compare` made it; empty where it was not computed."""
    frame = results.metrics.get("localization")
    return pd.DataFrame(columns=["label", "quantity", "x", "mean", "low", "high", "n"]) if frame is None else frame


def between(row: Mapping) -> str:
    """'mean (low to high)' with two decimals."""
    return f"{two_digits(row['mean'])} ({two_digits(row['low'])} to {two_digits(row['high'])})"


def parameters(results: Results, label: str) -> dict:
    return dict(results.labels[label].get("parameters") or {})


def of_method(results: Results, method: str) -> list[str]:
    """The labels of a method that have scores, in their order."""
    return [label for label in results.scores if results.labels[label]["method"] == method]


def on_quadrants(results: Results, label: str) -> bool:
    """Whether a label is h-Shap on quadrants of the pixels, whose leaves are known from the size of the picture."""
    special = {"shifts", "features"} & set(parameters(results, label))
    kind = results.settings["features"]
    return not special and (kind if isinstance(kind, str) else kind["kind"]) == "pixel"


def said(frame: pd.DataFrame, name: str) -> pd.Series:
    """What a method said of each instance beside its scores, by instance (mean over repeats), where it said it."""
    fine = findings.good(frame)
    told = [json.loads(extra).get(name) if isinstance(extra, str) else None for extra in fine["extra"]]
    found = pd.Series(told, fine["instance"].to_numpy(), dtype=float).dropna()
    return found.groupby(level=0).mean()


def seconds(results: Results) -> pd.DataFrame:
    """Seconds an instance by label: mean, low and high, of which the last two are NaN unless each was timed alone."""
    frames = [
        findings.good(frame)[["repeat", "seconds"]].assign(label=label, instance=findings.ids(findings.good(frame)))
        for label, frame in results.scores.items()
    ]
    tidy = pd.concat(frames, ignore_index=True).rename(columns={"seconds": "value"})
    found = compare(tidy.assign(quantity="seconds", x=np.nan)).set_index("label")[["mean", "low", "high"]]
    if results.settings.get("timing") != "per_instance":
        found[["low", "high"]] = np.nan
    return found.reindex([label for label in results.scores if label in found.index])


def boxes_of(truth: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Boxes (top, left, bottom, right; half-open) around the connected parts of a region, corners connecting."""
    parts, _ = ndimage.label(truth, np.ones((3, 3)))
    return [(rows.start, columns.start, rows.stop, columns.stop) for rows, columns in ndimage.find_objects(parts)]


# ---------------------------------------------------------------------------------------------------------- the top


def header(results: Results, truth: np.ndarray | None, answers: Answers = ()) -> HTML:
    """The top of the page: title, which method to take, what else was found, key figures."""
    found = findings.headline(results)
    with_truth = None if truth is None else truth.any(axis=(1, 2))
    facts = {
        **({"test accuracy": share(found["accuracy"])} if found["accuracy"] is not None else {}),
        "pictures explained": number(found["instances"]),
        **(
            {"with a true region": number(findings.ids(results.instances)[with_truth].nunique())}
            if truth is not None
            else {}
        ),
        **({"true pixels in them": share(truth[with_truth].mean())} if truth is not None and with_truth.any() else {}),
        "labels compared": number(len(results.labels)),
        "features (d)": number(results.d),
        "failed rows": number(found["failures"]),
    }
    return plots.top(found["title"], answers, sentences(results), facts)


def sentences(results: Results) -> list[str]:
    """What the experiment found, in sentences made from its numbers."""
    start = [f"The data are synthetic ({results.dataset_card['source']})."] * bool(
        results.dataset_card.get("synthetic")
    )
    start += findings.headlines(results)
    frame = measured(results)
    for quantity, text in (
        ("f1", "F1 as published (map above 1e-6)"),
        ("f1_best", "F1 at the best threshold of each picture"),
        ("auprc", "AUPRC, which has no threshold"),
    ):
        rows = scalars(frame, quantity).sort_values("mean", ascending=False, kind="stable")
        if len(rows) > 1:
            first, second = rows.index[:2]
            start.append(
                f"Highest {text}: {first}, {between(rows.loc[first])}; then {second}, {between(rows.loc[second])}."
            )
    best = _best(scalars(frame, "f1"), of_method(results, "h_shap"))
    if best:
        tops = {name: scalars(frame, name)["mean"].get(best) for name in CEILINGS}
        if None not in tops.values():
            start.append(
                f"{best} reaches F1 {two_digits(scalars(frame, 'f1')['mean'][best])}; marking every leaf that touches "
                f"a true pixel would give {two_digits(tops['ceiling_touching'])}, the best set of its leaves "
                f"{two_digits(tops['ceiling_best'])}."
            )
    return start


def _best(rows: pd.DataFrame, labels: Sequence[str]) -> str | None:
    """The label with the highest mean among those named; None where none of them has one."""
    there = rows[rows.index.isin(labels)]
    return None if there.empty else there["mean"].idxmax()


def claims_section(results: Results) -> HTML:
    """The papers' claims that this experiment can judge, beside what was measured; a line where there is none."""
    found = claims.of(results)
    if found.empty:
        return note("None here: no claim on the list names this experiment and can be judged by what it measured.")
    timed = "each picture timed alone" if results.settings.get("timing") == "per_instance" else "timed in batches"
    return together(
        table(found, text=found.columns),
        note(
            "The papers' models, and their GPU, were others; 95 % intervals in brackets. Here: "
            f"{timed}, on the device named above. A claim about an order holds where the order is sure on every "
            "comparison, fails where it is surely the other way round on one, and is undecided between. "
            + claims.STAND_INS
        ),
    )


# ------------------------------------------------------------------------------------------------------------- maps


def maps_section(results: Results, truth: np.ndarray | None) -> HTML:
    """The maps of a few pictures by all labels side by side, with boxes around the true regions."""
    picked = findings.chosen(results.instances, int(results.settings.get("instances_shown") or 4))
    images, regions, cells = _shown(results, truth, picked)
    names = [findings.instance_name(results, row) for row in picked.to_dict("records")]
    values = {label: findings.scores_of(frame, picked["instance"]) for label, frame in results.scores.items()}
    tone = plots.tone_of(results.dataset_card)

    def draw(axes: Axes, row: int, label: str | None) -> None:
        if label is None:
            draw_picture(axes, images[row], tone)
        else:
            draw_map(axes, values[label][row], cells[row])
        draw_boxes(axes, regions[row])

    caption = (
        f"Red speaks for {findings.explained_class(results)}, blue against it{plots.signless(results)}. Every map is "
        "scaled by its own largest magnitude, written below it: compare places within a map, not colours between maps."
        + (" Green boxes lie around the true regions." if truth is not None else "")
        + findings.rows_shown(results)
    )
    drawing = plots.picture_grid(names, list(values), draw, COLUMNS)
    return figure(drawing, "Maps of a few pictures, one column a method", caption, vector=False)


def _shown(results: Results, truth: np.ndarray | None, picked: pd.DataFrame) -> tuple[np.ndarray, list, list]:
    """Images (n, channels, height, width), true regions (n, each (height, width) or None) and cells of the features."""
    images = results.dataset.inputs[findings.positions(results.dataset, picked)]
    places = pd.Index(results.instances["instance"]).get_indexer(picked["instance"])
    regions = [None] * len(picked) if truth is None else list(truth[places])
    return images, regions, [results.features_of(image).cells[0] for image in images]


def draw_picture(axes: Axes, image: np.ndarray, tone: str) -> None:
    """A picture (channels, height, width) in [0, 1]; of a large one every few pixels."""
    step = _step(image.shape[1:])
    shown = plots.picture(image[:, ::step, ::step])
    axes.imshow(shown, cmap=tone, vmin=0, vmax=1, interpolation="nearest", extent=_extent(image.shape[1:]))


def _step(shape: tuple[int, int]) -> int:
    return math.ceil(max(shape) / LARGEST)


def _extent(shape: tuple[int, int]) -> tuple[float, float, float, float]:
    """What imshow is told so that a reduced picture keeps the coordinates of the whole one."""
    return -0.5, shape[1] - 0.5, shape[0] - 0.5, -0.5


def reduced(values: np.ndarray) -> np.ndarray:
    """A map (height, width) of at most LARGEST cells a side: of each block the value that is farthest from 0.

    A mean, or a choice of every few pixels, would lose the single pixels that some methods mark.
    """
    rows, columns = (np.arange(0, side, _step(values.shape)) for side in values.shape)
    ends = [extreme.reduceat(extreme.reduceat(values, rows, axis=0), columns, axis=1) for extreme in (np.fmax, np.fmin)]
    return np.where(ends[0] >= -ends[1], *ends)


def draw_map(axes: Axes, scores: np.ndarray | None, cells: np.ndarray) -> None:
    """Scores (d,) on their pixels, white at 0, scaled by the largest magnitude, which is written below."""
    if scores is None:
        plots.write_failed(axes)
        return
    size = np.abs(scores).max()
    colours = {"cmap": "RdBu_r", "vmin": -(size or 1.0), "vmax": size or 1.0}
    shown = reduced(np.where(cells < 0, np.nan, scores[cells]))
    axes.imshow(shown, interpolation="nearest", extent=_extent(cells.shape), **colours)
    axes.set_xlabel(f"± {number(size)}", fontsize=7.5, color="#5f5f5f", labelpad=2)


def draw_boxes(axes: Axes, truth: np.ndarray | None) -> None:
    """A thin box around every connected part of the true region."""
    for top, left, bottom, right in [] if truth is None else boxes_of(truth):
        margin = MARGIN * _step(truth.shape)
        place = (left - 0.5 - margin, top - 0.5 - margin)
        size = right - left + 2 * margin, bottom - top + 2 * margin
        axes.add_patch(Rectangle(place, *size, fill=False, edgecolor=GREEN, linewidth=0.8))


# --------------------------------------------------------------------------------------------------------------- F1


def scores_section(results: Results, truth: np.ndarray | None) -> HTML:
    """F1 in three ways, AUPRC, IoU and pointing, as dots and as a table, with the ceilings; then paired differences."""
    frame, drawn = measured(results), styles_of(results)
    if frame.empty:
        return missing("localization")
    counted = int(frame.loc[frame["quantity"] == "f1", "n"].max())
    pictures = findings.ids(results.instances).nunique()
    left = pictures - counted
    controls = " Controls are hollow; the dotted line is the best of them." * any(one.control for one in drawn.values())
    ceilings = (
        " On the rows of h-Shap, a bar marks the F1 of all leaves that touch a true pixel, a triangle the F1 of the "
        "best set of leaves: no choice of leaves gets further."
        * any((frame["quantity"] == name).any() for name in CEILINGS)
    )
    return together(
        figure(
            dots(frame, drawn),
            "F1 in three ways, average precision, IoU and pointing game of every method with 95 % intervals",
            f"Means over pictures with 95 % bootstrap intervals; higher is better.{ceilings}{controls}",
        ),
        table(score_table(frame, list(results.labels))),
        ceiling_table(frame, results),
        note(
            f"{number(counted)} of {number(pictures)} pictures count"
            + (f"; the other {number(left)} have no true pixel of the class explained. " if left else ". ")
            + "F1 as published marks every pixel above 1e-6, so a map without zeros marks about half or all of the "
            "picture: the other columns compare such maps fairly. The best threshold knows the truth; equal area "
            "knows only how large it is. Of equally high pixels the pointing game takes the share that is true, so a "
            "map that is even on a leaf can score no more than that leaf's share of true pixels."
        ),
        paired_section(results),
    )


@styled
def dots(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """A panel a quantity, best published F1 on top; marks for the ceilings on the rows of hierarchical labels."""
    found = [name for name in PANELS if len(scalars(frame, name))]
    if not found:
        return None
    means = scalars(frame, found[0])["mean"]
    labels = sorted((one for one in styles if one in means.index), key=lambda one: -means[one])
    columns = min(3, len(found))
    rows = math.ceil(len(found) / columns)
    drawing = Figure(figsize=(WIDTH, rows * (0.9 + 0.25 * len(labels))), layout="constrained")
    panels = drawing.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(panels.flat):
        if place >= len(found):
            axes.set_visible(False)
            continue
        title, across = PANELS[found[place]]
        plots.dot_panel(axes, scalars(frame, found[place]), styles, labels, title, across, True, "")
        axes.set_xlabel(across)
        axes.set_yticks(range(len(labels)), labels if place % columns == 0 else [""] * len(labels))
        axes.set_ylim(len(labels) - 0.4, -0.6)
        if found[place].startswith("f1"):
            for name, marker in zip(CEILINGS, "|>", strict=True):
                tops = scalars(frame, name)["mean"]
                there = [label for label in labels if label in tops.index]
                axes.plot(
                    tops[there], [labels.index(label) for label in there], marker, color="#5f5f5f", markersize=7,
                    markerfacecolor="none",
                )  # fmt: skip
        axes.set_xlim(-0.03 * axes.get_xlim()[1], None)  # a mean of 0 keeps its whole marker
    return drawing


def score_table(frame: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    """Every quantity with its interval, best published F1 on top; text."""
    found = [name for name in PANELS if len(scalars(frame, name))]
    means = scalars(frame, "f1")["mean"]
    return pd.DataFrame(
        {
            "label": label,
            **{
                PANELS[name][0]: between(scalars(frame, name).loc[label])
                if label in scalars(frame, name).index
                else "–"
                for name in found
            },
        }
        for label in sorted((one for one in labels if one in means.index), key=lambda one: -means[one])
    )


def ceiling_table(frame: pd.DataFrame, results: Results) -> HTML | None:
    """Both ceilings of F1 by leaf size, beside what the labels of that size reach; None without hierarchical labels."""
    touching, best = (scalars(frame, name) for name in CEILINGS)
    if touching.empty:
        return None
    f1 = scalars(frame, "f1")
    sizes: dict[int, list[str]] = {}
    for label in touching.index:
        sizes.setdefault(parameters(results, label).get("min_size", 1), []).append(label)
    rows = [
        {
            "min_size s": number(size),
            "F1 of every leaf that touches": between(touching.loc[labels[0]]),
            "F1 of the best set of leaves": between(best.loc[labels[0]]),
            "reached": "; ".join(f"{label} {two_digits(f1['mean'].get(label, math.nan))}" for label in labels),
        }
        for size, labels in sorted(sizes.items())
    ]
    return table(pd.DataFrame(rows), "Ceilings of F1 for the leaves of h-Shap", text=["reached"])


def paired_section(results: Results) -> HTML | None:
    """The best h-Shap label (or the best of all) against every other, picture by picture; None without the numbers."""
    if "localization" not in results.measured:
        return None
    parts = [heading("Picture by picture")]
    for quantity in ("f1", "f1_best"):
        frame = results.measured["localization"]
        values = statistics.by_label(frame, quantity)
        if values.shape[1] < 2 or len(values) < 2:
            return None
        own = [label for label in of_method(results, "h_shap") if label in values]
        champion = statistics.order(values[own] if own else values, "higher")[0]
        pairs = statistics.pairs(values, "higher", draws=statistics.by_draw(frame, quantity))
        rows = []
        for pair in pairs[(pairs["better"] == champion) | (pairs["worse"] == champion)].to_dict("records"):
            sign = 1 if pair["better"] == champion else -1
            ends = sorted((sign * pair["low"], sign * pair["high"]))
            other = pair["worse" if sign > 0 else "better"]
            rows.append(
                {
                    "against": other,
                    "difference": between({"mean": sign * pair["difference"], "low": ends[0], "high": ends[1]}),
                    "higher in": share(pair["wins"] if sign > 0 else 1 - pair["wins"]),
                    "p (Holm)": probability(pair["p_holm"]),
                }
            )
        title = f"{PANELS[quantity][0]}: {champion} less each other label"
        parts.append(table(pd.DataFrame(rows), title))
    return together(
        *parts,
        note(
            "Paired: each picture is compared with itself; 95 % bootstrap intervals over pictures, Wilcoxon's "
            "signed-rank test, Holm's correction over all pairs of labels. Positive: the first label finds more."
        ),
    )


# --------------------------------------------------------------------------------------------------------- ablation


def ablation_section(results: Results, truth: np.ndarray | None) -> HTML:
    """Curves and areas of the ablation, and the pictures without their positive features (figures 3 and F.2)."""
    frame, drawn = results.metrics.get("ablation"), styles_of(results)
    if frame is None or frame.empty:
        return missing("ablation")
    return together(
        figure(
            ablation_curves(frame, drawn),
            "Logit and probability against the number of features removed, one curve a method",
            "Mean over pictures of the share that is left of the whole picture's own. Positive features are removed "
            "from the highest on; a curve is level once they are all gone. Steeper is better. Controls are grey and "
            "dashed.",
        ),
        figure(
            ablation_areas(frame, drawn),
            "Mean height of the ablation curves over the logarithmic axis, with 95 % intervals",
            "Mean height of each curve over the logarithmic axis with its 95 % interval.",
        ),
        ablated_pictures(results, truth),
    )


@styled
def ablation_curves(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """The share left of the logit and of the probability against the number of removed features, a panel each."""
    found = [name for name in OUTPUTS if frame.loc[frame["quantity"] == name, "mean"].notna().any()]
    if not found:
        return None
    drawing = Figure(figsize=(WIDTH, 4.3), layout="constrained")
    panels = drawing.subplots(1, len(found), squeeze=False)[0]
    means = scalars(frame, f"{found[0]}_area")["mean"]
    labels = sorted((one for one in styles if one in means.index), key=lambda one: means[one])
    for axes, quantity in zip(panels, found, strict=True):
        for label in labels:
            line, style = plots.line_of(frame, quantity, label), styles[label]
            if len(labels) <= plots.FEW:
                axes.fill_between(line["x"], line["low"], line["high"], color=style.colour, alpha=0.12, linewidth=0)
            axes.plot(
                line["x"], line["mean"], color=style.colour, linestyle=style.line, linewidth=style.width,
                marker=style.marker, markersize=4.5, markevery=max(1, len(line) // 8), markerfacecolor=style.face,
                label=label,
            )  # fmt: skip
        axes.set(xscale="log", title=OUTPUTS[quantity], xlabel="positive features removed (k)")
        axes.axhline(0, color="#8a8a8a", linewidth=0.8, zorder=0)
    panels[0].set_ylabel("share of the whole picture's")
    drawing.legend(
        *panels[0].get_legend_handles_labels(), loc="outside right upper", title="steepest first", alignment="left",
        handlelength=3.2, labelspacing=0.7,
    )  # fmt: skip
    return drawing


@styled
def ablation_areas(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """The areas as dots, lowest on top."""
    found = [name for name in OUTPUTS if len(scalars(frame, f"{name}_area"))]
    if not found:
        return None
    means = scalars(frame, f"{found[0]}_area")["mean"]
    labels = sorted((one for one in styles if one in means.index), key=lambda one: means[one])
    drawing = Figure(figsize=(WIDTH, 1.0 + 0.26 * len(labels)), layout="constrained")
    panels = drawing.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, found, strict=True):
        title = f"{OUTPUTS[name]}, area"
        plots.dot_panel(axes, scalars(frame, f"{name}_area"), styles, labels, title, "mean share left", False, "")
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.4, -0.6)
    return drawing


def ablated_pictures(results: Results, truth: np.ndarray | None, count: int = 2) -> HTML | None:
    """Pictures whose positive features are at the reference, a column a label (figure 3)."""
    metadata = next((files[0] for files in results.metadata.values() if files), {})
    if not results.model_card:
        return None
    picked = _with_truth(results, truth).head(count)
    reference = references.build(results.settings.get("reference", "mean"), results.dataset, metadata.get("seed", 0))
    images, regions, cells = _shown(results, truth, picked)
    fill = reference.of(images)
    values = {label: findings.scores_of(frame, picked["instance"]) for label, frame in results.scores.items()}
    tone = plots.tone_of(results.dataset_card)

    def draw(axes: Axes, row: int, label: str | None) -> None:
        image = images[row]
        if label is not None:
            scores = values[label][row]
            if scores is None:
                plots.write_failed(axes)
                return
            removed = np.append(scores > 0, False)[cells[row]]  # the appended one is what -1 points at
            image = np.where(removed, fill[row if len(fill) > 1 else 0, 0], image)
            axes.set_xlabel(share(removed.mean()), fontsize=7.5, color="#5f5f5f", labelpad=2)
        draw_picture(axes, image, tone)
        draw_boxes(axes, regions[row])

    names = [findings.instance_name(results, row) for row in picked.to_dict("records")]
    caption = (
        "All positive features at the reference; below each picture, the share of it that is removed. A perfect map "
        "removes what lies in the boxes and nothing else."
    )
    drawing = plots.picture_grid(names, list(values), draw, COLUMNS)
    return together(
        heading("Pictures without their positive features"),
        figure(drawing, "Pictures whose positive features are removed, one column a method", caption, vector=False),
    )


def _with_truth(results: Results, truth: np.ndarray | None) -> pd.DataFrame:
    """The instances shown first that have a true region, in their order; all of them where none has."""
    order = findings.chosen(results.instances, len(results.instances))
    if truth is None or not truth.any():
        return order
    having = set(results.instances["instance"][truth.any(axis=(1, 2))])
    return order[order["instance"].isin(having)]


# ---------------------------------------------------------------------------------------------------------- runtime


def runtime_section(results: Results) -> HTML:
    """F1 against seconds an instance, as published and at the best threshold (figures 4 and C.1)."""
    frame, drawn, time = measured(results), styles_of(results), seconds(results)
    if frame.empty:
        return missing("localization")
    alone = time["low"].notna().any()
    devices = sorted({str(entry.get("device")) for files in results.metadata.values() for entry in files})
    bars = "Bars are 95 % intervals over pictures" + ("" if alone else ", of F1 alone: a batch shares its seconds out")
    parts = []
    for quantity in ("f1", "f1_best"):
        title, _ = PANELS[quantity]
        parts.append(
            figure(
                runtime_plane(frame, time, drawn, quantity, title),
                f"{title} against seconds an instance, every method named",
                f"{title}. Upper left is better: accurate and fast. {bars}.",
                numbers=plots.by_cost(scalars(frame, quantity), seconds=time["mean"]),
            )
        )
    excluded = sorted({entry["seconds_exclude"] for files in results.metadata.values() for entry in files
                       if entry.get("seconds_exclude")})  # fmt: skip
    told = f" Left out of the time: {'; '.join(excluded)}." if excluded else ""
    return together(*parts, note(f"Device: {', '.join(devices)}.{told}"))


@styled
def runtime_plane(
    frame: pd.DataFrame, time: pd.DataFrame, styles: Mapping[str, Style], quantity: str, title: str
) -> Figure | None:
    """A quantity against seconds an instance on a logarithmic axis, with both intervals, every point named."""
    rows = scalars(frame, quantity)
    rows = rows.loc[[label for label in styles if label in rows.index and time["mean"].get(label, 0) > 0]]
    if rows.empty:
        return None
    drawing = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = drawing.subplots()
    across = time.loc[rows.index, "mean"].to_numpy()
    axes.set_xscale("log")
    for place, (label, row) in enumerate(rows.iterrows()):
        style, one = styles[label], time.loc[label]
        axes.plot([across[place]] * 2, [row["low"], row["high"]], color=style.colour, linewidth=1.8)
        if np.isfinite(one["low"]):
            axes.plot([one["low"], one["high"]], [row["mean"]] * 2, color=style.colour, linewidth=1.8)
        axes.plot(
            across[place], row["mean"], style.marker, color=style.colour, markerfacecolor=style.face, markersize=7.5
        )
    spans = time.loc[rows.index, ["low", "high"]].to_numpy(dtype=float)
    axes.set_xlim(np.nanmin([across, spans[:, 0]]) / 1.5, np.nanmax([across, spans[:, 1]]) * 2.5)
    axes.set_ylim(0, 1.12 * rows[["mean", "high"]].max(axis=None) or 1)
    axes.set(xlabel="seconds per picture (logarithmic)", ylabel=title)
    plots.name_points(axes, across, rows, styles, spans)
    return drawing


# --------------------------------------------------------------------------------------------------- the size of s


def size_groups(results: Results) -> list[dict[int, str]]:
    """Labels that differ in min_size alone: for each such group, size -> label, largest first."""
    groups: dict[str, dict[int, str]] = {}
    for label in of_method(results, "h_shap"):
        own = parameters(results, label)
        size = own.pop("min_size", 1)
        groups.setdefault(json.dumps(own, sort_keys=True), {}).setdefault(size, label)
    return [dict(sorted(group.items(), reverse=True)) for group in groups.values() if len(group) > 1]


def sizes_section(results: Results, truth: np.ndarray | None) -> HTML:
    """What a smaller smallest leaf does to the map, to F1, and to the nodes visited (figure 5)."""
    groups = size_groups(results)
    if not groups:
        return note("No figures here: it takes two labels of h_shap that differ in min_size alone.")
    parts = []
    for sizes in groups:
        parts += [
            heading(", ".join(sizes.values())) if len(groups) > 1 else None,
            figure(
                size_maps(results, truth, sizes),
                "The map of one picture for every smallest leaf, whole and enlarged",
                "One picture, whole and enlarged around its first true region; the smallest leaf shrinks to the "
                "right. Once a leaf is smaller than what the model needs to see, nodes stop being relevant and the "
                "map breaks up.",
                vector=False,
            ),
            figure(
                size_curves(results, sizes),
                "F1 and nodes visited against the smallest leaf",
                "Means over pictures with 95 % intervals. Grey: the two ceilings of F1 for leaves of that size.",
            ),
        ]
    return together(*parts)


def size_maps(results: Results, truth: np.ndarray | None, sizes: Mapping[int, str]) -> Figure:
    """The first picture with a true region and its maps, above an enlarged part of each."""
    picked = _with_truth(results, truth).head(1)
    images, regions, cells = _shown(results, truth, picked)
    image, region = images[0], regions[0]
    (top, bottom), (left, right) = zoomed(region if region is not None else np.ones(image.shape[1:], bool))
    names = {f"s = {size}\n({label})": label for size, label in sizes.items()}
    scores = {name: findings.scores_of(results.scores[label], picked["instance"])[0] for name, label in names.items()}
    tone = plots.tone_of(results.dataset_card)

    def draw(axes: Axes, row: int, name: str | None) -> None:
        part = (slice(top, bottom), slice(left, right)) if row else (slice(None), slice(None))
        if name is None:
            draw_picture(axes, image[(slice(None), *part)], tone)
        else:
            draw_map(axes, scores[name], cells[0][part])
        draw_boxes(axes, None if region is None else region[part])
        if row:
            axes.set_xlabel("")

    title = findings.instance_name(results, picked.to_dict("records")[0])
    return plots.picture_grid([title, "enlarged"], list(names), draw)


def zoomed(region: np.ndarray) -> tuple[tuple[int, int], tuple[int, int]]:
    """First and last row, and first and last column, of a square around the first true part, three times its size."""
    top, left, bottom, right = (boxes_of(region) or [(0, 0, *region.shape)])[0]
    size = 3 * max(bottom - top, right - left)
    ends = []
    for start, stop, side in ((top, bottom, region.shape[0]), (left, right, region.shape[1])):
        first = max(0, min((start + stop - size) // 2, side - size))  # moved in where it would leave the picture
        ends.append((first, min(side, first + size)))
    return ends[0], ends[1]


@styled
def size_curves(results: Results, sizes: Mapping[int, str]) -> Figure:
    """F1 in two ways with the ceilings, and the nodes visited, against min_size."""
    frame, labels = measured(results), list(sizes.values())
    pictures = dict(zip(results.instances["instance"], findings.ids(results.instances), strict=True))
    across = np.array(list(sizes))
    drawing = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    left, right = drawing.subplots(1, 2)
    lines = [("f1", "as published", "#0173b2", "o", "-"), ("f1_best", "best threshold", "#d55e00", "s", "-")]
    lines += [
        (name, text, "#8a8a8a", None, dash) for (name, text), dash in zip(CEILINGS.items(), (":", "--"), strict=True)
    ]
    for quantity, name, colour, marker, dash in lines:
        rows = scalars(frame, quantity).reindex(labels)
        if rows["mean"].notna().any():
            wide = 4 if quantity == "f1" else 1.5  # the two may lie on each other
            left.plot(across, rows["mean"], dash, color=colour, linewidth=wide, marker=marker, markersize=5, label=name)
            if marker:
                left.fill_between(
                    across, rows["low"].astype(float), rows["high"].astype(float), color=colour, alpha=0.15
                )
    left.set(title="F1", xlabel="min_size s (pixels)", ylim=(0, None))
    left.legend(fontsize=8.5)
    for name, get, colour, marker in (
        ("nodes visited", lambda one: said(results.scores[one], "visited_nodes"), "#0173b2", "o"),
        (
            "evaluations",
            lambda one: findings.good(results.scores[one]).set_index("instance")["evaluations"],
            "#d55e00",
            "s",
        ),
    ):
        values = [get(label).astype(float).groupby(pictures).mean() for label in labels]  # a picture counts once
        if all(len(one) for one in values):
            mean = [one.mean() for one in values]
            error = [1.96 * one.std(ddof=1) / len(one) ** 0.5 if len(one) > 1 else 0.0 for one in values]
            right.errorbar(across, mean, error, color=colour, marker=marker, markersize=5, label=name)
    right.set(title="Cost per picture", xlabel="min_size s (pixels)", yscale="log")
    right.legend(fontsize=8.5)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(across, [number(size) for size in across])
        axes.minorticks_off()
    return drawing


# -------------------------------------------------------------------------------------------------------------- rest


def masking_section(results: Results) -> HTML:
    """The masking curves of the ordinary report, heading included, where that metric was computed."""
    if "log_odds" not in results.metrics:
        return HTML("")
    return together(heading("Masking and insertion", 2), plots.masking_section(results))
