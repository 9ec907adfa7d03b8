"""Plots of an Explanation by their kinds, which are those of shap where shap has one, and its explorer."""

import functools
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np
import pandas as pd

from shapeline.api import formatting
from shapeline.designs.design import check_integer
from shapeline.errors import ShapelineError, nearest
from shapeline.games.validation_scores import check_order
from shapeline.report.explorer import (
    PROMPT_WORDS,
    Entry,
    ExplorerData,
    Instance,
    count_shown,
    explorer_html,
    to_data_uri,
)
from shapeline.report.figures import explanations as figures
from shapeline.report.figures import games
from shapeline.report.figures.score_maps import scale_tones
from shapeline.report.formatting import number

ALIASES = {"bars": "bar", "summary": "beeswarm"}
ARGUMENTS = {
    "bar": ("max_display",),
    "waterfall": ("max_display",),
    "beeswarm": ("max_display",),
    "heatmap": ("max_display",),
    "cohort": ("groups", "max_display"),
    "dependence": ("feature",),
}
MAX_COHORTS = 12
MIN_WORDS = 5  # common to several texts, from which a plot leaves out the others
MAX_IMAGES, MAX_TEXTS = 8, 20  # in one figure
MAX_BYTES = 2_000_000  # of the scores in a page
MAX_INSTANCES = 2_000  # in a page
GAME_WORDS = {
    **{"instance": "output", "feature": "player"},
    **{"value of the input": "value of all players", "base value": "value of no players"},
}
# What positive scores support, by the value of a coalition; of other values the class.
POSITIVE = {"prediction": "a larger prediction", formatting.GAME: "a larger value"}


def plot(explanation, kind: str | None = None, **arguments):
    """Return the figure that `Explanation.plot` describes."""
    kind = _choose_kind(explanation) if kind is None else ALIASES.get(kind, kind)
    if kind not in DRAWN:
        raise ShapelineError(f"plot: unknown kind '{kind}'.{nearest(kind, DRAWN)}")
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in ARGUMENTS.get(kind, ()):
            of = next(other for other, names in ARGUMENTS.items() if name in names)
            raise ShapelineError(f"plot: '{kind}' takes no {name}; leave it out, or use plot(\"{of}\", {name}=...)")
    if "max_display" in given:
        given["max_display"] = check_integer("plot", "max_display", given["max_display"], 1)
    return DRAWN[kind](explanation, **given)


def _name_axis(explanation) -> str:
    return f"score ({formatting.name_unit(explanation)})"


def _draw_bars(explanation, max_display: int = figures.MAX_BARS):
    """Return the bars of one instance, or the mean |score| of several."""
    if len(explanation) != 1:
        names, scores = _sort_by_size(explanation)
        sizes = figures.mean_sizes(scores, explanation.input_numbers)
        return figures.importance(names, sizes, _name_axis(explanation), max_display)
    return _draw_one(explanation, "bar", figures.bars, max_display)


def _draw_one(explanation, kind: str, draw: Callable, max_display: int = figures.MAX_BARS):
    if len(explanation) != 1:
        raise ShapelineError(f"plot: '{kind}' shows one instance; select it, as in e[3].plot('{kind}')")
    name, unit = formatting.name_of(explanation), formatting.name_unit(explanation)
    if kind == "waterfall" and explanation.interaction_values is not None:
        raise ShapelineError(
            f"plot: 'waterfall' adds scores to the base value, and those of {name} reach the prediction with the "
            "interactions of pairs alone; use 'pairs' or 'bar'"
        )
    if kind == "waterfall" and name != "external" and unit != formatting.name_value(explanation):
        raise ShapelineError(
            f"plot: 'waterfall' adds scores to the base value, and those of {name} are in another unit ({unit}); "
            "use 'bar'"
        )
    _, scores, half = explanation.of(0)
    both = (explanation.value_empty[0], explanation.value_full[0])
    names, title = formatting.label_features(explanation, 0), formatting.format_title(explanation, 0)
    return draw(names, formatting.round_noise(scores), half, both, title, _name_axis(explanation), max_display)


def _sort_by_size(explanation) -> tuple[list[str], np.ndarray]:
    """Return feature names, the largest mean |score| first, and the scores (n, d) in their order; of texts the words of
    all of them, with the mean of a word's scores per text, NaN in texts without it."""
    if explanation.about.kind == "text" and not explanation._shares_names():
        return _list_words(explanation)
    order, names = explanation._rank_features(), explanation.about.names[0]
    return [names[place] for place in order], explanation.scores.reshape(len(explanation), -1)[:, order]


def _list_words(explanation) -> tuple[list[str], np.ndarray]:
    """Return the words of all texts, those in several texts where there are enough."""
    parts = [
        pd.DataFrame({"text": index, "word": [str(name).lower() for name in names], "score": scores})
        for index, (names, scores, _) in enumerate(map(explanation.of, range(len(explanation))))
    ]
    wide = pd.concat(parts).pivot_table(index="text", columns="word", values="score", aggfunc="mean", dropna=False)
    wide = wide.reindex(range(len(explanation))).dropna(axis=1, how="all")
    several = wide.loc[:, wide.notna().sum() > 1]
    wide = several if several.shape[1] >= MIN_WORDS else wide
    order = wide.abs().mean().sort_values(ascending=False, kind="stable").index
    return list(order), wide[order].to_numpy()


def _draw_beeswarm(explanation, max_display: int = figures.MAX_BARS):
    names, scores = _sort_by_size(explanation)
    numbers = explanation.input_numbers
    shades = _rank_values(explanation, names)
    return figures.summary(names, scores, shades, _name_axis(explanation), numbers, max_display)


def _draw_heat_map(explanation, max_display: int = figures.MAX_BARS):
    names, scores = _sort_by_size(explanation)
    half = explanation.half_widths if explanation._shares_names() else None
    half = None if half is None else half[:, explanation._rank_features()]
    numbers = explanation.input_numbers
    return figures.heat_map(names, scores, half, explanation.value_full, _name_axis(explanation), numbers, max_display)


def _draw_dependence(explanation, feature: str | None = None):
    """Return the scores of a feature against its values; by default of the most important one."""
    names, scores = _sort_by_size(explanation)
    values = explanation._values()
    if values is None:
        raise ShapelineError("plot: 'dependence' needs features that are columns with known values; use 'beeswarm'")
    feature = names[0] if feature is None else str(feature)  # also of a frame's label that is no text
    if feature not in names:
        raise ShapelineError(f"plot: there is no feature '{feature}'.{nearest(feature, names)}")
    index = explanation.about.names[0].index(feature)
    half = explanation.half_widths
    half = None if half is None or not half[:, index].any() else half[:, index]
    scores = scores[:, names.index(feature)]
    numbers = explanation.input_numbers
    return figures.dependence(feature, values.iloc[:, index], scores, half, _name_axis(explanation), numbers)


def _draw_cohorts(explanation, groups=None, max_display: int = figures.MAX_BARS):
    """Return the mean |score| in groups: the values of a column, a group per instance, or the explained classes."""
    names, scores = _sort_by_size(explanation)
    values = explanation._values()
    columns = [] if values is None else list(explanation.about.names[0])
    if groups is not None and (str(groups) in columns or isinstance(groups, str) or not np.iterable(groups)):
        if str(groups) not in columns:
            raise ShapelineError(f"plot: groups: there is no column '{groups}'.{nearest(str(groups), columns)}")
        groups = values.iloc[:, columns.index(str(groups))]
    check_order(
        "plot", pd.Series(0, pd.unique(pd.Index(explanation.about.instances))), groups, ("the instances", "groups")
    )
    groups, numbers = explanation.target_names if groups is None else groups, explanation.input_numbers
    groups, count = pd.Series(list(groups)), int(numbers.max(initial=-1)) + 1
    if len(groups) not in (count, len(explanation)):
        raise ShapelineError(f"plot: groups: {len(groups)} for {count} instances; give one per instance")
    groups = groups.to_numpy(object)[numbers] if len(groups) == count else groups
    groups = pd.Series(groups, dtype=object)
    codes, cohorts = pd.factorize(groups.map(str).where(groups.notna(), "missing"), sort=True)
    if not 1 < len(cohorts) <= MAX_COHORTS:
        raise ShapelineError(
            f"plot: 'cohort' compares 2 to {MAX_COHORTS} groups, and these instances have {len(cohorts)}; give other "
            "groups=, one per instance"
        )
    masks = {name: codes == code for code, name in enumerate(cohorts)}
    sizes = {name: figures.mean_sizes(scores[mask], numbers[mask]) for name, mask in masks.items()}
    return figures.cohorts(names, sizes, _name_axis(explanation), max_display)


def _choose_kind(explanation) -> str:
    """Return the default kind of figure for the kind of data and the number of instances."""
    kind = explanation.about.kind
    known = bool(explanation.about.features) and explanation.about.features[0] is not None
    if kind == "image" and known and explanation.data is not None:
        return "overlay"
    if kind == "text":
        return "words"
    if len(explanation) == 1:
        return "bar"
    if len(explanation) and not explanation._shares_names():
        raise ShapelineError("plot: instances have different features; select one, as in e[3].plot()")
    return "beeswarm"


def _rank_values(explanation, names: list[str]) -> np.ndarray | None:
    """Return the rank of each value in its column, (n, d) in [0, 1], NaN where it is not a number."""
    values = explanation._values()
    if values is None:
        return None
    numbers = values.set_axis(list(explanation.about.names[0]), axis=1)[names].apply(
        lambda column: column if pd.api.types.is_numeric_dtype(column) else pd.Series(np.nan, column.index)
    )
    return numbers.astype(float).rank(pct=True).to_numpy()


def _draw_overlay(explanation):
    """Return score maps over images, without features whose interval includes 0."""
    if explanation.about.kind != "image" or explanation.data is None or not all(explanation.about.features):
        raise ShapelineError("plot: 'overlay' needs images with known features; use 'bar' or 'beeswarm'")
    shown = range(min(len(explanation), MAX_IMAGES))
    maps = []
    for index in shown:
        _, scores, half = explanation.of(index)
        surely = scores if half is None else np.where(np.abs(scores) > np.nan_to_num(half), scores, 0.0)
        cells = explanation.about.features[index].cells[0]
        maps.append(np.where(cells < 0, 0.0, surely[cells]))
    rows = zip(formatting.name_rows(explanation), explanation.target_names, strict=True)
    names = [name if name.endswith(f", {target}") else f"{name}: {target}" for name, target in rows][: len(maps)]
    images, has_intervals = explanation._images()[: len(maps)], explanation.standard_error is not None
    positive = POSITIVE.get(explanation.about.value, "the class")
    return figures.overlay(images, names, maps, has_intervals, len(explanation) - len(maps), positive)


def _draw_pairs(explanation):
    """Return main effects and interactions of one instance: over an image, as arcs over words, else as a matrix."""
    explanation.interactions()  # raises ShapelineError without interactions
    if len(explanation) != 1:
        raise ShapelineError("plot: 'pairs' shows one instance; select it, as in e[3].plot('pairs')")
    names, main_effects, _ = explanation.of(0)
    both = explanation.interaction_values[0, : len(names) * (len(names) - 1) // 2]
    if explanation.interactions_standard_error is not None:  # as on report pages
        both = games.keep_significant(both, explanation.interactions_standard_error[0, : len(both)])
    about, title = explanation.about, f"{explanation.about.instances[0]}: {explanation.target_names[0]}"
    unit = formatting.VALUES.get(about.value, about.value)
    features = about.features[0]
    if about.kind == "image" and explanation.data is not None and features is not None:
        image = np.asarray(explanation._images(), dtype=float)
        image = (image - image.min()) / max(float(image.max() - image.min()), 1e-12)
        return games.network(image, [title], [features.cells[0]], [main_effects], [both])
    if about.kind == "text":
        return games.arcs(names, main_effects, both, title, unit)
    return games.matrix(formatting.label_features(explanation, 0), main_effects, both, unit)


def _draw_texts(explanation):
    """Return coloured words; words whose interval includes 0 stay plain."""
    if explanation.about.kind != "text":
        raise ShapelineError("plot: 'words' needs texts; leave out the kind to get the default figure")
    shown = []
    for index in range(min(len(explanation), MAX_TEXTS)):
        title, second = formatting.format_title(explanation, index), formatting.find_second(explanation, index)
        shown.append((title, *explanation.of(index), second))
    return figures.colour_words(shown, len(explanation) - len(shown))


DRAWN = {
    "bar": _draw_bars,
    "beeswarm": _draw_beeswarm,
    "waterfall": functools.partial(_draw_one, kind="waterfall", draw=figures.waterfall),
    "heatmap": _draw_heat_map,
    "dependence": _draw_dependence,
    "cohort": _draw_cohorts,
    "overlay": _draw_overlay,
    "words": _draw_texts,
    "pairs": _draw_pairs,
}


def explore(found: Mapping, recommended: str | None = None, fallback: str = "", links: bool = True) -> str:
    """Return the explorer of explanations of the same inputs, by their names; recommended: the one shown first."""
    first, note = next(iter(found.values())), ""
    if len(first) > MAX_INSTANCES:
        noun = "explanations" if _has_several(first) else "instances"
        found = {name: each[:MAX_INSTANCES] for name, each in found.items()}
        note = f"<p>The explorer has the first {MAX_INSTANCES:,} of {len(first):,} {noun}.</p>"
    return note + explorer_html(_collect_data(found, recommended, links), fallback)


def _has_several(explanation) -> bool:
    """Return whether an instance has several rows, one per class."""
    return len(set(explanation.input_numbers)) < len(explanation)


def explore_prompt(explanation, unit: str, fallback: str = "", links: bool = True) -> str:
    """Return the explorer of a prompt's parts for the whole answer, then for each of its tokens where known."""
    columns, names = [explanation.totals], ["answer"]
    if explanation.tokens is not None:
        columns += list(explanation.tokens.T)
        names += [f"token {place}: {token}" for place, token in enumerate(explanation.answer_tokens, 1)]
    listed = [_describe_answer("answer", explanation), *(Instance(name, names=explanation.parts) for name in names[1:])]
    half = explanation.shown_half_widths
    entry = Entry(
        name=explanation.method,
        scores=columns,
        half=None if half is None else [half, *[None] * (len(names) - 1)],
        note=f"{explanation.evaluations:,} evaluations",
    )
    words = PROMPT_WORDS | {"instance": "scores of"}
    return _explore_answers(listed, [entry], fallback, unit=unit, links=links, words=words)


def explore_prompts(found: Mapping, recommended: str | None, unit: str, unitless: Container[str], fallback: str) -> str:
    """Return the explorer of answers to prompts by several methods (found); unitless: methods with another scale."""
    first = next(iter(found.values()))
    listed = [_describe_answer(str(place), each) for place, each in enumerate(first, 1)]
    entries = [
        Entry(
            name=name,
            scores=[one.totals for one in each],
            half=[one.half_widths for one in each] if any(one.shown_half_widths is not None for one in each) else None,
            note=f"{sum(one.evaluations for one in each) / len(each):,.6g} evaluations per prompt",
            unit="no unit" if each[0].method in unitless else "",
        )
        for name, each in found.items()
    ]
    chosen = [recommended] if recommended else ()
    return _explore_answers(listed, entries, fallback, unit=unit, recommended=chosen, noun="prompts")


def _describe_answer(name: str, explanation) -> Instance:
    ends = {"base": explanation.value_empty, "full": explanation.value_full}
    return Instance(name, names=explanation.parts, prediction=explanation.answer, **ends)


def _explore_answers(listed: list, entries: list, fallback: str, **about: Any) -> str:
    shown = max(1, count_shown(entries, MAX_BYTES))
    about = {"explained": "the answer", "n_shown": shown, "words": PROMPT_WORDS, **about}
    return explorer_html(ExplorerData("text", listed, entries, **about), fallback)


def _collect_data(found: Mapping, recommended: str | None, links: bool) -> ExplorerData:
    first = next(iter(found.values()))
    about, units = first.about, {formatting.name_unit(each) for each in found.values()}
    unit = units.pop() if len(units) == 1 else formatting.name_value(first)
    entries = [_build_entry(name, each, unit) for name, each in found.items()]
    kind = about.kind if about.kind in ("image", "text") else "table"
    if kind == "image" and (first.data is None or not all(about.features)):
        kind = "table"
    shared = kind == "image" and len({id(features) for features in about.features}) == 1
    return ExplorerData(
        kind=kind,
        instances=_list_instances(first, kind, shared),
        entries=entries,
        names=about.names[0] if first._shares_names() else (),
        cells=about.features[0].cells[0] if shared else None,
        explained=POSITIVE.get(about.value, "the explained class"),
        unit=unit or "unknown",
        recommended=[recommended] if recommended else (),
        n_shown=max(1, count_shown(entries, MAX_BYTES)),
        links=links,
        noun="explanations" if _has_several(first) else "",
        words=GAME_WORDS if about.value == formatting.GAME else {},
    )


def _build_entry(name: str, explanation, shared_unit: str) -> Entry:
    unit = formatting.name_unit(explanation)
    each = [explanation.of(place) for place in range(len(explanation))]
    half = None
    if explanation.standard_error is not None and np.nan_to_num(explanation.standard_error).any():
        half = [half for _, _, half in each]
    return Entry(
        name=name,
        scores=[scores if np.isfinite(scores).any() else None for _, scores, _ in each],
        half=half,
        note=formatting.format_cost(explanation),
        unit="" if unit == shared_unit else unit,
    )


def _list_instances(first, kind: str, shared: bool) -> list[Instance]:
    about, values = first.about, first._values()
    images = first._images() if kind == "image" else None
    listed = []
    for place, name in enumerate(formatting.name_rows(first)):
        target, full = first.target_names[place], float(first.value_full[place])
        content = {} if values is None else {"values": [formatting.format_value(value) for value in values.iloc[place]]}
        if not first._shares_names():
            content["names"] = about.names[place]
        if kind == "text":
            content["second"] = formatting.find_second(first, place)
        if images is not None:
            content["image"] = to_data_uri(_scale_image(images[place]))
            content |= {} if shared else {"cells": about.features[place].cells[0]}
        facts = {"prediction": number(full, 4, whole=False)} if about.value == "prediction" else {"explained": target}
        facts = {} if about.value == formatting.GAME else facts
        listed.append(Instance(id=name, base=float(first.value_empty[place]), full=full, **facts, **content))
    return listed


def _scale_image(image: np.ndarray) -> np.ndarray:
    """Return an image (channels, height, width) of any range as (height, width, 3) in [0, 1]."""
    whole = np.asarray(image, float) - np.min(image)
    tones = scale_tones(whole / max(float(whole.max()), 1e-12))
    return np.repeat(tones[..., None], 3, axis=2) if tones.ndim == 2 else tones[..., :3]
