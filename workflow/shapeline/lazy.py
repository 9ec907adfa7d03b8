"""Packages whose public names are imported when they are first used, so that a dry run never pays for torch."""

import importlib
from collections.abc import Callable, Mapping


def names_from(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`; homes: public name -> the module that holds it, of the package or
    by its full name."""

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name] if "." in homes[name] else f"{package}.{homes[name]}"
        return getattr(importlib.import_module(home), name)

    return get, lambda: sorted(homes)
