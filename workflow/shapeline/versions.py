"""Versions of the packages that can change a number: those of a job, the installed ones, and their differences."""

import importlib.metadata
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

# By the name they are installed under, and how they are imported.
PACKAGES = {
    "captum": "captum",
    "catboost": "catboost",
    "keras": "keras",
    "lightgbm": "lightgbm",
    "lime": "lime",
    "shapiq": "shapiq",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "shap": "shap",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "xgboost": "xgboost",
}
FRAMEWORKS = {
    "torch": ("torch", "onnxruntime"),
    "tensorflow": ("tensorflow", "keras", "onnxruntime"),
    "function": ("onnxruntime", "scikit-learn", "xgboost", "lightgbm", "catboost"),
}


@cache
def version(package: str) -> str | None:
    """Return the installed version of a package; None if it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def list_imported() -> dict[str, str]:
    """Return the versions of the packages that this process has imported, also of the user's pipeline."""
    found = {package: version(package) for package, module in PACKAGES.items() if module in sys.modules}
    return {package: number for package, number in found.items() if number}


def list_versions(framework: str | None, packages: Iterable[str | None] = ()) -> dict[str, str]:
    """Return the installed versions of a job's packages, by its framework and by name; numpy and scipy always."""
    names = {"numpy", "scipy", *FRAMEWORKS.get(framework or "", ()), *filter(None, packages)}
    return {name: number for name in sorted(names) if (number := version(name))}


def find_differences(by_entry: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, tuple[str, str]]]:
    """Return the packages of each entry whose version is not the installed one (if none is installed: the most
    frequent one), with both versions."""
    usual = {}
    for package in PACKAGES:
        counted = Counter(versions[package] for versions in by_entry.values() if package in versions)
        if counted:
            usual[package] = version(package) or counted.most_common(1)[0][0]
    apart = {
        entry: {name: (versions[name], usual[name]) for name in usual if versions.get(name, usual[name]) != usual[name]}
        for entry, versions in by_entry.items()
    }
    return {entry: packages for entry, packages in apart.items() if packages}
