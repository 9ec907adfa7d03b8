"""Packages whose public names are imported when they are first used, so that a dry run never pays for torch."""

import importlib
from collections.abc import Callable, Mapping


def names_from(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`; homes: public name -> the module of the package that holds it."""

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return get, lambda: sorted(homes)
