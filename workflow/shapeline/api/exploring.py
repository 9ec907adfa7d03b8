"""The explorer of explanations made from Python."""

from collections.abc import Container, Mapping, Sequence

import numpy as np

from shapeline.api import formatting
from shapeline.report.explorer import Entry, ExplorerData, Instance, count_shown, explorer_html, to_data_uri
from shapeline.report.figures.score_maps import scale_tones
from shapeline.report.formatting import number

MAX_BYTES = 2_000_000  # of the scores in a page
MAX_INSTANCES = 2_000  # in a page


def explore(found: Mapping, recommended: str | None = None, fallback: str = "", links: bool = True) -> str:
    """Return the explorer of explanations of the same inputs, by their names; recommended: the one shown first."""
    first, note = next(iter(found.values())), ""
    if len(first) > MAX_INSTANCES:
        noun = "explanations" if _has_several(first) else "instances"
        found = {name: each[:MAX_INSTANCES] for name, each in found.items()}
        note = f"<p>The explorer has the first {MAX_INSTANCES:,} of {len(first):,} {noun}.</p>"
    return note + explorer_html(_data(found, recommended, links), fallback)


def _has_several(explanation) -> bool:
    """Return whether an instance has several rows, one per class."""
    return len(set(explanation.input_numbers)) < len(explanation)


def explore_prompt(explanation, unit: str, fallback: str = "", links: bool = True) -> str:
    """Return the explorer of a prompt's parts for the whole answer, then for each of its tokens where known."""
    columns, names = [explanation.totals], ["answer"]
    if explanation.tokens is not None:
        columns += list(explanation.tokens.T)
        names += [f"token {place}: {token}" for place, token in enumerate(explanation.answer_tokens, 1)]
    listed = [_answer("answer", explanation), *(Instance(name, names=explanation.parts) for name in names[1:])]
    half = explanation.half_widths
    entry = Entry(
        name=explanation.method,
        scores=columns,
        half=None if half is None else [half, *[None] * (len(names) - 1)],
        note=f"{explanation.evaluations:,} evaluations",
    )
    return _explore_answers(listed, [entry], unit, (), fallback, links)


def explore_prompts(found: Mapping, recommended: str | None, unit: str, unitless: Container[str], fallback: str) -> str:
    """Return the explorer of answers to prompts by several methods (found); unitless: methods with another scale."""
    first = next(iter(found.values()))
    listed = [_answer(str(place), each) for place, each in enumerate(first, 1)]
    entries = [
        Entry(
            name=name,
            scores=[one.totals for one in each],
            half=[one.half_widths for one in each] if any(one.half_widths is not None for one in each) else None,
            note=f"{sum(one.evaluations for one in each) / len(each):,.6g} evaluations per prompt",
            unit="no unit" if each[0].method in unitless else "",
        )
        for name, each in found.items()
    ]
    return _explore_answers(listed, entries, unit, [recommended] if recommended else (), fallback, True)


def _answer(name: str, explanation) -> Instance:
    ends = {"base": explanation.value_empty, "full": explanation.value_full}
    return Instance(name, names=explanation.parts, prediction=explanation.answer, **ends)


def _explore_answers(listed: list, entries: list, unit: str, recommended: Sequence[str], fallback: str, links: bool):
    shown = max(1, count_shown(entries, MAX_BYTES))
    about = {"explained": "the answer", "unit": unit, "recommended": recommended, "n_shown": shown, "links": links}
    return explorer_html(ExplorerData("text", listed, entries, **about), fallback)


def _data(found: Mapping, recommended: str | None, links: bool) -> ExplorerData:
    first = next(iter(found.values()))
    about, entries = first.about, [_entry(name, each) for name, each in found.items()]
    kind = about.kind if about.kind in ("image", "text") else "table"
    if kind == "image" and (first.data is None or not all(about.features)):
        kind = "table"
    shared = kind == "image" and len({id(features) for features in about.features}) == 1
    signs = {"prediction": "a larger prediction", formatting.GAME: "a larger value"}
    return ExplorerData(
        kind=kind,
        instances=_instances(first, kind, shared),
        entries=entries,
        names=about.names[0] if first._shares_names() else (),
        cells=about.features[0].cells[0] if shared else None,
        explained=signs.get(about.value, "the explained class"),
        unit=formatting.VALUES.get(about.value, about.value) or "unknown",
        recommended=[recommended] if recommended else (),
        n_shown=max(1, count_shown(entries, MAX_BYTES)),
        links=links,
        noun="explanations" if _has_several(first) else "",
    )


def _entry(name: str, explanation) -> Entry:
    each = [explanation.of(place) for place in range(len(explanation))]
    half = None
    if explanation.standard_error is not None and np.nan_to_num(explanation.standard_error).any():
        half = [half for _, _, half in each]
    return Entry(
        name=name,
        scores=[scores if np.isfinite(scores).any() else None for _, scores, _ in each],
        half=half,
        note=f"{explanation.cost['evaluations']:,.6g} evaluations",
    )


def _instances(first, kind: str, shared: bool) -> list[Instance]:
    about, values = first.about, first._values()
    images = first._images() if kind == "image" else None
    listed = []
    for place, name in enumerate(formatting.name_rows(first)):
        target, full = first.target_names[place], float(first.value_full[place])
        own = {} if values is None else {"values": [formatting.format_value(value) for value in values.iloc[place]]}
        if not first._shares_names():
            own["names"] = about.names[place]
        if kind == "text":
            own["second"] = formatting.find_second(first, place)
        if images is not None:
            own["image"] = to_data_uri(_tones(images[place]))
            own |= {} if shared else {"cells": about.features[place].cells[0]}
        facts = {"prediction": number(full, 4, whole=False)} if about.value == "prediction" else {"explained": target}
        listed.append(Instance(id=name, base=float(first.value_empty[place]), full=full, **facts, **own))
    return listed


def _tones(image: np.ndarray) -> np.ndarray:
    """Return an image (channels, height, width) of any range as (height, width, 3) in [0, 1]."""
    whole = np.asarray(image, float) - np.min(image)
    tones = scale_tones(whole / max(float(whole.max()), 1e-12))
    return np.repeat(tones[..., None], 3, axis=2) if tones.ndim == 2 else tones[..., :3]
