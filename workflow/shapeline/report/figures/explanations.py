"""Figures of explanations in the conventions of shap: of one instance, of many, over images and words."""

import html
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from shapeline.errors import format_count
from shapeline.report.colours import AGAINST, EXACT, FOR, INK, LEVELS, MIDDLE, NAMES, PALE, PALETTES, signs, tint
from shapeline.report.elements import (
    HTML,
    MARKERS,
    SIGNS,
    WIDTH,
    escape_formulas,
    name_features,
    name_rows,
    shorten,
    style_names,
    write_cells,
)
from shapeline.report.figures.score_maps import NARROWEST, scale_tones
from shapeline.report.formatting import format_evaluations, number
from shapeline.statistics.bounds import moments, t_quantile

MAX_BARS = 14  # features with their own bar
MAX_VECTOR_DOTS = 500  # more dots are rasterised in an SVG
IMAGE_INCHES = 2.3  # side of an image
MAX_CLUSTERED = 2_000  # instances; more are sorted by the model's values
MAX_CATEGORIES = 24  # ticks of a dependence plot
MAX_OPACITY = 0.85  # of the largest score
MAX_TITLE = 110  # characters


@style_names
def bars(
    names: Sequence[str],
    scores: np.ndarray,
    half: np.ndarray | None,
    ends: tuple[float, float],
    title: str,
    across: str,
    most: int = MAX_BARS,
) -> Figure:
    """Return a bar per feature of one instance, the largest on top, with its 95 % interval; the rest summed below."""
    names, scores, half = _select_largest(names, scores, half, most)
    drawing, axes = _open_rows(names, title, across)
    axes.barh(range(len(names)), scores, color=_colour_signs(scores), height=0.72)
    _draw_intervals(axes, scores, half, np.arange(len(names)))
    axes.axvline(0, color=INK, linewidth=0.8)
    return drawing


@style_names
def waterfall(
    names: Sequence[str],
    scores: np.ndarray,
    half: np.ndarray | None,
    ends: tuple[float, float],
    title: str,
    across: str,
    most: int = MAX_BARS,
) -> Figure:
    """Return the waterfall of one instance; where the method is not efficient the last gap is the efficiency gap."""
    names, scores, half = _select_largest(names, scores, half, most)
    across = f"{across.replace('score', 'value')}; dashed: base value {number(ends[0])}, whole input {number(ends[1])}"
    drawing, axes = _open_rows(names, title, across)
    stop = ends[0] + np.cumsum(scores[::-1])[::-1]
    axes.barh(range(len(names)), scores, left=stop - scores, color=_colour_signs(scores), height=0.72)
    _draw_intervals(axes, stop, half, np.arange(len(names)))
    right = np.maximum(stop + (0 if half is None else np.nan_to_num(half)), stop - scores)
    for index, (edge, score) in enumerate(zip(right, scores, strict=True)):
        text = ("+" if score > 0 else "") + number(score, whole=False)
        axes.annotate(text, (edge, index), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    for end in ends:
        axes.axvline(end, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
    axes.margins(x=0.12)
    return drawing


@style_names
def summary(
    names: Sequence[str],
    scores: np.ndarray,
    shades: np.ndarray | None,
    across: str,
    numbers: np.ndarray | None = None,
    most: int = MAX_BARS,
) -> Figure:
    """Return the mean |score| per feature with its interval, and a dot per instance; shades (n, d): ranks of values."""
    shown = slice(0, most)
    names, scores = names[shown], scores[:, shown]
    rows = np.arange(len(names))
    drawing = Figure(figsize=(WIDTH, 1.0 + 0.32 * len(names)), layout="constrained")
    left, right = drawing.subplots(1, 2, sharey=True, width_ratios=[1, 1.6])
    draw_means(left, names, mean_sizes(scores, numbers), across)
    left.set(title="Mean over instances")
    heights = rows + np.stack([_spread_dots(column) for column in scores.T], axis=1)
    grey = np.full(scores.shape, np.nan) if shades is None else shades[:, shown]
    high = np.nan_to_num(grey)[..., None]
    blended = np.array(to_rgb(AGAINST)) * (1 - high) + np.array(to_rgb(FOR)) * high
    colours = np.where(np.isnan(grey)[..., None], to_rgb(MIDDLE), blended)
    dots = {"s": 9, "linewidths": 0, "rasterized": scores.size > MAX_VECTOR_DOTS}
    right.scatter(scores.ravel(), heights.ravel(), c=colours.reshape(-1, 3), **dots)
    right.axvline(0, color=INK, linewidth=0.8)
    legend = f"; {NAMES['for']}: high feature value, {NAMES['against']}: low" if shades is not None else ""
    legend += ", grey: category or missing" * bool(legend and np.isnan(grey).any())
    right.set(xlabel=f"{across}{legend}", title=_describe_dots(scores, numbers))
    right.tick_params(axis="y", length=0)
    right.grid(axis="y", visible=False)
    return drawing


@style_names
def importance(names: Sequence[str], scores: np.ndarray, across: str, most: int = MAX_BARS) -> Figure:
    """Return the mean |score| of features, largest first, with 95 % intervals over instances; scores: (n, d)."""
    names, scores = names[:most], np.abs(scores[:, :most])
    drawing = Figure(figsize=(0.72 * WIDTH, 1.0 + 0.3 * len(names)), layout="constrained")
    draw_means(drawing.subplots(), names, scores, across)
    return drawing


def mean_sizes(scores: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
    """Return |scores| (n, d) as means per instance; numbers (n,): the instance of each row, None for one row each."""
    sizes = np.abs(scores)
    if numbers is None or len(np.unique(numbers)) == len(sizes):
        return sizes
    return pd.DataFrame(sizes).groupby(np.asarray(numbers)).mean().to_numpy()


def _describe_dots(scores: np.ndarray, numbers: np.ndarray | None) -> str:
    several = numbers is not None and len(np.unique(numbers)) < len(scores)
    return "One dot per instance" + " and class" * several


def draw_means(axes: Axes, names: Sequence[str], sizes: np.ndarray, across: str) -> None:
    """Draw the means of sizes (n, d), a row per feature, with 95 % intervals over instances."""
    rows = np.arange(len(names))
    means, low, high = mean_intervals(sizes)
    ends = [means - low, high - means]
    axes.barh(rows, means, color=MIDDLE, height=0.62)
    axes.errorbar(means, rows, xerr=ends, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    axes.set(xlabel=f"mean |{across.partition(' ')[0]}|")
    name_features(axes, names)


@style_names
def heat_map(
    names: Sequence[str],
    scores: np.ndarray,
    half: np.ndarray | None,
    values: np.ndarray,
    across: str,
    numbers: np.ndarray | None = None,
    most: int = MAX_BARS,
) -> Figure:
    """Return a matrix of features by clustered instances below the model's values (n,); half: intervals."""
    sizes = mean_sizes(scores[:, :most], numbers)
    names, scores = names[:most], np.nan_to_num(scores[:, :most])
    significant = scores if half is None else np.where(np.abs(scores) > np.nan_to_num(half[:, :most]), scores, 0.0)
    order = _order_instances(scores, values)
    drawing = Figure(figsize=(WIDTH, 2.0 + 0.3 * len(names)), layout="constrained")
    grid = drawing.add_gridspec(2, 2, height_ratios=[1, max(2, 0.45 * len(names))], width_ratios=[5, 1])
    matrix, top = drawing.add_subplot(grid[1, 0]), drawing.add_subplot(grid[0, 0])
    limit = float(np.percentile(np.abs(scores), 99)) or float(np.abs(scores).max(initial=0.0)) or 1.0
    look = {"cmap": SIGNS, "aspect": "auto", "interpolation": "nearest"}
    drawn = matrix.imshow(significant[order].T, vmin=-limit, vmax=limit, **look)
    matrix.set_yticks(range(len(names)), [shorten(name) for name in names])
    note = "" if half is None else "; without colour: the 95 % interval includes 0"
    noun = "instances" if len(sizes) == len(scores) else "instances and classes"
    columns = f"{number(len(scores))} {noun}, similar explanations beside each other"
    matrix.set(xlabel=f"{columns if len(scores) > 1 else 'one instance'}{note}", xticks=[])
    matrix.grid(False)
    matrix.tick_params(length=0)
    top.plot(np.arange(len(order)), values[order], color=INK, linewidth=1, marker="." if len(order) == 1 else "")
    top.set(ylabel="value", xlim=matrix.get_xlim(), xticks=[])
    means_axes = drawing.add_subplot(grid[1, 1], sharey=matrix)
    draw_means(means_axes, names, sizes, across)
    means_axes.tick_params(labelleft=False)
    drawing.colorbar(drawn, ax=means_axes, label=across, fraction=0.3)
    return drawing


def _order_instances(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return positions of instances with similar explanations beside each other."""
    if not 2 < len(scores) <= MAX_CLUSTERED:
        return np.argsort(values, kind="stable")
    from scipy.cluster import hierarchy

    return hierarchy.leaves_list(hierarchy.linkage(scores, "average", optimal_ordering=len(scores) <= 500))


@style_names
def dependence(
    name: str,
    values: pd.Series,
    scores: np.ndarray,
    half: np.ndarray | None,
    across: str,
    numbers: np.ndarray | None = None,
) -> Figure:
    """Return the scores (n,) of a feature against its values (n,), with 95 % intervals half (n,) where known."""
    drawing = Figure(figsize=(0.62 * WIDTH, 4.2), layout="constrained")
    axes = drawing.subplots()
    indices, unit = _place_values(axes, values)
    if half is not None:
        axes.errorbar(indices, scores, yerr=np.nan_to_num(half), fmt="none", ecolor=PALE, elinewidth=1, zorder=1)
    axes.scatter(indices, scores, s=16, color=FOR, linewidths=0, zorder=2)
    axes.axhline(0, color=INK, linewidth=0.8)
    missing = int(np.isnan(indices).sum())
    remark = f" ({format_count(missing, 'missing value')} not shown)" if missing else ""
    axes.set(xlabel=f"{shorten(name)}{unit}{remark}", ylabel=across)
    axes.set_title(_describe_dots(scores, numbers) + (", with its 95 % interval" if half is not None else ""))
    return drawing


def _place_values(axes: Axes, values: pd.Series) -> tuple[np.ndarray, str]:
    """Return an x position per instance, NaN where a number or date is missing, and the unit of the axis."""
    if pd.api.types.is_datetime64_any_dtype(values):
        axes.xaxis_date()
        axes.tick_params(axis="x", rotation=30)
        return date2num(pd.to_datetime(values).dt.tz_localize(None).to_numpy("datetime64[us]")), ""
    if pd.api.types.is_timedelta64_dtype(values):
        return (values / pd.Timedelta(days=1)).to_numpy(float), " (days)"
    is_real = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values)
    if is_real and not pd.api.types.is_bool_dtype(values):
        return values.astype(float).to_numpy(), ""
    return _place_categories(axes, values), ""


def _place_categories(axes: Axes, values: pd.Series) -> np.ndarray:
    """Return an x position per instance, jittered around its category's position, and label the axis."""
    cells = zip(values, values.isna(), strict=True)
    words = pd.Series(["missing" if is_missing else str(value) for value, is_missing in cells])
    ranks = values.cat.codes if isinstance(values.dtype, pd.CategoricalDtype) else np.zeros(len(values))
    ranks = dict(zip(words, np.where(values.isna(), np.inf, ranks), strict=True))
    names = sorted(ranks, key=lambda word: (ranks[word], word))  # categories keep their order, such as low, high
    shown = names if len(names) <= MAX_CATEGORIES else names[:: -(-len(names) // MAX_CATEGORIES)]
    axes.set_xticks(
        [names.index(name) for name in shown],
        escape_formulas([shorten(word) for word in shown]),
        rotation=30 if len(shown) > 6 else 0,
    )
    axes.set_xlim(-0.5, len(names) - 0.5)  # the label of a category stays, also where its few dots are beside it
    codes = pd.Categorical(words, names).codes
    turn = pd.Series(codes).groupby(codes).cumcount().to_numpy()
    return codes + 0.3 * ((turn * 0.618034) % 1 - 0.5)


@style_names
def cohorts(names: Sequence[str], groups: Mapping[str, np.ndarray], across: str, most: int = MAX_BARS) -> Figure:
    """Return the mean |score| of each feature with 95 % intervals in groups: name -> scores (n of the group, d)."""
    names = names[:most]
    colours, step = PALETTES["colorblind"], 0.8 / len(groups)
    drawing = Figure(figsize=(0.8 * WIDTH, 1.2 + 0.18 * len(names) * (len(groups) + 1)), layout="constrained")
    axes = drawing.subplots()
    for index, (name, scores) in enumerate(groups.items()):
        rows = np.arange(len(names)) + step * (index - (len(groups) - 1) / 2)
        means, low, high = mean_intervals(np.abs(scores[:, :most]))
        label, colour = f"{shorten(name)} ({number(len(scores))})", colours[index % len(colours)]
        axes.barh(rows, means, height=0.9 * step, color=colour, label=label)
        look = {"fmt": MARKERS[index % len(MARKERS)], "markersize": 3, "color": INK, "elinewidth": 1, "capsize": 2}
        axes.errorbar(means, rows, xerr=[means - low, high - means], **look)
    axes.set(xlabel=f"mean |{across.partition(' ')[0]}| with 95 % intervals over instances")
    name_features(axes, names)
    axes.legend(title="group (instances)", loc="lower right")
    return drawing


@style_names
def word_means(groups: Mapping[str, tuple[Sequence[str], np.ndarray, np.ndarray, np.ndarray]], across: str) -> Figure:
    """Return a panel per group with its words of the largest |mean score|; groups: words, means, ends of intervals."""
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    most = min(MAX_BARS, max(len(words) for words, *_ in groups.values()))
    drawing = Figure(figsize=(WIDTH, rows * (1.0 + 0.28 * most)), layout="constrained")
    every = drawing.subplots(rows, columns, squeeze=False).ravel()
    for axes in every[len(groups) :]:
        axes.set_visible(False)
    for axes, (group, (words, *found)) in zip(every, groups.items(), strict=False):
        top = np.argsort(-np.abs(found[0]), kind="stable")[:MAX_BARS]
        top = top[np.argsort(-found[0][top], kind="stable")]
        means, low, high = (column[top] for column in found)
        axes.barh(range(len(top)), means, color=_colour_signs(means), height=0.72)
        _draw_intervals(axes, means, np.array([means - low, high - means]), np.arange(len(top)))
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set(title=shorten(group), xlabel=across)
        name_features(axes, [words[index] for index in top])
    return drawing


@style_names
def overlay(
    images: np.ndarray, names: Sequence[str], maps: Sequence[np.ndarray], intervals: bool, rest: int, positive: str
) -> Figure:
    """Return images (n, channels, height, width) under maps; intervals: scores with a CI that includes 0 are 0;
    positive: what positive scores support."""
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    ratio = images.shape[3] / images.shape[2]
    side = IMAGE_INCHES * np.clip(1 / ratio, NARROWEST, 1)
    drawing = Figure(figsize=(columns * IMAGE_INCHES, rows * (side + 0.45) + 0.3), layout="constrained")
    for axes in (panels := drawing.subplots(rows, columns, squeeze=False).ravel()):
        axes.set_axis_off()
    for axes, image, name, values in zip(panels, images, names, maps, strict=False):
        shifted = image - image.min()
        grey = scale_tones(shifted / max(float(shifted.max()), 1e-12))
        grey = grey if grey.ndim == 2 else grey[..., :3].mean(-1)
        largest = float(np.abs(values).max())
        limit = largest or 1.0
        share = np.abs(values)[..., None] / limit * MAX_OPACITY
        paper = np.repeat(0.35 + 0.6 * grey[..., None], 3, axis=-1)
        sign = np.where(values[..., None] > 0, to_rgb(FOR), to_rgb(AGAINST))
        aspect = max(min(1, ratio / NARROWEST), ratio * NARROWEST)
        axes.imshow((1 - share) * paper + share * sign, interpolation="nearest", aspect=aspect)
        title = f"{shorten(name)}\n{f'± {number(limit)}' if largest else 'no significant score'}"
        axes.set_title(title, fontsize=8.5, fontweight="normal", loc="center")
    legend = [signs(positive)]
    legend += ["plain: the 95 % interval includes 0"] * intervals + [f"{rest} more not shown"] * bool(rest)
    drawing.supxlabel(textwrap.fill("; ".join(legend), 36 * columns), fontsize=8.5)
    return drawing


def colour_words(
    texts: Sequence[tuple[str, Sequence[str], np.ndarray, np.ndarray | None, int | None]],
    rest: int = 0,
    what: str = "the class",
    feature: str = "word",
) -> HTML:
    """Return texts (title, words, scores, half-widths, index of the second sentence) as coloured words."""
    parts = [f"<p><b>{html.escape(title)}</b>{_colour_spans(*rest_of)}</p>" for title, *rest_of in texts]
    known = any(half is not None for *_, half, _ in texts)
    note = f"{signs(what)}, with a line below or above. Hover over a {feature} for its score."
    note += f" A {feature} whose 95 % interval includes 0 is plain." if known else ""
    note += f" {rest} more not shown." if rest else ""
    return HTML(f"<div style='max-width:60em;line-height:2'>{''.join(parts)}<p><small>{note}</small></p></div>")


@style_names
def trade_off(
    costs: Sequence[float],
    values: np.ndarray,
    entries: Sequence[str],
    recommended: str | None,
    agreement: np.ndarray,
    across: str,
) -> Figure:
    """Return methods by quality and cost, the recommended one marked, beside their agreement (rank correlations)."""
    drawing = Figure(figsize=(WIDTH, 1.6 + 0.34 * max(len(entries), 5)), layout="constrained")
    left, right = drawing.subplots(1, 2, width_ratios=[1.5, 1])
    means, low, high = mean_intervals(values)
    order = np.argsort(means, kind="stable")
    for row, index in enumerate(order):
        best = entries[index] == recommended
        look = {"marker": "*" if best else "o", "markersize": 13 if best else 6, "color": FOR if best else MIDDLE}
        ends = [[means[index] - low[index]], [high[index] - means[index]]]
        left.errorbar(means[index], row, xerr=ends, capsize=2, elinewidth=1, **look)
    name_rows(left, [f"{entries[index]} ({format_evaluations(costs[index])})" for index in order])
    left.set(xlabel=across, title="Quality (evaluations per instance); star: recommended")
    drawn = right.imshow(agreement, cmap="gray_r", vmin=-0.2, vmax=2.2, interpolation="nearest")
    write_cells(right, drawn, {place: number(value, 2, whole=False) for place, value in np.ndenumerate(agreement)})
    right.set_xticks(range(len(entries)), entries, rotation=40, ha="right")
    right.set_yticks(range(len(entries)), entries)
    right.set(title="Agreement (rank correlation)")
    right.grid(False)
    return drawing


def _colour_spans(names: Sequence[str], scores: np.ndarray, half: np.ndarray | None, second: int | None) -> str:
    limit = float(np.nanmax(np.abs(scores), initial=0.0)) or 1.0
    spans = []
    for index, (name, score) in enumerate(zip(names, scores, strict=True)):
        within = 0.0 if half is None else float(half[index])
        value = number(score, whole=False) + (f" ± {number(within, 2, whole=False)}" if within else "")
        strength = 0.0 if np.isnan(score) or abs(score) <= within else abs(score) / limit
        level = round(LEVELS * strength) * (1 if score > 0 else -1)
        side, colour = ("bottom", FOR) if level > 0 else ("top", AGAINST)
        line = f"border-{side}:{1 + 2 * strength:.1f}px solid {colour}"
        look = "unicode-bidi:plaintext" + (f";background:{tint(level)};color:{EXACT};{line}" if level else "")
        separator = "<br>" if index == second else ""
        spans.append(f'{separator}<span style="{look}" title="{value}">{html.escape(name)}</span>')
    return f'<span dir="auto" style="display:block">{" ".join(spans)}</span>'


def _select_largest(names: Sequence[str], scores: np.ndarray, half: np.ndarray | None, most: int):
    """Return the largest scores first and the sum of the others last, whose interval is unknown."""
    order = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")
    shown = most if len(order) > most + 1 else len(order)  # a single other feature has its own bar
    top, others = order[:shown], order[shown:]
    picked = [names[index] for index in top] + ([f"sum of {len(others)} other features"] if len(others) else [])
    ends = None if half is None else np.r_[half[top], [np.nan] * bool(len(others))]
    return picked, np.r_[scores[top], [scores[others].sum()] * bool(len(others))], ends


def _open_rows(names: Sequence[str], title: str, across: str) -> tuple[Figure, Axes]:
    drawing = Figure(figsize=(0.72 * WIDTH, 1.0 + 0.28 * len(names)), layout="constrained")
    axes = drawing.subplots()
    axes.set(title=shorten(title, MAX_TITLE), xlabel=across)
    name_features(axes, names)
    return drawing, axes


def _draw_intervals(axes: Axes, centres: np.ndarray, half: np.ndarray | None, rows: np.ndarray) -> None:
    """Draw intervals centres ± half, or of the two widths half (2, n) below and above; None draws none."""
    if half is not None:
        axes.errorbar(centres, rows, xerr=np.nan_to_num(half), fmt="none", ecolor=INK, elinewidth=1, capsize=2)


def _colour_signs(scores: np.ndarray) -> np.ndarray:
    return np.where(np.asarray(scores)[:, None] > 0, to_rgb(FOR), to_rgb(AGAINST))


def mean_intervals(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means (d,) and ends of 95 % intervals over instances, NaN for one; nonnegative sizes clip at 0."""
    each = moments(sizes)
    low, high = each.ends(t_quantile(0.025, each.units))
    return each.mean, low if (sizes < 0).any() else np.maximum(low, 0.0), high


def _spread_dots(scores: np.ndarray) -> np.ndarray:
    """Return heights (n,) within ±0.35 that separate dots of similar scores, by their positions in bins."""
    low, span = np.nanmin(scores), np.nanmax(scores) - np.nanmin(scores)
    bins = np.nan_to_num((scores - low) / span * 50).astype(int) if span > 0 else np.zeros(len(scores), int)
    order = np.argsort(bins, kind="stable")
    first = np.r_[True, np.diff(bins[order]) > 0]
    rank = np.empty(len(scores), int)
    rank[order] = np.arange(len(scores)) - np.maximum.accumulate(np.where(first, np.arange(len(scores)), 0))
    largest = max(int(rank.max()), 1)
    signed = np.where(rank % 2, -(rank + 1) // 2, rank // 2)
    return 0.7 * signed / max(largest, 12)
