"""Packages whose public names are imported when they are first used, so that a dry run never pays for torch."""

import importlib
from collections.abc import Callable, Mapping

from shapeline.errors import nearest


def export_lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable, Callable[[], list[str]]]:
    """Return a package's `__getattr__`, which knows `__all__` too, and `__dir__`; homes: module to public names."""
    home_of = {
        name: home if "." in home else f"{package}.{home}" for home, names in homes.items() for name in names.split()
    }

    def get(name: str) -> object:
        if name == "__all__":
            return sorted(home_of)
        if name not in home_of:
            hint = "" if name.startswith("_") else f".{nearest(name, home_of)}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        return getattr(importlib.import_module(home_of[name]), name)

    return get, lambda: sorted(home_of)
