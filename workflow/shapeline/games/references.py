"""References (baselines) of masked features: zero, padding, mask token, deletion, means, background, blur, an array.

`conditional`: masked columns of a table given the kept ones (Aas, Jullum & Loland 2021), by a Gaussian or
by the nearest rows; coalitions then resemble rows of the data.
"""

import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from shapeline.datasets import sources
from shapeline.datasets.loading import blocks
from shapeline.datasets.text import DELETED
from shapeline.errors import ShapelineError, nearest
from shapeline.seeds import seed_of

RIDGE = 1e-6  # added to the diagonal of the correlations, so that collinear columns cause no singularity
MAX_RECORDS = 2000  # records that are searched for neighbours
MAX_CELLS = 1 << 24  # entries of distances, or of matrices, in memory at a time
FORMS = ("gaussian", "neighbours")

Fill = Callable[[np.ndarray, np.ndarray], np.ndarray]


def build_conditional(form: str, rows: int, records: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Fill]:
    """Return the rows (M, c) of the empty coalition, and the function from inputs and kept cells to rows (n, K, M, c).

    gaussian: M samples given the kept cells, with the conditional mean; neighbours: the M records that are nearest on
    the kept cells, which are scaled by their standard deviations. Raises ShapelineError.
    """
    records = np.asarray(records, np.float64)
    if len(records) < (least := rows if form == "neighbours" else 2):
        raise ShapelineError(
            f"reference kind 'conditional': form {form} needs {least} training record(s) and has {len(records)}"
            "; use another form, or more training data."
        )
    if form == "neighbours":
        records = records[rng.permutation(len(records))[: max(MAX_RECORDS, rows)]]
        return records[:rows], Neighbours(records, _compute_scale(records), rows).fill
    mean, scale = records.mean(axis=0), _compute_scale(records)
    correlation = ((records - mean) / scale).T @ ((records - mean) / scale) / len(records)
    correlation[np.diag_indices(len(mean))] += RIDGE
    samples = rng.normal(size=(rows, len(mean)))
    if rows > 1:
        samples -= samples.mean(axis=0)
        samples *= np.sqrt(rows / (rows - 1))
    else:
        samples[:] = 0
    gaussian = Gaussian(mean, scale, correlation, samples @ np.linalg.cholesky(correlation).T)
    return mean + scale * gaussian.samples, gaussian.fill


def _compute_scale(records: np.ndarray) -> np.ndarray:
    """Return standard deviations (c,), 1 for a constant column."""
    scale = records.std(axis=0)
    return np.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A Gaussian: mean, scale (c,); correlation (c, c); standardised samples (M, c) of the joint distribution."""

    mean: np.ndarray
    scale: np.ndarray
    correlation: np.ndarray
    samples: np.ndarray

    def fill(self, inputs: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Return joint samples shifted by the difference of the kept cells (Matheron's rule)."""
        standardised = (np.asarray(inputs, np.float64) - self.mean) / self.scale
        result = np.empty((len(inputs), kept.shape[1], *self.samples.shape))
        step = max(1, MAX_CELLS // (len(self.mean) ** 2 * max(1, len(kept)) + len(inputs) * self.samples.size))
        shift = standardised[:, None, None, :] - self.samples  # (n, 1, M, c)
        for start in range(0, kept.shape[1], step):
            part = kept[:, start : start + step]
            matrix = np.where(part[..., :, None] & part[..., None, :], self.correlation, np.eye(len(self.mean)))
            gain = np.linalg.solve(matrix, part[..., :, None] * self.correlation)
            shifted = self.samples + (shift * part[:, :, None, :]) @ gain
            result[:, start : start + step] = self.mean + self.scale * shifted
        return result


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Nearest-neighbour filling: records (N, c), scale (c,), and the number of neighbours; ties by order."""

    records: np.ndarray
    scale: np.ndarray
    rows: int

    def fill(self, inputs: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Return the records nearest on the kept cells."""
        result = np.empty((len(inputs), kept.shape[1], self.rows, inputs.shape[1]))
        step = max(1, MAX_CELLS // len(self.records))
        for number, row in enumerate(np.asarray(inputs, np.float64)):
            squares = ((row - self.records) / self.scale) ** 2
            masks = kept[number if len(kept) > 1 else 0]
            for start in range(0, len(masks), step):
                distance = masks[start : start + step].astype(np.float64) @ squares.T
                nearest = np.argsort(distance, axis=1, kind="stable")[:, : self.rows]
                result[number, start : start + step] = self.records[nearest]
        return result


if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset

# Parameters per kind with their defaults (None: none, or computed from the data).
KINDS = {
    "zero": {},
    "mean": {},
    "mean_value": {},
    "mean_image": {},
    "background": {"rows": 16},
    "conditional": {"form": "gaussian", "rows": 16},
    "pad": {"id": None},
    "mask": {},
    "delete": {},
    "blur": {"sigma": None},
    "array": {"path": None},
}
FOLDER_KINDS = ("mask", "delete")  # need a tokenizer of a folder for texts, or a network that omits patches for images
TOKEN_KINDS = ("pad", *FOLDER_KINDS, "zero", "background", "array")
# The reference kinds that fit each kind of dataset.
FITTING = {
    "image": tuple(kind for kind in KINDS if kind not in ("pad", "mask", "conditional")),
    "table": tuple(kind for kind in KINDS if kind not in ("pad", "blur", *FOLDER_KINDS)),
    "text": TOKEN_KINDS,
}
MAX_SCALED = 10  # scaled images stay below this even with noise; images in 0..255 exceed it


@dataclass(frozen=True, eq=False)
class Reference:
    """The replacement of masked features.

    rows: (M, *input_shape), shared by all instances; for M > 1 the log of the mean probability is taken
    (Chen et al. 2018, section 2.1). own: the function from inputs to rows (n, M, *input_shape) of each. given: the
    function to rows that depend on the kept cells (`build_conditional`).
    """

    rows: np.ndarray | None
    own: Callable[[np.ndarray], np.ndarray] | None = None
    given: Fill | None = None

    @property
    def leaves_out(self) -> bool:
        """Whether masked patches of an image are omitted from the model's input, marked by NaN in their cells."""
        return self.rows is not None and self.rows.ndim == 4 and bool(np.isnan(self.rows).all())

    def of(self, inputs: np.ndarray) -> np.ndarray:
        """Return rows for inputs (n, *input_shape): (1, M, *input_shape) where shared, else (n, M, *input_shape)."""
        return self.rows[None] if self.own is None else self.own(inputs)


def parse(settings: dict | str) -> tuple[str, dict]:
    """Return kind and parameters, with defaults, of a kind or {kind, ...}. Raises ShapelineError for unknown ones."""
    settings = {"kind": settings} if isinstance(settings, str) else settings
    kind = settings.get("kind")
    if kind not in KINDS:
        row = "; of a row of the inputs give a data frame" if kind is None else ""
        raise ShapelineError(f"reference kind '{kind}': unknown{row}.{nearest(kind, KINDS)}")
    allowed = ("kind", *KINDS[kind])
    for key in settings:
        if key not in allowed:
            raise ShapelineError(f"reference key '{key}': unknown for kind '{kind}'.{nearest(key, allowed)}")
    chosen = {key: settings.get(key, default) for key, default in KINDS[kind].items()}
    for key, number in chosen.items():
        if key in ("rows", "id"):
            least = 1 if key == "rows" else 0
            valid = (type(number) is int and number >= least) or (key == "id" and number is None)
            expected = f"a whole number of {least} or more"
        elif key == "form":
            valid, expected = number in FORMS, " or ".join(FORMS)
        elif key == "sigma":
            expected = "a number of pixels above 0"
            valid = number is None or (type(number) in (int, float) and 0 < number < np.inf)
        else:
            valid, expected = isinstance(number, str | os.PathLike), "the path of a .npy or .npz file"
        if not valid:
            raise ShapelineError(f"reference key '{key}': {number!r} is out of range; give {expected}.")
    return kind, chosen


def build(settings: dict | str, dataset: "Dataset", seed: int) -> Reference:
    """Return the reference that the settings describe; data-dependent kinds use only the training part.

    zero; mean_value: one number per channel, the mean over all training pixels (tables: the column means, the most
    frequent code of a categorical column); mean_image: the mean training input; mean: mean_value; background: `rows`
    training inputs sampled without replacement, smaller samples being subsets of larger ones; conditional: rows that
    depend on the kept cells, for numeric tables; pad: token `id` everywhere, by default the card's id of an absent word
    or character; mask: the tokenizer's mask token; delete: DELETED, which removes the token from the document, in an
    image NaN, which removes a transformer's patch; blur: each image under a Gaussian filter of `sigma` pixels, by
    default an eighth of its shorter side (Fong & Vedaldi 2017); array: rows of the user's file, in the units of the
    prepared inputs. Raises ShapelineError.
    """
    kind, chosen = parse(settings)
    input_shape, dtype = dataset.inputs.shape[1:], dataset.inputs.dtype
    # Token ids; where the card states no kind, integers are.
    tokens = dataset.card.get("kind", "text") == "text" and np.issubdtype(dtype, np.integer)
    real = np.result_type(dtype, np.float32) if dtype.kind == "f" else np.dtype(np.float64)
    if tokens and kind not in TOKEN_KINDS:
        raise ShapelineError(f"reference kind '{kind}': the inputs are tokens, which have no mean; use pad.")
    if kind == "zero":
        for name in dataset.card.get("categories") or {}:
            raise ShapelineError(f"reference kind 'zero': column '{name}' holds categories; use mean or background.")
        return Reference(np.zeros((1, *input_shape), dtype))
    if kind == "pad":
        if not tokens:
            raise ShapelineError("reference kind 'pad': the inputs are not tokens; use zero or mean.")
        return Reference(np.full((1, *input_shape), _find_padding(chosen["id"], dataset), dtype))
    if kind == "delete" and len(input_shape) == 3:
        return Reference(np.full((1, *input_shape), np.nan, real))
    if kind in FOLDER_KINDS:
        return Reference(np.full((1, *input_shape), _find_removal_id(kind, dataset.card), np.int32))
    if kind == "blur":
        if len(input_shape) != 3:
            raise ShapelineError("reference kind 'blur': the inputs are not images; use mean or background.")
        return Reference(None, partial(_blur, sigma=chosen["sigma"] or min(input_shape[1:]) / 8))
    if kind == "array":
        rows = _read_rows(chosen["path"], input_shape, dtype if tokens else real, dataset.card.get("scale", 1))
        if tokens:
            _check_known(f"reference {sources.expand(chosen['path'])}", rows, dataset.card)
        return Reference(rows)
    training = np.flatnonzero(dataset.split == 0)
    if kind == "conditional":
        return _fit_conditional(chosen, dataset, training, seed)
    n_rows = chosen.get("rows", 1)
    if n_rows > len(training):
        raise ShapelineError(
            f"reference kind '{kind}': it needs {n_rows} training row(s) and has {len(training)}; set fewer rows."
        )
    if kind == "background":
        order = np.random.default_rng(seed_of("background", seed)).permutation(training)
        return Reference(dataset.inputs[np.sort(order[:n_rows])])
    if dataset.card.get("columns") or dataset.card.get("categorical"):
        return Reference(_compute_typical(dataset.inputs[training], dataset.card)[None])
    mean = _compute_mean(dataset.inputs, training)
    if kind != "mean_image" and len(input_shape) == 3:
        mean = np.broadcast_to(mean.mean(axis=(1, 2), keepdims=True), input_shape)
    return Reference(mean[None].astype(real))


def _compute_mean(inputs: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Return the mean input (*input_shape) float64, without missing cells, which the means of a data frame omit too."""
    # In float64, since a float32 sum over 60,000 images loses digits; in blocks, since all may exceed the memory.
    mean = sum(block.sum(axis=0, dtype=np.float64) for block in blocks(inputs, training)) / len(training)
    if np.isnan(mean).any():
        rows = np.ma.masked_where(np.isnan(inputs[training]), inputs[training])
        mean = rows.mean(axis=0, dtype=np.float64).filled(np.nan)
    return mean


def _find_padding(token: int | None, dataset: "Dataset") -> int:
    """Return the padding token: `token`, or by default the card's."""
    token, dtype = dataset.card.get("absent_id", 0) if token is None else token, dataset.inputs.dtype
    if token > np.iinfo(dtype).max:
        raise ShapelineError(
            f"reference key 'id': {token} does not fit the tokens' type, {dtype}; give an id of the vocabulary."
        )
    _check_known("reference key 'id'", np.array(token), dataset.card)
    return token


def _fit_conditional(chosen: dict, dataset: "Dataset", training: np.ndarray, seed: int) -> Reference:
    """Return a reference whose rows depend on the kept cells, for a table without categories."""
    if dataset.inputs.ndim != 2:
        raise ShapelineError("reference kind 'conditional': the inputs are not a table; use mean or background.")
    records, names = dataset.inputs[training], dataset.card.get("feature_names") or range(dataset.inputs.shape[1])
    for index in dataset.card.get("categorical") or ():
        raise ShapelineError(f"reference kind 'conditional': column '{names[index]}' holds categories; use background.")
    for index in np.flatnonzero(~np.isfinite(np.asarray(records, np.float64)).all(axis=0)):
        raise ShapelineError(
            f"reference kind 'conditional': column '{names[index]}' has missing or infinite numbers; use mean or "
            "background."
        )
    rng = np.random.default_rng(seed_of("conditional", seed))
    rows, fill = build_conditional(chosen["form"], chosen["rows"], records, rng)
    real = np.result_type(dataset.inputs.dtype, np.float32)
    return Reference(rows.astype(real), given=fill)


def _find_removal_id(kind: str, card: dict) -> int:
    """Return the id of a masked token of a text for a model of transformers."""
    if "mask_id" not in card:
        raise ShapelineError(f"reference kind '{kind}': is of texts by the tokenizer of a folder; use pad.")
    if kind == "mask" and card["mask_id"] is None:
        raise ShapelineError("reference kind 'mask': the tokenizer has no mask token; use delete or pad.")
    return DELETED if kind == "delete" else card["mask_id"]


def _check_known(where: str, tokens: np.ndarray, card: dict) -> None:
    """Raise ShapelineError for tokens outside the vocabulary, on which an embedding fails."""
    n_tokens = len(card.get("vocabulary", ()))
    wrong = tokens[(tokens < 0) | (tokens >= n_tokens)]
    if n_tokens and len(wrong):
        raise ShapelineError(f"{where}: {wrong[0]} is not a token; the vocabulary has the ids 0 to {n_tokens - 1}.")


def _blur(inputs: np.ndarray, sigma: float) -> np.ndarray:
    """Return images (n, channels, height, width) under a Gaussian filter, (n, 1, channels, height, width) float32."""
    from scipy.ndimage import gaussian_filter

    images = np.asarray(inputs, np.float32)
    return gaussian_filter(images, sigma, axes=(2, 3), mode="nearest")[:, None]


def _compute_typical(rows: np.ndarray, card: dict) -> np.ndarray:
    """Return each column's mean or, for codes, the middle one of its most frequent values; missing cells do not count.
    rows: (n, columns)."""
    present = ~np.isnan(rows)
    count = present.sum(axis=0)
    usual = np.where(present, rows, 0).sum(axis=0, dtype=np.float64) / count.clip(1)
    usual[count == 0] = np.nan  # a column without training values stays missing
    for column in card.get("categorical") or ():
        if count[column]:
            counts = np.bincount(rows[present[:, column], column].astype(np.int64))
            equal = np.flatnonzero(counts == counts.max())
            usual[column] = equal[(len(equal) - 1) // 2]  # of dates that each occur once, not the first
    return usual.astype(rows.dtype)


def _read_rows(path: str | os.PathLike, input_shape: tuple[int, ...], dtype: np.dtype, scale: float) -> np.ndarray:
    """Return the array of a .npy or .npz file as rows (M, *input_shape). Raises ShapelineError."""
    file = sources.expand(path)
    where = f"reference {file}"
    try:
        stored = np.load(file, allow_pickle=False)
        if not isinstance(stored, np.ndarray):
            with stored:
                if len(stored.files) != 1:
                    named = ", ".join(stored.files) or "none"
                    raise ShapelineError(f"{where}: it holds {len(stored.files)} arrays ({named}); keep one.")
                stored = stored[stored.files[0]]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else "it is not a .npy or .npz array"
        raise ShapelineError(f"{where}: {reason}; write one with numpy.save.") from error
    rows = stored[None] if stored.shape == input_shape else stored
    if rows.shape[1:] != input_shape or len(rows) == 0:
        single, many = (f"({', '.join(map(str, sides))})" for sides in (input_shape, ("M", *input_shape)))
        raise ShapelineError(f"{where}: an array of shape {stored.shape}; one input has {single}, rows have {many}.")
    if rows.dtype.kind not in "biuf":
        raise ShapelineError(f"{where}: an array of {rows.dtype}; give numbers.")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = rows.astype(dtype)
    bad = np.size(rows) - np.count_nonzero(np.isfinite(rows) & np.isfinite(converted))
    if bad:
        raise ShapelineError(f"{where}: {bad} value(s) are NaN or infinite; replace them by numbers.")
    if np.issubdtype(dtype, np.integer) and not np.array_equal(converted, rows):
        raise ShapelineError(f"{where}: the inputs are tokens; give whole numbers that fit {dtype}.")
    if scale != 1 and np.abs(converted).max() > MAX_SCALED:
        raise ShapelineError(
            f"{where}: it reaches {np.abs(converted).max():g}, but the inputs are divided by {scale:g}; divide it too."
        )
    return converted
