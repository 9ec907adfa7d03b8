"""Images in files: decoded as they are seen and brought to one size; the boxes and masks of objects in them.

Masks or boxes, of where in an image its class is, are in truth.npz beside the arrays.
"""

import hashlib
import io
import json
import logging
import math
import os
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from shapeline.datasets import archive
from shapeline.datasets.archive import DEFAULT_LIMITS, Limits
from shapeline.datasets.loading import explain_damage
from shapeline.errors import ShapelineError

log = logging.getLogger(__name__)

FILE = "truth.npz"
CLIPPED, EMPTY = "boxes_clipped", "boxes_outside_left_out"


def truth(folder: str | os.PathLike, ids: Iterable[int], labels: Iterable[int]) -> np.ndarray:
    """Return the pixels of a class's objects in records (n, height, width) bool; ShapelineError if unknown."""
    stored, rows, categories = _read_truth(folder, ids, labels)
    height, width = stored["shape"].tolist()
    shown = np.zeros((len(rows), height, width), bool)
    if "masks" in stored:
        chosen = np.flatnonzero(categories == 0)
        packed = stored["masks"][rows[chosen]]
        shown[chosen] = np.unpackbits(packed, axis=1, count=height * width).reshape(-1, height, width)
        return shown
    for place, (row, category) in enumerate(zip(rows, categories, strict=True)):
        for index, top, left, bottom, right in _get_boxes(stored, row):
            if index == category:
                shown[place, top:bottom, left:right] = True
    return shown


def objects(folder: str | os.PathLike, ids: Iterable[int], labels: Iterable[int]) -> np.ndarray:
    """Return how many objects of a class records hold (n,): boxes, or connected parts of a mask (corners connect)."""
    stored, rows, categories = _read_truth(folder, ids, labels)
    if "masks" in stored:
        return np.where(categories == 0, stored["objects"][rows], 0).astype(np.int64)
    counts = [(_get_boxes(stored, row)[:, 0] == category).sum() for row, category in zip(rows, categories, strict=True)]
    return np.array(counts, np.int64)


def clip(boxes: np.ndarray, height: int, width: int) -> tuple[np.ndarray, Counter]:
    """Return boxes (k, 5) clipped to an image, without empty ones, and how many were clipped or removed."""
    boxes = np.asarray(boxes, np.int64).reshape(-1, 5)
    cut = boxes.copy()
    cut[:, [1, 3]] = cut[:, [1, 3]].clip(0, height)
    cut[:, [2, 4]] = cut[:, [2, 4]].clip(0, width)
    full = (cut[:, 1] < cut[:, 3]) & (cut[:, 2] < cut[:, 4])
    changed = (cut != boxes).any(axis=1)
    return cut[full], Counter({CLIPPED: int((changed & full).sum()), EMPTY: int((~full).sum())})


def check_truth(where: str, records: dict, labels: np.ndarray, names: list[str], size: tuple[int, int]) -> dict | None:
    """Return a reader's truth as in truth.npz: `masks`, or `boxes` (k, 5) per record with `box_names`; or None."""
    masks, boxes = records.get("masks"), records.get("boxes")
    if masks is None and boxes is None:
        return None
    if masks is not None and boxes is not None:
        raise ShapelineError(f"{where}: returned both masks and boxes; return one of them.")
    shape = np.array(size, np.int64)
    if masks is not None:
        return {
            "shape": shape,
            "categories": names[1:],
            "odd": Counter(),
            **_pack_masks(where, masks, labels, names, size),
        }
    categories = [str(name) for name in records.get("box_names") or names]
    if len(boxes) != len(labels):
        raise ShapelineError(
            f"{where}: boxes of {len(boxes)} records for {len(labels)} inputs; return boxes for each input."
        )
    odd: Counter = Counter({CLIPPED: 0, EMPTY: 0})
    clipped = []
    for record, array in enumerate(boxes):
        array = np.asarray(array).reshape(-1, 5) if np.size(array) == 0 else np.asarray(array)
        if array.ndim != 2 or array.shape[1] != 5 or (array.size and array.dtype.kind not in "iu"):
            raise ShapelineError(
                f"{where}: record {record} has boxes of shape {array.shape} and type {array.dtype}; give (k, 5) whole "
                "numbers: category, top, left, bottom, right."
            )
        unknown = array[(array[:, 0] < 0) | (array[:, 0] >= len(categories)), 0]
        if len(unknown):
            raise ShapelineError(
                f"{where}: record {record} has a box of category {unknown[0]} of {len(categories)}"
                "; return the number of a class."
            )
        inside, counts = clip(array, *size)
        odd.update(counts)
        clipped.append(inside)
    return {"shape": shape, "categories": categories, "odd": odd, "boxes": clipped}


def _pack_masks(where: str, masks: object, labels: np.ndarray, names: list[str], size: tuple[int, int]) -> dict:
    from scipy.ndimage import label as parts

    masks = np.asarray(masks)
    if masks.shape != (len(labels), *size) or masks.dtype != bool:
        raise ShapelineError(
            f"{where}: masks of shape {masks.shape} and type {masks.dtype}; give bool of shape {(len(labels), *size)}."
        )
    if labels.ndim == 2:
        raise ShapelineError(f"{where}: masks do not say of which label they are; with task multilabel return boxes.")
    if len(names) != 2:
        raise ShapelineError(f"{where}: masks need two classes, and there are {len(names)}; return boxes.")
    wrong = masks.any(axis=(1, 2)) & (labels == 0)
    if wrong.any():
        raise ShapelineError(
            f"{where}: record {int(np.argmax(wrong))} is '{names[0]}' and has a mask of '{names[1]}'"
            "; leave the mask out."
        )
    counts = np.array([parts(mask, np.ones((3, 3)))[1] for mask in masks], np.int64)
    return {"masks": np.packbits(masks.reshape(len(masks), -1), axis=1), "objects": counts}


def arrays(marked: dict, kept: np.ndarray, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays of truth.npz for the records that are kept."""
    shared = {"ids": ids, "shape": marked["shape"], "categories": np.array(marked["categories"])}
    if "masks" in marked:
        return {**shared, "masks": marked["masks"][kept], "objects": marked["objects"][kept]}
    boxes = [marked["boxes"][row] for row in kept]
    return {
        **shared,
        "boxes": np.concatenate([np.empty((0, 5), np.int32), *boxes]).astype(np.int32),
        "ends": np.cumsum([len(given) for given in boxes], dtype=np.int64),
    }


def describe_regions(stored: dict[str, np.ndarray]) -> dict:
    """Return the card entries of truth.npz: its kind, a digest, and the number of objects per category."""
    hashed = hashlib.sha256()
    for name in sorted(stored):
        hashed.update(f"{name} {stored[name].shape} {stored[name].dtype}\0".encode())
        hashed.update(np.ascontiguousarray(stored[name]).tobytes())
    names = stored["categories"].tolist()
    if "masks" in stored:
        counts = [int(stored["objects"].sum())]
    else:
        counts = np.bincount(stored["boxes"][:, 0], minlength=len(names)).tolist()
    return {
        "truth": "masks" if "masks" in stored else "boxes",
        "truth_digest": hashed.hexdigest(),
        "objects": dict(zip(names, counts, strict=True)),
    }


def _get_boxes(stored: dict, row: int) -> np.ndarray:
    return stored["boxes"][stored["ends"][row - 1] if row else 0 : stored["ends"][row]]


def _read_truth(
    folder: str | os.PathLike, ids: Iterable[int], labels: Iterable[int]
) -> tuple[dict, np.ndarray, np.ndarray]:
    """Return the arrays of truth.npz, the rows of the ids, and the category of each label (-1 without objects)."""
    folder = Path(folder)
    with explain_damage(folder):
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        stored = {}
        if card.get("truth"):
            with open(folder / FILE, "rb") as stream, np.load(stream, allow_pickle=False) as loaded:
                stored = dict(loaded)
    if not stored:
        raise ShapelineError(
            f"prepared dataset {folder}: where in its records the class is, is not known; use a dataset with regions."
        )
    ids = np.asarray(ids, np.int64).reshape(-1)
    order = np.argsort(stored["ids"])
    rows = order[np.searchsorted(stored["ids"], ids, sorter=order).clip(max=len(order) - 1)]
    unknown = ids[stored["ids"][rows] != ids]
    if len(unknown):
        raise ShapelineError(f"{folder / FILE}: there is no record {unknown[0]}; prepare the dataset again.")
    labels = np.broadcast_to(np.asarray(labels, np.int64), ids.shape)
    strange = labels[(labels < 0) | (labels >= len(card["classes"]))]
    if len(strange):
        raise ShapelineError(f"{folder / FILE}: {strange[0]} is no class; they are 0 to {len(card['classes']) - 1}.")
    categories = stored["categories"].tolist()
    of_class = np.array([categories.index(name) if name in categories else -1 for name in card["classes"]])
    return stored, rows, of_class[labels]


SUFFIXES = (".jpg", ".jpeg", ".png")
MODES = {"rgb": "RGB", "grey": "L"}
GREY, COLOUR, ALPHA = ("L", "1", "LA"), ("RGB", "P", "PA", "RGBA", "CMYK"), ("LA", "PA", "RGBA")
CHANGES = {"transparent": "blended with white", "CMYK": "converted to RGB"}


class Undecodable(ShapelineError):
    """The content of a file is no whole image."""


def decode_or_skip(on_decode_error: str, where: str, content: bytes, **how: Any) -> np.ndarray | None:
    """Return as `decode` does; None, with a warning, for an image that cannot be decoded under "skip"."""
    try:
        return decode(where, content, **how)
    except Undecodable as error:
        if on_decode_error == "stop":
            remedy = "replace or remove it, or set on_decode_error: skip"
            raise ShapelineError(f"{error}; {remedy}.") from error
        log.warning("%s, left out", error)
        return None


def decode(
    where: str,
    content: bytes,
    size: tuple[int, int] | None = None,
    resize: str = "resize",
    color: str = "rgb",
    limits: Limits = DEFAULT_LIMITS,
    changed: dict[str, list[str]] | None = None,
) -> np.ndarray:
    """Return a JPEG or PNG as (channels, height, width) uint8, turned as its camera says.

    size: of area-weighted bilinear interpolation; resize: "resize" changes the ratio of sides, "crop" cuts both
    ends; color: "rgb" refuses grey, "grey" is luma; limits: checked before decoding; changed: receives `where` of an
    image under the key of `CHANGES`; without it transparency is refused. Raises ShapelineError, Undecodable where the
    content is no whole image.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning):  # the limits decide
            image = Image.open(io.BytesIO(content), formats=("JPEG", "PNG"))
        limits.refuse(where, "pixels", math.prod(image.size))
        image.load()
        image = ImageOps.exif_transpose(image)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        reason = "neither JPEG nor PNG" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise Undecodable(f"{where}: cannot be decoded ({reason})") from error
    if image.mode not in (*GREY, *COLOUR):
        raise ShapelineError(f"{where}: is of mode {image.mode}; save it as RGB or grey, 8 bits per channel.")
    if image.mode in GREY and color == "rgb":
        raise ShapelineError(f"{where}: is grey and colour is expected; set color: grey, or save the image as RGB.")
    if (image.mode in ALPHA or "transparency" in image.info) and image.convert("RGBA").getextrema()[3][0] < 255:
        if changed is None:
            raise ShapelineError(f"{where}: is transparent and no background is known; save it without transparency.")
        changed.setdefault("transparent", []).append(where)
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    if image.mode == "CMYK" and changed is not None:
        changed.setdefault("CMYK", []).append(where)
    image = image.convert("RGB" if image.mode == "CMYK" else image.mode).convert(MODES[color])
    if size is not None:
        height, width = size
        if resize == "crop":
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        elif image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(np.moveaxis(pixels, 2, 0))


MISSING, UNREADABLE, CROPPED = "left_out_missing", "left_out_unreadable", "boxes_cropped_away"
MAX_NAMED = 10  # of the images left out, in the card
FARTHEST = 2**31  # pixels: what no image has, and what integers of 64 bits hold


@dataclass(frozen=True)
class Annotation:
    """What is known of an image: `where` for messages, boxes (category, top, left, bottom, right), part, sides."""

    where: str
    boxes: list[tuple[int, int, int, int, int]]
    part: int | None = None
    sides: tuple[int, int] | None = None


def read_annotated(
    path: Path,
    annotations: dict[str, Annotation],
    key: Callable[[str], str],
    size: list[int],
    resize: str,
    on_decode_error: str,
    limits: Limits = DEFAULT_LIMITS,
) -> dict:
    """Return a reader's images (n, 3, height, width) uint8 and boxes in their pixels; `kept`: their positions among
    the annotations, which are by name.

    key: the name of a file in `path`, "" for none; size, resize: see images.decode; on_decode_error: images missing or
    not decodable: "skip" counts and names them, "stop" is a ShapelineError.
    """
    rows = {name: row for row, name in enumerate(annotations)}
    inputs = np.zeros((len(annotations), 3, *size), np.uint8)
    boxes: list[np.ndarray | None] = [None] * len(annotations)
    counts, unreadable, resized = Counter({CLIPPED: 0, EMPTY: 0}), [], 0
    with archive.open_files(path, lambda name: key(name) in rows, limits) as files:
        for name, stream in files:
            row, annotation = rows[key(name)], annotations[key(name)]
            where, content = f"{path}: {name}", stream.read()
            if boxes[row] is not None:
                raise ShapelineError(f"{where}: is there twice; remove one.")
            pixels = decode_or_skip(on_decode_error, where, content, size=size, resize=resize, limits=limits)
            if pixels is None:
                unreadable.append(key(name))
                continue
            inputs[row] = pixels
            sides = _read_sides(content)
            if annotation.sides not in (None, sides):
                declared, stored = ("x".join(map(str, pair)) for pair in (annotation.sides, sides))
                raise ShapelineError(
                    f"{where}: has {stored} pixels and {annotation.where} says {declared}; get it again."
                )
            if any(abs(corner) >= FARTHEST for box in annotation.boxes for corner in box[1:]):
                raise ShapelineError(f"{where}: {annotation.where} has a box beyond {FARTHEST:,} pixels; get it again.")
            boxes[row], odd = fit_boxes(annotation.boxes, sides, size, resize)
            counts.update(odd)
            resized += sides != tuple(size)
    decoded = np.array([row for row, marked in enumerate(boxes) if marked is not None], np.int64)
    missing = [name for name, row in rows.items() if boxes[row] is None and name not in unreadable]
    if missing and (on_decode_error == "stop" or not len(decoded)):
        more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        remedy = "put it there" if not len(decoded) else "put it there, or set on_decode_error: skip"
        first = annotations[missing[0]].where
        raise ShapelineError(f"{path}: {first} names the image {missing[0]}, which is missing{more}; {remedy}.")
    if not len(decoded):
        raise ShapelineError(f"{path}: no image can be decoded; check path.")
    notes = [f"{resized} image(s) brought to {size[0]}x{size[1]} pixels"] if resized else []
    notes += warn_left_out(path, "missing", missing) + warn_left_out(path, "cannot be decoded", unreadable)
    return {
        "inputs": inputs if len(decoded) == len(inputs) else inputs[decoded],
        "boxes": [boxes[row] for row in decoded],
        "kept": decoded,
        "skipped": {MISSING: len(missing), UNREADABLE: len(unreadable)},
        "odd": dict(counts),
        "notes": notes,
    }


def warn_left_out(path: Path, what: str, names: list[str]) -> list[str]:
    """Return a warning and a note of the images that are left out, none where there are none."""
    if not names:
        return []
    log.warning("%s: %d image(s) left out: %s", path, len(names), what)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return [f"{what} and left out: {', '.join(names[:MAX_NAMED])}{more}"]


def fit_boxes(boxes: list, sides: tuple[int, int], size: list[int], resize: str) -> tuple[np.ndarray, Counter]:
    """Return boxes (k, 5) of an image of `sides` in pixels of one of `size`, covering all they touch, and those cut."""
    inside, counts = clip(np.array(boxes, np.int64).reshape(-1, 5), *sides)
    scale = np.array(size) / sides
    if resize == "crop":
        scale = np.full(2, scale.max())
    start = (np.array(sides) - np.array(size) / scale) / 2  # of the part of the image that stays
    corners = (inside[:, 1:].reshape(-1, 2, 2) - start) * scale
    # A corner that falls on the edge of a pixel must not move to the next by rounding of the last digit.
    corners[:, 0], corners[:, 1] = np.floor(corners[:, 0] + 1e-6), np.ceil(corners[:, 1] - 1e-6)
    moved = np.column_stack([inside[:, 0], corners.reshape(-1, 4).astype(np.int64)])
    seen, _ = clip(moved, *size)
    if resize == "crop":
        counts[CROPPED] = len(moved) - len(seen)
    return seen, counts


def file_name(path: str) -> str:
    """Return the name of an image's file without folders; "" for what is none."""
    file = PurePosixPath(path)
    return file.name if file.suffix.lower() in SUFFIXES else ""


def _read_sides(content: bytes) -> tuple[int, int]:
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        return image.height, image.width
