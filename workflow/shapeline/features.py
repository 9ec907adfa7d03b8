"""What a feature is: a pixel, a patch of pixels, a column, or a group of columns."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from shapeline.errors import ShapelineError, nearest

KINDS = {"pixel": ("kind",), "patch": ("kind", "size"), "column": ("kind",), "group": ("kind", "groups")}
IMAGE_KINDS, TABLE_KINDS = ("pixel", "patch"), ("column", "group")


@dataclass(frozen=True, eq=False)
class Features:
    """The features of one kind of input.

    shape: the feature grid, (28, 28), (4, 4) or (10,). cells: int32 of the input's shape, the id 0..d-1 of the feature
    that owns each input cell, -1 where a cell is never removed. names: d names, or empty.
    """

    kind: str
    shape: tuple[int, ...]
    cells: np.ndarray
    names: tuple[str, ...] = ()

    @property
    def d(self) -> int:
        return math.prod(self.shape)

    def expand(self, masks: np.ndarray) -> np.ndarray:
        """Coalitions (K, d) bool to input cells (K, *input_shape) bool; cells without a feature are always kept."""
        masks = np.asarray(masks, bool)
        if masks.ndim != 2 or masks.shape[1] != self.d:
            raise ShapelineError(f"masks of shape {masks.shape}: these features want (K, {self.d}).")
        # The appended column is what index -1 points at.
        return np.concatenate([masks, np.ones((len(masks), 1), bool)], axis=1)[:, self.cells]


def build(settings: dict | str, card: dict) -> Features:
    """The features that the settings describe on the inputs that a dataset's card describes.

    settings: a kind, or {kind, size (patch: side or [height, width]), groups (group: name -> columns)}. card: needs
    input_shape, and for tables feature_names and groups. A mistake raises ShapelineError.
    """
    settings = _parsed(settings)
    kind, input_shape = settings["kind"], tuple(card["input_shape"])
    names = tuple(card.get("feature_names") or ())
    shape = shape_of(settings, input_shape, card.get("groups"))
    if kind in IMAGE_KINDS:
        _, height, width = input_shape
        patch_height, patch_width = _patch_size(settings)
        rows, columns = np.arange(height) // patch_height, np.arange(width) // patch_width
        grid = rows[:, None] * shape[1] + columns
        return Features(kind, shape, np.broadcast_to(grid, input_shape).astype(np.int32))
    if kind == "column":
        return Features(kind, shape, np.arange(shape[0], dtype=np.int32), names)
    groups = settings.get("groups") or card["groups"]
    names = names or tuple(f"column {index}" for index in range(input_shape[0]))
    return Features(kind, shape, _group_cells(groups, names), tuple(map(str, groups)))


def shape_of(
    settings: dict | str, input_shape: tuple[int, ...], groups: dict[str, tuple[str, ...]] | None = None
) -> tuple[int, ...]:
    """The shape of the feature grid, known before any data is read (patches at the far edges may be smaller).

    groups: the dataset's own groups of columns, used where the settings give none. Raises ShapelineError.
    """
    settings = _parsed(settings)
    kind, is_image = settings["kind"], len(input_shape) == 3
    if (kind in IMAGE_KINDS) != is_image:
        fitting = IMAGE_KINDS if is_image else TABLE_KINDS
        data = "an image" if is_image else "a table"
        raise ShapelineError(f"features kind '{kind}' does not fit {data} dataset. Allowed: {', '.join(fitting)}.")
    if is_image:
        sides = input_shape[1:]
        patch = _patch_size(settings)
        if patch[0] > sides[0] or patch[1] > sides[1]:
            raise ShapelineError(f"features size {settings['size']}: larger than the image, {sides[0]}x{sides[1]}.")
        return tuple(-(-side // step) for side, step in zip(sides, patch, strict=True))
    if kind == "column":
        return tuple(input_shape)
    chosen = settings.get("groups") or groups
    if not chosen:
        raise ShapelineError("features kind 'group': the dataset has no groups; give 'groups', name -> columns.")
    own = [column for members in (groups or {}).values() for column in members]
    if settings.get("groups") and len(own) == input_shape[0]:
        _group_cells(chosen, tuple(own))
    return (len(chosen),)


def _parsed(settings: dict | str) -> dict:
    settings = {"kind": settings} if isinstance(settings, str) else settings
    kind = settings.get("kind")
    if kind not in KINDS:
        raise ShapelineError(f"features kind '{kind}': unknown.{nearest(kind, KINDS)}")
    for key in settings:
        if key not in KINDS[kind]:
            raise ShapelineError(f"features key '{key}': unknown for kind '{kind}'.{nearest(key, KINDS[kind])}")
    return settings


def _patch_size(settings: dict) -> tuple[int, int]:
    """Height and width of a patch; a pixel is a patch of one."""
    if settings["kind"] == "pixel":
        return 1, 1
    size = settings.get("size")
    sides = list(size) if isinstance(size, list | tuple) else [size, size]
    if len(sides) != 2 or not all(type(side) is int and side >= 1 for side in sides):
        raise ShapelineError(f"features size {size!r}: a patch needs a side, or [height, width], of 1 or more pixels.")
    return sides[0], sides[1]


def _group_cells(groups: dict, names: tuple[str, ...]) -> np.ndarray:
    """The group id of each column, (columns,) int32; every column must be in exactly one group."""
    position = {name: index for index, name in enumerate(names)}
    ids = []
    for group, members in groups.items():
        if isinstance(members, str) or not len(members):
            raise ShapelineError(f"features group '{group}': {members!r} is not a list of one or more columns.")
        for column in members:
            if column not in position:
                raise ShapelineError(f"features group '{group}': no column '{column}'.{nearest(column, names)}")
            ids.append(position[column])
    for problem, columns in (
        ("in more than one place", [names[index] for index, count in Counter(ids).items() if count > 1]),
        ("in no group", [name for name in names if position[name] not in set(ids)]),
    ):
        if columns:
            shown = ", ".join(f"'{name}'" for name in columns[:3]) + (", ..." if len(columns) > 3 else "")
            raise ShapelineError(f"features groups: {len(columns)} column(s) {problem} ({shown}); each needs one.")
    cells = np.empty(len(names), np.int32)
    cells[ids] = np.repeat(np.arange(len(groups)), [len(members) for members in groups.values()])
    return cells
