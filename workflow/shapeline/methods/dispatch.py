"""How the registry's entries become functions, and what these are called with.

Apart from the registry, whose words decide no number: an edit here runs what it calls again.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from shapeline.datasets.sources import user_function


@dataclass(frozen=True)
class Call:
    """A function that a registry names, or a user's, and the names of its arguments."""

    function: Callable
    names: tuple[str, ...]

    def __call__(self, available: Mapping[str, object]) -> object:
        """Call the function with those of the available values that it names."""
        return self.function(**self._select_named(available))

    def bind(self, available: Mapping[str, object]) -> Callable:
        """Return the function with those of the available values that it names."""
        return partial(self.function, **self._select_named(available))

    def _select_named(self, available: Mapping[str, object]) -> dict[str, object]:
        return {name: available[name] for name in self.names if name in available}


def resolve(reference: str) -> Call:
    """Return the function named by "module:function" or "path/to/file.py:function"."""
    module, name = reference.rsplit(":", 1)
    is_file = module.endswith(".py")
    function = user_function(reference) if is_file else getattr(importlib.import_module(module), name)
    return Call(function, tuple(inspect.signature(function).parameters))
