"""How the registry's entries become functions, and what these are called with.

Apart from the registry, whose words decide no number: an edit here runs what it calls again.
"""

import importlib
import inspect
from collections.abc import Callable
from functools import partial

from shapeline.datasets.sources import user_function

# Keys of a method entry that say how much to spend, and on what.
PLANNED = ("budget", "snapshots", "rival_of", "rival", "features", "background")


def function_of(reference: str) -> Callable:
    """The function named by "module:function" or "path/to/file.py:function"."""
    module, name = reference.rsplit(":", 1)
    return user_function(reference) if module.endswith(".py") else getattr(importlib.import_module(module), name)


def with_settings(function: Callable, settings: dict) -> Callable:
    """The function, given those of a method's settings that its signature names."""
    named = inspect.signature(function).parameters
    return partial(function, **{name: settings[name] for name in named if name in settings})


def call(function: Callable, available: dict) -> object:
    """Call `function` with those of the available values that its signature names."""
    return function(**{name: available[name] for name in inspect.signature(function).parameters if name in available})
