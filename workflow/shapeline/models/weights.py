"""Files of weights: safetensors with the names and layouts of torch, whichever framework trained them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from shapeline.errors import ShapelineError
from shapeline.files import atomic

Arrays = Mapping[str, np.ndarray]


def write(path: Path, arrays: Arrays, metadata: Mapping[str, Any]) -> None:
    """Write arrays and metadata under a temporary name and rename, so that no partial file is ever seen.

    metadata: framework and architecture as text; every other entry is stored as JSON.
    """
    texts = ("framework", "architecture")
    stored = {key: value if key in texts else json.dumps(value, sort_keys=True) for key, value in metadata.items()}
    contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    stored["digest"] = digest_of(contiguous)
    saved = safetensors.numpy.save(contiguous, stored)  # save_file lets only the owner read
    # The library's metadata are in another order every time; equal weights make equal files.
    length = int.from_bytes(saved[:8], "little")
    header = json.loads(saved[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic(path) as partial:
        partial.write_bytes(len(text).to_bytes(8, "little") + text + saved[8 + length :])


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Metadata (framework, architecture, classes, sizes, vocabulary_digest, task, outputs, order), the digest of the
    arrays, and these.

    Raises ShapelineError when the file is missing, not safetensors, or does not say which architecture it holds.
    """
    if not path.is_file():
        raise ShapelineError(f"models: no weights at {path}; train the model first")
    try:
        stored, arrays = _open_weights(path)
    except safetensors.SafetensorError as error:
        raise ShapelineError(
            f"models: {path} is damaged (not a safetensors file: {error}); remove it and run again, which trains the "
            "model again"
        ) from error
    if not {"architecture", "classes", "sizes"} <= stored.keys():
        raise ShapelineError(f"models: {path} does not name its architecture; it was not written by shapeline")
    if stored.get("digest") not in (None, digest_of(arrays)):
        raise ShapelineError(
            f"models: {path} is damaged (its arrays have another digest than stated); remove it and run again, "
            "which trains the model again"
        )
    return {
        "framework": stored.get("framework", "torch"),
        "architecture": stored["architecture"],
        "classes": json.loads(stored["classes"]),
        "sizes": json.loads(stored["sizes"]),
        "vocabulary_digest": json.loads(stored.get("vocabulary_digest", "null")),
        "task": json.loads(stored.get("task", '"classification"')),
        "order": json.loads(stored.get("order", "null")),
        "outputs": json.loads(stored.get("outputs", '"logits"')),
        "digest": stored.get("digest"),  # of the arrays
    }, arrays


def tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of any safetensors file, by name. Raises ShapelineError when it is missing or no such file."""
    if not path.is_file():
        raise ShapelineError(f"models: there is no file {path}; place the weights there")
    try:
        return _open_weights(path)[1]
    except safetensors.SafetensorError as error:
        raise ShapelineError(
            f"models: {path} is not a safetensors file ({error}); weights are never unpickled, give a .pth or "
            ".safetensors file"
        ) from error


def _open_weights(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    with safetensors.safe_open(path, framework="np") as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}


def digest_of(arrays: Arrays) -> str:
    """A digest of arrays by name, which tells that a bit of the file has changed; safetensors has none of its own."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def check_fit(
    arrays: Arrays, wanted: Arrays, source: str, architecture: str, remedy: str = "train the model again"
) -> None:
    """ShapelineError with the first array of a file that the model lacks, misses or has in another shape."""
    where = f"models: {source} does not fit '{architecture}'"
    for name in sorted(arrays.keys() ^ wanted.keys()):
        reason = "the file lacks" if name in wanted else "the model has no"
        raise ShapelineError(f"{where}: {reason} '{name}'; {remedy}")
    for name, array in wanted.items():
        if arrays[name].shape != array.shape:
            raise ShapelineError(
                f"{where}: '{name}' has shape {arrays[name].shape} and the model needs {array.shape}; {remedy}"
            )
