"""Weights that others trained, from torch's own files: read once, tensors alone, and kept as safetensors."""

import pickle
import re
import struct
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch

from shapeline.datasets.registry import WEIGHTS
from shapeline.errors import ShapelineError
from shapeline.files import atomic
from shapeline.models.weights import tensors

# What torch.load raises for a file that is damaged or no file of torch's, besides refusing what is not a tensor.
UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, AttributeError, TypeError)
UNREADABLE += (struct.error, AssertionError)


def convert(path: Path, destination: Path) -> None:
    """Keep the weights of a .pth or .safetensors file at `destination` as safetensors.

    A file with the name of an official one must be it. Raises ShapelineError.
    """
    for official in WEIGHTS.values():
        # One placed by hand never went through fetch, so this is the first look at it.
        if path.name == official.name and path.is_file() and (problem := official.problem(path)):
            raise ShapelineError(f"{path}: {problem}; delete it, and fetch it again or replace it by hand")
    arrays = tensors(path) if path.suffix == ".safetensors" else state_dict(path)
    with atomic(destination) as partial:
        partial.write_bytes(safetensors.numpy.save(arrays))


def state_dict(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file that torch.save wrote of a state dict, by name; code in the file is never run.

    Raises ShapelineError when it is missing, damaged, or holds anything but tensors by name.
    """
    where = f"models: {path}"
    if not path.is_file():
        raise ShapelineError(f"{where}: there is no such file; place the weights there")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"asks to run {asked[1]}, which is never done" if asked else "is damaged or no file of torch's"
        raise ShapelineError(f"{where}: refused, it {reason}; save model.state_dict() with torch.save") from error
    named = isinstance(loaded, dict) and all(isinstance(name, str) for name in loaded)
    if not named or not all(isinstance(tensor, torch.Tensor) for tensor in loaded.values()):
        raise ShapelineError(f"{where}: holds no tensors by name; save model.state_dict() with torch.save")
    floats = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in loaded.items()}
    return {name: tensor.detach().contiguous().numpy() for name, tensor in floats.items()}
