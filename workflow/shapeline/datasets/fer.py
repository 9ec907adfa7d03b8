"""Facial expressions (FER2013, Goodfellow et al. 2013), happy and sad: class folders of images, or fer2013.csv."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from shapeline.datasets import archive, images
from shapeline.datasets.archive import Limits, of
from shapeline.datasets.sources import PARTS
from shapeline.datasets.text import open_binary, read_named_rows
from shapeline.errors import ShapelineError

log = logging.getLogger(__name__)

CSV = "fer2013.csv"
CLASSES = ("happy", "sad")
EMOTIONS = {"3": "happy", "4": "sad"}  # of the seven in the csv
FOLDERS = {"train": 0, "test": 2}
USAGES = {"Training": 0, "PublicTest": 2, "PrivateTest": 2}
SUFFIXES = (".jpg", ".jpeg", ".png")
SIDE = 48
OTHER, UNREADABLE = "left_out_other_expressions", "left_out_unreadable"


def read(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """Return happy and sad faces (n, 1, 48, 48) uint8, labels 0 and 1, and the official split, training first.

    Images that cannot be decoded are named and left out. paths: official file name -> csv, folder with
    {train,test}/{happy,sad}, or a tar. Raises ShapelineError.
    """
    (path,) = paths.values()
    skipped = Counter({OTHER: 0, UNREADABLE: 0})
    if path.suffix.lower() == ".csv":
        with open_binary(path) as stream:
            faces = list(_read_rows(str(path), stream, skipped))
    else:
        faces, allowed = [], of(limits, member=1000)  # the table is 301 MB, and never in memory as one

        def is_wanted(name: str) -> bool:
            return name.split("/")[-1] == CSV or _place(name) is not None

        with archive.open_files(path, is_wanted, allowed) as files:
            for name, stream in files:
                if _place(name) is None:
                    faces += _read_rows(f"{path}: {name}", stream, skipped)
                else:
                    faces += _read_image(path, name, stream.read(), skipped, allowed)
    if skipped[UNREADABLE]:
        log.warning("%s: %d image(s) left out", path, skipped[UNREADABLE])
    # Stable, so that rows stay in their order.
    faces.sort(key=lambda face: face[0])
    split = np.array([order[0] for order, _, _ in faces], np.uint8)
    labels = np.array([label for _, label, _ in faces], np.int64)
    for part in FOLDERS.values():
        for label, name in enumerate(CLASSES):
            if not ((split == part) & (labels == label)).any():
                layout = "{train,test}/{happy,sad}/*.jpg"
                raise ShapelineError(
                    f"{path}: holds no {name} face of the {PARTS[part]} part; fer wants {layout} or {CSV}."
                )
    return {
        "inputs": np.stack([pixels for _, _, pixels in faces])[:, None],
        "labels": labels,
        "split": split,
        "skipped": dict(skipped),
    }


def _place(name: str) -> tuple[int, str, str] | None:
    """Part, class and file name of an image; None for all else."""
    part, folder, file = ([""] * 3 + name.split("/"))[-3:]
    known = part in FOLDERS and file.lower().endswith(SUFFIXES)
    return (FOLDERS[part], folder, file) if known else None


def _read_image(path: Path, name: str, content: bytes, skipped: Counter, limits: Limits) -> Iterator[tuple]:
    """(order, label, pixels) of one image; nothing of another class, or where it cannot be decoded."""
    part, folder, file = _place(name)
    if folder not in CLASSES:
        skipped[OTHER] += 1
        return
    try:
        (pixels,) = images.decode(f"{path}: {name}", content, color="grey", limits=limits)
    except images.Undecodable as error:
        log.warning("%s, left out", error)
        skipped[UNREADABLE] += 1
        return
    if pixels.shape != (SIDE, SIDE):
        height, width = pixels.shape
        raise ShapelineError(f"{path}: {name} has {height}x{width} pixels, expected {SIDE}x{SIDE}; get it again.")
    label = CLASSES.index(folder)
    yield (part, label, file), label, pixels


def _read_rows(where: str, stream: BinaryIO, skipped: Counter) -> Iterator[tuple]:
    """(order, label, pixels) of the rows of fer2013.csv or icml_face_data.csv."""
    for line, (emotion, text, usage) in read_named_rows(where, stream, ("emotion", "pixels", "usage")):
        if usage not in USAGES:
            raise ShapelineError(
                f"{where}, line {line}: the usage '{usage}' is not one of {', '.join(USAGES)}; get it again."
            )
        if emotion not in tuple("0123456"):
            raise ShapelineError(f"{where}, line {line}: the emotion '{emotion}' is not one of 0 to 6; get it again.")
        if emotion not in EMOTIONS:
            skipped[OTHER] += 1
            continue
        try:
            pixels = np.array(text.split(), np.int64)
        except (ValueError, OverflowError):
            pixels = np.array([-1])
        if len(pixels) != SIDE**2 or pixels.min() < 0 or pixels.max() > 255:
            count = len(text.split())
            raise ShapelineError(f"{where}, line {line}: {count:,} pixels; expected {SIDE**2:,} numbers from 0 to 255.")
        yield (USAGES[usage], 0, ""), CLASSES.index(EMOTIONS[emotion]), pixels.astype(np.uint8).reshape(SIDE, SIDE)
