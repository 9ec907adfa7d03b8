"""Definitions of features: pixels, patches, superpixels, columns, groups of columns, words, runs of characters."""

import logging
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shapeline.datasets.loading import is_series
from shapeline.errors import ShapelineError, nearest

# Parameters per segmentation with their defaults, those of scikit-image and of LIME (Ribeiro et al. 2016).
SEGMENTATIONS = {
    "slic": {"segments": 50, "compactness": 10},
    "quickshift": {"kernel_size": 4, "max_distance": 200, "ratio": 0.2},
}


def check_segmentation(settings: dict, pixels: int) -> tuple[str, dict]:
    """Return the segmentation method and its parameters with defaults. Raises ShapelineError."""
    method = settings.get("method", "slic")
    if method not in SEGMENTATIONS:
        raise ShapelineError(f"features method '{method}': unknown.{nearest(method, SEGMENTATIONS)}")
    defaults = SEGMENTATIONS[method]
    for key in settings:
        if key not in ("kind", "method", *defaults):
            raise ShapelineError(f"features key '{key}': unknown for method '{method}'.{nearest(key, defaults)}")
    if "segments" in defaults:  # of a small image, segments of at least four pixels
        defaults = defaults | {"segments": max(1, min(defaults["segments"], pixels // 4))}
    chosen = {key: settings.get(key, default) for key, default in defaults.items()}
    for key, number in chosen.items():
        if key == "segments":
            valid, expected = type(number) is int and number >= 1, "a whole number of 1 or more"
        else:
            least, expected = (1, "a number of 1 or more") if key == "kernel_size" else (0, "a number above 0")
            valid = type(number) in (int, float) and 0 < number < math.inf and number >= least
        if not valid:
            raise ShapelineError(f"features key '{key}': {number!r} is out of range; give {expected}.")
    return method, chosen


def _scale(image: np.ndarray) -> np.ndarray:
    """Return an image in [0, 1], which CIELAB needs: unchanged, of 0 to 255 divided, else from its own range."""
    low, high = image.min(), image.max()
    if low >= 0 and high <= 1:
        return image
    low, high = (0, 255) if low >= 0 and high <= 255 else (low, high)
    return (image - low) / (high - low or 1)


def cut_segments(x: np.ndarray, settings: dict) -> np.ndarray:
    """Return the segment 0..d-1 of each pixel, (height, width), of an image (channels, height, width)."""
    from skimage import segmentation

    method, chosen = check_segmentation(settings, math.prod(x.shape[1:]))
    if not np.isfinite(x).all():
        raise ShapelineError(
            "features kind 'superpixel': the image holds NaN or infinite numbers; replace them by numbers."
        )
    image = np.ascontiguousarray(np.moveaxis(x.astype(np.float64), 0, 2))
    if image.shape[2] == 1:
        # A grey image becomes a colour image, so that compactness, a distance in CIELAB, has one meaning for both.
        image = np.repeat(image, 3, axis=2)
    colour = image.shape[2] == 3
    if method == "slic":
        # scikit-image scales an image to [0, 1]; CIELAB has a range to 100.
        compactness = chosen["compactness"] / (1 if colour else 100)
        labels = segmentation.slic(image, n_segments=chosen["segments"], compactness=compactness, start_label=0)
    else:
        labels = segmentation.quickshift(
            _scale(image),
            ratio=chosen["ratio"],
            kernel_size=chosen["kernel_size"],
            max_dist=chosen["max_distance"],
            convert2lab=colour,
            rng=0,
        )
        if not labels.any() and np.ptp(image) > 0:  # the defaults are those of photographs
            less = min(labels.shape) / 4
            log.warning("superpixels: quickshift finds one in the whole image; set max_distance: %g, or slic", less)
    return np.unique(labels, return_inverse=True)[1].reshape(labels.shape)


if TYPE_CHECKING:
    import networkx


log = logging.getLogger(__name__)
KINDS = {
    "pixel": ("kind",),
    "patch": ("kind", "size"),
    "superpixel": ("kind", "method", "segments", "compactness", "kernel_size", "max_distance", "ratio"),
    "column": ("kind",),
    "group": ("kind", "groups"),
    "word": ("kind",),
    "character_run": ("kind",),
    "sentence": ("kind",),
    "passage": ("kind",),
    "message": ("kind",),
    "part": ("kind",),
    "player": ("kind",),
}
# The feature kinds that fit each kind of dataset; superpixels have no grid.
CHOICES = {"image": ("pixel", "patch", "superpixel"), "table": ("column", "group"), "text": ("word", "character_run")}
IMAGE_KINDS, TABLE_KINDS, TEXT_KINDS = ("pixel", "patch"), CHOICES["table"], CHOICES["text"]
PART_KINDS = ("sentence", "passage", "part")
VARYING_KINDS = ("superpixel", *PART_KINDS, "message", "player", *TEXT_KINDS)
PADDING = 0  # the token id that pads short documents


@dataclass(frozen=True, eq=False)
class Features:
    """The features of an input. shape: of the grid, or (d,); names: d or none; cells: int32 of the input's shape, the
    feature 0..d-1 of each input cell, -1 where it is never masked."""

    kind: str
    shape: tuple[int, ...]
    cells: np.ndarray
    names: tuple[str, ...] = ()

    def __post_init__(self):
        """Raise ShapelineError for cells or names that do not fit the shape, as a user may give them."""
        object.__setattr__(self, "shape", tuple(map(int, self.shape)))  # a file holds no integers of numpy
        low, high = self.cells.min(initial=0), self.cells.max(initial=-1)
        if low < -1 or high >= self.d or self.cells.dtype.kind not in "iu":
            raise ShapelineError(
                f"features: cells hold {low} to {high} ({self.cells.dtype}) and the shape {self.shape} has features "
                f"0 to {self.d - 1}; give each cell the number of its feature, or -1 where it is never masked."
            )
        if len(self.names) not in (0, self.d):
            raise ShapelineError(f"features: {len(self.names)} names of {self.d} features; name each, or none.")

    @property
    def d(self) -> int:
        return math.prod(self.shape)

    def expand(self, masks: np.ndarray) -> np.ndarray:
        """Expand coalitions (K, d) bool to input cells (K, *input_shape) bool; cells without a feature are kept."""
        masks = np.asarray(masks, bool)
        if masks.ndim != 2 or masks.shape[1] != self.d:
            raise ShapelineError(
                f"masks: shape {masks.shape}, and these features need (K, {self.d}); give masks of these features."
            )
        # Index -1 selects the appended column.
        return np.concatenate([masks, np.ones((len(masks), 1), bool)], axis=1)[:, self.cells]

    def divide(self, scores: np.ndarray) -> np.ndarray:
        """Return scores (d,) as a map of the input's shape: a feature's score is divided evenly among its cells."""
        sizes = np.bincount(self.cells[self.cells >= 0], minlength=self.d)
        return np.append(scores / np.maximum(sizes, 1), 0.0)[self.cells]  # -1, no feature, selects the appended 0


def is_varying(settings: dict | str) -> bool:
    """Return whether the features, and so d, depend on the instance. Raises ShapelineError."""
    return _parse(settings)["kind"] in VARYING_KINDS


def build(settings: dict | str, card: dict) -> Features:
    """Return the features, equal for every instance, of inputs that a card describes.

    settings: a kind, or {kind, size, groups (name -> columns)}; columns of a one-hot code are one feature where a
    group lists them. Raises ShapelineError.
    """
    settings = _parse(settings)
    kind, input_shape = settings["kind"], tuple(card["input_shape"])
    names = tuple(card.get("feature_names") or ())
    shape = find_shape(settings, input_shape, card.get("groups"), card.get("kind"))
    if shape is None:
        raise ShapelineError(f"features kind '{kind}': it depends on the instance; give the instance to build_for().")
    if kind in IMAGE_KINDS:
        _, height, width = input_shape
        patch_height, patch_width = _read_patch_size(settings)
        rows, columns = np.arange(height) // patch_height, np.arange(width) // patch_width
        grid = rows[:, None] * shape[1] + columns
        cells = np.broadcast_to(grid, input_shape).astype(np.int32)
        return Features(kind, shape, cells, _name_steps(grid, shape, names) if is_series(card) else ())
    if kind == "column":
        return Features(kind, shape, np.arange(shape[0], dtype=np.int32), names)
    groups = settings.get("groups") or card["groups"]
    names = names or tuple(f"column {index}" for index in range(input_shape[0]))
    return Features(kind, shape, _group_cells(groups, names), tuple(map(str, groups)))


def _name_steps(grid: np.ndarray, shape: tuple[int, ...], channels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the time steps and channels of a series' features, grid (time, channels) or (channels, time); without
    names of the channels these are the shorter side."""
    sides = grid.shape
    axis = int(sides[1] == len(channels) if channels else sides[1] <= sides[0])
    labels = []
    for side, numbers in enumerate((grid[:, 0] // shape[1], grid[0] % shape[1])):
        firsts = np.searchsorted(numbers, np.arange(shape[side]))
        noun, each = ("channel", []) if side == axis else ("step", [])
        for first, last in zip(firsts, np.append(firsts[1:], sides[side]) - 1, strict=True):
            span = f"{noun} {first}" if first == last else f"{noun}s {first}–{last}"
            span = ", ".join(channels[first : last + 1]) if channels and side == axis else span
            each.append("" if side == axis and shape[side] == 1 and not (channels and first == last) else span)
        labels.append(each)
    steps, others = labels[1 - axis], labels[axis]
    places = (place if axis else place[::-1] for place in np.ndindex(*shape))
    return tuple(", ".join(filter(None, (steps[step], others[channel]))) for step, channel in places)


def build_for(settings: dict | str, card: dict, x: np.ndarray, owners: np.ndarray | None = None) -> Features:
    """Return the features of one instance x (*input_shape), of any kind.

    superpixel: by "slic" (Achanta et al. 2012) or "quickshift" (Vedaldi & Soatto 2008), deterministic.
    word: each token, or with `owners` (length,) all tokens of a word. character_run: characters between spaces.
    Raises ShapelineError.
    """
    settings, x = _parse(settings), np.asarray(x)
    kind = settings["kind"]
    if x.shape != tuple(card["input_shape"]):
        raise ShapelineError(f"features: an instance of shape {x.shape}; the card says {tuple(card['input_shape'])}.")
    if not is_varying(settings):
        return build(settings, card)
    find_shape(settings, x.shape, None, card.get("kind"))
    if kind == "superpixel":
        segments = cut_segments(x, settings)
        return Features(kind, (int(segments.max()) + 1,), np.broadcast_to(segments, x.shape).astype(np.int32))
    fitting = {"word": "word", "character": "character_run"}.get(card.get("unit"), kind)
    if kind != fitting:
        raise ShapelineError(f"features kind '{kind}': does not fit tokens of unit {card['unit']}; use {fitting}.")
    if not np.array_equal(x, np.trunc(x)):
        raise ShapelineError(
            f"features kind '{kind}': the instance holds numbers that are not token ids; give token ids."
        )
    if owners is not None:
        return Features(kind, (int(owners.max(initial=-1)) + 1,), owners.astype(np.int32))
    if kind == "word":
        kept = x != PADDING
        feature = np.arange(kept.sum())
    else:
        if card.get("space_id") is None:
            raise ShapelineError(
                "features kind 'character_run': the dataset's card has no space_id; set space_id, or use another kind."
            )
        kept = (x != PADDING) & (x != card["space_id"])
        # Only a space ends a run: a character outside the alphabet may have become id 0 within a word.
        _, feature = np.unique(np.cumsum(x == card["space_id"])[kept], return_inverse=True)
    cells = np.full(x.shape, -1, np.int32)
    cells[kept] = feature
    return Features(kind, (int(cells.max(initial=-1)) + 1,), cells)


def group_inputs(
    settings: dict | str, card: dict, inputs: np.ndarray, owners: np.ndarray | None = None
) -> list[tuple[Features, np.ndarray]]:
    """Return inputs grouped by equal features: (features, ascending positions), in order of d."""
    if not is_varying(settings):
        return [(build(settings, card), np.arange(len(inputs)))]
    groups: dict[bytes, tuple[Features, list[int]]] = {}
    for position, x in enumerate(inputs):
        features = build_for(settings, card, x, None if owners is None else owners[position])
        groups.setdefault(features.cells.tobytes(), (features, []))[1].append(position)
    shared = sorted(groups.values(), key=lambda group: group[0].d)
    return [(features, np.array(positions)) for features, positions in shared]


def spread_scores(scores: np.ndarray, features: Features, cells: Features) -> np.ndarray:
    """Return scores (n, *features.shape) in equal shares as scores of finer features (n, *cells.shape)."""
    parent = np.empty(cells.d, np.int64)
    parent[cells.cells.ravel()] = features.cells.ravel()
    shares = scores.reshape(len(scores), -1) / np.bincount(parent, minlength=features.d)
    return shares[:, parent].reshape(len(scores), *cells.shape)


def build_graph(features: Features) -> "networkx.Graph":
    """Return the graph of features on nodes 0..d-1: a grid, a chain, or neighbouring superpixels; not of columns."""
    from shapeline import graphs

    if features.kind in IMAGE_KINDS:
        return graphs.grid(*features.shape)
    if features.kind in (*TEXT_KINDS, *PART_KINDS):
        return graphs.chain(features.d)
    if features.kind != "superpixel":
        raise ShapelineError(f"features kind '{features.kind}': there is no graph; set graph to 'chain' or 'complete'")
    import networkx

    owners = features.cells[0]
    first = np.concatenate([owners[:, :-1].ravel(), owners[:-1].ravel()])
    other = np.concatenate([owners[:, 1:].ravel(), owners[1:].ravel()])
    pairs = np.unique(np.column_stack([first, other])[(first != other) & (first >= 0) & (other >= 0)], axis=0)
    joined = networkx.Graph()
    joined.add_nodes_from(range(features.d))
    joined.add_edges_from(pairs.tolist())
    components = networkx.number_connected_components(joined)
    if components > 1:
        log.warning("superpixels: their graph has %d components, which no window of features can cross", components)
    return joined


def find_shape(
    settings: dict | str,
    input_shape: tuple[int, ...],
    groups: dict[str, tuple[str, ...]] | None = None,
    data: str | None = None,
    names: tuple[str, ...] = (),
) -> tuple[int, ...] | None:
    """Return the shape of the feature grid before data is read, None where it depends on the instance; names: of the
    columns, as far as they are known."""
    settings = _parse(settings)
    kind = settings["kind"]
    possible = [data] if data else ["image"] if len(input_shape) == 3 else ["table", "text"]
    fitting = [name for kind in possible for name in CHOICES[kind]]
    if kind not in fitting:
        raise ShapelineError(
            f"features kind '{kind}': does not fit a dataset of kind {' or '.join(possible)}. "
            f"Allowed: {', '.join(fitting)}."
        )
    if kind in IMAGE_KINDS:
        sides = input_shape[1:]
        patch = _read_patch_size(settings)
        if patch[0] > sides[0] or patch[1] > sides[1]:
            raise ShapelineError(
                f"features size {settings['size']}: larger than the image, {sides[0]}x{sides[1]}; give a smaller size."
            )
        return tuple(-(-side // step) for side, step in zip(sides, patch, strict=True))
    if kind == "superpixel":
        pixels = math.prod(input_shape[1:])
        segments = check_segmentation(settings, pixels)[1].get("segments", 1)
        if segments > pixels:
            raise ShapelineError(f"features segments {segments}: more than the image's {pixels} pixels; give fewer.")
        return None
    if kind in TEXT_KINDS:
        return None
    if kind == "column":
        return tuple(input_shape)
    chosen = settings.get("groups") or groups
    if not chosen:
        raise ShapelineError("features kind 'group': the dataset has no groups; give 'groups', name -> columns.")
    columns = [column for members in (groups or {}).values() for column in members] or names
    if settings.get("groups") and len(columns) == input_shape[0]:
        _group_cells(chosen, tuple(columns))
    return (len(chosen),)


def _parse(settings: dict | str) -> dict:
    settings = {"kind": settings} if isinstance(settings, str) else settings
    kind = settings.get("kind")
    if kind not in KINDS:
        raise ShapelineError(f"features kind '{kind}': unknown.{nearest(kind, KINDS)}")
    for key in settings:
        if key not in KINDS[kind]:
            raise ShapelineError(f"features key '{key}': unknown for kind '{kind}'.{nearest(key, KINDS[kind])}")
    return settings


def _read_patch_size(settings: dict) -> tuple[int, int]:
    """Return height and width of a patch; a pixel is a patch of one."""
    if settings["kind"] == "pixel":
        return 1, 1
    size = settings.get("size")
    sides = list(size) if isinstance(size, list | tuple) else [size, size]
    if len(sides) != 2 or not all(type(side) is int and side >= 1 for side in sides):
        raise ShapelineError(
            f"features size {size!r}: no side of a patch; give a side, or [height, width], of 1 or more pixels."
        )
    return sides[0], sides[1]


def _group_cells(groups: dict, names: tuple[str, ...]) -> np.ndarray:
    """Return the group id of each column, (columns,) int32; every column must be in exactly one group."""
    position = {name: index for index, name in enumerate(names)}
    ids = []
    for group, members in groups.items():
        if isinstance(members, str) or not hasattr(members, "__len__") or not len(members):
            raise ShapelineError(
                f"features group '{group}': {members!r} is not a list of one or more columns"
                "; list columns of the dataset."
            )
        for column in map(str, members):
            if column not in position:
                raise ShapelineError(f"features group '{group}': no column '{column}'.{nearest(column, names)}")
            ids.append(position[column])
    for problem, columns in (
        ("in more than one place", [names[index] for index, count in Counter(ids).items() if count > 1]),
        ("in no group", [name for name in names if position[name] not in set(ids)]),
    ):
        if columns:
            shown = ", ".join(f"'{name}'" for name in columns[:3]) + (", ..." if len(columns) > 3 else "")
            raise ShapelineError(
                f"features groups: {len(columns)} column(s) {problem} ({shown}); list each column once."
            )
    cells = np.empty(len(names), np.int32)
    cells[ids] = np.repeat(np.arange(len(groups)), [len(members) for members in groups.values()])
    return cells
