"""Kinds of pretrained models: files by suffix, folders, and functions; models/pretrained.py opens them."""

from pathlib import Path

from shapeline.datasets.folders import names_folder
from shapeline.datasets.sources import names_function
from shapeline.errors import describe_missing, is_installed

FRAMEWORKS = {
    ".skops": "function",
    ".keras": "tensorflow",
    ".onnx": "function",
    "function": "function",
    "folder": "torch",
}
# Boosted trees in the files of their own package: what reads each.
BOOSTED = {".json": "xgboost", ".ubj": "xgboost", ".txt": "lightgbm", ".cbm": "catboost"}
FRAMEWORKS |= dict.fromkeys(BOOSTED, "function")
# By name, so that a process imports no other framework.
READERS = {
    ".skops": "shapeline.models.pipeline_file",
    ".keras": "shapeline.models.keras_file",
    ".onnx": "shapeline.models.onnx_file",
    "function": "shapeline.models.function_file",
    "folder": "shapeline.models.folder",
    **dict.fromkeys(BOOSTED, "shapeline.models.boosted_file"),
}
ESTIMATORS = (".skops", *BOOSTED)  # what tree_shap can look into


def suffix_of(source: str | None) -> str | None:
    """The suffix of a model's source where it is a file of a ready model, "folder" where it is one, else None."""
    if names_folder(source):
        return "folder"
    suffix = Path(source).suffix if source else None
    return suffix if suffix in FRAMEWORKS else None


def kind_of(source: str | None, framework: str | None) -> str | None:
    """What a model is that comes ready: the suffix of its file, "folder" or "function"; None of one built here."""
    return "function" if framework == "function" and source and names_function(source) else suffix_of(source)


def not_installed(kind: str | None) -> str | None:
    """What to install where the package that reads a kind of model is not there; None where nothing is missing."""
    package = BOOSTED.get(kind)
    return None if package is None or is_installed(package) else f"it cannot be read: {describe_missing(package)}"
