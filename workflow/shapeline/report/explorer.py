"""The instance explorer of pages and notebooks: one instance by several methods, interactive without a network.

Script and style are embedded; static figures (`fallback`) are shown where no script runs.
"""

import base64
import functools
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from PIL import Image

from shapeline.errors import ShapelineError
from shapeline.report import colours
from shapeline.report.rendering import read_packaged

KINDS = ("table", "image", "text")
PROMPT_WORDS = {
    **{"instance": "prompt", "feature": "part", "prediction": "answer"},
    **{"value of the input": "value with all parts", "base value": "value without parts"},
}
MAX_DIGITS = 4  # significant digits of a number
MIN_PACKED = 256  # scores from which an explanation is stored as 16-bit integers
MAX_SUMMARY = 5  # scores of an instance with only a summary
DEFAULT_METHODS = 2  # shown initially
STEPS = np.iinfo(np.int16).max
MAX_FEATURES = 20_000  # of an image; where it has more, a page shows blocks of pixels


@dataclass(frozen=True)
class Entry:
    """A method's scores (d,) of each instance and half-widths of 95 % intervals or None, by unit."""

    name: str
    scores: Sequence[np.ndarray | None]
    half: Sequence[np.ndarray | None] | None = None
    note: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Instance:
    """An explained instance with its description.

    prediction, label (the true class) and explained (the explained class, where it is another): in words. base, full:
    the value without and with all features. values: of its features, as text. names: of its own features, such as the
    words of a text. second: of a text pair the position of the second one's first word. image: a PNG as a data URI.
    cells: the feature of each pixel (height, width), -1 for none, where they are its own.
    """

    id: str
    prediction: str = ""
    label: str | None = None
    wrong: bool = False
    explained: str = ""
    base: float | None = None
    full: float | None = None
    values: Sequence[str] | None = None
    names: Sequence[str] | None = None
    second: int | None = None
    image: str | None = None
    cells: np.ndarray | None = None


@dataclass(frozen=True)
class ExplorerData:
    """The data of an explorer.

    kind: "table", "image" or "text". names, cells: of the features, where all instances share them. explained: what
    positive scores support. unit: of the scores. recommended: the methods shown initially; by default the first two.
    n_shown: the instances that have the scores of all methods; the others have the largest scores of the first
    recommended method. links: whether the address of the page names the instance and the methods shown. noun: what
    "3 of 12" counts, where that is not instances. words: in place of "instance", "feature" and titles of facts. note: a
    sentence on the instances or the unit.
    """

    kind: str
    instances: Sequence[Instance]
    entries: Sequence[Entry]
    names: Sequence[str] = ()
    cells: np.ndarray | None = None
    explained: str = "the explained class"
    unit: str = "value"
    recommended: Sequence[str] = field(default=())
    n_shown: int | None = None
    links: bool = True
    noun: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def explorer_html(data: ExplorerData, fallback: str = "") -> str:
    """Return the explorer as a fragment of HTML that needs nothing else.

    Parameters
    ----------
    data : ExplorerData
        Instances, and the methods with their scores.
    fallback : str
        HTML of static figures, shown without JavaScript.

    Raises
    ------
    ShapelineError
        Where a method has scores of another number of instances.
    """
    content = json.dumps(_collect_content(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Escaping prevents texts of a dataset from closing the element, and keeps the page valid UTF-8.
    content = re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda letter: f"\\u{ord(letter[0]):04x}", content)
    return (
        f'<style>{_style()}</style>\n<section class="shapeline-explorer" aria-label="Instance explorer">'
        f'<script type="application/json" class="explorer-data">{content}</script>'
        f'<div class="explorer-static">{fallback}</div></section>\n<script>{read_packaged("explorer.js")}</script>'
    )


@functools.cache
def _style() -> str:
    """Return the rules with the colours of both schemes; JupyterLab states its own scheme."""
    light, dark = (colours.LIGHT_PAGE, colours.TINTS), (colours.DARK_PAGE, colours.DARK_TINTS)
    rules = [_set_scheme(".shapeline-explorer", *light), "@media screen {"]
    rules += [f"@media (prefers-color-scheme: dark) {{ {_set_scheme(':root .shapeline-explorer', *dark)} }}"]
    rules += [
        _set_scheme(f'[data-jp-theme-light="{is_light}"] .shapeline-explorer', *scheme)
        for is_light, scheme in (("true", light), ("false", dark))
    ]
    return "\n".join([*rules, "}", read_packaged("explorer.css")])


def _set_scheme(where: str, page: dict[str, str], tints: dict[str, str]) -> str:
    signs = {"for": "p", "against": "n"}
    channels = {f"tint-{name}": " ".join(map(str, bytes.fromhex(tints[sign][1:]))) for name, sign in signs.items()}
    return colours.set_variables(where, page | channels)


def count_shown(entries: Sequence[Entry], max_bytes: int) -> int:
    """Return the number of instances whose scores by all methods fit into `max_bytes` of a page."""
    lengths = [next((np.size(one) for one in entry.scores if one is not None), 0) for entry in entries]
    columns = [length * (1 if entry.half is None else 2) for length, entry in zip(lengths, entries, strict=True)]
    bytes_per_score = 2.7 if max(lengths, default=0) >= MIN_PACKED else 8
    return int(max_bytes / max(bytes_per_score * sum(columns), 1))


def to_data_uri(image: np.ndarray) -> str:
    """Return an image (height, width, 3) in [0, 1] as a PNG in a data URI."""
    buffer = io.BytesIO()
    Image.fromarray(np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)).save(buffer, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _collect_content(data: ExplorerData) -> dict:
    if data.kind not in KINDS:
        raise ShapelineError(f"explorer: unknown kind '{data.kind}'; use one of {', '.join(KINDS)}.")
    for entry in data.entries:
        if len(entry.scores) != len(data.instances):
            counts = f"{len(entry.scores)} explanations of {len(data.instances)} instances"
            raise ShapelineError(f"explorer: '{entry.name}' has {counts}; give one per instance, or None.")
    data = _sum_blocks(data)
    shown = len(data.instances) if data.n_shown is None else min(data.n_shown, len(data.instances))
    is_named = data.kind != "image" or any(name != f"feature {index}" for index, name in enumerate(data.names))
    names = [entry.name for entry in data.entries]
    chosen = [names.index(name) for name in dict.fromkeys(data.recommended) if name in names]
    chosen = chosen or [*range(min(DEFAULT_METHODS, len(names)))]
    return {
        "kind": data.kind,
        "names": list(data.names) if is_named else [],  # the script numbers features
        "cells": _encode(data.cells),
        "size": None if data.cells is None else list(np.shape(data.cells)),
        "signs": colours.signs(data.explained),
        "unit": data.unit,
        "links": data.links,
        "noun": data.noun,
        "words": dict(data.words),
        "note": data.note,
        "chosen": sorted(chosen),
        "methods": [
            {"name": entry.name, "note": entry.note, "unit": entry.unit, "intervals": entry.half is not None}
            for entry in data.entries
        ],
        "instances": [_describe(data, index, index < shown, chosen) for index in range(len(data.instances))],
        "scores": [[_pack_row(each, k, one) for each in data.entries] for k, one in enumerate(data.instances[:shown])],
    }


def _sum_blocks(data: ExplorerData) -> ExplorerData:
    """Return the data with scores of an image of many features summed over blocks of pixels, without intervals."""
    if data.kind != "image" or data.cells is None or data.cells.max(initial=-1) < MAX_FEATURES:
        return data
    height, width = data.cells.shape
    side = math.ceil(math.sqrt(height * width / MAX_FEATURES))
    blocks = np.arange(height)[:, None] // side * -(-width // side) + np.arange(width) // side
    block_of = np.full(data.cells.max() + 2, -1)  # per feature, by its first pixel; the last is for none
    block_of[data.cells.ravel()[::-1]] = blocks.ravel()[::-1]
    block_of[-1] = -1
    n_blocks = int(blocks.max()) + 1
    entries = [
        replace(entry, half=None, scores=[
            None if one is None else np.bincount(block_of[:-1], np.ravel(one), n_blocks) for one in entry.scores
        ])
        for entry in data.entries
    ]  # fmt: skip
    note = f"{data.note} Scores are sums over blocks of {side} × {side} pixels.".strip()
    return replace(data, names=(), cells=block_of[data.cells], entries=entries, note=note)


def _describe(data: ExplorerData, index: int, whole: bool, chosen: Sequence[int]) -> dict:
    """Return the facts of an instance, with its image and its own features, or with its largest scores only."""
    one = data.instances[index]
    facts = {
        "id": str(one.id),
        "prediction": one.prediction,
        "label": one.label,
        "wrong": bool(one.wrong),
        "explained": one.explained,
        "base": _round(one.base, 6),
        "full": _round(one.full, 6),
    }
    if whole:
        texts = {"values": one.values, "names": one.names}
        facts |= {name: [str(value) for value in values] for name, values in texts.items() if values is not None}
        facts |= {"image": one.image} if one.image else {}
        facts |= {} if one.second is None else {"second": int(one.second)}
        if one.cells is not None:
            facts |= {"cells": _encode(one.cells), "size": list(np.shape(one.cells))}
        return facts
    method = next((number for number in chosen if data.entries[number].scores[index] is not None), chosen[0])
    return facts | {"summary": _summarise(data.entries[method], method, index, one.names)}


def _summarise(entry: Entry, method: int, index: int, names: Sequence[str] | None) -> dict:
    """Return the largest scores of an instance by one method."""
    scores = entry.scores[index]
    if scores is None:
        return {"method": method, "features": [], "scores": None, "half": None}
    flat = np.ravel(scores)
    top = np.argsort(-np.abs(np.nan_to_num(flat)), kind="stable")[:MAX_SUMMARY]
    half = None if entry.half is None or entry.half[index] is None else np.ravel(entry.half[index])[top]
    result = {"method": method, "features": top.tolist(), "scores": _pack(flat[top]), "half": _pack(half)}
    return result if names is None else result | {"names": [str(names[one]) for one in top]}


def _pack_row(entry: Entry, index: int, one: Instance) -> list | None:
    scores, half = entry.scores[index], None if entry.half is None else entry.half[index]
    noise = 4 * np.finfo(float).eps * max(abs(one.full or 0.0), abs(one.base or 0.0))  # rounding of the values
    return None if scores is None else [_pack(np.where(np.abs(scores) < noise, 0.0, scores)), _pack(half)]


def _pack(values: np.ndarray | None) -> list | dict | None:
    """Return numbers to four digits, None for one that is not finite; many as 16-bit integers in base64."""
    if values is None:
        return None
    flat = np.ravel(np.asarray(values, float))
    if len(flat) < MIN_PACKED:
        return [_round(value) for value in flat.tolist()]
    fine = np.isfinite(flat)
    largest = float(np.abs(flat[fine]).max(initial=0.0))
    steps = np.where(fine, np.round(np.nan_to_num(flat) / (largest or 1.0) * STEPS), -STEPS - 1).astype("<i2")
    return {"text": base64.b64encode(steps.tobytes()).decode(), "largest": largest}


def _round(value: float | None, digits: int = MAX_DIGITS) -> float | None:
    """Return a number to so many significant digits, whole where it is; None where it is not finite."""
    if value is None or not np.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _encode(cells: np.ndarray | None) -> list[int] | None:
    """Return [feature, count, feature, count, ...] of the pixels in their order; None where each is its own feature."""
    if cells is None or np.array_equal(np.ravel(cells), np.arange(cells.size)):
        return None
    flat = np.ravel(cells)
    starts = np.flatnonzero(np.r_[True, flat[1:] != flat[:-1]])
    return np.c_[flat[starts], np.diff(np.r_[starts, len(flat)])].ravel().tolist()
