"""Custom images: a folder, or an archive of one, with a folder for each class."""

import functools
import logging
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy as np

from shapeline.datasets import archive, images
from shapeline.datasets.archive import Limits, of
from shapeline.datasets.sources import PARTS, TEST, TRAIN
from shapeline.errors import ShapelineError

log = logging.getLogger(__name__)

# Folders above the class folders, which then are the split.
SPLITS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
LAYOUT = "<class>/<image>, or train|validation|test/<class>/<image>, all at one depth"
UNREADABLE = "left_out_unreadable"
MAX_NAMED = 10  # of the images left out, in the card


def read(
    paths: dict[str, Path],
    size: list[int] | None = None,
    resize: str = "resize",
    color: str = "rgb",
    on_decode_error: str = "stop",
    limits: dict | None = None,
) -> dict:
    """Return images (n, channels, height, width) uint8, labels, class names (folders, alphabetical), and split folders.

    Order: by part, class and file name. size, resize, color: see images.decode; without a size all are alike.
    on_decode_error: "skip" leaves out what cannot be decoded. Raises ShapelineError.
    """
    (path,) = paths.values()
    allowed = of(limits)
    decode = functools.partial(images.decode, size=size, resize=resize, color=color, limits=allowed)
    kept, folders, others, unreadable = _decode_images(path, decode, on_decode_error, allowed)
    if not kept:
        raise ShapelineError(f"{path}: holds no image ({', '.join(images.SUFFIXES)}); the layout is {LAYOUT}.")
    parts = _parts(path, list(kept), folders)
    names = sorted({file.parent.name for file in kept})
    if len(names) < 2:
        raise ShapelineError(f"{path}: holds one class folder, '{names[0]}'; a classifier needs two or more.")
    notes = []
    if len(set(parts.values())) == 1:
        (part,) = set(parts.values())
        notes += [f"all images lie in {part}, so the parts are drawn"] if part else []
        parts = None
    else:
        _check_split(path, set(parts.values()))
        notes += _absent(path, parts, names)
    if others:
        log.warning("%s: %d file(s) that are not images are ignored", path, len(others))
        notes.append(f"{len(others)} file(s) that are not images ignored")
    if unreadable:
        more = f" and {len(unreadable) - MAX_NAMED} more" if len(unreadable) > MAX_NAMED else ""
        notes.append(f"cannot be decoded and left out: {', '.join(sorted(unreadable)[:MAX_NAMED])}{more}")
    order = sorted(kept, key=lambda file: (SPLITS[parts[file]] if parts else 0, file.parts[-2:], file))
    return {
        "inputs": np.stack([kept[file] for file in order]),
        "labels": np.array([names.index(file.parent.name) for file in order]),
        "class_names": names,
        "split": np.array([SPLITS[parts[file]] for file in order], np.uint8) if parts else None,
        "skipped": {UNREADABLE: len(unreadable)},
        "notes": notes,
    }


def _decode_images(
    path: Path, decode: Callable[[str, bytes], np.ndarray], on_decode_error: str, limits: Limits
) -> tuple[dict[PurePosixPath, np.ndarray], set[tuple[str, ...]], set[PurePosixPath], list[str]]:
    """The images below a folder or in an archive, all folders, other files, and the names of corrupt ones."""
    kept: dict[PurePosixPath, np.ndarray] = {}
    folders: set[tuple[str, ...]] = set()
    others, unreadable = set(), []

    def is_wanted(name: str) -> bool:
        file = PurePosixPath(name)
        hidden = any(part.startswith(".") or part == "__MACOSX" for part in file.parts)
        is_folder = name.endswith("/")
        folder = file.parts if is_folder else file.parts[:-1]
        if folder and not hidden:
            folders.add(folder)
        if is_folder:
            return False
        is_picture = not hidden and file.suffix.lower() in images.SUFFIXES
        if not is_picture:
            others.add(file)
        return is_picture

    with archive.open_files(path, is_wanted, limits) as files:
        for name, stream in files:
            where = f"{path}: {name}"
            try:
                pixels = decode(where, stream.read())
            except images.Undecodable as error:
                if on_decode_error == "stop":
                    remedy = "replace or remove it, or set on_decode_error: skip"
                    raise ShapelineError(f"{error}; {remedy}.") from error
                log.warning("%s, left out", error)
                unreadable.append(name)
                continue
            if kept and pixels.shape != (first := next(iter(kept.values()))).shape:
                sizes = " and ".join(f"{one.shape[1]}x{one.shape[2]}" for one in (pixels, first))
                raise ShapelineError(
                    f"{where}: has other sides than {next(iter(kept))} ({sizes} pixels); set size: [height, width]."
                )
            kept[PurePosixPath(name)] = pixels
    return kept, folders, others, unreadable


def _place(folder: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Of a class folder: the folders above split and class, and the name of the split, "" without one."""
    part = folder[-2].lower() if len(folder) > 1 and folder[-2].lower() in SPLITS else ""
    return (folder[:-2] if part else folder[:-1]), part


def _parts(path: Path, files: list[PurePosixPath], folders: set[tuple[str, ...]]) -> dict[PurePosixPath, str]:
    """Return the split folder of each image, "" without; ShapelineError for several depths and empty folders."""
    layouts: dict[tuple, PurePosixPath] = {}
    for file in files:
        if len(file.parts) == 1:
            raise ShapelineError(f"{path}: {file} lies in no class folder; the layout is {LAYOUT}.")
        root, part = _place(file.parts[:-1])
        layouts.setdefault((root, bool(part)), file)
    if len(layouts) > 1:
        first, other = list(layouts.values())[:2]
        raise ShapelineError(f"{path}: {first} and {other} lie in two layouts; give one, {LAYOUT}.")
    ((root, split),) = layouts
    filled = {file.parts[:-1] for file in files}
    filled |= {folder[:-1] for folder in filled}
    for folder in sorted(folders):
        above, part = _place(folder)
        is_class = (above, bool(part)) == (root, split)
        is_split = split and folder[:-1] == root and folder[-1].lower() in SPLITS
        if (is_class or is_split) and folder not in filled:
            raise ShapelineError(
                f"{path}: the folder {'/'.join(folder)} holds no image ({', '.join(images.SUFFIXES)}) that can be "
                "read; fill it or remove it."
            )
    return {file: _place(file.parts[:-1])[1] for file in files}


def _absent(path: Path, parts: dict[PurePosixPath, str], names: list[str]) -> list[str]:
    """A note for each part that has no image of some class; of the training part the counts are an error."""
    filled, notes = {(SPLITS[part], file.parent.name) for file, part in parts.items()}, []
    for index in sorted({index for index, _ in filled} - {TRAIN}):
        if absent := [name for name in names if (index, name) not in filled]:
            notes.append(f"no image of {', '.join(absent)} in the {PARTS[index]} part")
            log.warning("%s: %s", path, notes[-1])
    return notes


def _check_split(path: Path, present: set[str]) -> None:
    for needed in (TRAIN, TEST):
        if needed not in {SPLITS[part] for part in present}:
            listed = " and ".join(sorted(present))
            raise ShapelineError(f"{path}: holds {listed} but no {PARTS[needed]} folder; rename one, or remove them.")
