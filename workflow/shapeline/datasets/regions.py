"""Where in an image its class is, masks or boxes of objects, as truth.npz beside the arrays has it."""

import hashlib
import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from shapeline.errors import ShapelineError

FILE = "truth.npz"
CLIPPED, EMPTY = "boxes_clipped", "boxes_outside_left_out"
DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


def truth(folder: str | os.PathLike, ids: Iterable[int], labels: Iterable[int]) -> np.ndarray:
    """Return the pixels of a class's objects in records (n, height, width) bool; ShapelineError if unknown."""
    stored, rows, wanted = _read_truth(folder, ids, labels)
    height, width = stored["shape"].tolist()
    shown = np.zeros((len(rows), height, width), bool)
    if "masks" in stored:
        chosen = np.flatnonzero(wanted == 0)
        packed = stored["masks"][rows[chosen]]
        shown[chosen] = np.unpackbits(packed, axis=1, count=height * width).reshape(-1, height, width)
        return shown
    for place, (row, category) in enumerate(zip(rows, wanted, strict=True)):
        for index, top, left, bottom, right in _boxes(stored, row):
            if index == category:
                shown[place, top:bottom, left:right] = True
    return shown


def objects(folder: str | os.PathLike, ids: Iterable[int], labels: Iterable[int]) -> np.ndarray:
    """Return how many objects of a class records hold (n,): boxes, or connected parts of a mask (corners connect)."""
    stored, rows, wanted = _read_truth(folder, ids, labels)
    if "masks" in stored:
        return np.where(wanted == 0, stored["objects"][rows], 0).astype(np.int64)
    counts = [(_boxes(stored, row)[:, 0] == category).sum() for row, category in zip(rows, wanted, strict=True)]
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
        return {"shape": shape, "categories": names[1:], "odd": Counter(), **_masks(where, masks, labels, names, size)}
    categories = [str(name) for name in records.get("box_names") or names]
    if len(boxes) != len(labels):
        raise ShapelineError(
            f"{where}: boxes of {len(boxes)} records for {len(labels)} inputs; return boxes for each input."
        )
    odd: Counter = Counter({CLIPPED: 0, EMPTY: 0})
    kept = []
    for record, given in enumerate(boxes):
        given = np.asarray(given).reshape(-1, 5) if np.size(given) == 0 else np.asarray(given)
        if given.ndim != 2 or given.shape[1] != 5 or (given.size and given.dtype.kind not in "iu"):
            raise ShapelineError(
                f"{where}: record {record} has boxes of shape {given.shape} and type {given.dtype}; give (k, 5) whole "
                "numbers: category, top, left, bottom, right."
            )
        strange = given[(given[:, 0] < 0) | (given[:, 0] >= len(categories)), 0]
        if len(strange):
            raise ShapelineError(
                f"{where}: record {record} has a box of category {strange[0]} of {len(categories)}"
                "; return the number of a class."
            )
        inside, counts = clip(given, *size)
        odd.update(counts)
        kept.append(inside)
    return {"shape": shape, "categories": categories, "odd": odd, "boxes": kept}


def _masks(where: str, masks: object, labels: np.ndarray, names: list[str], size: tuple[int, int]) -> dict:
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


def _boxes(stored: dict, row: int) -> np.ndarray:
    return stored["boxes"][stored["ends"][row - 1] if row else 0 : stored["ends"][row]]


def _read_truth(
    folder: str | os.PathLike, ids: Iterable[int], labels: Iterable[int]
) -> tuple[dict, np.ndarray, np.ndarray]:
    """Return the arrays of truth.npz, the rows of the ids, and the category of each label (-1 without objects)."""
    folder = Path(folder)
    again = "delete the folder of the dataset and run again"
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        stored = {}
        if card.get("truth"):
            with open(folder / FILE, "rb") as stream, np.load(stream, allow_pickle=False) as loaded:
                stored = dict(loaded)
    except FileNotFoundError as error:
        raise ShapelineError(f"{error.filename}: is missing; {again}.") from error
    except DAMAGE as error:
        raise ShapelineError(f"{folder / FILE}: damaged ({error}); {again}.") from error
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
