"""A model that comes ready, a folder of transformers or an ONNX file: the data that it takes, and those beside it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from shapeline.datasets import folders
from shapeline.datasets.table_file import SUFFIXES
from shapeline.errors import ShapelineError
from shapeline.models import pretrained_kinds

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
UNNAMED = re.compile(r"label_\d+")
FEWEST = 16  # patches of an image that are explained


@dataclass(frozen=True)
class Ready:
    """source: as configured; kind: of data; labels: of classes; sides: of images, or columns, None for any; patch: its
    side."""

    source: str
    kind: str
    labels: frozenset[str] = frozenset()
    sides: tuple[int, ...] | None = None
    patch: int | None = None

    def check(self, kind: str, path: Path, labels: set[str]) -> None:
        """ShapelineError where data are of another kind, or have other classes."""
        if kind != self.kind:
            raise ShapelineError(
                f"{self.source}: takes {_many(self.kind)}, and {path} holds {_many(kind)}; give data of its kind"
            )
        if self.labels and labels != self.labels:
            own, there = (", ".join(sorted(names)[:10]) for names in (self.labels, labels))
            raise ShapelineError(f"{self.source}: has the classes {own}, and {path} has {there}; give them one name")


def is_model(path: Path) -> bool:
    return path.suffix == ".onnx" or (path / "config.json").is_file()


def ready(path: Path) -> Ready:
    """What a model says of itself. Raises ShapelineError for one that the workflow would refuse."""
    if not path.exists():
        raise ShapelineError(f"{path}: file not found; check the path")
    source = str(path.resolve())
    if path.suffix == ".onnx":
        return _onnx(source, path.read_bytes())
    if not folders.names_folder(source):
        raise ShapelineError(f"{source}: a model's folder has no suffix in its name, and its path no colon; rename it")
    kind = folders.kind_of(source)
    folders.check_model(source, kind)
    if kind == "text":
        folders.check_tokenizer(source)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    labels = frozenset(str(label).casefold() for label in config.get("id2label", {}).values())
    labels = frozenset() if all(UNNAMED.fullmatch(label) for label in labels) else labels
    if kind == "text":
        return Ready(source, kind, labels)
    patch = config.get("patch_size")
    return Ready(source, kind, labels, folders.picture_shape(source), patch if isinstance(patch, int) else None)


def _onnx(source: str, content: bytes) -> Ready:
    from shapeline.models import onnx_file

    shape, whole = onnx_file.takes(source, content)
    if len(shape) == 1 and not whole:
        return Ready(source, "table", sides=shape if isinstance(shape[0], int) else None)
    if len(shape) == 3:
        channels, *sides = shape if shape[0] in (1, 3) else (shape[2], *shape[:2])
        if channels in (1, 3):
            known = all(isinstance(side, int) for side in sides)
            return Ready(source, "image", sides=(channels, *sides) if known else None)
    rows = f"rows of shape {shape}{' of whole numbers' if whole else ''}"
    raise ShapelineError(
        f"{source}: takes {rows}, neither columns nor images; write its configuration by hand: docs/own_data.md"
    )


def gradient_methods(source: str | None, path: bool = True) -> list[str]:
    """Return lines of gradient methods of a network, none of other models; path: whether the baseline is an input."""
    if source is not None and pretrained_kinds.kind_of(source, None) not in (".keras", "folder"):
        return []
    if not path:
        return ["gradient_x_input: {method: gradient_x_input}    # control: one gradient"]
    return [
        "integrated_gradients: {method: integrated_gradients}",
        "gradient_x_difference: {method: gradient_x_difference}    # control: one gradient",
    ]


def data_beside(path: Path, kind: str) -> Path:
    """The one table, or folder of images by class, in a model's folder or beside it."""
    places = [path.resolve(), path.resolve().parent] if path.is_dir() else [path.resolve().parent]
    there = [one for place in places for one in sorted(place.iterdir()) if one != path.resolve()]
    found = [one for one in there if (_is_pictures(one) if kind == "image" else one.suffix.lower() in SUFFIXES)]
    if len(found) != 1:
        names = ", ".join(one.name for one in found[:5])
        which = f"more than one that could be its data ({names})" if found else "no data"
        raise ShapelineError(
            f"{path}: is a model of {_many(kind)}, with {which} beside it; say which: shapeline init DATA --model "
            f"{path}"
        )
    return found[0]


def patch_of(side: int, own: int | None) -> int:
    """A side of the patches that are explained: whole patches of the model, the largest of which there are enough."""
    if own is None or side % own:
        return side // 4
    fitting = [size for size in range(own, side + 1, own) if side % size == 0 and (side // size) ** 2 >= FEWEST]
    return max(fitting, default=own)


def _is_pictures(path: Path) -> bool:
    classes = [one for one in path.iterdir() if one.is_dir()] if path.is_dir() else []
    return sum(any(file.suffix.lower() in IMAGE_SUFFIXES for file in one.iterdir()) for one in classes) > 1


def _many(kind: str) -> str:
    return {"image": "images", "text": "texts", "table": "columns of numbers"}[kind]
