"""Images of a folder for each class (the user's, FER2013 of Goodfellow et al. 2013), CIFAR-10 (Krizhevsky 2009), and
frames of traffic lights by day (LISA, Jensen et al. 2016), positive where a light is green.
"""

import functools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from shapeline.datasets import archive, images
from shapeline.datasets.archive import Limits, choose_limits, open_binary, read_named_rows
from shapeline.datasets.images import UNREADABLE, Annotation
from shapeline.datasets.sources import PARTS, TEST, TRAIN, describe_subset
from shapeline.errors import ShapelineError, nearest

log = logging.getLogger(__name__)

# Folders above the class folders, which then are the split.
SPLITS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
LAYOUT = "<class>/<image>, or train|validation|test/<class>/<image>, all at one depth"


def read_folder(
    paths: dict[str, Path],
    size: list[int] | None = None,
    resize: str = "resize",
    color: str = "rgb",
    on_decode_error: str = "stop",
    limits: Limits | None = None,
) -> dict:
    """Return images (n, channels, height, width) uint8, labels, class names (folders, alphabetical), and split folders.

    Order: by part, class and file name. size, resize, color: see images.decode; without a size all are alike.
    on_decode_error: "skip" leaves out what cannot be decoded. Raises ShapelineError.
    """
    (path,) = paths.values()
    allowed = choose_limits(limits)
    changed: dict[str, list[str]] = {}
    how = {"size": size, "resize": resize, "color": color, "limits": allowed, "changed": changed}
    decode = functools.partial(images.decode_or_skip, on_decode_error, **how)
    kept, folders, others, unreadable = _decode_images(path, decode, allowed)
    if not kept:
        raise ShapelineError(f"{path}: holds no image ({', '.join(images.SUFFIXES)}); the layout is {LAYOUT}.")
    parts = _find_parts(path, list(kept), folders)
    names = sorted({file.parent.name for file in kept})
    if len(names) < 2:
        raise ShapelineError(f"{path}: holds one class folder, '{names[0]}'; a classifier needs two or more.")
    notes = []
    if len(set(parts.values())) == 1:
        (part,) = set(parts.values())
        notes += [f"all images lie in {part}, so the parts are drawn"] if part else []
        parts = None
    else:
        present = sorted(set(parts.values()))
        for part in sorted({TRAIN, TEST} - {SPLITS[name] for name in present}):
            listed = " and ".join(present)
            raise ShapelineError(f"{path}: holds {listed} but no {PARTS[part]} folder; rename one, or remove them.")
        notes += _note_absent(path, parts, names)
    if others:
        log.warning("%s: %d file(s) that are not images are ignored", path, len(others))
        notes.append(f"{len(others)} file(s) that are not images ignored")
    notes += images.warn_left_out(path, "cannot be decoded", sorted(unreadable))
    for kind, files in changed.items():
        log.warning("%s, the first of %d %s image(s): %s", files[0], len(files), kind, images.CHANGES[kind])
        notes.append(f"{len(files)} {kind} image(s) {images.CHANGES[kind]}")
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
    path: Path, decode: Callable[[str, bytes], np.ndarray | None], limits: Limits
) -> tuple[dict[PurePosixPath, np.ndarray], set[tuple[str, ...]], set[PurePosixPath], list[str]]:
    """Return the images below a folder or in an archive, all folders, other files, and the names of corrupt ones."""
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
        is_image = not hidden and file.suffix.lower() in images.SUFFIXES
        if not is_image:
            others.add(file)
        return is_image

    with archive.open_files(path, is_wanted, limits) as files:
        for name, stream in files:
            where = f"{path}: {name}"
            pixels = decode(where, stream.read())
            if pixels is None:
                unreadable.append(name)
                continue
            if kept and pixels.shape != (first := next(iter(kept.values()))).shape:
                sizes = " and ".join(f"{one.shape[1]}x{one.shape[2]}" for one in (pixels, first))
                raise ShapelineError(
                    f"{where}: has other sides than {next(iter(kept))} ({sizes} pixels); set size: [height, width]."
                )
            kept[PurePosixPath(name)] = pixels
    return kept, folders, others, unreadable


def _split_folder(folder: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the folders above split and class of a class folder, and the name of the split, "" without one."""
    part = folder[-2].lower() if len(folder) > 1 and folder[-2].lower() in SPLITS else ""
    return (folder[:-2] if part else folder[:-1]), part


def _find_parts(path: Path, files: list[PurePosixPath], folders: set[tuple[str, ...]]) -> dict[PurePosixPath, str]:
    """Return the split folder of each image, "" without. Raises ShapelineError for several depths and empty folders."""
    layouts: dict[tuple, PurePosixPath] = {}
    for file in files:
        if len(file.parts) == 1:
            raise ShapelineError(f"{path}: {file} lies in no class folder; the layout is {LAYOUT}.")
        root, part = _split_folder(file.parts[:-1])
        layouts.setdefault((root, bool(part)), file)
    if len(layouts) > 1:
        first, other = list(layouts.values())[:2]
        raise ShapelineError(f"{path}: {first} and {other} lie in two layouts; give one, {LAYOUT}.")
    ((root, split),) = layouts
    filled = {file.parts[:-1] for file in files}
    filled |= {folder[:-1] for folder in filled}
    for folder in sorted(folders):
        above, part = _split_folder(folder)
        is_class = (above, bool(part)) == (root, split)
        is_split = split and folder[:-1] == root and folder[-1].lower() in SPLITS
        if (is_class or is_split) and folder not in filled:
            raise ShapelineError(
                f"{path}: the folder {'/'.join(folder)} holds no image ({', '.join(images.SUFFIXES)}) that can be "
                "read; fill it or remove it."
            )
    return {file: _split_folder(file.parts[:-1])[1] for file in files}


def _note_absent(path: Path, parts: dict[PurePosixPath, str], names: list[str]) -> list[str]:
    """Return a note for each part that has no image of some class; of the training part the counts are an error."""
    filled, notes = {(SPLITS[part], file.parent.name) for file, part in parts.items()}, []
    for index in sorted({index for index, _ in filled} - {TRAIN}):
        if absent := [name for name in names if (index, name) not in filled]:
            notes.append(f"no image of {', '.join(absent)} in the {PARTS[index]} part")
            log.warning("%s: %s", path, notes[-1])
    return notes


FACES_CSV = "fer2013.csv"
FACES = ("happy", "sad")
EMOTIONS = {"3": "happy", "4": "sad"}  # of the seven in the csv
FACE_PARTS = {"train": 0, "test": 2}
USAGES = {"Training": 0, "PublicTest": 2, "PrivateTest": 2}
FACE_SIDE = 48
OTHER_FACES = "left_out_other_expressions"


def read_fer(paths: dict[str, Path], limits: Limits | None = None) -> dict:
    """Return happy and sad faces (n, 1, 48, 48) uint8, labels 0 and 1, and the official split, training first.

    Images that cannot be decoded are named and left out. paths: official file name -> csv, folder with
    {train,test}/{happy,sad}, or a tar. Raises ShapelineError.
    """
    (path,) = paths.values()
    skipped = Counter({OTHER_FACES: 0, UNREADABLE: 0})
    if path.suffix.lower() == ".csv":
        with open_binary(path) as stream:
            faces = list(_read_face_rows(str(path), stream, skipped))
    else:
        faces, allowed = [], choose_limits(limits, member=1000)  # the table is 301 MB, and never in memory as one

        def is_wanted(name: str) -> bool:
            return name.split("/")[-1] == FACES_CSV or _find_face(name) is not None

        with archive.open_files(path, is_wanted, allowed) as files:
            for name, stream in files:
                if _find_face(name) is None:
                    faces += _read_face_rows(f"{path}: {name}", stream, skipped)
                else:
                    faces += _read_face(path, name, stream.read(), skipped, allowed)
    if skipped[UNREADABLE]:
        log.warning("%s: %d image(s) left out", path, skipped[UNREADABLE])
    # Stable, so that rows stay in their order.
    faces.sort(key=lambda face: face[0])
    split = np.array([order[0] for order, _, _ in faces], np.uint8)
    labels = np.array([label for _, label, _ in faces], np.int64)
    for part in FACE_PARTS.values():
        for label, name in enumerate(FACES):
            if not ((split == part) & (labels == label)).any():
                layout = "{train,test}/{happy,sad}/*.jpg"
                raise ShapelineError(
                    f"{path}: holds no {name} face of the {PARTS[part]} part; fer wants {layout} or {FACES_CSV}."
                )
    return {
        "inputs": np.stack([pixels for _, _, pixels in faces])[:, None],
        "labels": labels,
        "split": split,
        "skipped": dict(skipped),
    }


def _find_face(name: str) -> tuple[int, str, str] | None:
    """Return part, class and file name of an image; None for other files."""
    part, folder, file = ([""] * 3 + name.split("/"))[-3:]
    known = part in FACE_PARTS and file.lower().endswith(images.SUFFIXES)
    return (FACE_PARTS[part], folder, file) if known else None


def _read_face(path: Path, name: str, content: bytes, skipped: Counter, limits: Limits) -> Iterator[tuple]:
    """Yield (order, label, pixels) of one image; nothing for another class or an image that cannot be decoded."""
    part, folder, file = _find_face(name)
    if folder not in FACES:
        skipped[OTHER_FACES] += 1
        return
    pixels = images.decode_or_skip("skip", f"{path}: {name}", content, color="grey", limits=limits)
    if pixels is None:
        skipped[UNREADABLE] += 1
        return
    height, width = pixels.shape[1:]
    if (height, width) != (FACE_SIDE, FACE_SIDE):
        raise ShapelineError(
            f"{path}: {name} has {height}x{width} pixels, expected {FACE_SIDE}x{FACE_SIDE}; get it again."
        )
    label = FACES.index(folder)
    yield (part, label, file), label, pixels[0]


def _read_face_rows(where: str, stream: BinaryIO, skipped: Counter) -> Iterator[tuple]:
    """Yield (order, label, pixels) of the rows of fer2013.csv or icml_face_data.csv."""
    for line, (emotion, text, usage) in read_named_rows(where, stream, ("emotion", "pixels", "usage")):
        if usage not in USAGES:
            raise ShapelineError(
                f"{where}, line {line}: the usage '{usage}' is not one of {', '.join(USAGES)}; get it again."
            )
        if emotion not in tuple("0123456"):
            raise ShapelineError(f"{where}, line {line}: the emotion '{emotion}' is not one of 0 to 6; get it again.")
        if emotion not in EMOTIONS:
            skipped[OTHER_FACES] += 1
            continue
        try:
            pixels = np.array(text.split(), np.int64)
        except (ValueError, OverflowError):
            pixels = np.array([-1])
        if len(pixels) != FACE_SIDE**2 or pixels.min() < 0 or pixels.max() > 255:
            count = len(text.split())
            raise ShapelineError(
                f"{where}, line {line}: {count:,} pixels; expected {FACE_SIDE**2:,} numbers from 0 to 255."
            )
        yield (
            (USAGES[usage], 0, ""),
            FACES.index(EMOTIONS[emotion]),
            pixels.astype(np.uint8).reshape(FACE_SIDE, FACE_SIDE),
        )


# In the order of the records; the last is the test part.
BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
CIFAR_SHAPE, CIFAR_CLASSES = (3, 32, 32), 10
CIFAR_PARTS = {"train": TRAIN, "test": TEST}  # in the names of other files of such records
CIFAR_RECORD = 1 + 3 * 32 * 32  # bytes: the label, then red, green and blue, each row by row


def read_cifar10(paths: dict[str, Path], limits: Limits | None = None) -> dict:
    """Read images (n, 3, 32, 32) uint8, labels 0..9, and the official split: five training batches, then test.

    paths: official file name -> .tar.gz, folder with the six .bin files, or folder with other files of such records,
    whose names have "train" or "test". Raises ShapelineError.
    """
    (path,) = paths.values()
    if path.is_dir() and not any((path / name).exists() for name in BATCHES):
        files = {file: part for word, part in CIFAR_PARTS.items() for file in sorted(path.glob(f"*{word}*.bin*"))}
        records = [_parse_records(str(file), archive.read_file(file, choose_limits(limits))) for file in files]
        rows = {file.name: len(batch) for file, batch in zip(files, records, strict=True)}
        return _join_batches(records, [*files.values()]) | {"subset": describe_subset(rows, "cifar-10-binary.tar.gz")}
    hint = "cifar10 reads the binary version, cifar-10-binary.tar.gz, and not the pickles of the python version"
    contents = archive.read_members(path, BATCHES, choose_limits(limits), hint)
    records = [_parse_records(f"{path}: {name}", contents[name]) for name in BATCHES]
    return _join_batches(records, [TEST if name == BATCHES[-1] else TRAIN for name in BATCHES])


def _parse_records(where: str, content: bytes) -> np.ndarray:
    """Return the records of a file, (n, CIFAR_RECORD) uint8; raise ShapelineError where it holds something else."""
    if not content or len(content) % CIFAR_RECORD:
        raise ShapelineError(
            f"{where}: has {len(content):,} bytes, not records of {CIFAR_RECORD:,} bytes; get it again."
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, CIFAR_RECORD)
    if (records[:, 0] >= CIFAR_CLASSES).any():
        record = int(np.argmax(records[:, 0] >= CIFAR_CLASSES))
        raise ShapelineError(
            f"{where}, record {record}: has the label {records[record, 0]}, expected 0 to 9; get it again."
        )
    return records


def _join_batches(batches: list[np.ndarray], parts: list[int]) -> dict:
    """Return the dictionary of a reader; parts: of each batch."""
    records = np.concatenate(batches)
    return {
        "inputs": records[:, 1:].reshape(-1, *CIFAR_SHAPE),
        "labels": records[:, 0],
        "split": np.repeat(parts, [len(batch) for batch in batches]).astype(np.uint8),
    }


FRAME_HEIGHT, FRAME_WIDTH = 960, 1280
LIGHT_FILE = "frameAnnotationsBOX.csv"
LIGHT_CLASSES = ("no green light", "green light")
GREEN_TAGS = ("go", "goForward", "goLeft")
LIGHT_TAGS = (*GREEN_TAGS, "stop", "stopLeft", "warning", "warningLeft")
LIGHT_NAMES = (*LIGHT_CLASSES, *LIGHT_TAGS[len(GREEN_TAGS) :])  # classes first: a green light is class and category 1
LIGHT_COLUMNS = (
    *("filename", "annotation_tag", "upper_left_corner_x", "upper_left_corner_y"),
    *("lower_right_corner_x", "lower_right_corner_y"),
)
# A frame's file is <sequence>--<number>; clips are the official training part, sequences the official test.
FRAME = re.compile(r"((day|night)(Clip|Sequence)\d+)--(\d+)")
FRAME_PARTS = {"Clip": TRAIN, "Sequence": TEST}


def read_lisa(
    paths: dict[str, Path],
    size: list[int] | None = None,
    resize: str = "resize",
    on_decode_error: str = "stop",
    limits: Limits | None = None,
) -> dict:
    """Return frames (n, 3, 960, 1280) uint8 or of `size`, labels 1 with a green light, the split, and all boxes.

    Order: training first, by sequence and number. boxes: of each frame (k, 5), category of LIGHT_NAMES first. paths:
    official file name -> the archive or its folder; "sample-" pieces repeat frames. Raises ShapelineError.
    """
    (path,) = paths.values()
    allowed = choose_limits(limits)
    frames: set[str] = set()
    boxes: dict[str, list] = {}  # of each frame that has some
    files_of: dict[str, str] = {}  # of each sequence, its file of boxes

    def is_wanted(name: str) -> bool:
        frame = _find_frame(name)
        frames.update([frame] if frame else [])
        return PurePosixPath(name).name == LIGHT_FILE and not _is_sample(name)

    with archive.open_files(path, is_wanted, allowed) as files:
        for name, stream in files:
            for frame, box in _read_lights(f"{path}: {name}", stream):
                sequence = FRAME.fullmatch(frame)[1]
                if files_of.setdefault(sequence, name) != name:
                    raise ShapelineError(
                        f"{path}: {name} and {files_of[sequence]} both have boxes of {sequence}; remove one."
                    )
                boxes.setdefault(frame, []).append(box)
    if not files_of:
        raise ShapelineError(f"{path}: holds no {LIGHT_FILE} of a sequence by day; lisa wants the folder Annotations.")
    annotations = {}
    for frame in sorted(frames | set(boxes), key=_order_frame):
        sequence, _, kind, _ = FRAME.fullmatch(frame).groups()
        if sequence not in files_of:
            raise ShapelineError(f"{path}: has frames of {sequence} and no {LIGHT_FILE} with its lights; get it again.")
        annotations[frame] = Annotation(files_of[sequence], boxes.get(frame, []), FRAME_PARTS[kind])
    for kind, part in FRAME_PARTS.items():
        if part not in {annotation.part for annotation in annotations.values()}:
            raise ShapelineError(
                f"{path}: holds no day{kind}, and so nothing for the {PARTS[part]} part; get it again."
            )
    records = images.read_annotated(
        path, annotations, _find_frame, size or [FRAME_HEIGHT, FRAME_WIDTH], resize, on_decode_error, allowed
    )
    return {
        **records,
        "box_names": LIGHT_NAMES,
        "labels": np.array([(marked[:, 0] == 1).any() for marked in records["boxes"]], np.int64),
        "split": np.array([annotation.part for annotation in annotations.values()], np.uint8)[records["kept"]],
    }


def _is_sample(path: str) -> bool:
    return any(part.startswith("sample-") for part in PurePosixPath(path).parts)


def _find_frame(path: str) -> str:
    """Return the name of a frame by day, without its suffix (.png where it was published, .jpg elsewhere); else ""."""
    if _is_sample(path):
        return ""
    frame = FRAME.fullmatch(PurePosixPath(images.file_name(path)).stem)
    return frame[0] if frame and frame[2] == "day" else ""


def _order_frame(frame: str) -> tuple:
    _, _, kind, number = FRAME.fullmatch(frame).groups()
    return FRAME_PARTS[kind], int(re.search(r"\d+", frame)[0]), int(number)


def _read_lights(where: str, stream) -> list[tuple[str, tuple]]:
    """Return (frame, box) per row of a file of boxes; none of frames by night."""
    boxes = []
    for line, (name, tag, *corners) in archive.read_named_rows(where, stream, LIGHT_COLUMNS, delimiter=";"):
        frame = FRAME.fullmatch(PurePosixPath(name).stem)
        if not frame:
            raise ShapelineError(f"{where}, line {line}: '{name}' names no frame (<sequence>--<number>); get it again.")
        if frame[2] == "night":
            continue
        if tag not in LIGHT_TAGS:
            raise ShapelineError(f"{where}, line {line}: the tag '{tag}' is unknown.{nearest(tag, LIGHT_TAGS)}")
        try:
            left, top, right, bottom = map(int, corners)
        except ValueError:
            raise ShapelineError(f"{where}, line {line}: a box of {corners}; its corners are whole numbers.") from None
        boxes.append((frame[0], (1 if tag in GREEN_TAGS else LIGHT_NAMES.index(tag), top, left, bottom, right)))
    return boxes
