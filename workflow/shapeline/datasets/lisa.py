"""Traffic lights (LISA, Jensen et al. 2016) by day: frames of driving, positive where a light is green."""

import re
from pathlib import Path, PurePosixPath

import numpy as np

from shapeline.datasets import archive, images
from shapeline.datasets.archive import of
from shapeline.datasets.images import Annotation
from shapeline.datasets.sources import PARTS, TEST, TRAIN
from shapeline.errors import ShapelineError, nearest

HEIGHT, WIDTH = 960, 1280
BOXES = "frameAnnotationsBOX.csv"
CLASSES = ("no green light", "green light")
GREEN = ("go", "goForward", "goLeft")
TAGS = (*GREEN, "stop", "stopLeft", "warning", "warningLeft")
BOX_NAMES = (*CLASSES, *TAGS[len(GREEN) :])  # the classes first: every green light is class 1 and category 1
COLUMNS = (
    *("filename", "annotation_tag", "upper_left_corner_x", "upper_left_corner_y"),
    *("lower_right_corner_x", "lower_right_corner_y"),
)
# A frame's file is <sequence>--<number>; clips are the official training part, sequences the official test.
FRAME = re.compile(r"((day|night)(Clip|Sequence)\d+)--(\d+)")
KINDS = {"Clip": TRAIN, "Sequence": TEST}


def read(
    paths: dict[str, Path],
    size: list[int] | None = None,
    resize: str = "resize",
    on_decode_error: str = "stop",
    limits: dict | None = None,
) -> dict:
    """Return frames (n, 3, 960, 1280) uint8 or of `size`, labels 1 with a green light, the split, and all boxes.

    Order: training first, by sequence and number. boxes: of each frame (k, 5), category of BOX_NAMES first. paths:
    official file name -> the archive or its folder; "sample-" pieces repeat frames. Raises ShapelineError.
    """
    (path,) = paths.values()
    allowed = of(limits)
    frames: set[str] = set()
    boxes: dict[str, list] = {}  # of each frame that has some
    files_of: dict[str, str] = {}  # of each sequence, its file of boxes

    def is_wanted(name: str) -> bool:
        frame = _frame(name)
        frames.update([frame] if frame else [])
        return PurePosixPath(name).name == BOXES and not _is_sample(name)

    with archive.open_files(path, is_wanted, allowed) as files:
        for name, stream in files:
            for frame, box in _rows(f"{path}: {name}", stream):
                sequence = FRAME.fullmatch(frame)[1]
                if files_of.setdefault(sequence, name) != name:
                    raise ShapelineError(
                        f"{path}: {name} and {files_of[sequence]} both have boxes of {sequence}; remove one."
                    )
                boxes.setdefault(frame, []).append(box)
    if not files_of:
        raise ShapelineError(f"{path}: holds no {BOXES} of a sequence by day; lisa wants the folder Annotations.")
    asked = {}
    for frame in sorted(frames | set(boxes), key=_order):
        sequence, _, kind, _ = FRAME.fullmatch(frame).groups()
        if sequence not in files_of:
            raise ShapelineError(f"{path}: has frames of {sequence} and no {BOXES} with its lights; get it again.")
        asked[frame] = Annotation(files_of[sequence], boxes.get(frame, []), KINDS[kind])
    for kind, part in KINDS.items():
        if part not in {annotation.part for annotation in asked.values()}:
            raise ShapelineError(
                f"{path}: holds no day{kind}, and so nothing for the {PARTS[part]} part; get it again."
            )
    records = images.read_annotated(path, asked, _frame, size or [HEIGHT, WIDTH], resize, on_decode_error, allowed)
    return {
        **records,
        "box_names": BOX_NAMES,
        "labels": np.array([(marked[:, 0] == 1).any() for marked in records["boxes"]], np.int64),
        "split": np.array([annotation.part for annotation in asked.values()], np.uint8)[records["kept"]],
    }


def _is_sample(path: str) -> bool:
    return any(part.startswith("sample-") for part in PurePosixPath(path).parts)


def _frame(path: str) -> str:
    """Return the name of a frame by day, without its suffix (.png where it was published, .jpg elsewhere); else ""."""
    if _is_sample(path):
        return ""
    frame = FRAME.fullmatch(PurePosixPath(images.file_name(path)).stem)
    return frame[0] if frame and frame[2] == "day" else ""


def _order(frame: str) -> tuple:
    _, _, kind, number = FRAME.fullmatch(frame).groups()
    return KINDS[kind], int(re.search(r"\d+", frame)[0]), int(number)


def _rows(where: str, stream) -> list[tuple[str, tuple]]:
    """Return (frame, box) per row of a file of boxes; none of frames by night."""
    boxes = []
    for line, (name, tag, *corners) in archive.read_named_rows(where, stream, COLUMNS, delimiter=";"):
        frame = FRAME.fullmatch(PurePosixPath(name).stem)
        if not frame:
            raise ShapelineError(f"{where}, line {line}: '{name}' names no frame (<sequence>--<number>); get it again.")
        if frame[2] == "night":
            continue
        if tag not in TAGS:
            raise ShapelineError(f"{where}, line {line}: the tag '{tag}' is unknown.{nearest(tag, TAGS)}")
        try:
            left, top, right, bottom = map(int, corners)
        except ValueError:
            raise ShapelineError(f"{where}, line {line}: a box of {corners}; its corners are whole numbers.") from None
        boxes.append((frame[0], (1 if tag in GREEN else BOX_NAMES.index(tag), top, left, bottom, right)))
    return boxes
