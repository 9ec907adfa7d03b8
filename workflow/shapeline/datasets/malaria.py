"""Malaria (BBBC041, Ljosa et al. 2012): blood smears with a box around each cell; positive with a trophozoite."""

import json
from pathlib import Path, PurePosixPath

import numpy as np

from shapeline.datasets import archive, images
from shapeline.datasets.archive import Limits, choose_limits
from shapeline.datasets.images import Annotation
from shapeline.datasets.sources import TEST, TRAIN, VALIDATION
from shapeline.errors import ShapelineError, nearest, shorten_name
from shapeline.seeds import seed_of

HEIGHT, WIDTH = 1200, 1600  # of the training images; those of the official test are 1383x1944
# Files of annotations: the part that their images are for. annotations.json is that of a sample, without parts.
PARTS = {"training.json": TRAIN, "test.json": TEST, "annotations.json": None}
CLASSES = ("no trophozoite", "trophozoite")
LABELS = ("trophozoite", "ring")  # of task multilabel (Teneggi et al. 2021, figure 6)
CATEGORIES = ("trophozoite", "ring", "schizont", "gametocyte", "leukocyte", "red blood cell", "difficult")
BOX_NAMES = (CLASSES[0], *CATEGORIES)  # the classes first: a trophozoite is class 1 and category 1
CROP, CROPS = 200, 8  # side of a crop in pixels, wider than any cell; how many show each trophozoite
SIDES = (("minimum", "r"), ("minimum", "c"), ("maximum", "r"), ("maximum", "c"))


def read(
    paths: dict[str, Path],
    size: list[int] | None = None,
    resize: str = "resize",
    on_decode_error: str = "stop",
    task: str = "classification",
    limits: Limits | None = None,
) -> dict:
    """Return slides (n, 3, 1200, 1600) uint8 or of `size`, labels 1 with a trophozoite, the split, and all boxes.

    paths: malaria.zip, its folder, or a sample's with annotations.json, without a split. task: multilabel gives
    labels (n, 2), trophozoite and ring. Raises ShapelineError.
    """
    (path,) = paths.values()
    allowed = choose_limits(limits)
    listed: dict[str, list] = {}
    with archive.open_files(path, lambda name: PurePosixPath(name).name in PARTS, allowed) as files:
        for name, stream in files:
            if PurePosixPath(name).name in listed:
                raise ShapelineError(f"{path}: {name} is there twice; remove one.")
            listed[PurePosixPath(name).name] = _read_annotations(path, name, stream.read())
    if not {"training.json", "annotations.json"} & set(listed):
        raise ShapelineError(f"{path}: holds no training.json; malaria wants it, test.json and the folder images.")
    if "training.json" in listed:
        listed.pop("annotations.json", None)
    annotations: dict[str, Annotation] = {}
    for name in filter(listed.get, PARTS):
        for image_name, annotation in listed[name]:
            if image_name in annotations:
                raise ShapelineError(f"{annotation.where}: names the image {image_name} a second time; remove one.")
            annotations[image_name] = annotation
    records = images.read_annotated(
        path, annotations, images.file_name, size or [HEIGHT, WIDTH], resize, on_decode_error, allowed
    )
    parts = [annotation.part for annotation in annotations.values()]
    shown = [[(boxes[:, 0] == BOX_NAMES.index(name)).any() for name in LABELS] for boxes in records["boxes"]]
    several = task == "multilabel"
    return {
        **records,
        "box_names": BOX_NAMES,
        **({"task": task, "class_names": LABELS} if several else {}),
        "labels": np.array(shown, np.int64) if several else np.array(shown, np.int64)[:, 0],
        "split": np.array(parts, np.uint8)[records["kept"]] if TEST in parts else None,
    }


def crops(path: str, held_out: int = 0, seed: int = 0) -> dict:
    """Return crops (n, 3, 200, 200) uint8 of a few slides, half round a trophozoite, half background, by slide.

    Name it as a dataset's source. held_out: the slide for the test; the next is for validation.
    """
    slides = read({"slides": Path(path)})
    random = np.random.default_rng(seed_of("malaria crops", seed))
    inputs, labels, boxes_seen, split = [], [], [], []
    for number, (slide, boxes) in enumerate(zip(slides["inputs"], slides["boxes"], strict=True)):
        boxes = boxes[boxes[:, 0] == 1]
        highest = np.array(slide.shape[1:]) - CROP
        for top, left in [*_crop_around(boxes, highest, random), *_sample_corners(boxes, highest, random)]:
            seen, _ = images.clip(boxes - [0, top, left, top, left], CROP, CROP)
            inputs.append(slide[:, top : top + CROP, left : left + CROP])
            labels.append(int(len(seen) > 0))
            boxes_seen.append(seen)
            place = (number - held_out) % len(slides["inputs"])
            split.append({0: TEST, 1: VALIDATION}.get(place, TRAIN))
    return {
        "inputs": np.stack(inputs),
        "labels": labels,
        "class_names": CLASSES,
        "split": split,
        "boxes": boxes_seen,
        "box_names": CLASSES,
    }


def _crop_around(boxes: np.ndarray, highest: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Return corners (top, left) of crops with a whole box, or with its middle if it is wider than a crop."""
    middle, sides = (boxes[:, 1:3] + boxes[:, 3:5]) // 2, boxes[:, 3:5] - boxes[:, 1:3]
    margin = np.maximum(CROP - sides, 0) // 2
    shifts = random.integers(-margin, margin, size=(CROPS, *margin.shape), endpoint=True)
    return list((middle - CROP // 2 + shifts).clip(0, highest).reshape(-1, 2))


def _sample_corners(boxes: np.ndarray, highest: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Return equally many corners of crops without a part of a box."""
    drawn = random.integers(highest, size=(100 * CROPS * len(boxes), 2), endpoint=True)
    apart = (drawn[:, None] >= boxes[:, 3:5]) | (drawn[:, None] + CROP <= boxes[:, 1:3])
    return list(drawn[apart.any(axis=2).all(axis=1)][: CROPS * len(boxes)])


def _read_annotations(path: Path, name: str, content: bytes) -> list[tuple[str, Annotation]]:
    where = f"{path}: {name}"
    try:
        entries = json.loads(content)
    except ValueError as error:
        raise ShapelineError(f"{where}: no JSON ({error}); get it again.") from error
    if not isinstance(entries, list) or not entries:
        raise ShapelineError(f"{where}: holds no list of images; get it again.")
    part = PARTS[PurePosixPath(name).name]
    annotations = []
    for number, entry in enumerate(entries):
        try:
            image = entry["image"]
            image_name = shorten_name(image if isinstance(image, str) else image["pathname"])
            shape = {} if isinstance(image, str) else image.get("shape", {})
            sides = (shape["r"], shape["c"]) if shape else None
            objects = [
                (cell["category"], *(cell["bounding_box"][end][axis] for end, axis in SIDES))
                for cell in entry["objects"]
            ]
        except (TypeError, KeyError, AttributeError) as error:
            raise ShapelineError(
                f"{where}, entry {number}: not in the official form ({error!r}); get it again."
            ) from error
        boxes = []
        for category, *corners in objects:
            if category not in CATEGORIES:
                raise ShapelineError(
                    f"{where}, image {image_name}: the category '{shorten_name(category)}' is unknown."
                    f"{nearest(category, CATEGORIES)}"
                )
            if not all(type(corner) is int for corner in corners):
                raise ShapelineError(f"{where}, image {image_name}: a box of {corners}; its corners are whole numbers.")
            boxes.append((BOX_NAMES.index(category), *corners))
        file = images.file_name(str(image_name))
        if not file:
            raise ShapelineError(f"{where}, entry {number}: '{image_name}' names no image; get it again.")
        annotations.append((file, Annotation(name, boxes, part, sides)))
    return annotations
