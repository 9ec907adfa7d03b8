"""What fills an absent feature: zero, the mean value, the mean image or row, or background rows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shapeline.errors import ShapelineError, nearest
from shapeline.seeds import seed_of

if TYPE_CHECKING:
    from shapeline.datasets import Dataset

KINDS = ("zero", "mean", "mean_value", "mean_image", "background")
DEFAULT_ROWS = 16


@dataclass(frozen=True, eq=False)
class Reference:
    """Reference inputs shared by all instances.

    rows: (M, *input_shape) float32. M = 1 is plug-in; for M > 1 the model's probability is averaged over the M rows and
    the log is taken after (Chen et al. 2018, section 2.1).
    """

    rows: np.ndarray


def parse(settings: dict | str) -> tuple[str, int]:
    """The kind and the number of rows of a reference given as a kind or {kind, rows}; needs no data.

    Raises ShapelineError for an unknown kind or key and for rows that are not a whole number of 1 or more.
    """
    settings = {"kind": settings} if isinstance(settings, str) else settings
    kind = settings.get("kind")
    if kind not in KINDS:
        raise ShapelineError(f"reference kind '{kind}': unknown.{nearest(kind, KINDS)}")
    allowed = ("kind", "rows") if kind == "background" else ("kind",)
    for key in settings:
        if key not in allowed:
            raise ShapelineError(f"reference key '{key}': unknown for kind '{kind}'.{nearest(key, allowed)}")
    rows = settings.get("rows", DEFAULT_ROWS if kind == "background" else 1)
    if type(rows) is not int or rows < 1:
        raise ShapelineError(f"reference key 'rows': {rows!r} is not a whole number of 1 or more.")
    return kind, rows


def build(settings: dict | str, dataset: "Dataset", seed: int) -> Reference:
    """The reference that the settings describe, made from the training part of the dataset alone.

    zero; mean_value: one number per channel, the mean over all training pixels (tables: the column means); mean_image:
    the mean training input; mean: mean_value; background: `rows` training inputs drawn by seed without replacement, of
    which a smaller draw is always a part. Raises ShapelineError.
    """
    kind, n_rows = parse(settings)
    input_shape = dataset.inputs.shape[1:]
    if kind == "zero":
        return Reference(np.zeros((1, *input_shape), np.float32))
    training = np.flatnonzero(dataset.split == 0)
    if n_rows > len(training):
        raise ShapelineError(f"reference key 'rows': {n_rows} asked of {len(training)} training record(s).")
    if kind == "background":
        order = np.random.default_rng(seed_of("background", seed)).permutation(training)
        return Reference(dataset.inputs[np.sort(order[:n_rows])].astype(np.float32))
    # float64: a float32 running sum over 60,000 images loses digits.
    mean = dataset.inputs[training].mean(axis=0, dtype=np.float64)
    if kind != "mean_image" and len(input_shape) == 3:
        mean = np.broadcast_to(mean.mean(axis=(1, 2), keepdims=True), input_shape)
    return Reference(mean[None].astype(np.float32))
